//! Calls in a trace, and the module that a trace becomes: functions together with their callees.

use super::TraceState;
use crate::ir::verify::bind;
use crate::ir::{
    Attr, Attrs, CustomRule, Dim, Function, Kind, Module, Op, Symbol, TensorType, check_arguments,
};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::panic::Location;

/// A traced function, with the functions that it calls and their rules.
///
/// It stands for its [`Function`] wherever one is read. [`Module::single`] of it is the module that
/// transformations and engines take, with everything that it calls.
#[derive(Clone, Debug)]
pub struct Traced {
    pub(super) f: Function,
    pub(super) callees: Vec<Function>,
}

impl Traced {
    /// The function that was traced, with its calls.
    pub fn function(&self) -> &Function {
        &self.f
    }

    /// The same callees with another function, which calls no others.
    pub(crate) fn with_function(&self, f: Function) -> Traced {
        Traced { f, callees: self.callees.clone() }
    }

    /// The functions that it calls, and the rules of those.
    pub fn callees(&self) -> &[Function] {
        &self.callees
    }
}

impl Deref for Traced {
    type Target = Function;

    fn deref(&self) -> &Function {
        &self.f
    }
}

impl From<Traced> for Module {
    fn from(traced: Traced) -> Module {
        let mut module = Module::single(traced.f);
        for callee in traced.callees {
            module.funcs.push(callee);
        }
        module
    }
}

/// The text of the function and of those that it calls.
impl fmt::Display for Traced {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Module::from(self.clone()), out)
    }
}

/// What [`Tracer::call`](super::Tracer::call) calls: a function alone, a traced one, or one of a module.
pub trait Callee {
    /// The function that is called.
    fn function(&self) -> &Function;

    /// The functions that it calls, and all rules, as far as they are known; it may be among them.
    fn others(&self) -> Module;
}

impl Callee for &Function {
    fn function(&self) -> &Function {
        self
    }

    fn others(&self) -> Module {
        Module::default()
    }
}

impl Callee for &Traced {
    fn function(&self) -> &Function {
        &self.f
    }

    fn others(&self) -> Module {
        Module::from((*self).clone())
    }
}

impl Callee for (&Module, &Function) {
    fn function(&self) -> &Function {
        self.1
    }

    fn others(&self) -> Module {
        self.0.reached(self.1)
    }
}

/// Whether a copy of the function's instructions means what the function does: there is no rule or checkpoint region that it
/// would lose, nor a function that it would not find.
pub(super) fn is_plain(f: &Function) -> bool {
    let mut calls = false;
    let mut regions = f.checkpoint.is_some();
    f.walk(&mut |f, i| {
        calls |= f.op(i) == Op::Call;
        regions |= !f.path(i).is_empty();
    });
    f.rule.is_none() && !calls && !regions
}

/// The extents of a callee's symbols for operands of these types; `None` where the operands do not fit.
pub(super) fn bound(f: &Function, args: &[TensorType]) -> Option<BTreeMap<Symbol, Dim>> {
    bind(&f.param_types(), args)
}

/// Why operands of these types do not fit a callee.
pub(super) fn misfit(f: &Function, found: &[TensorType]) -> String {
    let named = |(k, &p)| (f.name_of(p).map_or(format!("{k}"), str::to_string), f.ty(p).clone());
    let params: Vec<(String, TensorType)> = f.params().iter().enumerate().map(named).collect();
    let symbolic = || format!("@{} takes {:?}, found {found:?}", f.name, f.param_types());
    match check_arguments(&f.name, &params, found) {
        Err(d) if f.symbols.is_empty() => format!("@{}: {}", f.name, d.message),
        _ => symbolic(),
    }
}

/// The attributes of a call.
pub(super) fn named(f: &Function) -> Attrs {
    Attrs::none().with("func", Attr::Func(f.name.clone()))
}

/// Whether a function of the trace is the one that a transformation knows by its name, which has written a rule for a root.
fn same(known: &Function, g: &Function) -> bool {
    if matches!((&known.rule, &g.rule), (Some(CustomRule::Root(_)), Some(CustomRule::Jvp(_)))) {
        let mut g = g.clone();
        g.rule = known.rule.clone();
        return known.to_string() == g.to_string();
    }
    known.to_string() == g.to_string()
}

