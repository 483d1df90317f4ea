//! Reverse mode: gradients of scalars, and pullbacks.

use super::point::{Asked, TracedPoint, types};
use crate::trace::Tensor;
use crate::tree::{Params, leaves, rebuild};

/// The gradient of a scalar by every tensor of the argument, as a tree like the argument.
///
/// Errors of the trace: a tensor of the argument that is not of a float type, a result that is no float scalar, and an
/// instruction without a derivative.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{grad, jit};
///
/// let slope = jit(|x: Tensor| grad(|x: &Tensor| x.sin().sum(&[0]))(&x));
/// let x = Array::from_f32s(&[2], &[0.0, 3.14159265])?;
/// assert_eq!(slope.call(&x)?.to_f64s(), [1.0, -1.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn grad<A: Params<Tensor>>(f: impl Fn(&A) -> Tensor) -> impl Fn(&A) -> A {
    let asked = Asked::here("grad");
    move |x| {
        let (point, _) = TracedPoint::differentiated(asked, x, &f);
        let Some(point) = point else { return rebuild(x, []) };
        rebuild(x, point.transformed(&[], &types(&point.given), |f| f.grad(&point.wrt())))
    }
}

/// As [`grad`], of a function that gives more than the scalar: the gradient, and what else it gave, from which no
/// derivative flows.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{grad_aux, jit};
///
/// let slope = jit(|x: Tensor| grad_aux(|x: &Tensor| (x.square(), x.sin()))(&x));
/// let (slope, sine) = slope.call(&Array::from_f32s(&[], &[3.0])?)?;
/// assert_eq!(slope.to_f64s(), [6.0]);
/// assert!((sine.to_f64s()[0] - 3f64.sin()).abs() < 1e-6);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn grad_aux<A: Params<Tensor>, X: Params<Tensor>>(
    f: impl Fn(&A) -> (Tensor, X),
) -> impl Fn(&A) -> (A, X) {
    let asked = Asked::here("grad_aux");
    move |x| {
        let ((_, aux), gradient) = valued(asked, x, &f);
        (gradient, aux)
    }
}

/// A scalar and its gradient, as [`grad`] gives it.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{jit, value_and_grad};
///
/// let f = jit(|x: Tensor| value_and_grad(|x: &Tensor| x.square())(&x));
/// let (y, slope) = f.call(&Array::from_f32s(&[], &[3.0])?)?;
/// assert_eq!((y.to_f64s()[0], slope.to_f64s()[0]), (9.0, 6.0));
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn value_and_grad<A: Params<Tensor>>(f: impl Fn(&A) -> Tensor) -> impl Fn(&A) -> (Tensor, A) {
    let asked = Asked::here("value_and_grad");
    move |x| {
        let ((y, ()), gradient) = valued(asked, x, |x| (f(x), ()));
        (y, gradient)
    }
}

/// As [`value_and_grad`], of a function that gives more than the scalar: what the function gave, and the gradient of
/// the scalar.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{jit, value_and_grad_aux};
///
/// let f = jit(|(w, x): (Tensor, Tensor)| {
///     let loss = |w: &Tensor| {
///         let y = w.dot(&x);
///         (y.square(), y)
///     };
///     value_and_grad_aux(loss)(&w)
/// });
/// let pair = (Array::from_f32s(&[2], &[1.0, 2.0])?, Array::from_f32s(&[2], &[3.0, 4.0])?);
/// let ((loss, y), gradient) = f.call(&pair)?;
/// assert_eq!((loss.to_f64s()[0], y.to_f64s()[0]), (121.0, 11.0));
/// assert_eq!(gradient.to_f64s(), [66.0, 88.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn value_and_grad_aux<A: Params<Tensor>, X: Params<Tensor>>(
    f: impl Fn(&A) -> (Tensor, X),
) -> impl Fn(&A) -> ((Tensor, X), A) {
    let asked = Asked::here("value_and_grad_aux");
    move |x| valued(asked, x, &f)
}

fn valued<A: Params<Tensor>, X: Params<Tensor>>(
    asked: Asked,
    x: &A,
    f: impl FnOnce(&A) -> (Tensor, X),
) -> ((Tensor, X), A) {
    let (point, out) = TracedPoint::differentiated(asked, x, f);
    let Some(point) = point else { return (out, rebuild(x, [])) };
    let due = [point.results.clone(), types(&point.given)].concat();
    let wrt = point.wrt();
    let mut made = point.transformed(&[], &due, |f| f.value_and_grad_has_aux(&wrt)).into_iter();
    (rebuild(&out, made.by_ref()), rebuild(x, made))
}

/// What turns the cotangents of a function's results into the gradients of its arguments.
pub type Pullback<A, R> = Box<dyn Fn(&R) -> A>;

/// The results of a function, and its pullback: from a cotangent for each result, a tree like the results, to the
/// gradient, a tree like the argument. The pullback is called in the same trace, any number of times; it reads what
/// the function has computed. A result that is of no float type has no cotangent: any tensor of its type may stand there.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{jit, vjp};
///
/// let f = jit(|(x, ct): (Tensor, Tensor)| {
///     let (y, pullback) = vjp(|x: &Tensor| x.square())(&x);
///     (y, pullback(&ct))
/// });
/// let pair = (Array::from_f32s(&[2], &[3.0, 4.0])?, Array::from_f32s(&[2], &[1.0, 10.0])?);
/// let (y, gradient) = f.call(&pair)?;
/// assert_eq!(y.to_f64s(), [9.0, 16.0]);
/// assert_eq!(gradient.to_f64s(), [6.0, 80.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn vjp<A: Params<Tensor> + 'static, R: Params<Tensor> + 'static>(
    f: impl Fn(&A) -> R,
) -> impl Fn(&A) -> (R, Pullback<A, R>) {
    let asked = Asked::here("vjp");
    move |x| {
        let (point, out) = TracedPoint::differentiated(asked, x, &f);
        let argument = rebuild(x, []);
        let Some(point) = point else { return (out, Box::new(move |_| rebuild(&argument, []))) };
        let wrt = point.wrt();
        let (y, residuals, backward) = point.halves(|f| f.pullback(&wrt));
        let (y, like) = (rebuild(&out, y.iter().cloned()), rebuild(&out, y));
        let pullback = move |cotangents: &R| {
            point.alike("the cotangent", &like, cotangents);
            let cotangents = leaves(cotangents).into_iter().filter(|t| t.ty().dtype.is_float());
            let args: Vec<Tensor> = residuals.iter().cloned().chain(cotangents).collect();
            rebuild(&argument, point.placed(backward.clone(), &args, &types(&point.given)))
        };
        (y, Box::new(pullback))
    }
}
