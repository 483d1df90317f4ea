//! Primitives on single elements, with the semantics of the interpreter of scalar programs, for every type.

use super::calls::RuntimeFunction;
use super::state::register;
use super::unit::FunctionEmitter;
use adfuse_ir::scalar::{Prim, SInst, SOp};
use adfuse_ir::{DType, Literal};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::immediates::{Ieee32, Ieee64};
use cranelift_codegen::ir::{Endianness, InstBuilder, MemFlagsData, Type, Value, types};

impl FunctionEmitter<'_, '_> {
    /// A constant.
    pub(crate) fn literal(&mut self, l: Literal) -> Value {
        let bits = l.bits();
        match l.dtype() {
            DType::F64 => self.b.ins().f64const(Ieee64::with_bits(bits)),
            DType::F32 => self.b.ins().f32const(Ieee32::with_bits(bits as u32)),
            d => {
                let narrow = match d.bytes() {
                    8 => bits as i64,
                    4 => i64::from(bits as u32 as i32),
                    2 => i64::from(bits as u16 as i16),
                    _ => i64::from(bits as u8 as i8),
                };
                self.int(register(d), narrow)
            }
        }
    }

    /// An integer constant, the same in every lane.
    pub(crate) fn int(&mut self, ty: Type, x: i64) -> Value {
        let lane = ty.lane_type();
        // Immediates hold no bits above the type's.
        let masked = match lane.bits() {
            64 => x,
            n => x & ((1i64 << n) - 1),
        };
        let one = self.b.ins().iconst(lane, masked);
        if ty.is_vector() { self.b.ins().splat(ty, one) } else { one }
    }

    /// The value of an instruction other than a parameter; `None` for what no expanded program holds.
    pub(crate) fn scalar(&mut self, inst: &SInst, from: DType, args: &[Value]) -> Option<Value> {
        match inst.op {
            SOp::Const(l) => Some(self.literal(l)),
            SOp::Prim(p) => self.prim(p, from, inst.dtype, args),
            SOp::Param(_) | SOp::Func(_) => None,
        }
    }

    fn prim(&mut self, p: Prim, from: DType, to: DType, args: &[Value]) -> Option<Value> {
        let x = *args.first()?;
        let y = args.get(1).copied().unwrap_or(x);
        match p {
            Prim::Select => Some(self.b.ins().select(x, y, *args.get(2)?)),
            Prim::Convert => self.convert(x, from, to),
            Prim::Bitcast => Some(self.bitcast(x, register(to))),
            Prim::Lookup(table) => {
                let entries = table.entries();
                let last = entries.len() as i64 - 1;
                let zero = self.int(types::I32, 0);
                let top = self.int(types::I32, last);
                let low = self.b.ins().icmp(IntCC::SignedLessThan, x, zero);
                let at = self.b.ins().select(low, zero, x);
                let high = self.b.ins().icmp(IntCC::SignedGreaterThan, at, top);
                let at = self.b.ins().select(high, top, at);
                let at = self.b.ins().uextend(types::I64, at);
                let at = self.b.ins().ishl_imm_s(at, 3);
                // The table lives as long as the process.
                let base = self.b.ins().iconst(types::I64, entries.as_ptr() as i64);
                let at = self.b.ins().iadd(base, at);
                Some(self.b.ins().load(types::I64, MemFlagsData::trusted(), at, 0))
            }
            Prim::Not if from == DType::Bool => Some(self.b.ins().bxor_imm_s(x, 1)),
            Prim::Shl | Prim::ShrL | Prim::ShrA => Some(self.shift(p, from, x, y)),
            Prim::Clz => Some(match from.bits() {
                8 => {
                    let wide = self.b.ins().uextend(types::I32, x);
                    let n = self.b.ins().clz(wide);
                    let n = self.b.ins().iadd_imm_s(n, -24);
                    self.b.ins().ireduce(types::I8, n)
                }
                _ => self.b.ins().clz(x),
            }),
            Prim::PopCount => Some(match from.bits() {
                8 => {
                    let wide = self.b.ins().uextend(types::I32, x);
                    let n = self.b.ins().popcnt(wide);
                    self.b.ins().ireduce(types::I8, n)
                }
                _ => self.b.ins().popcnt(x),
            }),
            Prim::MulHi if from == DType::I64 => Some(self.b.ins().umulhi(x, y)),
            Prim::MulHi => {
                let x = self.b.ins().uextend(types::I64, x);
                let y = self.b.ins().uextend(types::I64, y);
                let product = self.b.ins().imul(x, y);
                let high = self.b.ins().ushr_imm_s(product, 32);
                Some(self.b.ins().ireduce(types::I32, high))
            }
            _ => match self.direct(p, from, args) {
                None if from.is_float() => self.float(p, from, args),
                None => self.whole(p, from, x, y),
                made => made,
            },
        }
    }

