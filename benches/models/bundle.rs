//! Residuals of a bundle adjustment and their sparse Jacobian, a block of 2 x 12 an observation; 49 cameras, 7776 points,
//! 31843 observations, 64 bits. A step is the residuals and the Jacobian.

use crate::measure;
use adfuse::prelude::*;
use adfuse::transform::{jacfwd, jit, vmap};
use adfuse_benches::numbers::{classes, numbers};
use std::error::Error;

const CAMERAS: u64 = 49;
const POINTS: u64 = 7776;
const OBSERVATIONS: u64 = 31843;

/// Rodrigues' formula, which is the identity at 0.
fn rotate(r: &Tensor, x: &Tensor) -> Tensor {
    let squared = r.dot(r);
    let small = squared.lt(1e-20);
    let angle = small.select(&squared.ones_like(), &squared).sqrt();
    let axis = r / &angle;
    let along = (1.0 - angle.cos()) * axis.dot(x);
    let turned = x * angle.cos() + cross(&axis, x) * angle.sin() + axis * along;
    small.select(x + cross(r, x), turned)
}

fn cross(a: &Tensor, b: &Tensor) -> Tensor {
    let at = |v: &Tensor, k: i64| v.slice(k..k + 1);
    let element = |i, j| at(a, i) * at(b, j) - at(a, j) * at(b, i);
    Tensor::concat(&[&element(1, 2), &element(2, 0), &element(0, 1)], 0)
}

/// `camera`: rotation, translation, focal length, two distortions.
fn residual(camera: &Tensor, point: &Tensor, seen: &Tensor) -> Tensor {
    let of = |k: i64| camera.slice(k..k + 1);
    let p = rotate(&camera.slice(0..3), point) + camera.slice(3..6);
    let p = -p.slice(0..2) / p.slice(2..3);
    let squared = p.dot(&p);
    let distorted = 1.0 + of(7) * &squared + of(8) * &squared * &squared;
    of(6) * distorted * p - seen
}

fn values(dims: &[u64], seed: u64, middle: &[f64], spread: &[f64]) -> Result<Array, Diagnostic> {
    let drawn = numbers(dims.iter().product::<u64>() as usize, seed).into_iter().enumerate();
    let value =
        |(k, v): (usize, f32)| middle[k % middle.len()] + spread[k % spread.len()] * f64::from(v);
    Array::from_f64s(DType::F64, dims, &drawn.map(value).collect::<Vec<_>>())
}

/// An index below `count` for each observation.
fn indices(count: u64, seed: u64) -> Result<Array, Diagnostic> {
    let values = classes(OBSERVATIONS as usize, count as i32, seed);
    let values: Vec<f64> = values.into_iter().map(f64::from).collect();
    Array::from_f64s(DType::I32, &[OBSERVATIONS], &values)
}

pub(crate) fn evaluate() -> Result<(), Box<dyn Error>> {
    let middle = [0.0, 0.0, 0.0, 0.0, 0.0, -5.0, 500.0, 0.0, 0.0];
    let spread = [0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 10.0, 1e-3, 1e-3];
    let args = (
        values(&[CAMERAS, 9], 1, &middle, &spread)?,
        values(&[POINTS, 3], 2, &[0.0], &[1.0])?,
        indices(CAMERAS, 3)?,
        indices(POINTS, 4)?,
        values(&[OBSERVATIONS, 2], 5, &[0.0], &[1.0])?,
    );
    type Given = (Tensor, Tensor, Tensor, Tensor, Tensor);
    let step = jit(|(cameras, points, of_camera, of_point, seen): Given| {
        let given = (cameras.take(&of_camera, 0), points.take(&of_point, 0), seen);
        let errors = vmap(|(c, p, s): &(Tensor, Tensor, Tensor)| residual(c, p, s))(&given);
        let blocks = vmap(|(c, p, s): &(Tensor, Tensor, Tensor)| {
            jacfwd(|(c, p): &(Tensor, Tensor)| residual(c, p, s))(&(c.clone(), p.clone()))
        })(&given);
        (errors.square().mean(..), errors, blocks)
    });
    measure::run(|| Ok::<f64, Diagnostic>(step.call(&args)?.0.to_f64s()[0]))
}
