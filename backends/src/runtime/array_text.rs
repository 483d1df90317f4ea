//! Tensors as text, under their name and type.

use super::array::Array;
use adfuse_ir::Literal;
use std::io::{self, Write};

/// Writes a tensor under its name and type, as NumPy would: big ones without their middle, floats
/// with eight digits.
///
/// # Errors
/// Those of the stream.
pub fn write_array(out: &mut dyn Write, name: &str, a: &Array) -> io::Result<()> {
    write!(out, "{name}: {}", a.ty())?;
    if a.dims().is_empty() {
        return writeln!(out, " = {}", a.iter().map(readable).collect::<String>());
    }
    writeln!(out)?;
    if a.is_empty() {
        return writeln!(out, "[]");
    }
    let elide = a.len() > WHOLE;
    let mut picture = Picture { a, elide, width: 0 };
    picture.visit(0, 0, &mut |p, k| p.width = p.width.max(readable(p.a.get(k)).len()));
    picture.rows(out, 0, 0)?;
    writeln!(out)
}

/// Up to this many elements a tensor is shown whole.
const WHOLE: usize = 1000;
/// How many elements are shown at either end of an axis that is not.
const EDGE: usize = 3;
/// Rows are broken to stay within this many columns.
const COLUMNS: usize = 100;

/// A number with at most eight digits.
fn readable(l: Literal) -> String {
    let exact = l.to_string();
    let x = l.to_f64();
    let digits = exact.split('e').next().unwrap_or_default().bytes().filter(u8::is_ascii_digit);
    if !l.dtype().is_float() || !x.is_finite() || digits.count() <= 8 {
        return exact;
    }
    let rounded = format!("{x:.7e}").parse().unwrap_or(x);
    format!("{rounded:?}")
}

struct Picture<'a> {
    a: &'a Array,
    elide: bool,
    width: usize,
}

impl Picture<'_> {
    /// The coordinates shown along an axis, with `None` for what is left out.
    fn shown(&self, axis: usize) -> Vec<Option<usize>> {
        let n = self.a.dims()[axis] as usize;
        if self.elide && n > 2 * EDGE {
            let ends = |r: std::ops::Range<usize>| r.map(Some);
            return ends(0..EDGE).chain([None]).chain(ends(n - EDGE..n)).collect();
        }
        (0..n).map(Some).collect()
    }

    /// Elements between neighbours along an axis.
    fn stride(&self, axis: usize) -> usize {
        self.a.dims()[axis + 1..].iter().product::<u64>() as usize
    }

    fn visit(&mut self, axis: usize, at: usize, each: &mut dyn FnMut(&mut Self, usize)) {
        let stride = self.stride(axis);
        for k in self.shown(axis).into_iter().flatten() {
            if axis + 1 == self.a.dims().len() {
                each(self, at + k);
            } else {
                self.visit(axis + 1, at + k * stride, each);
            }
        }
    }

    fn rows(&self, out: &mut dyn Write, axis: usize, at: usize) -> io::Result<()> {
        let rank = self.a.dims().len();
        write!(out, "[")?;
        let indent = axis + 1;
        let last = axis + 1 == rank;
        let mut column = indent;
        for (k, shown) in self.shown(axis).into_iter().enumerate() {
            if last {
                let text = shown.map_or("..".into(), |i| readable(self.a.get(at + i)));
                let width = if shown.is_some() { self.width } else { 2 };
                let breaks = k > 0 && column + 2 + width > COLUMNS;
                if breaks {
                    write!(out, ",\n{:indent$}", "")?;
                    column = indent;
                } else if k > 0 {
                    write!(out, ", ")?;
                    column += 2;
                }
                write!(out, "{text:>width$}")?;
                column += width;
                continue;
            }
            if k > 0 {
                // An empty line between matrices, two between tensors of rank 3, as NumPy does.
                write!(out, ",{}{:indent$}", "\n".repeat(rank - axis - 1), "")?;
            }
            match shown {
                Some(i) => self.rows(out, axis + 1, at + i * self.stride(axis))?,
                None => write!(out, "..")?,
            }
        }
        write!(out, "]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::DType;

    fn shown(dtype: DType, dims: &[u64], values: &[f64]) -> String {
        let mut out = Vec::new();
        let a = Array::from_f64s(dtype, dims, values).unwrap();
        write_array(&mut out, "x", &a).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn scalars_and_matrices() {
        assert_eq!(shown(DType::F32, &[], &[1.5]), "x: f32[] = 1.5\n");
        assert_eq!(
            shown(DType::F64, &[2, 2], &[1.0, -2.0, 1.0 / 3.0, f64::NAN]),
            "x: f64[2,2]\n[[       1.0,       -2.0],\n [0.33333333,        nan]]\n"
        );
        assert_eq!(
            shown(DType::Bool, &[2, 1, 2], &[1.0, 0.0, 0.0, 1.0]),
            "x: bool[2,1,2]\n[[[ true, false]],\n\n [[false,  true]]]\n"
        );
        assert_eq!(shown(DType::I32, &[2, 0], &[]), "x: i32[2,0]\n[]\n");
    }

    #[test]
    fn floats_keep_eight_digits() {
        let of = |x: f64| readable(Literal::from_f64(DType::F64, x));
        assert_eq!(of(2.0 / 3.0), "0.66666667");
        assert_eq!(of(123_456_789.0), "123456790.0");
        assert_eq!(of(1.0 / 3.0 * 1e-30), "3.3333333e-31");
        assert_eq!(of(f64::MAX), "1.7976931e308");
        assert_eq!(of(0.1), "0.1");
        assert_eq!(readable(Literal::from_f64(DType::F32, 0.1)), "0.1");
    }

    #[test]
    fn big_tensors_lose_their_middle_and_long_rows_break() {
        let values: Vec<f64> = (0..2000).map(f64::from).collect();
        assert_eq!(
            shown(DType::I64, &[1000, 2], &values),
            "x: i64[1000,2]\n[[   0,    1],\n [   2,    3],\n [   4,    5],\n ..,\n [1994, 1995],\n \
             [1996, 1997],\n [1998, 1999]]\n"
        );
        assert_eq!(
            shown(DType::I64, &[2000], &values),
            "x: i64[2000]\n[   0,    1,    2, .., 1997, 1998, 1999]\n"
        );
        let text = shown(DType::I64, &[40], &values[..40]);
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().all(|l| l.len() <= COLUMNS + 1), "{text}");
    }
}
