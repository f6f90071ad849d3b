//! What a person sees while something long runs: a moving line on a terminal, plain lines elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use rolling_kv_stage::{Event, Reporter};

const SPINNER: &str = "{spinner} {prefix} ({elapsed}) {wide_msg}";
const BYTES: &str = "{spinner} {prefix} [{bar:30}] {bytes}/{total_bytes} ({elapsed}) {wide_msg}";
const THINGS: &str = "{spinner} {prefix} [{bar:30}] {pos}/{len} ({elapsed}) {wide_msg}";

/// One long piece of work, announced when it starts and timed when it ends.
#[derive(Debug)]
pub struct Work {
    bar: ProgressBar,
    what: String,
    started: Instant,
}

impl Work {
    /// Announces work whose length is not known.
    pub fn start(what: impl Into<String>) -> Self {
        let what = what.into();
        let bar = ProgressBar::new_spinner().with_style(style(SPINNER));
        bar.set_prefix(what.clone());
        bar.enable_steady_tick(Duration::from_millis(120));
        if bar.is_hidden() {
            eprintln!("{what} ...");
        }
        Self {
            bar,
            what,
            started: Instant::now(),
        }
    }

    /// Says what is being done just now.
    pub fn note(&self, note: impl Into<String>) {
        self.bar.set_message(note.into());
    }

    /// What staging and building report, shown on this line.
    pub fn reporter(&self) -> Reporter {
        let bar = self.bar.clone();
        Reporter::new(move |event| show(&bar, event))
    }

    /// Ends the line with the time it took.
    pub fn done(self, result: &str) {
        self.bar.finish_and_clear();
        let colon = if result.is_empty() { "" } else { ": " };
        eprintln!(
            "{}{colon}{result} ({:.1} s)",
            self.what,
            self.started.elapsed().as_secs_f64()
        );
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn show(bar: &ProgressBar, event: &Event) {
    match event {
        Event::Waiting => say(
            bar,
            "waiting for another build in the same folder".to_owned(),
        ),
        Event::FetchStarted { package, .. } => say(bar, format!("fetching {package} with pip")),
        Event::Fetching {
            bytes_done,
            bytes_total,
        } => advance(bar, *bytes_done, *bytes_total, BYTES),
        Event::Extracting { files } => bar.set_message(format!("unpacking, {files} files")),
        Event::Staging => bar.set_message("copying and patching the tree"),
        Event::Configuring => say(bar, "configuring with cmake".to_owned()),
        Event::Building { done, total, what } => {
            advance(bar, *done, *total, THINGS);
            if bar.is_hidden()
                && *total >= 20
                && done * 10 / total > done.saturating_sub(1) * 10 / total
            {
                eprintln!("  [{done}/{total}]");
            }
            bar.set_message(what.rsplit('/').next().unwrap_or(what).to_owned());
        }
        _ => {}
    }
}

/// A note that is worth a plain line where there is no terminal.
fn say(bar: &ProgressBar, note: String) {
    if bar.is_hidden() {
        eprintln!("  {note}");
    }
    bar.set_message(note);
}

fn advance(bar: &ProgressBar, done: u64, of: u64, template: &str) {
    if bar.length() != Some(of) && of > 0 {
        bar.set_length(of);
        bar.set_style(style(template));
    }
    bar.set_position(done);
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_parses() {
        for template in [SPINNER, BYTES, THINGS] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }
}
