//! Reading between elements at places that are computed, and grids of such places.

use super::{Cx, ElementType, I64, LoweredValue, LoweredValues, Node, Unlowered, Val, refuse};
use adfuse_ir::{Attr, Attrs, Dim, Literal, Op};
use smallvec::smallvec;

/// What lies outside of a tensor.
#[derive(Clone, Copy, PartialEq)]
enum Outside {
    Zeros,
    Border,
    Reflection,
}

/// One axis that is sampled.
struct SampledAxis {
    extent: f64,
    corners: bool,
    outside: Outside,
}

impl SampledAxis {
    /// Places from -1 to 1 as places of elements.
    fn place(&self, cx: Cx<'_, '_>, at: Val) -> LoweredValue {
        let at = cx.with(Op::Add, at, 1.0)?;
        if self.corners {
            let at = cx.with(Op::Div, at, 2.0)?;
            return cx.with(Op::Mul, at, self.extent - 1.0);
        }
        let at = cx.with(Op::Mul, at, self.extent)?;
        let at = cx.with(Op::Sub, at, 1.0)?;
        cx.with(Op::Div, at, 2.0)
    }

    /// A place outside brought inside, where that is asked for.
    fn inside(&self, cx: Cx<'_, '_>, at: Val) -> LoweredValue {
        match self.outside {
            Outside::Zeros => Ok(at),
            Outside::Border => {
                let at = cx.with(Op::Max, at, 0.0)?;
                cx.with(Op::Min, at, self.extent - 1.0)
            }
            Outside::Reflection => {
                let (low, high) = match self.corners {
                    true => (0.0, self.extent - 1.0),
                    false => (-0.5, self.extent - 0.5),
                };
                if high <= low {
                    return Ok(cx.number(at, 0.0));
                }
                let span = high - low;
                let away = cx.with(Op::Sub, at, low)?;
                let away = cx.unary(Op::Abs, away)?;
                let rest = cx.with(Op::Rem, away, 2.0 * span)?;
                let turned = cx.number(rest, 2.0 * span);
                let turned = cx.sub(turned, rest)?;
                let near = cx.map(Op::Min, &[rest, turned])?;
                cx.with(Op::Add, near, low)
            }
        }
    }

    /// The elements around a place: index, and weight.
    fn taps(&self, cx: Cx<'_, '_>, mode: &str, at: Val) -> Result<Vec<(Val, Val)>, Unlowered> {
        let at = self.place(cx, at)?;
        let at = if mode == "nearest" { cx.unary(Op::RoundNearestEven, at)? } else { at };
        let at = self.inside(cx, at)?;
        let mut taps = Vec::new();
        if mode == "nearest" {
            let one = cx.number(at, 1.0);
            taps.push((at, one));
        } else {
            let below = cx.unary(Op::Floor, at)?;
            let ratio = cx.sub(at, below)?;
            let offsets: &[f64] =
                if mode == "linear" { &[0.0, 1.0] } else { &[-1.0, 0.0, 1.0, 2.0] };
            for &offset in offsets {
                let away = cx.with(Op::Sub, ratio, offset)?;
                let away = cx.unary(Op::Abs, away)?;
                let weight = if mode == "linear" {
                    let one = cx.number(away, 1.0);
                    cx.sub(one, away)?
                } else {
                    cubic(cx, away, offset == 0.0 || offset == 1.0)?
                };
                taps.push((cx.with(Op::Add, below, offset)?, weight));
            }
        }
        let mut found = Vec::new();
        for (index, weight) in taps {
            found.push(self.element(cx, index, weight)?);
        }
        Ok(found)
    }

    /// An index that is inside; the weight of one that is not is 0 where zeros lie outside.
    fn element(&self, cx: Cx<'_, '_>, index: Val, weight: Val) -> Result<(Val, Val), Unlowered> {
        let (zero, last) = (cx.number(index, 0.0), cx.number(index, self.extent - 1.0));
        let (mut index, mut weight) = (index, weight);
        match self.outside {
            Outside::Zeros => {
                let low = cx.map(Op::Ge, &[index, zero])?;
                let high = cx.map(Op::Le, &[index, last])?;
                let inside = cx.map(Op::And, &[low, high])?;
                let nothing = cx.number(weight, 0.0);
                weight = cx.select(inside, weight, nothing)?;
            }
            Outside::Border => {}
            Outside::Reflection => index = self.inside(cx, index)?,
        }
        let index = cx.map(Op::Max, &[index, zero])?;
        let index = cx.map(Op::Min, &[index, last])?;
        Ok((cx.convert(index, I64)?, weight))
    }
}

