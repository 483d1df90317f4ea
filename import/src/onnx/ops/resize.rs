//! Resizing: each axis by itself, as a sum of elements at known places with known weights.

use super::indirect::take_places;
use super::{
    Cx, LoweredValue, LoweredValues, OnnxLowering, OnnxOperation, Unlowered, Val, axis_of, refuse,
};
use adfuse_ir::{Dim, Op};
use smallvec::smallvec;

/// Most neighbours that an element is computed from.
const MOST_TAPS: usize = 256;

/// How the elements between others are found.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Filter {
    Nearest,
    Linear,
    Cubic(f64),
}

/// What a node says of all axes.
struct Rules<'m> {
    filter: Filter,
    nearest: &'m str,
    coordinates: &'m str,
    antialias: bool,
    exclude_outside: bool,
    extrapolated: f64,
}

impl<'m> Rules<'m> {
    fn of(n: &OnnxOperation<'m>) -> Result<Rules<'m>, Unlowered> {
        let filter = match n.text("mode", "nearest") {
            "nearest" => Filter::Nearest,
            "linear" | "bilinear" => Filter::Linear,
            "cubic" => Filter::Cubic(n.float("cubic_coeff_a", -0.75)),
            other => return refuse(format!("the mode `{other}`")),
        };
        n.ignore(&["cubic_coeff_a"]);
        // Before version 11 places are multiples, and the element below is the nearest.
        let old = n.version < 11;
        Ok(Rules {
            filter,
            nearest: n.text("nearest_mode", if old { "floor" } else { "round_prefer_floor" }),
            coordinates: n.text(
                "coordinate_transformation_mode",
                if old { "asymmetric" } else { "half_pixel" },
            ),
            antialias: n.flag("antialias", false),
            exclude_outside: n.flag("exclude_outside", false),
            extrapolated: n.float("extrapolation_value", 0.0),
        })
    }

    /// The weights of elements from the last one below a place on, and where the first of them stands from there.
    fn taps(&self, ratio: f64, scale: f64) -> (i64, Vec<f64>) {
        let shrink = if self.antialias { scale.min(1.0) } else { 1.0 };
        let (support, weight): (f64, Box<dyn Fn(f64) -> f64>) = match self.filter {
            Filter::Cubic(a) => (2.0, Box::new(move |x: f64| cubic(a, x))),
            _ => (1.0, Box::new(|x: f64| (1.0 - x.abs()).max(0.0))),
        };
        let first = (-support / shrink).floor() as i64 + 1;
        let count = (2 - 2 * first).clamp(2, MOST_TAPS as i64 + 2);
        let all: Vec<f64> =
            (0..count).map(|k| weight(shrink * ((first + k) as f64 - ratio))).collect();
        // Without a wider support the weights add up to 1 as they are.
        let sum: f64 = if shrink < 1.0 { all.iter().sum() } else { 1.0 };
        (first, all.iter().map(|w| w / sum).collect())
    }
}

/// The cubic kernel of Keys.
fn cubic(a: f64, x: f64) -> f64 {
    let x = x.abs();
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        0.0
    }
}

/// One axis: extents before and after, the scale, and the part of the axis that is read.
struct Axis {
    from: u64,
    to: u64,
    scale: f64,
    region: (f64, f64),
}

impl Axis {
    /// The place in the input of an element of the output.
    fn place(&self, coordinates: &str, y: f64) -> Result<f64, Unlowered> {
        let (from, scaled) = (self.from as f64, self.scale * self.from as f64);
        let place = match coordinates {
            "align_corners" if scaled == 1.0 => 0.0,
            "align_corners" => y * (from - 1.0) / (scaled - 1.0),
            "asymmetric" => y / self.scale,
            "half_pixel" => (y + 0.5) / self.scale - 0.5,
            "pytorch_half_pixel" if scaled == 1.0 => -0.5,
            "pytorch_half_pixel" => (y + 0.5) / self.scale - 0.5,
            "half_pixel_symmetric" => {
                let adjusted = self.to as f64 / scaled;
                from / 2.0 * (1.0 - adjusted) + (y + 0.5) / self.scale - 0.5
            }
            "tf_crop_and_resize" => {
                let (a, b) = self.region;
                let inner = match scaled == 1.0 {
                    true => (b - a) * (from - 1.0) / 2.0,
                    false => y * (b - a) * (from - 1.0) / (scaled - 1.0),
                };
                inner + a * (from - 1.0)
            }
            other => return refuse(format!("the coordinates `{other}`")),
        };
        // Far outside is outside, and integers hold it.
        Ok(place.clamp(-1e15, 1e15))
    }

