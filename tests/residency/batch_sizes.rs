use rolling_kv::{Batch, ContextParams, DecodeError, Output, OutputError, RollingKv};

use crate::common::{backend, some_tokens, tiny};
use crate::twins::Twins;

/// Batches of one token, of less than a block, and longer than anything failed (ggml-org/llama.cpp#3058, #5140): every
/// ubatch gives the bits of its twin, whatever it straddles.
#[test]
fn every_ubatch_gives_the_bits_of_the_resident_cache() {
    let backend = backend();
    let model = tiny::model(&backend);
    for (n_batch, n_ubatch) in [
        (1, 1),
        (512, 1),
        (7, 3),
        (512, 31),
        (512, 33),
        (512, 128),
        (512, 2048),
        (5000, 5000),
    ] {
        for window in [0, 64, 480] {
            let what = format!("batch {n_batch}, ubatch {n_ubatch}, window {window}");
            let params = ContextParams::new(512)
                .n_batch(n_batch)
                .n_ubatch(n_ubatch)
                .threads(1);
            let mut twins = Twins::new(&model, &params, RollingKv::window_cells(window));
            twins.append(&what, 0, &some_tokens(150, 1));
            twins.append(&what, 0, &some_tokens(1, 2));
        }
    }
}

/// Prompts that end just before, at and just behind the border, in one ubatch that is longer than the window.
#[test]
fn a_ubatch_longer_than_the_window_ends_anywhere_at_its_border() {
    let backend = backend();
    let model = tiny::model(&backend);
    let params = ContextParams::new(512).n_ubatch(512).threads(1);
    for window in [32, 96] {
        for count in [window - 1, window, window + 1, 2 * window + 1] {
            let what = format!("{count} tokens, window {window}");
            let mut twins = Twins::new(&model, &params, RollingKv::window_cells(window));
            twins.append(&what, 0, &some_tokens(count as usize, 1));
            for step in 0..3 {
                twins.append(&what, 0, &some_tokens(1, 2 + step));
            }
            twins.assert_spilled(&what);
        }
    }
}

/// Contexts of one token and of the trained length, with every window that is odd for them: an empty part must not be
/// touched.
#[test]
fn the_shortest_contexts_take_every_window() {
    let backend = backend();
    let model = tiny::model(&backend);
    for n_ctx in [1, 0, 256] {
        let params = ContextParams::new(n_ctx).threads(1);
        let cells = {
            let context = model.context(&params).expect("the context is made");
            context.n_ctx()
        };
        for window in [0, 1, 31, 32, cells - 1, cells, cells + 1, u32::MAX] {
            let what = format!("{n_ctx} tokens, window {window}");
            let mut twins = Twins::new(&model, &params, RollingKv::window_cells(window));
            twins.append(&what, 0, &some_tokens(cells as usize - 1, 1));
            twins.append(&what, 0, &some_tokens(1, 2));
            let residency = twins.spilled.residency();
            assert_eq!(
                residency.layers[0].window_cells,
                (window / 32 * 32).min(cells),
                "{what}"
            );
            twins.both(&what, |context| {
                context.memory().clear().expect("it is cleared");
                format!("{:?}", context.save_state())
            });
            twins.append(&what, 0, &some_tokens(40, 3));
        }
    }
}

/// A batch that is too long, or empty, or without outputs ended the whole process (edgenai/llama_cpp-rs#77,
/// Michael-A-Kuykendall/shimmy#140): an error, and the spilled context goes on as its twin does.
#[test]
fn a_batch_that_is_refused_leaves_a_spilled_context_usable() {
    let backend = backend();
    let model = tiny::model(&backend);
    let params = ContextParams::new(512).n_batch(64).n_ubatch(16).threads(1);
    let mut twins = Twins::new(&model, &params, RollingKv::window_cells(32));
    twins.append("a prompt", 0, &some_tokens(100, 1));
    let long = Batch::of(&some_tokens(65, 2), 100, 0);
    let mut silent = Batch::new();
    silent.push(some_tokens(1, 3)[0], 100, &[0], Output::No);
    for context in [&mut twins.resident, &mut twins.spilled] {
        let error = context.decode(&long).expect_err("it is too long");
        assert!(
            matches!(
                error,
                DecodeError::BatchTooLarge {
                    tokens: 65,
                    n_batch: 64
                }
            ),
            "{error}"
        );
        let error = context.decode(&Batch::new()).expect_err("it is empty");
        assert!(matches!(error, DecodeError::EmptyBatch), "{error}");
        context.decode(&silent).expect("no output is wanted");
        let error = context.last_logits().expect_err("there is none");
        assert!(matches!(error, OutputError::NotAnOutput { .. }), "{error}");
    }
    twins.append("the next token", 0, &some_tokens(2, 4));
    twins.assert_spilled("batches");
}

/// The graph's budget of nodes and inputs was too small for caches on the host (ggml-org/llama.cpp#6136, #24657, #21730):
/// many layers, several streams, and a window for each layer.
#[test]
fn many_layers_and_streams_fit_into_one_graph() {
    let backend = backend();
    let model = tiny::model_of(
        &backend,
        &tiny::Shape {
            n_layer: 64,
            n_embd: 32,
            n_head: 1,
            ..tiny::Shape::default()
        },
    );
    let params = ContextParams::new(1024)
        .n_seq_max(4)
        .n_ubatch(32)
        .threads(1);
    let mixed = (0..64).fold(RollingKv::window_cells(64), |budget, layer| {
        budget.layer_window(layer, layer % 5 * 32)
    });
    for budget in [RollingKv::window_cells(64), mixed] {
        let mut twins = Twins::new(&model, &params, budget);
        for seq in 0..4 {
            twins.append("a prompt", seq, &some_tokens(80, seq as u64));
        }
        let mut batch = Batch::new();
        for seq in 0..4 {
            batch.push(some_tokens(1, 9)[0], 80, &[seq], Output::Yes);
        }
        twins.both("one batch of all", |context| {
            context.decode(&batch).expect("the batch fits");
            (0..4)
                .map(|index| {
                    let logits = context.logits(index).expect("an output");
                    crate::twins::bits(logits.values())
                })
                .collect::<Vec<_>>()
        });
        twins.assert_spilled("layers");
    }
}
