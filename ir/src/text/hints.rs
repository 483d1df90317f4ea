//! Hints: what other frameworks' names are called here, and the instruction that makes an operand fit.

use super::foreign::{NOTHING, OPS, OTHERS};
use crate::diag::misspelled;
use crate::infer::OperandMismatch;
use crate::op::Op;
use crate::types::{Dim, TensorType};

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

/// What may help where a name is none of an op: what stands for it, if another framework has it, or the op that it is
/// misspelled from. A hint that is wrong is worse than none.
pub(super) fn unknown_op(name: &str) -> Option<String> {
    foreign(name).or_else(|| {
        let plain = plain(name);
        let is_other = NOTHING.split(' ').any(|known| known == plain);
        let near = misspelled(&plain, Op::ALL.iter().map(|op| op.name()));
        // Of two letters too many ops are near.
        near.filter(|_| !is_other && plain.len() > 2).map(|near| format!("did you mean `{near}`?"))
    })
}

/// The name as tables have it: `jnp.matmul`, `torch.matmul` and `stablehlo.add` are told by their last words, and `add_` is what
/// works in place.
fn plain(name: &str) -> String {
    let last = name.rsplit('.').next().unwrap_or(name).to_ascii_lowercase();
    last.trim_end_matches('_').to_owned()
}

/// `ReduceMean` as `reduce_mean`.
fn snake(name: &str) -> String {
    let mut made = String::new();
    for c in name.rsplit('.').next().unwrap_or(name).chars() {
        if c.is_ascii_uppercase() && made.ends_with(|p: char| p.is_ascii_alphanumeric()) {
            made.push('_');
        }
        made.push(c.to_ascii_lowercase());
    }
    made
}

/// What stands for another framework's op.
fn foreign(name: &str) -> Option<String> {
    let (plain, snake) = (plain(name), snake(name));
    let is = |known: &str| known == plain || known == snake;
    let find = |table: &[(&str, &'static str)]| {
        let row = table.iter().find(|(names, _)| names.split(' ').any(is));
        row.map(|(_, here)| *here)
    };
    let own = || Op::ALL.iter().map(|op| op.name()).find(|own| is(own) && *own != name);
    let stands = find(OPS).map(|here| format!("here that is {here}"));
    let stands = stands.or_else(|| find(OTHERS).map(str::to_owned));
    stands.or_else(|| own().map(|own| format!("here that is `{own}`")))
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
    fn foreign_names_are_no_ops_and_are_told_once() {
        let tables = OPS.iter().chain(OTHERS).flat_map(|(names, _)| names.split(' '));
        let mut all = std::collections::BTreeSet::new();
        for name in tables.chain(NOTHING.split(' ')) {
            assert!(Op::ALL.iter().all(|op| op.name() != name), "`{name}` is an op");
            assert!(all.insert(name), "`{name}` is there twice");
        }
    }

    #[test]
    fn what_stands_for_foreign_names_are_ops() {
        for (name, here) in OPS {
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
    fn names_are_near_in_meaning_or_spelling_or_are_told_nothing() {
        for (name, part) in [
            ("selu", "`select_n` between `expm1`"),
            ("nansum", "`reduce_sum`"),
            ("vmap", "`adfuse vmap`"),
            ("clone", "nothing is copied"),
            ("add_", "here that is `add`"),
            ("Tanhh", "did you mean `tanh`?"),
            ("sinn", "did you mean `sin`?"),
            ("exq", "did you mean `exp`?"),
            ("tahn", "did you mean `tanh`?"),
            ("sqaure", "did you mean `square`?"),
            ("mull", "did you mean `mul`?"),
            ("reduce_somm", "did you mean `reduce_sum`?"),
        ] {
            let told = unknown_op(name).unwrap_or_default();
            assert!(told.contains(part), "{name}: {told}");
        }
        for name in ["igamma", "exp1", "gcd", "histogram", "ldexp", "fold", "frobnicate"] {
            assert_eq!(unknown_op(name), None, "{name}");
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
        assert_eq!(foreign("SelectN").as_deref(), Some("here that is `select_n`"));
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
