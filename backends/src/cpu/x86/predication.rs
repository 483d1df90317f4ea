//! Predication: a mask selects the lanes in which guards hold.
//!
//! A group compares its coordinates with two between which guards hold. Other lanes get the literal. This is for AVX-512,
//! whose masks suppress accesses.

use super::inst::{Mem, RegWidth, VirtualOperand, VirtualReg};
use super::scalar_asm::CodeSink;
use super::state::{ALONG, BodyLowering, GroupAddress, GroupValue, ReadOperand, long};
use crate::cpu::codegen::loop_program::{GridSteps, LoopVal};
use adfuse_ir::{DType, Literal};
use iced_x86::{Code, Register};

/// Comparisons of whole numbers, as the instruction counts them.
const LESS: u8 = 1;
const NOT_LESS: u8 = 5;

impl BodyLowering<'_> {
    /// Whether the last lanes of groups are idle: other groups begin there.
    pub(crate) fn idle(&self) -> bool {
        self.p.apart < self.p.lanes
    }

    /// The lanes of groups that are not idle.
    pub(crate) fn used_lanes(&self) -> u16 {
        u16::MAX >> (16 - self.p.apart.min(16))
    }

    /// How far the first element of a group is from that of the first one.
    pub(crate) fn first_of(&self, copy: u32) -> u32 {
        copy * self.p.apart
    }

    /// Neighbouring elements between two coordinates, and the literal elsewhere.
    pub(crate) fn load_masked(
        &mut self,
        pointer: LoopVal,
        d: DType,
        between: [LoopVal; 2],
        rest: Literal,
        copy: u32,
    ) -> GroupValue {
        let there = self.inside(between, copy);
        let base = self.base(pointer);
        let (bytes, eight) = (d.bytes() as u32, long(d));
        let place = GroupAddress::Array { base, offset: 0, index: ALONG, bytes, copy };
        let code = match eight {
            true => Code::EVEX_Vmovupd_zmm_k1z_zmmm512,
            false => Code::EVEX_Vmovups_zmm_k1z_zmmm512,
        };
        let part = |low: &mut Self, part: u32| {
            let mask = low.bits_of(ReadOperand::Reg(there), part as usize);
            let m = VirtualOperand::Mem(low.memory(place, part * low.lanes() * 4));
            let x = ReadOperand::Reg(low.make_with(code, RegWidth::Z, &[m], |i| {
                i.mask = Some(mask);
                i.zeroing = true;
            }));
            match rest.bits() {
                0 => x,
                bits => low.select(mask, x, ReadOperand::Const(bits, bytes as u8), eight),
            }
        };
        match eight {
            true => GroupValue::Two([part(self, 0), part(self, 1)]),
            false => GroupValue::One(part(self, 0)),
        }
    }

    /// The lanes of a group that are between two coordinates.
    fn inside(&mut self, [low, high]: [LoopVal; 2], copy: u32) -> VirtualReg {
        let coordinates = self.along(copy);
        let mut mask = self.present.first().copied();
        for (end, than) in [(low, NOT_LESS), (high, LESS)] {
            let r = self.in_register(end, Register::RCX);
            let from = [VirtualOperand::General(r.full_register32())];
            let end = self.make(Code::EVEX_Vpbroadcastd_zmm_k1z_r32, RegWidth::Z, &from);
            let args = [
                VirtualOperand::Reg(coordinates, RegWidth::Z),
                VirtualOperand::Reg(end, RegWidth::Z),
                VirtualOperand::Byte(than),
            ];
            let code = Code::EVEX_Vpcmpd_kr_k1_zmm_zmmm512b32_imm8;
            mask = Some(self.make_with(code, RegWidth::Mask, &args, |i| i.mask = mask));
        }
        mask.expect("two comparisons")
    }

    /// The coordinates along the line of a group.
    fn along(&mut self, copy: u32) -> VirtualReg {
        if let Some(&(_, known)) = self.coordinates.iter().find(|(c, _)| *c == copy) {
            return known;
        }
        let first = [VirtualOperand::General(ALONG.full_register32())];
        let first = self.make(Code::EVEX_Vpbroadcastd_zmm_k1z_r32, RegWidth::Z, &first);
        let lanes = self.first_of(copy)..self.first_of(copy) + self.lanes();
        let bytes: Vec<u8> = lanes.flat_map(u32::to_le_bytes).collect();
        let by = Mem::Const { offset: self.pool.place(&bytes), every: false };
        let args = [VirtualOperand::Reg(first, RegWidth::Z), VirtualOperand::Mem(by)];
        let made = self.make(Code::EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32, RegWidth::Z, &args);
        self.coordinates.push((copy, made));
        made
    }

    /// Coordinates in steps from the one of the first element on.
    pub(crate) fn coordinates(
        &mut self,
        first: LoopVal,
        steps: &GridSteps,
        copy: u32,
    ) -> GroupValue {
        self.outer_place(steps, 1);
        self.with(Code::Add_r64_rm64, Register::RAX, first);
        let from = VirtualOperand::General(Register::RAX);
        let first = match self.wide {
            true => self.make(Code::EVEX_Vpbroadcastq_zmm_k1z_r64, RegWidth::Z, &[from]),
            false => {
                let x = self.make(Code::VEX_Vmovq_xmm_rm64, RegWidth::X, &[from]);
                let args = [VirtualOperand::Reg(x, RegWidth::X)];
                self.make(Code::VEX_Vpbroadcastq_ymm_xmmm64, RegWidth::Y, &args)
            }
        };
        let half = self.lanes() / 2;
        let parts = [0, 1].map(|part| {
            let from = self.first_of(copy) + part * half;
            let bytes = (from..from + half).flat_map(|k| steps.offset(k.into()).to_le_bytes());
            let bytes: Vec<u8> = bytes.collect();
            let by = Mem::Const { offset: self.pool.place(&bytes), every: false };
            let pair = crate::cpu::x86::isel::ADD_LONG;
            let args = [self.whole(first), VirtualOperand::Mem(by)];
            ReadOperand::Reg(self.make(self.code(pair), self.full(), &args))
        });
        GroupValue::Two(parts)
    }
}
