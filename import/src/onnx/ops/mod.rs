//! How nodes are lowered: a function for each row of the table that is not one op of the IR.

pub(crate) mod attention;
pub(crate) mod control;
pub(crate) mod elementwise;
pub(crate) mod generate;
pub(crate) mod indirect;
pub(crate) mod linear;
pub(crate) mod norm;
pub(crate) mod optimizer;
pub(crate) mod quantized;
pub(crate) mod recurrent;
pub(crate) mod reduce;
pub(crate) mod resize;
pub(crate) mod sampling;
pub(crate) mod sequence;
pub(crate) mod shape;
pub(crate) mod signal;
pub(crate) mod window;

pub(crate) use super::context::{LoweredValue, LoweredValues, OnnxLowering, Vals};
pub(crate) use super::operation::OnnxOperation;
pub(crate) use super::values::{F32, I32, I64, axis_of, broadcast_shape};
pub(crate) use crate::emit::Val;
pub(crate) use crate::emit::element::ElementType;
pub(crate) use crate::emit::refusal::{Unlowered, refuse};

/// What rows lower into.
pub(crate) type Cx<'a, 'm> = &'a mut OnnxLowering<'m>;
