//! Stable forms for naive formulas: programs as a floating-point mode has them, and what strict mode leaves as it is written.

use super::failure::Failure;
use super::program::LoadedProgram;
use super::target::specialized;
use adfuse::fusion::Fp;
use adfuse::ir::rewrite::{AttentionSteps, Hazard, Recognised, STABLE, in_stable_forms, stabilize};
use adfuse::ir::{Function, Inst, Module};
use adfuse::pipeline::Selection;

/// The program's module and a function in it as a mode has them, on an engine that has these steps for attention; what was
/// rewritten is told.
pub(super) fn in_mode(
    source: &LoadedProgram,
    f: &Function,
    mode: (AttentionSteps, Fp),
    recognised: &mut Vec<(&'static str, String)>,
) -> Result<(Module, Function), Failure> {
    let told = &mut |f: &Function, r: Recognised| {
        let rule = (r.rule, place(source, f, r.at));
        if !recognised.contains(&rule) {
            recognised.push(rule);
        }
    };
    in_stable_forms(&source.module, f, mode, told).map_err(|d| source.wrong(d))
}

/// The program's module as a mode has it, all of its functions.
pub(super) fn module_in_mode(source: &LoadedProgram, fp: Fp) -> Result<Module, Failure> {
    if fp == Fp::Strict {
        return Ok(source.module.clone());
    }
    let mut new = Module::default();
    for f in source.module.funcs.values() {
        new.funcs.push(stabilize(f).map_err(|d| source.wrong(d))?.0);
    }
    Ok(new)
}

/// A formula that overflows or cancels where it is computed as it is written.
pub(super) struct UnstableFormula {
    /// The rule that has a stable form for it.
    pub(super) rule: &'static str,
    /// Where it is.
    pub(super) at: String,
    /// What goes wrong.
    pub(super) why: String,
    /// What the other modes compute instead.
    pub(super) instead: &'static str,
}

/// The formulas of what is compiled in strict mode, and of what it calls, that have stable forms; none in other modes,
/// which use these.
pub(super) fn unstable(
    source: &LoadedProgram,
    selection: &Selection,
    fp: Fp,
) -> Result<Vec<UnstableFormula>, Failure> {
    let compiled = selection.func.as_deref().and_then(|name| source.module.find(name));
    let (Fp::Strict, Some(f)) = (fp, compiled) else { return Ok(Vec::new()) };
    let f = &specialized(source, f, &selection.extents)?;
    let called = source.module.reached_names(f);
    let callees = source.module.funcs.values().filter(|g| called.contains(&g.name));
    let mut found = Vec::new();
    for g in std::iter::once(f).chain(callees.filter(|g| g.name != f.name)) {
        let (new, fired) = stabilize(g).map_err(|d| source.wrong(d))?;
        for r in fired {
            let dtype = new.ty(new.inst_results(r.at)[0]).dtype;
            let doc = STABLE.rules.iter().find(|rule| rule.name == r.rule).map(|rule| rule.doc);
            found.push(UnstableFormula {
                rule: r.rule,
                at: place(source, &new, r.at),
                why: Hazard::of(r.rule).map_or_else(String::new, |h| h.words(dtype)),
                instead: doc.unwrap_or_default(),
            });
        }
    }
    Ok(found)
}

/// Where an instruction is: the name of its result, or the line it comes from, since numbers are
/// given anew when a function is prepared.
pub(super) fn place(source: &LoadedProgram, f: &Function, i: Inst) -> String {
    if let Some(name) = f.inst_results(i).first().and_then(|&v| f.name_of(v)) {
        return format!("%{name}");
    }
    let before = f.span(i).and_then(|s| source.source.text.get(..s.start as usize));
    match before {
        Some(before) => format!("line {}", before.matches('\n').count() + 1),
        None => format!("@{}", f.name),
    }
}
