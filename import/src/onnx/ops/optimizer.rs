//! Steps of optimizers: each on groups of tensors, one behind the other.

use super::{Cx, LoweredValue, LoweredValues, Node, Unlowered, Val, Vals, refuse};
use adfuse_ir::Op;

/// The groups of the inputs behind the rate and the step, and the results of each by kind.
fn groups<'m>(
    cx: Cx<'_, 'm>,
    n: &Node<'m>,
    kinds: usize,
    mut step: impl FnMut(Cx<'_, 'm>, &[Val]) -> Result<Vec<Val>, Unlowered>,
) -> LoweredValues {
    let all = n.all()?;
    let tensors = all.get(2..).unwrap_or_default();
    if tensors.is_empty() || !tensors.len().is_multiple_of(kinds) {
        return refuse(format!("{} tensors, {kinds} each", tensors.len()));
    }
    let count = tensors.len() / kinds;
    let mut made = Vec::new();
    for k in 0..count {
        let group: Vec<Val> = (0..kinds).map(|j| tensors[j * count + k]).collect();
        made.push(step(cx, &group)?);
    }
    let width = made[0].len();
    Ok((0..width).flat_map(|j| made.iter().map(move |g| g[j])).collect::<Vals>())
}

/// `x * by + y`.
fn scaled_sum(cx: Cx<'_, '_>, x: Val, by: f64, y: Val) -> LoweredValue {
    let x = cx.with(Op::Mul, x, by)?;
    cx.add(x, y)
}

/// Scalars of the type of a tensor.
fn scalar(cx: Cx<'_, '_>, v: Val, like: Val) -> LoweredValue {
    let v = cx.reshape(v, &[])?;
    cx.convert(v, like.element)
}

/// Whether a step is the first.
fn is_first(cx: Cx<'_, '_>, t: Val) -> LoweredValue {
    let t = cx.reshape(t, &[])?;
    let zero = cx.number(t, 0.0);
    cx.map(Op::Le, &[t, zero])
}

pub(crate) fn adagrad<'m>(cx: Cx<'_, 'm>, n: &Node<'m>) -> LoweredValues {
    let (norm, epsilon) = (n.float("norm_coefficient", 0.0), n.float("epsilon", 1e-6));
    let decay = n.float("decay_factor", 0.0);
    let (rate, t) = (n.input(0)?, n.input(1)?);
    groups(cx, n, 3, |cx, group| {
        let [x, g, h] = group[..] else { return refuse("other than three tensors") };
        let (rate, t) = (scalar(cx, rate, x)?, scalar(cx, t, x)?);
        let slower = cx.with(Op::Mul, t, decay)?;
        let slower = cx.with(Op::Add, slower, 1.0)?;
        let rate = cx.div(rate, slower)?;
        let g = scaled_sum(cx, x, norm, g)?;
        let square = cx.mul(g, g)?;
        let h = cx.add(h, square)?;
        let root = cx.unary(Op::Sqrt, h)?;
        let root = cx.with(Op::Add, root, epsilon)?;
        let step = cx.mul(rate, g)?;
        let step = cx.div(step, root)?;
        Ok(vec![cx.sub(x, step)?, h])
    })
}

pub(crate) fn adam<'m>(cx: Cx<'_, 'm>, n: &Node<'m>) -> LoweredValues {
    let (alpha, beta) = (n.float("alpha", 0.9), n.float("beta", 0.999));
    let (norm, after) = (n.float("norm_coefficient", 0.0), n.float("norm_coefficient_post", 0.0));
    let epsilon = n.float("epsilon", 1e-6);
    let (rate, t) = (n.input(0)?, n.input(1)?);
    groups(cx, n, 4, |cx, group| {
        let [x, g, v, h] = group[..] else { return refuse("other than four tensors") };
        let g = scaled_sum(cx, x, norm, g)?;
        let part = cx.with(Op::Mul, g, 1.0 - alpha)?;
        let v = scaled_sum(cx, v, alpha, part)?;
        let square = cx.mul(g, g)?;
        let part = cx.with(Op::Mul, square, 1.0 - beta)?;
        let h = scaled_sum(cx, h, beta, part)?;
        let root = cx.unary(Op::Sqrt, h)?;
        let root = cx.with(Op::Add, root, epsilon)?;
        // Momentums begin at 0, which is made up for but in the first step.
        let plain = scalar(cx, rate, x)?;
        let steps = scalar(cx, t, x)?;
        let left = |cx: Cx<'_, '_>, base: f64| {
            let base = cx.number(steps, base);
            let power = cx.map(Op::Pow, &[base, steps])?;
            let one = cx.number(power, 1.0);
            cx.sub(one, power)
        };
        let (of_beta, of_alpha) = (left(cx, beta)?, left(cx, alpha)?);
        let of_beta = cx.unary(Op::Sqrt, of_beta)?;
        let adjusted = cx.mul(plain, of_beta)?;
        let adjusted = cx.div(adjusted, of_alpha)?;
        let first = is_first(cx, t)?;
        let rate = cx.select(first, plain, adjusted)?;
        let step = cx.div(v, root)?;
        let step = cx.mul(rate, step)?;
        let x = cx.sub(x, step)?;
        let x = if after == 0.0 { x } else { cx.with(Op::Mul, x, 1.0 - after)? };
        Ok(vec![x, v, h])
    })
}

pub(crate) fn momentum<'m>(cx: Cx<'_, 'm>, n: &Node<'m>) -> LoweredValues {
    let (alpha, beta) = (n.float("alpha", 0.0), n.float("beta", 0.0));
    let norm = n.float("norm_coefficient", 0.0);
    let nesterov = match n.text("mode", "standard") {
        "standard" => false,
        "nesterov" => true,
        other => return refuse(format!("the mode `{other}`")),
    };
    let (rate, t) = (n.input(0)?, n.input(1)?);
    groups(cx, n, 3, |cx, group| {
        let [x, g, v] = group[..] else { return refuse("other than three tensors") };
        let g = scaled_sum(cx, x, norm, g)?;
        let first = is_first(cx, t)?;
        let (one, beta) =
            (cx.numbers(x.element, &[], &[1.0])?, cx.numbers(x.element, &[], &[beta])?);
        let factor = cx.select(first, one, beta)?;
        let part = cx.mul(g, factor)?;
        let v = scaled_sum(cx, v, alpha, part)?;
        let moves = if nesterov { scaled_sum(cx, v, alpha, g)? } else { v };
        let rate = scalar(cx, rate, x)?;
        let step = cx.mul(rate, moves)?;
        Ok(vec![cx.sub(x, step)?, v])
    })
}
