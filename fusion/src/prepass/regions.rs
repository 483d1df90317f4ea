//! The regions of loops and branches take the passes before planning too, each as a function of its own.

use crate::plan::blocks::is_control;
use adfuse_ir::control::outline;
use adfuse_ir::rewrite::Copier;
use adfuse_ir::{Builder, Diagnostic, Function, Region, Value};

/// What prepares a function.
type PrepareFn<'p> = dyn Fn(&Function) -> Result<Function, Diagnostic> + 'p;

/// The function with the regions of its loops and branches prepared by `prepare`.
///
/// # Errors
/// Those of `prepare`.
pub(super) fn regions_prepared(
    f: Function,
    prepare: &PrepareFn<'_>,
) -> Result<Function, Diagnostic> {
    if !f.body_insts().iter().any(|&i| is_control(&f, i)) {
        return Ok(f);
    }
    Copier::new(&f).rebuild(&mut |copier, b, i| {
        if !is_control(&f, i) {
            copier.inst(b, i);
            return Ok(());
        }
        let regions = f.inst(i).regions.iter().map(|&r| region(prepare, &f, copier, b, r));
        let regions: Vec<Region> = regions.collect::<Result<_, _>>()?;
        copier.inst_of(b, i, &regions);
        Ok(())
    })
}

/// Copies a region, prepared.
fn region(
    prepare: &PrepareFn<'_>,
    f: &Function,
    copier: &mut Copier<'_>,
    b: &mut Builder,
    old: Region,
) -> Result<Region, Diagnostic> {
    let outlined = outline(f, old);
    let prepared = prepare(&outlined.func)?;
    let new = b.open_region();
    let mut inner = Copier::new(&prepared);
    let (captured, own) = prepared.params().split_at(outlined.captures.len());
    for (&p, &v) in captured.iter().zip(&outlined.captures) {
        let v = copier.get(b, v);
        inner.set(p, v);
    }
    for &p in own {
        let v = b.param(prepared.ty(p).clone(), prepared.name_of(p));
        inner.set(p, v);
    }
    for &i in prepared.body_insts() {
        inner.inst(b, i);
    }
    let results: Vec<Value> = prepared.results().iter().map(|&v| inner.get(b, v)).collect();
    b.close_region(&results);
    Ok(new)
}
