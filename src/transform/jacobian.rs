//! Jacobians and Hessians: derivatives of every element by every element.

use super::point::{Asked, TracedPoint};
use crate::autodiff::Derived;
use crate::ir::{Diagnostic, Kind, TensorType};
use crate::trace::Tensor;
use crate::tree::{Params, rebuild};

/// The Jacobian of a tensor by every tensor of the argument, in forward mode: one pass for each element of the
/// argument. The block at each leaf has the axes of the result, then those of the leaf.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{jacfwd, jit};
///
/// let f = jit(|x: Tensor| jacfwd(|x: &Tensor| x.square())(&x));
/// let blocks = f.call(&Array::from_f32s(&[2], &[3.0, 4.0])?)?;
/// assert_eq!(blocks.to_f64s(), [6.0, 0.0, 0.0, 8.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn jacfwd<A: Params<Tensor>>(f: impl Fn(&A) -> Tensor) -> impl Fn(&A) -> A {
    let asked = Asked::here("jacfwd");
    move |x| blocks(asked, x, &f, Derived::jacfwd)
}

/// As [`jacfwd`], in reverse mode: one pass for each element of the result.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{jacrev, jit};
///
/// // Two blocks: by the matrix, and by the vector.
/// let f = jit(|pair: (Tensor, Tensor)| jacrev(|(a, x): &(Tensor, Tensor)| a.dot(x))(&pair));
/// let a = Array::from_f32s(&[1, 2], &[1.0, 2.0])?;
/// let x = Array::from_f32s(&[2], &[3.0, 4.0])?;
/// let (by_a, by_x) = f.call(&(a, x))?;
/// assert_eq!((by_a.dims(), by_x.dims()), ([1, 1, 2].as_slice(), [1, 2].as_slice()));
/// assert_eq!((by_a.to_f64s(), by_x.to_f64s()), (vec![3.0, 4.0], vec![1.0, 2.0]));
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn jacrev<A: Params<Tensor>>(f: impl Fn(&A) -> Tensor) -> impl Fn(&A) -> A {
    let asked = Asked::here("jacrev");
    move |x| blocks(asked, x, &f, Derived::jacrev)
}

/// All second derivatives of a tensor by a tensor, forward over reverse: the axes are those of the result, then those
/// of the argument twice.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{hessian, jit};
///
/// let f = jit(|x: Tensor| hessian(|x: &Tensor| x.prod(&[0]))(&x));
/// let second = f.call(&Array::from_f32s(&[2], &[3.0, 4.0])?)?;
/// assert_eq!(second.to_f64s(), [0.0, 1.0, 1.0, 0.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn hessian(f: impl Fn(&Tensor) -> Tensor) -> impl Fn(&Tensor) -> Tensor {
    let rows = second("hessian", f);
    move |x| rows(x).into_iter().next().unwrap_or_else(|| x.clone())
}

/// As [`hessian`], by the tensors of a tree: for each of them, in the order of leaves, a tree of the second derivatives
/// by it and then by each of them.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{hessian_blocks, jit};
///
/// let f = jit(|pair: (Tensor, Tensor)| {
///     let rows = hessian_blocks(|(x, y): &(Tensor, Tensor)| x.square() * y)(&pair);
///     (rows[0].clone(), rows[1].clone())
/// });
/// let pair = (Array::from_f32s(&[], &[3.0])?, Array::from_f32s(&[], &[4.0])?);
/// let ((xx, xy), (yx, yy)) = f.call(&pair)?;
/// assert_eq!([xx, xy, yx, yy].map(|a| a.to_f64s()[0]), [8.0, 6.0, 6.0, 0.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn hessian_blocks<A: Params<Tensor>>(f: impl Fn(&A) -> Tensor) -> impl Fn(&A) -> Vec<A> {
    second("hessian_blocks", f)
}

#[track_caller]
fn second<A: Params<Tensor>>(
    what: &'static str,
    f: impl Fn(&A) -> Tensor,
) -> impl Fn(&A) -> Vec<A> {
    let asked = Asked::here(what);
    move |x| {
        let (point, y) = TracedPoint::differentiated(asked, x, &f);
        let Some(point) = point else { return Vec::new() };
        point.is_moving(&y);
        let (by, wrt) = (&point.given, point.wrt());
        let each = |a: &Tensor| {
            let first = block(&y.ty(), &a.ty());
            by.iter().map(move |b| block(&first, &b.ty()))
        };
        let due: Vec<TensorType> = by.iter().flat_map(each).collect();
        let mut made = point.transformed(&[], &due, |f| f.hessian(&wrt)).into_iter();
        by.iter().map(|_| rebuild(x, made.by_ref())).collect()
    }
}

fn blocks<A: Params<Tensor>>(
    asked: Asked,
    x: &A,
    f: impl FnOnce(&A) -> Tensor,
    transform: impl FnOnce(Derived, &[usize]) -> Result<Derived, Diagnostic>,
) -> A {
    let (point, y) = TracedPoint::differentiated(asked, x, f);
    let Some(point) = point else { return rebuild(x, []) };
    point.is_moving(&y);
    let due: Vec<TensorType> = point.given.iter().map(|t| block(&y.ty(), &t.ty())).collect();
    rebuild(x, point.transformed(&[], &due, |f| transform(f, &point.wrt())))
}

impl TracedPoint {
    /// Errs unless the result is of a float type.
    fn is_moving(&self, y: &Tensor) {
        if !y.ty().dtype.is_float() {
            let m = format!("`{}`: a result of type {} has no derivative", self.asked.what, y.ty());
            self.tracer.refuse(self.asked.place, Kind::Derivative, m);
        }
    }
}

/// The type of the derivatives of a tensor by another.
fn block(of: &TensorType, by: &TensorType) -> TensorType {
    TensorType::new(of.dtype, of.shape.iter().chain(&by.shape).copied())
}
