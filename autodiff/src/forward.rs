//! The forward rules: copies instructions into a builder and pushes tangents along.

use crate::partial::{accumulate, apply, factor};
use crate::zero_tangents::without_zero_tangents;
use adfuse_ir::control::{Follow, reach};
use adfuse_ir::op::{Composition, Control, Deriv, Op, RuleCx};
use adfuse_ir::rewrite::{Copier, StepLowering, inline_keeping_rules, splice, with_steps};
use adfuse_ir::verify::at_inst;
use adfuse_ir::{
    At, Attr, Attrs, Builder, CustomRule, DType, Diagnostic, Function, Inst, Kind, Literal, Module,
    NewInst, TensorType, Value,
};
use cranelift_entity::{EntitySet, SecondaryMap};

/// The function without calls, but for those of functions with a custom rule.
pub(crate) fn prepare(module: &Module, f: &Function) -> Result<Function, Diagnostic> {
    if f.rule.is_none() {
        return inline_keeping_rules(module, f, &|callee| callee.rule.is_none());
    }
    // A function with a rule is differentiated as a call of it.
    let mut b = Builder::new(f.name.clone());
    b.func_mut().symbols = f.symbols.clone();
    let mut copier = Copier::new(f);
    copier.params(&mut b);
    let args = b.func().params().to_vec();
    let attrs = Attrs::none().with("func", Attr::Func(f.name.clone()));
    let results = b.inst(Op::Call, &args, attrs, Some(&f.result_types()));
    b.set_results(&results);
    b.finish()
}

/// As [`prepare`], for a transformation that needs derivatives: an op that may be a step of its own and has no rule is what it
/// is composed of.
pub(crate) fn prepare_steps(module: &Module, f: &Function) -> Result<Function, Diagnostic> {
    with_steps(prepare(module, f)?, &|f, i| match f.op(i).def().deriv {
        Deriv::Structural => StepLowering::Composed(Composition::Other),
        _ => StepLowering::Kept,
    })
}

/// Marks the call of a backward rule that stands for a linear map: its operands are residuals and
/// tangents, and the rule is what the map is transposed. Only between [`Pushing::Transposition`] and the
/// transposition are there such calls.
pub(crate) const BACKWARD: &str = "backward";

/// The error where a `custom_root` is needed that no rule could be written for. What transforms a program says why.
pub(crate) fn unwritten(name: &str, at: At) -> Diagnostic {
    Diagnostic::new(at, Kind::CustomRule, format!("the custom_root of @{name} has no derivative"))
}

/// What becomes of the tangents that are pushed along.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushing {
    /// They are results.
    Results,
    /// They are results of a linear function of its own, which what is known is kept for.
    Linear,
    /// What computes them is transposed, so that a rule for the transposed alone will do.
    Transposition,
}

/// A function being differentiated: where its values went, and their tangents.
pub(crate) struct Forward<'f> {
    module: &'f Module,
    pub(crate) f: &'f Function,
    pushing: Pushing,
    pub(crate) primal: Copier<'f>,
    tangents: SecondaryMap<Value, Option<Value>>,
    /// The values that may have a tangent, those in regions among them.
    active: EntitySet<Value>,
}

