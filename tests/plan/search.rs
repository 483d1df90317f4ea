//! Search over plans: whatever moves do, they leave plans of the function, which give its bits; what is
//! found is never worse than what it began with. `ADFUSE_PROGRAMS` sets how many random programs (40 by
//! default), `ADFUSE_STEPS` how many moves are tried for a model (600); with `ADFUSE_SHOW` a table of the models is
//! printed.

use crate::common::programs::decode;
use crate::common::random::{self, inputs};
use crate::common::{count_from_env, models, parallel};
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, kernel, run};
use adfuse::engine::Cpu;
use adfuse::fusion::search::{
    Measure, Move, PlanSpace, PlanState, Policy, Predicted, SearchOptions, SearchResult, Uniform,
    search,
};
use adfuse::fusion::{
    AnyEngine, Effort, Fp, MachineModel, Plan, PlanOptions, cost, lower, memory, plan, prepare,
};
use adfuse::ir::kernel::{Program, verify};
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Module};
use adfuse::measure::Timed;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

fn options(effort: Effort) -> PlanOptions {
    PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict }
}

fn steps(steps: u32) -> SearchOptions {
    SearchOptions { steps, ..SearchOptions::default() }
}

/// A function with its gradients, as it is planned, with arguments and what the reference engine makes of
/// them.
struct Subject {
    f: Function,
    args: Vec<Array>,
    expected: Vec<Array>,
}

impl Subject {
    fn of(module: &Module, f: &Function) -> Result<Subject, String> {
        let wrt = differentiable(f, None).map_err(|d| d.to_string())?;
        let g = forward_and_backward(module, f, &wrt).map_err(|d| d.to_string())?;
        let f = prepare(&Module::single(g.clone()), &g).map_err(|d| d.to_string())?;
        let args = inputs(&f, &[Domain::Normal]);
        let expected = run(&Module::single(f.clone()), &f, &args, &mut Silent);
        Ok(Subject { args, expected: expected.map_err(|d| d.to_string())?, f })
    }

    fn text(text: &str) -> Subject {
        let module = parse(text).unwrap_or_else(|e| panic!("{e:?}"));
        let f = module.funcs.values().next().expect("a function").clone();
        Subject::of(&module, &f).expect("differentiates")
    }

    fn model(path: &Path) -> Subject {
        let text = std::fs::read_to_string(path).expect("a model");
        let module = parse(&text).unwrap_or_else(|e| panic!("{}: {e:?}", path.display()));
        let stem = path.file_stem().and_then(|s| s.to_str()).expect("a name");
        let f = module.find(stem).or_else(|| module.find("main")).expect("the model's function");
        Subject::of(&module, f).unwrap_or_else(|why| panic!("{stem}: {why}"))
    }

    /// The seconds and the peak of a plan, which reads back, is verified, and gives the bits.
    fn holds(&self, plan: &Plan) -> Result<(f64, u64), String> {
        let f = &self.f;
        let text = plan.text(f);
        let why = |m: String| format!("{m}\n{text}\n{f}");
        if Plan::parse(&text, f).map_err(|d| why(d.to_string()))? != *plan {
            return Err(why("does not read back".into()));
        }
        let program = lower(f, plan, &MachineModel::cpu()).map_err(|d| why(d.to_string()))?;
        let seconds = cost(&program, &MachineModel::cpu()).seconds;
        let peak = memory(&program, Effort::Default).map_err(|d| why(d.to_string()))?.peak;
        let program = verify(program).map_err(|e| why(e[0].to_string()))?;
        let found = kernel::run(&program, &self.args).map_err(|d| why(d.to_string()))?;
        if found != self.expected {
            return Err(why(format!("{found:?} is not {:?}", self.expected)));
        }
        Ok((seconds, peak))
    }

    /// What a search finds from the plan of effort default; that it is a plan and not worse is checked.
    fn searched(&self, wanted: &SearchOptions) -> Result<SearchResult, String> {
        let options = options(Effort::Default);
        let start = plan(&self.f, &options).map_err(|d| d.to_string())?;
        let space = PlanSpace::new(&self.f, &options, &AnyEngine, &Predicted);
        let space = space.map_err(|d| d.to_string())?;
        let find = || search(&space, &start, wanted, &mut Uniform::new(wanted.seed));
        let found = find().ok_or("the plan to begin with is none")?;
        let (seconds, peak) = self.holds(&found.plan)?;
        let (began, _) = self.holds(&start)?;
        let text = found.plan.text(&self.f);
        if (seconds, peak) != (found.price.seconds, found.price.peak) {
            return Err(format!("{seconds} s, {peak} bytes are not {:?}\n{text}", found.price));
        }
        if seconds > began || found.began.seconds != began {
            return Err(format!("{seconds} s after {began}\n{text}"));
        }
        if find().as_ref() != Some(&found) {
            return Err(format!("found something else the second time\n{text}"));
        }
        Ok(found)
    }
}

