//! Sorts: which keys, by passes of which digits, in blocks of which size, and whether lines are shortened first.
//!
//! Short lines are sorted in shared memory, several to a block where they are very short. Of a long line of which only
//! the first few places are wanted, blocks sort a part each, and what comes first in each part is sorted again. Any other
//! long line takes three launches a digit.

use super::grid::{Grid, resident_fits};
use super::text::{DecisionLine, Reader, Writer};
use super::work::{Lowering, Sort, SortDestination, SortSource};
use crate::gpu::target::{GpuTarget, WARP};
use adfuse_ir::kernel::{Argsort, Buffer, Extents};
use adfuse_ir::{DType, Diagnostic};

/// Entries of a line that one block sorts in shared memory at most.
const MOST: i64 = 8192;
/// Threads of a block.
const FEW_THREADS: i64 = 256;
/// Threads of a block with more entries than fewer threads have in registers.
const MANY_THREADS: i64 = 512;
/// Entries of a thread at most.
const EACH: i64 = 16;
/// Entries of short lines that one block sorts together.
const TOGETHER: i64 = 2048;
/// Entries of a block up to which two blocks share a multiprocessor.
const TWO_BLOCKS: i64 = 4096;
/// Bits of a digit at most: a block has a counter for each digit and warp.
const DIGIT: u32 = 8;
/// Digits that there are.
pub(crate) const DIGITS: i64 = 1 << DIGIT;
/// Counts of a lane in one turn, where counts of blocks are added up.
const COUNTS: i64 = 8;

impl Sort {
    pub(crate) fn of(low: &Lowering, step: &Argsort) -> Sort {
        let [from, out] = [step.from, step.out].map(|b| &low.program.buffers[b]);
        let axis = usize::from(step.axis);
        let lines = without(&from.dims, axis).iter().product();
        let (long, count) = (from.dims[axis], out.dims[axis]);
        let (buffer, descending) = (step.from, step.descending);
        let bits = bits(from.dtype);
        let to = SortDestination::Places { buffer: step.out, axis };
        let from = SortSource::Elements { buffer, axis, descending };
        Sort { from, lines, long, bits, count, to }
    }

    pub(crate) fn wide(&self) -> bool {
        self.bits > 32
    }
}

/// Extents without those of an axis.
pub(crate) fn without(dims: &[i64], axis: usize) -> Extents {
    dims.iter().enumerate().filter(|(d, _)| *d != axis).map(|(_, &n)| n).collect()
}

/// Bits of the numbers of a type.
pub(crate) fn bits(dtype: DType) -> u32 {
    if dtype == DType::Bool { 1 } else { dtype.bits() }
}

/// A block that sorts, and the shared memory that it has: counters of warps, sums of warps of digits, a number for
/// each digit, and the entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SortBlock {
    pub(crate) threads: i64,
    /// Entries of a thread.
    pub(crate) each: i64,
    /// Whether keys are of 64 bits.
    pub(crate) wide: bool,
}

impl SortBlock {
    pub(crate) fn entries(&self) -> i64 {
        self.threads * self.each
    }

    pub(crate) fn warps(&self) -> i64 {
        self.threads / WARP
    }

    /// Sums of the warps that digits have, in one of two rooms.
    pub(crate) fn sums(&self, room: i64) -> i64 {
        self.warps() * DIGITS * 4 + room * DIGITS / WARP * 4
    }

    pub(crate) fn each_digit(&self) -> i64 {
        self.sums(2)
    }

    pub(crate) fn keys(&self) -> i64 {
        self.each_digit() + DIGITS * 4
    }

    pub(crate) fn key_bytes(&self) -> i64 {
        if self.wide { 8 } else { 4 }
    }

    pub(crate) fn withs(&self) -> i64 {
        self.keys() + self.entries() * self.key_bytes()
    }

