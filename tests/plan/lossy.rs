//! Lossy copies: within the declared bound, without effect on the bits of the forward pass, with effect only on
//! gradients that read copies, and only on request. `ADFUSE_PROGRAMS` sets how many random programs (60 by default).

use super::gradients::{evaluate, prepared_gradient};
use crate::common::programs::decode;
use crate::common::random::{self, inputs};
use crate::common::{models, parallel, thorough};
use adfuse::backends::Array;
use adfuse::backends::reference::kernel;
use adfuse::engine::Cpu;
use adfuse::fusion::{
    AnyEngine, Decider, Effort, Fp, Lossy, LossyCopy, MachineModel, Narrow, Plan, PlanOptions,
    ResidualChoice, keep_lossy, lossy_copies, lower, plan, plan_frontier, plan_point,
    planned_function, value_named,
};
use adfuse::ir::kernel::verify;
use adfuse::ir::op::Domain;
use adfuse::ir::rewrite::Copier;
use adfuse::ir::text::parse;
use adfuse::ir::{Builder, DType, Function, Kind, Module, Value, ValueDef};

fn options(effort: Effort) -> PlanOptions {
    PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict }
}

fn every(narrow: Narrow) -> Lossy {
    Lossy { every: Some(narrow), ..Lossy::default() }
}

/// The values that are computed from what is read back of copies.
fn reached(f: &Function) -> Vec<Value> {
    let copies: Vec<Value> = lossy_copies(f).iter().map(|c| c.copy).collect();
    let mut all = copies.clone();
    for &i in f.body_insts() {
        if f.args(i).iter().any(|a| all.contains(a)) {
            all.extend(f.inst_results(i));
        }
    }
    all
}

/// The function with what copies are of, and what they hold, as results.
fn with_copies(f: &Function) -> Function {
    let mut b = Builder::new(f.name.clone());
    let mut copier = Copier::new(f);
    copier.params(&mut b);
    f.body_insts().iter().for_each(|&i| {
        copier.inst(&mut b, i);
    });
    let mut results = f.results().to_vec();
    for LossyCopy { of, copy, .. } in lossy_copies(f) {
        results.extend([of, copy]);
    }
    let results: Vec<Value> = results.into_iter().map(|v| copier.get(&mut b, v)).collect();
    b.set_results(&results);
    b.finish().expect("is the function")
}

/// Checks that what is kept is within its bound of what it is kept of.
fn within_bounds(f: &Function, args: &[Array]) -> Result<(), String> {
    let copies = lossy_copies(f);
    let all = evaluate(&with_copies(f), args)?;
    let shown = &all[f.results().len()..];
    for (copy, both) in copies.iter().zip(shown.chunks(2)) {
        let bound = copy.narrow.bound();
        for (x, y) in both[0].to_f64s().into_iter().zip(both[1].to_f64s()) {
            let kept = match () {
                () if !x.is_finite() => x.is_nan() && y.is_nan() || x == y,
                () if x.abs() > bound.most => y == bound.most.copysign(x),
                () => (x - y).abs() <= (bound.relative * x.abs()).max(bound.absolute),
            };
            if !kept {
                return Err(format!("{x:e} is kept as {y:e} in {}", copy.narrow.name()));
            }
        }
    }
    Ok(())
}

