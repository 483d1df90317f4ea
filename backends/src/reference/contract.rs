//! Contractions: a defined chain of fused multiply-adds for every result element.

use super::EvalTensor;
use super::order::contract as chain;
use super::view::walk;
use adfuse_ir::{DType, Diagnostic, Literal, TensorType};
use smallvec::SmallVec;

/// Paired axes: of the left operand, of the right.
pub(super) type Pairs<'a> = (&'a [i64], &'a [i64]);

/// `dot_general`. Operands are widened to the result's type (16-bit floats to `f32`), sums run over
/// the contracted axes in row-major order of their pairing, and the result is rounded once.
pub(super) fn contract(
    x: &EvalTensor,
    y: &EvalTensor,
    batch: Pairs<'_>,
    contracted: Pairs<'_>,
    ty: &TensorType,
) -> Result<EvalTensor, Diagnostic> {
    if ty.elements() == Some(0) {
        // Extents of an empty result may be too large to walk.
        return EvalTensor::build(ty, |_| Ok(()));
    }
    let wide = ty.dtype.compute();
    let x = OperandValues::new(x, batch.0, contracted.0, wide)?;
    let y = OperandValues::new(y, batch.1, contracted.1, wide)?;
    let k = x.k;
    EvalTensor::build(ty, |bits| {
        for b in 0..x.batch {
            for i in 0..x.free {
                let row = &x.bits[(b * x.free + i) * k..][..k];
                for j in 0..y.free {
                    let column = &y.bits[(b * y.free + j) * k..][..k];
                    let sum = dot(wide, row, column);
                    bits.push(Literal::from_bits(wide, sum).convert(ty.dtype).bits());
                }
            }
        }
        Ok(())
    })
}

/// The sum of products of bits of this type, in the defined order.
pub(super) fn dot(dtype: DType, x: &[u64], y: &[u64]) -> u64 {
    match dtype {
        DType::F64 => chain(
            x.len(),
            0.0,
            |i, acc| f64::from_bits(x[i]).mul_add(f64::from_bits(y[i]), acc),
            |a, b| a + b,
        )
        .to_bits(),
        DType::F32 => chain(
            x.len(),
            0.0f32,
            |i, acc| f32::from_bits(x[i] as u32).mul_add(f32::from_bits(y[i] as u32), acc),
            |a, b| a + b,
        )
        .to_bits()
        .into(),
        d => {
            // Two's complement of the low bits: exact whatever the order.
            let signed = |b: u64| Literal::from_bits(d, b).to_i64();
            let sum = x
                .iter()
                .zip(y)
                .fold(0i64, |acc, (&a, &b)| acc.wrapping_add(signed(a).wrapping_mul(signed(b))));
            Literal::from_i64(d, sum).bits()
        }
    }
}

/// An operand laid out as batch, free, contracted.
struct OperandValues {
    bits: Vec<u64>,
    batch: usize,
    free: usize,
    k: usize,
}

impl OperandValues {
    fn new(
        t: &EvalTensor,
        batch: &[i64],
        contracted: &[i64],
        wide: DType,
    ) -> Result<OperandValues, Diagnostic> {
        let free: SmallVec<[i64; 4]> = (0..t.dims.len() as i64)
            .filter(|d| !batch.contains(d) && !contracted.contains(d))
            .collect();
        let order: SmallVec<[usize; 4]> =
            batch.iter().chain(&free).chain(contracted).map(|&d| d as usize).collect();
        let dims: SmallVec<[i64; 4]> = order.iter().map(|&d| t.dims[d]).collect();
        let strides: SmallVec<[i64; 4]> =
            order.iter().map(|&d| t.dims[d + 1..].iter().product()).collect();
        let mut bits = super::reserve(t.bits.len() as u64)?;
        walk(&dims, |at| {
            let place: i64 = at.iter().zip(&strides).map(|(a, s)| a * s).sum();
            let l = Literal::from_bits(t.dtype, t.bits[place as usize]);
            bits.push(l.convert(wide).bits());
            Ok(())
        })?;
        let extent = |axes: &[i64]| axes.iter().map(|&d| t.dims[d as usize] as usize).product();
        Ok(OperandValues { bits, batch: extent(batch), free: extent(&free), k: extent(contracted) })
    }
}
