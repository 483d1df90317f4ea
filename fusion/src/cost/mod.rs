//! The cost model: bytes, operations, launches and seconds of a program on a device.
//!
//! Counts depend only on the structure of the program, so equal programs have equal costs, however they were made.
//! `docs/planner.md` has the rules.

pub(crate) mod access_cost;
pub(crate) mod blocks;
pub(crate) mod compile_cost;
pub(crate) mod exchange;
pub(crate) mod facts_cost;
pub(crate) mod fold_cost;
pub(crate) mod footprint;
pub(crate) mod line_length;
pub(crate) mod operations;
pub(crate) mod step_cost;
pub(crate) mod traffic;

use crate::plan::machine_model::MachineModel;
use access_cost::AccessPattern;
use adfuse_ir::DType;
use adfuse_ir::kernel::facts::KernelFacts;
use adfuse_ir::kernel::{
    Argsort, Attend, Bundle, Contract, Kernel, Member, Program, Role, Scatter, Stage, Step,
};
use adfuse_ir::op::{ATTENTION_JOINT, AttentionShape};
use adfuse_ir::scalar::Func;
use blocks::of_blocks;
use exchange::exchange_s;
use footprint::{IterationSpace, full};
use operations::OperationCounts;
use step_cost::{Bottleneck, Cost, StepCost};
use traffic::{BytesByBuffer, Traffic, traffic};

/// What an engine makes of each step of a program; `None` where it does not say.
pub type FactsOf<'a> = dyn Fn(&Program) -> Option<Vec<KernelFacts>> + 'a;

/// What a program costs on a device, by its structure alone.
pub fn cost(program: &Program, device: &MachineModel) -> Cost {
    cost_with(program, device, &|_| None)
}

/// What a program costs on a device, where an engine says what it makes of each step. Loops and branches ask for the facts of
/// their blocks.
pub fn cost_with(program: &Program, device: &MachineModel, facts_of: &FactsOf<'_>) -> Cost {
    let facts = facts_of(program).unwrap_or_default();
    let mut cost = Cost {
        steps: Vec::with_capacity(program.steps.len()),
        bytes_moved: 0,
        least_bytes: 0,
        launches: 0,
        seconds: 0.0,
    };
    let mut least = BytesByBuffer::default();
    for (n, step) in program.steps.iter().enumerate() {
        let moved = traffic(program, step, device.tile_bytes);
        let role = |b| program.buffers.get(b).map(|data| &data.role);
        for (b, bytes) in moved.distinct.iter().filter(|&(b, _)| role(b) == Some(&Role::Input)) {
            let known = least.of(b);
            *known = bytes.max(*known);
        }
        for b in step.writes().filter(|&b| role(b) == Some(&Role::Output)) {
            *least.of(b) = full(program, b);
        }
        let blocks = |program: &Program| cost_with(program, device, facts_of);
        let step = priced((program, step), device, &moved, facts.get(n), &blocks);
        cost.bytes_moved = cost.bytes_moved.saturating_add(step.reads).saturating_add(step.writes);
        cost.launches = cost.launches.saturating_add(step.launches);
        cost.seconds += step.seconds;
        cost.steps.push(step);
    }
    cost.least_bytes = least.iter().map(|(_, bytes)| bytes).fold(0, u64::saturating_add);
    cost
}

/// What one step of the program costs on a device.
pub fn step_cost(program: &Program, step: &Step, device: &MachineModel) -> StepCost {
    step_cost_with((program, step), device, None, &|program| cost(program, device))
}

/// As [`step_cost`], with what an engine makes of the step where it says; `blocks` is the cost of programs in it.
pub(crate) fn step_cost_with(
    (program, step): (&Program, &Step),
    device: &MachineModel,
    facts: Option<&KernelFacts>,
    blocks: &dyn Fn(&Program) -> Cost,
) -> StepCost {
    let moved = traffic(program, step, device.tile_bytes);
    priced((program, step), device, &moved, facts, blocks)
}

