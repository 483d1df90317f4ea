//! Barriers in shared memory (`mbarrier`), and places in rings of stages that have them.

use super::asm::{Asm, Class, Reg, made};
use std::fmt::Display;

/// A stage, and how often the ring has come around, by its last bit.
#[derive(Clone, Copy)]
pub(crate) struct RingPlace {
    pub(crate) stage: Reg,
    pub(crate) phase: Reg,
}

impl RingPlace {
    /// The first stage, the first time.
    pub(crate) fn begin(asm: &mut Asm) -> RingPlace {
        let zero = asm.word(0);
        RingPlace { stage: asm.copied(zero), phase: asm.copied(zero) }
    }

    /// Goes on to the next of this many stages.
    pub(crate) fn advance(self, asm: &mut Asm, stages: i64) {
        let RingPlace { stage, phase } = self;
        asm.emit(format_args!("add.s32 {stage}, {stage}, 1"));
        let around = made(asm, Class::Pred, "setp.eq.s32", format_args!("{stage}, {stages}"));
        asm.emit(format_args!("@{around} xor.b32 {phase}, {phase}, 1"));
        asm.emit(format_args!("selp.b32 {stage}, 0, {stage}, {around}"));
    }
}

/// Makes a barrier for this many arrivals.
pub(crate) fn init(asm: &mut Asm, barrier: impl Display, arrivals: i64) {
    asm.emit(format_args!("mbarrier.init.shared::cta.b64 [{barrier}], {arrivals}"));
}

/// Waits until a barrier has completed the phase with this last bit.
pub(crate) fn wait(asm: &mut Asm, barrier: impl Display, phase: Reg) {
    let label = asm.label();
    asm.place(&label);
    let done = asm.fresh(Class::Pred);
    asm.emit(format_args!("mbarrier.try_wait.parity.shared::cta.b64 {done}, [{barrier}], {phase}"));
    asm.emit(format_args!("@!{done} bra {label}"));
}

/// Arrives, and says how many bytes the copy engine will bring in this phase.
pub(crate) fn expect(asm: &mut Asm, barrier: impl Display, bytes: i64) {
    asm.emit(format_args!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [{barrier}], {bytes}"));
}
