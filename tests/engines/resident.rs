//! Tensors where engines keep them: the bits of runs on arrays, memory that is donated, and handles that are shared.

use crate::common::models;
use crate::common::programs::decode;
use crate::common::random::{self, inputs};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::backend::{Executable, erased};
use adfuse::backends::reference::{Evaluator, Silent, run};
use adfuse::backends::{Array, Resident};
use adfuse::engine::{Compiled, Cpu, Session, Settings};
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Kind, Module};
use allocation_counter::measure;
use std::sync::Arc;

/// A step of gradient descent, whose new weights may be written where the old ones are.
const STEP: &str = "func @step(%w: f32[256,300], %x: f32[256,300]) -> (f32[256,300], f32[]) {
  %d = sub %w, %x : f32[256,300]
  %q = mul %d, %d : f32[256,300]
  %l = reduce_sum %q {axes = [0, 1]} : f32[]
  %g = mul %d, 0.2 : f32[256,300]
  %v = sub %w, %g : f32[256,300]
  return %v, %l
}";

/// The same by one kernel of one stage, which may write where it reads.
const MOVED: &str = "func @step(%w: f32[256,300], %g: f32[256,300]) -> f32[256,300] {
  %d = mul %g, 0.2 : f32[256,300]
  %v = sub %w, %d : f32[256,300]
  return %v
}";

fn options() -> PlanOptions {
    PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp: Fp::Strict }
}

/// Sessions of the engines on the host, with these inputs donated.
fn engines(donated: &[usize]) -> [(&'static str, Session); 2] {
    let cpu = Cpu { plan: options(), donated: donated.to_vec(), threads: 2, ..Cpu::default() };
    let settings = Settings { donated: donated.to_vec(), ..Settings::new(options()) };
    let backend = erased(Arc::new(Evaluator::default()));
    [("cpu", cpu.into()), ("evaluator", Session { settings, backend })]
}

fn step(text: &str) -> (Module, Vec<Array>) {
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}"));
    let args = inputs(module.find("step").expect("there"), &[Domain::Normal]);
    (module, args)
}

fn compiled(text: &str, donated: &[usize]) -> (Compiled, Vec<Array>) {
    let (module, args) = step(text);
    let cpu = Cpu { plan: options(), donated: donated.to_vec(), ..Cpu::default() };
    let made = cpu.compile(&module, module.find("step").expect("there"));
    (made.unwrap_or_else(|d| panic!("{d}")), args)
}

fn placed(made: &dyn Executable, args: &[Array]) -> Vec<Resident> {
    args.iter().map(|a| made.place(a).expect("in host memory")).collect()
}

fn fetched(results: &[Resident]) -> Vec<Array> {
    results.iter().map(|r| r.fetch().expect("there")).collect()
}

#[test]
fn steps_have_the_bits_of_runs_and_shared_handles_keep_their_values() {
    for (text, donated) in [(STEP, &[][..]), (STEP, &[0]), (MOVED, &[]), (MOVED, &[0])] {
        let (module, args) = step(text);
        let f = module.find("step").expect("there");
        for (name, session) in engines(donated) {
            let made = session.compile(&module, f).unwrap_or_else(|d| panic!("{name}: {d}"));
            let mut state = placed(&*made.executable, &args);
            let mut due = args[0].clone();
            let mut kept = Vec::new();
            for turn in 0..20 {
                // Some are donated, and some are shared with a handle that stays.
                if turn % 3 == 0 {
                    kept.push((state[0].clone(), due.clone()));
                }
                let expected = run(&module, f, &[due, args[1].clone()], &mut Silent);
                let expected = expected.unwrap_or_else(|d| panic!("{d}"));
                let x = state.pop().expect("two");
                let mut results =
                    made.executable.run_resident(vec![state.remove(0), x.clone()]).expect("runs");
                assert_eq!(fetched(&results), expected, "{name}, step {turn}, {donated:?}");
                assert!(results.iter().all(|r| !r.is_on_device()));
                state = vec![results.remove(0), x];
                due = expected[0].clone();
            }
            for (handle, value) in kept {
                assert_eq!(handle.fetch().expect("there"), value, "{name}: a handle has changed");
            }
            assert_eq!(state[1].fetch().expect("there"), args[1]);
            let refused = made.executable.run_resident(vec![state.remove(1)]);
            assert_eq!(refused.expect_err("one of two").kind, Kind::Usage);
        }
    }
}

