//! Loads and stores of vectors: strided and packed elements, coordinates, and gathers lane by lane.

use super::state::{Quad, flags, vector, wide};
use super::translate::LoopScope;
use super::unit::FunctionEmitter;
use super::vector::quiet;
use crate::cpu::codegen::loop_program::{GroupRead, GroupWrite, LoopVal};
use crate::cpu::codegen::vectorize::QUAD;
use adfuse_ir::DType;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use smallvec::SmallVec;

impl FunctionEmitter<'_, '_> {
    /// A parameter that changes along the line, in each copy.
    pub(crate) fn param_quads(
        &mut self,
        s: &mut LoopScope<'_>,
        k: usize,
        d: Value,
        copies: u32,
    ) -> Option<Vec<Quad>> {
        let p = s.p;
        let dtype = *p.body.params.get(k)?;
        self.recent.clear();
        match p.reads.get(k)? {
            GroupRead::Coord { first, steps } => {
                let (first, step) = (self.get(s, *first)?, steps.as_even()?);
                let along = self.times(d, step);
                let first = self.b.ins().iadd(first, along);
                (0..copies).map(|copy| Some(self.coordinates(first, step, copy))).collect()
            }
            GroupRead::Chosen { pointer, along } => {
                let (pointer, along) = (self.get(s, *pointer)?, self.get(s, *along)?);
                let along = self.b.ins().band(d, along);
                let offset = self.times(along, dtype.bytes() as i64);
                let address = self.b.ins().iadd(pointer, offset);
                (0..copies).map(|copy| self.load_quad(dtype, address, 1, copy)).collect()
            }
            GroupRead::Even { pointer, step } => {
                let address =
                    self.even_address(s, *pointer, step.wrapping_mul(dtype.bytes() as i64), d)?;
                (0..copies).map(|copy| self.load_quad(dtype, address, *step, copy)).collect()
            }
            GroupRead::Packed { bits, pointer, first } => {
                let address = self.packed_byte(s, [*pointer, *first], *bits, d)?;
                self.load_packed(dtype, *bits, address, copies)
            }
            GroupRead::Lanes { at, block, value } => {
                let mut found = Vec::new();
                for copy in 0..copies {
                    let mut singles: SmallVec<[Value; 4]> = SmallVec::new();
                    for lane in 0..QUAD {
                        let by = self.long((copy * QUAD + lane).into());
                        let here = self.b.ins().iadd(d, by);
                        s.set(*at, here);
                        self.block(s, block)?;
                        singles.push(self.get(s, *value)?);
                    }
                    found.push(self.gathered(dtype, &singles)?);
                }
                Some(found)
            }
            // Lowering makes the others for wider vectors.
            GroupRead::Fixed
            | GroupRead::Element
            | GroupRead::Grid { .. }
            | GroupRead::Bits { .. }
            | GroupRead::Placed { .. }
            | GroupRead::Masked { .. } => None,
        }
    }

    /// Where the element of a coordinate is, of elements this many bytes apart.
    fn even_address(
        &mut self,
        s: &LoopScope<'_>,
        pointer: LoopVal,
        apart: i64,
        d: Value,
    ) -> Option<Value> {
        let pointer = self.get(s, pointer)?;
        if apart == 0 {
            return Some(pointer);
        }
        let along = self.times(d, apart);
        Some(self.b.ins().iadd(pointer, along))
    }

    /// The byte in which the packed element of a coordinate begins.
    fn packed_byte(
        &mut self,
        s: &LoopScope<'_>,
        [pointer, first]: [LoopVal; 2],
        bits: u8,
        d: Value,
    ) -> Option<Value> {
        let (pointer, first) = (self.get(s, pointer)?, self.get(s, first)?);
        let element = self.b.ins().iadd(first, d);
        let bit = self.times(element, bits.into());
        let three = self.long(3);
        let byte = self.b.ins().ushr(bit, three);
        Some(self.b.ins().iadd(pointer, byte))
    }

