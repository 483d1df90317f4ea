//! The engines of `run` tests. A new engine is a row here.

use adfuse::backends::backend::Executable;
use adfuse::backends::cpu::Vectors;
use adfuse::backends::reference::{self, Evaluator, specialized_to};
use adfuse::backends::{Array, ScopedEffects};
use adfuse::engine::{Cpu, Session, Settings};
use adfuse::ir::{Diagnostic, Function, Module};
use std::sync::Arc;

/// How one engine runs a function; effects go to the sink of the scope.
pub(crate) type Run = fn(&Module, &Function, &[Array]) -> Result<Vec<Array>, Diagnostic>;

/// An engine by its name in directives.
pub(crate) struct Engine {
    /// As in `engines=..`.
    pub(crate) name: &'static str,
    /// How it runs.
    pub(crate) run: Run,
}

/// All engines. The first defines the values; the others must give the same.
pub(crate) const ENGINES: &[Engine] = &[
    Engine { name: "reference", run: referenced },
    Engine { name: "evaluator", run: evaluated },
    Engine { name: "cpu", run: machine_code },
    Engine { name: "cpu-128", run: narrow_code },
    Engine { name: "cpu-256", run: middle_code },
];

/// Instruction by instruction.
fn referenced(module: &Module, f: &Function, args: &[Array]) -> Result<Vec<Array>, Diagnostic> {
    reference::run(module, f, args, &mut ScopedEffects)
}

/// Planned, and evaluated kernel by kernel.
fn evaluated(module: &Module, f: &Function, args: &[Array]) -> Result<Vec<Array>, Diagnostic> {
    let f = specialized_to(f, args)?;
    let settings = Settings::new(Cpu::default().plan);
    let session = Session { settings, backend: Arc::new(Evaluator::default()) };
    session.compile(module, &f)?.executable.run(args)
}

/// Planned, as machine code with the host's vectors, on two threads.
fn machine_code(module: &Module, f: &Function, args: &[Array]) -> Result<Vec<Array>, Diagnostic> {
    with_vectors(Vectors::host(), module, f, args)
}

/// As Cranelift makes it alone.
fn narrow_code(module: &Module, f: &Function, args: &[Array]) -> Result<Vec<Array>, Diagnostic> {
    with_vectors(Vectors::Narrow, module, f, args)
}

/// With vectors of 256 bits, where the host has any of more than 128.
fn middle_code(module: &Module, f: &Function, args: &[Array]) -> Result<Vec<Array>, Diagnostic> {
    let vectors = match Vectors::host() {
        Vectors::Narrow => Vectors::Narrow,
        _ => Vectors::Avx2,
    };
    with_vectors(vectors, module, f, args)
}

fn with_vectors(
    vectors: Vectors,
    module: &Module,
    f: &Function,
    args: &[Array],
) -> Result<Vec<Array>, Diagnostic> {
    let f = specialized_to(f, args)?;
    Cpu { threads: 2, vectors, ..Cpu::default() }.compile(module, &f)?.executable.run(args)
}
