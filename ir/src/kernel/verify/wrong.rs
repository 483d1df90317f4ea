//! A violated rule, before its location is known.

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
