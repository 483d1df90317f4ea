//! One step: what lanes read of the boxes, and its products.

use super::WindowKernel;
use super::shared_words::SharedWords;
use super::staging::StagedStep;
use super::words::between;
use crate::gpu::ptx::asm::{Class, Reg};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::ptx::mma::multiplied;
use crate::gpu::schedule::convolution::{DEEP, NEAR, place};
use crate::gpu::schedule::mma_unit::Unit;
use crate::gpu::schedule::staged_box;
use adfuse_ir::index::IndexExpr;

impl WindowKernel<'_> {
    /// Words, or elements where windows slide by those, between the elements of an operand at places along its own axes or along the
    /// depth.
    pub(super) fn steps(&self, side: usize, part: usize) -> Vec<i64> {
        let (form, tiling) = (&self.product.form, &self.product.tiling);
        let axes = tiling.groups[if part == staged_box::DEEP { 2 } else { side }].len();
        (0..axes).map(|a| tiling.boxes[side].step(&form.operands[side], part, a)).collect()
    }

    /// Where a lane's first element of an operand is in the first stage.
    pub(super) fn fragment_base(&self, emit: &mut Emit<'_>, side: usize) -> Reg {
        let tiling = &self.product.tiling;
        let (own, deep) = (self.steps(side, staged_box::OWN), self.steps(side, staged_box::DEEP));
        let lane = self.thread.clone().modulo(32);
        let word = self.product.form.operands[side].word;
        let first = tiling.boxes[side].first();
        let mut places = IndexExpr::Const(first - first % word.places());
        for (at, step) in self.of_warp(side).into_iter().zip(&own) {
            places = places.sum(at.times(*step));
        }
        places = places.sum(lane.clone().floor_div(DEEP).times(own[tiling.lanes[side]]));
        places = places.sum(lane.modulo(DEEP).times(deep[tiling.lanes[2]]));
        let before = if side == 0 { 0 } else { tiling.boxes[0].words() };
        let bytes = places.times(word.place_bytes()).plus(4 * before);
        let x = self.number(emit, &bytes, &self.vars);
        let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
        emit.asm.pure(Class::Word, "add.s32", format_args!("{x}, {base}"))
    }

    /// Words, or elements, before group `n` of an operand's own axes or of the depth.
    pub(super) fn group(&self, side: usize, part: usize, n: i64, steps: &[i64]) -> i64 {
        let tiling = &self.product.tiling;
        let (axes, near) = match part {
            staged_box::DEEP => (2, DEEP),
            _ => (side, NEAR),
        };
        let at = place(n, &tiling.groups[axes]);
        let lane = tiling.lanes[axes];
        let each = at.iter().zip(steps).enumerate();
        each.map(|(a, (at, step))| at * step * if a == lane { near } else { 1 }).sum()
    }

    /// The word of an operand this many places after a lane's first one. Windows that slide by single elements share words, and those
    /// that begin at an odd element have a part of two.
    fn word(
        &self,
        emit: &mut Emit<'_>,
        (base, known): (Reg, &mut SharedWords),
        side: usize,
        places: i64,
    ) -> Reg {
        let word = self.product.form.operands[side].word;
        let places = places + self.product.tiling.boxes[side].first() % word.places();
        let load = |emit: &mut Emit<'_>, known: &mut SharedWords, at: i64| {
            if let Some(found) = known.get(at) {
                return found;
            }
            let mut found = emit.asm.fresh(Class::Word);
            let bytes = at * word.place_bytes();
            emit.asm.emit(format_args!("ld.shared.b32 {found}, [{base}+{bytes}]"));
            if self.product.form.unit == Unit::Tf32 && !self.is_staged(side) {
                let rounded = emit.asm.fresh(Class::Word);
                // What tensor cores read of an `f32` is cut off, not rounded.
                emit.asm.emit(format_args!("cvt.rna.tf32.f32 {rounded}, {found}"));
                found = rounded;
            }
            known.put(at, found);
            found
        };
        if places.rem_euclid(word.places()) == 0 {
            return load(emit, known, places);
        }
        if let Some(found) = known.get(places) {
            return found;
        }
        let both = [places - 1, places + 1].map(|at| load(emit, known, at));
        let found = between(&mut emit.asm, both);
        known.put(places, found);
        found
    }

    /// Adds the products of a step, in the stage that is this many bytes in. Meanwhile elements of the next step are computed: a part
    /// of them with each piece.
    pub(super) fn multiply(
        &self,
        emit: &mut Emit<'_>,
        (bases, stage): ([Reg; 2], Reg),
        sums: &[Reg],
        next: &StagedStep<'_>,
    ) {
        let (tiling, unit) = (&self.product.tiling, self.product.form.unit);
        let bases = bases.map(|base| {
            let at = emit.asm.fresh(Class::Word);
            emit.asm.emit(format_args!("add.s32 {at}, {base}, {stage}"));
            at
        });
        let [own, deep_steps] = [staged_box::OWN, staged_box::DEEP]
            .map(|part| [0, 1].map(|side| self.steps(side, part)));
        let mut known = [SharedWords::default(), SharedWords::default()];
        let order = self.deep_order();
        let [tall, wide] = tiling.each;
        let pieces = tiling.pieces();
        for (piece, fours) in (0..).zip(order.chunks_exact(2)) {
            let loaded = self.load_units(emit, next, next.part(piece, pieces));
            known.iter_mut().for_each(|known| known.begin(piece));
            let mut read = |emit: &mut Emit<'_>, side: usize, line: i64, deep: usize| {
                let places = self.group(side, staged_box::OWN, line, &own[side])
                    + self.group(side, staged_box::DEEP, fours[deep], &deep_steps[side]);
                self.word(emit, (bases[side], &mut known[side]), side, places)
            };
            let lhs: Vec<[Reg; 4]> = (0..tall / 2)
                .map(|i| {
                    let at = [(0, 0), (1, 0), (0, 1), (1, 1)];
                    at.map(|(low, deep)| read(emit, 0, 2 * i + low, deep))
                })
                .collect();
            let rhs: Vec<[Reg; 2]> =
                (0..wide).map(|j| [0, 1].map(|deep| read(emit, 1, j, deep))).collect();
            for (a, sums) in lhs.iter().zip(sums.chunks(4 * wide as usize)) {
                for (b, sums) in rhs.iter().zip(sums.chunks(4)) {
                    multiplied(&mut emit.asm, unit, sums, a, *b);
                }
            }
            next.store_units(emit, loaded);
        }
    }
}
