//! The cost of compiling a program: seconds and bytes of code, before anything is compiled.
//!
//! Engines compile equal steps once ([`StepForm`]). So what counts is the number of functions that the different steps
//! become and the length of their scalar programs, and that each step is laid out, at the rates of the machine.

use super::operations::length;
use crate::plan::machine_model::MachineModel;
use adfuse_ir::kernel::{Feed, Program, Sink, Stage, Step, StepForm};
use hashbrown::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// What it costs to compile a program.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CompileCost {
    /// Steps, equal ones too: each is laid out and launched by itself.
    pub steps: u64,
    /// Functions of different steps.
    pub functions: u64,
    /// Instructions of their scalar programs: primitives, loads and stores.
    pub instructions: u64,
    /// Predicted seconds: whole microseconds, rounded up. So three decimals of a millisecond print them as they are, and what is
    /// printed does as a budget.
    pub seconds: f64,
    /// Predicted bytes of code.
    pub code_bytes: u64,
}

/// The code of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CodeSize {
    functions: u64,
    instructions: u64,
}

/// What tells the code of a step from that of others (`None` for a step that is equal to itself alone), and its
/// functions and instructions.
pub(crate) type CountedCode = (Option<u64>, [u64; 2]);

impl CodeSize {
    fn join(self, other: CodeSize) -> CodeSize {
        CodeSize {
            functions: self.functions.saturating_add(other.functions),
            instructions: self.instructions.saturating_add(other.instructions),
        }
    }

    fn function(instructions: u64) -> CodeSize {
        CodeSize { functions: 1, instructions }
    }

    /// What compiling a program of this code and this many steps costs on a machine.
    pub(crate) fn on(self, steps: usize, device: &MachineModel) -> CompileCost {
        let CodeSize { functions, instructions } = self;
        let of = |each: f64, of_instruction: f64| {
            functions as f64 * each + instructions as f64 * of_instruction
        };
        let seconds = steps as f64 * device.compile_step_s
            + of(device.compile_function_s, device.compile_instruction_s);
        CompileCost {
            steps: steps as u64,
            functions,
            instructions,
            seconds: microseconds(seconds),
            code_bytes: of(device.function_bytes, device.instruction_bytes) as u64,
        }
    }
}

/// The least whole microseconds that hold a time, in seconds: the same number as a [`Duration`] of as many gives, which budgets
/// are read as.
fn microseconds(seconds: f64) -> f64 {
    // Less than a nanosecond is what sums were rounded by.
    Duration::from_micros((seconds * 1e6 - 1e-3).ceil() as u64).as_secs_f64()
}

/// What compiling a program costs on a machine.
pub fn compile_cost(program: &Program, device: &MachineModel) -> CompileCost {
    let steps = program.steps.iter().map(|step| step_code(program, step, device));
    together(steps).on(program.steps.len(), device)
}

/// The code of steps, that of equal ones once.
pub(crate) fn together(steps: impl Iterator<Item = CountedCode>) -> CodeSize {
    let mut seen = HashSet::new();
    let new = steps.filter(|(form, _)| form.is_none_or(|form| seen.insert(form)));
    new.fold(CodeSize::default(), |all, (_, [functions, instructions])| {
        all.join(CodeSize { functions, instructions })
    })
}

/// The code of a step.
pub(crate) fn step_code(program: &Program, step: &Step, device: &MachineModel) -> CountedCode {
    let form = StepForm::of(program, step).map(|(form, _)| {
        let mut hasher = DefaultHasher::new();
        form.hash(&mut hasher);
        hasher.finish()
    });
    let CodeSize { functions, instructions } = size(step, device);
    (form, [functions, instructions])
}

/// Instructions of a function of one operand, about.
const EXPONENTIAL: u64 = 24;

fn size(step: &Step, device: &MachineModel) -> CodeSize {
    let product = CodeSize {
        functions: u64::from(device.product_instructions > 0),
        instructions: device.product_instructions,
    };
    let none = CodeSize::default();
    match step {
        Step::Kernel(kernel) => kernel.stages.iter().map(stage).fold(none, CodeSize::join),
        Step::Bundle(bundle) => {
            let stages = bundle.kernels.iter().flat_map(|kernel| &kernel.stages);
            stages.map(stage).fold(none, CodeSize::join)
        }
        Step::Contract(contract) => {
            let of = |m: &adfuse_ir::kernel::Member| {
                feed(&m.lhs).join(feed(&m.rhs)).join(then(&m.then)).join(product)
            };
            contract.members.iter().map(of).fold(none, CodeSize::join)
        }
        // The exponentials of a tile, and the logarithms of sums.
        Step::Attend(_) => {
            CodeSize::function(EXPONENTIAL).join(CodeSize::function(EXPONENTIAL)).join(product)
        }
        Step::Scatter(scatter) => CodeSize::function(length(&scatter.program)),
        Step::Argsort(_) => CodeSize::function(0),
        Step::Library(_) | Step::Transfer(_) | Step::Exchange(_) | Step::Print(_) => none,
        Step::Loop(_) | Step::Branch(_) => {
            let block = |program: &Program| {
                together(program.steps.iter().map(|step| step_code(program, step, device)))
            };
            let all = step.blocks().into_iter().map(|(_, of)| block(&of.program));
            all.fold(none, CodeSize::join)
        }
    }
}

fn stage(stage: &Stage) -> CodeSize {
    let then = stage.sinks.iter().map(|sink| match sink {
        Sink::Fold { then, .. } => self::stage(then),
        _ => CodeSize::default(),
    });
    let own = length(&stage.program).saturating_add(stage.sinks.len() as u64);
    then.fold(CodeSize::function(own), CodeSize::join)
}

/// What follows sums has code where it does more than store them.
fn then(then: &Stage) -> CodeSize {
    match then.program.insts.len() {
        0 | 1 => CodeSize::default(),
        _ => stage(then),
    }
}

/// An operand that is computed has code of its own.
fn feed(feed: &Feed) -> CodeSize {
    match feed.program.insts.len() {
        0 | 1 => CodeSize::default(),
        _ => CodeSize::function(length(&feed.program)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time that is printed with three decimals of a millisecond, and read as a budget.
    #[test]
    fn times_do_as_budgets_as_they_are_printed() {
        let cpu = MachineModel::cpu();
        let odd = MachineModel {
            compile_step_s: 1.234_567_8e-4,
            compile_function_s: 4.567_89e-5,
            compile_instruction_s: 9.876_5e-6,
            ..cpu.clone()
        };
        for (device, n) in
            [cpu, odd].iter().flat_map(|device| (1..1500u64).map(move |n| (device, n)))
        {
            let code = CodeSize { functions: n * n, instructions: n * 997 };
            let seconds = code.on(n as usize, device).seconds;
            let exact = n as f64 * device.compile_step_s
                + (n * n) as f64 * device.compile_function_s
                + (n * 997) as f64 * device.compile_instruction_s;
            assert!((exact - 1.01e-9..exact + 1e-6).contains(&seconds), "{exact}: {seconds}");
            let printed: f64 = format!("{:.3}", seconds * 1e3).parse().expect("a number");
            let budget = Duration::from_secs_f64(printed * 1e-3).as_secs_f64();
            assert!(seconds <= budget, "{seconds} is printed as {printed} ms");
        }
    }
}
