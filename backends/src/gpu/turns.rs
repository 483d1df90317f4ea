//! What a loop does one after the other: turns forward, turns back, and copies of what is carried, for every engine that
//! has its turns drawn for places that do not change.
//!
//! Carried values have two places, which turns read and write alternately. A loop with a way back keeps states by the
//! reversal schedule ([`Reversal`]).

use adfuse_ir::kernel::{Reversal, ReversalAction};

/// A place of all that a loop carries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CarryPlace {
    /// Where the values are that the loop begins with.
    Start,
    /// The first of the two places that turns read and write. Of a loop without a way back, and of what is handed back,
    /// it is where the values end.
    First,
    /// The second one.
    Second,
    /// Where the values end, of a loop with a way back.
    End,
    /// A checkpoint.
    Kept(usize),
}

impl CarryPlace {
    /// The one of two places that a turn writes which reads this one.
    #[must_use]
    pub fn other(self) -> CarryPlace {
        match self {
            CarryPlace::First => CarryPlace::Second,
            _ => CarryPlace::First,
        }
    }
}

/// What is done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoopAction {
    /// What is carried forward is copied.
    Copy(CarryPlace, CarryPlace),
    /// What is handed back is copied.
    CopyReturned(CarryPlace, CarryPlace),
    /// Turns forward: the first reads what is carried here and writes the other place, and so on.
    Forward {
        /// The number of the first turn.
        t: u64,
        /// How many turns.
        count: u64,
        /// [`CarryPlace::First`] or [`CarryPlace::Second`].
        from: CarryPlace,
    },
    /// A turn back. It reads the state in [`CarryPlace::First`].
    Back {
        /// The number of the turn.
        t: u64,
        /// Where it reads what is handed back; it writes the other place.
        from: CarryPlace,
    },
}

/// How a loop is turned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoopPlan {
    /// How many steps there are.
    pub trips: u64,
    /// For a loop with a way back, how many states are kept at most.
    pub checkpoints: Option<u64>,
    /// Whether turns forward read the two places alternately. Otherwise each reads the first one, and what it has
    /// written is copied there.
    pub alternate: bool,
    /// The same of turns back.
    pub alternate_back: bool,
}

/// Does one action after the other.
type Act<'a, E> = dyn FnMut(LoopAction) -> Result<(), E> + 'a;

impl LoopPlan {
    /// Hands over all actions of a loop in their order, up to the first error.
    ///
    /// # Errors
    /// The error of an action.
    pub fn each<E>(self, act: &mut Act<'_, E>) -> Result<(), E> {
        act(LoopAction::Copy(CarryPlace::Start, CarryPlace::First))?;
        let Some(checkpoints) = self.checkpoints else {
            let at = self.forward((0, self.trips), CarryPlace::First, act)?;
            return settled(at, act);
        };
        act(LoopAction::CopyReturned(CarryPlace::Start, CarryPlace::First))?;
        if self.trips == 0 {
            return act(LoopAction::Copy(CarryPlace::First, CarryPlace::End));
        }
        self.reverse(checkpoints, act)
    }

    /// Turns forward from one number to before another; where the values are then.
    fn forward<E>(
        self,
        (from, to): (u64, u64),
        at: CarryPlace,
        act: &mut Act<'_, E>,
    ) -> Result<CarryPlace, E> {
        if from == to {
            return Ok(at);
        }
        if self.alternate {
            act(LoopAction::Forward { t: from, count: to - from, from: at })?;
            return Ok(if (to - from).is_multiple_of(2) { at } else { at.other() });
        }
        for t in from..to {
            act(LoopAction::Forward { t, count: 1, from: CarryPlace::First })?;
            act(LoopAction::Copy(CarryPlace::Second, CarryPlace::First))?;
        }
        Ok(CarryPlace::First)
    }

