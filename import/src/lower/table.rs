//! The table of ops: one row an op of StableHLO or CHLO.

use super::context::{LoweringRule, OpRow};
use super::{
    bits, complex, constant, control, elementwise, indirect, linalg, reduce, rng, shape, sort,
    window,
};
use adfuse_ir::Op;

const fn map(name: &'static str, op: Op) -> OpRow {
    OpRow { name, attrs: &[], lower: LoweringRule::Map(op) }
}

macro_rules! by {
    ($name:literal, $lower:expr $(, $attr:literal)*) => {
        OpRow { name: $name, attrs: &[$($attr),*], lower: LoweringRule::By(|cx, inst| $lower(cx, inst)) }
    };
}

macro_rules! whole {
    ($name:literal, $lower:expr $(, $attr:literal)*) => {
        OpRow { name: $name, attrs: &[$($attr),*], lower: LoweringRule::Whole(|cx, inst| $lower(cx, inst)) }
    };
}

/// All rows, by name.
pub(crate) const ROWS: &[OpRow] = &[
    by!("check.expect_almost_eq", control::check_within, "tolerance"),
    by!("check.expect_almost_eq_const", control::check_within, "tolerance"),
    by!("check.expect_close", control::check_close, "max_ulp_difference"),
    by!("check.expect_eq", control::check_equal),
    by!("check.expect_eq_const", control::check_equal, "value"),
    map("chlo.acos", Op::Acos),
    map("chlo.acosh", Op::Acosh),
    map("chlo.asin", Op::Asin),
    map("chlo.asinh", Op::Asinh),
    map("chlo.atan", Op::Atan),
    map("chlo.atanh", Op::Atanh),
    whole!("chlo.conj", complex::only),
    map("chlo.cosh", Op::Cosh),
    map("chlo.digamma", Op::Digamma),
    map("chlo.erf", Op::Erf),
    map("chlo.erf_inv", Op::ErfInv),
    map("chlo.erfc", Op::Erfc),
    map("chlo.lgamma", Op::Lgamma),
    by!("chlo.next_after", bits::next_after),
    by!("chlo.polygamma", control::polygamma),
    by!("chlo.scan", control::scan, "dimension", "is_reverse", "is_associative"),
    map("chlo.sinh", Op::Sinh),
    map("chlo.square", Op::Square),
    map("chlo.tan", Op::Tan),
    by!("chlo.top_k", sort::top_k, "k", "largest"),
    whole!("func.call", control::call, "callee"),
    by!("sdy.sharding_constraint", elementwise::identity, "sharding"),
    by!("stablehlo.abs", elementwise::abs),
    map("stablehlo.add", Op::Add),
    map("stablehlo.and", Op::And),
    map("stablehlo.atan2", Op::Atan2),
    by!("stablehlo.bitcast_convert", bits::bitcast),
    by!("stablehlo.broadcast_in_dim", shape::broadcast_in_dim, "dims", "broadcast_dimensions"),
    whole!("stablehlo.case", control::branch),
    map("stablehlo.cbrt", Op::Cbrt),
    map("stablehlo.ceil", Op::Ceil),
    by!("stablehlo.cholesky", linalg::cholesky, "lower"),
    by!("stablehlo.clamp", elementwise::clamp),
    by!("stablehlo.compare", elementwise::compare, "comparison_direction", "compare_type"),
    whole!("stablehlo.complex", complex::only),
    whole!(
        "stablehlo.composite",
        control::composite,
        "decomposition",
        "name",
        "composite_attributes"
    ),
    by!("stablehlo.concatenate", shape::concatenate, "dim", "dimension"),
    by!("stablehlo.constant", constant::constant, "value"),
    by!("stablehlo.convert", elementwise::convert),
    by!(
        "stablehlo.convolution",
        window::convolution,
        "dim_numbers",
        "dimension_numbers",
        "window",
        "window_strides",
        "padding",
        "lhs_dilation",
        "rhs_dilation",
        "window_reversal",
        "feature_group_count",
        "batch_group_count"
    ),
    map("stablehlo.cosine", Op::Cos),
    map("stablehlo.count_leading_zeros", Op::Clz),
    by!(
        "stablehlo.custom_call",
        control::custom_call,
        "call_target_name",
        "error_message",
        "indices_of_shape_operands"
    ),
    map("stablehlo.divide", Op::Div),
    by!("stablehlo.dot", shape::dot),
    by!(
        "stablehlo.dot_general",
        shape::dot,
        "batching_dims",
        "contracting_dims",
        "dot_dimension_numbers"
    ),
    by!(
        "stablehlo.dynamic_broadcast_in_dim",
        shape::broadcast_in_dim,
        "dims",
        "broadcast_dimensions",
        "known_expanding_dimensions",
        "known_nonexpanding_dimensions"
    ),
    by!(
        "stablehlo.dynamic_conv",
        window::convolution,
        "dim_numbers",
        "dimension_numbers",
        "window",
        "window_strides",
        "lhs_dilation",
        "rhs_dilation",
        "window_reversal",
        "feature_group_count",
        "batch_group_count"
    ),
    by!("stablehlo.dynamic_gather", indirect::gather, "dimension_numbers"),
    by!("stablehlo.dynamic_iota", shape::iota, "dim", "iota_dimension"),
    by!("stablehlo.dynamic_pad", shape::dynamic_pad),
    by!("stablehlo.dynamic_reshape", shape::reshape),
    by!("stablehlo.dynamic_slice", shape::dynamic_slice, "sizes", "slice_sizes"),
    by!("stablehlo.dynamic_update_slice", shape::dynamic_update_slice),
    map("stablehlo.exponential", Op::Exp),
    map("stablehlo.exponential_minus_one", Op::Expm1),
    whole!("stablehlo.fft", complex::only, "type", "fft_type", "length", "fft_length"),
    map("stablehlo.floor", Op::Floor),
    by!("stablehlo.gather", indirect::gather, "dimension_numbers", "slice_sizes"),
    by!("stablehlo.get_dimension_size", shape::dimension_size, "dim", "dimension"),
    whole!("stablehlo.if", control::branch),
    whole!("stablehlo.imag", complex::only),
    by!("stablehlo.iota", shape::iota, "dim", "iota_dimension"),
    map("stablehlo.is_finite", Op::IsFinite),
    map("stablehlo.log", Op::Log),
    map("stablehlo.log_plus_one", Op::Log1p),
    map("stablehlo.logistic", Op::Logistic),
    by!("stablehlo.map", reduce::map_region, "dimensions"),
    map("stablehlo.maximum", Op::Max),
    map("stablehlo.minimum", Op::Min),
    map("stablehlo.multiply", Op::Mul),
    map("stablehlo.negate", Op::Neg),
    map("stablehlo.not", Op::Not),
    by!("stablehlo.optimization_barrier", elementwise::identity),
    map("stablehlo.or", Op::Or),
    by!(
        "stablehlo.pad",
        shape::pad,
        "low",
        "high",
        "interior",
        "edge_padding_low",
        "edge_padding_high",
        "interior_padding"
    ),
    map("stablehlo.popcnt", Op::PopulationCount),
    map("stablehlo.power", Op::Pow),
    whole!("stablehlo.real", complex::only),
    by!("stablehlo.real_dynamic_slice", shape::real_dynamic_slice),
    by!("stablehlo.reduce", reduce::reduce, "dimensions"),
    by!(
        "stablehlo.reduce_precision",
        bits::reduce_precision,
        "format",
        "exponent_bits",
        "mantissa_bits"
    ),
    by!(
        "stablehlo.reduce_window",
        window::reduce_window,
        "window_dimensions",
        "window_strides",
        "base_dilations",
        "window_dilations",
        "padding"
    ),
    map("stablehlo.remainder", Op::Rem),
    by!("stablehlo.reshape", shape::reshape),
    by!("stablehlo.reverse", shape::reverse, "dims", "dimensions"),
    by!("stablehlo.rng_bit_generator", rng::rng_bit_generator, "algorithm", "rng_algorithm"),
    map("stablehlo.round_nearest_afz", Op::Round),
    map("stablehlo.round_nearest_even", Op::RoundNearestEven),
    map("stablehlo.rsqrt", Op::Rsqrt),
    by!("stablehlo.scatter", indirect::scatter, "scatter_dimension_numbers", "unique_indices"),
    by!("stablehlo.select", elementwise::select),
    by!(
        "stablehlo.select_and_scatter",
        window::select_and_scatter,
        "window_dimensions",
        "window_strides",
        "padding"
    ),
    map("stablehlo.shift_left", Op::ShiftLeft),
    map("stablehlo.shift_right_arithmetic", Op::ShiftRightArithmetic),
    map("stablehlo.shift_right_logical", Op::ShiftRightLogical),
    map("stablehlo.sign", Op::Sign),
    map("stablehlo.sine", Op::Sin),
    by!("stablehlo.slice", shape::slice, "start_indices", "limit_indices", "strides"),
    by!("stablehlo.sort", sort::sort, "dimension", "is_stable"),
    map("stablehlo.sqrt", Op::Sqrt),
    map("stablehlo.subtract", Op::Sub),
    map("stablehlo.tan", Op::Tan),
    map("stablehlo.tanh", Op::Tanh),
    by!("stablehlo.transpose", shape::transpose, "dims", "permutation"),
    by!(
        "stablehlo.triangular_solve",
        linalg::triangular_solve,
        "left_side",
        "lower",
        "transpose_a",
        "unit_diagonal"
    ),
    whole!("stablehlo.while", control::while_loop),
    map("stablehlo.xor", Op::Xor),
];

/// The row of an op.
pub(crate) fn row(name: &str) -> Option<&'static OpRow> {
    ROWS.binary_search_by(|r| r.name.cmp(name)).ok().map(|k| &ROWS[k])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order() {
        assert!(ROWS.is_sorted_by(|a, b| a.name < b.name));
        assert!(ROWS.iter().all(|r| row(r.name).is_some()));
    }
}
