//! Scatters: whether every thread reads all updates and applies those of its own places, or updates are sorted by
//! their places first.

use super::grid::Grid;
use super::shape::{free, internal};
use super::sort::{self, ScheduledSort, SortDecision};
use super::text::{DecisionLine, Reader, Writer, wrong};
use super::update_columns::UpdateColumns;
use super::work::{Lowering, Sort, SortDestination, SortSource};
use crate::gpu::target::GpuTarget;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, BufferData, Extents, Scatter, volume};
use adfuse_ir::op::Update;
use adfuse_ir::{DType, Diagnostic, Fp};

/// Threads of a scatter whose threads own places, if there are places for all of them.
const OWNERS: i64 = 1 << 16;
/// Updates of one column that each thread looks at, at most: beyond, sorting them is sooner done.
const MOST_LOOKED_AT: i64 = 256;
/// Updates of a chain at least.
const LEAST_CHAIN: i64 = 32;
/// Updates whose elements are read before the first of them is joined.
const INFLIGHT: i64 = 8;
/// Rows that a key of 32 bits tells apart, with one number left for updates that are left out.
const LAST_ROW: i64 = u32::MAX as i64;
/// Updates that are numbered in 32 bits with a sign.
const MOST_UPDATES: i64 = 1 << 30;

/// How threads fold sorted updates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RowFolding {
    pub(crate) grid: Grid,
    /// Neighbouring columns of a thread.
    pub(crate) width: i64,
    /// Updates that are under way at a time.
    pub(crate) inflight: i64,
    /// Sorted updates that one thread folds at most; 0 where it folds all of a row. What the threads of a row leave is folded by
    /// another launch.
    pub(crate) chain: i64,
}

impl RowFolding {
    /// The chains that a number of sorted updates is cut into.
    pub(crate) fn chains(&self, updates: i64) -> i64 {
        if self.chain == 0 { 1 } else { (updates - 1) / self.chain + 1 }
    }

    /// Errs for a folding that the columns do not have.
    fn check(
        &self,
        (columns, scatter, dtype): (&UpdateColumns, &Scatter, DType),
        (fp, target): (Fp, &GpuTarget),
    ) -> Result<(), String> {
        let RowFolding { grid, width, inflight, chain } = *self;
        grid.check(target)?;
        if width < 1 || columns.near(dtype) % width != 0 {
            return Err(format!("threads do not have {width} neighbouring columns"));
        }
        if !(1..=64).contains(&inflight) {
            return Err(format!("{inflight} updates are not under way at a time"));
        }
        if chain == 0 {
            return Ok(());
        }
        if !divides_rows(scatter.update, dtype, fp) {
            return Err("updates of a row are one chain in their order".to_owned());
        }
        if chain < 2 || chain >= columns.updates() || chain.count_ones() != 1 {
            return Err(format!("chains of {chain} updates are no power of two below all of them"));
        }
        Ok(())
    }
}

/// Whether threads may divide the updates of a row among them.
fn divides_rows(update: Update, dtype: DType, fp: Fp) -> bool {
    // Where updates are set, the last one stays.
    update.monoid().is_some_and(|monoid| fp != Fp::Strict || free(monoid, dtype))
}

/// The number of updates of a chain. It is about the number of chains, so that neither launch has long ones.
fn chain_of(updates: i64) -> i64 {
    let chain = 1i64 << (updates.max(1).ilog2() / 2 + 1);
    if chain >= LEAST_CHAIN { chain } else { 0 }
}

/// How a scatter is run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ScatterDecision {
    /// A thread owns one of `ranges` ranges of the places of a column, and reads all updates of the column.
    Owners { grid: Grid, ranges: i64 },
    /// Updates are sorted by their rows, and threads fold them.
    Sorted { folding: RowFolding, sort: SortDecision },
}

