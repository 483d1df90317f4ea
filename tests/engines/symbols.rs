//! Functions with symbolic extents on every engine: the bits of the reference engine and of the function at constant
//! extents, what is kept, budgets, and the errors of extents that do not fit.

use crate::common::effects::{Printed, printing};
use crate::common::parallel;
use crate::common::programs::decode;
use crate::common::random;
use adfuse::autodiff::{Batching, Random, forward_and_backward, vmap};
use adfuse::autodiff::{differentiable, value_and_grad};
use adfuse::backends::backend::{Arrange, Backend, Capabilities, Prepared};
use adfuse::backends::functions::{CallSide, Registry};
use adfuse::backends::reference::{Evaluated, Evaluator, Silent, run};
use adfuse::backends::{Array, Resident};
use adfuse::engine::{Cpu, Engine, Session, Settings, WithFallback};
use adfuse::ir::kernel::{Program, Verified};
use adfuse::ir::op::Domain;
use adfuse::ir::rewrite::{AttentionSteps, specialize};
use adfuse::ir::text::parse;
use adfuse::ir::{At, DType, Diagnostic, Dim, Function, Kind, Module, Symbol, TensorType};
use adfuse::sample::{rng, sample};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A model with a batch of any extent.
const MODEL: &str =
    "func @model<B>(%x: f32[B,6], %w: f32[6,5], %b: f32[5], %t: f32[B,5]) -> f32[] {
  %0 = dot_general %x, %w {contract = [1] x [0]} : f32[B,5]
  %1 = broadcast_in_dim %b {dims = [1]} : f32[B,5]
  %2 = add %0, %1 : f32[B,5]
  %3 = tanh %2 : f32[B,5]
  %4 = sub %3, %t : f32[B,5]
  %5 = mul %4, %4 : f32[B,5]
  %6 = reduce_sum %5 {axes = [0, 1]} : f32[]
  return %6
}";

fn one(text: &str) -> (Module, Function) {
    let module = parse(text).unwrap_or_else(|e| panic!("{text}: {e:?}"));
    let f = module.funcs.values().next().expect("a function").clone();
    (module, f)
}

/// The gradient of [`MODEL`] by its weights.
fn gradient() -> (Module, Function) {
    let (module, f) = one(MODEL);
    let wrt = differentiable(&f, Some(&["w".into(), "b".into()])).expect("floats");
    let g = value_and_grad(&module, &f, &wrt).expect("differentiates");
    (Module::single(g.clone()), g)
}

fn evaluator() -> Session<Evaluator> {
    let settings = Settings::new(Cpu::default().plan);
    Session { settings, backend: Arc::new(Evaluator::new(Registry::new())) }
}

fn normals(types: &[TensorType]) -> Vec<Array> {
    let mut rng = rng(3, 0);
    types.iter().map(|t| sample(t, Domain::Normal, &mut rng).expect("small")).collect()
}

fn symbol(name: &str) -> Symbol {
    Symbol::new(name).expect("a symbol")
}

/// Arguments for a function whose only symbol `B` has this extent.
fn arguments(f: &Function, extent: u64) -> Vec<Array> {
    let extents: BTreeMap<Symbol, u64> = f.symbols.iter().map(|&s| (s, extent)).collect();
    normals(&specialize(f, &extents).unwrap_or_else(|e| panic!("{}\n{f}", e[0])).param_types())
}

/// Checks a function with symbols at three extents: every engine has the bits of the reference engine, and the
/// CPU engine those of the function at constant extents.
fn agrees(module: &Module, f: &Function) -> Result<(), String> {
    let told = |d: Diagnostic| format!("{d}\n{f}");
    let cpu = Cpu::default();
    let symbolic = cpu.compile_symbolic(module, f).map_err(told)?;
    let evaluated = evaluator().compile_symbolic(module, f).map_err(told)?;
    for extent in [3, 1, 8] {
        let args = arguments(f, extent);
        let due = run(module, f, &args, &mut Silent).map_err(told)?;
        if evaluated.run(&args).map_err(told)? != due {
            return Err(format!("the evaluator has other bits at {extent}\n{f}"));
        }
        let found = symbolic.run(&args).map_err(told)?;
        if found != due {
            return Err(format!("the CPU engine has other bits at {extent}\n{f}"));
        }
        let extents = f.symbols.iter().map(|&s| (s, extent)).collect();
        let constant = specialize(f, &extents).map_err(|e| told(e[0].clone()))?;
        let constant = cpu.compile(module, &constant).map_err(told)?;
        let plain = constant.program.to_string();
        let made = symbolic
            .specialized(&f.symbols.iter().map(|s| (s.as_str(), extent)).collect::<Vec<_>>());
        if made.map_err(told)?.program.to_string() != plain {
            return Err(format!("another program than with constants at {extent}\n{f}"));
        }
    }
    Ok(())
}

