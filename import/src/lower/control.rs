//! Control flow, calls, and custom calls.

use super::attributes::{find, number};
use super::context::{
    Compare, LoweredNumbers, LoweredValues, ModuleLowering, Val, Vals, written_type,
};
use super::extents;
use super::number::{
    ImportedNumber, ImportedNumbers, NumberType, numbers_of, value_types, values_of,
};
use crate::emit::element::ElementType;
use crate::emit::refusal::{Unlowered, refuse};
use crate::text::tree::{Attribute, FunctionTree, Instruction, RegionTree};
use adfuse_ir::{Attr as IrAttr, Attrs, Literal, Op, TensorType, Value, ValueDef};
use smallvec::smallvec;

/// The types of all results.
fn result_types(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
) -> Result<Vec<NumberType>, Unlowered> {
    (0..inst.result_count()).map(|k| cx.number_type(written_type(inst, k)?)).collect()
}

/// The types of numbers.
fn types_of(cx: &ModuleLowering<'_>, numbers: &[ImportedNumber]) -> Vec<NumberType> {
    let of = |n: &ImportedNumber| NumberType {
        element: n.re.element,
        ty: cx.b.ty(n.re.value).clone(),
        complex: n.im.is_some(),
    };
    numbers.iter().map(of).collect()
}

/// A region of the IR that is entered with values of these types.
fn region<'t>(
    cx: &mut ModuleLowering<'t>,
    tree: &'t RegionTree<'t>,
    entered: &[NumberType],
) -> Result<adfuse_ir::Region, Unlowered> {
    if cx.lift.is_some() {
        return refuse("control flow in a function of elements");
    }
    if tree.params.len() != entered.len() {
        return refuse(format!(
            "a region of {} parameters, not {}",
            tree.params.len(),
            entered.len()
        ));
    }
    let made = cx.b.open_region();
    let params: Vec<Option<ImportedNumber>> = tree
        .params
        .iter()
        .zip(entered)
        .map(|(param, ty)| Some(cx.parameter(param.name, ty)))
        .collect();
    let results = cx.block(tree, &params);
    cx.b.close_region(&values_of(results.as_deref().unwrap_or_default()));
    results.map(|_| made)
}

pub(crate) fn while_loop<'t>(
    cx: &mut ModuleLowering<'t>,
    inst: &'t Instruction<'t>,
) -> LoweredNumbers {
    let args = cx.numbers(inst)?;
    let [test, body] = &inst.regions[..] else { return refuse("other than two regions") };
    let types = types_of(cx, &args);
    let test = region(cx, test, &types);
    let body = region(cx, body, &types);
    let declared = value_types(&types);
    let results =
        cx.emit_all(Op::While, &values_of(&args), Attrs::none(), Some(&declared), &[test?, body?])?;
    Ok(numbers_of(&types, results))
}

pub(crate) fn branch<'t>(cx: &mut ModuleLowering<'t>, inst: &'t Instruction<'t>) -> LoweredNumbers {
    let p = cx.operand(inst, 0)?;
    let made: Vec<_> = inst.regions.iter().map(|r| region(cx, r, &[])).collect();
    let regions: Vec<adfuse_ir::Region> = made.into_iter().collect::<Result<_, _>>()?;
    let types = branch_types(cx, inst, &regions)?;
    let last = regions.len() as i64 - 1;
    let (op, chosen) = match inst.op {
        "stablehlo.if" => (Op::Cond, p.value),
        _ => {
            // An index that is no branch's number is the last branch's, below 0 too.
            let zero = cx.literal_like(p.value, Literal::zero(p.element.storage()));
            let most = cx.literal_like(p.value, Literal::from_i64(p.element.storage(), last));
            let below = cx.op(Op::Lt, &[p.value, zero])?;
            (Op::Switch, cx.op(Op::SelectN, &[below, p.value, most])?)
        }
    };
    let declared = value_types(&types);
    let results = cx.emit_all(op, &[chosen], Attrs::none(), Some(&declared), &regions)?;
    Ok(numbers_of(&types, results))
}

/// The types of a branch's results: as they are written, or those of the first region where an extent is not.
fn branch_types(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
    regions: &[adfuse_ir::Region],
) -> Result<Vec<NumberType>, Unlowered> {
    let written: Vec<_> =
        (0..inst.result_count()).map(|k| written_type(inst, k)).collect::<Result<_, _>>()?;
    let (Some(first), true) = (regions.first(), written.iter().any(|ty| ty.is_dynamic())) else {
        return result_types(cx, inst);
    };
    let mut results = cx.b.func().region(*first).results.clone().into_iter();
    let mut types = Vec::new();
    for ty in written {
        let Some(value) = results.next() else { return refuse("a branch with fewer results") };
        let shape = cx.b.ty(value).shape.clone();
        types.push(cx.number_type_at(ty, &shape)?);
        if ty.is_complex() {
            results.next();
        }
    }
    Ok(types)
}

