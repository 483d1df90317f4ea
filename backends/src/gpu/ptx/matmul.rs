//! Contractions: tiles of the result by blocks, operands through several stages of shared memory.
//!
//! Where each sum is a chain of fused multiply-adds along the depth, it is so in chunks of 512 whose sums add
//! up in order: the strict order, whatever the tiles. Where blocks share the depth, the sums of its parts
//! go through memory, and a second launch adds them up in the same order.

use super::address::{Vars, resolved, value};
use super::asm::{Class, Reg};
use super::convert::narrowed;
use super::emit::{At, Emit};
use super::entry::{Out, begun, single};
use super::mma::{Core, places};
use super::operand_staging::{Feeding, Held, Place};
use super::operands::{class, constant, spelled};
use crate::gpu::schedule::grid::Grid;
use crate::gpu::schedule::index::coordinates;
use crate::gpu::schedule::product::ScheduledProduct;
use crate::gpu::schedule::program::GpuSchedule;
use crate::gpu::schedule::shape::axes;
use crate::gpu::schedule::tiling::{CHUNK, Combine, ProductTiling};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Member, Stage, volume};
use adfuse_ir::{DType, Diagnostic, Literal};

/// What one launch knows.
struct Product<'m> {
    member: &'m Member,
    cut: &'m ProductTiling,
    vars: Vars,
    batch: IndexExpr,
    /// The first row and column of the tile.
    first: [IndexExpr; 2],
    thread: IndexExpr,
    /// The part of the depth.
    part: IndexExpr,
    depth: i64,
}

/// Launches a contraction whose sums are stored.
pub(crate) fn product(
    s: &GpuSchedule,
    out: &mut Out,
    product: &ScheduledProduct,
) -> Result<(), Diagnostic> {
    tiles(s, out, product)?;
    match product.parts {
        None => Ok(()),
        Some(from) => {
            let tiling = &product.tiling;
            let parts = DepthParts { from, count: tiling.parts, combine: tiling.combine };
            added(s, out, &product.member, parts)
        }
    }
}

/// Launches the tiles, whose sums go on or are those of parts.
fn tiles(s: &GpuSchedule, out: &mut Out, product: &ScheduledProduct) -> Result<(), Diagnostic> {
    let ScheduledProduct { member: m, tiling: cut, parts, .. } = product;
    let (batch, rows, cols) = (volume(&m.batch), volume(&m.rows), volume(&m.cols));
    let count = |n: i64, k: usize| (n + cut.side[k] - 1) / cut.side[k];
    let (down, across) = (count(rows, 0), count(cols, 1));
    let blocks = batch.saturating_mul(cut.parts).saturating_mul(down).saturating_mul(across);
    let mut emit = begun(s, out);
    let mut vars = Vars::default();
    let block = emit.asm.special("ctaid.x");
    let block = vars.push(block, blocks);
    let thread = emit.asm.special("tid.x");
    let thread = vars.push(thread, cut.threads);
    let tile = block.clone().modulo(down * across);
    let first =
        [tile.clone().floor_div(across).times(cut.side[0]), tile.modulo(across).times(cut.side[1])];
    let rest = block.floor_div(down * across);
    let (part, batch) = match cut.parts {
        1 => (IndexExpr::Const(0), rest),
        n => (rest.clone().modulo(n), rest.floor_div(n)),
    };
    let depth = volume(&m.depth);
    let p = Product { member: m, cut, vars, batch, first, thread, part, depth };
    let core = Core::new(&mut emit, cut, m.sum, &p.thread, &p.vars);
    let sums = p.sums(&mut emit, &core);
    match parts {
        None => p.finish(&mut emit, &sums, &m.then, None),
        Some(to) => {
            let then = Stage::storing(m.sum, *to, m.sum, axes(4));
            p.finish(&mut emit, &sums, &then, Some(&p.part));
        }
    }
    let grid = Grid { threads: cut.threads, resident: cut.resident };
    let shared = u32::try_from(cut.shared(m.sum)).unwrap_or(u32::MAX);
    out.launch(&s.homes, emit, blocks, grid, shared)
}

