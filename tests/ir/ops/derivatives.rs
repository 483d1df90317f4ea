//! Comparing derivatives with differences, and reverse with forward mode, to any order.

use adfuse::autodiff::{differentiable, jvp, vjp};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::op::Domain;
use adfuse::ir::{DType, Diagnostic, Function, Module};
use adfuse::sample::sample;
use rand_chacha::ChaCha8Rng;

/// A function at a point.
pub(crate) struct Point {
    pub(crate) module: Module,
    pub(crate) args: Vec<Array>,
}

/// What is tolerated per element: `rtol` of the larger of both, and `atol` of `max(1, |f|)`.
const RTOL: f64 = 1e-5;
const ATOL: f64 = 1e-9;
/// What is tolerated of an inner product, relative to the magnitudes of its terms.
const ADJOINT: f64 = 1e-12;
/// How much more each further order is given.
const PER_ORDER: f64 = 10.0;

impl Point {
    pub(crate) fn new(f: Function, args: Vec<Array>) -> Point {
        Point { module: Module::single(f), args }
    }

    pub(crate) fn f(&self) -> &Function {
        self.module.funcs.values().next().expect("a function")
    }

    /// Positions of the parameters of a float type; none when no result is of one.
    pub(crate) fn wrt(&self) -> Vec<usize> {
        let moves = self.f().result_types().iter().any(|t| t.dtype.is_float());
        if moves { differentiable(self.f(), None).unwrap_or_default() } else { Vec::new() }
    }

    fn at(&self, args: &[Array]) -> Vec<Array> {
        run(&self.module, self.f(), args, &mut Silent)
            .unwrap_or_else(|d| panic!("{d}\n{}", self.f()))
    }

    /// The function's `jvp` at the point and a random tangent.
    fn forward(&self, wrt: &[usize], rng: &mut ChaCha8Rng) -> Result<Point, Diagnostic> {
        let f = jvp(&self.module, self.f(), wrt)?;
        let tangents = uniform(wrt.iter().map(|&k| &self.args[k]), rng);
        let args = self.args.iter().cloned().chain(tangents).collect();
        Ok(Point::new(f, args))
    }

    /// The function's `vjp` at the point and random cotangents.
    fn reverse(&self, wrt: &[usize], rng: &mut ChaCha8Rng) -> Result<Point, Diagnostic> {
        let f = vjp(&self.module, self.f(), wrt)?;
        let results = self.at(&self.args);
        let cotangents = uniform(results.iter().filter(|a| a.dtype().is_float()), rng);
        let args = self.args.iter().cloned().chain(cotangents).collect();
        Ok(Point::new(f, args))
    }
}

fn uniform<'a>(like: impl Iterator<Item = &'a Array>, rng: &mut ChaCha8Rng) -> Vec<Array> {
    like.map(|a| sample(&a.ty(), Domain::Uniform(-1.0, 1.0), rng).expect("samples")).collect()
}

/// Checks both modes at this point, and both modes of both modes up to `orders`. What a
/// transformation says that it does not do is not checked; the number of checks comes back.
pub(crate) fn check(point: &Point, orders: usize, rng: &mut ChaCha8Rng) -> Result<usize, String> {
    check_order(point, orders, 1.0, rng)
}

fn check_order(
    point: &Point,
    orders: usize,
    scale: f64,
    rng: &mut ChaCha8Rng,
) -> Result<usize, String> {
    let wrt = point.wrt();
    if orders == 0 || wrt.is_empty() {
        return Ok(0);
    }
    let mut count = 1;
    let refused = |d: Diagnostic| match d.kind {
        adfuse::ir::Kind::Unsupported => None,
        _ => Some(format!("{d}\n{}", point.f())),
    };
    let forward = match point.forward(&wrt, rng) {
        Ok(forward) => forward,
        Err(d) => return refused(d).map_or(Ok(0), Err),
    };
    differences(point, &forward, &wrt, scale)?;
    count += check_order(&forward, orders - 1, scale * PER_ORDER, rng)?;
    match point.reverse(&wrt, rng) {
        Ok(reverse) => {
            adjoint(point, &forward, &reverse, &wrt, scale)?;
            count += 1 + check_order(&reverse, orders - 1, scale * PER_ORDER, rng)?;
        }
        Err(d) => {
            if let Some(why) = refused(d) {
                return Err(why);
            }
        }
    }
    Ok(count)
}

