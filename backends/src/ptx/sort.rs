//! Lines in order: keys are sorted by their digits, the least significant first, and each pass is stable.
//!
//! Short lines are sorted in shared memory, several to a block where they are very short: one more pass
//! goes by the number of the line. Of a long line of which only the first few places are wanted, blocks sort
//! a part each, and what comes first in each part is sorted again. Any other long line takes three
//! launches a digit: how often each block has it, those counts added up in the order of digits and blocks,
//! and the entries to where they belong.

use super::asm::{Class, Reg};
use super::emit::{At, Emit};
use super::keys;
use super::launch::{Out, THREADS, begun, single};
use super::lower::{Lowering, axes};
use super::misc::{blocks_of, read_if};
use super::place::{Vars, coordinates, resolved, value};
use super::prim::select;
use super::radix::{Block, DIGIT, DIGITS, Entry, digit, warp_scan};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Argsort, Buffer, Extents};
use adfuse_ir::{DType, Diagnostic};

/// Entries of a line that one block sorts in shared memory at most.
const MOST: i64 = 8192;
/// Entries of short lines that one block sorts together.
const TOGETHER: i64 = 2048;
/// Threads of a block, and of one with more entries than those have in registers.
const FEW_THREADS: i64 = 256;
const MANY_THREADS: i64 = 512;
/// Entries of a thread at most.
const EACH: i64 = 16;
/// Counts of a lane in one turn, where counts of blocks are added up.
const COUNTS: i64 = 8;

/// Lines to put in order.
pub(super) struct Sort {
    pub(super) from: Source,
    pub(super) lines: i64,
    /// Entries of a line.
    pub(super) long: i64,
    /// Bits of the keys.
    pub(super) bits: u32,
    /// Entries that are wanted of each line: the first.
    pub(super) count: i64,
    pub(super) to: Target,
}

/// What is sorted.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// Elements along an axis; other axes number the lines.
    Elements { buffer: Buffer, axis: usize, descending: bool },
    /// Keys, a row for each line, and what goes with them: their places, where it is nothing else.
    Keys { keys: Buffer, with: Option<Buffer> },
}

/// What becomes of it.
#[derive(Clone, Copy)]
pub(super) enum Target {
    /// What goes with the keys is stored along an axis.
    Places { buffer: Buffer, axis: usize },
    /// Keys and what goes with them, a row for each line.
    Entries { keys: Buffer, with: Buffer },
}

impl Sort {
    pub(super) fn of(low: &Lowering, step: &Argsort) -> Sort {
        let [from, out] = [step.from, step.out].map(|b| &low.program.buffers[b]);
        let axis = usize::from(step.axis);
        let lines = without(&from.dims, axis).iter().product();
        let (long, count) = (from.dims[axis], out.dims[axis]);
        let (buffer, descending) = (step.from, step.descending);
        let bits = keys::bits(from.dtype);
        let to = Target::Places { buffer: step.out, axis };
        let from = Source::Elements { buffer, axis, descending };
        Sort { from, lines, long, bits, count, to }
    }

    fn wide(&self) -> bool {
        self.bits > 32
    }

    /// The passes, and bits of the digit of each.
    fn passes(&self) -> (i64, u32) {
        let passes = self.bits.div_ceil(DIGIT).max(1);
        (passes.into(), self.bits.div_ceil(passes).max(1))
    }
}

/// Extents without those of an axis.
fn without(dims: &[i64], axis: usize) -> Extents {
    dims.iter().enumerate().filter(|(d, _)| *d != axis).map(|(_, &n)| n).collect()
}

/// A buffer for keys and one for what goes with them, a row for each line.
fn entries(low: &mut Lowering, lines: i64, long: i64, wide: bool) -> (Buffer, Buffer) {
    let dims = || Extents::from_iter([lines, long]);
    let keys = low.temp(if wide { DType::I64 } else { DType::U32 }, dims());
    (keys, low.temp(DType::I32, dims()))
}

