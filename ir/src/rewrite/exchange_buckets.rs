//! Buckets: exchanges of small tensors are joined, since each exchange has a cost.
//!
//! Collectives of one kind that follow each other become one of all their tensors, as soon as these have enough bytes or one of
//! the results is read by more than a view. What is joined are the tensors' elements along one axis, so that elements are summed as before.

use super::Copier;
use crate::ValueDef;
use crate::attrs::Attrs;
use crate::builder::Builder;
use crate::captures::reads;
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::entity::{Inst, Phase, Value};
use crate::function::Function;
use crate::op::{Body, Collective, Monoid, Op};
use crate::types::TensorType;
use cranelift_entity::EntitySet;

/// How many bytes exchanges are joined to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExchangeBuckets {
    /// Tensors of at least this number of bytes are summed by themselves.
    pub alone: u64,
    /// Tensors of at least this number of bytes are gathered by themselves: what reads them reads dense arrays, and finds them in
    /// pieces where they were joined.
    pub dense: u64,
    /// Tensors that have this number of bytes together are exchanged, whatever follows.
    pub full: u64,
}

/// The function with sums over ranks, and gathered and scattered tensors along first axes, joined to buckets.
///
/// # Errors
/// Those of construction.
pub fn joined_exchanges(f: &Function, sizes: ExchangeBuckets) -> Result<Function, Diagnostic> {
    let mut copier = Copier::new(f);
    let mut b = copier.begin();
    let mut open = OpenBuckets { f, buckets: Vec::new() };
    for &i in f.body_insts() {
        if open.views(i) {
            continue;
        }
        let read = reads(f, i);
        open.close(&mut copier, &mut b, |bucket| read.iter().any(|&v| bucket.gives.contains(v)));
        let Some(kind) = BucketKind::of(f, i).filter(|kind| kind.joins(f, i, sizes)) else {
            copier.inst(&mut b, i);
            continue;
        };
        open.add(kind, i);
        open.close(&mut copier, &mut b, |bucket| bucket.bytes >= sizes.full);
    }
    open.close(&mut copier, &mut b, |_| true);
    copier.finish(b)
}

/// What may be joined.
#[derive(Clone, PartialEq, Eq)]
struct BucketKind {
    op: Op,
    attrs: Attrs,
    dtype: DType,
    /// The type that operands had before they were widened.
    sent: DType,
    /// What reads a result may be of no later phase.
    phase: Phase,
}

impl BucketKind {
    fn of(f: &Function, i: Inst) -> Option<BucketKind> {
        let &[x] = f.args(i) else { return None };
        let ty = f.ty(x);
        let first = || f.attrs(i).int("axis") == 0 && ty.rank() > 0;
        let fits = match f.op(i).collective()? {
            Collective::AllReduce(Monoid::Sum) => true,
            Collective::AllGather | Collective::ReduceScatter => first(),
            _ => false,
        };
        let sent = f.ty(unwidened(f, x)).dtype;
        (fits && ty.dims().is_some() && f.literal(x).is_none()).then(|| BucketKind {
            op: f.op(i),
            attrs: f.attrs(i).clone(),
            dtype: ty.dtype,
            sent,
            phase: f.inst(i).phase,
        })
    }

    /// The bytes of the whole tensor of an exchange.
    fn bytes(&self, f: &Function, i: Inst) -> u64 {
        let whole = match self.op {
            Op::AllGather => f.inst_results(i)[0],
            _ => f.args(i)[0],
        };
        f.ty(whole).elements().unwrap_or(u64::MAX).saturating_mul(self.dtype.bytes())
    }

    fn joins(&self, f: &Function, i: Inst, sizes: ExchangeBuckets) -> bool {
        self.bytes(f, i) < if self.op == Op::AllGather { sizes.dense } else { sizes.alone }
    }

    fn ranks(&self) -> u64 {
        self.attrs.int("ranks") as u64
    }
}

fn unwidened(f: &Function, x: Value) -> Value {
    match f.def(x) {
        ValueDef::Inst(i, _) if f.op(i) == Op::ConvertElementType => {
            let from = f.args(i)[0];
            if f.ty(from).dtype.is_narrow_float() { from } else { x }
        }
        _ => x,
    }
}

