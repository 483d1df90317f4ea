//! Prices of what an engine says that it makes of a step, counted by hand.

use adfuse_fusion::{
    AnyEngine, ArrayPass, EngineModel, KernelFacts, LaunchFacts, MachineModel, PassKind,
    SweepFacts, cost, cost_with,
};
use adfuse_ir::kernel::Program;
use adfuse_ir::kernel::text::parse;

const N: u64 = 1 << 20;

/// A copy of `N` elements, which takes next to no time on [`machine`].
fn program() -> Program {
    let text = format!(
        "program @f {{ input %x: f32[{N}] output %y: f32[{N}]
           kernel @k [{N}] {{ stage [] {{ p0 = load %x[d0] s0 = param.f32 0 %y[d0] = store s0 }} }}
           return %y }}"
    );
    parse(&text).expect("reads")
}

/// Two cores of 16 lanes, 1e9 operations a second together, and memory that takes no time.
fn machine() -> MachineModel {
    MachineModel {
        name: "round".into(),
        memory_bytes_per_s: 1e16,
        cache_bytes_per_s: 1e17,
        core_bytes_per_s: 1e16,
        ops_per_s: 1e9,
        launch_s: 1e-9,
        stride_ops: 2.0,
        far_ops: 3.0,
        place_ops: 5.0,
        call_ops: 7.0,
        run_ops: 47.0,
        line_ops: 11.0,
        cut_ops: 13.0,
        line_fold_ops: 17.0,
        fold_ops: 19.0,
        extremum_ops: 23.0,
        interchange_ops: 29.0,
        scan_ops: 31.0,
        update_ops: 37.0,
        pack_ops: 41.0,
        digit_ops: 43.0,
        ..MachineModel::cpu()
    }
}

/// Operations of the whole machine that a step with these facts takes.
fn ops(facts: KernelFacts) -> f64 {
    let machine = machine();
    let found = cost_with(&program(), &machine, &|_| Some(vec![facts.clone()]));
    (found.seconds - machine.launch_s) * machine.ops_per_s
}

fn near(found: f64, due: f64) {
    assert!((found - due).abs() <= 1e-4 * due, "{found} of {due}");
}

#[test]
fn sweeps_cost_groups_accesses_and_lines() {
    let n = N as f64;
    let sweep = SweepFacts { elements: N, line: N, lanes: 16, slots: 4, ..SweepFacts::default() };
    let one = |sweep| ops(KernelFacts { sweeps: vec![sweep], ..KernelFacts::default() });
    // A group of 16 takes an instruction for each slot, which is 16 operations.
    near(one(sweep), 4.0 * n + 11.0);
    // Narrower vectors take as long for fewer elements.
    near(one(SweepFacts { lanes: 4, ..sweep }), 16.0 * n + 11.0);
    near(one(SweepFacts { lanes: 1, ..sweep }), 64.0 * n + 11.0);
    // The last group of a line of 24 is half empty.
    let lines = n / 32.0;
    near(one(SweepFacts { line: 32, ..sweep }), 4.0 * n + 11.0 * lines);
    let short = SweepFacts { elements: 24 * 1024, line: 24, ..sweep };
    near(one(short), 4.0 * 32.0 * 1024.0 + 11.0 * 1024.0);
    for (extra, each) in [
        (SweepFacts { near: 1, ..sweep }, 2.0),
        (SweepFacts { far: 2, ..sweep }, 6.0),
        (SweepFacts { placed: 1, ..sweep }, 5.0),
        (SweepFacts { calls: 1, ..sweep }, 7.0),
        (SweepFacts { runs: N, ..sweep }, 47.0),
        // Two that move take as long as one that computes.
        (SweepFacts { moves: 4, ..sweep }, 2.0),
    ] {
        near(one(extra), (4.0 + each) * n + 11.0);
    }
    near(one(SweepFacts { line: 32, cuts: 2, ..sweep }), 4.0 * n + (11.0 + 26.0) * lines);
    // Each line computes what does not change along it, in whole vectors.
    near(one(SweepFacts { line: 32, line_slots: 3, ..sweep }), 4.0 * n + (11.0 + 48.0) * lines);
}