pub(crate) fn call<'t>(cx: &mut ModuleLowering<'t>, inst: &'t Instruction<'t>) -> LoweredNumbers {
    match (inst.symbol, inst.attr("callee")) {
        (Some(name), _) => call_of(cx, inst, name),
        (None, Some(Attribute::Symbol(name))) => call_of(cx, inst, name),
        _ => refuse("without a callee"),
    }
}

/// A function with a name of its own, computed as its decomposition says.
pub(crate) fn composite<'t>(
    cx: &mut ModuleLowering<'t>,
    inst: &'t Instruction<'t>,
) -> LoweredNumbers {
    match inst.attr("decomposition") {
        Some(Attribute::Symbol(name)) => call_of(cx, inst, name),
        _ => refuse("without a decomposition"),
    }
}

fn call_of<'t>(
    cx: &mut ModuleLowering<'t>,
    inst: &'t Instruction<'t>,
    name: &str,
) -> LoweredNumbers {
    let (callee, name) = cx.callee(name)?;
    // In a function of elements operands have its shape.
    let args: ImportedNumbers = match cx.lift.is_some() {
        true => cx.operands(inst)?.into_iter().map(ImportedNumber::from).collect(),
        false => cx.numbers(inst)?,
    };
    if args.len() != callee.body.params.len() {
        return refuse(format!(
            "{} operands for {} parameters",
            args.len(),
            callee.body.params.len()
        ));
    }
    let rectifier = is_rectifier(callee);
    let in_place = match cx.lift {
        None => takes_a_slice(callee) || extents::is_dynamic(callee) || rectifier,
        Some(_) => !args.is_empty(),
    };
    if in_place {
        cx.enter()?;
        let params: Vec<Option<ImportedNumber>> = args.iter().copied().map(Some).collect();
        let results = cx.block(&callee.body, &params);
        cx.leave();
        let results = results?;
        return match results[..] {
            [ImportedNumber { re, im: None }] if rectifier => Ok(vec![rectified(cx, re)?.into()]),
            _ => Ok(results),
        };
    }
    for (given, param) in types_of(cx, &args).iter().zip(&callee.body.params) {
        if *given != cx.number_type(&param.ty)? {
            return refuse(format!("operands of other types than the parameters of @{name}"));
        }
    }
    let types = result_types(cx, inst)?;
    let values: Vec<Value> = values_of(&args).into_iter().map(|v| cx.b.materialize(v)).collect();
    let attrs = Attrs::none().with("func", IrAttr::Func(name));
    let results = cx.emit_all(Op::Call, &values, attrs, Some(&value_types(&types)), &[])?;
    Ok(numbers_of(&types, results))
}

/// Whether a function is JAX's `relu` or `relu6`, by its name.
fn is_rectifier(f: &FunctionTree<'_>) -> bool {
    let numbered = |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
    let name =
        f.name.rsplit_once('_').filter(|(_, n)| numbered(n)).map_or(f.name, |(name, _)| name);
    f.private && matches!(name, "relu" | "relu6") && f.body.insts.len() <= 8
}

/// `max(x, 0)`, and the minimum of it with a number, as JAX differentiates its functions of these: nothing flows back from
/// elements that are a bound, where `maximum` and `minimum` have half of it.
fn rectified(cx: &mut ModuleLowering<'_>, v: Val) -> Result<Val, Unlowered> {
    let operands = |cx: &ModuleLowering<'_>, v: Value, op: Op| {
        let f = cx.b.func();
        let ValueDef::Inst(i, _) = f.def(v) else { return None };
        match *f.args(i) {
            [x, bound] if f.op(i) == op => Some((x, bound, f.literal(bound)?)),
            _ => None,
        }
    };
    let (inner, bound) = match operands(cx, v.value, Op::Min) {
        Some((inner, bound, _)) => (inner, Some(bound)),
        None => (v.value, None),
    };
    let zero = |(x, _, l): (Value, Value, Literal)| l.is_zero().then_some(x);
    let Some(x) = operands(cx, inner, Op::Max).and_then(zero).filter(|_| v.element.is_float())
    else {
        return Ok(v);
    };
    let mut value = cx.op(Op::Relu, &[x])?;
    if let Some(bound) = bound {
        let beyond = cx.op(Op::Ge, &[x, bound])?;
        value = cx.op(Op::SelectN, &[beyond, value, bound])?;
    }
    Ok(Val { value, ..v })
}

