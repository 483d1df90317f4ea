//! Evaluation: a function of a model and a batch, with layers as they are outside of training.

use super::definition::{batch_inputs, input_name, placeholder};
use super::objective::Objective;
use super::state::TrainState;
use crate::backends::backend::Executable;
use crate::backends::{Array, Resident};
use crate::device::Device;
use crate::ir::{Diagnostic, TensorType};
use crate::nn::Param;
use crate::trace::{Tensor, Tracer, trace};
use crate::tree::{self, Params};
use std::sync::{Arc, Mutex, PoisonError};

/// The closure of an evaluation.
type EvalFunction<N, B, R> = dyn Fn(&N, B) -> R + Send + Sync;

/// What makes the inputs of a model in a trace.
type NetInputs<'a, N> = dyn Fn(&Tracer) -> N + 'a;

/// A function of a model and a batch that is compiled when the first batch of its types arrives. `N` is the model in a trace, `B` a batch in a
/// trace, `R` what the closure returns.
///
/// A program is kept for the structure and the types of a batch and the types of the model's parameters, and for each training step whose state it evaluates. Where
/// [`EvalStep::run`] is given values alone, settings of the model that are no leaves, such as an epsilon, are those of the first values: models with other settings
/// have a step of their own.
pub struct EvalStep<N: Params<Tensor>, B: Params<Tensor>, R: Params<Tensor>> {
    function: Box<EvalFunction<N, B, R>>,
    programs: Mutex<Vec<Arc<EvalProgram<R>>>>,
}

/// What a program is made for.
#[derive(PartialEq, Eq)]
struct EvalKey {
    /// The number of the model's training step, whose settings the program has; 0 for values without one.
    model: u64,
    /// The structure of a batch.
    structure: String,
    /// The types of all arrays.
    types: Vec<TensorType>,
}

struct EvalProgram<R: Params<Tensor>> {
    key: EvalKey,
    device: Device,
    executable: Arc<dyn Executable>,
    results: R::With<Array>,
}

/// An evaluation step: dropout keeps everything, and norms of batches use their running statistics.
pub fn eval_step<N: Params<Tensor>, B: Params<Tensor>, R: Params<Tensor>>(
    function: impl Fn(&N, B) -> R + Send + Sync + 'static,
) -> EvalStep<N, B, R> {
    EvalStep { function: Box::new(function), programs: Mutex::default() }
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
        let tensors = tree::leaves(model).into_iter().map(Resident::from).collect();
        let net = |t: &Tracer| {
            tree::map(model, |path, a: &Array| t.input(&input_name("net", path.as_str()), a.ty()))
        };
        self.run_on((device, 0), &net, tensors, batch)
    }

    /// As [`EvalStep::run`], with the model's tensors where the device keeps them; `net` makes the inputs for them.
    fn run_on(
        &self,
        (device, model): (&Device, u64),
        net: &NetInputs<'_, N>,
        mut tensors: Vec<Resident>,
        batch: &B::With<Array>,
    ) -> Result<R::With<Array>, Diagnostic> {
        let arrays = tree::leaves(batch);
        let types: Vec<TensorType> =
            tensors.iter().map(Resident::ty).chain(arrays.iter().map(Array::ty)).collect();
        let key = EvalKey { model, structure: tree::structure(batch), types };
        let program = self.program(device, key, (net, batch))?;
        tensors.extend(arrays.into_iter().map(Resident::from));
        let results = program.executable.run_resident(tensors)?;
        let results =
            results.into_iter().map(Resident::into_array).collect::<Result<Vec<_>, _>>()?;
        Ok(tree::rebuild(&program.results, results))
    }

    fn program(
        &self,
        device: &Device,
        key: EvalKey,
        (net, batch): (&NetInputs<'_, N>, &B::With<Array>),
    ) -> Result<Arc<EvalProgram<R>>, Diagnostic> {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = programs.iter().find(|p| p.key == key && p.device.is(device)) {
            return Ok(Arc::clone(known));
        }
        let mut results = None;
        let f = trace("evaluation", |t| {
            let out = (self.function)(&net(t), batch_inputs::<B>(t, batch));
            results = Some(tree::map(&out, |_, t| placeholder(t)));
            tree::leaves(&out)
        })?;
        let executable = device.compile(&f)?.executable;
        let results = results.unwrap_or_else(|| unreachable!("the closure has been run"));
        let program = Arc::new(EvalProgram { key, device: device.clone(), executable, results });
        programs.push(Arc::clone(&program));
        Ok(program)
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
            (self.device(), self.model_number()),
            &net,
            self.resident_params()?.to_vec(),
            batch,
        )
    }
}
