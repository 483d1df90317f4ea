//! Engines by the names that `--engine` accepts.

use super::failure::Failure;
use super::values::whole;
use adfuse::backends::limits::RunLimits;
use adfuse::engine::registry::{NamedEngine, Request};
use adfuse::engine::{Gpu, Session, Settings};
use adfuse::ir::{Diagnostic, Kind};
use clap::Args;

/// The engine that memory is counted for.
#[derive(Args)]
pub(super) struct CountedOn {
    /// Price and count as this engine does: cpu, gpu or gpu:N. Without a GPU on this host, as on an h200. The
    /// default is the engine of the machine that is planned for
    #[arg(long, value_name = "ENGINE", value_parser = machine)]
    pub(super) engine: Option<NamedEngine>,
}

/// The engine that is measured.
#[derive(Args)]
pub(super) struct MeasuredOn {
    /// The engine to measure on: cpu, gpu or gpu:N
    #[arg(long, value_name = "ENGINE", default_value = "cpu", value_parser = machine)]
    pub(super) engine: NamedEngine,
}

/// How far programs may go.
#[derive(Args)]
pub(super) struct TripLimit {
    /// The most steps that one loop may take; a loop that takes more is an error
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=u64::MAX))]
    max_trips: Option<u64>,
}

impl TripLimit {
    /// The limits of a run.
    pub(super) fn limits(&self) -> RunLimits {
        self.max_trips.map_or_else(RunLimits::default, |max_trips| RunLimits { max_trips })
    }
}

/// The seed of what is random.
#[derive(Args)]
pub(super) struct SeedArg {
    /// The seed of random inputs
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>(0..=u64::MAX))]
    pub(super) seed: u64,
}

/// Reads an engine's name.
pub(super) fn machine(text: &str) -> Result<NamedEngine, String> {
    text.parse()
}

/// An engine that plans, opened; `None` for one that does not.
pub(super) fn session(
    named: NamedEngine,
    settings: Settings,
    request: &Request,
) -> Result<Option<Session>, Failure> {
    let Some(open) = named.row.open else { return Ok(None) };
    let backend = open(request).map_err(unusable)?;
    Ok(Some(Session { settings, backend }))
}

/// The engine on a GPU.
pub(super) fn gpu(number: u32) -> Result<Gpu, Failure> {
    Gpu::open(number).map_err(unusable)
}

/// What is not there to be used is no fault of the program.
fn unusable(d: Diagnostic) -> Failure {
    match d.kind {
        Kind::NoDevice => Failure::Usage(d.hint("`--engine cpu` runs on this machine")),
        _ => Failure::Usage(d),
    }
}
