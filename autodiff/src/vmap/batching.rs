//! Where a batch is, and what it is of.

use adfuse_ir::Dim;

/// What becomes of bits that a program draws from a seed and an offset which all elements share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Random {
    /// It is an error: elements that must differ would not. Mapping the seed or the offset gives each
    /// element bits of its own.
    Refused,
    /// All elements draw the same bits, as the function does when it runs on each by itself.
    Same,
}

/// Where the batch is: its extent, and its axis in every parameter and result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batching {
    pub(super) size: Dim,
    pub(super) params: Vec<Option<usize>>,
    pub(super) results: Option<Vec<Option<usize>>>,
    pub(super) random: Random,
    /// The axis of ranks that the batch is, if it is one.
    pub(super) name: Option<String>,
}

impl Batching {
    /// A batch of this extent; for each parameter the axis that is added, or none where all elements
    /// share it. Every result has the batch as its first axis.
    pub fn new(size: impl Into<Dim>, params: impl IntoIterator<Item = Option<usize>>) -> Batching {
        let params = params.into_iter().collect();
        Batching { size: size.into(), params, results: None, random: Random::Refused, name: None }
    }

    /// For each result the axis that is added. Where there is none, the result must not depend on a
    /// mapped parameter; where there is one and it does not, it is repeated.
    pub fn results(mut self, axes: impl IntoIterator<Item = Option<usize>>) -> Batching {
        self.results = Some(axes.into_iter().collect());
        self
    }

    /// A batch whose elements are the ranks of the axis of this name: collectives over it become ordinary ops, and what they
    /// make the same everywhere does not depend on a mapped parameter.
    pub fn named(mut self, axis: impl Into<String>) -> Batching {
        self.name = Some(axis.into());
        self
    }

    /// What becomes of random bits that do not depend on a mapped parameter.
    pub fn random(mut self, random: Random) -> Batching {
        self.random = random;
        self
    }
}
