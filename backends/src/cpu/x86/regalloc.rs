//! Register allocation: one walk along a body that knows the next use of each value.
//!
//! When registers run out, the value with the most distant next use is spilled to the stack frame.

use super::frame::StackFrame;
use super::inst::{
    AllocatedOperand, CodeItem, Mem, RegClass, RegWidth, VirtualInst, VirtualItem, VirtualOperand,
    VirtualReg, instruction,
};
use iced_x86::{Code, Instruction, Register};
use smallvec::SmallVec;

/// Numbers of registers of masks: the first cannot choose lanes.
const MASKS: std::ops::Range<u8> = 1..8;

/// Where values are.
struct RegisterAllocator<'a> {
    wide: bool,
    frame: &'a mut StackFrame,
    classes: &'a [RegClass],
    /// Of each value, the instructions that use it, the last one first.
    uses: Vec<SmallVec<[u32; 4]>>,
    /// Of each value, the register that it is in.
    at: Vec<Option<u8>>,
    /// Of each value, where it is in the frame.
    kept: Vec<Option<u32>>,
    /// Of each register, the value in it.
    vectors: Vec<Option<VirtualReg>>,
    masks: Vec<Option<VirtualReg>>,
    /// How many registers of vectors are for all values; each of the others is for one, at any time.
    shared: usize,
    out: Vec<CodeItem>,
    spills: u32,
    clash: bool,
}

/// A body with registers.
pub(crate) struct AllocatedBody {
    pub(crate) code: Vec<CodeItem>,
    /// How many values moved to the frame.
    pub(crate) spills: u32,
    /// Whether two values wanted a register of their own at the same time: the code is of no use.
    pub(crate) clash: bool,
}

/// Chooses registers for a body whose values are of these classes.
pub(crate) fn choose(
    items: &[VirtualItem],
    classes: &[RegClass],
    wide: bool,
    frame: &mut StackFrame,
) -> AllocatedBody {
    let mut uses = vec![SmallVec::<[u32; 4]>::new(); classes.len()];
    for (at, item) in items.iter().enumerate().rev() {
        if let VirtualItem::Ins(ins) = item {
            for r in read(ins) {
                if uses[r.0 as usize].last() != Some(&(at as u32)) {
                    uses[r.0 as usize].push(at as u32);
                }
            }
        }
    }
    let held =
        classes.iter().map(|c| if let RegClass::Held(k) = c { usize::from(*k) + 1 } else { 0 });
    let vectors = if wide { 32 } else { 16 };
    let mut chooser = RegisterAllocator {
        wide,
        frame,
        classes,
        uses,
        at: vec![None; classes.len()],
        kept: vec![None; classes.len()],
        vectors: vec![None; vectors],
        shared: vectors.saturating_sub(held.max().unwrap_or(0)),
        masks: vec![None; usize::from(MASKS.end)],
        out: Vec::with_capacity(items.len() + items.len() / 4),
        spills: 0,
        clash: false,
    };
    for (at, item) in items.iter().enumerate() {
        match item {
            VirtualItem::Done(done) => chooser.out.push(done.clone()),
            VirtualItem::Ins(ins) => chooser.one(ins, at as u32),
        }
    }
    AllocatedBody { code: chooser.out, spills: chooser.spills, clash: chooser.clash }
}

/// The values that an instruction reads.
fn read(ins: &VirtualInst) -> SmallVec<[VirtualReg; 4]> {
    let args = ins.args.iter().filter_map(|a| match a {
        VirtualOperand::Reg(r, _) | VirtualOperand::Table(_, r, ..) => Some(*r),
        _ => None,
    });
    args.chain(ins.tied).chain(ins.mask).collect()
}

/// The number of a register that is held, counted from the last.
pub(crate) fn own(k: u8, wide: bool) -> u8 {
    let last: u8 = if wide { 31 } else { 15 };
    last.saturating_sub(k)
}

