//! Memory of steps of the CPU engine: nothing beyond the plan, and no allocation during a run. Machine code is never
//! writable while executable, and is freed with its executable.

use crate::cpu::layout;
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::cpu::{ArenaLayout, CpuEngine, CpuExecutable, CpuOptions};
use adfuse::backends::{Array, Effects, with_effects};
use adfuse::fusion::{self, Effort, Fp, MachineModel, compile};
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{BufferData, Program, Role, Verified, verify};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{Function, Module};
use adfuse::sample::{rng, sample};
use allocation_counter::measure;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The tests here look at the memory of the whole process, so they take turns.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program of a function, and where everything is.
fn planned(module: &Module, f: &Function, effort: Effort) -> (Verified<Program>, ArenaLayout) {
    let options = fusion::PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict };
    let program = compile(module, f, &options).unwrap_or_else(|d| panic!("{d}")).program;
    laid_out(verify(program).unwrap_or_else(|e| panic!("{}", e[0])), effort)
}

fn laid_out(program: Verified<Program>, effort: Effort) -> (Verified<Program>, ArenaLayout) {
    let layout = layout(&program, effort).unwrap_or_else(|m| panic!("{m}"));
    (program, layout)
}

/// Every model with its gradients, and every program of the filetests that calls no library.
fn suite() -> Vec<(String, Verified<Program>, ArenaLayout)> {
    let mut found = Vec::new();
    for (name, text) in files("tests/models", "ir") {
        let module = parse(&text).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        let f = module.find(&name).or_else(|| module.find("main")).expect("the model's function");
        let wrt = differentiable(f, None).expect("has floats");
        let g = forward_and_backward(&module, f, &wrt).unwrap_or_else(|d| panic!("{d}"));
        for effort in [Effort::Off, Effort::Default] {
            let (program, layout) = planned(&Module::single(g.clone()), &g, effort);
            found.push((format!("{name}, {effort:?}"), program, layout));
        }
    }
    let programs = ["tests/filetests/kernels/ok", "tests/filetests/kernels/blocks"];
    for (name, text) in programs.into_iter().flat_map(|folder| files(folder, "program")) {
        let at = text.find("program @").expect("a program");
        let program = verify(read(&text[at..]).expect("reads")).expect("verifies");
        if !text.contains(" = library @") {
            let (program, layout) = laid_out(program, Effort::Default);
            found.push((name, program, layout));
        }
    }
    // Of more axes than shapes hold in place.
    let module = parse(MANY_AXES).expect("reads");
    let f = module.funcs.values().next().expect("a function");
    let (program, layout) = planned(&module, f, Effort::Default);
    found.push(("many axes".into(), program, layout));
    assert!(found.len() > 60, "{} programs", found.len());
    found
}

const MANY_AXES: &str = "func @f(%x: f32[2,1,8], %y: f32[1,2,1,8,2]) -> f32[2,1,2,1] {
  %v = dot_general %x, %y {batch = [0, 1] x [4, 0], contract = [2] x [3]} : f32[2,1,2,1]
  return %v
}";

/// The files of a folder, by their names.
fn files(folder: &str, extension: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == extension));
    paths.sort();
    let read = |p: &std::path::PathBuf| {
        let stem = p.file_stem().and_then(|s| s.to_str()).expect("a name");
        (stem.to_owned(), std::fs::read_to_string(p).expect("reads"))
    };
    paths.iter().map(read).collect()
}

fn arguments(program: &Program) -> Vec<Array> {
    let mut rng = rng(1, 0);
    let types = program.inputs().filter_map(|b| program.buffers[b].ty());
    types.map(|t| sample(&t, Domain::Normal, &mut rng).expect("small")).collect()
}

/// Allocations of a step that prints, for the array that it hands out.
const PRINTED: u64 = 2;

/// How often a program prints.
struct Prints(u64);

impl Effects for Prints {
    fn print(&mut self, _: &str, _: &Array) {
        self.0 += 1;
    }
}

