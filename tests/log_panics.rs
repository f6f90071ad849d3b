//! A log subscriber that panics. In a program of its own: what a place in the code logs to is decided once for the whole
//! process, and another thread that logs nowhere may decide it at the same moment.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};

use common::{backend, tiny};
use tracing::span;

/// A subscriber that panics on every event.
struct Panicking;

static EVENTS: AtomicUsize = AtomicUsize::new(0);

impl tracing::Subscriber for Panicking {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        EVENTS.fetch_add(1, Ordering::Relaxed);
        panic!("a subscriber panicked");
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[test]
fn a_log_subscriber_that_panics_does_not_reach_llama_cpp() {
    let backend = backend();
    tracing::subscriber::with_default(Panicking, || {
        let model = tiny::model(&backend);
        model.context(&rolling_kv::ContextParams::new(256)).unwrap();
    });
    assert!(
        EVENTS.load(Ordering::Relaxed) > 10,
        "log lines reached the subscriber"
    );
}
