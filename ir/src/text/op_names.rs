//! The ops by name.

use crate::op::Op;
use hashbrown::HashMap;

/// The ops by name.
pub(super) struct OpNames(HashMap<&'static str, Op>);

impl OpNames {
    pub(super) fn new() -> OpNames {
        OpNames(Op::ALL.iter().map(|&op| (op.name(), op)).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<Op> {
        self.0.get(name).copied()
    }
}
