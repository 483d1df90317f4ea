//! Integers and single elements of loop programs as values of Cranelift.

use super::state::{flags, register};
use super::translate::LoopScope;
use super::unit::FunctionEmitter;
use crate::cpu::codegen::loop_program::{LoopCond, LoopOp};
use crate::cpu::codegen::reciprocal::Reciprocal;
use crate::cpu::codegen::vectorize::QUAD;
use adfuse_ir::{DType, Literal};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value, types};

impl FunctionEmitter<'_, '_> {
    /// The value of an operation.
    pub(crate) fn op(&mut self, s: &LoopScope<'_>, op: &LoopOp) -> Option<Value> {
        Some(match *op {
            LoopOp::Int(x) => self.long(x),
            LoopOp::Literal(l) => self.literal(l),
            LoopOp::Pointer(k) => {
                let offset = i32::try_from(u64::from(k) * 8).ok()?;
                self.b.ins().load(types::I64, MemFlagsData::trusted(), s.table, offset)
            }
            LoopOp::Tile(_) => return None,
            LoopOp::Repeated(l) => {
                let copies = self.most_copies(s.p);
                let bytes = u64::from(copies * QUAD) * l.dtype().bytes();
                let times = bytes.div_ceil(16).max(1);
                let offset = self.constants.place(in_memory(l), times as usize)?;
                let offset = self.long(offset.into());
                self.b.ins().iadd(self.constant_base, offset)
            }
            LoopOp::Add(a, b) => {
                let (a, b) = (self.get(s, a)?, self.get(s, b)?);
                self.b.ins().iadd(a, b)
            }
            LoopOp::Sub(a, b) => {
                let (a, b) = (self.get(s, a)?, self.get(s, b)?);
                self.b.ins().isub(a, b)
            }
            LoopOp::Mul(a, by) => {
                let a = self.get(s, a)?;
                self.times(a, by)
            }
            LoopOp::FloorDiv(a, by) => {
                let a = self.get(s, a)?;
                self.floor_div(a, by).0
            }
            LoopOp::Rem(a, by) => {
                let a = self.get(s, a)?;
                self.floor_div(a, by).1
            }
            LoopOp::Div(a, by) => {
                let a = self.get(s, a)?;
                match Reciprocal::of(by) {
                    Some(by) => self.multiplied(a, by),
                    None => {
                        let by = self.long(i64::from(by.trailing_zeros()));
                        self.b.ins().ushr(a, by)
                    }
                }
            }
            LoopOp::And(a, b) => {
                let (a, b) = (self.get(s, a)?, self.get(s, b)?);
                self.b.ins().band(a, b)
            }
            LoopOp::Min(a, b) => {
                let (a, b) = (self.get(s, a)?, self.get(s, b)?);
                let less = self.b.ins().icmp(IntCC::SignedLessThan, a, b);
                self.b.ins().select(less, a, b)
            }
            LoopOp::Max(a, b) => {
                let (a, b) = (self.get(s, a)?, self.get(s, b)?);
                let more = self.b.ins().icmp(IntCC::SignedGreaterThan, a, b);
                self.b.ins().select(more, a, b)
            }
            LoopOp::Bound(from, at, to) => {
                let (from, at, to) = (self.get(s, from)?, self.get(s, at)?, self.get(s, to)?);
                let after = self.b.ins().icmp(IntCC::SignedGreaterThan, at, from);
                let before = self.b.ins().icmp(IntCC::SignedLessThan, at, to);
                let between = self.b.ins().band(after, before);
                self.b.ins().select(between, at, to)
            }
            LoopOp::Within(v, start, length) => {
                let holds = self.cond(s, &LoopCond::Within(v, start, length))?;
                let (all, none) = (self.long(-1), self.long(0));
                self.b.ins().select(holds, all, none)
            }
            LoopOp::Load(..) | LoopOp::LoadBits(..) => return self.loaded(s, op),
            LoopOp::Widen(d, v) => {
                let v = self.get(s, v)?;
                self.resized(v, d, types::I64)
            }
        })
    }

    fn loaded(&mut self, s: &LoopScope<'_>, op: &LoopOp) -> Option<Value> {
        Some(match *op {
            LoopOp::Load(d, at) => {
                let at = self.get(s, at)?;
                self.load_element(d, at, 0)
            }
            LoopOp::LoadBits(d, bits, at, shift) => {
                let (at, shift) = (self.get(s, at)?, self.get(s, shift)?);
                let byte = self.b.ins().load(types::I8, flags(), at, 0);
                let word = self.b.ins().uextend(types::I32, byte);
                let shift = self.b.ins().ireduce(types::I32, shift);
                let moved = self.b.ins().ushr(word, shift);
                let mask = self.int(types::I32, (1i64 << bits) - 1);
                let value = self.b.ins().band(moved, mask);
                match register(d) {
                    types::I32 => value,
                    types::I64 => self.b.ins().uextend(types::I64, value),
                    ty => self.b.ins().ireduce(ty, value),
                }
            }
            _ => return None,
        })
    }

