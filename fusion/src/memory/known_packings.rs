//! Packings of memory that are known: plans that are compared, and the layout of the one that is chosen, ask for the same.

use crate::plan::options::Effort;
use adfuse_memplan::{Packing, PlanError, Problem, Rooms};
use std::sync::{Mutex, PoisonError};

/// The last packings that were asked for. They change no answer. Threads that compare plans share them.
#[derive(Debug, Default)]
pub struct KnownPackings {
    alone: AnsweredQuestions<(Problem, Effort)>,
    beside: AnsweredQuestions<Rooms>,
}

/// Packings that are kept of each kind: comparing plans asks again for one of the last few.
const KEPT: usize = 8;

impl KnownPackings {
    /// The packing of an arena with an effort, as `pack` finds it.
    pub(super) fn alone(
        &self,
        problem: Problem,
        effort: Effort,
        pack: impl FnOnce(&Problem) -> Result<Packing, PlanError>,
    ) -> Result<Packing, PlanError> {
        let asked = (problem, effort);
        if let Some(known) = self.alone.find(&asked) {
            return Ok(known);
        }
        let found = pack(&asked.0)?;
        self.alone.keep(asked, &found);
        Ok(found)
    }

    /// The packing of an arena beside rooms, as `pack` finds it; `None` where it is certain that the arena has no less than
    /// `below` bytes.
    pub(super) fn beside(
        &self,
        rooms: &Rooms,
        below: u64,
        pack: impl FnOnce(&Rooms) -> Result<Option<Packing>, PlanError>,
    ) -> Result<Option<Packing>, PlanError> {
        if let Some(known) = self.beside.find(rooms) {
            return Ok((rooms.arena(known.lower_bound) < below).then_some(known));
        }
        let found = pack(rooms)?;
        if let Some(found) = &found {
            self.beside.keep(rooms.clone(), found);
        }
        Ok(found)
    }
}

/// Questions with their answers, the latest last.
#[derive(Debug)]
struct AnsweredQuestions<Q>(Mutex<Vec<(Q, Packing)>>);

impl<Q> Default for AnsweredQuestions<Q> {
    fn default() -> Self {
        AnsweredQuestions(Mutex::default())
    }
}

impl<Q: PartialEq> AnsweredQuestions<Q> {
    fn find(&self, asked: &Q) -> Option<Packing> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, packing) = known.iter().rev().find(|(question, _)| question == asked)?;
        Some(packing.clone())
    }

    fn keep(&self, asked: Q, found: &Packing) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KEPT {
            known.remove(0);
        }
        known.push((asked, found.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_memplan::{PlacementOrder, plan_in_order};

    fn rooms(bytes: u64) -> Rooms {
        let mut rooms = Rooms::new(64, 4);
        rooms.room(64).expect("is small");
        rooms.push(0..4, bytes);
        rooms
    }

    #[test]
    fn what_is_known_is_not_packed_again() {
        let known = KnownPackings::default();
        let pack = |rooms: &Rooms| rooms.plan(&[PlacementOrder::Size], u64::MAX);
        let never = |_: &Rooms| -> Result<Option<Packing>, PlanError> { panic!("is packed again") };
        let found = known.beside(&rooms(128), u64::MAX, pack).expect("is packed");
        let bound = found.as_ref().map_or(0, |found| rooms(128).arena(found.lower_bound));
        assert_eq!(known.beside(&rooms(128), bound + 1, never), Ok(found.clone()));
        assert_eq!(known.beside(&rooms(128), bound, never), Ok(None));
        assert_ne!(known.beside(&rooms(192), u64::MAX, pack), Ok(found));
        let problem = rooms(128).problem().clone();
        let pack = |problem: &Problem| plan_in_order(problem, PlacementOrder::Size);
        let found = known.alone(problem.clone(), Effort::Quick, pack);
        let never = |_: &Problem| -> Result<Packing, PlanError> { panic!("is packed again") };
        assert_eq!(known.alone(problem.clone(), Effort::Quick, never), found);
        assert_eq!(known.alone(problem, Effort::Default, pack), found);
    }
}
