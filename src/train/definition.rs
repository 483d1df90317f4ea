//! The definition of a training step: a model, a loss and an optimizer, which become one program for the types of a batch.

use super::gradients::{DifferentiatedLoss, LossInputs, TracedLoss, part_type};
use super::objective::{AuxArrays, Objective};
use super::parallel::Division;
use super::precision::{MixedPrecision, all_finite};
use super::sharding::{RankRequest, RankStep, ShardingReport};
use crate::autodiff::{Batching, Random, value_and_grad_has_aux, vmap};
use crate::backends::Array;
use crate::backends::backend::Executable;
use crate::backends::ranks::AXIS;
use crate::device::{ArgumentKey, Device};
use crate::ir::rewrite::in_stable_forms;
use crate::ir::{DType, Diagnostic, Function, Kind, Module, TensorType};
use crate::nn::{Param, ParamRole};
use crate::optim::{Optimizer, OptimizerState, TrainedParam, UpdateContext, Updated, like};
use crate::trace::{Tensor, Traced, Tracer, trace_like};
use crate::tree::{self, Params};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The closure of a loss.
pub(super) type LossFunction<M, B, R> =
    dyn Fn(&<M as Params<Param>>::With<Tensor>, B) -> R + Send + Sync;

/// A model, a loss and an optimizer.
pub(super) struct StepDefinition<M: Params<Param>, B, R> {
    /// No other definition has it; 0 is none.
    pub(super) number: u64,
    pub(super) model: Arc<M>,
    /// The parameters by their paths, in the model's order.
    pub(super) params: Vec<(String, Param)>,
    pub(super) optimizer: Arc<dyn Optimizer>,
    /// What the optimizer keeps, and then the loss's scale.
    pub(super) kept: Vec<OptimizerState>,
    pub(super) loss: Arc<LossFunction<M, B, R>>,
    pub(super) settings: StepSettings,
}

/// How a step computes its gradients.
#[derive(Clone, Debug)]
pub(super) struct StepSettings {
    /// `None` where the model computes in the types of its parameters.
    pub(super) precision: Option<MixedPrecision>,
    /// In how many parts the gradients of a batch are computed, at least one.
    pub(super) micro_batches: u64,
}

/// Where a result of the program goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ResultTarget {
    /// The parameter of a number.
    Param(usize),
    /// The next tensor of the optimizer.
    Kept,
    /// The number of steps.
    Steps,
}

/// The program of a step for batches of some types.
pub(super) struct StepProgram<R: Objective> {
    /// What it is for.
    pub(super) batch: ArgumentKey,
    pub(super) executable: Arc<dyn Executable>,
    pub(super) division: Division,
    /// What it divides among ranks.
    pub(super) sharding: Option<Arc<ShardingReport>>,
    /// The other values, with arrays in place of those to come.
    pub(super) aux: Arc<AuxArrays<R>>,
    /// The number of those.
    pub(super) aux_count: usize,
    /// Where results go, from the loss and the other values on.
    pub(super) targets: Vec<ResultTarget>,
}

impl<R: Objective> StepProgram<R> {
    /// Whether a parameter is as before after a step.
    pub(super) fn keeps(&self, param: usize) -> bool {
        !self.targets.contains(&ResultTarget::Param(param))
    }
}

/// A traced step with what it took to trace it.
pub(super) struct TracedStep<R: Objective> {
    pub(super) f: Traced,
    pub(super) targets: Vec<ResultTarget>,
    aux: AuxArrays<R>,
    pub(super) aux_count: usize,
}

impl<M: Params<Param>, B: Params<Tensor>, R: Objective> StepDefinition<M, B, R> {
    pub(super) fn new(
        model: M,
        optimizer: Arc<dyn Optimizer>,
        loss: Arc<LossFunction<M, B, R>>,
    ) -> StepDefinition<M, B, R> {
        let params = tree::named_leaves(&model);
        let settings = StepSettings { precision: None, micro_batches: 1 };
        let (number, kept, model) = (0, Vec::new(), Arc::new(model));
        StepDefinition { number, model, params, optimizer, kept, loss, settings }
            .with_settings(|_| {})
    }

    /// The same with other settings.
    pub(super) fn with_settings(&self, change: impl FnOnce(&mut StepSettings)) -> Self {
        static DEFINED: AtomicU64 = AtomicU64::new(1);
        let mut settings = self.settings.clone();
        change(&mut settings);
        let mut kept = self.optimizer.state(&trained(&self.params));
        kept.extend(settings.precision.iter().flat_map(MixedPrecision::state));
        StepDefinition {
            number: DEFINED.fetch_add(1, Ordering::Relaxed),
            model: Arc::clone(&self.model),
            params: self.params.clone(),
            optimizer: Arc::clone(&self.optimizer),
            kept,
            loss: Arc::clone(&self.loss),
            settings,
        }
    }

