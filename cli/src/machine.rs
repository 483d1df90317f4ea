//! What runs functions, by the name that `--engine` takes.

use super::failure::Failure;
use adfuse::engine::Gpu;
use adfuse::ir::{Diagnostic, Kind};

/// An engine, and for GPUs which of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Machine {
    /// Instruction by instruction.
    Reference,
    /// Planned, as machine code.
    Cpu,
    /// Planned, as kernels of the GPU of this number.
    Gpu(u32),
}

impl Machine {
    /// The machine that plans are made for, where none is named.
    pub(super) fn device(self) -> &'static str {
        match self {
            Machine::Reference | Machine::Cpu => "cpu",
            Machine::Gpu(_) => "h200",
        }
    }
}

/// Reads an engine's name.
pub(super) fn machine(text: &str) -> Result<Machine, String> {
    match text.split_once(':') {
        None if text == "reference" => Ok(Machine::Reference),
        None if text == "cpu" => Ok(Machine::Cpu),
        None if text == "gpu" => Ok(Machine::Gpu(0)),
        Some(("gpu", number)) => {
            let wrong = |_| format!("`{number}` is no number of a GPU");
            number.parse().map(Machine::Gpu).map_err(wrong)
        }
        _ => Err("engines are reference, cpu, gpu and gpu:N".into()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_have_names() {
        assert_eq!(machine("gpu"), Ok(Machine::Gpu(0)));
        assert_eq!(machine("gpu:3"), Ok(Machine::Gpu(3)));
        assert_eq!(machine("cpu"), Ok(Machine::Cpu));
        assert_eq!(machine("reference"), Ok(Machine::Reference));
        for wrong in ["", "gp", "gpu:", "gpu:-1", "gpu:x", "cpu:0", "gpu:0:1", "gpu:4294967296"] {
            assert!(machine(wrong).is_err(), "{wrong}");
        }
    }
}
