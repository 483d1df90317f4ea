//! Texts of numbers in rows: fields with commas or other delimiters between them, with or without a header.

use super::error::DataErrorKind;
use crate::backends::Array;
use ::csv::{ByteRecord, ErrorKind, ReaderBuilder};
use std::io::Read;

/// How a text is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CsvOptions {
    /// Whether the first row has the names of the columns. By default it does if one of its fields is no number.
    pub header: Option<bool>,
    /// What is between two fields.
    pub delimiter: u8,
}

impl Default for CsvOptions {
    fn default() -> CsvOptions {
        CsvOptions { header: None, delimiter: b',' }
    }
}

/// A text of numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NumberTable {
    /// The names of the columns, where the text has them.
    pub header: Option<Vec<String>>,
    /// The numbers: `f32[rows, columns]`.
    pub values: Array,
}

/// Reads a text of numbers. Every row has the same number of fields; blanks around fields do not count.
///
/// # Errors
/// [`DataErrorKind::Csv`] with line and column; [`DataErrorKind::Io`].
pub fn read_from(from: &mut impl Read, options: CsvOptions) -> Result<NumberTable, DataErrorKind> {
    let mut builder = ReaderBuilder::new();
    let mut reader =
        builder.has_headers(false).flexible(true).delimiter(options.delimiter).from_reader(from);
    let (mut header, mut values) = (None, Vec::<f32>::new());
    let (mut columns, mut rows) = (None, 0u64);
    let mut record = ByteRecord::new();
    while reader.read_byte_record(&mut record).map_err(refused)? {
        let line = record.position().map_or(0, |p| p.line());
        let wrong = |column: usize, what: String| {
            let column = column as u64;
            Err(DataErrorKind::Csv { line, column, what })
        };
        let due = *columns.get_or_insert(record.len());
        if record.len() != due {
            let what = format!("{} fields, the first row has {due}", record.len());
            return wrong(0, what);
        }
        if rows == 0 && header.is_none() {
            let names = || record.iter().map(|f| String::from_utf8_lossy(f.trim_ascii()).into());
            if options.header.unwrap_or_else(|| {
                record.iter().any(|f| !f.trim_ascii().is_empty() && number(f).is_none())
            }) {
                header = Some(names().collect());
                continue;
            }
        }
        for (k, field) in record.iter().enumerate() {
            match number(field) {
                Some(x) => values.push(x),
                None => {
                    let shown: String = String::from_utf8_lossy(field).chars().take(40).collect();
                    return wrong(k + 1, format!("`{}` is not a number", shown.escape_debug()));
                }
            }
        }
        rows += 1;
    }
    let dims = [rows, columns.unwrap_or_default() as u64];
    let values = Array::from_vec(values, dims);
    Ok(NumberTable { header, values: values.map_err(|d| DataErrorKind::TooLarge(d.message))? })
}

fn number(field: &[u8]) -> Option<f32> {
    std::str::from_utf8(field.trim_ascii()).ok()?.parse().ok()
}

fn refused(e: ::csv::Error) -> DataErrorKind {
    let line = e.position().map_or(0, |p| p.line());
    let what = e.to_string();
    match e.into_kind() {
        ErrorKind::Io(e) => e.into(),
        _ => DataErrorKind::Csv { line, column: 0, what },
    }
}
