//! Products of few tiles over a long depth: the steps of all tiles, one tile after the other, are cut into equal runs, one for each
//! block (stream-K). A tile is then the sum of several parts, of which each run leaves one, and a launch that follows adds them up in
//! their order, whichever block was done first.

use super::warpgroup_tile::{BAND, MOST_BAND, WarpgroupTile};
use crate::gpu::target::GpuTarget;
use adfuse_ir::index::{Guard, IndexExpr};
use adfuse_ir::kernel::{Buffer, Extents, Member, Operand, Param, Piece, Stage, volume};
use adfuse_ir::scalar::{Prim, SInst, SOp, SVal, ScalarProgram};
use adfuse_ir::{DType, Literal};
use cranelift_entity::PrimaryMap;
use smallvec::SmallVec;

/// Parts of a tile at most: what adds them up reads each.
const MOST_PARTS: i64 = 16;
/// Bytes of the parts of all tiles at most.
const MOST_BYTES: i64 = 64 << 20;
/// Parts of a tile, about, of runs that are chosen.
const USUAL_PARTS: i64 = 12;
/// Steps of a run at least, of runs that are chosen.
const LEAST_STEPS: i64 = 4;
/// Tiles of which a whole number of runs has the steps, at most, of runs that are chosen: operands are read as many times.
const MOST_TURNS: i64 = 4;

/// Steps of the depth of all tiles, cut into runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DepthRuns {
    pub(crate) tiles: i64,
    /// Steps of a tile.
    pub(crate) steps: i64,
    pub(crate) runs: i64,
}

/// Runs for this many tiles on a chip: as many as have work for all multiprocessors, but for few. A run begins at one of few depths, so
/// that blocks read the same steps of the operands at the same time. 1 where tiles are as many as runs would be.
pub(crate) fn usual_runs(tiles: i64, chip: i64) -> i64 {
    let most = tiles.saturating_mul(USUAL_PARTS).min(chip);
    let of = |turns: i64| {
        let fits = |runs: &i64| tiles > 0 && runs.saturating_mul(turns) % tiles == 0;
        (tiles + 1..=most).rev().find(fits)
    };
    // Each further turn is worth some runs.
    let worth = |&(runs, turns): &(i64, i64)| runs * 1000 / (turns + 30);
    let all = (1..=MOST_TURNS).filter_map(|turns| Some((of(turns)?, turns)));
    all.max_by_key(worth).map_or(1, |(runs, _)| runs)
}

impl WarpgroupTile {
    /// The same tiles of products with their steps cut into runs, where there are [usual](usual_runs) ones.
    pub(crate) fn in_runs(self, products: &[&Member], target: &GpuTarget) -> WarpgroupTile {
        let chip = i64::from(target.multiprocessors);
        let runs = usual_runs(self.all_tiles(products), chip);
        let band = products.first().map_or(BAND, |m| self.tiles(m)[1].clamp(1, MOST_BAND));
        WarpgroupTile { runs, band, ..self }
    }
}

impl DepthRuns {
    /// The least number of tiles of which whole runs have the steps: runs of such tiles begin at the same depths, and operands
    /// are read as many times.
    pub(crate) fn turns(&self) -> i64 {
        let (mut a, mut b) = (self.tiles, self.runs);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        self.tiles / a.max(1)
    }

    /// Steps of all tiles.
    pub(crate) fn all(&self) -> i64 {
        self.tiles.saturating_mul(self.steps)
    }

    /// Whether runs are long enough to be chosen.
    pub(crate) fn are_long(&self) -> bool {
        self.all() >= self.runs.saturating_mul(LEAST_STEPS)
    }

    /// The first run that has steps of a tile, which begins before the tile's second step.
    fn first(&self, tile: i64) -> i64 {
        ((tile * self.steps + 1) * self.runs - 1) / self.all()
    }

    /// The last run that has steps of a tile.
    fn last(&self, tile: i64) -> i64 {
        ((tile + 1) * self.steps * self.runs - 1) / self.all()
    }

