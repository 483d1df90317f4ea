//! Conversions of vectors, with the results of the scalar ones.

use super::state::{Quad, vector, wide};
use super::unit::FunctionEmitter;
use adfuse_ir::{DType, Literal};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use smallvec::SmallVec;

/// Whether it is held in 32-bit lanes as a number: what fits an `i32`, or is one modulo 2^32.
fn small_int(d: DType) -> bool {
    matches!(d, DType::I32 | DType::U32 | DType::I8 | DType::U8)
}

impl FunctionEmitter<'_, '_> {
    /// Whether a conversion has instructions for vectors.
    pub(crate) fn converts(&self, from: DType, to: DType) -> bool {
        use DType::{BF16, Bool, F16, F32, F64, I64};
        match (from, to) {
            (a, b) if a == b => true,
            (Bool, _) => true,
            (F32, F64 | BF16 | F16 | Bool) => true,
            (F32, d) => small_int(d),
            (F64, F32 | DType::I32 | Bool | DType::I8 | DType::U8) => true,
            (F64, _) => false,
            (BF16 | F16, d) => self.converts(F32, d),
            (I64, d) => matches!(d, F64 | Bool) || small_int(d),
            (DType::I8 | DType::U8, _) => true,
            (_, F32 | F64 | I64 | Bool) => true,
            (_, d) => small_int(d),
        }
    }

    /// The same numbers in another type; `None` for what has no vectors.
    pub(crate) fn convert_quad(&mut self, q: &Quad, from: DType, to: DType) -> Option<Quad> {
        use DType::{BF16, Bool, F16, F32, F64, I64};
        if from == to {
            return Some(*q);
        }
        match (from, to) {
            (_, Bool) => self.nonzero(q, from),
            (Bool, BF16 | F16) => {
                let numbers = self.convert_quad(q, Bool, F32)?;
                self.convert_quad(&numbers, F32, to)
            }
            (Bool, _) => {
                let one = self.constant(Literal::one(to));
                let mask = self.mask(q, wide(to));
                let ty = vector(to);
                let mut parts: SmallVec<[Value; 2]> = SmallVec::new();
                for (&m, &o) in mask.parts().iter().zip(one.parts()) {
                    let m = self.bitcast(m, ty);
                    parts.push(self.b.ins().band(m, o));
                }
                Quad::of(&parts)
            }
            _ => match (*q, wide(to)) {
                (Quad::Narrow(x), false) => Some(Quad::Narrow(self.convert_narrow(x, from, to)?)),
                (Quad::Narrow(x), true) => self.convert_up(x, from, to),
                (Quad::Wide(x), false) => Some(Quad::Narrow(self.convert_down(x, from, to)?)),
                (Quad::Wide([a, b]), true) if (from, to) == (I64, F64) => Some(Quad::Wide([
                    self.b.ins().fcvt_from_sint(types::F64X2, a),
                    self.b.ins().fcvt_from_sint(types::F64X2, b),
                ])),
                _ => None,
            },
        }
    }

    fn nonzero(&mut self, q: &Quad, from: DType) -> Option<Quad> {
        let q = match from {
            DType::BF16 | DType::F16 => self.convert_quad(q, from, DType::F32)?,
            _ => *q,
        };
        let mut parts: SmallVec<[Value; 2]> = SmallVec::new();
        for &x in q.parts() {
            let ty = self.b.func.dfg.value_type(x);
            let zero = self.every(ty, 0);
            parts.push(match ty.lane_type().is_float() {
                true => self.b.ins().fcmp(FloatCC::NotEqual, x, zero),
                false => self.b.ins().icmp(IntCC::NotEqual, x, zero),
            });
        }
        Quad::of(&parts)
    }

