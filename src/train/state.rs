//! Training steps, and the state that they go through: parameters, the optimizer's tensors and the number of steps, which stay on the device.

use super::definition::{ResultTarget, StepDefinition, StepProgram, StepSettings};
use super::objective::Objective;
use super::parallel::Division;
use super::precision::MixedPrecision;
use super::queued::QueuedStep;
use super::rank_agreement::{digest, same_on_all};
use super::sharding::{OptimizerSharding, RankRequest, ShardingReport, StateTensors};
use crate::backends::{Array, Resident};
use crate::device::{ArgumentKey, Device};
use crate::ir::{At, DType, Diagnostic, Kind, Literal, TensorType};
use crate::nn::{self, Param};
use crate::optim::{Optimizer, OptimizerState};
use crate::trace::{Tensor, Traced};
use crate::tree::{self, Params};
use std::sync::{Arc, Mutex, PoisonError};

/// A training step: forward, backward and update as one program, which is made when the first batch of its types arrives.
///
/// `M` is the model, `B` what a batch is in a trace, `R` what the closure returns.
pub struct TrainStep<M: Params<Param>, B, R> {
    definition: Arc<StepDefinition<M, B, R>>,
    leaves: u32,
    sharding: OptimizerSharding,
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
    let definition = StepDefinition::new(model, Arc::new(optimizer), Arc::new(loss));
    let sharding = OptimizerSharding::default();
    TrainStep { definition: Arc::new(definition), leaves: 1, sharding }
}

/// The step with its batches divided into `leaves` parts of equal size, a power of two, which the ranks of the device share: each is
/// given the whole batch and takes its own rows. The loss is the mean of those of the parts, and so are gradients, other values of a float
/// type, and what layers update; integers that the closure returns are summed. They are summed in the order of a fixed tree, so that in strict
/// mode the bits of a step are the same for every number of ranks up to `leaves`, a power of two, and on one device.
///
/// ```
/// use adfuse::nn::{Init, Param};
/// use adfuse::optim::Sgd;
/// use adfuse::prelude::*;
/// use adfuse::train::data_parallel;
///
/// let on = |device: Device| {
///     let loss = |p: &Tensor, x: Tensor| (&x * p - 1.0).square().mean(..);
///     let step = data_parallel(adfuse::train_step(Sgd::new(0.1), Param::new([3], Init::Ones), loss), 4);
///     let mut state = step.init(device, 0)?;
///     state.step(&Array::from_vec((0..24).map(|n| n as f32 * 0.1).collect(), [8, 3])?)?;
///     Ok::<_, Diagnostic>(state.params()?.to_f64s())
/// };
/// assert_eq!(on(Device::cpu())?, on(Device::cpu().simulated_ranks(4))?);
/// # Ok::<(), Diagnostic>(())
/// ```
pub fn data_parallel<M, B, R>(step: TrainStep<M, B, R>, leaves: u32) -> TrainStep<M, B, R>
where
    M: Params<Param>,
    B: Params<Tensor>,
    R: Objective,
{
    TrainStep { leaves, ..step }
}

impl<M: Params<Param>, B: Params<Tensor>, R: Objective> TrainStep<M, B, R> {
    /// The same step in mixed precision: the model computes in 16 bits, parameters and the optimizer stay `f32`.
    #[must_use]
    pub fn mixed_precision(self, precision: MixedPrecision) -> TrainStep<M, B, R> {
        self.with_settings(|settings| settings.precision = Some(precision))
    }

    /// The same step with its gradients computed over `n` equal parts of the batch, one after the other, and one update by the mean of them: a
    /// batch takes the memory of one of its parts, and the sums of the gradients.
    ///
    /// The batch's tensors are cut along their first axes, which `n` divides; scalars are in every part. The loss is the mean of those of the
    /// parts, and other values of the objective have an entry of each part along a new first axis. Layers that draw draw anew for each part, and
    /// running statistics go from part to part. At least one part is taken.
    ///
    /// ```
    /// use adfuse::nn::Linear;
    /// use adfuse::optim::Sgd;
    /// use adfuse::prelude::*;
    ///
    /// let loss = |net: &Linear, x: Tensor| net.apply(x).square().mean(..);
    /// let step = adfuse::train_step(Sgd::new(0.1), Linear::new(2, 1), loss).micro_batches(4);
    /// let mut state = step.init(Device::cpu(), 0)?;
    /// let x = Array::from_vec((0..16).map(|k| k as f32 / 16.0).collect(), [8, 2])?;
    /// let first = state.step(&x)?; // four times two rows
    /// assert!(state.step(&x)? < first);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[must_use]
    pub fn micro_batches(self, n: u64) -> TrainStep<M, B, R> {
        self.with_settings(|settings| settings.micro_batches = n.max(1))
    }

