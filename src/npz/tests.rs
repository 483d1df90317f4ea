//! Files of other writers, wrong ones and damaged ones.

use super::writer::{WrittenEntry, end};
use super::{Archive, ArchiveWriter, Header, NpzError, NpzErrorKind, read_npy, write_npy};
use crate::backends::Array;
use crate::ir::{DType, TensorType};
use crate::sample::rng;
use rand::Rng;
use std::io::Cursor;

/// Archives that Python's `zipfile` made: stored with fields of 64 bits, as NumPy does; deflated; deflated
/// onto a stream, with a comment that has the signature of a directory in it; and compressed by bzip2.
/// Each has the arrays `a` (`<f4`), `b.c` (`>i4`, Fortran order, version 2) and `é` (`<i8`, version 3).
const STORED: &[u8] = include_bytes!("written/stored.npz");
const DEFLATED: &[u8] = include_bytes!("written/deflated.npz");
const STREAMED: &[u8] = include_bytes!("written/streamed.npz");
const BZIP2: &[u8] = include_bytes!("written/bzip2.npz");

fn archive(bytes: &[u8]) -> Result<Archive<Cursor<&[u8]>>, NpzError> {
    Archive::new(Cursor::new(bytes))
}

fn npy(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x93, b'N', b'U', b'M', b'P', b'Y', version, 0];
    let length = (header.len() as u32).to_le_bytes();
    bytes.extend(&length[..if version == 1 { 2 } else { 4 }]);
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

fn header(descr: &str, fortran: &str, shape: &str) -> String {
    format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n")
}

fn read(bytes: &[u8]) -> Result<Array, String> {
    read_npy(&mut &bytes[..]).map_err(|e| e.to_string())
}

#[test]
fn archives_of_other_writers_are_read() {
    for bytes in [STORED, DEFLATED, STREAMED] {
        let mut archive = archive(bytes).unwrap();
        assert_eq!(archive.names(), ["a", "b.c", "é"]);
        let count: Vec<i64> = (0..6).collect();
        let a = archive.array("a").unwrap();
        assert_eq!(a, Array::from_i64s(DType::F32, &[2, 3], &count).unwrap());
        let b = archive.array("b.c").unwrap();
        assert_eq!(b, Array::from_i64s(DType::I32, &[2, 3], &count).unwrap());
        let c = archive.array("é").unwrap();
        assert_eq!(c, Array::from_i64s(DType::I64, &[64], &[7; 64]).unwrap());
        let none = archive.array("d").unwrap_err();
        assert!(matches!(none.why, NpzErrorKind::NoEntry), "{none}");
    }
    let refused = archive(BZIP2).unwrap().array("a").unwrap_err();
    assert_eq!(refused.entry.as_deref(), Some("a.npy"));
    assert!(matches!(refused.why, NpzErrorKind::Method(12)), "{refused}");
}

#[test]
fn orders_of_bytes_and_axes_are_read() {
    let expected = Array::from_i64s(DType::I32, &[2, 3], &[0, 1, 2, 3, 4, 5]).unwrap();
    let little: Vec<u8> = (0..6i32).flat_map(i32::to_le_bytes).collect();
    let big: Vec<u8> = [0, 3, 1, 4, 2, 5i32].into_iter().flat_map(i32::to_be_bytes).collect();
    for version in 1..=3 {
        let of = |descr, fortran, data: &[u8]| {
            read(&npy(version, &header(descr, fortran, "(2, 3)"), data))
        };
        assert_eq!(of("<i4", "False", &little), Ok(expected.clone()));
        assert_eq!(of(">i4", "True", &big), Ok(expected.clone()));
    }
}

