//! Where things lie on the page.

use super::judge::{Fault, Kind};
use super::seen::{Block, Rect, Seen, Text};

/// From this width on nothing may need scrolling sideways.
const WIDE_PX: f64 = 1000.0;

/// Browsers round to parts of a pixel.
const SLACK_PX: f64 = 1.5;

/// Smaller letters are hard to read.
const FONT_LEAST_PX: f64 = 12.0;

/// The same for a line in a picture, which is shrunk with it, from its lowest to its highest point.
const INK_LEAST_PX: f64 = 9.0;

/// One line of a font is no higher than this, in sizes of the font.
const LINE_MOST: f64 = 1.8;

/// A smaller picture shows nothing.
const PLOT_LEAST_PX: (f64, f64) = (200.0, 100.0);

/// Nothing lies beside the page, is cut off, sticks out or lies on something else.
pub fn check(page: &Seen, width_px: f64, faults: &mut Vec<Fault>) {
    sides(page, width_px, faults);
    for text in &page.texts {
        faults.extend(placed(text, width_px));
    }
    for (at, text) in page.texts.iter().enumerate() {
        let others = &page.texts[at + 1..];
        let on_it = others
            .iter()
            .find(|other| text.shown.meets(&other.shown, SLACK_PX));
        if let Some(other) = on_it {
            faults.push(Fault::new(
                Kind::Overlap,
                format!("{} and {}", text.name(), other.name()),
            ));
        }
    }
    blocks(page, width_px, faults);
}

/// The page is as wide as its window, and everything that is to be seen lies on it.
fn sides(page: &Seen, width_px: f64, faults: &mut Vec<Fault>) {
    if page.width_px != width_px || page.content_width_px > width_px {
        faults.push(Fault::new(
            Kind::Wide,
            format!(
                "the page takes {} px in a window of {} px, where {width_px} are asked for",
                page.content_width_px, page.width_px
            ),
        ));
    }
    let sheet = Rect {
        x: 0.0,
        y: 0.0,
        width: width_px,
        height: f64::INFINITY,
    };
    let texts = page.texts.iter().map(|text| (text.name(), text.shown));
    let blocks = page
        .blocks
        .iter()
        .map(|block| (format!("a {}", block.tag), block.shown));
    for (name, shown) in texts.chain(blocks) {
        if !shown.is_empty() && !sheet.holds(&shown, SLACK_PX) {
            faults.push(Fault::new(
                Kind::Wide,
                format!("{name} lies beside the page: {shown:?}"),
            ));
        }
    }
}

/// What is wrong with the place of one text.
fn placed(text: &Text, width_px: f64) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut fault = |kind: Kind, what: String| faults.push(Fault::new(kind, what));
    let whole = text.shown.holds(&text.ink, SLACK_PX);
    if text.cut || (width_px >= WIDE_PX && !whole) {
        fault(Kind::Cut, format!("{} is cut off", text.name()));
    }
    if !text.scrolls_itself && !text.frame.holds(&text.ink, SLACK_PX) {
        fault(
            Kind::Spills,
            format!("{} sticks out of its box", text.name()),
        );
    }
    if text.tinted && text.ink.height > LINE_MOST * text.font_px {
        fault(
            Kind::Wrapped,
            format!("{} is {} px high", text.name(), text.ink.height),
        );
    }
    if !text.broken.is_empty() {
        fault(
            Kind::Broken,
            format!("{}: words in two lines: {:?}", text.name(), text.broken),
        );
    }
    // A line may be turned by a quarter.
    let thick_px = text.ink.height.min(text.ink.width);
    if text.in_svg {
        if text.text.chars().count() > 3 && thick_px < INK_LEAST_PX {
            fault(
                Kind::Small,
                format!("{} is {thick_px:.1} px high", text.name()),
            );
        }
    } else if text.font_px < FONT_LEAST_PX {
        fault(
            Kind::Small,
            format!("{} is set in {} px", text.name(), text.font_px),
        );
    }
    faults
}