    fn with_settings(&self, change: impl FnOnce(&mut StepSettings)) -> TrainStep<M, B, R> {
        TrainStep {
            definition: Arc::new(self.definition.with_settings(change)),
            leaves: self.leaves,
            sharding: self.sharding,
        }
    }

    /// The same step with the optimizer's state divided among the ranks of its device, or not. Without this, the budget of the device decides
    /// ([`OptimizerSharding::Auto`]).
    ///
    /// ```
    /// use adfuse::nn::Linear;
    /// use adfuse::optim::Adam;
    /// use adfuse::prelude::*;
    /// use adfuse::train::{OptimizerSharding, data_parallel};
    ///
    /// let trained = |sharding: OptimizerSharding| {
    ///     let loss = |net: &Linear, x: Tensor| net.apply(x).square().mean(..);
    ///     let step = data_parallel(adfuse::train_step(Adam::new(0.1), Linear::new(128, 128), loss), 2);
    ///     let mut state = step.optimizer_sharding(sharding).init(Device::cpu().simulated_ranks(2), 0)?;
    ///     state.step(&Array::from_vec((0..512).map(|k| k as f32 / 512.0).collect(), [4, 128])?)?;
    ///     let saved = state.sharding().map_or(0, |report| report.saved_bytes);
    ///     Ok::<_, Diagnostic>((saved, state.params()?.weight.to_f64s()))
    /// };
    /// let (divided, whole) = (trained(OptimizerSharding::Always)?, trained(OptimizerSharding::Never)?);
    /// // Of m and v, each of 128 times 128 numbers of four bytes, a rank has a half.
    /// assert_eq!((divided.0, whole.0), (2 * 128 * 128 * 4 / 2, 0));
    /// assert_eq!(divided.1, whole.1);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    #[must_use]
    pub fn optimizer_sharding(self, sharding: OptimizerSharding) -> TrainStep<M, B, R> {
        TrainStep { sharding, ..self }
    }

    /// The state before the first step, with parameters drawn from the seed. Random layers draw from it too.
    ///
    /// # Errors
    /// [`Kind::Limit`] when memory is not enough; [`Kind::NoDevice`] where the device is not on this host.
    pub fn init(&self, device: Device, seed: u64) -> Result<TrainState<M, B, R>, Diagnostic> {
        let values = nn::init(&*self.definition.model, seed)?;
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
        let (due, found) = (tree::structure(&*self.definition.model), tree::structure(values));
        if due != found {
            let m = "the values have not the model's structure: another length of a list, or another variant";
            return Err(Diagnostic::new(At::default(), Kind::Usage, m));
        }
        let values = tree::leaves(values);
        let kept = self.definition.kept.iter();
        let fill = |k: &OptimizerState| {
            let dims = k.ty.dims().unwrap_or_default();
            Array::splat(&dims, Literal::from_f64(k.ty.dtype, k.fill))
        };
        let kept = kept.map(fill).collect::<Result<Vec<_>, _>>()?;
        self.resumed(device, values, kept, (seed, 0))
    }

    /// The report of the plan of a step on a device, for batches of the types of this one: what [`page`](crate::report::page)
    /// draws. No parameter is drawn, and nothing runs.
    ///
    /// # Errors
    /// As [`TrainState::step`] has them of the trace and of the plan.
    #[cfg(feature = "report")]
    pub fn report(
        &self,
        device: &Device,
        batch: &B::With<Array>,
    ) -> Result<crate::report::Report, Diagnostic> {
        let (leaves, sharding) = (self.leaves, self.sharding);
        self.definition.report(device, batch, RankRequest { leaves, sharding, divided: None })
    }

    /// The model as it was described: its leaves are [`Param`](crate::nn::Param)s, not values.
    pub fn model(&self) -> &M {
        &self.definition.model
    }

