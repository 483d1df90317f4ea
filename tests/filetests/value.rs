//! Tensors in directives: `[[1, 2], [3, 4]]`, `splat(0.5)`, `ramp(0, 1)`.

use adfuse::backends::Array;
use adfuse::ir::{DType, Dim, Literal, Number, TensorType};
use approx::abs_diff_eq;

/// The tensor that `text` means as a value of type `ty`; where that has symbols, the text's own
/// extents count.
pub(crate) fn parse(text: &str, ty: &TensorType) -> Result<Array, String> {
    let generated = ["splat", "ramp"].iter().find_map(|name| {
        let inside = text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')?;
        Some((*name, inside.split(',').map(str::trim).collect::<Vec<_>>()))
    });
    if let Some((name, numbers)) = generated {
        return generate(name, &numbers, ty);
    }
    let mut reader = Reader { rest: text.trim(), elements: Vec::new(), dims: Vec::new() };
    reader.value(0)?;
    if !reader.rest.trim().is_empty() {
        return Err(format!("`{}` after the value", reader.rest));
    }
    let declared = ty.dims().map(|d| d.to_vec());
    let dims = match declared {
        // An empty list does not tell the extents inside of it.
        Some(dims) if reader.elements.is_empty() && dims.contains(&0) => dims,
        Some(dims) if dims == reader.dims => dims,
        None if fits(ty, &reader.dims) => reader.dims,
        _ => return Err(format!("a value of extents {:?} for {ty}", reader.dims)),
    };
    let mut bits = Vec::new();
    for word in &reader.elements {
        bits.push(element(word, ty.dtype)?.bits());
    }
    Array::from_bits(ty.dtype, &dims, &bits).map_err(|d| d.to_string())
}

fn fits(ty: &TensorType, dims: &[u64]) -> bool {
    let fit = |(&d, &n): (&Dim, &u64)| d.known().is_none_or(|k| k == n);
    ty.rank() == dims.len() && ty.shape.iter().zip(dims).all(fit)
}

fn generate(name: &str, numbers: &[&str], ty: &TensorType) -> Result<Array, String> {
    let dims = ty.dims().ok_or(format!("`{name}` needs known extents, not {ty}"))?;
    let number = |k: usize| -> Result<Literal, String> {
        element(numbers.get(k).ok_or(format!("`{name}` takes more numbers"))?, ty.dtype)
    };
    let made = match name {
        "splat" => Array::splat(&dims, number(0)?),
        _ => {
            let (from, step) = (number(0)?.to_f64(), number(1)?.to_f64());
            let count = ty.elements().unwrap_or(0);
            let values: Vec<f64> = (0..count).map(|i| from + i as f64 * step).collect();
            Array::from_f64s(ty.dtype, &dims, &values)
        }
    };
    made.map_err(|d| d.to_string())
}

/// A number as a literal of the type: integers must fit, floats round to nearest.
fn element(word: &str, dtype: DType) -> Result<Literal, String> {
    let number = match word {
        "true" => Number::Bool(true),
        "false" => Number::Bool(false),
        w => match (w.parse::<i64>(), w.parse::<f64>()) {
            // `-0` means the float where a float is due.
            (Ok(i), Ok(f)) => {
                if i == 0 && dtype.is_float() {
                    Number::Float(f)
                } else {
                    Number::Int(i)
                }
            }
            (_, Ok(f)) => Number::Float(f),
            _ => return Err(format!("`{word}` is no number")),
        },
    };
    number.typed(dtype).ok_or(format!("`{word}` is no {dtype}"))
}

struct Reader<'s> {
    rest: &'s str,
    elements: Vec<&'s str>,
    dims: Vec<u64>,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<(), String> {
        self.rest = self.rest.trim_start();
        let Some(inner) = self.rest.strip_prefix('[') else {
            let end = self.rest.find([',', ']', ' ']).unwrap_or(self.rest.len());
            let (word, rest) = self.rest.split_at(end);
            if word.is_empty() {
                return Err("a number is missing".into());
            }
            self.elements.push(word);
            self.rest = rest;
            return Ok(());
        };
        self.rest = inner.trim_start();
        let mut count = 0;
        if let Some(rest) = self.rest.strip_prefix(']') {
            self.rest = rest;
        } else {
            loop {
                self.value(depth + 1)?;
                count += 1;
                self.rest = self.rest.trim_start();
                if let Some(rest) = self.rest.strip_prefix(']') {
                    self.rest = rest;
                    break;
                }
                self.rest = self.rest.strip_prefix(',').ok_or("`,` or `]` is missing")?;
            }
        }
        // Inner lists end first: the extent of this level goes before theirs.
        while self.dims.len() <= depth {
            self.dims.push(u64::MAX);
        }
        match self.dims[depth] {
            u64::MAX => self.dims[depth] = count,
            n if n == count => {}
            n => return Err(format!("lists of {n} and of {count} elements beside each other")),
        }
        Ok(())
    }
}

/// The tensor as `parse` reads it.
pub(crate) fn print(a: &Array) -> String {
    let words: Vec<String> = a.iter().map(|l| l.to_string()).collect();
    nested(&words, a.dims())
}

fn nested(words: &[String], dims: &[u64]) -> String {
    let Some((&n, inner)) = dims.split_first() else {
        return words.first().cloned().unwrap_or_default();
    };
    let size = inner.iter().product::<u64>() as usize;
    let items: Vec<String> =
        (0..n as usize).map(|i| nested(&words[i * size..(i + 1) * size], inner)).collect();
    format!("[{}]", items.join(", "))
}

/// Why `found` is not what `expected` says, if so: `tol` 0 asks for equal bits, else each element may
/// be off by `tol` times the larger of 1 and its magnitude.
pub(crate) fn difference(expected: &str, found: &Array, tol: f64) -> Option<String> {
    let expected = match parse(expected, &found.ty()) {
        Ok(array) => array,
        Err(why) => return Some(why),
    };
    let differs = |(e, f): (Literal, Literal)| match tol {
        0.0 => e != f,
        _ => {
            let (e, f) = (e.to_f64(), f.to_f64());
            let near = abs_diff_eq!(e, f, epsilon = tol * e.abs().max(1.0));
            !(near || e == f || e.is_nan() && f.is_nan())
        }
    };
    let pairs = || expected.iter().zip(found.iter());
    let wrong: Vec<usize> =
        pairs().enumerate().filter(|(_, p)| differs(*p)).map(|(i, _)| i).collect();
    let (&first, n) = (wrong.first()?, wrong.len());
    let (e, f) = pairs().nth(first)?;
    Some(format!("{n} of {} elements differ; element {first}: {e} and {f}", found.len()))
}
