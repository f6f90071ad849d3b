//! AMX: matrix tiles, which a process must ask the kernel for before it touches them.

use std::arch::asm;

use super::probe::Attempt;

const TILE_ROWS: usize = 16;
const TILE_ROW_BYTES: usize = 64;
const ARCH_REQ_XCOMP_PERM: libc::c_int = 0x1023;
const XFEATURE_XTILEDATA: libc::c_ulong = 18;

/// The memory of one tile of full size.
#[repr(C, align(64))]
struct Tile([u8; TILE_ROWS * TILE_ROW_BYTES]);

impl Tile {
    const fn filled(value: u8) -> Self {
        Self([value; TILE_ROWS * TILE_ROW_BYTES])
    }
}

/// What `ldtilecfg` reads: palette 1, tiles 0 to 2 of 16 rows of 64 bytes.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl TileConfig {
    fn three_full_tiles() -> Self {
        let mut config = Self {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        for tile in 0..3 {
            config.row_bytes[tile] = TILE_ROW_BYTES as u16;
            config.rows[tile] = TILE_ROWS as u8;
        }
        config
    }
}

fn kernel_allows() -> bool {
    // SAFETY: arch_prctl with this code takes a number and touches no memory of ours.
    unsafe {
        libc::syscall(
            libc::SYS_arch_prctl,
            ARCH_REQ_XCOMP_PERM,
            XFEATURE_XTILEDATA,
        ) == 0
    }
}

/// Configures the tiles, clears one and stores it.
pub fn amx_tile() -> Attempt {
    if !kernel_allows() {
        return Attempt::Refused;
    }
    let config = TileConfig::three_full_tiles();
    let mut stored = Tile::filled(0xaa);
    // SAFETY: the configuration is 64 bytes as the instruction reads, a tile is 16 rows of 64 bytes as is stored, and
    // tilerelease leaves the tile registers as they were found. A trap ends a child process made to be lost.
    unsafe {
        asm!(
            "ldtilecfg [{config}]",
            "tilezero tmm0",
            "tilestored [{stored} + {stride} * 1], tmm0",
            "tilerelease",
            config = in(reg) &config,
            stored = in(reg) &mut stored,
            stride = in(reg) TILE_ROW_BYTES,
            options(nostack),
        );
    }
    stored.0.iter().all(|&byte| byte == 0).into()
}

/// Multiplies a matrix of ones by one of twos: each sum is 64 times 2.
pub fn amx_int8() -> Attempt {
    if !kernel_allows() {
        return Attempt::Refused;
    }
    let config = TileConfig::three_full_tiles();
    let (ones, twos) = (Tile::filled(1), Tile::filled(2));
    let mut sums = Tile::filled(0xaa);
    // SAFETY: as in `amx_tile`; `ones` and `twos` are whole tiles and only read.
    unsafe {
        asm!(
            "ldtilecfg [{config}]",
            "tilezero tmm0",
            "tileloadd tmm1, [{ones} + {stride} * 1]",
            "tileloadd tmm2, [{twos} + {stride} * 1]",
            "tdpbssd tmm0, tmm1, tmm2",
            "tilestored [{sums} + {stride} * 1], tmm0",
            "tilerelease",
            config = in(reg) &config,
            ones = in(reg) &ones,
            twos = in(reg) &twos,
            sums = in(reg) &mut sums,
            stride = in(reg) TILE_ROW_BYTES,
            options(nostack),
        );
    }
    sums.0
        .chunks_exact(4)
        .all(|sum| sum == [128, 0, 0, 0])
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tile_config_has_the_layout_that_the_instruction_reads() {
        assert_eq!(size_of::<TileConfig>(), 64);
        assert_eq!(std::mem::offset_of!(TileConfig, row_bytes), 16);
        assert_eq!(std::mem::offset_of!(TileConfig, rows), 48);
    }
}
