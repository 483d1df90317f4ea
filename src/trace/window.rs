//! Windows: convolutions, pooling and their general forms.

use super::math::example;
use super::record::apply;
use super::window_options::{Conv, ConvGeneral, Padding, Pool, ReduceWindow};
use super::{Axes, Tensor, TensorOperand};
use crate::ir::attrs::{Attr, Attrs};
use crate::ir::{Kind, Op};

macro_rules! poolings {
    ($($name:ident $op:ident $says:literal $y:literal;)*) => {
        impl Tensor {
            $(example! {
                { pub fn $name(&self, windows: &ReduceWindow) -> Tensor {
                    apply(&self.state, Op::$op, &[self], windows.attrs(), None)
                } }
                concat!($says, " over windows, with an entry for every axis; see [`Tensor::max_pool2d`] for images."),
                concat!(
                    "t.constant([1.0, 4.0, 2.0]).", stringify!($name),
                    "(&ReduceWindow { window: vec![2], ..Default::default() })"
                ),
                $y;
            })*
        }
    };
}

poolings! {
    reduce_window_sum ReduceWindowSum "Sum" "[5.0, 6.0]";
    reduce_window_max ReduceWindowMax "Maximum" "[4.0, 4.0]";
    reduce_window_min ReduceWindowMin "Minimum" "[1.0, 2.0]";
}

