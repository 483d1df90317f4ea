//! Solves Burgers' equation with a network: `cargo run --release -p adfuse-examples --example pinn`.
//!
//! The speed `u(x, t)` of a fluid obeys `u_t + u u_x = v u_xx` for `x` from -1 to 1 and `t` from 0 to 1; it begins as `-sin(pi x)` and is 0 at
//! both ends. The network has these values by its form, and is trained until its derivatives obey the equation (Raissi et al. 2019). The
//! exact solution (Cole 1951, Hopf 1950) is what it is compared with.

#![allow(clippy::print_stdout)] // What it finds is for people to read.

mod common;

use adfuse::nn::{Init, Linear, Param};
use adfuse::optim::{Adam, LearningRate};
use adfuse::prelude::*;
use adfuse::transform::{grad, jvp, vmap};
use adfuse::{eval_step, train_step};
use clap::Parser;
use std::error::Error;
use std::f64::consts::PI;

const VISCOSITY: f64 = 0.05;

#[derive(Params, Clone)]
struct BurgersNet<T = Tensor> {
    hidden: Vec<Linear<T>>,
    out: Linear<T>,
}

impl BurgersNet<Param> {
    fn new(width: u64) -> BurgersNet<Param> {
        let layer = |inputs, outputs| Linear::new(inputs, outputs).init(Init::XavierUniform);
        BurgersNet {
            hidden: vec![layer(2, width), layer(width, width), layer(width, width)],
            out: layer(width, 1),
        }
    }
}

impl BurgersNet {
    /// The speed at a point `[x, t]`, a scalar.
    fn speed(&self, point: &Tensor) -> Tensor {
        let (x, t) = (point.slice(0), point.slice(1));
        let hidden = self.hidden.iter().fold(point.clone(), |h, layer| layer.apply(h).tanh());
        let free = self.out.apply(hidden).squeeze(0);
        t * (1.0 - x.square()) * free - (x * PI).sin()
    }

    /// By how much the equation does not hold at a point.
    fn residual(&self, point: &Tensor) -> Tensor {
        let along_x = point.tracer().constant([1.0f32, 0.0]);
        // The gradient, and how it changes along x: u_xx and u_xt.
        let slopes = grad(|point: &Tensor| self.speed(point));
        let (first, second) = jvp(slopes)(point, &along_x);
        let (u_x, u_t, u_xx) = (first.slice(0), first.slice(1), second.slice(0));
        u_t + self.speed(point) * u_x - u_xx * VISCOSITY
    }
}

/// The exact speed: a quotient of two integrals, by sums.
fn exact(x: f64, t: f64) -> f64 {
    let (mut above, mut below) = (0.0, 0.0);
    for k in -400..=400 {
        let z = f64::from(k) * 0.02;
        let y = x - z * (4.0 * VISCOSITY * t).sqrt();
        let weight = (-(PI * y).cos() / (2.0 * PI * VISCOSITY) - z * z).exp();
        above -= (PI * y).sin() * weight;
        below += weight;
    }
    above / below
}

fn main() -> Result<(), Box<dyn Error>> {
    let flags = common::ExampleFlags::parse();
    let (steps, points) = (flags.steps(4000, 1500), if flags.small { 256 } else { 1024 });
    let rate = LearningRate::constant(3e-3).cosine(steps, 1e-5);
    let step =
        train_step(Adam::new(rate), BurgersNet::new(32), move |net: &BurgersNet, seed: Tensor| {
            let drawn = Key::new(&seed).uniform(f32s([points, 2]));
            // x from -1 to 1.
            let drawn = drawn * seed.tracer().constant([2.0f32, 1.0])
                - seed.tracer().constant([1.0f32, 0.0]);
            vmap(|point: &Tensor| net.residual(point))(&drawn).square().mean(..)
        });
    let speeds = eval_step(|net: &BurgersNet, points: Tensor| {
        vmap(|point: &Tensor| net.speed(point))(&points)
    });

    let mut state = step.init(flags.device()?, flags.seed)?;
    for k in 1..=steps {
        let loss = state.step(&Array::from((flags.seed + k) as i64))?;
        if k == 1 || k % (steps / 10).max(1) == 0 {
            println!("step {k:5}, loss {loss:.3e}");
        }
    }

    println!("time   largest error");
    let mut worst = 0.0f64;
    for t in [0.25, 0.5, 0.75, 1.0] {
        let at: Vec<f64> = (0..=100).map(|k| f64::from(k) / 50.0 - 1.0).collect();
        let points: Vec<f32> = at.iter().flat_map(|&x| [x as f32, t as f32]).collect();
        let found = state.eval(&speeds, &Array::from_vec(points, [101, 2])?)?.to_f64s();
        let errors = found.iter().zip(&at).map(|(u, &x)| (u - exact(x, t)).abs());
        let largest = errors.fold(0.0, f64::max);
        println!("{t:.2}   {largest:.4}");
        worst = worst.max(largest);
    }
    println!("largest of all: {worst:.4}");
    Ok(())
}
