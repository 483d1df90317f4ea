//! Tensors of a model, with their elements as the IR keeps them.

use super::context::bounded;
use super::proto::TensorProto;
use crate::emit::element::ElementType;
use adfuse_ir::{DType, Literal, TensorType};
use std::borrow::Cow;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

/// The element type of this number, or the name of one that cannot be imported.
pub(crate) fn element_type(data_type: i64) -> Result<ElementType, String> {
    let int = |bits, signed| Ok(ElementType::Int { bits, signed });
    match data_type {
        1 => Ok(ElementType::Float(DType::F32)),
        2 => int(8, false),
        3 => int(8, true),
        4 => int(16, false),
        5 => int(16, true),
        6 => int(32, true),
        7 => int(64, true),
        9 => Ok(ElementType::Bool),
        10 => Ok(ElementType::Float(DType::F16)),
        11 => Ok(ElementType::Float(DType::F64)),
        12 => int(32, false),
        13 => int(64, false),
        16 => Ok(ElementType::Float(DType::BF16)),
        21 => int(4, false),
        22 => int(4, true),
        25 => int(2, false),
        26 => int(2, true),
        n => Err(format!("elements of type {}", name(n))),
    }
}

/// What the format calls an element type.
fn name(data_type: i64) -> String {
    let known = match data_type {
        0 => "UNDEFINED",
        8 => "STRING",
        14 => "COMPLEX64",
        15 => "COMPLEX128",
        17 => "FLOAT8E4M3FN",
        18 => "FLOAT8E4M3FNUZ",
        19 => "FLOAT8E5M2",
        20 => "FLOAT8E5M2FNUZ",
        23 => "FLOAT4E2M1",
        24 => "FLOAT8E8M0",
        n => return format!("number {n}"),
    };
    known.to_string()
}

/// A tensor: little-endian elements of the storage type of its element type.
#[derive(Clone, Debug)]
pub(crate) struct HostTensor<'a> {
    pub(crate) element: ElementType,
    pub(crate) dims: Vec<u64>,
    pub(crate) bytes: Cow<'a, [u8]>,
}

impl HostTensor<'_> {
    /// The type in the IR.
    pub(crate) fn ty(&self) -> TensorType {
        TensorType::of(self.element.storage(), &self.dims)
    }

    /// The elements in order.
    pub(crate) fn literals(&self) -> impl ExactSizeIterator<Item = Literal> + '_ {
        let dtype = self.element.storage();
        self.bytes.chunks_exact(dtype.bytes().max(1) as usize).map(move |chunk| {
            let mut bits = [0; 8];
            bits[..chunk.len()].copy_from_slice(chunk);
            Literal::from_bits(dtype, u64::from_le_bytes(bits))
        })
    }
}

/// Where the elements of tensors in files of their own are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExternalData {
    /// The folder of the model; none where the model is no file.
    pub(crate) folder: Option<PathBuf>,
}

impl ExternalData {
    /// The bytes of a tensor, this many: of a file inside the model's folder.
    fn read(&self, entries: &[(&str, &str)], wanted: u64) -> Result<Vec<u8>, String> {
        let entry = |key: &str| entries.iter().find(|e| e.0 == key).map(|e| e.1);
        let number = |key: &str| match entry(key) {
            None => Ok(None),
            Some(text) => text.parse::<u64>().map(Some).map_err(|_| format!("the {key} `{text}`")),
        };
        let location = entry("location").ok_or("elements in a file that is not named")?;
        let folder = self.folder.as_ref().ok_or("elements in a file, and the model is no file")?;
        let inside = |c: Component<'_>| matches!(c, Component::Normal(_) | Component::CurDir);
        if !Path::new(location).components().all(inside) {
            return Err(format!("elements in `{location}`, outside of the model's folder"));
        }
        let failed = |e: std::io::Error| format!("elements in `{location}`: {e}");
        let (folder, path) = (
            folder.canonicalize().map_err(failed)?,
            folder.join(location).canonicalize().map_err(failed)?,
        );
        if !path.starts_with(&folder) {
            return Err(format!("elements in `{location}`, outside of the model's folder"));
        }
        let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
        if length.is_some_and(|n| n != wanted) {
            return Err(format!("elements in `{location}` of other than {wanted} bytes"));
        }
        let mut file = File::open(&path).map_err(failed)?;
        let there = file.metadata().map_err(failed)?.len();
        if offset.checked_add(wanted).is_none_or(|end| end > there) {
            return Err(format!("elements in `{location}`, which has {there} bytes"));
        }
        file.seek(SeekFrom::Start(offset)).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(wanted).read_to_end(&mut bytes).map_err(failed)?;
        match bytes.len() as u64 == wanted {
            true => Ok(bytes),
            false => Err(format!("elements in `{location}`, which has fewer bytes")),
        }
    }
}

