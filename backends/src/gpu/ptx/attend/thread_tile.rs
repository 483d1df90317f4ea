//! What each thread multiplies and adds for itself: scores of four lines by eight columns, sums of four lines by groups of
//! columns. Every sum is one chain of fused multiply-adds in the order of the depth.

use super::tile::{SharedTile, made};
use crate::gpu::ptx::asm::{Asm, Class, Reg, guard_prefix};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::schedule::attention_tiles::{
    FloatTile, THREAD_COLUMNS, THREAD_LINES, THREADS_ACROSS, TOGETHER, column_groups,
};

/// Lines and columns of a thread.
pub(super) const LINES: usize = THREAD_LINES as usize;
pub(super) const COLUMNS: usize = THREAD_COLUMNS as usize;
/// Elements of one access.
const ELEMENTS: usize = TOGETHER as usize;
/// Bytes of an access, and of an element.
const ACCESS: i64 = TOGETHER * SIZE;
const SIZE: i64 = 4;
/// Accesses along the depth that are written out in one turn of a loop.
const UNROLL: [i64; 4] = [4, 3, 2, 1];

/// Scores of a thread, line after line: columns are [`THREADS_ACROSS`] apart.
pub(super) type ThreadScores = [[Reg; COLUMNS]; LINES];

/// Sums of a thread: of each line, groups of neighbouring columns.
pub(super) struct ThreadSums {
    lines: Vec<Vec<Reg>>,
}

/// Where a thread's lines and columns are in a tile.
#[derive(Clone, Copy)]
pub(super) struct ThreadPlace {
    /// Its first line, and its number along a line.
    pub(super) line: Reg,
    pub(super) across: Reg,
}

impl ThreadPlace {
    pub(super) fn new(asm: &mut Asm) -> ThreadPlace {
        let thread = asm.special("tid.x");
        let across =
            asm.pure(Class::Word, "and.b32", format_args!("{thread}, {}", THREADS_ACROSS - 1));
        let down = asm.pure(
            Class::Word,
            "shr.u32",
            format_args!("{thread}, {}", THREADS_ACROSS.trailing_zeros()),
        );
        let line = asm.pure(Class::Word, "mul.lo.s32", format_args!("{down}, {THREAD_LINES}"));
        ThreadPlace { line, across }
    }

    /// Where a line of a tile begins.
    fn line_of(&self, asm: &mut Asm, tile: &FloatTile, line: Reg) -> Reg {
        let base = SharedTile::floats(tile).address(asm);
        asm.pure(Class::Word, "mad.lo.s32", format_args!("{line}, {}, {base}", tile.pitch()))
    }

    /// The thread's first place along a line of each of its groups of columns. Groups beyond the end are at the last one.
    pub(super) fn groups(&self, asm: &mut Asm, elements: i64) -> Vec<Reg> {
        let last = elements / TOGETHER - 1;
        let group = |asm: &mut Asm, j: i64| {
            let to = j * THREADS_ACROSS;
            let group = asm.pure(Class::Word, "add.s32", format_args!("{}, {to}", self.across));
            match to + THREADS_ACROSS - 1 <= last {
                true => group,
                false => asm.pure(Class::Word, "min.s32", format_args!("{group}, {last}")),
            }
        };
        (0..column_groups(elements)).map(|j| group(asm, j)).collect()
    }

    /// The products of the block's own lines and the lines of a step, over all elements.
    pub(super) fn scores(
        &self,
        emit: &mut Emit<'_>,
        own: &FloatTile,
        step: &FloatTile,
    ) -> ThreadScores {
        let asm = &mut emit.asm;
        let scores: ThreadScores = std::array::from_fn(|_| std::array::from_fn(|_| zero(asm)));
        let left = self.line_of(asm, own, self.line);
        let right = self.line_of(asm, step, self.across);
        let steps = [(left, ACCESS), (right, ACCESS)];
        in_turns(emit, own.elements / TOGETHER, 4, &steps, |asm, at, c| {
            let a: [Vec<Reg>; LINES] =
                std::array::from_fn(|i| four(asm, at[0], i as i64 * own.pitch() + c * ACCESS));
            for j in 0..COLUMNS {
                let down = j as i64 * THREADS_ACROSS * step.pitch();
                let b = four(asm, at[1], down + c * ACCESS);
                for (line, a) in scores.iter().zip(&a) {
                    (0..ELEMENTS).for_each(|e| multiplied(asm, line[j], (a[e], b[e])));
                }
            }
        });
        scores
    }

    /// The sums of the lines of a step, weighed: one chain over all of its lines.
    pub(super) fn weighed(
        &self,
        emit: &mut Emit<'_>,
        weights: &FloatTile,
        step: &FloatTile,
    ) -> ThreadSums {
        let asm = &mut emit.asm;
        let sums = ThreadSums::zeros(asm, step.elements);
        let left = self.line_of(asm, weights, self.line);
        let base = SharedTile::floats(step).address(asm);
        let mut steps = vec![(left, ACCESS)];
        for group in self.groups(asm, step.elements) {
            let at = asm.pure(Class::Word, "mad.lo.s32", format_args!("{group}, {ACCESS}, {base}"));
            steps.push((at, TOGETHER * step.pitch()));
        }
        let most = if steps.len() > 2 { 2 } else { 4 };
        in_turns(emit, weights.elements / TOGETHER, most, &steps, |asm, at, c| {
            let a: [Vec<Reg>; LINES] =
                std::array::from_fn(|i| four(asm, at[0], i as i64 * weights.pitch() + c * ACCESS));
            for e in 0..ELEMENTS {
                let down = (c * TOGETHER + e as i64) * step.pitch();
                for (j, &at) in at[1..].iter().enumerate() {
                    let b = four(asm, at, down);
                    for (line, a) in sums.lines.iter().zip(&a) {
                        let group = &line[j * ELEMENTS..];
                        group
                            .iter()
                            .zip(b.iter())
                            .for_each(|(&s, &b)| multiplied(asm, s, (a[e], b)));
                    }
                }
            }
        });
        sums
    }