/// Launches what sorts lines.
pub(super) fn sort(low: &mut Lowering, out: &mut Out, sort: &Sort) -> Result<(), Diagnostic> {
    if sort.lines == 0 || sort.count == 0 {
        return Ok(());
    }
    if sort.long <= MOST {
        return tiles(low, out, sort, 1);
    }
    if sort.count <= MOST / 4 {
        let parts = (sort.long + MOST - 1) / MOST;
        let long = parts * sort.count;
        let (keys, with) = entries(low, sort.lines, long, sort.wide());
        let to = Target::Entries { keys, with };
        tiles(low, out, &Sort { to, ..*sort }, parts)?;
        let from = Source::Keys { keys, with: Some(with) };
        return self::sort(low, out, &Sort { from, long, ..*sort });
    }
    let (passes, _) = sort.passes();
    // Those that a pass reads and those that it writes.
    let both: Vec<(Buffer, Buffer)> =
        (1..passes.min(3)).map(|_| entries(low, sort.lines, sort.long, sort.wide())).collect();
    let mut from = sort.from;
    for pass in 0..passes {
        let to = match both.get((pass % 2) as usize).filter(|_| pass + 1 < passes) {
            Some(&(keys, with)) => Target::Entries { keys, with },
            None => sort.to,
        };
        self::pass(low, out, &Sort { from, to, ..*sort }, pass)?;
        if let Target::Entries { keys, with } = to {
            from = Source::Keys { keys, with: Some(with) };
        }
    }
    Ok(())
}

impl Emit<'_> {
    /// Coordinates of an entry of a line along an axis of a buffer.
    fn along(&self, b: Buffer, axis: usize, line: &IndexExpr, at: &IndexExpr) -> Vec<IndexExpr> {
        let others = without(&self.program.buffers[b].dims, axis);
        let mut coords = coordinates(line, &others);
        coords.insert(axis, at.clone());
        coords
    }

    /// The key of an entry.
    fn key(&mut self, from: &Source, line: &IndexExpr, at: &IndexExpr, vars: &Vars) -> Reg {
        match *from {
            Source::Elements { buffer, axis, descending } => {
                let coords = self.along(buffer, axis, line, at);
                let x = self.element_of(buffer, &At { vars, coords: &coords });
                let dtype = self.program.buffers[buffer].dtype;
                keys::number(&mut self.asm, x, dtype, descending)
            }
            Source::Keys { keys, .. } => {
                self.element_of(keys, &At { vars, coords: &[line.clone(), at.clone()] })
            }
        }
    }

    /// What goes with the key of an entry.
    fn with(&mut self, from: &Source, line: &IndexExpr, at: &IndexExpr, vars: &Vars) -> Reg {
        match *from {
            Source::Keys { with: Some(with), .. } => {
                self.element_of(with, &At { vars, coords: &[line.clone(), at.clone()] })
            }
            _ => self.number(at, vars),
        }
    }

    /// A number of 32 bits.
    pub(super) fn number(&mut self, e: &IndexExpr, vars: &Vars) -> Reg {
        let e = resolved(e, &self.same(vars), vars);
        let x = value(&mut self.asm, &e, vars, &[]);
        match x.class {
            Class::Long => self.asm.pure(Class::Word, "cvt.u32.u64", x),
            _ => x,
        }
    }

    /// Stores an entry of a line in order.
    fn keep(
        &mut self,
        to: &Target,
        (line, at): (&IndexExpr, &IndexExpr),
        entry: Entry,
        vars: &Vars,
        when: Option<Reg>,
    ) {
        match *to {
            Target::Places { buffer, axis } => {
                let coords = self.along(buffer, axis, line, at);
                let at = At { vars, coords: &coords };
                self.store(buffer, &axes(coords.len()), entry.with, &at, when);
            }
            Target::Entries { keys, with } => {
                let at = At { vars, coords: &[line.clone(), at.clone()] };
                self.store(keys, &axes(2), entry.key, &at, when);
                self.store(with, &axes(2), entry.with, &at, when);
            }
        }
    }

    /// Whether places along an axis are nearer in memory than those of different lines.
    fn is_last(&self, from: &Source) -> bool {
        let Source::Elements { buffer, axis, .. } = *from else { return true };
        let data = &self.program.buffers[buffer];
        let step = |axis: usize| match &data.strides {
            Some(strides) => strides[axis],
            None => data.dims[axis + 1..].iter().product(),
        };
        let mut others = (0..data.dims.len()).filter(|&d| d != axis && data.dims[d] > 1);
        others.all(|d| step(d) > step(axis))
    }
}

