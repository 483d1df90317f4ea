//! Closures as functions: what a transformation of a Rust function takes, and where its result is placed.
//!
//! A closure is traced in a region of its own, which no instruction has; the region becomes a function whose parameters
//! are those of the closure and the tensors around it that it reads. What a transformation makes of that function is
//! copied into the trace. Calls of functions with a rule stay calls, so that a later transformation finds the rules.

use super::{SharedTrace, Tensor, TraceState, Tracer, asked_for, own_all, raise, record_all};
use crate::autodiff::Derived;
use crate::ir::control::{Outlined, outline, reads};
use crate::ir::rewrite::{Copier, splice};
use crate::ir::{
    At, Builder, CheckpointPath, CheckpointScope, Diagnostic, Function, Inst, Kind, Module, Phase,
    TensorType, Value, ValueDef,
};
use crate::tree::{Params, leaves, named_leaves, rebuild};
use std::panic::Location;

/// The name of an input for the leaf at a path: an identifier.
pub(crate) fn input_name(path: &str) -> String {
    match path.chars().next() {
        None => "arg".into(),
        Some(c) if c.is_ascii_digit() => format!("arg.{path}"),
        Some(_) => path.into(),
    }
}

/// A closure as a function of a trace.
pub(crate) struct ClosureFunction {
    /// Parameters are the closure's, then what it captures.
    pub(crate) func: Function,
    /// What it calls, and what those need.
    pub(crate) callees: Module,
    /// The tensors around the closure that it reads.
    pub(crate) captures: Vec<Tensor>,
}

impl ClosureFunction {
    /// The function, for transformations.
    pub(crate) fn derived(&self) -> Derived {
        Derived::new(&self.callees, &self.func)
    }
}

/// A region as a part of the trace's function, closed and in no instruction.
pub(super) struct ClosedRegion {
    pub(super) outlined: Outlined,
}

/// A parameter of a function that is made of a region: its type, its name, and the value of the outlined region that it
/// stands for.
pub(super) struct ParamSlot {
    pub(super) ty: TensorType,
    pub(super) name: Option<String>,
    pub(super) stands_for: Option<Value>,
}

impl ParamSlot {
    /// A parameter that the region does not read.
    pub(super) fn unread(ty: TensorType) -> ParamSlot {
        ParamSlot { ty, name: None, stands_for: None }
    }
}

impl ClosedRegion {
    /// Parameters for what the region is entered with.
    pub(super) fn entered(&self) -> Vec<ParamSlot> {
        let f = &self.outlined.func;
        f.params()[self.outlined.captures.len()..].iter().map(|&p| slot(f, p)).collect()
    }

    /// A parameter for a value around the region, of the function `f` under construction.
    pub(super) fn captured(&self, f: &Function, v: Value) -> ParamSlot {
        let at = self.outlined.captures.iter().position(|&c| c == v);
        let stands_for = at.map(|k| self.outlined.func.params()[k]);
        ParamSlot { stands_for, ..slot(f, v) }
    }

    /// The region as a function with these parameters, and with further results.
    pub(super) fn function(
        &self,
        name: &str,
        slots: &[ParamSlot],
        further: impl FnOnce(&mut Builder) -> Vec<Value>,
    ) -> Function {
        let region = &self.outlined.func;
        let mut b = Builder::new(name);
        b.func_mut().symbols = region.symbols.clone();
        let mut copier = Copier::new(region);
        for slot in slots {
            let new = b.param(slot.ty.clone(), slot.name.as_deref());
            if let Some(old) = slot.stands_for {
                copier.set(old, new);
            }
        }
        for &i in region.body_insts() {
            copier.inst(&mut b, i);
        }
        let mut results: Vec<Value> =
            region.results().iter().map(|&v| copier.get(&mut b, v)).collect();
        results.extend(further(&mut b));
        b.set_results(&results);
        b.finish().expect("a copy of checked instructions fits")
    }
}

fn slot(f: &Function, v: Value) -> ParamSlot {
    let (ty, name) = (f.ty(v).clone(), f.name_of(v).map(str::to_string));
    ParamSlot { ty, name, stands_for: Some(v) }
}

