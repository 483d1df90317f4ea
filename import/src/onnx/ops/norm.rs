//! Softmax, normalizations and losses.

use super::window::with_bias;
use super::{
    Cx, ElementType, F32, I64, LoweredValue, LoweredValues, OnnxOperation, Val, axis_of, refuse,
};
use adfuse_ir::{DType, Dim, Op, Shape};
use smallvec::smallvec;

/// The softmax over axes, or its logarithm.
pub(crate) fn softmax_of(cx: Cx<'_, '_>, x: Val, axes: &[usize], log: bool) -> LoweredValue {
    let most = cx.reduce(Op::ReduceMax, x, axes, true)?;
    let moved = cx.sub(x, most)?;
    let powers = cx.unary(Op::Exp, moved)?;
    let sum = cx.reduce(Op::ReduceSum, powers, axes, true)?;
    if !log {
        return cx.div(powers, sum);
    }
    let sum = cx.unary(Op::Log, sum)?;
    cx.sub(moved, sum)
}

/// Before version 13 all axes from one on are one.
fn softmax_axes(
    cx: Cx<'_, '_>,
    n: &OnnxOperation<'_>,
    x: Val,
) -> Result<Vec<usize>, super::Unlowered> {
    let rank = cx.rank(x);
    if n.version < 13 {
        return Ok((axis_of(n.int("axis", 1), rank)?..rank).collect());
    }
    Ok(vec![axis_of(n.int("axis", -1), rank)?])
}

pub(crate) fn softmax<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let axes = softmax_axes(cx, n, x)?;
    Ok(smallvec![softmax_of(cx, x, &axes, false)?])
}

pub(crate) fn log_softmax<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let axes = softmax_axes(cx, n, x)?;
    Ok(smallvec![softmax_of(cx, x, &axes, true)?])
}

/// One at the first largest element, zero elsewhere.
pub(crate) fn hardmax<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let [axis] = softmax_axes(cx, n, x)?[..] else { return refuse("several axes") };
    let full = cx.b.materialize(x.value);
    let place =
        cx.emit(Op::Argmax, &[full], adfuse_ir::Attrs::none().with_int("axis", axis as i64))?;
    let place = Val { element: I64, value: cx.storage(place, DType::I64)? };
    let place = cx.unsqueeze(place, axis)?;
    let shape = cx.shape(x);
    let at = cx.iota(I64, &shape, axis)?;
    let there = cx.map(Op::Eq, &[at, place])?;
    Ok(smallvec![cx.convert(there, x.element)?])
}

/// The mean over axes, the values minus it, and their variance.
struct Moments {
    mean: Val,
    away: Val,
    variance: Val,
}

fn moments(cx: Cx<'_, '_>, x: Val, axes: &[usize]) -> Result<Moments, super::Unlowered> {
    let mean = cx.mean(x, axes)?;
    let away = cx.sub(x, mean)?;
    let square = cx.mul(away, away)?;
    Ok(Moments { mean, away, variance: cx.mean(square, axes)? })
}

/// The values minus their mean, divided by their deviation, and what of both that is computed from.
struct Normalized {
    value: Val,
    mean: Val,
    variance: Val,
    inverse: Val,
}

fn normalized(
    cx: Cx<'_, '_>,
    x: Val,
    axes: &[usize],
    epsilon: f64,
) -> Result<Normalized, super::Unlowered> {
    let Moments { mean, away, variance } = moments(cx, x, axes)?;
    let moved = cx.with(Op::Add, variance, epsilon)?;
    let inverse = cx.unary(Op::Rsqrt, moved)?;
    Ok(Normalized { value: cx.mul(away, inverse)?, mean, variance, inverse })
}

/// Scaled and moved: both have an element for each channel of axis 1.
fn scaled_by_channel(cx: Cx<'_, '_>, x: Val, scale: Val, bias: Val) -> LoweredValue {
    let shape = cx.shape(x);
    let scale = cx.broadcast_in(scale, &shape, &[1])?;
    let y = cx.mul(x, scale)?;
    with_bias(cx, y, Some(bias))
}

/// The type in which sums are formed: that of the attribute, 32 bits at least.
fn wide(n: &OnnxOperation<'_>, x: Val) -> ElementType {
    let stash = n.int("stash_type", 1);
    match x.element {
        ElementType::Float(DType::F16 | DType::BF16) if stash == 1 => F32,
        e => e,
    }
}

