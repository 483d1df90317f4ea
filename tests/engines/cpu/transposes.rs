//! Arrays that lie across the lines of a sweep: blocks of all sizes and types, beside arrays that lie along them, folds, and batches
//! that begin inside of a block.

use super::{agrees, arguments, layout, same, same_on, special, strict};
use crate::common::random::inputs;
use adfuse::backends::cpu::{CpuExecutable, CpuOptions, Vectors};
use adfuse::fusion::Effort;
use adfuse::ir::DType;
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{Program, Verified, verify};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;

fn program(text: &str) -> Verified<Program> {
    let program = read(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    verify(program).unwrap_or_else(|e| panic!("{}\n{text}", e[0]))
}

/// Lines of one array that are columns of another, from an offset on.
fn lines(dtype: DType, [lines, n]: [u64; 2], schedule: &str) -> Verified<Program> {
    let [wide, long] = [lines + 2, n + 1];
    program(&format!(
        "program @f {{
           input %x: {dtype}[{long}, {wide}]
           output %y: {dtype}[{lines}, {n}]
           kernel @a [{lines}, {n}] {{
             {schedule}
             stage [] {{
               p0 = load %x[d1 + 1, d0 + 2]
               s0 = param.{dtype} 0
               %y[d0, d1] = store s0
             }}
           }}
           return %y
         }}"
    ))
}

#[test]
fn blocks_of_every_size_and_type() {
    for dtype in DType::ALL.into_iter().filter(|&d| d != DType::Token) {
        for [around, n] in
            [[8, 4], [9, 5], [16, 8], [17, 16], [31, 20], [40, 33], [33, 64], [20, 100], [48, 128]]
        {
            let made = lines(dtype, [around, n], "");
            let all: Vec<_> =
                (0..2).map(|turn| vec![special(dtype, &[n + 1, around + 2], turn)]).collect();
            let agreed = layout(&made, Effort::Default).and_then(|l| same_on(&made, &l, &all));
            agreed.unwrap_or_else(|why| panic!("{around} lines of {n} {dtype}: {why}"));
        }
    }
}

/// Tiles of a schedule, of several blocks and of parts of one, and tasks that begin between the lines of a block.
#[test]
fn blocks_of_tiles_and_of_tasks() {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::I8] {
        for schedule in ["", "schedule tiles(32, 16)", "schedule tiles(24, 40)"] {
            for extents in [[64, 80], [1100, 250], [4100, 72]] {
                let made = lines(dtype, extents, schedule);
                same(&made, Effort::Default, &arguments(&made))
                    .unwrap_or_else(|why| panic!("{extents:?} {dtype} {schedule}: {why}"));
            }
        }
    }
}

/// Beside arrays along the lines and values of each line, in kernels that fold and read the lines again.
#[test]
fn blocks_beside_other_reads() {
    for (rows, n) in [(40, 36), (300, 100), (700, 17)] {
        let made = program(&format!(
            "program @f {{
               input %x: f32[{n}, {rows}]
               input %h: f64[{n}, {rows}]
               input %y: f32[{rows}, {n}]
               input %b: f32[{rows}]
               output %m: f32[{rows}]
               output %z: f32[{rows}, {n}]
               kernel @a [{rows}] {{
                 row r0: f32
                 stage [{n}] {{
                   p0 = load %x[d1, d0]
                   p1 = load %y[d0, d1]
                   p2 = load %b[d0]
                   s0 = param.f32 0 s1 = param.f32 1 s2 = param.f32 2
                   s3 = fma.f32 s0 s2 s1
                   r0 = reduce.sum s3 lane(d1)
                 }}
                 stage [] {{
                   p0 = r0
                   s0 = param.f32 0
                   %m[d0] = store s0
                 }}
                 stage [{n}] {{
                   p0 = load %x[d1, d0]
                   p1 = load %h[d1, d0]
                   p2 = r0
                   s0 = param.f32 0 s1 = param.f64 1 s2 = param.f32 2
                   s3 = convert.f64 s0 s4 = mul.f64 s3 s1 s5 = convert.f32 s4
                   s6 = sub.f32 s5 s2
                   %z[d0, d1] = store s6
                 }}
               }}
               return %m, %z
             }}"
        ));
        same(&made, Effort::Default, &arguments(&made))
            .unwrap_or_else(|why| panic!("{rows} rows of {n}: {why}"));
    }
}

/// As programs have them: planned, with what is computed of transposed values.
#[test]
fn planned_transposes() {
    for (dims, perm, result) in [
        ("200,96", "[1, 0]", "96,200"),
        ("3,40,50", "[0, 2, 1]", "3,50,40"),
        ("20,12,30", "[2, 0, 1]", "30,20,12"),
        ("9,17,33", "[2, 1, 0]", "33,17,9"),
    ] {
        for dtype in ["f32", "f64", "bf16"] {
            let text = format!(
                "func @f(%x: {dtype}[{dims}], %y: {dtype}[{result}]) -> {dtype}[{result}] {{
                   %t = transpose %x {{perm = {perm}}} : {dtype}[{result}]
                   %e = tanh %t : {dtype}[{result}]
                   %r = mul %e, %y : {dtype}[{result}]
                   return %r
                 }}"
            );
            let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
            let f = module.funcs.values().next().expect("a function");
            if let Err(why) = agrees(&module, f, &inputs(f, &[Domain::Normal])) {
                panic!("{text}: {}", &why[..why.len().min(3000)]);
            }
        }
    }
}

/// With vectors of 512 bits, a block of lines is transposed where lines are long enough and far elements of a line are neighbours of
/// the next lines': not where lines are few, and not where elements are near.
#[test]
fn what_is_transposed_is_listed() {
    if Vectors::host() < Vectors::Avx512 {
        return;
    }
    let listed = |made: &Verified<Program>| {
        let layout = layout(made, Effort::Default).expect("fits");
        let options = CpuOptions { vectors: Vectors::Avx512, ..strict() };
        let made = CpuExecutable::compile_listed(made, &layout, options).expect("compiles");
        made.sweeps().any(|s| s.texts.is_some_and(|t| t.loops.contains("transpose t0")))
    };
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::I8] {
        assert!(listed(&lines(dtype, [100, 64], "")), "lines of {dtype}");
        assert!(!listed(&lines(dtype, [7, 64], "")), "few lines of {dtype}");
    }
    // Columns of eight bytes are nearer than a line of the cache.
    assert!(!listed(&lines(DType::I8, [8, 64], "")));
    assert!(listed(&lines(DType::I8, [64, 64], "")));
}
