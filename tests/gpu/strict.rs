//! To the bit: whatever the plan, the results are those of the kernel evaluator.

use crate::common::effects::printing;
use crate::common::kernels::{arguments, files};
use crate::common::orders::{self, Case};
use crate::common::programs::{Step, decode_over};
use crate::common::{count_from_env, models, random};
use crate::trials::Skipped;
use crate::{Outcome, all, gpu, ran};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::backends::reference::kernel;
use adfuse::engine::Gpu;
use adfuse::fusion::{self, Effort, Fp, MachineModel, compile};
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{Program, Step as ProgramStep, Verified, verify};
use adfuse::ir::op::{Body, Composition, Domain};
use adfuse::ir::rewrite::{StepLowering, specialize, with_steps};
use adfuse::ir::{DType, Function, Kind, Module, Op, TensorType};

/// Runs a program twice; both times the results must be the evaluator's.
pub(crate) fn same(gpu: &Gpu, program: &Verified<Program>, args: &[Array]) -> Outcome {
    let made = match gpu.of_program(program.clone()) {
        Ok(made) => made,
        Err(d) if d.kind == Kind::Unsupported => return Outcome::Refused(d),
        Err(d) => return Outcome::Wrong(format!("{d}\n{}", **program)),
    };
    let (expected, due) = printing(|| kernel::run(program, args));
    let expected = match expected {
        Ok(expected) => expected,
        Err(d) => return Outcome::Wrong(format!("the evaluator: {d}")),
    };
    for _ in 0..2 {
        let (found, printed) = printing(|| made.executable.run(args));
        match ran(found) {
            Ok(_) if printed != due => {
                let program = &**program;
                return Outcome::Wrong(format!("{printed:?}\nis printed, not\n{due:?}\n{program}"));
            }
            Ok(found) if found == expected => {}
            Ok(found) => {
                return Outcome::Wrong(format!("{found:?}\nis not\n{expected:?}\n{}", **program));
            }
            Err(outcome) => return outcome,
        }
    }
    Outcome::Same
}

/// Every effort's plan of a function.
pub(crate) fn agrees(
    gpu: &Gpu,
    module: &Module,
    f: &Function,
    args: &[Array],
    efforts: &[Effort],
) -> Outcome {
    for &effort in efforts {
        let options = fusion::PlanOptions { device: MachineModel::h200(), effort, fp: Fp::Strict };
        // Attention is what it is composed of.
        let composed = with_steps(f.clone(), &|_, _| StepLowering::Composed(Composition::Defined));
        let program = match composed.and_then(|f| compile(module, &f, &options)) {
            Ok(compiled) => verify(compiled.program).expect("lowering gives sound programs"),
            Err(d) => return Outcome::Wrong(format!("{d}\n{f}")),
        };
        match same(gpu, &program, args) {
            Outcome::Same => {}
            Outcome::Wrong(why) => return Outcome::Wrong(format!("{effort:?}: {why}")),
            refused => return refused,
        }
    }
    Outcome::Same
}

pub(crate) const EFFORTS: [Effort; 2] = [Effort::Off, Effort::Default];

pub(crate) fn programs_of_the_filetests() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let cases = files();
    all("programs_of_the_filetests", &cases, |(name, text)| {
        let program = verify(read(text).expect("reads")).expect("verifies");
        let outcome = same(&gpu, &program, &arguments(&program));
        match outcome {
            Outcome::Refused(d)
                if program
                    .steps
                    .iter()
                    .any(|s| matches!(s, ProgramStep::Library(_) | ProgramStep::Attend(_))) =>
            {
                assert!(d.to_string().contains("step"), "{d}");
                Outcome::Refused(d)
            }
            Outcome::Wrong(why) => Outcome::Wrong(format!("{name}: {why}")),
            outcome => outcome,
        }
    });
    Ok(())
}