    /// What the optimizer keeps.
    #[cfg(feature = "data")]
    pub(super) fn optimizer_state(&self) -> &[OptimizerState] {
        &self.definition.kept
    }

    /// The state with these tensors after a number of steps.
    pub(super) fn resumed(
        &self,
        device: Device,
        values: Vec<Array>,
        kept: Vec<Array>,
        (seed, count): (u64, u64),
    ) -> Result<TrainState<M, B, R>, Diagnostic> {
        let due = self.definition.params.iter().map(|(path, p)| (path, &p.ty));
        for ((path, ty), value) in due.zip(&values) {
            if value.ty() != *ty {
                let m = format!("the parameter `{path}` is {ty}, found {}", value.ty());
                return Err(Diagnostic::new(At::default(), Kind::Shape, m));
            }
        }
        let mut began = digest(&values).to_vec();
        began.extend(digest(&kept));
        began.extend([seed, count].map(u64::to_le_bytes).concat());
        let resident = |arrays: Vec<Array>| arrays.into_iter().map(Resident::from).collect();
        let scalar = |n: i64| Array::scalar(Literal::from_i64(DType::I64, n)).into();
        Ok(TrainState {
            definition: Arc::clone(&self.definition),
            leaves: self.leaves,
            sharding: self.sharding,
            divided: None,
            gathered: Mutex::default(),
            programs: Vec::new(),
            began: Some(began),
            device,
            values: resident(values),
            kept: resident(kept),
            steps: scalar(count as i64),
            drawn: scalar(scrambled(seed) as i64),
            seed,
            count,
        })
    }
}

/// The state of training on a device.
pub struct TrainState<M: Params<Param>, B, R: Objective> {
    definition: Arc<StepDefinition<M, B, R>>,
    leaves: u32,
    sharding: OptimizerSharding,
    /// What the ranks divide among them, from the first step on.
    divided: Option<Arc<ShardingReport>>,
    /// The number of steps after which divided parameters were gathered, and all parameters then.
    gathered: Mutex<Option<(u64, Vec<Resident>)>>,
    programs: Vec<StepProgram<R>>,
    /// What tells the state that training begins with here from others, until the first step has compared it with that of the other ranks.
    began: Option<Vec<u8>>,
    device: Device,
    /// The parameters, or what this rank has of them; none after a step that failed while it ran.
    values: Vec<Resident>,
    /// The optimizer's tensors.
    kept: Vec<Resident>,
    /// The number of steps, for the program.
    steps: Resident,
    /// What random layers draw from, for the program.
    drawn: Resident,
    seed: u64,
    count: u64,
}

impl<M: Params<Param>, B: Params<Tensor>, R: Objective> TrainState<M, B, R> {
    /// A step on a batch: the loss before the update, and the other values that the closure returns.
    ///
    /// A batch of types that have not been there before has a program made for it, which is kept.
    ///
    /// # Errors
    /// Those of the closure's trace, with the place in the source; [`Kind::Usage`] for a loss that is no float scalar; [`Kind::Limit`]
    /// when memory or the budget is not enough. The state is as it was unless the program failed while it ran, which all later steps report.
    /// Of several ranks, [`Kind::Usage`] where they begin with other states or other first batches than rank 0.
    pub fn step(&mut self, batch: &B::With<Array>) -> Result<R::Report, Diagnostic> {
        let report = self.queue(batch)?.report();
        if report.is_err() {
            self.values.clear();
        }
        report
    }

