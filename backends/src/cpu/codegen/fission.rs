//! Fission: where a body has many values, its parts are computed one after the other, each for a strip of groups.
//!
//! Groups of a whole body that has many values alive are not interleaved without spills, and each waits for its own results.
//! A part has fewer values, so its groups are. Values that later parts use are in memory of the function meanwhile, in the
//! first cache. Where the order is cut is chosen so that these are few.
//!
//! Arrays are read wherever a part needs them. Outputs are stored by the last part, after all that it reads of a group, so that
//! an output may be stored where a parameter is.

use super::loop_order::last_uses;
use super::loop_program::{GroupRead, GroupShape, LoopBlock, LoopProgram, LoopStmt};
use adfuse_ir::scalar::{SOp, SVal};
use cranelift_entity::EntityRef;
use std::ops::{Range, RangeInclusive};

/// Bodies of fewer values are whole.
const LEAST: usize = 96;

/// Values of a part.
const PART: RangeInclusive<usize> = 36..=96;

/// Bytes that the values of a strip may take, of a first cache of 32 KiB and more.
const STRIP_BYTES: u64 = 32 << 10;

/// Values to be computed for each that is stored in a strip or read from there. Values that stay alive make more traffic in strips than
/// by spills, as a whole body reads them where it uses them.
const LEAST_OF_MOVE: usize = 4;

/// Of this many values one at least is on the longest path, where two groups of a whole body wait for their own results.
const PATH: usize = 3;

/// Values for each array that is read or written, at least, where groups wait for their own results rather than for memory.
const LEAST_OF_ARRAY: usize = 8;

/// Groups of a line at least: up to three are left to single groups.
const LEAST_GROUPS: u32 = 16;

/// Groups of a strip at most: more of them would not make the loops of parts cheaper.
const MOST_GROUPS: u32 = 64;

/// Groups of a part that are interleaved, at most. A group of 64-bit values is two vectors, which are independent already.
pub(crate) const INTERLEAVED: u32 = 4;
const INTERLEAVED_LONG: u32 = 2;

/// What a cut costs besides the values that cross it, in bytes of a lane.
const CUT: u64 = 16;

/// In which part each value of an order is computed, and which part is the last to use it.
pub(crate) struct BodyParts {
    /// Of each part, its place in the order.
    pub(crate) ranges: Vec<Range<usize>>,
    /// Of each value of the body, the last part that uses it; outputs are used by the last part of all.
    last: Vec<usize>,
    /// Of each value, whether each part reads it from its array.
    reread: Vec<bool>,
}

impl BodyParts {
    pub(crate) fn of(p: &LoopProgram) -> BodyParts {
        let cuts: Vec<usize> = p.cuts.iter().map(|&at| at as usize).collect();
        let begins = std::iter::once(0).chain(cuts.iter().copied());
        let ends = cuts.iter().copied().chain([p.order.len()]);
        let ranges: Vec<Range<usize>> = begins.zip(ends).map(|(begin, end)| begin..end).collect();
        let part_at = |at: usize| cuts.partition_point(|&cut| cut <= at);
        let last = last_uses(&p.body, &p.order).into_iter().map(part_at).collect();
        let reread = p.body.insts.keys().map(|v| is_reread(p, v)).collect();
        BodyParts { ranges, last, reread }
    }

    /// The last part that uses a value.
    pub(crate) fn last_use(&self, v: SVal) -> usize {
        self.last[v.index()]
    }

    /// Bytes of a lane that the values in a strip have at most: what a part reads and what it keeps are there together.
    fn strip_bytes(&self, p: &LoopProgram) -> u64 {
        let mut most = 0;
        let mut kept: Vec<SVal> = Vec::new();
        for (k, range) in self.ranges.iter().enumerate() {
            kept.retain(|&v| self.last_use(v) >= k);
            let made = p.order[range.clone()].iter().copied();
            kept.extend(made.filter(|&v| self.last_use(v) > k && !self.is_reread(v)));
            most = most.max(kept.iter().map(|&v| lane_bytes(p, v)).sum());
        }
        most
    }

    /// How often a group's values are stored for later parts, or read by those.
    fn moves(&self, p: &LoopProgram) -> usize {
        // Of each value, the last part so far that has it in a register.
        let mut part_of: Vec<Option<usize>> = vec![None; p.body.insts.len()];
        let mut stored = vec![false; p.body.insts.len()];
        let mut moves = 0;
        for (k, range) in self.ranges.iter().enumerate() {
            let outputs = p.body.outputs.iter().filter(|_| k + 1 == self.ranges.len());
            for &v in &p.order[range.clone()] {
                part_of[v.index()] = Some(k);
            }
            let args = p.order[range.clone()].iter().flat_map(|&v| &p.body.insts[v].args);
            for &v in args.chain(outputs).filter(|&&v| !self.is_reread(v)) {
                let at = v.index();
                if part_of[at].is_some_and(|of| of < k) {
                    moves += 1 + usize::from(!std::mem::replace(&mut stored[at], true));
                    part_of[at] = Some(k);
                }
            }
        }
        moves
    }

