//! Automatic differentiation of functions of the IR: forward and reverse mode, Jacobians, batches.
#![doc = ""]
#![doc = include_str!("../README.md")]
//!
//! ## Where to begin
//!
//! - [`jvp`] has the rules, read off the table of ops; [`linearize`] splits a function into a primal part and a linear
//!   part; [`transpose`] turns the linear part around;
//! - [`vjp`], [`grad`] and [`value_and_grad`] are compositions of these; [`vmap`] makes a function of a batch of one of
//!   an element, and with it [`jacfwd`], [`jacrev`] and [`hessian`] are compositions too.
//!
//! Every transformation takes a verified module and gives a new function without calls. Zero tangents and cotangents
//! are symbolic: they become literals only where they are results.

mod closed;
mod control;
mod derived;
mod forward;
mod jacobian;
mod jvp;
mod linear_transpose;
mod linearize;
mod partial;
mod reverse;
mod root;
mod single;
mod slices;
mod transpose;
mod vmap;
mod zero_tangents;

pub use derived::Derived;
pub use linearize::Linearized;
pub use single::{
    backward, forward_and_backward, grad, hessian, hvp, jacfwd, jacrev, jvp, linear_transpose,
    linearize, value_and_grad, value_and_grad_has_aux, vjp, vmap,
};
pub use transpose::transpose;
pub use vmap::{Batching, Random};

use adfuse_ir::{At, Diagnostic, Function, Kind};

/// The positions among `f`'s parameters to differentiate with respect to: those named, or all of a
/// float type.
///
/// # Errors
/// For a name that is no parameter or is named twice, a parameter that is not of a float type, and
/// when nothing is left.
pub fn differentiable(f: &Function, wrt: Option<&[String]>) -> Result<Vec<usize>, Diagnostic> {
    let at = || At { func: Some(f.name.clone()), ..At::default() };
    let float = |k: &usize| f.ty(f.params()[*k]).dtype.is_float();
    let Some(names) = wrt else {
        let all: Vec<usize> = (0..f.params().len()).filter(float).collect();
        if all.is_empty() {
            let m = format!("@{} has no parameter of a float type", f.name);
            return Err(Diagnostic::new(at(), Kind::Derivative, m));
        }
        return Ok(all);
    };
    let known = || f.params().iter().filter_map(|&p| f.name_of(p)).collect::<Vec<_>>();
    let mut out = Vec::new();
    for name in names {
        let name = name.trim_start_matches('%');
        let Some(k) = f.params().iter().position(|&p| f.name_of(p) == Some(name)) else {
            let mut d = Diagnostic::new(at(), Kind::UnknownName, format!("no parameter %{name}"));
            d.hint = adfuse_ir::diag::instead(name, &known(), "%");
            return Err(d);
        };
        if !float(&k) {
            let m = format!("%{name} is {}: only float types have gradients", f.ty(f.params()[k]));
            return Err(Diagnostic::new(at(), Kind::Derivative, m));
        }
        if out.contains(&k) {
            return Err(Diagnostic::new(at(), Kind::Usage, format!("%{name} is named twice")));
        }
        out.push(k);
    }
    Ok(out)
}

/// Errs unless these are positions of different parameters of a float type.
fn positions(f: &Function, wrt: &[usize]) -> Result<(), Diagnostic> {
    for (n, &k) in wrt.iter().enumerate() {
        let ty = f.params().get(k).map(|&p| f.ty(p));
        let why = match ty {
            None => format!("@{} has {} parameters", f.name, f.params().len()),
            Some(ty) if !ty.dtype.is_float() => format!("{ty} is no float type"),
            Some(_) if wrt[..n].contains(&k) => "it is there twice".into(),
            Some(_) => continue,
        };
        let at = At { func: Some(f.name.clone()), ..At::default() };
        let m = format!("no derivative by parameter {k} (`wrt` counts from 0): {why}");
        return Err(Diagnostic::new(at, Kind::Usage, m));
    }
    Ok(())
}
