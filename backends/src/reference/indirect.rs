//! Indirect access: gathers, scatters in index order, dynamic slices, and argsorts.

use super::EvalTensor;
use super::reduce::with_combine;
use super::view::walk;
use adfuse_ir::op::{Indirect, Update};
use adfuse_ir::{Attrs, DType, Diagnostic, Literal, TensorType};
use smallvec::SmallVec;
use std::cmp::Ordering;

type Coords = SmallVec<[i64; 4]>;

/// An op that moves elements by index values.
pub(super) fn indirect(
    which: Indirect,
    args: &[&EvalTensor],
    attrs: &Attrs,
    ty: &TensorType,
) -> Result<EvalTensor, Diagnostic> {
    match which {
        Indirect::Gather => gather(args[0], args[1], attrs, ty),
        Indirect::Scatter(update) => scatter(update, (args[0], args[1], args[2]), attrs, ty),
        Indirect::Argsort => {
            let count = ty.dims().unwrap_or_default();
            let (axis, descending) = (attrs.int("axis") as usize, attrs.flag("descending"));
            let places =
                argsort(args[0], axis, descending, count.get(axis).map_or(0, |&n| n as usize))?;
            EvalTensor::build(ty, |bits| {
                bits.extend(places);
                Ok(())
            })
        }
        Indirect::DynamicSlice => {
            let sizes: Coords = ty.dims().unwrap_or_default().iter().map(|&n| n as i64).collect();
            let start = clamped_starts(&args[1..], &args[0].dims, &sizes);
            EvalTensor::build(ty, |bits| {
                walk(&sizes, |at| {
                    let place: Coords = at.iter().zip(&start).map(|(a, s)| a + s).collect();
                    bits.push(args[0].bits[offset(&place, &args[0].dims)]);
                    Ok(())
                })
            })
        }
        Indirect::DynamicUpdateSlice => {
            let (x, u) = (args[0], args[1]);
            let start = clamped_starts(&args[2..], &x.dims, &u.dims);
            EvalTensor::build(ty, |bits| {
                bits.extend_from_slice(&x.bits);
                let mut next = u.bits.iter();
                walk(&u.dims, |at| {
                    let place: Coords = at.iter().zip(&start).map(|(a, s)| a + s).collect();
                    if let Some(&b) = next.next() {
                        bits[offset(&place, &x.dims)] = b;
                    }
                    Ok(())
                })
            })
        }
    }
}

fn offset(at: &[i64], dims: &[i64]) -> usize {
    at.iter().zip(dims).fold(0, |o, (a, n)| o * n + a) as usize
}

fn clamped_starts(starts: &[&EvalTensor], dims: &[i64], sizes: &[i64]) -> Coords {
    let start = |k: usize| Literal::from_bits(starts[k].dtype, starts[k].bits[0]).to_i64();
    (0..dims.len()).map(|d| start(d).clamp(0, dims[d] - sizes[d])).collect()
}

/// How coordinates of the big operand follow from those of the windows.
struct WindowCoords<'a> {
    indices: &'a EvalTensor,
    /// Axes of the windowed tensor that walk inside a window.
    inside: &'a [i64],
    /// Axes of the big operand that windows do not have.
    missing: &'a [i64],
    start_map: &'a [i64],
    /// Window extents, for each axis of the big operand.
    sizes: Coords,
    dims: &'a [i64],
    clip: bool,
}

impl WindowCoords<'_> {
    /// The big operand's coordinates for the windowed tensor's; `None` for a window that does not
    /// fit, where those are not clamped.
    fn place(&self, at: &[i64]) -> Option<Coords> {
        let axes = 0..at.len() as i64;
        let mut index: Coords =
            axes.filter(|d| !self.inside.contains(d)).map(|d| at[d as usize]).collect();
        index.push(0);
        let last = index.len() - 1;
        let mut start: Coords = self.dims.iter().map(|_| 0).collect();
        for (k, &d) in self.start_map.iter().enumerate() {
            index[last] = k as i64;
            let bits = self.indices.bits[offset(&index, &self.indices.dims)];
            let wanted = Literal::from_bits(self.indices.dtype, bits).to_i64();
            let d = d as usize;
            let most = self.dims[d] - self.sizes[d];
            if !self.clip && !(0..=most).contains(&wanted) {
                return None;
            }
            start[d] = wanted.clamp(0, most);
        }
        let mut within = self.inside.iter().map(|&d| at[d as usize]);
        for (d, s) in start.iter_mut().enumerate() {
            if !self.missing.contains(&(d as i64)) {
                *s += within.next().unwrap_or(0);
            }
        }
        Some(start)
    }
}

