//! Attention that is written out: a softmax of products, which weighs values.

use super::attention_layout::AttentionAxes;
use super::band::seen_band;
use super::exponential::{quotient, unshifted};
use super::shape::{REACH, Spread, both_ways, made_by, narrowed, number, unrounded};
use crate::attrs::Attrs;
use crate::builder::Builder;
use crate::dtype::DType;
use crate::entity::{Inst, Value};
use crate::fp::Fp;
use crate::function::Function;
use crate::literal::Literal;
use crate::op::{ATTENTION_BLOCK, AttentionReach, Op};
use crate::rewrite::pattern::{Match, Root};
use crate::rewrite::rule::Site;
use crate::rewrite::steps::AttentionSteps;
use crate::types::TensorType;

/// What is added to scores, or hides them.
enum MaskOrBias {
    Bias(Spread),
    Mask(HidingMask),
}

/// Truth values that choose between scores and a number.
struct HidingMask {
    mask: Spread,
    /// Whether scores are hidden where the mask holds; else where it does not.
    hides: bool,
    /// Whether -inf stands for those that are hidden; else a number so small that it has no weight where another score is seen.
    least: bool,
    /// Whether the number is added to scores; else it is chosen in their place.
    is_added: bool,
}

/// What is added to scores or hides them, and what is left of them without it.
#[derive(Default)]
struct ScoreMasks {
    extra: Option<MaskOrBias>,
    reach: AttentionReach,
    /// Whether a number other than -inf hides what `reach` does.
    has_number: bool,
}

/// Attention that was found.
pub(super) struct FoundAttention {
    axes: AttentionAxes,
    /// How scores are scaled, and by which one element.
    scale: Option<(Op, Value)>,
    masks: ScoreMasks,
}

/// A contraction of a softmax along the last axis with values.
pub(super) fn is_attention(m: &Match<'_>) -> Option<FoundAttention> {
    found_at(m.f, &m.root)
}

fn found_at(f: &Function, root: &Root<'_>) -> Option<FoundAttention> {
    (0..root.args.len()).find_map(|at| attention_of(f, root, at))
}

/// Whether an instruction is attention that an engine may have a step for, in a mode.
pub(super) fn has_step(f: &Function, i: Inst, steps: AttentionSteps, fp: Fp) -> bool {
    let Some(root) = Root::of(f, i).filter(|root| root.op == Op::DotGeneral) else { return false };
    found_at(f, &root).is_some_and(|found| {
        let [depth, width] = found.axes.elements(f).unwrap_or_default();
        steps.has(fp, root.ty.dtype, depth, width)
    })
}

/// Attention whose weights are this operand of a contraction.
fn attention_of(f: &Function, root: &Root<'_>, at: usize) -> Option<FoundAttention> {
    let p = root.args[at];
    let ty = f.ty(p);
    let dims = ty.dims()?;
    let keys = ty.rank().checked_sub(1).filter(|&keys| keys > 0)?;
    // Weights of 16-bit floats may be rounded from a softmax in `f32`.
    let weights = unrounded(f, p);
    let soft = made_by(f, weights, Op::Div).or_else(|| made_by(f, weights, Op::Mul))?;
    let sum = quotient(f, soft)?;
    let along_keys = f.attrs(sum.sum).ints("axes") == [keys as i64];
    let short = dims[keys] < ATTENTION_BLOCK;
    if !along_keys || short || dims.contains(&0) || root.ty.dtype != ty.dtype {
        return None;
    }
    if uses(f, p) > 1 || weights != p && uses(f, weights) > 1 {
        return None;
    }
    let scores = Spread::of(f, unshifted(f, sum.x, sum.sum));
    let (masks, scores) = ScoreMasks::of(f, scores, &dims, root.ty.dtype)?;
    let (product, scale) = under_scale(f, &scores)?;
    let mut axes = AttentionAxes::of(f, &dims, product, (root.inst, at))?;
    let dtype = root.ty.dtype;
    // Products of 16-bit floats in `f32` are written as products of widened operands.
    axes.operands = axes.operands.map(|v| {
        let inner = narrowed(f, v);
        if f.ty(inner).dtype == dtype { inner } else { v }
    });
    let is_known = |v: Value| f.ty(v).dims().is_some() && f.ty(v).dtype == dtype;
    let fits = dtype.is_float() && axes.operands.into_iter().all(is_known);
    fits.then_some(FoundAttention { axes, scale, masks })
}

