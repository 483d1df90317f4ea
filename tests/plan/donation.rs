//! Donated inputs: the peak falls by what is placed in them, bits do not change, and no plan writes to an input that is
//! only lent. `ADFUSE_PROGRAMS` sets how many random programs (60 by default).

use super::gradients::prepared_gradient;
use crate::common::programs::decode;
use crate::common::random::{self, inputs};
use crate::common::{models, parallel};
use adfuse::backends::cpu::CallInput;
use adfuse::backends::reference::{Silent, run};
use adfuse::engine::Cpu;
use adfuse::fusion::{Effort, Fp, MachineModel, Plan, PlanOptions, lower, prepare};
use adfuse::ir::kernel::text;
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::ir::{DType, Function, Kind, Module};

fn cpu(effort: Effort, donated: Vec<usize>) -> Cpu {
    let plan = PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict };
    // As other tests of frontiers have it, which share them.
    Cpu { plan, donated, threads: 2, ..Cpu::default() }
}

/// Runs a function with these inputs given up, whatever its plan for a budget; by how many bytes the peak
/// of the plan without a budget falls.
fn holds(f: &Function, donated: &[usize]) -> Result<u64, String> {
    let args = inputs(f, &[Domain::Normal]);
    let expected = run(&Module::single(f.clone()), f, &args, &mut Silent);
    let expected = expected.map_err(|d| d.to_string())?;
    let (lends, gives) = (cpu(Effort::Default, Vec::new()), cpu(Effort::Default, donated.to_vec()));
    let plan = lends.decide(f).map_err(|d| d.to_string())?.plan;
    let given = gives.decide(f).map_err(|d| d.to_string())?.plan;
    let why = |m: String| format!("{m}\n{}\n{f}", given.text(f));
    let text_again = Plan::parse(&given.text(f), f).map_err(|d| why(d.to_string()))?;
    if text_again != given || given.donated != donated {
        return Err(why("does not read back".into()));
    }
    // A plan that uses what is only lent is refused before it is made.
    match lends.follow(f, &given) {
        Err(d) if d.kind == Kind::Usage || donated.is_empty() => {}
        Ok(_) if donated.is_empty() => {}
        other => return Err(why(format!("followed, or {:?}", other.err()))),
    }
    let before = lends.follow(f, &plan).map_err(|d| why(d.to_string()))?;
    let after = gives.follow(f, &given).map_err(|d| why(d.to_string()))?;
    let program = text::parse(&after.program.to_string()).map_err(|d| why(d.to_string()))?;
    if program != *after.program {
        return Err(why("the program does not read back".into()));
    }
    let (high, low) = (before.executable.memory().peak(), after.executable.memory().peak());
    // Whatever is faster where inputs are given up, the same plan takes no more memory than where they are lent.
    let same = gives.follow(f, &plan.clone().donating(donated)).map_err(|d| why(d.to_string()))?;
    let same = same.executable.memory().peak();
    if same > high {
        return Err(why(format!("{same} bytes with inputs given up, {high} without")));
    }
    let left: Vec<Option<usize>> = after.executable.left_in().collect();
    let promised: u64 = left
        .iter()
        .zip(&expected)
        .filter(|(l, _)| l.is_some())
        .map(|(_, a)| a.bytes().len() as u64)
        .sum();
    let outputs = before.executable.memory().outputs - after.executable.memory().outputs;
    if outputs != promised {
        return Err(why(format!("{promised} bytes are left in inputs, {outputs} promised")));
    }
    if left.iter().flatten().any(|k| !donated.contains(k) || !after.executable.writes_to(*k)) {
        return Err(why(format!("results are left in {left:?}")));
    }
    if (0..args.len()).any(|k| after.executable.writes_to(k) && !donated.contains(&k)) {
        return Err(why("an input is written that is not given up".into()));
    }
    // Lent, what is written to is refused, and nothing is lost.
    let kept = args.clone();
    let lent = after.executable.run(&args);
    let writes = (0..args.len()).any(|k| after.executable.writes_to(k));
    if lent.is_err() != writes || args != kept {
        return Err(why("lent inputs are written to, or refused for nothing".into()));
    }
    for _ in 0..2 {
        let found = after.executable.run_donating(args.clone()).map_err(|d| why(d.to_string()))?;
        if found != expected {
            return Err(why(format!("{found:?} is not {expected:?}")));
        }
    }
    // Every budget keeps its promise.
    let frontier = models::frontier(f, &gives.plan, Some(&gives));
    let frontier = frontier.map_err(|d| why(d.to_string()))?;
    for point in frontier.points() {
        // Run above, where it is the plan without a budget.
        if point.plan == given && low <= point.peak {
            continue;
        }
        let made = gives.follow(f, &point.plan).map_err(|d| why(d.to_string()))?;
        if made.executable.memory().peak() > point.peak {
            return Err(why(format!("{} bytes said", point.peak)));
        }
        let found = made.executable.run_donating(args.clone()).map_err(|d| why(d.to_string()))?;
        if found != expected {
            return Err(why(format!("other bits with\n{}", point.plan.text(f))));
        }
    }
    Ok(high.saturating_sub(low))
}

