//! What steps become on a GPU, as numbers for the cost model: launches, bytes that go through memory beside the buffers,
//! multiply-adds that fill tiles up, elements that products compute on the way, digits of sorts.
//!
//! The facts are those of a target, whatever devices the host has. Equal steps are examined once.

use super::launch_facts::launches_of;
use super::schedule::ScheduleContext;
use super::schedule::library_product::{Product, UNEVEN};
use super::schedule::library_split::{DivisionContext, split};
use super::schedule::measured_product::fastest;
use super::schedule::mma_unit::Unit;
use super::schedule::operand_path::OperandPath;
use super::schedule::product::ScheduledProduct;
use super::schedule::program::{StepSchedule, schedule_but};
use super::schedule::rows::ScheduledRows;
use super::schedule::scalar_form::instructions;
use super::schedule::scatter::ScatterMethod;
use super::schedule::scheduled::Scheduled;
use super::schedule::sort::{ScheduledSort, SortLaunch};
use super::schedule::warpgroup_price::{LIBRARY_RATE, PLANNED_RATE};
use super::target::GpuTarget;
use adfuse_ir::kernel::facts::{KernelFacts, LaunchFacts, PassKind};
use adfuse_ir::kernel::{
    Buffer, Contract, Kernel, Operand, Param, ProductTimes, Program, Sink, Stage, Step, StepForm,
    Storage, volume,
};
use adfuse_ir::{DType, Diagnostic, Fp};
use hashbrown::{HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most forms whose facts are kept.
const MOST_FORMS: usize = 1 << 13;

/// What facts depend on beside the step.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FactsOptions {
    /// What is launched on.
    pub target: GpuTarget,
    /// What may happen to numbers.
    pub fp: Fp,
    /// Whether a library multiplies, in the modes that are not strict.
    pub library: bool,
    /// Times of products that were measured.
    pub products: ProductTimes,
}

/// The facts of steps that were examined, by their forms. Any number of threads may share one.
#[derive(Default)]
pub struct FactsCache {
    known: Mutex<HashMap<(FactsOptions, StepForm), KernelFacts>>,
}

impl fmt::Debug for FactsCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FactsCache").field("forms", &self.known().len()).finish()
    }
}

impl FactsCache {
    fn known(&self) -> MutexGuard<'_, HashMap<(FactsOptions, StepForm), KernelFacts>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The facts of every step of a program; `None` for a program that the engine does not run. Loops and branches have
    /// none of their own.
    pub fn of(&self, program: &Program, options: &FactsOptions) -> Option<Vec<KernelFacts>> {
        let mut found = Vec::with_capacity(program.steps.len());
        for step in &program.steps {
            if matches!(step, Step::Library(_)) {
                // What the user says that it takes is in the step.
                let launches = Some(LaunchFacts { count: 1, ..LaunchFacts::default() });
                found.push(KernelFacts { launches, ..KernelFacts::default() });
                continue;
            }
            let Some((form, _)) = StepForm::of(program, step) else {
                found.push(KernelFacts::default());
                continue;
            };
            let key = (options.clone(), form);
            let known = self.known().get(&key).cloned();
            let facts = match known {
                Some(facts) => facts,
                None => {
                    let facts = of_form(&key.1, options).ok()?;
                    let mut known = self.known();
                    if known.len() >= MOST_FORMS {
                        known.clear();
                    }
                    known.insert(key, facts.clone());
                    facts
                }
            };
            found.push(facts);
        }
        Some(found)
    }
}

