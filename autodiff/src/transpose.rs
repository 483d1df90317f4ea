//! `transpose`: the linear part turned around, cotangents in, cotangents out.

use crate::control::PartialEval;
use crate::forward::{BACKWARD, zeros};
use crate::partial::{Factor, accumulate, apply, factor};
use crate::slices::{is_padded, side_by_side};
use adfuse_ir::control::{Follow, reach};
use adfuse_ir::op::{Control, Deriv, RuleCx, TransposeRule};
use adfuse_ir::rewrite::{Copier, splice};
use adfuse_ir::verify::at_inst;
use adfuse_ir::{
    Builder, DType, Diagnostic, Function, Inst, Kind, Literal, Module, Op, Phase, TensorType,
    Value, ValueDef,
};
use cranelift_entity::{EntitySet, SecondaryMap};

/// The transposed of a function that is linear in its parameters from position `fixed` on:
/// `(fixed.., ct of results..) -> ct of linear parameters..`. New instructions are of `phase`.
///
/// # Errors
/// Where an instruction is not linear in what it reads of the linear parameters, with its place.
pub fn transpose(f: &Function, fixed: usize, phase: Phase) -> Result<Function, Diagnostic> {
    transposed(&Module::default(), f, fixed, phase)
}

/// As [`transpose`], of a function that may stand for maps by the backward rules of `module`.
pub(crate) fn transposed(
    module: &Module,
    f: &Function,
    fixed: usize,
    phase: Phase,
) -> Result<Function, Diagnostic> {
    let mut b = Builder::new(format!("{}_t", f.name));
    b.func_mut().symbols = f.symbols.clone();
    let mut pass = Transpose {
        module,
        f,
        phase,
        fixed: Copier::new(f),
        linear: EntitySet::new(),
        cts: SecondaryMap::new(),
        slices: SecondaryMap::new(),
    };
    let (constants, linear) = f.params().split_at(fixed);
    for &p in constants {
        let new = b.param(f.ty(p).clone(), f.name_of(p));
        pass.fixed.set(p, new);
    }
    let mut moved = EntitySet::new();
    moved.extend(linear.iter().copied());
    pass.linear = reach(f, moved, Follow::Uses);
    let linear_set = pass.linear.clone();
    let fixed_part = |v: Value| !linear_set.contains(v);
    let all: Vec<Value> = f.body_insts().iter().flat_map(|&i| f.inst_results(i)).copied().collect();
    let part = PartialEval::new(f, &all, &fixed_part, false);
    for &i in f.body_insts() {
        part.copy(&mut pass.fixed, &mut b, i);
    }
    b.set_phase(phase);
    for (k, &r) in f.results().iter().enumerate() {
        let ct = b.param(f.ty(r).clone(), Some(&format!("ct{k}")));
        if pass.linear.contains(r) {
            pass.add(&mut b, r, Some(ct));
        }
    }
    for &i in f.body_insts().iter().rev() {
        pass.inst(&mut b, i)?;
    }
    let mut results = Vec::new();
    for &p in linear {
        let ct = match pass.cotangent(&mut b, p) {
            Some(ct) => ct,
            None => zeros(&mut b, f.ty(p)),
        };
        results.push(ct);
    }
    b.set_results(&results);
    b.finish()
}

pub(crate) struct Transpose<'f> {
    pub(crate) module: &'f Module,
    pub(crate) f: &'f Function,
    pub(crate) phase: Phase,
    pub(crate) fixed: Copier<'f>,
    pub(crate) linear: EntitySet<Value>,
    cts: SecondaryMap<Value, Option<Value>>,
    /// Cotangents of slices, which are not in `cts` until all of them are there.
    slices: SecondaryMap<Value, Vec<Value>>,
}