#[test]
fn element_types_are_read() {
    let one = |descr: &str, data: &[u8]| {
        let a = read(&npy(1, &header(descr, "False", "()"), data)).unwrap();
        (a.dtype(), a.get(0).to_f64())
    };
    assert_eq!(one("<f8", &1.5f64.to_le_bytes()), (DType::F64, 1.5));
    assert_eq!(one(">f8", &1.5f64.to_be_bytes()), (DType::F64, 1.5));
    assert_eq!(one("=f4", &1.5f32.to_ne_bytes()), (DType::F32, 1.5));
    assert_eq!(one("<f2", &[0, 0x3e]), (DType::F16, 1.5));
    assert_eq!(one("<V2", &[0xc0, 0x3f]), (DType::BF16, 1.5));
    assert_eq!(one("<i8", &(-3i64).to_le_bytes()), (DType::I64, -3.0));
    assert_eq!(one("|i1", &[0xfd]), (DType::I8, -3.0));
    assert_eq!(one("|u1", &[0xfd]), (DType::U8, 253.0));
    assert_eq!(one("<u4", &[0xff; 4]), (DType::U32, 4_294_967_295.0));
    assert_eq!(one("|b1", &[2]), (DType::Bool, 1.0));
}

#[test]
fn headers_are_read_as_python_writes_them() {
    for text in [
        "{\"shape\":(2,3L),\"fortran_order\":False,\"descr\":\"<f4\"}",
        "{ 'descr' : '<f4' , 'fortran_order' : False , 'shape' : ( 2 , 3 ) } \n",
    ] {
        let found = Header::read(&mut &npy(1, text, &[])[..]).unwrap();
        assert_eq!((found.shape, found.dtype), (vec![2, 3], Some(DType::F32)));
    }
    let record =
        "{'descr': [('x', '<f4'), ('y)', '<i4', (2,))], 'fortran_order': False, 'shape': (1,)}";
    let found = Header::read(&mut &npy(1, record, &[])[..]).unwrap();
    assert_eq!(found.descr, "[('x', '<f4'), ('y)', '<i4', (2,))]");
    assert_eq!(found.dtype, None);
}

#[test]
fn wrong_files_are_refused() {
    let good = header("<f4", "False", "(2,)");
    assert!(read(&npy(1, &good, &[0; 8])).is_ok());
    let mut long = b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec();
    long.extend(good.as_bytes());
    let huge = "(4294967296, 4294967296, 4294967296)";
    let deep = "(".repeat(20_000);
    let nested = format!("{{'descr': {}, }}", "[".repeat(20_000));
    let many = format!("({})", "1, ".repeat(17));
    for (bytes, part) in [
        (Vec::new(), "it ends too early"),
        (b"not numpy at all".to_vec(), "no NumPy file"),
        (npy(1, &good, &[0; 7]), "it ends too early"),
        (npy(1, &good, &[0; 9]), "more in it"),
        (npy(4, &good, &[0; 8]), "version 4"),
        (npy(1, "", &[]), "malformed: expected `{`"),
        (npy(1, "{}", &[]), "missing key `descr`"),
        (npy(1, "{'descr': '<f4', 'shape': (), }", &[]), "missing key `fortran_order`"),
        (npy(1, "{'descr': '<f4', 'fortran_order': False}", &[]), "missing key `shape`"),
        (npy(1, "{'descr': 'a\\'b'}", &[]), "without escapes"),
        (npy(1, &format!("{good}x"), &[0; 8]), "the end"),
        (npy(1, &header("<f4", "false", "()"), &[0; 4]), "`True` or `False`"),
        (npy(1, &header("<f4", "False", "(-2,)"), &[0; 8]), "negative"),
        (npy(1, &header("<f4", "False", "(1+1,)"), &[0; 8]), "malformed"),
        (npy(1, &header("<f4", "False", "(0x2,)"), &[0; 8]), "malformed"),
        (npy(1, &header("<f4", "False", "(2)"), &[0; 8]), "malformed"),
        (npy(1, &header("<f4", "False", huge), &[]), "is a size"),
        (npy(1, &header("<f4", "False", &"9".repeat(40)), &[]), "malformed"),
        (npy(1, &header("<f4", "False", &many), &[0; 4]), "17 axes"),
        (npy(1, &header("<f4", "False", &deep), &[]), "malformed"),
        (npy(1, &nested, &[]), "brackets inside each other"),
        (npy(1, &header("<c8", "False", "(2,)"), &[0; 16]), "type <c8"),
        (npy(1, &header("|O", "False", "(2,)"), &[0; 16]), "type |O"),
        (npy(1, &header("f4", "False", "(2,)"), &[0; 8]), "type f4"),
        (long, "4294967295 bytes"),
    ] {
        let found = read(&bytes);
        assert!(found.as_ref().is_err_and(|e| e.contains(part)), "{part}: {found:?}");
    }
}

