//! How a training step is measured, the same for every peer in Rust.

use std::error::Error;
use std::fs;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Steps a model for as long as the second argument of the process says, in seconds, and prints a
/// line of JSON. A step returns its loss, so that it is over when the call returns.
///
/// # Errors
///
/// Those of a step, and arguments that are not `MODEL SECONDS STARTED` with the time at which
/// the process was started, in nanoseconds since 1970.
pub fn run<E: Into<Box<dyn Error>>>(
    mut step: impl FnMut() -> Result<f32, E>,
) -> Result<(), Box<dyn Error>> {
    let first_loss = step().map_err(Into::into)?;
    let started: u128 = argument(3)?.parse()?;
    let first_ms = (SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() - started) as f64 / 1e6;
    let seconds = Duration::from_secs_f64(argument(2)?.parse()?);
    let (begin, mut samples, mut loss) = (Instant::now(), Vec::new(), first_loss);
    while samples.len() < 5 || begin.elapsed() < seconds {
        let at = Instant::now();
        loss = step().map_err(Into::into)?;
        samples.push(at.elapsed().as_secs_f64() * 1e3);
    }
    samples.sort_by(f64::total_cmp);
    let (least, median) = (samples[0], samples[samples.len() / 2]);
    let peak = peak_mib()?;
    println!(
        "{{\"first_ms\": {first_ms:.2}, \"least_ms\": {least:.4}, \"median_ms\": {median:.4}, \
         \"steps\": {}, \"peak_mib\": {peak:.1}, \"loss\": [{first_loss}, {loss}]}}",
        samples.len() + 1
    );
    Ok(())
}

/// An argument of this process.
///
/// # Errors
///
/// If there are fewer.
pub fn argument(place: usize) -> Result<String, Box<dyn Error>> {
    Ok(std::env::args().nth(place).ok_or("usage: MODEL SECONDS STARTED")?)
}

/// Numbers from -1 to 1, the same in every run.
pub fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Classes from 0 to below `classes`, the same in every run.
pub fn classes(count: usize, classes: u32, seed: u64) -> Vec<u32> {
    let scale = |v: f32| ((v + 1.0) / 2.0 * classes as f32) as u32;
    numbers(count, seed).into_iter().map(|v| scale(v).min(classes - 1)).collect()
}

/// The most memory that this process held, in MiB.
fn peak_mib() -> Result<f64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}
