//! The loops of a sweep: over lines of the innermost axis, and along each line.
//!
//! Loop invariants of a line come first: coordinates, pointers, parameters and values, which are kept in the stack
//! frame. Then come interleaved groups, and then single groups, of which the last is partial: a mask selects its
//! elements. Loops over packed bits begin with a partial group too, whose first elements are before the line.

use super::constant_pool::ConstantPool;
use super::frame::{MOST, StackFrame};
use super::inst::{AllocatedOperand, CodeItem, Label, Mem};
use super::loop_split::guarded;
use super::nontemporal::outputs;
use super::regalloc::{choose, vector_move};
use super::scalar_asm::CodeSink;
pub(crate) use super::state::HIGH;
use super::state::{
    ALONG, BodyLowering, BodyShape, LANES, LaneRegs, Partial, Pointers, SweepEmitter,
};
use super::supports::{grain, taken};
use crate::cpu::codegen::loop_ir::{LoopNest, VectorAccess};
use crate::cpu::codegen::vector_width::Unsupported;
use iced_x86::{Code, Register};
use smallvec::SmallVec;

const RAX: Register = Register::RAX;
const RCX: Register = Register::RCX;
const RDX: Register = Register::RDX;
/// The place that is next, and one past the last.
const PLACE: Register = Register::RSI;
const END: Register = Register::R8;

/// Registers that the caller has again as they were.
const SAVED: [Register; 6] =
    [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];

/// Bodies of more values are not copied: the code would outgrow its cache.
const MOST_COPIED: usize = 1000;

/// Of this many instructions of interleaved groups one value may move to the frame. That costs less than
/// waiting for one group's results does; more of it does not.
const SPARED: usize = 20;

/// Groups that are interleaved: of bodies of fewer values than this four, of others two.
const LIGHT: usize = 16;

/// One group.
const SINGLE: BodyShape = BodyShape { copies: 1, rounds: 1, nontemporal: false };

impl CodeSink for SweepEmitter<'_> {
    fn push(&mut self, done: CodeItem) {
        self.done.push(done);
    }

    fn fresh(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }
}

/// Emits a sweep's function: its constants, and its instructions.
pub(crate) fn function(
    p: &LoopNest,
    wide: bool,
) -> Result<(ConstantPool, Vec<CodeItem>), Unsupported> {
    taken(p, wide)?;
    let mut frame = StackFrame::default();
    let caller = frame.long();
    let outer = (0..p.inner()).map(|_| frame.long()).collect();
    let scalars = p.reads.iter().map(|_| frame.long()).collect();
    let mut lines = SweepEmitter {
        p,
        wide,
        done: Vec::new(),
        labels: 0,
        pool: ConstantPool::default(),
        frame,
        outer,
        scalars,
        spares: Vec::new(),
        beyond: outputs(p, p.order.len() < LIGHT, if wide { 16 } else { 8 }),
        still: vec![None; p.body.insts.len()],
        pointers: Pointers::default(),
        partial: Partial::default(),
        between: Vec::new(),
    };
    lines.all()?;
    let bytes = lines.frame.bytes();
    if bytes > MOST {
        return Err(Unsupported::Frame);
    }
    let body = std::mem::take(&mut lines.done);
    lines.enter(bytes, caller);
    lines.done.extend(body);
    lines.leave(caller);
    Ok((lines.pool, lines.done))
}

