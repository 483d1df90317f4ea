//! What steps are lowered to, run by the kernel evaluator: the bits are those of the program itself. Work that
//! no kernel says is left out; `tests/ptx/machine.rs` runs what is emitted for that too.

use super::context::ScheduleContext;
use super::work::{Lowering, Work};
use crate::gpu::target::GpuTarget;
use crate::reference::kernel::run;
use crate::runtime::array::Array;
use adfuse_ir::kernel::text::parse;
use adfuse_ir::kernel::{Contract, Kernel, Program, Step, Verified, verify};
use adfuse_ir::{DType, Fp, TensorType};
use smallvec::SmallVec;

/// The program of what a program is lowered to; `None` where that is no program of kernels.
fn lowered(given: &Verified<Program>) -> Option<Program> {
    let mut low = Lowering::new(given, ScheduleContext::new(GpuTarget::SM90, Fp::Strict));
    let mut steps = Vec::new();
    for step in &given.steps {
        match step {
            Step::Transfer(_) | Step::Exchange(_) | Step::Print(_) => {
                steps.push(step.clone());
                continue;
            }
            _ => {}
        }
        for work in low.step(step).ok()? {
            steps.push(match work {
                Work::Flat(flat) => Step::Kernel(Kernel {
                    name: "flat".to_owned(),
                    domain: flat.domain,
                    stages: vec![flat.stage],
                    ..Kernel::default()
                }),
                Work::Rows(kernel) => Step::Kernel(kernel),
                Work::Product(member) => Step::Contract(Contract {
                    name: "product".to_owned(),
                    members: SmallVec::from_iter([member]),
                }),
                // The tree of parts, and what is written twice, no kernel says.
                Work::Join(_)
                | Work::Scan(_)
                | Work::Pack { .. }
                | Work::Scatter(_)
                | Work::Sort(_)
                | Work::Attention(_)
                | Work::Warpgroup(..)
                | Work::Convolution(_)
                | Work::Call(_) => {
                    return None;
                }
            });
        }
        low.ended().ok()?;
    }
    Some(Program { steps, ..low.program })
}

fn argument(ty: &TensorType, seed: u64) -> Array {
    let dims = ty.dims().expect("known");
    let n = dims.iter().product::<u64>();
    let number = |i: u64| (i.wrapping_mul(2654435761).wrapping_add(seed * 977) >> 7) % 2001;
    let values: Vec<f64> = (0..n)
        .map(|i| match ty.dtype {
            DType::Bool => (number(i) % 2) as f64,
            d if d.is_float() => number(i) as f64 / 500.0 - 2.0,
            _ => (number(i) % 7) as f64,
        })
        .collect();
    Array::from_f64s(ty.dtype, &dims, &values).expect("fits")
}

fn agrees(name: &str, text: &str) -> bool {
    let program = verify(parse(text).unwrap_or_else(|e| panic!("{name}: {e:?}")));
    let program = program.unwrap_or_else(|e| panic!("{name}: {}", e[0]));
    let Some(low) = lowered(&program) else { return false };
    let shown = low.to_string();
    let low = verify(low).unwrap_or_else(|e| panic!("{name}: {}\n{shown}", e[0]));
    let types = program.inputs().filter_map(|b| program.buffers[b].ty());
    let args: Vec<Array> = (1..).zip(types).map(|(seed, ty)| argument(&ty, seed)).collect();
    let expected = run(&program, &args).unwrap_or_else(|d| panic!("{name}: {d}"));
    let found = run(&low, &args).unwrap_or_else(|d| panic!("{name}: {d}\n{shown}"));
    assert_eq!(found, expected, "{name}\n{shown}");
    true
}

#[test]
fn files_keep_their_bits() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/filetests/kernels/ok");
    let mut run = 0;
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("reads");
        let text = &text[text.find("program @").expect("a program")..];
        if !text.contains("= library @") {
            run += usize::from(agrees(&path.display().to_string(), text));
        }
    }
    assert!(run > 10, "{run} programs");
}

/// Rows, tiles and folds in every combination: what stays a kernel of rows, and what is taken apart.
#[test]
fn kernels_keep_their_bits() {
    let folds = [
        ("r0 = reduce.sum s0 lane(d1, d2)", "%z[] = fold.sum s0 lane(d0, d1, d2)"),
        ("r0 = reduce.sum s0 lane(d2) chain(d1)", "%z[] = fold.sum s0 lane(d2) chain(d0, d1)"),
        ("r0 = reduce.max s0 chain(d1) lane(d2)", "%z[] = fold.max s0 lane(d0, d1, d2)"),
        ("r0 = reduce.prod s0 lane(d2, d1)", "%z[] = fold.sum s0 chain(d1) chain(d0) chain(d2)"),
    ];
    let mut run = 0;
    for (row, fold) in folds {
        for [a, b, c] in [[3, 7, 150], [70, 30, 3], [2, 5, 6]] {
            let text = format!(
                "program @f {{
                   input %x: f32[{a}, {b}, {c}]
                   input %i: i32[{a}]
                   output %y: f32[{a}, {b}, {c}]
                   output %w: f32[{b}, {c}]
                   output %z: f32[]
                   kernel @k [{a}] {{
                     row r0: f32
                     row r1: f32
                     tile t0: f32[{b}, {c}]
                     stage [{b}, {c}] {{
                       p0 = load %x[d0, d1, d2] s0 = param.f32 0 s1 = mul.f32 s0 s0
                       {row}
                       t0 = keep s1
                     }}
                     stage [] {{ p0 = r0 s0 = param.f32 0 s1 = add.f32 s0 s0 r1 = leave s1 }}
                     stage [{b}, {c}] {{
                       p0 = t0 p1 = r1
                       p2 = load %i[d0]
                       p3 = load %x[clamp(p2, 0, {last}), d1, d2]
                       s0 = param.f32 0 s1 = param.f32 1 s2 = add.f32 s0 s1
                       s3 = param.f32 3 s4 = sub.f32 s2 s3
                       %y[d0, d1, d2] = store s4
                       %w[d1, d2] = fold.sum s4 chain(d0)
                       {fold}
                     }}
                   }}
                   return %y, %w, %z
                 }}",
                last = a - 1
            );
            let fold_of = |n: &str| text.replace("%z[] = fold.sum s0", n);
            run += usize::from(agrees(row, &fold_of("%z[] = fold.sum s4")));
        }
    }
    assert!(run > 5, "{run} kernels");
}
