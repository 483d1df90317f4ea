//! Ops on each element: functions, arithmetic, comparisons, conversions.

use super::super::tensor::element_type;
use super::{
    Cx, ElementType, I64, LoweredValue, LoweredValues, OnnxOperation, Unlowered, Val, axis_of,
    refuse,
};
use adfuse_ir::{Attrs, DType, Literal, Op, TensorType};
use smallvec::smallvec;

/// The operands. Before version 7 an attribute may name the axis of the first one at which the axes of the second begin.
fn aligned(cx: Cx<'_, '_>, n: &OnnxOperation<'_>) -> Result<Vec<Val>, Unlowered> {
    let mut all = n.all()?;
    if n.version >= 7 {
        return Ok(all);
    }
    n.ignore(&["broadcast", "consumed_inputs"]);
    if let (true, [x, y]) = (n.has("axis"), &mut all[..]) {
        let rank = cx.rank(*x);
        let end = axis_of(n.int("axis", 0), rank)? + cx.rank(*y);
        for _ in end..rank {
            *y = cx.unsqueeze(*y, cx.rank(*y))?;
        }
    }
    Ok(all)
}

/// One op of the IR on operands that broadcast.
pub(crate) fn map<'m>(cx: Cx<'_, 'm>, op: Op, n: &OnnxOperation<'m>) -> LoweredValues {
    let all = aligned(cx, n)?;
    let two = matches!(
        op,
        Op::Add
            | Op::Sub
            | Op::Mul
            | Op::Div
            | Op::And
            | Op::Or
            | Op::Xor
            | Op::Eq
            | Op::Lt
            | Op::Le
            | Op::Gt
            | Op::Ge
    );
    if all.len() != 1 + usize::from(two) {
        return refuse(format!("{} inputs", all.len()));
    }
    Ok(smallvec![cx.map(op, &all)?])
}

/// A fold of an op over all inputs.
pub(crate) fn fold<'m>(cx: Cx<'_, 'm>, op: Op, n: &OnnxOperation<'m>) -> LoweredValues {
    let all = n.all()?;
    let [first, ref rest @ ..] = all[..] else { return refuse("no inputs") };
    let mut folded = first;
    for &v in rest {
        folded = cx.map(op, &[folded, v])?;
    }
    Ok(smallvec![folded])
}

pub(crate) fn mean<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let sum = fold(cx, Op::Add, n)?[0];
    let count = cx.number(sum, n.inputs.len() as f64);
    Ok(smallvec![cx.div(sum, count)?])
}

/// Nothing happens to unsigned numbers.
pub(crate) fn abs<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    match x.element {
        ElementType::Int { signed: false, .. } => Ok(smallvec![x]),
        _ => map(cx, Op::Abs, n),
    }
}

pub(crate) fn reciprocal<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let one = cx.number(x, 1.0);
    Ok(smallvec![cx.div(one, x)?])
}

pub(crate) fn identity<'m>(_: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    Ok(smallvec![n.input(0)?])
}

/// Without training nothing is dropped.
pub(crate) fn dropout<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    n.ignore(&["seed", "ratio", "is_test"]);
    let (x, ratio, training) = (n.input(0)?, n.optional(1), n.optional(2));
    let trains = match training {
        Some(t) => cx.int(t)? != 0,
        None => false,
    };
    let keeps_all = match ratio.filter(|_| trains) {
        Some(r) => cx.floats(r)? == [0.0],
        None => !trains,
    };
    if !keeps_all {
        return refuse("random numbers");
    }
    let shape = cx.shape(x);
    let mask = cx.filled(ElementType::Bool, &shape, Literal::one(DType::Bool));
    Ok(smallvec![x, mask])
}

/// `x` where it is above 0, something else below.
fn below_zero<'m>(
    cx: Cx<'_, 'm>,
    x: Val,
    below: impl FnOnce(Cx<'_, 'm>, Val) -> LoweredValue,
) -> LoweredValue {
    let zero = cx.number(x, 0.0);
    let negative = cx.map(Op::Lt, &[x, zero])?;
    let other = below(cx, x)?;
    cx.select(negative, other, x)
}

pub(crate) fn leaky_relu<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let alpha = n.float("alpha", 0.01);
    Ok(smallvec![below_zero(cx, n.input(0)?, |cx, x| cx.with(Op::Mul, x, alpha))?])
}

