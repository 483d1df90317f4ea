//! Named patterns, found by their structure: layer norm, softmax, attention and others.
//!
//! A recogniser starts at the last instruction of its pattern and returns the pattern's inputs. The pattern is
//! everything between them. Names of values play no part.

pub(crate) mod look;

use adfuse_ir::{Function, Inst, Op, Value};
use cranelift_entity::SecondaryMap;
use look::UseMap;
use smallvec::SmallVec;

/// A pattern in a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PatternMatch {
    /// What people call it.
    pub name: &'static str,
    /// Its instructions, in the order of the function.
    pub insts: Vec<Inst>,
}

/// What a pattern reads.
type PatternInputs = SmallVec<[Value; 4]>;

/// A form that is recognised.
struct Recogniser {
    name: &'static str,
    /// What the pattern that ends here reads.
    ends: fn(&UseMap<'_>, Inst) -> Option<PatternInputs>,
}

const RECOGNISERS: &[Recogniser] = &[
    Recogniser { name: "layer norm", ends: layer_norm },
    Recogniser { name: "rms norm", ends: rms_norm },
    Recogniser { name: "softmax", ends: softmax },
    Recogniser { name: "log-softmax", ends: log_softmax },
    Recogniser { name: "cross entropy", ends: cross_entropy },
    Recogniser { name: "gelu", ends: gelu },
    Recogniser { name: "bias + activation", ends: bias_activation },
    Recogniser { name: "residual add", ends: residual },
    Recogniser { name: "dropout", ends: dropout },
    Recogniser { name: "attention", ends: attention },
];

/// The patterns of a function's first phase, in the order of their last instructions.
pub fn patterns(f: &Function) -> Vec<PatternMatch> {
    let look = UseMap::new(f);
    let mut found = Vec::new();
    for &i in f.body_insts() {
        if f.inst(i).phase != Default::default() {
            continue;
        }
        for r in RECOGNISERS {
            if let Some(inputs) = (r.ends)(&look, i)
                && let Some(insts) = look.between(i, &inputs)
            {
                found.push(PatternMatch { name: r.name, insts });
            }
        }
        if let Some(insts) = look.projections(i) {
            found.push(PatternMatch { name: "q/k/v", insts });
        }
    }
    // Of a pattern within one of the same name, the larger is meant.
    let within = |a: &PatternMatch, b: &PatternMatch| {
        a.name == b.name
            && a.insts.len() < b.insts.len()
            && a.insts.iter().all(|i| b.insts.contains(i))
    };
    // Only patterns with an instruction in common can be within one another.
    let mut of: SecondaryMap<Inst, Vec<usize>> = SecondaryMap::new();
    for (k, p) in found.iter().enumerate() {
        p.insts.iter().for_each(|&i| of[i].push(k));
    }
    let kept = |k: &usize| {
        let first = found[*k].insts.first();
        !first.is_some_and(|&i| of[i].iter().any(|&b| within(&found[*k], &found[b])))
    };
    (0..found.len()).filter(kept).map(|k| found[k].clone()).collect()
}

fn inputs(values: impl IntoIterator<Item = Value>) -> Option<PatternInputs> {
    Some(values.into_iter().collect())
}

/// A normalised value, with the scale and shift that follow it.
fn normalised(l: &UseMap<'_>, i: Inst, centred: bool) -> Option<PatternInputs> {
    let mut given = PatternInputs::new();
    let mut i = i;
    for op in [Op::Add, Op::Mul] {
        let spread = l.pair(i, op).into_iter().find(|(_, b)| l.is_spread(*b));
        if let Some((y, by)) = spread
            && let Some(inner) = l.made(l.clear(y))
            && norm(l, inner, centred).is_some()
                | (op == Op::Add && !l.pair(inner, Op::Mul).is_empty())
        {
            given.push(l.clear(by));
            i = inner;
        }
    }
    given.push(norm(l, i, centred)?);
    Some(given)
}

/// What `x * rsqrt(mean(x^2) + eps)` is taken of, `x` having its mean taken off or not.
fn norm(l: &UseMap<'_>, i: Inst, centred: bool) -> Option<Value> {
    let product = |(c, r): (Value, Value)| Some((c, l.under(r, Op::Rsqrt)?));
    let quotient = || {
        let (c, r) = l.quotient(i)?;
        Some((c, l.under(r, Op::Sqrt)?))
    };
    let (c, inner) = l.pair(i, Op::Mul).into_iter().find_map(product).or_else(quotient)?;
    let variance = match l.by(inner, Op::Add) {
        Some(add) => *l.f.args(add).iter().find(|&&a| l.number(a).is_none())?,
        None => inner,
    };
    if !l.same(l.square(l.mean(variance)?)?, c) {
        return None;
    }
    let off = l.by(c, Op::Sub).and_then(|s| match *l.f.args(s) {
        [x, m] => l.mean(m).filter(|&of| l.same(of, x)).map(|_| x),
        _ => None,
    });
    match (off, centred) {
        (Some(x), true) => Some(l.clear(x)),
        (None, false) => Some(l.clear(c)),
        _ => None,
    }
}

fn layer_norm(l: &UseMap<'_>, i: Inst) -> Option<PatternInputs> {
    normalised(l, i, true)
}

fn rms_norm(l: &UseMap<'_>, i: Inst) -> Option<PatternInputs> {
    normalised(l, i, false)
}

fn softmax(l: &UseMap<'_>, i: Inst) -> Option<PatternInputs> {
    let (e, sum) = l.quotient(i)?;
    let x = l.under(e, Op::Exp)?;
    l.same(l.under(sum, Op::ReduceSum)?, e).then(|| inputs([l.unshifted(x)]))?
}

fn log_softmax(l: &UseMap<'_>, i: Inst) -> Option<PatternInputs> {
    let &[d, lse] = l.f.args(i) else { return None };
    if l.f.op(i) != Op::Sub || !l.is_spread(lse) {
        return None;
    }
    let x = l.unshifted(d);
    (l.log_sum(lse)? == x).then(|| inputs([x]))?
}

/// `log-softmax` of a value at labels: weighed by a mask and summed, or gathered; or `logsumexp` less
/// the value there.
fn cross_entropy(l: &UseMap<'_>, i: Inst) -> Option<PatternInputs> {
    let scores = |v: Value| log_softmax(l, l.made(l.clear(v))?);
    match (l.f.op(i), l.f.args(i)) {
        (Op::ReduceSum, &[x]) => {
            let product = l.by(x, Op::Mul)?;
            let (x, labels) =
                l.pair(product, Op::Mul).into_iter().find_map(|(a, b)| Some((scores(a)?, b)))?;
            inputs(x.into_iter().chain([labels]))
        }
        (Op::Gather, &[x, at]) => inputs(scores(x)?.into_iter().chain([at])),
        (Op::Sub, &[lse, picked]) => {
            let x = l.log_sum(lse)?;
            let weighed = || {
                let product = l.by(l.under(picked, Op::ReduceSum)?, Op::Mul)?;
                let of_x = |(d, labels)| (l.unshifted(d) == x).then_some(labels);
                let labels = l.pair(product, Op::Mul).into_iter().find_map(of_x)?;
                inputs([x, l.clear(labels)])
            };
            if let Some(given) = weighed() {
                return Some(given);
            }
            let gather = l.by(picked, Op::Gather)?;
            let (from, at) = (l.f.args(gather)[0], l.f.args(gather)[1]);
            l.same(from, x).then(|| inputs([x, at]))?
        }
        _ => None,
    }
}

/// `u / 2 * (1 + tanh(..u..))` or with `erf`, its factors in any order.
fn gelu(l: &UseMap<'_>, i: Inst) -> Option<PatternInputs> {
    l.pair(i, Op::Mul).into_iter().find_map(|(a, b)| {
        let scaled = |v: Value| {
            let product = l.by(v, Op::Mul)?;
            let pairs = l.pair(product, Op::Mul);
            pairs.into_iter().find(|(_, n)| l.number(*n).is_some()).map(|(x, _)| x)
        };
        let bent = |v: Value| {
            let add = l.by(v, Op::Add)?;
            let pairs = l.pair(add, Op::Add);
            let of = |(t, one): (Value, Value)| {
                l.number(one).filter(|&n| n == 1.0)?;
                l.under(t, Op::Tanh).or_else(|| l.under(t, Op::Erf))
            };
            pairs.into_iter().find_map(of)
        };
        let x = bent(b).or_else(|| bent(scaled(b)?))?;
        let candidates = [Some(a), scaled(a)].into_iter().flatten();
        let u = candidates.map(|u| l.clear(u)).find(|&u| l.is_of(x, u))?;
        inputs([u])
    })
}

fn bias_activation(l: &UseMap<'_>, i: Inst) -> Option<PatternInputs> {
    let x = match (l.f.op(i), l.f.args(i)) {
        (Op::Relu | Op::Tanh | Op::Logistic, &[x]) => x,
        (Op::Max, &[a, b]) if l.number(b) == Some(0.0) => a,
        (Op::Max, &[a, b]) if l.number(a) == Some(0.0) => b,
        _ => *gelu(l, i)?.first()?,
    };
    let add = l.by(x, Op::Add)?;
    let (y, bias) = l.pair(add, Op::Add).into_iter().find(|(_, b)| l.is_spread(*b))?;
    inputs([l.clear(y), l.clear(bias)])
}

/// A sum of two whole tensors of which one is made of the other, or which is normalised.
fn residual(l: &UseMap<'_>, i: Inst) -> Option<PatternInputs> {
    let (Op::Add, &[a, b]) = (l.f.op(i), l.f.args(i)) else { return None };
    let whole = |v: Value| l.f.literal(l.clear(v)).is_none() && !l.is_spread(v);
    if !whole(a) || !whole(b) || a == b || l.f.ty(a).rank() < 2 {
        return None;
    }
    // By way of a contraction: polynomials are sums of whole tensors too.
    let made_of = |v: Value, x: Value| {
        let (mut met, mut summed) = (false, false);
        let mut stop = |v: Value| {
            met |= v == x;
            summed |= l.made(v).is_some_and(|i| l.f.op(i) == Op::DotGeneral);
            v == x || l.made(v).is_none()
        };
        l.visit(v, &mut stop);
        met && summed
    };
    let normalised = || {
        let sum = l.f.inst_results(i)[0];
        let mut near = vec![sum];
        // A mean is taken of it, and it is less that mean: that is a norm's beginning.
        for &u in &l.users[sum] {
            near.extend(
                matches!(l.f.op(u), Op::ConvertElementType).then(|| l.f.inst_results(u)[0]),
            );
        }
        near.iter().any(|&x| {
            let uses = |op: Op| l.users[x].iter().any(|&u| l.f.op(u) == op);
            uses(Op::ReduceSum) && uses(Op::Sub)
        })
    };
    (made_of(a, b) || made_of(b, a) || normalised()).then(|| inputs([a, b]))?
}

fn dropout(l: &UseMap<'_>, i: Inst) -> Option<PatternInputs> {
    let drawn = |v: Value| {
        let test = l.made(l.clear(v))?;
        let drawn = matches!(l.f.op(test), Op::Lt | Op::Le | Op::Gt | Op::Ge)
            && l.f.args(test).iter().any(|&a| l.by(a, Op::RngBits).is_some());
        drawn.then_some(test)
    };
    let factor = |v: Value| {
        drawn(v).or_else(|| {
            let product = l.by(v, Op::Mul)?;
            l.f.args(product).iter().find_map(|&a| drawn(a))
        })
    };
    let (test, x) = match (l.f.op(i), l.f.args(i)) {
        (Op::SelectN, &[mask, a, b]) => {
            let x = if l.number(a) == Some(0.0) { b } else { a };
            (drawn(mask)?, x)
        }
        (Op::Mul, &[a, b]) => match (factor(a), factor(b)) {
            (None, Some(t)) => (t, a),
            (Some(t), None) => (t, b),
            _ => return None,
        },
        _ => return None,
    };
    if l.number(x).is_some() {
        return None;
    }
    let bits = l.f.args(test).iter().find_map(|&a| l.by(a, Op::RngBits))?;
    let scaled = l.by(x, Op::Mul).and_then(|p| {
        l.pair(p, Op::Mul).into_iter().find(|(_, n)| l.number(*n).is_some()).map(|(x, _)| x)
    });
    inputs(l.f.args(bits).iter().copied().chain([l.clear(scaled.unwrap_or(x))]))
}

/// A contraction with a softmax of what another contraction gives.
fn attention(l: &UseMap<'_>, i: Inst) -> Option<PatternInputs> {
    let (Op::DotGeneral, &[a, b]) = (l.f.op(i), l.f.args(i)) else { return None };
    let weighed = |(p, v): (Value, Value)| {
        let x = softmax(l, l.made(l.clear(p))?)?;
        let (mut scores, mut given) = (None, PatternInputs::new());
        let mut stop = |v: Value| {
            let Some(j) = l.made(v) else {
                given.push(v);
                return true;
            };
            if l.f.op(j) == Op::DotGeneral {
                scores = scores.or(Some(j));
            }
            l.f.op(j) == Op::DotGeneral
        };
        l.visit(*x.first()?, &mut stop);
        given.extend(l.f.args(scores?).iter().copied().chain([l.clear(v), v]));
        Some(given)
    };
    [(a, b), (b, a)].into_iter().find_map(weighed)
}
