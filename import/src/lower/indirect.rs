//! Gathers and scatters. Batching dimensions become indices that count; a scatter by a function that the IR has no row
//! for goes over its updates in a loop, unless they are said to have different places.

use super::attributes::{flag, need_list};
use super::context::{LoweredValues, ModuleLowering, Val, Vals};
use super::dimension_numbers::DimensionNumbers;
use super::extents::GatherSizes;
use super::gather_window::{picked_each, single_slice, symbolic_window};
use super::reduce::{Combiner, recognized};
use crate::emit::element::ElementType;
use crate::emit::integers::ordered;
use crate::emit::refusal::{Unlowered, refuse};
use crate::text::tree::{Instruction, RegionTree};
use adfuse_ir::{Attr as IrAttr, Attrs, DType, Dim, Op, TensorType, Value};
use smallvec::{SmallVec, smallvec};

/// Index vectors in the last axis, and the operand's axis for each of their components.
struct Indices {
    value: Value,
    map: Vec<i64>,
}

/// Brings index vectors into the last axis, with a component that counts for each batching dimension.
fn indices(
    cx: &mut ModuleLowering<'_>,
    given: Val,
    n: &DimensionNumbers,
) -> Result<Indices, Unlowered> {
    if !given.element.is_int() {
        return refuse(format!("indices of type {}", given.element));
    }
    let dims = cx.b.ty(given.value).shape.clone();
    let vector = usize::try_from(n.vector).ok().filter(|&v| v <= dims.len());
    let Some(vector) = vector else {
        return refuse(format!("index vectors along axis {}", n.vector));
    };
    let mut value = cx.b.materialize(given.value);
    let dtype = given.element.storage();
    if vector == dims.len() {
        let ty = TensorType::new(dtype, dims.iter().copied().chain([Dim::Const(1)]));
        value = cx.emit_as(Op::Reshape, &[value], Attrs::none(), &ty)?;
    } else if vector + 1 != dims.len() {
        let perm = (0..dims.len()).filter(|&d| d != vector).chain([vector]).map(|d| d as i64);
        value = cx.emit(Op::Transpose, &[value], Attrs::none().with_ints("perm", perm))?;
    }
    let mut map = n.map.clone();
    if n.batching.is_empty() {
        return Ok(Indices { value, map });
    }
    // Of wider indices none counts too far.
    value = cx.storage(value, DType::I64)?;
    let mut shape = cx.b.ty(value).shape.clone();
    let last = shape.len() - 1;
    shape[last] = Dim::Const(1);
    let mut parts = vec![value];
    for (k, &axis) in n.batching.iter().enumerate() {
        let along = n.index_axis(k);
        let ty = TensorType::new(DType::I64, shape.iter().copied());
        parts.push(cx.emit_as(Op::Iota, &[], Attrs::none().with_int("axis", along), &ty)?);
        map.push(axis);
    }
    let value = cx.emit(Op::Concatenate, &parts, Attrs::none().with_int("axis", last as i64))?;
    Ok(Indices { value, map })
}

pub(crate) fn gather(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let names = [
        "offset_dims",
        "collapsed_slice_dims",
        "operand_batching_dims",
        "start_indices_batching_dims",
        "start_index_map",
    ];
    let n = DimensionNumbers::of(inst.attr("dimension_numbers"), names)?;
    let sizes = match inst.op {
        "stablehlo.dynamic_gather" => match super::extents::sizes(cx, inst, 2)? {
            GatherSizes::Known(all) => match single_slice(cx, inst, &n, &all)? {
                Some(slice) => return Ok(smallvec![slice]),
                None => all,
            },
            GatherSizes::Symbolic(all) => return symbolic_window(cx, inst, &n, &all),
        },
        _ => need_list(inst, &["slice_sizes"])?,
    };
    let (x, given) = (cx.operand(inst, 0)?, cx.operand(inst, 1)?);
    let at = match cx.b.ty(x.value).dims() {
        Some(_) => indices(cx, given, &n)?,
        // Batches of unknown extent have no gather of their own.
        None => {
            let plain = DimensionNumbers { batching: Vec::new(), ..n.clone() };
            let at = indices(cx, given, &plain)?;
            if let Some(found) = picked_each(cx, x, at.value, (&n, &sizes))? {
                return Ok(smallvec![found]);
            }
            indices(cx, given, &n)?
        }
    };
    let attrs = Attrs::none()
        .with_ints("offset_dims", n.window.iter().copied())
        .with_ints("collapsed", n.collapsed())
        .with_ints("start_map", at.map)
        .with_ints("sizes", sizes)
        .with("mode", IrAttr::Word("clip"));
    let full = cx.b.materialize(x.value);
    Ok(smallvec![Val { value: cx.emit(Op::Gather, &[full, at.value], attrs)?, ..x }])
}

