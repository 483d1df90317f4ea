//! Transformer blocks.

use super::{Dropout, LayerNorm, Linear, MultiHeadAttention, Param};
use crate::trace::Tensor;
use crate::tree::Params;
use std::borrow::Borrow;

/// A block with norms before its parts, as GPT-2 has it: `x + attention(norm(x))`, then `x + down(gelu(up(norm(x))))`. The gelu is exact, or GPT-2's by
/// [`TransformerBlock::tanh_gelu`]; of 16-bit types it is computed in `f32`.
///
/// ```
/// use adfuse::nn::{self, TransformerBlock};
/// use adfuse::prelude::*;
///
/// let body: Vec<_> = (0..2).map(|_| TransformerBlock::new(8, 2).causal().dropout(0.1)).collect();
/// let values = nn::init(&body, 0)?;
/// let f = adfuse::eval_step(|body: &Vec<TransformerBlock>, x: Tensor| {
///     body.iter().fold(x, |x, block| block.apply(x))
/// });
/// let y = f.run(&Device::cpu(), &values, &Array::from_vec(vec![1f32; 48], [2, 3, 8])?)?;
/// assert_eq!(y.dims(), [2, 3, 8]);
/// # Ok::<(), Diagnostic>(())
/// ```
#[derive(Params, Clone, Debug)]
pub struct TransformerBlock<T = Tensor> {
    /// Before the attention.
    pub norm1: LayerNorm<T>,
    /// The attention.
    pub attn: MultiHeadAttention<T>,
    /// Before the feed-forward part.
    pub norm2: LayerNorm<T>,
    /// `[4 * features, features]`.
    pub up: Linear<T>,
    /// `[features, 4 * features]`.
    pub down: Linear<T>,
    /// Of what both parts add.
    pub dropout: Dropout,
    /// Whether the gelu is its approximation by the hyperbolic tangent.
    pub tanh_gelu: bool,
}

impl TransformerBlock<Param> {
    /// Of `features`, with `heads` heads and a hidden layer of four times the features.
    pub fn new(features: u64, heads: u64) -> TransformerBlock<Param> {
        TransformerBlock {
            norm1: LayerNorm::new(features),
            attn: MultiHeadAttention::new(features, heads),
            norm2: LayerNorm::new(features),
            up: Linear::new(features, 4 * features),
            down: Linear::new(4 * features, features),
            dropout: Dropout::new(0.0),
            tanh_gelu: false,
        }
    }

    /// With the gelu approximated by the hyperbolic tangent, as GPT-2 has it.
    #[must_use]
    pub fn tanh_gelu(self) -> TransformerBlock<Param> {
        TransformerBlock { tanh_gelu: true, ..self }
    }

    /// Where no position sees one after it.
    #[must_use]
    pub fn causal(self) -> TransformerBlock<Param> {
        TransformerBlock { attn: self.attn.causal(), ..self }
    }

    /// With dropout of the attention's weights and of what both parts add.
    #[must_use]
    pub fn dropout(self, p: f64) -> TransformerBlock<Param> {
        TransformerBlock { attn: self.attn.dropout(p), dropout: Dropout::new(p), ..self }
    }
}

impl TransformerBlock {
    /// Of `[batch, time, features]`, the same shape.
    #[track_caller]
    #[must_use]
    pub fn apply(&self, x: impl Borrow<Tensor>) -> Tensor {
        let x = x.borrow();
        let x = x + self.dropout.apply(self.attn.apply(self.norm1.apply(x)));
        let hidden = self.up.apply(self.norm2.apply(&x));
        let wide = hidden.compute();
        let wide = if self.tanh_gelu { wide.gelu_tanh() } else { wide.gelu() };
        &x + self.dropout.apply(self.down.apply(wide.convert(hidden.dtype())))
    }
}
