//! Entry points of loops: copies of elements at a position, the position itself, and values that memory is filled with.

use super::asm::{Asm, Class, Reg};
use super::entry::Out;
use crate::gpu::launches::{Arg, FILL_THREADS, INDICES_AT, POSITION_ENTRY, TURNS, fill_entry};
use crate::gpu::schedule::binding::{CopyEnd, CopyPlace, ElementCopy};
use crate::gpu::schedule::grid::{Grid, THREADS};
use adfuse_ir::kernel::{Carry, Operand, Program, Step, Storage};
use adfuse_ir::{At, Diagnostic, Kind};
use std::collections::BTreeSet;

/// Copies of one entry point at most: it is given two pointers for each.
const COPIES: usize = 64;

/// Launches copies, several by one entry point: a thread copies one unit of each.
pub(crate) fn copies(out: &mut Out, all: &[ElementCopy]) -> Result<(), Diagnostic> {
    let full: Vec<&ElementCopy> = all.iter().filter(|c| c.bytes > 0).collect();
    for some in full.chunks(COPIES) {
        let most = some.iter().map(|c| c.bytes / unit(c)).max().unwrap_or(0);
        let blocks = most.div_ceil(THREADS as u64);
        let Some(blocks) = u32::try_from(blocks).ok().filter(|&n| n < 1 << 31) else {
            let m = format!("a launch of {blocks} blocks is more than a grid has");
            return Err(Diagnostic::new(At::default(), Kind::Limit, m));
        };
        let mut asm = Asm::new();
        let mut args = Vec::new();
        if some.iter().any(|c| c.from.each > 0 || c.to.each > 0) {
            args.push(Arg::Position);
        }
        let id = thread(&mut asm, THREADS);
        for copy in some {
            let from = end(&mut asm, &mut args, copy.from);
            let to = end(&mut asm, &mut args, copy.to);
            one(&mut asm, id, copy, [from, to]);
        }
        let entry = format!("{}_{}", out.prefix, out.entries);
        out.entries += 1;
        out.written(asm, entry, (args, Vec::new()), (blocks, Grid::of(THREADS), 0));
    }
    Ok(())
}

/// The number of a thread among all.
fn thread(asm: &mut Asm, threads: i64) -> Reg {
    let (block, own) = (asm.special("ctaid.x"), asm.special("tid.x"));
    let own = asm.pure(Class::Long, "cvt.u64.u32", own);
    asm.pure(Class::Long, "mad.wide.u32", format_args!("{block}, {threads}, {own}"))
}

/// The pointer of one end of a copy. The position comes first among the parameters.
fn end(asm: &mut Asm, args: &mut Vec<Arg>, end: CopyEnd) -> Reg {
    let number = args.len() as u32;
    args.push(match end.place {
        CopyPlace::Buffer(b) => Arg::Buffer(b),
        CopyPlace::Outer(b) => Arg::Outer(b),
        CopyPlace::Result(k) => Arg::Result(k),
    });
    match end.each {
        0 => asm.pointer(number),
        each => asm.pointer_at(number, 0, each),
    }
}

/// Bytes that a thread copies: all places are multiples of them.
fn unit(copy: &ElementCopy) -> u64 {
    let fits = |n: &u64| [copy.bytes, copy.from.each, copy.to.each].iter().all(|x| x % n == 0);
    [16, 8, 4, 2].into_iter().find(fits).unwrap_or(1)
}

fn one(asm: &mut Asm, id: Reg, copy: &ElementCopy, [from, to]: [Reg; 2]) {
    let bytes = unit(copy);
    let (class, count, kind) = match bytes {
        16 => (Class::Word, 4, "v4.b32"),
        8 => (Class::Long, 1, "b64"),
        4 => (Class::Word, 1, "b32"),
        2 => (Class::Half, 1, "b16"),
        _ => (Class::Word, 1, "u8"),
    };
    let live = asm.pure(Class::Pred, "setp.lt.s64", format_args!("{id}, {}", copy.bytes / bytes));
    let past = asm.label();
    asm.emit(format_args!("@!{live} bra {past}"));
    asm.open();
    let [from, to] =
        [from, to].map(|p| asm.pure(Class::Long, "mad.lo.s64", format_args!("{id}, {bytes}, {p}")));
    let regs: Vec<Reg> = (0..count).map(|_| asm.fresh(class)).collect();
    let listed = super::asm::listed(&regs);
    asm.emit(format_args!("ld.global.{kind} {listed}, [{from}]"));
    asm.emit(format_args!("st.global.{kind} [{to}], {listed}"));
    asm.close();
    asm.place(&past);
}

