//! Loops over a batch: what they carry is batched where it depends on the batch. Where the number of steps
//! does, the loop runs as long as any element does, and an element that is done keeps its bits.

use super::mask::{LaneMask, gated, select, spread};
use super::{Batch, to_front};
use adfuse_ir::control::{Entered, LoopBuilder, LoopRoles, while_loop};
use adfuse_ir::{
    Attrs, Builder, DType, Diagnostic, Dim, Inst, Kind, Literal, Op, Region, TensorType, Value,
};

impl Batch<'_, '_> {
    /// No token depends on the batch.
    fn no_tokens(&self, i: Inst) -> Result<(), Diagnostic> {
        let f = self.f;
        let token = |v: &Value| f.ty(*v).dtype == DType::Token && self.is_mapped(*v);
        if f.inst_results(i).iter().any(token) {
            let m = "a loop that depends on the batch carries a token: effects cannot be batched";
            return Err(self.error(i, Kind::Effect, m));
        }
        Ok(())
    }

    /// The type of a value's new form.
    fn new_type(&self, old: Value) -> TensorType {
        if self.is_mapped(old) { self.type_of(old) } else { self.f.ty(old).clone() }
    }

    /// New values for a list, each batched where the value at its place in `like` is.
    fn as_in(&mut self, b: &mut Builder, values: &[Value], like: &[Value]) -> Vec<Value> {
        let mut all = Vec::new();
        for (&v, &like) in values.iter().zip(like) {
            all.push(if self.is_mapped(like) { self.batched(b, v) } else { self.values.get(b, v) });
        }
        all
    }

    fn enter(&mut self, b: &mut Builder, old: &[Value], new: &[Value]) {
        for (&old, &new) in old.iter().zip(new) {
            b.func_mut().set_name(new, self.f.name_of(old));
            self.values.set(old, new);
        }
    }

    fn insts(&mut self, b: &mut Builder, owner: Inst, region: Region) -> Result<(), Diagnostic> {
        for &j in &self.f.region(region).insts {
            self.inst(b, j)?;
        }
        b.set_phase(self.phase(owner));
        b.follow(self.f, owner);
        Ok(())
    }

    /// Places a `while`.
    pub(super) fn while_loop(&mut self, b: &mut Builder, i: Inst) -> Result<(), Diagnostic> {
        let f = self.f;
        self.no_tokens(i)?;
        let (test, body) = (f.inst(i).regions[0], f.inst(i).regions[1]);
        let carried = &f.region(body).params;
        let condition = f.region(test).results[0];
        let differs = self.is_mapped(condition);
        let carry = self.as_in(b, f.args(i), carried);
        let types: Vec<TensorType> = carried.iter().map(|&v| self.new_type(v)).collect();
        // It stops for elements that do not take the region that it is in.
        let entered = self.lanes.filter(|_| !differs).map(|mask| mask.any(b));
        let mut regions = [test, body];
        for (r, new) in [test, body].into_iter().zip(&mut regions) {
            *new = b.open_region();
            let params: Vec<Value> = types.iter().map(|ty| b.param(ty.clone(), None)).collect();
            let ends = if r == test {
                self.enter(b, &f.region(test).params, &params);
                self.insts(b, i, test)?;
                let own = self.values.get(b, condition);
                vec![if differs {
                    self.conjoined(b, LaneMask { own, taken: true }).any(b)
                } else {
                    entered.map_or(own, |entered| b.op(Op::And, &[own, entered]))
                }]
            } else if differs {
                self.enter(b, &f.region(test).params, &params);
                self.insts(b, i, test)?;
                let own = self.values.get(b, condition);
                self.masked(b, i, body, (carried, &params), LaneMask { own, taken: true })?
            } else {
                self.enter(b, carried, &params);
                self.insts(b, i, body)?;
                self.as_in(b, &f.region(body).results, carried)
            };
            b.close_region(&ends);
        }
        let new = while_loop(b, f.attrs(i).clone(), &carry, regions);
        let values = b.func().inst_results(new).to_vec();
        self.enter(b, f.inst_results(i), &values);
        Ok(())
    }

