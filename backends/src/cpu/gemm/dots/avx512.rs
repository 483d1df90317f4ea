//! Kernels in vectors of 512 bits: `vdpbf16ps` and `vpdpbusd`.

use super::dot_kernel::{DEEP, DotBlock, DotKernel, LINES, OperandSide, TILE};
use crate::cpu::codegen::vector_width::Vectors;
use adfuse_ir::DType;
use std::arch::x86_64::*;
use std::mem::transmute;

/// Rows whose sums are in registers at once, with two vectors of columns each.
const ROWS: usize = 8;

pub(super) const BF16: DotKernel = DotKernel {
    name: "avx512_bf16",
    element: DType::BF16,
    flipped: None,
    available: || is_x86_feature_detected!("avx512bf16") && base(),
    pays: || !is_of_intel(),
    begin,
    end,
    block: bf16,
};

pub(super) const I8: DotKernel = DotKernel {
    name: "avx512_vnni",
    element: DType::I8,
    flipped: Some(OperandSide::Left),
    available: || is_x86_feature_detected!("avx512vnni") && base(),
    pays: || true,
    begin,
    end,
    block: integers,
};

pub(super) const U8: DotKernel =
    DotKernel { element: DType::U8, flipped: Some(OperandSide::Right), ..I8 };

/// Whether the processor is Intel's, where `vdpbf16ps` takes the time of four multiply-adds of 16 floats, two more than it replaces.
fn is_of_intel() -> bool {
    let leaf = __cpuid(0);
    [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).as_flattened() == b"GenuineIntel"
}

/// What the kernels and `pack` use beside dot products.
pub(super) fn base() -> bool {
    Vectors::of_processor() == Vectors::Avx512
}

/// Nothing comes before the first block.
fn begin() {}

/// Nothing comes after the last block: these functions end with their upper halves clear.
fn end() {}

/// The sums of a block, whose elements are added up by an instruction.
///
/// # Safety
/// The panels have as many tiles, and there is room for the sums.
#[inline(always)]
unsafe fn block(b: &DotBlock, dot: impl Fn(__m512i, __m512i, __m512i) -> __m512i) {
    for row in (0..2 * LINES).step_by(ROWS) {
        // SAFETY: as the caller promises; vectors of the integer type are only moved here.
        unsafe {
            let left = b.left[row / LINES].add(row % LINES * b.steps[1]);
            let mut sums = [[_mm512_setzero_si512(); 2]; ROWS];
            let line = |i: usize| b.out.add((row + i) * b.row);
            if b.adds {
                for (i, [x, y]) in sums.iter_mut().enumerate() {
                    *x = _mm512_loadu_si512(line(i).cast());
                    *y = _mm512_loadu_si512(line(i).add(LINES * 4).cast());
                }
            }
            for t in 0..b.tiles {
                let at = left.add(t * b.steps[0]);
                let columns = b.right.map(|p| p.add(t * TILE));
                for group in 0..LINES {
                    let right = columns.map(|p| _mm512_load_si512(p.add(group * DEEP).cast()));
                    for (i, [x, y]) in sums.iter_mut().enumerate() {
                        let four = at.add(i * b.steps[1] + group * 4).cast::<i32>();
                        let four = _mm512_set1_epi32(four.read_unaligned());
                        *x = dot(*x, four, right[0]);
                        *y = dot(*y, four, right[1]);
                    }
                }
            }
            for (i, [x, y]) in sums.into_iter().enumerate() {
                _mm512_storeu_si512(line(i).cast(), x);
                _mm512_storeu_si512(line(i).add(LINES * 4).cast(), y);
            }
        }
    }
}

/// # Safety
/// As of [`block`], on a processor that has these features.
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn bf16(b: &DotBlock) {
    // SAFETY: as the caller promises; all bits of a vector are numbers of either type.
    unsafe {
        block(b, |sum, x, y| {
            let [x, y] = [x, y].map(|v| transmute::<__m512i, __m512bh>(v));
            let sum = _mm512_castsi512_ps(sum);
            _mm512_castps_si512(_mm512_dpbf16_ps(sum, x, y))
        });
    }
}

/// # Safety
/// As of [`block`], on a processor that has these features.
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn integers(b: &DotBlock) {
    // SAFETY: as the caller promises.
    unsafe { block(b, |sum, x, y| _mm512_dpbusd_epi32(sum, x, y)) };
}
