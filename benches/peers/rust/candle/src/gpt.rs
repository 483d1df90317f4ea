//! A GPT of two layers of width 64 with four heads, a batch of 16 sequences of 32 of 90 tokens, no dropout, Adam.

use crate::labels;
use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::{
    AdamW, Embedding, Linear, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap, embedding,
    linear, loss, ops,
};
use std::error::Error;

const BATCH: usize = 16;
const LENGTH: usize = 32;
const WIDTH: usize = 64;
const HEADS: usize = 4;
const TOKENS: usize = 90;

/// `candle_nn::LayerNorm` gives its operand no gradient; these are the operations that do.
struct Norm {
    weight: Tensor,
    bias: Tensor,
}

impl Norm {
    fn new(vb: VarBuilder<'_>) -> Result<Self> {
        let one = candle_nn::Init::Const(1.0);
        Ok(Self {
            weight: vb.get_with_hints(WIDTH, "weight", one)?,
            bias: vb.get_with_hints(WIDTH, "bias", candle_nn::Init::Const(0.0))?,
        })
    }
}

impl Module for Norm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let c = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
        let var = c.sqr()?.mean_keepdim(D::Minus1)?;
        let y = c.broadcast_div(&(var + 1e-5)?.sqrt()?)?;
        y.broadcast_mul(&self.weight)?.broadcast_add(&self.bias)
    }
}

struct Layer {
    n1: Norm,
    q: Linear,
    k: Linear,
    v: Linear,
    o: Linear,
    n2: Norm,
    up: Linear,
    down: Linear,
}

impl Layer {
    fn new(vb: VarBuilder<'_>) -> Result<Self> {
        Ok(Self {
            n1: Norm::new(vb.pp("n1"))?,
            q: linear(WIDTH, WIDTH, vb.pp("q"))?,
            k: linear(WIDTH, WIDTH, vb.pp("k"))?,
            v: linear(WIDTH, WIDTH, vb.pp("v"))?,
            o: linear(WIDTH, WIDTH, vb.pp("o"))?,
            n2: Norm::new(vb.pp("n2"))?,
            up: linear(WIDTH, 4 * WIDTH, vb.pp("up"))?,
            down: linear(4 * WIDTH, WIDTH, vb.pp("down"))?,
        })
    }

    fn attend(&self, x: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let heads = |l: &Linear| {
            l.forward(x)?.reshape((BATCH, LENGTH, HEADS, WIDTH / HEADS))?.transpose(1, 2)?.contiguous()
        };
        let (q, k, v) = (heads(&self.q)?, heads(&self.k)?, heads(&self.v)?);
        let scale = 1.0 / ((WIDTH / HEADS) as f64).sqrt();
        let scores = (q.matmul(&k.transpose(2, 3)?.contiguous()?)? * scale)?;
        // `softmax_last_dim` gives its operand no gradient; `softmax` does.
        let weights = ops::softmax(&scores.broadcast_add(mask)?, D::Minus1)?;
        let heads = weights.matmul(&v)?.transpose(1, 2)?.contiguous()?;
        self.o.forward(&heads.reshape((BATCH, LENGTH, WIDTH))?)
    }

    fn forward(&self, x: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let x = (x + self.attend(&self.n1.forward(x)?, mask)?)?;
        let inner = self.up.forward(&self.n2.forward(&x)?)?.gelu_erf()?;
        &x + self.down.forward(&inner)?
    }
}

struct Gpt {
    tokens: Embedding,
    places: Embedding,
    layers: Vec<Layer>,
    norm: Norm,
    head: Linear,
    mask: Tensor,
}

impl Gpt {
    fn new(vb: VarBuilder<'_>, device: &Device) -> Result<Self> {
        let later = |k: usize| if k % LENGTH > k / LENGTH { f32::NEG_INFINITY } else { 0.0 };
        let mask = (0..LENGTH * LENGTH).map(later).collect();
        Ok(Self {
            tokens: embedding(TOKENS, WIDTH, vb.pp("tokens"))?,
            places: embedding(LENGTH, WIDTH, vb.pp("places"))?,
            layers: (0..2).map(|k| Layer::new(vb.pp(format!("l{k}")))).collect::<Result<_>>()?,
            norm: Norm::new(vb.pp("norm"))?,
            head: linear(WIDTH, TOKENS, vb.pp("head"))?,
            mask: Tensor::from_vec(mask, (LENGTH, LENGTH), device)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let places = Tensor::arange(0, LENGTH as u32, x.device())?;
        let mut h = self.tokens.forward(x)?.broadcast_add(&self.places.forward(&places)?)?;
        for layer in &self.layers {
            h = layer.forward(&h, &self.mask)?;
        }
        self.head.forward(&self.norm.forward(&h)?)
    }
}

pub fn train(device: &Device) -> std::result::Result<(), Box<dyn Error>> {
    let x = labels((BATCH, LENGTH), TOKENS as u32, 1, device)?;
    let y = labels(BATCH * LENGTH, TOKENS as u32, 2, device)?;
    let vars = VarMap::new();
    let net = Gpt::new(VarBuilder::from_varmap(&vars, DType::F32, device), device)?;
    let adam = ParamsAdamW { weight_decay: 0.0, ..Default::default() };
    let mut optimizer = AdamW::new(vars.all_vars(), adam)?;
    peer_measure::run(|| {
        let logits = net.forward(&x)?.reshape((BATCH * LENGTH, TOKENS))?;
        let loss = loss::cross_entropy(&logits, &y)?;
        optimizer.backward_step(&loss)?;
        loss.to_scalar::<f32>()
    })
}