/// Updates that are sorted, and where.
pub(crate) struct SortedUpdates {
    pub(crate) columns: UpdateColumns,
    pub(crate) folding: RowFolding,
    /// The rows of updates, then those rows in order, then the updates in that order.
    pub(crate) keys: Buffer,
    pub(crate) sorted: Buffer,
    pub(crate) order: Buffer,
    /// What chains leave of rows that began in a chain before, by the number of the chain, where rows are divided.
    pub(crate) partial: Option<Buffer>,
    pub(crate) sort: ScheduledSort,
}

/// Places that threads own.
pub(crate) struct OwnedPlaces {
    pub(crate) grid: Grid,
    pub(crate) ranges: i64,
    /// Axes of the updates that are axes of the result, by which threads differ, and the others.
    pub(crate) window: Vec<usize>,
    pub(crate) others: Vec<usize>,
}

/// What a scatter becomes.
pub(crate) enum ScatterMethod {
    Owners(OwnedPlaces),
    Sorted(Box<SortedUpdates>),
}

/// A scatter as it is run.
pub(crate) struct ScheduledScatter {
    pub(crate) scatter: Scatter,
    pub(crate) decision: ScatterDecision,
    pub(crate) method: ScatterMethod,
}

/// The extents of some axes of the updates.
pub(crate) fn extents(scatter: &Scatter, axes: &[usize]) -> Extents {
    axes.iter().map(|&a| scatter.domain[a]).collect()
}

/// Axes of the updates that are axes of the result, and the others.
fn window(scatter: &Scatter) -> (Vec<usize>, Vec<usize>) {
    (0..scatter.domain.len()).partition(|&a| scatter.index.contains(&IndexExpr::axis(a)))
}

/// Ranges that the places of a column have at most.
fn most_ranges(data: &BufferData, scatter: &Scatter) -> i64 {
    let (window, others) = window(scatter);
    let width = volume(&extents(scatter, &window));
    match volume(&extents(scatter, &others)) {
        1 => 1,
        _ => (volume(&data.dims) / width).max(1),
    }
}

/// The sort of updates by their rows.
fn by_row(columns: &UpdateColumns, [keys, sorted, order]: [Buffer; 3]) -> Sort {
    let updates = columns.updates();
    Sort {
        from: SortSource::Keys { keys, with: None },
        lines: 1,
        long: updates,
        bits: (columns.rows() as u64).ilog2() + 1,
        count: updates,
        to: SortDestination::Entries { keys: sorted, with: order },
    }
}

/// Whether updates can be sorted.
fn sorts(columns: &UpdateColumns) -> bool {
    columns.rows() <= LAST_ROW
        && (1..=MOST_UPDATES).contains(&columns.updates())
        && columns.rows() > 0
}

impl ScatterDecision {
    pub(crate) fn of(low: &Lowering, scatter: &Scatter) -> ScatterDecision {
        let columns = UpdateColumns::of(low, scatter);
        let data = &low.program.buffers[scatter.out];
        let grid = Grid::default();
        if columns.updates() > MOST_LOOKED_AT && sorts(&columns) {
            let divides = divides_rows(scatter.update, data.dtype, low.fp);
            let chain = if divides { chain_of(columns.updates()) } else { 0 };
            let width = columns.near(data.dtype);
            let folding = RowFolding { grid, width, inflight: INFLIGHT, chain };
            let sort = SortDecision::of(&by_row(&columns, [scatter.out; 3]));
            return ScatterDecision::Sorted { folding, sort };
        }
        let width = volume(&extents(scatter, &window(scatter).0));
        let ranges = (OWNERS / width.max(1)).clamp(1, most_ranges(data, scatter));
        ScatterDecision::Owners { grid, ranges }
    }
}