/// Lines, or so many parts of each line, that a block sorts in shared memory.
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
fn tiles(low: &Lowering, out: &mut Out, sort: &Sort, parts: i64) -> Result<(), Diagnostic> {
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
        let last = keys::last(&mut emit.asm, sort.bits);
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

/// One pass over long lines: counts, their sums, and the entries to their places.
fn pass(low: &mut Lowering, out: &mut Out, sort: &Sort, pass: i64) -> Result<(), Diagnostic> {
    let block = Block { threads: FEW_THREADS, each: EACH, wide: sort.wide() };
    let blocks = (sort.long + block.entries() - 1) / block.entries();
    let counts = low.temp(DType::I32, Extents::from_iter([sort.lines, DIGITS, blocks]));
    let totals = low.temp(DType::I32, Extents::from_iter([sort.lines, DIGITS]));
    let p = Pass { sort, block, blocks, counts, totals, number: pass };
    p.count(low, out)?;
    p.add_up(low, out)?;
    p.move_entries(low, out)
}

struct Pass<'s> {
    sort: &'s Sort,
    block: Block,
    /// Blocks of a line.
    blocks: i64,
    /// For each line, digit and block, how many entries have the digit; later, how many in the blocks before.
    counts: Buffer,
    /// For each line and digit, how many entries have the digit.
    totals: Buffer,
    number: i64,
}

