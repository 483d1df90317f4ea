//! Forward mode through regions: what is carried has its tangent carried beside it.

use crate::forward::{Forward, Pushing};
use adfuse_ir::control::{Entered, Liveness, LoopBuilder, LoopRoles, branch, while_loop};
use adfuse_ir::op::Control;
use adfuse_ir::{
    Attr, Attrs, Builder, DType, Diagnostic, Dim, Inst, Literal, Op, Region, TensorType, Value,
};

impl Forward<'_> {
    /// Places an op with regions and the tangents of its results.
    pub(crate) fn control(
        &mut self,
        b: &mut Builder,
        i: Inst,
        control: Control,
    ) -> Result<(), Diagnostic> {
        if !self.f.inst_results(i).iter().any(|&v| self.is_active(v)) {
            self.primal.inst(b, i);
            return Ok(());
        }
        match control {
            Control::Branch => self.branch(b, i),
            Control::Loop(_) => self.steps(b, i),
            Control::While if self.pushing() == Pushing::Results => self.while_loop(b, i),
            Control::While => self.counted(b, i),
            Control::Call => self.call(b, i),
        }
    }

    /// The places of a list that have a tangent.
    fn active(&self, values: &[Value]) -> Vec<usize> {
        (0..values.len()).filter(|&k| self.is_active(values[k])).collect()
    }

    /// Copies a region's instructions with their tangents; then the owner's phase and place again.
    fn insts(&mut self, b: &mut Builder, owner: Inst, region: Region) -> Result<(), Diagnostic> {
        for &j in &self.f.region(region).insts {
            self.inst(b, j)?;
        }
        b.set_phase(self.f.inst(owner).phase);
        b.derive(self.f, owner);
        Ok(())
    }

    /// The new values of a list, then the tangents at some of its places.
    fn both(&mut self, b: &mut Builder, values: &[Value], active: &[usize]) -> Vec<Value> {
        let mut all: Vec<Value> = values.iter().map(|&v| self.primal.get(b, v)).collect();
        all.extend(active.iter().map(|&k| self.tangent_or_zero(b, values[k])));
        all
    }

    /// Declares what the parameters of a region became: values, then tangents.
    fn enter(&mut self, b: &mut Builder, old: &[Value], active: &[usize], new: &[Value]) {
        for (&old, &new) in old.iter().zip(new) {
            b.func_mut().set_name(new, self.f.name_of(old));
            self.primal.set(old, new);
            self.set_tangent(old, None);
        }
        for (&k, &t) in active.iter().zip(&new[old.len().min(new.len())..]) {
            self.set_named(b, old[k], Some(t));
        }
    }

    /// Each branch ends with its results and their tangents.
    fn branch(&mut self, b: &mut Builder, i: Inst) -> Result<(), Diagnostic> {
        let f = self.f;
        let results = f.inst_results(i);
        let active = self.active(results);
        let mut regions = Vec::new();
        for &r in &f.inst(i).regions {
            regions.push(b.open_region());
            self.insts(b, i, r)?;
            let ends = self.both(b, &f.region(r).results, &active);
            b.close_region(&ends);
        }
        let moving = active.iter().map(|&k| results[k]);
        let types: Vec<TensorType> =
            results.iter().copied().chain(moving).map(|v| f.ty(v).clone()).collect();
        let selector = self.primal.get(b, f.args(i)[0]);
        let new = branch(b, f.op(i), selector, &types, &regions);
        let values = b.func().inst_results(new).to_vec();
        self.enter(b, results, &active, &values);
        Ok(())
    }

    /// The loop carries a tangent for each active carry. The condition does not read it.
    fn while_loop(&mut self, b: &mut Builder, i: Inst) -> Result<(), Diagnostic> {
        let f = self.f;
        let (test, body) = (f.inst(i).regions[0], f.inst(i).regions[1]);
        let active = self.active(&f.region(body).params);
        let carry = self.both(b, f.args(i), &active);
        let types: Vec<TensorType> = carry.iter().map(|&v| b.ty(v).clone()).collect();
        let mut regions = [test, body];
        for (r, new) in [test, body].into_iter().zip(&mut regions) {
            *new = b.open_region();
            let params: Vec<Value> = types.iter().map(|ty| b.param(ty.clone(), None)).collect();
            let tangents: &[usize] = if r == test { &[] } else { &active };
            self.enter(b, &f.region(r).params, tangents, &params);
            self.insts(b, i, r)?;
            let ends = self.both(b, &f.region(r).results, tangents);
            b.close_region(&ends);
        }
        let new = while_loop(b, f.attrs(i).clone(), &carry, regions);
        let values = b.func().inst_results(new).to_vec();
        self.enter(b, f.inst_results(i), &active, &values);
        Ok(())
    }

    /// A `while` that counts its steps, and a loop of that many for the tangents: how often the body runs
    /// depends on no tangent, and what is linear in them has to be a loop that can be turned around.
    fn counted(&mut self, b: &mut Builder, i: Inst) -> Result<(), Diagnostic> {
        let f = self.f;
        let (test, body) = (f.inst(i).regions[0], f.inst(i).regions[1]);
        let active = self.active(&f.region(body).params);
        let given = self.both(b, f.args(i), &active);
        let number = TensorType::scalar(DType::I64);
        let mut carry = given[..f.args(i).len()].to_vec();
        carry.push(b.literal(&number, Literal::zero(DType::I64)));
        let types: Vec<TensorType> = carry.iter().map(|&v| b.ty(v).clone()).collect();
        let mut regions = [test, body];
        for (r, new) in [test, body].into_iter().zip(&mut regions) {
            *new = b.open_region();
            let params: Vec<Value> = types.iter().map(|ty| b.param(ty.clone(), None)).collect();
            self.enter(b, &f.region(r).params, &[], &params);
            for &j in &f.region(r).insts {
                self.primal.inst(b, j);
            }
            b.set_phase(f.inst(i).phase);
            b.derive(f, i);
            let mut ends = self.both(b, &f.region(r).results, &[]);
            if r == body {
                let one = b.literal(&number, Literal::one(DType::I64));
                ends.push(b.op(Op::Add, &[params[params.len() - 1], one]));
            }
            b.close_region(&ends);
        }
        let new = while_loop(b, f.attrs(i).clone(), &carry, regions);
        let mut values = b.func().inst_results(new).to_vec();
        let trips = values.split_off(values.len() - 1)[0];
        b.func_mut().set_name(trips, Some("trips"));
        self.enter(b, f.inst_results(i), &[], &values);

        // Of what the body carries, the tangents need a part: no effects, nothing that only the condition reads.
        let (carried, ends) = (&f.region(body).params, &f.region(body).results);
        let mut live = Liveness::new(f, false);
        active.iter().for_each(|&k| {
            live.need(carried[k]);
        });
        while (0..carried.len()).any(|k| live.contains(carried[k]) && live.need(ends[k])) {
            live.region(body);
        }
        let kept: Vec<usize> = (0..carried.len()).filter(|&k| live.contains(carried[k])).collect();
        let select = |values: &[Value]| kept.iter().map(|&k| values[k]).collect::<Vec<_>>();
        let moving: Vec<usize> = (0..kept.len()).filter(|&n| active.contains(&kept[n])).collect();
        let attrs = Attrs::none().with("counted", Attr::Bool(true));
        let mut tangents = LoopBuilder::new(Op::Adjoint, attrs, Dim::Const(0));
        tangents.lead = vec![trips];
        tangents.carry = [select(&given), given[carried.len()..].to_vec()].concat();
        let p = tangents.open_step(b);
        self.enter(b, &select(carried), &moving, &p.carry);
        for &j in f.region(body).insts.iter().filter(|&&j| live.needs(j)) {
            self.inst(b, j)?;
        }
        b.set_phase(f.inst(i).phase);
        b.derive(f, i);
        let next = self.both(b, &select(ends), &moving);
        tangents.close_step(b, &next, &[]);
        tangents.open_back(b);
        tangents.close_back(b, &[], &[]);
        let new = tangents.place(b);
        let moved = b.func().inst_results(new)[kept.len()..].to_vec();
        for (&k, &t) in active.iter().zip(&moved) {
            self.set_named(b, f.inst_results(i)[k], Some(t));
        }
        Ok(())
    }

    /// A loop of a known number of steps: carries, what is scanned and what is stacked have tangents beside them.
    fn steps(&mut self, b: &mut Builder, i: Inst) -> Result<(), Diagnostic> {
        let f = self.f;
        let roles = LoopRoles::at(f, i);
        let (args, results) = (f.args(i), f.inst_results(i));
        let (step, back) = (f.inst(i).regions[0], f.inst(i).regions.get(1).copied());
        let down = roles.step(f, step);
        let up = back.map(|r| roles.back(f, r));
        let moving = Moving {
            carry: self.active(&down.carry),
            up: up.as_ref().map_or(Vec::new(), |p| self.active(&p.up)),
            xs: self.active(&args[roles.xs_args()]),
            ws: self.active(&args[roles.ws_args()]),
            ys: self.active(&results[roles.ys_results()]),
            zs: self.active(&results[roles.zs_results()]),
        };
        let mut new = LoopBuilder::new(f.op(i), f.attrs(i).clone(), roles.extent(f, i));
        new.lead = self.both(b, &args[..roles.lead], &[]);
        new.carry = self.both(b, &args[roles.carry_args()], &moving.carry);
        new.up = self.both(b, &args[roles.up_args()], &moving.up);
        new.xs = self.both(b, &args[roles.xs_args()], &moving.xs);
        new.ws = self.both(b, &args[roles.ws_args()], &moving.ws);
        let p = new.open_step(b);
        self.enter_region(b, &down, &moving, &p);
        self.insts(b, i, step)?;
        let (next, ends) = f.region(step).results.split_at(roles.carry);
        let (next, ends) = (self.both(b, next, &moving.carry), self.both(b, ends, &moving.ys));
        new.close_step(b, &next, &ends);
        if let (Some(up), Some(back)) = (&up, back) {
            let p = new.open_back(b);
            self.enter_region(b, up, &moving, &p);
            self.insts(b, i, back)?;
            let (next, ends) = f.region(back).results.split_at(roles.up);
            let (next, ends) = (self.both(b, next, &moving.up), self.both(b, ends, &moving.zs));
            new.close_back(b, &next, &ends);
        }
        let placed = new.place(b);
        let values = b.func().inst_results(placed).to_vec();
        let mut rest = values.as_slice();
        let groups = [
            (roles.carry_results(), &moving.carry),
            (roles.up_results(), &moving.up),
            (roles.ys_results(), &moving.ys),
            (roles.zs_results(), &moving.zs),
        ];
        for (range, active) in groups {
            let (these, others) = rest.split_at(range.len() + active.len());
            rest = others;
            self.enter(b, &results[range], active, these);
        }
        Ok(())
    }

    fn enter_region(&mut self, b: &mut Builder, old: &Entered, moving: &Moving, new: &Entered) {
        if let (Some(old), Some(new)) = (old.index, new.index) {
            self.enter(b, &[old], &[], &[new]);
        }
        self.enter(b, &old.carry, &moving.carry, &new.carry);
        self.enter(b, &old.up, &moving.up, &new.up);
        self.enter(b, &old.xs, &moving.xs, &new.xs);
        self.enter(b, &old.ws, &moving.ws, &new.ws);
    }
}

/// The places that have a tangent, by role.
struct Moving {
    carry: Vec<usize>,
    up: Vec<usize>,
    xs: Vec<usize>,
    ws: Vec<usize>,
    ys: Vec<usize>,
    zs: Vec<usize>,
}