    /// Places and weights of neighbours, one list for each neighbour, and which elements lie outside.
    fn neighbours(&self, rules: &Rules<'_>) -> Result<AxisNeighbours, Unlowered> {
        let mut found = AxisNeighbours::default();
        let last = self.from as i64 - 1;
        for y in 0..self.to {
            let x = self.place(rules.coordinates, y as f64)?;
            let crops = rules.coordinates == "tf_crop_and_resize";
            found.outside.push(crops && (x < 0.0 || x > last as f64));
            let (first, weights) = match rules.filter {
                Filter::Nearest => (nearest(rules.nearest, x)?, vec![1.0]),
                _ => {
                    // A place that is an element belongs to the one below.
                    let below = x.ceil() - 1.0;
                    let (first, weights) = rules.taps(x - below, self.scale);
                    (below as i64 + first, weights)
                }
            };
            let inside = |k: usize| (0..=last).contains(&(first + k as i64));
            let sum: f64 = match rules.exclude_outside {
                true => (0..weights.len()).filter(|&k| inside(k)).map(|k| weights[k]).sum(),
                false => 1.0,
            };
            found.places.resize(weights.len(), Vec::new());
            found.weights.resize(weights.len(), Vec::new());
            for (k, w) in weights.iter().enumerate() {
                let counts = inside(k) || !rules.exclude_outside;
                found.places[k].push((first + k as i64).clamp(0, last));
                found.weights[k].push(if counts { w / sum } else { 0.0 });
            }
        }
        Ok(found)
    }
}

#[derive(Default)]
struct AxisNeighbours {
    places: Vec<Vec<i64>>,
    weights: Vec<Vec<f64>>,
    outside: Vec<bool>,
}

fn nearest(mode: &str, x: f64) -> Result<i64, Unlowered> {
    let below = x.floor();
    let rest = x - below;
    let up = match mode {
        "round_prefer_floor" => rest > 0.5,
        "round_prefer_ceil" => rest >= 0.5,
        "floor" => false,
        "ceil" => rest > 0.0,
        other => return refuse(format!("the mode `{other}`")),
    };
    Ok(below as i64 + i64::from(up))
}

fn resized(cx: Cx<'_, '_>, x: Val, k: usize, axis: &Axis, rules: &Rules<'_>) -> LoweredValue {
    const MOST: u64 = 1 << 20;
    if axis.from == 0 || axis.to > MOST || !axis.scale.is_finite() || axis.scale <= 0.0 {
        return refuse(format!("{} elements made of {}", axis.to, axis.from));
    }
    let shrink = if rules.antialias { axis.scale.min(1.0) } else { 1.0 };
    if axis.to as f64 * (4.0 / shrink) > (1u64 << 23) as f64 {
        return refuse("more neighbours than are worth their weights");
    }
    let found = axis.neighbours(rules)?;
    if found.places.len() > MOST_TAPS {
        return refuse(format!("more than {MOST_TAPS} neighbours"));
    }
    let mut sum: Option<Val> = None;
    for (places, weights) in found.places.iter().zip(&found.weights) {
        let mut part = take_places(cx, x, k, places)?;
        if weights.iter().all(|&w| w == 0.0) {
            continue;
        }
        if weights.iter().any(|&w| w != 1.0) {
            let shape = cx.shape(part);
            let along = cx.numbers(x.element, &[weights.len() as u64], weights)?;
            let along = cx.broadcast_in(along, &shape, &[k as i64])?;
            part = cx.mul(part, along)?;
        }
        sum = Some(match sum {
            None => part,
            Some(sum) => cx.add(sum, part)?,
        });
    }
    let Some(mut y) = sum else { return refuse("elements without neighbours") };
    if found.outside.contains(&true) {
        let shape = cx.shape(y);
        let outside: Vec<f64> = found.outside.iter().map(|&b| f64::from(u8::from(b))).collect();
        let outside = cx.numbers(super::ElementType::Bool, &[outside.len() as u64], &outside)?;
        let outside = cx.broadcast_in(outside, &shape, &[k as i64])?;
        let value = cx.number(y, rules.extrapolated);
        y = cx.select(outside, value, y)?;
    }
    Ok(y)
}

