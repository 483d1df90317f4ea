//! Branches and loops turned around.
//!
//! A linear loop `t' = D(c, x)[t, r]` beside a fixed one `c' = S(c, x)` becomes a loop that goes over `c` again and
//! then back: `ct = D(c, x)^T[ct']`, from the last step to the first. That is the op `adjoint`, which is closed
//! under transposition: what its way back does is linear in what it hands back, so the transposed of
//! `a = U(c, x)[a', t]` goes forward in the cotangent of `a` and back in that of `t`. No number of steps and no
//! schedule of what is kept has to be known here.

use super::turned::{CotangentSums, TurnedLoop, TurnedRole, arranged};
use crate::forward::zeros;
use crate::transpose::{Transpose, transposed};
use adfuse_ir::control::{LoopBuilder, LoopRoles, Outlined, branch, element, outline};
use adfuse_ir::op::Control;
use adfuse_ir::rewrite::splice;
use adfuse_ir::verify::at_inst;
use adfuse_ir::{Attrs, Builder, DType, Diagnostic, Function, Inst, Op, TensorType, Value};

impl Transpose<'_> {
    /// Adds to the cotangents of what an instruction with regions reads.
    pub(crate) fn control(
        &mut self,
        b: &mut Builder,
        i: Inst,
        control: Control,
        cts: &[Option<Value>],
    ) -> Result<(), Diagnostic> {
        match control {
            Control::Branch => self.branch(b, i, cts),
            Control::Loop(_) => self.steps(b, i, cts),
            Control::While | Control::Call => Err(self.not_linear(i)),
        }
    }

    /// The cotangents of the linear parameters from those of the results at `keep`.
    pub(super) fn turned(
        &self,
        f: &Function,
        slots: &[TurnedRole],
        keep: &[usize],
    ) -> Result<Function, Diagnostic> {
        let fixed = slots.iter().filter(|s| **s == TurnedRole::Fixed).count();
        let linear = arranged(f, slots, keep)?;
        transposed(self.module, &linear, fixed, self.phase)
    }

    fn splice(
        &self,
        b: &mut Builder,
        i: Inst,
        g: &Function,
        args: &[Value],
    ) -> Result<Vec<Value>, Diagnostic> {
        let at = || at_inst(self.f, i);
        let place: (&dyn Fn() -> _, _) = (&at, self.phase);
        let out = splice(self.module, g, args, &|callee| callee.rule.is_none(), place, b);
        b.set_phase(self.phase);
        b.derive(self.f, i);
        out
    }

    pub(super) fn is_linear(&self, v: Value) -> bool {
        self.linear.contains(v)
    }

    /// The same branch, with the cotangents of all that any of the regions reads.
    fn branch(
        &mut self,
        b: &mut Builder,
        i: Inst,
        cts: &[Option<Value>],
    ) -> Result<(), Diagnostic> {
        let f = self.f;
        let outlined: Vec<Outlined> = f.inst(i).regions.iter().map(|&r| outline(f, r)).collect();
        let mut read: Vec<Value> = Vec::new();
        for &v in outlined.iter().flat_map(|o| &o.captures) {
            if self.is_linear(v) && !read.contains(&v) {
                read.push(v);
            }
        }
        let given: Vec<usize> = (0..cts.len()).filter(|&k| cts[k].is_some()).collect();
        let selector = self.fixed.get(b, f.args(i)[0]);
        let mut regions = Vec::new();
        for o in &outlined {
            let slots: Vec<TurnedRole> = o.captures.iter().map(|&v| self.role(v)).collect();
            let turned = self.turned(&o.func, &slots, &given)?;
            let mut args = self.fixed_of(b, &o.captures);
            args.extend(given.iter().filter_map(|&k| cts[k]));
            regions.push(b.open_region());
            let out = self.splice(b, i, &turned, &args)?;
            let own: Vec<Value> =
                o.captures.iter().copied().filter(|&v| self.is_linear(v)).collect();
            let mut ends = Vec::new();
            for &v in &read {
                ends.push(match own.iter().position(|&o| o == v) {
                    Some(k) => out[k],
                    None => zeros(b, f.ty(v)),
                });
            }
            b.close_region(&ends);
        }
        let types: Vec<TensorType> = read.iter().map(|&v| f.ty(v).clone()).collect();
        let new = branch(b, f.op(i), selector, &types, &regions);
        let out = b.func().inst_results(new).to_vec();
        for (&v, &ct) in read.iter().zip(&out) {
            self.add(b, v, Some(ct));
        }
        Ok(())
    }

    /// What becomes of a value where its region is turned around.
    pub(super) fn role(&self, v: Value) -> TurnedRole {
        if self.is_linear(v) { TurnedRole::Linear } else { TurnedRole::Fixed }
    }

    /// The new values of those that are fixed.
    pub(super) fn fixed_of(&mut self, b: &mut Builder, values: &[Value]) -> Vec<Value> {
        let fixed: Vec<Value> = values.iter().copied().filter(|&v| !self.is_linear(v)).collect();
        fixed.into_iter().map(|v| self.fixed.get(b, v)).collect()
    }

    fn steps(&mut self, b: &mut Builder, i: Inst, cts: &[Option<Value>]) -> Result<(), Diagnostic> {
        let turn = TurnedLoop::new(self, i, cts)?;
        let f = self.f;
        let (args, roles) = (f.args(i), turn.roles);
        let mut new = LoopBuilder::new(Op::Adjoint, turn.attrs(f, i), roles.extent(f, i));
        new.lead = self.trips(b, i, &roles);
        let lower = (roles.lead == 2).then(|| self.fixed.get(b, args[0]));
        let get = |pass: &mut Self, b: &mut Builder, from: usize, places: &[usize]| -> Vec<Value> {
            places.iter().map(|&k| pass.fixed.get(b, args[from + k])).collect()
        };
        let zero_or = |b: &mut Builder, k: usize| {
            cts[k].unwrap_or_else(|| zeros(b, f.ty(f.inst_results(i)[k])))
        };
        let mut carry = get(self, b, roles.carry_args().start, &turn.carry.fixed);
        for &k in &turn.up.linear {
            carry.push(zero_or(b, roles.up_results().start + k));
        }
        let mut up = get(self, b, roles.up_args().start, &turn.up.fixed);
        for &k in &turn.carry.linear {
            up.push(zero_or(b, k));
        }
        up.extend(turn.read.iter().map(|&v| zeros(b, f.ty(v))));
        let mut xs = get(self, b, roles.xs_args().start, &turn.xs.fixed);
        xs.extend(get(self, b, roles.ws_args().start, &turn.ws.fixed));
        xs.extend(turn.zs.iter().filter_map(|&k| cts[roles.zs_results().start + k]));
        let ws: Vec<Value> =
            turn.ys.iter().filter_map(|&k| cts[roles.ys_results().start + k]).collect();
        (new.carry, new.up, new.xs, new.ws) = (carry, up, xs, ws);

        let p = new.open_step(b);
        let e = turn.entered(b, (p.index, lower), [&p.carry, &[], &p.xs, &[]]);
        let args = e.step_args(&turn, self, b);
        let mut next = self.splice(b, i, &turn.step_fixed, &args)?;
        let mut ends = Vec::new();
        if let Some(back) = &turn.back {
            let mut args = e.back_args(&turn, self, b, true);
            args.extend(e.alpha.iter().chain(&e.z_cts));
            let out = self.splice(b, i, &back.by_up, &args)?;
            let (alpha, w) = out.split_at(turn.up.linear.len());
            next.extend(alpha);
            ends = w.to_vec();
        }
        new.close_step(b, &next, &ends);

        let p = new.open_back(b);
        let e = turn.entered(b, (p.index, lower), [&p.carry, &p.up, &p.xs, &p.ws]);
        let mut next = Vec::new();
        if let Some(back) = &turn.back {
            let args = e.back_args(&turn, self, b, false);
            next = self.splice(b, i, &back.fixed, &args)?;
        }
        let mut args = e.step_args(&turn, self, b);
        args.extend(e.gamma.iter().chain(&e.y_cts));
        let mut sums = CotangentSums::new(&turn, &e.read);
        let out = self.splice(b, i, &turn.by_carry, &args)?;
        sums.add(b, &turn, &turn.step_captures, &out);
        if let Some(back) = &turn.back {
            let mut args = e.back_args(&turn, self, b, false);
            args.extend(e.alpha.iter().chain(&e.z_cts));
            let out = self.splice(b, i, &back.by_carry, &args)?;
            sums.add(b, &turn, &back.captures, &out);
        }
        for (&k, sum) in turn.carry.linear.iter().zip(&sums.carry) {
            next.push(sum.unwrap_or_else(|| zeros(b, f.ty(f.inst_results(i)[k]))));
        }
        next.extend(sums.read.iter().flatten());
        let mut ends = Vec::new();
        for (&k, sum) in turn.xs.linear.iter().zip(&sums.xs) {
            let ty = element(f.ty(f.args(i)[roles.xs_args().start + k]));
            ends.push(sum.unwrap_or_else(|| zeros(b, &ty)));
        }
        new.close_back(b, &next, &ends);
        let placed = new.place(b);
        let out = b.func().inst_results(placed).to_vec();
        self.hand_out(b, i, &turn, &out);
        Ok(())
    }

    /// Adds the results of a loop turned around to the cotangents that they are.
    fn hand_out(&mut self, b: &mut Builder, i: Inst, turn: &TurnedLoop, out: &[Value]) {
        let (args, roles) = (self.f.args(i), turn.roles);
        let place = |from: usize, places: &[usize]| {
            places.iter().map(|k| args[from + k]).collect::<Vec<_>>()
        };
        // The results in order: fixed carries, then cotangents; fixed values handed back, then cotangents.
        let (forward, returned) = out[turn.carry.fixed.len()..].split_at(turn.up.linear.len());
        let returned = &returned[turn.up.fixed.len()..];
        let to = [
            place(roles.up_args().start, &turn.up.linear),
            place(roles.carry_args().start, &turn.carry.linear),
            turn.read.clone(),
            place(roles.ws_args().start, &turn.ws.linear),
            place(roles.xs_args().start, &turn.xs.linear),
        ];
        for (v, &ct) in to.concat().into_iter().zip(forward.iter().chain(returned)) {
            self.add(b, v, Some(ct));
        }
    }

    /// The number of steps as an operand, where it is no extent.
    fn trips(&mut self, b: &mut Builder, i: Inst, roles: &LoopRoles) -> Vec<Value> {
        let args = &self.f.args(i)[..roles.lead];
        let lead: Vec<Value> = args.iter().map(|&v| self.fixed.get(b, v)).collect();
        match lead[..] {
            [from, to] => {
                let (from, to) = (b.converted(from, DType::I64), b.converted(to, DType::I64));
                let number = TensorType::scalar(DType::I64);
                vec![b.op_as(Op::Sub, &[to, from], Attrs::none(), &number)]
            }
            _ => lead,
        }
    }
}
