//! Layers: structs of parameters, with functions of tensors.
//!
//! Layers have PyTorch's layouts, names and first values, so that weights which PyTorch wrote give its outputs.

mod attention;
mod conv;
mod dropout;
mod init;
mod linear;
mod norm;
mod param;
mod recurrent;
mod transformer;
mod weights;

pub use attention::MultiHeadAttention;
pub use conv::{Conv1d, Conv2d};
pub use dropout::Dropout;
pub use init::Init;
pub use linear::{Embedding, Linear};
pub use norm::{BatchNorm, GroupNorm, LayerNorm, RmsNorm};
pub use param::{Param, ParamRole, frozen, init, trained_elements, with_dtype};
pub use recurrent::{Gru, Lstm};
pub use transformer::TransformerBlock;
#[cfg(feature = "data")]
pub use weights::{load, save};
pub use weights::{named, named_by};
