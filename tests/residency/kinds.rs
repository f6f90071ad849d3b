use rolling_kv::{Context, ContextParams, RollingKv, Row};

use crate::common::{backend, fewer_if_slow, logits_after, some_tokens, tiny};
use crate::twins::{Twins, assert_same_bits};

fn params() -> ContextParams {
    ContextParams::new(1024).n_ubatch(64).threads(1)
}

/// A sliding cache forgets its oldest cells; the same prompt again, or one that was cut back, ended the process
/// (ggml-org/llama.cpp#14157, #17118). Here the base cache has a tail beside it.
#[test]
fn a_sliding_model_takes_the_same_prompt_again_and_a_shorter_one() {
    let backend = backend();
    let model = tiny::sliding(&backend);
    let prompt = some_tokens(200, 1);
    for full in [false, true] {
        let mut params = params().n_seq_max(2);
        if full {
            params = params.swa_full();
        }
        let mut twins = Twins::new(&model, &params, RollingKv::window_cells(64));
        twins.append("the prompt", 0, &prompt);
        twins.append("the prompt of another sequence", 1, &prompt[..90]);
        for keep in [199, 190, 100, 40, 0] {
            let what = format!("cut back to {keep}, full {full}");
            twins.both(&what, |context| {
                let removed = format!("{:?}", context.memory().remove(0, keep..));
                (removed, format!("{:?}", context.positions(0)))
            });
            let next = twins.both(&what, |context| {
                let held = context.positions(0).expect("it exists");
                held.map_or(0, |held| held.end() + 1)
            });
            twins.append(&what, 0, &prompt[next as usize..]);
            twins.both(&what, |context| format!("{:?}", context.positions(0)));
        }
        twins.append("the other sequence", 1, &some_tokens(3, 2));
        twins.assert_spilled("sliding");
    }
}

/// A state per sequence has no parts to remove; the cache beside it was cut all the same (ggml-org/llama.cpp#28425,
/// spiritbuun/buun-llama-cpp#74). Refused, and no cell of window or tail is touched.
#[test]
fn a_refused_removal_leaves_the_cache_of_a_hybrid_model_whole() {
    let backend = backend();
    let model = tiny::hybrid(&backend);
    let mut twins = Twins::new(&model, &params(), RollingKv::window_cells(64));
    twins.append("a prompt", 0, &some_tokens(150, 1));
    twins.both("edits that are refused", |context| {
        let before = context.save_state().expect("the state is saved");
        let cells = [10, 63, 64, 149];
        let read = |context: &mut Context<'_>| {
            cells.map(|cell| {
                let found = context.read_cell(0, Row::K, 0, cell);
                found.expect("the cell exists").1
            })
        };
        let rows = read(context);
        let removed = context.memory().remove(0, 100..);
        let copied = context.memory().copy(0, 1, ..);
        assert!(removed.is_err() && copied.is_err());
        assert!(before == context.save_state().expect("the state is saved"));
        assert!(rows == read(context), "a cell was touched");
        format!("{removed:?} {copied:?}")
    });
    twins.append("the next token", 0, &some_tokens(3, 2));
    twins.assert_spilled("hybrid");
}

/// Cells of a context that drafts were never freed, so that after some requests it was full for ever
/// (ggml-org/llama.cpp#27692): the twentieth request is as the first, and the tail keeps its size.
#[test]
fn the_twentieth_request_is_as_the_first() {
    let backend = backend();
    for (name, make) in tiny::KINDS {
        let model = make(&backend);
        let mut twins = Twins::new(&model, &params(), RollingKv::window_cells(64));
        let host_bytes = twins.spilled.residency().host_bytes();
        let prompt = some_tokens(614, 1); // three fifths of the context
        let first = twins.append(name, 0, &prompt);
        for request in 1..fewer_if_slow(20) {
            let context = &mut twins.spilled;
            context.memory().remove(0, ..).expect("it is removed");
            let found = logits_after(context, 0, &prompt);
            assert_same_bits(&found, &first, &format!("{name}, request {request}"));
            assert_eq!(context.residency().host_bytes(), host_bytes, "{name}");
        }
    }
}

/// Layers that read the cache of an earlier one gave nonsense once a prompt took several ubatches
/// (ggml-org/llama.cpp#14604): they take its window, whatever was asked for them.
#[test]
fn a_layer_that_reads_anothers_cache_takes_its_window() {
    let backend = backend();
    let model = tiny::sharing_layers(&backend);
    let params = params().n_ubatch(32);
    let budgets = [
        RollingKv::window_cells(48),
        RollingKv::window_cells(0),
        RollingKv::window_cells(64)
            .layer_window(3, 96)
            .layer_window(5, 0),
        RollingKv::window_cells(64)
            .layer_window(3, 0)
            .layer_window(5, 512),
        RollingKv::resident().layer_window(5, 32),
        RollingKv::resident().layer_window(1, 32),
    ];
    for budget in budgets {
        let what = format!("{budget:?}");
        let mut twins = Twins::new(&model, &params, budget);
        let layers: Vec<_> = twins.spilled.residency().layers;
        assert!(
            layers.iter().all(|layer| layer.layer < 4),
            "{what}: a layer without a cache is listed"
        );
        let prompt = some_tokens(297, 1);
        for chunk in [&prompt[..33], &prompt[33..97], &prompt[97..], &prompt[..1]] {
            twins.append(&what, 0, chunk);
        }
        let spilled = layers.iter().any(|layer| layer.host_bytes > 0);
        let read = twins.spilled.residency().totals().tiles_tail;
        assert_eq!(read > 0, spilled, "{what}: {layers:?}");
    }
}

/// A slot was not released because an edit on the way failed (withcatai/node-llama-cpp#623): a whole sequence always is,
/// with its cells of the tail.
#[test]
fn a_whole_sequence_is_always_released_from_both_parts() {
    let backend = backend();
    for (name, make) in tiny::KINDS {
        let model = make(&backend);
        let params = ContextParams::new(512).n_seq_max(2).n_ubatch(64).threads(1);
        let mut twins = Twins::new(&model, &params, RollingKv::window_cells(32));
        for round in 0..fewer_if_slow(200) {
            let seq = (round % 2) as i32;
            twins.both(name, |context| {
                context
                    .append(seq, &some_tokens(40, round as u64))
                    .expect("the tokens fit");
                context.memory().remove(seq, ..).expect("it is removed");
                context.positions(seq).expect("it exists")
            });
            assert_eq!(twins.spilled.positions(seq).expect("it exists"), None);
        }
        twins.append(name, 0, &some_tokens(100, 1));
    }
}
