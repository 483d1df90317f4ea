//! Instruction selection for primitives on groups, with the bits of the interpreter of scalar programs.

use super::inst::{RegWidth, VirtualOperand, VirtualReg};
use super::state::{BodyLowering, GroupValue, OpcodePair, ReadOperand, long};
use crate::cpu::codegen::vector_width::Unsupported;
use adfuse_ir::scalar::{Prim, SInst, SOp};
use adfuse_ir::{DType, Literal};
use iced_x86::Code;
use smallvec::SmallVec;

/// The instructions of both widths.
macro_rules! pair {
    ($a:ident, $b:ident) => {
        OpcodePair(Code::$a, Code::$b)
    };
}
pub(crate) use pair;

pub(crate) const AND: OpcodePair =
    pair!(EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32, VEX_Vpand_ymm_ymm_ymmm256);
pub(crate) const AND_LONG: OpcodePair =
    pair!(EVEX_Vpandq_zmm_k1z_zmm_zmmm512b64, VEX_Vpand_ymm_ymm_ymmm256);
pub(crate) const OR: OpcodePair =
    pair!(EVEX_Vpord_zmm_k1z_zmm_zmmm512b32, VEX_Vpor_ymm_ymm_ymmm256);
pub(crate) const OR_LONG: OpcodePair =
    pair!(EVEX_Vporq_zmm_k1z_zmm_zmmm512b64, VEX_Vpor_ymm_ymm_ymmm256);
pub(crate) const XOR: OpcodePair =
    pair!(EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32, VEX_Vpxor_ymm_ymm_ymmm256);
pub(crate) const XOR_LONG: OpcodePair =
    pair!(EVEX_Vpxorq_zmm_k1z_zmm_zmmm512b64, VEX_Vpxor_ymm_ymm_ymmm256);
pub(crate) const ADD_INT: OpcodePair =
    pair!(EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32, VEX_Vpaddd_ymm_ymm_ymmm256);
pub(crate) const ADD_LONG: OpcodePair =
    pair!(EVEX_Vpaddq_zmm_k1z_zmm_zmmm512b64, VEX_Vpaddq_ymm_ymm_ymmm256);
pub(crate) const SUB_INT: OpcodePair =
    pair!(EVEX_Vpsubd_zmm_k1z_zmm_zmmm512b32, VEX_Vpsubd_ymm_ymm_ymmm256);
pub(crate) const SUB_LONG: OpcodePair =
    pair!(EVEX_Vpsubq_zmm_k1z_zmm_zmmm512b64, VEX_Vpsubq_ymm_ymm_ymmm256);
pub(crate) const SHL: OpcodePair =
    pair!(EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8, VEX_Vpslld_ymm_ymm_imm8);
pub(crate) const SHR: OpcodePair =
    pair!(EVEX_Vpsrld_zmm_k1z_zmmm512b32_imm8, VEX_Vpsrld_ymm_ymm_imm8);
pub(crate) const SAR: OpcodePair =
    pair!(EVEX_Vpsrad_zmm_k1z_zmmm512b32_imm8, VEX_Vpsrad_ymm_ymm_imm8);
pub(crate) const SHL_LONG: OpcodePair =
    pair!(EVEX_Vpsllq_zmm_k1z_zmmm512b64_imm8, VEX_Vpsllq_ymm_ymm_imm8);
pub(crate) const SHR_LONG: OpcodePair =
    pair!(EVEX_Vpsrlq_zmm_k1z_zmmm512b64_imm8, VEX_Vpsrlq_ymm_ymm_imm8);

