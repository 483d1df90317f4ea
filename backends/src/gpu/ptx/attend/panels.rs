//! Tiles of operands as the copy engine lays them out for warpgroups: panels of 64 elements, in which each line has 128 bytes,
//! in the pattern of banks that repeats every 1024 bytes. Rings of stages of them.

use super::tile::{lane, made};
use crate::gpu::launches::{Arg, TensorMap};
use crate::gpu::ptx::asm::{Asm, Class, Reg};
use crate::gpu::ptx::emit::{Emit, EmitMap};
use crate::gpu::ptx::mbarrier::{self, RingPlace};
use crate::gpu::schedule::attention::{AttentionForm, UNIT};
use crate::gpu::schedule::mapped_operand::LINE;
use adfuse_ir::DType;
use adfuse_ir::kernel::Buffer;
use std::fmt::Display;

/// Bytes of an element, and elements of a panel's line.
const SIZE: i64 = 2;
const ACROSS: i64 = LINE / SIZE;

/// Lines of 16-bit floats in panels.
#[derive(Clone, Copy)]
pub(super) struct PanelTile {
    /// Bytes of shared memory before it, in the first stage where there are several.
    pub(super) at: i64,
    pub(super) lines: i64,
    pub(super) elements: i64,
}

impl PanelTile {
    pub(super) fn bytes(&self) -> i64 {
        AttentionForm::panel_bytes(self.lines, self.elements)
    }

    /// The first byte after it.
    pub(super) fn end(&self) -> i64 {
        self.at + self.bytes()
    }

    /// Bytes of a panel.
    pub(super) fn panel(&self) -> i64 {
        self.lines * LINE
    }

    /// Units of the depth where that is along its lines.
    pub(super) fn units(&self) -> i64 {
        AttentionForm::padded(self.elements) / UNIT
    }
}

/// The address of a place in shared memory.
pub(super) fn shared(asm: &mut Asm, at: i64) -> Reg {
    let base = asm.pure(Class::Word, "mov.u32", "dynamic");
    asm.pure(Class::Word, "add.u32", format_args!("{base}, {at}"))
}

/// The copies of an operand's tiles.
pub(super) struct PanelCopy {
    tile: PanelTile,
    map: Reg,
    head: Reg,
}

impl PanelCopy {
    /// Of an operand that has a line for each row.
    pub(super) fn of_rows(
        emit: &mut Emit<'_>,
        tile: PanelTile,
        (buffer, form): (Buffer, &AttentionForm),
        head: Reg,
    ) -> PanelCopy {
        PanelCopy::new(emit, tile, (buffer, form.dtype), [form.rows, form.heads], head)
    }

    /// Of an operand that has a line for each key; heads share those of their group.
    pub(super) fn of_keys(
        emit: &mut Emit<'_>,
        tile: PanelTile,
        (buffer, form): (Buffer, &AttentionForm),
        group: Reg,
    ) -> PanelCopy {
        let lines = [form.stream, form.heads / form.shared];
        PanelCopy::new(emit, tile, (buffer, form.dtype), lines, group)
    }

    /// Of an operand that has these lines in each of these heads; lines past the last one are 0.
    fn new(
        emit: &mut Emit<'_>,
        tile: PanelTile,
        (buffer, dtype): (Buffer, DType),
        [lines, heads]: [i64; 2],
        head: Reg,
    ) -> PanelCopy {
        let bytes = (tile.elements * SIZE).unsigned_abs();
        let count = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
        let map = TensorMap {
            arg: Arg::Position,
            offset: 0,
            dtype,
            extents: [tile.elements, lines, heads].map(i64::unsigned_abs).to_vec(),
            strides: vec![bytes, bytes * lines.unsigned_abs()],
            tile: vec![count(ACROSS), count(tile.lines), 1],
        };
        emit.maps.push(EmitMap { buffer, map });
        let map = emit.asm.tensor_map(emit.maps.len() - 1);
        PanelCopy { tile, map, head }
    }

    /// Asks for the tile from a line on, into a stage that is this many bytes in; the barrier is told of its bytes.
    pub(super) fn copy(&self, asm: &mut Asm, barrier: Reg, (first, stage): (Reg, Option<Reg>)) {
        let to = shared(asm, self.tile.at);
        let to = match stage {
            None => to,
            Some(stage) => made(asm, Class::Word, "add.u32", format_args!("{to}, {stage}")),
        };
        let (map, head) = (self.map, self.head);
        for panel in 0..self.tile.bytes() / self.tile.panel() {
            let at = panel * self.tile.panel();
            let to = made(asm, Class::Word, "add.u32", format_args!("{to}, {at}"));
            let column = asm.word(panel * ACROSS);
            asm.emit(format_args!(
                "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [{to}], [{map}, {{{column}, {first}, {head}}}], [{barrier}]"
            ));
        }
    }
}

