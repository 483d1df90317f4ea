//! Folds: lanes and columns in memory, a group at a time, in the order that is strict.

use super::access::{ALONG, Place};
use super::body::{Low, Opnd, Pair, Val, long};
use super::general::Emit;
use super::machine::{Arg, Mem, Op, Reg, Width};
use crate::cpu::code::fold::Folded;
use crate::cpu::code::plan::Access;
use crate::cpu::code::vectors::Why;
use adfuse_ir::Literal;
use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::Prim;
use iced_x86::{Code, Register};
use smallvec::SmallVec;

/// Lanes of a block.
const LANES: u32 = 32;

/// What combined with anything gives that, to the bit.
fn neutral(f: &Folded) -> Literal {
    match f.monoid {
        Monoid::Sum if f.dtype.is_float() => Literal::from_f64(f.dtype, -0.0),
        m => m.empty(f.dtype),
    }
}

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

impl Low<'_> {
    /// Puts the pointer to the lanes of a fold in `rcx`.
    fn lanes_of(&mut self, lanes: &Access) {
        let offset = i32::try_from(u64::from(lanes.at) * 8).unwrap_or_default();
        self.load(Register::RCX, Mem::At { base: Register::RDI, index: None, offset });
    }

    /// What came first, and what comes after.
    fn combined(&mut self, f: &Folded, a: Opnd, x: Opnd) -> Result<Opnd, Why> {
        self.part(operation(f.monoid), f.dtype, &[a, x], &[None, None])
    }

    /// Folds a group of an output.
    pub(super) fn fold(&mut self, f: &Folded, k: usize, copy: u32, x: &Val) -> Result<(), Why> {
        // Values are made before pointers are, which have registers that others use too.
        let x = self.each(&[*x], |low, x, _| Ok(Opnd::Reg(low.reg(x[0]))))?;
        let bytes = f.dtype.bytes() as u32;
        let place = match &f.lanes {
            Some(lanes) => {
                let first = self.pointers.place.ok_or(Why::Order)?;
                let offset = (copy * self.lanes()) as i32;
                let at = Op::Mem(Mem::At { base: ALONG, index: None, offset });
                self.ins(Code::Lea_r64_m, &[Op::Reg(Register::RAX), at]);
                let first = Op::Mem(Mem::Frame(first));
                self.ins(Code::Add_r64_rm64, &[Op::Reg(Register::RAX), first]);
                let last = Op::Short(LANES as i32 - 1);
                self.ins(Code::And_rm64_imm32, &[Op::Reg(Register::RAX), last]);
                self.lanes_of(lanes);
                let (base, index) = (Register::RCX, Register::RAX);
                Place::Array { base, index, bytes, copy: 0 }
            }
            None => {
                let at = self.pointers.writes.get(k).copied().flatten().ok_or(Why::Order)?;
                let base = self.base(at.loc);
                Place::Array { base, index: ALONG, bytes, copy }
            }
        };
        let before = self.load_dense(f.dtype, place, f.lanes.is_none());
        let after = self.each(&[before, x], |low, x, _| low.combined(f, x[0], x[1]))?;
        let mut parts: SmallVec<[Reg; 2]> = SmallVec::new();
        for &part in after.parts() {
            parts.push(self.reg(part));
        }
        self.store_dense(f.dtype, &parts, place, true);
        Ok(())
    }

    /// Makes all lanes of a fold what is neutral.
    pub(super) fn fill_lanes(&mut self, f: &Folded, lanes: &Access) {
        let value = self.constant(neutral(f)).parts()[0];
        let value = self.reg(value);
        self.lanes_of(lanes);
        let size = if self.wide { 64 } else { 32 };
        let pair = Pair(Code::EVEX_Vmovups_zmmm512_k1z_zmm, Code::VEX_Vmovups_ymmm256_ymm);
        for k in 0..LANES * f.dtype.bytes() as u32 / size {
            let m = Mem::At { base: Register::RCX, index: None, offset: (k * size) as i32 };
            let args = [Arg::Mem(m), self.whole(value)];
            self.effect(self.code(pair), &args, None);
        }
    }

    /// Makes a group of columns what is neutral.
    pub(super) fn fill_columns(&mut self, f: &Folded, k: usize) -> Result<(), Why> {
        self.begin();
        let all = self.constant(neutral(f));
        let mut parts: SmallVec<[Reg; 2]> = SmallVec::new();
        for &part in all.parts() {
            parts.push(self.reg(part));
        }
        let at = self.pointers.writes.get(k).copied().flatten().ok_or(Why::Order)?;
        let base = self.base(at.loc);
        let bytes = f.dtype.bytes() as u32;
        let place = Place::Array { base, index: ALONG, bytes, copy: 0 };
        self.store_dense(f.dtype, &parts, place, true);
        Ok(())
    }

    /// Halves the lanes of a fold until one is left, and stores that where `rax` says. All lanes are there,
    /// those without an element as what is neutral.
    pub(super) fn join_lanes(&mut self, f: &Folded, lanes: &Access) -> Result<(), Why> {
        self.lanes_of(lanes);
        let size = if self.wide { 64 } else { 32 };
        let pair = Pair(Code::EVEX_Vmovups_zmm_k1z_zmmm512, Code::VEX_Vmovups_ymm_ymmm256);
        let mut all: Vec<Opnd> = Vec::new();
        for k in 0..LANES * f.dtype.bytes() as u32 / size {
            let m = Mem::At { base: Register::RCX, index: None, offset: (k * size) as i32 };
            all.push(Opnd::Reg(self.make(self.code(pair), self.full(), &[Arg::Mem(m)])));
        }
        while all.len() > 1 {
            let half = all.len() / 2;
            for k in 0..half {
                all[k] = self.combined(f, all[k], all[k + half])?;
            }
            all.truncate(half);
        }
        let mut x = *all.first().ok_or(Why::Order)?;
        // Within the vector; of what is combined, the lower lanes alone count.
        let mut halves: SmallVec<[(Code, Width, Width, u8); 4]> = SmallVec::new();
        if self.wide {
            halves.push((Code::EVEX_Vextracti64x4_ymmm256_k1z_zmm_imm8, Width::Y, Width::Z, 1));
            halves.push((Code::EVEX_Vextracti32x4_xmmm128_k1z_ymm_imm8, Width::X, Width::Y, 1));
            halves.push((Code::EVEX_Vpshufd_xmm_k1z_xmmm128b32_imm8, Width::X, Width::X, 0x0e));
            halves.push((Code::EVEX_Vpshufd_xmm_k1z_xmmm128b32_imm8, Width::X, Width::X, 1));
        } else {
            halves.push((Code::VEX_Vextracti128_xmmm128_ymm_imm8, Width::X, Width::Y, 1));
            halves.push((Code::VEX_Vpshufd_xmm_xmmm128_imm8, Width::X, Width::X, 0x0e));
            halves.push((Code::VEX_Vpshufd_xmm_xmmm128_imm8, Width::X, Width::X, 1));
        }
        if long(f.dtype) {
            halves.pop();
        }
        for (code, to, from, byte) in halves {
            let r = self.reg(x);
            let upper = self.make(code, to, &[Arg::Reg(r, from), Arg::Byte(byte)]);
            x = self.combined(f, Opnd::Reg(r), Opnd::Reg(upper))?;
        }
        let x = self.reg(x);
        let code = match (self.wide, long(f.dtype)) {
            (true, true) => Code::EVEX_Vmovsd_m64_k1_xmm,
            (true, false) => Code::EVEX_Vmovss_m32_k1_xmm,
            (false, true) => Code::VEX_Vmovsd_m64_xmm,
            (false, false) => Code::VEX_Vmovss_m32_xmm,
        };
        let m = Arg::Mem(Mem::At { base: Register::RAX, index: None, offset: 0 });
        self.effect(code, &[m, Arg::Reg(x, Width::X)], None);
        Ok(())
    }
}
