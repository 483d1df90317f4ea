//! Stages of shared memory, each with a barrier that says that it is full and one that says that it is empty.

use crate::gpu::ptx::asm::{Asm, Class, Reg, made};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::ptx::mbarrier::{RingPlace, expect, init, wait};
use crate::gpu::schedule::warpgroup_tile::{GROUP, MULTIPLIERS, WarpgroupTile};
use crate::gpu::target::WARP;

/// Stages that are filled and emptied in turn.
pub(super) struct Ring {
    /// Where the first stage is.
    pub(super) base: Reg,
    /// Where the first barrier is: those of full stages, then those of empty ones.
    barriers: Reg,
    stages: i64,
    bytes: i64,
    /// Blocks that bring operands together.
    cluster: i64,
}

impl Ring {
    /// Makes the barriers.
    pub(super) fn new(emit: &mut Emit<'_>, tile: &WarpgroupTile) -> Ring {
        let asm = &mut emit.asm;
        let base = asm.pure(Class::Word, "mov.u32", "dynamic");
        let (stages, bytes) = (tile.stages, tile.stage());
        let barriers = asm.pure(Class::Word, "add.u32", format_args!("{base}, {}", stages * bytes));
        let readers = tile.sharers() * tile.cluster;
        let thread = asm.special("tid.x");
        let first = asm.pure(Class::Pred, "setp.eq.s32", format_args!("{thread}, 0"));
        emit.when(Some(first), |emit| {
            for stage in 0..stages {
                let (full, empty) = (stage * 8, (stages + stage) * 8);
                init(&mut emit.asm, format_args!("{barriers}+{full}"), 1);
                init(&mut emit.asm, format_args!("{barriers}+{empty}"), readers);
            }
            for group in 0..MULTIPLIERS {
                let turn = (2 * stages + group) * 8;
                init(&mut emit.asm, format_args!("{barriers}+{turn}"), GROUP / WARP);
            }
            emit.asm.emit("fence.mbarrier_init.release.cluster");
        });
        emit.asm.emit("bar.sync 0");
        let ring = Ring { base, barriers, stages, bytes, cluster: tile.cluster };
        ring.meet(&mut emit.asm);
        ring
    }

    /// Waits for all threads of the cluster.
    pub(super) fn meet(&self, asm: &mut Asm) {
        if self.cluster > 1 {
            asm.emit("barrier.cluster.arrive.release");
            asm.emit("barrier.cluster.wait.acquire");
        }
    }

    /// Where a stage begins.
    pub(super) fn start(&self, asm: &mut Asm, at: &RingPlace) -> Reg {
        let args = format!("{}, {}, {}", at.stage, self.bytes, self.base);
        made(asm, Class::Word, "mad.lo.u32", args)
    }

    /// The barrier that says that a stage is full.
    pub(super) fn full(&self, asm: &mut Asm, at: &RingPlace) -> Reg {
        made(asm, Class::Word, "mad.lo.u32", format_args!("{}, 8, {}", at.stage, self.barriers))
    }

    pub(super) fn wait_full(&self, asm: &mut Asm, at: &RingPlace) {
        let barrier = self.full(asm, at);
        wait(asm, barrier, at.phase);
    }

    /// Waits until a stage is empty, as all are in the beginning.
    pub(super) fn wait_empty(&self, asm: &mut Asm, at: &RingPlace) {
        let barrier = self.full(asm, at);
        let other = made(asm, Class::Word, "xor.b32", format_args!("{}, 1", at.phase));
        wait(asm, format_args!("{barrier}+{}", self.stages * 8), other);
    }

    /// Says that a stage is full when its bytes are there.
    pub(super) fn expect(&self, asm: &mut Asm, at: &RingPlace) {
        let barrier = self.full(asm, at);
        expect(asm, barrier, self.bytes);
    }