    /// Coordinates in equal steps from the one of the first element on.
    fn coordinates(&mut self, first: Value, step: i64, copy: u32) -> Quad {
        let first = self.b.ins().splat(types::I64X2, first);
        let mut half = |from: u32| {
            let [a, b] = [0, 1].map(|lane| step.wrapping_mul((copy * QUAD + from + lane).into()));
            let by =
                self.whole_vector(types::I64X2, u128::from(b as u64) << 64 | u128::from(a as u64));
            self.b.ins().iadd(first, by)
        };
        Quad::Wide([half(0), half(2)])
    }

    /// The elements of a copy, a step apart.
    fn load_quad(&mut self, d: DType, address: Value, step: i64, copy: u32) -> Option<Quad> {
        let bytes = (d.bytes() as i64).checked_mul(step)?;
        let ty = vector(d);
        if step == 1 {
            let offset = i32::try_from(bytes * i64::from(copy * QUAD)).ok()?;
            return Some(match d {
                DType::BF16 | DType::F16 => {
                    Quad::Narrow(self.b.ins().uload16x4(flags(), address, offset))
                }
                DType::I8 | DType::U8 | DType::Bool => {
                    let four = self.b.ins().load(types::I32, flags(), address, offset);
                    Quad::Narrow(self.bytes_in_lanes(d, four))
                }
                _ if wide(d) => Quad::Wide([
                    self.b.ins().load(ty, flags(), address, offset),
                    self.b.ins().load(ty, flags(), address, offset + 16),
                ]),
                _ => Quad::Narrow(self.b.ins().load(ty, flags(), address, offset)),
            });
        }
        let mut singles: SmallVec<[Value; 4]> = SmallVec::new();
        for lane in 0..QUAD {
            let (place, near) = self.near(address, bytes, copy * QUAD + lane);
            let x = self.load_element(d, place, near);
            singles.push(x);
        }
        self.gathered(d, &singles)
    }

    /// The bytes of a word as elements.
    fn bytes_in_lanes(&mut self, d: DType, four: Value) -> Value {
        let x = self.b.ins().scalar_to_vector(types::I32X4, four);
        let x = self.bitcast(x, types::I8X16);
        if d == DType::I8 {
            let x = self.b.ins().swiden_low(x);
            return self.b.ins().swiden_low(x);
        }
        let x = self.b.ins().uwiden_low(x);
        let x = self.b.ins().uwiden_low(x);
        if d != DType::Bool {
            return x;
        }
        // A caller's truth values may have any bits above the lowest.
        let bit = self.low_bits(x, 1);
        let one = self.every(types::I32X4, 1);
        self.b.ins().icmp(IntCC::Equal, bit, one)
    }

    /// An address of the k-th element from one on, with an offset that an instruction can hold.
    fn near(&mut self, address: Value, bytes: i64, k: u32) -> (Value, i32) {
        let far = bytes.wrapping_mul(k.into());
        match i32::try_from(far) {
            Ok(offset) if bytes.checked_mul(k.into()).is_some() => (address, offset),
            _ => {
                let far = self.long(far);
                (self.b.ins().iadd(address, far), 0)
            }
        }
    }

