//! The stand-in for the x86 emitter on other hosts: it supports no sweep. On such hosts vectors are never wider than
//! Cranelift's.

use super::codegen::loop_program::LoopProgram;
use super::codegen::vector_width::{Unsupported, Vectors};
use adfuse_ir::Diagnostic;

/// The code of a sweep.
pub(crate) struct SweepCode {
    pub(crate) bytes: Vec<u8>,
}

/// Why there is no code.
pub(crate) enum NoCode {
    /// The sweep is not of the kind that this emitter takes.
    Taken(Unsupported),
    /// It is, and something is wrong.
    #[allow(dead_code)]
    Failed(Diagnostic),
}

pub(crate) fn make(_: &LoopProgram, _: Vectors) -> Result<SweepCode, NoCode> {
    Err(NoCode::Taken(Unsupported::Host))
}

impl SweepCode {
    pub(crate) fn code(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn text(&self) -> String {
        String::new()
    }
}

/// Memory for code.
pub(crate) mod code_pages {
    use super::{Diagnostic, SweepCode};

    /// No pages: there are no functions.
    pub(crate) struct CodePages;

    impl CodePages {
        pub(crate) fn new(_: &[SweepCode]) -> Result<CodePages, Diagnostic> {
            Ok(CodePages)
        }

        pub(crate) fn entry(&self, _: usize) -> Option<*const u8> {
            None
        }
    }
}
