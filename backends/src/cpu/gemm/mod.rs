//! Matrix products in the order of contractions: chunks of 512 products, each a chain of fused multiply-adds from +0,
//! added in order.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
pub(crate) mod alone;
pub(in crate::cpu) mod dots;
mod indirect;
pub(in crate::cpu) mod lanes;
mod macro_kernel;
mod matrix;
mod micro_kernel;
mod orientation;
mod pack;
#[cfg(target_arch = "x86_64")]
pub(crate) mod packed;
#[cfg(target_arch = "x86_64")]
pub(crate) mod panels;
#[cfg(target_arch = "x86_64")]
pub(crate) mod register_tile;
#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) mod strided_tests;
#[cfg(target_arch = "x86_64")]
pub(crate) mod subnormal;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod tiles;
pub(crate) mod window;

pub(in crate::cpu) use matrix::{
    Gemm, GemmArgs, GemmSide, MatrixView, Size, TouchedNext, canonical,
};
pub(in crate::cpu) use orientation::packed_windows;
pub(super) use tiles::found as tiles;

#[cfg(target_arch = "x86_64")]
pub(super) use subnormal::SubnormalState;

/// What is known of a step's operands: nothing, where no host minds.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Default)]
pub(super) struct SubnormalState;

/// The fastest of those that the host has.
pub(super) fn best() -> &'static dyn Gemm {
    #[cfg(target_arch = "x86_64")]
    if let Some(packed) = packed::found() {
        return packed;
    }
    tiles::found()
}