    /// Bytes of shared memory.
    pub(crate) fn shared(&self) -> u32 {
        u32::try_from(self.withs() + self.entries() * 4).unwrap_or(u32::MAX)
    }
}

/// The passes of a sort: how many, and the bits of the digit of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Digits {
    pub(crate) passes: i64,
    pub(crate) bits: u32,
}

impl Digits {
    /// Digits of at most this many bits.
    fn of(sort: &Sort, most: u32) -> Digits {
        let passes = sort.bits.div_ceil(most).max(1);
        Digits { passes: passes.into(), bits: sort.bits.div_ceil(passes).max(1) }
    }
}

/// One way over all lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SortStage {
    /// Blocks sort in shared memory: this many whole lines, or one of this many parts of each line.
    Tiles { lines: i64, parts: i64, grid: Grid, digit: u32 },
    /// A pass over memory for each digit; this many counts of a lane are added up at a time.
    Radix { each: i64, counts: i64, grid: Grid, digit: u32 },
}

/// The ways over all lines, one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SortDecision {
    pub(crate) stages: Vec<SortStage>,
}

impl SortDecision {
    pub(crate) fn of(sort: &Sort) -> SortDecision {
        let mut stages = Vec::new();
        let mut long = sort.long;
        while long > MOST && sort.count <= MOST / 4 {
            let parts = (long + MOST - 1) / MOST;
            stages.push(tiles(1, parts, MOST));
            long = parts * sort.count;
        }
        stages.push(match long {
            ..=MOST => {
                let lines = (TOGETHER / long.max(1)).clamp(1, DIGITS).min(sort.lines);
                tiles(lines, 1, lines * long)
            }
            _ => {
                let grid = Grid { threads: FEW_THREADS, resident: 2 };
                SortStage::Radix { each: EACH, counts: COUNTS, grid, digit: DIGIT }
            }
        });
        SortDecision { stages }
    }
}

/// Blocks that sort this many entries in shared memory.
fn tiles(lines: i64, parts: i64, entries: i64) -> SortStage {
    let threads = if entries <= FEW_THREADS * EACH { FEW_THREADS } else { MANY_THREADS };
    let block = (entries + threads - 1) / threads * threads;
    let resident = if block > TWO_BLOCKS { 1 } else { 2 };
    SortStage::Tiles { lines, parts, grid: Grid { threads, resident }, digit: DIGIT }
}

/// Blocks that sort in shared memory.
pub(crate) struct ScheduledTiles {
    pub(crate) sort: Sort,
    pub(crate) block: SortBlock,
    pub(crate) resident: u32,
    pub(crate) digits: Digits,
    /// Lines of a block.
    pub(crate) together: i64,
    /// Parts of a line.
    pub(crate) parts: i64,
    /// Entries of a line, or of a part of one, that a block has.
    pub(crate) long: i64,
}

/// One pass over memory.
pub(crate) struct ScheduledPass {
    pub(crate) sort: Sort,
    pub(crate) block: SortBlock,
    pub(crate) resident: u32,
    pub(crate) digits: Digits,
    /// The number of the pass.
    pub(crate) number: i64,
    /// Blocks of a line.
    pub(crate) blocks: i64,
    /// For each line, digit and block, how many entries have the digit; later, how many in the blocks before.
    pub(crate) counts: Buffer,
    /// For each line and digit, how many entries have the digit.
    pub(crate) totals: Buffer,
    /// Counts of a lane that are added up at a time.
    pub(crate) each_lane: i64,
}

/// One or a few launches of a sort.
pub(crate) enum SortLaunch {
    Tiles(ScheduledTiles),
    Pass(ScheduledPass),
}

/// A sort as it is run.
pub(crate) struct ScheduledSort {
    pub(crate) decision: SortDecision,
    pub(crate) launches: Vec<SortLaunch>,
}

