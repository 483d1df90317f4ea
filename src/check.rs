//! Checking derivatives against the function itself, in `f64`.
//!
//! Forward mode is compared with central differences along a random direction of each differentiable
//! input; reverse mode with forward mode through `<ct, J t> = <Jᵀ ct, t>`. Where they disagree, each
//! instruction is checked alone at the point it was evaluated at, so that the op at fault is named. A
//! function with a `custom_vjp` has no forward mode: its rule is compared with that of the function itself.

mod blame;

use crate::autodiff::{differentiable, jvp, vjp};
use crate::backends::Array;
use crate::engine::{Engine, Ready, Reference};
use crate::ir::op::Domain;
use crate::ir::rewrite::{Copier, inline, specialize, widen};
use crate::ir::{
    Builder, CustomRule, DType, Diagnostic, Function, Kind, Module, Op, Symbol, Value,
};
use crate::sample::{rng, sample};
use std::collections::BTreeMap;

/// How to check.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed of inputs and directions.
    pub seed: u64,
    /// Relative tolerance, per element.
    pub rtol: f64,
    /// Absolute tolerance, per element, scaled by `max(1, |f|)`.
    pub atol: f64,
    /// Extents for symbols; others get 3, 4, 5, .. in order.
    pub extents: BTreeMap<Symbol, u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options { seed: 0, rtol: 1e-5, atol: 1e-9, extents: BTreeMap::new() }
    }
}

/// What was compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Forward mode with central differences.
    Forward,
    /// Reverse mode with forward mode.
    Reverse,
}

/// How a comparison ended.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// Within tolerance; the largest error as a share of what is tolerated.
    Pass(f64),
    /// Within tolerance, but every derivative at this point is zero: little was tried.
    Flat,
    /// Beyond tolerance, by this factor; the instruction at fault, where one can be named, and what
    /// the transformation says, where it fails.
    Fail(f64, Option<String>),
    /// No point was found where the function is finite; a result that is not.
    NotFinite(String),
    /// The transformation or the comparison cannot be made, and why.
    Unsupported(String),
    /// Nothing to compare: no input or no result is of a float type.
    Nothing,
}

/// One line of the report.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The function.
    pub func: String,
    /// The input, or empty for the whole function.
    pub input: String,
    /// What was compared.
    pub mode: Mode,
    /// How it ended.
    pub outcome: Outcome,
}

impl Row {
    /// Whether this row speaks against the derivatives.
    pub fn failed(&self) -> bool {
        matches!(self.outcome, Outcome::Fail(..) | Outcome::NotFinite(_))
    }
}

/// Checks every function of a verified module.
///
/// # Errors
/// When a function cannot be evaluated at all (memory, symbols that nothing binds).
pub fn check(module: &Module, options: &Options) -> Result<Vec<Row>, Diagnostic> {
    check_on(module, options, &Reference)
}

/// Checks every function of a verified module, values and derivatives by this engine.
///
/// # Errors
/// As [`check`], and where the engine does not run a function.
pub fn check_on(
    module: &Module,
    options: &Options,
    engine: &dyn Engine,
) -> Result<Vec<Row>, Diagnostic> {
    let wide = widen(module)?;
    let mut rows = Vec::new();
    for (f, written) in wide.funcs.values().zip(module.funcs.values()) {
        let f = with_extents(f, options)?;
        let setting = Setting { module: &wide, written, options, engine };
        rows.extend(check_one(&setting, &f)?);
    }
    Ok(rows)
}

/// Checks one `f64` function without symbols.
///
/// # Errors
/// As [`check`].
pub fn check_function(
    module: &Module,
    f: &Function,
    options: &Options,
) -> Result<Vec<Row>, Diagnostic> {
    check_one(&Setting { module, written: f, options, engine: &Reference }, f)
}

/// What is the same for all that is checked of a function.
struct Setting<'a> {
    module: &'a Module,
    /// What the user knows of the function.
    written: &'a Function,
    options: &'a Options,
    engine: &'a dyn Engine,
}

impl Setting<'_> {
    fn run(&self, f: &Function, args: &[Array]) -> Result<Vec<Array>, Diagnostic> {
        self.ready(f)?(args)
    }

    /// A function of the module, or one made of it, that is run more than once.
    fn ready<'a>(&'a self, f: &'a Function) -> Result<Ready<'a>, Diagnostic> {
        self.engine.ready(self.module, f, &self.written.name)
    }
}