/// The arithmetic of floats that has one instruction.
pub(crate) fn float(p: Prim, eight: bool) -> Option<OpcodePair> {
    Some(match (p, eight) {
        (Prim::Add, false) => {
            pair!(EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vaddps_ymm_ymm_ymmm256)
        }
        (Prim::Add, true) => {
            pair!(EVEX_Vaddpd_zmm_k1z_zmm_zmmm512b64_er, VEX_Vaddpd_ymm_ymm_ymmm256)
        }
        (Prim::Sub, false) => {
            pair!(EVEX_Vsubps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vsubps_ymm_ymm_ymmm256)
        }
        (Prim::Sub, true) => {
            pair!(EVEX_Vsubpd_zmm_k1z_zmm_zmmm512b64_er, VEX_Vsubpd_ymm_ymm_ymmm256)
        }
        (Prim::Mul, false) => {
            pair!(EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vmulps_ymm_ymm_ymmm256)
        }
        (Prim::Mul, true) => {
            pair!(EVEX_Vmulpd_zmm_k1z_zmm_zmmm512b64_er, VEX_Vmulpd_ymm_ymm_ymmm256)
        }
        (Prim::Div, false) => {
            pair!(EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vdivps_ymm_ymm_ymmm256)
        }
        (Prim::Div, true) => {
            pair!(EVEX_Vdivpd_zmm_k1z_zmm_zmmm512b64_er, VEX_Vdivpd_ymm_ymm_ymmm256)
        }
        (Prim::Sqrt, false) => pair!(EVEX_Vsqrtps_zmm_k1z_zmmm512b32_er, VEX_Vsqrtps_ymm_ymmm256),
        (Prim::Sqrt, true) => pair!(EVEX_Vsqrtpd_zmm_k1z_zmmm512b64_er, VEX_Vsqrtpd_ymm_ymmm256),
        _ => return None,
    })
}

/// Arithmetic of integers that has one instruction: in 32 bits, in 64 bits.
pub(crate) fn whole(p: Prim, eight: bool) -> Option<OpcodePair> {
    Some(match (p, eight) {
        (Prim::Add, false) => ADD_INT,
        (Prim::Add, true) => ADD_LONG,
        (Prim::Sub, false) => SUB_INT,
        (Prim::Sub, true) => SUB_LONG,
        (Prim::Mul, false) => {
            pair!(EVEX_Vpmulld_zmm_k1z_zmm_zmmm512b32, VEX_Vpmulld_ymm_ymm_ymmm256)
        }
        _ => return None,
    })
}

fn fma(eight: bool, addend_last: bool) -> OpcodePair {
    match (eight, addend_last) {
        (false, true) => {
            pair!(EVEX_Vfmadd213ps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vfmadd213ps_ymm_ymm_ymmm256)
        }
        (true, true) => {
            pair!(EVEX_Vfmadd213pd_zmm_k1z_zmm_zmmm512b64_er, VEX_Vfmadd213pd_ymm_ymm_ymmm256)
        }
        (false, false) => {
            pair!(EVEX_Vfmadd132ps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vfmadd132ps_ymm_ymm_ymmm256)
        }
        (true, false) => {
            pair!(EVEX_Vfmadd132pd_zmm_k1z_zmm_zmmm512b64_er, VEX_Vfmadd132pd_ymm_ymm_ymmm256)
        }
    }
}

