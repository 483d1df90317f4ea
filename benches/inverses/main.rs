//! What inverses save: `inverses [ROWS]` prints, for nets of six layers whose activations can be recovered from their answers, the bytes
//! that are kept for the backward pass, the peak and the times with and without, and the times within budgets. Mode
//! `reproducible`, engine `cpu`, one thread; measured times are medians of turns.

#![allow(clippy::print_stdout)] // A table for people to read.

use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::Array;
use adfuse::engine::Cpu;
use adfuse::fusion::{
    Effort, Fp, Lossy, MachineModel, PlanOptions, PlanPoint, budget_frontier, plan_frontier,
    plan_point, prepare, recover_operands,
};
use adfuse::ir::op::Domain;
use adfuse::ir::rewrite::stabilize;
use adfuse::ir::text::parse;
use adfuse::ir::{Function, Module};
use adfuse::sample::{rng, sample};
use adfuse_benches::TimeSpread;
use std::error::Error;
use std::time::Instant;

/// Activations between two products, by the lines that compute `%y` of `%h`.
const CHAINS: [(&str, &[&str]); 6] = [
    ("log(exp(h) + 1)", &["%a = exp %h", "%b = add %a, 1.0", "%y = log %b"]),
    ("exp(h) / 4", &["%a = exp %h", "%y = mul %a, 0.25"]),
    ("sqrt(exp(h)) / 4", &["%a = exp %h", "%b = sqrt %a", "%y = mul %b, 0.25"]),
    ("log(exp(h) + 2)", &["%a = exp %h", "%b = add %a, 2.0", "%y = log %b"]),
    ("tanh(h) / 2", &["%a = tanh %h", "%y = mul %a, 0.5"]),
    ("logistic(-h)", &["%a = neg %h", "%y = logistic %a"]),
];

/// Budgets, as parts of the peak without inverses.
const PARTS: [f64; 3] = [0.9, 0.8, 0.7];

const ROUNDS: usize = 9;

fn main() -> Result<(), Box<dyn Error>> {
    let rows = std::env::args().nth(1).map_or(Ok(4096), |n| n.parse::<u64>())?;
    let parts: Vec<String> = PARTS.iter().map(|p| format!("within {p:.1}, ms")).collect();
    println!(
        "| between two products | kept, MiB | peak, MiB | predicted ms | measured ms | {} |",
        parts.join(" | ")
    );
    println!("|{}", "---|".repeat(5 + PARTS.len()));
    for (name, lines) in CHAINS {
        println!("{}", row(name, &text(lines, rows)).map_err(|e| format!("{name}: {e}"))?);
    }
    Ok(())
}

/// Layers of two products with a chain between them.
const LAYERS: usize = 6;

/// A net of such layers.
fn text(lines: &[&str], rows: u64) -> String {
    let (wide, narrow) = (format!("f32[{rows},512]"), format!("f32[{rows},64]"));
    let params: String =
        (0..LAYERS).map(|k| format!(", %w{k}: f32[64,512], %v{k}: f32[512,64]")).collect();
    let mut body = String::new();
    for k in 0..LAYERS {
        let before = if k == 0 { "%x".into() } else { format!("%z{}", k - 1) };
        body +=
            &format!("  %h{k} = dot_general {before}, %w{k} {{contract = [1] x [0]}} : {wide}\n");
        for line in lines {
            let line = ["%a", "%b", "%h", "%y"]
                .iter()
                .fold((*line).to_owned(), |line, name| line.replace(name, &format!("{name}{k}")));
            body += &format!("  {line} : {wide}\n");
        }
        body +=
            &format!("  %z{k} = dot_general %y{k}, %v{k} {{contract = [1] x [0]}} : {narrow}\n");
    }
    format!(
        "func @f(%x: {narrow}{params}) -> f32[] {{
{body}  %q = square %z{last} : {narrow}
  %loss = reduce_sum %q {{axes = [0, 1]}} : f32[]
  return %loss
}}
",
        last = LAYERS - 1
    )
}

fn row(name: &str, text: &str) -> Result<String, Box<dyn Error>> {
    let module = parse(text).map_err(|all| all[0].to_string())?;
    let f = &stabilize(module.funcs.values().next().ok_or("it has no function")?)?.0;
    let g = forward_and_backward(&module, f, &differentiable(f, None)?)?;
    let f = prepare(&Module::single(g.clone()), &g)?;
    let plan =
        PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp: Fp::Reproducible };
    let cpu = Cpu { plan: plan.clone(), threads: 1, ..Cpu::default() };
    let before = plan_point(&f, cpu.decide(&f)?.plan, &plan, &cpu)?;
    let recovered = recover_operands(&f, &plan, &cpu)?.function;
    let after = plan_point(&recovered, cpu.decide(&recovered)?.plan, &plan, &cpu)?;
    let frontier = plan_frontier(&f, &plan, &cpu)?;
    let rewritten = budget_frontier(&f, &Lossy::default(), &plan, &cpu)?;
    let mut within = Vec::new();
    for part in PARTS {
        let budget = (before.peak as f64 * part) as u64;
        let alone = frontier.at(budget).map(|p| p.seconds);
        let with = rewritten.at(budget).map(|p| p.point.seconds);
        let ms = |s: Option<f64>| s.map_or_else(|| "-".into(), |s| format!("{:.2}", s * 1e3));
        within.push(format!("{} / {}", ms(alone.ok()), ms(with.ok())));
    }
    let measured = measured(&cpu, [(&f, &before), (&recovered, &after)])?;
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    let ms =
        |s: &TimeSpread| format!("{:.2} ({:.2}-{:.2})", s.median * 1e3, s.p10 * 1e3, s.p90 * 1e3);
    Ok(format!(
        "| {name} | {} / {} | {} / {} | {:.2} / {:.2} | {} / {} | {} |",
        mib(before.saved),
        mib(after.saved),
        mib(before.peak),
        mib(after.peak),
        before.seconds * 1e3,
        after.seconds * 1e3,
        ms(&measured[0]),
        ms(&measured[1]),
        within.join(" | ")
    ))
}

/// Times of the plans, in turns.
fn measured(
    cpu: &Cpu,
    sides: [(&Function, &PlanPoint); 2],
) -> Result<Vec<TimeSpread>, Box<dyn Error>> {
    let mut rng = rng(1, 0);
    let types = sides[0].0.param_types();
    let args: Result<Vec<Array>, _> =
        types.iter().map(|t| sample(t, Domain::Normal, &mut rng)).collect();
    let (args, mut made, mut times) = (args?, Vec::new(), vec![Vec::new(); sides.len()]);
    for (f, point) in sides {
        made.push(cpu.follow(f, &point.plan)?.executable);
    }
    for round in 0..=ROUNDS {
        for (executable, times) in made.iter().zip(&mut times) {
            let began = Instant::now();
            executable.run(&args)?;
            // The first round touches the memory.
            if round > 0 {
                times.push(began.elapsed().as_secs_f64());
            }
        }
    }
    Ok(times.into_iter().map(TimeSpread::of).collect())
}
