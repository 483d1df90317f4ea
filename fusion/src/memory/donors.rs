//! Temporaries in arrays of the caller: in donated inputs once they have been read, and in results until they are
//! written.
//!
//! Each of these arrays is a room beside the arena ([`Rooms`]). What the caller has in it, the input before its last read
//! or the result from its first write on, is a resident of the room: so its time window needs no rule of its own.
//! Scratch stays in the arena, whose address engines know before a run.

use super::arena::{Arena, ArenaRequest, FIRST, MOST_ORDERED, pairs, time};
use super::layout::{ALIGN, Memory};
use super::size::bytes;
use adfuse_ir::kernel::{Buffer, DonorSlice, InPlace, Role, Space, is_donor};
use adfuse_memplan::{
    BufferId, Location, Offset, PlacementOrder, PlanError, Rooms, Violation, check_offsets,
};
use cranelift_entity::{PrimaryMap, SecondaryMap};
use std::cmp::Reverse;
use std::ops::Range;

/// Why there is no packing with donors.
pub(super) enum DonorError {
    /// It was asked for wrongly.
    Asked(PlanError),
    /// It is wrong.
    Found(Violation),
}

impl From<PlanError> for DonorError {
    fn from(e: PlanError) -> DonorError {
        DonorError::Asked(e)
    }
}

/// The orders in which temporaries are placed, the best of which is taken.
const ORDERS: [PlacementOrder; 3] =
    [PlacementOrder::Size, PlacementOrder::Area, PlacementOrder::Load];

/// The most donors that are used, the largest ones: each is two more blocks to place around.
const MOST_DONORS: usize = 256;

/// Temporaries in arrays of the caller and in what is left of the arena.
pub(super) struct DonorPacking {
    flat: WithDonors,
    offsets: PrimaryMap<BufferId, Offset>,
    /// Bytes of the arena.
    pub(super) arena: u64,
}

impl DonorPacking {
    /// Moves temporaries from an arena into arrays of the caller; `inputs` says whether donated inputs are among these arrays.
    /// Results that are in donated inputs stay there. `None` where it is certain that the arena would not be smaller than
    /// `below` bytes.
    pub(super) fn of(
        wanted: &ArenaRequest<'_>,
        arena: &Arena,
        inputs: bool,
        memory: &Memory,
        below: u64,
    ) -> Result<Option<DonorPacking>, DonorError> {
        let donors = donors(wanted, inputs, memory);
        if donors.is_empty() || below == 0 {
            return Ok(None);
        }
        let mut flat = WithDonors::of(wanted, arena, memory, donors)?;
        let few = flat.rooms.problem().buffers.len() <= MOST_ORDERED;
        let orders = if few { &ORDERS[..] } else { &ORDERS[..1] };
        let pack = |rooms: &Rooms| rooms.plan(orders, below);
        let packing = match wanted.known {
            Some(known) => known.beside(&flat.rooms, below, pack)?,
            None => pack(&flat.rooms)?,
        };
        let Some(packing) = packing else { return Ok(None) };
        // The rest packed by itself is a packing of the whole.
        let may_shrink = few && !packing.is_optimal();
        let (mut offsets, mut arena) = (packing.offsets, flat.rooms.arena(packing.peak));
        if may_shrink && let Some(again) = packed_rest(wanted, memory, &mut flat, &offsets, arena)?
        {
            (offsets, arena) = again;
        }
        Ok(Some(DonorPacking { flat, offsets, arena }))
    }

    /// Writes it into a plan of the memory.
    pub(super) fn places(
        &self,
        wanted: &ArenaRequest<'_>,
        memory: &mut Memory,
    ) -> Result<(), DonorError> {
        check_offsets(self.flat.rooms.problem(), &self.offsets).map_err(DonorError::Found)?;
        memory.arena = self.arena;
        self.flat.places(&self.offsets, wanted, memory);
        Ok(())
    }
}

/// Offsets in the arena, and its bytes.
type ArenaOffsets = (PrimaryMap<BufferId, Offset>, u64);

