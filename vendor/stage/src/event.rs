//! What is going on, for a progress bar or a log line.

use std::fmt;
use std::sync::Arc;

/// One step of progress.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Another process builds in the same folder; this one waits for it.
    Waiting,
    /// pip is about to fetch the package, since no tree was found.
    FetchStarted {
        /// Package and version.
        package: String,
        /// Size of the archive.
        bytes: u64,
    },
    /// The archive grows.
    Fetching {
        /// What is there of it.
        bytes_done: u64,
        /// Its whole size.
        bytes_total: u64,
    },
    /// The tree is taken out of the archive.
    Extracting {
        /// Files so far.
        files: u64,
    },
    /// The tree is copied, verified and patched.
    Staging,
    /// cmake looks at the compilers and writes the build files.
    Configuring,
    /// ninja finished a step.
    Building {
        /// Steps done.
        done: u64,
        /// Steps in all; grows when ninja finds more.
        total: u64,
        /// What was built, as ninja says it.
        what: String,
    },
}

/// Where events go. Cheap to clone; silent by default.
#[derive(Clone, Default)]
pub struct Reporter(Option<Arc<Sink>>);

type Sink = dyn Fn(&Event) + Send + Sync;

impl Reporter {
    /// Calls `sink` for every event, on the thread that does the work.
    pub fn new(sink: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(sink)))
    }

    pub(crate) fn send(&self, event: Event) {
        if let Some(sink) = &self.0 {
            sink(&event);
        }
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Reporter(..)"
        } else {
            "Reporter(silent)"
        })
    }
}
