//! Vectors of 128 bits along the innermost axis: a body on four elements, interleaved several times.
//!
//! Four elements are one vector of 32-bit lanes, or two of 64-bit lanes. Narrower types are widened to 32 bits: `i8`
//! with its sign, others with zeros. Truth values are masks as wide as the operands of their comparison. Operations
//! without a vector instruction run lane by lane. A sweep in which these dominate is not vectorized.

use super::state::{Quad, vector, wide};
use super::translate::LoopScope;
use super::unit::FunctionEmitter;
use crate::cpu::codegen::interleave::MOST_NARROW;
use crate::cpu::codegen::loop_order::alive;
use crate::cpu::codegen::loop_program::{GroupWrite, LoopProgram};
use crate::cpu::codegen::vectorize::QUAD;
use adfuse_ir::scalar::{SInst, SOp, SVal};
use adfuse_ir::{DType, Literal};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Type, Value, types};
use cranelift_entity::EntityRef;
use smallvec::SmallVec;

/// Vector registers of a body that constants are never in all along a line.
const OF_BODY: usize = 2;

impl FunctionEmitter<'_, '_> {
    /// What does not change along a line but is used with what does, in all lanes.
    pub(crate) fn spread_line(&mut self, s: &mut LoopScope<'_>) {
        let p = s.p;
        s.spread = vec![None; p.body.insts.len()];
        let moving = p.order.iter().flat_map(|&v| &p.body.insts[v].args);
        for &v in moving.chain(&p.body.outputs) {
            if let (Some(one), None) = (self.still(s, v), s.spread[v.index()]) {
                s.spread[v.index()] = Some(self.broadcast_element(p.body.insts[v].dtype, one));
            }
        }
        // Where all constants fit into registers beside the interleaved copies, they stay there.
        let mut wanted: Vec<Literal> = Vec::new();
        let moving = p.order.iter().flat_map(|&v| &p.body.insts[v].args);
        let used = moving.chain(&p.body.outputs).filter_map(|&v| p.body.constant(v));
        let stored = p.writes.iter().filter_map(|w| match w {
            GroupWrite::Even { dtype, canonical: true, .. } => quiet(*dtype),
            _ => None,
        });
        for l in used.chain(stored) {
            if !wanted.contains(&l) {
                wanted.push(l);
            }
        }
        let spread = s.spread.iter().flatten().count();
        let (alive, registers) = (alive(&p.body, &p.order), self.target.vector_registers());
        if alive * MOST_NARROW as usize + spread + wanted.len() + OF_BODY <= registers {
            self.recent.clear();
            for l in wanted {
                self.constant(l);
            }
            self.held = std::mem::take(&mut self.recent);
        }
    }

    /// The elements from coordinate `d` on: this many quads.
    pub(crate) fn quads(&mut self, s: &mut LoopScope<'_>, d: Value, copies: u32) -> Option<()> {
        let p = s.p;
        let mut values: Vec<Vec<Quad>> = vec![Vec::new(); p.body.insts.len()];
        for &v in &p.order {
            let inst = &p.body.insts[v];
            if let SOp::Param(k) = inst.op {
                values[v.index()] = self.param_quads(s, k as usize, d, copies)?;
                continue;
            }
            let known: SmallVec<[Option<Literal>; 3]> =
                inst.args.iter().map(|&a| p.body.constant(a)).collect();
            self.recent.clear();
            for copy in 0..copies as usize {
                let mut args: SmallVec<[Quad; 3]> = SmallVec::new();
                for &a in &inst.args {
                    args.push(self.operand(s, a, &values, copy)?);
                }
                let value = self.quad(p, inst, &args, &known)?;
                values[v.index()].push(value);
            }
        }
        for (k, &v) in p.body.outputs.iter().enumerate() {
            let mut all = Vec::new();
            self.recent.clear();
            for copy in 0..copies as usize {
                all.push(self.operand(s, v, &values, copy)?);
            }
            match p.writes.get(k)?.fold() {
                Some(fold) => self.fold_quads(s, &fold, k, &all, d)?,
                None => self.store_quads(s, k, &all, d)?,
            }
        }
        Some(())
    }

    /// An operand of one copy.
    fn operand(
        &mut self,
        s: &LoopScope<'_>,
        v: SVal,
        values: &[Vec<Quad>],
        copy: usize,
    ) -> Option<Quad> {
        if let Some(&found) = values.get(v.index())?.get(copy) {
            return Some(found);
        }
        if let Some(found) = s.spread.get(v.index()).copied().flatten() {
            return Some(found);
        }
        s.p.body.constant(v).map(|l| self.constant(l))
    }

    /// The quads that loops interleave at most.
    pub(crate) fn most_copies(&self, p: &LoopProgram) -> u32 {
        if p.lanes > 1 { MOST_NARROW } else { 1 }
    }

