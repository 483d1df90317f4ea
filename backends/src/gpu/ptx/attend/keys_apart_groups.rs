//! The way back to keys alone, or to values alone, by warpgroups: where a thread has no registers for the sums of both. While the
//! scores of a tile of rows become weights or cotangents, what the tile before gives is added.

use super::AttendPass;
use super::group_products::{LeftOperand, fence, multiply, wait};
use super::keys_groups::{KeySums, KeyTurn};
use super::row_pairs::RowPairs;
use super::scores::ScorePlace;
use super::tile::HiddenEnds;
use crate::gpu::ptx::emit::Emit;
use crate::gpu::ptx::mbarrier::RingPlace;

impl AttendPass<'_> {
    /// What a stage gives to keys alone, or to values alone; what the stage `before` adds to them is added meanwhile.
    pub(super) fn rows_apart(
        &self,
        emit: &mut Emit<'_>,
        turn: &KeyTurn<'_>,
        place: &ScorePlace<'_>,
        (ring, before, hidden): (RingPlace, Option<RingPlace>, HiddenEnds),
    ) {
        let KeyTurn { tiles, operands, sums, .. } = turn;
        let KeySums { dk, scores, moved, weights, cotangents, .. } = sums;
        let (asm, dtype) = (&mut emit.asm, self.form.dtype);
        tiles.ring.wait_full(asm, ring);
        let [q, dy] = [operands.q, operands.dy].map(|tile| tile.at(asm, &tiles.ring, ring));
        fence(asm);
        multiply(asm, dtype, (scores, false), &LeftOperand::Shared(&operands.k), &q);
        if dk.is_some() {
            multiply(asm, dtype, (moved, false), &LeftOperand::Shared(&operands.v), &dy);
        }
        if let Some(before) = before {
            self.add_last(asm, turn, before);
        }
        let numbers = self.numbers(asm, tiles, ring, place.column);
        let shifts = RowPairs::new(asm, (numbers, 0), scores.wide);
        let added = i64::from(before.is_some());
        wait(asm, added + i64::from(dk.is_some()));
        let gated = self.weigh_rows(asm, turn, place, (shifts, hidden));
        if dk.is_some() {
            let deltas = RowPairs::new(asm, (numbers, self.tile.step * 4), scores.wide);
            wait(asm, added);
            self.move_weights(asm, turn, (deltas, gated));
        }
        wait(asm, 0);
        if let Some(before) = before {
            tiles.ring.release(asm, before.stage);
        }
        match dk {
            Some(_) => moved.round_to(asm, dtype, cotangents),
            None => scores.round_to(asm, dtype, weights),
        }
    }
}
