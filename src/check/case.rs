//! One comparison: the derivatives of a function at a point in one of its parameters.

use super::options::CheckOptions;
use super::outcome::Outcome;
use crate::autodiff::{jvp, vjp};
use crate::backends::Array;
use crate::engine::{Engine, ReadyFunction};
use crate::ir::op::Domain;
use crate::ir::rewrite::{Copier, inline};
use crate::ir::{Builder, CustomRule, DType, Diagnostic, Function, Kind, Module, Op, Value};
use crate::sample::{rng, sample};

/// What is the same for all that is checked of a function.
pub(super) struct CaseContext<'a> {
    pub(super) module: &'a Module,
    /// What the user knows of the function.
    pub(super) written: &'a Function,
    pub(super) options: &'a CheckOptions,
    pub(super) engine: &'a dyn Engine,
}

impl CaseContext<'_> {
    pub(super) fn run(&self, f: &Function, args: &[Array]) -> Result<Vec<Array>, Diagnostic> {
        self.ready(f)?(args)
    }

    /// A function of the module, or one made of it, that is run more than once.
    pub(super) fn ready<'a>(&'a self, f: &'a Function) -> Result<ReadyFunction<'a>, Diagnostic> {
        self.engine.ready(self.module, f, &self.written.name)
    }
}

/// What differences are taken of: the function with what stops gradients held at its value.
pub(super) struct FrozenFunction {
    f: Function,
    held: Vec<Array>,
}

/// A `stop_gradient` says that its value counts as a constant, so differences must not move it: the
/// values become parameters, after the function's own. None where one is in a region: its value there
/// is not known outside, and may not exist.
pub(super) fn freeze(
    setting: &CaseContext<'_>,
    f: &Function,
    point: &[Array],
) -> Result<Option<FrozenFunction>, Diagnostic> {
    let whole = inline(setting.module, f, &|_| true)?;
    let mut all = 0;
    whole.walk(&mut |f, i| all += usize::from(f.op(i) == Op::StopGradient));
    let stops: Vec<Value> = whole
        .body_insts()
        .iter()
        .filter(|&&i| whole.op(i) == Op::StopGradient)
        .map(|&i| whole.inst_results(i)[0])
        .collect();
    if stops.len() < all {
        return Ok(None);
    }
    let held = values_at(setting, &whole, &stops, point)?;
    let mut b = Builder::new(f.name.clone());
    let mut copier = Copier::new(&whole);
    copier.params(&mut b);
    for &v in &stops {
        let p = b.param(whole.ty(v).clone(), None);
        copier.set(v, p);
    }
    for &i in whole.body_insts().iter().filter(|&&i| whole.op(i) != Op::StopGradient) {
        copier.inst(&mut b, i);
    }
    let results: Vec<Value> = whole.results().iter().map(|&v| copier.get(&mut b, v)).collect();
    b.set_results(&results);
    Ok(Some(FrozenFunction { f: b.finish()?, held }))
}

const NESTED: &str = "a `stop_gradient` inside of a region cannot be held at its value: \
                      nothing to compare forward mode with";

/// A function, a point and the parameter whose derivative is compared there.
pub(super) struct Case<'a> {
    pub(super) setting: &'a CaseContext<'a>,
    pub(super) f: &'a Function,
    /// None if differences cannot be taken.
    pub(super) fixed: Option<&'a FrozenFunction>,
    pub(super) point: &'a [Array],
    pub(super) wrt: usize,
}

