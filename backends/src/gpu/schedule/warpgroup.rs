//! Products of 16-bit floats and of `f32` (as TF32) by warpgroups: four warps multiply tiles that the copy engine brings to shared
//! memory, while another warp asks for the next ones. Which products are multiplied so, and how they are tiled.

use super::grid::Grid;
use super::index::{in_order, whole as whole_load};
use super::mapped_operand::{LINE, MappedOperand, NEIGHBOURS};
use super::mma_unit::Unit;
use super::product_terms::terms;
use super::scalar_form::written;
use super::shape::volume;
use super::text::{DecisionLine, Reader, Writer, listed, pair, wrong};
use crate::gpu::target::{GpuTarget, WARP};
use adfuse_ir::kernel::{Buffer, Extents, Member, Program, Sink, Storage};
use adfuse_ir::op::Monoid;
use adfuse_ir::{DType, Diagnostic, Fp};
use std::fmt;

/// Threads of a warpgroup.
pub(crate) const GROUP: i64 = 4 * WARP;
/// Warpgroups that multiply; one more asks for copies.
pub(crate) const MULTIPLIERS: i64 = 2;
/// Rows that one instruction multiplies.
pub(crate) const TALL: i64 = 64;
/// Columns whose sums four threads exchange, so that each has [`NEIGHBOURS`] of them.
pub(crate) const EXCHANGED: i64 = 4 * NEIGHBOURS;
/// Bytes of the two barriers of a stage, that it is full and that it is empty, and of those by which warpgroups alternate.
pub(crate) const BARRIERS: i64 = 16;
/// Instructions after a sum beyond which the text outgrows what it saves: each thread has it for all of its sums.
const MOST_EPILOGUE: usize = 96;
/// The least extents of a product that is worth tiles of these sizes.
const LEAST: [i64; 3] = [64, 64, 64];

/// Tiles that there are.
const TILES: [TileKind; 5] = [
    TileKind { side: [128, 256], order: TileOrder::Cooperative, share: 100, finish: 32 },
    TileKind { side: [256, 128], order: TileOrder::Cooperative, share: 97, finish: 32 },
    TileKind { side: [128, 192], order: TileOrder::Cooperative, share: 95, finish: 32 },
    TileKind { side: [128, 128], order: TileOrder::PingPong, share: 96, finish: 24 },
    TileKind { side: [128, 128], order: TileOrder::Cooperative, share: 90, finish: 32 },
];

/// A shape of tiles, with what was measured of it on an H200.
struct TileKind {
    side: [i64; 2],
    order: TileOrder,
    /// The share of the chip's rate that it reaches where the depth is long, in percent.
    share: i64,
    /// The depth that takes as long as finishing a tile and beginning the next.
    finish: i64,
}

/// How the warpgroups of a block divide its tiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TileOrder {
    /// Each has some rows of every tile.
    Cooperative,
    /// Each has every other tile: one finishes its sums while the other multiplies.
    PingPong,
}

impl fmt::Display for TileOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TileOrder::Cooperative => "cooperative",
            TileOrder::PingPong => "pingpong",
        })
    }
}

/// A product that warpgroups multiply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WarpgroupForm {
    pub(crate) dtype: DType,
    /// Of the first term of a sum of products, or of the one product.
    pub(crate) operands: [MappedOperand; 2],
    /// Of further terms, which lie as those of the first one.
    pub(crate) further: Vec<[MappedOperand; 2]>,
    /// Elements of the depth of a term.
    pub(crate) depth: i64,
}

/// The choices of a product that warpgroups multiply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WarpgroupTile {
    /// Rows and columns of a tile of sums.
    pub(crate) side: [i64; 2],
    pub(crate) order: TileOrder,
    /// Blocks that work on tiles below each other and bring the columns' operand together, each a part of it.
    pub(crate) cluster: i64,
    /// Steps in shared memory at a time.
    pub(crate) stages: i64,
    /// Rows of tiles that blocks go over together, so that what they read is in the cache.
    pub(crate) band: i64,
}

/// A product of those that share a grid.
pub(crate) struct WarpgroupMember {
    pub(crate) member: Member,
    pub(crate) form: WarpgroupForm,
    /// For each sink that adds up columns, where its parts go.
    pub(crate) parts: Vec<Option<Buffer>>,
}