/// Checks the inner product alone, for the parameters at `wrt`.
pub(crate) fn check_adjoint(
    point: &Point,
    wrt: &[usize],
    rng: &mut ChaCha8Rng,
) -> Result<(), String> {
    let fail = |d: Diagnostic| format!("{d}\n{}", point.f());
    let forward = point.forward(wrt, rng).map_err(fail)?;
    let reverse = point.reverse(wrt, rng).map_err(fail)?;
    adjoint(point, &forward, &reverse, wrt, 1.0)
}

fn floats(arrays: &[Array]) -> Vec<f64> {
    arrays.iter().filter(|a| a.dtype().is_float()).flat_map(Array::to_f64s).collect()
}

/// Forward mode against five-point differences; each element takes the step that agrees best.
fn differences(point: &Point, forward: &Point, wrt: &[usize], scale: f64) -> Result<(), String> {
    let directions = &forward.args[point.args.len()..];
    let out = forward.at(&forward.args);
    let results = point.at(&point.args);
    let values = floats(&results);
    let claimed = floats(&out[results.len()..]);
    assert_eq!(values.len(), claimed.len(), "{}", forward.f());
    let mut best = vec![(f64::INFINITY, 0.0); values.len()];
    for h in [1e-2, 1e-3, 1e-4, 1e-5, 1e-6] {
        let at = |s: f64| {
            let mut args = point.args.clone();
            for (&k, d) in wrt.iter().zip(directions) {
                let x = args[k].to_f64s();
                let moved: Vec<f64> =
                    x.iter().zip(d.to_f64s()).map(|(x, d)| x + s * h * d).collect();
                args[k] = Array::from_f64s(DType::F64, args[k].dims(), &moved).expect("same size");
            }
            floats(&point.at(&args))
        };
        let (far_up, up, down, far_down) = (at(2.0), at(1.0), at(-1.0), at(-2.0));
        for i in 0..values.len() {
            let slope = (8.0 * (up[i] - down[i]) - (far_up[i] - far_down[i])) / (12.0 * h);
            let allowed =
                RTOL * slope.abs().max(claimed[i].abs()) + ATOL * values[i].abs().max(1.0);
            let error = (slope - claimed[i]).abs() / (scale * allowed);
            if error < best[i].0 {
                best[i] = (error, slope);
            }
        }
    }
    for (i, &(error, slope)) in best.iter().enumerate() {
        // Where the function itself is NaN there is no difference to compare with.
        if error > 1.0 && !values[i].is_nan() {
            let (f, j) = (point.f(), forward.f());
            let claimed = claimed[i];
            return Err(format!(
                "element {i}: forward mode gives {claimed}, differences {slope} \
                 ({error:.1} times the tolerance) for\n{f}its jvp is\n{j}at {:?}",
                point.args
            ));
        }
    }
    Ok(())
}

/// `<ct, J t> = <Jᵀ ct, t>`
fn adjoint(
    point: &Point,
    forward: &Point,
    reverse: &Point,
    wrt: &[usize],
    scale: f64,
) -> Result<(), String> {
    let n = point.args.len();
    let results = point.f().result_types().iter().filter(|t| t.dtype != DType::Token).count();
    let tangents = floats(&forward.at(&forward.args)[results..]);
    let gradients = floats(&reverse.at(&reverse.args)[results..]);
    let left = dot(&floats(&reverse.args[n..]), &tangents);
    let right = dot(&gradients, &floats(&forward.args[n..]));
    let allowed = scale * ADJOINT * (left.1 + right.1) + 1e-300;
    let error = (left.0 - right.0).abs();
    if error <= allowed {
        return Ok(());
    }
    let (f, r) = (point.f(), reverse.f());
    Err(format!(
        "<ct, J t> = {}, <Jt ct, t> = {} wrt {wrt:?} for\n{f}its vjp is\n{r}",
        left.0, right.0
    ))
}

/// The inner product and the sum of its terms' magnitudes.
fn dot(a: &[f64], b: &[f64]) -> (f64, f64) {
    assert_eq!(a.len(), b.len());
    let terms = a.iter().zip(b).map(|(a, b)| a * b);
    terms.fold((0.0, 0.0), |(sum, all), t| (sum + t, all + t.abs()))
}
