//! Layouts of temporaries, run on the [machine](crate::machine).

use crate::bits::agrees;
use crate::common::random;
use adfuse::autodiff::forward_and_backward;
use adfuse::fusion::{Effort, Fp, Layout, MachineModel, Plan, PlanOptions, lower, plan, prepare};
use adfuse::ir::Module;
use adfuse::ir::kernel::verify;
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;

/// Scores whose rows begin at lines of the cache have the bits of the evaluator, in products, folds of rows and of columns, and where they
/// are written in place.
pub(crate) fn rows_begin_at_lines_of_the_cache() {
    let text = |dtype: &str, n: u64| {
        format!(
            "func @f(%x: T[5,8], %w: T[{n},8], %b: T[{n}], %labels: i32[5]) -> f32[] {{
               %s = dot_general %x, %w {{contract = [1] x [1]}} : T[5,{n}]
               %bb = broadcast_in_dim %b {{dims = [1]}} : T[5,{n}]
               %l = add %s, %bb : T[5,{n}]
               %c = convert_element_type %l : f32[5,{n}]
               %m = reduce_max %c {{axes = [1]}} : f32[5]
               %ms = stop_gradient %m : f32[5]
               %mb = broadcast_in_dim %ms {{dims = [0]}} : f32[5,{n}]
               %d = sub %c, %mb : f32[5,{n}]
               %e = exp %d : f32[5,{n}]
               %n = reduce_sum %e {{axes = [1]}} : f32[5]
               %ln = log %n : f32[5]
               %class = iota {{axis = 1}} : i32[5,{n}]
               %label = broadcast_in_dim %labels {{dims = [0]}} : i32[5,{n}]
               %is = eq %class, %label : bool[5,{n}]
               %only = select_n %is, 0.0, %d : f32[5,{n}]
               %picked = reduce_sum %only {{axes = [1]}} : f32[5]
               %nll = sub %ln, %picked : f32[5]
               %loss = reduce_sum %nll {{axes = [0]}} : f32[]
               return %loss
             }}"
        )
        .replace("T[", &format!("{dtype}["))
    };
    for (dtype, n) in [("bf16", 2050), ("bf16", 2051), ("f32", 1025), ("f32", 1026)] {
        let module = parse(&text(dtype, n)).unwrap_or_else(|e| panic!("{e:?}"));
        let f = module.funcs.values().next().expect("a function");
        let g = forward_and_backward(&module, f, &[0, 1, 2]).unwrap_or_else(|d| panic!("{d}"));
        let module = Module::single(g.clone());
        let g = prepare(&module, &g).expect("no calls");
        let args = random::inputs(&g, &[Domain::Small, Domain::Small, Domain::Small]);
        for effort in [Effort::Off, Effort::Default] {
            let name = format!("{dtype} {n} {effort:?}");
            let options = PlanOptions { device: MachineModel::h200(), effort, fp: Fp::Strict };
            let found = plan(&g, &options).unwrap_or_else(|d| panic!("{name}: {d}"));
            let found = Plan { layout: Layout::AlignedRows, ..found };
            let program = lower(&g, &found, &options.device);
            let program = program.unwrap_or_else(|d| panic!("{name}: {d}"));
            let strided = program.buffers.values().filter(|b| b.strides.is_some()).count();
            assert!(strided > 0, "{name}");
            agrees(&name, &verify(program).unwrap_or_else(|e| panic!("{name}: {}", e[0])), &args);
        }
    }
}
