//! The way back to keys and values by warpgroups: each owns 64 keys. While the scores of a tile of rows become weights, what the
//! tile before moves is added to keys, and what moves the weights is computed; while they are moved, values are added.
//!
//! Where a thread has no registers for both, a pass is for keys or for values alone: what the tile before gives is added while the
//! scores of a tile become weights, or cotangents.

use super::group_products::{LeftOperand, PanelOperand, fence, multiply, wait};
use super::panels::{PanelCopy, PanelTile, TileRing, copy_own, shared, wait_once};
use super::row_pairs::RowPairs;
use super::scores::{ScoreLines, ScorePlace};
use super::tile::{Accumulators, HiddenEnds, lane, made, warp};
use super::tile_range::{TilePart, TileRange};
use super::{AttendPass, each_tile, gate, score_cotangent};
use crate::gpu::ptx::asm::{Asm, Class, Reg};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::ptx::mbarrier::RingPlace;
use crate::gpu::schedule::attention::AttentionForm;
use crate::gpu::target::WARP;

/// Keys and values that the block owns, and stages of queries, of the cotangents of results, and of two numbers for each row.
pub(super) struct KeyPanels {
    k: PanelTile,
    v: PanelTile,
    q: PanelTile,
    dy: PanelTile,
    pub(super) ring: TileRing,
    /// Bytes before the numbers, in the first stage, and from one stage to the next: shifts, and then mean cotangents.
    numbers: i64,
    number_bytes: i64,
    /// Bytes before the barrier of keys and values.
    own: i64,
}

impl KeyPanels {
    fn new(pass: &AttendPass<'_>) -> KeyPanels {
        let AttentionForm { depth, width, .. } = *pass.form;
        let (own, step, stages) = (pass.tile.own, pass.tile.step, pass.tile.stages);
        let tile = |at, lines, elements| PanelTile { at, lines, elements };
        let k = tile(0, own, depth);
        // Cotangents of values do not ask for values.
        let [of_keys, _] = pass.tile.pass.of_keys();
        let v = tile(k.end(), if of_keys { own } else { 0 }, width);
        let q = tile(v.end(), step, depth);
        let dy = tile(q.end(), step, width);
        let numbers = q.at + stages * (q.bytes() + dy.bytes());
        let number_bytes = step * 8;
        let ring = TileRing::new(numbers + stages * number_bytes, stages, &[q, dy]);
        KeyPanels { k, v, q, dy, ring, numbers, number_bytes, own: ring.end() }
    }
}

/// Where a block is: the head, and the tile of its rows; how many tiles are left, and the first tile of a head and the one after its last.
#[derive(Clone, Copy)]
struct RowCursor {
    head: Reg,
    tile: Reg,
    left: Reg,
    tiles: [Reg; 2],
}

/// Operands of a warpgroup, in the first stage.
pub(super) struct KeyOperands {
    pub(super) k: PanelOperand,
    pub(super) v: PanelOperand,
    pub(super) q: PanelOperand,
    pub(super) dy: PanelOperand,
}

/// What a warpgroup sums, and what it has of a tile. Of a pass for values alone `moved` has no columns.
pub(super) struct KeySums {
    pub(super) dk: Option<Accumulators>,
    pub(super) dv: Option<Accumulators>,
    pub(super) scores: Accumulators,
    pub(super) moved: Accumulators,
    pub(super) weights: Vec<[Reg; 4]>,
    pub(super) cotangents: Vec<[Reg; 4]>,
}

/// What all turns of a warpgroup have.
pub(super) struct KeyTurn<'a> {
    pub(super) tiles: &'a KeyPanels,
    pub(super) operands: &'a KeyOperands,
    pub(super) sums: &'a KeySums,
    /// The tile of rows.
    pub(super) tile: Reg,
}

