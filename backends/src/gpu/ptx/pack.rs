//! Packing truth values and narrow integers into words.

use super::asm::{Class, Reg};
use super::emit::At;
use super::entry::{Out, begun, single};
use crate::gpu::schedule::grid::Grid;
use crate::gpu::schedule::program::GpuSchedule;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::{Buffer, Storage, volume};

/// Launches packing: a thread for each word.
pub(crate) fn pack(
    s: &GpuSchedule,
    out: &mut Out,
    [from, to]: [Buffer; 2],
    grid: Grid,
) -> Result<(), Diagnostic> {
    let data = &s.program.buffers[to];
    let Storage::Packed(bits) = data.storage else { return Ok(()) };
    let places = volume(&s.program.buffers[from].dims);
    let each = i64::from(32 / u32::from(bits.max(1)));
    let words = (places + each - 1) / each;
    let dtype = data.dtype;
    let mut emit = begun(s, out);
    let (id, live) = emit.thread(words, grid.threads, false);
    emit.leave_unless(live);
    let (vars, word) = single(id, words);
    let mut all: Option<Reg> = None;
    for k in 0..each {
        let mut own = vars.clone();
        // Past the end the last is read again: what is there is read by nobody.
        let place = emit.below(&mut own, &word.clone().times(each).plus(k), places).place;
        let x = emit.element_of(from, &At { vars: &own, coords: &[place] });
        let x = emit.plain(x, dtype);
        let x = match x.class {
            Class::Long => emit.asm.pure(Class::Word, "cvt.u32.u64", x),
            _ => x,
        };
        let low = emit.asm.pure(Class::Word, "bfe.u32", format_args!("{x}, 0, {bits}"));
        let at = k * i64::from(bits);
        let moved = emit.asm.pure(Class::Word, "shl.b32", format_args!("{low}, {at}"));
        all = Some(match all {
            Some(a) => emit.asm.pure(Class::Word, "or.b32", format_args!("{a}, {moved}")),
            None => moved,
        });
    }
    let address = emit.address(to, &word, 4, &vars, &[]);
    if let Some(all) = all {
        emit.asm.emit(format_args!("st.global.b32 {address}, {all}"));
    }
    out.launch(&s.homes, emit, grid.blocks(words), grid, 0)
}