impl<'f> Forward<'f> {
    pub(crate) fn new(module: &'f Module, f: &'f Function, pushing: Pushing) -> Forward<'f> {
        let (primal, tangents) = (Copier::new(f), SecondaryMap::new());
        Forward { module, f, pushing, primal, tangents, active: EntitySet::new() }
    }

    /// Declares the tangent of an old value.
    pub(crate) fn set_tangent(&mut self, old: Value, tangent: Option<Value>) {
        self.tangents[old] = tangent;
    }

    /// The tangent of an old value, zeros written out.
    pub(crate) fn tangent_or_zero(&self, b: &mut Builder, old: Value) -> Value {
        self.tangents[old].unwrap_or_else(|| zeros(b, self.f.ty(old)))
    }

    /// Whether a value may have a tangent.
    pub(crate) fn is_active(&self, old: Value) -> bool {
        self.active.contains(old)
    }

    pub(crate) fn pushing(&self) -> Pushing {
        self.pushing
    }

    /// Copies the body's instructions and their tangents.
    pub(crate) fn body(&mut self, b: &mut Builder) -> Result<(), Diagnostic> {
        let given = self.f.params().iter().filter(|p| self.tangents[**p].is_some());
        let mut seeds = EntitySet::new();
        seeds.extend(given.copied());
        self.active = reach(self.f, seeds, Follow::Tangents);
        for &i in self.f.body_insts() {
            self.inst(b, i)?;
        }
        Ok(())
    }

    fn error(&self, i: Inst, message: String) -> Diagnostic {
        Diagnostic::new(at_inst(self.f, i), Kind::Derivative, message)
    }

    pub(crate) fn inst(&mut self, b: &mut Builder, i: Inst) -> Result<(), Diagnostic> {
        let f = self.f;
        let op = f.op(i);
        b.set_phase(f.inst(i).phase);
        b.derive(f, i);
        let active = f.args(i).iter().any(|&a| self.tangents[a].is_some());
        match op.control() {
            Some(Control::Call) if !active => {}
            Some(control) => return self.control(b, i, control),
            None => {}
        }
        let new = self.primal.inst(b, i);
        if !active {
            return Ok(());
        }
        let out = self.tangents_of(b, i, new)?;
        if let Some(d) = b.error() {
            if d.kind == Kind::Unsupported {
                return Err(Diagnostic::new(at_inst(f, i), d.kind, d.message.clone()));
            }
            let m = format!("the derivative rule of `{op}` does not fit: {}", d.message);
            return Err(Diagnostic::new(at_inst(f, i), Kind::Internal, m));
        }
        for (&old, t) in f.inst_results(i).iter().zip(out) {
            self.set_named(b, old, t);
        }
        Ok(())
    }

    /// Emits the tangents of the results of an active instruction, by the rule of its op. `new` is its copy
    /// in the new function.
    fn tangents_of(
        &self,
        b: &mut Builder,
        i: Inst,
        new: Inst,
    ) -> Result<Vec<Option<Value>>, Diagnostic> {
        let f = self.f;
        let op = f.op(i);
        let args = b.func().args(new).to_vec();
        let results = b.func().inst_results(new).to_vec();
        let tangents: Vec<Option<Value>> = f.args(i).iter().map(|&a| self.tangents[a]).collect();
        let attrs = f.attrs(i);
        Ok(match op.def().deriv {
            Deriv::Zero => vec![None; results.len()],
            Deriv::Partials(_) => {
                vec![self.sum_of_partials(b, i, (&args, results[0]), &tangents)?]
            }
            Deriv::Linear(slots, _) => {
                let types: Vec<TensorType> = results.iter().map(|&v| b.ty(v).clone()).collect();
                if types.iter().all(|t| !t.dtype.is_float()) {
                    vec![None; results.len()]
                } else if op == Op::Concatenate && tangents.contains(&None) {
                    vec![placed(b, attrs.int("axis") as usize, &args, &tangents)]
                } else {
                    let args: Vec<Value> = (0..args.len())
                        .map(|k| match tangents[k] {
                            _ if !slots.contains(k) => args[k],
                            Some(t) => t,
                            None => zeros(b, f.ty(f.args(i)[k])),
                        })
                        .collect();
                    b.inst(op, &args, op.tangent_attrs(attrs), Some(&types))
                        .iter()
                        .map(|&t| Some(t))
                        .collect()
                }
            }
            Deriv::Bilinear(_) => {
                let ty = b.ty(results[0]).clone();
                let mut sum = None;
                for (k, t) in tangents.iter().enumerate() {
                    let Some(t) = *t else { continue };
                    let mut with = args.clone();
                    with[k] = t;
                    let term = b.op_as(op, &with, attrs.clone(), &ty);
                    sum = accumulate(b, sum, Some(term));
                }
                vec![sum]
            }
            Deriv::Rules(_, _) if self.pushing == Pushing::Transposition => {
                self.by_transposition(b, i, (&args, &results), &tangents)
            }
            Deriv::Jvp(rule) | Deriv::Rules(rule, _) => {
                let types: Vec<TensorType> = args.iter().map(|&a| b.ty(a).clone()).collect();
                let cx = RuleCx { args: &args, results: &results, attrs, types: &types };
                rule(b, &cx, &tangents).to_vec()
            }
            Deriv::Structural if op == Op::Opaque => {
                let floats = results.iter().any(|&v| b.ty(v).dtype.is_float());
                if floats {
                    let m = format!("`{}` has no derivative here", attrs.text("name"));
                    let hint = "call it in a function that has a custom_jvp or a custom_vjp";
                    let at = at_inst(f, i);
                    return Err(Diagnostic::new(at, Kind::Unsupported, m).hint(hint));
                }
                vec![None; results.len()]
            }
            Deriv::Structural => {
                return Err(self.error(i, format!("`{op}` does not differentiate")));
            }
        })
    }

    /// Emits what stands for the map of tangents of an op whose rule gives the transposed alone: an instruction of that
    /// op, marked, of its operands, its results, and the tangents of operands of a float type.
    fn by_transposition(
        &self,
        b: &mut Builder,
        i: Inst,
        (args, results): (&[Value], &[Value]),
        tangents: &[Option<Value>],
    ) -> Vec<Option<Value>> {
        let f = self.f;
        let mut all = [args, results].concat();
        for (&a, t) in f.args(i).iter().zip(tangents) {
            let ty = f.ty(a);
            if ty.dtype.is_float() {
                all.push(t.unwrap_or_else(|| zeros(b, ty)));
            }
        }
        let types: Vec<TensorType> = results.iter().map(|&v| b.ty(v).clone()).collect();
        let attrs = f.attrs(i).clone().with(BACKWARD, Attr::Bool(true));
        let (at, phase) = (b.region(), f.inst(i).phase);
        let (args, results) = (&all, &types);
        let new = NewInst { op: f.op(i), args, attrs, results, regions: &[], phase };
        let map = b.func_mut().add_inst(at, new);
        b.func_mut().set_origin(map, f.origin(i).clone());
        b.func_mut().set_path(map, f.path(i).without_name());
        b.func().inst_results(map).iter().map(|&v| Some(v)).collect()
    }

    /// Emits the tangent of the result `y`: the sum of the partials by `args`, each times its tangent.
    fn sum_of_partials(
        &self,
        b: &mut Builder,
        i: Inst,
        (args, y): (&[Value], Value),
        tangents: &[Option<Value>],
    ) -> Result<Option<Value>, Diagnostic> {
        let (f, op, attrs) = (self.f, self.f.op(i), self.f.attrs(i));
        let result = f.ty(f.inst_results(i)[0]);
        let dtypes: Vec<DType> = args.iter().map(|&a| b.ty(a).dtype).collect();
        let given: Vec<Option<Value>> = args.iter().map(|&a| Some(a)).collect();
        let mut sum = None;
        for (k, t) in tangents.iter().enumerate() {
            let Some(t) = *t else { continue };
            let program = op
                .partial(k, &dtypes, result.dtype, attrs)
                .ok_or_else(|| self.error(i, format!("`{op}` has no partials")))?;
            let factor = factor(b, &program, Some(y), &given, result);
            let term = apply(b, &factor, t);
            sum = accumulate(b, sum, term);
        }
        Ok(sum)
    }

    /// Sets a tangent that an instruction just made, named after its primal.
    pub(crate) fn set_named(&mut self, b: &mut Builder, old: Value, tangent: Option<Value>) {
        if let (Some(t), Some(name)) = (tangent, self.f.name_of(old))
            && b.func().name_of(t).is_none()
        {
            let name = format!("{name}_t");
            b.func_mut().set_name(t, Some(&name));
        }
        self.tangents[old] = tangent;
    }

    /// A call of a function with a custom rule becomes the rule. Calls that no tangent flows into
    /// stay, and so do those inside of the rule: a later derivative finds their rules.
    pub(crate) fn call(&mut self, b: &mut Builder, i: Inst) -> Result<(), Diagnostic> {
        let f = self.f;
        let name = f.attrs(i).text("func");
        let rule = self.module.find(name).and_then(|c| c.rule.as_ref());
        let args: Vec<Value> = f.args(i).iter().map(|&a| self.primal.get(b, a)).collect();
        let float: Vec<Value> =
            f.args(i).iter().copied().filter(|&a| f.ty(a).dtype.is_float()).collect();
        let tangents: Vec<Value> = float.iter().map(|&a| self.tangent_or_zero(b, a)).collect();
        let moves: Vec<bool> = float.iter().map(|&a| self.tangents[a].is_some()).collect();
        let results = f.inst_results(i);
        let moving: Vec<Value> =
            results.iter().copied().filter(|&v| f.ty(v).dtype.is_float()).collect();
        let (primal, out) = match rule {
            Some(CustomRule::Jvp(rule)) => {
                let rule = without_zero_tangents(self.module, self.rule(i, rule)?, &moves)?;
                let mut primal = self.splice(b, i, &rule, &[args, tangents].concat())?;
                let out = primal.split_off(results.len().min(primal.len()));
                (primal, out)
            }
            Some(CustomRule::Vjp(fwd, bwd)) if self.pushing == Pushing::Transposition => {
                let mut primal = self.splice(b, i, self.rule(i, fwd)?, &args)?;
                let residuals = primal.split_off(results.len().min(primal.len()));
                let types: Vec<TensorType> = moving.iter().map(|&v| f.ty(v).clone()).collect();
                let attrs = Attrs::none()
                    .with("func", Attr::Func(bwd.clone()))
                    .with(BACKWARD, Attr::Bool(true));
                let (at, phase) = (b.region(), f.inst(i).phase);
                let args = [residuals, tangents].concat();
                let map = b.func_mut().add_inst(
                    at,
                    NewInst {
                        op: Op::Call,
                        args: &args,
                        attrs,
                        results: &types,
                        regions: &[],
                        phase,
                    },
                );
                b.func_mut().set_origin(map, f.origin(i).clone());
                b.func_mut().set_path(map, f.path(i).without_name());
                (primal, b.func().inst_results(map).to_vec())
            }
            Some(CustomRule::Vjp(..)) => {
                let m = format!("@{name} has a custom_vjp, which says nothing of forward mode");
                let at = at_inst(f, i);
                let hint = "use reverse mode, or write a custom_jvp";
                return Err(Diagnostic::new(at, Kind::Unsupported, m).hint(hint));
            }
            Some(CustomRule::Root(_)) => return Err(unwritten(name, at_inst(f, i))),
            None => return Err(self.error(i, format!("@{name} has no rule to apply"))),
        };
        for (&old, &v) in results.iter().zip(&primal) {
            self.primal.set(old, v);
        }
        for (&old, &t) in moving.iter().zip(&out) {
            let zero = b.func().literal(t).is_some_and(Literal::is_zero);
            self.tangents[old] = (!zero).then_some(t);
        }
        Ok(())
    }

    /// A function of the module that a rule names.
    fn rule(&self, i: Inst, name: &str) -> Result<&'f Function, Diagnostic> {
        let found = self.module.find(name);
        found.ok_or_else(|| self.error(i, format!("no function @{name}")))
    }

    /// The results of a rule, its instructions in place.
    fn splice(
        &self,
        b: &mut Builder,
        i: Inst,
        rule: &Function,
        args: &[Value],
    ) -> Result<Vec<Value>, Diagnostic> {
        let at = || at_inst(self.f, i);
        let place: (&dyn Fn() -> _, _) = (&at, self.f.inst(i).phase);
        splice(self.module, rule, args, &|callee| callee.rule.is_none(), place, b)
    }
}

