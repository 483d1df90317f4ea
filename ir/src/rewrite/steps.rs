//! Ops that are a step of their own where an engine has it: written out for engines that do not.

use super::{Copier, Each};
use crate::attrs::Attrs;
use crate::builder::Builder;
use crate::diag::Diagnostic;
use crate::entity::{Inst, Value};
use crate::function::Function;
use crate::op::{Body, Composition, Op, RuleCx, StepBody};
use crate::types::TensorType;

/// What becomes of an op that may be a step of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepLowering {
    /// It stays.
    Kept,
    /// It stays, and works on the type that 16-bit floats are computed in.
    Widened,
    /// This composition of it.
    Composed(Composition),
}

/// The function with each op that may be a step of its own in the form that is asked for, those in regions too.
///
/// # Errors
/// Where a composition needs extents that are not known.
pub fn with_steps(f: &Function, form: &dyn Fn(Op) -> StepLowering) -> Result<Function, Diagnostic> {
    let mut found = false;
    f.walk(&mut |f, i| found |= matches!(f.op(i).def().body, Body::Step(_)));
    if !found {
        return Ok(f.clone());
    }
    Copier::new(f).rebuild(&mut |copier, b, i| place(f, copier, b, i, form))
}

fn place(
    f: &Function,
    copier: &mut Copier<'_>,
    b: &mut Builder,
    i: Inst,
    form: &dyn Fn(Op) -> StepLowering,
) -> Result<(), Diagnostic> {
    let op = f.op(i);
    let form_here = match op.def().body {
        Body::Step(step) => Some((step, form(op))),
        _ => None,
    };
    let args: Vec<Value> = match form_here {
        None | Some((_, StepLowering::Kept)) => Vec::new(),
        Some(_) => f.args(i).iter().map(|&v| copier.get(b, v)).collect(),
    };
    let narrow = |v: &Value| b.ty(*v).dtype.compute() != b.ty(*v).dtype;
    let results = match form_here {
        Some((step, StepLowering::Composed(which))) => {
            b.set_phase(f.inst(i).phase);
            b.follow(f, i);
            composed(b, (step, which), f.attrs(i), &args)
        }
        Some((_, StepLowering::Widened)) if args.first().is_some_and(narrow) => {
            b.set_phase(f.inst(i).phase);
            b.follow(f, i);
            widened(b, f, i, &args)
        }
        _ => {
            let each: Each<'_> = &mut |copier, b, i| place(f, copier, b, i, form);
            copier.inst_with(b, i, each)?;
            return Ok(());
        }
    };
    for (&old, &new) in f.inst_results(i).iter().zip(&results) {
        if b.func().literal(new).is_none() && b.func().name_of(new).is_none() {
            b.func_mut().set_name(new, f.name_of(old));
        }
        copier.set(old, new);
    }
    Ok(())
}

fn composed(
    b: &mut Builder,
    (step, which): (StepBody, Composition),
    attrs: &Attrs,
    args: &[Value],
) -> Vec<Value> {
    let types: Vec<TensorType> = args.iter().map(|&v| b.ty(v).clone()).collect();
    let cx = RuleCx { args, results: &[], attrs, types: &types };
    let compose = match which {
        Composition::Defined => step.defined,
        Composition::Other => step.other,
    };
    compose(b, &cx).to_vec()
}

/// The op on operands of the type that 16-bit floats are computed in. Its definition widens operands first and rounds results
/// last, so no bit changes.
fn widened(b: &mut Builder, f: &Function, i: Inst, args: &[Value]) -> Vec<Value> {
    let convert = |b: &mut Builder, v: Value, ty: &TensorType| match b.ty(v) == ty {
        true => v,
        false => b.op_as(Op::ConvertElementType, &[v], Attrs::none(), ty),
    };
    let wide: Vec<Value> = args
        .iter()
        .map(|&v| {
            let ty = b.ty(v).with_dtype(b.ty(v).dtype.compute());
            convert(b, v, &ty)
        })
        .collect();
    let found = b.inst(f.op(i), &wide, f.attrs(i).clone(), None);
    let types = f.inst_results(i).iter().map(|&v| f.ty(v).clone());
    found.iter().zip(types).map(|(&v, ty)| convert(b, v, &ty)).collect()
}
