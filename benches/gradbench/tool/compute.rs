//! Functions at inputs: from a primal function to machine code of it or its derivative, run as often as asked.

use super::input::Fields;
use adfuse::autodiff::{differentiable, grad};
use adfuse::fusion::Fp;
use adfuse::ir::DType;
use adfuse::prelude::*;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The most elements of one tensor: 2 GiB.
const MOST: u64 = 1 << 28;

/// The most runs of a function, since each is told of.
const MOST_RUNS: usize = 1 << 20;

/// How often to run a function.
pub(super) struct Runs {
    least: usize,
    time: Duration,
}

/// What came of running a function.
pub(super) struct Computed {
    /// The result, as the protocol has it.
    pub(super) output: Value,
    /// How long it took to trace, differentiate, plan and make code.
    pub(super) compiled: Duration,
    /// How long each run took.
    pub(super) runs: Vec<Duration>,
    /// Whether there would have been more runs than are counted.
    pub(super) cut: bool,
}

impl Runs {
    /// What an input asks for: one run, if it does not say.
    pub(super) fn of(input: &Value) -> Result<Runs, String> {
        let none = Runs { least: 1, time: Duration::ZERO };
        let Ok(fields) = Fields::of(input, "the input") else { return Ok(none) };
        let least = match input.get("min_runs") {
            None => none.least,
            Some(_) => usize::try_from(fields.count("min_runs")?).unwrap_or(usize::MAX),
        };
        let seconds = match input.get("min_seconds") {
            None => 0.0,
            Some(_) => fields.number("min_seconds")?,
        };
        if least > MOST_RUNS {
            return Err(format!("`min_runs` is above {MOST_RUNS}"));
        }
        let time =
            Some(seconds).filter(|s| (0.0..=3600.0).contains(s)).map(Duration::from_secs_f64);
        let time = time.ok_or("`min_seconds` is not from 0 to 3600")?;
        Ok(Runs { least: least.max(1), time })
    }
}

/// The product of extents, if tensors may have this many elements.
pub(super) fn elements(extents: &[u64]) -> Result<u64, String> {
    let all = extents.iter().try_fold(1u64, |n, &e| n.checked_mul(e)).filter(|&n| n <= MOST);
    all.ok_or_else(|| format!("a tensor of extents {extents:?} is above {MOST} elements"))
}

/// Runs the function that `make` gives at arguments of `f64`, and makes the output of its results.
pub(super) fn computed<F: Into<Module>>(
    make: impl FnOnce() -> Result<F, Diagnostic>,
    arguments: &[&[f64]],
    runs: &Runs,
    output: impl FnOnce(Vec<Vec<f64>>) -> Value,
) -> Result<Computed, String> {
    let begun = Instant::now();
    let module = make().map_err(told)?.into();
    let f = module.funcs.values().next().ok_or("there is no function")?;
    let mut cpu = Cpu { threads: 1, ..Cpu::default() };
    cpu.plan.fp = Fp::Reproducible;
    let executable = cpu.compile(&module, f).map_err(told)?.executable;
    let compiled = begun.elapsed();

    let arguments: Vec<Array> = f
        .param_types()
        .iter()
        .zip(arguments)
        .map(|(ty, values)| Array::from_f64s(DType::F64, &extents(ty)?, values).map_err(told))
        .collect::<Result<_, String>>()?;
    let inputs: Vec<&[u8]> = arguments.iter().map(Array::bytes).collect();
    let zeros = |ty: &TensorType| {
        Array::splat(&extents(ty)?, adfuse::ir::Literal::zero(DType::F64)).map_err(told)
    };
    let results: Vec<Array> = f.result_types().iter().map(zeros).collect::<Result<_, String>>()?;
    let mut results: Vec<Vec<u8>> = results.iter().map(|a| a.bytes().to_vec()).collect();
    let mut outputs: Vec<&mut [u8]> = results.iter_mut().map(Vec::as_mut_slice).collect();

    let (mut taken, mut all) = (Vec::new(), Duration::ZERO);
    let mut cut = false;
    while taken.len() < runs.least || all < runs.time {
        cut = taken.len() == MOST_RUNS;
        if cut {
            break;
        }
        let begin = Instant::now();
        executable.run_into(&inputs, &mut outputs).map_err(told)?;
        let took = begin.elapsed();
        all += took;
        taken.push(took);
    }
    let results: Vec<Vec<f64>> = results.iter().map(|bytes| numbers(bytes)).collect();
    if results.iter().flatten().any(|x| !x.is_finite()) {
        return Err("a result is not finite, for which JSON has no number".into());
    }
    Ok(Computed { output: output(results), compiled, runs: taken, cut })
}

/// The first result, a scalar.
pub(super) fn scalar(results: Vec<Vec<f64>>) -> Value {
    results.into_iter().flatten().next().into()
}

/// The first result, a list.
pub(super) fn list(results: Vec<Vec<f64>>) -> Value {
    results.into_iter().next().unwrap_or_default().into()
}

/// Rows of this width.
pub(super) fn rows(elements: &[f64], count: u64, width: u64) -> Value {
    if width == 0 {
        return (0..count).map(|_| Value::Array(Vec::new())).collect();
    }
    elements.chunks(width as usize).map(|row| Value::from(row.to_vec())).collect()
}

/// The gradient of a function of one result with respect to these parameters.
pub(super) fn gradient(f: &Traced, wrt: &[&str]) -> Result<Function, Diagnostic> {
    let names: Vec<String> = wrt.iter().map(|&n| n.into()).collect();
    grad(&Module::single(f.clone()), f, &differentiable(f, Some(&names))?)
}

/// What an error says.
fn told(d: Diagnostic) -> String {
    d.to_string()
}

fn extents(ty: &TensorType) -> Result<Vec<u64>, String> {
    let known = |d: &Dim| d.known().ok_or_else(|| format!("an extent of {ty} is not known"));
    ty.shape.iter().map(known).collect()
}

fn numbers(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b)).collect()
}
