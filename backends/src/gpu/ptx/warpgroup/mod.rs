//! Products by warpgroups: one warp asks the copy engine for tiles of the operands, two warpgroups multiply them (`wgmma`).
//!
//! A block has a multiprocessor to itself and takes tile after tile. Copies of the next tile begin while the sums of one are
//! finished, which are in registers alone. The order of sums is fixed: depth ascends, and each sum has one owner.

mod copies;
mod epilogue;
mod multiply;
mod ring;
mod sums;

use super::asm::{Asm, Class, Reg, made};
use super::emit::Emit;
use super::entry::{Out, begun};
use super::mbarrier::RingPlace;
use crate::gpu::schedule::mapped_operand::LINE;
use crate::gpu::schedule::program::GpuSchedule;
use crate::gpu::schedule::warpgroup::{
    GROUP, MULTIPLIERS, TileOrder, WarpgroupForm, WarpgroupMember, WarpgroupProduct, WarpgroupTile,
};
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::{Buffer, Member};
use ring::Ring;
use sums::Sums;

/// Registers of a thread that asks for copies, and of one that multiplies; a warpgroup each and two of 128 threads have no
/// more than a multiprocessor's 65,536 together.
const FEW_REGISTERS: i64 = 40;
const MANY_REGISTERS: i64 = 232;

/// What one launch knows: of one of its products, and which others there are.
struct WarpgroupKernel<'p> {
    member: &'p Member,
    form: &'p WarpgroupForm,
    tile: &'p WarpgroupTile,
    /// For each sink that adds up columns, where its parts go.
    parts: &'p [Option<Buffer>],
    /// All products of the launch, of equal extents.
    members: &'p [WarpgroupMember],
}

/// Which tile: its product, where there are several, its place in the batch, its first row and its first column.
#[derive(Clone, Copy)]
struct TilePlace {
    member: Option<Reg>,
    batch: Reg,
    first: [Reg; 2],
}

/// Launches products in one grid.
pub(crate) fn product(
    s: &GpuSchedule,
    out: &mut Out,
    product: &WarpgroupProduct,
) -> Result<(), Diagnostic> {
    let WarpgroupProduct { work, tile } = product;
    let Some(first) = work.members.first() else { return Ok(()) };
    let kernel = WarpgroupKernel::of(first, tile, &work.members);
    let mut emit = begun(s);
    kernel.write(&mut emit);
    let blocks =
        tile.tiles(&first.member).into_iter().fold(work.members.len() as i64, i64::saturating_mul);
    let shared = u32::try_from(tile.shared()).unwrap_or(u32::MAX);
    out.launch(&s.homes, emit, blocks, tile.grid(), shared)?;
    if let Some(launch) = out.launches.last_mut() {
        launch.resident = Some(1);
        launch.cluster = u32::try_from(tile.cluster).unwrap_or(1);
    }
    Ok(())
}

