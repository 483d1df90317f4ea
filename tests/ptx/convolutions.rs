//! Products with windows, run on the [machine](crate::machine): numbers are such that tensor cores, too, have the sums of the
//! kernel evaluator.

use crate::assembler::Assembly;
use crate::common::convolutions::{CONVOLUTIONS, Convolution, LARGE};
use crate::common::parallel;
use crate::machine::run;
use crate::trials::Skipped;
use crate::{compiled, lowered};
use adfuse::backends::Array;
use adfuse::backends::gpu::facts::{FactsCache, FactsOptions};
use adfuse::backends::ptx::{self, GpuSchedule, GpuTarget};
use adfuse::backends::reference::kernel;
use adfuse::fusion::{
    AnyEngine, Effort, EngineModel, Fp, KernelFacts, MachineModel, Plan, PlanOptions, lower,
    plan_for, prepare,
};
use adfuse::ir::kernel::{ProductTimes, Program, Role, Step, Verified, verify};
use adfuse::ir::rewrite::with_convolutions;
use adfuse::ir::{DType, Function, Inst, Kind, Module, Op};

/// Types of operands that tensor cores multiply.
pub(crate) const TYPES: [DType; 3] = [DType::F32, DType::BF16, DType::F16];

/// The engine, as far as plans depend on it, with no device there.
#[derive(Default)]
pub(crate) struct PlannedFor {
    facts: FactsCache,
}

impl EngineModel for PlannedFor {
    fn facts(&self, program: &Program, _: &MachineModel) -> Option<Vec<KernelFacts>> {
        let products = ProductTimes::default();
        let (target, fp) = (GpuTarget::SM90, Fp::Fast);
        self.facts.of(program, &FactsOptions { target, fp, library: true, products })
    }

    fn window_prologues(&self, fp: Fp) -> bool {
        fp == Fp::Fast
    }
}

/// A convolution and its gradients, prepared, with convolutions in place of sums of windows, and their plan without fusion or with
/// it.
fn planned_function(
    (convolution, dtype): (&Convolution, DType),
    effort: Effort,
    engine: &dyn EngineModel,
) -> (Function, Plan) {
    planned_of(convolution.differentiated(dtype).1, (convolution, effort), engine)
}

/// A function of a convolution, prepared, and its plan.
pub(crate) fn planned_of(
    g: Function,
    (convolution, effort): (&Convolution, Effort),
    engine: &dyn EngineModel,
) -> (Function, Plan) {
    let g = with_convolutions(&g).and_then(|g| prepare(&Module::single(g.clone()), &g));
    let g = g.unwrap_or_else(|d| panic!("{}: {d}", convolution.name));
    let options = PlanOptions { device: MachineModel::h200(), effort, fp: Fp::Fast };
    let plan = plan_for(&g, &options, engine);
    let plan = plan.unwrap_or_else(|d| panic!("{}: {d}", convolution.name));
    (g, plan)
}

fn planned(convolution: &Convolution, dtype: DType, effort: Effort) -> Verified<Program> {
    let (g, plan) = planned_function((convolution, dtype), effort, &AnyEngine);
    program_of(convolution, &g, &plan)
}

/// As [`planned`], where no kernel stores an array with zeros around it that products read.
fn planned_without_pads(convolution: &Convolution, dtype: DType) -> Verified<Program> {
    let (g, plan) = planned_function((convolution, dtype), Effort::Default, &AnyEngine);
    inlining(convolution, (&g, plan), &|i| g.op(i) == Op::Pad)
}

/// The program of a plan in which some instructions are inlined that give no result.
pub(crate) fn inlining(
    convolution: &Convolution,
    (g, mut plan): (&Function, Plan),
    which: &dyn Fn(Inst) -> bool,
) -> Verified<Program> {
    let inlined = |i: &Inst| which(*i) && !g.results().contains(&g.inst_results(*i)[0]);
    for group in &mut plan.groups {
        group.parts.iter_mut().for_each(|members| members.retain(|i| !inlined(i)));
        group.parts.retain(|members| !members.is_empty());
    }
    plan.groups.retain(|group| !group.parts.is_empty());
    let of_inlined =
        |v| g.body_insts().iter().any(|i| inlined(i) && g.inst_results(*i).contains(&v));
    plan.storage.retain(|(v, _)| !of_inlined(*v));
    let free = |i: &Inst| plan.inline.contains(i) || inlined(i);
    plan.inline = g.body_insts().iter().copied().filter(free).collect();
    program_of(convolution, g, &plan)
}

