//! The way there by warpgroups: while one tile of values is weighed, the scores of the next are computed, and warpgroups take
//! turns, so that one computes exponentials while another multiplies. Tiles descend: those that are partly hidden come first.

use super::AttendPass;
use super::forward::RunningSums;
use super::group_products::{LeftOperand, PanelOperand, fence, group, multiply, wait};
use super::panels::{PanelCopy, PanelTile, TileRing, copy_own, group_barrier, wait_once};
use super::scores::{ScoreLines, ScorePlace};
use super::tile::{Accumulators, HiddenEnds, made};
use super::tile_range::{TilePart, TileRange};
use crate::gpu::ptx::asm::{Asm, Class, Reg};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::ptx::mbarrier::RingPlace;
use crate::gpu::schedule::attention::AttentionForm;
use crate::gpu::schedule::warpgroup_tile::GROUP;

/// Queries that the block owns, and stages of keys and of values.
struct ValuePanels {
    q: PanelTile,
    k: PanelTile,
    v: PanelTile,
    keys: TileRing,
    values: TileRing,
    /// Bytes before the barrier of the queries.
    own: i64,
}

impl ValuePanels {
    fn new(pass: &AttendPass<'_>) -> ValuePanels {
        let AttentionForm { depth, width, .. } = *pass.form;
        let (own, step, stages) = (pass.tile.own, pass.tile.step, pass.tile.stages);
        let tile = |at, lines, elements| PanelTile { at, lines, elements };
        let q = tile(0, own, depth);
        let k = tile(q.end(), step, depth);
        let v = tile(k.at + stages * k.bytes(), step, width);
        let keys = TileRing::new(v.at + stages * v.bytes(), stages, &[k]);
        let values = TileRing::new(keys.end(), stages, &[v]);
        ValuePanels { q, k, v, keys, values, own: values.end() }
    }
}

/// Operands of a warpgroup, in the first stages.
struct ValueOperands {
    q: PanelOperand,
    k: PanelOperand,
    v: PanelOperand,
}

/// What all turns of a warpgroup have.
struct ValueTurn<'a> {
    tiles: &'a ValuePanels,
    operands: &'a ValueOperands,
    values: &'a Accumulators,
    scores: &'a Accumulators,
    weights: &'a [[Reg; 4]],
    sums: &'a RunningSums,
    place: &'a ScorePlace<'a>,
    /// Of keys and of values.
    rings: [RingPlace; 2],
    tile: Reg,
}

