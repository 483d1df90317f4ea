//! Windows: `reduce_window`, `select_and_scatter`, `convolution`.

use super::attributes::{find, list, list_or, need_list};
use super::context::{LoweredValues, ModuleLowering, Val, written_type};
use super::elementwise::convert_to;
use super::reduce::{Combiner, by_op, fold, recognized};
use crate::emit::element::ElementType;
use crate::emit::refusal::{Unlowered, refuse};
use crate::text::tree::{Attribute, Instruction};
use adfuse_ir::{Attr as IrAttr, Attrs, DType, Dim, Literal, Op, Value};
use smallvec::smallvec;

/// The windows of an instruction: an entry of each list for every axis.
struct Windows {
    sizes: Vec<i64>,
    strides: Vec<i64>,
    base: Vec<i64>,
    dilation: Vec<i64>,
    low: Vec<i64>,
    high: Vec<i64>,
}

impl Windows {
    fn of(inst: &Instruction<'_>) -> Result<Windows, Unlowered> {
        let sizes = need_list(inst, &["window_dimensions"])?;
        let n = sizes.len();
        let padding = list_or(inst, &["padding"], 2 * n, 0)?;
        Ok(Windows {
            strides: list_or(inst, &["window_strides"], n, 1)?,
            base: list_or(inst, &["base_dilations"], n, 1)?,
            dilation: list_or(inst, &["window_dilations"], n, 1)?,
            low: padding.iter().step_by(2).copied().collect(),
            high: padding.iter().skip(1).step_by(2).copied().collect(),
            sizes,
        })
    }

    fn pool(&self) -> Attrs {
        Attrs::none()
            .with_ints("window", self.sizes.iter().copied())
            .with_ints("strides", self.strides.iter().copied())
            .with_ints("low", self.low.iter().copied())
            .with_ints("high", self.high.iter().copied())
            .with_ints("base_dilation", self.base.iter().copied())
            .with_ints("window_dilation", self.dilation.iter().copied())
    }

    /// The axis and the direction of a running fold: windows of a whole axis that end, or begin, at each element.
    fn running(&self, shape: &[Dim]) -> Option<(usize, bool)> {
        let trivial = |k: usize| self.strides[k] == 1 && self.base[k] == 1 && self.dilation[k] == 1;
        let mut axes = (0..shape.len())
            .filter(|&k| self.sizes[k] != 1 || self.low[k] != 0 || self.high[k] != 0);
        let axis = axes.next()?;
        let n = shape[axis].known()? as i64;
        let whole = axes.next().is_none()
            && (0..shape.len()).all(trivial)
            && self.sizes[axis] == n
            && n > 1;
        match (self.low[axis], self.high[axis]) {
            (low, 0) if whole && low == n - 1 => Some((axis, false)),
            (0, high) if whole && high == n - 1 => Some((axis, true)),
            _ => None,
        }
    }
}

pub(crate) fn reduce_window<'t>(
    cx: &mut ModuleLowering<'t>,
    inst: &'t Instruction<'t>,
) -> LoweredValues {
    let windows = Windows::of(inst)?;
    let args = cx.operands(inst)?;
    if args.is_empty() || !args.len().is_multiple_of(2) {
        return refuse("operands without an initial value each");
    }
    let (xs, inits) = args.split_at(args.len() / 2);
    let [region] = &inst.regions[..] else { return refuse("other than one region") };
    let rank = cx.b.ty(xs[0].value).rank();
    if windows.sizes.len() != rank {
        return refuse(format!(
            "windows of {} axes of {}",
            windows.sizes.len(),
            cx.b.ty(xs[0].value)
        ));
    }
    let combine = recognized(region).filter(|&c| c != Combiner::Second && xs.len() == 1);
    if let Some(combine) = combine
        && let Some(value) = pooled(cx, &windows, combine.on(xs[0].element), xs[0], inits[0])?
    {
        return Ok(smallvec![value]);
    }
    let mut spread = Vec::new();
    for (&x, &init) in xs.iter().zip(inits) {
        spread.push(windowed(cx, &windows, x, init)?);
    }
    let axes: Vec<i64> = (rank as i64..2 * rank as i64).collect();
    match combine {
        Some(combine) => Ok(smallvec![by_op(cx, combine, spread[0], inits[0], &axes)?]),
        None => fold(cx, region, &spread, inits, &axes),
    }
}