/// Errs for blocks that do not sort digits of this many bits.
fn check_block(
    block: &SortBlock,
    resident: u32,
    digit: u32,
    target: &GpuTarget,
) -> Result<(), String> {
    Grid { threads: block.threads, resident }.check(target)?;
    if block.threads < DIGITS || !(1..=64).contains(&block.each) {
        let SortBlock { threads, each, .. } = block;
        return Err(format!("a sort has no blocks of {threads} threads with {each} entries each"));
    }
    if !(1..=DIGIT).contains(&digit) {
        return Err(format!("a sort has digits of 1 to {DIGIT} bits, not {digit}"));
    }
    if block.shared() > target.shared {
        return Err(format!("{} entries outgrow shared memory", block.entries()));
    }
    resident_fits(resident, block.threads, target)
}

/// A buffer for keys and one for what goes with them, a row for each line.
fn entries(low: &mut Lowering, sort: &Sort, long: i64) -> (Buffer, Buffer) {
    let dims = || Extents::from_iter([sort.lines, long]);
    let keys = low.temp(if sort.wide() { DType::I64 } else { DType::U32 }, dims());
    (keys, low.temp(DType::I32, dims()))
}

/// The launches that a decision names, with memory for what is between them.
pub(crate) fn scheduled(
    low: &mut Lowering,
    sort: &Sort,
    decision: SortDecision,
    target: &GpuTarget,
) -> Result<ScheduledSort, String> {
    let mut launches = Vec::new();
    let mut now = *sort;
    let (last, before) = decision.stages.split_last().ok_or("a sort has no stages")?;
    for stage in before {
        let &SortStage::Tiles { lines: 1, parts: 2.., .. } = stage else {
            return Err("only parts of lines are sorted again".to_owned());
        };
        let SortStage::Tiles { parts, .. } = *stage else { continue };
        let long = parts.saturating_mul(now.count);
        if long >= now.long {
            return Err(format!("sorting {parts} parts shortens no line of {} entries", now.long));
        }
        let (keys, with) = entries(low, &now, long);
        let to = SortDestination::Entries { keys, with };
        launches.push(SortLaunch::Tiles(tiled(&Sort { to, ..now }, stage, target)?));
        now = Sort { from: SortSource::Keys { keys, with: Some(with) }, long, ..now };
    }
    match *last {
        SortStage::Tiles { parts: 1, .. } => {
            launches.push(SortLaunch::Tiles(tiled(&now, last, target)?));
        }
        SortStage::Tiles { .. } => return Err("the parts of lines are in no order".to_owned()),
        SortStage::Radix { each, counts, grid, digit } => {
            let block = SortBlock { threads: grid.threads, each, wide: sort.wide() };
            check_block(&block, grid.resident, digit, target)?;
            // A thread counts one digit.
            if grid.threads != DIGITS {
                let m = format!("blocks of {} threads do not count {DIGITS} digits", grid.threads);
                return Err(m);
            }
            if !(1..=32).contains(&counts) {
                return Err(format!("a lane does not add up {counts} counts at a time"));
            }
            let run = RadixRun { block, resident: grid.resident, each_lane: counts };
            run.passes(low, now, Digits::of(sort, digit), &mut launches);
        }
    }
    Ok(ScheduledSort { decision, launches })
}

/// Blocks that sort lines, or parts of them.
fn tiled(sort: &Sort, stage: &SortStage, target: &GpuTarget) -> Result<ScheduledTiles, String> {
    let SortStage::Tiles { lines, parts, grid, digit } = *stage else {
        return Err("these are no tiles".to_owned());
    };
    let together = lines;
    // Parts are whole blocks of entries.
    let long = match parts {
        1 => sort.long,
        _ => (sort.long + parts - 1) / parts.max(1),
    };
    let long = if parts == 1 { long } else { (long as u64).next_power_of_two() as i64 };
    let fits = together >= 1
        && together <= DIGITS.min(sort.lines)
        && (parts == 1 || together == 1 && sort.count <= long && parts >= 1)
        && (parts - 1).saturating_mul(long) < sort.long;
    if !fits || long > 1 << 20 {
        let Sort { lines, long, .. } = sort;
        return Err(format!(
            "{lines} lines of {long} entries are not sorted {together} to a block in {parts} parts"
        ));
    }
    let each = (together * long + grid.threads.max(1) - 1) / grid.threads.max(1);
    let block = SortBlock { threads: grid.threads, each, wide: sort.wide() };
    check_block(&block, grid.resident, digit, target)?;
    let digits = Digits::of(sort, digit);
    let sort = *sort;
    Ok(ScheduledTiles { sort, block, resident: grid.resident, digits, together, parts, long })
}

