//! Methods that move elements: shapes, orders of axes, pieces and padding.

use super::math::example;
use super::record::{apply, apply_all};
use super::reduce::{along, over};
use super::{Axes, AxisIndex, Tensor, TensorOperand, Tracer, own_all};
use crate::ir::attrs::Attrs;
use crate::ir::{DType, Dim, Kind, Op, Shape, TensorType};
use std::panic::Location;

/// An extent of a new shape: a number, -1 for what is left, or a [`Dim`].
pub trait NewExtent: Copy {
    /// The extent; `None` for what the others leave.
    ///
    /// # Errors
    /// The number, if it is none.
    fn new_extent(self) -> Result<Option<Dim>, i64>;
}

macro_rules! new_extents {
    ($($int:ty)*) => {
        $(impl NewExtent for $int {
            fn new_extent(self) -> Result<Option<Dim>, i64> {
                match i64::try_from(self) {
                    Ok(-1) => Ok(None),
                    Ok(n) => u64::try_from(n).map(|n| Some(Dim::Const(n))).map_err(|_| n),
                    Err(_) => Err(i64::MAX),
                }
            }
        })*
    };
}

new_extents! { i32 i64 u32 u64 usize }

impl NewExtent for Dim {
    fn new_extent(self) -> Result<Option<Dim>, i64> {
        Ok(Some(self))
    }
}

/// A shape for [`Tensor::reshape`]: an array, slice or vector of extents, `()` for that of a scalar.
pub trait NewShape {
    /// The extents, `None` for what the others leave.
    ///
    /// # Errors
    /// The first number that is no extent.
    fn new_shape(&self) -> Result<Vec<Option<Dim>>, i64>;
}

impl<E: NewExtent> NewShape for &[E] {
    fn new_shape(&self) -> Result<Vec<Option<Dim>>, i64> {
        self.iter().map(|e| e.new_extent()).collect()
    }
}

impl<E: NewExtent, const N: usize> NewShape for [E; N] {
    fn new_shape(&self) -> Result<Vec<Option<Dim>>, i64> {
        self.as_slice().new_shape()
    }
}

impl<E: NewExtent, const N: usize> NewShape for &[E; N] {
    fn new_shape(&self) -> Result<Vec<Option<Dim>>, i64> {
        self.as_slice().new_shape()
    }
}

impl<E: NewExtent> NewShape for Vec<E> {
    fn new_shape(&self) -> Result<Vec<Option<Dim>>, i64> {
        self.as_slice().new_shape()
    }
}

impl NewShape for &Shape {
    fn new_shape(&self) -> Result<Vec<Option<Dim>>, i64> {
        self.as_slice().new_shape()
    }
}

impl NewShape for () {
    fn new_shape(&self) -> Result<Vec<Option<Dim>>, i64> {
        Ok(Vec::new())
    }
}

