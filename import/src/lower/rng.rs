//! `rng_bit_generator`: the bits that XLA's generators give, and the state that they leave.
//!
//! The state is a key and a counter of 64 bits each; Philox may have a counter of 128. A generator is a function of both for each
//! block of bits: Threefry-2x32 with 20 rounds gives two words, Philox-4x32 with 10 rounds four (Salmon and others, *Parallel
//! random numbers: as easy as 1, 2, 3*, 2011).

use super::attributes::find;
use super::context::{LoweredValues, ModuleLowering, Val};
use crate::emit::element::ElementType;
use crate::emit::integers::{unsigned, wrap};
use crate::emit::refusal::{Unlowered, refuse};
use crate::text::tree::{Attribute, Instruction};
use adfuse_ir::{Attrs, DType, Literal, Op, TensorType, Value};
use smallvec::smallvec;

/// How words of 32 bits lie in a result: two halves along an axis that are interleaved.
struct Halves {
    axis: usize,
    half: Vec<u64>,
}

impl Halves {
    /// The first axis of even extent, or the longest.
    fn of(dims: &[u64]) -> Halves {
        let even = dims.iter().position(|d| d.is_multiple_of(2));
        let longest = || (0..dims.len()).rev().max_by_key(|&d| dims[d]);
        let axis = even.or_else(longest).unwrap_or(0);
        let mut half = if dims.is_empty() { vec![1] } else { dims.to_vec() };
        half[axis] = half[axis].div_ceil(2);
        Halves { axis, half }
    }
}

/// Words that are computed for many counters at once.
struct WordWriter<'c, 't> {
    cx: &'c mut ModuleLowering<'t>,
    /// How many counters there are.
    count: u64,
}

type WordResult = Result<Value, Unlowered>;

pub(crate) fn rng_bit_generator(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
) -> LoweredValues {
    let state = cx.operand(inst, 0)?;
    let (element, ty) = cx.result_type(inst, 1)?;
    let (ElementType::Int { bits, .. }, Some(dims)) = (element, ty.dims()) else {
        return refuse(format!("random bits of type {element}"));
    };
    let named = find(inst, &["rng_algorithm", "algorithm"]).and_then(Attribute::word);
    let parts = cx.dims(state)?;
    let words = match (&parts[..], state.element.is_u64()) {
        ([n @ (2 | 3)], true) => *n,
        _ => return refuse("a state that is not of two or three words of 64 bits"),
    };
    let mut word = Vec::new();
    for k in 0..words as i64 {
        let attrs = Attrs::none().with_ints("start", [k]).with_ints("limit", [k + 1]);
        let full = cx.b.materialize(state.value);
        let one = cx.emit(Op::Slice, &[full], attrs.with_ints("stride", [1]))?;
        word.push(cx.emit_as(
            Op::Reshape,
            &[one],
            Attrs::none(),
            &TensorType::scalar(DType::I64),
        )?);
    }
    let total = ty.elements().unwrap_or(0);
    let (value, next) = match (named, bits, words) {
        (Some("THREE_FRY"), 64, 2) => {
            let mut w = WordWriter { cx, count: total };
            let [low, high] = w.threefry(word[0], word[1])?;
            (w.join(low, high)?, vec![w.after(word[1], total)?])
        }
        (Some("THREE_FRY"), 8 | 16 | 32, 2) => {
            let halves = Halves::of(&dims);
            let count = halves.half.iter().product();
            let mut w = WordWriter { cx, count };
            let pair = w.threefry(word[0], word[1])?;
            (w.interleaved(pair, &halves, &dims)?, vec![w.after(word[1], count)?])
        }
        (Some("PHILOX" | "DEFAULT"), 32 | 64, _) => {
            let count = (total * u64::from(bits / 32)).div_ceil(4);
            let mut w = WordWriter { cx, count };
            // A counter of 64 bits has the key for its upper half.
            let high = word.get(2).copied().unwrap_or(word[0]);
            let made = w.philox(word[0], [word[1], high])?;
            let value = w.in_turn(made, bits, total)?;
            let [low, high] = w.sum([word[1], high], count)?;
            (value, if words == 3 { vec![low, high] } else { vec![low] })
        }
        _ => {
            let named = named.unwrap_or("that is not named");
            return refuse(format!("{bits} bits by the generator {named} of {words} words"));
        }
    };
    let value = cx.storage(value, element.storage())?;
    let value = wrap(cx, element, value)?;
    let value = cx.emit_as(Op::Reshape, &[value], Attrs::none(), &ty)?;
    let one = TensorType::of(DType::I64, &[1]);
    let mut rows = Vec::new();
    for v in std::iter::once(word[0]).chain(next) {
        rows.push(cx.emit_as(Op::Reshape, &[v], Attrs::none(), &one)?);
    }
    let next = cx.emit(Op::Concatenate, &rows, Attrs::none().with_int("axis", 0))?;
    Ok(smallvec![Val { value: next, ..state }, Val { element, value }])
}

