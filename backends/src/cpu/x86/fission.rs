//! Bodies in parts: each part for all groups of a strip, then the next one.
//!
//! `r10`, which is the end of other loops of groups, is the offset of a group's mask in the strip, so that vectors of 64 bytes are
//! eight times as far, and vectors of 32 four times.

use super::body::used_once;
use super::frame::{MOST, StackFrame};
use super::gpr::HIGH;
use super::inst::{AllocatedOperand, CodeItem, Label, Mem};
use super::loops::is_crowded;
use super::regalloc::choose;
use super::scalar_asm::CodeSink;
use super::shared_counters::{GroupValues, SharedCounters};
use super::state::{ALONG, BodyLowering, GroupValue, ReadOperand, SweepEmitter};
use crate::cpu::codegen::fission::BodyParts;
use crate::cpu::codegen::loop_program::GroupShape;
use crate::cpu::codegen::vector_width::Unsupported;
use adfuse_ir::scalar::SVal;
use cranelift_entity::EntityRef;
use iced_x86::{Code, Register};
use smallvec::SmallVec;

const RAX: Register = Register::RAX;

/// Bytes from a group's mask to the next.
const MASK: u32 = 8;

/// Where the values of a strip's groups are that later parts use.
#[derive(Clone)]
struct StripValues {
    groups: u32,
    /// Bytes of a vector.
    vector: u32,
    /// Of each value, where it is, while it is.
    at: Vec<Option<GroupValue>>,
    /// Places of vectors, and of masks, that are free again.
    vectors: Vec<u32>,
    masks: Vec<u32>,
}

impl StripValues {
    /// A place for the vectors of all groups.
    fn vector(&mut self, frame: &mut StackFrame) -> u32 {
        self.vectors.pop().unwrap_or_else(|| frame.room(self.groups * self.vector))
    }

    /// A place for the masks of all groups.
    fn mask(&mut self, frame: &mut StackFrame) -> u32 {
        self.masks.pop().unwrap_or_else(|| frame.room(self.groups * MASK))
    }

    /// Where a copy of a group has a vector or mask.
    fn at_group(&self, slot: u32, is_mask: bool, copy: u32) -> Mem {
        let bytes = if is_mask { MASK } else { self.vector };
        let index = Some((HIGH, bytes / MASK));
        Mem::At { base: Register::RSP, index, offset: (slot + copy * bytes) as i32 }
    }

    /// Frees the places of values that no later part uses.
    fn end_part(&mut self, part: usize, parts: &BodyParts) {
        for (v, at) in self.at.iter_mut().enumerate() {
            if parts.last_use(SVal::new(v)) <= part
                && let Some(value) = at.take()
            {
                let free = if value.is_bits() { &mut self.masks } else { &mut self.vectors };
                free.extend(value.parts().iter().filter_map(|x| x.slot()));
            }
        }
    }
}

