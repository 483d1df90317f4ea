//! Scatters: whether every thread comes by all updates and takes those of its own places, or updates are sorted by
//! their places first.

use super::grid::Grid;
use super::shape::{internal, volume};
use super::sort::{self, ScheduledSort, SortDecision};
use super::text::{DecisionLine, Reader, Writer, wrong};
use super::update_columns::UpdateColumns;
use super::work::{Lowering, Sort, SortDestination, SortSource};
use crate::gpu::target::GpuTarget;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, BufferData, Extents, Scatter};
use adfuse_ir::{DType, Diagnostic};

/// Threads of a scatter whose threads own places, if there are places for all of them.
const OWNERS: i64 = 1 << 16;
/// Updates of one column that each thread looks at, at most: beyond, sorting them is sooner done.
const MOST_LOOKED_AT: i64 = 256;
/// Updates whose elements are read before the first of them is joined.
const INFLIGHT: i64 = 8;
/// Rows that a key of 32 bits tells apart, with one number left for updates that are left out.
const LAST_ROW: i64 = u32::MAX as i64;
/// Updates that are numbered in 32 bits with a sign.
const MOST_UPDATES: i64 = 1 << 30;

/// How a scatter is run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ScatterDecision {
    /// Threads own ranges of the places of a column, this many, and come by all of its updates.
    Owners { grid: Grid, ranges: i64 },
    /// Updates are sorted by their rows; a thread folds a row of some neighbouring columns, with this many updates
    /// under way at a time.
    Sorted { grid: Grid, width: i64, inflight: i64, sort: SortDecision },
}

/// Updates that are sorted, and where.
pub(crate) struct SortedUpdates {
    pub(crate) columns: UpdateColumns,
    pub(crate) grid: Grid,
    pub(crate) width: i64,
    pub(crate) inflight: i64,
    /// The rows of updates, then those rows in order, then the updates in that order.
    pub(crate) keys: Buffer,
    pub(crate) sorted: Buffer,
    pub(crate) order: Buffer,
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
            let width = columns.near(data.dtype);
            let sort = SortDecision::of(&by_row(&columns, [scatter.out; 3]));
            return ScatterDecision::Sorted { grid, width, inflight: INFLIGHT, sort };
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
        ScatterDecision::Sorted { grid, width, inflight, sort } => {
            let columns = UpdateColumns::of(low, &scatter);
            sorted(low, columns, (*grid, *width, *inflight), (sort, data.dtype, target))
        }
    };
    Ok(method.map(|method| ScheduledScatter { scatter, decision, method }))
}

fn sorted(
    low: &mut Lowering,
    columns: UpdateColumns,
    (grid, width, inflight): (Grid, i64, i64),
    (sort, dtype, target): (&SortDecision, DType, &GpuTarget),
) -> Result<ScatterMethod, String> {
    grid.check(target)?;
    if !sorts(&columns) {
        return Err("there are too many rows to sort updates by".to_owned());
    }
    if width < 1 || columns.near(dtype) % width != 0 {
        return Err(format!("threads do not have {width} neighbouring columns"));
    }
    if !(1..=64).contains(&inflight) {
        return Err(format!("{inflight} updates are not under way at a time"));
    }
    let dims = || Extents::from_iter([1, columns.updates()]);
    let keys = low.temp(DType::U32, dims());
    let (sorted, order) = (low.temp(DType::U32, dims()), low.temp(DType::I32, dims()));
    let by_row = by_row(&columns, [keys, sorted, order]);
    let sort = sort::scheduled(low, &by_row, sort.clone(), target)?;
    let made = SortedUpdates { columns, grid, width, inflight, keys, sorted, order, sort };
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
            ScatterDecision::Sorted { grid, width, inflight, sort } => {
                to.line("updates", &[("by", &"sort")]);
                grid.write(to);
                to.line("columns", &[("width", width), ("inflight", inflight)]);
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
                let line = from.line("columns", &["width", "inflight"])?;
                let (width, inflight) = (line.int("width")?, line.int("inflight")?);
                let sort = SortDecision::read(from)?;
                Ok(ScatterDecision::Sorted { grid, width, inflight, sort })
            }
            _ => Err(wrong(span, format!("updates are not joined by `{by}`"))),
        }
    }
}