#[test]
fn passes_cost_their_elements() {
    for (kind, each) in [
        (PassKind::Line, 17.0),
        (PassKind::Fold, 19.0),
        (PassKind::Extremum, 23.0),
        (PassKind::Interchange, 29.0),
        (PassKind::Scan, 31.0),
        (PassKind::Update, 37.0),
        (PassKind::Pack, 41.0),
        (PassKind::Digit, 43.0),
    ] {
        let pass = ArrayPass { kind, elements: 1000 };
        near(ops(KernelFacts { passes: vec![pass], ..KernelFacts::default() }), 1000.0 * each);
    }
}

#[test]
fn launches_cost_what_they_move_and_fill_beside_the_structure() {
    // A byte takes a nanosecond.
    let machine = MachineModel {
        memory_bytes_per_s: 1e9,
        cache_bytes_per_s: 1e9,
        core_bytes_per_s: 1e9,
        contract_f32_per_s: 1e9,
        launch_s: 1e-3,
        ..machine()
    };
    let seconds = |program: &Program, launches: LaunchFacts| {
        let facts = KernelFacts { launches: Some(launches), ..KernelFacts::default() };
        cost_with(program, &machine, &|_| Some(vec![facts.clone()])).seconds
    };
    let copy = program();
    let one = LaunchFacts { count: 1, ..LaunchFacts::default() };
    near(seconds(&copy, one), cost(&copy, &machine).seconds);
    let more = LaunchFacts { count: 3, beyond_bytes: 1 << 23, ..one };
    near(seconds(&copy, more) - seconds(&copy, one), 2e-3 + (1 << 23) as f64 * 1e-9);
    // A product of 64 x 64 x 4096, whose tiles are four times as large.
    let text = "program @f { input %x: f32[64, 4096] input %w: f32[4096, 64] output %y: f32[64, 64]
      contract @f { member batch [] rows [64] cols [64] depth [4096] sum f32 {
        lhs { p0 = load %x[d0, d1] s0 = param.f32 0 out s0 }
        rhs { p0 = load %w[d1, d0] s0 = param.f32 0 out s0 }
        then { p0 = sum s0 = param.f32 0 %y[d0, d1] = store s0 } } }
      return %y }";
    let product = parse(text).expect("reads");
    let exact = LaunchFacts { multiply_adds: 1 << 24, ..one };
    let filled = LaunchFacts { multiply_adds: 1 << 26, ..one };
    near(seconds(&product, exact), cost(&product, &machine).seconds);
    let [exact, filled] = [exact, filled].map(|facts| seconds(&product, facts) - 1e-3);
    near(filled / exact, 4.0);
    // Where an engine knows the time, it is that, shorter or longer.
    for (timed, due) in [(1 << 22, 0.25), (1 << 25, 2.0)] {
        let facts = LaunchFacts { timed_multiply_adds: timed, ..one };
        near((seconds(&product, facts) - 1e-3) / exact, due);
    }
    // What it computes of operands may be part of that time: otherwise it is added.
    let squares = text.replace(
        "p0 = load %x[d0, d1] s0 = param.f32 0 out s0",
        "p0 = load %x[d0, d1] s0 = param.f32 0 s1 = mul.f32 s0 s0 out s1",
    );
    let squares = parse(&squares).expect("reads");
    let timed = LaunchFacts { timed_multiply_adds: 1 << 25, ..one };
    let whole = LaunchFacts { timed_feeds: true, ..timed };
    near(seconds(&squares, whole), seconds(&product, timed));
    assert!(seconds(&squares, timed) > seconds(&product, timed));
    // So may what follows the sums.
    let after = text.replace(
        "param.f32 0 %y[d0, d1] = store s0",
        "param.f32 0 s1 = mul.f32 s0 s0 %y[d0, d1] = store s1",
    );
    let after = parse(&after).expect("reads");
    let alone = LaunchFacts { timed_sums: true, ..timed };
    near(seconds(&after, alone), seconds(&product, timed));
    assert!(seconds(&after, timed) > seconds(&product, timed));
    // Kernels beside the product take as long as what they move, or as their instructions, whichever is longer, and half of the other.
    let moved = (1 << 20) as f64 * 1e-9;
    for part in [0.0, 0.5, 2.0] {
        let serial_ops = (part * moved * machine.ops_per_s) as u64;
        let facts = LaunchFacts { serial_bytes: 1 << 20, serial_ops, ..alone };
        near(
            seconds(&after, facts) - seconds(&after, alone),
            moved * (part.max(1.0) + part.min(1.0) / 2.0),
        );
    }
}

