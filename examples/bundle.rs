//! Bundle adjustment: finds cameras and points from where cameras see points: `cargo run --release -p adfuse-examples --example bundle`.
//!
//! The Jacobian is sparse: a view depends on one camera and one point, and `vmap` of `jacrev` gives these two blocks of it and no zeros.
//! Levenberg and Marquardt's steps eliminate the points from the normal equations (Schur complement) and solve for the cameras by conjugate
//! gradients. A step is one compiled program.

// What it finds is for people to read.
#![allow(clippy::print_stdout)]

mod common;

use adfuse::prelude::*;
use adfuse::sample::rng;
use adfuse::transform::{fori, jacrev, jit, vmap};
use clap::Parser;
use rand::Rng;
use std::error::Error;

/// Cameras `[n, 6]`, by rotation vectors and translations, and points `[m, 3]`.
#[derive(Params, Clone)]
struct Scene<T = Tensor> {
    cameras: T,
    points: T,
}

/// Which camera and which point a view is of, `i32[k]`, and where the point is seen, `[k, 2]`.
#[derive(Params, Clone)]
struct Views<T = Tensor> {
    camera: T,
    point: T,
    place: T,
}

fn cross(a: &Tensor, b: &Tensor) -> Tensor {
    let rolled = |v: &Tensor| Tensor::concat(&[&v.slice(1..), &v.slice(..1)], 0);
    rolled(&(a * rolled(b) - rolled(a) * b))
}

/// Where a camera sees a point, which is turned by Rodrigues' formula, moved and projected.
fn seen(camera: &Tensor, point: &Tensor) -> Tensor {
    let turn = camera.slice(..3);
    let angle = turn.square().sum(..).sqrt();
    let axis = turn / &angle;
    let along = &axis * axis.dot(point) * (1.0 - angle.cos());
    let place = point * angle.cos() + cross(&axis, point) * angle.sin() + along + camera.slice(3..);
    place.slice(..2) / place.slice(2)
}

/// By how much views are missed, `[k, 2]`, and the blocks of the Jacobian, `[k, 2, 6]` and `[k, 2, 3]`.
fn missed(scene: &Scene, views: &Views) -> (Tensor, Scene) {
    let cameras = scene.cameras.take(&views.camera, 0);
    let points = scene.points.take(&views.point, 0);
    vmap(|(cameras, points, place): &(Tensor, Tensor, Tensor)| {
        let miss = |s: &Scene| seen(&s.cameras, &s.points) - place;
        let one = Scene { cameras: cameras.clone(), points: points.clone() };
        (miss(&one), jacrev(miss)(&one))
    })(&(cameras, points, views.place.clone()))
}

/// The inverses of symmetric matrices `[m, 3, 3]`, by cofactors.
fn inverse(a: &Tensor) -> Tensor {
    vmap(|a: &Tensor| {
        let [x, y, z] = [0, 1, 2].map(|k| a.slice(k));
        let rows = [cross(&y, &z), cross(&z, &x), cross(&x, &y)];
        Tensor::stack(&[&rows[0], &rows[1], &rows[2]], 0) / x.dot(&rows[0])
    })(a)
}

/// Solves `a(x) = b` by conjugate gradients.
fn conjugate_gradients(a: impl Fn(&Tensor) -> Tensor, b: Tensor, steps: i64) -> Tensor {
    let first = (b.zeros_like(), b.clone(), b);
    let (x, ..) = fori(0..steps, first, |_, (x, r, p)| {
        let (ap, size) = (a(&p), r.square().sum(..));
        // Where it has arrived it stays.
        let along = &size / ((&p * &ap).sum(..) + 1e-300);
        let next = &r - &along * ap;
        let turned = next.square().sum(..) / (size + 1e-300);
        (x + along * &p, next.clone(), next + turned * p)
    });
    x
}

