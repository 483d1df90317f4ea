//! Splits lines into segments in which guards are constant, and at which blocks of folds begin and end.
//!
//! A guard is affine along a line, so it holds between two coordinates. In a segment between neighbouring bounds, every
//! parameter is read from one source, chosen once. Lanes are set to the neutral element where a block begins, and are
//! joined where it ends. In between they stay in memory, also for the next call.

use super::inst::{AllocatedOperand, Mem};
use super::regalloc::choose;
use super::scalar_asm::CodeSink;
use super::state::{ALONG, BodyLowering, HIGH, LinePointer, PointerHome, SweepEmitter};
use crate::cpu::codegen::loop_ir::{
    Access, GuardedSource, LoadSource, LoopNest, ParamRead, VectorAccess, WalkedFold,
};
use crate::cpu::codegen::vector_width::Unsupported;
use adfuse_ir::Literal;
use iced_x86::{Code, Register};
use std::ops::Range;

const RAX: Register = Register::RAX;
const RCX: Register = Register::RCX;
const RDX: Register = Register::RDX;

/// Elements of a literal in memory: as many as the copies of a body read.
const LITERAL: usize = 4 * 16;

/// The parameters that are read through guards which change along the line.
pub(crate) fn guarded(p: &LoopNest) -> impl Iterator<Item = (usize, &[GuardedSource])> {
    p.reads.iter().enumerate().filter_map(|(k, read)| match read {
        ParamRead::Guarded(sources) if p.varies[k] && p.loads[k] == VectorAccess::Guarded => {
            Some((k, sources.as_slice()))
        }
        _ => None,
    })
}

/// The folds in the order of lanes, by their outputs.
fn lane_folds(p: &LoopNest) -> Vec<(usize, &WalkedFold, &Access)> {
    let folds = p.folds.iter().enumerate();
    folds.filter_map(|(k, f)| f.as_ref().and_then(|f| Some((k, f, f.lanes.as_ref()?)))).collect()
}

