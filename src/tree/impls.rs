//! Trees of the standard library: leaves, tuples, arrays, `Vec`, `Option`, and the empty tree.

use super::{Leaf, Params, Path};

impl<T: Leaf> Params<T> for T {
    type With<U: Leaf> = U;

    fn map_leaves<U: Leaf>(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &T) -> U) -> U {
        f(path, self)
    }
}

impl<T: Leaf, P: Params<T>> Params<T> for Vec<P> {
    type With<U: Leaf> = Vec<P::With<U>>;

    fn map_leaves<U: Leaf>(
        &self,
        path: &mut Path,
        f: &mut dyn FnMut(&Path, &T) -> U,
    ) -> Vec<P::With<U>> {
        path.mark(self.len());
        let each = |(k, p): (usize, &P)| path.within(k, |path| p.map_leaves(path, f));
        self.iter().enumerate().map(each).collect()
    }
}

impl<T: Leaf, P: Params<T>, const N: usize> Params<T> for [P; N] {
    type With<U: Leaf> = [P::With<U>; N];

    fn map_leaves<U: Leaf>(
        &self,
        path: &mut Path,
        f: &mut dyn FnMut(&Path, &T) -> U,
    ) -> [P::With<U>; N] {
        std::array::from_fn(|k| path.within(k, |path| self[k].map_leaves(path, f)))
    }
}

impl<T: Leaf, P: Params<T>> Params<T> for Option<P> {
    type With<U: Leaf> = Option<P::With<U>>;

    fn map_leaves<U: Leaf>(
        &self,
        path: &mut Path,
        f: &mut dyn FnMut(&Path, &T) -> U,
    ) -> Option<P::With<U>> {
        path.mark(if self.is_some() { "some" } else { "none" });
        self.as_ref().map(|p| p.map_leaves(path, f))
    }
}

impl<T: Leaf> Params<T> for () {
    type With<U: Leaf> = ();

    fn map_leaves<U: Leaf>(&self, _: &mut Path, _: &mut dyn FnMut(&Path, &T) -> U) {}
}

macro_rules! tuples {
    ($($name:ident $k:tt),*) => {
        impl<T: Leaf, $($name: Params<T>),*> Params<T> for ($($name,)*) {
            type With<U: Leaf> = ($($name::With<U>,)*);

            fn map_leaves<U: Leaf>(
                &self,
                path: &mut Path,
                f: &mut dyn FnMut(&Path, &T) -> U,
            ) -> Self::With<U> {
                ($(path.within($k, |path| self.$k.map_leaves(path, f)),)*)
            }
        }
    };
}

tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
