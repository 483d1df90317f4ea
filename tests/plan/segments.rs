//! Checkpoint segments: a divided function has the same bits, its plans are found again from their text, and no checkpoint region
//! that a user might write fits into less memory, or is faster within as much. `ADFUSE_PROGRAMS` sets how many random programs.

use super::gradients::{evaluate, prepared_gradient};
use crate::common::programs::decode;
use crate::common::random::{self, inputs};
use adfuse::engine::Cpu;
use adfuse::fusion::{
    BudgetPoint, CheckpointEnds, Effort, Fp, Lossy, MachineModel, Plan, PlanFrontier, PlanOptions,
    budget_frontier, lower, plan_for, plan_point, planned_function,
};
use adfuse::ir::op::{Domain, Op};
use adfuse::ir::text::{Names, parse};
use adfuse::ir::{DType, Function, Kind, Module, Phase};

fn engine() -> Cpu {
    let device = MachineModel::cpu();
    let plan = PlanOptions { device, effort: Effort::Default, fp: Fp::Strict };
    Cpu { plan, ..Cpu::default() }
}

/// The function in these segments.
fn divided(f: &Function, levels: &[&str]) -> Result<Function, adfuse::ir::Diagnostic> {
    let lines: String = levels.iter().map(|ends| format!("  segments {ends}\n")).collect();
    planned_function(f, &format!("plan @{} {{\n{lines}}}\n", f.name))
}

fn frontier(f: &Function) -> PlanFrontier<BudgetPoint> {
    let engine = engine();
    budget_frontier(f, &Lossy::default(), &engine.plan, &engine).expect("plans")
}

/// Parts of a chain, each of them a function that is called, and a region where there are policies.
struct Chain {
    /// What a part computes of `%x`, with its result.
    part: fn(usize) -> (String, String),
    parts: usize,
    ty: &'static str,
}

impl Chain {
    /// The gradient of the chain, with regions of as many parts; without any for 0.
    fn gradient(&self, region: usize) -> Function {
        let Chain { part, parts, ty } = self;
        let size = if region > 0 { region } else { *parts };
        let policy = if region > 0 { "checkpoint(remat) " } else { "" };
        let (mut calls, mut regions) = (String::new(), String::new());
        for (k, first) in (0..*parts).step_by(size).enumerate() {
            calls += &format!("  %v{} = call %v{k} {{func = @r{k}}} : {ty}\n", k + 1);
            regions += &format!("func @r{k}(%x{first}: {ty}) -> {ty} {policy}{{\n");
            let last = (first + size).min(*parts);
            for at in first..last {
                let (body, result) = part(at);
                regions += &format!("{body}  %x{} = {result} : {ty}\n", at + 1);
            }
            regions += &format!("  return %x{last}\n}}\n");
        }
        let axes = if ty.contains(',') { "0, 1" } else { "0" };
        let last = parts.div_ceil(size);
        let text = format!(
            "func @f(%v0: {ty}) -> f32[] {{\n{calls}  %l = reduce_sum %v{last} {{axes = [{axes}]}} : f32[]\n  return %l\n}}\n{regions}"
        );
        let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        prepared_gradient(&module, module.find("f").expect("there")).expect("differentiates")
    }
}

/// Functions of elements, of which a kernel has room for some forty.
const FUNCTIONS: Chain = Chain {
    part: |k| (String::new(), format!("{} %x{k}", ["sin", "tanh", "cos", "logistic"][k % 4])),
    parts: 40,
    ty: "f32[4096]",
};

/// Norms of rows.
const NORMS: Chain = Chain {
    part: |k| {
        let body = format!(
            "  %s{k} = square %x{k} : f32[64,32]
  %r{k} = reduce_sum %s{k} {{axes = [1]}} : f32[64]
  %q{k} = rsqrt %r{k} : f32[64]
  %b{k} = broadcast_in_dim %q{k} {{dims = [0]}} : f32[64,32]
  %n{k} = mul %x{k}, %b{k} : f32[64,32]\n"
        );
        (body, format!("sin %n{k}"))
    },
    parts: 36,
    ty: "f32[64,32]",
};