impl Transpose<'_> {
    /// Adds to a value's cotangent, named after the value whose tangent it belongs to.
    pub(crate) fn add(&mut self, b: &mut Builder, v: Value, ct: Option<Value>) {
        if let Some(ct) = ct
            && is_padded(b, ct)
        {
            self.slices[v].push(ct);
            return;
        }
        self.sum(b, v, ct);
    }

    /// A value's cotangent, once all that reads the value has added to it.
    fn cotangent(&mut self, b: &mut Builder, v: Value) -> Option<Value> {
        let pads = std::mem::take(&mut self.slices[v]);
        for ct in side_by_side(b, self.f.ty(v), &pads) {
            self.sum(b, v, Some(ct));
        }
        self.cts[v]
    }

    fn sum(&mut self, b: &mut Builder, v: Value, ct: Option<Value>) {
        self.cts[v] = accumulate(b, self.cts[v], ct);
        let name = self.f.name_of(v).map(|n| n.strip_suffix("_t").unwrap_or(n));
        if let (Some(ct), Some(name)) = (self.cts[v], name)
            && b.func().literal(ct).is_none()
            && b.func().name_of(ct).is_none_or(|n| n.starts_with("ct"))
            && !matches!(b.func().def(ct), ValueDef::Param(..))
        {
            let name = format!("{name}_ct");
            b.func_mut().set_name(ct, Some(&name));
        }
    }

    pub(crate) fn not_linear(&self, i: Inst) -> Diagnostic {
        let f = self.f;
        let m = format!("`{}` is not linear in its tangent: it cannot be transposed", f.op(i));
        Diagnostic::new(at_inst(f, i), Kind::Derivative, m)
    }

    fn inst(&mut self, b: &mut Builder, i: Inst) -> Result<(), Diagnostic> {
        let f = self.f;
        b.derive(f, i);
        let cts: Vec<Option<Value>> =
            f.inst_results(i).iter().map(|&r| self.cotangent(b, r)).collect();
        if cts.iter().all(Option::is_none) {
            return Ok(());
        }
        let (op, attrs) = (f.op(i), f.attrs(i));
        b.set_phase(self.phase);
        if let Some(control) = op.control().filter(|c| *c != Control::Call) {
            return self.control(b, i, control, &cts);
        }
        let linear: Vec<bool> = f.args(i).iter().map(|&a| self.linear.contains(a)).collect();
        let types: Vec<TensorType> = f.args(i).iter().map(|&a| f.ty(a).clone()).collect();
        let out: Vec<Option<Value>> = match op.def().deriv {
            Deriv::Partials(_) => self.partials(b, i, &linear, cts[0])?,
            Deriv::Linear(slots, rule) => {
                if linear.iter().enumerate().any(|(k, &l)| l && !slots.contains(k)) {
                    return Err(self.not_linear(i));
                }
                let args = self.fixed_args(b, i, &linear);
                let cx = RuleCx { args: &args, results: &[], attrs, types: &types };
                rule(b, &cx, &linear, &cts).to_vec()
            }
            Deriv::Bilinear(rule) => {
                if linear.iter().filter(|l| **l).count() != 1 {
                    return Err(self.not_linear(i));
                }
                let args = self.fixed_args(b, i, &linear);
                let cx = RuleCx { args: &args, results: &[], attrs, types: &types };
                rule(b, &cx, &linear, &cts).to_vec()
            }
            Deriv::Structural if op == Op::Call && attrs.flag(BACKWARD) => {
                self.backward(b, i, &linear, &cts)?
            }
            Deriv::Rules(_, rule) if attrs.flag(BACKWARD) => {
                self.marked(b, i, (rule, &linear), &cts)
            }
            Deriv::Rules(..) | Deriv::Jvp(_) | Deriv::Zero | Deriv::Structural => {
                return Err(self.not_linear(i));
            }
        };
        if let Some(d) = b.error() {
            if d.kind == Kind::Unsupported {
                return Err(Diagnostic::new(at_inst(f, i), d.kind, d.message.clone()));
            }
            let m = format!("the transposition of `{op}` does not fit: {}", d.message);
            return Err(Diagnostic::new(at_inst(f, i), Kind::Internal, m));
        }
        for (k, &a) in f.args(i).iter().enumerate() {
            if linear[k] {
                self.add(b, a, out[k]);
            }
        }
        Ok(())
    }

    /// The operands; where one is linear, a stand-in that no rule reads.
    fn fixed_args(&mut self, b: &mut Builder, i: Inst, linear: &[bool]) -> Vec<Value> {
        let f = self.f;
        (0..linear.len())
            .map(|k| {
                let a = f.args(i)[k];
                if linear[k] { zeros(b, f.ty(a)) } else { self.fixed.get(b, a) }
            })
            .collect()
    }

    /// A map that is given by its transposed: the backward rule, of residuals and cotangents.
    fn backward(
        &mut self,
        b: &mut Builder,
        i: Inst,
        linear: &[bool],
        cts: &[Option<Value>],
    ) -> Result<Vec<Option<Value>>, Diagnostic> {
        let f = self.f;
        let name = f.attrs(i).text("func");
        let rule = self.module.find(name).ok_or_else(|| {
            Diagnostic::new(at_inst(f, i), Kind::CustomRule, format!("no function @{name}"))
        })?;
        let residuals = linear.len().saturating_sub(rule.results().len());
        let mut args = Vec::new();
        for &a in &f.args(i)[..residuals] {
            args.push(self.fixed.get(b, a));
        }
        for (&ct, &r) in cts.iter().zip(f.inst_results(i)) {
            args.push(ct.unwrap_or_else(|| zeros(b, f.ty(r))));
        }
        let at = || at_inst(f, i);
        let place: (&dyn Fn() -> _, _) = (&at, self.phase);
        let out = splice(self.module, rule, &args, &|callee| callee.rule.is_none(), place, b)?;
        let nonzero = |&v: &Value| !b.func().literal(v).is_some_and(Literal::is_zero);
        let out: Vec<Option<Value>> = out.into_iter().map(|v| Some(v).filter(nonzero)).collect();
        Ok(std::iter::repeat_n(None, residuals).chain(out).collect())
    }

    /// What stands for the map of tangents of an op by the rule for its transposed: of operands, results and tangents.
    fn marked(
        &mut self,
        b: &mut Builder,
        i: Inst,
        (rule, linear): (TransposeRule, &[bool]),
        cts: &[Option<Value>],
    ) -> Vec<Option<Value>> {
        let f = self.f;
        let all = f.args(i);
        let results = f.inst_results(i).len();
        let float = |v: &&Value| f.ty(**v).dtype.is_float();
        // Each operand of a float type has a tangent after the results.
        let operands = (0..all.len())
            .find(|&n| n + results + all[..n].iter().filter(float).count() == all.len())
            .unwrap_or(0);
        let fixed: Vec<Value> =
            all[..operands + results].iter().map(|&v| self.fixed.get(b, v)).collect();
        let types: Vec<TensorType> = all[..operands].iter().map(|&v| f.ty(v).clone()).collect();
        let mut at = operands + results;
        // For each operand the place of its tangent.
        let places: Vec<Option<usize>> = (0..operands)
            .map(|k| {
                let place = types[k].dtype.is_float().then_some(at);
                at += usize::from(place.is_some());
                place
            })
            .collect();
        let wanted: Vec<bool> = places.iter().map(|p| p.is_some_and(|p| linear[p])).collect();
        let (args, results) = fixed.split_at(operands);
        let cx = RuleCx { args, results, attrs: f.attrs(i), types: &types };
        let found = rule(b, &cx, &wanted, cts);
        let mut out = vec![None; all.len()];
        for (place, ct) in places.into_iter().zip(found) {
            if let Some(place) = place {
                out[place] = ct;
            }
        }
        out
    }

    /// An elementwise op is its own transposed: its partials act on the cotangent.
    fn partials(
        &mut self,
        b: &mut Builder,
        i: Inst,
        linear: &[bool],
        ct: Option<Value>,
    ) -> Result<Vec<Option<Value>>, Diagnostic> {
        let f = self.f;
        let ty = f.ty(f.inst_results(i)[0]);
        let dtypes: Vec<DType> = f.args(i).iter().map(|&a| f.ty(a).dtype).collect();
        let mut given = Vec::new();
        for (k, &a) in f.args(i).iter().enumerate() {
            given.push(if linear[k] { None } else { Some(self.fixed.get(b, a)) });
        }
        for j in (0..linear.len()).filter(|&j| !linear[j]) {
            // A fixed operand that acts by itself, as in `t + 1`, makes the result affine.
            let zero = f.literal(f.args(i)[j]).is_some_and(Literal::is_zero);
            let program = f.op(i).partial(j, &dtypes, ty.dtype, f.attrs(i));
            let Some(program) = program.filter(|_| dtypes[j].is_float() && !zero) else { continue };
            let reads = program.reads_param(0)
                || (0..linear.len()).any(|k| linear[k] && program.reads_param(k + 1));
            if !reads && !program.as_const().is_some_and(Literal::is_zero) {
                return Err(self.not_linear(i));
            }
        }
        let mut out = vec![None; linear.len()];
        for k in (0..linear.len()).filter(|&k| linear[k]) {
            let program = f
                .op(i)
                .partial(k, &dtypes, ty.dtype, f.attrs(i))
                .ok_or_else(|| self.not_linear(i))?;
            let reads_linear = program.reads_param(0)
                || (0..linear.len()).any(|j| linear[j] && program.reads_param(j + 1));
            if reads_linear {
                return Err(self.not_linear(i));
            }
            let factor: Factor = factor(b, &program, None, &given, ty);
            out[k] = ct.and_then(|ct| apply(b, &factor, ct));
        }
        Ok(out)
    }
}
