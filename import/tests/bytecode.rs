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

/// A file whose attributes are lists of the attribute before, twice each: its text would double with each.
#[test]
fn shared_attributes_do_not_multiply() {
    let section = |id: u8, content: &[u8]| {
        let length = (content.len() as u64) << 2 | 2;
        [&[id][..], &length.to_le_bytes()[..2], content].concat()
    };
    let number = |n: u8| n << 1 | 1;
    let strings: &[&str] = &["builtin", "vhlo", "module", "iota_v1", "iota_dimension"];
    let mut all = vec![number(strings.len() as u8)];
    all.extend(strings.iter().rev().map(|s| number(s.len() as u8 + 1)));
    strings.iter().for_each(|s| all.extend(s.bytes().chain([0])));
    // Dialects 0 and 1 without versions, of one op each, both registered.
    let dialects = [
        number(2),
        number(0),
        number(2),
        number(2),
        number(0),
        number(1),
        number(5),
        number(1),
        number(1),
        number(7),
    ];
    let count = 60u8;
    let (mut offsets, mut data) =
        (vec![number(count), number(0), number(1), number(count)], Vec::new());
    for k in 0..count {
        // A list of two, by its code.
        let before = number(k.saturating_sub(1));
        let entry: &[u8] =
            if k == 0 { &[number(1), number(0)] } else { &[number(1), number(2), before, before] };
        offsets.push(number((entry.len() as u8) << 1 | 1));
        data.extend(entry);
    }
    let properties = [number(1), number(1), number(count - 1)];
    // The module's region is a section: a block of one `iota` with these properties.
    let inside = [number(1), number(0), number(2), number(1), 0x40, number(0), number(0)];
    let mut ir = vec![number(2), number(0), 0x10, number(0), number(3)];
    ir.extend(section(4, &inside));
    let mut file = b"ML\xefR\x0da\0".to_vec();
    for (id, content) in
        [(0, &all[..]), (1, &dialects), (2, &data), (3, &offsets), (8, &properties), (4, &ir)]
    {
        file.extend(section(id, content));
    }
    let e = disassemble(&file).expect_err("too long").to_string();
    assert!(e.contains("too long"), "{e}");
}
