//! Functions with kernels for GPUs, on engines of the host.

use crate::opaque::{first, normal, program, same};
use adfuse::backends::reference::{Silent, run_with};
use adfuse::engine::Cpu;
use adfuse::functions::{CallSide, Opaque, PtxKernel, PtxSource, Registry};
use adfuse::ir::Kind;

/// A function that is written for GPUs alone has a price, a type and no run on the host.
#[test]
fn engines_of_the_host_refuse_functions_for_gpus_at_their_instruction() {
    let text = ".version 7.8\n.target sm_80\n.address_size 64
        .visible .entry doubled(.param .u64 x, .param .u64 y, .param .u32 n) { ret; }";
    let kernel = PtxKernel::new(PtxSource {
        text,
        entry: "doubled",
        signature: "(f64[n]) -> f64[n + n]",
        numbers: &["n"],
        operations: "3 * n",
        bytes: "ceil_div(n, 2)",
        ..PtxSource::default()
    })
    .unwrap_or_else(|d| panic!("{d}"));
    let functions = Registry::new().with("doubled", Opaque::of_kernel(kernel.clone()));
    let module = program(
        "func @f(%x: f64[7]) -> f64[14] { %0 = opaque %x {name = \"doubled\"} : f64[14] return %0 }",
    );
    let f = first(&module);
    let cpu = Cpu { functions: functions.clone(), ..Cpu::default() };
    let d = cpu.compile(&module, f).expect_err("has nothing in Rust");
    assert_eq!(d.kind, Kind::Unsupported);
    assert!(d.message.contains("`doubled` has a kernel for GPUs alone"), "{d}");
    assert!(d.at.span.is_some() && d.hint.as_ref().is_some_and(|h| h.contains("with_kernel")));
    let run =
        run_with(&module, f, &normal(f), &mut Silent, &functions).expect_err("nothing in Rust");
    assert_eq!((run.kind, run.message), (d.kind, d.message));
    // A GPU plans it by what its kernel takes.
    let priced = functions.priced(f, CallSide::Gpu).expect("is known").to_string();
    assert!(priced.contains("operations = 21, bytes = 4"), "{priced}");
    // Types that the kernel does not have, or of which the function in Rust says otherwise.
    let other = program(
        "func @f(%x: f32[7]) -> f32[14] { %0 = opaque %x {name = \"doubled\"} : f32[14] return %0 }",
    );
    let d = functions.check(first(&other), CallSide::Gpu).expect_err("f32");
    assert!(d.kind == Kind::Shape && d.message.contains("its kernels take (f64[n])"), "{d}");
    assert!(d.at.span.is_some());
    let both = Opaque::new(same, |_| Ok(())).with_kernel(kernel);
    let d = Registry::new().with("doubled", both).check(f, CallSide::Gpu).expect_err("two types");
    assert!(d.message.contains("gives f64[14], and the function f64[7]"), "{d}");
}