/// How often instructions of a function read a value.
fn uses(f: &Function, v: Value) -> usize {
    let mut n = f.results().iter().filter(|&&r| r == v).count();
    f.walk(&mut |f, i| n += f.args(i).iter().filter(|&&a| a == v).count());
    n
}

impl ScoreMasks {
    /// The masks of scores of these extents, or the bias, and the scores without them.
    fn of(
        f: &Function,
        scores: Spread,
        dims: &[u64],
        dtype: DType,
    ) -> Option<(ScoreMasks, Spread)> {
        let mut masks = ScoreMasks::default();
        let narrow = |x: Spread| x.with(f, |v| narrowed(f, v));
        let mut x = narrow(scores);
        // Where a row sees nothing, a finite number would hide nothing.
        let all_see = dims[dims.len() - 1] >= dims[dims.len() - 2];
        for _ in 0..REACH {
            let Some((hidden, left)) = hidden(f, &x) else { break };
            let seen = (hidden.least || all_see)
                .then(|| seen_band(f, &hidden.mask, hidden.hides, dims))
                .flatten();
            if let Some(band) = seen {
                let both = |x: Option<u64>, y: Option<u64>| x.into_iter().chain(y).min();
                masks.reach.before = both(masks.reach.before, band.before);
                masks.reach.after = both(masks.reach.after, band.after);
                masks.has_number |= band.is_limited() && !hidden.least;
            } else if hidden.is_added {
                break;
            } else if masks.extra.is_none() && f.literal(hidden.mask.value).is_none() {
                masks.extra = Some(MaskOrBias::Mask(hidden));
            } else {
                return None;
            }
            x = narrow(left);
        }
        if masks.extra.is_none()
            && let Some(i) = made_by(f, x.value, Op::Add)
        {
            let sides = both_ways(f.args(i)).map(|(inner, bias)| {
                let inner = narrow(x.operand(f, inner)?);
                under_scale(f, &inner).is_some().then_some((inner, bias))
            });
            let (inner, bias) = sides.into_iter().flatten().next()?;
            // What is added in another type is no bias of the op.
            if f.ty(bias).dtype != dtype {
                return None;
            }
            let bias = x.operand(f, bias).filter(|bias| f.literal(bias.value).is_none())?;
            (x, masks.extra) = (inner, Some(MaskOrBias::Bias(bias)));
        }
        // Where a mask or a bias hides all that places show, the number is the greatest of the row: it hides nothing.
        let fits = match &masks.extra {
            None => true,
            Some(MaskOrBias::Mask(m)) if !m.least => !masks.reach.is_limited(),
            Some(_) => !masks.has_number,
        };
        fits.then_some((masks, x))
    }
}

/// Numbers that hide a score where another is seen, at most: -1e9, and what `bf16` makes of it.
const HIDES: f64 = -9.9e8;

/// What hides scores, and the scores that are left: of a choice between them and a number, or of a sum with a choice between 0 and
/// a number.
fn hidden(f: &Function, x: &Spread) -> Option<(HidingMask, Spread)> {
    let hides = |v: Value| number(f, v).map(|l| l.to_f64()).filter(|&x| x <= HIDES);
    let mask_of = |mask: Spread, hides: bool, x: f64, is_added: bool| HidingMask {
        mask,
        hides,
        least: x.is_infinite(),
        is_added,
    };
    if let Some(i) = made_by(f, x.value, Op::SelectN) {
        let &[mask, no, yes] = f.args(i) else { return None };
        let (left, holds, number) = match (hides(no), hides(yes)) {
            (Some(number), None) => (yes, false, number),
            (None, Some(number)) => (no, true, number),
            _ => return None,
        };
        let mask = mask_of(x.operand(f, mask)?, holds, number, false);
        return Some((mask, x.operand(f, left)?));
    }
    let i = made_by(f, x.value, Op::Add)?;
    let is_zero = |v: Value| number(f, v).is_some_and(|l| l.to_f64() == 0.0);
    both_ways(f.args(i)).into_iter().find_map(|(left, added)| {
        let added = x.operand(f, added)?.with(f, |v| unrounded(f, v));
        let &[mask, no, yes] = f.args(made_by(f, added.value, Op::SelectN)?) else { return None };
        let (holds, number) = match (hides(no), hides(yes)) {
            (Some(number), None) if is_zero(yes) => (false, number),
            (None, Some(number)) if is_zero(no) => (true, number),
            _ => return None,
        };
        let mask = mask_of(added.operand(f, mask)?, holds, number, true);
        Some((mask, x.operand(f, left)?))
    })
}

