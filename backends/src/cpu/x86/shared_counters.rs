//! Values that change with every fourth element alone. Random bits are of this kind: four neighbours draw from one counter, and a counter
//! takes twenty products.
//!
//! The elements of two groups have nine counters at most, fewer than a vector has lanes. So such values are computed once for both groups, a
//! counter in each lane, and spread to the elements where other values use them.

use super::inst::{AllocatedOperand, Mem, RegWidth, VirtualOperand, VirtualReg};
use super::isel::{ADD_INT, ADD_LONG, SHR};
use super::scalar_asm::CodeSink;
use super::state::{ALONG, BodyLowering, GroupValue, ReadOperand};
use crate::cpu::codegen::loop_program::{GroupRead, LoopProgram, LoopVal};
use crate::cpu::codegen::vector_width::Unsupported;
use adfuse_ir::DType;
use adfuse_ir::scalar::{Prim, SInst, SOp, SVal};
use cranelift_entity::EntityRef;
use iced_x86::{Code, Register};
use smallvec::SmallVec;
use std::ops::Range;

/// The quotient of an element's coordinate by four is a shift by this many bits.
const SHIFT: u32 = 2;

/// Groups that share counters.
const TOGETHER: u32 = 2;

/// Fewer values are computed for each group: spreading them takes an instruction for each group, too.
const LEAST: usize = 16;

/// Values of each group, or of each pair of groups, by their numbers.
pub(crate) type GroupValues = Vec<SmallVec<[GroupValue; 4]>>;

/// How a value that changes with every fourth element is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SharedKind {
    /// It is the counter.
    Counter,
    /// From others of this kind, and from values that do not change.
    Computed,
}

/// The values of a body that change with every fourth element alone, of which there are many.
pub(crate) struct SharedCounters {
    /// The coordinate of a line's first element.
    first: LoopVal,
    kinds: Vec<Option<SharedKind>>,
    /// Those that other values, or outputs, use.
    spread: Vec<bool>,
    /// Those that have been computed, for each pair of groups.
    found: GroupValues,
    /// Which lanes have the counters of a group, for the first and the second of a pair.
    lanes: [Option<VirtualReg>; TOGETHER as usize],
}

/// The coordinate of a line's first element, where an instruction divides an element's coordinate by four.
fn counter(p: &LoopProgram, inst: &SInst) -> Option<LoopVal> {
    let (SOp::Prim(Prim::ShrL), [x, by]) = (inst.op, inst.args.as_slice()) else { return None };
    let SOp::Param(k) = p.body.insts[*x].op else { return None };
    let GroupRead::Coord { first, ref steps } = *p.reads.get(k as usize)? else { return None };
    let is_quarter = p.body.constant(*by)?.bits() == u64::from(SHIFT);
    (is_quarter && inst.dtype == DType::I64 && steps.as_even() == Some(1)).then_some(first)
}

impl SharedCounters {
    /// Those of a body; `None` where they are few.
    pub(crate) fn of(p: &LoopProgram) -> Option<SharedCounters> {
        let first = p.order.iter().find_map(|&v| counter(p, &p.body.insts[v]))?;
        let mut moves = vec![false; p.body.insts.len()];
        p.order.iter().for_each(|v| moves[v.index()] = true);
        let mut kinds: Vec<Option<SharedKind>> = vec![None; p.body.insts.len()];
        for &v in &p.order {
            let inst = &p.body.insts[v];
            kinds[v.index()] = match counter(p, inst) {
                Some(of) => (of == first).then_some(SharedKind::Counter),
                None => {
                    let is_shared = |a: &SVal| kinds[a.index()].is_some();
                    let all = inst.args.iter().all(|a| is_shared(a) || !moves[a.index()]);
                    let any = inst.args.iter().any(is_shared);
                    let fits = inst.dtype.is_int() && inst.dtype.bytes() >= 4;
                    let is_prim = matches!(inst.op, SOp::Prim(_));
                    (is_prim && all && any && fits).then_some(SharedKind::Computed)
                }
            };
        }
        while give_up_unspreadable(p, &moves, &mut kinds) {}
        if kinds.iter().flatten().count() < LEAST {
            return None;
        }
        let mut spread = vec![false; kinds.len()];
        let single = p.order.iter().filter(|v| kinds[v.index()].is_none());
        let used = single.flat_map(|&v| &p.body.insts[v].args).chain(&p.body.outputs);
        used.for_each(|a| spread[a.index()] |= kinds[a.index()].is_some());
        let found = vec![SmallVec::new(); kinds.len()];
        Some(SharedCounters { first, kinds, spread, found, lanes: [None; TOGETHER as usize] })
    }

    pub(crate) fn has(&self, v: SVal) -> bool {
        self.kinds[v.index()].is_some()
    }
}

