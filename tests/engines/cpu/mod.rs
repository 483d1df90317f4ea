//! The CPU engine gives the bits of the kernel evaluator: random programs and their gradients, every
//! row of the op table, the models, and the programs of the filetests, at any number of threads.
//! `ADFUSE_PROGRAMS` sets how many random programs (100 by default).

mod attention;
mod computed_places;
mod dots;
mod fission;
mod folds;
mod idle_lanes;
mod linalg;
mod lines;
mod loop_products;
pub(crate) mod modes;
mod nontemporal;
mod places;
mod prims;
mod products;
mod schedules;
mod slices;
mod small_loops;
mod sorting;
mod targets;
mod transposes;
mod vector_loops;
mod widths;
mod windows;

use crate::common::kernels::{arguments, files};
use crate::common::programs::{Step, decode_over};
use crate::common::random::{self, inputs};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::backends::cpu::{ArenaLayout, CpuExecutable, CpuOptions, Vectors, scratch};
use adfuse::backends::reference::kernel;
use adfuse::engine::arena_layout;
use adfuse::fusion::{self, Effort, Fp, MachineModel, compile, memory_beside};
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{DonorSlice, Program, Role, Step as ProgramStep, Verified, verify};
use adfuse::ir::op::{Body, Domain};
use adfuse::ir::rewrite::specialize;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Kind, Module, Op, TensorType};

/// One thread, and the bits of the evaluator.
pub(crate) fn strict() -> CpuOptions {
    CpuOptions { fp: Fp::Strict, ..CpuOptions::default() }
}

/// Where a program's memory is.
pub(crate) fn layout(program: &Verified<Program>, effort: Effort) -> Result<ArenaLayout, String> {
    let beside = scratch(program).map_err(|d| d.to_string())?;
    let plan = memory_beside(program, effort, &beside).map_err(|d| d.to_string())?;
    let mut layout = arena_layout(&plan);
    // Inputs are lent here, whatever the program says: what is in one is found room for beside the arena.
    let lent = |slice: DonorSlice| program.buffers[slice.donor].role == Role::Input;
    for b in program.buffers.keys() {
        layout.in_donor[b] = layout.in_donor[b].filter(|&slice| !lent(slice));
    }
    Ok(layout)
}

/// Every width of vectors that the host has, on one thread, and the widest on two.
fn ways() -> Vec<CpuOptions> {
    let widths = Vectors::ALL.into_iter().filter(|&v| v <= Vectors::host());
    let mut ways: Vec<CpuOptions> =
        widths.map(|vectors| CpuOptions { vectors, ..strict() }).collect();
    ways.push(CpuOptions { threads: 2, ..strict() });
    ways
}

/// Compiles and runs a program with every width of vectors, with one thread and with two; the results
/// must be the evaluator's.
fn same(program: &Verified<Program>, effort: Effort, args: &[Array]) -> Result<(), String> {
    same_on(program, &layout(program, effort)?, &[args.to_vec()])
}

/// The same on several lists of arguments, for which the program is compiled once a width.
fn same_on(
    program: &Verified<Program>,
    layout: &ArenaLayout,
    all: &[Vec<Array>],
) -> Result<(), String> {
    let expected = all.iter().map(|args| kernel::run(program, args).map_err(|d| d.to_string()));
    let expected: Vec<Vec<Array>> = expected.collect::<Result<_, _>>()?;
    for options in ways() {
        let made = CpuExecutable::compile(program, layout, options)
            .map_err(|d| format!("{d}\n{}", **program))?;
        for (args, expected) in all.iter().zip(&expected) {
            for _ in 0..2 {
                let found = made.run(args).map_err(|d| d.to_string())?;
                if found != *expected {
                    let text = program.to_string();
                    return Err(format!("{options:?}: {found:?}\nis not\n{expected:?}\n{text}"));
                }
            }
        }
    }
    Ok(())
}

fn agrees(module: &Module, f: &Function, args: &[Array]) -> Result<(), String> {
    agrees_on(module, f, &[args.to_vec()])
}

