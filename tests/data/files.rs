//! Formats of files: values, interchange with another implementation, and errors with their places.

use crate::{Folder, arrays, packed, read, refused};
use adfuse::backends::Array;
use adfuse::data::csv::{self, CsvOptions};
use adfuse::data::safetensors::{self, Metadata};
use adfuse::data::{DataErrorKind, write_arrays};
use adfuse::ir::{DType, Diagnostic, Kind};

#[test]
fn arrays_are_written_and_read_in_each_format() {
    let folder = Folder::new("formats");
    let all = arrays();
    let borrowed = || all.iter().map(|(name, array)| (name.as_str(), array));
    for name in ["a.safetensors", "a.npz"] {
        let path = folder.join(name);
        write_arrays(&path, borrowed()).unwrap_or_else(|e| panic!("{e}"));
        let due = all.iter().map(|(name, array)| match (path.extension(), array.dtype()) {
            // NumPy has no type for these.
            (Some(e), DType::BF16) if e == "npz" => (name.clone(), array.convert(DType::F32)),
            _ => (name.clone(), array.clone()),
        });
        let due: Vec<(String, Array)> = due.collect();
        assert_eq!(read(&path), due, "{name}");
        let bytes = std::fs::read(&path).expect("there");
        // By content, and compressed.
        assert_eq!(read(&folder.file("unnamed", &bytes)), due, "{name} by content");
        assert_eq!(read(&folder.file("unnamed.2", &packed(&bytes))), due, "{name}, compressed");
        assert_eq!(read(&folder.file(&format!("{name}.gz"), &packed(&bytes))), due);
        write_arrays(&path, borrowed()).expect("again");
        assert_eq!(std::fs::read(&path).expect("there"), bytes, "{name}: the same bytes");
    }
    for (name, array) in &all {
        let path = folder.join("one.npy");
        write_arrays(&path, [(name.as_str(), array)]).expect("one array");
        if array.dtype() != DType::BF16 {
            assert_eq!(read(&path), [("one".to_string(), array.clone())]);
        }
    }
    for (name, part) in [
        ("a.npy", "one array, not 10"),
        ("a.csv", "only read"),
        ("a.idx", "only read"),
        ("a.txt", "unknown format"),
        ("a", "unknown format"),
    ] {
        let e = write_arrays(folder.join(name), borrowed()).expect_err(name);
        assert!(e.to_string().contains(part) && e.to_string().contains(name), "{e}");
        assert!(!folder.join(name).exists());
        let d = Diagnostic::from(e);
        assert!(d.kind == Kind::Usage && d.message.contains(part), "{d}");
    }
    let absent = refused(&folder.join("absent.npz"));
    assert!(absent.contains("absent.npz"), "{absent}");
    assert!(refused(&folder.file("text", b"what is this")).contains("unknown format"));
    assert!(refused(&folder.file("empty", b"")).contains("unknown format"));
}

#[test]
fn tensors_go_to_the_reference_implementation_and_back() {
    let folder = Folder::new("interchange");
    let path = folder.join("ours.safetensors");
    let all = arrays();
    let texts = Metadata::from([("format".to_string(), "pt".to_string())]);
    let borrowed = all.iter().map(|(name, array)| (name.as_str(), array));
    safetensors::write(&path, borrowed, &texts).unwrap_or_else(|e| panic!("{e}"));
    let bytes = std::fs::read(&path).expect("there");
    let theirs = ::safetensors::SafeTensors::deserialize(&bytes).expect("they read it");
    assert_eq!(theirs.len(), all.len());
    for (name, array) in &all {
        let tensor = theirs.tensor(name).expect("there");
        assert_eq!(tensor.data(), array.bytes(), "{name}");
        assert!(tensor.shape().iter().map(|&n| n as u64).eq(array.dims().iter().copied()));
        let at = tensor.data().as_ptr().addr() - bytes.as_ptr().addr();
        assert!(array.is_empty() || at.is_multiple_of(array.dtype().bytes() as usize), "{name}");
    }
    let tensors = all.iter().map(|(name, _)| (name, theirs.tensor(name).expect("there")));
    let info = Some(texts.clone().into_iter().collect());
    let written = ::safetensors::serialize(tensors, info).expect("they write it");
    let (mut found, read_texts) =
        safetensors::read(folder.file("theirs.safetensors", &written)).expect("we read it");
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let mut due = all;
    due.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(found, due);
    assert_eq!(read_texts, texts);
    let one = Array::from(1.0f32);
    let twice = safetensors::write(&path, [("a", &one), ("a", &one)], &texts);
    assert!(twice.expect_err("twice").to_string().contains("two entries have the name `a`"));
    let taken = safetensors::write(&path, [("__metadata__", &one)], &texts);
    assert!(taken.is_err());
    assert_eq!(std::fs::read(&path).expect("there"), bytes, "the file is as it was");
}

fn tensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

