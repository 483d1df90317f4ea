//! Broadcasting: which shapes combine, and the operands of arithmetic under one shape.
//!
//! An operand of lower rank is aligned with the last axes of the other and is stretched to it: its extents are
//! those of the other, or 1. Operands of equal rank are both stretched where one has extent 1. So every axis of
//! the result comes from the operand of higher rank: `[n]` and `[n, 1]` do not combine, which under NumPy's rule
//! would silently give `[n, n]`.

use super::record::apply;
use super::{Axes, Tensor, own_all, record};
use crate::ir::attrs::Attrs;
use crate::ir::{Dim, Kind, Op, Shape, TensorType};
use std::panic::Location;

/// The shape of two operands together, or the axis of the first, from its last one (-1), where they do not fit.
fn joined(a: &[Dim], b: &[Dim]) -> Result<Shape, i64> {
    let (long, short) = if a.len() < b.len() { (b, a) } else { (a, b) };
    let ahead = long.len() - short.len();
    let one = Dim::Const(1);
    let mut out: Shape = long.into();
    for (d, &n) in short.iter().enumerate() {
        let m = &mut out[ahead + d];
        match () {
            () if *m == n || n == one => {}
            () if *m == one && ahead == 0 => *m = n,
            () => return Err(d as i64 - short.len() as i64),
        }
    }
    Ok(out)
}

impl Tensor {
    /// The operands under one shape; `None`, after an error that shows their types, where they do not combine.
    #[track_caller]
    pub(super) fn aligned<const N: usize>(
        &self,
        what: &str,
        operands: [&Tensor; N],
    ) -> Option<[Tensor; N]> {
        let place = Location::caller();
        if !own_all(&self.state, &operands, place, &format!("`{what}`")) {
            return None;
        }
        let mut shape = operands[0].ty.shape.clone();
        for x in operands {
            match joined(&shape, &x.ty.shape) {
                Ok(all) => shape = all,
                Err(axis) => {
                    self.fail(Kind::Shape, mismatch(what, &operands, axis));
                    return None;
                }
            }
        }
        let mut out = operands.map(Tensor::clone);
        for x in &mut out {
            *x = x.stretched(&shape);
        }
        Some(out)
    }

    /// Whether the operands have one element type; an error that says how to convert if not.
    #[track_caller]
    pub(super) fn one_dtype(&self, what: &str, operands: &[&Tensor]) -> bool {
        let Some(other) = operands.iter().find(|x| x.ty.dtype != operands[0].ty.dtype) else {
            return true;
        };
        let (a, b) = (&operands[0].ty, &other.ty);
        let to = if b.dtype.is_float() && !a.dtype.is_float() { b.dtype } else { a.dtype };
        let m = format!(
            "`{what}`: {a} and {b} have two element types: convert one, `.convert(DType::{to:?})`"
        );
        self.fail(Kind::DType, m);
        false
    }

    /// The op of two operands of one element type, under one shape.
    #[track_caller]
    pub(super) fn binary(&self, op: Op, other: &Tensor) -> Tensor {
        let what = op.name();
        let own = own_all(&self.state, &[other], Location::caller(), &format!("`{what}`"));
        if !own || !self.one_dtype(what, &[self, other]) {
            return self.clone();
        }
        match self.aligned(what, [self, other]) {
            Some([a, b]) => apply(&self.state, op, &[&a, &b], Attrs::none(), None),
            None => self.clone(),
        }
    }

    /// This tensor under a shape that it combines with.
    #[track_caller]
    pub(super) fn stretched(&self, shape: &[Dim]) -> Tensor {
        let ty = TensorType::new(self.ty.dtype, shape.iter().copied());
        if self.ty == ty {
            return self.clone();
        }
        // A number has the type that its place demands.
        let literal = match self.state.borrow().as_ref() {
            Some(s) if s.error.is_none() => s.b.func().literal(self.value),
            _ => None,
        };
        if let Some(l) = literal {
            return record(&self.state, &ty, |s| Some(s.b.literal(&ty, l)));
        }
        let first = shape.len().saturating_sub(self.ty.rank());
        let dims: Vec<usize> = (first..shape.len()).collect();
        self.broadcast(&dims, shape)
    }

    /// Axis i becomes axis `dims[i]` of `shape`, in ascending order; it repeats along the others, and along its own
    /// where it has extent 1.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| t.constant([1.0, 2.0]).broadcast(&[0], &[Dim::Const(2), Dim::Const(3)]))?;
    /// assert_eq!(y.to_f64s(), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn broadcast(&self, dims: &[usize], shape: &[Dim]) -> Tensor {
        let ty = TensorType::new(self.ty.dtype, shape.iter().copied());
        let attrs = Attrs::none().with_ints("dims", dims.iter().map(|&d| d as i64));
        apply(&self.state, Op::BroadcastInDim, &[self], attrs, Some(&ty))
    }

    /// Repeats along leading axes to the shape of `other`: this tensor's axes are its last ones.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| t.constant([1.0, 2.0]).broadcast_like(&t.zeros(f32s([2, 2]))))?;
    /// assert_eq!(y.to_f64s(), [1.0, 2.0, 1.0, 2.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn broadcast_like(&self, other: &Tensor) -> Tensor {
        own_all(&self.state, &[other], Location::caller(), "`broadcast_like`");
        let (mine, theirs) = (self.ty.rank(), &other.ty);
        let first = theirs.rank().saturating_sub(mine);
        let dims: Vec<usize> = (first..first + mine).collect();
        self.broadcast(&dims, &theirs.shape)
    }

    /// Puts back the axes that a reduction of `other` over `axes` removed, repeating along them.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| {
    ///     let x = t.constant([[1.0, 2.0], [3.0, 4.0]]);
    ///     x.sum(1).spread(1, &x)
    /// })?;
    /// assert_eq!(y.to_f64s(), [3.0, 3.0, 7.0, 7.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn spread(&self, axes: impl Axes, other: &Tensor) -> Tensor {
        if !own_all(&self.state, &[other], Location::caller(), "`spread`") {
            return self.clone();
        }
        match other.axes_of(&axes, "spread") {
            Some(at) => self.spread_at(&at, other),
            None => self.clone(),
        }
    }

    #[track_caller]
    pub(super) fn spread_at(&self, at: &[usize], other: &Tensor) -> Tensor {
        let dims: Vec<usize> = (0..other.ty.rank()).filter(|d| !at.contains(d)).collect();
        self.broadcast(&dims, &other.ty.shape)
    }
}

fn mismatch(what: &str, operands: &[&Tensor], axis: i64) -> String {
    let types: Vec<String> = operands.iter().map(|x| x.ty.to_string()).collect();
    let extent = |x: &&Tensor| {
        let at = x.ty.rank() as i64 + axis;
        usize::try_from(at).ok().map(|at| x.ty.shape[at].to_string())
    };
    let extents: Vec<String> = operands.iter().filter_map(extent).collect();
    format!(
        "`{what}`: {} do not combine: axis {axis} has the extents {}",
        types.join(" and "),
        extents.join(" and ")
    )
}
