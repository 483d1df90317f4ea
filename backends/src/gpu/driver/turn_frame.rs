//! Turns of loops: which there are, and where each reads and writes.

use super::device_frame::DeviceFrame;
use super::work::{BlockWork, CarryWork, LoopWork, StartWork, TripsWork, internal};
use crate::gpu::launches::{BlockBinding, INDICES_AT};
use crate::gpu::turns::CarryPlace;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::SLOT;
use cranelift_entity::EntityRef;
use cudarc::driver::sys::CUdeviceptr;

/// Which turns were drawn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TurnKey {
    pub(crate) role: TurnRole,
    /// Where carried values are at first, and what is handed back.
    pub(crate) from: CarryPlace,
    pub(crate) returned: CarryPlace,
    pub(crate) count: u64,
}

/// What a program is to its loop.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TurnRole {
    Test,
    Step,
    /// A step, and the test after it.
    StepAndTest,
    Back,
}

/// A loop that runs.
pub(crate) struct Turns<'l> {
    pub(crate) work: &'l LoopWork,
    pub(crate) at: &'l DeviceFrame,
    pub(crate) trips: u64,
    pub(crate) first: i64,
}

/// What a turn reads and writes.
pub(crate) struct TurnPlaces {
    pub(crate) now: Vec<CUdeviceptr>,
    pub(crate) returned: Vec<CUdeviceptr>,
    pub(crate) results: Vec<CUdeviceptr>,
}

impl CarryWork {
    /// A place of the value.
    pub(crate) fn at(&self, at: &DeviceFrame, place: CarryPlace) -> CUdeviceptr {
        let line = self.bytes.next_multiple_of(SLOT);
        let end = at.all[self.to];
        match place {
            CarryPlace::Start => match self.start {
                StartWork::Buffer(b) => at.all[b],
                StartWork::Fill(..) => end,
            },
            CarryPlace::First => self.slots.first.map_or(end, |first| at.block + first),
            CarryPlace::Second => at.block + self.slots.second,
            CarryPlace::End => end,
            CarryPlace::Kept(k) => at.block + self.slots.kept + k as u64 * line,
        }
    }
}

impl Turns<'_> {
    pub(crate) fn block(&self, role: TurnRole) -> Result<&BlockWork, Diagnostic> {
        match (role, &self.work.trips, &self.work.back) {
            (TurnRole::Step | TurnRole::StepAndTest, ..) => Ok(&self.work.step),
            (TurnRole::Test, TripsWork::While(test, _), _) => Ok(test),
            (TurnRole::Back, _, Some((.., back))) => Ok(back),
            _ => Err(internal("a loop has no such program")),
        }
    }

    /// What a turn reads and writes.
    pub(crate) fn places(&self, role: TurnRole, key: TurnKey) -> TurnPlaces {
        let all = |carries: &[CarryWork], place: CarryPlace| -> Vec<CUdeviceptr> {
            carries.iter().map(|carry| carry.at(self.at, place)).collect()
        };
        let now = all(&self.work.carries, key.from);
        let back = self.work.back.as_ref().map_or(&[][..], |back| &back.1);
        let returned = all(back, key.returned);
        let results = match role {
            TurnRole::Test => vec![self.at.block + self.work.answer],
            TurnRole::Step | TurnRole::StepAndTest => all(&self.work.carries, key.from.other()),
            TurnRole::Back => all(back, key.returned.other()),
        };
        TurnPlaces { now, returned, results }
    }
}

/// Where everything of a block is, in a turn `on` positions after the one that is in memory.
pub(crate) fn frame(
    block: &BlockWork,
    around: &DeviceFrame,
    (on, position): (i64, u64),
    places: &TurnPlaces,
) -> DeviceFrame {
    let moved = |at: CUdeviceptr, each: u64| at.wrapping_add((on * each as i64) as u64);
    let position = around.block + position;
    let at = |&(binding, own, bytes): &(BlockBinding, u64, u64)| match binding {
        BlockBinding::Own => around.block + own,
        BlockBinding::Index => position + INDICES_AT,
        BlockBinding::Carry(k) => places.now[k],
        BlockBinding::Returned(k) => places.returned[k],
        BlockBinding::Whole(b) => around.all[b.index()],
        BlockBinding::Element(b) => moved(around.all[b.index()], bytes),
        BlockBinding::Result(k) => places.results[k],
    };
    let mut outer = around.all.clone();
    for &(b, each) in &block.copied {
        outer[b] = moved(outer[b], each);
    }
    DeviceFrame {
        all: block.buffers.iter().map(at).collect(),
        block: around.block,
        outer,
        results: places.results.clone(),
        position,
        ..DeviceFrame::default()
    }
}
