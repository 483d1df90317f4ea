//! Users' kernels on a device: their results, graphs and memory, and what its assembler and its registers refuse.

use crate::common::random::inputs;
use crate::common::user_kernels::{LAYOUTS, PROGRAM, SOURCES, functions};
use crate::trials::Skipped;
use crate::{alone, gpu, say};
use adfuse::backends::Array;
use adfuse::backends::functions::{Opaque, PtxKernel, PtxSource, Registry};
use adfuse::backends::gpu::DeviceArray;
use adfuse::backends::reference::{Silent, kernel as evaluator, run_with};
use adfuse::engine::Gpu;
use adfuse::fusion::Effort;
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::verify;
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{Diagnostic, Kind, Module};

/// Transposed twice, by blocks of two axes, and summed by a kernel of the engine's own.
const TRANSPOSED: &str = "func @f(%x: f32[70,33]) -> (f32[33,70], f32[70]) {
  %0 = opaque %x {name = \"transposed\"} : f32[33,70]
  %1 = opaque %0 {name = \"transposed\"} : f32[70,33]
  %2 = reduce_sum %1 {axes = [1]} : f32[70]
  return %0, %2
}";

/// A loss through a call with a rule, which is written with another call.
const GRADIENT: &str = "func @f(%x: f32[300], %y: f32[300]) -> f32[] {
  %0 = call %x, %y {func = @axpy} : f32[300]
  %1 = mul %0, %0 : f32[300]
  %2 = reduce_sum %1 {axes = [0]} : f32[]
  return %2
}
func @axpy(%x: f32[300], %y: f32[300]) -> f32[300] custom_vjp(@axpy.fwd, @axpy.bwd) {
  %0 = opaque %x, %y {name = \"axpy\"} : f32[300]
  return %0
}
func @axpy.fwd(%x: f32[300], %y: f32[300]) -> f32[300] {
  %0 = opaque %x, %y {name = \"axpy\"} : f32[300]
  return %0
}
func @axpy.bwd(%ct: f32[300]) -> (f32[300], f32[300]) {
  %z = broadcast_in_dim 0.0 {dims = []} : f32[300]
  %0 = opaque %ct, %z {name = \"axpy\"} : f32[300]
  return %0, %ct
}";

fn module(text: &str) -> Module {
    parse(text).unwrap_or_else(|e| panic!("{e:?}"))
}

pub(crate) fn calls_have_the_bits_of_their_functions_in_rust() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let gradient = {
        let module = module(GRADIENT);
        let f = module.find("f").expect("there");
        adfuse::autodiff::value_and_grad(&module, f, &[0, 1]).unwrap_or_else(|d| panic!("{d}"))
    };
    let mut cases = vec![Module::single(gradient)];
    cases.extend([PROGRAM, TRANSPOSED].map(module));
    for module in &cases {
        let f = module.funcs.values().next().expect("a function");
        let args = inputs(f, &[Domain::Normal]);
        let due = run_with(module, f, &args, &mut Silent, &functions()).expect("runs");
        for effort in [Effort::Off, Effort::Default] {
            let mut own = Gpu::clone(&gpu);
            own.functions = functions();
            own.plan.effort = effort;
            let made = own.compile(module, f).unwrap_or_else(|d| panic!("{d}"));
            // Graphs are drawn for the places of a run, and changed for those of later ones.
            for _ in 0..3 {
                assert_eq!(made.executable.run(&args).expect("runs"), due, "{effort:?}\n{f}");
            }
        }
    }
    let program = verify(read(LAYOUTS).expect("reads")).expect("verifies");
    let args = crate::common::kernels::arguments(&program);
    let due = evaluator::run_with(&program, &args, &mut functions()).expect("runs");
    let own = Gpu { functions: functions(), ..Gpu::clone(&gpu) };
    let made = own.of_program(program).unwrap_or_else(|d| panic!("{d}"));
    assert_eq!(made.executable.run(&args).expect("runs"), due);
    Ok(())
}

pub(crate) fn memory_of_calls_is_what_was_planned() -> Result<(), Skipped> {
    let gpu = alone()?;
    let own = Gpu { functions: functions(), ..Gpu::clone(&gpu) };
    let module = module(PROGRAM);
    let f = module.funcs.values().next().expect("a function");
    let args = inputs(f, &[Domain::Normal]);
    let made = own.compile(&module, f).unwrap_or_else(|d| panic!("{d}"));
    assert!(made.memory.scratch.iter().flatten().any(|&(_, bytes)| bytes >= 4 * 40));
    let upload = |a: &Array| DeviceArray::upload(gpu.device(), a).expect("fits");
    let resident: Vec<DeviceArray> = args.iter().map(upload).collect();
    let results = made.executable.run_on(&resident.iter().collect::<Vec<_>>()).expect("runs");
    let found: Vec<Array> = results.iter().map(|r| r.download().expect("there")).collect();
    let due = run_with(&module, f, &args, &mut Silent, &functions()).expect("runs");
    assert_eq!(found, due);
    // Within the least memory that the plan has, and not within a byte less.
    let peak = made.executable.memory().peak();
    let tight = |bytes| Gpu { mem_budget: Some(bytes), ..own.clone() }.compile(&module, f);
    assert!(tight(peak).is_ok());
    let refused = tight(peak / 2).expect_err("half of it");
    assert_eq!(refused.kind, Kind::Limit, "{refused}");
    Ok(())
}

/// The error of a program that calls this one as `axpy`.
fn refused(gpu: &Gpu, source: PtxSource<'_>) -> Diagnostic {
    let kernel = PtxKernel::new(source).unwrap_or_else(|d| panic!("{d}"));
    let functions = Registry::new().with("axpy", Opaque::of_kernel(kernel));
    let own = Gpu { functions, ..gpu.clone() };
    let module = module(
        "func @f(%x: f32[300]) -> f32[300] {
          %0 = opaque %x, %x {name = \"axpy\"} : f32[300]
          return %0
        }",
    );
    let f = module.funcs.values().next().expect("a function");
    own.compile(&module, f).map(|_| ()).expect_err("is refused")
}

pub(crate) fn what_a_device_does_not_take_is_told_with_its_step() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let axpy = SOURCES[0].1;
    let head = ".version 7.8\n.target sm_80\n.address_size 64\n";
    let at_step = |d: &Diagnostic| {
        assert_eq!(d.at.func.as_deref(), Some("f"), "{d}");
        assert_eq!(d.at.inst.as_deref(), Some("step 0: library @axpy"), "{d}");
    };
    // What the assembler does not take is told in its words.
    let text = format!("{head}{}", axpy.text.replace("fma.rn.f32", "fma.rn.f33"));
    let d = refused(&gpu, PtxSource { text: &text, ..axpy });
    assert!(d.kind == Kind::Usage && d.message.contains("the PTX does not assemble"), "{d}");
    assert!(d.message.contains("f33") || d.message.contains("line"), "{d}");
    say(&format!("refused: {d}"));
    at_step(&d);
    // Blocks of more threads than the text lets them have.
    let text = format!("{head}{}", axpy.text.replace("\n{\n", "\n.maxntid 64, 1, 1\n{\n"));
    let d = refused(&gpu, PtxSource { text: &text, ..axpy });
    assert!(d.kind == Kind::Limit && d.message.contains("128 threads"), "{d}");
    at_step(&d);
    // Shared memory of its own, beside as much as a block has.
    let body = axpy.text.replace("\n{\n", "\n{\n  .shared .align 4 .b8 own[4096];\n");
    let text = format!(
        "{head}{}",
        body.replace("  ret;\n}", "  mov.u32 %n, own;\n  st.shared.f32 [%n], %v;\n  ret;\n}")
    );
    let d = refused(&gpu, PtxSource { text: &text, shared: "227 * 1024", ..axpy });
    assert_eq!(d.kind, Kind::Limit, "{d}");
    at_step(&d);
    // A function without a kernel, at its instruction.
    let own = Gpu {
        functions: Registry::new().with("axpy", Opaque::new(|t| Ok(t[0].clone()), |_| Ok(()))),
        ..Gpu::clone(&gpu)
    };
    let module = module(
        "func @f(%x: f32[3]) -> f32[3] { %0 = opaque %x {name = \"axpy\"} : f32[3] return %0 }",
    );
    let d =
        own.compile(&module, module.find("f").expect("there")).map(|_| ()).expect_err("no kernel");
    assert!(
        d.kind == Kind::Unsupported && d.message.contains("`axpy` has no kernel for GPUs"),
        "{d}"
    );
    assert!(d.at.span.is_some(), "{d}");
    Ok(())
}
