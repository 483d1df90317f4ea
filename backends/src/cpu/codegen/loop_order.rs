//! The order in which the values of a body are computed.
//!
//! The code generator keeps the order that it is given, so values should be computed shortly before their use. Outputs
//! come one after the other; of each instruction the operand that needs more registers comes first.

use adfuse_ir::scalar::{SVal, ScalarProgram};
use cranelift_entity::EntityRef;

/// The values that change, each after its operands, and the most of them that are alive at once.
pub(crate) fn order(body: &ScalarProgram, moves: &[bool]) -> (Vec<SVal>, usize) {
    let moves = |v: SVal| moves.get(v.index()).copied().unwrap_or(true);
    let need = needs(body, &moves);
    let mut placed = vec![false; body.insts.len()];
    let mut found: Vec<SVal> = Vec::new();
    // Values to visit, and whether their operands have been; deep programs would outgrow the stack.
    let mut pending: Vec<(SVal, bool)> = body.outputs.iter().rev().map(|&v| (v, false)).collect();
    while let Some((v, ready)) = pending.pop() {
        if placed[v.index()] || !moves(v) {
            continue;
        }
        if ready {
            placed[v.index()] = true;
            found.push(v);
            continue;
        }
        pending.push((v, true));
        let mut operands: Vec<SVal> = body.insts[v].args.to_vec();
        // The one that needs most is popped first; of equals, the first.
        operands.reverse();
        operands.sort_by_key(|a| need[a.index()]);
        pending.extend(operands.into_iter().map(|a| (a, false)));
    }
    let alive = alive(body, &found);
    (found, alive)
}

/// About how many registers it takes to compute each value, as if nothing were shared.
fn needs(body: &ScalarProgram, moves: &dyn Fn(SVal) -> bool) -> Vec<u32> {
    let mut need: Vec<u32> = Vec::with_capacity(body.insts.len());
    for (v, inst) in body.insts.iter() {
        if !moves(v) || inst.args.is_empty() {
            need.push(u32::from(moves(v)));
            continue;
        }
        let mut operands: Vec<u32> = inst.args.iter().map(|a| need[a.index()]).collect();
        operands.sort_unstable_by(|a, b| b.cmp(a));
        let most = operands.iter().zip(0u32..).map(|(n, before)| n + before).max();
        need.push(most.unwrap_or(0).max(1));
    }
    need
}

/// Of each value, the last place of an order that uses it; outputs are used behind all of it.
pub(crate) fn last_uses(body: &ScalarProgram, order: &[SVal]) -> Vec<usize> {
    let mut last = vec![0; body.insts.len()];
    for (at, &v) in order.iter().enumerate() {
        for a in &body.insts[v].args {
            last[a.index()] = at;
        }
    }
    for v in &body.outputs {
        last[v.index()] = order.len();
    }
    last
}

/// The most values that are alive at once, in an order; outputs are until the end.
pub(crate) fn alive(body: &ScalarProgram, order: &[SVal]) -> usize {
    let last = last_uses(body, order);
    let mut ends = vec![0; order.len() + 1];
    let (mut now, mut most) = (0usize, 0);
    for (at, &v) in order.iter().enumerate() {
        now += 1;
        most = most.max(now);
        ends[last[v.index()].max(at)] += 1;
        now -= ends[at];
    }
    most
}
