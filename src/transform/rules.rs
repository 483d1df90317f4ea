//! Functions with derivatives of their own, roots, and checkpoint regions.

use super::point::Asked;
use crate::ir::CheckpointPolicy;
use crate::trace::{Tensor, Tracer};
use crate::tree::{Params, leaves};
use std::panic::Location;

/// The function `f` with a forward rule: `jvp` takes the argument and its tangent, and gives the results and their
/// tangents. The rule is used by every derivative, forward and reverse, of the first order and later ones; it must be
/// linear in the tangent, and made of what has derivatives. The tangent at a leaf that is of no float type is zero.
///
/// The function may read tensors from around it that no derivative flows to, such as `stop_gradient()` of a tensor or
/// integers; the rule may read any.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{custom_jvp, grad, jit};
///
/// // A step whose derivative is that of tanh.
/// let step = |x: &Tensor| {
///     custom_jvp(
///         |x: &Tensor| x.sign(),
///         |x: &Tensor, dx: &Tensor| (x.sign(), dx * (1.0 - x.tanh().square())),
///     )(x)
/// };
/// let f = jit(move |x: Tensor| (step(&x), grad(step)(&x)));
/// let (y, slope) = f.call(&Array::from_f32s(&[], &[0.0])?)?;
/// assert_eq!((y.to_f64s()[0], slope.to_f64s()[0]), (0.0, 1.0));
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn custom_jvp<A: Params<Tensor>, R: Params<Tensor>>(
    f: impl Fn(&A) -> R,
    jvp: impl Fn(&A, &A) -> (R, R),
) -> impl Fn(&A) -> R {
    let asked = Asked::here("custom_jvp");
    move |x| match Tracer::of(&leaves(x)) {
        Some(tracer) => tracer.custom_jvp(asked.place, x, &f, &jvp),
        None => f(x),
    }
}

/// The function `f` with a reverse rule: `fwd` gives the results and whatever `bwd` needs, a tree; `bwd` takes that and a
/// cotangent for each result, and gives the gradient, a tree like the argument. There is no forward mode of such a
/// function; derivatives of its gradient are those of what `fwd` and `bwd` do.
///
/// The function may read tensors from around it that no derivative flows to, such as `stop_gradient()` of a tensor or
/// integers; the rule may read any.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{custom_vjp, grad, jit};
///
/// // The identity, whose gradient is clipped.
/// let clipped = custom_vjp(
///     |x: &Tensor| x.clone(),
///     |x: &Tensor| (x.clone(), ()),
///     |(), ct: &Tensor| ct.max(-1.0).min(1.0),
/// );
/// let f = jit(move |x: Tensor| grad(|x: &Tensor| clipped(x).powi(3).sum(&[0]))(&x));
/// let x = Array::from_f32s(&[3], &[0.5, 2.0, -2.0])?;
/// assert_eq!(f.call(&x)?.to_f64s(), [0.75, 1.0, 1.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn custom_vjp<A: Params<Tensor>, R: Params<Tensor>, S: Params<Tensor>>(
    f: impl Fn(&A) -> R,
    fwd: impl Fn(&A) -> (R, S),
    bwd: impl Fn(&S, &R) -> A,
) -> impl Fn(&A) -> R {
    let asked = Asked::here("custom_vjp");
    move |x| match Tracer::of(&leaves(x)) {
        Some(tracer) => tracer.custom_vjp(asked.place, x, &f, (&fwd, &bwd)),
        None => f(x),
    }
}

/// As [`Tracer::custom_root`], in the trace of the guess.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{custom_root, fori, grad, jit};
///
/// // The square root of a, by Newton's method, and its derivative.
/// let root = |a: &Tensor| {
///     let newton = |x: Tensor| fori(0..20, x, |_, x| (&x + a / &x) * 0.5);
///     custom_root(a.stop_gradient(), newton, |x| x.square() - a)
/// };
/// let f = jit(move |a: Tensor| (root(&a), grad(root)(&a)));
/// let (x, slope) = f.call(&Array::from_f32s(&[], &[4.0])?)?;
/// assert_eq!((x.to_f64s()[0], slope.to_f64s()[0]), (2.0, 0.25));
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
///
/// # Panics
/// If the guess has no tensor, which tells the trace.
#[track_caller]
pub fn custom_root<X: Params<Tensor>>(
    guess: X,
    solve: impl FnOnce(X) -> X,
    residual: impl FnOnce(X) -> X,
) -> X {
    trace_of(&leaves(&guess), "the guess of `custom_root`").custom_root(guess, solve, residual)
}

/// The function as a checkpoint region: the policy says which of the values that it computes are kept for the backward
/// pass. See [`Tracer::checkpoint`].
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::ir::CheckpointPolicy;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{checkpoint, grad, jit};
///
/// let layer = checkpoint(CheckpointPolicy::Remat, |x: &Tensor| x.sin().sin());
/// let f = jit(move |x: Tensor| grad(|x: &Tensor| layer(x).sum(&[0]))(&x));
/// assert_eq!(f.call(&Array::from_f32s(&[1], &[0.0])?)?.to_f64s(), [1.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn checkpoint<A: Params<Tensor>, R>(
    policy: CheckpointPolicy,
    f: impl Fn(&A) -> R,
) -> impl Fn(&A) -> R {
    let place = Location::caller();
    move |x| match Tracer::of(&leaves(x)) {
        Some(tracer) => tracer.checkpoint_at(place, policy.clone(), || f(x)),
        None => f(x),
    }
}

/// The trace of the first of these tensors.
///
/// # Panics
/// If there is none.
#[track_caller]
pub(super) fn trace_of(tensors: &[Tensor], what: &str) -> Tracer {
    match Tracer::of(tensors) {
        Some(tracer) => tracer,
        None => panic!("{what} has no tensor: the methods of `Tracer` need none"),
    }
}
