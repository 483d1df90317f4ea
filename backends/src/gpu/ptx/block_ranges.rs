//! Ranges of the blocks of one launch: each has code of its own, which a block finds by bisection of its number.

use super::asm::{Class, Reg};
use super::emit::Emit;

/// Writes the code of consecutive ranges of blocks, each of which begins with a number.
pub(crate) fn in_ranges<'e, T>(
    emit: &mut Emit<'e>,
    ranges: &[(i64, T)],
    body: impl Fn(&mut Emit<'e>, &T),
) {
    let block = emit.asm.special("ctaid.x");
    halves(emit, block, ranges, &body);
}

fn halves<'e, T>(
    emit: &mut Emit<'e>,
    block: Reg,
    ranges: &[(i64, T)],
    body: &impl Fn(&mut Emit<'e>, &T),
) {
    if let [(first, work)] = ranges {
        emit.asm.begin_part(*first);
        body(emit, work);
        return emit.asm.end_part();
    }
    let (low, high) = ranges.split_at(ranges.len() / 2);
    let Some((first, _)) = high.first() else { return };
    let later = emit.asm.fresh(Class::Pred);
    emit.asm.emit(format_args!("setp.ge.u32 {later}, {block}, {first}"));
    let label = emit.asm.label();
    emit.asm.emit(format_args!("@{later} bra {label}"));
    halves(emit, block, low, body);
    emit.asm.place(&label);
    halves(emit, block, high, body);
}
