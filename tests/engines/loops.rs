//! Programs with loops as users write them (`benches/loops`): the same bits on every engine and within every budget,
//! gradients that agree with differences and with JAX, and what the programs are for.

#[path = "../../benches/loops/mod.rs"]
mod programs;

mod checkpoints;

use crate::common::{parallel, thorough};
use adfuse::autodiff::value_and_grad;
use adfuse::backends::Array;
use adfuse::backends::reference::{Evaluator, Silent, run};
use adfuse::engine::{Cpu, Session, Settings};
use adfuse::fusion::{Lossy, budget_frontier, prepare};
use adfuse::ir::Literal;
use adfuse::prelude::*;
use programs::LoopProgram;
use serde_json::Value;
use std::sync::Arc;

fn cpu(threads: usize) -> Cpu {
    Cpu { threads, ..Cpu::default() }
}

/// Instructions from which on the whole path to a budget is taken by `scripts/thorough` alone.
const LONG: usize = 300;

/// The value and the gradients of a program.
fn derived(program: &LoopProgram) -> Function {
    let module = Module::from(program.traced.clone());
    let g = value_and_grad(&module, &program.traced, &program.wrt);
    g.unwrap_or_else(|d| panic!("{}: {d}", program.name))
}

/// What the engine `cpu` gives, with the bytes that it takes.
fn computed(engine: &Cpu, f: &Function, args: &[Array]) -> Result<(Vec<Array>, u64), String> {
    let made = engine.compile(&Module::single(f.clone()), f).map_err(|d| d.to_string())?;
    let found = made.executable.run(args).map_err(|d| d.to_string())?;
    let peak = made.executable.memory().peak();
    Ok((found, peak))
}

/// Runs plans that budgets choose from: the one that takes least, one between, and the fastest. The least
/// and the most bytes of them.
fn within_budgets(f: &Function, args: &[Array], expected: &[Array]) -> Result<[u64; 2], String> {
    let why = |d: Diagnostic| d.to_string();
    let free = cpu(3);
    let prepared = prepare(&Module::single(f.clone()), f).map_err(why)?;
    let frontier = budget_frontier(&prepared, &Lossy::default(), &free.plan, &free).map_err(why)?;
    let points = frontier.points();
    let last = points.len() - 1;
    for of in [&points[0], &points[last / 2], &points[last]] {
        let (point, decided) = (&of.point, &of.rewritten.decided.function);
        let engine = Cpu { mem_budget: Some(point.peak), ..cpu(3) };
        let made = engine.follow(decided, &point.plan).map_err(why)?;
        let (found, peak) =
            (made.executable.run(args).map_err(why)?, made.executable.memory().peak());
        if found != expected || peak > point.peak {
            return Err(format!("{peak} of {}: {found:?}\nis not\n{expected:?}", point.peak));
        }
    }
    Ok([points[0].point.peak, points[last].point.peak])
}

/// The function on reference engine, evaluator, one thread and three, and within budgets: the same bits.
fn same_everywhere(f: &Function, args: &[Array]) -> Result<(), String> {
    let module = Module::single(f.clone());
    let why = |d: Diagnostic| d.to_string();
    let expected = run(&module, f, args, &mut Silent).map_err(why)?;
    let finite = |a: &Array| a.to_f64s().iter().all(|x| x.is_finite());
    if !expected.iter().all(finite) {
        return Err(format!("not finite: {expected:?}"));
    }
    let settings = Settings::new(cpu(1).plan);
    let session = Session { settings, backend: Arc::new(Evaluator::default()) };
    let evaluated = session.callable(&module, f).map_err(why)?(args).map_err(why)?;
    if evaluated != expected {
        return Err(format!("evaluator: {evaluated:?}\nis not\n{expected:?}"));
    }
    let (found, most) = computed(&cpu(1), f, args)?;
    if found != expected {
        return Err(format!("cpu: {found:?}\nis not\n{expected:?}"));
    }
    let (found, _) = computed(&cpu(3), f, args)?;
    if found != expected {
        return Err(format!("three threads: {found:?}\nis not\n{expected:?}"));
    }
    let [least, _] = within_budgets(f, args, &expected)?;
    // The whole path, where it takes no seconds.
    if f.inst_count() > LONG && !thorough() {
        return Ok(());
    }
    let budget = least + most.saturating_sub(least) / 4;
    let (found, peak) = computed(&Cpu { mem_budget: Some(budget), ..cpu(1) }, f, args)?;
    if found != expected || peak > budget {
        return Err(format!("{peak} bytes of {budget}: {found:?}\nis not\n{expected:?}"));
    }
    Ok(())
}

