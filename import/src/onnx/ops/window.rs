//! Windows: convolutions and pooling.

use super::linear::centered;
use super::{Cx, I64, LoweredValue, LoweredValues, OnnxOperation, Unlowered, Val, refuse};
use crate::emit::integers::ordered;
use adfuse_ir::{Attrs, DType, Dim, Literal, Op, TensorType};
use smallvec::smallvec;

/// The attributes of windows: an entry of each list for every axis.
pub(crate) fn pooled(
    window: &[i64],
    strides: &[i64],
    (low, high): (&[i64], &[i64]),
    dilation: &[i64],
) -> Attrs {
    Attrs::none()
        .with_ints("window", window.iter().copied())
        .with_ints("strides", strides.iter().copied())
        .with_ints("low", low.iter().copied())
        .with_ints("high", high.iter().copied())
        .with_ints("base_dilation", vec![1; window.len()])
        .with_ints("window_dilation", dilation.iter().copied())
}

/// Windows over the axes behind the first two.
#[derive(Clone, Debug)]
pub(crate) struct PoolWindows {
    kernel: Vec<i64>,
    strides: Vec<i64>,
    dilation: Vec<i64>,
    low: Vec<i64>,
    high: Vec<i64>,
    /// Elements behind the padding, where sizes are rounded up: they count for nothing.
    beyond: Vec<i64>,
}

/// A list of an entry for each axis, each from a range in which no later sum overflows.
fn list(
    n: &OnnxOperation<'_>,
    name: &'static str,
    count: usize,
    default: i64,
) -> Result<Vec<i64>, Unlowered> {
    const MOST: i64 = 1 << 30;
    match n.ints(name) {
        None => Ok(vec![default; count]),
        Some(all) if all.len() == count && all.iter().all(|v| (-MOST..MOST).contains(v)) => {
            Ok(all.to_vec())
        }
        Some(all) => refuse(format!("`{name}` of {} numbers for {count}", all.len())),
    }
}

impl PoolWindows {
    /// The windows of a node over this many axes, with the padding that is written.
    fn padded(
        n: &OnnxOperation<'_>,
        kernel: Vec<i64>,
        axes: usize,
    ) -> Result<PoolWindows, Unlowered> {
        let count = kernel.len();
        let positive = |all: &[i64]| all.iter().all(|&v| (1..1 << 20).contains(&v));
        let strides = list(n, "strides", count, 1)?;
        let dilation = list(n, "dilations", count, 1)?;
        let pads = list(n, "pads", 2 * count, 0)?;
        if axes != count || !positive(&kernel) || !positive(&strides) || !positive(&dilation) {
            return refuse(format!("windows of {kernel:?} over {axes} axes"));
        }
        Ok(PoolWindows {
            low: pads[..count].to_vec(),
            high: pads[count..].to_vec(),
            beyond: vec![0; count],
            kernel,
            strides,
            dilation,
        })
    }

    /// The windows of a node over these extents.
    fn of(
        n: &OnnxOperation<'_>,
        kernel: Vec<i64>,
        extents: &[u64],
    ) -> Result<PoolWindows, Unlowered> {
        let mut made = PoolWindows::padded(n, kernel, extents.len())?;
        let auto = n.text("auto_pad", "NOTSET");
        for (k, &extent) in extents.iter().enumerate() {
            let (extent, stride) = (extent as i64, made.strides[k]);
            let reach = made.reach(k);
            match auto {
                "NOTSET" | "" => {}
                "VALID" => (made.low[k], made.high[k]) = (0, 0),
                "SAME_UPPER" | "SAME_LOWER" => {
                    let places = (extent + stride - 1) / stride;
                    let total = ((places - 1) * stride + reach - extent).max(0);
                    let half = if auto == "SAME_UPPER" { total / 2 } else { total - total / 2 };
                    (made.low[k], made.high[k]) = (half, total - half);
                }
                other => return refuse(format!("the padding `{other}`")),
            }
        }
        if n.flag("ceil_mode", false) {
            for (k, &extent) in extents.iter().enumerate() {
                made.round_up(k, extent as i64);
            }
        }
        Ok(made)
    }

    /// Elements from the first of a window to its last.
    fn reach(&self, k: usize) -> i64 {
        (self.kernel[k] - 1).saturating_mul(self.dilation[k]).saturating_add(1).min(1 << 60)
    }

