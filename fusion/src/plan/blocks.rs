//! The regions of loops and branches as functions of their own, which are planned by themselves.

use adfuse_ir::control::{LoopRoles, Outlined, captures, outline};
use adfuse_ir::op::Control;
use adfuse_ir::{Function, Inst, Value};

/// A region of a loop or a branch as a function of its own: the captured values are its first parameters, without
/// names, so that its text does not depend on the function around it.
///
/// # Panics
/// If the instruction has no such region.
pub fn block_function(f: &Function, i: Inst, region: usize) -> Outlined {
    let mut outlined = outline(f, f.inst(i).regions[region]);
    let func = &mut outlined.func;
    func.name = format!("{}.{}", f.name, block_name(f, i, region));
    let captured: Vec<_> = func.params()[..outlined.captures.len()].to_vec();
    captured.into_iter().for_each(|p| func.set_name(p, None));
    outlined
}

/// What a region of a loop or a branch is called.
pub(crate) fn block_name(f: &Function, i: Inst, region: usize) -> String {
    match (f.op(i).control(), region) {
        (Some(Control::Branch), k) => format!("case{k}"),
        (Some(Control::While), 0) => "test".into(),
        (Some(Control::Loop(_)), 1) => "back".into(),
        _ => "step".into(),
    }
}

/// The loops and branches of a function that are in none themselves, each with the numbers of its regions.
pub(crate) fn blocks(f: &Function) -> impl Iterator<Item = (Inst, usize)> + '_ {
    let control = f.body_insts().iter().copied().filter(|&i| is_control(f, i));
    control.flat_map(|i| (0..f.inst(i).regions.len()).map(move |r| (i, r)))
}

/// Whether an instruction is a loop or a branch.
pub(crate) fn is_control(f: &Function, i: Inst) -> bool {
    match f.op(i).control() {
        Some(Control::Branch | Control::Loop(_) | Control::While) => true,
        Some(Control::Call) | None => false,
    }
}

/// The values that a loop or a branch reads and leaves as they are: all but what is scanned and stacked.
pub(crate) fn whole(f: &Function, i: Inst) -> Vec<Value> {
    let (args, results) = (f.args(i), f.inst_results(i));
    let mut all: Vec<Value> = Vec::new();
    // What is scanned may be captured, too.
    f.inst(i).regions.iter().for_each(|&r| all.extend(captures(f, r)));
    match LoopRoles::of(f.op(i), f.attrs(i), args.len(), results.len()) {
        None => all.extend(args.iter().chain(results)),
        Some(roles) => {
            all.extend(&args[..roles.xs_args().start]);
            all.extend(&results[..roles.ys_results().start]);
        }
    }
    all
}
