//! Index expressions, and loads and stores of single elements.

use super::state::{LoopInvariants, PointValues, flags, register};
use super::unit::FunctionEmitter;
use crate::cpu::codegen::loop_ir::{Access, GuardedSource, LoadSource, LoopNest, ParamRead};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::{DType, Literal};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use std::ops::Range;

impl FunctionEmitter<'_, '_> {
    /// The value of an index expression.
    pub(crate) fn index(&mut self, p: &LoopNest, e: &IndexExpr, here: &PointValues<'_>) -> Value {
        match e {
            IndexExpr::Axis(a) => match here.at.get(usize::from(*a)) {
                Some(&v) => v,
                None => self.long(0),
            },
            IndexExpr::Const(c) => self.long(*c),
            IndexExpr::Add(a, b) => {
                let (a, b) = (self.index(p, a, here), self.index(p, b, here));
                self.b.ins().iadd(a, b)
            }
            IndexExpr::Mul(a, c) => {
                let a = self.index(p, a, here);
                self.times(a, *c)
            }
            IndexExpr::FloorDiv(a, c) => {
                let a = self.index(p, a, here);
                self.floor_div(a, *c).0
            }
            IndexExpr::Mod(a, c) => {
                let a = self.index(p, a, here);
                self.floor_div(a, *c).1
            }
            IndexExpr::Data { param, lo, hi } => {
                let k = *param as usize;
                let dtype = p.types.get(k).copied().unwrap_or(DType::I64);
                let value = match here.params.get(k).copied().flatten() {
                    Some(v) => self.resized(v, dtype, types::I64),
                    None => self.long(0),
                };
                let (lo, hi) = (self.long(*lo), self.long(*hi));
                let low = self.b.ins().icmp(IntCC::SignedLessThan, value, lo);
                let value = self.b.ins().select(low, lo, value);
                let high = self.b.ins().icmp(IntCC::SignedGreaterThan, value, hi);
                self.b.ins().select(high, hi, value)
            }
        }
    }

    pub(crate) fn times(&mut self, a: Value, c: i64) -> Value {
        match c {
            1 => a,
            2 | 4 | 8 | 16 | 32 | 64 => {
                let by = self.long(i64::from(c.trailing_zeros()));
                self.b.ins().ishl(a, by)
            }
            c => {
                let c = self.long(c);
                self.b.ins().imul(a, c)
            }
        }
    }

    /// Quotient and remainder by a constant above 0, rounded down.
    pub(crate) fn floor_div(&mut self, a: Value, c: i64) -> (Value, Value) {
        let one = self.long(1);
        if c <= 1 {
            return (a, self.b.ins().isub(a, a));
        }
        if c.count_ones() == 1 {
            let by = self.long(i64::from(c.trailing_zeros()));
            let mask = self.long(c - 1);
            return (self.b.ins().sshr(a, by), self.b.ins().band(a, mask));
        }
        let by = self.long(c);
        let quotient = self.b.ins().sdiv(a, by);
        let product = self.b.ins().imul(quotient, by);
        let rest = self.b.ins().isub(a, product);
        let zero = self.long(0);
        let negative = self.b.ins().icmp(IntCC::SignedLessThan, rest, zero);
        let lower = self.b.ins().isub(quotient, one);
        let higher = self.b.ins().iadd(rest, by);
        let quotient = self.b.ins().select(negative, lower, quotient);
        (quotient, self.b.ins().select(negative, higher, rest))
    }

    /// All of a form that does not change along the innermost axis.
    pub(crate) fn fixed_part(
        &mut self,
        p: &LoopNest,
        form: usize,
        here: &PointValues<'_>,
    ) -> Value {
        let f = &p.forms[form];
        let mut sum = self.long(f.constant);
        for (a, &step) in f.steps.iter().enumerate().take(p.inner()) {
            if step != 0 {
                let term = self.times(here.at[a], step);
                sum = self.b.ins().iadd(sum, term);
            }
        }
        for (e, factor) in f.rest.iter().filter(|(e, _)| !p.changes(e)) {
            let value = self.index(p, e, here);
            let term = self.times(value, *factor);
            sum = self.b.ins().iadd(sum, term);
        }
        sum
    }

