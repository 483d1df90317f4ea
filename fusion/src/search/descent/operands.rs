//! Operands of contractions. They are in memory, but for zeros around the arrays that products of windows read, where the engine
//! has such products.

use super::Descent;
use super::table::KeptInsts;
use crate::analysis::class::InstClass;
use crate::analysis::facts::Facts;
use adfuse_ir::op::Body;
use adfuse_ir::{DType, Inst, Op, Value};
use smallvec::{SmallVec, smallvec};

impl Descent<'_, '_> {
    /// What its group may compute in its place where an instruction is inlined: nothing, but where contractions read its result.
    /// What these read then is in memory, alone or with the truth values that are found of it, so that others need not read it for
    /// those. No way where contractions must read the result as it is.
    pub(super) fn kept_for_contractions(&self, i: Inst) -> SmallVec<[KeptInsts; 2]> {
        let table = &self.table;
        let facts = &table.facts;
        let f = facts.f;
        let v = f.inst_results(i)[0];
        let reads =
            |m: &Inst| facts.class[*m] == InstClass::Contract && table.reads(*m).contains(&v);
        let readers = table.readers[v].iter().flat_map(|&g| &table.rows[g].group.parts);
        if !readers.flatten().any(reads) {
            return smallvec![KeptInsts::new()];
        }
        if !self.pads_windows || !surrounds_with_zeros(facts, i) {
            return SmallVec::new();
        }
        let Some(computed) = computed_under(facts, f.args(i)[0]) else {
            return smallvec![KeptInsts::new()];
        };
        let is_mask = |&u: &Inst| {
            let map = matches!(f.op(u).def().body, Body::Map(_));
            map && facts.class[u] == InstClass::Free
                && f.ty(f.inst_results(u)[0]).dtype == DType::Bool
        };
        let users = facts.users[f.inst_results(computed)[0]].iter().copied();
        let masks: KeptInsts = users.filter(is_mask).collect();
        let alone: KeptInsts = smallvec![computed];
        match masks.is_empty() {
            true => smallvec![alone],
            false => smallvec![alone.iter().copied().chain(masks).collect(), alone],
        }
    }
}

/// The inlined instruction that computes a value, or what is viewed.
fn computed_under(facts: &Facts<'_>, v: Value) -> Option<Inst> {
    let mut v = v;
    loop {
        let i = facts.free(v)?;
        match (facts.f.op(i).def().body, facts.f.args(i)) {
            (Body::Map(_), _) => return Some(i),
            (Body::View(_), &[under]) => v = under,
            _ => return None,
        }
    }
}

/// Whether an instruction gives an array with zeros around it, or without what is cut off.
fn surrounds_with_zeros(facts: &Facts<'_>, i: Inst) -> bool {
    let f = facts.f;
    f.op(i) == Op::Pad
        && facts.splat(f.args(i)[1]).is_some_and(|l| l.to_f64() == 0.0)
        && f.attrs(i).ints("interior").iter().all(|&n| n == 0)
}