/// Products that warpgroups multiply in one launch, before their tiles are chosen: one, or several of equal extents, whose tiles
/// follow each other.
pub(crate) struct WarpgroupWork {
    pub(crate) members: Vec<WarpgroupMember>,
    /// The tiles that were the fastest, where such products were measured.
    pub(crate) measured: Option<WarpgroupTile>,
}

impl WarpgroupWork {
    /// The products; never none.
    pub(crate) fn products(&self) -> Vec<&Member> {
        self.members.iter().map(|m| &m.member).collect()
    }
}

/// Members of a contraction that follow each other: a run that can share a grid, or one alone. Their forms where warpgroups
/// multiply them.
pub(crate) type JointRun<'m> = Vec<(&'m Member, Option<WarpgroupForm>)>;

/// Divides the members of a contraction into runs that share a grid. Few tiles of one product leave multiprocessors idle that
/// those of the next can have.
pub(crate) fn joint_runs<'m>(
    members: impl Iterator<Item = &'m Member>,
    of: impl Fn(&Member) -> Option<WarpgroupForm>,
) -> Vec<JointRun<'m>> {
    let mut runs: Vec<JointRun<'m>> = Vec::new();
    for m in members {
        let form = of(m);
        let joins = |run: &JointRun<'m>| match (run.first(), &form) {
            (Some((first, Some(before))), Some(form)) => {
                run.len() < MOST_JOINT
                    && before.is_like(form)
                    && first.result() == m.result()
                    && first.batch == m.batch
                    && volume(&first.rows) == volume(&m.rows)
                    && volume(&first.depth) == volume(&m.depth)
            }
            _ => false,
        };
        match runs.last_mut().filter(|run| joins(run)) {
            Some(run) => run.push((m, form)),
            None => runs.push(vec![(m, form)]),
        }
    }
    runs
}

/// Products that share a grid at most: each has a text of its own for what follows its sums.
const MOST_JOINT: usize = 4;

/// A product with its tiles.
pub(crate) struct WarpgroupProduct {
    pub(crate) work: WarpgroupWork,
    pub(crate) tile: WarpgroupTile,
}

impl WarpgroupForm {
    /// Whether tiles of another product lie as those of this one, but in other buffers.
    fn is_like(&self, other: &WarpgroupForm) -> bool {
        let single = self.further.is_empty() && other.further.is_empty();
        single && self.dtype == other.dtype && are_alike(&self.operands, &other.operands)
    }

    /// Terms of the sum.
    pub(crate) fn terms(&self) -> usize {
        1 + self.further.len()
    }

    /// An operand of a term.
    pub(crate) fn operand(&self, term: usize, side: usize) -> &MappedOperand {
        let further = term.checked_sub(1).and_then(|k| self.further.get(k));
        &further.unwrap_or(&self.operands)[side]
    }

    /// The form of a product whose operands lie in memory as the copy engine takes them and whose sums are stored; `None` for
    /// others, and on chips without warpgroups.
    pub(crate) fn of(
        program: &Program,
        m: &Member,
        (fp, target): (Fp, &GpuTarget),
    ) -> Option<WarpgroupForm> {
        let dtype = match Unit::of(m, fp) {
            Unit::Half(dtype) => dtype,
            Unit::Tf32 => DType::F32,
            Unit::Fma => return None,
        };
        let size = [&m.rows, &m.cols, &m.depth].map(|extents| volume(extents));
        let is_large = size.iter().zip(LEAST).all(|(&n, least)| n >= least);
        let last = m.cols.iter().rfind(|&&n| n != 1).copied().unwrap_or(1);
        if !target.warpgroups || !is_large || last % NEIGHBOURS != 0 || volume(&m.batch) == 0 {
            return None;
        }
        let ends = m.then.sinks.iter().all(|sink| match sink {
            Sink::Store { buffer, index } => match program.buffers[*buffer].storage {
                Storage::Plain => true,
                // Four threads make words together.
                Storage::Packed(bits) => {
                    i64::from(bits) * NEIGHBOURS <= 32
                        && size[1] % EXCHANGED == 0
                        && in_order(program, *buffer, index, &m.result())
                }
            },
            Sink::Fold { .. } => is_column_sum(m, sink),
            _ => false,
        });
        if !ends || written(&m.then.program, fp).insts.len() > MOST_EPILOGUE {
            return None;
        }
        let terms = terms(m);
        let mapped = |term: &Member| {
            let [lhs, rhs] = [0, 1].map(|side| MappedOperand::of(program, term, side, dtype));
            Some([lhs?, rhs?])
        };
        let mut all = terms.iter().map(mapped).collect::<Option<Vec<_>>>()?;
        let operands = all.remove(0);
        if !all.iter().all(|other| are_alike(&operands, other)) {
            return None;
        }
        let depth = terms.first().map_or(0, |term| volume(&term.depth));
        let form = WarpgroupForm { dtype, operands, further: all, depth };
        // Only elements of 16 bits are turned on their way from shared memory.
        let turned = form.operands.iter().any(|operand| !operand.along);
        (dtype.bytes() == 2 || !turned).then_some(form)
    }
}

