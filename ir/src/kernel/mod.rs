//! The kernel IR: a program as engines see it, a list of steps over buffers.
//!
//! A [`Kernel`] is a parallel domain and, inside it, stages: loads through quasi-affine index maps, a
//! scalar program, and stores, reductions or scans. Beside kernels there are contractions and
//! scatters. [`verify`] proves every access in bounds and every write disjoint from the maps alone,
//! so that what runs a [`Verified`] program needs no check of its own. [`text`] is its text form.

mod program;
mod stage;
pub mod text;
mod verify;

pub use program::{Buffer, BufferData, Contract, Extents, Program, Role, Scatter, Step};
pub use stage::{
    Kernel, Operand, Order, Param, Piece, Row, Run, Sink, Stage, Tile, TileData, strict_runs,
};
pub use verify::{Verified, verify};