/// Scales and sizes of the axes that are named, in their order.
fn extents(
    cx: Cx<'_, '_>,
    n: &OnnxOperation<'_>,
    (x, axes): (Val, &[usize]),
    (scales, sizes): (Option<Val>, Option<Val>),
) -> Result<Vec<Axis>, Unlowered> {
    let shape = cx.shape(x);
    let given = |v: Option<Val>, cx: &OnnxLowering<'_>| {
        v.filter(|&v| cx.shape(v).first() != Some(&Dim::Const(0)))
    };
    let (scales, sizes) = (given(scales, cx), given(sizes, cx));
    let policy = n.text("keep_aspect_ratio_policy", "stretch");
    let made = |from: u64, to: u64, scale: f64| Axis { from, to, scale, region: (0.0, 1.0) };
    let all: Vec<Axis> = match (scales, sizes) {
        (Some(v), _) => {
            let mut each = Vec::new();
            for (&k, s) in axes.iter().zip(cx.floats(v)?) {
                // An axis that stays as it is may be a symbol: how long it is does not matter.
                let stays = s == 1.0 && shape[k].known().is_none();
                let f = if stays { 1 } else { cx.extent(shape[k])? };
                each.push(made(f, (f as f64 * s).floor() as u64, s));
            }
            each
        }
        (None, Some(v)) => {
            let from: Vec<u64> =
                axes.iter().map(|&k| cx.extent(shape[k])).collect::<Result<_, _>>()?;
            let all: Vec<f64> = cx.ints(v)?.iter().map(|&s| s.max(0) as f64).collect();
            let ratios = from.iter().zip(&all).map(|(&f, s)| s / f as f64);
            let common = match policy {
                "stretch" => None,
                "not_larger" => {
                    ratios.fold(None, |m: Option<f64>, r| Some(m.map_or(r, |m| m.min(r))))
                }
                "not_smaller" => {
                    ratios.fold(None, |m: Option<f64>, r| Some(m.map_or(r, |m| m.max(r))))
                }
                other => return refuse(format!("the policy `{other}`")),
            };
            let each = from.iter().zip(&all).map(|(&f, &s)| match common {
                None => made(f, s as u64, s / f as f64),
                Some(c) => made(f, (c * f as f64 + 0.5).floor() as u64, c),
            });
            each.collect()
        }
        (None, None) => return refuse("neither scales nor sizes"),
    };
    match all.len() == axes.len() {
        true => Ok(all),
        false => refuse(format!("{} sizes of {} axes", all.len(), axes.len())),
    }
}

pub(crate) fn resize<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let rank = cx.rank(x);
    let axes = match n.ints("axes") {
        Some(all) => all.iter().map(|&k| axis_of(k, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).collect(),
    };
    let rules = Rules::of(n)?;
    let (roi, scales, sizes) = match n.version < 11 {
        true => (None, n.optional(1), None),
        false => (n.optional(1), n.optional(2), n.optional(3)),
    };
    let mut all = extents(cx, n, (x, &axes), (scales, sizes))?;
    if rules.coordinates == "tf_crop_and_resize" {
        let Some(roi) = roi else { return refuse("without the region that is read") };
        let roi = cx.floats(roi)?;
        if roi.len() != 2 * axes.len() {
            return refuse("a region of other axes");
        }
        for (k, axis) in all.iter_mut().enumerate() {
            axis.region = (roi[k], roi[axes.len() + k]);
        }
    }
    interpolated(cx, x, (&axes, &all), &rules)
}

/// Axis after axis; integers are weighed as floats of 32 bits.
fn interpolated(
    cx: Cx<'_, '_>,
    x: Val,
    (axes, all): (&[usize], &[Axis]),
    rules: &Rules<'_>,
) -> LoweredValues {
    let mut y = x;
    if rules.filter != Filter::Nearest && !x.element.is_float() {
        y = cx.convert(x, super::F32)?;
    }
    for (&k, axis) in axes.iter().zip(all) {
        let same = axis.from == axis.to && axis.scale == 1.0 && axis.region == (0.0, 1.0);
        if !same {
            y = resized(cx, y, k, axis, rules)?;
        }
    }
    if y.element != x.element {
        y = cx.unary(Op::RoundNearestEven, y)?;
        y = cx.convert(y, x.element)?;
    }
    Ok(smallvec![y])
}

pub(crate) fn upsample<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let rules = Rules::of(&OnnxOperation::new(n.proto, vec![], n.attributes.clone(), 10))?;
    n.ignore(&["mode"]);
    let axes: Vec<usize> = (0..cx.rank(x)).collect();
    let scales = match n.floats("scales") {
        Some(all) => Some(cx.numbers(super::F32, &[all.len() as u64], &all)?),
        None => n.optional(1),
    };
    let all = extents(cx, n, (x, &axes), (scales, None))?;
    interpolated(cx, x, (&axes, &all), &rules)
}