/// The entry points that all loops of a program share, those of programs in it too.
pub(crate) fn shared(out: &mut Out, program: &Program) {
    let mut widths = BTreeSet::new();
    if !needs(program, &mut widths) {
        return;
    }
    let entry = |out: &mut Out, asm: Asm, name: &str, params: usize, threads: u32| {
        out.text.push_str(&asm.finish(name, (params, 0), threads, 1));
        out.text.push('\n');
    };
    entry(out, position(), POSITION_ENTRY, 4, TURNS as u32);
    for width in widths {
        entry(out, fill(width), &fill_entry(width), 3, FILL_THREADS);
    }
}

/// Whether there are loops, and the bytes of values that they begin with.
fn needs(program: &Program, widths: &mut BTreeSet<u64>) -> bool {
    let mut any = false;
    for step in &program.steps {
        if let Step::Loop(step) = step {
            any = true;
            widths.extend(step.all_carries().filter_map(|carry| filled(program, carry)));
        }
        for (_, block) in step.blocks() {
            any |= needs(&block.program, widths);
        }
    }
    any
}

/// The bytes of the value that a carry is filled with at first.
fn filled(program: &Program, carry: &Carry) -> Option<u64> {
    let data = &program.buffers[carry.to];
    match (carry.from, data.storage) {
        (Operand::Buffer(_), _) => None,
        (Operand::Literal(_), Storage::Plain) => Some(data.dtype.bytes()),
        (Operand::Literal(_), Storage::Packed(_)) => Some(4),
    }
}

/// Writes the position of a loop, and the indices of its next turns.
fn position() -> Asm {
    let mut asm = Asm::new();
    let place = asm.pointer(0);
    let [position, index, step] = [1, 2, 3].map(|k| asm.number(k));
    let own = asm.special("tid.x");
    let own = asm.pure(Class::Long, "cvt.u64.u32", own);
    let index = asm.pure(Class::Long, "mad.lo.s64", format_args!("{own}, {step}, {index}"));
    let at = asm.pure(Class::Long, "mad.lo.s64", format_args!("{own}, 8, {place}"));
    asm.emit(format_args!("st.global.b64 [{at}+{INDICES_AT}], {index}"));
    let first = asm.pure(Class::Pred, "setp.eq.s64", format_args!("{own}, 0"));
    asm.emit(format_args!("@!{first} ret"));
    asm.emit(format_args!("st.global.b64 [{place}], {position}"));
    asm
}

/// Fills memory with values of this many bytes.
fn fill(width: u64) -> Asm {
    let mut asm = Asm::new();
    let place = asm.pointer(0);
    let [bits, count] = [1, 2].map(|k| asm.number(k));
    let id = thread(&mut asm, i64::from(FILL_THREADS));
    let live = asm.pure(Class::Pred, "setp.lt.s64", format_args!("{id}, {count}"));
    asm.emit(format_args!("@!{live} ret"));
    let at = asm.pure(Class::Long, "mad.lo.s64", format_args!("{id}, {width}, {place}"));
    let (value, kind) = match width {
        8 => (bits, "b64"),
        4 => (asm.narrow(bits), "b32"),
        2 => {
            let word = asm.narrow(bits);
            (asm.pure(Class::Half, "cvt.u16.u32", word), "b16")
        }
        _ => (asm.narrow(bits), "u8"),
    };
    asm.emit(format_args!("st.global.{kind} [{at}], {value}"));
    asm
}