    /// A last window is begun where it still reads an element, or padding before them.
    fn round_up(&mut self, k: usize, extent: i64) {
        let (reach, stride) = (self.reach(k), self.strides[k]);
        let room = extent + self.low[k] + self.high[k] - reach;
        let mut last = if room <= 0 { 0 } else { (room + stride - 1) / stride };
        if last * stride >= extent + self.low[k] {
            last -= 1;
        }
        self.beyond[k] = (last * stride + reach - extent - self.low[k] - self.high[k]).max(0);
    }

    /// The windows with an entry for the two axes before them too.
    fn whole(&self) -> PoolWindows {
        let with = |x: i64, all: &[i64]| [x, x].into_iter().chain(all.iter().copied()).collect();
        let high: Vec<i64> = self.high.iter().zip(&self.beyond).map(|(a, b)| a + b).collect();
        PoolWindows {
            kernel: with(1, &self.kernel),
            strides: with(1, &self.strides),
            dilation: with(1, &self.dilation),
            low: with(0, &self.low),
            high: with(0, &high),
            beyond: vec![0; self.kernel.len() + 2],
        }
    }

    fn attrs(&self) -> Attrs {
        let all = self.whole();
        pooled(&all.kernel, &all.strides, (&all.low, &all.high), &all.dilation)
    }

    /// The number of elements of each window along an axis; with padding where that is asked for.
    fn counts(&self, k: usize, extent: i64, padding: bool) -> Result<Vec<i64>, Unlowered> {
        const MOST: i64 = 1 << 22;
        let (from, to) = match padding {
            true => (-self.low[k], extent + self.high[k]),
            false => (0, extent),
        };
        let end = extent + self.high[k] + self.beyond[k] - self.reach(k);
        let windows = (end + self.low[k]) / self.strides[k] + 1;
        if windows.max(0).saturating_mul(self.kernel[k]) > MOST {
            return refuse(format!("{windows} windows of {} elements each", self.kernel[k]));
        }
        let firsts = (-self.low[k]..=end).step_by(self.strides[k] as usize);
        let counts = firsts
            .map(|first| {
                let places = (0..self.kernel[k]).map(|j| first + j * self.dilation[k]);
                places.filter(|p| (from..to).contains(p)).count() as i64
            })
            .collect();
        Ok(counts)
    }
}

/// The extents of the axes behind the first two.
fn spatial(cx: Cx<'_, '_>, x: Val) -> Result<Vec<u64>, Unlowered> {
    let shape = cx.shape(x);
    if shape.len() < 3 {
        return refuse(format!("windows over {} axes", shape.len()));
    }
    let extents: Vec<u64> = shape[2..].iter().map(|&d| cx.extent(d)).collect::<Result<_, _>>()?;
    match extents.iter().all(|&n| n < 1 << 40) {
        true => Ok(extents),
        false => refuse(format!("windows over {extents:?}")),
    }
}

/// A convolution as a node says it; with a number of groups, one in which it says nothing of them.
pub(crate) fn convolved(
    cx: Cx<'_, '_>,
    n: &OnnxOperation<'_>,
    x: Val,
    w: Val,
    groups: Option<i64>,
) -> LoweredValue {
    let extents = spatial(cx, x)?;
    let kernel: Vec<i64> = spatial(cx, w)?.iter().map(|&k| k as i64).collect();
    if n.ints("kernel_shape").is_some_and(|said| said != kernel) {
        return refuse("a kernel of another shape than it says");
    }
    let windows = PoolWindows::of(n, kernel, &extents)?;
    let attrs = Attrs::none()
        .with_ints("strides", windows.strides.iter().copied())
        .with_ints("low", windows.low.iter().copied())
        .with_ints("high", windows.high.iter().copied())
        .with_ints("rhs_dilation", windows.dilation.iter().copied())
        .with_int("feature_group_count", groups.unwrap_or_else(|| n.int("group", 1)));
    let (full, kernel) = (cx.b.materialize(x.value), cx.b.materialize(w.value));
    Ok(Val { value: cx.emit(Op::ConvGeneralDilated, &[full, kernel], attrs)?, ..x })
}

/// A bias with an element for each channel of axis 1 is added.
pub(crate) fn with_bias(cx: Cx<'_, '_>, y: Val, bias: Option<Val>) -> LoweredValue {
    let Some(bias) = bias else { return Ok(y) };
    let shape = cx.shape(y);
    let bias = cx.broadcast_in(bias, &shape, &[1])?;
    cx.add(y, bias)
}

