//! Translates loop programs: loops and branches, interleaved groups and partial ones.
//!
//! What does not change along a line is kept in the stack frame. A loop of groups tries the shapes that the program names:
//! the first that leaves enough registers is emitted.

use super::constant_pool::ConstantPool;
use super::frame::{MOST, StackFrame};
use super::gpr::{HIGH, Homes, ValueHome, homes};
use super::inst::{AllocatedOperand, CodeItem, Label, Mem, VirtualItem};
use super::invariants::repeated;
use super::regalloc::{AllocatedBody, choose, vector_move};
use super::scalar_asm::CodeSink;
use super::state::{ALONG, BodyLowering, LaneRegs, Partial, SweepEmitter};
use crate::cpu::codegen::loop_program::{
    GroupShape, LoopBlock, LoopProgram, LoopStmt, LoopVal, TransposedTile,
};
use crate::cpu::codegen::transposed_tiles::TILE_LINES;
use crate::cpu::codegen::vector_width::Unsupported;
use iced_x86::{Code, Register};
use smallvec::SmallVec;

const RAX: Register = Register::RAX;
const RCX: Register = Register::RCX;
const RDX: Register = Register::RDX;

/// Registers that the caller has again as they were.
const SAVED: [Register; 6] =
    [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];

/// Of this many instructions of interleaved groups one value may move to the frame. That costs less than
/// waiting for one group's results does; more of it does not.
const SPARED: usize = 20;

/// Whether more values of a body move to the frame than interleaving its groups gains.
pub(super) fn is_crowded(chosen: &AllocatedBody, items: &[VirtualItem]) -> bool {
    chosen.spills as usize * SPARED > items.len()
}

/// One group.
const SINGLE: GroupShape = GroupShape { copies: 1, rounds: 1, held: false, strip: 0 };

impl CodeSink for SweepEmitter<'_> {
    fn push(&mut self, done: CodeItem) {
        self.done.push(done);
    }

    fn fresh(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    fn home(&self, v: LoopVal) -> ValueHome {
        self.homes.get(v.0 as usize).copied().unwrap_or(ValueHome::Unused)
    }
}

/// Emits a sweep's function: its constants, and its instructions. Without strips, where these leave too little of the frame for
/// the rest.
pub(crate) fn function(p: &LoopProgram) -> Result<(ConstantPool, Vec<CodeItem>), Unsupported> {
    match emit(p, true) {
        Err(Unsupported::Frame) if !p.cuts.is_empty() => emit(p, false),
        made => made,
    }
}

pub(super) fn emit(
    p: &LoopProgram,
    has_strips: bool,
) -> Result<(ConstantPool, Vec<CodeItem>), Unsupported> {
    let mut frame = StackFrame::default();
    let caller = frame.long();
    let wide = p.lanes == 16;
    let repeated = repeated(p, wide);
    let Homes { of: homes, ops } = homes(p, (&repeated, wide), &mut frame);
    let mut partial = Partial { to: frame.long(), from: None, bits: frame.long(), masks: [0; 3] };
    if !wide {
        partial.masks = [0; 3].map(|_| frame.vector());
    }
    let first = frame.long();
    let room = |t: &TransposedTile| u32::try_from(t.pitch().saturating_mul(TILE_LINES));
    let mut tiles = Vec::new();
    for tile in &p.tiles {
        tiles.push(frame.room(room(tile).map_err(|_| Unsupported::Frame)?));
    }
    let mut lines = SweepEmitter {
        p,
        wide,
        done: Vec::new(),
        labels: 0,
        pool: ConstantPool::default(),
        frame,
        homes,
        ops,
        repeated,
        still: vec![None; p.body.insts.len()],
        partial,
        first,
        tiles,
        tail: None,
        has_strips,
    };
    lines.block(&p.code)?;
    let bytes = lines.frame.bytes();
    if bytes > MOST {
        return Err(Unsupported::Frame);
    }
    let body = std::mem::take(&mut lines.done);
    lines.enter(bytes, caller);
    lines.begin();
    if let Some((tail, count)) = lines.tail {
        lines.set(RCX, count);
        lines.fill_masks(tail);
    }
    lines.done.extend(body);
    lines.leave(caller);
    Ok((lines.pool, lines.done))
}