impl AttendPass<'_> {
    /// Cotangents of keys and values; `each` blocks have the keys of a group.
    pub(super) fn keys_by_groups(&self, emit: &mut Emit<'_>, each: i64) {
        let (group, first) = self.block(&mut emit.asm, each, false);
        let range = self.tiles(&mut emit.asm, first, false).some(&mut emit.asm);
        let tiles = KeyPanels::new(self);
        self.init(emit, tiles.own, |asm| {
            tiles.ring.init(asm, [1 + WARP, self.tile.warps]);
        });
        self.by_roles(
            emit,
            |emit| self.copy_rows(emit, &tiles, &range, [group, first]),
            |emit| self.sum_rows(emit, &tiles, &range, [group, first]),
        );
    }

    fn cursor(&self, asm: &mut Asm, range: &TileRange, group: Reg) -> RowCursor {
        let shared = self.form.shared;
        let head = made(asm, Class::Word, "mul.lo.s32", format_args!("{group}, {shared}"));
        let tiles = [range.begin, range.end];
        let tile = asm.copied(tiles[0]);
        let left = made(asm, Class::Word, "sub.s32", format_args!("{}, {tile}", tiles[1]));
        let left = made(asm, Class::Word, "mul.lo.s32", format_args!("{left}, {shared}"));
        RowCursor { head, tile, left, tiles }
    }

    /// Goes on to the next tile, of the next head after the last one.
    fn advance_rows(&self, asm: &mut Asm, at: RowCursor) {
        let RowCursor { head, tile, left, tiles: [begin, end] } = at;
        asm.emit(format_args!("add.s32 {tile}, {tile}, 1"));
        asm.emit(format_args!("sub.s32 {left}, {left}, 1"));
        if self.form.shared > 1 {
            let over = made(asm, Class::Pred, "setp.ge.s32", format_args!("{tile}, {end}"));
            asm.emit(format_args!("@{over} mov.b32 {tile}, {begin}"));
            asm.emit(format_args!("@{over} add.s32 {head}, {head}, 1"));
        }
    }

    /// Brings keys and values, and rows tile after tile: one thread asks the copy engine, another warp brings the numbers.
    fn copy_rows(
        &self,
        emit: &mut Emit<'_>,
        tiles: &KeyPanels,
        range: &TileRange,
        [group, first]: [Reg; 2],
    ) {
        let (form, step) = (self.form, self.tile.step);
        let [q, k, v, _, dy, ..] = form.step.inputs[..] else { return };
        let at = self.cursor(&mut emit.asm, range, group);
        let q = PanelCopy::of_rows(emit, tiles.q, (q, form), at.head);
        let dy = PanelCopy::of_rows(emit, tiles.dy, (dy, form), at.head);
        let k = PanelCopy::of_keys(emit, tiles.k, (k, form), group);
        let [of_keys, _] = self.tile.pass.of_keys();
        let v = of_keys.then(|| PanelCopy::of_keys(emit, tiles.v, (v, form), group));
        let warp = warp(&mut emit.asm);
        let copier = self.tile.warps;
        let brings = emit.asm.pure(Class::Pred, "setp.ne.s32", format_args!("{warp}, {copier}"));
        let place = RingPlace::begin(&mut emit.asm);
        let (numbers, end) = (emit.asm.label(), emit.asm.label());
        emit.asm.emit(format_args!("@{brings} bra {numbers}"));
        emit.asm.open();
        let one = self.is_copier(&mut emit.asm);
        emit.when(Some(one), |emit| {
            let own: Vec<&PanelCopy> = [&k].into_iter().chain(&v).collect();
            copy_own(&mut emit.asm, tiles.own, &own, first);
            self.each_rows(emit, at, |emit| {
                let asm = &mut emit.asm;
                tiles.ring.wait_empty(asm, place);
                let line =
                    made(asm, Class::Word, "mul.lo.s32", format_args!("{}, {step}", at.tile));
                tiles.ring.fill(asm, place, &[&q, &dy], line);
                tiles.ring.advance(asm, place);
            });
        });
        emit.asm.close();
        emit.asm.emit(format_args!("bra {end}"));
        emit.asm.place(&numbers);
        emit.asm.open();
        let second = format!("{warp}, {}", copier + 1);
        let second = emit.asm.pure(Class::Pred, "setp.eq.s32", second);
        emit.when(Some(second), |emit| {
            self.each_rows(emit, at, |emit| {
                tiles.ring.wait_empty(&mut emit.asm, place);
                self.bring_numbers(emit, tiles, at, place);
                tiles.ring.advance(&mut emit.asm, place);
            });
        });
        emit.asm.close();
        emit.asm.place(&end);
    }

    /// Does something for each tile of rows, of which there is one at least.
    fn each_rows(&self, emit: &mut Emit<'_>, at: RowCursor, body: impl FnOnce(&mut Emit<'_>)) {
        let label = emit.asm.label();
        emit.asm.turn(&label);
        emit.asm.open();
        body(emit);
        self.advance_rows(&mut emit.asm, at);
        emit.asm.close();
        let more = made(&mut emit.asm, Class::Pred, "setp.gt.s32", format_args!("{}, 0", at.left));
        emit.asm.emit(format_args!("@{more} bra {label}"));
    }

    /// Stores the numbers of a tile's rows in a stage; 0 for rows past the last one.
    fn bring_numbers(
        &self,
        emit: &mut Emit<'_>,
        tiles: &KeyPanels,
        at: RowCursor,
        place: RingPlace,
    ) {
        let (rows, step) = (self.form.rows, self.tile.step);
        let [_, _, _, lse, _, delta, ..] = self.form.step.inputs[..] else { return };
        let from = [lse, delta].map(|b| self.head_at(emit, b, at.head, rows, 4));
        let asm = &mut emit.asm;
        let lane = lane(asm);
        let first =
            made(asm, Class::Word, "mad.lo.s32", format_args!("{}, {step}, {lane}", at.tile));
        let base = shared(asm, tiles.numbers);
        let to = format!("{}, {}, {base}", place.stage, tiles.number_bytes);
        let to = made(asm, Class::Word, "mad.lo.u32", to);
        let to = made(asm, Class::Word, "mad.lo.u32", format_args!("{lane}, 4, {to}"));
        for k in 0..(step + WARP - 1) / WARP {
            let row = made(asm, Class::Word, "add.s32", format_args!("{first}, {}", k * WARP));
            let there = made(asm, Class::Pred, "setp.lt.s32", format_args!("{row}, {rows}"));
            let own = made(asm, Class::Word, "add.s32", format_args!("{lane}, {}", k * WARP));
            let stores = made(asm, Class::Pred, "setp.lt.s32", format_args!("{own}, {step}"));
            for (n, from) in from.into_iter().enumerate() {
                let from = made(asm, Class::Long, "mad.wide.s32", format_args!("{row}, 4, {from}"));
                let mut x = made(asm, Class::Single, "mov.b32", "0f00000000");
                asm.emit(format_args!("@{there} ld.global.nc.f32 {x}, [{from}]"));
                if n == 0 {
                    x = self.functions.shift(asm, x);
                }
                let at = n as i64 * step * 4 + k * WARP * 4;
                asm.emit(format_args!("@{stores} st.shared.f32 [{to}+{at}], {x}"));
            }
        }
        let full = tiles.ring.full(asm, place);
        asm.emit(format_args!("mbarrier.arrive.shared::cta.b64 _, [{full}]"));
    }

    /// Sums what rows give, tile after tile.
    fn sum_rows(
        &self,
        emit: &mut Emit<'_>,
        tiles: &KeyPanels,
        range: &TileRange,
        [group, first]: [Reg; 2],
    ) {
        let (form, step) = (self.form, self.tile.step);
        let AttentionForm { stream, depth, width, .. } = *form;
        let asm = &mut emit.asm;
        let place = ScorePlace::new(asm, form, (ScoreLines::Keys, self.tile), first);
        let operands = KeyOperands {
            k: PanelOperand::own(asm, tiles.k),
            v: PanelOperand::own(asm, tiles.v),
            q: PanelOperand::whole(asm, tiles.q),
            dy: PanelOperand::whole(asm, tiles.dy),
        };
        let [of_keys, of_values] = self.tile.pass.of_keys();
        let mut zeros = |wanted: bool, elements: i64| {
            wanted.then(|| Accumulators::zeros(asm, 1, AttentionForm::padded(elements)))
        };
        let (dk, dv) = (zeros(of_keys, depth), zeros(of_values, width));
        let sums = KeySums {
            dk,
            dv,
            scores: Accumulators::fresh(asm, 1, step),
            moved: Accumulators::fresh(asm, 1, if of_keys { step } else { 0 }),
            weights: Accumulators::units(asm, if of_values { step } else { 0 }),
            cotangents: Accumulators::units(asm, if of_keys { step } else { 0 }),
        };
        let ring = RingPlace::begin(asm);
        wait_once(asm, tiles.own);
        let head = made(asm, Class::Word, "mul.lo.s32", format_args!("{group}, {}", form.shared));
        let last = made(asm, Class::Word, "add.s32", format_args!("{head}, {}", form.shared));
        let tile = asm.copied(range.begin);
        let before = RingPlace { stage: asm.copied(ring.stage), ..ring };
        let turn = KeyTurn { tiles, operands: &operands, sums: &sums, tile };
        let of_head = place.at_head(emit, head);
        self.rows_of_stage(emit, &turn, &of_head, (ring, None, range.hidden()));
        emit.asm.emit(format_args!("add.s32 {tile}, {tile}, 1"));
        each_tile(emit, head, last, |emit| {
            let of_head = place.at_head(emit, head);
            for TilePart { to, hidden, .. } in range.parts() {
                each_tile(emit, tile, to, |emit| {
                    self.next_rows(emit, &turn, &of_head, ([before, ring], hidden));
                });
            }
            emit.asm.set(tile, range.begin);
        });
        fence(&mut emit.asm);
        self.add_last(&mut emit.asm, &turn, before);
        wait(&mut emit.asm, 0);
        let [_, of_k, of_v, ..] = form.step.outputs[..] else { return };
        for (b, sums, n) in [(of_k, &sums.dk, depth), (of_v, &sums.dv, width)] {
            let Some(sums) = sums else { continue };
            let at = self.head_at(emit, b, group, stream, n * 2);
            self.store(emit, sums, (at, n, stream), &place);
        }
    }

    /// Goes on to the next stage.
    fn next_rows(
        &self,
        emit: &mut Emit<'_>,
        turn: &KeyTurn<'_>,
        place: &ScorePlace<'_>,
        ([before, ring], hidden): ([RingPlace; 2], HiddenEnds),
    ) {
        turn.tiles.ring.advance(&mut emit.asm, ring);
        self.rows_of_stage(emit, turn, place, (ring, Some(before), hidden));
        emit.asm.set(before.stage, ring.stage);
    }

    /// What a stage gives, and what the stage `before` adds.
    fn rows_of_stage(
        &self,
        emit: &mut Emit<'_>,
        turn: &KeyTurn<'_>,
        place: &ScorePlace<'_>,
        at: (RingPlace, Option<RingPlace>, HiddenEnds),
    ) {
        match &turn.sums.dv {
            Some(dv) if turn.sums.dk.is_some() => {
                self.begin_rows(&mut emit.asm, turn, at.0, at.1);
                self.move_rows(emit, turn, place, (dv, at));
            }
            _ => self.rows_apart(emit, turn, place, at),
        }
    }

    /// Begins to add what the last stage gives and is not added yet.
    pub(super) fn add_last(&self, asm: &mut Asm, turn: &KeyTurn<'_>, ring: RingPlace) {
        match turn.sums.dk {
            Some(_) => self.add_to_keys(asm, turn, ring),
            None => self.add_to_values(asm, turn, ring),
        }
    }

    /// Begins the scores of a stage, and what moves its weights; between them, what the stage before adds to keys.
    fn begin_rows(
        &self,
        asm: &mut Asm,
        turn: &KeyTurn<'_>,
        ring: RingPlace,
        before: Option<RingPlace>,
    ) {
        let KeyTurn { tiles, operands, sums, .. } = turn;
        let dtype = self.form.dtype;
        tiles.ring.wait_full(asm, ring);
        let [q, dy] = [operands.q, operands.dy].map(|tile| tile.at(asm, &tiles.ring, ring));
        fence(asm);
        multiply(asm, dtype, (&sums.scores, false), &LeftOperand::Shared(&operands.k), &q);
        if let Some(before) = before {
            self.add_to_keys(asm, turn, before);
        }
        multiply(asm, dtype, (&sums.moved, false), &LeftOperand::Shared(&operands.v), &dy);
    }

    /// Begins to add what the rows of a stage give to keys.
    fn add_to_keys(&self, asm: &mut Asm, turn: &KeyTurn<'_>, ring: RingPlace) {
        let KeyTurn { tiles, operands, sums, .. } = turn;
        let Some(dk) = &sums.dk else { return };
        let q = operands.q.at(asm, &tiles.ring, ring).turned(asm);
        let left = LeftOperand::Rounded(&sums.cotangents);
        multiply(asm, self.form.dtype, (dk, true), &left, &q);
    }

    /// Begins to add what the rows of a stage give to values.
    fn add_to_values(&self, asm: &mut Asm, turn: &KeyTurn<'_>, ring: RingPlace) {
        let KeyTurn { tiles, operands, sums, .. } = turn;
        let Some(dv) = &sums.dv else { return };
        let dy = operands.dy.at(asm, &tiles.ring, ring).turned(asm);
        multiply(asm, self.form.dtype, (dv, true), &LeftOperand::Rounded(&sums.weights), &dy);
    }

    /// Scores become weights. Whether some may be hidden.
    pub(super) fn weigh_rows(
        &self,
        asm: &mut Asm,
        turn: &KeyTurn<'_>,
        place: &ScorePlace<'_>,
        (mut shifts, hidden): (RowPairs, HiddenEnds),
    ) -> bool {
        let KeyTurn { sums: KeySums { scores, .. }, tile, .. } = turn;
        let first = format!("{tile}, {}", self.tile.step);
        let first = made(asm, Class::Word, "mul.lo.s32", first);
        let gated = place.hide(asm, scores, (first, hidden));
        for j in 0..scores.wide {
            let shifts = shifts.pair(asm, j);
            for half in 0..2 {
                for (s, shift) in scores.pair(0, j, half).into_iter().zip(shifts) {
                    let p = self.functions.exponential(asm, s, shift);
                    asm.set(s, p);
                }
            }
        }
        gated
    }

    /// Cotangents of weights become those of scores.
    pub(super) fn move_weights(
        &self,
        asm: &mut Asm,
        turn: &KeyTurn<'_>,
        (mut deltas, gated): (RowPairs, bool),
    ) {
        let KeySums { scores, moved, .. } = turn.sums;
        for j in 0..scores.wide {
            let deltas = deltas.pair(asm, j);
            for half in 0..2 {
                let all = scores.pair(0, j, half).into_iter().zip(moved.pair(0, j, half));
                for ((p, ds), delta) in all.zip(deltas) {
                    score_cotangent(asm, (p, ds), delta);
                    if gated {
                        gate(asm, (p, ds));
                    }
                }
            }
        }
    }

    /// The weights of a stage, what they add to values, and the cotangents of its scores, of which some may be hidden. What is
    /// added to keys is of the stage `before`, where there is one, and is done in the meantime.
    fn move_rows(
        &self,
        emit: &mut Emit<'_>,
        turn: &KeyTurn<'_>,
        place: &ScorePlace<'_>,
        (dv, (ring, before, hidden)): (&Accumulators, (RingPlace, Option<RingPlace>, HiddenEnds)),
    ) {
        let KeyTurn { tiles, operands, sums, .. } = turn;
        let KeySums { scores, moved, weights, cotangents, .. } = sums;
        let dtype = self.form.dtype;
        let asm = &mut emit.asm;
        let dy = operands.dy.at(asm, &tiles.ring, ring).turned(asm);
        let numbers = self.numbers(asm, tiles, ring, place.column);
        let shifts = RowPairs::new(asm, (numbers, 0), scores.wide);
        wait(asm, 1 + i64::from(before.is_some()));
        let gated = self.weigh_rows(asm, turn, place, (shifts, hidden));
        if let Some(before) = before {
            wait(asm, 1);
            tiles.ring.release(asm, before.stage);
        }
        scores.round_to(asm, dtype, weights);
        fence(asm);
        multiply(asm, dtype, (dv, true), &LeftOperand::Rounded(weights), &dy);
        let deltas = RowPairs::new(asm, (numbers, self.tile.step * 4), scores.wide);
        wait(asm, 1);
        self.move_weights(asm, turn, (deltas, gated));
        // The weights are multiplied: their registers are free for the cotangents.
        wait(asm, 0);
        moved.round_to(asm, dtype, cotangents);
    }

    /// Where the calling thread reads the numbers of its columns in a stage.
    pub(super) fn numbers(
        &self,
        asm: &mut Asm,
        tiles: &KeyPanels,
        ring: RingPlace,
        column: Reg,
    ) -> Reg {
        let base = shared(asm, tiles.numbers);
        let own = asm.pure(Class::Word, "mad.lo.u32", format_args!("{column}, 4, {base}"));
        let args = format!("{}, {}, {own}", ring.stage, tiles.number_bytes);
        made(asm, Class::Word, "mad.lo.u32", args)
    }
}