pub(crate) fn models_and_their_gradients() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let mut cases = Vec::new();
    for (name, module, f) in models::all() {
        let wrt = differentiable(&f, None).expect("has floats");
        let g = forward_and_backward(&module, &f, &wrt).unwrap_or_else(|d| panic!("{d}"));
        cases.push((name, g));
    }
    all("models_and_their_gradients", &cases, |(name, g)| {
        let args = random::inputs(g, &[Domain::Normal]);
        match agrees(&gpu, &Module::single(g.clone()), g, &args, &EFFORTS) {
            Outcome::Wrong(why) => Outcome::Wrong(format!("{name}: {why}")),
            outcome => outcome,
        }
    });
    Ok(())
}

pub(crate) fn every_row() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let mut cases = Vec::new();
    for &op in Op::ALL {
        if matches!(op.def().body, Body::Region(_) | Body::Effect(_)) {
            continue;
        }
        for module in random::cases(op, 131) {
            let f = module.funcs.values().next().expect("a function");
            let extents = f.symbols.iter().map(|&s| (s, 3)).collect();
            let f = specialize(f, &extents).expect("three of each");
            let mut domains: Vec<Domain> = op.def().domain.to_vec();
            if domains.is_empty() {
                domains.push(Domain::Normal);
            }
            cases.push((op, module, f, domains));
        }
    }
    assert!(cases.len() > 1000, "{} cases", cases.len());
    all("every_row", &cases, |(op, module, f, domains)| {
        let args = random::inputs(f, domains);
        match agrees(&gpu, module, f, &args, &[Effort::Default]) {
            Outcome::Wrong(why) => Outcome::Wrong(format!("`{op}`: {why}")),
            outcome => outcome,
        }
    });
    Ok(())
}

/// Lists of small numbers, of which every one is a program.
pub(crate) fn lists(seed: u64, count: u32) -> Vec<Vec<Step>> {
    let mut number = crate::common::kernels::numbers(seed);
    let mut small = move || number(256) as u8;
    let list = |_| {
        let n = usize::from(small()) % 23 + 1;
        (0..n).map(|_| (small(), small(), small(), small())).collect()
    };
    (0..count).map(list).collect()
}

/// Extents of the parameters: parts of warps, none at all, one of each, more than a block of a fold.
const EXTENTS: [[u64; 2]; 8] =
    [[3, 4], [1, 1], [0, 5], [7, 1], [3, 67], [33, 5], [2, 130], [70, 33]];

/// A list's function, for every third one with its gradient.
fn function(n: usize, steps: &[Step], dtype: DType) -> Result<Function, String> {
    let f = decode_over(steps, dtype, EXTENTS[n % EXTENTS.len()]);
    if !n.is_multiple_of(3) {
        return Ok(f);
    }
    let wrt = differentiable(&f, None).map_err(|d| d.to_string())?;
    forward_and_backward(&Module::single(f.clone()), &f, &wrt).map_err(|d| format!("{d}\n{f}"))
}

pub(crate) fn random_programs() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let count = count_from_env("ADFUSE_PROGRAMS", 1000);
    let types = [DType::F32, DType::F64, DType::BF16, DType::F32];
    let check = |n: usize, steps: &[Step]| -> Outcome {
        let f = match function(n, steps, types[n % types.len()]) {
            Ok(f) => f,
            Err(why) => return Outcome::Wrong(why),
        };
        let args = random::inputs(&f, &[Domain::Normal]);
        let efforts = if n.is_multiple_of(4) { &EFFORTS[..] } else { &EFFORTS[1..] };
        agrees(&gpu, &Module::single(f.clone()), &f, &args, efforts)
    };
    let cases: Vec<(usize, Vec<Step>)> = lists(13, count).into_iter().enumerate().collect();
    all("random_programs", &cases, |(n, steps)| {
        let Outcome::Wrong(mut why) = check(*n, steps) else { return check(*n, steps) };
        // What is not needed for it to be wrong is left out.
        let mut least = steps.clone();
        let mut k = 0;
        while k < least.len() {
            let mut fewer = least.clone();
            fewer.remove(k);
            match check(*n, &fewer) {
                Outcome::Wrong(still) if !fewer.is_empty() => (least, why) = (fewer, still),
                _ => k += 1,
            }
        }
        Outcome::Wrong(why)
    });
    Ok(())
}

