//! Contractions: tiles of the result by blocks of 256 threads, operands through shared memory.
//!
//! Each sum is a chain of fused multiply-adds along the depth, in chunks of 512 whose sums add up in
//! order: the strict order, whatever the tiles. Elements of operands are whatever their feeds compute;
//! they are computed once for each tile that reads them.

use super::asm::{Class, Reg};
use super::convert::{convert, narrowed};
use super::emit::{At, Emit};
use super::launch::{Out, begun};
use super::lower::{Lowering, volume};
use super::place::{Vars, coordinates, resolved, value};
use super::prim::{class, constant, select};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Feed, Member};
use adfuse_ir::{DType, Diagnostic, Literal};

/// Threads along each side of a tile.
const SIDE: i64 = 16;
const THREADS: i64 = SIDE * SIDE;
/// Depth of a tile.
const DEEP: i64 = 16;
/// Products in a chunk.
const CHUNK: i64 = 512;

/// The sizes of a product's tiles.
struct Tiles {
    /// Sums of a thread along each side.
    each: [i64; 2],
    /// Neighbouring ones: what one load from shared memory has.
    near: i64,
    /// Bytes of an element.
    size: i64,
}

impl Tiles {
    /// As large as leaves every multiprocessor some.
    fn of(sum: DType, batch: i64, rows: i64, cols: i64) -> Tiles {
        let size = sum.bytes().max(4) as i64;
        let most = if size == 8 { 4 } else { 8 };
        let blocks = |each: i64| {
            let along = |n: i64| (n + each * SIDE - 1) / (each * SIDE);
            batch.saturating_mul(along(rows)).saturating_mul(along(cols))
        };
        let mut each = most;
        while each > 2 && blocks(each) < 132 {
            each /= 2;
        }
        Tiles { each: [each, each], near: each.min(16 / size), size }
    }

    fn side(&self, k: usize) -> i64 {
        self.each[k] * SIDE
    }

    /// Elements from one step of the depth to the next in shared memory.
    fn pitch(&self, k: usize) -> i64 {
        self.side(k) + 16 / self.size
    }

    /// Where, along a side, is sum `i` of thread `t`: the part that is a constant.
    fn place(&self, i: i64) -> i64 {
        i / self.near * (SIDE * self.near) + i % self.near
    }

    fn shared(&self) -> i64 {
        let operands = DEEP * (self.pitch(0) + self.pitch(1)) * self.size;
        operands.max(self.side(0) * self.side(1) * self.size)
    }
}

/// What one launch knows.
struct Product<'m> {
    member: &'m Member,
    tiles: Tiles,
    vars: Vars,
    batch: IndexExpr,
    /// The first row and column of the tile.
    first: [IndexExpr; 2],
    thread: IndexExpr,
    depth: i64,
}

/// Launches a contraction whose sums are stored.
pub(super) fn product(low: &Lowering, out: &mut Out, m: &Member) -> Result<(), Diagnostic> {
    let (batch, rows, cols) = (volume(&m.batch), volume(&m.rows), volume(&m.cols));
    let depth = volume(&m.depth);
    if batch * rows * cols == 0 {
        return Ok(());
    }
    let tiles = Tiles::of(m.sum, batch, rows, cols);
    let count = |n: i64, k: usize| (n + tiles.side(k) - 1) / tiles.side(k);
    let (down, across) = (count(rows, 0), count(cols, 1));
    let blocks = batch.saturating_mul(down).saturating_mul(across);
    let mut emit = begun(low, out);
    let mut vars = Vars::default();
    let block = emit.asm.special("ctaid.x");
    let block = vars.push(block, blocks);
    let thread = emit.asm.special("tid.x");
    let thread = vars.push(thread, THREADS);
    let tile = block.clone().modulo(down * across);
    let first = [
        tile.clone().floor_div(across).times(tiles.side(0)),
        tile.modulo(across).times(tiles.side(1)),
    ];
    let batch = block.floor_div(down * across);
    let shared = tiles.shared();
    let tiles_sums = tiles.each[0] * tiles.each[1] * tiles.size / 4;
    let p = Product { member: m, tiles, vars, batch, first, thread, depth };
    let sums = p.sums(&mut emit);
    p.finish(&mut emit, &sums);
    // Sums of chunks beside those of all chunks so far take all registers.
    let both = tiles_sums * if depth > CHUNK { 2 } else { 1 };
    emit.resident = Some(if both > 64 { 1 } else { 2 });
    let shared = u32::try_from(shared).unwrap_or(u32::MAX);
    out.launch(&low.homes, emit, blocks, THREADS as u32, shared)
}

