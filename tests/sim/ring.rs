use rolling_kv::{
    Context, ContextParams, KvType, LocalLayers, Model, RollingKv, Schedule, TailEngine,
};

use crate::backend;
use crate::common::sim::{TILE, Twins, bits, prompt_and_decode, shape};
use crate::common::{logits_after, some_tokens};

/// All of the tail goes over the link.
fn context<'model>(
    model: &'model Model,
    params: &ContextParams,
    spill: RollingKv,
) -> Context<'model> {
    crate::common::sim::context(model, params, spill.tail_engine(TailEngine::Stream))
}

fn params() -> ContextParams {
    ContextParams::new(512).n_ubatch(64).threads(1)
}

#[test]
fn every_window_gives_the_bits_of_the_resident_cpu_cache() {
    let twins = Twins::new(&backend(), &shape(3));
    let expected = twins.expected(&params(), |context| prompt_and_decode(context, 0, 300));
    for window in [0, 32, 64, 256, 288, 480, 512] {
        let mut spilled = context(&twins.device, &params(), RollingKv::window_cells(window));
        assert!(
            prompt_and_decode(&mut spilled, 0, 300) == expected,
            "window {window}"
        );
        let staging = spilled.staging().expect("the device stages");
        assert_eq!(
            staging.bytes > 0,
            window < 300,
            "window {window}: {staging:?}"
        );
    }
}

#[test]
fn every_depth_and_schedule_gives_the_same_bits() {
    let twins = Twins::new(&backend(), &shape(3));
    for kv_type in [KvType::F16, KvType::Q8_0] {
        let params = params().cache_types(kv_type, kv_type);
        let expected = twins.expected(&params, |context| prompt_and_decode(context, 0, 300));
        for schedule in [Schedule::Ring, Schedule::Op] {
            for (depth, copy_cells) in [(1, 32), (2, 64), (4, 512), (8, 96)] {
                let spill = RollingKv::window_cells(96)
                    .layer_window(1, 0)
                    .schedule(schedule)
                    .ring_depth(depth)
                    .copy_cells(copy_cells);
                let mut spilled = context(&twins.device, &params, spill);
                assert!(
                    prompt_and_decode(&mut spilled, 0, 300) == expected,
                    "{kv_type:?} {schedule:?} depth {depth}, {copy_cells} cells a copy"
                );
                let staging = spilled.staging().expect("the device stages");
                assert_eq!(staging.depth, u64::from(depth));
                assert_eq!(staging.copy_cells, u64::from(copy_cells));
            }
        }
    }
}

#[test]
fn the_ring_runs_ahead_and_the_op_schedule_does_not() {
    let twins = Twins::new(&backend(), &shape(3));
    let run = |schedule| {
        let spill = RollingKv::window_cells(64)
            .schedule(schedule)
            .ring_depth(4)
            .copy_cells(TILE);
        let mut spilled = context(&twins.device, &params(), spill);
        prompt_and_decode(&mut spilled, 0, 300);
        spilled.staging().expect("the device stages")
    };
    let ring = run(Schedule::Ring);
    assert!(
        ring.tiles_early > ring.tiles_late && ring.tiles_late > 0 && ring.tiles_kept > 0,
        "{ring:?}"
    );
    let op = run(Schedule::Op);
    assert!(op.tiles_early == 0 && op.tiles_kept == 0, "{op:?}");
    assert_eq!(op.tiles_late, ring.tiles_early + ring.tiles_late);
}

/// Cells that one copy brings are a matter of speed; those of a tile are not.
#[test]
fn larger_copies_are_fewer_and_carry_the_same_bytes() {
    let twins = Twins::new(&backend(), &shape(3));
    let run = |copy_cells| {
        let spill = RollingKv::window_cells(64)
            .ring_depth(4)
            .copy_cells(copy_cells)
            .schedule(Schedule::Op);
        let mut spilled = context(&twins.device, &params(), spill);
        prompt_and_decode(&mut spilled, 0, 300);
        spilled.staging().expect("the device stages")
    };
    let (small, large) = (run(32), run(128));
    assert_eq!(small.bytes, large.bytes);
    assert!(
        large.tiles_late * 3 < small.tiles_late && large.tiles_late > 0,
        "{large:?}"
    );
    assert_eq!(large.slot_bytes, 4 * small.slot_bytes);
}

#[test]
fn what_is_not_asked_for_is_chosen_from_the_link_and_the_free_memory() {
    let twins = Twins::new(&backend(), &shape(3));
    let mut spilled = context(&twins.device, &params(), RollingKv::window_cells(64));
    let staging = spilled.staging().expect("the device stages");
    assert!(
        (1e8..4.1e9).contains(&staging.link_bytes_per_s),
        "the link has 2 GB/s, and other tests use it too: {staging:?}"
    );
    assert!(staging.link_latency_s < 0.1, "{staging:?}");
    assert!(staging.copy_cells > 0 && staging.copy_cells.is_multiple_of(u64::from(TILE)));
    assert!(staging.depth >= 2, "{staging:?}");
    assert_eq!(staging.device_bytes, staging.depth * staging.slot_bytes);
    assert!(staging.device_bytes <= (48 << 20) / 8, "{staging:?}");
}

#[test]
fn a_prompt_reads_each_tile_once_a_ubatch() {
    let twins = Twins::new(&backend(), &shape(1));
    let spill = RollingKv::window_cells(TILE).copy_cells(TILE);
    let mut spilled = context(&twins.device, &params(), spill);
    let tokens = crate::common::some_tokens(256, 3);
    crate::common::logits_after(&mut spilled, 0, &tokens);
    // Ubatches of 64 that end at 64, 128, 192 and 256 cells, less the window's tile.
    let tiles = (2 - 1) + (4 - 1) + (6 - 1) + (8 - 1);
    let staging = spilled.staging().expect("the device stages");
    assert_eq!(
        staging.tiles_early + staging.tiles_late,
        tiles,
        "{staging:?}"
    );
}

#[test]
fn local_layers_give_the_cpus_bits_and_bring_nothing_over_the_link() {
    let twins = Twins::new(&backend(), &shape(3));
    let params = ContextParams::new(512).n_batch(64).n_ubatch(64).threads(1);
    let local = |layers: &[u32]| LocalLayers::new(layers.iter().copied(), 60);
    let read = |context: &mut rolling_kv::Context<'_>| {
        let mut found = Vec::new();
        for part in some_tokens(400, 3).chunks(64) {
            found = bits(&logits_after(context, 0, part));
        }
        found
    };
    let mut bytes = Vec::new();
    for layers in [&[1][..], &[0, 1]] {
        let resident = RollingKv::resident().local_layers(local(layers));
        let expected = read(&mut context(&twins.cpu, &params, resident));
        let spill = RollingKv::window_cells(96).local_layers(local(layers));
        let mut spilled = context(&twins.device, &params, spill);
        assert!(read(&mut spilled) == expected, "local layers {layers:?}");
        bytes.push(spilled.staging().expect("the device stages").bytes);
        for layer in spilled.residency().layers {
            assert_eq!(layer.local.is_some(), layer.counters.tiles_tail == 0);
        }
    }
    assert!(bytes[1] > 0 && bytes[1] < bytes[0], "{bytes:?}");
}
