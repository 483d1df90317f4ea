//! Attributes: numbers and lists of them under the names that pretty and generic forms use, and names that mean nothing.

use crate::emit::refusal::{Unlowered, refuse};
use crate::text::tree::{Attribute, Instruction, Type};

/// Attributes that say how to compute, where, or for whom, and change no value.
const MEANINGLESS: &[&str] = &[
    "algorithm",
    "api_version",
    "backend_config",
    "called_computations",
    "decomposition_version",
    "has_side_effect",
    "indices_are_sorted",
    "operand_layouts",
    "output_operand_aliases",
    "precision",
    "precision_config",
    "result_accuracy",
    "result_layouts",
    "version",
];

/// Dialects whose attributes are annotations.
const ANNOTATIONS: &[&str] = &["mhlo.", "jax.", "sdy.", "xla.", "tf."];

/// Whether an attribute of this name changes no value, on any op.
pub(crate) fn says_nothing(name: &str) -> bool {
    MEANINGLESS.contains(&name) || ANNOTATIONS.iter().any(|p| name.starts_with(p))
}

/// The attribute under one of its names.
pub(crate) fn find<'i, 'a>(inst: &'i Instruction<'a>, names: &[&str]) -> Option<&'i Attribute<'a>> {
    names.iter().find_map(|n| inst.attr(n))
}

/// A number.
pub(crate) fn number(attr: &Attribute<'_>) -> Result<i64, Unlowered> {
    let Attribute::Number(text) = attr else { return refuse("an attribute that is no integer") };
    text.parse().map_err(|_| Unlowered::Unsupported(format!("the integer {text}")))
}

/// The numbers of a list, of `array<..>` or of `dense<..>`, in order.
pub(crate) fn list(attr: &Attribute<'_>) -> Result<Vec<i64>, Unlowered> {
    match attr {
        Attribute::List(items) => {
            let mut all = Vec::new();
            for item in items {
                match item {
                    Attribute::List(_) => all.extend(list(item)?),
                    Attribute::Word("true") => all.push(1),
                    Attribute::Word("false") => all.push(0),
                    item => all.push(number(item)?),
                }
            }
            Ok(all)
        }
        Attribute::Dense(dense) => {
            let cleaned = dense.payload.replace(['[', ']'], " ");
            let parsed: Result<Vec<i64>, Unlowered> = cleaned
                .split([',', ' ', '\n'])
                .filter(|s| !s.is_empty())
                .map(|s| match s {
                    "true" => Ok(1),
                    "false" => Ok(0),
                    s => s.parse().map_err(|_| Unlowered::Unsupported(format!("the integer {s}"))),
                })
                .collect();
            let parsed = parsed?;
            let Some(Type::Tensor(extents, _)) = &dense.ty else { return Ok(parsed) };
            let count = extents.iter().try_fold(1u64, |n, e| n.checked_mul((*e)?));
            match (count, parsed.as_slice()) {
                (Some(n), &[one]) if n <= 64 => Ok(vec![one; n as usize]),
                _ => Ok(parsed),
            }
        }
        Attribute::Word("[]") => Ok(Vec::new()),
        _ => refuse("an attribute that is no list of integers"),
    }
}

/// A list under one of its names, which must be there.
pub(crate) fn need_list(inst: &Instruction<'_>, names: &[&str]) -> Result<Vec<i64>, Unlowered> {
    match find(inst, names) {
        Some(attr) => list(attr),
        None => refuse(format!("without `{}`", names[0])),
    }
}

/// A list under one of its names, or as many of `default`.
pub(crate) fn list_or(
    inst: &Instruction<'_>,
    names: &[&str],
    count: usize,
    default: i64,
) -> Result<Vec<i64>, Unlowered> {
    let found = match find(inst, names) {
        Some(attr) => list(attr)?,
        None => return Ok(vec![default; count]),
    };
    match found.len() == count {
        true => Ok(found),
        false => refuse(format!("`{}` of {} entries, not {count}", names[0], found.len())),
    }
}

/// A number under one of its names, which must be there.
pub(crate) fn need_number(inst: &Instruction<'_>, names: &[&str]) -> Result<i64, Unlowered> {
    match find(inst, names) {
        Some(attr) => number(attr),
        None => refuse(format!("without `{}`", names[0])),
    }
}

/// The list of this name in a dictionary; empty where it is not there.
pub(crate) fn entry(dict: &Attribute<'_>, name: &str) -> Result<Vec<i64>, Unlowered> {
    dict.entry(name).map_or(Ok(Vec::new()), list)
}

/// Whether a flag is there and true.
pub(crate) fn flag(inst: &Instruction<'_>, name: &str) -> bool {
    inst.attr(name).and_then(Attribute::word) == Some("true")
}
