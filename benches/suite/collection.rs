//! The collection of programs on which plans of all efforts are compared: nets of several sizes, programs of this folder, whole training steps.

use crate::nets::Weights;
use crate::nets::conv::{ResNet, normalized, unet};
use crate::nets::dense::perceptron;
use crate::nets::recurrent::{lstm, slices, tanh_net};
use crate::nets::transformer::TransformerSize;
use crate::program::BenchProgram;
use crate::steps;
use adfuse::prelude::*;

/// A program of the collection.
#[derive(Clone, Copy, Debug)]
pub struct CollectedProgram {
    /// Its name.
    pub name: &'static str,
    source: ProgramSource,
}

#[derive(Clone, Copy, Debug)]
enum ProgramSource {
    /// A traced loss, with its gradients.
    Loss(fn() -> Result<Traced, Diagnostic>),
    /// A traced program as it is.
    Whole(fn() -> Result<Traced, Diagnostic>),
    /// A text, the extent of its symbol `n`, and whether it is differentiated.
    Text(&'static str, &'static [(&'static str, u64)], bool),
}

impl CollectedProgram {
    /// The program.
    ///
    /// # Errors
    /// As [`trace`] and [`BenchProgram::of_text`].
    pub fn program(&self) -> Result<BenchProgram, Diagnostic> {
        match self.source {
            ProgramSource::Loss(make) => Ok(BenchProgram::gradient(self.name, make()?)),
            ProgramSource::Whole(make) => Ok(BenchProgram::forward(self.name, make()?)),
            ProgramSource::Text(text, extents, differentiated) => {
                BenchProgram::of_text(self.name, text, extents, differentiated)
            }
        }
    }
}

const fn loss(name: &'static str, make: fn() -> Result<Traced, Diagnostic>) -> CollectedProgram {
    CollectedProgram { name, source: ProgramSource::Loss(make) }
}

const fn whole(name: &'static str, make: fn() -> Result<Traced, Diagnostic>) -> CollectedProgram {
    CollectedProgram { name, source: ProgramSource::Whole(make) }
}

/// A program of `benches/programs`, forward or with its gradients.
macro_rules! written {
    ($name:literal, $differentiated:literal $(, $symbol:ident = $extent:literal)?) => {
        CollectedProgram {
            name: $name,
            source: ProgramSource::Text(
                include_str!(concat!("../programs/", $name, ".ir")),
                &[$((stringify!($symbol), $extent))?],
                $differentiated,
            ),
        }
    };
}

/// Forty programs.
pub const COLLECTION: [CollectedProgram; 40] = [
    loss("gpt2_small", || gpt([2, 16, 2, 12, 2, 33])),
    loss("gpt4_small", || gpt([4, 16, 2, 12, 2, 33])),
    loss("gpt2_mid", || gpt([2, 128, 4, 128, 2, 1024])),
    loss("gpt6_mid", || gpt([6, 128, 4, 128, 2, 1024])),
    loss("resnet18_small", || ResNet::small_images(18, [2, 8, 4]).loss()),
    loss("resnet34_small", || ResNet::small_images(34, [2, 8, 4]).loss()),
    loss("resnet50_small", || ResNet::small_images(50, [2, 8, 4]).loss()),
    loss("resnet18_mid", || ResNet::small_images(18, [4, 16, 16]).loss()),
    loss("resnet34_mid", || ResNet::small_images(34, [4, 16, 16]).loss()),
    loss("resnet50_mid", || ResNet::small_images(50, [4, 16, 16]).loss()),
    loss("unet3_small", || unet([3, 1, 8, 2])),
    loss("unet3_mid", || unet([3, 2, 32, 8])),
    loss("rnn50_small", || tanh_net([50, 2, 3, 5])),
    loss("rnn100_small", || tanh_net([100, 2, 3, 5])),
    loss("rnn200_mid", || tanh_net([200, 16, 32, 64])),
    loss("lstm50_small", || lstm([50, 2, 3, 5])),
    loss("lstm50_mid", || lstm([50, 16, 32, 64])),
    loss("mlp100_small", || perceptron([100, 8, 6], Tensor::tanh)),
    loss("mlp100_mid", || perceptron([100, 512, 64], Tensor::tanh)),
    loss("mlp100r_mid", || perceptron([100, 512, 64], Tensor::relu)),
    loss("slices50", || slices([50, 16, 32])),
    loss("batch_norm_pool", batch_norm_pool),
    whole("cnn_step", || steps::traced(steps::cnn::state()?)),
    whole("gpt_step", || steps::traced(steps::gpt::state()?)),
    whole("lstm_step", || steps::traced(steps::lstm::state()?)),
    written!("softmax", false, n = 1024),
    written!("layer_norm", false, n = 1024),
    written!("dropout_chain", false, n = 1048576),
    written!("dense_relu", false, n = 128),
    written!("sin_and_cos", false, n = 262144),
    written!("residual_norm_loss", true, n = 256),
    written!("cross_entropy_loss", true, n = 512),
    written!("add_gelu_tanh_loss", true, n = 262144),
    written!("bias_relu_loss", true, n = 256),
    written!("gelu_loss", true, n = 262144),
    written!("stack_loss", true, n = 262144),
    written!("mlp_small", true),
    written!("mlp_step", false),
    written!("lenet_loss", true),
    written!("transformer_block", true),
];

/// A GPT of layers, features, heads, positions, sequences and words.
fn gpt([layers, features, heads, time, batch, words]: [u64; 6]) -> Result<Traced, Diagnostic> {
    TransformerSize { layers, features, heads, time, batch, words, dtype: DType::F32 }.gpt()
}

/// Batch norm of a given scale, rectifier and pool; the gradient is in the images too.
fn batch_norm_pool() -> Result<Traced, Diagnostic> {
    trace("batch_norm_pool", |t| {
        let w = Weights::new(t, DType::F32);
        let x = t.input("x", f32s([64, 16, 8, 8]));
        normalized(&w, &x, 16).relu().max_pool2d(2).square().sum(..)
    })
}
