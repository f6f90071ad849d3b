use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use rolling_kv::{LoadError, Model, ModelParams};
use tracing::span;

use crate::common::gguf_file::GgufFile;
use crate::common::{backend, tiny};

#[test]
fn a_progress_callback_that_panics_stops_the_loading() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), GgufFile::tiny_llama().bytes(1)).unwrap();
    let error =
        Model::load_with_progress(&backend(), file.path(), &ModelParams::default(), |done| {
            assert!(done < 0.3, "this is enough");
            ControlFlow::Continue(())
        })
        .unwrap_err();
    assert!(
        matches!(&error, LoadError::CallbackPanicked { message } if message.contains("this is enough")),
        "{error}"
    );
    Model::load(&backend(), file.path(), &ModelParams::default()).expect("the next load works");
}

#[test]
fn a_tensor_callback_that_panics_stops_the_making() {
    let description = tiny::describe(&tiny::Shape::default());
    let mut calls = 0;
    let error = description
        .build(&backend(), &ModelParams::default(), |slot, _| {
            calls += 1;
            assert!(calls < 4, "no more after {}", slot.name);
        })
        .unwrap_err();
    assert!(
        matches!(&error, LoadError::CallbackPanicked { message } if message.contains("no more")),
        "{error}"
    );
    assert_eq!(calls, 4, "nothing is called after the panic");
}

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
