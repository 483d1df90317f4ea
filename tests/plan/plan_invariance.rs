//! Plans under budgets: whatever a plan saves or recomputes, results have the same bits on the kernel evaluator and as
//! machine code, no plan exceeds its budget, and a larger budget is never slower. `ADFUSE_PROGRAMS` sets how many
//! random programs (60 by default).

use crate::common::programs::decode;
use crate::common::random::{self, inputs};
use crate::common::{models, parallel};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::backends::cpu::ArenaLayout;
use adfuse::backends::reference::{Silent, kernel, run};
use adfuse::engine::Cpu;
use adfuse::fusion::{
    Alternative, AnyEngine, Constraint, Decision, Effort, Fp, MachineModel, Plan, PlanFrontier,
    PlanOptions, decisions, lower, plan, plan_point, prepare,
};
use adfuse::ir::kernel::{Program, Storage, verify};
use adfuse::ir::op::Domain;
use adfuse::ir::{DType, Function, Module};
use std::sync::Arc;

fn options(effort: Effort) -> PlanOptions {
    PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict }
}

/// Programs of one function that gave its bits, with what is planned for each and the bytes that it held:
/// what efforts have in common is not run again.
#[derive(Default)]
pub(super) struct Checked {
    evaluated: Vec<Program>,
    executed: Vec<(Program, ArenaLayout, u64)>,
}

/// A plan gives the expected bits on the kernel evaluator and on the engine, which holds no more than
/// `peak` bytes.
fn gives(
    f: &Function,
    plan: &Plan,
    peak: u64,
    engine: &Cpu,
    (args, expected): (&[Array], &[Array]),
    checked: &mut Checked,
) -> Result<(), String> {
    let why = |m: String| format!("{m}\n{}\n{f}", plan.text(f));
    let program = lower(f, plan, &engine.plan.device).map_err(|d| why(d.to_string()))?;
    let program = verify(program).map_err(|e| why(e[0].to_string()))?;
    let (planned, layout) = engine.layout(&program).map_err(|d| why(d.to_string()))?;
    if !checked.evaluated.contains(&program) {
        let found = kernel::run(&program, args).map_err(|d| why(d.to_string()))?;
        if found != expected {
            return Err(why(format!("{found:?} is not {expected:?}")));
        }
        checked.evaluated.push((*program).clone());
    }
    let known = checked.executed.iter().find(|(p, l, _)| *p == *program && *l == layout);
    let held = match known {
        Some(&(.., held)) => held,
        None => {
            let executed = (*program).clone();
            let made = engine.of_program(program).map_err(|d| why(d.to_string()))?;
            let found = made.executable.run(args).map_err(|d| why(d.to_string()))?;
            if found != expected {
                return Err(why(format!("as machine code {found:?} is not {expected:?}")));
            }
            let held = made.executable.memory().peak();
            checked.executed.push((executed, layout, held));
            held
        }
    };
    if held > peak || planned.peak > peak {
        return Err(why(format!("{held} bytes held, {} planned, {peak} said", planned.peak)));
    }
    Ok(())
}

/// The plan with its temporaries in other forms that lose nothing: as they are, and in each wider one.
fn stored(plan: &Plan) -> Vec<Plan> {
    let forms = [Storage::Plain, Storage::Packed(4), Storage::Packed(8)];
    let wider = |form: Storage| {
        let storage = plan.storage.iter().map(|&(v, own)| match (own, form) {
            (Storage::Packed(1), Storage::Packed(_)) => (v, own),
            (Storage::Packed(a), Storage::Packed(b)) if a > b => (v, own),
            _ => (v, form),
        });
        Plan { storage: storage.collect(), ..plan.clone() }
    };
    let mut all: Vec<Plan> = forms.into_iter().map(wider).collect();
    all.retain(|other| other != plan);
    all.dedup();
    all
}