impl Tracer {
    /// The trace that the first of these tensors belongs to.
    pub(crate) fn of(tensors: &[Tensor]) -> Option<Tracer> {
        tensors.first().map(Tensor::tracer)
    }

    /// What the trace's caller is told.
    pub(crate) fn refuse(&self, place: &Location<'_>, kind: Kind, message: String) {
        self.fail(place, kind, message);
    }

    /// Whether all these tensors are of the trace; if not, that is an error.
    pub(crate) fn holds(&self, place: &Location<'_>, what: &str, tensors: &[Tensor]) -> bool {
        own_all(&self.state, &tensors.iter().collect::<Vec<_>>(), place, what)
    }

    /// Traces a closure in a region of its own, outside of checkpoint regions around it. It is given the tree with
    /// tensors of these types at its leaves, and tells the tensors that the region ends with.
    #[track_caller]
    pub(super) fn separate_region<A: Params<Tensor>, R>(
        &self,
        place: &Location<'_>,
        (args, types): (&A, &[TensorType]),
        body: impl FnOnce(A) -> (R, Vec<Tensor>),
    ) -> (Option<ClosedRegion>, R) {
        let names = named_leaves(args).into_iter().map(|(path, _)| input_name(&path));
        let opened = self.state.borrow_mut().as_mut().map(|s| {
            let around = s.b.path().clone();
            s.b.set_path(CheckpointPath::default());
            (s.b.open_region(), around)
        });
        let params = record_all(&self.state, types, |s| {
            let param = |(ty, name): (&TensorType, String)| s.b.param(ty.clone(), Some(&name));
            Some(types.iter().zip(names).map(param).collect())
        });
        let (out, ends) = body(rebuild(args, params));
        let own = self.holds(place, "what the closure gives", &ends);
        self.closed(opened.as_ref().map(|(region, _)| *region), &ends);
        let mut state = self.state.borrow_mut();
        let region = match (state.as_mut(), opened) {
            (Some(s), Some((region, around))) => {
                s.b.set_path(around);
                let fits = own && s.error.is_none();
                fits.then(|| ClosedRegion { outlined: outline(s.b.func(), region) })
            }
            _ => None,
        };
        (region, out)
    }

    /// A closure as a function of tensors of these types, and what it gave. There is no function after an error.
    pub(crate) fn closure<A: Params<Tensor>, R: Params<Tensor>>(
        &self,
        place: &Location<'_>,
        (args, types): (&A, &[TensorType]),
        body: impl FnOnce(&A) -> R,
    ) -> (Option<ClosureFunction>, R) {
        let (region, out) = self.separate_region(place, (args, types), |args| {
            let out = body(&args);
            let ends = leaves(&out);
            (out, ends)
        });
        let state = self.state.borrow();
        let made = region.zip(state.as_ref()).map(|(region, s)| {
            let around = region.outlined.captures.clone();
            let f = s.b.func();
            let captured = around.iter().map(|&v| region.captured(f, v));
            let slots: Vec<ParamSlot> = region.entered().into_iter().chain(captured).collect();
            let func = region.function(&format!("{}.closure", f.name), &slots, |_| Vec::new());
            let captures = around.iter().map(|&v| handle(&self.state, f, v)).collect();
            ClosureFunction { callees: s.module_of(&func), func, captures }
        });
        (made, out)
    }

    /// The results of what a transformation made, in the trace, for these arguments; stand-ins of the types `due` after
    /// an error.
    #[track_caller]
    pub(crate) fn placed_function(
        &self,
        place: &Location<'_>,
        made: Option<Result<Derived, Diagnostic>>,
        args: &[Tensor],
        due: &[TensorType],
    ) -> Vec<Tensor> {
        let own = self.holds(place, "a transformation", args);
        record_all(&self.state, due, |s| {
            if !own || s.error.is_some() {
                return None;
            }
            let values: Vec<Value> = args.iter().map(|t| t.value).collect();
            match made?.and_then(|made| s.copied(&made, &values)) {
                Ok(values) => Some(values),
                Err(d) => {
                    s.refuse(place, d);
                    None
                }
            }
        })
    }