/// The facts of the steps of a form, of a program that has one of them and its buffers alone.
fn of_form(form: &StepForm, options: &FactsOptions) -> Result<KernelFacts, Diagnostic> {
    let &FactsOptions { target, fp, library, ref products } = options;
    let (step, buffers) = form.clone().parts();
    let (buffers, steps) = (buffers.into_iter().collect(), vec![step.clone()]);
    let alone = Program { name: String::new(), buffers, outputs: Vec::new(), steps };
    let context = DivisionContext { fp, target: &target, library, products };
    let parts = split(&alone, context)?;
    let done: Vec<bool> = parts.multiplied(fp, library).iter().map(Option::is_some).collect();
    let parts = parts.program;
    let context = ScheduleContext { products: Some(products), ..ScheduleContext::new(target, fp) };
    let schedule = schedule_but(&parts, context, &done)?;
    // What is divided goes through buffers that the step did not have.
    let own: HashSet<Buffer> = alone.buffers.keys().collect();
    let mut facts = KernelFacts::default();
    let multiplies = parts.steps.iter().any(|part| matches!(part, Step::Contract(_)));
    for (n, part) in parts.steps.iter().enumerate() {
        let mut launches = LaunchFacts { count: 1, ..LaunchFacts::default() };
        if let (true, Step::Contract(c)) = (done[n], part) {
            launches.multiply_adds = uneven_multiply_adds(&parts, c);
        }
        if !done[n] {
            launches = launches_of(&schedule, n)?;
            let of = (&schedule.program, (fp, &target));
            of_works(of, &schedule.steps[n], &mut facts, &mut launches);
        }
        let beside = part.reads().chain(part.writes()).filter(|b| !own.contains(b));
        let beside = beside.map(|b| parts.buffers[b].bytes()).fold(0, u64::saturating_add);
        launches.beyond_bytes = launches.beyond_bytes.saturating_add(beside);
        // What a step with a product does before it and after it has its own time.
        if multiplies && !matches!(part, Step::Contract(_)) {
            let all: HashSet<Buffer> = part.reads().chain(part.writes()).collect();
            let bytes = all.iter().map(|&b| parts.buffers[b].bytes());
            launches.serial_bytes = bytes.fold(0, u64::saturating_add);
            // What is computed of operands is counted by the structure.
            let is_after = parts.steps[..n].iter().any(|part| matches!(part, Step::Contract(_)));
            launches.serial_ops = if is_after { instructions_of(part, fp) } else { 0 };
            facts.pass(PassKind::Pack, guarded_reads(part) / GUARDED_READS);
        }
        facts.join(KernelFacts { launches: Some(launches), ..KernelFacts::default() });
    }
    if let Some(launches) = &mut facts.launches {
        launches.loop_ops = loop_ops(&step, fp);
    }
    // Kernels after what the library multiplies have been counted, and instructions after sums with their tiles.
    let is_timed = |n: usize| {
        let own = schedule.steps.get(n).map(|step| step.works.as_slice()).unwrap_or_default();
        let by_tiles = |work: &Scheduled| matches!(work, Scheduled::Warpgroup(_));
        done[n] || !own.is_empty() && own.iter().all(by_tiles)
    };
    let mut products =
        parts.steps.iter().enumerate().filter(|(_, p)| matches!(p, Step::Contract(_)));
    if let Some(launches) = &mut facts.launches
        && multiplies
        && products.all(|(n, _)| is_timed(n))
    {
        launches.timed_sums = true;
    }
    if let (Step::Contract(c), Some(launches)) = (&step, &mut facts.launches)
        && let Some(seconds) = measured_seconds(&alone, c, options)
    {
        // The time of all launches together is known: nothing of it is counted once more.
        facts.passes.clear();
        *launches = LaunchFacts {
            count: launches.count,
            timed_multiply_adds: timed_multiply_adds(c, fp, seconds),
            timed_feeds: true,
            timed_sums: true,
            ..LaunchFacts::default()
        };
    }
    Ok(facts)
}

/// Multiply-adds that the library does in the time of products that it multiplies at a part of its rate; 0 where it has its full rate.
fn uneven_multiply_adds(program: &Program, c: &Contract) -> u64 {
    let products = c.members.iter().filter_map(|m| Product::of(program, m));
    let uneven = products.filter(|p| p.lhs.dtype.bytes() == 2 && p.is_uneven());
    let all = |p: Product| p.size.iter().map(|&n| n as f64).product::<f64>();
    (uneven.map(all).sum::<f64>() * UNEVEN) as u64
}

/// Instructions of a step's loops in `fast`, where approximate functions are of fewer than their definitions.
fn loop_ops(step: &Step, fp: Fp) -> Option<u64> {
    match step {
        Step::Kernel(kernel) if fp == Fp::Fast => Some(instructions_in(kernel, fp)),
        Step::Bundle(bundle) if fp == Fp::Fast => {
            Some(bundle.kernels.iter().map(|kernel| instructions_in(kernel, fp)).sum())
        }
        _ => None,
    }
}

/// Instructions of a kernel's loops in this mode; a fold is one of each element.
fn instructions_of(step: &Step, fp: Fp) -> u64 {
    match step {
        Step::Kernel(kernel) => instructions_in(kernel, fp),
        _ => 0,
    }
}