pub(crate) fn scatter<'t>(cx: &mut ModuleLowering<'t>, inst: &'t Instruction<'t>) -> LoweredValues {
    let names = [
        "update_window_dims",
        "inserted_window_dims",
        "input_batching_dims",
        "scatter_indices_batching_dims",
        "scatter_dims_to_operand_dims",
    ];
    let n = DimensionNumbers::of(inst.attr("scatter_dimension_numbers"), names)?;
    let args = cx.operands(inst)?;
    let count = args.len() / 2;
    let [region] = &inst.regions[..] else { return refuse("other than one region") };
    if args.len() < 3 || args.len().is_multiple_of(2) {
        return refuse("other than operands, indices and as many updates");
    }
    let (xs, updates) = (&args[..count], &args[count + 1..]);
    let inside = |cx: &ModuleLowering<'_>, u: &Val| {
        let rank = cx.b.ty(u.value).rank();
        n.window.iter().all(|&w| usize::try_from(w).is_ok_and(|w| w < rank))
    };
    if !updates.iter().all(|u| inside(cx, u)) {
        return refuse("window axes that updates do not have");
    }
    let at = indices(cx, args[count], &n)?;
    let places = ScatterPlaces { n: &n, at: &at };
    match recognized(region) {
        Some(combine) if count == 1 && combine.row(xs[0].element).is_some() => {
            Ok(smallvec![places.by_row(cx, combine, xs[0], updates[0])?])
        }
        // Said to be different places: one step for all updates.
        _ if flag(inst, "unique_indices") => {
            places.step(cx, region, (xs, updates), (at.value, &n.window))
        }
        _ => places.in_a_loop(cx, region, xs, updates),
    }
}

impl Combiner {
    /// The scatter of the IR.
    fn row(self, element: ElementType) -> Option<Op> {
        match self.on(element) {
            Combiner::Add => Some(Op::ScatterAdd),
            Combiner::Max => Some(Op::ScatterMax),
            Combiner::Min => Some(Op::ScatterMin),
            Combiner::Or if element == ElementType::Bool => Some(Op::ScatterMax),
            Combiner::And if element == ElementType::Bool => Some(Op::ScatterMin),
            Combiner::Second => Some(Op::Scatter),
            _ => None,
        }
    }
}

/// Where a scatter puts its updates.
struct ScatterPlaces<'a> {
    n: &'a DimensionNumbers,
    at: &'a Indices,
}

