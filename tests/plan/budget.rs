//! Budgets of the engine `cpu`: no executable holds more than its budget, whatever it is, and all give
//! the same bits. `ADFUSE_PROGRAMS` sets how many random programs (40 by default).

use crate::common::programs::decode;
use crate::common::random::{self, inputs};
use crate::common::{control, models, parallel, thorough};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::reference::{Silent, run};
use adfuse::budget::choose;
use adfuse::engine::Cpu;
use adfuse::fusion::{
    self, BudgetPoint, Effort, EngineModel, Fp, LoopChoice, Lossy, MachineModel, Narrow, Plan,
    PlanOptions, budget_frontier, graph_hash, lower, plan_for, plan_point, prepare,
};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Diagnostic, Function, Kind, Module};
use adfuse::plan_cache::PlanCache;
use std::path::{Path, PathBuf};

fn cpu(effort: Effort) -> Cpu {
    let plan = fusion::PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict };
    Cpu { plan, threads: 2, ..Cpu::default() }
}

fn gradient(module: &Module, f: &Function) -> Result<Function, String> {
    let wrt = differentiable(f, None).map_err(|d| d.to_string())?;
    forward_and_backward(module, f, &wrt).map_err(|d| d.to_string())
}

/// Instructions from which on the whole path, which makes the frontier again, is not asked.
const LONG: usize = 80;

/// Twenty budgets from below the least peak to above the highest keep their promise; how many different
/// peaks there were.
fn kept(g: &Function, effort: Effort, seed: u64) -> Result<usize, String> {
    let module = Module::single(g.clone());
    let f = prepare(&module, g).map_err(|d| d.to_string())?;
    let args = inputs(&f, &[Domain::Normal]);
    let expected = run(&Module::single(f.clone()), &f, &args, &mut Silent);
    let expected = expected.map_err(|d| d.to_string())?;
    let free = cpu(effort);
    let frontier = models::frontier(&f, &free.plan, Some(&free)).map_err(|d| d.to_string())?;
    let points = frontier.points();
    // A budget that excludes nothing gives the plan without a budget, or a faster one.
    let alone = fusion::plan_for(&f, &free.plan, &free).map_err(|d| d.to_string())?;
    let alone = plan_point(&f, alone, &free.plan, &free).map_err(|d| d.to_string())?;
    let fastest = &points[points.len() - 1];
    if fastest.seconds > alone.seconds * (1.0 + 1e-9) {
        let (with, without) = (fastest.plan.text(&f), alone.plan.text(&f));
        return Err(format!("slower with a budget:\n{with}\nthan without:\n{without}\n{f}"));
    }
    // One kernel for each instruction shares no launch, with a budget either.
    if effort == Effort::Off
        && points.iter().any(|p| p.plan.groups.iter().any(|g| g.parts.len() > 1))
    {
        return Err(format!("effort off bundles kernels of\n{f}"));
    }
    let (least, most) = (points[0].peak, fastest.peak);
    let (low, span) = (least - least / 4, (most - least) + least / 2 + 2);
    let mut random = seed | 1;
    let (mut peaks, mut refused) = (Vec::new(), f.inst_count() > LONG && !thorough());
    for _ in 0..20 {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let budget = low + (random >> 33) % span;
        let decided = match frontier.at(budget) {
            Ok(point) => point,
            // The whole path is asked once.
            Err(_) if std::mem::replace(&mut refused, true) => continue,
            Err(d) => {
                let engine = Cpu { mem_budget: Some(budget), ..free.clone() };
                let found = engine.decide(&f).expect_err("less than the least");
                if (found.kind, budget < least) != (Kind::Limit, true) || found != d {
                    return Err(format!("{found} at {budget} of {least}"));
                }
                continue;
            }
        };
        // One plan is made into code once.
        if !peaks.iter().any(|&(peak, _)| peak == decided.peak) {
            let engine = Cpu { mem_budget: Some(budget), ..free.clone() };
            let made = engine.follow(&f, &decided.plan).map_err(|d| d.to_string())?;
            if made.executable.run(&args).map_err(|d| d.to_string())? != expected {
                return Err(format!("other bits at {budget}\n{}\n{f}", decided.plan.text(&f)));
            }
            peaks.push((decided.peak, made.executable.memory().peak()));
        }
        let held = peaks.iter().filter(|(peak, _)| *peak == decided.peak).map(|(_, held)| *held);
        if let Some(held) = held.max().filter(|&held| held > budget || held > decided.peak) {
            return Err(format!(
                "{held} bytes, {} said, the budget is {budget}\n{f}",
                decided.peak
            ));
        }
    }
    // What the whole path makes is that, too.
    if f.inst_count() <= LONG || thorough() {
        let engine = Cpu { mem_budget: Some(least), ..free.clone() };
        let made = engine.compile(&module, g).map_err(|d| d.to_string())?;
        if made.executable.memory().peak() > least {
            return Err(format!("{} bytes of {least}", made.executable.memory().peak()));
        }
    }
    // A plan that takes more than the budget is not followed.
    let tight = Cpu { mem_budget: Some(least - 1), ..free };
    let refused = tight.follow(&f, &points[0].plan);
    if !matches!(&refused, Err(d) if d.kind == Kind::Limit) {
        return Err(format!("{least} bytes within one less"));
    }
    Ok(peaks.len())
}

