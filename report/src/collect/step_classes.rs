//! Classes of steps that do the same work between the same steps.

use super::layers::work;
use crate::data::PlanStep;
use std::collections::HashMap;

/// Steps before and after one that are to be equal too: at the ends of a model, values are live beside others.
const AROUND: usize = 1;

/// Numbers things by their first occurrence.
pub(super) struct ClassNumbers<K>(HashMap<K, usize>);

impl<K: std::hash::Hash + Eq> ClassNumbers<K> {
    /// None yet.
    pub(super) fn new() -> ClassNumbers<K> {
        ClassNumbers(HashMap::new())
    }

    /// The number of a thing.
    pub(super) fn of(&mut self, key: K) -> usize {
        let new = self.0.len();
        *self.0.entry(key).or_insert(new)
    }
}

/// A number for each step; equal ones do the same work between the same steps.
pub(super) fn step_classes(steps: &[PlanStep]) -> Vec<usize> {
    let mut works = ClassNumbers::new();
    let works: Vec<usize> = steps.iter().map(|s| works.of(work(s))).collect();
    let mut classes = ClassNumbers::new();
    let around = |n: usize| -> Vec<Option<usize>> {
        let near = n as i64 - AROUND as i64..=(n + AROUND) as i64;
        near.map(|k| usize::try_from(k).ok().and_then(|k| works.get(k)).copied()).collect()
    };
    (0..steps.len()).map(|n| classes.of(around(n))).collect()
}
