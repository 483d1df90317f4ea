//! Free instructions: those that are inlined wherever they are used, because recomputing them is cheaper than storing
//! their results.

use super::class::InstClass;
use super::facts::{Facts, is_affine};
use super::shifts::Shifts;
use adfuse_ir::op::Body;
use adfuse_ir::{Inst, Value, ValueDef};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;

impl Facts<'_> {
    /// What lies between an instruction and what it reads, once it is written out.
    pub(crate) fn shifts(&self, i: Inst, shifted: &SecondaryMap<Value, Shifts>) -> Shifts {
        let mut all = Shifts::default();
        for under in self.f.args(i).iter().map(|&a| shifted[a]) {
            all.depth = all.depth.max(under.depth);
            all.elements = all.elements.saturating_add(under.elements);
            all.terms = all.terms.max(under.terms);
        }
        if self.is_aligned(i) {
            return all;
        }
        let Some(map) = self.view(i) else { return all };
        all.depth += 1;
        all.elements = all.elements.saturating_add(map.pieces.len() as u32);
        let divides = |p: &adfuse_ir::index::Piece| !p.index.iter().all(is_affine);
        if map.pieces.iter().any(divides) {
            let rank = self.dims[self.f.inst_results(i)[0]].len() as u32;
            all.terms = all.terms.max(1).saturating_mul(rank.max(2));
        }
        all
    }

    /// Whether an elementwise instruction is better written out where it is used than kept: it reads
    /// next to nothing for its size, or is small and only ever spread.
    pub(crate) fn is_light(&self, i: Inst, spread: bool) -> bool {
        let v = self.f.inst_results(i)[0];
        let mut under = Under::default();
        let own = self.program(i).map_or(0, |(_, w)| w);
        if !self.under(i, None, &mut under) {
            return false;
        }
        let total = own.saturating_add(under.weight);
        let generated =
            under.leaves.iter().all(|(l, _)| self.elements[*l] <= self.elements[v] / 16);
        // What is long and read more than once is better kept: random bits are a hundred operations, and the choice
        // that is made by them is one bit.
        let most = if self.users[v].len() > 1 { REPEATED } else { GENERATED };
        generated && total <= most || spread && under.leaves.len() <= 3 && total <= SPREAD
    }

    /// What an instruction is made of once free ones are written out, read through the shifted view `via`; whether
    /// that is only a little.
    fn under(&self, i: Inst, via: Option<Inst>, into: &mut Under) -> bool {
        for &a in self.f.args(i) {
            match self.f.def(a) {
                ValueDef::Literal(_) => {}
                ValueDef::Inst(j, _) if self.class[j] == InstClass::Free => {
                    if !into.seen.contains(&(j, via)) {
                        into.seen.push((j, via));
                        into.weight = into.weight.saturating_add(self.weight[j]);
                        let shifted =
                            matches!(self.f.op(j).def().body, Body::View(_)) && !self.is_aligned(j);
                        let via = if shifted { Some(j) } else { via };
                        if into.weight > GENERATED
                            || into.seen.len() > 64
                            || !self.under(j, via, into)
                        {
                            return false;
                        }
                    }
                }
                _ if into.leaves.contains(&(a, via)) => {}
                _ => into.leaves.push((a, via)),
            }
        }
        into.leaves.len() <= 4
    }
}

/// What is written out under an instruction.
#[derive(Default)]
struct Under {
    seen: SmallVec<[(Inst, Option<Inst>); 8]>,
    /// What is read, once for each shifted view that it is read through: neighbours are accesses of their own.
    leaves: SmallVec<[(Value, Option<Inst>); 8]>,
    weight: u32,
}

/// Primitives a generated value may take to be made where it is used, if that is one place.
const GENERATED: u32 = 600;
/// Primitives a generated value may take to be made again at each use: about as many as a core does while it stores
/// and reads an element.
const REPEATED: u32 = 32;
/// Primitives a small value that is only spread may take.
const SPREAD: u32 = 64;
