//! Effects in plans: what is printed is printed once and in the order of the program, whatever a plan recomputes, at every
//! effort and for every budget. A plan that repeats or reorders effects is refused.

use crate::common::effects::{Printed, printing};
use crate::common::programs::decode;
use crate::common::random::{self, inputs};
use crate::common::{models, parallel};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::backends::ScopedEffects;
use adfuse::backends::reference::{kernel, run};
use adfuse::engine::Cpu;
use adfuse::fusion::{
    AnyEngine, Effort, Fp, Group, MachineModel, Plan, PlanOptions, lower, plan, plan_frontier,
    prepare, recomputed_values,
};
use adfuse::ir::attrs::{Attr, Attrs};
use adfuse::ir::kernel::verify;
use adfuse::ir::op::Domain;
use adfuse::ir::rewrite::Copier;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Inst, Module, Op};

/// The function with prints of some of its values, in two chains that know nothing of each other.
fn told(f: &Function, mut seed: u64) -> Function {
    let mut copier = Copier::new(f);
    let mut b = copier.begin();
    let mut chains = [(); 2].map(|()| b.op(Op::CreateToken, &[]));
    for &i in f.body_insts() {
        copier.inst(&mut b, i);
        b.follow(f, i);
        for &v in f.inst_results(i).iter().filter(|&&v| f.ty(v).dtype != DType::Token) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if !(seed >> 33).is_multiple_of(3) {
                continue;
            }
            let (chain, label) = ((seed >> 40) as usize % 2, format!("v{}", v.as_u32()));
            let value = copier.get(&mut b, v);
            let attrs = Attrs::none().with("label", Attr::Str(label));
            chains[chain] = b.op_with(Op::DebugPrint, &[chains[chain], value], attrs);
        }
    }
    copier.finish(b).expect("is well formed")
}

fn options(effort: Effort) -> PlanOptions {
    PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict }
}

/// Results and prints, as the reference engine has them.
type Due = (Vec<Array>, Printed);

fn gives(f: &Function, plan: &Plan, args: &[Array], due: &Due) -> Result<(), String> {
    let why = |m: String| format!("{m}\n{}\n{f}", plan.text(f));
    let options = options(Effort::Default);
    let program = lower(f, plan, &options.device).map_err(|d| why(d.to_string()))?;
    let program = verify(program).map_err(|e| why(e[0].to_string()))?;
    let engine = Cpu { plan: options, threads: 2, ..Cpu::default() };
    let made = engine.of_program(program.clone()).map_err(|d| why(d.to_string()))?.executable;
    let runs = [
        printing(|| kernel::run(&program, args)),
        printing(|| made.run(args)),
        printing(|| made.run(args)),
    ];
    for (results, printed) in runs {
        let found = (results.map_err(|d| why(d.to_string()))?, printed);
        if found != *due {
            return Err(why(format!("{found:?} is not {due:?}")));
        }
    }
    Ok(())
}

/// Every plan prints what the reference engine does: how many of them recompute something.
fn holds(f: &Function, efforts: &[Effort]) -> Result<usize, String> {
    let f = prepare(&Module::single(f.clone()), f).map_err(|d| d.to_string())?;
    let args = inputs(&f, &[Domain::Normal]);
    let module = Module::single(f.clone());
    let (results, printed) = printing(|| run(&module, &f, &args, &mut ScopedEffects));
    let due = (results.map_err(|d| d.to_string())?, printed);
    let mut again = 0;
    let mut seen: Vec<Plan> = Vec::new();
    for &effort in efforts {
        // A search goes on from every point of a frontier: that of the plan is enough.
        let of = if effort == Effort::Search { Effort::Off } else { effort };
        let frontier = plan_frontier(&f, &options(of), &AnyEngine).map_err(|d| d.to_string())?;
        let fastest = plan(&f, &options(effort)).map_err(|d| d.to_string())?;
        let every = frontier.points().len().div_ceil(4);
        let points = frontier.points().iter().step_by(every).map(|p| p.plan.clone());
        for plan in points.chain([fastest]) {
            if seen.contains(&plan) {
                continue;
            }
            gives(&f, &plan, &args, &due)?;
            again += usize::from(!recomputed_values(&f, &plan).is_empty());
            seen.push(plan);
        }
    }
    Ok(again)
}

fn gradients(module: &Module, f: &Function) -> Function {
    let wrt = differentiable(f, None).expect("has floats");
    forward_and_backward(module, f, &wrt).expect("differentiates")
}

#[test]
fn models_print_once_whatever_is_recomputed() {
    let all: Vec<_> = models::all().into_iter().step_by(3).collect();
    let again = parallel::each(&all, |(stem, module, f)| {
        let g = prepare(module, &gradients(module, f)).expect("prepares");
        let efforts = [Effort::Off, Effort::Default];
        holds(&told(&g, 7), &efforts).unwrap_or_else(|why| panic!("{stem}: {why}"))
    });
    assert!(again.iter().sum::<usize>() > 5, "{again:?} plans recompute something");
}

#[test]
fn random_programs_print_once() {
    random::programs(31, 6, |steps| {
        let f = decode(steps, DType::F32);
        let g = gradients(&Module::single(f.clone()), &f);
        let efforts = [Effort::Off, Effort::Quick, Effort::Default, Effort::Search];
        holds(&told(&g, steps.len() as u64), &efforts).map(drop)
    });
}

const CHAINS: &str = "func @f(%x: f32[64]) -> f32[64] {
  %t = create_token : token
  %u = create_token : token
  %a = debug_print %t, %x {label = \"a\"} : token
  %y = exp %x : f32[64]
  %b = debug_print %u, %y {label = \"b\"} : token
  return %y
}
";

/// Effects of two chains keep the order of the program, although no token orders them.
#[test]
fn plans_that_repeat_or_reorder_effects_are_refused() {
    let module = parse(CHAINS).expect("parses");
    let f = prepare(&module, module.find("f").expect("is there")).expect("prepares");
    let good = plan(&f, &options(Effort::Default)).expect("plans");
    let at = |label: &str| {
        let prints = |g: &Group| {
            g.parts
                .iter()
                .flatten()
                .any(|&i: &Inst| f.attrs(i).iter().any(|(_, a)| *a == Attr::Str(label.into())))
        };
        good.groups.iter().position(prints).expect("a group of its own")
    };
    let (a, b) = (at("a"), at("b"));
    let refused = |groups: Vec<Group>| {
        let plan = Plan { groups, ..good.clone() };
        lower(&f, &plan, &options(Effort::Default).device).expect_err("is refused").message
    };
    let mut swapped = good.groups.clone();
    let first = swapped.remove(a);
    swapped.insert(b, first);
    assert_eq!(refused(swapped), "the plan changes the order of effects and exchanges");
    let mut twice = good.groups.clone();
    twice.push(twice[a].clone());
    assert_eq!(refused(twice), "an effect or an exchange happens once, and the plan repeats it");
    let mut never = good.groups.clone();
    never.remove(a);
    assert_eq!(refused(never), "no group of the plan computes this");
}
