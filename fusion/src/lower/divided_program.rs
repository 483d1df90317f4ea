//! Linked programs as an engine runs them that divides steps: each group has the steps that the engine divides it into, and
//! the buffers that only these have come after those of the program, in the order of the steps.

use super::group_memo::steps_of_group;
use super::linked::{LinkedProgram, LinkedStep};
use adfuse_ir::kernel::Buffer;
use adfuse_ir::{At, Diagnostic, Kind};
use std::sync::Arc;

/// A linked program as an engine runs it.
pub(crate) struct DividedProgram {
    pub(crate) program: LinkedProgram,
    /// Bytes of scratch memory of each step.
    pub(crate) scratch: Vec<u64>,
    /// Whether each step reads again what it has read when it has begun to write.
    pub(crate) reads_again: Vec<bool>,
}

impl DividedProgram {
    /// Of a linked program whose groups the engine has divided.
    ///
    /// # Errors
    /// [`Kind::Internal`] where it has not, or where a step has an unknown buffer.
    pub(crate) fn of(given: &LinkedProgram) -> Result<DividedProgram, Diagnostic> {
        let wrong = || {
            let at = At { func: Some(given.frame.name.clone()), ..At::default() };
            Diagnostic::new(at, Kind::Internal, "the steps of a group are not divided")
        };
        let mut frame = given.frame.clone();
        let (mut steps, mut scratch, mut reads_again) = (Vec::new(), Vec::new(), Vec::new());
        for first in given.steps.iter().filter(|step| step.of.step == 0) {
            let divided = first.of.group.known_division().ok_or_else(wrong)?;
            let added = divided.group.program().buffers.values().skip(first.buffers.len());
            let mut buffers: Vec<Option<Buffer>> = first.buffers.to_vec();
            buffers.extend(added.map(|data| Some(frame.buffers.push(data.clone()))));
            let buffers: Arc<[Option<Buffer>]> = buffers.into();
            for of in steps_of_group(&divided.group) {
                let step = LinkedStep { of, buffers: Arc::clone(&buffers) };
                let uses = step.of.uses();
                let mut touched = uses.reads.iter().chain(&uses.writes);
                if touched.any(|&k| step.buffer(k).is_none()) {
                    return Err(wrong());
                }
                steps.push(step);
            }
            scratch.extend_from_slice(&divided.scratch);
            reads_again.extend_from_slice(&divided.reads_again);
        }
        let program = LinkedProgram { frame, steps };
        Ok(DividedProgram { program, scratch, reads_again })
    }
}