/// Lanes of 64 bits are not spread. Where others use such a value it is computed for each group, as is what is computed from it; whether
/// there was any.
fn give_up_unspreadable(p: &LoopProgram, moves: &[bool], kinds: &mut [Option<SharedKind>]) -> bool {
    let before = kinds.iter().flatten().count();
    let long = |v: SVal| p.body.insts[v].dtype.bytes() != 4;
    for &v in &p.order {
        let args = &p.body.insts[v].args;
        if kinds[v.index()] == Some(SharedKind::Computed)
            && args.iter().any(|a| moves[a.index()] && kinds[a.index()].is_none())
        {
            kinds[v.index()] = None;
        }
        if kinds[v.index()].is_none() {
            args.iter().filter(|&&a| long(a)).for_each(|a| kinds[a.index()] = None);
        }
    }
    p.body.outputs.iter().filter(|&&v| long(v)).for_each(|v| kinds[v.index()] = None);
    kinds.iter().flatten().count() < before
}

impl BodyLowering<'_> {
    /// Computes a shared value for some groups, in pairs, and spreads it to each of them where others use it.
    pub(crate) fn shared_value(
        &mut self,
        all: &mut SharedCounters,
        v: SVal,
        groups: Range<u32>,
        values: &mut GroupValues,
    ) -> Result<(), Unsupported> {
        let inst = &self.p.body.insts[v];
        for (pair, copy) in groups.clone().step_by(TOGETHER as usize).enumerate() {
            let value = match all.kinds[v.index()] {
                Some(SharedKind::Counter) => self.counters(all.first, copy),
                _ => {
                    let args = self.operands(inst, &all.found, pair)?;
                    let value = self.inst(inst, &args)?;
                    self.loaded(value)
                }
            };
            all.found[v.index()].push(value);
            if !all.spread[v.index()] {
                continue;
            }
            let &[value] = value.parts() else { return Err(Unsupported::Order) };
            for k in 0..TOGETHER.min(groups.end - copy) {
                let spread = self.spread(all, k, value);
                values[v.index()].push(GroupValue::One(spread));
            }
        }
        Ok(())
    }

    /// The counters from that of a group's first element on, one in each lane.
    fn counters(&mut self, first: LoopVal, copy: u32) -> GroupValue {
        self.first_coordinate(first);
        self.plus(Register::RAX, i64::from(copy * self.lanes()), Register::RDX);
        let args = [AllocatedOperand::Reg(Register::RAX), AllocatedOperand::Byte(SHIFT as u8)];
        self.ins(Code::Shr_rm64_imm8, &args);
        let from = VirtualOperand::General(Register::RAX);
        let first = self.make(Code::EVEX_Vpbroadcastq_zmm_k1z_r64, RegWidth::Z, &[from]);
        let half = self.lanes() / 2;
        GroupValue::Two([0, half].map(|from| {
            let bytes: Vec<u8> =
                (from..from + half).flat_map(|k| u64::from(k).to_le_bytes()).collect();
            let by = Mem::Const { offset: self.pool.place(&bytes), every: false };
            self.op(ADD_LONG, &[ReadOperand::Reg(first), ReadOperand::There(by)])
        }))
    }

    /// A value that has a counter in each lane, for the elements of a group of a pair.
    fn spread(&mut self, all: &mut SharedCounters, group: u32, value: ReadOperand) -> ReadOperand {
        let lanes = match all.lanes[group as usize] {
            Some(there) => there,
            None => {
                let lanes = self.counter_lanes(all.first, group);
                *all.lanes[group as usize].insert(lanes)
            }
        };
        let args = [self.whole(lanes), self.any(value)];
        ReadOperand::Reg(self.make(Code::EVEX_Vpermd_zmm_k1z_zmm_zmmm512b32, RegWidth::Z, &args))
    }

    /// The lane of the counter of each element of a group of a pair. Pairs begin a multiple of four elements after one another.
    fn counter_lanes(&mut self, first: LoopVal, group: u32) -> VirtualReg {
        self.first_coordinate(first);
        let args =
            [AllocatedOperand::Reg(Register::RAX), AllocatedOperand::Short((1 << SHIFT) - 1)];
        self.ins(Code::And_rm64_imm32, &args);
        let from = VirtualOperand::General(Register::EAX);
        let begin = self.make(Code::EVEX_Vpbroadcastd_zmm_k1z_r32, RegWidth::Z, &[from]);
        let from = group * self.lanes();
        let bytes: Vec<u8> = (from..from + self.lanes()).flat_map(u32::to_le_bytes).collect();
        let by = Mem::Const { offset: self.pool.place(&bytes), every: false };
        let place = self.op(ADD_INT, &[ReadOperand::Reg(begin), ReadOperand::There(by)]);
        let lanes = self.by(SHR, place, SHIFT as u8);
        self.reg(lanes)
    }

    /// Puts the coordinate of the first element of all groups in `rax`.
    fn first_coordinate(&mut self, first: LoopVal) {
        self.times(Register::RAX, ALONG, 1, Register::RDX);
        self.with(Code::Add_r64_rm64, Register::RAX, first);
    }
}
