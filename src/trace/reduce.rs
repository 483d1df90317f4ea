//! Reductions over axes, running folds along one, and statistics.

use super::math::example;
use super::record::apply;
use super::{Axes, AxisIndex, Tensor, record};
use crate::ir::attrs::{Attr, Attrs};
use crate::ir::{DType, Dim, Kind, Literal, Op, Shape, TensorType};

/// The attribute that names axes.
pub(super) fn over(axes: &[usize]) -> Attrs {
    Attrs::none().with_ints("axes", axes.iter().map(|&a| a as i64))
}

/// The attribute that names an axis.
pub(super) fn along(axis: usize) -> Attrs {
    Attrs::none().with_int("axis", axis as i64)
}

macro_rules! reductions {
    ($($name:ident $op:ident $says:literal $x:literal $axes:literal $y:literal;)*) => {
        impl Tensor {
            $(example! {
                { pub fn $name(&self, axes: impl Axes) -> Tensor {
                    match self.axes_of(&axes, stringify!($name)) {
                        Some(at) => self.fold(Op::$op, &at).kept(self, &at, axes.are_kept()),
                        None => self.clone(),
                    }
                } }
                $says, concat!("t.constant(", $x, ").", stringify!($name), "(", $axes, ")"), $y;
            })*
        }
    };
}

reductions! {
    sum ReduceSum "Sum over axes." "[[1.0, 2.0], [3.0, 4.0]]" "0" "[4.0, 6.0]";
    prod ReduceProd "Product over axes." "[[1.0, 2.0], [3.0, 4.0]]" "-1" "[2.0, 12.0]";
    max_over ReduceMax "Maximum over axes; ties share the derivative equally." "[[1.0, 2.0], [3.0, 4.0]]" "-1" "[2.0, 4.0]";
    min_over ReduceMin "Minimum over axes; ties share the derivative equally." "[[1.0, 2.0], [3.0, 4.0]]" "-1" "[1.0, 3.0]";
    all ReduceAnd "Whether all of `bool` elements hold; of integers the conjunction of bits." "[[true, false], [true, true]]" "-1" "[0.0, 1.0]";
    any ReduceOr "Whether one of `bool` elements holds; of integers the disjunction of bits." "[[true, false], [false, false]]" "-1" "[1.0, 0.0]";
}

macro_rules! positions {
    ($($name:ident $op:ident $says:literal $y:literal;)*) => {
        impl Tensor {
            $(example! {
                { pub fn $name(&self, axis: impl AxisIndex) -> Tensor {
                    match self.axis_of(axis, stringify!($name)) {
                        Some(at) => apply(&self.state, Op::$op, &[self], along(at), None),
                        None => self.clone(),
                    }
                } }
                $says, concat!("t.constant([[1.0, 5.0, 3.0], [9.0, 2.0, 9.0]]).", stringify!($name), "(-1)"), $y;
            })*
        }
    };
}

positions! {
    argmax Argmax "Place of the first maximum along an axis, `i32`; NaN counts as the largest." "[1.0, 0.0]";
    argmin Argmin "Place of the first minimum along an axis, `i32`; NaN counts as the smallest." "[0.0, 1.0]";
    argsort Argsort "Places of the elements along an axis in ascending order, `i32`: equal ones as they come, NaN after all numbers." "[0.0, 2.0, 1.0, 1.0, 0.0, 2.0]";
    sort Sort "The elements along an axis in ascending order, NaN after all numbers." "[1.0, 3.0, 5.0, 2.0, 9.0, 9.0]";
}

macro_rules! running {
    ($($name:ident $reverse:ident $op:ident $what:literal $y:literal $back:literal;)*) => {
        impl Tensor {
            $(example! {
                { pub fn $name(&self, axis: impl AxisIndex) -> Tensor {
                    self.running(Op::$op, axis, false)
                } }
                concat!("Running ", $what, " along an axis."),
                concat!("t.constant([1.0, 3.0, 2.0]).", stringify!($name), "(0)"), $y;

                { pub fn $reverse(&self, axis: impl AxisIndex) -> Tensor {
                    self.running(Op::$op, axis, true)
                } }
                concat!("Running ", $what, " along an axis, from its end."),
                concat!("t.constant([1.0, 3.0, 2.0]).", stringify!($reverse), "(0)"), $back;
            })*
        }
    };
}