    /// The next values of what a region carries, kept where an element does not take the step. All carried
    /// values depend on the batch.
    fn masked(
        &mut self,
        b: &mut Builder,
        i: Inst,
        region: Region,
        (carried, params): (&[Value], &[Value]),
        mask: LaneMask,
    ) -> Result<Vec<Value>, Diagnostic> {
        let f = self.f;
        let mask = self.conjoined(b, mask);
        for (&old, &new) in carried.iter().zip(params) {
            let float = f.ty(old).dtype.is_float();
            let entered = if float { gated(b, new, true, mask) } else { new };
            self.values.set(old, entered);
        }
        let outer = self.entered(b, i, region, mask);
        let lanes = self.lanes.replace(mask);
        self.insts(b, i, region)?;
        self.lanes = lanes;
        for (old, new) in outer {
            self.values.set(old, new);
        }
        let mut next = Vec::new();
        for ((&end, &old), &new) in f.region(region).results.iter().zip(carried).zip(params) {
            let end = self.batched(b, end);
            let ty = self.type_of(old);
            next.push(select(b, mask, new, end, &ty));
        }
        Ok(next)
    }

    /// Places a loop of a number of steps that is known before.
    pub(super) fn steps(&mut self, b: &mut Builder, i: Inst) -> Result<(), Diagnostic> {
        let f = self.f;
        self.no_tokens(i)?;
        let roles = LoopRoles::at(f, i);
        if f.args(i)[..roles.lead].iter().any(|&v| self.is_mapped(v)) {
            return self.uneven(b, i, roles);
        }
        let (args, results) = (f.args(i), f.inst_results(i));
        let (step, back) = (f.inst(i).regions[0], f.inst(i).regions.get(1).copied());
        let down = roles.step(f, step);
        let up = back.map(|r| roles.back(f, r));
        let mut new = LoopBuilder::new(f.op(i), f.attrs(i).clone(), roles.extent(f, i));
        new.lead = args[..roles.lead].iter().map(|&v| self.values.get(b, v)).collect();
        new.carry = self.as_in(b, &args[roles.carry_args()], &down.carry);
        if let Some(up) = &up {
            new.up = self.as_in(b, &args[roles.up_args()], &up.up);
        }
        new.xs = self.scanned(b, &args[roles.xs_args()]);
        new.ws = self.scanned(b, &args[roles.ws_args()]);
        let p = new.open_step(b);
        self.enter_region(b, &down, &p);
        self.insts(b, i, step)?;
        let (next, ends) = f.region(step).results.split_at(roles.carry);
        let next = self.as_in(b, next, &down.carry);
        let ends = self.as_in(b, ends, &results[roles.ys_results()]);
        new.close_step(b, &next, &ends);
        if let (Some(up), Some(back)) = (&up, back) {
            let p = new.open_back(b);
            self.enter_region(b, up, &p);
            self.insts(b, i, back)?;
            let (next, ends) = f.region(back).results.split_at(roles.up);
            let next = self.as_in(b, next, &up.up);
            let ends = self.as_in(b, ends, &results[roles.zs_results()]);
            new.close_back(b, &next, &ends);
        }
        let placed = new.place(b);
        let mut values = b.func().inst_results(placed).to_vec();
        for k in roles.ys_results().chain(roles.zs_results()) {
            if self.is_mapped(results[k]) {
                values[k] = to_front(b, values[k], 1);
            }
        }
        self.enter(b, results, &values);
        Ok(())
    }

    /// What is scanned, with the batch as its second axis.
    fn scanned(&mut self, b: &mut Builder, values: &[Value]) -> Vec<Value> {
        let mut all = Vec::new();
        for &v in values {
            let mapped = self.is_mapped(v);
            all.push(if mapped { self.at_axis(b, v, 1) } else { self.values.get(b, v) });
        }
        all
    }

