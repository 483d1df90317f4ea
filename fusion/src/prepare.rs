//! What a function goes through before it is planned: calls inlined, exact rewrites, one result an
//! instruction, folds of windows written out, concatenations of many operands as trees.

use crate::concatenate::concatenations_as_trees;
use crate::few::windows_written_out;
use crate::pick::scatters_to_choices;
use adfuse_ir::attrs::Attrs;
use adfuse_ir::op::Body;
use adfuse_ir::rewrite::{Copier, Exactness, cse, dce, inline, simplify};
use adfuse_ir::{Builder, Diagnostic, Function, Inst, Module, Op};

/// The function as the planner sees it: the same bits, without calls, duplicates and dead
/// instructions. Plans name the values of this function.
///
/// # Errors
/// If calls expand beyond [`MAX_INLINED`](adfuse_ir::rewrite::MAX_INLINED) instructions.
pub fn prepare(module: &Module, f: &Function) -> Result<Function, Diagnostic> {
    let inlined = inline(module, f, &|_| true)?;
    let f = scatters_to_choices(&single(&inlined)?)?;
    let f = simplify(&f, Exactness::Exact)?;
    let mut f = concatenations_as_trees(&windows_written_out(&f)?)?;
    cse(&mut f);
    dce(&mut f);
    Ok(f)
}

/// Views with several results become a view for each, so that each has a kernel of its own or none.
fn single(f: &Function) -> Result<Function, Diagnostic> {
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

/// The function with instructions replaced: those that `wanted` finds something of, by what `make`
/// writes and sets instead of their results.
pub(crate) fn replaced<T>(
    f: &Function,
    wanted: impl Fn(Inst) -> Option<T>,
    mut make: impl FnMut(&mut Builder, &mut Copier<'_>, Inst, T),
) -> Result<Function, Diagnostic> {
    let found: Vec<Option<T>> = f.body_insts().iter().map(|&i| wanted(i)).collect();
    if found.iter().all(Option::is_none) {
        return Ok(f.clone());
    }
    let mut b = Builder::new(f.name.clone());
    b.func_mut().symbols = f.symbols.clone();
    let mut copier = Copier::new(f);
    copier.params(&mut b);
    for (&i, found) in f.body_insts().iter().zip(found) {
        let Some(found) = found else {
            copier.inst(&mut b, i);
            continue;
        };
        b.set_phase(f.inst(i).phase);
        b.set_span(f.span(i));
        make(&mut b, &mut copier, i, found);
    }
    let results: Vec<_> = f.results().iter().map(|&v| copier.get(&mut b, v)).collect();
    b.set_results(&results);
    b.finish()
}
