//! Data in files and in batches: arrays read and written in the usual formats, and data sets.
//!
//! Sizes that a file states are bounds, never allocations: memory grows as data arrives, or is at most the length of the
//! file. Reading ends with arrays or a [`DataError`], whatever the file holds. Files are written whole or not at all.
//!
//! | format | read | written |
//! |---|---|---|
//! | `.safetensors` | all tensors, with metadata by [`safetensors`] | yes |
//! | `.npz`, `.npy` | as [`npz`](crate::npz) | yes |
//! | `.csv`, `.tsv` | numbers as `f32[rows, columns]`, by [`csv`] | no |
//! | `.idx` | the format of the MNIST data, by [`idx`] | no |
//!
//! Each may be compressed (`.gz`) to be read.

pub mod csv;
mod dataset;
mod digits;
mod error;
pub mod idx;
mod prefetch;
pub mod safetensors;

pub use dataset::{Batches, Dataset};
pub use digits::digits;
pub use error::{DataError, DataErrorKind};
pub use prefetch::{Prefetched, prefetch};

use crate::backends::Array;
use crate::npz::{Archive, ArchiveWriter, read_npy, write_npy};
use crate::whole;
use csv::CsvOptions;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::Path;

/// A format of files with arrays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FileFormat {
    Safetensors,
    Npz,
    Npy,
    Csv(u8),
    Idx,
}

/// Reads the arrays of a file with their names. The format is that of the file's suffix, or of its content where the
/// suffix says nothing. An array that has no name in the file has the file's, without suffixes.
///
/// # Errors
/// A [`DataError`] with the file and what is wrong with it.
///
/// ```no_run
/// for (name, array) in adfuse::data::read_arrays("weights.safetensors")? {
///     println!("{name}: {}", array.ty());
/// }
/// # Ok::<(), adfuse::data::DataError>(())
/// ```
pub fn read_arrays(path: impl AsRef<Path>) -> Result<Vec<(String, Array)>, DataError> {
    let path = path.as_ref();
    read_file(path).map_err(|why| why.of(path))
}

/// Reads the array of a file that has one, as [`read_arrays`] does.
///
/// # Errors
/// As there, and [`DataErrorKind::Header`] for a file of several arrays, or of none.
///
/// ```
/// let rows = adfuse::data::read_array("src/data/digits.csv.gz")?;
/// assert_eq!(rows.dims(), [1797, 65]);
/// # Ok::<(), adfuse::data::DataError>(())
/// ```
pub fn read_array(path: impl AsRef<Path>) -> Result<Array, DataError> {
    let path = path.as_ref();
    let mut arrays = read_arrays(path)?;
    match (arrays.len(), arrays.pop()) {
        (1, Some((_, array))) => Ok(array),
        (n, _) => Err(DataErrorKind::Header(format!("it has {n} arrays, not one")).of(path)),
    }
}

fn read_file(path: &Path) -> Result<Vec<(String, Array)>, DataErrorKind> {
    let mut file = BufReader::new(File::open(path).map_err(DataErrorKind::Io)?);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    if beginning(&mut file)?.starts_with(&[0x1f, 0x8b]) {
        // A byte of a compressed file stands for at most 1032 bytes.
        let mut bytes = Vec::new();
        MultiGzDecoder::new(file).read_to_end(&mut bytes).map_err(unpacked)?;
        return read_named(&mut Cursor::new(bytes), name);
    }
    read_named(&mut file, name)
}

/// An error of a compressed stream.
fn unpacked(e: std::io::Error) -> DataErrorKind {
    match e.kind() {
        std::io::ErrorKind::InvalidInput | std::io::ErrorKind::InvalidData => {
            DataErrorKind::Header("its compressed data is damaged".into())
        }
        _ => e.into(),
    }
}

