//! One pass over lines that outgrow a block: counts of digits, their sums, and the entries to their places.

use super::address::Vars;
use super::asm::{Class, Reg};
use super::emit::{At, Emit};
use super::entry::{Out, begun, single};
use super::operands::select;
use super::radix_sort::{Entry, digit, warp_scan};
use super::scan::read_if;
use crate::gpu::schedule::grid::Grid;
use crate::gpu::schedule::program::GpuSchedule;
use crate::gpu::schedule::shape::axes;
use crate::gpu::schedule::sort::{DIGITS, ScheduledPass};
use adfuse_ir::Diagnostic;
use adfuse_ir::index::IndexExpr;

/// Launches a pass over all lines.
pub(crate) fn pass(s: &GpuSchedule, out: &mut Out, pass: &ScheduledPass) -> Result<(), Diagnostic> {
    let p = Pass { of: pass };
    p.count(s, out)?;
    p.add_up(s, out)?;
    p.move_entries(s, out)
}

struct Pass<'s> {
    of: &'s ScheduledPass,
}

impl Pass<'_> {
    /// Variables of a launch: the line, the block of it, and the thread.
    fn begin(&self, emit: &mut Emit<'_>) -> (Vars, [IndexExpr; 3]) {
        let mut vars = Vars::default();
        let number = emit.asm.special("ctaid.x");
        let number = vars.push(number, self.of.sort.lines.saturating_mul(self.of.blocks));
        let thread = emit.asm.special("tid.x");
        let thread = vars.push(thread, self.of.block.threads);
        let (line, part) =
            (number.clone().floor_div(self.of.blocks), number.modulo(self.of.blocks));
        (vars, [line, part, thread])
    }

    /// A thread's entries, and their digits: past the end of the line the last there is.
    fn entries(
        &self,
        emit: &mut Emit<'_>,
        vars: &Vars,
        [line, part, thread]: &[IndexExpr; 3],
        with: bool,
    ) -> (Vec<Entry>, Vec<Reg>) {
        let bits = self.of.digits.bits;
        let shift = self.of.number * i64::from(bits);
        let last = emit.asm.word((1 << bits) - 1);
        let (mut entries, mut digits) = (Vec::new(), Vec::new());
        for e in 0..self.of.block.each {
            let mut own = vars.clone();
            let place = part.clone().times(self.of.block.entries());
            let place = place.sum(self.of.block.number(thread, e));
            let here = emit.below(&mut own, &place, self.of.sort.long);
            let key = emit.key(&self.of.sort.from, line, &here.place, &own);
            let mut digit = digit(&mut emit.asm, key, shift, bits);
            if let Some(valid) = here.valid {
                digit = select(&mut emit.asm, valid, digit, last);
            }
            digits.push(digit);
            if with {
                let with = emit.with(&self.of.sort.from, line, &here.place, &own);
                entries.push(Entry { key, with });
            }
        }
        (entries, digits)
    }

    fn launch(&self, s: &GpuSchedule, out: &mut Out, emit: Emit<'_>) -> Result<(), Diagnostic> {
        let blocks = self.of.sort.lines.saturating_mul(self.of.blocks);
        let grid = Grid { threads: self.of.block.threads, resident: self.of.resident };
        out.launch(&s.homes, emit, blocks, grid, self.of.block.shared())
    }

    /// How many entries of each block have each digit. What is past the end of a line is counted in the
    /// last digit of its last block, after which nothing comes.
    fn count(&self, s: &GpuSchedule, out: &mut Out) -> Result<(), Diagnostic> {
        let mut emit = begun(s, out);
        let (vars, at) = self.begin(&mut emit);
        let (_, digits) = self.entries(&mut emit, &vars, &at, false);
        let total = self.of.block.histogram(&mut emit, &digits, self.of.digits.bits);
        let [line, part, thread] = at;
        let coords = [line, thread, part];
        emit.store(self.of.counts, &axes(3), total, &At { vars: &vars, coords: &coords }, None);
        self.launch(s, out, emit)
    }

    /// Adds up, of each line and digit, the counts of the blocks before each: a warp each.
    fn add_up(&self, s: &GpuSchedule, out: &mut Out) -> Result<(), Diagnostic> {
        let rows = self.of.sort.lines.saturating_mul(DIGITS);
        let (grid, each) = (Grid::default(), self.of.each_lane);
        let mut emit = begun(s, out);
        let (id, _) = emit.thread(rows.saturating_mul(32), grid.threads, true);
        let (vars, thread) = single(id, rows.saturating_mul(32));
        let (row, lane) = (thread.clone().floor_div(32), thread.modulo(32));
        let (line, digit) = (row.clone().floor_div(DIGITS), row.modulo(DIGITS));
        let zero = emit.asm.word(0);
        let so_far = emit.asm.copied(zero);
        let turns = (self.of.blocks + 32 * each - 1) / (32 * each);
        let (l, turn) = emit.repeat(turns);
        let mut own = vars.clone();
        let turn = own.push(turn, turns);
        let mut counts = Vec::new();
        for k in 0..each {
            let place = turn.clone().times(32).sum(lane.clone()).times(each).plus(k);
            let here = emit.below(&mut own, &place, self.of.blocks);
            let coords = vec![line.clone(), digit.clone(), here.place];
            // Counts of other threads are written meanwhile.
            let at = At { vars: &own, coords: &coords };
            let x = read_if(&mut emit, self.of.counts, &at, here.valid);
            counts.push((coords, here.valid, x));
        }
        let asm = &mut emit.asm;
        let mut own_sum = zero;
        for (_, _, x) in &counts {
            own_sum = asm.pure(Class::Word, "add.u32", format_args!("{own_sum}, {x}"));
        }
        let up_to = warp_scan(asm, own_sum);
        let all = asm.fresh(Class::Word);
        asm.emit(format_args!("shfl.sync.idx.b32 {all}, {up_to}, 31, 31, 0xffffffff"));
        let before = asm.pure(Class::Word, "sub.u32", format_args!("{up_to}, {own_sum}"));
        let mut before = asm.pure(Class::Word, "add.u32", format_args!("{before}, {so_far}"));
        for (coords, valid, x) in &counts {
            emit.store(self.of.counts, &axes(3), before, &At { vars: &own, coords }, *valid);
            before = emit.asm.pure(Class::Word, "add.u32", format_args!("{before}, {x}"));
        }
        emit.asm.emit(format_args!("add.u32 {so_far}, {so_far}, {all}"));
        emit.again(l);
        let lane = emit.number(&lane, &vars);
        let leads = emit.asm.pure(Class::Pred, "setp.eq.u32", format_args!("{lane}, 0"));
        let coords = [line, digit];
        let at = At { vars: &vars, coords: &coords };
        emit.store(self.of.totals, &axes(2), so_far, &at, Some(leads));
        out.launch(&s.homes, emit, grid.blocks(rows.saturating_mul(32)), grid, 0)
    }

    /// Entries to where they belong, in shared memory first, so that those of a digit are stored as neighbours.
    fn move_entries(&self, s: &GpuSchedule, out: &mut Out) -> Result<(), Diagnostic> {
        let ScheduledPass { sort, block, .. } = self.of;
        let bits = self.of.digits.bits;
        let mut emit = begun(s, out);
        let (vars, at) = self.begin(&mut emit);
        let (entries, digits) = self.entries(&mut emit, &vars, &at, true);
        let [line, part, thread] = at;
        let coords = [line.clone(), thread.clone(), part.clone()];
        let before = emit.element_of(self.of.counts, &At { vars: &vars, coords: &coords });
        let coords = [line.clone(), thread.clone()];
        let total = emit.element_of(self.of.totals, &At { vars: &vars, coords: &coords });
        let (places, first) = block.places(&mut emit, &digits, bits);
        let asm = &mut emit.asm;
        let of_digit = block.before(asm, total, 1);
        let begins = asm.pure(Class::Word, "add.u32", format_args!("{of_digit}, {before}"));
        let by = asm.pure(Class::Word, "sub.u32", format_args!("{begins}, {first}"));
        block.leave_for_digit(asm, by);
        block.put(&mut emit, &entries, &places);
        for e in 0..block.each {
            let mut own = vars.clone();
            let number = thread.clone().plus(e * block.threads);
            let place = emit.number(&number, &own);
            let all = part.clone().times(block.entries()).sum(number);
            let valid = emit.below(&mut own, &all, sort.long).valid;
            let entry = block.at(&mut emit, place);
            let digit = digit(&mut emit.asm, entry.key, self.of.number * i64::from(bits), bits);
            let by = block.left_for_digit(&mut emit.asm, digit);
            let order = emit.asm.pure(Class::Word, "add.u32", format_args!("{by}, {place}"));
            let order = own.push(order, sort.long);
            let order = emit.below(&mut own, &order, sort.count);
            let when = emit.all(valid, order.valid);
            emit.keep(&sort.to, (&line, &order.place), entry, &own, when);
        }
        self.launch(s, out, emit)
    }
}
