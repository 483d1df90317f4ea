//! Layouts of temporaries change no bit, and plans that have one read back.

use crate::common::random::inputs;
use adfuse::backends::cpu::{CpuExecutable, CpuOptions, Vectors};
use adfuse::backends::reference::{Silent, kernel, run};
use adfuse::engine::Cpu;
use adfuse::fusion::{
    Effort, Fp, Layout, MachineModel, Plan, PlanOptions, lower, plan, plan_for, prepare,
};
use adfuse::ir::kernel::{Program, verify};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{Function, Kind, Module};

fn function(text: &str) -> Function {
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let f = module.funcs.values().next().expect("a function");
    prepare(&module, f).expect("no calls")
}

fn options(effort: Effort) -> PlanOptions {
    PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict }
}

/// How many buffers have strides.
fn strided(program: &Program) -> usize {
    program.buffers.values().filter(|b| b.strides.is_some()).count()
}

/// What reads and writes short rows `%a: T[N,3]` and `%w: T[N,2,4]`, with the type of the result. What is squared is read by
/// several.
const READERS: [(&str, &str); 14] = [
    ("%r = neg %a2 : T[N,3]", "[N,3]"),
    ("%r = reduce_sum %a2 {axes = [1]} : T[N]", "[N]"),
    ("%r = reduce_max %a2 {axes = [0]} : T[3]", "[3]"),
    ("%r = transpose %a2 {perm = [1, 0]} : T[3,N]", "[3,N]"),
    ("%r = rev %a2 {axes = [0, 1]} : T[N,3]", "[N,3]"),
    ("%r = cumsum %a2 {axis = 0} : T[N,3]", "[N,3]"),
    ("%r = cumsum %a2 {axis = 1} : T[N,3]", "[N,3]"),
    ("%r = slice %a2 {start = [5, 1], limit = [N, 3], stride = [1, 1]} : T[M,2]", "[M,2]"),
    ("%r = pad %a2, 0.0 {low = [1, 0], high = [0, 2], interior = [0, 1]} : T[N1,7]", "[N1,7]"),
    ("%r = concatenate %a2, %a2 {axis = 1} : T[N,6]", "[N,6]"),
    ("%r = reshape %w2 : T[N,8]", "[N,8]"),
    ("%r = reduce_sum %w2 {axes = [1]} : T[N,4]", "[N,4]"),
    ("%r = dot_general %w2, %a2 {contract = [0] x [0]} : T[2,4,3]", "[2,4,3]"),
    (
        "%r = gather %a2, %i {offset_dims = [1], collapsed = [0], start_map = [0], sizes = [1, 3], mode = clip} : T[70,3]",
        "[70,3]",
    ),
];

/// A function whose squares are left to a fold over all of them, and to one reader.
fn squares(dtype: &str, n: u64, (reader, result): (&str, &str)) -> Function {
    let text = format!(
        "func @f(%a: T[N,3], %w: T[N,2,4], %i: i32[70,1]) -> (T{result}, T[3], T[2,4]) {{
           %a2 = mul %a, %a : T[N,3]
           %w2 = mul %w, %w : T[N,2,4]
           %s = reduce_sum %a2 {{axes = [0]}} : T[3]
           %t = reduce_sum %w2 {{axes = [0]}} : T[2,4]
           {reader}
           return %r, %s, %t
         }}"
    );
    let sized = text.replace("N1", &(n + 1).to_string()).replace('M', &(n - 5).to_string());
    function(&sized.replace('N', &n.to_string()).replace("T[", &format!("{dtype}[")))
}