    /// Inputs for the parameters.
    fn inputs(&self, t: &Tracer) -> Vec<Tensor> {
        self.params
            .iter()
            .map(|(path, p)| t.input(&input_name("net", path), p.ty.clone()))
            .collect()
    }

    /// The model with these tensors.
    fn with(&self, tensors: &[Tensor]) -> M::With<Tensor> {
        let mut tensors = tensors.iter();
        tree::map(&*self.model, |_, _| {
            tensors.next().cloned().unwrap_or_else(|| unreachable!("a tensor for each parameter"))
        })
    }

    /// A tensor as the loss is given it.
    fn computed(&self, t: &Tensor, role: ParamRole) -> Tensor {
        match &self.settings.precision {
            Some(precision) => precision.computed(t, role),
            None => t.clone(),
        }
    }

    /// The types of a part of the batch, in the order of its leaves.
    ///
    /// # Errors
    /// [`Kind::Shape`] where there are no such parts.
    fn part_types(&self, batch: &B::With<Array>) -> Result<Vec<TensorType>, Diagnostic> {
        let of =
            |(path, a): (String, Array)| part_type(&path, &a.ty(), self.settings.micro_batches);
        tree::named_leaves(batch).into_iter().map(of).collect()
    }

    /// `(params.., seed, scale?, batch..) -> (scaled loss?, loss, aux.., updates..)`, of a part of the batch.
    fn loss(&self, batch: &B::With<Array>) -> Result<TracedLoss<R>, Diagnostic> {
        let mut updated = Vec::new();
        let mut types = self.part_types(batch)?.into_iter();
        let (f, (_, _, aux, _)) = trace_like("loss", |t| {
            let params = self.inputs(t);
            t.train(&t.input("seed", TensorType::scalar(DType::I64)));
            let scale = self.scaled().then(|| t.input("scale", TensorType::scalar(DType::F32)));
            let batch = tree::map(batch, |path, a: &Array| {
                let ty = types.next().unwrap_or_else(|| a.ty());
                let input = t.input(&input_name("batch", path.as_str()), ty);
                self.computed(&input, ParamRole::Trained)
            });
            let roles = self.params.iter().map(|(_, p)| p.role);
            let given: Vec<Tensor> =
                params.iter().zip(roles).map(|(p, role)| self.computed(p, role)).collect();
            let (loss, aux) = (self.loss)(&self.with(&given), batch).parts();
            let mut next = Vec::new();
            for (k, (p, (path, param))) in params.iter().zip(&self.params).enumerate() {
                let Some(to) = t.updated(p) else { continue };
                if param.role != ParamRole::Running {
                    let m = format!(
                        "a layer updates the parameter `{path}`, whose role is {:?}: only running ones are updated by layers",
                        param.role
                    );
                    p.fail(Kind::Usage, m);
                }
                updated.push(k);
                next.push(to.stop_gradient());
            }
            if t.update_count() != updated.len() {
                let m = "an input is updated that is no parameter of the model";
                loss.fail(Kind::Usage, m.into());
            }
            let loss = match self.settings.precision {
                Some(_) => loss.compute(),
                None => loss,
            };
            let scaled: Vec<Tensor> =
                scale.iter().map(|s| &loss * s.convert(loss.dtype())).collect();
            (scaled, loss, aux, next)
        })?;
        Ok(TracedLoss { f, aux_count: tree::count(&aux), aux, updated })
    }

    /// Whether the loss is scaled.
    fn scaled(&self) -> bool {
        self.settings.precision.as_ref().is_some_and(|p| !p.state().is_empty())
    }