fn instructions_in(kernel: &Kernel, fp: Fp) -> u64 {
    let of_stage = |stage: &Stage| {
        let is_fold = |sink: &&Sink| {
            matches!(sink, Sink::Fold { .. } | Sink::Reduce { .. } | Sink::Scan { .. })
        };
        let folds = stage.sinks.iter().filter(is_fold);
        let each = instructions(&stage.program, fp).saturating_add(folds.count() as i64);
        volume(&stage.axes).saturating_mul(each)
    };
    let each = kernel.stages.iter().map(of_stage).fold(0, i64::saturating_add);
    volume(&kernel.domain).saturating_mul(each).unsigned_abs()
}

/// Seconds of a contraction of which every member was measured, in the ways that are taken.
fn measured_seconds(program: &Program, c: &Contract, options: &FactsOptions) -> Option<f64> {
    let FactsOptions { fp, library, products, target } = options;
    let all = c.members.iter().map(|m| {
        fastest(products, (program, m), (*fp, target), *library).map(|(_, seconds)| seconds)
    });
    all.sum()
}

/// Multiply-adds that the planner's model of an H200 does in these seconds, as other products are counted.
fn timed_multiply_adds(c: &Contract, fp: Fp, seconds: f64) -> u64 {
    let of_f32 = c.members.iter().any(|m| Unit::of(m, fp) == Unit::Tf32);
    (seconds * if of_f32 { PLANNED_RATE } else { LIBRARY_RATE / 2.0 }) as u64
}

/// What work does that neither its structure nor its launches say.
fn of_works(
    (program, how): (&Program, (Fp, &GpuTarget)),
    step: &StepSchedule,
    facts: &mut KernelFacts,
    launches: &mut LaunchFacts,
) {
    for work in &step.works {
        match work {
            Scheduled::Product(product) => {
                let (multiply_adds, fed) = of_product(product);
                launches.multiply_adds = launches.multiply_adds.saturating_add(multiply_adds);
                facts.pass(PassKind::Pack, fed);
            }
            Scheduled::Warpgroup(product) => {
                let (tile, all) = (&product.tile, product.products());
                let adds = tile.equivalent_multiply_adds((program, &all), how);
                let of_f32 = product.members.iter().any(|m| m.form.dtype == DType::F32);
                let counted = match of_f32 {
                    true => &mut launches.timed_multiply_adds,
                    false => &mut launches.multiply_adds,
                };
                *counted = counted.saturating_add(adds);
                let serial = tile.serial_bytes(program, &all, how.0);
                launches.serial_bytes = launches.serial_bytes.saturating_add(serial);
            }
            Scheduled::Convolution(product) => {
                let adds = product.timed_multiply_adds(how.1);
                launches.timed_multiply_adds = launches.timed_multiply_adds.saturating_add(adds);
                launches.timed_feeds |= product.form.operands.iter().any(|x| x.computed.is_some());
            }
            Scheduled::Elementwise(flat) => {
                facts.pass(PassKind::Pack, flat.packing_threads(program));
            }
            Scheduled::Rows(rows) => {
                facts.pass(PassKind::Pack, packed_reads(program, rows) / READS);
            }
            Scheduled::Sort(sort) => facts.pass(PassKind::Digit, digits(sort)),
            Scheduled::Scatter(scatter) => {
                if let ScatterMethod::Sorted(sorted) = &scatter.method {
                    facts.pass(PassKind::Digit, digits(&sorted.sort));
                }
            }
            _ => {}
        }
    }
}

/// Elements under guards that a kernel reads for a product in the time in which one is computed on the way to shared memory.
/// Windows with zeros around the array, 32 x 256 x 14 x 14 by 3 x 3, are stored in .017 ms more than those of a padded array on an
/// H100, which is 36 operations an element.
const GUARDED_READS: i64 = 2;

/// Elements that a kernel reads where guards hold.
fn guarded_reads(step: &Step) -> i64 {
    let Step::Kernel(kernel) = step else { return 0 };
    let of_stage = |stage: &Stage| {
        let guarded = |param: &&Param| match param {
            Param::Load(pieces) => pieces.iter().any(|piece| !piece.guards.is_empty()),
            _ => false,
        };
        let count = stage.params.iter().filter(guarded).count() as i64;
        volume(&stage.axes).saturating_mul(count)
    };
    let each = kernel.stages.iter().map(of_stage).fold(0, i64::saturating_add);
    volume(&kernel.domain).saturating_mul(each)
}

