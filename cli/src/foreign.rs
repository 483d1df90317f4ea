//! What to do with files that hold no program of a form that is read: by their names and first bytes.

use std::path::Path;

/// How files of one kind are known, and what to do with them.
struct ForeignFile {
    extensions: &'static [&'static str],
    /// What such a file begins with, whatever it is called.
    begins: &'static [&'static [u8]],
    hint: &'static str,
}

const FOREIGN: &[ForeignFile] = &[
    ForeignFile {
        extensions: &[],
        begins: &[b"\xff\xfe", b"\xfe\xff"],
        hint: "it looks like UTF-16: save it as UTF-8",
    },
    ForeignFile {
        extensions: &["pt", "pth", "pt2", "ckpt", "bin"],
        begins: &[b"PK\x03\x04", b"\x80\x02", b"\x80\x04", b"\x80\x05"],
        hint: "it looks like a file of PyTorch or a pickle: `torch.onnx.export` writes a model that is read",
    },
    ForeignFile {
        extensions: &["py", "ipynb"],
        begins: &[b"import ", b"from ", b"#!"],
        hint: "it looks like Python: `jax.jit(f).lower(x).as_text()` is a program that is read, as is an ONNX model",
    },
    ForeignFile {
        extensions: &["mlir", "stablehlo", "hlo"],
        begins: &[],
        hint: "of MLIR, StableHLO and CHLO are read: `jax.jit(f).lower(x).as_text()` prints them",
    },
    ForeignFile {
        extensions: &["onnx"],
        begins: &[],
        hint: "it is no ONNX model that can be read; is the file whole?",
    },
    ForeignFile {
        extensions: &[
            "tflite",
            "pb",
            "h5",
            "keras",
            "mlmodel",
            "pbtxt",
            "safetensors",
            "npz",
            "npy",
        ],
        begins: &[b"\x93NUMPY", b"\x89HDF"],
        hint: "a program is `.ir` text, StableHLO or an ONNX model",
    },
];

/// What to do with a file that is no program.
pub(super) fn hint(path: &Path, bytes: &[u8]) -> Option<String> {
    let begins = |of: &&ForeignFile| of.begins.iter().any(|begin| bytes.starts_with(begin));
    let extension = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    let named =
        |of: &&ForeignFile| extension.as_deref().is_some_and(|e| of.extensions.contains(&e));
    let found = FOREIGN.iter().find(begins).or_else(|| FOREIGN.iter().find(named));
    found.map(|of| of.hint.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_what_they_begin_with_then_by_their_names() {
        let of = |name: &str, bytes: &[u8]| hint(Path::new(name), bytes).unwrap_or_default();
        for (name, bytes, part) in [
            ("f.ir", &b"\xff\xfef\0"[..], "UTF-16"),
            ("m.onnx", b"PK\x03\x04", "torch.onnx.export"),
            ("f.py", b"\"\"\"A model.\"\"\"", "Python"),
            ("f.MLIR", b"module", "CHLO"),
            ("m.onnx", b"<html>", "is the file whole?"),
            ("w.npz", b"", "a program is"),
            ("f.ir", b"func", ""),
            ("f", b"func", ""),
        ] {
            assert!(
                of(name, bytes).contains(part) && part.is_empty() == of(name, bytes).is_empty(),
                "{name}"
            );
        }
    }
}