impl Product<'_> {
    /// The sums of a thread.
    fn sums(&self, emit: &mut Emit<'_>, core: &Core) -> Vec<Reg> {
        let (m, cut) = (self.member, self.cut);
        let zero = constant(&mut emit.asm, Literal::zero(m.sum));
        let (_, all, _) = places(cut, &self.thread);
        let accs: Vec<Reg> = all.iter().map(|_| emit.asm.copied(zero)).collect();
        if self.depth == 0 {
            return accs;
        }
        let totals = cut.has_totals(m.sum).then(|| Totals::new(emit, cut, m.sum, &accs));
        let from = self.part.clone().times(cut.per);
        let place = Place {
            m,
            cut,
            vars: &self.vars,
            thread: &self.thread,
            batch: &self.batch,
            first: &self.first,
            from: &from,
        };
        let feeds = [0, 1].map(|side| Feeding::new(emit, &place, side));
        let copies = feeds.iter().any(Feeding::is_copied);
        let e = resolved(&from, &emit.same(&self.vars), &self.vars);
        let step = value(&mut emit.asm, &e, &self.vars, &[]);
        let step = emit.asm.copied(step);
        // The steps of this part end here.
        let end = emit.asm.fresh(Class::Word);
        emit.asm.emit(format_args!("add.s32 {end}, {step}, {}", cut.per));
        emit.asm.emit(format_args!("min.s32 {end}, {end}, {}", cut.steps));
        // The stages that are read in this step, and were read in the one before; where there are two, that is
        // the next one, too.
        let [read, before] = [0, (cut.stages - 1) * cut.stage].map(|at| {
            let at = emit.asm.word(at);
            emit.asm.copied(at)
        });
        let two = cut.stages == 2;
        for k in 0..cut.stages - 1 {
            let stage = emit.asm.word(k * cut.stage);
            self.copy(emit, &place, &feeds, copies, (step, k, end), stage);
        }
        let begin = emit.asm.word(0);
        emit.asm.open();
        let held = self.compute(emit, &place, &feeds, step);
        emit.put(&held, begin);
        emit.asm.close();
        let label = emit.asm.label();
        emit.asm.turn(&label);
        emit.asm.open();
        if copies {
            emit.asm.emit(format_args!("cp.async.wait_group {}", cut.stages - 2));
        }
        emit.asm.emit("bar.sync 0");
        let after = emit.asm.fresh(Class::Word);
        let wraps = emit.asm.fresh(Class::Pred);
        emit.asm.emit(format_args!("add.s32 {after}, {read}, {}", cut.stage));
        emit.asm.emit(format_args!("setp.eq.s32 {wraps}, {after}, {}", cut.stages * cut.stage));
        emit.asm.emit(format_args!("selp.b32 {after}, 0, {after}, {wraps}"));
        // All have read what was in that stage: the barrier says so.
        let free = if two { after } else { before };
        self.copy(emit, &place, &feeds, copies, (step, cut.stages - 1, end), free);
        let (next, last) = (emit.asm.fresh(Class::Word), emit.asm.fresh(Class::Word));
        emit.asm.emit(format_args!("add.s32 {next}, {step}, 1"));
        emit.asm.emit(format_args!("add.s32 {last}, {end}, -1"));
        emit.asm.emit(format_args!("min.s32 {last}, {next}, {last}"));
        let held = self.compute(emit, &place, &feeds, last);
        core.step(emit, cut, read, &accs);
        emit.put(&held, after);
        if let Some(totals) = &totals {
            totals.chunk(emit, (next, end), &accs, zero);
        }
        if !two {
            emit.asm.set(before, read);
        }
        emit.asm.set(read, after);
        emit.asm.set(step, next);
        emit.asm.close();
        let more = emit.asm.fresh(Class::Pred);
        emit.asm.emit(format_args!("setp.lt.s32 {more}, {step}, {end}"));
        emit.asm.emit(format_args!("@{more} bra {label}"));
        match totals {
            Some(totals) => totals.with(emit, &accs),
            None => accs,
        }
    }

    /// Begins to copy the operands that are copied, `ahead` steps on, where that is one.
    fn copy(
        &self,
        emit: &mut Emit<'_>,
        place: &Place<'_>,
        feeds: &[Feeding; 2],
        copies: bool,
        (step, ahead, end): (Reg, i64, Reg),
        stage: Reg,
    ) {
        if !copies {
            return;
        }
        let (on, more) = (emit.asm.fresh(Class::Word), emit.asm.fresh(Class::Pred));
        emit.asm.emit(format_args!("add.s32 {on}, {step}, {ahead}"));
        emit.asm.emit(format_args!("setp.lt.s32 {more}, {on}, {end}"));
        emit.when(Some(more), |emit| {
            for feed in feeds.iter().filter(|f| f.is_copied()) {
                feed.copy(emit, place, stage);
            }
        });
        emit.asm.emit("cp.async.commit_group");
    }

    /// Computes the operands that are computed.
    fn compute(
        &self,
        emit: &mut Emit<'_>,
        place: &Place<'_>,
        feeds: &[Feeding; 2],
        step: Reg,
    ) -> Held {
        let mut held = Held::new();
        let mut vars = self.vars.clone();
        let step = vars.push(step, self.cut.steps);
        for feed in feeds.iter().filter(|f| !f.is_copied()) {
            feed.compute(emit, place, &vars, &step, &mut held);
        }
        held
    }

    /// Sums through shared memory, so that neighbouring threads have neighbouring columns, and what
    /// becomes of each.
    fn finish(&self, emit: &mut Emit<'_>, sums: &[Reg], then: &Stage, part: Option<&IndexExpr>) {
        let (m, cut) = (self.member, self.cut);
        let (form, size) = (class(m.sum), m.sum.bytes().max(4) as i64);
        let moved = form.moved();
        let pitch = cut.finished(size);
        let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
        let address = |emit: &mut Emit<'_>, vars: &Vars, row: IndexExpr, col: IndexExpr| {
            let place = row.times(pitch).sum(col.times(size));
            let e = resolved(&place, &emit.same(vars), vars);
            let x = value(&mut emit.asm, &e, vars, &[]);
            emit.asm.pure(Class::Word, "add.s32", format_args!("{x}, {base}"))
        };
        let ([row, col], all, near) = places(cut, &self.thread);
        let mine = address(emit, &self.vars, row, col);
        emit.asm.emit("bar.sync 0");
        for (places, regs) in all.chunks(near).zip(sums.chunks(near)) {
            let [row, col] = places[0];
            let regs: Vec<Reg> =
                regs.iter().map(|&sum| narrowed(&mut emit.asm, sum, m.sum)).collect();
            emit.shared_row("st", &regs, mine, row * pitch + col * size);
        }
        emit.asm.emit("bar.sync 0");
        let width = cut.side[1];
        // Rows that all threads have together.
        let lines = cut.threads / width;
        let turns = cut.side[0] / lines;
        let unroll = cut.epilogue;
        let (l, turn) = emit.repeat(turns / unroll);
        let mut vars = self.vars.clone();
        let turn = vars.push(turn, turns / unroll);
        for u in 0..unroll {
            let row = turn.clone().times(unroll).plus(u).times(lines);
            let row = row.sum(self.thread.clone().floor_div(width));
            let col = self.thread.clone().modulo(width);
            let at = address(emit, &vars, row.clone(), col.clone());
            let sum = emit.asm.fresh(form);
            emit.asm.emit(format_args!("ld.shared.{moved} {sum}, [{at}]"));
            let mut own = vars.clone();
            let row = self.first[0].clone().sum(row);
            let col = self.first[1].clone().sum(col);
            let row = emit.below(&mut own, &row, volume(&m.rows));
            let col = emit.below(&mut own, &col, volume(&m.cols));
            let coords = match part {
                Some(part) => vec![part.clone(), self.batch.clone(), row.place, col.place],
                None => {
                    let mut coords = coordinates(&self.batch, &m.batch);
                    coords.extend(coordinates(&row.place, &m.rows));
                    coords.extend(coordinates(&col.place, &m.cols));
                    coords
                }
            };
            let valid = emit.all(row.valid, col.valid);
            emit.when(valid, |emit| {
                emit.follow(then, sum, &At { vars: &own, coords: &coords });
            });
        }
        emit.again(l);
    }
}

