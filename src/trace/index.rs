//! Indirect access: elements and slices at places that tensors hold.

use super::math::example;
use super::record::apply;
use super::{AxisIndex, Tensor};
use crate::ir::attrs::{Attr, Attrs};
use crate::ir::{DType, Dim, Kind, Op, TensorType};

macro_rules! scatters {
    ($($name:ident $op:ident $says:literal $y:literal;)*) => {
        impl Tensor {
            $(example! {
                { pub fn $name(&self, indices: &Tensor, updates: &Tensor) -> Tensor {
                    self.scattered(Op::$op, indices, updates)
                } }
                concat!($says, " The last axis of `indices` holds coordinates on the first axes of this tensor; \
                    `updates` has a slice over the other axes for each. Those whose index is outside are left out."),
                concat!(
                    "t.constant([5.0, 5.0, 5.0]).", stringify!($name),
                    "(&t.constant([[0], [2], [9]]), &t.constant([1.0, 7.0, 8.0]))"
                ),
                $y;
            })*
        }
    };
}

scatters! {
    scatter Scatter "With slices put at places: of several at one place the last stays." "[1.0, 5.0, 7.0]";
    scatter_add ScatterAdd "With slices added at places, in their order." "[6.0, 5.0, 12.0]";
    scatter_max ScatterMax "With the larger of an element and the slices at its place." "[5.0, 5.0, 7.0]";
    scatter_min ScatterMin "With the smaller of an element and the slices at its place." "[1.0, 5.0, 5.0]";
}

impl Tensor {
    example! {
        { pub fn take(&self, indices: &Tensor, axis: impl AxisIndex) -> Tensor {
            let (Some(at), Some(sizes)) = (self.axis_of(axis, "take"), self.known_sizes("take"))
            else {
                return self.clone();
            };
            let places = indices.expand_dims(-1);
            let n = indices.ty.rank();
            let offset = (0..at).chain(at + n..self.ty.rank() - 1 + n);
            let size = |(d, n)| if d == at { 1 } else { n };
            let attrs = Attrs::none()
                .with_ints("offset_dims", offset.map(|d| d as i64))
                .with_ints("collapsed", [at as i64])
                .with_ints("start_map", [at as i64])
                .with_ints("sizes", sizes.into_iter().enumerate().map(size))
                .with("mode", Attr::Word("fill"));
            apply(&self.state, Op::Gather, &[self, &places], attrs, None)
        } }
        "The slices of an axis at integer places: the axis is replaced by those of `indices`. What is outside is \
         NaN, of integers the least (unsigned: greatest) number; places do not count from the end.",
        "t.constant([[1.0, 2.0], [3.0, 4.0]]).take(&t.constant([1, 0, 1]), 0)",
        "[3.0, 4.0, 1.0, 2.0, 3.0, 4.0]";

        { pub fn take_along_axis(&self, indices: &Tensor, axis: impl AxisIndex) -> Tensor {
            let Some(at) = self.axis_of(axis, "take_along_axis") else { return self.clone() };
            let (mine, theirs) = (&self.ty, &indices.ty);
            let fits = |d: usize| d == at || mine.shape[d] == theirs.shape[d];
            if mine.rank() != theirs.rank() || !(0..mine.rank()).all(fits) {
                let m = format!("`take_along_axis`: {mine} and {theirs} differ not only in axis {at}");
                return self.refused(Kind::Shape, m);
            }
            // Coordinates on all axes: the given one, and the place itself on the others.
            let mut coordinates = Vec::new();
            for d in 0..mine.rank() {
                let own = || self.tracer().iota(theirs.clone(), d);
                let along = if d == at { indices.clone() } else { own() };
                coordinates.push(along.expand_dims(-1));
            }
            let coordinates: Vec<&Tensor> = coordinates.iter().collect();
            self.gather(&Tensor::concat(&coordinates, -1))
        } }
        "For each element of `indices` the one at that place along an axis, where it is on the others.",
        "t.constant([[1.0, 2.0], [3.0, 4.0]]).take_along_axis(&t.constant([[1], [0]]), 1)", "[2.0, 3.0]";

        { pub fn gather(&self, indices: &Tensor) -> Tensor {
            let (Some((depth, batch)), Some(sizes)) =
                (self.index_depth(indices, "gather"), self.known_sizes("gather"))
            else {
                return self.clone();
            };
            let offset = batch..batch + self.ty.rank() - depth;
            let first = 0..depth as i64;
            let size = |(d, n)| if d < depth { 1 } else { n };
            let attrs = Attrs::none()
                .with_ints("offset_dims", offset.map(|d| d as i64))
                .with_ints("collapsed", first.clone())
                .with_ints("start_map", first)
                .with_ints("sizes", sizes.into_iter().enumerate().map(size))
                .with("mode", Attr::Word("fill"));
            apply(&self.state, Op::Gather, &[self, indices], attrs, None)
        } }
        "The slices at places: the last axis of `indices` holds coordinates on the first axes. What is outside is \
         NaN, of integers the least (unsigned: greatest) number.",
        "t.constant([[1.0, 2.0], [3.0, 4.0]]).gather(&t.constant([[1, 1], [0, 1]]))", "[4.0, 2.0]";

        { pub fn dynamic_slice(&self, starts: &[&Tensor], sizes: &[u64]) -> Tensor {
            let sizes = sizes.iter().map(|&n| i64::try_from(n).unwrap_or(i64::MAX));
            let operands = [&[self], starts].concat();
            let attrs = Attrs::none().with_ints("sizes", sizes);
            apply(&self.state, Op::DynamicSlice, &operands, attrs, None)
        } }
        "The slice of these sizes at scalar integer places, one for each axis, which are clamped to fit.",
        "t.constant([1.0, 2.0, 3.0]).dynamic_slice(&[&t.constant(7)], &[2])", "[2.0, 3.0]";

        { pub fn dynamic_update_slice(&self, update: &Tensor, starts: &[&Tensor]) -> Tensor {
            let operands = [&[self, update], starts].concat();
            apply(&self.state, Op::DynamicUpdateSlice, &operands, Attrs::none(), None)
        } }
        "With `update` written at scalar integer places, one for each axis, which are clamped to fit.",
        "t.constant([1.0, 2.0, 3.0]).dynamic_update_slice(&t.constant([9.0]), &[&t.constant(1)])",
        "[1.0, 9.0, 3.0]";

        { pub fn segment_sum(&self, segments: &Tensor, count: u64) -> Tensor {
            let mut shape = self.ty.shape.clone();
            if shape.is_empty() {
                return self.refused(Kind::Shape, "`segment_sum`: a scalar has no slices".into());
            }
            shape[0] = Dim::Const(count);
            let sums = self.tracer().zeros(TensorType { dtype: self.ty.dtype, shape });
            sums.scatter_add(&segments.expand_dims(-1), self)
        } }
        "Sums of the slices of the first axis that belong to one segment: `segments` has a number for each slice. Those whose \
         number is not below `count` are left out.",
        "t.constant([1.0, 2.0, 4.0]).segment_sum(&t.constant([1, 0, 1]), 3)", "[2.0, 5.0, 0.0]";

        { pub fn one_hot(&self, classes: u64, dtype: DType) -> Tensor {
            if !self.ty.dtype.is_int() {
                let m = format!("`one_hot` takes integers, found {}", self.ty);
                return self.refused(Kind::DType, m);
            }
            let mut shape = self.ty.shape.clone();
            shape.push(Dim::Const(classes));
            let ty = TensorType { dtype: self.ty.dtype, shape };
            let class = self.tracer().iota(ty, -1);
            class.eq(self.spread(-1, &class)).convert(dtype)
        } }
        "1 at the place that each integer says along a new last axis, and 0 elsewhere; all 0 for other integers.",
        "t.constant([2, 0]).one_hot(3, DType::F32)", "[0.0, 0.0, 1.0, 1.0, 0.0, 0.0]";

        { pub fn tril(&self) -> Tensor {
            self.triangle(Op::Ge)
        } }
        "The lower triangle of the last two axes, zeros above the diagonal.",
        "t.ones(f32s([2, 2])).tril()", "[1.0, 0.0, 1.0, 1.0]";

        { pub fn triu(&self) -> Tensor {
            self.triangle(Op::Le)
        } }
        "The upper triangle of the last two axes, zeros below the diagonal.",
        "t.ones(f32s([2, 2])).triu()", "[1.0, 1.0, 0.0, 1.0]";
    }

