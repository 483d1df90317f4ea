//! Calls of user functions, exchanges between ranks and effects, by the thread that runs the program, on the memory of the buffers.
#![allow(unsafe_code)]

use super::kernel::compile::CompileContext;
use super::workers::WorkerSet;
use crate::runtime::array::Array;
use crate::runtime::bytes::Bytes;
use crate::runtime::effects::print_effect;
use crate::runtime::functions::{Call, Opaque, TensorMut, TensorRef};
use crate::runtime::ranks::Communicator;
use adfuse_ir::kernel::{Buffer, BufferData, DebugPrint, Exchange, ExchangeKind, Library};
use adfuse_ir::{At, DType, Diagnostic, Kind};
use cranelift_entity::EntityRef;
use smallvec::SmallVec;
use std::sync::Arc;

/// An exchange, made.
pub(super) struct CompiledExchange {
    kind: ExchangeKind,
    /// Nothing where it is made for its size alone.
    communicator: Option<Arc<dyn Communicator>>,
    from: Option<DenseArray>,
    to: DenseArray,
}

/// A call, made.
pub(super) struct CompiledCall {
    name: String,
    /// Nothing where the call is made for its size alone.
    function: Option<Arc<Opaque>>,
    args: Vec<DenseArray>,
    result: DenseArray,
    scratch: u64,
    scratch_bytes: usize,
}

/// An effect, made.
pub(super) struct CompiledPrint {
    label: String,
    value: DenseArray,
}

/// A dense tensor: where it is, and what.
struct DenseArray {
    buffer: usize,
    dtype: DType,
    dims: Vec<u64>,
    bytes: usize,
}

impl CompileContext<'_> {
    pub(super) fn library(&mut self, step: &Library) -> Result<CompiledCall, Diagnostic> {
        let name = &step.function;
        let refuse = |m: String| Diagnostic::new(At::default(), Kind::Unsupported, m);
        let function = match self.host {
            None => None,
            Some(host) => {
                let found = host.functions.get(name).cloned();
                let unknown = || refuse(format!("there is no library function @{name}"));
                Some(found.ok_or_else(unknown)?)
            }
        };
        let &[out] = step.outputs.as_slice() else {
            let m = format!("@{name} has one result, not {}", step.outputs.len());
            return Err(refuse(m));
        };
        let args = step.inputs.iter().map(|&b| self.dense(b)).collect();
        let result = self.dense(out);
        let elements = i64::try_from(step.scratch).unwrap_or(i64::MAX);
        Ok(CompiledCall {
            name: name.clone(),
            function,
            args,
            result,
            scratch: self.shared.take(elements, 1)?,
            scratch_bytes: step.scratch as usize,
        })
    }

    /// # Errors
    /// [`Kind::NoDevice`] where this process is not one of as many ranks.
    pub(super) fn exchange(&self, step: &Exchange) -> Result<CompiledExchange, Diagnostic> {
        let communicator = match self.host.filter(|host| !host.listed) {
            None => None,
            Some(host) if host.ranks.ranks() == step.ranks => host.ranks.communicator().cloned(),
            Some(host) => {
                let m = format!(
                    "`{}` is over {} ranks, there are {}",
                    step.op(),
                    step.ranks,
                    host.ranks.ranks()
                );
                return Err(Diagnostic::new(At::default(), Kind::NoDevice, m));
            }
        };
        let from = step.from.map(|b| self.dense(b));
        Ok(CompiledExchange { kind: step.kind, communicator, from, to: self.dense(step.to) })
    }

    pub(super) fn print(&self, step: &DebugPrint) -> CompiledPrint {
        CompiledPrint { label: step.label.clone(), value: self.dense(step.from) }
    }

    fn dense(&self, b: Buffer) -> DenseArray {
        let data: &BufferData = &self.program.buffers[b];
        let dims = data.dims.iter().map(|n| n.unsigned_abs()).collect();
        let bytes = data.bytes() as usize;
        DenseArray { buffer: b.index(), dtype: data.dtype, dims, bytes }
    }
}

