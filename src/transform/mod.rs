//! Transformations of Rust functions on trees of tensors: derivatives, batches, checkpoints, rules, control flow, and compilation.
//!
//! A transformation takes a function of a tree and gives one: `grad(f)` of `f: Fn(&A) -> Tensor` is a `Fn(&A) -> A`. The
//! functions are called in a trace, with tensors of that trace; they may use other tensors around them, which are
//! constants for the transformation and which later transformations around it see. Transformations nest.
//!
//! ```
//! use adfuse::trace::Tensor;
//! use adfuse::transform::{grad, jit, vmap};
//! use adfuse::backends::Array;
//!
//! // The gradient of each example's loss by itself, and the second derivative of tanh.
//! let examples = jit(|(w, xs): (Tensor, Tensor)| {
//!     let loss = |w: &Tensor, x: &Tensor| w.dot(x).square();
//!     vmap(|x: &Tensor| grad(|w: &Tensor| loss(w, x))(&w))(&xs)
//! });
//! let w = Array::from_f32s(&[2], &[1.0, 2.0])?;
//! let xs = Array::from_f32s(&[3, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0])?;
//! assert_eq!(examples.call(&(w, xs))?.to_f64s(), [2.0, 0.0, 0.0, 4.0, 6.0, 6.0]);
//!
//! let curvature = jit(|x: Tensor| grad(grad(|x: &Tensor| x.tanh()))(&x));
//! let at = Array::from_f32s(&[], &[0.5])?;
//! assert!((curvature.call(&at)?.to_f64s()[0] + 0.7269).abs() < 1e-4);
//! # Ok::<(), adfuse::ir::Diagnostic>(())
//! ```

mod batch;
mod flow;
mod forward;
mod jacobian;
mod jit;
mod point;
mod reverse;
mod rules;

pub use batch::{BatchAxes, vmap, vmap_axes, vmap_ranks, vmap_same_draws};
pub use flow::{cond, fori, scan, scan_with, switch, while_loop};
pub use forward::{Pushforward, hvp, jvp, linearize};
pub use jacobian::{hessian, hessian_blocks, jacfwd, jacrev};
pub use jit::{Jit, jit};
pub use reverse::{Pullback, grad, grad_aux, value_and_grad, value_and_grad_aux, vjp};
pub use rules::{checkpoint, custom_jvp, custom_root, custom_vjp};
