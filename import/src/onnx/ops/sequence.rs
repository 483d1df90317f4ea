//! Layers that carry a state along a sequence, and go on from that of an earlier call.

use super::attention::{repeat_heads, split_heads};
use super::control::scanned;
use super::elementwise::swish_of;
use super::window::{convolved, with_bias};
use super::{Cx, F32, LoweredValue, LoweredValues, OnnxOperation, Unlowered, Val, refuse};
use adfuse_ir::{Dim, Literal, Op};
use smallvec::smallvec;

/// A convolution of each channel by itself, over elements up to its place; the state is the elements before the first.
pub(crate) fn causal_conv<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, w) = (n.input(0)?, n.input(1)?);
    let (shape, kernel) = (cx.shape(x), cx.extents(w)?);
    let [channels, 1, taps] = kernel[..] else { return refuse("a kernel of other axes") };
    if shape.len() != 3 || taps == 0 {
        return refuse("other than three axes");
    }
    let before = match n.optional(3) {
        Some(state) => state,
        None => {
            let zero = Literal::zero(x.element.storage());
            cx.filled(x.element, &[shape[0], shape[1], Dim::Const(taps - 1)], zero)
        }
    };
    let padded = if taps == 1 { x } else { cx.concat(&[before, x], 2)? };
    let mut y = convolved(cx, n, padded, w, Some(channels as i64))?;
    y = with_bias(cx, y, n.optional(2))?;
    y = match n.text("activation", "none") {
        "none" => y,
        "silu" | "swish" => swish_of(cx, y, 1.0)?,
        other => return refuse(format!("the activation `{other}`")),
    };
    let length = cx.extent(cx.shape(padded)[2])?;
    let Some(first) = length.checked_sub(taps - 1) else {
        return refuse("a state of too few elements");
    };
    let state = cx.slice(padded, 2, first, length)?;
    Ok(smallvec![y, state])
}

/// Steps first: `[batch, heads, steps, depth]` to `[steps, batch, heads, depth]`.
fn steps_first(cx: Cx<'_, '_>, v: Val) -> LoweredValue {
    cx.transpose(v, &[2, 0, 1, 3])
}

/// Attention without a softmax: a matrix of keys times values is carried along, and each query reads it.
pub(crate) fn linear_attention<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    n.ignore(&["chunk_size"]);
    let (q_heads, heads) = (n.int("q_num_heads", 0), n.int("kv_num_heads", 0));
    let (gates, corrects) = match n.text("update_rule", "gated_delta") {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return refuse(format!("the rule `{other}`")),
    };
    if heads <= 0 || q_heads % heads.max(1) != 0 || q_heads < heads {
        return refuse(format!("{q_heads} heads of {heads}"));
    }
    let element = n.input(0)?.element;
    let mut over = Vec::new();
    for (k, of) in [(0, q_heads), (1, heads), (2, heads)] {
        let v = cx.convert(n.input(k)?, F32)?;
        let v = split_heads(cx, v, of)?;
        over.push(steps_first(cx, v)?);
    }
    for (k, present) in [(4, gates), (5, corrects)] {
        if present {
            let v = cx.convert(n.input(k)?, F32)?;
            let wide = cx.shape(v).last().map_or(Ok(0), |&d| cx.extent(d))?;
            let v = split_heads(cx, v, if wide < heads as u64 { 1 } else { heads })?;
            over.push(steps_first(cx, v)?);
        }
    }
    let (shape, width) = (cx.shape(over[1]), cx.shape(over[2])[3]);
    let scale = match n.float("scale", 0.0) {
        0.0 => 1.0 / (cx.extent(shape[3])? as f64).sqrt(),
        scale => scale,
    };
    let (state, kept) = match n.optional(3) {
        Some(state) => (cx.convert(state, F32)?, state.element),
        None => {
            let zero = Literal::zero(F32.storage());
            (cx.filled(F32, &[shape[1], shape[2], shape[3], width], zero), element)
        }
    };
    let rule = UpdateRule { gates, corrects, scale, times: (q_heads / heads) as u64 };
    let run = scanned(cx, &[state], &over, shape[0], |cx, inner, at| rule.step(cx, inner[0], at))?;
    let y = cx.transpose(run[1], &[1, 0, 2, 3])?;
    let shape = cx.shape(y);
    let hidden = cx.extent(shape[2])? * cx.extent(shape[3])?;
    let y = cx.reshape(y, &[shape[0], shape[1], Dim::Const(hidden)])?;
    Ok(smallvec![cx.convert(y, element)?, cx.convert(run[0], kept)?])
}

/// How a state is updated and read.
struct UpdateRule {
    gates: bool,
    corrects: bool,
    scale: f64,
    times: u64,
}

impl UpdateRule {
    fn step(&self, cx: Cx<'_, '_>, state: Val, at: &[Val]) -> Result<Vec<Val>, Unlowered> {
        let (q, k, mut v, mut state) = (at[0], at[1], at[2], state);
        let mut rest = at[3..].iter().copied();
        if let Some(decay) = rest.next().filter(|_| self.gates) {
            let decay = cx.unary(Op::Exp, decay)?;
            let decay = cx.unsqueeze(decay, 3)?;
            state = cx.mul(state, decay)?;
        }
        let column = cx.unsqueeze(k, 3)?;
        if self.corrects {
            let Some(beta) = at.last().copied() else { return refuse("without its factor") };
            let read = cx.mul(state, column)?;
            let read = cx.reduce(Op::ReduceSum, read, &[2], false)?;
            let away = cx.sub(v, read)?;
            v = cx.mul(away, beta)?;
        }
        let row = cx.unsqueeze(v, 2)?;
        let written = cx.mul(column, row)?;
        state = cx.add(state, written)?;
        let seen = repeat_heads(cx, state, self.times)?;
        let q = cx.unsqueeze(q, 3)?;
        let read = cx.mul(q, seen)?;
        let read = cx.reduce(Op::ReduceSum, read, &[2], false)?;
        let y = cx.with(Op::Mul, read, self.scale)?;
        Ok(vec![state, y])
    }
}
