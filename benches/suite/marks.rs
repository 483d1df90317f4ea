//! Marks of the fusion literature: programs with the speedup that fusion is said to give over a kernel an instruction.

use crate::nets::Weights;
use crate::nets::conv::{ResNet, conv, normalized};
use crate::nets::transformer::TransformerSize;
use crate::program::BenchProgram;
use adfuse::prelude::*;

/// The size of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// A moment on any machine: for tests.
    Quick,
    /// At most about a fifth of a second a run on two cores.
    Cpu,
    /// What keeps a GPU busy; products in `bf16`.
    Gpu,
}

impl Scale {
    fn of<T: Copy>(self, [quick, cpu, gpu]: [T; 3]) -> T {
        match self {
            Scale::Quick => quick,
            Scale::Cpu => cpu,
            Scale::Gpu => gpu,
        }
    }

    /// The element type of products.
    fn dtype(self) -> DType {
        self.of([DType::F32, DType::F32, DType::BF16])
    }
}

/// A mark, and the program that it is for.
#[derive(Clone, Copy, Debug)]
pub struct MarkRow {
    /// The program's name.
    pub name: &'static str,
    /// The speedup, as the literature says it.
    pub said: &'static str,
    /// The least speedup that meets it.
    pub least: f64,
    /// The program at a size.
    pub program: fn(Scale) -> Result<BenchProgram, Diagnostic>,
}

/// Launches, bytes and peak: the part that fusion is said to save at least.
pub const SAVED: [f64; 3] = [0.5, 0.3, 0.2];

/// All marks, in the order in which they are reported.
pub const MARKS: &[MarkRow] = &[
    row("relu_batch_norm_dropout", "3.5", 3.5, relu_batch_norm_dropout),
    row("sin_cos", "1.5-2", 1.5, sin_cos),
    row("add_relu_mul_sum", "1.5-3", 1.5, add_relu_mul_sum),
    row("layer_norm_bias_gelu", "2-4", 2.0, layer_norm_bias_gelu),
    row("add_gelu_1M", "1.86", 1.86, |scale| add_gelu("add_gelu_1M", scale, 1)),
    row("add_gelu_10M", "1.86", 1.86, |scale| add_gelu("add_gelu_10M", scale, 10)),
    row("add_gelu_100M", "1.86", 1.86, |scale| add_gelu("add_gelu_100M", scale, 100)),
    row("l2_norm", "3-5", 3.0, l2_norm),
    row("matmul_bias_gelu", "1.5-2", 1.5, matmul_bias_gelu),
    row("attention", "2-3", 2.0, attention),
    row("transformer_block", "3-5", 3.0, transformer_block),
    row("layer_norm_quantize", "2.5-3", 2.5, layer_norm_quantize),
    row("dequantize_matmul_quantize", "3-4", 3.0, dequantize_matmul_quantize),
    row("conv_batch_norm_relu", "1.5-2", 1.5, conv_batch_norm_relu),
    row("resnet50", "1.48", 1.48, resnet50),
    row("resnet50_bf16", "1.48", 1.48, resnet50_bf16),
    row("transformer", "1.92", 1.92, translation),
    row("bert", "2.13", 2.13, bert),
];

const fn row(
    name: &'static str,
    said: &'static str,
    least: f64,
    program: fn(Scale) -> Result<BenchProgram, Diagnostic>,
) -> MarkRow {
    MarkRow { name, said, least, program }
}

