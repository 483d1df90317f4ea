//! Residuals that are stacked: an `adjoint` becomes a scan that stacks what its way back needs, and a scan that reads it.

use super::adjoint_body::AdjointBody;
use super::hoist::hoist_invariants;
use super::merge::{common_stacks, take_back};
use super::numbering::merge_equal;
use super::refine::refined;
use super::residual_cut::ResidualCut;
use super::residuals::LoopResiduals;
use super::scan_body::{ScanBody, ScannedInput};
use crate::plan::loop_choice::StackGoal;
use adfuse_ir::control::{prune, prune_by};
use adfuse_ir::rewrite::Copier;
use adfuse_ir::{Builder, Diagnostic, Function, Inst, Value, ValueDef};
use cranelift_entity::{EntitySet, SecondaryMap};

/// The function with each `adjoint` for which `choose` has a goal, and whose number of steps is known, replaced by two scans:
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
    choose: &dyn Fn(Inst) -> Option<StackGoal>,
) -> Result<Function, Diagnostic> {
    Ok(stacked(f, choose)?.0)
}

/// What each `adjoint` that [`stack_residuals`] can replace leaves for its way back, if all of them are replaced. Inner
/// loops come before the loops that they are in.
///
/// # Errors
/// Those of construction, which a verified function does not have.
pub fn loop_residuals(f: &Function, goal: StackGoal) -> Result<Vec<LoopResiduals>, Diagnostic> {
    Ok(stacked(f, &|_| Some(goal))?.1)
}

fn stacked(
    f: &Function,
    choose: &dyn Fn(Inst) -> Option<StackGoal>,
) -> Result<(Function, Vec<LoopResiduals>), Diagnostic> {
    let (live, chosen) = needed(f, choose)?;
    let mut found = Vec::new();
    let mut new = Copier::new(&live)
        .rebuild(&mut |copier, b, i| replace(&chosen, &mut found, copier, b, i))?;
    if !found.is_empty() {
        new = prune(&new)?;
        merge_equal(&mut new);
    }
    Ok((new, found))
}

/// For each loop that is chosen, the instruction that it was and what residuals are chosen for.
type ChosenLoops = SecondaryMap<Inst, Option<(Inst, StackGoal)>>;

/// The function without what nothing needs, so that nothing is stacked for that, and for each of its loops that is
/// chosen the instruction that it was, and what for.
fn needed(
    f: &Function,
    choose: &dyn Fn(Inst) -> Option<StackGoal>,
) -> Result<(Function, ChosenLoops), Diagnostic> {
    let mut copier = Copier::new(f);
    let new = prune_by(&mut copier)?;
    let mut old = SecondaryMap::new();
    f.walk(&mut |f, i| {
        let placed = f.inst_results(i).iter().find_map(|&v| copier.find(v));
        if let Some(ValueDef::Inst(at, _)) = placed.map(|v| new.def(v)) {
            old[at] = choose(i).map(|goal| (i, goal));
        }
    });
    Ok((new, old))
}

/// Copies an instruction with those in its regions, and replaces it if it is an `adjoint` that is chosen.
fn replace(
    chosen: &ChosenLoops,
    found: &mut Vec<LoopResiduals>,
    copier: &mut Copier<'_>,
    b: &mut Builder,
    i: Inst,
) -> Result<(), Diagnostic> {
    let from = copier.from();
    let new = copier.inst_with(b, i, &mut |copier, b, i| replace(chosen, found, copier, b, i))?;
    let Some((original, goal)) = chosen[i] else { return Ok(()) };
    let Some(adjoint) = AdjointBody::of(b.func(), new)? else { return Ok(()) };
    take_back(b, new);
    // What a checkpoint region computes again shares nothing with the loop that was differentiated.
    let again = from.path(i).is_again();
    let elsewhere = if again { EntitySet::new() } else { stacked_elsewhere(&adjoint, b)? };
    let cut = ResidualCut::of(&adjoint, &elsewhere, goal);
    found.push(LoopResiduals::of(original, &adjoint, &cut));
    b.follow(from, i);
    let results = two_scans(&adjoint, &cut, b)?;
    copier.stand_for(b, from.inst_results(i), &results);
    Ok(())
}

