//! What the verifier asks of calls together: no circle, no endless depth; and of forward rules, that
//! results do not depend on tangents.

use super::at_inst;
use crate::diag::{Diagnostic, Kind};
use crate::entity::{Func, Inst, Value};
use crate::function::Function;
use crate::module::Module;
use crate::op::Op;
use cranelift_entity::{EntitySet, SecondaryMap};

/// The longest chain of calls: passes and engines follow calls by recursion.
pub const MAX_CALL_DEPTH: u32 = 500;

#[derive(Clone, Copy, Default)]
struct State {
    entered: bool,
    /// Length of the longest chain of calls from here, when it is known.
    depth: Option<u32>,
}

/// Calls must not form a circle, nor chains that are too long: depth-first over callees, without
/// recursion of our own.
pub(super) fn check(module: &Module, errors: &mut Vec<Diagnostic>) {
    let callees = |f: &Function| {
        let mut found: Vec<(Func, Inst)> = Vec::new();
        f.walk(&mut |f, i| {
            if f.op(i) == Op::Call
                && let Some(k) = module.funcs.named(f.attrs(i).text("func"))
            {
                found.push((k, i));
            }
        });
        found
    };
    let mut states = SecondaryMap::<Func, State>::new();
    for root in module.funcs.keys() {
        if states[root].entered {
            continue;
        }
        states[root].entered = true;
        let mut stack = vec![(root, callees(&module.funcs[root]), 0usize)];
        while let Some((k, list, next)) = stack.last_mut() {
            let f = &module.funcs[*k];
            let Some(&(callee, inst)) = list.get(*next) else {
                let below = list.iter().filter_map(|(c, _)| states[*c].depth).max();
                states[*k].depth = Some(below.map_or(0, |d| d + 1));
                stack.pop();
                continue;
            };
            if !states[callee].entered {
                states[callee].entered = true;
                stack.push((callee, callees(&module.funcs[callee]), 0));
                continue;
            }
            *next += 1;
            let m = match states[callee].depth {
                None => format!("@{} calls itself, in the end", module.funcs[callee].name),
                Some(d) if d + 1 == MAX_CALL_DEPTH => {
                    format!("a chain of {MAX_CALL_DEPTH} calls starts here, the limit is one less")
                }
                Some(_) => continue,
            };
            let kind = if states[callee].depth.is_some() { Kind::Limit } else { Kind::Unsupported };
            errors.push(Diagnostic::new(at_inst(f, inst), kind, m));
        }
    }
}

/// Whether one of the first `results` results of `f` depends on a parameter from `params` on.
pub(super) fn mixes(f: &Function, params: usize, results: usize) -> bool {
    let mut moving: EntitySet<Value> = EntitySet::new();
    moving.extend(f.params().iter().skip(params).copied());
    for &i in f.body_insts() {
        if f.reads(i, &|v| moving.contains(v)) {
            moving.extend(f.inst_results(i).iter().copied());
        }
    }
    f.results().iter().take(results).any(|&r| moving.contains(r))
}
