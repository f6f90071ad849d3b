use rolling_kv::{
    AbortHandle, Backend, Batch, Context, ContextParams, Device, Error, Model, Sampler, StateBlob,
    UserModel, Vocab,
};
use static_assertions::{assert_impl_all, assert_not_impl_any};

use crate::common::{backend, fewer_if_slow, logits_after, some_tokens, tiny};

assert_impl_all!(Backend: Send, Sync, Copy);
assert_impl_all!(Device: Send, Sync);
assert_impl_all!(Model: Send, Sync);
assert_impl_all!(Vocab<'static>: Send, Sync);
assert_impl_all!(Context<'static>: Send);
assert_not_impl_any!(Context<'static>: Sync, Clone);
assert_impl_all!(Sampler<'static>: Send);
assert_not_impl_any!(Sampler<'static>: Sync);
assert_not_impl_any!(UserModel: Sync);
assert_impl_all!(Batch: Send, Sync);
assert_impl_all!(StateBlob: Send, Sync);
assert_impl_all!(AbortHandle: Send, Sync);
assert_impl_all!(Error: Send, Sync, std::error::Error);

#[test]
fn the_library_can_be_started_from_many_threads() {
    let libs: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| backend().lib_dir()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(libs.iter().all(|dir| *dir == libs[0]), "{libs:?}");
    assert!(!backend().devices().is_empty());
    assert!(
        backend()
            .features()
            .iter()
            .any(|feature| feature.backend == "CPU")
    );
    assert!(backend().build_stamp().starts_with("llama.cpp "));
}

#[test]
fn two_contexts_on_one_model_run_in_two_threads() {
    let model = tiny::model(&backend());
    let run = |seed| {
        let mut context = model.context(&ContextParams::new(1024).threads(1)).unwrap();
        let tokens = some_tokens(fewer_if_slow(1000), seed);
        tokens
            .iter()
            .map(|token| logits_after(&mut context, 0, &[*token])[0])
            .collect::<Vec<_>>()
    };
    let alone = [run(1), run(2)];
    let together = std::thread::scope(|scope| {
        let threads = [1, 2].map(|seed| scope.spawn(move || run(seed)));
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(alone, together);
}

#[test]
fn contexts_can_be_made_in_several_threads_at_once() {
    let model = tiny::model(&backend());
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let model = &model;
            scope.spawn(move || {
                for _ in 0..fewer_if_slow(20) {
                    let params = ContextParams::new(256)
                        .threads(1)
                        .rope_scaling(rolling_kv::RopeScaling::Yarn)
                        .rope_freq_scale(0.5);
                    let mut context = model.context(&params).unwrap();
                    logits_after(&mut context, 0, &some_tokens(3, seed));
                }
            });
        }
    });
    assert_eq!(
        model.n_ctx_train(),
        512,
        "a context does not change what the model says of itself"
    );
}

#[test]
fn a_context_can_be_used_and_dropped_on_another_thread() {
    let model = tiny::model(&backend());
    let mut context = model.context(&ContextParams::new(256).threads(2)).unwrap();
    context.append(0, &some_tokens(10, 1)).unwrap();
    let there = std::thread::scope(|scope| {
        scope
            .spawn(move || logits_after(&mut context, 0, &some_tokens(5, 2)))
            .join()
            .unwrap()
    });
    let mut here = model.context(&ContextParams::new(256).threads(2)).unwrap();
    here.append(0, &some_tokens(10, 1)).unwrap();
    assert_eq!(there, logits_after(&mut here, 0, &some_tokens(5, 2)));
}
