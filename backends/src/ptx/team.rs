//! Which kernels are run as rows, how threads share their points, and where tiles are.

use super::inline::{Inliner, Source, data_sources, defs};
use super::launch::output_type;
use super::lower::{free, internal, volume};
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::{Kernel, Order, Param, Sink, Stage, Tile};
use cranelift_entity::SecondaryMap;

/// Elements of a block of the lane order.
pub(super) const BLOCK: i64 = 1024;
/// Elements of the longest rows.
const LONGEST: i64 = 128 * BLOCK;
/// Threads of a block of short rows.
const SHORT: i64 = 128;

/// Whether a kernel can be run so: its folds are of whole stages, in the lane order where order matters.
pub(super) fn takes(kernel: &Kernel) -> bool {
    let mut reduces = false;
    for stage in &kernel.stages {
        let n = volume(&stage.axes);
        let long: Vec<u8> =
            (0u8..).zip(&stage.axes).filter(|(_, n)| **n != 1).map(|(a, _)| a).collect();
        if !(1..=LONGEST).contains(&n) {
            return false;
        }
        for (k, sink) in stage.sinks.iter().enumerate() {
            match sink {
                Sink::Reduce { monoid, runs, .. } => {
                    reduces = true;
                    let ordered = match runs.as_slice() {
                        [] => n == 1,
                        [run] => run.order == Order::Lane && run.axes.as_slice() == long,
                        _ => false,
                    };
                    let any = free(*monoid, output_type(stage, k));
                    if monoid.is_arg() || !(ordered || any) {
                        return false;
                    }
                }
                Sink::Scan { .. } => return false,
                _ => {}
            }
        }
    }
    reduces && volume(&kernel.domain) > 0
}

/// How threads share the points.
#[derive(Clone, Copy)]
pub(super) struct Team {
    /// Threads of a team.
    pub(super) threads: i64,
    /// Teams of a block.
    pub(super) teams: i64,
}

impl Team {
    pub(super) fn of(longest: i64) -> Team {
        let blocks = (longest + BLOCK - 1) / BLOCK;
        if blocks <= 1 {
            let threads = (longest.min(32) as u64).next_power_of_two() as i64;
            return Team { threads, teams: SHORT / threads };
        }
        // Warps take as many blocks of the lane order each as the fullest of 32.
        let each = (blocks + 31) / 32;
        Team { threads: (blocks + each - 1) / each * 32, teams: 1 }
    }

    pub(super) fn warps(self) -> i64 {
        (self.threads / 32).max(1)
    }
}

/// Where tiles are in the shared memory of a team.
pub(super) struct Slots {
    /// Bytes from the team's first.
    pub(super) offsets: SecondaryMap<Tile, Option<i64>>,
    pub(super) bytes: i64,
}

fn slots(kernel: &Kernel, stored: &[Tile]) -> Slots {
    let defs = defs(kernel);
    let mut offsets = SecondaryMap::new();
    let mut taken: Vec<(i64, i64, usize)> = Vec::new();
    let mut bytes = 0i64;
    let mut order: Vec<(usize, Tile)> =
        stored.iter().filter_map(|&t| Some((defs.tiles[t]?.0, t))).collect();
    order.sort();
    for (from, t) in order {
        let tile = &kernel.tiles[t];
        let size = volume(&tile.dims).saturating_mul(tile.dtype.bytes() as i64);
        let size = (size + 15) / 16 * 16;
        let reads = |s: &Stage| s.params.contains(&Param::Tile(t));
        let last = kernel.stages.iter().rposition(reads).unwrap_or(from);
        // A thread reads the place of what was there before it writes there.
        let free = taken.iter().position(|&(_, had, until)| had == size && until <= from);
        let at = match free {
            Some(k) => {
                taken[k].2 = last;
                taken[k].0
            }
            None => {
                taken.push((bytes, size, last));
                bytes = bytes.saturating_add(size);
                taken.last().map_or(0, |&(at, _, _)| at)
            }
        };
        offsets[t] = Some(at);
    }
    Slots { offsets, bytes }
}