pub(crate) fn program_of(
    convolution: &Convolution,
    g: &Function,
    plan: &Plan,
) -> Verified<Program> {
    let program = lower(g, plan, &MachineModel::h200());
    let program = program.unwrap_or_else(|d| panic!("{}: {d}", convolution.name));
    verify(program).unwrap_or_else(|e| panic!("{}: {}", convolution.name, e[0]))
}

/// What becomes of a sum of windows has its values.
pub(crate) fn sums_of_windows_are_convolutions() {
    for convolution in CONVOLUTIONS {
        let (module, g) = convolution.differentiated(DType::F32);
        let before = lowered(&module, &g, Effort::Default, Fp::Fast);
        let after = planned(convolution, DType::F32, Effort::Default);
        let args = convolution.arguments(DType::F32);
        let [before, after] = [before, after].map(|program| {
            kernel::run(&program, &args).unwrap_or_else(|d| panic!("{}: {d}", convolution.name))
        });
        for (n, (before, after)) in before.iter().zip(&after).enumerate() {
            for k in 0..before.len() {
                let [x, y] = [before, after].map(|array| array.get(k).to_f64());
                assert_eq!(x, y, "{}: element {k} of result {n}", convolution.name);
            }
        }
    }
}

/// Of convolutions by channel and their gradients no step is a product, and what they are has the same values.
pub(crate) fn channels_by_themselves_are_elementwise() {
    for convolution in CONVOLUTIONS.iter().filter(|c| c.is_depthwise()) {
        for dtype in TYPES {
            let (module, g) = convolution.differentiated(dtype);
            let before = lowered(&module, &g, Effort::Default, Fp::Fast);
            let after = planned(convolution, dtype, Effort::Default);
            let products = |program: &Program| {
                program.steps.iter().filter(|s| matches!(s, Step::Contract(_))).count()
            };
            assert!(products(&before) > 0, "{} {dtype}", convolution.name);
            assert_eq!(products(&after), 0, "{} {dtype}", convolution.name);
            let args = convolution.arguments(dtype);
            let [before, after] = [before, after].map(|program| kernel::run(&program, &args));
            assert_eq!(before, after, "{} {dtype}", convolution.name);
        }
    }
}

/// Decisions that are given instead of the engine's own.
pub(crate) type Edit<'e> = Option<&'e dyn Fn(&str) -> String>;

fn agrees(
    (convolution, dtype): (&Convolution, DType),
    program: &Verified<Program>,
    target: GpuTarget,
    edit: Edit<'_>,
) {
    let name = format!("{} {dtype}", convolution.name);
    agrees_on((&name, &convolution.arguments(dtype)), program, target, edit);
}

/// Whether a program gives the kernel evaluator's numbers for these arguments.
pub(crate) fn agrees_on(
    (name, args): (&str, &[Array]),
    program: &Verified<Program>,
    target: GpuTarget,
    edit: Edit<'_>,
) {
    let name = format!("{name} {}", target.name);
    let schedule = ptx::schedule(program, target, Fp::Fast).unwrap_or_else(|d| panic!("{d}"));
    let text = edit.map_or_else(|| schedule.to_string(), |edit| edit(&schedule.to_string()));
    let schedule =
        GpuSchedule::parse(&text, program).unwrap_or_else(|d| panic!("{name}: {d}\n{text}"));
    let module = ptx::print(&schedule).unwrap_or_else(|d| panic!("{name}: {d}"));
    let expected = kernel::run(program, args).unwrap_or_else(|d| panic!("{name}: {d}"));
    for backwards in [false, true] {
        let found = run(&module, program, args, backwards);
        for (n, (found, expected)) in found.iter().zip(&expected).enumerate() {
            for k in 0..found.len() {
                let [x, y] = [found, expected].map(|array| array.get(k).to_f64());
                assert_eq!(x, y, "{name}: element {k} of result {n}\n{text}");
            }
        }
    }
}