    /// The result of an instruction.
    fn quad(
        &mut self,
        p: &LoopProgram,
        inst: &SInst,
        args: &[Quad],
        known: &[Option<Literal>],
    ) -> Option<Quad> {
        let from = p.body.source(inst);
        if self.has_vectors(inst, from, known) {
            return self.prim_quad(inst, from, args, known);
        }
        let given: SmallVec<[DType; 3]> =
            inst.args.iter().map(|&a| p.body.insts[a].dtype).collect();
        let mut results = [None; QUAD as usize];
        for (lane, result) in results.iter_mut().enumerate() {
            let mut singles: SmallVec<[Value; 3]> = SmallVec::new();
            for (a, &d) in args.iter().zip(&given) {
                singles.push(self.lane(a, d, lane));
            }
            *result = Some(self.scalar(inst, from, &singles)?);
        }
        let results: Option<Vec<Value>> = results.into_iter().collect();
        self.gathered(inst.dtype, &results?)
    }

    /// A lane as an element in a register.
    pub(crate) fn lane(&mut self, q: &Quad, d: DType, lane: usize) -> Value {
        let x = match *q {
            Quad::Narrow(v) => self.b.ins().extractlane(v, lane as u8),
            Quad::Wide(both) => self.b.ins().extractlane(both[lane / 2], (lane % 2) as u8),
        };
        match d {
            DType::Bool => {
                let narrow = self.b.ins().ireduce(types::I8, x);
                let one = self.int(types::I8, 1);
                self.b.ins().band(narrow, one)
            }
            DType::I8 | DType::U8 => self.b.ins().ireduce(types::I8, x),
            DType::BF16 | DType::F16 => self.b.ins().ireduce(types::I16, x),
            _ => x,
        }
    }

    /// A register's value as what a lane holds.
    fn in_lane(&mut self, d: DType, x: Value) -> Value {
        let lane = vector(d).lane_type();
        match d {
            DType::Bool => {
                let wide = self.b.ins().uextend(lane, x);
                self.b.ins().ineg(wide)
            }
            DType::I8 => self.b.ins().sextend(lane, x),
            DType::U8 | DType::BF16 | DType::F16 => self.b.ins().uextend(lane, x),
            _ => x,
        }
    }

    /// A quad of what registers hold.
    pub(crate) fn gathered(&mut self, d: DType, singles: &[Value]) -> Option<Quad> {
        let ty = vector(d);
        let mut parts: SmallVec<[Value; 2]> = SmallVec::new();
        for some in singles.chunks(ty.lane_count() as usize) {
            let mut part: Option<Value> = None;
            for (lane, &x) in some.iter().enumerate() {
                let x = self.in_lane(d, x);
                part = Some(match part {
                    None => self.b.ins().splat(ty, x),
                    Some(r) => self.b.ins().insertlane(r, x, lane as u8),
                });
            }
            parts.push(part?);
        }
        Quad::of(&parts)
    }

    /// A register's value in all lanes.
    fn broadcast_element(&mut self, d: DType, one: Value) -> Quad {
        let x = self.in_lane(d, one);
        let all = self.b.ins().splat(vector(d), x);
        if wide(d) { Quad::Wide([all, all]) } else { Quad::Narrow(all) }
    }

    /// A constant in all lanes.
    pub(crate) fn constant(&mut self, l: Literal) -> Quad {
        let d = l.dtype();
        let bits = match d {
            DType::Bool => (l.bits() & 1).wrapping_neg(),
            DType::I8 => l.to_i64() as u64,
            _ => l.bits(),
        };
        let mut part = || self.every(vector(d), bits);
        if wide(d) { Quad::Wide([part(), part()]) } else { Quad::Narrow(part()) }
    }

    /// A vector with the same bits in every lane.
    pub(crate) fn every(&mut self, ty: Type, bits: u64) -> Value {
        let all = match ty.lane_bits() {
            64 => u128::from(bits) << 64 | u128::from(bits),
            _ => u128::from(bits as u32) * 0x1_0000_0001_0000_0001_0000_0001,
        };
        self.whole_vector(ty, all)
    }

    /// A vector, lane by lane of 32 bits.
    pub(crate) fn lanes_of(&mut self, lanes: [u32; 4]) -> Value {
        let all = lanes.iter().rev().fold(0u128, |all, &x| all << 32 | u128::from(x));
        self.whole_vector(types::I32X4, all)
    }

    pub(crate) fn whole_vector(&mut self, ty: Type, bits: u128) -> Value {
        let there = self.held.iter().chain(&self.recent).find(|(b, _)| *b == bits);
        if let Some(&(_, found)) = there {
            return self.bitcast(found, ty);
        }
        let value = match self.constants.place(bits, 1) {
            Some(offset) => {
                let flags = MemFlagsData::trusted().with_can_move();
                self.b.ins().load(ty, flags, self.constant_base, offset)
            }
            None => {
                let bytes = bits.to_le_bytes();
                let constant = self.b.func.dfg.constants.insert(bytes.as_slice().into());
                self.b.ins().vconst(ty, constant)
            }
        };
        self.recent.push((bits, value));
        value
    }
}

/// The NaN that buffers hold.
pub(crate) fn quiet(d: DType) -> Option<Literal> {
    matches!(d, DType::F32 | DType::F64).then(|| Literal::from_f64(d, f64::NAN))
}
