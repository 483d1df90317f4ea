//! Plans of one budget, without the frontier around them, are those of the frontier.

use adfuse::autodiff::{differentiable, forward_and_backward};
use adfuse::fusion::{
    AnyEngine, Effort, Fp, Lossy, MachineModel, PlanBudget, PlanOptions, budget_frontier, plan_for,
    plan_point, plans_within, prepare, recover_operands,
};
use adfuse::ir::text::parse;
use adfuse::ir::{Function, Module};

fn prepared(module: &Module) -> Function {
    let f = module.find("f").expect("is there");
    prepare(module, f).expect("is prepared")
}

/// Updates of parameters by functions of their gradients, all scaled by one number: short kernels that wait for it, and that
/// take less memory once they share launches.
fn updates(sizes: &[u64]) -> Function {
    let (mut params, mut body, mut sum) = (Vec::new(), String::new(), String::from("%r0"));
    for (k, n) in sizes.iter().enumerate() {
        params.push(format!("%p{k}: f32[{n}], %g{k}: f32[{n}]"));
        body += &format!(
            "%a{k} = tanh %g{k} : f32[{n}]\n%r{k} = reduce_sum %a{k} {{axes = [0]}} : f32[]\n"
        );
    }
    for k in 1..sizes.len() {
        body += &format!("%s{k} = add {sum}, %r{k} : f32[]\n");
        sum = format!("%s{k}");
    }
    for (k, n) in sizes.iter().enumerate() {
        body += &format!("%k{k} = broadcast_in_dim {sum} {{dims = []}} : f32[{n}]\n");
        body +=
            &format!("%m{k} = mul %a{k}, %k{k} : f32[{n}]\n%n{k} = sub %p{k}, %m{k} : f32[{n}]\n");
    }
    let types: Vec<String> = sizes.iter().map(|n| format!("f32[{n}]")).collect();
    let results: Vec<String> = (0..sizes.len()).map(|k| format!("%n{k}")).collect();
    let [params, types, results] = [params, types, results].map(|all| all.join(", "));
    let text = format!("func @f({params}) -> ({types}) {{\n{body}return {results}\n}}");
    prepared(&parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}")))
}

#[test]
fn one_budget_gets_the_plan_of_the_frontier() {
    let sizes =
        [1024, 1024, 16, 32, 100, 32, 32, 100, 100, 257, 16, 1024, 32, 16, 32, 1024, 257, 16];
    let (lossy, mut others) = (Lossy::default(), 0);
    for f in [updates(&sizes), updates(&sizes[..9])] {
        for device in [MachineModel::cpu(), MachineModel::h200()] {
            for effort in [Effort::Quick, Effort::Default] {
                let options = PlanOptions { device: device.clone(), effort, fp: Fp::Strict };
                let frontier = budget_frontier(&f, &lossy, &options, &AnyEngine).expect("plans");
                others += frontier.points().len() - 1;
                for point in frontier.points() {
                    for budget in [point.point.peak, point.point.peak + 1] {
                        let of = PlanBudget::from(budget);
                        let found = plans_within(&f, &lossy, (&options, &of), &AnyEngine);
                        let found = found.expect("plans");
                        let found = &found.within(&of).expect("there is one").point;
                        let (p, q) = (found, &point.point);
                        assert_eq!(
                            (p.peak, p.seconds),
                            (q.peak, q.seconds),
                            "{effort:?} {budget}\n{f}"
                        );
                    }
                }
            }
        }
    }
    assert!(others > 0, "every frontier has one plan");
}

/// Rewrites of a function may have its text and other numbers of instructions and values: what is known of one is no plan of
/// another.
#[test]
fn functions_of_equal_text_have_plans_of_their_own() {
    for (a, call, results) in [
        ("f32[4,3]", "%r, %s = qr %a : f32[4,3], f32[3,3]", "f32[4,3], f32[3,3]"),
        ("f32[3,3]", "%r, %s, %t = lu %a : f32[3,3], i32[3], i32[3]", "f32[3,3], i32[3], i32[3]"),
    ] {
        let names = if results.contains("i32") { "%r, %s, %t" } else { "%r, %s" };
        let text = format!("func @f(%a: {a}) -> ({results}) {{\n{call}\nreturn {names}\n}}");
        let module = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        let f = module.find("f").expect("is there");
        let wrt = differentiable(f, None).expect("there is one");
        let g = forward_and_backward(&module, f, &wrt).expect("is differentiated");
        let g = prepare(&Module::single(g.clone()), &g).expect("is prepared");
        for (device, effort, fp) in [
            (MachineModel::cpu(), Effort::Default, Fp::Strict),
            (MachineModel::cpu(), Effort::Default, Fp::Fast),
            (MachineModel::cpu(), Effort::Search, Fp::Strict),
            (MachineModel::h200(), Effort::Default, Fp::Strict),
            (MachineModel::h200(), Effort::Default, Fp::Fast),
        ] {
            let options = PlanOptions { device, effort, fp };
            let engine = adfuse::fusion::MemoEngine::new(&AnyEngine, &options.device);
            let recovered = recover_operands(&g, &options, &engine).expect("is decided");
            let plan = plan_for(&recovered.function, &options, &engine).expect("a plan");
            plan_point(&recovered.function, plan, &options, &engine).expect("is its own");
        }
    }
}
