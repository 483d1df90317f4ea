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

use crate::ir::Kind;
use crate::trace::Tensor;

/// Whether a tensor fits a layer: by its extents, of which `fits` tells, and by its element type, that of the weight. Otherwise an error names
/// the layer, what it takes, and what it was given.
#[track_caller]
fn accepts(x: &Tensor, (layer, weight): (&str, &Tensor), fits: bool, due: &str) -> bool {
    let (own, found) = (weight.ty(), x.ty());
    if !fits {
        let m = format!("{layer} with a weight of {own} takes {due}, found {found}");
        x.fail(Kind::Shape, m);
        return false;
    }
    if own.dtype != found.dtype {
        let m = format!(
            "{layer} with a weight of {own} takes {}, found {found}: convert the tensor, or make the layer of its type with `nn::with_dtype`",
            own.dtype
        );
        x.fail(Kind::DType, m);
    }
    own.dtype == found.dtype
}

/// The extent of an axis, as text; `?` where there is none.
fn extent(t: &Tensor, axis: usize) -> String {
    t.ty().shape.get(axis).map_or("?".into(), |d| d.to_string())
}
