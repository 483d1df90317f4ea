//! What the engine makes of each step, without compiling it: the vector width of a sweep, its scalarized and gathered
//! accesses, the arrays that are folded beside sweeps, the operands that are copied.
//!
//! The facts are those of a machine with vectors of a given width, whatever the host has, so that a plan is the same on
//! every host.

use super::capabilities::CAPABILITIES;
use super::codegen::loop_ir::Sweep;
use super::codegen::vector_width::Vectors;
use super::kernel::compile::CompileContext;
use super::machine_code::SweepId;
use super::point_tasks::PointTasks;
use super::shape::{CodeFold, checked_volume, covers, parted};
use super::steps::work;
use super::sweep_facts::FactCollector;
use crate::runtime::host_memory::OffsetAllocator;
use crate::runtime::legalize::legalize;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::facts::{KernelFacts, PassKind};
use adfuse_ir::kernel::{Extents, Kernel, Order, Program, Sink, Stage, Step};

/// Shorter lines and columns are folded one element after the other.
const SHORT: usize = 16;

/// The facts of every step of a program, for vectors of this many lanes of 32 bits; `None` for a program that the engine does
/// not run. Steps with programs in them have none of their own.
pub(super) fn facts(program: &Program, lanes: u32) -> Option<Vec<KernelFacts>> {
    let vectors = Vectors::of_bits(lanes.saturating_mul(32)).unwrap_or(Vectors::Narrow);
    let low = legalize(program, &CAPABILITIES).ok()?;
    let mut found = vec![KernelFacts::default(); program.steps.len()];
    let (mut shared, mut own) = (OffsetAllocator::default(), OffsetAllocator::default());
    for (n, step) in low.program.steps.iter().enumerate() {
        if matches!(step, Step::Loop(_) | Step::Branch(_)) {
            continue;
        }
        let facts = of_step(&low.program, step, vectors, [&mut shared, &mut own])?;
        if let Some(sum) = low.origin.get(n).and_then(|&origin| found.get_mut(origin)) {
            sum.join(facts);
        }
    }
    Some(found)
}

fn of_step(
    program: &Program,
    step: &Step,
    vectors: Vectors,
    [shared, own]: [&mut OffsetAllocator; 2],
) -> Option<KernelFacts> {
    shared.free();
    own.free();
    let mut collector = FactCollector::new(vectors);
    let mut making = CompileContext {
        compiler: None,
        facts: Some(&mut collector),
        program,
        shared,
        own,
        slots: 0,
        host: None,
    };
    work(&mut making, step, None).ok()?;
    Some(collector.step)
}

