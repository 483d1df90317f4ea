//! Which values are needed, through regions: a fixpoint over what loops carry.

use super::LoopRoles;
use crate::entity::{Inst, Region, Value};
use crate::function::Function;
use crate::op::Control;
use crate::types::Dim;
use cranelift_entity::EntitySet;

/// The values of a function that are needed for those that are asked for.
///
/// A carry of a loop is needed where its result is, or where a needed value of a step reads it.
pub struct Liveness<'f> {
    pub(super) f: &'f Function,
    live: EntitySet<Value>,
    effects: bool,
}

impl<'f> Liveness<'f> {
    /// Nothing is needed yet. With `effects`, what has an effect counts as needed wherever it is.
    pub fn new(f: &'f Function, effects: bool) -> Liveness<'f> {
        Liveness { f, live: EntitySet::new(), effects }
    }

    /// Whether a value is needed.
    pub fn contains(&self, v: Value) -> bool {
        self.live.contains(v)
    }

    /// Asks for a value; whether that is new.
    pub fn need(&mut self, v: Value) -> bool {
        self.f.literal(v).is_none() && self.live.insert(v)
    }

    /// Whether an instruction is needed, once everything that reads its results has been visited.
    pub fn needs(&self, i: Inst) -> bool {
        let f = self.f;
        f.inst_results(i).iter().any(|&v| self.contains(v)) || self.effects && f.has_effect(i)
    }

    /// Asks for what a region's needed values read.
    pub fn region(&mut self, region: Region) {
        for &i in self.f.region(region).insts.iter().rev() {
            self.inst(i);
        }
    }

    /// Asks for what an instruction reads, if it is needed.
    pub fn inst(&mut self, i: Inst) {
        if !self.needs(i) {
            return;
        }
        let f = self.f;
        match f.op(i).control() {
            None | Some(Control::Call) => f.args(i).iter().for_each(|&v| {
                self.need(v);
            }),
            Some(Control::Branch) => {
                f.args(i).iter().for_each(|&v| {
                    self.need(v);
                });
                for &r in &f.inst(i).regions {
                    self.pass(f.inst_results(i), &f.region(r).results);
                    self.region(r);
                }
            }
            Some(Control::While) => self.while_loop(i),
            Some(Control::Loop(_)) => self.steps(i),
        }
    }

    /// Asks for each value at whose place in another list a needed one is; whether any is new.
    fn pass(&mut self, from: &[Value], to: &[Value]) -> bool {
        let mut new = false;
        for (&a, &b) in from.iter().zip(to) {
            new |= self.contains(a) && self.need(b);
        }
        new
    }

    fn while_loop(&mut self, i: Inst) {
        let f = self.f;
        let [test, body] = f.inst(i).regions[..] else { return };
        let (tested, carried) = (&f.region(test).params, &f.region(body).params);
        f.region(test).results.iter().for_each(|&v| {
            self.need(v);
        });
        self.region(test);
        self.pass(f.inst_results(i), carried);
        loop {
            self.pass(tested, carried);
            self.pass(carried, &f.region(body).results);
            self.region(body);
            if !self.pass(carried, &f.region(body).results) {
                break;
            }
        }
        self.pass(carried, f.args(i));
    }

    fn steps(&mut self, i: Inst) {
        let f = self.f;
        let roles = LoopRoles::at(f, i);
        let (args, results) = (f.args(i), f.inst_results(i));
        for &v in &args[..roles.lead] {
            self.need(v);
        }
        let step = f.inst(i).regions[0];
        let down = roles.step(f, step);
        let scanned = roles.xs_args().chain(roles.ws_args()).next();
        if let (Dim::Sym(_), Some(first)) = (roles.extent(f, i), scanned) {
            // The extent is told by nothing else.
            self.need(args[first]);
            if let Some(&x) = down.xs.first() {
                self.need(x);
            }
        }
        if let Some(&back) = f.inst(i).regions.get(1) {
            let up = roles.back(f, back);
            if let (Dim::Sym(_), Some(&w), []) = (roles.extent(f, i), up.ws.first(), &up.xs[..]) {
                self.need(w);
            }
            self.pass(&results[roles.up_results()], &up.up);
            self.pass(&results[roles.zs_results()], &f.region(back).results[roles.up..]);
            loop {
                self.pass(&up.up, &f.region(back).results);
                self.region(back);
                if !self.pass(&up.up, &f.region(back).results) {
                    break;
                }
            }
            self.pass(&up.up, &args[roles.up_args()]);
            self.pass(&up.carry, &down.carry);
            self.pass(&up.xs, &args[roles.xs_args()]);
            self.pass(&up.ws, &args[roles.ws_args()]);
        }
        self.pass(&results[roles.carry_results()], &down.carry);
        self.pass(&results[roles.ys_results()], &f.region(step).results[roles.carry..]);
        loop {
            self.pass(&down.carry, &f.region(step).results);
            self.region(step);
            if !self.pass(&down.carry, &f.region(step).results) {
                break;
            }
        }
        self.pass(&down.carry, &args[roles.carry_args()]);
        self.pass(&down.xs, &args[roles.xs_args()]);
    }
}
