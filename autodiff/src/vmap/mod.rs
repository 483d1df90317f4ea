//! `vmap`: a function of one element becomes a function of a batch, as if it ran on each by itself.
//!
//! Inside, a value that depends on the batch has it as its first axis; all others stay as they are.
//! What an op becomes follows from its body: elementwise ops take batched operands, views, reductions
//! and scans shift their axes, a contraction gains a batch axis or a free one, what is generated from
//! operands is written out in elementwise ops. Only ops that move elements by index values, and
//! regions, say more. Every element has the bits that the function gives it alone.

mod attrs;
mod batching;
mod branch;
mod call;
mod collective;
mod contract;
mod flow;
mod indirect;
mod loops;
mod mask;
mod source;
mod update;
mod view;

pub use batching::{Batching, Random};
pub(crate) use call::Callees;

use crate::forward::prepare;
use adfuse_ir::diag::listed;
use adfuse_ir::op::{Body, Control, batched_opaque};
use adfuse_ir::rewrite::{Copier, cse, dce};
use adfuse_ir::text::Names;
use adfuse_ir::verify::at_inst;
use adfuse_ir::{
    At, Attrs, Builder, DType, Diagnostic, Dim, Function, Inst, Kind, Module, Op, Phase,
    TensorType, Value, ValueDef,
};
use cranelift_entity::EntitySet;
use mask::{LaneMask, gated};

/// As [`vmap`](fn@crate::vmap); calls of functions with a rule stay, to batched callees that go into `callees`.
pub(crate) fn open(
    module: &Module,
    f: &Function,
    batching: &Batching,
    callees: &mut Callees,
) -> Result<Function, Diagnostic> {
    let mut made = body(module, &prepare(module, f)?, batching, callees)?;
    made.name = format!("{}_vmap", f.name);
    Ok(made)
}

/// The batched form of a function that calls only functions with a rule.
fn body(
    module: &Module,
    f: &Function,
    batching: &Batching,
    callees: &mut Callees,
) -> Result<Function, Diagnostic> {
    let results = check(f, batching)?;
    let mapped = flow::mapped(f, batching);
    let mut b = Builder::new(f.name.clone());
    b.func_mut().symbols = f.symbols.clone();
    if let Dim::Sym(s) = batching.size
        && !f.symbols.contains(&s)
    {
        b.func_mut().symbols.push(s);
    }
    let (values, least) = (Copier::new(f), Phase::PRIMAL);
    let mut batch = Batch { module, f, batching, mapped, values, least, lanes: None, callees };
    for (&p, &axis) in f.params().iter().zip(&batching.params) {
        let Some(axis) = axis else {
            let new = b.param(f.ty(p).clone(), f.name_of(p));
            batch.values.set(p, new);
            continue;
        };
        let ty = with_axis(f.ty(p), axis, batching.size);
        within(&ty).map_err(|why| whole(f, Kind::Limit, format!("a batched parameter: {why}")))?;
        let new = b.param(ty, f.name_of(p));
        batch.values.set(p, new);
    }
    for (&p, &axis) in f.params().iter().zip(&batching.params) {
        if let Some(axis) = axis {
            let new = batch.values.get(&mut b, p);
            let first = to_front(&mut b, new, axis);
            batch.values.set(p, first);
        }
    }
    for &i in f.body_insts() {
        batch.inst(&mut b, i)?;
    }
    let mut out = Vec::new();
    for (k, (&r, &axis)) in f.results().iter().zip(&results).enumerate() {
        let new = batch.values.get(&mut b, r);
        let phase = match b.func().def(new) {
            ValueDef::Inst(i, _) => b.func().inst(i).phase,
            _ => Phase::PRIMAL,
        };
        b.set_phase(phase);
        let value = match axis {
            None if batch.mapped.contains(r) => {
                let m = format!("result {k} depends on a mapped parameter: it needs an axis");
                return Err(whole(f, Kind::Usage, m));
            }
            None => new,
            Some(axis) => batch.at_axis(&mut b, r, axis),
        };
        out.push(value);
    }
    b.set_results(&out);
    let mut made = b.finish()?;
    cse(&mut made);
    dce(&mut made);
    Ok(made)
}

