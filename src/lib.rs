//! A compiler for differentiable programs: you write a loss, adfuse differentiates it, decides which operations share a
//! kernel and which values are kept within the memory that you allow, and runs it as machine code on a CPU or an NVIDIA
//! GPU, with the same bits everywhere.
//!
//! # A first gradient
//!
//! A closure of [`Tensor`](trace::Tensor)s is *traced*: its methods and operators record a program. [`transform::grad`] and
//! its like differentiate the program, [`jit`] compiles it when arguments arrive, and [`Array`](backends::Array)s go in and
//! come out.
//!
//! ```
//! use adfuse::prelude::*;
//!
//! // The mean squared error of a linear model, and its gradient in the weights.
//! let loss = |w: &Tensor, x: &Tensor, y: &Tensor| (x.dot(w) - y).square().mean(..);
//! let f = adfuse::jit(move |(w, x, y): (Tensor, Tensor, Tensor)| {
//!     value_and_grad(|w: &Tensor| loss(w, &x, &y))(&w)
//! });
//!
//! let w = Array::from_vec(vec![1.0f32, -1.0], [2])?;
//! let x = Array::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], [2, 2])?;
//! let y = Array::from_vec(vec![0.0f32, 0.0], [2])?;
//! let (value, gradient) = f.call(&(w, x, y))?;
//! assert_eq!(value.item::<f32>()?, 1.0);
//! assert_eq!(gradient.as_slice::<f32>()?, [-4.0, -6.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A shape that does not fit is an error of the call, with the line in your source. [`transform`] has the other
//! transformations: [`jvp`](transform::jvp), [`vjp`](transform::vjp), [`vmap`](transform::vmap), Jacobians, Hessians, rules
//! of your own. They nest.
//!
//! # Training
//!
//! A model is a struct that derives [`Params`]. [`train_step`] makes one program of the forward pass, the backward pass and
//! the [optimizer](optim); parameters stay on the device and are updated in place. [`nn`] has layers, [`data`] reads files
//! and makes batches, [`train::Trainer`] goes over epochs with progress, a log and checkpoints.
//!
#![cfg_attr(feature = "data", doc = "```")]
#![cfg_attr(not(feature = "data"), doc = "```ignore")]
//! use adfuse::nn::Linear;
//! use adfuse::optim::Adam;
//! use adfuse::prelude::*;
//!
//! #[derive(Params, Clone)]
//! struct Mlp<T = Tensor> {
//!     hidden: Linear<T>,
//!     output: Linear<T>,
//! }
//!
//! let model = Mlp { hidden: Linear::new(64, 32), output: Linear::new(32, 10) };
//! let loss = |net: &Mlp, (x, y): (Tensor, Tensor)| {
//!     net.output.apply(net.hidden.apply(x.flatten(1..)).gelu()).cross_entropy(&y)
//! };
//! let step = adfuse::train_step(Adam::new(0.01), model, loss);
//! let mut state = step.init(Device::cpu(), 0)?; // seed 0
//! let mut loss = f64::NAN;
//! for batch in data::digits()?.shuffled(0).batches(64) {
//!     loss = state.step(&batch)?;
//! }
//! assert!(loss < 1.5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The plan
//!
//! A *plan* says which operations share a kernel, which values wait for the backward pass, and which are computed again.
//! [`Jit::report`] and [`train::TrainState::report`] collect a plan as data, and [`report::page`] draws it.
//!
#![cfg_attr(feature = "report", doc = "```")]
#![cfg_attr(not(feature = "report"), doc = "```ignore")]
//! use adfuse::prelude::*;
//!
//! let f = adfuse::jit(|x: Tensor| (x.exp() * 0.5).sum(-1));
//! let report = f.report(&f32s([64, 32]))?;
//! assert_eq!(report.steps.len(), 1); // exp, the product and the sum are one kernel
//! let page = adfuse::report::page(&report); // HTML that needs nothing but a browser
//! # assert!(page.contains("<svg"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A budget of memory
//!
//! [`Device::mem_budget`] is a promise: a step holds no more bytes than that, or it is an error of class
//! [`Limit`](ir::Kind::Limit) that names the smallest budget. The planner computes values again in the backward pass where
//! that takes least time. [`plan_cache`] keeps what was found for the next run.
//!
//! ```
//! use adfuse::nn::Linear;
//! use adfuse::optim::Sgd;
//! use adfuse::prelude::*;
//!
//! let model = vec![Linear::new(32, 32); 8];
//! let step = adfuse::train_step(Sgd::new(0.1), model, |net: &Vec<Linear>, x: Tensor| {
//!     net.iter().fold(x.clone(), |h, layer| layer.apply(h).tanh()).mse(&x)
//! });
//! let values = (0..512 * 32).map(|k| (k as f32 * 0.37).sin()).collect();
//! let batch = Array::from_vec(values, [512, 32])?;
//! let mut free = step.init(Device::cpu(), 0)?;
//! let loss = free.step(&batch)?;
//!
//! let budget = free.peak_bytes() * 2 / 3;
//! let mut within = step.init(Device::cpu().mem_budget(budget), 0)?;
//! let same = within.step(&batch)?;
//! assert!(within.peak_bytes() <= budget);
//! assert_eq!(loss.to_bits(), same.to_bits());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The same bits
//!
//! In [strict mode](ir::Fp), which is the default, results have the same bits for every plan, number of threads, budget and
//! device. [`Device::fp`] gives that up for speed.
//!
//! ```
//! use adfuse::prelude::*;
//!
//! let x = Array::from_vec((0..10_000).map(|k| (k as f32 * 0.1).sin()).collect(), [10_000])?;
//! let bits = |threads| -> Result<u32, Box<dyn std::error::Error>> {
//!     let f = adfuse::jit(|x: Tensor| x.exp().sum(..)).on(Device::cpu().threads(threads));
//!     Ok(f.call(&x)?.item::<f32>()?.to_bits())
//! };
//! assert_eq!(bits(1)?, bits(7)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Loops
//!
//! [`transform::scan`], [`transform::fori`] and [`transform::while_loop`] are loops of the program, not of the trace: they
//! are compiled once, and differentiated in both modes. The planner decides which values of each step wait for the
//! backward pass.
//!
//! ```
//! use adfuse::prelude::*;
//! use adfuse::transform::scan;
//!
//! let last = |w: &Tensor, xs: &Tensor| {
//!     let (h, _) = scan(w.zeros_like(), xs.clone(), |h, x| {
//!         let next = (h * w + x).tanh();
//!         (next.clone(), next) // what is carried, and what is stacked
//!     });
//!     h
//! };
//! let f = adfuse::jit(move |(w, xs): (Tensor, Tensor)| grad(|w: &Tensor| last(w, &xs))(&w));
//! let xs = Array::from_vec(vec![0.1f32; 100], [100])?;
//! let slope = f.call(&(Array::from_vec(vec![0.5f32], [])?, xs))?.item::<f32>()?;
//! assert!(slope > 0.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Programs from elsewhere
//!
//! [`import`] reads StableHLO, which JAX writes, and ONNX models; [`ir::text`] reads adfuse's own text. All of them become a
//! [`Module`](ir::Module), which [`autodiff`] differentiates and [`engine::Cpu`] compiles.
//!
//! ```
//! use adfuse::prelude::*;
//!
//! let text = "func.func @main(%x: tensor<3xf32>) -> tensor<f32> {
//!   %0 = stablehlo.sine %x : tensor<3xf32>
//!   %z = stablehlo.constant dense<0.0> : tensor<f32>
//!   %1 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [0] :
//!     (tensor<3xf32>, tensor<f32>) -> tensor<f32>
//!   return %1 : tensor<f32>
//! }";
//! let module = adfuse::import::stablehlo(text, &Default::default())?.module;
//! let f = module.find("main").expect("@main");
//! let both = adfuse::autodiff::value_and_grad(&module, f, &[0])?;
//! let compiled = Cpu::default().compile(&Module::single(both.clone()), &both)?;
//! let results = compiled.run(&[Array::from_vec(vec![0.0f32; 3], [3])?])?;
//! assert_eq!(results[1].as_slice::<f32>()?, [1.0, 1.0, 1.0]); // cos(0)
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # On a GPU
//!
//! [`Device::gpu`] is an NVIDIA GPU of compute capability 8.0 or later. Nothing else changes: steps, budgets and, in strict
//! mode, bits are the same. The driver is looked for when the device is opened, so that one build runs with and without it.
//!
#![cfg_attr(feature = "gpu", doc = "```no_run")]
#![cfg_attr(not(feature = "gpu"), doc = "```ignore")]
//! use adfuse::prelude::*;
//!
//! let device = Device::gpu(0)?.mem_budget(8 << 30); // an error of class `no-device` where there is none
//! let f = adfuse::jit(|x: Tensor| x.exp().sum(..)).on(device);
//! # Ok::<(), adfuse::ir::Diagnostic>(())
//! ```
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `train` | yes | [`train::Trainer`]: the loop over epochs, its progress bar and its end by Ctrl-C; takes `data` |
//! | `data` | yes | [`data`]: files of arrays, data sets, batches; takes `npz` |
//! | `report` | yes | [`report`]: plans as data and as pages |
//! | `gpu` | yes | [`engine::Gpu`]: the GPU engine; no toolkit is needed to build it |
//! | `npz` | by `data` | [`npz`]: NumPy files |
//! | `ndarray` | no | arrays as those of the crate `ndarray` |
//!
//! Development builds should optimize dependencies (`[profile.dev.package."*"] opt-level = 2`): the compiler is one of them.
//!
//! # Where things are
//!
//! | you want to | look at |
//! |---|---|
//! | write programs | [`trace::Tensor`], [`transform`], [`mod@functions`] |
//! | write and train models | [`nn`], [`optim`], [`train`], [`data`], [`tree`] |
//! | choose where and how they run | [`Device`], [`engine`], [`plan_cache`], [`kernel_cache`], [`tune`] |
//! | check derivatives | [`check`] |
//! | work on programs as data | [`ir`], [`autodiff`], [`import`], [`pipeline`] |
//! | plan graphs of your own | [`fusion::remat`], [`memplan`] |
#![cfg_attr(docsrs, feature(doc_cfg))]

