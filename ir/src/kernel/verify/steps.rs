//! Scatters, argsorts, library functions, transfers, effects.

use super::bounds::BoundsScope;
use super::kernel::fits;
use super::{ProgramVerifier, Wrong, iterable};
use crate::diag::Kind;
use crate::dtype::DType;
use crate::infer::InferError;
use crate::kernel::buffer::{Buffer, Storage};
use crate::kernel::program::{Argsort, Attend, DebugPrint, Exchange, Library, Scatter, Transfer};
use crate::kernel::stage::{Operand, Param};
use crate::types::{MAX_BYTES, TensorType};
use smallvec::SmallVec;

impl ProgramVerifier<'_> {
    pub(super) fn scatter(&mut self, place: &str, step: &Scatter) {
        let before = self.errors.len();
        if let Err(wrong) = iterable(&step.domain) {
            self.report(place, wrong);
        }
        if self.errors.len() == before {
            self.params(place, &step.domain, &step.params, &step.program.params, |p| {
                let name = match p {
                    Param::Row(_) => "row",
                    Param::Tile(_) => "tile",
                    _ => "sum",
                };
                Err(Wrong::new(Kind::Dominance, format!("a scatter keeps no {name}")))
            });
        }
        if self.errors.len() == before
            && let Err(wrong) = self.scattered(step)
        {
            self.report(place, wrong);
        }
    }

    fn scattered(&self, step: &Scatter) -> Result<(), Wrong> {
        self.writable(step.out)?;
        let out = self.data(step.out);
        let name = format!("%{}", out.name);
        if out.storage != Storage::Plain {
            let m = format!("{name} is packed: a scatter does not add to parts of words");
            return Err(Wrong::new(Kind::Unsupported, m));
        }
        match step.from {
            Operand::Literal(l) => fits(Some(l.dtype()), l.dtype(), out.dtype, &name)?,
            Operand::Buffer(b) => {
                self.readable(b)?;
                let from = self.data(b);
                fits(Some(from.dtype), from.dtype, out.dtype, &name)?;
                if from.dims != out.dims {
                    let m = format!("%{} and {name} differ in extents", from.name);
                    return Err(Wrong::new(Kind::Shape, m));
                }
            }
        }
        step.program.check().map_err(|m| Wrong::new(Kind::DType, m))?;
        let &[update] = step.program.outputs.as_slice() else {
            return Err(Wrong::new(Kind::Arity, "a scatter has one update"));
        };
        let dtype = step.program.insts[update].dtype;
        let wide = out.dtype.compute();
        fits(crate::op::Monoid::Sum.result(dtype), dtype, wide, &name)?;
        let mut scope = BoundsScope::new(&step.domain, &step.program.params);
        scope.assume(&step.guards)?;
        scope.inside(&step.index, &out.dims)
    }

    pub(super) fn argsort(&mut self, place: &str, step: &Argsort) {
        if let Err(wrong) = self.in_order(step) {
            self.report(place, wrong);
        }
    }

    fn in_order(&self, step: &Argsort) -> Result<(), Wrong> {
        self.readable(step.from)?;
        self.writable(step.out)?;
        let (from, out) = (self.data(step.from), self.data(step.out));
        let (axis, name) = (usize::from(step.axis), format!("%{}", out.name));
        if out.storage != Storage::Plain {
            let m = format!("{name} is packed: places are whole numbers");
            return Err(Wrong::new(Kind::Unsupported, m));
        }
        fits(Some(DType::I32), DType::I32, out.dtype, &name)?;
        let Some(&extent) = from.dims.get(axis) else {
            let m = format!("%{} has no axis {axis}", from.name);
            return Err(Wrong::new(Kind::Shape, m));
        };
        let alike = |(d, (a, b)): (usize, (&i64, &i64))| if d == axis { b <= a } else { a == b };
        let pairs = || from.dims.iter().zip(&out.dims).enumerate();
        if from.dims.len() != out.dims.len() || !pairs().all(alike) {
            let m = format!("{name} does not have the extents of %{}", from.name);
            return Err(Wrong::new(Kind::Shape, m));
        }
        match extent <= i64::from(i32::MAX) {
            true => Ok(()),
            false => {
                let m = format!("%{} is too long for i32 places", from.name);
                Err(Wrong::new(Kind::Limit, m))
            }
        }
    }

    pub(super) fn attend(&mut self, place: &str, step: &Attend) {
        if let Err(wrong) = self.attended(step) {
            self.report(place, wrong);
        }
    }

    /// The buffers are dense, and of the types that the op has.
    fn attended(&self, step: &Attend) -> Result<(), Wrong> {
        self.read_and_written(&step.inputs, &step.outputs)?;
        let mut types = SmallVec::new();
        for &b in step.inputs.iter().chain(&step.outputs) {
            self.dense(b, "attention has dense arrays")?;
            types.push(self.data(b).ty());
        }
        let results: Vec<_> = types.drain(step.inputs.len()..).flatten().collect();
        let wrong = |e: InferError| Wrong::new(e.kind, e.message);
        let (_, due) = step.op().infer(types, &step.attrs(), None).map_err(wrong)?;
        if due.as_slice() != results {
            let list = |types: &[TensorType]| {
                types.iter().map(TensorType::to_string).collect::<Vec<_>>().join(", ")
            };
            let m = format!("the results are {}, found {}", list(&due), list(&results));
            return Err(Wrong::new(Kind::Shape, m));
        }
        Ok(())
    }

    /// The inputs of a step may be read, and its outputs written, each once.
    fn read_and_written(&self, inputs: &[Buffer], outputs: &[Buffer]) -> Result<(), Wrong> {
        inputs.iter().try_for_each(|&b| self.readable(b))?;
        for (k, &b) in outputs.iter().enumerate() {
            self.writable(b)?;
            if outputs[..k].contains(&b) {
                let m = format!("%{} is written twice", self.data(b).name);
                return Err(Wrong::new(Kind::Overlap, m));
            }
        }
        Ok(())
    }

    pub(super) fn library(&mut self, place: &str, step: &Library) {
        if let Err(wrong) = self.called(step) {
            self.report(place, wrong);
        }
    }

    fn called(&self, step: &Library) -> Result<(), Wrong> {
        self.read_and_written(&step.inputs, &step.outputs)?;
        if step.outputs.is_empty() {
            return Err(Wrong::new(Kind::Arity, "a function without results does nothing"));
        }
        match step.scratch <= MAX_BYTES {
            true => Ok(()),
            false => {
                let m = format!("{} bytes of scratch, the limit is {MAX_BYTES}", step.scratch);
                Err(Wrong::new(Kind::Limit, m))
            }
        }
    }

    pub(super) fn transfer(&mut self, place: &str, step: &Transfer) {
        if let Err(wrong) = self.copied(step) {
            self.report(place, wrong);
        }
    }

    pub(super) fn exchange(&mut self, place: &str, step: &Exchange) {
        if let Err(wrong) = self.exchanged(step) {
            self.report(place, wrong);
        }
    }

    /// The buffers are dense, and of the types that the op has.
    fn exchanged(&self, step: &Exchange) -> Result<(), Wrong> {
        self.read_and_written(step.from.as_slice(), &[step.to])?;
        for &b in step.from.iter().chain([&step.to]) {
            self.dense(b, "ranks exchange dense arrays")?;
        }
        if step.ranks < 2 {
            let m = format!("{} ranks: an exchange is between two at least", step.ranks);
            return Err(Wrong::new(Kind::Attribute, m));
        }
        let types = step.from.iter().map(|&b| self.data(b).ty()).collect();
        let wrong = |e: InferError| Wrong::new(e.kind, e.message);
        let (_, due) = step.op().infer(types, &step.attrs(), None).map_err(wrong)?;
        let found = self.data(step.to).ty();
        match (due.first(), &found) {
            (Some(due), Some(found)) if due == found => Ok(()),
            _ => {
                let m = format!("the result is {due:?}, found {found:?}");
                Err(Wrong::new(Kind::Shape, m))
            }
        }
    }

    /// Checks that a buffer is neither packed nor strided.
    fn dense(&self, b: Buffer, why: &str) -> Result<(), Wrong> {
        let data = self.data(b);
        match data.storage == Storage::Plain && data.strides.is_none() {
            true => Ok(()),
            false => {
                let m = format!("%{} is packed or strided: {why}", data.name);
                Err(Wrong::new(Kind::Unsupported, m))
            }
        }
    }

    pub(super) fn print(&mut self, place: &str, step: &DebugPrint) {
        if let Err(wrong) = self.printed(step) {
            self.report(place, wrong);
        }
    }

    fn printed(&self, step: &DebugPrint) -> Result<(), Wrong> {
        self.readable(step.from)?;
        self.dense(step.from, "the host reads dense arrays")
    }

    fn copied(&self, step: &Transfer) -> Result<(), Wrong> {
        self.has_values(step.from)?;
        self.is_free(step.to)?;
        let (from, to) = (self.data(step.from), self.data(step.to));
        let names = format!("%{} and %{}", from.name, to.name);
        if from.space == to.space {
            let m = format!("{names} are in the same memory");
            return Err(Wrong::new(Kind::Bounds, m));
        }
        let same = from.dtype == to.dtype
            && from.dims == to.dims
            && from.storage == to.storage
            && from.strides == to.strides;
        match same {
            true => Ok(()),
            false => {
                let m = format!("{names} differ in type or layout: a transfer copies bytes");
                Err(Wrong::new(Kind::Shape, m))
            }
        }
    }
}
