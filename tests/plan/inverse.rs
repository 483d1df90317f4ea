//! Rewriting by output: later phases recover operands within their bounds, results of the forward pass keep their bits,
//! and the rewritten function has the same bits in every plan. `ADFUSE_PROGRAMS` sets how many random programs.

use super::gradients::{evaluate, prepared_gradient};
use crate::common::programs::decode;
use crate::common::random::{self, inputs};
use crate::common::{models, parallel};
use adfuse::backends::Array;
use adfuse::backends::reference::kernel;
use adfuse::engine::Cpu;
use adfuse::fusion::{
    AnyEngine, Effort, Fp, InverseChoice, Lossy, MachineModel, Plan, PlanOptions, PlanPoint,
    Recovered, Rewrites, budget_frontier, inverse_accuracy, lower, plan, plan_frontier, plan_point,
    planned_function, prepare, recover_operands,
};
use adfuse::ir::kernel::verify;
use adfuse::ir::op::{Accuracy, Domain};
use adfuse::ir::rewrite::stabilize;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Kind, Module, ValueDef};

fn options(fp: Fp) -> PlanOptions {
    PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp }
}

/// On a machine of slow memory without a cache it pays to keep less, however small a layer is.
fn with_slow_memory(fp: Fp) -> PlanOptions {
    let device = MachineModel { memory_bytes_per_s: 1e8, cache_bytes: 64, ..MachineModel::cpu() };
    PlanOptions { device, ..options(fp) }
}

fn recovered(f: &Function, options: &PlanOptions) -> Result<Recovered, String> {
    recover_operands(f, options, &AnyEngine).map_err(|d| d.to_string())
}

fn point(f: &Function, options: &PlanOptions) -> Result<PlanPoint, String> {
    let made = plan(f, options);
    made.and_then(|p| plan_point(f, p, options, &AnyEngine)).map_err(|d| d.to_string())
}

fn text(source: &str) -> (Module, Function) {
    let module = parse(source).unwrap_or_else(|e| panic!("{e:?}"));
    let f = module.funcs.values().next().expect("a function").clone();
    (module, f)
}

/// Checks all that is promised of a prepared function in a mode; what was recovered.
fn holds(f: &Function, fp: Fp) -> Result<Vec<InverseChoice>, String> {
    holds_with(f, &options(fp))
}

fn holds_with(f: &Function, options: &PlanOptions) -> Result<Vec<InverseChoice>, String> {
    let Recovered { function: g, choices } = recovered(f, options)?;
    let why = |m: String| format!("{m}\n{g}");
    if choices.is_empty() {
        let same = g.to_string() == f.to_string();
        return if same { Ok(choices) } else { Err(why("changed for nothing".into())) };
    }
    let args = inputs(f, &[Domain::Normal]);
    let (plain, new) = (evaluate(f, &args)?, evaluate(&g, &args)?);
    let exact = |c: &InverseChoice| inverse_accuracy(f, c) == Some(Accuracy::Exact);
    let exact = choices.iter().all(exact);
    for (k, &v) in f.results().iter().enumerate() {
        let primal = !matches!(f.def(v), ValueDef::Inst(i, _) if f.inst(i).phase.0 > 0);
        let (a, b) = (plain[k].to_f64s(), new[k].to_f64s());
        let near = |(x, y): (&f64, &f64)| {
            x.is_nan() && y.is_nan() || x == y || (x - y).abs() <= 1e-3 * (1.0 + x.abs())
        };
        if (primal || exact) && plain[k] != new[k] || !a.iter().zip(&b).all(near) {
            return Err(why(format!("result {k} moves: {a:?} {b:?}")));
        }
    }
    let (before, after) = (point(f, options)?, point(&g, options)?);
    if after.saved > before.saved || after.peak > before.peak {
        let [a, b] = [&after, &before].map(|p| (p.saved, p.peak));
        return Err(why(format!("saves and takes {a:?}, {b:?} before")));
    }
    // A plan says what is recovered, and the function is made of that again.
    let rewrites = Rewrites { inverses: choices.clone(), ..Rewrites::default() };
    let made = Plan { rewrites, ..after.plan };
    let text = made.text(&g);
    let again = planned_function(f, &text).map_err(|d| why(d.to_string()))?;
    if again.to_string() != g.to_string() || Plan::parse(&text, &again) != Ok(made) {
        return Err(why(format!("the plan is not one of what it says\n{text}\n{again}")));
    }
    // Whatever is planned, bits are those of the function.
    let strict = PlanOptions { fp: Fp::Strict, ..options.clone() };
    let frontier = plan_frontier(&g, &strict, &AnyEngine).map_err(|d| why(d.to_string()))?;
    let engine = Cpu { plan: strict.clone(), ..Cpu::default() };
    for point in frontier.points() {
        let program = lower(&g, &point.plan, &strict.device).map_err(|d| why(d.to_string()))?;
        let program = verify(program).map_err(|e| why(e[0].to_string()))?;
        if kernel::run(&program, &args).map_err(|d| why(d.to_string()))? != new {
            return Err(why(format!("the evaluator has other bits\n{}", point.plan.text(&g))));
        }
        let made = engine.of_program(program).map_err(|d| why(d.to_string()))?;
        if made.executable.run(&args).map_err(|d| why(d.to_string()))? != new {
            return Err(why(format!("the engine has other bits\n{}", point.plan.text(&g))));
        }
    }
    Ok(choices)
}

