//! Tests that decide at run time whether they can run: a skipped test counts as ignored, with its reason.
//!
//! The standard harness has no such outcome, so these tests are trials of libtest-mimic. A function in none of the
//! lists is dead code, which lints refuse.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::process::ExitCode;

/// Why a test did not run, or not all of it.
#[derive(Debug)]
pub(crate) struct Skipped(pub(crate) String);

/// What a test gives.
pub(crate) trait Verdict {
    fn completion(self) -> Completion;
}

impl Verdict for () {
    fn completion(self) -> Completion {
        Completion::Completed
    }
}

impl Verdict for Result<(), Skipped> {
    fn completion(self) -> Completion {
        match self {
            Ok(()) => Completion::Completed,
            Err(Skipped(why)) => Completion::ignored_with(why),
        }
    }
}

/// A test; a panic in it is a failure.
pub(crate) fn trial<V: Verdict + 'static>(name: &str, test: fn() -> V) -> Trial {
    let run = move || -> Result<Completion, Failed> { Ok(test().completion()) };
    Trial::ignorable_test(name, run)
}

/// Runs them as the command line asks.
pub(crate) fn run(trials: Vec<Trial>) -> ExitCode {
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Tests by their paths, which are their names.
macro_rules! trials {
    ($($test:path),* $(,)?) => {
        vec![$($crate::trials::trial(stringify!($test), $test)),*]
    };
}
pub(crate) use trials;
