//! What conditions of stable forms look at: values under views, reductions spread back, literals.

use crate::entity::{Inst, Value};
use crate::function::{Function, ValueDef};
use crate::literal::Literal;
use crate::op::{Body, Op};
use crate::types::{Dim, TensorType};
use smallvec::SmallVec;

/// The longest chain of views, factors and the like that a pattern is looked for through, so that a long
/// chain under many patterns takes no more than linear time.
pub(in crate::rewrite) const REACH: usize = 32;

/// The instruction that makes `v`, when it is of this op.
pub(super) fn made_by(f: &Function, v: Value, op: Op) -> Option<Inst> {
    match f.def(v) {
        ValueDef::Inst(i, _) if f.op(i) == op => Some(i),
        _ => None,
    }
}

/// The operand of the instruction of this op that makes `v`.
pub(super) fn operand(f: &Function, v: Value, op: Op) -> Option<Value> {
    f.args(made_by(f, v, op)?).first().copied()
}

/// The number that all elements of `v` are, as far as it is written.
pub(super) fn number(f: &Function, v: Value) -> Option<Literal> {
    number_within(f, v, REACH)
}

fn number_within(f: &Function, v: Value, reach: usize) -> Option<Literal> {
    if let Some(l) = f.literal(v) {
        return Some(l);
    }
    let ValueDef::Inst(i, 0) = f.def(v) else { return None };
    let inner = |_| number_within(f, *f.args(i).first()?, reach - 1);
    let below = (reach > 0).then_some(());
    match f.op(i) {
        Op::BroadcastInDim | Op::Reshape | Op::Transpose => below.and_then(inner),
        Op::ConvertElementType => below.and_then(inner).map(|l| l.convert(f.ty(v).dtype)),
        _ => None,
    }
}

/// Whether `wide` is in the type that the 16-bit floats of `narrow` are computed in.
fn is_widening(f: &Function, narrow: Value, wide: Value) -> bool {
    let (narrow, wide) = (f.ty(narrow).dtype, f.ty(wide).dtype);
    narrow != wide && narrow.compute() == wide
}

/// The value before it was widened from 16-bit floats.
pub(super) fn narrowed(f: &Function, v: Value) -> Value {
    let inner = operand(f, v, Op::ConvertElementType);
    inner.filter(|&inner| is_widening(f, inner, v)).unwrap_or(v)
}

/// The value before it was rounded to 16-bit floats.
pub(super) fn unrounded(f: &Function, v: Value) -> Value {
    let inner = operand(f, v, Op::ConvertElementType);
    inner.filter(|&inner| is_widening(f, v, inner)).unwrap_or(v)
}

/// Both operands of a commutative op, one way and the other.
pub(super) fn both_ways(args: &[Value]) -> [(Value, Value); 2] {
    let (a, b) = (args[0], args[args.len() - 1]);
    [(a, b), (b, a)]
}

/// The axes of its operand that a reduction keeps.
pub(super) fn kept(f: &Function, reduction: Inst) -> SmallVec<[usize; 4]> {
    let axes = f.attrs(reduction).ints("axes");
    let rank = f.ty(f.args(reduction)[0]).rank();
    (0..rank).filter(|&d| !axes.contains(&(d as i64))).collect()
}

/// What `v` is under views with one operand; they are added to `views`, the outermost first. An
/// elementwise op may change places with each of them.
pub(super) fn strip(f: &Function, v: Value, views: &mut Vec<Inst>) -> Value {
    let mut v = v;
    while views.len() < REACH
        && let ValueDef::Inst(i, 0) = f.def(v)
        && let (Body::View(_), &[inner], [_]) = (&f.op(i).def().body, f.args(i), f.inst_results(i))
        && f.literal(inner).is_none()
    {
        views.push(i);
        v = inner;
    }
    v
}

/// Whether two lists of views do the same.
pub(super) fn same_views(f: &Function, a: &[Inst], b: &[Inst]) -> bool {
    let key = |&i: &Inst| (f.op(i), f.inst(i).attrs, f.type_id(f.inst_results(i)[0]));
    a.iter().map(key).eq(b.iter().map(key))
}

/// A value under broadcasts, transposes and reshapes that only repeat it or turn it, and elementwise ops taken off it.
#[derive(Clone)]
pub(in crate::rewrite) struct Spread {
    pub(in crate::rewrite) value: Value,
    /// For each axis of `value` the axis of the outer value that it lies along; none where its extent
    /// is 1.
    pub(in crate::rewrite) along: SmallVec<[Option<usize>; 4]>,
}

impl Spread {
    /// What `v` repeats.
    pub(in crate::rewrite) fn of(f: &Function, v: Value) -> Spread {
        let along = f.ty(v).shape.iter().enumerate();
        let along = along.map(|(k, &d)| (d != Dim::Const(1)).then_some(k)).collect();
        Spread { value: v, along }.below(f)
    }