#[test]
fn no_random_program_holds_more_than_its_budget() {
    for dtype in [DType::F32, DType::BF16] {
        random::programs(31, 40, |steps| {
            let f = decode(steps, dtype);
            let g = gradient(&Module::single(f.clone()), &f)?;
            for (k, effort) in [Effort::Off, Effort::Default].into_iter().enumerate() {
                kept(&g, effort, (steps.len() + k) as u64)?;
            }
            Ok(())
        });
    }
}

/// What budgets get of a function is on its frontier: at the peak of each point that point, one byte below the one before, and
/// below the least nothing. No point is as fast as the one before. How many functions the points are of.
fn chosen_from(f: &Function, lossy: &Lossy, options: &PlanOptions) -> Result<usize, String> {
    let why = |d: Diagnostic| format!("{d}\n{f}");
    let engine = Cpu { plan: options.clone(), lossy: lossy.clone(), ..Cpu::default() };
    let frontier = budget_frontier(f, lossy, options, &engine).map_err(why)?;
    let points = frontier.points();
    let within = |budget: u64| {
        let engine = Cpu { mem_budget: Some(budget), ..engine.clone() };
        engine.plan_prepared(f)
    };
    let mut functions: Vec<String> = Vec::new();
    for (k, of) in points.iter().enumerate() {
        let (p, function) = (&of.point, &of.rewritten.decided.function);
        let before = k.checked_sub(1).map(|k| &points[k]);
        if let Some(BudgetPoint { point: tighter, .. }) = before
            && !(tighter.peak < p.peak && p.seconds < tighter.seconds * (1.0 - 1e-7))
        {
            return Err(format!("{p:?} is no better than {tighter:?}"));
        }
        if !functions.contains(&graph_hash(function)) {
            functions.push(graph_hash(function));
        }
        // Planning takes long: budgets are asked for the least, the most, and one between.
        if ![0, points.len() / 2, points.len() - 1].contains(&k) {
            continue;
        }
        let made = within(p.peak).map_err(why)?;
        lower(&made.narrowed.function, &made.plan, &options.device).map_err(why)?;
        if (graph_hash(&made.narrowed.function), &made.plan) != (graph_hash(function), &p.plan) {
            let (made, due) = (made.plan.text(&made.narrowed.function), p.plan.text(function));
            return Err(format!("within {} bytes:\n{made}\nin place of\n{due}", p.peak));
        }
        match (within(p.peak - 1), before) {
            (Ok(made), Some(tighter)) if made.plan == tighter.point.plan => {}
            (Ok(made), Some(tighter)) if more_checkpoints(&made.plan, &tighter.point.plan) => {}
            (Err(d), None) if d.kind == Kind::Limit => {}
            (made, _) => return Err(format!("within {} bytes: {made:?}\n{f}", p.peak - 1)),
        }
    }
    Ok(functions.len())
}

#[test]
fn budgets_choose_from_the_frontier() {
    let prepared = |g: &Function| {
        prepare(&Module::single(g.clone()), g).map_err(|d| format!("cannot be prepared: {d}"))
    };
    // Random programs, in modes that recover operands, too.
    random::programs(32, 15, |steps| {
        let f = decode(steps, DType::F32);
        let g = prepared(&gradient(&Module::single(f.clone()), &f)?)?;
        let fp = [Fp::Strict, Fp::Reproducible, Fp::Fast][steps.len() % 3];
        let options = PlanOptions { fp, ..cpu(Effort::Default).plan };
        chosen_from(&g, &Lossy::default(), &options).map(|_| ())
    });
    // Random programs with loops.
    random::programs(33, 4, |steps| {
        let f = control::decode(steps, DType::F32);
        let g = prepared(&gradient(&Module::single(f.clone()), &f)?)?;
        chosen_from(&g, &Lossy::default(), &cpu(Effort::Default).plan).map(|_| ())
    });
    // The budget decides which operands are recovered, where values are kept with losses too, and how many checkpoints
    // loops have.
    let recovering = model(&models::root().join("attention.ir"));
    let looping = looping();
    let transformer = model(&models::root().join("transformer_block.ir"));
    let bf16 = Some(Narrow::Bf16);
    for (f, fp, every, least) in [
        (&recovering, Fp::Fast, None, 2),
        (&transformer, Fp::Fast, bf16, 2),
        (&looping, Fp::Strict, None, 4),
    ] {
        let options = PlanOptions { fp, ..cpu(Effort::Default).plan };
        let f = prepared(f).expect("is prepared");
        let functions = chosen_from(&f, &Lossy { every, ..Lossy::default() }, &options);
        assert!(functions.clone().is_ok_and(|n| n >= least), "{functions:?}");
    }
}