    /// The function of a whole step for batches of the types of this one, in the mode of a device.
    ///
    /// # Errors
    /// Those of the traces, of differentiation and of the device.
    pub(super) fn traced(
        &self,
        device: &Device,
        batch: &B::With<Array>,
        division: Division,
    ) -> Result<TracedStep<R>, Diagnostic> {
        let own = rebuilt::<B>(batch, &division.own(batch, 0)?);
        let leaf = rebuilt::<B>(batch, &division.leaf(&own)?);
        let loss = self.loss(&leaf)?;
        let is = |role| move |(k, (_, p)): (usize, &(String, Param))| (p.role == role).then_some(k);
        let all = || self.params.iter().enumerate();
        let wrt: Vec<usize> = all().filter_map(is(ParamRole::Trained)).collect();
        // What is differentiated has stable forms already: their gradients are no formulas that rules know.
        let mode = device.session(&[])?.mode();
        let (module, f) =
            in_stable_forms(&Module::from(loss.f.clone()), &loss.f, mode, &mut |_, _| {})?;
        let gradient = value_and_grad_has_aux(&module, &f, &wrt)?;
        let n = self.settings.micro_batches;
        let differentiated = DifferentiatedLoss::new(&gradient, &loss, self.scaled(), n);
        let mut targets = Vec::new();
        let (step, _) = trace_like("step", |t| {
            let params = self.inputs(t);
            let kept: Vec<Tensor> = self
                .kept
                .iter()
                .map(|k| t.input(&input_name("optimizer", &k.name), k.ty.clone()))
                .collect();
            let steps = t.input("steps", TensorType::scalar(DType::I64));
            let seed = t.input("seed", TensorType::scalar(DType::I64));
            let batch = tree::leaves(&batch_inputs::<B>(t, &own));
            let (kept, scaling) = kept.split_at(self.kept.len() - self.scale_count());
            let drawn = &seed + if n == 1 { steps.clone() } else { &steps * n as f64 };
            let scale = scaling.first();
            let of = division.mean((&batch, &drawn), &|batch, seed| {
                differentiated.of(&LossInputs { params: &params, seed, scale, batch })
            });
            let next = &steps + 1.0;
            let values: Vec<Tensor> = wrt.iter().map(|&k| params[k].clone()).collect();
            let updated = self.updated(&next, &values, of.gradients, (kept, scaling));
            let mut out = updated.params;
            targets.extend(wrt.iter().map(|&k| ResultTarget::Param(k)));
            out.extend(of.running);
            targets.extend(loss.updated.iter().map(|&k| ResultTarget::Param(k)));
            out.extend(updated.state);
            targets.extend(self.kept.iter().map(|_| ResultTarget::Kept));
            out.push(next);
            targets.push(ResultTarget::Steps);
            (of.loss, of.aux, out)
        })?;
        Ok(TracedStep { f: step, targets, aux: loss.aux, aux_count: loss.aux_count })
    }

    /// The number of tensors that the scale of the loss keeps.
    fn scale_count(&self) -> usize {
        self.settings.precision.as_ref().map_or(0, |p| p.state().len())
    }

    /// What a step makes of parameters and of what is kept, by gradients of a loss that may be scaled.
    fn updated(
        &self,
        next: &Tensor,
        values: &[Tensor],
        gradients: Vec<Tensor>,
        (kept, scaling): (&[Tensor], &[Tensor]),
    ) -> Updated {
        let trained = trained(&self.params);
        let gradients = match scaling.first() {
            Some(scale) => gradients.iter().map(|g| g / like(scale, g)).collect(),
            None => gradients,
        };
        let mut step = next.convert(DType::F64);
        if let [_, _, skipped] = scaling {
            step -= skipped.convert(DType::F64);
        }
        let (params, gradients) = (trained.as_slice(), gradients.as_slice());
        let context = UpdateContext { step, params, values, gradients, state: kept };
        let mut updated = self.optimizer.update(&context);
        expect(next, "parameters", values, &updated.params);
        expect(next, "tensors of state", kept, &updated.state);
        let precision = self.settings.precision.as_ref().filter(|_| !scaling.is_empty());
        if let Some(precision) = precision {
            let finite = all_finite(gradients).unwrap_or_else(|| next.ge(0.0));
            let kept_if =
                |(new, old): (&Tensor, &Tensor)| finite.broadcast_like(new).select(new, old);
            updated.params = updated.params.iter().zip(values).map(kept_if).collect();
            updated.state = updated.state.iter().zip(kept).map(kept_if).collect();
            updated.state.extend(precision.next_state(scaling, &finite));
        }
        updated
    }

