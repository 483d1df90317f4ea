//! Floats by `private-gemm-x86`, whose order is the defined one under the conditions of
//! `docs/fp.md`: a pinned version, `Accum::Replace`, alpha 1, full results, steps along the depth that
//! are not negative, and at least one product. What else there is goes to tiles.
#![allow(unsafe_code)]

use super::tiles::found as tiles;
use super::{Gemm, Matrix, Size};
use adfuse_ir::DType;
use private_gemm_x86 as gemm;
use std::ptr::null;

pub(super) struct Library(gemm::InstrSet);

static SHORT: Library = Library(gemm::InstrSet::Avx256);
static LONG: Library = Library(gemm::InstrSet::Avx512);

/// Machine code of kernels spills with instructions that keep the upper halves of registers, which
/// is slow where those are in use.
#[target_feature(enable = "avx")]
fn clean() {
    std::arch::x86_64::_mm256_zeroupper();
}

pub(super) fn found() -> Option<&'static Library> {
    let long = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    let short = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    match (short, long) {
        (true, true) => Some(&LONG),
        (true, false) => Some(&SHORT),
        _ => None,
    }
}

impl Gemm for Library {
    fn name(&self, dtype: DType) -> &'static str {
        match dtype {
            DType::F32 | DType::F64 => "private-gemm-x86",
            _ => tiles().name(dtype),
        }
    }

    fn room(&self, dtype: DType, size: Size) -> u64 {
        match (dtype, size[2]) {
            (DType::F32 | DType::F64, 1..) => 0,
            _ => tiles().room(dtype, size),
        }
    }

    unsafe fn product(
        &self,
        dtype: DType,
        size: Size,
        lhs: Matrix,
        rhs: Matrix,
        out: Matrix,
        room: *mut u8,
    ) {
        let [rows, cols, depth] = size;
        let kind = match (dtype, depth) {
            (DType::F32, 1..) => gemm::DType::F32,
            (DType::F64, 1..) => gemm::DType::F64,
            // SAFETY: as the caller promises.
            _ => return unsafe { tiles().product(dtype, size, lhs, rhs, out, room) },
        };
        let one = match dtype {
            DType::F32 => (&1.0f32 as *const f32).cast(),
            _ => (&1.0f64 as *const f64).cast(),
        };
        // SAFETY: as the caller promises, and the host has the instructions.
        unsafe {
            gemm::gemm(
                kind,
                gemm::IType::U64,
                self.0,
                rows,
                cols,
                depth,
                out.at.cast(),
                out.row,
                out.column,
                null(),
                null(),
                gemm::DstKind::Full,
                gemm::Accum::Replace,
                lhs.at.cast_const().cast(),
                lhs.row,
                lhs.column,
                false,
                null(),
                0,
                rhs.at.cast_const().cast(),
                rhs.row,
                rhs.column,
                false,
                one,
                1,
            );
            clean();
        }
    }
}