    /// The first and the last run of a tile as expressions of its number.
    fn ends(&self, tile: &IndexExpr) -> [IndexExpr; 2] {
        let DepthRuns { steps, runs, .. } = *self;
        let begin = tile.clone().times(steps * runs);
        [runs - 1, steps * runs - 1].map(|more| begin.clone().plus(more).floor_div(self.all()))
    }

    /// The fewest and the most parts of a tile.
    pub(crate) fn parts(&self) -> (i64, i64) {
        let each = (0..self.tiles).map(|tile| self.last(tile) - self.first(tile) + 1);
        each.fold((i64::MAX, 1), |(least, most), n| (least.min(n), most.max(n)))
    }

    /// Parts of all tiles together.
    pub(crate) fn all_parts(&self) -> i64 {
        (0..self.tiles).map(|tile| self.last(tile) - self.first(tile) + 1).sum()
    }

    /// Errs for runs that there cannot be.
    pub(crate) fn check(&self, tile: &WarpgroupTile, products: &[&Member]) -> Result<(), String> {
        let DepthRuns { tiles, runs, .. } = *self;
        let all = self.all();
        let counted = all.checked_mul(runs).is_some_and(|n| n <= i64::from(i32::MAX));
        if !(2..=all).contains(&runs) || !counted {
            return Err(format!("{all} steps of {tiles} tiles are not cut into {runs} runs"));
        }
        let down = products.first().map_or(1, |m| tile.tiles(m)[1]);
        if !tile.may_split() || tile.band < down {
            return Err(format!(
                "runs are of cooperative tiles without clusters, in bands of {down} tiles or more"
            ));
        }
        let (_, parts) = self.parts();
        let bytes = products.iter().map(|m| volume(&m.result()).saturating_mul(4 * parts));
        let bytes = bytes.fold(0, i64::saturating_add);
        if parts > MOST_PARTS || bytes > MOST_BYTES {
            return Err(format!("{parts} parts of a tile, {bytes} bytes of all, are too many"));
        }
        Ok(())
    }

    /// What adds up the parts of a product's sums, which is this one of those that share the runs, and does what follows the sums.
    pub(crate) fn combined(
        &self,
        tile: &WarpgroupTile,
        (m, number): (&Member, i64),
        from: Buffer,
    ) -> Stage {
        let result = m.result();
        let [batches, down, across] = tile.tiles(m);
        let (rows, cols) = (m.batch.len(), m.batch.len() + m.rows.len());
        let batch = place(&result[..rows], 0);
        let row = place(&result[rows..cols], rows);
        let col = place(&result[cols..], cols);
        let first = batch.clone().plus(number * batches).times(across);
        let own = first.sum(col.clone().floor_div(tile.side[1])).times(down);
        let own = own.sum(row.clone().floor_div(tile.side[0]));
        let [begin, end] = self.ends(&own);
        let more = end.sum(begin.times(-1));
        let (least, most) = self.parts();
        let part = |k: i64| {
            let places = [IndexExpr::Const(number), IndexExpr::Const(k)];
            let index = places.into_iter().chain([batch.clone(), row.clone(), col.clone()]);
            let guard = Guard { expr: more.clone(), range: k..most };
            let always = k < least;
            let piece = Piece {
                from: Operand::Buffer(from),
                index: index.collect(),
                guards: (!always).then_some(guard).into_iter().collect(),
            };
            // What is not there changes no sum, not even its sign.
            let none = Piece {
                from: Operand::Literal(Literal::from_f64(DType::F32, -0.0)),
                index: SmallVec::new(),
                guards: SmallVec::new(),
            };
            Param::Load([Some(piece), (!always).then_some(none)].into_iter().flatten().collect())
        };
        let mut stage = m.then.clone();
        let sums = stage.params.iter().map(|param| *param == Param::Sum).collect::<Vec<_>>();
        for param in stage.params.iter_mut().filter(|param| **param == Param::Sum) {
            *param = part(0);
        }
        stage.params.extend((1..most).map(part));
        stage.program = summed(&stage.program, &sums, most - 1);
        stage
    }
}

