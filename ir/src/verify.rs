//! The verifier: everything a function must satisfy before a pass or an engine sees it.
//!
//! Inference, SSA and region structure, effect tokens, calls, custom rules, symbols, phases. What it
//! accepts, every later stage may rely on.

mod calls;
mod place;

pub use calls::MAX_CALL_DEPTH;
pub use place::at_inst;

use crate::control::{LoopRoles, captures, signature};
use crate::diag::{At, Diagnostic, Kind, did_you_mean};
use crate::dtype::DType;
use crate::entity::{Inst, Phase, Region, Value};
use crate::function::{CustomRule, Function, ValueDef};
use crate::module::Module;
use crate::op::{Control, Op};
use crate::types::{Dim, Symbol, TensorType};
use cranelift_entity::{EntitySet, SecondaryMap};
use std::collections::BTreeMap;

/// Checks a whole module.
///
/// # Errors
/// Every broken rule, with its place; at most [`MAX_ERRORS`].
pub fn verify(module: &Module) -> Result<(), Vec<Diagnostic>> {
    let mut errors = Vec::new();
    for (k, f) in module.funcs.iter() {
        if errors.len() >= MAX_ERRORS {
            break;
        }
        if module.funcs.named(&f.name) != Some(k) {
            let at = At { func: Some(f.name.clone()), ..At::default() };
            let m = format!("function @{} is defined twice", f.name);
            errors.push(Diagnostic::new(at, Kind::Redefinition, m));
        }
        Check {
            module,
            f,
            errors: &mut errors,
            visible: EntitySet::new(),
            phases: SecondaryMap::new(),
        }
        .function();
    }
    calls::check(module, &mut errors);
    errors.truncate(MAX_ERRORS);
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// The most errors one run reports.
pub const MAX_ERRORS: usize = 50;

/// Checks a function that stands alone: it calls nothing and has no custom rule.
///
/// # Errors
/// As [`verify`].
pub fn verify_function(f: &Function) -> Result<(), Vec<Diagnostic>> {
    verify(&Module::single(f.clone()))
}

struct Check<'m> {
    module: &'m Module,
    f: &'m Function,
    errors: &'m mut Vec<Diagnostic>,
    visible: EntitySet<Value>,
    phases: SecondaryMap<Value, Phase>,
}