/// Runs a function by a plan on the evaluator and on the CPU engine, with every width and with two threads.
fn agrees(f: &Function, found: &Plan) -> usize {
    let args = inputs(f, &[Domain::Normal, Domain::Normal, Domain::Ints(0, 69)]);
    let expected = run(&Module::single(f.clone()), f, &args, &mut Silent).expect("runs");
    let program = lower(f, found, &MachineModel::cpu()).unwrap_or_else(|d| panic!("{d}\n{f}"));
    let count = strided(&program);
    let program = verify(program).unwrap_or_else(|e| panic!("{}\n{f}", e[0]));
    let text = found.text(f);
    assert_eq!(kernel::run(&program, &args).expect("runs"), expected, "{f}\n{text}");
    for vectors in Vectors::ALL.into_iter().filter(|&v| v <= Vectors::host()) {
        let arena = super::cpu::layout(&program, Effort::Default).expect("fits");
        let options = CpuOptions { vectors, threads: 2, ..super::cpu::strict() };
        let made = CpuExecutable::compile(&program, &arena, options).expect("compiles");
        assert_eq!(made.run(&args).expect("runs"), expected, "{vectors:?}\n{f}\n{text}");
    }
    count
}

#[test]
fn layouts_change_no_bit() {
    let mut count = 0;
    for dtype in ["f32", "f64", "bf16"] {
        for n in [64, 71, 200] {
            for reader in READERS {
                let f = squares(dtype, n, reader);
                for effort in [Effort::Off, Effort::Default] {
                    let found = plan(&f, &options(effort)).expect("has a lowering");
                    let layout = Layout::StructureOfArrays;
                    count += agrees(&f, &Plan { layout, ..found });
                }
            }
        }
    }
    assert!(count > 250, "{count} buffers have strides");
}

#[test]
fn few_rows_and_long_ones_stay_as_they_are() {
    for (n, row, wanted) in [(100, 3, 1), (63, 3, 0), (100, 1, 0), (100, 15, 1), (100, 16, 0)] {
        let text = format!(
            "func @f(%x: f32[{n},{row}]) -> (f32[{n}], f32[{row}]) {{
               %e = exp %x : f32[{n},{row}]
               %r = reduce_sum %e {{axes = [1]}} : f32[{n}]
               %s = reduce_sum %e {{axes = [0]}} : f32[{row}]
               return %r, %s
             }}"
        );
        let f = function(&text);
        let found = plan(&f, &options(Effort::Off)).expect("has a lowering");
        let found = Plan { layout: Layout::StructureOfArrays, ..found };
        let program = lower(&f, &found, &MachineModel::cpu()).expect("has a lowering");
        assert_eq!(strided(&program), wanted, "{text}");
    }
}

#[test]
fn a_layout_is_part_of_a_plans_text() {
    let f = squares("f32", 100, READERS[0]);
    let found = plan(&f, &options(Effort::Default)).expect("has a lowering");
    assert_eq!(found.layout, Layout::RowMajor, "so few elements are not worth it");
    assert!(!found.text(&f).contains("layout"));
    let found = Plan { layout: Layout::StructureOfArrays, ..found };
    let text = found.text(&f);
    assert!(text.contains("\n  layout structure-of-arrays\n"), "{text}");
    assert_eq!(Plan::parse(&text, &f).expect("reads back"), found);
    let refused = Plan::parse(&text.replace("structure-of-arrays", "columns"), &f);
    let refused = refused.expect_err("there is no such layout");
    assert_eq!((refused.kind, refused.message.as_str()), (Kind::Syntax, "`columns` is no layout"));
}

#[test]
fn what_a_plan_says_once_it_does_not_say_twice() {
    let f = squares("f32", 100, READERS[0]);
    let found = plan(&f, &options(Effort::Default)).expect("has a lowering");
    let found = Plan { layout: Layout::StructureOfArrays, donated: vec![0], ..found };
    let text = found.text(&f);
    for word in ["graph", "device", "fp", "layout", "donate"] {
        let line = text.lines().find(|line| line.trim().starts_with(word)).expect(word);
        let twice = text.replacen('}', &format!("{line}\n}}"), 1);
        let refused = Plan::parse(&twice, &f).expect_err(word);
        assert_eq!(
            (refused.kind, refused.message),
            (Kind::Syntax, format!("a second line `{word}`"))
        );
        let span = refused.at.span.expect("a place");
        assert_eq!(&twice[span.start as usize..span.end as usize], line.trim());
        assert!(span.start as usize > twice.find(line).expect("the first"));
    }
}