// The derive macro writes `::adfuse::tree`, in this crate too.
#[allow(unused_extern_crates)]
extern crate self as adfuse;

pub mod budget;
pub mod check;
#[cfg(feature = "data")]
pub mod data;
pub mod device;
pub mod engine;
mod entries;
pub mod frontend;
pub mod functions;
#[cfg(feature = "gpu")]
pub mod kernel_cache;
pub mod measure;
pub mod nn;
#[cfg(feature = "npz")]
pub mod npz;
pub mod optim;
pub mod pipeline;
pub mod plan_cache;
pub mod sample;
pub mod trace;
pub mod train;
pub mod transform;
pub mod tree;
pub mod tune;
pub mod whole;

pub use adfuse_autodiff as autodiff;
pub use adfuse_backends as backends;
pub use adfuse_fusion as fusion;
pub use adfuse_import as import;
pub use adfuse_ir as ir;
pub use adfuse_memplan as memplan;
#[cfg(feature = "report")]
pub use adfuse_report as report;
pub use device::Device;
pub use train::{eval_step, train_step};
pub use transform::{Jit, jit};
pub use tree::Params;

/// What a program that uses adfuse as a library imports.
pub mod prelude {
    pub use crate::backends::reference::{Silent, run};
    pub use crate::backends::{Array, Element, Resident};
    #[cfg(feature = "data")]
    pub use crate::data;
    pub use crate::device::Device;
    pub use crate::engine::Cpu;
    #[cfg(feature = "gpu")]
    pub use crate::engine::Gpu;
    pub use crate::ir::verify::verify;
    pub use crate::ir::{
        Attrs, DType, Diagnostic, Dim, Function, Kind, Module, Op, Symbol, TensorType,
    };
    pub use crate::trace::{
        AttentionMask, Conv, ConvGeneral, Key, Padding, Pool, ReduceWindow, Tensor, Traced, Tracer,
        evaluate, f32s, f64s, i32s, keep, trace,
    };
    pub use crate::transform::{
        grad, hessian, hvp, jacfwd, jacrev, jit, jvp, value_and_grad, vjp, vmap,
    };
    pub use crate::tree::Params;
}
