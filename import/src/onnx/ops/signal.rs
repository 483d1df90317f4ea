//! Signals: windows, Fourier transforms, filters of mel frequencies.

use super::elementwise::named_type;
use super::{
    Cx, ElementType, F32, LoweredValue, LoweredValues, OnnxOperation, Unlowered, Val, axis_of,
    refuse,
};
use adfuse_ir::{DType, Dim, Op};
use smallvec::smallvec;
use std::f64::consts::TAU;

const F64: ElementType = ElementType::Float(DType::F64);

/// Most numbers of a matrix that is made when a model is imported.
const MOST_NUMBERS: u64 = 1 << 20;

/// A window that is a sum of cosines of multiples of its angle, with these factors.
pub(crate) fn cosine_window<'m>(
    cx: Cx<'_, 'm>,
    factors: &[f64],
    n: &OnnxOperation<'m>,
) -> LoweredValues {
    let (size, periodic) = (cx.int(n.input(0)?)?, n.flag("periodic", true));
    let element = named_type(n, "output_datatype", F32)?;
    let Some(size) = u64::try_from(size).ok().filter(|&s| s <= MOST_NUMBERS) else {
        return refuse(format!("a window of {size} elements"));
    };
    let period = if periodic { size } else { size.saturating_sub(1) } as f64;
    let at = |k: u64| -> f64 {
        let terms = factors.iter().enumerate();
        terms.map(|(j, f)| f * (TAU * j as f64 * k as f64 / period).cos()).sum()
    };
    let all: Vec<f64> = (0..size).map(at).collect();
    Ok(smallvec![cx.numbers(element, &[size], &all)?])
}

/// A Fourier transform: which frequencies of how many elements, and which way.
struct Transform {
    length: u64,
    inverse: bool,
    one_sided: bool,
}

impl Transform {
    /// The frequencies that a transform of real numbers has.
    fn half(&self) -> u64 {
        self.length / 2 + 1
    }

    fn counts(&self) -> (u64, u64) {
        match (self.inverse, self.one_sided) {
            (true, true) => (self.half(), self.length),
            (false, true) => (self.length, self.half()),
            _ => (self.length, self.length),
        }
    }

    /// The matrices of cosines and of sines, with the factors of an inverse.
    fn matrices(&self, cx: Cx<'_, '_>) -> Result<(Val, Val), Unlowered> {
        let (from, to) = self.counts();
        if from.checked_mul(to).is_none_or(|n| n > MOST_NUMBERS) {
            return refuse(format!("a transform of {} elements", self.length));
        }
        let size = self.length as f64;
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for i in 0..from {
            // A frequency that a real signal has twice is there once.
            let twice = self.one_sided && i > 0 && 2 * i != self.length;
            let factor = match (self.inverse, twice) {
                (false, _) => 1.0,
                (true, false) => 1.0 / size,
                (true, true) => 2.0 / size,
            };
            for j in 0..to {
                let angle = TAU * (i * j % self.length) as f64 / size;
                cos.push(factor * angle.cos());
                sin.push(factor * angle.sin());
            }
        }
        Ok((cx.numbers(F64, &[from, to], &cos)?, cx.numbers(F64, &[from, to], &sin)?))
    }

    /// The transform of the last axis of a real and an imaginary part, in 64 bits.
    fn apply(&self, cx: Cx<'_, '_>, re: Val, im: Option<Val>) -> Result<(Val, Val), Unlowered> {
        let (cos, sin) = self.matrices(cx)?;
        let (a, b) = (cx.matmul(re, cos)?, cx.matmul(re, sin)?);
        let negative = |cx: Cx<'_, '_>, v: Val| cx.unary(Op::Neg, v);
        let b = if self.inverse { b } else { negative(cx, b)? };
        let Some(im) = im else { return Ok((a, b)) };
        let (c, d) = (cx.matmul(im, cos)?, cx.matmul(im, sin)?);
        let d = if self.inverse { negative(cx, d)? } else { d };
        Ok((cx.add(a, d)?, cx.add(b, c)?))
    }
}

/// As many elements of the last axis as a transform has, cut or filled with zeros.
fn fitted(cx: Cx<'_, '_>, v: Val, count: u64) -> LoweredValue {
    let axis = cx.rank(v) - 1;
    let have = cx.extent(cx.shape(v)[axis])?;
    if have >= count {
        return cx.slice(v, axis, 0, count);
    }
    let (low, mut high) = (vec![0; axis + 1], vec![0; axis + 1]);
    high[axis] = (count - have) as i64;
    cx.pad(v, adfuse_ir::Literal::zero(v.element.storage()), &low, &high)
}

