//! Primitives with vector instructions.

use super::state::{Quad, vector, wide};
use super::unit::FunctionEmitter;
use adfuse_ir::scalar::{Prim, SInst, SOp};
use adfuse_ir::{DType, Literal};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Opcode, Value, types};
use smallvec::SmallVec;

impl FunctionEmitter<'_, '_> {
    /// Whether there are instructions for an operation on vectors.
    pub(crate) fn has_vectors(&self, inst: &SInst, from: DType, known: &[Option<Literal>]) -> bool {
        let SOp::Prim(p) = inst.op else { return false };
        match p {
            Prim::Rem | Prim::Clz | Prim::PopCount | Prim::Lookup(_) => false,
            Prim::Div => from.is_float(),
            Prim::MulHi => !wide(from),
            Prim::Fma => self.target.fma,
            Prim::Shl | Prim::ShrL | Prim::ShrA => {
                let by = known.get(1).copied().flatten();
                by.is_some_and(|l| l.bits() < u64::from(from.bits()))
            }
            Prim::Convert => self.converts(from, inst.dtype),
            Prim::Add | Prim::Sub | Prim::Mul | Prim::Neg | Prim::Abs | Prim::Min | Prim::Max => {
                true
            }
            Prim::Sqrt | Prim::Floor | Prim::Ceil | Prim::RoundEven | Prim::Trunc => true,
            Prim::CopySign
            | Prim::And
            | Prim::Or
            | Prim::Xor
            | Prim::Not
            | Prim::Eq
            | Prim::Ne
            | Prim::Lt
            | Prim::Le
            | Prim::Gt
            | Prim::Ge => true,
            Prim::Select | Prim::Bitcast => true,
        }
    }

    /// `mask ? x : y`, lane by lane; the mask has lanes of their width.
    pub(crate) fn select(&mut self, mask: Value, x: Value, y: Value) -> Value {
        let ty = self.b.func.dfg.value_type(x);
        let made_by = self.b.func.dfg.value_def(mask).inst();
        let compares = made_by.is_some_and(|i| self.b.func.dfg.insts[i].opcode() == Opcode::Fcmp);
        if compares {
            let mask = self.bitcast(mask, ty);
            return self.b.ins().bitselect(mask, x, y);
        }
        // The code generator knows masks of integers by their type alone.
        let lanes = self.b.func.dfg.value_type(mask);
        let (x, y) = (self.bitcast(x, lanes), self.bitcast(y, lanes));
        let picked = self.b.ins().bitselect(mask, x, y);
        self.bitcast(picked, ty)
    }

    /// A mask with lanes of a width.
    pub(crate) fn mask(&mut self, mask: &Quad, wide: bool) -> Quad {
        match (*mask, wide) {
            (Quad::Wide([a, b]), false) => Quad::Narrow(self.low_halves(a, b)),
            (Quad::Narrow(m), true) => {
                Quad::Wide([self.b.ins().swiden_low(m), self.b.ins().swiden_high(m)])
            }
            (same, _) => same,
        }
    }

    /// The lower halves of 64-bit lanes.
    pub(crate) fn low_halves(&mut self, a: Value, b: Value) -> Value {
        self.words(a, b, [0, 2, 4, 6])
    }

    /// Words of 32 bits, by number among the eight of two vectors.
    pub(crate) fn words(&mut self, a: Value, b: Value, chosen: [u8; 4]) -> Value {
        let bytes: Vec<u8> = chosen.iter().flat_map(|w| (0..4).map(move |k| w * 4 + k)).collect();
        let order = self.b.func.dfg.immediates.push(bytes.as_slice().into());
        let (a, b) = (self.bitcast(a, types::I8X16), self.bitcast(b, types::I8X16));
        let mixed = self.b.ins().shuffle(a, b, order);
        self.bitcast(mixed, types::I32X4)
    }