    /// Whether each part that uses a value reads it from its array, or counts it.
    pub(crate) fn is_reread(&self, v: SVal) -> bool {
        self.reread[v.index()]
    }
}

/// Whether reading a value once more costs no more than keeping it.
fn is_reread(p: &LoopProgram, v: SVal) -> bool {
    let inst = &p.body.insts[v];
    let SOp::Param(k) = inst.op else { return false };
    let read = p.reads.get(k as usize);
    let is_cheap = match read {
        Some(GroupRead::Even { step, .. }) => *step == 1,
        Some(GroupRead::Coord { steps, .. }) => steps.as_even().is_some(),
        _ => false,
    };
    is_cheap && inst.args.is_empty()
}

/// Bytes of a lane of the registers that a value is in.
fn lane_bytes(p: &LoopProgram, v: SVal) -> u64 {
    p.body.insts[v].dtype.bytes().max(4)
}

/// The program with its body in parts where that pays, for lines of this many elements.
pub(crate) fn in_parts(mut p: LoopProgram, line: i64) -> LoopProgram {
    let groups = u32::try_from(line / i64::from(p.lanes)).unwrap_or(u32::MAX);
    if p.order.len() < LEAST || p.apart != p.lanes || groups < LEAST_GROUPS {
        return p;
    }
    let cuts = cuts(&crossing(&p));
    p.cuts = cuts.into_iter().filter_map(|at| u32::try_from(at).ok()).collect();
    let parts = BodyParts::of(&p);
    let bytes = parts.strip_bytes(&p).saturating_mul(p.lanes.into());
    let fitting = u32::try_from(STRIP_BYTES / bytes.max(1)).unwrap_or(MOST_GROUPS);
    let strip = fitting.min(groups).min(MOST_GROUPS) / INTERLEAVED * INTERLEAVED;
    if strip == 0 || parts.moves(&p) * LEAST_OF_MOVE > p.order.len() {
        p.cuts.clear();
    }
    if p.cuts.is_empty() {
        return p;
    }
    let long = 2 * p.order.iter().filter(|&&v| p.body.insts[v].dtype.bytes() == 8).count();
    let is_long = long > p.order.len();
    let copies = if is_long { INTERLEAVED_LONG } else { INTERLEAVED };
    // Elsewhere strips are only for bodies of which two groups do not fit the registers.
    let arrays = p.order.iter().filter(|&&v| parts.is_reread(v)).count() + p.writes.len();
    let few_arrays = arrays * LEAST_OF_ARRAY <= p.order.len();
    let first = !is_long && few_arrays && longest_path(&p) * PATH >= p.order.len();
    let shape = GroupShape { copies, rounds: 1, held: false, strip };
    with_strips(&mut p.code, shape, first);
    p
}

/// Gives all loops of groups strips: in the first place, or before single groups. Loops that store past the caches are of small bodies.
fn with_strips(block: &mut LoopBlock, shape: GroupShape, first: bool) {
    for s in block {
        match s {
            LoopStmt::Groups { shapes, nontemporal: false, .. } => {
                let single = shapes.iter().position(|s| s.copies == 1).unwrap_or(shapes.len());
                shapes.insert(if first { 0 } else { single }, shape);
            }
            LoopStmt::If { then, otherwise, .. } => {
                with_strips(then, shape, first);
                with_strips(otherwise, shape, first);
            }
            LoopStmt::While { body, .. } => with_strips(body, shape, first),
            _ => {}
        }
    }
}

/// The most values of which each uses the one before.
fn longest_path(p: &LoopProgram) -> usize {
    let mut length = vec![0; p.body.insts.len()];
    for &v in &p.order {
        let before = p.body.insts[v].args.iter().map(|a| length[a.index()]).max();
        length[v.index()] = before.unwrap_or(0) + 1;
    }
    length.into_iter().max().unwrap_or(0)
}

/// At each place of the order, the bytes of a lane that values computed before it and used from it on have.
fn crossing(p: &LoopProgram) -> Vec<u64> {
    let n = p.order.len();
    let last = last_uses(&p.body, &p.order);
    let mut ends = vec![0; n + 1];
    let (mut now, mut all) = (0, Vec::with_capacity(n + 1));
    for (at, &v) in p.order.iter().enumerate() {
        all.push(now);
        now -= ends[at];
        // A last use is past the cut before it.
        if !is_reread(p, v) && last[v.index()] > at {
            let bytes = lane_bytes(p, v);
            now += bytes;
            ends[last[v.index()]] += bytes;
        }
    }
    all.push(now);
    all
}

