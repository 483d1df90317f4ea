//! How many steps a loop takes, where the program says so.

use adfuse_ir::control::{LoopRoles, Trips};
use adfuse_ir::op::Control;
use adfuse_ir::{Function, Inst, Literal, Op, Value, ValueDef};

/// The number of steps of a loop, where that is an extent or follows from constants.
pub(crate) fn known_trips(f: &Function, i: Inst) -> Option<u64> {
    let Some(Control::Loop(_)) = f.op(i).control() else { return None };
    let steps = match LoopRoles::at(f, i).trips(f, i) {
        Trips::Length(n) => return n.known(),
        Trips::Count(n) => constant(f, n)?,
        Trips::Range(from, to) => constant(f, to)?.checked_sub(constant(f, from)?)?,
    };
    Some(steps.max(0) as u64)
}

/// An integer that follows from constants alone.
pub(super) fn constant(f: &Function, v: Value) -> Option<i64> {
    if let Some(l) = f.literal(v) {
        return l.dtype().is_int().then(|| l.to_i64());
    }
    let ValueDef::Inst(i, 0) = f.def(v) else { return None };
    let n = match (f.op(i), f.args(i)) {
        (Op::Sub, &[a, b]) => constant(f, a)?.checked_sub(constant(f, b)?)?,
        (Op::Add, &[a, b]) => constant(f, a)?.checked_add(constant(f, b)?)?,
        (Op::ConvertElementType, &[a]) => constant(f, a)?,
        _ => return None,
    };
    let dtype = f.ty(v).dtype;
    (dtype.is_int() && Literal::from_i64(dtype, n).to_i64() == n).then_some(n)
}
