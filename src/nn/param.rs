//! Specifications of parameters: their types, their first values, and whether they are trained.

use super::init::Init;
use crate::backends::Array;
use crate::ir::{DType, Diagnostic, TensorType};
use crate::tree::{Leaf, Params, try_map};

/// What a parameter is before there is a value: the leaf of a model that has been described and not yet made.
///
/// ```
/// use adfuse::nn::{self, Init, Param, ParamRole};
/// use adfuse::prelude::*;
///
/// /// A layer of one's own: a scale for each feature, and a mean that it keeps.
/// #[derive(Params, Clone)]
/// struct Scale<T = Tensor> {
///     by: T,
///     seen: T,
/// }
///
/// let scale = Scale {
///     by: Param::new([3], Init::Constant(0.5)),
///     seen: Param::new([3], Init::Zeros).role(ParamRole::Running),
/// };
/// assert_eq!(nn::init(&scale, 0)?.by.to_f64s(), [0.5; 3]);
/// # Ok::<(), Diagnostic>(())
/// ```
#[derive(Clone, Debug)]
pub struct Param {
    /// Its type.
    pub ty: TensorType,
    /// Its first value.
    pub init: Init,
    /// Whether optimizers change it.
    pub role: ParamRole,
}

/// What changes a parameter in training.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamRole {
    /// The optimizer, by the gradient.
    Trained,
    /// The layer itself, as with running means ([`Tensor::update`](crate::trace::Tensor::update)).
    Running,
    /// Nothing.
    Frozen,
}

impl Leaf for Param {}

impl Param {
    /// A trained parameter `f32[dims]`.
    pub fn new(dims: impl IntoIterator<Item = u64>, init: Init) -> Param {
        let dims: Vec<u64> = dims.into_iter().collect();
        Param { ty: TensorType::of(DType::F32, &dims), init, role: ParamRole::Trained }
    }

    /// The same with another role.
    #[must_use]
    pub fn role(self, role: ParamRole) -> Param {
        Param { role, ..self }
    }

    /// The same with elements of another type.
    #[must_use]
    pub fn dtype(self, dtype: DType) -> Param {
        Param { ty: self.ty.with_dtype(dtype), ..self }
    }
}

/// The first values of a model's parameters. Each is drawn from a stream of its own, which the seed and its path decide: layers that are
/// added change no other layer's values.
///
/// ```
/// use adfuse::nn::{self, Linear};
///
/// let values = nn::init(&Linear::new(3, 2), 0)?;
/// assert_eq!(values.weight.dims(), [2, 3]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
///
/// # Errors
/// [`Kind::Limit`](crate::ir::Kind::Limit) when a parameter is too large for memory.
pub fn init<M: Params<Param>>(model: &M, seed: u64) -> Result<M::With<Array>, Diagnostic> {
    try_map(model, |path, param| param.init.draw(&param.ty, seed, path.as_str()))
}

/// The same model with parameters of another element type. Running statistics are of the type in which arithmetic on it is done: `f32` beside
/// types of 16 bits.
///
/// ```
/// use adfuse::nn::{self, BatchNorm, Linear};
/// use adfuse::prelude::*;
///
/// let net = nn::with_dtype(&(Linear::new(3, 4), BatchNorm::new(4)), DType::BF16);
/// assert_eq!(net.0.weight.ty.dtype, DType::BF16);
/// assert_eq!(net.1.running_mean.ty.dtype, DType::F32);
/// ```
pub fn with_dtype<M: Params<Param>>(model: &M, dtype: DType) -> M {
    crate::tree::replace(model, |_, param| match param.role {
        ParamRole::Running => param.clone().dtype(dtype.compute()),
        ParamRole::Trained | ParamRole::Frozen => param.clone().dtype(dtype),
    })
}

/// The same model with the parameters frozen whose paths the function picks: no optimizer changes them.
///
/// ```
/// use adfuse::nn::{self, Linear};
///
/// let net = nn::frozen(&(Linear::new(3, 4), Linear::new(4, 2)), |path| path.starts_with("0."));
/// assert_eq!(nn::trained_elements(&net), 4 * 2 + 2);
/// ```
pub fn frozen<M: Params<Param>>(model: &M, picks: impl Fn(&str) -> bool) -> M {
    crate::tree::replace(model, |path, param| match param.role {
        ParamRole::Trained if picks(path.as_str()) => param.clone().role(ParamRole::Frozen),
        _ => param.clone(),
    })
}

/// The number of elements that are trained.
///
/// ```
/// # use adfuse::nn::{self, Linear};
/// assert_eq!(nn::trained_elements(&Linear::new(3, 4)), 3 * 4 + 4);
/// ```
pub fn trained_elements<M: Params<Param>>(model: &M) -> u64 {
    let all = crate::tree::leaves(model);
    let trained = all.iter().filter(|p| p.role == ParamRole::Trained);
    trained.filter_map(|p| p.ty.elements()).sum()
}