/// Places of an order where cuts cost least, such that no part is much shorter or longer than others: the shortest path over all
/// places.
fn cuts(crossing: &[u64]) -> Vec<usize> {
    let n = crossing.len() - 1;
    let mut best: Vec<Option<(u64, usize)>> = vec![None; n + 1];
    best[0] = Some((0, 0));
    for end in 1..=n {
        let begins = end.saturating_sub(*PART.end())..(end + 1).saturating_sub(*PART.start());
        let paths = begins.filter_map(|begin| {
            let (cost, _) = best[begin]?;
            Some((cost.saturating_add(crossing[begin]).saturating_add(CUT), begin))
        });
        best[end] = paths.min();
    }
    let mut found = Vec::new();
    let mut at = n;
    while let Some((_, begin)) = best[at].filter(|_| at > 0) {
        at = begin;
        found.extend(Some(at).filter(|&at| at > 0));
    }
    found.reverse();
    found
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cpu::codegen::loop_parser::parse;
    use crate::cpu::codegen::loop_verify::verify;

    /// A chain of this many steps, of which every tenth is handed on alone; the others are needed again by the next one but one. A
    /// last value uses an early one.
    pub(crate) fn chain(steps: usize) -> LoopProgram {
        let mut body = String::from("s0 = param.f32 0\ns1 = mul.f32 s0 s0\n");
        let mut order = String::from("s0 s1");
        for v in 2..steps {
            let other = if v % 10 < 2 { v - 1 } else { v - 2 };
            body += &format!("s{v} = add.f32 s{} s{other}\n", v - 1);
            order += &format!(" s{v}");
        }
        body += &format!("s{steps} = add.f32 s{} s1\nreturn s{steps}\n", steps - 1);
        let text = format!(
            "groups of 16\nbody {{\n{body}}}\norder {order} s{steps}\np0 f32 even v2 step 1\no0 even f32 v3 step 1\n\
             code {{\nv2 = pointer 0\nv3 = pointer 1\ninvariants\ngroups v4 from v0 to v1 by 2 1 by 1 1\n}}\n"
        );
        parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    /// A chain of which this many early values are outputs, which wait for the last part.
    pub(crate) fn with_outputs(count: usize) -> LoopProgram {
        let mut wide = chain(1000);
        wide.body.outputs = (2..count + 2).map(SVal::new).collect();
        wide.writes = vec![wide.writes[0]; count];
        wide
    }

    #[test]
    fn cuts_are_where_least_crosses() {
        for steps in [96, 97, 150, 333, 900] {
            let whole = chain(steps);
            let cut = in_parts(whole.clone(), 1 << 20);
            assert_eq!(verify(&cut), Ok(()), "{cut}");
            assert_eq!(parse(&cut.to_string()).as_ref(), Ok(&cut));
            let all = crossing(&whole);
            let parts = BodyParts::of(&cut);
            assert!(parts.ranges.len() >= (steps + 1).div_ceil(*PART.end()), "{steps}");
            for range in &parts.ranges {
                assert!(PART.contains(&range.len()), "{steps}: {range:?}");
            }
            for &at in &cut.cuts {
                // A value of the chain and the early one.
                assert_eq!(all[at as usize], 8, "{steps}: {at}");
            }
            assert_eq!(parts.last_use(SVal::new(1)), parts.ranges.len() - 1);
            // Each part reads the array, so that it crosses no cut.
            assert!(parts.is_reread(SVal::new(0)) && !parts.is_reread(SVal::new(1)));
        }
    }

    #[test]
    fn small_bodies_and_short_lines_are_whole() {
        assert_eq!(in_parts(chain(LEAST - 2), 1 << 20), chain(LEAST - 2));
        assert_eq!(in_parts(chain(300), 16 * 16 - 1), chain(300));
        assert_ne!(in_parts(chain(300), 16 * 16), chain(300));
    }

    #[test]
    fn strips_are_as_long_as_the_cache_is_large() {
        let strip = |p: &LoopProgram| match p.code.last() {
            Some(LoopStmt::Groups { shapes, .. }) => (shapes[0].strip, shapes.len()),
            _ => (0, 0),
        };
        // At most three values of four bytes are in a strip: 192 bytes of a group.
        assert_eq!(strip(&in_parts(chain(300), 1 << 20)), (MOST_GROUPS, 3));
        assert_eq!(strip(&in_parts(chain(300), 16 * 23)), (20, 3));
        // Too many are moved, or fill strips.
        assert_eq!(strip(&in_parts(with_outputs(200), 1 << 20)), (0, 2));
        assert_eq!(strip(&in_parts(with_outputs(60), 1 << 20)), (4, 3));
        // At each cut a value of the chain is stored and read; the early one is stored, and read by the last part.
        let cut = in_parts(chain(300), 1 << 20);
        assert_eq!(BodyParts::of(&cut).moves(&cut), 2 * cut.cuts.len() + 2);
    }
}