/// Sums of the chunks so far, in shared memory: each where its own thread alone reads and writes.
struct Totals {
    at: Reg,
    /// Bytes from one row of neighbours to the next, and neighbours.
    pitch: i64,
    near: usize,
    sum: DType,
    within: i64,
}

impl Totals {
    fn new(emit: &mut Emit<'_>, cut: &ProductTiling, sum: DType, accs: &[Reg]) -> Totals {
        let near = (16 / sum.bytes() as usize).min(accs.len());
        let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
        let thread = emit.asm.special("tid.x");
        let at = emit.asm.fresh(Class::Word);
        emit.asm.emit(format_args!("mad.lo.s32 {at}, {thread}, 16, {base}"));
        emit.asm.emit(format_args!("add.s32 {at}, {at}, {}", cut.stages * cut.stage));
        let made = Totals { at, pitch: 16 * cut.threads, near, sum, within: CHUNK / cut.deep };
        // The first sum is added to -0, which leaves it as it is.
        let none = constant(&mut emit.asm, Literal::from_f64(sum, -0.0));
        for (k, row) in (0i64..).zip(accs.chunks(near)) {
            emit.shared_row("st", &vec![none; row.len()], at, k * made.pitch);
        }
        made
    }

    /// Where a chunk is done and there are more, its sums are added and begin again.
    fn chunk(&self, emit: &mut Emit<'_>, (next, end): (Reg, Reg), accs: &[Reg], zero: Reg) {
        let [more, done] = [0; 2].map(|_| emit.asm.fresh(Class::Pred));
        let low = emit.asm.fresh(Class::Word);
        emit.asm.emit(format_args!("setp.lt.s32 {more}, {next}, {end}"));
        emit.asm.emit(format_args!("and.b32 {low}, {next}, {}", self.within - 1));
        emit.asm.emit(format_args!("setp.eq.and.s32 {done}, {low}, 0, {more}"));
        emit.when(Some(done), |emit| {
            for (k, row) in (0i64..).zip(accs.chunks(self.near)) {
                let totals = self.added(emit, k, row);
                emit.shared_row("st", &totals, self.at, k * self.pitch);
            }
            for &acc in accs {
                emit.asm.set(acc, zero);
            }
        });
    }

