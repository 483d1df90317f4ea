//! Checkpoint regions: what a policy says of the values that later phases read becomes instructions.
//!
//! A value of a `remat` region that a later phase reads is computed again by instructions of that phase, from what the
//! region is given; so no plan can keep it. A region inside of a region is given what the outer one computes, which is
//! computed again for it, too. A value that something outside of its region reads belongs to the region around both:
//! what a region gives to the outermost function may be kept. What is kept by policy is marked, and must be in memory.
//!
//! Instructions that compute again are in the scope `again(0)`, those that are kept in `named(0)`. They keep every bit,
//! and the planner fuses them with others; it only runs the former no sooner than the way back asks for them
//! ([`order`](crate::analysis::leaves::order)).

use crate::analysis::recomputation::scopes;
use adfuse_ir::control::reads;
use adfuse_ir::op::Body;
use adfuse_ir::rewrite::{Copier, dce};
use adfuse_ir::{
    Builder, CheckpointPath, DType, Diagnostic, Function, Inst, Phase, ScopeKind, Value, ValueDef,
};
use cranelift_entity::{EntitySet, SecondaryMap};
use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

/// Whether a policy says of something in the body what later phases compute again.
pub(crate) fn has_policies(f: &Function) -> bool {
    f.body_insts().iter().any(|&i| !f.path(i).is_empty())
}

/// The function in which each policy has been followed. Regions of loops and branches keep the scopes of their own
/// instructions.
///
/// # Errors
/// None for verified functions.
pub(super) fn policies_followed(f: Function) -> Result<Function, Diagnostic> {
    if !has_policies(&f) {
        return Ok(f);
    }
    recomputed_in_scopes(&f, scopes(&f))
}

/// The function in which later phases compute again what is in `remat` scopes.
///
/// # Errors
/// None for verified functions.
pub(super) fn recomputed_in_scopes(
    f: &Function,
    scope: SecondaryMap<Value, CheckpointPath>,
) -> Result<Function, Diagnostic> {
    let mut followed = FollowedPolicies::new(f, scope);
    for &i in f.body_insts() {
        followed.inst(i)?;
    }
    let (mut b, mut copier) = (followed.b, followed.copier);
    let results: Vec<Value> = f.results().iter().map(|&v| copier.get(&mut b, v)).collect();
    b.set_results(&results);
    let mut new = b.finish()?;
    dce(&mut new);
    Ok(new)
}

/// A value that is computed again: its instruction, the region in which that is done, and the phase that asks.
type Recomputation = (Inst, CheckpointPath, Phase);

struct FollowedPolicies<'f> {
    f: &'f Function,
    b: Builder,
    copier: Copier<'f>,
    /// The innermost region around an instruction that computes a value and all that read it.
    scope: SecondaryMap<Value, CheckpointPath>,
    /// Places of instructions in the body.
    place: SecondaryMap<Inst, u32>,
    /// Values that a policy keeps and a later phase reads.
    kept: EntitySet<Inst>,
    again: HashMap<Recomputation, Inst>,
}

