//! What a device chooses for its staging ring (`kernels/src/rkv-plan.cpp`), over the links and memories that there are.

use proptest::prelude::*;

use crate::ffi;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A device with so much free memory, behind a link.
#[derive(Debug, Clone, Copy)]
struct Device {
    free: u64,
    bytes_s: f64,
    latency_s: f64,
}

/// SmolLM2 with 6144 cells, all but 1024 in the tail, in tiles of 128.
fn need() -> ffi::rkv_staging_need {
    ffi::rkv_staging_need {
        tile_cells: 128,
        k_row_bytes: 384,
        v_row_bytes: 384,
        cells_layer: 5120,
        cells_all: 30 * 5120,
        host: std::ptr::null(),
    }
}

fn asked(depth: u32, copy_cells: u32) -> ffi::rkv_staging_params {
    ffi::rkv_staging_params {
        schedule: ffi::RKV_SCHEDULE_AUTO,
        depth,
        copy_cells,
        engine: ffi::RKV_TAIL_ENGINE_AUTO,
        host_threads: 0,
    }
}

fn choose(
    asked: ffi::rkv_staging_params,
    need: ffi::rkv_staging_need,
    device: Device,
) -> ffi::rkv_staging_choice {
    // SAFETY: both pointers are valid for the call, which keeps neither.
    unsafe {
        ffi::rkv_staging_choose(
            &raw const asked,
            &raw const need,
            device.free,
            device.bytes_s,
            device.latency_s,
        )
    }
}

const CARD: Device = Device {
    free: 4 * GIB,
    bytes_s: 25e9,
    latency_s: 8e-6,
};

#[test]
fn a_copy_is_as_long_as_its_latency_asks_for() {
    let cells = |latency_s| choose(asked(0, 0), need(), Device { latency_s, ..CARD }).copy_cells;
    assert_eq!(cells(0.0), 128);
    // 4 x 8 us x 25 GB/s are 800 kB, 1042 cells of 768 bytes.
    assert_eq!(cells(8e-6), 2048);
    assert!(cells(2e-6) < cells(8e-6));
}

#[test]
fn the_slots_hold_what_the_link_brings_while_no_tile_is_read() {
    let long = ffi::rkv_staging_need {
        cells_layer: 65_536,
        cells_all: 30 * 65_536,
        host: std::ptr::null(),
        ..need()
    };
    for bytes_s in [2e9, 6.4e9, 25e9] {
        let chosen = choose(asked(0, 0), long, Device { bytes_s, ..CARD });
        let held = f64::from(chosen.depth) * chosen.slot_bytes as f64;
        assert!(held >= 4e-3 * bytes_s, "{bytes_s}: {held}");
        assert!(held <= 6e-3 * bytes_s + 2.0 * chosen.slot_bytes as f64);
    }
}

#[test]
fn the_slots_are_much_less_than_the_tails() {
    let chosen = choose(asked(0, 0), need(), CARD);
    let tails = 30 * 5120 * 768;
    assert!(u64::from(chosen.depth) * chosen.slot_bytes <= tails / 4);
    let short = ffi::rkv_staging_need {
        cells_layer: 300,
        cells_all: 300,
        host: std::ptr::null(),
        ..need()
    };
    let chosen = choose(asked(0, 0), short, CARD);
    assert_eq!((chosen.copy_cells, chosen.depth), (128, 2));
}

#[test]
fn little_memory_makes_small_slots_and_few() {
    let small = choose(
        asked(0, 0),
        need(),
        Device {
            free: 4 * MIB,
            ..CARD
        },
    );
    let large = choose(asked(0, 0), need(), CARD);
    assert!(small.copy_cells < large.copy_cells);
    assert!(u64::from(small.depth) * small.slot_bytes <= 4 * MIB / 8);
    let none = choose(asked(0, 0), need(), Device { free: 0, ..CARD });
    assert_eq!((none.copy_cells, none.depth), (128, 2));
}

#[test]
fn what_is_asked_for_is_taken_in_whole_tiles() {
    let chosen = choose(asked(3, 300), need(), CARD);
    assert_eq!((chosen.copy_cells, chosen.depth), (256, 3));
    assert_eq!(choose(asked(0, 1), need(), CARD).copy_cells, 128);
    // No layer has more than 5120 cells in its tail.
    assert_eq!(choose(asked(0, 1 << 20), need(), CARD).copy_cells, 5120);
}

proptest! {
    #[test]
    fn every_choice_can_be_used(
        tiles in 1u32..64, tile in 1u32..256, row in 1u64..100_000, layers in 1u64..200, value in any::<bool>(),
        free in 0u64..(200 * GIB), bytes_s in 1e6f64..1e12, latency_s in 0f64..1e-2, depth in 0u32..5000, copy in 0u32..(1 << 20),
    ) {
        let cells_layer = u64::from(tiles) * 32;
        let tile_cells = 32 * tile;
        let need = ffi::rkv_staging_need {
            tile_cells,
            k_row_bytes: row,
            v_row_bytes: if value { row } else { 0 },
            cells_layer,
            cells_all: layers * cells_layer,
        host: std::ptr::null(),
        };
        let chosen = choose(asked(depth, copy), need, Device { free, bytes_s, latency_s });
        prop_assert!(chosen.copy_cells >= tile_cells && chosen.copy_cells.is_multiple_of(tile_cells));
        prop_assert!(u64::from(chosen.copy_cells) * row <= chosen.slot_bytes);
        prop_assert!((depth == 0 && chosen.depth >= 2) || chosen.depth == depth);
        if depth == 0 && copy == 0 && chosen.depth > 2 {
            prop_assert!(u64::from(chosen.depth) * chosen.slot_bytes <= free / 8);
        }
    }
}