    #[track_caller]
    fn triangle(&self, order: Op) -> Tensor {
        let what = if order == Op::Ge { "tril" } else { "triu" };
        let (Some(row), Some(column)) = (self.axis_of(-2, what), self.axis_of(-1, what)) else {
            return self.clone();
        };
        let places = self.ty.with_dtype(DType::I64);
        let t = self.tracer();
        let inside = t.iota(places.clone(), row).binary(order, &t.iota(places, column));
        inside.select(self, self.zeros_like())
    }

    #[track_caller]
    fn scattered(&self, op: Op, indices: &Tensor, updates: &Tensor) -> Tensor {
        let what = op.name();
        let Some((depth, batch)) = self.index_depth(indices, what) else { return self.clone() };
        if !self.one_dtype(what, &[self, updates]) {
            return self.clone();
        }
        let window = batch..batch + self.ty.rank() - depth;
        let first = 0..depth as i64;
        let attrs = Attrs::none()
            .with_ints("window_dims", window.map(|d| d as i64))
            .with_ints("inserted", first.clone())
            .with_ints("start_map", first)
            .with("mode", Attr::Word("drop"));
        apply(&self.state, op, &[self, indices, updates], attrs, None)
    }

    /// How many axes the indices name, and how many axes of theirs are a batch.
    #[track_caller]
    fn index_depth(&self, indices: &Tensor, what: &str) -> Option<(usize, usize)> {
        let last = indices.ty.shape.last().and_then(|d| d.known());
        let depth = last.and_then(|n| usize::try_from(n).ok()).filter(|&n| n <= self.ty.rank());
        if depth.is_none() || !indices.ty.dtype.is_int() {
            let m = format!(
                "`{what}` of {} takes integer indices whose last axis holds at most {} coordinates, found {}",
                self.ty,
                self.ty.rank(),
                indices.ty
            );
            self.fail(Kind::Shape, m);
            return None;
        }
        Some((depth?, indices.ty.rank() - 1))
    }

    /// The extents, which have to be known.
    #[track_caller]
    fn known_sizes(&self, what: &str) -> Option<Vec<i64>> {
        let dims = self.ty.dims();
        if dims.is_none() {
            let m = format!("`{what}` takes known extents, found {}", self.ty);
            self.fail(Kind::Unsupported, m);
        }
        Some(dims?.iter().map(|&n| n as i64).collect())
    }
}
