//! Budgets of the time to compile: the fastest plan within one is taken, or nothing is made.

use crate::common::{layers, models};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::engine::Cpu;
use adfuse::fusion::{
    AnyEngine, Effort, Fp, MachineModel, PlanBudget, PlanOptions, compile_cost, lower,
    plan_frontier, prepare,
};
use adfuse::ir::{Function, Kind};
use std::time::Duration;

fn options(effort: Effort) -> PlanOptions {
    PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict }
}

fn gradients_of(name: &str) -> Function {
    let (_, module, f) =
        models::all().into_iter().find(|(stem, ..)| stem == name).expect("is there");
    let wrt = differentiable(&f, None).expect("has parameters");
    let g = forward_and_backward(&module, &f, &wrt).expect("differentiates");
    prepare(&module, &g).expect("is prepared")
}

/// At every budget between the least and the most that plans take, alone and beside budgets of memory: what is chosen is
/// within it, and no larger budget has a slower plan.
#[test]
fn larger_budgets_are_never_slower() {
    for f in [gradients_of("transformer_block"), gradients_of("recurrent"), layers::gradients(3)] {
        let options = options(Effort::Default);
        let frontier = plan_frontier(&f, &options, &AnyEngine).expect("is planned");
        let all = || frontier.points().iter().map(|point| point.compile.seconds);
        let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
        for memory in frontier.points().iter().map(|point| Some(point.peak)).chain([None]) {
            let mut last = f64::INFINITY;
            for k in 0..=8 {
                let seconds = least * 0.5 + (most - least * 0.5) * f64::from(k) / 8.0;
                let budget = PlanBudget { memory, compile_seconds: Some(seconds) };
                let Ok(point) = frontier.within(&budget) else {
                    assert!(last.is_infinite(), "a larger budget has no plan");
                    continue;
                };
                assert!(budget.has_room_for(point) && point.seconds <= last);
                last = point.seconds;
                // It is what the program says of itself.
                let program = lower(&f, &point.plan, &options.device).expect("is lowered");
                assert_eq!(compile_cost(&program, &options.device), point.compile);
            }
            assert!(last.is_finite());
        }
        let fastest = frontier.within(&PlanBudget::default()).expect("there is one");
        assert_eq!(Some(fastest.seconds), frontier.fastest().map(|point| point.seconds));
    }
}

#[test]
fn a_session_keeps_the_budget_or_says_the_least() {
    let f = layers::gradients(3);
    let module = adfuse::ir::Module::single(f.clone());
    let with = |most: Duration| Cpu { compile_budget: Some(most), ..Cpu::default() };
    assert!(with(Duration::from_secs(10)).compile(&module, &f).is_ok());
    let refused = with(Duration::from_nanos(1)).compile(&module, &f).expect_err("is too little");
    assert_eq!(refused.kind, Kind::Limit);
    assert!(refused.message.contains("the least takes"), "{refused}");
}
