//! Attention and what belongs to it.

use super::super::tensor::element_type;
use super::norm::softmax_of;
use super::{
    Cx, ElementType, I64, LoweredValue, LoweredValues, OnnxOperation, Unlowered, Val, refuse,
};
use adfuse_ir::{DType, Dim, Literal, Op, Shape};
use smallvec::smallvec;

/// Heads of the last axis of three as an axis before the rows.
pub(crate) fn split_heads(cx: Cx<'_, '_>, x: Val, heads: i64) -> LoweredValue {
    let shape = cx.shape(x);
    if shape.len() != 3 {
        return Ok(x);
    }
    let hidden = cx.extent(shape[2])?;
    let Some(heads) = u64::try_from(heads).ok().filter(|&h| h > 0 && hidden.is_multiple_of(h))
    else {
        return refuse(format!("{heads} heads of {hidden}"));
    };
    let split = [shape[0], shape[1], Dim::Const(heads), Dim::Const(hidden / heads)];
    let x = cx.reshape(x, &split)?;
    cx.transpose(x, &[0, 2, 1, 3])
}

/// The reverse of [`split_heads`].
pub(crate) fn join_heads(cx: Cx<'_, '_>, x: Val) -> LoweredValue {
    let x = cx.transpose(x, &[0, 2, 1, 3])?;
    let shape = cx.shape(x);
    let hidden = cx.extent(shape[2])? * cx.extent(shape[3])?;
    cx.reshape(x, &[shape[0], shape[1], Dim::Const(hidden)])
}

/// Each head this many times, one copy behind the other; heads are axis 1.
pub(crate) fn repeat_heads(cx: Cx<'_, '_>, x: Val, times: u64) -> LoweredValue {
    if times == 1 {
        return Ok(x);
    }
    let mut shape = cx.shape(x);
    let heads = cx.extent(shape[1])?;
    shape.insert(2, Dim::Const(times));
    let dims: Vec<i64> = (0..shape.len() as i64).filter(|&d| d != 2).collect();
    let x = cx.broadcast_in(x, &shape, &dims)?;
    shape.remove(2);
    shape[1] = Dim::Const(heads * times);
    cx.reshape(x, &shape)
}

/// What is added to scores, and whether some row may see no key at all.
struct Bias {
    value: Option<Val>,
    hides_rows: bool,
}

impl Bias {
    fn and(&mut self, cx: Cx<'_, '_>, more: Val) -> Result<(), Unlowered> {
        self.value = Some(match self.value {
            None => more,
            Some(old) => cx.add(old, more)?,
        });
        Ok(())
    }
}

/// 0 where a condition holds, negative infinity elsewhere.
fn hidden_where_not(cx: Cx<'_, '_>, condition: Val, element: ElementType) -> LoweredValue {
    let number = |x: f64| Literal::from_f64(element.storage(), x);
    let (zero, least) =
        (cx.filled(element, &[], number(0.0)), cx.filled(element, &[], number(f64::NEG_INFINITY)));
    cx.select(condition, zero, least)
}

/// A mask as something to add, as wide as there are keys.
fn of_mask(cx: Cx<'_, '_>, mask: Val, keys: Dim, element: ElementType) -> LoweredValue {
    let mut bias = match mask.element {
        ElementType::Bool => hidden_where_not(cx, mask, element)?,
        _ => cx.convert(mask, element)?,
    };
    let rank = cx.rank(bias);
    let width = cx.shape(bias).last().copied();
    if let (Some(Dim::Const(have)), Dim::Const(keys)) = (width, keys)
        && have < keys
        && rank > 0
    {
        let (low, mut high) = (vec![0; rank], vec![0; rank]);
        high[rank - 1] = (keys - have) as i64;
        let least = Literal::from_f64(element.storage(), f64::NEG_INFINITY);
        let full = cx.b.materialize(bias.value);
        bias = cx.pad(Val { value: full, ..bias }, least, &low, &high)?;
    }
    Ok(bias)
}

/// The rows and keys of scores: what the places of both are.
struct Scores {
    rows: Dim,
    keys: Dim,
    element: ElementType,
    /// Keys before the first row, of all batches or of each.
    offset: Val,
    /// Whether the offset may be below 0.
    by_batch: bool,
}

impl Scores {
    /// The place of each row among the keys, minus that of each key.
    fn distance(&self, cx: Cx<'_, '_>) -> LoweredValue {
        let plane = [self.rows, self.keys];
        let (i, j) = (cx.iota(I64, &plane, 0)?, cx.iota(I64, &plane, 1)?);
        let away = cx.sub(i, j)?;
        cx.add(away, self.offset)
    }

