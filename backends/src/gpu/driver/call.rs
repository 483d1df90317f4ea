//! Runs of executables: on arrays of the caller's memory, and on arrays that stay on the device.

use super::drawn::changed;
use super::event::Event;
use super::executable::{DrawnRun, From, GpuExecutable, Held};
use super::memory::{DeviceArray, canonical};
use crate::runtime::array::Array;
use crate::runtime::bytes::Bytes;
use crate::runtime::trace::{TimedSpan, Trace};
use adfuse_ir::{At, Diagnostic, Kind, TensorType, check_arguments};
use cudarc::driver::sys::CUdeviceptr;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

/// Runs whose graphs an executable keeps, each for its own places of inputs and outputs. For further places, those of the
/// run that is longest ago are changed.
const GRAPHS: usize = 4;

impl GpuExecutable {
    /// Runs it on arrays.
    ///
    /// # Errors
    /// [`Kind::Usage`] when the arguments do not have the inputs' types; [`Kind::Limit`] when there is no
    /// memory for them or the results, on the device or the host: the arguments are as they were.
    pub fn run(&self, args: &[Array]) -> Result<Vec<Array>, Diagnostic> {
        self.fits(&args.iter().map(Array::ty).collect::<Vec<_>>())?;
        let mut held = self.held();
        let mut inputs = Vec::new();
        for (k, arg) in args.iter().enumerate() {
            inputs.push(match self.hosted[k] {
                // What is in the host's memory has no copy on the device.
                Some(at) => {
                    held.pinned.part(at as usize, arg.bytes().len()).copy_from_slice(arg.bytes());
                    DeviceArray::undefined(&self.device, arg.dtype(), &[0], 0)?
                }
                None => {
                    let peak = self.report.peak();
                    let made = DeviceArray::undefined(&self.device, arg.dtype(), arg.dims(), peak)?;
                    made.block.upload(arg.bytes())?;
                    made
                }
            });
        }
        let mut results = self.room()?;
        let places: Vec<CUdeviceptr> = inputs.iter().map(|a| a.block.at()).collect();
        self.go(&mut held, [&places, &at(&results)], 1)?;
        self.device.finish()?;
        let mut inputs: Vec<Option<DeviceArray>> = inputs.into_iter().map(Some).collect();
        let mut arrays: Vec<Array> = Vec::new();
        for (k, output) in self.outputs.iter().enumerate() {
            arrays.push(match output.from {
                From::There | From::Copied(_) => match results[k].take() {
                    Some(result) => result.download()?,
                    None => continue,
                },
                From::Input(input) => match inputs[input].take() {
                    Some(given) => given.typed(&output.ty, &output.dims).download()?,
                    None => continue,
                },
                From::Host(from) => {
                    let (dtype, size) = (output.ty.dtype, output.bytes as usize);
                    let from = held.pinned.part(from as usize, size);
                    let mut bytes = Bytes::copied(dtype.bytes() as usize, from)?;
                    canonical(dtype, &mut bytes);
                    Array::from_bytes(dtype, &output.dims, bytes)
                }
                From::Same(first) => arrays[first].clone(),
            });
        }
        Ok(arrays)
    }

    /// Runs it on arrays that stay on the device, and gives the results, which stay there too. They are
    /// there for whatever is asked of the device next; [`DeviceArray::download`] waits for them.
    ///
    /// # Errors
    /// [`Kind::Usage`] when the arguments do not have the inputs' types, are on another device, or one is
    /// written to, and where inputs or outputs are in the caller's memory; [`Kind::Limit`] when the device
    /// has not enough memory.
    pub fn run_on(&self, args: &[&DeviceArray]) -> Result<Vec<DeviceArray>, Diagnostic> {
        self.resident(args)?;
        if let Some(name) = self.written.iter().flatten().next() {
            let m = format!("the plan writes to the input %{name}, which is only lent");
            return Err(self.usage(m).hint("a run that donates gives it up"));
        }
        let mut held = self.held();
        let results = self.room()?;
        let places: Vec<CUdeviceptr> = args.iter().map(|a| a.block.at()).collect();
        self.go(&mut held, [&places, &at(&results)], 1)?;
        Ok(self.handed(results, Vec::new()))
    }

