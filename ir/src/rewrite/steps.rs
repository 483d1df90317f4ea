//! Ops that are a step of their own where an engine has it: written out for engines that do not.

use super::Copier;
use super::inline::compose_at;
use crate::builder::Builder;
use crate::diag::Diagnostic;
use crate::entity::{Inst, Value};
use crate::function::Function;
use crate::op::{Body, Composition, Op};

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
pub fn with_steps(f: Function, form: &dyn Fn(Op) -> StepLowering) -> Result<Function, Diagnostic> {
    let mut found = false;
    f.walk(&mut |f, i| found |= matches!(f.op(i).def().body, Body::Step(_)));
    if !found {
        return Ok(f);
    }
    Copier::new(&f).rebuild(&mut |copier, b, i| place(copier, b, i, form))
}

fn place(
    copier: &mut Copier<'_>,
    b: &mut Builder,
    i: Inst,
    form: &dyn Fn(Op) -> StepLowering,
) -> Result<(), Diagnostic> {
    let f = copier.from();
    if let Body::Step(step) = f.op(i).def().body {
        let narrow = |&v: &Value| f.ty(v).dtype.compute() != f.ty(v).dtype;
        let follow = |b: &mut Builder| {
            b.set_phase(f.inst(i).phase);
            b.follow(f, i);
        };
        match form(f.op(i)) {
            StepLowering::Composed(which) => {
                follow(b);
                compose_at(copier, b, i, step.composition(which));
                return Ok(());
            }
            StepLowering::Widened if f.args(i).first().is_some_and(narrow) => {
                follow(b);
                widened(copier, b, i);
                return Ok(());
            }
            StepLowering::Widened | StepLowering::Kept => {}
        }
    }
    copier.inst_with(b, i, &mut |copier, b, i| place(copier, b, i, form))?;
    Ok(())
}

/// The op on operands of the type that 16-bit floats are computed in. Its definition widens operands first and rounds results
/// last, so no bit changes.
fn widened(copier: &mut Copier<'_>, b: &mut Builder, i: Inst) {
    let f = copier.from();
    let args: Vec<Value> = f.args(i).iter().map(|&v| copier.get(b, v)).collect();
    let wide: Vec<Value> = args.iter().map(|&v| b.converted(v, b.ty(v).dtype.compute())).collect();
    let found = b.inst(f.op(i), &wide, f.attrs(i).clone(), None);
    let old = f.inst_results(i);
    let results: Vec<Value> =
        found.iter().zip(old).map(|(&v, &old)| b.converted(v, f.ty(old).dtype)).collect();
    copier.stand_for(b, old, &results);
}