    /// Packed elements, of which the first begins a byte.
    fn load_packed(
        &mut self,
        d: DType,
        bits: u8,
        address: Value,
        copies: u32,
    ) -> Option<Vec<Quad>> {
        if bits == 1 {
            let word = match copies {
                2 => self.b.ins().uload8(types::I32, flags(), address, 0),
                4 => self.b.ins().uload16(types::I32, flags(), address, 0),
                8 => self.b.ins().load(types::I32, flags(), address, 0),
                _ => return None,
            };
            let all = self.b.ins().splat(types::I32X4, word);
            let mut quad = |copy| {
                let lanes = [0, 1, 2, 3].map(|lane| 1u32 << (copy * QUAD + lane));
                let bit = self.lanes_of(lanes);
                let found = self.b.ins().band(all, bit);
                let bit = self.lanes_of(lanes);
                Quad::Narrow(self.b.ins().icmp(IntCC::Equal, found, bit))
            };
            return Some((0..copies).map(&mut quad).collect());
        }
        let mut found = Vec::new();
        for copy in 0..copies as i32 {
            let x = match bits {
                8 => {
                    let four = self.b.ins().load(types::I32, flags(), address, copy * 4);
                    self.bytes_in_lanes(DType::U8, four)
                }
                _ => {
                    let word = match bits {
                        2 => self.b.ins().uload8(types::I32, flags(), address, copy),
                        4 => self.b.ins().uload16(types::I32, flags(), address, copy * 2),
                        _ => return None,
                    };
                    // Each lane keeps its bits, and a product moves them to where the last lane's are.
                    let all = self.b.ins().splat(types::I32X4, word);
                    let b = u32::from(bits);
                    let low = (1u32 << b) - 1;
                    let own = self.lanes_of([low, low << b, low << (2 * b), low << (3 * b)]);
                    let x = self.b.ins().band(all, own);
                    let up = self.lanes_of([1 << (3 * b), 1 << (2 * b), 1 << b, 1]);
                    let x = self.b.ins().imul(x, up);
                    let by = self.int(types::I32, (3 * b).into());
                    self.b.ins().ushr(x, by)
                }
            };
            found.push(match wide(d) {
                true => {
                    let high = self.words(x, x, [2, 3, 2, 3]);
                    Quad::Wide([self.b.ins().uwiden_low(x), self.b.ins().uwiden_low(high)])
                }
                false => Quad::Narrow(self.wrapped_small_int(d, x)),
            });
        }
        Some(found)
    }

    /// Writes the copies of an output.
    pub(crate) fn store_quads(
        &mut self,
        s: &LoopScope<'_>,
        k: usize,
        values: &[Quad],
        d: Value,
    ) -> Option<()> {
        let (dtype, canonical, pointer, step) = match *s.p.writes.get(k)? {
            GroupWrite::Even { dtype, canonical, pointer, step, .. } => {
                (dtype, canonical, pointer, step)
            }
            GroupWrite::Packed { bits, pointer, first, .. } => {
                let address = self.packed_byte(s, [pointer, first], bits, d)?;
                return self.store_packed(bits, values, address);
            }
            GroupWrite::Element | GroupWrite::Lanes { .. } | GroupWrite::Columns { .. } => {
                return None;
            }
        };
        let mut all: SmallVec<[Quad; 8]> = SmallVec::new();
        for q in values {
            all.push(if canonical { self.canonical_quad(dtype, q)? } else { *q });
        }
        let bytes = (dtype.bytes() as i64).wrapping_mul(step);
        let address = self.even_address(s, pointer, bytes, d)?;
        if step != 1 {
            for (copy, q) in (0u32..).zip(&all) {
                for lane in 0..QUAD {
                    let x = self.lane(q, dtype, lane as usize);
                    let (place, near) = self.near(address, bytes, copy * QUAD + lane);
                    self.b.ins().store(flags(), x, place, near);
                }
            }
            return Some(());
        }
        match dtype.bytes() {
            1 => self.store_bytes(dtype, &all, address),
            2 => self.store_halves(&all, address),
            _ => {
                let parts = all.iter().flat_map(|q| q.parts().to_vec());
                let parts: SmallVec<[Value; 16]> = parts.collect();
                for (part, offset) in parts.into_iter().zip((0i32..).step_by(16)) {
                    self.b.ins().store(flags(), part, address, offset);
                }
                Some(())
            }
        }
    }

    /// Bytes, of four copies at once where there are this many.
    fn store_bytes(&mut self, d: DType, all: &[Quad], address: Value) -> Option<()> {
        let mut offset = 0;
        for some in all.chunks(if all.len().is_multiple_of(4) { 4 } else { 1 }) {
            let mut parts: SmallVec<[Value; 4]> = SmallVec::new();
            for q in some {
                parts.push(*self.mask_or_same(d, q).parts().first()?);
            }
            let part = |k: usize| *parts.get(k).unwrap_or(&parts[0]);
            let (low, high) =
                (self.b.ins().snarrow(part(0), part(1)), self.b.ins().snarrow(part(2), part(3)));
            let bytes = match d {
                DType::U8 => self.b.ins().unarrow(low, high),
                _ => self.b.ins().snarrow(low, high),
            };
            let bytes = match d {
                DType::Bool => {
                    let words = self.bitcast(bytes, types::I32X4);
                    self.low_bits(words, 0x0101_0101)
                }
                _ => self.bitcast(bytes, types::I32X4),
            };
            if some.len() == 4 {
                self.b.ins().store(flags(), bytes, address, offset);
            } else {
                let word = self.b.ins().extractlane(bytes, 0);
                self.b.ins().store(flags(), word, address, offset);
            }
            offset += 4 * some.len() as i32;
        }
        Some(())
    }

