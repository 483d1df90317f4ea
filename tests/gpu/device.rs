//! What the engine does with a device: its memory, what stays there, what is kept, and what goes wrong.

use crate::common::random;
use crate::gpu;
use adfuse::backends::Array;
use adfuse::backends::gpu::DeviceArray;
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{Kind, Module};
use adfuse::kernel_cache::KernelCache;

/// A step of gradient descent on a row of weights.
const STEP: &str = "func @step(%w: f32[64,300], %x: f32[64,300]) -> (f32[64,300], f32[]) {
  %d = sub %w, %x : f32[64,300]
  %q = mul %d, %d : f32[64,300]
  %l = reduce_sum %q {axes = [0, 1]} : f32[]
  %g = mul %d, 0.2 : f32[64,300]
  %v = sub %w, %g : f32[64,300]
  return %v, %l
}";

/// Weights that move, by one kernel of one stage: it may write where it reads.
const MOVED: &str = "func @step(%w: f32[64,300], %g: f32[64,300]) -> f32[64,300] {
  %d = mul %g, 0.2 : f32[64,300]
  %v = sub %w, %d : f32[64,300]
  return %v
}";

fn step() -> (Module, Vec<Array>) {
    read(STEP)
}

fn read(text: &str) -> (Module, Vec<Array>) {
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}"));
    let args = random::inputs(module.find("step").expect("there"), &[Domain::Normal]);
    (module, args)
}

#[test]
fn arrays_stay_on_the_device() {
    let Some(gpu) = gpu("arrays_stay_on_the_device") else { return };
    let (module, args) = step();
    let f = module.find("step").expect("there");
    let made = gpu.compile(&module, f).unwrap_or_else(|d| panic!("{d}")).executable;
    let upload = |a: &Array| DeviceArray::upload(gpu.device(), a).expect("fits");
    let mut weights = upload(&args[0]);
    let x = upload(&args[1]);
    assert_eq!(weights.download().expect("there"), args[0]);
    let mut expected = args[0].clone();
    for _ in 0..5 {
        let mut results = made.run_on(&[&weights, &x]).expect("runs");
        let loss = results.pop().expect("two").download().expect("there");
        weights = results.pop().expect("two");
        let due = run(&module, f, &[expected, args[1].clone()], &mut Silent).expect("runs");
        assert_eq!(loss, due[1]);
        expected = due[0].clone();
    }
    assert_eq!(weights.download().expect("there"), expected);
    let refused = made.run_on(&[&x]).expect_err("one argument of two");
    assert_eq!(refused.kind, Kind::Usage);
}

#[test]
fn memory_that_is_given_up_is_used() {
    let Some(gpu) = gpu("memory_that_is_given_up_is_used") else { return };
    let (module, args) = read(MOVED);
    let f = module.find("step").expect("there");
    let mut giving = gpu.clone();
    giving.donated = vec![0];
    let (kept, given) = (gpu.compile(&module, f), giving.compile(&module, f));
    let (kept, given) = (kept.expect("compiles"), given.expect("compiles"));
    let saved = args[0].bytes().len() as u64;
    assert!(given.executable.memory().peak() + saved <= kept.executable.memory().peak());
    let due = run(&module, f, &args, &mut Silent).expect("runs");
    assert_eq!(given.executable.run(&args).expect("runs"), due);
    let resident = || args.iter().map(|a| DeviceArray::upload(gpu.device(), a).expect("fits"));
    let lent: Vec<DeviceArray> = resident().collect();
    let refused = given.executable.run_on(&lent.iter().collect::<Vec<_>>());
    assert_eq!(refused.expect_err("it is only lent").kind, Kind::Usage);
    let found = given.executable.run_on_donating(resident().collect()).expect("runs");
    let found: Vec<Array> = found.iter().map(|a| a.download().expect("there")).collect();
    assert_eq!(found, due);
}

#[test]
fn times_are_the_devices() {
    let Some(gpu) = gpu("times_are_the_devices") else { return };
    let (module, args) = step();
    let made = gpu.compile(&module, module.find("step").expect("there")).expect("compiles");
    let upload = |a: &Array| DeviceArray::upload(gpu.device(), a).expect("fits");
    let args: Vec<DeviceArray> = args.iter().map(upload).collect();
    let seconds = made.executable.timed(&args, 20).expect("runs");
    assert!((1e-7..1e-2).contains(&seconds), "{seconds}");
    let traces = made.executable.traced(&args, 3).expect("runs");
    assert_eq!(traces.len(), 3);
    for trace in &traces {
        assert_eq!(trace.spans.len(), made.executable.steps().len());
        assert!(trace.spans.iter().all(|s| s.begin <= s.end), "{trace:?}");
    }
}