/// Packed elements that are read in the time in which a thread packs its own.
const READS: i64 = 4;

/// Elements of packed buffers that a kernel of rows reads.
fn packed_reads(program: &Program, rows: &ScheduledRows) -> i64 {
    let kernel = &rows.layout.kernel;
    let of_stage = |stage: &Stage| {
        let packed = |param: &&Param| match param {
            Param::Load(pieces) => pieces.iter().any(|piece| match piece.from {
                Operand::Buffer(b) => program.buffers[b].storage != Storage::Plain,
                Operand::Literal(_) => false,
            }),
            _ => false,
        };
        let count = stage.params.iter().filter(packed).count() as i64;
        volume(&stage.axes).saturating_mul(count)
    };
    let each = kernel.stages.iter().map(of_stage).fold(0, i64::saturating_add);
    volume(&kernel.domain).saturating_mul(each)
}

/// Multiply-adds of a product's tiles, and the elements of operands that they compute on the way to shared memory.
fn of_product(product: &ScheduledProduct) -> (u64, i64) {
    let (m, tiling) = (&product.member, &product.tiling);
    let count = |n: i64, side: usize| (n + tiling.side[side] - 1) / tiling.side[side];
    let tiles = [count(volume(&m.rows), 0), count(volume(&m.cols), 1)];
    let all = volume(&m.batch).saturating_mul(tiles[0]).saturating_mul(tiles[1]);
    let depth = tiling.steps.saturating_mul(tiling.deep);
    let of_tile = |elements: i64| all.saturating_mul(elements).saturating_mul(depth);
    let computed = |side: usize| {
        matches!(tiling.operands[side].path, OperandPath::Computed { .. })
            .then(|| of_tile(tiling.side[side]))
    };
    let fed = (0..2).filter_map(computed).fold(0, i64::saturating_add);
    (of_tile(tiling.side[0] * tiling.side[1]).unsigned_abs(), fed)
}