impl SweepEmitter<'_> {
    /// Whole groups from one coordinate while they fit below another, strip by strip; false where registers or the frame are too small,
    /// or groups share what parts would compute for each.
    pub(super) fn strips(&mut self, shape: GroupShape) -> Result<bool, Unsupported> {
        if !self.has_strips || self.wide && SharedCounters::of(self.p).is_some() {
            return Ok(false);
        }
        let frame = self.frame;
        let parts = BodyParts::of(self.p);
        let at = vec![None; self.p.body.insts.len()];
        let (vectors, masks) = (Vec::new(), Vec::new());
        let (groups, vector) = (shape.strip, 4 * self.lanes());
        let mut strip = StripValues { groups, vector, at, vectors, masks };
        let mut found = Vec::new();
        for part in 0..parts.ranges.len() {
            found.extend(self.part(part, &parts, shape.copies, &mut strip)?);
            if found.len() <= part || self.frame.bytes() > MOST {
                self.frame = frame;
                return Ok(false);
            }
            strip.end_part(part, &parts);
        }
        // Groups that are not interleaved in parts either gain nothing.
        let lengths = parts.ranges.iter().map(std::ops::Range::len);
        let interleaved: usize =
            lengths.zip(&found).map(|(n, (copies, _))| n * *copies as usize).sum();
        if interleaved < 2 * self.p.order.len() {
            self.frame = frame;
            return Ok(false);
        }
        let most = found.iter().map(|(copies, _)| *copies).max().unwrap_or(1);
        let end = Mem::Frame(self.frame.long());
        let (top, rest) = (self.fresh(), self.fresh());
        let to = Mem::Frame(self.frame.long());
        self.store(to, HIGH);
        self.bind(top);
        self.load(RAX, to);
        self.strip_end(shape.strip, most, end, rest);
        for (part, (copies, code)) in found.into_iter().enumerate() {
            if part > 0 {
                self.back(end);
            }
            self.set(HIGH, 0);
            let next = self.fresh();
            self.bind(next);
            self.done.extend(code);
            self.plus(ALONG, (copies * self.lanes()).into(), RAX);
            self.plus(HIGH, (copies * MASK).into(), RAX);
            let (high, end) = (AllocatedOperand::Reg(HIGH), AllocatedOperand::Mem(end));
            self.ins(Code::Cmp_r64_rm64, &[high, end]);
            self.jump(Code::Jl_rel32_64, next);
        }
        self.jump(super::encode::JUMP, top);
        self.bind(rest);
        Ok(true)
    }

    /// Stores where the strip ends that begins at the coordinate, of groups that end below `rax`: at most this many groups, and a
    /// multiple of another number. Without any it jumps.
    fn strip_end(&mut self, groups: u32, multiple: u32, end: Mem, rest: Label) {
        let rax = AllocatedOperand::Reg(RAX);
        self.ins(Code::Sub_r64_rm64, &[rax, AllocatedOperand::Reg(ALONG)]);
        let lanes = AllocatedOperand::Byte(self.lanes().trailing_zeros() as u8);
        self.ins(Code::Sar_rm64_imm8, &[rax, lanes]);
        let multiple = AllocatedOperand::Short(-(multiple as i32));
        self.ins(Code::And_rm64_imm32, &[rax, multiple]);
        self.ins(Code::Cmp_rm64_imm32, &[rax, AllocatedOperand::Short(0)]);
        self.jump(Code::Jle_rel32_64, rest);
        let fits = self.fresh();
        let most = AllocatedOperand::Short(groups as i32);
        self.ins(Code::Cmp_rm64_imm32, &[rax, most]);
        self.jump(Code::Jle_rel32_64, fits);
        self.ins(Code::Mov_rm64_imm32, &[rax, most]);
        self.bind(fits);
        self.times(RAX, RAX, MASK.into(), RAX);
        self.store(end, RAX);
    }

    /// The coordinate is again where the strip begins.
    fn back(&mut self, end: Mem) {
        self.load(RAX, end);
        self.times(RAX, RAX, i64::from(self.lanes() / MASK), RAX);
        let (along, rax) = (AllocatedOperand::Reg(ALONG), AllocatedOperand::Reg(RAX));
        self.ins(Code::Sub_r64_rm64, &[along, rax]);
    }

    /// A part on as many groups as registers allow, and how many these are.
    fn part(
        &mut self,
        part: usize,
        parts: &BodyParts,
        most: u32,
        strip: &mut StripValues,
    ) -> Result<Option<(u32, Vec<CodeItem>)>, Unsupported> {
        let (frame, before) = (self.frame, strip.clone());
        let mut copies = most;
        while copies > 0 {
            let mut low = self.low(None);
            low.begin();
            low.part_groups(part, parts, copies, strip)?;
            let (items, classes) = (low.items, low.classes);
            let chosen = choose(&items, &classes, self.wide, &mut self.frame);
            if !(chosen.clash || is_crowded(&chosen, &items) && copies > 1) {
                return Ok(Some((copies, chosen.code)));
            }
            (self.frame, *strip) = (frame, before.clone());
            copies /= 2;
        }
        Ok(None)
    }
}