impl Tensor {
    example! {
        { pub fn reshape(&self, shape: impl NewShape) -> Tensor {
            match self.completed(shape.new_shape()) {
                Ok(shape) => {
                    let ty = TensorType { dtype: self.ty.dtype, shape };
                    apply(&self.state, Op::Reshape, &[self], Attrs::none(), Some(&ty))
                }
                Err(m) => self.refused(Kind::Shape, m),
            }
        } }
        "The same elements in row-major order under another shape; one extent may be -1, for what the others leave, \
         and `()` is the shape of a scalar.",
        "t.constant([1.0, 2.0, 3.0, 4.0]).reshape([2, -1]).sum(0)", "[4.0, 6.0]";

        { pub fn flatten(&self, axes: impl Axes) -> Tensor {
            let Some(at) = self.axes_of(&axes, "flatten") else { return self.clone() };
            if at.windows(2).any(|w| w[1] != w[0] + 1) {
                let m = format!("`flatten` takes axes that are side by side, found {at:?}");
                return self.refused(Kind::Shape, m);
            }
            let first = at.first().copied().unwrap_or(self.ty.rank());
            let dims = &self.ty.shape;
            let mut symbols = at.iter().filter(|&&a| dims[a].known().is_none());
            let known = at.iter().filter_map(|&a| dims[a].known());
            let n = match (symbols.next(), symbols.next()) {
                (None, _) => known.fold(1u64, u64::saturating_mul).into(),
                (Some(&symbol), None) if known.clone().all(|n| n == 1) => dims[symbol],
                _ => {
                    let m = format!("`flatten`: no symbol is the product of axes {at:?} of {}", self.ty);
                    return self.refused(Kind::Shape, m);
                }
            };
            let mut shape: Shape = dims[..first].into();
            shape.push(n);
            shape.extend(dims[first + at.len()..].iter().copied());
            self.reshaped(shape)
        } }
        "Axes side by side as one: all for `..`, all but the batch for `1..`.",
        "t.constant([[[1.0, 2.0]], [[3.0, 4.0]]]).flatten(1..).sum(0)", "[4.0, 6.0]";

        { pub fn expand_dims(&self, axes: impl Axes) -> Tensor {
            let written = axes.written_axes(self.ty.rank());
            let rank = self.ty.rank() + written.len();
            let mut ones = Vec::new();
            for axis in written {
                let Some(at) = self.resolved(axis, rank, "expand_dims") else { return self.clone() };
                if ones.contains(&at) {
                    return self.refused(Kind::Shape, format!("`expand_dims`: axis {axis} twice"));
                }
                ones.push(at);
            }
            let mut mine = self.ty.shape.iter().copied();
            let extent = |d| if ones.contains(&d) { Some(Dim::Const(1)) } else { mine.next() };
            self.reshaped((0..rank).filter_map(extent).collect())
        } }
        "New axes of extent 1, at these places of the result.",
        "t.constant([1.0, 2.0]).expand_dims(-1).broadcast(&[0, 1], &[Dim::Const(2), Dim::Const(2)])",
        "[1.0, 1.0, 2.0, 2.0]";

        { pub fn squeeze(&self, axes: impl Axes) -> Tensor {
            let Some(at) = self.axes_of(&axes, "squeeze") else { return self.clone() };
            if let Some(&a) = at.iter().find(|&&a| self.ty.shape[a] != Dim::Const(1)) {
                let m = format!("`squeeze`: axis {a} of {} has extent {}", self.ty, self.ty.shape[a]);
                return self.refused(Kind::Shape, m);
            }
            let rest = (0..self.ty.rank()).filter(|d| !at.contains(d));
            self.reshaped(rest.map(|d| self.ty.shape[d]).collect())
        } }
        "Without these axes, of extent 1.", "t.constant([[1.0, 2.0]]).squeeze(0)", "[1.0, 2.0]";

        { pub fn transpose(&self, perm: impl Axes) -> Tensor {
            match self.axes_of(&perm, "transpose") {
                Some(at) => {
                    let attrs = Attrs::none().with_ints("perm", at.iter().map(|&p| p as i64));
                    apply(&self.state, Op::Transpose, &[self], attrs, None)
                }
                None => self.clone(),
            }
        } }
        "Result axis i is axis `perm[i]`.",
        "t.constant([[1.0, 2.0], [3.0, 4.0]]).transpose([1, 0])", "[1.0, 3.0, 2.0, 4.0]";

        { pub fn swap_axes(&self, a: impl AxisIndex, b: impl AxisIndex) -> Tensor {
            let (Some(a), Some(b)) = (self.axis_of(a, "swap_axes"), self.axis_of(b, "swap_axes"))
            else {
                return self.clone();
            };
            let mut perm: Vec<usize> = (0..self.ty.rank()).collect();
            perm.swap(a, b);
            self.transpose(perm)
        } }
        "Two axes in each other's places.",
        "t.constant([[1.0, 2.0], [3.0, 4.0]]).swap_axes(0, -1)", "[1.0, 3.0, 2.0, 4.0]";

        { pub fn move_axis(&self, from: impl AxisIndex, to: impl AxisIndex) -> Tensor {
            let (Some(from), Some(to)) = (self.axis_of(from, "move_axis"), self.axis_of(to, "move_axis"))
            else {
                return self.clone();
            };
            let mut perm: Vec<usize> = (0..self.ty.rank()).filter(|&d| d != from).collect();
            perm.insert(to, from);
            self.transpose(perm)
        } }
        "An axis at another place, the others in their order.",
        "t.constant([[1.0, 2.0], [3.0, 4.0]]).move_axis(0, 1)", "[1.0, 3.0, 2.0, 4.0]";

        { pub fn t(&self) -> Tensor {
            self.swap_axes(-2, -1)
        } }
        "The transposed matrix, of each in a batch: the last two axes are swapped.",
        "t.constant([[1.0, 2.0], [3.0, 4.0]]).t()", "[1.0, 3.0, 2.0, 4.0]";

        { pub fn rev(&self, axes: impl Axes) -> Tensor {
            match self.axes_of(&axes, "rev") {
                Some(at) => apply(&self.state, Op::Rev, &[self], over(&at), None),
                None => self.clone(),
            }
        } }
        "The reverse order along axes.", "t.constant([1.0, 2.0]).rev(0)", "[2.0, 1.0]";

        { pub fn tile(&self, counts: &[u64]) -> Tensor {
            let counts = counts.iter().map(|&n| i64::try_from(n).unwrap_or(i64::MAX));
            apply(&self.state, Op::Tile, &[self], Attrs::none().with_ints("counts", counts), None)
        } }
        "The whole this many times along each axis.",
        "t.constant([1.0, 2.0]).tile(&[2])", "[1.0, 2.0, 1.0, 2.0]";

        { pub fn repeat(&self, count: u64, axis: impl AxisIndex) -> Tensor {
            let Some(at) = self.axis_of(axis, "repeat") else { return self.clone() };
            let mut shape = self.ty.shape.clone();
            shape.insert(at + 1, Dim::Const(count));
            let dims: Vec<usize> = (0..shape.len()).filter(|&d| d != at + 1).collect();
            self.broadcast(&dims, &shape).flatten([at, at + 1])
        } }
        "Each element this many times along an axis.",
        "t.constant([1.0, 2.0]).repeat(2, 0)", "[1.0, 1.0, 2.0, 2.0]";

        { pub fn pad(&self, widths: &[(i64, i64)], value: impl TensorOperand) -> Tensor {
            let widths: Vec<_> = widths.iter().map(|&(low, high)| (low, high, 0)).collect();
            self.pad_dilated(&widths, value)
        } }
        "Surrounds with a scalar: before and after each axis; negative widths cut.",
        "t.constant([1.0, 2.0]).pad(&[(1, 2)], 0.0)", "[0.0, 1.0, 2.0, 0.0, 0.0]";

        { pub fn pad_dilated(&self, widths: &[(i64, i64, i64)], value: impl TensorOperand) -> Tensor {
            let value = value.beside(&self.scalar_like());
            let attrs = Attrs::none()
                .with_ints("low", widths.iter().map(|w| w.0))
                .with_ints("high", widths.iter().map(|w| w.1))
                .with_ints("interior", widths.iter().map(|w| w.2));
            apply(&self.state, Op::Pad, &[self, &value], attrs, None)
        } }
        "Surrounds and interleaves with a scalar: before, after and between the elements of each axis.",
        "t.constant([1.0, 2.0]).pad_dilated(&[(1, 0, 2)], 0.0)", "[0.0, 1.0, 0.0, 0.0, 2.0]";

        { pub fn concat(tensors: &[&Tensor], axis: impl AxisIndex) -> Tensor {
            let Some(first) = tensors.first() else { return super::operators::of_no_trace() };
            if !own_all(&first.state, tensors, Location::caller(), "`concat`")
                || !first.one_dtype("concat", tensors)
            {
                return (*first).clone();
            }
            match first.axis_of(axis, "concat") {
                Some(at) => apply(&first.state, Op::Concatenate, tensors, along(at), None),
                None => (*first).clone(),
            }
        } }
        "Tensors one after the other along an axis. No tensors have no trace that an error could go to: using what \
         they give is one.",
        "{ let x = t.constant([1.0, 2.0]); Tensor::concat(&[&x, &x], 0) }", "[1.0, 2.0, 1.0, 2.0]";

        { pub fn stack(tensors: &[&Tensor], axis: impl AxisIndex) -> Tensor {
            let Some(first) = tensors.first() else { return super::operators::of_no_trace() };
            let axis = axis.written();
            let mut parts = Vec::new();
            for x in tensors {
                parts.push(x.expand_dims(axis));
            }
            let parts: Vec<&Tensor> = parts.iter().collect();
            match first.resolved(axis, first.ty.rank() + 1, "stack") {
                Some(at) => Tensor::concat(&parts, at),
                None => (*first).clone(),
            }
        } }
        "Tensors of one type along a new axis.",
        "{ let x = t.constant([1.0, 2.0]); Tensor::stack(&[&x, &-&x], -1) }", "[1.0, -1.0, 2.0, -2.0]";
    }