#[test]
fn a_step_asks_for_no_memory() {
    let _turn = alone();
    for (name, program, layout) in suite() {
        let args = arguments(&program);
        let inputs: Vec<&[u8]> = args.iter().map(Array::bytes).collect();
        for threads in [1, 2] {
            let made = CpuExecutable::compile(
                &program,
                &layout,
                CpuOptions { threads, fp: Fp::Strict, ..CpuOptions::default() },
            );
            let made = made.unwrap_or_else(|d| panic!("{name}: {d}"));
            let mut results: Vec<Vec<u8>> =
                made.run(&args).expect("runs").iter().map(|a| a.bytes().to_vec()).collect();
            let mut outputs: Vec<&mut [u8]> = results.iter_mut().map(Vec::as_mut_slice).collect();
            let mut ran = Ok(());
            let mut prints = Prints(0);
            // Counted on this thread, which works as the others do.
            let taken = measure(|| {
                ran = with_effects(&mut prints, || made.run_into(&inputs, &mut outputs))
            });
            ran.unwrap_or_else(|d| panic!("{name}: {d}"));
            let expected = (prints.0 * PRINTED, 0);
            let asked = (taken.count_total, taken.count_current);
            assert_eq!(asked, expected, "{name}: {taken:?}\n{}", *program);
        }
    }
}

/// What an executable holds beside what was planned: tables, and what a thread has for its piece of work.
const ALLOWED: u64 = 2 << 20;

/// Large enough that nothing of the size of a tensor hides in what is allowed.
const LARGE: [&str; 6] = [
    "func @dense(%x: f32[2048,512], %w: f32[512,2000], %b: f32[2000], %t: f32[2048,2000]) -> f32[] {
      %0 = dot_general %x, %w {contract = [1] x [0]} : f32[2048,2000]
      %1 = broadcast_in_dim %b {dims = [1]} : f32[2048,2000]
      %2 = add %0, %1 : f32[2048,2000]
      %3 = relu %2 : f32[2048,2000]
      %4 = mul %3, %t : f32[2048,2000]
      %5 = reduce_sum %4 {axes = [0, 1]} : f32[]
      return %5
    }",
    "func @half(%x: bf16[1024,4096], %w: bf16[4096,1024]) -> bf16[] {
      %0 = dot_general %x, %w {contract = [1] x [0]} : bf16[1024,1024]
      %1 = tanh %0 : bf16[1024,1024]
      %2 = reduce_max %1 {axes = [0, 1]} : bf16[]
      return %2
    }",
    "func @rows(%x: f32[20000,300]) -> f32[300] {
      %0 = exp %x : f32[20000,300]
      %1 = reduce_sum %0 {axes = [0]} : f32[300]
      return %1
    }",
    "func @line(%x: f32[5000000], %y: f32[5000000]) -> f32[] {
      %0 = mul %x, %y : f32[5000000]
      %1 = reduce_sum %0 {axes = [0]} : f32[]
      return %1
    }",
    "func @middle(%x: f64[4,30000,5,6]) -> f64[5] {
      %0 = sin %x : f64[4,30000,5,6]
      %1 = reduce_max %0 {axes = [0, 1, 3]} : f64[5]
      return %1
    }",
    "func @table(%t: bf16[20000,64], %i: i32[3000], %c: bf16[3000,64]) -> bf16[20000,64] {
      %0 = reshape %i : i32[3000,1]
      %1 = scatter_add %t, %0, %c {window_dims = [1], inserted = [0], start_map = [0], mode = drop} : bf16[20000,64]
      return %1
    }",
];