/// Between two products: `EXTENTS` of the layer, and instructions from `%h` to `%y`.
fn layers(rows: u32, columns: u32, body: &str) -> (Module, Function) {
    let t = format!("f32[{rows},{columns}]");
    text(&format!(
        "func @f(%x: f32[{rows},64], %w: f32[64,{columns}], %v: f32[{columns},64]) -> f32[] {{
  %h = dot_general %x, %w {{contract = [1] x [0]}} : {t}
  {}
  %z = dot_general %y, %v {{contract = [1] x [0]}} : f32[{rows},64]
  %q = mul %z, %z : f32[{rows},64]
  %l = reduce_sum %q {{axes = [0, 1]}} : f32[]
  return %l
}}",
        body.replace(": T", &format!(": {t}"))
    ))
}

/// Chains with an inverse at a step, and the value that later phases recover where bytes are all that counts; none where the
/// plan keeps the operand of the whole chain, from which the others follow.
const CHAINS: [(&str, Option<&str>); 4] = [
    ("%e = exp %h : T %y = log1p %e : T", Some("e")),
    ("%e = exp %h : T %a = add %e, 1.0 : T %y = log %a : T", None),
    ("%e = exp %h : T %y = sqrt %e : T %k = mul %y, %e : T", Some("e")),
    ("%e = logistic %h : T %a = add %e, 1.0 : T %y = log %a : T", None),
];

fn stable(f: &Function) -> Function {
    stabilize(f).expect("stabilizes").0
}

#[test]
fn chains_of_inverses_keep_their_bits_in_every_plan() {
    for (body, expected) in CHAINS {
        let (module, f) = layers(32, 48, body);
        let g = prepared_gradient(&module, &f).expect("differentiates");
        assert_eq!(holds(&g, Fp::Strict), Ok(Vec::new()), "{body}");
        let options = with_slow_memory(Fp::Reproducible);
        let found = holds_with(&g, &options).unwrap_or_else(|why| panic!("{body}: {why}"));
        let found: Vec<&str> = found.iter().map(|choice| choice.of.as_str()).collect();
        assert_eq!(found, Vec::from_iter(expected), "{body}");
    }
}