impl Tensor {
    example! {
        { pub fn conv1d(&self, kernel: &Tensor, conv: &Conv) -> Tensor {
            self.convolved(kernel, conv, 1, "conv1d")
        } }
        "Convolution (correlation) of `[batch, channels, length]` with a kernel `[outputs, channels / groups, length]`.",
        "t.constant([[[1.0, 2.0, 4.0]]]).conv1d(&t.constant([[[1.0, 10.0]]]), &Conv::valid())", "[21.0, 42.0]";

        { pub fn conv2d(&self, kernel: &Tensor, conv: &Conv) -> Tensor {
            self.convolved(kernel, conv, 2, "conv2d")
        } }
        "Convolution (correlation) of `[batch, channels, height, width]` with a kernel \
         `[outputs, channels / groups, height, width]`.",
        "t.ones(f32s([1, 1, 2, 2])).conv2d(&t.ones(f32s([1, 1, 3, 3])), &Conv::same())", "[4.0, 4.0, 4.0, 4.0]";

        { pub fn conv3d(&self, kernel: &Tensor, conv: &Conv) -> Tensor {
            self.convolved(kernel, conv, 3, "conv3d")
        } }
        "Convolution (correlation) of `[batch, channels, depth, height, width]`.",
        "t.ones(f32s([1, 1, 1, 1, 2])).conv3d(&t.ones(f32s([1, 1, 1, 1, 2])), &Conv::valid())", "[2.0]";

        { pub fn max_pool2d(&self, pool: impl Into<Pool>) -> Tensor {
            match self.pooling(&pool.into(), "max_pool2d") {
                Some(windows) => self.reduce_window_max(&windows),
                None => self.clone(),
            }
        } }
        "Maximum over windows of `[batch, channels, height, width]`; ties share the derivative equally.",
        "t.constant([[[[1.0, 2.0], [4.0, 3.0]]]]).max_pool2d(2)", "[4.0]";

        { pub fn avg_pool2d(&self, pool: impl Into<Pool>) -> Tensor {
            match self.pooling(&pool.into(), "avg_pool2d") {
                Some(windows) if self.has_floats("avg_pool2d") => {
                    let x = self.compute();
                    let sum = x.reduce_window_sum(&windows);
                    let padded = windows.low.iter().chain(&windows.high).any(|&n| n != 0);
                    let mean = if padded {
                        // Padding has no part in the mean.
                        let mut ones = x.ty();
                        ones.shape[..2].fill(1.into());
                        sum / self.tracer().ones(ones).reduce_window_sum(&windows)
                    } else {
                        sum / windows.window.iter().product::<i64>()
                    };
                    mean.stored_as(self)
                }
                _ => self.clone(),
            }
        } }
        "Mean over windows of `[batch, channels, height, width]`, of those elements that are no padding.",
        "t.constant([[[[1.0, 2.0], [4.0, 5.0]]]]).avg_pool2d(2)", "[3.0]";

        { pub fn conv_general_dilated(&self, kernel: &Tensor, conv: &ConvGeneral) -> Tensor {
            let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
            let attrs = Attrs::none()
                .with_ints("strides", conv.strides.clone())
                .with_ints("low", conv.low.clone())
                .with_ints("high", conv.high.clone())
                .with_ints("lhs_dilation", conv.lhs_dilation.clone())
                .with_ints("rhs_dilation", conv.rhs_dilation.clone())
                .with_ints("lhs_spec", conv.lhs_spec.clone())
                .with_ints("rhs_spec", conv.rhs_spec.clone())
                .with_ints("out_spec", conv.out_spec.clone())
                .with_int("feature_group_count", count(conv.feature_groups))
                .with_int("batch_group_count", count(conv.batch_groups));
            apply(&self.state, Op::ConvGeneralDilated, &[self, kernel], attrs, None)
        } }
        "Convolution with all that the op has: dilated operands, layouts, groups of batches. \
         [`Tensor::conv2d`] is for images.",
        "t.constant([[[1.0, 2.0]]]).conv_general_dilated(&t.constant([[[3.0]]]), &ConvGeneral::default())",
        "[3.0, 6.0]";

        { pub fn select_and_scatter_add(
            &self,
            operand: &Tensor,
            windows: &ReduceWindow,
            largest: bool,
        ) -> Tensor {
            let list = |all: &Vec<i64>| all.clone();
            let attrs = Attrs::none()
                .with_ints("window", list(&windows.window))
                .with_ints("strides", list(&windows.strides))
                .with_ints("low", list(&windows.low))
                .with_ints("high", list(&windows.high))
                .with("select", Attr::Word(if largest { "ge" } else { "le" }));
            apply(&self.state, Op::SelectAndScatterAdd, &[self, operand], attrs, None)
        } }
        "Adds each element to the place of the first maximum (or minimum) of its window of `operand`, in zeros; \
         dilations of the windows are not followed.",
        "{ let w = ReduceWindow { window: vec![2], strides: vec![2], ..Default::default() }; \
         t.constant([7.0]).select_and_scatter_add(&t.constant([1.0, 3.0]), &w, true) }",
        "[0.0, 7.0]";

        { pub fn windows(&self, axes: impl Axes, sizes: &[i64], strides: &[i64], dilation: &[i64]) -> Tensor {
            let Some(at) = self.axes_of(&axes, "windows") else { return self.clone() };
            let attrs = super::reduce::over(&at)
                .with_ints("sizes", sizes.iter().copied())
                .with_ints("strides", strides.iter().copied())
                .with_ints("dilation", dilation.iter().copied());
            apply(&self.state, Op::Windows, &[self], attrs, None)
        } }
        "The windows along axes: an axis of places stays, one of steps comes behind all others. Strides and \
         dilations are 1 where their lists are empty.",
        "t.constant([1.0, 2.0, 3.0]).windows(0, &[2], &[], &[])", "[1.0, 2.0, 2.0, 3.0]";

        { pub fn skew(&self, axes: impl Axes, along: impl Axes, strides: &[i64], dilation: &[i64]) -> Tensor {
            match self.skewing(&axes, &along, strides, dilation, "skew") {
                Some(attrs) => apply(&self.state, Op::Skew, &[self], attrs, None),
                None => self.clone(),
            }
        } }
        "Reads place `o * stride + k * dilation` of each axis at its place `o`, where `k` is the place on the axis \
         of `along` beside it: what [`Tensor::windows`] are made of.",
        "t.constant([[1.0, 2.0], [3.0, 4.0]]).skew(0, 1, &[1], &[1])", "[1.0, 4.0]";

        { pub fn unskew(
            &self,
            (axes, along): (impl Axes, impl Axes),
            (strides, dilation): (&[i64], &[i64]),
            extents: &[i64],
            fill: impl TensorOperand,
        ) -> Tensor {
            let fill = fill.beside(&self.scalar_like());
            match self.skewing(&axes, &along, strides, dilation, "unskew") {
                Some(attrs) => {
                    let attrs = attrs.with_ints("extents", extents.iter().copied());
                    apply(&self.state, Op::Unskew, &[self, &fill], attrs, None)
                }
                None => self.clone(),
            }
        } }
        "The inverse of [`Tensor::skew`]: every element goes back to where that read it in axes of these extents, \
         and `fill` to where it read nothing.",
        "t.constant([[1.0, 4.0]]).unskew((0, 1), (&[1], &[1]), &[2], 0.0)", "[1.0, 0.0, 0.0, 4.0]";
    }

