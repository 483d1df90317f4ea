//! Hints: what other frameworks' names are called here, and the instruction that makes an operand fit.

use crate::infer::OperandMismatch;
use crate::op::Op;
use crate::types::{Dim, TensorType};

/// Names of JAX, NumPy and PyTorch, and what stands for them. What is in backquotes is text of a program.
const FOREIGN: &[(&str, &str)] = &[
    ("matmul", "`dot_general %a, %b {contract = [1] x [0]}`"),
    ("mm", "`dot_general %a, %b {contract = [1] x [0]}`"),
    ("vdot", "`dot_general %a, %b {contract = [0] x [0]}`"),
    ("addmm", "`dot_general %a, %b {contract = [1] x [0]}`, then `add`"),
    ("dot", "`dot_general %a, %b {contract = [1] x [0]}`, with the axes that are summed over"),
    (
        "linear",
        "`dot_general %a, %b {contract = [1] x [0]}`, then `add` of the bias by `broadcast_in_dim`",
    ),
    ("bmm", "`dot_general %a, %b {batch = [0] x [0], contract = [2] x [1]}`"),
    ("einsum", "`dot_general`, with `batch` and `contract` axes, then `transpose`"),
    ("tensordot", "`dot_general`, with the axes that are summed over"),
    ("outer", "`dot_general %a, %b {contract = [] x []}`"),
    ("multiply", "`mul`"),
    ("subtract", "`sub`"),
    ("divide", "`div`"),
    ("true_divide", "`div`"),
    ("remainder", "`rem`, which has the sign of the dividend"),
    ("floor_divide", "`div`, then `floor`"),
    ("mod", "`rem`, which has the sign of the dividend"),
    ("fmod", "`rem`"),
    ("negative", "`neg`"),
    ("absolute", "`abs`"),
    ("power", "`pow`, or `integer_pow` for a whole exponent"),
    ("float_power", "`pow`"),
    ("reciprocal", "`div 1.0, %x`"),
    ("maximum", "`max`"),
    ("minimum", "`min`"),
    ("amax", "`reduce_max`"),
    ("amin", "`reduce_min`"),
    ("sum", "`reduce_sum %x {axes = [0]}`"),
    ("prod", "`reduce_prod %x {axes = [0]}`"),
    ("reduce_any", "`reduce_or %x {axes = [0]}`"),
    ("reduce_all", "`reduce_and %x {axes = [0]}`"),
    ("any", "`reduce_or %x {axes = [0]}`"),
    ("all", "`reduce_and %x {axes = [0]}`"),
    ("mean", "`reduce_sum %x {axes = [0]}`, then `div` by the number of elements"),
    ("reduce_mean", "`reduce_sum %x {axes = [0]}`, then `div` by the number of elements"),
    ("var", "`sub` of the mean, `square`, `reduce_sum`, and `div` by the number of elements"),
    (
        "std",
        "`sub` of the mean, `square`, `reduce_sum`, `div` by the number of elements, and `sqrt`",
    ),
    ("norm", "`square`, `reduce_sum` and `sqrt`"),
    ("logsumexp", "`reduce_max`, `sub`, `exp`, `reduce_sum`, `log` and `add` of the maximum"),
    ("sigmoid", "`logistic`"),
    ("expit", "`logistic`"),
    ("softmax", "`reduce_max`, `sub`, `exp`, `reduce_sum` and `div`, which the planner fuses"),
    (
        "log_softmax",
        "`reduce_max`, `sub`, `exp`, `reduce_sum`, `log` and `sub`, which the planner fuses",
    ),
    ("softplus", "`logaddexp %x, 0.0`"),
    ("silu", "`logistic`, then `mul` by its argument"),
    ("swish", "`logistic`, then `mul` by its argument"),
    (
        "gelu",
        "`erf` of the argument over the root of 2, `add` of 1, and `mul` by half the argument",
    ),
    ("elu", "`select_n` between `expm1` and the argument"),
    ("leaky_relu", "`select_n` between a `mul` and the argument"),
    ("hardtanh", "`clamp -1.0, %x, 1.0`"),
    ("relu6", "`clamp 0.0, %x, 6.0`"),
    ("clip", "`clamp 0.0, %x, 1.0`: the least, the value, the greatest"),
    ("where", "`select_n %p, %if_false, %if_true`; mind the order"),
    ("select", "`select_n %p, %if_false, %if_true`; mind the order"),
    ("scaled_dot_product_attention", "`attention`"),
    (
        "layer_norm",
        "`sub` of the mean, `square`, `reduce_sum`, `rsqrt` and `mul`, which the planner fuses",
    ),
    (
        "cross_entropy",
        "`reduce_max`, `sub`, `exp`, `reduce_sum`, `log` and `gather`, which the planner fuses",
    ),
    (
        "broadcast_to",
        "`broadcast_in_dim %x {dims = [1]} : f32[4,3]`, where `dims` says which axes %x has",
    ),
    (
        "expand",
        "`broadcast_in_dim %x {dims = [1]} : f32[4,3]`, where `dims` says which axes %x has",
    ),
    ("expand_dims", "`reshape %x : f32[4,1]`"),
    ("unsqueeze", "`reshape %x : f32[4,1]`"),
    ("squeeze", "`reshape %x : f32[4]`"),
    ("view", "`reshape`"),
    ("flatten", "`reshape`"),
    ("ravel", "`reshape`"),
    ("permute", "`transpose`"),
    ("swapaxes", "`transpose`"),
    ("flip", "`rev`"),
    ("moveaxis", "`transpose`"),
    ("cat", "`concatenate`"),
    ("concat", "`concatenate`"),
    ("roll", "`slice` twice, then `concatenate`"),
    ("diag", "`broadcast_in_dim`, and `select_n` where two `iota` are equal"),
    ("eye", "`iota` twice, `eq`, and `convert_element_type`"),
    ("tril", "`iota` twice, `ge`, and `select_n`"),
    ("triu", "`iota` twice, `le`, and `select_n`"),
    ("stack", "`reshape`, then `concatenate`"),
    ("repeat", "`broadcast_in_dim`, then `reshape`"),
    ("take", "`gather`"),
    ("index_select", "`gather`"),
    ("embedding", "`gather`"),
    ("take_along_axis", "`gather`"),
    ("segment_sum", "`scatter_add`"),
    ("index_add", "`scatter_add`"),
    ("one_hot", "`iota` and `eq`, then `convert_element_type`"),
    ("arange", "`iota`"),
    ("zeros", "`broadcast_in_dim` of a scalar"),
    ("zeros_like", "`broadcast_in_dim` of a scalar"),
    ("ones_like", "`broadcast_in_dim` of a scalar"),
    ("ones", "`broadcast_in_dim` of a scalar"),
    ("full", "`broadcast_in_dim` of a scalar"),
    ("astype", "`convert_element_type %x : f32[4]`"),
    ("cast", "`convert_element_type %x : f32[4]`"),
    ("convert", "`convert_element_type %x : f32[4]`"),
    ("detach", "`stop_gradient`"),
    ("equal", "`eq`"),
    ("not_equal", "`ne`"),
    ("less", "`lt`"),
    ("less_equal", "`le`"),
    ("greater", "`gt`"),
    ("greater_equal", "`ge`"),
    ("logical_and", "`and`"),
    ("logical_or", "`or`"),
    ("logical_not", "`not`"),
    ("logical_xor", "`xor`"),
    ("bitwise_and", "`and`"),
    ("bitwise_or", "`or`"),
    ("isfinite", "`is_finite`"),
    ("isinf", "`abs`, then `eq` with infinity"),
    ("isnan", "`ne %x, %x`"),
    ("arcsin", "`asin`"),
    ("arccos", "`acos`"),
    ("arctan", "`atan`"),
    ("arctan2", "`atan2`"),
    ("erfinv", "`erf_inv`"),
    ("gammaln", "`lgamma`"),
    ("psi", "`digamma`"),
    ("conv", "`conv_general_dilated`"),
    ("conv1d", "`conv_general_dilated`"),
    ("conv2d", "`conv_general_dilated`"),
    ("conv3d", "`conv_general_dilated`"),
    ("max_pool", "`reduce_window_max`"),
    ("max_pool2d", "`reduce_window_max`"),
    ("avg_pool", "`reduce_window_sum`, then `div` by the size of the window"),
    ("avg_pool2d", "`reduce_window_sum`, then `div` by the size of the window"),
    ("cumulative_sum", "`cumsum`"),
    ("while_loop", "`while`"),
    ("fori_loop", "`fori`"),
    ("psum", "`all_reduce %x {over = \"ranks\", ranks = 2}`"),
    ("pmax", "`all_reduce_max %x {over = \"ranks\", ranks = 2}`"),
    ("pmin", "`all_reduce_min %x {over = \"ranks\", ranks = 2}`"),
    ("dropout", "`rng_bits`, `lt` and `select_n`, then `mul` by what keeps the mean"),
    ("randn", "`rng_bits`, then arithmetic; or a parameter, which `run` fills at random"),
    ("solve", "`lu` and `triangular_solve`"),
];

