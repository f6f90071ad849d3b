use rolling_kv::{ContextParams, KvType, Part, RollingKv, Row};

use crate::common::{backend, logits_after, some_tokens, tiny};
use crate::twins::{resident, spilled};

#[test]
fn every_row_lies_where_its_layer_says() {
    let backend = backend();
    let model = tiny::model_of(
        &backend,
        &tiny::Shape {
            n_layer: 4,
            ..tiny::Shape::default()
        },
    );
    let params = ContextParams::new(1024)
        .n_seq_max(2)
        .n_ubatch(64)
        .threads(1)
        .cache_types(KvType::Q8_0, KvType::F16);
    let budget = RollingKv::window_cells(96)
        .resident_layers(0..=0)
        .layer_window(1, 0)
        .layer_window(3, 160);
    let mut twins = [resident(&model, &params), spilled(&model, &params, budget)];
    for context in &mut twins {
        logits_after(context, 0, &some_tokens(200, 1));
        logits_after(context, 1, &some_tokens(130, 2));
    }

    let windows = [512, 0, 96, 160];
    let [left, right] = &mut twins;
    for (entry, window) in windows.into_iter().enumerate() {
        assert_eq!(
            right.residency().layers[entry].window_cells,
            window,
            "layer {entry}"
        );
        for (stream, cells) in [(0, 200), (1, 130)] {
            for cell in 0..cells {
                for row in [Row::K, Row::V] {
                    let (_, expected) = left
                        .read_cell(entry, row, stream, cell)
                        .expect("the cell exists");
                    let (part, found) = right
                        .read_cell(entry, row, stream, cell)
                        .expect("the cell exists");
                    let where_to = if cell < window {
                        Part::Window
                    } else {
                        Part::Tail
                    };
                    assert_eq!(
                        part, where_to,
                        "layer {entry}, stream {stream}, cell {cell}"
                    );
                    // The rows of the first layer come from the same input, those of later layers from equal ones.
                    assert!(
                        found == expected,
                        "layer {entry}, stream {stream}, cell {cell}, {row:?}"
                    );
                    assert!(
                        found.iter().any(|byte| *byte != 0),
                        "layer {entry}, cell {cell} was never written"
                    );
                }
            }
        }
    }
}

#[test]
fn host_and_device_bytes_add_up_to_the_one_cache() {
    let backend = backend();
    let model = tiny::model(&backend);
    let params = ContextParams::new(512).threads(1);
    let whole = resident(&model, &params).residency();
    assert_eq!(whole.host_bytes(), 0);
    for window in [0, 32, 128, 480] {
        let split = spilled(&model, &params, RollingKv::window_cells(window)).residency();
        assert_eq!(
            split.device_bytes() + split.host_bytes(),
            whole.device_bytes(),
            "window {window}"
        );
        assert_eq!(
            split.device_bytes(),
            whole.device_bytes() * u64::from(window) / 512,
            "window {window}"
        );
    }
}

#[test]
fn a_budget_in_mib_is_kept() {
    let backend = backend();
    let model = tiny::model_of(
        &backend,
        &tiny::Shape {
            n_embd: 256,
            n_head: 8,
            n_head_kv: 8,
            ..tiny::Shape::default()
        },
    );
    // 2 layers of K and V rows of 256 f16 values: 2 KiB a cell, so 4 MiB in all.
    let params = ContextParams::new(2048).threads(1);
    let residency = spilled(&model, &params, RollingKv::vram_budget_mib(1)).residency();
    assert_eq!(residency.device_bytes(), 1 << 20);
    assert_eq!(residency.host_bytes(), 3 << 20);
    let residency = spilled(
        &model,
        &params,
        RollingKv::vram_budget_mib(1).resident_layers(0..=0),
    )
    .residency();
    assert_eq!(
        residency.layers[0].host_bytes, 0,
        "a resident layer stays so"
    );
    assert_eq!(
        residency.layers[1].window_cells, 0,
        "nothing is left for the other"
    );
}

#[test]
fn counters_grow_only_while_tiles_run() {
    let backend = backend();
    let model = tiny::model(&backend);
    let mut context = spilled(
        &model,
        &ContextParams::new(512).n_ubatch(64).threads(1),
        RollingKv::window_cells(64),
    );
    assert_eq!(context.residency().totals().nodes, 0, "nothing ran yet");
    logits_after(&mut context, 0, &some_tokens(10, 1));
    let totals = context.residency().totals();
    assert_eq!(
        (totals.nodes, totals.tiles_window, totals.tiles_tail),
        (2, 2, 0),
        "one node and one tile a layer"
    );
    assert!(totals.partials_merged > 0 && totals.tail_bytes_read == 0);
    logits_after(&mut context, 0, &some_tokens(64, 2));
    let totals = context.residency().totals();
    assert_eq!(
        (totals.nodes, totals.tiles_window, totals.tiles_tail),
        (4, 6, 2),
        "74 cells are three tiles, one in the tail"
    );
    assert!(totals.tail_bytes_read > 0);
}

#[test]
fn a_cell_that_does_not_exist_is_none() {
    let backend = backend();
    let model = tiny::model(&backend);
    let mut context = spilled(
        &model,
        &ContextParams::new(512).threads(1),
        RollingKv::window_cells(64),
    );
    assert!(context.read_cell(0, Row::K, 0, 511).is_some());
    assert!(context.read_cell(0, Row::K, 0, 512).is_none());
    assert!(context.read_cell(0, Row::K, 1, 0).is_none());
    assert!(context.read_cell(2, Row::K, 0, 0).is_none());
    assert!(context.overwrite_cell(0, Row::K, 0, 0, &[0; 3]).is_none());
}
