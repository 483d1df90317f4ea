//! For hosts without an emitter of wide vectors: it takes no sweep. Code for such a host is never asked for
//! with vectors wider than Cranelift's.

use super::codegen::loop_ir::Planned;
use super::codegen::vector_width::{Vectors, Why};
use adfuse_ir::Diagnostic;

/// The code of a sweep.
pub(crate) struct Made {
    pub(crate) bytes: Vec<u8>,
}

/// Why there is no code.
pub(crate) enum No {
    /// The sweep is not of the kind that this emitter takes.
    Taken(Why),
    /// It is, and something is wrong.
    Failed(Diagnostic),
}

pub(crate) fn make(_: &Planned, _: Vectors) -> Result<Made, No> {
    Err(No::Taken(Why::Host))
}

impl Made {
    pub(crate) fn code(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn text(&self) -> String {
        String::new()
    }
}

/// Memory for code, of which there is none.
pub(crate) struct Pages;

impl Pages {
    pub(crate) fn new(_: &[Made]) -> Result<Pages, Diagnostic> {
        Ok(Pages)
    }

    pub(crate) fn entry(&self, _: usize) -> Option<*const u8> {
        None
    }
}
