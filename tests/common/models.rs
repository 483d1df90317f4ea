//! The model programs, `tests/models/*.ir`.

use adfuse::ir::text::parse;
use adfuse::ir::{Function, Module};
use std::path::{Path, PathBuf};

/// Their files, sorted.
pub(crate) fn paths() -> Vec<PathBuf> {
    let folder = super::root().join("tests/models");
    let entries = std::fs::read_dir(folder).expect("the folder of models");
    let mut files: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "ir"));
    files.sort();
    files
}

/// A model: its name, its module, and the function that is the model.
pub(crate) fn read(path: &Path) -> (String, Module, Function) {
    let text = std::fs::read_to_string(path).expect("a model");
    let module = parse(&text).unwrap_or_else(|e| panic!("{}: {e:?}", path.display()));
    let stem = path.file_stem().and_then(|s| s.to_str()).expect("a name").to_owned();
    let f = module.find(&stem).or_else(|| module.find("main")).expect("the model's function");
    let f = f.clone();
    (stem, module, f)
}

/// All of them.
pub(crate) fn all() -> Vec<(String, Module, Function)> {
    paths().iter().map(|p| read(p)).collect()
}
