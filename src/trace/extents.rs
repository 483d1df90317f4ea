//! Extents of tensor types as programs write them: numbers, and symbols of the trace.

use super::Tracer;
use crate::ir::{Dim, Kind, Shape, Symbol};
use std::panic::Location;

/// The extents of a tensor's axes, outermost first: an array (`[128, 64]`), or a tuple where some are symbols
/// ([`Tracer::symbol`]) and others numbers (`(batch, 64)`).
pub trait IntoShape {
    /// The extents.
    fn shape(self) -> Shape;
}

impl<const N: usize> IntoShape for [u64; N] {
    fn shape(self) -> Shape {
        self.into_iter().map(Dim::Const).collect()
    }
}

macro_rules! tuples {
    ($($($axis:ident)+;)+) => {$(
        impl<$($axis: Into<Dim>),+> IntoShape for ($($axis,)+) {
            #[allow(non_snake_case)]
            fn shape(self) -> Shape {
                let ($($axis,)+) = self;
                [$($axis.into()),+].into_iter().collect()
            }
        }
    )+};
}

tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
}

impl Tracer {
    /// A symbolic extent of the function, such as the number of elements of a batch: 1 to 15 letters, digits and
    /// `_`. It is equal to itself alone. What
    /// [`compile_symbolic`](crate::engine::Session::compile_symbolic) gives runs arguments of any extent there.
    ///
    /// ```
    /// use adfuse::prelude::*;
    ///
    /// let f = trace("f", |t| {
    ///     let batch = t.symbol("B");
    ///     let (x, w) = (t.input("x", f32s((batch, 3))), t.input("w", f32s([3, 2])));
    ///     x.dot(&w).sum(&[1])
    /// })?;
    /// let f = Cpu::default().compile_symbolic(&Module::single(f.clone()), &f)?;
    /// let w = Array::from_f32s(&[3, 2], &[1.0; 6])?;
    /// for n in [1, 4] {
    ///     let x = Array::from_f32s(&[n, 3], &vec![1.0; 3 * n as usize])?;
    ///     assert_eq!(f.run(&[x, w.clone()])?[0].to_f64s(), vec![6.0; n as usize]);
    /// }
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn symbol(&self, name: &str) -> Dim {
        let place = Location::caller();
        let Some(symbol) = Symbol::new(name) else {
            if let Some(s) = self.state.borrow_mut().as_mut() {
                let m = format!("{name:?} is no symbol: 1 to 15 letters, digits and `_`");
                s.fail(place, Kind::Usage, m);
            }
            return Dim::Const(1);
        };
        Dim::Sym(symbol)
    }
}