    /// From 32-bit lanes to 32-bit lanes.
    fn convert_narrow(&mut self, x: Value, from: DType, to: DType) -> Option<Value> {
        use DType::{BF16, F16, F32, U32};
        Some(match (from, to) {
            (BF16, F32) => {
                let by = self.int(types::I32, 16);
                let bits = self.b.ins().ishl(x, by);
                self.bitcast(bits, types::F32X4)
            }
            (F16, F32) => self.wide_f16(x),
            (F32, BF16) => self.narrow_bf16_lanes(x),
            (F32, F16) => self.narrow_f16_lanes(x),
            (BF16 | F16, d) => {
                let wide = self.convert_narrow(x, from, F32)?;
                self.convert_narrow(wide, F32, d)?
            }
            (F32, U32) => self.b.ins().fcvt_to_uint_sat(types::I32X4, x),
            (F32, d) => {
                let whole = self.b.ins().fcvt_to_sint_sat(types::I32X4, x);
                self.saturated(d, whole)
            }
            (U32, F32) => self.b.ins().fcvt_from_uint(types::F32X4, x),
            (_, F32) => self.b.ins().fcvt_from_sint(types::F32X4, x),
            (DType::I8 | DType::U8, BF16 | F16) => {
                let exact = self.b.ins().fcvt_from_sint(types::F32X4, x);
                self.convert_narrow(exact, F32, to)?
            }
            (_, d) if small_int(d) => self.wrapped_small_int(d, x),
            _ => return None,
        })
    }

    /// A 32-bit integer within the bounds of a type.
    fn saturated(&mut self, d: DType, x: Value) -> Value {
        let (least, most) = match d {
            DType::I8 => (-128i64, 127),
            DType::U8 => (0, 255),
            _ => return x,
        };
        let least = self.every(types::I32X4, least as u64);
        let most = self.every(types::I32X4, most);
        let x = self.b.ins().smax(x, least);
        self.b.ins().smin(x, most)
    }

    /// From 32-bit lanes to 64-bit lanes.
    fn convert_up(&mut self, x: Value, from: DType, to: DType) -> Option<Quad> {
        use DType::{BF16, F16, F32, F64, I64, U32};
        match (from, to) {
            (BF16 | F16, _) => {
                let wide = self.convert_narrow(x, from, F32)?;
                self.convert_up(wide, F32, to)
            }
            (F32, F64) => {
                let high = self.words(x, x, [2, 3, 2, 3]);
                let high = self.bitcast(high, types::F32X4);
                Some(Quad::Wide([self.b.ins().fvpromote_low(x), self.b.ins().fvpromote_low(high)]))
            }
            (_, F64 | I64) => {
                let high = self.words(x, x, [2, 3, 2, 3]);
                let mut both = [x, high];
                for part in &mut both {
                    // As sums of 64 bits first: conversions of halves are read off that.
                    *part = match (from, to) {
                        (U32, I64) => self.b.ins().uwiden_low(*part),
                        (U32, _) => {
                            let long = self.b.ins().uwiden_low(*part);
                            self.b.ins().fcvt_from_uint(types::F64X2, long)
                        }
                        (_, I64) => self.b.ins().swiden_low(*part),
                        _ => {
                            let long = self.b.ins().swiden_low(*part);
                            self.b.ins().fcvt_from_sint(types::F64X2, long)
                        }
                    };
                }
                Some(Quad::Wide(both))
            }
            _ => None,
        }
    }

    /// From 64-bit lanes to 32-bit lanes.
    fn convert_down(&mut self, [a, b]: [Value; 2], from: DType, to: DType) -> Option<Value> {
        Some(match (from, to) {
            (DType::F64, DType::F32) => {
                let (a, b) = (self.b.ins().fvdemote(a), self.b.ins().fvdemote(b));
                let both = self.words(a, b, [0, 1, 4, 5]);
                self.bitcast(both, types::F32X4)
            }
            (DType::F64, DType::I32 | DType::I8 | DType::U8) => {
                let mut both = [a, b];
                for part in &mut both {
                    let none = self.b.func.dfg.constants.insert([0u8; 16].as_slice().into());
                    let zero = self.b.ins().vconst(types::I64X2, none);
                    let whole = self.b.ins().fcvt_to_sint_sat(types::I64X2, *part);
                    *part = self.b.ins().snarrow(whole, zero);
                }
                let whole = self.words(both[0], both[1], [0, 1, 4, 5]);
                self.saturated(to, whole)
            }
            (DType::I64, d) if small_int(d) => {
                let low = self.low_halves(a, b);
                self.wrapped_small_int(d, low)
            }
            _ => return None,
        })
    }