/// A random program over a batch of any extent; none where an instruction needs a known one.
fn batched(f: &Function) -> Option<Function> {
    let batching =
        Batching::new(Dim::Sym(symbol("B")), [Some(0), None, Some(0)]).random(Random::Same);
    vmap(&Module::single(f.clone()), f, &batching).ok()
}

#[test]
fn random_programs_have_the_bits_of_the_reference_engine_at_any_extent() {
    let mut tried = std::cell::Cell::new(0);
    random::programs(57, 90, |steps| {
        let f = decode(steps, DType::F32);
        let Some(g) = batched(&f) else { return Ok(()) };
        tried.set(tried.get() + 1);
        agrees(&Module::single(g.clone()), &g)?;
        // Where derivatives need known extents they are refused.
        let module = Module::single(g.clone());
        match forward_and_backward(&module, &g, &[0, 1, 2]) {
            Ok(d) => agrees(&Module::single(d.clone()), &d),
            Err(_) => Ok(()),
        }
    });
    assert!(*tried.get_mut() > 30, "{tried:?} programs take a batch of any extent");
}

#[test]
fn gradients_and_batches_of_functions_with_symbols_run() {
    let (module, g) = gradient();
    agrees(&module, &g).unwrap();
    let (module, f) = one(MODEL);
    agrees(&module, &f).unwrap();
    // A symbolic batch of functions with a symbol of their own.
    let batching = Batching::new(Dim::Sym(symbol("N")), [Some(0), None, None, Some(0)]);
    let v = vmap(&module, &f, &batching).expect("maps");
    assert_eq!(v.symbols, [symbol("B"), symbol("N")]);
    let single = Module::single(v.clone());
    agrees(&single, &v).unwrap();
}

#[test]
fn what_was_compiled_is_kept_and_the_longest_unused_goes() {
    let (module, f) = one(MODEL);
    let made = Cpu::default().compile_symbolic(&module, &f).expect("compiles").keeping(2);
    assert_eq!(made.kept(), 0);
    let at = |n: u64| made.specialized(&[("B", n)]).expect("compiles");
    let (two, three) = (at(2), at(3));
    assert!(made.run(&arguments(&f, 2)).is_ok());
    assert!(Arc::ptr_eq(&two.executable, &at(2).executable) && Arc::ptr_eq(&two, &at(2)));
    let types: Vec<TensorType> = arguments(&f, 2).iter().map(Array::ty).collect();
    assert!(Arc::ptr_eq(&two, &made.for_types(&types).expect("kept")));
    let _four = at(4);
    assert_eq!(made.kept(), 2);
    assert!(Arc::ptr_eq(&two, &at(2)), "two was used after three");
    assert!(!Arc::ptr_eq(&three, &at(3)), "three went");
    made.clear();
    assert_eq!(made.kept(), 0);
}

#[test]
fn threads_share_what_is_kept() {
    let (module, f) = one(MODEL);
    let made = Cpu::default().compile_symbolic(&module, &f).expect("compiles");
    let extents = [1, 2, 3, 2, 1, 3, 2, 1];
    parallel::each(&extents, |&n| {
        let args = arguments(&f, n);
        assert_eq!(made.run(&args), run(&module, &f, &args, &mut Silent));
    });
    assert_eq!(made.kept(), 3);
}

