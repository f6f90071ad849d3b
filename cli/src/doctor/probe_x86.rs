//! The feature sets of x86-64 that llama.cpp's CPU modules are built for.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::is_x86_feature_detected as detected;

use super::probe::{Attempt, Probe};
use super::probe_amx::{amx_int8, amx_tile};

/// In the order in which the sets build on each other.
pub const PROBES: &[Probe] = &[
    Probe {
        name: "sse4.2",
        reported: || detected!("sse4.2"),
        attempt: sse42,
    },
    Probe {
        name: "avx",
        reported: || detected!("avx"),
        attempt: avx,
    },
    Probe {
        name: "f16c",
        reported: || detected!("f16c"),
        attempt: f16c,
    },
    Probe {
        name: "fma",
        reported: || detected!("fma"),
        attempt: fma,
    },
    Probe {
        name: "bmi2",
        reported: || detected!("bmi2"),
        attempt: bmi2,
    },
    Probe {
        name: "avx2",
        reported: || detected!("avx2"),
        attempt: avx2,
    },
    Probe {
        name: "avx_vnni",
        reported: || detected!("avxvnni"),
        attempt: avx_vnni,
    },
    Probe {
        name: "avx512f",
        reported: || detected!("avx512f"),
        attempt: avx512f,
    },
    Probe {
        name: "avx512cd",
        reported: || detected!("avx512cd"),
        attempt: avx512cd,
    },
    Probe {
        name: "avx512bw",
        reported: || detected!("avx512bw"),
        attempt: avx512bw,
    },
    Probe {
        name: "avx512dq",
        reported: || detected!("avx512dq"),
        attempt: avx512dq,
    },
    Probe {
        name: "avx512vl",
        reported: || detected!("avx512vl"),
        attempt: avx512vl,
    },
    Probe {
        name: "avx512_vbmi",
        reported: || detected!("avx512vbmi"),
        attempt: avx512_vbmi,
    },
    Probe {
        name: "avx512_vnni",
        reported: || detected!("avx512vnni"),
        attempt: avx512_vnni,
    },
    Probe {
        name: "avx512_bf16",
        reported: || detected!("avx512bf16"),
        attempt: avx512_bf16,
    },
    Probe {
        name: "amx_tile",
        reported: || leaf_7_edx_bit(24),
        attempt: amx_tile,
    },
    Probe {
        name: "amx_int8",
        reported: || leaf_7_edx_bit(25),
        attempt: amx_int8,
    },
];

/// AMX has no stable name in `is_x86_feature_detected`: bits of cpuid leaf 7, register edx.
fn leaf_7_edx_bit(bit: u32) -> bool {
    __cpuid_count(7, 0).edx >> bit & 1 == 1
}

/// Memory that one vector register is loaded from or stored to.
#[repr(C, align(64))]
#[derive(Clone, Copy, PartialEq)]
struct Block([u8; 64]);

impl Block {
    const ZERO: Self = Self([0; 64]);

    /// `value`, repeated over `bytes` bytes; zeroes after it.
    fn filled<const N: usize>(value: [u8; N], bytes: usize) -> Self {
        let mut block = Self::ZERO;
        for piece in block.0[..bytes].chunks_exact_mut(N) {
            piece.copy_from_slice(&value);
        }
        block
    }
}

/// Defines a function that loads two vectors into registers 0 and 1, executes `$op`, stores register 0 and compares it.
/// `$a`, `$b` and `$want` are the bytes of one lane.
macro_rules! vector_probe {
    ($name:ident, $register:literal, $bytes:literal, $op:literal, $a:expr, $b:expr, $want:expr) => {
        fn $name() -> Attempt {
            let a = Block::filled($a, $bytes);
            let b = Block::filled($b, $bytes);
            let mut result = Block::ZERO;
            // SAFETY: the blocks are 64 bytes, as wide as the widest register; every register that is written is
            // declared. Where the machine lacks the instruction it traps, in a child process made to be lost.
            unsafe {
                asm!(
                    concat!("vmovups ", $register, "0, [{a}]"),
                    concat!("vmovups ", $register, "1, [{b}]"),
                    $op,
                    concat!("vmovups [{result}], ", $register, "0"),
                    "vzeroupper",
                    a = in(reg) &a,
                    b = in(reg) &b,
                    result = in(reg) &mut result,
                    out("xmm0") _,
                    out("xmm1") _,
                    options(nostack),
                );
            }
            (result == Block::filled($want, $bytes)).into()
        }
    };
}

fn f32_bytes(value: f32) -> [u8; 4] {
    value.to_le_bytes()
}