impl Product<'_> {
    /// The sums of a thread, row-major.
    fn sums(&self, emit: &mut Emit<'_>) -> Vec<Reg> {
        let [down, across] = self.tiles.each;
        let sum = self.member.sum;
        let zero = constant(&mut emit.asm, Literal::zero(sum));
        let accs: Vec<Reg> = (0..down * across).map(|_| emit.asm.copied(zero)).collect();
        if self.depth == 0 {
            return accs;
        }
        let chunks = (self.depth + CHUNK - 1) / CHUNK;
        // Integers wrap: for them there are no chunks.
        let steps = (self.depth + DEEP - 1) / DEEP;
        if chunks == 1 || !sum.is_float() {
            let (l, step) = emit.repeat(steps);
            self.step(emit, step, steps, &accs);
            emit.again(l);
            return accs;
        }
        let totals: Vec<Reg> = accs.iter().map(|_| emit.asm.copied(zero)).collect();
        let within = CHUNK / DEEP;
        let step = emit.asm.word(0);
        let step = emit.asm.copied(step);
        let (l, chunk) = emit.repeat(chunks);
        for &acc in &accs {
            emit.asm.set(acc, zero);
        }
        let label = emit.asm.label();
        emit.asm.turn(&label);
        emit.asm.open();
        self.step(emit, step, steps, &accs);
        emit.asm.close();
        // On to the next chunk where this one, or the depth, is done.
        let (more, same) = (emit.asm.fresh(Class::Pred), emit.asm.fresh(Class::Pred));
        let low = emit.asm.fresh(Class::Word);
        emit.asm.emit(format_args!("add.s32 {step}, {step}, 1"));
        emit.asm.emit(format_args!("setp.lt.s32 {more}, {step}, {steps}"));
        emit.asm.emit(format_args!("and.b32 {low}, {step}, {}", within - 1));
        emit.asm.emit(format_args!("setp.ne.and.s32 {same}, {low}, 0, {more}"));
        emit.asm.emit(format_args!("@{same} bra {label}"));
        // The first sum is taken as it is, not added to zero.
        let begins = emit.asm.fresh(Class::Pred);
        emit.asm.emit(format_args!("setp.eq.s32 {begins}, {chunk}, 0"));
        let t = super::prim::spelled(sum);
        for (&total, &acc) in totals.iter().zip(&accs) {
            emit.asm.emit(format_args!("@!{begins} add.rn.{t} {total}, {total}, {acc}"));
            let moved = acc.class.moved();
            emit.asm.emit(format_args!("@{begins} mov.{moved} {total}, {acc}"));
        }
        emit.again(l);
        totals
    }

    /// One tile of the depth: operands to shared memory, and their products.
    fn step(&self, emit: &mut Emit<'_>, step: Reg, steps: i64, accs: &[Reg]) {
        let mut vars = self.vars.clone();
        let step = vars.push(step, steps);
        let mut stores = Vec::new();
        for k in 0..2 {
            self.fetch(emit, &vars, &step, k, &mut stores);
        }
        emit.asm.emit("bar.sync 0");
        for line in stores {
            emit.asm.emit(line);
        }
        emit.asm.emit("bar.sync 0");
        let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
        let address = |emit: &mut Emit<'_>, e: IndexExpr| {
            let bytes = e.times(self.tiles.near * self.tiles.size);
            let e = resolved(&bytes, &emit.same(&self.vars), &self.vars);
            let x = value(&mut emit.asm, &e, &self.vars, &[]);
            emit.asm.pure(Class::Word, "add.s32", format_args!("{x}, {base}"))
        };
        let down = address(emit, self.thread.clone().floor_div(SIDE));
        let across = address(emit, self.thread.clone().modulo(SIDE));
        let after = DEEP * self.tiles.pitch(0) * self.tiles.size;
        for d in 0..DEEP {
            let x = self.read(emit, down, d * self.tiles.pitch(0) * self.tiles.size, 0);
            let y = self.read(emit, across, after + d * self.tiles.pitch(1) * self.tiles.size, 1);
            for (i, &a) in x.iter().enumerate() {
                for (j, &b) in y.iter().enumerate() {
                    let acc = accs[i * y.len() + j];
                    let op = match self.member.sum {
                        DType::F32 => "fma.rn.f32",
                        DType::F64 => "fma.rn.f64",
                        DType::I64 => "mad.lo.s64",
                        _ => "mad.lo.s32",
                    };
                    emit.asm.emit(format_args!("{op} {acc}, {a}, {b}, {acc}"));
                }
            }
        }
    }

    /// A thread's operands of one step of the depth, from shared memory.
    fn read(&self, emit: &mut Emit<'_>, base: Reg, offset: i64, side: usize) -> Vec<Reg> {
        let form = class(self.member.sum);
        let (each, near) = (self.tiles.each[side], self.tiles.near);
        let mut found = Vec::new();
        for i in (0..each).step_by(near as usize) {
            let regs: Vec<Reg> = (0..near).map(|_| emit.asm.fresh(form)).collect();
            let list: Vec<String> = regs.iter().map(Reg::to_string).collect();
            let at = offset + self.tiles.place(i) * self.tiles.size;
            let moved = form.moved();
            match near {
                1 => emit.asm.emit(format_args!("ld.shared.{moved} {}, [{base}+{at}]", list[0])),
                n => emit.asm.emit(format_args!(
                    "ld.shared.v{n}.{moved} {{{}}}, [{base}+{at}]",
                    list.join(", ")
                )),
            }
            found.extend(regs);
        }
        found
    }

    /// Computes a thread's elements of an operand; the stores that put them into shared memory are for later.
    fn fetch(
        &self,
        emit: &mut Emit<'_>,
        vars: &Vars,
        step: &IndexExpr,
        side: usize,
        stores: &mut Vec<String>,
    ) {
        let m = self.member;
        let (feed, axes) = if side == 0 { (&m.lhs, &m.rows) } else { (&m.rhs, &m.cols) };
        let extent = volume(axes);
        let long = self.tiles.side(side);
        let program = emit.written(&feed.program);
        let from = program.outputs.first().map_or(m.sum, |&v| program.insts[v].dtype);
        let along = self.along_depth(emit, feed, axes.len());
        let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
        let offset = if side == 0 { 0 } else { DEEP * self.tiles.pitch(0) * self.tiles.size };
        for turn in 0..long * DEEP / THREADS {
            let (line, deep) = match along {
                // Threads next to each other go along the depth, or across it.
                true => (
                    self.thread.clone().floor_div(DEEP).plus(turn * (THREADS / DEEP)),
                    self.thread.clone().modulo(DEEP),
                ),
                false => {
                    let number = self.thread.clone().plus(turn * THREADS);
                    (number.clone().modulo(long), number.floor_div(long))
                }
            };
            let mut own = vars.clone();
            let row = self.first[side].clone().sum(line.clone());
            let row = emit.below(&mut own, &row, extent).place;
            let place = step.clone().times(DEEP).sum(deep.clone());
            let here = emit.below(&mut own, &place, self.depth);
            let (place, valid) = (here.place, here.valid);
            let mut coords = coordinates(&self.batch, &m.batch);
            coords.extend(coordinates(&row, axes));
            coords.extend(coordinates(&place, &m.depth));
            let at = At { vars: &own, coords: &coords };
            let (regs, _) = emit.params(&feed.params, &program, &at, &mut |_, _, _| None);
            let Some(&found) = super::prim::outputs(&mut emit.asm, &program, &regs).first() else {
                continue;
            };
            let mut found = convert(&mut emit.asm, found, from, m.sum);
            if let Some(valid) = valid {
                // -0 times +0 is -0, which changes no sum.
                let pad = if side == 0 && m.sum.is_float() { -0.0 } else { 0.0 };
                let pad = constant(&mut emit.asm, Literal::from_f64(m.sum, pad));
                found = select(&mut emit.asm, valid, found, pad);
            }
            let bytes = deep.times(self.tiles.pitch(side)).sum(line).times(self.tiles.size);
            let e = resolved(&bytes, &emit.same(vars), vars);
            let x = value(&mut emit.asm, &e, vars, &[]);
            let to = emit.asm.pure(Class::Word, "add.s32", format_args!("{x}, {base}"));
            let moved = found.class.moved();
            stores.push(format!("st.shared.{moved} [{to}+{offset}], {found}"));
        }
    }

    /// Whether neighbours along the depth are nearer in memory than those across it.
    fn along_depth(&self, emit: &Emit<'_>, feed: &Feed, axes: usize) -> bool {
        use adfuse_ir::kernel::{Operand, Param};
        let m = self.member;
        let (batch, rank) = (m.batch.len(), m.batch.len() + axes + m.depth.len());
        let steps = feed.params.iter().find_map(|p| {
            let Param::Load(pieces) = p else { return None };
            let piece = pieces.iter().find(|p| matches!(p.from, Operand::Buffer(_)))?;
            let Operand::Buffer(b) = piece.from else { return None };
            emit.program.buffers[b].steps(&piece.index, rank)
        });
        let Some(steps) = steps else { return true };
        let least = |part: &[i64]| part.iter().filter(|&&s| s != 0).map(|s| s.abs()).min();
        let (across, along) = (least(&steps[batch..batch + axes]), least(&steps[batch + axes..]));
        along.unwrap_or(i64::MAX) <= across.unwrap_or(i64::MAX)
    }

    /// Sums through shared memory, so that neighbouring threads have neighbouring columns, and what
    /// becomes of each.
    fn finish(&self, emit: &mut Emit<'_>, sums: &[Reg]) {
        let m = self.member;
        let [down, across] = self.tiles.each;
        let (form, size) = (class(m.sum), self.tiles.size);
        let moved = form.moved();
        let width = self.tiles.side(1);
        let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
        emit.asm.emit("bar.sync 0");
        let (ty, tx) = (self.thread.clone().floor_div(SIDE), self.thread.clone().modulo(SIDE));
        let near = self.tiles.near;
        let place = ty.times(near * width).sum(tx.times(near)).times(size);
        let e = resolved(&place, &emit.same(&self.vars), &self.vars);
        let x = value(&mut emit.asm, &e, &self.vars, &[]);
        let mine = emit.asm.pure(Class::Word, "add.s32", format_args!("{x}, {base}"));
        for i in 0..down {
            for j in 0..across {
                let at = (self.tiles.place(i) * width + self.tiles.place(j)) * size;
                let sum = sums[(i * across + j) as usize];
                let sum = narrowed(&mut emit.asm, sum, m.sum);
                emit.asm.emit(format_args!("st.shared.{moved} [{mine}+{at}], {sum}"));
            }
        }
        emit.asm.emit("bar.sync 0");
        let turns = self.tiles.side(0) * width / THREADS;
        let heavy = emit.written(&m.then.program).insts.len() as i64;
        let unroll = if heavy <= 40 { turns.min(4) } else { 1 };
        let (l, turn) = emit.repeat(turns / unroll);
        let mut vars = self.vars.clone();
        let turn = vars.push(turn, turns / unroll);
        for u in 0..unroll {
            let number = turn.clone().times(unroll).plus(u).times(THREADS).sum(self.thread.clone());
            let e = resolved(&number.clone().times(size), &emit.same(&vars), &vars);
            let x = value(&mut emit.asm, &e, &vars, &[]);
            let at = emit.asm.pure(Class::Word, "add.s32", format_args!("{x}, {base}"));
            let sum = emit.asm.fresh(form);
            emit.asm.emit(format_args!("ld.shared.{moved} {sum}, [{at}]"));
            let mut own = vars.clone();
            let row = self.first[0].clone().sum(number.clone().floor_div(width));
            let col = self.first[1].clone().sum(number.modulo(width));
            let row = emit.below(&mut own, &row, volume(&m.rows));
            let col = emit.below(&mut own, &col, volume(&m.cols));
            let mut coords = coordinates(&self.batch, &m.batch);
            coords.extend(coordinates(&row.place, &m.rows));
            coords.extend(coordinates(&col.place, &m.cols));
            let valid = emit.all(row.valid, col.valid);
            emit.when(valid, |emit| {
                emit.follow(&m.then, sum, &At { vars: &own, coords: &coords });
            });
        }
        emit.again(l);
    }
}