/// Budgets hold at each tuple of extents, and one that is too small for an extent leaves the others.
#[test]
fn budgets_hold_for_each_extent() {
    let (module, g) = gradient();
    let free = Cpu::default().compile_symbolic(&module, &g).expect("compiles");
    let peak = |n: u64| free.specialized(&[("B", n)]).expect("compiles").executable.memory().peak();
    assert!(peak(64) < peak(256));
    let budget = peak(64);
    let cpu = Cpu { mem_budget: Some(budget), ..Cpu::default() };
    let made = cpu.compile_symbolic(&module, &g).expect("compiles");
    for n in [1, 64, 17] {
        let at = made.specialized(&[("B", n)]).expect("fits");
        assert!(at.executable.memory().peak() <= budget, "{n}");
        let args = arguments(&g, n);
        assert_eq!(made.run(&args), run(&module, &g, &args, &mut Silent));
    }
    let d = made.specialized(&[("B", 4096)]).expect_err("takes more");
    assert_eq!((d.kind, made.kept()), (Kind::Limit, 3), "{d}");
}

#[test]
fn donated_arguments_of_any_extent_run() {
    let (module, f) =
        one("func @f<B>(%x: f32[B,4]) -> f32[B,4] { %0 = exp %x : f32[B,4] return %0 }");
    let cpu = Cpu { donated: vec![0], ..Cpu::default() };
    let made = cpu.compile_symbolic(&module, &f).expect("compiles");
    for n in [2, 5] {
        let args = arguments(&f, n);
        let due = run(&module, &f, &args, &mut Silent);
        assert_eq!(made.run(&args), due);
        assert_eq!(made.run_named([("x", &args[0])]), due);
        let resident = args.iter().cloned().map(Resident::from).collect();
        let left = made.run_resident(resident).expect("runs");
        assert_eq!(left.iter().map(Resident::fetch).collect::<Result<Vec<_>, _>>(), due);
        assert_eq!(made.run_donating(args.clone()), due);
        assert_eq!(cpu.ready(&module, &f, "f").expect("compiles")(&args), due);
    }
}

/// An engine that runs nothing.
#[derive(Debug)]
struct Refusing;

impl Backend for Refusing {
    type Executable = Evaluated;

    fn name(&self) -> &'static str {
        "refusing"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            attention: AttentionSteps::Defined,
            any_layout: true,
            schedules: true,
            functions: CallSide::Host,
        }
    }

    fn prepare<'a>(
        &'a self,
        _: &Verified<Program>,
        _: &Arrange<'_>,
    ) -> Result<Box<dyn Prepared<Executable = Evaluated> + 'a>, Diagnostic> {
        Err(Diagnostic::new(At::default(), Kind::Unsupported, "nothing runs here"))
    }
}