    fn bias(&self, cx: Cx<'_, '_>, n: &OnnxOperation<'_>) -> Result<Bias, Unlowered> {
        let mut bias = Bias { value: None, hides_rows: self.by_batch };
        if let Some(mask) = n.optional(3) {
            let more = of_mask(cx, mask, self.keys, self.element)?;
            bias.and(cx, more)?;
            bias.hides_rows = true;
        }
        let (left, right) = (n.int("left_window_size", -1), n.int("right_window_size", -1));
        let causal = n.flag("is_causal", false);
        if causal || left >= 0 || right >= 0 {
            let away = self.distance(cx)?;
            let mut sees = None;
            let mut limit = |cx: Cx<'_, '_>, op: Op, than: i64| -> Result<(), Unlowered> {
                let than = cx.number(away, than as f64);
                let holds = cx.map(op, &[away, than])?;
                sees = Some(match sees {
                    None => holds,
                    Some(old) => cx.map(Op::And, &[old, holds])?,
                });
                Ok(())
            };
            if causal {
                limit(cx, Op::Ge, 0)?;
            }
            if left >= 0 {
                limit(cx, Op::Le, left)?;
                bias.hides_rows = true;
            }
            if right >= 0 {
                limit(cx, Op::Ge, -right)?;
            }
            if let Some(sees) = sees {
                let more = hidden_where_not(cx, sees, self.element)?;
                bias.and(cx, more)?;
            }
        }
        if let Some(lengths) = n.optional(6) {
            let lengths = cx.convert(lengths, I64)?;
            let shape = [cx.shape(lengths)[0], Dim::Const(1), Dim::Const(1), self.keys];
            let at = cx.iota(I64, &shape, 3)?;
            let lengths = cx.broadcast_in(lengths, &shape, &[0])?;
            let there = cx.map(Op::Lt, &[at, lengths])?;
            let more = hidden_where_not(cx, there, self.element)?;
            bias.and(cx, more)?;
        }
        Ok(bias)
    }
}

/// A softmax in which a row without keys is 0.
fn guarded(cx: Cx<'_, '_>, x: Val, bias: Val) -> LoweredValue {
    let last = cx.rank(x) - 1;
    let most = cx.reduce(Op::ReduceMax, x, &[last], true)?;
    let (zero, least) = (cx.number(most, 0.0), cx.number(most, f64::NEG_INFINITY));
    let nothing = cx.map(Op::Eq, &[most, least])?;
    let shift = cx.select(nothing, zero, most)?;
    let moved = cx.sub(x, shift)?;
    let powers = cx.unary(Op::Exp, moved)?;
    let sum = cx.reduce(Op::ReduceSum, powers, &[last], true)?;
    let (zero, one) = (cx.number(sum, 0.0), cx.number(sum, 1.0));
    let empty = cx.map(Op::Eq, &[sum, zero])?;
    let sum = cx.select(empty, one, sum)?;
    let weights = cx.div(powers, sum)?;
    let axis = cx.rank(bias) - 1;
    let open = cx.reduce(Op::ReduceMax, bias, &[axis], true)?;
    let least = cx.number(open, f64::NEG_INFINITY);
    let hidden = cx.map(Op::Eq, &[open, least])?;
    let zero = cx.number(weights, 0.0);
    cx.select(hidden, zero, weights)
}

/// The products of queries and keys, scaled.
fn scores_of(cx: Cx<'_, '_>, q: Val, k: Val, scale: f64) -> LoweredValue {
    // Floats of 16 bits have room for half of the scale on either side, as the op is defined.
    let narrow = matches!(q.element, ElementType::Float(DType::F16 | DType::BF16));
    let (of_q, of_k) = if narrow { (scale.sqrt(), scale.sqrt()) } else { (scale, 1.0) };
    let q = cx.with(Op::Mul, q, of_q)?;
    let scaled = if narrow { cx.with(Op::Mul, k, of_k)? } else { k };
    let turned = cx.transpose(scaled, &[0, 1, 3, 2])?;
    cx.matmul(q, turned)
}