/// A scatter as a decision says, with memory for what is sorted.
///
/// # Errors
/// [`adfuse_ir::Kind::Internal`] for more updates than a loop counts; in words, where the decision does not fit.
pub(crate) fn scheduled(
    low: &mut Lowering,
    scatter: Scatter,
    decision: ScatterDecision,
    target: &GpuTarget,
) -> Result<Result<ScheduledScatter, String>, Diagnostic> {
    let data = low.program.buffers[scatter.out].clone();
    let method = match &decision {
        ScatterDecision::Owners { grid, ranges } => {
            let (window, others) = window(&scatter);
            if volume(&extents(&scatter, &others)) >= 1 << 31 {
                return Err(internal("a scatter of this many updates has no loop"));
            }
            let most = most_ranges(&data, &scatter);
            if !(1..=most).contains(ranges) {
                return Ok(Err(format!("the places of a column have 1 to {most} ranges")));
            }
            let (grid, ranges) = (*grid, *ranges);
            grid.check(target)
                .map(|()| ScatterMethod::Owners(OwnedPlaces { grid, ranges, window, others }))
        }
        ScatterDecision::Sorted { folding, sort } => {
            let columns = UpdateColumns::of(low, &scatter);
            let of = (&columns, &scatter, data.dtype);
            folding
                .check(of, (low.fp, target))
                .and_then(|()| sorted(low, columns, folding, (sort, data.dtype, target)))
        }
    };
    Ok(method.map(|method| ScheduledScatter { scatter, decision, method }))
}

fn sorted(
    low: &mut Lowering,
    columns: UpdateColumns,
    folding: &RowFolding,
    (sort, dtype, target): (&SortDecision, DType, &GpuTarget),
) -> Result<ScatterMethod, String> {
    if !sorts(&columns) {
        return Err("there are too many rows to sort updates by".to_owned());
    }
    let dims = || Extents::from_iter([1, columns.updates()]);
    let keys = low.temp(DType::U32, dims());
    let (sorted, order) = (low.temp(DType::U32, dims()), low.temp(DType::I32, dims()));
    let by_row = by_row(&columns, [keys, sorted, order]);
    let sort = sort::scheduled(low, &by_row, sort.clone(), target)?;
    let parts = [folding.chains(columns.updates()), volume(&columns.extents)];
    let partial = (folding.chain > 0).then(|| low.temp(dtype, Extents::from_iter(parts)));
    let made = SortedUpdates { columns, folding: *folding, keys, sorted, order, partial, sort };
    Ok(ScatterMethod::Sorted(Box::new(made)))
}

impl DecisionLine for ScatterDecision {
    fn write(&self, to: &mut Writer) {
        match self {
            ScatterDecision::Owners { grid, ranges } => {
                to.line("updates", &[("by", &"owners")]);
                grid.write(to);
                to.line("places", &[("ranges", ranges)]);
            }
            ScatterDecision::Sorted { folding, sort } => {
                let RowFolding { grid, width, inflight, chain } = folding;
                to.line("updates", &[("by", &"sort")]);
                grid.write(to);
                let fields: [(&str, &dyn std::fmt::Display); 3] =
                    [("width", width), ("inflight", inflight), ("chain", chain)];
                to.line("columns", &fields);
                sort.write(to);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<ScatterDecision, Diagnostic> {
        let line = from.line("updates", &["by"])?;
        let (by, span) = line.word("by")?;
        let grid = Grid::read(from)?;
        match by {
            "owners" => {
                let ranges = from.line("places", &["ranges"])?.int("ranges")?;
                Ok(ScatterDecision::Owners { grid, ranges })
            }
            "sort" => {
                let line = from.line("columns", &["width", "inflight", "chain"])?;
                let (width, inflight) = (line.int("width")?, line.int("inflight")?);
                let folding = RowFolding { grid, width, inflight, chain: line.int("chain")? };
                let sort = SortDecision::read(from)?;
                Ok(ScatterDecision::Sorted { folding, sort })
            }
            _ => Err(wrong(span, format!("updates are not joined by `{by}`"))),
        }
    }
}