    /// The value of a form.
    pub(crate) fn form(
        &mut self,
        p: &LoopNest,
        form: usize,
        fixed: &LoopInvariants,
        here: &PointValues<'_>,
    ) -> Value {
        let known = fixed.forms.get(form).copied().flatten();
        let mut sum = match known {
            Some(v) => v,
            None => self.fixed_part(p, form, here),
        };
        let step = p.step(form);
        if step != 0 {
            let term = self.times(here.at[p.inner()], step);
            sum = self.b.ins().iadd(sum, term);
        }
        for (e, factor) in p.forms[form].rest.iter().filter(|(e, _)| p.changes(e)) {
            let value = self.index(p, e, here);
            let term = self.times(value, *factor);
            sum = self.b.ins().iadd(sum, term);
        }
        sum
    }

    pub(crate) fn base(&mut self, fixed: &LoopInvariants, at: u32) -> Value {
        match fixed.bases.iter().find(|(k, _)| *k == at) {
            Some((_, v)) => *v,
            None => self.long(0),
        }
    }

    /// Where the element of an access is that is not packed.
    pub(crate) fn address(
        &mut self,
        p: &LoopNest,
        a: &Access,
        fixed: &LoopInvariants,
        here: &PointValues<'_>,
    ) -> Value {
        let bytes = a.dtype.bytes() as i64;
        if let Some(&(_, start)) = fixed.starts.iter().find(|(f, _)| *f == a.form) {
            let step = p.step(a.form).wrapping_mul(bytes);
            return match step {
                0 => start,
                _ => {
                    let along = self.times(here.at[p.inner()], step);
                    self.b.ins().iadd(start, along)
                }
            };
        }
        let base = self.base(fixed, a.at);
        let element = self.form(p, a.form, fixed, here);
        let offset = self.times(element, bytes);
        self.b.ins().iadd(base, offset)
    }

    fn load(
        &mut self,
        p: &LoopNest,
        a: &Access,
        fixed: &LoopInvariants,
        here: &PointValues<'_>,
    ) -> Value {
        if let Some(bits) = a.packed {
            let (address, shift) = self.packed_place(p, a, bits, fixed, here);
            let byte = self.b.ins().load(types::I8, flags(), address, 0);
            let word = self.b.ins().uextend(types::I32, byte);
            let shift = self.b.ins().ireduce(types::I32, shift);
            let moved = self.b.ins().ushr(word, shift);
            let mask = self.int(types::I32, (1i64 << bits) - 1);
            let value = self.b.ins().band(moved, mask);
            return match register(a.dtype) {
                types::I32 => value,
                types::I64 => self.b.ins().uextend(types::I64, value),
                ty => self.b.ins().ireduce(ty, value),
            };
        }
        let address = self.address(p, a, fixed, here);
        let value = self.b.ins().load(register(a.dtype), flags(), address, 0);
        match a.dtype {
            // A caller's truth values may have any bits above the lowest.
            DType::Bool => {
                let one = self.int(types::I8, 1);
                self.b.ins().band(value, one)
            }
            _ => value,
        }
    }

    /// The byte of a packed element and the place of its lowest bit in there.
    pub(crate) fn packed_place(
        &mut self,
        p: &LoopNest,
        a: &Access,
        bits: u8,
        fixed: &LoopInvariants,
        here: &PointValues<'_>,
    ) -> (Value, Value) {
        let base = self.base(fixed, a.at);
        let element = self.form(p, a.form, fixed, here);
        let bit = self.times(element, bits.into());
        let three = self.long(3);
        let byte = self.b.ins().ushr(bit, three);
        let seven = self.long(7);
        (self.b.ins().iadd(base, byte), self.b.ins().band(bit, seven))
    }

