//! Operands and results of contractions in memory: buffers as matrices, and windows of buffers.

use super::codegen::affine_form::{affine, affine_of};
use super::gemm::MatrixView;
use super::gemm::window::{Forms, GUARDS, Window, WindowAxis, merged as merged_axes};
use super::shape::checked_volume;
use super::workers::Worker;
use adfuse_ir::DType;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Extents, Feed, Operand, Param, Program, Sink, Stage, Storage};
use adfuse_ir::scalar::{Prim, SOp, ScalarProgram};
use cranelift_entity::EntityRef;
use smallvec::SmallVec;

/// A buffer as matrices, one for each batch.
pub(super) struct View {
    pub(super) buffer: usize,
    pub(super) first: i64,
    /// Axes of the batch, outermost first: extents and steps. The heads of an attention lie between the rows of
    /// their matrices, so that the batch is no single axis.
    batch: SmallVec<[(i64, i64); 2]>,
    /// Along the axis that is not summed over, and along the one that is; of sums, along rows and columns.
    pub(super) steps: [i64; 2],
}

/// A buffer and the windows of it that are an operand.
pub(super) struct WindowOperand {
    pub(super) buffer: usize,
    pub(super) window: Window,
    /// Whether elements are read more than once.
    pub(super) overlaps: bool,
}

impl View {
    /// The same places of another buffer.
    pub(super) fn of(&self, buffer: usize) -> View {
        View { buffer, batch: self.batch.clone(), ..*self }
    }

    /// The matrix of a batch from a row and a column on.
    pub(super) fn part(
        &self,
        worker: &Worker,
        bytes: u64,
        (batch, [row, column]): (i64, [i64; 2]),
    ) -> MatrixView {
        let first = row * self.steps[0] + column * self.steps[1];
        let at = self.start(worker, batch, bytes);
        let at = at.wrapping_offset((first * bytes as i64) as isize);
        MatrixView { at, row: self.steps[0] as isize, column: self.steps[1] as isize }
    }

    /// Where the matrix of a batch begins.
    pub(super) fn start(&self, worker: &Worker, batch: i64, bytes: u64) -> *mut u8 {
        let (mut first, mut rest) = (self.first, batch);
        for &(extent, step) in self.batch.iter().rev() {
            first = first.wrapping_add((rest % extent).wrapping_mul(step));
            rest /= extent;
        }
        let offset = first.wrapping_mul(bytes as i64) as isize;
        worker.table[self.buffer].wrapping_offset(offset)
    }
}

/// The only parameter of a program that gives what it is given.
fn passes(program: &ScalarProgram, params: &[Param]) -> bool {
    let out = program.outputs.first().map(|&v| program.insts[v].op);
    params.len() == 1 && program.outputs.len() == 1 && out == Some(SOp::Param(0))
}

/// An operand that is an element of a buffer of floats, as it is.
pub(super) fn read(
    program: &Program,
    feed: &Feed,
    groups: [&Extents; 3],
    sum: DType,
) -> Option<View> {
    elements(program, feed, groups, sum).filter(|_| sum.is_float())
}

/// An operand that is an element of a buffer of this type, as it is.
pub(super) fn elements(
    program: &Program,
    feed: &Feed,
    groups: [&Extents; 3],
    dtype: DType,
) -> Option<View> {
    let [Param::Load(pieces)] = feed.params.as_slice() else { return None };
    let [piece] = pieces.as_slice() else { return None };
    let Operand::Buffer(b) = piece.from else { return None };
    let plain = passes(&feed.program, &feed.params) && piece.guards.is_empty();
    plain.then(|| view(program, b, &piece.index, groups, dtype)).flatten()
}

/// Sums that are stored as they are.
pub(super) fn stored(
    program: &Program,
    then: &Stage,
    groups: [&Extents; 3],
    sum: DType,
) -> Option<View> {
    let [Sink::Store { buffer, index }] = then.sinks.as_slice() else { return None };
    let plain = then.params == [Param::Sum] && passes(&then.program, &then.params);
    let plain = plain && sum.is_float();
    plain.then(|| view(program, *buffer, index, groups, sum)).flatten()
}

/// What a stage adds to sums and where it stores them, if that is all that it does: the buffer and the index of what is added, and of
/// what is stored.
pub(super) fn addition(then: &Stage) -> Option<[(Buffer, &[IndexExpr]); 2]> {
    let [Sink::Store { buffer, index }] = then.sinks.as_slice() else { return None };
    let load = match then.params.as_slice() {
        [Param::Sum, Param::Load(pieces)] | [Param::Load(pieces), Param::Sum] => pieces,
        _ => return None,
    };
    let [piece] = load.as_slice() else { return None };
    let Operand::Buffer(from) = piece.from else { return None };
    let program = &then.program;
    let (Some(&out), 1, 3) = (program.outputs.first(), program.outputs.len(), program.insts.len())
    else {
        return None;
    };
    let add = &program.insts[out];
    let params: SmallVec<[SOp; 2]> = add.args.iter().map(|&a| program.insts[a].op).collect();
    let both = matches!(params[..], [SOp::Param(a), SOp::Param(b)] if a != b);
    let adds = add.op == SOp::Prim(Prim::Add) && both && piece.guards.is_empty();
    adds.then_some([(from, piece.index.as_slice()), (*buffer, index.as_slice())])
}

