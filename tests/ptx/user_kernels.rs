//! Users' kernels: what a program launches for them, on the machine of the host; and what is refused.

use crate::assembler::Assembly;
use crate::common::kernels::arguments;
use crate::common::random::inputs;
use crate::common::user_kernels::{LAYOUTS, PROGRAM, SOURCES, functions, kernel};
use crate::machine::run;
use crate::trials::Skipped;
use adfuse::backends::Array;
use adfuse::backends::ptx::{self, Arg, GpuSchedule, GpuTarget, PtxModule, ScheduleContext};
use adfuse::backends::reference::kernel as evaluator;
use adfuse::functions::{CallSide, Opaque, PtxKernel, PtxSource, Registry};
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions, compile};
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{Program, Verified, verify};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{Diagnostic, Kind, Module};

fn verified(text: &str) -> Verified<Program> {
    verify(read(text).unwrap_or_else(|e| panic!("{e:?}"))).unwrap_or_else(|e| panic!("{e:?}"))
}

/// The program of a function, with its calls priced by their kernels, and arguments.
fn planned(text: &str, functions: &Registry) -> (Verified<Program>, Vec<Array>) {
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}"));
    let f = module.funcs.values().next().expect("a function");
    let args = inputs(f, &[Domain::Normal]);
    let priced = functions.priced(f, CallSide::Gpu).unwrap_or_else(|d| panic!("{d}"));
    let options =
        PlanOptions { device: MachineModel::h200(), effort: Effort::Default, fp: Fp::Strict };
    let made = compile(&Module::single(priced.clone()), &priced, &options).expect("compiles");
    (verify(made.program).unwrap_or_else(|e| panic!("{e:?}")), args)
}

fn context(functions: &Registry) -> ScheduleContext<'_> {
    ScheduleContext {
        functions: Some(functions),
        ..ScheduleContext::new(GpuTarget::SM80, Fp::Strict)
    }
}

fn emitted(program: &Verified<Program>, functions: &Registry) -> PtxModule {
    ptx::compile_with(program, context(functions)).unwrap_or_else(|d| panic!("{d}\n{}", **program))
}

fn programs(functions: &Registry) -> [(Verified<Program>, Vec<Array>); 2] {
    let layouts = verified(LAYOUTS);
    let args = arguments(&layouts);
    [planned(PROGRAM, functions), (layouts, args)]
}

pub(crate) fn calls_have_the_bits_of_their_functions_in_rust() {
    let functions = functions();
    for (program, args) in programs(&functions) {
        let module = emitted(&program, &functions);
        let due = evaluator::run_with(&program, &args, &mut functions.clone()).expect("runs");
        for backwards in [false, true] {
            assert_eq!(run(&module, &program, &args, backwards), due, "{}", *program);
        }
    }
    // Equal texts are one module, and scratch memory is planned.
    let [(program, _), (layouts, _)] = programs(&functions);
    let module = emitted(&program, &functions);
    assert_eq!(module.users.len(), 2);
    assert!(module.scratch() >= 4 * 40, "{}", module.scratch());
    let launches = || module.steps.iter().flat_map(|step| &step.launches);
    let calls = launches().filter(|launch| launch.user.is_some());
    assert_eq!(calls.clone().count(), 3);
    let numbers = calls.flat_map(|l| &l.args).filter(|arg| matches!(arg, Arg::Number(300)));
    assert_eq!(numbers.count(), 2);
    // What is packed or strided is copied: the truth values before each call, the result after the last.
    let module = emitted(&layouts, &functions);
    let counts = module.steps.iter().map(|step| step.launches.len());
    assert_eq!(counts.collect::<Vec<_>>(), [3, 3]);
}

pub(crate) fn schedules_of_calls_read_back() {
    let functions = functions();
    for (program, _) in programs(&functions) {
        let made = ptx::schedule_but(&program, context(&functions), &[]).expect("is scheduled");
        let text = made.to_string();
        assert!(text.contains("call\n"), "{text}");
        let again = GpuSchedule::parse_with(&text, &program, Some(&functions));
        let again = again.unwrap_or_else(|d| panic!("{d}\n{text}"));
        assert_eq!(again.to_string(), text);
        assert_eq!(ptx::print(&again), ptx::print(&made));
        // The launch is the function's.
        let edited = text.replacen("launch grid=[", "launch grid=[7", 1);
        let refused = GpuSchedule::parse_with(&edited, &program, Some(&functions));
        let refused = refused.expect_err("another launch");
        assert_eq!(refused.kind, Kind::Usage);
        assert!(refused.message.contains("the function asks for another launch"), "{refused}");
        assert!(refused.at.span.is_some());
        let without = GpuSchedule::parse(&text, &program).expect_err("no functions");
        assert_eq!(without.kind, Kind::Unsupported, "{without}");
    }
}