/// The offsets where what is left for the arena is packed by itself, as well as it would be without donors, if it is
/// smaller then.
fn packed_rest(
    wanted: &ArenaRequest<'_>,
    memory: &Memory,
    flat: &mut WithDonors,
    offsets: &PrimaryMap<BufferId, Offset>,
    arena: u64,
) -> Result<Option<ArenaOffsets>, PlanError> {
    let mut elsewhere = memory.in_donor.clone();
    flat.slices(offsets).for_each(|(b, slice)| elsewhere[b] = Some(slice));
    let rest = Arena::of(wanted, &elsewhere).ok_or_else(too_large)?;
    let again = rest.pack(wanted)?;
    if again.peak >= arena {
        return Ok(None);
    }
    let mut offsets = offsets.clone();
    let blocks = rest.blocks.iter().map(|(b, id)| (flat.blocks[b], *id));
    let scratch = flat.scratch.iter().copied().zip(rest.scratch.iter().copied());
    for (id, own) in blocks.chain(scratch) {
        if let (Some(id), Some(own)) = (id, own) {
            offsets[id] = flat.rooms.address(again.offsets[own]);
        }
    }
    flat.share(&rest.in_place);
    Ok(Some((offsets, again.peak)))
}

fn too_large() -> PlanError {
    PlanError::TooLarge { buffer: BufferId::from_u32(0) }
}

/// The arrays that temporaries may be in, with their bytes, small ones first.
fn donors(wanted: &ArenaRequest<'_>, inputs: bool, memory: &Memory) -> Vec<(u64, Buffer)> {
    let program = wanted.program;
    let temps = program.buffers.values().filter(|data| data.role == Role::Temp);
    let least = temps.filter_map(bytes).filter(|&bytes| bytes > 0).min().unwrap_or(u64::MAX);
    let own = |&b: &Buffer| match program.buffers[b].role {
        // Nothing tells when a result is written that no step writes.
        Role::Output => memory.in_donor[b].is_none() && wanted.lives[b].is_some(),
        _ => inputs,
    };
    let usable = program.buffers.keys().filter(|&b| is_donor(program, b)).filter(own);
    let sized = usable.filter_map(|b| Some((bytes(&program.buffers[b])?, b)));
    let mut found: Vec<(u64, Buffer)> = sized.filter(|&(bytes, _)| bytes >= least).collect();
    found.sort_by_key(|&(bytes, b)| (Reverse(bytes), b));
    found.truncate(MOST_DONORS);
    found.reverse();
    found
}

/// Temporaries, scratch and donors in one range of addresses.
struct WithDonors {
    rooms: Rooms,
    /// The donor of each room.
    donors: Vec<Buffer>,
    /// Of temporaries, of donors, and of results in donors.
    blocks: SecondaryMap<Buffer, Option<BufferId>>,
    /// Which blocks are temporaries.
    temporaries: Vec<Buffer>,
    /// For each step, where it needs something.
    scratch: Vec<Option<BufferId>>,
    /// What may be in place.
    in_place: Vec<InPlace>,
}

impl WithDonors {
    fn of(
        wanted: &ArenaRequest<'_>,
        arena: &Arena,
        memory: &Memory,
        donors: Vec<(u64, Buffer)>,
    ) -> Result<WithDonors, PlanError> {
        let ArenaRequest { program, uses, lives, .. } = *wanted;
        let end = uses.steps() as u64 + FIRST + 1;
        let mut rooms = Rooms::new(ALIGN, end);
        for &(bytes, _) in &donors {
            rooms.room(bytes)?;
        }
        let mut blocks = SecondaryMap::new();
        let mut room_of: SecondaryMap<Buffer, Option<usize>> = SecondaryMap::new();
        for (room, &(bytes, b)) in donors.iter().enumerate() {
            room_of[b] = Some(room);
            let life: Range<u64> = match (&program.buffers[b].role, lives[b]) {
                (Role::Output, life) => life.map_or(end, |life| time(life).start)..end,
                (_, life) => 0..life.map_or(FIRST, |life| time(life).end),
            };
            blocks[b] = Some(rooms.resident(room, life, bytes));
        }
        let mut temporaries = Vec::new();
        for (b, data) in program.buffers.iter() {
            let donor = memory.in_donor[b].and_then(|slice| room_of[slice.donor]);
            let Some(life) = lives[b] else { continue };
            let size = bytes(data).ok_or_else(too_large)?;
            if let Some(room) = donor {
                blocks[b] = Some(rooms.resident(room, time(life).start..end, size));
            } else if data.role == Role::Temp && data.space == Space::Device {
                blocks[b] = Some(match size {
                    0 => rooms.push_in_arena(time(life), size),
                    _ => rooms.push(time(life), size),
                });
                temporaries.push(b);
            }
        }
        let scratch = (0..uses.steps()).map(|n| {
            let size = wanted.scratch_of(n);
            (size > 0).then(|| rooms.push_in_arena(time((n, uses.scratch_until(n))), size))
        });
        let scratch = scratch.collect();
        let donors = donors.into_iter().map(|(_, b)| b).collect();
        let in_place = Vec::new();
        let mut flat = WithDonors { rooms, donors, blocks, temporaries, scratch, in_place };
        flat.share(&arena.in_place);
        flat.share(&flat.pairs_with_donors(wanted, memory));
        Ok(flat)
    }