impl WordWriter<'_, '_> {
    fn number(&mut self, like: Value, n: u64) -> Value {
        let dtype = self.cx.b.ty(like).dtype;
        self.cx.literal_like(like, Literal::from_bits(dtype, n))
    }

    fn op(&mut self, op: Op, x: Value, y: Value) -> WordResult {
        self.cx.op(op, &[x, y])
    }

    /// With a number.
    fn with(&mut self, op: Op, x: Value, n: u64) -> WordResult {
        let n = self.number(x, n);
        self.op(op, x, n)
    }

    /// A scalar for each counter.
    fn spread(&mut self, x: Value) -> WordResult {
        let ty = TensorType::of(self.cx.b.ty(x).dtype, &[self.count]);
        self.cx.emit_as(Op::BroadcastInDim, &[x], Attrs::none().with_ints("dims", []), &ty)
    }

    /// The lower and the upper half of words of 64 bits.
    fn split(&mut self, x: Value) -> Result<[Value; 2], Unlowered> {
        let high = self.with(Op::ShiftRightLogical, x, 32)?;
        Ok([self.cx.storage(x, DType::U32)?, self.cx.storage(high, DType::U32)?])
    }

    fn join(&mut self, low: Value, high: Value) -> WordResult {
        let (low, high) = (self.cx.storage(low, DType::I64)?, self.cx.storage(high, DType::I64)?);
        let high = self.with(Op::ShiftLeft, high, 32)?;
        self.op(Op::Or, low, high)
    }

    /// The counter that many steps later.
    fn after(&mut self, x: Value, n: u64) -> WordResult {
        self.with(Op::Add, x, n)
    }

    fn places(&mut self) -> WordResult {
        let ty = TensorType::of(DType::I64, &[self.count]);
        self.cx.emit_as(Op::Iota, &[], Attrs::none().with_int("axis", 0), &ty)
    }