/// Checks all that is promised of a prepared function; how many copies there are.
fn holds(f: &Function, narrow: Narrow, effort: Effort) -> Result<usize, String> {
    let options = options(effort);
    let kept = keep_lossy(f, &every(narrow), &options, &AnyEngine).map_err(|d| d.to_string())?;
    let g = &kept.function;
    let why = |m: String| format!("{m}\n{g}");
    let copies = lossy_copies(g);
    if copies.is_empty() {
        return if g.to_string() == f.to_string() {
            Ok(0)
        } else {
            Err(why("changed for nothing".into()))
        };
    }
    let args = inputs(f, &[Domain::Normal]);
    within_bounds(g, &args).map_err(why)?;
    let (plain, lossy) = (evaluate(f, &args)?, evaluate(g, &args)?);
    let reached = reached(g);
    for (k, &v) in g.results().iter().enumerate() {
        let primal = !matches!(g.def(v), ValueDef::Inst(i, _) if g.inst(i).phase.0 > 0);
        if (primal || !reached.contains(&v)) && plain[k] != lossy[k] {
            return Err(why(format!("result {k} moves, and no copy reaches it")));
        }
    }
    // Fewer bytes are saved, and the peak is no higher.
    let point = |f: &Function| {
        let made = plan(f, &options).and_then(|p| plan_point(f, p, &options, &AnyEngine));
        made.map_err(|d| d.to_string())
    };
    let (before, after) = (point(f)?, point(g)?);
    if after.saved >= before.saved || after.peak > before.peak {
        return Err(why(format!(
            "{} bytes saved and {} at the peak, {} and {} before",
            after.saved, after.peak, before.saved, before.peak
        )));
    }
    // A plan says what is kept, and the function is made of that again.
    let text = after.plan.text(g);
    let again = planned_function(f, &text).map_err(|d| why(d.to_string()))?;
    if again.to_string() != g.to_string() || Plan::parse(&text, &again) != Ok(after.plan.clone()) {
        return Err(why(format!("the plan is not one of what it says\n{text}\n{again}")));
    }
    if Plan::parse(&text, f).is_ok() {
        return Err(why("a plan with losses is taken for one without".into()));
    }
    // Whatever is planned, bits are those of the function.
    let frontier = plan_frontier(g, &options, &AnyEngine).map_err(|d| why(d.to_string()))?;
    let engine = Cpu { plan: options.clone(), ..Cpu::default() };
    for point in frontier.points() {
        let program = lower(g, &point.plan, &options.device).map_err(|d| why(d.to_string()))?;
        let program = verify(program).map_err(|e| why(e[0].to_string()))?;
        if kernel::run(&program, &args).map_err(|d| why(d.to_string()))? != lossy {
            return Err(why(format!("the evaluator has other bits\n{}", point.plan.text(g))));
        }
        let made = engine.of_program(program).map_err(|d| why(d.to_string()))?;
        if made.executable.run(&args).map_err(|d| why(d.to_string()))? != lossy {
            return Err(why(format!("the engine has other bits\n{}", point.plan.text(g))));
        }
    }
    Ok(copies.len())
}

#[test]
fn random_programs() {
    for (dtype, narrow) in [(DType::F32, Narrow::Bf16), (DType::F64, Narrow::F16)] {
        random::programs(37, 60, |steps| {
            let f = decode(steps, dtype);
            let g = prepared_gradient(&Module::single(f.clone()), &f)?;
            for effort in [Effort::Quick, Effort::Default] {
                holds(&g, narrow, effort)?;
            }
            Ok(())
        });
    }
}

#[test]
fn models() {
    let all: Vec<_> = models::all().into_iter().enumerate().collect();
    let copies = parallel::each(&all, |(k, (stem, module, f))| {
        let g = prepared_gradient(module, f).unwrap_or_else(|why| panic!("{stem}: {why}"));
        let of = |narrow| holds(&g, narrow, Effort::Default);
        // One of them each, in turns.
        let turn = |&(n, _): &(usize, Narrow)| n == k % Narrow::ALL.len() || thorough();
        let all = Narrow::ALL.into_iter().enumerate().filter(turn).map(|(_, narrow)| of(narrow));
        all.map(|n| n.unwrap_or_else(|why| panic!("{stem}: {why}"))).sum::<usize>()
    });
    let copies: usize = copies.into_iter().sum();
    assert!(copies > 10, "{copies} copies in all models");
}

/// A forward pass whose hidden layer is kept for the backward one.
const LAYERS: &str = "func @f(%x: f32[16,32], %w: f32[32,48], %v: f32[48,8]) -> f32[] {
  %h = dot_general %x, %w {contract = [1] x [0]} : f32[16,48]
  %t = tanh %h : f32[16,48]
  %y = dot_general %t, %v {contract = [1] x [0]} : f32[16,8]
  %q = mul %y, %y : f32[16,8]
  %l = reduce_sum %q {axes = [0, 1]} : f32[]
  return %l
}
";

