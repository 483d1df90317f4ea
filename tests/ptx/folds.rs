//! Folds over points: how long the chains of threads are, and what joins the parts that they leave. Of whole numbers the sums are
//! exact, so that every order gives the sums of the kernel evaluator.

use crate::machine::run;
use adfuse::backends::Array;
use adfuse::backends::ptx::{self, GpuTarget, PtxModule};
use adfuse::backends::reference::kernel;
use adfuse::fusion::Fp;
use adfuse::ir::DType;
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{Program, Verified, verify};

/// A loop over rows and columns with these sums over its rows, each of another multiple of its elements.
fn sums(rows: u64, columns: u64, count: usize) -> Verified<Program> {
    let (mut outputs, mut program, mut sinks) = (String::new(), String::new(), String::new());
    let mut names = Vec::new();
    for k in 0..count {
        outputs += &format!("  output %y{k}: f32[{columns}]\n");
        program += &format!("    c{k} = const.f32 {}.0\n    m{k} = mul.f32 s0 c{k}\n", k + 1);
        sinks += &format!("    %y{k}[d1] = fold.sum m{k} chain(d0)\n");
        names.push(format!("%y{k}"));
    }
    // Names of values are numbers in texts.
    for k in (0..count).rev() {
        let (constant, product) = (format!("s{}", 2 * k + 1), format!("s{}", 2 * k + 2));
        program = program.replace(&format!("c{k}"), &constant).replace(&format!("m{k}"), &product);
        sinks = sinks.replace(&format!("m{k}"), &product);
    }
    let text = format!(
        "program @f {{\n  input %x: f32[{rows}, {columns}]\n{outputs}  kernel @f [{rows}, {columns}] {{
    stage [] {{
    p0 = load %x[d0, d1]
    s0 = param.f32 0
{program}{sinks}    }}\n  }}\n  return {}\n}}\n",
        names.join(", ")
    );
    let program = verify(read(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}")));
    program.unwrap_or_else(|e| panic!("{}\n{text}", e[0]))
}

/// What it is compiled to, whose sums are those of the evaluator.
fn compiled(program: &Verified<Program>, [rows, columns]: [u64; 2], fp: Fp) -> PtxModule {
    let numbers: Vec<f64> = (0..rows * columns).map(|k| (k * 7 % 11) as f64 - 5.0).collect();
    let args = [Array::from_f64s(DType::F32, &[rows, columns], &numbers).expect("fits")];
    let expected = kernel::run(program, &args).unwrap_or_else(|d| panic!("{d}"));
    let module = ptx::compile(program, GpuTarget::SM80, fp).expect("compiles");
    for backwards in [false, true] {
        assert_eq!(run(&module, program, &args, backwards), expected, "{fp:?}");
    }
    module
}

/// Blocks of each launch.
fn blocks(module: &PtxModule) -> Vec<u32> {
    let launches = module.steps.iter().flat_map(|step| &step.launches);
    launches.map(|launch| launch.grid[0]).collect()
}

/// Few columns of many rows: where the order is free chains are short, so that a chip has loads enough under way. In strict mode
/// they are those of the defined order.
pub(crate) fn few_columns_have_short_chains() {
    for (rows, columns, due) in [(2048, 8, [1, 8]), (300, 40, [1, 6]), (8, 8, [1, 1])] {
        let program = sums(rows, columns, 1);
        // Threads of a block are 256.
        let of = |fp| blocks(&compiled(&program, [rows, columns], fp))[0];
        assert_eq!([of(Fp::Strict), of(Fp::Reproducible)], due, "{rows} {columns}");
    }
}

/// The sums of one loop are joined by one launch for each level of their trees, as far as one is given the parts of all.
pub(crate) fn trees_of_a_loop_share_launches() {
    for (count, due) in [(1, 2), (2, 2), (5, 2), (16, 2), (17, 3)] {
        for fp in [Fp::Strict, Fp::Reproducible] {
            let program = sums(200, 24, count);
            let launches = blocks(&compiled(&program, [200, 24], fp));
            assert_eq!(launches.len(), due, "{count} {fp:?}: {launches:?}");
        }
    }
}
