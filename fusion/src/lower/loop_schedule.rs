//! Loop schedules of kernels: vectors run along contiguous elements, and tiles are used where buffers are laid out
//! across one another.

use adfuse_ir::kernel::{
    Extents, Kernel, Operand, Param, Program, Schedule, Sink, Stage, Step, Storage,
};
use smallvec::{SmallVec, smallvec};
use std::cmp::Reverse;

/// Bytes of a line of the caches, with the one that is fetched beside it.
const LINES: i64 = 128;

/// The distance in bytes of lines that share a set of L1, and the number of lines of a set that stay.
const PERIOD: u64 = 4096;
const WAYS: u64 = 8;

/// The most elements of a tile along the vectors.
const ALONG: u64 = 256;

/// The fewest elements of a line that fill a good part of a vector.
const LINE: i64 = 8;

/// The size of a buffer that stays in L1 in whatever order it is walked.
const NEAR: u64 = 16 << 10;

/// Gives every kernel of a program its schedule, from a step on. All buffers have their forms.
pub(crate) fn schedule(program: &mut Program, from: usize) {
    for n in from..program.steps.len() {
        let kernels = match &program.steps[n] {
            Step::Kernel(kernel) => std::slice::from_ref(kernel),
            Step::Bundle(bundle) => &bundle.kernels,
            _ => continue,
        };
        let found: Vec<Schedule> = kernels.iter().map(|kernel| walk(program, kernel)).collect();
        let kernels = match &mut program.steps[n] {
            Step::Kernel(kernel) => std::slice::from_mut(kernel),
            Step::Bundle(bundle) => &mut bundle.kernels,
            _ => continue,
        };
        kernels.iter_mut().zip(found).for_each(|(kernel, found)| kernel.schedule = found);
    }
}

/// What is read or written at each point.
struct StridedAccess {
    /// Elements of memory between neighbours along each axis.
    steps: SmallVec<[i64; 8]>,
    /// Bytes of an element.
    bytes: i64,
    /// Bytes of all elements.
    all: u64,
}

/// The schedule of a kernel. Kernels that fold or have rows are walked as they are or as they store, since their
/// loops are the order of their folds, and so are those that store packed elements, in the order of their words.
fn walk(program: &Program, kernel: &Kernel) -> Schedule {
    let rank = kernel.domain.len();
    let found = kernel.stages.iter().map(|stage| accesses(program, stage, rank));
    let Some(found) = found.collect::<Option<Vec<_>>>() else {
        if let Some(tiles) = abreast(program, kernel) {
            return Schedule { tiles, ..Schedule::default() };
        }
        let order = as_stored(program, kernel).unwrap_or_default();
        return Schedule { order, ..Schedule::default() };
    };
    let found: Vec<StridedAccess> = found.into_iter().flatten().collect();
    let long = |a: usize| kernel.domain[a] > 1;
    let Some(last) = (0..rank).rev().find(|&a| long(a)) else { return Schedule::default() };
    let apart = |x: &&StridedAccess, axis: usize| x.steps[axis].abs() > 1 && x.all > NEAR;
    let across = |axis: usize| found.iter().filter(move |x| apart(x, axis));
    // What is stored decides between axes that are as good: later kernels read it so.
    let cost = |axis: usize| across(axis).map(|x| x.bytes).sum::<i64>();
    // Lines of a few elements leave most lanes idle: elements of another axis that are as far apart are written one by one in less
    // time. Vectors of 32 bits go over several lines of the last axis where these divide them.
    let words = found.iter().all(|x| x.bytes == 4);
    let fills = |axis: usize| words && axis == last && kernel.domain[axis].count_ones() == 1;
    let idle = |axis: usize| kernel.domain[axis] < LINE && !fills(axis);
    let least = |&a: &usize| (cost(a), idle(a));
    let Some(along) = (0..rank).rev().filter(|&a| long(a)).min_by_key(least) else {
        return Schedule::default();
    };
    let mut schedule = Schedule::default();
    if along != last {
        schedule.vector = u8::try_from(along).ok();
    }
    // Of the axes along which the others lie, the one that most of them do.
    let lines = |axis: usize| across(along).filter(move |x| x.steps[axis].abs() == 1);
    let gain = |axis: usize| lines(axis).map(|x| x.bytes).sum::<i64>();
    let others = (0..rank).filter(|&a| a != along && long(a) && gain(a) > 0);
    if let Some(over) = others.max_by_key(|&a| gain(a)) {
        let least = lines(over).map(|x| x.bytes).min().unwrap_or(1);
        let mut tiles: SmallVec<[i64; 4]> = smallvec![1; rank];
        tiles[over] = fitting(kernel.domain[over], LINES / least.clamp(1, LINES));
        // As many points as have lines that stay in L1 until the tile is done.
        let pitch = |x: &StridedAccess| x.steps[along].saturating_mul(x.bytes).unsigned_abs();
        let sets = |x: &StridedAccess| PERIOD / gcd(pitch(x), PERIOD);
        let stay = lines(over).map(|x| sets(x) * WAYS).min().unwrap_or(1).clamp(2 * WAYS, ALONG);
        tiles[along] = fitting(kernel.domain[along], stay as i64);
        schedule.tiles = tiles;
        schedule.vector = u8::try_from(along).ok();
    }
    schedule
}