pub(crate) fn dft<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let (rank, shape) = (cx.rank(x), cx.shape(x));
    let axis = match n.optional(2) {
        Some(axis) => cx.int(axis)?,
        None => n.int("axis", if n.version < 20 { 1 } else { -2 }),
    };
    let axis = axis_of(axis, rank)?;
    let (inverse, one_sided) = (n.flag("inverse", false), n.flag("onesided", false));
    if axis + 1 >= rank {
        return refuse("a transform along the axis of parts");
    }
    let extent = cx.extent(shape[axis])?;
    let length = match n.optional(1) {
        Some(length) => u64::try_from(cx.int(length)?).unwrap_or(0),
        None if inverse && one_sided => 2 * extent.saturating_sub(1),
        None => extent,
    };
    if length == 0 || length > MOST_NUMBERS {
        return refuse(format!("a transform of {length} elements"));
    }
    let t = Transform { length, inverse, one_sided };
    // The axis goes behind the others but for the parts.
    let mut perm: Vec<usize> = (0..rank - 1).filter(|&d| d != axis).collect();
    perm.extend([axis, rank - 1]);
    let moved = cx.transpose(x, &perm)?;
    let moved = cx.convert(moved, F64)?;
    let mut part = |k: u64| {
        let v = cx.index_axis(moved, rank - 1, k)?;
        fitted(cx, v, t.counts().0)
    };
    let re = part(0)?;
    let im = if shape[rank - 1] == Dim::Const(2) { Some(part(1)?) } else { None };
    let (re, im) = t.apply(cx, re, im)?;
    let (re, im) = (cx.unsqueeze(re, rank - 1)?, cx.unsqueeze(im, rank - 1)?);
    let y = if inverse && one_sided { re } else { cx.concat(&[re, im], rank - 1)? };
    let mut back: Vec<usize> = (0..rank - 2).collect();
    back.insert(axis, rank - 2);
    back.push(rank - 1);
    let y = cx.transpose(y, &back)?;
    Ok(smallvec![cx.convert(y, x.element)?])
}

/// Triangles over the frequencies of a transform, at equal steps of the mel scale.
pub(crate) fn mel_weights<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let element = named_type(n, "output_datatype", F32)?;
    let (bins, length, rate) = (cx.int(n.input(0)?)?, cx.int(n.input(1)?)?, cx.int(n.input(2)?)?);
    let (low, high) = (cx.floats(n.input(3)?)?, cx.floats(n.input(4)?)?);
    let ([low], [high]) = (&low[..], &high[..]) else { return refuse("other than two edges") };
    let lengths = (u64::try_from(bins), u64::try_from(length));
    let (Ok(bins), Ok(length)) = lengths else { return refuse("counts below 0") };
    let rows = length / 2 + 1;
    if rows.checked_mul(bins).is_none_or(|n| n > MOST_NUMBERS) || rate <= 0 {
        return refuse(format!("{bins} bins of {length} elements"));
    }
    let mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let (first, last) = (mel(*low), mel(*high));
    let step = (last - first) / (bins + 2) as f64;
    let place = |k: u64| -> i64 {
        let hertz = 700.0 * (10f64.powf((first + k as f64 * step) / 2595.0) - 1.0);
        // Far outside is outside, and differences of places are integers.
        ((length + 1) as f64 * hertz / rate as f64).floor().clamp(-1e15, 1e15) as i64
    };
    let mut all = vec![0.0; (rows * bins) as usize];
    for k in 0..bins {
        let (a, b, c) = (place(k), place(k + 1), place(k + 2));
        let mut set = |row: i64, x: f64| {
            if let Some(row) = u64::try_from(row).ok().filter(|&r| r < rows) {
                all[(row * bins + k) as usize] = x;
            }
        };
        if b == a {
            set(b, 1.0);
        }
        let most = rows as i64;
        (a.max(0)..=b.min(most))
            .filter(|_| b > a)
            .for_each(|j| set(j, (j - a) as f64 / (b - a) as f64));
        (b.max(0)..c.min(most))
            .filter(|_| c > b)
            .for_each(|j| set(j, (c - j) as f64 / (c - b) as f64));
    }
    Ok(smallvec![cx.numbers(element, &[rows, bins], &all)?])
}
