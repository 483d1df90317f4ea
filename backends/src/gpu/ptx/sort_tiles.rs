//! Blocks that each sort a part of every line, or all of some short lines, in shared memory.

use super::address::Vars;
use super::asm::{Class, Reg};
use super::emit::Emit;
use super::entry::{Out, begun};
use super::operands::select;
use super::radix_sort::{Block, DIGITS, Entry, digit};
use super::sort_keys;
use crate::gpu::schedule::sort::{EACH, FEW_THREADS, MOST};
use crate::gpu::schedule::work::{Lowering, Sort};
use adfuse_ir::Diagnostic;
use adfuse_ir::index::IndexExpr;

/// Entries of short lines that one block sorts together.
const TOGETHER: i64 = 2048;
/// Threads of a block with more entries than fewer threads have in registers.
const MANY_THREADS: i64 = 512;

/// Lines, or this many parts of each line, that a block sorts in shared memory.
struct Tiles<'s> {
    sort: &'s Sort,
    block: Block,
    /// Lines of a block.
    together: i64,
    /// Parts of a line.
    parts: i64,
    /// Entries of a line, or of a part of one, that a block has.
    long: i64,
    /// Whether neighbours are of one line, and not of one place.
    along: bool,
}

/// Launches blocks that each sort a part of every line, or all of some lines.
pub(crate) fn tiles(
    low: &Lowering,
    out: &mut Out,
    sort: &Sort,
    parts: i64,
) -> Result<(), Diagnostic> {
    let long = if parts == 1 { sort.long } else { MOST };
    let together = match parts {
        1 => (TOGETHER / long).clamp(1, DIGITS).min(sort.lines),
        _ => 1,
    };
    let mut emit = begun(low, out);
    let threads = match together * long <= FEW_THREADS * EACH {
        true => FEW_THREADS,
        false => MANY_THREADS,
    };
    let each = (together * long + threads - 1) / threads;
    let block = Block { threads, each, wide: sort.wide() };
    let along = emit.is_last(&sort.from);
    let t = Tiles { sort, block, together, parts, long, along };
    let groups = (sort.lines + together - 1) / together;
    t.write(&mut emit, groups);
    emit.resident = Some(if t.block.entries() > 4096 { 1 } else { 2 });
    let threads = threads as u32;
    let shared = t.block.shared();
    out.launch(&low.homes, emit, groups.saturating_mul(parts), threads, shared)
}

impl Tiles<'_> {
    /// The line, of those of the block, and the place of an entry as they were.
    fn entry(&self, number: &IndexExpr) -> (IndexExpr, IndexExpr) {
        let number = number.clone();
        match self.along {
            true => (number.clone().floor_div(self.long), number.modulo(self.long)),
            false => (number.clone().modulo(self.together), number.floor_div(self.together)),
        }
    }

    fn write(&self, emit: &mut Emit<'_>, groups: i64) {
        let Tiles { sort, ref block, together, parts, long, .. } = *self;
        let mut vars = Vars::default();
        let number = emit.asm.special("ctaid.x");
        let number = vars.push(number, groups.saturating_mul(parts));
        let thread = emit.asm.special("tid.x");
        let thread = vars.push(thread, block.threads);
        let (group, part) = (number.clone().floor_div(parts), number.modulo(parts));
        let last = sort_keys::last(&mut emit.asm, sort.bits);
        let mut entries = Vec::new();
        for e in 0..block.each {
            let mut own = vars.clone();
            let place = block.number(&thread, e);
            let with = emit.number(&place, &own);
            let here = emit.below(&mut own, &place, together * long);
            let (l, k) = self.entry(&here.place);
            let line = group.clone().times(together).sum(l);
            let line = emit.below(&mut own, &line, sort.lines).place;
            let at = emit.below(&mut own, &part.clone().times(long).sum(k), sort.long);
            let mut key = emit.key(&sort.from, &line, &at.place, &own);
            if let Some(valid) = emit.all(here.valid, at.valid) {
                key = select(&mut emit.asm, valid, key, last);
            }
            entries.push(Entry { key, with });
        }
        let kept = |emit: &mut Emit<'_>, e: &Entry| Entry {
            key: emit.asm.copied(e.key),
            with: emit.asm.copied(e.with),
        };
        let entries: Vec<Entry> = entries.iter().map(|e| kept(emit, e)).collect();
        let (passes, bits) = sort.passes();
        let (l, turn) = emit.repeat(passes);
        let shift = emit.asm.pure(Class::Word, "mul.lo.u32", format_args!("{turn}, {bits}"));
        let digits: Vec<Reg> =
            entries.iter().map(|e| digit(&mut emit.asm, e.key, shift, bits)).collect();
        self.turn(emit, &vars, &thread, &entries, &digits, bits);
        emit.again(l);
        if together > 1 {
            let bits = (together as u64 - 1).ilog2() + 1;
            let most = emit.asm.word((1 << bits) - 1);
            let mut digits = Vec::new();
            for entry in &entries {
                let mut own = vars.clone();
                let place = own.push(entry.with, block.entries());
                let line = emit.number(&self.entry(&place).0, &own);
                let all = together * long;
                let test = format_args!("{}, {all}", entry.with).to_string();
                let valid = emit.asm.pure(Class::Pred, "setp.lt.u32", test);
                digits.push(select(&mut emit.asm, valid, line, most));
            }
            self.turn(emit, &vars, &thread, &entries, &digits, bits);
        }
        self.keep_first(emit, &vars, [&group, &part, &thread]);
    }

    /// One pass, in place.
    fn turn(
        &self,
        emit: &mut Emit<'_>,
        vars: &Vars,
        thread: &IndexExpr,
        entries: &[Entry],
        digits: &[Reg],
        bits: u32,
    ) {
        let (places, _) = self.block.places(emit, digits, bits);
        self.block.put(emit, entries, &places);
        for (e, entry) in (0i64..).zip(entries) {
            let place = emit.number(&self.block.number(thread, e), vars);
            let found = self.block.at(emit, place);
            emit.asm.set(entry.key, found.key);
            emit.asm.set(entry.with, found.with);
        }
    }

    /// Stores what comes first of each line, from shared memory.
    fn keep_first(&self, emit: &mut Emit<'_>, vars: &Vars, [group, part, thread]: [&IndexExpr; 3]) {
        let Tiles { sort, ref block, together, long, .. } = *self;
        for e in 0..block.each {
            let mut own = vars.clone();
            let number = thread.clone().plus(e * block.threads);
            let here = emit.below(&mut own, &number, together * long);
            let (l, k) = self.entry(&here.place);
            let line =
                emit.below(&mut own, &group.clone().times(together).sum(l.clone()), sort.lines);
            let count = sort.count.min(long);
            let order = emit.below(&mut own, &k, count);
            let when = emit.all(here.valid, line.valid);
            let when = emit.all(when, order.valid);
            let place = emit.number(&l.times(long).sum(k), &own);
            let mut found = block.at(emit, place);
            // Where it was: entries past the end of a line count as its last.
            let was = own.push(found.with, block.entries());
            let was = emit.below(&mut own, &was, together * long).place;
            let (_, k) = self.entry(&was);
            let at = emit.below(&mut own, &part.clone().times(long).sum(k), sort.long);
            found.with = emit.with(&sort.from, &line.place, &at.place, &own);
            let order = part.clone().times(count).sum(order.place);
            emit.keep(&sort.to, (&line.place, &order), found, &own, when);
        }
    }
}
