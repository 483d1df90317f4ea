//! The passes that are not the planner's, and the printed forms of all artifacts.

use super::compiler::Compiler;
use super::text;
use super::unit::{CompileUnit, missing};
use crate::autodiff::forward_and_backward;
use crate::frontend::parse as read;
use crate::fusion;
use crate::ir::kernel::verify;
use crate::ir::rewrite::{
    self, AttentionSteps, in_stable_forms, with_convolutions, with_folded_norms, with_product_sums,
    with_steps,
};
use crate::ir::text::print_module;
use crate::ir::{At, Diagnostic, Fp, Function, Kind, verify as ir};
use std::borrow::Cow;

type PassResult = Result<(), Diagnostic>;

fn first(errors: Vec<Diagnostic>) -> Diagnostic {
    let none = || Diagnostic::new(At::default(), Kind::Internal, "an error without a reason");
    errors.into_iter().next().unwrap_or_else(none)
}

/// In place of what a row of the planner's does.
pub(super) fn nothing(_: &dyn Compiler, _: &mut CompileUnit<'_>) -> PassResult {
    Ok(())
}

pub(super) fn parse(_: &dyn Compiler, unit: &mut CompileUnit<'_>) -> PassResult {
    let module = read(unit.text.unwrap_or_default()).map_err(first)?;
    // What users write is verified in every build.
    ir::verify(&module).map_err(first)?;
    unit.module = Cow::Owned(module);
    Ok(())
}

pub(super) fn specialize(_: &dyn Compiler, unit: &mut CompileUnit<'_>) -> PassResult {
    let chosen = match &unit.selection.func {
        Some(name) => unit.module.find(name),
        None => unit.module.funcs.values().next(),
    };
    let f = chosen.ok_or_else(|| missing("function of this name"))?;
    let extents = &unit.selection.extents;
    unit.function = Some(match extents.is_empty() {
        true => f.clone(),
        false => rewrite::specialize(f, extents).map_err(first)?,
    });
    Ok(())
}

pub(super) fn stabilize(compiler: &dyn Compiler, unit: &mut CompileUnit<'_>) -> PassResult {
    let mode = (compiler.attention(), compiler.options().fp);
    if mode.1 == Fp::Strict {
        return Ok(());
    }
    let f = unit.take_function()?;
    let (module, f) = in_stable_forms(&unit.module, &f, mode, &mut |_, _| {})?;
    (unit.module, unit.function) = (Cow::Owned(module), Some(f));
    Ok(())
}

pub(super) fn compose_steps(compiler: &dyn Compiler, unit: &mut CompileUnit<'_>) -> PassResult {
    composed_steps(unit, compiler.attention(), compiler.options().fp)
}

/// Makes each op that may be a step of its own what the engine has.
pub(super) fn composed_steps(
    unit: &mut CompileUnit<'_>,
    steps: AttentionSteps,
    fp: Fp,
) -> PassResult {
    let f = unit.take_function()?;
    unit.function = Some(with_steps(f, &|f, i| steps.lowering(fp, f, i))?);
    Ok(())
}

pub(super) fn convolve(compiler: &dyn Compiler, unit: &mut CompileUnit<'_>) -> PassResult {
    convolved(unit, compiler.attention(), compiler.options().fp)
}

/// Makes sums of windows convolutions, and sums of products one product, for an engine with kernels for these; folds norms into weights for one that
/// gains by it.
pub(super) fn convolved(unit: &mut CompileUnit<'_>, steps: AttentionSteps, fp: Fp) -> PassResult {
    if steps.multiplies_windows(fp) {
        unit.function = Some(with_convolutions(&unit.take_function()?)?);
    }
    if steps.folds_norms(fp) {
        unit.function = Some(with_folded_norms(&unit.take_function()?)?);
    }
    if steps.multiplies_terms(fp) {
        unit.function = Some(with_product_sums(&unit.take_function()?)?);
    }
    Ok(())
}

pub(super) fn differentiate(_: &dyn Compiler, unit: &mut CompileUnit<'_>) -> PassResult {
    if let Some(wrt) = &unit.selection.wrt {
        let made = forward_and_backward(&unit.module, unit.function()?, wrt)?;
        unit.function = Some(made);
    }
    Ok(())
}

pub(super) fn price(compiler: &dyn Compiler, unit: &mut CompileUnit<'_>) -> PassResult {
    unit.function = Some(compiler.price(unit.take_function()?)?);
    Ok(())
}

pub(super) fn segment(compiler: &dyn Compiler, unit: &mut CompileUnit<'_>) -> PassResult {
    let segmented = compiler.segment(unit.take_function()?)?;
    (unit.function, unit.rewrites.segments) = (Some(segmented.function), segmented.choices);
    Ok(())
}

