//! What becomes of the sums of a tile. Four threads exchange theirs, so that each has eight neighbouring columns and reads and
//! writes 16 bytes or more at a time; then the scalar program follows, and the stores.

use super::WarpgroupKernel;
use super::sums::Sums;
use super::tile_place::TilePlace;
use crate::gpu::ptx::address::{Vars, resolved, value};
use crate::gpu::ptx::asm::{Class, Reg, made};
use crate::gpu::ptx::elementwise::Neighbours;
use crate::gpu::ptx::emit::{At, Emit};
use crate::gpu::ptx::operands::{constant, select};
use crate::gpu::schedule::index::coordinates;
use crate::gpu::schedule::mapped_operand::NEIGHBOURS;
use crate::gpu::schedule::warpgroup_form::PART;
use crate::gpu::schedule::warpgroup_tile::{EXCHANGED, TALL};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Param, Sink, Storage, volume};
use adfuse_ir::scalar::ScalarProgram;
use adfuse_ir::{DType, Literal};

/// The lines and columns of sums that a thread finishes.
struct OwnPlace {
    /// The first row of the thread, and the first group of neighbouring columns.
    row: Reg,
    group: Reg,
    batch: Reg,
    /// The part of the tile and its product, where sums are parts.
    part: Option<[Reg; 2]>,
}