pub(crate) fn sums_are_those_of_the_evaluator() {
    parallel::each(CONVOLUTIONS, |convolution| {
        for dtype in TYPES {
            let agrees = |program, target| agrees((convolution, dtype), &program, target, None);
            agrees(planned(convolution, dtype, Effort::Default), GpuTarget::SM90);
            agrees(planned_without_pads(convolution, dtype), GpuTarget::SM90);
            agrees(planned(convolution, dtype, Effort::Off), GpuTarget::SM80);
        }
    });
}

/// How many products of a schedule have windows.
pub(crate) fn windows(text: &str) -> usize {
    text.lines().filter(|line| line.ends_with(" convolution")).count()
}

pub(crate) fn windows_are_multiplied_by_tensor_cores_in_fast() {
    let dtype = DType::F32;
    for convolution in CONVOLUTIONS {
        let programs = [
            planned(convolution, dtype, Effort::Default),
            planned_without_pads(convolution, dtype),
        ];
        let scheduled = |program, fp| {
            let schedule = ptx::schedule(program, GpuTarget::SM90A, fp);
            schedule.unwrap_or_else(|d| panic!("{}: {d}", convolution.name)).to_string()
        };
        // The result and the gradients: products of windows. Those of kernels of one element are none, and those of one channel
        // no products. Sums of windows that are two apart, of odd extents, are no windows, and those of groups are divided before
        // they are added up.
        let due = match convolution.name {
            "1x1" | "1x1, stride 2" => 0,
            _ if convolution.is_depthwise() => 0,
            "stride 2" | "groups" => 2,
            _ => 3,
        };
        // An array with zeros between its elements is no box.
        let without_pads = if convolution.name == "zeros between" { 1 } else { due };
        for (program, due) in programs.iter().zip([due, without_pads]) {
            assert_eq!(windows(&scheduled(program, Fp::Fast)), due, "{}", convolution.name);
            // Sums of other modes have an order that tensor cores do not keep.
            for fp in [Fp::Strict, Fp::Reproducible] {
                assert_eq!(windows(&scheduled(program, fp)), 0, "{} {fp:?}", convolution.name);
            }
        }
    }
}

pub(crate) fn words_are_multiplied_by_tensor_cores() {
    for convolution in CONVOLUTIONS {
        // Lines of an odd number of elements have no whole words. Words of the gradient of a filter have two images, so those of one
        // image are none.
        let due = match convolution.name {
            "3x3" | "dilated" | "strides of one axis" => 3,
            "groups" | "stride 2, even" => 2,
            "7x7 of three channels" | "channels last" | "uneven padding" => 1,
            _ => 0,
        };
        for dtype in &TYPES[1..] {
            let program = planned(convolution, *dtype, Effort::Default);
            // Outside of strict sums of 16-bit floats have the order of tensor cores.
            for (fp, due) in [(Fp::Strict, 0), (Fp::Reproducible, due), (Fp::Fast, due)] {
                let schedule = ptx::schedule(&program, GpuTarget::SM90A, fp);
                let schedule = schedule.unwrap_or_else(|d| panic!("{}: {d}", convolution.name));
                let found = windows(&schedule.to_string());
                assert_eq!(found, due, "{} {dtype} {fp:?}", convolution.name);
            }
        }
    }
}

pub(crate) fn arrays_are_padded_for_libraries_alone() {
    for convolution in LARGE {
        let of = (convolution, DType::F32);
        let (g, plan) = planned_function(of, Effort::Default, &PlannedFor::default());
        let program = program_of(convolution, &g, &plan);
        // What is cut off a gradient is a result. Windows that a library multiplies are read from a padded array.
        let leaves =
            |step: &Step| step.writes().any(|b| matches!(program.buffers[b].role, Role::Temp));
        let pads = |step: &&Step| {
            matches!(step, Step::Kernel(k) if k.name.starts_with("pad")) && leaves(step)
        };
        let due = match convolution.name {
            "512 channels" => 2,
            "large, stride 2" | "the first of a net" => 1,
            _ => 0,
        };
        let found = program.steps.iter().filter(pads).count();
        assert_eq!(found, due, "{}: {}", convolution.name, *program);
    }
}

