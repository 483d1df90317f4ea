//! The table of ops: one row an op, with the version from which on it means what the row does.

use super::context::{LoweredValues, OnnxLowering};
use super::node::Node;
use super::ops::recurrent::{Cell, recurrent};
use super::ops::{attention, control, elementwise, indirect, linear, norm, reduce, shape, window};
use adfuse_ir::Op;

/// A row of the table of ops.
pub(crate) struct OnnxRow {
    /// The op, behind its domain if that is not the default one.
    pub(crate) name: &'static str,
    /// The first version of the domain that it is right for.
    pub(crate) since: i64,
    pub(crate) lower: for<'m> fn(&mut OnnxLowering<'m>, &Node<'m>) -> LoweredValues,
}

macro_rules! row {
    ($name:literal, $since:literal, $lower:path) => {
        OnnxRow { name: $name, since: $since, lower: |cx, n| $lower(cx, n) }
    };
    ($name:literal, $since:literal, $lower:path, $op:expr) => {
        OnnxRow { name: $name, since: $since, lower: |cx, n| $lower(cx, $op, n) }
    };
}

/// All rows, by name.
pub(crate) const ROWS: &[OnnxRow] = &[
    row!("Abs", 1, elementwise::abs),
    row!("Acos", 7, elementwise::map, Op::Acos),
    row!("Acosh", 9, elementwise::map, Op::Acosh),
    row!("Add", 1, elementwise::map, Op::Add),
    row!("And", 1, elementwise::map, Op::And),
    row!("ArgMax", 1, reduce::arg_extreme, Op::Argmax),
    row!("ArgMin", 1, reduce::arg_extreme, Op::Argmin),
    row!("Asin", 7, elementwise::map, Op::Asin),
    row!("Asinh", 9, elementwise::map, Op::Asinh),
    row!("Atan", 7, elementwise::map, Op::Atan),
    row!("Atanh", 9, elementwise::map, Op::Atanh),
    row!("Attention", 23, attention::attention),
    row!("AveragePool", 1, window::average_pool),
    row!("BatchNormalization", 1, norm::batch),
    row!("BitCast", 1, elementwise::bit_cast),
    row!("BitShift", 11, elementwise::bit_shift),
    row!("BitwiseAnd", 18, elementwise::map, Op::And),
    row!("BitwiseNot", 18, elementwise::map, Op::Not),
    row!("BitwiseOr", 18, elementwise::map, Op::Or),
    row!("BitwiseXor", 18, elementwise::map, Op::Xor),
    row!("Cast", 6, elementwise::cast),
    row!("CastLike", 15, elementwise::cast_like),
    row!("Ceil", 1, elementwise::map, Op::Ceil),
    row!("Celu", 12, elementwise::celu),
    row!("CenterCropPad", 18, shape::center_crop_pad),
    row!("Clip", 1, elementwise::clip),
    row!("Compress", 9, indirect::compress),
    row!("Concat", 4, shape::concat),
    row!("Constant", 1, shape::constant),
    row!("ConstantOfShape", 9, shape::constant_of_shape),
    row!("Conv", 1, window::conv),
    row!("ConvInteger", 10, window::conv_integer),
    row!("ConvTranspose", 1, window::conv_transpose),
    row!("Cos", 7, elementwise::map, Op::Cos),
    row!("Cosh", 9, elementwise::map, Op::Cosh),
    row!("CumProd", 26, reduce::running, Op::Cumprod),
    row!("CumSum", 11, reduce::running, Op::Cumsum),
    row!("DepthToSpace", 1, shape::depth_to_space),
    row!("Det", 11, linear::det),
    row!("Div", 1, elementwise::map, Op::Div),
    row!("Dropout", 1, elementwise::dropout),
    row!("Einsum", 12, linear::einsum),
    row!("Elu", 1, elementwise::elu),
    row!("Equal", 1, elementwise::map, Op::Eq),
    row!("Erf", 9, elementwise::map, Op::Erf),
    row!("Exp", 1, elementwise::map, Op::Exp),
    row!("Expand", 8, shape::expand),
    row!("EyeLike", 9, shape::eye_like),
    row!("Flatten", 1, shape::flatten),
    row!("Floor", 1, elementwise::map, Op::Floor),
    row!("GRU", 7, recurrent, Cell::Gru),
    row!("Gather", 1, indirect::gather),
    row!("GatherElements", 11, indirect::gather_elements),
    row!("GatherND", 11, indirect::gather_nd),
    row!("Gelu", 20, elementwise::gelu),
    row!("Gemm", 1, linear::gemm),
    row!("GlobalAveragePool", 1, window::global_average),
    row!("GlobalLpPool", 2, window::global_lp),
    row!("GlobalMaxPool", 1, window::global, Op::ReduceMax),
    row!("Greater", 1, elementwise::map, Op::Gt),
    row!("GreaterOrEqual", 12, elementwise::map, Op::Ge),
    row!("GroupNormalization", 18, norm::group),
    row!("HardSigmoid", 1, elementwise::hard_sigmoid),
    row!("HardSwish", 14, elementwise::hard_swish),
    row!("Hardmax", 13, norm::hardmax),
    row!("Identity", 1, elementwise::identity),
    row!("If", 1, control::branch),
    row!("InstanceNormalization", 1, norm::instance),
    row!("IsInf", 10, elementwise::is_inf),
    row!("IsNaN", 9, elementwise::is_nan),
    row!("LRN", 1, norm::lrn),
    row!("LSTM", 7, recurrent, Cell::Lstm),
    row!("LayerNormalization", 17, norm::layer),
    row!("LeakyRelu", 1, elementwise::leaky_relu),
    row!("Less", 1, elementwise::map, Op::Lt),
    row!("LessOrEqual", 12, elementwise::map, Op::Le),
    row!("Log", 1, elementwise::map, Op::Log),
    row!("LogSoftmax", 1, norm::log_softmax),
    row!("Loop", 1, control::loop_node),
    row!("LpNormalization", 1, norm::lp),
    row!("LpPool", 2, window::lp_pool),
    row!("MatMul", 1, linear::matmul),
    row!("MatMulInteger", 10, linear::matmul_integer),
    row!("Max", 1, elementwise::fold, Op::Max),
    row!("MaxPool", 1, window::max_pool),
    row!("MaxUnpool", 9, window::max_unpool),
    row!("Mean", 1, elementwise::mean),
    row!("MeanVarianceNormalization", 9, norm::mean_variance),
    row!("Min", 1, elementwise::fold, Op::Min),
    row!("Mish", 18, elementwise::mish),
    row!("Mod", 10, elementwise::modulo),
    row!("Mul", 1, elementwise::map, Op::Mul),
    row!("Neg", 1, elementwise::map, Op::Neg),
    row!("NegativeLogLikelihoodLoss", 12, norm::negative_log_likelihood),
    row!("NonZero", 9, indirect::non_zero),
    row!("Not", 1, elementwise::map, Op::Not),
    row!("OneHot", 9, indirect::one_hot),
    row!("Or", 1, elementwise::map, Op::Or),
    row!("PRelu", 7, elementwise::prelu),
    row!("Pad", 2, shape::pad),
    row!("Pow", 1, elementwise::pow),
    row!("RMSNormalization", 23, norm::rms),
    row!("RNN", 7, recurrent, Cell::Plain),
    row!("Range", 11, shape::range),
    row!("Reciprocal", 1, elementwise::reciprocal),
    row!("ReduceL1", 1, reduce::l1),
    row!("ReduceL2", 1, reduce::l2),
    row!("ReduceLogSum", 1, reduce::log_sum),
    row!("ReduceLogSumExp", 1, reduce::log_sum_exp),
    row!("ReduceMax", 1, reduce::reduce, Op::ReduceMax),
    row!("ReduceMean", 1, reduce::mean),
    row!("ReduceMin", 1, reduce::reduce, Op::ReduceMin),
    row!("ReduceProd", 1, reduce::reduce, Op::ReduceProd),
    row!("ReduceSum", 1, reduce::reduce, Op::ReduceSum),
    row!("ReduceSumSquare", 1, reduce::sum_square),
    row!("Relu", 1, elementwise::map, Op::Relu),
    row!("Reshape", 1, shape::reshape),
    row!("ReverseSequence", 10, shape::reverse_sequence),
    row!("RotaryEmbedding", 23, attention::rotary),
    row!("Round", 11, elementwise::map, Op::RoundNearestEven),
    row!("Scan", 8, control::scan),
    row!("Scatter", 9, indirect::scatter_elements),
    row!("ScatterElements", 11, indirect::scatter_elements),
    row!("ScatterND", 11, indirect::scatter_nd),
    row!("Selu", 1, elementwise::selu),
    row!("Shape", 1, shape::shape),
    row!("Shrink", 9, elementwise::shrink),
    row!("Sigmoid", 1, elementwise::map, Op::Logistic),
    row!("Sign", 9, elementwise::map, Op::Sign),
    row!("Sin", 7, elementwise::map, Op::Sin),
    row!("Sinh", 9, elementwise::map, Op::Sinh),
    row!("Size", 1, shape::size),
    row!("Slice", 1, shape::slice),
    row!("Softmax", 1, norm::softmax),
    row!("SoftmaxCrossEntropyLoss", 12, norm::cross_entropy),
    row!("Softplus", 1, elementwise::softplus),
    row!("Softsign", 1, elementwise::softsign),
    row!("SpaceToDepth", 1, shape::space_to_depth),
    row!("Split", 2, shape::split),
    row!("Sqrt", 1, elementwise::map, Op::Sqrt),
    row!("Squeeze", 1, shape::squeeze),
    row!("Sub", 1, elementwise::map, Op::Sub),
    row!("Sum", 1, elementwise::fold, Op::Add),
    row!("SwiGLU", 1, elementwise::swiglu),
    row!("Swish", 24, elementwise::swish),
    row!("Tan", 7, elementwise::map, Op::Tan),
    row!("Tanh", 1, elementwise::map, Op::Tanh),
    row!("TensorScatter", 24, indirect::tensor_scatter),
    row!("ThresholdedRelu", 10, elementwise::thresholded_relu),
    row!("Tile", 6, shape::tile),
    row!("TopK", 1, indirect::top_k),
    row!("Transpose", 1, shape::transpose),
    row!("Trilu", 14, shape::trilu),
    row!("Unique", 11, indirect::unique),
    row!("Unsqueeze", 1, shape::unsqueeze),
    row!("Where", 9, elementwise::choose),
    row!("Xor", 1, elementwise::map, Op::Xor),
    row!("ai.onnx.ml.ArrayFeatureExtractor", 1, indirect::array_features),
    row!("ai.onnx.ml.Binarizer", 1, elementwise::binarizer),
];

/// The row of an op.
pub(crate) fn row(name: &str) -> Option<&'static OnnxRow> {
    ROWS.binary_search_by(|r| r.name.cmp(name)).ok().map(|k| &ROWS[k])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order() {
        assert!(ROWS.is_sorted_by(|a, b| a.name < b.name));
    }
}
