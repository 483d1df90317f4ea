//! Scanned operands whose elements are all equal: broadcasts along the first axis, and literals. The body reads what is
//! broadcast, so that no stack of it is made.

use super::scan_body::{ScanBody, ScannedInput};
use adfuse_ir::rewrite::Copier;
use adfuse_ir::{Attrs, Builder, Diagnostic, Function, Op, TensorType, Value, ValueDef};

/// What the elements of a scanned operand are.
enum UniformElement {
    /// Not known to be equal.
    Differs,
    /// An operand that is a literal.
    Literal,
    /// This value, with its axes at these places of the element.
    Broadcast(Value, Vec<i64>),
}

/// The loop, in whose body equal elements are captured. `outer` is the function that the loop is in.
pub(super) fn uniform_elements(outer: &Function, scan: ScanBody) -> Result<ScanBody, Diagnostic> {
    let kinds: Vec<UniformElement> = scan.xs.iter().map(|x| kind(outer, x)).collect();
    if kinds.iter().all(|k| matches!(k, UniformElement::Differs)) {
        return Ok(scan);
    }
    let f = &scan.body;
    let mut b = Builder::new(f.name.clone());
    b.func_mut().symbols = f.symbols.clone();
    let mut copier = Copier::new(f);
    let [outside, carry, elements] = scan.params();
    outside.iter().for_each(|&p| copier.param(&mut b, p));
    let mut captures = scan.captures.clone();
    let mut bases: Vec<Option<Value>> = Vec::new();
    for kind in &kinds {
        bases.push(match kind {
            UniformElement::Broadcast(v, _) => Some(match outer.literal(*v) {
                Some(l) => b.literal(outer.ty(*v), l),
                None => {
                    captures.push(*v);
                    b.param(outer.ty(*v).clone(), outer.name_of(*v))
                }
            }),
            _ => None,
        });
    }
    carry.iter().for_each(|&p| copier.param(&mut b, p));
    let mut xs = Vec::new();
    for ((&p, kind), &x) in elements.iter().zip(&kinds).zip(&scan.xs) {
        if matches!(kind, UniformElement::Differs) {
            copier.param(&mut b, p);
            xs.push(x);
        }
    }
    for (((&p, kind), base), x) in elements.iter().zip(&kinds).zip(&bases).zip(&scan.xs) {
        let new = match (kind, base, x) {
            (UniformElement::Broadcast(_, dims), &Some(v), _) => {
                placed_in(&mut b, v, dims, f.ty(p))
            }
            (UniformElement::Literal, _, ScannedInput::Elements(v)) => match outer.literal(*v) {
                Some(l) => b.literal(f.ty(p), l),
                None => continue,
            },
            _ => continue,
        };
        copier.set(p, new);
    }
    for &i in f.body_insts() {
        copier.inst(&mut b, i);
    }
    let results: Vec<Value> = f.results().iter().map(|&v| copier.get(&mut b, v)).collect();
    b.set_results(&results);
    ScanBody { captures, xs, body: b.finish()?, ..scan }.tidied()
}

fn kind(f: &Function, x: &ScannedInput) -> UniformElement {
    let ScannedInput::Elements(v) = *x else { return UniformElement::Differs };
    if f.literal(v).is_some() {
        return UniformElement::Literal;
    }
    match f.def(v) {
        ValueDef::Inst(i, 0) if f.op(i) == Op::BroadcastInDim => {
            let dims = f.attrs(i).ints("dims");
            match dims.contains(&0) {
                true => UniformElement::Differs,
                false => {
                    UniformElement::Broadcast(f.args(i)[0], dims.iter().map(|d| d - 1).collect())
                }
            }
        }
        _ => UniformElement::Differs,
    }
}

/// A value with its axes at these places of a type.
fn placed_in(b: &mut Builder, v: Value, dims: &[i64], ty: &TensorType) -> Value {
    if b.ty(v) == ty && dims.iter().copied().eq(0..ty.rank() as i64) {
        return v;
    }
    b.op_as(Op::BroadcastInDim, &[v], Attrs::none().with_ints("dims", dims.to_vec()), ty)
}

/// The stack of this number of equal elements.
pub(super) fn repeated(b: &mut Builder, v: Value, trips: u64) -> Value {
    let ty = adfuse_ir::control::stacked(b.ty(v), adfuse_ir::Dim::Const(trips));
    match b.func().literal(v) {
        Some(l) => b.literal(&ty, l),
        None => {
            let dims: Vec<i64> = (1..ty.rank() as i64).collect();
            b.op_as(Op::BroadcastInDim, &[v], Attrs::none().with_ints("dims", dims), &ty)
        }
    }
}
