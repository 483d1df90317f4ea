//! When ranks gather what they are given: a little before it is read.
//!
//! A model whose parameters are divided among ranks gathers all of them, in one place of the program. Nothing hides what is gathered there
//! before the first step, and all of it is in memory from the beginning. Here each exchange of what the function is
//! given moves to where a reader of an earlier one begins, so far ahead of its own reader that it is over by then.

use crate::ValueDef;
use crate::captures::reads;
use crate::entity::{Inst, Value};
use crate::function::Function;
use cranelift_entity::{EntitySet, SecondaryMap};
use smallvec::SmallVec;

/// The bytes of results that are gathered ahead of what is read: more than is sent during a layer, which takes longer.
const AHEAD_BYTES: u64 = 16 << 20;

/// The bytes of results that are gathered at one time at least: other work is interrupted less often.
const GROUP_BYTES: u64 = 12 << 20;

/// What the pass knows of instructions.
pub(super) trait InstKinds {
    /// Whether it is an exchange.
    fn is_exchange(&self, i: Inst) -> bool;

    /// Whether it may move with an exchange.
    fn is_light(&self, i: Inst) -> bool;
}

/// An exchange of what the function is given.
struct GivenExchange {
    /// What it alone needs, it, and what follows from it and from what the function is given, in their order.
    with: Vec<Inst>,
    bytes: u64,
    /// Where it is read first by more than those; the end where it is not.
    read: usize,
    /// Where it begins.
    begin: usize,
}

/// The order with exchanges of what the function is given where they are due.
pub(super) fn prefetched(f: &Function, kinds: &dyn InstKinds, order: &[Inst]) -> Vec<Inst> {
    let mut given = found(f, kinds, order);
    if given.len() < 2 {
        return order.to_vec();
    }
    let mut group = given[0].bytes;
    for k in 1..given.len() {
        if group < GROUP_BYTES {
            group = group.saturating_add(given[k].bytes);
            given[k].begin = given[k].begin.max(given[k - 1].begin);
            continue;
        }
        group = given[k].bytes;
        let mut ahead = 0u64;
        let mut due = None;
        for j in (0..k).rev() {
            ahead = ahead.saturating_add(given[j + 1].bytes);
            if ahead >= AHEAD_BYTES {
                due = Some(given[j].read);
                break;
            }
        }
        let begin = due.unwrap_or(0).max(given[k - 1].begin);
        given[k].begin = begin.clamp(given[k].begin, given[k].read.max(given[k].begin));
    }
    let mut moves = EntitySet::<Inst>::new();
    given.iter().for_each(|g| moves.extend(g.with.iter().copied()));
    let mut next = given.iter().peekable();
    let mut placed = Vec::new();
    for (n, &i) in order.iter().enumerate() {
        while let Some(g) = next.next_if(|g| g.begin <= n) {
            placed.extend(&g.with);
        }
        if !moves.contains(i) {
            placed.push(i);
        }
    }
    next.for_each(|g| placed.extend(&g.with));
    placed
}

/// The exchanges that need nothing but what the function is given, in their order.
fn found(f: &Function, kinds: &dyn InstKinds, order: &[Inst]) -> Vec<GivenExchange> {
    let mut readers: SecondaryMap<Value, u32> = SecondaryMap::new();
    for &i in order {
        reads(f, i).into_iter().for_each(|v| readers[v] += 1);
    }
    f.results().iter().for_each(|&v| readers[v] += 1);
    let mut given: Vec<GivenExchange> = Vec::new();
    // Which of them an instruction comes with; what needs none of them, and no other work, is given.
    let mut of: SecondaryMap<Inst, SmallVec<[usize; 1]>> = SecondaryMap::new();
    let mut is_given = EntitySet::<Inst>::new();
    for (n, &i) in order.iter().enumerate() {
        let mut read: SmallVec<[usize; 1]> = SmallVec::new();
        let mut alone = true;
        for v in reads(f, i) {
            let ValueDef::Inst(j, _) = f.def(v) else { continue };
            read.extend(of[j].iter().copied());
            alone &= is_given.contains(j) || !of[j].is_empty();
        }
        if kinds.is_exchange(i)
            && let Some(with) = needs(f, kinds, &readers, i)
        {
            let bytes = f.inst_results(i).first().and_then(|&v| f.ty(v).bytes()).unwrap_or(0);
            of[i].push(given.len());
            given.push(GivenExchange { with, bytes, read: order.len(), begin: n });
        } else if kinds.is_light(i) && alone {
            match read.iter().max() {
                Some(&last) => given[last].with.push(i),
                None => {
                    is_given.insert(i);
                }
            }
            of[i] = read;
        } else {
            for k in read {
                given[k].read = given[k].read.min(n);
            }
        }
    }
    given
}

/// An exchange with the light instructions that it alone needs, where there is nothing else that it needs but what the function is given.
fn needs(
    f: &Function,
    kinds: &dyn InstKinds,
    readers: &SecondaryMap<Value, u32>,
    exchange: Inst,
) -> Option<Vec<Inst>> {
    let (mut with, mut stack) = (vec![exchange], vec![exchange]);
    let mut seen = EntitySet::<Inst>::new();
    while let Some(i) = stack.pop() {
        for v in reads(f, i) {
            let ValueDef::Inst(j, _) = f.def(v) else { continue };
            if !kinds.is_light(j) {
                return None;
            }
            if !seen.insert(j) {
                continue;
            }
            // What others read too stays where it is, and is given as far as this exchange goes.
            if f.inst_results(j).iter().map(|&v| readers[v]).sum::<u32>() == 1 {
                with.push(j);
            }
            stack.push(j);
        }
    }
    with.reverse();
    Some(with)
}
