//! Graphs in nodes: branches and loops.

use super::super::proto::GraphProto;
use super::{
    Cx, ElementType, I64, LoweredValues, OnnxLowering, OnnxOperation, Unlowered, Val, Vals,
    axis_of, refuse,
};
use adfuse_ir::{Attrs, DType, Dim, Literal, Op, Region, TensorType, Value};

/// A region that `body` fills, and what it gives.
fn region<'m>(
    cx: Cx<'_, 'm>,
    body: impl FnOnce(&mut OnnxLowering<'m>) -> Result<Vec<Val>, Unlowered>,
) -> Result<(Region, Vec<Val>), Unlowered> {
    let region = cx.b.open_region();
    let results = body(cx);
    let values: Vec<Value> = results.iter().flatten().map(|v| cx.b.materialize(v.value)).collect();
    cx.b.close_region(&values);
    Ok((region, results?))
}

fn types(cx: Cx<'_, '_>, all: &[Val]) -> Vec<TensorType> {
    all.iter().map(|v| cx.b.ty(v.value).clone()).collect()
}

/// Values as operands of loops have them: with instructions of their own.
fn full(cx: Cx<'_, '_>, all: &[Val]) -> Vec<Val> {
    all.iter().map(|&v| Val { value: cx.b.materialize(v.value), ..v }).collect()
}

fn params(cx: Cx<'_, '_>, like: &[Val]) -> Vec<Val> {
    let types = types(cx, like);
    like.iter().zip(types).map(|(&v, ty)| Val { value: cx.b.param(ty, None), ..v }).collect()
}

/// Errs unless values have the types of those that they follow.
fn same_types(cx: Cx<'_, '_>, before: &[Val], after: &[Val]) -> Result<(), Unlowered> {
    for (a, b) in before.iter().zip(after) {
        if a.element != b.element || cx.b.ty(a.value) != cx.b.ty(b.value) {
            let (a, b) = (cx.b.ty(a.value), cx.b.ty(b.value));
            return refuse(format!("a value of {a} that becomes one of {b}"));
        }
    }
    Ok(())
}

/// A condition without axes.
fn scalar(cx: Cx<'_, '_>, v: Val) -> Result<Val, Unlowered> {
    match cx.rank(v) {
        0 => Ok(v),
        _ => cx.reshape(v, &[]),
    }
}

pub(crate) fn branch<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (yes, no) = (n.graph("then_branch")?, n.graph("else_branch")?);
    let condition = scalar(cx, n.input(0)?)?;
    if let Some(c) = cx.known_int(condition) {
        return cx.subgraph(if c != 0 { yes } else { no }, &[]).map(Vals::from_vec);
    }
    let (then, first) = region(cx, |cx| cx.subgraph(yes, &[]))?;
    let (other, second) = region(cx, |cx| cx.subgraph(no, &[]))?;
    if first.len() != second.len() {
        return refuse("branches with other results");
    }
    same_types(cx, &first, &second)?;
    let types = types(cx, &first);
    let results =
        cx.emit_all(Op::Cond, &[condition.value], Attrs::none(), Some(&types), &[then, other])?;
    Ok(first.iter().zip(results).map(|(&v, value)| Val { value, ..v }).collect())
}

/// Whether the body of a loop gives the condition that it was entered with.
fn keeps_condition(body: &GraphProto<'_>) -> bool {
    let (Some(given), Some(result)) = (body.inputs.get(1), body.outputs.first()) else {
        return false;
    };
    let mut name = result.name;
    for _ in 0..=body.nodes.len() {
        if name == given.name {
            return true;
        }
        let source = body.nodes.iter().find(|n| n.outputs.first() == Some(&name));
        match source {
            Some(n) if n.op == "Identity" && n.inputs.len() == 1 => name = n.inputs[0],
            _ => return false,
        }
    }
    false
}

/// Whether the body of a loop always gives a constant condition that holds.
fn always_goes_on<'m>(cx: Cx<'_, 'm>, body: &'m GraphProto<'m>) -> bool {
    let Some(result) = body.outputs.first() else { return false };
    let constant = body.initializers.iter().find(|t| t.name == result.name);
    let made = body.nodes.iter().find(|n| n.outputs.first() == Some(&result.name));
    let of_node = made
        .filter(|n| n.op == "Constant")
        .and_then(|n| n.attributes.iter().find(|a| a.name == "value").and_then(|a| a.t.as_deref()));
    let Some(t) = constant.or(of_node) else { return false };
    super::super::tensor::tensor(t, cx.external)
        .is_ok_and(|t| t.literals().len() == 1 && t.literals().all(|l| !l.is_zero()))
}