    /// What Cranelift has one instruction for, of elements and of vectors alike. 8-bit integers in wider lanes are not made what
    /// they are in 8 bits.
    pub(crate) fn direct(&mut self, p: Prim, d: DType, args: &[Value]) -> Option<Value> {
        let x = *args.first()?;
        let y = args.get(1).copied().unwrap_or(x);
        let (float, truth) = (d.is_float(), d == DType::Bool);
        Some(match p {
            Prim::And => self.b.ins().band(x, y),
            Prim::Or => self.b.ins().bor(x, y),
            Prim::Xor => self.b.ins().bxor(x, y),
            Prim::Not => self.b.ins().bnot(x),
            Prim::Min if truth => self.b.ins().band(x, y),
            Prim::Max if truth => self.b.ins().bor(x, y),
            p if p.is_compare() && float => self.b.ins().fcmp(float_cc(p), x, y),
            p if p.is_compare() => self.b.ins().icmp(int_cc(p, d), x, y),
            Prim::Sqrt => self.b.ins().sqrt(x),
            Prim::Floor => self.b.ins().floor(x),
            Prim::Ceil => self.b.ins().ceil(x),
            Prim::RoundEven => self.b.ins().nearest(x),
            Prim::Trunc => self.b.ins().trunc(x),
            Prim::Fma if self.target.fma => self.b.ins().fma(x, y, *args.get(2)?),
            Prim::Add if float => self.b.ins().fadd(x, y),
            Prim::Sub if float => self.b.ins().fsub(x, y),
            Prim::Mul if float => self.b.ins().fmul(x, y),
            Prim::Div if float => self.b.ins().fdiv(x, y),
            Prim::Neg if float => self.b.ins().fneg(x),
            Prim::Abs if float => self.b.ins().fabs(x),
            Prim::Add => self.b.ins().iadd(x, y),
            Prim::Sub => self.b.ins().isub(x, y),
            Prim::Mul => self.b.ins().imul(x, y),
            Prim::Neg => self.b.ins().ineg(x),
            Prim::Abs if !d.is_signed_int() => x,
            _ => return None,
        })
    }

    pub(crate) fn bitcast(&mut self, x: Value, to: Type) -> Value {
        match self.b.func.dfg.value_type(x) == to {
            true => x,
            false => {
                let flags = MemFlagsData::new().with_endianness(Endianness::Little);
                self.b.ins().bitcast(to, flags, x)
            }
        }
    }

