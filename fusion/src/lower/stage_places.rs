//! The places where the elements of a stage are asked for, by number.
//!
//! Most values of a stage are asked for where others are. So a place is compared once, and its number after that.

use crate::analysis::axes::TensorAxes;
use crate::analysis::index_columns::Index;
use adfuse_ir::index::Guard;
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::rc::Rc;

/// Where an element is asked for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ElementRef {
    /// At the coordinates of these axes.
    Place(TensorAxes),
    /// At these coordinates, where the guards hold; what is given elsewhere is of no matter.
    Index(Index, SmallVec<[Guard; 2]>),
}

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
