//! The tiles that a block has one after the other; where the depth is cut into runs, the parts of them.

use super::WarpgroupKernel;
use super::tile_place::{RunSteps, TilePlace};
use crate::gpu::ptx::asm::{Asm, Class, Reg, made};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::schedule::depth_runs::DepthRuns;
use crate::gpu::schedule::warpgroup_tile::MULTIPLIERS;

impl WarpgroupKernel<'_> {
    /// Does something for each tile of the block, which are a grid of blocks apart; where warpgroups alternate, for every
    /// other one.
    pub(super) fn each_tile(
        &self,
        emit: &mut Emit<'_>,
        alternates: bool,
        mut body: impl FnMut(&mut Emit<'_>, TilePlace),
    ) {
        if let Some(runs) = self.runs {
            return self.each_part(emit, runs, body);
        }
        let [batch, down, across] = self.tile.tiles(self.member);
        let all = batch.saturating_mul(down).saturating_mul(across);
        let all = all.saturating_mul(self.members.len() as i64);
        let cluster = self.tile.cluster;
        let all = all / cluster;
        let asm = &mut emit.asm;
        let [block, mut blocks] = ["ctaid.x", "nctaid.x"].map(|name| {
            let number = asm.special(name);
            asm.pure(Class::Word, "div.u32", format_args!("{number}, {cluster}"))
        });
        let number = emit.asm.copied(block);
        let (label, end) = (emit.asm.label(), emit.asm.label());
        if alternates {
            let group = self.group(&mut emit.asm);
            let asm = &mut emit.asm;
            asm.emit(format_args!("mad.lo.s32 {number}, {group}, {blocks}, {number}"));
            blocks = asm.pure(Class::Word, "mul.lo.s32", format_args!("{blocks}, {MULTIPLIERS}"));
            let none = made(asm, Class::Pred, "setp.ge.s32", format_args!("{number}, {all}"));
            asm.emit(format_args!("@{none} bra {end}"));
        }
        emit.asm.turn(&label);
        emit.asm.open();
        let place = self.place(&mut emit.asm, number);
        body(emit, place);
        emit.asm.close();
        emit.asm.emit(format_args!("add.s32 {number}, {number}, {blocks}"));
        let more = made(&mut emit.asm, Class::Pred, "setp.lt.s32", format_args!("{number}, {all}"));
        emit.asm.emit(format_args!("@{more} bra {label}"));
        emit.asm.place(&end);
    }

    /// Does something for each part of a tile that the block's runs have. Runs are a grid of blocks apart.
    fn each_part(
        &self,
        emit: &mut Emit<'_>,
        runs: DepthRuns,
        mut body: impl FnMut(&mut Emit<'_>, TilePlace),
    ) {
        let DepthRuns { steps, runs: count, .. } = runs;
        let all = runs.all();
        let asm = &mut emit.asm;
        let [block, blocks] = ["ctaid.x", "nctaid.x"].map(|name| asm.special(name));
        let run = asm.copied(block);
        let next_run = asm.label();
        asm.turn(&next_run);
        asm.open();
        let begin = made(asm, Class::Word, "mul.lo.s32", format_args!("{run}, {all}"));
        let end = made(asm, Class::Word, "add.s32", format_args!("{begin}, {all}"));
        let [begin, end] =
            [begin, end].map(|x| made(asm, Class::Word, "div.u32", format_args!("{x}, {count}")));
        let at = asm.copied(begin);
        let next_part = asm.label();
        asm.turn(&next_part);
        asm.open();
        let tile = made(asm, Class::Word, "div.u32", format_args!("{at}, {steps}"));
        let first = made(asm, Class::Word, "rem.u32", format_args!("{at}, {steps}"));
        let left = made(asm, Class::Word, "sub.s32", format_args!("{end}, {at}"));
        let last = made(asm, Class::Word, "add.s32", format_args!("{first}, {left}"));
        let last = made(asm, Class::Word, "min.s32", format_args!("{last}, {steps}"));
        // The first run of the tile leaves its part 0.
        let args = format!("{tile}, {}, {}", steps * count, count - 1);
        let before = made(asm, Class::Word, "mad.lo.s32", args);
        let before = made(asm, Class::Word, "div.u32", format_args!("{before}, {all}"));
        let part = made(asm, Class::Word, "sub.s32", format_args!("{run}, {before}"));
        let run_steps = RunSteps { first, end: last, part };
        let place = TilePlace { run: Some(run_steps), ..self.place(asm, tile) };
        body(emit, place);
        let asm = &mut emit.asm;
        asm.emit(format_args!("sub.s32 {at}, {at}, {first}"));
        asm.emit(format_args!("add.s32 {at}, {at}, {last}"));
        let more = made(asm, Class::Pred, "setp.lt.s32", format_args!("{at}, {end}"));
        asm.close();
        asm.emit(format_args!("@{more} bra {next_part}"));
        asm.emit(format_args!("add.s32 {run}, {run}, {blocks}"));
        let more = made(asm, Class::Pred, "setp.lt.s32", format_args!("{run}, {count}"));
        asm.close();
        asm.emit(format_args!("@{more} bra {next_run}"));
    }

    /// Where the tile of a number is. Tiles go down the rows of a band, then to the next column of tiles; those of a cluster,
    /// which lie below each other, count as one. Blocks that run at the same time share rows and columns.
    fn place(&self, asm: &mut Asm, number: Reg) -> TilePlace {
        let [batches, down, across] = self.tile.tiles(self.member);
        let down = down / self.tile.cluster;
        let band = self.tile.band.min(down);
        let divided = |asm: &mut Asm, x: Reg, by: i64| {
            let whole = made(asm, Class::Word, "div.u32", format_args!("{x}, {by}"));
            let rest = made(asm, Class::Word, "rem.u32", format_args!("{x}, {by}"));
            (whole, rest)
        };
        let (member, number) = match self.members.len() {
            1 => (None, number),
            _ => {
                let (member, rest) = divided(asm, number, batches * down * across);
                (Some(member), rest)
            }
        };
        let (batch, rest) = divided(asm, number, down * across);
        let (group, rest) = divided(asm, rest, band * across);
        let first = made(asm, Class::Word, "mul.lo.s32", format_args!("{group}, {band}"));
        // The last band may have fewer rows.
        let rows = made(asm, Class::Word, "sub.s32", format_args!("{down}, {first}"));
        let rows = made(asm, Class::Word, "min.s32", format_args!("{rows}, {band}"));
        let col = made(asm, Class::Word, "div.u32", format_args!("{rest}, {rows}"));
        let row = made(asm, Class::Word, "rem.u32", format_args!("{rest}, {rows}"));
        let row = made(asm, Class::Word, "add.s32", format_args!("{row}, {first}"));
        let [rows, cols] = self.tile.side;
        let row = match self.tile.cluster {
            1 => row,
            cluster => {
                let rank = asm.special("cluster_ctarank");
                made(asm, Class::Word, "mad.lo.s32", format_args!("{row}, {cluster}, {rank}"))
            }
        };
        let row = made(asm, Class::Word, "mul.lo.s32", format_args!("{row}, {rows}"));
        let col = made(asm, Class::Word, "mul.lo.s32", format_args!("{col}, {cols}"));
        TilePlace { member, batch, first: [row, col], run: None }
    }
}
