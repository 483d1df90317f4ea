//! Attention of 16-bit floats as text: every form assembles, spills nothing, and has a schedule that reads back.

use crate::assembler::Assembly;
use crate::common::attentions::{Form, large, table};
use crate::read;
use crate::trials::Skipped;
use adfuse::backends::ptx::{self, GpuSchedule, GpuTarget};
use adfuse::fusion::Fp;
use adfuse::ir::Kind;
use adfuse::ir::kernel::{Program, Verified, verify};

fn program(form: &Form, backward: bool) -> Verified<Program> {
    let text = form.text(backward);
    let program = read(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    verify(program).unwrap_or_else(|e| panic!("{}\n{text}", e[0]))
}

pub(crate) fn all_forms_assemble_without_spills() -> Result<(), Skipped> {
    let mut all = Assembly::default();
    for (n, form) in table().iter().chain(&large()).enumerate() {
        for backward in [false, true] {
            let program = program(form, backward);
            for (k, target) in GpuTarget::ALL.into_iter().enumerate() {
                let made = |p| ptx::compile(p, target, Fp::Fast);
                let module = made(&program).unwrap_or_else(|d| panic!("{d}\n{form:?}"));
                assert_eq!(made(&program).as_ref(), Ok(&module), "{form:?}");
                for launch in module.steps.iter().flat_map(|s| &s.launches) {
                    assert!(launch.shared <= target.shared, "{form:?} {}", launch.entry);
                }
                // The assembler takes its time: the largest, and some of the others.
                if k == 1 && (n % 4 == 1 || form.stream > 1000) {
                    all.add(&format!("{form:?}"), &module, &program.to_string());
                }
            }
        }
    }
    for r in all.assembled()? {
        // What only a short last tile needs may wait in memory.
        assert!(r.spilled <= 8, "{}: {} bytes, {} registers", r.entry, r.spilled, r.registers);
    }
    Ok(())
}

/// Only `fast` rounds weights: other modes have no step.
pub(crate) fn other_modes_refuse_attention() {
    for fp in [Fp::Strict, Fp::Reproducible] {
        let refused = ptx::compile(&program(&table()[0], false), GpuTarget::SM90, fp);
        assert_eq!(refused.map(|_| ()).map_err(|d| d.kind), Err(Kind::Unsupported), "{fp:?}");
    }
}

/// Decisions of attention as text: they read back, other tiles give other code, and those that do not fit are refused.
pub(crate) fn schedules_of_attention_read_back() {
    let edits = [
        ("own=128", "own=64", true),
        ("step=64", "step=32", true),
        ("own=128", "own=100", false),
        ("step=64", "step=0", false),
        ("warps=4", "warps=64", false),
        ("resident=2", "resident=9", false),
        ("pass=values", "pass=keys", false),
    ];
    for backward in [false, true] {
        let program = program(&table()[1], backward);
        let made = ptx::schedule(&program, GpuTarget::SM90, Fp::Fast).expect("is scheduled");
        let text = made.to_string();
        let again = GpuSchedule::parse(&text, &program).unwrap_or_else(|d| panic!("{d}\n{text}"));
        assert_eq!(again.to_string(), text);
        assert_eq!(ptx::print(&again), ptx::print(&made));
        for (from, to, fits) in edits.iter().filter(|(from, ..)| text.contains(from)) {
            let edited = text.replacen(from, to, 1);
            match GpuSchedule::parse(&edited, &program) {
                Ok(other) => {
                    assert!(fits, "{from} {to}\n{edited}");
                    assert_ne!(ptx::print(&other), ptx::print(&made), "{edited}");
                }
                Err(d) => assert!(!fits && d.kind == Kind::Usage, "{from} {to}: {d}"),
            }
        }
    }
}