/// The error of a source that is no kernel.
fn no_kernel(change: impl FnOnce(&mut PtxSource<'static>)) -> Diagnostic {
    let mut source = SOURCES[0].1;
    change(&mut source);
    PtxKernel::new(source).expect_err("is refused")
}

/// The error of a program that calls this one as `axpy`.
fn no_launch(change: impl FnOnce(&mut PtxSource<'static>)) -> Diagnostic {
    let mut source = SOURCES[0].1;
    change(&mut source);
    let functions = Registry::new().with("axpy", Opaque::of_kernel(kernel(source)));
    let text = "program @f {
      input %x: f32[300]
      output %y: f32[300]
      %y = library @axpy(%x, %x)
      return %y
    }";
    let program = verified(text);
    let refused = ptx::compile_with(&program, context(&functions)).expect_err("is refused");
    assert_eq!(refused.at.func.as_deref(), Some("f"));
    assert_eq!(refused.at.inst.as_deref(), Some("step 0: library @axpy"));
    refused
}

pub(crate) fn what_does_not_fit_is_refused_at_its_place() {
    type Change = fn(&mut PtxSource<'static>);
    let kernels: [(Change, Kind, &str); 9] = [
        (|s| s.entry = "kernal", Kind::UnknownName, "has no entry point `kernal`"),
        (|s| s.signature = "(f32[n]) -> f32[n]", Kind::Arity, "has 4 parameters, and is given 3"),
        (|s| s.numbers = &[], Kind::Arity, "has 4 parameters, and is given 3"),
        (|s| s.scratch = "n", Kind::Arity, "the scratch memory, and 1 numbers"),
        (|s| s.signature = "(f32[n], f32[n], f32[n]) -> f32[n]", Kind::Arity, "is given 5"),
        (
            |s| s.grid[1] = "ceil_div(m, 2)",
            Kind::UnknownName,
            "`grid`: the signature names no extent `m`",
        ),
        (|s| s.shared = "4 *", Kind::Syntax, "`shared`: expected a number"),
        (|s| s.signature = "(f32[n], f32[n]) f32[n]", Kind::Syntax, "expected a signature"),
        (|s| s.signature = "(f32[n], f32[n]) -> bool[n]", Kind::DType, "the result is bool"),
    ];
    for (change, kind, message) in kernels {
        let d = no_kernel(change);
        assert!(d.kind == kind && d.message.contains(message), "{d}");
        assert!(d.at.inst.is_some(), "{d}");
    }
    // A number where a pointer is due: the place is that of the entry point in the text.
    let d = no_kernel(|s| {
        s.scratch = "4";
        s.numbers = &[];
    });
    assert!(d.kind == Kind::DType && d.message.contains("parameter 3 of `kernel` is .u32"), "{d}");
    assert!(d.at.span.is_some());

    let launches: [(Change, Kind, &str); 8] = [
        (|s| s.grid[0] = "n - 300", Kind::Limit, "a grid of [0, 1, 1]"),
        (|s| s.grid[1] = "n * 300", Kind::Limit, "a grid of [3, 90000, 1]"),
        (|s| s.block[2] = "65", Kind::Limit, "blocks of [128, 1, 65]"),
        (|s| s.block[1] = "9", Kind::Limit, "threads of a block 1152"),
        (
            |s| s.shared = "1024 * n",
            Kind::Limit,
            "307200 bytes of shared memory: at most 166912 on sm_80",
        ),
        (
            |s| s.numbers = &["n * 1073741824"],
            Kind::Limit,
            "which a parameter of .u32 does not hold",
        ),
        (|s| s.grid[0] = "n - 301", Kind::Shape, "which is below 0"),
        (
            |s| s.signature = "(f32[n], f64[n]) -> f32[n]",
            Kind::Shape,
            "its kernels take (f32[n], f64[n])",
        ),
    ];
    for (change, kind, message) in launches {
        let d = no_launch(change);
        assert!(d.kind == kind && d.message.contains(message), "{d}");
    }
    // A grid of no blocks is right where there is nothing to write.
    let program = verified(
        "program @f {
      input %x: f32[0]
      output %y: f32[0]
      %y = library @axpy(%x, %x)
      return %y
    }",
    );
    assert!(emitted(&program, &functions()).users.is_empty());
}

pub(crate) fn texts_are_assembled() -> Result<(), Skipped> {
    for (name, source) in SOURCES {
        let functions = Registry::new().with(name, Opaque::of_kernel(kernel(source)));
        let operands = match name {
            "axpy" => ("f32[500]", "f32[500]", "f32[500]"),
            "select" => ("bool[9, 5]", "f32[9, 5]", "f32[9, 5]"),
            "reversed_sums" => ("f32[9, 32]", "", "f32[9]"),
            _ => ("f32[70, 33]", "", "f32[33, 70]"),
        };
        let (second, args) = match operands.1 {
            "" => (String::new(), "%a"),
            ty => (format!("input %b: {ty}\n"), "%a, %b"),
        };
        let text = format!(
            "program @f {{\n input %a: {}\n {second} output %y: {}\n %y = library @{name}({args})\n return %y\n}}",
            operands.0, operands.2
        );
        let module = emitted(&verified(&text), &functions);
        let [user] = &module.users[..] else { panic!("{name}: {} modules", module.users.len()) };
        // Modules of users have heads of their own.
        let mut own = Assembly::default();
        own.add_text(name, user, &text);
        assert_eq!(own.assembled()?.len(), 1, "{name}");
    }
    Ok(())
}
