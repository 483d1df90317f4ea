//! `linear_transpose`: a user's function that is linear in some of its parameters, turned around.

use crate::forward::prepare_steps;
use crate::positions;
use crate::reverse::last_phase;
use crate::transpose::transpose;
use adfuse_ir::op::{Body, Deriv, Indirect};
use adfuse_ir::rewrite::{Copier, Exactness, cse, dce, inline, simplify};
use adfuse_ir::verify::at_inst;
use adfuse_ir::{At, Builder, Diagnostic, Function, Inst, Kind, Literal, Module, Value};
use cranelift_entity::EntitySet;

/// As [`linear_transpose`](fn@crate::linear_transpose); nothing stays to be closed, since a call's rule says nothing here.
pub(crate) fn open(module: &Module, f: &Function, wrt: &[usize]) -> Result<Function, Diagnostic> {
    let plain = inline(module, &prepare_steps(module, f)?, &|_| true)?;
    let mut ordered = linear_last(&plain, wrt)?;
    dce(&mut ordered);
    let fixed = ordered.params().len() - wrt.len();
    check(&ordered, fixed)?;
    let last = last_phase(&ordered);
    let mut turned = transpose(&ordered, fixed, last.transposed())?;
    turned.name = format!("{}_transpose", f.name);
    let mut turned = simplify(&turned, Exactness::Exact)?;
    cse(&mut turned);
    Ok(turned)
}

/// The function with the parameters at `wrt` after all others.
fn linear_last(f: &Function, wrt: &[usize]) -> Result<Function, Diagnostic> {
    positions(f, wrt)?;
    let mut b = Builder::new(f.name.clone());
    b.func_mut().symbols = f.symbols.clone();
    let mut copier = Copier::new(f);
    let others = (0..f.params().len()).filter(|k| !wrt.contains(k));
    for k in others.chain(wrt.iter().copied()) {
        let p = f.params()[k];
        let new = b.param(f.ty(p).clone(), f.name_of(p));
        copier.set(p, new);
    }
    for &i in f.body_insts() {
        copier.inst(&mut b, i);
    }
    let results: Vec<Value> = f.results().iter().map(|&r| copier.get(&mut b, r)).collect();
    b.set_results(&results);
    b.finish()
}

fn whole(f: &Function) -> At {
    At { func: Some(f.name.clone()), ..At::default() }
}

/// What a transposition takes for granted, since derivatives are so by construction: that linear ops
/// have no part that acts by itself, and that all results are linear.
fn check(f: &Function, fixed: usize) -> Result<(), Diagnostic> {
    let mut linear: EntitySet<Value> = EntitySet::new();
    linear.extend(f.params()[fixed..].iter().copied());
    let mut zero: EntitySet<Value> = EntitySet::new();
    for &i in f.body_insts() {
        if f.reads(i, &|v| linear.contains(v)) {
            inst(f, i, &linear, &zero)?;
            linear.extend(f.inst_results(i).iter().copied());
        } else if moves(f, i).is_some_and(|slots| slots.iter().all(|&a| is_zero(f, &zero, a))) {
            zero.extend(f.inst_results(i).iter().copied());
        }
    }
    for (k, &r) in f.results().iter().enumerate() {
        if !f.ty(r).dtype.is_float() {
            let m = format!("result {k} is {}: only float types have cotangents", f.ty(r));
            return Err(Diagnostic::new(whole(f), Kind::Derivative, m));
        }
        if !linear.contains(r) && !is_zero(f, &zero, r) {
            let m = format!("result {k} does not depend on what it should be linear in");
            return Err(Diagnostic::new(whole(f), Kind::Derivative, m));
        }
    }
    Ok(())
}

fn is_zero(f: &Function, zero: &EntitySet<Value>, v: Value) -> bool {
    f.literal(v).is_some_and(Literal::is_zero) || zero.contains(v)
}

/// The operands that an op is linear in together, if it makes nothing else of them: zero of zeros.
fn moves(f: &Function, i: Inst) -> Option<Vec<Value>> {
    let def = f.op(i).def();
    let fills =
        matches!(def.body, Body::Indirect(Indirect::Gather)) && f.attrs(i).word("mode") == "fill";
    match def.deriv {
        Deriv::Linear(slots, _) if !fills => {
            let args = f.args(i).iter().enumerate().filter(|(k, _)| slots.contains(*k));
            Some(args.map(|(_, &a)| a).collect())
        }
        _ => None,
    }
}

/// Elementwise ops and products are looked at when they are transposed.
fn inst(
    f: &Function,
    i: Inst,
    linear: &EntitySet<Value>,
    zero: &EntitySet<Value>,
) -> Result<(), Diagnostic> {
    let refuse = |m: String| Err(Diagnostic::new(at_inst(f, i), Kind::Derivative, m));
    let op = f.op(i);
    if !f.inst(i).regions.is_empty() {
        return refuse(format!("`{op}` cannot be transposed"));
    }
    if !matches!(op.def().deriv, Deriv::Linear(..)) {
        return Ok(());
    }
    if f.inst_results(i).iter().any(|&r| !f.ty(r).dtype.is_float()) {
        return refuse(format!("`{op}` to another kind of number is not linear"));
    }
    let Some(operands) = moves(f, i) else {
        return refuse(format!("`{op}` fills with NaN: it is not linear"));
    };
    match operands.into_iter().find(|&a| !linear.contains(a) && !is_zero(f, zero, a)) {
        Some(_) => refuse(format!("`{op}` has an operand that acts by itself: it is not linear")),
        None => Ok(()),
    }
}
