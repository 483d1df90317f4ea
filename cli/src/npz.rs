//! NumPy files: `.npy` and `.npz`, read as arguments and written.
//!
//! Element types must be equal: adfuse converts nothing silently. `bf16` has no NumPy type; it is
//! written as `float32`, which holds each of its values, and read from `float32` (rounded to nearest)
//! or from two-byte void (`V2`), as the package ml_dtypes saves it.

use super::failure::{Failure, mean};
use super::inputs::{Param, fits};
use super::whole;
use adfuse::backends::Array;
use adfuse::ir::diag::listed;
use adfuse::ir::{DType, TensorType};
use npyz::npz::{NpzArchive, NpzWriter};
use npyz::{Endianness, NpyHeader, Order, TypeChar, TypeStr, WriterBuilder};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

/// Reads a `.npy` file as the argument for a parameter.
pub(super) fn read_npy(path: &Path, param: &Param) -> Result<Array, Failure> {
    let what = format!("`{}`", path.display());
    let file = File::open(path).map_err(|e| unreadable(&what, e))?;
    read_array(&mut BufReader::new(file), &what, param)
}

/// Reads an array of a `.npz` file as the argument for a parameter.
pub(super) fn read_npz(path: &Path, member: &str, param: &Param) -> Result<Array, Failure> {
    let what = format!("`{}`", path.display());
    let file = File::open(path).map_err(|e| unreadable(&what, e))?;
    let mut archive = NpzArchive::new(BufReader::new(file)).map_err(|e| unreadable(&what, e))?;
    let names: Vec<String> = archive.array_names().map(str::to_string).collect();
    let entry = npyz::npz::file_name_from_array_name(member);
    if !names.iter().any(|n| n == member) {
        let all = match names.as_slice() {
            [] => "it has none".to_string(),
            names => format!("its arrays are {}", listed(names, "")),
        };
        let hint = mean(member, names.iter().map(String::as_str), "").unwrap_or(all);
        return Err(Failure::usage(format!("{what} has no array `{member}`")).hint(Some(hint)));
    }
    let mut file =
        archive.zip_archive().by_name(&entry).map_err(|e| unreadable(&what, e.into()))?;
    read_array(&mut file, &format!("`{}#{member}`", path.display()), param)
}

/// Whether a file of this name holds one array and no archive of them.
pub(super) fn holds_one(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy"))
}

/// Writes an array to a `.npy` file, whole or not at all. Equal arrays give equal files.
pub(super) fn save_npy(path: &Path, array: &Array) -> Result<(), Failure> {
    whole::write(path, |file| {
        let (stored, dtype) = stored(array)?;
        let options = npyz::WriteOptions::<u8>::new().dtype(dtype).shape(stored.dims());
        let mut writer = options.writer(BufWriter::new(file)).write_header_only()?;
        writer.write_all(stored.bytes())?;
        writer.flush()
    })
}

/// Writes arrays to a `.npz` file, in order, whole or not at all. Equal arrays give equal files.
pub(super) fn save(path: &Path, arrays: &[(String, &Array)]) -> Result<(), Failure> {
    whole::write(path, |file| {
        let mut writer = NpzWriter::new(BufWriter::new(file));
        for (name, a) in arrays {
            let (stored, dtype) = stored(a)?;
            let options = npyz::zip::write::FileOptions::default()
                .compression_method(npyz::zip::CompressionMethod::Stored)
                .last_modified_time(npyz::zip::DateTime::default())
                .large_file(stored.bytes().len() >= 1 << 31);
            writer
                .array::<u8>(name, options)?
                .dtype(dtype)
                .shape(a.dims())
                .write_header_only()?
                .write_all(stored.bytes())?;
        }
        writer.zip_writer().finish()?.flush()
    })
}

/// The array as files hold it, and its element type there.
fn stored(a: &Array) -> io::Result<(Cow<'_, Array>, npyz::DType)> {
    let stored = match a.dtype() {
        DType::BF16 => Cow::Owned(a.convert(DType::F32)),
        _ => Cow::Borrowed(a),
    };
    let descr = numpy(stored.dtype()).1;
    let dtype: TypeStr = descr.parse().map_err(|e| invalid(format!("{descr}: {e}")))?;
    Ok((stored, npyz::DType::Plain(dtype)))
}