    fn moved(&mut self, x: Value, by: i64) -> Value {
        let count = self.int(types::I32, by.abs());
        if by < 0 { self.b.ins().ushr(x, count) } else { self.b.ins().ishl(x, count) }
    }

    fn plus(&mut self, x: Value, c: i64) -> Value {
        let c = self.every(types::I32X4, c as u64);
        self.b.ins().iadd(x, c)
    }

    fn wide_f16(&mut self, bits: Value) -> Value {
        // The exponent is put right by a product with 2^112, which is exact for subnormals too.
        let magnitude = self.low_bits(bits, 0x7fff);
        let sign = self.low_bits(bits, 0x8000);
        let sign = self.moved(sign, 16);
        let moved = self.moved(magnitude, 13);
        let small = self.bitcast(moved, types::F32X4);
        let scale = self.every(types::F32X4, (127 + 112) << 23);
        let finite = self.b.ins().fmul(small, scale);
        let finite = self.bitcast(finite, types::I32X4);
        let top = self.every(types::I32X4, 0x7f80_0000);
        let special = self.b.ins().bor(moved, top);
        let most = self.every(types::I32X4, 0x7bff);
        let large = self.b.ins().icmp(IntCC::SignedGreaterThan, magnitude, most);
        let bits = self.select(large, special, finite);
        let bits = self.b.ins().bor(bits, sign);
        self.bitcast(bits, types::F32X4)
    }

    fn narrow_bf16_lanes(&mut self, x: Value) -> Value {
        let bits = self.bitcast(x, types::I32X4);
        let odd = self.moved(bits, -16);
        let odd = self.low_bits(odd, 1);
        let rounded = self.plus(bits, 0x7fff);
        let rounded = self.b.ins().iadd(rounded, odd);
        let rounded = self.moved(rounded, -16);
        self.unless_nan(x, rounded, 0x7fc0)
    }

    fn narrow_f16_lanes(&mut self, x: Value) -> Value {
        let bits = self.bitcast(x, types::I32X4);
        let sign = self.moved(bits, -16);
        let sign = self.low_bits(sign, 0x8000);
        let magnitude = self.low_bits(bits, 0x7fff_ffff);
        // Below 2^-14 the sum with 1/2 rounds to a multiple of 2^-24, the subnormals' step.
        let float = self.bitcast(magnitude, types::F32X4);
        let half = self.every(types::F32X4, 126 << 23);
        let tiny = self.b.ins().fadd(float, half);
        let tiny = self.bitcast(tiny, types::I32X4);
        let tiny = self.plus(tiny, -(126 << 23));
        let odd = self.moved(magnitude, -13);
        let odd = self.low_bits(odd, 1);
        let rounded = self.plus(magnitude, -(112i64 << 23) + 0xfff);
        let rounded = self.b.ins().iadd(rounded, odd);
        let rounded = self.moved(rounded, -13);
        // Magnitudes have no sign bit, so that comparisons with sign order them.
        let bound = self.every(types::I32X4, 113 << 23);
        let small = self.b.ins().icmp(IntCC::SignedLessThan, magnitude, bound);
        let finite = self.select(small, tiny, rounded);
        let infinite = self.every(types::I32X4, 0x7c00);
        let most = self.every(types::I32X4, (143 << 23) - 1);
        let large = self.b.ins().icmp(IntCC::SignedGreaterThan, magnitude, most);
        let value = self.select(large, infinite, finite);
        let signed = self.b.ins().bor(value, sign);
        self.unless_nan(x, signed, 0x7e00)
    }
}
