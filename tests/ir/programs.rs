//! Properties of random programs. `ADFUSE_PROGRAMS` sets how many (a few hundred by default).

use crate::common::programs::decode;
use crate::common::random::programs;
use adfuse::autodiff::{differentiable, forward_and_backward, jvp, linearize, vjp};
use adfuse::backends::Array;
use adfuse::backends::reference::{Silent, run};
use adfuse::check::{CheckOptions, CheckRow, check_function};
use adfuse::ir::op::Domain;
use adfuse::ir::rewrite::{Exactness, cse, dce, simplify, widen};
use adfuse::ir::{DType, Function, Module, text, verify};
use adfuse::sample::{rng, sample};

fn inputs(f: &Function, domain: Domain) -> Vec<Array> {
    let mut rng = rng(3, 0);
    f.param_types().iter().map(|t| sample(t, domain, &mut rng).expect("small")).collect()
}

fn evaluate(f: &Function, args: &[Array]) -> Result<Vec<Array>, String> {
    run(&Module::single(f.clone()), f, args, &mut Silent).map_err(|d| d.to_string())
}

fn well_formed(f: &Function) -> Result<(), String> {
    let module = Module::single(f.clone());
    verify(&module).map_err(|e| format!("{e:?}\n{f}"))?;
    let printed = text::print_module(&module);
    let parsed = text::parse(&printed).map_err(|e| format!("{e:?}\n{printed}"))?;
    let again = text::print_module(&parsed);
    if again != printed {
        return Err(format!("printing is no fixpoint:\n{printed}\n{again}"));
    }
    verify(&parsed).map_err(|e| format!("after parsing: {e:?}\n{printed}"))
}

#[test]
fn derivatives_agree_with_differences() {
    programs(7, 200, |steps| {
        let f = decode(steps, DType::F64);
        well_formed(&f)?;
        let module = widen(&Module::single(f)).map_err(|d| d.to_string())?;
        let f = module.find("random").ok_or("no function")?;
        let rows =
            check_function(&module, f, &CheckOptions::default()).map_err(|d| d.to_string())?;
        let bad: Vec<&CheckRow> = rows.iter().filter(|r| r.failed()).collect();
        if bad.is_empty() { Ok(()) } else { Err(format!("{bad:#?}\n{f}")) }
    });
}

#[test]
fn transformed_programs_are_well_formed() {
    programs(7, 200, |steps| {
        let f = decode(steps, DType::F32);
        let module = Module::single(f.clone());
        let wrt = differentiable(&f, None).map_err(|d| d.to_string())?;
        let fail = |d: adfuse::ir::Diagnostic| format!("{d}\n{f}");
        well_formed(&jvp(&module, &f, &wrt).map_err(fail)?)?;
        well_formed(&vjp(&module, &f, &wrt).map_err(fail)?)?;
        well_formed(&forward_and_backward(&module, &f, &wrt[..1]).map_err(fail)?)?;
        let split = linearize(&module, &f, &wrt).map_err(fail)?;
        well_formed(&split.primal)?;
        well_formed(&split.linear)
    });
}

#[test]
fn rewrites_keep_every_bit() {
    programs(7, 200, |steps| {
        let f = decode(steps, DType::F32);
        let args = inputs(&f, Domain::Normal);
        let expected = evaluate(&f, &args)?;
        let mut plain = f.clone();
        dce(&mut plain);
        let mut shared = f.clone();
        cse(&mut shared);
        let simple = simplify(&f, Exactness::Exact).map_err(|d| d.to_string())?;
        for (name, g) in [("dce", &plain), ("cse", &shared), ("simplify", &simple)] {
            well_formed(g)?;
            if evaluate(g, &args)? != expected {
                return Err(format!("{name} changes the result of\n{f}\nto that of\n{g}"));
            }
        }
        Ok(())
    });
}
