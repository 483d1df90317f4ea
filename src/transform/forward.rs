//! Forward mode: tangents, linear parts of functions, and products with Hessians.

use super::point::{Asked, TracedPoint, types};
use crate::autodiff::Derived;
use crate::ir::{Diagnostic, Kind};
use crate::trace::Tensor;
use crate::tree::{Params, leaves, rebuild};

/// A function's results and their tangents, from its arguments and theirs: the derivative in a direction. The tangent
/// of a result that is of no float type is zero.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{jit, jvp};
///
/// let f = jit(|(x, dx): (Tensor, Tensor)| jvp(|x: &Tensor| x.square())(&x, &dx));
/// let pair = (Array::from_f32s(&[2], &[3.0, 4.0])?, Array::from_f32s(&[2], &[1.0, 10.0])?);
/// let (y, dy) = f.call(&pair)?;
/// assert_eq!(y.to_f64s(), [9.0, 16.0]);
/// assert_eq!(dy.to_f64s(), [6.0, 80.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn jvp<A: Params<Tensor>, R: Params<Tensor>>(f: impl Fn(&A) -> R) -> impl Fn(&A, &A) -> (R, R) {
    let asked = Asked::here("jvp");
    move |x, dx| {
        let (point, out) = TracedPoint::differentiated(asked, x, &f);
        let Some(point) = point else { return (rebuild(&out, []), out) };
        point.alike("the tangent", x, dx);
        let due = [point.results.clone(), point.moving()].concat();
        let wrt = point.wrt();
        let mut made = point.transformed(&leaves(dx), &due, |f| f.jvp(&wrt)).into_iter();
        let y = rebuild(&out, made.by_ref());
        (y, point.tracer.with_zeros(&out, made))
    }
}

/// What turns tangents of a function's arguments into those of its results.
pub type Pushforward<A, R> = Box<dyn Fn(&A) -> R>;

/// The results of a function, and its linear part at this point: from a tangent of the argument to the tangent of the
/// results. It is called in the same trace, any number of times; it reads what the function has computed.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{jit, linearize};
///
/// let f = jit(|(x, dx): (Tensor, Tensor)| {
///     let (y, push) = linearize(|x: &Tensor| x.square())(&x);
///     (y, push(&dx), push(&(&dx * 2.0)))
/// });
/// let pair = (Array::from_f32s(&[], &[3.0])?, Array::from_f32s(&[], &[1.0])?);
/// let (y, once, twice) = f.call(&pair)?;
/// assert_eq!([y, once, twice].map(|a| a.to_f64s()[0]), [9.0, 6.0, 12.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn linearize<A: Params<Tensor> + 'static, R: Params<Tensor> + 'static>(
    f: impl Fn(&A) -> R,
) -> impl Fn(&A) -> (R, Pushforward<A, R>) {
    let asked = Asked::here("linearize");
    move |x| {
        let (point, out) = TracedPoint::differentiated(asked, x, &f);
        let like = rebuild(&out, []);
        let Some(point) = point else { return (out, Box::new(move |_| rebuild(&like, []))) };
        let wrt = point.wrt();
        let (y, residuals, linear) = point.halves(|f| f.linearize(&wrt));
        let argument = rebuild(x, []);
        let push = move |tangents: &A| {
            point.alike("the tangent", &argument, tangents);
            let args: Vec<Tensor> = residuals.iter().cloned().chain(leaves(tangents)).collect();
            let made = point.placed(linear.clone(), &args, &point.moving());
            point.tracer.with_zeros(&like, made)
        };
        (rebuild(&out, y), Box::new(push))
    }
}

/// The Hessian of a scalar times a vector, a tree like the argument: the derivative of the gradient in the vector's direction.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{hvp, jit};
///
/// let f = jit(|(x, v): (Tensor, Tensor)| hvp(|x: &Tensor| x.powi(3).sum(&[0]))(&x, &v));
/// let pair = (Array::from_f32s(&[2], &[1.0, 2.0])?, Array::from_f32s(&[2], &[1.0, 10.0])?);
/// assert_eq!(f.call(&pair)?.to_f64s(), [6.0, 120.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn hvp<A: Params<Tensor>>(f: impl Fn(&A) -> Tensor) -> impl Fn(&A, &A) -> A {
    let asked = Asked::here("hvp");
    move |x, v| {
        let (point, y) = TracedPoint::differentiated(asked, x, &f);
        let Some(point) = point else { return rebuild(x, []) };
        point.alike("the vector", x, v);
        if y.ty().rank() != 0 || !y.ty().dtype.is_float() {
            let m = format!("`hvp` is of one float scalar, and the function gives {}", y.ty());
            point.tracer.refuse(asked.place, Kind::Usage, m);
        }
        let due = types(&point.given);
        rebuild(x, point.transformed(&leaves(v), &due, |f| f.hvp(&point.wrt())))
    }
}

impl TracedPoint {
    /// The results of the first of two functions, which are the traced function's and what the second needs, and the
    /// second.
    pub(super) fn halves(
        &self,
        transform: impl FnOnce(Derived) -> Result<[Derived; 2], Diagnostic>,
    ) -> (Vec<Tensor>, Vec<Tensor>, Option<Result<Derived, Diagnostic>>) {
        let (first, second) = match self.made(transform) {
            Some(Ok([first, second])) => (Some(Ok(first)), Some(Ok(second))),
            Some(Err(d)) => (Some(Err(d)), None),
            None => (None, None),
        };
        let args = [&self.given, self.captures()].concat();
        let mut made = self.placed(first, &args, &self.results);
        let residuals = made.split_off(self.results.len().min(made.len()));
        (made, residuals, second)
    }
}
