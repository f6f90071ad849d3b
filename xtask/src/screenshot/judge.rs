//! What must hold of a report in a browser, and what does not.

use std::fmt;

use super::layout;
use super::paint;
use super::picture::Picture;
use super::seen::{Seen, Text};

/// What kind of thing is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Something that the page must say is not there.
    Missing,
    /// The page is not what a browser takes for a modern page in UTF-8.
    Document,
    /// A table's rows have different lengths, or it has no rows.
    Table,
    /// The page is wider than its window, or something lies beside it.
    Wide,
    /// Text is cut off, or must be scrolled to on a wide screen.
    Cut,
    /// A cell with a colour, which holds figures, takes more than a line.
    Wrapped,
    /// A word is cut in two by the end of a line.
    Broken,
    /// Text sticks out of its box.
    Spills,
    /// Two texts lie on each other.
    Overlap,
    /// Letters are too small.
    Small,
    /// A text hardly stands out from what is behind it.
    Faint,
    /// The verdict has not its colour.
    Verdict,
    /// A table has no lines.
    Lines,
    /// A cell's colour is not on the screen.
    Cell,
    /// A text or a picture is not on the screen.
    Unpainted,
    /// The screenshot is too small or empty.
    Blank,
    /// The browser complained.
    Complaint,
    /// The page asked for something outside of itself.
    Network,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Of what kind.
    pub kind: Kind,
    /// Where, and what was found.
    pub what: String,
}

impl Fault {
    /// A fault of `kind`.
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.what)
    }
}

/// What the page must show.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    /// Class of the verdict, `pass` or `fail`.
    pub class: &'static str,
    /// The verdict.
    pub verdict: &'static str,
    /// Texts that some element must be.
    pub words: &'static [&'static str],
    /// Cells of the tables that have a colour behind them.
    pub tinted: usize,
    /// Plots, at least.
    pub plots: usize,
    /// Width of the window in which it is opened.
    pub width_px: usize,
}

/// Everything that is wrong with a page.
pub fn faults(page: &Seen, picture: &Picture, expected: &Expected) -> Vec<Fault> {
    let mut faults = Vec::new();
    said(page, expected, &mut faults);
    document(page, &mut faults);
    layout::check(page, expected.width_px as f64, &mut faults);
    paint::check(page, picture, expected, &mut faults);
    faults
}

/// The page says what it must say.
fn said(page: &Seen, expected: &Expected, faults: &mut Vec<Fault>) {
    let says = |text: &str| page.texts.iter().any(|one| one.text == text);
    let missing = expected.words.iter().filter(|word| !says(word));
    faults.extend(missing.map(|word| Fault::new(Kind::Missing, format!("no {word:?}"))));
    let verdicts: Vec<&Text> = page.texts.iter().filter(|text| text.is_verdict()).collect();
    match verdicts[..] {
        [one] if one.class == expected.class && one.text == expected.verdict => {}
        _ => faults.push(Fault::new(
            Kind::Missing,
            format!(
                "the verdict is {:?} where {} is expected",
                verdicts.iter().map(|one| &one.text).collect::<Vec<_>>(),
                expected.verdict
            ),
        )),
    }
    let plots = page.blocks.iter().filter(|block| block.is_plot()).count();
    if plots < expected.plots {
        faults.push(Fault::new(
            Kind::Missing,
            format!("{plots} plots where {} are expected", expected.plots),
        ));
    }
    let tinted = page.texts.iter().filter(|text| text.tinted).count();
    if tinted != expected.tinted {
        faults.push(Fault::new(
            Kind::Missing,
            format!(
                "{tinted} cells with a colour where {} are expected",
                expected.tinted
            ),
        ));
    }
}

/// The browser had nothing to complain about, and nothing to fetch.
fn document(page: &Seen, faults: &mut Vec<Fault>) {
    if page.title.is_empty() || page.charset != "UTF-8" || !page.standards {
        faults.push(Fault::new(
            Kind::Document,
            format!(
                "title {:?}, encoding {}, laid out {} standards",
                page.title,
                page.charset,
                if page.standards { "by" } else { "without" }
            ),
        ));
    }
    let said = |kind: Kind, lines: &[String]| -> Vec<Fault> {
        lines.iter().map(|line| Fault::new(kind, line)).collect()
    };
    faults.extend(said(Kind::Complaint, &page.complaints));
    faults.extend(said(Kind::Network, &page.refused));
    faults.extend(said(Kind::Network, &page.fetched));
}

#[cfg(test)]
mod tests {
    use super::super::sample::{EXPECTED, page, picture};
    use super::*;

    fn kinds(page: &Seen, picture: &Picture) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = faults(page, picture, &EXPECTED)
            .iter()
            .map(|fault| fault.kind)
            .collect();
        kinds.dedup();
        kinds
    }

    fn with(change: impl FnOnce(&mut Seen)) -> Vec<Kind> {
        let mut page = page();
        change(&mut page);
        kinds(&page, &picture())
    }

    #[test]
    fn a_good_page_has_no_fault() {
        assert_eq!(faults(&page(), &picture(), &EXPECTED), []);
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(
            with(|page| page.texts[0].text = "Other".into()),
            [Kind::Missing]
        );
        assert_eq!(
            with(|page| page.texts[1].text = "FAIL".into()),
            [Kind::Missing]
        );
        assert!(with(|page| page.texts[1].class = "fail".into()).contains(&Kind::Missing));
        assert!(with(|page| page.texts.truncate(2)).contains(&Kind::Missing));
        let two_plots = Expected {
            plots: 2,
            ..EXPECTED
        };
        assert_eq!(faults(&page(), &picture(), &two_plots).len(), 1);
    }

    #[test]
    fn a_page_in_another_mode_or_encoding_is_wrong() {
        assert_eq!(with(|page| page.title.clear()), [Kind::Document]);
        assert_eq!(with(|page| page.standards = false), [Kind::Document]);
        assert_eq!(
            with(|page| page.charset = "windows-1252".into()),
            [Kind::Document]
        );
    }

    #[test]
    fn complaints_and_requests_are_wrong() {
        let line = || vec!["img-src a".to_owned()];
        assert_eq!(with(|page| page.complaints = line()), [Kind::Complaint]);
        assert_eq!(with(|page| page.refused = line()), [Kind::Network]);
        assert_eq!(with(|page| page.fetched = line()), [Kind::Network]);
    }
}