    /// All chunks, the last included.
    fn with(&self, emit: &mut Emit<'_>, accs: &[Reg]) -> Vec<Reg> {
        let rows = (0i64..).zip(accs.chunks(self.near));
        rows.flat_map(|(k, row)| self.added(emit, k, row)).collect()
    }

    fn added(&self, emit: &mut Emit<'_>, k: i64, row: &[Reg]) -> Vec<Reg> {
        let found: Vec<Reg> = row.iter().map(|acc| emit.asm.fresh(acc.class)).collect();
        emit.shared_row("ld", &found, self.at, k * self.pitch);
        let t = spelled(self.sum);
        for (total, acc) in found.iter().zip(row) {
            emit.asm.emit(format_args!("add.rn.{t} {total}, {total}, {acc}"));
        }
        found
    }
}

/// Sums of parts of the depth: where they are, how many there are, and how they are added up.
#[derive(Clone, Copy)]
pub(crate) struct DepthParts {
    pub(crate) from: Buffer,
    pub(crate) count: i64,
    pub(crate) combine: Combine,
}

/// Launches what adds up the sums of parts, in their order, and what becomes of the results: a thread for
/// each.
pub(crate) fn added(
    s: &GpuSchedule,
    out: &mut Out,
    m: &Member,
    DepthParts { from, count: parts, combine: Combine { grid, inflight } }: DepthParts,
) -> Result<(), Diagnostic> {
    let total = volume(&m.result());
    let mut emit = begun(s, out);
    let (id, live) = emit.thread(total, grid.threads, false);
    emit.leave_unless(live);
    let (vars, place) = single(id, total);
    let (size, t) = (m.sum.bytes() as i64, spelled(m.sum));
    let address = emit.address(from, &place, size as u64, &vars, &[]);
    let at = emit.moving(&address);
    // Added to -0 the first is as it is.
    let none = constant(&mut emit.asm, Literal::from_f64(m.sum, -0.0));
    let sum = emit.asm.copied(none);
    let some = |emit: &mut Emit<'_>, count: i64| {
        let found: Vec<Reg> = (0..count)
            .map(|_| {
                let x = emit.asm.fresh(sum.class);
                emit.asm.emit(format_args!("ld.global.nc.{t} {x}, [{at}]"));
                emit.asm.emit(format_args!("add.s64 {at}, {at}, {}", total * size));
                x
            })
            .collect();
        for x in found {
            emit.asm.emit(format_args!("add.rn.{t} {sum}, {sum}, {x}"));
        }
    };
    if parts >= inflight {
        let (l, _) = emit.repeat(parts / inflight);
        some(&mut emit, inflight);
        emit.again(l);
    }
    some(&mut emit, parts % inflight);
    // Batch, rows and columns are one after the other, as those of the result are.
    let coords = coordinates(&place, &m.result());
    emit.follow(&m.then, sum, &At { vars: &vars, coords: &coords });
    out.launch(&s.homes, emit, grid.blocks(total), grid, 0)
}
