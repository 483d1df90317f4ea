//! Folds in machine code: lanes and columns in memory, or lanes in registers if the body leaves enough of them.

use super::state::{
    FoldLine, Interleaving, LANES, LineValues, Quad, flags, register, vector, wide,
};
use super::unit::FunctionEmitter;
use crate::cpu::codegen::loop_ir::{LoopNest, WalkedFold};
use adfuse_ir::DType;
use adfuse_ir::kernel::Order;
use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::{Prim, SInst, SOp};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value};
use smallvec::{SmallVec, smallvec};

/// Quads of the 32 lanes of a block.
const QUADS: u32 = 8;

/// Copies of a body whose lanes may be in registers: half of the lanes.
const HALF: u32 = QUADS / 2;

/// Vector registers.
const REGISTERS: usize = 16;

/// What a stretch of a line begins with.
#[derive(Clone, Copy)]
pub(crate) struct LoopSegment {
    /// The place of its first coordinate among those that fold into one result.
    place: Value,
    /// Where it ends at the latest.
    pub(crate) to: Value,
    /// Whether vectors may begin.
    pub(crate) aligned: Value,
}

impl FunctionEmitter<'_, '_> {
    /// Finds where the outputs fold, all along a line, and fills columns that begin with what is neutral.
    pub(crate) fn fold_line(
        &mut self,
        p: &LoopNest,
        line: &mut LineValues,
        low: Value,
        high: Value,
    ) -> Option<()> {
        for (fold, write) in p.folds.iter().zip(&p.writes) {
            let Some(f) = fold else {
                line.folds.push(None);
                continue;
            };
            let place = line.fixed.forms.get(f.place).copied().flatten()?;
            let found = match &f.lanes {
                Some(lanes) => FoldLine { start: self.start(line, lanes)?, place },
                None => {
                    let first = self.start(line, write)?;
                    let start = self.part(f, first, place);
                    let found = FoldLine { start, place };
                    let within = self.long(f.order.block() as i64 - 1);
                    let within = self.b.ins().band(place, within);
                    self.when_zero(within, |unit| unit.fill_columns(f, &found, low, high))?;
                    found
                }
            };
            line.folds.push(Some(found));
        }
        Some(())
    }

    /// The part of the block in which a place is, from that of the first block.
    fn part(&mut self, f: &WalkedFold, first: Value, place: Value) -> Value {
        let bits = self.long(f.block_bits().into());
        let block = self.b.ins().ushr(place, bits);
        let apart = self.times(block, f.apart.wrapping_mul(f.dtype.bytes() as i64));
        self.b.ins().iadd(first, apart)
    }

    /// What is done where a number is 0 alone.
    fn when_zero(&mut self, x: Value, body: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let (some, none) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(x, some, &[], none, &[]);
        self.b.seal_block(none);
        self.b.switch_to_block(none);
        self.recent.clear();
        body(self)?;
        self.b.ins().jump(some, &[]);
        self.b.seal_block(some);
        self.b.switch_to_block(some);
        self.recent.clear();
        Some(())
    }

    fn fill_columns(
        &mut self,
        f: &WalkedFold,
        at: &FoldLine,
        low: Value,
        high: Value,
    ) -> Option<()> {
        let neutral = f.neutral();
        let bytes = f.dtype.bytes() as i64;
        let rest = self.looped(low, high, LANES.into(), |unit, d| {
            unit.recent.clear();
            let all = unit.constant(neutral);
            let offset = unit.times(d, bytes);
            let address = unit.b.ins().iadd(at.start, offset);
            unit.store_lanes(address, 0, &all);
            Some(())
        })?;
        self.looped(rest, high, 1, |unit, d| {
            let one = unit.literal(neutral);
            let offset = unit.times(d, bytes);
            let address = unit.b.ins().iadd(at.start, offset);
            unit.b.ins().store(flags(), one, address, 0);
            Some(())
        })?;
        Some(())
    }

