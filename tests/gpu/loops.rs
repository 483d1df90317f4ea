//! Loops and branches on the device: the bits of the kernel evaluator, within budgets and limits, and how long a turn
//! takes.

use crate::common::kernels::{arguments, block_files};
use crate::common::{control, count_from_env, loops, random};
use crate::strict::{EFFORTS, agrees, lists, same};
use crate::trials::Skipped;
use crate::{Outcome, all, alone, gpu, say};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::gpu::DeviceArray;
use adfuse::backends::reference::kernel;
use adfuse::backends::reference::{Silent, run};
use adfuse::backends::{Array, RunLimits};
use adfuse::engine::{Cpu, Gpu};
use adfuse::fusion::{Effort, Fp};
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::verify;
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Kind, Module};

pub(crate) fn blocks_by_hand() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let cases = block_files();
    all("blocks_by_hand", &cases, |(name, text)| {
        let program = verify(read(text).expect("reads")).expect("verifies");
        let args = arguments(&program);
        let outcome = match kernel::run(&program, &args) {
            Ok(_) => same(&gpu, &program, &args),
            // A loop that does not end in time is the same error.
            Err(due) => match gpu.of_program(program.clone()) {
                Err(d) => Outcome::Wrong(d.to_string()),
                Ok(made) => match made.executable.run(&args) {
                    Err(d) if d.to_string() == due.to_string() => Outcome::Same,
                    found => Outcome::Wrong(format!("{found:?} is not {due}")),
                },
            },
        };
        match outcome {
            Outcome::Wrong(why) => Outcome::Wrong(format!("{name}: {why}")),
            outcome => outcome,
        }
    });
    Ok(())
}

pub(crate) fn functions_with_loops() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let cases = loops::functions();
    all("functions_with_loops", &cases, |(name, f, args)| {
        match agrees(&gpu, &Module::single(f.clone()), f, args, &EFFORTS) {
            Outcome::Wrong(why) => Outcome::Wrong(format!("{name}: {why}")),
            outcome => outcome,
        }
    });
    Ok(())
}

pub(crate) fn random_programs_with_loops() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let count = count_from_env("ADFUSE_PROGRAMS", 1000) / 4;
    let check = |n: usize, steps: &[crate::common::programs::Step]| -> Outcome {
        let dtype = [DType::F32, DType::F64][n % 2];
        let mut f = control::decode(steps, dtype);
        if n.is_multiple_of(2) {
            let wrt = match differentiable(&f, None) {
                Ok(wrt) => wrt,
                Err(d) => return Outcome::Wrong(d.to_string()),
            };
            f = match forward_and_backward(&Module::single(f.clone()), &f, &wrt) {
                Ok(g) => g,
                Err(d) => return Outcome::Wrong(format!("{d}\n{f}")),
            };
        }
        let args = control::inputs(&f, steps.len() as i64 % 3);
        agrees(&gpu, &Module::single(f.clone()), &f, &args, &EFFORTS[1..])
    };
    let cases: Vec<_> = lists(29, count.max(1)).into_iter().enumerate().collect();
    all("random_programs_with_loops", &cases, |(n, steps)| check(*n, steps));
    Ok(())
}

fn function(text: &str) -> Function {
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    module.funcs.values().next().expect("a function").clone()
}

fn gradient(f: &Function) -> Function {
    let wrt = differentiable(f, None).expect("has floats");
    forward_and_backward(&Module::single(f.clone()), f, &wrt).unwrap_or_else(|d| panic!("{d}"))
}