pub(crate) fn batch<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    n.ignore(&["consumed_inputs"]);
    if n.version < 9 && !n.flag("spatial", true) {
        return refuse("statistics of every place");
    }
    if n.version < 7 && !n.flag("is_test", false) || n.wants(1) && n.version < 14 {
        return refuse("statistics that are updated");
    }
    let (epsilon, momentum) = (n.float("epsilon", 1e-5), n.float("momentum", 0.9));
    let (x, scale, bias) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (mean, variance) = (n.input(3)?, n.input(4)?);
    if !n.flag("training_mode", false) {
        let variance = cx.with(Op::Add, variance, epsilon)?;
        let inverse = cx.unary(Op::Rsqrt, variance)?;
        let shape = cx.shape(x);
        let mean = cx.convert(mean, x.element)?;
        let mean = cx.broadcast_in(mean, &shape, &[1])?;
        let away = cx.sub(x, mean)?;
        let scale = cx.convert(scale, inverse.element)?;
        let factor = cx.mul(scale, inverse)?;
        let (factor, bias) = (cx.convert(factor, x.element)?, cx.convert(bias, x.element)?);
        return Ok(smallvec![scaled_by_channel(cx, away, factor, bias)?]);
    }
    let axes: Vec<usize> = (0..cx.rank(x)).filter(|&k| k != 1).collect();
    let found = normalized(cx, x, &axes, epsilon)?;
    let y = scaled_by_channel(cx, found.value, scale, bias)?;
    let shape = cx.shape(mean);
    let (now, spread) = (cx.reshape(found.mean, &shape)?, cx.reshape(found.variance, &shape)?);
    let mut blend = |old: Val, new: Val| {
        let (old, new) = (cx.with(Op::Mul, old, momentum)?, cx.with(Op::Mul, new, 1.0 - momentum)?);
        cx.add(old, new)
    };
    let (mean, variance) = (blend(mean, now)?, blend(variance, spread)?);
    Ok(smallvec![y, mean, variance])
}

pub(crate) fn instance<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let epsilon = n.float("epsilon", 1e-5);
    n.ignore(&["consumed_inputs"]);
    let (x, scale, bias) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let axes: Vec<usize> = (2..cx.rank(x)).collect();
    let found = normalized(cx, x, &axes, epsilon)?;
    Ok(smallvec![scaled_by_channel(cx, found.value, scale, bias)?])
}

/// Channels in groups, each with a mean of its own.
pub(crate) fn group<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (epsilon, groups) = (n.float("epsilon", 1e-5), n.int("num_groups", 0).max(0) as u64);
    let (x, mut scale, mut bias) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let shape = cx.shape(x);
    let [batch, channels, inner @ ..] = &shape[..] else {
        return refuse("other than a batch of channels");
    };
    let channels = cx.extent(*channels)?;
    if groups == 0 || !channels.is_multiple_of(groups) {
        return refuse(format!("{groups} groups of {channels} channels"));
    }
    let mut rest = channels / groups;
    for &d in inner {
        rest = rest.saturating_mul(cx.extent(d)?);
    }
    let wide = wide(n, x);
    let y = cx.convert(x, wide)?;
    let y = cx.reshape(y, &[*batch, Dim::Const(groups), Dim::Const(rest)])?;
    let y = normalized(cx, y, &[2], epsilon)?.value;
    let y = cx.reshape(y, &shape)?;
    let y = cx.convert(y, x.element)?;
    if n.version < 21 {
        // Each group has one element of both.
        let mut repeat = |v: Val| {
            let shape = [Dim::Const(groups), Dim::Const(channels / groups)];
            let v = cx.broadcast_in(v, &shape, &[0])?;
            cx.reshape_to(v, &[channels])
        };
        (scale, bias) = (repeat(scale)?, repeat(bias)?);
    }
    Ok(smallvec![scaled_by_channel(cx, y, scale, bias)?])
}

pub(crate) fn layer<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let first = axis_of(n.int("axis", -1), cx.rank(x))?;
    let axes: Vec<usize> = (first..cx.rank(x)).collect();
    let (epsilon, wide) = (n.float("epsilon", 1e-5), wide(n, x));
    let y = cx.convert(x, wide)?;
    let found = normalized(cx, y, &axes, epsilon)?;
    let y = cx.convert(found.value, x.element)?;
    let mut y = cx.mul(y, n.input(1)?)?;
    if let Some(bias) = n.optional(2) {
        y = cx.add(y, bias)?;
    }
    Ok(smallvec![y, found.mean, found.inverse])
}

/// Values divided by the root of the mean of their squares, and the reciprocal of that.
pub(crate) fn rms_of(
    cx: Cx<'_, '_>,
    x: Val,
    axes: &[usize],
    epsilon: f64,
) -> Result<(Val, Val), super::Unlowered> {
    let square = cx.mul(x, x)?;
    let mean = cx.mean(square, axes)?;
    let mean = cx.with(Op::Add, mean, epsilon)?;
    let inverse = cx.unary(Op::Rsqrt, mean)?;
    Ok((cx.mul(x, inverse)?, inverse))
}

pub(crate) fn rms<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let first = axis_of(n.int("axis", -1), cx.rank(x))?;
    let axes: Vec<usize> = (first..cx.rank(x)).collect();
    let (epsilon, wide) = (n.float("epsilon", 1e-5), wide(n, x));
    let y = cx.convert(x, wide)?;
    let (y, inverse) = rms_of(cx, y, &axes, epsilon)?;
    let y = cx.convert(y, x.element)?;
    let scale = n.input(1)?;
    let y = cx.convert(y, scale.element)?;
    Ok(smallvec![cx.mul(y, scale)?, inverse])
}

