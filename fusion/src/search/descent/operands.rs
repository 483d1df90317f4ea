//! Operands of contractions. They are in memory, but for zeros around the arrays that products of windows read, and elementwise
//! functions of these, where the engine has products with such prologues.

use super::Descent;
use super::table::{GroupTable, KeptInsts};
use crate::analysis::class::InstClass;
use crate::analysis::facts::Facts;
use adfuse_ir::op::Body;
use adfuse_ir::{DType, Inst, Op, Value};
use smallvec::{SmallVec, smallvec};

impl Descent<'_, '_> {
    /// What its group may compute in its place where an instruction is inlined: nothing, but where contractions read its result.
    /// Of an array with zeros around it, what they read then is in memory, alone or with the truth values that are found of it, so
    /// that others need not read it for those; or products of windows compute it. No way where contractions must read the result
    /// as it is.
    pub(super) fn kept_for_contractions(&self, i: Inst) -> SmallVec<[KeptInsts; 2]> {
        let table = &self.table;
        let facts = &table.facts;
        let f = facts.f;
        let v = f.inst_results(i)[0];
        if readers_of(table, v).next().is_none() {
            return smallvec![KeptInsts::new()];
        }
        if !self.window_prologues {
            return SmallVec::new();
        }
        if !surrounds_with_zeros(facts, i) {
            let mut all = readers_of(table, v);
            let computed = matches!(f.op(i).def().body, Body::Map(_))
                && matches!(f.ty(v).dtype, DType::F32 | DType::BF16 | DType::F16)
                && all.all(|m| reads_windows(facts, m, v));
            return if computed { smallvec![KeptInsts::new()] } else { SmallVec::new() };
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
        let mut ways: SmallVec<[KeptInsts; 2]> = smallvec![alone.clone(), KeptInsts::new()];
        if !masks.is_empty() {
            ways.insert(0, alone.into_iter().chain(masks).collect());
        }
        ways
    }
}

/// The contractions that read a value, or what is inlined of it.
pub(super) fn readers_of<'t>(
    table: &'t GroupTable<'_>,
    v: Value,
) -> impl Iterator<Item = Inst> + 't {
    let parts = table.readers[v].iter().flat_map(|&g| &table.rows[g].group.parts);
    let reads = move |m: &Inst| {
        table.facts.class[*m] == InstClass::Contract && table.reads(*m).contains(&v)
    };
    parts.flatten().copied().filter(reads)
}

/// Whether all operands of a contraction that are views of a value are views of its windows.
fn reads_windows(facts: &Facts<'_>, m: Inst, value: Value) -> bool {
    let f = facts.f;
    let of_windows = |&v: &Value| {
        let (mut v, mut windows) = (v, false);
        while let Some(i) = facts.free(v) {
            windows |= f.op(i) == Op::Skew;
            match (f.op(i).def().body, f.args(i)) {
                (Body::View(_), &[under, ..]) => v = under,
                _ => return false,
            }
        }
        windows || v != value
    };
    f.args(m).iter().all(of_windows)
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
