//! StableHLO bytecode: programs that JAX wrote in several versions (`tests/jax/make.py`) are the programs of their texts, and
//! whatever else a file holds ends with typed errors. `ADFUSE_FUZZ_CASES` sets how many mutated files are tried.

use adfuse_import::{ImportError, ImportOptions, disassemble, is_bytecode, stablehlo};
use std::collections::BTreeMap;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/jax")
}

/// The name of a program with the version, and its bytecode.
fn files() -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder().join("bytecode")).expect("a folder").flatten();
    let mut paths: Vec<PathBuf> = entries.map(|e| e.path()).collect();
    paths.sort();
    let name = |p: &PathBuf| p.file_stem().expect("a name").to_string_lossy().into_owned();
    paths.iter().map(|p| (name(p), std::fs::read(p).expect("a file"))).collect()
}

/// The program with its values numbered in the order in which they are defined: bytecode has no names.
fn unnamed(text: &str) -> String {
    let module = match stablehlo(text, &ImportOptions::default()) {
        Ok(imported) => imported.module.to_string(),
        Err(e) => panic!("{e}\n{text}"),
    };
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut defined, mut out) = (0, String::new());
    for line in module.lines() {
        // What stands before ` = ` is defined, and so is what has its type behind it.
        let mut results = line.trim_start().starts_with('%');
        for (k, piece) in line.split('%').enumerate() {
            let end = if k == 0 { 0 } else { piece.find(|c| !word(c)).unwrap_or(piece.len()) };
            let (name, rest) = piece.split_at(end);
            if k > 0 {
                if results || rest.starts_with(':') {
                    numbers.insert(name, defined);
                    defined += 1;
                }
                out.push_str(&format!("%{}", numbers[name]));
            }
            results &= !rest.contains(" = ");
            out.push_str(rest);
        }
        out.push('\n');
    }
    out
}

