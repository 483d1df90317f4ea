//! The loop over epochs and batches: progress, metrics, a log, checkpoints, interrupts and resuming.

use super::interrupt;
use super::log::EpochLog;
use super::metrics::Metrics;
use super::objective::Objective;
use super::state::TrainState;
use crate::backends::Array;
use crate::ir::{At, Diagnostic, Kind};
use crate::nn::Param;
use crate::trace::Tensor;
use crate::tree::Params;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::path::PathBuf;

/// A loop over epochs.
///
/// On a terminal it shows a progress bar; after each epoch it prints the metrics to standard error. Ctrl-C ends it after the present step, when the
/// checkpoint has been written.
///
/// ```no_run
/// use adfuse::data::Dataset;
/// use adfuse::nn::Linear;
/// use adfuse::optim::Adam;
/// use adfuse::prelude::*;
/// use adfuse::train::Trainer;
///
/// let data = Dataset::new((Array::from_vec(vec![0f32; 640], [64, 10])?, Array::from_vec(vec![0i32; 64], [64])?))?;
/// let step = adfuse::train_step(Adam::new(1e-3), Linear::new(10, 3), |net: &Linear, (x, y): (Tensor, Tensor)| {
///     net.apply(x).cross_entropy(&y)
/// });
/// let mut state = step.init(Device::cpu(), 0)?;
/// Trainer::new(10).log("log.csv").checkpoint("linear.safetensors").run(
///     &mut state,
///     |epoch| data.shuffled(0).epoch(epoch).batches(16),
///     |_, metrics| { metrics.set("examples", data.len() as f64); Ok(()) },
/// )?;
/// # Ok::<(), Diagnostic>(())
/// ```
#[derive(Clone, Debug)]
pub struct Trainer {
    epochs: u64,
    log: Option<PathBuf>,
    checkpoint: Option<PathBuf>,
    every: Option<u64>,
    quiet: bool,
}

fn usage(m: &str) -> Diagnostic {
    Diagnostic::new(At::default(), Kind::Usage, m)
}

/// How a loop ended.
#[derive(Clone, Debug)]
pub struct TrainOutcome {
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// The number of epochs that are complete.
    pub epochs: u64,
    /// The metrics of the last of those that this loop went through.
    pub metrics: Metrics,
}

/// Whether there was an interrupt, on any rank: all of them end after the same step.
fn interrupted<M: Params<Param>, B: Params<Tensor>, R: Objective>(
    state: &TrainState<M, B, R>,
) -> Result<bool, Diagnostic> {
    state.device().group().on_any(interrupt::taken())
}

impl Trainer {
    /// A loop over this many epochs, those before the state included.
    pub fn new(epochs: u64) -> Trainer {
        Trainer { epochs, log: None, checkpoint: None, every: None, quiet: false }
    }

    /// With a CSV file to which each epoch adds a line: the epoch, the steps, the metrics. The first epoch's metrics are its columns.
    #[must_use]
    pub fn log(self, path: impl Into<PathBuf>) -> Trainer {
        Trainer { log: Some(path.into()), ..self }
    }

    /// With a file for the state ([`TrainState::save`]), written after each epoch and when the loop is interrupted.
    #[must_use]
    pub fn checkpoint(self, path: impl Into<PathBuf>) -> Trainer {
        Trainer { checkpoint: Some(path.into()), ..self }
    }

    /// With the checkpoint written after every `steps` steps too.
    #[must_use]
    pub fn checkpoint_every(self, steps: u64) -> Trainer {
        Trainer { every: Some(steps.max(1)), ..self }
    }

    /// Without a progress bar and lines on standard error.
    #[must_use]
    pub fn quiet(self) -> Trainer {
        Trainer { quiet: true, ..self }
    }

