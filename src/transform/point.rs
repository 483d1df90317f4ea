//! A function traced at a point: what every transformation of a Rust function begins with.

use crate::autodiff::Derived;
use crate::ir::{Diagnostic, Kind, TensorType};
use crate::trace::closure::{ClosureFunction, input_name};
use crate::trace::{Tensor, Tracer};
use crate::tree::{Params, leaves, named_leaves};
use std::panic::Location;

/// Which transformation is asked for, and where in the Rust source.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) what: &'static str,
    pub(super) place: &'static Location<'static>,
}

impl Asked {
    /// By the caller of the caller.
    #[track_caller]
    pub(super) fn here(what: &'static str) -> Asked {
        Asked { what, place: Location::caller() }
    }
}

/// A function traced at a point, as a function of its arguments and of what it captures.
pub(super) struct TracedPoint {
    pub(super) asked: Asked,
    pub(super) tracer: Tracer,
    /// The leaves of the arguments.
    pub(super) given: Vec<Tensor>,
    /// The types of what the function gave.
    pub(super) results: Vec<TensorType>,
    /// None after an error.
    closure: Option<ClosureFunction>,
}

pub(super) fn types(tensors: &[Tensor]) -> Vec<TensorType> {
    tensors.iter().map(Tensor::ty).collect()
}

impl TracedPoint {
    /// Traces a function of tensors of these types, and gives the tree that it gave. Without a tensor in the arguments there
    /// is nothing to transform: an error where the function gives a tensor.
    pub(super) fn of<A: Params<Tensor>, R: Params<Tensor>>(
        asked: Asked,
        x: &A,
        types_of: impl FnOnce(&Tracer, &[Tensor]) -> Vec<TensorType>,
        f: impl FnOnce(&A) -> R,
    ) -> (Option<TracedPoint>, R) {
        let given = leaves(x);
        let Some(tracer) = Tracer::of(&given) else {
            let out = f(x);
            if let Some(tracer) = Tracer::of(&leaves(&out)) {
                let m = format!("`{}` is given no tensor", asked.what);
                tracer.refuse(asked.place, Kind::Usage, m);
            }
            return (None, out);
        };
        let entered = types_of(&tracer, &given);
        let (mut closure, out) = tracer.closure(asked.place, (x, &entered), f);
        if !tracer.holds(asked.place, asked.what, &given) {
            closure = None;
        }
        let results = types(&leaves(&out));
        (Some(TracedPoint { asked, tracer, given, results, closure }), out)
    }

    /// As [`TracedPoint::of`], of a function that is differentiated: its arguments are of float types.
    pub(super) fn differentiated<A: Params<Tensor>, R: Params<Tensor>>(
        asked: Asked,
        x: &A,
        f: impl FnOnce(&A) -> R,
    ) -> (Option<TracedPoint>, R) {
        let entered = |tracer: &Tracer, given: &[Tensor]| {
            for (path, t) in named_leaves(x) {
                if !t.ty().dtype.is_float() {
                    let m = format!(
                        "`{}` differentiates by {}, which is {}: only float types have derivatives",
                        asked.what,
                        input_name(&path),
                        t.ty()
                    );
                    tracer.refuse(asked.place, Kind::Derivative, m);
                }
            }
            types(given)
        };
        TracedPoint::of(asked, x, entered, f)
    }

    /// The positions of the arguments among the function's parameters.
    pub(super) fn wrt(&self) -> Vec<usize> {
        (0..self.given.len()).collect()
    }

    /// The types of the results that have derivatives.
    pub(super) fn moving(&self) -> Vec<TensorType> {
        self.results.iter().filter(|ty| ty.dtype.is_float()).cloned().collect()
    }

    /// What the function captures.
    pub(super) fn captures(&self) -> &[Tensor] {
        self.closure.as_ref().map_or(&[], |closure| &closure.captures)
    }

    /// What a transformation makes of the function, which there is none of after an error.
    pub(super) fn made<T>(
        &self,
        transform: impl FnOnce(Derived) -> Result<T, Diagnostic>,
    ) -> Option<Result<T, Diagnostic>> {
        self.closure.as_ref().map(|closure| transform(closure.derived()))
    }

    /// The results of what a transformation makes of the function: of the arguments, the captures and then further
    /// arguments. The types are those of stand-ins after an error.
    pub(super) fn transformed(
        &self,
        further: &[Tensor],
        due: &[TensorType],
        transform: impl FnOnce(Derived) -> Result<Derived, Diagnostic>,
    ) -> Vec<Tensor> {
        let args = [&self.given, self.captures(), further].concat();
        self.placed(self.made(transform), &args, due)
    }

    /// The results of a function that a transformation made, of these arguments.
    pub(super) fn placed(
        &self,
        made: Option<Result<Derived, Diagnostic>>,
        args: &[Tensor],
        due: &[TensorType],
    ) -> Vec<Tensor> {
        self.tracer.placed_function(self.asked.place, made, args, due)
    }

    /// Errs unless a tree, such as one of tangents, has the types of another at its leaves.
    pub(super) fn alike<A: Params<Tensor>>(&self, what: &str, like: &A, found: &A) {
        let what = format!("{what} of `{}`", self.asked.what);
        self.tracer.alike(self.asked.place, &what, like, found);
    }
}
