//! Which products warpgroups multiply: 16-bit floats, and `f32` as TF32, whose operands lie in memory as the copy engine takes them;
//! and which of them share a grid.

use super::index::in_order;
use super::mapped_operand::{LINE, MappedOperand, NEIGHBOURS};
use super::mma_unit::Unit;
use super::product_terms::terms;
use super::scalar_form::written;
use super::warpgroup_tile::{EXCHANGED, WarpgroupTile};
use crate::gpu::target::GpuTarget;
use adfuse_ir::kernel::{Extents, Member, Program, Sink, Storage, volume};
use adfuse_ir::op::Monoid;
use adfuse_ir::{DType, Fp};

/// Instructions after a sum beyond which the text outgrows what it saves: each thread has it for all of its sums.
const MOST_EPILOGUE: usize = 96;
/// The least extents of a product that is worth tiles of these sizes.
const LEAST: [i64; 3] = [64, 64, 64];

/// A product that warpgroups multiply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WarpgroupForm {
    pub(crate) dtype: DType,
    /// Of the first term of a sum of products, or of the one product.
    pub(crate) operands: [MappedOperand; 2],
    /// Of further terms, which lie as those of the first one.
    pub(crate) further: Vec<[MappedOperand; 2]>,
    /// Elements of the depth of a term.
    pub(crate) depth: i64,
}

/// Products that warpgroups multiply in one launch, before their tiles are chosen: one, or several of equal extents, whose tiles
/// follow each other.
pub(crate) struct WarpgroupWork {
    pub(crate) members: Vec<(Member, WarpgroupForm)>,
    /// The tiles that were the fastest, where such products were measured.
    pub(crate) measured: Option<WarpgroupTile>,
}

impl WarpgroupWork {
    /// The products; never none.
    pub(crate) fn products(&self) -> Vec<&Member> {
        self.members.iter().map(|(m, _)| m).collect()
    }
}

/// Members of a contraction that follow each other: a run that can share a grid, or one alone. Their forms where warpgroups
/// multiply them.
pub(crate) type JointRun<'m> = Vec<(&'m Member, Option<WarpgroupForm>)>;

/// Divides the members of a contraction into runs that share a grid. Few tiles of one product leave multiprocessors idle that
/// those of the next can have.
pub(crate) fn joint_runs<'m>(
    members: impl Iterator<Item = &'m Member>,
    of: impl Fn(&Member) -> Option<WarpgroupForm>,
) -> Vec<JointRun<'m>> {
    let mut runs: Vec<JointRun<'m>> = Vec::new();
    for m in members {
        let form = of(m);
        let joins = |run: &JointRun<'m>| match (run.first(), &form) {
            (Some((first, Some(before))), Some(form)) => {
                run.len() < MOST_JOINT
                    && before.is_like(form)
                    && first.result() == m.result()
                    && first.batch == m.batch
                    && volume(&first.rows) == volume(&m.rows)
                    && volume(&first.depth) == volume(&m.depth)
            }
            _ => false,
        };
        match runs.last_mut().filter(|run| joins(run)) {
            Some(run) => run.push((m, form)),
            None => runs.push(vec![(m, form)]),
        }
    }
    runs
}

/// Products that share a grid at most: each has a text of its own for what follows its sums.
const MOST_JOINT: usize = 4;

impl WarpgroupForm {
    /// Whether tiles of another product lie as those of this one, but in other buffers.
    fn is_like(&self, other: &WarpgroupForm) -> bool {
        let single = self.further.is_empty() && other.further.is_empty();
        single && self.dtype == other.dtype && are_alike(&self.operands, &other.operands)
    }

    /// Steps of the depth of a term.
    pub(crate) fn term_steps(&self) -> i64 {
        let deep = LINE / self.dtype.bytes() as i64;
        (self.depth + deep - 1) / deep
    }

    /// Steps of the depth of all terms.
    pub(crate) fn steps(&self) -> i64 {
        self.term_steps().saturating_mul(self.terms() as i64)
    }

    /// Terms of the sum.
    pub(crate) fn terms(&self) -> usize {
        1 + self.further.len()
    }