running! {
    cumsum reverse_cumsum Cumsum "sum" "[1.0, 4.0, 6.0]" "[6.0, 5.0, 2.0]";
    cumprod reverse_cumprod Cumprod "product" "[1.0, 3.0, 6.0]" "[6.0, 6.0, 2.0]";
    cummax reverse_cummax Cummax "maximum" "[1.0, 3.0, 3.0]" "[3.0, 3.0, 2.0]";
    cummin reverse_cummin Cummin "minimum" "[1.0, 1.0, 1.0]" "[1.0, 2.0, 2.0]";
}

impl Tensor {
    example! {
        { pub fn cumlogsumexp(&self, axis: impl AxisIndex) -> Tensor {
            self.running(Op::Cumlogsumexp, axis, false)
        } }
        "Running `log(sum(e^x))` along an axis.",
        "t.constant([0.0, 0.0, 0.0]).cumlogsumexp(0).exp().round()", "[1.0, 2.0, 3.0]";

        { pub fn reverse_cumlogsumexp(&self, axis: impl AxisIndex) -> Tensor {
            self.running(Op::Cumlogsumexp, axis, true)
        } }
        "Running `log(sum(e^x))` along an axis, from its end.",
        "t.constant([0.0, 0.0, 0.0]).reverse_cumlogsumexp(0).exp().round()", "[3.0, 2.0, 1.0]";

        { pub fn mean(&self, axes: impl Axes) -> Tensor {
            match self.axes_of(&axes, "mean") {
                Some(at) if self.has_floats("mean") => {
                    let mean = self.compute().mean_at(&at).kept(self, &at, axes.are_kept());
                    mean.stored_as(self)
                }
                _ => self.clone(),
            }
        } }
        "Mean over axes of floats. Types of 16 bits are summed in `f32`. Extents may be symbols.",
        "t.constant([[1.0, 2.0], [3.0, 6.0]]).mean(..)", "[3.0]";

        { pub fn var(&self, axes: impl Axes) -> Tensor {
            match self.axes_of(&axes, "var") {
                Some(at) if self.has_floats("var") => {
                    let var = self.compute().var_at(&at).1.kept(self, &at, axes.are_kept());
                    var.stored_as(self)
                }
                _ => self.clone(),
            }
        } }
        "Variance over axes: the mean of the squares of the deviations from the mean, as NumPy's `var`.",
        "t.constant([1.0, 3.0]).var(0)", "[1.0]";

        { pub fn std(&self, axes: impl Axes) -> Tensor {
            self.var(axes).sqrt()
        } }
        "Standard deviation over axes, the square root of [`Tensor::var`].",
        "t.constant([1.0, 5.0]).std(0)", "[2.0]";

        { pub fn logsumexp(&self, axes: impl Axes) -> Tensor {
            match self.axes_of(&axes, "logsumexp") {
                Some(at) if self.has_floats("logsumexp") => {
                    let x = self.compute();
                    let top = x.fold(Op::ReduceMax, &at).stop_gradient();
                    // An infinite maximum is no shift: the difference would be NaN.
                    let top = top.is_finite().select(&top, 0.0);
                    let sum = (&x - top.spread_at(&at, &x)).exp().fold(Op::ReduceSum, &at);
                    (sum.log() + top).kept(self, &at, axes.are_kept()).stored_as(self)
                }
                _ => self.clone(),
            }
        } }
        "`log(sum(e^x))` over axes, shifted by the maximum so that nothing overflows.",
        "t.constant([1000.0, -1000.0]).logsumexp(0)", "[1000.0]";

        { pub fn norm(&self, axes: impl Axes) -> Tensor {
            self.square().sum(axes).sqrt()
        } }
        "Euclidean norm over axes; its derivative at 0 is not finite.",
        "t.constant([3.0, 4.0]).norm(0)", "[5.0]";

        { pub fn count(&self, axes: impl Axes) -> Tensor {
            let Some(at) = self.axes_of(&axes, "count") else { return self.clone() };
            self.elements_at(&at)
        } }
        "How many elements the axes have together, an `i64` scalar; extents may be symbols.",
        "t.zeros(f32s([2, 3, 4])).count([0, -1])", "[8.0]";
    }

    /// The reduction over axes that are resolved.
    #[track_caller]
    pub(super) fn fold(&self, op: Op, at: &[usize]) -> Tensor {
        apply(&self.state, op, &[self], over(at), None)
    }

    /// A reduction of `whole` over axes, which are put back with extent 1 if they are to be kept.
    #[track_caller]
    pub(super) fn kept(self, whole: &Tensor, at: &[usize], keep: bool) -> Tensor {
        if !keep {
            return self;
        }
        let mut shape = whole.ty.shape.clone();
        at.iter().for_each(|&a| shape[a] = Dim::Const(1));
        self.reshaped(shape)
    }

