//! The runtime with text written by hand: what the driver says, memory, graphs, and the library. Where there
//! is no GPU every test says so and passes.

use super::copy::Copy;
use super::cublaslt::{MatrixLibrary, library};
use super::cuda::absent;
use super::device::GpuDevice;
use super::drawn::DrawnPart;
use super::executable::GpuExecutable;
use super::load::KeptCode;
use super::memory::DeviceArray;
use super::prepare::GpuPrepared;
use crate::gpu::launches::{Arg, Launch, PtxModule, StepCode};
use crate::gpu::schedule::library_split::{DivisionContext, divided};
use crate::gpu::target::GpuTarget;
use crate::runtime::arena_layout::ArenaLayout;
use crate::runtime::array::Array;
use adfuse_ir::kernel::{Buffer, ProductTimes, Program, Verified, text::parse, verify};
use adfuse_ir::{DType, Fp, Kind};
use std::io::Write;
use std::sync::{Arc, Mutex};

fn device(test: &str) -> Option<Arc<GpuDevice>> {
    match GpuDevice::open(0) {
        Ok(device) => Some(device),
        Err(d) => {
            assert_eq!(d.kind, absent("").kind, "{d}");
            let _ = writeln!(std::io::stderr(), "{test}: skipped: no device ({})", d.message);
            None
        }
    }
}

/// Without times of products.
fn division(fp: Fp, library: bool) -> DivisionContext<'static> {
    static NONE: std::sync::LazyLock<ProductTimes> =
        std::sync::LazyLock::new(ProductTimes::default);
    DivisionContext { fp, target: &GpuTarget::SM90, library, products: &NONE }
}

const PROGRAM: &str = "program @twice {
  input %x: f32[1000]
  temp %t: f32[1000]
  constant %c: f32[2] = [3.0, 4.0]
  output %y: f32[1000]
  kernel @double [1000] {
    stage [] { p0 = load %x[d0] s0 = param.f32 0 s1 = add.f32 s0 s0 %t[d0] = store s1 }
  }
  kernel @shifted [1000] {
    stage [] {
      p0 = load %t[d0]
      p1 = load %c[1]
      s0 = param.f32 0
      s1 = param.f32 1
      s2 = add.f32 s0 s1
      %y[d0] = store s2
    }
  }
  return %y, %x, %y
}";

/// Both kernels: a thread an element; the second adds the second constant, by way of scratch.
const TEXT: &str = ".version 7.0
.target sm_80
.address_size 64
.visible .entry double(.param .u64 x, .param .u64 t) {
  .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<4>; .reg .f32 %f;
  mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
  mad.lo.u32 %r3, %r0, %r1, %r2;
  setp.ge.u32 %p, %r3, 1000;
  @%p ret;
  mul.wide.u32 %d0, %r3, 4;
  ld.param.u64 %d1, [x]; ld.param.u64 %d2, [t];
  add.u64 %d1, %d1, %d0; add.u64 %d2, %d2, %d0;
  ld.global.f32 %f, [%d1]; add.rn.f32 %f, %f, %f; st.global.f32 [%d2], %f;
  ret;
}
.visible .entry fetched(.param .u64 c, .param .u64 s) {
  .reg .b64 %d<2>; .reg .f32 %f;
  ld.param.u64 %d0, [c]; ld.param.u64 %d1, [s];
  ld.global.f32 %f, [%d0+4]; st.global.f32 [%d1+256], %f;
  ret;
}
.extern .shared .align 16 .b8 own[];
.visible .entry shifted(.param .u64 t, .param .u64 s, .param .u64 y) {
  .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<4>; .reg .f32 %f<2>;
  mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
  mad.lo.u32 %r3, %r0, %r1, %r2;
  setp.ge.u32 %p, %r3, 1000;
  @%p ret;
  mul.wide.u32 %d0, %r3, 4;
  ld.param.u64 %d1, [t]; ld.param.u64 %d2, [y]; ld.param.u64 %d3, [s];
  add.u64 %d1, %d1, %d0; add.u64 %d2, %d2, %d0;
  ld.global.f32 %f0, [%d1]; ld.global.f32 %f1, [%d3]; add.rn.f32 %f0, %f0, %f1;
  st.global.f32 [%d2], %f0;
  ret;
}";

