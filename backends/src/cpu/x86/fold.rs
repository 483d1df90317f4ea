//! Folds in the strict order: lanes and columns, one group at a time.
//!
//! Columns are in memory. Lanes are in registers for whole rounds, if the body leaves enough of them. Otherwise they
//! are in memory, as they are for groups at the ends of a line and between two calls.

use super::inst::{
    AllocatedOperand, CodeItem, Label, Mem, RegClass, RegWidth, VirtualOperand, VirtualReg,
};
use super::isel::{OR, OR_LONG, XOR, XOR_LONG, pair};
use super::regalloc::{own, vector_move};
use super::scalar_asm::CodeSink;
use super::state::{
    ALONG, BodyLowering, GroupAddress, GroupValue, LaneRegs, OpcodePair, ReadOperand, SweepEmitter,
    long,
};
use crate::cpu::codegen::loop_program::{GroupFold, GroupWrite, LoopVal};
use crate::cpu::codegen::sink_folds::BLOCK_LANES;
use crate::cpu::codegen::vector_width::Unsupported;
use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::Prim;
use iced_x86::{Code, Register};
use smallvec::SmallVec;

/// Lanes of a block.
const LANES: u32 = BLOCK_LANES as u32;

fn operation(m: Monoid) -> Prim {
    match m {
        Monoid::Sum => Prim::Add,
        Monoid::Prod => Prim::Mul,
        Monoid::Max | Monoid::ArgMax => Prim::Max,
        Monoid::Min | Monoid::ArgMin => Prim::Min,
        Monoid::And => Prim::And,
        Monoid::Or => Prim::Or,
    }
}

