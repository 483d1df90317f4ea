//! The way back to queries by warpgroups: each owns 64 rows. While the scores of a tile of keys become weights, what the tile
//! before gives is added.

use super::backward_queries::RowNumbers;
use super::group_products::{LeftOperand, PanelOperand, fence, multiply, wait};
use super::panels::{PanelCopy, PanelTile, TileRing, copy_own, wait_once};
use super::scores::{ScoreLines, ScorePlace};
use super::tile::{Accumulators, HiddenEnds, made};
use super::tile_range::{TilePart, TileRange};
use super::{AttendPass, gate, score_cotangent};
use crate::gpu::ptx::asm::{Asm, Class, Reg};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::ptx::mbarrier::RingPlace;
use crate::gpu::schedule::attention::AttentionForm;

/// Queries and cotangents of results of the rows that the block owns, and stages of keys and values.
struct QueryPanels {
    q: PanelTile,
    dy: PanelTile,
    k: PanelTile,
    v: PanelTile,
    ring: TileRing,
    /// Bytes before the barrier of what the block owns.
    own: i64,
}

impl QueryPanels {
    fn new(pass: &AttendPass<'_>) -> QueryPanels {
        let AttentionForm { depth, width, .. } = *pass.form;
        let (own, step, stages) = (pass.tile.own, pass.tile.step, pass.tile.stages);
        let tile = |at, lines, elements| PanelTile { at, lines, elements };
        let q = tile(0, own, depth);
        let dy = tile(q.end(), own, width);
        let k = tile(dy.end(), step, depth);
        let v = tile(k.end(), step, width);
        let barriers = k.at + stages * (k.bytes() + v.bytes());
        let ring = TileRing::new(barriers, stages, &[k, v]);
        QueryPanels { q, dy, k, v, ring, own: ring.end() }
    }
}

/// Operands of a warpgroup, in the first stage.
struct QueryOperands {
    q: PanelOperand,
    dy: PanelOperand,
    k: PanelOperand,
    v: PanelOperand,
}

/// What a warpgroup sums, and what it has of a tile.
struct QuerySums {
    dq: Accumulators,
    scores: Accumulators,
    moved: Accumulators,
    cotangents: Vec<[Reg; 4]>,
    /// The tile of keys.
    tile: Reg,
}

/// What all turns of a warpgroup have.
struct QueryTurn<'a> {
    tiles: &'a QueryPanels,
    operands: &'a QueryOperands,
    sums: &'a QuerySums,
    place: &'a ScorePlace<'a>,
    numbers: &'a RowNumbers,
}

