//! Rewrites sums of overlapping windows as convolutions. Transposition turns convolutions into such sums.
//!
//! The gradient of a convolution by its operand is a product for each step of each window, and the sum of those at every place.
//! An engine whose products read windows where they are has no need to store the products: what it multiplies instead is the
//! cotangent's windows with the kernel, whose steps go the other way.

use super::depthwise::DEPTHWISE;
use super::pattern::{Match, Pattern};
use super::product_axes::axes_of_product;
use super::rule::{Exactness, Reads, Rule, RuleTable, Site, When, rewrite};
use crate::attrs::{Attr, Attrs, Ints};
use crate::builder::Builder;
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::entity::{Inst, Value};
use crate::function::{Function, ValueDef};
use crate::literal::Literal;
use crate::op::Op;
use crate::types::{Dim, TensorType};

const SUM_OF_WINDOWS: &str = "sum-of-windows";

/// Convolutions in place of sums of windows.
pub static CONVOLUTIONS: RuleTable = RuleTable {
    name: "convolutions",
    doc: "Convolutions by channel and sums of overlapping windows, after differentiation; in `fast`, on engines that multiply windows where they are.",
    reads: Reads::Source,
    regions: true,
    rules: &[
        DEPTHWISE,
        Rule {
            name: SUM_OF_WINDOWS,
            doc: "A sum of the windows that a product of `f32`, `bf16` or `f16` gives becomes the product of a padded operand's windows with \
              the other operand reversed; what is cut off the sum is not computed. Where windows are two or more elements apart the \
              other operand has zeros, so that each window has whole strides of steps.",
            exactness: Exactness::Real,
            pattern: Pattern::AnyOf(&[Op::Pad, Op::ReduceSum]),
            then: &When { condition: found, build: WindowSum::convolution },
        },
    ],
};

/// The function with convolutions for sums of windows.
///
/// # Errors
/// Only if a rule builds an instruction that does not fit, which is a defect of the rule.
pub fn with_convolutions(f: &Function) -> Result<Function, Diagnostic> {
    let (made, fired) = rewrite(f, &CONVOLUTIONS, Exactness::Real)?;
    // What sums of windows have become may be convolutions by channel. Nothing else that a rule writes is one, or a sum of windows.
    match fired.iter().any(|recognised| recognised.rule == SUM_OF_WINDOWS) {
        true => Ok(rewrite(&made, &CONVOLUTIONS, Exactness::Real)?.0),
        false => Ok(made),
    }
}

/// An axis of windows.
struct SummedWindow {
    /// The axis of the windows' places in the one operand, and that of their steps in the other.
    place: usize,
    step: usize,
    /// Steps, elements from one to the next, and elements from one window to the next.
    steps: i64,
    apart: i64,
    stride: i64,
    /// Windows.
    places: i64,
    /// Elements of the sum, of which some are cut off before and behind.
    extent: i64,
    cut: [i64; 2],
}

/// What becomes of an axis of windows: the sum at `stride a + r` is one of the windows that begin at `a`, whose steps are every
/// `stride`th one of the kernel from `r` on.
struct PhasedWindow {
    /// Zeros before and behind the kernel, with which it has whole strides, and steps of a window then.
    zeros: [i64; 2],
    steps: i64,
    /// Zeros around the operand that has the places.
    around: [i64; 2],
}

impl SummedWindow {
    /// Elements of the sum that are kept.
    fn kept(&self) -> i64 {
        self.extent - self.cut[0] - self.cut[1]
    }

    /// Whether the sum is one of windows of the other operand; where windows are some elements apart, each has as many steps at
    /// least: else most of what would be multiplied is zero.
    fn fits(&self) -> bool {
        let SummedWindow { steps, apart, stride, places, extent, .. } = *self;
        match stride {
            1 => extent == places + (steps - 1) * apart,
            _ => {
                let covered = (places - 1) * stride + steps;
                apart == 1 && steps >= stride && extent >= covered && self.kept() % stride == 0
            }
        }
    }

    fn phased(&self) -> PhasedWindow {
        let SummedWindow { steps, apart, stride, places, cut, .. } = *self;
        if stride == 1 {
            let around = cut.map(|cut| (steps - 1) * apart - cut);
            return PhasedWindow { zeros: [0, 0], steps, around };
        }
        // What is cut off before is whole strides with these zeros.
        let before = (stride - cut[0] % stride) % stride;
        let whole = (steps + before + stride - 1) / stride;
        let off = (cut[0] + before) / stride;
        PhasedWindow {
            zeros: [before, whole * stride - steps - before],
            steps: whole,
            around: [whole - 1 - off, self.kept() / stride + off - places],
        }
    }
}

