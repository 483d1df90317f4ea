//! Products with windows, run on the [machine](crate::machine): numbers are such that tensor cores, too, have the sums of the
//! kernel evaluator.

use crate::assembler::Assembly;
use crate::common::convolutions::{CONVOLUTIONS, Convolution, LARGE};
use crate::common::parallel;
use crate::lowered;
use crate::machine::run;
use crate::trials::Skipped;
use adfuse::backends::ptx::{self, GpuSchedule, GpuTarget};
use adfuse::backends::reference::kernel;
use adfuse::fusion::{Effort, Fp};
use adfuse::ir::kernel::{Program, Verified};
use adfuse::ir::rewrite::with_convolutions;
use adfuse::ir::{Kind, Module};

/// A convolution and its gradients, planned without fusion or with it, with convolutions in place of sums of windows.
fn planned(convolution: &Convolution, effort: Effort) -> Verified<Program> {
    let (_, g) = convolution.differentiated();
    let g = with_convolutions(&g).unwrap_or_else(|d| panic!("{}: {d}", convolution.name));
    lowered(&Module::single(g.clone()), &g, effort, Fp::Fast)
}

/// What becomes of a sum of windows has its values.
pub(crate) fn sums_of_windows_are_convolutions() {
    for convolution in CONVOLUTIONS {
        let (module, g) = convolution.differentiated();
        let before = lowered(&module, &g, Effort::Default, Fp::Fast);
        let after = planned(convolution, Effort::Default);
        let args = convolution.arguments();
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

/// Decisions that are given instead of the engine's own.
type Edit<'e> = Option<&'e dyn Fn(&str) -> String>;

fn agrees(convolution: &Convolution, effort: Effort, target: GpuTarget, edit: Edit<'_>) {
    let program = planned(convolution, effort);
    let name = format!("{} {effort:?} {}", convolution.name, target.name);
    let schedule = ptx::schedule(&program, target, Fp::Fast).unwrap_or_else(|d| panic!("{d}"));
    let text = edit.map_or_else(|| schedule.to_string(), |edit| edit(&schedule.to_string()));
    let schedule =
        GpuSchedule::parse(&text, &program).unwrap_or_else(|d| panic!("{name}: {d}\n{text}"));
    let module = ptx::print(&schedule).unwrap_or_else(|d| panic!("{name}: {d}"));
    let args = convolution.arguments();
    let expected = kernel::run(&program, &args).unwrap_or_else(|d| panic!("{name}: {d}"));
    for backwards in [false, true] {
        let found = run(&module, &program, &args, backwards);
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
        agrees(convolution, Effort::Default, GpuTarget::SM90, None);
        agrees(convolution, Effort::Off, GpuTarget::SM80, None);
    });
}

/// How many products of a schedule have windows.
fn windows(text: &str) -> usize {
    text.lines().filter(|line| line.ends_with(" convolution")).count()
}

pub(crate) fn windows_are_multiplied_by_tensor_cores_in_fast() {
    for convolution in CONVOLUTIONS {
        let program = planned(convolution, Effort::Default);
        let scheduled = |fp| {
            let schedule = ptx::schedule(&program, GpuTarget::SM90A, fp);
            schedule.unwrap_or_else(|d| panic!("{}: {d}", convolution.name)).to_string()
        };
        // The result and the gradients: products of windows. Those of kernels of one element are none, and those of one channel
        // have no rows. Windows that are two apart leave gaps, and those of groups are divided before they are added up.
        let due = match convolution.name {
            "depthwise" | "1x1" | "1x1, stride 2" => 0,
            "stride 2" | "7x7 of three channels" | "groups" => 2,
            _ => 3,
        };
        assert_eq!(windows(&scheduled(Fp::Fast)), due, "{}", convolution.name);
        // Sums of other modes have an order that tensor cores do not keep.
        for fp in [Fp::Strict, Fp::Reproducible] {
            assert_eq!(windows(&scheduled(fp)), 0, "{} {fp:?}", convolution.name);
        }
    }
}

pub(crate) fn tiles_of_large_ones_assemble_without_spills() -> Result<(), Skipped> {
    let mut all = Assembly::default();
    for convolution in LARGE {
        let program = planned(convolution, Effort::Default);
        let module = ptx::compile(&program, GpuTarget::SM90, Fp::Fast);
        let module = module.unwrap_or_else(|d| panic!("{}: {d}", convolution.name));
        assert!(module.text.contains("mma.sync"), "{}", convolution.name);
        all.add(convolution.name, &module, &program.to_string());
    }
    for r in all.assembled()? {
        assert_eq!(r.spilled, 0, "{}", r.entry);
    }
    Ok(())
}

/// The result of [`CONVOLUTIONS`]' first, and other tiles for it.
const MADE: &str = "tile rows=";

pub(crate) fn tiles_read_back_or_are_refused() {
    let convolution = &CONVOLUTIONS[0];
    let program = planned(convolution, Effort::Default);
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
        agrees(convolution, Effort::Default, GpuTarget::SM90, Some(&|_| edited(other)));
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