/// Work of a step, and how much of the device it keeps busy.
struct StepLoad<'d> {
    program: &'d Program,
    device: &'d MachineModel,
    work: OperationCounts,
    /// Time in primitive operations on `f32`, those longer that keep less of the device busy.
    slots: f64,
    /// Seconds of multiply-adds.
    contract_s: f64,
    /// The greatest part of the device that was busy.
    busy: f64,
    /// Whether time follows from the structure of the program: no engine has said what it makes of the step.
    structural: bool,
    /// Whether what contractions compute of their operands takes time beside that of multiply-adds.
    feeds: bool,
    /// Whether what follows their sums does.
    sums: bool,
}

impl<'d> StepLoad<'d> {
    fn new(program: &'d Program, device: &'d MachineModel) -> StepLoad<'d> {
        StepLoad {
            program,
            device,
            work: OperationCounts::default(),
            slots: 0.0,
            contract_s: 0.0,
            busy: 0.0,
            structural: true,
            feeds: true,
            sums: true,
        }
    }

    /// The part of the device that a stage keeps busy: points go to cores, the stage's own axes and
    /// what points are left to lanes.
    fn share(&self, points: u64, inner: u64) -> f64 {
        let lanes = f64::from(self.device.lanes.max(1));
        let room = self.device.parallel.max(1) as f64 * lanes;
        (points as f64 * (inner as f64).min(lanes) / room).clamp(1.0 / room, 1.0)
    }

    /// The part of a vector that the lines of a stage fill.
    fn lanes(&self, stage: &Stage, places: &IterationSpace, vector: Option<u8>) -> f64 {
        let full = u64::from(self.device.line.max(1));
        match access_cost::inner(stage, places, vector) {
            Some(inner) if full > 1 => {
                let length = line_length::line(self.program, stage, places, inner).max(1);
                // The last vector of a line may be filled in part.
                length as f64 / length.next_multiple_of(full) as f64
            }
            _ => 1.0,
        }
    }

    fn add(&mut self, work: &OperationCounts, share: f64) {
        self.work.join(work);
        if self.structural {
            self.slots += work.slots as f64 / share;
            self.busy = self.busy.max(share);
        }
    }

    /// What loads and stores take beyond that of neighbours. No lanes share it: cores are all that is
    /// idle where there is little of it.
    fn add_access(&mut self, pattern: &AccessPattern, share: f64) {
        if !self.structural {
            return;
        }
        let cores = share.max(1.0 / self.device.parallel.max(1) as f64);
        self.slots += pattern.slots(self.device) / cores;
    }

    /// Multiply-adds with sums of a type, of 16-bit floats or wider ones.
    fn contract(&mut self, sum: DType, narrow: bool, count: u64, share: f64) {
        let ops = &mut self.work.ops;
        let (kind, rate) = match sum {
            DType::F64 => (&mut ops.contract_f64, self.device.contract_f64_per_s),
            d if d.is_int() => (&mut ops.integer, self.device.ops_per_s),
            _ if narrow => (&mut ops.contract_f16, self.device.contract_f16_per_s),
            _ => (&mut ops.contract_f32, self.device.contract_f32_per_s),
        };
        *kind = kind.saturating_add(count);
        self.contract_s += count as f64 / rate / share;
    }

    fn kernel(&mut self, kernel: &Kernel) {
        for stage in &kernel.stages {
            let extents: Vec<i64> = kernel.domain.iter().chain(&stage.axes).copied().collect();
            let places = IterationSpace::new(&extents, kernel.domain.len());
            let points = places.points().checked_div(places.inner()).unwrap_or(0);
            let share = self.share(points, places.inner());
            let vector = kernel.schedule.vector;
            self.add(
                &operations::stage(stage, &places),
                share * self.lanes(stage, &places, vector),
            );
            if self.structural {
                self.busy = self.busy.max(share);
                let access = access_cost::stage(self.program, stage, &places, vector);
                self.add_access(&access, share);
            }
        }
    }

    /// Kernels side by side: together they take as long as the longest, or as their work on the whole device.
    fn bundle(&mut self, bundle: &Bundle) {
        if !self.structural {
            // Facts are of the whole bundle.
            return bundle.kernels.iter().for_each(|kernel| self.kernel(kernel));
        }
        let (mut longest, mut work, mut busy) = (0f64, 0f64, 0f64);
        for kernel in &bundle.kernels {
            let mut alone = StepLoad::new(self.program, self.device);
            alone.kernel(kernel);
            self.work.join(&alone.work);
            longest = longest.max(alone.slots);
            work += alone.slots * alone.busy;
            busy += alone.busy;
        }
        self.busy = busy.min(1.0);
        self.slots = longest.max(work);
    }

    fn members(&mut self, contract: &Contract) {
        for (k, member) in contract.members.iter().enumerate() {
            let first = contract.members.first().filter(|_| k > 0);
            self.member(member, first);
        }
    }

    /// A contraction; what it reads like the first of its step is computed there.
    fn member(&mut self, member: &Member, first: Option<&Member>) {
        let result = member.result();
        let places = IterationSpace::new(&result, result.len());
        let share = self.share(places.points(), 1);
        let mut narrow = true;
        let known = first.map(Member::feeds);
        for (k, (_, feed, extents)) in member.feeds().into_iter().enumerate() {
            let result = feed.program.outputs.first().and_then(|&v| feed.program.insts.get(v));
            narrow &= result.is_some_and(|i| i.dtype.is_narrow_float());
            if known.as_ref().is_some_and(|f| f[k].1 == feed && f[k].2 == extents) {
                continue;
            }
            let places = IterationSpace::new(&extents, extents.len());
            let share = self.share(places.points(), 1);
            let computed = operations::program(&feed.program, &feed.params, &places);
            if !self.feeds {
                self.work.join(&computed);
                continue;
            }
            self.add(&computed, share);
            self.add_access(&access_cost::operand(self.program, &feed.params, &places), share);
        }
        let deep = IterationSpace::new(&member.depth, member.depth.len()).points();
        let count = places.points().saturating_mul(deep);
        self.contract(member.sum, narrow, count, share);
        let mut then = operations::stage(&member.then, &places);
        // The sum itself.
        then.registers = then.registers.saturating_add(if member.sum.bytes() > 4 { 2 } else { 1 });
        if !self.sums {
            self.work.join(&then);
            self.busy = self.busy.max(share);
            return;
        }
        self.add(&then, share);
        self.add_access(&access_cost::stage(self.program, &member.then, &places, None), share);
    }

    /// Adds what a step does; `launched` says whether its launches are known.
    fn step(&mut self, step: &Step, launched: bool) {
        match step {
            Step::Kernel(kernel) => self.kernel(kernel),
            Step::Bundle(bundle) => self.bundle(bundle),
            Step::Contract(contract) => self.members(contract),
            Step::Attend(attend) => self.attend(attend),
            Step::Scatter(scatter) => self.scatter(scatter),
            // Passes over digits are no comparisons.
            Step::Argsort(_) if launched => self.busy = 1.0,
            Step::Argsort(argsort) => self.argsort(argsort),
            // Libraries know how to fill a device, and copies need not.
            Step::Library(library) => {
                let mut work = OperationCounts::default();
                work.each(DType::F32, library.operations);
                self.add(&work, 1.0);
            }
            Step::Transfer(_) | Step::Exchange(_) | Step::Print(_) => self.busy = 1.0,
            // Their blocks are priced.
            Step::Loop(_) | Step::Branch(_) => {}
        }
    }

    fn attend(&mut self, attend: &Attend) {
        let ty = |k: usize| self.program.buffers.get(*attend.inputs.get(k)?)?.ty();
        let (Some(q), Some(k), Some(v)) = (ty(0), ty(1), ty(2)) else { return };
        let Some(shape) = AttentionShape::of(&q, &k, &v) else { return };
        let heads = shape.groups.saturating_mul(shape.shared);
        let rows = heads.saturating_mul(shape.rows);
        let scores = heads.saturating_mul(attend.reach.scores(shape));
        let share = self.share(rows, shape.stream);
        let mut work = OperationCounts::default();
        // 16-bit floats are a step on matrix units alone. These and the threads of a GPU go over the scores twice on the way back.
        let narrow = q.dtype.is_narrow_float();
        let by_threads = !narrow && self.device.register_file > 0;
        let (deep, passes) = match (attend.backward, narrow || by_threads) {
            // Scores and weighed values; the maximum, the difference, the sum.
            (false, _) => (shape.depth + shape.width, 1),
            // Scores and weights again, and a sum for each operand; the difference, and what the weight moves.
            (true, false) => (3 * shape.depth + 2 * shape.width, 1),
            // Of many elements, those for keys and for values are computed apart.
            (true, true) if shape.depth + shape.width > ATTENTION_JOINT => {
                (5 * shape.depth + 3 * shape.width, 3)
            }
            (true, true) => (4 * shape.depth + 3 * shape.width, 2),
        };
        for _ in 0..passes {
            work.function(Func::Exp, q.dtype.compute(), scores);
            (0..3).for_each(|_| work.each(q.dtype.compute(), scores));
        }
        let mut multiply_adds = scores.saturating_mul(deep);
        if by_threads {
            // They multiply at two thirds of the rate of products, as measured on an H200: weights go through shared memory.
            multiply_adds = multiply_adds.saturating_mul(3) / 2;
        }
        self.contract(q.dtype, narrow, multiply_adds, share);
        self.add(&work, share);
    }

    fn scatter(&mut self, scatter: &Scatter) {
        let places = IterationSpace::new(&scatter.domain, scatter.domain.len());
        let mut work = operations::program(&scatter.program, &scatter.params, &places);
        let result = scatter.program.outputs.first().and_then(|&v| scatter.program.insts.get(v));
        work.each(result.map_or(DType::F32, |i| i.dtype), places.points());
        let share = self.share(places.points(), 1);
        self.add(&work, share);
        self.add_access(&access_cost::operand(self.program, &scatter.params, &places), share);
    }

    /// Keys are made of all elements; the places that are asked for are found by comparing, a line on one
    /// lane of a core.
    fn argsort(&mut self, argsort: &Argsort) {
        let [from, out] = [argsort.from, argsort.out].map(|b| self.program.buffers.get(b));
        let (Some(from), Some(out)) = (from, out) else { return };
        let elements = |dims: &[i64]| IterationSpace::new(dims, dims.len()).points();
        let along =
            |dims: &[i64]| dims.get(usize::from(argsort.axis)).map_or(0, |n| n.unsigned_abs());
        let (all, found) = (elements(&from.dims), elements(&out.dims));
        let (long, few) = (along(&from.dims), along(&out.dims));
        let deep = |n: u64| u64::from(n.max(1).ilog2()) + 1;
        let mut work = OperationCounts::default();
        // To find the first few among all takes a pass or two; those are then put in order.
        let passes = if few < long { 3 } else { 1 };
        work.each(from.dtype, all.saturating_mul(passes));
        work.each(from.dtype, found.saturating_mul(deep(few)).saturating_mul(COMPARED));
        let lines = all.checked_div(long).unwrap_or(0).max(1);
        let cores = u64::try_from(self.device.parallel.max(1)).unwrap_or(1);
        let share = lines.min(cores) as f64 / (cores as f64 * f64::from(self.device.lanes.max(1)));
        self.add(&work, share);
    }
}

