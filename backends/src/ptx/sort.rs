//! Lines in order: keys are sorted by their digits, the least significant first, and each pass is stable.
//!
//! Short lines are sorted in shared memory, several to a block where they are very short: one more pass
//! goes by the number of the line. Of a long line of which only the first few places are wanted, blocks sort
//! a part each, and what comes first in each part is sorted again. Any other long line takes three
//! launches a digit: how often each block has it, those counts added up in the order of digits and blocks,
//! and the entries to where they belong.

use super::asm::{Class, Reg};
use super::emit::{At, Emit};
use super::keys;
use super::launch::Out;
use super::lower::{Lowering, axes};
use super::place::{Vars, coordinates, resolved, value};
use super::radix::{DIGIT, Entry};
use super::tiles::tiles;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Argsort, Buffer, Extents};
use adfuse_ir::{DType, Diagnostic};

/// Entries of a line that one block sorts in shared memory at most.
pub(super) const MOST: i64 = 8192;
/// Threads of a block.
pub(super) const FEW_THREADS: i64 = 256;
/// Entries of a thread at most.
pub(super) const EACH: i64 = 16;

/// Lines to put in order.
pub(super) struct Sort {
    pub(super) from: Source,
    pub(super) lines: i64,
    /// Entries of a line.
    pub(super) long: i64,
    /// Bits of the keys.
    pub(super) bits: u32,
    /// Entries that are wanted of each line: the first.
    pub(super) count: i64,
    pub(super) to: Target,
}

/// What is sorted.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// Elements along an axis; other axes number the lines.
    Elements { buffer: Buffer, axis: usize, descending: bool },
    /// Keys, a row for each line, and what goes with them: their places, where it is nothing else.
    Keys { keys: Buffer, with: Option<Buffer> },
}

/// What becomes of it.
#[derive(Clone, Copy)]
pub(super) enum Target {
    /// What goes with the keys is stored along an axis.
    Places { buffer: Buffer, axis: usize },
    /// Keys and what goes with them, a row for each line.
    Entries { keys: Buffer, with: Buffer },
}

impl Sort {
    pub(super) fn of(low: &Lowering, step: &Argsort) -> Sort {
        let [from, out] = [step.from, step.out].map(|b| &low.program.buffers[b]);
        let axis = usize::from(step.axis);
        let lines = without(&from.dims, axis).iter().product();
        let (long, count) = (from.dims[axis], out.dims[axis]);
        let (buffer, descending) = (step.from, step.descending);
        let bits = keys::bits(from.dtype);
        let to = Target::Places { buffer: step.out, axis };
        let from = Source::Elements { buffer, axis, descending };
        Sort { from, lines, long, bits, count, to }
    }

    pub(super) fn wide(&self) -> bool {
        self.bits > 32
    }

    /// The passes, and bits of the digit of each.
    pub(super) fn passes(&self) -> (i64, u32) {
        let passes = self.bits.div_ceil(DIGIT).max(1);
        (passes.into(), self.bits.div_ceil(passes).max(1))
    }
}

/// Extents without those of an axis.
fn without(dims: &[i64], axis: usize) -> Extents {
    dims.iter().enumerate().filter(|(d, _)| *d != axis).map(|(_, &n)| n).collect()
}

/// A buffer for keys and one for what goes with them, a row for each line.
fn entries(low: &mut Lowering, lines: i64, long: i64, wide: bool) -> (Buffer, Buffer) {
    let dims = || Extents::from_iter([lines, long]);
    let keys = low.temp(if wide { DType::I64 } else { DType::U32 }, dims());
    (keys, low.temp(DType::I32, dims()))
}

/// Launches what sorts lines.
pub(super) fn sort(low: &mut Lowering, out: &mut Out, sort: &Sort) -> Result<(), Diagnostic> {
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
        super::passes::pass(low, out, &Sort { from, to, ..*sort }, pass)?;
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
    pub(super) fn key(
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
                keys::number(&mut self.asm, x, dtype, descending)
            }
            Source::Keys { keys, .. } => {
                self.element_of(keys, &At { vars, coords: &[line.clone(), at.clone()] })
            }
        }
    }

    /// What goes with the key of an entry.
    pub(super) fn with(
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
    pub(super) fn number(&mut self, e: &IndexExpr, vars: &Vars) -> Reg {
        let e = resolved(e, &self.same(vars), vars);
        let x = value(&mut self.asm, &e, vars, &[]);
        match x.class {
            Class::Long => self.asm.pure(Class::Word, "cvt.u32.u64", x),
            _ => x,
        }
    }

    /// Stores an entry of a line in order.
    pub(super) fn keep(
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
    pub(super) fn is_last(&self, from: &Source) -> bool {
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
