//! Batches: a function of one element becomes a function of many.

use super::point::{Asked, TracedPoint};
use crate::autodiff::{Batching, Random};
use crate::ir::{Dim, Kind, TensorType};
use crate::trace::closure::input_name;
use crate::trace::{RankAxis, Tensor, Tracer};
use crate::tree::{Params, count, named_leaves, rebuild};

/// The function for each element of a batch, which lies along the first axis of every tensor of the argument and of
/// the results. Tensors that the function uses from around it are shared by all elements. Every element has the bits
/// that the function gives it alone.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{jit, vmap};
///
/// let f = jit(|(w, xs): (Tensor, Tensor)| vmap(|x: &Tensor| w.dot(x))(&xs));
/// let w = Array::from_f32s(&[2], &[1.0, 2.0])?;
/// let xs = Array::from_f32s(&[3, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0])?;
/// assert_eq!(f.call(&(w, xs))?.to_f64s(), [1.0, 2.0, 3.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn vmap<A: Params<Tensor>, R: Params<Tensor>>(f: impl Fn(&A) -> R) -> impl Fn(&A) -> R {
    let asked = Asked::here("vmap");
    move |x| batched(asked, x, (&Some(0), Random::Refused, None), &f)
}

/// As [`vmap`], with the batch along other axes, or along none of a part of the argument that all elements share.
/// One axis is for all tensors of the argument; a tuple of axes is for the parts of a tuple, and nests as that does.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{jit, vmap_axes};
///
/// let f = jit(|(w, xs): (Tensor, Tensor)| {
///     vmap_axes((None, Some(1)), |(w, x): &(Tensor, Tensor)| w.dot(x))(&(w, xs))
/// });
/// let w = Array::from_f32s(&[2], &[1.0, 2.0])?;
/// let xs = Array::from_f32s(&[2, 3], &[1.0, 0.0, 1.0, 0.0, 1.0, 1.0])?;
/// assert_eq!(f.call(&(w, xs))?.to_f64s(), [1.0, 2.0, 3.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn vmap_axes<A: Params<Tensor>, R: Params<Tensor>>(
    axes: impl BatchAxes<A>,
    f: impl Fn(&A) -> R,
) -> impl Fn(&A) -> R {
    let asked = Asked::here("vmap_axes");
    move |x| batched(asked, x, (&axes, Random::Refused, None), &f)
}

/// As [`vmap`], of elements that are the ranks of an axis: collectives over it become ordinary ops, so that a program of any
/// number of ranks runs on one device.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::{RankAxis, Tensor};
/// use adfuse::transform::{jit, vmap_ranks};
///
/// let f = jit(|xs: Tensor| {
///     let over = RankAxis::new("ranks", 3);
///     vmap_ranks(&over, |x: &Tensor| x.all_reduce(&over))(&xs)
/// });
/// let xs = Array::from_f32s(&[3, 2], &[1.0, 0.0, 2.0, 1.0, 4.0, 1.0])?;
/// assert_eq!(f.call(&xs)?.to_f64s(), [7.0, 2.0, 7.0, 2.0, 7.0, 2.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn vmap_ranks<A: Params<Tensor>, R: Params<Tensor>>(
    over: &RankAxis,
    f: impl Fn(&A) -> R,
) -> impl Fn(&A) -> R {
    let (asked, name) = (Asked::here("vmap_ranks"), over.name().to_string());
    move |x| batched(asked, x, (&Some(0), Random::Refused, Some(&name)), &f)
}

/// As [`vmap_axes`], where all elements draw the same random bits if what they draw from does not depend on the element.
/// [`vmap`] refuses that.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::trace::Tensor;
/// use adfuse::transform::{jit, vmap_same_draws};
///
/// let f = jit(|xs: Tensor| vmap_same_draws(Some(0), |x: &Tensor| x * 2.0)(&xs));
/// assert_eq!(f.call(&Array::from_f32s(&[2], &[1.0, 2.0])?)?.to_f64s(), [2.0, 4.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[track_caller]
pub fn vmap_same_draws<A: Params<Tensor>, R: Params<Tensor>>(
    axes: impl BatchAxes<A>,
    f: impl Fn(&A) -> R,
) -> impl Fn(&A) -> R {
    let asked = Asked::here("vmap_same_draws");
    move |x| batched(asked, x, (&axes, Random::Same, None), &f)
}