/// A kernel whose tiles fit so many bytes: those that do not are computed again where they are read.
pub(super) fn fitted(kernel: &Kernel, room: i64) -> Result<(Kernel, Slots), Diagnostic> {
    let defs = defs(kernel);
    let (_, data) = data_sources(kernel);
    let read = |t: Tile| kernel.stages.iter().any(|s| s.params.contains(&Param::Tile(t)));
    let mut stored: Vec<Tile> = kernel.tiles.keys().filter(|&t| read(t)).collect();
    let mut found = slots(kernel, &stored);
    while found.bytes > room {
        let cost = |t: Tile| defs.tiles[t].map_or(0, |(s, _)| kernel.stages[s].program.insts.len());
        let cheapest =
            stored.iter().copied().filter(|t| !data.contains(t)).min_by_key(|&t| cost(t));
        let Some(cheapest) = cheapest else {
            return Err(internal("what a row keeps outgrows shared memory"));
        };
        stored.retain(|&t| t != cheapest);
        found = slots(kernel, &stored);
    }
    let (mut rows, mut tiles) = (SecondaryMap::new(), SecondaryMap::new());
    kernel.rows.keys().for_each(|r| rows[r] = Source::Kept);
    stored.iter().for_each(|&t| tiles[t] = Source::Kept);
    let inliner = Inliner { kernel, defs: &defs, rows: &rows, tiles: &tiles };
    let mut own = kernel.clone();
    for (s, stage) in own.stages.iter_mut().enumerate() {
        let all: Vec<(usize, usize)> = (0..stage.sinks.len()).map(|k| (s, k)).collect();
        let Some(inlined) = inliner.stage(&all) else {
            return Err(internal("data that chooses places is not kept"));
        };
        (stage.params, stage.program) = (inlined.params, inlined.program);
    }
    // Reads of tiles that are computed again last as long as those of what they are computed from.
    let again = slots(&own, &stored);
    if again.bytes > room {
        return Err(internal("what a row keeps outgrows shared memory"));
    }
    Ok((own, again))
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::DType;
    use adfuse_ir::kernel::{Extents, TileData};

    #[test]
    fn teams_have_the_lanes_of_the_order() {
        let shape = |n| {
            let team = Team::of(n);
            (team.threads, team.teams)
        };
        assert_eq!(shape(1), (1, 128));
        assert_eq!(shape(5), (8, 16));
        assert_eq!(shape(32), (32, 4));
        assert_eq!(shape(1024), (32, 4));
        assert_eq!(shape(1025), (64, 1));
        assert_eq!(shape(4096), (128, 1));
        // 50 blocks of the lane order: two for each of 25 warps.
        assert_eq!(shape(50304), (800, 1));
    }

    #[test]
    fn a_tile_takes_the_place_of_one_that_was_read_last_where_it_is_written() {
        let mut kernel = Kernel::default();
        let dims = Extents::from_iter([100]);
        let tile = || TileData { dtype: DType::F32, dims: dims.clone() };
        let [a, b, c] = [(); 3].map(|()| kernel.tiles.push(tile()));
        let stage = |reads: &[Tile], writes: &[Tile]| Stage {
            axes: dims.clone(),
            params: reads.iter().map(|&t| Param::Tile(t)).collect(),
            sinks: writes.iter().map(|&t| Sink::Keep(t)).collect(),
            ..Stage::default()
        };
        kernel.stages = vec![stage(&[], &[a, b]), stage(&[a], &[c]), stage(&[b, c], &[])];
        let slots = slots(&kernel, &[a, b, c]);
        assert_eq!(slots.bytes, 800);
        assert_eq!(slots.offsets[c], slots.offsets[a]);
        assert_ne!(slots.offsets[b], slots.offsets[a]);
    }

    #[test]
    fn half_rows_are_in_order() {
        // A warp's shuffles by 16, 8, .. join lane l with lane l + h, and absent ones change nothing.
        let n = 1000i64;
        let mut lanes = vec![-0.0f32; 32];
        let x = |i: i64| (i as f32 * 0.37).sin();
        for turn in 0..(n + 31) / 32 {
            for (l, lane) in (0i64..).zip(lanes.iter_mut()) {
                let i = turn * 32 + l;
                *lane += if i < n { x(i) } else { -0.0 };
            }
        }
        for half in [16, 8, 4, 2, 1] {
            lanes = (0..32).map(|l| lanes[l] + lanes[l ^ half]).collect();
        }
        let all: Vec<f32> = (0..n).map(x).collect();
        let expected = crate::reference::order::reduce_lane_blocked(&all, |a, b| a + b, 0.0);
        assert!(lanes.iter().all(|l| l.to_bits() == expected.to_bits()));
    }
}