/// Stages that the copy engine fills and warpgroups empty in turn.
#[derive(Clone, Copy)]
pub(super) struct TileRing {
    /// Bytes of shared memory before its barriers: that stages are full, then that they are empty.
    barriers: i64,
    pub(super) stages: i64,
    /// Bytes from one stage to the next, and those that the copy engine brings.
    pub(super) each: i64,
    copied: i64,
}

impl TileRing {
    /// Stages of tiles that lie together.
    pub(super) fn new(barriers: i64, stages: i64, tiles: &[PanelTile]) -> TileRing {
        let each = tiles.iter().map(PanelTile::bytes).sum();
        TileRing { barriers, stages, each, copied: each }
    }

    /// The first byte after its barriers.
    pub(super) fn end(&self) -> i64 {
        self.barriers + self.stages * 16
    }

    /// Makes the barriers, for threads that fill and warps that empty.
    pub(super) fn init(&self, asm: &mut Asm, [fill, empty]: [i64; 2]) {
        for stage in 0..self.stages {
            let full = shared(asm, self.barriers + stage * 8);
            mbarrier::init(asm, full, fill);
            mbarrier::init(asm, format_args!("{full}+{}", self.stages * 8), empty);
        }
    }

    /// The barrier that says that a stage is full.
    pub(super) fn full(&self, asm: &mut Asm, at: RingPlace) -> Reg {
        let base = shared(asm, self.barriers);
        made(asm, Class::Word, "mad.lo.u32", format_args!("{}, 8, {base}", at.stage))
    }

    pub(super) fn wait_full(&self, asm: &mut Asm, at: RingPlace) {
        let barrier = self.full(asm, at);
        mbarrier::wait(asm, barrier, at.phase);
    }

    /// Waits until a stage is empty, as all are in the beginning.
    pub(super) fn wait_empty(&self, asm: &mut Asm, at: RingPlace) {
        let barrier = self.full(asm, at);
        let other = made(asm, Class::Word, "xor.b32", format_args!("{}, 1", at.phase));
        mbarrier::wait(asm, format_args!("{barrier}+{}", self.stages * 8), other);
    }

    /// Asks for the tiles of a stage that is empty.
    pub(super) fn fill(&self, asm: &mut Asm, at: RingPlace, copies: &[&PanelCopy], first: Reg) {
        let barrier = self.full(asm, at);
        mbarrier::expect(asm, barrier, self.copied);
        let stage = self.stage(asm, at);
        copies.iter().for_each(|copy| copy.copy(asm, barrier, (first, Some(stage))));
    }

    /// Bytes before a stage.
    pub(super) fn stage(&self, asm: &mut Asm, at: RingPlace) -> Reg {
        made(asm, Class::Word, "mul.lo.u32", format_args!("{}, {}", at.stage, self.each))
    }

    /// Says for a warp that it has read a stage, by one of its threads.
    pub(super) fn release(&self, asm: &mut Asm, stage: Reg) {
        let lane = lane(asm);
        let first = asm.pure(Class::Pred, "setp.eq.s32", format_args!("{lane}, 0"));
        // What the others have read of it they have read before that thread says so.
        asm.emit("bar.warp.sync 0xffffffff");
        let base = shared(asm, self.barriers + self.stages * 8);
        let barrier = made(asm, Class::Word, "mad.lo.u32", format_args!("{stage}, 8, {base}"));
        asm.emit(format_args!("@{first} mbarrier.arrive.shared::cta.b64 _, [{barrier}]"));
    }

    pub(super) fn advance(&self, asm: &mut Asm, at: RingPlace) {
        at.advance(asm, self.stages);
    }
}

/// Asks for tiles that a block has from beginning to end, and for which a barrier waits once.
pub(super) fn copy_own(asm: &mut Asm, barrier: i64, copies: &[&PanelCopy], first: Reg) {
    let barrier = shared(asm, barrier);
    mbarrier::expect(asm, barrier, copies.iter().map(|copy| copy.tile.bytes()).sum());
    copies.iter().for_each(|copy| copy.copy(asm, barrier, (first, None)));
}

/// Waits for the first phase of a barrier.
pub(super) fn wait_once(asm: &mut Asm, barrier: i64) {
    let barrier = shared(asm, barrier);
    let zero = asm.word(0);
    mbarrier::wait(asm, barrier, zero);
}

/// Stops the threads of a warpgroup until those that come before it have arrived, or arrives for the next one: barriers of
/// warpgroups by number, which are from 1 on.
pub(super) fn group_barrier(asm: &mut Asm, does: &str, group: impl Display, threads: i64) {
    let number = made(asm, Class::Word, "add.u32", format_args!("{group}, 1"));
    asm.emit(format_args!("bar.{does} {number}, {threads}"));
}
