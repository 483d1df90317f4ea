//! Specialization: symbolic extents become constants.

use super::Copier;
use crate::diag::{At, Diagnostic, Kind};
use crate::function::Function;
use crate::types::{Dim, Symbol, TensorType};
use crate::verify::{substitute, verify_function};
use std::collections::BTreeMap;

/// The function with the given symbols replaced by constants and all others kept.
///
/// # Errors
/// If an instruction does not fit at these extents (a slice that leaves its operand, a size over the
/// limit), or a symbol is not one of the function's.
pub fn specialize(
    f: &Function,
    extents: &BTreeMap<Symbol, u64>,
) -> Result<Function, Vec<Diagnostic>> {
    if let Some(s) = extents.keys().find(|s| !f.symbols.contains(s)) {
        let at = At { func: Some(f.name.clone()), ..At::default() };
        let m = format!("@{} has no symbol `{s:?}`", f.name);
        return Err(vec![Diagnostic::new(at, Kind::UnknownName, m)]);
    }
    let bound: BTreeMap<Symbol, Dim> = extents.iter().map(|(&s, &n)| (s, Dim::Const(n))).collect();
    let retype = |t: &TensorType| substitute(t, &bound);
    let mut copier = Copier::retyping(f, &retype);
    let mut b = copier.begin();
    b.func_mut().symbols.retain(|s| !bound.contains_key(s));
    for &i in f.body_insts() {
        copier.inst(&mut b, i);
    }
    let new = copier.finish(b).map_err(|d| vec![d])?;
    if new.rule.is_none() && !calls(&new) {
        verify_function(&new)?;
    }
    Ok(new)
}

fn calls(f: &Function) -> bool {
    let mut found = false;
    f.walk(&mut |f, i| found |= f.op(i) == crate::Op::Call);
    found
}
