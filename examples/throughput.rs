//! Takes steps of a model, and prints its loss and how many examples a second it learns from.

use crate::common::ExampleFlags;
use adfuse::backends::Array;
use adfuse::ir::Diagnostic;
use adfuse::nn::{Param, trained_elements};
use adfuse::prelude::*;
use adfuse::train::TrainStep;
use std::time::Instant;

/// A run of steps.
pub(crate) struct Throughput<'a> {
    pub(crate) flags: &'a ExampleFlags,
    /// The number of steps.
    pub(crate) steps: u64,
    /// What a batch has, such as `images`, and how many of them.
    pub(crate) items: (&'static str, u64),
    /// Whether it prints the program of a step, and takes none.
    pub(crate) print_step: bool,
}

impl Throughput<'_> {
    /// Takes the steps, each on the next batch.
    ///
    /// # Errors
    /// Those of a step.
    pub(crate) fn run<M: Params<Param>, B: Params<Tensor>>(
        &self,
        step: &TrainStep<M, B, Tensor>,
        batches: impl IntoIterator<Item = B::With<Array>>,
    ) -> Result<(), Diagnostic> {
        let (what, batch) = self.items;
        let mut state = step.init(self.flags.device()?, self.flags.seed)?;
        let every = (self.steps / 10).max(1);
        let mut since = Instant::now();
        for (k, values) in (1..=self.steps).zip(batches) {
            if self.print_step {
                println!("{}", state.traced(&values)?.function());
                return Ok(());
            }
            let queued = state.queue(&values)?;
            // Reading a loss waits for its step.
            if k != 1 && k % every != 0 && k != self.steps {
                continue;
            }
            let loss = queued.report()?;
            let seconds = since.elapsed().as_secs_f64();
            if k > 1 {
                let rate = ((k - 1) * batch) as f64 / seconds;
                println!("step {k:5}, loss {loss:.4}, {rate:.0} {what}/s");
                continue;
            }
            println!("{} parameters", trained_elements(step.model()));
            println!("step     1, loss {loss:.4}, compiled in {seconds:.2} s");
            let budget = self.flags.mem_budget().map(|bytes| format!(" of {} KiB", bytes >> 10));
            println!("a step takes {} KiB{}", state.peak_bytes() >> 10, budget.unwrap_or_default());
            since = Instant::now();
        }
        Ok(())
    }
}
