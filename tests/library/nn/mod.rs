//! Layers: those of PyTorch, first values, dropout, and what models say of their parameters.

mod dropout;
mod first;
mod layers;
mod models;
mod shown;

use adfuse::optim::{Optimizer, OptimizerState, TrainedParam, UpdateContext, Updated};
use adfuse::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A file that `fixtures/make.py` wrote.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/library/fixtures").join(name)
}

/// Its arrays.
pub(crate) fn fixture(name: &str) -> BTreeMap<String, Array> {
    data::read_arrays(path(name)).expect("a fixture").into_iter().collect()
}

/// The arrays whose names begin with a prefix, by the rest.
pub(crate) fn within(all: &BTreeMap<String, Array>, prefix: &str) -> BTreeMap<String, Array> {
    let own =
        all.iter().filter_map(|(n, a)| Some((n.strip_prefix(prefix)?.to_string(), a.clone())));
    own.collect()
}

/// The largest absolute value of an element.
pub(crate) fn largest(of: &Array) -> f64 {
    of.to_f64s().iter().fold(0.0, |m, x| m.max(x.abs()))
}

/// Fails where an element differs by more than a share of the largest element.
#[track_caller]
pub(crate) fn near(what: &str, found: &Array, due: &Array, share: f64) {
    near_in(what, found, due, share * largest(due));
}

/// Fails where an element differs by more than a number.
#[track_caller]
pub(crate) fn near_in(what: &str, found: &Array, due: &Array, most: f64) {
    assert_eq!(found.dims(), due.dims(), "{what}");
    let (found, due) = (found.to_f64s(), due.to_f64s());
    for (k, (a, b)) in found.iter().zip(&due).enumerate() {
        let far = (a - b).abs();
        assert!(
            far <= most,
            "{what}: element {k} is {a}, not {b}: {far:.1e}, more than {most:.1e}"
        );
    }
}

/// An optimizer that leaves the gradients where the parameters were.
struct Gradients;

impl Optimizer for Gradients {
    fn state(&self, _: &[TrainedParam]) -> Vec<OptimizerState> {
        Vec::new()
    }

    fn update(&self, at: &UpdateContext<'_>) -> Updated {
        Updated { params: at.gradients.to_vec(), state: Vec::new() }
    }
}