/// The program of each effort gives the evaluator's bits on each list of arguments. One that another effort
/// gave, with the same layout, is not run again.
fn agrees_on(module: &Module, f: &Function, all: &[Vec<Array>]) -> Result<(), String> {
    let mut checked = Vec::new();
    for effort in [Effort::Off, Effort::Quick, Effort::Default] {
        let options = fusion::PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict };
        let compiled = compile(module, f, &options).map_err(|d| d.to_string())?;
        let program = verify(compiled.program).map_err(|e| e[0].to_string())?;
        let layout = layout(&program, effort)?;
        let known = |(p, l): &(Verified<Program>, ArenaLayout)| **p == *program && *l == layout;
        if checked.iter().any(known) {
            continue;
        }
        same_on(&program, &layout, all).map_err(|why| format!("{effort:?}: {why}"))?;
        checked.push((program, layout));
    }
    Ok(())
}

/// Extents of the parameters of random programs: odd tails of vectors, none at all, one of each, and
/// more than a block of a fold.
const EXTENTS: [[u64; 2]; 10] =
    [[3, 4], [1, 1], [0, 5], [5, 0], [7, 1], [1, 37], [3, 67], [33, 5], [2, 130], [70, 6]];

/// A random program and its arguments: ordinary numbers, and for every third one the unusual.
fn random(steps: &[Step], dtype: DType) -> (Function, Turn) {
    let turn = steps.iter().fold(0, |n: usize, s| n.wrapping_mul(31).wrapping_add(s.1.into()));
    (decode_over(steps, dtype, EXTENTS[turn % EXTENTS.len()]), Turn(turn / EXTENTS.len()))
}

/// Which of the arguments a program runs on.
struct Turn(usize);

impl Turn {
    fn arguments(&self, f: &Function) -> Vec<Array> {
        if !self.0.is_multiple_of(3) {
            return inputs(f, &[Domain::Normal]);
        }
        let unusual = |(k, t): (usize, &TensorType)| {
            special(t.dtype, &t.dims().expect("constant"), self.0 / 3 % 97 + k)
        };
        f.param_types().iter().enumerate().map(unusual).collect()
    }
}

#[test]
fn random_programs() {
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        random::programs(13, 100, |steps| {
            let (f, turn) = random(steps, dtype);
            agrees(&Module::single(f.clone()), &f, &turn.arguments(&f))
        });
    }
}

#[test]
fn gradients_of_random_programs() {
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        random::programs(13, 100, |steps| {
            let (f, turn) = random(steps, dtype);
            let module = Module::single(f.clone());
            let wrt = differentiable(&f, None).map_err(|d| d.to_string())?;
            let g = forward_and_backward(&module, &f, &wrt).map_err(|d| format!("{d}\n{f}"))?;
            agrees(&Module::single(g.clone()), &g, &turn.arguments(&g))
        });
    }
}

/// What a type has of the unusual, and numbers of every size between.
fn special(dtype: DType, dims: &[u64], turn: usize) -> Array {
    let n = dims.iter().product::<u64>() as usize;
    let bits: Vec<u64> = (0..n)
        .map(|i| {
            let k = (i.wrapping_mul(turn * 2 + 1)).wrapping_add(turn) as u64;
            let wide = k.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (k << 31);
            let top = 1u64 << (dtype.bits() - 1);
            let chosen: [u64; 6] = [0, top, u64::MAX, top - 1, 1, top | 1];
            match (i + turn) % 3 {
                0 => chosen[(i / 3 + turn) % 6],
                1 => wide,
                _ => wide >> 3,
            }
        })
        .collect();
    let floats = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0, 1e-40, -3.5, 1e300, 0.5];
    match dtype.is_float() {
        true => {
            let mut values = Array::from_bits(dtype, dims, &bits).expect("fits").to_f64s();
            for (i, v) in values.iter_mut().enumerate() {
                if (i + turn).is_multiple_of(2) {
                    *v = floats[(i / 2 + turn) % floats.len()];
                }
            }
            Array::from_f64s(dtype, dims, &values).expect("fits")
        }
        false => Array::from_bits(dtype, dims, &bits).expect("fits"),
    }
}