impl SweepEmitter<'_> {
    pub(crate) fn lanes(&self) -> u32 {
        if self.wide { 16 } else { 8 }
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
        self.mov(END, RDX);
    }

    fn leave(&mut self, caller: u32) {
        if self.beyond.contains(&true) {
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

    /// All lines.
    fn all(&mut self) -> Result<(), Unsupported> {
        let (head, exit) = (self.fresh(), self.fresh());
        self.bind(head);
        self.compare(PLACE, END);
        self.jump(Code::Jge_rel32_64, exit);
        let n = self.p.walk.extents.last().copied().unwrap_or(1);
        if self.p.inner() == 0 {
            self.mov(ALONG, PLACE);
        } else {
            self.mov(RAX, PLACE);
            self.divide(n);
            self.mov(ALONG, RDX);
        }
        self.set(RCX, n);
        self.sub(RCX, ALONG);
        self.mov(RDX, END);
        self.sub(RDX, PLACE);
        self.compare(RDX, RCX);
        self.ins(Code::Cmovl_r64_rm64, &[AllocatedOperand::Reg(RCX), AllocatedOperand::Reg(RDX)]);
        self.add(PLACE, RCX);
        self.mov(HIGH, ALONG);
        self.add(HIGH, RCX);
        for k in (0..self.p.inner()).rev() {
            let from = match k {
                0 => RAX,
                _ => {
                    self.divide(self.p.walk.extents[k]);
                    RDX
                }
            };
            self.store(Mem::Frame(self.outer[k]), from);
        }
        self.line()?;
        self.along(n)?;
        self.jump(crate::cpu::x86::encode::JUMP, head);
        self.bind(exit);
        Ok(())
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
            pointers: &self.pointers,
            between: &self.between,
            coordinates: Vec::new(),
            beyond: &[],
            partial,
            present: SmallVec::new(),
            uppers: Vec::new(),
            held: None,
        }
    }

    /// A body on some groups, of which several are interleaved; none where registers are too few for more
    /// than one at a time, or for lanes that are to stay in them.
    fn body(
        &mut self,
        shape: BodyShape,
        held: Option<&LaneRegs>,
        partial: Option<Partial>,
    ) -> Result<Option<Vec<CodeItem>>, Unsupported> {
        let frame = self.frame;
        let beyond = if shape.nontemporal { self.beyond.clone() } else { Vec::new() };
        let mut low = self.low(partial);
        low.beyond = &beyond;
        low.begin();
        if let Some(held) = held {
            low.bind_lanes(held);
        }
        for round in 0..shape.rounds {
            low.groups(round * shape.copies..(round + 1) * shape.copies)?;
        }
        let (items, classes) = (low.items, low.classes);
        let chosen = choose(&items, &classes, self.wide, &mut self.frame);
        let crowded = chosen.spills as usize * SPARED > items.len();
        if chosen.clash || crowded && (shape.copies > 1 || held.is_some()) {
            self.frame = frame;
            return Ok(None);
        }
        Ok(Some(chosen.code))
    }

    /// How many groups a loop has, of those shapes that come into question the first that suits.
    fn several(
        &mut self,
        n: i64,
        held: Option<&LaneRegs>,
        nontemporal: bool,
    ) -> Result<Option<(u32, Vec<CodeItem>)>, Unsupported> {
        let wanted: &[u32] = match self.p.order.len() {
            0..LIGHT => &[4, 2, 1],
            LIGHT..MOST_COPIED => &[2, 1],
            _ => &[],
        };
        for &copies in wanted {
            // Lanes in registers are gone through whole.
            let least = if held.is_some() { LANES / self.lanes() } else { 1 };
            let shape = BodyShape { copies, rounds: least.div_ceil(copies), nontemporal };
            let step = shape.copies * shape.rounds * self.lanes();
            if i64::from(step) <= n
                && let Some(code) = self.body(shape, held, None)?
            {
                return Ok(Some((step, code)));
            }
        }
        Ok(None)
    }

    /// Along a line.
    fn along(&mut self, n: i64) -> Result<(), Unsupported> {
        let p = self.p;
        let mut partial =
            Partial { to: self.frame.long(), from: None, bits: self.frame.long(), masks: [0; 3] };
        if !self.wide {
            partial.masks = [0; 3].map(|_| self.frame.vector());
        }
        if p.packed() || p.lanes().is_some() || p.spreads().is_some() {
            partial.from = Some(self.frame.long());
        }
        self.partial = partial;
        self.between(n);
        self.begin_columns()?;
        match p.lanes().is_some() || guarded(p).next().is_some() {
            true => self.segments(n),
            false => self.segment(n),
        }
    }

    /// From a coordinate to another.
    pub(crate) fn segment(&mut self, n: i64) -> Result<(), Unsupported> {
        let p = self.p;
        let lanes = self.lanes();
        let partial = self.partial;
        let (main, rest, done) = (self.fresh(), self.fresh(), self.fresh());
        if let Some(from) = partial.from {
            // Groups begin where bytes do, or lanes.
            let accesses = self.pointers.reads.iter().zip(&p.loads);
            let accesses = accesses.chain(self.pointers.writes.iter().zip(&p.stores));
            let first =
                accesses.filter(|(_, r)| **r == VectorAccess::Packed).find_map(|(at, _)| *at);
            let first = first.map(|at| at.first).or(self.pointers.place);
            match first {
                Some(first) => self.load(RAX, Mem::Frame(first)),
                // Or with the first of the coordinates that read one element.
                None => self.set(RAX, 0),
            }
            self.add(RAX, ALONG);
            let grain = grain(p, self.wide) as i32;
            self.ins(
                Code::And_rm64_imm32,
                &[AllocatedOperand::Reg(RAX), AllocatedOperand::Short(grain - 1)],
            );
            self.store(Mem::Frame(from), RAX);
            self.sub(ALONG, RAX);
            self.ins(
                Code::Test_rm64_r64,
                &[AllocatedOperand::Reg(RAX), AllocatedOperand::Reg(RAX)],
            );
            self.jump(Code::Jne_rel32_64, rest);
        }
        self.bind(main);
        let mut held = self.lane_registers();
        let mut several = match &held {
            Some(_) => self.several(n, held.as_ref(), false)?,
            None => None,
        };
        if several.is_none() {
            held = None;
            several = self.several(n, None, false)?;
        }
        if let Some((step, code)) = several {
            self.nontemporal_loop(n, rest)?;
            self.next(step);
            self.jump(Code::Jg_rel32_64, rest);
            if let Some(held) = &held {
                self.unless_first(rest)?;
                self.move_lanes(held, true);
            }
            self.loop_of(step, code);
            if let Some(held) = &held {
                self.move_lanes(held, false);
            }
        }
        self.bind(rest);
        self.left(done);
        self.masks(&partial);
        let code = self.body(SINGLE, None, Some(partial))?.ok_or(Unsupported::Order)?;
        self.done.extend(code);
        self.plus(ALONG, lanes.into(), RAX);
        if let Some(from) = partial.from {
            self.set(RAX, 0);
            self.store(Mem::Frame(from), RAX);
            self.jump(crate::cpu::x86::encode::JUMP, main);
        } else {
            self.jump(crate::cpu::x86::encode::JUMP, rest);
        }
        self.bind(done);
        Ok(())
    }

    /// Compares the end of this many elements with the line's.
    fn next(&mut self, step: u32) {
        let m = Mem::At { base: ALONG, index: None, offset: step as i32 };
        self.ins(Code::Lea_r64_m, &[AllocatedOperand::Reg(RAX), AllocatedOperand::Mem(m)]);
        self.compare(RAX, HIGH);
    }

    /// A loop over bodies of this many elements, while at least as many remain; the caller knows that the first does.
    fn loop_of(&mut self, step: u32, code: Vec<CodeItem>) {
        let top = self.fresh();
        self.bind(top);
        self.done.extend(code);
        self.plus(ALONG, step.into(), RAX);
        self.next(step);
        self.jump(Code::Jle_rel32_64, top);
    }

    /// The loop that stores past the caches, where outputs do; it goes on at a label, or behind itself where
    /// outputs do not lie so.
    fn nontemporal_loop(&mut self, n: i64, rest: Label) -> Result<(), Unsupported> {
        let (there, plain) = (self.fresh(), self.fresh());
        if !self.short_of(there) {
            return Ok(());
        }
        let partial = self.partial;
        self.masks(&partial);
        let code = self.body(SINGLE, None, Some(partial))?.ok_or(Unsupported::Order)?;
        self.done.extend(code);
        self.ins(
            Code::Add_r64_rm64,
            &[AllocatedOperand::Reg(ALONG), AllocatedOperand::Mem(Mem::Frame(partial.to))],
        );
        self.bind(there);
        self.unless_there(plain);
        if let Some((step, code)) = self.several(n, None, true)? {
            self.next(step);
            self.jump(Code::Jg_rel32_64, rest);
            self.loop_of(step, code);
            self.jump(crate::cpu::x86::encode::JUMP, rest);
        }
        self.bind(plain);
        Ok(())
    }

    /// Puts in `rcx` how many elements of a group are left; goes on at a label where none is.
    pub(crate) fn left(&mut self, none: Label) {
        self.mov(RCX, HIGH);
        self.sub(RCX, ALONG);
        self.jump(Code::Jle_rel32_64, none);
        self.set(RAX, self.lanes().into());
        self.compare(RCX, RAX);
        self.ins(Code::Cmovg_r64_rm64, &[AllocatedOperand::Reg(RCX), AllocatedOperand::Reg(RAX)]);
    }

    /// The masks of a group of as many elements as `rcx` says.
    pub(crate) fn masks(&mut self, partial: &Partial) {
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
}