/// A sum of the windows that a product gives.
struct WindowSum {
    product: Inst,
    /// The operand that has the windows' places: the left one or the right one.
    side: usize,
    axes: Vec<SummedWindow>,
    /// The axes of the sum, each as an axis of an operand.
    order: Vec<(usize, usize)>,
}

/// The instruction that gives a value, if it has this op.
fn made_by(f: &Function, v: Value, op: Op) -> Option<Inst> {
    match f.def(v) {
        ValueDef::Inst(i, _) if f.op(i) == op => Some(i),
        _ => None,
    }
}

fn is_zero(f: &Function, v: Value) -> bool {
    f.literal(v).is_some_and(|l| l.to_f64() == 0.0)
}

/// What is cut off each axis of a value, and the sum that it is cut off.
fn cut(f: &Function, i: Inst) -> Option<(Vec<[i64; 2]>, Inst)> {
    if f.op(i) == Op::ReduceSum {
        let rank = f.ty(f.inst_results(i)[0]).rank();
        return Some((vec![[0; 2]; rank], i));
    }
    let sum = made_by(f, f.args(i)[0], Op::ReduceSum)?;
    let attrs = f.attrs(i);
    let [low, high, interior] = ["low", "high", "interior"].map(|name| attrs.ints(name));
    let cuts = low.iter().chain(high).all(|&n| n <= 0) && interior.iter().all(|&n| n == 0);
    let all = low.iter().zip(high).map(|(low, high)| [-low, -high]).collect();
    cuts.then_some((all, sum))
}

/// What a value was before a reshape that takes axes of one element out, and the axes of that which are left.
fn without_units(f: &Function, v: Value) -> (Value, Vec<usize>) {
    let all = |v: Value| (v, (0..f.ty(v).rank()).collect());
    let Some(i) = made_by(f, v, Op::Reshape) else { return all(v) };
    let (from, to) = (&f.ty(f.args(i)[0]).shape, &f.ty(v).shape);
    let mut left = Vec::new();
    for (a, n) in from.iter().enumerate() {
        match to.get(left.len()) {
            Some(next) if next == n => left.push(a),
            _ if *n == Dim::Const(1) => {}
            _ => return all(v),
        }
    }
    if left.len() == to.len() { (f.args(i)[0], left) } else { all(v) }
}

fn found(m: &Match<'_>) -> Option<WindowSum> {
    let f = m.f;
    let (cuts, sum) = cut(f, m.root.inst)?;
    if !matches!(m.root.ty.dtype, DType::F32 | DType::BF16 | DType::F16) {
        return None;
    }
    let spread = made_by(f, f.args(sum)[0], Op::Unskew)?;
    let attrs = f.attrs(spread);
    let [axes, along, strides, dilation, extents] =
        ["axes", "along", "strides", "dilation", "extents"].map(|name| attrs.ints(name));
    let mut folded: Vec<i64> = f.attrs(sum).ints("axes").to_vec();
    let mut steps: Vec<i64> = along.to_vec();
    folded.sort_unstable();
    steps.sort_unstable();
    if folded != steps || !is_zero(f, f.args(spread)[1]) {
        return None;
    }
    let windows = f.args(spread)[0];
    let (whole, axes_left) = without_units(f, windows);
    let (product, perm): (Inst, Vec<usize>) = match made_by(f, whole, Op::Transpose) {
        Some(i) => {
            let perm = f.attrs(i).ints("perm").iter().map(|&a| a as usize).collect();
            (made_by(f, f.args(i)[0], Op::DotGeneral)?, perm)
        }
        None => (made_by(f, whole, Op::DotGeneral)?, (0..f.ty(whole).rank()).collect()),
    };
    let perm: Vec<usize> = axes_left.iter().map(|&a| perm[a]).collect();
    let given = axes_of_product(f, product);
    let batch = f.attrs(product).pair("batch").0.len();
    let dims: Vec<i64> = f.ty(windows).dims()?.iter().map(|&n| n as i64).collect();
    let kept: Vec<usize> = (0..dims.len()).filter(|&a| !along.contains(&(a as i64))).collect();
    let mut found = Vec::new();
    let mut side = None;
    for (k, (&axis, &step)) in axes.iter().zip(along).enumerate() {
        let (axis, step) = (axis as usize, step as usize);
        let [place, of_step] = [perm[axis], perm[step]];
        let ((one, at), (other, step_at)) = (given[place], given[of_step]);
        let fits =
            place >= batch && of_step >= batch && one != other && *side.get_or_insert(one) == one;
        let found_axis = SummedWindow {
            place: at,
            step: step_at,
            steps: dims[step],
            apart: dilation[k],
            stride: strides[k],
            places: dims[axis],
            extent: extents[k],
            cut: cuts[kept.iter().position(|&a| a == axis)?],
        };
        if !fits || !found_axis.fits() {
            return None;
        }
        found.push(found_axis);
    }
    let of_windows = |a: &usize| axes.contains(&(*a as i64));
    let others = kept.iter().zip(&cuts).filter(|(a, _)| !of_windows(a));
    let whole = others.into_iter().all(|(_, cut)| *cut == [0; 2]);
    let order = kept.iter().map(|&a| given[perm[a]]).collect();
    whole.then_some(WindowSum { product, side: side?, axes: found, order })
}