    /// Errs unless a tree has the types of another at its leaves.
    pub(crate) fn alike<A: Params<Tensor>>(
        &self,
        place: &Location<'_>,
        what: &str,
        like: &A,
        found: &A,
    ) {
        let (like, found) = (named_leaves(like), named_leaves(found));
        let name =
            |path: &String| if path.is_empty() { String::new() } else { format!(" at {path}") };
        let wrong = like.iter().zip(&found).find(|((p, a), (q, b))| p != q || a.ty != b.ty);
        let m = match wrong {
            Some(((p, a), (q, b))) if p == q => {
                format!("{what} is of type {}{}, found {}", a.ty, name(p), b.ty)
            }
            Some(((p, _), (q, _))) => {
                format!("{what} has a tensor{}, found one{}", name(p), name(q))
            }
            None if like.len() != found.len() => {
                format!("{what} has {} tensors, found {}", like.len(), found.len())
            }
            None => return,
        };
        self.fail(place, Kind::Shape, m);
    }
}

/// The tensor of a value.
pub(super) fn handle(state: &SharedTrace, f: &Function, v: Value) -> Tensor {
    Tensor { state: state.clone(), value: v, ty: f.ty(v).clone() }
}

impl TraceState {
    /// Keeps the first error, with the place in the Rust source.
    pub(super) fn refuse(&mut self, place: &Location<'_>, d: Diagnostic) {
        self.error.get_or_insert_with(|| match d.hint.clone() {
            Some(hint) => d.hint(format!("{hint}; asked for at {place}")),
            None => asked_for(d, place),
        });
    }

    /// The functions that one calls, and what those need.
    pub(super) fn module_of(&self, f: &Function) -> Module {
        let mut all = Module::default();
        if !f.callees().is_empty() {
            self.callees.iter().for_each(|callee| {
                all.funcs.push(callee.clone());
            });
        }
        all.reached(f)
    }

    /// Copies what a transformation made to the end of the trace, of these arguments. None of its results is a literal.
    fn copied(&mut self, made: &Derived, args: &[Value]) -> Result<Vec<Value>, Diagnostic> {
        let mut f = self.adopted(made.function(), made.callees());
        self.renumber(&mut f);
        let at = self.b.region();
        let before = self.b.func().region(at).insts.len();
        let place = || At { func: Some(f.name.clone()), ..At::default() };
        // No call is replaced, so no callee is looked for.
        let none = Module::default();
        let out = splice(&none, &f, args, &|_| false, (&place, Phase::PRIMAL), &mut self.b)?;
        if let Some(d) = self.b.error() {
            return Err(d.clone());
        }
        self.follow_phases(before);
        self.b.set_phase(Phase::PRIMAL);
        Ok(out.into_iter().map(|v| self.b.materialize(v)).collect())
    }

    /// Puts instructions of the region under construction into the phases of what they read.
    fn follow_phases(&mut self, first: usize) {
        let at = self.b.region();
        let added: Vec<Inst> = self.b.func().region(at).insts[first..].to_vec();
        for i in added {
            let f = self.b.func();
            let of = |v: Value| match f.def(v) {
                ValueDef::Inst(made, _) => f.inst(made).phase,
                _ => Phase::PRIMAL,
            };
            let latest = reads(f, i).into_iter().map(of).max().unwrap_or(Phase::PRIMAL);
            if latest > f.inst(i).phase {
                raise(self.b.func_mut(), i, latest);
            }
        }
    }

    /// Gives checkpoint regions of a function numbers that no region of the trace has.
    fn renumber(&mut self, f: &mut Function) {
        let (mut all, first, mut next) = (Vec::new(), self.regions, self.regions);
        f.walk(&mut |f, i| {
            if !f.path(i).is_empty() {
                all.push(i);
            }
        });
        for i in all {
            let moved = |s: &CheckpointScope| CheckpointScope { number: s.number + first, ..*s };
            let scopes: Vec<CheckpointScope> = f.path(i).scopes().iter().map(moved).collect();
            next = scopes.iter().map(|s| s.number + 1).fold(next, u32::max);
            f.set_path(i, CheckpointPath::of(&scopes));
        }
        self.regions = next;
    }
}