    /// As [`GpuExecutable::run_on`], on arrays that the caller gives up: results may be in their memory. Of an array
    /// that is written to and shares its memory with another a copy is made first.
    ///
    /// # Errors
    /// As there.
    pub fn run_on_donating(&self, args: Vec<DeviceArray>) -> Result<Vec<DeviceArray>, Diagnostic> {
        self.resident(&args.iter().collect::<Vec<_>>())?;
        let alone = |(a, written): (DeviceArray, &Option<String>)| match written {
            Some(_) => a.alone(self.report.peak()),
            None => Ok(a),
        };
        let args = args.into_iter().zip(&self.written).map(alone);
        let args = args.collect::<Result<Vec<_>, _>>()?;
        let mut held = self.held();
        let results = self.room()?;
        let places: Vec<CUdeviceptr> = args.iter().map(|a| a.block.at()).collect();
        self.go(&mut held, [&places, &at(&results)], 1)?;
        Ok(self.handed(results, args.into_iter().map(Some).collect()))
    }

    /// What the caller is handed, of results and of inputs that were given up.
    fn handed(
        &self,
        mut results: Vec<Option<DeviceArray>>,
        mut args: Vec<Option<DeviceArray>>,
    ) -> Vec<DeviceArray> {
        let mut arrays: Vec<DeviceArray> = Vec::new();
        for (k, output) in self.outputs.iter().enumerate() {
            let made = match output.from {
                From::Input(input) => args[input].take().map(|a| a.typed(&output.ty, &output.dims)),
                From::Same(first) => Some(arrays[first].shared(&output.dims)),
                _ => results[k].take(),
            };
            arrays.extend(made);
        }
        arrays
    }

    /// Runs it so often on arrays that stay on the device, with results in the same places every time, and
    /// gives the device's seconds of a run. Inputs that it writes to hold anything afterwards.
    ///
    /// # Errors
    /// As [`GpuExecutable::run_on`].
    pub fn timed(&self, args: &[DeviceArray], times: u32) -> Result<f64, Diagnostic> {
        self.resident(&args.iter().collect::<Vec<_>>())?;
        self.alone(args)?;
        let mut held = self.held();
        let results = self.room()?;
        let places: Vec<CUdeviceptr> = args.iter().map(|a| a.block.at()).collect();
        let (begin, end) = (Event::new(&self.device)?, Event::new(&self.device)?);
        // To draw it is no part of a run.
        self.go(&mut held, [&places, &at(&results)], 1)?;
        self.device.finish()?;
        begin.mark(self.device.stream())?;
        self.go(&mut held, [&places, &at(&results)], times)?;
        end.mark(self.device.stream())?;
        end.wait()?;
        Ok(end.since(&begin)? / f64::from(times.max(1)))
    }

    /// Runs it so often as [`GpuExecutable::timed`], and says when each step ran, by the device's clock.
    ///
    /// # Errors
    /// As there.
    pub fn traced(&self, args: &[DeviceArray], times: u32) -> Result<Vec<Trace>, Diagnostic> {
        self.resident(&args.iter().collect::<Vec<_>>())?;
        self.alone(args)?;
        let held = self.held();
        let results = self.room()?;
        let places: Vec<CUdeviceptr> = args.iter().map(|a| a.block.at()).collect();
        let marks = (0..=self.steps.len()).map(|_| Event::new(&self.device));
        let marks = marks.collect::<Result<Vec<_>, _>>()?;
        let results = at(&results);
        let (mut parts, both) = (Vec::new(), [places.as_slice(), &results]);
        // To draw it is no part of a run.
        self.play(&held, both, &mut parts, &marks)?;
        self.device.finish()?;
        let mut traces = Vec::new();
        for _ in 0..times {
            self.play(&held, both, &mut parts, &marks)?;
            self.device.finish()?;
            let moment = |n: usize| -> Result<Duration, Diagnostic> {
                Ok(Duration::from_secs_f64(marks[n].since(&marks[0])?.max(0.0)))
            };
            let mut trace = Trace::default();
            for step in 0..self.steps.len() {
                let (begin, end) = (moment(step)?, moment(step + 1)?);
                trace.spans.push(TimedSpan { step, thread: 0, task: None, begin, end });
            }
            traces.push(trace);
        }
        Ok(traces)
    }

