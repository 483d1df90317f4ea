//! Index values that are coordinates in part: the index columns of gathers and scatters.
//!
//! Picking an element of every row is written as a gather at (row, label), with the rows counted by
//! an `iota`. Seen through, the rows are coordinates of the loop nest, and only the labels are data;
//! and a scatter at such places writes every row once, so it is an elementwise choice.

use super::replace::replaced;
use crate::analysis::index_columns::{Column, columns, dims};
use adfuse_ir::attrs::Attrs;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::op::{Body, Indirect, Update};
use adfuse_ir::rewrite::Copier;
use adfuse_ir::{Builder, Diagnostic, Function, Inst, Literal, Op, TensorType, Value, ValueDef};

/// Scatters of one value a row into one value everywhere become choices.
pub(crate) fn scatters_to_choices(f: &Function) -> Result<Function, Diagnostic> {
    replaced(
        f,
        |i| rows(f, i),
        |b, copier, i, (columns, start)| {
            let old = f.inst_results(i)[0];
            let updates = copier.get(b, f.args(i)[2]);
            let new = choice(f, i, &columns, start, updates, copier, b);
            b.func_mut().set_name(new, f.name_of(old));
            copier.set(old, new);
        },
    )
}

/// The columns of a scatter that writes one element of every row, and what it begins with.
fn rows(f: &Function, i: Inst) -> Option<(Vec<Column>, Literal)> {
    let Body::Indirect(Indirect::Scatter(Update::Add)) = f.op(i).def().body else { return None };
    let &[x, indices, updates] = f.args(i) else { return None };
    let attrs = f.attrs(i);
    let shape = dims(f, x)?;
    let order =
        (0..shape.len() as i64).all(|d| attrs.ints("start_map").get(d as usize) == Some(&d));
    if !attrs.ints("window_dims").is_empty()
        || attrs.ints("inserted").len() != shape.len()
        || !order
    {
        return None;
    }
    let start = splat(f, x)?;
    let columns = columns(f, indices, &|_| false)?;
    let batch = dims(f, updates)?;
    // Every axis of the updates is an axis of the result, so no two updates meet.
    let mut seen = vec![false; batch.len()];
    for (d, c) in columns.iter().enumerate() {
        if let Column::Axis(a) = c {
            if seen[*a] || batch[*a] != shape[d] {
                return None;
            }
            seen[*a] = true;
        }
    }
    let data = columns.iter().any(|c| matches!(c, Column::Data(..)));
    let read = |c: &Column| match c {
        Column::Axis(_) => true,
        // Only plain places can be spread by a view.
        Column::Data(v, at) => {
            let axis = |e: &IndexExpr| matches!(e, IndexExpr::Axis(_));
            let plain = at.iter().filter(|e| axis(e)).count() == batch.len()
                && at.iter().all(|e| axis(e) || matches!(e, IndexExpr::Const(0)));
            let in_order = at.iter().filter(|e| axis(e)).enumerate();
            plain
                && in_order.into_iter().all(|(k, e)| *e == IndexExpr::axis(k))
                && f.ty(*v).dtype == f.ty(indices).dtype
        }
    };
    (data && seen.iter().all(|&s| s) && columns.iter().all(read)).then_some((columns, start))
}

fn splat(f: &Function, v: Value) -> Option<Literal> {
    match f.def(v) {
        ValueDef::Literal(l) => Some(l),
        ValueDef::Inst(i, _) if f.op(i) == Op::BroadcastInDim => splat(f, f.args(i)[0]),
        _ => None,
    }
}

fn choice(
    f: &Function,
    i: Inst,
    columns: &[Column],
    start: Literal,
    updates: Value,
    copier: &mut Copier<'_>,
    b: &mut Builder,
) -> Value {
    let ty = f.ty(f.inst_results(i)[0]).clone();
    let axes: Vec<Option<usize>> =
        columns.iter().map(|c| if let Column::Axis(a) = c { Some(*a) } else { None }).collect();
    // The axis of the result that each axis of the updates is.
    let rank = f.ty(updates_of(f, i)).rank();
    let place: Vec<i64> =
        (0..rank).map(|a| axes.iter().position(|&x| x == Some(a)).unwrap_or(0) as i64).collect();
    let mut hit: Option<Value> = None;
    for (d, c) in columns.iter().enumerate() {
        let Column::Data(v, _) = c else { continue };
        let mut label = copier.get(b, *v);
        let flat =
            TensorType { dtype: b.ty(label).dtype, shape: f.ty(updates_of(f, i)).shape.clone() };
        if *b.ty(label) != flat {
            label = b.op_as(Op::Reshape, &[label], Attrs::none(), &flat);
        }
        if f.attrs(i).word("mode") != "drop" {
            let most = ty.shape[d].known().unwrap_or(1).saturating_sub(1);
            let lo = b.literal(&flat, Literal::zero(flat.dtype));
            let hi = b.literal(&flat, Literal::from_i64(flat.dtype, most as i64));
            label = b.op(Op::Clamp, &[lo, label, hi]);
        }
        let wide = ty.with_dtype(flat.dtype);
        let spread = Attrs::none().with_ints("dims", place.iter().copied());
        let label = b.op_as(Op::BroadcastInDim, &[label], spread, &wide);
        let along = Attrs::none().with_int("axis", d as i64);
        let here = b.op_as(Op::Iota, &[], along, &wide);
        let equal = b.op(Op::Eq, &[here, label]);
        hit = Some(match hit {
            None => equal,
            Some(h) => b.op(Op::And, &[h, equal]),
        });
    }
    let small = b.ty(updates).clone();
    let begin = b.literal(&small, start);
    // The sum of one update: adding it to what was there turns -0 into +0 as the scatter does.
    let sum = b.op(Op::Add, &[begin, updates]);
    let spread = Attrs::none().with_ints("dims", place.iter().copied());
    let sum = b.op_as(Op::BroadcastInDim, &[sum], spread, &ty);
    let rest = b.literal(&ty, start);
    match hit {
        Some(hit) => b.op(Op::SelectN, &[hit, rest, sum]),
        None => sum,
    }
}

fn updates_of(f: &Function, i: Inst) -> Value {
    f.args(i)[2]
}