/// A register by its number.
pub(crate) fn named(number: u8, width: RegWidth) -> Register {
    let first = match width {
        RegWidth::X => Register::XMM0,
        RegWidth::Y => Register::YMM0,
        RegWidth::Z => Register::ZMM0,
        RegWidth::Mask => Register::K0,
    };
    first + u32::from(number)
}

impl RegisterAllocator<'_> {
    fn one(&mut self, ins: &VirtualInst, at: u32) {
        let reads = read(ins);
        for &r in &reads {
            if self.at[r.0 as usize].is_none() {
                let class = self.classes[r.0 as usize];
                let number = self.take(class, &reads);
                self.put(r, number);
                if let RegClass::Held(_) = class {
                    // It is there from the beginning.
                    continue;
                }
                let from = Mem::Frame(self.kept[r.0 as usize].unwrap_or_default());
                self.moved(r, number, from, true);
            }
        }
        let number = |s: &Self, r: VirtualReg| s.at[r.0 as usize].unwrap_or_default();
        let numbers: SmallVec<[(VirtualReg, u8); 4]> =
            reads.iter().map(|&r| (r, number(self, r))).collect();
        let of = |r: VirtualReg| numbers.iter().find(|(x, _)| *x == r).map_or(0, |(_, n)| *n);
        for &r in &reads {
            let uses = &mut self.uses[r.0 as usize];
            if uses.last() == Some(&at) {
                uses.pop();
            }
        }
        let mut result = None;
        if let (Some((def, width)), Some(tied)) = (ins.def, ins.tied) {
            let from = of(tied);
            result = Some(match self.uses[tied.0 as usize].is_empty() {
                true => {
                    self.clear(tied);
                    self.put(def, from);
                    from
                }
                false => {
                    let number = self.take(self.classes[def.0 as usize], &reads);
                    self.copied(number, from, width);
                    self.put(def, number);
                    number
                }
            });
        }
        if !ins.early {
            self.release(&reads);
        }
        if let (Some((def, _)), None) = (ins.def, result) {
            let number = self.take(self.classes[def.0 as usize], &reads);
            self.put(def, number);
            result = Some(number);
        }
        self.release(&reads);
        let mut ops: SmallVec<[AllocatedOperand; 5]> = SmallVec::new();
        if let (Some(number), Some((_, width))) = (result, ins.def) {
            ops.push(AllocatedOperand::Reg(named(number, width)));
        }
        for a in &ins.args {
            ops.push(match *a {
                VirtualOperand::Reg(r, width) => AllocatedOperand::Reg(named(of(r), width)),
                VirtualOperand::Mem(m) => AllocatedOperand::Mem(m),
                VirtualOperand::General(r) => AllocatedOperand::Reg(r),
                VirtualOperand::Byte(b) => AllocatedOperand::Byte(b),
                VirtualOperand::Table(base, r, width, bytes) => {
                    let index = Some((named(of(r), width), bytes));
                    AllocatedOperand::Mem(Mem::At { base, index, offset: 0 })
                }
            });
        }
        let mut made = instruction(ins.code, &ops);
        if let Some(mask) = ins.mask {
            made.set_op_mask(named(of(mask), RegWidth::Mask));
            made.set_zeroing_masking(ins.zeroing);
        }
        self.out.push(CodeItem::Ins(made));
        if let Some((def, _)) = ins.def
            && self.uses[def.0 as usize].is_empty()
        {
            self.clear(def);
        }
    }

    fn file(&mut self, class: RegClass) -> &mut Vec<Option<VirtualReg>> {
        match class {
            RegClass::Vector | RegClass::Held(_) => &mut self.vectors,
            RegClass::Mask => &mut self.masks,
        }
    }

    fn put(&mut self, r: VirtualReg, number: u8) {
        let class = self.classes[r.0 as usize];
        self.file(class)[usize::from(number)] = Some(r);
        self.at[r.0 as usize] = Some(number);
    }

    fn clear(&mut self, r: VirtualReg) {
        if let Some(number) = self.at[r.0 as usize].take() {
            let class = self.classes[r.0 as usize];
            self.file(class)[usize::from(number)] = None;
        }
    }

    /// Frees the registers of what is used no more.
    fn release(&mut self, reads: &[VirtualReg]) {
        for &r in reads {
            if self.uses[r.0 as usize].is_empty() {
                self.clear(r);
            }
        }
    }

    /// A register that is free, or is made so; not one of what the instruction reads.
    fn take(&mut self, class: RegClass, busy: &[VirtualReg]) -> u8 {
        let range = match class {
            RegClass::Mask => usize::from(MASKS.start)..usize::from(MASKS.end),
            RegClass::Vector => 0..self.shared,
            RegClass::Held(k) => {
                let number = own(k, self.wide);
                // The body does not keep to its one value at a time: it needs a register more.
                self.clash |= self.vectors[usize::from(number)].is_some();
                return number;
            }
        };
        let first = range.start;
        let file = self.file(class);
        if let Some(free) = range.clone().find(|&k| file[k].is_none()) {
            return free as u8;
        }
        // Uses are listed from the last one, so that the next one is the last of the list.
        let held: Vec<(usize, VirtualReg)> =
            range.filter_map(|k| file[k].map(|r| (k, r))).collect();
        let next = |r: VirtualReg| self.uses[r.0 as usize].last().copied().unwrap_or(u32::MAX);
        let others = held.iter().filter(|(_, r)| !busy.contains(r));
        let Some(&(k, r)) = others.max_by_key(|(_, r)| next(*r)) else { return first as u8 };
        if self.kept[r.0 as usize].is_none() {
            let slot = self.frame.vector();
            self.kept[r.0 as usize] = Some(slot);
            self.moved(r, k as u8, Mem::Frame(slot), false);
        }
        self.spills += 1;
        self.clear(r);
        k as u8
    }

    /// Moves a value between its register and memory.
    fn moved(&mut self, r: VirtualReg, number: u8, m: Mem, load: bool) {
        let made = match self.classes[r.0 as usize] {
            RegClass::Mask => {
                let register = AllocatedOperand::Reg(named(number, RegWidth::Mask));
                match load {
                    true => {
                        instruction(Code::VEX_Kmovw_kr_km16, &[register, AllocatedOperand::Mem(m)])
                    }
                    false => {
                        instruction(Code::VEX_Kmovw_m16_kr, &[AllocatedOperand::Mem(m), register])
                    }
                }
            }
            _ => vector_move(self.wide, number, m, load),
        };
        self.out.push(CodeItem::Ins(made));
    }

    fn copied(&mut self, to: u8, from: u8, width: RegWidth) {
        let (code, width) = match width {
            RegWidth::Mask => (Code::VEX_Kmovw_kr_km16, width),
            _ if self.wide => (Code::EVEX_Vmovaps_zmm_k1z_zmmm512, RegWidth::Z),
            _ => (Code::VEX_Vmovaps_ymm_ymmm256, RegWidth::Y),
        };
        let ops =
            [AllocatedOperand::Reg(named(to, width)), AllocatedOperand::Reg(named(from, width))];
        self.out.push(CodeItem::Ins(instruction(code, &ops)));
    }
}

/// A whole vector register from memory or to it.
pub(crate) fn vector_move(wide: bool, number: u8, m: Mem, load: bool) -> Instruction {
    let register =
        AllocatedOperand::Reg(named(number, if wide { RegWidth::Z } else { RegWidth::Y }));
    match (wide, load) {
        (true, true) => {
            instruction(Code::EVEX_Vmovups_zmm_k1z_zmmm512, &[register, AllocatedOperand::Mem(m)])
        }
        (true, false) => {
            instruction(Code::EVEX_Vmovups_zmmm512_k1z_zmm, &[AllocatedOperand::Mem(m), register])
        }
        (false, true) => {
            instruction(Code::VEX_Vmovups_ymm_ymmm256, &[register, AllocatedOperand::Mem(m)])
        }
        (false, false) => {
            instruction(Code::VEX_Vmovups_ymmm256_ymm, &[AllocatedOperand::Mem(m), register])
        }
    }
}
