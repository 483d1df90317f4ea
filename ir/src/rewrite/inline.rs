//! Inlining: calls are replaced by copies of their callees, to any depth, and ops that are short for others by those.
//! The instructions of a callee with a checkpoint policy become a checkpoint region.

use super::{Copier, Each};
use crate::builder::Builder;
use crate::captures::reads;
use crate::checkpoint::{CheckpointPath, CheckpointPolicy, CheckpointScope, ScopeKind};
use crate::diag::{At, Diagnostic, Kind};
use crate::entity::{Inst, Phase, Value};
use crate::function::{Function, ValueDef};
use crate::module::Module;
use crate::op::{Body, Compose, Deriv, Op, RuleCx};
use crate::types::TensorType;
use crate::verify::{at_inst, bind, substitute};

/// The most instructions and calls that inlining may place: callees that call one another twice
/// double at every step.
pub const MAX_INLINED: u32 = 1_000_000;

/// The function with every call for which `wanted` holds replaced by the callee's instructions, and with every op
/// that is short for others written out. A function that has a checkpoint policy itself becomes one region.
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
    inlined(Inliner { writes_ruled: true, ..Inliner::new(module, wanted) }, f)
}

/// As [`inline`], for a transformation that knows the rules of ops that are short for others and have some: those stay.
///
/// # Errors
/// As [`inline`].
pub fn inline_keeping_rules(
    module: &Module,
    f: &Function,
    wanted: &dyn Fn(&Function) -> bool,
) -> Result<Function, Diagnostic> {
    inlined(Inliner::new(module, wanted), f)
}

fn inlined(mut inliner: Inliner<'_>, f: &Function) -> Result<Function, Diagnostic> {
    let mut copier = Copier::new(f);
    let mut b = copier.begin();
    // Its instructions say so from here on.
    b.func_mut().checkpoint = None;
    inliner.enter(f, f);
    inliner.body(f, &mut copier, &mut b, Phase::PRIMAL)?;
    let mut made = copier.finish(b)?;
    follow_phases(&mut made);
    Ok(made)
}

/// Puts what reads a value of a later phase into that phase: a callee may have later phases than the call.
fn follow_phases(f: &mut Function) {
    for k in 0..f.body_insts().len() {
        let i = f.body_insts()[k];
        let of = |v: Value| match f.def(v) {
            ValueDef::Inst(made, _) => f.inst(made).phase,
            _ => Phase::PRIMAL,
        };
        let latest = reads(f, i).into_iter().map(of).max().unwrap_or(Phase::PRIMAL);
        if latest > f.inst(i).phase {
            f.set_phase(i, latest);
        }
    }
}

/// Writes out an op that is short for others, in the phase under way.
pub(super) fn compose_at(copier: &mut Copier<'_>, b: &mut Builder, i: Inst, compose: Compose) {
    let f = copier.from();
    b.set_origin(f.origin(i).clone());
    let args: Vec<Value> = f.args(i).iter().map(|&v| copier.get(b, v)).collect();
    let types: Vec<TensorType> = args.iter().map(|&v| b.ty(v).clone()).collect();
    let cx = RuleCx { args: &args, results: &[], attrs: f.attrs(i), types: &types };
    let results = compose(b, &cx);
    copier.stand_for(b, f.inst_results(i), &results);
}

/// Copies the instructions of `callee` to the end of `b`, its calls replaced as [`inline_keeping_rules`] does where
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
    let around = b.path().clone();
    let mut inliner = Inliner::new(module, wanted);
    inliner.around.path = around.clone();
    inliner.spliced = true;
    let results = inliner.splice(callee, args, place, b);
    b.set_path(around);
    results
}

/// The checkpoint regions around what is inlined.
#[derive(Clone, Default)]
struct InlinedRegion {
    path: CheckpointPath,
    /// The values that the innermost of them keeps by name.
    names: Vec<String>,
}

/// The first number that no region of a function has.
fn next_region(f: &Function) -> u32 {
    let mut next = 0;
    f.walk(&mut |f, i| {
        let numbers = f.path(i).scopes().iter().map(|s| s.number.saturating_add(1));
        next = numbers.fold(next, u32::max);
    });
    next
}

