//! Elements of 32 bits that lie apart or are repeated, reached by whole vectors and put in place in registers: every
//! other one, the first of each two or four, and one for each two or four lanes. For AVX-512, whose masks keep lanes
//! from touching what is not wanted.

use super::inst::{Arg, Mem, Op, Reg, Width};
use super::scalar_asm::Emit;
use super::state::{ALONG, Low, Opnd, Pointer, Val};
use crate::cpu::codegen::loop_ir::Spread;
use iced_x86::{Code, Register};

const EAX: Op = Op::Reg(Register::EAX);
const ECX: Op = Op::Reg(Register::ECX);
const EDX: Op = Op::Reg(Register::EDX);

impl Low<'_> {
    /// The same element for each few lanes.
    pub(crate) fn load_spread(&mut self, at: &Pointer, by: Spread, copy: u32) -> Val {
        let (each, lanes) = (by.each, self.lanes());
        // One bit for each few lanes, the first.
        let firsts: u32 = (0..lanes).step_by(each as usize).map(|k| 1 << k).sum();
        let beside = by.step == 1;
        let mask = match self.partial {
            None if beside => Opnd::Const((1u64 << (lanes / each)) - 1, 4),
            None => Opnd::Const(firsts.into(), 4),
            Some(partial) => {
                self.ins(Code::Mov_r32_rm32, &[EAX, Op::Mem(Mem::Frame(partial.bits))]);
                let mut by = 1;
                while by < each {
                    self.ins(Code::Mov_r32_rm32, &[ECX, EAX]);
                    self.ins(Code::Shr_rm32_imm8, &[ECX, Op::Byte(by as u8)]);
                    self.ins(Code::Or_r32_rm32, &[EAX, ECX]);
                    by *= 2;
                }
                self.set(Register::RDX, firsts.into());
                match beside {
                    true => self.ins(Code::VEX_Pext_r32_r32_rm32, &[EAX, EAX, EDX]),
                    false => self.ins(Code::And_r32_rm32, &[EAX, EDX]),
                }
                Opnd::Reg(self.lanes_in(Register::EAX))
            }
        };
        let base = self.base(at.loc);
        // Groups begin at multiples of `each`.
        let scale = by.step * 4 / each;
        let m =
            Mem::At { base, index: Some((ALONG, scale)), offset: (copy * lanes * scale) as i32 };
        let x = self.load_lanes(m, mask);
        let from = |lane: u32| if beside { lane / each } else { lane / each * each };
        Val::One(self.permuted(x, (0..lanes).map(from)))
    }

    /// Every other element.
    pub(crate) fn load_second(&mut self, at: &Pointer, copy: u32) -> Val {
        let lanes = self.lanes();
        let masks = match self.partial {
            // What lies behind the last is not read.
            None => [u64::from(u16::MAX), 0x7fff].map(|bits| Opnd::Const(bits, 4)),
            Some(partial) => {
                self.ins(Code::Mov_r32_rm32, &[EAX, Op::Mem(Mem::Frame(partial.bits))]);
                self.set(Register::RCX, 0x5555_5555);
                self.ins(Code::VEX_Pdep_r32_r32_rm32, &[EAX, EAX, ECX]);
                let low = self.lanes_in(Register::EAX);
                self.ins(Code::Shr_rm32_imm8, &[EAX, Op::Byte(16)]);
                [Opnd::Reg(low), Opnd::Reg(self.lanes_in(Register::EAX))]
            }
        };
        let base = self.base(at.loc);
        let mut half = 0;
        let [low, high] = masks.map(|mask| {
            let offset = (copy * lanes * 8 + half * lanes * 4) as i32;
            half += 1;
            self.load_lanes(Mem::At { base, index: Some((ALONG, 8)), offset }, mask)
        });
        let places: Vec<u8> = (0..lanes).flat_map(|k| (2 * k).to_le_bytes()).collect();
        let offset = self.pool.place(&places);
        let from = [Arg::Mem(Mem::Const { offset, every: false })];
        let places = self.make(Code::EVEX_Vmovups_zmm_k1z_zmmm512, Width::Z, &from);
        let args = [Arg::Reg(places, Width::Z), Arg::Reg(high, Width::Z)];
        let code = Code::EVEX_Vpermt2ps_zmm_k1z_zmm_zmmm512b32;
        let x = self.make_with(code, Width::Z, &args, |i| i.tied = Some(low));
        Val::One(Opnd::Reg(x))
    }

    fn lanes_in(&mut self, from: Register) -> Reg {
        self.make(Code::VEX_Kmovw_kr_r32, Width::Mask, &[Arg::General(from)])
    }

    fn load_lanes(&mut self, m: Mem, mask: Opnd) -> Reg {
        let mask = self.bits(mask);
        self.make_with(Code::EVEX_Vmovups_zmm_k1z_zmmm512, Width::Z, &[Arg::Mem(m)], |i| {
            i.mask = Some(mask);
            i.zeroing = true;
        })
    }

    /// The lanes of a vector at these places.
    fn permuted(&mut self, x: Reg, from: impl Iterator<Item = u32>) -> Opnd {
        let places: Vec<u8> = from.flat_map(u32::to_le_bytes).collect();
        let offset = self.pool.place(&places);
        let places = [Arg::Mem(Mem::Const { offset, every: false })];
        let places = self.make(Code::EVEX_Vmovups_zmm_k1z_zmmm512, Width::Z, &places);
        let args = [Arg::Reg(places, Width::Z), Arg::Reg(x, Width::Z)];
        Opnd::Reg(self.make(Code::EVEX_Vpermps_zmm_k1z_zmm_zmmm512b32, Width::Z, &args))
    }
}