/// About the most bytes of the values of one type that a tile of scanned points keeps, and the fewest of a line of them.
const SCANNED: i64 = 512 << 10;
const NARROW: i64 = 16;

/// The tiles of a kernel whose scans go across what it reads and stores: as many neighbouring points as have a line of the
/// caches in each row, so that a line is not fetched again for every point.
fn abreast(program: &Program, kernel: &Kernel) -> Option<Extents> {
    let rank = kernel.domain.len();
    let along = (0..rank).rev().find(|&a| kernel.domain[a] > 1)?;
    if !kernel.scans_abreast() {
        return None;
    }
    // Bytes that neighbouring points read and store side by side, less those that a point by itself does.
    let (mut gain, mut widest) = (0, 1);
    for stage in &kernel.stages {
        let last = rank + stage.axes.iter().rposition(|&n| n > 1)?;
        for access in stage_accesses(program, stage, rank + stage.axes.len())? {
            widest = access.bytes.max(widest);
            gain += access.bytes * i64::from(access.steps[along].abs() == 1);
            gain -= access.bytes * i64::from(access.steps[last].abs() == 1);
        }
    }
    let places = kernel.stages.iter().map(|s| s.axes.iter().product::<i64>()).max()?;
    let room = SCANNED / places.saturating_mul(widest).max(1);
    let wanted = (LINES / widest).min(room);
    if gain <= 0 || wanted * widest < NARROW {
        return None;
    }
    let mut tiles: Extents = smallvec![1; rank];
    tiles[along] = fitting(kernel.domain[along], wanted);
    Some(tiles)
}

/// The axes of a kernel in the order in which the largest of its results lies in memory, where that is another than
/// theirs, and the order of its folds and of its packed elements too.
fn as_stored(program: &Program, kernel: &Kernel) -> Option<SmallVec<[u8; 4]>> {
    let rank = kernel.domain.len();
    if kernel.stages.iter().any(|s| !s.axes.is_empty()) {
        return None;
    }
    let sinks = || kernel.stages.iter().flat_map(|s| &s.sinks);
    let mut stores = Vec::new();
    for sink in sinks() {
        if let Sink::Store { buffer, index } = sink {
            let data = &program.buffers[*buffer];
            stores.push((data.bytes(), data.storage, data.steps(index, rank)?));
        }
    }
    let (.., steps) = stores.iter().max_by_key(|(bytes, ..)| *bytes)?;
    let mut order: SmallVec<[u8; 4]> = (0..u8::try_from(rank).ok()?).collect();
    let long = |a: &u8| kernel.domain[usize::from(*a)] > 1;
    let ascends = |steps: &[i64], order: &[u8]| {
        let along: SmallVec<[i64; 8]> =
            order.iter().filter(|a| long(a)).map(|&a| steps[usize::from(a)]).collect();
        along.windows(2).all(|w| w[0] > w[1]) && along.last().is_none_or(|&s| s > 0)
    };
    if ascends(steps, &order) {
        return None;
    }
    // Axes of extent 1 stay before the others.
    order.sort_by_key(|a| long(a).then(|| Reverse(steps[usize::from(*a)])));
    let place = |a: &u8| order.iter().position(|b| b == a);
    let follows = sinks().all(|sink| match sink {
        Sink::Fold { runs, .. } => {
            runs.iter().all(|r| r.axes.windows(2).all(|w| place(&w[0]) < place(&w[1])))
        }
        _ => true,
    });
    let packed = stores.iter().filter(|(_, storage, _)| *storage != Storage::Plain);
    let words = packed.into_iter().all(|(.., steps)| ascends(steps, &order));
    (follows && words && ascends(steps, &order)).then_some(order)
}