    /// Pieces of these sizes along `axis`, in order.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| {
    ///     let pieces = t.constant([1.0, 2.0, 3.0]).split(&[1, 2], 0);
    ///     pieces[1].clone()
    /// })?;
    /// assert_eq!(y.to_f64s(), [2.0, 3.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn split(&self, sizes: &[u64], axis: impl AxisIndex) -> Vec<Tensor> {
        let Some(at) = self.axis_of(axis, "split") else { return vec![self.clone(); sizes.len()] };
        let sizes = sizes.iter().map(|&n| i64::try_from(n).unwrap_or(i64::MAX));
        let attrs = Attrs::none().with_ints("sizes", sizes).with_int("axis", at as i64);
        apply_all(&self.state, Op::Split, &[self], attrs, None)
    }

    /// The elements along an axis, each without it.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| {
    ///     let rows = t.constant([[1.0, 2.0], [3.0, 4.0]]).unstack(0);
    ///     &rows[0] * &rows[1]
    /// })?;
    /// assert_eq!(y.to_f64s(), [3.0, 8.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn unstack(&self, axis: impl AxisIndex) -> Vec<Tensor> {
        let Some(at) = self.axis_of(axis, "unstack") else { return Vec::new() };
        let Some(n) = self.ty.shape[at].known() else {
            let m = format!("`unstack`: axis {at} of {} has no known extent", self.ty);
            self.fail(Kind::Shape, m);
            return Vec::new();
        };
        let pieces = if n == 0 { Vec::new() } else { self.split(&vec![1; n as usize], at) };
        let mut out = Vec::new();
        for piece in pieces {
            out.push(piece.squeeze(at));
        }
        out
    }

    /// A scalar of this element type, for numbers to stand beside.
    pub(super) fn scalar_like(&self) -> Tensor {
        Tensor { ty: TensorType::scalar(self.ty.dtype), ..self.clone() }
    }

    /// The shape that is asked for, with what is left over for -1.
    fn completed(&self, asked: Result<Vec<Option<Dim>>, i64>) -> Result<Shape, String> {
        let asked = asked.map_err(|n| format!("`reshape`: {n} is no extent"))?;
        let open = asked.iter().filter(|d| d.is_none()).count();
        if open == 0 {
            return Ok(asked.into_iter().flatten().collect());
        }
        let shown = |d: &Option<Dim>| d.map_or("-1".to_string(), |d| d.to_string());
        let wanted = asked.iter().map(shown).collect::<Vec<_>>().join(", ");
        let wrong = format!("`reshape`: {} has no shape [{wanted}]", self.ty);
        // Symbols that both have cancel; one that is left over alone is the rest.
        let mut symbols: Vec<Dim> =
            self.ty.shape.iter().copied().filter(|d| d.known().is_none()).collect();
        for d in asked.iter().flatten().filter(|d| d.known().is_none()) {
            let at = symbols.iter().position(|s| s == d).ok_or_else(|| wrong.clone())?;
            symbols.remove(at);
        }
        let product = |dims: &mut dyn Iterator<Item = Dim>| {
            dims.filter_map(Dim::known).try_fold(1u64, |a, n| a.checked_mul(n))
        };
        let mine = product(&mut self.ty.shape.iter().copied());
        let theirs = product(&mut asked.iter().copied().flatten());
        let rest = match (mine, theirs, symbols.as_slice()) {
            (Some(n), Some(m), []) if m > 0 && n % m == 0 => Dim::Const(n / m),
            (Some(n), Some(m), &[symbol]) if n == m => symbol,
            _ => return Err(wrong),
        };
        match open {
            1 => Ok(asked.into_iter().map(|d| d.unwrap_or(rest)).collect()),
            _ => Err(format!("`reshape`: -1 stands twice in [{wanted}]")),
        }
    }
}

impl Tracer {
    /// As [`Tensor::concat`].
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| t.concat(&[&t.zeros(f32s([1])), &t.ones(f32s([2]))], 0))?;
    /// assert_eq!(y.to_f64s(), [0.0, 1.0, 1.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    pub fn concat(&self, tensors: &[&Tensor], axis: impl AxisIndex) -> Tensor {
        if tensors.is_empty() {
            self.fail(Location::caller(), Kind::Arity, "`concat` takes one tensor at least".into());
            return self.zeros(TensorType::scalar(DType::F32));
        }
        Tensor::concat(tensors, axis)
    }
}