/// The interface that tools run functions by takes functions with symbols, with the reference engine behind it where
/// an engine does not support what there is.
#[test]
fn engines_make_functions_with_symbols_ready() {
    let (module, f) = one(MODEL);
    let session: Session = Cpu::default().into();
    let args = [arguments(&f, 2), arguments(&f, 7)];
    let due = args.each_ref().map(|args| run(&module, &f, args, &mut Silent));
    let ready = session.ready(&module, &f, "model").expect("is made");
    assert_eq!(args.each_ref().map(|args| ready(args)), due);
    let (module, f) = one("func @f<B>(%x: f32[B], %t: token) -> (f32[B], token) {
          %0 = debug_print %t, %x {label = \"x\"} : token
          return %x, %0
        }");
    let settings = Settings::new(Cpu::default().plan);
    let either = WithFallback::new(Session { settings, backend: Arc::new(Refusing) }.erased());
    let x = Array::from_f32s(&[2], &[1.0, 2.0]).expect("fits");
    let ready = either.ready(&module, &f, "told").expect("is made");
    for _ in 0..2 {
        let (ran, printed) = printing(|| ready(std::slice::from_ref(&x)));
        assert_eq!((ran, printed), (Ok(vec![x.clone()]), Printed(vec![("x".into(), x.clone())])));
    }
    drop(ready);
    let fallbacks = either.fallbacks();
    assert_eq!(fallbacks.len(), 1, "{fallbacks:?}");
    assert_eq!((fallbacks[0].0.as_str(), fallbacks[0].1.kind), ("told", Kind::Unsupported));
}

fn f32s(dims: &[u64]) -> Array {
    let n = dims.iter().product::<u64>() as usize;
    Array::from_f32s(dims, &vec![0.5; n]).expect("as many")
}

/// Errors name the symbol, the arguments and what gave it its extent.
#[test]
fn extents_that_do_not_fit_are_told() {
    let text = "func @first<B>(%x: f32[B,2], %y: f32[B,2]) -> i32[2] {
      %0 = add %x, %y : f32[B,2]
      %1 = call %0 {func = @last} : i32[2]
      return %1
    }
    func @last<N>(%x: f32[N,2]) -> i32[2] {
      %0 = argmax %x {axis = 0} : i32[2]
      return %0
    }
    func @free<N, M>(%x: f32[N]) -> f32[N,M] {
      %0 = broadcast_in_dim %x {dims = [0]} : f32[N,M]
      return %0
    }";
    let module = parse(text).expect("parses");
    let made = |name: &str| {
        let f = module.find(name).expect("is there");
        Cpu::default().compile_symbolic(&module, f).expect("compiles")
    };
    let (first, last, free) = (made("first"), made("last"), made("free"));
    let run = |args: &[&[u64]]| {
        let args: Vec<Array> = args.iter().map(|dims| f32s(dims)).collect();
        first.run(&args).expect_err("does not fit")
    };
    let at = |extents| first.specialized(extents).expect_err("does not fit");
    let found = [
        run(&[&[3, 2], &[4, 2]]),
        run(&[&[3, 2], &[3, 5]]),
        run(&[&[3, 2], &[3]]),
        run(&[&[3, 2]]),
        run(&[&[0, 2], &[0, 2]]),
        last.run(&[f32s(&[0, 2])]).expect_err("is empty"),
        last.run_at(&[("N", 4)], &[f32s(&[5, 2])]).expect_err("contradicts"),
        last.specialized(&[("N", 0)]).expect_err("is empty"),
        free.run(&[f32s(&[2])]).expect_err("is open"),
        at(&[("b", 3)]),
        at(&[("batches", 3)]),
        at(&[("B", 3), ("B", 3)]),
        at(&[]),
        at(&[("B", u64::MAX)]),
    ];
    let due = [
        (
            Kind::Usage,
            "in @first: argument %y is f32[B,2], found f32[4,2] (B is 3 by %x, and 4 here)",
        ),
        (Kind::Usage, "in @first: argument %y is f32[B,2], found f32[3,5] (axis 1 is 2)"),
        (Kind::Usage, "in @first: argument %y is f32[B,2], found f32[3]"),
        (Kind::Usage, "in @first: 2 arguments are due, found 1 (%x: f32[B,2], %y: f32[B,2])"),
        (Kind::Shape, ""),
        (Kind::Shape, ""),
        (
            Kind::Usage,
            "in @last: argument %x is f32[N,2], found f32[5,2] (N is 4 as given, and 5 here)",
        ),
        (Kind::Shape, ""),
        (
            Kind::Usage,
            "in @free: no parameter gives `M` an extent (`specialized` and `run_at` take extents by name)",
        ),
        (Kind::UnknownName, "in @first: it has no symbol `b` (did you mean B?)"),
        (Kind::UnknownName, "in @first: it has no symbol `batches` (there is B)"),
        (Kind::Usage, "in @first: the symbol `B` is given twice"),
        (
            Kind::Usage,
            "in @first: no parameter gives `B` an extent (`specialized` and `run_at` take extents by name)",
        ),
        (Kind::Limit, ""),
    ];
    for (k, (found, (kind, text))) in found.iter().zip(due).enumerate() {
        assert_eq!(found.kind, kind, "{k}: {found}");
        assert!(text.is_empty() || found.to_string() == text, "{k}: {found}");
    }
    for (k, by) in [(4, "B is 0 by %x"), (5, "N is 0 by %x"), (7, "N is 0 as given")] {
        assert!(found[k].to_string().contains(by), "{}", found[k]);
        assert!(found[k].to_string().contains("argmax"), "{}", found[k]);
    }
    let twice = f32s(&[4, 2]);
    let d = first.run_named([("x", &twice), ("z", &twice)]).expect_err("is unknown");
    assert_eq!((d.kind, d.message.as_str()), (Kind::UnknownName, "it has no parameter `z`"));
    let results = free.run_at(&[("M", 2)], &[f32s(&[3])]).expect("runs");
    assert_eq!(results[0].dims(), [3, 2]);
    assert_eq!(first.run(&[f32s(&[4, 2]), f32s(&[4, 2])]).expect("fits")[0].to_f64s(), [0.0; 2]);
}
