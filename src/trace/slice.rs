//! Slices by Rust's ranges.

use super::Tensor;
use super::record::apply;
use crate::ir::attrs::Attrs;
use crate::ir::{Dim, Kind, Op, Shape};
use std::iter::StepBy;
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// What of an axis a slice takes, as it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AxisRange {
    /// One element; the axis is left out of the result.
    At(i64),
    /// From a place to before another, every `step`th; negative places count from the end, and `None` is the end.
    Span {
        /// The first.
        start: i64,
        /// The one after the last.
        end: Option<i64>,
        /// The distance of elements.
        step: i64,
    },
    /// A range with steps that is empty as it is written: its bounds are not known.
    EmptySteps,
}

const ALL: AxisRange = AxisRange::Span { start: 0, end: None, step: 1 };

/// A part of an axis: `..`, `1..5`, `1..`, `..-1`, `1..=4`, `(0..8).step_by(2)`, or one place, as `0` or `-1`, whose
/// axis is left out. Negative places count from the end.
pub trait SliceRange {
    /// The part as it is written.
    fn axis_range(&self) -> AxisRange;
}

impl SliceRange for AxisRange {
    fn axis_range(&self) -> AxisRange {
        *self
    }
}

impl SliceRange for RangeFull {
    fn axis_range(&self) -> AxisRange {
        ALL
    }
}

/// The end of a range that includes this place: after the last, -1, there is the end.
fn after(last: i64) -> Option<i64> {
    if last == -1 { None } else { Some(last.saturating_add(1)) }
}

/// Bounds and steps of a range by what it yields.
fn stepped(mut places: impl Iterator<Item = i64>) -> AxisRange {
    let Some(start) = places.next() else { return AxisRange::EmptySteps };
    let Some(second) = places.next() else {
        return AxisRange::Span { start, end: after(start), step: 1 };
    };
    let last = places.last().unwrap_or(second);
    AxisRange::Span { start, end: after(last), step: second - start }
}

macro_rules! slice_ranges {
    ($($int:ty)*) => {
        $(impl SliceRange for $int {
            fn axis_range(&self) -> AxisRange {
                AxisRange::At(*self as i64)
            }
        }
        impl SliceRange for Range<$int> {
            fn axis_range(&self) -> AxisRange {
                AxisRange::Span { start: self.start as i64, end: Some(self.end as i64), step: 1 }
            }
        }
        impl SliceRange for RangeFrom<$int> {
            fn axis_range(&self) -> AxisRange {
                AxisRange::Span { start: self.start as i64, end: None, step: 1 }
            }
        }
        impl SliceRange for RangeTo<$int> {
            fn axis_range(&self) -> AxisRange {
                AxisRange::Span { start: 0, end: Some(self.end as i64), step: 1 }
            }
        }
        impl SliceRange for RangeInclusive<$int> {
            fn axis_range(&self) -> AxisRange {
                AxisRange::Span { start: *self.start() as i64, end: after(*self.end() as i64), step: 1 }
            }
        }
        impl SliceRange for RangeToInclusive<$int> {
            fn axis_range(&self) -> AxisRange {
                AxisRange::Span { start: 0, end: after(self.end as i64), step: 1 }
            }
        }
        impl SliceRange for StepBy<Range<$int>> {
            fn axis_range(&self) -> AxisRange {
                stepped(self.clone().map(|n| n as i64))
            }
        }
        impl SliceRange for StepBy<RangeInclusive<$int>> {
            fn axis_range(&self) -> AxisRange {
                stepped(self.clone().map(|n| n as i64))
            }
        })*
    };
}

slice_ranges! { i32 i64 usize }

/// Parts of the first axes of a tensor: one, or several in a tuple or a list; axes behind them are whole.
pub trait SliceRanges {
    /// The parts in order.
    fn axis_ranges(&self) -> Vec<AxisRange>;
}

impl<R: SliceRange> SliceRanges for R {
    fn axis_ranges(&self) -> Vec<AxisRange> {
        vec![self.axis_range()]
    }
}

impl SliceRanges for Vec<AxisRange> {
    fn axis_ranges(&self) -> Vec<AxisRange> {
        self.clone()
    }
}

impl SliceRanges for &[AxisRange] {
    fn axis_ranges(&self) -> Vec<AxisRange> {
        self.to_vec()
    }
}

macro_rules! tuples_of_ranges {
    ($($($name:ident $k:tt),*;)*) => {
        $(impl<$($name: SliceRange),*> SliceRanges for ($($name,)*) {
            fn axis_ranges(&self) -> Vec<AxisRange> {
                vec![$(self.$k.axis_range()),*]
            }
        })*
    };
}

