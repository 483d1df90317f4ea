//! Inlining: calls are replaced by copies of their callees, to any depth, and ops that are short for others by those.

use super::{Copier, Each};
use crate::builder::Builder;
use crate::diag::{At, Diagnostic, Kind};
use crate::entity::{Inst, Phase, Value};
use crate::function::Function;
use crate::module::Module;
use crate::op::{Body, Compose, Op, RuleCx};
use crate::types::TensorType;
use crate::verify::{at_inst, bind, substitute};

/// The most instructions and calls that inlining may place: callees that call one another twice
/// double at every step.
pub const MAX_INLINED: u32 = 1_000_000;

/// The function with every call for which `wanted` holds replaced by the callee's instructions, and with every op
/// that is short for others written out.
///
/// Takes a verified module: callees exist, fit, and do not recurse.
///
/// # Errors
/// If more than [`MAX_INLINED`] instructions would result, or a call does not fit its callee, which
/// verified modules do not have.
pub fn inline(
    module: &Module,
    f: &Function,
    wanted: &dyn Fn(&Function) -> bool,
) -> Result<Function, Diagnostic> {
    let mut b = Builder::new(f.name.clone());
    b.func_mut().symbols = f.symbols.clone();
    b.func_mut().rule = f.rule.clone();
    let mut copier = Copier::new(f);
    copier.params(&mut b);
    let mut inliner = Inliner { module, wanted, placed: 0 };
    inliner.body(f, &mut copier, &mut b, Phase::PRIMAL)?;
    let results: Vec<Value> = f.results().iter().map(|&v| copier.get(&mut b, v)).collect();
    b.set_results(&results);
    b.finish()
}

/// Writes out an op that is short for others, in the phase under way.
fn compose_at(f: &Function, copier: &mut Copier<'_>, b: &mut Builder, i: Inst, compose: Compose) {
    b.set_span(f.span(i));
    let args: Vec<Value> = f.args(i).iter().map(|&v| copier.get(b, v)).collect();
    let types: Vec<TensorType> = args.iter().map(|&v| b.ty(v).clone()).collect();
    let cx = RuleCx { args: &args, results: &[], attrs: f.attrs(i), types: &types };
    let results = compose(b, &cx);
    for (&old, &new) in f.inst_results(i).iter().zip(&results) {
        if b.func().literal(new).is_none() && b.func().name_of(new).is_none() {
            b.func_mut().set_name(new, f.name_of(old));
        }
        copier.set(old, new);
    }
}

/// Copies the instructions of `callee` to the end of `b`, its calls replaced as [`inline`] does where
/// `wanted` holds, and gives its results for these arguments. None is of a phase before `phase`.
///
/// # Errors
/// As [`inline`], at the place that is asked for then.
pub fn splice(
    module: &Module,
    callee: &Function,
    args: &[Value],
    wanted: &dyn Fn(&Function) -> bool,
    place: (&dyn Fn() -> At, Phase),
    b: &mut Builder,
) -> Result<Vec<Value>, Diagnostic> {
    Inliner { module, wanted, placed: 0 }.splice(callee, args, place, b)
}

struct Inliner<'m> {
    module: &'m Module,
    wanted: &'m dyn Fn(&Function) -> bool,
    placed: u32,
}

impl Inliner<'_> {
    fn body(
        &mut self,
        f: &Function,
        copier: &mut Copier<'_>,
        b: &mut Builder,
        phase: Phase,
    ) -> Result<(), Diagnostic> {
        for &i in f.body_insts() {
            self.place(f, copier, b, i, phase)?;
        }
        Ok(())
    }

    /// Copies one instruction, inlining calls in it and below it. What a call of a later phase
    /// stands for is of that phase too.
    fn place(
        &mut self,
        f: &Function,
        copier: &mut Copier<'_>,
        b: &mut Builder,
        i: Inst,
        phase: Phase,
    ) -> Result<(), Diagnostic> {
        self.placed += 1;
        if self.placed > MAX_INLINED {
            let m = format!("inlining calls gives more than {MAX_INLINED} instructions");
            return Err(Diagnostic::new(at_inst(f, i), Kind::Limit, m));
        }
        let phase = phase.max(f.inst(i).phase);
        if let Body::Composed(compose) = f.op(i).def().body {
            b.set_phase(phase);
            compose_at(f, copier, b, i, compose);
            return Ok(());
        }
        let name = f.attrs(i).text("func");
        let callee = (f.op(i) == Op::Call).then(|| self.module.find(name)).flatten();
        let Some(callee) = callee.filter(|c| (self.wanted)(c)) else {
            let each: Each<'_> = &mut |copier, b, i| self.place(f, copier, b, i, phase);
            let new = copier.inst_with(b, i, each)?;
            b.func_mut().set_phase(new, phase);
            return Ok(());
        };
        let args: Vec<Value> = f.args(i).iter().map(|&v| copier.get(b, v)).collect();
        let out = self.splice(callee, &args, (&|| at_inst(f, i), phase), b)?;
        for (&v, &old) in out.iter().zip(f.inst_results(i)) {
            copier.set(old, v);
        }
        Ok(())
    }

    fn splice(
        &mut self,
        callee: &Function,
        args: &[Value],
        (at, phase): (&dyn Fn() -> At, Phase),
        b: &mut Builder,
    ) -> Result<Vec<Value>, Diagnostic> {
        let types: Vec<TensorType> = args.iter().map(|&v| b.ty(v).clone()).collect();
        let bound = bind(&callee.param_types(), &types).ok_or_else(|| {
            let m = format!("@{} takes {:?}, found {types:?}", callee.name, callee.param_types());
            Diagnostic::new(at(), Kind::Shape, m)
        })?;
        let retype = |t: &TensorType| substitute(t, &bound);
        let mut inner = Copier::retyping(callee, &retype);
        for (&p, &a) in callee.params().iter().zip(args) {
            inner.set(p, a);
        }
        self.body(callee, &mut inner, b, phase)?;
        Ok(callee.results().iter().map(|&r| inner.get(b, r)).collect())
    }
}