fn check_one(setting: &Setting<'_>, f: &Function) -> Result<Vec<Row>, Diagnostic> {
    let row = |input: &str, mode, outcome| Row {
        func: f.name.clone(),
        input: input.to_string(),
        mode,
        outcome,
    };
    let has_float_result = f.result_types().iter().any(|t| t.dtype.is_float());
    let Ok(wrt) = differentiable(f, None) else {
        return Ok(vec![row("", Mode::Forward, Outcome::Nothing)]);
    };
    if !has_float_result {
        return Ok(vec![row("", Mode::Forward, Outcome::Nothing)]);
    }
    let point = match finite_point(setting, f)? {
        Ok(point) => point,
        Err(result) => return Ok(vec![row("", Mode::Forward, Outcome::NotFinite(result))]),
    };
    let fixed = freeze(setting, f, &point)?;
    let mut rows = Vec::new();
    for &k in &wrt {
        let name = f.name_of(f.params()[k]).map_or(format!("{k}"), str::to_string);
        let case = Case { setting, f, fixed: fixed.as_ref(), point: &point, wrt: k };
        let (forward, reverse) = case.compare()?;
        let blame = |outcome| match outcome {
            Outcome::Fail(by, message) => {
                let at = blame::culprit(setting, f, &point);
                Outcome::Fail(by, blame::joined(at, message))
            }
            other => other,
        };
        rows.push(row(&name, Mode::Forward, blame(forward)));
        rows.push(row(&name, Mode::Reverse, blame(reverse)));
    }
    Ok(rows)
}

fn with_extents(f: &Function, options: &Options) -> Result<Function, Diagnostic> {
    let extents: BTreeMap<Symbol, u64> = f
        .symbols
        .iter()
        .zip(3u64..)
        .map(|(&s, default)| (s, options.extents.get(&s).copied().unwrap_or(default)))
        .collect();
    if extents.is_empty() {
        return Ok(f.clone());
    }
    specialize(f, &extents).map_err(|mut errors| errors.swap_remove(0))
}

/// A point where all float results are finite, or a result that never was.
fn finite_point(
    setting: &Setting<'_>,
    f: &Function,
) -> Result<Result<Vec<Array>, String>, Diagnostic> {
    let run = setting.ready(f)?;
    // Moderate numbers first: far out, bounded functions are flat and say little.
    let floats = [
        Domain::Uniform(-0.9, 0.9),
        Domain::Uniform(0.1, 0.9),
        Domain::Uniform(1.1, 3.0),
        Domain::Normal,
    ];
    // Integers are often positions or counts: where the usual ones lead nowhere, smaller ones may.
    let types = f.param_types();
    let ints: &[Option<Domain>] = match types.iter().any(|t| t.dtype.is_int()) {
        true => &[None, Some(Domain::Ints(0, 2)), Some(Domain::Ints(0, 1))],
        false => &[None],
    };
    let domains = ints.iter().flat_map(|&int| floats.map(|float| (float, int)));
    let mut infinite = String::new();
    for (attempt, (float, int)) in domains.enumerate() {
        let mut rng = rng(setting.options.seed, attempt as u64);
        let mut point = Vec::new();
        for ty in types.iter().filter(|t| t.dtype != DType::Token) {
            let domain = int.filter(|_| ty.dtype.is_int()).unwrap_or(float);
            point.push(sample(ty, domain, &mut rng)?);
        }
        let results = run(&point)?;
        let wrong = |a: &Array| a.dtype().is_float() && a.iter().any(|l| !l.to_f64().is_finite());
        match results.iter().position(wrong) {
            None => return Ok(Ok(point)),
            Some(k) => infinite = result_name(f, k),
        }
    }
    Ok(Err(infinite))
}

/// Result `k` of those that are no tokens, as messages call it.
fn result_name(f: &Function, k: usize) -> String {
    let mut results = f.results().iter().filter(|&&r| f.ty(r).dtype != DType::Token);
    match results.nth(k).and_then(|&r| f.name_of(r)) {
        Some(name) => format!("result {k}, %{name},"),
        None => format!("result {k}"),
    }
}

/// What differences are taken of: the function with what stops gradients held at its value.
struct Fixed {
    f: Function,
    held: Vec<Array>,
}

/// A `stop_gradient` says that its value counts as a constant, so differences must not move it: the
/// values become parameters, after the function's own. None where one is in a region: its value there
/// is not known outside, and may not exist.
fn freeze(
    setting: &Setting<'_>,
    f: &Function,
    point: &[Array],
) -> Result<Option<Fixed>, Diagnostic> {
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
    Ok(Some(Fixed { f: b.finish()?, held }))
}

const NESTED: &str = "a `stop_gradient` inside of `cond` cannot be held at its value: \
                      nothing to compare forward mode with";

struct Case<'a> {
    setting: &'a Setting<'a>,
    f: &'a Function,
    /// None if differences cannot be taken.
    fixed: Option<&'a Fixed>,
    point: &'a [Array],
    wrt: usize,
}

impl Case<'_> {
    /// Forward mode against differences, reverse against forward.
    fn compare(&self) -> Result<(Outcome, Outcome), Diagnostic> {
        let Case { setting, f, point, wrt, .. } = *self;
        let Setting { module, options, .. } = *setting;
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
        fixed: &Fixed,
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
fn values_at(
    setting: &Setting<'_>,
    f: &Function,
    wanted: &[Value],
    point: &[Array],
) -> Result<Vec<Array>, Diagnostic> {
    let mut probe = f.clone();
    let body = probe.body();
    probe.region_mut(body).results = wanted.to_vec();
    setting.run(&probe, point)
}
