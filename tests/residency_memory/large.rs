use rolling_kv::{Context, ContextError, ContextParams, Model, Order, Part, RollingKv, Row};

use crate::child;
use crate::common::tiny::{self, Shape};
use crate::common::{backend, logits_after, some_tokens};

const STREAMS: u32 = 256;
const CELLS: u32 = 2304;
const WINDOW: u32 = 32;
/// 4096 values of the latent row and 64 of the rotated one, as f16.
const ROW_BYTES: u64 = (4096 + 64) * 2;

/// One layer whose K and V are one row of 4160 values.
fn model() -> Model {
    let shape = Shape {
        architecture: "deepseek2",
        n_head: 1,
        n_layer: 1,
        ..Shape::default()
    };
    let description = tiny::describe(&shape)
        .u32("deepseek2.leading_dense_block_count", 1)
        .u32("deepseek2.attention.q_lora_rank", 32)
        .u32("deepseek2.attention.kv_lora_rank", 4096)
        .u32("deepseek2.attention.key_length", 4160)
        .u32("deepseek2.attention.value_length", 4096)
        .u32("deepseek2.attention.key_length_mla", 96)
        .u32("deepseek2.attention.value_length_mla", 32)
        .u32("deepseek2.rope.dimension_count", 64)
        .u32("deepseek2.expert_feed_forward_length", 32)
        .u32("deepseek2.expert_shared_count", 1)
        .f32("deepseek2.expert_weights_scale", 1.0);
    tiny::finish(description, &backend(), 1)
}

fn make(model: &Model, streams: u32, spill: RollingKv) -> Result<Context<'_>, ContextError> {
    let params = ContextParams::new(CELLS * streams)
        .n_seq_max(streams)
        .n_ubatch(256)
        .threads(1);
    let spill = spill.order(Order::Tiled).tile_cells(32);
    model.context(&params.rolling_kv(spill))
}

/// Offsets of streams and cells were computed in 32 bits (ggml-org/llama.cpp#14840, #13581, #18341): in a tail of more than
/// 4 GiB and of more than 2^31 values, the last cells of the last stream are written, copied, read back and attended.
#[test]
fn the_last_cells_of_a_tail_of_more_than_4_gib_are_used() {
    let test = "the_last_cells_of_a_tail_of_more_than_4_gib_are_used";
    if child::skipped_under_a_checker(test) {
        return;
    }
    let model = model();
    let mut large = match make(&model, STREAMS, RollingKv::window_cells(WINDOW)) {
        Err(error @ ContextError::NotEnoughMemory { .. }) => {
            println!("SKIP {test}: {error}");
            return;
        }
        made => made.expect("the context is made"),
    };
    let tail_bytes = u64::from(CELLS - WINDOW) * u64::from(STREAMS) * ROW_BYTES;
    assert!(tail_bytes > 1 << 32 && tail_bytes / 2 > 1 << 31);
    assert_eq!(large.residency().host_bytes(), tail_bytes);

    let mut small = make(&model, 1, RollingKv::resident()).expect("the twin is made");
    let last = STREAMS as i32 - 1;
    let text = some_tokens(CELLS as usize, 1);
    let (most, end) = text.split_at(CELLS as usize - 2);
    let bits = |logits: Vec<f32>| logits.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    assert!(bits(logits_after(&mut large, last, most)) == bits(logits_after(&mut small, 0, most)));
    large
        .memory()
        .copy(last, last - 1, ..)
        .expect("all of it is copied");
    let expected = bits(logits_after(&mut small, 0, end));
    assert!(bits(logits_after(&mut large, last, end)) == expected);
    assert!(bits(logits_after(&mut large, last - 1, end)) == expected);

    for cell in [WINDOW - 1, WINDOW, CELLS - 2, CELLS - 1] {
        let part = if cell < WINDOW {
            Part::Window
        } else {
            Part::Tail
        };
        let (_, row) = small
            .read_cell(0, Row::K, 0, cell)
            .expect("the cell exists");
        for stream in [STREAMS - 2, STREAMS - 1] {
            let found = large.read_cell(0, Row::K, stream, cell);
            assert!(
                found == Some((part, row.clone())),
                "stream {stream}, cell {cell}"
            );
        }
    }
    assert!(large.residency().totals().tiles_tail > 0);
    println!(
        "{tail_bytes} bytes of tail, {} resident in all",
        child::taken().1
    );
}
