//! User functions: equal values on every engine and for every plan, derivatives by rules of the calling functions, and
//! refusals that name the instruction.

use crate::common::effects::printing;
use crate::common::random::inputs;
use adfuse::autodiff::{Batching, Derived, grad, vmap};
use adfuse::backends::backend::Executable;
use adfuse::backends::reference::{self, Evaluator, Silent, kernel, run_with};
use adfuse::backends::{Array, ScopedEffects};
use adfuse::engine::{Cpu, Engine, Session, Settings, WithFallback};
use adfuse::functions::{CallPrice, CallSide, Opaque, Registry};
use adfuse::fusion::{self, Effort, Fp, MachineModel, compile, cost, prepare};
use adfuse::ir::kernel::{Program, Step, verify as verified};
use adfuse::ir::op::Domain;
use adfuse::ir::text::{parse, print_module};
use adfuse::ir::{DType, Diagnostic, Function, Kind, Module, TensorType, verify};
use approx::assert_abs_diff_eq;
use std::sync::{Arc, Mutex};

pub(crate) fn program(text: &str) -> Module {
    let module = parse(text).unwrap_or_else(|e| panic!("{text}\n{e:#?}"));
    verify(&module).unwrap_or_else(|e| panic!("{text}\n{e:#?}"));
    module
}

pub(crate) fn first(module: &Module) -> &Function {
    module.funcs.values().next().expect("a function")
}

/// The type of the first operand.
pub(crate) fn same(types: &[TensorType]) -> Result<TensorType, String> {
    types.first().cloned().ok_or_else(|| "it takes an operand".into())
}

/// An elementwise function of floats of 64 bits.
fn map(of: fn(f64) -> f64) -> Opaque {
    Opaque::new(same, move |call| {
        let x = call.args[0].elements::<f64>()?;
        for (y, &x) in call.result.elements::<f64>()?.iter_mut().zip(x) {
            *y = of(x);
        }
        Ok(())
    })
}

fn functions() -> Registry {
    // Sums of rows by way of the scratch, which must be there and be nobody else's.
    let rows = Opaque::new(
        |types| match types {
            [x] if x.rank() == 2 => Ok(TensorType::new(x.dtype, x.shape[..1].iter().copied())),
            _ => Err("it takes a matrix".into()),
        },
        |call| {
            let (x, n) = (call.args[0].elements::<f64>()?, call.args[0].dims()[1] as usize);
            for (k, y) in call.result.elements::<f64>()?.iter_mut().enumerate() {
                let row = &x[k * n..(k + 1) * n];
                for (bytes, x) in call.scratch.chunks_exact_mut(8).zip(row) {
                    bytes.copy_from_slice(&x.to_ne_bytes());
                }
                let kept = call.scratch.chunks_exact(8).take(n);
                *y = kept.map(|b| f64::from_ne_bytes(b.try_into().expect("eight"))).sum();
            }
            Ok(())
        },
    )
    .priced(|types| {
        let n = types[0].shape[1].known().unwrap_or(0);
        CallPrice { operations: types[0].elements().unwrap_or(0), bytes: 16, scratch: 8 * n }
    });
    let choose = Opaque::new(
        |types| same(&types[1..]),
        |call| {
            let (p, x) = (call.args[0].elements::<bool>()?, call.args[1].elements::<f64>()?);
            for ((y, &p), &x) in call.result.elements::<f64>()?.iter_mut().zip(p).zip(x) {
                *y = if p { x } else { -x };
            }
            Ok(())
        },
    );
    let odd = Opaque::new(
        |types| same(types).map(|t| t.with_dtype(DType::Bool)),
        |call| {
            let x = call.args[0].elements::<i32>()?;
            for (y, &x) in call.result.elements::<bool>()?.iter_mut().zip(x) {
                *y = x & 1 == 1;
            }
            Ok(())
        },
    );
    Registry::new()
        .with("cube", map(|x| x * x * x))
        .with("squared", map(|x| x * x))
        .with("rows", rows)
        .with("choose", choose)
        .with("odd", odd)
        .with("fails", Opaque::new(same, |_| Err("no luck".into())))
        .with("nan", map(|x| f64::from_bits(x.to_bits() | 0x7ff8_0000_0000_0001)))
}

