//! Sums of windows that overlap, which are what convolutions become by transposition, as convolutions.
//!
//! The gradient of a convolution by its operand is a product for each step of each window, and the sum of those at every place.
//! An engine whose products read windows where they are has no need to store the products: what it multiplies instead is the
//! cotangent's windows with the kernel, whose steps go the other way.

use super::pattern::{Match, Pattern};
use super::rule::{Exactness, Reads, Rule, RuleTable, Site, When, rewrite};
use crate::attrs::{Attr, Attrs, Ints};
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::entity::{Inst, Value};
use crate::function::{Function, ValueDef};
use crate::literal::Literal;
use crate::op::Op;
use crate::types::{Dim, TensorType};

/// Convolutions in place of sums of windows.
pub static CONVOLUTIONS: RuleTable = RuleTable {
    name: "convolutions",
    doc: "Sums of overlapping windows, after differentiation; in `fast`, on engines that multiply windows where they are.",
    reads: Reads::Source,
    regions: true,
    rules: &[Rule {
        name: "sum-of-windows",
        doc: "A sum of the windows that a product of `f32` gives, one element apart, becomes the product of a padded operand's \
              windows with the other operand reversed; what is cut off the sum is not computed.",
        exactness: Exactness::Real,
        pattern: Pattern::AnyOf(&[Op::Pad, Op::ReduceSum]),
        then: &When { condition: found, build: WindowSum::convolution },
    }],
};

/// The function with convolutions for sums of windows.
///
/// # Errors
/// Only if a rule builds an instruction that does not fit, which is a defect of the rule.
pub fn with_convolutions(f: &Function) -> Result<Function, Diagnostic> {
    Ok(rewrite(f, &CONVOLUTIONS, Exactness::Real)?.0)
}

/// An axis of windows.
struct SummedWindow {
    /// The axis of the windows' places in the one operand, and that of their steps in the other.
    place: usize,
    step: usize,
    /// Steps, and elements from one to the next.
    steps: i64,
    apart: i64,
    /// Elements of the sum that are cut off before and behind.
    cut: [i64; 2],
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

/// The axes of a product's result, each as an axis of an operand; those of a batch are the left one's, and have no windows.
pub(super) fn axes_of_product(f: &Function, i: Inst) -> Vec<(usize, usize)> {
    let (batch, contracted) = (f.attrs(i).pair("batch"), f.attrs(i).pair("contract"));
    let has = |list: &[i64], a: usize| list.contains(&(a as i64));
    let free = |side: usize| {
        let (batch, contracted) =
            if side == 0 { (batch.0, contracted.0) } else { (batch.1, contracted.1) };
        let all = 0..f.ty(f.args(i)[side]).rank();
        all.filter(move |&a| !has(batch, a) && !has(contracted, a)).map(move |a| (side, a))
    };
    let batch = batch.0.iter().map(|&a| (0, a as usize));
    batch.chain(free(0)).chain(free(1)).collect()
}

fn found(m: &Match<'_>) -> Option<WindowSum> {
    let f = m.f;
    let (cuts, sum) = cut(f, m.root.inst)?;
    if m.root.ty.dtype != DType::F32 {
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
    if folded != steps || strides.iter().any(|&n| n != 1) || !is_zero(f, f.args(spread)[1]) {
        return None;
    }
    let windows = f.args(spread)[0];
    let (product, perm): (Inst, Vec<usize>) = match made_by(f, windows, Op::Transpose) {
        Some(i) => {
            let perm = f.attrs(i).ints("perm").iter().map(|&a| a as usize).collect();
            (made_by(f, f.args(i)[0], Op::DotGeneral)?, perm)
        }
        None => (made_by(f, windows, Op::DotGeneral)?, (0..f.ty(windows).rank()).collect()),
    };
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
        let fits = place >= batch
            && of_step >= batch
            && one != other
            && *side.get_or_insert(one) == one
            && extents[k] == dims[axis] + (dims[step] - 1) * dilation[k];
        if !fits {
            return None;
        }
        let cut = cuts[kept.iter().position(|&a| a == axis)?];
        let (steps, apart) = (dims[step], dilation[k]);
        found.push(SummedWindow { place: at, step: step_at, steps, apart, cut });
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
        let reversed: Ints = axes.iter().filter(|a| a.steps > 1).map(|a| a.step as i64).collect();
        let kernel = match reversed.as_slice() {
            [] => kernel,
            _ => {
                let attrs = Attrs::none().with("axes", Attr::Ints(reversed));
                site.b.op_with(Op::Rev, &[kernel], attrs)
            }
        };
        let attrs = f.attrs(product);
        let (batch, contracted) = (attrs.pair("batch"), attrs.pair("contract"));
        let rank = f.ty(operands[side]).rank();
        let further = |operand: usize, list: &[i64]| -> Ints {
            let steps = axes.iter().enumerate().map(|(k, axis)| match operand == side {
                true => (rank + k) as i64,
                false => axis.step as i64,
            });
            list.iter().copied().chain(steps).collect()
        };
        let contract = Attr::Pair(further(0, contracted.0), further(1, contracted.1));
        let same = Attr::Pair(Ints::from_slice(batch.0), Ints::from_slice(batch.1));
        let attrs = Attrs::none().with("batch", same).with("contract", contract);
        let args = if side == 0 { [windows, kernel] } else { [kernel, windows] };
        let sums = site.b.op_with(Op::DotGeneral, &args, attrs);
        // Steps are summed over; all other axes are where they were among those of their operand.
        let mut left = axes_of_product(f, product);
        left.retain(|at| !axes.iter().any(|axis| *at == (1 - side, axis.step)));
        let place = |at: &(usize, usize)| left.iter().position(|other| other == at);
        let perm: Ints = order.iter().filter_map(place).map(|a| a as i64).collect();
        if perm.iter().enumerate().all(|(k, &a)| k as i64 == a) {
            return sums;
        }
        site.b.op_with(Op::Transpose, &[sums], Attrs::none().with("perm", Attr::Ints(perm)))
    }
}

/// The windows of a value with zeros around it, their steps behind its axes.
fn sum_windows(site: &mut Site<'_, '_>, spread: Value, axes: &[SummedWindow]) -> Value {
    let b = &mut *site.b;
    let rank = b.ty(spread).rank();
    let around = |behind: usize| {
        let mut list: Ints = (0..rank).map(|_| 0).collect();
        for axis in axes {
            list[axis.place] = (axis.steps - 1) * axis.apart - axis.cut[behind];
        }
        list
    };
    let (low, high) = (around(0), around(1));
    let fill = b.literal(&TensorType::scalar(DType::F32), Literal::zero(DType::F32));
    let attrs = Attrs::none()
        .with("low", Attr::Ints(low))
        .with("high", Attr::Ints(high))
        .with_ints("interior", (0..rank).map(|_| 0));
    let padded = b.op_with(Op::Pad, &[spread, fill], attrs);
    let mut ty = b.ty(padded).clone();
    ty.shape.extend(axes.iter().map(|axis| Dim::Const(axis.steps as u64)));
    let attrs = Attrs::none().with_ints("dims", 0..rank as i64);
    let repeated = b.op_as(Op::BroadcastInDim, &[padded], attrs, &ty);
    let attrs = Attrs::none()
        .with_ints("axes", axes.iter().map(|axis| axis.place as i64))
        .with_ints("along", (0..axes.len()).map(|k| (rank + k) as i64))
        .with_ints("strides", axes.iter().map(|_| 1))
        .with_ints("dilation", axes.iter().map(|axis| axis.apart));
    b.op_with(Op::Skew, &[repeated], attrs)
}
