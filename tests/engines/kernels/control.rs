//! Random programs with loops and branches in each other, and their derivatives: plans of every effort have the bits of
//! the reference engine.

use super::{agrees, parallel, random};
use crate::common::control::{decode, inputs};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::ir::{DType, Module};

#[test]
fn programs_with_loops_agree_with_the_reference_engine() {
    parallel::each(&[(DType::F32, 1), (DType::F64, 2)], |&(dtype, order)| {
        random::programs(63, 60, |steps| {
            let mut f = decode(steps, dtype);
            for _ in 0..order {
                let module = Module::single(f.clone());
                agrees(&module, &f, &inputs(&f, steps.len() as i64 % 3))?;
                let wrt = differentiable(&f, None).map_err(|d| d.to_string())?;
                f = forward_and_backward(&module, &f, &wrt).map_err(|d| format!("{d}\n{f}"))?;
            }
            agrees(&Module::single(f.clone()), &f, &inputs(&f, steps.len() as i64 % 3))
        });
    });
}
