//! Mistakes in what engines are asked for.

use super::{Mistake, Outcome, named};
use adfuse::autodiff::value_and_grad;
use adfuse::engine::registry::NamedEngine;
use adfuse::prelude::*;

pub(crate) const MISTAKES: &[Mistake] = named! {
    budget_that_is_too_small
    unknown_engine
    unknown_device
    lent_argument_that_is_written_to
    loop_without_an_end
    function_that_is_not_there
};

/// A function of an input, in its module.
fn alone(f: &Function) -> Module {
    Module::single(f.clone())
}

fn budget_that_is_too_small() -> Outcome {
    let f = trace("f", |t| {
        let (x, w) = (t.input("x", f32s([64, 64])), t.input("w", f32s([64, 64])));
        x.dot(&w).tanh().sum(&[0, 1])
    })?;
    let g = value_and_grad(&alone(&f), &f, &[0, 1])?;
    Cpu { mem_budget: Some(10_000), ..Cpu::default() }.compile(&alone(&g), &g)?;
    Ok(())
}

fn unknown_engine() -> Outcome {
    "cuda".parse::<NamedEngine>()?;
    Ok(())
}

fn unknown_device() -> Outcome {
    Device::named("cuda:0")?;
    Ok(())
}

fn lent_argument_that_is_written_to() -> Outcome {
    let f = trace("f", |t| t.input("x", f32s([4])).sin())?;
    let made = Cpu { donated: vec![0], ..Cpu::default() }.compile(&alone(&f), &f)?;
    made.executable.run(&[Array::from_f32s(&[4], &[1.0; 4])?])?;
    Ok(())
}

fn loop_without_an_end() -> Outcome {
    let f = trace("f", |t| {
        let x = t.input("x", f32s([]));
        t.while_loop(x, |x| x.gt(0.0), |x| x + 1.0)
    })?;
    let mut cpu = Cpu::default();
    cpu.limits.max_trips = 1000;
    let made = cpu.compile(&alone(&f), &f)?;
    made.executable.run(&[Array::from_f32s(&[], &[1.0])?])?;
    Ok(())
}

fn function_that_is_not_there() -> Outcome {
    let square = trace("square", |t| t.input("x", f32s([4])).square())?;
    let f = trace("f", |t| {
        let x = t.input("x", f32s([4]));
        let attrs = Attrs::none().with("func", adfuse::ir::Attr::Func("sqare".into()));
        t.call(&square, &[&x]).remove(0) + t.apply(Op::Call, &[&x], attrs, Some(&f32s([4])))
    })?;
    Cpu::default().compile(&alone(&f), &f)?;
    Ok(())
}

/// What is said depends on the host: without a driver there is no GPU at all.
#[test]
#[cfg(feature = "gpu")]
fn a_gpu_that_is_not_there_is_told() {
    let d = Gpu::open(4000).map(|_| ()).expect_err("is not there");
    assert!(d.kind == Kind::NoDevice && d.to_string().starts_with("no GPU"), "{d}");
}
