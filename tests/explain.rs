//! Explanations of plans: every pair of values of random programs and their gradients has one, and it
//! is what the plan says. `ADFUSE_PROGRAMS` sets how many programs (40 by default).

mod common;

use adfuse::autodiff::{differentiable, value_and_grad};
use adfuse::fusion::{
    Device, Effort, Explainer, Fp, Obstacle, Options, Plan, Role, candidates, plan, prepare,
};
use adfuse::ir::{DType, Function, Inst, Module};
use common::count_from_env;
use common::programs::{Step, decode};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// The group of a plan that has an instruction as a member.
fn group(plan: &Plan, i: Inst) -> Option<usize> {
    plan.groups.iter().position(|g| g.parts.iter().any(|p| p.contains(&i)))
}

/// What holds of the explanations of a plan.
fn consistent(f: &Function, options: &Options) -> Result<(), String> {
    let plan = plan(f, options).map_err(|d| d.to_string())?;
    let device = &options.device;
    let explainer = Explainer::new(f, &plan, device).map_err(|d| d.to_string())?;
    for &i in f.body_insts() {
        for &j in f.body_insts() {
            let (a, b) = (f.inst_results(i)[0], f.inst_results(j)[0]);
            let found = explainer.explain(a, b);
            let fail = |why: &str| Err(format!("{why}: {found:?}\n{}", plan.text(f)));
            let homes = [group(&plan, i), group(&plan, j)];
            if let [Some(g), Some(h)] = homes
                && (g == h) != found.together.iter().any(|t| t.group == g)
            {
                return fail("together is not what the plan says");
            }
            for (k, home) in homes.into_iter().enumerate() {
                if home.is_some_and(|g| found.groups[k] != [g]) {
                    return fail("the groups are not those of the plan");
                }
                let written = plan.inline.contains(&[i, j][k]);
                if found.together.iter().any(|t| (t.roles[k] == Role::Written) != written) {
                    return fail("what is written out is not what the plan says");
                }
            }
            if found.together.is_empty() == found.apart.is_empty() {
                return fail("neither together nor apart, or both");
            }
            if found.apart.iter().any(|a| matches!(a.obstacle, Obstacle::Refused(_)))
                && found.apart.iter().any(|a| a.group.is_none())
            {
                return fail("a refusal by no group");
            }
        }
        // Sentences take a name for every value: once an instruction is enough.
        let (a, b) = (f.inst_results(i)[0], f.inst_results(f.body_insts()[0])[0]);
        let lines = explainer.explain(a, b).lines(f, &plan, device);
        if lines.len() < 2 || lines.iter().any(|l| l.is_empty() || l.contains("% ")) {
            return Err(format!("no answer: {lines:?}"));
        }
    }
    let found = candidates(f, &plan, device).map_err(|d| d.to_string())?;
    for c in &found {
        let shares = [c.score, c.saved_share(), c.launch_share];
        if shares.iter().any(|x| !(0.0..=1.0).contains(x)) || c.values.len() < 2 {
            return Err(format!("no candidate: {c:?}"));
        }
    }
    Ok(())
}

#[test]
fn every_pair_of_values_has_an_explanation() {
    let cases = count_from_env("ADFUSE_PROGRAMS", 40);
    let config =
        Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    // One seed, so that a failure in one place is a failure everywhere.
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[14; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let steps = prop::collection::vec(any::<Step>(), 1..24);
    let outcome = runner.run(&steps, |steps| {
        let f = decode(&steps, DType::F32);
        let property = || -> Result<(), String> {
            let wrt = differentiable(&f, None).map_err(|d| d.to_string())?;
            let module = Module::single(f.clone());
            let g = value_and_grad(&module, &f, &wrt).map_err(|d| d.to_string())?;
            for f in [&f, &g] {
                let module = Module::single(f.clone());
                let f = prepare(&module, f).map_err(|d| d.to_string())?;
                for effort in [Effort::Off, Effort::Default] {
                    let device = Device::h200();
                    consistent(&f, &Options { device, effort, fp: Fp::Strict })
                        .map_err(|why| format!("{effort:?}: {why}\n{f}"))?;
                }
            }
            Ok(())
        };
        property().map_err(TestCaseError::fail)
    });
    if let Err(e) = outcome {
        panic!("{e}");
    }
}
