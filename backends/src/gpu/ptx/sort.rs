//! Lines in order: keys are sorted by their digits, the least significant first, and each pass is stable.
//!
//! Short lines are sorted in shared memory, several to a block where they are very short: one more pass
//! goes by the number of the line. Of a long line of which only the first few places are wanted, blocks sort
//! a part each, and what comes first in each part is sorted again. Any other long line takes three
//! launches a digit: how often each block has it, those counts added up in the order of digits and blocks,
//! and the entries to where they belong.

use super::address::{Vars, resolved, value};
use super::asm::{Class, Reg};
use super::emit::{At, Emit};
use super::entry::Out;
use super::radix_pass::pass;
use super::radix_sort::Entry;
use super::sort_keys;
use super::sort_tiles::tiles;
use crate::gpu::schedule::index::coordinates;
use crate::gpu::schedule::program::GpuSchedule;
use crate::gpu::schedule::shape::axes;
use crate::gpu::schedule::sort::{ScheduledSort, SortLaunch, without};
use crate::gpu::schedule::work::{SortDestination, SortSource};
use adfuse_ir::Diagnostic;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::Buffer;

/// Launches what sorts lines.
pub(crate) fn sort(s: &GpuSchedule, out: &mut Out, sort: &ScheduledSort) -> Result<(), Diagnostic> {
    sort.launches.iter().try_for_each(|launch| match launch {
        SortLaunch::Tiles(t) => tiles(s, out, t),
        SortLaunch::Pass(p) => pass(s, out, p),
    })
}

impl Emit<'_> {
    /// Coordinates of an entry of a line along an axis of a buffer.
    fn along(&self, b: Buffer, axis: usize, line: &IndexExpr, at: &IndexExpr) -> Vec<IndexExpr> {
        let others = without(&self.program.buffers[b].dims, axis);
        let mut coords = coordinates(line, &others);
        coords.insert(axis, at.clone());
        coords
    }

    /// The key of an entry.
    pub(crate) fn key(
        &mut self,
        from: &SortSource,
        line: &IndexExpr,
        at: &IndexExpr,
        vars: &Vars,
    ) -> Reg {
        match *from {
            SortSource::Elements { buffer, axis, descending } => {
                let coords = self.along(buffer, axis, line, at);
                let x = self.element_of(buffer, &At { vars, coords: &coords });
                let dtype = self.program.buffers[buffer].dtype;
                sort_keys::number(&mut self.asm, x, dtype, descending)
            }
            SortSource::Keys { keys, .. } => {
                self.element_of(keys, &At { vars, coords: &[line.clone(), at.clone()] })
            }
        }
    }

    /// What goes with the key of an entry.
    pub(crate) fn with(
        &mut self,
        from: &SortSource,
        line: &IndexExpr,
        at: &IndexExpr,
        vars: &Vars,
    ) -> Reg {
        match *from {
            SortSource::Keys { with: Some(with), .. } => {
                self.element_of(with, &At { vars, coords: &[line.clone(), at.clone()] })
            }
            _ => self.number(at, vars),
        }
    }

    /// A number of 32 bits.
    pub(crate) fn number(&mut self, e: &IndexExpr, vars: &Vars) -> Reg {
        let e = resolved(e, &self.same(vars), vars);
        let x = value(&mut self.asm, &e, vars, &[]);
        match x.class {
            Class::Long => self.asm.pure(Class::Word, "cvt.u32.u64", x),
            _ => x,
        }
    }

    /// Stores an entry of a line in order.
    pub(crate) fn keep(
        &mut self,
        to: &SortDestination,
        (line, at): (&IndexExpr, &IndexExpr),
        entry: Entry,
        vars: &Vars,
        when: Option<Reg>,
    ) {
        match *to {
            SortDestination::Places { buffer, axis } => {
                let coords = self.along(buffer, axis, line, at);
                let at = At { vars, coords: &coords };
                self.store(buffer, &axes(coords.len()), entry.with, &at, when);
            }
            SortDestination::Entries { keys, with } => {
                let at = At { vars, coords: &[line.clone(), at.clone()] };
                self.store(keys, &axes(2), entry.key, &at, when);
                self.store(with, &axes(2), entry.with, &at, when);
            }
        }
    }

    /// Whether places along an axis are nearer in memory than those of different lines.
    pub(crate) fn is_last(&self, from: &SortSource) -> bool {
        let SortSource::Elements { buffer, axis, .. } = *from else { return true };
        let data = &self.program.buffers[buffer];
        let step = |axis: usize| match &data.strides {
            Some(strides) => strides[axis],
            None => data.dims[axis + 1..].iter().product(),
        };
        let mut others = (0..data.dims.len()).filter(|&d| d != axis && data.dims[d] > 1);
        others.all(|d| step(d) > step(axis))
    }
}
