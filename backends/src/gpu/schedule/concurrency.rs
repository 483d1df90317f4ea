//! Steps side by side: ranges of steps of which one may begin before those before it are done, where the time that the chip
//! idles is worth it.
//!
//! A launch that fills the chip runs alone: beside another each would take longer. Steps that leave multiprocessors idle, or
//! take little more than their launch, form ranges, and a range is kept where running by what depends on what is faster than
//! one after the other. Dependencies are those of values; where two values share memory the later step waits for it too, which
//! is known when the memory is planned.

use super::text::{DecisionLine, Line, Reader, Writer, wrong};
use super::warpgroup_form::{WarpgroupForm, joint_runs};
use super::warpgroup_price::{BANDWIDTH, LAUNCH, LIBRARY_RATE, PLANNED_RATE};
use crate::gpu::target::GpuTarget;
use adfuse_ir::kernel::{Buffer, Contract, Member, Program, Step, volume};
use adfuse_ir::{DType, Diagnostic, Fp};
use cranelift_entity::SecondaryMap;
use std::ops::Range;

/// Elements that give each multiprocessor of a large chip as many threads as it has.
const FILLING: f64 = (1 << 19) as f64;
/// Rows and columns of a product's tile, of which a multiprocessor has one at a time.
const TILE: f64 = 128.0;
/// The part of a chip that must be idle during a step for others to run beside it.
const IDLE: f64 = 0.25;
/// How much less time a range must take than its steps one after the other.
const WORTH: f64 = 0.97;
/// Steps of a range at most: what depends on what is compared pair by pair.
const MOST: usize = 512;

/// A range of steps that may run side by side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ConcurrentSteps(pub(crate) Range<usize>);

impl DecisionLine for ConcurrentSteps {
    fn write(&self, to: &mut Writer) {
        let last = self.0.end.saturating_sub(1);
        to.line("concurrent", &[("first", &self.0.start), ("last", &last)]);
    }

    fn read(from: &mut Reader<'_>) -> Result<ConcurrentSteps, Diagnostic> {
        ConcurrentSteps::of_line(&from.line("concurrent", &["first", "last"])?)
    }
}

impl ConcurrentSteps {
    fn of_line(line: &Line<'_>) -> Result<ConcurrentSteps, Diagnostic> {
        let [first, last] = [line.int("first")?, line.int("last")?];
        let range = usize::try_from(first).ok().zip(usize::try_from(last).ok());
        let range = range.filter(|(first, last)| first < last);
        let none = || wrong(line.span, "a range has two steps or more");
        range.map(|(first, last)| ConcurrentSteps(first..last + 1)).ok_or_else(none)
    }

    /// Errs for a range that the program does not have, or that does not follow the one before.
    pub(crate) fn check(&self, program: &Program, before: usize) -> Result<(), String> {
        let Range { start, end } = self.0;
        if start < before || end > program.steps.len() {
            return Err(format!("steps {start} to {} are not after those before", end - 1));
        }
        match (start..end).find(|&n| !is_straight(&program.steps[n])) {
            Some(n) => Err(format!("the host drives step {n}: it runs alone")),
            None => Ok(()),
        }
    }
}

/// Whether a step is launches that a graph has.
fn is_straight(step: &Step) -> bool {
    let driven = matches!(step, Step::Loop(_) | Step::Branch(_) | Step::Print(_));
    !driven && !matches!(step, Step::Exchange(_) | Step::Transfer(_))
}

/// What a step takes of the chip.
#[derive(Clone, Copy, Debug)]
struct ChipLoad {
    seconds: f64,
    /// The part of the chip that it keeps busy meanwhile, up to 1.
    busy: f64,
}

/// The engine's own ranges for a program.
pub(crate) fn concurrent_steps(
    program: &Program,
    (target, fp): (&GpuTarget, Fp),
) -> Vec<ConcurrentSteps> {
    let load = |step: &Step| {
        let load = is_straight(step).then(|| step_load(program, step, target, fp))?;
        (1.0 - load.busy >= IDLE).then_some(load)
    };
    let loads: Vec<Option<ChipLoad>> = program.steps.iter().map(load).collect();
    let mut found = Vec::new();
    let mut first = 0;
    while first < loads.len() {
        let run = loads[first..].iter().take(MOST).take_while(|load| load.is_some()).count();
        if run > 1 && is_worth(program, first..first + run, &loads) {
            found.push(ConcurrentSteps(first..first + run));
        }
        first += run.max(1);
    }
    found
}

/// Whether steps take less time side by side: as long as the longest chain of what depends on each other, or as the whole
/// chip takes for all of them.
fn is_worth(program: &Program, range: Range<usize>, loads: &[Option<ChipLoad>]) -> bool {
    let before = dependencies(program, range.clone());
    let (mut ends, mut serial, mut filled) = (Vec::<f64>::new(), 0.0, 0.0);
    for (n, before) in range.zip(&before) {
        let Some(ChipLoad { seconds, busy }) = loads[n] else { return false };
        let begin = before.iter().map(|&k| ends[k]).fold(0.0, f64::max);
        ends.push(begin + seconds);
        serial += seconds;
        filled += seconds * busy;
    }
    let chain = ends.into_iter().fold(0.0, f64::max);
    chain.max(filled) < WORTH * serial
}

