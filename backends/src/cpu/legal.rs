//! Programs as the engine runs them, before they have memory: their steps rewritten, and what each step needs.

use super::accumulated::AccumulatedProduct;
use super::deferred_steps::DeferredSteps;
use crate::runtime::arena_layout::ArenaLayout;
use crate::runtime::host_memory::OffsetAllocator;
use crate::runtime::legalize::Legalized;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::{Program, Role, Verified};
use std::fmt::Write as _;

/// A program that is legalized, with what its steps need and the programs in them.
pub(super) struct LegalProgram {
    pub(super) low: Legalized,
    /// Bytes that each step of the given program needs beside its buffers.
    pub(super) needed: Vec<u64>,
    /// For each step as it runs, the programs in it.
    pub(super) blocks: Vec<Vec<LegalBlock>>,
    /// Steps that were taken out of loops.
    pub(super) accumulated: Vec<AccumulatedProduct>,
}

/// A program in a step.
pub(super) struct LegalBlock {
    /// What it is to the step.
    pub(super) role: String,
    pub(super) given: Verified<Program>,
    pub(super) legal: LegalProgram,
    /// What of it may be done for several turns at once.
    pub(super) deferred: Option<DeferredSteps>,
    /// Where its temporaries are in the bytes that the step has for it.
    pub(super) layout: ArenaLayout,
    /// How many bytes these are.
    pub(super) bytes: u64,
}

impl LegalProgram {
    /// What a step was in a loop, if it was taken out of one.
    pub(super) fn accumulation(&self, step: usize) -> Option<&AccumulatedProduct> {
        self.accumulated.iter().find(|product| product.step == step)
    }

    /// Takes room for the constants of the programs in its steps.
    pub(super) fn block_constants(&self, room: &mut OffsetAllocator) -> Result<(), Diagnostic> {
        (0..self.blocks.len()).try_for_each(|n| self.constants_of(n, room))
    }

    /// Takes room for the constants of the programs in a step.
    pub(super) fn constants_of(
        &self,
        step: usize,
        room: &mut OffsetAllocator,
    ) -> Result<(), Diagnostic> {
        for block in &self.blocks[step] {
            for data in block.legal.low.program.buffers.values() {
                if matches!(data.role, Role::Constant(_)) {
                    room.take(i64::try_from(data.bytes()).unwrap_or(i64::MAX), 1)?;
                }
            }
            block.legal.block_constants(room)?;
        }
        Ok(())
    }

    /// Whatever is not said by the program: how the memory of the programs in it is arranged.
    pub(super) fn arrangement(&self) -> String {
        let mut text = String::new();
        for block in self.blocks.iter().flatten() {
            // Nothing is wrong with writing to a string.
            let _ = write!(text, "{:?} {}", block.layout, block.legal.arrangement());
        }
        text
    }
}
