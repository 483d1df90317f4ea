//! What is wrong with a part of a program, before it is known where.

use crate::diag::Kind;

/// A broken rule, before its place is known.
#[derive(PartialEq, Eq, Debug)]
pub(in crate::kernel) struct Wrong {
    pub(in crate::kernel) kind: Kind,
    pub(in crate::kernel) message: String,
}

impl Wrong {
    pub(in crate::kernel) fn new(kind: Kind, message: impl Into<String>) -> Wrong {
        Wrong { kind, message: message.into() }
    }
}
