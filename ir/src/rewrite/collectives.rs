//! Collectives in other ops: over a batch whose elements are the ranks, and in the few exchanges that engines have.
//!
//! Both forms share their arithmetic, which is the defined one: a sum over ranks adds neighbours in pairs, whoever
//! adds. So a program has the same bits whether ranks are elements of a batch or processes.

use super::Copier;
use crate::ValueDef;
use crate::attrs::{Attr, Attrs};
use crate::builder::Builder;
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::entity::{Inst, Value};
use crate::function::Function;
use crate::literal::Literal;
use crate::op::{Collective, Monoid, Op};
use crate::types::{Dim, Shape, TensorType};

/// Up to this many bytes of each rank, all ranks are sent the whole of what is folded: one exchange in place of two.
pub const WHOLE_BYTES: u64 = 32 << 10;

/// The op that joins two elements of a fold over ranks.
fn joining(monoid: Monoid) -> Op {
    match monoid {
        Monoid::Max => Op::Max,
        Monoid::Min => Op::Min,
        // The table has no others.
        _ => Op::Add,
    }
}

/// The fold of a value along its first axis, which keeps extent 1: neighbours in pairs, then what they gave in pairs, the
/// last of an odd number as it is. 16-bit floats are widened first, and rounded last.
pub fn folded_in_pairs(b: &mut Builder, x: Value, monoid: Monoid) -> Value {
    let given = b.ty(x).dtype;
    let mut x = b.converted(x, given.compute());
    loop {
        let extents = b.extents(&b.ty(x).clone());
        let n = extents.first().map_or(1, |&n| n as i64);
        if n <= 1 {
            return b.converted(x, given);
        }
        let even = n - n % 2;
        let left = along_first(b, x, &extents, (0, even, 2));
        let right = along_first(b, x, &extents, (1, even, 2));
        let joined = b.op(joining(monoid), &[left, right]);
        x = match n > even {
            false => joined,
            true => {
                let last = along_first(b, x, &extents, (even, n, 1));
                b.op_with(Op::Concatenate, &[joined, last], Attrs::none().with_int("axis", 0))
            }
        };
    }
}

/// Elements `from..to` of the first axis, with a stride.
fn along_first(
    b: &mut Builder,
    x: Value,
    extents: &[u64],
    (from, to, by): (i64, i64, i64),
) -> Value {
    let rest = || extents.iter().skip(1);
    let attrs = Attrs::none()
        .with_ints("start", std::iter::once(from).chain(rest().map(|_| 0)))
        .with_ints("limit", std::iter::once(to).chain(rest().map(|&n| n as i64)))
        .with_ints("stride", std::iter::once(by).chain(rest().map(|_| 1)));
    b.op_with(Op::Slice, &[x], attrs)
}

/// The value without its first axis, whose extent is 1.
fn without_first(b: &mut Builder, x: Value) -> Value {
    let mut ty = b.ty(x).clone();
    ty.shape.remove(0);
    b.reshaped(x, &ty)
}

fn with_first(b: &mut Builder, x: Value) -> Value {
    let mut ty = b.ty(x).clone();
    ty.shape.insert(0, Dim::Const(1));
    b.reshaped(x, &ty)
}

fn permuted(b: &mut Builder, x: Value, perm: &[usize]) -> Value {
    if perm.iter().enumerate().all(|(d, &p)| d == p) {
        return x;
    }
    let perm = perm.iter().map(|&p| p as i64);
    b.op_with(Op::Transpose, &[x], Attrs::none().with_ints("perm", perm))
}

/// The value with an axis divided into this many parts, which lie along a new first axis.
fn divided(b: &mut Builder, x: Value, axis: usize, parts: u64) -> Value {
    let ty = b.ty(x).clone();
    let extent = b.extents(&ty)[axis];
    let mut shape: Shape = ty.shape.clone();
    shape[axis] = Dim::Const(extent / parts.max(1));
    shape.insert(axis, Dim::Const(parts));
    let x = b.reshaped(x, &TensorType { dtype: ty.dtype, shape });
    let mut perm: Vec<usize> = (0..=ty.rank()).filter(|&d| d != axis).collect();
    perm.insert(0, axis);
    permuted(b, x, &perm)
}