pub(crate) fn conv<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let y = convolved(cx, n, n.input(0)?, n.input(1)?, None)?;
    Ok(smallvec![with_bias(cx, y, n.optional(2))?])
}

pub(crate) fn conv_integer<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = centered(cx, n.input(0)?, n.optional(2), None)?;
    let w = centered(cx, n.input(1)?, n.optional(3), Some(0))?;
    Ok(smallvec![convolved(cx, n, x, w, None)?])
}

/// What a convolution is the gradient of: places are spread by the strides and read through the kernel in reverse.
pub(crate) fn conv_transpose<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, w) = (n.input(0)?, n.input(1)?);
    let extents = spatial(cx, x)?;
    let dims = cx.extents(w)?;
    let kernel: Vec<i64> = dims[2.min(dims.len())..].iter().map(|&k| k as i64).collect();
    n.ignore(&["kernel_shape"]);
    let windows = PoolWindows::padded(n, kernel, extents.len())?;
    let count = extents.len();
    let extra = list(n, "output_padding", count, 0)?;
    let (auto, wanted) = (n.text("auto_pad", "NOTSET"), n.ints("output_shape"));
    if wanted.is_some_and(|all| all.iter().any(|v| !(0..1 << 40).contains(v))) {
        return refuse("its shape");
    }
    let (mut low, mut high) = (windows.low.clone(), windows.high.clone());
    for k in 0..count {
        let spread = (extents[k] as i64 - 1) * windows.strides[k] + windows.reach(k) + extra[k];
        let total = match (wanted, auto) {
            (Some(all), _) if all.len() >= count => Some(spread - all[all.len() - count + k]),
            (_, "SAME_UPPER" | "SAME_LOWER") => {
                Some((spread - extents[k] as i64 * windows.strides[k]).max(0))
            }
            (_, "VALID") => Some(0),
            _ => None,
        };
        if let Some(total) = total {
            // Of a total below 0 the larger part is behind.
            let less = total.div_euclid(2);
            let half = if auto == "SAME_UPPER" { less } else { total - less };
            (low[k], high[k]) = (half, total - half);
        }
        (low[k], high[k]) =
            (windows.reach(k) - 1 - low[k], windows.reach(k) - 1 - high[k] + extra[k]);
    }
    let groups = n.int("group", 1);
    let Some(&channels) = dims.first().filter(|c| groups > 0 && c.is_multiple_of(groups as u64))
    else {
        return refuse(format!("{groups} groups"));
    };
    let g = groups as u64;
    let tail = dims[2..].iter().copied();
    let split: Vec<u64> = [g, channels / g, dims[1]].into_iter().chain(tail.clone()).collect();
    let w = cx.reshape_to(w, &split)?;
    let perm: Vec<usize> = [0, 2, 1].into_iter().chain(3..split.len()).collect();
    let w = cx.transpose(w, &perm)?;
    let joined: Vec<u64> = [g * dims[1], channels / g].into_iter().chain(tail).collect();
    let w = cx.reshape_to(w, &joined)?;
    let turned = cx.reverse(w, 2..joined.len() as i64)?;
    let attrs = Attrs::none()
        .with_ints("low", low)
        .with_ints("high", high)
        .with_ints("lhs_dilation", windows.strides.iter().copied())
        .with_ints("rhs_dilation", windows.dilation.iter().copied())
        .with_int("feature_group_count", groups);
    let full = cx.b.materialize(x.value);
    let y = Val { value: cx.emit(Op::ConvGeneralDilated, &[full, turned.value], attrs)?, ..x };
    Ok(smallvec![with_bias(cx, y, n.optional(2))?])
}

fn kernel(n: &OnnxOperation<'_>) -> Result<Vec<i64>, Unlowered> {
    match n.ints("kernel_shape") {
        Some(all) => Ok(all.to_vec()),
        None => refuse("without the shape of its windows"),
    }
}

fn pool(cx: Cx<'_, '_>, op: Op, x: Val, windows: &PoolWindows) -> LoweredValue {
    let full = cx.b.materialize(x.value);
    Ok(Val { value: cx.emit(op, &[full], windows.attrs())?, ..x })
}

