//! Trees of parameters: values of several types that have the same structure, with leaves of one kind.
//!
//! A model is one struct over its leaves. With `Param` leaves it says what its parameters are, with
//! [`Tensor`](crate::trace::Tensor) leaves it is part of a trace, and with [`Array`] leaves it has values.
//!
//! ```
//! use adfuse::tree::{Leaf, Params, named_leaves};
//!
//! #[derive(Clone)]
//! struct Name(&'static str);
//! impl Leaf for Name {}
//!
//! #[derive(Params)]
//! struct Layer<T> { weight: T, bias: Option<T>, size: usize }
//!
//! let layers = vec![
//!     Layer { weight: Name("a"), bias: Some(Name("b")), size: 3 },
//!     Layer { weight: Name("c"), bias: None, size: 4 },
//! ];
//! let paths: Vec<String> = named_leaves(&layers).into_iter().map(|(path, _)| path).collect();
//! assert_eq!(paths, ["0.weight", "0.bias", "1.weight"]);
//! assert_eq!(layers[1].size, 4);
//! ```

mod impls;
mod path;

use crate::backends::{Array, Resident};
use crate::ir::TensorType;
pub use adfuse_derive::Params;
pub use path::Path;

/// What a tree may have at its leaves, such as [`Tensor`](crate::trace::Tensor) and [`Array`].
pub trait Leaf: Clone + 'static {}

impl Leaf for Array {}

impl Leaf for Resident {}

impl Leaf for TensorType {}

/// A tree with leaves of type `T`, in an order that is always the same.
///
/// Leaves, tuples, arrays, `Vec`, `Option` and `()` are trees; `#[derive(Params)]` makes one of a struct or an enum.
pub trait Params<T: Leaf>: Sized {
    /// The same structure with leaves of another type.
    type With<U: Leaf>: Params<U, With<T> = Self>;

    /// The tree that has at each leaf what the function gives for the leaf here. The paths of its leaves begin with `path`.
    fn map_leaves<U: Leaf>(
        &self,
        path: &mut Path,
        f: &mut dyn FnMut(&Path, &T) -> U,
    ) -> Self::With<U>;
}

/// The tree that has at each leaf what the function gives for the path and the leaf.
pub fn map<T: Leaf, U: Leaf, P: Params<T>>(
    tree: &P,
    mut f: impl FnMut(&Path, &T) -> U,
) -> P::With<U> {
    tree.map_leaves(&mut Path::root(), &mut |path, leaf| f(path, leaf))
}

/// As [`map`], with a function that may fail.
///
/// # Errors
/// The first error; the function is not asked again after it.
pub fn try_map<T: Leaf, U: Leaf, P: Params<T>, E>(
    tree: &P,
    mut f: impl FnMut(&Path, &T) -> Result<U, E>,
) -> Result<P::With<U>, E> {
    let mut made = Vec::new();
    let mut error = None;
    map(tree, |path, leaf| {
        if error.is_none() {
            match f(path, leaf) {
                Ok(leaf) => made.push(leaf),
                Err(e) => error = Some(e),
            }
        }
        LeafNumber(0)
    });
    match error {
        Some(e) => Err(e),
        None => {
            let mut made = made.iter();
            Ok(map(tree, |_, _| {
                made.next().cloned().unwrap_or_else(|| unreachable!("a leaf each"))
            }))
        }
    }
}

/// The leaves in their order.
pub fn leaves<T: Leaf>(tree: &impl Params<T>) -> Vec<T> {
    let mut all = Vec::new();
    map(tree, |_, leaf| {
        all.push(leaf.clone());
        LeafNumber(0)
    });
    all
}

/// The leaves with their paths, in their order.
pub fn named_leaves<T: Leaf>(tree: &impl Params<T>) -> Vec<(String, T)> {
    let mut all = Vec::new();
    map(tree, |path, leaf| {
        all.push((path.to_string(), leaf.clone()));
        LeafNumber(0)
    });
    all
}

/// The structure of a tree as text: the paths of its leaves, the variants of enums, the lengths of lists. Trees of one type with equal structures
/// differ in their leaves and settings alone.
pub fn structure<T: Leaf>(tree: &impl Params<T>) -> String {
    let mut paths = String::new();
    let mut path = Path::root();
    tree.map_leaves(&mut path, &mut |path, _| {
        paths.push_str(path.as_str());
        paths.push(';');
        LeafNumber(0)
    });
    paths + path.marks()
}

/// The number of leaves.
pub fn count<T: Leaf>(tree: &impl Params<T>) -> usize {
    let mut n = 0;
    map(tree, |_, _| {
        n += 1;
        LeafNumber(0)
    });
    n
}

/// The tree with other leaves in the places of its own. Where there are too few, the others stay.
pub fn rebuild<T: Leaf, P: Params<T>>(tree: &P, leaves: impl IntoIterator<Item = T>) -> P {
    let mut leaves = leaves.into_iter();
    replace(tree, |_, own| leaves.next().unwrap_or_else(|| own.clone()))
}

/// The tree that has at each leaf what the function gives for the path and the leaf, of the same type.
pub fn replace<T: Leaf, P: Params<T>>(tree: &P, mut f: impl FnMut(&Path, &T) -> T) -> P {
    let mut made = Vec::new();
    let slots = map(tree, |path, leaf| {
        made.push(f(path, leaf));
        LeafNumber(made.len() - 1)
    });
    map(&slots, |_, slot| made[slot.0].clone())
}

/// A leaf by its place in the order.
#[derive(Clone)]
struct LeafNumber(usize);

impl Leaf for LeafNumber {}