/// The results on every engine, by plans of every effort: all the same.
fn everywhere(module: &Module, f: &Function, args: &[Array]) -> Vec<Array> {
    let functions = functions();
    let expected = run_with(module, f, args, &mut Silent, &functions);
    let expected = expected.unwrap_or_else(|d| panic!("{d}\n{f}"));
    for effort in [Effort::Off, Effort::Quick, Effort::Default, Effort::Search] {
        let options = fusion::PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict };
        let ready = functions
            .priced(&prepare(module, f).expect("prepares"), CallSide::Host)
            .expect("is known");
        let compiled = compile(&Module::single(ready.clone()), &ready, &options);
        let program = compiled.unwrap_or_else(|d| panic!("{d}\n{f}")).program;
        let text = program.to_string();
        assert_eq!(adfuse::ir::kernel::text::parse(&text).as_ref(), Ok(&program), "{text}");
        let program = verified(program).unwrap_or_else(|e| panic!("{e:#?}\n{text}"));
        let found = kernel::run_with(&program, args, &mut functions.clone());
        assert_eq!(found.as_ref(), Ok(&expected), "{effort:?}\n{text}");
        for threads in [1, 2] {
            let functions = functions.clone();
            let cpu = Cpu { plan: options.clone(), threads, functions, ..Cpu::default() };
            let made = cpu.compile(module, f).unwrap_or_else(|d| panic!("{d}\n{f}"));
            for _ in 0..2 {
                let found = made.executable.run(args).expect("runs");
                assert_eq!(found, expected, "{effort:?}, {threads} threads\n{text}");
            }
        }
    }
    expected
}

pub(crate) fn normal(f: &Function) -> Vec<Array> {
    inputs(f, &[Domain::Normal])
}

/// A loss with functions in its middle, as `opaque` calls and written in ops.
const LOSS: &str = "func @loss(%x: f64[4,3], %w: f64[3]) -> f64[] {
    %0 = tanh %x : f64[4,3]
    %1 = call %0 {func = @cube} : f64[4,3]
    %2 = broadcast_in_dim %w {dims = [1]} : f64[4,3]
    %3 = mul %1, %2 : f64[4,3]
    %4 = call %3 {func = @cube} : f64[4,3]
    %5 = reduce_sum %4 {axes = [0, 1]} : f64[]
    return %5 }
func @cube<n, m>(%x: f64[n,m]) -> f64[n,m] RULE {
    %0 = CUBE : f64[n,m]
    return %0 }
func @squared<n, m>(%x: f64[n,m]) -> f64[n,m] RULE2 {
    %0 = SQUARED : f64[n,m]
    return %0 }
func @cube.jvp<n, m>(%x: f64[n,m], %t: f64[n,m]) -> (f64[n,m], f64[n,m]) {
    %y = call %x {func = @cube} : f64[n,m]
    %s = call %x {func = @squared} : f64[n,m]
    %3 = mul %s, 3.0 : f64[n,m]
    %d = mul %3, %t : f64[n,m]
    return %y, %d }
func @squared.jvp<n, m>(%x: f64[n,m], %t: f64[n,m]) -> (f64[n,m], f64[n,m]) {
    %y = call %x {func = @squared} : f64[n,m]
    %2 = mul %x, 2.0 : f64[n,m]
    %d = mul %2, %t : f64[n,m]
    return %y, %d }";

fn losses() -> [Module; 2] {
    let opaque = LOSS
        .replace("RULE2", "custom_jvp(@squared.jvp)")
        .replace("RULE", "custom_jvp(@cube.jvp)")
        .replace("CUBE", "opaque %x {name = \"cube\", batched = \"cube\"}")
        .replace("SQUARED", "opaque %x {name = \"squared\", batched = \"squared\"}");
    let written = LOSS
        .replace("RULE2", "")
        .replace("RULE", "")
        .replace("CUBE", "integer_pow %x {y = 3}")
        .replace("SQUARED", "integer_pow %x {y = 2}");
    [program(&opaque), program(&written)]
}

fn near(found: &[Array], wanted: &[Array]) {
    assert_eq!(found.len(), wanted.len());
    for (a, b) in found.iter().zip(wanted) {
        assert_eq!(a.ty(), b.ty());
        for (a, b) in a.to_f64s().into_iter().zip(b.to_f64s()) {
            assert_abs_diff_eq!(a, b, epsilon = 1e-12 * (1.0 + b.abs()));
        }
    }
}

