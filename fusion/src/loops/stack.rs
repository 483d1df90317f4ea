//! Residuals that are stacked: an `adjoint` becomes a scan that stacks what its way back needs, and a scan that reads it.

use super::adjoint_body::AdjointBody;
use super::hoist::hoist_invariants;
use super::merge::{rebuilt, stand_for, take_back};
use super::numbering::merge_equal;
use super::residual_cut::ResidualCut;
use super::residuals::LoopResiduals;
use super::scan_body::{ScanBody, ScannedInput};
use super::slice::ProgramSlice;
use adfuse_ir::control::prune;
use adfuse_ir::rewrite::Copier;
use adfuse_ir::{Builder, Diagnostic, Function, Inst, Phase, Value};

/// The function with each `adjoint` for which `choose` holds, and whose number of steps is known, replaced by two scans:
/// one goes over the steps and stacks residuals, one goes back and reads them. The bits of the results stay.
///
/// What is stacked is a minimum cut of what a step computes. Loops that are inside of others are replaced first, so that
/// the outer loop may stack what the inner one leaves. An `adjoint` whose number of steps is an operand that does not
/// follow from constants, or in which an extent is a symbol, stays as it is.
///
/// # Errors
/// Those of construction, which a verified function does not have.
pub fn stack_residuals(
    f: &Function,
    choose: &dyn Fn(Inst) -> bool,
) -> Result<Function, Diagnostic> {
    Ok(stacked(f, choose)?.0)
}

/// What each `adjoint` that [`stack_residuals`] can replace leaves for its way back, if all of them are replaced. Inner
/// loops come before the loops that they are in.
///
/// # Errors
/// Those of construction, which a verified function does not have.
pub fn loop_residuals(f: &Function) -> Result<Vec<LoopResiduals>, Diagnostic> {
    Ok(stacked(f, &|_| true)?.1)
}

fn stacked(
    f: &Function,
    choose: &dyn Fn(Inst) -> bool,
) -> Result<(Function, Vec<LoopResiduals>), Diagnostic> {
    let mut found = Vec::new();
    let mut new = rebuilt(f, &mut |copier, b, i| replace(choose, &mut found, copier, b, i))?;
    if !found.is_empty() {
        new = prune(&new)?;
        merge_equal(&mut new);
    }
    Ok((new, found))
}

/// Copies an instruction with those in its regions, and replaces it if it is an `adjoint` that is chosen.
fn replace(
    choose: &dyn Fn(Inst) -> bool,
    found: &mut Vec<LoopResiduals>,
    copier: &mut Copier<'_>,
    b: &mut Builder,
    i: Inst,
) -> Result<(), Diagnostic> {
    let from = copier.from();
    let new = copier.inst_with(b, i, &mut |copier, b, i| replace(choose, found, copier, b, i))?;
    if !choose(i) {
        return Ok(());
    }
    let Some(adjoint) = AdjointBody::of(b.func(), new)? else { return Ok(()) };
    take_back(b, new);
    let cut = ResidualCut::of(&adjoint);
    found.push(LoopResiduals::of(i, &adjoint, &cut));
    b.set_span(from.span(i));
    let results = two_scans(&adjoint, &cut, b)?;
    stand_for(copier, b, from, from.inst_results(i), &results);
    Ok(())
}

/// Appends the two loops; the results of the `adjoint`.
fn two_scans(
    adjoint: &AdjointBody,
    cut: &ResidualCut,
    b: &mut Builder,
) -> Result<Vec<Value>, Diagnostic> {
    let counts = adjoint.counts;
    // What the second region stacks that does not depend on what is handed back, the first loop stacks.
    let zs = adjoint.back_stacks();
    let (early, late): (Vec<usize>, Vec<usize>) =
        (0..counts.zs).partition(|&k| !cut.way_back.contains(zs[k]));
    let mut ends = adjoint.step_ends().to_vec();
    ends.extend(early.iter().map(|&k| zs[k]));
    ends.extend(&cut.stacked);
    let forward = hoist_invariants(forward(adjoint, &ends)?, b)?;
    let out = forward.place(b);
    let (carries, stacks) = out.split_at(counts.carry);
    let (ys, stacks) = stacks.split_at(counts.ys);
    let (early_stacks, residuals) = stacks.split_at(early.len());

    let mut ends = adjoint.handed_on().to_vec();
    ends.extend(late.iter().map(|&k| zs[k]));
    let back = hoist_invariants(backward(adjoint, cut, residuals, &ends)?, b)?;
    let out = back.place(b);
    let (up, late_stacks) = out.split_at(counts.up);
    let mut all = [carries, up, ys].concat();
    for k in 0..counts.zs {
        let place = |places: &[usize]| places.iter().position(|&p| p == k);
        all.extend(place(&early).map(|n| early_stacks[n]));
        all.extend(place(&late).map(|n| late_stacks[n]));
    }
    Ok(all)
}

/// The loop that goes over the steps and ends each with these values, next carries first.
fn forward(adjoint: &AdjointBody, ends: &[Value]) -> Result<ScanBody, Diagnostic> {
    let xs = adjoint.scanned();
    let body = part(adjoint, &[], (adjoint.carried(), &xs), ends)?;
    ScanBody {
        captures: adjoint.captures.clone(),
        carry: adjoint.carry.clone(),
        xs: xs.into_iter().map(|(_, x)| x).collect(),
        body,
        trips: adjoint.trips,
        reverse: adjoint.reverse,
        unroll: 1,
        phase: Phase::PRIMAL,
    }
    .tidied()
}

/// The loop that goes back, reads `residuals`, the stacks of what was cut, and ends each step with these values.
fn backward(
    adjoint: &AdjointBody,
    cut: &ResidualCut,
    residuals: &[Value],
    ends: &[Value],
) -> Result<ScanBody, Diagnostic> {
    let mut xs = adjoint.scanned();
    let elements = |(&p, &v): (&Value, &Value)| (p, ScannedInput::Elements(v));
    xs.extend(adjoint.back_elements().iter().zip(&adjoint.ws).map(elements));
    xs.extend(cut.stacked.iter().zip(residuals).map(elements));
    let body = part(adjoint, &cut.stacked, (adjoint.handed(), &xs), ends)?;
    ScanBody {
        captures: adjoint.captures.clone(),
        carry: adjoint.up.clone(),
        xs: xs.into_iter().map(|(_, x)| x).collect(),
        body,
        trips: adjoint.trips,
        reverse: !adjoint.reverse,
        unroll: 1,
        phase: adjoint.phase,
    }
    .tidied()
}

/// The part of a step that computes `ends` from captures, carries and scanned elements, `given` among these.
fn part(
    adjoint: &AdjointBody,
    given: &[Value],
    (carry, xs): (&[Value], &[(Value, ScannedInput)]),
    ends: &[Value],
) -> Result<Function, Diagnostic> {
    let f = &adjoint.body;
    let mut b = Builder::new(f.name.clone());
    b.func_mut().symbols = f.symbols.clone();
    let mut copier = Copier::new(f);
    let elements = xs.iter().map(|(p, _)| p);
    for &p in adjoint.outside().iter().chain(carry).chain(elements) {
        copier.param(&mut b, p);
    }
    ProgramSlice::new(f, ends, &|v| given.contains(&v)).copy(&mut copier, &mut b);
    let results: Vec<Value> = ends.iter().map(|&v| copier.get(&mut b, v)).collect();
    b.set_results(&results);
    b.finish()
}