/// The axes of the results, once the batching is known to fit.
fn check(f: &Function, batching: &Batching) -> Result<Vec<Option<usize>>, Diagnostic> {
    let names = Names::of(f);
    let named = |v: Value| format!("%{}", names.get(v));
    let fits = |what: &str, values: &[Value], axes: &[Option<usize>]| {
        if axes.len() != values.len() {
            let m = format!("{} axes for {} {what}s", axes.len(), values.len());
            let all: Vec<String> = values.iter().map(|&v| named(v)).collect();
            return Err(whole(f, Kind::Usage, m).hint(listed(&all, "")));
        }
        for (k, (&v, axis)) in values.iter().zip(axes).enumerate() {
            let ty = f.ty(v);
            if axis.is_some() && ty.dtype == DType::Token {
                let m = format!("{what} {k} is a token: effects cannot be batched");
                return Err(whole(f, Kind::Effect, m));
            }
            if axis.is_some_and(|a| a > ty.rank()) {
                let a = axis.unwrap_or_default();
                let m = format!("{what} {k} is {ty}: it cannot have the batch as axis {a}");
                let most = ty.rank();
                let d = whole(f, Kind::Usage, m);
                return Err(d.hint(format!("{} has room for it at axes 0 to {most}", named(v))));
            }
        }
        Ok(())
    };
    fits("parameter", f.params(), &batching.params)?;
    let results = batching.results.clone().unwrap_or_else(|| vec![Some(0); f.results().len()]);
    fits("result", f.results(), &results)?;
    Ok(results)
}

fn whole(f: &Function, kind: Kind, message: impl Into<String>) -> Diagnostic {
    Diagnostic::new(At { func: Some(f.name.clone()), ..At::default() }, kind, message)
}

fn within(ty: &TensorType) -> Result<(), String> {
    ty.excess().map_or(Ok(()), Err)
}

/// The type with one axis more.
fn with_axis(ty: &TensorType, axis: usize, size: Dim) -> TensorType {
    let mut ty = ty.clone();
    ty.shape.insert(axis, size);
    ty
}

/// The value with its axis `from` as the first, the others in order.
fn to_front(b: &mut Builder, v: Value, from: usize) -> Value {
    let rank = b.ty(v).rank();
    let rest = (0..rank).filter(|&d| d != from);
    let perm: Vec<usize> = std::iter::once(from).chain(rest).collect();
    transposed(b, v, &perm)
}

/// The value with its first axis as axis `to`.
fn from_front(b: &mut Builder, v: Value, to: usize) -> Value {
    let mut perm: Vec<usize> = (1..b.ty(v).rank()).collect();
    perm.insert(to, 0);
    transposed(b, v, &perm)
}

fn transposed(b: &mut Builder, v: Value, perm: &[usize]) -> Value {
    if perm.iter().enumerate().all(|(d, &p)| d == p) {
        return v;
    }
    let attrs = Attrs::none().with_ints("perm", perm.iter().map(|&p| p as i64));
    b.op_with(Op::Transpose, &[v], attrs)
}

/// The value repeated along a new axis of this extent. A literal stays one.
fn repeated(b: &mut Builder, v: Value, axis: usize, size: Dim) -> Value {
    let ty = with_axis(b.ty(v), axis, size);
    if let Some(l) = b.func().literal(v) {
        return b.literal(&ty, l);
    }
    let dims = (0..ty.rank() as i64).filter(|&d| d != axis as i64);
    b.op_as(Op::BroadcastInDim, &[v], Attrs::none().with_ints("dims", dims), &ty)
}

/// A function on its way into its batched form.
struct Batch<'f, 'c> {
    module: &'f Module,
    f: &'f Function,
    batching: &'f Batching,
    /// Old values that have the batch as the first axis of their new ones.
    mapped: EntitySet<Value>,
    values: Copier<'f>,
    /// No instruction is placed in a phase before this.
    least: Phase,
    /// The elements that take the region under way, where not all do.
    lanes: Option<LaneMask>,
    callees: &'c mut Callees,
}

