//! Effects that are kept, so that they can be compared.

use adfuse::backends::{Array, Effects, with_effects};

/// What programs print: labels and values, in order.
#[derive(Default, PartialEq, Debug)]
pub(crate) struct Printed(pub(crate) Vec<(String, Array)>);

impl Effects for Printed {
    fn print(&mut self, label: &str, value: &Array) {
        self.0.push((label.to_string(), value.clone()));
    }
}

/// What comes of a run, and what it prints.
pub(crate) fn printing<T>(run: impl FnOnce() -> T) -> (T, Printed) {
    let mut printed = Printed::default();
    let result = with_effects(&mut printed, run);
    (result, printed)
}
