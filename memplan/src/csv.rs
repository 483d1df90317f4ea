//! The CSV form of problems and packings that MiniMalloc made common: a header, then one buffer a line.
//!
//! | column | also called | meaning |
//! |---|---|---|
//! | `id` | `buffer`, `buffer_id` | any text, once |
//! | `lower` | `start`, `begin` | the first time at which the buffer is live |
//! | `upper` | | the first time at which it is dead |
//! | `end` | | in place of `upper`: the last time at which it is live |
//! | `size` | | bytes |
//! | `alignment` | | bytes, a power of two; 1 where the column is missing or empty |
//! | `gaps` | | times at which the buffer is not live, as `3-5 7-9@0:64`: lower and upper, then the bytes that stay occupied if any do; where the header says `end`, the last time in place of the upper |
//! | `offset` | | the only offset allowed; any where the column is missing or empty |
//! | `hint` | | a number that is read and not used |
//!
//! The columns come in any order; `id`, the two times and `size` are required. Fields may be quoted.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::ops::Range;

use cranelift_entity::PrimaryMap;
use csv::{ByteRecord, ReaderBuilder, WriterBuilder};
use thiserror::Error;

use crate::problem::{BufferId, BufferSpec, Gap, Offset, Problem};
use crate::words::plural;

/// A problem with the names of its buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsvTable {
    /// The `id` of each buffer.
    pub ids: PrimaryMap<BufferId, String>,
    /// The line on which each buffer starts, from 1.
    pub lines: PrimaryMap<BufferId, u64>,
    /// The buffers, in the order of the lines.
    pub problem: Problem,
}

impl CsvTable {
    /// A buffer as messages call it: by its id, and its line.
    pub fn name(&self, buffer: BufferId) -> String {
        match (self.ids.get(buffer), self.lines.get(buffer)) {
            (Some(id), Some(line)) => format!("`{id}` (line {line})"),
            _ => buffer.to_string(),
        }
    }

    /// Takes out the offsets that the file fixed: the packing, where the file held one. `None` and
    /// nothing taken unless every buffer has one.
    pub fn take_offsets(&mut self) -> Option<PrimaryMap<BufferId, Offset>> {
        let offsets =
            self.problem.buffers.values().map(|buffer| buffer.fixed).collect::<Option<_>>();
        if offsets.is_some() {
            self.problem.buffers.values_mut().for_each(|buffer| buffer.fixed = None);
        }
        offsets
    }
}

/// Reads a problem, without shares and capacity.
///
/// # Errors
///
/// The first fault, with its line and column.
pub fn read(mut input: impl Read) -> Result<CsvTable, CsvError> {
    let unreadable = |line, error: String| {
        let kind = CsvErrorKind::Unreadable(error);
        CsvError { line, column: 1, kind }
    };
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).map_err(|error| unreadable(1, error.to_string()))?;
    let mut lines = RecordLines { bytes: &bytes, at: 0, line: 1 };
    let mut reader =
        ReaderBuilder::new().has_headers(false).flexible(true).from_reader(bytes.as_slice());
    let mut columns: Option<CsvColumns> = None;
    let mut table = CsvTable::default();
    let mut line_of: BTreeMap<String, u64> = BTreeMap::new();
    for record in reader.byte_records() {
        let record = record.map_err(|error| unreadable(lines.line, error.to_string()))?;
        let line = lines.of(&record);
        let Some(columns) = &columns else {
            columns = Some(CsvColumns::of(&record, line)?);
            continue;
        };
        let (id, buffer) = columns.buffer(&record, line)?;
        if let Some(first) = line_of.insert(id.clone(), line) {
            let column = columns.0.iter().position(|&c| c == CsvColumn::Id).unwrap_or(0) + 1;
            return Err(CsvError { line, column, kind: CsvErrorKind::RepeatedId { id, first } });
        }
        table.ids.push(id);
        table.lines.push(line);
        table.problem.push(buffer);
    }
    match columns {
        Some(_) => Ok(table),
        None => Err(CsvError { line: 1, column: 1, kind: CsvErrorKind::NoHeader }),
    }
}