    fn reverse<E>(self, checkpoints: u64, act: &mut Act<'_, E>) -> Result<(), E> {
        let slots = usize::try_from(checkpoints.min(self.trips)).unwrap_or(usize::MAX);
        let mut numbers = vec![0; slots];
        let (mut at, mut returned) = (CarryPlace::First, CarryPlace::First);
        let mut ended = false;
        for action in Reversal::new(self.trips, &mut numbers) {
            match action {
                ReversalAction::Keep(k) => act(LoopAction::Copy(at, CarryPlace::Kept(k)))?,
                ReversalAction::Restore(k) => {
                    at = CarryPlace::First;
                    act(LoopAction::Copy(CarryPlace::Kept(k), at))?;
                }
                ReversalAction::Advance(from, to) => at = self.forward((from, to), at, act)?,
                ReversalAction::Turn(t) => {
                    settled(at, act)?;
                    at = CarryPlace::First;
                    if !ended {
                        // The last step is done for what it gives.
                        act(LoopAction::Forward { t, count: 1, from: at })?;
                        act(LoopAction::Copy(CarryPlace::Second, CarryPlace::End))?;
                        ended = true;
                    }
                    act(LoopAction::Back { t, from: returned })?;
                    returned = returned.other();
                    if !self.alternate_back {
                        act(LoopAction::CopyReturned(CarryPlace::Second, CarryPlace::First))?;
                        returned = CarryPlace::First;
                    }
                }
            }
        }
        match returned {
            CarryPlace::First => Ok(()),
            at => act(LoopAction::CopyReturned(at, CarryPlace::First)),
        }
    }
}

/// Copies what is carried to the first place, where it is not there.
fn settled<E>(at: CarryPlace, act: &mut Act<'_, E>) -> Result<(), E> {
    match at {
        CarryPlace::First => Ok(()),
        at => act(LoopAction::Copy(at, CarryPlace::First)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    /// Follows the actions with numbers of states as values, and lists of turned steps as what is handed back.
    fn followed(plan: LoopPlan) {
        let mut values: BTreeMap<CarryPlace, u64> = BTreeMap::from([(CarryPlace::Start, 0)]);
        let mut returned = BTreeMap::from([(CarryPlace::Start, plan.trips)]);
        let done: Result<(), Infallible> = plan.each(&mut |action| {
            match action {
                LoopAction::Copy(from, to) => {
                    values.insert(to, values[&from]);
                }
                LoopAction::CopyReturned(from, to) => {
                    returned.insert(to, returned[&from]);
                }
                LoopAction::Forward { t, count, from } => {
                    assert!(matches!(from, CarryPlace::First | CarryPlace::Second), "{plan:?}");
                    assert!(plan.alternate || count == 1 && from == CarryPlace::First);
                    let mut at = from;
                    for k in t..t + count {
                        assert_eq!(values[&at], k, "{plan:?}");
                        values.insert(at.other(), k + 1);
                        at = at.other();
                    }
                }
                LoopAction::Back { t, from } => {
                    assert_eq!((values[&CarryPlace::First], returned[&from]), (t, t + 1));
                    assert!(plan.alternate_back || from == CarryPlace::First);
                    returned.insert(from.other(), t);
                }
            }
            Ok(())
        });
        assert!(done.is_ok());
        let end = if plan.checkpoints.is_some() { CarryPlace::End } else { CarryPlace::First };
        assert_eq!(values[&end], plan.trips, "{plan:?}");
        if plan.checkpoints.is_some() {
            assert_eq!(returned[&CarryPlace::First], 0, "{plan:?}");
        }
    }

    #[test]
    fn every_state_is_where_it_is_read() {
        for trips in [0, 1, 2, 3, 4, 7, 8, 20, 33] {
            for checkpoints in [None, Some(1), Some(2), Some(3), Some(5), Some(100)] {
                for (alternate, alternate_back) in
                    [(true, true), (true, false), (false, true), (false, false)]
                {
                    followed(LoopPlan { trips, checkpoints, alternate, alternate_back });
                }
            }
        }
    }
}
