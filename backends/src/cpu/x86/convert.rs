//! Conversions of groups, with the results of the scalar ones.

use super::inst::{RegWidth, VirtualOperand, VirtualReg};
use super::isel::{ADD_INT, AND, AND_LONG, OR, OR_LONG, SHL, SHR, SHR_LONG, XOR, XOR_LONG, pair};
use super::state::{BodyLowering, GroupValue, OpcodePair, ReadOperand, long};
use crate::cpu::codegen::vector_width::Unsupported;
use adfuse_ir::{DType, Literal};
use iced_x86::Code;
use smallvec::SmallVec;

/// Whether it is held in 32-bit lanes as a number: what fits an `i32`, or is one modulo 2^32.
fn small_int(d: DType) -> bool {
    matches!(d, DType::I32 | DType::U32 | DType::I8 | DType::U8)
}

/// The bits of a float in every lane.
fn number(d: DType, x: f64) -> ReadOperand {
    ReadOperand::Const(Literal::from_f64(d, x).bits(), if long(d) { 8 } else { 4 })
}

/// 2^52: in a sum with it, an integer is in the lowest bits.
const TWO_52: f64 = 4_503_599_627_370_496.0;

pub(crate) const TRUNCATE: OpcodePair =
    pair!(EVEX_Vcvttps2dq_zmm_k1z_zmmm512b32_sae, VEX_Vcvttps2dq_ymm_ymmm256);
pub(crate) const TO_FLOAT: OpcodePair =
    pair!(EVEX_Vcvtdq2ps_zmm_k1z_zmmm512b32_er, VEX_Vcvtdq2ps_ymm_ymmm256);
const MAX: OpcodePair = pair!(EVEX_Vmaxps_zmm_k1z_zmm_zmmm512b32_sae, VEX_Vmaxps_ymm_ymm_ymmm256);
const MIN_LONG: OpcodePair =
    pair!(EVEX_Vminpd_zmm_k1z_zmm_zmmm512b64_sae, VEX_Vminpd_ymm_ymm_ymmm256);
const MAX_LONG: OpcodePair =
    pair!(EVEX_Vmaxpd_zmm_k1z_zmm_zmmm512b64_sae, VEX_Vmaxpd_ymm_ymm_ymmm256);
const ADD: OpcodePair = pair!(EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vaddps_ymm_ymm_ymmm256);
const SUB: OpcodePair = pair!(EVEX_Vsubps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vsubps_ymm_ymm_ymmm256);
const MUL: OpcodePair = pair!(EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er, VEX_Vmulps_ymm_ymm_ymmm256);
const ADD_DOUBLE: OpcodePair =
    pair!(EVEX_Vaddpd_zmm_k1z_zmm_zmmm512b64_er, VEX_Vaddpd_ymm_ymm_ymmm256);
const SUB_DOUBLE: OpcodePair =
    pair!(EVEX_Vsubpd_zmm_k1z_zmm_zmmm512b64_er, VEX_Vsubpd_ymm_ymm_ymmm256);