tuples_of_ranges! {
    A 0;
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, E 4;
    A 0, B 1, C 2, D 3, E 4, F 5;
}

/// A part of an axis of known extent: start, limit and step; and whether it is one element without its axis.
struct AxisPart {
    bounds: [i64; 3],
    dropped: bool,
}

impl Tensor {
    /// A part of each of the first axes, by Rust's ranges.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let x = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
    /// assert_eq!(evaluate(|t| t.constant(x).slice((.., 1..)))?.to_f64s(), [2.0, 3.0, 5.0, 6.0]);
    /// assert_eq!(evaluate(|t| t.constant(x).slice((-1, ..-1)))?.to_f64s(), [4.0, 5.0]);
    /// assert_eq!(evaluate(|t| t.constant(x).slice((0, (0..3).step_by(2))))?.to_f64s(), [1.0, 3.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn slice(&self, ranges: impl SliceRanges) -> Tensor {
        let ranges = ranges.axis_ranges();
        if ranges.len() > self.ty.rank() {
            let m = format!("`slice`: {} ranges for the axes of {}", ranges.len(), self.ty);
            return self.refused(Kind::Shape, m);
        }
        let mut parts = Vec::new();
        for (axis, range) in ranges.iter().enumerate() {
            match self.part(axis, *range) {
                Ok(part) => parts.push(part),
                Err(m) => return self.refused(Kind::Shape, m),
            }
        }
        let whole = |n: &Dim| AxisPart { bounds: [0, extent(*n), 1], dropped: false };
        parts.extend(self.ty.shape[parts.len()..].iter().map(whole));
        let sliced = match self.ty.dims() {
            Some(_) => {
                let list = |k: usize| parts.iter().map(move |p| p.bounds[k]);
                let attrs = Attrs::none()
                    .with_ints("start", list(0))
                    .with_ints("limit", list(1))
                    .with_ints("stride", list(2));
                apply(&self.state, Op::Slice, &[self], attrs, None)
            }
            None => self.pieces(&parts),
        };
        let kept = (0..sliced.ty.rank()).filter(|&d| !parts.get(d).is_some_and(|p| p.dropped));
        let shape: Shape = kept.map(|d| sliced.ty.shape[d]).collect();
        sliced.reshaped(shape)
    }

    /// A slice axis by axis, for shapes with symbols, which the op does not take.
    #[track_caller]
    fn pieces(&self, parts: &[AxisPart]) -> Tensor {
        let mut x = self.clone();
        for (axis, part) in parts.iter().enumerate() {
            let [start, limit, step] = part.bounds;
            let n = extent(self.ty.shape[axis]);
            if (start, limit, step) == (0, n, 1) {
                continue;
            }
            if step != 1 {
                let m = format!("`slice` with steps takes known extents alone, found {}", self.ty);
                return self.refused(Kind::Unsupported, m);
            }
            let sizes = [start, limit - start, n - limit].map(|n| n as u64);
            x = x.split(&sizes, axis).swap_remove(1);
        }
        x
    }

    fn part(&self, axis: usize, range: AxisRange) -> Result<AxisPart, String> {
        let n = self.ty.shape[axis];
        let (start, end, step) = match range {
            AxisRange::At(at) => (at, after(at), 1),
            AxisRange::Span { start, end, step } => (start, end, step),
            AxisRange::EmptySteps => {
                return Err(format!(
                    "`slice`: the steps along axis {axis} of {} are none: a range with steps has an end that is not \
                     negative",
                    self.ty
                ));
            }
        };
        let Some(count) = n.known().map(|n| n as i64) else {
            return match (start, end, step) {
                (0, None, 1) => Ok(AxisPart { bounds: [0, extent(n), 1], dropped: false }),
                _ => Err(format!(
                    "`slice` takes axis {axis} of {} whole: its extent is a symbol",
                    self.ty
                )),
            };
        };
        let place = |at: i64| if at < 0 { at + count } else { at };
        let (first, limit) = (place(start), end.map_or(count, place));
        let dropped = matches!(range, AxisRange::At(_));
        if first < 0 || limit > count || first > limit || step < 1 {
            let shown = match (dropped, end) {
                (true, _) => format!("place {start}"),
                (false, Some(end)) => format!("{start}..{end}"),
                (false, None) => format!("{start}.."),
            };
            return Err(format!("`slice`: {shown} is not in axis {axis} of {}", self.ty));
        }
        Ok(AxisPart { bounds: [first, limit, step], dropped })
    }
}

/// The extent of an axis; symbols have one that nothing reads.
fn extent(n: Dim) -> i64 {
    n.known().map_or(i64::MAX, |n| n as i64)
}
