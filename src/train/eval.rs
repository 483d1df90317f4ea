//! Evaluation: a function of a model and a batch, with layers as they are outside of training.

use super::definition::{batch_inputs, input_name};
use super::objective::Objective;
use super::state::TrainState;
use crate::backends::backend::Executable;
use crate::backends::{Array, Resident};
use crate::device::{ArgumentKey, Device, ProgramCache};
use crate::ir::Diagnostic;
use crate::nn::Param;
use crate::trace::{Tensor, Tracer, trace_like};
use crate::tree::{self, Params};
use std::sync::Arc;

/// The closure of an evaluation.
type EvalFunction<N, B, R> = dyn Fn(&N, B) -> R + Send + Sync;

/// What makes the inputs of a model in a trace.
type NetInputs<'a, N> = dyn Fn(&Tracer) -> N + 'a;

/// A function of a model and a batch that is compiled when the first batch of its types arrives. `N` is the model in a trace, `B` a batch in a
/// trace, `R` what the closure returns.
///
/// A program is kept for the structure and the types of a batch, and for each training step whose state it evaluates. Where [`EvalStep::run`] is given values alone, it is
/// kept for their structure and types: settings of the model that are no leaves, such as an epsilon, are those of the first values: models with other settings
/// have a step of their own.
pub struct EvalStep<N: Params<Tensor>, B: Params<Tensor>, R: Params<Tensor>> {
    function: Box<EvalFunction<N, B, R>>,
    programs: ProgramCache<EvalKey, EvalProgram<R>>,
}

/// What a program is made for.
#[derive(PartialEq)]
struct EvalKey {
    device: Device,
    model: ModelKey,
    batch: ArgumentKey,
}

/// Which model a program has.
#[derive(PartialEq)]
enum ModelKey {
    /// That of the training step of a number, with its settings.
    Defined(u64),
    /// Values alone.
    Values(ArgumentKey),
}

struct EvalProgram<R: Params<Tensor>> {
    executable: Arc<dyn Executable>,
    /// A tree like the results.
    like: R::With<Array>,
}

/// An evaluation step: dropout keeps everything, and norms of batches use their running statistics.
pub fn eval_step<N: Params<Tensor>, B: Params<Tensor>, R: Params<Tensor>>(
    function: impl Fn(&N, B) -> R + Send + Sync + 'static,
) -> EvalStep<N, B, R> {
    EvalStep { function: Box::new(function), programs: ProgramCache::new() }
}

impl<N: Params<Tensor>, B: Params<Tensor>, R: Params<Tensor>> EvalStep<N, B, R> {
    /// What the closure gives for a model and a batch.
    ///
    /// # Errors
    /// Those of the closure's trace, with the place in the source; [`Kind::Limit`](crate::ir::Kind::Limit) when memory or the budget is not enough.
    pub fn run(
        &self,
        device: &Device,
        model: &N::With<Array>,
        batch: &B::With<Array>,
    ) -> Result<R::With<Array>, Diagnostic> {
        let arrays = tree::leaves(model);
        let key = ModelKey::Values(ArgumentKey::of(model, &arrays));
        let net = |t: &Tracer| {
            tree::map(model, |path, a: &Array| t.input(&input_name("net", path.as_str()), a.ty()))
        };
        let tensors = arrays.into_iter().map(Resident::from).collect();
        self.run_on((device, key), &net, tensors, batch)
    }

    /// As [`EvalStep::run`], with the model's tensors where the device keeps them; `net` makes the inputs for them.
    fn run_on(
        &self,
        (device, model): (&Device, ModelKey),
        net: &NetInputs<'_, N>,
        mut tensors: Vec<Resident>,
        batch: &B::With<Array>,
    ) -> Result<R::With<Array>, Diagnostic> {
        let arrays = tree::leaves(batch);
        let batch_key = ArgumentKey::of(batch, &arrays);
        let key = EvalKey { device: device.clone(), model, batch: batch_key };
        let program = self.programs.get_or_make(key, || {
            let (f, like) = trace_like("evaluation", |t| {
                (self.function)(&net(t), batch_inputs::<B>(t, batch))
            })?;
            Ok(EvalProgram { executable: device.compile(&f)?.executable, like })
        })?;
        tensors.extend(arrays.into_iter().map(Resident::from));
        let results = program.executable.run_resident(tensors)?;
        let results =
            results.into_iter().map(Resident::into_array).collect::<Result<Vec<_>, _>>()?;
        Ok(tree::rebuild(&program.like, results))
    }
}

impl<M: Params<Param>, B: Params<Tensor>, R: Objective> TrainState<M, B, R> {
    /// What an evaluation step gives for the present parameters, which stay where they are.
    ///
    /// # Errors
    /// As [`EvalStep::run`].
    pub fn eval<C: Params<Tensor>, E: Params<Tensor>>(
        &self,
        step: &EvalStep<M::With<Tensor>, C, E>,
        batch: &C::With<Array>,
    ) -> Result<E::With<Array>, Diagnostic> {
        let net = |t: &Tracer| {
            tree::map(self.model(), |path, p| {
                t.input(&input_name("net", path.as_str()), p.ty.clone())
            })
        };
        step.run_on(
            (self.device(), ModelKey::Defined(self.model_number())),
            &net,
            self.resident_params()?,
            batch,
        )
    }
}
