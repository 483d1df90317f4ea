//! Scatters, argsorts, library functions and exchanges between ranks.

use super::state::{KernelState, OUTSIDE, ProgramRun, coordinates, internal, offset, volume};
use super::{ParamReader, outputs};
use crate::reference::indirect::{argsort, joined};
use crate::reference::{EvalTensor, evaluate, reserve};
use crate::runtime::array::Array;
use crate::runtime::bytes::Bytes;
use crate::runtime::library_functions::LibraryFunctions;
use crate::runtime::ranks::RankGroup;
use adfuse_ir::kernel::{Argsort, Attend, Exchange, Library, Operand, Scatter};
use adfuse_ir::op::{Composition, composition_of_step};
use adfuse_ir::{At, Diagnostic, Kind, Literal, TensorType};

impl ProgramRun<'_> {
    pub(super) fn scatter(&mut self, step: &Scatter) -> Result<(), Diagnostic> {
        let data = &self.program.buffers[step.out];
        let (dtype, dims, wide) = (data.dtype, &data.dims, data.dtype.compute());
        let convert = |from, to, b| Literal::from_bits(from, b).convert(to).bits();
        let elements = volume(dims)?;
        let mut sums = reserve(elements)?;
        match step.from {
            Operand::Buffer(b) => {
                sums.extend(self.tensor(b)?.bits.iter().map(|&b| convert(dtype, wide, b)));
            }
            Operand::Literal(l) => sums.resize(elements as usize, l.convert(wide).bits()),
        }
        let kept = KernelState::default();
        let total = volume(&step.domain)?;
        let mut reader = ParamReader::new(self, &step.params, &step.program.params, &kept);
        let mut places = reserve(total)?;
        let updates = outputs(&step.program, total, &mut |start, n, lanes| {
            for lane in 0..n {
                let place = (start + lane) as u64;
                let at = coordinates(&step.domain, place);
                reader.read(&at, place, place)?;
                for (to, &bits) in lanes.iter_mut().zip(&reader.bits) {
                    to[lane] = bits;
                }
                let holds =
                    step.guards.iter().all(|g| g.range.contains(&reader.eval(&g.expr, &at)));
                let index = step.index.iter().map(|e| reader.eval(e, &at));
                places.push(if holds { offset(index, dims)? as u64 } else { u64::MAX });
            }
            Ok(())
        })?;
        for (place, &update) in places.into_iter().zip(&updates[0]) {
            if place != u64::MAX {
                let slot = sums.get_mut(place as usize).ok_or_else(|| internal(OUTSIDE))?;
                *slot = joined(step.update, wide, *slot, update);
            }
        }
        sums.iter_mut().for_each(|b| *b = convert(wide, dtype, *b));
        self.put(step.out, sums)
    }

    /// Attention by its definition: what the op is composed of.
    pub(super) fn attend(&mut self, step: &Attend) -> Result<(), Diagnostic> {
        let inputs: Vec<EvalTensor> =
            step.inputs.iter().map(|&b| self.tensor(b).cloned()).collect::<Result<_, _>>()?;
        let types = step.inputs.iter().filter_map(|&b| self.program.buffers[b].ty());
        let types: Vec<TensorType> = types.collect();
        let f = composition_of_step(step.op(), Composition::Defined, &types, &step.attrs())?;
        for (&b, t) in step.outputs.iter().zip(evaluate(&f, inputs)?) {
            self.put(b, t.bits.clone())?;
        }
        Ok(())
    }

    pub(super) fn argsort(&mut self, step: &Argsort) -> Result<(), Diagnostic> {
        let axis = usize::from(step.axis);
        let count = self.program.buffers[step.out].dims[axis] as usize;
        let places = argsort(self.tensor(step.from)?, axis, step.descending, count)?;
        self.put(step.out, places)
    }

    pub(super) fn exchange(
        &mut self,
        step: &Exchange,
        group: &RankGroup,
    ) -> Result<(), Diagnostic> {
        let communicator = group.communicator().filter(|c| c.ranks() == step.ranks);
        let communicator = communicator.ok_or_else(|| {
            let m = format!(
                "`{}` is over {} ranks, there are {}",
                step.op(),
                step.ranks,
                group.ranks()
            );
            Diagnostic::new(At::default(), Kind::NoDevice, m)
        })?;
        let from = step.from.map(|b| self.tensor(b)?.to_array()).transpose()?;
        let from = from.as_ref().map_or(&[][..], |array| array.bytes());
        let data = &self.program.buffers[step.to];
        let dims: Vec<u64> = data.dims.iter().map(|n| n.unsigned_abs()).collect();
        let mut to = Bytes::zeroed(data.dtype.bytes() as usize, data.bytes())?;
        communicator.exchange(step.kind, from, &mut to)?;
        self.put(step.to, Array::from_bytes(data.dtype, &dims, to).to_bits())
    }

    pub(super) fn library(
        &mut self,
        step: &Library,
        functions: &mut dyn LibraryFunctions,
    ) -> Result<(), Diagnostic> {
        let name = &step.function;
        let wrong = |kind, m: String| Diagnostic::new(At::default(), kind, m);
        let inputs: Result<Vec<Array>, Diagnostic> =
            step.inputs.iter().map(|&b| self.tensor(b)?.to_array()).collect();
        let called = functions.call(name, &inputs?);
        let unknown = || wrong(Kind::Unsupported, format!("there is no library function @{name}"));
        let results = called.ok_or_else(unknown)??;
        if results.len() != step.outputs.len() {
            let m = format!("@{name} gave {} results, not {}", results.len(), step.outputs.len());
            return Err(wrong(Kind::Arity, m));
        }
        for (&b, result) in step.outputs.iter().zip(&results) {
            let data = &self.program.buffers[b];
            if Some(result.ty()) != data.ty() {
                let m = format!("@{name} gave {} for %{}", result.ty(), data.name);
                return Err(wrong(Kind::Shape, m));
            }
            self.put(b, result.to_bits())?;
        }
        Ok(())
    }
}
