//! Products with windows that compute what they read, and round it once, in shared memory.

use crate::assembler::Assembly;
use crate::common::convolutions::{CONVOLUTIONS, Convolution, LARGE};
use crate::common::parallel;
use crate::convolutions::{
    PlannedFor, TYPES, agrees_on, inlining, planned_of, program_of, windows,
};
use crate::machine::run;
use crate::trials::Skipped;
use adfuse::backends::Array;
use adfuse::backends::ptx::{self, GpuSchedule, GpuTarget};
use adfuse::fusion::{AnyEngine, Effort, Fp};
use adfuse::ir::kernel::{Program, Step, Verified};
use adfuse::ir::op::Body;
use adfuse::ir::scalar::{SOp, ScalarProgram};
use adfuse::ir::{DType, Kind, Op};

/// A convolution of what is normalised, with its gradients, where products compute all that is elementwise of what they read.
fn computing(convolution: &Convolution, dtype: DType) -> Verified<Program> {
    let (_, g) = convolution.normalised(dtype);
    let (g, plan) = planned_of(g, (convolution, Effort::Default), &AnyEngine);
    let map = |i| matches!(g.op(i).def().body, Body::Map(_)) || g.op(i) == Op::Pad;
    inlining(convolution, (&g, plan), &map)
}

/// The schedule of a program in `fast`.
fn scheduled(program: &Verified<Program>) -> String {
    let schedule = ptx::schedule(program, GpuTarget::SM90A, Fp::Fast);
    schedule.unwrap_or_else(|d| panic!("{d}")).to_string()
}

/// How many operands of products compute what they read.
fn computed(program: &Program) -> usize {
    let contracts = program.steps.iter().filter_map(|step| match step {
        Step::Contract(c) => Some(&c.members),
        _ => None,
    });
    let feeds = contracts.flatten().flat_map(|m| [&m.lhs, &m.rhs]);
    let is_computed =
        |program: &ScalarProgram| !matches!(program.insts[program.outputs[0]].op, SOp::Param(_));
    feeds.filter(|feed| is_computed(&feed.program)).count()
}

pub(crate) fn computed_operands_have_the_sums_of_the_evaluator() {
    let forms: Vec<(&Convolution, DType)> = CONVOLUTIONS
        .iter()
        .flat_map(|convolution| TYPES.map(|dtype| (convolution, dtype)))
        .collect();
    parallel::each(&forms, |&(convolution, dtype)| {
        let program = computing(convolution, dtype);
        let name = format!("{} {dtype}", convolution.name);
        let due = if convolution.is_depthwise() { 0 } else { 2 };
        assert!(computed(&program) >= due, "{name}: {}", *program);
        let args = convolution.normalised_arguments(dtype);
        agrees_on((&name, &args), &program, GpuTarget::SM90, None);
        // Words of neighbours in memory are taken as they were copied.
        let staged = |text: &str| match dtype {
            DType::F32 => text.replace("=copied", "=staged"),
            _ => text.to_owned(),
        };
        agrees_on((&name, &args), &program, GpuTarget::SM90, Some(&staged));
        // Where there is no stage for it, elements are computed before they are multiplied.
        let ahead = |text: &str| {
            let lines = staged(text);
            let staged = lines.contains("=staged");
            let lines = lines.lines().map(|line| match line.contains("stages=2") || !staged {
                true => format!("{line}\n"),
                false => format!("{}\n", line.replace("ahead=0", "ahead=1")),
            });
            lines.collect()
        };
        agrees_on((&name, &args), &program, GpuTarget::SM90, Some(&ahead));
    });
}

pub(crate) fn what_is_computed_is_multiplied_by_tensor_cores() {
    for convolution in CONVOLUTIONS {
        let program = computing(convolution, DType::F32);
        let due = match convolution.name {
            // Kernels of one element have no windows; those of one channel are no products; zeros between elements are no box.
            "1x1" | "1x1, stride 2" => 0,
            _ if convolution.is_depthwise() => 0,
            // A scale of each element of a line is none of lines.
            "channels last" => 0,
            // Sums of windows that are two apart, of odd extents, are no windows, and those of groups are divided before they are
            // added up.
            "zeros between" => 1,
            "stride 2" | "groups" => 2,
            _ => 3,
        };
        let text = scheduled(&program);
        assert_eq!(windows(&text), due, "{}: {}\n{text}", convolution.name, *program);
        if due > 0 {
            assert!(text.contains("rhs=staged"), "{}: {text}", convolution.name);
        }
    }
}

