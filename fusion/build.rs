//! Names the planner by a hash of its sources, so that nobody has to count its versions.

use std::path::{Path, PathBuf};
use std::{fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=src");
    let mut files = Vec::new();
    sources(Path::new("src"), &mut files)?;
    files.sort();
    // FNV-1a: it tells versions apart, and no more is asked of it.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for file in files {
        for byte in fs::read(file)? {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    println!("cargo::rustc-env=ADFUSE_PLANNER={}-{hash:016x}", env!("CARGO_PKG_VERSION"));
    Ok(())
}

/// The files in a folder and those below it.
fn sources(folder: &Path, into: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => sources(&path, into)?,
            false => into.push(path),
        }
    }
    Ok(())
}