    /// As [`TrainState::step`], but what the step returns is not waited for: a device that works beside the host goes on while the host
    /// prepares the next batch. Whoever reads each loss as it comes gains nothing; a loop that reads one in ten waits once in ten steps.
    ///
    /// ```
    /// use adfuse::nn::{Init, Param};
    /// use adfuse::optim::Sgd;
    /// use adfuse::prelude::*;
    ///
    /// let loss = |p: &Tensor, x: Tensor| (x * p - 1.0).square().mean(..);
    /// let mut state = adfuse::train_step(Sgd::new(0.1), Param::new([3], Init::Ones), loss).init(Device::cpu(), 0)?;
    /// let x = Array::from_vec(vec![2f32; 3], [3])?;
    /// let first = state.queue(&x)?;
    /// let second = state.queue(&x)?;
    /// assert!(first.report()? > second.report()?);
    /// # Ok::<(), Diagnostic>(())
    /// ```
    ///
    /// # Errors
    /// As there, but for a program that fails while it runs: what reads the loss or the state says so.
    pub fn queue(&mut self, batch: &B::With<Array>) -> Result<QueuedStep<R>, Diagnostic> {
        let arrays = tree::leaves(batch);
        let key = ArgumentKey::of(batch, &arrays);
        if let Some(state) = &self.began {
            same_on_all(self.device.group(), "state", state)?;
            same_on_all(self.device.group(), "batch", &digest(&arrays))?;
            self.began = None;
        }
        let known = self.programs.iter().position(|p| p.batch == key);
        let program = match known {
            Some(k) => &self.programs[k],
            None => {
                self.present()?;
                let made = self.definition.program(&self.device, batch, (key, self.request()))?;
                self.divide(made.sharding.clone())?;
                self.programs.push(made);
                &self.programs[self.programs.len() - 1]
            }
        };
        self.present()?;
        let arrays = self.rows(batch, program.division)?;
        let mut args = std::mem::take(&mut self.values);
        // What no step changes is lent.
        let mut values: Vec<Option<Resident>> = Vec::new();
        values.extend((0..args.len()).map(|k| program.keeps(k).then(|| args[k].clone())));
        args.append(&mut self.kept);
        let steps = std::mem::replace(&mut self.steps, self.drawn.clone());
        args.extend([steps, self.drawn.clone()]);
        args.extend(arrays.into_iter().map(Resident::from));
        let mut results = program.executable.run_resident(args)?.into_iter();
        let seen: Vec<Resident> = results.by_ref().take(1 + program.aux_count).collect();
        for (&target, result) in program.targets.iter().zip(results) {
            match target {
                ResultTarget::Param(k) => values[k] = Some(result),
                ResultTarget::Kept => self.kept.push(result),
                ResultTarget::Steps => self.steps = result,
            }
        }
        self.values = values.into_iter().flatten().collect();
        *self.gathered.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.count += 1;
        Ok(QueuedStep { values: seen, aux: Arc::clone(&program.aux) })
    }

    /// What the program is given of a batch: the rows of this rank, or those of all ranks side by side.
    fn rows(&self, batch: &B::With<Array>, division: Division) -> Result<Vec<Array>, Diagnostic> {
        match self.device.simulated() {
            1 => Ok(tree::leaves(&division.own(batch, self.device.group().rank())?)),
            _ => division.side_by_side(tree::leaves(batch)),
        }
    }

    /// The function of a whole step for batches of the types of this one, as it is planned: its text is what `adfuse plan` and `adfuse bench` read.
    ///
    /// # Errors
    /// As [`TrainState::step`] has them of the trace.
    pub fn traced(&self, batch: &B::With<Array>) -> Result<Traced, Diagnostic> {
        let division = Division::of(self.leaves, &self.device)?;
        let traced = self.definition.traced(&self.device, batch, division)?;
        Ok(self.definition.rank_step(&self.device, &traced, (division, self.request()))?.f)
    }

