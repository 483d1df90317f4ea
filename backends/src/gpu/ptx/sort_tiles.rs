//! Blocks that each sort a part of every line, or all of some short lines, in shared memory.

use super::address::Vars;
use super::asm::{Class, Reg};
use super::emit::Emit;
use super::entry::{Out, begun};
use super::operands::select;
use super::radix_sort::{Entry, digit};
use super::sort_keys;
use crate::gpu::schedule::grid::Grid;
use crate::gpu::schedule::program::GpuSchedule;
use crate::gpu::schedule::sort::{Digits, ScheduledTiles};
use adfuse_ir::Diagnostic;
use adfuse_ir::index::IndexExpr;

/// Lines, or this many parts of each line, that a block sorts in shared memory.
struct Tiles<'s> {
    of: &'s ScheduledTiles,
    /// Whether neighbours are of one line, and not of one place.
    along: bool,
}

/// Launches blocks that each sort a part of every line, or all of some lines.
pub(crate) fn tiles(s: &GpuSchedule, out: &mut Out, of: &ScheduledTiles) -> Result<(), Diagnostic> {
    let mut emit = begun(s, out);
    let along = emit.is_last(&of.sort.from);
    let groups = (of.sort.lines + of.together - 1) / of.together;
    Tiles { of, along }.write(&mut emit, groups);
    let grid = Grid { threads: of.block.threads, resident: of.resident };
    out.launch(&s.homes, emit, groups.saturating_mul(of.parts), grid, of.block.shared())
}

impl Tiles<'_> {
    /// The line, of those of the block, and the place of an entry as they were.
    fn entry(&self, number: &IndexExpr) -> (IndexExpr, IndexExpr) {
        let number = number.clone();
        match self.along {
            true => (number.clone().floor_div(self.of.long), number.modulo(self.of.long)),
            false => (number.clone().modulo(self.of.together), number.floor_div(self.of.together)),
        }
    }

    fn write(&self, emit: &mut Emit<'_>, groups: i64) {
        let &ScheduledTiles { ref sort, ref block, together, parts, long, digits, .. } = self.of;
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
        let Digits { passes, bits } = digits;
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
        let (places, _) = self.of.block.places(emit, digits, bits);
        self.of.block.put(emit, entries, &places);
        for (e, entry) in (0i64..).zip(entries) {
            let place = emit.number(&self.of.block.number(thread, e), vars);
            let found = self.of.block.at(emit, place);
            emit.asm.set(entry.key, found.key);
            emit.asm.set(entry.with, found.with);
        }
    }

    /// Stores what comes first of each line, from shared memory.
    fn keep_first(&self, emit: &mut Emit<'_>, vars: &Vars, [group, part, thread]: [&IndexExpr; 3]) {
        let &ScheduledTiles { ref sort, ref block, together, long, .. } = self.of;
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
