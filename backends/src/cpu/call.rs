//! Runs of executables: the caller's inputs, their addresses, and the steps in order.
//!
//! An input is lent or donated. A plan may put results and temporaries into donated inputs; a run of such a plan is
//! refused if one of these inputs is only lent.
#![allow(unsafe_code)]

use super::executable::{CpuExecutable, RunMemory};
use super::loop_run::{StepRun, located};
use super::places::{BufferPlace, ResultBuffer, handed};
use crate::runtime::array::Array;
use crate::runtime::bytes::Bytes;
use crate::runtime::host_memory::AlignedBlock;
use crate::runtime::trace::{SpanRecorder, Trace};
use crate::runtime::truth;
use adfuse_ir::{At, DType, Diagnostic, Kind, TensorType, check_arguments};
use std::sync::{Arc, PoisonError, TryLockError};

/// An input as it is handed to a run.
#[derive(Debug)]
pub enum CallInput<'a> {
    /// To be read.
    Lent(&'a [u8]),
    /// Donated: after the run it holds a result, or is undefined.
    Donated(&'a mut [u8]),
}

impl CallInput<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            CallInput::Lent(bytes) => bytes,
            CallInput::Donated(bytes) => bytes,
        }
    }
}

impl CpuExecutable {
    /// Runs it on arrays.
    ///
    /// # Errors
    /// [`Kind::Usage`] when the arguments do not have the inputs' types; [`Kind::Limit`] when there is
    /// no memory for the results.
    pub fn run(&self, args: &[Array]) -> Result<Vec<Array>, Diagnostic> {
        self.fits(args)?;
        let inputs: Vec<&[u8]> = args.iter().map(Array::bytes).collect();
        let mut results = self.room()?;
        let mut slices: Vec<&mut [u8]> = results.iter_mut().map(|r| &mut r[..]).collect();
        self.go_recorded(&inputs, &mut slices, None)?;
        let typed = self.outputs.iter().zip(results);
        let array = |(o, bytes): (&ResultBuffer, _)| Array::from_bytes(o.dtype, &o.dims, bytes);
        Ok(typed.map(array).collect())
    }

    /// As [`CpuExecutable::run`], on donated arrays: results may be in their memory. An array that is written to and
    /// shares its memory with a clone is copied first.
    ///
    /// # Errors
    /// As there.
    pub fn run_donating(&self, args: Vec<Array>) -> Result<Vec<Array>, Diagnostic> {
        self.fits(&args)?;
        let mut given: Vec<Arc<Bytes>> = args.into_iter().map(Array::into_shared).collect();
        let mut results = self.room()?;
        let mut slices: Vec<&mut [u8]> = results.iter_mut().map(|r| &mut r[..]).collect();
        let mut inputs: Vec<CallInput<'_>> = Vec::with_capacity(given.len());
        for (bytes, written) in given.iter_mut().zip(&self.written) {
            inputs.push(match written {
                Some(_) => CallInput::Donated(Bytes::alone(bytes)?),
                None => CallInput::Lent(&bytes[..]),
            });
        }
        self.go_donating(&mut inputs, &mut slices)?;
        let mut results = results.into_iter();
        let array = |o: &ResultBuffer| {
            let bytes = match o.left_in {
                Some(k) => std::mem::take(&mut given[k]),
                None => Arc::new(results.next().unwrap_or_default()),
            };
            Array::from_shared(o.dtype, &o.dims, bytes)
        };
        Ok(self.outputs.iter().map(array).collect())
    }

    fn fits(&self, args: &[Array]) -> Result<(), Diagnostic> {
        let found: Vec<TensorType> = args.iter().map(Array::ty).collect();
        check_arguments(&self.name, &self.inputs, &found)
    }

    /// Memory for the results that are not left in inputs.
    fn room(&self) -> Result<Vec<Bytes>, Diagnostic> {
        let mut results: Vec<Bytes> = Vec::new();
        for output in handed(&self.outputs) {
            results.push(match self.store.take(output.bytes)? {
                Some(kept) => Bytes::Kept(kept),
                None => Bytes::zeroed(output.dtype.bytes() as usize, output.bytes as u64)?,
            });
        }
        Ok(results)
    }