impl CompiledCall {
    pub(super) fn run(&self, worker_set: &mut WorkerSet<'_>) -> Result<(), Diagnostic> {
        let Some(function) = &self.function else { return Ok(()) };
        let worker = worker_set.worker(0);
        let mut args: SmallVec<[TensorRef<'_>; 8]> = SmallVec::new();
        for d in &self.args {
            // SAFETY: the buffer is dense and has this many bytes, which an earlier step or the caller has written and
            // nobody writes meanwhile; they begin where its elements may.
            let bytes = unsafe { slice(worker.table[d.buffer], d.bytes) };
            args.push(TensorRef { dtype: d.dtype, dims: &d.dims, bytes });
        }
        let out = &self.result;
        // SAFETY: nobody else touches the result and the scratch while the function runs: the verifier has seen that
        // the buffer is written here alone, and a plan for memory has both at bytes of their own. They hold
        // anything, and so are made zeros as bytes before there is a slice of them.
        let (bytes, scratch) = unsafe {
            let (to, beside) = (worker.table[out.buffer], worker.all(self.scratch));
            to.write_bytes(0, out.bytes);
            beside.write_bytes(0, self.scratch_bytes);
            (slice_mut(to, out.bytes), slice_mut(beside, self.scratch_bytes))
        };
        let result = TensorMut { dtype: out.dtype, dims: &out.dims, bytes };
        function.call(&self.name, &mut Call { args: &args, result, scratch })
    }
}

impl CompiledExchange {
    pub(super) fn run(&self, worker_set: &mut WorkerSet<'_>) -> Result<(), Diagnostic> {
        let Some(communicator) = &self.communicator else { return Ok(()) };
        let worker = worker_set.worker(0);
        let from = match &self.from {
            None => &[][..],
            // SAFETY: as of the operands of a call: the verifier has seen that the buffer is dense and has its values.
            Some(d) => unsafe { slice(worker.table[d.buffer], d.bytes) },
        };
        let at = worker.table[self.to.buffer];
        // SAFETY: as of the result of a call: it is written here alone and shares no bytes with what is read, and it is
        // made zeros as bytes before there is a slice of it.
        let to = unsafe {
            at.write_bytes(0, self.to.bytes);
            slice_mut(at, self.to.bytes)
        };
        communicator.exchange(self.kind, from, to)
    }
}

impl CompiledPrint {
    pub(super) fn run(&self, worker_set: &mut WorkerSet<'_>) -> Result<(), Diagnostic> {
        let DenseArray { buffer, dtype, dims, bytes } = &self.value;
        let worker = worker_set.worker(0);
        // SAFETY: as of the operands of a call: the verifier has seen that the buffer is dense and has its values.
        let given = unsafe { slice(worker.table[*buffer], *bytes) };
        let mut copy = Bytes::zeroed(dtype.bytes() as usize, *bytes as u64)?;
        copy.copy_from_slice(given);
        print_effect(&self.label, &Array::from_bytes(*dtype, dims, copy));
        Ok(())
    }
}

/// Bytes from a place on; it may be anything where there are none.
///
/// # Safety
/// `bytes` bytes at `at` must be readable and initialised, and nobody writes them while the slice lives.
unsafe fn slice<'a>(at: *const u8, bytes: usize) -> &'a [u8] {
    // SAFETY: the caller's.
    if bytes == 0 { &[] } else { unsafe { std::slice::from_raw_parts(at, bytes) } }
}

/// As [`slice`], to be written.
///
/// # Safety
/// As of [`slice`], and nobody else may use them as long as the slice lives.
unsafe fn slice_mut<'a>(at: *mut u8, bytes: usize) -> &'a mut [u8] {
    // SAFETY: the caller's.
    if bytes == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(at, bytes) } }
}
