//! What the engine does with a device: its memory, what stays there, what is kept, and what goes wrong.

use crate::common::random;
use crate::trials::Skipped;
use crate::{alone, gpu, say};
use adfuse::backends::backend::Executable;
use adfuse::backends::gpu::DeviceArray;
use adfuse::backends::reference::{Silent, run};
use adfuse::backends::{Array, Resident};
use adfuse::engine::Gpu;
use adfuse::fusion::{Fp, PlanOptions, prepare};
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

pub(crate) fn arrays_stay_on_the_device() -> Result<(), Skipped> {
    let gpu = gpu()?;
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
    Ok(())
}

pub(crate) fn memory_that_is_given_up_is_used() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let (module, args) = read(MOVED);
    let f = module.find("step").expect("there");
    let mut giving = Gpu::clone(&gpu);
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
    Ok(())
}

/// A loop of 20 steps through handles has the bits of runs on arrays; handles that are shared keep their values.
pub(crate) fn training_steps_stay_on_the_device() -> Result<(), Skipped> {
    let gpu = gpu()?;
    for (text, donated) in [(STEP, &[][..]), (STEP, &[0]), (MOVED, &[]), (MOVED, &[0])] {
        let (module, args) = read(text);
        let f = module.find("step").expect("there");
        let mut giving = Gpu::clone(&gpu);
        giving.donated = donated.to_vec();
        let made = giving.compile(&module, f).unwrap_or_else(|d| panic!("{d}"));
        let executable: &dyn Executable = &*made.executable;
        // What is in host memory is placed by the run.
        let mut weights = Resident::from(args[0].clone());
        let x = executable.place(&args[1]).expect("fits");
        assert!(x.is_on_device() && !weights.is_on_device());
        let (mut due, mut kept) = (args[0].clone(), Vec::new());
        for turn in 0..20 {
            if turn % 3 == 0 {
                kept.push((weights.clone(), due.clone()));
            }
            let expected = made.run(&[&due, &args[1]]).expect("runs");
            let mut results = executable.run_resident(vec![weights, x.clone()]).expect("runs");
            assert!(results.iter().all(Resident::is_on_device));
            let found: Vec<Array> = results.iter().map(|r| r.fetch().expect("there")).collect();
            assert_eq!(found, expected, "step {turn}, {donated:?}");
            weights = results.remove(0);
            due = expected[0].clone();
        }
        for (handle, value) in kept {
            assert_eq!(handle.fetch().expect("there"), value, "a handle has changed");
        }
        assert_eq!(x.fetch().expect("there"), args[1]);
        assert_eq!(weights.into_device::<DeviceArray>().expect("there").ty(), due.ty());
    }
    Ok(())
}

pub(crate) fn times_are_the_devices() -> Result<(), Skipped> {
    let gpu = gpu()?;
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
    Ok(())
}

pub(crate) fn too_much_memory_is_an_error_with_numbers() -> Result<(), Skipped> {
    let gpu = gpu()?;
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
    Ok(())
}

pub(crate) fn code_is_kept_and_damage_does_no_harm() -> Result<(), Skipped> {
    let first = gpu()?;
    let folder = std::env::temp_dir().join(format!("adfuse-gpu-{}", std::process::id()));
    let (module, args) = step();
    let f = module.find("step").expect("there");
    let due = run(&module, f, &args, &mut Silent).expect("runs");
    drop(first);
    // An engine of its own each time, which keeps no executables of another.
    let was_kept = || {
        let opened = gpu().expect("there");
        let mut gpu = Gpu::clone(&opened);
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
    Ok(())
}

/// Programs whose memory is measured: products with what is done to their operands and sums, one number out of
/// many and its gradient, rows that are packed, and results of a few bytes each.
const MEASURED: [&str; 4] = [
    "func @f(%x: f32[512,4096], %w: f32[4096,256]) -> f32[512] {
      %a = sin %x : f32[512,4096]
      %z = dot_general %a, %w {contract = [1] x [0]} : f32[512,256]
      %e = exp %z : f32[512,256]
      %s = reduce_sum %e {axes = [1]} : f32[512]
      return %s
    }",
    "func @f(%x: f32[70000,7], %w: f32[7]) -> (f32[], f32[7]) {
      %b = broadcast_in_dim %w {dims = [1]} : f32[70000,7]
      %p = mul %x, %b : f32[70000,7]
      %s = reduce_sum %p {axes = [0, 1]} : f32[]
      %g = reduce_sum %x {axes = [0]} : f32[7]
      return %s, %g
    }",
    "func @f(%x: bf16[129,1025]) -> (bf16[129], bf16[129,1025], bf16[]) {
      %m = reduce_max %x {axes = [1]} : bf16[129]
      %b = broadcast_in_dim %m {dims = [0]} : bf16[129,1025]
      %d = sub %x, %b : bf16[129,1025]
      %e = exp %d : bf16[129,1025]
      %s = reduce_sum %e {axes = [0, 1]} : bf16[]
      return %m, %e, %s
    }",
    "func @f(%x: f32[3]) -> (f32[], f32[], f32[], f32[1]) {
      %a = reduce_sum %x {axes = [0]} : f32[]
      %b = reduce_max %x {axes = [0]} : f32[]
      %c = reduce_prod %x {axes = [0]} : f32[]
      %d = reshape %c : f32[1]
      return %a, %b, %c, %d
    }",
];