/// The elements of a tensor.
pub(crate) fn tensor<'a>(
    t: &TensorProto<'a>,
    external: &ExternalData,
) -> Result<HostTensor<'a>, String> {
    let element = element_type(t.data_type)?;
    let dims: Option<Vec<u64>> = t.dims.iter().map(|&d| u64::try_from(d).ok()).collect();
    let dims = dims.ok_or("an extent below 0")?;
    let ty = TensorType::of(element.storage(), &dims);
    if bounded(&ty).is_err() {
        return Err(format!("a tensor of {ty}"));
    }
    let count = ty.elements().ok_or("too many elements")?;
    let made = |bytes| HostTensor { element, dims: dims.clone(), bytes };
    if t.is_external {
        let bytes = external.read(&t.external, packed_bytes(element, count))?;
        return Ok(made(Cow::Owned(stored(element, Cow::Owned(bytes), count)?.into_owned())));
    }
    if let Some(raw) = t.raw {
        return Ok(made(stored(element, Cow::Borrowed(raw), count)?));
    }
    if matches!(element, ElementType::Float(DType::F32 | DType::F64)) {
        return Ok(made(stored(element, Cow::Owned(t.fixed.clone()), count)?));
    }
    let words = if element.bits() < 8 { packed_bytes(element, count) } else { count };
    if t.ints.len() as u64 != words {
        return Err(format!("{} elements where the shape has {count}", t.ints.len()));
    }
    // Integers of any type, and bits of 16-bit floats, are in the low bits of each entry.
    let width = (element.bits() as usize).div_ceil(8);
    let low: Vec<u8> =
        t.ints.iter().flat_map(|v| v.to_le_bytes().into_iter().take(width)).collect();
    Ok(made(Cow::Owned(stored(element, Cow::Owned(low), count)?.into_owned())))
}

/// Bytes that so many elements take in a file.
fn packed_bytes(element: ElementType, count: u64) -> u64 {
    match element {
        ElementType::Bool => count,
        e => count.saturating_mul(u64::from(e.bits())).div_ceil(8),
    }
}

/// Elements as a file has them, in their storage type.
fn stored<'a>(
    element: ElementType,
    bytes: Cow<'a, [u8]>,
    count: u64,
) -> Result<Cow<'a, [u8]>, String> {
    if bytes.len() as u64 != packed_bytes(element, count) {
        return Err(format!("{} bytes where the shape has {count} elements", bytes.len()));
    }
    let width = element.storage().bytes() as usize;
    match element {
        ElementType::Bool => Ok(bytes.iter().map(|&b| u8::from(b != 0)).collect::<Vec<_>>().into()),
        e if !e.is_promoted() => Ok(bytes),
        e => {
            let bits = e.bits() as usize;
            let raw = |k: usize| match bits {
                16 => u64::from(u16::from_le_bytes([bytes[2 * k], bytes[2 * k + 1]])),
                _ => u64::from(bytes[k * bits / 8] >> (k * bits % 8)),
            };
            let wide = (0..count as usize)
                .flat_map(|k| e.of_bits(raw(k)).bits().to_le_bytes().into_iter().take(width));
            Ok(wide.collect::<Vec<_>>().into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(data_type: i64, dims: &[i64], raw: &[u8]) -> Result<Vec<i64>, String> {
        let t =
            TensorProto { data_type, dims: dims.to_vec(), raw: Some(raw), ..Default::default() };
        tensor(&t, &ExternalData::default()).map(|t| t.literals().map(Literal::to_i64).collect())
    }

    #[test]
    fn elements_are_widened_and_counted() {
        assert_eq!(of(5, &[2], &[0xff, 0xff, 1, 0]), Ok(vec![-1, 1]));
        assert_eq!(of(4, &[1], &[0xff, 0xff]), Ok(vec![65535]));
        assert_eq!(of(22, &[3], &[0xf1, 0x07]), Ok(vec![1, -1, 7]));
        assert_eq!(of(25, &[4], &[0b11_10_01_00]), Ok(vec![0, 1, 2, 3]));
        assert_eq!(of(9, &[2], &[7, 0]), Ok(vec![1, 0]));
        assert!(of(7, &[2], &[0; 8]).is_err());
        assert!(of(7, &[i64::MAX, 4], &[0; 8]).is_err());
        assert!(of(7, &[-1], &[]).is_err());
        assert!(of(8, &[1], &[0]).is_err());
    }

    #[test]
    fn elements_in_files_stay_in_the_folder() {
        let folder = std::env::temp_dir().join(format!("adfuse-external-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("model")).expect("a folder");
        std::fs::write(folder.join("secret"), [1; 8]).expect("a file");
        std::fs::write(folder.join("model/w"), [0, 0, 0, 0, 2, 0, 0, 0]).expect("a file");
        let external = ExternalData { folder: Some(folder.join("model")) };
        let read =
            |location, offset| external.read(&[("location", location), ("offset", offset)], 4);
        assert_eq!(read("w", "4"), Ok(vec![2, 0, 0, 0]));
        for (location, offset) in [("../secret", "0"), ("/etc/passwd", "0"), ("w", "5"), ("w", "x")]
        {
            assert!(read(location, offset).is_err(), "{location} at {offset}");
        }
        #[cfg(unix)]
        {
            let link = folder.join("model/link");
            std::os::unix::fs::symlink(folder.join("secret"), link).expect("a link");
            assert!(read("link", "0").is_err());
        }
        std::fs::remove_dir_all(folder).expect("the folder goes");
    }
}
