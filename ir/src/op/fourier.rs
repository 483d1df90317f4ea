//! `fft`, `rfft` and `irfft`: discrete Fourier transforms along an axis, of complex numbers as two tensors.
//!
//! A transform of a short or prime length is a product with the matrix of its roots of unity. Any other length is a product of
//! two: its transforms are many transforms of the one length, a factor for each element, and many transforms of the other
//! (Cooley and Tukey, *An algorithm for the machine calculation of complex Fourier series*, 1965). Roots are computed
//! in `f64` from whole numbers below the length, and rounded once.

use super::Op;
use super::def::RuleCx;
use super::tensor_writer::{ComposedResults, TensorWriter};
use crate::attrs::{Attr0, AttrKind, AttrSpec, Attrs, maybe, need};
use crate::builder::Builder;
use crate::dtype::{DType, DTypeSet};
use crate::entity::Value;
use crate::infer::{InferCx, InferError, known_dim};
use crate::literal::Literal;
use crate::types::TensorType;
use smallvec::{SmallVec, smallvec};

/// The longest transform that is one product, if its length has factors.
const RADIX: u64 = 32;
/// The longest transform: the product of two places is within `i64`.
const LONGEST: i64 = 1 << 24;
/// The longest prime length: its matrix has as many elements as this squared.
const LONGEST_PRIME: u64 = 1 << 12;

/// Schema of `fft`.
pub(super) const FFT: &[AttrSpec] =
    &[need("axis", AttrKind::Int), maybe("inverse", AttrKind::Bool, Attr0::False)];
/// Schema of `rfft`.
pub(super) const RFFT: &[AttrSpec] = &[need("axis", AttrKind::Int)];
/// Schema of `irfft`.
pub(super) const IRFFT: &[AttrSpec] = &[need("axis", AttrKind::Int), need("length", AttrKind::Int)];

/// A tensor of complex numbers; of real ones where there is no imaginary part.
#[derive(Clone, Copy)]
struct Waves {
    re: Value,
    im: Option<Value>,
}

impl Waves {
    /// The real part, then the imaginary one.
    fn parts(self) -> impl Iterator<Item = Value> {
        std::iter::once(self.re).chain(self.im)
    }
}

struct FourierWriter<'a> {
    b: &'a mut Builder,
    wide: DType,
    inverse: bool,
}

impl TensorWriter for FourierWriter<'_> {
    fn b(&self) -> &Builder {
        self.b
    }

    fn b_mut(&mut self) -> &mut Builder {
        self.b
    }

    fn wide(&self) -> DType {
        self.wide
    }
}

fn check_length(n: i64) -> Result<(), InferError> {
    if !(1..=LONGEST).contains(&n) {
        let m = format!("expected a transform of 1 to {LONGEST} elements, found {n}");
        return Err(InferError::shape(m));
    }
    let largest = largest_prime(n as u64);
    match largest <= LONGEST_PRIME {
        true => Ok(()),
        false => {
            let m = format!(
                "a length of {n} has the prime factor {largest}: factors up to {LONGEST_PRIME} are transformed"
            );
            Err(InferError::shape(m))
        }
    }
}

fn largest_prime(mut n: u64) -> u64 {
    let (mut largest, mut p) = (1, 2);
    while p * p <= n {
        while n.is_multiple_of(p) {
            (largest, n) = (p, n / p);
        }
        p += 1;
    }
    largest.max(n)
}

/// The length along the axis of operands of one type.
fn check_axis(cx: &InferCx<'_>) -> Result<i64, InferError> {
    let x = cx.require(0, DTypeSet::Float)?;
    let axis = cx.axis("axis", x.rank())?;
    for &d in &x.shape {
        known_dim("a Fourier transform", d)?;
    }
    if cx.arity() > 1 && cx.require(1, DTypeSet::Float)? != x {
        let m = format!("parts of complex numbers of types {x} and {}", cx.arg(1)?);
        return Err(InferError::shape(m));
    }
    known_dim("a Fourier transform", x.shape[axis])
}

pub(super) fn check_fft(cx: &mut InferCx<'_>) -> Result<(), InferError> {
    check_length(check_axis(cx)?)
}

pub(super) fn check_irfft(cx: &mut InferCx<'_>) -> Result<(), InferError> {
    let (half, n) = (check_axis(cx)?, cx.attrs.int("length"));
    check_length(n)?;
    match half == n / 2 + 1 {
        true => Ok(()),
        false => {
            let m = format!("`length`: {n} has {} frequencies, found {half}", n / 2 + 1);
            Err(InferError::shape(m))
        }
    }
}