#[test]
fn headers_of_tensors_are_checked() {
    let folder = Folder::new("headers");
    let two = |first: &str, second: &str| format!("{{{first}, {second}}}");
    let a = r#""a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}"#;
    let b = r#""b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}"#;
    let good = tensors(&two(b, a), &[0; 11]);
    let found = read(&folder.file("good.safetensors", &good));
    assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["b", "a"]);
    let entry = |dtype: &str, shape: &str, at: &str| {
        format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{at}}}}}"#)
    };
    let many = format!("[{}1]", "1,".repeat(16));
    #[rustfmt::skip]
    let cases = [
        (vec![], "ends too early"),
        (vec![0; 7], "ends too early"),
        (u64::MAX.to_le_bytes().to_vec(), "more than 100000000"),
        (100u64.to_le_bytes().to_vec(), "ends too early"),
        (tensors("", &[]), "malformed"),
        (tensors("[]", &[]), "malformed: invalid type"),
        (tensors("{} x", &[]), "malformed: trailing"),
        (tensors("{\"a\": 1}", &[]), "malformed"),
        (tensors(&two(a, a), &[0; 8]), "two entries have the name `a`"),
        (tensors(&two(a, b), &[0; 10]), "ends too early"),
        (tensors(&two(a, b), &[0; 12]), "more in it"),
        (tensors(&entry("F8_E5M2", "[2]", "[0,2]"), &[0; 2]), "type F8_E5M2"),
        (tensors(&entry("I16", "[2]", "[0,4]"), &[0; 4]), "type I16"),
        (tensors(&entry("F32", "[2]", "[0,7]"), &[0; 7]), "`a` of f32[2] is at 0 to 7"),
        (tensors(&entry("F32", "[2]", "[8,0]"), &[0; 8]), "is at 8 to 0"),
        (tensors(&entry("F32", "[2]", "[1,9]"), &[0; 9]), "begin at 1"),
        (tensors(&entry("F32", "[-1]", "[0,4]"), &[0; 4]), "malformed"),
        (tensors(&entry("F32", "[1.5]", "[0,4]"), &[0; 4]), "malformed"),
        (tensors(&entry("F32", &many, "[0,4]"), &[0; 4]), "17 axes"),
        (tensors(&entry("F32", "[4294967296,4294967296,4]", "[0,4]"), &[0; 4]), "larger than"),
        (tensors(&entry("BOOL", "[2]", "[0,2]"), &[1, 2]), "`a`: byte 1 of a tensor of bool is 2"),
    ];
    for (bytes, part) in cases {
        let e = refused(&folder.file("bad.safetensors", &bytes));
        assert!(e.contains(part) && e.contains("bad.safetensors"), "{part}: {e}");
    }
}

