//! The tiles of products by warpgroups: four warps multiply what the copy engine brings to shared memory, while another warp asks for
//! the next tiles. Which products these are is in [`warpgroup_form`](super::warpgroup_form), what tiles take in
//! [`warpgroup_price`](super::warpgroup_price).

use super::depth_runs::{DepthRuns, part_extents, part_index, usual_runs};
use super::grid::Grid;
use super::mapped_operand::{LINE, NEIGHBOURS};
use super::product::FoldStage;
use super::shape::{axes, identity, load, volume};
use super::text::{DecisionLine, Reader, Writer, listed, pair, wrong};
use super::warpgroup_form::{WarpgroupForm, column_parts};
use super::warpgroup_price::TILES;
use super::work::Lowering;
use crate::gpu::target::{GpuTarget, WARP};
use adfuse_ir::kernel::{Buffer, Member, Sink, Stage};
use adfuse_ir::{DType, Diagnostic};
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
/// Blocks of a cluster, where there is one.
pub(crate) const CLUSTER: i64 = 2;
/// Rows of tiles that blocks go over together, where steps of tiles are not cut into runs.
const BAND: i64 = 8;
const MOST_BAND: i64 = 1 << 16;

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
    /// Equal runs into which the steps of all tiles are cut, one for each block; 1 where blocks have whole tiles.
    pub(crate) runs: i64,
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
    pub(crate) members: Vec<(Member, WarpgroupForm)>,
    /// The tiles that were the fastest, where such products were measured.
    pub(crate) measured: Option<WarpgroupTile>,
}

impl WarpgroupWork {
    /// The products; never none.
    pub(crate) fn products(&self) -> Vec<&Member> {
        self.members.iter().map(|(m, _)| m).collect()
    }
}

/// Products with their tiles.
pub(crate) struct WarpgroupProduct {
    /// With what the launch does with their sums.
    pub(crate) members: Vec<WarpgroupMember>,
    /// The same with what follows the sums at last.
    pub(crate) given: Vec<Member>,
    pub(crate) tile: WarpgroupTile,
    /// How the depth is cut, where it is.
    pub(crate) runs: Option<DepthRuns>,
}

impl WarpgroupProduct {
    /// The products as they were given.
    pub(crate) fn products(&self) -> Vec<&Member> {
        self.given.iter().collect()
    }
}

/// Products as they are run, and the loops that follow them: folds of the parts that sums of columns leave, or, where the depth is
/// cut into runs, sums of the parts of tiles and what becomes of those.
pub(crate) fn scheduled(
    low: &mut Lowering,
    work: WarpgroupWork,
    tile: WarpgroupTile,
) -> (WarpgroupProduct, Vec<FoldStage>) {
    let given: Vec<Member> = work.members.iter().map(|(m, _)| m.clone()).collect();
    let runs = tile.depth_runs(&work.members);
    let (mut members, mut follow) = (Vec::new(), Vec::new());
    let parts = runs.zip(given.first()).map(|(runs, m)| {
        low.temp(DType::F32, part_extents(m, given.len(), runs.parts().1))
    });
    for ((mut member, form), number) in work.members.into_iter().zip(0i64..) {
        let mut columns = Vec::new();
        if let Some((runs, parts)) = runs.zip(parts) {
            follow.push((member.result(), runs.combined(&tile, (&member, number), parts)));
            let index = part_index(&member);
            member.then = Stage::storing(DType::F32, parts, DType::F32, index);
            columns.push(None);
        } else {
            let extents = column_parts(&member);
            for sink in &member.then.sinks {
                let part = matches!(sink, Sink::Fold { .. }).then(|| {
                    let part = low.temp(DType::F32, extents.clone());
                    let stage = Stage {
                        params: vec![load(part, axes(extents.len()))],
                        program: identity(DType::F32),
                        sinks: vec![sink.clone()],
                        ..Stage::default()
                    };
                    follow.push((extents.clone(), stage));
                    part
                });
                columns.push(part);
            }
        }
        members.push(WarpgroupMember { member, form, parts: columns });
    }
    (WarpgroupProduct { members, given, tile, runs }, follow)
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

    /// Tiles of several products of equal extents.
    pub(crate) fn all_tiles(&self, products: &[&Member]) -> i64 {
        let own = products.first().map_or([0; 3], |m| self.tiles(m));
        own.into_iter().fold(products.len() as i64, i64::saturating_mul)
    }

    /// Whether steps of such tiles can be cut into runs.
    pub(crate) fn may_split(&self) -> bool {
        self.order == TileOrder::Cooperative && self.cluster == 1
    }

    /// The same tiles of products with their steps cut into runs, where there are [usual](usual_runs) ones.
    pub(crate) fn in_runs(self, products: &[&Member], target: &GpuTarget) -> WarpgroupTile {
        let chip = i64::from(target.multiprocessors);
        let runs = usual_runs(self.all_tiles(products), chip);
        let band = products.first().map_or(BAND, |m| self.tiles(m)[1].clamp(1, MOST_BAND));
        WarpgroupTile { runs, band, ..self }
    }

    /// How the depth of products is cut; `None` where blocks have whole tiles.
    pub(crate) fn depth_runs(&self, members: &[(Member, WarpgroupForm)]) -> Option<DepthRuns> {
        let (_, form) = members.first().filter(|_| self.runs > 1)?;
        let products: Vec<&Member> = members.iter().map(|(m, _)| m).collect();
        let tiles = self.all_tiles(&products);
        Some(DepthRuns { tiles, steps: form.steps(), runs: self.runs })
    }

    /// Tiles with as many stages as fit.
    pub(crate) fn filling(
        side: [i64; 2],
        order: TileOrder,
        cluster: i64,
        target: &GpuTarget,
    ) -> WarpgroupTile {
        let mut tile = WarpgroupTile { side, order, cluster, stages: 1, band: BAND, runs: 1 };
        let shared = i64::from(target.shared) - BARRIERS;
        tile.stages = shared / (tile.stage() + BARRIERS);
        tile
    }

    /// Errs for tiles that there are not, or that the products cannot have.
    pub(crate) fn check(&self, work: &WarpgroupWork, target: &GpuTarget) -> Result<(), String> {
        let WarpgroupTile { side, order, cluster, stages, band, runs } = *self;
        if self.kind().is_none() {
            let known = listed(TILES.iter().map(|s| format!("{} {}", pair(s.side), s.order)));
            return Err(format!("there are no {order} tiles of {} sums, but {known}", pair(side)));
        }
        if !(2..=16).contains(&stages) || !(1..=MOST_BAND).contains(&band) {
            return Err(format!("there are no {stages} stages and bands of {band} tiles"));
        }
        if cluster != 1 && (cluster != CLUSTER || side[1] % (CLUSTER * TALL) != 0) {
            return Err(format!("{cluster} blocks do not share {} columns", side[1]));
        }
        let (bytes, most) = (self.shared(), i64::from(target.shared));
        if bytes > most {
            return Err(format!("{bytes} bytes of shared memory are more than {most}"));
        }
        match self.depth_runs(&work.members) {
            Some(runs) => runs.check(self, &work.products()),
            None if runs == 1 => Ok(()),
            None => Err(format!("the depth is not cut into {runs} runs")),
        }
    }
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
        to.line("split", &[("runs", &self.runs)]);
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
        let runs = from.line("split", &["runs"])?.int("runs")?;
        Ok(WarpgroupTile { side, order, cluster, stages, band, runs })
    }
}
