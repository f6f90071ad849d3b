//! Progress on standard error. Nothing is drawn when standard error is no terminal.

use std::io::{self, Write};
use std::sync::LazyLock;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressState, ProgressStyle};

/// All bars of the process, so that a log line can be written without tearing one apart.
static SCREEN: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

const TICK: Duration = Duration::from_millis(100);

/// A bar that counts to `total` steps of no unit that a reader needs, such as the share of a model that is loaded.
pub fn share_bar(what: &'static str, total: u64) -> ProgressBar {
    bar(total, "{msg:>10} [{bar:40}] {percent:>3}% {elapsed}", what)
}

/// A bar that counts tokens.
pub fn token_bar(what: &'static str, total: u64) -> ProgressBar {
    bar(
        total,
        "{msg:>10} [{bar:40}] {pos}/{len} tokens {rate} {eta}",
        what,
    )
}

/// A bar that counts bytes.
pub fn byte_bar(what: &'static str, total: u64) -> ProgressBar {
    bar(
        total,
        "{msg:>10} [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        what,
    )
}

fn bar(total: u64, template: &str, what: &'static str) -> ProgressBar {
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let rate = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
        // A text in memory takes any write.
        let _ = write!(text, "{:.0} t/s", state.per_sec());
    };
    let style = style.with_key("rate", rate).progress_chars("=> ");
    let bar = SCREEN
        .add(ProgressBar::new(total))
        .with_style(style)
        .with_message(what);
    bar.enable_steady_tick(TICK);
    bar
}

/// Writes `line` and a line feed to standard error, above any bar. A closed standard error is no reason to stop.
pub fn note(line: &str) {
    SCREEN.suspend(|| {
        let _ = writeln!(io::stderr().lock(), "{line}");
    });
}

/// A writer for log lines that keeps bars intact.
pub struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        SCREEN.suspend(|| io::stderr().lock().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}

/// Writes `text` and a line feed to standard output. A reader that went away is no reason to complain.
pub fn print(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}