/// Of two tensors of 8 MiB one is kept, whether softplus is written as the stable form or not.
#[test]
fn softplus_between_two_products_keeps_its_answer_alone() {
    let saved = |f: &Function| point(f, &options(Fp::Reproducible)).expect("plans").saved >> 20;
    for body in [CHAINS[0].0, CHAINS[1].0, "%y = logaddexp %h, 0.0 : T"] {
        let (_, f) = layers(2048, 1024, body);
        let f = stable(&f);
        let g = prepared_gradient(&Module::single(f.clone()), &f).expect("differentiates");
        let made = recovered(&g, &options(Fp::Reproducible)).expect("plans").function;
        assert!(
            saved(&g) >= 16 && saved(&made) == 8,
            "{body}: {} {}\n{made}",
            saved(&g),
            saved(&made)
        );
    }
    let (module, f) = layers(256, 512, "%y = logaddexp %h, 0.0 : T");
    let g = prepared_gradient(&module, &f).expect("differentiates");
    let found = holds(&g, Fp::Reproducible).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(found.len(), 1, "{found:?}");
}

/// Softmaxes along the last axis, of `%h`, as they are written: naive, shifted as JAX does it, guarded, with a reciprocal.
const SOFTMAXES: [(&str, &str); 4] = [
    ("%e = exp %h : T", "%b = broadcast_in_dim %s {dims = [0]} : T %y = div %e, %b : T"),
    (
        "%m = reduce_max %h {axes = [1]} : R %n = max -inf, %m : R %o = reshape %n : C %p = stop_gradient %o : C \
         %mb = broadcast_in_dim %p {dims = [0, 1]} : T %d = sub %h, %mb : T %e = exp %d : T",
        "%c = reshape %s : C %b = broadcast_in_dim %c {dims = [0, 1]} : T %y = div %e, %b : T",
    ),
    (
        "%m = reduce_max %h {axes = [1]} : R %n = stop_gradient %m : R %i = is_finite %n : B %o = select_n %i, 0.0, %n : R \
         %mb = broadcast_in_dim %o {dims = [0]} : T %d = sub %h, %mb : T %e = exp %d : T",
        "%b = broadcast_in_dim %s {dims = [0]} : T %y = div %e, %b : T",
    ),
    (
        "%m = reduce_max %h {axes = [1]} : R %n = stop_gradient %m : R %mb = broadcast_in_dim %n {dims = [0]} : T \
         %d = sub %h, %mb : T %e = exp %d : T",
        "%r = div 1.0, %s : R %b = broadcast_in_dim %r {dims = [0]} : T %y = mul %e, %b : T",
    ),
];

/// A layer of a softmax, with types of its rows.
fn softmax_layer((rows, columns): (u32, u32), (above, below): (&str, &str)) -> Function {
    let body = format!("{above} %s = reduce_sum %e {{axes = [1]}} : R {below}")
        .replace(": R", &format!(": f32[{rows}]"))
        .replace(": B", &format!(": bool[{rows}]"))
        .replace(": C", &format!(": f32[{rows},1]"));
    let f = stable(&layers(rows, columns, &body).1);
    prepared_gradient(&Module::single(f.clone()), &f).expect("differentiates")
}