impl SweepEmitter<'_> {
    /// Along a line, stretch by stretch.
    pub(crate) fn segments(&mut self, n: i64) -> Result<(), Unsupported> {
        let p = self.p;
        let end = self.frame.long();
        self.store(Mem::Frame(end), HIGH);
        let mut breaks = Vec::new();
        for (form, range) in &p.breaks {
            self.bounds(*form, range, &mut breaks);
        }
        let (head, exit) = (self.fresh(), self.fresh());
        self.bind(head);
        self.load(HIGH, Mem::Frame(end));
        self.compare(ALONG, HIGH);
        self.jump(Code::Jge_rel32_64, exit);
        for at in breaks {
            let skip = self.fresh();
            self.load(RAX, Mem::Frame(at));
            self.compare(RAX, ALONG);
            self.jump(Code::Jle_rel32_64, skip);
            self.sooner();
            self.bind(skip);
        }
        let folds = lane_folds(p);
        if !folds.is_empty() {
            self.begin_block(&folds)?;
        }
        self.choose_sources();
        self.segment(n)?;
        self.mov(ALONG, HIGH);
        if !folds.is_empty() {
            self.end_block(&folds)?;
        }
        self.jump(crate::cpu::x86::encode::JUMP, head);
        self.bind(exit);
        Ok(())
    }

    /// Ends the stretch at `rax`, if that is sooner.
    fn sooner(&mut self) {
        self.compare(RAX, HIGH);
        self.ins(Code::Cmovl_r64_rm64, &[AllocatedOperand::Reg(HIGH), AllocatedOperand::Reg(RAX)]);
    }

    /// The coordinates between which a form is in a range.
    pub(crate) fn bounds(&mut self, form: usize, range: &Range<i64>, found: &mut Vec<u32>) {
        let step = self.p.step(form);
        let by = step.checked_abs().unwrap_or(i64::MAX);
        for end in [range.start, range.end] {
            self.form(form);
            if step > 0 {
                // The quotient of what is left to the end, rounded up.
                self.mov(RCX, RAX);
                self.set(RAX, end.wrapping_add(by - 1));
                self.sub(RAX, RCX);
                self.floor(by, false);
            } else {
                // Of what is beyond the end, rounded down, and one more.
                self.plus(RAX, end.wrapping_neg(), RCX);
                self.floor(by, false);
                self.plus(RAX, 1, RCX);
            }
            let slot = self.frame.long();
            self.store(Mem::Frame(slot), RAX);
            found.push(slot);
        }
    }

    /// Chooses the way of each parameter that is read through guards.
    fn choose_sources(&mut self) {
        let p = self.p;
        for (k, sources) in guarded(p) {
            let Some(LinePointer { loc: PointerHome::At(pointer), first: along }) =
                self.pointers.reads.get(k).copied().flatten()
            else {
                continue;
            };
            let done = self.fresh();
            for (n, source) in sources.iter().enumerate() {
                let next = self.fresh();
                // The last way holds wherever no other does.
                if n + 1 < sources.len() {
                    self.guards(&source.guards, next);
                }
                let bits = match &source.from {
                    LoadSource::Array(a) => {
                        self.form(a.form);
                        self.times(RAX, RAX, a.dtype.bytes() as i64, RDX);
                        self.pointer(RDX, a.at);
                        self.add(RAX, RDX);
                        -1
                    }
                    LoadSource::Literal(l) => {
                        let offset = self.pool.place(&in_memory(*l));
                        let m = Mem::Const { offset, every: false };
                        self.ins(
                            Code::Lea_r64_m,
                            &[AllocatedOperand::Reg(RAX), AllocatedOperand::Mem(m)],
                        );
                        0
                    }
                };
                self.store(Mem::Frame(pointer), RAX);
                self.set(RAX, bits);
                self.store(Mem::Frame(along), RAX);
                self.jump(crate::cpu::x86::encode::JUMP, done);
                self.bind(next);
            }
            self.bind(done);
        }
    }

    /// The place of the first coordinate of a stretch, or of one past the last, in `rax`.
    fn block_place(&mut self) {
        if let Some(place) = self.pointers.place {
            self.load(RAX, Mem::Frame(place));
        }
        self.add(RAX, ALONG);
    }

    /// Where a block begins, its lanes are what is neutral; the stretch ends with it.
    fn begin_block(&mut self, folds: &[(usize, &WalkedFold, &Access)]) -> Result<(), Unsupported> {
        let whole = folds.first().map_or(1, |(_, f, _)| 1i64 << f.block_bits());
        self.block_place();
        self.set(RCX, whole - 1);
        self.ins(Code::And_r64_rm64, &[AllocatedOperand::Reg(RAX), AllocatedOperand::Reg(RCX)]);
        self.mov(RCX, ALONG);
        self.sub(RCX, RAX);
        self.plus(RCX, whole, RDX);
        self.compare(RCX, HIGH);
        self.ins(Code::Cmovl_r64_rm64, &[AllocatedOperand::Reg(HIGH), AllocatedOperand::Reg(RCX)]);
        let begun = self.fresh();
        self.ins(Code::Test_rm64_r64, &[AllocatedOperand::Reg(RAX), AllocatedOperand::Reg(RAX)]);
        self.jump(Code::Jne_rel32_64, begun);
        for (_, f, lanes) in folds {
            self.block(|low| {
                low.fill_lanes(f, lanes);
                Ok(())
            })?;
        }
        self.bind(begun);
        Ok(())
    }

    /// Where a block has ended, its lanes join.
    fn end_block(&mut self, folds: &[(usize, &WalkedFold, &Access)]) -> Result<(), Unsupported> {
        let Some((_, first, _)) = folds.first() else { return Ok(()) };
        let (join, going) = (self.fresh(), self.fresh());
        self.block_place();
        self.set(RCX, first.size);
        self.compare(RAX, RCX);
        self.jump(Code::Je_rel32_64, join);
        self.set(RCX, (1i64 << first.block_bits()) - 1);
        self.ins(Code::And_r64_rm64, &[AllocatedOperand::Reg(RAX), AllocatedOperand::Reg(RCX)]);
        self.jump(Code::Jne_rel32_64, going);
        self.bind(join);
        for (k, f, lanes) in folds {
            self.block_place();
            self.plus(RAX, -1, RCX);
            self.part(f);
            let at = self.pointers.writes.get(*k).copied().flatten().ok_or(Unsupported::Order)?;
            match at.loc {
                PointerHome::In(r) => self.add(RAX, r),
                PointerHome::At(slot) => {
                    self.ins(
                        Code::Add_r64_rm64,
                        &[AllocatedOperand::Reg(RAX), AllocatedOperand::Mem(Mem::Frame(slot))],
                    );
                }
            }
            self.block(|low| low.join_lanes(f, lanes))?;
        }
        self.bind(going);
        Ok(())
    }

    /// From a place in `rax`, how far the part of its block is from that of the first block.
    pub(crate) fn part(&mut self, f: &WalkedFold) {
        let shift = AllocatedOperand::Byte(f.block_bits() as u8);
        self.ins(Code::Shr_rm64_imm8, &[AllocatedOperand::Reg(RAX), shift]);
        self.times(RAX, RAX, f.apart.wrapping_mul(f.dtype.bytes() as i64), RDX);
    }

    /// Some instructions over values.
    pub(crate) fn block(
        &mut self,
        emit: impl FnOnce(&mut BodyLowering<'_>) -> Result<(), Unsupported>,
    ) -> Result<(), Unsupported> {
        let mut low = self.low(None);
        emit(&mut low)?;
        let (items, classes) = (low.items, low.classes);
        let code = choose(&items, &classes, self.wide, &mut self.frame).code;
        self.done.extend(code);
        Ok(())
    }

    /// Makes columns that begin a block what is neutral.
    pub(crate) fn begin_columns(&mut self) -> Result<(), Unsupported> {
        let p = self.p;
        for (k, f) in p.folds.iter().enumerate() {
            let Some(f) = f.as_ref().filter(|f| f.lanes.is_none()) else { continue };
            let (top, done, begun) = (self.fresh(), self.fresh(), self.fresh());
            self.form(f.place);
            self.set(RCX, (1i64 << f.block_bits()) - 1);
            self.ins(Code::And_r64_rm64, &[AllocatedOperand::Reg(RAX), AllocatedOperand::Reg(RCX)]);
            self.jump(Code::Jne_rel32_64, begun);
            let low = self.frame.long();
            self.store(Mem::Frame(low), ALONG);
            let partial = crate::cpu::x86::state::Partial { from: None, ..self.partial };
            self.bind(top);
            self.left(done);
            self.masks(&partial);
            let mut body = self.low(Some(partial));
            body.fill_columns(f, k)?;
            let (items, classes) = (body.items, body.classes);
            let code = choose(&items, &classes, self.wide, &mut self.frame).code;
            self.done.extend(code);
            self.plus(ALONG, self.lanes().into(), RAX);
            self.jump(crate::cpu::x86::encode::JUMP, top);
            self.bind(done);
            self.load(ALONG, Mem::Frame(low));
            self.bind(begun);
        }
        Ok(())
    }
}

/// A literal as memory holds it, as often as a body may read it at once.
fn in_memory(l: Literal) -> Vec<u8> {
    let one = &l.bits().to_le_bytes()[..l.dtype().bytes() as usize];
    one.repeat(LITERAL)
}