    fn load_lanes(&mut self, d: DType, address: Value, quad: u32) -> Option<Quad> {
        let count = if wide(d) { 2 } else { 1 };
        let part = |k: i32| quad as i32 * 16 * count + 16 * k;
        let parts: SmallVec<[Value; 2]> =
            (0..count).map(|k| self.b.ins().load(vector(d), flags(), address, part(k))).collect();
        Quad::of(&parts)
    }

    fn store_lanes(&mut self, address: Value, quad: u32, all: &Quad) {
        let count = all.parts().len() as i32;
        for (&part, k) in all.parts().iter().zip(0i32..) {
            let offset = quad as i32 * 16 * count + 16 * k;
            self.b.ins().store(flags(), part, address, offset);
        }
    }

    /// Begins a stretch at a coordinate: where a block does, the lanes are what is neutral.
    pub(crate) fn begin_segment(
        &mut self,
        p: &LoopNest,
        line: &LineValues,
        [from, to]: [Value; 2],
        copies: Option<Interleaving>,
    ) -> Option<Option<LoopSegment>> {
        let Some(at) = p.folds.iter().zip(&line.folds).find_map(|(f, l)| {
            let lanes = f.as_ref().is_some_and(|f| f.order == Order::Lane);
            l.filter(|_| lanes)
        }) else {
            return Some(None);
        };
        let bits = p.lanes()?.block_bits();
        let place = self.b.ins().iadd(at.place, from);
        let last = self.long((1 << bits) - 1);
        let within = self.b.ins().band(place, last);
        self.when_zero(within, |unit| {
            for (f, at) in p.folds.iter().zip(&line.folds) {
                if let (Some(f), Some(at)) = (f, at)
                    && f.lanes.is_some()
                {
                    let neutral = unit.constant(f.neutral());
                    (0..QUADS).for_each(|quad| unit.store_lanes(at.start, quad, &neutral));
                }
            }
            Some(())
        })?;
        // A stretch ends with the block.
        let whole = self.long(1 << bits);
        let left = self.b.ins().isub(whole, within);
        let end = self.b.ins().iadd(from, left);
        let mut to = self.sooner(from, end, to);
        // One that begins between the lanes of vectors has single elements up to those.
        let grain = copies.map_or(1, |c| LANES * self.grain(p, line, c));
        let mask = self.long(i64::from(grain) - 1);
        let back = self.b.ins().ineg(place);
        let short = self.b.ins().band(back, mask);
        let end = self.b.ins().iadd(from, short);
        to = self.sooner(from, end, to);
        let zero = self.long(0);
        let aligned = self.b.ins().icmp(IntCC::Equal, short, zero);
        Some(Some(LoopSegment { place, to, aligned }))
    }

    /// The quads that vectors along a line begin at multiples of, counted in lanes.
    fn grain(&self, p: &LoopNest, line: &LineValues, copies: Interleaving) -> u32 {
        if self.lanes_held(p, line, copies) { QUADS } else { copies.most.next_power_of_two() }
    }

    /// Ends a stretch: where the block does, its lanes join.
    pub(crate) fn end_segment(
        &mut self,
        p: &LoopNest,
        line: &LineValues,
        s: &LoopSegment,
        [from, to]: [Value; 2],
    ) -> Option<()> {
        let lanes = p.lanes()?;
        let done = self.b.ins().isub(to, from);
        let end = self.b.ins().iadd(s.place, done);
        let last = self.long((1 << lanes.block_bits()) - 1);
        let within = self.b.ins().band(end, last);
        let size = self.long(lanes.size);
        let left = self.b.ins().isub(size, end);
        let zero = self.long(0);
        let short = self.b.ins().icmp(IntCC::Equal, left, zero);
        let within = self.b.ins().select(short, zero, within);
        self.when_zero(within, |unit| {
            for ((f, write), at) in p.folds.iter().zip(&p.writes).zip(&line.folds) {
                if let (Some(f), Some(at)) = (f, at)
                    && f.lanes.is_some()
                {
                    let first = unit.start(line, write)?;
                    let part = unit.part(f, first, s.place);
                    let joined = unit.join(f, at.start)?;
                    unit.b.ins().store(flags(), joined, part, 0);
                }
            }
            Some(())
        })
    }

