//! Linear maps and tables of embeddings.

use super::{Init, Param, accepts, extent};
use crate::ir::Kind;
use crate::trace::Tensor;
use crate::tree::Params;
use std::borrow::Borrow;

/// `x W^T + b` over the last axis, as PyTorch stores it: the weight is `[out, in]`, the bias `[out]`.
///
/// ```
/// use adfuse::nn::{self, Linear};
/// use adfuse::prelude::*;
///
/// let layer = nn::init(&Linear::new(3, 2), 0)?;
/// let f = adfuse::eval_step(|l: &Linear, x: Tensor| l.apply(x));
/// let y = f.run(&Device::cpu(), &layer, &Array::from_f32s(&[4, 3], &[1.0; 12])?)?;
/// assert_eq!(y.dims(), [4, 2]);
/// # Ok::<(), Diagnostic>(())
/// ```
#[derive(Params, Clone, Debug)]
pub struct Linear<T = Tensor> {
    /// `[out, in]`.
    pub weight: T,
    /// `[out]`.
    pub bias: Option<T>,
}

impl Linear<Param> {
    /// A map of `inputs` features to `outputs`, with a bias; both begin uniform in `±1 / sqrt(inputs)`.
    pub fn new(inputs: u64, outputs: u64) -> Linear<Param> {
        Linear {
            weight: Param::new([outputs, inputs], Init::FanIn),
            bias: Some(Param::new([outputs], Init::OfFan(inputs))),
        }
    }

    /// Without a bias.
    #[must_use]
    pub fn no_bias(self) -> Linear<Param> {
        Linear { bias: None, ..self }
    }

    /// With another first weight; the bias, if there is one, begins at 0.
    #[must_use]
    pub fn init(mut self, init: Init) -> Linear<Param> {
        self.weight.init = init;
        if let Some(bias) = &mut self.bias {
            bias.init = Init::Zeros;
        }
        self
    }
}

impl Linear {
    /// Of `[.., in]`, `[.., out]`.
    #[track_caller]
    #[must_use]
    pub fn apply(&self, x: impl Borrow<Tensor>) -> Tensor {
        let x = x.borrow();
        let (last, due) = (x.ty().shape.last().copied(), self.weight.ty().shape.get(1).copied());
        let fits = last == due && due.is_some();
        let due = format!("[.., {}]", extent(&self.weight, 1));
        if !accepts(x, ("a linear layer", &self.weight), fits, &due) {
            return x.clone();
        }
        let axis = x.rank() as i64 - 1;
        let y = x.dot_general(&self.weight, ([].as_slice(), &[]), (&[axis], &[1]));
        match &self.bias {
            Some(bias) => y + bias,
            None => y,
        }
    }
}

/// A table with a row for each of a number of things.
///
/// ```
/// use adfuse::nn::{self, Embedding};
/// use adfuse::prelude::*;
///
/// let table = nn::init(&Embedding::new(5, 3), 0)?;
/// let f = adfuse::eval_step(|e: &Embedding, ids: Tensor| e.apply(ids));
/// let rows = f.run(&Device::cpu(), &table, &Array::from_vec(vec![4i32, 0], [2])?)?;
/// assert_eq!(rows.as_slice::<f32>()?[..3], table.weight.as_slice::<f32>()?[12..]);
/// # Ok::<(), Diagnostic>(())
/// ```
#[derive(Params, Clone, Debug)]
pub struct Embedding<T = Tensor> {
    /// `[things, features]`.
    pub weight: T,
}

impl Embedding<Param> {
    /// A table of `things` rows of `features` numbers, which begin normal with standard deviation 1.
    pub fn new(things: u64, features: u64) -> Embedding<Param> {
        Embedding { weight: Param::new([things, features], Init::Normal(1.0)) }
    }

    /// With other first values.
    #[must_use]
    pub fn init(mut self, init: Init) -> Embedding<Param> {
        self.weight.init = init;
        self
    }
}

impl Embedding {
    /// The rows of integers: of `[..]`, `[.., features]`. The row of an integer that is no thing's is NaN.
    #[track_caller]
    #[must_use]
    pub fn apply(&self, ids: impl Borrow<Tensor>) -> Tensor {
        let ids = ids.borrow();
        if !ids.dtype().is_int() {
            let m = format!(
                "an embedding with a weight of {} takes integers, found {}",
                self.weight.ty(),
                ids.ty()
            );
            return ids.refused(Kind::DType, m);
        }
        self.weight.take(ids, 0)
    }

    /// The products with all rows, for models whose output layer is their table: of `[.., features]`, `[.., things]`.
    #[track_caller]
    #[must_use]
    pub fn attend(&self, x: impl Borrow<Tensor>) -> Tensor {
        Linear { weight: self.weight.clone(), bias: None }.apply(x)
    }
}
