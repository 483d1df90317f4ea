//! Copying what is needed: results, carries, scanned operands and instructions of region ops that nothing needs
//! are left out.

use super::{Liveness, LoopBuilder, LoopRoles, branch, while_loop};
use crate::builder::Builder;
use crate::diag::Diagnostic;
use crate::entity::{Inst, Region, Value};
use crate::function::Function;
use crate::op::Control;
use crate::rewrite::Copier;
use crate::types::TensorType;

/// The function without what neither its results nor an effect need, in regions too.
///
/// # Errors
/// Those of construction, which a verified function does not have.
pub fn prune(f: &Function) -> Result<Function, Diagnostic> {
    prune_by(&mut Copier::new(f))
}

/// As [`prune`], of what a copier copies, which knows then what became of each value.
///
/// # Errors
/// As [`prune`].
pub fn prune_by(copier: &mut Copier<'_>) -> Result<Function, Diagnostic> {
    let f = copier.from();
    let mut live = Liveness::new(f, true);
    f.results().iter().for_each(|&v| {
        live.need(v);
    });
    live.region(f.body());
    copier.rebuild(&mut |copier, b, i| {
        live.copy(copier, b, i);
        Ok(())
    })
}

/// The places at which a list has a needed value.
fn places(live: &Liveness<'_>, values: &[Value]) -> Vec<usize> {
    (0..values.len()).filter(|&k| live.contains(values[k])).collect()
}

/// Either place list, in order, each place once.
fn either(a: &[usize], b: &[usize]) -> Vec<usize> {
    let mut all = [a, b].concat();
    all.sort_unstable();
    all.dedup();
    all
}

fn select<'v>(values: &'v [Value], places: &'v [usize]) -> impl Iterator<Item = Value> + 'v {
    places.iter().map(|&k| values[k])
}

