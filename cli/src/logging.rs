//! Log lines, ours and llama.cpp's, on standard error.

use tracing_subscriber::EnvFilter;

use crate::ui::LogWriter;

/// Starts the log: warnings and errors, with `-v` also information, with `-vv` everything.
///
/// The variable `ROLLING_KV_LOG`, a filter such as `info` or `warn,llama_cpp=debug`, overrides the switches.
/// A filter that does not parse is said and the switches are used.
pub fn start(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let (filter, complaint) = match std::env::var("ROLLING_KV_LOG")
        .ok()
        .filter(|text| !text.is_empty())
    {
        None => (EnvFilter::new(level), None),
        Some(text) => match EnvFilter::try_new(&text) {
            Ok(filter) => (filter, None),
            Err(error) => (
                EnvFilter::new(level),
                Some(format!("ROLLING_KV_LOG={text:?} is ignored: {error}")),
            ),
        },
    };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .without_time()
        .with_ansi(false)
        .with_writer(|| LogWriter)
        .finish();
    // It fails only if a subscriber is set already, and this is the only place that sets one.
    let _ = tracing::subscriber::set_global_default(subscriber);
    if let Some(complaint) = complaint {
        tracing::warn!("{complaint}");
    }
}
