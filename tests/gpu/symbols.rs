//! Functions with symbolic extents on the GPU engine: the bits of the reference engine at every extent.

use crate::gpu;
use crate::trials::Skipped;
use adfuse::autodiff::forward_and_backward;
use adfuse::backends::reference::{Silent, run};
use adfuse::ir::Module;
use adfuse::ir::op::Domain;
use adfuse::ir::rewrite::specialize;
use adfuse::ir::text::parse;
use adfuse::sample::{rng, sample};

const LAYER: &str = "func @layer<B>(%x: f32[B,40], %w: f32[40,24], %b: f32[24]) -> f32[] {
  %0 = dot_general %x, %w {contract = [1] x [0]} : f32[B,24]
  %1 = broadcast_in_dim %b {dims = [1]} : f32[B,24]
  %2 = add %0, %1 : f32[B,24]
  %3 = tanh %2 : f32[B,24]
  %4 = reduce_sum %3 {axes = [0, 1]} : f32[]
  return %4
}";

pub(crate) fn batches_of_any_extent() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let module = parse(LAYER).expect("parses");
    let f = module.find("layer").expect("is there");
    let g = forward_and_backward(&module, f, &[1, 2]).expect("differentiates");
    let module = Module::single(g.clone());
    let made = gpu.compile_symbolic(&module, &g).expect("compiles").keeping(2);
    for extent in [64, 1, 37, 64] {
        let extents = g.symbols.iter().map(|&s| (s, extent)).collect();
        let types = specialize(&g, &extents).expect("fits").param_types();
        let mut rng = rng(extent, 0);
        let args: Vec<_> =
            types.iter().map(|t| sample(t, Domain::Normal, &mut rng).expect("small")).collect();
        assert_eq!(made.run(&args), run(&module, &g, &args, &mut Silent), "{extent}");
    }
    assert_eq!(made.kept(), 2);
    Ok(())
}
