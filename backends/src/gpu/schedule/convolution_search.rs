//! The tiles of a product with windows that take the least time by a model of a multiprocessor.

use super::box_program::BoxProgram;
use super::box_word::BoxWord;
use super::convolution::{
    BoxPath, DEEP, MOST_PIECES, MOST_SUMS, NEAR, Sides, WindowForm, WindowTile, WindowTiling,
};
use super::mma_unit::Unit;
use super::staged_box::{BoxOperand, CopyTeams, StagedBox};
use super::tiling::Combine;
use crate::gpu::target::{GpuTarget, WARP};
use adfuse_ir::kernel::{Buffer, Member, volume};
use hashbrown::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// What a multiprocessor of an H100 or H200 does in a clock: multiply-adds by `mma.sync` on TF32, or twice as many on words of two
/// 16-bit floats, bytes that it gets of the
/// second-level cache while all do, instructions of a warp that it begins.
const MULTIPLY_ADDS: f64 = 560.0;
const CACHE_BYTES: f64 = 30.0;
const ISSUED: f64 = 3.0;
/// Clocks of shared memory that an asynchronous copy of a warp takes, and those of each team of its lanes. Teams that copy whole
/// lines of the cache take no longer than one line of all lanes.
const COPY: f64 = 4.0;
/// Bytes of a line of the cache.
const CACHE_LINE: i64 = 128;
/// The part of a step's limits that is not hidden behind the longest of them.
const EXPOSED: f64 = 0.25;
/// How many times as long a step takes where no other block multiplies while its warps wait.
const ALONE: f64 = 1.25;
/// Instructions of a warp that reads two elements of a line, and the time of one that rounds an element.
const READ: f64 = 2.0;
const ROUND: f64 = 2.0;
/// Instructions that join two 16-bit floats, or take a word of them apart.
const JOIN: f64 = 1.0;
/// Instructions about elements that are computed in shared memory: tests and addresses, the load and the store. Clocks of shared
/// memory for a word of each lane, there and back: a part of them is hidden behind products, of which copies have more.
const STAGED: f64 = 6.0;
const BOTH_WAYS: f64 = 0.9;
/// Clocks until the first step of a block is there, and of a barrier.
const FILL: f64 = 1500.0;
const BARRIER: f64 = 60.0;
/// Clocks of a second.
const CLOCK: f64 = 1.7e9;

/// Sums of a tile that are looked at, along each side, and places of the depth of a step.
const MOST_SIDE: i64 = 640;
const MOST_DEPTH: i64 = MOST_PIECES * 8;
/// Warps of a block, with the blocks of a multiprocessor.
const WARPS: [([i64; 2], u32); 7] =
    [([1, 8], 1), ([2, 4], 1), ([4, 2], 1), ([8, 1], 1), ([1, 4], 2), ([2, 2], 2), ([4, 1], 2)];
/// Tiles that are looked at with each step of the depth, and steps of the depth.
const LOOKED_AT: usize = 8;
/// Tiles that are tried at the most, those that do not fit among them: products of windows along three axes have thousands.
const MOST_TRIED: usize = 256;
const MOST_STEPS: usize = 8;

/// Sides of tiles along rows and columns, warps along both, and blocks of a multiprocessor.
type SumTile = ([Sides; 2], [i64; 2], u32);

/// The tiles of products, where there are any.
type KnownTiles = HashMap<(WindowForm, GpuTarget), Option<WindowTile>>;

/// What was searched for: plans are compared whose products differ in what becomes of their sums alone.
static KNOWN: LazyLock<Mutex<KnownTiles>> = LazyLock::new(Mutex::default);
/// The most products whose tiles are kept.
const MOST_KNOWN: usize = 1 << 10;

impl WindowTile {
    /// The tiles that take the least time; `None` where there are none.
    pub(crate) fn of(form: &WindowForm, m: &Member, target: &GpuTarget) -> Option<WindowTile> {
        let mut key = (form.clone(), *target);
        // Which arrays they are makes no difference.
        for operand in &mut key.0.operands {
            operand.buffer = Buffer::from_u32(0);
            operand.computed.iter_mut().for_each(BoxProgram::of_any_buffers);
        }
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known().get(&key) {
            return found.clone();
        }
        let found = WindowTile::searched(form, m, target);
        let mut known = known();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(key, found.clone());
        found
    }