/// Whether a plan is another one but for its numbers of checkpoints, none of which is smaller.
fn more_checkpoints(plan: &Plan, other: &Plan) -> bool {
    let is_more = |(a, b): (&LoopChoice, &LoopChoice)| match (a, b) {
        (LoopChoice::Checkpoints(a), LoopChoice::Checkpoints(b)) => a >= b,
        (a, b) => a == b,
    };
    let same = Plan {
        graph: other.graph.clone(),
        rewrites: other.rewrites.clone(),
        blocks: other.blocks.clone(),
        ..plan.clone()
    };
    same == *other
        && plan.rewrites.loops != other.rewrites.loops
        && plan.rewrites.loops.iter().zip(&other.rewrites.loops).all(is_more)
}

/// A budget between two numbers of checkpoints is used: as many checkpoints as fit, and at no budget a longer time than with less.
#[test]
fn checkpoints_fill_a_budget() {
    let g = looping();
    let f = prepare(&Module::single(g.clone()), &g).expect("is prepared");
    let engine = cpu(Effort::Default);
    let within = |budget: u64| {
        choose(&f, &Lossy::default(), &engine.plan, budget, (&engine, Cpu::NAME), None)
    };
    let least = budget_frontier(&f, &Lossy::default(), &engine.plan, &engine).expect("plans");
    let least = least.points()[0].point.peak;
    let (mut seconds, mut counts) = (f64::INFINITY, Vec::new());
    for budget in (0..24).map(|k| least + 72 * k) {
        let choice = within(budget).expect("fits");
        assert!(choice.point.peak <= budget && choice.point.seconds <= seconds, "{budget}");
        seconds = choice.point.seconds;
        counts.extend(choice.point.plan.rewrites.loops.iter().copied());
    }
    counts.dedup();
    assert!(counts.len() > 12, "{counts:?}");
}

/// Values that are inlined and read twice, one after the other: there are 2^60 ways through them, and a plan goes none of them twice.
#[test]
fn chains_of_inlined_values_have_frontiers() {
    let g = doubling(30);
    let f = prepare(&Module::single(g.clone()), &g).expect("is prepared");
    let engine = cpu(Effort::Default);
    let frontier = budget_frontier(&f, &Lossy::default(), &engine.plan, &engine).expect("plans");
    assert!(frontier.points().len() > 1, "{:?}", frontier.points().len());
}

/// The greedy plan of a lesser effort may have more launches to share, or inline less, than the plan that single changes improve.
#[test]
fn a_higher_effort_has_no_slower_plan() {
    let of = |name: &str| model(&models::root().join(name));
    let functions = ["deep_mlp.ir", "batch_norm.ir", "attention.ir"].map(of);
    for g in functions.into_iter().chain([doubling(60)]) {
        let f = prepare(&Module::single(g.clone()), &g).expect("is prepared");
        let [quick, default] = [Effort::Quick, Effort::Default].map(|effort| {
            let engine = cpu(effort);
            let plans = budget_frontier(&f, &Lossy::default(), &engine.plan, &engine);
            let within = plans.expect("plans").fastest().expect("a plan").point.seconds;
            let unbudgeted = plan_for(&f, &engine.plan, &engine).expect("plans");
            let unbudgeted = plan_point(&f, unbudgeted, &engine.plan, &engine).expect("a point");
            [within, unbudgeted.seconds]
        });
        for (quick, default) in quick.into_iter().zip(default) {
            // Plans that are as fast are told apart by their peaks.
            assert!(default <= quick * 1.001, "{}: {default} and {quick} s", f.name);
        }
    }
}

/// A kernel has a limit, so that a long chain without products is two: one leaves all that the other reads. Yet checkpoints of the
/// chain need a few arrays at once, which is found with a group for each instruction.
#[test]
fn long_chains_have_checkpoints_inside_of_kernels() {
    const COUNT: usize = 40;
    const SIDE: u64 = 4096;
    let ops = ["sin", "tanh", "cos", "logistic"];
    let step = |k: usize| format!("%v{} = {} %v{k} : f32[{SIDE}]\n", k + 1, ops[k % ops.len()]);
    let text: String = (0..COUNT).map(step).collect();
    let text = format!(
        "func @f(%v0: f32[{SIDE}]) -> f32[] {{ {text}
         %s = reduce_sum %v{COUNT} {{axes = [0]}} : f32[] return %s }}"
    );
    let module = parse(&text).expect("parses");
    let g = gradient(&module, module.find("f").expect("there")).expect("differentiates");
    let f = prepare(&Module::single(g.clone()), &g).expect("is prepared");
    let engine = cpu(Effort::Default);
    let frontier = models::frontier(&f, &engine.plan, Some(&engine)).expect("plans");
    // The input and its gradient, and a third of what the fastest plan leaves.
    let (least, fastest) = (&frontier.points()[0], frontier.fastest().expect("a plan"));
    assert!(least.peak < 6 * 4 * SIDE, "{} bytes", least.peak);
    assert!(least.peak < fastest.peak / 3);
    assert!(kept(&g, Effort::Default, 7).expect("budgets are kept") > 2);
}

