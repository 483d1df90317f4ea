//! What a word of a box in shared memory is: an `f32`, or two 16-bit floats that follow each other along the depth.
//!
//! Tensor cores take 16-bit floats two at a time, of neighbours along the depth, and TF32 one at a time, and words of both lie
//! alike in their fragments. So a box of 16-bit floats is one of words, of half as much depth, along an axis of the depth that
//! alone chooses places along a dimension: channels, or images for the gradient of a filter.

/// What a word of a box is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum BoxWord {
    /// An `f32`.
    Single,
    /// Two neighbours in memory.
    Neighbours,
    /// Two neighbours in memory of a line along which windows slide by single elements. The box has elements: a word that begins at
    /// an odd one is joined of two words where it is read. So all that a box of them counts is elements, not words.
    Sliding,
    /// Two elements that lie apart in memory: a copy brings several of the first ones of words next to each other, another one the
    /// second ones, and the thread that has copied them joins them.
    Apart(PairedDim),
}

/// The dimension along which the elements of words are neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PairedDim {
    pub(crate) dim: usize,
    /// Elements of memory from the first element of a word to the second one.
    pub(crate) step: i64,
    /// The words that have a second element, where the last one has none: it is zero.
    pub(crate) whole: Option<i64>,
}

impl BoxWord {
    /// Bytes of what strides of dimensions count.
    pub(crate) fn strided_bytes(self) -> i64 {
        match self {
            BoxWord::Single | BoxWord::Neighbours => 4,
            BoxWord::Apart(_) | BoxWord::Sliding => 2,
        }
    }

    /// What places of a box count, of a word: words, or elements where windows slide by these.
    pub(crate) fn places(self) -> i64 {
        match self {
            BoxWord::Single | BoxWord::Neighbours | BoxWord::Apart(_) => 1,
            BoxWord::Sliding => 2,
        }
    }

    /// Bytes of shared memory of such a place.
    pub(crate) fn place_bytes(self) -> i64 {
        4 / self.places()
    }

    /// The fewest places that copies move: none has less than 4 bytes.
    pub(crate) fn least_unit(self) -> i64 {
        match self {
            BoxWord::Single | BoxWord::Neighbours => 1,
            BoxWord::Apart(_) | BoxWord::Sliding => 2,
        }
    }

    /// Copies of a unit.
    pub(crate) fn copies(self) -> i64 {
        match self {
            BoxWord::Single | BoxWord::Neighbours | BoxWord::Sliding => 1,
            BoxWord::Apart(_) => 2,
        }
    }

    /// Bytes of each of those, where a unit has this many places.
    pub(crate) fn copied_bytes(self, unit: i64) -> i64 {
        self.place_bytes() * unit / self.copies()
    }
}

/// How places along a dimension became words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairedPlaces {
    pub(crate) dim: usize,
    /// Places from one element of a word to the other, and from word to word.
    pub(crate) half: i64,
    pub(crate) word: i64,
}