#[test]
fn derivatives_are_those_of_the_same_function_in_ops() {
    let modules = losses();
    type Chain = fn(Derived) -> Result<Derived, Diagnostic>;
    let chains: [Chain; 4] = [
        |d| d.grad(&[0, 1]),
        |d| d.jvp(&[0, 1]),
        |d| d.grad(&[0])?.jvp(&[0, 1]),
        |d| d.grad(&[0])?.vjp(&[0, 1]),
    ];
    near(
        &everywhere(&modules[0], first(&modules[0]), &normal(first(&modules[0]))),
        &reference::run(&modules[1], first(&modules[1]), &normal(first(&modules[1])), &mut Silent)
            .expect("runs"),
    );
    for chain in chains {
        let [found, wanted] = [0, 1].map(|k| {
            let module = &modules[k];
            let chained = chain(Derived::new(module, first(module)));
            chained.and_then(Derived::finish).unwrap_or_else(|d| panic!("{d}"))
        });
        let text = print_module(&Module::single(found.clone()));
        assert!(text.contains("opaque "), "{text}");
        assert_eq!(print_module(&parse(&text).expect("reads")), text);
        let args = normal(&found);
        let plain = reference::run(&Module::single(wanted.clone()), &wanted, &args, &mut Silent);
        near(&everywhere(&Module::single(found.clone()), &found, &args), &plain.expect("runs"));
    }
}

#[test]
fn a_function_may_take_a_batch_along_first_axes() {
    let module = &losses()[0];
    let f = first(module);
    let batched = vmap(module, f, &Batching::new(5, [Some(0), None])).expect("is batched");
    let args = normal(&batched);
    let found = everywhere(&Module::single(batched.clone()), &batched, &args);
    let plain = &losses()[1];
    let wanted = vmap(plain, first(plain), &Batching::new(5, [Some(0), None])).expect("is batched");
    let plain = reference::run(&Module::single(wanted.clone()), &wanted, &args, &mut Silent);
    near(&found, &plain.expect("runs"));

    let text = "func @f(%x: f64[3]) -> f64[3] {
        %0 = opaque %x {name = \"cube\", batched = \"cubes\"} : f64[3]
        return %0 }";
    let module = program(text);
    let once = vmap(&module, first(&module), &Batching::new(2, [Some(1)])).expect("is batched");
    let printed = once.to_string();
    assert!(printed.contains("opaque %0 {name = \"cubes\"} : f64[2,3]"), "{printed}");
    let twice = vmap(&Module::single(once.clone()), &once, &Batching::new(2, [Some(0)]));
    let d = twice.expect_err("nothing says what two batches are");
    assert_eq!(d.kind, Kind::Unsupported);
    assert!(d.message.contains("`cubes` is known for one element alone"), "{d}");
    assert!(d.at.inst.is_some_and(|i| i.contains("opaque")));
}

