//! Instruction selection through Cranelift: a loop program as Cranelift IR, scalar or with vectors of 128 bits.
//!
//! It supports every sweep on every target. Register allocation and encoding are Cranelift's.

pub(crate) mod calls;
pub(crate) mod convert;
pub(crate) mod integers;
pub(crate) mod scalar;
pub(crate) mod scalar_loop;
pub(crate) mod state;
pub(crate) mod translate;
pub(crate) mod unit;
pub(crate) mod vector;
pub(crate) mod vector_convert;
pub(crate) mod vector_fold;
pub(crate) mod vector_memory;
pub(crate) mod vector_prim;
