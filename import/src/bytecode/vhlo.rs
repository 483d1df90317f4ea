//! How VHLO, the versioned form of StableHLO that files hold, encodes types and attributes: codes, and words of
//! enumerations. And which of its attributes are one of StableHLO together.

/// How a type is encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TypeForm {
    /// Nothing follows the code; this is its name in text.
    Named(&'static str),
    /// An integer whose width and sign follow.
    Integer,
    /// The type of parts follows.
    Complex,
    /// Operands and results follow.
    Function,
    /// Extents and the element type follow.
    Tensor,
    /// An encoding, extents and the element type follow.
    TensorWithEncoding,
    /// Types follow.
    Tuple,
    /// A scale and a zero follow.
    Quantized,
    /// Scales and zeros of an axis follow.
    QuantizedPerAxis,
    /// An element type follows.
    Unranked,
    /// Extents and the element type of a buffer follow.
    Buffer,
}

/// Types of VHLO, by code. The first ones have been there since version 0.9.
const TYPES: &[(u64, TypeForm)] = &[
    (0, TypeForm::Named("i1")),
    (1, TypeForm::Complex),
    (2, TypeForm::Named("bf16")),
    (3, TypeForm::Named("f16")),
    (4, TypeForm::Named("f32")),
    (5, TypeForm::Named("f64")),
    (6, TypeForm::Named("f8E4M3FN")),
    (7, TypeForm::Named("f8E5M2")),
    (8, TypeForm::Function),
    (9, TypeForm::Named("index")),
    (10, TypeForm::Named("i4")),
    (11, TypeForm::Named("i8")),
    (12, TypeForm::Named("i16")),
    (13, TypeForm::Named("i32")),
    (14, TypeForm::Named("i64")),
    (15, TypeForm::Named("ui4")),
    (16, TypeForm::Named("ui8")),
    (17, TypeForm::Named("ui16")),
    (18, TypeForm::Named("ui32")),
    (19, TypeForm::Named("ui64")),
    (20, TypeForm::Tensor),
    (21, TypeForm::TensorWithEncoding),
    (22, TypeForm::Named("!stablehlo.token")),
    (23, TypeForm::Tuple),
    (24, TypeForm::Quantized),
    (25, TypeForm::Unranked),
    (26, TypeForm::Named("!shape.witness")),
    (27, TypeForm::Named("f8E4M3FNUZ")),
    (28, TypeForm::Named("f8E5M2FNUZ")),
    (29, TypeForm::Named("f8E4M3B11FNUZ")),
    (30, TypeForm::QuantizedPerAxis),
    (31, TypeForm::Named("i2")),
    (32, TypeForm::Named("ui2")),
    (33, TypeForm::Named("none")),
    (34, TypeForm::Named("tf32")),
    (35, TypeForm::Named("f8E4M3")),
    (36, TypeForm::Named("f8E3M4")),
    (37, TypeForm::Named("f4E2M1FN")),
    (38, TypeForm::Named("f6E2M3FN")),
    (39, TypeForm::Named("f6E3M2FN")),
    (40, TypeForm::Named("f8E8M0FNU")),
    (41, TypeForm::Buffer),
];

/// Types of the builtin dialect, by code.
const BUILTIN_TYPES: &[(u64, TypeForm)] = &[
    (0, TypeForm::Integer),
    (1, TypeForm::Named("index")),
    (2, TypeForm::Function),
    (3, TypeForm::Named("bf16")),
    (4, TypeForm::Named("f16")),
    (5, TypeForm::Named("f32")),
    (6, TypeForm::Named("f64")),
    (9, TypeForm::Complex),
    (12, TypeForm::Named("none")),
    (13, TypeForm::Tensor),
    (14, TypeForm::TensorWithEncoding),
    (15, TypeForm::Tuple),
    (18, TypeForm::Unranked),
];

