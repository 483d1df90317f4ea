//! The x86 emitter: sweeps as AVX2 or AVX-512 code.
//!
//! Cranelift's vectors for x86-64 have at most 128 bits. This emitter compiles the same [`LoopProgram`] to the same
//! function, so only the code that chooses the emitter knows the difference. It refuses what it does not support
//! ([`Unsupported`]), and Cranelift compiles that.

pub(crate) mod access;
pub(crate) mod bit_counts;
pub(crate) mod body;
pub(crate) mod check;
pub(crate) mod code_pages;
pub(crate) mod compare;
pub(crate) mod constant_pool;
pub(crate) mod convert;
pub(crate) mod divide;
pub(crate) mod encode;
pub(crate) mod fission;
pub(crate) mod fold;
mod frame;
pub(crate) mod gather;
pub(crate) mod gpr;
pub(crate) mod inst;
pub(crate) mod integers;
pub(crate) mod invariants;
pub(crate) mod isel;
pub(crate) mod long_remainder;
pub(crate) mod loops;
pub(crate) mod places;
pub(crate) mod predication;
pub(crate) mod regalloc;
pub(crate) mod scalar_asm;
pub(crate) mod scalarized;
pub(crate) mod scalars;
pub(crate) mod shared_counters;
pub(crate) mod state;
pub(crate) mod transpose;

use super::codegen::loop_program::LoopProgram;
use super::codegen::vector_width::{Unsupported, Vectors};
use adfuse_ir::{Diagnostic, Kind};
use iced_x86::{Decoder, DecoderOptions, FastFormatter};
use std::fmt::Write as _;

/// The code of a sweep: constants, then instructions.
pub(crate) struct SweepCode {
    pub(crate) bytes: Vec<u8>,
    /// Where the function begins.
    pub(crate) entry: usize,
}

/// Why there is no code.
pub(crate) enum NoCode {
    /// The sweep is not of the kind that this emitter takes.
    Taken(Unsupported),
    /// It is, and something is wrong.
    Failed(Diagnostic),
}

/// Compiles a sweep.
pub(crate) fn make(p: &LoopProgram, vectors: Vectors) -> Result<SweepCode, NoCode> {
    let (pool, code) = loops::function(p).map_err(NoCode::Taken)?;
    let mut bytes = pool.bytes();
    let entry = bytes.len();
    let code = encode::encode(&code, entry as u64).map_err(|m| {
        let m = format!("machine code was not made: {m}");
        NoCode::Failed(Diagnostic::new(adfuse_ir::At::default(), Kind::Internal, m))
    })?;
    bytes.extend(code);
    let made = SweepCode { bytes, entry };
    if cfg!(debug_assertions) {
        check::checked(made.code(), vectors).map_err(|m| {
            let m = format!("machine code is not what it has to be: {m}");
            NoCode::Failed(Diagnostic::new(adfuse_ir::At::default(), Kind::Internal, m))
        })?;
    }
    Ok(made)
}

impl SweepCode {
    /// The function's own bytes.
    pub(crate) fn code(&self) -> &[u8] {
        &self.bytes[self.entry..]
    }

    /// The instructions as text, a line each, with their distance from the function's beginning.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        let mut decoder =
            Decoder::with_ip(64, self.code(), self.entry as u64, DecoderOptions::NONE);
        let mut formatter = FastFormatter::new();
        formatter.options_mut().set_space_after_operand_separator(true);
        let mut line = String::new();
        while decoder.can_decode() {
            let i = decoder.decode();
            line.clear();
            formatter.format(&i, &mut line);
            // Nothing is wrong with writing to a string.
            let _ = writeln!(out, "  {:5x}: {line}", i.ip());
        }
        out
    }
}