    fn shift(&mut self, p: Prim, d: DType, x: Value, count: Value) -> Value {
        let ty = register(d);
        let bits = i64::from(d.bits());
        let outside = self.int(ty, bits);
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, count, outside);
        if p == Prim::ShrA {
            let last = self.int(ty, bits - 1);
            let count = self.b.ins().select(inside, count, last);
            return self.b.ins().sshr(x, count);
        }
        let shifted = match p {
            Prim::Shl => self.b.ins().ishl(x, count),
            _ => self.b.ins().ushr(x, count),
        };
        let zero = self.int(ty, 0);
        self.b.ins().select(inside, shifted, zero)
    }

    /// What elements of floats have instructions for, or calls.
    fn float(&mut self, p: Prim, d: DType, args: &[Value]) -> Option<Value> {
        let (x, y) = (*args.first()?, args.get(1).or(args.first()).copied()?);
        let double = d == DType::F64;
        Some(match p {
            Prim::CopySign => self.b.ins().fcopysign(x, y),
            Prim::Min => self.b.ins().fmin(x, y),
            Prim::Max => self.b.ins().fmax(x, y),
            Prim::Fma if double => self.call(RuntimeFunction::Fma64, args)?,
            Prim::Fma => self.call(RuntimeFunction::Fma32, args)?,
            // Those of `f32` are written out.
            Prim::Rem if double => self.call(RuntimeFunction::Fmod64, args)?,
            _ => return None,
        })
    }

    pub(crate) fn call(&mut self, call: RuntimeFunction, args: &[Value]) -> Option<Value> {
        let f = self.calls.get(self.module, &mut self.b, call)?;
        let inst = self.b.ins().call(f, args);
        self.b.inst_results(inst).first().copied()
    }

    fn whole(&mut self, p: Prim, d: DType, x: Value, y: Value) -> Option<Value> {
        let signed = d.is_signed_int();
        let pick = |unit: &mut Self, cc| {
            let first = unit.b.ins().icmp(cc, x, y);
            unit.b.ins().select(first, x, y)
        };
        Some(match p {
            Prim::Abs if signed => {
                let zero = self.int(register(d), 0);
                let negative = self.b.ins().icmp(IntCC::SignedLessThan, x, zero);
                let opposite = self.b.ins().ineg(x);
                self.b.ins().select(negative, opposite, x)
            }
            Prim::Min if signed => pick(self, IntCC::SignedLessThan),
            Prim::Min => pick(self, IntCC::UnsignedLessThan),
            Prim::Max if signed => pick(self, IntCC::SignedGreaterThan),
            Prim::Max => pick(self, IntCC::UnsignedGreaterThan),
            Prim::Div | Prim::Rem => self.divide(p == Prim::Div, d, x, y),
            _ => return None,
        })
    }

    /// Quotient or remainder, without the cases in which the instruction stops the program.
    fn divide(&mut self, quotient: bool, d: DType, x: Value, y: Value) -> Value {
        let signed = d.is_signed_int();
        let narrow = d.bits() == 8;
        let ty = if narrow { types::I32 } else { register(d) };
        let widen = |unit: &mut Self, v| match (narrow, signed) {
            (false, _) => v,
            (true, true) => unit.b.ins().sextend(ty, v),
            (true, false) => unit.b.ins().uextend(ty, v),
        };
        let (x, y) = (widen(self, x), widen(self, y));
        let zero = self.b.ins().icmp_imm_s(IntCC::Equal, y, 0);
        let one = self.int(ty, 1);
        let mut safe = self.b.ins().select(zero, one, y);
        let mut minus = None;
        if signed {
            let m = self.b.ins().icmp_imm_s(IntCC::Equal, y, -1);
            safe = self.b.ins().select(m, one, safe);
            minus = Some(m);
        }
        let mut r = match (quotient, signed) {
            (true, true) => self.b.ins().sdiv(x, safe),
            (true, false) => self.b.ins().udiv(x, safe),
            (false, true) => self.b.ins().srem(x, safe),
            (false, false) => self.b.ins().urem(x, safe),
        };
        if let Some(minus) = minus.filter(|_| quotient) {
            let opposite = self.b.ins().ineg(x);
            r = self.b.ins().select(minus, opposite, r);
        }
        let of_zero = if quotient { self.int(ty, -1) } else { x };
        let r = self.b.ins().select(zero, of_zero, r);
        if narrow { self.b.ins().ireduce(types::I8, r) } else { r }
    }
}

fn float_cc(p: Prim) -> FloatCC {
    match p {
        Prim::Eq => FloatCC::Equal,
        Prim::Ne => FloatCC::NotEqual,
        Prim::Lt => FloatCC::LessThan,
        Prim::Le => FloatCC::LessThanOrEqual,
        Prim::Gt => FloatCC::GreaterThan,
        _ => FloatCC::GreaterThanOrEqual,
    }
}

fn int_cc(p: Prim, d: DType) -> IntCC {
    let signed = d.is_signed_int();
    match (p, signed) {
        (Prim::Eq, _) => IntCC::Equal,
        (Prim::Ne, _) => IntCC::NotEqual,
        (Prim::Lt, true) => IntCC::SignedLessThan,
        (Prim::Lt, false) => IntCC::UnsignedLessThan,
        (Prim::Le, true) => IntCC::SignedLessThanOrEqual,
        (Prim::Le, false) => IntCC::UnsignedLessThanOrEqual,
        (Prim::Gt, true) => IntCC::SignedGreaterThan,
        (Prim::Gt, false) => IntCC::UnsignedGreaterThan,
        (_, true) => IntCC::SignedGreaterThanOrEqual,
        (_, false) => IntCC::UnsignedGreaterThanOrEqual,
    }
}