struct Bucket {
    kind: BucketKind,
    bytes: u64,
    members: Vec<Inst>,
    /// Views of what it gives.
    views: Vec<Inst>,
    /// The results of all these.
    gives: EntitySet<Value>,
}

struct OpenBuckets<'f> {
    f: &'f Function,
    buckets: Vec<Bucket>,
}

impl OpenBuckets<'_> {
    fn add(&mut self, kind: BucketKind, i: Inst) {
        let at = self.buckets.iter().position(|bucket| bucket.kind == kind);
        let bytes = kind.bytes(self.f, i);
        let at = at.unwrap_or_else(|| {
            let (members, views, gives) = (Vec::new(), Vec::new(), EntitySet::new());
            self.buckets.push(Bucket { kind, bytes: 0, members, views, gives });
            self.buckets.len() - 1
        });
        let bucket = &mut self.buckets[at];
        bucket.bytes = bucket.bytes.saturating_add(bytes);
        bucket.members.push(i);
        bucket.gives.extend(self.f.inst_results(i).iter().copied());
    }

    /// Whether an instruction is a view of what a bucket gives, which comes with that.
    fn views(&mut self, i: Inst) -> bool {
        let f = self.f;
        let (Body::View(_), &[x]) = (f.op(i).def().body, f.args(i)) else { return false };
        let of = self.buckets.iter_mut().find(|bucket| bucket.gives.contains(x));
        let Some(bucket) = of else { return false };
        bucket.views.push(i);
        bucket.gives.extend(f.inst_results(i).iter().copied());
        true
    }

    /// Writes the buckets that are due.
    fn close(
        &mut self,
        copier: &mut Copier<'_>,
        b: &mut Builder,
        is_due: impl Fn(&Bucket) -> bool,
    ) {
        let mut at = 0;
        while at < self.buckets.len() {
            if is_due(&self.buckets[at]) {
                self.buckets.remove(at).written(copier, b);
            } else {
                at += 1;
            }
        }
    }
}

impl Bucket {
    fn written(self, copier: &mut Copier<'_>, b: &mut Builder) {
        match *self.members.as_slice() {
            [only] => {
                copier.inst(b, only);
            }
            _ => self.joined(copier, b),
        }
        for &i in &self.views {
            copier.inst(b, i);
        }
    }

    fn joined(&self, copier: &mut Copier<'_>, b: &mut Builder) {
        let f = copier.from();
        let last = self.members[self.members.len() - 1];
        b.set_phase(self.kind.phase);
        b.follow(f, last);
        let rows = match self.kind.op {
            Op::ReduceScatter => self.kind.ranks(),
            _ => 1,
        };
        // Every operand as rows, of which one goes to each rank, or one to all.
        let mut sent = Vec::new();
        for &i in &self.members {
            let x = copier.get(b, unwidened(f, f.args(i)[0]));
            let columns = f.ty(f.args(i)[0]).elements().unwrap_or(0) / rows;
            sent.push(b.reshaped(x, &TensorType::of(self.kind.sent, &[rows, columns])));
        }
        let along = Attrs::none().with_int("axis", 1);
        let joined = b.op_with(Op::Concatenate, &sent, along);
        let joined = b.converted(joined, self.kind.dtype);
        let all = b.op_with(self.kind.op, &[joined], self.kind.attrs.clone());
        let rows = b.ty(all).dims().map_or(1, |dims| dims[0]);
        let mut from = 0;
        for &i in &self.members {
            let ty = f.ty(f.inst_results(i)[0]).clone();
            let columns = ty.elements().unwrap_or(0) / rows.max(1);
            let to = from + columns;
            let attrs = Attrs::none()
                .with_ints("start", [0, from as i64])
                .with_ints("limit", [rows as i64, to as i64])
                .with_ints("stride", [1, 1]);
            from = to;
            let own = b.op_with(Op::Slice, &[all], attrs);
            let own = b.reshaped(own, &ty);
            copier.stand_for(b, f.inst_results(i), &[own]);
        }
    }
}