#[test]
fn engines_and_budgets_give_the_same_bits() {
    parallel::each(&programs::all(), |program| {
        let f = derived(program);
        same_everywhere(&f, &program.inputs).unwrap_or_else(|e| panic!("{}: {e}", program.name));
    });
}

/// A function that is ready to run.
type RunFn<'f> = dyn Fn(&[Array]) -> Result<Vec<Array>, Diagnostic> + 'f;

/// The scalar that a program gives.
fn value(f: &RunFn<'_>, args: &[Array]) -> f64 {
    f(args).expect("runs")[0].to_f64s()[0]
}

#[test]
fn gradients_agree_with_differences() {
    parallel::each(&programs::all(), |program| {
        let name = program.name;
        let module = Module::from(program.traced.clone());
        let engine = cpu(1).session();
        let primal = engine.callable(&module, &program.traced).expect("compiles");
        let (all, _) = computed(&cpu(1), &derived(program), &program.inputs).expect("runs");
        assert_eq!(value(&*primal, &program.inputs).to_bits(), all[0].to_bits()[0], "{name}");
        for (&p, gradient) in program.wrt.iter().zip(&all[1..]) {
            let at = program.inputs[p].to_f64s();
            // Along one direction of all elements, and along a few elements alone.
            let few = (0..at.len()).step_by(1 + at.len() / 4);
            let alone = |k: usize| (0..at.len()).map(|j| f64::from(j == k)).collect();
            let directions: Vec<Vec<f64>> =
                std::iter::once(programs::wave(at.len(), 9.0)).chain(few.map(alone)).collect();
            for along in directions {
                let moved = |h: f64| {
                    let x: Vec<f64> = at.iter().zip(&along).map(|(x, d)| x + h * d).collect();
                    let mut args = program.inputs.clone();
                    let dims = args[p].dims().to_vec();
                    args[p] = Array::from_f64s(DType::F64, &dims, &x).expect("as many");
                    value(&*primal, &args)
                };
                // Of order 4. Steps are short: where an iteration more or less is done, values jump.
                let h = 1e-6;
                let slope = (8.0 * (moved(h) - moved(-h)) - (moved(2.0 * h) - moved(-2.0 * h)))
                    / (12.0 * h);
                let due: f64 = gradient.to_f64s().iter().zip(&along).map(|(g, d)| g * d).sum();
                let off = (slope - due).abs();
                assert!(off <= 1e-7 * (1.0 + due.abs()), "{name}, {p}: {due} but {slope}");
            }
        }
    });
}

fn numbers(value: &Value) -> Vec<f64> {
    let all = value.as_array().expect("a list").iter();
    all.map(|x| x.as_f64().expect("a number")).collect()
}

/// `benches/peers/loop_peers.py --record` writes what JAX gives.
#[test]
fn values_and_gradients_are_those_of_jax() {
    let recorded: Value =
        serde_json::from_str(include_str!("../recorded/loops.json")).expect("JSON");
    for program in programs::all() {
        let name = program.name;
        let (found, _) = computed(&cpu(1), &derived(&program), &program.inputs).expect("runs");
        let due = recorded[name].as_array().unwrap_or_else(|| panic!("{name} is not recorded"));
        assert_eq!(found.len(), due.len(), "{name}");
        for (k, (found, due)) in found.iter().zip(due).enumerate() {
            let (found, due) = (found.to_f64s(), numbers(due));
            let size = due.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            assert_eq!(found.len(), due.len(), "{name}, result {k}");
            for (a, b) in found.iter().zip(&due) {
                let off = (a - b).abs();
                assert!(off <= 1e-9 * size, "{name}, result {k}: {a} of adfuse, {b} of JAX");
            }
        }
    }
}

fn program(name: &str) -> LoopProgram {
    programs::all().into_iter().find(|p| p.name == name).expect("is listed")
}

/// Gradient descent with steps as long as Barzilai and Borwein say; the values on the way.
fn descend(f: &Function, args: &mut [Array], p: usize, first: f64, steps: usize) -> Vec<f64> {
    let engine = cpu(1).session();
    let step = engine.callable(&Module::single(f.clone()), f).expect("compiles");
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut values: Vec<f64> = Vec::new();
    let mut before: Option<[Vec<f64>; 2]> = None;
    for _ in 0..steps {
        let out = step(args).expect("runs");
        let (x, g) = (args[p].to_f64s(), out[1].to_f64s());
        values.push(out[0].to_f64s()[0]);
        let rate = before.as_ref().map_or(first, |[y, h]| {
            let less = |a: &[f64], b: &[f64]| -> Vec<f64> {
                a.iter().zip(b).map(|(a, b)| a - b).collect()
            };
            let (moved, turned) = (less(&x, y), less(&g, h));
            (dot(&moved, &turned) / dot(&turned, &turned)).abs()
        });
        let next: Vec<f64> = x.iter().zip(&g).map(|(x, g)| x - rate * g).collect();
        let dims = args[p].dims().to_vec();
        args[p] = Array::from_f64s(DType::F64, &dims, &next).expect("as many");
        before = Some([x, g]);
    }
    values
}

