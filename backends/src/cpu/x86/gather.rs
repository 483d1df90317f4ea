//! Gathers of 32-bit elements by vector loads, permutations and the instruction that gathers: elements in a pattern over
//! several axes, or far apart along one. For AVX-512, whose masks suppress accesses of unwanted lanes.

use super::inst::{AllocatedOperand, Mem, RegWidth, VirtualInst, VirtualOperand, VirtualReg};
use super::isel::{ADD_INT, AND, SAR};
use super::scalar_asm::CodeSink;
use super::state::{
    ALONG, BodyLowering, ElementMask, GroupValue, GuardMask, OpcodePair, ReadOperand,
};
use crate::cpu::codegen::loop_program::{GridGuard, GridSteps, LoopVal};
use crate::cpu::codegen::short_axes::NOWHERE;
use crate::cpu::codegen::shuffle::{LANES, PermutedVector, RuntimeLanes, Shuffle};
use crate::cpu::codegen::vector_width::Unsupported;
use crate::cpu::x86::gpr::ValueHome;
use adfuse_ir::Literal;
use iced_x86::{Code, Register};
use smallvec::SmallVec;

/// Unsigned numbers that are less.
const LESS: u8 = 1;

/// An offset at which no guard holds: of elements that no lane has.
const ELSEWHERE: i64 = NOWHERE;

/// The lanes that are read: those of some bits, and of those the ones of a mask.
#[derive(Clone, Copy)]
struct WantedLanes {
    bits: u16,
    mask: Option<VirtualReg>,
    form: RuntimeLanes,
}