/// Whether tiles of operands have the same coordinates.
fn are_alike(one: &[MappedOperand; 2], other: &[MappedOperand; 2]) -> bool {
    let places = |o: &MappedOperand| -> Vec<_> {
        o.axes.iter().map(|axis| (axis.extent, axis.place)).collect()
    };
    let alike =
        |(a, b): (&MappedOperand, &MappedOperand)| a.along == b.along && places(a) == places(b);
    one.iter().zip(other).all(alike)
}

/// Rows whose sums a warp adds up for a sum of columns.
pub(crate) const PART: i64 = 16;

/// Whether a sink adds up the columns of a product, in an order that the mode leaves free.
fn is_column_sum(m: &Member, sink: &Sink) -> bool {
    let Sink::Fold { monoid: Monoid::Sum, runs, then } = sink else { return false };
    let [run] = runs.as_slice() else { return false };
    let rows = m.batch.len()..m.batch.len() + m.rows.len();
    let typed = then.program.params.first() == Some(&DType::F32);
    let of_rows = run.axes.iter().map(|&a| usize::from(a)).eq(rows);
    typed && of_rows && volume(&m.batch) == 1
}

/// Sums of columns: the parts of each, by [`PART`] rows, as extents of the product's result; the rows' first axis counts them.
pub(crate) fn column_parts(m: &Member) -> Extents {
    let mut extents = m.result();
    let parts = (volume(&m.rows) + PART - 1) / PART;
    for (k, n) in extents.iter_mut().skip(m.batch.len()).take(m.rows.len()).enumerate() {
        *n = if k == 0 { parts } else { 1 };
    }
    extents
}

impl WarpgroupTile {
    /// The threads of a block, which has a multiprocessor to itself.
    pub(crate) fn grid(&self) -> Grid {
        Grid { threads: GROUP * (MULTIPLIERS + 1), resident: 1 }
    }

    /// Instructions of [`TALL`] rows that a warpgroup has for a step of 16 elements of the depth.
    pub(crate) fn tall(&self) -> i64 {
        self.side[0] / TALL / self.sharers()
    }

    /// Warpgroups that share a tile.
    pub(crate) fn sharers(&self) -> i64 {
        match self.order {
            TileOrder::Cooperative => MULTIPLIERS,
            TileOrder::PingPong => 1,
        }
    }

