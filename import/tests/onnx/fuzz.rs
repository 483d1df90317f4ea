//! Mutated models: whatever bytes hold, importing them ends with a module or with typed errors, in memory that the
//! input bounds. `ADFUSE_FUZZ_CASES` sets how many are tried; where `ADFUSE_ONNX_SUITE` names a folder, its models are mutated too.

use adfuse_import::{ImportError, OnnxOptions, onnx};
use std::path::Path;

/// A generator of Marsaglia's xorshift family: the same mutations each time.
struct XorShift(u64);

impl XorShift {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

fn models() -> Vec<Vec<u8>> {
    let own = [
        super::layer(),
        super::dynamic(),
        super::doubling(),
        super::branching(),
        super::with_function(),
    ];
    let mut all: Vec<Vec<u8>> = own.into_iter().map(|m| m.0).collect();
    if let Some(folder) = std::env::var_os("ADFUSE_ONNX_SUITE") {
        let entries = std::fs::read_dir(Path::new(&folder)).expect("a folder").flatten();
        let mut paths: Vec<_> = entries.map(|e| e.path().join("model.onnx")).collect();
        paths.sort();
        let found = paths.iter().filter_map(|p| std::fs::read(p).ok());
        all.extend(found.filter(|bytes| bytes.len() < 20_000));
    }
    all
}

fn mutated(bytes: &[u8], other: &[u8], r: &mut XorShift) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=r.below(3) {
        let at = r.below(bytes.len());
        let end = (at + 1 + r.below(12)).min(bytes.len());
        let from = r.below(other.len());
        // Most mutations keep the length of the message that they are in, so that it is still read to its end.
        match r.below(24) {
            0 => drop(bytes.drain(at..end)),
            1 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            2 => bytes.truncate(at.max(1)),
            3 => {
                let large = [0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
                bytes.splice(at..end, large.iter().copied().take(1 + r.below(6)));
            }
            4..8 => {
                let part = &other[from..(from + end - at).min(other.len())];
                bytes[at..at + part.len()].copy_from_slice(part);
            }
            8..14 => bytes[at] ^= 1 << r.below(8),
            14..20 => bytes[at] = [0, 1, 2, 3, 4, 7, 9, 0x7f][r.below(8)],
            // A name becomes another one that is there.
            _ => bytes[at] = b"xywbspv012"[r.below(10)],
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

#[test]
fn mutated_models_end_with_a_module_or_typed_errors() {
    // Memory follows from the input's size and from fixed limits: a window or a count takes few bytes of a model.
    const MOST_BYTES: u64 = 512 << 20;
    let cases: usize =
        std::env::var("ADFUSE_FUZZ_CASES").ok().and_then(|s| s.parse().ok()).unwrap_or(2_000);
    let (models, mut r) = (models(), XorShift(0x9e37_79b9_7f4a_7c15));
    let (mut syntax, mut unsupported, mut modules) = (0, 0, 0);
    for case in 0..cases {
        let (k, other) = (r.below(models.len()), r.below(models.len()));
        let bytes = mutated(&models[k], &models[other], &mut r);
        let mut result = None;
        let used = allocation_counter::measure(|| {
            result = Some(onnx(&bytes, &OnnxOptions::default()));
        });
        assert!(used.bytes_max < MOST_BYTES, "case {case} of model {k}: {} bytes", used.bytes_max);
        match result.expect("it ran") {
            Ok(_) => modules += 1,
            Err(ImportError::Syntax(_)) => syntax += 1,
            Err(ImportError::Unsupported(coverage)) => {
                assert!(!coverage.issues.is_empty());
                unsupported += 1;
            }
            Err(e) => panic!("case {case} of model {k}: {e}"),
        }
    }
    // Every outcome occurs: what is tried is neither nothing but noise nor what was written.
    assert!(syntax > 0 && unsupported > 0 && modules > 0, "{syntax} {unsupported} {modules}");
}
