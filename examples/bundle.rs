//! Bundle adjustment: finds cameras and points from views: `cargo run --release -p adfuse-examples --example bundle`.
//!
//! A view depends on one camera and one point: `vmap` of `jacrev` gives these two blocks of the Jacobian, and no zeros. A step of Levenberg and
//! Marquardt eliminates points (Schur complement) and solves for cameras by conjugate gradients. It is one compiled program.

#![allow(clippy::print_stdout)] // What it finds is for people to read.

mod common;

use adfuse::prelude::*;
use adfuse::transform::{fori, jacrev, jit, vmap};
use clap::Parser;
use rand::Rng;

/// Cameras `[n, 6]`, by rotation vectors and translations, and points `[m, 3]`.
#[derive(Params, Clone)]
struct Scene<T = Tensor> {
    cameras: T,
    points: T,
}

/// Views: of which camera and which point they are, `i32[k]`, and where the point is seen, `[k, 2]`.
type Views<T = Tensor> = (T, T, T);

fn cross(a: &Tensor, b: &Tensor) -> Tensor {
    let rolled = |v: &Tensor| Tensor::concat(&[&v.slice(1..), &v.slice(..1)], 0);
    rolled(&(a * rolled(b) - rolled(a) * b))
}

/// Where a camera sees a point: it is turned by Rodrigues' formula, moved and projected.
fn seen(camera: &Tensor, point: &Tensor) -> Tensor {
    let angle = camera.slice(..3).norm(..);
    let axis = camera.slice(..3) / &angle;
    let along = &axis * axis.dot(point) * (1.0 - angle.cos());
    let at = point * angle.cos() + cross(&axis, point) * angle.sin() + along + camera.slice(3..);
    at.slice(..2) / at.slice(2)
}

/// By how much views are missed, `[k, 2]`, and the blocks of the Jacobian, `[k, 2, 6]` and `[k, 2, 3]`.
fn missed(scene: &Scene, (camera, point, place): &Views) -> (Tensor, Scene) {
    let (cameras, points) = (scene.cameras.take(camera, 0), scene.points.take(point, 0));
    vmap(|(one, place): &(Scene, Tensor)| {
        let miss = |one: &Scene| seen(&one.cameras, &one.points) - place;
        (miss(one), jacrev(miss)(one))
    })(&(Scene { cameras, points }, place.clone()))
}

/// The inverse of a symmetric matrix `[3, 3]`, by cofactors.
fn inverse(a: &Tensor) -> Tensor {
    let [x, y, z] = [0, 1, 2].map(|k| a.slice(k));
    Tensor::stack(&[&cross(&y, &z), &cross(&z, &x), &cross(&x, &y)], 0) / x.dot(&cross(&y, &z))
}

/// Solves `a(x) = b` by conjugate gradients.
fn conjugate_gradients(a: impl Fn(&Tensor) -> Tensor, b: Tensor, steps: i64) -> Tensor {
    let first = (b.zeros_like(), b.clone(), b);
    fori(0..steps, first, |_, (x, r, p)| {
        let (ap, size) = (a(&p), r.square().sum(..) + 1e-300);
        let along = &size / ((&p * &ap).sum(..) + 1e-300);
        let next = r - &along * ap;
        let turned = &next + (next.square().sum(..) / size) * p.clone();
        (x + along * p, next, turned)
    })
    .0
}

/// The scene after a step, and the error before it: the change solves `(J^T J + damping diag(J^T J)) change = J^T miss`.
fn improved(scene: &Scene, views: &Views, damping: &Tensor) -> (Scene, Tensor) {
    let (miss, by) = missed(scene, views);
    let (c, p, t) = (&by.cameras, &by.points, miss.tracer());
    let [n, m] = [&scene.cameras, &scene.points].map(|t| t.ty().shape[0].known().unwrap_or(0));
    // Of rows for views, J^T of them, by camera and by point; and J of a change of cameras or points.
    let by_cameras = |r: &Tensor| t.einsum("kia,ki->ka", &[c, r]).segment_sum(&views.0, n);
    let by_points = |r: &Tensor| t.einsum("kia,ki->ka", &[p, r]).segment_sum(&views.1, m);
    let along = |j: &Tensor, by: &Tensor, of| t.einsum("kia,ka->ki", &[j, &by.take(of, 0)]);
    // How points follow what is missed, and what is missed when they have, by camera.
    let blocks = t.einsum("kia,kib->kab", &[p, p]).segment_sum(&views.1, m);
    let inverses = vmap(inverse)(&(blocks * (t.eye(3, DType::F64) * damping + 1.0)));
    let follow = |r: &Tensor| t.einsum("mab,mb->ma", &[&inverses, &by_points(r)]);
    let rest = |r: &Tensor| by_cameras(&(r - along(p, &follow(r), &views.1)));
    let damped = c.square().sum(1).segment_sum(&views.0, n) * damping;
    let schur = |x: &Tensor| rest(&along(c, x, &views.0)) + x * &damped;
    let by_camera = conjugate_gradients(schur, rest(&miss), 60);
    let by_point = follow(&(&miss - along(c, &by_camera, &views.0)));
    let next = Scene { cameras: &scene.cameras - by_camera, points: &scene.points - by_point };
    (next, miss.square().mean(..).sqrt())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let flags = common::ExampleFlags::parse();
    let (n, m) = if flags.small { (4, 20) } else { (16, 400) };
    let mut random = adfuse::sample::rng(flags.seed, 0);
    let mut near = |x: &Array, by: f64| {
        let mut x = x.clone();
        x.update::<f64>(|all| all.iter_mut().for_each(|x| *x += random.random_range(-by..by)))?;
        Ok::<Array, Diagnostic>(x)
    };
    // Cameras look at points around 0 from a distance of about 4. A quarter of the views is missing.
    let cameras = Array::from_vec([0.1, 0.1, 0.1, 0.0, 0.0, 4.0].repeat(n), [n as u64, 6])?;
    let points = Array::from_vec(vec![0.0; 3 * m], [m as u64, 3])?;
    let real = Scene { cameras: near(&cameras, 0.3)?, points: near(&points, 1.0)? };
    let pairs = (0..n * m).map(|k| (k / m, k % m)).filter(|(c, p)| (c + p) % 4 != 0);
    let (of, to): (Vec<i32>, Vec<i32>) = pairs.map(|(c, p)| (c as i32, p as i32)).unzip();
    let improve = jit(|(s, v, damping): (Scene, Views, Tensor)| improved(&s, &v, &damping));
    let improve = improve.on(flags.device()?);
    // What is missed by views at 0 are the true places. They are seen with noise.
    let zeros = Array::from_vec(vec![0.0; 2 * of.len()], [of.len() as u64, 2])?;
    let mut views: Views<Array> = (of.into(), to.into(), zeros);
    let places = jit(|(s, v): (Scene, Views)| missed(&s, &v).0);
    views.2 = near(&places.call(&(real.clone(), views.clone()))?, 1e-4)?;
    let mut scene = Scene { cameras: near(&real.cameras, 0.1)?, points: near(&real.points, 0.2)? };
    let mut damping = 0.01;
    for step in 0..flags.steps(10, 8) {
        let (next, error) = improve.call(&(scene, views.clone(), Array::from(damping)))?;
        println!("after {step} steps, error {:.6e}", error.item::<f64>()?);
        (scene, damping) = (next, 0.2 * damping);
    }
    Ok(())
}
