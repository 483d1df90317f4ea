//! Loops of groups along a line: whole groups and single elements, or groups of which some are partial.

use super::interleave::{Interleaving, shapes, whole_line};
use super::loop_ir::{ParamRead, VectorAccess};
use super::loop_program::{GroupRead, GroupShape, GroupWrite, LoopCond, LoopOp, LoopStmt, LoopVal};
use super::program_builder::ProgramBuilder;
use super::sink_folds::BLOCK_LANES;

/// Elements of a group of vectors of 128 bits.
pub(crate) const QUAD: u32 = 4;

/// Packed elements of groups begin where a multiple of this many does, which is a byte for any width.
const BYTE: i64 = 8;

/// Where segments of single elements and groups end, and up to where there are groups.
struct SegmentEnds {
    vectors_to: LoopVal,
    to: LoopVal,
}

impl ProgramBuilder<'_> {
    /// The loops of a line of whole groups and single elements.
    pub(crate) fn whole_line(&mut self, [low, high]: [LoopVal; 2], groups: Option<Interleaving>) {
        let p = self.p;
        self.hoist();
        self.folds();
        if groups.is_some() {
            self.group_writes();
        }
        self.invariants();
        self.begin_columns([low, high], Self::fill_whole);
        let cut = p.packed() || p.loads.contains(&VectorAccess::Guarded);
        if p.lanes().is_none() && (groups.is_none() || !cut) {
            return self.whole_groups(low, SegmentEnds { vectors_to: high, to: high }, groups);
        }
        // Single elements find their sources by branches.
        let breaks = if groups.is_some() { self.breaks() } else { Vec::new() };
        let phases = if groups.is_some() { self.phases() } else { Vec::new() };
        self.turns([low], high, |b, [from]| {
            let to = breaks.iter().fold(high, |to, &at| b.bound(from, at, to));
            let mut ends = SegmentEnds { vectors_to: to, to };
            let mut block = None;
            if let Some(f) = p.lanes() {
                let [place, end] = b.begin_block(f, from);
                ends.to = b.bound(from, end, to);
                // One that begins between the lanes of groups has single elements up to those.
                let grain = groups.map_or(1, |g| if g.held { BLOCK_LANES } else { grain(g) });
                let short = b.short_of(place, grain);
                let aligned = b.add(from, short);
                ends.to = b.bound(from, aligned, ends.to);
                block = Some((place, short));
            }
            ends.vectors_to = ends.to;
            b.byte_aligned_ends(&phases, from, &mut ends);
            if let Some((_, short)) = block {
                let vectors_to = ends.vectors_to;
                let all = vec![LoopCond::Zero(short)];
                [ends.vectors_to] = b.choose(all, |_| [vectors_to], |_| [from]);
            }
            if groups.is_some() {
                b.choose_sources(from);
            }
            let to = ends.to;
            b.whole_groups(from, ends, groups);
            if let (Some(f), Some((place, _))) = (p.lanes(), block) {
                b.end_block(f, [place, from, to]);
            }
            [to]
        });
    }

    /// How far a place is from the next multiple of a power of two.
    fn short_of(&mut self, place: LoopVal, grain: i64) -> LoopVal {
        let zero = self.int(0);
        let back = self.sub(zero, place);
        self.rem(back, grain)
    }

    /// A segment that begins inside of a byte ends with it, and has no groups where arrays do not begin bytes together.
    fn byte_aligned_ends(&mut self, phases: &[LoopVal], from: LoopVal, ends: &mut SegmentEnds) {
        let Some((&first, others)) = phases.split_first() else { return };
        let element = self.add(first, from);
        let short = self.short_of(element, BYTE);
        let aligned = self.add(from, short);
        ends.to = self.bound(from, aligned, ends.to);
        ends.vectors_to = ends.to;
        for &other in others {
            let apart = self.sub(other, first);
            let apart = self.rem(apart, BYTE);
            let vectors_to = ends.vectors_to;
            let all = vec![LoopCond::Zero(apart)];
            [ends.vectors_to] = self.choose(all, |_| [vectors_to], |_| [from]);
        }
    }

    /// What elements need that does not change along the line.
    fn hoist(&mut self) {
        let p = self.p;
        for form in 0..p.forms.len() {
            self.fixed_form(form);
        }
        let arrays = p.reads.iter().flat_map(ParamRead::sources).filter_map(|w| w.from.array());
        for a in arrays.chain(&p.writes).chain(p.target.iter().map(|(_, _, places)| places)) {
            match a.packed.is_none() && p.affine(a.form) {
                true => self.pointer(a.at, a.form, a.dtype.bytes() as i64),
                false => self.op(LoopOp::Pointer(a.at)),
            };
        }
    }

    /// Of each packed array that groups read or write, the element of the innermost coordinate 0.
    fn phases(&mut self) -> Vec<LoopVal> {
        let p = self.p;
        let arrays = p.reads.iter().filter_map(|r| r.sources().first()?.from.array());
        let packed = arrays.chain(&p.writes).filter(|a| p.byte_aligned(a));
        packed.map(|a| self.fixed_form(a.form)).collect()
    }

    /// Groups from a coordinate while they fit below another, then elements up to the last.
    fn whole_groups(&mut self, mut from: LoopVal, ends: SegmentEnds, groups: Option<Interleaving>) {
        let p = self.p;
        if let Some(groups) = groups {
            for k in 0..p.reads.len() {
                if p.varies[k] {
                    let read = self.group_read(k);
                    self.reads[k] = read.unwrap_or_else(|| self.lane_block(k));
                }
            }
            let one = |copies, rounds, held| GroupShape { copies, rounds, held, strip: 0 };
            let mut all = Vec::new();
            match groups.held {
                true => all.push(one(groups.most, 2, true)),
                false => all.push(one(groups.most, 1, false)),
            }
            if groups.held || groups.least != groups.most {
                all.push(one(groups.least, 1, false));
            }
            let n = p.line_length();
            for shape in all {
                if i64::from(shape.copies * shape.rounds * QUAD) <= n {
                    from = self.groups(from, ends.vectors_to, vec![shape], false);
                }
            }
        }
        self.turns([from], ends.to, |b, [at]| {
            b.element(at);
            [b.plus(at, 1)]
        });
    }

    fn groups(
        &mut self,
        from: LoopVal,
        to: LoopVal,
        shapes: Vec<GroupShape>,
        nontemporal: bool,
    ) -> LoopVal {
        let last = self.fresh();
        self.push(LoopStmt::Groups { last, from, to, shapes, nontemporal });
        last
    }

    fn fill_whole(&mut self, output: usize, [low, high]: [LoopVal; 2]) {
        let many = i64::from(self.lanes);
        let mut low = low;
        if many > 1 {
            let end = self.plus(high, 1 - many);
            [low] = self.turns([low], end, |b, [at]| {
                b.push(LoopStmt::FillColumns { output, at, count: None });
                [b.plus(at, many)]
            });
        }
        let Some(fold) = self.writes[output].fold() else { return };
        let GroupWrite::Columns { pointer, .. } = self.writes[output] else { return };
        self.turns([low], high, |b, [at]| {
            let offset = b.mul(at, fold.dtype.bytes() as i64);
            let (at_address, value) = (b.add(pointer, offset), b.literal(fold.neutral()));
            let dtype = fold.dtype;
            b.push(LoopStmt::Store { dtype, canonical: false, at: at_address, value });
            [b.plus(at, 1)]
        });
    }

    /// The loops of a line of groups that may be partial.
    pub(crate) fn partial_line(&mut self, [low, high]: [LoopVal; 2]) {
        let p = self.p;
        for k in
            (0..p.reads.len()).filter(|&k| p.varies[k] && !self.is_chosen(k)).collect::<Vec<_>>()
        {
            if let Some(read) = self.group_read(k) {
                self.reads[k] = read;
            }
        }
        self.group_writes();
        self.folds();
        self.invariants();
        self.begin_columns([low, high], |b, output, [low, high]| {
            b.partial_turns(low, high, |b, at, count| {
                b.push(LoopStmt::FillColumns { output, at, count: Some(count) });
            });
        });
        match whole_line(p, self.lanes) {
            None => self.segments([low, high]),
            Some(copies) => {
                let n = p.line_length();
                let (length, count) = (self.int(n), self.sub(high, low));
                let missing = self.sub(length, count);
                let whole = |b: &mut Self| {
                    let (joins, copies) = (b.line_parts(), copies.clone());
                    b.push(LoopStmt::Line { count: n, copies, joins });
                    []
                };
                let cut = |b: &mut Self| {
                    b.segments([low, high]);
                    []
                };
                self.choose(vec![LoopCond::Zero(missing)], whole, cut);
            }
        }
    }

    /// The loops of a line that may be part of one, or longer than what is emitted without loops.
    fn segments(&mut self, [low, high]: [LoopVal; 2]) {
        let p = self.p;
        let chosen: Vec<usize> = (0..p.reads.len()).filter(|&k| self.is_chosen(k)).collect();
        if p.lanes().is_none() && chosen.is_empty() {
            return self.partial_groups(low, high);
        }
        let breaks = self.breaks();
        self.turns([low], high, |b, [from]| {
            let mut to = breaks.iter().fold(high, |to, &at| b.bound(from, at, to));
            let mut block = None;
            if let Some(f) = p.lanes() {
                let [place, end] = b.begin_block(f, from);
                to = b.min(to, end);
                block = Some(place);
            }
            b.choose_sources(from);
            for &k in &chosen {
                if let Some(read) = b.group_read(k) {
                    b.reads[k] = read;
                }
            }
            b.partial_groups(from, to);
            if let (Some(f), Some(place)) = (p.lanes(), block) {
                b.end_block(f, [place, from, to]);
            }
            [to]
        });
    }

    /// A partial group for each of the elements that are left.
    fn partial_turns(
        &mut self,
        from: LoopVal,
        to: LoopVal,
        emit: impl Fn(&mut Self, LoopVal, LoopVal),
    ) {
        let lanes = i64::from(self.lanes);
        self.turns([from], to, |b, [at]| {
            let (left, most) = (b.sub(to, at), b.int(lanes));
            let count = b.min(left, most);
            emit(b, at, count);
            [b.plus(at, lanes)]
        });
    }

    /// From a coordinate to another: interleaved groups, then single ones, of which the last is partial. Where groups
    /// begin with bytes, with lanes, or at coordinate 0 of the inner axes of grids, the first one is partial, too.
    fn partial_groups(&mut self, mut from: LoopVal, to: LoopVal) {
        let (p, apart) = (self.p, i64::from(self.apart));
        // Where whole lines have code of their own, what is left is a line at either end of a call.
        let shapes = match whole_line(p, self.lanes) {
            None => shapes(p, self.lanes),
            Some(_) => Vec::new(),
        };
        let Some(phase) = self.phase() else {
            if !shapes.is_empty() {
                from = self.nontemporal_groups([from, to], &shapes);
                from = self.groups(from, to, shapes, false);
            }
            self.partial_turns(from, to, |b, at, count| {
                b.push(LoopStmt::Partial { at, first: None, count });
            });
            return;
        };
        let element = self.add(phase, from);
        let past = self.rem(element, super::supports::grain(p, self.lanes));
        let begin = self.sub(from, past);
        self.turns([begin, past], to, |b, [at, first]| {
            let all = vec![LoopCond::Zero(first)];
            let at = match shapes.is_empty() {
                true => at,
                false => b.choose(all, |b| [b.groups(at, to, shapes.clone(), false)], |_| [at])[0],
            };
            b.when(vec![LoopCond::Less(at, to)], |b| {
                let (left, most) = (b.sub(to, at), b.int(apart));
                let count = b.min(left, most);
                b.push(LoopStmt::Partial { at, first: Some(first), count });
            });
            [b.plus(at, apart), b.int(0)]
        });
    }

    /// What groups are aligned to, at the innermost coordinate 0; `None` where they begin anywhere.
    fn phase(&mut self) -> Option<LoopVal> {
        let p = self.p;
        if !p.packed() && p.lanes().is_none() && p.grid().is_none() {
            return None;
        }
        let packed = |r: &GroupRead| {
            if let GroupRead::Packed { first, .. } = r { Some(*first) } else { None }
        };
        let first = self.reads.iter().find_map(packed).or_else(|| {
            self.writes.iter().find_map(|w| match w {
                GroupWrite::Packed { first, .. } => Some(*first),
                _ => None,
            })
        });
        let place = p.lanes().map(|f| self.fixed_form(f.place));
        Some(first.or(place).unwrap_or_else(|| self.int(0)))
    }

    /// Groups that store past the caches, if outputs do, up to where they end. They are aligned to whole vectors: a
    /// partial group comes first.
    fn nontemporal_groups(&mut self, [from, to]: [LoopVal; 2], shapes: &[GroupShape]) -> LoopVal {
        let far = self.nontemporal_outputs();
        let Some(&(first, bytes)) = far.first() else { return from };
        let vector = i64::from(self.lanes) * 4;
        let past = self.past_vector((first, bytes), from);
        let [from] = self.choose(
            vec![LoopCond::Zero(past)],
            |_| [from],
            |b| {
                let whole = b.int(vector);
                let short = b.sub(whole, past);
                let (short, left) = (b.div(short, bytes), b.sub(to, from));
                let count = b.min(short, left);
                b.push(LoopStmt::Partial { at: from, first: None, count });
                [b.add(from, count)]
            },
        );
        let mut all = Vec::new();
        for one in far {
            all.push(LoopCond::Zero(self.past_vector(one, from)));
        }
        let [last] = self.choose(all, |b| [b.groups(from, to, shapes.to_vec(), true)], |_| [from]);
        last
    }
}

/// What groups along a line begin at multiples of, counted in lanes of a block.
fn grain(groups: Interleaving) -> i64 {
    i64::from(QUAD * groups.most.next_power_of_two())
}
