//! A lower bound on what a program takes, without planning its memory.

use super::size::bytes;
use super::step_uses::StepUses;
use crate::lower::linked::LinkedProgram;
use adfuse_ir::kernel::{Program, Role};

/// Bytes that a program takes at the least, whatever the engine divides its steps into and wherever buffers are: inputs
/// and constants, and what steps before some moment leave for steps after it. Results count all the time, where no
/// donated input may have them.
pub(crate) fn least_peak(program: &Program) -> u64 {
    least_peak_of(program, program)
}

/// As [`least_peak`], for a program that is not written out.
pub(crate) fn least_linked_peak(program: &LinkedProgram) -> u64 {
    least_peak_of(&program.frame, program)
}

fn least_peak_of(program: &Program, uses: &dyn StepUses) -> u64 {
    let lives = uses.lives();
    let steps = uses.steps();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::greedy::plan_at;
    use crate::lower::lowered;
    use crate::memory::memory;
    use crate::plan::machine_model::MachineModel;
    use crate::plan::options::{Effort, PlanOptions};
    use adfuse_ir::Fp;
    use adfuse_ir::text::parse;

    /// A chain whose values are live at different times, and a result that is read again.
    const CHAIN: &str = "func @f(%x: f32[1000], %y: f32[500]) -> (f32[1000], f32[]) {
  %a = sin %x : f32[1000]
  %r = exp %a : f32[1000]
  %b = slice %r {start = [0], limit = [500], stride = [1]} : f32[500]
  %c = add %b, %y : f32[500]
  %d = mul %c, %c : f32[500]
  %e = reduce_sum %d {axes = [0]} : f32[]
  return %r, %e
}";

    #[test]
    fn no_program_takes_less() {
        let module = parse(CHAIN).expect("parses");
        let f = module.find("f").expect("it");
        for effort in [Effort::Off, Effort::Quick, Effort::Default] {
            let options = PlanOptions { device: MachineModel::cpu(), effort, fp: Fp::Strict };
            let plan = plan_at(f, &options, 0.0, &[]).expect("has a plan");
            for donated in [&[][..], &[0], &[0, 1]] {
                let plan = plan.clone().donating(donated);
                let program = lowered(f, &plan, &options.device).expect("has a program");
                let (least, peak) = (least_peak(&program), memory(&program, effort));
                let peak = peak.expect("has a layout").peak;
                assert!(least <= peak, "{effort:?} {donated:?}: {least}, {peak}");
                // Inputs and results at the least; it is close where there is a kernel for each instruction.
                if donated.is_empty() {
                    assert!(least >= 10_004 && peak - least <= 4096, "{least}, {peak}");
                }
            }
        }
    }
}