impl BodyLowering<'_> {
    /// What came first, and what comes after.
    fn combined(
        &mut self,
        f: &GroupFold,
        a: ReadOperand,
        x: ReadOperand,
    ) -> Result<ReadOperand, Unsupported> {
        if f.dtype.is_float() && (f.monoid == Monoid::Min || f.negated()) {
            // Each way round; the two differ between zeros, of which the bits of both are the lesser, and
            // where one is NaN, which stays one.
            let (min, or) = match long(f.dtype) {
                true => {
                    let min =
                        pair!(EVEX_Vminpd_zmm_k1z_zmm_zmmm512b64_sae, VEX_Vminpd_ymm_ymm_ymmm256);
                    (min, OR_LONG)
                }
                false => {
                    let min =
                        pair!(EVEX_Vminps_zmm_k1z_zmm_zmmm512b32_sae, VEX_Vminps_ymm_ymm_ymmm256);
                    (min, OR)
                }
            };
            let (one, other) = (self.op(min, &[a, x]), self.op(min, &[x, a]));
            return Ok(self.op(or, &[one, other]));
        }
        self.part(operation(f.monoid), f.dtype, &[a, x], &[None, None])
    }

    /// The same with the other sign, where lanes are of those.
    fn turned(&mut self, f: &GroupFold, x: ReadOperand) -> ReadOperand {
        match (f.negated(), long(f.dtype)) {
            (false, _) => x,
            (true, true) => self.op(XOR_LONG, &[x, ReadOperand::Const(1 << 63, 8)]),
            (true, false) => self.op(XOR, &[x, ReadOperand::Const(1 << 31, 4)]),
        }
    }

    /// Folds a group of an output into lanes that are in registers.
    fn fold_held(
        &mut self,
        f: &GroupFold,
        first: u8,
        copy: u32,
        x: &GroupValue,
    ) -> Result<(), Unsupported> {
        let parts = x.parts().len() as u32;
        let group = copy % (LANES / self.lanes());
        for (&x, part) in x.parts().iter().zip(0u32..) {
            let k = u32::from(first) + group * parts + part;
            let held = self.held.as_ref().and_then(|h| h.now.get(k as usize)).copied();
            let before = held.ok_or(Unsupported::Order)?;
            let known = self.classes.len() as u32;
            let ReadOperand::Reg(after) = self.combined(f, ReadOperand::Reg(before), x)? else {
                return Err(Unsupported::Order);
            };
            // What combines is the last to be computed, when nobody needs what was there before.
            match self.classes.get_mut(after.0 as usize) {
                Some(class) if after.0 >= known => *class = RegClass::Held(k as u8),
                _ => return Err(Unsupported::Order),
            }
            if let Some(now) = self.held.as_mut().and_then(|h| h.now.get_mut(k as usize)) {
                *now = after;
            }
        }
        Ok(())
    }

    /// Folds a group of an output into the lanes of its line. Lanes begin with the first elements.
    fn fold_line(
        &mut self,
        f: &GroupFold,
        k: usize,
        copy: u32,
        x: &GroupValue,
    ) -> Result<(), Unsupported> {
        let (parts, eight) = (x.parts().len(), long(f.dtype));
        let group = (copy % (LANES / self.lanes())) as usize;
        for (part, &x) in x.parts().iter().enumerate() {
            // What is not there leaves lanes as they are.
            let present = match self.wide {
                true => self.there(part),
                false => self.there_vector(part, eight),
            };
            let x = match present {
                Some(mask) => {
                    let neutral = self.constant(f.neutral()).parts()[0];
                    self.select(mask, x, neutral, eight)
                }
                None => x,
            };
            let at = group * parts + part;
            let lanes = |low: &Self| low.of_line.as_ref().and_then(|l| l[k].get(at)).copied();
            let x = match lanes(self) {
                Some(before) => self.combined(f, before, x)?,
                None => x,
            };
            let lanes = &mut self.of_line.as_mut().ok_or(Unsupported::Order)?[k];
            match lanes.get_mut(at) {
                Some(lane) => *lane = x,
                // Groups come in order.
                None => lanes.push(x),
            }
        }
        Ok(())
    }

    /// Joins the lanes of a line, and stores the part at an address.
    pub(crate) fn join_line(&mut self, k: usize, to: LoopVal) -> Result<(), Unsupported> {
        let GroupWrite::Lanes { fold, .. } = self.p.writes[k] else {
            return Err(Unsupported::Write(k));
        };
        let all = self.of_line.as_ref().map(|l| l[k].clone()).ok_or(Unsupported::Order)?;
        let x = self.lanes_joined(&fold, all)?;
        self.fetch(Register::RAX, to);
        self.store_part(&fold, x);
        Ok(())
    }

    /// Takes the lanes as they are in registers when a body begins.
    pub(crate) fn bind_lanes(&mut self, held: &LaneRegs) {
        let now = (0..held.now.len()).map(|k| self.fresh_value(RegClass::Held(k as u8))).collect();
        self.held = Some(LaneRegs { first: held.first.clone(), now });
    }

    /// Folds a group of an output.
    pub(crate) fn fold(
        &mut self,
        f: &GroupFold,
        k: usize,
        copy: u32,
        x: &GroupValue,
    ) -> Result<(), Unsupported> {
        // Values are made before pointers are, which have registers that others use too.
        let x = self.each(&[*x], |low, x, _| {
            let x = low.turned(f, x[0]);
            Ok(ReadOperand::Reg(low.reg(x)))
        })?;
        let held = self.held.as_ref().and_then(|h| h.first.get(k).copied().flatten());
        if let Some(first) = held {
            return self.fold_held(f, first, copy, &x);
        }
        if f.lanes && self.of_line.is_some() {
            return self.fold_line(f, k, copy, &x);
        }
        let bytes = f.dtype.bytes() as u32;
        let place = match self.p.writes[k] {
            GroupWrite::Lanes { pointer, place, .. } => {
                let offset = (copy * self.lanes()) as i32;
                let at = AllocatedOperand::Mem(Mem::At { base: ALONG, index: None, offset });
                self.ins(Code::Lea_r64_m, &[AllocatedOperand::Reg(Register::RAX), at]);
                self.with(Code::Add_r64_rm64, Register::RAX, place);
                let last = AllocatedOperand::Short(BLOCK_LANES as i32 - 1);
                self.ins(Code::And_rm64_imm32, &[AllocatedOperand::Reg(Register::RAX), last]);
                let (base, index) = (self.base(pointer), Register::RAX);
                GroupAddress::Array { base, offset: 0, index, bytes, copy: 0 }
            }
            GroupWrite::Columns { pointer, .. } => {
                let base = self.base(pointer);
                GroupAddress::Array { base, offset: 0, index: ALONG, bytes, copy }
            }
            _ => return Err(Unsupported::Write(k)),
        };
        let before = self.load_dense(f.dtype, place, !f.lanes);
        let after = self.each(&[before, x], |low, x, _| low.combined(f, x[0], x[1]))?;
        let mut parts: SmallVec<[VirtualReg; 2]> = SmallVec::new();
        for &part in after.parts() {
            parts.push(self.reg(part));
        }
        self.store_dense(f.dtype, &parts, place, true);
        Ok(())
    }

    /// The fold of an output in the order of lanes, and where its lanes are, in a register.
    fn lanes_of(&mut self, k: usize) -> Result<(GroupFold, Register), Unsupported> {
        match self.p.writes[k] {
            GroupWrite::Lanes { fold, pointer, .. } => Ok((fold, self.base(pointer))),
            _ => Err(Unsupported::Write(k)),
        }
    }

    /// Makes all lanes of a fold what is neutral.
    pub(crate) fn fill_lanes(&mut self, k: usize) -> Result<(), Unsupported> {
        let (f, base) = self.lanes_of(k)?;
        let value = self.constant(f.neutral()).parts()[0];
        let value = self.reg(value);
        let size = if self.wide { 64 } else { 32 };
        let pair = OpcodePair(Code::EVEX_Vmovups_zmmm512_k1z_zmm, Code::VEX_Vmovups_ymmm256_ymm);
        for k in 0..LANES * f.dtype.bytes() as u32 / size {
            let m = Mem::At { base, index: None, offset: (k * size) as i32 };
            let args = [VirtualOperand::Mem(m), self.whole(value)];
            self.effect(self.code(pair), &args, None);
        }
        Ok(())
    }

    /// Makes a group of columns what is neutral.
    pub(crate) fn fill_columns(&mut self, k: usize) -> Result<(), Unsupported> {
        let GroupWrite::Columns { fold: f, pointer } = self.p.writes[k] else {
            return Err(Unsupported::Write(k));
        };
        self.begin();
        let all = self.constant(f.neutral());
        let mut parts: SmallVec<[VirtualReg; 2]> = SmallVec::new();
        for &part in all.parts() {
            parts.push(self.reg(part));
        }
        let base = self.base(pointer);
        let bytes = f.dtype.bytes() as u32;
        let place = GroupAddress::Array { base, offset: 0, index: ALONG, bytes, copy: 0 };
        self.store_dense(f.dtype, &parts, place, true);
        Ok(())
    }

    /// Halves the lanes of a fold until one is left, and stores that where `rax` says. All lanes are there,
    /// those without an element as what is neutral.
    pub(crate) fn join_lanes(&mut self, k: usize) -> Result<(), Unsupported> {
        let (fold, base) = self.lanes_of(k)?;
        let f = &fold;
        let size = if self.wide { 64 } else { 32 };
        let pair = OpcodePair(Code::EVEX_Vmovups_zmm_k1z_zmmm512, Code::VEX_Vmovups_ymm_ymmm256);
        let mut all: SmallVec<[ReadOperand; 8]> = SmallVec::new();
        for k in 0..LANES * f.dtype.bytes() as u32 / size {
            let m = Mem::At { base, index: None, offset: (k * size) as i32 };
            all.push(ReadOperand::Reg(self.make(
                self.code(pair),
                self.full(),
                &[VirtualOperand::Mem(m)],
            )));
        }
        let x = self.lanes_joined(f, all)?;
        self.store_part(f, x);
        Ok(())
    }

    /// Halves vectors of lanes until one lane is left, the lowest. Vectors that are not there, the last ones, have no element.
    fn lanes_joined(
        &mut self,
        f: &GroupFold,
        mut all: SmallVec<[ReadOperand; 8]>,
    ) -> Result<ReadOperand, Unsupported> {
        let size = if self.wide { 64 } else { 32 };
        let mut half = (LANES * f.dtype.bytes() as u32 / size / 2) as usize;
        while half > 0 {
            for k in half..all.len() {
                all[k - half] = self.combined(f, all[k - half], all[k])?;
            }
            all.truncate(half);
            half /= 2;
        }
        let mut x = *all.first().ok_or(Unsupported::Order)?;
        // Within the vector; of what is combined, the lower lanes alone count.
        let mut halves: SmallVec<[(Code, RegWidth, RegWidth, u8); 4]> = SmallVec::new();
        if self.wide {
            halves.push((
                Code::EVEX_Vextracti64x4_ymmm256_k1z_zmm_imm8,
                RegWidth::Y,
                RegWidth::Z,
                1,
            ));
            halves.push((
                Code::EVEX_Vextracti32x4_xmmm128_k1z_ymm_imm8,
                RegWidth::X,
                RegWidth::Y,
                1,
            ));
            halves.push((
                Code::EVEX_Vpshufd_xmm_k1z_xmmm128b32_imm8,
                RegWidth::X,
                RegWidth::X,
                0x0e,
            ));
            halves.push((Code::EVEX_Vpshufd_xmm_k1z_xmmm128b32_imm8, RegWidth::X, RegWidth::X, 1));
        } else {
            halves.push((Code::VEX_Vextracti128_xmmm128_ymm_imm8, RegWidth::X, RegWidth::Y, 1));
            halves.push((Code::VEX_Vpshufd_xmm_xmmm128_imm8, RegWidth::X, RegWidth::X, 0x0e));
            halves.push((Code::VEX_Vpshufd_xmm_xmmm128_imm8, RegWidth::X, RegWidth::X, 1));
        }
        if long(f.dtype) {
            halves.pop();
        }
        for (code, to, from, byte) in halves {
            let r = self.reg(x);
            let upper =
                self.make(code, to, &[VirtualOperand::Reg(r, from), VirtualOperand::Byte(byte)]);
            x = self.combined(f, ReadOperand::Reg(r), ReadOperand::Reg(upper))?;
        }
        Ok(self.turned(f, x))
    }

    /// Stores the lowest lane where `rax` says.
    fn store_part(&mut self, f: &GroupFold, x: ReadOperand) {
        let x = self.reg(x);
        let code = match (self.wide, long(f.dtype)) {
            (true, true) => Code::EVEX_Vmovsd_m64_k1_xmm,
            (true, false) => Code::EVEX_Vmovss_m32_k1_xmm,
            (false, true) => Code::VEX_Vmovsd_m64_xmm,
            (false, false) => Code::VEX_Vmovss_m32_xmm,
        };
        let m = VirtualOperand::Mem(Mem::At { base: Register::RAX, index: None, offset: 0 });
        self.effect(code, &[m, VirtualOperand::Reg(x, RegWidth::X)], None);
    }
}

