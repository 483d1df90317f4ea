//! What is emitted gives the bits of the kernel evaluator, run on the [machine](crate::machine).

use crate::assembler::Assembly;
use crate::common::effects::printing;
use crate::common::kernels::{arguments, block_files, files};
use crate::common::orders::{self, Case};
use crate::common::parallel;
use crate::common::programs::decode_over;
use crate::common::random;
use crate::common::{control, loops};
use crate::machine::{is_plain, run, run_over};
use crate::trials::Skipped;
use crate::{add, benched, differentiated, lowered, refused};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::backends::ptx::{self, GpuSchedule, GpuTarget};
use adfuse::backends::reference::kernel;
use adfuse::fusion::{Effort, Fp};
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{Buffer, InPlace, Program, Role, Verified, in_place, verify};
use adfuse::ir::op::{Body, Domain};
use adfuse::ir::rewrite::specialize;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Module, Op};

/// Runs a program, forwards and backwards through threads and blocks, by the instructions of a newer chip too where they are others.
pub(crate) fn agrees(name: &str, program: &Verified<Program>, args: &[Array]) {
    let module = ptx::compile(program, GpuTarget::SM80, Fp::Strict)
        .unwrap_or_else(|d| panic!("{name}: {d}\n{}", **program));
    agrees_as(name, &module, program, args);
    if let Some(newer) = crate::newer(&module, program, Fp::Strict) {
        agrees_as(name, &newer, program, args);
    }
}

/// Runs what a program was made into, forwards and backwards.
pub(crate) fn agrees_as(
    name: &str,
    module: &ptx::PtxModule,
    program: &Verified<Program>,
    args: &[Array],
) {
    let (expected, due) = printing(|| kernel::run(program, args));
    let expected = expected.unwrap_or_else(|d| panic!("{name}: {d}"));
    for backwards in [false, true] {
        let (found, printed) = printing(|| run(module, program, args, backwards));
        assert_eq!(printed, due, "{name}");
        for (found, expected) in found.iter().zip(&expected) {
            let differs = (0..found.len()).find(|&k| found.get(k) != expected.get(k));
            if let Some(k) = differs {
                let [x, y] = [found, expected].map(|a| a.get(k));
                panic!("{name}: element {k} is {x}, not {y}\n{}", **program);
            }
        }
        let pairs = pairs_in_place(module, program);
        if !pairs.is_empty() {
            let (found, _) = printing(|| run_over(module, (program, &pairs), args, backwards));
            assert_eq!(found, expected, "{name}, in place: {pairs:?}\n{}", **program);
        }
    }
}

/// The results of a program of one step that may take the place of arguments: `made` says which results.
fn pairs_in_place(module: &ptx::PtxModule, program: &Program) -> Vec<InPlace> {
    let of = |b: Buffer, input: bool| {
        let (data, output) = (&program.buffers[b], program.outputs.contains(&b));
        is_plain(data) && output != input && (data.role == Role::Input) == input
    };
    match module.steps.as_slice() {
        [step] if step.reads_first => in_place(program, 0, &|b| of(b, true), &|b| of(b, false)),
        _ => Vec::new(),
    }
}

/// Results of rows are written over what they are computed from, once whole rows are read: a softmax, and the gradient
/// of cross entropy by the scores. A scalar of a row that all threads read is not written where it was.
pub(crate) fn rows_are_written_in_place() {
    let softmax = |n: u64, rows: &str| {
        format!(
            "func @f(%x: f32[2,{n}], %r: f32[2]) -> ({rows}f32[2,{n}]) {{
      %m = reduce_max %x {{axes = [1]}} : f32[2]
      %c = mul %m, %r : f32[2]
      %b = broadcast_in_dim %c {{dims = [0]}} : f32[2,{n}]
      %d = sub %x, %b : f32[2,{n}]
      %e = exp %d : f32[2,{n}]
      %s = reduce_sum %e {{axes = [1]}} : f32[2]
      %t = broadcast_in_dim %s {{dims = [0]}} : f32[2,{n}]
      %p = div %e, %t : f32[2,{n}]
      return {}%p
    }}",
            if rows.is_empty() { "" } else { "%c, " }
        )
    };
    for (n, rows, expected) in [(300, "", 1), (5000, "", 1), (40_000, "", 1), (300, "f32[2], ", 0)]
    {
        let text = softmax(n, rows);
        let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}"));
        let f = module.funcs.values().next().expect("a function");
        let program = for_two(f);
        let made = ptx::compile(&program, GpuTarget::SM90, Fp::Strict).expect("compiles");
        assert_eq!(pairs_in_place(&made, &program).len(), expected, "{n} {rows}\n{}", *program);
        let args = random::inputs(f, &[Domain::Normal, Domain::Normal]);
        agrees_as(&format!("rows of {n}"), &made, &program, &args);
    }
}

