//! Products of a warpgroup (`wgmma`): 64 lines that the warpgroup owns, and the lines of a tile in shared memory.
//!
//! Formats: PTX ISA, "Asynchronous warpgroup level matrix instructions", matrix descriptors and the 128-byte swizzle. Each warp
//! has the sums of 16 lines as those of `mma.sync` lie, one tile of 8 columns after the other.

use super::panels::{PanelTile, TileRing, shared};
use super::tile::{Accumulators, made};
use crate::gpu::ptx::asm::{Asm, Class, Reg};
use crate::gpu::ptx::mbarrier::RingPlace;
use crate::gpu::schedule::attention::UNIT;
use crate::gpu::schedule::mapped_operand::LINE;
use crate::gpu::schedule::warpgroup_tile::{GROUP, TALL};
use adfuse_ir::DType;

/// Bytes of the square of 8 lines by 128 bytes after which the pattern of banks repeats.
const SQUARE: i64 = 8 * LINE;
/// The 128-byte swizzle in a descriptor.
const SWIZZLE_128: i64 = 1 << 62;
/// What a descriptor says where nothing is read of it: the bytes from panel to panel of a depth along lines.
const APART: i64 = 16;
/// Bytes of the 16 elements of a unit.
const UNIT_BYTES: i64 = 32;

/// The number of the calling thread's warpgroup.
pub(super) fn group(asm: &mut Asm) -> Reg {
    let thread = asm.special("tid.x");
    asm.pure(Class::Word, "div.u32", format_args!("{thread}, {GROUP}"))
}

/// An operand in shared memory.
#[derive(Clone, Copy)]
pub(super) struct PanelOperand {
    descriptor: Reg,
    tile: PanelTile,
    /// Whether the depth of the product is along the tile's lines, or each line is a place along the depth.
    along: bool,
}

impl PanelOperand {
    /// The lines of a tile that the calling warpgroup owns, as the left operand.
    pub(super) fn own(asm: &mut Asm, tile: PanelTile) -> PanelOperand {
        let base = shared(asm, tile.at);
        let group = group(asm);
        let place =
            asm.pure(Class::Word, "mad.lo.u32", format_args!("{group}, {}, {base}", TALL * LINE));
        PanelOperand { descriptor: descriptor(asm, place, APART), tile, along: true }
    }

    /// A whole tile as the right operand, whose lines are the columns of the product.
    pub(super) fn whole(asm: &mut Asm, tile: PanelTile) -> PanelOperand {
        let place = shared(asm, tile.at);
        PanelOperand { descriptor: descriptor(asm, place, APART), tile, along: true }
    }

    /// The same with lines along the depth: their elements are the columns.
    pub(super) fn turned(self, asm: &mut Asm) -> PanelOperand {
        // Bytes from 64 columns to the next.
        let apart = (self.tile.panel() - APART) >> 4 << 16;
        let descriptor =
            made(asm, Class::Long, "add.s64", format_args!("{}, {apart}", self.descriptor));
        PanelOperand { descriptor, along: false, ..self }
    }

    /// The same in a stage.
    pub(super) fn at(self, asm: &mut Asm, ring: &TileRing, at: RingPlace) -> PanelOperand {
        let args = format!("{}, {}, {}", at.stage, ring.each >> 4, self.descriptor);
        PanelOperand { descriptor: made(asm, Class::Long, "mad.wide.u32", args), ..self }
    }

    /// The descriptor of a unit of the depth.
    fn unit(&self, asm: &mut Asm, k: i64) -> Reg {
        let units = LINE / UNIT_BYTES;
        let by = match self.along {
            true => k / units * self.tile.panel() + k % units * UNIT_BYTES,
            false => k * UNIT * LINE,
        };
        match by {
            0 => self.descriptor,
            by => {
                made(asm, Class::Long, "add.s64", format_args!("{}, {}", self.descriptor, by >> 4))
            }
        }
    }
}

/// The descriptor of a place in shared memory.
fn descriptor(asm: &mut Asm, place: Reg, apart: i64) -> Reg {
    let fixed = SWIZZLE_128 | (SQUARE >> 4) << 32 | (apart >> 4) << 16;
    let place = asm.pure(Class::Word, "and.b32", format_args!("{place}, 262143"));
    let place = asm.pure(Class::Word, "shr.u32", format_args!("{place}, 4"));
    let place = asm.pure(Class::Long, "cvt.u64.u32", place);
    asm.pure(Class::Long, "or.b64", format_args!("{place}, {fixed}"))
}

/// The left operand of a product.
pub(super) enum LeftOperand<'a> {
    Shared(&'a PanelOperand),
    /// Rounded numbers, unit after unit of the depth.
    Rounded(&'a [[Reg; 4]]),
}

/// Begins a product, which is added to sums or is all of them.
pub(super) fn multiply(
    asm: &mut Asm,
    dtype: DType,
    (sums, adds): (&Accumulators, bool),
    left: &LeftOperand<'_>,
    right: &PanelOperand,
) {
    let types = match dtype {
        DType::F16 => "f32.f16.f16",
        _ => "f32.bf16.bf16",
    };
    let [never, always] = [false, true].map(|value| asm.truth(value));
    let units = match left {
        LeftOperand::Shared(own) => own.tile.units(),
        LeftOperand::Rounded(units) => units.len() as i64,
    };
    let columns = sums.wide * 8;
    let regs: Vec<String> = sums.all().iter().map(Reg::to_string).collect();
    let regs = regs.join(", ");
    let turned = i64::from(!right.along);
    for k in 0..units {
        let (a, of_a) = match left {
            LeftOperand::Shared(own) => (own.unit(asm, k).to_string(), "0, "),
            LeftOperand::Rounded(units) => {
                let [a, b, c, d] = units[k as usize];
                (format!("{{{a}, {b}, {c}, {d}}}"), "")
            }
        };
        let b = right.unit(asm, k);
        let more = if adds || k > 0 { always } else { never };
        asm.emit(format_args!(
            "wgmma.mma_async.sync.aligned.m64n{columns}k16.{types} {{{regs}}}, {a}, {b}, {more}, 1, 1, {of_a}{turned}"
        ));
    }
    asm.emit("wgmma.commit_group.sync.aligned");
}

/// Makes registers that were written ready for products that begin after it.
pub(super) fn fence(asm: &mut Asm) {
    asm.emit("wgmma.fence.sync.aligned");
}

/// Waits until all products but this many of the last ones are done.
pub(super) fn wait(asm: &mut Asm, but: i64) {
    asm.emit(format_args!("wgmma.wait_group.sync.aligned {but}"));
}
