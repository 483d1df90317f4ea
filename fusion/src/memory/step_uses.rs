//! How the steps of a program use its buffers, as far as its memory depends on it.

use crate::lower::linked::LinkedProgram;
use adfuse_ir::kernel::{Buffer, InPlace, Lives, Program, in_place, lives, lives_of};

/// What memory is planned from, beside the buffers of a program.
pub(crate) trait StepUses {
    /// How many steps there are.
    fn steps(&self) -> usize;

    /// The live ranges of the buffers, as [`lives`].
    fn lives(&self) -> Lives;

    /// The last step at which a step's scratch memory is used for nothing else.
    fn scratch_until(&self, n: usize) -> usize {
        n
    }

    /// Whether the program is of one of many plans that are compared.
    fn is_one_of_many(&self) -> bool {
        false
    }

    /// What a step may write in place, as [`in_place`].
    fn in_place(
        &self,
        n: usize,
        dies: &dyn Fn(Buffer) -> bool,
        made: &dyn Fn(Buffer) -> bool,
    ) -> Vec<InPlace>;
}

impl StepUses for Program {
    fn steps(&self) -> usize {
        self.steps.len()
    }

    fn lives(&self) -> Lives {
        lives(self)
    }

    fn in_place(
        &self,
        n: usize,
        dies: &dyn Fn(Buffer) -> bool,
        made: &dyn Fn(Buffer) -> bool,
    ) -> Vec<InPlace> {
        in_place(self, n, dies, made)
    }
}

/// The steps are those of lowered groups, with buffers of the program for those of the groups.
impl StepUses for LinkedProgram {
    fn steps(&self) -> usize {
        self.steps.len()
    }

    fn is_one_of_many(&self) -> bool {
        true
    }

    fn lives(&self) -> Lives {
        lives_of(self.steps.iter().map(|step| {
            let uses = step.of.uses();
            let touched = uses.writes.iter().chain(&uses.reads);
            let (program, n) = step.of.program();
            (&program.steps[n], touched.filter_map(|&k| step.buffer(k)))
        }))
    }

    fn in_place(
        &self,
        n: usize,
        dies: &dyn Fn(Buffer) -> bool,
        made: &dyn Fn(Buffer) -> bool,
    ) -> Vec<InPlace> {
        let step = &self.steps[n];
        let uses = step.of.uses();
        let any = |of: &[Buffer], wanted: &dyn Fn(Buffer) -> bool| {
            of.iter().any(|&k| step.buffer(k).is_some_and(wanted))
        };
        // Most steps have nothing to put in place.
        if !any(&uses.reads, dies) || !any(&uses.writes, made) {
            return Vec::new();
        }
        let own = |wanted: &dyn Fn(Buffer) -> bool, k: Buffer| step.buffer(k).is_some_and(wanted);
        let (program, at) = step.of.program();
        let found = in_place(program, at, &|k| own(dies, k), &|k| own(made, k));
        let of_program = |pair: InPlace| {
            let (child, parent) = (step.buffer(pair.child)?, step.buffer(pair.parent)?);
            Some(InPlace { step: n, child, parent })
        };
        found.into_iter().filter_map(of_program).collect()
    }
}
