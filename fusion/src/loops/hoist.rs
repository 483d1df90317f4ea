//! Loop-invariant code motion: what a body computes from captures alone is computed once, before the loop.
//!
//! Views, generated values and constants stay in the body, where a kernel reads them in place: outside they would be
//! buffers.

use super::numbering::{merge_equal, phase_of};
use super::scan_body::{ScanBody, all_of_phase};
use super::slice::ProgramSlice;
use adfuse_ir::control::{Follow, reach};
use adfuse_ir::op::Body;
use adfuse_ir::rewrite::Copier;
use adfuse_ir::{Builder, Diagnostic, Function, Inst, Phase, Value};
use cranelift_entity::EntitySet;

/// The loop without what does not change from step to step, which is appended to `b`.
pub(super) fn hoist_invariants(scan: ScanBody, b: &mut Builder) -> Result<ScanBody, Diagnostic> {
    // A loop of no steps computes nothing, and what it does not compute may not end.
    if scan.trips == 0 {
        return Ok(scan);
    }
    let f = &scan.body;
    let [captures, carry, xs] = scan.params();
    let mut varying: EntitySet<Value> = EntitySet::new();
    varying.extend(carry.iter().chain(xs).copied());
    let varying = reach(f, varying, Follow::Uses);
    let mut hoisted: EntitySet<Value> = EntitySet::new();
    for &i in f.body_insts().iter().filter(|&&i| is_worth_a_buffer(f, i)) {
        if !f.reads(i, &|v| varying.contains(v)) {
            hoisted.extend(f.inst_results(i).iter().copied());
        }
    }
    let inside = ProgramSlice::new(f, f.results(), &|v| hoisted.contains(v));
    let wanted: Vec<Value> =
        f.results().iter().chain(&inside.given).copied().filter(|&v| hoisted.contains(v)).collect();
    if wanted.is_empty() {
        return Ok(scan);
    }
    let mut copier = Copier::new(f);
    let mut phase = Phase::PRIMAL;
    for (&p, &v) in captures.iter().zip(&scan.captures) {
        copier.set(p, v);
        phase = phase.max(phase_of(b.func(), v));
    }
    let before = b.func().region(b.region()).insts.len();
    ProgramSlice::new(f, &wanted, &|_| false).copy(&mut copier, b);
    let placed = b.func().region(b.region()).insts[before..].to_vec();
    for i in placed {
        let own = b.func().inst(i).phase.max(phase);
        all_of_phase(b.func_mut(), i, own);
    }
    let mut outside = scan.captures.clone();
    let mut into = Builder::new(f.name.clone());
    into.func_mut().symbols = f.symbols.clone();
    let mut inner = Copier::new(f);
    outside.extend(wanted.iter().map(|&v| copier.get(b, v)));
    for &p in captures.iter().chain(&wanted).chain(carry).chain(xs) {
        inner.param(&mut into, p);
    }
    inside.copy(&mut inner, &mut into);
    let results: Vec<Value> = f.results().iter().map(|&v| inner.get(&mut into, v)).collect();
    into.set_results(&results);
    let mut body = into.finish()?;
    merge_equal(&mut body);
    ScanBody { captures: outside, body, ..scan }.tidied()
}

fn is_worth_a_buffer(f: &Function, i: Inst) -> bool {
    !matches!(f.op(i).def().body, Body::View(_) | Body::Source(_) | Body::Constant)
}