impl Check<'_> {
    fn function(&mut self) {
        let f = self.f;
        for (k, s) in f.symbols.iter().enumerate() {
            if f.symbols[..k].contains(s) {
                self.report_func(Kind::Redefinition, format!("symbol `{s:?}` is declared twice"));
            }
        }
        self.region(f.body());
        let uses = self.token_uses(f.body());
        for (v, n) in uses {
            if n > 1 {
                let name = f.name_of(v).map_or("a token".into(), |n| format!("`%{n}`"));
                let m =
                    format!("{name} is used {n} times: effects are ordered by using a token once");
                match f.def(v) {
                    ValueDef::Inst(i, _) => self.report(i, Kind::Effect, m),
                    _ => self.report_func(Kind::Effect, m),
                }
            }
        }
        if let Some(rule) = f.rule.clone() {
            self.custom_rule(&rule);
        }
    }

    fn report(&mut self, i: Inst, kind: Kind, message: impl Into<String>) {
        self.errors.push(Diagnostic::new(at_inst(self.f, i), kind, message));
    }

    fn report_func(&mut self, kind: Kind, message: impl Into<String>) {
        let at = At { func: Some(self.f.name.clone()), ..At::default() };
        self.errors.push(Diagnostic::new(at, kind, message));
    }

    fn region(&mut self, region: Region) {
        let f = self.f;
        let data = f.region(region);
        for &p in &data.params {
            self.check_type(None, f.ty(p));
            self.visible.insert(p);
        }
        for &i in &data.insts {
            if self.errors.len() >= MAX_ERRORS {
                return;
            }
            self.inst(i);
        }
        for &r in &data.results {
            if !self.is_visible(r) {
                let m = "a result is not defined in its region".to_string();
                self.report_func(Kind::Dominance, m);
            }
        }
        // What a region defines is unknown outside of it.
        for &i in &data.insts {
            if region != f.body() {
                for &v in f.inst_results(i) {
                    self.visible.remove(v);
                }
            }
        }
        for &p in &data.params {
            if region != f.body() {
                self.visible.remove(p);
            }
        }
    }

    fn is_visible(&self, v: Value) -> bool {
        self.f.literal(v).is_some() || self.visible.contains(v)
    }

    fn check_type(&mut self, at: Option<Inst>, ty: &TensorType) {
        let undeclared = |d: &&Dim| matches!(d, Dim::Sym(s) if !self.f.symbols.contains(s));
        let problem = match (ty.excess(), ty.shape.iter().find(undeclared)) {
            (Some(why), _) => Some((Kind::Limit, why)),
            (_, Some(d)) => {
                Some((Kind::UnknownName, format!("symbol `{d}` of {ty} is not declared")))
            }
            _ => None,
        };
        if let Some((kind, m)) = problem {
            match at {
                Some(i) => self.report(i, kind, m),
                None => self.report_func(kind, m),
            }
        }
    }

    fn inst(&mut self, i: Inst) {
        let f = self.f;
        let data = f.inst(i);
        let def = data.op.def();
        if f.args(i).iter().any(|&a| !self.is_visible(a)) {
            self.report(
                i,
                Kind::Dominance,
                "an operand is used before it is defined, or out of its region",
            );
        }
        if f.args(i).iter().any(|&a| self.phases[a] > data.phase) {
            let m = format!("an operand of phase {} is computed in a later phase", data.phase);
            self.report(i, Kind::Dominance, m);
        }
        let before = self.errors.len();
        for &r in f.inst_results(i) {
            self.check_type(Some(i), f.ty(r));
            self.phases[r] = data.phase;
        }
        // A type that is no type fails inference too: one error is enough.
        let typed = self.errors.len() == before;
        if let Err(m) = f.attrs(i).clone().conform(def.attrs) {
            self.report(i, Kind::Attribute, m);
        } else if typed {
            let ty = |v: &Value| f.literal(*v).is_none().then(|| f.ty(*v).clone());
            let results: Vec<TensorType> =
                f.inst_results(i).iter().map(|&v| f.ty(v).clone()).collect();
            let known = f.args(i).iter().map(ty).collect();
            match data.op.infer(known, f.attrs(i), Some(&results)) {
                Err(e) => self.report(i, e.kind, e.message),
                Ok((args, _)) => {
                    let wrong = f.args(i).iter().zip(&args).find(|(v, ty)| f.ty(**v) != *ty);
                    if let Some((&v, ty)) = wrong {
                        let m = format!("a literal of type {} where {ty} is due", f.ty(v));
                        self.report(i, Kind::Literal, m);
                    }
                }
            }
        }
        self.nested(i);
        if data.op.collective().is_some() && !f.body_insts().contains(&i) {
            let m = format!("`{}` is in a region: ranks exchange where all of them do", data.op);
            self.report(i, Kind::Unsupported, m);
        }
        if data.op == Op::Call {
            self.call(i);
        }
        for &r in f.inst_results(i) {
            self.visible.insert(r);
        }
    }

    fn nested(&mut self, i: Inst) {
        let f = self.f;
        let data = f.inst(i);
        let Some(names) = data.op.region_names(data.regions.len()) else {
            let m = format!("`{}` has the regions {}", data.op, data.op.def().regions.join(", "));
            self.report(i, Kind::Arity, m);
            return;
        };
        for &r in &data.regions {
            self.region(r);
        }
        let late = |&v: &Value| self.phases[v] > data.phase;
        if data.regions.iter().any(|&r| f.region(r).results.iter().any(late)) {
            self.report(
                i,
                Kind::Dominance,
                "a region yields a value that is computed in a later phase",
            );
        }
        self.region_types(i, &names);
    }

    /// Whether regions are entered with and end with what the op asks for.
    fn region_types(&mut self, i: Inst, names: &[&str]) {
        let f = self.f;
        let types = |values: &[Value]| values.iter().map(|&v| f.ty(v).clone()).collect::<Vec<_>>();
        let (args, results) = (types(f.args(i)), types(f.inst_results(i)));
        let regions = &f.inst(i).regions;
        let due = signature(f.op(i), f.attrs(i), (&args, &results), regions.len());
        for ((&r, name), due) in regions.iter().zip(names).zip(due.into_iter().flatten()) {
            let region = f.region(r);
            let mut ends = |what: &str, values: &[Value], due: &[TensorType]| {
                let found = types(values);
                if found != due {
                    let m = format!("region `{name}` {what} {found:?}, {due:?} is due");
                    let kind = if found.len() == due.len() { Kind::Shape } else { Kind::Arity };
                    self.report(i, kind, m);
                }
            };
            ends("is entered with", &region.params, &due.params);
            ends("yields", &region.results, &due.yields);
        }
        let repeats = matches!(f.op(i).control(), Some(Control::Loop(_) | Control::While));
        let token = |v: &Value| f.ty(*v).dtype == DType::Token;
        if repeats && regions.iter().any(|&r| captures(f, r).iter().any(token)) {
            let m = "a region that is repeated uses a token from outside: carry it";
            self.report(i, Kind::Effect, m);
        }
        let twice = LoopRoles::of(f.op(i), f.attrs(i), args.len(), results.len())
            .is_some_and(|roles| roles.returns());
        if twice && args.iter().any(|ty| ty.dtype == DType::Token) {
            let m = format!("`{}` computes steps again: it cannot carry effects", f.op(i));
            self.report(i, Kind::Effect, m);
        }
    }

    /// How often each token is used; of exclusive regions the larger number counts.
    fn token_uses(&self, region: Region) -> BTreeMap<Value, u32> {
        let f = self.f;
        let data = f.region(region);
        let mut uses = BTreeMap::new();
        let is_token = |v: &Value| f.ty(*v).dtype == DType::Token;
        for &i in &data.insts {
            for &a in f.args(i).iter().filter(|v| is_token(v)) {
                *uses.entry(a).or_insert(0) += 1;
            }
            let mut most = BTreeMap::new();
            for &r in &f.inst(i).regions {
                for (v, n) in self.token_uses(r) {
                    let slot = most.entry(v).or_insert(0);
                    *slot = n.max(*slot);
                }
            }
            for (v, n) in most {
                *uses.entry(v).or_insert(0) += n;
            }
        }
        for &r in data.results.iter().filter(|v| is_token(v)) {
            *uses.entry(r).or_insert(0) += 1;
        }
        uses
    }

    fn call(&mut self, i: Inst) {
        let f = self.f;
        let name = f.attrs(i).text("func");
        let Some(callee) = self.module.find(name) else {
            let known = self.module.funcs.values().map(|f| f.name.as_str());
            let near = did_you_mean(name, known).map(|n| format!("did you mean @{n}?"));
            let m = format!("no function @{name}");
            let mut d = Diagnostic::new(at_inst(f, i), Kind::UnknownName, m);
            d.hint = near;
            self.errors.push(d);
            return;
        };
        let args: Vec<TensorType> = f.args(i).iter().map(|&v| f.ty(v).clone()).collect();
        let results: Vec<TensorType> = f.inst_results(i).iter().map(|&v| f.ty(v).clone()).collect();
        let message = match bind(&callee.param_types(), &args) {
            None => Some(format!("@{name} takes {:?}, found {args:?}", callee.param_types())),
            Some(bound) => {
                let due: Vec<TensorType> =
                    callee.result_types().iter().map(|t| substitute(t, &bound)).collect();
                (due != results).then(|| format!("@{name} returns {due:?}, not {results:?}"))
            }
        };
        if let Some(m) = message {
            let kind = if args.len() == callee.params().len() { Kind::Shape } else { Kind::Arity };
            self.report(i, kind, m);
        }
    }

    fn custom_rule(&mut self, rule: &CustomRule) {
        let f = self.f;
        let float = |types: Vec<TensorType>| {
            types.into_iter().filter(|t| t.dtype.is_float()).collect::<Vec<_>>()
        };
        let (params, results) = (f.param_types(), f.result_types());
        let (tangents, result_tangents) = (float(params.clone()), float(results.clone()));
        let join = |a: &[TensorType], b: &[TensorType]| [a, b].concat();
        let mut problem = |name: &str, ok: &dyn Fn(&Function) -> bool, due: String| {
            let m = match self.module.find(name) {
                None => format!("the rule @{name} is not defined"),
                Some(r) if !ok(r) => format!("the rule @{name} must {due}"),
                Some(_) => return,
            };
            let at = At { func: Some(f.name.clone()), ..At::default() };
            self.errors.push(Diagnostic::new(at, Kind::CustomRule, m));
        };
        match rule {
            CustomRule::Jvp(name) => {
                let (p, r) = (join(&params, &tangents), join(&results, &result_tangents));
                let fits = |g: &Function| returned(g, &p).is_some_and(|found| found == r);
                problem(name, &fits, format!("take {p:?} and return {r:?}"));
                if self.module.find(name).is_some_and(fits) {
                    let apart = |g: &Function| !calls::mixes(g, params.len(), results.len());
                    problem(name, &apart, "compute the results without the tangents".to_string());
                }
            }
            CustomRule::Vjp(fwd, bwd) => {
                let residuals = |g: &Function| {
                    let found = returned(g, &params)?;
                    found.starts_with(&results).then(|| found[results.len()..].to_vec())
                };
                let due = format!("take {params:?} and return {results:?}, then residuals");
                problem(fwd, &|g| residuals(g).is_some(), due);
                let Some(residuals) = self.module.find(fwd).and_then(residuals) else { return };
                let p = join(&residuals, &result_tangents);
                let fits = |g: &Function| returned(g, &p).is_some_and(|found| found == tangents);
                problem(bwd, &fits, format!("take {p:?} and return {tangents:?}"));
            }
            CustomRule::Root(name) => {
                let unknowns = result_tangents;
                let p = join(&unknowns, &params);
                let fits = |g: &Function| returned(g, &p).is_some_and(|found| found == unknowns);
                problem(name, &fits, format!("take {p:?} and return {unknowns:?}"));
                let module = self.module;
                if module.find(name).is_some() {
                    let apart = |g: &Function| module.reached(g).find(&f.name).is_none();
                    problem(name, &apart, format!("not need @{}, whose root it tells", f.name));
                }
                let token = |t: &TensorType| t.dtype == DType::Token;
                let m = if unknowns.is_empty() {
                    "a custom_root is of results of a float type, and there is none"
                } else if params.iter().chain(&results).any(token) {
                    "a function with a custom_root has no effects: no token passes through it"
                } else {
                    return;
                };
                self.report_func(Kind::CustomRule, m);
            }
        }
    }
}

