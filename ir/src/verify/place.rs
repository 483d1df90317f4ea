//! Where an instruction is, for errors.

use crate::diag::At;
use crate::entity::Inst;
use crate::function::Function;

/// The place of an instruction, for an error.
pub fn at_inst(f: &Function, i: Inst) -> At {
    let crate::Provenance { span, line } = f.origin(i).clone();
    At { func: Some(f.name.clone()), inst: Some(crate::text::print_inst(f, i).into()), span, line }
}
