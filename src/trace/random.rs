//! Random tensors: keys that count their draws, distributions, and dropout.

use super::record::apply;
use super::{Tensor, TensorOperand, record};
use crate::ir::attrs::Attrs;
use crate::ir::{DType, Kind, Literal, Op, TensorType};
use std::cell::Cell;
use std::f64::consts::SQRT_2;
use std::panic::Location;
use std::rc::Rc;

/// A source of random tensors in a trace: a seed, an `i64` scalar tensor, and the number of the next draw.
///
/// A draw is the op `rng_bits` of the seed and its number: a pure function, so that a value that is computed again,
/// in the backward pass, has the same bits. Draws of one key, and of keys that are split off, differ. Clones count
/// together. The count is of the program, not of what runs: a loop draws the same at every step, and a program at
/// every run, unless [`Key::fold_in`] makes the seed another.
///
/// ```
/// use adfuse::prelude::*;
///
/// let step = trace("step", |t| {
///     let (x, seed) = (t.input("x", f32s([4, 8])), t.input("seed", TensorType::scalar(DType::I64)));
///     let key = Key::new(&seed);
///     x.dropout(&key, 0.1).exp().dropout(&key, 0.5)
/// })?;
/// assert_eq!(step.params().len(), 2);
/// # Ok::<(), Diagnostic>(())
/// ```
#[derive(Clone, Debug)]
pub struct Key {
    seed: Tensor,
    /// The offset of its first draw.
    stream: i64,
    draws: Rc<Cell<u32>>,
}

/// Random bits as numbers of an element type in [0, 1), with an offset in units of their distance.
struct UniformBits {
    dtype: DType,
    /// How many bits the numbers have.
    bits: u32,
}

