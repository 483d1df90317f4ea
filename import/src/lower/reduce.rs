//! Reductions: one whose function is an op of the IR becomes that reduction, argmax and argmin are recognized, and any
//! other function is applied to neighbouring elements until one is left.

use super::attributes::need_list;
use super::context::{LoweredValues, ModuleLowering, Val, Vals};
use super::elementwise::{apply, convert_to};
use crate::emit::element::ElementType;
use crate::emit::integers::ordered;
use crate::emit::refusal::{Unlowered, refuse};
use crate::text::tree::{Attribute, Instruction, RegionTree};
use adfuse_ir::{Attrs, Dim, Literal, Op, TensorType, Value, ValueDef};
use smallvec::smallvec;

/// A function of two elements that the IR reduces by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Combiner {
    Add,
    Mul,
    Max,
    Min,
    And,
    Or,
    /// The second operand.
    Second,
}

/// The function of an op by name.
fn combine_of(op: &str) -> Option<Combiner> {
    match op.strip_prefix("stablehlo.")? {
        "add" => Some(Combiner::Add),
        "multiply" => Some(Combiner::Mul),
        "maximum" => Some(Combiner::Max),
        "minimum" => Some(Combiner::Min),
        "and" => Some(Combiner::And),
        "or" => Some(Combiner::Or),
        _ => None,
    }
}

impl Combiner {
    /// On truth values a sum is a disjunction, and a product a conjunction.
    pub(crate) fn on(self, element: ElementType) -> Combiner {
        match (self, element) {
            (Combiner::Add | Combiner::Max, ElementType::Bool) => Combiner::Or,
            (Combiner::Mul | Combiner::Min, ElementType::Bool) => Combiner::And,
            (c, _) => c,
        }
    }

    /// The op that combines two elements.
    pub(crate) fn op(self) -> Option<Op> {
        match self {
            Combiner::Add => Some(Op::Add),
            Combiner::Mul => Some(Op::Mul),
            Combiner::Max => Some(Op::Max),
            Combiner::Min => Some(Op::Min),
            Combiner::And => Some(Op::And),
            Combiner::Or => Some(Op::Or),
            Combiner::Second => None,
        }
    }

    /// The value that changes nothing.
    pub(crate) fn neutral(self, element: ElementType) -> Option<Literal> {
        match self {
            Combiner::Add | Combiner::Or => Some(Literal::zero(element.storage())),
            Combiner::Mul => Some(Literal::one(element.storage())),
            Combiner::Max => Some(element.least()),
            Combiner::Min => Some(element.greatest()),
            Combiner::And => Some(element.of_bits(u64::MAX)),
            Combiner::Second => None,
        }
    }

    fn reduction(self) -> Option<Op> {
        match self {
            Combiner::Add => Some(Op::ReduceSum),
            Combiner::Mul => Some(Op::ReduceProd),
            Combiner::Max => Some(Op::ReduceMax),
            Combiner::Min => Some(Op::ReduceMin),
            Combiner::And => Some(Op::ReduceAnd),
            Combiner::Or => Some(Op::ReduceOr),
            Combiner::Second => None,
        }
    }
}

/// What a region of two parameters computes, where that is one op.
pub(crate) fn recognized(region: &RegionTree<'_>) -> Option<Combiner> {
    let [a, b] = &region.params[..] else { return None };
    match &region.insts[..] {
        [ret] if ret.operands.len() == 1 && ret.operands[0].name == b.name => {
            Some(Combiner::Second)
        }
        [inst, ret] => {
            let [(name, 1)] = inst.results[..] else { return None };
            let returned = ret.operands.len() == 1 && ret.operands[0].name == name;
            let args: Vec<&str> = inst.operands.iter().map(|o| o.name).collect();
            let both = args == [a.name, b.name] || args == [b.name, a.name];
            combine_of(inst.op).filter(|_| returned && both)
        }
        _ => None,
    }
}

pub(crate) fn reduce<'t>(cx: &mut ModuleLowering<'t>, inst: &'t Instruction<'t>) -> LoweredValues {
    let axes = need_list(inst, &["dimensions"])?;
    let args = cx.operands(inst)?;
    if args.is_empty() || !args.len().is_multiple_of(2) {
        return refuse("operands without an initial value each");
    }
    let (xs, inits) = args.split_at(args.len() / 2);
    if let Some(Attribute::Word(op)) =
        inst.words.iter().find(|w| matches!(w, Attribute::Word(w) if w.contains('.')))
    {
        let Some(combine) = combine_of(op) else { return refuse(format!("applies {op}")) };
        return Ok(smallvec![by_op(cx, combine, xs[0], inits[0], &axes)?]);
    }
    let [region] = &inst.regions[..] else { return refuse("other than one region") };
    if let (Some(combine), [x]) = (recognized(region).filter(|&c| c != Combiner::Second), xs) {
        return Ok(smallvec![by_op(cx, combine, *x, inits[0], &axes)?]);
    }
    if let Some(found) = arg_extremum(cx, region, xs, &axes)? {
        return Ok(found);
    }
    fold(cx, region, xs, inits, &axes)
}