#[test]
fn products_of_a_sweep_are_priced_once() {
    let text = "program @f { input %x: f32[64, 64] input %w: f32[64, 64] output %y: f32[64, 64]
      contract @f { member batch [] rows [64] cols [64] depth [64] sum f32 {
        lhs { p0 = load %x[d0, d1] s0 = param.f32 0 out s0 }
        rhs { p0 = load %w[d1, d0] s0 = param.f32 0 out s0 }
        then { p0 = sum s0 = param.f32 0 %y[d0, d1] = store s0 } } }
      return %y }";
    let (product, machine) = (parse(text).expect("reads"), machine());
    let sweep =
        SweepFacts { elements: 4096, line: 4096, lanes: 16, slots: 64, ..SweepFacts::default() };
    let seconds = |swept_products| {
        let facts = KernelFacts { sweeps: vec![sweep], swept_products, ..KernelFacts::default() };
        cost_with(&product, &machine, &|_| Some(vec![facts.clone()])).seconds
    };
    let products = 64.0 * 4096.0 / machine.contract_f32_per_s;
    near(seconds(false) - seconds(true), products);
    near((seconds(true) - machine.launch_s) * machine.ops_per_s, 64.0 * 4096.0 + 11.0);
}

#[test]
fn one_task_keeps_one_core_busy() {
    let pass = ArrayPass { kind: PassKind::Scan, elements: 1000 };
    let of = |tasks| ops(KernelFacts { tasks, passes: vec![pass], ..KernelFacts::default() });
    near(of(1), 2.0 * 31_000.0);
    near(of(2), 31_000.0);
    near(of(64), 31_000.0);
}

#[test]
fn without_facts_the_structure_says_what_a_step_costs() {
    let (program, machine) = (program(), machine());
    assert_eq!(AnyEngine.cost(&program, &machine), cost(&program, &machine));
    assert_eq!(cost_with(&program, &machine, &|_| None), cost(&program, &machine));
    // Counts are the structure's with facts, too.
    let facts = |_: &Program| Some(vec![KernelFacts::default()]);
    let (told, plain) = (cost_with(&program, &machine, &facts), cost(&program, &machine));
    assert_eq!(told.steps[0].ops, plain.steps[0].ops);
    assert_eq!(told.bytes_moved, plain.bytes_moved);
}

#[test]
fn a_bundle_costs_what_its_facts_say() {
    let text = "program @f { input %x: f32[1024] output %y: f32[1024] output %z: f32[1024]
      bundle @both {
        kernel @a [1024] { stage [] { p0 = load %x[d0] s0 = param.f32 0 %y[d0] = store s0 } }
        kernel @b [1024] { stage [] { p0 = load %x[d0] s0 = param.f32 0 %z[d0] = store s0 } } }
      return %y, %z }";
    let (program, machine) = (parse(text).expect("reads"), machine());
    let pass = ArrayPass { kind: PassKind::Scan, elements: 1000 };
    let facts = KernelFacts { tasks: 2, passes: vec![pass], ..KernelFacts::default() };
    let found = cost_with(&program, &machine, &|_| Some(vec![facts.clone()]));
    near((found.seconds - machine.launch_s) * machine.ops_per_s, 31_000.0);
    // Counts are the structure's.
    assert_eq!(found.steps[0].ops, cost(&program, &machine).steps[0].ops);
}