/// Where the elements of a handle are.
fn place_of(handle: &Resident) -> usize {
    handle.fetch().expect("there").bytes().as_ptr().addr()
}

#[test]
fn donated_memory_is_used_and_lent_memory_is_not() {
    let (made, args) = compiled(MOVED, &[0]);
    assert!(made.executable.writes_to(0), "the plan writes where the weights are");
    let made = &*made.executable;
    let mut weights = made.place(&args[0]).expect("in host memory");
    let gradient = made.place(&args[1]).expect("in host memory");
    let step = |weights: Resident| {
        let results = made.run_resident(vec![weights, gradient.clone()]).expect("runs");
        results.into_iter().next().expect("one")
    };
    // The array that was placed is the caller's too.
    let first = place_of(&weights);
    weights = step(weights);
    let own = place_of(&weights);
    assert_ne!(own, first);
    for _ in 0..5 {
        weights = step(weights);
        assert_eq!(place_of(&weights), own, "a handle that is moved is written in place");
    }
    let before = weights.fetch().expect("there").to_bits();
    let lent = weights.clone();
    let next = step(weights);
    assert_ne!(place_of(&next), own);
    assert_eq!(place_of(&lent), own);
    assert_eq!(lent.fetch().expect("there").to_bits(), before);
    // The same handle twice is shared with itself: one of the two may be written.
    let twice = Resident::from(args[0].clone());
    let both = made.run_resident(vec![twice.clone(), twice]).expect("runs");
    let due = made.run_donating(vec![args[0].clone(), args[0].clone()]).expect("runs");
    assert_eq!(fetched(&both), due);
}

#[test]
fn no_step_holds_more_than_the_step_before() {
    for (text, donated) in [(STEP, &[][..]), (STEP, &[0]), (MOVED, &[]), (MOVED, &[0])] {
        let (made, args) = compiled(text, donated);
        let made = &*made.executable;
        let gradient = made.place(&args[1]).expect("in host memory");
        let large = args[0].bytes().len() as u64;
        let mut weights = made.place(&args[0]).expect("in host memory");
        drop(args);
        let mut counts = Vec::new();
        for turn in 0..12 {
            let mut moved = Some(weights);
            let info = measure(|| {
                let given = moved.take().expect("one");
                let results = made.run_resident(vec![given, gradient.clone()]).expect("runs");
                moved = results.into_iter().next();
            });
            weights = moved.expect("one");
            counts.push((info.count_total, info.bytes_total, info.bytes_current));
            if turn > 3 {
                assert!(info.bytes_total < large, "step {turn} of {donated:?}: {info:?}");
                assert_eq!(counts[turn], counts[turn - 1], "step {turn} of {donated:?}");
            }
        }
    }
}

fn gradient(module: &Module, f: &Function) -> Result<Function, String> {
    let wrt = differentiable(f, None).map_err(|d| d.to_string())?;
    forward_and_backward(module, f, &wrt).map_err(|d| d.to_string())
}