pub(crate) fn loop_node<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let body = n.graph("body")?;
    let carried: Vec<Val> = (2..n.inputs.len()).map(|k| n.input(k)).collect::<Result<_, _>>()?;
    let carried = full(cx, &carried);
    if body.inputs.len() != carried.len() + 2 || body.outputs.len() <= carried.len() {
        return refuse("a body with other inputs and outputs than the loop");
    }
    let stacked = body.outputs.len() - 1 - carried.len();
    let goes_on = keeps_condition(body) || always_goes_on(cx, body);
    let trips = n.optional(0).map(|v| scalar(cx, v)).transpose()?;
    match (trips, n.optional(1)) {
        (Some(trips), condition) if goes_on => {
            if let Some(c) = condition
                && cx.int(c)? == 0
            {
                return match stacked {
                    0 => Ok(Vals::from_vec(carried)),
                    _ => refuse("results that are stacked, of no steps"),
                };
            }
            counted(cx, body, trips, &carried, stacked)
        }
        (trips, condition) if stacked == 0 => conditional(cx, body, (trips, condition), &carried),
        _ => refuse("results that are stacked, of a number of steps that is not known"),
    }
}

/// A loop of a number of steps: a scan over their numbers, or where that is computed a counted loop.
fn counted<'m>(
    cx: Cx<'_, 'm>,
    body: &'m GraphProto<'m>,
    trips: Val,
    carried: &[Val],
    stacked: usize,
) -> LoweredValues {
    let one = cx.filled(ElementType::Bool, &[], Literal::one(DType::Bool));
    let trips = cx.convert(trips, I64)?;
    let known = match cx.shape_elements(trips) {
        Ok(all) => all.first().copied(),
        Err(_) if stacked == 0 => None,
        Err(why) => return Err(why),
    };
    let step = |cx: &mut OnnxLowering<'m>, at: Val, inner: &[Val]| {
        let all: Vec<Val> = [at, one].into_iter().chain(inner.iter().copied()).collect();
        let results = cx.subgraph(body, &all)?;
        same_types(cx, inner, &results[1..])?;
        Ok(results[1..].to_vec())
    };
    let Some(length) = known else {
        let (made, results) = region(cx, |cx| {
            let at = Val { element: I64, value: cx.b.param(TensorType::scalar(DType::I64), None) };
            let inner = params(cx, carried);
            step(cx, at, &inner)
        })?;
        let zero = cx.number(trips, 0.0);
        let operands: Vec<Value> =
            [zero.value, trips.value].into_iter().chain(carried.iter().map(|v| v.value)).collect();
        let types = types(cx, carried);
        let values = cx.emit_all(Op::Fori, &operands, Attrs::none(), Some(&types), &[made])?;
        return Ok(results.iter().zip(values).map(|(&v, value)| Val { value, ..v }).collect());
    };
    let length = match length {
        Ok(n) => Dim::Const(n.max(0) as u64),
        Err(d) => d,
    };
    let places = cx.iota(I64, &[length], 0)?;
    scanned(cx, carried, &[places], length, |cx, inner, elements| step(cx, elements[0], inner))
}

/// A scan over one value or more: `step` is given the carried values and an element of each scanned one, and gives the
/// next carried values and what is stacked.
pub(crate) fn scanned<'m>(
    cx: Cx<'_, 'm>,
    carried: &[Val],
    over: &[Val],
    length: Dim,
    step: impl FnOnce(&mut OnnxLowering<'m>, &[Val], &[Val]) -> Result<Vec<Val>, Unlowered>,
) -> LoweredValues {
    let (carried, over) = (full(cx, carried), full(cx, over));
    let (made, results) = region(cx, |cx| {
        let inner = params(cx, &carried);
        let mut elements = Vec::new();
        for &v in &over {
            let shape = cx.shape(v);
            let ty = TensorType::new(v.element.storage(), shape.iter().skip(1).copied());
            elements.push(Val { value: cx.b.param(ty, None), ..v });
        }
        step(cx, &inner, &elements)
    })?;
    if results.len() < carried.len() {
        return refuse("a body with fewer results than values that it carries");
    }
    same_types(cx, &carried, &results)?;
    let mut all = types(cx, &results);
    for ty in &mut all[carried.len()..] {
        ty.shape.insert(0, length);
    }
    let attrs = Attrs::none().with_int("carry", carried.len() as i64);
    let operands: Vec<Value> = carried.iter().chain(&over).map(|v| v.value).collect();
    let values = cx.emit_all(Op::Scan, &operands, attrs, Some(&all), &[made])?;
    Ok(results.iter().zip(values).map(|(&v, value)| Val { value, ..v }).collect())
}

