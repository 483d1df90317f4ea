//! Primitives and conversions on vectors: those that have instructions.

use super::Unit;
use super::scalar::{float_cc, int_cc};
use super::vector::vector;
use adfuse_ir::scalar::{Prim, SInst, SOp};
use adfuse_ir::{DType, Literal};
use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{InstBuilder, Type, Value, types};

impl Unit<'_, '_> {
    /// `mask ? x : y`, lane by lane; the mask has integers of their width.
    pub(super) fn pick(&mut self, mask: Value, x: Value, y: Value) -> Value {
        let ty = self.b.func.dfg.value_type(x);
        let mask = self.bitcast(mask, ty);
        self.b.ins().bitselect(mask, x, y)
    }

    /// A primitive on vectors; `None` where it has no instruction, of which nothing is emitted then.
    pub(super) fn prim_vector(
        &mut self,
        inst: &SInst,
        from: DType,
        args: &[Value],
        known: &[Option<Literal>],
        lanes: u32,
    ) -> Option<Value> {
        let SOp::Prim(p) = inst.op else { return None };
        let ty = vector(inst.dtype, lanes)?;
        let x = *args.first()?;
        let y = args.get(1).copied().unwrap_or(x);
        let float = from.is_float() && from != DType::BF16;
        let int = from.is_int();
        Some(match p {
            Prim::Select => self.pick(x, y, *args.get(2)?),
            Prim::Bitcast => self.bitcast(x, ty),
            Prim::And => self.b.ins().band(x, y),
            Prim::Or => self.b.ins().bor(x, y),
            Prim::Xor => self.b.ins().bxor(x, y),
            Prim::Not => self.b.ins().bnot(x),
            Prim::Min if from == DType::Bool => self.b.ins().band(x, y),
            Prim::Max if from == DType::Bool => self.b.ins().bor(x, y),
            p if p.is_compare() && float => {
                let mask = self.b.ins().fcmp(float_cc(p), x, y);
                self.bitcast(mask, if lanes == 4 { types::I32X4 } else { types::I64X2 })
            }
            p if p.is_compare() && int => self.b.ins().icmp(int_cc(p, from), x, y),
            Prim::Add if float => self.b.ins().fadd(x, y),
            Prim::Sub if float => self.b.ins().fsub(x, y),
            Prim::Mul if float => self.b.ins().fmul(x, y),
            Prim::Div if float => self.b.ins().fdiv(x, y),
            Prim::Neg if float => self.b.ins().fneg(x),
            Prim::Abs if float => self.b.ins().fabs(x),
            Prim::Sqrt => self.b.ins().sqrt(x),
            Prim::Floor => self.b.ins().floor(x),
            Prim::Ceil => self.b.ins().ceil(x),
            Prim::RoundEven => self.b.ins().nearest(x),
            Prim::Trunc => self.b.ins().trunc(x),
            Prim::CopySign => {
                let sign = self.literal(Literal::from_f64(from, -0.0));
                let sign = self.b.ins().splat(ty, sign);
                self.b.ins().bitselect(sign, y, x)
            }
            Prim::Fma if self.host_fma => self.b.ins().fma(x, y, *args.get(2)?),
            Prim::Min | Prim::Max if float => self.extremum(p == Prim::Max, x, y, known),
            Prim::Add if int => self.b.ins().iadd(x, y),
            Prim::Sub if int => self.b.ins().isub(x, y),
            Prim::Neg if int => self.b.ins().ineg(x),
            Prim::Mul if int && lanes == 4 => self.b.ins().imul(x, y),
            Prim::Min if from == DType::I32 => self.b.ins().smin(x, y),
            Prim::Max if from == DType::I32 => self.b.ins().smax(x, y),
            Prim::Min if from == DType::U32 => self.b.ins().umin(x, y),
            Prim::Max if from == DType::U32 => self.b.ins().umax(x, y),
            Prim::Shl | Prim::ShrL | Prim::ShrA => {
                let by = (*known.get(1)?)?.bits();
                if by >= u64::from(from.bits()) {
                    return None;
                }
                let by = self.int(types::I32, by as i64);
                match p {
                    Prim::Shl => self.b.ins().ishl(x, by),
                    Prim::ShrL => self.b.ins().ushr(x, by),
                    _ => self.b.ins().sshr(x, by),
                }
            }
            Prim::Convert => return self.convert_vector(x, from, inst.dtype, ty),
            _ => return None,
        })
    }

    fn convert_vector(&mut self, x: Value, from: DType, to: DType, ty: Type) -> Option<Value> {
        Some(match (from, to) {
            (DType::I32, DType::F32) => self.b.ins().fcvt_from_sint(ty, x),
            (DType::F32, DType::I32) => self.b.ins().fcvt_to_sint_sat(ty, x),
            (DType::I32, DType::U32) | (DType::U32, DType::I32) => x,
            (DType::Bool, DType::F32 | DType::F64 | DType::I32 | DType::U32 | DType::I64) => {
                let one = self.literal(Literal::one(to));
                let one = self.b.ins().splat(ty, one);
                let mask = self.bitcast(x, ty);
                self.b.ins().band(mask, one)
            }
            (DType::BF16, DType::F32) => {
                let by = self.int(types::I32, 16);
                let bits = self.b.ins().ishl(x, by);
                self.bitcast(bits, types::F32X4)
            }
            (DType::F32, DType::BF16) => {
                let bits = self.bitcast(x, types::I32X4);
                let by = self.int(types::I32, 16);
                let odd = self.b.ins().ushr(bits, by);
                let one = self.int(types::I32X4, 1);
                let odd = self.b.ins().band(odd, one);
                let most = self.int(types::I32X4, 0x7fff);
                let rounded = self.b.ins().iadd(bits, most);
                let rounded = self.b.ins().iadd(rounded, odd);
                let rounded = self.b.ins().ushr(rounded, by);
                let nan = self.b.ins().fcmp(FloatCC::Unordered, x, x);
                let nan = self.bitcast(nan, types::I32X4);
                let quiet = self.int(types::I32X4, 0x7fc0);
                self.pick(nan, quiet, rounded)
            }
            _ => return None,
        })
    }

    /// The larger or the smaller. A constant other than NaN, and other than the zero that loses, needs
    /// one comparison; else equal operands are joined by their bits, which only differ between zeros.
    fn extremum(&mut self, max: bool, x: Value, y: Value, known: &[Option<Literal>]) -> Value {
        let plain = |l: &Option<Literal>| {
            l.is_some_and(|l| {
                let loses = if max { -0.0f64 } else { 0.0 };
                !l.to_f64().is_nan() && l.to_f64().to_bits() != loses.to_bits()
            })
        };
        let beyond =
            if max { FloatCC::UnorderedOrGreaterThan } else { FloatCC::UnorderedOrLessThan };
        let constant = match known {
            [_, c] if plain(c) => Some((x, y)),
            [c, _] if plain(c) => Some((y, x)),
            _ => None,
        };
        if let Some((x, c)) = constant {
            let further = self.b.ins().fcmp(beyond, x, c);
            return self.pick(further, x, c);
        }
        let cc = if max { FloatCC::GreaterThan } else { FloatCC::LessThan };
        let further = self.b.ins().fcmp(cc, x, y);
        let better = self.pick(further, x, y);
        let same = self.b.ins().fcmp(FloatCC::Equal, x, y);
        let joined = if max { self.b.ins().band(x, y) } else { self.b.ins().bor(x, y) };
        let better = self.pick(same, joined, better);
        let nan = self.b.ins().fcmp(FloatCC::Unordered, x, x);
        self.pick(nan, x, better)
    }
}