/// Products of queries and keys, under a factor that is one element.
fn under_scale(f: &Function, x: &Spread) -> Option<(Spread, Option<(Op, Value)>)> {
    let is_product = |x: Spread| {
        let x = x.with(f, |v| narrowed(f, v));
        made_by(f, x.value, Op::DotGeneral).map(|_| x)
    };
    if let Some(product) = is_product(x.clone()) {
        return Some((product, None));
    }
    let scaled = |op: Op, v: Value, by: Value| {
        let by = Spread::of(f, by).uniform(f)?;
        Some((is_product(x.operand(f, v)?)?, Some((op, by))))
    };
    if let Some(i) = made_by(f, x.value, Op::Div) {
        return scaled(Op::Div, f.args(i)[0], f.args(i)[1]);
    }
    let i = made_by(f, x.value, Op::Mul)?;
    both_ways(f.args(i)).into_iter().find_map(|(v, by)| scaled(Op::Mul, v, by))
}

pub(super) fn attention(site: &mut Site<'_, '_>, found: FoundAttention) -> Value {
    let FoundAttention { axes, scale, masks } = found;
    let [q, k, v] = axes.operands.map(|v| site.get(v));
    let q = scale.map_or(q, |(op, by)| scaled(site, op, q, by));
    let mut args = axes.arguments(site.b, [q, k, v]);
    match masks.extra {
        Some(MaskOrBias::Bias(bias)) => {
            let x = site.get(bias.value);
            args.push(axes.over_scores(site.b, x, &bias));
        }
        Some(MaskOrBias::Mask(HidingMask { mask, hides, least, .. })) => {
            let mut x = site.get(mask.value);
            if hides {
                x = site.b.op(Op::Not, &[x]);
            }
            let mut shown = axes.over_scores(site.b, x, &mask);
            if !least {
                [args[0], shown] = with_equal_rows(site.b, [args[0], shown]);
            }
            args.push(shown);
        }
        None => {}
    }
    let attrs = masks.reach.with(Attrs::none());
    let y = site.b.inst(Op::Attention, &args, attrs, None)[0];
    let to = site.f.ty(site.f.inst_results(site.root.inst)[0]).clone();
    axes.result(site.b, y, &to)
}

/// Queries, scaled by one element.
fn scaled(site: &mut Site<'_, '_>, op: Op, q: Value, by: Value) -> Value {
    let ty = site.b.ty(q).clone();
    let by = match number(site.f, by) {
        Some(l) => site.b.literal(&ty, l.convert(ty.dtype)),
        None => {
            let by = site.get(by);
            let by = site.b.converted(by, ty.dtype);
            let by = site.b.reshaped(by, &TensorType::of(ty.dtype, &[]));
            let none = Attrs::none().with_ints("dims", []);
            site.b.op_as(Op::BroadcastInDim, &[by], none, &ty)
        }
    };
    site.b.op_as(op, &[q, by], Attrs::none(), &ty)
}

/// Queries and a mask, as operands of the op, where a number hides scores rather than -inf. A row that shows nothing has the same number
/// everywhere: equal weights, and nothing flows back to its query. So it shows all, to a query of zeros.
fn with_equal_rows(b: &mut Builder, [q, mask]: [Value; 2]) -> [Value; 2] {
    let keys = b.ty(mask).rank() as i64 - 1;
    let rows = Attrs::none().with_ints("dims", 0..keys);
    let spread = |b: &mut Builder, v: Value, like: Value| {
        let to = TensorType { dtype: b.ty(v).dtype, ..b.ty(like).clone() };
        b.op_as(Op::BroadcastInDim, &[v], rows.clone(), &to)
    };
    let shows = b.op_with(Op::ReduceOr, &[mask], Attrs::none().with_ints("axes", [keys]));
    let ty = b.ty(q).clone();
    let zero = b.literal(&ty, Literal::zero(ty.dtype));
    let shown = spread(b, shows, q);
    let q = b.op(Op::SelectN, &[shown, zero, q]);
    let all = b.op(Op::Not, &[shows]);
    let all = spread(b, all, mask);
    [q, b.op(Op::Or, &[mask, all])]
}
