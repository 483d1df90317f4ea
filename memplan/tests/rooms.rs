//! Packings with rooms beside the arena.

use adfuse_memplan::{
    BufferId, Location, Offset, Packing, PlacementOrder, PlanError, Rooms, check_offsets,
    plan_in_order,
};
use cranelift_entity::PrimaryMap;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::ops::Range;

/// The end of all time.
const END: u64 = 12;

const ALIGN: u64 = 8;

/// A room's bytes, and the time at which its resident moves in, or out.
type RoomCase = (u64, u64, bool);

/// When a buffer lives, its bytes, and whether it is in the arena.
type BufferCase = (Range<u64>, u64, bool);

fn rooms() -> impl Strategy<Value = Vec<RoomCase>> {
    prop::collection::vec((1..200u64, 0..=END, any::<bool>()), 0..6)
}

fn buffers() -> impl Strategy<Value = Vec<BufferCase>> {
    let life = (0..END, 0..END).prop_map(|(s, t)| s.min(t)..s.max(t) + 1);
    prop::collection::vec((life, 0..150u64, prop::bool::weighted(0.2)), 1..24)
}

struct Case {
    rooms: Rooms,
    sizes: Vec<u64>,
    buffers: Vec<(BufferId, BufferCase)>,
}

fn case(rooms: &[RoomCase], buffers: &[BufferCase]) -> Case {
    let mut all = Rooms::new(ALIGN, END);
    let ids: Vec<usize> = rooms.iter().map(|r| all.room(r.0).expect("small")).collect();
    for (&(bytes, at, early), &room) in rooms.iter().zip(&ids) {
        all.resident(room, if early { 0..at } else { at..END }, bytes);
    }
    let mut made = Vec::new();
    for buffer in buffers {
        let (life, bytes, in_arena) = buffer.clone();
        let id = match in_arena {
            true => all.push_in_arena(life, bytes),
            false => all.push(life, bytes),
        };
        made.push((id, buffer.clone()));
    }
    Case { rooms: all, sizes: rooms.iter().map(|r| r.0).collect(), buffers: made }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500, rng_seed: RngSeed::Fixed(29), failure_persistence: None, ..ProptestConfig::default()
    })]

    /// What is planned is sound, within its room, at the times at which the room is free.
    #[test]
    fn buffers_fit_into_rooms_and_into_time(rooms in rooms(), buffers in buffers()) {
        let case = case(&rooms, &buffers);
        let found = case.rooms.plan(&PlacementOrder::ALL, u64::MAX).expect("well formed");
        let packing = found.expect("below all bounds");
        prop_assert_eq!(check_offsets(case.rooms.problem(), &packing.offsets), Ok(packing.peak));
        let arena = case.rooms.arena(packing.peak);
        for (id, (life, bytes, in_arena)) in &case.buffers {
            match case.rooms.find(packing.offsets[*id]) {
                Location::Arena(at) => {
                    prop_assert!(*bytes == 0 || at.bytes() + bytes <= arena);
                    prop_assert_eq!(at.bytes() % ALIGN, 0);
                }
                Location::Room(room, at) => {
                    prop_assert!(!in_arena);
                    prop_assert!(at.bytes() + bytes <= case.sizes[room]);
                    let (_, moves, early) = rooms[room];
                    let free = if early { moves..END } else { 0..moves };
                    let within = free.start <= life.start && life.end <= free.end;
                    prop_assert!(within || *bytes == 0);
                }
            }
        }
        // A bound that says that nothing is below is never wrong.
        if arena > 0 && let Some(again) = case.rooms.plan(&PlacementOrder::ALL, arena).expect("well formed") {
            prop_assert_eq!(again.peak, packing.peak);
        }
    }

    /// Without rooms it is the packing of the arena alone.
    #[test]
    fn without_rooms_there_is_the_arena(buffers in buffers()) {
        let case = case(&[], &buffers);
        let found = case.rooms.plan(&[PlacementOrder::Size], u64::MAX).expect("well formed");
        let alone = plan_in_order(case.rooms.problem(), PlacementOrder::Size).expect("well formed");
        let offsets: PrimaryMap<BufferId, Offset> = alone.offsets;
        prop_assert_eq!(found.map(|p| (p.peak, p.offsets)), Some((alone.peak, offsets)));
    }
}

