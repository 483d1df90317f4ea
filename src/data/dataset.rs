//! Data sets: trees of arrays whose rows belong together, in order or shuffled, in batches.

use super::prefetch::{Prefetched, prefetch};
use crate::backends::Array;
use crate::ir::{At, Diagnostic, Kind};
use crate::sample::rng;
use crate::tree::{self, Params};
use rand::seq::SliceRandom;
use std::sync::Arc;

/// Arrays whose rows belong together: row `k` of each, along its first axis, is one example. Clones, parts and shuffled
/// data sets share the arrays.
///
/// ```
/// use adfuse::backends::Array;
/// use adfuse::data::Dataset;
///
/// let x = Array::from_vec((0..10).collect::<Vec<i32>>(), [5, 2])?;
/// let y = Array::from([0i64, 1, 2, 3, 4]);
/// let (train, test) = Dataset::new((x, y))?.split_at(4)?;
/// for epoch in 0..2 {
///     for (x, y) in train.shuffled(7).epoch(epoch).batches(3) {
///         assert_eq!(x.dims()[0], y.dims()[0]);
///     }
/// }
/// assert_eq!(test.all().1.to_f64s(), [4.0]);
/// # Ok::<(), adfuse::ir::Diagnostic>(())
/// ```
#[derive(Debug)]
pub struct Dataset<D> {
    arrays: Arc<D>,
    /// The rows that are its examples.
    rows: Arc<[u64]>,
    /// The seed of the order of an epoch, where it is shuffled.
    seed: Option<u64>,
    epoch: u64,
}

impl<D> Clone for Dataset<D> {
    fn clone(&self) -> Dataset<D> {
        let (arrays, rows) = (Arc::clone(&self.arrays), Arc::clone(&self.rows));
        Dataset { arrays, rows, seed: self.seed, epoch: self.epoch }
    }
}

impl<D> Dataset<D> {
    /// The number of examples.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The same examples in a random order, another one in every [epoch](Dataset::epoch). The order is a function of
    /// the seed, the epoch and the number of examples, the same on every host.
    #[must_use]
    pub fn shuffled(&self, seed: u64) -> Dataset<D> {
        Dataset { seed: Some(seed), ..self.clone() }
    }

    /// The same examples in the order of this epoch.
    #[must_use]
    pub fn epoch(&self, epoch: u64) -> Dataset<D> {
        Dataset { epoch, ..self.clone() }
    }

    /// The first `n` examples, and the others. Of a shuffled data set these are random parts, whose examples are in the
    /// order in which they were.
    ///
    /// # Errors
    /// [`Kind::Usage`] when there are fewer.
    pub fn split_at(&self, n: usize) -> Result<(Dataset<D>, Dataset<D>), Diagnostic> {
        let order = self.order();
        let Some((first, rest)) = order.split_at_checked(n) else {
            let m = format!("a data set of {} examples has no first {n}", self.len());
            return Err(Diagnostic::new(At::default(), Kind::Usage, m));
        };
        let part = |rows: &[u64]| Dataset { rows: rows.into(), seed: None, ..self.clone() };
        Ok((part(first), part(rest)))
    }

    /// The examples in batches of `n`, of which the last may be shorter.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn batches(&self, n: usize) -> Batches<D> {
        assert!(n > 0, "batches of no examples");
        Batches { arrays: Arc::clone(&self.arrays), order: self.order(), size: n, next: 0 }
    }

    /// The rows in the order of the examples.
    fn order(&self) -> Arc<[u64]> {
        match self.seed {
            None => Arc::clone(&self.rows),
            Some(seed) => {
                let mut order = self.rows.to_vec();
                order.shuffle(&mut rng(seed, self.epoch));
                order.into()
            }
        }
    }
}

impl<D: Params<Array>> Dataset<D> {
    /// A data set of a tree of arrays, of which all have the same number of rows.
    ///
    /// # Errors
    /// [`Kind::Shape`] with the paths of the arrays when they have different numbers of rows, or one is a scalar;
    /// [`Kind::Usage`] when the tree has no array.
    pub fn new(arrays: D) -> Result<Dataset<D>, Diagnostic> {
        let mut found: Option<(String, u64)> = None;
        for (path, array) in tree::named_leaves::<Array>(&arrays) {
            let wrong = |m| Err(Diagnostic::new(At::default(), Kind::Shape, m));
            let name = if path.is_empty() { "the array".to_string() } else { format!("`{path}`") };
            match (array.dims().first(), &found) {
                (None, _) => return wrong(format!("{name} is {}, which has no rows", array.ty())),
                (Some(n), Some((first, rows))) if n != rows => {
                    return wrong(format!("{name} has {n} rows, {first} has {rows}"));
                }
                (Some(&n), _) => _ = found.get_or_insert((name, n)),
            }
        }
        let Some((_, rows)) = found else {
            let m = "a data set of no arrays";
            return Err(Diagnostic::new(At::default(), Kind::Usage, m));
        };
        let rows = (0..rows).collect();
        Ok(Dataset { arrays: Arc::new(arrays), rows, seed: None, epoch: 0 })
    }

    /// All examples in their order, as one batch.
    ///
    /// # Panics
    /// When there is no memory for a copy.
    pub fn all(&self) -> D {
        gather(&*self.arrays, &self.order())
    }
}

/// The tree with these rows of each array.
fn gather<D: Params<Array>>(arrays: &D, rows: &[u64]) -> D {
    // All arrays have these rows, so that only memory may be missing, which ends the program elsewhere too.
    tree::replace(arrays, |_, array: &Array| {
        array.gather_rows(rows).unwrap_or_else(|d| panic!("a batch of {} rows: {d}", rows.len()))
    })
}

/// The batches of a data set, in order: trees as that of the data set, with the rows of a batch.
#[derive(Debug)]
pub struct Batches<D> {
    arrays: Arc<D>,
    order: Arc<[u64]>,
    size: usize,
    /// How many examples have been given.
    next: usize,
}

impl<D> Batches<D> {
    /// The same without a last batch that is shorter than the others.
    #[must_use]
    pub fn drop_last(mut self) -> Batches<D> {
        let whole = self.order.len() - self.order.len() % self.size;
        self.order = self.order[..whole].into();
        self
    }
}

impl<D: Params<Array> + Send + Sync + 'static> Batches<D> {
    /// The same batches, made by another thread while the present one works on those before.
    pub fn prefetch(self) -> Prefetched<D> {
        prefetch(self)
    }
}

impl<D: Params<Array>> Iterator for Batches<D> {
    type Item = D;

    fn next(&mut self) -> Option<D> {
        let rest = self.order.get(self.next..).filter(|rest| !rest.is_empty())?;
        let rows = &rest[..rest.len().min(self.size)];
        self.next += rows.len();
        Some(gather(&*self.arrays, rows))
    }

    /// Batches that are passed over are not made.
    fn nth(&mut self, n: usize) -> Option<D> {
        self.next = self.next.saturating_add(n.saturating_mul(self.size));
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.order.len().saturating_sub(self.next).div_ceil(self.size);
        (left, Some(left))
    }
}

impl<D: Params<Array>> ExactSizeIterator for Batches<D> {}