#[test]
fn an_executable_takes_what_was_planned() {
    let _turn = alone();
    let mut programs = suite();
    for text in LARGE {
        let module = parse(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        let f = module.funcs.values().next().expect("a function");
        for effort in [Effort::Off, Effort::Quick, Effort::Default] {
            let (program, layout) = planned(&module, f, effort);
            programs.push((format!("{}, {effort:?}", f.name), program, layout));
            // Gradients, of those that give one number.
            if f.results().len() == 1 && f.ty(f.results()[0]).rank() == 0 {
                let wrt = differentiable(f, None).expect("has floats");
                let g = forward_and_backward(&module, f, &wrt).unwrap_or_else(|d| panic!("{d}"));
                let (program, layout) = planned(&Module::single(g.clone()), &g, effort);
                programs.push((format!("gradients of {}, {effort:?}", f.name), program, layout));
            }
        }
    }
    let mut largest = 0;
    for (name, program, layout) in programs {
        let mut made = None;
        let taken = measure(|| {
            made = Some(CpuExecutable::compile(
                &program,
                &layout,
                CpuOptions { threads: 1, fp: Fp::Strict, ..CpuOptions::default() },
            ))
        });
        let made = made.expect("was made").unwrap_or_else(|d| panic!("{name}: {d}"));
        let constants = |b: &&BufferData| matches!(b.role, Role::Constant(_));
        let constants: u64 = program.buffers.values().filter(constants).map(|b| b.bytes()).sum();
        let planned = layout.bytes + constants;
        let held = u64::try_from(taken.bytes_current).unwrap_or(0);
        assert!(held <= planned + ALLOWED, "{name}: {held} bytes for {planned}");
        largest = largest.max(layout.bytes);
        drop(made);
    }
    assert!(largest > 10 * ALLOWED, "{largest}");
}

/// The mappings of the process whose pages may be executed, but for files.
#[cfg(target_os = "linux")]
fn executable_mappings() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("has maps");
    let (mut bytes, mut writable) = (0, 0);
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (range, flags) = (words.next().expect("a range"), words.next().expect("flags"));
        let (from, to) = range.split_once('-').expect("two ends");
        let end = |s: &str| usize::from_str_radix(s, 16).expect("a number");
        let file = words.nth(3).is_some();
        if flags.contains('x') {
            writable += usize::from(flags.contains('w'));
            bytes += if file { 0 } else { end(to) - end(from) };
        }
    }
    (bytes, writable)
}

const TEXT: &str = "func @f(%x: f32[64,32], %w: f32[32,16]) -> f32[] {
  %0 = dot_general %x, %w {contract = [1] x [0]} : f32[64,16]
  %1 = tanh %0 : f32[64,16]
  %2 = reduce_sum %1 {axes = [0, 1]} : f32[]
  return %2
}";

