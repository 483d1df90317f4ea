//! Which values depend on given ones, through regions: a fixpoint over what loops carry.

use super::LoopRoles;
use crate::entity::{Inst, Region, Value};
use crate::function::Function;
use crate::op::{Control, Deriv};
use cranelift_entity::EntitySet;

/// What counts as dependence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// Any use.
    Uses,
    /// Uses that a tangent passes through: of float types, by ops whose derivative is not zero.
    Tangents,
}

/// The values of `f`, those in regions among them, that depend on one of `seeds`; the seeds are among them.
///
/// A result of a branch depends on what a region ends with at its place, and on the selector. A carry of a loop
/// depends on its initial value and on what a step makes of it; everything a `while` carries depends on its
/// condition.
pub fn reach(f: &Function, seeds: EntitySet<Value>, follow: Follow) -> EntitySet<Value> {
    reach_where(f, seeds, follow, &|_| None)
}

/// As [`reach`], where `decided` may say of an instruction whether its results depend, whatever it reads.
pub fn reach_where(
    f: &Function,
    seeds: EntitySet<Value>,
    follow: Follow,
    decided: &dyn Fn(Inst) -> Option<bool>,
) -> EntitySet<Value> {
    let mut reach = Reach { f, follow, decided, found: seeds };
    reach.region(f.body());
    reach.found
}

struct Reach<'f> {
    f: &'f Function,
    follow: Follow,
    decided: &'f dyn Fn(Inst) -> Option<bool>,
    found: EntitySet<Value>,
}

impl Reach<'_> {
    fn region(&mut self, region: Region) {
        for &i in &self.f.region(region).insts {
            self.inst(i);
        }
    }

    fn inst(&mut self, i: Inst) {
        let f = self.f;
        let results = f.inst_results(i);
        if let Some(depends) = (self.decided)(i) {
            if depends {
                results.iter().for_each(|&v| self.add(v));
            }
            return;
        }
        match f.op(i).control() {
            None | Some(Control::Call) => {
                let stops =
                    self.follow == Follow::Tangents && matches!(f.op(i).def().deriv, Deriv::Zero);
                if !stops && f.args(i).iter().any(|&a| self.has(a)) {
                    results.iter().for_each(|&v| self.add(v));
                }
            }
            Some(Control::Branch) => {
                let selects = f.args(i).iter().any(|&a| self.has(a));
                for &r in &f.inst(i).regions {
                    self.region(r);
                    self.pass(&f.region(r).results, results);
                }
                if selects {
                    results.iter().for_each(|&v| self.add(v));
                }
            }
            Some(Control::While) => self.while_loop(i),
            Some(Control::Loop(_)) => self.steps(i),
        }
    }

    /// Passes dependence from each value of a list to that at its place in another; whether any is new.
    fn pass(&mut self, from: &[Value], to: &[Value]) -> bool {
        let mut new = false;
        for (&a, &b) in from.iter().zip(to) {
            if self.has(a) && !self.has(b) {
                self.add(b);
                new |= self.has(b);
            }
        }
        new
    }

    fn while_loop(&mut self, i: Inst) {
        let f = self.f;
        let [test, body] = f.inst(i).regions[..] else { return };
        let (tested, carried) = (&f.region(test).params, &f.region(body).params);
        self.pass(f.args(i), tested);
        self.pass(f.args(i), carried);
        loop {
            self.region(test);
            if f.region(test).results.iter().any(|&v| self.has(v)) {
                carried.iter().chain(tested).for_each(|&v| self.add(v));
                // What the condition makes of the values that are new.
                self.region(test);
            }
            self.region(body);
            let mut new = self.pass(&f.region(body).results, carried);
            new |= self.pass(carried, tested);
            if !new {
                break;
            }
        }
        self.pass(carried, f.inst_results(i));
    }

    fn steps(&mut self, i: Inst) {
        let f = self.f;
        let roles = LoopRoles::at(f, i);
        let (args, results) = (f.args(i), f.inst_results(i));
        let step = f.inst(i).regions[0];
        let down = roles.step(f, step);
        let bounded = args[..roles.lead].iter().any(|&v| self.has(v));
        let all = |reach: &mut Self, values: &[Value]| values.iter().for_each(|&v| reach.add(v));
        if bounded {
            all(self, &f.region(step).params);
        }
        self.pass(&args[roles.carry_args()], &down.carry);
        self.pass(&args[roles.xs_args()], &down.xs);
        loop {
            self.region(step);
            if !self.pass(&f.region(step).results, &down.carry) {
                break;
            }
        }
        self.pass(&down.carry, &results[roles.carry_results()]);
        let ends = &f.region(step).results[roles.carry..];
        self.pass(ends, &results[roles.ys_results()]);
        let Some(&back) = f.inst(i).regions.get(1) else { return };
        let up = roles.back(f, back);
        if bounded {
            all(self, &f.region(back).params);
        }
        self.pass(&down.carry, &up.carry);
        self.pass(&args[roles.up_args()], &up.up);
        self.pass(&args[roles.xs_args()], &up.xs);
        self.pass(&args[roles.ws_args()], &up.ws);
        loop {
            self.region(back);
            if !self.pass(&f.region(back).results, &up.up) {
                break;
            }
        }
        self.pass(&up.up, &results[roles.up_results()]);
        let ends = &f.region(back).results[roles.up..];
        self.pass(ends, &results[roles.zs_results()]);
    }

    fn has(&self, v: Value) -> bool {
        self.found.contains(v)
    }

    fn add(&mut self, v: Value) {
        let float = self.f.ty(v).dtype.is_float();
        if (self.follow == Follow::Uses || float) && self.f.literal(v).is_none() {
            self.found.insert(v);
        }
    }
}