#[test]
fn every_row() {
    let mut run = 0;
    for &op in Op::ALL {
        if matches!(op.def().body, Body::Region(_) | Body::Effect(_)) {
            continue;
        }
        for module in random::cases(op, 131) {
            let f = module.funcs.values().next().expect("a function");
            let extents = f.symbols.iter().map(|&s| (s, 3)).collect();
            let f = specialize(f, &extents).expect("three of each");
            let mut domains: Vec<Domain> = op.def().domain.to_vec();
            if domains.is_empty() {
                domains.push(Domain::Normal);
            }
            let mut all = vec![inputs(&f, &domains)];
            // Of the longest, values that are hard to get right.
            let types = f.param_types();
            if !types.is_empty() && types.iter().all(|t| t.dims().as_deref() == Some(&[131])) {
                for turn in 0..4 {
                    let one = |(k, t): (usize, &TensorType)| special(t.dtype, &[131], turn * 3 + k);
                    all.push(types.iter().enumerate().map(one).collect());
                }
            }
            if let Err(why) = agrees_on(&module, &f, &all) {
                panic!("`{op}`: {why}");
            }
            run += 1;
        }
    }
    assert!(run > 1000, "{run} cases");
}

#[test]
fn every_conversion() {
    let types: Vec<DType> = DType::ALL.into_iter().filter(|&d| d != DType::Token).collect();
    for &from in &types {
        for &to in &types {
            let text = format!(
                "func @f(%x: {from}[131]) -> {to}[131] {{
                   %r = convert_element_type %x : {to}[131]
                   return %r
                 }}"
            );
            let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}"));
            let f = module.funcs.values().next().expect("a function");
            for turn in 0..6 {
                if let Err(why) = agrees(&module, f, &[special(from, &[131], turn)]) {
                    panic!("{from} to {to}: {why}");
                }
            }
        }
    }
}

/// The models with their gradients, by the names of their files.
fn differentiated() -> Vec<(String, Function)> {
    let one = |(name, module, f): (String, Module, Function)| {
        let wrt = differentiable(&f, None).expect("has floats");
        let g = forward_and_backward(&module, &f, &wrt).unwrap_or_else(|d| panic!("{d}"));
        (name, g)
    };
    crate::common::models::all().into_iter().map(one).collect()
}

#[test]
fn models() {
    for (name, g) in differentiated() {
        if let Err(why) = agrees(&Module::single(g.clone()), &g, &inputs(&g, &[Domain::Normal])) {
            panic!("{name}: {why}");
        }
    }
}

/// The programs of the filetests: packed and strided buffers, memories, attention, folds in any order.
#[test]
fn programs_of_the_filetests() {
    let mut seen = 0;
    for (name, text) in files() {
        let program = verify(read(&text).expect("reads")).expect("verifies");
        let args = arguments(&program);
        if program.steps.iter().any(|s| matches!(s, ProgramStep::Library(_))) {
            let layout = ArenaLayout::default();
            let refused = CpuExecutable::compile(&program, &layout, strict());
            let refused = refused.expect_err("calls a library");
            assert_eq!(refused.kind, Kind::Unsupported);
            assert!(refused.to_string().contains("step"), "{refused}");
            continue;
        }
        if let Err(why) = same(&program, Effort::Default, &args) {
            panic!("{name}: {why}");
        }
        seen += 1;
    }
    assert!(seen > 10, "{seen} programs");
}