pub(crate) fn prelu<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let slope = n.input(1)?;
    let x = n.input(0)?;
    let shape = cx.shape(x);
    let slope = cx.expand(slope, &shape)?;
    Ok(smallvec![below_zero(cx, x, |cx, x| cx.mul(x, slope))?])
}

/// `x` where it is above 0, `alpha (e^x - 1)` below.
fn elu_of(cx: Cx<'_, '_>, x: Val, alpha: f64) -> LoweredValue {
    below_zero(cx, x, |cx, x| {
        let e = cx.unary(Op::Expm1, x)?;
        cx.with(Op::Mul, e, alpha)
    })
}

pub(crate) fn elu<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let alpha = n.float("alpha", 1.0);
    Ok(smallvec![elu_of(cx, n.input(0)?, alpha)?])
}

pub(crate) fn selu<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let alpha = n.float("alpha", 1.673_263_2);
    let gamma = n.float("gamma", 1.050_701);
    let y = elu_of(cx, n.input(0)?, alpha)?;
    Ok(smallvec![cx.with(Op::Mul, y, gamma)?])
}

pub(crate) fn celu<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let alpha = n.float("alpha", 1.0);
    Ok(smallvec![below_zero(cx, n.input(0)?, |cx, x| {
        let scaled = cx.with(Op::Div, x, alpha)?;
        let e = cx.unary(Op::Expm1, scaled)?;
        cx.with(Op::Mul, e, alpha)
    })?])
}

/// `min(max(alpha x + beta, 0), 1)`.
fn hard(cx: Cx<'_, '_>, x: Val, alpha: f64, beta: f64) -> LoweredValue {
    let y = cx.with(Op::Mul, x, alpha)?;
    let y = cx.with(Op::Add, y, beta)?;
    let y = cx.with(Op::Max, y, 0.0)?;
    cx.with(Op::Min, y, 1.0)
}

pub(crate) fn hard_sigmoid<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (alpha, beta) = (n.float("alpha", 0.2), n.float("beta", 0.5));
    Ok(smallvec![hard(cx, n.input(0)?, alpha, beta)?])
}

pub(crate) fn hard_swish<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let gate = hard(cx, x, 1.0 / 6.0, 0.5)?;
    Ok(smallvec![cx.mul(x, gate)?])
}

/// `log(1 + e^x)`.
pub(crate) fn softplus_of(cx: Cx<'_, '_>, x: Val) -> LoweredValue {
    let zero = cx.number(x, 0.0);
    cx.map(Op::Logaddexp, &[x, zero])
}

pub(crate) fn softplus<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    Ok(smallvec![softplus_of(cx, n.input(0)?)?])
}

/// `x / (1 + |x|)`.
pub(crate) fn softsign_of(cx: Cx<'_, '_>, x: Val) -> LoweredValue {
    let size = cx.unary(Op::Abs, x)?;
    let size = cx.with(Op::Add, size, 1.0)?;
    cx.div(x, size)
}

pub(crate) fn softsign<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    Ok(smallvec![softsign_of(cx, n.input(0)?)?])
}

pub(crate) fn mish<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let gate = softplus_of(cx, x)?;
    let gate = cx.unary(Op::Tanh, gate)?;
    Ok(smallvec![cx.mul(x, gate)?])
}

/// `x * sigmoid(alpha x)`.
pub(crate) fn swish_of(cx: Cx<'_, '_>, x: Val, alpha: f64) -> LoweredValue {
    let gate = if alpha == 1.0 { x } else { cx.with(Op::Mul, x, alpha)? };
    let gate = cx.unary(Op::Logistic, gate)?;
    cx.mul(x, gate)
}

pub(crate) fn swish<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let alpha = n.float("alpha", 1.0);
    Ok(smallvec![swish_of(cx, n.input(0)?, alpha)?])
}