#[test]
fn too_much_memory_is_an_error_with_numbers() {
    let Some(gpu) = gpu("too_much_memory_is_an_error_with_numbers") else { return };
    // Four times what any device has.
    let text = "func @f(%x: f32[]) -> f32[1048576,1048576] {
      %y = broadcast_in_dim %x {dims = []} : f32[1048576,1048576]
      %z = sin %y : f32[1048576,1048576]
      return %z
    }";
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}"));
    let f = module.find("f").expect("there");
    let x = Array::from_f32s(&[], &[2.0]).expect("one");
    let refused = match gpu.compile(&module, f) {
        Ok(made) => made.executable.run(std::slice::from_ref(&x)).expect_err("too much"),
        Err(d) => d,
    };
    assert_eq!(refused.kind, Kind::Limit, "{refused}");
    let said = ["out of memory on gpu:0", "4398046511104 bytes", "planned", "are free"];
    assert!(said.iter().all(|s| refused.message.contains(s)), "{refused}");
    assert_eq!(x, Array::from_f32s(&[], &[2.0]).expect("one"));
    // The device is none the worse for it.
    let (module, args) = step();
    let f = module.find("step").expect("there");
    let due = run(&module, f, &args, &mut Silent).expect("runs");
    assert_eq!(
        gpu.compile(&module, f).expect("compiles").executable.run(&args).expect("runs"),
        due
    );
}

#[test]
fn code_is_kept_and_damage_does_no_harm() {
    let Some(first) = gpu("code_is_kept_and_damage_does_no_harm") else { return };
    let folder = std::env::temp_dir().join(format!("adfuse-gpu-{}", std::process::id()));
    let (module, args) = step();
    let f = module.find("step").expect("there");
    let due = run(&module, f, &args, &mut Silent).expect("runs");
    drop(first);
    // An engine of its own each time, which keeps no executables of another.
    let was_kept = || {
        let mut gpu = gpu("code_is_kept_and_damage_does_no_harm").expect("there");
        gpu.code = Some(KernelCache::new(&folder));
        let made = gpu.compile(&module, f).unwrap_or_else(|d| panic!("{d}"));
        assert_eq!(made.executable.run(&args).expect("runs"), due);
        made.executable.was_kept()
    };
    assert_eq!([was_kept(), was_kept()], [false, true]);
    let entries: Vec<_> = std::fs::read_dir(&folder).expect("there").collect();
    assert_eq!(entries.len(), 1);
    let path = entries[0].as_ref().expect("one").path();
    let mut bytes = std::fs::read(&path).expect("reads");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).expect("writes");
    assert_eq!([was_kept(), was_kept()], [false, true]);
    std::fs::remove_dir_all(folder).expect("there");
}

#[test]
fn no_more_memory_is_taken_than_planned() {
    let Some(gpu) = gpu("no_more_memory_is_taken_than_planned") else { return };
    let text = "func @f(%x: f32[512,4096], %w: f32[4096,256]) -> f32[512] {
      %a = sin %x : f32[512,4096]
      %z = dot_general %a, %w {contract = [1] x [0]} : f32[512,256]
      %e = exp %z : f32[512,256]
      %s = reduce_sum %e {axes = [1]} : f32[512]
      return %s
    }";
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}"));
    let f = module.find("f").expect("there");
    let args = random::inputs(f, &[Domain::Small]);
    let made = gpu.compile(&module, f).unwrap_or_else(|d| panic!("{d}")).executable;
    // Other tests take memory of the same device: the least of several is this run's.
    let report = made.memory();
    let resident = report.arena + report.beside + report.constants;
    let mut least = u64::MAX;
    for _ in 0..5 {
        gpu.device().forget_most().expect("answers");
        let before = gpu.device().used().expect("answers");
        made.run(&args).expect("runs");
        least = least.min(gpu.device().most_used().expect("answers").saturating_sub(before));
    }
    // The driver gives memory out in pieces.
    assert!(least + resident <= report.peak() + (1 << 20), "{least} {resident} {report:?}");
}