#[test]
fn arrays_are_written_and_read() {
    let mut writer = ArchiveWriter::new(Vec::new());
    let types = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::I64,
        DType::I32,
        DType::U32,
        DType::I8,
        DType::U8,
        DType::Bool,
    ];
    let array = |dtype, dims: &[u64]| {
        let count = dims.iter().product::<u64>() as i64;
        let values: Vec<i64> = (0..count).map(|k| k % 2).collect();
        Array::from_i64s(dtype, dims, &values).unwrap()
    };
    for dtype in types {
        for dims in [&[][..], &[3], &[0, 4], &[2, 3, 4]] {
            let given = array(dtype, dims);
            let mut npy = Vec::new();
            write_npy(&mut npy, &given).unwrap();
            // Elements are aligned, as NumPy does it.
            assert_eq!((npy.len() - given.bytes().len()) % 64, 0);
            assert_eq!(read(&npy), Ok(given.clone()), "{dtype}{dims:?}");
            writer.array(&format!("{dtype}{dims:?}"), &given).unwrap();
        }
    }
    writer.array("half", &array(DType::BF16, &[3])).unwrap();
    let bytes = writer.finish().unwrap();
    let mut archive = archive(&bytes).unwrap();
    assert_eq!(archive.names().len(), types.len() * 4 + 1);
    for dtype in types {
        for dims in [&[][..], &[3], &[0, 4], &[2, 3, 4]] {
            let found = archive.array(&format!("{dtype}{dims:?}")).unwrap();
            assert_eq!(found, array(dtype, dims));
        }
    }
    assert_eq!(archive.array("half").unwrap(), array(DType::F32, &[3]));
    let mut writer = ArchiveWriter::new(Vec::new());
    assert!(writer.array(&"n".repeat(70_000), &array(DType::F32, &[])).is_err());
}

/// A directory of entries that are larger than 4 GiB and lie behind 4 GiB, as it is written and read: the
/// data of the first entry is not there.
#[test]
fn numbers_of_64_bits_are_written_and_read() {
    let mut data = Vec::new();
    write_npy(&mut data, &Array::from_f32s(&[1], &[1.5]).unwrap()).unwrap();
    let mut crc = flate2::Crc::new();
    crc.update(&data);
    let size = data.len() as u64;
    let small = WrittenEntry { name: "x.npy".into(), crc: crc.sum(), size, at: 0 };
    // Every number that is stated lies outside of the record with 32 bits, though it would fit.
    let [mut bytes, central] = [small.local(), small.central()];
    bytes.extend(&data);
    let at = bytes.len() as u64;
    let mut wide = central;
    for field in [20, 24, 42] {
        wide[field..field + 4].fill(0xff);
    }
    wide[30..32].copy_from_slice(&28u16.to_le_bytes());
    wide.extend([1, 0, 24, 0]);
    [size, size, 0].iter().for_each(|n: &u64| wide.extend(n.to_le_bytes()));
    bytes.extend(&wide);
    let mut last = end(1, wide.len() as u64, at);
    last[8..20].fill(0xff);
    // The records of 64 bits of a directory with too many entries for 16, with the numbers of this one.
    let mut records = end(1 << 16, wide.len() as u64, at);
    records.truncate(56 + 20);
    for field in [24, 32] {
        records[field..field + 8].copy_from_slice(&1u64.to_le_bytes());
    }
    bytes.extend(&records);
    bytes.extend(&last);
    let mut found = archive(&bytes).unwrap();
    assert_eq!(found.array("x").unwrap().to_f64s(), [1.5]);

    let large = WrittenEntry { name: "y.npy".into(), crc: 1, size: 5 << 30, at: 6 << 30 };
    let central = large.central();
    assert_eq!(central[20..28], [0xff; 8]);
    assert_eq!(central[42..46], [0xff; 4]);
    assert_eq!(central[46 + 5..46 + 9], [1, 0, 24, 0]);
    let extra = central[46 + 9..].as_chunks().0;
    let numbers: Vec<u64> = extra.iter().map(|n| u64::from_le_bytes(*n)).collect();
    assert_eq!(numbers, [5 << 30, 5 << 30, 6 << 30]);
    assert_eq!(large.local().len(), 30 + 5 + 20);
    assert_eq!(end(1, 100, 6 << 30).len(), 56 + 20 + 22);
    assert_eq!(end(1, 100, 100).len(), 22);
}