impl Liveness<'_> {
    /// Copies what is needed of an instruction, if it is: everything that reads its results has been visited.
    pub fn copy(&self, copier: &mut Copier<'_>, b: &mut Builder, i: Inst) {
        if !self.needs(i) {
            return;
        }
        let f = self.f;
        let Some(control) = f.op(i).control().filter(|c| *c != Control::Call) else {
            copier.inst(b, i);
            return;
        };
        b.set_phase(f.inst(i).phase);
        b.follow(f, i);
        let (new, kept) = match control {
            Control::Call => return,
            Control::Branch => self.copy_branch(copier, b, i),
            Control::While => self.copy_while_loop(copier, b, i),
            Control::Loop(_) => self.copy_steps(copier, b, i),
        };
        let results = b.func().inst_results(new).to_vec();
        for (old, v) in select(f.inst_results(i), &kept).zip(results) {
            b.func_mut().set_name(v, f.name_of(old));
            copier.set(old, v);
        }
    }

    fn insts(&self, copier: &mut Copier<'_>, b: &mut Builder, owner: Inst, region: Region) {
        for &i in &self.f.region(region).insts {
            self.copy(copier, b, i);
        }
        b.set_phase(self.f.inst(owner).phase);
        b.follow(self.f, owner);
    }

    fn copy_branch(&self, copier: &mut Copier<'_>, b: &mut Builder, i: Inst) -> (Inst, Vec<usize>) {
        let f = self.f;
        let kept = places(self, f.inst_results(i));
        let selector = copier.get(b, f.args(i)[0]);
        let types: Vec<TensorType> =
            select(f.inst_results(i), &kept).map(|v| f.ty(v).clone()).collect();
        let mut regions = Vec::new();
        for &r in &f.inst(i).regions {
            regions.push(b.open_region());
            self.insts(copier, b, i, r);
            let yields: Vec<Value> =
                select(&f.region(r).results, &kept).map(|v| copier.get(b, v)).collect();
            b.close_region(&yields);
        }
        (branch(b, f.op(i), selector, &types, &regions), kept)
    }

    fn copy_while_loop(
        &self,
        copier: &mut Copier<'_>,
        b: &mut Builder,
        i: Inst,
    ) -> (Inst, Vec<usize>) {
        let f = self.f;
        let (test, body) = (f.inst(i).regions[0], f.inst(i).regions[1]);
        // What the condition reads is carried; so are results.
        let kept = places(self, &f.region(body).params);
        let carry: Vec<Value> = select(f.args(i), &kept).map(|v| copier.get(b, v)).collect();
        let mut regions = Vec::new();
        for r in [test, body] {
            regions.push(b.open_region());
            for old in select(&f.region(r).params, &kept) {
                let new = b.param(f.ty(old).clone(), f.name_of(old));
                copier.set(old, new);
            }
            self.insts(copier, b, i, r);
            let ends = &f.region(r).results;
            let yields: Vec<Value> = match r == test {
                true => ends.iter().map(|&v| copier.get(b, v)).collect(),
                false => select(ends, &kept).map(|v| copier.get(b, v)).collect(),
            };
            b.close_region(&yields);
        }
        let new = while_loop(b, f.attrs(i).clone(), &carry, [regions[0], regions[1]]);
        (new, kept)
    }

    fn copy_steps(&self, copier: &mut Copier<'_>, b: &mut Builder, i: Inst) -> (Inst, Vec<usize>) {
        let f = self.f;
        let roles = LoopRoles::at(f, i);
        let (args, results) = (f.args(i), f.inst_results(i));
        let (step, back) = (f.inst(i).regions[0], f.inst(i).regions.get(1).copied());
        let down = roles.step(f, step);
        let up = back.map(|r| roles.back(f, r));
        let carry = places(self, &down.carry);
        let (mut xs, ys) = (places(self, &down.xs), places(self, &results[roles.ys_results()]));
        let (mut returned, mut ws, mut zs) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(up) = &up {
            xs = either(&xs, &places(self, &up.xs));
            returned = places(self, &up.up);
            ws = places(self, &up.ws);
            zs = places(self, &results[roles.zs_results()]);
        }
        let mut new = LoopBuilder::new(f.op(i), f.attrs(i).clone(), roles.extent(f, i));
        let mut get = |range: std::ops::Range<usize>, kept: &[usize]| -> Vec<Value> {
            select(&args[range], kept).map(|v| copier.get(b, v)).collect()
        };
        new.lead = get(0..roles.lead, &(0..roles.lead).collect::<Vec<_>>());
        new.carry = get(roles.carry_args(), &carry);
        new.up = get(roles.up_args(), &returned);
        new.xs = get(roles.xs_args(), &xs);
        new.ws = get(roles.ws_args(), &ws);

        let p = new.open_step(b);
        enter(copier, b, f, (down.index, p.index));
        bind(copier, b, f, select(&down.carry, &carry), &p.carry);
        bind(copier, b, f, select(&down.xs, &xs), &p.xs);
        self.insts(copier, b, i, step);
        let (next, stacks) = f.region(step).results.split_at(roles.carry);
        let next: Vec<Value> = select(next, &carry).map(|v| copier.get(b, v)).collect();
        let stacks: Vec<Value> = select(stacks, &ys).map(|v| copier.get(b, v)).collect();
        new.close_step(b, &next, &stacks);
        if let (Some(up), Some(back)) = (&up, back) {
            let p = new.open_back(b);
            enter(copier, b, f, (up.index, p.index));
            bind(copier, b, f, select(&up.carry, &carry), &p.carry);
            bind(copier, b, f, select(&up.up, &returned), &p.up);
            bind(copier, b, f, select(&up.xs, &xs), &p.xs);
            bind(copier, b, f, select(&up.ws, &ws), &p.ws);
            self.insts(copier, b, i, back);
            let (next, stacks) = f.region(back).results.split_at(roles.up);
            let next: Vec<Value> = select(next, &returned).map(|v| copier.get(b, v)).collect();
            let stacks: Vec<Value> = select(stacks, &zs).map(|v| copier.get(b, v)).collect();
            new.close_back(b, &next, &stacks);
        }
        let all =
            |from: usize, kept: &[usize]| kept.iter().map(move |k| from + k).collect::<Vec<_>>();
        let kept = [
            all(0, &carry),
            all(roles.up_results().start, &returned),
            all(roles.ys_results().start, &ys),
            all(roles.zs_results().start, &zs),
        ];
        (new.place(b), kept.concat())
    }
}

fn enter(
    copier: &mut Copier<'_>,
    b: &mut Builder,
    f: &Function,
    (old, new): (Option<Value>, Option<Value>),
) {
    if let (Some(old), Some(new)) = (old, new) {
        bind(copier, b, f, [old].into_iter(), &[new]);
    }
}

fn bind(
    copier: &mut Copier<'_>,
    b: &mut Builder,
    f: &Function,
    old: impl Iterator<Item = Value>,
    new: &[Value],
) {
    for (old, &new) in old.zip(new) {
        b.func_mut().set_name(new, f.name_of(old));
        copier.set(old, new);
    }
}
