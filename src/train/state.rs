//! Training steps, and the state that they go through: parameters, the optimizer's tensors and the number of steps, which stay on the device.

use super::definition::{ResultTarget, StepDefinition, StepProgram, batch_types};
use super::objective::Objective;
use crate::backends::Array;
use crate::device::Device;
use crate::ir::{At, DType, Diagnostic, Kind, Literal, TensorType};
use crate::nn::{self, Param};
use crate::optim::Optimizer;
use crate::trace::Tensor;
use crate::tree::{self, Params};
use std::fmt;
use std::sync::Arc;

/// A training step: forward, backward and update as one program, which is made when the first batch of its types arrives.
///
/// `M` is the model, `B` what a batch is in a trace, `R` what the closure returns.
pub struct TrainStep<M: Params<Param>, B, R> {
    definition: Arc<StepDefinition<M, B, R>>,
}

/// A training step of a model: the closure is given the model and a batch, and returns the loss, or the loss and other values
/// ([`Objective`]).
pub fn train_step<M, B, R>(
    optimizer: impl Optimizer + 'static,
    model: M,
    loss: impl Fn(&M::With<Tensor>, B) -> R + Send + Sync + 'static,
) -> TrainStep<M, B, R>
where
    M: Params<Param>,
    B: Params<Tensor>,
    R: Objective,
{
    let definition = StepDefinition::new(model, Box::new(optimizer), Box::new(loss));
    TrainStep { definition: Arc::new(definition) }
}

impl<M: Params<Param>, B: Params<Tensor>, R: Objective> TrainStep<M, B, R> {
    /// The state before the first step, with parameters drawn from the seed. Random layers draw from it too.
    ///
    /// # Errors
    /// [`Kind::Limit`] when memory is not enough; [`Kind::NoDevice`] where the device is not on this host.
    pub fn init(&self, device: Device, seed: u64) -> Result<TrainState<M, B, R>, Diagnostic> {
        let values = nn::init(&self.definition.model, seed)?;
        self.with(device, &values, seed)
    }

    /// As [`TrainStep::init`], with these parameters.
    ///
    /// # Errors
    /// As there; [`Kind::Shape`] when a parameter has not the model's type.
    pub fn with(
        &self,
        device: Device,
        values: &M::With<Array>,
        seed: u64,
    ) -> Result<TrainState<M, B, R>, Diagnostic> {
        let values = tree::leaves(values);
        let kept = self.definition.kept.iter();
        let fill = |k: &crate::optim::OptimizerState| {
            let dims = k.ty.dims().unwrap_or_default();
            Array::splat(&dims, Literal::from_f64(k.ty.dtype, k.fill))
        };
        let kept = kept.map(fill).collect::<Result<Vec<_>, _>>()?;
        let state = TrainState {
            definition: Arc::clone(&self.definition),
            programs: Vec::new(),
            device,
            values,
            kept,
            steps: Array::scalar(Literal::from_i64(DType::I64, 0)),
            seed,
            count: 0,
        };
        state.check()?;
        Ok(state)
    }
}

/// The state of training on a device.
pub struct TrainState<M: Params<Param>, B, R: Objective> {
    definition: Arc<StepDefinition<M, B, R>>,
    programs: Vec<StepProgram<R>>,
    device: Device,
    values: Vec<Array>,
    kept: Vec<Array>,
    steps: Array,
    seed: u64,
    count: u64,
}

impl<M: Params<Param>, B: Params<Tensor>, R: Objective> TrainState<M, B, R> {
    /// A step on a batch: the loss before it, and the other values that the closure returns.
    ///
    /// A batch of types that have not been there before has a program made for it, which is kept.
    ///
    /// # Errors
    /// Those of the closure's trace, with the place in the source; [`Kind::Usage`] for a loss that is no float scalar; [`Kind::Limit`]
    /// when memory or the budget is not enough. The state is as it was.
    pub fn step(&mut self, batch: &B::With<Array>) -> Result<R::Report, Diagnostic> {
        let program = self.program(batch)?;
        todo_run(self, program, batch)
    }

    /// The number of steps so far.
    pub fn steps(&self) -> u64 {
        self.count
    }

    /// The parameters.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn params(&self) -> Result<M::With<Array>, Diagnostic> {
        let mut values = self.values.iter();
        tree::try_map(&self.definition.model, |_, _| {
            Ok(values.next().cloned().unwrap_or_else(|| unreachable!("a value for each parameter")))
        })
    }
}