/// The name NumPy has for an element type, and how files write it; `bf16` goes as `float32`.
fn numpy(dtype: DType) -> (&'static str, &'static str) {
    match dtype {
        DType::F64 => ("float64", "<f8"),
        DType::F32 | DType::BF16 => ("float32", "<f4"),
        DType::F16 => ("float16", "<f2"),
        DType::I64 => ("int64", "<i8"),
        DType::I32 => ("int32", "<i4"),
        DType::U32 => ("uint32", "<u4"),
        DType::I8 => ("int8", "|i1"),
        DType::U8 => ("uint8", "|u1"),
        DType::Bool | DType::Token => ("bool", "|b1"),
    }
}

/// The element type that files write this way.
fn dtype_of(ty: &TypeStr) -> Option<DType> {
    Some(match (ty.type_char(), ty.size_field()) {
        (TypeChar::Float, 8) => DType::F64,
        (TypeChar::Float, 4) => DType::F32,
        (TypeChar::Float, 2) => DType::F16,
        (TypeChar::Int, 8) => DType::I64,
        (TypeChar::Int, 4) => DType::I32,
        (TypeChar::Int, 1) => DType::I8,
        (TypeChar::Uint, 4) => DType::U32,
        (TypeChar::Uint, 1) => DType::U8,
        (TypeChar::Bool, 1) => DType::Bool,
        (TypeChar::RawData, 2) => DType::BF16,
        _ => return None,
    })
}

fn unreadable(what: &str, e: io::Error) -> Failure {
    let why = match e.kind() {
        io::ErrorKind::UnexpectedEof => "it ends too early".to_string(),
        _ => e.to_string(),
    };
    Failure::usage(format!("cannot read {what}: {why}"))
}

fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

/// Reads what is left of `from` as one array; its type is compared before its elements are read.
fn read_array(from: &mut dyn Read, what: &str, param: &Param) -> Result<Array, Failure> {
    let header = read_header(from).map_err(|e| unreadable(what, e))?;
    let (dtype, big) = match header.dtype() {
        npyz::DType::Plain(ty) => (dtype_of(&ty), ty.endianness() == Endianness::Big),
        _ => (None, false),
    };
    let Param { name, ty } = param;
    let rounded = ty.dtype == DType::BF16 && dtype == Some(DType::F32);
    let dtype = match dtype {
        Some(d) if d == ty.dtype || rounded => d,
        _ => {
            let descr = header.dtype().descr();
            let held = dtype.map_or(descr.trim_matches('\'').to_string(), |d| numpy(d).0.into());
            let m = format!("input {name}: %{name} is {ty}, {what} holds {held}");
            let hint = format!("convert it there: a.astype(np.{})", numpy(ty.dtype).0);
            return Err(Failure::usage(m).hint(Some(hint)));
        }
    };
    fits(param, header.shape(), what)?;
    let bits = read_bits(from, &header, dtype, big).map_err(|e| unreadable(what, e))?;
    let array = Array::from_bits(dtype, header.shape(), &bits).map_err(Failure::Usage)?;
    Ok(array.convert(ty.dtype))
}

/// Reads magic, version and header. The crate's reader is given only headers that it can take: it
/// trusts the written length, multiplies extents unchecked and descends into brackets by recursion.
fn read_header(from: &mut dyn Read) -> io::Result<NpyHeader> {
    const LONGEST: usize = 1 << 16;
    let mut bytes = vec![0; 10];
    from.read_exact(&mut bytes)?;
    if !bytes.starts_with(b"\x93NUMPY") {
        return Err(invalid("it is no NumPy file"));
    }
    if bytes[6] > 1 {
        bytes.resize(12, 0);
        from.read_exact(&mut bytes[10..])?;
    }
    let length = bytes[8..].iter().rev().fold(0usize, |n, &b| n << 8 | usize::from(b));
    if length > LONGEST {
        return Err(invalid(format!("its header has {length} bytes")));
    }
    let start = bytes.len();
    bytes.resize(start + length, 0);
    from.read_exact(&mut bytes[start..])?;
    if !is_plain(&bytes[start..]) {
        return Err(invalid("its header is malformed"));
    }
    NpyHeader::from_reader(bytes.as_slice())
}

