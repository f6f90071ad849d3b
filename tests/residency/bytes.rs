use rolling_kv::{
    Batch, Context, ContextError, ContextParams, KvType, MemoryUse, Output, RollingKv,
};

use crate::common::tiny::{self, Shape};
use crate::common::{backend, logits_after, some_tokens};
use crate::twins::{resident, spilled};

fn context_bytes(rows: &[MemoryUse]) -> u64 {
    rows.iter().map(|row| row.context_bytes).sum()
}

/// Memory that a fit counts on: host and device bytes of the breakdown are those of the residency, for every kind of
/// model; what a state per sequence takes comes on top.
#[test]
fn the_breakdown_and_the_residency_agree() {
    let backend = backend();
    for (name, make) in tiny::KINDS {
        let model = make(&backend);
        let params = ContextParams::new(1024).n_seq_max(2).threads(1);
        let of = |spill: RollingKv| {
            let context = spilled(&model, &params, spill);
            let rows = context.memory_breakdown().expect("the breakdown is read");
            let residency = context.residency();
            (
                context_bytes(&rows),
                residency.host_bytes() + residency.device_bytes(),
                residency.host_bytes(),
            )
        };
        let (whole, cache, in_host) = of(RollingKv::resident());
        assert_eq!(in_host, 0, "{name}");
        let states = whole - cache;
        assert_eq!(
            states > 0,
            ["recurrent", "hybrid"].contains(&name),
            "{name}: {states} bytes of states"
        );
        for spill in [
            RollingKv::window_cells(0),
            RollingKv::window_cells(96),
            RollingKv::window_cells(96).layer_window(1, 0),
            RollingKv::window_cells(1024),
        ] {
            let what = format!("{name}, {spill:?}");
            let (all, parts, _) = of(spill);
            assert_eq!(all, states + parts, "{what}");
            assert_eq!(parts, cache, "{what}");
        }
    }
}

/// A longer context took device memory although its cache lay on the host (ggml-org/llama.cpp#14043, #10494): with one
/// window, only the host's part grows, and working memory by the mask alone.
#[test]
fn a_longer_context_takes_no_more_of_the_device() {
    let backend = backend();
    let model = tiny::model(&backend);
    let ubatch = 32;
    let measured = [1024u32, 8192, 32768].map(|n_ctx| {
        let params = ContextParams::new(n_ctx).n_ubatch(ubatch).threads(1);
        let context = spilled(&model, &params, RollingKv::window_cells(512));
        let rows = context.memory_breakdown().expect("the breakdown is read");
        let compute: u64 = rows.iter().map(|row| row.compute_bytes).sum();
        (n_ctx, context.residency(), compute)
    });
    let (short, first, compute) = &measured[0];
    for (n_ctx, residency, more) in &measured[1..] {
        assert_eq!(residency.device_bytes(), first.device_bytes());
        let cell_bytes = first.device_bytes() / 512;
        assert_eq!(
            residency.host_bytes(),
            u64::from(n_ctx - 512) * cell_bytes,
            "{n_ctx}"
        );
        // The mask as f32 and as f16.
        let masks = u64::from(n_ctx - short) * u64::from(ubatch) * 6;
        assert!(
            *more <= compute + masks,
            "{n_ctx}: {more} bytes of working memory, {compute} at {short}"
        );
    }
}

/// Of a window over several streams the gaps between them were moved too (GenerelSchwerz/llama.cpp#77): what is read of
/// the tail is what the streams use of it.
#[test]
fn only_the_used_tail_of_each_stream_is_read() {
    let backend = backend();
    let model = tiny::model(&backend);
    let params = ContextParams::new(4 * 2048)
        .n_seq_max(4)
        .n_ubatch(64)
        .threads(1);
    let mut context = spilled(&model, &params, RollingKv::window_cells(64));
    for seq in 0..4 {
        context
            .append(seq, &some_tokens(500, seq as u64))
            .expect("the tokens fit");
    }
    let mut batch = Batch::new();
    for seq in 0..4 {
        batch.push(some_tokens(1, 9)[0], 500, &[seq], Output::Yes);
    }
    let before = context.residency().totals();
    context.decode(&batch).expect("the batch fits");
    let after = context.residency().totals();

    let residency = context.residency();
    let cell_bytes: u64 = residency
        .layers
        .iter()
        .map(|layer| layer.device_bytes / 64 / 4)
        .sum();
    let used = 4 * (501 - 64) * cell_bytes;
    let read = after.tail_bytes_read - before.tail_bytes_read;
    assert!(
        read >= used && read <= used + 4 * 32 * cell_bytes,
        "{read} bytes were read, and {used} are used"
    );
}