impl WarpgroupKernel<'_> {
    /// Finishes the sums of a tile.
    pub(super) fn finish(&self, emit: &mut Emit<'_>, sums: &Sums, place: TilePlace) {
        let asm = &mut emit.asm;
        let thread = asm.special("tid.x");
        let [row, col] = place.first;
        let own_rows = (self.tile.sharers() - 1) * self.tile.tall() * TALL;
        // A warp has 16 rows of 64, four neighbouring threads have a row.
        let group = self.group(asm);
        let warp = asm.pure(Class::Word, "bfe.u32", format_args!("{thread}, 5, 2"));
        let of_warp = asm.pure(Class::Word, "bfe.u32", format_args!("{thread}, 2, 3"));
        let own = asm.pure(Class::Word, "mad.lo.u32", format_args!("{warp}, 16, {of_warp}"));
        let own = asm.pure(Class::Word, "mad.lo.u32", format_args!("{group}, {own_rows}, {own}"));
        let row = made(asm, Class::Word, "add.s32", format_args!("{row}, {own}"));
        let quarter = asm.pure(Class::Word, "and.b32", format_args!("{thread}, 3"));
        let col = made(asm, Class::Word, "shr.u32", format_args!("{col}, 3"));
        let group = made(asm, Class::Word, "add.s32", format_args!("{col}, {quarter}"));
        let part = place.run.map(|run| run.part).map(|part| {
            let first = emit.asm.word(0);
            [part, place.member.unwrap_or(first)]
        });
        let own = OwnPlace { row, group, batch: place.batch, part };
        let program = emit.written(&self.member.then.program);
        for (i, regs) in (0i64..).zip(&sums.regs) {
            for (part, regs) in (0i64..).zip(regs.chunks(EXCHANGED as usize / 2)) {
                let right = part * EXCHANGED / NEIGHBOURS;
                let mut columns: Option<Vec<ColumnPart>> = None;
                emit.asm.open();
                for half in 0..2 {
                    let pairs: Vec<[Reg; 2]> =
                        regs.chunks(4).map(|r| [r[2 * half], r[2 * half + 1]]).collect();
                    emit.asm.open();
                    let sums = exchanged(emit, quarter, pairs);
                    let at = [i * TALL + 8 * half as i64, right];
                    let found = self.follow(emit, &program, &own, (at, &sums));
                    columns = Some(match columns {
                        None => found,
                        Some(before) => added(emit, before, &found),
                    });
                    emit.asm.close();
                }
                for column in columns.iter().flatten() {
                    self.store_part(emit, &own, [i * TALL, right], column);
                }
                emit.asm.close();
            }
        }
    }

    /// Computes and stores what follows from neighbouring sums, this many rows and groups of columns on; what is added up along
    /// columns is handed back.
    fn follow(
        &self,
        emit: &mut Emit<'_>,
        program: &ScalarProgram,
        own: &OwnPlace,
        ([down, right], sums): ([i64; 2], &[Reg]),
    ) -> Vec<ColumnPart> {
        let m = self.member;
        let (rows, groups) = (volume(&m.rows), volume(&m.cols) / NEIGHBOURS);
        let asm = &mut emit.asm;
        let row = made(asm, Class::Word, "add.s32", format_args!("{}, {down}", own.row));
        let group = made(asm, Class::Word, "add.s32", format_args!("{}, {right}", own.group));
        let mut live = None;
        let ends = [
            (row, rows, rows % (self.tile.side[0] * self.tile.cluster) != 0),
            (group, groups, groups * NEIGHBOURS % self.tile.side[1] != 0),
        ];
        // Threads past an end read what the last ones do, and store nothing.
        let [row, group] = ends.map(|(place, extent, checked)| {
            if !checked {
                return place;
            }
            let asm = &mut emit.asm;
            let inside = made(asm, Class::Pred, "setp.lt.s32", format_args!("{place}, {extent}"));
            live = emit.all(live, Some(inside));
            let last = extent - 1;
            made(&mut emit.asm, Class::Word, "min.s32", format_args!("{place}, {last}"))
        });
        let mut vars = Vars::default();
        let batch = vars.push(own.batch, volume(&m.batch));
        let row = vars.push(row, rows);
        let group = vars.push(group, groups);
        let number = batch.clone().times(rows).sum(row.clone()).times(groups).sum(group.clone());
        let mut coords = self.neighbours(&batch, &row, &group);
        if let (Some([part, product]), Some(runs)) = (own.part, self.runs) {
            let part = vars.push(part, runs.parts().1);
            let product = vars.push(product, self.members.len() as i64);
            coords.iter_mut().for_each(|at| at.extend([part.clone(), product.clone()]));
        }
        let n = Neighbours { coords, vars };
        let stage = &m.then;
        let loaded = emit.loaded(stage, &n);
        let mut values: Vec<Vec<Reg>> = vec![Vec::new(); stage.sinks.len()];
        for (j, coords) in n.coords.iter().enumerate() {
            let at = At { vars: &n.vars, coords };
            let found = emit.outputs(stage, program, &at, &mut |_, k, param| match param {
                Param::Sum => Some(sums[j]),
                _ => loaded.get(&k).and_then(|regs| regs.get(j)).copied(),
            });
            for (list, value) in values.iter_mut().zip(found) {
                list.push(value);
            }
        }
        let mut columns = Vec::new();
        for ((sink, values), part) in stage.sinks.iter().zip(values).zip(self.parts) {
            if let Some(to) = *part {
                // Rows past the end add nothing.
                let zero = constant(&mut emit.asm, Literal::zero(DType::F32));
                let values = values.into_iter().map(|value| match live {
                    Some(live) => select(&mut emit.asm, live, value, zero),
                    None => value,
                });
                columns.push(ColumnPart { to, values: values.collect() });
                continue;
            }
            let Sink::Store { buffer, index } = sink else { continue };
            match emit.program.buffers[*buffer].storage {
                Storage::Packed(bits) => {
                    let e = resolved(&number, &emit.same(&n.vars), &n.vars);
                    let number = value(&mut emit.asm, &e, &n.vars, &[]);
                    emit.store_words(*buffer, bits, &values, number, live);
                }
                Storage::Plain => emit.store_row(*buffer, index, &values, &n, live),
            }
        }
        columns
    }

    /// Adds up the columns of the 16 rows of a warp, of which each thread has two rows' sums, and stores them. Eight threads
    /// that have the same columns exchange sums in three rounds, each of which leaves half as many: one in the end.
    fn store_part(
        &self,
        emit: &mut Emit<'_>,
        own: &OwnPlace,
        [down, right]: [i64; 2],
        column: &ColumnPart,
    ) {
        let m = self.member;
        let lane = emit.asm.special("laneid");
        let mut sums = column.values.clone();
        for bit in [16usize, 8, 4] {
            let upper = emit.asm.pure(Class::Word, "and.b32", format_args!("{lane}, {bit}"));
            let upper = emit.asm.pure(Class::Pred, "setp.ne.s32", format_args!("{upper}, 0"));
            let (low, high) = sums.split_at(sums.len() / 2);
            let pairs: Vec<(Reg, Reg)> = low.iter().copied().zip(high.iter().copied()).collect();
            let round = pairs.into_iter().map(|(a, b)| {
                let given = select(&mut emit.asm, upper, a, b);
                let kept = select(&mut emit.asm, upper, b, a);
                let taken = emit.exchanged(given, bit as u32);
                made(&mut emit.asm, Class::Single, "add.rn.f32", format_args!("{kept}, {taken}"))
            });
            sums = round.collect();
        }
        let base = emit.pointer(column.to);
        let asm = &mut emit.asm;
        let (parts, cols) = ((volume(&m.rows) + PART - 1) / PART, volume(&m.cols));
        let row = made(asm, Class::Word, "add.s32", format_args!("{}, {down}", own.row));
        let part = made(asm, Class::Word, "shr.u32", format_args!("{row}, {}", PART.ilog2()));
        let group = made(asm, Class::Word, "add.s32", format_args!("{}, {right}", own.group));
        let of_lane = asm.pure(Class::Word, "shr.u32", format_args!("{lane}, 2"));
        let col = made(asm, Class::Word, "mad.lo.s32", format_args!("{group}, 8, {of_lane}"));
        let inside = made(asm, Class::Pred, "setp.lt.s32", format_args!("{part}, {parts}"));
        let within = made(asm, Class::Pred, "setp.lt.s32", format_args!("{col}, {cols}"));
        let live = made(asm, Class::Pred, "and.pred", format_args!("{inside}, {within}"));
        let place = made(asm, Class::Long, "mul.wide.s32", format_args!("{part}, {cols}"));
        let col = made(asm, Class::Long, "cvt.s64.s32", col);
        let place = made(asm, Class::Long, "add.s64", format_args!("{place}, {col}"));
        let at = made(asm, Class::Long, "mad.lo.s64", format_args!("{place}, 4, {base}"));
        for sum in sums {
            asm.emit(format_args!("@{live} st.global.f32 [{at}], {sum}"));
        }
    }

    /// The coordinates of neighbouring columns of a row.
    fn neighbours(
        &self,
        batch: &IndexExpr,
        row: &IndexExpr,
        group: &IndexExpr,
    ) -> Vec<Vec<IndexExpr>> {
        let m = self.member;
        let mut first = coordinates(batch, &m.batch);
        first.extend(coordinates(row, &m.rows));
        // The last axis of the columns that is longer than 1 has whole groups.
        let last = m.cols.iter().rposition(|&n| n != 1).unwrap_or(0);
        let mut groups = m.cols.to_vec();
        if let Some(n) = groups.get_mut(last) {
            *n /= NEIGHBOURS;
        }
        let cols = coordinates(group, &groups);
        let each = (0..NEIGHBOURS).map(|j| {
            let mut cols = cols.clone();
            if let Some(col) = cols.get_mut(last) {
                *col = col.clone().times(NEIGHBOURS).plus(j);
            }
            first.iter().cloned().chain(cols).collect()
        });
        each.collect()
    }
}