/// Axes longer than the blocks of every order, and than what a task takes.
#[test]
fn long_axes() {
    let cases = [
        ("%x: f32[3,70,5,40]", "reduce_sum %x {axes = [0, 1, 3]}", "f32[5]"),
        ("%x: f32[3,1,70,5,1,40]", "reduce_sum %x {axes = [0, 1, 3, 5]}", "f32[70,1]"),
        ("%x: f32[2,1,1300]", "reduce_prod %x {axes = [0, 1, 2]}", "f32[]"),
        ("%x: f32[150,7]", "reduce_sum %x {axes = [0]}", "f32[7]"),
        ("%x: f32[200000]", "reduce_sum %x {axes = [0]}", "f32[]"),
        ("%x: f32[700,301]", "reduce_sum %x {axes = [0]}", "f32[301]"),
        ("%x: f32[300,701]", "reduce_max %x {axes = [1]}", "f32[300]"),
        ("%x: f32[3,2200]", "cumsum %x {axis = 1, reverse = true}", "f32[3,2200]"),
        ("%x: f32[1100,2]", "cumsum %x {axis = 0}", "f32[1100,2]"),
        ("%x: f32[0,4]", "reduce_max %x {axes = [0]}", "f32[4]"),
        ("%x: f32[2,3,0]", "reduce_sum %x {axes = [0, 2]}", "f32[3]"),
        ("%x: f32[4,9000]", "argmin %x {axis = 1}", "i32[4]"),
        (
            "%x: f32[3,1100], %y: f32[1100,2]",
            "dot_general %x, %y {contract = [1] x [0]}",
            "f32[3,2]",
        ),
    ];
    for (params, inst, result) in cases {
        for dtype in ["f32", "f64", "bf16"] {
            let text = format!(
                "func @f({params}) -> {result} {{\n  %r = {inst} : {result}\n  return %r\n}}\n"
            );
            let module = parse(&text.replace("f32", dtype)).unwrap_or_else(|e| panic!("{e:?}"));
            let f = module.funcs.values().next().expect("a function");
            if let Err(why) = agrees(&module, f, &inputs(f, &[Domain::Normal])) {
                panic!("{}", &why[..why.len().min(4000)]);
            }
        }
    }
}

/// Points with more places than are kept at once: runs in order and out of it, places, scans.
#[test]
fn long_points() {
    let sinks = [
        ("f32", "r0 = reduce.sum s0 lane(d1, d2)"),
        ("f32", "r0 = reduce.sum s0 lane(d2) chain(d1)"),
        ("f32", "r0 = reduce.max s0 chain(d1) lane(d2)"),
        ("f32", "r0 = reduce.prod s0 lane(d2, d1)"),
        ("i32", "r0 = reduce.argmax s0 lane(d1, d2)"),
        ("i32", "r0 = reduce.argmin s0 lane(d2, d1)"),
    ];
    for (result, sink) in sinks {
        for [a, b, c] in [[3, 7, 1500], [2, 3000, 3], [2, 5, 6]] {
            let text = format!(
                "program @f {{
                   input %x: f32[{a}, {b}, {c}]
                   output %y: {result}[{a}]
                   kernel @k [{a}] {{
                     row r0: {result}
                     stage [{b}, {c}] {{ p0 = load %x[d0, d1, d2] s0 = param.f32 0 {sink} }}
                     stage [] {{ p0 = r0 s0 = param.{result} 0 %y[d0] = store s0 }}
                   }}
                   return %y
                 }}"
            );
            let program = verify(read(&text).unwrap_or_else(|e| panic!("{e:?}")));
            let program = program.unwrap_or_else(|e| panic!("{}", e[0]));
            if let Err(why) = same(&program, Effort::Default, &arguments(&program)) {
                panic!("{}", &why[..why.len().min(4000)]);
            }
        }
    }
}