    fn enter_region(&mut self, b: &mut Builder, old: &Entered, new: &Entered) {
        if let (Some(old), Some(new)) = (old.index, new.index) {
            self.enter(b, &[old], &[new]);
        }
        self.enter(b, &old.carry, &new.carry);
        self.enter(b, &old.up, &new.up);
        self.enter(b, &old.xs, &new.xs);
        self.enter(b, &old.ws, &new.ws);
    }

    /// A loop of as many steps as the element with the most of them has. Nothing is scanned or stacked.
    fn uneven(&mut self, b: &mut Builder, i: Inst, roles: LoopRoles) -> Result<(), Diagnostic> {
        let f = self.f;
        let args = f.args(i);
        let (step, back) = (f.inst(i).regions[0], f.inst(i).regions.get(1).copied());
        let mut lead = Vec::new();
        for &v in &args[..roles.lead] {
            lead.push(self.batched(b, v));
        }
        // How many steps each element takes, and the most of any.
        let (from, trips) = match lead[..] {
            [from, to] => {
                // The difference of two integers of a narrow type may not fit it.
                let (low, high) = (b.converted(from, DType::I64), b.converted(to, DType::I64));
                (Some(from), b.op(Op::Sub, &[high, low]))
            }
            _ => (None, lead[0]),
        };
        let ty = b.ty(trips).clone();
        let trips = match self.lanes {
            Some(mask) => {
                let none = b.literal(&ty, Literal::zero(ty.dtype));
                select(b, mask, none, trips, &ty)
            }
            None => trips,
        };
        let most = b.op_with(Op::ReduceMax, &[trips], Attrs::none().with_ints("axes", [0]));
        let down = roles.step(f, step);
        let up = back.map(|r| roles.back(f, r));
        let mut new = LoopBuilder::new(f.op(i), f.attrs(i).clone(), Dim::Const(0));
        new.lead = vec![most];
        if from.is_some() {
            let scalar = TensorType::scalar(ty.dtype);
            new.lead.insert(0, b.literal(&scalar, Literal::zero(ty.dtype)));
        }
        new.carry = self.as_in(b, &args[roles.carry_args()], &down.carry);
        if let Some(up) = &up {
            new.up = self.as_in(b, &args[roles.up_args()], &up.up);
        }
        let p = new.open_step(b);
        let mask = self.index(b, (down.index, p.index), from, trips);
        let next = self.masked(b, i, step, (&down.carry, &p.carry), mask)?;
        new.close_step(b, &next, &[]);
        if let (Some(up), Some(back)) = (&up, back) {
            let p = new.open_back(b);
            let mask = self.index(b, (up.index, p.index), from, trips);
            for (&old, &new) in up.carry.iter().zip(&p.carry) {
                let float = f.ty(old).dtype.is_float();
                let entered = if float { gated(b, new, true, mask) } else { new };
                self.values.set(old, entered);
            }
            let next = self.masked(b, i, back, (&up.up, &p.up), mask)?;
            new.close_back(b, &next, &[]);
        }
        let placed = new.place(b);
        let values = b.func().inst_results(placed).to_vec();
        self.enter(b, f.inst_results(i), &values);
        Ok(())
    }

    /// Enters a region with each element's own position; which elements take the step.
    fn index(
        &mut self,
        b: &mut Builder,
        (old, new): (Option<Value>, Option<Value>),
        from: Option<Value>,
        trips: Value,
    ) -> LaneMask {
        let ty = b.ty(trips).clone();
        let step = new.expect("a counted loop has an index");
        let dims = Attrs::none().with_ints("dims", []);
        let step = b.op_as(Op::BroadcastInDim, &[step], dims, &ty);
        let own = b.op(Op::Lt, &[step, trips]);
        if let Some(old) = old {
            let at = from.map_or(step, |from| {
                let own = b.ty(from).clone();
                let step = b.converted(step, own.dtype);
                b.op_as(Op::Add, &[from, step], Attrs::none(), &own)
            });
            self.values.set(old, at);
        }
        LaneMask { own: spread(b, own, &ty), taken: true }
    }
}
