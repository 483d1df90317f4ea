//! Attention that is written out: a softmax of products, which weighs values.

use super::band::{below, seen_band};
use super::exponential::{quotient, unshifted};
use super::shape::{REACH, both_ways, made_by, number};
use crate::attrs::{Attr, Attrs, Ints};
use crate::builder::Builder;
use crate::entity::{Inst, Value};
use crate::function::Function;
use crate::op::{ATTENTION_BLOCK, AttentionReach, Op};
use crate::rewrite::pattern::Match;
use crate::rewrite::rule::Site;
use crate::types::TensorType;

/// What is added to scores, or hides them.
#[derive(Clone, Copy)]
enum MaskOrBias {
    Bias(Value),
    /// Of truth values; whether keys are hidden where they hold.
    Mask(Value, bool),
}

/// Attention that was found.
pub(super) struct FoundAttention {
    /// The products of queries and keys.
    scores: Inst,
    /// What scores are multiplied with, or divided by.
    scale: Option<(Op, Value)>,
    extra: Option<MaskOrBias>,
    reach: AttentionReach,
    v: Value,
}

/// A contraction of a softmax along the last axis with values.
pub(super) fn is_attention(m: &Match<'_>) -> Option<FoundAttention> {
    let f = m.f;
    let root = m.root.inst;
    let &[p, v] = m.root.args else { return None };
    let ty = f.ty(p);
    let dims = ty.dims()?;
    let last = ty.rank().checked_sub(1)? as i64;
    // Weights of 16-bit floats may be rounded from a softmax in `f32`.
    let rounded = made_by(f, p, Op::ConvertElementType).map(|i| f.args(i)[0]);
    let weights = rounded.filter(|&w| is_widening(f, p, w)).unwrap_or(p);
    let soft = made_by(f, weights, Op::Div).or_else(|| made_by(f, weights, Op::Mul))?;
    let sum = quotient(f, soft)?;
    let along_last = f.attrs(sum.sum).ints("axes") == [last];
    let weighs = f.attrs(root).pair("contract").0 == [last];
    let short = dims.last().is_none_or(|&n| n < ATTENTION_BLOCK);
    if !along_last || !weighs || short || dims.contains(&0) || m.root.ty.dtype != ty.dtype {
        return None;
    }
    if uses(f, p) > 1 || weights != p && uses(f, weights) > 1 {
        return None;
    }
    let mut x = narrowed(f, unshifted(f, sum.x, sum.sum));
    let (mut extra, mut reach) = (None, AttentionReach::default());
    let mut has_number = false;
    for _ in 0..REACH {
        let Some(found) = hidden(f, x) else { break };
        let HiddenScores { left, mask, hides, least } = found;
        // Where a row sees nothing, a finite number would hide nothing.
        let all_see = least || dims[dims.len() - 1] >= dims[dims.len() - 2];
        let seen = Some(mask).filter(|_| all_see).and_then(|mask| seen_band(f, mask, hides, &dims));
        if let Some(band) = seen {
            let both = |x: Option<u64>, y: Option<u64>| x.into_iter().chain(y).min();
            reach.before = both(reach.before, band.before);
            reach.after = both(reach.after, band.after);
            has_number |= !least;
        } else if extra.is_none() && least {
            extra = Some(MaskOrBias::Mask(mask, hides));
        } else {
            return None;
        }
        x = narrowed(f, left);
    }
    if extra.is_none()
        && let Some(i) = made_by(f, x, Op::Add)
    {
        let products = |v: &Value| under_scale(f, *v).is_some();
        let (inner, bias) = both_ways(f.args(i)).into_iter().find(|(v, _)| products(v))?;
        if f.literal(bias).is_some() {
            return None;
        }
        // What is added in another type is no bias of the op.
        if f.ty(bias).dtype != m.root.ty.dtype {
            return None;
        }
        (x, extra) = (inner, Some(MaskOrBias::Bias(bias)));
    }
    // Where a mask or a bias hides all that places show, the number is the greatest of the row: it hides nothing.
    if has_number && extra.is_some() {
        return None;
    }
    let (scores, scale) = under_scale(f, x)?;
    let found = FoundAttention { scores, scale, extra, reach, v };
    found.fits(f, root).then_some(found)
}

/// How often instructions of a function read a value.
fn uses(f: &Function, v: Value) -> usize {
    let mut n = f.results().iter().filter(|&&r| r == v).count();
    f.walk(&mut |f, i| n += f.args(i).iter().filter(|&&a| a == v).count());
    n
}

