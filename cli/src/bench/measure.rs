//! Samples: the step, its comparison and a copy, alternating.

use super::copy::CopyBenchmark;
use super::spread::SampleStats;
use super::subject::Subject;
use adfuse::backends::{Array, RankGroup};
use adfuse::ir::Diagnostic;
use std::time::{Duration, Instant};

/// What was measured.
pub(super) struct Measures {
    /// Seconds of a step, of each subject.
    pub(super) steps: Vec<SampleStats>,
    /// Bytes a second of the copy.
    pub(super) copy: SampleStats,
    /// What the copy reads and writes.
    pub(super) copied: u64,
    /// How much longer the second subject takes than the first, by pairs of samples.
    pub(super) ratio: Option<SampleStats>,
    /// How many samples each has.
    pub(super) samples: usize,
}

/// How long a sample takes at least, unless one step takes longer.
const SAMPLE: f64 = 2e-4;

/// Steps of a sample at most.
const MOST_STEPS: f64 = 10_000.0;

/// Fewer samples say nothing about their spread; more are not kept.
const SAMPLES: std::ops::Range<usize> = 5..100_000;

/// How long samples of one kind follow each other before those of the next.
const TURN: f64 = 5e-3;

/// Turns that fit the time at least, were there one subject.
const TURNS: f64 = 20.0;

/// Samples of a turn, at most.
const MOST_OF_TURN: f64 = 16.0;

/// The part of the time that goes to warming up.
const WARM: f64 = 0.1;

/// Takes samples for so long. Ranks take as many each: rank 0 decides.
pub(super) fn measured(
    subjects: &mut [Subject],
    args: &[Array],
    threads: usize,
    (least, ranks): (Duration, &RankGroup),
) -> Result<Measures, Diagnostic> {
    let working_set = subjects.first().map_or(0, |s| s.made.executable.memory().peak());
    let mut copy = CopyBenchmark::new(working_set, threads)?;
    let mut times = Vec::new();
    let mut longest = 0f64;
    for subject in subjects.iter_mut() {
        subject.first(args)?;
        let begin = Instant::now();
        let mut fastest = subject.run(args, 1)?;
        while goes_on(ranks, begin.elapsed() < least.mul_f64(WARM))? {
            fastest = fastest.min(subject.run(args, 1)?);
        }
        times.push(ranks.of_first(often(fastest).into())? as u32);
        longest = longest.max(fastest * f64::from(often(fastest)));
    }
    // There are several turns, however short the time is.
    let seconds_of_turn = TURN.min(least.as_secs_f64() / TURNS);
    let turn = (seconds_of_turn / longest.max(1e-9)).clamp(1.0, MOST_OF_TURN) as u64;
    let turn = ranks.of_first(turn)? as usize;
    copy.run(1);
    let copies = often(copy.run(1).as_secs_f64());
    let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); subjects.len()];
    let mut rates = Vec::new();
    let begin = Instant::now();
    while rates.len() < SAMPLES.start
        || rates.len() < SAMPLES.end && goes_on(ranks, begin.elapsed() < least)?
    {
        // Each goes first as often as the other. What came before has taken the cache, which a step of
        // a loop would find as it left it.
        for k in 0..subjects.len() {
            let k = (k + rates.len() / turn) % subjects.len();
            subjects[k].run(args, 1)?;
            for _ in 0..turn {
                seconds[k].push(subjects[k].run(args, times[k])?);
            }
        }
        copy.run(1);
        for _ in 0..turn {
            let took = copy.run(copies).as_secs_f64().max(1e-9);
            rates.push(copy.bytes() as f64 * f64::from(copies) / took);
        }
    }
    let ratio = match seconds.as_slice() {
        [first, second] => {
            let pairs = first.iter().zip(second).filter(|(a, _)| **a > 0.0);
            Some(SampleStats::of(pairs.map(|(a, b)| b / a).collect()))
        }
        _ => None,
    };
    let samples = rates.len();
    let steps = seconds.into_iter().map(SampleStats::of).collect();
    Ok(Measures { steps, copy: SampleStats::of(rates), copied: copy.bytes(), ratio, samples })
}

/// Whether rank 0 goes on: all others do as it does.
pub(super) fn goes_on(ranks: &RankGroup, own: bool) -> Result<bool, Diagnostic> {
    Ok(ranks.of_first(own.into())? != 0)
}

/// How many of what takes so long make a sample.
fn often(seconds: f64) -> u32 {
    (SAMPLE / seconds.max(1e-9)).ceil().clamp(1.0, MOST_STEPS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_a_fifth_of_a_millisecond_or_one_step() {
        assert_eq!([often(1.0), often(1.5e-4), often(0.0)], [1, 2, 10_000]);
    }
}