pub(crate) fn mean_variance<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let given = n.ints("axes").unwrap_or(&[0, 2, 3]);
    let axes = given.iter().map(|&k| axis_of(k, cx.rank(x))).collect::<Result<Vec<_>, _>>()?;
    let Moments { away, variance, .. } = moments(cx, x, &axes)?;
    let deviation = cx.unary(Op::Sqrt, variance)?;
    let deviation = cx.with(Op::Add, deviation, 1e-9)?;
    Ok(smallvec![cx.div(away, deviation)?])
}

pub(crate) fn lp<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let axis = axis_of(n.int("axis", -1), cx.rank(x))?;
    let norm = match n.int("p", 2) {
        1 => {
            let size = cx.unary(Op::Abs, x)?;
            cx.reduce(Op::ReduceSum, size, &[axis], true)?
        }
        2 => {
            let square = cx.mul(x, x)?;
            let sum = cx.reduce(Op::ReduceSum, square, &[axis], true)?;
            cx.unary(Op::Sqrt, sum)?
        }
        p => return refuse(format!("the norm of order {p}")),
    };
    let zero = cx.number(norm, 0.0);
    let nothing = cx.map(Op::Eq, &[norm, zero])?;
    let divided = cx.div(x, norm)?;
    let zero = cx.number(x, 0.0);
    Ok(smallvec![cx.select(nothing, zero, divided)?])
}

/// Values divided by a power of the sum of squares of channels around.
pub(crate) fn lrn<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let size = n.int("size", 1);
    let (alpha, beta, bias) = (n.float("alpha", 1e-4), n.float("beta", 0.75), n.float("bias", 1.0));
    let rank = cx.rank(x);
    if rank < 2 || !(1..1 << 20).contains(&size) {
        return refuse(format!("a window of {size} channels"));
    }
    let (mut window, mut low, mut high) = (vec![1; rank], vec![0; rank], vec![0; rank]);
    window[1] = size;
    (low[1], high[1]) = ((size - 1) / 2, size - 1 - (size - 1) / 2);
    let square = cx.mul(x, x)?;
    let attrs = super::window::pooled(&window, &vec![1; rank], (&low, &high), &vec![1; rank]);
    let full = cx.b.materialize(square.value);
    let sum = Val { value: cx.emit(Op::ReduceWindowSum, &[full], attrs)?, ..x };
    let scaled = cx.with(Op::Mul, sum, alpha / size as f64)?;
    let scaled = cx.with(Op::Add, scaled, bias)?;
    let power = cx.with(Op::Pow, scaled, beta)?;
    Ok(smallvec![cx.div(x, power)?])
}

/// The loss of the class of each place, weighted, and reduced as the node says.
fn negative_log(
    cx: Cx<'_, '_>,
    n: &OnnxOperation<'_>,
    logs: Val,
    weights: Option<Val>,
) -> LoweredValue {
    let target = n.input(1)?;
    let target = cx.convert(target, I64)?;
    let ignored = n.has("ignore_index").then(|| n.int("ignore_index", 0));
    let shape: Shape = cx.shape(logs);
    if shape.len() < 2 {
        return refuse("scores of one axis");
    }
    // A comparison with each class gives what the class of the target has, and 0 for one that is not there.
    let classes = cx.iota(I64, &shape, 1)?;
    let wanted = cx.unsqueeze(target, 1)?;
    let mut there = cx.map(Op::Eq, &[classes, wanted])?;
    if let Some(class) = ignored {
        let other = cx.number(wanted, class as f64);
        let counts = cx.map(Op::Ne, &[wanted, other])?;
        there = cx.map(Op::And, &[there, counts])?;
    }
    let zero = cx.number(logs, 0.0);
    let negative = cx.unary(Op::Neg, logs)?;
    let weight = match weights {
        Some(w) => cx.broadcast_in(w, &shape, &[1])?,
        None => cx.number(logs, 1.0),
    };
    let weight = cx.select(there, weight, zero)?;
    let product = cx.mul(negative, weight)?;
    let losses = cx.select(there, product, zero)?;
    let losses = cx.reduce(Op::ReduceSum, losses, &[1], false)?;
    let all: Vec<usize> = (0..cx.rank(losses)).collect();
    match n.text("reduction", "mean") {
        "none" => Ok(losses),
        "sum" => cx.reduce(Op::ReduceSum, losses, &all, false),
        "mean" => {
            let sum = cx.reduce(Op::ReduceSum, losses, &all, false)?;
            let axes: Vec<usize> = (0..shape.len()).collect();
            let count = cx.reduce(Op::ReduceSum, weight, &axes, false)?;
            cx.div(sum, count)
        }
        other => refuse(format!("the reduction `{other}`")),
    }
}

pub(crate) fn negative_log_likelihood<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    Ok(smallvec![negative_log(cx, n, n.input(0)?, n.optional(2))?])
}

pub(crate) fn cross_entropy<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let logs = softmax_of(cx, n.input(0)?, &[1], true)?;
    Ok(smallvec![negative_log(cx, n, logs, n.optional(2))?, logs])
}