/// Names of element types in JAX, NumPy and PyTorch.
const FOREIGN_TYPES: &[(&str, &str)] = &[
    ("float64", "f64"),
    ("double", "f64"),
    ("float32", "f32"),
    ("float", "f32"),
    ("bfloat16", "bf16"),
    ("float16", "f16"),
    ("half", "f16"),
    ("int64", "i64"),
    ("long", "i64"),
    ("int32", "i32"),
    ("int", "i32"),
    ("uint32", "u32"),
    ("int8", "i8"),
    ("uint8", "u8"),
    ("bool_", "bool"),
    ("pred", "bool"),
    ("i1", "bool"),
];

/// The element type that another framework calls so.
pub(super) fn foreign_type(name: &str) -> Option<&'static str> {
    FOREIGN_TYPES.iter().find(|(known, _)| *known == name).map(|(_, here)| *here)
}

/// What stands for another framework's op.
pub(super) fn foreign(name: &str) -> Option<String> {
    // `jnp.matmul`, `torch.matmul` and `stablehlo.add` are told by their last words.
    let plain = name.rsplit('.').next().unwrap_or(name).to_ascii_lowercase();
    let own = || Op::ALL.iter().map(|op| op.name()).find(|own| *own == plain && plain != name);
    match FOREIGN.iter().find(|(known, _)| *known == plain) {
        Some((_, here)) => Some(format!("here that is {here}")),
        None => own().map(|own| format!("here that is `{own}`")),
    }
}