pub(super) fn fft(b: &mut Builder, cx: &RuleCx<'_>) -> ComposedResults {
    let [re, im] = [cx.args[0], cx.args[1]];
    along(b, cx, cx.attrs.flag("inverse"), &[re, im], &mut |w, parts| {
        let y = w.transformed(Waves { re: parts[0], im: Some(parts[1]) });
        let y = if w.inverse { w.averaged(y) } else { y };
        y.parts().collect()
    })
}

pub(super) fn rfft(b: &mut Builder, cx: &RuleCx<'_>) -> ComposedResults {
    along(b, cx, false, &[cx.args[0]], &mut |w, parts| {
        let y = w.transformed(Waves { re: parts[0], im: None });
        let half = w.extent(y.re, 1) / 2 + 1;
        y.parts().map(|part| w.slice(part, 1, 0, half)).collect()
    })
}

pub(super) fn irfft(b: &mut Builder, cx: &RuleCx<'_>) -> ComposedResults {
    let n = cx.attrs.int("length") as u64;
    along(b, cx, true, &[cx.args[0], cx.args[1]], &mut |w, parts| {
        // Frequencies above half the length are the conjugates of those below it, in reverse order.
        let rest = n - (n / 2 + 1);
        let mirrored = |w: &mut FourierWriter<'_>, part: Value| {
            let part = w.slice(part, 1, 1, 1 + rest);
            w.b.op_with(Op::Rev, &[part], Attrs::none().with_ints("axes", [1]))
        };
        let [re, im] = [parts[0], parts[1]];
        let (above_re, above_im) = (mirrored(w, re), mirrored(w, im));
        let above_im = w.map(Op::Neg, &[above_im]);
        let (re, im) = (w.join(&[re, above_re], 1), w.join(&[im, above_im], 1));
        let y = w.transformed(Waves { re, im: Some(im) });
        let y = w.averaged(y);
        smallvec![y.re]
    })
}

/// What a transform of rows makes of these parts.
type RowTransform<'b> = dyn FnMut(&mut FourierWriter<'_>, &[Value]) -> SmallVec<[Value; 2]> + 'b;

/// Applies a transform of rows `[batch, n]` along the axis of operands of any rank.
fn along(
    b: &mut Builder,
    cx: &RuleCx<'_>,
    inverse: bool,
    parts: &[Value],
    transform: &mut RowTransform<'_>,
) -> ComposedResults {
    let (axis, narrow) = (cx.attrs.int("axis") as usize, cx.types[0].dtype);
    let Some(dims) = cx.types[0].dims() else {
        b.refuse("a Fourier transform is written out for constant extents alone");
        return parts.iter().copied().collect();
    };
    let mut w = FourierWriter { b, wide: narrow.compute(), inverse };
    let wide = w.wide;
    let rank = dims.len();
    let to_last: Vec<i64> =
        (0..rank).filter(|&d| d != axis).chain([axis]).map(|d| d as i64).collect();
    let mut from_last: Vec<i64> = (0..rank as i64 - 1).collect();
    from_last.insert(axis, rank as i64 - 1);
    let mut outer: Vec<u64> = dims.to_vec();
    let n = outer.remove(axis);
    let rows = [outer.iter().product(), n];
    let rows: Vec<Value> = parts
        .iter()
        .map(|&part| {
            let part = w.convert(part, wide);
            let part = w.transpose(part, &to_last);
            w.reshape(part, &rows)
        })
        .collect();
    let found = transform(&mut w, &rows);
    found
        .into_iter()
        .map(|part| {
            let whole = [&outer[..], &[w.extent(part, 1)]].concat();
            let part = w.reshape(part, &whole);
            let part = w.transpose(part, &from_last);
            w.convert(part, narrow)
        })
        .collect()
}