/// Whether a function does little but read or write a slice: loops that call it are recognized by what it does.
fn takes_a_slice(f: &FunctionTree<'_>) -> bool {
    const MOST: usize = 12;
    let slices = |i: &Instruction<'_>| {
        matches!(i.op, "stablehlo.dynamic_slice" | "stablehlo.dynamic_update_slice")
    };
    let straight = |i: &Instruction<'_>| i.regions.is_empty() && i.op != "func.call";
    let insts = &f.body.insts;
    f.private && insts.len() <= MOST && insts.iter().any(slices) && insts.iter().all(straight)
}

/// What a custom call does, by name.
enum Custom {
    /// The operands as they are.
    Identity,
    /// A test's comparison of two operands.
    Check(Compare),
    /// The operand, which nothing flows back to.
    StopGradient,
    /// JAX's check of extents: what of it is known is true, or the text is refused.
    Extents,
}

/// The custom calls that are known.
const CUSTOM: &[(&str, Custom)] = &[
    ("LayoutConstraint", Custom::Identity),
    ("MoveToDevice", Custom::Identity),
    ("MoveToHost", Custom::Identity),
    ("SPMDFullToShardShape", Custom::Identity),
    ("SPMDShardToFullShape", Custom::Identity),
    ("Sharding", Custom::Identity),
    ("adfuse.stop_gradient", Custom::StopGradient),
    ("annotate_device_placement", Custom::Identity),
    ("shape_assertion", Custom::Extents),
    ("check.expect_almost_eq", Custom::Check(Compare::Within(0.001))),
    ("check.expect_close", Custom::Check(Compare::Close)),
    ("check.expect_eq", Custom::Check(Compare::Equal)),
];

pub(crate) fn custom_call<'t>(
    cx: &mut ModuleLowering<'t>,
    inst: &'t Instruction<'t>,
) -> LoweredValues {
    let name =
        inst.symbol.or(inst.attr("call_target_name").and_then(Attribute::word)).unwrap_or("");
    match CUSTOM.iter().find(|(n, _)| *n == name) {
        Some((_, Custom::Identity)) => super::elementwise::identity(cx, inst),
        Some((_, Custom::StopGradient)) => {
            let x = cx.operand(inst, 0)?;
            Ok(smallvec![Val { value: cx.op(Op::StopGradient, &[x.value])?, ..x }])
        }
        Some((_, Custom::Check(compare))) => check(cx, inst, *compare),
        Some((_, Custom::Extents)) => extents::assertion(cx, inst),
        None => match super::linalg::lapack(name) {
            Some(_) if cx.part.is_some() => refuse("complex numbers"),
            Some(call) => call(cx, inst),
            None => refuse("a custom call that is not known"),
        },
    }
}

/// Notes a comparison of the first operand with the second, or with a constant.
fn check(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>, compare: Compare) -> LoweredValues {
    if !cx.keeps_checks {
        return refuse("a comparison of a test");
    }
    if cx.b.is_nested() {
        return refuse("a comparison inside of a region");
    }
    let got = cx.operand(inst, 0)?;
    let wanted = match inst.words.first() {
        Some(Attribute::Dense(dense)) => {
            let ty = cx.b.ty(got.value).clone();
            super::constant::written(cx, dense, got.element, &ty)?
        }
        _ => cx.operand(inst, 1)?,
    };
    cx.checks.push((compare, got, wanted));
    Ok(Vals::new())
}

pub(crate) fn check_equal(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    check(cx, inst, Compare::Equal)
}

pub(crate) fn check_close(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    match inst.attr("max_ulp_difference").map_or(Ok(3), number)? {
        3 => check(cx, inst, Compare::Close),
        n => refuse(format!("a tolerance of {n} units")),
    }
}

/// Within an absolute difference: the one written, or .001.
pub(crate) fn check_within(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let tolerance = match inst.attr("tolerance") {
        Some(Attribute::Number(text)) => {
            text.parse().map_err(|_| Unlowered::Unsupported(format!("the tolerance {text}")))?
        }
        _ => 0.001,
    };
    check(cx, inst, Compare::Within(tolerance))
}

