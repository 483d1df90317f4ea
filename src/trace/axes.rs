//! Axes as arguments of methods: numbers that may be negative, lists and ranges of them, or all.

use super::{Tensor, each_live};
use crate::ir::Kind;
use std::ops::{Range, RangeFrom, RangeFull, RangeTo};
use std::panic::Location;

/// The number of an axis; negative ones count from the last: -1 is the last axis.
pub trait AxisIndex: Copy {
    /// The number as it is written.
    fn written(self) -> i64;
}

macro_rules! axis_index {
    ($($int:ty)*) => {
        $(impl AxisIndex for $int {
            fn written(self) -> i64 {
                // No tensor has an axis that is so large.
                i64::try_from(self).unwrap_or(i64::MAX)
            }
        })*
    };
}

axis_index! { i32 i64 isize u32 u64 usize }

/// Axes of a tensor: `-1`, `[0, 1]`, `&[0, -1]`, `1..`, `..` for all, `()` for none, and [`keep`] of any of these.
///
/// ```
/// use adfuse::prelude::*;
///
/// let sums = |axes: &[i64]| evaluate(|t| t.constant([[1.0, 2.0], [3.0, 4.0]]).sum(axes));
/// assert_eq!(sums(&[-1])?.to_f64s(), [3.0, 7.0]);
/// assert_eq!(evaluate(|t| t.constant([[1.0, 2.0], [3.0, 4.0]]).sum(..))?.to_f64s(), [10.0]);
/// # Ok::<(), Diagnostic>(())
/// ```
pub trait Axes {
    /// The axes of a tensor of this rank, as they are written: they may be negative, or not there.
    fn written_axes(&self, rank: usize) -> Vec<i64>;

    /// Whether a reduction leaves the axes, with extent 1.
    fn are_kept(&self) -> bool {
        false
    }
}

/// Axes that a reduction leaves, with extent 1, so that its result broadcasts with its operand.
///
/// ```
/// use adfuse::prelude::*;
///
/// let centred = evaluate(|t| {
///     let x = t.constant([[1.0, 3.0], [4.0, 8.0]]);
///     &x - x.mean(keep(-1))
/// })?;
/// assert_eq!(centred.to_f64s(), [-1.0, 1.0, -2.0, 2.0]);
/// # Ok::<(), Diagnostic>(())
/// ```
pub fn keep<A: Axes>(axes: A) -> KeptAxes<A> {
    KeptAxes(axes)
}

/// What [`keep`] gives.
#[derive(Clone, Copy, Debug)]
pub struct KeptAxes<A>(A);

impl<A: Axes> Axes for KeptAxes<A> {
    fn written_axes(&self, rank: usize) -> Vec<i64> {
        self.0.written_axes(rank)
    }

    fn are_kept(&self) -> bool {
        true
    }
}

impl<I: AxisIndex> Axes for I {
    fn written_axes(&self, _: usize) -> Vec<i64> {
        vec![self.written()]
    }
}

impl<I: AxisIndex, const N: usize> Axes for [I; N] {
    fn written_axes(&self, _: usize) -> Vec<i64> {
        self.iter().map(|a| a.written()).collect()
    }
}

impl<I: AxisIndex, const N: usize> Axes for &[I; N] {
    fn written_axes(&self, _: usize) -> Vec<i64> {
        self.iter().map(|a| a.written()).collect()
    }
}

impl<I: AxisIndex> Axes for &[I] {
    fn written_axes(&self, _: usize) -> Vec<i64> {
        self.iter().map(|a| a.written()).collect()
    }
}

impl<I: AxisIndex> Axes for Vec<I> {
    fn written_axes(&self, _: usize) -> Vec<i64> {
        self.iter().map(|a| a.written()).collect()
    }
}

impl<I: AxisIndex> Axes for &Vec<I> {
    fn written_axes(&self, _: usize) -> Vec<i64> {
        self.iter().map(|a| a.written()).collect()
    }
}