    /// An element of memory.
    pub(crate) fn load_element(&mut self, d: DType, at: Value, offset: i32) -> Value {
        let value = self.b.ins().load(register(d), flags(), at, offset);
        match d {
            // A caller's truth values may have any bits above the lowest.
            DType::Bool => {
                let one = self.int(types::I8, 1);
                self.b.ins().band(value, one)
            }
            _ => value,
        }
    }

    /// Whether a condition holds.
    pub(crate) fn cond(&mut self, s: &LoopScope<'_>, cond: &LoopCond) -> Option<Value> {
        Some(match *cond {
            LoopCond::Within(v, start, length) => {
                let v = self.get(s, v)?;
                let start = self.long(start);
                // One unsigned comparison does for both ends, since expressions keep to 62 bits.
                let above = self.b.ins().isub(v, start);
                let length = self.long(length);
                self.b.ins().icmp(IntCC::UnsignedLessThan, above, length)
            }
            LoopCond::Less(a, b) => {
                let (a, b) = (self.get(s, a)?, self.get(s, b)?);
                self.b.ins().icmp(IntCC::SignedLessThan, a, b)
            }
            LoopCond::Zero(v) => {
                let v = self.get(s, v)?;
                let zero = self.long(0);
                self.b.ins().icmp(IntCC::Equal, v, zero)
            }
        })
    }

    pub(crate) fn store_bits(&mut self, d: DType, bits: u8, [address, shift, value]: [Value; 3]) {
        let narrow = match register(d) {
            types::I8 => value,
            _ => self.b.ins().ireduce(types::I8, value),
        };
        let low = self.int(types::I8, (1i64 << bits) - 1);
        let shift = self.b.ins().ireduce(types::I8, shift);
        let new = self.b.ins().band(narrow, low);
        let new = self.b.ins().ishl(new, shift);
        let hole = self.b.ins().ishl(low, shift);
        let old = self.b.ins().load(types::I8, flags(), address, 0);
        let kept = self.b.ins().band_not(old, hole);
        let both = self.b.ins().bor(kept, new);
        self.b.ins().store(flags(), both, address, 0);
    }

    pub(crate) fn canonical(&mut self, d: DType, value: Value) -> Value {
        let nan = self.b.ins().fcmp(FloatCC::Unordered, value, value);
        let quiet = self.literal(Literal::from_f64(d, f64::NAN));
        self.b.ins().select(nan, quiet, value)
    }

    pub(crate) fn times(&mut self, a: Value, c: i64) -> Value {
        match c {
            1 => a,
            2 | 4 | 8 | 16 | 32 | 64 => {
                let by = self.long(i64::from(c.trailing_zeros()));
                self.b.ins().ishl(a, by)
            }
            c => {
                let c = self.long(c);
                self.b.ins().imul(a, c)
            }
        }
    }

    /// Quotient and remainder by a constant above 0, rounded down.
    fn floor_div(&mut self, a: Value, c: i64) -> (Value, Value) {
        let Some(reciprocal) = Reciprocal::of(c) else {
            let by = self.long(i64::from(c.trailing_zeros()));
            let mask = self.long(c - 1);
            return (self.b.ins().sshr(a, by), self.b.ins().band(a, mask));
        };
        // Below 0 a quotient is rounded down: of `-1 - a` it is `-1 -` that of `a`.
        let last = self.long(63);
        let sign = self.b.ins().sshr(a, last);
        let positive = self.b.ins().bxor(a, sign);
        let quotient = self.multiplied(positive, reciprocal);
        let quotient = self.b.ins().bxor(quotient, sign);
        let product = self.times(quotient, c);
        (quotient, self.b.ins().isub(a, product))
    }

    /// The quotient of what is not below 0.
    fn multiplied(&mut self, a: Value, by: Reciprocal) -> Value {
        let (multiplier, shift) = (self.long(by.multiplier as i64), self.long(by.shift.into()));
        let high = self.b.ins().umulhi(a, multiplier);
        self.b.ins().ushr(high, shift)
    }
}

/// A literal as memory holds it, as often as it fits.
fn in_memory(l: Literal) -> u128 {
    let bits = 8 * l.dtype().bytes() as u32;
    let one = u128::from(l.bits()) & ((1u128 << bits) - 1);
    (0..128 / bits).fold(0, |all, k| all | one << (k * bits))
}
