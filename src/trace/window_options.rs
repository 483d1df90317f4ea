//! Options of convolutions and of pooling.

use crate::ir::attrs::Attrs;

/// What is around the operand of a convolution or of pooling.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Padding {
    /// Nothing.
    Valid,
    /// As much as makes the result `ceil(extent / stride)` long; where that is odd, more at the end.
    Same,
    /// This much at both ends of every axis.
    Each(i64),
    /// This much before and after each axis; negative amounts cut.
    Explicit(Vec<(i64, i64)>),
}

/// A number for each axis of a window, or one for all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PerAxis(Vec<u64>);

impl From<u64> for PerAxis {
    fn from(n: u64) -> PerAxis {
        PerAxis(vec![n])
    }
}

impl<const N: usize> From<[u64; N]> for PerAxis {
    fn from(all: [u64; N]) -> PerAxis {
        PerAxis(all.into())
    }
}

impl PerAxis {
    /// One for each axis where one is for all; otherwise as they are given, which may be too few or too many.
    pub(crate) fn extents(&self, axes: usize) -> Vec<u64> {
        if let [n] = self.0[..] { vec![n; axes] } else { self.0.clone() }
    }

    pub(super) fn of(&self, axes: usize) -> Option<Vec<i64>> {
        let number = |&n: &u64| i64::try_from(n).unwrap_or(i64::MAX);
        match self.0.as_slice() {
            [n] => Some(vec![number(n); axes]),
            all if all.len() == axes => Some(all.iter().map(number).collect()),
            _ => None,
        }
    }
}

/// How a convolution goes: padding, stride, dilation and groups.
///
/// ```
/// use adfuse::prelude::*;
///
/// let f = trace("f", |t| {
///     let x = t.input("x", f32s([8, 4, 28, 28]));
///     let w = t.input("w", f32s([16, 2, 3, 3]));
///     x.conv2d(&w, &Conv::same().stride(2).groups(2))
/// })?;
/// assert_eq!(f.result_types()[0], f32s([8, 16, 14, 14]));
/// # Ok::<(), Diagnostic>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conv {
    pub(super) padding: Padding,
    pub(super) stride: PerAxis,
    pub(super) dilation: PerAxis,
    pub(super) groups: u64,
}

impl Conv {
    /// With this padding.
    pub fn new(padding: Padding) -> Conv {
        Conv { padding, stride: 1.into(), dilation: 1.into(), groups: 1 }
    }

    /// Without padding.
    pub fn valid() -> Conv {
        Conv::new(Padding::Valid)
    }

    /// With padding that keeps the extents, divided by the stride.
    pub fn same() -> Conv {
        Conv::new(Padding::Same)
    }

    /// With this much padding at all ends.
    pub fn padded(n: i64) -> Conv {
        Conv::new(Padding::Each(n))
    }

    /// The distance of windows, for all axes or for each.
    #[must_use]
    pub fn stride(mut self, stride: impl Into<PerAxis>) -> Conv {
        self.stride = stride.into();
        self
    }

    /// The distance of elements in a window, for all axes or for each.
    #[must_use]
    pub fn dilation(mut self, dilation: impl Into<PerAxis>) -> Conv {
        self.dilation = dilation.into();
        self
    }

    /// With another padding.
    #[must_use]
    pub fn padding(mut self, padding: Padding) -> Conv {
        self.padding = padding;
        self
    }

    /// How many groups there are.
    pub fn group_count(&self) -> u64 {
        self.groups
    }

    /// How many groups the channels are in; each output channel sees those of its group.
    #[must_use]
    pub fn groups(mut self, groups: u64) -> Conv {
        self.groups = groups;
        self
    }
}

/// How pooling goes: extents of windows, their distance, which is their extent unless it is told, and padding.
///
/// ```
/// use adfuse::prelude::*;
///
/// let f = trace("f", |t| t.input("x", f32s([8, 4, 28, 28])).max_pool2d(Pool::new(3).stride(2).padding(Padding::Each(1))))?;
/// assert_eq!(f.result_types()[0], f32s([8, 4, 14, 14]));
/// # Ok::<(), Diagnostic>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pool {
    pub(super) size: PerAxis,
    pub(super) stride: Option<PerAxis>,
    pub(super) padding: Padding,
}

impl Pool {
    /// Windows of this extent, side by side, without padding.
    pub fn new(size: impl Into<PerAxis>) -> Pool {
        Pool { size: size.into(), stride: None, padding: Padding::Valid }
    }

    /// The distance of windows.
    #[must_use]
    pub fn stride(mut self, stride: impl Into<PerAxis>) -> Pool {
        self.stride = Some(stride.into());
        self
    }

    /// What is around the operand.
    #[must_use]
    pub fn padding(mut self, padding: Padding) -> Pool {
        self.padding = padding;
        self
    }
}

impl From<u64> for Pool {
    fn from(size: u64) -> Pool {
        Pool::new(size)
    }
}

impl<const N: usize> From<[u64; N]> for Pool {
    fn from(size: [u64; N]) -> Pool {
        Pool::new(size)
    }
}

/// Windows over every axis of a tensor, as the ops have them: an entry for each axis, or an empty list for 1s and 0s.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReduceWindow {
    /// Extents.
    pub window: Vec<i64>,
    /// Distances of windows.
    pub strides: Vec<i64>,
    /// Padding before each axis; negative amounts cut.
    pub low: Vec<i64>,
    /// Padding after each axis; negative amounts cut.
    pub high: Vec<i64>,
    /// Distances of the operand's elements.
    pub base_dilation: Vec<i64>,
    /// Distances of the elements in a window.
    pub window_dilation: Vec<i64>,
}

impl ReduceWindow {
    pub(super) fn attrs(&self) -> Attrs {
        let list = |all: &Vec<i64>| all.clone();
        Attrs::none()
            .with_ints("window", list(&self.window))
            .with_ints("strides", list(&self.strides))
            .with_ints("low", list(&self.low))
            .with_ints("high", list(&self.high))
            .with_ints("base_dilation", list(&self.base_dilation))
            .with_ints("window_dilation", list(&self.window_dilation))
    }
}

/// A convolution as the op has it; empty lists are 1s, 0s, and specs in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConvGeneral {
    /// Distances of windows.
    pub strides: Vec<i64>,
    /// Padding before each spatial axis; negative amounts cut.
    pub low: Vec<i64>,
    /// Padding after each spatial axis; negative amounts cut.
    pub high: Vec<i64>,
    /// Distances of the operand's elements.
    pub lhs_dilation: Vec<i64>,
    /// Distances of the kernel's elements.
    pub rhs_dilation: Vec<i64>,
    /// Axes of the operand: batch, features, then spatial ones.
    pub lhs_spec: Vec<i64>,
    /// Axes of the kernel: output features, input features, then spatial ones.
    pub rhs_spec: Vec<i64>,
    /// Axes of the result: batch, features, then spatial ones.
    pub out_spec: Vec<i64>,
    /// Groups of features.
    pub feature_groups: u64,
    /// Groups of batches.
    pub batch_groups: u64,
}

impl Default for ConvGeneral {
    fn default() -> ConvGeneral {
        let none = Vec::new;
        ConvGeneral {
            strides: none(),
            low: none(),
            high: none(),
            lhs_dilation: none(),
            rhs_dilation: none(),
            lhs_spec: none(),
            rhs_spec: none(),
            out_spec: none(),
            feature_groups: 1,
            batch_groups: 1,
        }
    }
}