    #[track_caller]
    fn skewing(
        &self,
        axes: &impl Axes,
        along: &impl Axes,
        strides: &[i64],
        dilation: &[i64],
        what: &str,
    ) -> Option<Attrs> {
        let (axes, along) = (self.axes_of(axes, what)?, self.axes_of(along, what)?);
        let attrs = super::reduce::over(&axes)
            .with_ints("along", along.iter().map(|&a| a as i64))
            .with_ints("strides", strides.iter().copied())
            .with_ints("dilation", dilation.iter().copied());
        Some(attrs)
    }

    /// Padding as amounts before and after each of the last axes.
    #[track_caller]
    fn padding_of(
        &self,
        padding: &Padding,
        (sizes, strides, dilation): (&[i64], &[i64], &[i64]),
        what: &str,
    ) -> Option<(Vec<i64>, Vec<i64>)> {
        let n = sizes.len();
        match padding {
            Padding::Valid => Some((vec![0; n], vec![0; n])),
            Padding::Each(k) => Some((vec![*k; n], vec![*k; n])),
            Padding::Explicit(all) if all.len() == n => Some(all.iter().copied().unzip()),
            Padding::Explicit(all) => {
                let m = format!("`{what}`: padding for {} axes of {n}", all.len());
                self.fail(Kind::Shape, m);
                None
            }
            Padding::Same => {
                let (mut low, mut high) = (Vec::new(), Vec::new());
                for (k, d) in (self.ty.rank() - n..self.ty.rank()).enumerate() {
                    let Some(extent) = self.ty.shape[d].known().map(|n| n as i64) else {
                        let m = format!(
                            "`{what}`: `Padding::Same` needs the extent of axis {d} of {}",
                            self.ty
                        );
                        self.fail(Kind::Shape, m);
                        return None;
                    };
                    let span = (sizes[k] - 1).saturating_mul(dilation[k]) + 1;
                    let stride = strides[k].max(1);
                    let places = extent / stride + i64::from(extent % stride != 0);
                    let needed = (places - 1).saturating_mul(stride).saturating_add(span) - extent;
                    low.push(needed.max(0) / 2);
                    high.push(needed.max(0) - needed.max(0) / 2);
                }
                Some((low, high))
            }
        }
    }

    #[track_caller]
    fn convolved(&self, kernel: &Tensor, conv: &Conv, axes: usize, what: &str) -> Tensor {
        if self.ty.rank() != axes + 2 || kernel.ty.rank() != axes + 2 {
            let m =
                format!("`{what}` takes {} axes, found {} and {}", axes + 2, self.ty, kernel.ty);
            return self.refused(Kind::Shape, m);
        }
        if !self.one_dtype(what, &[self, kernel]) {
            return self.clone();
        }
        let (Some(strides), Some(dilation)) = (conv.stride.of(axes), conv.dilation.of(axes)) else {
            let m = format!("`{what}`: strides and dilations are one number, or {axes}");
            return self.refused(Kind::Shape, m);
        };
        let sizes: Option<Vec<i64>> =
            kernel.ty.shape[2..].iter().map(|d| d.known().map(|n| n as i64)).collect();
        let Some(sizes) = sizes else {
            let m = format!("`{what}`: the kernel's extents are not known: {}", kernel.ty);
            return self.refused(Kind::Shape, m);
        };
        let window = (sizes.as_slice(), strides.as_slice(), dilation.as_slice());
        let Some((low, high)) = self.padding_of(&conv.padding, window, what) else {
            return self.clone();
        };
        let general = ConvGeneral {
            strides,
            low,
            high,
            rhs_dilation: dilation,
            feature_groups: conv.groups,
            ..ConvGeneral::default()
        };
        self.conv_general_dilated(kernel, &general)
    }

    /// Windows over the last two of four axes.
    #[track_caller]
    fn pooling(&self, pool: &Pool, what: &str) -> Option<ReduceWindow> {
        if self.ty.rank() != 4 {
            let m = format!("`{what}` takes [batch, channels, height, width], found {}", self.ty);
            self.fail(Kind::Shape, m);
            return None;
        }
        let stride = pool.stride.as_ref().unwrap_or(&pool.size);
        let (Some(sizes), Some(strides)) = (pool.size.of(2), stride.of(2)) else {
            self.fail(Kind::Shape, format!("`{what}`: sizes and strides are one number, or two"));
            return None;
        };
        let window = (sizes.as_slice(), strides.as_slice(), [1, 1].as_slice());
        let (low, high) = self.padding_of(&pool.padding, window, what)?;
        let images = |outer: i64, inner: &[i64]| [&[outer; 2], inner].concat();
        Some(ReduceWindow {
            window: images(1, &sizes),
            strides: images(1, &strides),
            low: images(0, &low),
            high: images(0, &high),
            ..ReduceWindow::default()
        })
    }
}
