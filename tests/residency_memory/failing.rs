use std::sync::atomic::{AtomicU64, Ordering};

use rolling_kv::{ContextError, ContextParams, FailureKind, Model, Order, RollingKv};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

use crate::child;
use crate::common::{backend, logits_after, some_tokens, tiny};

/// Cells of the context that fails: 256 bytes each, 128 MiB in all; more than an allocator keeps at hand.
const CELLS: u32 = 524_288;

/// Address space to leave once the context is being made; 0 leaves all.
static LEFT: AtomicU64 = AtomicU64::new(0);

fn limit(bytes: libc::rlim_t) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `limit` is a valid rlimit; it says what this process may map from now on.
    let status = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    assert_eq!(status, 0);
}

/// Lowers the limit when llama.cpp says that it begins: after what is needed was compared with what is free, and before
/// anything is allocated.
struct Tighten;

impl Visit for Tighten {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let left = LEFT.load(Ordering::Relaxed);
        if left > 0
            && field.name() == "message"
            && format!("{value:?}").contains("constructing llama_context")
        {
            limit(child::taken().0 + left);
        }
    }
}

impl Subscriber for Tighten {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut Tighten);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Makes a context while only `left` bytes can be had.
fn make_in(model: &Model, left: u64, spill: RollingKv) -> Result<(), ContextError> {
    let params = ContextParams::new(CELLS).n_ubatch(32).threads(1);
    let params = params.rolling_kv(spill.order(Order::Tiled).tile_cells(32));
    LEFT.store(left, Ordering::Relaxed);
    let made = model.context(&params).map(drop);
    LEFT.store(0, Ordering::Relaxed);
    limit(libc::RLIM_INFINITY);
    made
}

fn a_smaller_context_works(model: &Model) {
    let params = ContextParams::new(512).n_ubatch(32).threads(1);
    let params = params.rolling_kv(RollingKv::window_cells(64).tile_cells(32));
    let mut context = model.context(&params).expect("a smaller one fits");
    logits_after(&mut context, 0, &some_tokens(100, 1));
    assert!(context.residency().totals().tiles_tail > 0);
}

/// Only does something as the child of the test below.
#[test]
fn as_a_child_a_tail_is_tried_in_too_little_space() {
    if !child::is_one() {
        return;
    }
    tracing::subscriber::set_global_default(Tighten).expect("the first subscriber");
    let model = tiny::model(&backend());
    a_smaller_context_works(&model);

    let all_in_windows = RollingKv::resident();
    let halves = RollingKv::window_cells(CELLS / 2);
    for (spill, part) in [(halves.clone(), "the tail"), (all_in_windows, "the window")] {
        let error = make_in(&model, 96 << 20, spill).expect_err("128 MiB do not fit into 96");
        let text = error.to_string();
        println!("{text}");
        assert!(
            matches!(&error, ContextError::Failed(failure) if failure.kind() == FailureKind::NoMemory),
            "{error:?}"
        );
        assert!(text.contains(part) && text.contains("128.00 MiB"), "{text}");
        a_smaller_context_works(&model);
    }

    let (before, _) = child::taken();
    let mut made = 0;
    for step in 1..=40 {
        match make_in(&model, step << 23, halves.clone()) {
            Ok(()) => made += 1,
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    a_smaller_context_works(&model);
    let (after, _) = child::taken();
    println!("{made} of 40 were made, {before} bytes before and {after} after");
    assert!(
        (1..40).contains(&made),
        "some limits let through more than others"
    );
    assert!(after < before + (16 << 20), "{before} bytes became {after}");
}

/// An allocation that failed while a context was made ended the process on the way out (ikawrakow/ik_llama.cpp#235,
/// ggml-org/llama.cpp#9352, #10130): an error names the part and its size, whichever allocation it was; nothing is left
/// behind, and the next context works.
#[test]
fn a_tail_that_does_not_fit_is_named_and_leaves_nothing_behind() {
    let test = "a_tail_that_does_not_fit_is_named_and_leaves_nothing_behind";
    if !child::skipped_under_a_checker(test) {
        let child = "failing::as_a_child_a_tail_is_tried_in_too_little_space";
        println!("{}", child::run(child));
    }
}

/// An oversized cache gave "null reference" and no reason (eullm/eullm#302).
#[test]
fn an_absurd_length_with_a_window_is_refused_with_its_bytes() {
    let model = tiny::model(&backend());
    for n_ctx in [1u32 << 30, i32::MAX as u32 - 255] {
        for window in [0, 4096, n_ctx - 1] {
            let params = ContextParams::new(n_ctx).rolling_kv(RollingKv::window_cells(window));
            let error = model
                .context(&params)
                .expect_err("no test machine holds it");
            let ContextError::NotEnoughMemory { cache_bytes, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!(*cache_bytes, u64::from(n_ctx) * 256);
            assert!(
                error.to_string().contains(&cache_bytes.to_string()),
                "{error}"
            );
        }
    }
    a_smaller_context_works(&model);
}