    /// A primitive on vectors that has them.
    pub(crate) fn prim_quad(
        &mut self,
        inst: &SInst,
        from: DType,
        args: &[Quad],
        known: &[Option<Literal>],
    ) -> Option<Quad> {
        let SOp::Prim(p) = inst.op else { return None };
        let first = args.first()?;
        match p {
            Prim::Convert => return self.convert_quad(first, from, inst.dtype),
            Prim::Bitcast => {
                let ty = vector(inst.dtype);
                let parts: SmallVec<[Value; 2]> =
                    first.parts().iter().map(|&x| self.bitcast(x, ty)).collect();
                let parts: SmallVec<[Value; 2]> =
                    parts.iter().map(|&x| self.wrapped_small_int(inst.dtype, x)).collect();
                return Quad::of(&parts);
            }
            _ => {}
        }
        // Masks are as wide as what they choose from, or as the first of them.
        let width = match p {
            Prim::Select if inst.dtype != DType::Bool => wide(inst.dtype),
            _ => first.wide(),
        };
        let mut aligned: SmallVec<[Quad; 3]> = SmallVec::new();
        for (k, a) in args.iter().enumerate() {
            let truth = from == DType::Bool && (k == 0 || p != Prim::Select)
                || p == Prim::Select && inst.dtype == DType::Bool;
            aligned.push(if truth { self.mask(a, width) } else { *a });
        }
        let mut results: SmallVec<[Value; 2]> = SmallVec::new();
        for k in 0..aligned.first()?.parts().len() {
            let part: Option<SmallVec<[Value; 3]>> =
                aligned.iter().map(|a| a.parts().get(k).copied()).collect();
            results.push(self.prim_part(p, from, &part?, known)?);
        }
        Quad::of(&results)
    }

    /// 8-bit integers in 32-bit lanes, made what they are in 8 bits.
    pub(crate) fn wrapped_small_int(&mut self, d: DType, x: Value) -> Value {
        match d {
            DType::I8 => {
                let by = self.int(types::I32, 24);
                let high = self.b.ins().ishl(x, by);
                self.b.ins().sshr(high, by)
            }
            DType::U8 => self.low_bits(x, 0xff),
            _ => x,
        }
    }

    pub(crate) fn low_bits(&mut self, x: Value, mask: u64) -> Value {
        let mask = self.every(types::I32X4, mask);
        self.b.ins().band(x, mask)
    }

    fn prim_part(
        &mut self,
        p: Prim,
        d: DType,
        args: &[Value],
        known: &[Option<Literal>],
    ) -> Option<Value> {
        let x = *args.first()?;
        let y = args.get(1).copied().unwrap_or(x);
        Some(match p {
            Prim::Select => self.select(x, y, *args.get(2)?),
            Prim::CopySign => {
                let sign = self.every(vector(d), Literal::from_f64(d, -0.0).bits());
                self.b.ins().bitselect(sign, y, x)
            }
            Prim::Min | Prim::Max if d.is_float() => self.extremum(p == Prim::Max, x, y, known),
            Prim::Min | Prim::Max if d != DType::Bool => self.int_extremum(p == Prim::Max, d, x, y),
            Prim::MulHi => self.high_product(x, y),
            Prim::Shl | Prim::ShrL | Prim::ShrA => {
                let by = (*known.get(1)?)?.bits();
                self.shifted(p, d, x, by)
            }
            Prim::Abs if d.is_signed_int() => {
                let made = self.b.ins().iabs(x);
                self.wrapped_small_int(d, made)
            }
            Prim::Not | Prim::Add | Prim::Sub | Prim::Mul | Prim::Neg => {
                let made = self.direct(p, d, args)?;
                self.wrapped_small_int(d, made)
            }
            p => self.direct(p, d, args)?,
        })
    }