/// Segments may end where regions do, so whatever regions a user tries, a budget of their peak has a plan that is as fast.
#[test]
fn budgets_cost_no_more_than_regions() {
    let engine = engine();
    for chain in [FUNCTIONS, NORMS] {
        let plain = chain.gradient(0);
        let all = frontier(&plain);
        let divides = |p: &&BudgetPoint| !p.point.plan.rewrites.segments.is_empty();
        assert!(all.points().iter().filter(divides).count() > 1);
        for size in [3, 4, 6, 9, 12, 18] {
            let regions = chain.gradient(size);
            let plan = plan_for(&regions, &engine.plan, &engine).expect("a plan");
            let of_regions = plan_point(&regions, plan, &engine.plan, &engine).expect("a point");
            let ours = all.at(of_regions.peak).unwrap_or_else(|e| panic!("{size}: {e}"));
            let [ours, theirs] = [ours.point.seconds, of_regions.seconds];
            assert!(ours <= theirs * 1.02, "{size}: {ours} s, with regions {theirs}");
        }
    }
}

/// What a text says of segments makes the function that its plan is of, with the same cost and the same bits.
#[test]
fn plans_in_segments_are_found_again() {
    let engine = engine();
    let f = NORMS.gradient(0);
    let args = inputs(&f, &[Domain::Normal]);
    let due = evaluate(&f, &args).expect("runs");
    let all = frontier(&f);
    let mut levels = [0; 3];
    for made in all.points() {
        let rewritten = &made.rewritten;
        let (g, plan) = (&rewritten.decided.function, &made.point.plan);
        let text = plan.text(g);
        let again = planned_function(&f, &text).expect("is made again");
        assert_eq!(again.to_string(), g.to_string());
        assert_eq!(Plan::parse(&text, &again).as_ref(), Ok(plan));
        let point = plan_point(&again, plan.clone(), &engine.plan, &engine).expect("a point");
        assert_eq!((point.peak, point.seconds), (made.point.peak, made.point.seconds));
        let segments = &plan.rewrites.segments;
        assert_eq!(*segments, rewritten.segmented.choices);
        levels[segments.len()] += 1;
        if !segments.is_empty() {
            assert!(lower(&again, plan, &engine.plan.device).is_ok());
            assert_eq!(evaluate(&again, &args), Ok(due.clone()), "{text}");
        }
    }
    assert!(levels[0] > 0 && levels[1] > 0, "{levels:?}");
}

/// How many instructions of an op compute again.
fn again(f: &Function, op: Op) -> usize {
    f.body_insts().iter().filter(|&&i| f.path(i).is_again() && f.op(i) == op).count()
}

/// Of three sines in a segment two are computed again, since the third one is kept. Inside of a segment that is divided these are
/// computed twice: for what is read behind them, and for their own way back.
#[test]
fn what_is_inside_of_segments_is_computed_again() {
    let sines = Chain { part: |k| (String::new(), format!("sin %x{k}")), ..FUNCTIONS };
    let f = Chain { parts: 12, ..sines }.gradient(0);
    let ends = |all: &[usize]| all.iter().map(|k| format!("%x{k}")).collect::<Vec<_>>().join(", ");
    let closed = format!("{}, %l", ends(&[3, 6, 9]));
    let cases = [
        (vec![], 0),
        (vec![ends(&[3, 6, 9])], 6),
        (vec![closed], 8),
        (vec![ends(&[6])], 5),
        (vec![ends(&[6]), ends(&[3, 9])], 9),
    ];
    for (levels, due) in cases {
        let levels: Vec<&str> = levels.iter().map(String::as_str).collect();
        let g = divided(&f, &levels).expect("is divided");
        assert_eq!(again(&g, Op::Sin), due, "{levels:?}\n{g}");
    }
}

/// Later phases compute what is inside of segments again, and no bit changes.
#[test]
fn random_programs_in_segments_keep_every_bit() {
    random::programs(61, 40, |steps| {
        let f = decode(steps, DType::F32);
        let f = prepared_gradient(&Module::single(f.clone()), &f)?;
        let names = Names::of(&f);
        let forward = f.body_insts().iter().filter(|&&i| f.inst(i).phase == Phase::PRIMAL);
        let forward: Vec<String> = forward
            .map(|&i| format!("%{}", names.get(f.inst_results(i)[0])))
            .filter(|name| divided(&f, &[name.as_str()]).is_ok())
            .collect();
        let every = |n: usize| {
            let ends: Vec<&str> =
                forward.iter().skip(n / 2).step_by(n).map(String::as_str).collect();
            ends.join(", ")
        };
        let args = inputs(&f, &[Domain::Normal]);
        let due = evaluate(&f, &args)?;
        for levels in [vec![every(3)], vec![every(5), every(2)]] {
            let levels: Vec<&str> =
                levels.iter().map(String::as_str).filter(|ends| !ends.is_empty()).collect();
            let g = divided(&f, &levels).map_err(|d| d.to_string())?;
            if evaluate(&g, &args)? != due {
                return Err(format!("other bits\n{g}"));
            }
        }
        Ok(())
    });
}