/// Tables are regular and have lines; pictures are large enough.
fn blocks(page: &Seen, width_px: f64, faults: &mut Vec<Fault>) {
    for block in &page.blocks {
        let whole = block.shown.holds(&block.frame, SLACK_PX);
        if block.cut || (width_px >= WIDE_PX && !whole) {
            faults.push(Fault::new(Kind::Cut, format!("a {} is cut off", block.tag)));
        }
        if !block.is_plot()
            && (block.cells.len() < 2 || block.cells.iter().any(|cells| *cells != block.cells[0]))
        {
            faults.push(Fault::new(
                Kind::Table,
                format!("a table has rows of {:?} cells", block.cells),
            ));
        }
        let (width, height) = PLOT_LEAST_PX;
        if block.is_plot() && (block.frame.width < width || block.frame.height < height) {
            faults.push(Fault::new(
                Kind::Small,
                format!(
                    "a picture takes {:.0} x {:.0} px",
                    block.frame.width, block.frame.height
                ),
            ));
        }
    }
    if page.blocks.iter().all(Block::is_plot) {
        faults.push(Fault::new(Kind::Missing, "no table"));
    }
    let bare = page
        .texts
        .iter()
        .find(|text| text.is_cell() && text.border_px < 1.0);
    if let Some(text) = bare {
        faults.push(Fault::new(
            Kind::Lines,
            format!("{} has no line around it", text.name()),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::page;
    use super::*;

    fn with(width_px: f64, change: impl FnOnce(&mut Seen)) -> Vec<Kind> {
        let mut page = page();
        page.width_px = width_px;
        page.content_width_px = width_px;
        change(&mut page);
        let mut faults = Vec::new();
        check(&page, width_px, &mut faults);
        let mut kinds: Vec<Kind> = faults.iter().map(|fault| fault.kind).collect();
        kinds.dedup();
        kinds
    }

    const WIDE: f64 = 1280.0;
    const NARROW: f64 = 400.0;

    #[test]
    fn a_page_that_is_wider_than_its_window_is_wrong() {
        assert_eq!(with(WIDE, |_| ()), []);
        assert_eq!(
            with(WIDE, |page| page.content_width_px = 1300.0),
            [Kind::Wide]
        );
        assert_eq!(with(WIDE, |page| page.width_px = 980.0), [Kind::Wide]);
        assert_eq!(
            with(WIDE, |page| page.blocks[0].shown.x = -20.0),
            [Kind::Wide, Kind::Cut]
        );
    }

    #[test]
    fn what_must_be_scrolled_to_is_fine_on_a_narrow_screen_alone() {
        let half = |page: &mut Seen| {
            page.texts[4].shown.width /= 2.0;
            page.texts[4].scrolls = true;
        };
        assert_eq!(with(NARROW, half), []);
        assert_eq!(with(WIDE, half), [Kind::Cut]);
        assert_eq!(with(NARROW, |page| page.texts[4].cut = true), [Kind::Cut]);
    }

    #[test]
    fn text_beside_its_box_is_wrong_unless_the_box_scrolls() {
        let wider = |page: &mut Seen| page.texts[4].frame.width = 20.0;
        assert_eq!(with(WIDE, wider), [Kind::Spills]);
        assert_eq!(
            with(WIDE, |page| {
                wider(page);
                page.texts[4].scrolls_itself = true;
            }),
            []
        );
    }

    #[test]
    fn words_that_are_cut_in_two_are_wrong() {
        let cut = |page: &mut Seen| page.texts[2].broken.push("FAILED".into());
        assert_eq!(with(NARROW, cut), [Kind::Broken]);
    }

    #[test]
    fn figures_that_take_two_lines_are_wrong() {
        let higher = |page: &mut Seen| {
            page.texts[4].ink.height = 36.0;
            page.texts[4].shown.height = 36.0;
            page.texts[4].frame.height = 48.0;
        };
        assert_eq!(with(NARROW, higher), [Kind::Wrapped]);
    }

    #[test]
    fn texts_on_each_other_are_wrong() {
        let moved = |page: &mut Seen| {
            page.texts[1].shown = page.texts[0].shown;
        };
        assert!(with(NARROW, moved).contains(&Kind::Overlap));
    }

    #[test]
    fn small_letters_in_a_picture_are_wrong() {
        let line = |page: &mut Seen, height: f64| {
            page.texts[2].in_svg = true;
            page.texts[2].ink.height = height;
            page.texts[2].shown.height = height;
        };
        assert_eq!(with(NARROW, |page| line(page, 12.0)), []);
        assert_eq!(with(NARROW, |page| line(page, 5.0)), [Kind::Small]);
    }

    #[test]
    fn small_letters_and_small_pictures_are_wrong() {
        assert_eq!(
            with(WIDE, |page| page.texts[2].font_px = 9.0),
            [Kind::Small]
        );
        let plot = |page: &mut Seen| {
            page.blocks[0].tag = "svg".into();
            page.blocks[0].frame.height = 40.0;
            page.blocks[0].shown.height = 40.0;
            page.blocks.push(super::super::sample::table());
        };
        assert_eq!(with(WIDE, plot), [Kind::Small]);
    }

    #[test]
    fn tables_have_lines_and_rows_of_one_length() {
        assert_eq!(
            with(WIDE, |page| page.blocks[0].cells = vec![2, 1]),
            [Kind::Table]
        );
        assert_eq!(
            with(WIDE, |page| page.blocks[0].cells = vec![2]),
            [Kind::Table]
        );
        assert_eq!(with(WIDE, |page| page.blocks.clear()), [Kind::Missing]);
        assert_eq!(
            with(WIDE, |page| page.texts[3].border_px = 0.0),
            [Kind::Lines]
        );
    }
}