/// The tangent of a concatenation of which some parts do not move: those that do in their places, without
/// zeros for the others. The extents along the axis are known, or there is one part.
fn placed(
    b: &mut Builder,
    axis: usize,
    args: &[Value],
    tangents: &[Option<Value>],
) -> Option<Value> {
    let extent = |b: &Builder, k: usize| b.ty(args[k]).shape[axis].known().unwrap_or(0) as i64;
    let total: i64 = (0..args.len()).map(|k| extent(b, k)).sum();
    let (rank, dtype) = (b.ty(args[0]).rank(), b.ty(args[0]).dtype);
    let (mut sum, mut start, mut k) = (None, 0, 0);
    while k < args.len() {
        let run: Vec<Value> = tangents[k..].iter().map_while(|&t| t).collect();
        let width: i64 = (k..k + run.len()).map(|k| extent(b, k)).sum();
        let joined = match run.as_slice() {
            [] => None,
            [only] => Some(*only),
            run => {
                let attrs = Attrs::none().with_int("axis", axis as i64);
                Some(b.op_with(Op::Concatenate, run, attrs))
            }
        };
        if let Some(joined) = joined {
            let along = |n: i64| (0..rank).map(move |d| if d == axis { n } else { 0 });
            let attrs = Attrs::none()
                .with_ints("low", along(start))
                .with_ints("high", along(total - start - width))
                .with_ints("interior", along(0));
            let zero = b.literal(&TensorType::scalar(dtype), Literal::zero(dtype));
            let term = b.op_with(Op::Pad, &[joined, zero], attrs);
            sum = accumulate(b, sum, Some(term));
        }
        // What follows the run does not move.
        k += run.len();
        start += width;
        if k < args.len() {
            start += extent(b, k);
            k += 1;
        }
    }
    sum
}

/// Zeros of a type, as a literal.
pub(crate) fn zeros(b: &mut Builder, ty: &TensorType) -> Value {
    b.literal(ty, Literal::zero(ty.dtype))
}