/// The gradient of layers each of which reads the one before twice.
fn doubling(layers: usize) -> Function {
    let layer = |k: usize| {
        format!(
            "%a{k} = mul %x{k}, 0.5 : f32[64,16] %b{k} = mul %x{k}, %a{k} : f32[64,16]
             %x{} = add %b{k}, %x{k} : f32[64,16]\n",
            k + 1
        )
    };
    let text: String = (0..layers).map(layer).collect();
    let text = format!(
        "func @f(%x0: f32[64,16], %w: f32[16,16]) -> f32[] {{ {text}
         %y = dot_general %x{layers}, %w {{contract = [1] x [0]}} : f32[64,16]
         %t = tanh %y : f32[64,16]
         %q = dot_general %t, %w {{contract = [1] x [0]}} : f32[64,16]
         %z = mul %q, %x{layers} : f32[64,16]
         %s = reduce_sum %z {{axes = [0, 1]}} : f32[] return %s }}"
    );
    let module = parse(&text).expect("parses");
    gradient(&module, module.find("f").expect("there")).expect("differentiates")
}

/// The gradient of a loop of 200 steps.
fn looping() -> Function {
    let text = "func @f(%w: f32[14], %h: f32[14]) -> f32[] {
        %c = scan %h {carry = 1, length = 200} : f32[14] body(%s: f32[14]) {
          %a = mul %s, %w : f32[14] %n = tanh %a : f32[14] yield %n }
        %r = reduce_sum %c {axes = [0]} : f32[] return %r }";
    let module = parse(text).expect("parses");
    gradient(&module, module.find("f").expect("there")).expect("differentiates")
}

/// The gradient of a model.
fn model(path: &Path) -> Function {
    let text = std::fs::read_to_string(path).expect("a model");
    let module = parse(&text).unwrap_or_else(|e| panic!("{}: {e:?}", path.display()));
    let stem = path.file_stem().and_then(|s| s.to_str()).expect("a name");
    let f = module.find(stem).or_else(|| module.find("main")).expect("the model's function");
    gradient(&module, f).expect("differentiates")
}

#[test]
fn no_model_holds_more_than_its_budget() {
    let paths: Vec<(usize, PathBuf)> = models::paths().into_iter().enumerate().collect();
    let peaks = parallel::each(&paths, |(k, path)| {
        let peaks = kept(&model(path), Effort::Default, 7 * *k as u64);
        peaks.unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    });
    let several = peaks.iter().filter(|&&n| n > 1).count();
    assert!(several > 5, "{several} models differ by their budget");
}

#[test]
fn a_kept_plan_is_the_one_that_is_made() {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kept-{}", std::process::id()));
    let g = model(&models::root().join("deep_mlp.ir"));
    let f = prepare(&Module::single(g.clone()), &g).expect("prepared");
    let engine = cpu(Effort::Default);
    let cache = PlanCache::new(&folder);
    let of = |budget: u64, cache: Option<&PlanCache>| {
        choose(&f, &Lossy::default(), &engine.plan, budget, (&engine, Cpu::NAME), cache)
            .expect("fits")
    };
    for budget in [100_000, 150_000, u64::MAX] {
        let made = of(budget, None);
        for found in [of(budget, Some(&cache)), of(budget, Some(&cache))] {
            assert_eq!(found.point.plan, made.point.plan);
            assert_eq!((found.point.peak, found.point.saved), (made.point.peak, made.point.saved));
            assert_eq!(found.fastest_seconds.to_bits(), made.fastest_seconds.to_bits());
            assert_eq!((found.fastest_peak, found.notes.len()), (made.fastest_peak, 0));
        }
    }
    assert_eq!(cache.list().expect("a folder").len(), 3);
    // Effort off has one plan, which is not worth keeping.
    let off = cpu(Effort::Off);
    let of_off = (&off as &dyn EngineModel, Cpu::NAME);
    choose(&f, &Lossy::default(), &off.plan, u64::MAX, of_off, Some(&cache)).expect("fits");
    assert_eq!(cache.clear().expect("a folder"), 3);
    std::fs::remove_dir_all(&folder).expect("a folder");
}