    /// Trains. `batches` gives those of an epoch, counted from 0: all epochs have the same number. A state that has gone some steps already goes on
    /// from there, in the middle of an epoch if it was interrupted there. `each` is called after each epoch with metrics that have the mean `loss`;
    /// what it adds is printed and logged too.
    ///
    /// # Errors
    /// Those of steps, of `each`, and of files.
    pub fn run<M, B, R, I>(
        &self,
        state: &mut TrainState<M, B, R>,
        batches: impl Fn(u64) -> I,
        each: impl FnMut(&TrainState<M, B, R>, &mut Metrics) -> Result<(), Diagnostic>,
    ) -> Result<TrainOutcome, Diagnostic>
    where
        M: Params<Param>,
        B: Params<Tensor>,
        R: Objective,
        I: Iterator<Item = B::With<Array>>,
    {
        // All ranks see the same: the first tells of it.
        let first = state.device().group().rank() == 0;
        let log = self.log.clone().filter(|_| first);
        Trainer { quiet: self.quiet || !first, log, ..self.clone() }.epochs(state, batches, each)
    }

    fn epochs<M, B, R, I>(
        &self,
        state: &mut TrainState<M, B, R>,
        batches: impl Fn(u64) -> I,
        mut each: impl FnMut(&TrainState<M, B, R>, &mut Metrics) -> Result<(), Diagnostic>,
    ) -> Result<TrainOutcome, Diagnostic>
    where
        M: Params<Param>,
        B: Params<Tensor>,
        R: Objective,
        I: Iterator<Item = B::With<Array>>,
    {
        let _watch = interrupt::watch();
        let mut outcome =
            TrainOutcome { interrupted: false, epochs: 0, metrics: Metrics::default() };
        let length = match batches(0).size_hint() {
            (n, Some(most)) if n == most && n > 0 => n as u64,
            (0, Some(0)) => return Err(usage("an epoch of no batches")),
            _ => return Err(usage("batches whose number is not known before")),
        };
        let mut log = self.log.as_deref().map(EpochLog::new);
        outcome.epochs = state.steps() / length;
        while outcome.epochs < self.epochs {
            let mut metrics = Metrics::default();
            let bar = self.bar(outcome.epochs, length);
            let begun = state.steps() % length;
            for batch in batches(outcome.epochs).skip(begun as usize) {
                let report = state.step(&batch)?;
                metrics.mean("loss", R::loss(&report));
                bar.set_position(state.steps() % length);
                if !bar.is_hidden() {
                    bar.set_message(metrics.to_string());
                }
                // An epoch that is over ends as all do: its metrics are logged.
                if state.steps().is_multiple_of(length) {
                    continue;
                }
                if interrupted(state)? {
                    bar.finish_and_clear();
                    self.save(state)?;
                    return Ok(self.interrupted(state, outcome));
                }
                if self.every.is_some_and(|n| state.steps().is_multiple_of(n)) {
                    self.save(state)?;
                }
            }
            bar.finish_and_clear();
            outcome.epochs += 1;
            each(state, &mut metrics)?;
            self.say(&format!("epoch {}: {metrics}", outcome.epochs));
            if let Some(log) = &mut log {
                log.add(outcome.epochs, state.steps(), &metrics)?;
            }
            self.save(state)?;
            outcome.metrics = metrics;
            if outcome.epochs < self.epochs && interrupted(state)? {
                return Ok(self.interrupted(state, outcome));
            }
        }
        Ok(outcome)
    }

    fn interrupted<M: Params<Param>, B: Params<Tensor>, R: Objective>(
        &self,
        state: &TrainState<M, B, R>,
        outcome: TrainOutcome,
    ) -> TrainOutcome {
        self.say(&format!("interrupted after {} steps", state.steps()));
        TrainOutcome { interrupted: true, ..outcome }
    }

    fn save<M: Params<Param>, B: Params<Tensor>, R: Objective>(
        &self,
        state: &TrainState<M, B, R>,
    ) -> Result<(), Diagnostic> {
        self.checkpoint.as_ref().map_or(Ok(()), |path| state.save(path))
    }

    /// A line on standard error; nobody is told where that is closed.
    fn say(&self, line: &str) {
        if !self.quiet {
            let _ = writeln!(std::io::stderr().lock(), "{line}");
        }
    }

    /// A bar on a terminal, nothing elsewhere.
    fn bar(&self, epoch: u64, length: u64) -> ProgressBar {
        if self.quiet {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::new(length);
        let form =
            format!("epoch {}/{} {{bar:30}} {{pos}}/{{len}} {{msg}}", epoch + 1, self.epochs);
        if let Ok(style) = ProgressStyle::with_template(&form) {
            bar.set_style(style);
        }
        bar
    }
}