    fn shape(&self) -> Option<&'static TileKind> {
        TILES.iter().find(|shape| shape.side == self.side && shape.order == self.order)
    }

    /// Bytes of one stage.
    pub(crate) fn stage(&self) -> i64 {
        (self.side[0] + self.side[1]) * LINE
    }

    /// Bytes of shared memory: stages, and barriers.
    pub(crate) fn shared(&self) -> i64 {
        self.stages * (self.stage() + BARRIERS) + BARRIERS
    }

    /// Tiles of a product: of its batch, along its rows, along its columns. Those of a cluster count even where the last of
    /// them has no rows.
    pub(crate) fn tiles(&self, m: &Member) -> [i64; 3] {
        let along = |n: i64, step: i64| (n + step - 1) / step;
        let rows = along(volume(&m.rows), self.side[0] * self.cluster) * self.cluster;
        [volume(&m.batch), rows, along(volume(&m.cols), self.side[1])]
    }

    /// Tiles with as many stages as fit.
    pub(crate) fn filling(
        side: [i64; 2],
        order: TileOrder,
        cluster: i64,
        target: &GpuTarget,
    ) -> WarpgroupTile {
        let mut tile = WarpgroupTile { side, order, cluster, stages: 1, band: 8 };
        let shared = i64::from(target.shared) - BARRIERS;
        tile.stages = shared / (tile.stage() + BARRIERS);
        tile
    }

    /// The tiles with which products of equal extents take least time, and as many stages as fit.
    pub(crate) fn of(products: &[&Member], target: &GpuTarget) -> WarpgroupTile {
        let of = |&TileKind { side, order, .. }: &TileKind| {
            let cluster = products.first().map_or(1, |m| cluster(side, m));
            WarpgroupTile::filling(side, order, cluster, target)
        };
        let cost = |kind: &TileKind| cost(&of(kind), products, target);
        let best = TILES.iter().min_by(|a, b| cost(a).total_cmp(&cost(b)));
        of(best.unwrap_or(&TILES[0]))
    }

    /// Seconds that products in one grid take on an H200, with what follows their sums.
    pub(crate) fn seconds(
        &self,
        program: &Program,
        products: &[&Member],
        (fp, target): (Fp, &GpuTarget),
    ) -> f64 {
        // Exchanges of threads count like instructions.
        let sinks = |m: &Member| -> usize {
            let each = m.then.sinks.iter().map(|sink| match sink {
                Sink::Fold { .. } => 12,
                Sink::Store { buffer, .. }
                    if program.buffers[*buffer].storage != Storage::Plain =>
                {
                    4
                }
                _ => 0,
            });
            each.sum()
        };
        let follows = |m: &Member| {
            let each = written(&m.then.program, fp).insts.len() + sinks(m);
            let moved = finished_bytes(program, m) as f64 / BANDWIDTH;
            volume(&m.result()) as f64 * each as f64 / EPILOGUE_RATE + moved * self.exposed()
        };
        let slower = products.first().map_or(1.0, |m| slower(m, fp)[0]);
        slower * cost(self, products, target) + products.iter().map(|m| follows(m)).sum::<f64>()
    }

    /// The part of what is read and written beside the operands for which nothing is multiplied meanwhile.
    fn exposed(&self) -> f64 {
        match self.order {
            TileOrder::Cooperative => 0.5,
            TileOrder::PingPong => 0.25,
        }
    }

    /// The bytes of [`finished_bytes`] that are moved while nothing is multiplied.
    pub(crate) fn serial_bytes(&self, program: &Program, products: &[&Member]) -> u64 {
        let bytes = products.iter().map(|m| finished_bytes(program, m));
        (bytes.fold(0, u64::saturating_add) as f64 * self.exposed()) as u64
    }

    /// Multiply-adds that the library would do in the time that products take, but for moving [`Self::serial_bytes`]; of `f32`
    /// those by the planner's model of an H200.
    pub(crate) fn equivalent_multiply_adds(
        &self,
        (program, products): (&Program, &[&Member]),
        (fp, target): (Fp, &GpuTarget),
    ) -> u64 {
        let moved = self.serial_bytes(program, products) as f64 / BANDWIDTH;
        let seconds = self.seconds(program, products, (fp, target)) - moved;
        let of_f32 = products.iter().any(|m| Unit::of(m, fp) == Unit::Tf32);
        let rate = if of_f32 { PLANNED_RATE } else { LIBRARY_RATE / 2.0 };
        (seconds * rate) as u64
    }

    /// Errs for tiles that there are not.
    pub(crate) fn check(&self, target: &GpuTarget) -> Result<(), String> {
        let WarpgroupTile { side, order, cluster, stages, band } = *self;
        if self.shape().is_none() {
            let known = listed(TILES.iter().map(|s| format!("{} {}", pair(s.side), s.order)));
            return Err(format!("there are no {order} tiles of {} sums, but {known}", pair(side)));
        }
        if !(2..=16).contains(&stages) || !(1..=1 << 16).contains(&band) {
            return Err(format!("there are no {stages} stages and bands of {band} tiles"));
        }
        if cluster != 1 && (cluster != CLUSTER || side[1] % (CLUSTER * TALL) != 0) {
            return Err(format!("{cluster} blocks do not share {} columns", side[1]));
        }
        let (bytes, most) = (self.shared(), i64::from(target.shared));
        if bytes > most {
            return Err(format!("{bytes} bytes of shared memory are more than {most}"));
        }
        Ok(())
    }
}

