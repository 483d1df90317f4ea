//! Inlining of values that are cheaper to recompute than to store.
//!
//! A value that one part stores and others load moves its bytes twice. The values that it is computed from may be in
//! memory anyway, or may be smaller. Such a value is inlined where it is used.

use super::groups::Groups;
use super::part::PartId;
use crate::analysis::class::InstClass;
use crate::analysis::facts::{Facts, space};
use crate::plan::machine_model::MachineModel;
use adfuse_ir::op::Body;
use adfuse_ir::{DType, Inst, Value, ValueDef};
use cranelift_entity::{EntitySet, SecondaryMap};
use hashbrown::HashSet;
use smallvec::{SmallVec, smallvec};

/// The instructions that are better inlined wherever they are used.
///
/// `price` is what keeping a value for a later phase costs beside moving it, as a multiple of that.
pub(crate) fn worthwhile(
    facts: &Facts<'_>,
    groups: &Groups,
    device: &MachineModel,
    price: f64,
) -> Vec<Inst> {
    let mut kept: SecondaryMap<PartId, Vec<Value>> = SecondaryMap::new();
    for &i in facts.f.body_insts() {
        let v = facts.f.inst_results(i)[0];
        if let Some(p) = groups.home[v]
            && is_elementwise(facts, i)
            && !facts.is_held(v)
            && !groups.readers(v).is_empty()
        {
            kept[p].push(v);
        }
    }
    let mut again = EntitySet::new();
    for p in groups.parts.keys() {
        let values = &kept[p];
        if values.is_empty() {
            continue;
        }
        if pays(facts, groups, device, price, values, &mut again) {
            continue;
        }
        for v in values {
            pays(facts, groups, device, price, std::slice::from_ref(v), &mut again);
        }
    }
    facts.f.body_insts().iter().copied().filter(|&i| again.contains(i)).collect()
}

/// The most primitives of an element that are computed again.
const MOST: u32 = 500;

/// Whether computing these again pays; if so they are noted.
fn pays(
    facts: &Facts<'_>,
    groups: &Groups,
    device: &MachineModel,
    price: f64,
    values: &[Value],
    again: &mut EntitySet<Inst>,
) -> bool {
    let mut recipe = Recipe::default();
    for &v in values {
        recipe.add(facts, v, &|_| false);
    }
    if pays_by(facts, groups, device, price, values, &recipe) {
        again.extend(recipe.insts);
        return true;
    }
    // Truth values may be found again by what is in memory for others.
    if !values.iter().all(|&v| facts.f.ty(v).dtype == DType::Bool) {
        return false;
    }
    let mut near = Recipe::default();
    for &v in values {
        near.add(facts, v, &|w| w != v && in_memory(facts, groups, w));
    }
    let pays = pays_by(facts, groups, device, price, values, &near);
    if pays {
        again.extend(near.insts);
    }
    pays
}

/// Whether computing these again by a recipe pays.
fn pays_by(
    facts: &Facts<'_>,
    groups: &Groups,
    device: &MachineModel,
    price: f64,
    values: &[Value],
    recipe: &Recipe,
) -> bool {
    let new = recipe.roots.iter().filter(|&&r| !in_memory(facts, groups, r));
    let now: f64 = values.iter().map(|&v| bytes(facts, v)).sum();
    let then: f64 = new.map(|&r| bytes(facts, r)).sum();
    if recipe.is_vain() || then >= now {
        return false;
    }
    // Stored and read once less, computed once more by each reader.
    let saved = 2.0 * (now - then) / device.memory_bytes_per_s;
    let saved = if values.iter().any(|&v| crosses(facts, groups, v)) {
        // What is read instead must be kept then, where no later phase reads it yet.
        let more = recipe.roots.iter().filter(|&&r| would_cross(facts, groups, r));
        let more: f64 = more.map(|&r| bytes(facts, r)).sum();
        saved + price * (saved - 2.0 * more / device.memory_bytes_per_s)
    } else {
        saved
    };
    let points = values.iter().map(|&v| evaluations(facts, groups, v)).fold(0.0, f64::max);
    let saved =
        saved + values.iter().map(|&v| packed(facts, groups, device, v, recipe)).sum::<f64>();
    f64::from(recipe.weight) * points / device.ops_per_s <= saved
}

/// The most instructions that are followed from a value to its readers.
const FOLLOWED: usize = 64;

/// Points at which its readers would compute a value, were it inlined: those of each part that reads it, once
/// for each shifted view that the part reads it through. So a value that is put beside others is computed at all
/// points of the whole, and one under windows once for each element of a window.
fn evaluations(facts: &Facts<'_>, groups: &Groups, v: Value) -> f64 {
    /// A part, the view it reads through, and its points.
    type InlineSite = (Option<PartId>, Option<Inst>, i64);
    let mut sites: SmallVec<[InlineSite; 8]> = SmallVec::new();
    let mut seen: SmallVec<[(Value, Option<Inst>); 8]> = smallvec![(v, None)];
    let mut next = 0;
    while let Some(&(w, via)) = seen.get(next) {
        next += 1;
        for &u in &facts.users[w] {
            let result = facts.f.inst_results(u)[0];
            let shifted = matches!(facts.f.op(u).def().body, Body::View(_)) && !facts.is_aligned(u);
            let via = if shifted { Some(u) } else { via };
            if facts.class[u] == InstClass::Free {
                if !seen.contains(&(result, via)) {
                    seen.push((result, via));
                }
                continue;
            }
            let (home, points) = (groups.home[result], facts.elements[space(facts, u)]);
            match sites.iter_mut().find(|(h, x, _)| (*h, *x) == (home, via)) {
                Some((.., known)) => *known = points.max(*known),
                None => sites.push((home, via, points)),
            }
        }
        if seen.len().max(sites.len()) > FOLLOWED {
            return f64::INFINITY;
        }
    }
    sites.iter().map(|&(.., points)| points as f64).sum()
}