/// What follows a contraction, whose result is cut into pieces: of all columns where it must be.
#[test]
fn pieces_of_contractions() {
    let sizes = [[1, 3, 5, 7], [1, 70, 600, 33], [2, 130, 640, 20], [3, 65, 96, 5], [40, 3, 4, 9]];
    let folds = [
        ("f32", "[600]", ""),
        ("f32", "[{b}, {n}]", "%z[d0, d2] = fold.sum s4 chain(d1)"),
        ("f32", "[{n}]", "%z[d2] = fold.sum s4 chain(d0, d1)"),
        ("f32", "[{b}, {m}]", "%z[d0, d1] = fold.max s4 lane(d2)"),
        ("f32", "[1]", "%z[0] = fold.sum s4 lane(d0, d1, d2)"),
        ("i32", "[{n}]", "%z[d2] = fold.argmax s4 lane(d0, d1)"),
    ];
    for [b, m, n, k] in sizes {
        for (dtype, dims, fold) in folds {
            for mask in ["as b1", ""] {
                let dims = dims.replace("{b}", &b.to_string()).replace("{m}", &m.to_string());
                let dims = dims.replace("{n}", &n.to_string());
                // Runs name no axes of extent 1.
                let fold = if b == 1 { fold.replace("(d0, ", "(") } else { fold.into() };
                let (output, returned) = match fold.as_str() {
                    "" => (String::new(), ""),
                    _ => (format!("output %z: {dtype}{dims}"), ", %z"),
                };
                let text = format!(
                    "program @f {{
                       input %x: f32[{b}, {m}, {k}]
                       input %w: f32[{k}, {n}]
                       input %c: f32[{n}]
                       temp %mask: bool[{b}, {m}, {n}] {mask}
                       output %y: f32[{b}, {m}, {n}]
                       output %g: f32[{b}, {m}, {n}]
                       {output}
                       contract @dense {{
                         member batch [{b}] rows [{m}] cols [{n}] depth [{k}] sum f32 {{
                           lhs {{ p0 = load %x[d0, d1, d2] s0 = param.f32 0 out s0 }}
                           rhs {{ p0 = load %w[d2, d1] s0 = param.f32 0 out s0 }}
                           then {{
                             p0 = sum
                             p1 = load %c[d2]
                             s0 = param.f32 0 s1 = param.f32 1 s2 = add.f32 s0 s1
                             s3 = const.f32 0.0 s4 = max.f32 s2 s3 s5 = gt.bool s2 s3
                             %y[d0, d1, d2] = store s4
                             %mask[d0, d1, d2] = store s5
                             {fold}
                           }}
                         }}
                       }}
                       kernel @g [{b}, {m}, {n}] {{
                         stage [] {{
                           p0 = load %mask[d0, d1, d2]
                           s0 = param.bool 0 s1 = convert.f32 s0 %g[d0, d1, d2] = store s1
                         }}
                       }}
                       return %y, %g{returned}
                     }}"
                );
                let program = verify(read(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}")));
                let program = program.unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
                if let Err(why) = same(&program, Effort::Default, &arguments(&program)) {
                    panic!("{text}{}", &why[..why.len().min(400)]);
                }
            }
        }
    }
}

#[test]
fn sizes_of_slices_are_checked() {
    let text = "program @f { input %x: f32[2] return %x }";
    let program = verify(read(text).expect("reads")).expect("verifies");
    let layout = ArenaLayout::default();
    let made = CpuExecutable::compile(&program, &layout, strict()).expect("compiles");
    let mut out = [0; 8];
    let short = made.run_into(&[&[0; 4]], &mut [&mut out]).expect_err("four bytes for eight");
    assert_eq!(short.kind, Kind::Usage);
    let none = made.run_into(&[], &mut [&mut out]).expect_err("no input");
    assert_eq!(none.kind, Kind::Usage);
    made.run_into(&[&[7; 8]], &mut [&mut out]).expect("fits");
    assert_eq!(out, [7; 8]);
    let wrong = Array::from_f64s(DType::F32, &[3], &[1.0; 3]).expect("three");
    assert_eq!(made.run(&[wrong]).expect_err("three for two").kind, Kind::Usage);
}

/// Layouts are not taken on trust where memory depends on them.
#[test]
fn layouts_are_checked() {
    let text = "program @f {
      input %x: f32[40]
      temp %t: f32[40]
      output %y: f32[40]
      kernel @a [40] {
        stage [] { p0 = load %x[d0] s0 = param.f32 0 %t[d0] = store s0 }
      }
      kernel @b [40] {
        stage [] { p0 = load %t[d0] s0 = param.f32 0 %y[d0] = store s0 }
      }
      return %y
    }";
    let program = verify(read(text).expect("reads")).expect("verifies");
    let t = program.buffers.keys().nth(1).expect("a temporary");
    for (bytes, offset) in [(192, 32), (128, 0), (192, 64), (64, u64::MAX - 63)] {
        let mut layout = ArenaLayout { bytes, ..ArenaLayout::default() };
        layout.offsets[t] = Some(offset);
        let refused = CpuExecutable::compile(&program, &layout, strict());
        assert_eq!(refused.expect_err("outside").kind, Kind::Usage, "{offset} of {bytes}");
    }
    let mut layout = ArenaLayout { bytes: 192, ..ArenaLayout::default() };
    layout.offsets[t] = Some(0);
    let made = CpuExecutable::compile(&program, &layout, strict()).expect("fits");
    let args = arguments(&program);
    assert_eq!(made.run(&args).expect("runs"), kernel::run(&program, &args).expect("runs"));
}
