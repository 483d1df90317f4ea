//! The engines of `run` tests. A new engine is a row here.

use adfuse::backends::Array;
use adfuse::backends::backend::Executable;
use adfuse::backends::cpu::Vectors;
use adfuse::backends::reference::{self, Effects, Evaluator, specialized_to};
use adfuse::engine::{Cpu, Session, Settings};
use adfuse::fusion::prepare;
use adfuse::ir::{DType, Diagnostic, Function, Module};
use std::sync::Arc;

/// How one engine runs a function: arguments in, results and what was printed out.
pub(crate) type Run =
    fn(&Module, &Function, &[Array], &mut dyn Effects) -> Result<Vec<Array>, Diagnostic>;

/// An engine by its name in directives.
pub(crate) struct Engine {
    /// As in `engines=..`.
    pub(crate) name: &'static str,
    /// How it runs.
    pub(crate) run: Run,
    /// Whether it runs a function; what it does not, it must refuse as unsupported.
    pub(crate) takes: fn(&Module, &Function) -> bool,
}

/// All engines. The first defines the values; the others must give the same.
pub(crate) const ENGINES: &[Engine] = &[
    Engine { name: "reference", run: reference::run, takes: |_, _| true },
    Engine { name: "evaluator", run: evaluated, takes: is_pure },
    Engine { name: "cpu", run: machine_code, takes: is_pure },
    Engine { name: "cpu-128", run: narrow_code, takes: is_pure },
    Engine { name: "cpu-256", run: middle_code, takes: is_pure },
];

/// Planned, and evaluated kernel by kernel.
fn evaluated(
    module: &Module,
    f: &Function,
    args: &[Array],
    _: &mut dyn Effects,
) -> Result<Vec<Array>, Diagnostic> {
    let f = specialized_to(f, args)?;
    let settings = Settings::new(Cpu::default().plan);
    let session = Session { settings, backend: Arc::new(Evaluator::default()) };
    session.compile(module, &f)?.executable.run(args)
}

/// Planned, as machine code with the host's vectors, on two threads.
fn machine_code(
    module: &Module,
    f: &Function,
    args: &[Array],
    _: &mut dyn Effects,
) -> Result<Vec<Array>, Diagnostic> {
    with_vectors(Vectors::host(), module, f, args)
}

/// As Cranelift makes it alone.
fn narrow_code(
    module: &Module,
    f: &Function,
    args: &[Array],
    _: &mut dyn Effects,
) -> Result<Vec<Array>, Diagnostic> {
    with_vectors(Vectors::Narrow, module, f, args)
}

/// With vectors of 256 bits, where the host has any of more than 128.
fn middle_code(
    module: &Module,
    f: &Function,
    args: &[Array],
    _: &mut dyn Effects,
) -> Result<Vec<Array>, Diagnostic> {
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

/// Whether a function is without tokens and effects once it is prepared.
fn is_pure(module: &Module, f: &Function) -> bool {
    prepare(module, f).is_ok_and(|f| {
        let mut pure = f.param_types().iter().all(|t| t.dtype != DType::Token);
        f.walk(&mut |f, i| pure &= !f.op(i).is_effect());
        pure
    })
}

/// Keeps what `debug_print` writes.
#[derive(Default)]
pub(crate) struct Recorded(pub(crate) Vec<(String, Array)>);

impl Effects for Recorded {
    fn print(&mut self, label: &str, value: &Array) {
        self.0.push((label.to_string(), value.clone()));
    }
}