#[test]
fn bytecode_of_every_version_is_the_program_of_its_text() {
    let files = files();
    assert!(files.len() > 40);
    for (name, bytes) in files {
        assert!(is_bytecode(&bytes), "{name}");
        let (program, _) = name.split_once('.').expect("a version");
        let text = std::fs::read_to_string(folder().join(format!("{program}.mlir")));
        let made = disassemble(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(unnamed(&made), unnamed(&text.expect("a program")), "{name}");
    }
}

/// What `jax.export` serializes has the bytecode in a field of a table.
#[test]
fn exports_are_unwrapped() {
    let (_, bytes) = files().swap_remove(0);
    // A table of one field at 12, whose fields are told at 4; the vector is at 20.
    let mut export = vec![12, 0, 0, 0, 6, 0, 8, 0, 4, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0];
    export.extend((bytes.len() as u32).to_le_bytes());
    export.extend(&bytes);
    assert!(is_bytecode(&export));
    assert_eq!(disassemble(&export).expect("a module"), disassemble(&bytes).expect("a module"));
}

#[test]
fn files_that_end_early_are_refused_with_a_place() {
    for (name, bytes) in files().into_iter().take(8) {
        for end in 4..bytes.len() {
            let e = disassemble(&bytes[..end]).expect_err(&name);
            assert!(e.to_string().contains("at byte "), "{e}");
        }
    }
    for wrong in [&b""[..], b"module {}", b"ML\xefR\x11a\0"] {
        assert!(matches!(disassemble(wrong), Err(ImportError::Syntax(_))), "{wrong:?}");
    }
}

/// A generator of Marsaglia's xorshift family: the same mutations each time.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

/// A file with some bytes changed, removed or repeated.
fn mutated(bytes: &[u8], r: &mut Xorshift) -> Vec<u8> {
    let mut made = bytes.to_vec();
    for _ in 0..1 + r.below(4) {
        if made.is_empty() {
            break;
        }
        let at = r.below(made.len());
        let end = (at + 1 + r.below(8)).min(made.len());
        match r.below(8) {
            0 => drop(made.drain(at..end)),
            1 => {
                let copy = made[at..end].to_vec();
                made.splice(at..at, copy);
            }
            2 => made[at] = [0x00, 0xff, 0x01, 0x03, 0x80][r.below(5)],
            // One more or one less: another entry of a table, or another length.
            3 | 4 => made[at] = made[at].wrapping_add(2),
            5 => made[at] = made[at].wrapping_sub(2),
            6 => made[at] ^= 1 << r.below(8),
            _ => made[at] = r.below(256) as u8,
        }
    }
    made
}

#[test]
fn mutated_files_end_with_a_module_or_typed_errors() {
    let cases =
        std::env::var("ADFUSE_FUZZ_CASES").ok().and_then(|s| s.parse().ok()).unwrap_or(2_000);
    let (files, mut r) = (files(), Xorshift(0x9e37_79b9_7f4a_7c15));
    let (mut modules, mut syntax, mut refused) = (0, 0, 0);
    for _ in 0..cases {
        let k = r.below(files.len());
        let bytes = mutated(&files[k].1, &mut r);
        let text = match disassemble(&bytes) {
            Ok(text) => text,
            Err(ImportError::Syntax(e)) => {
                assert!(e.message.contains("at byte "), "{e}");
                syntax += 1;
                continue;
            }
            Err(e) => panic!("{e}"),
        };
        // What is written is text of StableHLO; whether it can be imported is another matter.
        match stablehlo(&text, &ImportOptions::default()) {
            Ok(_) => modules += 1,
            Err(ImportError::Unsupported(_) | ImportError::Invalid(_)) => refused += 1,
            Err(ImportError::Syntax(_)) => refused += 1,
            Err(e @ ImportError::Internal(_)) => panic!("{e}\n{text}"),
        }
    }
    assert!(
        modules > cases / 20 && syntax > cases / 10 && refused > 0,
        "{modules} {syntax} {refused}"
    );
}

/// A number of one byte or two.
fn number(n: u16) -> Vec<u8> {
    match n {
        0..0x80 => vec![(n << 1) as u8 | 1],
        _ => (n << 2 | 2).to_le_bytes().to_vec(),
    }
}

fn numbers(all: &[u16]) -> Vec<u8> {
    all.iter().flat_map(|&n| number(n)).collect()
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("a short section") << 2 | 2;
    [&[id][..], &length.to_le_bytes(), content].concat()
}

/// Entries of a table as their offsets, of one dialect, and their bytes.
fn table(dialect: u16, entries: &[Vec<u8>]) -> [Vec<u8>; 2] {
    let mut offsets = numbers(&[dialect, entries.len() as u16]);
    entries.iter().for_each(|entry| offsets.extend(number((entry.len() as u16) << 1 | 1)));
    [offsets, entries.concat()]
}

/// A file with one property, which is the last attribute, and a module whose region is `inside`.
fn file(attributes: &[Vec<u8>], types: &[Vec<u8>], inside: &[u8]) -> Vec<u8> {
    let strings: &[&str] = &["builtin", "vhlo", "module", "iota_v1", "iota_dimension"];
    let mut all = number(strings.len() as u16);
    all.extend(strings.iter().rev().flat_map(|s| number(s.len() as u16 + 1)));
    strings.iter().for_each(|s| all.extend(s.bytes().chain([0])));
    // Dialects 0 and 1 without versions, of one op each, both registered.
    let dialects = numbers(&[2, 0, 2, 2, 0, 1, 5, 1, 1, 7]);
    let counts = numbers(&[attributes.len() as u16, types.len() as u16]);
    // Attributes are of VHLO, types of the builtin dialect.
    let [[attribute_offsets, attribute_data], [type_offsets, type_data]] =
        [table(1, attributes), table(0, types)];
    let offsets = [counts, attribute_offsets, type_offsets].concat();
    let data = [attribute_data, type_data].concat();
    let properties = numbers(&[1, 1, attributes.len() as u16 - 1]);
    let mut ir = [number(2), number(0), vec![0x10], number(0), number(3)].concat();
    ir.extend(section(4, inside));
    let mut file = b"ML\xefR\x0da\0".to_vec();
    for (id, content) in
        [(0, &all), (1, &dialects), (2, &data), (3, &offsets), (8, &properties), (4, &ir)]
    {
        file.extend(section(id, content));
    }
    file
}

/// A list of no attributes.
fn nothing() -> Vec<u8> {
    numbers(&[1, 0])
}

/// A file whose attributes are lists of the attribute before, twice each: its text would double with each.
#[test]
fn shared_attributes_do_not_multiply() {
    let mut attributes = vec![nothing()];
    attributes.extend((0..59).map(|before| numbers(&[1, 2, before, before])));
    // A block of one `iota` with the last of them for its properties.
    let inside = [numbers(&[1, 0, 2, 1]), vec![0x40], numbers(&[0, 0])].concat();
    let e = disassemble(&file(&attributes, &[], &inside)).expect_err("too long").to_string();
    assert!(e.contains("too long"), "{e}");
}

/// Results that have one long type are written with it each: tuples of the tuple before, twice each.
#[test]
fn shared_types_do_not_multiply() {
    let mut types = vec![numbers(&[5])];
    types.extend((0..10).map(|before| numbers(&[15, 2, before, before])));
    let results = vec![10; 2000];
    let mut inside = numbers(&[1, 2000, 2, 1]);
    inside.extend([vec![0x42], numbers(&[0, 0, 2000]), numbers(&results)].concat());
    let e = disassemble(&file(&[nothing()], &types, &inside)).expect_err("too long").to_string();
    assert!(e.contains("too long"), "{e}");
}

/// Regions inside of each other cannot announce all bytes that are left as values, each for itself.
#[test]
fn nested_regions_announce_no_more_values_than_there_are_bytes() {
    let region = numbers(&[1, 600, 2, 1]);
    let op = [vec![0x50], numbers(&[0, 0, 2])].concat();
    let inside = [&region[..], &op, &region, &op, &[1; 900]].concat();
    let e = disassemble(&file(&[nothing()], &[], &inside)).expect_err("too many").to_string();
    assert!(e.contains("more values than"), "{e}");
}