/// The place of coordinates among extents, row-major; the coordinates begin with this one.
fn place(extents: &[i64], first: usize) -> IndexExpr {
    let each = (first..).map(IndexExpr::axis).zip(extents);
    each.fold(IndexExpr::Const(0), |place, (axis, &n)| place.times(n).sum(axis))
}

/// The extents of the parts of several products' sums.
pub(crate) fn part_extents(m: &Member, products: usize, parts: i64) -> Extents {
    let own = [&m.batch, &m.rows, &m.cols].map(volume);
    [products as i64, parts].into_iter().chain(own).collect()
}

/// Where a product's sums are stored as parts: the coordinates of its result are followed by those of the part and the product.
pub(crate) fn part_index(m: &Member) -> SmallVec<[IndexExpr; 4]> {
    let result = m.result();
    let (rows, cols) = (m.batch.len(), m.batch.len() + m.rows.len());
    let [part, product] = [0, 1].map(|k| IndexExpr::axis(result.len() + k));
    let own = [(0, rows), (rows, cols), (cols, result.len())];
    let own = own.map(|(from, to)| place(&result[from..to], from));
    [product, part].into_iter().chain(own).collect()
}

/// A program whose parameters that are sums are sums of what they are and of this many further parameters, in their order.
fn summed(program: &ScalarProgram, sums: &[bool], more: i64) -> ScalarProgram {
    let mut out = ScalarProgram { params: program.params.clone(), ..ScalarProgram::default() };
    let of = |op: SOp, args: &[SVal]| SInst {
        op,
        args: args.iter().copied().collect(),
        dtype: DType::F32,
    };
    let first = sums.iter().position(|&sum| sum).unwrap_or(0) as u32;
    let mut total = out.insts.push(of(SOp::Param(first), &[]));
    for _ in 0..more {
        let number = out.params.len() as u32;
        out.params.push(DType::F32);
        let part = out.insts.push(of(SOp::Param(number), &[]));
        total = out.insts.push(of(SOp::Prim(Prim::Add), &[total, part]));
    }
    let mut found: PrimaryMap<SVal, SVal> = PrimaryMap::new();
    for inst in program.insts.values() {
        let now = match inst.op {
            SOp::Param(k) if sums.get(k as usize) == Some(&true) => total,
            _ => {
                let args = inst.args.iter().map(|&arg| found[arg]).collect();
                out.insts.push(SInst { args, ..inst.clone() })
            }
        };
        found.push(now);
    }
    out.outputs = program.outputs.iter().map(|&v| found[v]).collect();
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::schedule::warpgroup_tile::TileOrder;
    use adfuse_ir::kernel::Step;
    use adfuse_ir::kernel::text::parse;
    use adfuse_ir::scalar::eval_one;

    /// Runs of steps, step by step.
    fn owners(runs: &DepthRuns) -> Vec<Vec<i64>> {
        let mut tiles = vec![Vec::new(); runs.tiles as usize];
        for run in 0..runs.runs {
            let [begin, end] = [run, run + 1].map(|r| r * runs.all() / runs.runs);
            for step in begin..end {
                let own: &mut Vec<i64> = &mut tiles[(step / runs.steps) as usize];
                if own.last() != Some(&run) {
                    own.push(run);
                }
            }
        }
        tiles
    }

    /// The second of two products of 200 x 300 results, whose sums are doubled.
    fn member() -> Member {
        let text = "program @f { input %x: bf16[4096, 200] input %w: bf16[4096, 300] output %y: f32[200, 300]
            contract @f { member batch [] rows [200] cols [300] depth [4096] sum f32 {
            lhs { p0 = load %x[d1, d0] s0 = param.bf16 0 out s0 }
            rhs { p0 = load %w[d1, d0] s0 = param.bf16 0 out s0 }
            then { p0 = sum s0 = param.f32 0 s1 = add.f32 s0 s0 %y[d0, d1] = store s1 } } }
            return %y }";
        let program = parse(text).unwrap_or_else(|e| panic!("{e:?}"));
        match program.steps.as_slice() {
            [Step::Contract(contract)] => contract.members[0].clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn parts_are_read_of_the_tile_that_an_element_is_in() {
        let m = member();
        let side = [128, 128];
        let tile = WarpgroupTile::filling(side, TileOrder::Cooperative, 1, &GpuTarget::SM90A);
        let products = [&m, &m];
        let runs = DepthRuns { tiles: tile.all_tiles(&products), steps: 64, runs: 17 };
        let stage = runs.combined(&tile, (&m, 1), Buffer::from_u32(9));
        let (least, most) = runs.parts();
        assert!(least < most && stage.params.len() as i64 == most);
        for (row, col) in [(0, 0), (127, 127), (128, 0), (0, 128), (199, 299), (130, 256)] {
            // Tiles go down, then to the next column, those of the second product after those of the first.
            let number = 6 + (col / 128) * 2 + row / 128;
            let count = runs.last(number) - runs.first(number) + 1;
            for (k, param) in (0i64..).zip(&stage.params) {
                let Param::Load(pieces) = param else { panic!("{param:?}") };
                let holds = |g: &Guard| g.range.contains(&g.expr.eval(&[row, col], &[]));
                let piece = pieces.iter().find(|piece| piece.guards.iter().all(holds));
                let piece = piece.unwrap_or_else(|| panic!("{pieces:?}"));
                let place: Vec<i64> =
                    piece.index.iter().map(|e| e.eval(&[row, col], &[])).collect();
                let due = if k < count { vec![1, k, 0, row, col] } else { Vec::new() };
                assert_eq!(place, due, "{row} {col} {k}");
            }
        }
        let parts: Vec<Literal> =
            (0..most).map(|k| Literal::from_f64(DType::F32, f64::from(1 << k))).collect();
        let sum = eval_one(&stage.program, &parts).to_f64();
        assert_eq!(sum, 2.0 * f64::from((1 << most) - 1));
    }

    #[test]
    fn usual_runs_have_work_for_a_chip_and_begin_at_few_depths() {
        for (tiles, runs, turns) in [
            (18, 126, 1),
            (24, 132, 2),
            (36, 132, 3),
            (54, 126, 3),
            (72, 126, 4),
            (1, 12, 1),
            (108, 1, 108),
            (132, 1, 132),
            (0, 1, 0),
        ] {
            assert_eq!(usual_runs(tiles, 132), runs, "{tiles}");
            assert_eq!(DepthRuns { tiles, steps: 256, runs }.turns(), turns, "{tiles}");
        }
    }

    #[test]
    fn every_tile_is_the_sum_of_the_runs_that_have_its_steps() {
        for (tiles, steps, runs) in [
            (54, 256, 132),
            (18, 256, 132),
            (1, 7, 7),
            (3, 5, 2),
            (5, 3, 14),
            (132, 4, 131),
            (7, 1, 3),
        ] {
            let runs = DepthRuns { tiles, steps, runs };
            let due = owners(&runs);
            let ends = runs.ends(&IndexExpr::axis(0));
            for (tile, own) in (0..).zip(&due) {
                // Runs of a tile follow each other, and each has steps of it.
                let all: Vec<i64> = (runs.first(tile)..=runs.last(tile)).collect();
                assert_eq!(&all, own, "{runs:?} {tile}");
                let [first, last] = ends.each_ref().map(|e| e.eval(&[tile], &[]));
                assert_eq!((first, last), (runs.first(tile), runs.last(tile)), "{runs:?} {tile}");
            }
            let counts = || due.iter().map(|own| own.len() as i64);
            assert_eq!(runs.parts(), (counts().min().unwrap(), counts().max().unwrap()));
            assert_eq!(runs.all_parts(), counts().sum::<i64>());
            // Runs differ by a step at most.
            let length = |r: i64| (r + 1) * runs.all() / runs.runs - r * runs.all() / runs.runs;
            let lengths: Vec<i64> = (0..runs.runs).map(length).collect();
            let (least, most) = (lengths.iter().min(), lengths.iter().max());
            assert!(most.unwrap() - least.unwrap() <= 1, "{runs:?}");
        }
    }
}
