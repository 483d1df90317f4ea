//! `linearize`: a function as a primal part and a linear part that reads residuals.

use crate::control::PartialEval;
use crate::forward::{BACKWARD, Pushing};
use crate::jvp::joint;
use adfuse_ir::control::{Follow, reach};
use adfuse_ir::rewrite::{Copier, dce, splice};
use adfuse_ir::verify::at_inst;
use adfuse_ir::{Builder, DType, Diagnostic, Function, Module, Op, Value};
use cranelift_entity::EntitySet;

/// A function split at a point: what depends on tangents, and what does not.
pub struct Linearized {
    /// `x.. -> (y.., residuals..)`
    pub primal: Function,
    /// `(residuals.., t..) -> ty..`, linear in the tangents.
    pub linear: Function,
    /// Number of residuals.
    pub residuals: usize,
}

/// As [`linearize`](fn@crate::linearize), of the first `differentiated` results of a float type alone; calls of functions with a rule
/// stay in the primal part, and for the transposition the linear part may call a backward rule.
pub(crate) fn open(
    module: &Module,
    f: &Function,
    wrt: &[usize],
    pushing: Pushing,
    differentiated: usize,
) -> Result<Linearized, Diagnostic> {
    let (mut joint, seeds) = joint(module, f, wrt, pushing)?;
    let body = joint.body();
    joint.region_mut(body).results.truncate(f.results().len().saturating_add(differentiated));
    dce(&mut joint);
    let joint = &joint;
    let mut moved: EntitySet<Value> = EntitySet::new();
    moved.extend(seeds.iter().copied());
    // Truth values and integers carry no tangent even where they are computed from one.
    let moving = reach(joint, moved, Follow::Uses);
    let (results, tangents) = joint.results().split_at(f.results().len());
    let moves = |v: Value| moving.contains(v);
    let linear = PartialEval::new(joint, tangents, &moves, false);
    let residuals: Vec<Value> =
        linear.reads().into_iter().filter(|&v| joint.ty(v).dtype != DType::Token).collect();
    let known = |v: Value| !moving.contains(v);
    let fixed = PartialEval::new(joint, &[results, &residuals].concat(), &known, true);

    let name = joint.name.trim_end_matches("_jvp");
    let mut b = Builder::new(format!("{name}_primal"));
    b.func_mut().symbols = joint.symbols.clone();
    let mut copier = Copier::new(joint);
    for &p in joint.params().iter().filter(|p| !moving.contains(**p)) {
        let new = b.param(joint.ty(p).clone(), joint.name_of(p));
        copier.set(p, new);
    }
    for &i in joint.body_insts() {
        fixed.copy(&mut copier, &mut b, i);
    }
    let all: Vec<Value> =
        results.iter().chain(&residuals).map(|&v| copier.get(&mut b, v)).collect();
    b.set_results(&all);
    let primal = b.finish()?;

    let mut b = Builder::new(format!("{name}_linear"));
    b.func_mut().symbols = joint.symbols.clone();
    let mut copier = Copier::new(joint);
    for &v in residuals.iter().chain(&seeds) {
        let new = b.param(joint.ty(v).clone(), joint.name_of(v));
        copier.set(v, new);
    }
    for &i in joint.body_insts().iter().filter(|&&i| linear.has(i)) {
        let callee = module.find(joint.attrs(i).text("func"));
        let (Op::Call, false, Some(callee)) = (joint.op(i), joint.attrs(i).flag(BACKWARD), callee)
        else {
            linear.copy(&mut copier, &mut b, i);
            continue;
        };
        // A rule called a function of a tangent: what that does is linear, whatever rule it has.
        let args: Vec<Value> = joint.args(i).iter().map(|&a| copier.get(&mut b, a)).collect();
        let at = || at_inst(joint, i);
        let place: (&dyn Fn() -> _, _) = (&at, joint.inst(i).phase);
        let out = splice(module, callee, &args, &|_| true, place, &mut b)?;
        for (&old, v) in joint.inst_results(i).iter().zip(out) {
            copier.set(old, v);
        }
    }
    let all: Vec<Value> = tangents.iter().map(|&v| copier.get(&mut b, v)).collect();
    b.set_results(&all);
    Ok(Linearized { primal, linear: b.finish()?, residuals: residuals.len() })
}