/// A loop over elements along an axis of several operands, with values that are handed on.
pub(crate) fn scan<'t>(cx: &mut ModuleLowering<'t>, inst: &'t Instruction<'t>) -> LoweredValues {
    let axis = find(inst, &["dimension"]).map_or(Ok(0), number)?;
    let carries = inst.inits.len() as i64;
    let args = cx.operands(inst)?;
    let reverse = super::attributes::flag(inst, "is_reverse");
    let count = args.len().checked_sub(carries as usize);
    let ([body], Some(xs)) = (&inst.regions[..], count) else {
        return refuse("other than one region");
    };
    let mut operands: Vec<Value> = args[xs..].iter().map(|a| a.value).collect();
    let mut entered: Vec<(ElementType, TensorType)> = Vec::new();
    let types: Vec<(ElementType, TensorType)> =
        (0..inst.result_count()).map(|k| cx.result_type(inst, k)).collect::<Result<_, _>>()?;
    let scanned = args[..xs].iter().map(|x| cx.b.ty(x.value).rank());
    let stacked =
        types.iter().take(types.len().saturating_sub(inst.inits.len())).map(|(_, ty)| ty.rank());
    if axis < 0
        || types.len() < inst.inits.len()
        || scanned.chain(stacked).any(|rank| axis as usize >= rank)
    {
        return refuse(format!("the axis {axis}, or other results"));
    }
    for x in &args[..xs] {
        let front = to_front(cx, x.value, axis)?;
        let ty = cx.b.ty(front).clone();
        entered.push((x.element, TensorType::new(ty.dtype, ty.shape[1..].iter().copied())));
        operands.push(front);
    }
    entered.extend(args[xs..].iter().map(|a| (a.element, cx.b.ty(a.value).clone())));
    let outputs = types.len() - carries as usize;
    let made = scan_body(cx, body, &entered, (xs, outputs))?;
    let mut declared: Vec<TensorType> = types[outputs..].iter().map(|(_, ty)| ty.clone()).collect();
    for (_, ty) in &types[..outputs] {
        let mut shape = ty.shape.clone();
        let extent = shape.remove(axis as usize);
        shape.insert(0, extent);
        declared.push(TensorType { dtype: ty.dtype, shape });
    }
    let attrs = Attrs::none().with_int("carry", carries).with("reverse", IrAttr::Bool(reverse));
    let results = cx.emit_all(Op::Scan, &operands, attrs, Some(&declared), &[made])?;
    let (last, stacks) = results.split_at(carries as usize);
    let mut values = Vec::new();
    for &stack in stacks {
        values.push(from_front(cx, stack, axis)?);
    }
    values.extend(last);
    let all = types.into_iter().zip(values);
    Ok(all.map(|((element, _), value)| Val { element, value }).collect())
}

/// The body of a scan: the IR hands carries first, StableHLO elements first.
fn scan_body<'t>(
    cx: &mut ModuleLowering<'t>,
    tree: &'t RegionTree<'t>,
    entered: &[(ElementType, TensorType)],
    (xs, outputs): (usize, usize),
) -> Result<adfuse_ir::Region, Unlowered> {
    if tree.params.len() != entered.len() {
        return refuse("a region of other parameters");
    }
    let made = cx.b.open_region();
    let mut params: Vec<Option<ImportedNumber>> = vec![None; entered.len()];
    for k in (xs..entered.len()).chain(0..xs) {
        let (element, ty) = entered[k].clone();
        let ty = NumberType { element, ty, complex: false };
        params[k] = Some(cx.parameter(tree.params[k].name, &ty));
    }
    let results = cx.block(tree, &params);
    let values = values_of(results.as_deref().unwrap_or_default());
    let order = values.iter().skip(outputs).chain(values.iter().take(outputs));
    cx.b.close_region(&order.copied().collect::<Vec<_>>());
    results.map(|_| made)
}

fn to_front(cx: &mut ModuleLowering<'_>, x: Value, axis: i64) -> Result<Value, Unlowered> {
    let rank = cx.b.ty(x).rank() as i64;
    let perm = std::iter::once(axis).chain((0..rank).filter(|&d| d != axis));
    let x = cx.b.materialize(x);
    if axis == 0 {
        Ok(x)
    } else {
        cx.emit(Op::Transpose, &[x], Attrs::none().with_ints("perm", perm))
    }
}

fn from_front(cx: &mut ModuleLowering<'_>, x: Value, axis: i64) -> Result<Value, Unlowered> {
    let rank = cx.b.ty(x).rank() as i64;
    let perm = (0..rank).map(|d| match d.cmp(&axis) {
        std::cmp::Ordering::Less => d + 1,
        std::cmp::Ordering::Equal => 0,
        std::cmp::Ordering::Greater => d,
    });
    if axis == 0 {
        Ok(x)
    } else {
        cx.emit(Op::Transpose, &[x], Attrs::none().with_ints("perm", perm))
    }
}

/// The derivative of digamma of an order that is a constant.
pub(crate) fn polygamma(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let (n, x) = (cx.operand(inst, 0)?, cx.operand(inst, 1)?);
    let Some(n) = cx.b.func().literal(n.value) else {
        return refuse("an order that is no constant");
    };
    let attrs = Attrs::none().with_int("n", n.to_f64() as i64);
    Ok(smallvec![Val { value: cx.emit(Op::Polygamma, &[x.value], attrs)?, ..x }])
}
