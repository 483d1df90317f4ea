//! What products by warpgroups take, as measured on an H200 and an H100, and the tiles that take least.

use super::depth_runs::DepthRuns;
use super::index::whole as whole_load;
use super::mapped_operand::LINE;
use super::mma_unit::Unit;
use super::scalar_form::{instructions as scalar_instructions, written};
use super::warpgroup_tile::{CLUSTER, TALL, TILES, TileKind, TileOrder, WarpgroupTile};
use crate::gpu::target::GpuTarget;
use adfuse_ir::Fp;
use adfuse_ir::kernel::{Buffer, Member, Operand, Param, Program, Sink, Storage, volume};

/// Seconds of a launch that waits for the one before.
pub(crate) const LAUNCH: f64 = 2e-6;
/// What an H200 reaches: bytes of memory in a second, multiplications and additions of 16-bit floats by the library amid other work,
/// by the library over a long depth, and by the best tiles here over a long depth; instructions of a scalar program after sums.
pub(crate) const BANDWIDTH: f64 = 4e12;
pub(crate) const LIBRARY_RATE: f64 = 760e12;
pub(super) const LIBRARY_DEEP_RATE: f64 = 775e12;
const RATE: f64 = 770e12;
const EPILOGUE_RATE: f64 = 14e12;
/// Instructions of the chip after sums in a second: 16384 x 3072 sums take .002 ms longer for each.
const FINISHING_RATE: f64 = 25e12;
/// The depth that takes the library as long as beginning and finishing its tiles.
pub(super) const LIBRARY_FINISH: f64 = 100.0;

/// Multiply-adds of `f32` a second, by the planner's model of an H200.
pub(crate) const PLANNED_RATE: f64 = 25e12;

/// How many times as long products of `f32` take as those of 16-bit floats: own ones, and the library's.
const SLOWER: [f64; 2] = [1.8, 2.0];

/// A cluster finishes a tile later, by the time of this depth, since its blocks wait for each other, and multiplies at this part of
/// its blocks' rate alone.
const MEETING: i64 = 40;
const TOGETHER: f64 = 1.005;

/// What tiles take for products in one grid, in seconds.
struct TileSeconds {
    multiply: f64,
    /// What is read and written while nothing is multiplied.
    moved: f64,
    /// Instructions after the sums, and launches that follow.
    follow: f64,
}

impl TileSeconds {
    fn all(&self) -> f64 {
        self.multiply + self.moved + self.follow
    }
}

impl WarpgroupTile {
    /// The tiles with which products of equal extents take least time, and as many stages as fit.
    pub(crate) fn of(
        program: &Program,
        products: &[&Member],
        (fp, target): (Fp, &GpuTarget),
    ) -> WarpgroupTile {
        let of = |kind: &TileKind| {
            let whole = [1, CLUSTER].map(|cluster| {
                let tile = WarpgroupTile::filling(kind.side, kind.order, cluster, target);
                let rows = products.first().map_or(0, |m| volume(&m.rows));
                let shares = kind.side[1] % (CLUSTER * TALL) == 0 && rows > kind.side[0];
                (cluster == 1 || shares).then_some(tile)
            });
            let cut = whole[0].map(|tile| tile.in_runs(products, target)).filter(|tile| {
                let runs = tile.priced_runs(products, fp);
                runs.is_some_and(|runs| runs.are_long() && runs.check(tile, products).is_ok())
            });
            whole.into_iter().chain([cut]).flatten()
        };
        let cost = |tile: &WarpgroupTile| tile.seconds(program, products, (fp, target));
        let best = TILES.iter().flat_map(of).min_by(|a, b| cost(a).total_cmp(&cost(b)));
        best.unwrap_or_else(|| {
            let TileKind { side, order, .. } = TILES[0];
            WarpgroupTile::filling(side, order, 1, target)
        })
    }

    /// How the depth is cut, where it is, as far as the extents say.
    pub(super) fn priced_runs(&self, products: &[&Member], fp: Fp) -> Option<DepthRuns> {
        let m = products.first().filter(|_| self.runs > 1)?;
        let size = if Unit::of(m, fp) == Unit::Tf32 { 4 } else { 2 };
        let deep = LINE / size;
        let steps = (volume(&m.depth).saturating_add(deep - 1)) / deep;
        Some(DepthRuns { tiles: self.all_tiles(products), steps, runs: self.runs })
    }

    /// Seconds that products in one grid take on an H200, with what follows their sums.
    pub(crate) fn seconds(
        &self,
        program: &Program,
        products: &[&Member],
        (fp, target): (Fp, &GpuTarget),
    ) -> f64 {
        self.priced(program, products, (fp, target)).all()
    }

    fn priced(
        &self,
        program: &Program,
        products: &[&Member],
        (fp, target): (Fp, &GpuTarget),
    ) -> TileSeconds {
        let Some(m) = products.first() else {
            return TileSeconds { multiply: 0.0, moved: 0.0, follow: 0.0 };
        };
        let mut multiply = slower(m, fp)[0] * self.multiply_seconds(products, (fp, target));
        if let Some(runs) = self.priced_runs(products, fp) {
            let read = runs.turns() as f64 * operand_bytes(program, products) as f64;
            multiply = multiply.max(read / BANDWIDTH);
        }
        let moved = self.serial_bytes(program, products, fp) as f64 / BANDWIDTH;
        let follow = match self.runs {
            1 => products.iter().map(|m| instructions(program, m, fp) / EPILOGUE_RATE).sum(),
            _ => products.len() as f64 * LAUNCH,
        };
        TileSeconds { multiply, moved, follow }
    }