/// What is hard to get right: infinities, NaN, both zeros, subnormals, and the ends of integers.
fn special(dtype: DType, turn: usize) -> Array {
    let floats = [
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        -0.0,
        0.0,
        1e-40,
        -1e-310,
        5e-324,
        -3.5,
        1e300,
        0.5,
        65504.0,
        -65520.0,
        1.0 + f64::EPSILON,
        2.5,
        -0.1,
    ];
    let n = 131;
    if dtype.is_float() {
        let values: Vec<f64> = (0..n).map(|i| floats[(i * (2 * turn + 1) + turn) % 16]).collect();
        return Array::from_f64s(dtype, &[n as u64], &values).expect("fits");
    }
    let top = 1u64 << (dtype.bits() - 1);
    let ends = [0, 1, top, top - 1, top | 1, u64::MAX, 3, u64::MAX - 6];
    let bits: Vec<u64> = (0..n).map(|i| ends[(i * (2 * turn + 1) + turn) % 8]).collect();
    Array::from_bits(dtype, &[n as u64], &bits).expect("fits")
}

pub(crate) fn unusual_values() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let mut cases = Vec::new();
    for &op in Op::ALL {
        if matches!(op.def().body, Body::Region(_) | Body::Effect(_)) {
            continue;
        }
        for module in random::cases(op, 131) {
            let f = module.funcs.values().next().expect("a function").clone();
            let types = f.param_types();
            let long = |t: &TensorType| t.dims().as_deref() == Some(&[131]);
            if !types.is_empty() && types.iter().all(long) {
                cases.push((op, module, f));
            }
        }
    }
    assert!(cases.len() > 200, "{} cases", cases.len());
    all("unusual_values", &cases, |(op, module, f)| {
        let types = f.param_types();
        for turn in 0..3 {
            let args = types.iter().enumerate().map(|(k, t)| special(t.dtype, turn * 3 + k));
            let args: Vec<Array> = args.collect();
            match agrees(&gpu, module, f, &args, &[Effort::Default]) {
                Outcome::Wrong(why) => return Outcome::Wrong(format!("`{op}`: {why}")),
                Outcome::Refused(d) => return Outcome::Refused(d),
                Outcome::Same => {}
            }
        }
        Outcome::Same
    });
    Ok(())
}

/// Programs with hard values: where `ADFUSE_PROGRAMS` says how many, this many of them, from all over the list.
fn hold(test: &str, cases: Vec<Case>) -> Result<(), Skipped> {
    let gpu = gpu()?;
    let most = count_from_env("ADFUSE_PROGRAMS", u32::MAX).max(1) as usize;
    let apart = cases.len().div_ceil(most);
    let cases: Vec<Case> = cases.into_iter().step_by(apart).collect();
    all(test, &cases, |case| match same(&gpu, &case.program, &case.args) {
        Outcome::Wrong(why) => {
            let why: String = why.chars().take(400).collect();
            Outcome::Wrong(format!("{}: {why}\n{}", case.name, *case.program))
        }
        outcome => outcome,
    });
    Ok(())
}

pub(crate) fn orders() -> Result<(), Skipped> {
    let lengths = [0, 1, 2, 31, 32, 33, 1023, 1024, 1025, 5000, 8192, 8193, 20_000, 100_000];
    let mut cases: Vec<Case> = lengths.into_iter().flat_map(orders::orders).collect();
    cases.extend(orders::layouts());
    cases.extend([DType::Bool, DType::F32].map(orders::longest));
    hold("orders", cases)
}

pub(crate) fn scatters() -> Result<(), Skipped> {
    hold("scatters", orders::scatters(100_000))
}

pub(crate) fn transposes() -> Result<(), Skipped> {
    hold("transposes", orders::transposes())
}

pub(crate) fn scans() -> Result<(), Skipped> {
    let lengths = [0, 1, 2, 31, 32, 33, 1023, 1024, 1025, 5000, 100_000];
    let cases: Vec<Case> = lengths.into_iter().flat_map(orders::scans).collect();
    hold("scans", cases)
}
