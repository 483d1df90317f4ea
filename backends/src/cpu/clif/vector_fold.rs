//! Folds in machine code: lanes and columns in memory, or lanes in registers if the body leaves enough of them.

use super::state::{Quad, flags, register, vector, wide};
use super::translate::LoopScope;
use super::unit::FunctionEmitter;
use crate::cpu::codegen::loop_program::{GroupFold, GroupShape, GroupWrite};
use crate::cpu::codegen::vectorize::QUAD;
use adfuse_ir::DType;
use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::{Prim, SInst, SOp};
use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use smallvec::{SmallVec, smallvec};

/// Quads of the 32 lanes of a block.
const QUADS: u32 = 8;

impl FunctionEmitter<'_, '_> {
    /// Sets a quad of columns to what is neutral.
    pub(crate) fn fill_columns(&mut self, s: &LoopScope<'_>, k: usize, d: Value) -> Option<()> {
        let &GroupWrite::Columns { fold, pointer } = s.p.writes.get(k)? else { return None };
        self.recent.clear();
        let all = self.constant(fold.neutral());
        let (pointer, offset) = (self.get(s, pointer)?, self.times(d, fold.dtype.bytes() as i64));
        let address = self.b.ins().iadd(pointer, offset);
        self.store_lanes(address, 0, &all);
        Some(())
    }

    /// Sets all lanes of an output to what is neutral.
    pub(crate) fn fill_lanes(&mut self, s: &LoopScope<'_>, k: usize) -> Option<()> {
        let &GroupWrite::Lanes { fold, pointer, .. } = s.p.writes.get(k)? else { return None };
        let neutral = self.constant(fold.neutral());
        let pointer = self.get(s, pointer)?;
        (0..QUADS).for_each(|quad| self.store_lanes(pointer, quad, &neutral));
        Some(())
    }

    /// Joins the lanes of an output, and stores the part.
    pub(crate) fn join_lanes(&mut self, s: &LoopScope<'_>, k: usize, to: Value) -> Option<()> {
        let &GroupWrite::Lanes { fold, pointer, .. } = s.p.writes.get(k)? else { return None };
        let pointer = self.get(s, pointer)?;
        let joined = self.join(&fold, pointer)?;
        self.b.ins().store(flags(), joined, to, 0);
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

    /// Halves the lanes until one is left. All are there, those without an element as what is neutral.
    fn join(&mut self, f: &GroupFold, lanes: Value) -> Option<Value> {
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
    fn combined(&mut self, f: &GroupFold, a: &Quad, x: &Quad) -> Option<Quad> {
        let least = f.monoid == Monoid::Min || f.negated();
        if !(f.dtype.is_float() && least && self.target.x86) {
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

    /// Folds the copies of an output.
    pub(crate) fn fold_quads(
        &mut self,
        s: &LoopScope<'_>,
        f: &GroupFold,
        k: usize,
        values: &[Quad],
        d: Value,
    ) -> Option<()> {
        let mut held = std::mem::take(&mut self.lanes);
        let address = match held.quads.get(k).filter(|q| !q.is_empty()) {
            Some(_) => None,
            None => {
                let (pointer, element) = match *s.p.writes.get(k)? {
                    GroupWrite::Lanes { pointer, place, .. } => {
                        let place = self.get(s, place)?;
                        let place = self.b.ins().iadd(place, d);
                        let last = self.long(i64::from(QUADS * QUAD) - 1);
                        (pointer, self.b.ins().band(place, last))
                    }
                    GroupWrite::Columns { pointer, .. } => (pointer, d),
                    _ => return None,
                };
                let (pointer, offset) =
                    (self.get(s, pointer)?, self.times(element, f.dtype.bytes() as i64));
                Some(self.b.ins().iadd(pointer, offset))
            }
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

    /// Combines an element with the one at an address.
    pub(crate) fn combine_element(
        &mut self,
        f: &GroupFold,
        address: Value,
        value: Value,
    ) -> Option<()> {
        let value = if f.negated() { self.b.ins().fneg(value) } else { value };
        let before = self.b.ins().load(register(f.dtype), flags(), address, 0);
        let after = self.scalar(&instruction(f), f.dtype, &[before, value])?;
        self.b.ins().store(flags(), after, address, 0);
        Some(())
    }

    /// Groups from a coordinate while all lanes fit below another, with the lanes in registers.
    pub(crate) fn held_groups(
        &mut self,
        s: &mut LoopScope<'_>,
        [from, to]: [Value; 2],
        shape: &GroupShape,
    ) -> Option<Value> {
        let mut quads: Vec<Vec<Quad>> = Vec::new();
        for write in &s.p.writes {
            quads.push(match *write {
                GroupWrite::Lanes { fold, pointer, .. } => {
                    let pointer = self.get(s, pointer)?;
                    (0..QUADS)
                        .map(|quad| self.load_lanes(fold.dtype, pointer, quad))
                        .collect::<Option<_>>()?
                }
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
        let step = i64::from(shape.copies * shape.rounds * QUAD);
        let begin = flat(&quads);
        let (from, end) = self.looped(from, to, step, &begin, |unit, d, now| {
            unit.lanes.quads = shaped(now, &quads)?;
            for round in 0..shape.rounds {
                let by = unit.long((round * shape.copies * QUAD).into());
                let d = unit.b.ins().iadd(d, by);
                unit.lanes.first = (round * shape.copies) as usize;
                unit.quads(s, d, shape.copies)?;
            }
            Some(flat(&std::mem::take(&mut unit.lanes).quads))
        })?;
        for (all, write) in shaped(&end, &quads)?.iter().zip(&s.p.writes) {
            let GroupWrite::Lanes { pointer, .. } = *write else { continue };
            let pointer = self.get(s, pointer)?;
            for (q, quad) in all.iter().zip(0u32..) {
                self.store_lanes(pointer, quad, q);
            }
        }
        Some(from)
    }
}

/// The operation as an instruction; its operands are handed beside it.
fn instruction(f: &GroupFold) -> SInst {
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
