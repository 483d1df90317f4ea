//! What becomes of the sums of a tile. Four threads exchange theirs, so that each has eight neighbouring columns and reads and
//! writes 16 bytes or more at a time; then the scalar program follows, and the stores.

use super::multiply::Sums;
use super::{TilePlace, WarpgroupKernel};
use crate::gpu::ptx::address::{Vars, resolved, value};
use crate::gpu::ptx::asm::{Class, Reg, made};
use crate::gpu::ptx::elementwise::Neighbours;
use crate::gpu::ptx::emit::{At, Emit};
use crate::gpu::ptx::operands::select;
use crate::gpu::schedule::index::coordinates;
use crate::gpu::schedule::shape::volume;
use crate::gpu::schedule::warpgroup::{EXCHANGED, GROUP, NEIGHBOURS, TALL};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Param, Sink, Storage};
use adfuse_ir::scalar::ScalarProgram;

/// The lines and columns of sums that a thread finishes.
struct OwnPlace {
    /// The first row of the thread, and the first group of neighbouring columns.
    row: Reg,
    group: Reg,
    batch: Reg,
}

impl WarpgroupKernel<'_> {
    /// Finishes the sums of a tile.
    pub(super) fn finish(&self, emit: &mut Emit<'_>, sums: &Sums, place: TilePlace) {
        let asm = &mut emit.asm;
        let thread = asm.special("tid.x");
        let [row, col] = place.first;
        let tall = self.tile.tall() * TALL;
        // A warp has 16 rows of 64, four neighbouring threads have a row.
        let group = asm.pure(Class::Word, "div.u32", format_args!("{thread}, {GROUP}"));
        let group = asm.pure(Class::Word, "sub.u32", format_args!("{group}, 1"));
        let warp = asm.pure(Class::Word, "bfe.u32", format_args!("{thread}, 5, 2"));
        let of_warp = asm.pure(Class::Word, "bfe.u32", format_args!("{thread}, 2, 3"));
        let own = asm.pure(Class::Word, "mad.lo.u32", format_args!("{warp}, 16, {of_warp}"));
        let own = asm.pure(Class::Word, "mad.lo.u32", format_args!("{group}, {tall}, {own}"));
        let row = made(asm, Class::Word, "add.s32", format_args!("{row}, {own}"));
        let quarter = asm.pure(Class::Word, "and.b32", format_args!("{thread}, 3"));
        let col = made(asm, Class::Word, "shr.u32", format_args!("{col}, 3"));
        let group = made(asm, Class::Word, "add.s32", format_args!("{col}, {quarter}"));
        let own = OwnPlace { row, group, batch: place.batch };
        let program = emit.written(&self.member.then.program);
        for (i, regs) in (0i64..).zip(&sums.regs) {
            for (part, regs) in (0i64..).zip(regs.chunks(EXCHANGED as usize / 2)) {
                for half in 0..2 {
                    let pairs: Vec<[Reg; 2]> =
                        regs.chunks(4).map(|r| [r[2 * half], r[2 * half + 1]]).collect();
                    emit.asm.open();
                    let sums = exchanged(emit, quarter, pairs);
                    let at = [i * TALL + 8 * half as i64, part * EXCHANGED / NEIGHBOURS];
                    self.follow(emit, &program, &own, (at, &sums));
                    emit.asm.close();
                }
            }
        }
    }

    /// Computes and stores what follows from neighbouring sums, this many rows and groups of columns on.
    fn follow(
        &self,
        emit: &mut Emit<'_>,
        program: &ScalarProgram,
        own: &OwnPlace,
        ([down, right], sums): ([i64; 2], &[Reg]),
    ) {
        let m = self.member;
        let (rows, groups) = (volume(&m.rows), volume(&m.cols) / NEIGHBOURS);
        let asm = &mut emit.asm;
        let row = made(asm, Class::Word, "add.s32", format_args!("{}, {down}", own.row));
        let group = made(asm, Class::Word, "add.s32", format_args!("{}, {right}", own.group));
        let mut live = None;
        let ends = [
            (row, rows, rows % self.tile.side[0] != 0),
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
        let n = Neighbours { coords: self.neighbours(&batch, &row, &group), vars };
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
        for (sink, values) in stage.sinks.iter().zip(values) {
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
            for side in 0..2 {
                let (a, b) = (pairs[low][side], pairs[high][side]);
                let given = select(&mut emit.asm, odd, a, b);
                let taken = emit.exchanged(given, bit as u32);
                pairs[low][side] = select(&mut emit.asm, odd, taken, a);
                pairs[high][side] = select(&mut emit.asm, odd, b, taken);
            }
        }
    }
    pairs.into_iter().flatten().collect()
}