pub(crate) fn attention<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (q, k, v) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let joined = cx.rank(q) == 3;
    let (heads, groups) = (n.int("q_num_heads", 0), n.int("kv_num_heads", 0));
    let q = split_heads(cx, q, heads)?;
    let (mut k, mut v) = (split_heads(cx, k, groups)?, split_heads(cx, v, groups)?);
    if [q, k, v].iter().any(|&x| cx.rank(x) != 4) {
        return refuse("other than three or four axes");
    }
    let element = q.element;
    let mut offset = cx.filled(I64, &[], Literal::zero(DType::I64));
    if let (Some(keys), Some(values)) = (n.optional(4), n.optional(5)) {
        if cx.rank(keys) != 4 || cx.rank(values) != 4 {
            return refuse("keys of an earlier call with other than four axes");
        }
        offset = cx.extent_value(cx.shape(keys)[2])?;
        (k, v) = (cx.concat(&[keys, k], 2)?, cx.concat(&[values, v], 2)?);
    }
    let present = (k, v);
    let (rows, keys) = (cx.shape(q)[2], cx.shape(k)[2]);
    let by_batch = n.optional(6).is_some();
    if n.optional(6).is_some_and(|l| cx.rank(l) != 1)
        || n.optional(3).is_some_and(|m| cx.rank(m) == 0)
    {
        return refuse("a mask or lengths of other axes");
    }
    if let Some(lengths) = n.optional(6) {
        let lengths = cx.convert(lengths, I64)?;
        let batch = cx.shape(lengths)[0];
        let lengths = cx.reshape(lengths, &[batch, Dim::Const(1), Dim::Const(1), Dim::Const(1)])?;
        let count = cx.extent_value(rows)?;
        offset = cx.sub(lengths, count)?;
    }
    let (of_q, of_k) = (cx.extent(cx.shape(q)[1])?, cx.extent(cx.shape(k)[1])?);
    if of_k == 0 || !of_q.is_multiple_of(of_k) {
        return refuse(format!("{of_q} heads of {of_k} groups"));
    }
    (k, v) = (repeat_heads(cx, k, of_q / of_k)?, repeat_heads(cx, v, of_q / of_k)?);
    let depth = cx.extent(cx.shape(q)[3])?;
    let scale = match n.has("scale") {
        true => n.float("scale", 1.0),
        false => 1.0 / (depth as f64).sqrt(),
    };
    let mut scores = scores_of(cx, q, k, scale)?;
    let mode = n.int("qk_matmul_output_mode", 0);
    let mut shown = scores;
    let softcap = n.float("softcap", 0.0);
    if softcap > 0.0 {
        let inner = cx.with(Op::Div, scores, softcap)?;
        let inner = cx.unary(Op::Tanh, inner)?;
        scores = cx.with(Op::Mul, inner, softcap)?;
    }
    shown = if mode == 1 { scores } else { shown };
    let bias = Scores { rows, keys, element, offset, by_batch }.bias(cx, n)?;
    if let Some(bias) = bias.value {
        scores = cx.add(scores, bias)?;
    }
    shown = if mode == 2 { scores } else { shown };
    let precise = match n.int("softmax_precision", 0) {
        0 => element,
        number => element_type(number).or_else(refuse)?,
    };
    let wide = cx.convert(scores, precise)?;
    let weights = match bias.value.filter(|_| bias.hides_rows) {
        Some(bias) => guarded(cx, wide, bias)?,
        None => softmax_of(cx, wide, &[3], false)?,
    };
    let weights = cx.convert(weights, element)?;
    shown = if mode == 3 { weights } else { shown };
    let mut y = cx.matmul(weights, v)?;
    if joined {
        y = join_heads(cx, y)?;
    }
    Ok(smallvec![y, present.0, present.1, shown])
}

/// Pairs of elements turned by angles: those of each row, or of the places that are given.
pub(crate) fn rotary<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, mut cos, mut sin) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let joined = cx.rank(x) == 3;
    let y = split_heads(cx, x, n.int("num_heads", 0))?;
    if let Some(at) = n.optional(3) {
        (cos, sin) =
            (super::indirect::take(cx, cos, at, 0)?, super::indirect::take(cx, sin, at, 0)?);
    }
    let (cos, sin) = (cx.unsqueeze(cos, 1)?, cx.unsqueeze(sin, 1)?);
    let shape = cx.shape(y);
    if shape.len() != 4 {
        return refuse("other than three or four axes");
    }
    let size = cx.extent(shape[3])?;
    let turned = match n.int("rotary_embedding_dim", 0) {
        0 => size,
        d => u64::try_from(d).ok().filter(|&d| d <= size).unwrap_or(size),
    };
    let rest = if turned < size { Some(cx.slice(y, 3, turned, size)?) } else { None };
    let part = cx.slice(y, 3, 0, turned)?;
    let (half, pairs) = (turned / 2, n.flag("interleaved", false));
    let (a, b) = if pairs {
        let split: Shape =
            shape[..3].iter().copied().chain([Dim::Const(half), Dim::Const(2)]).collect();
        let part = cx.reshape(part, &split)?;
        (cx.index_axis(part, 4, 0)?, cx.index_axis(part, 4, 1)?)
    } else {
        (cx.slice(part, 3, 0, half)?, cx.slice(part, 3, half, turned)?)
    };
    let (ca, sb) = (cx.mul(cos, a)?, cx.mul(sin, b)?);
    let (sa, cb) = (cx.mul(sin, a)?, cx.mul(cos, b)?);
    let (real, imaginary) = (cx.sub(ca, sb)?, cx.add(sa, cb)?);
    let mut y = if pairs {
        let (real, imaginary) = (cx.unsqueeze(real, 4)?, cx.unsqueeze(imaginary, 4)?);
        let both = cx.concat(&[real, imaginary], 4)?;
        let mut whole = shape.clone();
        whole[3] = Dim::Const(turned);
        cx.reshape(both, &whole)?
    } else {
        cx.concat(&[real, imaginary], 3)?
    };
    if let Some(rest) = rest {
        y = cx.concat(&[y, rest], 3)?;
    }
    Ok(smallvec![if joined { join_heads(cx, y)? } else { y }])
}
