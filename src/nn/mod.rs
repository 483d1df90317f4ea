//! Layers: structs of parameters, with functions of tensors.

mod init;
mod param;

pub use init::Init;
pub use param::{Param, ParamRole, frozen, init, trained_elements, with_dtype};