/// The values of a step that a loop stacks which was placed before, and with which the forward loop will be merged: that
/// which was differentiated, if it stacks results.
fn stacked_elsewhere(adjoint: &AdjointBody, b: &Builder) -> Result<EntitySet<Value>, Diagnostic> {
    let f = &adjoint.body;
    let way_back = adjoint.way_back();
    let computed = f.body_insts().iter().flat_map(|&i| f.inst_results(i)).copied();
    let fixed = computed.filter(|&v| !way_back.contains(v));
    let values: Vec<Value> = adjoint.carried().iter().copied().chain(fixed).collect();
    let mut found = EntitySet::new();
    let mut forward = None;
    for &i in &b.func().region(b.region()).insts {
        let Some(other) = ScanBody::of(b.func(), i).filter(|s| s.stacks() > 0) else { continue };
        if forward.is_none() {
            forward = Some(adjoint.forward(&[adjoint.next(), &values].concat())?);
        }
        if let Some(forward) = &forward {
            let common = common_stacks(b.func(), &other, forward)?;
            found.extend(values.iter().zip(common).filter(|(_, c)| *c).map(|(&v, _)| v));
        }
    }
    Ok(found)
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
    let out = placed(adjoint.forward(&ends)?, b)?;
    let (carries, stacks) = out.split_at(counts.carry);
    let (ys, stacks) = stacks.split_at(counts.ys);
    let (early_stacks, residuals) = stacks.split_at(early.len());

    let mut ends = adjoint.handed_on().to_vec();
    ends.extend(cut.returned.iter().map(|&k| adjoint.carried()[k]));
    ends.extend(late.iter().map(|&k| zs[k]));
    let last: Vec<Value> = cut.returned.iter().map(|&k| carries[k]).collect();
    let out = placed(backward(adjoint, cut, (residuals, &last), &ends)?, b)?;
    let (up, late_stacks) = out.split_at(counts.up);
    let late_stacks = &late_stacks[last.len()..];
    let mut all = [carries, up, ys].concat();
    for k in 0..counts.zs {
        let place = |places: &[usize]| places.iter().position(|&p| p == k);
        all.extend(place(&early).map(|n| early_stacks[n]));
        all.extend(place(&late).map(|n| late_stacks[n]));
    }
    Ok(all)
}

/// Appends a loop, with what does not change before it and with each carry and stack once; its results.
fn placed(scan: ScanBody, b: &mut Builder) -> Result<Vec<Value>, Diagnostic> {
    let mut once = refined(b.func(), &scan)?;
    once.scan = hoist_invariants(once.scan, b)?;
    let out = once.scan.place(b);
    Ok(once.outcomes(b, &out))
}

/// The loop that goes back and ends each step with these values. It reads `residuals`, the stacks of what was cut, and
/// is handed the next values of some carries, beginning with their `last` ones.
fn backward(
    adjoint: &AdjointBody,
    cut: &ResidualCut,
    (residuals, last): (&[Value], &[Value]),
    ends: &[Value],
) -> Result<ScanBody, Diagnostic> {
    let mut xs = adjoint.scanned();
    let elements = |(&p, &v): (&Value, &Value)| (p, ScannedInput::Elements(v));
    xs.extend(adjoint.back_elements().iter().zip(&adjoint.ws).map(elements));
    xs.extend(cut.stacked.iter().zip(residuals).map(elements));
    let returned: Vec<Value> = cut.returned.iter().map(|&k| adjoint.next()[k]).collect();
    let carry = [adjoint.handed(), &returned].concat();
    let given = [&cut.stacked[..], &returned].concat();
    let body = adjoint.part(&given, (&carry, &xs), ends)?;
    ScanBody {
        captures: adjoint.captures.clone(),
        carry: [&adjoint.up[..], last].concat(),
        xs: xs.into_iter().map(|(_, x)| x).collect(),
        body,
        trips: adjoint.trips,
        reverse: !adjoint.reverse,
        unroll: 1,
        phase: adjoint.phase,
    }
    .tidied()
}
