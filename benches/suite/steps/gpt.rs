//! A GPT of two layers of width 64 with four heads, a batch of 16 sequences of 32 of 90 tokens, no dropout, Adam.

use super::{StepState, labels};
use adfuse::nn::{Embedding, LayerNorm, Linear, Param, TransformerBlock};
use adfuse::optim::Adam;
use adfuse::prelude::*;
use adfuse::train_step;

/// The parameters.
#[derive(Params, Clone, Debug)]
pub struct Gpt<T = Tensor> {
    tokens: Embedding<T>,
    places: Embedding<T>,
    blocks: Vec<TransformerBlock<T>>,
    norm: LayerNorm<T>,
    head: Linear<T>,
}

impl Gpt {
    fn apply(&self, x: &Tensor) -> Tensor {
        let mut h = self.tokens.apply(x) + &self.places.weight;
        for block in &self.blocks {
            h = block.apply(h);
        }
        self.head.apply(self.norm.apply(h))
    }
}

/// The state before the first step, and the batch.
///
/// # Errors
/// Those of the initial values.
pub fn state() -> Result<StepState<Gpt<Param>>, Diagnostic> {
    let batch = (labels(&[16, 32], 90, 1)?, labels(&[16, 32], 90, 2)?);
    let net = Gpt {
        tokens: Embedding::new(90, 64),
        places: Embedding::new(32, 64),
        blocks: vec![TransformerBlock::new(64, 4).causal(), TransformerBlock::new(64, 4).causal()],
        norm: LayerNorm::new(64),
        head: Linear::new(64, 90),
    };
    let step = train_step(Adam::new(1e-3), net, |net: &Gpt, (x, y): (Tensor, Tensor)| {
        net.apply(&x).cross_entropy(&y)
    });
    Ok((step.init(Device::cpu(), 0)?, batch))
}