/// A reduction of the IR, and its result combined with the initial value where that changes something.
pub(crate) fn by_op(
    cx: &mut ModuleLowering<'_>,
    combine: Combiner,
    x: Val,
    init: Val,
    axes: &[i64],
) -> Result<Val, Unlowered> {
    let combine = combine.on(x.element);
    let (Some(op), Some(each)) = (combine.reduction(), combine.op()) else {
        return refuse("no reduction");
    };
    let given = cx.b.func().literal(init.value);
    let from_nothing = given.is_some() && given == combine.neutral(x.element);
    if !from_nothing
        && matches!(combine, Combiner::Add | Combiner::Mul)
        && let Some(value) = super::short::fold_from(cx, (each, x, init), axes)?
    {
        return Ok(Val { value, ..x });
    }
    let attrs = Attrs::none().with_ints("axes", axes.iter().copied());
    let full = cx.b.materialize(x.value);
    let mut value = if matches!(combine, Combiner::Max | Combiner::Min) {
        let signed = ordered(cx, x.element, full)?;
        let best = cx.emit(op, &[signed], attrs)?;
        ordered(cx, x.element, best)?
    } else {
        cx.emit(op, &[full], attrs)?
    };
    value = crate::emit::integers::wrap(cx, x.element, value)?;
    let result = Val { value, ..x };
    if from_nothing {
        return Ok(result);
    }
    let shape = cx.b.ty(value).clone();
    let init = cx.splat(init, &shape)?;
    apply(cx, each, &[init, result])
}

/// `argmax` and `argmin` as JAX writes them: the extremum and its first place, NaN before all.
fn arg_extremum<'t>(
    cx: &mut ModuleLowering<'t>,
    region: &'t RegionTree<'t>,
    xs: &[Val],
    axes: &[i64],
) -> Result<Option<Vals>, Unlowered> {
    let (&[x, places], &[axis]) = (xs, axes) else { return Ok(None) };
    let counts = match cx.b.func().def(places.value) {
        ValueDef::Inst(i, _) => {
            let f = cx.b.func();
            f.op(i) == Op::Iota && f.attrs(i).int("axis") == axis
        }
        _ => false,
    };
    let Some(largest) = extremum_form(region).filter(|_| counts && !x.element.is_u64()) else {
        return Ok(None);
    };
    let extent = cx.b.ty(x.value).shape.get(axis as usize).copied();
    if extent.is_none_or(|n| n == Dim::Const(0)) || x.element == ElementType::Bool {
        return Ok(None);
    }
    let (arg, best) =
        if largest { (Op::Argmax, Op::ReduceMax) } else { (Op::Argmin, Op::ReduceMin) };
    let full = cx.b.materialize(x.value);
    let value = cx.emit(best, &[full], Attrs::none().with_ints("axes", [axis]))?;
    let place = cx.emit(arg, &[full], Attrs::none().with_int("axis", axis))?;
    let place = Val { element: ElementType::I32, value: place };
    let place = convert_to(cx, place, places.element)?;
    Ok(Some(smallvec![Val { value, ..x }, place]))
}

/// Whether a region is that of argmax (`true`) or of argmin: `x > y || x != x`, then the smaller place of equal ones.
fn extremum_form(region: &RegionTree<'_>) -> Option<bool> {
    let [x, i, y, j] = region.params.iter().map(|p| p.name).collect::<Vec<_>>().try_into().ok()?;
    let (last, insts) = region.insts.split_last()?;
    let found = |want: &str, a: &str, b: &str| {
        insts.iter().find(|inst| {
            let direction = super::elementwise::direction(inst).ok().map(|(op, _)| op.name());
            let kind = if inst.op == "stablehlo.compare" {
                direction
            } else {
                inst.op.strip_prefix("stablehlo.")
            };
            let args: Vec<&str> = inst.operands.iter().map(|o| o.name).collect();
            kind == Some(want) && args == [a, b]
        })
    };
    let name = |inst: &Instruction<'_>| inst.results.first().map(|r| r.0.to_string());
    let (larger, greater) = (found("gt", x, y), found("lt", x, y));
    let first = larger.or(greater).and_then(name)?;
    // Elements without NaN need no test for it.
    let picked = match found("ne", x, x).and_then(name) {
        Some(nan) => found("or", &first, &nan).and_then(name)?,
        None => first,
    };
    let (same, before) = (found("eq", x, y).and_then(name)?, found("lt", i, j).and_then(name)?);
    let tie = found("and", &same, &before).and_then(name)?;
    let place = found("or", &picked, &tie).and_then(name)?;
    let chosen = |p: &str, a: &str, b: &str| {
        let all = insts.iter().find(|inst| {
            inst.op == "stablehlo.select" && inst.operands.iter().map(|o| o.name).eq([p, a, b])
        });
        all.and_then(name)
    };
    let results = [chosen(&picked, x, y)?, chosen(&place, i, j)?];
    let returned = last.operands.iter().map(|o| o.name).eq(results.iter().map(String::as_str));
    // Of places only the comparison `lt` is there, so that of values decides.
    let direction = larger.is_some();
    (returned && insts.len() <= 9).then_some(direction)
}