    /// Halves the lanes until one is left. All are there, those without an element as what is neutral.
    fn join(&mut self, f: &WalkedFold, lanes: Value) -> Option<Value> {
        let all: Option<Vec<Quad>> =
            (0..QUADS).map(|quad| self.load_lanes(f.dtype, lanes, quad)).collect();
        let mut all = all?;
        while all.len() > 1 {
            let half = all.len() / 2;
            for k in 0..half {
                all[k] = self.combined(f, &all[k], &all[k + half])?;
            }
            all.truncate(half);
        }
        let pairs = match *all.first()? {
            Quad::Narrow(v) => {
                let high = self.words(v, v, [2, 3, 2, 3]);
                let high = self.bitcast(high, vector(f.dtype));
                [Quad::Narrow(v), Quad::Narrow(high)]
            }
            Quad::Wide([a, b]) => [Quad::Wide([a, a]), Quad::Wide([b, b])],
        };
        let pair = self.combined(f, &pairs[0], &pairs[1])?;
        let [a, b] = [0, 1].map(|lane| self.lane(&pair, f.dtype, lane));
        let joined = self.scalar(&instruction(f), f.dtype, &[a, b])?;
        Some(if f.negated() { self.b.ins().fneg(joined) } else { joined })
    }

    /// Combines vectors, what came first on the left.
    fn combined(&mut self, f: &WalkedFold, a: &Quad, x: &Quad) -> Option<Quad> {
        let least = f.monoid == Monoid::Min || f.negated();
        if !(f.dtype.is_float() && least) {
            return self.prim_quad(&instruction(f), f.dtype, &[*a, *x], &[None, None]);
        }
        // Each way round; the two differ between zeros, of which the bits of both are the lesser, and where
        // one is NaN, whose bits stay those of one.
        let mut parts: SmallVec<[Value; 2]> = SmallVec::new();
        for (&a, &x) in a.parts().iter().zip(x.parts()) {
            let [one, other] = [(a, x), (x, a)].map(|(a, x)| {
                let less = self.b.ins().fcmp(FloatCC::LessThan, a, x);
                self.select(less, a, x)
            });
            parts.push(self.b.ins().bor(one, other));
        }
        Quad::of(&parts)
    }

    /// Where the lane or the column of a coordinate is.
    fn fold_address(&mut self, f: &WalkedFold, at: &FoldLine, d: Value) -> Value {
        let element = match f.lanes {
            Some(_) => {
                let place = self.b.ins().iadd(at.place, d);
                let last = self.long(i64::from(QUADS * LANES) - 1);
                self.b.ins().band(place, last)
            }
            None => d,
        };
        let offset = self.times(element, f.dtype.bytes() as i64);
        self.b.ins().iadd(at.start, offset)
    }

    /// Folds the copies of an output.
    pub(crate) fn fold_quads(
        &mut self,
        f: &WalkedFold,
        line: &LineValues,
        k: usize,
        values: &[Quad],
        d: Value,
    ) -> Option<()> {
        let at = line.folds.get(k).copied().flatten()?;
        let mut held = std::mem::take(&mut self.lanes);
        let lanes = held.quads.get_mut(k).filter(|q| !q.is_empty());
        let address = match lanes {
            None => Some(self.fold_address(f, &at, d)),
            Some(_) => None,
        };
        for (x, copy) in values.iter().zip(0u32..) {
            let x = if f.negated() { self.negated(x)? } else { *x };
            match address {
                Some(address) => {
                    let before = self.load_lanes(f.dtype, address, copy)?;
                    let after = self.combined(f, &before, &x)?;
                    self.store_lanes(address, copy, &after);
                }
                None => {
                    let lane = held.quads.get_mut(k)?.get_mut(held.first + copy as usize)?;
                    *lane = self.combined(f, lane, &x)?;
                }
            }
        }
        self.lanes = held;
        Some(())
    }

    fn negated(&mut self, q: &Quad) -> Option<Quad> {
        let parts: SmallVec<[Value; 2]> = q.parts().iter().map(|&x| self.b.ins().fneg(x)).collect();
        Quad::of(&parts)
    }

