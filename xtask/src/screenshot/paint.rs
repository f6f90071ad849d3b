//! What is on the screen, as the screenshot's pixels say.

use super::colour::{self, Rgb};
use super::judge::{Expected, Fault, Kind};
use super::picture::Picture;
use super::seen::{Rect, Seen, Text};

/// Less contrast is hard to read: what the guidelines ask of text.
const CONTRAST_LEAST: f64 = 4.5;

/// Thin strokes are mixed with what is behind them.
const PAINTED_LEAST: f64 = 2.5;

/// A page with fewer colours than this shows no text: letters alone have more, being smoothed.
const COLOURS_LEAST: usize = 12;

/// A plot has an axis, a line and a ground at least.
const PLOT_COLOURS_LEAST: usize = 4;

/// Painted colours are those asked for up to this, by channel.
const TOLERANCE: u8 = 4;

/// The mark of a cell whose two runs differ.
const DIFFERS: char = '\u{2260}';

/// So far inside a cell no line and no letter lies.
const INSIDE_PX: f64 = 3.0;

/// The page is on the screen, in its colours.
pub fn check(page: &Seen, picture: &Picture, expected: &Expected, faults: &mut Vec<Fault>) {
    screen(page, picture, expected, faults);
    for text in &page.texts {
        if !text.in_svg {
            faults.extend(stands_out(text));
        }
        faults.extend(painted(text, picture));
        if text.tinted {
            faults.extend(cell(text, picture));
        }
        if text.is_verdict() {
            faults.extend(verdict(text));
        }
    }
    for block in page.blocks.iter().filter(|block| block.is_plot()) {
        if picture.colours(&block.shown, PLOT_COLOURS_LEAST) < PLOT_COLOURS_LEAST {
            faults.push(Fault::new(
                Kind::Unpainted,
                format!("a picture at {:?} is empty", block.shown),
            ));
        }
    }
}

/// The screenshot has the page's size, and something on it.
fn screen(page: &Seen, picture: &Picture, expected: &Expected, faults: &mut Vec<Fault>) {
    let high = page.content_height_px;
    if picture.width != expected.width_px || (picture.height as f64) < high {
        faults.push(Fault::new(
            Kind::Blank,
            format!(
                "the screenshot has {} x {} px, the page {} x {high}",
                picture.width, picture.height, expected.width_px
            ),
        ));
    }
    let colours = picture.colours(&picture.all(), COLOURS_LEAST);
    if colours < COLOURS_LEAST {
        faults.push(Fault::new(
            Kind::Blank,
            format!("the screenshot has {colours} colours in all"),
        ));
    }
}

/// The text's colour stands out from the one behind it.
fn stands_out(text: &Text) -> Option<Fault> {
    let (Some(front), Some(back)) = (colour::parse(&text.colour), colour::parse(&text.backdrop))
    else {
        return Some(Fault::new(
            Kind::Faint,
            format!(
                "the colours of {} are {:?} and {:?}",
                text.name(),
                text.colour,
                text.backdrop
            ),
        ));
    };
    let contrast = colour::contrast(front, back);
    (contrast < CONTRAST_LEAST).then(|| {
        Fault::new(
            Kind::Faint,
            format!(
                "{} has a contrast of {contrast:.1}: {front:?} on {back:?}",
                text.name()
            ),
        )
    })
}

/// Letters are on the screen where the text lies.
fn painted(text: &Text, picture: &Picture) -> Option<Fault> {
    if text.shown.width < 2.0 || text.shown.height < 2.0 {
        return None;
    }
    let contrast = picture
        .extremes(&text.shown)
        .map_or(1.0, |(dark, light)| colour::contrast(dark, light));
    (contrast < PAINTED_LEAST).then(|| {
        Fault::new(
            Kind::Unpainted,
            format!("{} is not to be seen at {:?}", text.name(), text.shown),
        )
    })
}