    /// Puts numbers of scores into a tile, from which the block reads lines.
    pub(super) fn put(&self, asm: &mut Asm, weights: &FloatTile, scores: &ThreadScores) {
        let at = self.line_of(asm, weights, self.line);
        let at = asm.pure(Class::Word, "mad.lo.s32", format_args!("{}, {SIZE}, {at}", self.across));
        for (i, line) in scores.iter().enumerate() {
            for (j, x) in line.iter().enumerate() {
                let offset = i as i64 * weights.pitch() + j as i64 * THREADS_ACROSS * SIZE;
                asm.emit(format_args!("st.shared.f32 [{at}+{offset}], {x}"));
            }
        }
    }
}

impl ThreadSums {
    pub(super) fn zeros(asm: &mut Asm, elements: i64) -> ThreadSums {
        let columns = column_groups(elements) as usize * ELEMENTS;
        let lines = (0..LINES).map(|_| (0..columns).map(|_| zero(asm)).collect());
        ThreadSums { lines: lines.collect() }
    }

    /// The sums of a line.
    pub(super) fn line(&self, i: usize) -> &[Reg] {
        &self.lines[i]
    }

    /// Adds what one step gives, where a line takes part in it.
    pub(super) fn add(&self, asm: &mut Asm, part: &ThreadSums, takes: &[Option<Reg>; LINES]) {
        for (i, when) in takes.iter().enumerate() {
            let when = guard_prefix(*when);
            for (sum, x) in self.lines[i].iter().zip(&part.lines[i]) {
                asm.emit(format_args!("{when}add.rn.f32 {sum}, {sum}, {x}"));
            }
        }
    }

    /// Stores lines of a head that begin at `base`, where they exist.
    pub(super) fn store(
        &self,
        asm: &mut Asm,
        place: ThreadPlace,
        (base, elements): (Reg, i64),
        (first, lines): (Reg, i64),
    ) {
        let groups = place.groups(asm, elements);
        let bytes = elements * SIZE;
        for (i, line) in self.lines.iter().enumerate() {
            let (row, live) = line_of_thread(asm, (first, i), lines);
            let at = made(asm, Class::Long, "mad.wide.s32", format_args!("{row}, {bytes}, {base}"));
            for (j, (sums, group)) in line.chunks(ELEMENTS).zip(&groups).enumerate() {
                let to = j as i64 * THREADS_ACROSS;
                let own = asm.pure(Class::Word, "add.s32", format_args!("{}, {to}", place.across));
                // Threads beyond the last group have sums of nothing.
                let inside = format!("{own}, {}, {live}", elements / TOGETHER);
                let inside = made(asm, Class::Pred, "setp.lt.and.s32", inside);
                let at = format!("{group}, {ACCESS}, {at}");
                let at = made(asm, Class::Long, "mad.wide.s32", at);
                let all: Vec<String> = sums.iter().map(Reg::to_string).collect();
                let all = all.join(", ");
                asm.emit(format_args!("@{inside} st.global.v4.f32 [{at}], {{{all}}}"));
            }
        }
    }
}

/// A line of a thread whose first one is `first`, and whether it exists.
pub(super) fn line_of_thread(asm: &mut Asm, (first, i): (Reg, usize), lines: i64) -> (Reg, Reg) {
    let line = made(asm, Class::Word, "add.s32", format_args!("{first}, {i}"));
    (line, made(asm, Class::Pred, "setp.lt.s32", format_args!("{line}, {lines}")))
}

/// A sum of nothing.
fn zero(asm: &mut Asm) -> Reg {
    made(asm, Class::Single, "mov.b32", "0f00000000")
}

/// Four neighbouring numbers in shared memory.
fn four(asm: &mut Asm, at: Reg, offset: i64) -> Vec<Reg> {
    asm.load_row(Class::Single, ELEMENTS, "ld.shared.v4.f32", format_args!("[{at}+{offset}]"))
}

fn multiplied(asm: &mut Asm, sum: Reg, (a, b): (Reg, Reg)) {
    asm.emit(format_args!("fma.rn.f32 {sum}, {a}, {b}, {sum}"));
}

/// Does something for each of `count` accesses along the depth, up to `most` of them in a turn of a loop. Addresses move on by
/// their bytes for each; `body` has them and the number of the access in the turn.
fn in_turns(
    emit: &mut Emit<'_>,
    count: i64,
    most: i64,
    steps: &[(Reg, i64)],
    mut body: impl FnMut(&mut Asm, &[Reg], i64),
) {
    let unroll = UNROLL.into_iter().find(|&n| n <= most && count % n == 0).unwrap_or(1);
    let at: Vec<Reg> = steps.iter().map(|&(at, _)| emit.asm.copied(at)).collect();
    let (turns, _) = emit.repeat(count / unroll);
    (0..unroll).for_each(|c| body(&mut emit.asm, &at, c));
    for (at, (_, bytes)) in at.iter().zip(steps) {
        emit.asm.emit(format_args!("add.s32 {at}, {at}, {}", bytes * unroll));
    }
    emit.again(turns);
}
