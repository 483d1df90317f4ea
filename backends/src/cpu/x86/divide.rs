//! Integer division and remainders, which have no vector instruction.
//!
//! 32-bit quotients are computed in `f64`, 8-bit quotients in `f32`: these types hold the operands exactly, and a
//! quotient of such short numbers is never rounded up to the next integer. 64-bit quotients are computed one after the
//! other in general registers.

use super::convert::{TO_FLOAT, TRUNCATE};
use super::inst::{AllocatedOperand, Mem, VirtualOperand};
use super::isel::{SUB_INT, float, pair, whole};
use super::scalar_asm::CodeSink;
use super::state::{BodyLowering, GroupValue, OpcodePair, ReadOperand};
use crate::cpu::codegen::vector_width::Unsupported;
use adfuse_ir::DType;
use adfuse_ir::scalar::Prim;
use iced_x86::{Code, Register};

const ONES: ReadOperand = ReadOperand::Const(0xffff_ffff, 4);
const NONE: ReadOperand = ReadOperand::Const(0, 4);

impl BodyLowering<'_> {
    /// `a / b` in 32-bit lanes, truncated; all ones where `b` is 0.
    pub(crate) fn quotient(
        &mut self,
        d: DType,
        a: ReadOperand,
        b: ReadOperand,
    ) -> Result<ReadOperand, Unsupported> {
        let none = Unsupported::Prim(Prim::Div, d);
        let (a, b) = (ReadOperand::Reg(self.reg(a)), ReadOperand::Reg(self.reg(b)));
        let found = match d {
            DType::I8 | DType::U8 => {
                let [x, y] = [a, b].map(|x| self.op(TO_FLOAT, &[x]));
                let q = self.op(float(Prim::Div, false).ok_or(none)?, &[x, y]);
                self.op(TRUNCATE, &[q])
            }
            _ => {
                let x = self.convert(&GroupValue::One(a), d, DType::F64)?;
                let y = self.convert(&GroupValue::One(b), d, DType::F64)?;
                let divide = float(Prim::Div, true).ok_or(none)?;
                let q = self.each(&[x, y], |low, x, _| Ok(low.op(divide, x)))?;
                let q = match d {
                    DType::U32 => self.double_to_u32(&q)?,
                    // Beyond the most, which the least over -1 alone is, the instruction gives the least.
                    _ => self.halved(
                        &q,
                        pair!(EVEX_Vcvttpd2dq_ymm_k1z_zmmm512b64_sae, VEX_Vcvttpd2dq_xmm_ymmm256),
                    )?,
                };
                q.parts()[0]
            }
        };
        let none = self.int_test(Prim::Eq, d, b, NONE);
        Ok(self.select(none, ONES, found, false))
    }

    /// `a % b` in 32-bit lanes: what the quotient leaves, which is `a` where `b` is 0.
    pub(crate) fn remainder(
        &mut self,
        d: DType,
        a: ReadOperand,
        b: ReadOperand,
    ) -> Result<ReadOperand, Unsupported> {
        let (a, b) = (ReadOperand::Reg(self.reg(a)), ReadOperand::Reg(self.reg(b)));
        let q = self.quotient(d, a, b)?;
        let product = whole(Prim::Mul, false).ok_or(Unsupported::Prim(Prim::Rem, d))?;
        let product = self.op(product, &[q, b]);
        Ok(self.op(SUB_INT, &[a, product]))
    }

    /// `a / b` or `a % b` in 64-bit lanes, one after the other through the frame.
    pub(crate) fn long_quotient(
        &mut self,
        rest: bool,
        a: ReadOperand,
        b: ReadOperand,
    ) -> ReadOperand {
        use Register::{RAX, RCX, RDX};
        let store = OpcodePair(Code::EVEX_Vmovups_zmmm512_k1z_zmm, Code::VEX_Vmovups_ymmm256_ymm);
        let slots = [a, b].map(|x| {
            let x = self.reg(x);
            let slot = self.frame.vector();
            let args = [VirtualOperand::Mem(Mem::Frame(slot)), self.whole(x)];
            self.effect(self.code(store), &args, None);
            slot
        });
        let count = self.frame.long();
        let at = |slot: u32, index: Register| Mem::At {
            base: Register::RSP,
            index: Some((index, 8)),
            offset: slot as i32,
        };
        let [top, zero, minus, done] = [(); 4].map(|()| self.fresh());
        self.set(RCX, 0);
        self.store(Mem::Frame(count), RCX);
        self.bind(top);
        self.load(RCX, Mem::Frame(count));
        self.load(RAX, at(slots[0], RCX));
        self.load(RCX, at(slots[1], RCX));
        self.ins(Code::Test_rm64_r64, &[AllocatedOperand::Reg(RCX), AllocatedOperand::Reg(RCX)]);
        self.jump(Code::Je_rel32_64, zero);
        // The least over -1 would be a fault.
        self.ins(Code::Cmp_rm64_imm32, &[AllocatedOperand::Reg(RCX), AllocatedOperand::Short(-1)]);
        self.jump(Code::Je_rel32_64, minus);
        self.ins(Code::Cqo, &[]);
        self.ins(Code::Idiv_rm64, &[AllocatedOperand::Reg(RCX)]);
        if rest {
            self.mov(RAX, RDX);
        }
        self.jump(crate::cpu::x86::encode::JUMP, done);
        self.bind(minus);
        match rest {
            true => self.set(RAX, 0),
            false => self.ins(Code::Neg_rm64, &[AllocatedOperand::Reg(RAX)]),
        }
        self.jump(crate::cpu::x86::encode::JUMP, done);
        self.bind(zero);
        if !rest {
            self.set(RAX, -1);
        }
        self.bind(done);
        self.load(RCX, Mem::Frame(count));
        self.store(at(slots[0], RCX), RAX);
        self.ins(Code::Inc_rm64, &[AllocatedOperand::Reg(RCX)]);
        self.store(Mem::Frame(count), RCX);
        let lanes = self.lanes() as i32 / 2;
        self.ins(
            Code::Cmp_rm64_imm32,
            &[AllocatedOperand::Reg(RCX), AllocatedOperand::Short(lanes)],
        );
        self.jump(Code::Jl_rel32_64, top);
        ReadOperand::Reg(self.reg(ReadOperand::Slot(slots[0])))
    }
}