/// What keeps temporaries of short rows, `%e: f32[100,3]`, from another layout: how it takes them, and the program's end.
const TAKES_ROWS: [(&str, &str); 4] = [
    ("a sort", "%r = argsort %e {axis = 1} : i32[100,3]\nreturn %r } -> i32[100,3]"),
    (
        "blocks of a branch",
        "%r = cond %p : f32[] then {
           %a = reduce_sum %e {axes = [0, 1]} : f32[]
           yield %a
         } else {
           %b = reduce_max %e {axes = [0, 1]} : f32[]
           yield %b
         }
         return %r } -> f32[]",
    ),
    (
        "the block of a loop",
        "%r = fori 0, 4, %k : f32[3] body(%i: i64[], %c: f32[3]) {
           %d = dot_general %e, %c {contract = [1] x [0]} : f32[100]
           %g = dot_general %d, %e {contract = [0] x [0]} : f32[3]
           yield %g
         }
         return %r } -> f32[3]",
    ),
    (
        "a branch with rows of its own",
        "%r = cond %p : f32[100,3] then {
           yield %x
         } else {
           %b = neg %x : f32[100,3]
           yield %b
         }
         %s = tanh %r : f32[100,3]
         %t = cumsum %s {axis = 0} : f32[100,3]
         return %t } -> f32[100,3]",
    ),
];

#[test]
fn what_takes_arrays_as_they_are_refuses_a_layout() {
    for (what, end) in TAKES_ROWS {
        let (end, result) = end.split_once(" } -> ").expect("a result");
        let f = function(&format!(
            "func @f(%x: f32[100,3], %k: f32[3], %p: bool[]) -> {result} {{
               %e = exp %x : f32[100,3]
               {end}
             }}"
        ));
        let found = plan(&f, &options(Effort::Default)).expect("has a lowering");
        assert_eq!(found.layout, Layout::RowMajor, "{what}");
        lower(&f, &found, &MachineModel::cpu()).unwrap_or_else(|d| panic!("{what}: {d}"));
        let wrong = Plan { layout: Layout::StructureOfArrays, ..found };
        let refused = lower(&f, &wrong, &MachineModel::cpu()).expect_err(what);
        assert_eq!(refused.kind, Kind::Usage, "{what}");
        assert!(refused.message.contains("structure-of-arrays"), "{what}: {refused}");
        assert!(refused.at.inst.is_some(), "{what}: {refused}");
    }
}

/// Scores of words, with a bias, a sum over each row and the gradients of all: what multiplies, folds and stores long rows.
fn scores(dtype: &str, [rows, features, words]: [u64; 3]) -> Function {
    let text = "func @f(%x: T[R,F], %w: T[W,F], %b: T[W]) -> (T[R,F], T[W,F], T[W], f32[R]) {
           %s = dot_general %x, %w {contract = [1] x [1]} : T[R,W]
           %bb = broadcast_in_dim %b {dims = [1]} : T[R,W]
           %l = add %s, %bb : T[R,W]
           %c = convert_element_type %l : f32[R,W]
           %m = reduce_max %c {axes = [1]} : f32[R]
           %mb = broadcast_in_dim %m {dims = [0]} : f32[R,W]
           %d = sub %c, %mb : f32[R,W]
           %e = exp %d : f32[R,W]
           %n = reduce_sum %e {axes = [1]} : f32[R]
           %g = convert_element_type %e : T[R,W]
           %gb = reduce_sum %g {axes = [0]} : T[W]
           %gx = dot_general %g, %w {contract = [1] x [0]} : T[R,F]
           %gw = dot_general %g, %x {contract = [0] x [0]} : T[W,F]
           return %gx, %gw, %gb, %n
         }";
    let sized = text.replace('R', &rows.to_string()).replace('F', &features.to_string());
    function(&sized.replace('W', &words.to_string()).replace("T[", &format!("{dtype}[")))
}