/// Blocks of a cluster, where there is one.
const CLUSTER: i64 = 2;

/// Blocks that share the columns of tiles of these sides.
fn cluster(side: [i64; 2], m: &Member) -> i64 {
    let divides = side[1] % (CLUSTER * TALL) == 0;
    if divides && volume(&m.rows) > side[0] { CLUSTER } else { 1 }
}

/// What an H200 reaches: bytes of memory in a second, multiplications and additions of 16-bit floats by the library and, where
/// nothing but the sums is stored, by the best tiles here, both amid other work; instructions of a scalar program after sums.
pub(crate) const BANDWIDTH: f64 = 4e12;
pub(crate) const LIBRARY_RATE: f64 = 760e12;
const RATE: f64 = 720e12;
const EPILOGUE_RATE: f64 = 14e12;

/// Multiply-adds of `f32` a second, by the planner's model of an H200.
pub(crate) const PLANNED_RATE: f64 = 25e12;

/// How many times as long products of `f32` take as those of 16-bit floats: own ones, and the library's.
const SLOWER: [f64; 2] = [1.8, 2.0];

/// How many times as long own products of these operands take as those of 16-bit floats, and the library's.
pub(crate) fn slower(m: &Member, fp: Fp) -> [f64; 2] {
    if Unit::of(m, fp) == Unit::Tf32 { SLOWER } else { [1.0; 2] }
}

/// Bytes that are read and written when tiles are finished.
fn finished_bytes(program: &Program, m: &Member) -> u64 {
    let read = m.then.params.iter().filter_map(whole_load).map(|(b, _)| b);
    let written = m.then.sinks.iter().filter_map(|sink| match sink {
        Sink::Store { buffer, .. } => Some(*buffer),
        _ => None,
    });
    read.chain(written).map(|b| program.buffers[b].bytes()).fold(0, u64::saturating_add)
}

/// Seconds of products of equal extents by these tiles.
fn cost(tile: &WarpgroupTile, products: &[&Member], target: &GpuTarget) -> f64 {
    let Some(m) = products.first() else { return 0.0 };
    let all = tile.tiles(m).into_iter().fold(products.len() as i64, i64::saturating_mul);
    let chip = i64::from(target.multiprocessors);
    let turns = (all + chip - 1) / chip;
    let (share, finish) = tile.shape().map_or((84, 32), |shape| (shape.share, shape.finish));
    let deep = volume(&m.depth).saturating_add(finish);
    let each = (tile.side[0] * tile.side[1]) as f64 * deep as f64;
    let rate = share as f64 / 100.0 * RATE / 2.0 / chip as f64;
    turns as f64 * each / rate
}

impl DecisionLine for WarpgroupTile {
    fn write(&self, to: &mut Writer) {
        let sums = pair(self.side);
        to.line(
            "tile",
            &[
                ("sums", &sums),
                ("order", &self.order),
                ("cluster", &self.cluster),
                ("band", &self.band),
            ],
        );
        to.line("pipeline", &[("stages", &self.stages)]);
    }

    fn read(from: &mut Reader<'_>) -> Result<WarpgroupTile, Diagnostic> {
        let line = from.line("tile", &["sums", "order", "cluster", "band"])?;
        let (side, band) = (line.pair("sums")?, line.int("band")?);
        let cluster = line.int("cluster")?;
        let order = match line.word("order")? {
            ("cooperative", _) => TileOrder::Cooperative,
            ("pingpong", _) => TileOrder::PingPong,
            (other, span) => return Err(wrong(span, format!("there is no order `{other}`"))),
        };
        let stages = from.line("pipeline", &["stages"])?.int("stages")?;
        Ok(WarpgroupTile { side, order, cluster, stages, band })
    }
}