/// The value without its axis `from`, whose elements are parts of another axis, one after the other. `into` counts axes
/// without `from`.
fn joined(b: &mut Builder, x: Value, from: usize, into: usize) -> Value {
    let rank = b.ty(x).rank();
    let mut perm: Vec<usize> = (0..rank).filter(|&d| d != from).collect();
    perm.insert(into, from);
    let x = permuted(b, x, &perm);
    let ty = b.ty(x).clone();
    let extents = b.extents(&ty);
    let mut shape: Shape = ty.shape.clone();
    shape.remove(into);
    shape[into] = Dim::Const(extents[into].saturating_mul(extents[into + 1]));
    b.reshaped(x, &TensorType { dtype: ty.dtype, shape })
}

/// A collective over a batch whose elements are the ranks, which lie along the first axis of the operand. The result has that
/// axis too unless it [is the same everywhere](Collective::is_same_everywhere).
pub fn over_batch(b: &mut Builder, which: Collective, attrs: &Attrs, x: Option<Value>) -> Value {
    let ranks = attrs.int("ranks");
    let axis = |name: &str| attrs.int(name) as usize;
    let Some(x) = x else {
        let ty = TensorType::new(DType::I32, [Dim::Const(ranks as u64)]);
        return b.op_as(Op::Iota, &[], Attrs::none().with_int("axis", 0), &ty);
    };
    match which {
        Collective::AllReduce(monoid) => {
            let folded = folded_in_pairs(b, x, monoid);
            without_first(b, folded)
        }
        Collective::ReduceScatter => {
            let folded = folded_in_pairs(b, x, Monoid::Sum);
            let folded = without_first(b, folded);
            divided(b, folded, axis("axis"), ranks as u64)
        }
        Collective::AllGather => joined(b, x, 0, axis("axis")),
        Collective::AllToAll => {
            let parts = divided(b, x, axis("split") + 1, ranks as u64);
            joined(b, parts, 1, axis("concat") + 1)
        }
        Collective::Broadcast => {
            let (ty, root) = (b.ty(x).clone(), attrs.int("root"));
            let extents = b.extents(&ty);
            let own = along_first(b, x, &extents, (root, root + 1, 1));
            without_first(b, own)
        }
        Collective::Index => x,
    }
}

/// The function with its collectives in the exchanges that engines have, and ordinary ops: `all_gather` and `all_to_all` along
/// first axes, `broadcast`, and `axis_index`. Of one rank nothing is exchanged.
///
/// # Errors
/// Where an extent is not known.
pub fn with_exchanges(f: Function) -> Result<Function, Diagnostic> {
    if !f.body_insts().iter().any(|&i| f.op(i).collective().is_some()) {
        return Ok(f);
    }
    Copier::new(&f).rebuild(&mut |copier, b, i| {
        match copier.from().op(i).collective() {
            Some(which) => exchanged(copier, b, i, which),
            None => {
                copier.inst(b, i);
            }
        }
        Ok(())
    })
}

/// Writes a collective of processes.
fn exchanged(copier: &mut Copier<'_>, b: &mut Builder, i: Inst, which: Collective) {
    let f = copier.from();
    b.set_phase(f.inst(i).phase);
    b.follow(f, i);
    let attrs = f.attrs(i).clone();
    let made = match (f.args(i).first(), attrs.int("ranks")) {
        (None, 1) => b.literal(&TensorType::scalar(DType::I32), Literal::zero(DType::I32)),
        (None, _) => b.op_with(Op::AxisIndex, &[], attrs),
        (Some(&x), 1) => copier.get(b, x),
        (Some(&x), _) => {
            let dtype = f.ty(x).dtype;
            let sent = match which {
                Collective::AllReduce(_) | Collective::ReduceScatter => unwidened(f, x),
                _ => x,
            };
            let sent = copier.get(b, sent);
            Exchanges { attrs: &attrs, dtype }.of(b, which, sent)
        }
    };
    copier.stand_for(b, f.inst_results(i), &[made]);
}

/// A value as it was before it was widened to be folded: it is sent so, and each rank widens what it is sent.
fn unwidened(f: &Function, x: Value) -> Value {
    match f.def(x) {
        ValueDef::Inst(i, _) if f.op(i) == Op::ConvertElementType => {
            let from = f.args(i)[0];
            let is_wider = f.ty(x).dtype == f.ty(from).dtype.compute();
            if f.ty(from).dtype.is_narrow_float() && is_wider { from } else { x }
        }
        _ => x,
    }
}