/// The cubic kernel with the factor -0.75, near its middle or away from it.
fn cubic(cx: Cx<'_, '_>, x: Val, near: bool) -> LoweredValue {
    let a = -0.75;
    let factors =
        if near { [a + 2.0, -(a + 3.0), 0.0, 1.0] } else { [a, -5.0 * a, 8.0 * a, -4.0 * a] };
    let mut sum = cx.number(x, factors[0]);
    for f in &factors[1..] {
        let product = cx.mul(sum, x)?;
        sum = cx.with(Op::Add, product, *f)?;
    }
    Ok(sum)
}

pub(crate) fn grid_sample<'m>(cx: Cx<'_, 'm>, n: &Node<'m>) -> LoweredValues {
    let (x, grid) = (n.input(0)?, n.input(1)?);
    let dims = cx.extents(x)?;
    let mode = match n.text("mode", "linear") {
        "bilinear" | "linear" => "linear",
        "bicubic" | "cubic" => "cubic",
        "nearest" => "nearest",
        other => return refuse(format!("the mode `{other}`")),
    };
    let outside = match n.text("padding_mode", "zeros") {
        "zeros" => Outside::Zeros,
        "border" => Outside::Border,
        "reflection" => Outside::Reflection,
        other => return refuse(format!("the padding `{other}`")),
    };
    let corners = n.flag("align_corners", false);
    let last = cx.rank(grid) - 1;
    let spatial = dims.len() - 2;
    if cx.shape(grid)[last] != Dim::Const(spatial as u64) || spatial > 3 {
        return refuse("a grid of other axes");
    }
    let mut axes = Vec::new();
    for k in 0..spatial {
        // Coordinates are in the reverse order of axes.
        let at = cx.pick(grid, last, (spatial - 1 - k) as u64)?;
        let at = cx.convert(at, x.element)?;
        let axis = SampledAxis { extent: dims[k + 2] as f64, corners, outside };
        axes.push(axis.taps(cx, mode, at)?);
    }
    let mut sum: Option<Val> = None;
    let count: usize = axes.iter().map(Vec::len).product();
    for mut k in 0..count {
        let mut chosen = Vec::new();
        for taps in &axes {
            chosen.push(taps[k % taps.len()]);
            k /= taps.len();
        }
        let part = sampled(cx, x, &chosen)?;
        sum = Some(match sum {
            None => part,
            Some(sum) => cx.add(sum, part)?,
        });
    }
    match sum {
        Some(y) => Ok(smallvec![y]),
        None => refuse("no axes"),
    }
}

/// The elements of all channels at one index for each axis, times the weights.
fn sampled(cx: Cx<'_, '_>, x: Val, taps: &[(Val, Val)]) -> LoweredValue {
    let Some(&(first, _)) = taps.first() else { return refuse("no axes") };
    let places = cx.shape(first);
    let rank = places.len();
    let mut parts = vec![cx.iota(I64, &places, 0)?];
    parts.extend(taps.iter().map(|t| t.0));
    for part in &mut parts {
        *part = cx.unsqueeze(*part, rank)?;
    }
    let index = cx.concat(&parts, rank)?;
    let mut sizes = vec![1; cx.rank(x)];
    sizes[1] = cx.extent(cx.shape(x)[1])? as i64;
    let axes: Vec<i64> = (0..cx.rank(x) as i64).filter(|&d| d != 1).collect();
    let attrs = Attrs::none()
        .with_ints("offset_dims", [1])
        .with_ints("collapsed", axes.iter().copied())
        .with_ints("start_map", axes.iter().copied())
        .with_ints("sizes", sizes)
        .with("mode", Attr::Word("clip"));
    let full = cx.b.materialize(x.value);
    let mut y = Val { value: cx.emit(Op::Gather, &[full, index.value], attrs)?, ..x };
    for &(_, weight) in taps {
        let weight = cx.unsqueeze(weight, 1)?;
        y = cx.mul(y, weight)?;
    }
    Ok(y)
}

/// Coordinates from -1 to 1 along an axis, of corners or of middles.
fn coordinates(cx: Cx<'_, '_>, element: ElementType, extent: u64, corners: bool) -> LoweredValue {
    let size = extent as f64;
    let at = |k: u64| match corners {
        true => -1.0 + 2.0 * k as f64 / (size - 1.0),
        false => -1.0 + (2.0 * k as f64 + 1.0) / size,
    };
    let all: Vec<f64> = (0..extent.min(1 << 20)).map(at).collect();
    cx.numbers(element, &[extent], &all)
}