#[test]
fn random_programs() {
    for dtype in [DType::F32, DType::BF16] {
        random::programs(31, 60, |steps| {
            let f = decode(steps, dtype);
            let g = prepared_gradient(&Module::single(f.clone()), &f)?;
            let all: Vec<usize> = (0..g.params().len()).collect();
            let some: Vec<usize> =
                all.iter().copied().filter(|k| k % 2 == steps.len() % 2).collect();
            holds(&g, &[])?;
            holds(&g, &some)?;
            holds(&g, &all).map(|_| ())
        });
    }
}

#[test]
fn models() {
    let fell = parallel::each(&models::all(), |(stem, module, f)| {
        let g = prepared_gradient(module, f).unwrap_or_else(|why| panic!("{stem}: {why}"));
        let all: Vec<usize> = (0..g.params().len()).collect();
        holds(&g, &all).unwrap_or_else(|why| panic!("{stem}: {why}"))
    });
    let fell = fell.into_iter().filter(|&bytes| bytes > 0).count();
    assert!(fell > 10, "the peaks of {fell} models fall");
}

/// A step that updates a parameter.
const UPDATE: &str = "func @f(%x: f32[64,96], %w: f32[96,80], %g: f32[64,80]) -> f32[96,80] {
  %d = dot_general %x, %g {contract = [0] x [0]} : f32[96,80]
  %s = mul %d, 0.125 : f32[96,80]
  %u = sub %w, %s : f32[96,80]
  return %u
}
";

fn update() -> Function {
    let module = parse(UPDATE).unwrap_or_else(|e| panic!("{e:?}"));
    let f = module.funcs.values().next().expect("a function");
    prepare(&module, f).expect("no calls")
}

#[test]
fn a_parameter_is_updated_in_its_place() {
    let f = update();
    let fell = holds(&f, &[1]).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(fell, 96 * 80 * 4);
    let gives = cpu(Effort::Default, vec![1]);
    let made = gives.follow(&f, &gives.decide(&f).expect("a plan").plan).expect("compiles");
    let args = inputs(&f, &[Domain::Normal]);
    let expected = run(&Module::single(f.clone()), &f, &args, &mut Silent).expect("runs");
    // As bytes, at places that are no multiples of eight as well.
    for shift in [0, 4] {
        let mut room = vec![0u8; args[1].bytes().len() + 16];
        let at = room.as_ptr().align_offset(8) + shift;
        let w = &mut room[at..at + args[1].bytes().len()];
        w.copy_from_slice(args[1].bytes());
        let lent = [
            CallInput::Lent(args[0].bytes()),
            CallInput::Donated(w),
            CallInput::Lent(args[2].bytes()),
        ];
        made.executable.run_into_donating(&mut { lent }, &mut []).expect("runs");
        assert_eq!(
            &room[at..at + args[1].bytes().len()],
            expected[0].bytes(),
            "shifted by {shift}"
        );
    }
    let mut lent = [0, 1, 2].map(|k: usize| CallInput::Lent(args[k].bytes()));
    let refused = made.executable.run_into_donating(&mut lent, &mut []).expect_err("lent");
    assert_eq!(refused.kind, Kind::Usage);
    assert!(refused.message.contains("%w"), "{refused}");
}

#[test]
fn what_there_is_not_cannot_be_given_up() {
    let f = update();
    let plan = cpu(Effort::Default, Vec::new()).decide(&f).expect("a plan").plan;
    let wrong = plan.clone().donating(&[7]);
    let refused = lower(&f, &wrong, &MachineModel::cpu()).expect_err("no such parameter");
    assert_eq!(refused.kind, Kind::Usage, "{refused}");
    let text = plan.donating(&[0, 1]).text(&f);
    for (from, to) in [("%x, %w", "%w, %x"), ("%x, %w", "%x, %x"), ("%x, %w", "%d")] {
        Plan::parse(&text.replace(from, to), &f).expect_err("no list of parameters");
    }
}
