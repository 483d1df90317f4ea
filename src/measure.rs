//! Measured times for searches over plans.

use crate::backends::{Array, Silent, with_effects};
use crate::engine::Cpu;
use crate::fusion::Plan;
use crate::fusion::search::Measure;
use crate::ir::kernel::{Program, verify};
use crate::ir::op::Domain;
use crate::ir::{DType, Diagnostic, Function, TensorType};
use crate::sample::{rng, sample};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Instant;

/// Runs the programs of plans as machine code and takes the time: the least of several runs, at inputs
/// that depend on the function alone. A plan is timed once, so that it takes the same whenever it is asked
/// for.
#[derive(Debug)]
pub struct Timed {
    cpu: Cpu,
    runs: u32,
    known: RefCell<BTreeMap<String, Option<f64>>>,
    inputs: RefCell<(Vec<TensorType>, Vec<Array>)>,
}

impl Timed {
    /// Times of this many runs of each program.
    pub fn new(cpu: Cpu, runs: u32) -> Timed {
        Timed { cpu, runs, known: RefCell::default(), inputs: RefCell::default() }
    }

    fn draw(&self, f: &Function) -> Result<(), Diagnostic> {
        let types: Vec<TensorType> =
            f.param_types().into_iter().filter(|t| t.dtype != DType::Token).collect();
        if self.inputs.borrow().0 == types {
            return Ok(());
        }
        let draw = |(t, stream)| sample(t, Domain::Normal, &mut rng(0, stream));
        let arrays = types.iter().zip(0..).map(draw).collect::<Result<_, _>>()?;
        *self.inputs.borrow_mut() = (types, arrays);
        Ok(())
    }

    /// The least times of several runs of each program, which take turns.
    fn times<const N: usize>(
        &self,
        f: &Function,
        programs: [&Program; N],
    ) -> Result<[f64; N], Diagnostic> {
        self.draw(f)?;
        let make = |program: &Program| {
            let program = verify(program.clone()).map_err(|mut errors| errors.swap_remove(0))?;
            Ok(self.cpu.of_program(program)?.executable)
        };
        let made = programs.map(make);
        let inputs = self.inputs.borrow();
        // The first run finds nothing in the caches.
        let mut results: Vec<Vec<u8>> = Vec::new();
        for executable in &made {
            let executable = executable.as_ref().map_err(Diagnostic::clone)?;
            results = executable.run(&inputs.1)?.iter().map(|a| a.bytes().to_vec()).collect();
        }
        let inputs: Vec<&[u8]> = inputs.1.iter().map(Array::bytes).collect();
        let mut outputs: Vec<&mut [u8]> = results.iter_mut().map(Vec::as_mut_slice).collect();
        let mut least = [f64::INFINITY; N];
        for _ in 0..self.runs.max(1) {
            for (executable, least) in made.iter().flatten().zip(&mut least) {
                let begin = Instant::now();
                executable.run_into(&inputs, &mut outputs)?;
                *least = least.min(begin.elapsed().as_secs_f64());
            }
        }
        Ok(least)
    }
}

/// Runs that are timed print nothing.
fn silent<T>(run: impl FnOnce() -> T) -> T {
    with_effects(&mut Silent, run)
}

impl Measure for Timed {
    fn seconds(&self, f: &Function, plan: &Plan, program: &Program) -> Option<f64> {
        let key = plan.hash(f);
        if let Some(known) = self.known.borrow().get(&key) {
            return *known;
        }
        // What the engine does not run has no time of its own.
        let seconds = silent(|| self.times(f, [program])).ok().map(|[seconds]| seconds);
        self.known.borrow_mut().insert(key, seconds);
        seconds
    }

    fn confirms(
        &self,
        f: &Function,
        (_, before): (&Plan, &Program),
        (_, after): (&Plan, &Program),
    ) -> Option<bool> {
        silent(|| self.times(f, [before, after])).ok().map(|[before, after]| after <= before)
    }
}