impl ScatterPlaces<'_> {
    fn attrs(&self, window: &[i64]) -> Attrs {
        Attrs::none()
            .with_ints("window_dims", window.iter().copied())
            .with_ints("inserted", self.n.collapsed())
            .with_ints("start_map", self.at.map.iter().copied())
            .with("mode", IrAttr::Word("drop"))
    }

    /// The gather that reads what updates of these extents fall on; 0 for what falls outside.
    fn gather(&self, rank: usize, window: &[i64], updates: &[u64]) -> Attrs {
        let collapsed = self.n.collapsed();
        let mut extents = window.iter().map(|&w| updates[w as usize] as i64);
        let sizes: Vec<i64> = (0..rank as i64)
            .map(|d| if collapsed.contains(&d) { 1 } else { extents.next().unwrap_or(1) })
            .collect();
        Attrs::none()
            .with_ints("offset_dims", window.iter().copied())
            .with_ints("collapsed", collapsed)
            .with_ints("start_map", self.at.map.iter().copied())
            .with_ints("sizes", sizes)
            .with("mode", IrAttr::Word("zero"))
    }

    fn by_row(
        &self,
        cx: &mut ModuleLowering<'_>,
        combine: Combiner,
        x: Val,
        update: Val,
    ) -> Result<Val, Unlowered> {
        let Some(op) = combine.row(x.element) else { return refuse("no row") };
        let (mut a, mut u) = (cx.b.materialize(x.value), update.value);
        let attrs = self.attrs(&self.n.window);
        let turned = matches!(op, Op::ScatterMax | Op::ScatterMin);
        if x.element == ElementType::Bool {
            (a, u) = (cx.storage(a, DType::U8)?, cx.storage(u, DType::U8)?);
        } else if turned {
            (a, u) = (ordered(cx, x.element, a)?, ordered(cx, x.element, u)?);
        }
        let mut value = cx.emit(op, &[a, self.at.value, u], attrs)?;
        if x.element == ElementType::Bool {
            value = cx.storage(value, DType::Bool)?;
        } else if turned {
            value = ordered(cx, x.element, value)?;
        }
        Ok(Val { value: crate::emit::integers::wrap(cx, x.element, value)?, ..x })
    }

    /// What updates fall on is read, combined with them and written.
    fn step<'t>(
        &self,
        cx: &mut ModuleLowering<'t>,
        region: &'t RegionTree<'t>,
        (xs, updates): (&[Val], &[Val]),
        (at, window): (Value, &[i64]),
    ) -> LoweredValues {
        let mut args = Vec::new();
        for (&x, &u) in xs.iter().zip(updates) {
            let (rank, extents) = (cx.b.ty(x.value).rank(), cx.dims(u)?);
            let attrs = self.gather(rank, window, &extents);
            let full = cx.b.materialize(x.value);
            args.push(Val { value: cx.emit(Op::Gather, &[full, at], attrs)?, ..x });
        }
        args.extend(updates.iter().copied());
        let combined = cx.elements(region, &args)?;
        let mut results = Vals::new();
        for (&x, new) in xs.iter().zip(combined) {
            let full = cx.b.materialize(x.value);
            let (full, narrow) = if x.element == ElementType::Bool {
                (cx.storage(full, DType::U8)?, cx.storage(new.value, DType::U8)?)
            } else {
                (full, new.value)
            };
            let value = cx.emit(Op::Scatter, &[full, at, narrow], self.attrs(window))?;
            results.push(Val { value: cx.storage(value, x.element.storage())?, ..x });
        }
        Ok(results)
    }

    /// A loop over index vectors, in their order.
    fn in_a_loop<'t>(
        &self,
        cx: &mut ModuleLowering<'t>,
        region: &'t RegionTree<'t>,
        xs: &[Val],
        updates: &[Val],
    ) -> LoweredValues {
        let at = cx.b.ty(self.at.value).clone();
        let dims = at.dims().unwrap_or_default();
        let (&length, batch) = match dims.split_last() {
            Some(parts) => parts,
            None => return refuse("indices without an axis"),
        };
        let steps: u64 = batch.iter().product();
        let rows = TensorType::of(at.dtype, &[steps, length]);
        let rows = cx.emit_as(Op::Reshape, &[self.at.value], Attrs::none(), &rows)?;
        let mut flat = Vec::new();
        for &u in updates {
            flat.push(self.steps_first(cx, u, steps)?);
        }
        let args: Vec<Value> = xs.iter().map(|x| cx.b.materialize(x.value)).collect();
        let types: Vec<TensorType> = args.iter().map(|&v| cx.b.ty(v).clone()).collect();
        let body = cx.b.open_region();
        let mut carried: Vec<Val> = Vec::new();
        for (ty, &x) in types.iter().zip(xs) {
            carried.push(Val { value: cx.b.param(ty.clone(), None), ..x });
        }
        let row = cx.b.param(TensorType::of(at.dtype, &[length]), None);
        let row = cx.emit_as(
            Op::Reshape,
            &[row],
            Attrs::none(),
            &TensorType::of(at.dtype, &[1, length]),
        )?;
        let mut entered: Vec<Val> = Vec::new();
        for u in &flat {
            let dims = cx.dims(*u)?;
            let param = cx.b.param(TensorType::of(u.element.storage(), &dims[1..]), None);
            let one =
                std::iter::once(1).chain(dims[1..].iter().copied()).collect::<SmallVec<[u64; 4]>>();
            let ty = TensorType::of(u.element.storage(), &one);
            entered
                .push(Val { value: cx.emit_as(Op::Reshape, &[param], Attrs::none(), &ty)?, ..*u });
        }
        let window: Vec<i64> = (1..=self.n.window.len() as i64).collect();
        let next = self.step(cx, region, (&carried, &entered), (row, &window));
        let values: Vec<Value> = next.iter().flatten().map(|v| v.value).collect();
        cx.b.close_region(&values);
        next?;
        let mut operands = args;
        operands.push(rows);
        operands.extend(flat.iter().map(|u| u.value));
        let attrs = Attrs::none().with_int("carry", xs.len() as i64);
        let results = cx.emit_all(Op::Scan, &operands, attrs, Some(&types), &[body])?;
        Ok(xs.iter().zip(results).map(|(&x, value)| Val { value, ..x }).collect())
    }

    /// Updates with the axes of index vectors as one, in front.
    fn steps_first(
        &self,
        cx: &mut ModuleLowering<'_>,
        u: Val,
        steps: u64,
    ) -> Result<Val, Unlowered> {
        let dims = cx.dims(u)?;
        let window = &self.n.window;
        let batch = (0..dims.len() as i64).filter(|d| !window.contains(d));
        let perm: Vec<i64> = batch.chain(window.iter().copied()).collect();
        let shape = std::iter::once(steps).chain(window.iter().map(|&w| dims[w as usize]));
        let ty = TensorType::new(u.element.storage(), shape.map(Dim::Const));
        let full = match cx.b.func().literal(u.value) {
            Some(l) => {
                let v = cx.b.literal(&ty, l);
                return Ok(Val { value: cx.b.materialize(v), ..u });
            }
            None => u.value,
        };
        let value = cx.emit(Op::Transpose, &[full], Attrs::none().with_ints("perm", perm))?;
        Ok(Val { value: cx.emit_as(Op::Reshape, &[value], Attrs::none(), &ty)?, ..u })
    }
}