    /// What may be in place beside temporaries of each other: results of temporaries and of donated inputs, and
    /// temporaries of donated inputs.
    fn pairs_with_donors(&self, wanted: &ArenaRequest<'_>, memory: &Memory) -> Vec<InPlace> {
        let program = wanted.program;
        let is =
            |b: Buffer, role: &Role| self.blocks[b].is_some() && program.buffers[b].role == *role;
        let temp = |b: Buffer| is(b, &Role::Temp);
        let input = |b: Buffer| is(b, &Role::Input);
        let result = |b: Buffer| is(b, &Role::Output);
        let mut found = pairs(wanted, &temp, &result);
        found.extend(pairs(wanted, &input, &temp));
        // Those that were found when results were put into inputs.
        for (child, slice) in memory.in_donor.iter() {
            let Some(DonorSlice { donor: parent, .. }) = *slice else { continue };
            let (made, read) = (wanted.lives[child], wanted.lives[parent]);
            if let (Some((step, _)), Some((_, last))) = (made, read)
                && step == last
            {
                found.push(InPlace { step, child, parent });
            }
        }
        found
    }

    /// Lets pairs be in place.
    fn share(&mut self, pairs: &[InPlace]) {
        for pair in pairs {
            if let (Some(child), Some(parent)) = (self.blocks[pair.child], self.blocks[pair.parent])
            {
                self.rooms.may_share(child, parent);
                self.in_place.push(*pair);
            }
        }
    }

    /// The temporaries that are in donors.
    fn slices<'a>(
        &'a self,
        offsets: &'a PrimaryMap<BufferId, Offset>,
    ) -> impl Iterator<Item = (Buffer, DonorSlice)> + 'a {
        self.temporaries.iter().filter_map(|&b| match self.rooms.find(offsets[self.blocks[b]?]) {
            Location::Room(room, at) => {
                Some((b, DonorSlice { donor: self.donors[room], at: at.bytes() }))
            }
            Location::Arena(_) => None,
        })
    }

    /// Writes offsets into a plan of the memory.
    fn places(
        &self,
        offsets: &PrimaryMap<BufferId, Offset>,
        wanted: &ArenaRequest<'_>,
        memory: &mut Memory,
    ) {
        self.slices(offsets).for_each(|(b, slice)| memory.in_donor[b] = Some(slice));
        let in_arena = |id: BufferId| match self.rooms.find(offsets[id]) {
            Location::Arena(at) => Some(at.bytes()),
            Location::Room(..) => None,
        };
        for &b in &self.temporaries {
            memory.offsets[b] = self.blocks[b].and_then(in_arena);
        }
        let place =
            |(n, id): (usize, &Option<BufferId>)| Some((in_arena((*id)?)?, wanted.scratch_of(n)));
        memory.scratch = self.scratch.iter().enumerate().map(place).collect();
        let at = |b: Buffer| self.blocks[b].map(|id| offsets[id]);
        let mut in_place = self.in_place.clone();
        in_place.retain(|p| at(p.child) == at(p.parent));
        in_place.sort_by_key(|p| (p.step, p.child, p.parent));
        in_place.dedup();
        memory.in_place = in_place;
    }
}