impl WindowSum {
    /// The product of the windows of what has their places with the other operand reversed.
    fn convolution(site: &mut Site<'_, '_>, sum: WindowSum) -> Value {
        let f = site.f;
        let WindowSum { product, side, axes, order } = sum;
        let operands = f.args(product);
        let spread = site.get(operands[side]);
        let kernel = site.get(operands[1 - side]);
        let windows = sum_windows(site, spread, &axes);
        let kernel = reversed_phases(site, kernel, &axes);
        let attrs = f.attrs(product);
        let (batch, contracted) = (attrs.pair("batch"), attrs.pair("contract"));
        let rank = f.ty(operands[side]).rank();
        let behind = |a: usize| behind_phases(&axes, a);
        // Axes of the kernel are further behind where others have become two.
        let moved = |operand: usize, list: &[i64]| -> Ints {
            list.iter()
                .map(|&a| if operand == side { a } else { behind(a as usize) as i64 })
                .collect()
        };
        let further = |operand: usize, list: &[i64]| -> Ints {
            let steps = axes.iter().enumerate().map(|(k, axis)| match operand == side {
                true => (rank + k) as i64,
                false => behind(axis.step) as i64,
            });
            moved(operand, list).into_iter().chain(steps).collect()
        };
        let contract = Attr::Pair(further(0, contracted.0), further(1, contracted.1));
        let same = Attr::Pair(moved(0, batch.0), moved(1, batch.1));
        let attrs = Attrs::none().with("batch", same).with("contract", contract);
        let args = if side == 0 { [windows, kernel] } else { [kernel, windows] };
        let sums = site.b.op_with(Op::DotGeneral, &args, attrs);
        // Steps are summed over, but for those from one window to the next, which are elements of the sum; all other axes are
        // where they were among those of their operand.
        let mut left: Vec<(usize, usize, bool)> = Vec::new();
        for (operand, a) in axes_of_product(f, product) {
            match axes.iter().find(|axis| (operand, a) == (1 - side, axis.step)) {
                Some(axis) if axis.stride > 1 => left.push((operand, a, true)),
                Some(_) => {}
                None => left.push((operand, a, false)),
            }
        }
        let mut perm = Ints::new();
        let mut merged = site.b.ty(sums).clone();
        merged.shape.clear();
        for &(operand, a) in &order {
            let place = |of: (usize, usize, bool)| left.iter().position(|&other| other == of);
            perm.extend(place((operand, a, false)).map(|at| at as i64));
            let window = axes.iter().find(|axis| (operand, a) == (side, axis.place));
            match window {
                Some(axis) => {
                    let phase = place((1 - side, axis.step, true));
                    perm.extend(phase.map(|at| at as i64));
                    merged.shape.push(Dim::Const(axis.kept() as u64));
                }
                None => merged.shape.push(f.ty(operands[operand]).shape[a]),
            }
        }
        // Axes of one element that the sum does not have are last.
        perm.extend((0..left.len() as i64).filter(|at| !perm.contains(at)).collect::<Ints>());
        let sums = match perm.iter().enumerate().all(|(k, &a)| k as i64 == a) {
            true => sums,
            false => {
                site.b.op_with(Op::Transpose, &[sums], Attrs::none().with("perm", Attr::Ints(perm)))
            }
        };
        match site.b.ty(sums).shape == merged.shape {
            true => sums,
            false => site.b.op_as(Op::Reshape, &[sums], Attrs::none(), &merged),
        }
    }
}

