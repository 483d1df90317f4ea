//! Runs verified programs of kernels: slow, safe, in the orders that strict mode defines.
//!
//! What the reference engine does with instructions, this does with steps, with the same orders and
//! the same scalar interpreter. It is how a lowering is tested without any other engine.

mod read;
mod sink;

use super::contract::contract;
use super::indirect::sum;
use super::map::outputs;
use super::{Tensor, out_of_memory, reserve};
use crate::array::Array;
use adfuse_ir::kernel::{
    Buffer, Contract, Extents, Kernel, Operand, Program, Row, Scatter, Stage, Step, Tile, Verified,
};
use adfuse_ir::{At, DType, Diagnostic, Kind, Literal, TensorType};
use cranelift_entity::SecondaryMap;
use read::Reader;
use smallvec::SmallVec;

/// Runs a program on arrays of its inputs' types.
///
/// # Errors
/// When the arguments do not have the inputs' types, and when memory is not enough.
pub fn run(program: &Verified<Program>, args: &[Array]) -> Result<Vec<Array>, Diagnostic> {
    let inputs: Vec<Buffer> = program.inputs().collect();
    let wanted: Vec<TensorType> = inputs.iter().filter_map(|&b| program.buffers[b].ty()).collect();
    let found: Vec<TensorType> = args.iter().map(Array::ty).collect();
    if wanted != found {
        let at = At { func: Some(program.name.clone()), ..At::default() };
        let m = format!("@{} takes {wanted:?}, found {found:?}", program.name);
        return Err(Diagnostic::new(at, Kind::Usage, m));
    }
    let mut run = Run { program, tensors: SecondaryMap::new() };
    for (&b, a) in inputs.iter().zip(args) {
        run.tensors[b] = Some(Tensor::from_array(a)?);
    }
    for (b, data) in program.buffers.iter() {
        if let adfuse_ir::kernel::Role::Constant(values) = &data.role {
            let bits = values.iter().map(|l| l.bits()).collect();
            run.tensors[b] = Some(Tensor { dtype: data.dtype, dims: data.dims.clone(), bits });
        }
    }
    for step in &program.steps {
        match step {
            Step::Kernel(kernel) => run.kernel(kernel)?,
            Step::Contract(step) => run.contract(step)?,
            Step::Scatter(step) => run.scatter(step)?,
        }
    }
    program.outputs.iter().map(|&b| run.tensor(b)?.to_array()).collect()
}

struct Run<'p> {
    program: &'p Program,
    tensors: SecondaryMap<Buffer, Option<Tensor>>,
}

/// What a kernel keeps, for all points of its domain.
#[derive(Default)]
struct Kept {
    rows: SecondaryMap<Row, Vec<u64>>,
    tiles: SecondaryMap<Tile, Vec<u64>>,
}