/// The scene after a step: the change solves `(J^T J + damping diag(J^T J)) change = J^T miss`.
fn improved(scene: &Scene, views: &Views, damping: &Tensor) -> Scene {
    let (miss, by) = missed(scene, views);
    let (c, p) = (&by.cameras, &by.points);
    // Sums over the views of each camera, and of each point.
    let [n, m] = [&scene.cameras, &scene.points].map(|t| t.ty().shape[0].known().unwrap_or(0));
    let cameras = |rows: &Tensor| rows.segment_sum(&views.camera, n);
    let points = |rows: &Tensor| rows.segment_sum(&views.point, m);
    let t = scene.cameras.tracer();
    // J^T of residuals, and J of a change of cameras or of points.
    let from = |j: &Tensor, rows: &Tensor| t.einsum("kia,ki->ka", &[j, rows]);
    let along = |j: &Tensor, change: &Tensor, of: &Tensor| {
        t.einsum("kia,ka->ki", &[j, &change.take(of, 0)])
    };
    // How points follow what is missed, and what is missed when they have.
    let blocks = points(&t.einsum("kia,kib->kab", &[p, p]));
    let inverses = inverse(&(blocks * (t.eye(3, DType::F64) * damping + 1.0)));
    let follow = |rows: &Tensor| t.einsum("mab,mb->ma", &[&inverses, &points(&from(p, rows))]);
    let onto_cameras = |rows: &Tensor| {
        let rest = rows - along(p, &follow(rows), &views.point);
        cameras(&from(c, &rest))
    };
    let damped = cameras(&c.square().sum(1)) * damping;
    let schur = |x: &Tensor| onto_cameras(&along(c, x, &views.camera)) + x * &damped;
    let by_camera = conjugate_gradients(schur, onto_cameras(&miss), 100);
    let by_point = follow(&(miss - along(c, &by_camera, &views.camera)));
    Scene { cameras: &scene.cameras - by_camera, points: &scene.points - by_point }
}

/// Numbers around 0, or around others.
fn moved(from: &Array, by: f64, random: &mut impl Rng) -> Result<Array, Diagnostic> {
    let mut to = from.clone();
    to.update::<f64>(|all| all.iter_mut().for_each(|x| *x += random.random_range(-by..by)))?;
    Ok(to)
}

fn main() -> Result<(), Box<dyn Error>> {
    let flags = common::ExampleFlags::parse();
    let (n, m) = if flags.small { (4, 20) } else { (16, 1000) };
    let mut random = rng(flags.seed, 0);
    // Cameras look at a cloud of points from a distance of about 4.
    let ahead = [0.1, 0.1, 0.1, 0.0, 0.0, 4.0].repeat(n);
    let truth = Scene {
        cameras: moved(&Array::from_vec(ahead, [n as u64, 6])?, 0.3, &mut random)?,
        points: moved(&Array::from_vec(vec![0.0f64; 3 * m], [m as u64, 3])?, 1.0, &mut random)?,
    };
    // A quarter of the views is missing.
    let pairs =
        (0..n * m).filter(|_| random.random_bool(0.75)).map(|k| ((k / m) as i32, (k % m) as i32));
    let (camera, point): (Vec<i32>, Vec<i32>) = pairs.unzip();
    let places = Array::from_vec(vec![0.0f64; 2 * camera.len()], [camera.len() as u64, 2])?;
    let mut views = Views { camera: camera.into(), point: point.into(), place: places };

    let device = flags.device()?;
    let errors = jit(|(scene, views): (Scene, Views)| missed(&scene, &views).0).on(device.clone());
    let improve =
        jit(|(scene, views, damping): (Scene, Views, Tensor)| improved(&scene, &views, &damping))
            .on(device);
    // Where nothing is seen, what is missed are the true places; they are seen with some noise.
    views.place = moved(&errors.call(&(truth.clone(), views.clone()))?, 1e-4, &mut random)?;
    let miss = |scene: &Scene<Array>| {
        let all = errors.call(&(scene.clone(), views.clone()))?.to_f64s();
        Ok::<f64, Diagnostic>((all.iter().map(|r| r * r).sum::<f64>() / all.len() as f64).sqrt())
    };

    let mut scene = Scene {
        cameras: moved(&truth.cameras, 0.1, &mut random)?,
        points: moved(&truth.points, 0.2, &mut random)?,
    };
    let (mut error, mut damping) = (miss(&scene)?, 1e-3);
    println!("{n} cameras, {m} points, {} views: error {error:.3e}", views.place.dims()[0]);
    for step in 1..=flags.steps(12, 8) {
        let next = improve.call(&(scene.clone(), views.clone(), Array::from(damping)))?;
        let found = miss(&next)?;
        println!("step {step:2}, error {found:.6e}, damping {damping:.0e}");
        if found < error {
            (scene, error, damping) = (next, found, damping * 0.1);
        } else {
            damping *= 10.0;
        }
    }
    Ok(())
}