/// Numbers that TF32 rounds.
fn fractions(args: &[Array]) -> Vec<Array> {
    let mut state = 0x1234_5678u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 16_777_216.0 - 0.5
    };
    let other = |array: &Array| {
        let bits: Vec<u64> = (0..array.len()).map(|_| u64::from(next().to_bits())).collect();
        Array::from_bits(DType::F32, array.dims(), &bits).expect("fits")
    };
    args.iter().map(other).collect()
}

pub(crate) fn rounding_once_changes_no_bit() {
    let convolution = &CONVOLUTIONS[0];
    let (_, g) = convolution.differentiated(DType::F32);
    let (g, plan) = planned_of(g, (convolution, Effort::Default), &AnyEngine);
    let program = program_of(convolution, &g, &plan);
    let args = fractions(&convolution.arguments(DType::F32));
    let text = scheduled(&program).replace("sm_90a", "sm_90");
    let with = |lhs: &str, rhs: &str| {
        let lines = text.lines().map(|line| match line.trim_start().starts_with("operands") {
            true => format!("    operands lhs={lhs} rhs={rhs}\n"),
            false => format!("{line}\n"),
        });
        let schedule = GpuSchedule::parse(&lines.collect::<String>(), &program);
        let schedule = schedule.unwrap_or_else(|d| panic!("{d}"));
        let module = ptx::print(&schedule).unwrap_or_else(|d| panic!("{d}"));
        run(&module, &program, &args, false)
    };
    let copied = with("copied", "copied");
    for (lhs, rhs) in [("staged", "copied"), ("copied", "staged"), ("staged", "staged")] {
        let staged = with(lhs, rhs);
        for (n, (copied, staged)) in copied.iter().zip(&staged).enumerate() {
            let all = 0..copied.len();
            let other = all.filter(|&k| copied.get(k).bits() != staged.get(k).bits()).count();
            assert_eq!(other, 0, "{lhs}, {rhs}: result {n}");
        }
    }
}

pub(crate) fn paths_read_back_or_are_refused() {
    let program = computing(&CONVOLUTIONS[0], DType::F32);
    let text = scheduled(&program);
    let line = |name: &str| {
        let found = text.lines().map(str::trim).find(|line| line.starts_with(name));
        found.expect("a convolution")
    };
    let (operands, pipeline) = (line("operands"), line("pipeline"));
    assert!(operands.ends_with("rhs=staged"), "{operands}");
    for (line, to, kind) in [
        (operands, "operands lhs=staged rhs=copied", Kind::Usage),
        (operands, "operands lhs=rounded rhs=staged", Kind::Syntax),
        (operands, "operands lhs=staged", Kind::Syntax),
        (pipeline, "pipeline stages=4 ahead=2", Kind::Usage),
        (pipeline, "pipeline stages=2 ahead=1", Kind::Usage),
        (pipeline, "pipeline stages=2", Kind::Syntax),
    ] {
        let refused = GpuSchedule::parse(&text.replacen(line, to, 1), &program);
        let refused = refused.err().unwrap_or_else(|| panic!("{to}"));
        assert_eq!(refused.kind, kind, "{to}: {refused}");
        assert!(refused.at.span.is_some(), "{to}: {refused}");
    }
}

pub(crate) fn normalised_arrays_are_not_stored() -> Result<(), Skipped> {
    let convolution = &LARGE[0];
    let mut all = Assembly::default();
    for dtype in TYPES {
        let (_, g) = convolution.normalised(dtype);
        let (g, plan) = planned_of(g, (convolution, Effort::Default), &PlannedFor::default());
        let program = program_of(convolution, &g, &plan);
        // The result and the gradient of the filter compute what they read of the operand.
        assert!(dtype != DType::F32 || computed(&program) >= 2, "{}", *program);
        let module = ptx::compile(&program, GpuTarget::SM90A, Fp::Fast);
        let module = module.unwrap_or_else(|d| panic!("{dtype}: {d}"));
        all.add(&format!("{} {dtype}", convolution.name), &module, &program.to_string());
    }
    for r in all.assembled()? {
        assert_eq!(r.spilled, 0, "{}", r.entry);
    }
    Ok(())
}