    /// Folds one element.
    pub(crate) fn fold_element(
        &mut self,
        f: &WalkedFold,
        line: &LineValues,
        k: usize,
        value: Value,
        d: Value,
    ) -> Option<()> {
        let at = line.folds.get(k).copied().flatten()?;
        let value = if f.negated() { self.b.ins().fneg(value) } else { value };
        let address = self.fold_address(f, &at, d);
        let before = self.b.ins().load(register(f.dtype), flags(), address, 0);
        let after = self.scalar(&instruction(f), f.dtype, &[before, value])?;
        self.b.ins().store(flags(), after, address, 0);
        Some(())
    }

    /// Whether lanes are in registers along a line: where they fit beside a light body.
    pub(crate) fn lanes_held(&self, p: &LoopNest, line: &LineValues, copies: Interleaving) -> bool {
        let lanes = p.folds.iter().flatten().filter(|f| f.lanes.is_some());
        let count = |f: &WalkedFold| QUADS as usize * if wide(f.dtype) { 2 } else { 1 };
        let taken: usize = lanes.map(count).sum();
        let spread = line.spread.iter().flatten().count();
        let body = p.alive * HALF as usize;
        taken > 0 && copies.most == HALF && taken + body + spread <= REGISTERS
    }

    /// Vectors from a coordinate while all lanes fit below another, with the lanes in registers.
    pub(crate) fn held_lanes(
        &mut self,
        p: &LoopNest,
        line: &LineValues,
        [from, to]: [Value; 2],
    ) -> Option<Value> {
        let mut quads: Vec<Vec<Quad>> = Vec::new();
        for (f, at) in p.folds.iter().zip(&line.folds) {
            quads.push(match (f, at) {
                (Some(f), Some(at)) if f.lanes.is_some() => (0..QUADS)
                    .map(|quad| self.load_lanes(f.dtype, at.start, quad))
                    .collect::<Option<_>>()?,
                _ => Vec::new(),
            });
        }
        let flat = |quads: &[Vec<Quad>]| -> Vec<Value> {
            quads.iter().flatten().flat_map(|q| q.parts().to_vec()).collect()
        };
        let shaped = |values: &[Value], like: &[Vec<Quad>]| -> Option<Vec<Vec<Quad>>> {
            let mut rest = values;
            let mut one = |q: &Quad| {
                let (parts, after) = rest.split_at_checked(q.parts().len())?;
                rest = after;
                Quad::of(parts)
            };
            like.iter().map(|all| all.iter().map(&mut one).collect()).collect()
        };
        let step = (QUADS * LANES).into();
        let begin = flat(&quads);
        let (from, end) = self.looped_with(from, to, step, &begin, |unit, d, now| {
            unit.lanes.quads = shaped(now, &quads)?;
            for half in 0..QUADS / HALF {
                let by = unit.long((half * HALF * LANES).into());
                let d = unit.b.ins().iadd(d, by);
                unit.lanes.first = (half * HALF) as usize;
                unit.quads(p, line, d, HALF)?;
            }
            Some(flat(&std::mem::take(&mut unit.lanes).quads))
        })?;
        for (all, at) in shaped(&end, &quads)?.iter().zip(&line.folds) {
            for (q, quad) in all.iter().zip(0u32..) {
                self.store_lanes(at.as_ref()?.start, quad, q);
            }
        }
        Some(from)
    }
}

/// The operation as an instruction; its operands are handed beside it.
fn instruction(f: &WalkedFold) -> SInst {
    let op = match f.monoid {
        Monoid::Sum => Prim::Add,
        Monoid::Prod => Prim::Mul,
        Monoid::Max if !f.negated() => Prim::Max,
        Monoid::Max | Monoid::Min | Monoid::ArgMin => Prim::Min,
        Monoid::ArgMax => Prim::Max,
        Monoid::And => Prim::And,
        Monoid::Or => Prim::Or,
    };
    SInst { op: SOp::Prim(op), args: smallvec![], dtype: f.dtype }
}
