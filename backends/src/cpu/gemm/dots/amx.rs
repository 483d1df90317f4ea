//! Kernels in tiles of AMX, by inline assembly: the sums of a block are four tiles, and each step of the depth reads two
//! tiles of either operand.
//!
//! A tile is read line by line, from lines as far apart as the instruction is told, so rows that are dense along the depth need no packing.

use super::avx512::base;
use super::dot_kernel::{DEEP, DotBlock, DotKernel, LINES, TILE};
use adfuse_ir::DType;
use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::OnceLock;

pub(super) const BF16: DotKernel = DotKernel {
    name: "amx-bf16",
    element: DType::BF16,
    flipped: None,
    available: || granted(BF16_BIT),
    pays: || true,
    begin,
    end,
    block: bf16,
};

pub(super) const I8: DotKernel = DotKernel {
    name: "amx-int8",
    element: DType::I8,
    available: || granted(INT8_BIT),
    block: signed,
    ..BF16
};

pub(super) const U8: DotKernel = DotKernel { element: DType::U8, block: unsigned, ..I8 };

/// Bits of the fourth register of leaf 7 of `cpuid`.
const BF16_BIT: u32 = 1 << 22;
const TILE_BIT: u32 = 1 << 24;
const INT8_BIT: u32 = 1 << 25;

/// Whether the processor has tiles with this extension, and the system lets the process use them.
fn granted(extension: u32) -> bool {
    // Leaf 0 says how many leaves there are.
    let has = || {
        __cpuid(0).eax >= 7
            && __cpuid_count(7, 0).edx & (extension | TILE_BIT) == extension | TILE_BIT
    };
    base() && has() && permitted()
}

/// Asks the system for the registers of tiles, once for the process: Linux saves them for those alone that have asked.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    /// `ARCH_REQ_XCOMP_PERM`, and the number of the tiles' data among the parts of the state.
    const REQUEST: libc::c_long = 0x1023;
    const TILE_DATA: libc::c_long = 18;
    static ANSWER: OnceLock<bool> = OnceLock::new();
    // SAFETY: the call changes nothing but what the process may use.
    *ANSWER.get_or_init(|| unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST, TILE_DATA) } == 0)
}

#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}

/// What `ldtilecfg` reads.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// All eight tiles have 16 rows of 64 bytes.
static CONFIG: TileConfig = {
    let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
    let mut tile = 0;
    while tile < 8 {
        row_bytes[tile] = DEEP as u16;
        rows[tile] = LINES as u8;
        tile += 1;
    }
    TileConfig { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
};

/// # Safety
/// The processor has tiles, and the process may use them.
unsafe fn begin() {
    // SAFETY: as the caller promises; the configuration has the layout that the instruction reads.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &CONFIG, options(nostack, readonly, preserves_flags)) };
}

/// # Safety
/// As of [`begin`].
unsafe fn end() {
    // SAFETY: as the caller promises.
    unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
}

macro_rules! kernel {
    ($name:ident, $dot:literal) => {
        /// # Safety
        /// The panels have as many tiles, at least one, and there is room for the sums; tiles are configured.
        unsafe fn $name(b: &DotBlock) {
            // SAFETY: as the caller promises. Each turn reads the next tile of each panel.
            unsafe {
                asm!(
                    "test {adds}, {adds}",
                    "jnz 3f",
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3",
                    "jmp 2f",
                    "3:",
                    "tileloadd tmm0, [{out} + {row}]",
                    "tileloadd tmm1, [{out} + {row} + 64]",
                    "tileloadd tmm2, [{below} + {row}]",
                    "tileloadd tmm3, [{below} + {row} + 64]",
                    "2:",
                    "tileloadd tmm4, [{a} + {line}]",
                    "tileloadd tmm6, [{c} + {deep}]",
                    concat!($dot, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm7, [{d} + {deep}]",
                    concat!($dot, " tmm1, tmm4, tmm7"),
                    "tileloadd tmm5, [{b} + {line}]",
                    concat!($dot, " tmm2, tmm5, tmm6"),
                    concat!($dot, " tmm3, tmm5, tmm7"),
                    "add {a}, {step}",
                    "add {b}, {step}",
                    "add {c}, {tile}",
                    "add {d}, {tile}",
                    "dec {tiles}",
                    "jnz 2b",
                    "tilestored [{out} + {row}], tmm0",
                    "tilestored [{out} + {row} + 64], tmm1",
                    "tilestored [{below} + {row}], tmm2",
                    "tilestored [{below} + {row} + 64], tmm3",
                    a = inout(reg) b.left[0] => _,
                    b = inout(reg) b.left[1] => _,
                    c = inout(reg) b.right[0] => _,
                    d = inout(reg) b.right[1] => _,
                    tiles = inout(reg) b.tiles => _,
                    out = in(reg) b.out,
                    below = in(reg) b.out.wrapping_add(LINES * b.row),
                    row = in(reg) b.row,
                    adds = in(reg) usize::from(b.adds),
                    step = in(reg) b.steps[0],
                    line = in(reg) b.steps[1],
                    deep = in(reg) DEEP,
                    tile = const TILE,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
}

kernel!(bf16, "tdpbf16ps");
kernel!(signed, "tdpbssd");
kernel!(unsigned, "tdpbuud");