impl BodyLowering<'_> {
    /// The same numbers in another type.
    pub(crate) fn convert(
        &mut self,
        x: &GroupValue,
        from: DType,
        to: DType,
    ) -> Result<GroupValue, Unsupported> {
        use DType::{BF16, Bool, F16, F32, F64, I64};
        let none = Unsupported::Convert(from, to);
        if from == to {
            return Ok(*x);
        }
        match (from, to) {
            (BF16 | F16, _) => {
                let wide = self.each(&[*x], |low, x, _| Ok(low.widened(x[0], from)))?;
                self.convert(&wide, F32, to)
            }
            (_, Bool) => Ok(self.nonzero(x, from)),
            (Bool, BF16 | F16) => {
                let numbers = self.convert(x, Bool, F32)?;
                self.convert(&numbers, F32, to)
            }
            (Bool, _) => self.of_truth(x, to),
            (F32, BF16) => self.each(&[*x], |low, x, _| Ok(low.bf16_of(x[0]))),
            (F32, F16) => self.each(&[*x], |low, x, _| Ok(low.f16_of(x[0]))),
            (DType::I8 | DType::U8, BF16 | F16) => {
                let exact = self.convert(x, from, F32)?;
                self.convert(&exact, F32, to)
            }
            (F64, BF16 | F16) => {
                let odd = self.odd(x)?;
                self.convert(&odd, F32, to)
            }
            (_, BF16 | F16) => {
                let double = self.convert(x, from, F64)?;
                self.convert(&double, F64, to)
            }
            (F32, F64) => self.doubled(
                x,
                pair!(EVEX_Vcvtps2pd_zmm_k1z_ymmm256b32_sae, VEX_Vcvtps2pd_ymm_xmmm128),
            ),
            (F32, I64) => {
                let exact = self.convert(x, F32, F64)?;
                self.convert(&exact, F64, I64)
            }
            (F32, _) => self.each(&[*x], |low, x, _| Ok(low.truncated(x[0], to))),
            (F64, F32) => self
                .halved(x, pair!(EVEX_Vcvtpd2ps_ymm_k1z_zmmm512b64_er, VEX_Vcvtpd2ps_xmm_ymmm256)),
            (F64, I64) if self.wide => self.each(&[*x], |low, x, _| Ok(low.long_of(x[0]))),
            (F64, DType::U32) => self.double_to_u32(x),
            (F64, d) if small_int(d) => {
                let whole = self.double_to_int(x)?;
                self.each(&[whole], |low, x, _| Ok(low.saturated(d, x[0])))
            }
            (I64, F64) if self.wide => {
                let pair = OpcodePair(Code::EVEX_Vcvtqq2pd_zmm_k1z_zmmm512b64_er, Code::INVALID);
                self.each(&[*x], |low, x, _| Ok(low.op(pair, x)))
            }
            (I64, F64) => self.each(&[*x], |low, x, _| Ok(low.double_of_long(x[0]))),
            (I64, F32) if self.wide => self
                .halved(x, OpcodePair(Code::EVEX_Vcvtqq2ps_ymm_k1z_zmmm512b64_er, Code::INVALID)),
            (I64, d) if small_int(d) => {
                let [a, b] = both(x)?;
                let low = self.low_halves(a, b);
                Ok(GroupValue::One(self.wrapped_small_int(d, low)))
            }
            (DType::U32, F32) => self.each(&[*x], |low, x, _| Ok(low.float_of_u32(x[0]))),
            (_, F32) if small_int(from) => self.each(&[*x], |low, x, _| Ok(low.op(TO_FLOAT, x))),
            (DType::U32, F64) if !self.wide => {
                // In the lowest bits of 2^52, which is then taken away.
                let long = self.doubled(x, pair!(INVALID, VEX_Vpmovzxdq_ymm_xmmm128))?;
                let big = number(F64, TWO_52);
                self.each(&[long], |low, x, _| {
                    let sum = low.op(OR_LONG, &[x[0], big]);
                    Ok(low.op(SUB_DOUBLE, &[sum, big]))
                })
            }
            (_, F64) if small_int(from) => self.doubled(
                x,
                match from {
                    DType::U32 => {
                        OpcodePair(Code::EVEX_Vcvtudq2pd_zmm_k1z_ymmm256b32_er, Code::INVALID)
                    }
                    _ => pair!(EVEX_Vcvtdq2pd_zmm_k1z_ymmm256b32_er, VEX_Vcvtdq2pd_ymm_xmmm128),
                },
            ),
            (_, I64) if small_int(from) => self.doubled(
                x,
                match from {
                    DType::U32 | DType::U8 => {
                        pair!(EVEX_Vpmovzxdq_zmm_k1z_ymmm256, VEX_Vpmovzxdq_ymm_xmmm128)
                    }
                    _ => pair!(EVEX_Vpmovsxdq_zmm_k1z_ymmm256, VEX_Vpmovsxdq_ymm_xmmm128),
                },
            ),
            (_, d) if small_int(from) && small_int(d) => {
                self.each(&[*x], |low, x, _| Ok(low.wrapped_small_int(d, x[0])))
            }
            _ => Err(none),
        }
    }

    /// 1 or 0 of a truth value.
    fn of_truth(&mut self, x: &GroupValue, to: DType) -> Result<GroupValue, Unsupported> {
        let one = self.constant(Literal::one(to));
        if !self.wide {
            let mask = self.mask(x, long(to));
            return self.each(&[mask, one], |low, x, _| Ok(low.op(AND, x)));
        }
        let bits = x.parts()[0];
        self.each(&[one], |low, x, k| {
            let mask = low.bits_of(bits, k);
            let eight = long(to);
            let from = match (low.any(x[0]), eight) {
                (VirtualOperand::Mem(crate::cpu::x86::inst::Mem::Const { offset, .. }), _) => {
                    VirtualOperand::Mem(crate::cpu::x86::inst::Mem::Const { offset, every: false })
                }
                (other, _) => other,
            };
            let code = match eight {
                true => Code::EVEX_Vbroadcastsd_zmm_k1z_xmmm64,
                false => Code::EVEX_Vbroadcastss_zmm_k1z_xmmm32,
            };
            Ok(ReadOperand::Reg(low.make_with(code, RegWidth::Z, &[from], |i| {
                i.mask = Some(mask);
                i.zeroing = true;
            })))
        })
    }

    /// From 32-bit lanes to twice as many vectors, by an instruction that reads half of one.
    pub(crate) fn doubled(
        &mut self,
        x: &GroupValue,
        pair: OpcodePair,
    ) -> Result<GroupValue, Unsupported> {
        let x = self.reg(x.parts()[0]);
        let high = self.upper(x);
        let code = self.code(pair);
        let parts = [x, high].map(|x| {
            let args = [VirtualOperand::Reg(x, self.half())];
            ReadOperand::Reg(self.make(code, self.full(), &args))
        });
        Ok(GroupValue::Two(parts))
    }

    /// From 64-bit lanes to one vector, by an instruction that makes half of one.
    pub(crate) fn halved(
        &mut self,
        x: &GroupValue,
        pair: OpcodePair,
    ) -> Result<GroupValue, Unsupported> {
        let code = self.code(pair);
        let mut parts: SmallVec<[VirtualReg; 2]> = SmallVec::new();
        for x in both(x)? {
            let x = self.reg(x);
            let args = [self.whole(x)];
            parts.push(self.make(code, self.half(), &args));
        }
        Ok(GroupValue::One(ReadOperand::Reg(self.joined(parts[0], parts[1]))))
    }

    /// A vector where a mask is set, else zeros.
    fn only(&mut self, mask: VirtualReg, x: ReadOperand, eight: bool) -> ReadOperand {
        if !self.wide {
            return self.op(AND, &[ReadOperand::Reg(mask), x]);
        }
        let x = self.reg(x);
        let code = match eight {
            true => Code::EVEX_Vmovapd_zmm_k1z_zmmm512,
            false => Code::EVEX_Vmovaps_zmm_k1z_zmmm512,
        };
        let args = [self.whole(x)];
        ReadOperand::Reg(self.make_with(code, RegWidth::Z, &args, |i| {
            i.mask = Some(mask);
            i.zeroing = true;
        }))
    }

    /// An `f32` as an integer of 32 bits or fewer, truncated and saturated; NaN is 0.
    fn truncated(&mut self, x: ReadOperand, to: DType) -> ReadOperand {
        let x = ReadOperand::Reg(self.reg(x));
        if to == DType::U32 {
            // The larger of a NaN and 0 is the second.
            let positive = self.op(MAX, &[x, ReadOperand::Const(0, 4)]);
            if self.wide {
                // Beyond the most, the instruction gives all ones.
                let code = Code::EVEX_Vcvttps2udq_zmm_k1z_zmmm512b32_sae;
                return self.op(OpcodePair(code, Code::INVALID), &[positive]);
            }
            let half = number(DType::F32, 2_147_483_648.0);
            let large = ReadOperand::Reg(self.float_test(0x1d, false, positive, half));
            let taken = self.op(AND, &[large, half]);
            let small = self.op(SUB, &[positive, taken]);
            let whole = self.op(TRUNCATE, &[small]);
            let top = self.op(AND, &[large, ReadOperand::Const(1 << 31, 4)]);
            let whole = self.op(XOR, &[whole, top]);
            let most = number(DType::F32, 4_294_967_296.0);
            let beyond = ReadOperand::Reg(self.float_test(0x1d, false, positive, most));
            return self.op(OR, &[whole, beyond]);
        }
        let whole = self.op(TRUNCATE, &[x]);
        // Above the most, the instruction gives the least.
        let above = self.float_test(0x1d, false, x, number(DType::F32, 2_147_483_648.0));
        let whole = self.select(above, ReadOperand::Const(0x7fff_ffff, 4), whole, false);
        let number = self.float_test(7, false, x, x);
        let whole = self.only(number, whole, false);
        self.saturated(to, whole)
    }

    /// A 32-bit integer within the bounds of a type.
    fn saturated(&mut self, d: DType, x: ReadOperand) -> ReadOperand {
        let (least, most) = match d {
            DType::I8 => (-128i32, 127i32),
            DType::U8 => (0, 255),
            _ => return x,
        };
        let (least, most) = (
            ReadOperand::Const((least as u32).into(), 4),
            ReadOperand::Const((most as u32).into(), 4),
        );
        let x = self.op(
            pair!(EVEX_Vpmaxsd_zmm_k1z_zmm_zmmm512b32, VEX_Vpmaxsd_ymm_ymm_ymmm256),
            &[x, least],
        );
        self.op(pair!(EVEX_Vpminsd_zmm_k1z_zmm_zmmm512b32, VEX_Vpminsd_ymm_ymm_ymmm256), &[x, most])
    }

    /// An `f64` as an `i32`, truncated and saturated; NaN is 0.
    fn double_to_int(&mut self, x: &GroupValue) -> Result<GroupValue, Unsupported> {
        let bounded = self.each(&[*x], |low, x, _| {
            let x = ReadOperand::Reg(low.reg(x[0]));
            let most = low.op(MIN_LONG, &[x, number(DType::F64, 2_147_483_647.0)]);
            let number = low.float_test(7, true, x, x);
            Ok(low.only(number, most, true))
        })?;
        // Below the least, the instruction gives the least.
        self.halved(
            &bounded,
            pair!(EVEX_Vcvttpd2dq_ymm_k1z_zmmm512b64_sae, VEX_Vcvttpd2dq_xmm_ymmm256),
        )
    }

    pub(crate) fn double_to_u32(&mut self, x: &GroupValue) -> Result<GroupValue, Unsupported> {
        let positive =
            self.each(&[*x], |low, x, _| Ok(low.op(MAX_LONG, &[x[0], ReadOperand::Const(0, 8)])))?;
        if self.wide {
            let pair = OpcodePair(Code::EVEX_Vcvttpd2udq_ymm_k1z_zmmm512b64_sae, Code::INVALID);
            return self.halved(&positive, pair);
        }
        // The lowest bits of a sum with 2^52 are the integer.
        let sums = self.each(&[positive], |low, x, _| {
            let x = low.op(MIN_LONG, &[x[0], number(DType::F64, 4_294_967_295.0)]);
            let round = pair!(INVALID, VEX_Vroundpd_ymm_ymmm256_imm8);
            let x = low.op_byte(round, &[x], Some(8 | 3));
            Ok(low.op(ADD_DOUBLE, &[x, number(DType::F64, TWO_52)]))
        })?;
        let [a, b] = both(&sums)?;
        Ok(GroupValue::One(self.low_halves(a, b)))
    }

    /// An `f64` as an `i64`, of AVX-512.
    fn long_of(&mut self, x: ReadOperand) -> ReadOperand {
        let x = ReadOperand::Reg(self.reg(x));
        let whole =
            self.op(OpcodePair(Code::EVEX_Vcvttpd2qq_zmm_k1z_zmmm512b64_sae, Code::INVALID), &[x]);
        let above = self.float_test(0x1d, true, x, number(DType::F64, 9_223_372_036_854_775_808.0));
        let whole = self.select(above, ReadOperand::Const(i64::MAX as u64, 8), whole, true);
        let number = self.float_test(7, true, x, x);
        self.only(number, whole, true)
    }

    /// An `i64` as an `f64`, of AVX2: both halves are exact below powers of two, and their sum rounds once.
    fn double_of_long(&mut self, x: ReadOperand) -> ReadOperand {
        let x = ReadOperand::Reg(self.reg(x));
        let blend = OpcodePair(Code::INVALID, Code::VEX_Vpblendd_ymm_ymm_ymmm256_imm8);
        let low = self.op_byte(blend, &[x, number(DType::F64, TWO_52)], Some(0xaa));
        let high = self.by(SHR_LONG, x, 32);
        // 2^84 and, so that numbers with sign do, 2^63.
        let high = self.op(XOR_LONG, &[high, ReadOperand::Const(0x4530_0000_8000_0000, 8)]);
        let both = ReadOperand::Const(0x4530_0000_8010_0000, 8);
        let high = self.op(SUB_DOUBLE, &[high, both]);
        self.op(ADD_DOUBLE, &[high, low])
    }

    /// An `f64` as an `f32` that rounds to 16 bits as it does itself: where bits are lost, the last of those
    /// that stay is set, of the lesser neighbour in magnitude.
    fn odd(&mut self, x: &GroupValue) -> Result<GroupValue, Unsupported> {
        let near =
            self.halved(x, pair!(EVEX_Vcvtpd2ps_ymm_k1z_zmmm512b64_er, VEX_Vcvtpd2ps_xmm_ymmm256))?;
        let back = self.convert(&near, DType::F32, DType::F64)?;
        let magnitude = |low: &mut Self, x: ReadOperand| {
            low.op(AND_LONG, &[x, ReadOperand::Const(!(1 << 63), 8)])
        };
        let (mut above, mut lost): (SmallVec<[VirtualReg; 2]>, SmallVec<[VirtualReg; 2]>) =
            Default::default();
        for (&x, &back) in x.parts().iter().zip(back.parts()) {
            let x = magnitude(self, x);
            let back = magnitude(self, back);
            above.push(self.float_test(0x1e, true, back, x));
            lost.push(self.float_test(0x0c, true, back, x));
        }
        let [above, lost] = [above, lost].map(|parts| self.truth(&parts));
        let [above, lost] = [above, lost].map(|found| match self.wide {
            true => found,
            false => self.mask(&found, false),
        });
        // The integers of floats are in the order of their magnitudes.
        let less = self.op(ADD_INT, &[near.parts()[0], ReadOperand::Const(0xffff_ffff, 4)]);
        let above = self.mask_of(&above);
        let toward = self.select(above, less, near.parts()[0], false);
        let odd = self.op(OR, &[toward, ReadOperand::Const(1, 4)]);
        let lost = self.mask_of(&lost);
        Ok(GroupValue::One(self.select(lost, odd, toward, false)))
    }

    /// A truth value of 32-bit lanes in a register.
    fn mask_of(&mut self, x: &GroupValue) -> VirtualReg {
        match *x {
            GroupValue::Bits(bits) => self.bits(bits),
            _ => self.reg(x.parts()[0]),
        }
    }

    fn float_of_u32(&mut self, x: ReadOperand) -> ReadOperand {
        if self.wide {
            let code = Code::EVEX_Vcvtudq2ps_zmm_k1z_zmmm512b32_er;
            return self.op(OpcodePair(code, Code::INVALID), &[x]);
        }
        // Both halves are exact, and so is the product: their sum rounds once.
        let x = ReadOperand::Reg(self.reg(x));
        let high = self.by(SHR, x, 16);
        let high = self.op(TO_FLOAT, &[high]);
        let high = self.op(MUL, &[high, number(DType::F32, 65536.0)]);
        let low = self.op(AND, &[x, ReadOperand::Const(0xffff, 4)]);
        let low = self.op(TO_FLOAT, &[low]);
        self.op(ADD, &[high, low])
    }

    /// A 16-bit float as `f32`.
    fn widened(&mut self, x: ReadOperand, from: DType) -> ReadOperand {
        if from == DType::BF16 {
            return self.by(SHL, x, 16);
        }
        let halves = self.halves(x);
        let code = self.code(pair!(EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae, VEX_Vcvtph2ps_ymm_xmmm128));
        let args = [VirtualOperand::Reg(halves, self.half())];
        ReadOperand::Reg(self.make(code, self.full(), &args))
    }

    /// The lower 16 bits of 32-bit lanes, which have no others, as half a vector.
    pub(crate) fn halves(&mut self, x: ReadOperand) -> VirtualReg {
        let x = self.reg(x);
        if self.wide {
            let args = [VirtualOperand::Reg(x, RegWidth::Z)];
            return self.make(Code::EVEX_Vpmovdw_ymmm256_k1z_zmm, RegWidth::Y, &args);
        }
        let high = self.upper(x);
        let args = [VirtualOperand::Reg(x, RegWidth::X), VirtualOperand::Reg(high, RegWidth::X)];
        self.make(Code::VEX_Vpackusdw_xmm_xmm_xmmm128, RegWidth::X, &args)
    }

    /// 16-bit lanes of half a vector as 32-bit lanes.
    fn lanes_of_halves(&mut self, x: VirtualReg) -> ReadOperand {
        let code = self.code(pair!(EVEX_Vpmovzxwd_zmm_k1z_ymmm256, VEX_Vpmovzxwd_ymm_xmmm128));
        let args = [VirtualOperand::Reg(x, self.half())];
        ReadOperand::Reg(self.make(code, self.full(), &args))
    }

    fn f16_of(&mut self, x: ReadOperand) -> ReadOperand {
        // The canonical NaN becomes the canonical one.
        let x = self.canonical(DType::F32, x);
        let x = self.reg(x);
        let code = self
            .code(pair!(EVEX_Vcvtps2ph_ymmm256_k1z_zmm_imm8_sae, VEX_Vcvtps2ph_xmmm128_ymm_imm8));
        let args = [self.whole(x), VirtualOperand::Byte(0)];
        let half = self.make(code, self.half(), &args);
        self.lanes_of_halves(half)
    }

    fn bf16_of(&mut self, x: ReadOperand) -> ReadOperand {
        let x = ReadOperand::Reg(self.reg(x));
        let odd = self.by(SHR, x, 16);
        let odd = self.op(AND, &[odd, ReadOperand::Const(1, 4)]);
        let rounded = self.op(ADD_INT, &[x, ReadOperand::Const(0x7fff, 4)]);
        let rounded = self.op(ADD_INT, &[rounded, odd]);
        let rounded = self.by(SHR, rounded, 16);
        let nan = self.float_test(3, false, x, x);
        self.select(nan, ReadOperand::Const(0x7fc0, 4), rounded, false)
    }

    /// Floats with every NaN as the canonical one.
    pub(crate) fn canonical(&mut self, d: DType, x: ReadOperand) -> ReadOperand {
        if !matches!(d, DType::F32 | DType::F64) {
            return x;
        }
        let x = ReadOperand::Reg(self.reg(x));
        let nan = self.float_test(3, long(d), x, x);
        self.select(nan, number(d, f64::NAN), x, long(d))
    }
}

fn both(x: &GroupValue) -> Result<[ReadOperand; 2], Unsupported> {
    match x {
        GroupValue::Two(both) => Ok(*both),
        _ => Err(Unsupported::Order),
    }
}