/// Seconds that truth values take beside their bytes, as far as they are saved by computing them again: an element is
/// packed and taken out of its word, which is done one by one if the reader iterates in another order than that
/// of the words. What is read instead, and is not read there as it is, takes as long as its bytes do.
fn packed(
    facts: &Facts<'_>,
    groups: &Groups,
    device: &MachineModel,
    v: Value,
    recipe: &Recipe,
) -> f64 {
    if facts.f.ty(v).dtype != DType::Bool {
        return 0.0;
    }
    let mut saved = 0.0;
    for &p in groups.readers(v) {
        let part = &groups.parts[p];
        let ops = if part.has_axes_of(v) { 2.0 } else { 2.0 + device.stride_ops };
        saved += ops * facts.elements[v] as f64 / device.ops_per_s;
        let more = recipe.roots.iter().filter(|&&r| !groups.readers(r).contains(&p));
        let more: f64 = more.map(|&r| bytes(facts, r)).sum();
        saved -= more / device.cache_bytes_per_s;
    }
    saved
}

/// Whether a part of a later phase reads a value.
fn crosses(facts: &Facts<'_>, groups: &Groups, v: Value) -> bool {
    let phase = |i: Inst| facts.f.inst(i).phase;
    let ValueDef::Inst(i, _) = facts.f.def(v) else { return false };
    let later = |p: &PartId| groups.parts[*p].members.iter().any(|&m| phase(m) > phase(i));
    groups.readers(v).iter().any(later)
}

/// Whether a value in memory is there for its own phase alone, so that a reader in a later one keeps it.
fn would_cross(facts: &Facts<'_>, groups: &Groups, v: Value) -> bool {
    let computed =
        matches!(facts.f.def(v), ValueDef::Inst(i, _) if facts.class[i] != InstClass::Constant);
    computed
        && in_memory(facts, groups, v)
        && !crosses(facts, groups, v)
        && !facts.f.results().contains(&v)
}

/// What values are made of, down to what cannot or need not be computed again.
#[derive(Default)]
struct Recipe {
    insts: Vec<Inst>,
    roots: Vec<Value>,
    /// Primitives of all that is computed.
    weight: u32,
    /// It goes through views that shift what is computed.
    shifted: bool,
    seen: HashSet<Value>,
}

impl Recipe {
    /// Whether it is certain not to pay.
    fn is_vain(&self) -> bool {
        self.shifted || self.weight > MOST
    }

    /// Adds a value; `known` says of others whether they are taken as they are. What is in vain is not followed to its end.
    fn add(&mut self, facts: &Facts<'_>, v: Value, known: &dyn Fn(Value) -> bool) {
        let mut stack = vec![v];
        while let Some(v) = stack.pop() {
            if self.is_vain() {
                return;
            }
            if !self.seen.insert(v) {
                continue;
            }
            if self.insts.len() >= LONGEST || known(v) {
                // What a recipe this long is made of is not looked at: it is taken as it is.
                self.roots.push(v);
                continue;
            }
            match facts.f.def(v) {
                ValueDef::Literal(_) => {}
                ValueDef::Inst(i, _) if facts.class[i] == InstClass::Free => {
                    let view = matches!(facts.f.op(i).def().body, Body::View(_));
                    // What is computed again at shifted coordinates is computed more than once.
                    self.shifted |= view
                        && !facts.is_aligned(i)
                        && facts.f.args(i).iter().any(|&a| is_computed(facts, a));
                    self.weight = self.weight.saturating_add(facts.weight[i]);
                    stack.extend(facts.f.args(i));
                }
                ValueDef::Inst(i, _) if is_elementwise(facts, i) && !facts.is_held(v) => {
                    self.weight = self.weight.saturating_add(facts.weight[i]);
                    self.insts.push(i);
                    stack.extend(facts.f.args(i));
                }
                _ => self.roots.push(v),
            }
        }
    }
}

/// The most instructions of a recipe.
const LONGEST: usize = 64;

/// Whether a value would be computed again where it is asked for.
fn is_computed(facts: &Facts<'_>, v: Value) -> bool {
    match facts.f.def(v) {
        ValueDef::Inst(i, _) => {
            facts.class[i] == InstClass::Free || is_elementwise(facts, i) && !facts.is_held(v)
        }
        _ => false,
    }
}

fn is_elementwise(facts: &Facts<'_>, i: Inst) -> bool {
    facts.class[i] == InstClass::Point && matches!(facts.f.op(i).def().body, Body::Map(_))
}

/// Whether a value is in a buffer whatever is decided.
fn in_memory(facts: &Facts<'_>, groups: &Groups, v: Value) -> bool {
    match facts.f.def(v) {
        ValueDef::Inst(i, _) => {
            facts.class[i] == InstClass::Constant
                || facts.is_held(v)
                || !groups.readers(v).is_empty()
        }
        _ => true,
    }
}

/// Bytes of a value in its narrowest exact form.
pub(crate) fn bytes(facts: &Facts<'_>, v: Value) -> f64 {
    let n = facts.elements[v] as f64;
    match facts.f.ty(v).dtype {
        DType::Bool => n / 8.0,
        d => n * d.bytes() as f64,
    }
}