/// Smaller and smaller budgets: the same bits in no more memory, until there is no plan.
pub(crate) fn budgets_are_kept() -> Result<(), Skipped> {
    let gpu = gpu()?;
    // The gradient of the rows would have room for all states, and no budget would be smaller.
    let f = function(&loops::cell_loss(200, 64));
    let wrt = differentiable(&f, Some(&["h".to_owned(), "w".to_owned()])).expect("has floats");
    let g = forward_and_backward(&Module::single(f.clone()), &f, &wrt).expect("is differentiable");
    let module = Module::single(g.clone());
    let args = random::inputs(&g, &[Domain::Small]);
    let due = run(&module, &g, &args, &mut Silent).expect("runs");
    let free = gpu.compile(&module, &g).unwrap_or_else(|d| panic!("{d}"));
    assert_eq!(free.executable.run(&args).expect("runs"), due);
    let (mut budget, mut kept) = (free.executable.memory().peak() - 1, 0);
    let mut line = format!("budgets_are_kept: {} bytes without a budget", budget + 1);
    loop {
        let mut gpu = Gpu::clone(&gpu);
        gpu.mem_budget = Some(budget);
        let made = match gpu.compile(&module, &g) {
            Ok(made) => made.executable,
            Err(d) => {
                assert_eq!(d.kind, Kind::Limit, "{d}");
                break;
            }
        };
        let peak = made.memory().peak();
        assert!(peak <= budget, "{peak} of {budget}");
        assert_eq!(made.run(&args).expect("runs"), due, "within {budget}");
        kept += 1;
        line += &format!(", {peak}");
        budget = peak - 1 - peak / 16;
    }
    say(&line);
    assert!(kept > 0, "no budget was kept");
    Ok(())
}

pub(crate) fn limits_are_errors() -> Result<(), Skipped> {
    let opened = gpu()?;
    let limits = RunLimits { max_trips: 100 };
    let gpu = Gpu { limits, ..Gpu::clone(&opened) };
    let cpu = Cpu { limits, ..Cpu::default() };
    let endless = "func @f(%x: f32[], %k: i32[]) -> f32[] {
      %0 = while %x : f32[] cond(%c: f32[]) { %p = lt %c, 1e30 : bool[] yield %p }
        body(%d: f32[]) { %e = add %d, 1.0 : f32[] yield %e }
      return %0
    }";
    let counted = "func @f(%x: f32[], %k: i32[]) -> f32[] {
      %0 = fori 0, %k, %x : f32[] body(%i: i32[], %c: f32[]) { %1 = add %c, 1.0 : f32[] yield %1 }
      return %0
    }";
    let known = "func @f(%x: f32[], %k: i32[]) -> f32[] {
      %xs = broadcast_in_dim %x {dims = []} : f32[101]
      %0 = scan %x, %xs {carry = 1} : f32[] body(%c: f32[], %e: f32[]) {
        %1 = add %c, %e : f32[]
        yield %1
      }
      return %0
    }";
    for (text, k, ends) in
        [(endless, 1, false), (counted, 101, false), (counted, 100, true), (known, 1, false)]
    {
        let f = function(text);
        let module = Module::single(f.clone());
        let x = Array::from_f32s(&[], &[0.0]).expect("one");
        let k = Array::from_f64s(DType::I32, &[], &[f64::from(k)]).expect("one");
        let args = [x, k];
        let found = gpu.compile(&module, &f).unwrap_or_else(|d| panic!("{d}"));
        let due = cpu.compile(&module, &f).unwrap_or_else(|d| panic!("{d}"));
        match (found.executable.run(&args), due.executable.run(&args)) {
            (Ok(found), Ok(due)) => assert!(ends && found == due),
            (Err(found), Err(due)) => {
                assert!(!ends && found.kind == Kind::Limit, "{found}");
                assert_eq!(found.message, due.message);
                assert!(found.to_string().contains("step"), "{found}");
            }
            (found, due) => panic!("{found:?} is not {due:?}"),
        }
    }
    Ok(())
}