fn buffer(program: &Program, name: &str) -> Buffer {
    let found = program.buffers.iter().find(|(_, data)| data.name == name);
    found.unwrap_or_else(|| panic!("no %{name}")).0
}

/// The program with its text.
fn prepared(device: &Arc<GpuDevice>, text: &str) -> GpuPrepared {
    let program = verify(parse(PROGRAM).unwrap_or_else(|e| panic!("{e:?}")));
    let program = program.unwrap_or_else(|e| panic!("{e:?}"));
    let of = |name| Arg::Buffer(buffer(&program, name));
    let launch = |entry: &str, blocks, shared, args: Vec<Arg>| {
        let grid = [blocks, 1, 1];
        Launch { shared, args, ..Launch::new(entry, grid, 128) }
    };
    let scratch = |offset| Arg::Scratch { offset };
    let first = vec![launch("double", 8, 0, vec![of("x"), of("t")])];
    let second = vec![
        launch("fetched", 1, 0, vec![of("c"), scratch(0)]),
        // More shared memory than functions have unasked.
        launch("shifted", 8, 100 << 10, vec![of("t"), scratch(256), of("y")]),
    ];
    let module = PtxModule {
        text: text.into(),
        users: Vec::new(),
        concurrent: Vec::new(),
        enter: StepCode::default(),
        steps: vec![
            StepCode { launches: first, ..StepCode::default() },
            StepCode { launches: second, scratch: 512, ..StepCode::default() },
        ],
        leave: StepCode::default(),
    };
    let divided = divided(&program, division(Fp::Strict, false)).expect("as it is");
    GpuPrepared::of(Arc::clone(device), divided, module, (vec![None, None], Vec::new()))
}

fn made(device: &Arc<GpuDevice>, cache: Option<&dyn KeptCode>) -> GpuExecutable {
    let made = prepared(device, TEXT).finish(TEXT, &layout(device), cache);
    made.unwrap_or_else(|d| panic!("{d}"))
}

fn layout(device: &Arc<GpuDevice>) -> ArenaLayout {
    let mut arena = ArenaLayout { bytes: 8192, ..ArenaLayout::default() };
    let prepared = prepared(device, TEXT);
    arena.offsets[buffer(prepared.program(), "t")] = Some(64);
    arena
}

fn input() -> Array {
    let values: Vec<f32> = (0..1000).map(|i| i as f32 * 0.25 - 7.0).collect();
    Array::from_f32s(&[1000], &values).expect("as many")
}

fn due() -> Vec<Array> {
    let values: Vec<f64> = input().to_f64s().iter().map(|x| 2.0 * x + 4.0).collect();
    let y = Array::from_f64s(DType::F32, &[1000], &values).expect("as many");
    vec![y.clone(), input(), y]
}

#[test]
fn kernels_run_in_order_in_memory_as_planned() {
    let Some(device) = device("kernels_run_in_order_in_memory_as_planned") else { return };
    let made = made(&device, None);
    for _ in 0..3 {
        assert_eq!(made.run(&[input()]).expect("runs"), due());
    }
    let launches: Vec<u32> = made.steps().iter().map(|s| s.launches).collect();
    assert_eq!(launches, [1, 2]);
    assert_eq!(made.launches(), 4, "and a copy of the input that is handed over");
    assert!(made.steps().iter().all(|s| s.registers > 0 && s.local == 0));
    let report = made.memory();
    assert_eq!((report.arena, report.constants, report.inputs), (8192, 8, 4000));
    // The first and the last are the same value.
    assert_eq!(report.outputs, 8000);
    let refused = made.run(&[]).expect_err("no arguments");
    assert_eq!(refused.kind, Kind::Usage);
}