pub(crate) fn gelu<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let inner = match n.text("approximate", "none") {
        "none" => {
            let scaled = cx.with(Op::Mul, x, std::f64::consts::FRAC_1_SQRT_2)?;
            cx.unary(Op::Erf, scaled)?
        }
        "tanh" => {
            let square = cx.mul(x, x)?;
            let cube = cx.mul(square, x)?;
            let cube = cx.with(Op::Mul, cube, 0.044715)?;
            let sum = cx.add(x, cube)?;
            let sum = cx.with(Op::Mul, sum, (2.0 / std::f64::consts::PI).sqrt())?;
            cx.unary(Op::Tanh, sum)?
        }
        other => return refuse(format!("the approximation `{other}`")),
    };
    let gate = cx.with(Op::Add, inner, 1.0)?;
    let half = cx.with(Op::Mul, x, 0.5)?;
    Ok(smallvec![cx.mul(half, gate)?])
}

pub(crate) fn thresholded_relu<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, alpha) = (n.input(0)?, n.float("alpha", 1.0));
    let (zero, limit) = (cx.number(x, 0.0), cx.number(x, alpha));
    let above = cx.map(Op::Gt, &[x, limit])?;
    Ok(smallvec![cx.select(above, x, zero)?])
}

pub(crate) fn shrink<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, bias, lambda) = (n.input(0)?, n.float("bias", 0.0), n.float("lambd", 0.5));
    let (zero, limit) = (cx.number(x, 0.0), cx.number(x, lambda));
    let negative = cx.number(x, -lambda);
    let (less, more) = (cx.with(Op::Sub, x, bias)?, cx.with(Op::Add, x, bias)?);
    let above = cx.map(Op::Gt, &[x, limit])?;
    let below = cx.map(Op::Lt, &[x, negative])?;
    let inner = cx.select(below, more, zero)?;
    Ok(smallvec![cx.select(above, less, inner)?])
}

pub(crate) fn clip<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let mut x = n.input(0)?;
    if n.version < 11 {
        n.ignore(&["consumed_inputs"]);
        let (low, high) = (n.float("min", f32::MIN), n.float("max", f32::MAX));
        x = cx.with(Op::Max, x, low)?;
        return Ok(smallvec![cx.with(Op::Min, x, high)?]);
    }
    if let Some(low) = n.optional(1) {
        x = cx.map(Op::Max, &[x, low])?;
    }
    if let Some(high) = n.optional(2) {
        x = cx.map(Op::Min, &[x, high])?;
    }
    Ok(smallvec![x])
}

/// A power in the type of its base; numbers of two types meet in that of the floats.
pub(crate) fn pow<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let [x, y] = aligned(cx, n)?[..] else { return refuse("other than two inputs") };
    if x.element.is_int() && y.element.is_float() {
        let wide = cx.convert(x, y.element)?;
        let power = cx.map(Op::Pow, &[wide, y])?;
        return Ok(smallvec![cx.convert(power, x.element)?]);
    }
    // A known whole exponent is a product, whose derivative is right below 0 too.
    if x.element.is_float() && cx.rank(y) == 0 && cx.b.func().literal(y.value).is_some() {
        let exponent = cx.floats(y)?[0];
        if exponent == 2.0 || exponent == 3.0 {
            let attrs = Attrs::none().with_int("y", exponent as i64);
            let full = cx.b.materialize(x.value);
            return Ok(smallvec![Val { value: cx.emit(Op::IntegerPow, &[full], attrs)?, ..x }]);
        }
    }
    let y = cx.convert(y, x.element)?;
    Ok(smallvec![cx.map(Op::Pow, &[x, y])?])
}

/// A remainder with the sign of the divisor, or with `fmod` that of the dividend.
pub(crate) fn modulo<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let all = cx.broadcast(&n.all()?)?;
    let [x, y] = all[..] else { return refuse("other than two inputs") };
    let rest = cx.map(Op::Rem, &[x, y])?;
    if n.flag("fmod", false) || matches!(x.element, ElementType::Int { signed: false, .. }) {
        return Ok(smallvec![rest]);
    }
    let zero = cx.number(x, 0.0);
    let there = cx.map(Op::Ne, &[rest, zero])?;
    let negative = cx.map(Op::Lt, &[rest, zero])?;
    let below = cx.map(Op::Lt, &[y, zero])?;
    let differs = cx.map(Op::Ne, &[negative, below])?;
    let moves = cx.map(Op::And, &[there, differs])?;
    let moved = cx.add(rest, y)?;
    Ok(smallvec![cx.select(moves, moved, rest)?])
}