fn read_named(
    from: &mut (impl Read + Seek),
    name: &str,
) -> Result<Vec<(String, Array)>, DataErrorKind> {
    let format = match of_suffix(name) {
        Some(format) => format,
        None => of_content(&beginning(from)?).ok_or(DataErrorKind::UnknownFormat)?,
    };
    let stem = name.split_once('.').map_or(name, |(stem, _)| stem).to_string();
    match format {
        FileFormat::Safetensors => Ok(safetensors::read_from(from)?.0),
        FileFormat::Npz => {
            let mut archive = Archive::new(from)?;
            let names = archive.names();
            let all = names.into_iter().map(|name| {
                let array = archive.array(&name)?;
                Ok((name, array))
            });
            all.collect()
        }
        FileFormat::Npy => Ok(vec![(stem, read_npy(from)?)]),
        FileFormat::Csv(delimiter) => {
            let table = csv::read_from(from, CsvOptions { delimiter, ..CsvOptions::default() })?;
            Ok(vec![(stem, table.values)])
        }
        FileFormat::Idx => Ok(vec![(stem, idx::read_from(from)?)]),
    }
}

/// Writes arrays with their names to a file, in the format of its suffix: `.safetensors`, `.npz`, or `.npy` for one array,
/// whose name is not kept. The file is written whole or not at all.
///
/// # Errors
/// [`DataErrorKind::UnknownFormat`]; [`DataErrorKind::Unwritable`] for what the format does not have; [`DataErrorKind::Io`].
pub fn write_arrays<'a>(
    path: impl AsRef<Path>,
    arrays: impl IntoIterator<Item = (&'a str, &'a Array)>,
) -> Result<(), DataError> {
    let path = path.as_ref();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let arrays: Vec<(&str, &Array)> = arrays.into_iter().collect();
    let written = match (of_suffix(&name), arrays.as_slice()) {
        (Some(FileFormat::Safetensors), _) => {
            return safetensors::write(path, arrays, &safetensors::Metadata::new());
        }
        (Some(FileFormat::Npz), _) => whole::replace(path, |file| {
            let mut writer = ArchiveWriter::new(file);
            arrays.iter().try_for_each(|(name, array)| writer.array(name, array))?;
            writer.finish().map(|_| ())
        }),
        (Some(FileFormat::Npy), [(_, one)]) => whole::replace(path, |file| write_npy(file, one)),
        (Some(FileFormat::Npy), all) => {
            let why = format!("a file in this format has one array, not {}", all.len());
            return Err(DataErrorKind::Unwritable(why).of(path));
        }
        (Some(FileFormat::Csv(_) | FileFormat::Idx), _) => {
            let why = "this format is only read: write .safetensors, .npz or .npy".into();
            return Err(DataErrorKind::Unwritable(why).of(path));
        }
        (None, _) => return Err(DataErrorKind::UnknownFormat.of(path)),
    };
    written.map_err(|e| DataErrorKind::Io(e).of(path))
}

/// The first bytes; the next to be read is the first.
fn beginning(from: &mut (impl Read + Seek)) -> Result<Vec<u8>, DataErrorKind> {
    let mut bytes = Vec::new();
    from.take(16).read_to_end(&mut bytes)?;
    from.seek(SeekFrom::Start(0))?;
    Ok(bytes)
}

fn of_suffix(name: &str) -> Option<FileFormat> {
    let (_, suffix) = name.rsplit_once('.')?;
    match suffix.to_ascii_lowercase().as_str() {
        "safetensors" => Some(FileFormat::Safetensors),
        "npz" => Some(FileFormat::Npz),
        "npy" => Some(FileFormat::Npy),
        "csv" => Some(FileFormat::Csv(b',')),
        "tsv" => Some(FileFormat::Csv(b'\t')),
        "idx" => Some(FileFormat::Idx),
        _ => None,
    }
}

fn of_content(beginning: &[u8]) -> Option<FileFormat> {
    match beginning {
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Some(FileFormat::Npy),
        [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => Some(FileFormat::Npz),
        [0, 0, 0x08 | 0x09 | 0x0b..=0x0e, _, ..] => Some(FileFormat::Idx),
        [_, _, _, _, 0, 0, 0, 0, b'{', ..] => Some(FileFormat::Safetensors),
        _ => None,
    }
}