impl<'f> Batch<'f, '_> {
    fn error(&self, i: Inst, kind: Kind, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(at_inst(self.f, i), kind, message)
    }

    fn phase(&self, i: Inst) -> Phase {
        self.f.inst(i).phase.max(self.least)
    }

    fn size(&self) -> Dim {
        self.batching.size
    }

    fn is_mapped(&self, old: Value) -> bool {
        self.mapped.contains(old)
    }

    /// The type of an old value's batched form.
    fn type_of(&self, old: Value) -> TensorType {
        with_axis(self.f.ty(old), 0, self.size())
    }

    /// The new value for an old one, with the batch as its first axis: repeated if it has none.
    fn batched(&mut self, b: &mut Builder, old: Value) -> Value {
        self.at_axis(b, old, 0)
    }

    /// As [`Batch::batched`], with the batch as another axis.
    fn at_axis(&mut self, b: &mut Builder, old: Value, axis: usize) -> Value {
        let new = self.values.get(b, old);
        if self.is_mapped(old) {
            return from_front(b, new, axis);
        }
        match self.lanes {
            // Derivatives pass for the elements that take the region alone: for another, one may be infinite.
            Some(mask) if self.shares(old) => {
                let all = repeated(b, new, 0, self.size());
                let gated = gated(b, all, true, mask);
                from_front(b, gated, axis)
            }
            _ => repeated(b, new, axis, self.size()),
        }
    }

    /// Whether a derivative may pass to a value that all elements share.
    fn shares(&self, old: Value) -> bool {
        let float = self.f.ty(old).dtype.is_float();
        float && !self.is_mapped(old) && self.f.literal(old).is_none()
    }

    fn inst(&mut self, b: &mut Builder, i: Inst) -> Result<(), Diagnostic> {
        let f = self.f;
        let body = f.op(i).def().body;
        b.set_phase(self.phase(i));
        b.follow(f, i);
        if matches!(body, Body::Effect(_)) || matches!(body, Body::Opaque) && f.has_effect(i) {
            let m = format!("`{}` is an effect: it cannot be batched", f.op(i));
            return Err(self.error(i, Kind::Effect, m));
        }
        if let Some(out) = self.over_ranks(b, i)? {
            return self.settled(b, i, &out);
        }
        if f.op(i) == Op::Call {
            self.refuse_exchanges(i)?;
        }
        let moves = f.inst_results(i).iter().any(|&v| self.is_mapped(v));
        match f.op(i).control() {
            Some(Control::Branch) => return self.branch(b, i),
            Some(Control::While) => return self.while_loop(b, i),
            Some(Control::Loop(_)) => return self.steps(b, i),
            Some(Control::Call) | None => {}
        }
        if !moves {
            return self.shared(b, i);
        }
        for &r in f.inst_results(i) {
            within(&self.type_of(r))
                .map_err(|why| self.error(i, Kind::Limit, format!("batched: {why}")))?;
        }
        let mut out = match body {
            Body::Map(_) => self.map(b, i),
            Body::View(_) => self.view(b, i)?,
            Body::Reduce(_) | Body::Scan(_) | Body::Collective(_) => self.shifted(b, i)?,
            Body::Contract => vec![self.contract(b, i)],
            Body::Indirect(which) => vec![self.indirect(b, i, which)?],
            Body::Source(_) => vec![self.source(b, i)?],
            Body::Region(Control::Call) => self.call(b, i)?,
            Body::Opaque => vec![self.opaque(b, i)?],
            Body::Step(_) => self.attention(b, i),
            // Not written out for its rules: it has any number of batch axes before its own.
            Body::Composed(_) => self.batched_inst(b, i, f.attrs(i).clone()),
            Body::Constant | Body::Effect(_) | Body::Region(_) => {
                let m = format!("`{}` is no op that depends on a batch", f.op(i));
                return Err(self.error(i, Kind::Internal, m));
            }
        };
        if let Some(mask) = self.lanes
            && !matches!(body, Body::Map(_))
            && f.args(i).iter().any(|&a| self.shares(a))
        {
            // What all share is not repeated here, so the cotangents that are summed for it are cleared.
            for (&old, new) in f.inst_results(i).iter().zip(&mut out) {
                if f.ty(old).dtype.is_float() {
                    *new = gated(b, *new, true, mask);
                }
            }
        }
        self.settled(b, i, &out)
    }

    /// Has these values stand for the results of an instruction.
    fn settled(&mut self, b: &mut Builder, i: Inst, out: &[Value]) -> Result<(), Diagnostic> {
        let f = self.f;
        if let Some(d) = b.error() {
            let m = format!("`{}` has no batched form here: {}", f.op(i), d.message);
            return Err(self.error(i, Kind::Unsupported, m));
        }
        self.values.stand_for(b, f.inst_results(i), out);
        Ok(())
    }

    /// An instruction that all elements share.
    fn shared(&mut self, b: &mut Builder, i: Inst) -> Result<(), Diagnostic> {
        let f = self.f;
        let random = matches!(f.op(i).def().body, Body::Source(_)) && !f.args(i).is_empty();
        if random && self.batching.random == Random::Refused {
            let m = format!("all elements of the batch would share what `{}` draws", f.op(i));
            let hint = "map its seed or its offset, or ask for the same bits";
            return Err(self.error(i, Kind::Unsupported, m).hint(hint));
        }
        if let Some(mask) = self.lanes
            && f.op(i) == Op::Call
            && self.has_while(f.attrs(i).text("func"))
            && !f.has_effect(i)
        {
            self.shared_call(b, i, mask);
            return Ok(());
        }
        let new = self.values.inst(b, i);
        b.func_mut().set_phase(new, self.phase(i));
        Ok(())
    }

    /// A call of the function that takes the batch along first axes.
    fn opaque(&mut self, b: &mut Builder, i: Inst) -> Result<Value, Diagnostic> {
        let f = self.f;
        let Some(attrs) = batched_opaque(f.attrs(i)) else {
            let m = format!("`{}` is known for one element alone", f.attrs(i).text("name"));
            let hint = "name a function over a batch, as `batched = \"..\"`";
            return Err(self.error(i, Kind::Unsupported, m).hint(hint));
        };
        let args: Vec<Value> = f.args(i).iter().map(|&a| self.batched(b, a)).collect();
        let ty = self.type_of(f.inst_results(i)[0]);
        Ok(b.op_as(Op::Opaque, &args, attrs, &ty))
    }

    /// Attention, which has any number of batch axes before those of heads.
    fn attention(&mut self, b: &mut Builder, i: Inst) -> Vec<Value> {
        let f = self.f;
        let mut args = Vec::new();
        for (k, &a) in f.args(i).iter().enumerate() {
            // A mask or a bias that all elements share is repeated by the op itself.
            let last = k + 1 == f.args(i).len() && k % 3 == 0;
            args.push(if last && !self.is_mapped(a) && self.lanes.is_none() {
                let ty = with_axis(f.ty(a), 0, Dim::Const(1));
                let own = self.values.get(b, a);
                b.op_as(Op::Reshape, &[own], Attrs::none(), &ty)
            } else {
                self.batched(b, a)
            });
        }
        let types: Vec<TensorType> = f.inst_results(i).iter().map(|&v| self.type_of(v)).collect();
        b.inst(f.op(i), &args, f.attrs(i).clone(), Some(&types)).to_vec()
    }

    /// The same op with these attributes, of operands with the batch axis.
    fn batched_inst(&mut self, b: &mut Builder, i: Inst, attrs: Attrs) -> Vec<Value> {
        let f = self.f;
        let args: Vec<Value> = f.args(i).iter().map(|&a| self.batched(b, a)).collect();
        let types: Vec<TensorType> = f.inst_results(i).iter().map(|&v| self.type_of(v)).collect();
        b.inst(f.op(i), &args, attrs, Some(&types)).to_vec()
    }

    fn map(&mut self, b: &mut Builder, i: Inst) -> Vec<Value> {
        let f = self.f;
        let args: Vec<Value> = f.args(i).iter().map(|&a| self.batched(b, a)).collect();
        let ty = self.type_of(f.inst_results(i)[0]);
        vec![b.op_as(f.op(i), &args, f.attrs(i).clone(), &ty)]
    }

    /// The same op with its axes shifted.
    pub(super) fn shifted(&mut self, b: &mut Builder, i: Inst) -> Result<Vec<Value>, Diagnostic> {
        let f = self.f;
        let attrs = attrs::shifted(f.op(i), f.attrs(i), self.size())
            .map_err(|m| self.error(i, Kind::Unsupported, m))?;
        Ok(self.batched_inst(b, i, attrs))
    }
}
