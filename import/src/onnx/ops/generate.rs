//! What is made of numbers, shapes and places: constants, ranges, diagonals.

use super::elementwise::named_type;
use super::shape::known_shape;
use super::{Cx, F32, I64, LoweredValue, LoweredValues, OnnxOperation, refuse};
use adfuse_ir::{DType, Dim, Literal, Op};
use smallvec::smallvec;

pub(crate) fn constant<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    if let Some(t) = n.tensor("value") {
        return Ok(smallvec![cx.tensor(t)?]);
    }
    let made = if let Some(a) = n.attribute("value_float") {
        cx.numbers(F32, &[], &[f64::from(a.f.unwrap_or(0.0))])?
    } else if let Some(a) = n.attribute("value_int") {
        let all = cx.int_list(&[a.i.unwrap_or(0)])?;
        cx.reshape(all, &[])?
    } else if let Some(all) = n.floats("value_floats") {
        cx.numbers(F32, &[all.len() as u64], &all)?
    } else if let Some(all) = n.ints("value_ints") {
        cx.int_list(all)?
    } else {
        return refuse("a constant that is no tensor");
    };
    Ok(smallvec![made])
}

/// A one-dimensional value of extents.
fn extents_value(cx: Cx<'_, '_>, shape: &[Dim]) -> LoweredValue {
    let known: Option<Vec<i64>> = shape.iter().map(|d| d.known().map(|n| n as i64)).collect();
    if let Some(all) = known {
        return cx.int_list(&all);
    }
    let mut parts = Vec::new();
    for &d in shape {
        let one = cx.extent_value(d)?;
        parts.push(cx.reshape_to(one, &[1])?);
    }
    cx.concat(&parts, 0)
}

pub(crate) fn shape<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let shape = cx.shape(n.input(0)?);
    let rank = shape.len() as i64;
    let place = |k: i64| (if k < 0 { k.saturating_add(rank) } else { k }).clamp(0, rank) as usize;
    let (from, to) = (place(n.int("start", 0)), place(n.int("end", i64::MAX)));
    Ok(smallvec![extents_value(cx, &shape[from..to.max(from)])?])
}

pub(crate) fn size<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let one = cx.filled(I64, &[], Literal::one(DType::I64));
    let all: Vec<usize> = (0..cx.rank(x)).collect();
    Ok(smallvec![cx.count(x, &all, one)?])
}

pub(crate) fn constant_of_shape<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let wanted = n.input(0)?;
    let shape = known_shape(cx, wanted)?;
    let value = match n.tensor("value") {
        Some(t) => {
            let v = cx.tensor(t)?;
            cx.reshape(v, &[])?
        }
        None => cx.numbers(F32, &[], &[0.0])?,
    };
    Ok(smallvec![cx.expand(value, &shape)?])
}

pub(crate) fn range<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    n.ignore(&["stash_type"]);
    let all = n.all()?;
    let [from, to, step] = all[..] else { return refuse("other than three inputs") };
    // A range up to an extent that is a symbol counts its places.
    if let (Some(0), Some(1), Ok([Err(d)])) =
        (cx.known_int(from), cx.known_int(step), cx.shape_elements(to).as_deref())
    {
        return Ok(smallvec![cx.iota(from.element, &[*d], 0)?]);
    }
    let count = if from.element.is_float() {
        let (a, b, s) = (cx.floats(from)?, cx.floats(to)?, cx.floats(step)?);
        let ([a], [b], [s]) = (&a[..], &b[..], &s[..]) else { return refuse("other than numbers") };
        ((b - a) / s).ceil()
    } else {
        let (a, b, s) = (cx.int(from)?, cx.int(to)?, cx.int(step)?);
        if s == 0 {
            return refuse("a step of 0");
        }
        let (span, size) = (i128::from(b) - i128::from(a), i128::from(s));
        ((span + size - size.signum()) / size) as f64
    };
    let count = if count > 0.0 { count.min(1e15) as u64 } else { 0 };
    let shape = [Dim::Const(count)];
    let places = cx.iota(from.element, &shape, 0)?;
    let (step, from) = (cx.expand(step, &shape)?, cx.expand(from, &shape)?);
    let steps = cx.mul(places, step)?;
    Ok(smallvec![cx.add(from, steps)?])
}

pub(crate) fn eye_like<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let x = n.input(0)?;
    let (element, k) = (named_type(n, "dtype", x.element)?, n.int("k", 0));
    let shape = cx.shape(x);
    if shape.len() != 2 {
        return refuse("other than two axes");
    }
    let (rows, columns) = (cx.iota(I64, &shape, 0)?, cx.iota(I64, &shape, 1)?);
    let rows = cx.with(Op::Add, rows, k as f64)?;
    let diagonal = cx.map(Op::Eq, &[rows, columns])?;
    Ok(smallvec![cx.convert(diagonal, element)?])
}

pub(crate) fn trilu<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, upper) = (n.input(0)?, n.flag("upper", true));
    let shape = cx.shape(x);
    let rank = shape.len();
    if rank < 2 {
        return refuse("fewer than two axes");
    }
    let tail = &shape[rank - 2..];
    let (rows, columns) = (cx.iota(I64, tail, 0)?, cx.iota(I64, tail, 1)?);
    let mut away = cx.sub(columns, rows)?;
    if let Some(k) = n.optional(1) {
        let k = cx.reshape(k, &[])?;
        away = cx.sub(away, k)?;
    }
    let zero = cx.number(away, 0.0);
    let stays = cx.map(if upper { Op::Ge } else { Op::Le }, &[away, zero])?;
    let nothing = cx.number(x, 0.0);
    Ok(smallvec![cx.select(stays, x, nothing)?])
}