    /// An operand of a term.
    pub(crate) fn operand(&self, term: usize, side: usize) -> &MappedOperand {
        let further = term.checked_sub(1).and_then(|k| self.further.get(k));
        &further.unwrap_or(&self.operands)[side]
    }

    /// The form of a product whose operands lie in memory as the copy engine takes them and whose sums are stored; `None` for
    /// others, and on chips without warpgroups.
    pub(crate) fn of(
        program: &Program,
        m: &Member,
        (fp, target): (Fp, &GpuTarget),
    ) -> Option<WarpgroupForm> {
        let dtype = match Unit::of(m, fp) {
            Unit::Half(dtype) => dtype,
            Unit::Tf32 => DType::F32,
            Unit::Fma => return None,
        };
        let size = [&m.rows, &m.cols, &m.depth].map(volume);
        let is_large = size.iter().zip(LEAST).all(|(&n, least)| n >= least);
        let last = m.cols.iter().rfind(|&&n| n != 1).copied().unwrap_or(1);
        if !target.warpgroups || !is_large || last % NEIGHBOURS != 0 || volume(&m.batch) == 0 {
            return None;
        }
        let ends = m.then.sinks.iter().all(|sink| match sink {
            Sink::Store { buffer, index } => match program.buffers[*buffer].storage {
                Storage::Plain => true,
                // Four threads make words together.
                Storage::Packed(bits) => {
                    i64::from(bits) * NEIGHBOURS <= 32
                        && size[1] % EXCHANGED == 0
                        && in_order(program, *buffer, index, &m.result())
                }
            },
            Sink::Fold { .. } => is_column_sum(m, sink),
            _ => false,
        });
        if !ends || written(&m.then.program, fp).insts.len() > MOST_EPILOGUE {
            return None;
        }
        let terms = terms(m);
        let mapped = |term: &Member| {
            let [lhs, rhs] = [0, 1].map(|side| MappedOperand::of(program, term, side, dtype));
            Some([lhs?, rhs?])
        };
        let mut all = terms.iter().map(mapped).collect::<Option<Vec<_>>>()?;
        let operands = all.remove(0);
        if !all.iter().all(|other| are_alike(&operands, other)) {
            return None;
        }
        let depth = terms.first().map_or(0, |term| volume(&term.depth));
        let form = WarpgroupForm { dtype, operands, further: all, depth };
        // Only elements of 16 bits are turned on their way from shared memory.
        let turned = form.operands.iter().any(|operand| !operand.along);
        (dtype.bytes() == 2 || !turned).then_some(form)
    }
}

/// Whether tiles of operands have the same coordinates.
fn are_alike(one: &[MappedOperand; 2], other: &[MappedOperand; 2]) -> bool {
    let places = |o: &MappedOperand| -> Vec<_> {
        o.axes.iter().map(|axis| (axis.extent, axis.place)).collect()
    };
    let alike =
        |(a, b): (&MappedOperand, &MappedOperand)| a.along == b.along && places(a) == places(b);
    one.iter().zip(other).all(alike)
}

/// Rows whose sums a warp adds up for a sum of columns.
pub(crate) const PART: i64 = 16;

/// Whether a sink adds up all of the rows of a product, and maybe columns too, in an order that the mode leaves free.
fn is_column_sum(m: &Member, sink: &Sink) -> bool {
    let Sink::Fold { monoid: Monoid::Sum, runs, then } = sink else { return false };
    let [run] = runs.as_slice() else { return false };
    let mut rows = m.batch.len()..m.batch.len() + m.rows.len();
    let typed = then.program.params.first() == Some(&DType::F32);
    let of_rows = rows.all(|row| run.axes.iter().any(|&a| usize::from(a) == row));
    typed && of_rows && volume(&m.batch) == 1
}

/// Sums of columns: the parts of each, by [`PART`] rows, as extents of the product's result; the rows' first axis counts them.
pub(crate) fn column_parts(m: &Member) -> Extents {
    let mut extents = m.result();
    let parts = (volume(&m.rows) + PART - 1) / PART;
    for (k, n) in extents.iter_mut().skip(m.batch.len()).take(m.rows.len()).enumerate() {
        *n = if k == 0 { parts } else { 1 };
    }
    extents
}