/// Writes a problem, with an `offset` column if there are offsets: those given, else the fixed ones.
/// The columns `alignment` and `gaps` are there if some buffer needs them. Shares and the capacity have
/// no place in the format.
///
/// # Errors
///
/// Those of `output`.
pub fn write(
    output: impl Write,
    table: &CsvTable,
    offsets: Option<&PrimaryMap<BufferId, Offset>>,
) -> io::Result<()> {
    let buffers = &table.problem.buffers;
    let aligned = buffers.values().any(|buffer| buffer.align != 1);
    let broken = buffers.values().any(|buffer| !buffer.gaps.is_empty());
    let placed = offsets.is_some() || buffers.values().any(|buffer| buffer.fixed.is_some());
    let optional = |fields: [(bool, String); 3]| fields.into_iter().filter(|f| f.0).map(|f| f.1);

    let mut writer = WriterBuilder::new().from_writer(output);
    let header = ["id", "lower", "upper", "size"].map(String::from);
    let more = [(aligned, "alignment"), (broken, "gaps"), (placed, "offset")];
    let more = more.map(|(wanted, name)| (wanted, name.to_string()));
    writer.write_record(header.into_iter().chain(optional(more)))?;
    for (id, buffer) in buffers.iter() {
        let name = table.ids.get(id).cloned().unwrap_or_else(|| id.to_string());
        let numbers = [buffer.live.start, buffer.live.end, buffer.size].map(|n| n.to_string());
        let offset = offsets.and_then(|offsets| offsets.get(id).copied()).or(buffer.fixed);
        let more = [
            (aligned, buffer.align.to_string()),
            (broken, buffer.gaps.iter().map(gap_text).collect::<Vec<_>>().join(" ")),
            (placed, offset.map(|offset| offset.to_string()).unwrap_or_default()),
        ];
        let fields = std::iter::once(name).chain(numbers).chain(optional(more));
        writer.write_record(fields)?;
    }
    writer.flush()
}

/// A fault in a CSV file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {kind}")]
pub struct CsvError {
    /// The line on which the record starts, from 1.
    pub line: u64,
    /// The number of the field, from 1.
    pub column: usize,
    /// What is wrong.
    pub kind: CsvErrorKind,
}

