//! Extents that are not written: axes `?` of parameters become symbols, and what operands say of shapes is followed back to
//! these and to constants.

use super::attributes::number;
use super::context::{LoweredValues, ModuleLowering, Val, Vals, written_type};
use crate::emit::element::ElementType;
use crate::emit::refusal::{Unlowered, refuse};
use crate::known::KnownElement;
use crate::text::tree::{Attribute, FunctionTree, Instruction, RegionTree};
use adfuse_ir::{Attrs, Dim, Literal, Op, Shape, Symbol, TensorType};
use smallvec::smallvec;
use std::collections::{BTreeMap, HashMap};

/// An axis of a parameter.
type ParamAxis = (usize, usize);

/// Whether a type of the function has an extent that is not written.
pub(crate) fn is_dynamic(f: &FunctionTree<'_>) -> bool {
    f.results.iter().any(|ty| ty.is_dynamic()) || within(&f.body)
}

fn within(region: &RegionTree<'_>) -> bool {
    let of = |i: &Instruction<'_>| {
        i.types.iter().any(|ty| ty.is_dynamic()) || i.regions.iter().any(within)
    };
    region.params.iter().any(|p| p.ty.is_dynamic()) || region.insts.iter().any(of)
}

/// The shapes of a function's parameters. Axes that are not written are symbols of the function, unless their extents are
/// given. They have the names that the function hands on with their extents, as JAX writes it, or `d0`, `d1`, ..; those
/// that the function checks to be equal are one symbol.
pub(crate) fn parameters(cx: &mut ModuleLowering<'_>, f: &FunctionTree<'_>) -> Vec<Shape> {
    let (groups, names) = axes(cx.functions, &cx.names, f);
    let (mut made, mut taken): (BTreeMap<ParamAxis, Dim>, Vec<Symbol>) = Default::default();
    let mut shapes = Vec::new();
    for (k, param) in f.body.params.iter().enumerate() {
        let mut shape = Shape::new();
        for (d, extent) in param.ty.extents().iter().enumerate() {
            shape.push(match extent {
                Some(n) => Dim::Const(*n),
                None => {
                    let group = groups.get(&(k, d)).copied().unwrap_or((k, d));
                    let named = names.get(&group).and_then(|name| Symbol::new(name));
                    let numbered = (0..).filter_map(|n| Symbol::new(&format!("d{n}")));
                    let mut free = named.into_iter().chain(numbered);
                    *made.entry(group).or_insert_with(|| {
                        let symbol = free.find(|s| !taken.contains(s));
                        taken.extend(symbol);
                        let given = |s: Symbol| cx.extents.get(s.as_str()).copied();
                        symbol.map_or(Dim::Const(0), |s| given(s).map_or(Dim::Sym(s), Dim::Const))
                    })
                }
            });
        }
        shapes.push(shape);
    }
    let given = taken.iter().filter(|s| cx.extents.contains_key(s.as_str()));
    cx.bound.extend(given.map(|s| s.as_str().to_string()));
    cx.symbols = taken.into_iter().filter(|s| !cx.extents.contains_key(s.as_str())).collect();
    shapes
}