/// How the passes of one sort are run.
struct RadixRun {
    block: SortBlock,
    resident: u32,
    each_lane: i64,
}

impl RadixRun {
    fn passes(
        &self,
        low: &mut Lowering,
        sort: Sort,
        digits: Digits,
        launches: &mut Vec<SortLaunch>,
    ) {
        // Those that a pass reads and those that it writes.
        let both: Vec<(Buffer, Buffer)> =
            (1..digits.passes.min(3)).map(|_| entries(low, &sort, sort.long)).collect();
        let mut from = sort.from;
        for number in 0..digits.passes {
            let to = match both.get((number % 2) as usize).filter(|_| number + 1 < digits.passes) {
                Some(&(keys, with)) => SortDestination::Entries { keys, with },
                None => sort.to,
            };
            let blocks = (sort.long + self.block.entries() - 1) / self.block.entries();
            let counts = low.temp(DType::I32, Extents::from_iter([sort.lines, DIGITS, blocks]));
            let totals = low.temp(DType::I32, Extents::from_iter([sort.lines, DIGITS]));
            let RadixRun { block, resident, each_lane } = *self;
            let sort = Sort { from, to, ..sort };
            launches.push(SortLaunch::Pass(ScheduledPass {
                sort,
                block,
                resident,
                digits,
                number,
                blocks,
                counts,
                totals,
                each_lane,
            }));
            if let SortDestination::Entries { keys, with } = to {
                from = SortSource::Keys { keys, with: Some(with) };
            }
        }
    }
}

impl DecisionLine for SortDecision {
    fn write(&self, to: &mut Writer) {
        for stage in &self.stages {
            match stage {
                SortStage::Tiles { lines, parts, grid, digit } => to.line(
                    "tiles",
                    &[
                        ("lines", lines),
                        ("parts", parts),
                        ("threads", &grid.threads),
                        ("resident", &grid.resident),
                        ("digit", digit),
                    ],
                ),
                SortStage::Radix { each, counts, grid, digit } => to.line(
                    "radix",
                    &[
                        ("items", each),
                        ("counts", counts),
                        ("threads", &grid.threads),
                        ("resident", &grid.resident),
                        ("digit", digit),
                    ],
                ),
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<SortDecision, Diagnostic> {
        let mut stages = Vec::new();
        loop {
            let digit = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
            match from.next() {
                Some("tiles") => {
                    let keys = ["lines", "parts", "threads", "resident", "digit"];
                    let line = from.line("tiles", &keys)?;
                    stages.push(SortStage::Tiles {
                        lines: line.int("lines")?,
                        parts: line.int("parts")?,
                        grid: Grid::of_line(&line)?,
                        digit: digit(line.int("digit")?),
                    });
                }
                Some("radix") => {
                    let keys = ["items", "counts", "threads", "resident", "digit"];
                    let line = from.line("radix", &keys)?;
                    stages.push(SortStage::Radix {
                        each: line.int("items")?,
                        counts: line.int("counts")?,
                        grid: Grid::of_line(&line)?,
                        digit: digit(line.int("digit")?),
                    });
                }
                _ => return Ok(SortDecision { stages }),
            }
        }
    }
}
