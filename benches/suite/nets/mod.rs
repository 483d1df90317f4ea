//! Nets of any size, traced: perceptrons, recurrent nets, convolutional nets, transformers.
//!
//! A function here has one scalar result, the loss. Data are parameters whose names begin with `in.`.

pub mod conv;
pub mod dense;
pub mod recurrent;
pub mod transformer;

use adfuse::prelude::*;
use std::cell::Cell;

/// Parameters of one element type, made where they are used.
pub(crate) struct Weights<'t> {
    pub(crate) t: &'t Tracer,
    pub(crate) dtype: DType,
    made: Cell<usize>,
}

impl<'t> Weights<'t> {
    pub(crate) fn new(t: &'t Tracer, dtype: DType) -> Weights<'t> {
        Weights { t, dtype, made: Cell::new(0) }
    }

    /// The next parameter.
    pub(crate) fn next<const N: usize>(&self, dims: [u64; N]) -> Tensor {
        let number = self.made.replace(self.made.get() + 1);
        self.t.input(&format!("p{number}"), TensorType::of(self.dtype, &dims))
    }

    /// Data, which has no gradient.
    pub(crate) fn data<const N: usize>(&self, name: &str, dims: [u64; N]) -> Tensor {
        self.t.input(&format!("in.{name}"), TensorType::of(self.dtype, &dims))
    }

    /// Numbers of classes.
    pub(crate) fn labels<const N: usize>(&self, name: &str, dims: [u64; N]) -> Tensor {
        self.t.input(&format!("in.{name}"), i32s(dims))
    }

    /// `x w + b` over the last axis.
    pub(crate) fn linear(&self, x: &Tensor, [inputs, outputs]: [u64; 2]) -> Tensor {
        x.dot(&self.next([inputs, outputs])) + self.next([outputs])
    }

    /// Layer norm of the last axis, scaled and shifted.
    pub(crate) fn layer_norm(&self, x: &Tensor, features: u64) -> Tensor {
        x.layer_norm(-1, 1e-5) * self.next([features]) + self.next([features])
    }
}
