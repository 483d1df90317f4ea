//! Loop invariants of a line: parameters, values and pointers, computed once.

use super::inst::{AllocatedOperand, CodeItem, Mem};
use super::regalloc::{choose, vector_move};
use super::scalar_asm::CodeSink;
use super::state::{
    GroupValue, LinePointer, POINTERS, PointerHome, Pointers, ReadOperand, SweepEmitter, long,
};
use crate::cpu::codegen::loop_ir::{LoadSource, ParamRead, VectorAccess};
use crate::cpu::codegen::vector_width::Unsupported;
use adfuse_ir::DType;
use adfuse_ir::scalar::{SOp, SVal};
use cranelift_entity::EntityRef;
use iced_x86::{Code, Register};

const RAX: Register = Register::RAX;
const RDX: Register = Register::RDX;

impl SweepEmitter<'_> {
    /// What does not change along a line.
    pub(crate) fn line(&mut self) -> Result<(), Unsupported> {
        let p = self.p;
        let mut values: Vec<Option<GroupValue>> = vec![None; p.reads.len()];
        // In order: data is read before what it names.
        for (k, value) in values.iter_mut().enumerate() {
            if !p.varies[k] {
                self.once_read(k);
                if p.body.reads_param(k) {
                    *value = Some(self.broadcast_element(p.types[k]));
                }
            }
        }
        for (v, inst) in p.body.insts.iter() {
            if let SOp::Param(k) = inst.op {
                self.still[v.index()] = values.get(k as usize).copied().flatten();
            }
        }
        self.reach();
        let wanted = self.wanted();
        if !wanted.is_empty() {
            let mut low = self.low(None);
            let still = low.once(&wanted)?;
            let (items, classes) = (low.items, low.classes);
            self.done.extend(choose(&items, &classes, self.wide, &mut self.frame).code);
            self.still = still;
        }
        Ok(())
    }

    /// The values of the body that are the same all along a line and are asked for, in order.
    fn wanted(&self) -> Vec<SVal> {
        let p = self.p;
        let computed = |v: SVal| {
            !p.moves[v.index()] && !matches!(p.body.insts[v].op, SOp::Param(_) | SOp::Const(_))
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

    /// Reads a parameter through the first way whose guards hold, as a number in `rax` and in the frame.
    fn once_read(&mut self, k: usize) {
        let p = self.p;
        match &p.reads[k] {
            ParamRead::Coord(form) => self.form(*form),
            ParamRead::Guarded(sources) => {
                let done = self.fresh();
                for source in sources {
                    let next = self.fresh();
                    self.guards(&source.guards, next);
                    match &source.from {
                        LoadSource::Array(a) => self.element(a),
                        LoadSource::Literal(l) => {
                            let whole = l.dtype().is_signed_int();
                            self.set(RAX, if whole { l.to_i64() } else { l.bits() as i64 });
                        }
                    }
                    self.jump(crate::cpu::x86::encode::JUMP, done);
                    self.bind(next);
                }
                self.bind(done);
            }
        }
        self.store(Mem::Frame(self.scalars[k]), RAX);
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

    /// Pointers to what changes along the line.
    fn reach(&mut self) {
        let p = self.p;
        let mut registers = POINTERS.into_iter();
        // Pointers into one array that differ by a number: form, array, and where the first is.
        let mut known: Vec<(usize, u32, PointerHome)> = Vec::new();
        let mut place = |lines: &mut Self, at: u32, form: usize, bytes: i64, packed: bool| {
            let first = lines.frame.long();
            let loc = match registers.next() {
                Some(r) => PointerHome::In(r),
                None => PointerHome::At(lines.frame.long()),
            };
            let f = &p.forms[form];
            let alike = |(other, array, _): &&(usize, u32, PointerHome)| {
                let g = &p.forms[*other];
                let inner = p.inner();
                *array == at && (&g.steps[..inner], &g.rest) == (&f.steps[..inner], &f.rest)
            };
            let there = known.iter().find(alike).copied();
            match there {
                Some((other, _, loc)) if !packed => {
                    match loc {
                        PointerHome::In(r) => lines.mov(RAX, r),
                        PointerHome::At(slot) => lines.load(RAX, Mem::Frame(slot)),
                    }
                    let apart = f.constant.wrapping_sub(p.forms[other].constant);
                    lines.plus(RAX, apart.wrapping_mul(bytes), RDX);
                }
                _ => {
                    lines.form(form);
                    if packed {
                        lines.store(Mem::Frame(first), RAX);
                        lines.pointer(RAX, at);
                    } else {
                        lines.times(RAX, RAX, bytes, RDX);
                        lines.pointer(RDX, at);
                        lines.add(RAX, RDX);
                        known.push((form, at, loc));
                    }
                }
            }
            match loc {
                PointerHome::In(r) => lines.mov(r, RAX),
                PointerHome::At(slot) => lines.store(Mem::Frame(slot), RAX),
            }
            LinePointer { loc, first }
        };
        let mut pointers = Pointers::default();
        for (k, read) in p.reads.iter().enumerate() {
            pointers.reads.push(match read {
                _ if !p.varies[k] => None,
                ParamRead::Coord(form) => {
                    let first = self.frame.long();
                    self.form(*form);
                    self.store(Mem::Frame(first), RAX);
                    Some(LinePointer { loc: PointerHome::At(first), first })
                }
                ParamRead::Guarded(_) if p.loads[k] == VectorAccess::Guarded => {
                    let loc = PointerHome::At(self.frame.long());
                    Some(LinePointer { loc, first: self.frame.long() })
                }
                ParamRead::Guarded(sources) => match sources.first().map(|w| &w.from) {
                    Some(LoadSource::Array(a)) => {
                        let bytes = a.dtype.bytes() as i64;
                        Some(place(self, a.at, a.form, bytes, a.packed.is_some()))
                    }
                    _ => None,
                },
            });
        }
        for (a, fold) in p.writes.iter().zip(&p.folds) {
            let bytes = a.dtype.bytes() as i64;
            let pointer = place(self, a.at, a.form, bytes, a.packed.is_some());
            if let Some(f) = fold.as_ref().filter(|f| f.lanes.is_none()) {
                self.form(f.place);
                self.part(f);
                match pointer.loc {
                    PointerHome::In(r) => self.add(r, RAX),
                    PointerHome::At(slot) => {
                        let sum = AllocatedOperand::Mem(Mem::Frame(slot));
                        self.ins(Code::Add_rm64_r64, &[sum, AllocatedOperand::Reg(RAX)]);
                    }
                }
            }
            pointers.writes.push(Some(pointer));
        }
        if let Some(f) = p.lanes() {
            let slot = self.frame.long();
            self.form(f.place);
            self.store(Mem::Frame(slot), RAX);
            pointers.place = Some(slot);
        }
        self.pointers = pointers;
    }
}
