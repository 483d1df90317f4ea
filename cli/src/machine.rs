//! Engines by the names that `--engine` accepts.

use super::failure::Failure;
use adfuse::engine::registry::{NamedEngine, Request};
use adfuse::engine::{Gpu, Session, Settings};
use adfuse::ir::{Diagnostic, Kind};

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