/// Where the batch is in a tree of tensors: `Some(axis)` or `None` for all of them, or a tuple of these for a tuple.
pub trait BatchAxes<A> {
    /// The axis for each leaf of the tree, in the order of leaves.
    fn each(&self, tree: &A) -> Vec<Option<usize>>;
}

impl<A: Params<Tensor>> BatchAxes<A> for Option<usize> {
    fn each(&self, tree: &A) -> Vec<Option<usize>> {
        vec![*self; count(tree)]
    }
}

macro_rules! tuples {
    ($($axes:ident $part:ident $k:tt),*) => {
        impl<$($part: Params<Tensor>, $axes: BatchAxes<$part>),*> BatchAxes<($($part,)*)> for ($($axes,)*) {
            fn each(&self, tree: &($($part,)*)) -> Vec<Option<usize>> {
                let mut all = Vec::new();
                $(all.extend(self.$k.each(&tree.$k));)*
                all
            }
        }
    };
}

tuples!(I A 0);
tuples!(I A 0, J B 1);
tuples!(I A 0, J B 1, K C 2);
tuples!(I A 0, J B 1, K C 2, L D 3);
tuples!(I A 0, J B 1, K C 2, L D 3, M E 4);
tuples!(I A 0, J B 1, K C 2, L D 3, M E 4, N F 5);

fn batched<A: Params<Tensor>, R: Params<Tensor>>(
    asked: Asked,
    x: &A,
    (axes, random, name): (&impl BatchAxes<A>, Random, Option<&str>),
    f: impl FnOnce(&A) -> R,
) -> R {
    let axes = axes.each(x);
    let mut size = Dim::Const(1);
    let elements = |tracer: &Tracer, _: &[Tensor]| {
        let (types, found) = elements(asked, tracer, x, &axes);
        size = found;
        types
    };
    let (point, out) = TracedPoint::of(asked, x, elements, f);
    let Some(point) = point else { return out };
    let due: Vec<TensorType> = point.results.iter().map(|ty| with_axis(ty, 0, size)).collect();
    let shared = point.captures().iter().map(|_| None);
    let mut batching = Batching::new(size, axes.iter().copied().chain(shared)).random(random);
    if let Some(name) = name {
        batching = batching.named(name);
    }
    rebuild(&out, point.transformed(&[], &due, |f| f.vmap(&batching)))
}

/// The types of an element's tensors, and how many elements there are.
fn elements<A: Params<Tensor>>(
    asked: Asked,
    tracer: &Tracer,
    x: &A,
    axes: &[Option<usize>],
) -> (Vec<TensorType>, Dim) {
    let (mut size, mut types) = (None, Vec::new());
    let refuse = |m: String| tracer.refuse(asked.place, Kind::Shape, m);
    for ((path, t), axis) in named_leaves(x).into_iter().zip(axes) {
        let (mut ty, name) = (t.ty(), input_name(&path));
        match *axis {
            Some(axis) if axis < ty.rank() => {
                let extent = ty.shape.remove(axis);
                let first = *size.get_or_insert(extent);
                if first != extent {
                    refuse(format!(
                        "`{}` takes {first} elements, and {name} is {} with {extent} along axis {axis}",
                        asked.what,
                        t.ty()
                    ));
                }
            }
            Some(axis) => refuse(format!(
                "`{}` has the batch along axis {axis} of {name}, which is {ty}",
                asked.what
            )),
            None => {}
        }
        types.push(ty);
    }
    if size.is_none() {
        refuse(format!("`{}` is given no tensor with an axis of the batch", asked.what));
    }
    (types, size.unwrap_or(Dim::Const(1)))
}

fn with_axis(ty: &TensorType, axis: usize, size: Dim) -> TensorType {
    let mut ty = ty.clone();
    ty.shape.insert(axis, size);
    ty
}