fn all(cases: Vec<Case>) {
    assert!(!cases.is_empty());
    parallel::each(&cases, |case| agrees(&case.name, &case.program, &case.args));
}

pub(crate) fn orders_of_short_lines() {
    [0, 1, 2, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025].into_iter().for_each(|n| {
        all(orders::orders(n));
    });
    all(orders::layouts());
}

pub(crate) fn orders_of_long_lines() {
    let mut cases = vec![orders::longest(DType::Bool)];
    cases.extend([5000, 8193, 12_000].into_iter().flat_map(orders::orders));
    all(cases);
}

pub(crate) fn scatters() {
    all(orders::scatters(20000));
    // In modes with a free order the updates of a row are several chains.
    for Case { name, program, args } in orders::exact_scatters() {
        for target in [GpuTarget::SM80, GpuTarget::SM90] {
            let schedule = ptx::schedule(&program, target, Fp::Reproducible);
            let text = schedule.unwrap_or_else(|d| panic!("{name}: {d}")).to_string();
            assert!(text.contains("chain=") && !text.contains("chain=0"), "{text}");
            let module = ptx::compile(&program, target, Fp::Reproducible);
            agrees_as(&name, &module.unwrap_or_else(|d| panic!("{name}: {d}")), &program, &args);
        }
    }
}

pub(crate) fn transposes() {
    all(orders::transposes());
}

pub(crate) fn scans() {
    [0, 1, 2, 31, 32, 33, 1023, 1024, 1025, 5000].into_iter().for_each(|n| all(orders::scans(n)));
}

pub(crate) fn programs_of_the_filetests() {
    for (name, text) in files() {
        let program = verify(read(&text).expect("reads")).expect("verifies");
        if !refused(&program) {
            agrees(&name, &program, &arguments(&program));
        }
    }
}

pub(crate) fn every_row() {
    for &op in Op::ALL {
        if matches!(op.def().body, Body::Region(_) | Body::Effect(_)) {
            continue;
        }
        for module in random::cases(op, 33) {
            let f = module.funcs.values().next().expect("a function");
            let extents = f.symbols.iter().map(|&s| (s, 3)).collect();
            let f = specialize(f, &extents).expect("three of each");
            let mut domains: Vec<Domain> = op.def().domain.to_vec();
            if domains.is_empty() {
                domains.push(Domain::Normal);
            }
            let program = lowered(&module, &f, Effort::Default, Fp::Strict);
            if !refused(&program) {
                agrees(&op.to_string(), &program, &random::inputs(&f, &domains));
            }
        }
    }
}

pub(crate) fn models_and_their_gradients() {
    for (name, g) in differentiated() {
        let args = random::inputs(&g, &[Domain::Normal]);
        let program = lowered(&Module::single(g.clone()), &g, Effort::Default, Fp::Strict);
        if !refused(&program) {
            agrees(&name, &program, &args);
        }
    }
}

pub(crate) fn random_programs() {
    let of_types = [
        (DType::F32, [3, 67]),
        (DType::F64, [33, 5]),
        (DType::BF16, [70, 33]),
        (DType::F16, [2, 130]),
    ];
    for (dtype, extents) in of_types {
        random::programs(23, 20, |steps| {
            let f = decode_over(steps, dtype, extents);
            let module = Module::single(f.clone());
            let wrt = differentiable(&f, None).map_err(|d| d.to_string())?;
            let g = forward_and_backward(&module, &f, &wrt).map_err(|d| format!("{d}\n{f}"))?;
            let args = random::inputs(&g, &[Domain::Normal]);
            let program = lowered(&Module::single(g.clone()), &g, Effort::Default, Fp::Strict);
            if !refused(&program) {
                agrees("random", &program, &args);
            }
            Ok(())
        });
    }
}

/// Programs with loops and branches that are written by hand.
pub(crate) fn blocks_by_hand() {
    for (name, text) in block_files() {
        let program = verify(read(&text).expect("reads")).expect("verifies");
        let args = arguments(&program);
        // A loop that does not end in time is an error of its own.
        if kernel::run(&program, &args).is_ok() {
            agrees(&name, &program, &args);
        }
    }
}

