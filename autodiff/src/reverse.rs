//! `vjp`, `grad` and `value_and_grad`: linearize, then transpose, in one function.
//!
//! They differ in what the cotangents of the results are. `vjp` takes them as parameters. `grad` is of one
//! scalar, whose cotangent is 1; other results are refused, unless they are handed through as auxiliary ones.

use crate::forward::Pushing;
use crate::linearize::{self, Linearized};
use crate::transpose::transposed;
use adfuse_ir::control::prune;
use adfuse_ir::rewrite::{Copier, Exactness, cse, dce, simplify};
use adfuse_ir::{At, Builder, Diagnostic, Function, Kind, Literal, Module, Phase, Value};

/// Which outputs a gradient function has, and where its cotangents come from.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    /// Whether the primal results come first.
    value: bool,
    /// Where cotangents come from.
    seed: Seed,
    /// What is put after the function's name.
    suffix: &'static str,
}

/// Where the cotangents of the results of a float type come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seed {
    /// Parameters.
    Given,
    /// There is one, a scalar; it is 1.
    One,
    /// The first result is a scalar; it is 1, and the others have none.
    First,
    /// As [`Seed::One`] where that fits, else as [`Seed::Given`].
    Either,
}

/// Of [`vjp`](crate::vjp).
pub(crate) const VJP: Form = Form { value: true, seed: Seed::Given, suffix: "vjp" };
/// Of [`grad`](crate::grad).
pub(crate) const GRAD: Form = Form { value: false, seed: Seed::One, suffix: "grad" };
/// Of [`value_and_grad`](crate::value_and_grad).
pub(crate) const VALUE_AND_GRAD: Form = Form { value: true, ..GRAD };
/// Of [`value_and_grad_has_aux`](crate::value_and_grad_has_aux).
pub(crate) const HAS_AUX: Form = Form { seed: Seed::First, ..VALUE_AND_GRAD };
/// Of [`backward`](crate::backward).
pub(crate) const BACKWARD: Form = Form { seed: Seed::Either, ..GRAD };
/// Of [`forward_and_backward`](crate::forward_and_backward).
pub(crate) const FORWARD_AND_BACKWARD: Form = Form { value: true, ..BACKWARD };

impl Seed {
    /// The cotangents for the results of a float type of `f`.
    fn of(self, f: &Function, float: &[Value]) -> Result<Cotangents, Diagnostic> {
        let scalar = |v: &Value| f.ty(*v).rank() == 0;
        let one = matches!(float, [only] if scalar(only));
        let wrong = |m: String, hint: &str| {
            let at = At { func: Some(f.name.clone()), ..At::default() };
            Err(Diagnostic::new(at, Kind::Usage, m).hint(hint))
        };
        match self {
            Seed::Given => Ok(Cotangents::Parameters),
            Seed::Either if one => Ok(Cotangents::First),
            Seed::Either => Ok(Cotangents::Parameters),
            Seed::One if one => Ok(Cotangents::First),
            Seed::One => {
                let types: Vec<String> = float.iter().map(|&v| f.ty(v).to_string()).collect();
                let found = match types.as_slice() {
                    [] => "no result of a float type".to_string(),
                    [one] => format!("a result of type {one}"),
                    all => format!("{} results of float types, {}", all.len(), all.join(", ")),
                };
                let m = format!("a gradient is of one scalar, and @{} has {found}", f.name);
                let hint = match types.as_slice() {
                    [_] => {
                        "its sum or its mean is a scalar; `vjp` takes a cotangent for a result of any shape"
                    }
                    _ => {
                        "`vjp` takes a cotangent for each result; `value_and_grad_has_aux` differentiates \
                         the first result and hands the others through"
                    }
                };
                wrong(m, hint)
            }
            Seed::First => match f.results().first() {
                Some(v) if f.ty(*v).dtype.is_float() && scalar(v) => Ok(Cotangents::First),
                Some(&v) => wrong(
                    format!("the first result of @{} is {}, not a float scalar", f.name, f.ty(v)),
                    "the result to differentiate comes first, then what is handed through",
                ),
                None => wrong(format!("@{} has no result", f.name), "`vjp` takes any function"),
            },
        }
    }
}

/// The cotangents of the results of a float type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cotangents {
    /// Of each a parameter.
    Parameters,
    /// 1 for the first; the others are not differentiated.
    First,
}

/// The function split for the transposition of its linear part, and that transposed.
fn split(
    module: &Module,
    f: &Function,
    wrt: &[usize],
    differentiated: usize,
) -> Result<(Linearized, Function), Diagnostic> {
    let split = linearize::open(module, f, wrt, Pushing::Transposition, differentiated)?;
    let last = last_phase(&split.primal).max(last_phase(&split.linear));
    let phase = last.transposed();
    if phase == last {
        let at = At { func: Some(f.name.clone()), ..At::default() };
        let m = format!("an instruction of @{} is of phase {}, the last there is", f.name, last.0);
        return Err(Diagnostic::new(at, Kind::Limit, m));
    }
    let backward = transposed(module, &split.linear, split.residuals, phase)?;
    Ok((split, backward))
}

/// The parts of [`vjp`](crate::vjp): what gives results and residuals, and what turns residuals and cotangents into
/// gradients.
pub(crate) fn halves(
    module: &Module,
    f: &Function,
    wrt: &[usize],
) -> Result<[Function; 2], Diagnostic> {
    let (split, backward) = split(module, f, wrt, usize::MAX)?;
    let cleaned = |f: &Function| {
        let mut f = simplify(f, Exactness::Exact)?;
        cse(&mut f);
        dce(&mut f);
        Ok(f)
    };
    Ok([cleaned(&split.primal)?, cleaned(&backward)?])
}

/// The gradient function of this form; calls of functions with a rule stay where no tangent flows
/// into them.
pub(crate) fn open(
    module: &Module,
    f: &Function,
    wrt: &[usize],
    form: Form,
) -> Result<Function, Diagnostic> {
    let mut float: Vec<Value> =
        f.results().iter().copied().filter(|&r| f.ty(r).dtype.is_float()).collect();
    let cotangents = form.seed.of(f, &float)?;
    if cotangents == Cotangents::First {
        // What is handed through has no part in the linear function, so it costs nothing there.
        float.truncate(1);
    }
    let (split, backward) = split(module, f, wrt, float.len())?;

    let mut b = Builder::new(format!("{}_{}", f.name, form.suffix));
    b.func_mut().symbols = f.symbols.clone();
    let mut primal = Copier::new(&split.primal);
    primal.params(&mut b);
    // Cotangent parameters come before all instructions, after the function's own parameters.
    let mut cts = Vec::new();
    for (k, &r) in float.iter().enumerate() {
        let ty = f.ty(r).clone();
        cts.push(if cotangents == Cotangents::First {
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
    prune(&joint)
}

/// The latest phase of an instruction.
pub(crate) fn last_phase(f: &Function) -> Phase {
    let mut last = Phase::PRIMAL;
    f.walk(&mut |f, i| last = last.max(f.inst(i).phase));
    last
}