#[cfg(target_os = "linux")]
#[test]
fn code_is_never_writable_and_goes_with_its_executable() {
    // In a process of its own: other tests of this one have code, too.
    const OWN: &str = "ADFUSE_OWN_PROCESS";
    if std::env::var_os(OWN).is_none() {
        let test = "steps::code_is_never_writable_and_goes_with_its_executable";
        let mut own = std::process::Command::new(std::env::current_exe().expect("a program"));
        let ran = own.args(["--exact", test]).env(OWN, "1").output().expect("starts");
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let module = parse(TEXT).expect("reads");
    let f = module.funcs.values().next().expect("a function");
    let (program, layout) = planned(&module, f, Effort::Default);
    let make =
        || CpuExecutable::compile(&program, &layout, CpuOptions::default()).expect("compiles");
    let (before, _) = executable_mappings();
    let held: Vec<CpuExecutable> = (0..20).map(|_| make()).collect();
    let (meanwhile, writable) = executable_mappings();
    assert!(meanwhile > before, "code is somewhere");
    assert_eq!(writable, 0);
    let again = arguments(&program);
    let first = held[0].run(&again).expect("runs");
    assert!(held.iter().all(|e| e.run(&again).expect("runs") == first));
    drop(held);
    for _ in 0..200 {
        make();
    }
    let (after, writable) = executable_mappings();
    assert_eq!((after, writable), (before, 0));
}

#[test]
fn an_engine_makes_nothing_twice() {
    let _turn = alone();
    let module = parse(TEXT).expect("reads");
    let f = module.funcs.values().next().expect("a function");
    let (program, layout) = planned(&module, f, Effort::Default);
    let engine = CpuEngine::new(CpuOptions { threads: 2, fp: Fp::Strict, ..CpuOptions::default() });
    let first = engine.executable(&program, &layout).expect("compiles");
    let second = engine.executable(&program, &layout).expect("compiles");
    assert!(Arc::ptr_eq(&first, &second));
    let (off, elsewhere) = planned(&module, f, Effort::Off);
    let third = engine.executable(&off, &elsewhere).expect("compiles");
    assert!(!Arc::ptr_eq(&first, &third));
    assert_eq!(engine.kept(), 2);
    let beside = ArenaLayout { bytes: layout.bytes + 64, ..layout.clone() };
    let fourth = engine.executable(&program, &beside).expect("compiles");
    assert!(!Arc::ptr_eq(&first, &fourth));
    let args = arguments(&program);
    let expected = first.run(&args).expect("runs");
    // Several at once share the threads, or go on without them.
    std::thread::scope(|scope| {
        for executable in [&first, &second, &third, &fourth] {
            let (args, expected) = (&args, &expected);
            scope.spawn(move || {
                for _ in 0..50 {
                    assert_eq!(executable.run(args).expect("runs"), *expected);
                }
            });
        }
    });
    engine.clear();
    assert_eq!(engine.kept(), 0);
    assert_eq!(first.run(&args).expect("still runs"), expected);
}

/// Large results are in memory that comes back when they are dropped, and one run's at most; nothing of an
/// earlier run is seen there.
#[test]
fn results_come_back() {
    let _turn = alone();
    let text = "func @f(%x: f32[300,300]) -> (f32[300,300], f32[300], f32[300,300]) {
      %0 = sqrt %x : f32[300,300]
      %1 = reduce_sum %0 {axes = [1]} : f32[300]
      %2 = neg %x : f32[300,300]
      return %0, %1, %2
    }";
    let module = parse(text).expect("reads");
    let f = module.funcs.values().next().expect("a function");
    let (program, layout) = planned(&module, f, Effort::Default);
    let make =
        || CpuExecutable::compile(&program, &layout, CpuOptions::default()).expect("compiles");
    let made = make();
    let large = 2 * 300 * 300 * 4;
    let mut other = rng(2, 0);
    let mut draw = |domain| sample(&f.param_types()[0], domain, &mut other).expect("small");
    let args: Vec<Array> = vec![draw(Domain::Normal), draw(Domain::Uniform(0.0, 1.0))];
    let run = |x: &Array| made.run(std::slice::from_ref(x)).expect("runs");
    let places = |all: &[Array]| {
        let mut at: Vec<usize> = [0, 2].map(|k| all[k].bytes().as_ptr().addr()).into();
        at.sort_unstable();
        at
    };
    let first = run(&args[0]);
    let at = places(&first);
    assert_eq!(made.memory().spare, 0, "the caller has all of it");
    let second = run(&args[0]);
    assert_ne!(places(&second), at, "what the caller holds is left alone");
    drop((first, second.clone()));
    assert_eq!(made.memory().spare, large, "copies have memory of their own");
    let third = run(&args[1]);
    assert_eq!((places(&third), made.memory().spare), (at, 0));
    assert_eq!(third, make().run(&args[1..]).expect("runs"), "as in fresh memory");
    drop((second, third));
    assert_eq!(made.memory().spare, large, "no more than one run's results");
    // Who brings memory has none kept for results.
    let mut bytes: Vec<Vec<u8>> = run(&args[0]).iter().map(|a| a.bytes().to_vec()).collect();
    assert_eq!(made.memory().spare, large);
    let mut slices: Vec<&mut [u8]> = bytes.iter_mut().map(Vec::as_mut_slice).collect();
    made.run_into(&[args[0].bytes()], &mut slices).expect("runs");
    assert_eq!(made.memory().spare, 0);
    // Results outlive what made them.
    let last = run(&args[1]);
    drop(made);
    assert_eq!(last, make().run(&args[1..]).expect("runs"));
}
