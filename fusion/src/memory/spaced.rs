//! Memory for steps that an engine runs at the same time: what one of them uses is used for nothing else for some steps more,
//! where that does not raise the peak.

use super::layout::Memory;
use super::planned;
use super::size::bytes;
use super::step_uses::StepUses;
use crate::plan::options::Effort;
use adfuse_ir::Diagnostic;
use adfuse_ir::kernel::{
    Buffer, InPlace, Lives, Program, Role, Space, SpacedSteps, lives, spaced_lives, spaced_until,
};
use std::ops::Range;

/// For how many steps memory is kept: the first that fits is taken.
const APART: [usize; 5] = [16, 8, 4, 2, 1];

/// How many times less memory is apart where a packing turns out too large: each takes as long as planning the memory.
const LESS: usize = 4;

/// As [`memory_apart`](super::memory_apart), for an engine that runs the steps of these ranges at the same time: what they use is
/// apart. The peak is not above that of `plain`, whose memory is used again at once, and ranges in which it would be are left
/// as they are; `None` where no range can be other.
///
/// # Errors
/// As there.
pub fn memory_spaced(
    program: &Program,
    effort: Effort,
    (scratch, reads_again): (&[u64], &[bool]),
    ranges: &[Range<usize>],
    plain: &Memory,
) -> Result<Option<Memory>, Diagnostic> {
    if effort == Effort::Off || ranges.is_empty() {
        return Ok(None);
    }
    let live = LiveBytes::new(program, scratch);
    let mut spaced = live.spaced(ranges);
    // What is live says the least that an arena takes: packed, it may take more.
    while !spaced.is_empty() {
        let uses = SpacedProgram { program, spaced: &spaced };
        let found = planned((program, &uses), effort, (scratch, reads_again), true, None)?;
        if found.peak <= plain.peak && found.arena <= plain.arena {
            return Ok(Some(Memory { apart: spaced, ..found }));
        }
        spaced.iter_mut().for_each(|range| range.apart /= LESS);
        spaced.retain(|range| range.apart > 0);
    }
    Ok(None)
}

/// A program whose steps keep their memory for longer.
struct SpacedProgram<'a> {
    program: &'a Program,
    spaced: &'a [SpacedSteps],
}

impl StepUses for SpacedProgram<'_> {
    fn steps(&self) -> usize {
        StepUses::steps(self.program)
    }

    fn lives(&self) -> Lives {
        spaced_lives(self.program.lives(), self.spaced)
    }

    fn scratch_until(&self, n: usize) -> usize {
        spaced_until(self.spaced, n)
    }

    fn in_place(
        &self,
        n: usize,
        dies: &dyn Fn(Buffer) -> bool,
        made: &dyn Fn(Buffer) -> bool,
    ) -> Vec<InPlace> {
        self.program.in_place(n, dies, made)
    }
}

/// What is live at each step of a program.
struct LiveBytes<'a> {
    program: &'a Program,
    scratch: &'a [u64],
    lives: Lives,
    /// The most at any step.
    most: u64,
}

impl LiveBytes<'_> {
    fn new<'a>(program: &'a Program, scratch: &'a [u64]) -> LiveBytes<'a> {
        let mut live = LiveBytes { program, scratch, lives: lives(program), most: 0 };
        live.most = live.within(&[], 0..program.steps.len());
        live
    }

    /// Ranges with the longest time for which their memory may be apart, each by itself; those without are left out.
    fn spaced(&self, ranges: &[Range<usize>]) -> Vec<SpacedSteps> {
        let longest = |steps: &Range<usize>| {
            APART.into_iter().find_map(|apart| {
                let range = SpacedSteps { steps: steps.clone(), apart };
                let fits = self.within(std::slice::from_ref(&range), steps.clone()) <= self.most;
                fits.then_some(range)
            })
        };
        ranges.iter().filter_map(longest).collect()
    }

    /// The most bytes that are live at any of these steps.
    fn within(&self, spaced: &[SpacedSteps], steps: Range<usize>) -> u64 {
        let end = self.program.steps.len();
        let mut changes = vec![0i128; end + 1];
        let mut add = |from: usize, last: usize, size: u64| {
            changes[from] += i128::from(size);
            changes[(last + 1).min(end)] -= i128::from(size);
        };
        for (b, data) in self.program.buffers.iter() {
            let Some((from, last)) = self.lives[b] else { continue };
            let size = bytes(data).unwrap_or(0);
            match data.role {
                Role::Temp if data.space == Space::Device => {
                    add(from, spaced_until(spaced, last), size);
                }
                Role::Output => add(from, end, size),
                _ => {}
            }
        }
        for (n, &size) in self.scratch.iter().enumerate().take(end) {
            add(n, spaced_until(spaced, n), size);
        }
        let (mut most, mut now) = (0, 0);
        for (n, change) in changes.iter().enumerate().take(steps.end) {
            now += change;
            if steps.contains(&n) {
                most = now.max(most);
            }
        }
        u64::try_from(most).unwrap_or(0)
    }
}