    fn mask_or_same(&mut self, d: DType, q: &Quad) -> Quad {
        if d == DType::Bool { self.mask(q, false) } else { *q }
    }

    /// Elements of 16 bits, of two copies at once where there are this many.
    fn store_halves(&mut self, all: &[Quad], address: Value) -> Option<()> {
        let mut offset = 0;
        for some in all.chunks(2) {
            let first = *some.first()?.parts().first()?;
            let second = some.get(1).and_then(|q| q.parts().first()).copied();
            let halves = self.b.ins().unarrow(first, second.unwrap_or(first));
            match second {
                Some(_) => {
                    self.b.ins().store(flags(), halves, address, offset);
                }
                None => {
                    let longs = self.bitcast(halves, types::I64X2);
                    let low = self.b.ins().extractlane(longs, 0);
                    self.b.ins().store(flags(), low, address, offset);
                }
            }
            offset += 16;
        }
        Some(())
    }

    /// Packed elements, of which the first begins a byte and the last ends one.
    fn store_packed(&mut self, bits: u8, all: &[Quad], address: Value) -> Option<()> {
        let mut parts: SmallVec<[Value; 8]> = SmallVec::new();
        for q in all {
            parts.push(match q {
                Quad::Narrow(x) => *x,
                Quad::Wide([a, b]) => self.low_halves(*a, *b),
            });
        }
        if bits == 1 {
            for (some, offset) in parts.chunks(if parts.len() >= 4 { 4 } else { 2 }).zip(0i32..) {
                let part = |k: usize| *some.get(k).unwrap_or(&some[0]);
                let low = self.b.ins().snarrow(part(0), part(1));
                let high = self.b.ins().snarrow(part(2), part(3));
                let bytes = self.b.ins().snarrow(low, high);
                let word = self.b.ins().vhigh_bits(types::I32, bytes);
                match some.len() {
                    4 => self.b.ins().istore16(flags(), word, address, offset * 2),
                    2 => self.b.ins().istore8(flags(), word, address, offset),
                    _ => return None,
                };
            }
            return Some(());
        }
        for (part, copy) in parts.into_iter().zip(0i32..) {
            let x = self.low_bits(part, (1u64 << bits) - 1);
            if bits == 8 {
                let low = self.b.ins().snarrow(x, x);
                let low = self.b.ins().unarrow(low, low);
                let words = self.bitcast(low, types::I32X4);
                let word = self.b.ins().extractlane(words, 0);
                self.b.ins().store(flags(), word, address, copy * 4);
                continue;
            }
            // Each lane is moved to its bits, and all are joined.
            let b = u32::from(bits);
            let up = self.lanes_of([1, 1 << b, 1 << (2 * b), 1 << (3 * b)]);
            let x = self.b.ins().imul(x, up);
            let other = self.words(x, x, [2, 3, 2, 3]);
            let x = self.b.ins().bor(x, other);
            let other = self.words(x, x, [1, 1, 1, 1]);
            let x = self.b.ins().bor(x, other);
            let word = self.b.ins().extractlane(x, 0);
            match bits {
                2 => self.b.ins().istore8(flags(), word, address, copy),
                4 => self.b.ins().istore16(flags(), word, address, copy * 2),
                _ => return None,
            };
        }
        Some(())
    }

    /// The elements with every NaN as the canonical one.
    fn canonical_quad(&mut self, d: DType, q: &Quad) -> Option<Quad> {
        let Some(quiet) = quiet(d) else { return Some(*q) };
        let mut parts: SmallVec<[Value; 2]> = SmallVec::new();
        for &x in q.parts() {
            parts.push(self.unless_nan(x, x, quiet.bits()));
        }
        Quad::of(&parts)
    }
}
