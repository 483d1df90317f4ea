//! Loads and stores of groups of elements.

use super::gpr::ValueHome;
use super::inst::{AllocatedOperand, Mem, RegWidth, VirtualOperand, VirtualReg};
use super::isel::{AND, pair};
use super::scalar_asm::CodeSink;
use super::state::{ALONG, BodyLowering, GroupAddress, GroupValue, OpcodePair, ReadOperand, long};
use crate::cpu::codegen::loop_program::{GridSteps, GroupRead, GroupWrite, LoopVal};
use crate::cpu::codegen::vector_width::Unsupported;
use adfuse_ir::DType;
use iced_x86::{Code, Register};
use smallvec::SmallVec;

impl BodyLowering<'_> {
    /// What the body needs before all else: the elements that are there.
    pub(crate) fn begin(&mut self) {
        if let (Some(partial), true) = (self.partial, self.wide) {
            let m = VirtualOperand::Mem(Mem::Frame(partial.bits));
            let all = self.make(Code::VEX_Kmovw_kr_km16, RegWidth::Mask, &[m]);
            self.present.push(all);
        }
        if self.partial.is_none() && self.idle() {
            let stored = self.bits(ReadOperand::Const(self.used_lanes().into(), 4));
            self.present.push(stored);
        }
    }

    /// The lanes of a part that are there, with AVX-512; none where all are.
    pub(crate) fn there(&mut self, part: usize) -> Option<VirtualReg> {
        let all = self.present.first().copied()?;
        Some(self.bits_of(ReadOperand::Reg(all), part))
    }

    /// The lanes of a part that are there, with AVX2: of 32 bits, or of 64.
    pub(crate) fn there_vector(&mut self, part: usize, eight: bool) -> Option<VirtualReg> {
        let partial = self.partial?;
        let slot = partial.masks[if eight { 1 + part } else { 0 }];
        Some(self.reg(ReadOperand::Slot(slot)))
    }

    pub(crate) fn memory(&self, place: GroupAddress, more: u32) -> Mem {
        match place {
            GroupAddress::Frame(slot) => Mem::Frame(slot + more),
            GroupAddress::Array { base, offset, index, bytes, copy } => {
                let offset = offset.wrapping_add((self.first_of(copy) * bytes + more) as i32);
                Mem::At { base, index: Some((index, bytes)), offset }
            }
        }
    }

    /// A pointer in a register.
    pub(crate) fn base(&mut self, pointer: LoopVal) -> Register {
        self.in_register(pointer, Register::RCX)
    }

    /// A pointer as a register and an offset.
    fn near(&mut self, pointer: LoopVal) -> (Register, i32) {
        match self.home(pointer) {
            ValueHome::Near(base, offset) => (base, offset),
            _ => (self.base(pointer), 0),
        }
    }

    /// A parameter that changes along the line.
    pub(crate) fn parameter(&mut self, k: usize, copy: u32) -> Result<GroupValue, Unsupported> {
        let p = self.p;
        let d = p.body.params[k];
        match p.reads[k] {
            GroupRead::Coord { first, ref steps } => Ok(self.coordinates(first, steps, copy)),
            GroupRead::Packed { bits: 1, pointer, first } if d == DType::Bool => {
                Ok(self.load_bits([pointer, first], copy))
            }
            GroupRead::Bits { pointer, first, step } if self.wide => {
                let at = [pointer, first];
                let neighbours = if step == 1 { self.load_unaligned_bits(at, copy) } else { None };
                Ok(neighbours.unwrap_or_else(|| self.gather_bits(at, step, copy)))
            }
            GroupRead::Bits { .. } => Err(Unsupported::Packed(1)),
            GroupRead::Packed { bits, .. } => Err(Unsupported::Packed(bits)),
            GroupRead::Even { pointer, step } => self.load_even(pointer, d, step, copy),
            GroupRead::Chosen { pointer, along } => self.load_chosen([pointer, along], d, copy),
            GroupRead::Grid { pointer, ref steps, ref guards, rest } => {
                self.load_grid(pointer, (steps, guards), rest, copy)
            }
            GroupRead::Masked { pointer, low, high, rest } => {
                Ok(self.load_masked(pointer, d, [low, high], rest, copy))
            }
            GroupRead::Fixed
            | GroupRead::Element
            | GroupRead::Placed { .. }
            | GroupRead::Lanes { .. } => Err(Unsupported::Read(k)),
        }
    }

    /// A parameter that changes along the line and is an operand once: in memory still, where that is a
    /// whole vector of neighbours at a pointer that has a register all along the line.
    pub(crate) fn operand(&mut self, k: usize, copy: u32) -> Result<GroupValue, Unsupported> {
        let p = self.p;
        if let GroupRead::Even { pointer, step: 1 } = p.reads[k]
            && let ValueHome::In(_) | ValueHome::Near(..) = self.home(pointer)
            && self.partial.is_none()
        {
            let (base, offset) = self.near(pointer);
            let bytes = p.body.params[k].bytes() as u32;
            let place = GroupAddress::Array { base, offset, index: ALONG, bytes, copy };
            let part = |k: u32| ReadOperand::There(self.memory(place, k * self.lanes() * 4));
            match bytes {
                8 => return Ok(GroupValue::Two([part(0), part(1)])),
                4 => return Ok(GroupValue::One(part(0))),
                _ => {}
            }
        }
        self.parameter(k, copy)
    }

    fn load_even(
        &mut self,
        pointer: LoopVal,
        d: DType,
        step: i64,
        copy: u32,
    ) -> Result<GroupValue, Unsupported> {
        let bytes = d.bytes() as u32;
        let narrow = !self.wide && bytes < 4 && self.partial.is_some();
        if step == 1 && !narrow {
            let (base, offset) = self.near(pointer);
            let place = GroupAddress::Array { base, offset, index: ALONG, bytes, copy };
            return Ok(self.load_dense(d, place, true));
        }
        // Offsets within a group are of 32 bits there.
        let reach = step.checked_mul(i64::from((copy + 1) * self.lanes() * bytes));
        if bytes == 4 && self.wide && reach.is_some_and(|n| i32::try_from(n).is_ok()) {
            let steps = GridSteps::even(step);
            return self.load_grid(pointer, (&steps, &[]), None, copy);
        }
        if step != 1
            && let Some(gathered) = self.gather_even(pointer, d, step, copy)
        {
            return Ok(gathered);
        }
        let buffer = self.gathered(pointer, bytes, step, copy, None)?;
        Ok(self.load_dense(d, GroupAddress::Frame(buffer), false))
    }

    /// Through the source that the segment has chosen: neighbouring elements, or a literal in memory, of which
    /// the index is 0 everywhere.
    fn load_chosen(
        &mut self,
        [pointer, along]: [LoopVal; 2],
        d: DType,
        copy: u32,
    ) -> Result<GroupValue, Unsupported> {
        let bytes = d.bytes() as u32;
        if !self.wide && bytes < 4 && self.partial.is_some() {
            let buffer = self.gathered(pointer, bytes, 1, copy, Some(along))?;
            return Ok(self.load_dense(d, GroupAddress::Frame(buffer), false));
        }
        let index = Register::RAX;
        self.fetch(index, along);
        self.ins(Code::And_r64_rm64, &[AllocatedOperand::Reg(index), AllocatedOperand::Reg(ALONG)]);
        let base = self.base(pointer);
        Ok(self.load_dense(d, GroupAddress::Array { base, offset: 0, index, bytes, copy }, true))
    }

    pub(crate) fn load_dense(&mut self, d: DType, place: GroupAddress, masked: bool) -> GroupValue {
        let masked = masked && self.partial.is_some();
        if long(d) {
            let part = |low: &mut Self, k: u32| {
                let m = low.memory(place, k * low.lanes() * 4);
                low.load_part(m, k as usize, true, masked)
            };
            return GroupValue::Two([part(self, 0), part(self, 1)]);
        }
        let m = self.memory(place, 0);
        if d.bytes() == 4 {
            return GroupValue::One(self.load_part(m, 0, false, masked));
        }
        let mask = if masked { self.there(0) } else { None };
        let zeroing = |i: &mut crate::cpu::x86::inst::VirtualInst| {
            i.mask = mask;
            i.zeroing = mask.is_some();
        };
        if d == DType::Bool && self.wide {
            // A caller's truth values may have any bits above the lowest.
            let x = self.make_with(
                Code::EVEX_Vmovdqu8_xmm_k1z_xmmm128,
                RegWidth::X,
                &[VirtualOperand::Mem(m)],
                zeroing,
            );
            let ones = Mem::Const { offset: self.pool.place(&[1; 16]), every: false };
            let args = [VirtualOperand::Reg(x, RegWidth::X), VirtualOperand::Mem(ones)];
            let bits = self.make(Code::EVEX_Vptestmb_kr_k1_xmm_xmmm128, RegWidth::Mask, &args);
            return GroupValue::Bits(ReadOperand::Reg(bits));
        }
        let pair = match d {
            DType::BF16 | DType::F16 => {
                pair!(EVEX_Vpmovzxwd_zmm_k1z_ymmm256, VEX_Vpmovzxwd_ymm_xmmm128)
            }
            DType::I8 => pair!(EVEX_Vpmovsxbd_zmm_k1z_xmmm128, VEX_Vpmovsxbd_ymm_xmmm64),
            _ => pair!(EVEX_Vpmovzxbd_zmm_k1z_xmmm128, VEX_Vpmovzxbd_ymm_xmmm64),
        };
        let x = ReadOperand::Reg(self.make_with(
            self.code(pair),
            self.full(),
            &[VirtualOperand::Mem(m)],
            zeroing,
        ));
        if d != DType::Bool {
            return GroupValue::One(x);
        }
        let bit = self.op(AND, &[x, ReadOperand::Const(1, 4)]);
        let equal = pair!(INVALID, VEX_Vpcmpeqd_ymm_ymm_ymmm256);
        GroupValue::One(self.op(equal, &[bit, ReadOperand::Const(1, 4)]))
    }

    fn load_part(&mut self, m: Mem, part: usize, eight: bool, masked: bool) -> ReadOperand {
        if self.wide {
            let mask = if masked { self.there(part) } else { None };
            let code = match eight {
                true => Code::EVEX_Vmovupd_zmm_k1z_zmmm512,
                false => Code::EVEX_Vmovups_zmm_k1z_zmmm512,
            };
            return ReadOperand::Reg(self.make_with(
                code,
                RegWidth::Z,
                &[VirtualOperand::Mem(m)],
                |i| {
                    i.mask = mask;
                    i.zeroing = mask.is_some();
                },
            ));
        }
        let mask = if masked { self.there_vector(part, eight) } else { None };
        ReadOperand::Reg(match (mask, eight) {
            (None, _) => {
                self.make(Code::VEX_Vmovups_ymm_ymmm256, RegWidth::Y, &[VirtualOperand::Mem(m)])
            }
            (Some(k), eight) => {
                let code = match eight {
                    true => Code::VEX_Vpmaskmovq_ymm_ymm_m256,
                    false => Code::VEX_Vpmaskmovd_ymm_ymm_m256,
                };
                self.make(
                    code,
                    RegWidth::Y,
                    &[VirtualOperand::Reg(k, RegWidth::Y), VirtualOperand::Mem(m)],
                )
            }
        })
    }

    /// Puts the address of the byte in which a group of packed bits begins in `rax`.
    fn packed_place(&mut self, [pointer, first]: [LoopVal; 2], copy: u32) {
        self.fetch(Register::RAX, first);
        self.add(Register::RAX, ALONG);
        self.ins(
            Code::Shr_rm64_imm8,
            &[AllocatedOperand::Reg(Register::RAX), AllocatedOperand::Byte(3)],
        );
        self.with(Code::Add_r64_rm64, Register::RAX, pointer);
        self.plus(Register::RAX, i64::from(copy * self.lanes() / 8), Register::RDX);
    }

    /// Goes on at a label where a partial group has eight elements or fewer.
    fn unless_more(&mut self, to: u32, after: crate::cpu::x86::inst::Label) {
        self.ins(
            Code::Cmp_rm64_imm32,
            &[AllocatedOperand::Mem(Mem::Frame(to)), AllocatedOperand::Short(8)],
        );
        self.jump(Code::Jle_rel32_64, after);
    }

    /// Truth values of a bit each, of which the first begins a byte.
    fn load_bits(&mut self, at: [LoopVal; 2], copy: u32) -> GroupValue {
        self.packed_place(at, copy);
        let byte = |offset| Mem::At { base: Register::RAX, index: None, offset };
        if self.wide && self.partial.is_none() {
            let args = [VirtualOperand::Mem(byte(0))];
            let bits = self.make(Code::VEX_Kmovw_kr_km16, RegWidth::Mask, &args);
            return GroupValue::Bits(ReadOperand::Reg(bits));
        }
        self.ins(
            Code::Movzx_r32_rm8,
            &[AllocatedOperand::Reg(Register::EDX), AllocatedOperand::Mem(byte(0))],
        );
        if let (true, Some(partial)) = (self.wide, self.partial) {
            let after = self.fresh();
            self.unless_more(partial.to, after);
            let word = AllocatedOperand::Reg(Register::ECX);
            self.ins(Code::Movzx_r32_rm8, &[word, AllocatedOperand::Mem(byte(1))]);
            self.ins(Code::Shl_rm32_imm8, &[word, AllocatedOperand::Byte(8)]);
            self.ins(Code::Or_r32_rm32, &[AllocatedOperand::Reg(Register::EDX), word]);
            self.bind(after);
            let args = [VirtualOperand::General(Register::EDX)];
            let bits = self.make(Code::VEX_Kmovw_kr_r32, RegWidth::Mask, &args);
            return GroupValue::Bits(ReadOperand::Reg(bits));
        }
        let word = self.make(
            Code::VEX_Vmovd_xmm_rm32,
            RegWidth::X,
            &[VirtualOperand::General(Register::EDX)],
        );
        let args = [VirtualOperand::Reg(word, RegWidth::X)];
        let all = self.make(Code::VEX_Vpbroadcastd_ymm_xmmm32, RegWidth::Y, &args);
        let bytes: Vec<u8> = (0..8).flat_map(|k| (1u32 << k).to_le_bytes()).collect();
        let own = VirtualOperand::Mem(Mem::Const { offset: self.pool.place(&bytes), every: false });
        let args = [self.whole(all), own];
        let found = self.make(Code::VEX_Vpand_ymm_ymm_ymmm256, RegWidth::Y, &args);
        let args = [self.whole(found), own];
        GroupValue::One(ReadOperand::Reg(self.make(
            Code::VEX_Vpcmpeqd_ymm_ymm_ymmm256,
            RegWidth::Y,
            &args,
        )))
    }

    /// Writes a group of an output.
    pub(crate) fn output(
        &mut self,
        k: usize,
        copy: u32,
        value: &GroupValue,
    ) -> Result<(), Unsupported> {
        let (d, canonical, pointer, step, nontemporal) = match self.p.writes[k] {
            GroupWrite::Even { dtype, canonical, pointer, step, nontemporal } => {
                (dtype, canonical, pointer, step, nontemporal)
            }
            GroupWrite::Packed { dtype: DType::Bool, bits: 1, pointer, first } => {
                self.store_bits([pointer, first], copy, value);
                return Ok(());
            }
            GroupWrite::Packed { bits, .. } => return Err(Unsupported::Packed(bits)),
            GroupWrite::Lanes { fold, .. } | GroupWrite::Columns { fold, .. } => {
                return self.fold(&fold, k, copy, value);
            }
            GroupWrite::Element => return Err(Unsupported::Write(k)),
        };
        let value = match canonical {
            true => self.each(&[*value], |low, x, _| Ok(low.canonical(d, x[0])))?,
            false => *value,
        };
        let bytes = d.bytes() as u32;
        let narrow = !self.wide && bytes < 4 && self.partial.is_some();
        if step == 1 && !narrow {
            // What is stored is made before the pointer is, which has a register that others use too.
            let parts = self.stored(d, &value);
            let (base, offset) = self.near(pointer);
            let place = GroupAddress::Array { base, offset, index: ALONG, bytes, copy };
            match self.nontemporal && nontemporal {
                true => self.store_nontemporal(&parts, place),
                false => self.store_dense(d, &parts, place, true),
            }
            return Ok(());
        }
        let parts = self.stored(d, &value);
        if step != 1 && self.scatter_even(pointer, d, (step, copy), &parts) {
            return Ok(());
        }
        let buffer = self.frame.room(self.lanes() * bytes);
        self.store_dense(d, &parts, GroupAddress::Frame(buffer), false);
        self.scattered(pointer, bytes, step, copy, buffer)
    }

    /// The registers that are stored.
    fn stored(&mut self, d: DType, value: &GroupValue) -> SmallVec<[VirtualReg; 2]> {
        match (d, self.wide) {
            (DType::Bool, true) => {
                let bits = self.bits(value.parts()[0]);
                let ones = Mem::Const { offset: self.pool.place(&[1; 16]), every: false };
                let code = Code::EVEX_Vmovdqu8_xmm_k1z_xmmm128;
                let x = self.make_with(code, RegWidth::X, &[VirtualOperand::Mem(ones)], |i| {
                    i.mask = Some(bits);
                    i.zeroing = true;
                });
                SmallVec::from_slice(&[x])
            }
            (DType::Bool | DType::I8 | DType::U8, false) => {
                let mut x = *value;
                if d == DType::Bool {
                    let mask = self.mask(&x, false);
                    x = GroupValue::One(self.op(AND, &[mask.parts()[0], ReadOperand::Const(1, 4)]));
                }
                let x = self.reg(x.parts()[0]);
                let high = self.upper(x);
                let args =
                    [VirtualOperand::Reg(x, RegWidth::X), VirtualOperand::Reg(high, RegWidth::X)];
                let words = self.make(Code::VEX_Vpackssdw_xmm_xmm_xmmm128, RegWidth::X, &args);
                let code = match d {
                    DType::U8 => Code::VEX_Vpackuswb_xmm_xmm_xmmm128,
                    _ => Code::VEX_Vpacksswb_xmm_xmm_xmmm128,
                };
                let words = VirtualOperand::Reg(words, RegWidth::X);
                SmallVec::from_slice(&[self.make(code, RegWidth::X, &[words, words])])
            }
            (DType::BF16 | DType::F16, false) => {
                SmallVec::from_slice(&[self.halves(value.parts()[0])])
            }
            _ => value.parts().iter().map(|&x| self.reg(x)).collect(),
        }
    }

    /// Whole vectors past the caches.
    fn store_nontemporal(&mut self, parts: &[VirtualReg], place: GroupAddress) {
        let code = self.code(pair!(EVEX_Vmovntps_m512_zmm, VEX_Vmovntps_m256_ymm));
        for (k, &x) in parts.iter().enumerate() {
            let m = VirtualOperand::Mem(self.memory(place, k as u32 * self.lanes() * 4));
            self.effect(code, &[m, self.whole(x)], None);
        }
    }

    pub(crate) fn store_dense(
        &mut self,
        d: DType,
        parts: &[VirtualReg],
        place: GroupAddress,
        masked: bool,
    ) {
        let masked = masked && (self.partial.is_some() || self.idle());
        for (k, &x) in parts.iter().enumerate() {
            let m = VirtualOperand::Mem(self.memory(place, k as u32 * self.lanes() * 4));
            let (code, width) = match (d.bytes(), self.wide) {
                (8, true) => (Code::EVEX_Vmovupd_zmmm512_k1z_zmm, RegWidth::Z),
                (4, true) => (Code::EVEX_Vmovups_zmmm512_k1z_zmm, RegWidth::Z),
                (2, true) => (Code::EVEX_Vpmovdw_ymmm256_k1z_zmm, RegWidth::Z),
                (_, true) if d == DType::Bool => (Code::EVEX_Vmovdqu8_xmmm128_k1z_xmm, RegWidth::X),
                (_, true) => (Code::EVEX_Vpmovdb_xmmm128_k1z_zmm, RegWidth::Z),
                (8 | 4, false) => (Code::VEX_Vmovups_ymmm256_ymm, RegWidth::Y),
                (2, false) => (Code::VEX_Vmovups_xmmm128_xmm, RegWidth::X),
                (_, false) => (Code::VEX_Vmovq_xmmm64_xmm, RegWidth::X),
            };
            let x = VirtualOperand::Reg(x, width);
            if masked && !self.wide {
                let eight = long(d);
                if let Some(mask) = self.there_vector(k, eight) {
                    let code = match eight {
                        true => Code::VEX_Vpmaskmovq_m256_ymm_ymm,
                        false => Code::VEX_Vpmaskmovd_m256_ymm_ymm,
                    };
                    self.effect(code, &[m, VirtualOperand::Reg(mask, RegWidth::Y), x], None);
                    continue;
                }
            }
            let mask = if masked { self.there(k) } else { None };
            self.effect(code, &[m, x], mask);
        }
    }

    /// Writes truth values as a bit each; of a byte that is not all the group's, other bits stay.
    fn store_bits(&mut self, at: [LoopVal; 2], copy: u32, value: &GroupValue) {
        let byte = |offset| Mem::At { base: Register::RAX, index: None, offset };
        if self.wide {
            let bits = self.bits(value.parts()[0]);
            self.packed_place(at, copy);
            if self.partial.is_none() {
                let args =
                    [VirtualOperand::Mem(byte(0)), VirtualOperand::Reg(bits, RegWidth::Mask)];
                self.effect(Code::VEX_Kmovw_m16_kr, &args, None);
                return;
            }
            let args =
                [VirtualOperand::General(Register::EDX), VirtualOperand::Reg(bits, RegWidth::Mask)];
            self.effect(Code::VEX_Kmovw_r32_kr, &args, None);
        } else {
            let mask = self.mask(value, false).parts()[0];
            let mask = self.reg(mask);
            self.packed_place(at, copy);
            let args =
                [VirtualOperand::General(Register::EDX), VirtualOperand::Reg(mask, RegWidth::Y)];
            self.effect(Code::VEX_Vmovmskps_r32_ymm, &args, None);
        }
        let new = AllocatedOperand::Reg(Register::DL);
        let Some(partial) = self.partial else {
            self.ins(Code::Mov_rm8_r8, &[AllocatedOperand::Mem(byte(0)), new]);
            return;
        };
        let (old, wide) =
            (AllocatedOperand::Reg(Register::CL), AllocatedOperand::Reg(Register::ECX));
        self.ins(Code::Mov_r32_rm32, &[wide, AllocatedOperand::Mem(Mem::Frame(partial.bits))]);
        self.ins(Code::And_r32_rm32, &[AllocatedOperand::Reg(Register::EDX), wide]);
        self.ins(Code::Not_rm32, &[wide]);
        self.ins(Code::And_rm8_r8, &[AllocatedOperand::Mem(byte(0)), old]);
        self.ins(Code::Or_rm8_r8, &[AllocatedOperand::Mem(byte(0)), new]);
        if self.wide {
            let after = self.fresh();
            self.unless_more(partial.to, after);
            self.ins(Code::Shr_rm32_imm8, &[wide, AllocatedOperand::Byte(8)]);
            self.ins(
                Code::Shr_rm32_imm8,
                &[AllocatedOperand::Reg(Register::EDX), AllocatedOperand::Byte(8)],
            );
            self.ins(Code::And_rm8_r8, &[AllocatedOperand::Mem(byte(1)), old]);
            self.ins(Code::Or_rm8_r8, &[AllocatedOperand::Mem(byte(1)), new]);
            self.bind(after);
        }
    }
}
