//! The step that opens a gate's report in a browser and looks whether it is right: layout by the browser's own measurements, colours
//! by the screenshot's pixels.

mod arms;
mod browser;
mod colour;
mod judge;
mod layout;
mod paint;
mod picture;
#[cfg(test)]
mod sample;
mod seen;

use std::fs;
use std::path::{Path, PathBuf};

use crate::equiv::{self, Gate};
use crate::error::{Error, Result};
use crate::place::Place;
use crate::report::{Counts, Outcome};

use arms::ARMS;
use browser::Browser;
use judge::{Expected, Fault};

/// Questions for a row of five cells, which a telephone must scroll: what is looked at is the page.
const QUESTIONS: &[&str] = &[
    "niah",
    "--lengths",
    "512",
    "--depths",
    "0,25,50,75,100",
    "--threads",
    "1",
];

/// Answers, each in a cell of its own.
const CELLS: usize = 5;

/// What the page says whatever the verdict is.
const WORDS: &[&str] = &[
    "Needles in a haystack: resident and spilled",
    "niah_single_1",
    "tokens",
    "512",
    "0%",
    "100%",
    "Options",
];

/// A screen on a desk, and a telephone.
const WIDE_PX: usize = 1280;
const NARROW_PX: usize = 400;

/// A page of a gate that passed, and one of a gate into which a fault was put.
const PAGES: [Page; 2] = [
    Page {
        name: "niah-pass",
        fault: None,
        class: "pass",
        verdict: "PASS",
    },
    Page {
        name: "niah-fail",
        fault: Some("stale"),
        class: "fail",
        verdict: "FAIL",
    },
];

struct Page {
    name: &'static str,
    fault: Option<&'static str>,
    class: &'static str,
    verdict: &'static str,
}

/// Opens both pages in two widths, then one that is spoiled in every way that must be noticed.
pub fn run(place: &Place) -> Result<Outcome> {
    let browser = match Browser::find(place)? {
        Ok(browser) => browser,
        Err(why) => return Ok(Outcome::Skipped(format!("no browser: {why}"))),
    };
    eprintln!("browser: {}", browser.name());
    let look = Look {
        place,
        browser,
        folder: folder(place)?,
    };
    let gate = equiv::gate(place)?;
    let mut counts = Counts::default();
    for page in &PAGES {
        let html = look.page(&gate, page)?;
        for width_px in [WIDE_PX, NARROW_PX] {
            counts += look.good(page, &html, width_px)?;
        }
        if page.fault.is_none() {
            counts += look.spoiled(page, &html)?;
        }
    }
    eprintln!("screenshots: {}", look.folder.display());
    Ok(Outcome::Ran(counts))
}

/// Where reports and screenshots are kept.
fn folder(place: &Place) -> Result<PathBuf> {
    let folder = place.work().join("screenshots");
    fs::create_dir_all(&folder).map_err(Error::file("make", &folder))?;
    Ok(folder)
}

struct Look<'a> {
    place: &'a Place,
    browser: Browser,
    folder: PathBuf,
}

impl Look<'_> {
    /// Runs the gate and reads the page that it wrote.
    fn page(&self, gate: &Gate, page: &Page) -> Result<String> {
        let file = self.folder.join(format!("{}.html", page.name));
        gate.run_with_page(QUESTIONS, page.fault, &file)?;
        fs::read_to_string(&file).map_err(Error::file("read", &file))
    }

    /// A page without a fault.
    fn good(&self, page: &Page, html: &str, width_px: usize) -> Result<Counts> {
        let picture = self.folder.join(format!("{}-{width_px}.png", page.name));
        let faults = self.faults(page, html, width_px, Some(&picture))?;
        faults
            .iter()
            .for_each(|fault| println!("{} at {width_px} px: {fault}", page.name));
        Ok(Counts::new(
            u64::from(faults.is_empty()),
            u64::from(!faults.is_empty()),
            0,
        ))
    }

    /// The same page, spoiled: each arm must bring the fault that it is made for.
    fn spoiled(&self, page: &Page, html: &str) -> Result<Counts> {
        let mut counts = Counts::default();
        for arm in &ARMS {
            let faults = self.faults(page, &arm.spoil(html), WIDE_PX, None)?;
            let found = faults.iter().any(|fault| fault.kind == arm.kind);
            if !found {
                println!(
                    "{} is not found wrong by {:?}, but by {faults:?}",
                    arm.name, arm.kind
                );
            }
            counts += Counts::new(u64::from(found), u64::from(!found), 0);
        }
        Ok(counts)
    }

    fn faults(
        &self,
        page: &Page,
        html: &str,
        width_px: usize,
        keep: Option<&Path>,
    ) -> Result<Vec<Fault>> {
        let (seen, picture) = self.browser.open(self.place, html, width_px)?;
        if let Some(file) = keep {
            picture.write(file)?;
        }
        let expected = Expected {
            class: page.class,
            verdict: page.verdict,
            words: WORDS,
            tinted: CELLS,
            width_px,
        };
        Ok(judge::faults(&seen, &picture, &expected))
    }
}