pub(crate) fn max_pool<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let extents = spatial(cx, x)?;
    let windows = PoolWindows::of(n, kernel(n)?, &extents)?;
    let by_column = n.int("storage_order", 0) == 1;
    let full = cx.b.materialize(x.value);
    let keyed = Val { value: ordered(cx, x.element, full)?, ..x };
    if !n.wants(1) {
        let y = pool(cx, Op::ReduceWindowMax, keyed, &windows)?;
        return Ok(smallvec![Val { value: ordered(cx, x.element, y.value)?, ..x }]);
    }
    let (y, places) = max_places(cx, keyed, &windows, by_column)?;
    Ok(smallvec![Val { value: ordered(cx, x.element, y.value)?, ..x }, places])
}

/// The maximum of each window, and its place in the tensor.
fn max_places(
    cx: Cx<'_, '_>,
    x: Val,
    windows: &PoolWindows,
    by_column: bool,
) -> Result<(Val, Val), Unlowered> {
    let dims = cx.extents(x)?;
    let shape: Vec<Dim> = dims.iter().map(|&d| Dim::Const(d)).collect();
    let area: u64 = dims[2..].iter().product();
    let mut at = cx.iota(I64, &shape, 0)?;
    at = cx.with(Op::Mul, at, (dims[1] * area) as f64)?;
    for (axis, &extent) in dims.iter().enumerate().skip(1) {
        let step: u64 = match axis {
            1 => area,
            _ if by_column => dims[2..axis].iter().product(),
            _ => dims[axis + 1..].iter().product(),
        };
        let places = cx.iota(I64, &shape, axis)?;
        let places = cx.with(Op::Mul, places, step as f64)?;
        at = if extent > 0 { cx.add(at, places)? } else { at };
    }
    let least = x.element.least();
    let (wide, places) =
        (windowed(cx, x, windows, least)?, windowed(cx, at, windows, I64.least())?);
    let last = cx.rank(wide) - 1;
    let best = cx.emit(Op::Argmax, &[wide.value], Attrs::none().with_int("axis", last as i64))?;
    let best = Val { element: I64, value: cx.storage(best, DType::I64)? };
    let best = cx.unsqueeze(best, last)?;
    let (y, at) = (cx.take_along(wide, best, last)?, cx.take_along(places, best, last)?);
    Ok((cx.squeeze(y, last)?, cx.squeeze(at, last)?))
}

/// The elements of each window in a last axis.
fn windowed(cx: Cx<'_, '_>, x: Val, windows: &PoolWindows, outside: Literal) -> LoweredValue {
    let all = windows.whole();
    let x = cx.pad(x, outside, &all.low, &all.high)?;
    let rank = cx.rank(x);
    let attrs = Attrs::none()
        .with_ints("axes", 2..rank as i64)
        .with_ints("sizes", windows.kernel.iter().copied())
        .with_ints("strides", windows.strides.iter().copied())
        .with_ints("dilation", windows.dilation.iter().copied());
    let full = cx.b.materialize(x.value);
    let value = cx.emit(Op::Windows, &[full], attrs)?;
    let dims = cx.extents(Val { value, ..x })?;
    let area = windows.kernel.iter().fold(1i64, |a, &k| a.saturating_mul(k)) as u64;
    let joined: Vec<u64> = dims[..rank].iter().copied().chain([area]).collect();
    cx.reshape_to(Val { value, ..x }, &joined)
}

/// The mean of each window; padding counts where that is asked for.
pub(crate) fn average_pool<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let extents = spatial(cx, x)?;
    let windows = PoolWindows::of(n, kernel(n)?, &extents)?;
    let padding = n.flag("count_include_pad", false);
    let sum = pool(cx, Op::ReduceWindowSum, x, &windows)?;
    let mut count: Option<Val> = None;
    let mut common = 1.0;
    let shape = cx.shape(sum);
    for (k, &extent) in extents.iter().enumerate() {
        let counts = windows.counts(k, extent as i64, padding)?;
        if let [first, rest @ ..] = &counts[..]
            && rest.iter().all(|c| c == first)
        {
            common *= *first as f64;
            continue;
        }
        let counts: Vec<f64> = counts.iter().map(|&c| c as f64).collect();
        let along = cx.numbers(x.element, &[counts.len() as u64], &counts)?;
        let along = cx.broadcast_in(along, &shape, &[k as i64 + 2])?;
        count = Some(match count {
            None => along,
            Some(count) => cx.mul(count, along)?,
        });
    }
    let mut mean = cx.with(Op::Div, sum, common)?;
    if let Some(count) = count {
        mean = cx.div(mean, count)?;
    }
    Ok(smallvec![mean])
}