/// An axis of the kernel after those that have become two.
fn behind_phases(axes: &[SummedWindow], a: usize) -> usize {
    a + axes.iter().filter(|axis| axis.stride > 1 && axis.step < a).count()
}

/// The kernel with its steps reversed; where windows are some elements apart, an axis for the steps of a window and one for where it
/// begins among the elements from one window to the next.
fn reversed_phases(site: &mut Site<'_, '_>, kernel: Value, axes: &[SummedWindow]) -> Value {
    let b = &mut *site.b;
    let mut made = kernel;
    if axes.iter().any(|axis| axis.stride > 1) {
        let rank = b.ty(kernel).rank();
        let mut around: [Ints; 2] = [0, 1].map(|_| (0..rank).map(|_| 0).collect());
        for axis in axes {
            let PhasedWindow { zeros, .. } = axis.phased();
            (around[0][axis.step], around[1][axis.step]) = (zeros[0], zeros[1]);
        }
        let [low, high] = around;
        made = padded(b, made, (low, high));
        let mut ty = b.ty(made).clone();
        ty.shape.clear();
        for (a, n) in b.ty(made).shape.clone().into_iter().enumerate() {
            match axes.iter().find(|axis| axis.step == a && axis.stride > 1) {
                Some(axis) => {
                    ty.shape.push(Dim::Const(axis.phased().steps as u64));
                    ty.shape.push(Dim::Const(axis.stride as u64));
                }
                None => ty.shape.push(n),
            }
        }
        made = b.op_as(Op::Reshape, &[made], Attrs::none(), &ty);
    }
    let several = axes.iter().filter(|axis| axis.phased().steps > 1);
    let reversed: Ints = several.map(|axis| behind_phases(axes, axis.step) as i64).collect();
    match reversed.as_slice() {
        [] => made,
        _ => b.op_with(Op::Rev, &[made], Attrs::none().with("axes", Attr::Ints(reversed))),
    }
}

/// A value with zeros around it, or without what is cut off.
fn padded(b: &mut Builder, x: Value, (low, high): (Ints, Ints)) -> Value {
    let dtype = b.ty(x).dtype;
    let fill = b.literal(&TensorType::scalar(dtype), Literal::zero(dtype));
    let interior = low.iter().map(|_| 0).collect();
    let attrs = Attrs::none()
        .with("low", Attr::Ints(low))
        .with("high", Attr::Ints(high))
        .with("interior", Attr::Ints(interior));
    b.op_with(Op::Pad, &[x, fill], attrs)
}

/// The windows of a value with zeros around it, their steps behind its axes.
fn sum_windows(site: &mut Site<'_, '_>, spread: Value, axes: &[SummedWindow]) -> Value {
    let b = &mut *site.b;
    let rank = b.ty(spread).rank();
    let phased: Vec<PhasedWindow> = axes.iter().map(SummedWindow::phased).collect();
    let around = |behind: usize| {
        let mut list: Ints = (0..rank).map(|_| 0).collect();
        for (axis, phased) in axes.iter().zip(&phased) {
            list[axis.place] = phased.around[behind];
        }
        list
    };
    let padded = padded(b, spread, (around(0), around(1)));
    let mut ty = b.ty(padded).clone();
    ty.shape.extend(phased.iter().map(|axis| Dim::Const(axis.steps as u64)));
    let attrs = Attrs::none().with_ints("dims", 0..rank as i64);
    let repeated = b.op_as(Op::BroadcastInDim, &[padded], attrs, &ty);
    let attrs = Attrs::none()
        .with_ints("axes", axes.iter().map(|axis| axis.place as i64))
        .with_ints("along", (0..axes.len()).map(|k| (rank + k) as i64))
        .with_ints("strides", axes.iter().map(|_| 1))
        .with_ints("dilation", axes.iter().map(|axis| axis.apart));
    b.op_with(Op::Skew, &[repeated], attrs)
}
