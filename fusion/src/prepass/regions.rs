//! The regions of loops and branches take the passes before planning too, each as a function of its own.

use crate::plan::blocks::is_control;
use adfuse_ir::control::outline;
use adfuse_ir::rewrite::Copier;
use adfuse_ir::{Builder, Diagnostic, Function, Inst, Region, TensorType, Value};

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
    let mut b = Builder::new(f.name.clone());
    b.func_mut().symbols = f.symbols.clone();
    b.func_mut().rule = f.rule.clone();
    b.func_mut().checkpoint = f.checkpoint.clone();
    let mut copier = Copier::new(&f);
    copier.params(&mut b);
    for &i in f.body_insts() {
        match is_control(&f, i) {
            true => control(prepare, &f, &mut copier, &mut b, i)?,
            false => {
                copier.inst(&mut b, i);
            }
        }
    }
    let results: Vec<Value> = f.results().iter().map(|&v| copier.get(&mut b, v)).collect();
    b.set_results(&results);
    b.finish()
}

/// Copies a loop or a branch with prepared regions.
fn control(
    prepare: &PrepareFn<'_>,
    f: &Function,
    copier: &mut Copier<'_>,
    b: &mut Builder,
    i: Inst,
) -> Result<(), Diagnostic> {
    let mut regions = Vec::new();
    for &old in &f.inst(i).regions {
        regions.push(region(prepare, f, copier, b, old)?);
    }
    let args: Vec<Value> = f.args(i).iter().map(|&v| copier.get(b, v)).collect();
    let types: Vec<TensorType> = f.inst_results(i).iter().map(|&v| f.ty(v).clone()).collect();
    b.set_phase(f.inst(i).phase);
    b.follow(f, i);
    let new = b.place(f.op(i), &args, f.attrs(i).clone(), &types, &regions);
    for (k, &old) in f.inst_results(i).iter().enumerate() {
        let v = b.func().inst_results(new)[k];
        b.func_mut().set_name(v, f.name_of(old));
        copier.set(old, v);
    }
    Ok(())
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