    /// Says, for a warpgroup, that a stage is read: where a condition holds, if there is one. A warp of it tells each block of
    /// the cluster, since each writes to the stages of all.
    ///
    /// The operation that a warp has waited for is the whole warpgroup's.
    pub(super) fn release(&self, asm: &mut Asm, stage: Reg, when: Option<Reg>) {
        let thread = asm.special("tid.x");
        let own = asm.pure(Class::Word, "and.b32", format_args!("{thread}, {}", GROUP - 1));
        let lane = asm.special("laneid");
        let first = asm.pure(Class::Pred, "setp.eq.s32", format_args!("{lane}, 0"));
        let told = self.cluster * WARP;
        let told = asm.pure(Class::Pred, "setp.lt.s32", format_args!("{own}, {told}"));
        let mut tells = asm.pure(Class::Pred, "and.pred", format_args!("{first}, {told}"));
        if let Some(when) = when {
            tells = made(asm, Class::Pred, "and.pred", format_args!("{tells}, {when}"));
        }
        let args = format!("{stage}, 8, {}", self.barriers);
        let barrier = made(asm, Class::Word, "mad.lo.u32", args);
        let empty = self.stages * 8;
        if self.cluster == 1 {
            asm.emit(format_args!(
                "@{tells} mbarrier.arrive.shared::cta.b64 _, [{barrier}+{empty}]"
            ));
            return;
        }
        // No ordering at the scope of the cluster is asked for: what is read was read by the copy engine's own proxy.
        let warp = asm.pure(Class::Word, "shr.u32", format_args!("{own}, 5"));
        let barrier = made(asm, Class::Word, "add.u32", format_args!("{barrier}, {empty}"));
        let there = format!("{barrier}, {warp}");
        let there = made(asm, Class::Word, &format!("@{tells} mapa.shared::cluster.u32"), there);
        asm.emit(format_args!("@{tells} mbarrier.arrive.shared::cluster.b64 _, [{there}]"));
    }

    /// Waits until it is a warpgroup's turn to multiply. `turns` is the last bit of the number of its turns before, whose
    /// complement the first one starts with: it waits for nobody.
    ///
    /// Only then has the other one seen all stages before full: a barrier does not tell a phase from the second after it.
    pub(super) fn wait_turn(&self, asm: &mut Asm, group: Reg, turns: Reg) {
        let args = format!("{group}, 8, {}", self.barriers);
        let barrier = made(asm, Class::Word, "mad.lo.u32", args);
        wait(asm, format_args!("{barrier}+{}", 16 * self.stages), turns);
        asm.emit(format_args!("xor.b32 {turns}, {turns}, 1"));
    }

    /// Hands the turn to the other warpgroup.
    pub(super) fn hand_turn(&self, asm: &mut Asm, group: Reg) {
        let other = made(asm, Class::Word, "xor.b32", format_args!("{group}, 1"));
        let args = format!("{other}, 8, {}", self.barriers);
        let barrier = made(asm, Class::Word, "mad.lo.u32", args);
        let lane = asm.special("laneid");
        let first = made(asm, Class::Pred, "setp.eq.s32", format_args!("{lane}, 0"));
        let at = 16 * self.stages;
        asm.emit(format_args!("@{first} mbarrier.arrive.shared::cta.b64 _, [{barrier}+{at}]"));
    }

    /// Leaves out this many stages, which the other warpgroup reads.
    pub(super) fn skip(&self, asm: &mut Asm, at: &RingPlace, count: i64) {
        let RingPlace { stage, phase } = at;
        let (rounds, rest) = (count / self.stages, count % self.stages);
        asm.emit(format_args!("add.s32 {stage}, {stage}, {rest}"));
        let around =
            made(asm, Class::Pred, "setp.ge.s32", format_args!("{stage}, {}", self.stages));
        asm.emit(format_args!("@{around} sub.s32 {stage}, {stage}, {}", self.stages));
        asm.emit(format_args!("@{around} xor.b32 {phase}, {phase}, 1"));
        if rounds % 2 == 1 {
            asm.emit(format_args!("xor.b32 {phase}, {phase}, 1"));
        }
    }

    /// The next stage.
    pub(super) fn advance(&self, asm: &mut Asm, at: &RingPlace) {
        at.advance(asm, self.stages);
    }
}
