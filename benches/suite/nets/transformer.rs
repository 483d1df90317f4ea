//! Transformers: GPT-2 (Radford et al. 2019), BERT (Devlin et al. 2018), and the encoder with decoder of Vaswani et al. 2017.

use super::Weights;
use adfuse::prelude::*;

/// The size of a transformer.
#[derive(Clone, Copy, Debug)]
pub struct TransformerSize {
    /// Blocks; of the encoder and of the decoder each, where there are both.
    pub layers: u64,
    /// Features of a position.
    pub features: u64,
    /// Heads, which divide the features.
    pub heads: u64,
    /// Positions of a sequence.
    pub time: u64,
    /// Sequences at a time.
    pub batch: u64,
    /// Words.
    pub words: u64,
    /// The element type of parameters and values; norms, softmax and losses are computed in `f32` at least.
    pub dtype: DType,
}

impl TransformerSize {
    /// The loss of a decoder alone with the tanh form of gelu, norms before the layers and the embedding as the last layer: GPT-2.
    ///
    /// # Errors
    /// As [`trace`], also in what follows.
    pub fn gpt(&self) -> Result<Traced, Diagnostic> {
        trace("gpt", |t| {
            let w = Weights::new(t, self.dtype);
            let (table, mut x) = self.embedded(&w, "words");
            for _ in 0..self.layers {
                x = &x + self.attention(&w, &w.layer_norm(&x, self.features), None, true);
                x = &x + self.feed_forward(&w, &w.layer_norm(&x, self.features), Tensor::gelu_tanh);
            }
            let x = w.layer_norm(&x, self.features);
            let logits = t.einsum("btd,vd->btv", &[&x, &table]);
            logits.cross_entropy(&w.labels("next", [self.batch, self.time]))
        })
    }

    /// The loss of an encoder alone with norms after the layers, where every word is to be told: BERT.
    ///
    /// # Errors
    /// As [`TransformerSize::gpt`].
    pub fn bert(&self) -> Result<Traced, Diagnostic> {
        trace("bert", |t| {
            let w = Weights::new(t, self.dtype);
            let (table, x) = self.embedded(&w, "words");
            let mut x = w.layer_norm(&x, self.features);
            for _ in 0..self.layers {
                x = self.encoder_block(&w, &x, Tensor::gelu);
            }
            let x = w.linear(&x, [self.features; 2]).gelu();
            let x = w.layer_norm(&x, self.features);
            let logits = t.einsum("btd,vd->btv", &[&x, &table]) + w.next([self.words]);
            logits.cross_entropy(&w.labels("told", [self.batch, self.time]))
        })
    }

    /// The loss of an encoder and a decoder that sees it, with rectifiers and norms after the layers.
    ///
    /// # Errors
    /// As [`TransformerSize::gpt`].
    pub fn translation(&self) -> Result<Traced, Diagnostic> {
        trace("translation", |t| {
            let w = Weights::new(t, self.dtype);
            let (_, mut memory) = self.embedded(&w, "source");
            for _ in 0..self.layers {
                memory = self.encoder_block(&w, &memory, Tensor::relu);
            }
            let (table, mut x) = self.embedded(&w, "target");
            for _ in 0..self.layers {
                let own = self.attention(&w, &x, None, true);
                x = w.layer_norm(&(x + own), self.features);
                let seen = self.attention(&w, &x, Some(&memory), false);
                x = w.layer_norm(&(x + seen), self.features);
                let fed = self.feed_forward(&w, &x, Tensor::relu);
                x = w.layer_norm(&(x + fed), self.features);
            }
            let logits = t.einsum("btd,vd->btv", &[&x, &table]);
            logits.cross_entropy(&w.labels("next", [self.batch, self.time]))
        })
    }

    /// One block with norms before its layers, forward alone.
    ///
    /// # Errors
    /// As [`TransformerSize::gpt`].
    pub fn block(&self) -> Result<Traced, Diagnostic> {
        trace("block", |t| {
            let w = Weights::new(t, self.dtype);
            let x = w.data("x", [self.batch, self.time, self.features]);
            let x = &x + self.attention(&w, &w.layer_norm(&x, self.features), None, true);
            &x + self.feed_forward(&w, &w.layer_norm(&x, self.features), Tensor::gelu)
        })
    }

    fn encoder_block(
        &self,
        w: &Weights<'_>,
        x: &Tensor,
        activation: fn(&Tensor) -> Tensor,
    ) -> Tensor {
        let x = w.layer_norm(&(x + self.attention(w, x, None, false)), self.features);
        let fed = self.feed_forward(w, &x, activation);
        w.layer_norm(&(x + fed), self.features)
    }

    /// The table of words, and the words of a sequence with their positions.
    fn embedded(&self, w: &Weights<'_>, name: &str) -> (Tensor, Tensor) {
        let words = w.labels(name, [self.batch, self.time]);
        let table = w.next([self.words, self.features]);
        let x = table.take(&words, 0) + w.next([self.time, self.features]);
        (table, x)
    }

    fn feed_forward(
        &self,
        w: &Weights<'_>,
        x: &Tensor,
        activation: fn(&Tensor) -> Tensor,
    ) -> Tensor {
        let wide = activation(&w.linear(x, [self.features, 4 * self.features]));
        w.linear(&wide, [4 * self.features, self.features])
    }

    /// Attention of `x` to itself or to a memory of as many positions.
    fn attention(
        &self,
        w: &Weights<'_>,
        x: &Tensor,
        memory: Option<&Tensor>,
        causal: bool,
    ) -> Tensor {
        let (features, heads) = (self.features, self.heads);
        let each = features / heads;
        let split = |x: &Tensor| x.reshape([self.batch, self.time, heads, each]);
        let memory = memory.unwrap_or(x);
        let [q, k, v] = [x, memory, memory].map(|x| split(&w.linear(x, [features; 2])));
        let scores = w.t.einsum("bthd,bshd->bhts", &[&q, &k]) * (each as f64).powf(-0.5);
        let scores = if causal { unseen(w.t, &scores) } else { scores };
        let mixed = w.t.einsum("bhts,bshd->bthd", &[&scores.softmax(-1), &v]);
        w.linear(&mixed.reshape([self.batch, self.time, features]), [features; 2])
    }
}

/// Scores with those of later positions far below all others.
fn unseen(t: &Tracer, scores: &Tensor) -> Tensor {
    let shape = scores.ty().shape;
    let places = TensorType::new(DType::I32, shape[shape.len() - 2..].iter().cloned());
    let later = t.iota(places.clone(), 0).lt(t.iota(places, 1));
    later.broadcast_like(scores).select(-1e9, scores)
}
