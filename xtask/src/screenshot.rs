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

use arms::{ARMS, Arm, PLOT_ARMS};
use browser::Browser;
use judge::{Expected, Fault};

/// A screen on a desk, and a telephone.
const WIDE_PX: usize = 1280;
const NARROW_PX: usize = 400;

/// A page to open.
struct Page {
    name: &'static str,
    gate: &'static [&'static str],
    /// A tiny model in place of the small real one.
    tiny: Option<&'static str>,
    fault: Option<&'static str>,
    /// What it says.
    words: &'static [&'static str],
    /// Its cells with a colour behind them.
    cells: usize,
    plots: usize,
    /// How it is spoiled.
    arms: &'static [Arm],
}

/// A gate that passed, and one into which a fault was put; their row of five answers is one that a telephone must scroll. Then three with a
/// plot, the last of them of two parts.
const PAGES: [Page; 5] = [
    Page {
        name: "niah-pass",
        gate: NEEDLES,
        tiny: None,
        fault: None,
        words: NEEDLES_SAY,
        cells: 5,
        plots: 0,
        arms: &ARMS,
    },
    Page {
        name: "niah-fail",
        gate: NEEDLES,
        tiny: None,
        fault: Some("stale"),
        words: NEEDLES_SAY,
        cells: 5,
        plots: 0,
        arms: &[],
    },
    Page {
        name: "shift",
        gate: &["shift", "--threads", "1"],
        tiny: Some("tiny:llama"),
        fault: None,
        words: &[
            "Keys moved to another position, beside keys made there",
            "Options",
        ],
        cells: 0,
        plots: 1,
        arms: &PLOT_ARMS,
    },
    Page {
        name: "logit-equiv",
        gate: &[
            "logit-equiv",
            "--ctx",
            "512",
            "--window-cells",
            "128",
            "--threads",
            "1",
        ],
        tiny: Some("tiny:llama"),
        fault: None,
        words: &["Options", "window-cells"],
        cells: 0,
        plots: 1,
        arms: &[],
    },
    Page {
        name: "engines",
        gate: &[
            "engines",
            "--ctx",
            "512",
            "--links",
            "40MB/s,60MB/s",
            "--host-rate",
            "100MB/s",
            "--tail-percent",
            "100",
            "--tile-cells",
            "32",
            "--copy-cells",
            "32",
            "--threads",
            "1",
        ],
        tiny: Some("tiny:llama"),
        fault: None,
        words: &["Options", "over bound", "host-rate"],
        cells: 0,
        plots: 1,
        arms: &[],
    },
];

const NEEDLES: &[&str] = &[
    "niah",
    "--lengths",
    "512",
    "--depths",
    "0,25,50,75,100",
    "--threads",
    "1",
];

const NEEDLES_SAY: &[&str] = &[
    "Needles in a haystack: resident and spilled",
    "niah_single_1",
    "tokens",
    "512",
    "0%",
    "100%",
    "Options",
];

/// Opens every page in two widths, and spoiled in every way that must be noticed.
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
        counts += look.spoiled(page, &html)?;
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
        match page.tiny {
            Some(model) => gate.on(model).run_with_page(page.gate, page.fault, &file)?,
            None => gate.run_with_page(page.gate, page.fault, &file)?,
        }
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
        for arm in page.arms {
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
        let (class, verdict) = match page.fault {
            None => ("pass", "PASS"),
            Some(_) => ("fail", "FAIL"),
        };
        let expected = Expected {
            class,
            verdict,
            words: page.words,
            tinted: page.cells,
            plots: page.plots,
            width_px,
        };
        Ok(judge::faults(&seen, &picture, &expected))
    }
}
