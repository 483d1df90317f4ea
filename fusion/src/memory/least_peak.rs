//! A lower bound on what a program takes, without planning its memory.

use super::size::bytes;
use adfuse_ir::kernel::{Program, Role, lives};

/// Bytes that a program takes at the least, whatever the engine divides its steps into and wherever buffers are: inputs
/// and constants, and what steps before some moment leave for steps after it. Results count all the time, where no
/// donated input may have them.
pub(crate) fn least_peak(program: &Program) -> u64 {
    let lives = lives(program);
    let steps = program.steps.len();
    // What comes and goes between a step and the next.
    let mut changes = vec![0i128; steps + 1];
    let (mut given, mut donated, mut results) = (0i128, 0i128, 0i128);
    for (b, data) in program.buffers.iter() {
        let size = i128::from(bytes(data).unwrap_or(0));
        match data.role {
            Role::Input | Role::Constant(_) => {
                given += size;
                donated += if data.donated { size } else { 0 };
                continue;
            }
            Role::Output => results += size,
            Role::Temp => {}
        }
        let Some((from, last)) = lives[b] else { continue };
        changes[from] += size;
        changes[if data.role == Role::Output { steps } else { last }] -= size;
    }
    let mut now = 0;
    let left = changes[..steps].iter().map(|change| {
        now += change;
        now
    });
    let left = left.max().unwrap_or(0);
    let least = given + left.max(results) - donated;
    u64::try_from(least).unwrap_or(if least < 0 { 0 } else { u64::MAX })
}
