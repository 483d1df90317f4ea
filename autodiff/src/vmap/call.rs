//! Calls over a batch. Only functions with a rule are still called; the callee's batched form has the
//! batched form of the rule, so that a later derivative finds it.

use super::mask::{LaneMask, select, spread};
use super::{Batch, Batching, body, flow, repeated};
use crate::forward::{unwritten, zeros};
use crate::reverse::last_phase;
use adfuse_ir::control::branch;
use adfuse_ir::op::Control;
use adfuse_ir::rewrite::{Copier, dce, inline_keeping_rules};
use adfuse_ir::verify::at_inst;
use adfuse_ir::{
    Attr, Attrs, Builder, CustomRule, DType, Diagnostic, Dim, Function, Inst, Kind, Module, Op,
    TensorType, Value,
};

/// Functions that batching made, beside the one it was asked for.
#[derive(Default)]
pub(crate) struct Callees {
    /// The functions.
    pub(crate) made: Vec<Function>,
    /// Which callee, with which parameters mapped, became which function.
    index: Vec<(String, Vec<bool>, String)>,
}

impl Callees {
    /// A name that no function of the module has, nor one that was made.
    fn name(&self, module: &Module, wanted: &str) -> String {
        let taken = |n: &str| {
            module.find(n).is_some()
                || self.made.iter().any(|f| f.name == n)
                || self.index.iter().any(|(.., made)| made == n)
        };
        let mut name = format!("{wanted}_vmap");
        let mut k = 1;
        while taken(&name) {
            k += 1;
            name = format!("{wanted}_vmap{k}");
        }
        name
    }
}

/// Axis 0 where mapped.
fn axes(mapped: &[bool]) -> Vec<Option<usize>> {
    mapped.iter().map(|&m| m.then_some(0)).collect()
}

