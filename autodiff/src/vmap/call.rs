//! Calls over a batch. Only functions with a rule are still called; the callee's batched form has the
//! batched form of the rule, so that a later derivative finds it.

use super::{Batch, Batching, body, flow};
use crate::reverse::last_phase;
use crate::root::refusal;
use adfuse_ir::rewrite::{Copier, dce, inline};
use adfuse_ir::verify::at_inst;
use adfuse_ir::{
    Attr, Attrs, Builder, CustomRule, Diagnostic, Dim, Function, Inst, Kind, Module, Op,
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
        let mapped: Vec<bool> = f.args(i).iter().map(|&a| self.is_mapped(a)).collect();
        let known = self.callees.index.iter().find(|(n, m, _)| n == name && *m == mapped);
        let batched = match known {
            Some((.., made)) => made.clone(),
            None => self.callee(i, name, &mapped)?,
        };
        let args: Vec<Value> = f.args(i).iter().map(|&a| self.values.get(b, a)).collect();
        let types: Vec<TensorType> = f.inst_results(i).iter().map(|&v| self.type_of(v)).collect();
        let attrs = Attrs::none().with("func", Attr::Func(batched));
        Ok(b.inst(Op::Call, &args, attrs, Some(&types)).to_vec())
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
                return Err(refusal(self.module, callee, at_inst(self.f, i)));
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
        let g = inline(self.module, g, &|c| c.rule.is_none())?;
        let batching = Batching {
            size: self.size(),
            params: params.to_vec(),
            results,
            random: self.batching.random,
        };
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
        let g = inline(self.module, rule, &|c| c.rule.is_none())?;
        let moving = flow::mapped(&g, &params);
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