pub(crate) fn as_much_memory_is_taken_as_planned() -> Result<(), Skipped> {
    let gpu = alone()?;
    for (n, width) in [(200, 64), (50, 300)] {
        let g = gradient(&function(&loops::cell_loss(n, width)));
        let module = Module::single(g.clone());
        let args = random::inputs(&g, &[Domain::Small]);
        gpu.device().finish().expect("answers");
        gpu.device().forget_most().expect("answers");
        let before = gpu.device().used().expect("answers");
        let made = gpu.compile(&module, &g).unwrap_or_else(|d| panic!("{d}")).executable;
        made.run(&args).expect("runs");
        let most = gpu.device().most_used().expect("answers") - before;
        let planned = made.memory().peak();
        say(&format!("  cell {n} x {width}: {planned} bytes are planned, {most} taken"));
        assert!((planned / 2..=planned).contains(&most), "{planned} planned, {most} taken");
    }
    Ok(())
}

/// An LSTM cell of 256 elements over a batch of 32, in `n` steps.
fn lstm(n: usize) -> String {
    let gates = "%z = dot_general %h, %w {contract = [1] x [0]} : f32[32,1024]
      %y = add %z, %x : f32[32,1024]
      %i0 = slice %y {start = [0, 0], limit = [32, 256], stride = [1, 1]} : f32[32,256]
      %f0 = slice %y {start = [0, 256], limit = [32, 512], stride = [1, 1]} : f32[32,256]
      %g0 = slice %y {start = [0, 512], limit = [32, 768], stride = [1, 1]} : f32[32,256]
      %o0 = slice %y {start = [0, 768], limit = [32, 1024], stride = [1, 1]} : f32[32,256]
      %i = logistic %i0 : f32[32,256]
      %f = logistic %f0 : f32[32,256]
      %g = tanh %g0 : f32[32,256]
      %o = logistic %o0 : f32[32,256]
      %fc = mul %f, %c : f32[32,256]
      %ig = mul %i, %g : f32[32,256]
      %nc = add %fc, %ig : f32[32,256]
      %tc = tanh %nc : f32[32,256]
      %nh = mul %o, %tc : f32[32,256]";
    format!(
        "func @lstm(%h0: f32[32,256], %c0: f32[32,256], %w: f32[256,1024], %xs: f32[{n},32,1024]) -> (f32[32,256], f32[32,256]) {{
           %a, %b = scan %h0, %c0, %xs {{carry = 2}} : f32[32,256], f32[32,256] body(%h: f32[32,256], %c: f32[32,256], %x: f32[32,1024]) {{
             {gates}
             yield %nh, %nc
           }}
           return %a, %b
         }}"
    )
}

/// The device's microseconds of a turn, and the caller's of a run by turns.
pub(crate) fn times_of_a_turn() -> Result<(), Skipped> {
    let gpu = alone()?;
    let while_cell = loops::cell(1000, 16);
    let cases = [
        ("h = tanh(h w + x), 14", 1000, function(&loops::cell(1000, 14))),
        ("h = tanh(h w + x), 14", 10_000, function(&loops::cell(10_000, 14))),
        ("h = tanh(h w + x), 16", 1000, function(&while_cell)),
        ("gradient, 16", 1000, gradient(&function(&loops::cell_loss(1000, 16)))),
        ("lstm 32 x 256", 500, function(&lstm(500))),
    ];
    for (name, turns, f) in &cases {
        for fp in [Fp::Strict, Fp::Fast] {
            let mut gpu = Gpu::clone(&gpu);
            gpu.plan.fp = fp;
            gpu.plan.effort = Effort::Default;
            let module = Module::single(f.clone());
            let made = gpu.compile(&module, f).unwrap_or_else(|d| panic!("{d}")).executable;
            let args = random::inputs(f, &[Domain::Small]);
            let upload = |a: &Array| DeviceArray::upload(gpu.device(), a).expect("fits");
            let args: Vec<DeviceArray> = args.iter().map(upload).collect();
            let seconds = made.timed(&args, 5).expect("runs");
            let each = seconds * 1e6 / f64::from(*turns);
            let notes: Vec<&String> = made.steps().iter().flat_map(|s| &s.notes).collect();
            say(&format!("  {name}, {turns} turns, {fp:?}: {each:.2} us a turn; {notes:?}"));
            assert!(each > 0.1 && each < 1e4, "{each}");
        }
    }
    Ok(())
}
