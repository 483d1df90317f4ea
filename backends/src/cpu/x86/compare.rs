//! Comparisons, selections, and operations on truth values.

use super::inst::{RegWidth, VirtualOperand, VirtualReg};
use super::isel::{AND, OR, XOR, XOR_LONG, pair};
use super::state::{BodyLowering, GroupValue, OpcodePair, ReadOperand, long};
use crate::cpu::codegen::vector_width::Unsupported;
use adfuse_ir::DType;
use adfuse_ir::scalar::Prim;
use iced_x86::Code;
use smallvec::SmallVec;

const ONES: ReadOperand = ReadOperand::Const(0xffff_ffff, 4);

impl BodyLowering<'_> {
    /// A truth value of what was found part by part.
    pub(crate) fn truth(&mut self, parts: &[VirtualReg]) -> GroupValue {
        match (parts, self.wide) {
            (&[one], true) => GroupValue::Bits(ReadOperand::Reg(one)),
            (&[low, high], true) => {
                let args = [
                    VirtualOperand::Reg(high, RegWidth::Mask),
                    VirtualOperand::Reg(low, RegWidth::Mask),
                ];
                let both = self.make(Code::VEX_Kunpckbw_kr_kr_kr, RegWidth::Mask, &args);
                GroupValue::Bits(ReadOperand::Reg(both))
            }
            _ => {
                let parts: SmallVec<[ReadOperand; 2]> =
                    parts.iter().map(|&r| ReadOperand::Reg(r)).collect();
                GroupValue::of(&parts)
            }
        }
    }

    pub(crate) fn compare_all(
        &mut self,
        p: Prim,
        d: DType,
        args: &[GroupValue],
    ) -> Result<GroupValue, Unsupported> {
        let (Some(a), Some(b)) = (args.first(), args.get(1)) else {
            return Err(Unsupported::Order);
        };
        let mut parts: SmallVec<[VirtualReg; 2]> = SmallVec::new();
        for (&a, &b) in a.parts().iter().zip(b.parts()) {
            parts.push(match d.is_float() {
                true if matches!(d, DType::F32 | DType::F64) => {
                    let which = match p {
                        Prim::Eq => 0,
                        Prim::Ne => 4,
                        Prim::Lt => 0x11,
                        Prim::Le => 0x12,
                        Prim::Gt => 0x1e,
                        _ => 0x1d,
                    };
                    self.float_test(which, long(d), a, b)
                }
                true => return Err(Unsupported::Prim(p, d)),
                false => self.int_test(p, d, a, b),
            });
        }
        Ok(self.truth(&parts))
    }

    pub(crate) fn int_test(
        &mut self,
        p: Prim,
        d: DType,
        a: ReadOperand,
        b: ReadOperand,
    ) -> VirtualReg {
        if self.wide {
            let code = match (long(d), d.is_signed_int()) {
                (true, _) => Code::EVEX_Vpcmpq_kr_k1_zmm_zmmm512b64_imm8,
                (_, true) => Code::EVEX_Vpcmpd_kr_k1_zmm_zmmm512b32_imm8,
                _ => Code::EVEX_Vpcmpud_kr_k1_zmm_zmmm512b32_imm8,
            };
            let which = match p {
                Prim::Eq => 0,
                Prim::Lt => 1,
                Prim::Le => 2,
                Prim::Ne => 4,
                Prim::Ge => 5,
                _ => 6,
            };
            return self.test(OpcodePair(code, Code::INVALID), a, b, Some(which));
        }
        let (equal, more) = match long(d) {
            true => (Code::VEX_Vpcmpeqq_ymm_ymm_ymmm256, Code::VEX_Vpcmpgtq_ymm_ymm_ymmm256),
            false => (Code::VEX_Vpcmpeqd_ymm_ymm_ymmm256, Code::VEX_Vpcmpgtd_ymm_ymm_ymmm256),
        };
        let (mut a, mut b) = (a, b);
        if d == DType::U32 && !matches!(p, Prim::Eq | Prim::Ne) {
            // In the order of numbers with sign.
            let top = ReadOperand::Const(1 << 31, 4);
            (a, b) = (self.op(XOR, &[a, top]), self.op(XOR, &[b, top]));
        }
        let (code, a, b, not) = match p {
            Prim::Eq => (equal, a, b, false),
            Prim::Ne => (equal, a, b, true),
            Prim::Lt => (more, b, a, false),
            Prim::Gt => (more, a, b, false),
            Prim::Le => (more, a, b, true),
            _ => (more, b, a, true),
        };
        let found = self.test(OpcodePair(Code::INVALID, code), a, b, None);
        match not {
            true => {
                let turned = self.op(XOR, &[ReadOperand::Reg(found), ONES]);
                self.reg(turned)
            }
            false => found,
        }
    }

    /// A truth value of AVX2 with lanes of a width.
    pub(crate) fn mask(&mut self, mask: &GroupValue, two: bool) -> GroupValue {
        match (*mask, two) {
            (GroupValue::Two([a, b]), false) => GroupValue::One(self.low_halves(a, b)),
            (GroupValue::One(x), true) => {
                let x = self.reg(x);
                let up = |low: &mut Self, x: VirtualReg| {
                    let args = [VirtualOperand::Reg(x, RegWidth::X)];
                    ReadOperand::Reg(low.make(Code::VEX_Vpmovsxdq_ymm_xmmm128, RegWidth::Y, &args))
                };
                let high = self.upper(x);
                GroupValue::Two([up(self, x), up(self, high)])
            }
            (same, _) => same,
        }
    }

    /// The upper half of a vector.
    pub(crate) fn upper(&mut self, x: VirtualReg) -> VirtualReg {
        let code = match self.wide {
            true => Code::EVEX_Vextracti64x4_ymmm256_k1z_zmm_imm8,
            false => Code::VEX_Vextracti128_xmmm128_ymm_imm8,
        };
        self.make(code, self.half(), &[self.whole(x), VirtualOperand::Byte(1)])
    }

    /// A vector of two halves.
    pub(crate) fn joined(&mut self, low: VirtualReg, high: VirtualReg) -> VirtualReg {
        let code = match self.wide {
            true => Code::EVEX_Vinserti64x4_zmm_k1z_zmm_ymmm256_imm8,
            false => Code::VEX_Vinserti128_ymm_ymm_xmmm128_imm8,
        };
        let args =
            [self.whole(low), VirtualOperand::Reg(high, self.half()), VirtualOperand::Byte(1)];
        self.make(code, self.full(), &args)
    }

    /// The lower halves of 64-bit lanes, as one vector.
    pub(crate) fn low_halves(&mut self, a: ReadOperand, b: ReadOperand) -> ReadOperand {
        let (a, b) = (self.reg(a), self.reg(b));
        if self.wide {
            let half = |low: &mut Self, x: VirtualReg| {
                let args = [VirtualOperand::Reg(x, RegWidth::Z)];
                low.make(Code::EVEX_Vpmovqd_ymmm256_k1z_zmm, RegWidth::Y, &args)
            };
            let (a, b) = (half(self, a), half(self, b));
            return ReadOperand::Reg(self.joined(a, b));
        }
        let args = [self.whole(a), self.whole(b), VirtualOperand::Byte(0x88)];
        let mixed = self.make(Code::VEX_Vshufps_ymm_ymm_ymmm256_imm8, RegWidth::Y, &args);
        let args = [self.whole(mixed), VirtualOperand::Byte(0xd8)];
        ReadOperand::Reg(self.make(Code::VEX_Vpermq_ymm_ymmm256_imm8, RegWidth::Y, &args))
    }

    pub(crate) fn select_prim(
        &mut self,
        d: DType,
        args: &[GroupValue],
    ) -> Result<GroupValue, Unsupported> {
        let [mask, x, y] = *args else { return Err(Unsupported::Order) };
        if d == DType::Bool {
            if self.wide {
                let [m, x, y] = [mask, x, y].map(|v| v.parts()[0]);
                let x = self.on_bits(Code::VEX_Kandw_kr_kr_kr, &[m, x]);
                let y = self.on_bits(Code::VEX_Kandnw_kr_kr_kr, &[m, y]);
                return Ok(GroupValue::Bits(self.on_bits(Code::VEX_Korw_kr_kr_kr, &[x, y])));
            }
            let [mask, x, y] = [mask, x, y].map(|v| self.mask(&v, false).parts()[0]);
            let mask = self.reg(mask);
            return Ok(GroupValue::One(self.select(mask, x, y, false)));
        }
        let eight = long(d);
        if self.wide {
            let bits = mask.parts()[0];
            return self.each(&[x, y], |low, v, k| {
                let m = low.bits_of(bits, k);
                Ok(low.select(m, v[0], v[1], eight))
            });
        }
        let mask = self.mask(&mask, eight);
        self.each(&[mask, x, y], |low, v, _| {
            let m = low.reg(v[0]);
            Ok(low.select(m, v[1], v[2], eight))
        })
    }

    /// Primitives on truth values.
    pub(crate) fn logic(
        &mut self,
        p: Prim,
        args: &[GroupValue],
    ) -> Result<GroupValue, Unsupported> {
        let Some(first) = args.first() else { return Err(Unsupported::Order) };
        if self.wide {
            let a = first.parts()[0];
            let b = args.get(1).map_or(a, |b| b.parts()[0]);
            let not = |low: &mut Self, x| low.on_bits(Code::VEX_Knotw_kr_kr, &[x]);
            return Ok(GroupValue::Bits(match p {
                Prim::And | Prim::Min => self.on_bits(Code::VEX_Kandw_kr_kr_kr, &[a, b]),
                Prim::Or | Prim::Max => self.on_bits(Code::VEX_Korw_kr_kr_kr, &[a, b]),
                Prim::Xor | Prim::Ne => self.on_bits(Code::VEX_Kxorw_kr_kr_kr, &[a, b]),
                Prim::Eq => self.on_bits(Code::VEX_Kxnorw_kr_kr_kr, &[a, b]),
                Prim::Not => not(self, a),
                Prim::Lt => self.on_bits(Code::VEX_Kandnw_kr_kr_kr, &[a, b]),
                Prim::Gt => self.on_bits(Code::VEX_Kandnw_kr_kr_kr, &[b, a]),
                Prim::Le => {
                    let x = not(self, a);
                    self.on_bits(Code::VEX_Korw_kr_kr_kr, &[x, b])
                }
                Prim::Ge => {
                    let x = not(self, b);
                    self.on_bits(Code::VEX_Korw_kr_kr_kr, &[x, a])
                }
                _ => return Err(Unsupported::Prim(p, DType::Bool)),
            }));
        }
        let two = first.two();
        let aligned: SmallVec<[GroupValue; 2]> = args.iter().map(|a| self.mask(a, two)).collect();
        self.each(&aligned, |low, x, _| {
            let (a, b) = (x[0], x.get(1).copied().unwrap_or(x[0]));
            let not = |low: &mut Self, x| low.op(XOR, &[x, ONES]);
            let without = pair!(INVALID, VEX_Vpandn_ymm_ymm_ymmm256);
            Ok(match p {
                Prim::And | Prim::Min => low.op(AND, &[a, b]),
                Prim::Or | Prim::Max => low.op(OR, &[a, b]),
                Prim::Xor | Prim::Ne => low.op(XOR, &[a, b]),
                Prim::Eq => {
                    let x = low.op(XOR, &[a, b]);
                    not(low, x)
                }
                Prim::Not => not(low, a),
                Prim::Lt => low.op(without, &[a, b]),
                Prim::Gt => low.op(without, &[b, a]),
                Prim::Le => {
                    let x = not(low, a);
                    low.op(OR, &[x, b])
                }
                Prim::Ge => {
                    let x = not(low, b);
                    low.op(OR, &[x, a])
                }
                _ => return Err(Unsupported::Prim(p, DType::Bool)),
            })
        })
    }

    /// Where a value is not zero.
    pub(crate) fn nonzero(&mut self, x: &GroupValue, d: DType) -> GroupValue {
        let eight = long(d);
        let mut parts: SmallVec<[VirtualReg; 2]> = SmallVec::new();
        for &x in x.parts() {
            let zero = ReadOperand::Const(0, if eight { 8 } else { 4 });
            parts.push(match (d.is_float(), self.wide) {
                (true, _) => self.float_test(4, eight, x, zero),
                (false, true) => {
                    let pair = match eight {
                        true => OpcodePair(Code::EVEX_Vptestmq_kr_k1_zmm_zmmm512b64, Code::INVALID),
                        false => {
                            OpcodePair(Code::EVEX_Vptestmd_kr_k1_zmm_zmmm512b32, Code::INVALID)
                        }
                    };
                    let x = ReadOperand::Reg(self.reg(x));
                    self.test(pair, x, x, None)
                }
                (false, false) => {
                    let code = match eight {
                        true => Code::VEX_Vpcmpeqq_ymm_ymm_ymmm256,
                        false => Code::VEX_Vpcmpeqd_ymm_ymm_ymmm256,
                    };
                    let none = self.test(OpcodePair(Code::INVALID, code), x, zero, None);
                    let some = self
                        .op(XOR_LONG, &[ReadOperand::Reg(none), ReadOperand::Const(u64::MAX, 8)]);
                    self.reg(some)
                }
            });
        }
        self.truth(&parts)
    }
}
