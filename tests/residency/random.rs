use proptest::prelude::*;
use rolling_kv::{Context, ContextParams, KvType, Model, Order, RollingKv};

use crate::common::tiny::{self, Shape};
use crate::common::{backend, fewer_if_slow, logits_after, some_tokens};
use crate::twins::bits;

const N_LAYER: u32 = 3;

/// Tokens of a batch are fewer.
const PIECE_MAX: usize = 130;

/// What is drawn: a model, a context, a window and a prompt in pieces.
#[derive(Debug, Clone)]
struct Drawn {
    head_dim: u32,
    n_head: u32,
    n_head_kv: u32,
    seed: u64,
    n_ctx: u32,
    n_ubatch: u32,
    threads: u32,
    sequences: u32,
    unified: bool,
    types: (KvType, KvType),
    tile: u32,
    window: u32,
    layers: [Option<u32>; N_LAYER as usize],
    /// Sequence and length of each batch.
    pieces: Vec<(u32, usize)>,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let kv = || {
        prop::sample::select(vec![
            KvType::F16,
            KvType::Bf16,
            KvType::Q8_0,
            KvType::Q5_1,
            KvType::Q4_0,
        ])
    };
    let heads = prop::sample::select(vec![(1u32, 1u32), (2, 1), (2, 2), (4, 2), (3, 1), (4, 4)]);
    let model = (prop::sample::select(vec![32u32, 64]), heads, 1..1000u64);
    let context = (
        1..1200u32,
        1..130u32,
        prop::sample::select(vec![1u32, 1, 1, 2]),
        1..4u32,
        any::<bool>(),
        (kv(), kv()),
    );
    let spill = (
        prop::sample::select(vec![32u32, 64, 96, 128]),
        0..700u32,
        prop::array::uniform3(prop::option::weighted(0.3, 0..700u32)),
    );
    let pieces = prop::collection::vec((0..3u32, 1..PIECE_MAX), 1..6);
    (model, context, spill, pieces).prop_map(
        |(
            (head_dim, (n_head, n_head_kv), seed),
            (n_ctx, n_ubatch, threads, sequences, unified, types),
            (tile, window, layers),
            pieces,
        )| Drawn {
            head_dim,
            n_head,
            n_head_kv,
            seed,
            n_ctx,
            n_ubatch,
            threads,
            sequences,
            unified,
            types,
            tile,
            window,
            layers,
            pieces,
        },
    )
}

impl Drawn {
    fn model(&self) -> Model {
        tiny::model_of(
            &backend(),
            &Shape {
                n_embd: self.head_dim * self.n_head,
                n_head: self.n_head,
                n_head_kv: self.n_head_kv,
                n_layer: N_LAYER,
                seed: self.seed,
                ..Shape::default()
            },
        )
    }

    fn context<'model>(
        &self,
        model: &'model Model,
        threads: u32,
        spill: RollingKv,
    ) -> Context<'model> {
        let mut params = ContextParams::new(self.n_ctx)
            .n_seq_max(self.sequences)
            .n_ubatch(self.n_ubatch)
            .threads(threads)
            .cache_types(self.types.0, self.types.1);
        if self.unified {
            params = params.kv_unified();
        }
        let spill = spill.order(Order::Tiled).tile_cells(self.tile);
        let made = model.context(&params.rolling_kv(spill));
        made.expect("the context is made")
    }

    fn budget(&self) -> RollingKv {
        let common = RollingKv::window_cells(self.window);
        (0..N_LAYER)
            .zip(self.layers)
            .filter_map(|(layer, own)| own.map(|cells| (layer, cells)))
            .fold(common, |budget, (layer, cells)| {
                budget.layer_window(layer, cells)
            })
    }

    /// The bits after each piece, as far as they fit.
    fn run(&self, context: &mut Context<'_>) -> Vec<Vec<u32>> {
        let mut found = Vec::new();
        for (index, (seq, count)) in self.pieces.iter().enumerate() {
            let seq = (seq % self.sequences) as i32;
            let held = context.positions(seq).expect("it exists");
            let room =
                context.n_ctx_seq() as usize - held.map_or(0, |held| *held.end() as usize + 1);
            let used: usize = found.len() * PIECE_MAX;
            let count = (*count).min(room);
            if count == 0 || (self.unified && used + count > context.n_ctx() as usize) {
                continue;
            }
            found.push(bits(&logits_after(
                context,
                seq,
                &some_tokens(count, index as u64),
            )));
        }
        found
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: fewer_if_slow(64) as u32,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever is drawn, a spilled context gives the bits of its resident twin, also with another number of threads.
    #[test]
    fn whatever_is_drawn_the_twins_are_equal(drawn in drawn()) {
        let model = drawn.model();
        let expected = drawn.run(&mut drawn.context(&model, 1, RollingKv::resident()));
        let mut spilled = drawn.context(&model, drawn.threads, drawn.budget());
        let found = drawn.run(&mut spilled);
        prop_assert!(!expected.is_empty());
        prop_assert!(found == expected, "the bits differ");
        let residency = spilled.residency();
        for (layer, own) in residency.layers.iter().zip(drawn.layers) {
            let cells = own.unwrap_or(drawn.window) / drawn.tile * drawn.tile;
            prop_assert_eq!(layer.window_cells, cells.min(layer.kv_size));
        }
    }
}
