//! Convolution layers.

use super::{Init, Param, accepts};
use crate::trace::{Conv, Padding, PerAxis, Tensor};
use crate::tree::Params;
use std::borrow::Borrow;

macro_rules! convolutions {
    ($($(#[$doc:meta])* $name:ident $method:ident $rank:literal $axes:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Params, Clone, Debug)]
        pub struct $name<T = Tensor> {
            /// `[out, in / groups, window..]`.
            pub weight: T,
            /// `[out]`.
            pub bias: Option<T>,
            /// Strides, padding, dilation and groups.
            pub options: Conv,
        }

        impl $name<Param> {
            /// Of `inputs` channels to `outputs`, by windows of this size, or of these, without padding, as PyTorch begins it.
            pub fn new(inputs: u64, outputs: u64, window: impl Into<PerAxis>) -> $name<Param> {
                $name::with(inputs, outputs, window, Conv::valid())
            }

            /// As `new`, with zeros around so that a stride of 1 keeps the extents.
            pub fn same(inputs: u64, outputs: u64, window: impl Into<PerAxis>) -> $name<Param> {
                $name::with(inputs, outputs, window, Conv::same())
            }

            /// With these options. The groups divide the channels.
            pub fn with(
                inputs: u64,
                outputs: u64,
                window: impl Into<PerAxis>,
                options: Conv,
            ) -> $name<Param> {
                let own = inputs / options.group_count().max(1);
                let mut dims = vec![outputs, own];
                dims.extend(window.into().extents($rank));
                let fan = dims[1..].iter().fold(1, |n: u64, &d| n.saturating_mul(d));
                let weight = Param::new(dims, Init::FanIn);
                $name { weight, bias: Some(Param::new([outputs], Init::OfFan(fan))), options }
            }

            /// With a stride along each axis.
            #[must_use]
            pub fn stride(mut self, stride: impl Into<PerAxis>) -> $name<Param> {
                self.options = self.options.stride(stride);
                self
            }

            /// With zeros around.
            #[must_use]
            pub fn padding(mut self, padding: Padding) -> $name<Param> {
                self.options = self.options.padding(padding);
                self
            }

            /// Without a bias.
            #[must_use]
            pub fn no_bias(self) -> $name<Param> {
                $name { bias: None, ..self }
            }

            /// With another first weight; the bias, if there is one, begins at 0.
            #[must_use]
            pub fn init(mut self, init: Init) -> $name<Param> {
                self.weight.init = init;
                if let Some(bias) = &mut self.bias {
                    bias.init = Init::Zeros;
                }
                self
            }
        }

        impl $name {
            /// Of `[batch, in, extents..]`, `[batch, out, extents..]`.
            #[track_caller]
            #[must_use]
            pub fn apply(&self, x: impl Borrow<Tensor>) -> Tensor {
                let x = x.borrow();
                let (ty, weight) = (x.ty(), self.weight.ty());
                let own = weight.shape.get(1).and_then(|d| d.known()).unwrap_or(0);
                let channels = own.saturating_mul(self.options.group_count());
                let fits = ty.rank() == 2 + $rank
                    && weight.rank() == ty.rank()
                    && ty.shape[1].known() == Some(channels);
                let due = format!(concat!("[batch, {}, ", $axes, "]"), channels);
                if !accepts(x, ("a convolution", &self.weight), fits, &due) {
                    return x.clone();
                }
                let y = x.$method(&self.weight, &self.options);
                match &self.bias {
                    Some(bias) => {
                        let mut ones = vec![0];
                        ones.extend(2..2 + $rank);
                        y + bias.expand_dims(ones.as_slice())
                    }
                    None => y,
                }
            }
        }
    )*};
}

convolutions! {
    /// A convolution along one axis: PyTorch's layout, `[batch, channel, extent]` with a weight `[out, in / groups, window]`.
    ///
    /// ```
    /// use adfuse::nn::{self, Conv1d};
    /// use adfuse::prelude::*;
    ///
    /// // Every second place, each half of the channels by itself.
    /// let layer = Conv1d::with(4, 6, 5, Conv::padded(2).stride(2).groups(2));
    /// let values = nn::init(&layer, 0)?;
    /// assert_eq!(values.weight.dims(), [6, 2, 5]);
    /// let f = adfuse::eval_step(|c: &Conv1d, x: Tensor| c.apply(x));
    /// let y = f.run(&Device::cpu(), &values, &Array::from_vec(vec![1f32; 64], [1, 4, 16])?)?;
    /// assert_eq!(y.dims(), [1, 6, 8]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    Conv1d conv1d 1 "extent";
    /// A convolution along two axes: PyTorch's layout, `[batch, channel, height, width]` with a weight `[out, in / groups, window, window]`.
    ///
    /// ```
    /// use adfuse::nn::{self, Conv2d};
    /// use adfuse::prelude::*;
    ///
    /// let layer = nn::init(&Conv2d::same(1, 4, 3), 0)?;
    /// let f = adfuse::eval_step(|c: &Conv2d, x: Tensor| c.apply(x).relu());
    /// let y = f.run(&Device::cpu(), &layer, &Array::from_vec(vec![1f32; 128], [2, 1, 8, 8])?)?;
    /// assert_eq!(y.dims(), [2, 4, 8, 8]);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    Conv2d conv2d 2 "height, width";
}