/// Functions with loops, and their gradients.
pub(crate) fn functions_with_loops() -> Result<(), Skipped> {
    let mut assembly = Assembly::default();
    for (name, g, args) in loops::functions() {
        for effort in [Effort::Off, Effort::Default] {
            let program = lowered(&Module::single(g.clone()), &g, effort, Fp::Strict);
            agrees(&name, &program, &args);
            add(&mut assembly, &name, &program, Fp::Strict);
        }
    }
    assembly.assembled()?;
    Ok(())
}

/// Random programs with loops and branches in each other, and their gradients.
pub(crate) fn random_loops() -> Result<(), Skipped> {
    let assembly = std::cell::RefCell::new(Assembly::default());
    for dtype in [DType::F32, DType::F64] {
        random::programs(71, 30, |steps| {
            let f = control::decode(steps, dtype);
            let module = Module::single(f.clone());
            let wrt = differentiable(&f, None).map_err(|d| d.to_string())?;
            let g = forward_and_backward(&module, &f, &wrt).map_err(|d| format!("{d}\n{f}"))?;
            let args = control::inputs(&g, steps.len() as i64 % 3);
            let program = lowered(&Module::single(g.clone()), &g, Effort::Default, Fp::Strict);
            agrees("random", &program, &args);
            add(&mut assembly.borrow_mut(), "random", &program, Fp::Strict);
            Ok(())
        });
    }
    assembly.into_inner().assembled()?;
    Ok(())
}

/// Kernels of the benches' programs and their gradients, as they are planned for many long rows, with other numbers of rows
/// and lengths: chains of rows that fold their columns, copied ahead and not, and rows so long that
/// blocks take turns.
const LARGE: [(&str, u64, &str, u64, &str); 7] = [
    ("bias_relu_loss", 16384, "4096", 24_577, "33"),
    ("bias_relu_loss", 16384, "4096", 24_577, "36"),
    ("residual_norm_loss", 16384, "4096", 24_580, "36"),
    ("residual_norm_loss_bf16", 16384, "4096", 24_577, "40"),
    ("vocabulary_loss", 8192, "50304", 5, "16500"),
    ("vocabulary_loss_bf16", 8192, "50304", 5, "16384"),
    ("vocabulary_loss_bf16", 8192, "50304", 3, "50304"),
];

pub(crate) fn rows_that_fill_a_chip() {
    for (name, rows, length, n, shorter) in LARGE {
        let g = benched(name, rows, (length, length));
        let planned = lowered(&Module::single(g.clone()), &g, Effort::Default, Fp::Strict);
        let text = planned.to_string();
        let text = text.replace(length, shorter).replace(&rows.to_string(), &n.to_string());
        let program = verify(read(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}")));
        let program = program.unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
        let module = ptx::compile(&program, GpuTarget::SM80, Fp::Strict).expect("compiles");
        let ahead = module.text.contains("cp.async");
        assert_eq!(ahead, shorter != "33", "{name} {shorter}");
        let (case, args) = (format!("{name} {n} x {shorter}"), arguments(&program));
        agrees(&case, &program, &args);
        let made = ptx::schedule(&program, GpuTarget::SM80, Fp::Strict).expect("is scheduled");
        let text = made.to_string();
        // As rows whose text is long: warps share the lane order of one block.
        if name == "bias_relu_loss" {
            let shared = text.replace("threads=32 rows=4 block=1024", "threads=64 rows=1 block=32");
            assert_ne!(shared, text, "{case}");
            let other = GpuSchedule::parse(&shared, &program);
            let other = other.unwrap_or_else(|d| panic!("{d}\n{shared}"));
            let module = ptx::print(&other).expect("prints");
            agrees_as(&format!("{case}, two warps"), &module, &program, &args);
        }
    }
}

/// Sums of values that do not depend on the place, in rows of several pieces a warp: each piece adds its own. The
/// sums are of integers, the same in any order.
pub(crate) fn pieces_of_a_row_add_up() {
    let text = "func @f(%x: bf16[2,32768], %r: i32[2]) -> (bf16[2,32768], i32[2]) {
      %e = abs %x : bf16[2,32768]
      %ef = convert_element_type %e : f32[2,32768]
      %rb = broadcast_in_dim %r {dims = [0]} : i32[2,32768]
      %z = mul %rb, %rb : i32[2,32768]
      %s = reduce_sum %z {axes = [1]} : i32[2]
      %sf = convert_element_type %s : f32[2]
      %sb = broadcast_in_dim %sf {dims = [0]} : f32[2,32768]
      %y = mul %ef, %sb : f32[2,32768]
      %yh = convert_element_type %y : bf16[2,32768]
      return %yh, %s
    }";
    let module = parse(text).unwrap_or_else(|e| panic!("{e:?}"));
    let f = module.funcs.values().next().expect("a function");
    let program = for_two(f);
    let args = random::inputs(f, &[Domain::Normal, Domain::Ints(1, 5)]);
    let expected = kernel::run(&program, &args).unwrap_or_else(|d| panic!("{d}"));
    for target in [GpuTarget::SM80, GpuTarget::SM90] {
        let module = ptx::compile(&program, target, Fp::Reproducible).expect("compiles");
        let found = run(&module, &program, &args, false);
        assert_eq!(found, expected, "{}", *program);
    }
}

