//! Tensors as JSON, in full.

use super::show::digest;
use adfuse::backends::Array;
use adfuse::ir::Literal;
use std::io::{self, Write};

/// How the elements of tensors are told.
#[derive(Clone, Copy)]
pub(super) enum ElementForm {
    /// All of them, as `data`.
    Data,
    /// Their digest, as `sha256`.
    Digest,
}

/// Writes `[{"name", "dtype", "shape", "data"}, ..]`, one tensor on a line. Data are nested lists in
/// which every number reads back to the same bits; `"nan"`, `"inf"` and `"-inf"` are strings, since
/// JSON has no such numbers.
///
/// The text is streamed: a document in memory would be many times the size of the tensors.
pub(super) fn write_arrays(
    out: &mut dyn Write,
    arrays: &[(String, Array)],
    elements: ElementForm,
) -> io::Result<()> {
    write!(out, "[")?;
    for (k, (name, a)) in arrays.iter().enumerate() {
        let comma = if k > 0 { ",\n  " } else { "\n  " };
        write!(out, "{comma}{{\"name\": {}, \"dtype\": \"{}\", ", quoted(name), a.dtype())?;
        write!(out, "\"shape\": {:?}, ", a.dims())?;
        match elements {
            ElementForm::Data => {
                write!(out, "\"data\": ")?;
                nested(out, a, 0, &mut 0)?;
            }
            ElementForm::Digest => write!(out, "\"sha256\": \"{}\"", digest(a))?,
        }
        write!(out, "}}")?;
    }
    write!(out, "{}]", if arrays.is_empty() { "" } else { "\n" })
}

/// A string with its quotes.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A number, or a string where JSON has no number for it.
pub(super) fn number(x: f64) -> String {
    serde_json::Number::from_f64(x)
        .map_or_else(|| format!("\"{x:?}\"").to_lowercase(), |n| n.to_string())
}

fn nested(out: &mut dyn Write, a: &Array, axis: usize, next: &mut usize) -> io::Result<()> {
    let Some(&n) = a.dims().get(axis) else {
        let l = a.get(*next);
        *next += 1;
        return write!(out, "{}", element(l));
    };
    // Extents alone could make the text endless, where there are no elements.
    if a.is_empty() {
        return write!(out, "[]");
    }
    write!(out, "[")?;
    for k in 0..n {
        if k > 0 {
            write!(out, ", ")?;
        }
        nested(out, a, axis + 1, next)?;
    }
    write!(out, "]")
}

fn element(l: Literal) -> String {
    if l.dtype().is_float() && !l.to_f64().is_finite() { format!("\"{l}\"") } else { l.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse::ir::DType;

    #[test]
    fn data_are_nested_and_exact() {
        let inf = f64::INFINITY;
        let a = Array::from_f64s(DType::F32, &[2, 2], &[0.1, -0.0, f64::NAN, -inf]).unwrap();
        let b = Array::scalar(Literal::from_i64(DType::I64, i64::MIN));
        let c = Array::from_f64s(DType::U8, &[1 << 40, 0], &[]).unwrap();
        let mut out = Vec::new();
        let all = [("a\"".to_string(), a), ("b".to_string(), b), ("c".to_string(), c)];
        write_arrays(&mut out, &all, ElementForm::Data).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "[\n  {\"name\": \"a\\\"\", \"dtype\": \"f32\", \"shape\": [2, 2], \"data\": \
             [[0.1, -0.0], [\"nan\", \"-inf\"]]},\n  {\"name\": \"b\", \"dtype\": \"i64\", \
             \"shape\": [], \"data\": -9223372036854775808},\n  {\"name\": \"c\", \"dtype\": \"u8\", \
             \"shape\": [1099511627776, 0], \"data\": []}\n]"
        );
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
    }

    #[test]
    fn numbers_that_json_lacks_are_strings() {
        assert_eq!(number(0.5), "0.5");
        assert_eq!(number(f64::INFINITY), "\"inf\"");
        assert_eq!(number(f64::NAN), "\"nan\"");
    }
}