#[test]
fn results_stay_where_they_are() {
    let Some(device) = device("results_stay_where_they_are") else { return };
    let made = made(&device, None);
    let x = DeviceArray::upload(&device, &input()).expect("fits");
    let mut kept = Vec::new();
    // More places of results than graphs are kept for: four.
    for _ in 0..12 {
        kept.push(made.run_on(&[&x]).expect("runs"));
    }
    for results in kept {
        let found: Vec<Array> = results.iter().map(|r| r.download().expect("there")).collect();
        assert_eq!(found, due());
    }
    // Those that were drawn first were changed, where the driver can.
    let held = made.held.lock().expect("no panic");
    let graphs = held.drawn.iter().flat_map(|drawn| &drawn.parts).filter_map(|part| match part {
        DrawnPart::Straight(graph, _) => graph.as_ref(),
        _ => None,
    });
    let all: Vec<(u32, u32)> = graphs.map(|g| (g.changed, g.redrawn)).collect();
    let changed: u32 = all.iter().map(|(changed, _)| changed).sum();
    let redrawn: u32 = all.iter().map(|(_, redrawn)| redrawn).sum();
    drop(held);
    let _ = writeln!(
        std::io::stderr(),
        "graphs changed for other places: {changed}, captured again {redrawn}"
    );
    assert!((changed, redrawn) == (8, 0) || device.facts().driver < 12000, "{changed} {redrawn}");
    let x = [x];
    let seconds = made.timed(&x, 100).expect("runs");
    assert!((1e-6..1e-3).contains(&seconds), "{seconds}");
    for trace in made.traced(&x, 5).expect("runs") {
        assert_eq!(trace.spans.len(), 2);
        assert!(trace.spans[0].begin <= trace.spans[0].end);
        assert!(trace.spans[0].end <= trace.spans[1].end, "{trace:?}");
    }
}

#[test]
fn large_arrays_arrive_whole() {
    let Some(device) = device("large_arrays_arrive_whole") else { return };
    // Over the end of a piece, and several of them.
    for n in [0usize, 1, (8 << 20) - 1, (8 << 20) + 1, 37 << 20] {
        let bits: Vec<u64> = (0..n as u64).map(|i| (i * 7 + i / 251) & 0xff).collect();
        let array = Array::from_bits(DType::U8, &[n as u64], &bits).expect("as many");
        let there = DeviceArray::upload(&device, &array).expect("fits");
        assert!(there.download().expect("there") == array, "{n} bytes");
    }
}

#[test]
fn a_text_that_is_wrong_is_told_by_the_assembler() {
    let Some(device) = device("a_text_that_is_wrong_is_told_by_the_assembler") else { return };
    let wrong = TEXT.replace("add.rn.f32 %f, %f, %f;", "adds.f32 %f, %f, %nowhere;");
    let layout = layout(&device);
    let refused = prepared(&device, &wrong).finish(&wrong, &layout, None).expect_err("is wrong");
    assert_eq!(refused.kind, Kind::Internal);
    let said = ["ptxas", "line 13", "adds", "CUDA_ERROR_INVALID_PTX"];
    assert!(said.iter().any(|s| refused.message.contains(s)), "{refused}");
    assert!(refused.message.contains("it says"), "{refused}");
    let missing = TEXT.replace(".entry fetched", ".entry brought");
    let refused =
        prepared(&device, &missing).finish(&missing, &layout, None).expect_err("is missing");
    assert!(refused.to_string().contains("step 1"), "{refused}");
}

/// A cache in memory.
#[derive(Default)]
struct Shelf(Mutex<Vec<(String, Vec<u8>)>>);

impl KeptCode for Shelf {
    fn find(&self, key: &str) -> Option<Vec<u8>> {
        let all = self.0.lock().expect("no panic");
        all.iter().find(|(k, _)| k == key).map(|(_, code)| code.clone())
    }

