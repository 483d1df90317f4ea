//! The loop body on a group of elements: operands, and instructions over virtual registers.
//!
//! A group has as many elements as a vector has lanes of 32 bits: 16 with AVX-512, 8 with AVX2. Values of 64 bits take
//! two vectors. Narrower ones are widened to 32 bits: `i8` with its sign, others with zeros. Truth values are the bits
//! of a mask register with AVX-512. With AVX2 they are vectors of ones or zeros, with lanes as wide as the operands of
//! the comparison.

use super::gpr::ValueHome;
use super::inst::{
    CodeItem, Label, Mem, RegClass, RegWidth, VirtualInst, VirtualItem, VirtualOperand, VirtualReg,
};
use super::scalar_asm::CodeSink;
use super::shared_counters::{GroupValues, SharedCounters};
use super::state::{BodyLowering, GroupValue, OpcodePair, ReadOperand, long};
use crate::cpu::codegen::computed_places::is_placed;
use crate::cpu::codegen::loop_program::{LoopProgram, LoopVal};
use crate::cpu::codegen::vector_width::Unsupported;
use adfuse_ir::scalar::{SInst, SOp, SVal};
use adfuse_ir::{DType, Literal};
use cranelift_entity::EntityRef;
use iced_x86::Code;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

impl CodeSink for BodyLowering<'_> {
    fn push(&mut self, done: CodeItem) {
        self.items.push(VirtualItem::Done(done));
    }

    fn fresh(&mut self) -> Label {
        *self.labels += 1;
        Label(*self.labels - 1)
    }

    fn home(&self, v: LoopVal) -> ValueHome {
        self.homes.get(v.0 as usize).copied().unwrap_or(ValueHome::Unused)
    }
}

