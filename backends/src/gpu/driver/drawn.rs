//! What was drawn of a program: graphs of neighbouring steps, and those of turns and branches.

use super::graph::Graph;
use super::overlap::ExchangeOverlap;
use super::turn_frame::TurnKey;
use super::work::Work;
use std::collections::BTreeMap;
use std::ops::Range;

/// What was drawn of a program's steps: neighbours that are launches alone, and loops and branches.
pub(crate) type DrawnParts = Vec<DrawnPart>;

/// What was drawn of neighbouring steps.
pub(crate) enum DrawnPart {
    /// A graph, and whether it is for these places: one that is not is changed.
    Straight(Option<Graph>, bool),
    Loop(BTreeMap<TurnKey, DrawnTurns>),
    Branch(BTreeMap<usize, DrawnParts>),
}

/// What is left of what was drawn for other places: graphs that are changed for new ones.
pub(crate) fn changed(parts: &mut DrawnParts) {
    for part in parts {
        match part {
            DrawnPart::Straight(_, is_fresh) => *is_fresh = false,
            DrawnPart::Loop(known) => known.values_mut().for_each(|turns| match turns {
                DrawnTurns::Graph(_, is_fresh) => *is_fresh = false,
                DrawnTurns::Parts(parts) => changed(parts),
            }),
            DrawnPart::Branch(known) => known.values_mut().for_each(changed),
        }
    }
}

/// Drawn turns.
pub(crate) enum DrawnTurns {
    /// A graph, and whether it is for these places.
    Graph(Option<Graph>, bool),
    /// One turn of a program with loops and branches.
    Parts(DrawnParts),
}

/// Steps next to each other that are one part: none of them but the first waits for an exchange.
pub(crate) fn parts(works: &[Work], overlap: Option<&ExchangeOverlap>) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (n, work) in works.iter().enumerate() {
        let joins = work.is_straight()
            && found.last().is_some_and(|last| works[last.start].is_straight())
            && overlap.is_none_or(|overlap| overlap.waits[n].is_none());
        match found.last_mut() {
            Some(last) if joins => last.end = n + 1,
            _ => found.push(n..n + 1),
        }
    }
    found
}