    /// Asks for it so often, drawn before or now.
    fn go(
        &self,
        held: &mut Held,
        [inputs, outputs]: [&[CUdeviceptr]; 2],
        times: u32,
    ) -> Result<(), Diagnostic> {
        let wanted = || inputs.iter().chain(outputs);
        let mut drawn = match held.drawn.iter().position(|d| d.places.iter().eq(wanted())) {
            Some(found) => held.drawn.remove(found),
            None => {
                let other = (held.drawn.len() >= GRAPHS).then(|| held.drawn.remove(0));
                let mut parts = other.map(|other| other.parts).unwrap_or_default();
                changed(&mut parts);
                DrawnRun { places: wanted().copied().collect(), parts }
            }
        };
        for _ in 0..times {
            self.play(held, [inputs, outputs], &mut drawn.parts, &[])?;
        }
        held.drawn.push(drawn);
        Ok(())
    }

    /// Room for the results that are not left in inputs, nor in the host's memory.
    fn room(&self) -> Result<Vec<Option<DeviceArray>>, Diagnostic> {
        let own = |o: &crate::gpu::driver::executable::Output| {
            matches!(o.from, From::There | From::Copied(_))
        };
        let make = |o: &crate::gpu::driver::executable::Output| {
            let peak = self.report.peak();
            let made = || DeviceArray::undefined(&self.device, o.ty.dtype, &o.dims, peak);
            own(o).then(made).transpose()
        };
        self.outputs.iter().map(make).collect()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fits(&self, found: &[TensorType]) -> Result<(), Diagnostic> {
        check_arguments(&self.name, &self.inputs, found)
    }

    /// Checks arguments that stay on the device.
    fn resident(&self, args: &[&DeviceArray]) -> Result<(), Diagnostic> {
        self.fits(&args.iter().map(|a| a.ty()).collect::<Vec<_>>())?;
        let own = self.device.facts().number;
        if let Some(a) = args.iter().find(|a| a.device().facts().number != own) {
            let m = format!("@{} runs on gpu:{own}, found {a:?}", self.name);
            return Err(self.usage(m));
        }
        if self.is_hosted() {
            let m = format!("@{} has inputs or outputs in the caller's memory", self.name);
            return Err(self.usage(m));
        }
        Ok(())
    }

    /// Whether inputs or outputs are in the caller's memory.
    pub(crate) fn is_hosted(&self) -> bool {
        let host = |o: &crate::gpu::driver::executable::Output| matches!(o.from, From::Host(_));
        self.hosted.iter().any(Option::is_some) || self.outputs.iter().any(host)
    }

    /// Checks that nobody else has the memory of what it writes to.
    fn alone(&self, args: &[DeviceArray]) -> Result<(), Diagnostic> {
        let all = self.written.iter().zip(args);
        let mut shared = all.filter_map(|(name, a)| name.as_ref().filter(|_| a.is_shared()));
        match shared.next() {
            Some(name) => Err(self.usage(format!(
                "@{} writes to the input %{name}, whose memory another array has too",
                self.name
            ))),
            None => Ok(()),
        }
    }

    fn usage(&self, m: String) -> Diagnostic {
        let at = At { func: Some(self.name.clone()), ..At::default() };
        Diagnostic::new(at, Kind::Usage, m)
    }
}

/// Where results go; those that are elsewhere have no place.
fn at(results: &[Option<DeviceArray>]) -> Vec<CUdeviceptr> {
    results.iter().map(|r| r.as_ref().map_or(0, |r| r.block.at())).collect()
}
