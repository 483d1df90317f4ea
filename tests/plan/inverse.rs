//! Rewriting by output: later phases recover operands within their bounds, results of the forward pass keep their bits,
//! and the rewritten function has the same bits in every plan. `ADFUSE_PROGRAMS` sets how many random programs.

use super::gradients::{evaluate, prepared_gradient};
use crate::common::programs::decode;
use crate::common::random::{self, inputs};
use crate::common::{models, parallel};
use adfuse::backends::reference::kernel;
use adfuse::engine::Cpu;
use adfuse::fusion::{
    AnyEngine, Effort, Fp, InverseChoice, MachineModel, Plan, PlanOptions, PlanPoint, Recovered,
    inverse_accuracy, lower, plan, plan_frontier, plan_point, planned_function, prepare,
    recover_operands,
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
    recover_operands(f, options, None, &AnyEngine).map_err(|d| d.to_string())
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
    let made = Plan { inverses: choices.clone(), ..after.plan };
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

/// Exact inverses are for every mode: where a result is the negative of a layer, the layer is not kept beside it for what
/// waits for a fold of all of it.
#[test]
fn exact_inverses_are_taken_in_strict_mode() {
    for (op, ty) in [("neg %h", "f32[32,48]"), ("transpose %h {perm = [1, 0]}", "f32[48,32]")] {
        let (module, f) = text(&format!(
            "func @f(%x: f32[32,64], %w: f32[64,48], %g: f32[32,48]) -> ({ty}, f32[32,48]) {{
  %h = dot_general %x, %w {{contract = [1] x [0]}} : f32[32,48]
  %n = {op} : {ty}
  %s = reduce_sum %n {{axes = [0, 1]}} : f32[] @p1
  %sb = broadcast_in_dim %s {{dims = []}} : f32[32,48] @p1
  %d = mul %g, %sb : f32[32,48] @p1
  %c = mul %d, %h : f32[32,48] @p1
  return %n, %c
}}"
        ));
        let f = prepare(&module, &f).expect("prepares");
        let found = holds(&f, Fp::Strict).unwrap_or_else(|why| panic!("{op}: {why}"));
        assert_eq!(found, [InverseChoice { of: "h".into(), from: "n".into() }], "{op}");
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