/// A pooling op of the IR, or a running fold, where the initial value is the one that changes nothing.
fn pooled(
    cx: &mut ModuleLowering<'_>,
    windows: &Windows,
    combine: Combiner,
    x: Val,
    init: Val,
) -> Result<Option<Val>, Unlowered> {
    let given = cx.b.func().literal(init.value);
    if given.is_none()
        || given != combine.neutral(x.element)
        || !(x.element.is_float() || x.element.is_int())
        || x.element.is_u64() && combine != Combiner::Add
    {
        return Ok(None);
    }
    let full = cx.b.materialize(x.value);
    let shape = cx.b.ty(x.value).shape.clone();
    let value = if let Some((axis, reverse)) = windows.running(&shape) {
        let op = match combine {
            Combiner::Add => Op::Cumsum,
            Combiner::Mul => Op::Cumprod,
            Combiner::Max => Op::Cummax,
            Combiner::Min => Op::Cummin,
            _ => return Ok(None),
        };
        let attrs =
            Attrs::none().with_int("axis", axis as i64).with("reverse", IrAttr::Bool(reverse));
        let written = match op {
            Op::Cumsum => super::short::running_sum(cx, x, axis, reverse)?,
            _ => None,
        };
        match written {
            Some(sums) => sums,
            None => cx.emit(op, &[full], attrs)?,
        }
    } else if let Some(sums) = short_sums(cx, windows, combine, (x, init))? {
        sums
    } else {
        let op = match combine {
            Combiner::Add => Op::ReduceWindowSum,
            Combiner::Max if x.element.is_float() => Op::ReduceWindowMax,
            Combiner::Min if x.element.is_float() => Op::ReduceWindowMin,
            _ => return Ok(None),
        };
        cx.emit(op, &[full], windows.pool())?
    };
    Ok(Some(Val { value: crate::emit::integers::wrap(cx, x.element, value)?, ..x }))
}

/// Sums of small windows of floats, in the order of their elements.
fn short_sums(
    cx: &mut ModuleLowering<'_>,
    windows: &Windows,
    combine: Combiner,
    (x, init): (Val, Val),
) -> Result<Option<Value>, Unlowered> {
    if combine != Combiner::Add || !x.element.is_float() {
        return Ok(None);
    }
    let positive = |all: &[i64]| all.iter().all(|&n| n > 0);
    let stepping = positive(&windows.strides) && positive(&windows.dilation);
    let known = cx.b.ty(x.value).dims().is_some();
    if !stepping || !known || super::short::short_window(&windows.sizes).is_none() {
        return Ok(None);
    }
    let padded = padded(cx, windows, x, init)?;
    let steps = (&windows.strides[..], &windows.dilation[..]);
    super::short::window_sums(cx, padded, &windows.sizes, steps)
}

/// A tensor padded, and spread by the dilation of its base, as the windows go over it.
fn padded(
    cx: &mut ModuleLowering<'_>,
    windows: &Windows,
    x: Val,
    init: Val,
) -> Result<Value, Unlowered> {
    let interior = windows.base.iter().map(|&d| d - 1);
    let attrs = Attrs::none()
        .with_ints("low", windows.low.iter().copied())
        .with_ints("high", windows.high.iter().copied())
        .with_ints("interior", interior);
    let full = cx.b.materialize(x.value);
    cx.emit(Op::Pad, &[full, init.value], attrs)
}

/// The windows of a padded tensor, an axis of steps for each axis behind all.
fn windowed(
    cx: &mut ModuleLowering<'_>,
    windows: &Windows,
    x: Val,
    init: Val,
) -> Result<Val, Unlowered> {
    let padded = padded(cx, windows, x, init)?;
    let attrs = Attrs::none()
        .with_ints("axes", 0..windows.sizes.len() as i64)
        .with_ints("sizes", windows.sizes.iter().copied())
        .with_ints("strides", windows.strides.iter().copied())
        .with_ints("dilation", windows.dilation.iter().copied());
    Ok(Val { value: cx.emit(Op::Windows, &[padded], attrs)?, ..x })
}

/// Adds what is scattered to the place of each window that a comparison selects.
pub(crate) fn select_and_scatter<'t>(
    cx: &mut ModuleLowering<'t>,
    inst: &'t Instruction<'t>,
) -> LoweredValues {
    let windows = Windows::of(inst)?;
    let args = cx.operands(inst)?;
    let ([x, source, init], [select, scatter]) = (&args[..], &inst.regions[..]) else {
        return refuse("other than three operands and two regions");
    };
    let (x, source, init) = (*x, *source, *init);
    let combine = recognized(scatter).map(|c| c.on(x.element));
    let truths = x.element == ElementType::Bool && combine == Some(Combiner::Or);
    let numbers = (x.element.is_float() || x.element.is_int()) && combine == Some(Combiner::Add);
    if !(truths || numbers) || x.element.is_u64() {
        return refuse("a scatter that is no sum of numbers");
    }
    if cx.b.func().literal(init.value).is_none_or(|l| !l.is_zero()) {
        return refuse("an initial value other than 0");
    }
    let word = match &select.insts[..] {
        [compare, ret] if compare.op == "stablehlo.compare" && ret.operands.len() == 1 => {
            let straight =
                compare.operands.iter().map(|o| o.name).eq(select.params.iter().map(|p| p.name));
            match (super::elementwise::direction(compare)?.0, straight) {
                (Op::Ge, true) => "ge",
                (Op::Le, true) => "le",
                _ => return refuse("a selection other than `GE` and `LE`"),
            }
        }
        _ => return refuse("a selection other than a comparison"),
    };
    // Truth values are counted.
    let [x, from] = [x, source].map(|v| cx.b.materialize(v.value));
    let [x, from] = match truths {
        true => [cx.storage(x, DType::I32)?, cx.storage(from, DType::I32)?],
        false => [x, from],
    };
    let attrs = Attrs::none()
        .with_ints("window", windows.sizes)
        .with_ints("strides", windows.strides)
        .with_ints("low", windows.low)
        .with_ints("high", windows.high)
        .with("select", IrAttr::Word(word));
    let value = cx.emit(Op::SelectAndScatterAdd, &[from, x], attrs)?;
    let value = cx.storage(value, source.element.storage())?;
    Ok(smallvec![Val { value: crate::emit::integers::wrap(cx, source.element, value)?, ..source }])
}

