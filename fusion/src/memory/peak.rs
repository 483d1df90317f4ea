//! The peak: the step at which the most bytes are live, and what lives then. A result is live from the step on that
//! writes it: before, its array is for temporaries.

use super::size::bytes;
use adfuse_ir::kernel::{Buffer, Program, Role, lives};

/// A moment of a run.
pub(crate) struct LiveSet {
    /// The step that runs.
    pub(crate) step: usize,
    /// The buffers that are there meanwhile, in their order.
    pub(crate) there: Vec<Buffer>,
}

/// The first moment at which the most bytes are in use; `None` where there are no steps.
pub(crate) fn fullest(program: &Program, scratch: &[u64]) -> Option<LiveSet> {
    let lives = lives(program);
    let end = program.steps.len();
    // What is there for some of the time only: its first step and the end.
    let some = |b: Buffer| match (&program.buffers[b].role, lives[b]) {
        (Role::Temp, Some((from, last))) => Some((from, last + 1)),
        (Role::Output, Some((from, _))) => Some((from, end)),
        (Role::Temp, None) => Some((end, end)),
        _ => None,
    };
    let there = |b: Buffer, n: usize| some(b).is_none_or(|(from, end)| from <= n && n < end);
    let mut changes = vec![0i128; end + 1];
    for b in program.buffers.keys() {
        if let Some((from, end)) = some(b) {
            changes[from] += i128::from(size(program, b));
            changes[end] -= i128::from(size(program, b));
        }
    }
    let (mut most, mut now) = (None, 0);
    for (n, change) in changes.iter().enumerate().take(program.steps.len()) {
        now += change;
        let all = now + i128::from(scratch.get(n).copied().unwrap_or(0));
        if most.is_none_or(|(most, _)| all > most) {
            most = Some((all, n));
        }
    }
    let (_, step) = most?;
    Some(LiveSet { step, there: program.buffers.keys().filter(|&b| there(b, step)).collect() })
}

/// The largest buffer at the moment at which the most bytes are in use.
pub(crate) fn binding(program: &Program, scratch: &[u64]) -> Option<String> {
    // Without steps all is there all the time.
    let all = || program.buffers.keys().collect();
    let here = fullest(program, scratch).map_or_else(all, |moment| moment.there);
    let largest = here.into_iter().max_by_key(|&b| (size(program, b), std::cmp::Reverse(b)))?;
    Some(program.buffers[largest].name.clone())
}

fn size(program: &Program, b: Buffer) -> u64 {
    bytes(&program.buffers[b]).unwrap_or(0)
}
