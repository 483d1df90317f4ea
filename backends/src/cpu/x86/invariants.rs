//! Loop invariants of a line: parameters and values of the body in all lanes of vectors, computed once.

use super::inst::{AllocatedOperand, CodeItem, Mem};
use super::regalloc::vector_move;
use super::scalar_asm::CodeSink;
use super::state::{GroupValue, ReadOperand, SweepEmitter, long};
use crate::cpu::codegen::loop_program::{LoopOp, LoopProgram, LoopVal};
use crate::cpu::codegen::vector_width::Unsupported;
use adfuse_ir::DType;
use adfuse_ir::scalar::{Prim, SOp, SVal};
use cranelift_entity::EntityRef;
use iced_x86::{Code, Register};

const RAX: Register = Register::RAX;

impl SweepEmitter<'_> {
    /// What does not change along a line.
    pub(crate) fn invariants(&mut self, params: &[(usize, LoopVal)]) -> Result<(), Unsupported> {
        let p = self.p;
        let mut values: Vec<Option<GroupValue>> = vec![None; p.reads.len()];
        for &(k, v) in params {
            let op = self.ops.get(v.0 as usize).copied().flatten();
            match op.filter(|_| self.repeated[k]) {
                Some(LoopOp::Load(d, at)) => match self.element(at) {
                    Mem::At { base, index: None, offset } if base != RAX => {
                        let bytes = d.bytes() as u8;
                        let every = ReadOperand::There(Mem::Every { base, offset, bytes });
                        values[k] = Some(match long(d) {
                            true => GroupValue::Two([every; 2]),
                            false => GroupValue::One(every),
                        });
                        continue;
                    }
                    m => self.load_number(d, m),
                },
                _ => self.fetch(RAX, v),
            }
            values[k] = Some(self.broadcast_element(p.body.params[k]));
        }
        for (v, inst) in p.body.insts.iter() {
            if let SOp::Param(k) = inst.op {
                self.still[v.index()] = values.get(k as usize).copied().flatten();
            }
        }
        let wanted = self.wanted();
        if wanted.is_empty() {
            return Ok(());
        }
        let mut still = Vec::new();
        self.values(None, |low| {
            still = low.once(&wanted)?;
            Ok(())
        })?;
        self.still = still;
        Ok(())
    }

    /// The values of the body that are the same all along a line and are asked for, in order.
    fn wanted(&self) -> Vec<SVal> {
        let p = self.p;
        let mut moves = vec![false; p.body.insts.len()];
        p.order.iter().for_each(|v| moves[v.index()] = true);
        let computed = |v: SVal| {
            !moves[v.index()] && !matches!(p.body.insts[v].op, SOp::Param(_) | SOp::Const(_))
        };
        let mut asked = vec![false; p.body.insts.len()];
        let moving = p.order.iter().flat_map(|&v| &p.body.insts[v].args);
        for &v in moving.chain(&p.body.outputs) {
            asked[v.index()] = true;
        }
        let all: Vec<SVal> = p.body.insts.keys().collect();
        for &v in all.iter().rev() {
            if asked[v.index()] && computed(v) {
                for a in &p.body.insts[v].args {
                    asked[a.index()] = true;
                }
            }
        }
        all.into_iter().filter(|&v| asked[v.index()] && computed(v)).collect()
    }

    /// The number in `rax` in all lanes of vectors in the frame.
    fn broadcast_element(&mut self, d: DType) -> GroupValue {
        let slot = self.frame.vector();
        if d == DType::Bool {
            self.ins(Code::Neg_rm64, &[AllocatedOperand::Reg(RAX)]);
            if self.wide {
                self.store(Mem::Frame(slot), RAX);
                return GroupValue::Bits(ReadOperand::Slot(slot));
            }
        }
        let (z, y, x) = (Register::ZMM0, Register::YMM0, Register::XMM0);
        let low = AllocatedOperand::Reg(Register::EAX);
        match (self.wide, long(d)) {
            (true, true) => {
                self.ins(
                    Code::EVEX_Vpbroadcastq_zmm_k1z_r64,
                    &[AllocatedOperand::Reg(z), AllocatedOperand::Reg(RAX)],
                );
            }
            (true, false) => {
                self.ins(Code::EVEX_Vpbroadcastd_zmm_k1z_r32, &[AllocatedOperand::Reg(z), low])
            }
            (false, true) => {
                self.ins(
                    Code::VEX_Vmovq_xmm_rm64,
                    &[AllocatedOperand::Reg(x), AllocatedOperand::Reg(RAX)],
                );
                self.ins(
                    Code::VEX_Vpbroadcastq_ymm_xmmm64,
                    &[AllocatedOperand::Reg(y), AllocatedOperand::Reg(x)],
                );
            }
            (false, false) => {
                self.ins(Code::VEX_Vmovd_xmm_rm32, &[AllocatedOperand::Reg(x), low]);
                self.ins(
                    Code::VEX_Vpbroadcastd_ymm_xmmm32,
                    &[AllocatedOperand::Reg(y), AllocatedOperand::Reg(x)],
                );
            }
        }
        self.push(CodeItem::Ins(vector_move(self.wide, 0, Mem::Frame(slot), false)));
        match long(d) {
            true => GroupValue::Two([ReadOperand::Slot(slot); 2]),
            false => GroupValue::One(ReadOperand::Slot(slot)),
        }
    }
}

/// The parameters of which groups read the one element of a line where it is, for all lanes: floats that are only added and multiplied,
/// by instructions that may read so.
pub(super) fn repeated(p: &LoopProgram, wide: bool) -> Vec<bool> {
    let is_float = |d: &DType| wide && matches!(d, DType::F32 | DType::F64);
    let mut repeated: Vec<bool> = p.body.params.iter().map(is_float).collect();
    let param = |v: SVal| match p.body.insts[v].op {
        SOp::Param(k) => Some(k as usize),
        _ => None,
    };
    for inst in p.body.insts.values() {
        let reads = matches!(inst.op, SOp::Prim(Prim::Add | Prim::Sub | Prim::Mul | Prim::Fma));
        for &v in inst.args.iter().filter(|_| !reads) {
            param(v).into_iter().for_each(|k| repeated[k] = false);
        }
    }
    for &v in &p.body.outputs {
        param(v).into_iter().for_each(|k| repeated[k] = false);
    }
    repeated
}