/// The greatest and the least of widened numbers of 16 bits are those of pairs, in rows of one warp and of several with
/// pieces that are cut short. What follows them rounds once, so it has one result in every order.
pub(crate) fn extremes_are_folded_in_pairs() {
    for (dtype, n) in [("bf16", 600), ("f16", 600), ("bf16", 5004), ("f16", 32_768)] {
        let text = format!(
            "func @f(%x: {dtype}[2,{n}]) -> (f32[2], {dtype}[2,{n}]) {{
              %xf = convert_element_type %x : f32[2,{n}]
              %m = reduce_max %xf {{axes = [1]}} : f32[2]
              %l = reduce_min %xf {{axes = [1]}} : f32[2]
              %w = sub %m, %l : f32[2]
              %b = broadcast_in_dim %w {{dims = [0]}} : f32[2,{n}]
              %d = sub %xf, %b : f32[2,{n}]
              %y = convert_element_type %d : {dtype}[2,{n}]
              return %w, %y
            }}"
        );
        let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}"));
        let f = module.funcs.values().next().expect("a function");
        let program = for_two(f);
        let args = random::inputs(f, &[Domain::Normal]);
        let expected = kernel::run(&program, &args).unwrap_or_else(|d| panic!("{d}"));
        let module = ptx::compile(&program, GpuTarget::SM80, Fp::Reproducible).expect("compiles");
        for op in ["max", "min"] {
            assert!(module.text.contains(&format!("{op}.NaN.{dtype}x2")), "{op}\n{}", module.text);
        }
        assert_eq!(run(&module, &program, &args, false), expected, "{dtype} {n}\n{}", *program);
        let strict = ptx::compile(&program, GpuTarget::SM80, Fp::Strict).expect("compiles");
        assert!(!strict.text.contains("x2"), "lanes have elements of their own");
    }
}

/// Sums, differences and products of 16-bit floats are computed in pairs on chips that have instructions for them, by neighbours of
/// a loop and by elements of rows: with the bits of single ones.
pub(crate) fn arithmetic_in_pairs_rounds_as_one() {
    for (dtype, rows, cols) in
        [("bf16", 130, 136), ("f16", 67, 5), ("bf16", 2, 600), ("f16", 2, 5004)]
    {
        let ty = format!("{dtype}[{rows},{cols}]");
        let text = format!(
            "func @f(%x: {ty}, %s: {dtype}[{cols}], %y: {ty}) -> ({ty}, {ty}) {{
              %b = broadcast_in_dim %s {{dims = [1]}} : {ty}
              %a = mul %x, %b : {ty}
              %c = add %a, 0.1 : {ty}
              %r = max %c, 0.0 : {ty}
              %d = sub %r, %y : {ty}
              %t = tanh %d : {ty}
              %e = mul %t, %d : {ty}
              %z = sub %e, %x : {ty}
              %m = reduce_max %z {{axes = [1]}} : {dtype}[{rows}]
              %n = broadcast_in_dim %m {{dims = [0]}} : {ty}
              %w = sub %z, %n : {ty}
              return %z, %w
            }}"
        );
        let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}"));
        let f = module.funcs.values().next().expect("a function");
        // Two rows as they are planned for many: in one kernel, whose threads have elements 32 apart.
        let program = match rows {
            2 => for_two(f),
            _ => lowered(&module, f, Effort::Off, Fp::Strict),
        };
        let args = random::inputs(f, &[Domain::Normal]);
        let expected = kernel::run(&program, &args).unwrap_or_else(|d| panic!("{d}"));
        for (target, has) in [(GpuTarget::SM80, false), (GpuTarget::SM90, true)] {
            let module = ptx::compile(&program, target, Fp::Strict).expect("compiles");
            // Rows of five have no neighbours that are a group.
            for op in ["add", "sub", "mul"].iter().filter(|_| cols > 5 || !has) {
                let op = format!("{op}.rn.{dtype}x2");
                assert_eq!(module.text.contains(&op), has, "{op} {rows} {cols}\n{}", module.text);
            }
            let found = run(&module, &program, &args, false);
            assert_eq!(found, expected, "{dtype} {rows} {cols}\n{}", *program);
        }
    }
}

