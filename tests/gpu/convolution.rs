//! Convolutions and their gradients in `fast`: on numbers whose sums are exact they are those of the CPU engine, with a library
//! and without.

use crate::common::convolutions::{CONVOLUTIONS, Convolution, LARGE};
use crate::trials::Skipped;
use crate::{Outcome, all, gpu};
use adfuse::engine::{Cpu, Gpu};
use adfuse::fusion::Fp;
use adfuse::ir::DType;

/// A convolution, of a parameter or of what is normalised, and whether there is a library.
#[derive(Clone, Copy)]
struct Case {
    convolution: &'static Convolution,
    dtype: DType,
    normalised: bool,
    library: bool,
}

fn check(gpu: &Gpu, Case { convolution, dtype, normalised, library }: Case) -> Outcome {
    let name = format!("{}, {dtype}, normalised {normalised}, library {library}", convolution.name);
    let ((module, g), args) = match normalised {
        true => (convolution.normalised(dtype), convolution.normalised_arguments(dtype)),
        false => (convolution.differentiated(dtype), convolution.arguments(dtype)),
    };
    let expected = match Cpu::default().compile(&module, &g) {
        Ok(made) => made.executable.run(&args).expect("runs"),
        Err(d) => return Outcome::Wrong(format!("{name}: the other engine: {d}")),
    };
    let mut gpu = gpu.clone();
    gpu.plan.fp = Fp::Fast;
    gpu.library &= library;
    let made = match gpu.compile(&module, &g) {
        Ok(made) => made.executable,
        Err(d) => return Outcome::Wrong(format!("{name}: {d}")),
    };
    if let Some(step) = made.steps().iter().find(|step| step.local > 32) {
        return Outcome::Wrong(format!("{name}: {} bytes of a thread are spilled", step.local));
    }
    let found = match made.run(&args) {
        Ok(found) => found,
        Err(d) => return Outcome::Wrong(format!("{name}: {d}")),
    };
    for (n, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let different =
            (0..found.len()).find(|&k| found.get(k).to_f64() != expected.get(k).to_f64());
        if let Some(k) = different {
            let [x, y] = [found, expected].map(|array| array.get(k));
            return Outcome::Wrong(format!("{name}: element {k} of result {n} is {x}, not {y}"));
        }
    }
    Outcome::Same
}

pub(crate) fn convolutions_on_matrix_units() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let forms = CONVOLUTIONS.iter().chain(LARGE);
    let cases = forms.flat_map(|convolution| {
        let all = [(false, true), (false, false), (true, true), (true, false)];
        let types = [DType::F32, DType::BF16, DType::F16];
        types.into_iter().flat_map(move |dtype| {
            all.map(|(normalised, library)| Case { convolution, dtype, normalised, library })
        })
    });
    let cases: Vec<Case> = cases.collect();
    all("convolutions_on_matrix_units", &cases, |case| check(&gpu, *case));
    Ok(())
}