    /// A shift by less than the type's width. Which bits enter is the operation's, not the type's.
    fn shifted(&mut self, p: Prim, d: DType, x: Value, by: u64) -> Value {
        let count = self.int(types::I32, by as i64);
        let x = match (p, d) {
            (Prim::ShrL, DType::I8) => self.wrapped_small_int(DType::U8, x),
            (Prim::ShrA, DType::U8) => self.wrapped_small_int(DType::I8, x),
            _ => x,
        };
        let moved = match p {
            Prim::Shl => self.b.ins().ishl(x, count),
            Prim::ShrL => self.b.ins().ushr(x, count),
            _ => self.b.ins().sshr(x, count),
        };
        self.wrapped_small_int(d, moved)
    }

    /// The high halves of products of 32-bit lanes without sign.
    fn high_product(&mut self, x: Value, y: Value) -> Value {
        let (a, b) = (self.b.ins().uwiden_low(x), self.b.ins().uwiden_low(y));
        let low = self.b.ins().imul(a, b);
        let (x, y) = (self.words(x, x, [2, 3, 2, 3]), self.words(y, y, [2, 3, 2, 3]));
        let (a, b) = (self.b.ins().uwiden_low(x), self.b.ins().uwiden_low(y));
        let high = self.b.ins().imul(a, b);
        self.words(low, high, [1, 3, 5, 7])
    }

    fn int_extremum(&mut self, max: bool, d: DType, x: Value, y: Value) -> Value {
        if wide(d) {
            let cc = if max { IntCC::SignedGreaterThan } else { IntCC::SignedLessThan };
            let further = self.b.ins().icmp(cc, x, y);
            return self.select(further, x, y);
        }
        match (max, d.is_signed_int()) {
            (true, true) => self.b.ins().smax(x, y),
            (false, true) => self.b.ins().smin(x, y),
            (true, false) => self.b.ins().umax(x, y),
            (false, false) => self.b.ins().umin(x, y),
        }
    }

    /// The larger or the smaller. On x86-64 a constant other than NaN, and other than the zero that loses, needs
    /// one comparison; else equal operands are joined by their bits, which only differ between zeros.
    fn extremum(&mut self, max: bool, x: Value, y: Value, known: &[Option<Literal>]) -> Value {
        if !self.target.x86 {
            return if max { self.b.ins().fmax(x, y) } else { self.b.ins().fmin(x, y) };
        }
        let plain = |l: &Option<Literal>| {
            l.is_some_and(|l| {
                let loses = if max { -0.0f64 } else { 0.0 };
                !l.to_f64().is_nan() && l.to_f64().to_bits() != loses.to_bits()
            })
        };
        let constant = match known {
            [_, c] if plain(c) => Some((x, y)),
            [c, _] if plain(c) => Some((y, x)),
            _ => None,
        };
        if let Some((x, c)) = constant {
            let cc = match max {
                true => FloatCC::UnorderedOrGreaterThan,
                false => FloatCC::UnorderedOrLessThan,
            };
            let further = self.b.ins().fcmp(cc, x, c);
            return self.select(further, x, c);
        }
        let cc = if max { FloatCC::GreaterThan } else { FloatCC::LessThan };
        let further = self.b.ins().fcmp(cc, x, y);
        let better = self.select(further, x, y);
        let same = self.b.ins().fcmp(FloatCC::Equal, x, y);
        let joined = if max { self.b.ins().band(x, y) } else { self.b.ins().bor(x, y) };
        let better = self.select(same, joined, better);
        let nan = self.b.ins().fcmp(FloatCC::Unordered, x, x);
        self.select(nan, x, better)
    }

    /// `number` where `x` is not NaN, these bits where it is.
    pub(crate) fn unless_nan(&mut self, x: Value, number: Value, quiet: u64) -> Value {
        let ty = self.b.func.dfg.value_type(number);
        if self.target.x86 {
            let nan = self.b.ins().fcmp(FloatCC::Unordered, x, x);
            let quiet = self.every(ty, quiet);
            return self.select(nan, quiet, number);
        }
        let is_number = self.b.ins().fcmp(FloatCC::Equal, x, x);
        let quiet = self.every(ty, quiet);
        self.select(is_number, number, quiet)
    }
}