    /// For each result, the input in whose memory it is left, by position.
    pub fn left_in(&self) -> impl Iterator<Item = Option<usize>> + '_ {
        self.outputs.iter().map(|o| o.left_in)
    }

    /// Whether a run writes to an input, by position: the caller has to give it up.
    pub fn writes_to(&self, input: usize) -> bool {
        self.written.get(input).is_some_and(Option::is_some)
    }

    /// Runs it on the bytes of dense row-major arrays, and writes the results' bytes. Truth values are bytes of 0
    /// and 1.
    ///
    /// # Errors
    /// [`Kind::Usage`] when there are not as many slices as inputs and outputs, or one has not as many
    /// bytes, when a byte of a `bool` input is neither 0 nor 1, or when the plan writes to an input, which then
    /// has to be given up.
    pub fn run_into(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Diagnostic> {
        self.run_recorded(inputs, outputs, None)
    }

    /// As [`CpuExecutable::run_into`], with inputs that may be given up. There are slices for those outputs
    /// alone that are not left in an input ([`CpuExecutable::left_in`]).
    ///
    /// # Errors
    /// As there.
    pub fn run_into_donating(
        &self,
        inputs: &mut [CallInput<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), Diagnostic> {
        self.store.free();
        self.sized("input", inputs.iter().map(|i| i.bytes().len()), &self.input_bytes)?;
        self.truths(inputs.iter().map(CallInput::bytes))?;
        self.go_donating(inputs, outputs)
    }

    fn go_donating(
        &self,
        inputs: &mut [CallInput<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), Diagnostic> {
        let lent = |k: usize| matches!(inputs[k], CallInput::Lent(_));
        self.check_donations(&lent)?;
        self.go(
            &mut |k| match &mut inputs[k] {
                CallInput::Lent(s) => s.as_ptr().cast_mut(),
                CallInput::Donated(s) => s.as_mut_ptr(),
            },
            outputs,
            None,
        )
    }

    /// Refuses to write to what is only lent.
    fn check_donations(&self, lent: &dyn Fn(usize) -> bool) -> Result<(), Diagnostic> {
        let mut wanted = self.written.iter().enumerate();
        let kept = wanted.find_map(|(k, name)| name.as_ref().filter(|_| lent(k)));
        match kept {
            None => Ok(()),
            Some(name) => {
                let m = format!("the plan writes to the input %{name}, which is only lent");
                Err(self.usage(m).hint("`run_donating` gives it up"))
            }
        }
    }

    /// Runs it, and records a trace on request.
    pub(crate) fn run_recorded(
        &self,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        recorder: Option<&mut SpanRecorder>,
    ) -> Result<(), Diagnostic> {
        // Who brings memory for results needs none that came back.
        self.store.free();
        self.sized("input", inputs.iter().map(|s| s.len()), &self.input_bytes)?;
        self.truths(inputs.iter().copied())?;
        self.go_recorded(inputs, outputs, recorder)
    }

    /// Refuses bytes of truth values that are neither true nor false. Arrays have none.
    fn truths<'b>(&self, inputs: impl Iterator<Item = &'b [u8]>) -> Result<(), Diagnostic> {
        for (k, ((_, ty), bytes)) in self.inputs.iter().zip(inputs).enumerate() {
            if ty.dtype == DType::Bool
                && let Some(at) = truth::stray(bytes)
            {
                let name = &self.name;
                let m = format!("byte {at} of input {k} of @{name} is {}, not 0 or 1", bytes[at]);
                return Err(self.usage(m));
            }
        }
        Ok(())
    }

    fn go_recorded(
        &self,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        recorder: Option<&mut SpanRecorder>,
    ) -> Result<(), Diagnostic> {
        self.check_donations(&|_| true)?;
        self.go(&mut |k| inputs[k].as_ptr().cast_mut(), outputs, recorder)
    }

    /// Runs it on inputs that begin there and have their types' bytes, of which those that it writes to have been
    /// given up.
    fn go(
        &self,
        input: &mut dyn FnMut(usize) -> *mut u8,
        outputs: &mut [&mut [u8]],
        mut recorder: Option<&mut SpanRecorder>,
    ) -> Result<(), Diagnostic> {
        self.sized("output", outputs.iter().map(|s| s.len()), &self.output_bytes)?;
        self.agreement.reach()?;
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let RunMemory { arena, constants, tables, loops, turns, pointers, .. } = &mut *memory;
        let (arena, constants) = (arena.start(), constants.start());
        // Elements are at multiples of their size, as everything but machine code asks for. Slices that
        // begin elsewhere are rare, and copied.
        let mut moved: Vec<StagedSlice> = Vec::new();
        pointers.clear();
        for place in &self.places {
            pointers.push(match *place {
                // Verified programs do not write inputs; what is written there is in their place.
                BufferPlace::Input(k, at) => {
                    let (begin, back) = (input(k), self.written[k].is_some());
                    let n = self.input_bytes[k];
                    StagedSlice::aligned(begin, n, (true, back), &mut moved)?
                        .wrapping_add(at as usize)
                }
                // What is there before the result, the result is written over.
                BufferPlace::Output(k, at) => {
                    let (begin, n) = (outputs[k].as_mut_ptr(), outputs[k].len());
                    StagedSlice::aligned(begin, n, (false, true), &mut moved)?
                        .wrapping_add(at as usize)
                }
                BufferPlace::Arena(offset) => arena.wrapping_add(offset as usize),
                BufferPlace::Constant(offset) => constants.wrapping_add(offset as usize),
            });
        }
        for worker in tables.iter_mut().take(1).flatten() {
            let worker = worker.get_mut().unwrap_or_else(PoisonError::into_inner);
            worker.table[..pointers.len()].copy_from_slice(pointers);
        }
        // Where another executable has the threads, this one goes on alone.
        let mut pool = match self.pool.try_lock() {
            Ok(pool) => Some(pool),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        for (n, step) in self.steps.iter().enumerate() {
            let begun = recorder.as_ref().map(|r| r.now());
            let mut run = StepRun {
                code: &self.code,
                tables,
                loops,
                turns,
                pool: pool.as_deref_mut(),
                limits: self.limits,
                step: n,
                recorder: recorder.as_deref(),
            };
            let ran = run.run(0, step);
            ran.map_err(|d| located(d, &self.name, step, &self.made[n]))?;
            if let (Some(recorder), Some(begun)) = (recorder.as_mut(), begun) {
                recorder.step(n, begun);
            }
        }
        for m in moved.iter().filter(|m| m.back) {
            // SAFETY: the block was made for these bytes, which are of an output or of an input that is
            // given up.
            unsafe { std::ptr::copy_nonoverlapping(m.block.start(), m.from, m.bytes) }
        }
        for output in self.outputs.iter().filter(|o| o.copied) {
            let from = pointers[output.buffer];
            let to = outputs[output.at].as_mut_ptr();
            // SAFETY: a dense buffer has the bytes of its type, which the slice has been checked for.
            // It may be an input, which the slice, being borrowed alone, does not overlap.
            unsafe { std::ptr::copy_nonoverlapping(from, to, output.bytes) }
        }
        Ok(())
    }

    fn sized(
        &self,
        word: &str,
        found: impl ExactSizeIterator<Item = usize>,
        wanted: &[usize],
    ) -> Result<(), Diagnostic> {
        if found.len() != wanted.len() {
            let m = format!("@{} has {} {word}s, found {}", self.name, wanted.len(), found.len());
            return Err(self.usage(m));
        }
        for (k, (found, &wanted)) in found.zip(wanted).enumerate() {
            if found != wanted {
                let m = format!("{word} {k} of @{} has {wanted} bytes, found {found}", self.name);
                return Err(self.usage(m));
            }
        }
        Ok(())
    }

    fn usage(&self, m: String) -> Diagnostic {
        let at = At { func: Some(self.name.clone()), ..At::default() };
        Diagnostic::new(at, Kind::Usage, m)
    }
}

/// A slice that begins elsewhere for the time of a run.
struct StagedSlice {
    from: *mut u8,
    bytes: usize,
    block: AlignedBlock,
    /// Whether it is copied back.
    back: bool,
}

impl StagedSlice {
    /// A slice's beginning, or that of an aligned copy of it, one for each slice; whether bytes go there
    /// before the run, and come back after it.
    fn aligned(
        at: *mut u8,
        bytes: usize,
        (there, back): (bool, bool),
        moved: &mut Vec<StagedSlice>,
    ) -> Result<*mut u8, Diagnostic> {
        // No element has more bytes.
        if at.addr().is_multiple_of(8) || bytes == 0 {
            return Ok(at);
        }
        // Inputs that are lent may begin together and be of different lengths.
        if let Some(known) = moved.iter().find(|m| m.from == at && m.bytes == bytes) {
            return Ok(known.block.start());
        }
        let block = AlignedBlock::new(bytes as u64)?;
        if there {
            // SAFETY: both have this many bytes.
            unsafe { std::ptr::copy_nonoverlapping(at, block.start(), bytes) }
        }
        let start = block.start();
        moved.push(StagedSlice { from: at, bytes, block, back });
        Ok(start)
    }
}

impl CpuExecutable {
    /// Runs it once on arrays, and says when each step and each of its tasks ran.
    ///
    /// # Errors
    /// As [`CpuExecutable::run`].
    pub(super) fn traced(&self, args: &[Array]) -> Result<Trace, Diagnostic> {
        self.fits(args)?;
        let inputs: Vec<&[u8]> = args.iter().map(Array::bytes).collect();
        let mut results = self.room()?;
        let mut slices: Vec<&mut [u8]> = results.iter_mut().map(|r| &mut r[..]).collect();
        let mut recorder = SpanRecorder::new(self.threads);
        self.go_recorded(&inputs, &mut slices, Some(&mut recorder))?;
        Ok(recorder.finish())
    }

    /// As [`CpuExecutable::run_into`], and records when each step and each of its tasks ran.
    ///
    /// # Errors
    /// As there.
    pub fn run_into_traced(
        &self,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        trace: &mut Trace,
    ) -> Result<(), Diagnostic> {
        let mut recorder = SpanRecorder::new(self.threads);
        self.run_recorded(inputs, outputs, Some(&mut recorder))?;
        *trace = recorder.finish();
        Ok(())
    }
}