/// Two rooms, of which the second is free up to time 4 and the first from time 4 on.
fn two_rooms() -> (Rooms, [BufferId; 2]) {
    let mut rooms = Rooms::new(64, 10);
    let first = rooms.room(100).expect("small");
    let second = rooms.room(256).expect("small");
    let residents = [rooms.resident(first, 0..4, 100), rooms.resident(second, 4..10, 256)];
    (rooms, residents)
}

fn planned(rooms: &Rooms) -> Packing {
    let packing = rooms.plan(&PlacementOrder::ALL, u64::MAX).expect("is well formed");
    let packing = packing.expect("is below");
    assert_eq!(check_offsets(rooms.problem(), &packing.offsets), Ok(packing.peak));
    packing
}

#[test]
fn buffers_are_in_rooms_while_these_are_free() {
    let (mut rooms, _) = two_rooms();
    let early = rooms.push(0..4, 256);
    let late = rooms.push(4..9, 64);
    let large = rooms.push(1..3, 320);
    let across = rooms.push(3..5, 64);
    let packing = planned(&rooms);
    let at = |id| rooms.find(packing.offsets[id]);
    assert_eq!(at(early), Location::Room(1, Offset(0)));
    assert_eq!(at(late), Location::Room(0, Offset(0)));
    assert_eq!(at(large), Location::Arena(Offset(0)));
    assert!(matches!(at(across), Location::Arena(_)));
    assert_eq!(rooms.arena(packing.peak), 320);
    // At time 2 there are 576 bytes to place and 284 of rooms are free.
    assert!(rooms.plan(&PlacementOrder::ALL, 292).expect("is well formed").is_none());
}

#[test]
fn no_buffer_reaches_from_room_to_room() {
    let mut rooms = Rooms::new(64, 10);
    for _ in 0..2 {
        rooms.room(100).expect("small");
    }
    // The first two are more than a room has, to its next aligned byte and beyond.
    for (bytes, place) in [(101, None), (192, None), (100, Some(0))] {
        let id = rooms.push(0..9, bytes);
        let packing = planned(&rooms);
        let found = match rooms.find(packing.offsets[id]) {
            Location::Room(room, _) => Some(room),
            Location::Arena(_) => None,
        };
        assert_eq!(found, place, "{bytes}");
    }
}

#[test]
fn what_is_only_in_the_arena_is_there() {
    let (mut rooms, _) = two_rooms();
    let here = rooms.push_in_arena(0..3, 64);
    let there = rooms.push(0..3, 64);
    let packing = planned(&rooms);
    assert_eq!(rooms.find(packing.offsets[here]), Location::Arena(Offset(0)));
    assert_eq!(rooms.find(packing.offsets[there]), Location::Room(1, Offset(0)));
    let (apart, address) = (Offset(64), rooms.address(Offset(64)));
    assert_eq!(rooms.find(address), Location::Arena(apart));
}

#[test]
fn a_resident_may_be_in_place_of_a_buffer() {
    let (mut rooms, [_, result]) = two_rooms();
    let parent = rooms.push(1..5, 256);
    assert!(matches!(rooms.find(planned(&rooms).offsets[parent]), Location::Arena(_)));
    rooms.may_share(result, parent);
    let packing = planned(&rooms);
    assert_eq!(rooms.find(packing.offsets[parent]), Location::Room(1, Offset(0)));
}

#[test]
fn too_many_bytes_are_refused() {
    let mut rooms = Rooms::new(64, 1);
    rooms.room(1 << 61).expect("can be counted");
    assert!(matches!(rooms.room(u64::MAX), Err(PlanError::TooLarge { .. })));
}