/// A chain with a loop and a branch in it.
const WITH_LOOPS: &str = "
  %z = stop_gradient %x6 : f32[4096]
  %w = while %z {max_trips = 100} : f32[4096] cond(%c: f32[4096]) {
    %e = reduce_sum %c {axes = [0]} : f32[] %g = gt %e, 3.0 : bool[] yield %g
  } body(%c: f32[4096]) { %d = mul %c, 0.25 : f32[4096] yield %d }
  %s = reduce_sum %w {axes = [0]} : f32[] %p = gt %s, 0.0 : bool[]
  %b = cond %p : f32[4096] then { %t = sin %x6 : f32[4096] yield %t }
    else { %u = cos %x6 : f32[4096] yield %u }";

/// Loops and branches without a way back stay in a divided function as they are, and every budget runs.
#[test]
fn loops_and_branches_are_in_segments() {
    const COUNT: usize = 60;
    let step = |k: usize| {
        let op = ["sin", "tanh", "cos", "logistic"][k % 4];
        let from = if k == 6 { "b".into() } else { format!("x{k}") };
        let before = if k == 6 { WITH_LOOPS } else { "" };
        format!("{before}\n  %x{} = {op} %{from} : f32[4096]\n", k + 1)
    };
    let text: String = (0..COUNT).map(step).collect();
    let text = format!(
        "func @f(%x0: f32[4096]) -> f32[] {{ {text}
         %l = reduce_sum %x{COUNT} {{axes = [0]}} : f32[] return %l }}"
    );
    let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let f = prepared_gradient(&module, module.find("f").expect("there")).expect("differentiates");
    let args = inputs(&f, &[Domain::Normal]);
    let due = evaluate(&f, &args).expect("runs");
    let mut divided = 0;
    for made in frontier(&f).points() {
        let engine = Cpu { mem_budget: Some(made.point.peak), ..engine() };
        let (g, plan) = (&made.rewritten.decided.function, &made.point.plan);
        let compiled = engine.follow(g, plan).unwrap_or_else(|e| panic!("{e}\n{g}"));
        assert!(compiled.executable.memory().peak() <= made.point.peak);
        assert_eq!(compiled.executable.run(&args), Ok(due.clone()), "{}", plan.text(g));
        divided += usize::from(!plan.rewrites.segments.is_empty());
    }
    assert!(divided > 0);
}

/// What is no end of a segment is refused where it stands.
#[test]
fn segments_that_are_none_are_refused() {
    let f = FUNCTIONS.gradient(0);
    let text = |line: &str| format!("plan @f {{\n  {line}\n}}\n");
    for (line, kind, said) in [
        ("segments", Kind::Syntax, "expected `segments"),
        ("segments x3", Kind::Syntax, "expected `segments"),
        ("segments %x3 %x4", Kind::Syntax, "expected `segments"),
        ("segments %x3,", Kind::Syntax, "expected `segments"),
        ("segments %nothing", Kind::UnknownName, "%nothing is no end of a segment"),
        ("segments %v0", Kind::UnknownName, "%v0 is no end"),
        ("segments %x9, %x3", Kind::UnknownName, "%x3 is no end"),
        ("segments %x3, %x3", Kind::UnknownName, "%x3 is no end"),
        ("segments %v0_ct", Kind::UnknownName, "%v0_ct is no end"),
    ] {
        let e = planned_function(&f, &text(line)).expect_err(line);
        assert!(e.kind == kind && e.message.contains(said), "{line}: {e:?}");
        let span = e.at.span.unwrap_or_else(|| panic!("{line}: no place"));
        assert_eq!(&text(line)[span.start as usize..span.end as usize], line);
    }
    let regions = FUNCTIONS.gradient(8);
    let e = planned_function(&regions, &text("segments %x3")).expect_err("has regions");
    assert!(e.kind == Kind::Usage && e.message.contains("regions of its own"), "{e:?}");
    let ends = CheckpointEnds { names: vec!["x3".into(), "x9".into()] };
    assert!(divided(&f, &[&ends.to_string()]).is_ok());
}