/// What `f` returns of arguments of these types, its symbols bound to theirs.
fn returned(f: &Function, args: &[TensorType]) -> Option<Vec<TensorType>> {
    let bound = bind(&f.param_types(), args)?;
    Some(f.result_types().iter().map(|t| substitute(t, &bound)).collect())
}

/// Extents for the symbols of `params`, so that they become `args`; `None` if there are none.
pub fn bind(params: &[TensorType], args: &[TensorType]) -> Option<BTreeMap<Symbol, Dim>> {
    let mut bound = BTreeMap::new();
    if params.len() != args.len() {
        return None;
    }
    for (p, a) in params.iter().zip(args) {
        if p.dtype != a.dtype || p.rank() != a.rank() {
            return None;
        }
        for (&d, &e) in p.shape.iter().zip(&a.shape) {
            let fits = match d {
                Dim::Const(_) => d == e,
                Dim::Sym(s) => *bound.entry(s).or_insert(e) == e,
            };
            if !fits {
                return None;
            }
        }
    }
    Some(bound)
}

/// The type with its symbols replaced where they are bound.
pub fn substitute(ty: &TensorType, bound: &BTreeMap<Symbol, Dim>) -> TensorType {
    let dim = |&d: &Dim| match d {
        Dim::Sym(s) => bound.get(&s).copied().unwrap_or(d),
        d => d,
    };
    TensorType { dtype: ty.dtype, shape: ty.shape.iter().map(dim).collect() }
}