/// Rows times cells was computed in 32 bits (ggml-org/llama.cpp#13581): lengths that no memory holds are refused with the
/// exact bytes, and nothing is allocated.
#[test]
fn sizes_beyond_32_bits_are_exact() {
    let backend = backend();
    // Rows of 8192 values, for which the weights of a narrow model do.
    let shape = Shape {
        n_head: 64,
        n_head_kv: 64,
        n_layer: 1,
        ..Shape::default()
    };
    let description = tiny::describe(&shape)
        .u32("llama.attention.key_length", 128)
        .u32("llama.attention.value_length", 128);
    let model = tiny::finish(description, &backend, shape.seed);
    for (kv, row_bytes) in [(KvType::F16, 16384u64), (KvType::Q4_0, 8192 / 32 * 18)] {
        for n_ctx in [5_242_880u32, i32::MAX as u32 - 255] {
            for window in [0, 4096, n_ctx - 1] {
                let params = ContextParams::new(n_ctx)
                    .cache_types(kv, kv)
                    .rolling_kv(RollingKv::window_cells(window));
                let error = model.context(&params).expect_err("no machine holds it");
                let expected = u64::from(n_ctx.next_multiple_of(256)) * row_bytes * 2;
                assert!(
                    matches!(error, ContextError::NotEnoughMemory { cache_bytes, .. } if cache_bytes == expected),
                    "{kv}, {n_ctx} tokens, window {window}: {error}"
                );
            }
        }
        let params = ContextParams::new((1 << 31) + 1)
            .cache_types(kv, kv)
            .rolling_kv(RollingKv::window_cells(4096));
        let error = model.context(&params).expect_err("positions end before");
        assert!(
            matches!(error, ContextError::TooLong { cache_bytes, .. } if cache_bytes > (1u64 << 31) * row_bytes * 2),
            "{error}"
        );
    }
}

/// A window takes nothing beside the cache: what is not cache is as large as for the twin.
#[test]
fn a_split_costs_no_working_memory() {
    let backend = backend();
    let model = tiny::model(&backend);
    let params = ContextParams::new(8192).n_ubatch(64).threads(1);
    let compute = |context: Context<'_>| {
        let rows = context.memory_breakdown().expect("the breakdown is read");
        rows.iter().map(|row| row.compute_bytes).sum::<u64>()
    };
    let whole = compute(resident(&model, &params));
    for window in [0, 64, 4096] {
        let split = compute(spilled(&model, &params, RollingKv::window_cells(window)));
        assert!(
            split <= whole + (64 << 10),
            "window {window}: {split} bytes instead of {whole}"
        );
    }
}

/// A sliding cache stays on the device, so a target in MiB must leave room for it.
#[test]
fn regression_a_target_counts_the_sliding_cache() {
    let backend = backend();
    let shape = tiny::Shape {
        architecture: "gemma2",
        n_layer: 4,
        n_head: 8,
        n_head_kv: 8,
        ..tiny::Shape::default()
    };
    let description = tiny::describe(&shape)
        .u32("gemma2.attention.sliding_window", 128)
        .u32("gemma2.attention.key_length", 32)
        .u32("gemma2.attention.value_length", 32);
    let model = tiny::finish(description, &backend, 2);
    let params = ContextParams::new(4096).n_ubatch(64).threads(1);
    for mib in [1, 2, 4] {
        let residency = spilled(&model, &params, RollingKv::vram_budget_mib(mib)).residency();
        assert!(
            residency.device_bytes() <= mib << 20,
            "{mib} MiB: {residency}"
        );
    }
}

/// With a window of 0 every cell lies in host memory, so every tile is read from the tail.
#[test]
fn regression_the_tiles_of_a_window_of_0_are_the_tails() {
    let backend = backend();
    let model = tiny::model(&backend);
    let params = ContextParams::new(512).n_ubatch(64).threads(1);
    let mut context = spilled(&model, &params, RollingKv::window_cells(0));
    logits_after(&mut context, 0, &some_tokens(64, 1));
    let totals = context.residency().totals();
    assert_eq!(
        (totals.tiles_window, totals.tiles_tail),
        (0, 4),
        "{totals:?}"
    );
    assert_eq!(
        totals.tail_bytes_read,
        64 * 256,
        "64 cells of 256 bytes over both layers"
    );
}

/// A latent cache has one row a cell, of which V is a part.
#[test]
fn regression_a_latent_row_is_counted_once() {
    let backend = backend();
    let model = tiny::latent(&backend);
    let params = ContextParams::new(512).n_ubatch(64).threads(1);
    let mut context = spilled(&model, &params, RollingKv::window_cells(32));
    logits_after(&mut context, 0, &some_tokens(64, 1));
    let layer = context.residency().layers[0];
    assert_eq!(
        layer.counters.tail_bytes_read,
        32 * layer.host_bytes / (512 - 32),
        "32 cells of the tail: {:?}",
        layer.counters
    );
}