/// The exchanges over the axis of a collective.
struct Exchanges<'a> {
    attrs: &'a Attrs,
    /// The element type of its operand, in which ranks fold; what they are sent may be narrower.
    dtype: DType,
}

impl Exchanges<'_> {
    fn of(&self, b: &mut Builder, which: Collective, x: Value) -> Value {
        let axis = |name: &str| self.attrs.int(name) as usize;
        match which {
            Collective::AllReduce(monoid) => self.all_reduce(b, x, monoid),
            Collective::ReduceScatter => {
                let parts = divided(b, x, axis("axis"), self.ranks());
                let parts = self.all_to_all(b, parts);
                let parts = b.converted(parts, self.dtype);
                let folded = folded_in_pairs(b, parts, Monoid::Sum);
                without_first(b, folded)
            }
            // Parts of the first axis lie one after the other.
            Collective::AllGather if axis("axis") == 0 => self.all_gather(b, x),
            Collective::AllGather => {
                let own = with_first(b, x);
                let all = self.all_gather(b, own);
                joined(b, all, 0, axis("axis"))
            }
            Collective::AllToAll => {
                let parts = divided(b, x, axis("split"), self.ranks());
                let parts = self.all_to_all(b, parts);
                joined(b, parts, 0, axis("concat"))
            }
            Collective::Broadcast => b.op_with(Op::Broadcast, &[x], self.attrs.clone()),
            Collective::Index => x,
        }
    }

    fn ranks(&self) -> u64 {
        self.attrs.int("ranks") as u64
    }

    fn over(&self) -> Attrs {
        let name = Attr::Str(self.attrs.text("over").into());
        Attrs::none().with("over", name).with_int("ranks", self.attrs.int("ranks"))
    }

    fn all_gather(&self, b: &mut Builder, x: Value) -> Value {
        b.op_with(Op::AllGather, &[x], self.over().with_int("axis", 0))
    }

    fn all_to_all(&self, b: &mut Builder, x: Value) -> Value {
        b.op_with(Op::AllToAll, &[x], self.over().with_int("split", 0).with_int("concat", 0))
    }

    /// Small ones are sent whole and folded by everybody. Of others each rank folds its part, and sends it to all.
    fn all_reduce(&self, b: &mut Builder, x: Value, monoid: Monoid) -> Value {
        let ty = b.ty(x).clone();
        let folded_ty = ty.with_dtype(self.dtype);
        let elements: u64 = b.extents(&ty).iter().product();
        let row = |rows: u64, n: u64| TensorType::of(ty.dtype, &[rows, n]);
        let bytes = elements.saturating_mul(self.dtype.bits().div_ceil(8).into());
        if bytes <= WHOLE_BYTES {
            let own = b.reshaped(x, &row(1, elements));
            let all = self.all_gather(b, own);
            let all = b.converted(all, self.dtype);
            let folded = folded_in_pairs(b, all, monoid);
            return b.reshaped(folded, &folded_ty);
        }
        let part = elements.div_ceil(self.ranks());
        let (whole, missing) = (part * self.ranks(), part * self.ranks() - elements);
        let mut flat = b.reshaped(x, &TensorType::of(ty.dtype, &[elements]));
        if missing > 0 {
            let zero = b.literal(&TensorType::scalar(ty.dtype), Literal::zero(ty.dtype));
            let ends = Attrs::none().with_ints("low", [0]).with_ints("high", [missing as i64]);
            flat = b.op_with(Op::Pad, &[flat, zero], ends.with_ints("interior", [0]));
        }
        let parts = b.reshaped(flat, &row(self.ranks(), part));
        let parts = self.all_to_all(b, parts);
        let parts = b.converted(parts, self.dtype);
        let folded = folded_in_pairs(b, parts, monoid);
        let mut flat = self.all_gather(b, folded);
        flat = b.reshaped(flat, &TensorType::of(self.dtype, &[whole]));
        if missing > 0 {
            flat = along_first(b, flat, &[whole], (0, elements as i64, 1));
        }
        b.reshaped(flat, &folded_ty)
    }
}
