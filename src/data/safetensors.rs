//! The safetensors format: a length, a header in JSON with the type, the extents and the place of each tensor, and the
//! little-endian elements of all of them.
//!
//! What a header says is checked against the length of the file before anything is allocated for it.

use super::error::{DataError, DataErrorKind};
use crate::backends::Array;
use crate::ir::{DType, TensorType};
use crate::whole;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Bytes of a header at most, as in other readers of the format.
const LONGEST: u64 = 100_000_000;

/// Texts beside the tensors, by name.
pub type Metadata = BTreeMap<String, String>;

/// The key of the texts in a header.
const METADATA: &str = "__metadata__";

/// Reads the tensors of a file with their names, in the order of its header, and its texts.
///
/// # Errors
/// [`DataErrorKind::Header`], [`DataErrorKind::ElementType`], [`DataErrorKind::TooLarge`], [`DataErrorKind::Short`],
/// [`DataErrorKind::Surplus`] and [`DataErrorKind::Io`], with the file.
pub fn read(path: impl AsRef<Path>) -> Result<(Vec<(String, Array)>, Metadata), DataError> {
    let path = path.as_ref();
    let file = File::open(path).map_err(DataErrorKind::Io);
    file.and_then(|file| read_from(&mut BufReader::new(file))).map_err(|why| why.of(path))
}

/// As [`read`], of a file that is open.
///
/// # Errors
/// As there, without the file.
pub fn read_from(
    from: &mut (impl Read + Seek),
) -> Result<(Vec<(String, Array)>, Metadata), DataErrorKind> {
    let length = from.seek(SeekFrom::End(0))?;
    from.seek(SeekFrom::Start(0))?;
    let mut word = [0; 8];
    from.read_exact(&mut word)?;
    let bytes = u64::from_le_bytes(word);
    if bytes > LONGEST {
        return Err(malformed(format!("{bytes} bytes are more than {LONGEST}")));
    }
    let data = length.checked_sub(8).and_then(|n| n.checked_sub(bytes));
    let data = data.ok_or(DataErrorKind::Short)?;
    let mut text = Vec::new();
    from.take(bytes).read_to_end(&mut text)?;
    let header: TensorHeader =
        serde_json::from_slice(&text).map_err(|e| malformed(e.to_string()))?;
    let placed = placed(&header, data)?;
    let mut arrays: Vec<Option<Array>> = vec![None; placed.len()];
    // Where they follow each other, the file is read from its beginning to its end.
    let mut order: Vec<usize> = (0..placed.len()).collect();
    order.sort_by_key(|&k| header.tensors[k].1.data_offsets);
    for k in order {
        let (dtype, (name, entry)) = (placed[k], &header.tensors[k]);
        let made = Array::read_le(dtype, &entry.shape, from).map_err(|e| match e.kind() {
            std::io::ErrorKind::InvalidData => malformed(format!("`{name}`: {e}")),
            _ => e.into(),
        });
        arrays[k] = Some(made?);
    }
    let named = header.tensors.into_iter().zip(arrays);
    let named = named.filter_map(|((name, _), array)| Some((name, array?)));
    Ok((named.collect(), header.metadata))
}

/// Writes tensors with their names, and texts beside them, to a file, which is written whole or not at all. Equal
/// arrays with equal names in the same order give equal bytes.
///
/// # Errors
/// [`DataErrorKind::Unwritable`] for a name that is given twice, or is that of the texts; [`DataErrorKind::Io`].
pub fn write<'a>(
    path: impl AsRef<Path>,
    arrays: impl IntoIterator<Item = (&'a str, &'a Array)>,
    metadata: &Metadata,
) -> Result<(), DataError> {
    let path = path.as_ref();
    let arrays: Vec<(&str, &Array)> = arrays.into_iter().collect();
    let (header, order) = header(&arrays, metadata).map_err(|why| why.of(path))?;
    let written = whole::replace(path, |file| {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(header.as_bytes())?;
        order.iter().try_for_each(|&k| file.write_all(arrays[k].1.bytes()))
    });
    written.map_err(|e| DataErrorKind::Io(e).of(path))
}

