//! Index columns: the columns of a gather's or scatter's indices, each a loop coordinate or data.

use adfuse_ir::index::IndexExpr;
use adfuse_ir::op::{Body, ViewCx};
use adfuse_ir::{Function, Op, Value, ValueDef};
use smallvec::SmallVec;

/// Index expressions, an axis each.
pub(crate) type Index = SmallVec<[IndexExpr; 4]>;

/// One column of index values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum IndexColumn {
    /// The coordinate along an axis of the index values.
    Axis(usize),
    /// An element of another tensor, at these expressions of the coordinates.
    Data(Value, Index),
}

pub(crate) fn dims(f: &Function, v: Value) -> Option<SmallVec<[i64; 4]>> {
    f.ty(v).shape.iter().map(|d| i64::try_from(d.known()?).ok()).collect()
}

/// What the columns of an index tensor are: its last axis tells them apart. `None` where one is not
/// found at one place. Values for which `kept` holds are not seen through.
pub(crate) fn columns(
    f: &Function,
    indices: Value,
    kept: &dyn Fn(Value) -> bool,
) -> Option<Vec<IndexColumn>> {
    let all = dims(f, indices)?;
    let (&n, batch) = all.split_last()?;
    let column = |k: i64| {
        let mut at: Index = (0..batch.len()).map(IndexExpr::axis).collect();
        at.push(IndexExpr::Const(k));
        column(f, indices, at, batch, kept)
    };
    (0..n).map(column).collect()
}

fn column(
    f: &Function,
    mut v: Value,
    mut at: Index,
    batch: &[i64],
    kept: &dyn Fn(Value) -> bool,
) -> Option<IndexColumn> {
    loop {
        if kept(v) {
            return Some(IndexColumn::Data(v, at));
        }
        let ValueDef::Inst(i, result) = f.def(v) else {
            f.literal(v).is_none().then_some(())?;
            return Some(IndexColumn::Data(v, at));
        };
        match f.op(i).def().body {
            Body::View(index) => {
                let args: Option<Vec<_>> = f.args(i).iter().map(|&a| dims(f, a)).collect();
                let (args, out) = (args?, dims(f, v)?);
                let attrs = f.attrs(i);
                let map = index(&ViewCx { args: &args, out: &out, result: result as usize, attrs });
                // The piece must be the same wherever the index values are read.
                let known = |e: &IndexExpr| match e.compose(&at) {
                    IndexExpr::Const(c) => Some(c),
                    _ => None,
                };
                let mut found = None;
                for piece in &map.pieces {
                    let guards = piece.guards.iter();
                    let holds: Option<bool> = guards
                        .map(|g| known(&g.expr).map(|c| g.range.contains(&c)))
                        .try_fold(true, |all, h| h.map(|h| all && h));
                    if holds? {
                        found = Some(piece);
                        break;
                    }
                }
                let piece = found?;
                v = f.args(i)[piece.operand as usize];
                at = piece.index.iter().map(|e| e.compose(&at)).collect();
                f.literal(v).is_none().then_some(())?;
            }
            Body::Source(_) if f.op(i) == Op::Iota => {
                let axis = usize::try_from(f.attrs(i).int("axis")).ok()?;
                return match at.get(axis)? {
                    IndexExpr::Axis(d) if dims(f, v)?[axis] == batch[*d as usize] => {
                        Some(IndexColumn::Axis(*d as usize))
                    }
                    _ => None,
                };
            }
            _ => return Some(IndexColumn::Data(v, at)),
        }
    }
}
