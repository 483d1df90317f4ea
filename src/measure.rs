//! Measured times for searches over plans.

use crate::backends::Array;
use crate::engine::Cpu;
use crate::fusion::Plan;
use crate::fusion::search::Measure;
use crate::ir::kernel::{Program, verify};
use crate::ir::op::Domain;
use crate::ir::{Diagnostic, Function, TensorType};
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
    /// Times of so many runs of each program.
    pub fn new(cpu: Cpu, runs: u32) -> Timed {
        Timed { cpu, runs, known: RefCell::default(), inputs: RefCell::default() }
    }

    fn draw(&self, f: &Function) -> Result<(), Diagnostic> {
        let types = f.param_types();
        if self.inputs.borrow().0 == types {
            return Ok(());
        }
        let draw = |(t, stream)| sample(t, Domain::Normal, &mut rng(0, stream));
        let arrays = types.iter().zip(0..).map(draw).collect::<Result<_, _>>()?;
        *self.inputs.borrow_mut() = (types, arrays);
        Ok(())
    }

    fn time(&self, f: &Function, program: &Program) -> Result<f64, Diagnostic> {
        self.draw(f)?;
        let program = verify(program.clone()).map_err(|mut errors| errors.swap_remove(0))?;
        let made = self.cpu.of_program(program)?.executable;
        let inputs = self.inputs.borrow();
        // The first run finds nothing in the caches.
        let mut results: Vec<Vec<u8>> =
            made.run(&inputs.1)?.iter().map(|a| a.bytes().to_vec()).collect();
        let inputs: Vec<&[u8]> = inputs.1.iter().map(Array::bytes).collect();
        let mut outputs: Vec<&mut [u8]> = results.iter_mut().map(Vec::as_mut_slice).collect();
        let mut least = f64::INFINITY;
        for _ in 0..self.runs.max(1) {
            let begin = Instant::now();
            made.run_into(&inputs, &mut outputs)?;
            least = least.min(begin.elapsed().as_secs_f64());
        }
        Ok(least)
    }
}

impl Measure for Timed {
    fn seconds(&self, f: &Function, plan: &Plan, program: &Program) -> Option<f64> {
        let key = plan.hash(f);
        if let Some(known) = self.known.borrow().get(&key) {
            return *known;
        }
        // What the engine does not run has no time of its own.
        let seconds = self.time(f, program).ok();
        self.known.borrow_mut().insert(key, seconds);
        seconds
    }
}
