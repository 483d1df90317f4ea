//! Layers: structs of parameters, with functions of tensors.
//!
//! Layers have PyTorch's layouts, names and first values, so that weights which PyTorch wrote give its outputs.

mod attention;
mod conv;
mod dropout;
mod init;
mod linear;
mod load;
mod norm;
mod param;
mod recurrent;
mod transformer;

pub use attention::MultiHeadAttention;
pub use conv::{Conv1d, Conv2d};
pub use dropout::Dropout;
pub use init::Init;
pub use linear::{Embedding, Linear};
pub use load::load;
pub use norm::{BatchNorm, GroupNorm, LayerNorm, RmsNorm};
pub use param::{Param, ParamRole, frozen, init, trained_elements, with_dtype};
pub use recurrent::{Gru, Lstm};
pub use transformer::TransformerBlock;