/// The function under its new name, with calls and rules of the new names.
fn with_names(f: &Function, renamed: &BTreeMap<String, String>) -> Function {
    let mut f = f.clone();
    if renamed.is_empty() {
        return f;
    }
    let new = |name: &String| renamed.get(name).cloned();
    let mut calls = Vec::new();
    f.walk(&mut |f, i| {
        if let (Op::Call, Some(name)) = (f.op(i), new(&f.attrs(i).text("func").to_string())) {
            calls.push((i, name));
        }
    });
    for (i, name) in calls {
        f.set_attr(i, "func", Attr::Func(name));
    }
    let kept = |name: &String| new(name).unwrap_or_else(|| name.clone());
    f.rule = f.rule.as_ref().map(|rule| match rule {
        CustomRule::Jvp(rule) => CustomRule::Jvp(kept(rule)),
        CustomRule::Root(residual) => CustomRule::Root(kept(residual)),
        CustomRule::Vjp(fwd, bwd) => CustomRule::Vjp(kept(fwd), kept(bwd)),
    });
    f.name = kept(&f.name);
    f
}

impl TraceState {
    /// Has the trace know a function and all that it needs; whether it does.
    pub(super) fn link(&mut self, place: &Location<'_>, callee: &impl Callee) -> bool {
        let f = callee.function();
        let mut needed = callee.others().reached(f);
        if needed.find(&f.name).is_none() {
            needed.funcs.push(f.clone());
        }
        let mut missing = None;
        for g in needed.funcs.values() {
            missing =
                missing.or_else(|| g.callees().into_iter().find(|n| needed.find(n).is_none()));
        }
        if let Some(missing) = missing {
            let m = format!(
                "@{} needs @{missing}: call it with its module, `t.call((&module, f), ..)`",
                f.name
            );
            self.fail(place, Kind::UnknownName, m);
            return false;
        }
        for g in needed.funcs.values() {
            let known = self.callees.iter().find(|k| k.name == g.name);
            let taken = match known {
                Some(known) if known.to_string() == g.to_string() => continue,
                Some(_) => "another function that it calls",
                None if self.b.func().name == g.name => "it",
                None => {
                    self.callees.push(g.clone());
                    continue;
                }
            };
            let m = format!("the trace calls @{}, and {taken} has that name", g.name);
            self.fail(place, Kind::Usage, m);
            return false;
        }
        true
    }

    /// Has the trace know what a transformed function calls, and gives the function with the names that the trace has for
    /// that: where it has another function of a name, the callee gets a new one.
    pub(super) fn adopted(&mut self, f: &Function, callees: &Module) -> Function {
        let needed = callees.reached(f);
        let known = |name: &str| self.callees.iter().find(|k| k.name == name);
        let mut renamed: BTreeMap<String, String> = BTreeMap::new();
        loop {
            let before = renamed.len();
            for g in needed.funcs.values() {
                let told = g.callees().iter().any(|n| renamed.contains_key(n));
                let other = known(&g.name).is_some_and(|k| told || !same(k, g));
                if !renamed.contains_key(&g.name) && (other || self.b.func().name == g.name) {
                    let free = self.unused(&g.name, &needed, &renamed);
                    renamed.insert(g.name.clone(), free);
                }
            }
            if renamed.len() == before {
                break;
            }
        }
        let new: Vec<Function> = needed
            .funcs
            .values()
            .filter(|g| renamed.contains_key(&g.name) || known(&g.name).is_none())
            .map(|g| with_names(g, &renamed))
            .collect();
        self.callees.extend(new);
        with_names(f, &renamed)
    }

    /// A name like this that no function has.
    fn unused(&self, name: &str, needed: &Module, renamed: &BTreeMap<String, String>) -> String {
        let taken = |n: &String| {
            self.b.func().name == *n
                || self.callees.iter().any(|f| f.name == *n)
                || needed.find(n).is_some()
                || renamed.values().any(|v| v == n)
        };
        let mut numbered = (2u64..).map(|k| format!("{name}.{k}"));
        numbered.find(|n| !taken(n)).unwrap_or_else(|| unreachable!("names do not run out"))
    }

    /// Refuses a call by name of what the trace does not know.
    pub(super) fn knows(&mut self, place: &Location<'_>, attrs: &Attrs) -> bool {
        let name = attrs.text("func");
        let known = self.callees.iter().any(|f| f.name == name);
        if !known {
            let m = format!(
                "the trace knows no function @{name}: `Tracer::call` takes the function itself"
            );
            self.fail(place, Kind::UnknownName, m);
        }
        known
    }
}
