//! How a training step is measured: the same as of the peers.

use std::error::Error;
use std::fs;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Steps a model for as long as the second argument of the process says, in seconds, and prints a line of JSON. A step
/// returns its loss.
///
/// # Errors
/// Those of a step, and arguments that are not `MODEL SECONDS STARTED` with the time at which the process was started, in
/// nanoseconds since 1970.
#[allow(clippy::print_stdout)]
pub(crate) fn run<E: Into<Box<dyn Error>>>(
    mut step: impl FnMut() -> Result<f64, E>,
) -> Result<(), Box<dyn Error>> {
    let first_loss = step().map_err(Into::into)?;
    let started: u128 = argument(3)?.parse()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let first_ms = now.saturating_sub(started) as f64 / 1e6;
    let seconds = Duration::from_secs_f64(argument(2)?.parse()?);
    let (begin, mut samples, mut loss) = (Instant::now(), Vec::new(), first_loss);
    while samples.len() < 5 || begin.elapsed() < seconds {
        let at = Instant::now();
        loss = step().map_err(Into::into)?;
        samples.push(at.elapsed().as_secs_f64() * 1e3);
    }
    samples.sort_by(f64::total_cmp);
    let (least, median) = (samples[0], samples[samples.len() / 2]);
    println!(
        "{{\"first_ms\": {first_ms:.2}, \"least_ms\": {least:.4}, \"median_ms\": {median:.4}, \
         \"steps\": {}, \"peak_mib\": {:.1}, \"loss\": [{first_loss}, {loss}]}}",
        samples.len() + 1,
        peak_mib()?
    );
    Ok(())
}

/// An argument of this process.
pub(crate) fn argument(place: usize) -> Result<String, Box<dyn Error>> {
    Ok(std::env::args().nth(place).ok_or("usage: models MODEL SECONDS STARTED")?)
}

/// The most memory that this process held, in MiB.
fn peak_mib() -> Result<f64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}
