//! The places where the elements of a stage are asked for, by number.
//!
//! Most values of a stage are asked for where others are. So a place is compared once, and its number after that.

use super::emit::ElementRef;
use hashbrown::HashMap;
use std::rc::Rc;

/// The number of a place in a stage.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PlaceNumber(u32);

/// The places of a stage, each with its number.
#[derive(Default)]
pub(super) struct StagePlaces {
    all: Vec<Rc<ElementRef>>,
    numbers: HashMap<Rc<ElementRef>, PlaceNumber>,
}

impl StagePlaces {
    /// The number of a place, in undivided atoms.
    pub(super) fn number(&mut self, at: ElementRef) -> PlaceNumber {
        if let Some(&known) = self.numbers.get(&at) {
            return known;
        }
        let (at, number) = (Rc::new(at), PlaceNumber(self.all.len() as u32));
        self.all.push(Rc::clone(&at));
        self.numbers.insert(at, number);
        number
    }

    /// The place of a number.
    pub(super) fn at(&self, number: PlaceNumber) -> &Rc<ElementRef> {
        &self.all[number.0 as usize]
    }
}