/// What is wrong with a field or record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CsvErrorKind {
    /// The input cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// There is no line.
    #[error("there is no header")]
    NoHeader,
    /// A column that the format does not have.
    #[error("unknown column `{0}`")]
    UnknownColumn(String),
    /// A column, or another name for it, is there twice.
    #[error("column `{0}` is there twice")]
    RepeatedColumn(String),
    /// A required column is missing.
    #[error("there is no column `{0}`")]
    MissingColumn(&'static str),
    /// A record is longer or shorter than the header.
    #[error("{found} field{} where the header has {expected}", plural(*found as u64))]
    FieldCount {
        /// Columns of the header.
        expected: usize,
        /// Fields of the record.
        found: usize,
    },
    /// Not UTF-8.
    #[error("not UTF-8")]
    NotText,
    /// Not an integer from 0 to 2^64 - 1 in decimal digits.
    #[error("`{0}` is not a number of 64 bits without sign")]
    NotANumber(String),
    /// A live range ends before it starts.
    #[error("the buffer dies at {upper}, before its birth at {lower}")]
    ReversedLife {
        /// The start of the live range.
        lower: u64,
        /// Its end.
        upper: u64,
    },
    /// Not a power of two.
    #[error("alignment {0} is not a power of two")]
    Alignment(u64),
    /// Not of the form `lower-upper` or `lower-upper@first:end`.
    #[error("`{0}` is not a gap like 3-5 or 3-5@0:64")]
    NotAGap(String),
    /// An id is there twice.
    #[error("id `{id}` is on line {first} already")]
    RepeatedId {
        /// The id.
        id: String,
        /// The line that has it too.
        first: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CsvColumn {
    Id,
    Lower,
    Upper,
    End,
    Size,
    Alignment,
    Gaps,
    Offset,
    Hint,
}

/// The meaning of each field of a record.
struct CsvColumns(Vec<CsvColumn>);

impl CsvColumns {
    fn of(header: &ByteRecord, line: u64) -> Result<Self, CsvError> {
        let mut columns: Vec<CsvColumn> = Vec::new();
        for (index, field) in header.iter().enumerate() {
            let fault = |kind| CsvError { line, column: index + 1, kind };
            let name = std::str::from_utf8(field).map_err(|_| fault(CsvErrorKind::NotText))?;
            let column = match name {
                "id" | "buffer" | "buffer_id" => CsvColumn::Id,
                "lower" | "start" | "begin" => CsvColumn::Lower,
                "upper" => CsvColumn::Upper,
                "end" => CsvColumn::End,
                "size" => CsvColumn::Size,
                "alignment" => CsvColumn::Alignment,
                "gaps" => CsvColumn::Gaps,
                "offset" => CsvColumn::Offset,
                "hint" => CsvColumn::Hint,
                _ => return Err(fault(CsvErrorKind::UnknownColumn(name.to_string()))),
            };
            let is_end = |c: CsvColumn| matches!(c, CsvColumn::Upper | CsvColumn::End);
            if columns.iter().any(|&c| c == column || (is_end(c) && is_end(column))) {
                return Err(fault(CsvErrorKind::RepeatedColumn(name.to_string())));
            }
            columns.push(column);
        }
        let missing = |name| CsvError {
            line,
            column: columns.len() + 1,
            kind: CsvErrorKind::MissingColumn(name),
        };
        let required =
            [(CsvColumn::Id, "id"), (CsvColumn::Lower, "lower"), (CsvColumn::Size, "size")];
        for (column, name) in required {
            if !columns.contains(&column) {
                return Err(missing(name));
            }
        }
        if !columns.contains(&CsvColumn::Upper) && !columns.contains(&CsvColumn::End) {
            return Err(missing("upper"));
        }
        Ok(Self(columns))
    }

    fn buffer(&self, record: &ByteRecord, line: u64) -> Result<(String, BufferSpec), CsvError> {
        let (expected, found) = (self.0.len(), record.len());
        if expected != found {
            let kind = CsvErrorKind::FieldCount { expected, found };
            return Err(CsvError { line, column: expected.min(found) + 1, kind });
        }
        let mut id = String::new();
        let mut buffer = BufferSpec::new(0..0, 0);
        let mut end_column = 0;
        for (index, (field, &column)) in record.iter().zip(&self.0).enumerate() {
            let fault = |kind| CsvError { line, column: index + 1, kind };
            let text = std::str::from_utf8(field).map_err(|_| fault(CsvErrorKind::NotText))?;
            let parsed = match column {
                CsvColumn::Id => {
                    id = text.to_string();
                    Ok(())
                }
                CsvColumn::Lower => number(text).map(|lower| buffer.live.start = lower),
                CsvColumn::Upper | CsvColumn::End => {
                    end_column = index + 1;
                    self.upper(text).map(|upper| buffer.live.end = upper)
                }
                CsvColumn::Size => number(text).map(|size| buffer.size = size),
                CsvColumn::Alignment if text.is_empty() => Ok(()),
                CsvColumn::Alignment => alignment(text).map(|align| buffer.align = align),
                CsvColumn::Gaps => self.gaps(text).map(|gaps| buffer.gaps = gaps),
                CsvColumn::Offset | CsvColumn::Hint if text.is_empty() => Ok(()),
                CsvColumn::Offset => number(text).map(|offset| buffer.fixed = Some(Offset(offset))),
                CsvColumn::Hint => number(text).map(|_| ()),
            };
            parsed.map_err(fault)?;
        }
        let Range { start: lower, end: upper } = buffer.live;
        if lower > upper {
            let kind = CsvErrorKind::ReversedLife { lower, upper };
            return Err(CsvError { line, column: end_column, kind });
        }
        Ok((id, buffer))
    }

    /// The end of a live range, exclusive.
    fn upper(&self, text: &str) -> Result<u64, CsvErrorKind> {
        let value = number(text)?;
        if self.0.contains(&CsvColumn::End) {
            value.checked_add(1).ok_or_else(|| CsvErrorKind::NotANumber(text.to_string()))
        } else {
            Ok(value)
        }
    }

    fn gaps(&self, text: &str) -> Result<Vec<Gap>, CsvErrorKind> {
        let gap = |text: &str| {
            let (live, window) = match text.split_once('@') {
                Some((live, window)) => (live, Some(window.split_once(':')?)),
                None => (text, None),
            };
            let (lower, upper) = live.split_once('-')?;
            let live = number(lower).ok()?..self.upper(upper).ok()?;
            let window = match window {
                Some((first, end)) => Some(number(first).ok()?..number(end).ok()?),
                None => None,
            };
            Some(Gap { live, window })
        };
        text.split(' ')
            .filter(|text| !text.is_empty())
            .map(|text| gap(text).ok_or_else(|| CsvErrorKind::NotAGap(text.to_string())))
            .collect()
    }
}

fn number(text: &str) -> Result<u64, CsvErrorKind> {
    // `parse` alone would take a leading plus sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or_else(|| CsvErrorKind::NotANumber(text.to_string()))
}

fn alignment(text: &str) -> Result<u64, CsvErrorKind> {
    let align = number(text)?;
    if align.is_power_of_two() { Ok(align) } else { Err(CsvErrorKind::Alignment(align)) }
}

fn gap_text(gap: &Gap) -> String {
    let live = format!("{}-{}", gap.live.start, gap.live.end);
    match &gap.window {
        Some(window) => format!("{live}@{}:{}", window.start, window.end),
        None => live,
    }
}

/// Numbers the lines of records, which come in order.
struct RecordLines<'a> {
    bytes: &'a [u8],
    /// How far the lines are counted.
    at: usize,
    line: u64,
}

impl RecordLines<'_> {
    /// The line on which a record starts. Its position is that of the empty lines before it, if any.
    fn of(&mut self, record: &ByteRecord) -> u64 {
        let start = record.position().map_or(0, csv::Position::byte);
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        while let Some(&byte) = self.bytes.get(self.at) {
            let ends =
                byte == b'\n' || (byte == b'\r' && self.bytes.get(self.at + 1) != Some(&b'\n'));
            if self.at >= start && byte != b'\n' && byte != b'\r' {
                break;
            }
            self.line += u64::from(ends);
            self.at += 1;
        }
        self.line
    }
}