/// The program as it is planned for many rows, but with two rows.
fn for_two(f: &Function) -> Verified<Program> {
    let many = f.to_string().replace("[2", "[8192");
    let many = parse(&many).unwrap_or_else(|e| panic!("{e:?}"));
    let g = many.funcs.values().next().expect("a function");
    let planned = lowered(&many, g, Effort::Default, Fp::Strict).to_string();
    verify(read(&planned.replace("8192", "2")).expect("reads"))
        .unwrap_or_else(|e| panic!("{}", e[0]))
}

/// What is held in registers stays there.
pub(crate) fn nothing_spills() -> Result<(), Skipped> {
    let cases = [1024, 8192, 12_000].into_iter().flat_map(orders::orders);
    let cases = cases.chain(orders::scatters(9000)).chain(orders::transposes());
    let cases = cases.chain([31, 1025, 5000].into_iter().flat_map(orders::scans));
    let mut assembly = Assembly::default();
    for case in cases {
        let module = ptx::compile(&case.program, GpuTarget::SM80, Fp::Strict).expect("compiles");
        assembly.add(&case.name, &module, &case.program.to_string());
    }
    for r in assembly.assembled()? {
        assert_eq!(r.spilled, 0, "{}: {} registers", r.entry, r.registers);
    }
    Ok(())
}

/// Where the order is free lanes fold neighbours, which they load and store as rows. Of whole numbers the sums are exact, in runs
/// that are shorter than a warp, longer than a block and end within a group of lanes.
pub(crate) fn lanes_fold_neighbours() {
    for (dims, folds, kept) in [
        (&[6u64, 40][..], "d1", "d0"),
        (&[5, 24], "d0, d1", ""),
        (&[3, 2052], "d1", "d0"),
        (&[2, 3, 1500], "d0, d2", "d1"),
        (&[70, 64], "d0, d1", ""),
    ] {
        let list = |all: Vec<String>| all.join(", ");
        let extents = list(dims.iter().map(u64::to_string).collect());
        let index = list((0..dims.len()).map(|a| format!("d{a}")).collect());
        let axis = kept.strip_prefix('d').map(|a| a.parse::<usize>().expect("an axis"));
        let results = axis.map_or(String::new(), |a| dims[a].to_string());
        let text = format!(
            "program @f {{
              input %x: bf16[{extents}]
              output %y: bf16[{extents}]
              output %s: f32[{results}]
              kernel @f [{extents}] {{
                stage [] {{
                  p0 = load %x[{index}]
                  p1 = load %x[{index}] when d0 in [1, 3) else bf16(2.0)
                  s0 = param.bf16 0
                  s1 = convert.f32 s0
                  s2 = param.bf16 1
                  s3 = convert.f32 s2
                  s4 = add.f32 s1 s3
                  s5 = convert.bf16 s4
                  %y[{index}] = store s5
                  %s[{kept}] = fold.sum s4 lane({folds})
                }}
              }}
              return %y, %s
            }}"
        );
        let program = verify(read(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}")));
        let program = program.unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
        let count = dims.iter().product::<u64>();
        let numbers: Vec<f64> = (0..count).map(|k| (k * 7 % 11) as f64 - 5.0).collect();
        let args = [Array::from_f64s(DType::BF16, dims, &numbers).expect("fits")];
        let expected = kernel::run(&program, &args).unwrap_or_else(|d| panic!("{d}"));
        for (fp, width) in [(Fp::Strict, 1), (Fp::Reproducible, 4)] {
            let schedule = ptx::schedule(&program, GpuTarget::SM80, fp).expect("is scheduled");
            let schedule = schedule.to_string();
            assert!(schedule.contains(&format!(" width={width}\n")), "{schedule}");
            let module = ptx::compile(&program, GpuTarget::SM80, fp).expect("compiles");
            assert_eq!(run(&module, &program, &args, false), expected, "{text}");
        }
    }
}