/// Whether a header has few brackets inside each other, no escapes and no arithmetic, and its
/// numbers, extents among them, have a product that is a size.
fn is_plain(header: &[u8]) -> bool {
    let mut depth = 0u32;
    for b in header {
        match b {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'\\' | b'+' => return false,
            _ => {}
        }
        if depth > 4 {
            return false;
        }
    }
    let words = header.split(|b| !b.is_ascii_alphanumeric() && *b != b'_');
    let mut numbers = words.filter(|w| w.first().is_some_and(u8::is_ascii_digit));
    let product = numbers.try_fold(1u64, |product, word| {
        let n: u64 = std::str::from_utf8(word).ok()?.parse().ok()?;
        product.checked_mul(n.max(1))
    });
    product.is_some_and(|p| p < 1 << 60)
}

/// Reads the elements, to row-major order.
fn read_bits(
    from: &mut dyn Read,
    header: &NpyHeader,
    dtype: DType,
    big: bool,
) -> io::Result<Vec<u64>> {
    let ty = TensorType::of(dtype, header.shape());
    if let Some(why) = ty.excess() {
        return Err(invalid(why));
    }
    let width = dtype.bytes() as usize;
    let due = ty.bytes().unwrap_or(u64::MAX);
    // Grows as there is data: a header may promise more than the file has.
    let mut bytes = Vec::new();
    from.take(due).read_to_end(&mut bytes)?;
    if (bytes.len() as u64) < due {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // Reading on to the end also lets an archive compare its checksum.
    if from.read(&mut [0])? > 0 {
        return Err(invalid("there is more in it than its header says"));
    }
    let element = |k: usize| {
        let mut word = [0; 8];
        let stored = &bytes[k * width..][..width];
        word[..width].copy_from_slice(stored);
        if big {
            word[..width].reverse();
        }
        let bits = u64::from_le_bytes(word);
        if dtype == DType::Bool { u64::from(bits != 0) } else { bits }
    };
    let n = bytes.len() / width;
    if header.order() == Order::C || header.shape().len() < 2 {
        return Ok((0..n).map(element).collect());
    }
    let shape = header.shape();
    let source = |mut k: u64| {
        let mut at = 0;
        for (&extent, &stride) in shape.iter().zip(header.strides()).rev() {
            at += k % extent * stride;
            k /= extent;
        }
        at as usize
    };
    Ok((0..n as u64).map(|k| element(source(k))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn npy(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    fn header(descr: &str, fortran: &str, shape: &str) -> String {
        format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n")
    }

    fn read(bytes: &[u8], ty: TensorType) -> Result<Array, String> {
        let param = Param { name: "x".into(), ty };
        read_array(&mut &bytes[..], "`x.npy`", &param).map_err(|e| e.render(false))
    }

    #[test]
    fn orders_of_bytes_and_axes_are_read() {
        let ty = TensorType::of(DType::I32, &[2, 3]);
        let expected = Array::from_i64s(DType::I32, &[2, 3], &[0, 1, 2, 3, 4, 5]).unwrap();
        let little: Vec<u8> = (0..6i32).flat_map(i32::to_le_bytes).collect();
        let big: Vec<u8> = [0, 3, 1, 4, 2, 5i32].into_iter().flat_map(i32::to_be_bytes).collect();
        let of = |descr, fortran, data: &[u8]| {
            read(&npy(&header(descr, fortran, "(2, 3)"), data), ty.clone())
        };
        assert_eq!(of("<i4", "False", &little), Ok(expected.clone()));
        assert_eq!(of(">i4", "True", &big), Ok(expected));
    }

    #[test]
    fn element_types_are_read() {
        let one = |dtype: DType, descr: &str, data: &[u8]| {
            let a = read(&npy(&header(descr, "False", "()"), data), TensorType::scalar(dtype));
            a.map(|a| a.get(0).to_f64())
        };
        assert_eq!(one(DType::F64, "<f8", &1.5f64.to_le_bytes()), Ok(1.5));
        assert_eq!(one(DType::F64, ">f8", &1.5f64.to_be_bytes()), Ok(1.5));
        assert_eq!(one(DType::F16, "<f2", &[0, 0x3e]), Ok(1.5));
        assert_eq!(one(DType::BF16, "<V2", &[0xc0, 0x3f]), Ok(1.5));
        assert_eq!(one(DType::BF16, "<f4", &1.5001f32.to_le_bytes()), Ok(1.5));
        assert_eq!(one(DType::I64, "<i8", &(-3i64).to_le_bytes()), Ok(-3.0));
        assert_eq!(one(DType::I8, "|i1", &[0xfd]), Ok(-3.0));
        assert_eq!(one(DType::U8, "|u1", &[0xfd]), Ok(253.0));
        assert_eq!(one(DType::U32, "<u4", &[0xff; 4]), Ok(4_294_967_295.0));
        assert_eq!(one(DType::Bool, "|b1", &[2]), Ok(1.0));
    }

    #[test]
    fn wrong_headers_are_refused() {
        let ty = TensorType::of(DType::F32, &[2]);
        let good = header("<f4", "False", "(2,)");
        assert!(read(&npy(&good, &[0; 8]), ty.clone()).is_ok());
        let mut long = b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec();
        long.extend(good.as_bytes());
        let huge = "(4294967296, 4294967296, 4294967296)";
        let deep = "(".repeat(20_000);
        for (bytes, part) in [
            (Vec::new(), "it ends too early"),
            (b"not numpy at all".to_vec(), "no NumPy file"),
            (npy(&good, &[0; 7]), "it ends too early"),
            (npy(&good, &[0; 9]), "more in it"),
            (npy("", &[]), "parse"),
            (npy("{}", &[]), "missing key"),
            (npy(&header("<f4", "False", "(3,)"), &[0; 12]), "%x is f32[2], `x.npy` is f32[3]"),
            (npy(&header("<f4", "False", "()"), &[0; 4]), "`x.npy` is f32[]"),
            (npy(&header("<f4", "False", "(-2,)"), &[0; 8]), "negative"),
            (npy(&header("<f4", "False", "(1+1,)"), &[0; 8]), "malformed"),
            (npy(&header("<f4", "False", "(0x2,)"), &[0; 8]), "malformed"),
            (npy(&header("<f4", "False", huge), &[]), "malformed"),
            (npy(&header("<f4", "False", &deep), &[]), "malformed"),
            (npy(&header("<f8", "False", "(2,)"), &[0; 16]), "holds float64"),
            (npy(&header("<c8", "False", "(2,)"), &[0; 16]), "holds <c8"),
            (npy(&header("|O", "False", "(2,)"), &[0; 16]), "holds |O"),
            (long, "bytes"),
        ] {
            let found = read(&bytes, ty.clone());
            assert!(found.as_ref().is_err_and(|e| e.contains(part)), "{part}: {found:?}");
        }
    }

    /// Whatever a byte becomes, reading ends with an array or an error.
    #[test]
    fn damaged_archives_end_in_errors() {
        let mut good = Cursor::new(Vec::new());
        let mut writer = NpzWriter::new(&mut good);
        let options = npyz::zip::write::FileOptions::default();
        let array = writer.array::<u8>("x", options).unwrap();
        let ty: TypeStr = "<i4".parse().unwrap();
        let head = array.dtype(npyz::DType::Plain(ty)).shape(&[2]).write_header_only().unwrap();
        head.write_all(&[1, 0, 0, 0, 2, 0, 0, 0]).unwrap();
        writer.zip_writer().finish().unwrap();
        drop(writer);
        let good = good.into_inner();
        let param = Param { name: "x".into(), ty: TensorType::of(DType::I32, &[2]) };
        let read = |bytes: &[u8]| -> io::Result<Result<Array, Failure>> {
            let mut archive = NpzArchive::new(Cursor::new(bytes))?;
            let mut file = archive.zip_archive().by_name("x.npy")?;
            Ok(read_array(&mut file, "x", &param))
        };
        assert!(matches!(read(&good), Ok(Ok(_))));
        for k in 0..good.len() {
            // Without its end the directory of an archive is lost.
            assert!(read(&good[..k]).is_err(), "cut at {k}");
            for flip in [1, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[k] ^= flip;
                let _ = read(&bad);
            }
        }
    }
}
