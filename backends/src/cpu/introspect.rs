//! Introspection of executables: steps, functions, memory, and a map of functions for profilers.

use super::codegen::vector_width::Emitter;
use super::executable::CpuExecutable;
use crate::runtime::report::{MemoryReport, StepReport};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A sweep: one function of machine code.
#[derive(Clone, Copy, Debug)]
pub struct CompiledSweep<'e> {
    /// The number of its step, among those that run.
    pub step: usize,
    /// The step's name and the role of the function: `softmax.1` is stage 1.
    pub name: &'e str,
    /// What made it.
    pub emitter: Emitter,
    /// The machine code.
    pub code: &'e [u8],
    /// How long it took to make.
    pub took: Duration,
    /// What else is known, for an executable that was made to be read.
    pub texts: Option<SweepTexts<'e>>,
}

/// What a sweep is, as text.
#[derive(Clone, Copy, Debug)]
pub struct SweepTexts<'e> {
    /// Where it walks, what it reads and what it writes.
    pub accesses: &'e str,
    /// Its loop program, which the emitter translates.
    pub loops: &'e str,
    /// What Cranelift is given; nothing where another emitter made it.
    pub clif: &'e str,
    /// The instructions of the host.
    pub asm: &'e str,
}

impl CpuExecutable {
    /// The steps, in the order in which they run.
    pub fn steps(&self) -> &[StepReport] {
        &self.made
    }

    /// The functions of machine code, in the order in which they were made.
    pub fn sweeps(&self) -> impl ExactSizeIterator<Item = CompiledSweep<'_>> {
        self.code.listed().map(|(noted, code)| CompiledSweep {
            step: noted.step,
            name: &noted.name,
            emitter: noted.emitter,
            code,
            took: noted.took,
            texts: noted.texts.as_ref().map(|[accesses, loops, clif, asm]| SweepTexts {
                accesses,
                loops,
                clif,
                asm,
            }),
        })
    }

    /// Bytes that it holds, and those that a caller hands it.
    pub fn memory(&self) -> MemoryReport {
        MemoryReport { spare: self.store.bytes(), ..self.report }
    }

    /// Adds the functions to the map that profilers read for this process, `/tmp/perf-PID.map`, and says
    /// where that is.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_perf_map(&self) -> io::Result<PathBuf> {
        let path = Path::new("/tmp").join(format!("perf-{}.map", std::process::id()));
        self.add_to_map(&path)?;
        Ok(path)
    }

    /// A line for each function: where it begins, its size, both in hexadecimal, and its name.
    fn add_to_map(&self, path: &Path) -> io::Result<()> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let mut lines = String::new();
        // Of those that share a function the first has it.
        for sweep in self.sweeps().filter(|sweep| !sweep.code.is_empty()) {
            let (at, size) = (sweep.code.as_ptr().addr(), sweep.code.len());
            // Nothing is wrong with writing to a string.
            let _ = writeln!(lines, "{at:x} {size:x} {}", sweep.name);
        }
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(lines.as_bytes())
    }
}