/// The rates that made the observations are found again.
#[test]
fn rates_of_a_differential_equation_are_recovered() {
    let program = program("fit");
    let rates = [1.1, 0.5, 0.6, 0.9];
    let array = |dims: &[u64], x: &[f64]| Array::from_f64s(DType::F64, dims, x).expect("as many");
    // What is observed: the solution of the same method at the rates, written here once more.
    let mut state = [1.0, 1.5];
    let slope =
        |[x, y]: [f64; 2]| [rates[0] * x - rates[1] * (x * y), rates[2] * (x * y) - rates[3] * y];
    let mut seen = Vec::new();
    for _ in 0..40 {
        let on = |s: [f64; 2], d: [f64; 2], h: f64| [s[0] + h * d[0], s[1] + h * d[1]];
        let a = slope(state);
        let b = slope(on(state, a, 0.05));
        let c = slope(on(state, b, 0.05));
        let d = slope(on(state, c, 0.1));
        let mean = |k: usize| (a[k] + 2.0 * b[k] + 2.0 * c[k] + d[k]) / 6.0;
        state = on(state, [mean(0), mean(1)], 0.1);
        seen.extend(state);
    }
    let mut args =
        vec![array(&[4], &[1.4, 0.8, 0.5, 1.2]), program.inputs[1].clone(), array(&[40, 2], &seen)];
    let module = Module::from(program.traced.clone());
    let f = value_and_grad(&module, &program.traced, &[0]).expect("differentiates");
    let values = descend(&f, &mut args, 0, 0.02, 120);
    let last = values[values.len() - 1];
    assert!(last < 1e-12 * values[0], "{values:?}");
    for (found, due) in args[0].to_f64s().iter().zip(rates) {
        assert!((found - due).abs() < 1e-6, "{:?} is not {rates:?}", args[0]);
    }
}

/// Through the steps of the `while` and by the implicit function theorem gradients are the same; the second has no way
/// back over the loop.
#[test]
fn a_root_has_the_same_gradients_both_ways() {
    let [steps, root] = ["equilibrium_by_steps", "equilibrium_by_root"].map(|name| {
        let program = program(name);
        let f = derived(&program);
        let mut loops = [0, 0];
        f.walk(&mut |f, i| {
            loops[0] += usize::from(f.op(i) == Op::While);
            loops[1] += usize::from(f.op(i) == Op::Adjoint);
        });
        let (found, _) = computed(&cpu(1), &f, &program.inputs).expect("runs");
        (found, loops)
    });
    assert_eq!((steps.1[1], root.1[1]), (1, 0), "ways back");
    assert_eq!(root.1[0], 1, "whiles");
    for (a, b) in steps.0.iter().zip(&root.0) {
        for (a, b) in a.to_f64s().iter().zip(b.to_f64s()) {
            assert!(
                (a - b).abs() <= 1e-10 * b.abs().max(1e-3),
                "{a} through steps, {b} by the root"
            );
        }
    }
}

/// Tuning by gradients of the inner descent makes its result better.
#[test]
fn an_outer_descent_improves_the_inner_one() {
    let (inner, outer) = (program("ridge"), program("outer_descent"));
    let [before, after] = [inner, outer].map(|p| {
        let f = p.traced.function().clone();
        computed(&cpu(1), &f, &p.inputs).expect("runs").0[0].to_f64s()[0]
    });
    assert!(after < 0.995 * before, "{before} before, {after} after");
}

/// The radius of a ball is found again from its image.
#[test]
fn a_ball_is_recovered_from_its_image() {
    let program = program("image");
    let drawn = programs::rendered([4, 6]).expect("is traced");
    let mut args = program.inputs.clone();
    args[0] = Array::scalar(Literal::from_f64(DType::F64, 0.8));
    args[2] = computed(&cpu(1), &drawn, &args[..2]).expect("runs").0.remove(0);
    args[0] = Array::scalar(Literal::from_f64(DType::F64, 0.87));
    let module = Module::from(program.traced.clone());
    let f = value_and_grad(&module, &program.traced, &[0]).expect("differentiates");
    let values = descend(&f, &mut args, 0, 0.1, 10);
    let found = args[0].to_f64s()[0];
    assert!((found - 0.8).abs() < 1e-6, "{found}: {values:?}");
}