/// Runs a function with all inputs donated, twice by moved handles and once by shared ones.
fn holds(module: &Module, f: &Function) -> Result<(), String> {
    let args = inputs(f, &[Domain::Normal]);
    let due = run(module, f, &args, &mut Silent).map_err(|d| d.to_string())?;
    let all: Vec<usize> = (0..f.params().len()).collect();
    for (name, session) in engines(&all) {
        let made = session.compile(module, f).map_err(|d| d.to_string())?;
        let executable = &made.executable;
        let shared = placed(&**executable, &args);
        for turn in 0..3 {
            // Of the last no other handle is left.
            let given = match turn {
                0 => shared.clone(),
                _ => args.iter().map(|a| Resident::from(copied(a))).collect(),
            };
            let found = executable.run_resident(given).map_err(|d| d.to_string())?;
            if fetched(&found) != due {
                return Err(format!("{name}, turn {turn}: other bits\n{f}"));
            }
        }
        if fetched(&shared) != args {
            return Err(format!("{name}: a shared handle has changed\n{f}"));
        }
        if made.run(&args.iter().collect::<Vec<_>>()).map_err(|d| d.to_string())? != due {
            return Err(format!("{name}: other bits of lent arrays\n{f}"));
        }
        if inputs(f, &[Domain::Normal]) != args {
            return Err(format!("{name}: a lent array has changed\n{f}"));
        }
    }
    Ok(())
}

/// The array in memory of its own.
fn copied(a: &Array) -> Array {
    Array::from_le_bytes(a.dtype(), a.dims(), a.bytes()).expect("as many")
}

#[test]
fn random_programs_and_models_have_the_same_bits() {
    for dtype in [DType::F32, DType::BF16] {
        random::programs(47, 40, |steps| {
            let f = decode(steps, dtype);
            let g = gradient(&Module::single(f.clone()), &f)?;
            holds(&Module::single(g.clone()), &g)
        });
    }
    for (name, module, f) in models::all().into_iter().take(8) {
        let small = inputs(&f, &[Domain::Normal]).iter().map(Array::len).sum::<usize>() < 1 << 16;
        if small {
            holds(&module, &f).unwrap_or_else(|why| panic!("{name}: {why}"));
        }
    }
}

#[test]
fn arguments_go_by_name_in_any_order() {
    let (made, args) = compiled(STEP, &[0]);
    let due = made.run(&args).expect("runs");
    assert_eq!(made.run(&[&args[0], &args[1]]).expect("runs"), due);
    assert_eq!(made.run_named([("x", &args[1]), ("w", &args[0])]).expect("runs"), due);
    assert_eq!(args, step(STEP).1, "what the plan writes to was only lent");
    let params = made.params();
    assert_eq!(params.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["w", "x"]);
    let (w, x) = (&args[0], &args[1]);
    let (small, other) = (Array::from([1.0f32; 3]), Array::from([1.0f64; 3]));
    type Case<'a> = (&'a [(&'a str, &'a Array)], Kind, &'a [&'a str]);
    #[rustfmt::skip]
    let cases: [Case<'_>; 6] = [
        (&[("w", w), ("X", x)], Kind::UnknownName, &["no parameter `X`", "did you mean x?"]),
        (&[("w", w), ("other", x)], Kind::UnknownName, &["no parameter `other`", "w, x"]),
        (&[("w", w)], Kind::Arity, &["no argument for x", "its parameters are w, x"]),
        (&[("w", w), ("w", w)], Kind::Redefinition, &["`w` is given twice"]),
        (&[("w", w), ("x", &small)], Kind::Shape, &["`x` is f32[256,300], found f32[3]"]),
        (&[("w", &other), ("x", x)], Kind::DType, &["`w` is f32[256,300], found f64[3]"]),
    ];
    for (given, kind, parts) in cases {
        let d = made.run_named(given.iter().copied()).expect_err("refused");
        assert_eq!(d.kind, kind, "{d}");
        assert!(parts.iter().all(|part| d.to_string().contains(part)), "{d}");
    }
    assert_eq!(made.run(&args[..1]).expect_err("one of two").kind, Kind::Usage);
    let backend = erased(Arc::new(Evaluator::default()));
    assert_eq!(backend.place(w).expect("in host memory").fetch().expect("there"), *w);
}
