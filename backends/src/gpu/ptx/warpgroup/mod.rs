//! Products by warpgroups: one warp asks the copy engine for tiles of the operands, two warpgroups multiply them (`wgmma`).
//!
//! A block has a multiprocessor to itself and takes tile after tile. Copies of the next tile begin while the sums of one are
//! finished, which are in registers alone. The order of sums is fixed: depth ascends, and each sum has one owner.

mod alike;
mod copies;
mod epilogue;
mod multiply;
mod ring;
mod sums;
mod tile_place;
mod tile_turns;

use super::asm::{Asm, Class, Reg, made};
use super::emit::Emit;
use super::entry::{Out, begun};
use super::mbarrier::RingPlace;
use crate::gpu::schedule::depth_runs::DepthRuns;
use crate::gpu::schedule::program::GpuSchedule;
use crate::gpu::schedule::warpgroup::{WarpgroupMember, WarpgroupProduct};
use crate::gpu::schedule::warpgroup_form::WarpgroupForm;
use crate::gpu::schedule::warpgroup_tile::{GROUP, TileOrder, WarpgroupTile};
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::{Buffer, Member};
use alike::alike;
use ring::Ring;
use sums::Sums;
use tile_place::TilePlace;

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
    /// How the steps of all tiles are cut into runs, where they are.
    runs: Option<DepthRuns>,
}

/// Launches products in one grid.
pub(crate) fn product(
    s: &GpuSchedule,
    out: &mut Out,
    product: &WarpgroupProduct,
) -> Result<(), Diagnostic> {
    let WarpgroupProduct { members, tile, runs, .. } = product;
    let Some(first) = members.first() else { return Ok(()) };
    let kernel = WarpgroupKernel::of(first, tile, (members, *runs));
    let mut emit = begun(s, out);
    kernel.write(&mut emit);
    let blocks = runs.map_or_else(|| tile.all_tiles(&product.products()), |runs| runs.runs);
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
        (members, runs): (&'p [WarpgroupMember], Option<DepthRuns>),
    ) -> WarpgroupKernel<'p> {
        let WarpgroupMember { member, form, parts } = one;
        WarpgroupKernel { member, form, tile, parts, members, runs }
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

    /// Asks for the operands of tile after tile.
    fn copies(&self, emit: &mut Emit<'_>, ring: &Ring) {
        let at = RingPlace::begin(&mut emit.asm);
        self.each_tile(emit, false, |emit, place| {
            let operands = self.coordinates(emit, place);
            let first = place.first_step(&mut emit.asm);
            let step = emit.asm.copied(first);
            let label = emit.asm.label();
            emit.asm.turn(&label);
            emit.asm.open();
            ring.wait_empty(&mut emit.asm, &at);
            ring.expect(&mut emit.asm, &at);
            self.copy(emit, ring, &at, &operands, step);
            ring.advance(&mut emit.asm, &at);
            emit.asm.emit(format_args!("add.s32 {step}, {step}, 1"));
            emit.asm.close();
            let more = place.has_step(&mut emit.asm, step, self.form.steps());
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
            emit.when(Some(second), |emit| ring.skip(&mut emit.asm, &at, self.form.steps()));
        }
        let group = self.group(&mut emit.asm);
        let first = emit.asm.pure(Class::Word, "xor.b32", format_args!("{group}, 1"));
        let turns = emit.asm.copied(first);
        let sums = Sums::new(&mut emit.asm, self.tile);
        let operands = self.descriptors(emit, ring);
        self.each_tile(emit, alternates, |emit, place| {
            let asm = &mut emit.asm;
            let (first, zero) = (place.first_step(asm), asm.word(0));
            let (step, before) = (asm.copied(first), asm.copied(zero));
            if alternates {
                ring.wait_turn(asm, group, turns);
            }
            let label = asm.label();
            asm.turn(&label);
            asm.open();
            ring.wait_full(asm, &at);
            let later = made(asm, Class::Pred, "setp.ne.s32", format_args!("{step}, {first}"));
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
            let more = place.has_step(asm, step, self.form.steps());
            asm.emit(format_args!("@{more} bra {label}"));
            if alternates {
                ring.hand_turn(asm, group);
            }
            asm.emit("wgmma.wait_group.sync.aligned 0");
            ring.release(asm, before, None);
            if alternates {
                ring.skip(asm, &at, self.form.steps());
            }
            self.finish_own(emit, &sums, place);
        });
    }

    /// Finishes the sums of a tile as its product says, by one text for products that say the same of other arrays. Parts of all
    /// products are stored alike.
    fn finish_own(&self, emit: &mut Emit<'_>, sums: &Sums, place: TilePlace) {
        let number = match place.member.filter(|_| self.runs.is_none()) {
            Some(number) => number,
            None => return self.finish(emit, sums, place),
        };
        for group in alike(emit.program, self.members) {
            let kernel = WarpgroupKernel::of(group.first, self.tile, (self.members, self.runs));
            let own = group.test(emit, number, self.members.len());
            emit.when(own, |emit| {
                emit.choices = group.choices(number);
                kernel.finish(emit, sums, place);
                emit.choices.clear();
            });
        }
    }

    /// The number of a thread's warpgroup among those that multiply.
    fn group(&self, asm: &mut Asm) -> Reg {
        let thread = asm.special("tid.x");
        let group = asm.pure(Class::Word, "div.u32", format_args!("{thread}, {GROUP}"));
        asm.pure(Class::Word, "sub.u32", format_args!("{group}, 1"))
    }
}
