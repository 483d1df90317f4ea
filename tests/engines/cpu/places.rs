//! Places of extrema along rows: in the tiles of a product, whose result isn't stored, and in kernels, whatever rows calls and tasks cut.

use super::dots::made;
use super::{agrees_on, layout, same_on, special};
use crate::common::random::inputs;
use adfuse::backends::Array;
use adfuse::fusion::{self, Effort, Fp, MachineModel, compile};
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{Step, verify};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function};

/// Numbers of few values: their products are often equal.
fn equal(f: &Function) -> Vec<Array> {
    let small = |a: &Array| {
        let of = |k: usize| ((k * 7 + k / 5) % 3) as f64 - 1.0;
        let values: Vec<f64> = (0..a.to_f64s().len()).map(of).collect();
        Array::from_f64s(a.dtype(), a.dims(), &values).expect("fits")
    };
    inputs(f, &[Domain::Normal]).iter().map(small).collect()
}

fn product(of: &str, [batch, rows, cols]: [u64; 3], fold: &str) -> String {
    let (all, kept) = (format!("{of}[{batch},{rows},{cols}]"), format!("[{batch},{rows}]"));
    format!(
        "func @f(%x: {of}[{batch},{rows},6], %y: {of}[{batch},{cols},6], %n: {of}[{cols}]) -> i32{kept} {{
           %p = dot_general %x, %y {{batch = [0] x [0], contract = [2] x [2]}} : {all}
           %m = broadcast_in_dim %n {{dims = [2]}} : {all}
           %d = sub %m, %p : {all}
           %i = {fold} %d {{axis = 2}} : i32{kept}
           return %i
         }}"
    )
}

/// The steps of a plan.
fn steps(f: &Function) -> Vec<Step> {
    let module = adfuse::ir::Module::single(f.clone());
    let options = fusion::PlanOptions {
        device: MachineModel::cpu(),
        effort: Effort::Default,
        fp: Fp::Strict,
    };
    compile(&module, f, &options).expect("a plan").program.steps
}

#[test]
fn tiles_of_products_have_whole_rows() {
    let shapes = [[1, 70, 5], [1, 5, 33], [3, 33, 40], [1, 150, 1000], [2, 64, 64], [1, 3, 1]];
    for (turn, shape) in shapes.into_iter().enumerate() {
        for (of, fold) in [("f32", "argmin"), ("f64", "argmax"), ("f64", "argmin")] {
            let text = product(of, shape, fold);
            let module = parse(&text).expect("a program");
            let f = module.funcs.values().next().expect("a function").clone();
            let normal = inputs(&f, &[Domain::Normal]);
            let hard: Vec<Array> =
                normal.iter().map(|a| special(a.dtype(), a.dims(), turn)).collect();
            let all = [normal, equal(&f), hard];
            agrees_on(&module, &f, &all).unwrap_or_else(|why| panic!("{why}\n{text}"));
            for threads in [1, 3, 16] {
                let [alone, many] = [1, threads].map(|n| made(&f, Fp::Strict, n));
                for args in &all {
                    let due = alone.run(args).expect("runs");
                    assert_eq!(many.run(args).expect("runs"), due, "{threads} threads\n{text}");
                }
            }
        }
    }
}

/// The product is one step with its fold, and neither the arena nor the step's own memory has the result; a row that is
/// longer than a tile is not folded there.
#[test]
fn what_is_folded_is_not_stored() {
    let step = |cols| {
        let module = parse(&product("f64", [1, 4096, cols], "argmin")).expect("a program");
        let f = module.funcs.values().next().expect("a function").clone();
        let memory = made(&f, Fp::Strict, 1).memory();
        (steps(&f), memory.arena + memory.outside_arena)
    };
    let (steps, held) = step(512);
    assert!(matches!(steps.as_slice(), [Step::Contract(_)]), "{} steps", steps.len());
    let result = 8 * 4096 * 512;
    assert!(held < result / 16, "{held} bytes of {result}");
    assert_eq!(step(4096).0.len(), 2);
}

#[test]
fn rows_of_kernels() {
    let shapes =
        [[3, 7, 16], [2, 65, 31], [1, 9, 1000], [5, 40, 1500], [1, 2, 9000], [1, 70, 8200]];
    for (turn, [l, m, n]) in shapes.into_iter().enumerate() {
        for d in [DType::F32, DType::F64, DType::I32, DType::U8] {
            let text = format!(
                "program @f {{
                   input %x: {d}[{l}, {m}, {n}]
                   output %least: i32[{l}, {m}]
                   output %most: i32[{l}]
                   output %column: i32[{l}, {n}]
                   kernel @a [{l}, {m}, {n}] {{ stage [] {{
                     p0 = load %x[d0, d1, d2]
                     s0 = param.{d} 0
                     %least[d0, d1] = fold.argmin s0 lane(d2)
                     %most[d0] = fold.argmax s0 lane(d1, d2)
                     %column[d0, d2] = fold.argmax s0 chain(d1)
                   }} }}
                   return %least, %most, %column
                 }}"
            );
            let program = verify(read(&text).expect("a program")).expect("is right");
            let dims = [l, m, n];
            let ordinary = super::arguments(&program);
            let all = [vec![special(d, &dims, turn)], ordinary];
            let agreed =
                layout(&program, Effort::Default).and_then(|at| same_on(&program, &at, &all));
            agreed.unwrap_or_else(|why| panic!("{}\n{text}", &why[..why.len().min(2000)]));
        }
    }
}