/// Sums that are stored with an element of a buffer added to each: where they go, and where the elements are. Vectors of both go along
/// neighbours; the elements may be the same for all that is beside these.
pub(super) fn sum_with(
    program: &Program,
    then: &Stage,
    groups: [&Extents; 3],
    sum: DType,
) -> Option<(View, View)> {
    if !sum.is_float() {
        return None;
    }
    let [(from, at), (to, index)] = addition(then)?;
    let to = view(program, to, index, groups, sum)?;
    let other = spread_view(program, from, at, groups, sum)?;
    let lines = usize::from(to.steps[0] >= to.steps[1]);
    let near = to.steps[lines] == 1 && other.steps[lines] == 1;
    near.then_some((to, other))
}

/// Of the arrays that a stage after sums touches at each of them, the first two: elements of their type, neighbours along columns. Those
/// that it reads come first.
pub(super) fn touched_next(
    program: &Program,
    then: &Stage,
    groups: [&Extents; 3],
    sum: DType,
) -> SmallVec<[View; 2]> {
    let loads = then.params.iter().filter_map(|param| match param {
        Param::Load(pieces) => match pieces.as_slice() {
            [piece] => match piece.from {
                Operand::Buffer(from) => Some((from, &piece.index)),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    let stores = then.sinks.iter().filter_map(|sink| match sink {
        Sink::Store { buffer, index } => Some((*buffer, index)),
        _ => None,
    });
    let views = loads.chain(stores).filter_map(|(b, at)| spread_view(program, b, at, groups, sum));
    views.filter(|view| view.steps[0] > 1 && view.steps[1] == 1).take(2).collect()
}

/// The elements at an index as [`view`] has them, which may be the same for all rows or columns.
fn spread_view(
    program: &Program,
    b: Buffer,
    index: &[IndexExpr],
    groups: [&Extents; 3],
    dtype: DType,
) -> Option<View> {
    view_by(spread, program, (b, index), groups, dtype)
}

/// The step of axes as one, or 0 where the element stays the same along all of them.
fn spread(steps: &[i64], extents: &[i64]) -> Option<i64> {
    let stays = steps.iter().zip(extents).all(|(&step, &n)| step == 0 || n == 1);
    if stays && extents.iter().any(|&n| n != 1) { Some(0) } else { merged(steps, extents) }
}

/// The elements at an index as matrices, over a batch and two groups of axes that each are one.
fn view(
    program: &Program,
    b: Buffer,
    index: &[IndexExpr],
    groups: [&Extents; 3],
    dtype: DType,
) -> Option<View> {
    view_by(merged, program, (b, index), groups, dtype)
}

/// The elements at an index as matrices, over a batch and two groups of axes, of which each has the step that a function gives.
fn view_by(
    step: fn(&[i64], &[i64]) -> Option<i64>,
    program: &Program,
    (b, index): (Buffer, &[IndexExpr]),
    groups: [&Extents; 3],
    dtype: DType,
) -> Option<View> {
    let data = &program.buffers[b];
    if data.dtype != dtype || data.storage != Storage::Plain {
        return None;
    }
    let (first, all) = affine(index, data, groups.iter().map(|g| g.len()).sum())?;
    let [outer, rows, columns] = groups;
    let (mine, rest) = all.split_at_checked(outer.len())?;
    let batch = batched(mine, outer)?;
    let (mine, rest) = rest.split_at_checked(rows.len())?;
    let steps = [step(mine, rows)?, step(rest.get(..columns.len())?, columns)?];
    Some(View { buffer: b.index(), first, batch, steps })
}

/// The axes of a batch, neighbours as one where they are; `None` where one is stepped over backwards.
fn batched(steps: &[i64], extents: &[i64]) -> Option<SmallVec<[(i64, i64); 2]>> {
    let mut axes: SmallVec<[(i64, i64); 2]> = SmallVec::new();
    for (&step, &extent) in steps.iter().zip(extents).filter(|(_, n)| **n != 1) {
        if step < 0 || extent < 1 {
            return None;
        }
        match axes.last_mut() {
            Some((n, outer)) if step.checked_mul(extent) == Some(*outer) => {
                (*n, *outer) = (n.checked_mul(extent)?, step);
            }
            _ => axes.push((extent, step)),
        }
    }
    Some(axes)
}

/// The step of axes as one; `None` where they are not one, or the step is not above 0.
fn merged(steps: &[i64], extents: &[i64]) -> Option<i64> {
    let long = || steps.iter().zip(extents).filter(|(_, n)| **n != 1);
    let fits = long().zip(long().skip(1)).all(|((a, _), (b, n))| b.checked_mul(*n) == Some(*a));
    match long().next_back() {
        // Nothing is stepped over.
        None => Some(1),
        Some((&step, _)) => (fits && step > 0).then_some(step),
    }
}

/// An operand that is an element of a buffer at affine places, or 0 where an affine guard does not hold.
pub(super) fn windows(
    program: &Program,
    feed: &Feed,
    groups: [&Extents; 3],
    sum: DType,
) -> Option<WindowOperand> {
    let [Param::Load(pieces)] = feed.params.as_slice() else { return None };
    let piece = match pieces.as_slice() {
        [piece] if piece.guards.is_empty() => piece,
        [piece, rest] => match rest.from {
            Operand::Literal(l) if l.bits() == 0 && rest.guards.is_empty() => piece,
            _ => return None,
        },
        _ => return None,
    };
    let Operand::Buffer(b) = piece.from else { return None };
    let data = &program.buffers[b];
    let plain = data.dtype == sum && data.storage == Storage::Plain && sum.is_float();
    if !plain || !passes(&feed.program, &feed.params) || piece.guards.len() > GUARDS {
        return None;
    }
    let axes = groups.iter().map(|g| g.len()).sum();
    let mut forms = vec![affine(&piece.index, data, axes)?];
    for guard in &piece.guards {
        forms.push(affine_of(&guard.expr, axes)?);
    }
    let at = |of: &dyn Fn(usize) -> i64| -> Forms {
        std::array::from_fn(|k| if k < forms.len() { of(k) } else { 0 })
    };
    let mut next = 0;
    let mut group = |extents: &Extents| {
        let first = next;
        next += extents.len();
        let axes = extents.iter().zip(first..);
        merged_axes(axes.map(|(&extent, a)| WindowAxis { extent, steps: at(&|k| forms[k].1[a]) }))
    };
    let [batch, free, depth] = [group(groups[0])?, group(groups[1])?, group(groups[2])?];
    let guards = piece.guards.iter().map(|g| g.range.clone()).collect();
    let elements = i64::try_from(data.bytes() / sum.bytes()).ok()?;
    let window = Window { first: at(&|k| forms[k].0), batch, free, depth, guards, elements };
    let all = groups.iter().try_fold(1i64, |n, g| n.checked_mul(checked_volume(g).ok()?))?;
    let overlaps = all > checked_volume(&data.dims).ok()?;
    Some(WindowOperand { buffer: b.index(), window, overlaps })
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::kernel::Step;
    use adfuse_ir::kernel::text::parse;

    /// The names of what is touched next after a product of 4 x 8 sums, which loads and stores what these lines say.
    fn touched(then: &str) -> Vec<String> {
        let text = format!(
            "program @f {{
               input %x: f32[4, 3] input %w: f32[3, 8]
               input %p: f32[4, 8] input %row: f32[8] input %turned: f32[8, 4]
               output %o: f32[4, 8] output %second: f32[4, 8]
               contract @k {{ member batch [] rows [4] cols [8] depth [3] sum f32 {{
                 lhs {{ p0 = load %x[d0, d1] s0 = param.f32 0 out s0 }}
                 rhs {{ p0 = load %w[d1, d0] s0 = param.f32 0 out s0 }}
                 then {{ {then} }}
               }} }} return }}"
        );
        let program = parse(&text).unwrap_or_else(|d| panic!("{d}\n{text}"));
        let Step::Contract(contract) = &program.steps[0] else { panic!("a contraction") };
        let m = &contract.members[0];
        let views = touched_next(&program, &m.then, [&m.batch, &m.rows, &m.cols], m.sum);
        let name = |view: &View| program.buffers[Buffer::new(view.buffer)].name.to_string();
        views.iter().map(name).collect()
    }

    #[test]
    fn loads_of_whole_matrices_are_touched_next_and_stores_after_them() {
        let with = |load: &str, stores: &str| {
            let sum = "p0 = sum p1 = load ".to_owned() + load;
            touched(&format!("{sum} s0 = param.f32 0 s1 = param.f32 1 s2 = mul.f32 s0 s1 {stores}"))
        };
        let one = "%o[d0, d1] = store s2";
        assert_eq!(with("%p[d0, d1]", one), ["p", "o"]);
        assert_eq!(with("%p[d0, d1]", &format!("{one} %second[d0, d1] = store s0")), ["p", "o"]);
        // A row is in the first cache, and columns are no neighbours in the last one.
        assert_eq!(with("%row[d1]", &format!("{one} %second[d0, d1] = store s0")), ["o", "second"]);
        assert_eq!(with("%turned[d1, d0]", one), ["o"]);
    }
}