    #[track_caller]
    pub(super) fn reshaped(&self, shape: Shape) -> Tensor {
        let ty = TensorType { dtype: self.ty.dtype, shape };
        if ty == self.ty {
            return self.clone();
        }
        apply(&self.state, Op::Reshape, &[self], Attrs::none(), Some(&ty))
    }

    /// The tensor in the type that arithmetic on it runs in: sums of 16-bit floats lose less in `f32`.
    #[track_caller]
    pub(crate) fn compute(&self) -> Tensor {
        self.convert(self.ty.dtype.compute())
    }

    /// A result in the element type of the operand.
    #[track_caller]
    pub(super) fn stored_as(self, operand: &Tensor) -> Tensor {
        self.convert(operand.ty.dtype)
    }

    #[track_caller]
    pub(super) fn mean_at(&self, at: &[usize]) -> Tensor {
        let sum = self.fold(Op::ReduceSum, at);
        let known = at.iter().map(|&a| self.ty.shape[a].known());
        match known.collect::<Option<Vec<u64>>>() {
            Some(extents) => sum / extents.iter().map(|&n| n as f64).product::<f64>(),
            None => sum / self.elements_at(at).convert(self.ty.dtype),
        }
    }

    /// The deviations from the mean, and the mean of their squares.
    #[track_caller]
    pub(super) fn var_at(&self, at: &[usize]) -> (Tensor, Tensor) {
        let centred = self - self.mean_at(at).spread_at(at, self);
        let var = centred.square().mean_at(at);
        (centred, var)
    }

    /// How many elements axes have together. No op gives a symbol's extent; a sum of ones has it, exact in `i64`.
    #[track_caller]
    fn elements_at(&self, at: &[usize]) -> Tensor {
        let (mut known, mut open) = (1i64, Shape::new());
        for &a in at {
            match self.ty.shape[a] {
                Dim::Const(n) => known = known.saturating_mul(n as i64),
                symbol => open.push(symbol),
            }
        }
        let ty = TensorType { dtype: DType::I64, shape: open };
        let all: Vec<usize> = (0..ty.rank()).collect();
        let one = Literal::from_i64(DType::I64, known);
        let filled = record(&self.state, &ty, |s| {
            let l = s.b.literal(&ty, one);
            Some(s.b.materialize(l))
        });
        if all.is_empty() { filled } else { filled.fold(Op::ReduceSum, &all) }
    }

    #[track_caller]
    fn running(&self, op: Op, axis: impl AxisIndex, reverse: bool) -> Tensor {
        match self.axis_of(axis, op.name()) {
            Some(at) => {
                let attrs = along(at).with("reverse", Attr::Bool(reverse));
                apply(&self.state, op, &[self], attrs, None)
            }
            None => self.clone(),
        }
    }

    /// The elements along `axis` in ascending order, and `values`, of the same shape, in that order too.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| {
    ///     let keys = t.constant([3.0, 1.0, 2.0]);
    ///     keys.sort_key_val(&t.constant([30.0, 10.0, 20.0]), 0).1
    /// })?;
    /// assert_eq!(y.to_f64s(), [10.0, 20.0, 30.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn sort_key_val(&self, values: &Tensor, axis: impl AxisIndex) -> (Tensor, Tensor) {
        let results = match self.axis_of(axis, "sort_key_val") {
            Some(at) => super::record::apply_all(
                &self.state,
                Op::SortKeyVal,
                &[self, values],
                along(at),
                None,
            ),
            None => Vec::new(),
        };
        self.pair(results)
    }

    /// The `k` largest elements along the last axis, largest first, and their places, `i32`: of equal ones the
    /// first, NaN before all numbers.
    ///
    /// ```
    /// # use adfuse::prelude::*;
    /// let y = evaluate(|t| t.constant([3.0, 1.0, 2.0]).top_k(2).0)?;
    /// assert_eq!(y.to_f64s(), [3.0, 2.0]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn top_k(&self, k: u64) -> (Tensor, Tensor) {
        if self.ty.rank() == 0 {
            self.fail(Kind::Shape, format!("`top_k`: {} has no last axis", self.ty));
        }
        // What is too large for the attribute is too large for any axis.
        let attrs = Attrs::none().with_int("k", i64::try_from(k).unwrap_or(i64::MAX));
        self.pair(super::record::apply_all(&self.state, Op::TopK, &[self], attrs, None))
    }
}
