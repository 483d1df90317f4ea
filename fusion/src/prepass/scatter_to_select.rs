//! Scatters of one element a row become elementwise selections, if their index columns are coordinates.
//!
//! Selecting one element of every row is written as a gather at (row, label), where an `iota` counts the rows. The rows
//! are coordinates of the loop nest, and only the labels are data. A scatter at such indices writes every row once, so
//! it is an elementwise selection.

use crate::analysis::index_columns::{IndexColumn, columns, dims};
use adfuse_ir::attrs::Attrs;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::rewrite::{Exactness, Pattern, Reads, Rule, RuleTable, Site, When, rewrite};
use adfuse_ir::{Diagnostic, Function, Inst, Literal, Op, TensorType, Value, ValueDef};

/// Scatters of one value a row into one value everywhere become choices.
pub(crate) fn scatters_to_choices(f: &Function) -> Result<Function, Diagnostic> {
    Ok(rewrite(f, &SCATTERS, Exactness::Exact)?.0)
}

/// Scatters of one value a row into one value everywhere become choices.
pub(crate) static SCATTERS: RuleTable = RuleTable {
    name: "scatters as selections",
    doc: "Before planning, after views have one result.",
    reads: Reads::Source,
    regions: false,
    rules: &[Rule {
        name: "scatter-to-select",
        doc: "A `scatter_add` of one element of every row into a splat becomes an elementwise selection.",
        exactness: Exactness::Exact,
        pattern: Pattern::AnyOf(&[Op::ScatterAdd]),
        then: &When { condition: |m| rows(m.f, m.root.inst), build: choice },
    }],
};

/// The columns of a scatter that writes one element of every row, and what it begins with.
fn rows(f: &Function, i: Inst) -> Option<(Vec<IndexColumn>, Literal)> {
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
        if let IndexColumn::Axis(a) = c {
            if seen[*a] || batch[*a] != shape[d] {
                return None;
            }
            seen[*a] = true;
        }
    }
    let data = columns.iter().any(|c| matches!(c, IndexColumn::Data(..)));
    let read = |c: &IndexColumn| match c {
        IndexColumn::Axis(_) => true,
        // Only plain places can be spread by a view.
        IndexColumn::Data(v, at) => {
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

fn choice(s: &mut Site<'_, '_>, (columns, start): (Vec<IndexColumn>, Literal)) -> Value {
    let (f, i) = (s.f, s.root.inst);
    let updates = s.get(updates_of(f, i));
    let ty = f.ty(f.inst_results(i)[0]).clone();
    let axes: Vec<Option<usize>> = columns
        .iter()
        .map(|c| if let IndexColumn::Axis(a) = c { Some(*a) } else { None })
        .collect();
    // The axis of the result that each axis of the updates is.
    let rank = f.ty(updates_of(f, i)).rank();
    let place: Vec<i64> =
        (0..rank).map(|a| axes.iter().position(|&x| x == Some(a)).unwrap_or(0) as i64).collect();
    let mut hit: Option<Value> = None;
    for (d, c) in columns.iter().enumerate() {
        let IndexColumn::Data(v, _) = c else { continue };
        let mut label = s.get(*v);
        let flat =
            TensorType { dtype: s.b.ty(label).dtype, shape: f.ty(updates_of(f, i)).shape.clone() };
        if *s.b.ty(label) != flat {
            label = s.b.op_as(Op::Reshape, &[label], Attrs::none(), &flat);
        }
        if f.attrs(i).word("mode") != "drop" {
            let most = ty.shape[d].known().unwrap_or(1).saturating_sub(1);
            let lo = s.b.literal(&flat, Literal::zero(flat.dtype));
            let hi = s.b.literal(&flat, Literal::from_i64(flat.dtype, most as i64));
            label = s.b.op(Op::Clamp, &[lo, label, hi]);
        }
        let wide = ty.with_dtype(flat.dtype);
        let spread = Attrs::none().with_ints("dims", place.iter().copied());
        let label = s.b.op_as(Op::BroadcastInDim, &[label], spread, &wide);
        let along = Attrs::none().with_int("axis", d as i64);
        let here = s.b.op_as(Op::Iota, &[], along, &wide);
        let equal = s.b.op(Op::Eq, &[here, label]);
        hit = Some(match hit {
            None => equal,
            Some(h) => s.b.op(Op::And, &[h, equal]),
        });
    }
    let small = s.b.ty(updates).clone();
    let begin = s.b.literal(&small, start);
    // The sum of one update: adding it to what was there turns -0 into +0 as the scatter does.
    let sum = s.b.op(Op::Add, &[begin, updates]);
    let spread = Attrs::none().with_ints("dims", place.iter().copied());
    let sum = s.b.op_as(Op::BroadcastInDim, &[sum], spread, &ty);
    let rest = s.b.literal(&ty, start);
    match hit {
        Some(hit) => s.b.op(Op::SelectN, &[hit, rest, sum]),
        None => sum,
    }
}

fn updates_of(f: &Function, i: Inst) -> Value {
    f.args(i)[2]
}