    /// Seconds of multiplying products of equal extents.
    fn multiply_seconds(&self, products: &[&Member], (fp, target): (Fp, &GpuTarget)) -> f64 {
        let Some(m) = products.first() else { return 0.0 };
        let chip = i64::from(target.multiprocessors);
        let (share, mut finish) = self.kind().map_or((84, 100), |kind| (kind.share, kind.finish));
        let mut rate = share as f64 / 100.0 * RATE / 2.0 / chip as f64;
        if self.cluster > 1 {
            finish += MEETING;
            rate *= TOGETHER;
        }
        let (tiles, depth) = (self.all_tiles(products), volume(&m.depth));
        let area = (self.side[0] * self.side[1]) as f64;
        let deep = match self.priced_runs(products, fp) {
            // Runs go from one tile into the next, and finish a part of each.
            Some(runs) => {
                let ends = (runs.all_parts() + runs.runs - 1) / runs.runs.max(1);
                let all = tiles as f64 * depth as f64 / runs.runs.min(chip).max(1) as f64;
                all + (ends * finish) as f64
            }
            None => {
                let turns = (tiles + chip - 1) / chip;
                turns as f64 * depth.saturating_add(finish) as f64
            }
        };
        deep * area / rate
    }

    /// The part of what is read and written beside the operands for which nothing is multiplied meanwhile.
    fn exposed(&self) -> f64 {
        match self.order {
            TileOrder::Cooperative => 0.5,
            TileOrder::PingPong => 0.25,
        }
    }

    /// The bytes beside those of the operands that are moved while nothing is multiplied: of what is finished with the sums, or of
    /// parts of the depth and what adds those up.
    pub(crate) fn serial_bytes(&self, program: &Program, products: &[&Member], fp: Fp) -> u64 {
        let bytes = products.iter().map(|m| finished_bytes(program, m));
        let finished = bytes.fold(0, u64::saturating_add);
        match self.priced_runs(products, fp) {
            None => (finished as f64 * self.exposed()) as u64,
            Some(runs) => {
                let parts = runs.all_parts() as f64 * (self.side[0] * self.side[1] * 4) as f64;
                (parts * (1.0 + self.exposed())) as u64 + finished
            }
        }
    }

    /// Multiply-adds that the library would do in the time that products take, but for moving [`Self::serial_bytes`]; of `f32`
    /// those by the planner's model of an H200.
    pub(crate) fn equivalent_multiply_adds(
        &self,
        (program, products): (&Program, &[&Member]),
        (fp, target): (Fp, &GpuTarget),
    ) -> u64 {
        let priced = self.priced(program, products, (fp, target));
        // Launches that follow are counted with those of the step.
        let follow = match self.runs {
            1 => products.iter().map(|m| finishing_seconds(program, m, fp)).sum(),
            _ => 0.0,
        };
        let of_f32 = products.iter().any(|m| Unit::of(m, fp) == Unit::Tf32);
        let rate = if of_f32 { PLANNED_RATE } else { LIBRARY_RATE / 2.0 };
        ((priced.multiply + follow) * rate) as u64
    }
}

/// How many times as long own products of these operands take as those of 16-bit floats, and the library's.
pub(crate) fn slower(m: &Member, fp: Fp) -> [f64; 2] {
    if Unit::of(m, fp) == Unit::Tf32 { SLOWER } else { [1.0; 2] }
}

/// Seconds that the planner counts for what follows the sums, function by function: what the planner compares is a kernel of the same instructions.
fn finishing_seconds(program: &Program, m: &Member, fp: Fp) -> f64 {
    let each = scalar_instructions(&m.then.program, fp) + sink_instructions(program, m);
    volume(&m.result()) as f64 * each as f64 / FINISHING_RATE
}

/// Instructions of all threads after the sums of a product. Exchanges of threads count like instructions.
fn instructions(program: &Program, m: &Member, fp: Fp) -> f64 {
    let each = written(&m.then.program, fp).insts.len() as i64 + sink_instructions(program, m);
    volume(&m.result()) as f64 * each as f64
}

/// Instructions that folding and packing a sum take.
fn sink_instructions(program: &Program, m: &Member) -> i64 {
    let sinks = m.then.sinks.iter().map(|sink| match sink {
        Sink::Fold { .. } => 12,
        Sink::Store { buffer, .. } if program.buffers[*buffer].storage != Storage::Plain => 4,
        _ => 0,
    });
    sinks.sum()
}

/// Bytes of the operands of products.
fn operand_bytes(program: &Program, products: &[&Member]) -> u64 {
    let feeds = products.iter().flat_map(|m| [&m.lhs, &m.rhs]);
    let pieces = feeds.flat_map(|feed| &feed.params).filter_map(|param| match param {
        Param::Load(pieces) => Some(pieces),
        _ => None,
    });
    let mut buffers: Vec<Buffer> = pieces
        .flatten()
        .filter_map(|piece| match piece.from {
            Operand::Buffer(b) => Some(b),
            Operand::Literal(_) => None,
        })
        .collect();
    buffers.sort_unstable();
    buffers.dedup();
    buffers.into_iter().map(|b| program.buffers[b].bytes()).fold(0, u64::saturating_add)
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