    /// What is below the views.
    fn below(mut self, f: &Function) -> Spread {
        for _ in 0..REACH {
            let ValueDef::Inst(i, 0) = f.def(self.value) else { break };
            let next = match f.op(i) {
                Op::BroadcastInDim => self.broadcast(f, i),
                Op::Reshape => self.reshape(f, i),
                Op::Transpose => self.transpose(f, i),
                _ => None,
            };
            match next {
                Some(next) => self = next,
                None => break,
            }
        }
        self
    }

    fn broadcast(&self, f: &Function, i: Inst) -> Option<Spread> {
        let &value = f.args(i).first()?;
        let dims = f.attrs(i).ints("dims").iter();
        let axis = |(&d, &extent): (&i64, &Dim)| match extent {
            Dim::Const(1) => None,
            _ => self.along.get(d as usize).copied().flatten(),
        };
        Some(Spread { value, along: dims.zip(&f.ty(value).shape).map(axis).collect() })
    }

    /// Only where axes of extent 1 come or go.
    fn reshape(&self, f: &Function, i: Inst) -> Option<Spread> {
        let &value = f.args(i).first()?;
        let long = |t: &TensorType| -> SmallVec<[Dim; 4]> {
            t.shape.iter().copied().filter(|&d| d != Dim::Const(1)).collect()
        };
        if long(f.ty(value)) != long(f.ty(self.value)) {
            return None;
        }
        let shape = &f.ty(self.value).shape;
        let outer = self.along.iter().zip(shape).filter(|(_, d)| **d != Dim::Const(1));
        let mut outer = outer.map(|(&a, _)| a);
        let axis = |&d: &Dim| if d == Dim::Const(1) { None } else { outer.next().flatten() };
        Some(Spread { value, along: f.ty(value).shape.iter().map(axis).collect() })
    }

    /// Axis `k` of the result is axis `perm[k]` of the operand.
    fn transpose(&self, f: &Function, i: Inst) -> Option<Spread> {
        let &value = f.args(i).first()?;
        let mut along: SmallVec<[Option<usize>; 4]> = SmallVec::from_elem(None, self.along.len());
        for (&d, &outer) in f.attrs(i).ints("perm").iter().zip(&self.along) {
            *along.get_mut(usize::try_from(d).ok()?)? = outer;
        }
        Some(Spread { value, along })
    }

    /// An operand of the elementwise instruction that makes the value.
    pub(super) fn operand(&self, f: &Function, value: Value) -> Option<Spread> {
        let same = f.ty(value).rank() == self.along.len();
        same.then(|| Spread { value, along: self.along.clone() }.below(f))
    }

    /// The number, or the one element, that is repeated, where nothing else is.
    pub(super) fn uniform(&self, f: &Function) -> Option<Value> {
        let one = f.literal(self.value).is_some() || self.along.iter().all(Option::is_none);
        one.then_some(self.value)
    }

    /// What an elementwise op of one operand is taken of.
    pub(super) fn through(self, f: &Function, op: Op) -> Option<Spread> {
        let value = operand(f, self.value, op)?;
        Some(Spread { value, ..self }.below(f))
    }

    /// What a reciprocal is taken of.
    pub(super) fn through_reciprocal(self, f: &Function) -> Option<Spread> {
        let value = if let Some(i) = made_by(f, self.value, Op::Div) {
            let &[one, value] = f.args(i) else { return None };
            number(f, one).filter(|l| l.is_one())?;
            value
        } else {
            let i = made_by(f, self.value, Op::IntegerPow)?;
            (f.attrs(i).int("y") == -1).then(|| f.args(i)[0])?
        };
        Some(Spread { value, ..self }.below(f))
    }

    /// With the value changed to another of its type, and so with what is below that, until nothing changes.
    pub(super) fn with(self, f: &Function, change: impl Fn(Value) -> Value) -> Spread {
        let mut spread = self;
        for _ in 0..REACH {
            let value = change(spread.value);
            if value == spread.value {
                break;
            }
            spread = Spread { value, ..spread }.below(f);
        }
        spread
    }

    /// The reduction that makes the value, when each of its rows is spread over itself and nothing
    /// else, `full` being the outer type.
    pub(super) fn reduction(&self, f: &Function, op: Op, full: &TensorType) -> Option<Inst> {
        let i = made_by(f, self.value, op)?;
        let kept = kept(f, i);
        let in_place = |(&d, &along): (&usize, &Option<usize>)| {
            full.shape[d] == Dim::Const(1) || along == Some(d)
        };
        let of = f.args(i)[0];
        // Sums of 16-bit floats may be in a wider type.
        let fits = (f.ty(of) == full || f.ty(narrowed(f, of)) == full)
            && kept.len() < full.rank()
            && kept.len() == self.along.len()
            && kept.iter().zip(&self.along).all(in_place);
        fits.then_some(i)
    }
}
