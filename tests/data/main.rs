//! Files of arrays and data sets: what is read and written, what is refused, and the order of batches.

#[path = "../common/mod.rs"]
mod common;
mod datasets;
mod files;
mod mutations;

use adfuse::backends::Array;
use adfuse::ir::DType;
use std::path::{Path, PathBuf};

/// A folder that goes when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("adfuse-data-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for files");
        Folder(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file of these bytes.
    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    to.write_all(bytes).expect("in memory");
    to.finish().expect("in memory")
}

/// An array of each type and of several ranks.
fn arrays() -> Vec<(String, Array)> {
    let mut all = Vec::new();
    for (k, dtype) in DType::ALL.into_iter().filter(|&d| d != DType::Token).enumerate() {
        let dims: &[u64] = [&[][..], &[3], &[2, 3, 4], &[0, 7], &[5, 1]][k % 5];
        let n: u64 = dims.iter().product();
        let values: Vec<i64> = (0..n as i64).map(|i| i - 2).collect();
        let array = Array::from_i64s(dtype, dims, &values).expect("as many");
        all.push((format!("layers.{k}.{dtype}"), array));
    }
    all
}

fn read(path: &Path) -> Vec<(String, Array)> {
    adfuse::data::read_arrays(path).unwrap_or_else(|e| panic!("{e}"))
}

fn refused(path: &Path) -> String {
    match adfuse::data::read_arrays(path) {
        Ok(found) => panic!("{}: {found:?}", path.display()),
        Err(e) => e.to_string(),
    }
}