    /// Stores an element; in a buffer, NaNs as the canonical one.
    pub(crate) fn store(
        &mut self,
        p: &LoopNest,
        a: &Access,
        value: Value,
        fixed: &LoopInvariants,
        here: &PointValues<'_>,
    ) {
        if let Some(bits) = a.packed {
            let (address, shift) = self.packed_place(p, a, bits, fixed, here);
            let narrow = match register(a.dtype) {
                types::I8 => value,
                _ => self.b.ins().ireduce(types::I8, value),
            };
            let low = self.int(types::I8, (1i64 << bits) - 1);
            let shift = self.b.ins().ireduce(types::I8, shift);
            let new = self.b.ins().band(narrow, low);
            let new = self.b.ins().ishl(new, shift);
            let hole = self.b.ins().ishl(low, shift);
            let old = self.b.ins().load(types::I8, flags(), address, 0);
            let kept = self.b.ins().band_not(old, hole);
            let both = self.b.ins().bor(kept, new);
            self.b.ins().store(flags(), both, address, 0);
            return;
        }
        let value = if a.buffer { self.canonical(a.dtype, value) } else { value };
        let address = self.address(p, a, fixed, here);
        self.b.ins().store(flags(), value, address, 0);
    }

    fn canonical(&mut self, d: DType, value: Value) -> Value {
        if !matches!(d, DType::F32 | DType::F64) {
            // 16-bit floats come out of conversions, which give no other NaN.
            return value;
        }
        let nan = self.b.ins().fcmp(FloatCC::Unordered, value, value);
        let quiet = self.literal(Literal::from_f64(d, f64::NAN));
        self.b.ins().select(nan, quiet, value)
    }

    /// Whether all guards hold; `None` where there are none.
    pub(crate) fn guards(
        &mut self,
        p: &LoopNest,
        guards: &[(usize, Range<i64>)],
        fixed: &LoopInvariants,
        here: &PointValues<'_>,
    ) -> Option<Value> {
        let mut all: Option<Value> = None;
        for (form, range) in guards {
            let value = self.form(p, *form, fixed, here);
            let start = self.long(range.start);
            // One unsigned comparison does for both ends, since expressions keep to 62 bits.
            let above = self.b.ins().isub(value, start);
            let length = self.long(range.end.saturating_sub(range.start).max(0));
            let holds = self.b.ins().icmp(IntCC::UnsignedLessThan, above, length);
            all = Some(match all {
                Some(before) => self.b.ins().band(before, holds),
                None => holds,
            });
        }
        all
    }

    /// A parameter: through the first way whose guards hold. Nothing is loaded where they do not.
    pub(crate) fn read(
        &mut self,
        p: &LoopNest,
        read: &ParamRead,
        dtype: DType,
        fixed: &LoopInvariants,
        here: &PointValues<'_>,
    ) -> Value {
        let sources = match read {
            ParamRead::Coord(form) => return self.form(p, *form, fixed, here),
            ParamRead::Guarded(sources) => sources,
        };
        let source = |unit: &mut Self, w: &GuardedSource| match &w.from {
            LoadSource::Literal(l) => unit.literal(*l),
            LoadSource::Array(a) => unit.load(p, a, fixed, here),
        };
        if let [only] = sources.as_slice() {
            return source(self, only);
        }
        let done = self.b.create_block();
        let result = self.b.append_block_param(done, register(dtype));
        for w in sources {
            let Some(holds) = self.guards(p, &w.guards, fixed, here) else {
                let value = source(self, w);
                self.b.ins().jump(done, &[value.into()]);
                break;
            };
            let (yes, no) = (self.b.create_block(), self.b.create_block());
            self.b.ins().brif(holds, yes, &[], no, &[]);
            self.b.seal_block(yes);
            self.b.seal_block(no);
            self.b.switch_to_block(yes);
            let value = source(self, w);
            self.b.ins().jump(done, &[value.into()]);
            self.b.switch_to_block(no);
        }
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        result
    }
}