impl SweepEmitter<'_> {
    pub(crate) fn lanes(&self) -> u32 {
        self.p.lanes
    }

    /// The values that the function is given.
    fn begin(&mut self) {
        // The second is read before the first may take its register.
        self.mov(RAX, RDX);
        self.settle(LoopVal::BEGIN, Register::RSI);
        self.settle(LoopVal::END, RAX);
    }

    fn enter(&mut self, bytes: u32, caller: u32) {
        for r in SAVED {
            self.ins(Code::Push_r64, &[AllocatedOperand::Reg(r)]);
        }
        self.mov(RAX, Register::RSP);
        let size = AllocatedOperand::Short(bytes as i32);
        self.ins(Code::Sub_rm64_imm32, &[AllocatedOperand::Reg(Register::RSP), size]);
        self.ins(
            Code::And_rm64_imm32,
            &[AllocatedOperand::Reg(Register::RSP), AllocatedOperand::Short(-64)],
        );
        // The stack grows page by page.
        for page in 1..=bytes / 4096 {
            let offset = (bytes - page * 4096) as i32;
            let m = Mem::At { base: Register::RSP, index: None, offset };
            self.store(m, RAX);
        }
        self.store(Mem::Frame(caller), RAX);
    }

    fn leave(&mut self, caller: u32) {
        if self.p.is_nontemporal() {
            self.ins(Code::Sfence, &[]);
        }
        // The upper halves of registers slow down other code that does not know of them.
        self.ins(Code::VEX_Vzeroupper, &[]);
        self.load(Register::RSP, Mem::Frame(caller));
        for r in SAVED.into_iter().rev() {
            self.ins(Code::Pop_r64, &[AllocatedOperand::Reg(r)]);
        }
        self.ins(Code::Retnq, &[]);
    }

    fn block(&mut self, block: &LoopBlock) -> Result<(), Unsupported> {
        block.iter().try_for_each(|s| self.stmt(s))
    }

    fn stmt(&mut self, s: &LoopStmt) -> Result<(), Unsupported> {
        match s {
            LoopStmt::Let(v, op) => self.define(*v, op)?,
            LoopStmt::If { all, then, otherwise, results } => {
                let (no, after) = (self.fresh(), self.fresh());
                all.iter().for_each(|c| self.unless(c, no));
                self.block(then)?;
                results.iter().for_each(|&(r, a, _)| self.handed(r, a));
                if otherwise.is_empty() && results.iter().all(|&(r, _, b)| self.is_there(r, b)) {
                    self.bind(no);
                    return Ok(());
                }
                self.jump(super::encode::JUMP, after);
                self.bind(no);
                self.block(otherwise)?;
                results.iter().for_each(|&(r, _, b)| self.handed(r, b));
                self.bind(after);
            }
            LoopStmt::While { carried, below, body, next } => {
                let (top, exit) = (self.fresh(), self.fresh());
                let &(first, _) = carried.first().ok_or(Unsupported::Order)?;
                carried.iter().for_each(|&(now, begin)| self.handed(now, begin));
                let at = self.in_register(first, RAX);
                self.compare_with(at, *below);
                self.jump(Code::Jge_rel32_64, exit);
                self.bind(top);
                self.block(body)?;
                carried.iter().zip(next).for_each(|(&(now, _), &n)| self.handed(now, n));
                let at = self.in_register(first, RAX);
                self.compare_with(at, *below);
                self.jump(Code::Jl_rel32_64, top);
                self.bind(exit);
            }
            LoopStmt::Transpose { tile, from, lines } => self.transpose(*tile, [*from, *lines])?,
            LoopStmt::Groups { last, from, to, shapes, nontemporal } => {
                self.fetch(ALONG, *from);
                self.fetch(HIGH, *to);
                self.groups(shapes, *nontemporal)?;
                self.settle(*last, ALONG);
            }
            LoopStmt::Line { count, copies, joins } => {
                self.set(ALONG, 0);
                let code = self.line(*count, copies, joins)?;
                self.done.extend(code);
            }
            LoopStmt::Partial { at, first, count } => {
                let partial = self.masks(*at, *first, *count);
                let code = self.body(SINGLE, None, Some(partial), false)?;
                self.done.extend(code.ok_or(Unsupported::Order)?);
            }
            LoopStmt::Invariants { params } => self.invariants(params)?,
            LoopStmt::FillColumns { output, at, count } => {
                let count = count.ok_or(Unsupported::Order)?;
                let partial = self.masks(*at, None, count);
                self.values(Some(partial), |low| low.fill_columns(*output))?;
            }
            LoopStmt::FillLanes { output } => self.values(None, |low| low.fill_lanes(*output))?,
            LoopStmt::JoinLanes { output, to } => {
                self.fetch(RAX, *to);
                self.values(None, |low| low.join_lanes(*output))?;
            }
            // Lowering makes none for groups that may be partial.
            LoopStmt::Element { .. }
            | LoopStmt::Store { .. }
            | LoopStmt::StoreBits { .. }
            | LoopStmt::Combine { .. } => return Err(Unsupported::Order),
        }
        Ok(())
    }

    fn is_there(&self, to: LoopVal, from: LoopVal) -> bool {
        let home = self.home(to);
        home == ValueHome::Unused || home == self.home(from)
    }

    /// Moves a value to where another is.
    fn handed(&mut self, to: LoopVal, from: LoopVal) {
        match self.home(to) {
            ValueHome::In(r) => self.fetch(r, from),
            ValueHome::Unused => {}
            _ => {
                let from = self.in_register(from, RAX);
                self.settle(to, from);
            }
        }
    }

    pub(crate) fn low(&mut self, partial: Option<Partial>) -> BodyLowering<'_> {
        BodyLowering {
            p: self.p,
            wide: self.wide,
            items: Vec::new(),
            classes: Vec::new(),
            labels: &mut self.labels,
            pool: &mut self.pool,
            frame: &mut self.frame,
            still: &self.still,
            homes: &self.homes,
            coordinates: Vec::new(),
            guarded: Vec::new(),
            element_masks: Vec::new(),
            nontemporal: false,
            partial,
            present: SmallVec::new(),
            uppers: Vec::new(),
            held: None,
            of_line: None,
        }
    }

    /// The body on all groups of a line of this many elements, of which as many are interleaved as registers allow.
    fn line(
        &mut self,
        count: i64,
        copies: &[u32],
        joins: &[(usize, LoopVal)],
    ) -> Result<Vec<CodeItem>, Unsupported> {
        let lanes = i64::from(self.lanes());
        let (whole, left) = ((count / lanes) as u32, count % lanes);
        if left > 0 && self.tail.is_none() {
            let mut tail =
                Partial { to: self.frame.long(), bits: self.frame.long(), ..Partial::default() };
            if !self.wide {
                tail.masks = [0; 3].map(|_| self.frame.vector());
            }
            self.tail = Some((tail, left));
        }
        let tail = self.tail.map(|(tail, _)| tail);
        for (k, &most) in copies.iter().enumerate() {
            let frame = self.frame;
            let mut low = self.low(None);
            low.of_line = Some(vec![SmallVec::new(); low.p.writes.len()]);
            for first in (0..whole).step_by(most as usize) {
                low.groups(first..(first + most).min(whole))?;
            }
            if left > 0 {
                low.partial = tail;
                low.begin();
                low.groups(whole..whole + 1)?;
            }
            joins.iter().try_for_each(|&(output, to)| low.join_line(output, to))?;
            let (items, classes) = (low.items, low.classes);
            let chosen = choose(&items, &classes, self.wide, &mut self.frame);
            let last = k + 1 == copies.len();
            if chosen.clash || is_crowded(&chosen, &items) && !last {
                self.frame = frame;
                continue;
            }
            return Ok(chosen.code);
        }
        Err(Unsupported::Order)
    }

    /// A body on some groups, of which several are interleaved; none where registers are too few for more
    /// than one at a time, or for lanes that are to stay in them.
    fn body(
        &mut self,
        shape: GroupShape,
        held: Option<&LaneRegs>,
        partial: Option<Partial>,
        nontemporal: bool,
    ) -> Result<Option<Vec<CodeItem>>, Unsupported> {
        let frame = self.frame;
        let mut low = self.low(partial);
        low.nontemporal = nontemporal;
        low.begin();
        if let Some(held) = held {
            low.bind_lanes(held);
        }
        for round in 0..shape.rounds {
            low.groups(round * shape.copies..(round + 1) * shape.copies)?;
        }
        let (items, classes) = (low.items, low.classes);
        let chosen = choose(&items, &classes, self.wide, &mut self.frame);
        if chosen.clash || is_crowded(&chosen, &items) && (shape.copies > 1 || held.is_some()) {
            self.frame = frame;
            return Ok(None);
        }
        Ok(Some(chosen.code))
    }

    /// Whole groups from one coordinate while they fit below another, in the first shape that suits.
    fn groups(&mut self, shapes: &[GroupShape], nontemporal: bool) -> Result<(), Unsupported> {
        for &shape in shapes {
            if shape.strip > 0 {
                match self.strips(shape)? {
                    true => return Ok(()),
                    false => continue,
                }
            }
            let held = if shape.held { Some(self.lane_registers()) } else { None };
            let Some(code) = self.body(shape, held.as_ref(), None, nontemporal)? else { continue };
            let (step, rest) = (shape.copies * shape.rounds * self.p.apart, self.fresh());
            // Idle lanes read what is there.
            let last = step + self.p.lanes - self.p.apart;
            self.next(last);
            self.jump(Code::Jg_rel32_64, rest);
            if let Some(held) = &held {
                self.unless_first(rest);
                self.move_lanes(held, true);
            }
            let top = self.fresh();
            self.bind(top);
            self.done.extend(code);
            self.plus(ALONG, step.into(), RAX);
            self.next(last);
            self.jump(Code::Jle_rel32_64, top);
            if let Some(held) = &held {
                self.move_lanes(held, false);
            }
            self.bind(rest);
            return Ok(());
        }
        Ok(())
    }

    /// Compares the end of this many elements with the line's.
    fn next(&mut self, step: u32) {
        let m = Mem::At { base: ALONG, index: None, offset: step as i32 };
        self.ins(Code::Lea_r64_m, &[AllocatedOperand::Reg(RAX), AllocatedOperand::Mem(m)]);
        self.compare(RAX, HIGH);
    }

    /// The masks of a group at a coordinate, of which the elements from one on up to a count are there.
    fn masks(&mut self, at: LoopVal, first: Option<LoopVal>, count: LoopVal) -> Partial {
        let partial = Partial { from: first.map(|_| self.first), ..self.partial };
        self.fetch(ALONG, at);
        if let (Some(first), Some(slot)) = (first, partial.from) {
            let first = self.in_register(first, RAX);
            self.store(Mem::Frame(slot), first);
        }
        self.fetch(RCX, count);
        self.fill_masks(partial);
        partial
    }

    /// Fills the masks of a group of which as many elements as `rcx` says are there, from the first one that is.
    fn fill_masks(&mut self, partial: Partial) {
        self.store(Mem::Frame(partial.to), RCX);
        self.set(RAX, -1);
        let (low, count) =
            (AllocatedOperand::Reg(Register::EAX), AllocatedOperand::Reg(Register::ECX));
        self.ins(Code::VEX_Bzhi_r32_rm32_r32, &[low, low, count]);
        if !self.wide {
            // This many lanes are cut out of a table.
            let table: Vec<u8> =
                (0..96).map(|k| if (32..64).contains(&k) { 0xff } else { 0 }).collect();
            let offset = self.pool.place(&table);
            let m = Mem::Const { offset, every: false };
            self.ins(Code::Lea_r64_m, &[AllocatedOperand::Reg(RDX), AllocatedOperand::Mem(m)]);
            self.ins(Code::Neg_rm64, &[AllocatedOperand::Reg(RCX)]);
            let at = |offset| Mem::At { base: RDX, index: Some((RCX, 4)), offset };
            self.push(CodeItem::Ins(vector_move(false, 0, at(64), true)));
            if let Some(from) = partial.from {
                self.load(RCX, Mem::Frame(from));
                self.ins(Code::Neg_rm64, &[AllocatedOperand::Reg(RCX)]);
                let (a, b) = (AllocatedOperand::Reg(Register::YMM0), AllocatedOperand::Mem(at(32)));
                self.ins(Code::VEX_Vpand_ymm_ymm_ymmm256, &[a, a, b]);
            }
            let x = AllocatedOperand::Reg(Register::XMM0);
            self.push(CodeItem::Ins(vector_move(false, 0, Mem::Frame(partial.masks[0]), false)));
            let wide = AllocatedOperand::Reg(Register::YMM1);
            self.ins(Code::VEX_Vpmovsxdq_ymm_xmmm128, &[wide, x]);
            self.push(CodeItem::Ins(vector_move(false, 1, Mem::Frame(partial.masks[1]), false)));
            let both = [x, AllocatedOperand::Reg(Register::YMM0), AllocatedOperand::Byte(1)];
            self.ins(Code::VEX_Vextracti128_xmmm128_ymm_imm8, &both);
            self.ins(Code::VEX_Vpmovsxdq_ymm_xmmm128, &[wide, x]);
            self.push(CodeItem::Ins(vector_move(false, 1, Mem::Frame(partial.masks[2]), false)));
        }
        if let Some(from) = partial.from {
            self.set(RDX, -1);
            self.load(RCX, Mem::Frame(from));
            let high = AllocatedOperand::Reg(Register::EDX);
            self.ins(Code::Shl_rm32_CL, &[high, AllocatedOperand::Reg(Register::CL)]);
            self.ins(Code::And_r32_rm32, &[low, high]);
        }
        self.store(Mem::Frame(partial.bits), RAX);
    }

    /// Some instructions over values.
    pub(crate) fn values(
        &mut self,
        partial: Option<Partial>,
        emit: impl FnOnce(&mut BodyLowering<'_>) -> Result<(), Unsupported>,
    ) -> Result<(), Unsupported> {
        let mut low = self.low(partial);
        emit(&mut low)?;
        let (items, classes) = (low.items, low.classes);
        let code = choose(&items, &classes, self.wide, &mut self.frame).code;
        self.done.extend(code);
        Ok(())
    }
}