/// The cell's colour is a colour, red where the runs differ, and is on the screen.
fn cell(text: &Text, picture: &Picture) -> Option<Fault> {
    // Of a cell that is scrolled out of sight nothing can be said.
    if !text.shown.holds(&text.ink, 1.0) {
        return None;
    }
    let asked = colour::parse(&text.backdrop)?;
    let Rect { x, y, .. } = text.frame;
    let found: Option<Rgb> = picture.at(x + INSIDE_PX, y + INSIDE_PX);
    let right = found.is_some_and(|found| colour::apart(found, asked) <= TOLERANCE);
    let coloured = match text.text.ends_with(DIFFERS) {
        true => colour::is_red(asked),
        false => asked.iter().max() != asked.iter().min(),
    };
    (!right || !coloured).then(|| {
        Fault::new(
            Kind::Cell,
            format!(
                "{} should lie on {asked:?} and lies on {found:?}",
                text.name()
            ),
        )
    })
}

/// A verdict is green or red.
fn verdict(text: &Text) -> Option<Fault> {
    let colour = colour::parse(&text.colour)?;
    let right = match text.class.as_str() {
        "pass" => colour::is_green(colour),
        _ => colour::is_red(colour),
    };
    (!right).then(|| Fault::new(Kind::Verdict, format!("{} is {colour:?}", text.name())))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{EXPECTED, page, picture};
    use super::*;

    fn with(change: impl FnOnce(&mut Seen, &mut Picture)) -> Vec<Kind> {
        let (mut page, mut picture) = (page(), picture());
        change(&mut page, &mut picture);
        let mut faults = Vec::new();
        check(&page, &picture, &EXPECTED, &mut faults);
        let mut kinds: Vec<Kind> = faults.iter().map(|fault| fault.kind).collect();
        kinds.dedup();
        kinds
    }

    #[test]
    fn a_blank_or_short_screenshot_is_wrong() {
        assert_eq!(with(|_, _| ()), []);
        let blank = with(|page, picture| {
            *picture = Picture::plain(picture.width, picture.height, [255; 3]);
            page.texts.clear();
        });
        assert_eq!(blank, [Kind::Blank]);
        let short = with(|page, _| page.content_height_px += 1.0);
        assert_eq!(short, [Kind::Blank]);
    }

    #[test]
    fn text_that_is_hard_to_read_is_wrong() {
        let grey = |page: &mut Seen, _: &mut Picture| {
            page.texts[2].colour = "rgb(190, 190, 190)".into();
        };
        assert_eq!(with(grey), [Kind::Faint]);
        let unknown = |page: &mut Seen, _: &mut Picture| {
            page.texts[2].colour = "lab(1 2 3)".into();
        };
        assert_eq!(with(unknown), [Kind::Faint]);
    }

    #[test]
    fn text_that_is_not_on_the_screen_is_wrong() {
        let covered = |page: &mut Seen, picture: &mut Picture| {
            picture.paint(&page.texts[2].shown, [255; 3]);
        };
        assert_eq!(with(covered), [Kind::Unpainted]);
    }

    #[test]
    fn a_cell_in_another_colour_is_wrong() {
        let other = |page: &mut Seen, picture: &mut Picture| {
            let Rect { x, y, .. } = page.texts[4].frame;
            let corner = Rect {
                x,
                y,
                width: 6.0,
                height: 6.0,
            };
            picture.paint(&corner, [250, 200, 200]);
        };
        assert_eq!(with(other), [Kind::Cell]);
        let none = |page: &mut Seen, _: &mut Picture| {
            page.texts[4].backdrop = "rgb(255, 255, 255)".into();
        };
        assert_eq!(with(none), [Kind::Cell]);
        let differs = |page: &mut Seen, _: &mut Picture| page.texts[4].text.push(DIFFERS);
        assert_eq!(with(differs), [Kind::Cell]);
    }

    #[test]
    fn a_verdict_without_its_colour_is_wrong() {
        let black = |page: &mut Seen, _: &mut Picture| {
            page.texts[1].colour = "rgb(0, 0, 0)".into();
        };
        assert_eq!(with(black), [Kind::Verdict]);
        let red = |page: &mut Seen, _: &mut Picture| {
            page.texts[1].colour = "rgb(176, 0, 32)".into();
        };
        assert_eq!(with(red), [Kind::Verdict]);
    }
}
