//! Layouts of temporaries, run on the [machine](crate::machine).

use crate::bits::agrees;
use crate::common::random;
use crate::machine::run;
use adfuse::autodiff::forward_and_backward;
use adfuse::backends::Array;
use adfuse::backends::ptx::{self, GpuTarget};
use adfuse::backends::reference::kernel;
use adfuse::fusion::{Effort, Fp, Layout, MachineModel, Plan, PlanOptions, lower, plan, prepare};
use adfuse::ir::Module;
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{Buffer, Program, verify};
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

/// Where the order is free, threads have four neighbours of rows whose length is no multiple of four, the last of which are fewer. Of
/// small whole numbers all sums are exact, so that every order gives the numbers of the kernel evaluator.
pub(crate) fn the_last_neighbours_of_a_row_are_few() {
    let text = |dtype: &str, n: u64| {
        format!(
            "func @f(%x: T[8192,8], %w: T[{n},8], %v: T[{n},8], %b: T[{n}]) -> (T[8192,8], f32[8192], f32[8192], bool[8192]) {{
               %s = dot_general %x, %w {{contract = [1] x [1]}} : T[8192,{n}]
               %bb = broadcast_in_dim %b {{dims = [1]}} : T[8192,{n}]
               %l = add %s, %bb : T[8192,{n}]
               %m = reduce_max %l {{axes = [1]}} : T[8192]
               %mb = broadcast_in_dim %m {{dims = [0]}} : T[8192,{n}]
               %d = sub %l, %mb : T[8192,{n}]
               %c = convert_element_type %d : f32[8192,{n}]
               %n = reduce_sum %c {{axes = [1]}} : f32[8192]
               %low = reduce_min %c {{axes = [1]}} : f32[8192]
               %is = eq %l, %mb : bool[8192,{n}]
               %none = not %is : bool[8192,{n}]
               %all = reduce_and %none {{axes = [1]}} : bool[8192]
               %lb = broadcast_in_dim %low {{dims = [0]}} : f32[8192,{n}]
               %far = sub %c, %lb : f32[8192,{n}]
               %near = min %far, 3.0 : f32[8192,{n}]
               %e = convert_element_type %near : T[8192,{n}]
               %y = dot_general %e, %v {{contract = [1] x [0]}} : T[8192,8]
               return %y, %n, %low, %all
             }}"
        )
        .replace("T[", &format!("{dtype}["))
    };
    let rows = [("bf16", 2049), ("bf16", 2050), ("bf16", 2051), ("f32", 1026), ("bf16", 8195)];
    for (dtype, n) in rows {
        let module = parse(&text(dtype, n)).unwrap_or_else(|e| panic!("{e:?}"));
        let f = module.funcs.values().next().expect("a function");
        let g = prepare(&module, f).expect("no calls");
        let options = PlanOptions {
            device: MachineModel::h200(),
            effort: Effort::Default,
            fp: Fp::Reproducible,
        };
        let name = format!("{dtype} {n}");
        let found = plan(&g, &options).unwrap_or_else(|d| panic!("{name}: {d}"));
        let found = Plan { layout: Layout::AlignedRows, ..found };
        let program = lower(&g, &found, &options.device);
        let program = program.unwrap_or_else(|d| panic!("{name}: {d}"));
        // As it is planned for rows that fill a chip, with three of them.
        let text = program.to_string().replace("8192", "3");
        let program = verify(read(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}")));
        let program = program.unwrap_or_else(|e| panic!("{name}: {}", e[0]));
        let args: Vec<Array> = program.inputs().map(|b| whole_numbers(&program, b)).collect();
        let schedule = ptx::schedule(&program, GpuTarget::SM80, Fp::Reproducible);
        let schedule = schedule.expect("is scheduled").to_string();
        assert!(schedule.contains("vector=4"), "{name}: {schedule}");
        // Blocks of long rows take turns, and the next row is copied ahead though its end is no multiple of a copy.
        assert!(schedule.contains("prefetch rows=2") || n < 8000, "{name}: {schedule}");
        let module = ptx::compile(&program, GpuTarget::SM80, Fp::Reproducible).expect("compiles");
        let expected = kernel::run(&program, &args).unwrap_or_else(|d| panic!("{name}: {d}"));
        for backwards in [false, true] {
            assert_eq!(run(&module, &program, &args, backwards), expected, "{name}");
        }
    }
}

/// Whole numbers from -1 to 1, of which few products are summed.
fn whole_numbers(program: &Program, input: Buffer) -> Array {
    let ty = program.buffers[input].ty().expect("known extents");
    let dims = ty.dims().expect("known extents");
    let count = dims.iter().product::<u64>();
    let numbers: Vec<f64> = (0..count).map(|k| (k * 7 % 11 % 3) as f64 - 1.0).collect();
    Array::from_f64s(ty.dtype, &dims, &numbers).expect("fits")
}