    fn keep(&self, key: &str, code: &[u8]) {
        let mut all = self.0.lock().expect("no panic");
        all.retain(|(k, _)| k != key);
        all.push((key.into(), code.to_vec()));
    }
}

#[test]
fn code_is_assembled_once() {
    let Some(device) = device("code_is_assembled_once") else { return };
    let shelf = Shelf::default();
    let kept = || {
        let made = made(&device, Some(&shelf));
        assert_eq!(made.run(&[input()]).expect("runs"), due());
        made.was_kept()
    };
    assert_eq!([kept(), kept()], [false, true]);
    // What the driver does not take is made again.
    shelf.0.lock().expect("no panic")[0].1 = b"no code".to_vec();
    assert_eq!([kept(), kept()], [false, true]);
}

/// Batch, rows, columns, depth.
const SIZE: [usize; 4] = [3, 72, 136, 88];

/// Products in every layout, and which of the matrices are turned.
fn products() -> Vec<(Verified<Program>, [bool; 3])> {
    let [b, m, n, k] = SIZE;
    let mut all = Vec::new();
    for turned in 0..8 {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            let [x, w, y] = [turned & 1, turned >> 1 & 1, turned >> 2].map(|t| t == 1);
            let place = |t: bool, rows: usize, cols: usize| match t {
                true => (format!("[{b}, {cols}, {rows}]"), "[d0, d2, d1]"),
                false => (format!("[{b}, {rows}, {cols}]"), "[d0, d1, d2]"),
            };
            let ((xs, xi), (ws, wi)) = (place(x, m, k), place(w, n, k));
            let (ys, yi) = place(y, m, n);
            let sum = if dtype == DType::F64 { "f64" } else { "f32" };
            let stored = match dtype {
                DType::BF16 => "s1 = convert.bf16 s0",
                _ => "",
            };
            let last = if dtype == DType::BF16 { "s1" } else { "s0" };
            let text = format!(
                "program @p {{
                   input %x: {dtype}{xs}
                   input %w: {dtype}{ws}
                   output %y: {dtype}{ys}
                   contract @c {{
                     member batch [{b}] rows [{m}] cols [{n}] depth [{k}] sum {sum} {{
                       lhs {{ p0 = load %x{xi} s0 = param.{dtype} 0 out s0 }}
                       rhs {{ p0 = load %w{wi} s0 = param.{dtype} 0 out s0 }}
                       then {{ p0 = sum s0 = param.{sum} 0 {stored} %y{yi} = store {last} }}
                     }}
                   }}
                   return %y
                 }}"
            );
            let program = verify(parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}")));
            let program = program.unwrap_or_else(|e| panic!("{e:?}\n{text}"));
            all.push((program, [x, w, y]));
        }
    }
    all
}

#[test]
fn products_are_found_where_the_mode_lets_a_library_multiply() {
    for (program, turned) in products() {
        let found =
            |fp, library| divided(&program, division(fp, library)).expect("divides").products;
        let product = found(Fp::Reproducible, true)[0].clone().expect("is one");
        assert_eq!(product.size, SIZE.map(|n| n as u64));
        let first = |m: crate::gpu::schedule::library_product::Matrix, a: usize, b: usize| {
            m.lines([a as u64, b as u64]).expect("has lines").0
        };
        let [_, m, n, k] = SIZE;
        let along = [first(product.lhs, m, k), first(product.rhs, n, k), first(product.out, m, n)];
        assert_eq!(along, turned);
        assert_eq!(found(Fp::Strict, true), [None]);
        assert_eq!(found(Fp::Fast, false), [None]);
    }
    let program = verify(parse(PROGRAM).unwrap_or_else(|e| panic!("{e:?}")));
    assert!(program.is_ok(), "{program:?}");
}

