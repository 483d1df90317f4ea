//! Which value of the function each buffer of a lowered plan holds.

use super::{LowerWith, belongs, placed};
use crate::plan::Plan;
use crate::plan::machine_model::MachineModel;
use adfuse_ir::kernel::{Buffer, Program};
use adfuse_ir::{Diagnostic, Function, Value};
use cranelift_entity::SecondaryMap;

/// The program of a plan, and the value that each of its buffers holds; several buffers hold the same value where a plan
/// stores it more than once.
///
/// # Errors
/// As [`lower`](crate::lower()).
pub fn lower_with_values(
    f: &Function,
    plan: &Plan,
    device: &MachineModel,
) -> Result<(Program, SecondaryMap<Buffer, Option<Value>>), Diagnostic> {
    belongs(f, plan)?;
    let placed = placed(f, plan, LowerWith::measured(device, None))?;
    let mut held = SecondaryMap::new();
    for (v, buffers) in placed.holders.iter() {
        buffers.iter().for_each(|&b| held[b] = Some(v));
    }
    Ok((placed.program, held))
}