#[test]
fn archives_that_are_damaged_are_refused_by_name() {
    // A byte of the data of `a`, and one of the checksum in the directory.
    let data = STORED.windows(4).position(|w| w == 2f32.to_le_bytes()).unwrap();
    let mut bad = STORED.to_vec();
    bad[data] ^= 1;
    let found = archive(&bad).unwrap().array("a").unwrap_err();
    assert!(matches!(found.why, NpzErrorKind::Checksum), "{found}");
    assert_eq!(
        found.to_string(),
        "entry `a.npy`: its data does not have the checksum of the directory"
    );
    // Encrypted, as its flag in the directory says.
    let central = STORED.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
    let mut bad = STORED.to_vec();
    bad[central + 8] |= 1;
    let found = archive(&bad).unwrap().array("a").unwrap_err();
    assert!(matches!(found.why, NpzErrorKind::Encrypted), "{found}");
    // A size that no stream of so few bytes stands for is refused before anything is read.
    let central = DEFLATED.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
    let mut bad = DEFLATED.to_vec();
    bad[central + 24..central + 28].copy_from_slice(&0x7fff_ffffu32.to_le_bytes());
    let found = archive(&bad).unwrap().array("a").unwrap_err();
    assert!(matches!(found.why, NpzErrorKind::Deflate), "{found}");
    assert!(matches!(archive(b"no archive").unwrap_err().why, NpzErrorKind::Directory(_)));
    assert!(matches!(archive(&[0; 100]).unwrap_err().why, NpzErrorKind::Directory(_)));
}

/// Whatever becomes of the bytes, reading ends with arrays or errors.
#[test]
fn damaged_files_end_in_arrays_or_errors() {
    let everything = |bytes: &[u8]| -> usize {
        let _ = read(bytes);
        let Ok(mut archive) = archive(bytes) else { return 0 };
        let names = archive.names();
        names.iter().filter(|n| archive.array(n).is_ok()).count()
    };
    let cases =
        std::env::var("ADFUSE_FUZZ_CASES").ok().and_then(|s| s.parse().ok()).unwrap_or(4000);
    let mut plain = npy(1, &header("<i4", "True", "(2, 2)"), &[7; 16]);
    let nested = "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,)}";
    plain.extend(npy(2, nested, &[0; 4]));
    for (stream, good) in [STORED, DEFLATED, STREAMED, &plain].into_iter().enumerate() {
        let mut rng = rng(13, stream as u64);
        for cut in 0..good.len() {
            assert!(everything(&good[..cut]) == 0, "cut at {cut}");
        }
        for _ in 0..cases {
            let mut bad = good.to_vec();
            for _ in 0..rng.random_range(1..6) {
                let at = rng.random_range(0..bad.len());
                match rng.random_range(0..5) {
                    0 => bad[at] ^= 1 << rng.random_range(0..8),
                    1 => bad[at] = rng.random(),
                    2 => _ = bad.remove(at),
                    3 => bad.insert(at, rng.random()),
                    _ => {
                        let end = (at + 4).min(bad.len());
                        bad[at..end].fill([0, 0xff][rng.random_range(0..2)]);
                    }
                }
            }
            everything(&bad);
        }
        assert!(stream == 3 || everything(good) == 3);
    }
    let ty = TensorType::of(DType::I32, &[2, 2]);
    assert_eq!(read(&npy(1, &header("<i4", "True", "(2, 2)"), &[7; 16])).unwrap().ty(), ty);
}
