//! Compiles folds over the domain: memory for values, parts and results, and what follows.

use super::DomainFold;
use super::compile::CompileContext;
use crate::cpu::codegen::loop_ir::{ArraySlots, Sweep, SweepOutput, SweepRole};
use crate::cpu::fold::{BlockPartition, FoldRuns, STATE};
use crate::cpu::machine_code::SweepId;
use crate::cpu::shape::{checked_volume, left, parted};
use crate::runtime::host_memory::too_much;
use adfuse_ir::kernel::{Extents, Run, Sink, Stage, Storage};
use adfuse_ir::op::Monoid;
use adfuse_ir::{DType, Diagnostic};

/// Elements of a row that a task may have whole, however few the rows are.
const SHORT_ROW: usize = 1 << 13;

/// Rows of any length of which tasks may have whole ones.
const MANY_ROWS: usize = 64;

impl CompileContext<'_> {
    /// A fold over the domain; `kept` says whether its values are kept until all points are done.
    pub(super) fn domain_fold(
        &mut self,
        extents: &Extents,
        kept: bool,
        (monoid, dtype): (Monoid, DType),
        runs: &[Run],
        then: &Stage,
        slot: &mut dyn FnMut() -> u32,
    ) -> Result<DomainFold, Diagnostic> {
        let mut remaining = extents.clone();
        for &a in runs.iter().flat_map(|r| &r.axes) {
            remaining[usize::from(a)] = 1;
        }
        let places = checked_volume(extents)?;
        let results = checked_volume(&remaining)?;
        let parted = if kept { None } else { parted(runs, extents)? };
        let row = parted.filter(|by| monoid.is_arg() && runs.len() == 1 && are_rows(by));
        let row = row.map(|by| by.size);
        let parted = parted.filter(|_| !monoid.is_arg());
        let count = match &parted {
            Some(by) => by.parts().ok_or_else(|| too_much(u64::MAX))? as i64,
            None if row.is_some() => 0,
            None => places,
        };
        let at = self.shared.take(count, dtype.bytes())?;
        let result = monoid.result(dtype).unwrap_or(dtype);
        let joined = match &parted {
            Some(by) if by.blocks != 1 => {
                self.shared.take((by.outer * by.inner) as i64, dtype.bytes())?
            }
            _ => at,
        };
        let rest = match &parted {
            Some(_) if runs.len() > 1 => Some(FoldRuns::new(&left(extents, runs), &runs[1..])),
            Some(_) => None,
            None => Some(FoldRuns::new(extents, runs)),
        };
        let (out, rest) = match rest {
            None => (joined, None),
            Some(_) if row.is_some() => (self.shared.take(results, result.bytes())?, None),
            Some(rest) => {
                let values = parted.map_or(count, |by| (by.outer * by.inner) as i64);
                let work = self.shared.take(rest.room(values), dtype.bytes())?;
                (self.shared.take(results, result.bytes())?, Some((rest, work)))
            }
        };
        let state = self.own.take(STATE as i64, 1)?;
        let sum = slot();
        let (then, free) = self.after_fold(remaining, then, (sum, result))?;
        Ok(DomainFold {
            monoid,
            dtype,
            at,
            count: count as usize,
            parted,
            row,
            state,
            joined,
            rest,
            out,
            results: results as usize,
            then,
            free,
            sum,
            bytes: dtype.bytes(),
            result_bytes: result.bytes(),
        })
    }

    /// Makes the sweep of what follows a fold, over the axes that remain; `sum` is the slot and the type of the
    /// results. Also says whether all that it stores has whole bytes.
    fn after_fold(
        &mut self,
        remaining: Extents,
        then: &Stage,
        sum: (u32, DType),
    ) -> Result<(SweepId, bool), Diagnostic> {
        let mut puts = Vec::new();
        let mut free = true;
        for sink in &then.sinks {
            if let Sink::Store { buffer, index } = sink {
                free &= self.program.buffers[*buffer].storage == Storage::Plain;
                puts.push(SweepOutput::Store(*buffer, index));
            }
        }
        let slots = ArraySlots { sums: Some(sum), ..ArraySlots::default() };
        let sweep = self.sweep(&Sweep {
            program: self.program,
            domain: remaining.len(),
            extents: remaining,
            params: &then.params,
            body: &then.program,
            puts,
            slots,
            target: None,
            part: SweepRole::Folded,
        })?;
        Ok((sweep, free))
    }
}

/// Whether values are rows of which one task has whole ones: rows that are short, or many. All threads share a long one, whose
/// values are kept.
fn are_rows(by: &BlockPartition) -> bool {
    by.inner == 1 && by.size > 0 && (by.size <= SHORT_ROW || by.outer >= MANY_ROWS)
}