impl BodyLowering<'_> {
    /// Elements of a grid where its guards hold, and the literal elsewhere.
    pub(crate) fn load_grid(
        &mut self,
        pointer: LoopVal,
        (steps, guards): (&GridSteps, &[GridGuard]),
        rest: Option<Literal>,
        copy: u32,
    ) -> Result<GroupValue, Unsupported> {
        // What whole groups read beyond their own elements is another group's.
        let mask = self.present.first().copied().filter(|_| self.partial.is_some());
        let form = if mask.is_some() { RuntimeLanes::Lanes } else { RuntimeLanes::Full };
        let mut wanted = WantedLanes { bits: self.used_lanes(), mask, form };
        let mut open: SmallVec<[&GridGuard; 4]> = SmallVec::new();
        for guard in guards {
            match self.known_lanes(guard) {
                Some(bits) => wanted.bits &= bits,
                None => open.push(guard),
            }
        }
        let rest = rest.map_or(0, |l| l.bits());
        if mask.is_none()
            && rest == 0
            && let Some(x) = self.load_guarded(pointer, (steps, &open), wanted.bits, copy)?
        {
            return Ok(GroupValue::One(ReadOperand::Reg(x)));
        }
        for guard in open {
            let offsets = std::array::from_fn(|l| guard.steps.offset(l as i64));
            let own = self.guard_mask(guard, copy, offsets);
            wanted.mask = Some(self.both_masks(wanted.mask, own));
            wanted.form = wanted.form.max(RuntimeLanes::of_guard(&guard.steps, steps));
        }
        let (x, zeros) = self.load_pattern(pointer, steps, wanted, copy)?;
        let x = match wanted {
            _ if guards.is_empty() || zeros && rest == 0 => x,
            WantedLanes { bits: u16::MAX, mask: None, .. } => x,
            wanted => {
                let mask = self.wanted_mask(wanted, u16::MAX);
                let mask = self.bits(mask);
                let x = ReadOperand::Reg(x);
                match self.select(mask, x, ReadOperand::Const(rest, 4), false) {
                    ReadOperand::Reg(x) => x,
                    other => self.reg(other),
                }
            }
        };
        Ok(GroupValue::One(ReadOperand::Reg(x)))
    }

    /// The lanes in which a guard holds, where that is the same in every group.
    fn known_lanes(&self, guard: &GridGuard) -> Option<u16> {
        let ValueHome::Number(first) = self.home(guard.first) else { return None };
        if guard.steps.outer != 0 {
            return None;
        }
        let inside = |l: i64| {
            let value = first.wrapping_add(guard.steps.offset(l));
            (0..guard.count).contains(&value.wrapping_sub(guard.low))
        };
        Some((0..LANES as i64).filter(|&l| inside(l)).fold(0, |bits, l| bits | 1 << l))
    }

    /// Elements of a grid where its guards hold, and 0 elsewhere: the guards are asked of the elements in place of the lanes, and what
    /// is not read is 0 before it is permuted. `None` where no such guards decide, or lanes are not a permutation.
    fn load_guarded(
        &mut self,
        pointer: LoopVal,
        (steps, guards): (&GridSteps, &[&GridGuard]),
        bits: u16,
        copy: u32,
    ) -> Result<Option<VirtualReg>, Unsupported> {
        let decides =
            |g: &&GridGuard| RuntimeLanes::of_guard(&g.steps, steps) <= RuntimeLanes::Elements;
        let offsets: [i64; LANES] = std::array::from_fn(|l| steps.offset(l as i64));
        let Shuffle::Permute(windows) = Shuffle::of(&offsets, bits, RuntimeLanes::Elements) else {
            return Ok(None);
        };
        if guards.is_empty() || !guards.iter().all(decides) || windows.iter().any(is_far) {
            return Ok(None);
        }
        // First: the place may be in a register that masks are made with.
        let mut masks = Vec::new();
        for w in &windows {
            let mut mask = None;
            for guard in guards {
                let mut offsets = [ELSEWHERE; LANES];
                for l in (0..LANES).filter(|&l| w.lanes >> l & 1 != 0) {
                    offsets[usize::from(w.places[l])] = guard.steps.offset(l as i64);
                }
                let own = self.guard_mask(guard, copy, offsets);
                mask = Some(self.both_masks(mask, own));
            }
            masks.push(mask.map(ReadOperand::Reg));
        }
        let place = self.grid_place(pointer, steps, copy)?;
        let mut loaded = Vec::new();
        for (w, mask) in windows.iter().zip(masks) {
            let code = Code::EVEX_Vmovups_zmm_k1z_zmmm512;
            loaded.push(self.load_lanes(code, shifted(place, w.from)?, mask, None));
        }
        Ok(Some(self.joined_windows(&windows, &loaded, bits)?))
    }

    /// Both of two masks.
    fn both_masks(&mut self, before: Option<VirtualReg>, own: VirtualReg) -> VirtualReg {
        let Some(before) = before else { return own };
        let both = [ReadOperand::Reg(before), ReadOperand::Reg(own)];
        let both = self.on_bits(Code::VEX_Kandw_kr_kr_kr, &both);
        self.bits(both)
    }

    /// Where a guard holds, of numbers this far from its first one. They are far less than 2^31.
    fn guard_mask(&mut self, guard: &GridGuard, copy: u32, offsets: [i64; LANES]) -> VirtualReg {
        let is = |m: &&GuardMask| m.guard == *guard && m.copy == copy && m.offsets == offsets;
        if let Some(known) = self.guarded.iter().find(is) {
            return known.made;
        }
        let groups = i64::from(self.first_of(copy)) / guard.steps.within();
        if guard.steps.outer == 0 {
            self.with(Code::Mov_r64_rm64, Register::RAX, guard.first);
        } else {
            self.outer_place(&guard.steps, 1);
            self.with(Code::Add_r64_rm64, Register::RAX, guard.first);
        }
        let from = [VirtualOperand::General(Register::EAX)];
        let first = self.make(Code::EVEX_Vpbroadcastd_zmm_k1z_r32, RegWidth::Z, &from);
        let more = groups.wrapping_mul(guard.steps.outer).wrapping_sub(guard.low);
        let by = offsets.map(|offset| offset.wrapping_add(more) as i32);
        let bytes: Vec<u8> = by.iter().flat_map(|by| by.to_le_bytes()).collect();
        let by = Mem::Const { offset: self.pool.place(&bytes), every: false };
        let args = [VirtualOperand::Reg(first, RegWidth::Z), VirtualOperand::Mem(by)];
        let value = self.make(Code::EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32, RegWidth::Z, &args);
        let args = [
            VirtualOperand::Reg(value, RegWidth::Z),
            VirtualOperand::Mem(self.pool.every(guard.count as u64, 4, true)),
            VirtualOperand::Byte(LESS),
        ];
        let code = Code::EVEX_Vpcmpud_kr_k1_zmm_zmmm512b32_imm8;
        let made = self.make(code, RegWidth::Mask, &args);
        self.guarded.push(GuardMask { guard: guard.clone(), copy, offsets, made });
        made
    }

    /// How far the first element of the first group is along the outermost axis, in `rax`; `rdx` may be lost.
    pub(crate) fn outer_place(&mut self, steps: &GridSteps, bytes: i64) {
        let (within, apart) = (steps.within(), steps.outer.wrapping_mul(bytes));
        if apart % within == 0 {
            return self.times(Register::RAX, ALONG, apart / within, Register::RDX);
        }
        // The coordinate is a multiple: what is odd of the divisor goes by a product with its inverse modulo 2^64.
        let (twos, odd) = (within.trailing_zeros(), within >> within.trailing_zeros());
        self.mov(Register::RAX, ALONG);
        let by = AllocatedOperand::Byte(twos as u8);
        self.ins(Code::Sar_rm64_imm8, &[AllocatedOperand::Reg(Register::RAX), by]);
        self.times(Register::RAX, Register::RAX, apart.wrapping_mul(inverse(odd)), Register::RDX);
    }

    /// Where the first element of a group is, but for an offset; `rax` may be it.
    fn grid_place(
        &mut self,
        pointer: LoopVal,
        steps: &GridSteps,
        copy: u32,
    ) -> Result<Mem, Unsupported> {
        let (within, apart) = (steps.within(), steps.outer.wrapping_mul(4));
        let groups = i64::from(self.first_of(copy)) / within;
        let offset = groups.checked_mul(apart).and_then(|n| i32::try_from(n).ok());
        let offset = offset.ok_or(Unsupported::Steps)?;
        let scale = if apart % within == 0 { apart / within } else { 0 };
        if let (1 | 2 | 4 | 8, Ok(scale)) = (scale, u32::try_from(scale)) {
            let base = self.base(pointer);
            return Ok(Mem::At { base, index: Some((ALONG, scale)), offset });
        }
        if apart == 0 {
            return Ok(Mem::At { base: self.base(pointer), index: None, offset });
        }
        self.outer_place(steps, 4);
        self.with(Code::Add_r64_rm64, Register::RAX, pointer);
        Ok(Mem::At { base: Register::RAX, index: None, offset })
    }

    /// Elements at the steps of a grid, in the lanes that are wanted; whether others are 0.
    fn load_pattern(
        &mut self,
        pointer: LoopVal,
        steps: &GridSteps,
        wanted: WantedLanes,
        copy: u32,
    ) -> Result<(VirtualReg, bool), Unsupported> {
        let offsets: [i64; LANES] = std::array::from_fn(|l| steps.offset(l as i64));
        let far = |n: &i64| n.checked_mul(4).is_none_or(|n| i32::try_from(n).is_err());
        if offsets.iter().any(far) {
            return Err(Unsupported::Steps);
        }
        let shuffle = Shuffle::of(&offsets, wanted.bits, wanted.form);
        let place = self.grid_place(pointer, steps, copy)?;
        match shuffle {
            Shuffle::Broadcast(at) => {
                let m = shifted(place, at)?;
                let every = wanted.bits == u16::MAX && wanted.mask.is_none();
                let mask = if every { None } else { Some(self.wanted_mask(wanted, u16::MAX)) };
                let code = Code::EVEX_Vbroadcastss_zmm_k1z_xmmm32;
                Ok((self.load_lanes(code, m, mask, None), true))
            }
            Shuffle::Blend(vectors) => {
                let code = Code::EVEX_Vmovups_zmm_k1z_zmmm512;
                let mut x = None;
                for (at, lanes) in vectors {
                    let m = shifted(place, at)?;
                    let every = lanes == u16::MAX && wanted.mask.is_none();
                    let mask = if every { None } else { Some(self.wanted_mask(wanted, lanes)) };
                    x = Some(self.load_lanes(code, m, mask, x));
                }
                Ok((x.unwrap_or_else(|| self.reg(ReadOperand::Const(0, 4))), true))
            }
            Shuffle::Permute(windows) => {
                Ok((self.permuted_windows(place, &windows, wanted)?, false))
            }
            Shuffle::Gather => Ok((self.gather(place, &offsets, wanted)?, true)),
        }
    }

    /// Lanes at places of several vectors, of which those of a mask are accessed.
    fn permuted_windows(
        &mut self,
        place: Mem,
        windows: &[PermutedVector],
        wanted: WantedLanes,
    ) -> Result<VirtualReg, Unsupported> {
        let code = Code::EVEX_Vmovups_zmm_k1z_zmmm512;
        let mut loaded = Vec::new();
        for w in windows {
            let read = ReadOperand::Const(w.read.into(), 4);
            let mask = match wanted.mask {
                Some(all) if wanted.form == RuntimeLanes::Whole => {
                    Some(self.on_bits(Code::VEX_Kandw_kr_kr_kr, &[ReadOperand::Reg(all), read]))
                }
                Some(lanes) => Some(ReadOperand::Reg(self.elements_of(w, lanes, wanted.form))),
                None if w.read == u16::MAX => None,
                None => Some(read),
            };
            loaded.push(self.load_lanes(code, shifted(place, w.from)?, mask, None));
        }
        self.joined_windows(windows, &loaded, u16::MAX)
    }

    /// The lanes of several vectors that were loaded, and 0 in those that are not among `bits`.
    fn joined_windows(
        &mut self,
        windows: &[PermutedVector],
        loaded: &[VirtualReg],
        bits: u16,
    ) -> Result<VirtualReg, Unsupported> {
        let kept = (bits != u16::MAX).then(|| self.bits(ReadOperand::Const(bits.into(), 4)));
        let keep = |i: &mut VirtualInst| {
            i.mask = kept;
            i.zeroing = kept.is_some();
        };
        let (mut x, mut done) = match (windows, loaded) {
            ([w], &[x]) => return Ok(self.permuted(x, &w.places, keep)),
            ([a, b, ..], &[x, y, ..]) => {
                let from =
                    |l: usize| if b.lanes >> l & 1 != 0 { 16 + b.places[l] } else { a.places[l] };
                let places = self.places(&std::array::from_fn(from));
                let args =
                    [VirtualOperand::Reg(places, RegWidth::Z), VirtualOperand::Reg(y, RegWidth::Z)];
                let code = Code::EVEX_Vpermt2ps_zmm_k1z_zmm_zmmm512b32;
                let made = self.make_with(code, RegWidth::Z, &args, |i| {
                    keep(i);
                    i.tied = Some(x);
                });
                (made, 2)
            }
            _ => return Err(Unsupported::Order),
        };
        while let (Some(w), Some(&y)) = (windows.get(done), loaded.get(done)) {
            let mask = self.bits(ReadOperand::Const(w.lanes.into(), 4));
            x = self.permuted(y, &w.places, |i| {
                i.mask = Some(mask);
                i.tied = Some(x);
            });
            done += 1;
        }
        Ok(x)
    }

    /// The elements of a window that some lanes of a mask have.
    fn elements_of(
        &mut self,
        w: &PermutedVector,
        lanes: VirtualReg,
        form: RuntimeLanes,
    ) -> VirtualReg {
        let asked = w.lanes_of_elements(form);
        let known = self.element_masks.iter();
        let mut known = known.filter(|m| m.lanes == lanes && m.read == w.read && m.asked == asked);
        if let Some(known) = known.next() {
            return known.made;
        }
        let args = [VirtualOperand::Reg(lanes, RegWidth::Mask)];
        let all = self.make(Code::EVEX_Vpmovm2d_zmm_kr, RegWidth::Z, &args);
        let mut any = None;
        for from in &asked {
            let one = self.permuted(all, from, |_| {});
            any = Some(match any {
                None => one,
                Some(any) => {
                    let args = [
                        VirtualOperand::Reg(any, RegWidth::Z),
                        VirtualOperand::Reg(one, RegWidth::Z),
                    ];
                    self.make(Code::EVEX_Vpord_zmm_k1z_zmm_zmmm512b32, RegWidth::Z, &args)
                }
            });
        }
        let args = [VirtualOperand::Reg(any.unwrap_or(all), RegWidth::Z)];
        let there = self.make(Code::EVEX_Vpmovd2m_kr_zmm, RegWidth::Mask, &args);
        let both = [ReadOperand::Reg(there), ReadOperand::Const(w.read.into(), 4)];
        let made = self.on_bits(Code::VEX_Kandw_kr_kr_kr, &both);
        let made = self.bits(made);
        self.element_masks.push(ElementMask { lanes, asked, read: w.read, made });
        made
    }

    /// Elements at offsets, one by one.
    fn gather(
        &mut self,
        place: Mem,
        offsets: &[i64; LANES],
        wanted: WantedLanes,
    ) -> Result<VirtualReg, Unsupported> {
        let bytes: Vec<u8> = offsets.iter().flat_map(|&n| (n as i32).to_le_bytes()).collect();
        let m = Mem::Const { offset: self.pool.place(&bytes), every: false };
        let code = Code::EVEX_Vmovups_zmm_k1z_zmmm512;
        let places = self.make(code, RegWidth::Z, &[VirtualOperand::Mem(m)]);
        let Mem::At { base, index, offset } = place else { return Err(Unsupported::Order) };
        let m = AllocatedOperand::Mem(Mem::At { base, index, offset });
        self.ins(Code::Lea_r64_m, &[AllocatedOperand::Reg(Register::RAX), m]);
        // The instruction clears the mask, and leaves the other lanes as they are.
        let mask = self.wanted_mask(wanted, u16::MAX);
        let mask = self.on_bits(Code::VEX_Korw_kr_kr_kr, &[mask, mask]);
        let mask = self.bits(mask);
        let from = VirtualOperand::Table(Register::RAX, places, RegWidth::Z, 4);
        Ok(self.gathered_words(Code::EVEX_Vgatherdps_zmm_k1_vm32z, from, mask))
    }

    /// Truth values of a bit each in steps: the words that they are in, of which each lane shifts its bit down.
    pub(crate) fn gather_bits(
        &mut self,
        [pointer, first]: [LoopVal; 2],
        step: i64,
        copy: u32,
    ) -> GroupValue {
        let (rax, edx) = (Register::RAX, Register::EDX);
        self.times(rax, ALONG, step, Register::RDX);
        self.with(Code::Add_r64_rm64, rax, first);
        self.plus(rax, step.wrapping_mul((copy * self.lanes()).into()), Register::RDX);
        // The word of the first lane, and the place of its bit there: other lanes are counted from there.
        self.ins(Code::Mov_r32_rm32, &[edx, Register::EAX].map(AllocatedOperand::Reg));
        let low = [AllocatedOperand::Reg(Register::RDX), AllocatedOperand::Short(31)];
        self.ins(Code::And_rm64_imm32, &low);
        let bit = [VirtualOperand::General(edx)];
        let bit = self.make(Code::EVEX_Vpbroadcastd_zmm_k1z_r32, RegWidth::Z, &bit);
        self.ins(Code::Sar_rm64_imm8, &[AllocatedOperand::Reg(rax), AllocatedOperand::Byte(5)]);
        self.ins(Code::Shl_rm64_imm8, &[AllocatedOperand::Reg(rax), AllocatedOperand::Byte(2)]);
        let lanes: Vec<u8> =
            (0..LANES as i64).flat_map(|k| (k.wrapping_mul(step) as i32).to_le_bytes()).collect();
        let lanes = Mem::Const { offset: self.pool.place(&lanes), every: false };
        let bits = self.op(ADD_INT, &[ReadOperand::Reg(bit), ReadOperand::There(lanes)]);
        let words = self.by(SAR, bits, 5);
        let words = self.reg(words);
        self.with(Code::Add_r64_rm64, rax, pointer);
        let all = self.there(0).map(ReadOperand::Reg);
        let mask = all.unwrap_or(ReadOperand::Const(u16::MAX.into(), 2));
        // The instruction clears the mask, and leaves the other lanes as they are.
        let mask = self.on_bits(Code::VEX_Korw_kr_kr_kr, &[mask, mask]);
        let mask = self.bits(mask);
        let from = VirtualOperand::Table(rax, words, RegWidth::Z, 4);
        let found = self.gathered_words(Code::EVEX_Vpgatherdd_zmm_k1_vm32z, from, mask);
        let places = self.op(AND, &[bits, ReadOperand::Const(31, 4)]);
        let down = OpcodePair(Code::EVEX_Vpsrlvd_zmm_k1z_zmm_zmmm512b32, Code::INVALID);
        let found = self.op(down, &[ReadOperand::Reg(found), places]);
        let found = self.reg(found);
        let one = self.any(ReadOperand::Const(1, 4));
        let args = [self.whole(found), one];
        let code = Code::EVEX_Vptestmd_kr_k1_zmm_zmmm512b32;
        GroupValue::Bits(ReadOperand::Reg(self.make(code, RegWidth::Mask, &args)))
    }

    /// The wanted ones of some lanes.
    fn wanted_mask(&mut self, wanted: WantedLanes, lanes: u16) -> ReadOperand {
        let bits = ReadOperand::Const((wanted.bits & lanes).into(), 4);
        match wanted.mask {
            None => bits,
            Some(mask) if wanted.bits & lanes == u16::MAX => ReadOperand::Reg(mask),
            Some(mask) => {
                let both = [ReadOperand::Reg(mask), bits];
                self.on_bits(Code::VEX_Kandw_kr_kr_kr, &both)
            }
        }
    }

    /// A load of some lanes; others are those of a vector before, or 0.
    fn load_lanes(
        &mut self,
        code: Code,
        m: Mem,
        mask: Option<ReadOperand>,
        before: Option<VirtualReg>,
    ) -> VirtualReg {
        let mask = mask.map(|mask| self.bits(mask));
        self.make_with(code, RegWidth::Z, &[VirtualOperand::Mem(m)], |i| {
            i.mask = mask;
            i.tied = before.filter(|_| mask.is_some());
            i.zeroing = i.tied.is_none() && mask.is_some();
        })
    }

    fn places(&mut self, from: &[u8; LANES]) -> VirtualReg {
        let bytes: Vec<u8> = from.iter().flat_map(|&p| u32::from(p).to_le_bytes()).collect();
        let m = Mem::Const { offset: self.pool.place(&bytes), every: false };
        self.make(Code::EVEX_Vmovups_zmm_k1z_zmmm512, RegWidth::Z, &[VirtualOperand::Mem(m)])
    }

    /// The lanes of a vector at these places.
    fn permuted(
        &mut self,
        x: VirtualReg,
        from: &[u8; LANES],
        change: impl FnOnce(&mut VirtualInst),
    ) -> VirtualReg {
        let places = self.places(from);
        let args = [VirtualOperand::Reg(places, RegWidth::Z), VirtualOperand::Reg(x, RegWidth::Z)];
        self.make_with(Code::EVEX_Vpermps_zmm_k1z_zmm_zmmm512b32, RegWidth::Z, &args, change)
    }
}

/// The number whose product with an odd one is 1 modulo 2^64. Each round doubles the bits that are right, from three on.
fn inverse(odd: i64) -> i64 {
    let round = |x: i64, _| x.wrapping_mul(2i64.wrapping_sub(odd.wrapping_mul(x)));
    (0..5).fold(odd, round)
}

/// Whether a window is farther off than an instruction reaches.
fn is_far(w: &PermutedVector) -> bool {
    w.from.checked_mul(4).is_none_or(|n| i32::try_from(n).is_err())
}

/// A place this many elements further.
fn shifted(m: Mem, elements: i64) -> Result<Mem, Unsupported> {
    let Mem::At { base, index, offset } = m else { return Err(Unsupported::Order) };
    let offset = elements.checked_mul(4).and_then(|n| n.checked_add(offset.into()));
    let offset = offset.and_then(|n| i32::try_from(n).ok()).ok_or(Unsupported::Steps)?;
    Ok(Mem::At { base, index, offset })
}