    /// Two words for each counter from `from` on.
    fn threefry(&mut self, key: Value, from: Value) -> Result<[Value; 2], Unlowered> {
        const ROTATIONS: [[u64; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
        let (from, places) = (self.spread(from)?, self.places()?);
        let counter = self.op(Op::Add, from, places)?;
        let [k0, k1] = self.split(key)?;
        let both = self.op(Op::Xor, k0, k1)?;
        let k2 = self.with(Op::Xor, both, 0x1BD1_1BDA)?;
        let keys = [self.spread(k0)?, self.spread(k1)?, self.spread(k2)?];
        let [x, y] = self.split(counter)?;
        let (mut x, mut y) = (self.op(Op::Add, x, keys[0])?, self.op(Op::Add, y, keys[1])?);
        for round in 0..5 {
            for by in ROTATIONS[round % 2] {
                x = self.op(Op::Add, x, y)?;
                let (up, down) = (
                    self.with(Op::ShiftLeft, y, by)?,
                    self.with(Op::ShiftRightLogical, y, 32 - by)?,
                );
                let turned = self.op(Op::Or, up, down)?;
                y = self.op(Op::Xor, turned, x)?;
            }
            x = self.op(Op::Add, x, keys[(round + 1) % 3])?;
            y = self.op(Op::Add, y, keys[(round + 2) % 3])?;
            y = self.with(Op::Add, y, round as u64 + 1)?;
        }
        Ok([x, y])
    }

    /// A pair of words for each place of the halves, as elements of these extents.
    fn interleaved(&mut self, pair: [Value; 2], halves: &Halves, dims: &[u64]) -> WordResult {
        let mut apart = halves.half.clone();
        apart.insert(halves.axis + 1, 1);
        let ty = TensorType::of(DType::U32, &apart);
        let mut parts = Vec::new();
        for x in pair {
            parts.push(self.cx.emit_as(Op::Reshape, &[x], Attrs::none(), &ty)?);
        }
        let axis = Attrs::none().with_int("axis", halves.axis as i64 + 1);
        let whole = self.cx.emit(Op::Concatenate, &parts, axis)?;
        let mut extents = halves.half.clone();
        extents[halves.axis] *= 2;
        let ty = TensorType::of(DType::U32, &extents);
        let whole = self.cx.emit_as(Op::Reshape, &[whole], Attrs::none(), &ty)?;
        let limit = if dims.is_empty() { &[1] } else { dims };
        self.first(whole, limit)
    }

    /// The first elements along each axis.
    fn first(&mut self, x: Value, limit: &[u64]) -> WordResult {
        let zeros = limit.iter().map(|_| 0);
        let attrs = Attrs::none()
            .with_ints("start", zeros)
            .with_ints("limit", limit.iter().map(|&n| n as i64))
            .with_ints("stride", limit.iter().map(|_| 1));
        self.cx.emit(Op::Slice, &[x], attrs)
    }

    /// A number of 128 bits plus one of 64.
    fn plus(&mut self, [low, high]: [Value; 2], n: Value) -> Result<[Value; 2], Unlowered> {
        let sum = self.op(Op::Add, low, n)?;
        let carry = unsigned(self.cx, Op::Lt, &[sum, low])?;
        let carry = self.cx.storage(carry, DType::I64)?;
        Ok([sum, self.op(Op::Add, high, carry)?])
    }

    fn sum(&mut self, counter: [Value; 2], n: u64) -> Result<[Value; 2], Unlowered> {
        let n = self.number(counter[0], n);
        self.plus(counter, n)
    }

    /// Four words for each counter from `from` on.
    fn philox(&mut self, key: Value, from: [Value; 2]) -> Result<[Value; 4], Unlowered> {
        let from = [self.spread(from[0])?, self.spread(from[1])?];
        let places = self.places()?;
        let [low, high] = self.plus(from, places)?;
        let ([a, b], [c, d]) = (self.split(low)?, self.split(high)?);
        let (mut x, [mut k, mut l]) = ([a, b, c, d], self.split(key)?);
        for _ in 0..10 {
            let [p, q] =
                [self.wide_product(x[0], 0xD251_1F53)?, self.wide_product(x[2], 0xCD9E_8D57)?];
            let (k_all, l_all) = (self.spread(k)?, self.spread(l)?);
            let first = self.op(Op::Xor, q[1], x[1])?;
            let second = self.op(Op::Xor, p[1], x[3])?;
            x = [self.op(Op::Xor, first, k_all)?, q[0], self.op(Op::Xor, second, l_all)?, p[0]];
            k = self.with(Op::Add, k, 0x9E37_79B9)?;
            l = self.with(Op::Add, l, 0xBB67_AE85)?;
        }
        Ok(x)
    }

    /// The lower and the upper half of a product of words.
    fn wide_product(&mut self, x: Value, n: u64) -> Result<[Value; 2], Unlowered> {
        let x = self.cx.storage(x, DType::I64)?;
        let product = self.with(Op::Mul, x, n)?;
        self.split(product)
    }

    /// The words of the first counter, then those of the second, and so on: this many elements.
    fn in_turn(&mut self, words: [Value; 4], bits: u32, total: u64) -> WordResult {
        let [a, b, c, d] = words;
        let elements = match bits {
            64 => vec![self.join(a, b)?, self.join(c, d)?],
            _ => words.to_vec(),
        };
        let dtype = self.cx.b.ty(elements[0]).dtype;
        let column = TensorType::of(dtype, &[self.count, 1]);
        let mut columns = Vec::new();
        for &x in &elements {
            columns.push(self.cx.emit_as(Op::Reshape, &[x], Attrs::none(), &column)?);
        }
        let rows = self.cx.emit(Op::Concatenate, &columns, Attrs::none().with_int("axis", 1))?;
        let flat = TensorType::of(dtype, &[self.count * elements.len() as u64]);
        let flat = self.cx.emit_as(Op::Reshape, &[rows], Attrs::none(), &flat)?;
        self.first(flat, &[total])
    }
}