/// The axes that a layout such as `[b, 0, f]` names: those of two letters, then the spatial ones.
fn layout(attr: &Attribute<'_>, first: &str, second: &str) -> Result<Vec<i64>, Unlowered> {
    let Attribute::List(items) = attr else { return refuse("a layout that is no list") };
    let place = |wanted: &str| {
        let at = items
            .iter()
            .position(|i| matches!(i, Attribute::Word(w) | Attribute::Number(w) if *w == wanted));
        at.map(|k| k as i64)
            .ok_or_else(|| Unlowered::Unsupported(format!("a layout without `{wanted}`")))
    };
    let mut axes = vec![place(first)?, place(second)?];
    for k in 0..items.len().saturating_sub(2) {
        axes.push(place(&k.to_string())?);
    }
    Ok(axes)
}

pub(crate) fn convolution(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let numbers = match find(inst, &["dim_numbers", "dimension_numbers"]) {
        Some(Attribute::List(one)) if one.len() == 1 => one.first(),
        other => other,
    };
    let Some(Attribute::Several(layouts)) = numbers else { return refuse("without layouts") };
    let [lhs, rhs, out] = &layouts[..] else { return refuse("other than three layouts") };
    let specs = [layout(lhs, "b", "f")?, layout(rhs, "o", "i")?, layout(out, "b", "f")?];
    let spatial = specs[0].len() - 2;
    if specs.iter().any(|s| s.len() != spatial + 2) {
        return refuse("layouts of different ranks");
    }
    let window = inst.attr("window");
    let of = |pretty: &str, generic: &str, count: usize, default: i64| match window
        .and_then(|w| w.entry(pretty))
    {
        Some(attr) => list(attr),
        None => list_or(inst, &[generic], count, default),
    };
    let padding = match inst.op {
        "stablehlo.dynamic_conv" => super::shape::constant_list(cx, inst, 2)?,
        _ => of("pad", "padding", 2 * spatial, 0)?,
    };
    let strides = of("stride", "window_strides", spatial, 1)?;
    let lhs_dilation = of("lhs_dilate", "lhs_dilation", spatial, 1)?;
    let rhs_dilation = of("rhs_dilate", "rhs_dilation", spatial, 1)?;
    let reversal = of("reverse", "window_reversal", spatial, 0)?;
    let count = |name: &str| inst.attr(name).map_or(Ok(1), super::attributes::number);
    let written = written_type(inst, 0)?;
    let element = cx.element_of(written)?;
    let (x, w) = (cx.operand(inst, 0)?, cx.operand(inst, 1)?);
    let (x, w) = (convert_to(cx, x, element)?.value, convert_to(cx, w, element)?.value);
    let (x, mut w) = (cx.b.materialize(x), cx.b.materialize(w));
    if reversal.len() != spatial {
        return refuse("a reversal of other axes");
    }
    let reversed: Vec<i64> =
        (0..spatial).filter(|&k| reversal[k] != 0).map(|k| specs[1][k + 2]).collect();
    if !reversed.is_empty() {
        w = cx.emit(Op::Rev, &[w], Attrs::none().with_ints("axes", reversed))?;
    }
    let attrs = Attrs::none()
        .with_ints("strides", strides)
        .with_ints("low", padding.iter().step_by(2).copied())
        .with_ints("high", padding.iter().skip(1).step_by(2).copied())
        .with_ints("lhs_dilation", lhs_dilation)
        .with_ints("rhs_dilation", rhs_dilation)
        .with_ints("lhs_spec", specs[0].clone())
        .with_ints("rhs_spec", specs[1].clone())
        .with_ints("out_spec", specs[2].clone())
        .with_int("feature_group_count", count("feature_group_count")?)
        .with_int("batch_group_count", count("batch_group_count")?);
    if !written.is_dynamic() {
        let (_, ty) = cx.result_type(inst, 0)?;
        if ty.elements() == Some(0) {
            let value = cx.b.literal(&ty, Literal::zero(ty.dtype));
            return Ok(smallvec![Val { element, value }]);
        }
    }
    let value = cx.emit_written(inst, Op::ConvGeneralDilated, &[x, w], attrs)?;
    Ok(smallvec![Val { element, value: crate::emit::integers::wrap(cx, element, value)? }])
}