impl FourierWriter<'_> {
    /// Transforms of rows; those of inverses without their division by the length.
    fn transformed(&mut self, x: Waves) -> Waves {
        let [rows, n] = [self.extent(x.re, 0), self.extent(x.re, 1)];
        let factor = (2..=RADIX.min(n)).rev().find(|&f| n.is_multiple_of(f));
        let Some(first) = factor.filter(|_| n > RADIX) else { return self.by_matrix(x) };
        let second = n / first;
        // Element `j * second + k` of a row: transforms along j, each of rows that differ in k.
        let x = self.each(x, &mut |w, part| {
            let part = w.reshape(part, &[rows, first, second]);
            let part = w.transpose(part, &[0, 2, 1]);
            w.reshape(part, &[rows * second, first])
        });
        let x = self.by_matrix(x);
        let x = self.each(x, &mut |w, part| w.reshape(part, &[rows, second, first]));
        let x = self.turned(x, [second, first], n);
        let x = self.each(x, &mut |w, part| {
            let part = w.transpose(part, &[0, 2, 1]);
            w.reshape(part, &[rows * first, second])
        });
        let x = self.transformed(x);
        // Frequency `l + first * m` is at place m of the row of l.
        self.each(x, &mut |w, part| {
            let part = w.reshape(part, &[rows, first, second]);
            let part = w.transpose(part, &[0, 2, 1]);
            w.reshape(part, &[rows, n])
        })
    }

    fn each(&mut self, x: Waves, f: &mut dyn FnMut(&mut Self, Value) -> Value) -> Waves {
        Waves { re: f(self, x.re), im: x.im.map(|im| f(self, im)) }
    }

    /// Transforms of rows as a product: both parts side by side, with the roots for both parts of results side by side.
    fn by_matrix(&mut self, x: Waves) -> Waves {
        let n = self.extent(x.re, 1);
        let [cos, sin] = self.roots([n, n], n);
        let of_re = self.join(&[cos, sin], 1);
        let (x, roots) = match x.im {
            None => (x.re, of_re),
            Some(im) => {
                let minus = self.map(Op::Neg, &[sin]);
                let of_im = self.join(&[minus, cos], 1);
                (self.join(&[x.re, im], 1), self.join(&[of_re, of_im], 0))
            }
        };
        let y = self.dot([x, roots], (&[], &[]), (1, 0));
        Waves { re: self.slice(y, 1, 0, n), im: Some(self.slice(y, 1, n, 2 * n)) }
    }

    /// Element `(j, k)` of each matrix times root number `j * k`.
    fn turned(&mut self, x: Waves, [rows, columns]: [u64; 2], n: u64) -> Waves {
        let dims = self.dims(x.re);
        let [cos, sin] = self.roots([rows, columns], n).map(|r| self.spread(r, &[1, 2], &dims));
        let (re, im) = (x.re, x.im.unwrap_or(x.re));
        let [rc, is] = [self.map(Op::Mul, &[re, cos]), self.map(Op::Mul, &[im, sin])];
        let [rs, ic] = [self.map(Op::Mul, &[re, sin]), self.map(Op::Mul, &[im, cos])];
        Waves { re: self.map(Op::Sub, &[rc, is]), im: Some(self.map(Op::Add, &[rs, ic])) }
    }

    /// Cosines and sines of `2 pi j k / n`, for inverses, and of its negative for others.
    fn roots(&mut self, dims: [u64; 2], n: u64) -> [Value; 2] {
        let (rows, columns) = (self.places(None, 0, &dims), self.places(None, 1, &dims));
        let whole = TensorType::of(DType::I64, &dims);
        let at = self.map(Op::Mul, &[rows, columns]);
        let length = self.b.literal(&whole, Literal::from_i64(DType::I64, n as i64));
        let at = self.map(Op::Rem, &[at, length]);
        let at = self.convert(at, DType::F64);
        let sign = if self.inverse { 1.0 } else { -1.0 };
        let step = sign * 2.0 * std::f64::consts::PI / n as f64;
        let step = Literal::from_f64(DType::F64, step);
        let step = self.b.literal(&whole.with_dtype(DType::F64), step);
        let angle = self.map(Op::Mul, &[at, step]);
        let wide = self.wide;
        [Op::Cos, Op::Sin].map(|op| {
            let root = self.map(op, &[angle]);
            self.convert(root, wide)
        })
    }

    /// Divided by the length.
    fn averaged(&mut self, x: Waves) -> Waves {
        self.each(x, &mut |w, part| {
            let dims = w.dims(part);
            let n = w.splat(w.extent(part, 1) as f64, &dims);
            w.map(Op::Div, &[part, n])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A length out of range is refused before it is factored, which would take minutes for the prime 2^63 - 25.
    #[test]
    fn lengths_are_refused_by_their_range_and_their_factors() {
        for n in [1, 2 * 4093, 1 << 24] {
            assert!(check_length(n).is_ok(), "{n}");
        }
        for (n, says) in [(0, "found 0"), (i64::MAX - 24, "1 to"), (2 * 4099, "factor 4099")] {
            let refused = check_length(n).expect_err("no such length");
            assert!(refused.message.contains(says), "{n}: {}", refused.message);
        }
    }
}