/// The instruction that makes an operand fit. `operands` are the names of the instruction's operands, with their sigils.
pub(super) fn fitting(op: Op, mismatch: &OperandMismatch, operands: &[&str]) -> Option<String> {
    let OperandMismatch { operand, expected, found } = mismatch;
    let last = operands.get(*operand)?;
    // What is demanded of later operands is what the first has, which may be the one to change.
    let first = (*operand > 0 && op.def().regions.is_empty()).then(|| operands[0]);
    if expected.dtype != found.dtype {
        let (name, to) = match first {
            // Numbers become the more general ones.
            Some(first) if found.dtype.is_float() && !expected.dtype.is_float() => {
                (first, TensorType { dtype: found.dtype, ..expected.clone() })
            }
            _ => (*last, TensorType { dtype: expected.dtype, ..found.clone() }),
        };
        let made = format!("{name}_{}", to.dtype);
        return Some(format!(
            "write `{made} = convert_element_type {name} : {to}` before it, and {made} in it"
        ));
    }
    let line = |name: &str, from: &TensorType, to: &TensorType| {
        let dims = broadcast_dims(from, to)?;
        Some(format!(
            "write `{name}_b = broadcast_in_dim {name} {{dims = {dims:?}}} : {to}` before it, and {name}_b in it"
        ))
    };
    line(last, found, expected).or_else(|| line(first?, expected, found))
}

/// The axes of `to` that those of `from` are, the last ones where several would do.
fn broadcast_dims(from: &TensorType, to: &TensorType) -> Option<Vec<usize>> {
    if from.rank() > to.rank() {
        return None;
    }
    let mut dims = Vec::new();
    let mut end = to.rank();
    for axis in from.shape.iter().rev() {
        let fits = |k: &usize| *axis == to.shape[*k] || *axis == Dim::Const(1);
        let at = (0..end).rev().find(fits)?;
        dims.push(at);
        end = at;
    }
    dims.reverse();
    Some(dims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn foreign_names_are_no_ops_and_stand_for_ops() {
        for (name, here) in FOREIGN {
            assert!(Op::ALL.iter().all(|op| op.name() != *name), "`{name}` is an op");
            let words = here.split('`').skip(1).step_by(2).map(|code| code.split(' ').next());
            let ops: Vec<&str> = words.flatten().collect();
            let is_op = |word: &&str| Op::ALL.iter().any(|op| op.name() == *word);
            assert!(ops.first().is_some_and(is_op), "`{name}`: {here}");
            let known =
                |word: &&str| is_op(word) || ["dims", "batch", "contract", "run"].contains(word);
            assert!(ops.iter().all(known), "`{name}`: {here}");
        }
    }

    #[test]
    fn names_with_modules_are_told_by_their_last_words() {
        let matmul = foreign("matmul");
        assert!(
            matmul.is_some()
                && foreign("jnp.matmul") == matmul
                && foreign("torch.MatMul") == matmul
        );
        assert_eq!(foreign("jax.nn.relu").as_deref(), Some("here that is `relu`"));
        assert_eq!(foreign("relu"), None);
        assert_eq!(foreign("jnp.nothing_known"), None);
    }

    #[test]
    fn axes_are_the_last_that_fit() {
        let ty = |dims: &[u64]| TensorType::of(DType::F32, dims);
        for (from, to, due) in [
            (&[3][..], &[4, 3][..], Some(vec![1])),
            (&[4], &[4, 3], Some(vec![0])),
            (&[3], &[3, 3], Some(vec![1])),
            (&[1, 3], &[4, 3], Some(vec![0, 1])),
            (&[], &[4, 3], Some(vec![])),
            (&[5], &[4, 3], None),
            (&[3, 4], &[4, 3], None),
            (&[4, 3, 2], &[4, 3], None),
        ] {
            assert_eq!(broadcast_dims(&ty(from), &ty(to)), due, "{from:?} {to:?}");
        }
    }
}