/// Of the exponentials and the weights, which the next product reads, the weights are kept with a number a row.
#[test]
fn a_softmax_keeps_its_weights_alone() {
    let (loose, slow) = (options(Fp::Reproducible), with_slow_memory(Fp::Reproducible));
    let cpu = Cpu { plan: loose.clone(), ..Cpu::default() };
    for (k, lines) in SOFTMAXES.into_iter().enumerate() {
        let g = softmax_layer((32768, 64), lines);
        let made = recover_operands(&g, &loose, &cpu).expect("plans");
        // A quotient for each element takes longer than reading the exponentials.
        let free = usize::from(k != 3);
        assert_eq!(made.choices.len(), free, "{k}: {:?}\n{g}", made.choices);
        let [before, after] = [&g, &made.function].map(|f| {
            let plan = cpu.decide(f).expect("plans").plan;
            plan_point(f, plan, &loose, &cpu).expect("plans")
        });
        let fewer = (before.saved - after.saved).div_ceil(1 << 20);
        let expected = (16, 8 * free as u64);
        assert_eq!(
            (before.saved >> 20, fewer),
            expected,
            "{k}: a matrix has 8 MiB, and rows 128 KiB"
        );
        assert!(after.seconds <= before.seconds, "{k}: {} {}", after.seconds, before.seconds);
        assert!(after.peak <= before.peak, "{k}: {} {}", after.peak, before.peak);

        let small = softmax_layer((48, 32), lines);
        let found = holds_with(&small, &slow).unwrap_or_else(|why| panic!("{k}: {why}"));
        assert_eq!(found.len(), 1, "{k}: {found:?}");
        assert_eq!(holds(&small, Fp::Strict), Ok(Vec::new()), "{k}");
    }
    // A bound above the least lets a sum be less than 1, so that the weights say less than the exponentials.
    let bounded = SOFTMAXES[1].0.replace("-inf", "0.0");
    let g = softmax_layer((48, 32), (&bounded, SOFTMAXES[1].1));
    assert_eq!(holds_with(&g, &slow), Ok(Vec::new()));
}

/// What is recovered at effort quick is recovered at effort default as well, where that is faster than to decide values otherwise.
#[test]
fn recovered_operands_are_no_slower_at_a_higher_effort() {
    let (module, f) = text(
        "func @f(%x: f32[512,256], %w: f32[256,256]) -> f32[] {
  %e = exp %x : f32[512,256]
  %b = add %e, 1.0 : f32[512,256]
  %l = log %b : f32[512,256]
  %y = dot_general %l, %w {contract = [1] x [0]} : f32[512,256]
  %c = cumsum %y {axis = 0} : f32[512,256]
  %t = tanh %c : f32[512,256]
  %r = rev %t {axes = [1]} : f32[512,256]
  %n = sin %r : f32[512,256]
  %s = reduce_sum %n {axes = [0, 1]} : f32[]
  return %s
}
",
    );
    let g = prepared_gradient(&module, &f).expect("differentiates");
    let seconds = [Effort::Quick, Effort::Default].map(|effort| {
        let options = PlanOptions { effort, ..options(Fp::Reproducible) };
        let cpu = Cpu { plan: options.clone(), ..Cpu::default() };
        let made = recover_operands(&g, &options, &cpu).expect("plans");
        let plan = cpu.decide(&made.function).expect("plans").plan;
        plan_point(&made.function, plan, &options, &cpu).expect("plans").seconds
    });
    assert!(seconds[1] <= seconds[0], "{seconds:?}");
}

/// A budget of a matrix less is met without computing a product again.
#[test]
fn a_softmax_fits_a_budget_by_its_weights() {
    let loose = options(Fp::Reproducible);
    let g = softmax_layer((32768, 64), SOFTMAXES[0]);
    let frontier = plan_frontier(&g, &loose, &AnyEngine).expect("plans");
    let fastest = frontier.points().last().expect("a plan");
    let budget = fastest.peak - (7 << 20);
    let plain = frontier.at(budget).map(|p| p.seconds).ok();
    let found = budget_frontier(&g, &Lossy::default(), &loose, &AnyEngine).expect("plans");
    let made = found.at(budget).expect("is within the budget");
    let inverted = made.point.seconds;
    assert_eq!(
        made.rewritten.recovered.choices.len(),
        1,
        "{:?}",
        made.point.plan.rewrites.inverses
    );
    assert!(plain.is_none_or(|plain| inverted < 0.95 * plain), "{inverted} {plain:?}");
    assert!(inverted <= fastest.seconds, "{inverted} {}", fastest.seconds);
}

