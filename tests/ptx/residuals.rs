//! What a product of 16-bit floats leaves to the gradient of the activation after it, by the engine's prices.

use crate::convolutions::PlannedFor;
use adfuse::autodiff::forward_and_backward;
use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions, lower, plan_for, prepare};
use adfuse::ir::Module;
use adfuse::ir::kernel::Role;
use adfuse::ir::text::parse;

/// The feed-forward part of a layer, with the gelu that has an `erf`: its gradient needs a half of the operand, an exponential and
/// one more than the `erf`.
const LAYER: &str =
    "func @f(%x: bf16[8192,768], %w: bf16[768,3072], %b: bf16[3072], %v: bf16[3072,768]) -> f32[] {
       %d = dot_general %x, %w {contract = [1] x [0]} : bf16[8192,3072]
       %bb = broadcast_in_dim %b {dims = [1]} : bf16[8192,3072]
       %a = add %d, %bb : bf16[8192,3072]
       %h = mul %a, 0.5 : bf16[8192,3072]
       %s = mul %a, 0.707 : bf16[8192,3072]
       %e = erf %s : bf16[8192,3072]
       %o = add %e, 1.0 : bf16[8192,3072]
       %g = mul %h, %o : bf16[8192,3072]
       %y = dot_general %g, %v {contract = [1] x [0]} : bf16[8192,768]
       %c = convert_element_type %y : f32[8192,768]
       %q = square %c : f32[8192,768]
       %l = reduce_sum %q {axes = [0, 1]} : f32[]
       return %l
     }";

/// The operand is left and not what is computed of it: beside it and the gelu, the gradients of both may be in memory.
pub(crate) fn gelu_leaves_its_operand() {
    let module = parse(LAYER).unwrap_or_else(|e| panic!("{e:?}"));
    let f = module.funcs.values().next().expect("a function");
    let g = forward_and_backward(&module, f, &[0, 1, 2, 3]).unwrap_or_else(|d| panic!("{d}"));
    let g = prepare(&Module::single(g.clone()), &g).expect("no calls");
    let device = MachineModel::h200();
    let options = PlanOptions { device, effort: Effort::Default, fp: Fp::Fast };
    let found = plan_for(&g, &options, &PlannedFor::default()).unwrap_or_else(|d| panic!("{d}"));
    let program = lower(&g, &found, &options.device).unwrap_or_else(|d| panic!("{d}"));
    let wide =
        |b: &&adfuse::ir::kernel::BufferData| b.role == Role::Temp && b.dims[..] == [8192, 3072];
    let count = program.buffers.values().filter(wide).count();
    assert!(count <= 4, "{count} arrays\n{}", found.text(&g));
}