fn model(name: &str) -> Subject {
    Subject::model(&Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/models/{name}.ir")))
}

#[test]
fn random_programs() {
    for dtype in [DType::F32, DType::BF16] {
        random::programs(31, 40, |program| {
            let f = decode(program, dtype);
            let subject = Subject::of(&Module::single(f.clone()), &f)?;
            subject.searched(&steps(60)).map(|_| ())
        });
    }
}

/// Goes from state to state; every legal move of each is applied and taken back.
fn wander(subject: &Subject, seed: u64, far: usize) -> Result<[usize; 11], String> {
    let options = options(Effort::Default);
    let start = plan(&subject.f, &options).map_err(|d| d.to_string())?;
    let space = PlanSpace::new(&subject.f, &options, &AnyEngine, &Predicted);
    let space = space.map_err(|d| d.to_string())?;
    let mut policy = Uniform::new(seed);
    let mut state = space.state(&start);
    if space.plan(&state) != start {
        return Err(format!("the plan is lost\n{}", start.text(&subject.f)));
    }
    let mut kinds = [0; 11];
    for _ in 0..far {
        let before = state.clone();
        let moves: Vec<Move> = space.moves(&before).collect();
        for m in &moves {
            kinds[usize::from(m.kind())] += 1;
            let undo = space.apply(&mut state, m).ok_or("a legal move does not apply")?;
            let plan = space.plan(&state);
            let lowered = lower(&subject.f, &plan, &options.device);
            let lowered = lowered.map_err(|d| format!("{m:?}: {d}"))?;
            verify(lowered).map_err(|e| format!("{m:?}: {}", e[0]))?;
            if state == before {
                return Err(format!("{m:?} changes nothing"));
            }
            state.undo(undo);
            if state != before {
                return Err(format!("{m:?} is not taken back"));
            }
        }
        if moves.is_empty() {
            break;
        }
        let next = policy.choose(&space, &state, &moves);
        space.apply(&mut state, &moves[next]).ok_or("a legal move does not apply")?;
        subject.holds(&space.plan(&state))?;
        features(&space, &state)?;
    }
    Ok(kinds)
}

/// The numbers of a state are those of its plan.
fn features(space: &PlanSpace<'_>, state: &PlanState) -> Result<(), String> {
    let numbers = space.features(state).ok_or("a plan has no numbers")?;
    let price = space.price(state).ok_or("a plan has no price")?;
    let all: f64 = numbers.groups.iter().map(|g| g.seconds).sum();
    // Results that are literals have steps that belong to no group.
    let f = space.function();
    let filled = f.results().iter().any(|&v| f.literal(v).is_some());
    let apart = price.seconds - all;
    if apart < -1e-9 * price.seconds || !filled && apart > 1e-9 * price.seconds {
        return Err(format!("{all} s of groups, {} s of the plan", price.seconds));
    }
    if numbers.groups.len() != state.groups().len() {
        return Err("groups without numbers".into());
    }
    match numbers.edges.iter().find(|e| e.from >= e.to || e.bytes < 0.0) {
        Some(edge) => Err(format!("{edge:?}")),
        None => Ok(()),
    }
}

/// Models whose plans have moves of every kind.
const WANDERED: [&str; 6] =
    ["swiglu", "mlp_relu", "softmax", "gelu_rowbias", "batch_norm", "dropout_mlp"];

#[test]
fn moves_are_legal_and_taken_back() {
    let mut all = [0; 11];
    for name in WANDERED {
        let kinds = wander(&model(name), 7, 6).unwrap_or_else(|why| panic!("{name}: {why}"));
        all.iter_mut().zip(kinds).for_each(|(n, more)| *n += more);
    }
    assert!(all.iter().all(|&n| n > 0), "some kind of moves is never legal: {all:?}");
    random::programs(37, 20, |program| {
        let f = decode(program, DType::F32);
        let subject = Subject::of(&Module::single(f.clone()), &f)?;
        wander(&subject, 11, 3).map(|_| ())
    });
}

#[test]
fn models_get_better() {
    let wanted = steps(count_from_env("ADFUSE_STEPS", 600));
    let rows = parallel::each(&models::paths(), |path| {
        let stem = path.file_stem().and_then(|s| s.to_str()).expect("a name").to_string();
        let subject = Subject::model(path);
        let begin = Instant::now();
        let found = subject.searched(&wanted).unwrap_or_else(|why| panic!("{stem}: {why}"));
        // Twice, and checked.
        let took = begin.elapsed() / 2;
        let (from, to) = (found.began, found.price);
        let row = format!(
            "| {stem} | {} | {:.2} | {:.2} | {:.1} % | {} | {} | {} ms |\n",
            subject.f.body_insts().len(),
            from.seconds * 1e6,
            to.seconds * 1e6,
            100.0 * (1.0 - to.seconds / from.seconds),
            from.peak,
            to.peak,
            took.as_millis(),
        );
        let faster = to.seconds < from.seconds * 0.99;
        (row, faster.then_some(stem), to.peak < from.peak)
    });
    let table: String = rows.iter().map(|(row, ..)| row.as_str()).collect();
    let faster: Vec<&str> = rows.iter().filter_map(|(_, stem, _)| stem.as_deref()).collect();
    let smaller = rows.iter().filter(|(.., smaller)| *smaller).count();
    if std::env::var_os("ADFUSE_SHOW").is_some() {
        std::io::stdout().write_all(table.as_bytes()).expect("a place to print");
    }
    assert!(faster.len() >= 3 && faster.contains(&"embedding"), "{faster:?}\n{table}");
    assert!(smaller > 0, "{table}");
}

/// Within every budget the plans of effort search are no slower than those of effort default, and no
/// search goes beyond its own.
#[test]
fn budgets_hold() {
    let mut faster = false;
    for name in ["batch_norm", "variational", "rms_norm"] {
        let subject = model(name);
        let f = &subject.f;
        let known = models::frontier(f, &options(Effort::Default), None).expect("plans");
        let found = models::frontier(f, &options(Effort::Search), None).expect("plans");
        for point in known.points() {
            let better = found.at(point.peak).expect("fits");
            assert!(better.seconds <= point.seconds, "{name} at {}", point.peak);
            faster |= better.seconds < point.seconds * 0.99;
            let (seconds, peak) =
                subject.holds(&better.plan).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(seconds == better.seconds && peak <= point.peak, "{name}: {peak}");
        }
        let start = &known.points()[0];
        let wanted = SearchOptions { budget: Some(start.peak), ..steps(150) };
        let options = options(Effort::Default);
        let space = PlanSpace::new(f, &options, &AnyEngine, &Predicted).expect("plans");
        let mut policy = Uniform::new(3);
        let found = search(&space, &start.plan, &wanted, &mut policy).expect("fits");
        let (_, peak) = subject.holds(&found.plan).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(peak <= start.peak);
        let less = SearchOptions { budget: Some(start.peak - 1), ..wanted };
        assert_eq!(search(&space, &start.plan, &less, &mut policy), None);
    }
    assert!(faster, "search finds nothing within any budget");
}

/// A policy that only ever merges what saves the most launches of the groups that read the most.
struct Merging;

impl Policy for Merging {
    fn choose(&mut self, space: &PlanSpace<'_>, state: &PlanState, moves: &[Move]) -> usize {
        let Some(numbers) = space.features(state) else { return 0 };
        let reads = |m: &Move| match m {
            Move::Merge { from, .. } | Move::Beside { from, .. } => {
                let group = state.groups().iter().zip(&numbers.groups);
                let mut slots = numbers.edges.iter().filter(|e| e.to == *from);
                slots.next().map_or(0, |_| group.map(|(_, g)| g.reads).max().unwrap_or(0))
            }
            _ => 0,
        };
        let best = moves.iter().enumerate().max_by_key(|(k, m)| (reads(m), usize::MAX - k));
        best.map_or(0, |(k, _)| k)
    }
}

#[test]
fn other_policies_lead_a_search() {
    let subject = model("swiglu");
    let off = options(Effort::Off);
    let apart = plan(&subject.f, &off).expect("plans");
    let options = options(Effort::Default);
    let space = PlanSpace::new(&subject.f, &options, &AnyEngine, &Predicted).expect("plans");
    let found = search(&space, &apart, &steps(120), &mut Merging).expect("fits");
    subject.holds(&found.plan).unwrap_or_else(|why| panic!("{why}"));
    assert!(found.plan.groups.len() < apart.groups.len());
    assert!(found.price.seconds < found.began.seconds);
}

/// A stack of layers that are normalised over the batch, each with a residual.
fn stack(layers: usize) -> String {
    let (mut params, mut body) = (String::from("%x0: f32[12,20]"), String::new());
    for k in 0..layers {
        let n = k + 1;
        let _ = write!(params, ", %w{k}: f32[20,20], %g{k}: f32[20]");
        let _ = write!(
            body,
            "  %a{k} = dot_general %x{k}, %w{k} {{contract = [1] x [0]}} : f32[12,20]
  %s{k} = reduce_sum %a{k} {{axes = [0]}} : f32[20]
  %m{k} = mul %s{k}, 0.083 : f32[20]
  %mb{k} = broadcast_in_dim %m{k} {{dims = [1]}} : f32[12,20]
  %c{k} = sub %a{k}, %mb{k} : f32[12,20]
  %q{k} = mul %c{k}, %c{k} : f32[12,20]
  %v{k} = reduce_sum %q{k} {{axes = [0]}} : f32[20]
  %e{k} = add %v{k}, 0.1 : f32[20]
  %r{k} = rsqrt %e{k} : f32[20]
  %rg{k} = mul %r{k}, %g{k} : f32[20]
  %rb{k} = broadcast_in_dim %rg{k} {{dims = [1]}} : f32[12,20]
  %y{k} = mul %c{k}, %rb{k} : f32[12,20]
  %t{k} = tanh %y{k} : f32[12,20]
  %x{n} = add %x{k}, %t{k} : f32[12,20]
"
        );
    }
    format!(
        "func @stack({params}) -> f32[] {{\n{body}  %loss = reduce_sum %x{layers} {{axes = [0, 1]}} : f32[]\n  return %loss\n}}\n"
    )
}

#[test]
fn large_functions_are_searched_by_windows() {
    let subject = Subject::text(&stack(10));
    assert!(subject.f.body_insts().len() > 250, "{}", subject.f.body_insts().len());
    let found = subject.searched(&steps(2000)).unwrap_or_else(|why| panic!("{why}"));
    assert!(found.price.seconds < found.began.seconds, "{:?} {:?}", found.price, found.began);
    assert!(found.steps <= 2000);
}

#[test]
fn measured_times_lead_a_search() {
    let subject = model("gelu_rowbias");
    let options = options(Effort::Default);
    let timed = Timed::new(Cpu { plan: options.clone(), ..Cpu::default() }, 3);
    let space = PlanSpace::new(&subject.f, &options, &AnyEngine, &timed).expect("plans");
    let start = plan(&subject.f, &options).expect("plans");
    let found = search(&space, &start, &steps(12), &mut Uniform::new(0)).expect("fits");
    subject.holds(&found.plan).unwrap_or_else(|why| panic!("{why}"));
    assert!(found.price.seconds <= found.began.seconds);
    // Times are real ones: the cost model has others.
    assert_ne!(found.began.seconds, subject.holds(&start).expect("a plan").0);
    assert_eq!(space.price(&space.state(&start)).map(|p| p.seconds), Some(found.began.seconds));
}

/// Everything written out that may be: the small convolution reads through guards and at shifted places
/// then, over and over. By the clock, one thread of a shared EPYC in November 2026, that took 520 us instead
/// of 20.
#[test]
fn what_reads_at_shifted_places_is_slower_by_the_model_as_it_is_by_the_clock() {
    let subject = model("conv_as_slices");
    let options = options(Effort::Default);
    let start = plan(&subject.f, &options).expect("has a lowering");
    let space =
        PlanSpace::new(&subject.f, &options, &AnyEngine, &Predicted).expect("has a lowering");
    let mut state = space.state(&start);
    let mut written = 0;
    loop {
        let next = space.moves(&state).find(|m| matches!(m, Move::Inline { .. }));
        let Some(next) = next else { break };
        space.apply(&mut state, &next).expect("is legal");
        written += 1;
    }
    assert!(written > 4, "{written} instructions written out");
    let predicted = [&start, &space.plan(&state)].map(|plan| {
        let program = lower(&subject.f, plan, &options.device).expect("is a plan");
        cost(&program, &options.device).seconds
    });
    assert!(predicted[1] > 1.5 * predicted[0], "{predicted:?}");
}

/// A clock that is wrong, until it is asked about two plans.
struct Misled<'a>(&'a Plan);

impl Measure for Misled<'_> {
    fn seconds(&self, _: &Function, plan: &Plan, _: &Program) -> Option<f64> {
        Some(if plan == self.0 { 2.0 } else { 1.0 })
    }

    fn confirms(
        &self,
        _: &Function,
        before: (&Plan, &Program),
        _: (&Plan, &Program),
    ) -> Option<bool> {
        assert_eq!(before.0, self.0);
        Some(false)
    }
}

#[test]
fn what_the_clock_finds_slower_is_not_taken() {
    let subject = model("gelu_rowbias");
    let options = options(Effort::Default);
    let start = plan(&subject.f, &options).expect("plans");
    let misled = Misled(&start);
    let space = PlanSpace::new(&subject.f, &options, &AnyEngine, &misled).expect("plans");
    let found = search(&space, &start, &steps(40), &mut Uniform::new(0)).expect("fits");
    assert!(found.steps > 0);
    assert_eq!((&found.plan, found.price), (&start, found.began));
    let timed = Timed::new(Cpu { plan: options.clone(), ..Cpu::default() }, 3);
    let program = lower(&subject.f, &start, &options.device).expect("is a plan");
    let both = timed.confirms(&subject.f, (&start, &program), (&start, &program));
    assert!(both.is_some());
}
