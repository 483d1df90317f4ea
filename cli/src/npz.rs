//! NumPy files: `.npy` and `.npz`, read as arguments and written.
//!
//! Element types must be equal: adfuse converts nothing silently, but for `bf16`, which NumPy has not: it is
//! written as `float32` and read from `float32` (rounded to nearest) or from two-byte void.

use super::failure::{Failure, mean};
use super::opened::opened;
use super::params::{NamedParam, fits};
use super::whole;
use adfuse::backends::Array;
use adfuse::ir::DType;
use adfuse::ir::diag::listed;
use adfuse::npz::{Archive, ArchiveWriter, Header, NpzError, numpy_name, write_npy};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

/// Reads a `.npy` file as the argument for a parameter.
pub(super) fn read_npy(path: &Path, param: &NamedParam) -> Result<Array, Failure> {
    let what = format!("`{}`", path.display());
    let file = opened(path)?;
    read_array(&mut BufReader::new(file), &what, param)
}

/// Reads an array of a `.npz` file as the argument for a parameter.
pub(super) fn read_npz(path: &Path, member: &str, param: &NamedParam) -> Result<Array, Failure> {
    let what = format!("`{}`", path.display());
    let file = opened(path)?;
    let mut archive = Archive::new(BufReader::new(file)).map_err(|e| unreadable(&what, e))?;
    let names = archive.names();
    if !names.iter().any(|n| n == member) {
        let all = match names.as_slice() {
            [] => "it has none".to_string(),
            names => format!("its arrays are {}", listed(names, "")),
        };
        let hint = mean(member, names.iter().map(String::as_str), "").unwrap_or(all);
        return Err(Failure::usage(format!("{what} has no array `{member}`")).hint(Some(hint)));
    }
    let what = format!("`{}#{member}`", path.display());
    let bytes = archive.bytes(member).map_err(|e| unreadable(&what, e))?;
    read_array(&mut bytes.as_slice(), &what, param)
}

/// The names of the arrays in a `.npz` file.
pub(super) fn names(path: &Path) -> Result<Vec<String>, Failure> {
    let what = format!("`{}`", path.display());
    let file = opened(path)?;
    let archive = Archive::new(BufReader::new(file)).map_err(|e| unreadable(&what, e))?;
    Ok(archive.names())
}

/// Whether a file of this name holds one array and no archive of them.
pub(super) fn holds_one(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy"))
}

/// Writes an array to a `.npy` file, whole or not at all. Equal arrays give equal files.
pub(super) fn save_npy(path: &Path, array: &Array) -> Result<(), Failure> {
    whole::write(path, |file| {
        let mut file = BufWriter::new(file);
        write_npy(&mut file, array)?;
        file.flush()
    })
}

/// Writes arrays to a `.npz` file, in order, whole or not at all. Equal arrays give equal files.
pub(super) fn save(path: &Path, arrays: &[(String, Array)]) -> Result<(), Failure> {
    whole::write(path, |file| {
        let mut writer = ArchiveWriter::new(BufWriter::new(file));
        for (name, array) in arrays {
            writer.array(name, array)?;
        }
        writer.finish().map(drop)
    })
}

/// What is wrong; `what` names the file and the array.
fn unreadable(what: &str, e: NpzError) -> Failure {
    Failure::usage(format!("cannot read {what}: {}", e.why))
}

/// Reads what is left of `from` as one array; its type is compared before its elements are read.
fn read_array(from: &mut impl Read, what: &str, param: &NamedParam) -> Result<Array, Failure> {
    let header = Header::read(from).map_err(|e| unreadable(what, e))?;
    let NamedParam { name, ty } = param;
    let rounded = ty.dtype == DType::BF16 && header.dtype == Some(DType::F32);
    if header.dtype != Some(ty.dtype) && !rounded {
        let held = header.dtype.map_or(header.descr.as_str(), |d| numpy_name(d));
        let m = format!("input {name}: %{name} is {ty}, {what} holds {held}");
        let hint = format!("convert it there: a.astype(np.{})", numpy_name(ty.dtype));
        return Err(Failure::usage(m).hint(Some(hint)));
    }
    fits(param, &header.shape, what)?;
    let array = header.array(from).map_err(|e| unreadable(what, e))?;
    Ok(array.convert(ty.dtype))
}