impl Pass<'_> {
    /// Variables of a launch: the line, the block of it, and the thread.
    fn begin(&self, emit: &mut Emit<'_>) -> (Vars, [IndexExpr; 3]) {
        let mut vars = Vars::default();
        let number = emit.asm.special("ctaid.x");
        let number = vars.push(number, self.sort.lines.saturating_mul(self.blocks));
        let thread = emit.asm.special("tid.x");
        let thread = vars.push(thread, self.block.threads);
        let (line, part) = (number.clone().floor_div(self.blocks), number.modulo(self.blocks));
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
        let bits = self.sort.passes().1;
        let shift = self.number * i64::from(bits);
        let last = emit.asm.word((1 << bits) - 1);
        let (mut entries, mut digits) = (Vec::new(), Vec::new());
        for e in 0..self.block.each {
            let mut own = vars.clone();
            let place = part.clone().times(self.block.entries());
            let place = place.sum(self.block.number(thread, e));
            let here = emit.below(&mut own, &place, self.sort.long);
            let key = emit.key(&self.sort.from, line, &here.place, &own);
            let mut digit = digit(&mut emit.asm, key, shift, bits);
            if let Some(valid) = here.valid {
                digit = select(&mut emit.asm, valid, digit, last);
            }
            digits.push(digit);
            if with {
                let with = emit.with(&self.sort.from, line, &here.place, &own);
                entries.push(Entry { key, with });
            }
        }
        (entries, digits)
    }

    fn launch(&self, low: &Lowering, out: &mut Out, mut emit: Emit<'_>) -> Result<(), Diagnostic> {
        let blocks = self.sort.lines.saturating_mul(self.blocks);
        emit.resident = Some(2);
        out.launch(&low.homes, emit, blocks, self.block.threads as u32, self.block.shared())
    }

    /// How many entries of each block have each digit. What is past the end of a line is counted in the
    /// last digit of its last block, after which nothing comes.
    fn count(&self, low: &Lowering, out: &mut Out) -> Result<(), Diagnostic> {
        let mut emit = begun(low, out);
        let (vars, at) = self.begin(&mut emit);
        let (_, digits) = self.entries(&mut emit, &vars, &at, false);
        let total = self.block.histogram(&mut emit, &digits, self.sort.passes().1);
        let [line, part, thread] = at;
        let coords = [line, thread, part];
        emit.store(self.counts, &axes(3), total, &At { vars: &vars, coords: &coords }, None);
        self.launch(low, out, emit)
    }

    /// Adds up, of each line and digit, the counts of the blocks before each: a warp each.
    fn add_up(&self, low: &Lowering, out: &mut Out) -> Result<(), Diagnostic> {
        let rows = self.sort.lines.saturating_mul(DIGITS);
        let mut emit = begun(low, out);
        let (id, _) = emit.thread(rows.saturating_mul(32), THREADS, true);
        let (vars, thread) = single(id, rows.saturating_mul(32));
        let (row, lane) = (thread.clone().floor_div(32), thread.modulo(32));
        let (line, digit) = (row.clone().floor_div(DIGITS), row.modulo(DIGITS));
        let zero = emit.asm.word(0);
        let so_far = emit.asm.copied(zero);
        let turns = (self.blocks + 32 * COUNTS - 1) / (32 * COUNTS);
        let (l, turn) = emit.repeat(turns);
        let mut own = vars.clone();
        let turn = own.push(turn, turns);
        let mut counts = Vec::new();
        for k in 0..COUNTS {
            let place = turn.clone().times(32).sum(lane.clone()).times(COUNTS).plus(k);
            let here = emit.below(&mut own, &place, self.blocks);
            let coords = vec![line.clone(), digit.clone(), here.place];
            // Counts of other threads are written meanwhile.
            let at = At { vars: &own, coords: &coords };
            let x = read_if(&mut emit, self.counts, &at, here.valid);
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
            emit.store(self.counts, &axes(3), before, &At { vars: &own, coords }, *valid);
            before = emit.asm.pure(Class::Word, "add.u32", format_args!("{before}, {x}"));
        }
        emit.asm.emit(format_args!("add.u32 {so_far}, {so_far}, {all}"));
        emit.again(l);
        let lane = emit.number(&lane, &vars);
        let leads = emit.asm.pure(Class::Pred, "setp.eq.u32", format_args!("{lane}, 0"));
        let coords = [line, digit];
        let at = At { vars: &vars, coords: &coords };
        emit.store(self.totals, &axes(2), so_far, &at, Some(leads));
        out.launch(&low.homes, emit, blocks_of(rows.saturating_mul(32)), THREADS, 0)
    }

    /// Entries to where they belong, in shared memory first, so that those of a digit are stored as neighbours.
    fn move_entries(&self, low: &Lowering, out: &mut Out) -> Result<(), Diagnostic> {
        let Pass { sort, ref block, .. } = *self;
        let bits = sort.passes().1;
        let mut emit = begun(low, out);
        let (vars, at) = self.begin(&mut emit);
        let (entries, digits) = self.entries(&mut emit, &vars, &at, true);
        let [line, part, thread] = at;
        let coords = [line.clone(), thread.clone(), part.clone()];
        let before = emit.element_of(self.counts, &At { vars: &vars, coords: &coords });
        let coords = [line.clone(), thread.clone()];
        let total = emit.element_of(self.totals, &At { vars: &vars, coords: &coords });
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
            let digit = digit(&mut emit.asm, entry.key, self.number * i64::from(bits), bits);
            let by = block.left_for_digit(&mut emit.asm, digit);
            let order = emit.asm.pure(Class::Word, "add.u32", format_args!("{by}, {place}"));
            let order = own.push(order, sort.long);
            let order = emit.below(&mut own, &order, sort.count);
            let when = emit.all(valid, order.valid);
            emit.keep(&sort.to, (&line, &order.place), entry, &own, when);
        }
        self.launch(low, out, emit)
    }
}