fn layers() -> Function {
    let module = parse(LAYERS).unwrap_or_else(|e| panic!("{e:?}"));
    let f = module.funcs.values().next().expect("a function").clone();
    prepared_gradient(&module, &f).expect("differentiates")
}

#[test]
fn what_a_plan_keeps_takes_half_the_bytes() {
    let f = layers();
    let options = options(Effort::Default);
    let saved = |f: &Function| {
        let made = plan(f, &options).expect("has a lowering");
        plan_point(f, made, &options, &AnyEngine).expect("has a lowering").saved
    };
    let wanted = Lossy { named: vec![("%t".into(), Narrow::Bf16)], ..Lossy::default() };
    let kept = keep_lossy(&f, &wanted, &options, &AnyEngine).expect("keeps");
    assert!(kept.left.is_empty());
    let g = kept.function;
    assert_eq!(saved(&g) * 2, saved(&f), "{g}");
    // The decision says so.
    let made = plan(&g, &options).expect("has a lowering");
    let decider = Decider::of(&g, &made, &options, None, &AnyEngine).expect("has a lowering");
    let copy = lossy_copies(&g)[0];
    let decision = decider.decision(copy.copy).expect("has a lowering").expect("crosses");
    assert_eq!(decision.choice, ResidualChoice::Lossy(copy));
    assert_eq!(decider.decision(copy.of).expect("has a lowering"), None, "{g}");
}

#[test]
fn values_far_out_are_kept_as_far_as_the_type_goes() {
    let f = layers();
    let t = value_named(&f, "t").expect("the layer");
    for narrow in Narrow::ALL {
        let wanted = Lossy { named: vec![("%t".into(), narrow)], ..Lossy::default() };
        let kept = keep_lossy(&f, &wanted, &options(Effort::Default), &AnyEngine).expect("keeps");
        let g = kept.function;
        assert_eq!((lossy_copies(&g).len(), kept.left.len()), (1, 0), "{g}");
        // The copy alone, of whatever is given.
        let copy = lossy_copies(&g)[0];
        assert_eq!(f.name_of(t), g.name_of(copy.of));
        let hidden =
            g.to_string().replace("%t = tanh %h : f32[16,48]", "%t = add %h, 0.0 : f32[16,48]");
        let module = parse(&hidden).unwrap_or_else(|e| panic!("{e:?}\n{hidden}"));
        let g = module.funcs.values().next().expect("a function").clone();
        let far = [
            0.0f32,
            -0.0,
            1e-45,
            -3e-42,
            5.9e-8,
            6.1e-5,
            1.0,
            65504.0,
            65519.0,
            65520.0,
            -7e4,
            3.3895e38,
            -3.4028235e38,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
        ];
        let mut args = inputs(&g, &[Domain::Normal]);
        // Rows of %x times the first unit vectors are the numbers themselves.
        let x: Vec<f32> =
            (0..16 * 32).map(|k| if k % 32 == 0 { far[k / 32] } else { 0.0 }).collect();
        let w: Vec<f32> = (0..32 * 48).map(|k| f32::from(u8::from(k < 48))).collect();
        args[0] = Array::from_f32s(&[16, 32], &x).expect("fits");
        args[1] = Array::from_f32s(&[32, 48], &w).expect("fits");
        within_bounds(&g, &args).unwrap_or_else(|why| panic!("{why}\n{g}"));
    }
}

#[test]
fn what_cannot_be_kept_so_is_refused_by_name() {
    let f = layers();
    let refused = |name: &str| {
        let wanted = Lossy { named: vec![(name.into(), Narrow::F16)], ..Lossy::default() };
        keep_lossy(&f, &wanted, &options(Effort::Default), &AnyEngine).expect_err("refused")
    };
    for (name, kind, why) in [
        ("%nothing", Kind::UnknownName, "no value"),
        ("%x", Kind::Usage, "nothing computes it"),
        ("%q", Kind::Usage, "no later phase reads it"),
    ] {
        let d = refused(name);
        assert_eq!(d.kind, kind, "{d}");
        assert!(d.message.contains(why), "{d}");
    }
    let nothing = keep_lossy(&f, &Lossy::default(), &options(Effort::Default), &AnyEngine);
    assert_eq!(nothing.expect("nothing to do").function.to_string(), f.to_string());
}
