//! The loss and its gradients as they stand in a step: in the precision of the step, over its micro-batches.

use super::objective::{AuxArrays, Objective};
use crate::ir::{At, DType, Diagnostic, Dim, Function, Kind, TensorType};
use crate::trace::{Tensor, Traced};

/// A traced loss with what it took to trace it.
pub(super) struct TracedLoss<R: Objective> {
    pub(super) f: Traced,
    pub(super) aux: AuxArrays<R>,
    pub(super) aux_count: usize,
    /// The running parameters that it updates; their next values are its last results.
    pub(super) updated: Vec<usize>,
}

/// What the loss and its gradients gave over a batch.
pub(super) struct Gradients {
    pub(super) loss: Tensor,
    /// The other values of the objective: with several micro-batches an entry of each, along a new first axis.
    pub(super) aux: Vec<Tensor>,
    /// The running parameters that layers update.
    pub(super) running: Vec<Tensor>,
    /// The gradients of the mean of the loss, in the order of the trained parameters.
    pub(super) gradients: Vec<Tensor>,
}

/// A traced loss, differentiated.
pub(super) struct DifferentiatedLoss<'a> {
    gradient: &'a Function,
    /// The number of the other values.
    aux: usize,
    /// The running parameters that it updates, by number.
    updated: &'a [usize],
    /// Whether the loss is multiplied by a scale, and given as it is beside that.
    scaled: bool,
    micro_batches: u64,
}

/// What a step gives the loss.
#[derive(Clone, Copy)]
pub(super) struct LossInputs<'a> {
    pub(super) params: &'a [Tensor],
    /// The seed of the random draws of the first micro-batch, a scalar `i64`.
    pub(super) seed: &'a Tensor,
    pub(super) scale: Option<&'a Tensor>,
    pub(super) batch: &'a [Tensor],
}

impl<'a> DifferentiatedLoss<'a> {
    pub(super) fn new<R: Objective>(
        gradient: &'a Function,
        loss: &'a TracedLoss<R>,
        scaled: bool,
        micro_batches: u64,
    ) -> DifferentiatedLoss<'a> {
        DifferentiatedLoss {
            gradient,
            aux: loss.aux_count,
            updated: &loss.updated,
            scaled,
            micro_batches,
        }
    }

    /// Loss and gradients of the batch, in a trace.
    pub(super) fn of(&self, inputs: &LossInputs<'_>) -> Gradients {
        match self.micro_batches {
            1 => self.one(inputs),
            n => self.several(inputs, n),
        }
    }

    /// Of a batch that is not cut.
    fn one(&self, inputs: &LossInputs<'_>) -> Gradients {
        let ends = [inputs.seed].into_iter().chain(inputs.scale).chain(inputs.batch);
        let args: Vec<&Tensor> = inputs.params.iter().chain(ends).collect();
        let mut out = inputs.seed.tracer().call(self.gradient, &args).into_iter();
        // The scaled loss is what was differentiated; the loss itself follows it.
        let mut loss = out.next();
        if self.scaled {
            loss = out.next();
        }
        let aux = out.by_ref().take(self.aux).collect();
        let running = out.by_ref().take(self.updated.len()).collect();
        let loss = loss.unwrap_or_else(|| inputs.seed.clone());
        Gradients { loss, aux, running, gradients: out.collect() }
    }

    /// Of a batch in `n` parts, one after the other: gradients are added up in at least `f32`, from the first part to the last.
    fn several(&self, inputs: &LossInputs<'_>, n: u64) -> Gradients {
        let batch: Vec<Tensor> = inputs.batch.iter().map(|t| parts(t, n)).collect();
        let sum = self.looped(inputs, &batch, n);
        let mean = |t: &Tensor| t / n as f64;
        let gradients = sum.gradients.iter().map(mean).collect();
        Gradients { loss: mean(&sum.loss), gradients, ..sum }
    }

    /// Of a part, with the running parameters as the parts before left them.
    fn part(&self, inputs: &LossInputs<'_>, running: &[Tensor]) -> Gradients {
        let mut params = inputs.params.to_vec();
        for (&k, now) in self.updated.iter().zip(running) {
            params[k] = now.clone();
        }
        let of = self.one(&LossInputs { params: &params, ..*inputs });
        // The first of a sum is as wide as what is added to it.
        let gradients = of.gradients.iter().map(Tensor::compute).collect();
        Gradients { loss: of.loss.compute(), gradients, ..of }
    }

    /// The sums, which a loop over the parts hands over from turn to turn, so that one part at a time is in memory.
    fn looped(&self, inputs: &LossInputs<'_>, batch: &[Tensor], n: u64) -> Gradients {
        let t = inputs.seed.tracer();
        let types = self.gradient.result_types();
        let zeros = |ty: &TensorType| t.full(ty.with_dtype(ty.dtype.compute()), 0.0);
        let gradients = &types[types.len() - self.gradient_count()..];
        let sums: Vec<Tensor> = gradients.iter().map(zeros).collect();
        let running: Vec<Tensor> = self.updated.iter().map(|&k| inputs.params[k].clone()).collect();
        let loss = zeros(&TensorType::scalar(types[usize::from(self.scaled)].dtype));
        let places = t.iota(TensorType::of(DType::I64, &[n]), 0);
        let start = (loss, sums, running);
        let ((loss, gradients, running), aux) =
            t.scan(start, (places, batch.to_vec()), |(loss, sums, running), (place, part)| {
                let seed = inputs.seed + &place;
                let inputs = LossInputs { seed: &seed, batch: &part, ..*inputs };
                let own = self.part(&inputs, &running);
                let sums = added(&sums, &own.gradients);
                ((loss + own.loss, sums, own.running), own.aux)
            });
        Gradients { loss, aux, running, gradients }
    }

    /// The number of gradients that a call gives.
    fn gradient_count(&self) -> usize {
        let before = 1 + usize::from(self.scaled) + self.aux + self.updated.len();
        self.gradient.results().len() - before
    }
}

fn added(sums: &[Tensor], more: &[Tensor]) -> Vec<Tensor> {
    sums.iter().zip(more).map(|(sum, more)| sum + more).collect()
}

/// A tensor of the batch in `n` parts along a new first axis; a scalar is in all of them.
fn parts(t: &Tensor, n: u64) -> Tensor {
    let shape = t.ty().shape;
    match shape.first().and_then(|d| d.known()) {
        None => Tensor::stack(&vec![t; n as usize], 0),
        Some(rows) => {
            let rest = shape[1..].iter().copied();
            let cut: Vec<Dim> = [n.into(), (rows / n).into()].into_iter().chain(rest).collect();
            t.reshape(cut)
        }
    }
}

/// The type of one of `n` parts of a tensor of the batch.
///
/// # Errors
/// [`Kind::Shape`] where they do not divide its rows.
pub(super) fn part_type(path: &str, ty: &TensorType, n: u64) -> Result<TensorType, Diagnostic> {
    let mut part = ty.clone();
    match part.shape.first_mut() {
        Some(first) if n > 1 => match first.known().filter(|rows| rows % n == 0) {
            Some(rows) => *first = Dim::Const(rows / n),
            None => {
                let of = if path.is_empty() {
                    "the batch".into()
                } else {
                    format!("`{path}` of the batch")
                };
                let m = format!("{of} is {ty}: {n} micro-batches do not divide its first axis");
                return Err(Diagnostic::new(At::default(), Kind::Shape, m));
            }
        },
        _ => {}
    }
    Ok(part)
}