struct Inliner<'m> {
    module: &'m Module,
    wanted: &'m dyn Fn(&Function) -> bool,
    placed: u32,
    around: InlinedRegion,
    /// Whether what is copied may be of the function under construction, whose instructions know all regions around them.
    spliced: bool,
    /// Whether ops with derivative rules of their own are written out too.
    writes_ruled: bool,
    /// The number of the next region; not known until there is one.
    regions: Option<u32>,
}

impl<'m> Inliner<'m> {
    fn new(module: &'m Module, wanted: &'m dyn Fn(&Function) -> bool) -> Inliner<'m> {
        Inliner {
            module,
            wanted,
            placed: 0,
            around: InlinedRegion::default(),
            spliced: false,
            writes_ruled: false,
            regions: None,
        }
    }

    /// A region that neither the function under construction nor the one that is read has.
    fn fresh(&mut self, made: &Function, read: &Function) -> u32 {
        let next = self.regions.unwrap_or_else(|| next_region(made).max(next_region(read)));
        self.regions = Some(next + 1);
        next
    }

    /// Goes into a function. What was around it comes back.
    fn enter(&mut self, f: &Function, made: &Function) -> InlinedRegion {
        let around = self.around.clone();
        let Some(policy) = &f.checkpoint else { return around };
        let kind = match policy {
            CheckpointPolicy::Save => ScopeKind::Save,
            CheckpointPolicy::Remat | CheckpointPolicy::Names(_) => ScopeKind::Remat,
        };
        let scope = CheckpointScope { kind, number: self.fresh(made, f) };
        self.around.path = self.around.path.then(&[scope]);
        self.around.names = match policy {
            CheckpointPolicy::Names(names) => names.clone(),
            _ => Vec::new(),
        };
        around
    }

    /// The regions around what is in these regions of the function that is copied.
    fn within(&self, own: &CheckpointPath) -> CheckpointPath {
        let around = &self.around.path;
        match self.spliced && around.contains(own) {
            true => own.clone(),
            false => around.then(own.scopes()),
        }
    }

    /// The regions around the copy of an instruction.
    fn path(&mut self, f: &Function, i: Inst, made: &Function) -> CheckpointPath {
        let path = self.within(f.path(i));
        let named =
            |&v: &Value| f.name_of(v).is_some_and(|n| self.around.names.iter().any(|w| w == n));
        match f.inst_results(i).iter().any(named) {
            true => {
                let number = self.fresh(made, f);
                path.then(&[CheckpointScope { kind: ScopeKind::Named, number }])
            }
            false => path,
        }
    }
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
        let def = f.op(i).def();
        if let Body::Composed(compose) = def.body
            && (self.writes_ruled || !matches!(def.deriv, Deriv::Rules(..)))
        {
            b.set_phase(phase);
            let path = self.path(f, i, b.func());
            b.set_path(path);
            compose_at(copier, b, i, compose);
            return Ok(());
        }
        let name = f.attrs(i).text("func");
        let callee = (f.op(i) == Op::Call).then(|| self.module.find(name)).flatten();
        let Some(callee) = callee.filter(|c| (self.wanted)(c)) else {
            let each: Each<'_> = &mut |copier, b, i| self.place(f, copier, b, i, phase);
            let new = copier.inst_with(b, i, each)?;
            b.func_mut().set_phase(new, phase);
            let path = self.path(f, i, b.func());
            b.func_mut().set_path(new, path);
            return Ok(());
        };
        let args: Vec<Value> = f.args(i).iter().map(|&v| copier.get(b, v)).collect();
        let around = self.around.clone();
        self.around.path = self.within(f.path(i));
        let out = self.splice(callee, &args, (&|| at_inst(f, i), phase), b)?;
        self.around = around;
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
        let around = self.enter(callee, b.func());
        self.body(callee, &mut inner, b, phase)?;
        self.around = around;
        Ok(callee.results().iter().map(|&r| inner.get(b, r)).collect())
    }
}