impl<'p> WarpgroupKernel<'p> {
    fn of(
        one: &'p WarpgroupMember,
        tile: &'p WarpgroupTile,
        members: &'p [WarpgroupMember],
    ) -> WarpgroupKernel<'p> {
        let WarpgroupMember { member, form, parts } = one;
        WarpgroupKernel { member, form, tile, parts, members }
    }

    fn write(&self, emit: &mut Emit<'_>) {
        emit.asm.cluster = self.tile.cluster;
        let ring = Ring::new(emit, self.tile);
        let asm = &mut emit.asm;
        let thread = asm.special("tid.x");
        let multiplies = asm.pure(Class::Pred, "setp.ge.u32", format_args!("{thread}, {GROUP}"));
        let (multiply, end) = (asm.label(), asm.label());
        asm.emit(format_args!("@{multiplies} bra {multiply}"));
        asm.open();
        asm.emit(format_args!("setmaxnreg.dec.sync.aligned.u32 {FEW_REGISTERS}"));
        let idle = asm.pure(Class::Pred, "setp.ne.s32", format_args!("{thread}, 0"));
        asm.emit(format_args!("@{idle} bra {end}"));
        self.copies(emit, &ring);
        let asm = &mut emit.asm;
        asm.emit(format_args!("bra {end}"));
        asm.close();
        asm.place(&multiply);
        asm.open();
        asm.emit(format_args!("setmaxnreg.inc.sync.aligned.u32 {MANY_REGISTERS}"));
        self.multiplies(emit, &ring);
        emit.asm.close();
        emit.asm.place(&end);
        // A block's shared memory is there until no other block writes to it.
        ring.meet(&mut emit.asm);
    }

    /// Steps of the depth of a term.
    fn term_steps(&self) -> i64 {
        let deep = LINE / self.form.dtype.bytes() as i64;
        (self.form.depth + deep - 1) / deep
    }

    /// Steps of the depth of all terms.
    fn steps(&self) -> i64 {
        self.term_steps() * self.form.terms() as i64
    }

    /// Asks for the operands of tile after tile.
    fn copies(&self, emit: &mut Emit<'_>, ring: &Ring) {
        let at = RingPlace::begin(&mut emit.asm);
        self.each_tile(emit, false, |emit, place| {
            let operands = self.coordinates(emit, place);
            let zero = emit.asm.word(0);
            let step = emit.asm.copied(zero);
            let label = emit.asm.label();
            emit.asm.turn(&label);
            emit.asm.open();
            ring.wait_empty(&mut emit.asm, &at);
            ring.expect(&mut emit.asm, &at);
            self.copy(emit, ring, &at, &operands, step);
            ring.advance(&mut emit.asm, &at);
            emit.asm.emit(format_args!("add.s32 {step}, {step}, 1"));
            emit.asm.close();
            let more = format!("{step}, {}", self.steps());
            let more = made(&mut emit.asm, Class::Pred, "setp.lt.s32", more);
            emit.asm.emit(format_args!("@{more} bra {label}"));
        });
    }

    /// Multiplies tile after tile, and finishes the sums.
    fn multiplies(&self, emit: &mut Emit<'_>, ring: &Ring) {
        let at = RingPlace::begin(&mut emit.asm);
        let alternates = self.tile.order == TileOrder::PingPong;
        if alternates {
            // The first tile is the other warpgroup's.
            let group = self.group(&mut emit.asm);
            let second = format!("{group}, 0");
            let second = emit.asm.pure(Class::Pred, "setp.ne.s32", second);
            emit.when(Some(second), |emit| ring.skip(&mut emit.asm, &at, self.steps()));
        }
        let group = self.group(&mut emit.asm);
        let first = emit.asm.pure(Class::Word, "xor.b32", format_args!("{group}, 1"));
        let turns = emit.asm.copied(first);
        let sums = Sums::new(&mut emit.asm, self.tile);
        let operands = self.descriptors(emit, ring);
        self.each_tile(emit, alternates, |emit, place| {
            let asm = &mut emit.asm;
            let zero = asm.word(0);
            let (step, before) = (asm.copied(zero), asm.copied(zero));
            if alternates {
                ring.wait_turn(asm, group, turns);
            }
            let label = asm.label();
            asm.turn(&label);
            asm.open();
            ring.wait_full(asm, &at);
            let later = made(asm, Class::Pred, "setp.ne.s32", format_args!("{step}, 0"));
            asm.emit("wgmma.fence.sync.aligned");
            self.multiply(asm, &sums, operands, &at, later);
            asm.emit("wgmma.commit_group.sync.aligned");
            // The step before is done, and its stage is free.
            asm.emit("wgmma.wait_group.sync.aligned 1");
            ring.release(asm, before, Some(later));
            asm.set(before, at.stage);
            ring.advance(asm, &at);
            asm.emit(format_args!("add.s32 {step}, {step}, 1"));
            asm.close();
            let more = format!("{step}, {}", self.steps());
            let more = made(asm, Class::Pred, "setp.lt.s32", more);
            asm.emit(format_args!("@{more} bra {label}"));
            if alternates {
                ring.hand_turn(asm, group);
            }
            asm.emit("wgmma.wait_group.sync.aligned 0");
            ring.release(asm, before, None);
            if alternates {
                ring.skip(asm, &at, self.steps());
            }
            self.finish_own(emit, &sums, place);
        });
    }

    /// Finishes the sums of a tile as its product says.
    fn finish_own(&self, emit: &mut Emit<'_>, sums: &Sums, place: TilePlace) {
        let Some(number) = place.member else { return self.finish(emit, sums, place) };
        for (k, one) in self.members.iter().enumerate() {
            let own = format!("{number}, {k}");
            let own = made(&mut emit.asm, Class::Pred, "setp.eq.s32", own);
            let kernel = WarpgroupKernel::of(one, self.tile, self.members);
            emit.when(Some(own), |emit| kernel.finish(emit, sums, place));
        }
    }

    /// The number of a thread's warpgroup among those that multiply.
    fn group(&self, asm: &mut Asm) -> Reg {
        let thread = asm.special("tid.x");
        let group = asm.pure(Class::Word, "div.u32", format_args!("{thread}, {GROUP}"));
        asm.pure(Class::Word, "sub.u32", format_args!("{group}, 1"))
    }

    /// Does something for each tile of the block, which are a grid of blocks apart; where warpgroups alternate, for every
    /// other one.
    fn each_tile(
        &self,
        emit: &mut Emit<'_>,
        alternates: bool,
        mut body: impl FnMut(&mut Emit<'_>, TilePlace),
    ) {
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
        TilePlace { member, batch, first: [row, col] }
    }
}