impl BodyLowering<'_> {
    /// The result of an instruction.
    pub(crate) fn inst(
        &mut self,
        inst: &SInst,
        args: &[GroupValue],
    ) -> Result<GroupValue, Unsupported> {
        let SOp::Prim(p) = inst.op else { return Err(Unsupported::Order) };
        let from = self.p.body.source(inst);
        let Some(&first) = args.first() else { return Err(Unsupported::Order) };
        let known: SmallVec<[Option<Literal>; 3]> =
            inst.args.iter().map(|&a| self.p.body.constant(a)).collect();
        match p {
            Prim::Convert => self.convert(&first, from, inst.dtype),
            Prim::Bitcast if inst.dtype != DType::Bool && from.bytes() == inst.dtype.bytes() => {
                let d = inst.dtype;
                self.each(&[first], |low, x, _| Ok(low.wrapped_small_int(d, x[0])))
            }
            Prim::Select => self.select_prim(inst.dtype, args),
            Prim::Lookup(table) => self.lookup(table, &first),
            Prim::Bitcast => match from {
                DType::Bool => self.logic(p, args),
                _ => Err(Unsupported::Prim(p, from)),
            },
            Prim::Eq | Prim::Ne | Prim::Lt | Prim::Le | Prim::Gt | Prim::Ge => match from {
                DType::Bool => self.logic(p, args),
                _ => self.compare_all(p, from, args),
            },
            Prim::And | Prim::Or | Prim::Xor | Prim::Not | Prim::Min | Prim::Max
                if from == DType::Bool =>
            {
                self.logic(p, args)
            }
            Prim::Add
            | Prim::Sub
            | Prim::Mul
            | Prim::Div
            | Prim::Rem
            | Prim::Neg
            | Prim::Abs
            | Prim::Fma
            | Prim::Sqrt
            | Prim::Floor
            | Prim::Ceil
            | Prim::RoundEven
            | Prim::Trunc
            | Prim::CopySign
            | Prim::Min
            | Prim::Max
            | Prim::And
            | Prim::Or
            | Prim::Xor
            | Prim::Not
            | Prim::Shl
            | Prim::ShrL
            | Prim::ShrA
            | Prim::MulHi
            | Prim::Clz
            | Prim::PopCount => self.each(args, |low, x, _| low.part(p, from, x, &known)),
        }
    }

    /// The same on each part.
    pub(crate) fn each(
        &mut self,
        args: &[GroupValue],
        mut f: impl FnMut(&mut Self, &[ReadOperand], usize) -> Result<ReadOperand, Unsupported>,
    ) -> Result<GroupValue, Unsupported> {
        let count = args.first().map_or(0, |a| a.parts().len());
        let mut parts: SmallVec<[ReadOperand; 2]> = SmallVec::new();
        for k in 0..count {
            let given: Option<SmallVec<[ReadOperand; 3]>> =
                args.iter().map(|a| a.parts().get(k).copied()).collect();
            parts.push(f(self, &given.ok_or(Unsupported::Order)?, k)?);
        }
        Ok(GroupValue::of(&parts))
    }

    pub(crate) fn part(
        &mut self,
        p: Prim,
        d: DType,
        x: &[ReadOperand],
        known: &[Option<Literal>],
    ) -> Result<ReadOperand, Unsupported> {
        let none = Unsupported::Prim(p, d);
        let eight = long(d);
        let a = x[0];
        let b = x.get(1).copied().unwrap_or(a);
        let sign = Literal::from_f64(if eight { DType::F64 } else { DType::F32 }, -0.0).bits();
        let bytes = if eight { 8 } else { 4 };
        let (and, or, xor) = match eight {
            true => (AND_LONG, OR_LONG, XOR_LONG),
            false => (AND, OR, XOR),
        };
        if d.is_float() {
            if !matches!(d, DType::F32 | DType::F64) {
                return Err(none);
            }
            return Ok(match p {
                Prim::Add | Prim::Mul => {
                    let pair = float(p, eight).ok_or(none)?;
                    // The first operand of two NaNs wins, so that operands keep their order where both may
                    // be one.
                    match (a, b) {
                        (ReadOperand::Const(..), ReadOperand::Reg(_)) if !nan(known, 0) => {
                            self.op(pair, &[b, a])
                        }
                        _ => self.op(pair, &[a, b]),
                    }
                }
                Prim::Sub | Prim::Div => self.op(float(p, eight).ok_or(none)?, &[a, b]),
                Prim::Sqrt => self.op(float(p, eight).ok_or(none)?, &[a]),
                Prim::Neg => self.op(xor, &[a, ReadOperand::Const(sign, bytes)]),
                Prim::Abs => {
                    let mask = if eight { !sign } else { sign ^ 0xffff_ffff };
                    self.op(and, &[a, ReadOperand::Const(mask, bytes)])
                }
                Prim::Floor | Prim::Ceil | Prim::RoundEven | Prim::Trunc => {
                    self.rounded(p, a, eight)
                }
                Prim::CopySign => self.copy_sign(a, b, sign, eight),
                Prim::Fma => self.fused(x, eight),
                Prim::Min | Prim::Max => self.extremum(p == Prim::Max, d, a, b, known),
                Prim::Rem if eight && self.wide => self.float_remainder(a, b),
                Prim::Rem
                | Prim::And
                | Prim::Or
                | Prim::Xor
                | Prim::Not
                | Prim::Shl
                | Prim::ShrL
                | Prim::ShrA
                | Prim::MulHi
                | Prim::Clz
                | Prim::PopCount
                | Prim::Eq
                | Prim::Ne
                | Prim::Lt
                | Prim::Le
                | Prim::Gt
                | Prim::Ge
                | Prim::Select
                | Prim::Convert
                | Prim::Bitcast
                | Prim::Lookup(_) => return Err(none),
            });
        }
        let found = match p {
            Prim::Add | Prim::Mul if whole(p, eight).is_some() => {
                let pair = whole(p, eight).ok_or(none)?;
                self.either(pair, a, b)
            }
            Prim::Sub => self.op(whole(p, eight).ok_or(none)?, &[a, b]),
            Prim::Mul => self.long_product(a, b),
            Prim::And => self.either(and, a, b),
            Prim::Or => self.either(or, a, b),
            Prim::Xor => self.either(xor, a, b),
            Prim::Not => {
                let ones = if eight { u64::MAX } else { 0xffff_ffff };
                self.op(xor, &[a, ReadOperand::Const(ones, bytes)])
            }
            Prim::Neg => {
                let sub = if eight { SUB_LONG } else { SUB_INT };
                self.op(sub, &[ReadOperand::Const(0, bytes), a])
            }
            Prim::Abs if !d.is_signed_int() => a,
            Prim::Abs => self.absolute(a, eight),
            Prim::Min | Prim::Max => self.int_extremum(p == Prim::Max, d, a, b),
            Prim::MulHi if d.bytes() == 4 => self.high_product(a, b),
            Prim::MulHi => self.high_long_product(a, b),
            Prim::Shl | Prim::ShrL | Prim::ShrA => {
                self.shift(p, d, a, b, known.get(1).copied().flatten())
            }
            Prim::Div | Prim::Rem if eight => self.long_quotient(p == Prim::Rem, a, b),
            Prim::Div => self.quotient(d, a, b)?,
            Prim::Rem => self.remainder(d, a, b)?,
            Prim::PopCount => self.ones(d, a),
            Prim::Clz => self.zeros(d, a),
            Prim::Add
            | Prim::Fma
            | Prim::Sqrt
            | Prim::Floor
            | Prim::Ceil
            | Prim::RoundEven
            | Prim::Trunc
            | Prim::CopySign
            | Prim::Eq
            | Prim::Ne
            | Prim::Lt
            | Prim::Le
            | Prim::Gt
            | Prim::Ge
            | Prim::Select
            | Prim::Convert
            | Prim::Bitcast
            | Prim::Lookup(_) => return Err(none),
        };
        Ok(self.wrapped_small_int(d, found))
    }

    /// 8-bit integers in 32-bit lanes, made what they are in 8 bits.
    pub(crate) fn wrapped_small_int(&mut self, d: DType, x: ReadOperand) -> ReadOperand {
        match d {
            DType::I8 => {
                let high = self.by(SHL, x, 24);
                self.by(SAR, high, 24)
            }
            DType::U8 => self.op(AND, &[x, ReadOperand::Const(0xff, 4)]),
            _ => x,
        }
    }

    fn rounded(&mut self, p: Prim, x: ReadOperand, eight: bool) -> ReadOperand {
        let pair = match eight {
            true => {
                pair!(EVEX_Vrndscalepd_zmm_k1z_zmmm512b64_imm8_sae, VEX_Vroundpd_ymm_ymmm256_imm8)
            }
            false => {
                pair!(EVEX_Vrndscaleps_zmm_k1z_zmmm512b32_imm8_sae, VEX_Vroundps_ymm_ymmm256_imm8)
            }
        };
        let mode = match p {
            Prim::RoundEven => 0,
            Prim::Floor => 1,
            Prim::Ceil => 2,
            _ => 3,
        };
        self.op_byte(pair, &[x], Some(8 | mode))
    }

    pub(crate) fn copy_sign(
        &mut self,
        x: ReadOperand,
        y: ReadOperand,
        sign: u64,
        eight: bool,
    ) -> ReadOperand {
        let bytes = if eight { 8 } else { 4 };
        if self.wide {
            let (x, y) = (self.reg(x), self.reg(y));
            let code = match eight {
                true => Code::EVEX_Vpternlogq_zmm_k1z_zmm_zmmm512b64_imm8,
                false => Code::EVEX_Vpternlogd_zmm_k1z_zmm_zmmm512b32_imm8,
            };
            let sign = self.any(ReadOperand::Const(sign, bytes));
            // The third chooses the second over the first.
            let args = [self.whole(y), sign, VirtualOperand::Byte(0xd8)];
            return ReadOperand::Reg(
                self.make_with(code, RegWidth::Z, &args, |i| i.tied = Some(x)),
            );
        }
        let others = if eight { !sign } else { sign ^ 0xffff_ffff };
        let x = self.op(AND, &[x, ReadOperand::Const(others, bytes)]);
        let y = self.op(AND, &[y, ReadOperand::Const(sign, bytes)]);
        self.op(OR, &[x, y])
    }

    /// `x * y + z`, rounded once.
    fn fused(&mut self, args: &[ReadOperand], eight: bool) -> ReadOperand {
        let [x, y, z] = [args[0], args[1], *args.get(2).unwrap_or(&args[0])];
        // A factor in memory comes last, else the addend does.
        let (x, y) = if matches!(x, ReadOperand::Reg(_)) { (x, y) } else { (y, x) };
        let factor_last = !matches!(y, ReadOperand::Reg(_)) && matches!(z, ReadOperand::Reg(_));
        let (second, third) = if factor_last { (z, y) } else { (y, z) };
        // What is loaded anyway may be lost; the other factor need not be copied then.
        let lost = !matches!(second, ReadOperand::Reg(_)) && !factor_last;
        let (x, second) = if lost { (second, x) } else { (x, second) };
        let (x, second) = (self.reg(x), self.reg(second));
        let third = self.any(third);
        let code = self.code(fma(eight, !factor_last));
        let args = [self.whole(second), third];
        ReadOperand::Reg(self.make_with(code, self.full(), &args, |i| i.tied = Some(x)))
    }

    /// The larger or the smaller of floats. A constant other than NaN, and other than the zero that loses,
    /// needs one comparison; else equal operands are joined by their bits, which only differ between
    /// zeros, and a NaN wins, the first of two.
    fn extremum(
        &mut self,
        max: bool,
        d: DType,
        a: ReadOperand,
        b: ReadOperand,
        known: &[Option<Literal>],
    ) -> ReadOperand {
        let plain = |l: &Option<Literal>| {
            l.is_some_and(|l| {
                let loses = if max { -0.0f64 } else { 0.0 };
                !l.to_f64().is_nan() && l.to_f64().to_bits() != loses.to_bits()
            })
        };
        let constant = match known {
            [_, c] if plain(c) => Some((a, b)),
            [c, _] if plain(c) => Some((b, a)),
            _ => None,
        };
        let eight = long(d);
        if let Some((x, c)) = constant {
            let x = ReadOperand::Reg(self.reg(x));
            // Where it is within the constant; a NaN is not.
            let within = self.float_test(if max { 0x12 } else { 0x1d }, eight, x, c);
            return self.select(within, c, x, eight);
        }
        let (a, b) = (ReadOperand::Reg(self.reg(a)), ReadOperand::Reg(self.reg(b)));
        let best = match self.wide {
            true => {
                let pair = match eight {
                    true => OpcodePair(
                        Code::EVEX_Vrangepd_zmm_k1z_zmm_zmmm512b64_imm8_sae,
                        Code::INVALID,
                    ),
                    false => OpcodePair(
                        Code::EVEX_Vrangeps_zmm_k1z_zmm_zmmm512b32_imm8_sae,
                        Code::INVALID,
                    ),
                };
                self.op_byte(pair, &[a, b], Some(if max { 5 } else { 4 }))
            }
            false => {
                let further = self.float_test(if max { 0x1e } else { 0x11 }, eight, a, b);
                let better = self.select(further, a, b, eight);
                let same = self.float_test(0, eight, a, b);
                let joined = self.op(if max { AND } else { OR }, &[a, b]);
                self.select(same, joined, better, eight)
            }
        };
        let best = match self.wide {
            true => {
                let second = self.float_test(3, eight, b, b);
                self.select(second, b, best, eight)
            }
            false => best,
        };
        let first = self.float_test(3, eight, a, a);
        self.select(first, a, best, eight)
    }

    /// A comparison of floats, by its number in the instruction.
    pub(crate) fn float_test(
        &mut self,
        which: u8,
        eight: bool,
        a: ReadOperand,
        b: ReadOperand,
    ) -> VirtualReg {
        let pair = match eight {
            true => {
                pair!(EVEX_Vcmppd_kr_k1_zmm_zmmm512b64_imm8_sae, VEX_Vcmppd_ymm_ymm_ymmm256_imm8)
            }
            false => {
                pair!(EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae, VEX_Vcmpps_ymm_ymm_ymmm256_imm8)
            }
        };
        self.test(pair, a, b, Some(which))
    }

    /// A comparison.
    pub(crate) fn test(
        &mut self,
        pair: OpcodePair,
        a: ReadOperand,
        b: ReadOperand,
        which: Option<u8>,
    ) -> VirtualReg {
        let a = self.reg(a);
        let mut args: SmallVec<[VirtualOperand; 4]> = SmallVec::new();
        args.push(self.whole(a));
        args.push(self.any(b));
        args.extend(which.map(VirtualOperand::Byte));
        let width = if self.wide { RegWidth::Mask } else { RegWidth::Y };
        self.make(self.code(pair), width, &args)
    }
}

fn nan(known: &[Option<Literal>], k: usize) -> bool {
    known.get(k).copied().flatten().is_some_and(|l| l.to_f64().is_nan())
}