    /// The program for batches like this one, of this key.
    ///
    /// # Errors
    /// Those of the trace, of differentiation and of the device.
    pub(super) fn program(
        &self,
        device: &Device,
        batch: &B::With<Array>,
        (key, request): (ArgumentKey, RankRequest<'_>),
    ) -> Result<StepProgram<R>, Diagnostic> {
        let division = Division::of(request.leaves, device)?;
        let traced = self.traced(device, batch, division)?;
        let RankStep { f, sharding, plan } =
            self.rank_step(device, &traced, (division, request))?;
        let TracedStep { targets, aux, aux_count, .. } = traced;
        let donated = self.donated(&targets);
        let executable = match (device.simulated(), plan) {
            (1, None) => device.compile_donating(&f, &donated)?.executable,
            (1, Some(plan)) => {
                device.session(&donated)?.follow(&plan.function, &plan.point.plan)?.executable
            }
            (ranks, _) => {
                let batch = tree::leaves(batch);
                let all = Self::of_all_ranks(&f, (&batch, sharding.as_deref()), ranks)?;
                // The budget is that of one rank.
                let mut session = device.session(&donated)?;
                session.settings.mem_budget = None;
                session.compile(&Module::from(all.clone()), &all)?.executable
            }
        };
        let aux = Arc::new(aux);
        Ok(StepProgram { batch: key, executable, division, sharding, aux, aux_count, targets })
    }

    /// The step of one rank as that of all, on rows that lie side by side, as parts of divided tensors do. What all have in common
    /// is there once.
    fn of_all_ranks(
        f: &Traced,
        (batch, sharding): (&[Array], Option<&ShardingReport>),
        ranks: u32,
    ) -> Result<Function, Diagnostic> {
        let others = f.params().len() - batch.len();
        let tensors = sharding.map_or(&[][..], |report| &report.decision.tensors);
        let is_part = |k: usize| tensors.iter().any(|t| t.param == k).then_some(0);
        let rows = batch.iter().map(|array| array.dims().first().map(|_| 0));
        let axes = (0..others).map(is_part).chain(rows);
        let batching = Batching::new(u64::from(ranks), axes).named(AXIS).random(Random::Same);
        let is_part = |k: usize| tensors.iter().any(|t| t.result == k).then_some(0);
        let batching = batching.results((0..f.results().len()).map(is_part));
        vmap(&Module::from(f.clone()), f, &batching)
    }
}

impl<M: Params<Param>, B: Params<Tensor>, R: Objective> StepDefinition<M, B, R> {
    /// The parameters of the program, by position, that a step replaces: the model's, the optimizer's tensors, the number
    /// of steps.
    pub(super) fn donated(&self, targets: &[ResultTarget]) -> Vec<usize> {
        let (first, kept) = (self.params.len(), self.kept.len());
        let replaced = targets.iter().filter_map(|target| match *target {
            ResultTarget::Param(k) => Some(k),
            ResultTarget::Kept | ResultTarget::Steps => None,
        });
        replaced.chain(first..=first + kept).collect()
    }

    /// The report of the plan of a step for batches of the types of this one.
    ///
    /// # Errors
    /// Those of the trace, of differentiation and of the device.
    #[cfg(feature = "report")]
    pub(super) fn report(
        &self,
        device: &Device,
        batch: &B::With<Array>,
        request: RankRequest<'_>,
    ) -> Result<crate::report::Report, Diagnostic> {
        use crate::report::{Answer, ValueKind};
        let division = Division::of(request.leaves, device)?;
        let traced = self.traced(device, batch, division)?;
        let RankStep { f, sharding, .. } = self.rank_step(device, &traced, (division, request))?;
        let role = |(_, p): &(String, Param)| match p.role {
            ParamRole::Trained | ParamRole::Frozen => ValueKind::Parameter,
            ParamRole::Running => ValueKind::State,
        };
        let mut parameters: Vec<ValueKind> = self.params.iter().map(role).collect();
        parameters.resize(self.params.len() + self.kept.len(), ValueKind::State);
        let origin = "a training step traced from Rust".into();
        let request = crate::engine::ReportRequest { origin, parameters, ..Default::default() };
        let mut report = device.report(&f, &self.donated(&traced.targets), &request)?;
        report.answers.extend(sharding.map(|sharding| Answer {
            key: "sharding",
            question: "What do ranks divide among them?",
            answer: sharding.to_string(),
            panel: "memory",
        }));
        Ok(report)
    }
}

/// What an optimizer gives has the number and the types of what it was given.
fn expect(step: &Tensor, what: &str, given: &[Tensor], found: &[Tensor]) {
    let types = |all: &[Tensor]| all.iter().map(Tensor::ty).collect::<Vec<_>>();
    let (due, found) = (types(given), types(found));
    if due.len() != found.len() {
        let m = format!("the optimizer gives {} {what}, not {}", found.len(), due.len());
        step.fail(Kind::Usage, m);
    } else if let Some(k) = (0..due.len()).find(|&k| due[k] != found[k]) {
        let m =
            format!("the optimizer gives {} for {}: number {k} of the {what}", found[k], due[k]);
        step.fail(Kind::Usage, m);
    }
}

/// The parameters that optimizers change.
fn trained(params: &[(String, Param)]) -> Vec<TrainedParam> {
    let trained = params.iter().filter(|(_, p)| p.role == ParamRole::Trained);
    trained.map(|(path, p)| TrainedParam { path: path.clone(), ty: p.ty.clone() }).collect()
}

/// The tree of a batch with the arrays of another of its structure.
fn rebuilt<B: Params<Tensor>>(
    batch: &B::With<Array>,
    other: &impl Params<Array>,
) -> B::With<Array> {
    tree::rebuild(batch, tree::leaves(other))
}

/// Inputs of the types of a batch's arrays.
pub(super) fn batch_inputs<B: Params<Tensor>>(t: &Tracer, batch: &B::With<Array>) -> B {
    tree::map(batch, |path, a| t.input(&input_name("batch", path.as_str()), a.ty()))
}

/// The name of an input for a leaf of a tree.
pub(super) fn input_name(tree: &str, path: &str) -> String {
    if path.is_empty() { tree.into() } else { format!("{tree}.{path}") }
}
