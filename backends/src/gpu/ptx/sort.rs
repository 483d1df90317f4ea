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
use super::radix_sort::Entry;
use super::sort_keys;
use super::sort_tiles::tiles;
use crate::gpu::schedule::index::coordinates;
use crate::gpu::schedule::shape::axes;
use crate::gpu::schedule::sort::{MOST, without};
use crate::gpu::schedule::work::{Lowering, Sort, Source, Target};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Extents};
use adfuse_ir::{DType, Diagnostic};

/// A buffer for keys and one for what goes with them, a row for each line.
fn entries(low: &mut Lowering, lines: i64, long: i64, wide: bool) -> (Buffer, Buffer) {
    let dims = || Extents::from_iter([lines, long]);
    let keys = low.temp(if wide { DType::I64 } else { DType::U32 }, dims());
    (keys, low.temp(DType::I32, dims()))
}

/// Launches what sorts lines.
pub(crate) fn sort(low: &mut Lowering, out: &mut Out, sort: &Sort) -> Result<(), Diagnostic> {
    if sort.lines == 0 || sort.count == 0 {
        return Ok(());
    }
    if sort.long <= MOST {
        return tiles(low, out, sort, 1);
    }
    if sort.count <= MOST / 4 {
        let parts = (sort.long + MOST - 1) / MOST;
        let long = parts * sort.count;
        let (keys, with) = entries(low, sort.lines, long, sort.wide());
        let to = Target::Entries { keys, with };
        tiles(low, out, &Sort { to, ..*sort }, parts)?;
        let from = Source::Keys { keys, with: Some(with) };
        return self::sort(low, out, &Sort { from, long, ..*sort });
    }
    let (passes, _) = sort.passes();
    // Those that a pass reads and those that it writes.
    let both: Vec<(Buffer, Buffer)> =
        (1..passes.min(3)).map(|_| entries(low, sort.lines, sort.long, sort.wide())).collect();
    let mut from = sort.from;
    for pass in 0..passes {
        let to = match both.get((pass % 2) as usize).filter(|_| pass + 1 < passes) {
            Some(&(keys, with)) => Target::Entries { keys, with },
            None => sort.to,
        };
        crate::gpu::ptx::radix_pass::pass(low, out, &Sort { from, to, ..*sort }, pass)?;
        if let Target::Entries { keys, with } = to {
            from = Source::Keys { keys, with: Some(with) };
        }
    }
    Ok(())
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
        from: &Source,
        line: &IndexExpr,
        at: &IndexExpr,
        vars: &Vars,
    ) -> Reg {
        match *from {
            Source::Elements { buffer, axis, descending } => {
                let coords = self.along(buffer, axis, line, at);
                let x = self.element_of(buffer, &At { vars, coords: &coords });
                let dtype = self.program.buffers[buffer].dtype;
                sort_keys::number(&mut self.asm, x, dtype, descending)
            }
            Source::Keys { keys, .. } => {
                self.element_of(keys, &At { vars, coords: &[line.clone(), at.clone()] })
            }
        }
    }

    /// What goes with the key of an entry.
    pub(crate) fn with(
        &mut self,
        from: &Source,
        line: &IndexExpr,
        at: &IndexExpr,
        vars: &Vars,
    ) -> Reg {
        match *from {
            Source::Keys { with: Some(with), .. } => {
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
        to: &Target,
        (line, at): (&IndexExpr, &IndexExpr),
        entry: Entry,
        vars: &Vars,
        when: Option<Reg>,
    ) {
        match *to {
            Target::Places { buffer, axis } => {
                let coords = self.along(buffer, axis, line, at);
                let at = At { vars, coords: &coords };
                self.store(buffer, &axes(coords.len()), entry.with, &at, when);
            }
            Target::Entries { keys, with } => {
                let at = At { vars, coords: &[line.clone(), at.clone()] };
                self.store(keys, &axes(2), entry.key, &at, when);
                self.store(with, &axes(2), entry.with, &at, when);
            }
        }
    }

    /// Whether places along an axis are nearer in memory than those of different lines.
    pub(crate) fn is_last(&self, from: &Source) -> bool {
        let Source::Elements { buffer, axis, .. } = *from else { return true };
        let data = &self.program.buffers[buffer];
        let step = |axis: usize| match &data.strides {
            Some(strides) => strides[axis],
            None => data.dims[axis + 1..].iter().product(),
        };
        let mut others = (0..data.dims.len()).filter(|&d| d != axis && data.dims[d] > 1);
        others.all(|d| step(d) > step(axis))
    }
}
