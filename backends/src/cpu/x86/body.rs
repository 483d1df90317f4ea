//! A body on a group of elements: operands, and instructions over values.
//!
//! A group is as many elements as a vector has lanes of 32 bits: 16 with AVX-512, 8 with AVX2. Values of
//! 64 bits take two vectors. Narrower ones are widened to 32 bits: `i8` with its sign, others with
//! zeros. Truth values are the bits of a mask register with AVX-512, and with AVX2 vectors of all ones or
//! zeros, with lanes as wide as what they were compared of.

use super::inst::{Arg, Class, Done, Ins, Item, Label, Mem, Reg, Width};
use super::scalar_asm::Emit;
use super::state::{Low, Opnd, Pair, Val, long};
use crate::cpu::codegen::loop_ir::Planned;
use crate::cpu::codegen::vector_width::Why;
use adfuse_ir::scalar::{SInst, SOp, SVal};
use adfuse_ir::{DType, Literal};
use cranelift_entity::EntityRef;
use iced_x86::Code;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

impl Emit for Low<'_> {
    fn push(&mut self, done: Done) {
        self.items.push(Item::Done(done));
    }

    fn fresh(&mut self) -> Label {
        *self.labels += 1;
        Label(*self.labels - 1)
    }
}

impl Low<'_> {
    /// Elements of a group.
    pub(crate) fn lanes(&self) -> u32 {
        if self.wide { 16 } else { 8 }
    }

    /// A whole vector.
    pub(crate) fn full(&self) -> Width {
        if self.wide { Width::Z } else { Width::Y }
    }

    /// Half a vector.
    pub(crate) fn half(&self) -> Width {
        if self.wide { Width::Y } else { Width::X }
    }

    pub(crate) fn code(&self, pair: Pair) -> Code {
        if self.wide { pair.0 } else { pair.1 }
    }

    pub(crate) fn fresh_value(&mut self, class: Class) -> Reg {
        self.classes.push(class);
        Reg(self.classes.len() as u32 - 1)
    }

    /// An instruction with a result of so much of a register.
    pub(crate) fn make(&mut self, code: Code, width: Width, args: &[Arg]) -> Reg {
        self.make_with(code, width, args, |_| {})
    }

    pub(crate) fn make_with(
        &mut self,
        code: Code,
        width: Width,
        args: &[Arg],
        change: impl FnOnce(&mut Ins),
    ) -> Reg {
        let class = if width == Width::Mask { Class::Mask } else { Class::Vector };
        let def = self.fresh_value(class);
        let mut ins = Ins {
            code,
            def: Some((def, width)),
            args: args.into(),
            tied: None,
            early: false,
            mask: None,
            zeroing: false,
        };
        change(&mut ins);
        self.items.push(Item::Ins(ins));
        def
    }

    /// An instruction without a result in a register.
    pub(crate) fn effect(&mut self, code: Code, args: &[Arg], mask: Option<Reg>) {
        let args = args.into();
        let ins = Ins { code, def: None, args, tied: None, early: false, mask, zeroing: false };
        self.items.push(Item::Ins(ins));
    }

    /// An operand in a register of vectors.
    pub(crate) fn reg(&mut self, x: Opnd) -> Reg {
        match x {
            Opnd::Reg(r) => r,
            Opnd::Slot(slot) => self.load_whole(Mem::Frame(slot)),
            Opnd::There(m) => self.load_whole(m),
            Opnd::Const(bits, bytes) => {
                match (self.wide, self.pool.every(bits, bytes, self.wide)) {
                    (true, Mem::Const { offset, .. }) => {
                        let code = match bytes {
                            8 => Code::EVEX_Vbroadcastsd_zmm_k1z_xmmm64,
                            _ => Code::EVEX_Vbroadcastss_zmm_k1z_xmmm32,
                        };
                        let from = Arg::Mem(Mem::Const { offset, every: false });
                        self.make(code, Width::Z, &[from])
                    }
                    (_, m) => self.load_whole(m),
                }
            }
        }
    }

    fn load_whole(&mut self, m: Mem) -> Reg {
        let pair = Pair(Code::EVEX_Vmovups_zmm_k1z_zmmm512, Code::VEX_Vmovups_ymm_ymmm256);
        self.make(self.code(pair), self.full(), &[Arg::Mem(m)])
    }

    /// An operand where it is: in a register or in memory.
    pub(crate) fn any(&mut self, x: Opnd) -> Arg {
        match x {
            Opnd::Reg(r) => Arg::Reg(r, self.full()),
            Opnd::Slot(slot) => Arg::Mem(Mem::Frame(slot)),
            Opnd::There(m) => Arg::Mem(m),
            Opnd::Const(bits, bytes) => Arg::Mem(self.pool.every(bits, bytes, self.wide)),
        }
    }

    /// A value in a whole register, as an operand.
    pub(crate) fn whole(&self, r: Reg) -> Arg {
        Arg::Reg(r, self.full())
    }

    /// An instruction on whole vectors; the last operand may be in memory.
    pub(crate) fn op(&mut self, pair: Pair, args: &[Opnd]) -> Opnd {
        self.op_byte(pair, args, None)
    }

    pub(crate) fn op_byte(&mut self, pair: Pair, args: &[Opnd], byte: Option<u8>) -> Opnd {
        let mut given: SmallVec<[Arg; 4]> = SmallVec::new();
        for (k, &a) in args.iter().enumerate() {
            given.push(match k + 1 == args.len() {
                true => self.any(a),
                false => {
                    let r = self.reg(a);
                    self.whole(r)
                }
            });
        }
        given.extend(byte.map(Arg::Byte));
        Opnd::Reg(self.make(self.code(pair), self.full(), &given))
    }

    /// An operation whose operands may change places.
    pub(crate) fn either(&mut self, pair: Pair, a: Opnd, b: Opnd) -> Opnd {
        match (a, b) {
            (Opnd::Reg(_), _) => self.op(pair, &[a, b]),
            _ => self.op(pair, &[b, a]),
        }
    }

    /// An operation with a byte on a vector in a register.
    pub(crate) fn by(&mut self, pair: Pair, x: Opnd, byte: u8) -> Opnd {
        let x = self.reg(x);
        let args = [self.whole(x), Arg::Byte(byte)];
        Opnd::Reg(self.make(self.code(pair), self.full(), &args))
    }

    /// Bits in a mask register.
    pub(crate) fn bits(&mut self, x: Opnd) -> Reg {
        let m = match x {
            Opnd::Reg(r) => return r,
            Opnd::Slot(slot) => Mem::Frame(slot),
            Opnd::There(m) => m,
            Opnd::Const(bits, _) => {
                let offset = self.pool.place(&(bits as u16).to_le_bytes());
                Mem::Const { offset, every: false }
            }
        };
        self.make(Code::VEX_Kmovw_kr_km16, Width::Mask, &[Arg::Mem(m)])
    }

    /// An operation on mask registers.
    pub(crate) fn on_bits(&mut self, code: Code, args: &[Opnd]) -> Opnd {
        let mut given: SmallVec<[Arg; 4]> = SmallVec::new();
        for &a in args {
            let r = self.bits(a);
            given.push(Arg::Reg(r, Width::Mask));
        }
        Opnd::Reg(self.make(code, Width::Mask, &given))
    }

    /// The mask of a part of a value: the lower or the upper half, where parts are two.
    pub(crate) fn bits_of(&mut self, mask: Opnd, part: usize) -> Reg {
        let r = self.bits(mask);
        if part == 0 {
            return r;
        }
        if let Some(&(_, upper)) = self.uppers.iter().find(|(m, _)| *m == r) {
            return upper;
        }
        let args = [Arg::Reg(r, Width::Mask), Arg::Byte(8)];
        let upper = self.make(Code::VEX_Kshiftrw_kr_kr_imm8, Width::Mask, &args);
        self.uppers.push((r, upper));
        upper
    }

    /// `mask ? x : y` on a part, where `mask` is a register of the class that the target has.
    pub(crate) fn pick(&mut self, mask: Reg, x: Opnd, y: Opnd, eight: bool) -> Opnd {
        let y = self.reg(y);
        let (x, y) = (self.any(x), self.whole(y));
        if self.wide {
            let code = match eight {
                true => Code::EVEX_Vpblendmq_zmm_k1z_zmm_zmmm512b64,
                false => Code::EVEX_Vpblendmd_zmm_k1z_zmm_zmmm512b32,
            };
            return Opnd::Reg(self.make_with(code, Width::Z, &[y, x], |i| i.mask = Some(mask)));
        }
        let code = match eight {
            true => Code::VEX_Vblendvpd_ymm_ymm_ymmm256_ymm,
            false => Code::VEX_Vblendvps_ymm_ymm_ymmm256_ymm,
        };
        Opnd::Reg(self.make(code, Width::Y, &[y, x, Arg::Reg(mask, Width::Y)]))
    }

    /// A constant in all lanes.
    pub(crate) fn constant(&self, l: Literal) -> Val {
        let d = l.dtype();
        if d == DType::Bool && self.wide {
            return Val::Bits(Opnd::Const((l.bits() & 1).wrapping_neg() & 0xffff, 2));
        }
        let bits = match d {
            DType::Bool => (l.bits() & 1).wrapping_neg(),
            DType::I8 => l.to_i64() as u64,
            _ => l.bits(),
        };
        match long(d) {
            true => Val::Two([Opnd::Const(bits, 8); 2]),
            false => Val::One(Opnd::Const(bits & 0xffff_ffff, 4)),
        }
    }

    /// A value that does not change along the line.
    pub(crate) fn known(&self, v: SVal) -> Result<Val, Why> {
        match self.p.body.insts[v].op {
            SOp::Const(l) => Ok(self.constant(l)),
            _ => self.still.get(v.index()).copied().flatten().ok_or(Why::Order),
        }
    }

    /// Computes the values that change, for some groups, and stores the outputs.
    pub(crate) fn groups(&mut self, groups: Range<u32>) -> Result<(), Why> {
        let p = self.p;
        let mut values: Vec<SmallVec<[Val; 4]>> = vec![SmallVec::new(); p.body.insts.len()];
        let once = used_once(p);
        for &v in &p.order {
            let inst = &p.body.insts[v];
            for (copy, at) in groups.clone().zip(0..) {
                let value = match inst.op {
                    SOp::Param(k) if once[v.index()] => self.operand(k as usize, copy)?,
                    SOp::Param(k) => self.parameter(k as usize, copy)?,
                    _ => {
                        let args = self.operands(inst, &values, at)?;
                        let value = self.inst(inst, &args)?;
                        self.loaded(value)
                    }
                };
                values[v.index()].push(value);
            }
        }
        for (k, &v) in p.body.outputs.iter().enumerate() {
            for (copy, at) in groups.clone().zip(0..) {
                let value = match values[v.index()].get(at) {
                    Some(&found) => found,
                    None => self.known(v)?,
                };
                self.output(k, copy, &value)?;
            }
        }
        Ok(())
    }

    /// A result that is an operand as it was, out of memory: it may be used more than once.
    fn loaded(&mut self, value: Val) -> Val {
        if !value.parts().iter().any(|x| matches!(x, Opnd::There(_))) {
            return value;
        }
        let parts: SmallVec<[Opnd; 2]> =
            value.parts().iter().map(|&x| Opnd::Reg(self.reg(x))).collect();
        Val::of(&parts)
    }

    fn operands(
        &self,
        inst: &SInst,
        values: &[SmallVec<[Val; 4]>],
        at: usize,
    ) -> Result<SmallVec<[Val; 3]>, Why> {
        let one = |&a: &SVal| match values[a.index()].get(at) {
            Some(&found) => Ok(found),
            None => self.known(a),
        };
        inst.args.iter().map(one).collect()
    }

    /// Computes values that do not change along a line; gives them by their numbers.
    pub(crate) fn once(&mut self, wanted: &[SVal]) -> Result<Vec<Option<Val>>, Why> {
        let p = self.p;
        let mut found: Vec<SmallVec<[Val; 4]>> = vec![SmallVec::new(); p.body.insts.len()];
        for &v in wanted {
            let inst = &p.body.insts[v];
            let args = self.operands(inst, &found, 0)?;
            let value = self.inst(inst, &args)?;
            found[v.index()] = smallvec![value];
        }
        let mut still = self.still.to_vec();
        for &v in wanted {
            let Some(&value) = found[v.index()].first() else { continue };
            let mut slots: SmallVec<[Opnd; 2]> = SmallVec::new();
            for &part in value.parts() {
                let slot = self.frame.vector();
                let m = Arg::Mem(Mem::Frame(slot));
                if let Val::Bits(_) = value {
                    let r = self.bits(part);
                    let args = [m, Arg::Reg(r, Width::Mask)];
                    self.effect(Code::VEX_Kmovw_m16_kr, &args, None);
                } else {
                    let pair =
                        Pair(Code::EVEX_Vmovups_zmmm512_k1z_zmm, Code::VEX_Vmovups_ymmm256_ymm);
                    let r = self.reg(part);
                    let args = [m, self.whole(r)];
                    self.effect(self.code(pair), &args, None);
                }
                slots.push(Opnd::Slot(slot));
            }
            still[v.index()] = Some(match (value, slots.as_slice()) {
                (Val::Bits(_), &[x, ..]) => Val::Bits(x),
                (_, slots) => Val::of(slots),
            });
        }
        Ok(still)
    }
}

/// Whether each value is an operand once, and no output: then it may be read where it is used, which is
/// before anything is stored.
fn used_once(p: &Planned) -> Vec<bool> {
    let mut uses = vec![0u32; p.body.insts.len()];
    for &v in &p.order {
        for a in &p.body.insts[v].args {
            uses[a.index()] += 1;
        }
    }
    for &v in &p.body.outputs {
        uses[v.index()] = u32::MAX;
    }
    uses.into_iter().map(|n| n == 1).collect()
}