/// Against sums in f64.
#[test]
fn the_library_multiplies() {
    let Some(device) = device("the_library_multiplies") else { return };
    if library().is_none() {
        let _ = writeln!(std::io::stderr(), "the_library_multiplies: skipped: no library");
        return;
    }
    for (program, turned) in products() {
        let narrow = program.buffers[buffer(&program, "x")].dtype == DType::BF16;
        for (fp, most) in [(Fp::Reproducible, 1e-6), (Fp::Fast, 2e-3)] {
            let most = if narrow { 5e-3 } else { most };
            let apart = multiplied(&device, &program, fp, turned, SIZE);
            assert!(apart <= most, "{fp:?}: {apart:e}\n{}", *program);
        }
    }
}

/// How far the library's products are from sums in f64, against their norm.
fn multiplied(
    device: &Arc<GpuDevice>,
    program: &Verified<Program>,
    fp: Fp,
    turned: [bool; 3],
    [b, m, n, k]: [usize; 4],
) -> f64 {
    let divided = divided(program, division(fp, true)).expect("divides");
    let product = divided.products[0].clone().expect("the library has it");
    let handle = device.multiplies().expect("answers").expect("there is one");
    let tuned = device.tunings.tuned(MatrixLibrary::Ready(handle), &product, fp);
    let tuned = tuned.expect("is described").expect("is known");
    let module = PtxModule {
        text: TEXT.into(),
        users: Vec::new(),
        concurrent: Vec::new(),
        enter: StepCode::default(),
        steps: vec![StepCode::default()],
        leave: StepCode::default(),
    };
    let prepared =
        GpuPrepared::of(Arc::clone(device), divided, module, (vec![Some(Arc::new(tuned))], vec![]));
    let made =
        prepared.finish(TEXT, &ArenaLayout::default(), None).unwrap_or_else(|d| panic!("{d}"));
    assert_eq!(made.steps()[0].generator, "cublaslt");
    let dtype = program.buffers[buffer(program, "x")].dtype;
    let filled = |rows: usize, cols: usize, t: bool, salt: usize| {
        let dims = if t { [b, cols, rows] } else { [b, rows, cols] }.map(|n| n as u64);
        let values: Vec<f64> =
            (0..b * rows * cols).map(|i| ((i * 37 + salt) % 101) as f64 / 50.5 - 1.0).collect();
        Array::from_f64s(dtype, &dims, &values).expect("as many")
    };
    let (x, w) = (filled(m, k, turned[0], 5), filled(n, k, turned[1], 23));
    let y = made.run(&[x.clone(), w.clone()]).expect("runs");
    assert_eq!(made.run(&[x.clone(), w.clone()]).expect("runs"), y);
    let (x, w, y) = (x.to_f64s(), w.to_f64s(), y[0].to_f64s());
    let at = |t: bool, rows: usize, cols: usize, [p, i, j]: [usize; 3]| match t {
        true => (p * cols + j) * rows + i,
        false => (p * rows + i) * cols + j,
    };
    let (mut apart, mut norm) = (0.0, 0.0);
    for p in 0..b {
        for i in 0..m {
            for j in 0..n {
                let product =
                    |d| x[at(turned[0], m, k, [p, i, d])] * w[at(turned[1], n, k, [p, j, d])];
                let sum: f64 = (0..k).map(product).sum();
                let found = y[at(turned[2], m, n, [p, i, j])];
                apart += (found - sum) * (found - sum);
                norm += sum * sum;
            }
        }
    }
    (apart / norm).sqrt()
}

#[test]
fn a_copy_is_timed() {
    let Some(device) = device("a_copy_is_timed") else { return };
    let copy = Copy::new(&device, 1 << 30).expect("fits");
    let seconds = copy.timed(10).expect("copies");
    let rate = copy.bytes() as f64 / seconds;
    let _ = writeln!(std::io::stderr(), "a copy moves {:.0} GB/s on {:?}", rate / 1e9, device);
    assert!((1e10..2e13).contains(&rate), "{rate:e}");
}
