//! Attention on matrix units: near its definition in every form, the same bits every time, and less memory than scores take.

use crate::common::attentions::{Form, table};
use crate::common::kernels::arguments;
use crate::near::distance;
use crate::trials::Skipped;
use crate::{Outcome, all, gpu};
use adfuse::backends::Array;
use adfuse::backends::reference::kernel;
use adfuse::engine::Gpu;
use adfuse::fusion::Fp;
use adfuse::ir::DType;
use adfuse::ir::kernel::text::parse as read;
use adfuse::ir::kernel::{Program, Verified, verify};

fn program(form: &Form, backward: bool) -> Verified<Program> {
    let text = form.text(backward);
    let program = read(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    verify(program).unwrap_or_else(|e| panic!("{}\n{text}", e[0]))
}

/// Whether NaNs and infinities are at the same places, and the rest is near.
fn near(found: &Array, expected: &Array, most: f64) -> Result<(), String> {
    let (a, b) = (found.to_f64s(), expected.to_f64s());
    let unusual = |x: f64| (!x.is_finite()).then(|| x.to_string());
    if let Some(k) = (0..a.len()).find(|&k| unusual(a[k]) != unusual(b[k])) {
        return Err(format!("element {k} is {}, not {}", a[k], b[k]));
    }
    let finite = |x: &[f64]| -> Vec<f64> {
        x.iter().map(|&x| if x.is_finite() { x } else { 0.0 }).collect()
    };
    let dims: Vec<u64> = vec![a.len() as u64];
    let of = |x: &[f64]| Array::from_f64s(DType::F64, &dims, &finite(x)).expect("fits");
    let apart = distance(&of(&a), &of(&b));
    if apart <= most { Ok(()) } else { Err(format!("{apart:e} apart, not {most:e}")) }
}

fn check(gpu: &Gpu, form: &Form) -> Outcome {
    let forward = program(form, false);
    let args = arguments(&forward);
    let outputs = match kernel::run(&forward, &args) {
        Ok(outputs) => outputs,
        Err(d) => return Outcome::Wrong(d.to_string()),
    };
    let backward = program(form, true);
    let mut back = arguments(&backward);
    // The way back is given the logarithms of the sums that there were.
    back[3] = outputs[1].clone();
    let expected = match kernel::run(&backward, &back) {
        Ok(found) => found,
        Err(d) => return Outcome::Wrong(d.to_string()),
    };
    let mut gpu = gpu.clone();
    gpu.plan.fp = Fp::Fast;
    for (program, args, expected) in [(forward, args, outputs), (backward, back, expected)] {
        let made = match gpu.of_program(program) {
            Ok(made) => made.executable,
            Err(d) => return Outcome::Wrong(format!("{form:?}: {d}")),
        };
        // Sums are in registers, also where the warps that multiply are handed those of others.
        if let Some(step) = made.steps().iter().find(|step| step.local > 8) {
            return Outcome::Wrong(format!(
                "{form:?}: {} bytes of a thread are spilled",
                step.local
            ));
        }
        let runs = [(); 2].map(|()| made.run(&args));
        let [Ok(found), Ok(again)] = runs else {
            return Outcome::Wrong(format!("{form:?}: {runs:?}"));
        };
        if found != again {
            return Outcome::Wrong(format!("{form:?}: other bits in another run"));
        }
        for (k, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let most = if form.dtype == DType::F16 { 4e-3 } else { 2e-2 };
            if let Err(why) = near(found, expected, most) {
                return Outcome::Wrong(format!("{form:?}: result {k} of {}: {why}", expected.ty()));
            }
        }
    }
    Outcome::Same
}

pub(crate) fn attention_on_matrix_units() -> Result<(), Skipped> {
    let gpu = gpu()?;
    all("attention_on_matrix_units", &table(), |form| check(&gpu, form));
    Ok(())
}
