//! Conversions between element types, one element at a time.
//!
//! Each rounds once, to nearest even; floats truncate and saturate to integers; integers wrap. 16-bit floats are held
//! as integers and are converted with integer instructions.

use super::calls::RuntimeFunction;
use super::state::register;
use super::unit::FunctionEmitter;
use adfuse_ir::DType;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::immediates::Ieee32;
use cranelift_codegen::ir::{InstBuilder, Type, Value, types};

impl FunctionEmitter<'_, '_> {
    /// The same number in another type.
    pub(crate) fn convert(&mut self, x: Value, from: DType, to: DType) -> Option<Value> {
        if from == to {
            return Some(x);
        }
        match (from, to) {
            (DType::BF16 | DType::F16, _) => {
                let wide = self.widened(x, from);
                self.convert(wide, DType::F32, to)
            }
            (DType::F32, DType::BF16) => Some(self.narrow_bf16(x)),
            (DType::F32, DType::F16) => Some(self.narrow_f16(x)),
            (DType::F64, DType::BF16 | DType::F16) => {
                let call = if to == DType::BF16 {
                    RuntimeFunction::ToBf16
                } else {
                    RuntimeFunction::ToF16
                };
                let bits = self.call(call, &[x])?;
                Some(self.b.ins().ireduce(types::I16, bits))
            }
            (DType::F32, DType::F64) => Some(self.b.ins().fpromote(types::F64, x)),
            (DType::F64, DType::F32) => Some(self.b.ins().fdemote(types::F32, x)),
            (DType::F32 | DType::F64, _) => Some(self.truncated(x, from, to)),
            (_, DType::BF16 | DType::F16) => {
                let double = self.convert(x, from, DType::F64)?;
                self.convert(double, DType::F64, to)
            }
            (_, DType::F32 | DType::F64) => {
                let wide = self.resized(x, from, types::I64);
                Some(self.b.ins().fcvt_from_sint(register(to), wide))
            }
            (_, DType::Bool) => Some(self.b.ins().icmp_imm_s(IntCC::NotEqual, x, 0)),
            _ => Some(self.resized(x, from, register(to))),
        }
    }

    /// An integer in another width.
    pub(crate) fn resized(&mut self, x: Value, from: DType, to: Type) -> Value {
        match register(from).bits().cmp(&to.bits()) {
            std::cmp::Ordering::Equal => x,
            std::cmp::Ordering::Greater => self.b.ins().ireduce(to, x),
            std::cmp::Ordering::Less if from.is_signed_int() => self.b.ins().sextend(to, x),
            std::cmp::Ordering::Less => self.b.ins().uextend(to, x),
        }
    }

    /// A float as an integer, truncated and saturated; NaN is 0.
    fn truncated(&mut self, x: Value, from: DType, to: DType) -> Value {
        match to {
            DType::Bool => {
                let zero = self.literal(adfuse_ir::Literal::zero(from));
                self.b.ins().fcmp(FloatCC::NotEqual, x, zero)
            }
            DType::I64 => self.b.ins().fcvt_to_sint_sat(types::I64, x),
            DType::I32 => self.b.ins().fcvt_to_sint_sat(types::I32, x),
            DType::U32 => self.b.ins().fcvt_to_uint_sat(types::I32, x),
            _ => {
                let (least, most) = if to == DType::I8 { (-128, 127) } else { (0, 255) };
                let whole = self.b.ins().fcvt_to_sint_sat(types::I32, x);
                let (least, most) = (self.int(types::I32, least), self.int(types::I32, most));
                let low = self.b.ins().icmp(IntCC::SignedLessThan, whole, least);
                let whole = self.b.ins().select(low, least, whole);
                let high = self.b.ins().icmp(IntCC::SignedGreaterThan, whole, most);
                let whole = self.b.ins().select(high, most, whole);
                self.b.ins().ireduce(types::I8, whole)
            }
        }
    }

