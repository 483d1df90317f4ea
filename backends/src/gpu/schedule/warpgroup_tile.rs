//! The tiles of products by warpgroups: four warps multiply what the copy engine brings to shared memory, while another warp asks for
//! the next tiles. Which products these are is in [`warpgroup_form`](super::warpgroup_form), what tiles take in
//! [`warpgroup_price`](super::warpgroup_price), how several blocks share a tile in [`depth_runs`](super::depth_runs).

use super::grid::Grid;
use super::mapped_operand::{LINE, NEIGHBOURS};
use super::text::{DecisionLine, Reader, Writer, listed, pair, wrong};
use crate::gpu::target::{GpuTarget, WARP};
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::{Member, volume};
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
pub(super) const BAND: i64 = 8;
pub(super) const MOST_BAND: i64 = 1 << 16;

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

/// Tiles that there are.
pub(super) const TILES: [TileKind; 5] = [
    TileKind { side: [128, 256], order: TileOrder::Cooperative, share: 100, finish: 100 },
    TileKind { side: [256, 128], order: TileOrder::Cooperative, share: 99, finish: 100 },
    TileKind { side: [128, 192], order: TileOrder::Cooperative, share: 98, finish: 100 },
    TileKind { side: [128, 128], order: TileOrder::PingPong, share: 92, finish: 20 },
    TileKind { side: [128, 128], order: TileOrder::Cooperative, share: 93, finish: 100 },
];

/// A shape of tiles, with what was measured of it.
pub(super) struct TileKind {
    pub(super) side: [i64; 2],
    pub(super) order: TileOrder,
    /// The share of the best rate that it reaches where the depth is long, in percent.
    pub(super) share: i64,
    /// The depth that takes as long as finishing a tile and beginning the next.
    pub(super) finish: i64,
}

impl WarpgroupTile {
    /// The row of [`TILES`] that it is.
    pub(super) fn kind(&self) -> Option<&'static TileKind> {
        TILES.iter().find(|kind| kind.side == self.side && kind.order == self.order)
    }

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
        let own = products.first().map_or(0, |m| volume(self.tiles(m)));
        own.saturating_mul(products.len() as i64)
    }

    /// Whether steps of such tiles can be cut into runs.
    pub(crate) fn may_split(&self) -> bool {
        self.order == TileOrder::Cooperative && self.cluster == 1
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

    /// An error for tiles that do not exist.
    pub(crate) fn check_shape(&self, target: &GpuTarget) -> Result<(), String> {
        let WarpgroupTile { side, order, cluster, stages, band, .. } = *self;
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
        Ok(())
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
