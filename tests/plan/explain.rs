//! Explanations: every pair of values of random programs and their gradients has one, and it agrees with the plan, also
//! if the plan recomputes instructions. `ADFUSE_PROGRAMS` sets how many programs (40 by default).

use crate::common::programs::{Step, decode};
use crate::common::{count_from_env, models, parallel, thorough};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::fusion::{
    Effort, Explainer, Fp, Group, GroupRole, MachineModel, Obstacle, Occurrences, Plan,
    PlanOptions, candidates, plan, prepare,
};
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Inst, Module};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::path::Path;

/// The groups of a plan that have an instruction as a member.
fn groups(plan: &Plan, i: Inst) -> Vec<usize> {
    let has = |g: &Group| g.parts.iter().any(|p| p.contains(&i));
    (0..plan.groups.len()).filter(|&g| has(&plan.groups[g])).collect()
}

/// What holds of the explanations of a plan.
fn consistent(f: &Function, plan: &Plan, device: &MachineModel) -> Result<(), String> {
    let planned = Occurrences::of(f, plan).map_err(|d| d.to_string())?;
    let explainer = Explainer::new(&planned, device).map_err(|d| d.to_string())?;
    for &i in f.body_insts() {
        for &j in f.body_insts() {
            let (a, b) = (f.inst_results(i)[0], f.inst_results(j)[0]);
            let found = explainer.explain(a, b);
            let fail = |why: &str| Err(format!("{why}: {found:?}\n{}", plan.text(f)));
            let homes = [groups(plan, i), groups(plan, j)];
            let written = [i, j].map(|i| plan.inline.contains(&i));
            let both: Vec<usize> =
                homes[0].iter().filter(|g| homes[1].contains(g)).copied().collect();
            let together: Vec<usize> = found.together.iter().map(|t| t.group).collect();
            if written == [false; 2] && together != both {
                return fail("together is not what the plan says");
            }
            for (k, home) in homes.into_iter().enumerate() {
                if !written[k] && found.groups[k] != home {
                    return fail("the groups are not those of the plan");
                }
                let written = written[k];
                if found.together.iter().any(|t| (t.roles[k] == GroupRole::Written) != written) {
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
        let lines = explainer.explain(a, b).lines(f, plan, device, "");
        if lines.len() < 2 || lines.iter().any(|l| l.is_empty() || l.contains("% ")) {
            return Err(format!("no answer: {lines:?}"));
        }
    }
    let found = candidates(f, plan, device).map_err(|d| d.to_string())?;
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
            let g = forward_and_backward(&module, &f, &wrt).map_err(|d| d.to_string())?;
            for f in [&f, &g] {
                let module = Module::single(f.clone());
                let f = prepare(&module, f).map_err(|d| d.to_string())?;
                for effort in [Effort::Off, Effort::Default] {
                    let device = MachineModel::h200();
                    let options = PlanOptions { device, effort, fp: Fp::Strict };
                    let plan = plan(&f, &options).map_err(|d| d.to_string())?;
                    consistent(&f, &plan, &options.device)
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

#[test]
fn plans_that_compute_again_have_explanations() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models");
    let options =
        PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp: Fp::Strict };
    let mut again = 0;
    for model in ["deep_mlp", "recurrent", "mlp_relu", "residual_layer_norm_bf16"] {
        let text = std::fs::read_to_string(folder.join(format!("{model}.ir"))).expect("a model");
        let module = parse(&text).expect("parses");
        let f = module.find(model).expect("the model's function");
        let wrt = differentiable(f, None).expect("has floats");
        let g = forward_and_backward(&module, f, &wrt).expect("has a gradient");
        let f = prepare(&Module::single(g.clone()), &g).expect("is prepared");
        let frontier = models::frontier(&f, &options, None).expect("is planned");
        again += frontier.points().iter().filter(|p| !p.again.is_empty()).count();
        // Neighbours differ by little: eight of them, the first and the last among these.
        let last = frontier.points().len() - 1;
        let step = if thorough() { 1 } else { last.div_ceil(7).max(1) };
        let some = (0..last).step_by(step).chain([last]).map(|k| &frontier.points()[k]);
        parallel::each(&some.collect::<Vec<_>>(), |point| {
            consistent(&f, &point.plan, &options.device).unwrap_or_else(|e| panic!("{model}: {e}"));
        });
    }
    assert!(again > 5, "{again} plans compute something again");
}