/// Rows that have no softmax have no gradient, whatever it is made of.
#[test]
fn rows_without_a_softmax_have_nan_both_ways() {
    for (k, lines) in SOFTMAXES.into_iter().enumerate() {
        let g = softmax_layer((48, 32), lines);
        let made = recovered(&g, &with_slow_memory(Fp::Reproducible)).expect("plans");
        assert_eq!(made.choices.len(), 1, "{k}");
        let mut args = inputs(&g, &[Domain::Normal]);
        let mut x = args[0].to_f64s();
        for (row, special) in
            [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e38].into_iter().enumerate()
        {
            x[row * 64] = special;
        }
        args[0] = Array::from_f64s(DType::F32, &[48, 64], &x).expect("an array");
        let [plain, new] = [&g, &made.function].map(|f| evaluate(f, &args).expect("runs"));
        for (a, b) in plain.iter().zip(&new) {
            let nan = |x: &Array| -> Vec<bool> { x.to_f64s().iter().map(|x| x.is_nan()).collect() };
            assert_eq!(nan(a), nan(b), "{k}");
            assert!(nan(a).contains(&true), "{k}");
        }
    }
}

/// Exact inverses are for every mode: where a result is the negative of a layer, the layer is not kept beside it for what
/// waits for a fold of all of it.
#[test]
fn exact_inverses_are_taken_in_strict_mode() {
    for (op, ty, recovered) in [
        ("neg %h", "f32[320,48]", true),
        // Reading it across its lines takes longer than keeping so few bytes.
        ("transpose %h {perm = [1, 0]}", "f32[48,320]", false),
    ] {
        let (module, f) = text(&format!(
            "func @f(%x: f32[320,64], %w: f32[64,48], %g: f32[320,48]) -> ({ty}, f32[320,48]) {{
  %h = dot_general %x, %w {{contract = [1] x [0]}} : f32[320,48]
  %n = {op} : {ty}
  %s = reduce_sum %n {{axes = [0, 1]}} : f32[] @p1
  %sb = broadcast_in_dim %s {{dims = []}} : f32[320,48] @p1
  %d = mul %g, %sb : f32[320,48] @p1
  %c = mul %d, %h : f32[320,48] @p1
  return %n, %c
}}"
        ));
        let f = prepare(&module, &f).expect("prepares");
        let found = holds(&f, Fp::Strict).unwrap_or_else(|why| panic!("{op}: {why}"));
        let expected = InverseChoice { of: "h".into(), from: "n".into() };
        assert_eq!(found, Vec::from_iter(recovered.then_some(expected)), "{op}");
    }
}

#[test]
fn what_does_not_follow_is_refused_with_its_names() {
    let (_, f) = layers(32, 48, CHAINS[0].0);
    let g = prepared_gradient(&Module::single(f.clone()), &f).expect("differentiates");
    for (fp, line, kind, said) in [
        ("strict", "inverse %e from %y", Kind::Usage, "%e does not follow from %y"),
        ("fast", "inverse %h from %e", Kind::Usage, "%h does not follow from %e"),
        ("fast", "inverse %e", Kind::Syntax, "expected `inverse"),
    ] {
        let text = format!("plan @f {{\n  fp {fp}\n  {line}\n}}\n");
        let d = planned_function(&g, &text).expect_err("is refused");
        assert_eq!(d.kind, kind, "{d}");
        assert!(d.message.contains(said), "{d}");
    }
}

#[test]
fn random_programs() {
    random::programs(41, 40, |steps| {
        let f = stable(&decode(steps, DType::F32));
        let g = prepared_gradient(&Module::single(f.clone()), &f)?;
        holds(&g, Fp::Strict)?;
        holds(&g, Fp::Reproducible).map(|_| ())
    });
}

#[test]
fn models() {
    parallel::each(&models::all(), |(stem, module, f)| {
        let mut all = Module::default();
        for g in module.funcs.values() {
            all.funcs.push(if g.name == f.name { stable(g) } else { g.clone() });
        }
        let f = all.find(&f.name).expect("the function");
        let g = prepared_gradient(&all, f).unwrap_or_else(|why| panic!("{stem}: {why}"));
        holds(&g, Fp::Reproducible).unwrap_or_else(|why| panic!("{stem}: {why}"));
    });
}
