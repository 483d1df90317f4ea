//! Attention as text: forms assemble, those of the table without spills, and have schedules that read back. In the defined order it has the
//! bits of the kernel evaluator.

use crate::assembler::{Assembly, Resources};
use crate::bits::agrees_as;
use crate::common::attentions::{Extra, Form, defined, large, table};
use crate::common::kernels::arguments;
use crate::common::parallel;
use crate::trials::Skipped;
use crate::{compiled, read};
use adfuse::backends::Array;
use adfuse::backends::ptx::{self, GpuSchedule, GpuTarget};
use adfuse::backends::reference::kernel;
use adfuse::fusion::Fp;
use adfuse::ir::kernel::{Program, Verified, verify};
use adfuse::ir::{DType, Kind};

fn program(form: &Form, backward: bool) -> Verified<Program> {
    let text = form.text(backward);
    let program = read(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    verify(program).unwrap_or_else(|e| panic!("{}\n{text}", e[0]))
}

pub(crate) fn all_forms_assemble_without_spills() -> Result<(), Skipped> {
    let mut all = [(); 3].map(|()| Assembly::default());
    let rounded = [Fp::Fast, Fp::Reproducible]
        .into_iter()
        .flat_map(|fp| table().into_iter().chain(large()).map(move |form| (form, fp)));
    let whole = large().into_iter().filter(|form| form.depth <= 128);
    let whole = whole.map(|form| Form { dtype: DType::F32, ..form });
    let whole = defined().into_iter().chain(whole).map(|form| (form, Fp::Strict));
    for (n, (form, fp)) in rounded.chain(whole).enumerate() {
        for backward in [false, true] {
            let program = program(&form, backward);
            for target in GpuTarget::ALL {
                let made = |p| compiled(p, target, fp);
                let module = made(&program).unwrap_or_else(|d| panic!("{d}\n{form:?}"));
                assert_eq!(made(&program).as_ref(), Ok(&module), "{form:?}");
                for launch in module.steps.iter().flat_map(|s| &s.launches) {
                    assert!(launch.shared <= target.shared, "{form:?} {}", launch.entry);
                }
                let approximates = module.text.contains(".approx");
                assert!(!approximates || fp == Fp::Fast, "{form:?} {fp:?}");
                // The assembler takes its time: the largest, those with more in registers, and some of the others.
                // Of few lines and of many elements warps multiply on every chip.
                let warps = module.text.contains("mma.sync");
                let largest = form.stream > 1000;
                let has_extra = form.extra != Extra::None && fp != Fp::Reproducible;
                let which = match (fp, target) {
                    (Fp::Strict, GpuTarget::SM90) if n % 4 == 2 || largest || has_extra => 2,
                    (Fp::Strict, _) => continue,
                    (_, GpuTarget::SM90A) if warps && (n % 4 == 2 || has_extra) => 0,
                    (_, GpuTarget::SM90) if n % 4 == 1 || largest => 0,
                    (_, GpuTarget::SM90A) if n % 4 == 2 || largest || has_extra => 1,
                    _ => continue,
                };
                all[which].add(&format!("{form:?}"), &module, &program.to_string());
            }
        }
    }
    let [warps, groups, threads] = all;
    for (assembly, most) in [(warps, 16), (groups, 0), (threads, 0)] {
        // What only a short last tile needs may wait in memory where warps multiply.
        let spilled: Vec<String> = assembly
            .assembled()?
            .into_iter()
            .filter(|r| r.spilled > most)
            .map(|r| {
                let Resources { module, entry, registers, spilled } = r;
                format!("{entry}: {spilled} bytes, {registers} registers: {module}")
            })
            .collect();
        assert!(spilled.is_empty(), "{}", spilled.join("\n"));
    }
    Ok(())
}

/// Strict mode rounds no weights, and the defined order is one of `f32`, which `fast` does not ask for.
pub(crate) fn other_modes_refuse_attention() {
    let rounded = table()[0];
    let whole = Form { dtype: DType::F32, ..rounded };
    let wide = Form { dtype: DType::F64, ..rounded };
    let deep = Form { depth: 256, ..whole };
    let odd = Form { width: 6, ..whole };
    for (form, fp, due) in [
        (rounded, Fp::Strict, false),
        (rounded, Fp::Reproducible, true),
        (rounded, Fp::Fast, true),
        (whole, Fp::Strict, true),
        (whole, Fp::Reproducible, true),
        (whole, Fp::Fast, false),
        (wide, Fp::Strict, false),
        (deep, Fp::Strict, false),
        (odd, Fp::Strict, false),
    ] {
        let made = ptx::compile(&program(&form, false), GpuTarget::SM90, fp);
        let due = if due { Ok(()) } else { Err(Kind::Unsupported) };
        assert_eq!(made.map(|_| ()).map_err(|d| d.kind), due, "{form:?} {fp:?}");
    }
}

/// Arguments with some numbers that are not ordinary, of which a few rows and keys have one each.
fn with_unusual(mut args: Vec<Array>) -> Vec<Array> {
    let unusual = [f64::NAN, f64::NEG_INFINITY, -0.0, 3e38, f64::INFINITY, 1e-40];
    for (k, arg) in args.iter_mut().enumerate().filter(|(_, arg)| arg.ty().dtype == DType::F32) {
        let mut all = arg.to_f64s();
        let n = all.len();
        for (m, x) in unusual.iter().enumerate().filter(|_| n > 8) {
            // Each operand has others, at other places.
            if (k + m) % 3 == 0 {
                all[(n / 7 * m + 5 * k) % n] = *x;
            }
        }
        let dims = arg.ty().dims().expect("known");
        *arg = Array::from_f64s(DType::F32, &dims, &all).expect("fits");
    }
    args
}

/// In the defined order attention and its way back have the bits of the kernel evaluator, of numbers that are not finite too.
pub(crate) fn defined_attention_has_the_bits_of_its_definition() {
    let cases: Vec<(Form, bool)> =
        defined().into_iter().flat_map(|form| [false, true].map(|odd| (form, odd))).collect();
    parallel::each(&cases, |&(form, odd)| {
        let [forward, backward] = [false, true].map(|backward| program(&form, backward));
        let with = |args| if odd { with_unusual(args) } else { args };
        let args = with(arguments(&forward));
        let outputs = kernel::run(&forward, &args).unwrap_or_else(|d| panic!("{form:?}: {d}"));
        let mut back = with(arguments(&backward));
        // The way back is given the logarithms of the sums that there were.
        back[3] = outputs[1].clone();
        for (program, args) in [(forward, args), (backward, back)] {
            let made = ptx::compile(&program, GpuTarget::SM90, Fp::Strict);
            let made = made.unwrap_or_else(|d| panic!("{d}\n{form:?}"));
            agrees_as(&format!("{form:?}"), &made, &program, &args);
        }
    });
}

/// Blocks of any number of lines have the same bits: those of larger ones are chosen for many heads alone.
pub(crate) fn larger_blocks_have_the_bits_of_the_definition() {
    let forms = [0, 5, 8].map(|k| defined()[k]);
    let cases: Vec<(Form, bool)> =
        forms.iter().flat_map(|&form| [false, true].map(|backward| (form, backward))).collect();
    parallel::each(&cases, |&(form, backward)| {
        let program = program(&form, backward);
        let args = arguments(&program);
        let text = ptx::schedule(&program, GpuTarget::SM90, Fp::Strict).expect("is scheduled");
        let text = text.to_string();
        let mut ran = 0;
        for (own, warps) in [(16, 2), (32, 4), (64, 8), (128, 16)] {
            let tile = format!("own={own} step=128 warps={warps} stages=1 resident=1");
            let edited = text.lines().map(|line| match line.split_once("own=") {
                Some((head, _)) => format!("{head}{tile}"),
                None => line.to_owned(),
            });
            let edited = edited.collect::<Vec<_>>().join("\n") + "\n";
            // Some passes have no room for the largest.
            let Ok(schedule) = GpuSchedule::parse(&edited, &program) else { continue };
            let module = ptx::print(&schedule).unwrap_or_else(|d| panic!("{d}\n{form:?}"));
            agrees_as(&format!("{form:?}, {own} lines"), &module, &program, &args);
            ran += 1;
        }
        assert!(ran >= 2, "{form:?}");
    });
}

/// A sum that has underflowed from below is -0. Keys that do not exist must leave it so: here in a block of which 44 of 128 do,
/// after one whose larger scores shrink all before to -0.
pub(crate) fn sums_below_zero_stay() {
    let of = |values: &dyn Fn(usize) -> f64, n: usize| -> Vec<f64> { (0..n).map(values).collect() };
    let array = |dims: [u64; 3], all: Vec<f64>| {
        let dims: Vec<u64> = [1].into_iter().chain(dims).collect();
        Array::from_f64s(DType::F32, &dims, &all).expect("fits")
    };
    let score = |key: usize| [0.0, if key == 255 { 200.0 } else { 199.0 }, 190.0][key / 128];
    let k = of(&|n| if n % 4 == 0 { score(n / 4) } else { 0.0 }, 4 * 300);
    let v = of(&|n| if n / 4 == 255 { -0.0 } else { -1.5e-45 }, 4 * 300);
    let args =
        [array([1, 1, 4], vec![1.0, 0.0, 0.0, 0.0]), array([1, 300, 4], k), array([1, 300, 4], v)];
    let form = Form { heads: [1, 1, 1], rows: 1, stream: 300, depth: 4, width: 4, ..defined()[4] };
    let program = program(&form, false);
    let due = kernel::run(&program, &args).expect("runs");
    assert!(due[0].to_f64s().iter().all(|y| *y == 0.0 && y.is_sign_negative()), "{due:?}");
    let made = ptx::compile(&program, GpuTarget::SM90, Fp::Strict).expect("compiles");
    agrees_as("sums below zero", &made, &program, &args);
}

/// Warpgroups multiply what the copy engine brings: lines enough, outside of loops, on the chips that have them.
pub(crate) fn long_attentions_have_warpgroups() {
    for form in table().iter().chain(&large()) {
        for backward in [false, true] {
            let program = program(form, backward);
            for target in GpuTarget::ALL {
                let schedule = ptx::schedule(&program, target, Fp::Fast).expect("is scheduled");
                let is_long = form.rows >= 64 && form.stream >= 64;
                let due = target == GpuTarget::SM90A && is_long;
                let text = schedule.to_string();
                assert_eq!(text.contains("unit=warpgroup"), due, "{form:?}\n{text}");
                let module = ptx::print(&schedule).unwrap_or_else(|d| panic!("{d}"));
                assert_eq!(module.text.contains("wgmma.mma_async"), due, "{form:?}");
            }
        }
    }
}

/// Decisions of attention as text: they read back, other tiles give other code, and those that do not fit are refused.
pub(crate) fn schedules_of_attention_read_back() {
    let warps = [
        ("own=128", "own=64", true),
        ("step=64", "step=32", true),
        ("own=128", "own=100", false),
        ("step=64", "step=0", false),
        ("warps=4", "warps=64", false),
        ("stages=2", "stages=3", false),
        ("resident=2", "resident=9", false),
        ("pass=values", "pass=keys", false),
        ("unit=warp", "unit=warpgroup", false),
        ("unit=warp", "unit=thread", false),
    ];
    let groups = [
        ("step=64", "step=32", true),
        ("step=128", "step=96", true),
        ("step=96", "step=80", true),
        ("own=64 step=96 warps=4", "own=128 step=96 warps=8", false),
        ("own=128 step=128 warps=8", "own=192 step=128 warps=12", false),
        ("own=128 step=128 warps=8", "own=64 step=128 warps=4", true),
        ("own=128", "own=256", false),
        ("step=128", "step=272", false),
        ("stages=3", "stages=9", false),
        ("resident=3", "resident=4", false),
        ("resident=1", "resident=2", false),
        ("target sm_90a", "target sm_90", false),
    ];
    let cases = [(GpuTarget::SM90, 1, &warps[..]), (GpuTarget::SM90A, 1, &groups[..])];
    let deep = [(GpuTarget::SM90, 2, &warps[..]), (GpuTarget::SM90A, 2, &groups[..])];
    for (target, form, edits) in cases.into_iter().chain(deep) {
        for backward in [false, true] {
            let program = program(&table()[form], backward);
            reads_back(&program, (target, Fp::Fast), edits);
        }
    }
    let threads = [
        (
            "own=32 step=128 warps=4 stages=1 resident=2",
            "own=64 step=128 warps=8 stages=1 resident=1",
            true,
        ),
        ("own=32 step=128 warps=4", "own=128 step=128 warps=16", false),
        ("own=32 step=128 warps=4", "own=16 step=128 warps=2", true),
        ("own=32", "own=64", false),
        ("own=32 step=128 warps=4", "own=96 step=128 warps=12", false),
        ("step=128", "step=64", false),
        ("stages=1", "stages=2", false),
        ("resident=2", "resident=1", true),
        ("resident=2", "resident=9", false),
        ("unit=thread", "unit=warp", false),
    ];
    let form = Form { dtype: DType::F32, ..table()[1] };
    for backward in [false, true] {
        reads_back(&program(&form, backward), (GpuTarget::SM90, Fp::Strict), &threads);
    }
}

fn reads_back(
    program: &Verified<Program>,
    (target, fp): (GpuTarget, Fp),
    edits: &[(&str, &str, bool)],
) {
    let made = ptx::schedule(program, target, fp).expect("is scheduled");
    let text = made.to_string();
    let again = GpuSchedule::parse(&text, program).unwrap_or_else(|d| panic!("{d}\n{text}"));
    assert_eq!(again.to_string(), text);
    assert_eq!(ptx::print(&again), ptx::print(&made));
    for (from, to, fits) in edits.iter().filter(|(from, ..)| text.contains(from)) {
        let edited = text.replacen(from, to, 1);
        match GpuSchedule::parse(&edited, program) {
            Ok(other) => {
                assert!(fits, "{from} {to}\n{edited}");
                assert_ne!(ptx::print(&other), ptx::print(&made), "{edited}");
            }
            Err(d) => {
                let refused = matches!(d.kind, Kind::Usage | Kind::Syntax);
                assert!(!fits && refused, "{from} {to}: {d}\n{edited}");
            }
        }
    }
}
