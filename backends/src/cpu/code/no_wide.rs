//! For hosts without an emitter of wide vectors: it takes no sweep. Code for such a host is never asked for
//! with vectors wider than Cranelift's.

use super::plan::Planned;
use super::vectors::{Vectors, Why};
use adfuse_ir::Diagnostic;

/// The code of a sweep.
pub(super) struct Made {
    pub(super) bytes: Vec<u8>,
}

/// Why there is no code.
pub(super) enum No {
    /// The sweep is not of the kind that this emitter takes.
    Taken(Why),
    /// It is, and something is wrong.
    Failed(Diagnostic),
}

pub(super) fn make(_: &Planned, _: Vectors) -> Result<Made, No> {
    Err(No::Taken(Why::Host))
}

impl Made {
    pub(super) fn code(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn text(&self) -> String {
        String::new()
    }
}

/// Memory for code, of which there is none.
pub(super) struct Pages;

impl Pages {
    pub(super) fn new(_: &[Made]) -> Result<Pages, Diagnostic> {
        Ok(Pages)
    }

    pub(super) fn entry(&self, _: usize) -> Option<*const u8> {
        None
    }
}