impl BodyLowering<'_> {
    /// Computes the values of a part, for this many groups: keeps what later parts use, and stores the outputs if it is the last one.
    fn part_groups(
        &mut self,
        part: usize,
        parts: &BodyParts,
        copies: u32,
        strip: &mut StripValues,
    ) -> Result<(), Unsupported> {
        let p = self.p;
        let mut values: GroupValues = vec![SmallVec::new(); p.body.insts.len()];
        let order = &p.order[parts.ranges[part].clone()];
        let is_last = part + 1 == parts.ranges.len();
        let outputs: &[SVal] = if is_last { &p.body.outputs } else { &[] };
        let once = used_once(p, order, outputs);
        for &v in order.iter().filter(|&&v| !parts.is_reread(v)) {
            for &a in &p.body.insts[v].args {
                self.fetch_value(a, (parts, once[a.index()]), copies, strip, &mut values)?;
            }
            self.value(v, once[v.index()], 0..copies, &mut values)?;
            if parts.last_use(v) > part {
                self.keep(v, strip, &mut values)?;
            }
        }
        // All is read before anything is stored: an output may be where a parameter is.
        for &v in outputs {
            self.fetch_value(v, (parts, once[v.index()]), copies, strip, &mut values)?;
        }
        let mut outputs = outputs.iter().enumerate();
        outputs.try_for_each(|(k, &v)| self.group_outputs(k, v, 0..copies, &values))
    }

    /// Makes a value that an earlier part has computed, or that parts read themselves, one of this part.
    fn fetch_value(
        &mut self,
        v: SVal,
        (parts, once): (&BodyParts, bool),
        copies: u32,
        strip: &StripValues,
        values: &mut GroupValues,
    ) -> Result<(), Unsupported> {
        if !values[v.index()].is_empty() {
            return Ok(());
        }
        if parts.is_reread(v) {
            return self.value(v, once, 0..copies, values);
        }
        let Some(kept) = strip.at[v.index()] else { return Ok(()) };
        for copy in 0..copies {
            let there = kept.map(|x| match x.slot() {
                Some(slot) => ReadOperand::There(strip.at_group(slot, kept.is_bits(), copy)),
                None => x,
            });
            let value = if once { there } else { self.loaded(there) };
            values[v.index()].push(value);
        }
        Ok(())
    }

    /// Stores a value of all groups in the strip.
    fn keep(
        &mut self,
        v: SVal,
        strip: &mut StripValues,
        values: &mut GroupValues,
    ) -> Result<(), Unsupported> {
        let Some(&first) = values[v.index()].first() else { return Err(Unsupported::Order) };
        let frame = &mut *self.frame;
        let kept = first.map(|_| {
            ReadOperand::Slot(if first.is_bits() { strip.mask(frame) } else { strip.vector(frame) })
        });
        for (copy, value) in (0..).zip(&mut values[v.index()]) {
            // Later uses in this part have the register.
            let found = self.in_registers(*value);
            *value = found;
            for (part, to) in found.parts().iter().zip(kept.parts()) {
                let slot = to.slot().ok_or(Unsupported::Order)?;
                let ReadOperand::Reg(r) = *part else { return Err(Unsupported::Order) };
                self.store_whole(strip.at_group(slot, first.is_bits(), copy), r, first.is_bits());
            }
        }
        strip.at[v.index()] = Some(kept);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::cpu::codegen::fission::in_parts;
    use crate::cpu::codegen::fission::tests::with_outputs;
    use crate::cpu::codegen::loop_program::{LoopStmt, LoopVal};
    use crate::cpu::codegen::loop_verify::verify;
    use crate::cpu::x86::loops::{emit, function};

    /// Each loop of groups has a strip of its own. Where all of them outgrow the frame, the function has none.
    #[test]
    fn functions_do_without_strips_that_outgrow_the_frame() {
        let mut p = in_parts(with_outputs(60), 1 << 20);
        let Some(groups) = p.code.last().cloned() else { panic!("{p}") };
        for k in 0..6 {
            let mut next = groups.clone();
            if let LoopStmt::Groups { last, .. } = &mut next {
                *last = LoopVal(100 + k);
            }
            p.code.push(next);
        }
        assert_eq!(verify(&p), Ok(()));
        assert!(emit(&p, true).is_err());
        assert!(function(&p).is_ok());
    }
}