#[test]
fn tables_have_headers_or_none_and_errors_have_places() {
    let folder = Folder::new("tables");
    let due = Array::from_f32s(&[2, 3], &[1.0, -2.5, 3e4, f32::INFINITY, 0.1, 6.0]).expect("six");
    let body = "1, -2.5 ,3e4\r\ninf,.1,\"6\"\n";
    for (name, text) in [
        ("t.csv", body.to_string()),
        ("t.csv", format!("a,b,c d\n{body}")),
        ("t.csv", format!("\n\n{body}\n\n")),
        ("t.tsv", body.replace(',', "\t")),
    ] {
        let path = folder.file(name, text.as_bytes());
        assert_eq!(read(&path), [("t".to_string(), due.clone())], "{text}");
        let path = folder.file(&format!("{name}.gz"), &packed(text.as_bytes()));
        assert_eq!(read(&path), [("t".to_string(), due.clone())], "{text}, compressed");
    }
    let table = |text: &str, header| {
        csv::read_from(&mut text.as_bytes(), CsvOptions { header, ..CsvOptions::default() })
    };
    let found = table("a, b\n1,2\n", None).expect("two numbers");
    assert_eq!(found.header, Some(vec!["a".to_string(), "b".to_string()]));
    assert_eq!(found.values.dims(), [1, 2]);
    let years = table("1998,1999\n1,2\n", Some(true)).expect("two numbers");
    assert_eq!((years.header.map(|h| h.len()), years.values.dims()), (Some(2), &[1, 2][..]));
    let plain = table("1998,1999\n1,2\n", None).expect("four numbers");
    assert_eq!((plain.header, plain.values.dims()), (None, &[2, 2][..]));
    assert_eq!(table("", None).expect("none").values.dims(), [0, 0]);
    assert_eq!(table("a,b\n", None).expect("none").values.dims(), [0, 2]);
    #[rustfmt::skip]
    let cases = [
        ("1,2\n3,4\n5,x6\n", None, (3, 2), "`x6` is not a number"),
        ("1,2\n,4\n", None, (2, 1), "`` is not a number"),
        ("a,2\n3,4\n", Some(false), (1, 1), "`a` is not a number"),
        ("a,b\n\n1,2\n3\n", None, (4, 0), "1 fields, the first row has 2"),
        ("1,2\n3,4,5\n", None, (2, 0), "3 fields, the first row has 2"),
        ("a,b\nc,d\n", None, (2, 1), "`c` is not a number"),
        ("1,\"2\n3\"\n4,5", Some(false), (1, 2), "`2\\n3` is not a number"),
    ];
    for (text, header, place, part) in cases {
        match table(text, header) {
            Err(DataErrorKind::Csv { line, column, what }) => {
                assert!(what.contains(part), "{text}: {what}");
                assert_eq!((line, column), place, "{text}: {what}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    let e = refused(&folder.file("bad.csv", b"1,2\n3,4?\n"));
    assert!(e.ends_with("bad.csv: line 2, column 2: `4?` is not a number"), "{e}");
}

#[test]
fn digits_are_read_as_they_are() {
    let path = crate::common::root().join("src/data/digits.csv.gz");
    let digits = read(&path);
    let [(name, table)] = digits.as_slice() else { panic!("one table") };
    assert_eq!((name.as_str(), table.dims()), ("digits", &[1797, 65][..]));
    assert_eq!(table.as_slice::<f32>().expect("f32")[..6], [0.0, 0.0, 5.0, 13.0, 9.0, 1.0]);
    assert!(table.to_f64s().iter().all(|x| (0.0..=16.0).contains(x)));
}

fn idx(code: u8, dims: &[u32], data: &[u8]) -> Vec<u8> {
    let extents = dims.iter().flat_map(|n| n.to_be_bytes());
    [0, 0, code, dims.len() as u8].into_iter().chain(extents).chain(data.iter().copied()).collect()
}

#[test]
fn mnist_files_are_read() {
    let folder = Folder::new("idx");
    let ints = |dtype, dims: &[u64], all: &[i64]| Array::from_i64s(dtype, dims, all).expect("fits");
    let four = |of: fn(f64) -> Vec<u8>| {
        [1.5, -2.0, 0.0, 7.0].into_iter().flat_map(of).collect::<Vec<u8>>()
    };
    let floats = |dtype| Array::from_f64s(dtype, &[2, 2], &[1.5, -2.0, 0.0, 7.0]).expect("four");
    #[rustfmt::skip]
    let cases = [
        (idx(0x08, &[2, 3], &[0, 1, 2, 253, 254, 255]), ints(DType::U8, &[2, 3], &[0, 1, 2, 253, 254, 255])),
        (idx(0x09, &[2], &[255, 1]), ints(DType::I8, &[2], &[-1, 1])),
        (idx(0x0b, &[2], &[255, 254, 1, 0]), ints(DType::I32, &[2], &[-2, 256])),
        (idx(0x0c, &[1], &[255, 255, 255, 253]), ints(DType::I32, &[1], &[-3])),
        (idx(0x0d, &[2, 2], &four(|x| (x as f32).to_be_bytes().to_vec())), floats(DType::F32)),
        (idx(0x0e, &[2, 2], &four(|x| x.to_be_bytes().to_vec())), floats(DType::F64)),
        (idx(0x08, &[0, 28, 28], &[]), ints(DType::U8, &[0, 28, 28], &[])),
        (idx(0x0e, &[], &1.0f64.to_be_bytes()), Array::from(1.0f64)),
    ];
    for (bytes, due) in cases {
        for (name, bytes) in [
            ("train-images-idx3-ubyte", bytes.clone()),
            ("t10k.idx", bytes.clone()),
            ("t10k-idx3.gz", packed(&bytes)),
        ] {
            let found = read(&folder.file(name, &bytes));
            assert_eq!(found[0].1, due, "{name}");
        }
    }
    #[rustfmt::skip]
    let wrong = [
        (vec![0, 0, 8], "ends too early"),
        (vec![0, 1, 8, 1], "two zeros"),
        (idx(0x08, &[3], &[1, 2]), "ends too early"),
        (idx(0x0c, &[3], &[0; 11]), "ends too early"),
        (idx(0x08, &[3], &[0; 4]), "more in it"),
        (idx(0x0c, &[1], &[0; 5]), "more in it"),
        (idx(0x0a, &[3], &[0; 3]), "type 0x0a"),
        (idx(0x08, &[u32::MAX, u32::MAX, u32::MAX], &[]), "larger than"),
        (idx(0x0e, &[u32::MAX, 1000], &[0; 8]), "ends too early"),
        (idx(0x08, &[1; 17], &[0]), "17 axes"),
    ];
    for (bytes, part) in wrong {
        let e = refused(&folder.file("bad.idx", &bytes));
        assert!(e.contains(part), "{part}: {e}");
    }
    let mut cut = packed(&idx(0x08, &[3000], &[7; 3000]));
    cut.truncate(30);
    let e = refused(&folder.file("cut.idx.gz", &cut));
    assert!(e.contains("ends too early") || e.contains("damaged"), "{e}");
}