impl CompileContext<'_> {
    /// Makes the code of a sweep, or notes what it would be.
    pub(super) fn sweep(&mut self, sweep: &Sweep<'_>) -> Result<SweepId, Diagnostic> {
        let noted = self.facts.as_mut().map(|facts| facts.sweep(sweep)).unwrap_or_default();
        self.compiler.as_mut().map_or(Ok(noted), |compiler| compiler.sweep(sweep))
    }

    /// Instructions of the scalar program of a sweep.
    pub(super) fn size(&self, id: SweepId) -> i64 {
        let noted = || self.facts.as_ref().map_or(0, |facts| facts.size(id));
        self.compiler.as_ref().map_or_else(noted, |compiler| compiler.size(id))
    }

    /// Notes a pass over an array, if somebody asks.
    pub(super) fn note_pass(&mut self, kind: PassKind, elements: i64) {
        if let Some(facts) = &mut self.facts {
            facts.step.pass(kind, elements);
        }
    }

    /// Notes into how many tasks a kernel may be divided. Contractions, which have kernels after them, are divided by their
    /// products.
    pub(super) fn note_tasks(&mut self, tasks: &PointTasks, follows: bool) {
        let Some(facts) = self.facts.as_mut().filter(|_| !follows) else { return };
        let count = tasks.points.max(1).unsigned_abs().div_ceil(tasks.shortest().unsigned_abs());
        facts.step.tasks = facts.step.tasks.max(count);
    }

    /// Notes how often the code of a sweep is called.
    pub(super) fn note_runs(&mut self, id: SweepId, runs: i64) {
        if let Some(facts) = &mut self.facts {
            facts.runs(id, runs);
        }
    }

    /// Notes into how many tasks a bundle is divided, whatever its kernels would be by themselves.
    pub(super) fn note_bundle(&mut self, tasks: usize) {
        if let Some(facts) = &mut self.facts {
            facts.step.tasks = tasks.max(1) as u64;
        }
    }

    /// Notes that sweeps multiply.
    pub(super) fn note_swept_products(&mut self) {
        if let Some(facts) = &mut self.facts {
            facts.step.swept_products = true;
        }
    }

    /// Notes what folds and scans a stage's values after its sweep has left them in arrays.
    pub(super) fn note_folds(
        &mut self,
        kernel: &Kernel,
        stage: &Stage,
        folding: &[Option<CodeFold>],
    ) -> Result<(), Diagnostic> {
        if self.facts.is_none() {
            return Ok(());
        }
        let extents: Extents = kernel.domain.iter().chain(&stage.axes).copied().collect();
        let elements = checked_volume(&extents)?;
        for (sink, folding) in stage.sinks.iter().zip(folding) {
            let (monoid, runs, folded) = match sink {
                Sink::Scan { .. } => {
                    self.note_pass(PassKind::Scan, elements);
                    continue;
                }
                Sink::Reduce { monoid, runs, .. } => (monoid, runs, &stage.axes),
                Sink::Fold { monoid, runs, .. } => (monoid, runs, &extents),
                Sink::Store { .. } | Sink::Keep(_) | Sink::Leave(_) => continue,
            };
            if folding.is_some() {
                continue;
            }
            if monoid.is_arg() {
                self.note_pass(PassKind::Extremum, elements);
                if covers(runs, folded).is_none() && parted(runs, folded)?.is_none() {
                    self.note_pass(PassKind::Interchange, elements);
                }
                continue;
            }
            let kind = match parted(runs, folded)? {
                None => {
                    self.note_pass(PassKind::Interchange, elements);
                    PassKind::Fold
                }
                Some(by) if by.order == Order::Lane && by.size >= SHORT => PassKind::Line,
                Some(by) if by.order == Order::Chain && by.inner >= SHORT => PassKind::Line,
                Some(_) => PassKind::Fold,
            };
            self.note_pass(kind, elements);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::kernel::facts::ArrayPass;
    use adfuse_ir::kernel::text::parse;

    /// The facts of the first step of a program of these declarations and steps.
    fn step(text: &str, lanes: u32) -> KernelFacts {
        let program = parse(&format!("program @f {{ {text} return }}")).expect("reads");
        facts(&program, lanes).expect("runs").remove(0)
    }

    /// A map from `%x` to `%y`, both of these extents, that reads at an index.
    fn map(dims: &str, from: &str, body: &str) -> String {
        format!(
            "input %x: f32{dims} output %y: f32{dims} kernel @k {dims} {{ stage [] {{
               p0 = load %x[{from}] s0 = param.f32 0 {body} }} }}"
        )
    }

    #[test]
    fn accesses_are_told_by_how_vectors_make_them() {
        let same = |index: &str| format!("%y[{index}] = store s0");
        for (dims, from, to, due) in [
            // Lanes, near, far, placed.
            ("[4096]", "d0", "d0", [16, 0, 0, 0]),
            ("[4096]", "d0 * -1 + 4095", "d0", [16, 0, 0, 0]),
            ("[4096]", "d0", "d0 * -1 + 4095", [16, 1, 0, 0]),
            // By a transposed tile.
            ("[64, 64]", "d1, d0", "d0, d1", [16, 0, 0, 0]),
            ("[64, 64]", "d0, 0", "d0, d1", [16, 0, 0, 0]),
        ] {
            let found = step(&map(dims, from, &same(to)), 16);
            let [sweep] = found.sweeps.as_slice() else { panic!("{found:?}") };
            let told = [sweep.lanes, sweep.near, sweep.far, sweep.placed];
            assert_eq!(told, due, "{dims} {from}: {sweep:?}");
            assert_eq!(sweep.elements, 4096);
        }
    }

    #[test]
    fn shuffles_take_instructions() {
        for (dims, from, lanes, due) in [
            ("[4096]", "d0", 16, 0),
            ("[4096]", "d0 * -1 + 4095", 16, 1),
            ("[4096]", "d0 * -1 + 4095", 8, 0),
            ("[4096]", "d0 * 2", 16, 2),
            ("[64, 2]", "d0, 0", 16, 1),
            ("[64, 64]", "d1, d0", 16, 12),
            ("[64, 64]", "d1, d0", 8, 0),
            ("[16, 8, 4, 4]", "d0, d1, d2 * 2, d3 * 2", 16, 6),
        ] {
            let to: Vec<String> = (0..dims.split(',').count()).map(|k| format!("d{k}")).collect();
            let store = format!("%y[{}] = store s0", to.join(", "));
            let text = map(dims, from, &store);
            let text = match dims {
                "[4096]" => text.replacen("%x: f32[4096]", "%x: f32[8192]", 1),
                "[16, 8, 4, 4]" => text.replacen("[16, 8, 4, 4]", "[16, 8, 8, 8]", 1),
                _ => text,
            };
            assert_eq!(step(&text, lanes).sweeps[0].slots, due, "{dims} {from}");
        }
    }

    #[test]
    fn loads_and_stores_are_moves() {
        let with = |x: &str, y: &str, body: &str, from: &str| {
            format!(
                "input %x: {x} output %y: {y} kernel @k [4096] {{ stage [] {{
                   p0 = load %x[d0] s0 = param.{from} 0 {body} }} }}"
            )
        };
        for (x, y, from, body, due) in [
            // A load, a store, and two instructions for NaNs.
            ("f32[4096]", "f32[4096]", "f32", "s1 = neg.f32 s0 %y[d0] = store s1", 4),
            ("f64[4096]", "f64[4096]", "f64", "s1 = neg.f64 s0 %y[d0] = store s1", 8),
            ("i32[4096]", "i32[4096]", "i32", "s1 = neg.i32 s0 %y[d0] = store s1", 2),
            // Truth values in bytes, and in bits.
            ("f32[4096]", "bool[4096]", "f32", "s1 = lt.bool s0 s0 %y[d0] = store s1", 3),
            ("f32[4096]", "bool[4096] as b1", "f32", "s1 = lt.bool s0 s0 %y[d0] = store s1", 3),
        ] {
            let found = step(&with(x, y, body, from), 16);
            assert_eq!(found.sweeps[0].moves, due, "{x} {y} {body}");
        }
        // What does not change along a line is loaded before it.
        let rows = map("[64, 64]", "d0, 0", "%y[d0, d1] = store s0");
        assert_eq!(step(&rows, 16).sweeps[0].moves, 3);
    }

    #[test]
    fn code_is_called_for_each_batch() {
        let runs = |n: i64| {
            let text = map(&format!("[{n}]"), "d0", "%y[d0] = store s0");
            step(&text, 16).sweeps[0].runs
        };
        assert_eq!([runs(1), runs(4096)], [1, 1]);
        assert!(runs(1 << 24) > 1);
    }

    #[test]
    fn few_products_are_part_of_a_sweep() {
        let product = |n: i64| {
            step(
                &format!(
                    "input %x: f32[{n}, {n}] input %w: f32[{n}, {n}] output %z: f32[{n}, {n}]
                     contract @c {{ member batch [] rows [{n}] cols [{n}] depth [{n}] sum f32 {{
                       lhs {{ p0 = load %x[d0, d1] s0 = param.f32 0 out s0 }}
                       rhs {{ p0 = load %w[d1, d0] s0 = param.f32 0 out s0 }}
                       then {{ p0 = sum s0 = param.f32 0 %z[d0, d1] = store s0 }} }} }}"
                ),
                16,
            )
        };
        let few = product(6);
        assert!(few.swept_products, "{few:?}");
        assert!(few.sweeps[0].slots >= 6, "its products are in the sweep: {few:?}");
        let many = product(256);
        assert!(!many.swept_products, "{many:?}");
        // The pass over stored sums.
        assert_eq!((many.sweeps[0].elements, many.sweeps[0].slots), (256 * 256, 0), "{many:?}");
    }

    #[test]
    fn narrower_machines_have_narrower_vectors() {
        let text = map("[4096]", "d0", "s1 = mul.f32 s0 s0 s2 = add.f32 s1 s0 %y[d0] = store s2");
        for (lanes, due) in [(16, 16), (8, 8), (4, 4), (1, 4)] {
            let found = step(&text, lanes);
            assert_eq!((found.sweeps[0].lanes, found.sweeps[0].slots), (due, 2), "{lanes}");
        }
    }

    #[test]
    fn functions_that_are_called_have_no_wide_vectors() {
        let text =
            map("[4096]", "d0", "s1 = rem.f64 s0 s0 %y[d0] = store s1").replace("f32", "f64");
        for (lanes, due) in [(16, 0), (8, 1)] {
            let sweep = step(&text, lanes).sweeps[0];
            assert!(sweep.calls == due && (sweep.lanes == 16) == (due == 0), "{lanes}: {sweep:?}");
        }
    }

    #[test]
    fn folds_beside_sweeps_are_passes() {
        let fold = |rows: i64, n: i64, monoid: &str, row: &str| {
            format!(
                "input %x: f32[{rows}, {n}] output %y: {row}[{rows}] kernel @k [{rows}] {{
                   row r0: {row}
                   stage [{n}] {{ p0 = load %x[d0, d1] s0 = param.f32 0 r0 = reduce.{monoid} s0 lane(d1) }}
                   stage [] {{ p0 = r0 s0 = param.{row} 0 %y[d0] = store s0 }} }}"
            )
        };
        let passes = |text: &str| step(text, 16).passes;
        assert_eq!(passes(&fold(64, 512, "sum", "f32")), [], "vectors fold as they compute");
        let one = |kind| vec![ArrayPass { kind, elements: 64 * 8 }];
        assert_eq!(passes(&fold(64, 8, "sum", "f32")), one(PassKind::Fold));
        assert_eq!(passes(&fold(64, 8, "argmax", "i32")), one(PassKind::Extremum));
    }

    #[test]
    fn windows_beside_small_operands_are_not_packed() {
        // Kernels, lines and columns of results.
        let packed = |kernels: i64, [high, wide]: [i64; 2], lanes: u32| -> u64 {
            let text = format!(
                "input %x: f32[8, 32, {}, {}] input %w: f32[{kernels}, 32, 3, 3]
                 output %z: f32[8, {kernels}, {high}, {wide}]
                 contract @c {{ member batch [] rows [{kernels}] cols [8, {high}, {wide}] depth [32, 3, 3] sum f32 {{
                   lhs {{ p0 = load %w[d0, d1, d2, d3] s0 = param.f32 0 out s0 }}
                   rhs {{ p0 = load %x[d0, d3, d1 + d4, d2 + d5] s0 = param.f32 0 out s0 }}
                   then {{ p0 = sum s0 = param.f32 0 %z[d1, d0, d2, d3] = store s0 }} }} }}",
                high + 2,
                wide + 2,
            );
            let passes = step(&text, lanes).passes;
            passes.iter().filter(|p| p.kind == PassKind::Pack).map(|p| p.elements).sum()
        };
        // Columns of a vector's lines, and rows beside few columns.
        assert_eq!(packed(8, [32, 32], 16), 0);
        assert_eq!(packed(32, [30, 30], 16), 0);
        assert_eq!(packed(16, [14, 14], 16), 0);
        assert_eq!(packed(8, [8, 8], 8), 0);
        // Lines are shorter than a vector, and each row of tiles is read for many columns.
        assert_eq!(packed(512, [7, 7], 16), 8 * 7 * 7 * 288);
        // Pieces of 64 rows pack the windows twice, which is priced once.
        assert_eq!(packed(65, [38, 38], 16), 8 * 38 * 38 * 288);
    }

    #[test]
    fn large_kernels_are_several_tasks() {
        let body = "s1 = mul.f32 s0 s0 %y[d0] = store s1";
        assert_eq!(step(&map("[64]", "d0", body), 16).tasks, 1);
        // As the engine divides it: from 2^18 primitives on, into tasks of 2^17 or more.
        assert_eq!(step(&map("[16384]", "d0", body), 16).tasks, 1);
        assert_eq!(step(&map("[65536]", "d0", body), 16).tasks, 4);
        assert!(step(&map("[16777216]", "d0", body), 16).tasks > 16);
    }
}