/// For each step of a range those before it in the range, counted from its beginning, whose values it needs, or which read
/// what it writes.
fn dependencies(program: &Program, range: Range<usize>) -> Vec<Vec<usize>> {
    let mut writer: SecondaryMap<Buffer, Option<usize>> = SecondaryMap::new();
    let mut readers: SecondaryMap<Buffer, Vec<usize>> = SecondaryMap::new();
    let mut found = Vec::new();
    for (k, step) in program.steps[range].iter().enumerate() {
        let mut before: Vec<usize> = step.reads().filter_map(|b| writer[b]).collect();
        for b in step.writes() {
            before.extend(writer[b]);
            before.extend_from_slice(&readers[b]);
        }
        before.sort_unstable();
        before.dedup();
        found.push(before);
        step.reads().for_each(|b| readers[b].push(k));
        step.writes().for_each(|b| writer[b] = Some(k));
    }
    found
}

/// What a step takes, by its structure.
fn step_load(program: &Program, step: &Step, target: &GpuTarget, fp: Fp) -> ChipLoad {
    let touched = || step.reads().chain(step.writes());
    let bytes: f64 = touched().map(|b| program.buffers[b].bytes() as f64).sum();
    if let Step::Contract(contract) = step {
        return product_load((program, contract), bytes, (fp, target));
    }
    let elements = touched().map(|b| volume(&program.buffers[b].dims)).max().unwrap_or(0) as f64;
    ChipLoad { seconds: LAUNCH + bytes / BANDWIDTH, busy: (elements / FILLING).min(1.0) }
}

/// What a contraction takes. Its members are launched one after the other, but for those that share a grid, and the last tiles of
/// a chip that had all of them busy leave part of it idle.
fn product_load(
    (program, contract): (&Program, &Contract),
    bytes: f64,
    (fp, target): (Fp, &GpuTarget),
) -> ChipLoad {
    let processors = f64::from(target.multiprocessors);
    let (mut seconds, mut busy) = (0.0, 0.0);
    let of = |m: &Member| WarpgroupForm::of(program, m, (fp, target));
    for run in joint_runs(contract.members.iter(), of) {
        let Some((m, _)) = run.first() else { continue };
        let count = run.len() as f64;
        let [batch, rows, cols] = [&m.batch, &m.rows, &m.cols].map(|e| volume(e) as f64);
        let tiles = count * batch * (rows / TILE).ceil() * (cols / TILE).ceil();
        let adds = count * batch * rows * cols * volume(&m.depth) as f64;
        let narrow = m.lhs.program.params.iter().any(|d| matches!(d, DType::BF16 | DType::F16));
        let rate = match fp {
            Fp::Strict => PLANNED_RATE,
            Fp::Reproducible if !narrow => PLANNED_RATE,
            Fp::Reproducible | Fp::Fast => LIBRARY_RATE / 2.0,
        };
        let waves = (tiles / processors).max(1e-3);
        // Tiles that are fewer than multiprocessors take as long as if they were as many.
        let own = adds / (rate * waves.min(1.0));
        seconds += own;
        busy += own * waves / waves.ceil();
    }
    let busy = if seconds > 0.0 { busy / seconds } else { 0.0 };
    ChipLoad { seconds: LAUNCH + seconds.max(bytes / BANDWIDTH), busy }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::kernel::text::parse;
    use adfuse_ir::kernel::verify;

    /// Two sums of squares of one input and what joins them, of this many elements.
    fn program(n: usize) -> Program {
        let square = |x: &str, y: &str| {
            format!(
                "  kernel @square [{n}] {{\n stage [] {{\n p0 = load %{x}[d0]\n s0 = param.f32 0\n s1 = mul.f32 s0 s0\n %{y}[d0] = store s1\n }}\n }}\n"
            )
        };
        let text = format!(
            "program @f {{\n input %x: f32[{n}]\n temp %a: f32[{n}]\n temp %b: f32[{n}]\n output %c: f32[{n}]\n output %d: f32[{n}]\n{}{}{}{} return %c, %d\n}}",
            square("x", "a"),
            square("x", "b"),
            square("a", "c"),
            square("b", "d"),
        );
        let program = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        verify(program.clone()).unwrap_or_else(|e| panic!("{e:?}"));
        program
    }

    #[test]
    fn small_steps_run_side_by_side_and_large_ones_alone() {
        let of = |n| concurrent_steps(&program(n), (&GpuTarget::SM90A, Fp::Strict));
        assert_eq!(of(1000), [ConcurrentSteps(0..4)]);
        assert_eq!(of(1 << 22), []);
        assert_eq!(dependencies(&program(8), 0..4), [vec![], vec![], vec![0], vec![1]]);
        // A chain has nothing to run beside.
        let mut chain = program(1000);
        chain.steps.remove(1);
        chain.steps.pop();
        assert_eq!(concurrent_steps(&chain, (&GpuTarget::SM90A, Fp::Strict)), []);
    }
}