/// Whether `wide` is in the type that the 16-bit floats of `narrow` are computed in.
fn is_widening(f: &Function, narrow: Value, wide: Value) -> bool {
    let (narrow, wide) = (f.ty(narrow).dtype, f.ty(wide).dtype);
    narrow != wide && narrow.compute() == wide
}

/// The value before it was widened from 16-bit floats.
fn narrowed(f: &Function, v: Value) -> Value {
    let inner = made_by(f, v, Op::ConvertElementType).map(|i| f.args(i)[0]);
    inner.filter(|&inner| is_widening(f, inner, v)).unwrap_or(v)
}

/// Scores of which some are hidden.
struct HiddenScores {
    /// The scores before.
    left: Value,
    mask: Value,
    /// Whether scores are hidden where the mask holds; else where it does not.
    hides: bool,
    /// Whether -inf stands for those that are hidden; else a number so small that it has the weight 0 beside any other.
    least: bool,
}

/// Numbers that hide a score where another is seen, at most.
const HIDES: f64 = -1e9;

/// What is left where truth values hold, of a choice between it and a number that hides it.
fn hidden(f: &Function, x: Value) -> Option<HiddenScores> {
    let i = made_by(f, x, Op::SelectN)?;
    let &[mask, no, yes] = f.args(i) else { return None };
    let number = |v: Value| number(f, v).map(|l| l.to_f64()).filter(|&x| x <= HIDES);
    let found = |left, hides, x: f64| HiddenScores { left, mask, hides, least: x.is_infinite() };
    match (number(no), number(yes)) {
        (Some(x), None) => Some(found(yes, false, x)),
        (None, Some(x)) => Some(found(no, true, x)),
        _ => None,
    }
}

/// Products of queries and keys, under a factor.
fn under_scale(f: &Function, x: Value) -> Option<(Inst, Option<(Op, Value)>)> {
    let x = narrowed(f, x);
    if let Some(i) = made_by(f, x, Op::DotGeneral) {
        return Some((i, None));
    }
    let scaled = |op: Op, v: Value, by: Value| {
        number(f, by)?;
        Some((made_by(f, narrowed(f, v), Op::DotGeneral)?, Some((op, by))))
    };
    if let Some(i) = made_by(f, x, Op::Div) {
        return scaled(Op::Div, f.args(i)[0], f.args(i)[1]);
    }
    let i = made_by(f, x, Op::Mul)?;
    both_ways(f.args(i)).into_iter().find_map(|(v, by)| scaled(Op::Mul, v, by))
}

impl FoundAttention {
    /// Whether both contractions have the axes of attention: the softmax has batch axes first and in order, as products leave
    /// them; queries have one further axis, or two where heads share keys.
    fn fits(&self, f: &Function, root: Inst) -> bool {
        let (batch, contract) =
            (f.attrs(self.scores).pair("batch"), f.attrs(self.scores).pair("contract"));
        let [q, k] = [f.args(self.scores)[0], f.args(self.scores)[1]];
        let n = batch.0.len();
        let of_root = f.attrs(root).pair("batch");
        let (float, same) = (f.ty(q).dtype, |v: Value| f.ty(v).dtype == f.ty(q).dtype);
        float.is_float()
            && same(k)
            && same(self.v)
            && of_root.0.iter().enumerate().all(|(k, &d)| k as i64 == d)
            && of_root.0.len() == n
            && contract.0.len() == 1
            && f.attrs(root).pair("contract").0.len() == 1
            && f.ty(k).rank() == n + 2
            && f.ty(self.v).rank() == n + 2
            && (f.ty(q).rank() == n + 2 || n > 0 && f.ty(q).rank() == n + 3)
            && [q, k, self.v].into_iter().all(|v| f.ty(v).dims().is_some())
    }
}

/// Batch axes first, then the others with this one last; or with this one before them.
fn ordered(b: &mut Builder, v: Value, batch: &[i64], at: i64, last: bool) -> Value {
    let rank = b.ty(v).rank() as i64;
    let others = (0..rank).filter(|d| *d != at && !batch.contains(d));
    let mut perm: Ints = batch.iter().copied().chain(others).collect();
    perm.insert(if last { perm.len() } else { batch.len() }, at);
    if perm.is_sorted() {
        return v;
    }
    b.op_with(Op::Transpose, &[v], Attrs::none().with("perm", Attr::Ints(perm)))
}

