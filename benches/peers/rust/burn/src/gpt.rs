//! A GPT of two layers of width 64 with four heads, a batch of 16 sequences of 32 of 90 tokens, no dropout, Adam.

use crate::labels;
use burn::nn::attention::{
    MhaInput, MultiHeadAttention, MultiHeadAttentionConfig, generate_autoregressive_mask,
};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{
    Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig,
};
use burn::optim::{AdamConfig, GradientsParams};
use burn::prelude::*;
use burn::tensor::activation::gelu;
use std::error::Error;

const BATCH: usize = 16;
const LENGTH: usize = 32;
const WIDTH: usize = 64;
const TOKENS: usize = 90;

#[derive(Module, Debug)]
struct Layer {
    n1: LayerNorm,
    attention: MultiHeadAttention,
    n2: LayerNorm,
    up: Linear,
    down: Linear,
}

impl Layer {
    fn new(device: &Device) -> Self {
        Self {
            n1: LayerNormConfig::new(WIDTH).init(device),
            attention: MultiHeadAttentionConfig::new(WIDTH, 4).with_dropout(0.0).init(device),
            n2: LayerNormConfig::new(WIDTH).init(device),
            up: LinearConfig::new(WIDTH, 4 * WIDTH).init(device),
            down: LinearConfig::new(4 * WIDTH, WIDTH).init(device),
        }
    }

    fn forward(&self, x: Tensor<3>, mask: Tensor<3, Bool>) -> Tensor<3> {
        let input = MhaInput::self_attn(self.n1.forward(x.clone())).mask_attn(mask);
        let x = x + self.attention.forward(input).context;
        let inner = gelu(self.up.forward(self.n2.forward(x.clone())));
        x + self.down.forward(inner)
    }
}

#[derive(Module, Debug)]
struct Gpt {
    tokens: Embedding,
    places: Embedding,
    layers: Vec<Layer>,
    norm: LayerNorm,
    head: Linear,
}

impl Gpt {
    fn new(device: &Device) -> Self {
        Self {
            tokens: EmbeddingConfig::new(TOKENS, WIDTH).init(device),
            places: EmbeddingConfig::new(LENGTH, WIDTH).init(device),
            layers: (0..2).map(|_| Layer::new(device)).collect(),
            norm: LayerNormConfig::new(WIDTH).init(device),
            head: LinearConfig::new(WIDTH, TOKENS).init(device),
        }
    }

    fn forward(&self, x: Tensor<2, Int>) -> Tensor<3> {
        let [batch, length] = x.dims();
        let device = x.device();
        let places = Tensor::arange(0..length as i64, &device).reshape([1, length]);
        let mut h = self.tokens.forward(x) + self.places.forward(places);
        for layer in &self.layers {
            h = layer.forward(h, generate_autoregressive_mask(batch, length, &device));
        }
        self.head.forward(self.norm.forward(h))
    }
}

pub fn train(device: &Device) -> Result<(), Box<dyn Error>> {
    let x = labels([BATCH, LENGTH], TOKENS as u32, 1, device);
    let y = labels([BATCH * LENGTH], TOKENS as u32, 2, device);
    let loss_of = CrossEntropyLossConfig::new().init(device);
    let mut net = Gpt::new(device);
    let mut optimizer = AdamConfig::new().init();
    peer_measure::run(|| {
        let logits = net.forward(x.clone()).reshape([BATCH * LENGTH, TOKENS]);
        let loss = loss_of.forward(logits, y.clone());
        let grads = GradientsParams::from_grads(loss.backward(), &net);
        net = optimizer.step(1e-3, net.clone(), grads);
        Ok::<f32, Box<dyn Error>>(loss.into_scalar::<f32>())
    })
}
