//! Naming the instruction at fault.

use super::case::{Case, CaseContext, freeze, values_at};
use super::outcome::Outcome;
use crate::autodiff::differentiable;
use crate::backends::Array;
use crate::ir::rewrite::Copier;
use crate::ir::text::print_inst;
use crate::ir::{Builder, Function, Inst, Value, ValueDef};

/// The first instruction whose own derivative is wrong at the values it had, printed as the user has
/// it: the function before it was widened and its symbols got extents.
pub(super) fn culprit(setting: &CaseContext<'_>, f: &Function, point: &[Array]) -> Option<String> {
    for (k, &i) in f.body_insts().iter().enumerate() {
        let Some((alone, inputs)) = isolate(f, i) else { continue };
        let point = values_at(setting, f, &inputs, point).ok()?;
        let fixed = freeze(setting, &alone, &point).ok()?;
        let wrt = differentiable(&alone, None).ok().unwrap_or_default();
        for wrt in wrt {
            let fixed = fixed.as_ref();
            let case = Case { setting, f: &alone, fixed, point: &point, wrt };
            let (forward, reverse) = case.compare().ok()?;
            if [forward, reverse].iter().any(|o| matches!(o, Outcome::Fail(..))) {
                return Some(shown(f, setting.written, k));
            }
        }
    }
    None
}

/// A function of just this instruction, and the values its parameters stand for.
fn isolate(f: &Function, i: Inst) -> Option<(Function, Vec<Value>)> {
    let float = |v: &Value| f.ty(*v).dtype.is_float();
    let plain = f.inst(i).regions.is_empty() && !f.op(i).is_effect();
    if !plain || !f.inst_results(i).iter().any(float) {
        return None;
    }
    let mut b = Builder::new("alone");
    let mut copier = Copier::new(f);
    let mut inputs = Vec::new();
    for &a in f.args(i) {
        if copier.find(a).is_none() && !matches!(f.def(a), ValueDef::Literal(_)) {
            let p = b.param(f.ty(a).clone(), None);
            copier.set(a, p);
            inputs.push(a);
        }
    }
    let new = copier.inst(&mut b, i);
    let results = b.func().inst_results(new).to_vec();
    b.set_results(&results);
    Some((b.finish().ok()?, inputs))
}

/// The instruction at fault, and what the transformation said of the function.
pub(super) fn joined(at: Option<String>, message: Option<String>) -> Option<String> {
    match (at, message) {
        (Some(at), Some(message)) => Some(format!("{at}: {message}")),
        (at, message) => at.or(message),
    }
}

/// Instruction `k` of the body, as `written` has it where the two agree instruction by instruction.
fn shown(f: &Function, written: &Function, k: usize) -> String {
    let (made, own) = (f.body_insts(), written.body_insts());
    let alike = made.len() == own.len() && f.op(made[k]) == written.op(own[k]);
    if alike { print_inst(written, own[k]) } else { print_inst(f, made[k]) }
}
