//! The feature sets of aarch64 that llama.cpp's CPU modules are built for.

use std::arch::asm;
use std::arch::is_aarch64_feature_detected as detected;

use super::probe::{Attempt, Probe};

/// In the order in which the sets build on each other.
pub const PROBES: &[Probe] = &[
    Probe {
        name: "neon",
        reported: || detected!("neon"),
        attempt: neon,
    },
    Probe {
        name: "fp16",
        reported: || detected!("fp16"),
        attempt: fp16,
    },
    Probe {
        name: "dotprod",
        reported: || detected!("dotprod"),
        attempt: dotprod,
    },
    Probe {
        name: "i8mm",
        reported: || detected!("i8mm"),
        attempt: i8mm,
    },
];

/// Defines a function that loads two vectors into v0 and v1, executes `$op`, stores v0 and compares it.
macro_rules! vector_probe {
    ($name:ident, $extension:literal, $op:literal, $a:expr, $b:expr, $want:expr) => {
        fn $name() -> Attempt {
            let a: [u8; 16] = $a;
            let b: [u8; 16] = $b;
            let mut result = [0_u8; 16];
            // SAFETY: the arrays are as wide as the registers, and both registers are declared as written. Where the
            // machine lacks the instruction it traps, in a child process made to be lost.
            unsafe {
                asm!(
                    $extension,
                    "ldr q0, [{a}]",
                    "ldr q1, [{b}]",
                    $op,
                    "str q0, [{result}]",
                    a = in(reg) &a,
                    b = in(reg) &b,
                    result = in(reg) &mut result,
                    out("v0") _,
                    out("v1") _,
                    options(nostack),
                );
            }
            (result == $want).into()
        }
    };
}

/// The four bytes of a lane, four times.
fn lanes(lane: [u8; 4]) -> [u8; 16] {
    std::array::from_fn(|i| lane[i % 4])
}

vector_probe!(
    neon,
    "",
    "add v0.4s, v0.4s, v1.4s",
    lanes([1, 0, 0, 0]),
    lanes([255, 0, 0, 0]),
    lanes([0, 1, 0, 0])
);
// 0x3c00 is 1.0 and 0x4000 is 2.0 in half precision.
vector_probe!(
    fp16,
    ".arch_extension fp16",
    "fadd v0.8h, v0.8h, v1.8h",
    lanes([0, 0x3c, 0, 0x3c]),
    lanes([0, 0x3c, 0, 0x3c]),
    lanes([0, 0x40, 0, 0x40])
);
vector_probe!(
    dotprod,
    ".arch_extension dotprod",
    "sdot v0.4s, v1.16b, v1.16b",
    lanes([1, 0, 0, 0]),
    [2; 16],
    lanes([17, 0, 0, 0])
);
vector_probe!(
    i8mm,
    ".arch_extension i8mm",
    "smmla v0.4s, v1.16b, v1.16b",
    lanes([1, 0, 0, 0]),
    [2; 16],
    lanes([33, 0, 0, 0])
);