/// The first of the axes that a function checks to be equal, for each other, and the names of such axes.
fn axes<'t>(
    functions: &'t [FunctionTree<'t>],
    known: &BTreeMap<&'t str, (usize, String)>,
    f: &FunctionTree<'t>,
) -> (HashMap<ParamAxis, ParamAxis>, HashMap<ParamAxis, &'t str>) {
    let (mut sizes, mut equal, mut groups, mut names) =
        (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
    let first = |groups: &HashMap<ParamAxis, ParamAxis>, mut axis: ParamAxis| {
        while let Some(&before) = groups.get(&axis) {
            axis = before;
        }
        axis
    };
    for inst in &f.body.insts {
        let result = inst.results.first().map_or("", |r| r.0);
        let operand = |k: usize| inst.all_operands().nth(k).map_or("", |o| o.name);
        let size_of = |name: &str, sizes: &HashMap<&str, ParamAxis>| sizes.get(name).copied();
        match inst.op {
            "stablehlo.get_dimension_size" => {
                let param = f.body.params.iter().position(|p| p.name == operand(0));
                let axis = inst.attr("dim").or(inst.attr("dimension")).map(number);
                if let (Some(k), Some(Ok(axis))) = (param, axis) {
                    sizes.insert(result, (k, usize::try_from(axis).unwrap_or(usize::MAX)));
                }
            }
            "stablehlo.compare" => {
                let direction = inst.attr("comparison_direction").or(inst.words.first());
                if direction.and_then(Attribute::word) == Some("EQ")
                    && let (Some(x), Some(y)) =
                        (size_of(operand(0), &sizes), size_of(operand(1), &sizes))
                {
                    equal.insert(result, (x, y));
                }
            }
            "stablehlo.custom_call" if target_of(inst) == "shape_assertion" => {
                if let Some(&(x, y)) = equal.get(operand(0)) {
                    let (x, y) = (first(&groups, x), first(&groups, y));
                    if x != y {
                        groups.insert(x.max(y), x.min(y));
                    }
                }
            }
            "func.call" => {
                let named = match inst.attr("callee") {
                    Some(Attribute::Symbol(name)) => Some(*name),
                    _ => inst.symbol,
                };
                let callee = named.and_then(|name| known.get(name)).map(|c| &functions[c.0]);
                for (k, param) in callee.iter().flat_map(|c| c.body.params.iter().enumerate()) {
                    if let (Some(name), Some(axis)) = (param.extent, size_of(operand(k), &sizes)) {
                        names.entry(first(&groups, axis)).or_insert(name);
                    }
                }
            }
            _ => {}
        }
    }
    let all: Vec<ParamAxis> = groups.keys().copied().collect();
    let groups = all.into_iter().map(|axis| (axis, first(&groups, axis))).collect();
    (groups, names)
}

/// The name of a custom call.
fn target_of<'i>(inst: &'i Instruction<'_>) -> &'i str {
    inst.symbol.or(inst.attr("call_target_name").and_then(Attribute::word)).unwrap_or("")
}

/// A check of extents. What is not known now depends on symbols, and holds where the program is run at extents that the
/// text is for.
pub(crate) fn assertion(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let holds = cx.operand(inst, 0)?;
    let known = cx.known.value(cx.emitter.b.func(), holds.value).and_then(|t| t.literals());
    match known.as_deref() {
        Some([l]) if l.bits() == 0 => refuse("extents that the text says it is not for"),
        _ => Ok(Vals::new()),
    }
}

/// The extents that an operand says; `None` for what is neither a number nor the extent of an axis of a parameter.
pub(super) fn said(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
    k: usize,
) -> Result<Vec<Option<Dim>>, Unlowered> {
    let v = cx.operand(inst, k)?;
    let Some(t) = cx.known.value(cx.emitter.b.func(), v.value) else {
        let count = cx.b.ty(v.value).elements().filter(|&n| n <= 64).unwrap_or(0);
        return Ok(vec![None; count as usize]);
    };
    let of = |e: &KnownElement| match *e {
        KnownElement::Bits(b) => {
            u64::try_from(Literal::from_bits(t.dtype, b).to_i64()).ok().map(Dim::Const)
        }
        KnownElement::Extent(s) => Some(Dim::Sym(s)),
        KnownElement::Unknown => None,
    };
    Ok(t.elements.iter().map(of).collect())
}

pub(super) const COMPUTED: &str = "an extent that is computed from others, which symbols do not express: \
    where the extents of parameters are given, it is known";

/// The type of the result: as it is written, or with the extents that operand `k` says where it is not.
pub(crate) fn target(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
    k: usize,
) -> Result<(ElementType, TensorType), Unlowered> {
    let written = written_type(inst, 0)?;
    if !written.is_dynamic() {
        return cx.result_type(inst, 0);
    }
    let element = cx.element_of(written)?;
    let found = said(cx, inst, k)?;
    if found.len() != written.extents().len() {
        return refuse(format!("{} extents for {written}", found.len()));
    }
    let mut shape = Shape::new();
    for (extent, found) in written.extents().iter().zip(found) {
        shape.push(match (extent.map(Dim::Const), found) {
            (Some(d), _) | (None, Some(d)) => d,
            (None, None) => return refuse(COMPUTED),
        });
    }
    let ty = TensorType::new(element.storage(), shape);
    match ty.excess() {
        Some(m) => refuse(m),
        None => Ok((element, ty)),
    }
}

/// The ends of slices that operand `k` says: `None` for the end of an axis whose extent is a symbol.
pub(crate) fn limits(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
    x: Val,
    k: usize,
) -> Result<Vec<Option<i64>>, Unlowered> {
    let shape = cx.b.ty(x.value).shape.clone();
    let found = said(cx, inst, k)?;
    let each = found.iter().enumerate().map(|(d, found)| match *found {
        Some(Dim::Const(n)) => Ok(Some(n as i64)),
        Some(extent) if shape.get(d) == Some(&extent) => Ok(None),
        _ => refuse(COMPUTED),
    });
    each.collect()
}

/// The extents of the windows of a gather.
pub(crate) enum GatherSizes {
    Known(Vec<i64>),
    Symbolic(Vec<Dim>),
}

/// The extents of windows that operand `k` says.
pub(crate) fn sizes(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
    k: usize,
) -> Result<GatherSizes, Unlowered> {
    let all: Option<Vec<Dim>> = said(cx, inst, k)?.into_iter().collect();
    let Some(all) = all else { return refuse(COMPUTED) };
    let known: Option<Vec<i64>> = all.iter().map(|d| d.known().map(|n| n as i64)).collect();
    Ok(known.map_or(GatherSizes::Symbolic(all), GatherSizes::Known))
}

/// Part of a value. Axes whose extents are symbols stay whole: without an end, from the first element on.
pub(crate) fn sliced(
    cx: &mut ModuleLowering<'_>,
    x: Val,
    start: &[i64],
    limit: &[Option<i64>],
    stride: &[i64],
) -> LoweredValues {
    let shape = cx.b.ty(x.value).shape.clone();
    let rank = shape.len();
    if [start.len(), limit.len(), stride.len()] != [rank; 3] {
        return refuse(format!("bounds of other than {rank} axes"));
    }
    let full = cx.b.materialize(x.value);
    let ends: Option<Vec<i64>> = limit.iter().copied().collect();
    if let (Some(ends), true) = (ends, shape.iter().all(|d| d.known().is_some())) {
        let attrs = Attrs::none().with_ints("start", start.iter().copied());
        let attrs = attrs.with_ints("limit", ends).with_ints("stride", stride.iter().copied());
        return Ok(smallvec![Val { value: cx.emit(Op::Slice, &[full], attrs)?, ..x }]);
    }
    let (mut before, mut behind) = (vec![0; rank], vec![0; rank]);
    for d in 0..rank {
        match (shape[d], limit[d]) {
            (Dim::Const(n), Some(end)) if 0 <= start[d] && start[d] <= end && end <= n as i64 => {
                (before[d], behind[d]) = (start[d], n as i64 - end);
            }
            (_, None) if start[d] == 0 => {}
            _ => return refuse("part of an axis whose extent is a symbol, or beyond an axis"),
        }
        if stride[d] != 1 {
            return refuse("strides beside an axis whose extent is a symbol");
        }
    }
    Ok(smallvec![cx.cut(x, &before, &behind)?])
}