/// Elements that blocks move by digits in shared memory, once for each digit.
fn digits(sort: &ScheduledSort) -> i64 {
    let of = |launch: &SortLaunch| match launch {
        SortLaunch::Tiles(tiles) => {
            let lines = tiles.sort.lines.saturating_mul(tiles.parts);
            lines.saturating_mul(tiles.long).saturating_mul(tiles.digits.passes)
        }
        _ => 0,
    };
    sort.launches.iter().map(of).fold(0, i64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::kernel::text::parse;

    fn facts(text: &str, fp: Fp, library: bool) -> KernelFacts {
        let program = parse(&format!("program @f {{ {text} return %y }}")).expect("reads");
        let cache = FactsCache::default();
        let products = ProductTimes::default();
        let options = FactsOptions { target: GpuTarget::SM90, fp, library, products };
        let found = cache.of(&program, &options).expect("is examined");
        assert_eq!(cache.of(&program, &options), Some(found.clone()), "what is known is the same");
        found[0].clone()
    }

    fn launches(facts: &KernelFacts) -> LaunchFacts {
        facts.launches.expect("a GPU launches")
    }

    #[test]
    fn a_loop_over_elements_is_one_launch_that_moves_nothing_else() {
        let found = facts(
            "input %x: f32[4096] output %y: f32[4096]
             kernel @k [4096] { stage [] { p0 = load %x[d0] s0 = param.f32 0 %y[d0] = store s0 } }",
            Fp::Strict,
            false,
        );
        let due = LaunchFacts { count: 1, ..LaunchFacts::default() };
        assert_eq!((launches(&found), found.passes.len()), (due, 0));
    }

    #[test]
    fn a_fold_of_all_elements_leaves_parts() {
        let found = facts(
            "input %x: f32[1048576] output %y: f32[]
             kernel @k [1048576] { stage [] { p0 = load %x[d0] s0 = param.f32 0
               %y[] = fold.sum s0 lane(d0) } }",
            Fp::Strict,
            false,
        );
        let found = launches(&found);
        // The first launch writes a part of each block of 1024, another reads them.
        assert!(found.count >= 2 && found.beyond_bytes >= 2 * 1024 * 4, "{found:?}");
    }

    /// A product for each of a batch, with one column: windows of a filter for each channel.
    const NARROW: &str = "input %x: f32[64, 100, 16] input %w: f32[64, 16] output %y: f32[64, 100]
      contract @f { member batch [64] rows [100] cols [1] depth [9] sum f32 {
        lhs { p0 = load %x[d0, d1, d2 + 1] s0 = param.f32 0 s1 = mul.f32 s0 s0 out s1 }
        rhs { p0 = load %w[d0, d2] s0 = param.f32 0 out s0 }
        then { p0 = sum s0 = param.f32 0 %y[d0, d1] = store s0 } } }";

    #[test]
    fn tiles_of_a_narrow_product_are_mostly_empty() {
        let found = facts(NARROW, Fp::Strict, false);
        let filled = launches(&found).multiply_adds;
        assert!(filled >= 32 * 64 * 100 * 9, "{found:?}");
        let [pass] = found.passes.as_slice() else { panic!("{found:?}") };
        // Squares are computed on the way, for whole tiles.
        assert_eq!(pass.kind, PassKind::Pack);
        assert!(pass.elements >= 64 * 100 * 9, "{pass:?}");
    }

    #[test]
    fn what_a_library_multiplies_has_operands_in_memory() {
        let text = "input %x: f32[512, 512] input %w: f32[512, 512] output %y: f32[512, 512]
          contract @f { member batch [] rows [512] cols [512] depth [512] sum f32 {
            lhs { p0 = load %x[d0, d1] s0 = param.f32 0 s1 = mul.f32 s0 s0 out s1 }
            rhs { p0 = load %w[d1, d0] s0 = param.f32 0 out s0 }
            then { p0 = sum s0 = param.f32 0 %y[d0, d1] = store s0 } } }";
        let [own, library] = [false, true].map(|library| facts(text, Fp::Reproducible, library));
        assert_eq!((launches(&own).count, launches(&own).beyond_bytes), (1, 0));
        let library = launches(&library);
        // A kernel writes the squares, which the library reads.
        assert_eq!((library.count, library.beyond_bytes), (2, 2 * 512 * 512 * 4));
        assert_eq!(library.multiply_adds, 0);
    }

    #[test]
    fn windows_that_are_stored_for_a_library_take_longer_under_guards() {
        let text = |guard: &str| {
            format!(
                "input %x: f32[8, 66, 256] input %w: f32[64, 256, 3] output %y: f32[64, 8, 64]
                 contract @f {{ member batch [] rows [64] cols [8, 64] depth [256, 3] sum f32 {{
                   lhs {{ p0 = load %w[d0, d1, d2] s0 = param.f32 0 out s0 }}
                   rhs {{ p0 = load %x[d0, d1 + d3, d2] {guard} s0 = param.f32 0 out s0 }}
                   then {{ p0 = sum s0 = param.f32 0 %y[d0, d1, d2] = store s0 }} }} }}"
            )
        };
        let guard = "when d1 + d3 in [1, 65) else f32(0.0)";
        let [plain, guarded] = ["", guard].map(|g| facts(&text(g), Fp::Reproducible, true));
        assert_eq!(plain.passes.len(), 0, "{plain:?}");
        let [pass] = guarded.passes.as_slice() else { panic!("{guarded:?}") };
        assert_eq!((pass.kind, pass.elements), (PassKind::Pack, 8 * 64 * 256 * 3 / 2));
    }

    #[test]
    fn sorts_are_told_by_their_digits() {
        let sort = |n: i64| {
            let text = format!(
                "input %x: f32[4, {n}] output %y: i32[4, {n}]
                 %y = argsort %x axis 1"
            );
            facts(&text, Fp::Strict, false)
        };
        let short = sort(1024);
        let [pass] = short.passes.as_slice() else { panic!("{short:?}") };
        assert_eq!((pass.kind, launches(&short).count), (PassKind::Digit, 1));
        assert!(pass.elements >= 4 * 4 * 1024, "a digit has 8 bits at most: {pass:?}");
        // Longer lines go through memory, three launches for each digit.
        let long = sort(1 << 20);
        assert!(long.passes.is_empty() && launches(&long).count >= 12, "{long:?}");
        assert!(launches(&long).beyond_bytes >= 4 * (4 << 20) * 8, "{long:?}");
    }
}