    /// A 16-bit float as `f32`.
    fn widened(&mut self, x: Value, from: DType) -> Value {
        let bits = self.b.ins().uextend(types::I32, x);
        if from == DType::BF16 {
            let bits = self.b.ins().ishl_imm_s(bits, 16);
            return self.bitcast(bits, types::F32);
        }
        // The exponent is put right by a product with 2^112, which is exact for subnormals too.
        let magnitude = self.b.ins().band_imm_s(bits, 0x7fff);
        let sign = self.b.ins().band_imm_s(bits, 0x8000);
        let sign = self.b.ins().ishl_imm_s(sign, 16);
        let moved = self.b.ins().ishl_imm_s(magnitude, 13);
        let small = self.bitcast(moved, types::F32);
        let scale = self.b.ins().f32const(Ieee32::with_bits((127 + 112) << 23));
        let finite = self.b.ins().fmul(small, scale);
        let finite = self.bitcast(finite, types::I32);
        let special = self.b.ins().bor_imm_s(moved, 0x7f80_0000);
        let large = self.b.ins().icmp_imm_s(IntCC::UnsignedGreaterThanOrEqual, magnitude, 0x7c00);
        let bits = self.b.ins().select(large, special, finite);
        let bits = self.b.ins().bor(bits, sign);
        self.bitcast(bits, types::F32)
    }

    fn narrow_bf16(&mut self, x: Value) -> Value {
        let bits = self.bitcast(x, types::I32);
        let odd = self.b.ins().ushr_imm_s(bits, 16);
        let odd = self.b.ins().band_imm_s(odd, 1);
        let rounded = self.b.ins().iadd_imm_s(bits, 0x7fff);
        let rounded = self.b.ins().iadd(rounded, odd);
        let rounded = self.b.ins().ushr_imm_s(rounded, 16);
        let nan = self.b.ins().fcmp(FloatCC::Unordered, x, x);
        let quiet = self.int(types::I32, 0x7fc0);
        let bits = self.b.ins().select(nan, quiet, rounded);
        self.b.ins().ireduce(types::I16, bits)
    }

    fn narrow_f16(&mut self, x: Value) -> Value {
        let bits = self.bitcast(x, types::I32);
        let sign = self.b.ins().ushr_imm_s(bits, 16);
        let sign = self.b.ins().band_imm_s(sign, 0x8000);
        let magnitude = self.b.ins().band_imm_s(bits, 0x7fff_ffff);
        // Below 2^-14 the sum with 1/2 rounds to a multiple of 2^-24, the subnormals' step.
        let float = self.bitcast(magnitude, types::F32);
        let half = self.b.ins().f32const(Ieee32::with_bits(126 << 23));
        let tiny = self.b.ins().fadd(float, half);
        let tiny = self.bitcast(tiny, types::I32);
        let tiny = self.b.ins().iadd_imm_s(tiny, -(126i64 << 23));
        let odd = self.b.ins().ushr_imm_s(magnitude, 13);
        let odd = self.b.ins().band_imm_s(odd, 1);
        let rounded = self.b.ins().iadd_imm_s(magnitude, -(112i64 << 23) + 0xfff);
        let rounded = self.b.ins().iadd(rounded, odd);
        let rounded = self.b.ins().ushr_imm_s(rounded, 13);
        let small = self.b.ins().icmp_imm_s(IntCC::UnsignedLessThan, magnitude, 113 << 23);
        let finite = self.b.ins().select(small, tiny, rounded);
        let infinite = self.int(types::I32, 0x7c00);
        let large =
            self.b.ins().icmp_imm_s(IntCC::UnsignedGreaterThanOrEqual, magnitude, 143 << 23);
        let value = self.b.ins().select(large, infinite, finite);
        let signed = self.b.ins().bor(value, sign);
        let nan = self.b.ins().fcmp(FloatCC::Unordered, x, x);
        let quiet = self.int(types::I32, 0x7e00);
        let bits = self.b.ins().select(nan, quiet, signed);
        self.b.ins().ireduce(types::I16, bits)
    }
}