/// Any function: neighbours are combined, in order, until one element is left; then the initial value with it.
pub(crate) fn fold<'t>(
    cx: &mut ModuleLowering<'t>,
    region: &'t RegionTree<'t>,
    xs: &[Val],
    inits: &[Val],
    axes: &[i64],
) -> LoweredValues {
    let mut rows: Vec<Val> = Vec::new();
    for &x in xs {
        rows.push(flattened(cx, x, axes)?);
    }
    let dims = cx.dims(rows[0])?;
    let mut n = dims[0];
    let kept = TensorType::of(rows[0].element.storage(), &dims[1..]);
    let mut result: Vec<Val> = Vec::new();
    for &init in inits {
        result.push(cx.splat(init, &kept)?);
    }
    while n > 1 {
        let pairs = n / 2;
        let part = |cx: &mut ModuleLowering<'t>, x: Val, start: u64, limit: u64, stride: u64| {
            rows_of(cx, x, (start, limit, stride))
        };
        let mut args = Vec::new();
        for first in 0..2 {
            for &x in &rows {
                args.push(part(cx, x, first, 2 * pairs, 2)?);
            }
        }
        let combined = cx.elements(region, &args)?;
        let mut next = Vec::new();
        for (&x, &pair) in rows.iter().zip(&combined) {
            let mut value = cx.b.materialize(pair.value);
            if !n.is_multiple_of(2) {
                let rest = part(cx, x, n - 1, n, 1)?;
                value = cx.emit(
                    Op::Concatenate,
                    &[value, rest.value],
                    Attrs::none().with_int("axis", 0),
                )?;
            }
            next.push(Val { value, ..pair });
        }
        rows = next;
        n = n.div_ceil(2);
    }
    if n == 1 {
        for &x in &rows {
            let ty = kept.with_dtype(x.element.storage());
            let value = cx.emit_as(Op::Reshape, &[x.value], Attrs::none(), &ty)?;
            result.push(Val { value, ..x });
        }
        return cx.elements(region, &result);
    }
    Ok(result.into_iter().collect())
}

/// Every `stride`th row from `start` to before `limit`.
fn rows_of(
    cx: &mut ModuleLowering<'_>,
    x: Val,
    (start, limit, stride): (u64, u64, u64),
) -> Result<Val, Unlowered> {
    let dims = cx.dims(x)?;
    let of = |first: u64, others: &dyn Fn(u64) -> u64| -> Vec<i64> {
        std::iter::once(first)
            .chain(dims[1..].iter().map(|&d| others(d)))
            .map(|d| d as i64)
            .collect()
    };
    let attrs = Attrs::none()
        .with_ints("start", of(start, &|_| 0))
        .with_ints("limit", of(limit, &|d| d))
        .with_ints("stride", of(stride, &|_| 1));
    Ok(Val { value: cx.emit(Op::Slice, &[x.value], attrs)?, ..x })
}

/// The tensor with these axes first, as one.
fn flattened(cx: &mut ModuleLowering<'_>, x: Val, axes: &[i64]) -> Result<Val, Unlowered> {
    let dims = cx.dims(x)?;
    if axes.iter().any(|&a| a < 0 || a as usize >= dims.len()) {
        return refuse(format!("axes {axes:?} of {}", cx.b.ty(x.value)));
    }
    let others = (0..dims.len() as i64).filter(|d| !axes.contains(d));
    let perm: Vec<i64> = axes.iter().copied().chain(others).collect();
    let rows = axes.iter().map(|&a| dims[a as usize]).product();
    let kept = perm[axes.len()..].iter().map(|&d| Dim::Const(dims[d as usize]));
    let ty = TensorType::new(x.element.storage(), std::iter::once(Dim::Const(rows)).chain(kept));
    let full: Value = cx.b.materialize(x.value);
    let value = cx.emit(Op::Transpose, &[full], Attrs::none().with_ints("perm", perm))?;
    Ok(Val { value: cx.emit_as(Op::Reshape, &[value], Attrs::none(), &ty)?, ..x })
}

/// A function of elements applied to whole tensors.
pub(crate) fn map_region<'t>(
    cx: &mut ModuleLowering<'t>,
    inst: &'t Instruction<'t>,
) -> LoweredValues {
    let args = cx.operands(inst)?;
    match (&inst.regions[..], args.is_empty()) {
        ([region], false) => cx.elements(region, &args),
        _ => refuse("other than one region, or no operands"),
    }
}