impl<'f> Batch<'f, '_> {
    /// A callee or a rule, as the module has it.
    fn find(&self, i: Inst, name: &str) -> Result<&'f Function, Diagnostic> {
        let found = self.module.find(name);
        let found = found
            .ok_or_else(|| self.error(i, Kind::UnknownName, format!("no function @{name}")))?;
        match self.size() {
            Dim::Sym(s) if found.symbols.contains(&s) => {
                let m =
                    format!("@{name} has a symbol `{s:?}` of its own: name the batch otherwise");
                Err(self.error(i, Kind::Unsupported, m))
            }
            _ => Ok(found),
        }
    }

    /// Places a call with an operand that depends on the batch.
    pub(super) fn call(&mut self, b: &mut Builder, i: Inst) -> Result<Vec<Value>, Diagnostic> {
        let f = self.f;
        let name = f.attrs(i).text("func");
        // Where not all elements take the region, each has its own copy: the rule would sum their cotangents.
        let own = |a: Value| self.is_mapped(a) || self.lanes.is_some() && self.shares(a);
        let mapped: Vec<bool> = f.args(i).iter().map(|&a| own(a)).collect();
        let known = self.callees.index.iter().find(|(n, m, _)| n == name && *m == mapped);
        let batched = match known {
            Some((.., made)) => made.clone(),
            None => self.callee(i, name, &mapped)?,
        };
        let mut args = Vec::new();
        for (&a, &mapped) in f.args(i).iter().zip(&mapped) {
            args.push(if mapped { self.batched(b, a) } else { self.values.get(b, a) });
        }
        let types: Vec<TensorType> = f.inst_results(i).iter().map(|&v| self.type_of(v)).collect();
        let attrs = Attrs::none().with("func", Attr::Func(batched));
        match self.lanes {
            Some(mask) if self.has_while(name) => {
                Ok(self.call_where_taken(b, (mask, &mapped), (args, attrs), &types))
            }
            _ => Ok(b.inst(Op::Call, &args, attrs, Some(&types)).to_vec()),
        }
    }

    /// Whether a function has a loop that may never end for operands that it is not called with.
    pub(super) fn has_while(&self, name: &str) -> bool {
        let Some(callee) = self.module.find(name) else { return false };
        let mut found = false;
        for g in std::iter::once(callee).chain(self.module.reached(callee).funcs.values()) {
            g.walk(&mut |g, i| found |= g.op(i).control() == Some(Control::While));
        }
        found
    }

    /// A call for the elements that take the region under way. The others do what the first of those does, and
    /// there is no call if none takes it.
    fn call_where_taken(
        &mut self,
        b: &mut Builder,
        (mask, mapped): (LaneMask, &[bool]),
        (mut args, attrs): (Vec<Value>, Attrs),
        types: &[TensorType],
    ) -> Vec<Value> {
        let any = mask.any(b);
        let taken = mask.positive(b);
        let number = b.ty(taken).with_dtype(DType::I32);
        let ones = b.converted(taken, DType::I32);
        let axis = Attrs::none().with_int("axis", 0);
        let first = b.op_with(Op::Argmax, &[ones], axis.clone());
        let place = b.op_as(Op::Iota, &[], axis, &number);
        let first = repeated(b, first, 0, self.size());
        let is_first = b.op(Op::Eq, &[place, first]);
        for (arg, _) in args.iter_mut().zip(mapped).filter(|(_, mapped)| **mapped) {
            let ty = b.ty(*arg).clone();
            let chosen = spread(b, is_first, &ty);
            let fixed = if ty.dtype.is_float() { b.op(Op::StopGradient, &[*arg]) } else { *arg };
            let zero = zeros(b, &ty);
            let alone = b.op_as(Op::SelectN, &[chosen, zero, fixed], Attrs::none(), &ty);
            let sum = if ty.dtype == DType::Bool { Op::ReduceOr } else { Op::ReduceSum };
            let one = b.op_with(sum, &[alone], Attrs::none().with_ints("axes", [0]));
            let all = repeated(b, one, 0, self.size());
            *arg = select(b, mask, all, *arg, &ty);
        }
        call_if(b, any, (&args, attrs), types)
    }

    /// A call that all elements share, if any element takes the region under way.
    pub(super) fn shared_call(&mut self, b: &mut Builder, i: Inst, mask: LaneMask) {
        let f = self.f;
        let args: Vec<Value> = f.args(i).iter().map(|&a| self.values.get(b, a)).collect();
        let types: Vec<TensorType> = f.inst_results(i).iter().map(|&v| f.ty(v).clone()).collect();
        let any = mask.any(b);
        let new = call_if(b, any, (&args, f.attrs(i).clone()), &types);
        for (&old, new) in f.inst_results(i).iter().zip(new) {
            b.func_mut().set_name(new, f.name_of(old));
            self.values.set(old, new);
        }
    }

    /// Makes the batched callee and its rule; its name.
    fn callee(&mut self, i: Inst, name: &str, mapped: &[bool]) -> Result<String, Diagnostic> {
        let callee = self.find(i, name)?;
        let made = self.callees.name(self.module, name);
        // Known before it is made: its rule may call it.
        self.callees.index.push((name.to_string(), mapped.to_vec(), made.clone()));
        let mut g = self.made(callee, &axes(mapped), None)?;
        g.name = made.clone();
        let float = |v: &&Value| callee.ty(**v).dtype.is_float();
        g.rule = match &callee.rule {
            None => None,
            Some(CustomRule::Root(_)) => {
                return Err(unwritten(name, at_inst(self.f, i)));
            }
            Some(CustomRule::Jvp(rule)) => {
                let moving = callee.params().iter().zip(mapped).filter(|(p, _)| float(p));
                let both: Vec<bool> =
                    mapped.iter().copied().chain(moving.map(|(_, &m)| m)).collect();
                Some(CustomRule::Jvp(self.rule(i, rule, &axes(&both))?))
            }
            Some(CustomRule::Vjp(fwd, bwd)) => {
                let (fwd, residuals) = self.fwd(i, fwd, mapped, callee.results().len())?;
                let cts = callee.results().iter().filter(float).map(|_| Some(0));
                let given: Vec<Option<usize>> = residuals.into_iter().chain(cts).collect();
                let shared: Vec<bool> = callee
                    .params()
                    .iter()
                    .zip(mapped)
                    .filter(|(p, _)| float(p))
                    .map(|(_, &m)| !m)
                    .collect();
                Some(CustomRule::Vjp(fwd, self.bwd(i, bwd, &given, &shared)?))
            }
        };
        self.callees.made.push(g);
        Ok(made)
    }

    /// The batched body of a function of the module.
    fn made(
        &mut self,
        g: &Function,
        params: &[Option<usize>],
        results: Option<Vec<Option<usize>>>,
    ) -> Result<Function, Diagnostic> {
        let g = inline_keeping_rules(self.module, g, &|c| c.rule.is_none())?;
        let batching = Batching { params: params.to_vec(), results, ..self.batching.clone() };
        body(self.module, &g, &batching, self.callees)
    }

    fn keep(&mut self, wanted: &str, mut made: Function) -> String {
        let name = self.callees.name(self.module, wanted);
        made.name = name.clone();
        self.callees.made.push(made);
        name
    }

    fn rule(
        &mut self,
        i: Inst,
        name: &str,
        params: &[Option<usize>],
    ) -> Result<String, Diagnostic> {
        let rule = self.find(i, name)?;
        let made = self.made(rule, params, None)?;
        Ok(self.keep(name, made))
    }

    /// The batched forward rule, and the axes of its residuals: those that all elements share stay so.
    fn fwd(
        &mut self,
        i: Inst,
        name: &str,
        mapped: &[bool],
        results: usize,
    ) -> Result<(String, Vec<Option<usize>>), Diagnostic> {
        let rule = self.find(i, name)?;
        let params = axes(mapped);
        let g = inline_keeping_rules(self.module, rule, &|c| c.rule.is_none())?;
        let batching = Batching { params: params.clone(), ..self.batching.clone() };
        let moving = flow::mapped(&g, &batching);
        let residuals = g.results()[results..].iter().map(|&r| moving.contains(r).then_some(0));
        let residuals: Vec<Option<usize>> = residuals.collect();
        let all = std::iter::repeat_n(Some(0), results).chain(residuals.iter().copied()).collect();
        let made = self.made(rule, &params, Some(all))?;
        Ok((self.keep(name, made), residuals))
    }

    /// The batched backward rule: what all elements share has the sum of their cotangents.
    fn bwd(
        &mut self,
        i: Inst,
        name: &str,
        params: &[Option<usize>],
        shared: &[bool],
    ) -> Result<String, Diagnostic> {
        let rule = self.find(i, name)?;
        let made = self.made(rule, params, None)?;
        let mut b = Builder::new(name);
        b.func_mut().symbols = made.symbols.clone();
        let mut copier = Copier::new(&made);
        copier.params(&mut b);
        for &j in made.body_insts() {
            copier.inst(&mut b, j);
        }
        b.set_phase(last_phase(&made));
        let mut results = Vec::new();
        for (&r, &shared) in made.results().iter().zip(shared) {
            let v = copier.get(&mut b, r);
            let axes = Attrs::none().with_ints("axes", [0]);
            results.push(if shared { b.op_with(Op::ReduceSum, &[v], axes) } else { v });
        }
        b.set_results(&results);
        let mut summed = b.finish()?;
        dce(&mut summed);
        Ok(self.keep(name, summed))
    }
}

/// The results of a call, or zeros.
fn call_if(
    b: &mut Builder,
    predicate: Value,
    (args, attrs): (&[Value], Attrs),
    types: &[TensorType],
) -> Vec<Value> {
    let yes = b.open_region();
    let results = b.inst(Op::Call, args, attrs, Some(types)).to_vec();
    b.close_region(&results);
    let no = b.open_region();
    let none: Vec<Value> = types.iter().map(|ty| zeros(b, ty)).collect();
    b.close_region(&none);
    let placed = branch(b, Op::Cond, predicate, types, &[yes, no]);
    b.func().inst_results(placed).to_vec()
}
