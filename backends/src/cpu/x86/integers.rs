//! Integer operations on groups that take more than one instruction, and tables.

use super::inst::{RegWidth, VirtualOperand};
use super::isel::{
    ADD_LONG, AND_LONG, OR_LONG, SAR, SHL, SHL_LONG, SHR, SHR_LONG, SUB_LONG, XOR, XOR_LONG, pair,
};
use super::scalar_asm::CodeSink;
use super::state::{BodyLowering, GroupValue, OpcodePair, ReadOperand, long};
use crate::cpu::codegen::vector_width::Unsupported;
use adfuse_ir::scalar::{Prim, Table};
use adfuse_ir::{DType, Literal};
use iced_x86::{Code, Register};

impl BodyLowering<'_> {
    pub(crate) fn absolute(&mut self, x: ReadOperand, eight: bool) -> ReadOperand {
        if eight && !self.wide {
            let sign = self.op(
                OpcodePair(Code::INVALID, Code::VEX_Vpcmpgtq_ymm_ymm_ymmm256),
                &[ReadOperand::Const(0, 8), x],
            );
            let turned = self.op(XOR, &[sign, x]);
            return self.op(SUB_LONG, &[turned, sign]);
        }
        match eight {
            true => self.op(OpcodePair(Code::EVEX_Vpabsq_zmm_k1z_zmmm512b64, Code::INVALID), &[x]),
            false => self.op(pair!(EVEX_Vpabsd_zmm_k1z_zmmm512b32, VEX_Vpabsd_ymm_ymmm256), &[x]),
        }
    }

    /// Products of 64 bits, modulo 2^64.
    pub(crate) fn long_product(&mut self, a: ReadOperand, b: ReadOperand) -> ReadOperand {
        if self.wide {
            let pair = OpcodePair(Code::EVEX_Vpmullq_zmm_k1z_zmm_zmmm512b64, Code::INVALID);
            return self.either(pair, a, b);
        }
        let half = pair!(EVEX_Vpmuludq_zmm_k1z_zmm_zmmm512b64, VEX_Vpmuludq_ymm_ymm_ymmm256);
        let low = self.op(half, &[a, b]);
        let (up_a, up_b) = (self.by(SHR_LONG, a, 32), self.by(SHR_LONG, b, 32));
        let first = self.op(half, &[up_a, b]);
        let second = self.op(half, &[up_b, a]);
        let middle = self.op(ADD_LONG, &[first, second]);
        let middle = self.by(SHL_LONG, middle, 32);
        self.op(ADD_LONG, &[low, middle])
    }

    /// The high halves of products of 32-bit lanes without sign.
    pub(crate) fn high_product(&mut self, a: ReadOperand, b: ReadOperand) -> ReadOperand {
        let half = pair!(EVEX_Vpmuludq_zmm_k1z_zmm_zmmm512b64, VEX_Vpmuludq_ymm_ymm_ymmm256);
        let a = ReadOperand::Reg(self.reg(a));
        // A constant is the same in the upper half of a lane of 64 bits.
        let (b, up_b) = match b {
            ReadOperand::Const(bits, 4) => [ReadOperand::Const(bits << 32 | bits, 8); 2].into(),
            _ => {
                let b = ReadOperand::Reg(self.reg(b));
                (b, self.by(SHR_LONG, b, 32))
            }
        };
        let even = self.op(half, &[a, b]);
        let even = self.by(SHR_LONG, even, 32);
        let up_a = self.by(SHR_LONG, a, 32);
        let odd = self.op(half, &[up_a, up_b]);
        if self.wide {
            // The third chooses the second where its bits are set; the first has none there.
            let (even, odd) = (self.reg(even), self.reg(odd));
            let upper = self.any(ReadOperand::Const(0xffff_ffff_0000_0000, 8));
            let code = Code::EVEX_Vpternlogq_zmm_k1z_zmm_zmmm512b64_imm8;
            let args = [self.whole(odd), upper, VirtualOperand::Byte(0xf8)];
            return ReadOperand::Reg(
                self.make_with(code, RegWidth::Z, &args, |i| i.tied = Some(even)),
            );
        }
        let pair = OpcodePair(Code::INVALID, Code::VEX_Vpblendd_ymm_ymm_ymmm256_imm8);
        self.op_byte(pair, &[even, odd], Some(0xaa))
    }

    /// The high halves of products of 64-bit lanes without sign, from four products of their halves.
    pub(crate) fn high_long_product(&mut self, a: ReadOperand, b: ReadOperand) -> ReadOperand {
        let half = pair!(EVEX_Vpmuludq_zmm_k1z_zmm_zmmm512b64, VEX_Vpmuludq_ymm_ymm_ymmm256);
        let (a, b) = (ReadOperand::Reg(self.reg(a)), ReadOperand::Reg(self.reg(b)));
        let (up_a, up_b) = (self.by(SHR_LONG, a, 32), self.by(SHR_LONG, b, 32));
        let low = self.op(half, &[a, b]);
        let low = self.by(SHR_LONG, low, 32);
        let first = self.op(half, &[up_a, b]);
        let first = self.op(ADD_LONG, &[first, low]);
        let second = self.op(half, &[a, up_b]);
        let carried = self.op(AND_LONG, &[first, ReadOperand::Const(0xffff_ffff, 8)]);
        let second = self.op(ADD_LONG, &[second, carried]);
        let high = self.op(half, &[up_a, up_b]);
        let (first, second) = (self.by(SHR_LONG, first, 32), self.by(SHR_LONG, second, 32));
        let high = self.op(ADD_LONG, &[high, first]);
        self.op(ADD_LONG, &[high, second])
    }

    pub(crate) fn shift(
        &mut self,
        p: Prim,
        d: DType,
        x: ReadOperand,
        by: ReadOperand,
        known: Option<Literal>,
    ) -> ReadOperand {
        let (eight, bits) = (long(d), u64::from(d.bits()));
        let x = match (p, d) {
            (Prim::ShrL, DType::I8) => self.wrapped_small_int(DType::U8, x),
            (Prim::ShrA, DType::U8) => self.wrapped_small_int(DType::I8, x),
            _ => x,
        };
        let Some(count) = known.map(|l| l.bits()).filter(|&c| c < bits) else {
            // Instructions take counts of the lane's width, and give what counts beyond it do; those of
            // 8 bits that are below 0 are beyond it too.
            let pair = match (p, eight) {
                (Prim::Shl, false) => {
                    pair!(EVEX_Vpsllvd_zmm_k1z_zmm_zmmm512b32, VEX_Vpsllvd_ymm_ymm_ymmm256)
                }
                (Prim::Shl, true) => {
                    pair!(EVEX_Vpsllvq_zmm_k1z_zmm_zmmm512b64, VEX_Vpsllvq_ymm_ymm_ymmm256)
                }
                (Prim::ShrL, false) => {
                    pair!(EVEX_Vpsrlvd_zmm_k1z_zmm_zmmm512b32, VEX_Vpsrlvd_ymm_ymm_ymmm256)
                }
                (Prim::ShrL, true) => {
                    pair!(EVEX_Vpsrlvq_zmm_k1z_zmm_zmmm512b64, VEX_Vpsrlvq_ymm_ymm_ymmm256)
                }
                (_, false) => {
                    pair!(EVEX_Vpsravd_zmm_k1z_zmm_zmmm512b32, VEX_Vpsravd_ymm_ymm_ymmm256)
                }
                (_, true) if self.wide => {
                    OpcodePair(Code::EVEX_Vpsravq_zmm_k1z_zmm_zmmm512b64, Code::INVALID)
                }
                // What the sign turns has zeros for its copies, whatever the sign.
                _ => {
                    let x = ReadOperand::Reg(self.reg(x));
                    let less = OpcodePair(Code::INVALID, Code::VEX_Vpcmpgtq_ymm_ymm_ymmm256);
                    let sign = self.op(less, &[ReadOperand::Const(0, 8), x]);
                    let turned = self.op(XOR_LONG, &[x, sign]);
                    let pair = pair!(INVALID, VEX_Vpsrlvq_ymm_ymm_ymmm256);
                    let moved = self.op(pair, &[turned, by]);
                    return self.op(XOR_LONG, &[moved, sign]);
                }
            };
            let moved = self.op(pair, &[x, by]);
            return self.wrapped_small_int(d, moved);
        };
        let count = count as u8;
        let moved = match (p, eight) {
            (Prim::Shl, false) => self.by(SHL, x, count),
            (Prim::Shl, true) => self.by(SHL_LONG, x, count),
            (Prim::ShrL, false) => self.by(SHR, x, count),
            (Prim::ShrL, true) => self.by(SHR_LONG, x, count),
            (_, false) => self.by(SAR, x, count),
            (_, true) if self.wide => self.by(
                OpcodePair(Code::EVEX_Vpsraq_zmm_k1z_zmmm512b64_imm8, Code::INVALID),
                x,
                count,
            ),
            (_, true) => {
                // Without sign, then the sign's copies above.
                let x = ReadOperand::Reg(self.reg(x));
                let moved = self.by(SHR_LONG, x, count);
                let zero = ReadOperand::Const(0, 8);
                let less = OpcodePair(Code::INVALID, Code::VEX_Vpcmpgtq_ymm_ymm_ymmm256);
                let sign = self.op(less, &[zero, x]);
                let above = !(u64::MAX >> count);
                let above = self.op(AND_LONG, &[sign, ReadOperand::Const(above, 8)]);
                self.op(OR_LONG, &[moved, above])
            }
        };
        self.wrapped_small_int(d, moved)
    }

    pub(crate) fn int_extremum(
        &mut self,
        max: bool,
        d: DType,
        a: ReadOperand,
        b: ReadOperand,
    ) -> ReadOperand {
        if long(d) && !self.wide {
            let (a, b) = (ReadOperand::Reg(self.reg(a)), ReadOperand::Reg(self.reg(b)));
            let more = OpcodePair(Code::INVALID, Code::VEX_Vpcmpgtq_ymm_ymm_ymmm256);
            let further = match max {
                true => self.op(more, &[a, b]),
                false => self.op(more, &[b, a]),
            };
            let further = self.reg(further);
            return self.select(further, a, b, true);
        }
        let pair = match (max, d.is_signed_int(), long(d)) {
            (true, _, true) => OpcodePair(Code::EVEX_Vpmaxsq_zmm_k1z_zmm_zmmm512b64, Code::INVALID),
            (false, _, true) => {
                OpcodePair(Code::EVEX_Vpminsq_zmm_k1z_zmm_zmmm512b64, Code::INVALID)
            }
            (true, true, _) => {
                pair!(EVEX_Vpmaxsd_zmm_k1z_zmm_zmmm512b32, VEX_Vpmaxsd_ymm_ymm_ymmm256)
            }
            (false, true, _) => {
                pair!(EVEX_Vpminsd_zmm_k1z_zmm_zmmm512b32, VEX_Vpminsd_ymm_ymm_ymmm256)
            }
            (true, false, _) => {
                pair!(EVEX_Vpmaxud_zmm_k1z_zmm_zmmm512b32, VEX_Vpmaxud_ymm_ymm_ymmm256)
            }
            (false, false, _) => {
                pair!(EVEX_Vpminud_zmm_k1z_zmm_zmmm512b32, VEX_Vpminud_ymm_ymm_ymmm256)
            }
        };
        self.either(pair, a, b)
    }

    /// Entries of a table at numbers, which are brought within its bounds.
    pub(crate) fn lookup(
        &mut self,
        table: Table,
        x: &GroupValue,
    ) -> Result<GroupValue, Unsupported> {
        let entries = table.entries();
        let last = Literal::from_i64(DType::I32, entries.len() as i64 - 1);
        let bound = |low: &mut Self, max, x, l| low.int_extremum(max, DType::I32, x, l);
        let at = bound(self, true, x.parts()[0], ReadOperand::Const(0, 4));
        let at = bound(self, false, at, self.constant(last).parts()[0]);
        let at = self.reg(at);
        let halves = [at, self.upper(at)];
        let parts = halves.map(|half| {
            // The table lives as long as the process.
            self.set(Register::RAX, entries.as_ptr() as i64);
            let place = VirtualOperand::Table(Register::RAX, half, self.half(), 8);
            if self.wide {
                // The instruction clears the mask.
                let all = self.bits(ReadOperand::Const(0xff, 2));
                let code = Code::EVEX_Vpgatherdq_zmm_k1_vm32y;
                return ReadOperand::Reg(self.make_with(code, RegWidth::Z, &[place], |i| {
                    i.mask = Some(all);
                    i.early = true;
                }));
            }
            let all = self.reg(ReadOperand::Const(u64::MAX, 8));
            let args = [place, VirtualOperand::Reg(all, RegWidth::Y)];
            let code = Code::VEX_Vpgatherdq_ymm_vm32x_ymm;
            ReadOperand::Reg(self.make_with(code, RegWidth::Y, &args, |i| i.early = true))
        });
        Ok(GroupValue::Two(parts))
    }
}
