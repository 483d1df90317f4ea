//! The time of a step for which an engine says what it makes of it: vector groups, scalarized accesses, passes over arrays.

use super::StepLoad;
use crate::plan::machine_model::MachineModel;
use adfuse_ir::kernel::facts::{KernelFacts, LaunchFacts, PassKind, SweepFacts};

/// What an instruction that moves takes, in those that compute: a core begins one of each kind in a cycle or two of one kind.
const MOVE: f64 = 0.5;

/// The time of a sweep in operations of the whole device.
fn sweep_ops(sweep: &SweepFacts, device: &MachineModel) -> f64 {
    let full = device.lanes.max(1);
    // A vector of 128 bits takes as long as one of 512.
    let lanes = u64::from(sweep.lanes.clamp(1, full));
    let line = sweep.line.max(1);
    let lines = sweep.elements / line;
    let groups = lines as f64 * line.div_ceil(lanes) as f64;
    let each = |count: u32, ops: f64| f64::from(count) * ops;
    let access = each(sweep.near, device.stride_ops)
        + each(sweep.far, device.far_ops)
        + each(sweep.placed, device.place_ops)
        + each(sweep.calls, device.call_ops);
    groups * (f64::from(sweep.slots) + MOVE * f64::from(sweep.moves)) * f64::from(full)
        + sweep.elements as f64 * access
        + sweep.runs as f64 * device.run_ops
        + lines as f64
            * (device.line_ops
                + each(sweep.cuts, device.cut_ops)
                + each(sweep.line_slots, f64::from(full)))
}

/// The price of an element of a pass, in operations.
fn pass_ops(kind: PassKind, device: &MachineModel) -> f64 {
    match kind {
        PassKind::Line => device.line_fold_ops,
        PassKind::Fold => device.fold_ops,
        PassKind::Extremum => device.extremum_ops,
        PassKind::Interchange => device.interchange_ops,
        PassKind::Scan => device.scan_ops,
        PassKind::Update => device.update_ops,
        PassKind::Pack => device.pack_ops,
        PassKind::Digit => device.digit_ops,
    }
}

/// The operations of all passes.
fn passes_ops(facts: &KernelFacts, device: &MachineModel) -> f64 {
    facts.passes.iter().map(|p| p.elements as f64 * pass_ops(p.kind, device)).sum()
}

impl StepLoad<'_> {
    /// [`StepCost::ideal_seconds`](super::step_cost::StepCost::ideal_seconds) of a step that touches this many different
    /// bytes, where an engine says what it makes of it and where none does.
    pub(super) fn ideal_seconds(
        &self,
        distinct: u64,
        facts: Option<&KernelFacts>,
        launched: Option<&LaunchFacts>,
    ) -> f64 {
        let device = self.device;
        let slots = match (facts, launched) {
            // What follows sums may take its time while they are multiplied.
            (_, Some(launched)) if launched.timed_sums => 0,
            (_, Some(&LaunchFacts { loop_ops: Some(ops), .. })) => ops,
            (None, _) => self.work.slots,
            (Some(facts), _) => {
                let of = |s: &SweepFacts| s.elements.saturating_mul(s.slots.into());
                facts.sweeps.iter().map(of).fold(0, u64::saturating_add)
            }
        };
        let slots = slots.saturating_sub(self.work.recomputed);
        let compute_s = slots as f64 / device.ops_per_s + self.contract_s;
        device.launch_s + compute_s.max(distinct as f64 / device.bytes_per_s(distinct))
    }

    /// Adds what an engine makes of the step. Tasks keep as many cores busy as there are of them; where the engine names no
    /// number, all.
    pub(super) fn facts(&mut self, facts: &KernelFacts) {
        let device = self.device;
        let cores = u64::try_from(device.parallel.max(1)).unwrap_or(1);
        let busy = if facts.tasks == 0 { cores } else { facts.tasks.min(cores) };
        let share = busy as f64 / cores as f64;
        let sweeps: f64 = facts.sweeps.iter().map(|s| sweep_ops(s, device)).sum();
        self.slots += (sweeps + passes_ops(facts, device)) / share;
        self.busy = self.busy.max(share);
    }

    /// Adds what the launches of the step do beside its structure: passes over arrays, and products that fill tiles up.
    pub(super) fn launched(&mut self, facts: &KernelFacts, launched: &LaunchFacts) {
        if let Some(ops) = launched.loop_ops.filter(|_| self.work.slots > 0) {
            self.slots *= ops as f64 / self.work.slots as f64;
        }
        self.slots += passes_ops(facts, self.device);
        let ops = &self.work.ops;
        let counted = ops.contract_f16.saturating_add(ops.contract_f32);
        let counted = counted.saturating_add(ops.contract_f64);
        let timed = launched.timed_multiply_adds;
        let multiplied = match timed {
            0 => launched.multiply_adds.max(counted),
            timed => timed.saturating_add(launched.multiply_adds),
        };
        if counted > 0 {
            self.contract_s *= multiplied as f64 / counted as f64;
        }
    }
}