#[test]
fn types_layouts_and_scratch() {
    let module = program(
        "func @f(%x: f64[40,7], %i: i32[40,7]) -> (f64[40], f64[40,7], bool[40,7], f64[0,2], f64[40,7]) {
        %p = opaque %i {name = \"odd\"} : bool[40,7]
        %q = not %p : bool[40,7]
        %0 = opaque %q, %x {name = \"choose\"} : f64[40,7]
        %1 = opaque %0 {name = \"rows\"} : f64[40]
        %2 = opaque %1 {name = \"cube\"} : f64[40]
        %3 = slice %x {start = [0, 0], limit = [0, 2], stride = [1, 1]} : f64[0,2]
        %4 = opaque %3 {name = \"cube\"} : f64[0,2]
        %5 = opaque 2.0 {name = \"cube\"} : f64[40,7]
        return %2, %0, %p, %4, %5 }"
            .replace("opaque 2.0", "opaque %c")
            .replace("%5 =", "%c = broadcast_in_dim 2.0 {dims = []} : f64[40,7]\n%5 =")
            .as_str(),
    );
    let f = first(&module);
    let args = inputs(f, &[Domain::Normal, Domain::Ints(-9, 9)]);
    let out = everywhere(&module, f, &args);
    assert!(out[4].to_f64s().iter().all(|&x| x == 8.0));
    // A buffer that is packed, as plans make them of what crosses phases.
    let text = "program @f {
      input %i: i32[70]
      input %x: f64[70]
      temp %p: bool[70] as b1
      output %y: f64[70]
      output %q: bool[70] as b1
      output %z: f64[7, 10] strides [1, 7]
      %p = library @odd(%i)
      %y = library @choose(%p, %x) scratch 8
      %q = library @odd(%i) operations 70
      %z = library @made(%i) bytes 3
      return %y, %q, %z
    }";
    let made = Opaque::new(
        |_| Ok(TensorType::of(DType::F64, &[7, 10])),
        |call| {
            let i = call.args[0].elements::<i32>()?;
            let to = call.result.elements::<f64>()?;
            to.iter_mut().zip(i).for_each(|(y, &i)| *y = i.into());
            Ok(())
        },
    );
    let functions = functions().with("made", made);
    let program = adfuse::ir::kernel::text::parse(text).expect("reads");
    let program = verified(program).unwrap_or_else(|e| panic!("{e:#?}"));
    let args = crate::common::kernels::arguments(&program);
    let expected = kernel::run_with(&program, &args, &mut functions.clone()).expect("runs");
    let cpu = Cpu { functions, ..Cpu::default() };
    let found = cpu.of_program(program).expect("compiles").executable.run(&args).expect("runs");
    assert_eq!(found, expected);
}

#[test]
fn prices_are_planned() {
    let module = program(
        "func @f(%x: f64[40,7]) -> f64[40] {
        %0 = opaque %x {name = \"rows\"} : f64[40]
        return %0 }",
    );
    let f = first(&module);
    let priced = functions().priced(f, CallSide::Host).expect("is known");
    let text = priced.to_string();
    assert!(text.contains("operations = 280, bytes = 16, scratch = 56"), "{text}");
    let options =
        fusion::PlanOptions { device: MachineModel::cpu(), effort: Effort::Off, fp: Fp::Strict };
    let lowered = |f: &Function| -> Program {
        compile(&Module::single(f.clone()), f, &options).expect("compiles").program
    };
    let program = lowered(&priced);
    assert!(matches!(&program.steps[..], [Step::Library(l)] if l.scratch == 56), "{program}");
    let [with, without] = [&program, &lowered(f)].map(|p| cost(p, &options.device));
    assert_eq!(with.steps[0].ops.simple, 280);
    assert_eq!(with.bytes_moved, without.bytes_moved + 16);
    assert_eq!(without.bytes_moved, 41 * 7 * 8 + 33 * 8);
    let cpu = Cpu { plan: options, functions: functions(), ..Cpu::default() };
    let made = cpu.compile(&module, f).expect("compiles");
    assert_eq!(made.memory.scratch[0].map(|(_, bytes)| bytes >= 56), Some(true));
    // Not within a budget that leaves no room for it.
    let tight = Cpu { mem_budget: Some(made.executable.memory().peak() - 1), ..cpu };
    assert_eq!(tight.compile(&module, f).expect_err("it does not fit").kind, Kind::Limit);
}

/// The error on the reference engine and on the CPU, which are alike.
fn refused(text: &str) -> Diagnostic {
    let module = program(text);
    let f = first(&module);
    let run = run_with(&module, f, &normal(f), &mut Silent, &functions()).expect_err(text);
    let cpu = Cpu { functions: functions(), ..Cpu::default() };
    let made = cpu.compile(&module, f).expect_err(text);
    assert_eq!((run.kind, &run.message), (made.kind, &made.message));
    assert!(made.at.inst.as_ref().is_some_and(|i| i.contains("opaque")), "{made}");
    assert!(made.at.span.is_some() && run.at.span == made.at.span, "{made}");
    made
}

#[test]
fn what_does_not_fit_is_refused_at_its_instruction() {
    let call = |inst: &str, result: &str| {
        format!("func @f(%x: f64[2,3]) -> {result} {{ %0 = {inst} : {result} return %0 }}")
    };
    let d = refused(&call("opaque %x {name = \"cub\"}", "f64[2,3]"));
    assert_eq!(d.kind, Kind::UnknownName);
    assert!(d.message.contains("no function `cub`"), "{d}");
    let d = refused(&call("opaque %x {name = \"rows\"}", "f64[3]"));
    assert_eq!(d.kind, Kind::Shape);
    assert!(d.message.contains("the result of `rows` is f64[2], not f64[3]"), "{d}");
    let d = refused(&call("opaque {name = \"cube\"}", "f64[2,3]"));
    assert!(d.message.contains("does not take (): it takes an operand"), "{d}");

    let module = program(&call("opaque %x {name = \"cube\"}", "f64[2,3]"));
    let d = adfuse::autodiff::jvp(&module, first(&module), &[0]).expect_err("has no rule");
    assert_eq!(d.kind, Kind::Unsupported);
    assert!(d.message.contains("`cube` has no derivative"), "{d}");
    assert!(d.at.span.is_some() && d.hint.is_some_and(|h| h.contains("custom_vjp")));
    // Where no derivative reaches it there is nothing to refuse.
    let module = program(
        "func @f(%x: f64[3]) -> f64[] {
        %s = stop_gradient %x : f64[3]
        %c = opaque %s {name = \"cube\"} : f64[3]
        %i = convert_element_type %x : i32[3]
        %o = opaque %i {name = \"odd\"} : bool[3]
        %y = select_n %o, %x, %c : f64[3]
        %0 = reduce_sum %y {axes = [0]} : f64[]
        return %0 }",
    );
    let g = grad(&module, first(&module), &[0]).expect("differentiates");
    everywhere(&Module::single(g.clone()), &g, &normal(&g));

    // What fails, fails when it runs.
    let module = program(&call("opaque %x {name = \"fails\"}", "f64[2,3]"));
    let f = first(&module);
    let cpu = Cpu { functions: functions(), ..Cpu::default() };
    let d = cpu.compile(&module, f).expect("compiles").executable.run(&normal(f));
    let d = d.expect_err("fails");
    assert!(d.message.contains("@fails failed: no luck"), "{d}");
    assert_eq!(d.at.inst.as_deref(), Some("step 0: library @fails"));
    let d = run_with(&module, f, &normal(f), &mut Silent, &functions()).expect_err("fails");
    assert!(d.message.contains("no luck") && d.at.inst.is_some(), "{d}");
}

#[test]
fn buffers_hold_the_canonical_nan_alone() {
    let module = program(
        "func @f(%x: f64[3]) -> (f64[3], i64[3]) {
        %0 = opaque %x {name = \"nan\"} : f64[3]
        %1 = sort %0 {axis = 0} : f64[3]
        %2 = argsort %1 {axis = 0} : i32[3]
        %3 = convert_element_type %2 : i64[3]
        return %0, %3 }",
    );
    let f = first(&module);
    let out = everywhere(&module, f, &normal(f));
    let canonical = Array::from_f64s(DType::F64, &[3], &[f64::NAN; 3]).expect("small");
    assert_eq!(out[0].bytes(), canonical.bytes());
}

/// Clones of an engine share what they made, but for programs that call other functions.
#[test]
fn an_engine_keeps_functions_apart() {
    let module =
        program("func @f(%x: f64[]) -> f64[] { %0 = opaque %x {name = \"g\"} : f64[] return %0 }");
    let f = first(&module);
    let x = Array::from_f64s(DType::F64, &[], &[3.0]).expect("a scalar");
    let with = |of| Registry::new().with("g", map(of));
    let one = Cpu { functions: with(|x| x + 1.0), ..Cpu::default() };
    let two = Cpu { functions: with(|x| x + 2.0), ..one.clone() };
    for (engine, y) in [(&one, 4.0), (&two, 5.0), (&one, 4.0)] {
        let made = engine.compile(&module, f).expect("compiles");
        assert_eq!(made.executable.run(std::slice::from_ref(&x)).expect("runs")[0].to_f64s(), [y]);
    }
    // Where there is no machine code, the reference engine knows them too.
    let text = "func @f(%x: f64[]) -> f64[] { %p = gt %x, 0.0 : bool[]
        %0 = cond %p : f64[] then { %y = opaque %x {name = \"g\"} : f64[] yield %y } else { yield %x }
        return %0 }";
    let module = program(text);
    let either = WithFallback::new(one);
    let ready = either.ready(&module, first(&module), "f").expect("is ready");
    assert_eq!(ready(&[x]).expect("runs")[0].to_f64s(), [4.0]);
}

/// Functions that are given a token act once a call, in the order of the tokens, whatever a plan recomputes and whether
/// anybody reads their results; they print in between other effects.
#[test]
fn functions_with_effects_are_called_once_in_order() {
    let module = program(
        "func @f(%x: f64[3]) -> f64[] {
           %t = create_token : token
           %y = exp %x : f64[3]
           %0 = debug_print %t, %y {label = \"y\"} : token
           %1, %z = opaque %0, %y {name = \"log\"} : token, f64[3]
           %2, %w = opaque %1, %x {name = \"log\"} : token, f64[3]
           %3, %c = fori 0, 2, %2, %z : token, f64[3] body(%i: i64[], %u: token, %d: f64[3]) {
             %4, %e = opaque %u, %d {name = \"log\"} : token, f64[3]
             yield %4, %e
           }
           %5 = debug_print %3, %c {label = \"c\"} : token
           %s = reduce_sum %c {axes = [0]} : f64[]
           return %s
         }",
    );
    let f = first(&module);
    let calls = Arc::new(Mutex::new(Vec::new()));
    let log = {
        let calls = Arc::clone(&calls);
        Opaque::new(same, move |call| {
            let x = call.args[0].elements::<f64>()?;
            calls.lock().expect("no panic").push(x.to_vec());
            call.result.elements::<f64>()?.iter_mut().zip(x).for_each(|(y, &x)| *y = 2.0 * x);
            Ok(())
        })
    };
    let functions = Registry::new().with("log", log);
    let args = [Array::from_f64s(DType::F64, &[3], &[0.0, 1.0, -1.0]).expect("fits")];
    let ran = |run: &dyn Fn() -> Result<Vec<Array>, Diagnostic>| {
        calls.lock().expect("no panic").clear();
        let (results, printed) = printing(run);
        let calls = calls.lock().expect("no panic").clone();
        (results.unwrap_or_else(|d| panic!("{d}")), printed, calls)
    };
    let due = ran(&|| run_with(&module, f, &args, &mut ScopedEffects, &functions));
    assert_eq!((due.1.0.len(), due.2.len()), (2, 4));
    for effort in [Effort::Off, Effort::Quick, Effort::Default, Effort::Search] {
        let plan = fusion::PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict };
        let cpu = Cpu { plan: plan.clone(), functions: functions.clone(), ..Cpu::default() };
        let made = cpu.compile(&module, f).unwrap_or_else(|d| panic!("{d}"));
        for _ in 0..2 {
            assert_eq!(ran(&|| made.executable.run(&args)), due, "{effort:?}");
        }
        let evaluator = Evaluator::new(functions.clone());
        let mut settings = Settings::new(plan);
        settings.functions = functions.clone();
        let session = Session { settings, backend: Arc::new(evaluator) };
        let made = session.compile(&module, f).unwrap_or_else(|d| panic!("{d}"));
        assert_eq!(ran(&|| made.executable.run(&args)), due, "{effort:?}");
    }
}

/// What is given a token hands one on beside its one result; without one there is none.
#[test]
fn tokens_of_functions_are_checked() {
    for (what, wrong) in [
        ("%0 = opaque %t, %x {name = \"g\"} : f32[]", "two results, a token and a tensor"),
        ("%0 = opaque %t {name = \"g\"} : token", "two results, a token and a tensor"),
        ("%0, %1 = opaque %t, %x {name = \"g\"} : f32[], token", "two results"),
        ("%0 = opaque %x {name = \"g\"} : token", "is given no token orders no effects"),
        ("%0, %1 = opaque %x, %t {name = \"g\"} : token, f32[]", "operand 1"),
    ] {
        let text = format!("func @f(%x: f32[], %t: token) -> f32[] {{ {what} return %x }}");
        let errors = match parse(&text) {
            Err(errors) => errors,
            Ok(module) => verify(&module).expect_err(what),
        };
        assert!(errors.iter().any(|d| d.message.contains(wrong)), "{what}: {errors:#?}");
    }
}