pub(crate) fn bit_shift<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let signed = n.input(0)?.element.is_signed();
    let op = match n.text("direction", "") {
        "LEFT" => Op::ShiftLeft,
        "RIGHT" if signed => Op::ShiftRightArithmetic,
        "RIGHT" => Op::ShiftRightLogical,
        other => return refuse(format!("the direction `{other}`")),
    };
    Ok(smallvec![cx.map(op, &[n.input(0)?, n.input(1)?])?])
}

/// NaN alone differs from itself.
pub(crate) fn is_nan<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    Ok(smallvec![cx.map(Op::Ne, &[x, x])?])
}

pub(crate) fn is_inf<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let wanted = (n.flag("detect_positive", true), n.flag("detect_negative", true));
    let (infinity, negative) = (cx.number(x, f64::INFINITY), cx.number(x, f64::NEG_INFINITY));
    let found = match wanted {
        (true, true) => {
            let size = cx.unary(Op::Abs, x)?;
            cx.map(Op::Eq, &[size, infinity])?
        }
        (true, false) => cx.map(Op::Eq, &[x, infinity])?,
        (false, true) => cx.map(Op::Eq, &[x, negative])?,
        (false, false) => {
            let shape = cx.shape(x);
            cx.filled(ElementType::Bool, &shape, Literal::zero(DType::Bool))
        }
    };
    Ok(smallvec![found])
}

pub(crate) fn choose<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    Ok(smallvec![cx.select(n.input(0)?, n.input(1)?, n.input(2)?)?])
}

/// The element type that an attribute names, if it does.
pub(crate) fn named_type(
    n: &OnnxOperation<'_>,
    name: &'static str,
    default: ElementType,
) -> Result<ElementType, Unlowered> {
    match n.int(name, 0) {
        0 => Ok(default),
        number => element_type(number).or_else(refuse),
    }
}

pub(crate) fn cast<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    n.ignore(&["saturate", "round_mode"]);
    let x = n.input(0)?;
    let to = named_type(n, "to", x.element)?;
    Ok(smallvec![converted(cx, x, to)?])
}

/// The same numbers in another type; integers keep their low bits.
fn converted(cx: Cx<'_, '_>, x: Val, to: ElementType) -> LoweredValue {
    // Floats reach narrow integers by way of wide ones.
    if x.element.is_float() && to.is_int() && to.bits() < 32 {
        let wide = cx.convert(x, I64)?;
        return cx.convert(wide, to);
    }
    cx.convert(x, to)
}

pub(crate) fn cast_like<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    n.ignore(&["saturate", "round_mode"]);
    let to = n.input(1)?.element;
    Ok(smallvec![converted(cx, n.input(0)?, to)?])
}

pub(crate) fn bit_cast<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let to = named_type(n, "to", x.element)?;
    if x.element == to {
        return Ok(smallvec![x]);
    }
    let (from, into) = (x.element.storage(), to.storage());
    let narrow = x.element.is_promoted() || to.is_promoted();
    if narrow && x.element.is_int() && to.is_int() && x.element.bits() == to.bits() {
        return Ok(smallvec![cx.convert(x, to)?]);
    }
    if x.element == ElementType::Bool && to.is_int() && to.bits() == 8 {
        return Ok(smallvec![cx.convert(x, to)?]);
    }
    if narrow || [x.element, to].contains(&ElementType::Bool) || from.bits() != into.bits() {
        return refuse(format!("bits of {} as {to}", x.element));
    }
    if from == into {
        return Ok(smallvec![Val { element: to, ..x }]);
    }
    let ty: TensorType = cx.b.ty(x.value).with_dtype(into);
    let full = cx.b.materialize(x.value);
    let value = cx.emit_as(Op::BitcastConvert, &[full], Attrs::none(), &ty)?;
    Ok(smallvec![Val { element: to, value }])
}

pub(crate) fn binarizer<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, threshold) = (n.input(0)?, n.float("threshold", 0.0));
    let limit = cx.number(x, threshold);
    let above = cx.map(Op::Gt, &[x, limit])?;
    Ok(smallvec![cx.convert(above, x.element)?])
}

/// The swish of one input, times the other.
pub(crate) fn swiglu<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (gate, x) = (n.input(0)?, n.input(1)?);
    let alpha = n.float("alpha", 1.0);
    let gate = swish_of(cx, gate, alpha)?;
    Ok(smallvec![cx.mul(gate, x)?])
}