pub(crate) fn tiles_of_large_ones_assemble_without_spills() -> Result<(), Skipped> {
    let mut all = Assembly::default();
    let forms = LARGE.iter().flat_map(|convolution| TYPES.map(|dtype| (convolution, dtype)));
    for (convolution, dtype) in forms {
        let of = (convolution, dtype);
        let (g, plan) = planned_function(of, Effort::Default, &PlannedFor::default());
        let program = program_of(convolution, &g, &plan);
        let module = compiled(&program, GpuTarget::SM90, Fp::Fast);
        let name = format!("{} {dtype}", convolution.name);
        let module = module.unwrap_or_else(|d| panic!("{name}: {d}"));
        assert!(module.text.contains("mma.sync"), "{name}");
        all.add(&name, &module, &program.to_string());
    }
    for r in all.assembled()? {
        assert_eq!(r.spilled, 0, "{}", r.entry);
    }
    Ok(())
}

/// Gradients of filters in 16-bit floats read both operands as they lie, and a word of an image once for all windows of a piece and
/// the piece after it that have it: fewer words than there are products.
pub(crate) fn windows_share_words() {
    let convolution = Convolution {
        name: "64 images",
        operand: &[64, 64, 56, 56],
        result: &[64, 64, 56, 56],
        ..LARGE[0]
    };
    let of = (&convolution, DType::BF16);
    let (g, plan) = planned_function(of, Effort::Default, &PlannedFor::default());
    let program = program_of(of.0, &g, &plan);
    let schedule = ptx::schedule(&program, GpuTarget::SM90, Fp::Fast).expect("is scheduled");
    assert!(schedule.to_string().contains("operands lhs=copied rhs=copied"), "{schedule}");
    let text = ptx::print(&schedule).expect("is printed").text;
    let counts = |what: &str| {
        text.split(".visible .entry").map(|entry| entry.matches(what).count()).collect::<Vec<_>>()
    };
    let (products, reads) = (counts("mma.sync"), counts("ld.shared.b32"));
    let shared = products.iter().zip(&reads).filter(|(products, reads)| reads < products).count();
    assert_eq!(shared, 1, "{products:?} products, {reads:?} words");
}

/// The result of [`CONVOLUTIONS`]' first, and other tiles for it.
const MADE: &str = "tile rows=";

pub(crate) fn tiles_read_back_or_are_refused() {
    let convolution = &CONVOLUTIONS[0];
    let of = (convolution, DType::F32);
    let program = planned(convolution, DType::F32, Effort::Default);
    let text =
        ptx::schedule(&program, GpuTarget::SM90, Fp::Fast).expect("is scheduled").to_string();
    let line = text.lines().find(|line| line.contains(MADE)).expect("a tile").trim();
    let edited = |to: &str| text.replacen(line, to, 1);
    let with = |key: &str, value: &str| {
        let fields = line.split(' ').map(|field| match field.split_once('=') {
            Some((found, _)) if found == key => format!("{key}={value}"),
            _ => field.to_owned(),
        });
        fields.collect::<Vec<_>>().join(" ")
    };
    // Rows are output channels, columns images and their points, the depth input channels and the kernel.
    for other in [
        "tile rows=[32] cols=[1,1,8] depth=[16,3,3] warps=2x1 resident=1",
        "tile rows=[16] cols=[2,2,8] depth=[8,1,3] warps=1x4 resident=2",
        "tile rows=[32] cols=[1,9,8] depth=[8,3,3] warps=1x9 resident=1",
    ] {
        agrees(of, &program, GpuTarget::SM90, Some(&|_| edited(other)));
    }
    for (key, value, kind) in [
        ("rows", "[24]", Kind::Usage),
        ("rows", "[16,16]", Kind::Usage),
        ("rows", "16", Kind::Syntax),
        ("cols", "[1,1,7]", Kind::Usage),
        ("depth", "[8,3]", Kind::Usage),
        ("depth", "[2,3,3]", Kind::Usage),
        ("depth", "[4096,4096,4096]", Kind::Usage),
        ("cols", "[4096,4096,4096]", Kind::Usage),
        ("warps", "3x1", Kind::Usage),
        ("resident", "90", Kind::Usage),
    ] {
        let refused = GpuSchedule::parse(&edited(&with(key, value)), &program);
        let refused = refused.err().unwrap_or_else(|| panic!("{key}={value}"));
        assert_eq!(refused.kind, kind, "{key}={value}: {refused}");
        assert!(refused.at.span.is_some(), "{key}={value}: {refused}");
    }
}