/// Every point of the frontier gives the bits of the reference engine, within what it says it takes, and
/// so does what 20 budgets choose.
pub(super) fn holds(
    f: &Function,
    effort: Effort,
    checked: &mut Checked,
) -> Result<Arc<PlanFrontier>, String> {
    let f = prepare(&Module::single(f.clone()), f).map_err(|d| d.to_string())?;
    let args = inputs(&f, &[Domain::Normal]);
    let expected = run(&Module::single(f.clone()), &f, &args, &mut Silent);
    let expected = expected.map_err(|d| d.to_string())?;
    let options = options(effort);
    let engine = Cpu { plan: options.clone(), threads: 2, ..Cpu::default() };
    let frontier = models::frontier(&f, &options, Some(&engine)).map_err(|d| d.to_string())?;
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
        let again = Plan::parse(&text, &f).map_err(|d| why(d.to_string()))?;
        if again != point.plan {
            return Err(why("does not read back".into()));
        }
        gives(&f, &point.plan, point.peak, &engine, (&args, &expected), checked)?;
        for other in stored(&point.plan) {
            let other = plan_point(&f, other, &options, &engine).map_err(|d| why(d.to_string()))?;
            gives(&f, &other.plan, other.peak, &engine, (&args, &expected), checked)?;
        }
        let at = frontier.at(point.peak).map_err(|d| why(d.to_string()))?;
        if at.peak != point.peak {
            return Err(why(format!("{} bytes for {}", at.peak, point.peak)));
        }
    }
    let least = frontier.points()[0].peak;
    let most = frontier.points().last().map_or(least, |p| p.peak);
    let (mut random, mut slowest): (u64, Vec<(u64, f64)>) = (least | 1, Vec::new());
    for _ in 0..20 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let budget = least + (random >> 33) % (most - least + 1);
        let chosen = frontier.at(budget).map_err(|d| d.to_string())?;
        if chosen.peak > budget {
            return Err(format!("{} bytes for {budget}\n{f}", chosen.peak));
        }
        slowest.push((budget, chosen.seconds));
    }
    slowest.sort_by_key(|(budget, _)| *budget);
    if !slowest.is_sorted_by(|a, b| a.1 >= b.1) {
        return Err(format!("a looser budget is slower: {slowest:?}\n{f}"));
    }
    let refused = frontier.at(least - 1).map(|p| p.peak).expect_err("less than the least");
    assert!(refused.message.contains(&least.to_string()), "{refused}");
    Ok(frontier)
}

fn gradients(module: &Module, f: &Function) -> Result<Function, String> {
    let wrt = differentiable(f, None).map_err(|d| d.to_string())?;
    forward_and_backward(module, f, &wrt).map_err(|d| d.to_string())
}

#[test]
fn random_programs() {
    for dtype in [DType::F32, DType::BF16] {
        // The seed of other tests of frontiers, which share them.
        random::programs(31, 60, |steps| {
            let f = decode(steps, dtype);
            let g = gradients(&Module::single(f.clone()), &f)?;
            let mut checked = Checked::default();
            for effort in [Effort::Off, Effort::Quick, Effort::Default] {
                holds(&g, effort, &mut checked)?;
            }
            // A search takes as long as twenty of the others.
            if steps.iter().map(|s| s.0 as usize).sum::<usize>() % 20 == 0 {
                holds(&g, Effort::Search, &mut checked)?;
            }
            Ok(())
        });
    }
}

#[test]
fn models() {
    let several = parallel::each(&models::all(), |(stem, module, f)| {
        let g = gradients(module, f).expect("differentiates");
        let mut checked = Checked::default();
        let mut at =
            |effort| holds(&g, effort, &mut checked).unwrap_or_else(|why| panic!("{stem}: {why}"));
        at(Effort::Off);
        at(Effort::Quick);
        let several = at(Effort::Default).points().len() > 1;
        // A search of long functions takes as long as all the rest.
        if g.inst_count() < 60 {
            at(Effort::Search);
        }
        several
    });
    let several = several.into_iter().filter(|&several| several).count();
    assert!(several > 4, "{several} models have a choice");
}

/// The fastest plan of a frontier is not beaten by one that decides otherwise about one value, where
/// there are few enough to try. Where kernels share a launch, which is decided last, times move by a fraction of one.
#[test]
fn no_other_decision_about_one_value_is_faster() {
    let options = options(Effort::Default);
    let (mut asked, mut greedy) = (0, 0);
    for (stem, module, f) in models::all() {
        let g = gradients(&module, &f).expect("differentiates");
        let f = prepare(&Module::single(g.clone()), &g).expect("prepares");
        if f.inst_count() > 60 {
            continue;
        }
        let faster = |plan: &Plan| {
            let all = decisions(&f, plan, &options, None, &AnyEngine).expect("has a lowering");
            let seconds = |d: &Decision| match &d.other {
                Alternative::Keep(d) | Alternative::Remat(d) => d.seconds,
                Alternative::None(_) | Alternative::NotPriced => 0.0,
            };
            let shares = plan.groups.iter().any(|group| group.parts.len() > 1);
            let least = if shares { 0.05 * options.device.launch_s } else { 0.0 };
            let gain = |d: &Decision| seconds(d) < -least;
            let bounds = [Constraint::Search, Constraint::Slight];
            let faster = all.iter().filter(|d| bounds.contains(&d.bound) && gain(d));
            faster.count()
        };
        let frontier = models::frontier(&f, &options, None).expect("has a lowering");
        let fastest = frontier.fastest().expect("a plan");
        assert_eq!(faster(&fastest.plan), 0, "{stem}\n{}\n{f}", fastest.plan.text(&f));
        greedy += faster(&plan(&f, &options).expect("has a lowering"));
        asked += 1;
    }
    assert!(asked > 10 && greedy > 0, "{asked} models, {greedy} decisions of greedy plans");
}
