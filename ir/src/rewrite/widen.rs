//! Widening: every float becomes `f64`, for evaluation beyond the declared precision.

use super::Copier;
use crate::attrs::{Attr, Attrs};
use crate::builder::Builder;
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::elements::Elements;
use crate::entity::Inst;
use crate::function::Function;
use crate::module::Module;
use crate::op::Op;
use crate::types::TensorType;

/// The type with `f64` for any float.
pub fn widened(t: &TensorType) -> TensorType {
    if t.dtype.is_float() { t.with_dtype(DType::F64) } else { t.clone() }
}

/// The module with all floats, parameters and constants too, as `f64`. Constants keep the value that
/// their own type rounds them to.
///
/// # Errors
/// Only for a broken invariant of the builder.
pub fn widen(module: &Module) -> Result<Module, Diagnostic> {
    let mut out = Module::default();
    for f in module.funcs.values() {
        out.funcs.push(widen_function(f)?);
    }
    Ok(out)
}

fn widen_function(f: &Function) -> Result<Function, Diagnostic> {
    Copier::retyping(f, &widened).rebuild(&mut |copier, b, i| place(f, copier, b, i))
}

fn place(
    f: &Function,
    copier: &mut Copier<'_>,
    b: &mut Builder,
    i: Inst,
) -> Result<(), Diagnostic> {
    if f.op(i) != Op::Constant {
        copier.inst_with(b, i, &mut |copier, b, i| place(f, copier, b, i))?;
        return Ok(());
    }
    let result = f.inst_results(i)[0];
    let ty = widened(f.ty(result));
    let values: Elements =
        f.attrs(i).literals("values").iter().map(|l| l.convert(ty.dtype)).collect();
    b.set_phase(f.inst(i).phase);
    b.follow(f, i);
    let attrs = Attrs::none().with("values", Attr::Literals(values));
    let v = b.op_as(Op::Constant, &[], attrs, &ty);
    b.func_mut().set_name(v, f.name_of(result));
    copier.set(result, v);
    Ok(())
}