impl Key {
    /// The key of a seed, an `i64` scalar. Two keys of one seed draw the same.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let x = evaluate(|t| Key::new(&t.constant(42i64)).normal(f32s([3])))?;
    /// assert_eq!(x.dims(), [3]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn new(seed: &Tensor) -> Key {
        let due = TensorType::scalar(DType::I64);
        let seed = if seed.ty == due {
            seed.clone()
        } else {
            let m = format!("the seed of a key is i64[], found {}", seed.ty);
            seed.fail(Kind::DType, m);
            Tensor { ty: due, ..seed.clone() }
        };
        Key { seed, stream: 0, draws: Rc::default() }
    }

    /// The key of a draw of a layer, of which each has a number: its draws are those of a key that was split off.
    pub(super) fn numbered(seed: &Tensor, number: i64) -> Key {
        let stream = mixed(number).wrapping_add(mixed(-1));
        Key { seed: seed.clone(), stream, draws: Rc::default() }
    }

    /// Keys whose draws differ from each other's and from this key's.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let equal = evaluate(|t| {
    ///     let [a, b] = Key::new(&t.zeros(TensorType::scalar(DType::I64))).split();
    ///     a.bits([4]).eq(b.bits([4])).any(..)
    /// })?;
    /// assert_eq!(equal.to_f64s(), [0.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[must_use]
    pub fn split<const N: usize>(&self) -> [Key; N] {
        std::array::from_fn(|_| {
            // Streams of 2^64 begin at places that are mixed, so that they meet in none that is drawn from.
            let stream = mixed(self.offset()).wrapping_add(mixed(-1));
            Key { seed: self.seed.clone(), stream, draws: Rc::default() }
        })
    }

    /// The key whose seed is mixed with an integer, such as the number of a step of a loop or of training. Equal
    /// integers give keys that draw the same.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let f = trace("f", |t| {
    ///     let key = Key::new(&t.input("seed", TensorType::scalar(DType::I64)));
    ///     t.fori(0..3, t.zeros(f32s([4])), |i, x| x + key.fold_in(&i).normal(f32s([4])))
    /// })?;
    /// assert_eq!(f.result_types()[0], f32s([4]));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn fold_in(&self, number: impl TensorOperand) -> Key {
        // Far from the draws of the key itself.
        let number = number.beside(&self.seed).convert(DType::I64) + mixed(-2);
        let two = TensorType::of(DType::U32, &[2]);
        let bits =
            apply(&self.seed.state, Op::RngBits, &[&self.seed, &number], Attrs::none(), Some(&two));
        let words = bits.convert(DType::I64).split(&[1, 1], 0);
        let [high, low] = match words.as_slice() {
            [high, low] => [high, low].map(|w| w.reshape(())),
            _ => [self.seed.clone(), self.seed.clone()],
        };
        Key { seed: (high << 32) | low, stream: self.stream, draws: Rc::default() }
    }

    fn offset(&self) -> i64 {
        let n = self.draws.get();
        self.draws.set(n.wrapping_add(1));
        self.stream.wrapping_add(n.into())
    }

    /// Random bits of this shape, `u32`.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let bits = evaluate(|t| Key::new(&t.zeros(TensorType::scalar(DType::I64))).bits([2, 3]))?;
    /// assert_eq!(bits.ty(), TensorType::of(DType::U32, &[2, 3]));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn bits<const N: usize>(&self, shape: [u64; N]) -> Tensor {
        self.drawn(&TensorType::of(DType::U32, &shape))
    }

    #[track_caller]
    fn drawn(&self, like: &TensorType) -> Tensor {
        let ty = like.with_dtype(DType::U32);
        let scalar = TensorType::scalar(DType::I64);
        let n = Literal::from_i64(DType::I64, self.offset());
        let offset = record(&self.seed.state, &scalar, |s| Some(s.b.literal(&scalar, n)));
        apply(&self.seed.state, Op::RngBits, &[&self.seed, &offset], Attrs::none(), Some(&ty))
    }

    /// Numbers of a float type from [0, 1), all multiples of the distance of those below 1 with equal probability.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let x = evaluate(|t| Key::new(&t.zeros(TensorType::scalar(DType::I64))).uniform(f32s([100])))?;
    /// assert!(x.to_f64s().iter().all(|x| (0.0..1.0).contains(x)));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn uniform(&self, ty: TensorType) -> Tensor {
        let bits = match ty.dtype {
            DType::F64 => 53,
            DType::F32 => 24,
            DType::F16 => 11,
            DType::BF16 => 8,
            _ => return self.no_float("uniform", &ty),
        };
        self.fractions(&ty, &UniformBits { dtype: ty.dtype, bits }, 0.0)
    }

    /// Numbers of a float type from the normal distribution of mean 0 and variance 1.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let x = evaluate(|t| Key::new(&t.zeros(TensorType::scalar(DType::I64))).normal(f32s([1000])).mean(..))?;
    /// assert!(x.to_f64s()[0].abs() < 0.1);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn normal(&self, ty: TensorType) -> Tensor {
        if !ty.dtype.is_float() {
            return self.no_float("normal", &ty);
        }
        // One bit less than the type has: with the half between them, no number rounds to 0 or 1.
        let dtype = ty.dtype.compute();
        let bits = if dtype == DType::F64 { 52 } else { 23 };
        let x = self.fractions(&ty, &UniformBits { dtype, bits }, 0.5) * 2.0 - 1.0;
        let x = x.erf_inv() * SQRT_2;
        if dtype == ty.dtype { x } else { x.convert(ty.dtype) }
    }

    /// Truth values of a shape that hold with probability `p`, from 0 to 1.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let x = evaluate(|t| Key::new(&t.zeros(TensorType::scalar(DType::I64))).bernoulli(1.0, [3]))?;
    /// assert_eq!(x.to_f64s(), [1.0, 1.0, 1.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn bernoulli<const N: usize>(&self, p: f64, shape: [u64; N]) -> Tensor {
        self.hits(p, &TensorType::of(DType::Bool, &shape))
    }

    /// Integers of a range, at least `low` and below `high`, in an integer type: multiples of `2^-32` of the range, so
    /// that ranges far below `2^32` are all but even.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let x = evaluate(|t| Key::new(&t.zeros(TensorType::scalar(DType::I64))).integers(5..8, i32s([100])))?;
    /// assert!(x.to_f64s().iter().all(|x| (5.0..8.0).contains(x)));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn integers(&self, range: std::ops::Range<i64>, ty: TensorType) -> Tensor {
        let n = range.end.checked_sub(range.start).filter(|n| (1..=1 << 31).contains(n));
        let Some(n) = n.filter(|_| ty.dtype.is_int()) else {
            let m = format!(
                "`integers` takes a range of 1 to 2^31 numbers and an integer type, found {range:?} and {ty}"
            );
            return self.seed.refused(Kind::Usage, m);
        };
        // Less than 2^63: the high word of the product is the number.
        let product = self.drawn(&ty).convert(DType::I64) * n;
        ((product >> 32) + range.start).convert(ty.dtype)
    }

    /// For each row of logits along the last axis a class, `i32`, with the probabilities of their softmax.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let x = evaluate(|t| {
    ///     let key = Key::new(&t.zeros(TensorType::scalar(DType::I64)));
    ///     key.categorical(&t.constant([[0.0, 100.0, 0.0], [100.0, 0.0, 0.0]]))
    /// })?;
    /// assert_eq!(x.to_f64s(), [1.0, 0.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn categorical(&self, logits: &Tensor) -> Tensor {
        if !logits.has_floats("categorical") {
            return logits.clone();
        }
        let logits = logits.compute();
        let dtype = logits.ty.dtype;
        let bits = if dtype == DType::F64 { 52 } else { 23 };
        // The largest of logits with noise of Gumbel's distribution.
        let u = self.fractions(&logits.ty, &UniformBits { dtype, bits }, 0.5);
        (logits - (-u.log()).log()).argmax(-1)
    }

    /// Truth values with probability `p` in the shape of a type.
    #[track_caller]
    fn hits(&self, p: f64, like: &TensorType) -> Tensor {
        if !(0.0..=1.0).contains(&p) {
            return self
                .seed
                .refused(Kind::Usage, format!("a probability is from 0 to 1, found {p}"));
        }
        let t = self.seed.tracer();
        let below = (p * TWO_TO_32).round() as i64;
        match below {
            0 => t.zeros(like.with_dtype(DType::Bool)),
            n if n as f64 >= TWO_TO_32 => t.ones(like.with_dtype(DType::Bool)),
            n => self.drawn(like).lt(n),
        }
    }

    /// `(k + shift) / 2^bits` for random integers k of this many bits.
    #[track_caller]
    fn fractions(&self, like: &TensorType, of: &UniformBits, shift: f64) -> Tensor {
        let unit = (-f64::from(of.bits)).exp2();
        let whole = if of.bits <= 32 {
            let k = self.drawn(like);
            let k = if of.bits < 32 { k.shift_right_logical(i64::from(32 - of.bits)) } else { k };
            k.convert(of.dtype)
        } else {
            let low = of.bits - 32;
            let high = self.drawn(like).convert(of.dtype) * f64::from(low).exp2();
            let rest = self.drawn(like).shift_right_logical(i64::from(32 - low));
            high + rest.convert(of.dtype)
        };
        let whole = if shift == 0.0 { whole } else { whole + shift };
        whole * unit
    }

    #[track_caller]
    fn no_float(&self, what: &str, ty: &TensorType) -> Tensor {
        self.seed.refused(Kind::DType, format!("`{what}` is of a float type, found {ty}"))
    }
}

const TWO_TO_32: f64 = 4_294_967_296.0;

/// The finalizer of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
fn mixed(x: i64) -> i64 {
    let mut z = (x as u64).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) as i64
}

impl Tensor {
    /// Zero with probability `p`, elsewhere `x / (1 - p)`, so that means stay; the backward pass keeps one bit a value.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let x = evaluate(|t| {
    ///     let key = Key::new(&t.zeros(TensorType::scalar(DType::I64)));
    ///     t.ones(f32s([100])).dropout(&key, 0.5)
    /// })?;
    /// assert!(x.to_f64s().iter().all(|&x| x == 0.0 || x == 2.0));
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn dropout(&self, key: &Key, p: f64) -> Tensor {
        let own = super::own_all(&self.state, &[&key.seed], Location::caller(), "`dropout`");
        if !own || !self.has_floats("dropout") {
            return self.clone();
        }
        if !(0.0..1.0).contains(&p) {
            let m = format!("`dropout` takes a probability from 0 to below 1, found {p}");
            return self.refused(Kind::Usage, m);
        }
        if p == 0.0 {
            return self.clone();
        }
        key.hits(1.0 - p, &self.ty).select(self * (1.0 / (1.0 - p)), 0.0)
    }
}
