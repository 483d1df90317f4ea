//! Steps side by side: the bits of the same program one step after the other, in strict mode those of the reference engine.

use crate::common::models;
use crate::common::parallel;
use crate::common::random::inputs;
use crate::trials::Skipped;
use crate::{gpu, say};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::reference::{Silent, run};
use adfuse::engine::Gpu;
use adfuse::fusion::Fp;
use adfuse::ir::op::Domain;
use adfuse::ir::{Function, Module};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Gradients of models.
fn cases() -> Vec<(String, Function)> {
    let mut all = Vec::new();
    for (name, module, f) in models::all() {
        let g = forward_and_backward(&module, &f, &differentiable(&f, None).expect("floats"));
        all.push((name, g.unwrap_or_else(|d| panic!("{d}"))));
    }
    all
}

pub(crate) fn bits_do_not_depend_on_what_runs_at_the_same_time() -> Result<(), Skipped> {
    let gpu = gpu()?;
    let branched = AtomicUsize::new(0);
    let cases = cases();
    parallel::each(&cases, |(name, f)| {
        let module = Module::single(f.clone());
        let args = inputs(f, &[Domain::Normal]);
        for fp in [Fp::Strict, Fp::Fast] {
            let engine = |branches: bool| {
                let mut own = Gpu { branches, ..Gpu::clone(&gpu) };
                own.plan.fp = fp;
                own.compile(&module, f).unwrap_or_else(|d| panic!("{name}: {d}"))
            };
            let (with, without) = (engine(true), engine(false));
            assert!(
                with.executable.memory().peak() <= without.executable.memory().peak(),
                "{name}: a higher peak"
            );
            let due = without.executable.run(&args).expect("runs");
            if fp == Fp::Strict {
                let reference = run(&module, f, &args, &mut Silent).expect("runs");
                assert_eq!(due, reference, "{name}");
            }
            for turn in 0..4 {
                let found = with.executable.run(&args).expect("runs");
                assert_eq!(found, due, "{name}, {fp:?}, run {turn}");
            }
            branched.fetch_add(usize::from(with.executable.has_branches()), Ordering::Relaxed);
        }
    });
    let branched = branched.into_inner();
    say(&format!("branches: {branched} of {} graphs have some", 2 * cases.len()));
    assert!(branched > cases.len() / 2);
    Ok(())
}
