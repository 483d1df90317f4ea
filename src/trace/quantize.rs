//! Quantization to `i8` and back.

use super::math::example;
use super::record::apply;
use super::{AxisIndex, Tensor, TensorOperand};
use crate::ir::attrs::Attrs;
use crate::ir::{DType, Op};

impl Tensor {
    example! {
        { pub fn quantize(&self, scale: impl TensorOperand, zero: impl TensorOperand) -> Tensor {
            let scale = scale.beside(&self.scalar_like());
            let zero = zero.beside(&self.scalar_like().retyped(DType::I8));
            apply(&self.state, Op::Quantize, &[self, &scale, &zero], Attrs::none(), None)
        } }
        "`clamp(round(x / scale) + zero)` in `i8`, halves to even, for a scale of this tensor's type and a zero point \
         of `i8`, both scalars; the derivative is zero.",
        "t.constant([1.0, -0.5, 100.0]).quantize(0.5, 3)", "[5.0, 2.0, 127.0]";

        { pub fn dequantize(&self, scale: &Tensor, zero: impl TensorOperand) -> Tensor {
            let zero = zero.beside(&self.scalar_like());
            apply(&self.state, Op::Dequantize, &[self, scale, &zero], Attrs::none(), None)
        } }
        "`(q - zero) * scale` in the scale's type, for scalars.",
        "t.constant([5i8, 2]).dequantize(&t.constant(0.5), 3)", "[1.0, -0.5]";

        { pub fn quantize_along(&self, scale: &Tensor, zero: &Tensor, axis: impl AxisIndex) -> Tensor {
            self.quantized(Op::Quantize, scale, zero, axis)
        } }
        "As [`Tensor::quantize`], with a scale and a zero point for each place of an axis.",
        "t.constant([1.0, 1.0]).quantize_along(&t.constant([0.5, 0.25]), &t.constant([0i8, 0]), 0)", "[2.0, 4.0]";

        { pub fn dequantize_along(&self, scale: &Tensor, zero: &Tensor, axis: impl AxisIndex) -> Tensor {
            self.quantized(Op::Dequantize, scale, zero, axis)
        } }
        "As [`Tensor::dequantize`], with a scale and a zero point for each place of an axis.",
        "t.constant([2i8, 4]).dequantize_along(&t.constant([0.5, 0.25]), &t.constant([0i8, 0]), 0)", "[1.0, 1.0]";
    }

    #[track_caller]
    fn quantized(&self, op: Op, scale: &Tensor, zero: &Tensor, axis: impl AxisIndex) -> Tensor {
        match self.axis_of(axis, op.name()) {
            Some(at) => {
                let attrs = Attrs::none().with_ints("axis", [at as i64]);
                apply(&self.state, op, &[self, scale, zero], attrs, None)
            }
            None => self.clone(),
        }
    }

    /// For numbers to stand beside: the same value under another element type.
    fn retyped(&self, dtype: DType) -> Tensor {
        Tensor { ty: self.ty.with_dtype(dtype), ..self.clone() }
    }
}