impl AttendPass<'_> {
    /// Cotangents of queries, and of scores where they are wanted; `each` blocks have the rows of a head.
    pub(super) fn queries_by_groups(&self, emit: &mut Emit<'_>, each: i64) {
        let form = self.form;
        let (head, first) = self.block(&mut emit.asm, each, form.is_limited());
        let range = self.tiles(&mut emit.asm, first, form.has_bias_grad()).some(&mut emit.asm);
        let tiles = QueryPanels::new(self);
        self.init(emit, tiles.own, |asm| {
            tiles.ring.init(asm, [1, self.tile.warps]);
        });
        self.by_roles(
            emit,
            |emit| self.copy_keys_and_values(emit, &tiles, &range, [head, first]),
            |emit| self.sum_keys(emit, &tiles, &range, [head, first]),
        );
    }

    /// Asks for what the block owns, and for keys and values tile after tile.
    fn copy_keys_and_values(
        &self,
        emit: &mut Emit<'_>,
        tiles: &QueryPanels,
        range: &TileRange,
        [head, first]: [Reg; 2],
    ) {
        let (form, step) = (self.form, self.tile.step);
        let [q, k, v, _, dy, ..] = form.step.inputs[..] else { return };
        let group = self.group_of(&mut emit.asm, head);
        let q = PanelCopy::of_rows(emit, tiles.q, (q, form), head);
        let dy = PanelCopy::of_rows(emit, tiles.dy, (dy, form), head);
        let k = PanelCopy::of_keys(emit, tiles.k, (k, form), group);
        let v = PanelCopy::of_keys(emit, tiles.v, (v, form), group);
        let one = self.is_copier(&mut emit.asm);
        emit.when(Some(one), |emit| {
            let asm = &mut emit.asm;
            copy_own(asm, tiles.own, &[&q, &dy], first);
            let at = RingPlace::begin(asm);
            let tile = asm.copied(range.begin);
            let label = asm.label();
            asm.turn(&label);
            asm.open();
            tiles.ring.wait_empty(asm, at);
            let line = made(asm, Class::Word, "mul.lo.s32", format_args!("{tile}, {step}"));
            tiles.ring.fill(asm, at, &[&k, &v], line);
            tiles.ring.advance(asm, at);
            asm.emit(format_args!("add.s32 {tile}, {tile}, 1"));
            asm.close();
            let more = format!("{tile}, {}", range.end);
            let more = made(asm, Class::Pred, "setp.lt.s32", more);
            asm.emit(format_args!("@{more} bra {label}"));
        });
    }

    /// Sums what keys give, tile after tile.
    fn sum_keys(
        &self,
        emit: &mut Emit<'_>,
        tiles: &QueryPanels,
        range: &TileRange,
        [head, first]: [Reg; 2],
    ) {
        let (form, step) = (self.form, self.tile.step);
        let AttentionForm { rows, depth, .. } = *form;
        let [_, _, _, lse, _, delta, ..] = form.step.inputs[..] else { return };
        let place = ScorePlace::new(&mut emit.asm, form, (ScoreLines::Rows, self.tile), first);
        let place = place.at_head(emit, head);
        let numbers = self.row_numbers(emit, &place, head, [lse, delta]);
        let asm = &mut emit.asm;
        let operands = QueryOperands {
            q: PanelOperand::own(asm, tiles.q),
            dy: PanelOperand::own(asm, tiles.dy),
            k: PanelOperand::whole(asm, tiles.k),
            v: PanelOperand::whole(asm, tiles.v),
        };
        let sums = QuerySums {
            dq: Accumulators::zeros(asm, 1, AttentionForm::padded(depth)),
            scores: Accumulators::fresh(asm, 1, step),
            moved: Accumulators::fresh(asm, 1, step),
            cotangents: Accumulators::units(asm, step),
            tile: asm.copied(range.begin),
        };
        let ring = RingPlace::begin(asm);
        let turn =
            QueryTurn { tiles, operands: &operands, sums: &sums, place: &place, numbers: &numbers };
        wait_once(asm, tiles.own);
        self.begin_keys(asm, &turn, ring);
        self.weigh_keys(emit, &turn, (0, range.hidden()));
        let asm = &mut emit.asm;
        sums.moved.round_to(asm, form.dtype, &sums.cotangents);
        let before = RingPlace { stage: asm.copied(ring.stage), ..ring };
        for TilePart { to, hidden, .. } in range.parts() {
            self.go_up(emit, &turn, ([before, ring], to), hidden);
        }
        let asm = &mut emit.asm;
        fence(asm);
        self.add_keys(asm, &turn, before);
        wait(asm, 0);
        let at = self.head_at(emit, form.step.outputs[0], head, rows, depth * 2);
        self.store(emit, &sums.dq, (at, depth, rows), &place);
    }

    /// Goes on to tiles before one, which are hidden at the same ends.
    fn go_up(
        &self,
        emit: &mut Emit<'_>,
        turn: &QueryTurn<'_>,
        ([before, ring], to): ([RingPlace; 2], Reg),
        hidden: HiddenEnds,
    ) {
        let QueryTurn { tiles, sums, .. } = turn;
        let asm = &mut emit.asm;
        let (label, end) = (asm.label(), asm.label());
        let last = made(asm, Class::Word, "sub.s32", format_args!("{to}, 1"));
        let done = made(asm, Class::Pred, "setp.ge.s32", format_args!("{}, {last}", sums.tile));
        asm.emit(format_args!("@{done} bra {end}"));
        asm.turn(&label);
        asm.open();
        asm.emit(format_args!("add.s32 {0}, {0}, 1", sums.tile));
        tiles.ring.advance(asm, ring);
        self.begin_keys(asm, turn, ring);
        self.add_keys(asm, turn, before);
        self.weigh_keys(emit, turn, (1, hidden));
        let asm = &mut emit.asm;
        wait(asm, 0);
        tiles.ring.release(asm, before.stage);
        asm.set(before.stage, ring.stage);
        sums.moved.round_to(asm, self.form.dtype, &sums.cotangents);
        asm.close();
        let more = made(asm, Class::Pred, "setp.lt.s32", format_args!("{}, {last}", sums.tile));
        asm.emit(format_args!("@{more} bra {label}"));
        asm.place(&end);
    }

    /// Begins the scores of a stage, and what moves its weights.
    fn begin_keys(&self, asm: &mut Asm, turn: &QueryTurn<'_>, ring: RingPlace) {
        let QueryTurn { tiles, operands, sums, .. } = turn;
        let dtype = self.form.dtype;
        tiles.ring.wait_full(asm, ring);
        let [k, v] = [operands.k, operands.v].map(|tile| tile.at(asm, &tiles.ring, ring));
        fence(asm);
        multiply(asm, dtype, (&sums.scores, false), &LeftOperand::Shared(&operands.q), &k);
        multiply(asm, dtype, (&sums.moved, false), &LeftOperand::Shared(&operands.dy), &v);
    }

    /// Begins to add what the keys of a stage give.
    fn add_keys(&self, asm: &mut Asm, turn: &QueryTurn<'_>, ring: RingPlace) {
        let QueryTurn { tiles, operands, sums, .. } = turn;
        let k = operands.k.at(asm, &tiles.ring, ring).turned(asm);
        let left = LeftOperand::Rounded(&sums.cotangents);
        multiply(asm, self.form.dtype, (&sums.dq, true), &left, &k);
    }

    /// The cotangents of a stage's scores, of which some may be hidden; `after` products were begun after those that it
    /// waits for.
    fn weigh_keys(
        &self,
        emit: &mut Emit<'_>,
        turn: &QueryTurn<'_>,
        (after, hidden): (i64, HiddenEnds),
    ) {
        let QueryTurn { sums, place, numbers, .. } = turn;
        let QuerySums { scores, moved, tile, .. } = sums;
        let asm = &mut emit.asm;
        wait(asm, after + 1);
        let key = made(asm, Class::Word, "mul.lo.s32", format_args!("{tile}, {}", self.tile.step));
        let gated = place.hide(asm, scores, (key, hidden));
        for (half, &shift) in numbers.shifts[0].iter().enumerate() {
            for s in (0..scores.wide).flat_map(|j| scores.pair(0, j, half)) {
                let p = self.functions.exponential(asm, s, shift);
                asm.set(s, p);
            }
        }
        wait(asm, after);
        for (half, &delta) in numbers.deltas[0].iter().enumerate() {
            let pairs = |j| scores.pair(0, j, half).into_iter().zip(moved.pair(0, j, half));
            for (p, ds) in (0..scores.wide).flat_map(pairs) {
                score_cotangent(asm, (p, ds), delta);
                if gated {
                    gate(asm, (p, ds));
                }
            }
        }
        if place.score_cotangents.is_some() {
            self.store_scores(emit, moved, place, key);
        }
    }
}
