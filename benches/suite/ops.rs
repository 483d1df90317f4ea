//! The survey of ops: functions of one op at sizes of about 2^20 elements, as a table of texts.

use crate::BenchProgram;
use adfuse::ir::Diagnostic;

/// Programs of one form: one for each of the ops and each of the element types.
#[derive(Clone, Copy, Debug)]
pub struct OpFamily {
    /// Ops, separated by spaces. `OP` stands for one of them.
    pub ops: &'static str,
    /// Element types, separated by spaces. `T` before a bracket stands for one of them.
    types: &'static str,
    /// The last part of the names; empty where op and type say all.
    form: &'static str,
    params: &'static str,
    call: &'static str,
    results: &'static str,
    /// Whether the sum of the result, weighted by a further parameter `%in.t`, is computed with its gradients instead.
    has_gradient: bool,
}

/// A program of the survey.
#[derive(Clone, Debug)]
pub struct SurveyedOp {
    /// Op, element type and form, such as `reduce_sum.f32.last`.
    pub name: String,
    /// Its text.
    pub text: String,
    has_gradient: bool,
}

const fn family(
    ops: &'static str,
    types: &'static str,
    form: &'static str,
    [params, call, results]: [&'static str; 3],
) -> OpFamily {
    OpFamily { ops, types, form, params, call, results, has_gradient: false }
}

const fn gradient(
    ops: &'static str,
    types: &'static str,
    form: &'static str,
    text: [&'static str; 3],
) -> OpFamily {
    OpFamily { has_gradient: true, ..family(ops, types, form, text) }
}

/// Types of floats, with what differs between them in the code.
const FLOATS: &str = "f32 f64 bf16 f16";
/// One type for each width of elements, and 16 bits that are widened.
const WIDTHS: &str = "f32 f64 bf16 i8 bool";
/// What folds, scans and sorts have loops for.
const NUMBERS: &str = "f32 f64 bf16 i32 i64";

const VECTOR: [&str; 3] = ["%x: T[1048576]", "OP %x", "T[1048576]"];
const PAIR: [&str; 3] = ["%x: T[1048576], %y: T[1048576]", "OP %x, %y", "T[1048576]"];
const QUESTION: [&str; 3] = ["%x: T[1048576], %y: T[1048576]", "OP %x, %y", "bool[1048576]"];
const CONVERSION: &str = "f32 f64 bf16 f16 i32 i64 i8 u8 bool";

/// The survey.
#[rustfmt::skip]
pub const OP_FAMILIES: &[OpFamily] = &[
    // Elementwise.
    family("neg abs sign square relu floor ceil round round_nearest_even trunc stop_gradient", "f32", "", VECTOR),
    family("exp2 expm1 log1p rsqrt cbrt logistic erf erfc erf_inv lgamma digamma", "f32", "", VECTOR),
    family("sin cos tan asin acos atan sinh cosh asinh acosh atanh", "f32", "", VECTOR),
    family("exp log sqrt tanh", FLOATS, "", VECTOR),
    family("not population_count clz", "i32", "", VECTOR),
    family("integer_pow", "f32", "", ["%x: T[1048576]", "OP %x {y = 3}", "T[1048576]"]),
    family("polygamma", "f32", "", ["%x: T[1048576]", "OP %x {n = 1}", "T[1048576]"]),
    family("is_finite", "f32", "", ["%x: T[1048576]", "OP %x", "bool[1048576]"]),
    family("add sub mul div rem max min pow atan2 logaddexp xlogy", "f32", "", PAIR),
    family("add mul div rem max", "i32 i64 u32 i8", "", PAIR),
    family("and or xor shift_left shift_right_logical shift_right_arithmetic", "i32 i8", "", PAIR),
    family("eq ne lt le gt ge", "f32", "", QUESTION),
    family("fma", "f32", "", ["%x: T[1048576], %y: T[1048576], %z: T[1048576]", "OP %x, %y, %z", "T[1048576]"]),
    family("clamp", "f32", "", ["%l: T[1048576], %x: T[1048576], %h: T[1048576]", "OP %l, %x, %h", "T[1048576]"]),
    family("select_n", "f32", "", ["%p: bool[1048576], %x: T[1048576], %y: T[1048576]", "OP %p, %x, %y", "T[1048576]"]),
    family("convert_element_type", CONVERSION, "to_f32", ["%x: T[1048576]", "OP %x", "f32[1048576]"]),
    family("convert_element_type", CONVERSION, "to_f64", ["%x: T[1048576]", "OP %x", "f64[1048576]"]),
    family("convert_element_type", CONVERSION, "to_bf16", ["%x: T[1048576]", "OP %x", "bf16[1048576]"]),
    family("convert_element_type", CONVERSION, "to_f16", ["%x: T[1048576]", "OP %x", "f16[1048576]"]),
    family("convert_element_type", CONVERSION, "to_i32", ["%x: T[1048576]", "OP %x", "i32[1048576]"]),
    family("convert_element_type", CONVERSION, "to_i64", ["%x: T[1048576]", "OP %x", "i64[1048576]"]),
    family("convert_element_type", CONVERSION, "to_i8", ["%x: T[1048576]", "OP %x", "i8[1048576]"]),
    family("convert_element_type", CONVERSION, "to_bool", ["%x: T[1048576]", "OP %x", "bool[1048576]"]),
    family("bitcast_convert", "f32", "", ["%x: T[1048576]", "OP %x", "i32[1048576]"]),
    family("quantize", "f32", "", ["%x: T[1048576], %s: T[]", "OP %x, %s, 3", "i8[1048576]"]),
    family("dequantize", "i8", "", ["%x: T[1048576], %s: f32[]", "OP %x, %s, 3", "f32[1048576]"]),
    // Views.
    family("transpose", WIDTHS, "square", ["%x: T[1024,1024]", "OP %x {perm = [1, 0]}", "T[1024,1024]"]),
    family("transpose", WIDTHS, "last_to_first", ["%x: T[64,128,128]", "OP %x {perm = [2, 0, 1]}", "T[128,64,128]"]),
    family("transpose", WIDTHS, "lines", ["%x: T[64,128,128]", "OP %x {perm = [1, 0, 2]}", "T[128,64,128]"]),
    family("transpose", WIDTHS, "from_8_columns", ["%x: T[131072,8]", "OP %x {perm = [1, 0]}", "T[8,131072]"]),
    family("transpose", WIDTHS, "to_8_columns", ["%x: T[8,131072]", "OP %x {perm = [1, 0]}", "T[131072,8]"]),
    family("transpose", WIDTHS, "from_3_columns", ["%x: T[349525,3]", "OP %x {perm = [1, 0]}", "T[3,349525]"]),
    family("transpose", WIDTHS, "to_3_columns", ["%x: T[3,349525]", "OP %x {perm = [1, 0]}", "T[349525,3]"]),
    family("transpose", "f32 i8", "image_to_channels", ["%x: T[7,224,224,3]", "OP %x {perm = [0, 3, 1, 2]}", "T[7,3,224,224]"]),
    family("transpose", "f32 i8", "channels_to_image", ["%x: T[7,3,224,224]", "OP %x {perm = [0, 2, 3, 1]}", "T[7,224,224,3]"]),
    family("rev", "f32", "last", ["%x: T[1024,1024]", "OP %x {axes = [1]}", "T[1024,1024]"]),
    family("rev", "f32", "first", ["%x: T[1024,1024]", "OP %x {axes = [0]}", "T[1024,1024]"]),
    family("slice", "f32", "stride_2", ["%x: T[1024,2048]", "OP %x {start = [0, 0], limit = [1024, 2048], stride = [1, 2]}", "T[1024,1024]"]),
    family("slice", "f32", "stride_3", ["%x: T[1024,3072]", "OP %x {start = [0, 0], limit = [1024, 3072], stride = [1, 3]}", "T[1024,1024]"]),
    family("pad", "f32", "edges", ["%x: T[1022,1022]", "OP %x, 0.0 {low = [1, 1], high = [1, 1], interior = [0, 0]}", "T[1024,1024]"]),
    family("pad", "f32", "interior_last", ["%x: T[1024,512]", "OP %x, 0.0 {low = [0, 0], high = [0, 1], interior = [0, 1]}", "T[1024,1024]"]),
    family("pad", "f32", "interior_first", ["%x: T[512,1024]", "OP %x, 0.0 {low = [0, 0], high = [1, 0], interior = [1, 0]}", "T[1024,1024]"]),
    family("concatenate", "f32", "last", ["%x: T[1024,500], %y: T[1024,524]", "OP %x, %y {axis = 1}", "T[1024,1024]"]),
    family("concatenate", "f32", "first", ["%x: T[500,1024], %y: T[524,1024]", "OP %x, %y {axis = 0}", "T[1024,1024]"]),
    family("concatenate", "f32", "1_and_3_columns", ["%x: T[262144,1], %y: T[262144,3]", "OP %x, %y {axis = 1}", "T[262144,4]"]),
    family("broadcast_in_dim", "f32", "first", ["%x: T[1024]", "OP %x {dims = [1]}", "T[1024,1024]"]),
    family("broadcast_in_dim", "f32", "last", ["%x: T[1024]", "OP %x {dims = [0]}", "T[1024,1024]"]),
    family("tile", "f32", "16", ["%x: T[1024,16]", "OP %x {counts = [1, 64]}", "T[1024,1024]"]),
    family("tile", "f32", "3", ["%x: T[1024,3]", "OP %x {counts = [1, 341]}", "T[1024,1023]"]),
    family("windows", "f32", "3", ["%x: T[1024,344]", "OP %x {axes = [1], sizes = [3]}", "T[1024,342,3]"]),
    family("windows", "f32", "3x3", ["%x: T[16,86,86]", "OP %x {axes = [1, 2], sizes = [3, 3]}", "T[16,84,84,3,3]"]),
    // Reductions.
    family("reduce_sum reduce_max reduce_min reduce_prod", NUMBERS, "last", ["%x: T[1024,1024]", "OP %x {axes = [1]}", "T[1024]"]),
    family("reduce_sum reduce_max reduce_min reduce_prod", NUMBERS, "first", ["%x: T[1024,1024]", "OP %x {axes = [0]}", "T[1024]"]),
    family("reduce_sum reduce_max reduce_min reduce_prod", NUMBERS, "middle", ["%x: T[64,128,128]", "OP %x {axes = [1]}", "T[64,128]"]),
    family("reduce_sum reduce_max reduce_min reduce_prod", NUMBERS, "all", ["%x: T[1024,1024]", "OP %x {axes = [0, 1]}", "T[]"]),
    family("reduce_sum reduce_max reduce_min reduce_prod", NUMBERS, "rows_of_8", ["%x: T[131072,8]", "OP %x {axes = [1]}", "T[131072]"]),
    family("reduce_and reduce_or", "bool", "last", ["%x: T[1024,1024]", "OP %x {axes = [1]}", "T[1024]"]),
    family("reduce_and reduce_or", "bool", "first", ["%x: T[1024,1024]", "OP %x {axes = [0]}", "T[1024]"]),
    family("argmax argmin", NUMBERS, "last", ["%x: T[1024,1024]", "OP %x {axis = 1}", "i32[1024]"]),
    family("argmax argmin", NUMBERS, "first", ["%x: T[1024,1024]", "OP %x {axis = 0}", "i32[1024]"]),
    family("argmax argmin", NUMBERS, "rows_of_8", ["%x: T[131072,8]", "OP %x {axis = 1}", "i32[131072]"]),
    // Scans.
    family("cumsum cumprod cummax cummin", "f32 f64 bf16 i32", "last", ["%x: T[1024,1024]", "OP %x {axis = 1}", "T[1024,1024]"]),
    family("cumsum cumprod cummax cummin", "f32 f64 bf16 i32", "first", ["%x: T[1024,1024]", "OP %x {axis = 0}", "T[1024,1024]"]),
    family("cumsum cumprod cummax cummin", "f32 f64 bf16 i32", "middle", ["%x: T[64,128,128]", "OP %x {axis = 1}", "T[64,128,128]"]),
    family("cumsum cumprod cummax cummin", "f32", "reverse", ["%x: T[1024,1024]", "OP %x {axis = 1, reverse = true}", "T[1024,1024]"]),
    family("cumsum cumprod cummax cummin", "f32", "rows_of_8", ["%x: T[131072,8]", "OP %x {axis = 1}", "T[131072,8]"]),
    family("cumlogsumexp", "f32", "last", ["%x: T[1024,1024]", "OP %x {axis = 1}", "T[1024,1024]"]),
    family("cumlogsumexp", "f32", "first", ["%x: T[1024,1024]", "OP %x {axis = 0}", "T[1024,1024]"]),
    // Orders.
    family("sort", NUMBERS, "last", ["%x: T[1024,1024]", "OP %x {axis = 1}", "T[1024,1024]"]),
    family("sort", NUMBERS, "first", ["%x: T[1024,1024]", "OP %x {axis = 0}", "T[1024,1024]"]),
    family("sort", "f32", "rows_of_16", ["%x: T[65536,16]", "OP %x {axis = 1}", "T[65536,16]"]),
    family("sort", "f32", "one_line", ["%x: T[1048576]", "OP %x {axis = 0}", "T[1048576]"]),
    family("argsort", "f32", "last", ["%x: T[1024,1024]", "OP %x {axis = 1}", "i32[1024,1024]"]),
    family("argsort", "f32", "first", ["%x: T[1024,1024]", "OP %x {axis = 0}", "i32[1024,1024]"]),
    family("sort_key_val", "f32", "last", ["%x: T[1024,1024], %y: T[1024,1024]", "OP %x, %y {axis = 1}", "T[1024,1024], T[1024,1024]"]),
    family("top_k", "f32", "8", ["%x: T[1024,1024]", "OP %x {k = 8}", "T[1024,8], i32[1024,8]"]),
    // Windows.
    family("reduce_window_sum reduce_window_max", "f32", "2x2", ["%x: T[64,128,128]", "OP %x {window = [1, 2, 2], strides = [1, 2, 2]}", "T[64,64,64]"]),
    family("reduce_window_sum reduce_window_max", "f32", "3x3", ["%x: T[64,128,128]", "OP %x {window = [1, 3, 3], strides = [1, 1, 1]}", "T[64,126,126]"]),
    family("reduce_window_sum reduce_window_max", "f32", "3x3_stride_2", ["%x: T[64,129,129]", "OP %x {window = [1, 3, 3], strides = [1, 2, 2]}", "T[64,64,64]"]),
    family("reduce_window_sum reduce_window_max", "f32", "line_of_32", ["%x: T[1024,1055]", "OP %x {window = [1, 32], strides = [1, 1]}", "T[1024,1024]"]),
    gradient("reduce_window_max", "f32", "2x2_gradient", ["%x: T[64,128,128]", "OP %x {window = [1, 2, 2], strides = [1, 2, 2]}", "T[64,64,64]"]),
    gradient("reduce_window_max", "f32", "3x3_stride_2_gradient", ["%x: T[64,129,129]", "OP %x {window = [1, 3, 3], strides = [1, 2, 2]}", "T[64,64,64]"]),
    family("select_and_scatter_add", "f32", "2x2", ["%s: T[64,64,64], %x: T[64,128,128]", "OP %s, %x {window = [1, 2, 2], strides = [1, 2, 2], select = ge}", "T[64,128,128]"]),
    family("select_and_scatter_add", "f32", "3x3_stride_2", ["%s: T[64,64,64], %x: T[64,129,129]", "OP %s, %x {window = [1, 3, 3], strides = [1, 2, 2], select = ge}", "T[64,129,129]"]),
    // Places that are data.
    family("gather", "f32", "rows_of_1", ["%x: T[1000,1], %i: i32[1048576,1]", "OP %x, %i {offset_dims = [1], collapsed = [0], start_map = [0], sizes = [1, 1], mode = clip}", "T[1048576,1]"]),
    family("gather", "f32", "rows_of_4", ["%x: T[1000,4], %i: i32[262144,1]", "OP %x, %i {offset_dims = [1], collapsed = [0], start_map = [0], sizes = [1, 4], mode = clip}", "T[262144,4]"]),
    family("gather", "f32", "rows_of_64", ["%x: T[1000,64], %i: i32[16384,1]", "OP %x, %i {offset_dims = [1], collapsed = [0], start_map = [0], sizes = [1, 64], mode = clip}", "T[16384,64]"]),
    family("gather", "f32", "rows_of_1024", ["%x: T[1000,1024], %i: i32[1024,1]", "OP %x, %i {offset_dims = [1], collapsed = [0], start_map = [0], sizes = [1, 1024], mode = clip}", "T[1024,1024]"]),
    family("scatter scatter_add scatter_max scatter_min", "f32", "rows_of_1", ["%x: T[1000,1], %i: i32[1048576,1], %u: T[1048576,1]", "OP %x, %i, %u {window_dims = [1], inserted = [0], start_map = [0], mode = clip}", "T[1000,1]"]),
    family("scatter scatter_add scatter_max scatter_min", "f32", "rows_of_4", ["%x: T[1000,4], %i: i32[262144,1], %u: T[262144,4]", "OP %x, %i, %u {window_dims = [1], inserted = [0], start_map = [0], mode = clip}", "T[1000,4]"]),
    family("scatter scatter_add scatter_max scatter_min", "f32", "rows_of_64", ["%x: T[1000,64], %i: i32[16384,1], %u: T[16384,64]", "OP %x, %i, %u {window_dims = [1], inserted = [0], start_map = [0], mode = clip}", "T[1000,64]"]),
    family("dynamic_slice", "f32", "", ["%x: T[2048,1024], %i: i32[], %j: i32[]", "OP %x, %i, %j {sizes = [1024, 1024]}", "T[1024,1024]"]),
    family("dynamic_update_slice", "f32", "", ["%x: T[1024,1024], %u: T[512,512], %i: i32[], %j: i32[]", "OP %x, %u, %i, %j", "T[1024,1024]"]),
    // Products.
    family("dot_general", "f32", "1024x1024x64", ["%x: T[1024,64], %y: T[64,1024]", "OP %x, %y {batch = [] x [], contract = [1] x [0]}", "T[1024,1024]"]),
    family("dot_general", "f32", "1024x10x1024", ["%x: T[1024,1024], %y: T[1024,10]", "OP %x, %y {batch = [] x [], contract = [1] x [0]}", "T[1024,10]"]),
    family("dot_general", "f32", "10x1024x1024", ["%x: T[10,1024], %y: T[1024,1024]", "OP %x, %y {batch = [] x [], contract = [1] x [0]}", "T[10,1024]"]),
    family("dot_general", "f32", "1024x1024x10", ["%x: T[1024,10], %y: T[10,1024]", "OP %x, %y {batch = [] x [], contract = [1] x [0]}", "T[1024,1024]"]),
    family("dot_general", "f32", "1x1024x1024", ["%x: T[1,1024], %y: T[1024,1024]", "OP %x, %y {batch = [] x [], contract = [1] x [0]}", "T[1,1024]"]),
    family("dot_general", "f32", "1024x1x1024", ["%x: T[1024,1024], %y: T[1024,1]", "OP %x, %y {batch = [] x [], contract = [1] x [0]}", "T[1024,1]"]),
    family("dot_general", "f32", "7x7x100000", ["%x: T[7,100000], %y: T[100000,7]", "OP %x, %y {batch = [] x [], contract = [1] x [0]}", "T[7,7]"]),
    family("dot_general", "f32", "256_of_64x64x64", ["%x: T[256,64,64], %y: T[256,64,64]", "OP %x, %y {batch = [0] x [0], contract = [2] x [1]}", "T[256,64,64]"]),
    family("dot_general", "f32", "4096_of_8x8x8", ["%x: T[4096,8,8], %y: T[4096,8,8]", "OP %x, %y {batch = [0] x [0], contract = [2] x [1]}", "T[4096,8,8]"]),
    family("dot_general", "f32", "65536_of_4x4x4", ["%x: T[65536,4,4], %y: T[65536,4,4]", "OP %x, %y {batch = [0] x [0], contract = [2] x [1]}", "T[65536,4,4]"]),
    family("dot_general", "f32", "65536_of_3x3x3", ["%x: T[65536,3,3], %y: T[65536,3,3]", "OP %x, %y {batch = [0] x [0], contract = [2] x [1]}", "T[65536,3,3]"]),
    // Convolutions.
    family("conv_general_dilated", "f32", "3x3", ["%x: T[8,32,32,32], %w: T[32,32,3,3]", "OP %x, %w", "T[8,32,30,30]"]),
    family("conv_general_dilated", "f32", "3x3_dilated", ["%x: T[8,32,32,32], %w: T[32,32,3,3]", "OP %x, %w {rhs_dilation = [2, 2]}", "T[8,32,28,28]"]),
    family("conv_general_dilated", "f32", "3x3_transposed", ["%x: T[8,32,16,16], %w: T[32,32,3,3]", "OP %x, %w {low = [1, 1], high = [1, 1], lhs_dilation = [2, 2]}", "T[8,32,31,31]"]),
    family("conv_general_dilated", "f32", "3x3_8_groups", ["%x: T[8,64,34,34], %w: T[64,8,3,3]", "OP %x, %w {feature_group_count = 8}", "T[8,64,32,32]"]),
    family("conv_general_dilated", "f32", "3x3_depthwise", ["%x: T[8,64,34,34], %w: T[64,1,3,3]", "OP %x, %w {feature_group_count = 64}", "T[8,64,32,32]"]),
    family("conv_general_dilated", "f32", "1x1", ["%x: T[8,64,32,32], %w: T[64,64,1,1]", "OP %x, %w", "T[8,64,32,32]"]),
    family("conv_general_dilated", "f32", "line_of_3", ["%x: T[16,32,1026], %w: T[32,32,3]", "OP %x, %w", "T[16,32,1024]"]),
    gradient("conv_general_dilated", "f32", "3x3_kernel_gradient", ["%in.x: T[8,32,32,32], %k: T[32,32,3,3]", "OP %in.x, %k", "T[8,32,30,30]"]),
    gradient("conv_general_dilated", "f32", "3x3_image_gradient", ["%x: T[8,32,32,32], %in.k: T[32,32,3,3]", "OP %x, %in.k", "T[8,32,30,30]"]),
    gradient("conv_general_dilated", "f32", "3x3_8_groups_kernel_gradient", ["%in.x: T[8,64,34,34], %k: T[64,8,3,3]", "OP %in.x, %k {feature_group_count = 8}", "T[8,64,32,32]"]),
    gradient("conv_general_dilated", "f32", "3x3_8_groups_image_gradient", ["%x: T[8,64,34,34], %in.k: T[64,8,3,3]", "OP %x, %in.k {feature_group_count = 8}", "T[8,64,32,32]"]),
    gradient("conv_general_dilated", "f32", "3x3_depthwise_kernel_gradient", ["%in.x: T[8,64,34,34], %k: T[64,1,3,3]", "OP %in.x, %k {feature_group_count = 64}", "T[8,64,32,32]"]),
    gradient("conv_general_dilated", "f32", "3x3_depthwise_image_gradient", ["%x: T[8,64,34,34], %in.k: T[64,1,3,3]", "OP %x, %in.k {feature_group_count = 64}", "T[8,64,32,32]"]),
    // Others.
    family("fft", "f32", "1024", ["%x: T[1024,1024], %y: T[1024,1024]", "OP %x, %y {axis = 1}", "T[1024,1024], T[1024,1024]"]),
    family("rfft", "f32", "1024", ["%x: T[1024,1024]", "OP %x {axis = 1}", "T[1024,513], T[1024,513]"]),
    family("iota", "f32", "", ["", "OP {axis = 1}", "T[1024,1024]"]),
    family("rng_bits", "u32", "", ["%seed: i64[], %offset: i64[]", "OP %seed, %offset", "T[1048576]"]),
];

impl OpFamily {
    /// Its programs.
    pub fn programs(&self) -> Vec<SurveyedOp> {
        let each = |op| self.types.split(' ').map(move |ty| self.program(op, ty));
        self.ops.split(' ').flat_map(each).collect()
    }

    fn program(&self, op: &str, ty: &str) -> SurveyedOp {
        let typed = |text: &str| text.replace("T[", &format!("{ty}["));
        let mut name = format!("{op}.{ty}");
        if !self.form.is_empty() {
            name = format!("{name}.{}", self.form);
        }
        let (params, results) = (typed(self.params), typed(self.results));
        let call = self.call.replace("OP", op);
        let text = match self.has_gradient {
            true => weighted_sum(&params, &call, &results),
            false => plain(&params, &call, &results),
        };
        SurveyedOp { name, text, has_gradient: self.has_gradient }
    }
}

/// The function of a call.
fn plain(params: &str, call: &str, results: &str) -> String {
    let values: Vec<String> = (0..results.matches('[').count()).map(|k| format!("%{k}")).collect();
    let values = values.join(", ");
    format!(
        "func @f({params}) -> ({results}) {{\n  {values} = {call} : {results}\n  return {values}\n}}\n"
    )
}

/// The function of the sum of a call's result, each element times one of `%in.t`.
fn weighted_sum(params: &str, call: &str, result: &str) -> String {
    let scalar = result.split('[').next().unwrap_or_default();
    let axes: Vec<String> = (0..=result.matches(',').count()).map(|k| k.to_string()).collect();
    let axes = axes.join(", ");
    format!(
        "func @f({params}, %in.t: {result}) -> {scalar}[] {{\n  %0 = {call} : {result}\n  %1 = mul %0, %in.t : {result}\n  \
         %2 = reduce_sum %1 {{axes = [{axes}]}} : {scalar}[]\n  return %2\n}}\n"
    )
}

impl SurveyedOp {
    /// The program.
    ///
    /// # Errors
    /// As [`BenchProgram::of_text`].
    pub fn program(&self) -> Result<BenchProgram, Diagnostic> {
        BenchProgram::of_text(&self.name, &self.text, &[], self.has_gradient)
    }
}

/// A copy that reads and writes this many bytes together.
///
/// # Errors
/// As [`BenchProgram::of_text`].
pub fn copy_of(bytes: u64) -> Result<BenchProgram, Diagnostic> {
    let words = (bytes / 8).max(1);
    let text = plain(&format!("%x: i32[{words}]"), "reshape %x", &format!("i32[{words}]"));
    BenchProgram::of_text("copy", &text, &[], false)
}