impl AttendPass<'_> {
    /// Weighed values; `each` blocks have the rows of a head.
    pub(super) fn values_by_groups(&self, emit: &mut Emit<'_>, each: i64) {
        let (head, first) = self.block(&mut emit.asm, each, self.form.is_limited());
        let range = self.tiles(&mut emit.asm, first, false).some(&mut emit.asm);
        let tiles = ValuePanels::new(self);
        self.init(emit, tiles.own, |asm| {
            tiles.keys.init(asm, [1, self.tile.warps]);
            tiles.values.init(asm, [1, self.tile.warps]);
        });
        self.by_roles(
            emit,
            |emit| self.copy_keys(emit, &tiles, &range, [head, first]),
            |emit| self.weigh_tiles(emit, &tiles, &range, [head, first]),
        );
    }

    /// Asks for queries, and for keys and values tile after tile.
    fn copy_keys(
        &self,
        emit: &mut Emit<'_>,
        tiles: &ValuePanels,
        range: &TileRange,
        [head, first]: [Reg; 2],
    ) {
        let (form, step) = (self.form, self.tile.step);
        let group = self.group_of(&mut emit.asm, head);
        let [q, k, v, ..] = form.step.inputs[..] else { return };
        let q = PanelCopy::of_rows(emit, tiles.q, (q, form), head);
        let k = PanelCopy::of_keys(emit, tiles.k, (k, form), group);
        let v = PanelCopy::of_keys(emit, tiles.v, (v, form), group);
        let one = self.is_copier(&mut emit.asm);
        emit.when(Some(one), |emit| {
            let asm = &mut emit.asm;
            copy_own(asm, tiles.own, &[&q], first);
            let at = RingPlace::begin(asm);
            let tile = asm.copied(range.end);
            let label = asm.label();
            asm.turn(&label);
            asm.open();
            asm.emit(format_args!("sub.s32 {tile}, {tile}, 1"));
            let line = made(asm, Class::Word, "mul.lo.s32", format_args!("{tile}, {step}"));
            for (ring, copy) in [(&tiles.keys, &k), (&tiles.values, &v)] {
                ring.wait_empty(asm, at);
                ring.fill(asm, at, &[copy], line);
            }
            tiles.keys.advance(asm, at);
            asm.close();
            let more = format!("{tile}, {}", range.begin);
            let more = made(asm, Class::Pred, "setp.gt.s32", more);
            asm.emit(format_args!("@{more} bra {label}"));
        });
    }

    fn weigh_tiles(
        &self,
        emit: &mut Emit<'_>,
        tiles: &ValuePanels,
        range: &TileRange,
        [head, first]: [Reg; 2],
    ) {
        let (form, step) = (self.form, self.tile.step);
        let place = ScorePlace::new(&mut emit.asm, form, (ScoreLines::Rows, self.tile), first)
            .at_head(emit, head);
        let asm = &mut emit.asm;
        let operands = ValueOperands {
            q: PanelOperand::own(asm, tiles.q),
            k: PanelOperand::whole(asm, tiles.k),
            v: PanelOperand::whole(asm, tiles.v),
        };
        let values = Accumulators::zeros(asm, 1, AttentionForm::padded(form.width));
        let scores = Accumulators::fresh(asm, 1, step);
        let weights = Accumulators::units(asm, step);
        let sums = RunningSums::new(asm, 1);
        let [of_keys, of_values] = [0; 2].map(|_| RingPlace::begin(asm));
        let tile = made(asm, Class::Word, "sub.s32", format_args!("{}, 1", range.end));
        let turn = ValueTurn {
            tiles,
            operands: &operands,
            values: &values,
            scores: &scores,
            weights: &weights,
            sums: &sums,
            place: &place,
            rings: [of_keys, of_values],
            tile,
        };
        wait_once(asm, tiles.own);
        tiles.keys.wait_full(asm, of_keys);
        fence(asm);
        self.begin_scores(asm, &turn);
        wait(asm, 0);
        self.weigh_tile(emit, &turn, range.hidden());
        let asm = &mut emit.asm;
        tiles.keys.release(asm, of_keys.stage);
        tiles.keys.advance(asm, of_keys);
        scores.round_to(asm, form.dtype, &weights);
        self.begin_turns(asm);
        for TilePart { from, hidden, .. } in range.parts().rev() {
            self.go_down(emit, &turn, from, hidden);
        }
        let asm = &mut emit.asm;
        tiles.values.wait_full(asm, of_values);
        fence(asm);
        self.begin_values(asm, &turn);
        wait(asm, 0);
        self.finish(emit, (&sums, &values), &place, head);
    }

    /// Goes on to lower tiles, down to one, which are hidden at the same ends.
    fn go_down(&self, emit: &mut Emit<'_>, turn: &ValueTurn<'_>, to: Reg, hidden: HiddenEnds) {
        let ValueTurn { tiles, values, scores, weights, rings: [of_keys, of_values], tile, .. } =
            *turn;
        let asm = &mut emit.asm;
        let (label, end) = (asm.label(), asm.label());
        let done = made(asm, Class::Pred, "setp.le.s32", format_args!("{tile}, {to}"));
        asm.emit(format_args!("@{done} bra {end}"));
        asm.turn(&label);
        asm.open();
        asm.emit(format_args!("sub.s32 {tile}, {tile}, 1"));
        // These values were asked for before those keys.
        tiles.values.wait_full(asm, of_values);
        tiles.keys.wait_full(asm, of_keys);
        self.take_turn(asm);
        fence(asm);
        self.begin_scores(asm, turn);
        self.begin_values(asm, turn);
        self.hand_turn(asm);
        wait(asm, 1);
        tiles.keys.release(asm, of_keys.stage);
        tiles.keys.advance(asm, of_keys);
        let scales = self.weigh_tile(emit, turn, hidden);
        let asm = &mut emit.asm;
        wait(asm, 0);
        tiles.values.release(asm, of_values.stage);
        tiles.values.advance(asm, of_values);
        values.scale(asm, &scales);
        scores.round_to(asm, self.form.dtype, weights);
        asm.close();
        let more = made(asm, Class::Pred, "setp.gt.s32", format_args!("{tile}, {to}"));
        asm.emit(format_args!("@{more} bra {label}"));
        asm.place(&end);
    }

    /// Begins the scores of a tile.
    fn begin_scores(&self, asm: &mut Asm, turn: &ValueTurn<'_>) {
        let k = turn.operands.k.at(asm, &turn.tiles.keys, turn.rings[0]);
        let q = LeftOperand::Shared(&turn.operands.q);
        multiply(asm, self.form.dtype, (turn.scores, false), &q, &k);
    }

    /// Begins to add the weighed values of a tile.
    fn begin_values(&self, asm: &mut Asm, turn: &ValueTurn<'_>) {
        let v = turn.operands.v.at(asm, &turn.tiles.values, turn.rings[1]).turned(asm);
        let weights = LeftOperand::Rounded(turn.weights);
        multiply(asm, self.form.dtype, (turn.values, true), &weights, &v);
    }

    /// Scores of a tile become weights; what scales the sums so far.
    fn weigh_tile(
        &self,
        emit: &mut Emit<'_>,
        turn: &ValueTurn<'_>,
        hidden: HiddenEnds,
    ) -> Vec<[Reg; 2]> {
        let asm = &mut emit.asm;
        let first = format!("{}, {}", turn.tile, self.tile.step);
        let first = made(asm, Class::Word, "mul.lo.s32", first);
        turn.place.hide(asm, turn.scores, (first, hidden));
        turn.sums.weigh(emit, self.functions, turn.scores)
    }

    /// The last warpgroup lets the first one begin.
    fn begin_turns(&self, asm: &mut Asm) {
        let groups = self.tile.groups();
        if groups > 1 {
            let group = group(asm);
            let label = asm.label();
            let last =
                asm.pure(Class::Pred, "setp.ne.s32", format_args!("{group}, {}", groups - 1));
            asm.emit(format_args!("@{last} bra {label}"));
            asm.emit(format_args!("bar.arrive 1, {}", 2 * GROUP));
            asm.place(&label);
        }
    }

    /// Waits until it is the warpgroup's turn to begin products.
    fn take_turn(&self, asm: &mut Asm) {
        if self.tile.groups() > 1 {
            let group = group(asm);
            group_barrier(asm, "sync", group, 2 * GROUP);
        }
    }

    /// Lets the next warpgroup begin products.
    fn hand_turn(&self, asm: &mut Asm) {
        let groups = self.tile.groups();
        if groups > 1 {
            let group = group(asm);
            let last =
                asm.pure(Class::Pred, "setp.eq.s32", format_args!("{group}, {}", groups - 1));
            let next = asm.pure(Class::Word, "add.u32", format_args!("{group}, 1"));
            let next = asm.pure(Class::Word, "selp.b32", format_args!("0, {next}, {last}"));
            group_barrier(asm, "arrive", next, 2 * GROUP);
        }
    }
}
