use rolling_kv::{ContextParams, KvType, RollingKv, Schedule};

use crate::backend;
use crate::common::sim::{TILE, Twins, context, prompt_and_decode, shape};

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
            for depth in [1, 2, 4, 8] {
                let spill = RollingKv::window_cells(96)
                    .layer_window(1, 0)
                    .schedule(schedule)
                    .ring_depth(depth);
                let mut spilled = context(&twins.device, &params, spill);
                assert!(
                    prompt_and_decode(&mut spilled, 0, 300) == expected,
                    "{kv_type:?} {schedule:?} depth {depth}"
                );
                let staging = spilled.staging().expect("the device stages");
                assert_eq!(staging.depth, u64::from(depth));
            }
        }
    }
}

#[test]
fn the_ring_runs_ahead_and_the_op_schedule_does_not() {
    let twins = Twins::new(&backend(), &shape(3));
    let run = |schedule| {
        let spill = RollingKv::window_cells(64).schedule(schedule).ring_depth(4);
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

#[test]
fn a_prompt_reads_each_tile_once_a_ubatch() {
    let twins = Twins::new(&backend(), &shape(1));
    let mut spilled = context(&twins.device, &params(), RollingKv::window_cells(TILE));
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