impl Axes for () {
    fn written_axes(&self, _: usize) -> Vec<i64> {
        Vec::new()
    }
}

impl Axes for RangeFull {
    fn written_axes(&self, rank: usize) -> Vec<i64> {
        (0..rank as i64).collect()
    }
}

impl<I: AxisIndex> Axes for RangeFrom<I> {
    fn written_axes(&self, rank: usize) -> Vec<i64> {
        (from_first(self.start.written(), rank)..rank as i64).collect()
    }
}

impl<I: AxisIndex> Axes for Range<I> {
    fn written_axes(&self, rank: usize) -> Vec<i64> {
        let [start, end] = [self.start, self.end].map(|a| from_first(a.written(), rank));
        // What is out of range is named, not counted up to.
        if start < 0 || end > rank as i64 {
            return vec![self.start.written(), self.end.written().saturating_sub(1)];
        }
        (start..end).collect()
    }
}

impl<I: AxisIndex> Axes for RangeTo<I> {
    fn written_axes(&self, rank: usize) -> Vec<i64> {
        (0..self.end.written()).written_axes(rank)
    }
}

fn from_first(axis: i64, rank: usize) -> i64 {
    if axis < 0 { axis + rank as i64 } else { axis }
}

/// The axis of this number in a tensor of this rank.
pub(super) fn resolve(axis: i64, rank: usize) -> Option<usize> {
    usize::try_from(from_first(axis, rank)).ok().filter(|&a| a < rank)
}

impl Tensor {
    /// The axes that are meant, in the order they are written; `None`, after an error, if one is not there or is
    /// named twice.
    #[track_caller]
    pub(super) fn axes_of(&self, axes: &impl Axes, what: &str) -> Option<Vec<usize>> {
        let rank = self.ty.rank();
        let mut found = Vec::new();
        for axis in axes.written_axes(rank) {
            let at = self.resolved(axis, rank, what)?;
            if found.contains(&at) {
                self.fail(Kind::Shape, format!("`{what}`: axis {axis} of {} twice", self.ty));
                return None;
            }
            found.push(at);
        }
        Some(found)
    }

    /// The axis that is meant; `None`, after an error, if it is not there.
    #[track_caller]
    pub(super) fn axis_of(&self, axis: impl AxisIndex, what: &str) -> Option<usize> {
        self.resolved(axis.written(), self.ty.rank(), what)
    }

    /// The place of an axis in a tensor of this rank, which may be another than this tensor's.
    #[track_caller]
    pub(super) fn resolved(&self, axis: i64, rank: usize, what: &str) -> Option<usize> {
        let at = resolve(axis, rank);
        if at.is_none() {
            let there = match rank {
                0 => "it has none".to_string(),
                1 => "it has axis 0, or -1".to_string(),
                n => format!("it has 0 to {}, or -{n} to -1", n - 1),
            };
            self.fail(Kind::Shape, format!("`{what}`: {} has no axis {axis}: {there}", self.ty));
        }
        at
    }

    /// Records an error, unless there is one already.
    #[track_caller]
    pub(crate) fn fail(&self, kind: Kind, message: String) {
        let place = Location::caller();
        each_live([&self.state], |s| s.fail(place, kind, message.clone()));
    }

    /// Records an error; the tensor stands for what would have been the result.
    #[track_caller]
    pub(crate) fn refused(&self, kind: Kind, message: String) -> Tensor {
        self.fail(kind, message);
        self.clone()
    }

    /// Whether the elements are floats; an error if not.
    #[track_caller]
    pub(super) fn has_floats(&self, what: &str) -> bool {
        let floats = self.ty.dtype.is_float();
        if !floats {
            let m = format!(
                "`{what}` takes a float type, found {}: convert it, `.convert(DType::F32)`",
                self.ty
            );
            self.fail(Kind::DType, m);
        }
        floats
    }
}
