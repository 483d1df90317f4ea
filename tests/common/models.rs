//! The model programs, `tests/models/*.ir`.

use adfuse::engine::Cpu;
use adfuse::fusion::{AnyEngine, PlanFrontier, PlanOptions, plan_frontier};
use adfuse::ir::text::parse;
use adfuse::ir::{Diagnostic, Function, Module};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

/// The folder that they are in.
pub(crate) fn root() -> PathBuf {
    super::root().join("tests/models")
}

/// Their files, sorted.
pub(crate) fn paths() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root()).expect("the folder of models");
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

/// A frontier, or why there is none; shared by all who ask for it.
type Shared = Result<Arc<PlanFrontier>, Diagnostic>;

/// The frontier of a prepared function, counted for an engine or for any: whoever asks first makes it, and
/// those who ask meanwhile wait.
pub(crate) fn frontier(f: &Function, options: &PlanOptions, engine: Option<&Cpu>) -> Shared {
    static MADE: Mutex<BTreeMap<String, Arc<OnceLock<Shared>>>> = Mutex::new(BTreeMap::new());
    let counts = engine.map(|e| (e.threads, e.vectors, &e.donated));
    let key = format!("{counts:?} {options:?}\n{f}");
    let place = Arc::clone(MADE.lock().expect("no panic").entry(key).or_default());
    let made = place.get_or_init(|| match engine {
        Some(engine) => plan_frontier(f, options, engine).map(Arc::new),
        None => plan_frontier(f, options, &AnyEngine).map(Arc::new),
    });
    made.clone()
}