/// What neighbouring sums of two rows add to columns.
struct ColumnPart {
    to: Buffer,
    values: Vec<Reg>,
}

/// The sums of two rows' parts.
fn added(emit: &mut Emit<'_>, before: Vec<ColumnPart>, after: &[ColumnPart]) -> Vec<ColumnPart> {
    let all = before.into_iter().zip(after).map(|(a, b)| {
        let each = a.values.iter().zip(&b.values).map(|(x, y)| {
            made(&mut emit.asm, Class::Single, "add.rn.f32", format_args!("{x}, {y}"))
        });
        ColumnPart { to: a.to, values: each.collect() }
    });
    all.collect()
}

/// Four threads have a pair of sums in each of four groups of 8 columns, and exchange them: each has all of one group. The
/// pairs are turned like a matrix, in two rounds of exchanges with the thread whose number differs in one bit.
fn exchanged(emit: &mut Emit<'_>, quarter: Reg, mut pairs: Vec<[Reg; 2]>) -> Vec<Reg> {
    for bit in [1usize, 2] {
        let odd = emit.asm.pure(Class::Word, "and.b32", format_args!("{quarter}, {bit}"));
        let odd = emit.asm.pure(Class::Pred, "setp.ne.s32", format_args!("{odd}, 0"));
        for low in (0..pairs.len()).filter(|k| k & bit == 0) {
            let high = low | bit;
            if high >= pairs.len() {
                continue;
            }
            let (mut lows, mut highs) = (pairs[low], pairs[high]);
            for (a, b) in lows.iter_mut().zip(&mut highs) {
                let given = select(&mut emit.asm, odd, *a, *b);
                let taken = emit.exchanged(given, bit as u32);
                (*a, *b) =
                    (select(&mut emit.asm, odd, taken, *a), select(&mut emit.asm, odd, *b, taken));
            }
            (pairs[low], pairs[high]) = (lows, highs);
        }
    }
    pairs.into_iter().flatten().collect()
}