/// How an attribute is encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AttributeForm {
    /// Attributes follow.
    Array,
    /// A truth value follows.
    Bool,
    /// The number of a word of an enumeration follows: its name in text, its words.
    Enumeration(&'static str, &'static [&'static str]),
    /// Pairs of names and attributes follow.
    Dictionary,
    /// A type and the bits of a number follow.
    Float,
    /// A type and a number follow.
    Integer,
    /// Which operand's memory a result takes.
    Alias,
    /// A string follows.
    Str,
    /// An attribute that is a string follows: the name of a symbol.
    Symbol,
    /// A type and the bytes of all elements follow.
    Tensor,
    /// A type, a number of elements and their bytes follow.
    DenseArray,
    /// A type follows.
    Type,
    /// Nothing follows.
    Unit,
    /// The most that extents can be follows.
    Bounds,
    /// Tolerances and a mode follow.
    Accuracy,
}

const PRECISIONS: &[&str] = &["DEFAULT", "HIGH", "HIGHEST"];
const API_VERSIONS: &[&str] = &[
    "API_VERSION_UNSPECIFIED",
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
];

/// Attributes of VHLO, by code.
const ATTRIBUTES: &[(u64, AttributeForm)] = &[
    (1, AttributeForm::Array),
    (2, AttributeForm::Bool),
    (3, AttributeForm::Enumeration("comparison_direction", &["EQ", "NE", "GE", "GT", "LE", "LT"])),
    (
        4,
        AttributeForm::Enumeration(
            "comparison_type",
            &["NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"],
        ),
    ),
    (5, AttributeForm::Enumeration("custom_call_api_version", API_VERSIONS)),
    (6, AttributeForm::Dictionary),
    (7, AttributeForm::Enumeration("fft_type", &["FFT", "IFFT", "RFFT", "IRFFT"])),
    (8, AttributeForm::Float),
    (9, AttributeForm::Integer),
    (10, AttributeForm::Alias),
    (11, AttributeForm::Enumeration("precision", PRECISIONS)),
    (12, AttributeForm::Enumeration("rng_algorithm", &["DEFAULT", "THREE_FRY", "PHILOX"])),
    // There is no word of number 0.
    (13, AttributeForm::Enumeration("rng_distribution", &["", "UNIFORM", "NORMAL"])),
    (14, AttributeForm::Str),
    (15, AttributeForm::Tensor),
    (
        16,
        AttributeForm::Enumeration(
            "transpose",
            &["TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"],
        ),
    ),
    (17, AttributeForm::Type),
    (18, AttributeForm::Bounds),
    (19, AttributeForm::Enumeration("result_accuracy_mode", &["DEFAULT", "HIGHEST", "TOLERANCE"])),
    (20, AttributeForm::Accuracy),
];

/// Attributes of the builtin dialect, by code. Places in sources are among those that are not read.
const BUILTIN_ATTRIBUTES: &[(u64, AttributeForm)] = &[
    (0, AttributeForm::Array),
    (1, AttributeForm::Dictionary),
    (2, AttributeForm::Str),
    (4, AttributeForm::Symbol),
    (6, AttributeForm::Type),
    (7, AttributeForm::Unit),
    (8, AttributeForm::Integer),
    (9, AttributeForm::Float),
    (17, AttributeForm::DenseArray),
    (18, AttributeForm::Tensor),
];

fn row<T: Copy>(rows: &[(u64, T)], code: u64) -> Option<T> {
    rows.iter().find(|row| row.0 == code).map(|row| row.1)
}

/// How a type of this dialect and code is encoded.
pub(super) fn type_form(dialect: &str, code: u64) -> Option<TypeForm> {
    match dialect {
        "vhlo" => row(TYPES, code),
        "builtin" => row(BUILTIN_TYPES, code),
        _ => None,
    }
}

/// How an attribute of this dialect and code is encoded.
pub(super) fn attribute_form(dialect: &str, code: u64) -> Option<AttributeForm> {
    match dialect {
        "vhlo" => row(ATTRIBUTES, code),
        "builtin" => row(BUILTIN_ATTRIBUTES, code),
        _ => None,
    }
}

/// The bits of a number of this type.
pub(super) fn bits(ty: &str) -> Option<u32> {
    match ty {
        "index" => Some(64),
        "bf16" => Some(16),
        "tf32" => Some(19),
        _ => {
            let digits = ty.trim_start_matches(|c: char| c.is_ascii_lowercase());
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            digits[..end].parse().ok().filter(|bits| (1..=64).contains(bits))
        }
    }
}

/// Attributes of VHLO that are one attribute of StableHLO together.
pub(super) struct DimensionNumbers {
    /// The name of the attribute, and how its text begins.
    pub(super) name: &'static str,
    pub(super) begins: &'static str,
    /// Those that it has.
    pub(super) parts: &'static [&'static str],
}

