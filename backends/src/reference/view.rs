//! Views: every element is read through its index map.

use super::EvalTensor;
use adfuse_ir::index::ViewMap;
use adfuse_ir::op::ViewCx;
use adfuse_ir::{At, Attrs, Diagnostic, Kind, TensorType};
use smallvec::SmallVec;
use std::rc::Rc;

/// All results of a view.
pub(super) fn view(
    index: fn(&ViewCx<'_>) -> ViewMap,
    args: &[&EvalTensor],
    attrs: &Attrs,
    types: &[TensorType],
) -> Result<Vec<Rc<EvalTensor>>, Diagnostic> {
    let dims: Vec<SmallVec<[i64; 4]>> = args.iter().map(|t| t.dims.clone()).collect();
    let result = |(k, ty): (usize, &TensorType)| {
        let out: SmallVec<[i64; 4]> =
            ty.dims().unwrap_or_default().iter().map(|&n| n as i64).collect();
        let map = index(&ViewCx { args: &dims, out: &out, result: k, attrs });
        EvalTensor::build(ty, |bits| {
            walk(&out, |at| {
                bits.push(read(&map, args, at)?);
                Ok(())
            })
        })
        .map(Rc::new)
    };
    types.iter().enumerate().map(result).collect()
}

/// Calls `visit` with every coordinate, row-major.
pub(super) fn walk(
    dims: &[i64],
    mut visit: impl FnMut(&[i64]) -> Result<(), Diagnostic>,
) -> Result<(), Diagnostic> {
    let total: i64 = dims.iter().product();
    let mut at: SmallVec<[i64; 4]> = dims.iter().map(|_| 0).collect();
    for _ in 0..total {
        visit(&at)?;
        for d in (0..dims.len()).rev() {
            at[d] += 1;
            if at[d] < dims[d] {
                break;
            }
            at[d] = 0;
        }
    }
    Ok(())
}

fn read(map: &ViewMap, args: &[&EvalTensor], at: &[i64]) -> Result<u64, Diagnostic> {
    let holds = |g: &adfuse_ir::index::Guard| g.range.contains(&g.expr.eval(at, &[]));
    let piece = map.pieces.iter().find(|p| p.guards.iter().all(holds));
    let found = piece.and_then(|p| {
        let t = args[p.operand as usize];
        let mut offset = 0;
        for (e, &n) in p.index.iter().zip(&t.dims) {
            offset = offset * n + e.eval(at, &[]);
        }
        t.bits.get(usize::try_from(offset).ok()?).copied()
    });
    found.ok_or_else(|| {
        let m = format!("no operand element for result element {at:?}");
        Diagnostic::new(At::default(), Kind::Internal, m)
    })
}
