//! `vjp`, `grad` and `value_and_grad`: linearize, then transpose, in one function.

use crate::derived::closed;
use crate::forward::Pushing;
use crate::linearize;
use crate::transpose::transposed;
use adfuse_ir::rewrite::{Copier, Exactness, cse, simplify};
use adfuse_ir::{At, Builder, Diagnostic, Function, Kind, Literal, Module, Phase, Value};

/// Which outputs a gradient function has, and where its cotangents come from.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    /// Whether the primal results come first.
    value: bool,
    /// Whether a single scalar result is seeded with 1, so that it takes no cotangent.
    seed: bool,
    /// What is put after the function's name.
    suffix: &'static str,
}

/// Of [`vjp`].
pub(crate) const VJP: Form = Form { value: true, seed: false, suffix: "vjp" };
/// Of [`grad`].
pub(crate) const GRAD: Form = Form { value: false, seed: true, suffix: "grad" };
/// Of [`value_and_grad`].
pub(crate) const VALUE_AND_GRAD: Form = Form { value: true, ..GRAD };

/// The function `(x.., ct..) -> (y.., x_ct..)`: a cotangent for each result of a float type, a
/// gradient for each parameter at a position in `wrt`.
///
/// # Errors
/// Where an instruction has no derivative rule, with its place.
pub fn vjp(module: &Module, f: &Function, wrt: &[usize]) -> Result<Function, Diagnostic> {
    closed(module, open(module, f, wrt, VJP)?)
}

/// The results, then the gradient of the result with respect to each parameter at `wrt`.
///
/// A function with exactly one result of a float type, a scalar, is seeded with 1; any other takes a
/// cotangent for each result of a float type, after its own parameters.
///
/// # Errors
/// As [`vjp`].
pub fn value_and_grad(
    module: &Module,
    f: &Function,
    wrt: &[usize],
) -> Result<Function, Diagnostic> {
    closed(module, open(module, f, wrt, VALUE_AND_GRAD)?)
}

/// As [`value_and_grad`], without the results.
///
/// # Errors
/// As [`vjp`].
pub fn grad(module: &Module, f: &Function, wrt: &[usize]) -> Result<Function, Diagnostic> {
    closed(module, open(module, f, wrt, GRAD)?)
}

/// The gradient function of this form; calls of functions with a rule stay where no tangent flows
/// into them.
pub(crate) fn open(
    module: &Module,
    f: &Function,
    wrt: &[usize],
    form: Form,
) -> Result<Function, Diagnostic> {
    let split = linearize::open(module, f, wrt, Pushing::ToTranspose)?;
    let last = last_phase(&split.primal).max(last_phase(&split.linear));
    let phase = last.transposed();
    if phase == last {
        let at = At { func: Some(f.name.clone()), ..At::default() };
        let m = format!("an instruction of @{} is of phase {}, the last there is", f.name, last.0);
        return Err(Diagnostic::new(at, Kind::Limit, m));
    }
    let backward = transposed(module, &split.linear, split.residuals, phase)?;

    let mut b = Builder::new(format!("{}_{}", f.name, form.suffix));
    b.func_mut().symbols = f.symbols.clone();
    let mut primal = Copier::new(&split.primal);
    primal.params(&mut b);
    // Cotangent parameters come before all instructions, after the function's own parameters.
    let float: Vec<Value> =
        f.results().iter().copied().filter(|&r| f.ty(r).dtype.is_float()).collect();
    let seeded = form.seed && matches!(float.as_slice(), &[r] if f.ty(r).rank() == 0);
    let mut cts = Vec::new();
    for (k, &r) in float.iter().enumerate() {
        let ty = f.ty(r).clone();
        cts.push(if seeded {
            b.literal(&ty, Literal::one(ty.dtype))
        } else {
            let taken = |n: &str| b.func().params().iter().any(|&p| b.func().name_of(p) == Some(n));
            let name = match f.name_of(r) {
                Some(n) if !taken(&format!("{n}_ct")) => format!("{n}_ct"),
                _ => format!("ct{k}"),
            };
            b.param(ty, Some(&name))
        });
    }
    for &i in split.primal.body_insts() {
        primal.inst(&mut b, i);
    }
    let all: Vec<Value> = split.primal.results().iter().map(|&v| primal.get(&mut b, v)).collect();
    let (values, residuals) = all.split_at(f.results().len());
    let mut reverse = Copier::new(&backward);
    for (&p, &v) in backward.params().iter().zip(residuals.iter().chain(&cts)) {
        reverse.set(p, v);
    }
    for &i in backward.body_insts() {
        reverse.inst(&mut b, i);
    }
    let mut results = if form.value { values.to_vec() } else { Vec::new() };
    for &r in backward.results() {
        results.push(reverse.get(&mut b, r));
    }
    b.set_results(&results);
    let mut joint = simplify(&b.finish()?, Exactness::Exact)?;
    cse(&mut joint);
    Ok(joint)
}

/// The latest phase of an instruction.
pub(crate) fn last_phase(f: &Function) -> Phase {
    let mut last = Phase::PRIMAL;
    f.walk(&mut |f, i| last = last.max(f.inst(i).phase));
    last
}