const DOT: DimensionNumbers = DimensionNumbers {
    name: "dot_dimension_numbers",
    begins: "#stablehlo.dot",
    parts: &[
        "lhs_batching_dimensions",
        "rhs_batching_dimensions",
        "lhs_contracting_dimensions",
        "rhs_contracting_dimensions",
    ],
};

const GATHER: DimensionNumbers = DimensionNumbers {
    name: "dimension_numbers",
    begins: "#stablehlo.gather",
    parts: &[
        "offset_dims",
        "collapsed_slice_dims",
        "operand_batching_dims",
        "start_indices_batching_dims",
        "start_index_map",
        "index_vector_dim",
    ],
};

const SCATTER: DimensionNumbers = DimensionNumbers {
    name: "scatter_dimension_numbers",
    begins: "#stablehlo.scatter",
    parts: &[
        "update_window_dims",
        "inserted_window_dims",
        "input_batching_dims",
        "scatter_indices_batching_dims",
        "scatter_dims_to_operand_dims",
        "index_vector_dim",
    ],
};

/// The attributes that an op has together, those of convolutions aside.
pub(super) fn dimension_numbers(op: &str) -> Option<&'static DimensionNumbers> {
    match op {
        "dot_general" => Some(&DOT),
        "gather" | "dynamic_gather" => Some(&GATHER),
        "scatter" => Some(&SCATTER),
        _ => None,
    }
}

/// The three layouts of a convolution: a batch and a feature axis, or two feature axes of a kernel, each with a letter, and
/// the spatial axes.
pub(super) const LAYOUTS: [([(&str, char); 2], &str); 3] = [
    (
        [("input_batch_dimension", 'b'), ("input_feature_dimension", 'f')],
        "input_spatial_dimensions",
    ),
    (
        [("kernel_input_feature_dimension", 'i'), ("kernel_output_feature_dimension", 'o')],
        "kernel_spatial_dimensions",
    ),
    (
        [("output_batch_dimension", 'b'), ("output_feature_dimension", 'f')],
        "output_spatial_dimensions",
    ),
];

/// Attributes that say how to compute, and change no value.
pub(super) const IMPLEMENTATION: &[&str] = &[
    "accumulation_type",
    "allow_imprecise_accumulation",
    "lhs_component_count",
    "lhs_precision_type",
    "num_primitive_operations",
    "rhs_component_count",
    "rhs_precision_type",
];

/// Attributes whose strings are names of functions.
pub(super) const SYMBOLS: &[&str] = &["callee", "decomposition", "called_computations"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order() {
        for rows in [TYPES, BUILTIN_TYPES] {
            assert!(rows.is_sorted_by(|a, b| a.0 < b.0));
        }
        for rows in [ATTRIBUTES, BUILTIN_ATTRIBUTES] {
            assert!(rows.is_sorted_by(|a, b| a.0 < b.0));
        }
    }

    #[test]
    fn widths_are_those_of_the_names() {
        let widths =
            ["i1", "ui4", "f8E4M3FN", "bf16", "f32", "index", "i64", "token", "i99"].map(bits);
        let wanted =
            [Some(1), Some(4), Some(8), Some(16), Some(32), Some(64), Some(64), None, None];
        assert_eq!(widths, wanted);
    }
}