/// What a stage reads and stores; `None` where the order of its points is that of a fold or of words.
fn accesses(program: &Program, stage: &Stage, rank: usize) -> Option<Vec<StridedAccess>> {
    let stores = |s: &Sink| matches!(s, Sink::Store { .. } | Sink::Leave(_));
    let free = stage.axes.is_empty() && stage.sinks.iter().all(stores);
    free.then(|| stage_accesses(program, stage, rank)).flatten()
}

/// What a stage reads and stores, in terms of this many coordinates; `None` where it stores packed elements: those that are
/// neighbours are written together.
fn stage_accesses(program: &Program, stage: &Stage, rank: usize) -> Option<Vec<StridedAccess>> {
    let mut found = Vec::new();
    let mut at = |b, index: &[_]| {
        let data = &program.buffers[b];
        let bytes = i64::try_from(data.dtype.bytes()).unwrap_or(1);
        // Where places are not affine, no order is better than another.
        if let Some(steps) = data.steps(index, rank) {
            found.push(StridedAccess { steps, bytes, all: data.bytes() });
        }
    };
    for param in &stage.params {
        let Param::Load(pieces) = param else { continue };
        for piece in pieces {
            if let Operand::Buffer(b) = piece.from {
                at(b, &piece.index);
            }
        }
    }
    for sink in &stage.sinks {
        let Sink::Store { buffer, index } = sink else { continue };
        if program.buffers[*buffer].storage != Storage::Plain {
            return None;
        }
        at(*buffer, index);
    }
    Some(found)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A tile of about this many elements along an axis, one that divides its extent where there is one near.
fn fitting(extent: i64, wanted: i64) -> i64 {
    if extent <= wanted * 3 / 2 {
        return extent.max(1);
    }
    let near = (wanted * 3 / 4..=wanted * 3 / 2).filter(|t| extent % t == 0);
    near.min_by_key(|t| (t - wanted).abs()).unwrap_or(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::kernel::text::parse;

    /// The tiles of a running sum along the first of two axes.
    fn tiles(rows: i64, cols: i64) -> Vec<i64> {
        let program = parse(&format!(
            "program @f {{
               input %x: f32[{rows}, {cols}]
               output %y: f32[{rows}, {cols}]
               kernel @k [{cols}] {{
                 tile t0: f32[{rows}]
                 stage [{rows}] {{ p0 = load %x[d1, d0] s0 = param.f32 0 t0 = scan.sum s0 d1 }}
                 stage [{rows}] {{ p0 = t0 s0 = param.f32 0 %y[d1, d0] = store s0 }}
               }}
               return %y
             }}"
        ));
        let mut program = program.expect("reads");
        schedule(&mut program, 0);
        let Step::Kernel(kernel) = &program.steps[0] else { panic!("a kernel") };
        kernel.schedule.tiles.to_vec()
    }

    /// The coordinate along which vectors run in a transpose to rows of this many elements.
    fn along(dtype: &str, row: i64) -> Option<u8> {
        let program = parse(&format!(
            "program @f {{
               input %x: {dtype}[{row}, 9000]
               output %y: {dtype}[9000, {row}]
               kernel @k [9000, {row}] {{
                 stage [] {{ p0 = load %x[d1, d0] s0 = param.{dtype} 0 %y[d0, d1] = store s0 }}
               }}
               return %y
             }}"
        ));
        let mut program = program.expect("reads");
        schedule(&mut program, 0);
        let Step::Kernel(kernel) = &program.steps[0] else { panic!("a kernel") };
        kernel.schedule.vector
    }

    #[test]
    fn vectors_do_not_run_along_rows_of_a_few_elements() {
        assert_eq!(along("f32", 3), Some(0), "lanes for thirteen elements more");
        assert_eq!(along("f32", 4), Some(1), "four rows are a vector");
        assert_eq!(along("f64", 4), Some(0), "such vectors are of 32 bits");
        assert_eq!(along("f32", 100), Some(1), "what is stored decides");
    }

    #[test]
    fn columns_are_scanned_as_many_as_there_is_room_for() {
        assert_eq!(tiles(100, 77), [32], "two lines of the cache");
        assert_eq!(tiles(100, 40), [40], "all of them, where they are not many more");
        assert_eq!(tiles(10_000, 64), [16], "about half a mebibyte");
        for rows in [200_000, 1 << 20, 1 << 40] {
            assert!(tiles(rows, 64).is_empty(), "lines of less than 16 bytes");
        }
        assert!(tiles(100, 1).is_empty(), "a single one");
    }
}
