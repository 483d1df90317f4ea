//! Handwritten digits, for examples and first tries.

use super::csv::{CsvOptions, read_from};
use super::dataset::Dataset;
use crate::backends::Array;
use crate::ir::{At, Diagnostic, Kind};
use flate2::read::GzDecoder;

/// Rows of 64 pixels from 0 to 16, row-major, and a label, unchanged but for compression.
const PACKED: &[u8] = include_bytes!("digits.csv.gz");

/// 1797 images of handwritten digits, `f32[n, 1, 8, 8]` from 0 to 1, and what they show, `i32[n]` from 0 to 9. Those from number 1500 on were written by other people
/// than those before.
///
/// It is the test part of *Optical Recognition of Handwritten Digits* by E. Alpaydin and C. Kaynak (1998), UCI Machine Learning Repository,
/// <https://doi.org/10.24432/C50P49>, licensed under [CC BY 4.0](https://creativecommons.org/licenses/by/4.0/).
///
/// ```
/// let (train, test) = adfuse::data::digits()?.split_at(1500)?;
/// let (images, labels) = test.all();
/// assert_eq!((images.dims(), labels.dims()), (&[297, 1, 8, 8][..], &[297][..]));
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
///
/// # Errors
/// [`Kind::Limit`] when memory is not enough.
pub fn digits() -> Result<Dataset<(Array, Array)>, Diagnostic> {
    let wrong = |m: String| Diagnostic::new(At::default(), Kind::Limit, m);
    let table = read_from(&mut GzDecoder::new(PACKED), CsvOptions::default());
    let table = table.map_err(|e| wrong(e.to_string()))?.values;
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for row in table.as_slice::<f32>()?.chunks_exact(65) {
        pixels.extend(row[..64].iter().map(|p| p / 16.0));
        labels.push(row[64] as i32);
    }
    let n = labels.len() as u64;
    Dataset::new((Array::from_vec(pixels, [n, 1, 8, 8])?, Array::from_vec(labels, [n])?))
}
