//! Predication: a mask selects the lanes in which guards hold.
//!
//! A guard is affine along a line, so it holds between two coordinates, which are computed once a line, once for equal
//! guards. A group compares its coordinates with them. Lanes in which no guard holds get the literal. This is for short
//! lines, which would be split into segments of a few elements, and for AVX-512, whose masks suppress accesses.

use super::inst::{AllocatedOperand, Mem, RegWidth, VirtualOperand, VirtualReg};
use super::scalar_asm::CodeSink;
use super::state::{
    ALONG, BodyLowering, CoordinateRange, GroupAddress, GroupValue, LinePointer, ReadOperand,
    SweepEmitter, long,
};
use crate::cpu::codegen::loop_ir::{GuardedSource, LoadSource, ParamRead, VectorAccess};
use crate::cpu::codegen::vector_width::Unsupported;
use adfuse_ir::DType;
use iced_x86::{Code, Register};
use std::ops::Range;

const RAX: Register = Register::RAX;
const RCX: Register = Register::RCX;

/// Comparisons of whole numbers, as the instruction counts them.
const LESS: u8 = 1;
const NOT_LESS: u8 = 5;

impl SweepEmitter<'_> {
    /// Computes between which coordinates of a line of `n` elements each parameter is read that a mask is for.
    pub(crate) fn between(&mut self, n: i64) {
        let p = self.p;
        let mut known: Vec<(usize, Range<i64>, CoordinateRange)> = Vec::new();
        let mut found = vec![None; p.reads.len()];
        for (k, read) in p.reads.iter().enumerate() {
            let (ParamRead::Guarded(sources), VectorAccess::Masked, true) =
                (read, p.loads[k], p.varies[k])
            else {
                continue;
            };
            let mut all: Vec<CoordinateRange> = Vec::new();
            for (form, range) in sources.first().map_or(&[][..], |w| &w.guards) {
                let same = |(f, r, _): &&(usize, Range<i64>, CoordinateRange)| {
                    let (a, b) = (&p.forms[*f], &p.forms[*form]);
                    r == range && (a.constant, &a.steps, &a.rest) == (b.constant, &b.steps, &b.rest)
                };
                let there = known.iter().find(same).map(|(_, _, between)| *between);
                all.push(there.unwrap_or_else(|| {
                    let between = self.guard(*form, range, n);
                    known.push((*form, range.clone(), between));
                    between
                }));
            }
            let Some((&first, others)) = all.split_first() else { continue };
            if others.is_empty() {
                found[k] = Some(first);
                continue;
            }
            let both = CoordinateRange { low: self.frame.long(), high: self.frame.long() };
            self.load(RAX, Mem::Frame(first.low));
            for other in others {
                self.further(other.low, Code::Cmovl_r64_rm64);
            }
            self.store(Mem::Frame(both.low), RAX);
            self.load(RAX, Mem::Frame(first.high));
            for other in others {
                self.further(other.high, Code::Cmovg_r64_rm64);
            }
            self.store(Mem::Frame(both.high), RAX);
            found[k] = Some(both);
        }
        self.between = found;
    }

    /// Takes another coordinate in place of the one in `rax`, as the instruction says.
    fn further(&mut self, other: u32, code: Code) {
        let other = AllocatedOperand::Mem(Mem::Frame(other));
        self.ins(Code::Cmp_r64_rm64, &[AllocatedOperand::Reg(RAX), other]);
        self.ins(code, &[AllocatedOperand::Reg(RAX), other]);
    }

    /// Between which coordinates a guard holds, from 0 to `n`.
    fn guard(&mut self, form: usize, range: &Range<i64>, n: i64) -> CoordinateRange {
        let step = self.p.step(form);
        if step == 0 {
            let between = CoordinateRange { low: self.frame.long(), high: self.frame.long() };
            let (fails, done) = (self.fresh(), self.fresh());
            self.set(RAX, 0);
            self.store(Mem::Frame(between.low), RAX);
            self.guards(&vec![(form, range.clone())], fails);
            self.set(RAX, n);
            self.jump(crate::cpu::x86::encode::JUMP, done);
            self.bind(fails);
            self.set(RAX, 0);
            self.bind(done);
            self.store(Mem::Frame(between.high), RAX);
            return between;
        }
        let mut ends = Vec::new();
        self.bounds(form, range, &mut ends);
        for &end in &ends {
            self.load(RAX, Mem::Frame(end));
            for (limit, code) in [(0, Code::Cmovl_r64_rm64), (n, Code::Cmovg_r64_rm64)] {
                self.set(RCX, limit);
                self.compare(RAX, RCX);
                self.ins(code, &[AllocatedOperand::Reg(RAX), AllocatedOperand::Reg(RCX)]);
            }
            self.store(Mem::Frame(end), RAX);
        }
        match step > 0 {
            true => CoordinateRange { low: ends[0], high: ends[1] },
            false => CoordinateRange { low: ends[1], high: ends[0] },
        }
    }
}

impl BodyLowering<'_> {
    /// Neighbouring elements where guards hold, and the literal elsewhere.
    pub(crate) fn load_masked(
        &mut self,
        at: &LinePointer,
        (k, d): (usize, DType),
        sources: &[GuardedSource],
        copy: u32,
    ) -> Result<GroupValue, Unsupported> {
        let between = self.between.get(k).copied().flatten().ok_or(Unsupported::Order)?;
        let Some(GuardedSource { from: LoadSource::Literal(rest), .. }) = sources.last() else {
            return Err(Unsupported::Read(k));
        };
        let there = self.inside(between, copy);
        let base = self.base(at.loc);
        let (bytes, eight) = (d.bytes() as u32, long(d));
        let place = GroupAddress::Array { base, index: ALONG, bytes, copy };
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
        Ok(match eight {
            true => GroupValue::Two([part(self, 0), part(self, 1)]),
            false => GroupValue::One(part(self, 0)),
        })
    }

    /// The lanes of a group that are between two coordinates.
    fn inside(&mut self, between: CoordinateRange, copy: u32) -> VirtualReg {
        let coordinates = self.along(copy);
        let mut mask = self.present.first().copied();
        for (end, than) in [(between.low, NOT_LESS), (between.high, LESS)] {
            let from = [VirtualOperand::Mem(Mem::Frame(end))];
            let end = self.make(Code::EVEX_Vpbroadcastd_zmm_k1z_xmmm32, RegWidth::Z, &from);
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
        let lanes = copy * self.lanes()..(copy + 1) * self.lanes();
        let bytes: Vec<u8> = lanes.flat_map(u32::to_le_bytes).collect();
        let by = Mem::Const { offset: self.pool.place(&bytes), every: false };
        let args = [VirtualOperand::Reg(first, RegWidth::Z), VirtualOperand::Mem(by)];
        let made = self.make(Code::EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32, RegWidth::Z, &args);
        self.coordinates.push((copy, made));
        made
    }
}
