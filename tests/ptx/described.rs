//! The engine on a GPU that is not there plans as for one that is, and runs nothing.

use crate::trials::Skipped;
use adfuse::engine::Gpu;
use adfuse::fusion::{
    Effort, EngineModel, Fp, MachineModel, PlanOptions, lower, plan_point, prepare,
};
use adfuse::ir::text::parse;
use adfuse::ir::{Kind, Module};

/// A product, and what a kernel does with its rows.
const LAYER: &str = "func @f(%x: f32[512,256], %w: f32[256,1024]) -> f32[512,1024] {
  %0 = dot_general %x, %w {contract = [1] x [0]} : f32[512,1024]
  %1 = reduce_max %0 {axes = [1]} : f32[512]
  %2 = broadcast_in_dim %1 {dims = [0]} : f32[512,1024]
  %3 = sub %0, %2 : f32[512,1024]
  %4 = exp %3 : f32[512,1024]
  return %4
}";

pub(crate) fn plans_are_priced_and_counted_without_a_gpu() -> Result<(), Skipped> {
    let module = parse(LAYER).expect("parses");
    let f = module.find("f").expect("is there");
    let f = prepare(&Module::single(f.clone()), f).expect("is prepared");
    for fp in [Fp::Strict, Fp::Reproducible, Fp::Fast] {
        let options = PlanOptions { device: MachineModel::h200(), effort: Effort::Default, fp };
        let gpu = Gpu { plan: options.clone(), ..Gpu::described() };
        let made = gpu.plan_prepared(&f).expect("has a plan");
        let program = lower(&f, &made.plan, &options.device).expect("has a program");
        let facts = gpu.facts(&program, &options.device).expect("the engine states facts");
        assert!(facts.iter().all(|of| of.launches.is_some()), "{facts:?}");
        let point = plan_point(&f, made.plan.clone(), &options, &gpu).expect("is counted");
        // What is given, what comes back, and at the most one array between.
        let arrays = [512 * 256, 256 * 1024, 512 * 1024, 512 * 1024].map(|n: u64| 4 * n);
        let most = arrays.iter().sum::<u64>() + 4096;
        assert!((most - arrays[3]..=most).contains(&(point.peak + 4096)), "{}", point.peak);
        let refused = gpu.follow_prepared(&made).expect_err("there is no GPU");
        assert_eq!(refused.kind, Kind::NoDevice, "{refused}");
    }
    Ok(())
}

/// The gradient of a convolution by windows of one element: a deep sum of few elements, whose parts a kernel adds up that loads each.
const DEEP: &str = "func @f(%g: f32[256,32,56,56], %x: f32[32,64,56,56]) -> f32[256,64] {
  %0 = dot_general %g, %x {contract = [1, 2, 3] x [0, 2, 3]} : f32[256,64]
  %1 = mul %0, 0.5 : f32[256,64]
  return %1
}";

/// Builds with assertions compare each launch with its text, while they plan.
pub(crate) fn launches_are_counted_as_they_are_printed() -> Result<(), Skipped> {
    let module = parse(DEEP).expect("parses");
    let f = module.find("f").expect("is there");
    let f = prepare(&Module::single(f.clone()), f).expect("is prepared");
    let options =
        PlanOptions { device: MachineModel::h200(), effort: Effort::Default, fp: Fp::Fast };
    let gpu = Gpu { plan: options.clone(), ..Gpu::described() };
    let made = gpu.plan_prepared(&f).expect("has a plan");
    let program = lower(&f, &made.plan, &options.device).expect("has a program");
    let facts = gpu.facts(&program, &options.device).expect("the engine states facts");
    let beyond: u64 = facts.iter().filter_map(|of| of.launches).map(|of| of.beyond_bytes).sum();
    // Parts are written and read once, and there are fewer than the sum has blocks of 256.
    let parts = 4 * 256 * 64 * (32 * 56 * 56 / 256);
    assert!(beyond <= 2 * parts, "{beyond} bytes of parts");
    Ok(())
}
