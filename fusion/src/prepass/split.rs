//! Views with several results become a view for each, so that each has a kernel of its own or none.

use super::replace::replaced;
use adfuse_ir::attrs::Attrs;
use adfuse_ir::op::Body;
use adfuse_ir::{Diagnostic, Function, Inst, Op};

/// Views with several results become a view for each, so that each has a kernel of its own or none.
pub(crate) fn multi_result_views(f: &Function) -> Result<Function, Diagnostic> {
    let several = |i: Inst| {
        (f.inst_results(i).len() > 1 && matches!(f.op(i).def().body, Body::View(_))).then_some(())
    };
    replaced(f, several, |b, copier, i, ()| {
        let x = copier.get(b, f.args(i)[0]);
        let axis = f.attrs(i).int("axis");
        let mut start = 0;
        for (&v, &size) in f.inst_results(i).iter().zip(f.attrs(i).ints("sizes")) {
            let rank = f.ty(v).rank() as i64;
            let mut limit = b.extents(&f.ty(f.args(i)[0]).clone());
            limit[axis as usize] = (start + size) as u64;
            let along = |d: i64| if d == axis { start } else { 0 };
            let attrs = Attrs::none()
                .with_ints("start", (0..rank).map(along))
                .with_ints("limit", limit.iter().map(|&n| n as i64))
                .with_ints("stride", (0..rank).map(|_| 1));
            let new = b.op_with(Op::Slice, &[x], attrs);
            b.func_mut().set_name(new, f.name_of(v));
            copier.set(v, new);
            start += size;
        }
    })
}