pub(crate) fn as_much_memory_is_taken_as_planned() -> Result<(), Skipped> {
    let gpu = alone()?;
    let mut wrong = Vec::new();
    for (n, text) in MEASURED.iter().enumerate() {
        for fp in [Fp::Strict, Fp::Reproducible] {
            let module = parse(text).unwrap_or_else(|e| panic!("{e:?}"));
            let f = module.find("f").expect("there");
            let args = random::inputs(f, &[Domain::Small]);
            let mut gpu = Gpu::clone(&gpu);
            gpu.plan.fp = fp;
            gpu.device().finish().expect("answers");
            gpu.device().forget_most().expect("answers");
            let before = gpu.device().used().expect("answers");
            let made = gpu.compile(&module, f).unwrap_or_else(|d| panic!("{d}")).executable;
            made.run(&args).expect("runs");
            let most = gpu.device().most_used().expect("answers") - before;
            let planned = made.memory().peak();
            say(&format!("  program {n} {fp:?}: {planned} bytes are planned, {most} taken"));
            // What is taken beyond the last element of a block is none of the plan's.
            if !(planned / 2..=planned).contains(&most) {
                wrong.push((n, fp, planned, most));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    Ok(())
}

/// Both gradients of a sum are one value.
const SUMS: &str =
    "func @step(%w: f32[64,300], %x: f32[64,300]) -> (f32[64,300], f32[64,300], f32[]) {
  %d = mul %w, %x : f32[64,300]
  %s = sin %d : f32[64,300]
  %l = reduce_sum %s {axes = [0, 1]} : f32[]
  return %s, %s, %l
}";

pub(crate) fn results_that_are_one_value_share_their_memory() -> Result<(), Skipped> {
    let gpu = alone()?;
    let (module, args) = read(SUMS);
    let f = module.find("step").expect("there");
    let made = gpu.compile(&module, f).expect("compiles").executable;
    let bytes = args[0].bytes().len() as u64;
    assert_eq!(made.memory().outputs, bytes + 4);
    let due = run(&module, f, &args, &mut Silent).expect("runs");
    assert_eq!(made.run(&args).expect("runs"), due);
    let upload = |a: &Array| DeviceArray::upload(gpu.device(), a).expect("fits");
    let (w, x) = (upload(&args[0]), upload(&args[1]));
    let mut results = made.run_on(&[&w, &x]).expect("runs");
    let (loss, second) = (results.pop().expect("three"), results.pop().expect("three"));
    assert_eq!(loss.download().expect("there"), due[2]);
    // One of them is given up and written to; the other is what it was.
    let (module, _) = read(MOVED);
    let f = module.find("step").expect("there");
    let mut giving = Gpu::clone(&gpu);
    giving.donated = vec![0];
    let given = giving.compile(&module, f).expect("compiles").executable;
    let first = results.pop().expect("three");
    let moved = given.run_on_donating(vec![first, x]).expect("runs");
    let due_then = run(&module, f, &[due[0].clone(), args[1].clone()], &mut Silent).expect("runs");
    assert_eq!(moved[0].download().expect("there"), due_then[0]);
    assert_eq!(second.download().expect("there"), due[1]);
    // The last that has the memory gives it up itself.
    let x = upload(&args[1]);
    let before = gpu.device().used().expect("answers");
    let moved = given.run_on_donating(vec![second, x]).expect("runs");
    assert_eq!(moved[0].download().expect("there"), due_then[0]);
    assert!(gpu.device().used().expect("answers") < before, "the copy of x is gone");
    Ok(())
}

pub(crate) fn a_gpu_that_is_not_there_has_the_plans_of_one_that_is() -> Result<(), Skipped> {
    let gpu = gpu()?;
    for fp in [Fp::Strict, Fp::Reproducible, Fp::Fast] {
        for text in [MOVED, SUMS] {
            let (module, _) = read(text);
            let f = prepare(&module, module.find("step").expect("there")).expect("is prepared");
            let plan = |of: &Gpu| {
                let options = PlanOptions { fp, ..of.plan.clone() };
                let of = Gpu { plan: options, ..of.clone() };
                of.plan_prepared(&f).expect("has a plan").plan
            };
            assert_eq!(plan(&Gpu::described()), plan(&gpu), "{fp:?}\n{f}");
        }
    }
    Ok(())
}