impl SweepEmitter<'_> {
    /// Registers for all lanes.
    pub(crate) fn lane_registers(&self) -> LaneRegs {
        let size = if self.wide { 64 } else { 32 };
        let mut held = LaneRegs::default();
        let mut count = 0;
        for write in &self.p.writes {
            let bytes = match write {
                GroupWrite::Lanes { fold, .. } => Some(fold.dtype.bytes() as u32),
                _ => None,
            };
            held.first.push(bytes.map(|_| count as u8));
            count += bytes.map_or(0, |b| LANES * b / size);
        }
        held.now = (0..count).map(VirtualReg).collect();
        held
    }

    /// Goes on at a label unless the group that is next begins with the first lane.
    pub(crate) fn unless_first(&mut self, otherwise: Label) {
        let place = self.p.writes.iter().find_map(|w| match w {
            GroupWrite::Lanes { place, .. } => Some(*place),
            _ => None,
        });
        let Some(place) = place else { return };
        self.fetch(Register::RAX, place);
        self.add(Register::RAX, ALONG);
        let last = AllocatedOperand::Short(LANES as i32 - 1);
        self.ins(Code::Test_rm64_imm32, &[AllocatedOperand::Reg(Register::RAX), last]);
        self.jump(Code::Jne_rel32_64, otherwise);
    }

    /// Moves all lanes from memory to their registers, or back.
    pub(crate) fn move_lanes(&mut self, held: &LaneRegs, load: bool) {
        let p = self.p;
        let size: u32 = if self.wide { 64 } else { 32 };
        for (write, first) in p.writes.iter().zip(&held.first) {
            let (&GroupWrite::Lanes { fold, pointer, .. }, Some(first)) = (write, first) else {
                continue;
            };
            let base = self.in_register(pointer, Register::RCX);
            for k in 0..LANES * fold.dtype.bytes() as u32 / size {
                let m = Mem::At { base, index: None, offset: (k * size) as i32 };
                let number = own(first + k as u8, self.wide);
                self.push(CodeItem::Ins(vector_move(self.wide, number, m, load)));
            }
        }
    }
}