fn gather(
    x: &EvalTensor,
    indices: &EvalTensor,
    attrs: &Attrs,
    ty: &TensorType,
) -> Result<EvalTensor, Diagnostic> {
    let mode = attrs.word("mode");
    let windows = WindowCoords {
        indices,
        inside: attrs.ints("offset_dims"),
        missing: attrs.ints("collapsed"),
        start_map: attrs.ints("start_map"),
        sizes: attrs.ints("sizes").iter().copied().collect(),
        dims: &x.dims,
        clip: !matches!(mode, "fill" | "zero"),
    };
    let outside = match (mode, ty.dtype) {
        ("zero", d) => Literal::zero(d),
        (_, d) if d.is_float() => Literal::from_f64(d, f64::NAN),
        (_, DType::Bool) => Literal::one(DType::Bool),
        // Saturation gives the type's own bounds.
        (_, d) => Literal::from_f64(d, if d.is_signed_int() { f64::MIN } else { f64::MAX }),
    };
    let out: Coords = ty.dims().unwrap_or_default().iter().map(|&n| n as i64).collect();
    EvalTensor::build(ty, |bits| {
        walk(&out, |at| {
            let place = windows.place(at);
            bits.push(place.map_or(outside.bits(), |p| x.bits[offset(&p, &x.dims)]));
            Ok(())
        })
    })
}

/// Updates follow in the row-major order of their own elements, each with the result's rounding
/// (16-bit floats accumulate in `f32` and round once, at the end).
fn scatter(
    update: Update,
    (x, indices, updates): (&EvalTensor, &EvalTensor, &EvalTensor),
    attrs: &Attrs,
    ty: &TensorType,
) -> Result<EvalTensor, Diagnostic> {
    let inserted = attrs.ints("inserted");
    let mut window = attrs.ints("window_dims").iter();
    let sizes = (0..x.dims.len() as i64)
        .map(|d| match inserted.contains(&d) {
            true => 1,
            false => window.next().map_or(1, |&w| updates.dims[w as usize]),
        })
        .collect();
    let windows = WindowCoords {
        indices,
        inside: attrs.ints("window_dims"),
        missing: inserted,
        start_map: attrs.ints("start_map"),
        sizes,
        dims: &x.dims,
        clip: attrs.word("mode") != "drop",
    };
    let wide = x.dtype.compute();
    let widen = |b: u64| Literal::from_bits(x.dtype, b).convert(wide).bits();
    let mut sums: Vec<u64> = super::reserve(x.bits.len() as u64)?;
    sums.extend(x.bits.iter().map(|&b| widen(b)));
    let mut next = updates.bits.iter();
    walk(&updates.dims, |at| {
        let u = widen(next.next().copied().unwrap_or(0));
        if let Some(p) = windows.place(at) {
            let slot = &mut sums[offset(&p, &x.dims)];
            *slot = joined(update, wide, *slot, u);
        }
        Ok(())
    })?;
    EvalTensor::build(ty, |bits| {
        bits.extend(sums.iter().map(|&b| Literal::from_bits(wide, b).convert(x.dtype).bits()));
        Ok(())
    })
}

/// An element after an update; integer sums wrap.
pub(super) fn joined(update: Update, dtype: DType, a: u64, b: u64) -> u64 {
    match update.monoid() {
        None => b,
        Some(monoid) => with_combine(monoid, dtype, |combine| combine(a, b)),
    }
}

/// The first `count` places of the elements along an axis in order, row-major in the result.
pub(super) fn argsort(
    x: &EvalTensor,
    axis: usize,
    descending: bool,
    count: usize,
) -> Result<Vec<u64>, Diagnostic> {
    let extents = |dims: &[i64]| dims.iter().map(|&n| n as usize).product::<usize>();
    let n = x.dims[axis] as usize;
    let (outer, inner) = (extents(&x.dims[..axis]), extents(&x.dims[axis + 1..]));
    let mut places = super::reserve((outer * count * inner) as u64)?;
    places.resize(outer * count * inner, 0);
    let mut line = super::reserve(n as u64)?;
    for o in 0..outer {
        for i in 0..inner {
            let key = |k: u64| x.bits[(o * n + k as usize) * inner + i];
            line.clear();
            line.extend(0..n as u64);
            line.sort_by(|&a, &b| {
                let order = compared(x.dtype, key(a), key(b));
                if descending { order.reverse() } else { order }
            });
            for (k, &place) in line[..count].iter().enumerate() {
                places[(o * count + k) * inner + i] = place;
            }
        }
    }
    Ok(places)
}

/// The order of two elements: zeros are equal, NaN is above all numbers and equal to itself.
fn compared(dtype: DType, a: u64, b: u64) -> Ordering {
    let [a, b] = [a, b].map(|bits| Literal::from_bits(dtype, bits));
    if !dtype.is_float() {
        return a.to_i64().cmp(&b.to_i64());
    }
    let (a, b) = (a.to_f64(), b.to_f64());
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}
