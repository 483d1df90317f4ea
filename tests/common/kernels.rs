//! Programs of kernels that tests share, and values for them.

use adfuse::backends::Array;
use adfuse::ir::kernel::Program;
use adfuse::ir::op::Domain;
use adfuse::sample::{rng, sample};

/// Numbers from a seed, each below what is asked for.
pub(crate) fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |n: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n.max(1)
    }
}

/// The well-formed programs of the filetests, by name, without the comments above them.
pub(crate) fn files() -> Vec<(String, String)> {
    let found = programs_of("tests/filetests/kernels/ok");
    assert!(found.len() > 10, "{} files", found.len());
    found
}

/// As [`files`], of programs with loops and branches.
pub(crate) fn block_files() -> Vec<(String, String)> {
    let found = programs_of("tests/filetests/kernels/blocks");
    assert!(found.len() > 3, "{} files", found.len());
    found
}

fn programs_of(folder: &str) -> Vec<(String, String)> {
    let folder = super::root().join(folder);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("reads");
        let at = text.find("program @").expect("a program");
        found.push((path.display().to_string(), text[at..].to_string()));
    }
    found.sort();
    found
}

/// Values for a program's inputs.
pub(crate) fn arguments(program: &Program) -> Vec<Array> {
    let mut rng = rng(1, 0);
    let types = program.inputs().filter_map(|b| program.buffers[b].ty());
    types.map(|t| sample(&t, Domain::Normal, &mut rng).expect("small")).collect()
}
