//! Rooms: memory beside the arena that is free for some of the time.
//!
//! A caller's array stands empty until its value is computed, or once its value has been read. [`Rooms`] puts such
//! memory and the arena into one range of addresses: the rooms first, each followed by a guard that is always in use,
//! so that no buffer reaches from one room into the next; then the arena. What the caller itself has in a room is a
//! buffer that is fixed at the room's start. So a packing of the one range says which buffers are in which room, and
//! [`check_offsets`](crate::check_offsets) proves it.

use std::ops::Range;

use cranelift_entity::SecondaryMap;

use crate::bound::lower_bound;
use crate::error::PlanError;
use crate::fit::{Fit, Overlaps, Placement};
use crate::instance::align_up;
use crate::limit::Limit;
use crate::orders::ordered;
use crate::packing::{Method, Packing, PlacementOrder};
use crate::plan::{PackedOffsets, finish};
use crate::problem::{BufferId, BufferSpec, Offset, Problem};
use crate::validate::validate;

/// Names a room, by the order in which rooms were added.
pub type RoomId = usize;

/// Where a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In the arena, from its start.
    Arena(Offset),
    /// In a room, from its start.
    Room(RoomId, Offset),
}

/// Rooms and an arena as one problem.
#[derive(Clone, PartialEq, Debug)]
pub struct Rooms {
    problem: Problem,
    /// Where each room starts, and its bytes.
    rooms: Vec<(u64, u64)>,
    /// What every start is a multiple of.
    align: u64,
    /// The end of all time.
    end: u64,
    /// Where the arena starts.
    arena: u64,
    /// Buffers that are in the arena, wherever there is room.
    in_arena: SecondaryMap<BufferId, bool>,
}

impl Rooms {
    /// No rooms. All that begins is at a multiple of `align`, a power of two; no buffer lives beyond `end`.
    pub fn new(align: u64, end: u64) -> Self {
        let in_arena = SecondaryMap::new();
        Self { problem: Problem::new(), rooms: Vec::new(), align, end, arena: 0, in_arena }
    }

    /// Adds a room of `bytes`. Buffers are placed in the first rooms that they fit into, so small rooms are best added
    /// first. All rooms come before the first buffer that [`Rooms::push`] adds.
    ///
    /// # Errors
    /// [`PlanError::TooLarge`] when the rooms have more bytes than are planned for.
    pub fn room(&mut self, bytes: u64) -> Result<RoomId, PlanError> {
        let at = self.arena.checked_add(bytes).filter(|&at| at <= MOST_BYTES);
        let at = at.ok_or(PlanError::TooLarge { buffer: BufferId::from_u32(0) })?;
        // From the room's last byte to where the next one starts.
        let next = (at + 1).next_multiple_of(self.align);
        let guard = BufferSpec::new(0..self.end, next - at);
        self.problem.push(guard.with_fixed(Offset(at)));
        self.rooms.push((self.arena, bytes));
        self.arena = next;
        Ok(self.rooms.len() - 1)
    }

    /// Adds what is in a room whatever is planned, from its start on.
    pub fn resident(&mut self, room: RoomId, live: Range<u64>, bytes: u64) -> BufferId {
        let at = Offset(self.rooms[room].0);
        self.problem.push(BufferSpec::new(live, bytes).with_align(self.align).with_fixed(at))
    }

    /// Adds a buffer that may be in the arena and in any room.
    pub fn push(&mut self, live: Range<u64>, bytes: u64) -> BufferId {
        self.problem.push(BufferSpec::new(live, bytes).with_align(self.align))
    }

    /// Adds a buffer that is in the arena.
    pub fn push_in_arena(&mut self, live: Range<u64>, bytes: u64) -> BufferId {
        let id = self.push(live, bytes);
        self.in_arena[id] = true;
        id
    }

    /// As [`Problem::may_share`].
    pub fn may_share(&mut self, child: BufferId, parent: BufferId) {
        self.problem.may_share(child, parent);
    }

    /// The one problem, whose offsets are addresses.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Where an address is.
    pub fn find(&self, at: Offset) -> Location {
        match at.bytes().checked_sub(self.arena) {
            Some(at) => Location::Arena(Offset(at)),
            None => {
                let room = self.rooms.partition_point(|&(start, _)| start <= at.bytes()) - 1;
                Location::Room(room, Offset(at.bytes() - self.rooms[room].0))
            }
        }
    }

    /// The address of a place in the arena.
    pub fn address(&self, in_arena: Offset) -> Offset {
        Offset(self.arena.saturating_add(in_arena.bytes()))
    }

    /// The address of the first room of at least this many bytes, or of the arena.
    fn first_room(&self, bytes: u64) -> i64 {
        let room = self.rooms.iter().find(|&&(_, room)| room >= bytes);
        i64::try_from(room.map_or(self.arena, |&(start, _)| start)).unwrap_or(i64::MAX)
    }

    /// The bytes of the arena where all ends at `peak`, an address.
    pub fn arena(&self, peak: u64) -> u64 {
        peak.saturating_sub(self.arena)
    }

    /// Places the buffers in each of these orders, each at the lowest address that is free, until the arena is as small
    /// as a bound says; gives the packing with the smallest arena. There is none where no packing has an arena below
    /// `below` bytes, by the same bound.
    ///
    /// # Errors
    /// As [`plan`](crate::plan()).
    pub fn plan(
        &self,
        orders: &[PlacementOrder],
        below: u64,
    ) -> Result<Option<Packing>, PlanError> {
        let (mut instance, slot_of) = validate(&self.problem)?;
        let floor = i64::try_from(self.arena).unwrap_or(i64::MAX);
        for (id, buffer) in self.problem.buffers.iter() {
            let slot = &mut instance.slots[slot_of[id]];
            let least = match self.in_arena[id] {
                true => floor,
                // No room before has as many bytes.
                false => self.first_room(buffer.size),
            };
            slot.floor = slot.floor.max(align_up(least, slot.align));
        }
        let bound = lower_bound(&instance);
        if self.arena(bound.unsigned_abs()) >= below {
            return Ok(None);
        }
        let overlaps = Overlaps::of(&instance);
        let mut placement = Placement::new(&instance, &overlaps);
        let mut limit = Limit::new(0, None);
        let mut best: Option<(i64, PackedOffsets)> = None;
        for (&order, placements) in orders.iter().zip(1..) {
            let ids = ordered(&instance, order);
            let below = best.as_ref().map_or(i64::MAX, |&(least, _)| least);
            let peak = placement.place_all(&ids, Fit::Lowest, below, &mut limit);
            let Some(peak) = peak else { break };
            if best.as_ref().is_none_or(|&(least, _)| peak < least) {
                let offsets = placement.offsets().to_vec();
                let method = Method::Greedy(order);
                let steps = 0;
                best = Some((peak, PackedOffsets { offsets, bound, method, steps, placements }));
            }
            best.iter_mut().for_each(|(_, found)| found.placements = placements);
            if peak <= bound.max(floor) {
                break;
            }
        }
        best.map(|(_, found)| finish(&self.problem, &instance, &slot_of, found)).transpose()
    }
}

/// All sizes together stay below this.
const MOST_BYTES: u64 = 1 << 62;