    fn searched(form: &WindowForm, m: &Member, target: &GpuTarget) -> Option<WindowTile> {
        let depths = depth_sides(form);
        let shapes = shapes(form, m, depths.first()?, target);
        let mut best: Option<(f64, WindowTile)> = None;
        let mut looked_at = 0;
        for ([rows, cols], warps, resident) in shapes.into_iter().take(MOST_TRIED) {
            let mut found = false;
            for depth in depths.iter().take(MOST_STEPS) {
                let sides = [rows.clone(), cols.clone(), depth.clone()];
                let combine = Combine::default();
                let (paths, stages, parts) = ([BoxPath::Staged; 2], 2, 1);
                let tile =
                    WindowTile { sides, warps, resident, paths, stages, ahead: 0, parts, combine };
                let Some((tile, seconds)) = tile.completed(form, m, target) else { continue };
                found = true;
                if best.as_ref().is_none_or(|(least, _)| seconds < *least) {
                    best = Some((seconds, tile));
                }
            }
            looked_at += usize::from(found);
            if looked_at == LOOKED_AT {
                break;
            }
        }
        best.map(|(_, tile)| tile)
    }

    /// With as many stages as fit and parts of the depth that fill the chip, and the seconds that it takes.
    fn completed(
        mut self,
        form: &WindowForm,
        m: &Member,
        target: &GpuTarget,
    ) -> Option<(WindowTile, f64)> {
        let mut tiling = WindowTiling::new(form, m, &self).ok()?;
        let room =
            i64::from(target.shared) / i64::from(self.resident) - i64::from(target.reserved_shared);
        self.stages = (room / tiling.stage().max(1)).min(4);
        let chip = i64::from(target.multiprocessors) * i64::from(self.resident);
        let blocks = tiling.blocks(m);
        if blocks < chip {
            let parts = (chip / blocks.max(1)).min(tiling.steps).min(WindowTile::most_parts(m));
            let per = (tiling.steps + parts - 1) / parts.max(1);
            self.parts = (tiling.steps + per - 1) / per.max(1);
            tiling = tiling.split(self.parts);
        }
        self.check(&tiling, target).ok()?;
        let of = |k: usize| {
            let all = BoxPath::ALL.into_iter();
            all.filter(move |path| path.is_of(&form.operands[k]))
        };
        let all = of(0).flat_map(|lhs| of(1).map(move |rhs| [lhs, rhs]));
        let priced = all.map(|paths| {
            let mut tile = WindowTile { paths, ..self.clone() };
            // Where no other block multiplies meanwhile, this one does.
            let ahead = self.resident == 1 && tile.stages > 2 && tile.stages_any();
            tile.ahead = i64::from(ahead);
            let seconds = tile.seconds(form, m, &tiling, target);
            (tile, seconds)
        });
        priced.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// What is done to each operand in shared memory.
    fn staging(&self, form: &WindowForm) -> [Option<StagedClocks>; 2] {
        [0, 1].map(|k| {
            let staged = self.paths[k] == BoxPath::Staged;
            staged.then(|| StagedClocks::of(&form.operands[k]))
        })
    }

    /// Seconds that a product takes on an H200.
    pub(crate) fn seconds(
        &self,
        form: &WindowForm,
        m: &Member,
        tiling: &WindowTiling,
        target: &GpuTarget,
    ) -> f64 {
        let turns = [0, 1].map(|k| {
            tiling.boxes[k].turns(&form.operands[k], [tiling.lanes[k], tiling.lanes[2]]) as f64
        });
        let boxes = [&tiling.boxes[0], &tiling.boxes[1]];
        let staging = self.staging(form);
        let tile = (&self.sides, self.warps, self.resident);
        let step = step_clocks(form, tile, boxes, turns, staging);
        let resident = f64::from(self.resident);
        // Other blocks multiply while one begins and ends.
        let ends = FILL + finish_clocks([&self.sides[0], &self.sides[1]], m);
        let alone = (ends + tiling.per as f64 * BARRIER) / resident;
        let block = tiling.per as f64 * step + alone;
        let all = tiling.blocks(m).saturating_mul(self.parts) as f64;
        let chip = f64::from(target.multiprocessors) * resident;
        let clocks = (all / chip).ceil() * block * resident;
        let partial = match self.parts {
            1 => 0.0,
            parts => 4e-6 + volume(&m.result()) as f64 * 8.0 * parts as f64 / 3e12,
        };
        clocks / CLOCK + partial
    }
}

/// Tiles of sums, those first that take the least time by a rough count with this step of the depth.
fn shapes(form: &WindowForm, m: &Member, usual: &Sides, target: &GpuTarget) -> Vec<SumTile> {
    let staged = |k: usize, sides: Sides| {
        let staged = StagedBox::new(&form.operands[k], &sides, usual);
        (sides, staged)
    };
    let staging = [0, 1].map(|k| {
        let operand = &form.operands[k];
        (!BoxPath::Copied.is_of(operand)).then(|| StagedClocks::of(operand))
    });
    let cols: Vec<_> = own_sides(&m.cols).into_iter().map(|sides| staged(1, sides)).collect();
    let mut found: Vec<(f64, SumTile)> = Vec::new();
    for (rows, own) in own_sides(&m.rows).into_iter().map(|sides| staged(0, sides)) {
        for (cols, other) in &cols {
            for (warps, resident) in WARPS {
                let [tall, wide] = [volume(&rows), volume(cols)];
                let fits = tall * wide / (warps[0] * warps[1] * WARP) <= MOST_SUMS
                    && tall % (2 * NEAR * warps[0]) == 0
                    && wide % (NEAR * warps[1]) == 0;
                if fits {
                    let shape = ([rows.clone(), cols.clone()], warps, resident);
                    let seconds = rough((form, m), &shape, (usual, [&own, other], staging), target);
                    found.push((seconds, shape));
                }
            }
        }
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found.into_iter().map(|(_, shape)| shape).collect()
}

/// The seconds of tiles, as far as they do not depend on how the depth is divided; `usual` is one of its steps.
fn rough(
    (form, m): (&WindowForm, &Member),
    (sides, warps, resident): &SumTile,
    (usual, boxes, staging): (&Sides, [&StagedBox; 2], [Option<StagedClocks>; 2]),
    target: &GpuTarget,
) -> f64 {
    let all = [sides[0].clone(), sides[1].clone(), usual.clone()];
    let step = step_clocks(form, (&all, *warps, *resident), boxes, [1.0, 1.0], staging);
    let tiles = |k: usize, extents: &[i64]| {
        let along = extents.iter().zip(&sides[k]).map(|(n, side)| ((n + side - 1) / side) as f64);
        along.product::<f64>()
    };
    let blocks = volume(&m.batch) as f64 * tiles(0, &m.rows) * tiles(1, &m.cols);
    let steps = volume(&form.depth) as f64 / volume(usual) as f64;
    let resident = f64::from(*resident);
    let chip = f64::from(target.multiprocessors) * resident;
    let (waves, steps) =
        if blocks < chip { (1.0, steps * blocks / chip) } else { ((blocks / chip).ceil(), steps) };
    let alone = (FILL + finish_clocks([&sides[0], &sides[1]], m)) / resident;
    waves * resident * (steps * step + alone) / CLOCK
}

/// Instructions that compute elements in shared memory: what those of a line share, and what each word has by itself.
#[derive(Clone, Copy)]
struct StagedClocks {
    line: f64,
    element: f64,
}

impl StagedClocks {
    fn of(operand: &BoxOperand) -> StagedClocks {
        let [line, element] = operand.computed.as_ref().map_or([0, 0], BoxProgram::instructions);
        let [line, element] = [line as f64, element as f64];
        match operand.word {
            BoxWord::Single => StagedClocks { line, element: element + ROUND },
            BoxWord::Neighbours | BoxWord::Sliding => {
                StagedClocks { line, element: 2.0 * element + JOIN }
            }
            BoxWord::Apart(_) => StagedClocks { line: 2.0 * line, element: 2.0 * element + JOIN },
        }
    }
}

/// The clocks of a step, in which lanes read each operand in this many turns.
fn step_clocks(
    form: &WindowForm,
    (sides, warps, resident): (&[Sides; 3], [i64; 2], u32),
    boxes: [&StagedBox; 2],
    turns: [f64; 2],
    staging: [Option<StagedClocks>; 2],
) -> f64 {
    let [rows, cols, depth] = [0, 1, 2].map(|k| volume(&sides[k]) as f64);
    let [tall, wide] = [0, 1].map(|k| (volume(&sides[k]) / NEAR / warps[k]) as f64);
    let warps = warps[0] * warps[1];
    let (mut shared, mut issued, mut bytes) = (0.0, 0.0, 0.0);
    for ((staged, staging), operand) in boxes.into_iter().zip(staging).zip(&form.operands) {
        let CopyTeams { lanes, teams, turns, units, along } = staged.teams(warps * WARP);
        let each = operand.word.copies();
        let copies = (warps * turns * units) as f64;
        let copied = operand.word.copied_bytes(staged.unit);
        let apart = if copied * lanes < CACHE_LINE { WARP / lanes } else { 1 };
        shared += copies * COPY * (each * (1 + apart)) as f64;
        let addresses = if along.is_some() { 1.0 } else { 12.0 };
        issued += (warps * turns) as f64 * addresses + 1.5 * copies * each as f64;
        bytes += (operand.word.place_bytes() * staged.fetched) as f64;
        if let Some(StagedClocks { line, element }) = staging {
            let unit = (staged.unit / operand.word.places()) as f64;
            shared += BOTH_WAYS * copies * unit;
            // Turns of one place along that dimension share what their lines do.
            let lines = along.map_or(turns, |k| (staged.places[k].0 + teams - 1) / teams);
            issued += (warps * lines) as f64 * line + copies * (STAGED + unit * element);
        }
    }
    let pieces = warps as f64 * depth / 8.0;
    shared += pieces * 2.0 * (tall * turns[0] + wide * turns[1]);
    let rounds = |staged: Option<StagedClocks>| staged.is_none() && form.unit == Unit::Tf32;
    let read = staging.map(|staged| READ + if rounds(staged) { 2.0 * ROUND } else { 0.0 });
    issued += pieces * (tall * wide / 2.0 + read[0] * tall + read[1] * wide);
    let multiply = rows * cols * depth / MULTIPLY_ADDS;
    let limits = [shared, issued / ISSUED, bytes / CACHE_BYTES];
    let longest = limits.into_iter().fold(multiply, f64::max);
    let clocks = longest + EXPOSED * limits.iter().sum::<f64>();
    if resident == 1 { ALONE * clocks } else { clocks }
}

/// Clocks in which the sums of a tile are stored. Where lanes are along another axis than the columns' last, they store a part of
/// each sector of memory.
fn finish_clocks(sides: [&Sides; 2], m: &Member) -> f64 {
    let bytes = (4 * volume(sides[0]) * volume(sides[1])) as f64;
    let lane = sides[1].iter().rposition(|n| n % NEAR == 0);
    let last = m.cols.iter().rposition(|&n| n != 1);
    let scattered = if lane == last { 1.0 } else { 4.0 };
    scattered * bytes / CACHE_BYTES
}

/// Sides of tiles along rows or columns, each with whole groups of lanes along one of the axes.
fn own_sides(extents: &[i64]) -> Vec<Sides> {
    let mut found: Vec<Sides> = Vec::new();
    for (lane, n) in extents.iter().enumerate() {
        let whole = (n + NEAR - 1) / NEAR * NEAR;
        let sizes = [8, 16, 24, 32, 48, 56, 64, 112, 128].into_iter().filter(|&n| n < whole);
        let least = [2 * NEAR].into_iter().filter(|_| whole == NEAR);
        for size in sizes.chain([whole.min(MOST_SIDE)]).chain(least) {
            let mut sides: Sides = extents.iter().map(|_| 1).collect();
            sides[lane] = size;
            others(extents, &mut sides, lane, (0, MOST_SIDE), &mut found);
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Adds tiles with each choice of the sides from `at` on, but for one that is chosen.
fn others(
    extents: &[i64],
    sides: &mut Sides,
    chosen: usize,
    (at, most): (usize, i64),
    found: &mut Vec<Sides>,
) {
    if at == extents.len() {
        found.push(sides.clone());
        return;
    }
    if at == chosen {
        return others(extents, sides, chosen, (at + 1, most), found);
    }
    let n = extents[at];
    for size in [1, 2, 4, 7, 8, 14, 16].into_iter().filter(|&size| size < n).chain([n]) {
        if volume(&*sides) * size > most {
            break;
        }
        sides[at] = size;
        others(extents, sides, chosen, (at + 1, most), found);
        sides[at] = 1;
    }
}

/// Sides of steps along the depth, the most promising first.
fn depth_sides(form: &WindowForm) -> Vec<Sides> {
    let mut found: Vec<Sides> = Vec::new();
    let ends = |a: usize| form.operands.iter().any(|operand| operand.ends(a));
    for (lane, n) in form.depth.iter().enumerate() {
        let whole = (n + DEEP - 1) / DEEP * DEEP;
        for size in [4, 8, 16, 32, 56, 64].into_iter().filter(|&n| n < whole).chain([whole]) {
            if size > MOST_DEPTH {
                continue;
            }
            let mut sides: Sides = form.depth.iter().map(|_| 1).collect();
            sides[lane] = size;
            others(&form.depth, &mut sides, lane, (0, MOST_DEPTH), &mut found);
        }
    }
    let fits = |sides: &Sides| {
        let mut each = sides.iter().zip(&form.depth).enumerate();
        each.all(|(a, (side, n))| n % side == 0 || ends(a)) && volume(sides) % 8 == 0
    };
    found.retain(fits);
    found.sort();
    found.dedup();
    // Steps that have windows whole share the most elements; those of about 64 places have few barriers and leave room.
    let whole = |sides: &Sides| sides.iter().zip(&form.depth).filter(|(side, n)| side == n).count();
    found.sort_by_key(|sides| (std::cmp::Reverse(whole(sides)), (volume(sides) - 64).abs()));
    found
}
