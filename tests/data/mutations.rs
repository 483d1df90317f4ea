//! Damaged files: whatever becomes of their bytes, reading ends with arrays or a typed error, and takes memory in
//! proportion to the file.

use crate::{Folder, arrays, packed};
use adfuse::data::{read_arrays, write_arrays};
use allocation_counter::measure;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};
use std::sync::Mutex;

/// What becomes of a byte and those after it.
#[derive(Clone, Debug)]
enum Damage {
    Flip(Index, u8),
    Set(Index, u8),
    Remove(Index, usize),
    Insert(Index, Vec<u8>),
    Fill(Index, bool),
    Cut(Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<Index>;
    prop_oneof![
        (at(), 0..8u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        (at(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (at(), 1..9usize).prop_map(|(at, n)| Damage::Remove(at, n)),
        (at(), proptest::collection::vec(any::<u8>(), 1..9))
            .prop_map(|(at, all)| Damage::Insert(at, all)),
        (at(), any::<bool>()).prop_map(|(at, ones)| Damage::Fill(at, ones)),
        at().prop_map(Damage::Cut),
    ]
}

fn damaged(good: &[u8], all: &[Damage]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for damage in all {
        if bytes.is_empty() {
            break;
        }
        let place = |at: &Index| at.index(bytes.len());
        match damage {
            Damage::Flip(at, bit) => {
                let at = place(at);
                bytes[at] ^= 1 << bit;
            }
            Damage::Set(at, byte) => {
                let at = place(at);
                bytes[at] = *byte;
            }
            Damage::Remove(at, n) => {
                let at = place(at);
                bytes.drain(at..bytes.len().min(at + n));
            }
            Damage::Insert(at, all) => {
                let at = place(at);
                bytes.splice(at..at, all.iter().copied());
            }
            Damage::Fill(at, ones) => {
                let at = place(at);
                let end = bytes.len().min(at + 4);
                bytes[at..end].fill(if *ones { 0xff } else { 0 });
            }
            Damage::Cut(at) => bytes.truncate(place(at)),
        }
    }
    bytes
}

#[test]
fn damaged_files_end_in_arrays_or_errors() {
    let folder = Folder::new("mutations");
    let all = arrays();
    let written = |name: &str, n: usize| {
        let path = folder.join(name);
        write_arrays(&path, all.iter().take(n).map(|(name, a)| (name.as_str(), a)))
            .expect("written");
        std::fs::read(&path).expect("there")
    };
    let idx = [&[0, 0, 13, 2, 0, 0, 0, 3, 0, 0, 0, 2][..], &[0; 24]].concat();
    let table = b"a,b,c\n1,2,3\n4,5,6\n7.5,8e3,-9\n".to_vec();
    let tensors = written("good.safetensors", 10);
    let goods = [
        ("bad.safetensors", tensors.clone()),
        ("bad.npz", written("good.npz", 4)),
        ("bad.npy", written("good.npy", 1)),
        ("bad.csv", table.clone()),
        ("bad.idx", idx.clone()),
        ("bad.csv.gz", packed(&table)),
        ("bad.gz", packed(&idx)),
        ("bad", tensors),
    ];
    let cases = crate::common::count_from_env("ADFUSE_FUZZ_CASES", 300);
    for (name, good) in goods {
        let mut runner =
            TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
        let errors = Mutex::new(0);
        let tried = runner.run(&proptest::collection::vec(damage(), 1..5), |all| {
            let bytes = damaged(&good, &all);
            let path = folder.file(name, &bytes);
            let mut found = None;
            let info = measure(|| found = Some(read_arrays(&path)));
            // Buffers of readers, and what a compressed byte may stand for.
            let packed = if name.ends_with("gz") || name.ends_with("npz") { 1032 * 4 } else { 64 };
            let most = (4 << 20) + bytes.len() as u64 * packed;
            prop_assert!(info.bytes_max < most, "{} bytes for {}", info.bytes_max, bytes.len());
            if let Some(Err(e)) = found {
                prop_assert!(e.to_string().contains(name), "{e}");
                *errors.lock().expect("no panic") += 1;
            }
            Ok(())
        });
        tried.unwrap_or_else(|e| panic!("{name}: {e}"));
        let errors = errors.into_inner().expect("no panic");
        assert!(errors > cases / 4, "{name}: {errors} of {cases} were refused");
    }
}
