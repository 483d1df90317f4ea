//! Times of products in each way in which a GPU can multiply them.

use super::programs::TunedProgram;
use super::timing::{fastest_run, sized};
use crate::backends::gpu::{DeviceArray, ProductTrial};
use crate::engine::Gpu;
use crate::ir::Diagnostic;
use crate::ir::kernel::{ProductWay, WayTimes};
use std::time::Duration;

/// What multiplies by the library is called so in reports of steps.
const LIBRARY: &str = "cublaslt";

/// Seconds of a product in each of its ways, by the device's clock: the least of several. A way that the library refuses is
/// left out.
///
/// # Errors
/// For what the device does not run, or has too little memory for.
pub fn time_product(
    engine: &Gpu,
    trial: &ProductTrial,
    least: Duration,
) -> Result<WayTimes, Diagnostic> {
    let program = &trial.program;
    let types = program.inputs().filter_map(|b| program.buffers[b].ty());
    let upload = |(ty, stream)| DeviceArray::upload(engine.device(), &sized(&ty, stream)?);
    let inputs: Vec<DeviceArray> = types.zip(0..).map(upload).collect::<Result<_, _>>()?;
    let mut times = WayTimes::new();
    for &way in &trial.ways {
        let mut engine = engine.clone();
        engine.plan.device.products = trial.only(way);
        let made = engine.of_program(program.clone())?.executable;
        let by_library = made.steps().iter().any(|step| step.generator == LIBRARY);
        if (way == ProductWay::Library) == by_library {
            times.insert(way, fastest_run(&made, &inputs, least)?);
        }
    }
    Ok(times)
}

/// Rows, columns and depth of the products that are measured where no program is named. There are few, since the driver assembles
/// the kernels one after the other, .2 s each.
const LADDER: [[u64; 3]; 4] =
    [[8192, 1024, 1024], [8192, 4096, 1024], [4096, 4096, 4096], [8192, 8192, 8192]];

/// Products of `bf16` matrices with neighbours along and across the depth, whose sums are stored as they are: what is measured
/// where no program is named.
pub fn product_ladder() -> Vec<TunedProgram> {
    let mut all = Vec::new();
    for [rows, cols, depth] in LADDER {
        for (name, lhs, rhs, contract) in [
            ("x wT", [rows, depth], [cols, depth], "[1] x [1]"),
            ("x w", [rows, depth], [depth, cols], "[1] x [0]"),
            ("xT w", [depth, rows], [depth, cols], "[0] x [0]"),
        ] {
            let ty = |[a, b]: [u64; 2]| format!("bf16[{a},{b}]");
            let (x, w, y) = (ty(lhs), ty(rhs), ty([rows, cols]));
            let text = format!(
                "func @f(%x: {x}, %w: {w}) -> {y} {{\n  %y = dot_general %x, %w {{contract = {contract}}} : {y}\n  return %y\n}}\n"
            );
            all.push(TunedProgram::new("product", &format!("{name} {rows}x{cols}x{depth}"), &text));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::gpu::product_trials;
    use crate::fusion::{AnyEngine, Effort, Fp, MachineModel, PlanOptions};
    use crate::tune::PlannedProgram;

    #[test]
    fn the_ladder_has_products_that_are_multiplied_in_many_ways() {
        let device = MachineModel::h200();
        let options = PlanOptions { device, effort: Effort::Default, fp: Fp::Fast };
        let mut forms = Vec::new();
        for one in product_ladder() {
            let planned = PlannedProgram::new(&one, &options, &AnyEngine).expect(&one.name);
            let trials = product_trials(&planned.program, (9, 0), Fp::Fast).expect(&one.name);
            let [trial] = trials.as_slice() else { panic!("{}: {trials:?}", one.name) };
            assert!(trial.ways.len() > 5, "{}: {:?}", one.name, trial.ways);
            forms.push(trial.form.clone());
        }
        forms.sort();
        forms.dedup();
        assert_eq!(forms.len(), product_ladder().len());
    }
}
