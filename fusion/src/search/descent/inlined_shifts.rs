//! The shifted views under what is inlined, followed change by change: a change costs what it reaches.

use super::table::{FlippedInsts, GroupTable};
use crate::analysis::class::InstClass;
use crate::analysis::facts::Facts;
use crate::analysis::shifts::Shifts;
use adfuse_ir::{Inst, Value};
use cranelift_entity::SecondaryMap;
use std::collections::BTreeSet;

/// The shifts of every value that is inlined.
pub(super) struct InlinedShifts {
    shifted: SecondaryMap<Value, Shifts>,
}

impl InlinedShifts {
    /// Of a plan's facts.
    ///
    /// # Errors
    /// The first instruction under which there are too many.
    pub(super) fn of(facts: &Facts<'_>) -> Result<InlinedShifts, Inst> {
        Ok(InlinedShifts { shifted: facts.inlined_shifts()? })
    }

    /// Follows that instructions of a table are inlined now, or no longer are. Whether no instruction is too deep then; if one is,
    /// only those before it are noted.
    pub(super) fn follow_all(&mut self, table: &GroupTable<'_>, flipped: &FlippedInsts) -> bool {
        flipped.iter().all(|(i, _)| self.follow(&table.facts, &table.order, *i))
    }

    /// Follows that an instruction is inlined now, or no longer is. Whether no instruction is too deep then; if one is,
    /// nothing is noted. `order` has the places of instructions in the function.
    pub(super) fn follow(
        &mut self,
        facts: &Facts<'_>,
        order: &SecondaryMap<Inst, u32>,
        changed: Inst,
    ) -> bool {
        let mut before: Vec<(Value, Shifts)> = Vec::new();
        // In the order of the function, so that each is looked at once.
        let mut open = BTreeSet::from([(order[changed], changed)]);
        while let Some((_, i)) = open.pop_first() {
            let shifts = facts.shifts(i, &self.shifted);
            if shifts.are_too_deep() {
                before.into_iter().rev().for_each(|(v, shifts)| self.shifted[v] = shifts);
                return false;
            }
            let v = facts.f.inst_results(i)[0];
            let now = if facts.class[i] == InstClass::Free { shifts } else { Shifts::default() };
            if now != self.shifted[v] {
                before.push((v, std::mem::replace(&mut self.shifted[v], now)));
                open.extend(facts.users[v].iter().map(|&u| (order[u], u)));
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::text::parse;

    #[test]
    fn what_is_followed_is_what_is_found_anew() {
        let mut text = String::from("func @f(%v0: f32[64]) -> f32[64] {\n");
        for k in 0..40 {
            let n = k + 1;
            text += &format!(
                "  %p{k} = pad %v{k}, 0.0 {{low = [1], high = [0], interior = [0]}} : f32[65]\n  \
                 %v{n} = slice %p{k} {{start = [0], limit = [64], stride = [1]}} : f32[64]\n"
            );
        }
        text += "  return %v40\n}";
        let module = parse(&text).expect("parses");
        let f = module.find("f").expect("it");
        let mut facts = Facts::of(f, true).expect("has facts");
        let mut order = SecondaryMap::new();
        f.body_insts().iter().zip(0..).for_each(|(&i, n)| order[i] = n);
        let mut shifts = InlinedShifts::of(&facts).expect("nothing is inlined");
        let mut refused = 0;
        // Each is inlined where that is allowed; every third of the first ones is computed again then.
        for (k, &i) in f.body_insts().iter().enumerate() {
            for class in [InstClass::Free, InstClass::Point] {
                if class == InstClass::Point && (k % 3 < 2 || k > 12) {
                    continue;
                }
                let was = std::mem::replace(&mut facts.class[i], class);
                let known = shifts.follow(&facts, &order, i);
                assert_eq!(known, facts.too_deep().is_none(), "{k}");
                if !known {
                    (facts.class[i], refused) = (was, refused + 1);
                }
                let anew = facts.inlined_shifts().expect("not too deep");
                for &j in f.body_insts() {
                    let v = f.inst_results(j)[0];
                    assert!(anew[v] == shifts.shifted[v], "{k}");
                }
            }
        }
        assert!(refused > 0);
    }
}