impl<'f> FollowedPolicies<'f> {
    fn new(f: &'f Function, scope: SecondaryMap<Value, CheckpointPath>) -> FollowedPolicies<'f> {
        let mut b = Builder::new(f.name.clone());
        b.func_mut().symbols = f.symbols.clone();
        b.func_mut().rule = f.rule.clone();
        let mut copier = Copier::new(f);
        copier.params(&mut b);
        let mut place = SecondaryMap::new();
        f.body_insts().iter().zip(0..).for_each(|(&i, at)| place[i] = at);
        let mut kept = EntitySet::new();
        for &i in f.body_insts() {
            for a in reads(f, i) {
                let ValueDef::Inst(made, _) = f.def(a) else { continue };
                let stays =
                    matches!(scope[a].innermost(), Some(ScopeKind::Save | ScopeKind::Named));
                if stays && f.inst(made).phase < f.inst(i).phase {
                    kept.insert(made);
                }
            }
        }
        FollowedPolicies { f, b, copier, scope, place, kept, again: HashMap::new() }
    }

    /// Copies an instruction, which reads what is computed again for its phase.
    fn inst(&mut self, i: Inst) -> Result<(), Diagnostic> {
        let f = self.f;
        let phase = f.inst(i).phase;
        let mut instead: SmallVec<[(Value, Value); 4]> = SmallVec::new();
        for a in reads(f, i) {
            if let Some(of) = self.recomputed(a, phase, None) {
                instead.push((a, self.compute_again(a, of)));
            }
        }
        let new = self.copy(i, &instead);
        // What the way back over a loop computes of the steps is computed again.
        let back = phase > Phase::PRIMAL
            && !f.inst(i).regions.is_empty()
            && f.path(i).has(ScopeKind::Remat);
        let path = if self.kept.contains(i) {
            CheckpointPath::alone(ScopeKind::Named)
        } else if back || f.path(i).is_again() {
            CheckpointPath::alone(ScopeKind::Again)
        } else {
            CheckpointPath::default()
        };
        relative(self.b.func_mut(), new);
        self.b.func_mut().set_path(new, path);
        Ok(())
    }

    /// Copies an instruction with other operands, which its values are not replaced by elsewhere.
    fn copy(&mut self, i: Inst, instead: &[(Value, Value)]) -> Inst {
        let before: SmallVec<[(Value, Option<Value>); 4]> =
            instead.iter().map(|&(v, _)| (v, self.copier.find(v))).collect();
        instead.iter().for_each(|&(v, new)| self.copier.set(v, new));
        let new = self.copier.inst(&mut self.b, i);
        for (v, old) in before {
            if let Some(old) = old {
                self.copier.set(v, old);
            }
        }
        new
    }

    /// What an instruction of a phase reads in place of a value, in the region `within` if it computes again itself;
    /// `None` for the value as it is.
    fn recomputed(
        &self,
        v: Value,
        phase: Phase,
        within: Option<&CheckpointPath>,
    ) -> Option<Recomputation> {
        let f = self.f;
        let ValueDef::Inst(i, _) = f.def(v) else { return None };
        // What a phase computes is there for it. Effects and exchanges happen once, and constants are in memory.
        let constant = matches!(f.op(i).def().body, Body::Constant);
        let token = f.inst_results(i).iter().any(|&v| f.ty(v).dtype == DType::Token);
        if f.inst(i).phase >= phase || constant || token || f.is_ordered(i) {
            return None;
        }
        let scope = &self.scope[v];
        if scope.innermost() == Some(ScopeKind::Named) {
            return None;
        }
        let region = match within {
            Some(within) if within.contains(scope) => within,
            _ => scope,
        };
        let again = region.innermost() == Some(ScopeKind::Remat);
        again.then(|| (i, region.clone(), phase))
    }

    /// Places the instructions that compute a value again, as far as they are not there yet, and gives the new value.
    fn compute_again(&mut self, v: Value, of: Recomputation) -> Value {
        let f = self.f;
        let number = match f.def(v) {
            ValueDef::Inst(_, number) => number as usize,
            _ => 0,
        };
        let mut missing: Vec<Recomputation> = Vec::new();
        let mut seen: HashSet<Recomputation> = HashSet::new();
        let mut open = vec![of.clone()];
        while let Some(next) = open.pop() {
            if self.again.contains_key(&next) || !seen.insert(next.clone()) {
                continue;
            }
            for a in reads(f, next.0) {
                open.extend(self.recomputed(a, next.2, Some(&next.1)));
            }
            missing.push(next);
        }
        // Operands are before what reads them. Regions inside of others read what those compute again.
        missing.sort_by_key(|(i, region, _)| (self.place[*i], region.scopes().len()));
        for made in missing {
            let (i, region, phase) = &made;
            let mut instead: SmallVec<[(Value, Value); 4]> = SmallVec::new();
            for a in reads(f, *i) {
                let Some(of) = self.recomputed(a, *phase, Some(region)) else { continue };
                instead.push((a, self.result(a, &of)));
            }
            let own: SmallVec<[(Value, Option<Value>); 1]> =
                f.inst_results(*i).iter().map(|&v| (v, self.copier.find(v))).collect();
            let new = self.copy(*i, &instead);
            for (v, old) in own {
                if let Some(old) = old {
                    self.copier.set(v, old);
                }
            }
            let func = self.b.func_mut();
            raise(func, new, *phase);
            relative(func, new);
            func.set_path(new, CheckpointPath::alone(ScopeKind::Again));
            self.again.insert(made, new);
        }
        self.b.func().inst_results(self.again[&of])[number]
    }

    /// A value that has been computed again.
    fn result(&self, v: Value, of: &Recomputation) -> Value {
        let number = match self.f.def(v) {
            ValueDef::Inst(_, number) => number as usize,
            _ => 0,
        };
        self.b.func().inst_results(self.again[of])[number]
    }
}

/// Moves an instruction and those in its regions to a later phase.
pub(crate) fn raise(f: &mut Function, i: Inst, phase: Phase) {
    let mut open = vec![i];
    while let Some(i) = open.pop() {
        let later = f.inst(i).phase.max(phase);
        f.set_phase(i, later);
        for r in f.inst(i).regions.clone() {
            open.extend(f.region(r).insts.iter().copied());
        }
    }
}

/// Leaves those regions of the instructions of a loop or branch that are inside of it: what is around it says nothing of
/// what its steps leave to each other.
fn relative(f: &mut Function, owner: Inst) {
    let mut open = vec![(owner, f.path(owner).clone())];
    while let Some((owner, around)) = open.pop() {
        for r in f.inst(owner).regions.clone() {
            for i in f.region(r).insts.clone() {
                let own = f.path(i).clone();
                if around.contains(&own) {
                    let inside = CheckpointPath::of(&own.scopes()[around.scopes().len()..]);
                    f.set_path(i, inside);
                }
                open.push((i, own));
            }
        }
    }
}
