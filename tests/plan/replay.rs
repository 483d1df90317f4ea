//! Plans that were edited or damaged: each is refused, or its program is accepted and has the bits of the reference
//! engine. `ADFUSE_PROGRAMS` sets how many changes of each plan are tried (60 by default).

use crate::common::count_from_env;
use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::backends::reference::{Silent, kernel, run};
use adfuse::fusion::{
    Effort, Explainer, Fp, MachineModel, Occurrences, Plan, PlanOptions, candidates, lower, plan,
    prepare,
};
use adfuse::ir::Module;
use adfuse::ir::kernel::verify;
use adfuse::ir::op::Domain;
use adfuse::ir::text::parse;
use adfuse::sample::{rng, sample};
use std::path::Path;

/// Numbers that are the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

/// The text with lines or names moved, doubled, dropped or exchanged.
fn changed(text: &str, random: &mut Random) -> String {
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    for _ in 0..1 + random.below(3) {
        // The first lines say whose plan it is; the last one closes it.
        let (first, count) = (4, lines.len() - 5);
        let (a, b) = (first + random.below(count), first + random.below(count));
        let words = |l: &str| -> Vec<String> { l.split_whitespace().map(String::from).collect() };
        match random.below(8) {
            0 => lines.swap(a, b),
            1 => lines.insert(a, lines[b].clone()),
            2 if count > 1 => drop(lines.remove(a)),
            3 => {
                let (mut x, y) = (words(&lines[a]), words(&lines[b]));
                let (i, j) = (random.below(x.len()), random.below(y.len()));
                x.insert(1.max(i), y[1.min(y.len() - 1).max(j)].clone());
                lines[a] = x.join(" ");
            }
            4 => {
                let mut x = words(&lines[a]);
                let (i, j) = (random.below(x.len()), random.below(x.len()));
                x.swap(i, j);
                lines[a] = x.join(" ");
            }
            5 => {
                let mut x = words(&lines[a]);
                x.truncate(1 + random.below(x.len()));
                lines[a] = x.join(" ").trim_end_matches(',').to_string();
            }
            6 => {
                // A group in two, or two in one.
                let mut x = words(&lines[a]);
                let rest = x.split_off(1 + random.below(x.len()));
                lines[a] = x.join(" ").trim_end_matches(',').to_string();
                lines.insert(a + 1, format!("  group {}", rest.join(" ")));
            }
            _ => {
                let y = words(&lines[b]);
                let name = y[y.len() - 1].trim_end_matches(',').to_string();
                let form = ["b1", "u2", "u8", "plain"][random.below(4)];
                lines.insert(count + first, format!("  store {name} as {form}"));
            }
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn changed_plans_are_refused_or_give_the_same_bits() {
    let tries = count_from_env("ADFUSE_PROGRAMS", 60);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models");
    let mut random = Random(1);
    let (mut refused, mut ran) = (0, 0);
    for model in ["layer_norm", "mlp_relu", "attention", "dropout_mlp", "embedding", "recurrent"] {
        let text = std::fs::read_to_string(folder.join(format!("{model}.ir"))).expect("a model");
        let module = parse(&text).expect("parses");
        let f = module.find(model).expect("the model's function");
        let wrt = differentiable(f, None).expect("has floats");
        let g = forward_and_backward(&module, f, &wrt).expect("has a gradient");
        let f = prepare(&Module::single(g.clone()), &g).expect("is prepared");
        let mut inputs = rng(5, 0);
        let draw = |t| sample(t, Domain::Normal, &mut inputs).expect("small");
        let args: Vec<_> = f.param_types().iter().map(draw).collect();
        let expected = run(&Module::single(f.clone()), &f, &args, &mut Silent).expect("runs");
        for effort in [Effort::Off, Effort::Default] {
            let options = PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict };
            let device = &options.device;
            let whole = plan(&f, &options).expect("is planned").text(&f);
            for _ in 0..tries {
                let text = changed(&whole, &mut random);
                let Ok(plan) = Plan::parse(&text, &f) else {
                    refused += 1;
                    continue;
                };
                let Ok(program) = lower(&f, &plan, device) else {
                    refused += 1;
                    continue;
                };
                let planned = Occurrences::of(&f, &plan).expect("fits");
                let explainer = Explainer::new(&planned, device).expect("fits");
                for &i in f.body_insts().iter().step_by(7) {
                    let (a, b) = (f.inst_results(i)[0], f.results()[0]);
                    assert!(
                        !explainer.explain(a, b).lines(&f, &plan, device, "").is_empty(),
                        "{text}"
                    );
                }
                candidates(&f, &plan, device).expect("fits");
                let Ok(program) = verify(program) else {
                    refused += 1;
                    continue;
                };
                let found = kernel::run(&program, &args).unwrap_or_else(|d| panic!("{d}\n{text}"));
                assert!(found == expected, "{model}: other bits by\n{text}\n{}", *program);
                ran += 1;
            }
        }
    }
    assert!(refused > 3 * tries && ran > 0, "{refused} refused, {ran} ran");
}