    /// The report of the plan of a step for batches of the types of this one, as [`TrainStep::report`].
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "report")]
    pub fn report(&self, batch: &B::With<Array>) -> Result<crate::report::Report, Diagnostic> {
        self.definition.report(&self.device, batch, self.request())
    }

    /// The number of steps so far.
    pub fn steps(&self) -> u64 {
        self.count
    }

    /// The most bytes that a step has taken so far on the device, as its plan counts them: parameters, the batch, the optimizer's tensors and
    /// everything between. 0 before the first step.
    pub fn peak_bytes(&self) -> u64 {
        self.programs.iter().map(|p| p.executable.memory().peak()).max().unwrap_or(0)
    }

    /// The seed of its random draws.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The device that steps run on, with its options and budget.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn request(&self) -> RankRequest<'_> {
        let (leaves, sharding) = (self.leaves, self.sharding);
        RankRequest { leaves, sharding, divided: self.divided.as_ref() }
    }

    /// What the ranks divide among them, once the first step has decided it.
    pub fn sharding(&self) -> Option<&ShardingReport> {
        self.divided.as_deref()
    }

    /// The tensors of the state on this device.
    fn tensors(&self) -> StateTensors<'_> {
        let ranks = self.device.group().ranks().max(self.device.simulated());
        StateTensors { device: &self.device, ranks }
    }

    /// Errs when parameters are lost.
    fn present(&self) -> Result<(), Diagnostic> {
        if self.values.len() != self.definition.params.len() {
            let m = "the parameters are lost: a step before failed while it ran";
            return Err(Diagnostic::new(At::default(), Kind::Usage, m));
        }
        Ok(())
    }

    /// Divides tensors that are whole, as the first program says that does.
    fn divide(&mut self, sharding: Option<Arc<ShardingReport>>) -> Result<(), Diagnostic> {
        let Some(report) = sharding.filter(|_| self.divided.is_none()) else { return Ok(()) };
        let (mut values, mut kept) = (self.values.clone(), self.kept.clone());
        for &t in &report.decision.tensors {
            let tensor = match t.param.checked_sub(values.len()) {
                None => &mut values[t.param],
                Some(k) => &mut kept[k],
            };
            *tensor = self.tensors().divided(&tensor.fetch()?, t)?.into();
        }
        (self.values, self.kept, self.divided) = (values, kept, Some(report));
        // Programs from before have whole tensors.
        self.programs.clear();
        Ok(())
    }

    /// A tensor of the state as it is without ranks; `position` is that of its parameter of the program. Where it is divided, all ranks
    /// ask for it.
    fn whole(&self, position: usize, ty: &TensorType) -> Result<Array, Diagnostic> {
        let resident = match position.checked_sub(self.values.len()) {
            None => &self.values[position],
            Some(k) => &self.kept[k],
        };
        let own = resident.fetch()?;
        match self.divided.as_ref().and_then(|report| report.decision.of_param(position)) {
            None => Ok(own),
            Some(_) => self.tensors().whole(&own, ty),
        }
    }

    /// The parameters, in the order of the model's leaves, where the device keeps them. Where ranks divide parameters among them, these are
    /// gathered, which all ranks ask for.
    ///
    /// # Errors
    /// [`Kind::Usage`] after a step that failed while it ran; [`Kind::LostRank`] when a rank is gone.
    pub fn resident_params(&self) -> Result<Vec<Resident>, Diagnostic> {
        self.present()?;
        let count = self.values.len();
        let is_divided =
            |report: &Arc<ShardingReport>| report.decision.tensors.iter().any(|t| t.param < count);
        if !self.divided.as_ref().is_some_and(is_divided) {
            return Ok(self.values.clone());
        }
        let mut known = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((steps, whole)) = &*known
            && *steps == self.count
        {
            return Ok(whole.clone());
        }
        let types = self.definition.params.iter().map(|(_, p)| &p.ty);
        let whole = types.enumerate().map(|(k, ty)| self.whole(k, ty).map(Resident::from));
        let whole = whole.collect::<Result<Vec<_>, _>>()?;
        *known = Some((self.count, whole.clone()));
        Ok(whole)
    }

    /// Each tensor that the optimizer keeps, whole.
    #[cfg(feature = "data")]
    pub(super) fn kept_tensors(
        &self,
    ) -> impl Iterator<Item = Result<(&OptimizerState, Array), Diagnostic>> {
        let first = self.values.len();
        let kept = self.definition.kept.iter().enumerate();
        kept.map(move |(k, state)| Ok((state, self.whole(first + k, &state.ty)?)))
    }

    /// The number of the model's definition.
    pub(super) fn model_number(&self) -> u64 {
        self.definition.number
    }

    /// The model as it was described.
    pub fn model(&self) -> &M {
        &self.definition.model
    }

    /// The parameters. Where ranks divide them, all ranks ask for them.
    ///
    /// # Errors
    /// What went wrong on the device; [`Kind::LostRank`] when a rank is gone.
    pub fn params(&self) -> Result<M::With<Array>, Diagnostic> {
        self.present()?;
        let mut position = 0..;
        tree::try_map(&*self.definition.model, |_, param| {
            self.whole(position.next().unwrap_or_default(), &param.ty)
        })
    }
}

/// The first output of the generator splitmix64 for a seed: seeds that are close have states that are far apart.
fn scrambled(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
