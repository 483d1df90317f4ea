//! What a value of a group costs when it is computed again by itself.
//!
//! A product takes the time of its operations, whatever it moves. So where a group multiplies and leaves several values, a
//! value that is computed from another of them has no part of the product's time, and is priced as the kernel that it would be.

use crate::analysis::class::InstClass;
use crate::analysis::facts::Facts;
use crate::lower::group_key::{BufferForm, KeyBuilder};
use crate::lower::group_memo::LoweringMemo;
use crate::lower::single_group::GroupLowering;
use crate::memory::engine::EngineModel;
use crate::memory::residuals::storage;
use crate::plan::layout::Layout;
use crate::plan::options::PlanOptions;
use crate::plan::{Group, Plan};
use crate::search::point::group_price;
use adfuse_ir::kernel::{Role, Storage};
use adfuse_ir::{Fp, Inst, Value, ValueDef};
use cranelift_entity::SecondaryMap;

/// Prices kernels that a plan does not have.
pub(crate) struct LonePricer<'a> {
    facts: &'a Facts<'a>,
    options: &'a PlanOptions,
    engine: &'a dyn EngineModel,
    memo: &'a LoweringMemo,
    keys: KeyBuilder<'a>,
    lowering: GroupLowering,
    layout: Layout,
    storage: SecondaryMap<Value, Storage>,
}

impl<'a> LonePricer<'a> {
    /// For groups of a plan, with the facts that it rests on.
    pub(super) fn new(
        facts: &'a Facts<'a>,
        plan: &Plan,
        (options, memo): (&'a PlanOptions, &'a LoweringMemo),
        engine: &'a dyn EngineModel,
    ) -> LonePricer<'a> {
        let keys = KeyBuilder::new(memo.numbers(), plan.fp == Fp::Strict);
        let lowering = GroupLowering::new(plan.fp, plan.layout);
        let (layout, storage) = (plan.layout, storage(plan));
        LonePricer { facts, options, engine, memo, keys, lowering, layout, storage }
    }

    /// Whether shares of a group's time say nothing of what its values cost.
    pub(super) fn multiplies(&self, group: &Group) -> bool {
        let is_product = |i: &Inst| self.facts.class[*i] == InstClass::Contract;
        group.parts.iter().flatten().any(is_product)
    }

    /// The seconds of a kernel of these members, which leaves one value. `None` where it is not priced by itself.
    pub(super) fn seconds(&mut self, parts: Vec<Vec<Inst>>, wanted: Value) -> Option<f64> {
        let f = self.facts.f;
        let group = Group { parts };
        let is_inner = |v: Value| {
            v != wanted && group.parts.iter().flatten().any(|&i| f.inst_results(i).contains(&v))
        };
        let buffer = |v: Value| match f.def(v) {
            ValueDef::Literal(_) => None,
            ValueDef::Inst(i, _) => match self.facts.class[i] {
                InstClass::Constant => Some((Role::Constant(Vec::new()), Storage::Plain)),
                InstClass::Free => None,
                _ if is_inner(v) => None,
                _ => Some((Role::Temp, self.storage[v])),
            },
            _ => Some((Role::Input, Storage::Plain)),
        };
        let form = |v: Value| BufferForm::in_layout(buffer(v), f.ty(v), self.layout);
        let key = self.keys.key(self.facts, &group, form)?;
        let with = (&self.options.device, self.memo);
        let known = self.lowering.lowered(self.facts, (&group, key), buffer, with)?;
        Some(group_price(&known, self.engine, &self.options.device).steps.iter().sum())
    }
}