/// The root of order p of the sum of powers.
fn lp_norm(
    cx: Cx<'_, '_>,
    x: Val,
    p: i64,
    sum: impl FnOnce(Cx<'_, '_>, Val) -> LoweredValue,
) -> LoweredValue {
    let size = cx.unary(Op::Abs, x)?;
    let powers = if p == 1 { size } else { cx.with(Op::Pow, size, p as f64)? };
    let sum = sum(cx, powers)?;
    if p == 1 { Ok(sum) } else { cx.with(Op::Pow, sum, 1.0 / p as f64) }
}

pub(crate) fn lp_pool<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let extents = spatial(cx, x)?;
    let windows = PoolWindows::of(n, kernel(n)?, &extents)?;
    let p = n.int("p", 2);
    Ok(smallvec![lp_norm(cx, x, p, |cx, v| pool(cx, Op::ReduceWindowSum, v, &windows))?])
}

/// A fold over all axes behind the first two.
pub(crate) fn global<'m>(cx: Cx<'_, 'm>, op: Op, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let axes: Vec<usize> = (2..cx.rank(x)).collect();
    Ok(smallvec![cx.reduce(op, x, &axes, true)?])
}

pub(crate) fn global_average<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let axes: Vec<usize> = (2..cx.rank(x)).collect();
    Ok(smallvec![cx.mean(x, &axes)?])
}

pub(crate) fn global_lp<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, p) = (n.input(0)?, n.int("p", 2));
    let axes: Vec<usize> = (2..cx.rank(x)).collect();
    Ok(smallvec![lp_norm(cx, x, p, |cx, v| cx.reduce(Op::ReduceSum, v, &axes, true))?])
}

/// Values put back at the places that pooling found.
pub(crate) fn max_unpool<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, at) = (n.input(0)?, n.input(1)?);
    let extents = spatial(cx, x)?;
    let kernel = list(n, "kernel_shape", extents.len(), 1)?;
    let windows = PoolWindows::padded(n, kernel, extents.len())?;
    let mut dims = cx.extents(x)?;
    let inferred = |k: usize| {
        (extents[k] as i64 - 1) * windows.strides[k] + windows.reach(k)
            - windows.low[k]
            - windows.high[k]
    };
    let shape: Vec<i64> = match n.optional(2) {
        Some(shape) => cx.ints(shape)?,
        None => {
            dims[..2].iter().map(|&d| d as i64).chain((0..extents.len()).map(inferred)).collect()
        }
    };
    let shape: Option<Vec<u64>> = shape.iter().map(|&d| u64::try_from(d).ok()).collect();
    let Some(shape) = shape.filter(|s| s.len() == dims.len()) else { return refuse("its shape") };
    // Places count in the tensor that the sizes give.
    let source: Vec<u64> = dims[..2]
        .iter()
        .copied()
        .chain((0..extents.len()).map(|k| inferred(k).max(0) as u64))
        .collect();
    let ty = TensorType::of(x.element.storage(), &source);
    let Some(count) = ty.elements().filter(|_| ty.excess().is_none()) else {
        return refuse(format!("a result of {ty}"));
    };
    let zeros = cx.filled(x.element, &[Dim::Const(count)], Literal::zero(x.element.storage()));
    let total: u64 = dims.iter().product();
    dims = vec![total];
    let (x, at) = (cx.reshape_to(x, &dims)?, cx.reshape_to(at, &[total, 1])?);
    let attrs = Attrs::none()
        .with_ints("window_dims", [])
        .with_ints("inserted", [0])
        .with_ints("start_map", [0])
        .with("mode", adfuse_ir::Attr::Word("drop"));
    let (full, news) = (cx.b.materialize(zeros.value), cx.b.materialize(x.value));
    let value = cx.emit(Op::Scatter, &[full, at.value, news], attrs)?;
    let y = cx.reshape_to(Val { value, ..x }, &source)?;
    let high: Vec<i64> = shape.iter().zip(&source).map(|(&a, &b)| a as i64 - b as i64).collect();
    Ok(smallvec![cx.pad(y, Literal::zero(x.element.storage()), &vec![0; high.len()], &high)?])
}