/// A forward program that reads data alone.
fn forward(
    name: &str,
    dtype: DType,
    body: impl FnOnce(&Weights<'_>) -> Tensor,
) -> Result<BenchProgram, Diagnostic> {
    let traced = trace(name, |t| body(&Weights::new(t, dtype)))?;
    Ok(BenchProgram::forward(name, traced))
}

fn relu_batch_norm_dropout(scale: Scale) -> Result<BenchProgram, Diagnostic> {
    let [batch, channels, size] = scale.of([[2, 4, 8], [32, 64, 32], [256, 64, 56]]);
    forward("relu_batch_norm_dropout", DType::F32, |w| {
        let x = w.data("x", [batch, channels, size, size]).relu();
        let key = Key::new(&w.t.input("seed", TensorType::scalar(DType::I64)));
        normalized(w, &x, channels).dropout(&key, 0.1)
    })
}

fn sin_cos(scale: Scale) -> Result<BenchProgram, Diagnostic> {
    let n = scale.of([1 << 10, 1 << 22, 1 << 26]);
    forward("sin_cos", DType::F32, |w| w.data("x", [n]).sin() + w.data("y", [n]).cos())
}

fn add_relu_mul_sum(scale: Scale) -> Result<BenchProgram, Diagnostic> {
    let dims = scale.of([[8, 64], [4096, 1024], [65536, 1024]]);
    forward("add_relu_mul_sum", DType::F32, |w| {
        let [a, b, c] = ["a", "b", "c"].map(|name| w.data(name, dims));
        ((a + b).relu() * c).sum(-1)
    })
}

fn layer_norm_bias_gelu(scale: Scale) -> Result<BenchProgram, Diagnostic> {
    let [rows, features] = rows(scale);
    forward("layer_norm_bias_gelu", DType::F32, |w| {
        w.layer_norm(&w.data("x", [rows, features]), features).gelu()
    })
}

/// `gelu(a + b)` of some millions of elements.
fn add_gelu(name: &str, scale: Scale, millions: u64) -> Result<BenchProgram, Diagnostic> {
    let n = scale.of([millions * 100, millions << 20, millions << 20]);
    forward(name, DType::F32, |w| (w.data("a", [n]) + w.data("b", [n])).gelu())
}

fn l2_norm(scale: Scale) -> Result<BenchProgram, Diagnostic> {
    forward("l2_norm", DType::F32, |w| w.data("x", rows(scale)).l2_normalize(-1, 1e-12))
}

fn matmul_bias_gelu(scale: Scale) -> Result<BenchProgram, Diagnostic> {
    let [rows, inputs, outputs] = product(scale);
    forward("matmul_bias_gelu", scale.dtype(), |w| {
        w.linear(&w.data("x", [rows, inputs]), [inputs, outputs]).gelu()
    })
}

fn attention(scale: Scale) -> Result<BenchProgram, Diagnostic> {
    let dims = scale.of([[1, 2, 16, 8], [2, 4, 512, 64], [8, 12, 1024, 64]]);
    forward("attention", scale.dtype(), |w| {
        let [q, k, v] = ["q", "k", "v"].map(|name| w.data(name, dims));
        let scores = w.t.einsum("bhtd,bhsd->bhts", &[&q, &k]) * (dims[3] as f64).powf(-0.5);
        w.t.einsum("bhts,bhsd->bhtd", &[&scores.softmax(-1), &v])
    })
}

fn transformer_block(scale: Scale) -> Result<BenchProgram, Diagnostic> {
    let size = TransformerSize {
        layers: 1,
        features: scale.of([16, 256, 768]),
        heads: scale.of([2, 4, 12]),
        time: scale.of([8, 128, 1024]),
        batch: scale.of([1, 8, 16]),
        words: 0,
        dtype: scale.dtype(),
    };
    Ok(BenchProgram::forward("transformer_block", size.block()?))
}

fn layer_norm_quantize(scale: Scale) -> Result<BenchProgram, Diagnostic> {
    let [rows, features] = rows(scale);
    forward("layer_norm_quantize", DType::F32, |w| {
        let step = w.t.input("scale", f32s([]));
        w.layer_norm(&w.data("x", [rows, features]), features).quantize(&step, 3)
    })
}

fn dequantize_matmul_quantize(scale: Scale) -> Result<BenchProgram, Diagnostic> {
    let [rows, inputs, outputs] = product(scale);
    forward("dequantize_matmul_quantize", scale.dtype(), |w| {
        let quantized = |name: &str, dims: [u64; 2]| {
            let step = w.t.input(&format!("{name}.scale"), TensorType::scalar(w.dtype));
            w.t.input(name, TensorType::of(DType::I8, &dims)).dequantize(&step, 3)
        };
        let y = quantized("x", [rows, inputs]).dot(&quantized("weight", [inputs, outputs]));
        y.quantize(&w.t.input("scale", TensorType::scalar(w.dtype)), 3)
    })
}

fn conv_batch_norm_relu(scale: Scale) -> Result<BenchProgram, Diagnostic> {
    let [batch, channels, size] = scale.of([[1, 4, 8], [8, 32, 28], [64, 64, 56]]);
    forward("conv_batch_norm_relu", DType::F32, |w| {
        let x = w.data("x", [batch, channels, size, size]);
        normalized(w, &conv(w, &x, [channels, channels, 3, 1]), channels).relu()
    })
}

/// Rows and features of what is normalized.
fn rows(scale: Scale) -> [u64; 2] {
    scale.of([[8, 64], [4096, 1024], [32768, 1024]])
}

/// Rows, inputs and outputs of a product.
fn product(scale: Scale) -> [u64; 3] {
    scale.of([[8, 16, 32], [512, 512, 2048], [16384, 768, 3072]])
}

fn resnet50(scale: Scale) -> Result<BenchProgram, Diagnostic> {
    let net = residual_net(scale);
    Ok(BenchProgram::gradient("resnet50", net.loss()?))
}

fn resnet50_bf16(scale: Scale) -> Result<BenchProgram, Diagnostic> {
    let net = ResNet { dtype: DType::BF16, ..residual_net(scale) };
    Ok(BenchProgram::gradient("resnet50_bf16", net.loss()?))
}

fn residual_net(scale: Scale) -> ResNet {
    let small = ResNet::small_images(50, scale.of([[1, 8, 2], [4, 16, 16], [4, 16, 16]]));
    let photographs =
        ResNet { photographs: true, batch: 32, size: 224, width: 64, classes: 1000, ..small };
    let quick = ResNet { blocks: [1, 1, 1, 1], ..small };
    scale.of([quick, small, photographs])
}

fn translation(scale: Scale) -> Result<BenchProgram, Diagnostic> {
    let size = TransformerSize {
        layers: scale.of([1, 2, 6]),
        features: scale.of([8, 64, 512]),
        heads: scale.of([2, 4, 8]),
        time: scale.of([4, 32, 256]),
        batch: scale.of([1, 8, 32]),
        words: scale.of([11, 512, 32768]),
        dtype: scale.dtype(),
    };
    Ok(BenchProgram::gradient("transformer", size.translation()?))
}

fn bert(scale: Scale) -> Result<BenchProgram, Diagnostic> {
    let size = TransformerSize {
        layers: scale.of([1, 2, 12]),
        features: scale.of([8, 128, 768]),
        heads: scale.of([2, 4, 12]),
        time: scale.of([4, 64, 512]),
        batch: scale.of([1, 4, 16]),
        words: scale.of([11, 1024, 30522]),
        dtype: scale.dtype(),
    };
    Ok(BenchProgram::gradient("bert", size.bert()?))
}