#[test]
fn rows_that_begin_at_lines_of_the_cache_change_no_bit() {
    let mut count = 0;
    for (dtype, words) in [("bf16", 2051), ("bf16", 2050), ("f32", 1025), ("f64", 1025)] {
        let f = scores(dtype, [6, 8, words]);
        for effort in [Effort::Off, Effort::Default] {
            let found = plan(&f, &options(effort)).expect("has a lowering");
            count += agrees(&f, &Plan { layout: Layout::AlignedRows, ..found });
        }
    }
    assert!(count > 16, "{count} buffers have strides");
}

/// Rows begin at lines of the cache on a GPU, where a product is large and rows are no multiple of 16 bytes.
#[test]
fn products_of_long_rows_are_laid_out_on_a_gpu() {
    let gpu = |f: &Function, effort| {
        let device = MachineModel::h200();
        let options = PlanOptions { device, effort, fp: Fp::Strict };
        plan(f, &options).expect("has a lowering").layout
    };
    let large = [64, 512, 2051];
    for (dtype, size, wanted) in [
        ("bf16", large, Layout::AlignedRows),
        ("f32", large, Layout::AlignedRows),
        ("bf16", [64, 512, 2048], Layout::RowMajor),
        ("f32", [64, 512, 2052], Layout::RowMajor),
        ("bf16", [64, 512, 1027], Layout::RowMajor),
        ("bf16", [6, 8, 2051], Layout::RowMajor),
    ] {
        let f = scores(dtype, size);
        assert_eq!(gpu(&f, Effort::Default), wanted, "{dtype} {size:?}");
        assert_eq!(gpu(&f, Effort::Off), Layout::RowMajor, "{dtype} {size:?}");
        let on_cpu = plan(&f, &options(Effort::Default)).expect("has a lowering");
        assert_eq!(on_cpu.layout, Layout::RowMajor, "{dtype} {size:?}");
    }
    // A sort takes its rows as they are.
    let text = "func @f(%x: bf16[64,512], %w: bf16[2051,512]) -> i32[64,2051] {
      %s = dot_general %x, %w {contract = [1] x [1]} : bf16[64,2051]
      %r = argsort %s {axis = 1} : i32[64,2051]
      return %r
    }";
    assert_eq!(gpu(&function(text), Effort::Default), Layout::RowMajor);
}

/// Points that are turned one after the other.
#[test]
fn many_short_rows_are_laid_out_on_the_cpu() {
    let n = 20_000;
    let mut body = String::from("%s = neg %x : T\n");
    let mut last = String::from("%s");
    for k in 0..6 {
        body += &format!(
            "%m{k} = dot_general {last}, %turn {{contract = [1] x [0]}} : T
             %q{k} = slice %m{k} {{start = [0, 0], limit = [N, 1], stride = [1, 1]}} : f64[N,1]
             %p{k} = slice %m{k} {{start = [0, 1], limit = [N, 3], stride = [1, 1]}} : f64[N,2]
             %c{k} = concatenate %p{k}, %q{k} {{axis = 1}} : T
             %e{k} = mul %c{k}, %m{k} : T
             %f{k} = add %e{k}, %m{k} : T\n"
        );
        last = format!("%f{k}");
    }
    let text = format!(
        "func @f(%x: T, %turn: f64[3,3]) -> T {{
           {body}return {last}
         }}"
    );
    let text = text.replace('T', "f64[N,3]").replace('N', &n.to_string());
    let f = function(&text);
    let made = plan_for(&f, &options(Effort::Default), &Cpu::default()).expect("has a lowering");
    assert_eq!(made.layout, Layout::StructureOfArrays, "{}", made.text(&f));
    assert!(agrees(&f, &made) > 0);
}
