//! Remainders of `f64` with AVX-512: a loop that takes multiples of the divisor away until no lane has as much as the divisor left.
//!
//! A round takes `q * d` away, where `d` is the divisor times a power of two such that the quotient is below 2^50, and `q` is the quotient
//! rounded to an integer: it is off by .625 at most. What is left is at most that part of `d`, and a multiple of
//! the last bit of what was there or of that of `d`, whichever is less: so it has at most 53 bits, and the fused multiply-add is
//! exact. A round shortens the remainder by 48 bits, and few quotients have as many. Of the largest number and the smallest there are 44 rounds.

use super::inst::{AllocatedOperand, CodeItem, Mem, VirtualOperand};
use super::regalloc::vector_move;
use super::scalar_asm::CodeSink;
use super::state::{BodyLowering, OpcodePair, ReadOperand};
use crate::cpu::x86::isel::AND_LONG;
use adfuse_ir::{DType, Literal};
use iced_x86::{Code, Register};

/// Comparisons of ordered numbers that raise nothing.
const LESS: u8 = 0x11;
const AT_LEAST: u8 = 0x1d;

/// All bits but the sign.
const MAGNITUDE: u64 = !(1 << 63);

/// The bits that a round takes away of a quotient.
const ROUND: f64 = 48.0;

fn number(x: f64) -> ReadOperand {
    ReadOperand::Const(Literal::from_f64(DType::F64, x).bits(), 8)
}

impl BodyLowering<'_> {
    /// `x % y` in lanes of 64 bits: what is left of the magnitude, with the sign of `x`.
    pub(crate) fn float_remainder(&mut self, x: ReadOperand, y: ReadOperand) -> ReadOperand {
        let [x, y] = [x, y].map(|v| ReadOperand::Reg(self.reg(v)));
        let magnitude = ReadOperand::Const(MAGNITUDE, 8);
        let [a, b] = [x, y].map(|v| self.op(AND_LONG, &[v, magnitude]));
        // Lanes without a remainder take part with numbers that are done at once.
        let infinite = number(f64::INFINITY);
        let tests = [(LESS, a, infinite), (LESS, b, infinite), (LESS, number(0.0), b)];
        let tests = tests.map(|(which, l, r)| ReadOperand::Reg(self.float_test(which, true, l, r)));
        let finite = self.on_bits(Code::VEX_Kandw_kr_kr_kr, &[tests[0], tests[1]]);
        let some = self.on_bits(Code::VEX_Kandw_kr_kr_kr, &[finite, tests[2]]);
        let some = self.bits(some);
        let [left, by] = [(a, 0.0), (b, 1.0)].map(|(v, other)| {
            let v = self.select(some, v, number(other), true);
            let slot = self.frame.vector();
            let r = self.reg(v);
            let args = [VirtualOperand::Mem(Mem::Frame(slot)), self.whole(r)];
            self.effect(Code::EVEX_Vmovups_zmmm512_k1z_zmm, &args, None);
            slot
        });
        self.take_away(left, by);
        let [left, by] = [left, by].map(|slot| ReadOperand::Reg(self.reg(ReadOperand::Slot(slot))));
        // At most some more than half of the divisor, of either sign.
        let negative = self.float_test(LESS, true, left, number(0.0));
        let add = OpcodePair(Code::EVEX_Vaddpd_zmm_k1z_zmm_zmmm512b64_er, Code::INVALID);
        let above = self.op(add, &[left, by]);
        let left = self.select(negative, above, left, true);
        let sign = Literal::from_f64(DType::F64, -0.0).bits();
        let left = self.copy_sign(left, x, sign, true);
        let left = self.select(some, left, number(f64::NAN), true);
        // Below the divisor, which may be infinity, nothing is taken away.
        let below = self.float_test(LESS, true, a, b);
        self.select(below, x, left, true)
    }

    /// Takes multiples of the divisors in the frame away from the numbers there. Registers are as they were afterwards.
    fn take_away(&mut self, left: u32, by: u32) {
        let used = [0u8, 1, 2, 3];
        let kept = used.map(|_| self.frame.vector());
        for (number, slot) in used.into_iter().zip(kept) {
            self.push(CodeItem::Ins(vector_move(true, number, Mem::Frame(slot), false)));
        }
        let [r, b, d, q] = [Register::ZMM0, Register::ZMM1, Register::ZMM2, Register::ZMM3]
            .map(AllocatedOperand::Reg);
        let constant =
            |low: &mut Self, bits: u64| AllocatedOperand::Mem(low.pool.every(bits, 8, true));
        let round = constant(self, ROUND.to_bits());
        let zero = constant(self, 0);
        let magnitude = constant(self, MAGNITUDE);
        self.push(CodeItem::Ins(vector_move(true, 0, Mem::Frame(left), true)));
        self.push(CodeItem::Ins(vector_move(true, 1, Mem::Frame(by), true)));
        let top = self.fresh();
        self.bind(top);
        self.ins(Code::EVEX_Vgetexppd_zmm_k1z_zmmm512b64_sae, &[d, r]);
        self.ins(Code::EVEX_Vgetexppd_zmm_k1z_zmmm512b64_sae, &[q, b]);
        self.ins(Code::EVEX_Vsubpd_zmm_k1z_zmm_zmmm512b64_er, &[d, d, q]);
        self.ins(Code::EVEX_Vsubpd_zmm_k1z_zmm_zmmm512b64_er, &[d, d, round]);
        self.ins(Code::EVEX_Vmaxpd_zmm_k1z_zmm_zmmm512b64_sae, &[d, d, zero]);
        self.ins(Code::EVEX_Vscalefpd_zmm_k1z_zmm_zmmm512b64_er, &[d, b, d]);
        self.ins(Code::EVEX_Vdivpd_zmm_k1z_zmm_zmmm512b64_er, &[q, r, d]);
        // To the nearest, the even one of two.
        let nearest = AllocatedOperand::Byte(8);
        self.ins(Code::EVEX_Vrndscalepd_zmm_k1z_zmmm512b64_imm8_sae, &[q, q, nearest]);
        self.ins(Code::EVEX_Vfnmadd231pd_zmm_k1z_zmm_zmmm512b64_er, &[r, q, d]);
        self.ins(Code::EVEX_Vandpd_zmm_k1z_zmm_zmmm512b64, &[q, r, magnitude]);
        // No value is in the mask that cannot choose lanes.
        let more = AllocatedOperand::Reg(Register::K0);
        let least = AllocatedOperand::Byte(AT_LEAST);
        self.ins(Code::EVEX_Vcmppd_kr_k1_zmm_zmmm512b64_imm8_sae, &[more, q, b, least]);
        self.ins(Code::VEX_Kortestw_kr_kr, &[more, more]);
        self.jump(Code::Jne_rel32_64, top);
        self.push(CodeItem::Ins(vector_move(true, 0, Mem::Frame(left), false)));
        for (number, slot) in used.into_iter().zip(kept) {
            self.push(CodeItem::Ins(vector_move(true, number, Mem::Frame(slot), true)));
        }
    }
}