/// Operations of a place for each level of a sort.
const COMPARED: u64 = 3;

/// The part of the instructions of kernels around a product, or of what they move, that the longer of both does not hide: gelu's gradient and
/// sums of columns after a product of 16384 x 3072 take .14 ms on an H200, where .094 are for what they move and .09 for instructions.
const EXPOSED: f64 = 0.5;

/// Seconds of kernels around a product that move and compute for so long.
fn serial_seconds(moving_s: f64, computing_s: f64) -> f64 {
    moving_s.max(computing_s) + EXPOSED * moving_s.min(computing_s)
}

/// The part of a core's threads from which on more of them hide no more.
const ENOUGH_THREADS: f64 = 0.25;

fn priced(
    (program, step): (&Program, &Step),
    device: &MachineModel,
    moved: &Traffic,
    facts: Option<&KernelFacts>,
    blocks: &dyn Fn(&Program) -> Cost,
) -> StepCost {
    if let Some(cost) = of_blocks(step, blocks) {
        return cost;
    }
    let mut load = StepLoad::new(program, device);
    // Facts of sweeps are in place of what the structure suggests; other steps have loops that are no sweeps. Launches have
    // the loops of the structure.
    let launched = facts.and_then(|facts| Some((facts, facts.launches.as_ref()?)));
    let of_sweeps =
        matches!(step, Step::Kernel(_) | Step::Bundle(_) | Step::Contract(_) | Step::Scatter(_));
    let sweeps = facts.filter(|_| of_sweeps && launched.is_none());
    load.structural = sweeps.is_none();
    let launches_of = launched.map(|(_, launches)| launches);
    load.feeds = launches_of.is_none_or(|launches| !launches.timed_feeds);
    load.sums = launches_of.is_none_or(|launches| !launches.timed_sums);
    if let Some(facts) = sweeps {
        load.facts(facts);
    }
    let mut launches = 1;
    load.step(step, launched.is_some());
    if sweeps.is_some_and(|facts| facts.swept_products) {
        load.contract_s = 0.0;
    }
    // Partial results are joined by a second pass; a library's memory is its own affair.
    let (mut beyond, mut serial, mut serial_ops) = (0, 0, 0);
    if let Some((facts, of_step)) = launched {
        load.launched(facts, of_step);
        launches = u32::try_from(of_step.count).unwrap_or(u32::MAX).max(1);
        beyond = of_step.beyond_bytes;
        (serial, serial_ops) = (of_step.serial_bytes, of_step.serial_ops);
    } else if !matches!(step, Step::Library(_)) && program.scratch(step) > 0 {
        launches += 1;
    }
    let (registers, occupancy) = (load.work.registers, occupancy(load.work.registers, device));
    let hidden = (occupancy / ENOUGH_THREADS).min(1.0);
    let compute_s = (load.slots / device.ops_per_s + load.contract_s) / hidden;

    let bytes = moved.reads.saturating_add(moved.writes).saturating_add(beyond);
    let distinct = moved.distinct.iter().map(|(_, bytes)| bytes).fold(beyond, u64::saturating_add);
    let footprint = distinct.saturating_add(moved.writes);
    let resident = footprint <= device.cache_bytes;
    let fastest = device.bytes_per_s(footprint);
    let reached = device.reached(load.busy * device.parallel.max(1) as f64);
    let memory_s = match step {
        Step::Transfer(_) => moved.writes as f64 / device.host_bytes_per_s,
        Step::Exchange(exchange) => exchange_s(exchange, moved.writes, device),
        // The host reads a copy.
        Step::Print(_) => moved.reads as f64 / device.host_bytes_per_s,
        _ => bytes as f64 / (fastest * reached),
    };
    let moving_s = serial.min(bytes) as f64 / (fastest * reached);
    let beside_s = (memory_s - moving_s).max(compute_s);
    let serial_s = serial_seconds(moving_s, serial_ops as f64 / device.ops_per_s);

    let launch_s = f64::from(launches) * device.launch_s;
    let bound = match (launch_s, memory_s, compute_s) {
        (l, m, c) if l > m.max(c) => Bottleneck::Launch,
        (_, m, c) if m >= c => Bottleneck::Memory,
        _ => Bottleneck::Compute,
    };
    StepCost {
        reads: moved.reads,
        writes: moved.writes,
        ops: load.work.ops,
        launches,
        registers,
        occupancy,
        recomputed: load.work.recomputed,
        resident,
        seconds: launch_s + serial_s + beside_s,
        ideal_seconds: load.ideal_seconds(footprint - beyond, sweeps, launches_of),
        bound,
    }
}

/// The part of a core's threads that fit, times the part of the values that are not spilled.
fn occupancy(registers: u32, device: &MachineModel) -> f64 {
    if registers == 0 || device.registers == 0 {
        return 1.0;
    }
    let named = registers.min(device.registers);
    let kept = f64::from(named) / f64::from(registers);
    let fit = match device.register_file {
        0 => 1.0,
        file => f64::from(file / named) / f64::from(device.threads.max(1)),
    };
    kept * fit.min(1.0)
}