/// The header, and the order in which elements are written: those with the most bytes first, so that each begins at a
/// multiple of its size.
fn header(
    arrays: &[(&str, &Array)],
    metadata: &Metadata,
) -> Result<(String, Vec<usize>), DataErrorKind> {
    let mut order: Vec<usize> = (0..arrays.len()).collect();
    order.sort_by_key(|&k| std::cmp::Reverse(arrays[k].1.dtype().bytes()));
    let (mut at, mut places) = (0u64, vec![(0, 0); arrays.len()]);
    for &k in &order {
        let end = at + arrays[k].1.bytes().len() as u64;
        places[k] = (at, end);
        at = end;
    }
    let mut map = Map::new();
    if !metadata.is_empty() {
        map.insert(METADATA.into(), json!(metadata));
    }
    for (&(name, array), &(begin, end)) in arrays.iter().zip(&places) {
        let entry = json!({
            "dtype": name_of(array.dtype()),
            "shape": array.dims(),
            "data_offsets": [begin, end],
        });
        if name == METADATA || map.insert(name.into(), entry).is_some() {
            return Err(DataErrorKind::Unwritable(format!("two entries have the name `{name}`")));
        }
    }
    let mut text = Value::Object(map).to_string();
    let blanks = text.len().next_multiple_of(8) - text.len();
    text.extend(std::iter::repeat_n(' ', blanks));
    match text.len() as u64 > LONGEST {
        false => Ok((text, order)),
        true => Err(DataErrorKind::Unwritable(format!("a header of {} bytes", text.len()))),
    }
}

/// The types of the tensors of a header, whose elements are this many bytes in all, without gaps.
fn placed(header: &TensorHeader, data: u64) -> Result<Vec<DType>, DataErrorKind> {
    let mut types = Vec::new();
    for (name, TensorEntry { dtype, shape, data_offsets: (begin, end) }) in &header.tensors {
        let found = dtype_of(dtype).ok_or_else(|| DataErrorKind::ElementType(dtype.clone()))?;
        let ty = TensorType::of(found, shape);
        if let Some(why) = ty.excess() {
            return Err(DataErrorKind::TooLarge(why));
        }
        if ty.bytes() != end.checked_sub(*begin) {
            return Err(malformed(format!("`{name}` of {ty} is at {begin} to {end}")));
        }
        types.push(found);
    }
    let mut places: Vec<(u64, u64)> = header.tensors.iter().map(|t| t.1.data_offsets).collect();
    places.sort_unstable();
    let mut at = 0;
    for (begin, end) in places {
        if begin != at {
            return Err(malformed(format!("elements begin at {begin}, those before end at {at}")));
        }
        at = end;
    }
    match at.cmp(&data) {
        std::cmp::Ordering::Equal => Ok(types),
        std::cmp::Ordering::Greater => Err(DataErrorKind::Short),
        std::cmp::Ordering::Less => Err(DataErrorKind::Surplus),
    }
}

fn malformed(what: String) -> DataErrorKind {
    DataErrorKind::Header(what)
}

/// What a header says of a tensor.
#[derive(Deserialize)]
struct TensorEntry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// What a header says, in its order.
struct TensorHeader {
    tensors: Vec<(String, TensorEntry)>,
    metadata: Metadata,
}

impl<'de> Deserialize<'de> for TensorHeader {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<TensorHeader, D::Error> {
        from.deserialize_map(HeaderVisitor)
    }
}

/// Reads a header; names that recur are refused.
struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = TensorHeader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tensors by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TensorHeader, A::Error> {
        let mut header = TensorHeader { tensors: Vec::new(), metadata: Metadata::new() };
        let mut names = BTreeSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!("two entries have the name `{name}`")));
            }
            match name == METADATA {
                true => header.metadata = map.next_value()?,
                false => header.tensors.push((name, map.next_value()?)),
            }
        }
        Ok(header)
    }
}

/// The names of element types in the format.
const NAMES: [(DType, &str); 10] = [
    (DType::F64, "F64"),
    (DType::F32, "F32"),
    (DType::BF16, "BF16"),
    (DType::F16, "F16"),
    (DType::I64, "I64"),
    (DType::I32, "I32"),
    (DType::U32, "U32"),
    (DType::I8, "I8"),
    (DType::U8, "U8"),
    (DType::Bool, "BOOL"),
];

fn dtype_of(name: &str) -> Option<DType> {
    NAMES.iter().find(|(_, known)| *known == name).map(|(dtype, _)| *dtype)
}

/// Tokens have no elements, and so no name; no array has them.
fn name_of(dtype: DType) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == dtype).map_or("", |(_, name)| name)
}