fn reshaped(b: &mut Builder, v: Value, dims: &[u64]) -> Value {
    let ty = TensorType::of(b.ty(v).dtype, dims);
    b.reshaped(v, &ty)
}

/// A mask or a bias over `dims`, of which axes that a broadcast repeats have extent 1.
fn narrow(site: &mut Site<'_, '_>, v: Value, dims: &[u64]) -> (Value, Vec<u64>) {
    let f = site.f;
    let rank = f.ty(v).rank();
    let (inner, axes) = below(f, v, (0..rank).collect());
    let own = f.ty(inner).dims().unwrap_or_default();
    if f.literal(inner).is_some() || !axes.is_sorted() {
        return (site.get(v), dims.to_vec());
    }
    let mut kept = vec![1; rank];
    for (&axis, &n) in axes.iter().zip(&own) {
        kept[axis] = n;
    }
    let inner = site.get(inner);
    (reshaped(site.b, inner, &kept), kept)
}

pub(super) fn attention(site: &mut Site<'_, '_>, found: FoundAttention) -> Value {
    let f = site.f;
    let contract = f.attrs(found.scores).pair("contract");
    let [q, k] = [f.args(found.scores)[0], f.args(found.scores)[1]].map(|v| site.get(v));
    let batch = f.attrs(found.scores).pair("batch");
    let q = ordered(site.b, q, batch.0, contract.0[0], true);
    let k = ordered(site.b, k, batch.1, contract.1[0], true);
    let v = site.get(found.v);
    let of_root = f.attrs(site.root.inst);
    let v = ordered(site.b, v, of_root.pair("batch").1, of_root.pair("contract").1[0], false);
    let dims = |b: &Builder, v: Value| b.ty(v).dims().map(|d| d.to_vec()).unwrap_or_default();
    let (of_q, of_k, of_v) = (dims(site.b, q), dims(site.b, k), dims(site.b, v));
    let q = match found.scale {
        None => q,
        Some((op, by)) => {
            let ty = site.b.ty(q).clone();
            let by = number(f, by).map(|l| site.b.literal(&ty, l.convert(ty.dtype)));
            by.map_or(q, |by| site.b.op_as(op, &[q, by], Attrs::none(), &ty))
        }
    };
    // Batch axes, heads, rows and elements: an axis of heads where there is none, and one where two are.
    let (n, scores) = (of_k.len() - 2, f.ty(f.inst_results(found.scores)[0]).dims());
    let merged = |dims: &[u64]| -> Vec<u64> {
        match (n, dims.len() - n) {
            (0, _) => [&[1], dims].concat(),
            (_, 3) => {
                let mut all = dims.to_vec();
                let shared = all.remove(n);
                all[n - 1] *= shared;
                all
            }
            _ => dims.to_vec(),
        }
    };
    let heads = |dims: &[u64]| if n == 0 { [&[1], dims].concat() } else { dims.to_vec() };
    let mut args = vec![
        reshaped(site.b, q, &merged(&of_q)),
        reshaped(site.b, k, &heads(&of_k)),
        reshaped(site.b, v, &heads(&of_v)),
    ];
    if let Some(extra) = found.extra {
        let (MaskOrBias::Bias(x) | MaskOrBias::Mask(x, _)) = extra;
        let full = scores.map(|d| d.to_vec()).unwrap_or_default();
        let (mut x, mut own) = narrow(site, x, &full);
        if let MaskOrBias::Mask(_, true) = extra {
            x = site.b.op(Op::Not, &[x]);
        }
        // Heads that share keys are merged with the groups where the mask has both or neither.
        if full.len() == n + 3 && (own[n - 1] == 1) != (own[n] == 1) {
            let whole = TensorType::of(site.b.ty(x).dtype, &full);
            let all = Attrs::none().with_ints("dims", 0..full.len() as i64);
            x = site.b.op_as(Op::BroadcastInDim, &[x], all, &whole);
            own = full;
        }
        args.push(reshaped(site.b, x, &merged(&own)));
    }
    let attrs = found.reach.with(Attrs::none());
    let y = site.b.inst(Op::Attention, &args, attrs, None)[0];
    let to = f.ty(f.inst_results(site.root.inst)[0]).clone();
    site.b.reshaped(y, &to)
}
