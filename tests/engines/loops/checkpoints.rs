//! Numbers of checkpoints: the steps that engines run are those of the optimal schedule, and no bit depends on them.

use super::{cpu, parallel};
use adfuse::autodiff::grad;
use adfuse::backends::Array;
use adfuse::backends::reference::{Evaluator, Silent, run, run_with};
use adfuse::engine::{Cpu, Session, Settings};
use adfuse::functions::{Opaque, Registry};
use adfuse::fusion::prepare;
use adfuse::ir::kernel::forward_steps;
use adfuse::ir::text::parse;
use adfuse::ir::{Attr, DType, Function, Module, Op, verify};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of steps that no number of checkpoints divides well, and the numbers of checkpoints.
const STEPS: [u64; 6] = [0, 1, 2, 3, 7, 97];
const CHECKPOINTS: std::ops::RangeInclusive<u64> = 1..=8;

/// A loop whose steps call a function that counts them: its value and a way back.
fn counted(steps: u64, checkpoints: u64) -> Module {
    let text = format!(
        "func @f(%x: f64[], %a: f64[], %w: f64[]) -> (f64[], f64[]) {{
           %c, %d = adjoint %x, %a {{carry = 1, up = 1, length = {steps}, checkpoints = {checkpoints}}} : f64[], f64[]
             step(%i: i64[], %s: f64[]) {{
               %m = opaque %s {{name = \"counted\"}} : f64[]
               %n = mul %m, %w : f64[] %y = sin %n : f64[] yield %y }}
             back(%i: i64[], %s: f64[], %u: f64[]) {{
               %e = mul %u, %s : f64[] %g = sub %e, %u : f64[] yield %g }}
           return %c, %d }}"
    );
    let module = parse(&text).unwrap_or_else(|e| panic!("{e:#?}\n{text}"));
    verify(&module).unwrap_or_else(|e| panic!("{e:#?}\n{text}"));
    module
}

/// The identity of scalars, which counts its calls.
fn counting() -> (Registry, Arc<AtomicU64>) {
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    let identity = Opaque::new(
        |types| types.first().cloned().ok_or_else(|| "it takes an operand".into()),
        move |call| {
            count.fetch_add(1, Ordering::Relaxed);
            let x = call.args[0].elements::<f64>()?;
            call.result.elements::<f64>()?.copy_from_slice(x);
            Ok(())
        },
    );
    (Registry::new().with("counted", identity), calls)
}

/// Of Enzyme it is known that it took the period for the number of checkpoints.
#[test]
fn engines_run_the_steps_of_the_optimal_schedule() {
    let args = [0.3, 0.7, 0.9].map(|x| Array::from_f64s(DType::F64, &[], &[x]).expect("one"));
    for steps in STEPS {
        let mut expected = None;
        for checkpoints in CHECKPOINTS {
            let name = format!("{steps} steps, {checkpoints} checkpoints");
            let module = counted(steps, checkpoints);
            let f = module.funcs.values().next().expect("a function");
            let (functions, calls) = counting();
            let due = run_with(&module, f, &args, &mut Silent, &functions).expect("runs");
            assert_eq!(*expected.get_or_insert(due.clone()), due, "{name}");
            let ready = Cpu { functions: functions.clone(), ..cpu(1) };
            let made = ready.compile(&module, f).unwrap_or_else(|d| panic!("{name}: {d}"));
            calls.store(0, Ordering::Relaxed);
            assert_eq!(made.executable.run(&args).expect("runs"), due, "{name}");
            assert_eq!(calls.load(Ordering::Relaxed), forward_steps(steps, checkpoints), "{name}");
            let settings = Settings { functions: functions.clone(), ..Settings::new(ready.plan) };
            let session = Session { settings, backend: Arc::new(Evaluator::new(functions)) };
            let evaluate = session.callable(&module, f).expect("compiles");
            calls.store(0, Ordering::Relaxed);
            assert_eq!(evaluate(&args).expect("runs"), due, "{name}");
            assert_eq!(calls.load(Ordering::Relaxed), forward_steps(steps, checkpoints), "{name}");
        }
    }
}

/// The gradient of a loop with this number of checkpoints on its ways back, which are kept.
fn with_checkpoints(g: &Function, checkpoints: u64) -> Function {
    let mut g = g.clone();
    let mut backs = Vec::new();
    g.walk(&mut |f, i| backs.extend((f.op(i) == Op::Adjoint).then_some(i)));
    assert_eq!(backs.len(), 1, "{g}");
    for i in backs {
        g.set_attr(i, "checkpoints", Attr::Int(checkpoints as i64));
    }
    g
}

#[test]
fn uneven_numbers_of_steps_and_checkpoints_change_no_bit() {
    let each = |&steps: &u64| {
        let text = format!(
            "func @f(%h: f64[3], %w: f64[3], %xs: f64[{steps},3]) -> f64[] {{
               %c = scan %h, %xs {{carry = 1}} : f64[3] body(%s: f64[3], %x: f64[3]) {{
                 %a = mul %s, %w : f64[3] %b = add %a, %x : f64[3] %n = tanh %b : f64[3] yield %n }}
               %r = reduce_sum %c {{axes = [0]}} : f64[] return %r }}"
        );
        let module = parse(&text).expect("parses");
        let f = module.funcs.values().next().expect("a function");
        let g = grad(&module, f, &[0, 1, 2]).expect("reverses");
        let dims = [vec![3], vec![3], vec![steps, 3]];
        let args: Vec<Array> = (dims.iter().zip([1.0, 2.0, 3.0]))
            .map(|(dims, seed)| super::programs::input(dims, seed, 0.9, 0.0))
            .collect();
        let due = run(&Module::single(g.clone()), &g, &args, &mut Silent).expect("runs");
        // Of PyTorch it is known that only the last step had a gradient.
        let rows = due[2].to_f64s();
        assert!(rows.iter().all(|x| *x != 0.0), "a step has no gradient: {rows:?}");
        for checkpoints in CHECKPOINTS {
            let g = with_checkpoints(&g, checkpoints);
            let module = Module::single(g.clone());
            prepare(&module, &g).unwrap_or_else(|d| panic!("{d}\n{g}"));
            let made = cpu(1 + checkpoints as usize % 2).compile(&module, &g).expect("compiles");
            let found = made.executable.run(&args).expect("runs");
            assert_eq!(found, due, "{steps} steps, {checkpoints} checkpoints");
        }
    };
    parallel::each(&STEPS, each);
}
