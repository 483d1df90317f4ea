//! PTX for NVIDIA GPUs: a verified program of kernels as text for the driver, and what to launch.
//!
//! Nothing here needs a GPU, a driver or a toolkit. In strict mode the text gives the bits of the kernel
//! evaluator: scalar programs are the same primitives, and folds are written in the order of `docs/fp.md`,
//! whose 32 lanes are those of a warp. See `docs/gpu.md`.

mod across;
mod ahead;
mod apart;
mod asm;
#[cfg(test)]
mod checks;
mod columns;
mod convert;
mod cut;
mod emit;
mod fast;
mod feed;
mod flat;
mod fold;
mod hold;
mod inline;
mod kept;
mod keys;
mod launch;
mod lower;
mod misc;
mod module;
mod multiply;
mod part;
mod passes;
mod place;
mod prim;
mod product;
mod radix;
mod remainder;
mod rows;
mod scatter;
mod sort;
mod team;
mod tiles;
mod tree;
mod turn;
mod updates;
mod walk;

pub(crate) use feed::{first, merged};
pub use module::{Arg, Launch, Module, StepCode, Target, compile, compile_but};
