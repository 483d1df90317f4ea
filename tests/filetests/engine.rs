//! The engines that `run` tests go through. A new engine is one more row here.

use adfuse::backends::Array;
use adfuse::backends::reference::{self, Effects};
use adfuse::ir::{Diagnostic, Function, Module};

/// How one engine runs a function: arguments in, results and what was printed out.
pub(crate) type Run =
    fn(&Module, &Function, &[Array], &mut dyn Effects) -> Result<Vec<Array>, Diagnostic>;

/// An engine by its name in directives.
pub(crate) struct Engine {
    /// As in `engines=..`.
    pub(crate) name: &'static str,
    /// How it runs.
    pub(crate) run: Run,
}

/// All engines. The first defines the values; the others must give the same.
pub(crate) const ENGINES: &[Engine] = &[Engine { name: "reference", run: reference::run }];

/// Keeps what `debug_print` writes.
#[derive(Default)]
pub(crate) struct Recorded(pub(crate) Vec<(String, Array)>);

impl Effects for Recorded {
    fn print(&mut self, label: &str, value: &Array) {
        self.0.push((label.to_string(), value.clone()));
    }
}