pub(super) fn recover(compiler: &dyn Compiler, unit: &mut CompileUnit<'_>) -> PassResult {
    let recovered = compiler.recover(unit.take_function()?)?;
    (unit.function, unit.rewrites.inverses) = (Some(recovered.function), recovered.choices);
    Ok(())
}

pub(super) fn narrow(compiler: &dyn Compiler, unit: &mut CompileUnit<'_>) -> PassResult {
    unit.function = Some(compiler.narrow(unit.take_function()?)?);
    Ok(())
}

pub(super) fn loops(compiler: &dyn Compiler, unit: &mut CompileUnit<'_>) -> PassResult {
    let decided = compiler.loops(unit.take_function()?)?;
    (unit.function, unit.rewrites.loops) = (Some(decided.function), decided.choices);
    Ok(())
}

pub(super) fn plan(compiler: &dyn Compiler, unit: &mut CompileUnit<'_>) -> PassResult {
    let plan = compiler.choose(unit.function()?)?;
    unit.plan = Some(fusion::Plan { rewrites: unit.rewrites.clone(), ..plan });
    Ok(())
}

pub(super) fn lower(compiler: &dyn Compiler, unit: &mut CompileUnit<'_>) -> PassResult {
    let (f, plan) = (unit.function()?, unit.plan()?);
    compiler.admit(f, plan)?;
    let program = compiler.lower(f, plan)?;
    // Only what is verified runs: this is checked in every build, and says what is too large.
    let program = verify(program).map_err(first).map_err(|d| match d.kind {
        Kind::Limit | Kind::Unsupported => d,
        _ => {
            let m = format!("pass `lower`: kernel::verify refuses what it gave: {d}");
            Diagnostic { kind: Kind::Internal, message: m, ..d }
        }
    })?;
    unit.program = Some(program);
    Ok(())
}

pub(super) fn layout(compiler: &dyn Compiler, unit: &mut CompileUnit<'_>) -> PassResult {
    compiler.arrange(unit)
}

pub(super) fn machine_code(compiler: &dyn Compiler, unit: &mut CompileUnit<'_>) -> PassResult {
    compiler.emit(unit)
}

pub(super) fn schedule(compiler: &dyn Compiler, unit: &mut CompileUnit<'_>) -> PassResult {
    compiler.schedule(unit)
}

pub(super) fn ptx(compiler: &dyn Compiler, unit: &mut CompileUnit<'_>) -> PassResult {
    compiler.launch(unit)
}

pub(super) fn load(compiler: &dyn Compiler, unit: &mut CompileUnit<'_>) -> PassResult {
    compiler.load(unit)
}

type TextResult = Result<String, Diagnostic>;

pub(super) fn module(unit: &CompileUnit<'_>) -> TextResult {
    Ok(print_module(&unit.module))
}

pub(super) fn function(unit: &CompileUnit<'_>) -> TextResult {
    let f: &Function = unit.function()?;
    text::function(f)
}

pub(super) fn plan_text(unit: &CompileUnit<'_>) -> TextResult {
    text::plan(unit.function()?, unit.plan()?)
}

pub(super) fn program_text(unit: &CompileUnit<'_>) -> TextResult {
    text::program(unit.program()?)
}

pub(super) fn kernels_text(unit: &CompileUnit<'_>) -> TextResult {
    text::kernels(unit.function()?, unit.plan()?, unit.program()?)
}

pub(super) fn layout_text(unit: &CompileUnit<'_>) -> TextResult {
    let (memory, layout) = unit.memory.as_ref().ok_or_else(|| missing("layout"))?;
    text::layout(unit.program()?, layout, memory.peak)
}

pub(super) fn asm_text(unit: &CompileUnit<'_>) -> TextResult {
    let listing = unit.listing.as_ref().ok_or_else(|| missing("listing"))?;
    Ok(text::machine_code(listing, |f| &f.asm))
}

pub(super) fn loops_text(unit: &CompileUnit<'_>) -> TextResult {
    let listing = unit.listing.as_ref().ok_or_else(|| missing("listing"))?;
    Ok(text::machine_code(listing, |f| &f.loops))
}

pub(super) fn clif_text(unit: &CompileUnit<'_>) -> TextResult {
    let listing = unit.listing.as_ref().ok_or_else(|| missing("listing"))?;
    Ok(text::machine_code(listing, |f| &f.clif))
}

pub(super) fn schedule_text(unit: &CompileUnit<'_>) -> TextResult {
    let (program, schedule) = unit.schedule()?;
    text::schedule(program, schedule)
}

pub(super) fn ptx_text(unit: &CompileUnit<'_>) -> TextResult {
    Ok(unit.launches()?.1.text.clone())
}

pub(super) fn launches_text(unit: &CompileUnit<'_>) -> TextResult {
    let (program, module) = unit.launches()?;
    Ok(text::launches(program, module))
}