impl BodyLowering<'_> {
    /// Elements of a group.
    pub(crate) fn lanes(&self) -> u32 {
        self.p.lanes
    }

    /// A whole vector.
    pub(crate) fn full(&self) -> RegWidth {
        if self.wide { RegWidth::Z } else { RegWidth::Y }
    }

    /// Half a vector.
    pub(crate) fn half(&self) -> RegWidth {
        if self.wide { RegWidth::Y } else { RegWidth::X }
    }

    pub(crate) fn code(&self, pair: OpcodePair) -> Code {
        if self.wide { pair.0 } else { pair.1 }
    }

    pub(crate) fn fresh_value(&mut self, class: RegClass) -> VirtualReg {
        self.classes.push(class);
        VirtualReg(self.classes.len() as u32 - 1)
    }

    /// An instruction with a result of so much of a register.
    pub(crate) fn make(
        &mut self,
        code: Code,
        width: RegWidth,
        args: &[VirtualOperand],
    ) -> VirtualReg {
        self.make_with(code, width, args, |_| {})
    }

    pub(crate) fn make_with(
        &mut self,
        code: Code,
        width: RegWidth,
        args: &[VirtualOperand],
        change: impl FnOnce(&mut VirtualInst),
    ) -> VirtualReg {
        let class = if width == RegWidth::Mask { RegClass::Mask } else { RegClass::Vector };
        let def = self.fresh_value(class);
        let mut ins = VirtualInst {
            code,
            def: Some((def, width)),
            args: args.into(),
            tied: None,
            early: false,
            mask: None,
            zeroing: false,
        };
        change(&mut ins);
        self.items.push(VirtualItem::Ins(ins));
        def
    }

    /// An instruction without a result in a register.
    pub(crate) fn effect(&mut self, code: Code, args: &[VirtualOperand], mask: Option<VirtualReg>) {
        let args = args.into();
        let ins =
            VirtualInst { code, def: None, args, tied: None, early: false, mask, zeroing: false };
        self.items.push(VirtualItem::Ins(ins));
    }

    /// An operand in a register of vectors.
    pub(crate) fn reg(&mut self, x: ReadOperand) -> VirtualReg {
        match x {
            ReadOperand::Reg(r) => r,
            ReadOperand::Slot(slot) => self.load_whole(Mem::Frame(slot)),
            ReadOperand::There(Mem::Every { base, offset, bytes }) => {
                self.broadcast(Mem::At { base, index: None, offset }, bytes)
            }
            ReadOperand::There(m) => self.load_whole(m),
            ReadOperand::Const(bits, bytes) => {
                match (self.wide, self.pool.every(bits, bytes, self.wide)) {
                    (true, Mem::Const { offset, .. }) => {
                        self.broadcast(Mem::Const { offset, every: false }, bytes)
                    }
                    (_, m) => self.load_whole(m),
                }
            }
        }
    }

    /// An element of this many bytes in all lanes of 512 bits.
    fn broadcast(&mut self, from: Mem, bytes: u8) -> VirtualReg {
        let code = match bytes {
            8 => Code::EVEX_Vbroadcastsd_zmm_k1z_xmmm64,
            _ => Code::EVEX_Vbroadcastss_zmm_k1z_xmmm32,
        };
        self.make(code, RegWidth::Z, &[VirtualOperand::Mem(from)])
    }

    fn load_whole(&mut self, m: Mem) -> VirtualReg {
        let pair = OpcodePair(Code::EVEX_Vmovups_zmm_k1z_zmmm512, Code::VEX_Vmovups_ymm_ymmm256);
        self.make(self.code(pair), self.full(), &[VirtualOperand::Mem(m)])
    }

    /// An operand where it is: in a register or in memory.
    pub(crate) fn any(&mut self, x: ReadOperand) -> VirtualOperand {
        match x {
            ReadOperand::Reg(r) => VirtualOperand::Reg(r, self.full()),
            ReadOperand::Slot(slot) => VirtualOperand::Mem(Mem::Frame(slot)),
            ReadOperand::There(m) => VirtualOperand::Mem(m),
            ReadOperand::Const(bits, bytes) => {
                VirtualOperand::Mem(self.pool.every(bits, bytes, self.wide))
            }
        }
    }

    /// A value in a whole register, as an operand.
    pub(crate) fn whole(&self, r: VirtualReg) -> VirtualOperand {
        VirtualOperand::Reg(r, self.full())
    }

    /// An instruction on whole vectors; the last operand may be in memory.
    pub(crate) fn op(&mut self, pair: OpcodePair, args: &[ReadOperand]) -> ReadOperand {
        self.op_byte(pair, args, None)
    }

    pub(crate) fn op_byte(
        &mut self,
        pair: OpcodePair,
        args: &[ReadOperand],
        byte: Option<u8>,
    ) -> ReadOperand {
        let mut given: SmallVec<[VirtualOperand; 4]> = SmallVec::new();
        for (k, &a) in args.iter().enumerate() {
            given.push(match k + 1 == args.len() {
                true => self.any(a),
                false => {
                    let r = self.reg(a);
                    self.whole(r)
                }
            });
        }
        given.extend(byte.map(VirtualOperand::Byte));
        ReadOperand::Reg(self.make(self.code(pair), self.full(), &given))
    }

    /// An operation whose operands may change places.
    pub(crate) fn either(
        &mut self,
        pair: OpcodePair,
        a: ReadOperand,
        b: ReadOperand,
    ) -> ReadOperand {
        match (a, b) {
            (ReadOperand::Reg(_), _) => self.op(pair, &[a, b]),
            _ => self.op(pair, &[b, a]),
        }
    }

    /// An operation with a byte on a vector in a register.
    pub(crate) fn by(&mut self, pair: OpcodePair, x: ReadOperand, byte: u8) -> ReadOperand {
        let x = self.reg(x);
        let args = [self.whole(x), VirtualOperand::Byte(byte)];
        ReadOperand::Reg(self.make(self.code(pair), self.full(), &args))
    }

    /// Bits in a mask register.
    pub(crate) fn bits(&mut self, x: ReadOperand) -> VirtualReg {
        let m = match x {
            ReadOperand::Reg(r) => return r,
            ReadOperand::Slot(slot) => Mem::Frame(slot),
            ReadOperand::There(m) => m,
            ReadOperand::Const(bits, _) => {
                let offset = self.pool.place(&(bits as u16).to_le_bytes());
                Mem::Const { offset, every: false }
            }
        };
        self.make(Code::VEX_Kmovw_kr_km16, RegWidth::Mask, &[VirtualOperand::Mem(m)])
    }

    /// An operation on mask registers.
    pub(crate) fn on_bits(&mut self, code: Code, args: &[ReadOperand]) -> ReadOperand {
        let mut given: SmallVec<[VirtualOperand; 4]> = SmallVec::new();
        for &a in args {
            let r = self.bits(a);
            given.push(VirtualOperand::Reg(r, RegWidth::Mask));
        }
        ReadOperand::Reg(self.make(code, RegWidth::Mask, &given))
    }

    /// The mask of a part of a value: the lower or the upper half, where parts are two.
    pub(crate) fn bits_of(&mut self, mask: ReadOperand, part: usize) -> VirtualReg {
        let r = self.bits(mask);
        if part == 0 {
            return r;
        }
        if let Some(&(_, upper)) = self.uppers.iter().find(|(m, _)| *m == r) {
            return upper;
        }
        let args = [VirtualOperand::Reg(r, RegWidth::Mask), VirtualOperand::Byte(8)];
        let upper = self.make(Code::VEX_Kshiftrw_kr_kr_imm8, RegWidth::Mask, &args);
        self.uppers.push((r, upper));
        upper
    }

    /// `mask ? x : y` on a part, where `mask` is a register of the class that the target has.
    pub(crate) fn select(
        &mut self,
        mask: VirtualReg,
        x: ReadOperand,
        y: ReadOperand,
        eight: bool,
    ) -> ReadOperand {
        let y = self.reg(y);
        let (x, y) = (self.any(x), self.whole(y));
        if self.wide {
            let code = match eight {
                true => Code::EVEX_Vpblendmq_zmm_k1z_zmm_zmmm512b64,
                false => Code::EVEX_Vpblendmd_zmm_k1z_zmm_zmmm512b32,
            };
            return ReadOperand::Reg(
                self.make_with(code, RegWidth::Z, &[y, x], |i| i.mask = Some(mask)),
            );
        }
        let code = match eight {
            true => Code::VEX_Vblendvpd_ymm_ymm_ymmm256_ymm,
            false => Code::VEX_Vblendvps_ymm_ymm_ymmm256_ymm,
        };
        ReadOperand::Reg(self.make(
            code,
            RegWidth::Y,
            &[y, x, VirtualOperand::Reg(mask, RegWidth::Y)],
        ))
    }

    /// A constant in all lanes.
    pub(crate) fn constant(&self, l: Literal) -> GroupValue {
        let d = l.dtype();
        if d == DType::Bool && self.wide {
            return GroupValue::Bits(ReadOperand::Const((l.bits() & 1).wrapping_neg() & 0xffff, 2));
        }
        let bits = match d {
            DType::Bool => (l.bits() & 1).wrapping_neg(),
            DType::I8 => l.to_i64() as u64,
            _ => l.bits(),
        };
        match long(d) {
            true => GroupValue::Two([ReadOperand::Const(bits, 8); 2]),
            false => GroupValue::One(ReadOperand::Const(bits & 0xffff_ffff, 4)),
        }
    }

    /// A value that does not change along the line.
    pub(crate) fn known(&self, v: SVal) -> Result<GroupValue, Unsupported> {
        match self.p.body.insts[v].op {
            SOp::Const(l) => Ok(self.constant(l)),
            _ => self.still.get(v.index()).copied().flatten().ok_or(Unsupported::Order),
        }
    }

    /// Computes the values that change, for some groups, and stores the outputs.
    pub(crate) fn groups(&mut self, groups: Range<u32>) -> Result<(), Unsupported> {
        let p = self.p;
        let mut values: GroupValues = vec![SmallVec::new(); p.body.insts.len()];
        let once = used_once(p, &p.order, &p.body.outputs);
        let several = self.wide && self.partial.is_none() && !self.idle() && groups.len() > 1;
        let mut shared = if several { SharedCounters::of(p) } else { None };
        for &v in &p.order {
            if let Some(all) = shared.as_mut().filter(|all| all.has(v)) {
                self.shared_value(all, v, groups.clone(), &mut values)?;
                continue;
            }
            self.value(v, once[v.index()], groups.clone(), &mut values)?;
        }
        let mut outputs = p.body.outputs.iter().enumerate();
        outputs.try_for_each(|(k, &v)| self.group_outputs(k, v, groups.clone(), &values))
    }

    /// Computes a value that changes, for some groups; an operand that is used once may stay in memory.
    pub(crate) fn value(
        &mut self,
        v: SVal,
        once: bool,
        groups: Range<u32>,
        values: &mut GroupValues,
    ) -> Result<(), Unsupported> {
        let inst = &self.p.body.insts[v];
        for (copy, at) in groups.zip(0..) {
            let value = match inst.op {
                SOp::Param(k) if is_placed(inst) => {
                    let args = self.operands(inst, values, at)?;
                    self.gather_placed(k as usize, &args)?
                }
                SOp::Param(k) if once => self.operand(k as usize, copy)?,
                SOp::Param(k) => self.parameter(k as usize, copy)?,
                _ => {
                    let args = self.operands(inst, values, at)?;
                    let value = self.inst(inst, &args)?;
                    self.loaded(value)
                }
            };
            values[v.index()].push(value);
        }
        Ok(())
    }

    /// Stores an output of some groups.
    pub(crate) fn group_outputs(
        &mut self,
        k: usize,
        v: SVal,
        groups: Range<u32>,
        values: &GroupValues,
    ) -> Result<(), Unsupported> {
        for (copy, at) in groups.zip(0..) {
            let value = match values[v.index()].get(at) {
                Some(&found) => found,
                None => self.known(v)?,
            };
            self.output(k, copy, &value)?;
        }
        Ok(())
    }

    /// A result that is an operand as it was, out of memory: it may be used more than once.
    pub(crate) fn loaded(&mut self, value: GroupValue) -> GroupValue {
        match value.parts().iter().any(|x| matches!(x, ReadOperand::There(_))) {
            true => self.in_registers(value),
            false => value,
        }
    }

    /// A value in registers of its class.
    pub(crate) fn in_registers(&mut self, value: GroupValue) -> GroupValue {
        value.map(|x| ReadOperand::Reg(if value.is_bits() { self.bits(x) } else { self.reg(x) }))
    }

    /// Stores a register as the frame has values: a whole vector, or the bits of a mask.
    pub(crate) fn store_whole(&mut self, to: Mem, from: VirtualReg, is_mask: bool) {
        let to = VirtualOperand::Mem(to);
        if is_mask {
            let from = VirtualOperand::Reg(from, RegWidth::Mask);
            return self.effect(Code::VEX_Kmovw_m16_kr, &[to, from], None);
        }
        let pair = OpcodePair(Code::EVEX_Vmovups_zmmm512_k1z_zmm, Code::VEX_Vmovups_ymmm256_ymm);
        let from = self.whole(from);
        self.effect(self.code(pair), &[to, from], None);
    }

    pub(crate) fn operands(
        &self,
        inst: &SInst,
        values: &[SmallVec<[GroupValue; 4]>],
        at: usize,
    ) -> Result<SmallVec<[GroupValue; 3]>, Unsupported> {
        let one = |&a: &SVal| match values[a.index()].get(at) {
            Some(&found) => Ok(found),
            None => self.known(a),
        };
        inst.args.iter().map(one).collect()
    }

    /// Computes values that do not change along a line; gives them by their numbers.
    pub(crate) fn once(&mut self, wanted: &[SVal]) -> Result<Vec<Option<GroupValue>>, Unsupported> {
        let p = self.p;
        let mut found: Vec<SmallVec<[GroupValue; 4]>> = vec![SmallVec::new(); p.body.insts.len()];
        for &v in wanted {
            let inst = &p.body.insts[v];
            let args = self.operands(inst, &found, 0)?;
            let value = self.inst(inst, &args)?;
            found[v.index()] = smallvec![value];
        }
        let mut still = self.still.to_vec();
        for &v in wanted {
            let Some(&value) = found[v.index()].first() else { continue };
            still[v.index()] = Some(value.map(|part| {
                let slot = self.frame.vector();
                let r = if value.is_bits() { self.bits(part) } else { self.reg(part) };
                self.store_whole(Mem::Frame(slot), r, value.is_bits());
                ReadOperand::Slot(slot)
            }));
        }
        Ok(still)
    }
}

/// Whether each value is an operand of some others once, and none of some outputs: then it may be read where it is used, which is
/// before anything is stored.
pub(super) fn used_once(p: &LoopProgram, order: &[SVal], outputs: &[SVal]) -> Vec<bool> {
    let mut uses = vec![0u32; p.body.insts.len()];
    for &v in order {
        for a in &p.body.insts[v].args {
            uses[a.index()] += 1;
        }
    }
    for &v in outputs {
        uses[v.index()] = u32::MAX;
    }
    uses.into_iter().map(|n| n == 1).collect()
}