impl Case<'_> {
    /// Forward mode against differences, reverse against forward.
    pub(super) fn compare(&self) -> Result<(Outcome, Outcome), Diagnostic> {
        let Case { setting, f, point, wrt, .. } = *self;
        let CaseContext { module, options, .. } = *setting;
        let slot = argument(f, wrt);
        let mut rng = rng(options.seed, 1000 + wrt as u64);
        let direction = sample(&point[slot].ty(), Domain::Uniform(-1.0, 1.0), &mut rng)?;
        let mut unknown = None;
        let forward = match jvp(module, f, &[wrt]) {
            Ok(forward) => forward,
            Err(d) => {
                // A backward rule says nothing of forward mode: it is compared with what the function
                // itself gives there.
                let plain = self.without_backward_rules()?;
                let Some(Ok(forward)) = plain.map(|plain| jvp(module, &plain, &[wrt])) else {
                    return Ok((refused(&d), refused(&d)));
                };
                unknown = Some(refused(&d));
                forward
            }
        };
        let mut args = point.to_vec();
        args.push(direction.clone());
        let out = setting.run(&forward, &args)?;
        let results = f.result_types().iter().filter(|t| t.dtype != DType::Token).count();
        let (primal, tangents) = out.split_at(results);
        let moves = tangents.iter().any(|a| a.iter().any(|l| !l.is_zero()));
        let verdict = |error: f64| match verdict(error) {
            Outcome::Pass(_) if !moves => Outcome::Flat,
            other => other,
        };
        let forward = match (unknown, self.fixed) {
            (Some(refused), _) => refused,
            (None, Some(fixed)) => {
                verdict(self.differences(fixed, slot, &direction, primal, tangents)?)
            }
            (None, None) => Outcome::Unsupported(NESTED.into()),
        };

        let backward = match vjp(module, f, &[wrt]) {
            Ok(backward) => backward,
            Err(d) => return Ok((forward, refused(&d))),
        };
        let mut args = point.to_vec();
        for t in tangents {
            args.push(sample(&t.ty(), Domain::Uniform(-1.0, 1.0), &mut rng)?);
        }
        let out = setting.run(&backward, &args)?;
        let left = dot(args[point.len()..].iter().zip(tangents));
        let right = dot(out.last().into_iter().zip([&direction]));
        Ok((forward, verdict(adjoint_error(left, right))))
    }

    /// The function with calls of functions with a `custom_vjp` replaced by what those compute; none
    /// if it has no such calls.
    fn without_backward_rules(&self) -> Result<Option<Function>, Diagnostic> {
        let ruled = |f: &Function| matches!(f.rule, Some(CustomRule::Vjp(..)));
        let module = self.setting.module;
        let mut calls = ruled(self.f);
        let plain = inline(module, self.f, &|callee| callee.rule.is_none())?;
        plain.walk(&mut |f, i| {
            calls |= f.op(i) == Op::Call && module.find(f.attrs(i).text("func")).is_some_and(ruled);
        });
        if !calls {
            return Ok(None);
        }
        let mut plain = inline(module, self.f, &|callee| callee.rule.is_none() || ruled(callee))?;
        if ruled(&plain) {
            plain.rule = None;
        }
        Ok(Some(plain))
    }

    /// The largest error of the tangents against central differences, as a share of the tolerance.
    ///
    /// Of several step lengths each element takes the one that agrees best: truncation spoils the
    /// long ones, rounding the short ones, and a wrong derivative agrees at none.
    fn differences(
        &self,
        fixed: &FrozenFunction,
        slot: usize,
        direction: &Array,
        primal: &[Array],
        tangents: &[Array],
    ) -> Result<f64, Diagnostic> {
        let float = |a: &&Array| a.dtype().is_float();
        let values: Vec<f64> = primal.iter().filter(float).flat_map(|a| a.to_f64s()).collect();
        let claimed: Vec<f64> = tangents.iter().flat_map(|a| a.to_f64s()).collect();
        let run = self.setting.ready(&fixed.f)?;
        let options = self.setting.options;
        let mut best = vec![f64::INFINITY; values.len()];
        for h in [1e-3, 1e-4, 1e-5, 1e-6] {
            let at = |s: f64| -> Result<Vec<f64>, Diagnostic> {
                let mut args = self.point.to_vec();
                let x = args[slot].to_f64s();
                let moved: Vec<f64> =
                    x.iter().zip(direction.to_f64s()).map(|(x, d)| x + s * h * d).collect();
                args[slot] = Array::from_f64s(DType::F64, args[slot].dims(), &moved)?;
                args.extend(fixed.held.iter().cloned());
                let out = run(&args)?;
                Ok(out.iter().filter(float).flat_map(|a| a.to_f64s()).collect())
            };
            let (far_up, up, down, far_down) = (at(2.0)?, at(1.0)?, at(-1.0)?, at(-2.0)?);
            for i in 0..values.len() {
                // Five-point stencil: error of order h^4.
                let slope = (8.0 * (up[i] - down[i]) - (far_up[i] - far_down[i])) / (12.0 * h);
                let tolerated = options.rtol * slope.abs().max(claimed[i].abs())
                    + options.atol * values[i].abs().max(1.0);
                let error = (slope - claimed[i]).abs() / tolerated;
                if error < best[i] {
                    best[i] = error;
                }
            }
        }
        Ok(best.into_iter().fold(0.0, f64::max))
    }
}

fn verdict(error: f64) -> Outcome {
    if error <= 1.0 { Outcome::Pass(error) } else { Outcome::Fail(error, None) }
}

fn refused(d: &Diagnostic) -> Outcome {
    match d.kind {
        Kind::Unsupported => Outcome::Unsupported(d.message.clone()),
        _ => Outcome::Fail(f64::INFINITY, Some(d.to_string())),
    }
}

/// The position of parameter `k` among the arguments: tokens take none.
fn argument(f: &Function, k: usize) -> usize {
    f.params()[..k].iter().filter(|&&p| f.ty(p).dtype != DType::Token).count()
}

/// The inner product over all arrays, and the sum of its terms' magnitudes.
fn dot<'a>(pairs: impl Iterator<Item = (&'a Array, &'a Array)>) -> (f64, f64) {
    let (mut sum, mut magnitude) = (0.0, 0.0);
    for (a, b) in pairs {
        for (x, y) in a.to_f64s().into_iter().zip(b.to_f64s()) {
            sum += x * y;
            magnitude += (x * y).abs();
        }
    }
    (sum, magnitude)
}

/// The difference of two inner products as a share of what rounding may make of it.
fn adjoint_error(left: (f64, f64), right: (f64, f64)) -> f64 {
    let tolerated = 1e-9 * (left.1 + right.1) + 1e-30;
    let error = (left.0 - right.0).abs() / tolerated;
    if error.is_nan() { f64::INFINITY } else { error }
}

/// Values inside the function at a point.
pub(super) fn values_at(
    setting: &CaseContext<'_>,
    f: &Function,
    wanted: &[Value],
    point: &[Array],
) -> Result<Vec<Array>, Diagnostic> {
    let mut probe = f.clone();
    let body = probe.body();
    probe.region_mut(body).results = wanted.to_vec();
    setting.run(&probe, point)
}
