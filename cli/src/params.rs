//! The parameters of a function that take arguments: names, types, and matching extents.

use super::failure::Failure;
use adfuse::ir::{DType, Dim, Function, TensorType};
use std::collections::BTreeSet;

/// A parameter that takes an argument.
#[derive(Clone, Debug)]
pub(super) struct NamedParam {
    /// Its name; what the printer numbers has its number.
    pub(super) name: String,
    /// Its type.
    pub(super) ty: TensorType,
}

/// The parameters of a function that take arguments: all but tokens. As in its text, a name that
/// an earlier one has gets a suffix: a cotangent may be named like a parameter.
pub(super) fn params(f: &Function) -> Vec<NamedParam> {
    let mut numbers = 0..;
    let mut taken = BTreeSet::new();
    let named = f.params().iter().map(|&p| {
        let number = |n: Option<u32>| n.unwrap_or_default().to_string();
        let wanted = f.name_of(p).map_or_else(|| number(numbers.next()), str::to_string);
        let name = unique(wanted, &mut taken);
        NamedParam { name, ty: f.ty(p).clone() }
    });
    named.filter(|p| p.ty.dtype != DType::Token).collect()
}

/// The name, with a suffix where it is taken already; takes it.
pub(super) fn unique(name: String, taken: &mut BTreeSet<String>) -> String {
    let mut candidate = name.clone();
    for k in 1.. {
        if taken.insert(candidate.clone()) {
            break;
        }
        candidate = format!("{name}_{k}");
    }
    candidate
}

/// Errs unless the parameter can have these extents; `what` has them.
pub(super) fn fits(param: &NamedParam, dims: &[u64], what: &str) -> Result<(), Failure> {
    let NamedParam { name, ty } = param;
    let same = |(d, n): (&Dim, &u64)| d.known().is_none_or(|k| k == *n);
    if ty.rank() == dims.len() && ty.shape.iter().zip(dims).all(same) {
        return Ok(());
    }
    let found = TensorType::of(ty.dtype, dims);
    Err(Failure::usage(format!("input {name}: %{name} is {ty}, {what} is {found}")))
}
