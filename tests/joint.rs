//! Plans under budgets: whatever is kept or computed again, the results have the same bits, no plan
//! takes more than its budget, and a looser budget is never slower. `ADFUSE_PROGRAMS` sets how many
//! random programs (100 by default).

mod common;

use adfuse::autodiff::{differentiable, value_and_grad};
use adfuse::backends::reference::{Silent, kernel, run};
use adfuse::fusion::{
    AnyEngine, Device, Effort, Fp, Options, PlanFrontier, lower, memory, plan_frontier, prepare,
};
use adfuse::ir::kernel::verify;
use adfuse::ir::op::Domain;
use adfuse::ir::{DType, Function, Module};
use common::models;
use common::programs::decode;
use common::random::{self, inputs};

fn options(effort: Effort) -> Options {
    Options { device: Device::cpu(), effort, fp: Fp::Strict }
}

/// Every point of the frontier gives the bits of the reference engine, within what it says it takes.
fn holds(f: &Function, effort: Effort) -> Result<PlanFrontier, String> {
    let f = prepare(&Module::single(f.clone()), f).map_err(|d| d.to_string())?;
    let args = inputs(&f, &[Domain::Normal]);
    let expected = run(&Module::single(f.clone()), &f, &args, &mut Silent);
    let expected = expected.map_err(|d| d.to_string())?;
    let options = options(effort);
    let frontier = plan_frontier(&f, &options, &AnyEngine).map_err(|d| d.to_string())?;
    let mut last = None;
    for point in frontier.points() {
        let why = |m: String| format!("{m}\n{}\n{f}", point.plan.text(&f));
        if let Some((peak, seconds)) = last
            && (point.peak <= peak || point.seconds >= seconds)
        {
            return Err(why(format!("{} bytes in {} s after {peak}", point.peak, point.seconds)));
        }
        last = Some((point.peak, point.seconds));
        let text = point.plan.text(&f);
        let again = adfuse::fusion::Plan::parse(&text, &f).map_err(|d| why(d.to_string()))?;
        if again != point.plan {
            return Err(why("does not read back".into()));
        }
        let program = lower(&f, &point.plan, &options.device).map_err(|d| why(d.to_string()))?;
        let program = verify(program).map_err(|e| why(e[0].to_string()))?;
        let planned = memory(&program, effort).map_err(|d| why(d.to_string()))?;
        if planned.peak > point.peak {
            return Err(why(format!("{} bytes planned, {} said", planned.peak, point.peak)));
        }
        let found = kernel::run(&program, &args).map_err(|d| why(d.to_string()))?;
        if found != expected {
            return Err(why(format!("{found:?} is not {expected:?}")));
        }
        let at = frontier.at(point.peak).map_err(|d| why(d.to_string()))?;
        if at.peak != point.peak {
            return Err(why(format!("{} bytes for {}", at.peak, point.peak)));
        }
    }
    let least = frontier.points()[0].peak;
    let refused = frontier.at(least - 1).map(|p| p.peak).expect_err("less than the least");
    assert!(refused.message.contains(&least.to_string()), "{refused}");
    Ok(frontier)
}

fn gradients(module: &Module, f: &Function) -> Result<Function, String> {
    let wrt = differentiable(f, None).map_err(|d| d.to_string())?;
    value_and_grad(module, f, &wrt).map_err(|d| d.to_string())
}

#[test]
fn random_programs() {
    for dtype in [DType::F32, DType::BF16] {
        random::programs(29, 100, |steps| {
            let f = decode(steps, dtype);
            let g = gradients(&Module::single(f.clone()), &f)?;
            for effort in [Effort::Off, Effort::Quick, Effort::Default] {
                holds(&g, effort)?;
            }
            Ok(())
        });
    }
}

#[test]
fn models() {
    let mut several = 0;
    for (stem, module, f) in models::all() {
        let g = gradients(&module, &f).expect("differentiates");
        let frontier = holds(&g, Effort::Default);
        let frontier = frontier.unwrap_or_else(|why| panic!("{stem}: {why}"));
        several += usize::from(frontier.points().len() > 1);
    }
    assert!(several > 4, "{several} models have a choice");
}