impl Run<'_> {
    fn tensor(&self, b: Buffer) -> Result<&Tensor, Diagnostic> {
        self.tensors[b].as_ref().ok_or_else(|| internal("a buffer is read before it is written"))
    }

    fn ty(&self, b: Buffer) -> Result<TensorType, Diagnostic> {
        self.program.buffers[b].ty().ok_or_else(|| internal("a buffer has a negative extent"))
    }

    /// Runs each stage at all points before the next: points are independent, so this is the same as
    /// running all stages at each.
    fn kernel(&mut self, kernel: &Kernel) -> Result<(), Diagnostic> {
        let mut kept = Kept::default();
        for stage in &kernel.stages {
            let values = self.values(kernel, stage, &kept)?;
            for (k, values) in values.into_iter().enumerate() {
                self.sink(kernel, stage, k, values, &mut kept)?;
            }
        }
        Ok(())
    }

    /// The outputs of a stage's program at all of its coordinates.
    fn values(
        &self,
        kernel: &Kernel,
        stage: &Stage,
        kept: &Kept,
    ) -> Result<Vec<Vec<u64>>, Diagnostic> {
        let extents = joined(&kernel.domain, &stage.axes);
        let within = volume(&stage.axes)?;
        let mut reader = Reader::new(self, &stage.params, &stage.program.params, kept);
        outputs(&stage.program, volume(&extents)?, &mut |start, n, lanes| {
            for lane in 0..n {
                let place = (start + lane) as u64;
                reader.read(&coordinates(&extents, place), place / within, place)?;
                for (to, &bits) in lanes.iter_mut().zip(&reader.bits) {
                    to[lane] = bits;
                }
            }
            Ok(())
        })
    }

    fn contract(&mut self, step: &Contract) -> Result<(), Diagnostic> {
        let (x, y) = (self.tensor(step.lhs)?, self.tensor(step.rhs)?);
        let out = contract(
            x,
            y,
            (&step.batch.0, &step.batch.1),
            (&step.contract.0, &step.contract.1),
            &self.ty(step.out)?,
        )?;
        self.tensors[step.out] = Some(out);
        Ok(())
    }

    fn scatter(&mut self, step: &Scatter) -> Result<(), Diagnostic> {
        let ty = self.ty(step.out)?;
        let dims = self.program.buffers[step.out].dims.clone();
        let wide = ty.dtype.compute();
        let convert = |from: DType, to, b| Literal::from_bits(from, b).convert(to).bits();
        let elements = volume(&dims)?;
        let mut sums = reserve(elements)?;
        match step.from {
            Operand::Buffer(b) => {
                sums.extend(self.tensor(b)?.bits.iter().map(|&b| convert(ty.dtype, wide, b)));
            }
            Operand::Literal(l) => sums.resize(elements as usize, l.convert(wide).bits()),
        }
        let kept = Kept::default();
        let total = volume(&step.domain)?;
        let mut reader = Reader::new(self, &step.params, &step.program.params, &kept);
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
                places.push(if holds { offset(index, &dims)? as u64 } else { u64::MAX });
            }
            Ok(())
        })?;
        for (place, &update) in places.into_iter().zip(&updates[0]) {
            if place != u64::MAX {
                let slot = sums.get_mut(place as usize).ok_or_else(|| internal(OUTSIDE))?;
                *slot = sum(wide, *slot, update);
            }
        }
        let out = Tensor::build(&ty, |bits| {
            bits.extend(sums.iter().map(|&b| convert(wide, ty.dtype, b)));
            Ok(())
        })?;
        self.tensors[step.out] = Some(out);
        Ok(())
    }
}

const OUTSIDE: &str = "an access of a verified program is outside of its buffer";

fn internal(message: &str) -> Diagnostic {
    Diagnostic::new(At::default(), Kind::Internal, message)
}

fn joined(domain: &[i64], axes: &[i64]) -> Extents {
    domain.iter().chain(axes).copied().collect()
}

fn volume(extents: &[i64]) -> Result<u64, Diagnostic> {
    let dims: SmallVec<[u64; 4]> = extents.iter().map(|&n| n.max(0) as u64).collect();
    TensorType::of(DType::U8, &dims).elements().ok_or_else(|| out_of_memory(u64::MAX))
}

/// The coordinates of a row-major place.
fn coordinates(extents: &[i64], place: u64) -> Extents {
    let mut at: Extents = extents.iter().map(|_| 0).collect();
    let mut rest = place as i64;
    for (x, &n) in at.iter_mut().zip(extents).rev() {
        *x = rest % n;
        rest /= n;
    }
    at
}

/// The row-major place of coordinates.
fn offset(index: impl ExactSizeIterator<Item = i64>, dims: &[i64]) -> Result<usize, Diagnostic> {
    let mut place = 0;
    for (i, &n) in index.zip(dims) {
        if !(0..n).contains(&i) {
            return Err(internal(OUTSIDE));
        }
        place = place * n + i;
    }
    Ok(place as usize)
}