pub(crate) fn affine_grid<'m>(cx: Cx<'_, 'm>, n: &Node<'m>) -> LoweredValues {
    let (theta, corners) = (n.input(0)?, n.flag("align_corners", false));
    let size = cx.ints(n.input(1)?)?;
    let dims: Option<Vec<u64>> = size.iter().skip(2).map(|&d| u64::try_from(d).ok()).collect();
    let Some(dims) = dims.filter(|d| (2..=3).contains(&d.len())) else {
        return refuse("other than two or three axes");
    };
    let shape: Vec<Dim> = dims.iter().map(|&d| Dim::Const(d)).chain([Dim::Const(1)]).collect();
    let mut parts = Vec::new();
    for (k, &d) in dims.iter().enumerate().rev() {
        let along = coordinates(cx, theta.element, d, corners)?;
        parts.push(cx.broadcast_in(along, &shape, &[k as i64])?);
    }
    let l = Literal::one(theta.element.storage());
    parts.push(cx.filled(theta.element, &shape, l));
    let grid = cx.concat(&parts, dims.len())?;
    let count: u64 = dims.iter().product();
    let grid = cx.reshape_to(grid, &[count, dims.len() as u64 + 1])?;
    let turned = cx.transpose(theta, &[0, 2, 1])?;
    let batch = cx.shape(theta)[0];
    let wide = [batch, Dim::Const(count), Dim::Const(dims.len() as u64 + 1)];
    let grid = cx.expand(grid, &wide)?;
    let y = cx.matmul(grid, turned)?;
    let whole: Vec<Dim> = [batch]
        .into_iter()
        .chain(dims.iter().map(|&d| Dim::Const(d)))
        .chain([Dim::Const(dims.len() as u64)])
        .collect();
    Ok(smallvec![cx.reshape(y, &whole)?])
}

/// Columns of blocks added up where they lie in an image.
pub(crate) fn col2im<'m>(cx: Cx<'_, 'm>, n: &Node<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let (image, block) = (cx.ints(n.input(1)?)?, cx.ints(n.input(2)?)?);
    let count = image.len();
    let list = |name, default: i64, times: usize| match n.ints(name) {
        Some(all) if all.len() == times * count => Ok(all.to_vec()),
        Some(_) => refuse("lists of other lengths"),
        None => Ok(vec![default; times * count]),
    };
    let (strides, dilation) = (list("strides", 1, 1)?, list("dilations", 1, 1)?);
    let pads = list("pads", 0, 2)?;
    let small = |all: &[i64], least: i64| all.iter().all(|v| (least..1 << 30).contains(v));
    if block.len() != count
        || !small(&image, 1)
        || !small(&block, 1)
        || !small(&strides, 1)
        || !small(&dilation, 1)
        || !small(&pads, 0)
    {
        return refuse(format!("blocks of {block:?} in {image:?}"));
    }
    let padded: Vec<i64> = (0..count).map(|k| image[k] + pads[k] + pads[count + k]).collect();
    let places: Vec<i64> = (0..count)
        .map(|k| (padded[k] - dilation[k] * (block[k] - 1) - 1).div_euclid(strides[k]) + 1)
        .collect();
    let dims = cx.extents(x)?;
    let area: i64 = block.iter().product();
    if dims.len() != 3 || !dims[1].is_multiple_of(area as u64) || places.iter().any(|&p| p < 1) {
        return refuse("columns of another shape");
    }
    let split: Vec<u64> = [dims[0], dims[1] / area as u64]
        .into_iter()
        .chain(block.iter().chain(&places).map(|&v| v as u64))
        .collect();
    let y = cx.reshape_to(x, &split)?;
    let along: Vec<i64> = (2..2 + count as i64).collect();
    let attrs = Attrs::none()
        .with_ints("axes", 2 + count as i64..2 + 2 * count as i64)
        .with_ints("along", along.iter().copied())
        .with_ints("strides", strides)
        .with_ints("dilation", dilation)
        .with_ints("extents", padded.iter().copied());
    let zero = cx.filled(x.element, &[], Literal::zero(x.element.storage()));
    let value = cx.emit(Op::Unskew, &[y.value, zero.value], attrs)?;
    let axes: Vec<usize> = (2..2 + count).collect();
    let mut y = cx.reduce(Op::ReduceSum, Val { value, ..x }, &axes, false)?;
    for k in 0..count {
        y = cx.slice(y, k + 2, pads[k] as u64, (pads[k] + image[k]) as u64)?;
    }
    Ok(smallvec![y])
}