/// Two bfloat16 numbers: the upper halves of two f32.
fn bf16_pair(low: f32, high: f32) -> [u8; 4] {
    let (low, high) = (low.to_bits() >> 16, high.to_bits() >> 16);
    (high << 16 | low).to_le_bytes()
}

vector_probe!(
    avx,
    "ymm",
    32,
    "vaddps ymm0, ymm0, ymm1",
    f32_bytes(1.5),
    f32_bytes(2.0),
    f32_bytes(3.5)
);
vector_probe!(
    fma,
    "ymm",
    32,
    "vfmadd213ps ymm0, ymm1, ymm1",
    f32_bytes(3.0),
    f32_bytes(2.0),
    f32_bytes(8.0)
);
vector_probe!(
    avx2,
    "ymm",
    32,
    "vpaddd ymm0, ymm0, ymm1",
    [1, 0, 0, 0],
    [255, 0, 0, 0],
    [0, 1, 0, 0]
);
vector_probe!(
    avx_vnni,
    "ymm",
    32,
    "{{vex}} vpdpbusd ymm0, ymm1, ymm1",
    [1, 0, 0, 0],
    [2; 4],
    [17, 0, 0, 0]
);
vector_probe!(
    avx512f,
    "zmm",
    64,
    "vaddps zmm0, zmm0, zmm1",
    f32_bytes(1.5),
    f32_bytes(2.0),
    f32_bytes(3.5)
);
vector_probe!(
    avx512cd,
    "zmm",
    64,
    "vplzcntd zmm0, zmm1",
    [0; 4],
    [1, 0, 0, 0],
    [31, 0, 0, 0]
);
vector_probe!(
    avx512bw,
    "zmm",
    64,
    "vpaddb zmm0, zmm0, zmm1",
    [3],
    [4],
    [7]
);
vector_probe!(
    avx512dq,
    "zmm",
    64,
    "vpmullq zmm0, zmm0, zmm1",
    3_u64.to_le_bytes(),
    5_u64.to_le_bytes(),
    15_u64.to_le_bytes()
);
vector_probe!(
    avx512vl,
    "ymm",
    32,
    "vprold ymm0, ymm1, 8",
    [0; 4],
    [1, 2, 3, 4],
    [4, 1, 2, 3]
);
vector_probe!(
    avx512_vbmi,
    "zmm",
    64,
    "vpermb zmm0, zmm0, zmm1",
    [5],
    [9],
    [9]
);
vector_probe!(
    avx512_vnni,
    "zmm",
    64,
    "vpdpbusd zmm0, zmm1, zmm1",
    [1, 0, 0, 0],
    [2; 4],
    [17, 0, 0, 0]
);
vector_probe!(
    avx512_bf16,
    "zmm",
    64,
    "vdpbf16ps zmm0, zmm1, zmm1",
    f32_bytes(1.0),
    bf16_pair(2.0, 3.0),
    f32_bytes(14.0)
);

fn f16c() -> Attempt {
    let half_two = Block::filled([0x00, 0x40], 16);
    let mut result = Block::ZERO;
    // SAFETY: the blocks are 64 bytes, more than is loaded and stored; every register that is written is declared.
    unsafe {
        asm!(
            "vcvtph2ps ymm0, [{half}]",
            "vmovups [{result}], ymm0",
            "vzeroupper",
            half = in(reg) &half_two,
            result = in(reg) &mut result,
            out("xmm0") _,
            options(nostack),
        );
    }
    (result == Block::filled(f32_bytes(2.0), 32)).into()
}

fn sse42() -> Attempt {
    let mut crc: u64 = 0;
    // SAFETY: only the named general register is written, and no memory is touched.
    unsafe {
        asm!("crc32 {crc}, {one}", crc = inout(reg) crc, one = in(reg) 1_u64, options(nomem, nostack, pure))
    };
    (crc == CRC32C_OF_ONE).into()
}

/// The CRC32C polynomial run over the eight bytes of the number 1, from 0.
const CRC32C_OF_ONE: u64 = crc32c_of_one();

const fn crc32c_of_one() -> u64 {
    let mut crc: u32 = 0;
    let mut bit = 0;
    while bit < 64 {
        let flip = (crc & 1) ^ (if bit == 0 { 1 } else { 0 });
        crc = crc >> 1 ^ (if flip == 1 { 0x82f6_3b78 } else { 0 });
        bit += 1;
    }
    crc as u64
}

fn bmi2() -> Attempt {
    let picked: u64;
    // SAFETY: only the named general register is written, and no memory is touched.
    unsafe {
        asm!(
            "pext {picked}, {from}, {mask}",
            picked = lateout(reg) picked,
            from = in(reg) 0xabcd_u64,
            mask = in(reg) 0x0ff0_u64,
            options(nomem, nostack, pure),
        );
    }
    (picked == 0xbc).into()
}
