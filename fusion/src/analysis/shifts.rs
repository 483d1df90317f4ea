//! Views that shift coordinates: how many lie between a value and what it is read from.

/// Views that shift coordinates, between a value and what it is made of.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Shifts {
    /// How many lie one upon the other.
    pub(crate) depth: u32,
    /// How many elements an element is made of through them.
    pub(crate) elements: u32,
    /// By how much index expressions grow: a reshape repeats them for each axis.
    pub(crate) terms: u32,
}

impl Shifts {
    /// Whether that is little enough to be written out, or so much as this many times as deep.
    pub(crate) fn are_few(self, times: u32) -> bool {
        let most = MOST_SHIFTED.saturating_pow(times);
        self.depth <= 4 * times && self.elements <= most && self.terms <= most
    }

    /// Whether no plan may write out so much: what is free at first, and what is found to be later. How many elements
    /// there are is counted where they are written out: values shared by several count once there.
    pub(crate) fn are_too_deep(self) -> bool {
        !Shifts { elements: 0, ..self }.are_few(2)
    }
}

/// The most elements that an element is made of through views that are written out.
pub(crate) const MOST_SHIFTED: u32 = 12;