/// A loop that ends by its condition, or after a number of steps.
fn conditional<'m>(
    cx: Cx<'_, 'm>,
    body: &'m GraphProto<'m>,
    (trips, condition): (Option<Val>, Option<Val>),
    carried: &[Val],
) -> LoweredValues {
    let shape: [Dim; 0] = [];
    let zero = cx.filled(I64, &shape, Literal::zero(DType::I64));
    let holds = match condition {
        Some(c) => scalar(cx, c)?,
        None => cx.filled(ElementType::Bool, &shape, Literal::one(DType::Bool)),
    };
    let start: Vec<Val> = [zero, holds].into_iter().chain(carried.iter().copied()).collect();
    let start = full(cx, &start);
    let (test, _) = region(cx, |cx| {
        let inner = params(cx, &start);
        let Some(trips) = trips else { return Ok(vec![inner[1]]) };
        let trips = cx.convert(trips, I64)?;
        let more = cx.map(Op::Lt, &[inner[0], trips])?;
        Ok(vec![cx.map(Op::And, &[inner[1], more])?])
    })?;
    let (made, _) = region(cx, |cx| {
        let inner = params(cx, &start);
        let mut results = cx.subgraph(body, &inner)?;
        results[0] = scalar(cx, results[0])?;
        same_types(cx, &inner[1..], &results)?;
        let next = cx.with(Op::Add, inner[0], 1.0)?;
        results.insert(0, next);
        Ok(results)
    })?;
    let operands: Vec<Value> = start.iter().map(|v| v.value).collect();
    let types = types(cx, &start);
    let values = cx.emit_all(Op::While, &operands, Attrs::none(), Some(&types), &[test, made])?;
    Ok(start.iter().zip(values).skip(2).map(|(&v, value)| Val { value, ..v }).collect())
}

/// A number for each of a list, 0 where there is none.
fn numbers(n: &OnnxOperation<'_>, name: &'static str, count: usize) -> Result<Vec<i64>, Unlowered> {
    match n.ints(name) {
        None => Ok(vec![0; count]),
        Some(all) if all.len() == count => Ok(all.to_vec()),
        Some(all) => refuse(format!("`{name}` of {} numbers for {count}", all.len())),
    }
}

/// Axis number `from` moved to place `to`.
fn moved(cx: Cx<'_, '_>, v: Val, from: usize, to: usize) -> Result<Val, Unlowered> {
    let mut perm: Vec<usize> = (0..cx.rank(v)).collect();
    let axis = perm.remove(from);
    perm.insert(to, axis);
    cx.transpose(v, &perm)
}

pub(crate) fn scan<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    if n.version < 9 {
        return refuse("scans of batches, before version 9");
    }
    let (body, count) = (n.graph("body")?, n.int("num_scan_inputs", 0).max(0) as usize);
    let all = n.all()?;
    let Some(states) = all.len().checked_sub(count).filter(|_| count > 0) else {
        return refuse(format!("{count} scanned inputs of {}", all.len()));
    };
    let Some(outputs) = body.outputs.len().checked_sub(states) else {
        return refuse("a body with fewer results than values that it carries");
    };
    let axes = numbers(n, "scan_input_axes", count)?;
    let turned = numbers(n, "scan_input_directions", count)?;
    let out_axes = numbers(n, "scan_output_axes", outputs)?;
    let out_turned = numbers(n, "scan_output_directions", outputs)?;
    let mut over = Vec::new();
    for (k, &v) in all[states..].iter().enumerate() {
        let axis = axis_of(axes[k], cx.rank(v))?;
        let v = moved(cx, v, axis, 0)?;
        over.push(if turned[k] == 1 { cx.reverse(v, [0])? } else { v });
    }
    let length = cx.shape(over[0])[0];
    let mut results = scanned(cx, &all[..states], &over, length, |cx, inner, elements| {
        let params: Vec<Val> = inner.iter().chain(elements).copied().collect();
        cx.subgraph(body, &params)
    })?;
    for k in 0..outputs {
        let v = results[states + k];
        let v = if out_turned[k] == 1 { cx.reverse(v, [0])? } else { v };
        let axis = axis_of(out_axes[k], cx.rank(v))?;
        results[states + k] = moved(cx, v, 0, axis)?;
    }
    Ok(results)
}
