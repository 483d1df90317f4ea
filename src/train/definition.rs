//! The definition of a training step: a model, a loss and an optimizer, which become one program for the types of a batch.

use super::objective::{AuxArrays, Objective};
use super::parallel::Division;
use crate::autodiff::{Batching, Random, value_and_grad_has_aux, vmap};
use crate::backends::Array;
use crate::backends::backend::Executable;
use crate::backends::ranks::AXIS;
use crate::device::{ArgumentKey, Device};
use crate::ir::{DType, Diagnostic, Function, Kind, Module, TensorType};
use crate::nn::{Param, ParamRole};
use crate::optim::{Optimizer, OptimizerState, TrainedParam, UpdateContext};
use crate::trace::{Tensor, Traced, Tracer, trace, trace_like};
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
    pub(super) model: M,
    /// The parameters by their paths, in the model's order.
    pub(super) params: Vec<(String, Param)>,
    pub(super) optimizer: Box<dyn Optimizer>,
    /// What the optimizer keeps.
    pub(super) kept: Vec<OptimizerState>,
    pub(super) loss: Box<LossFunction<M, B, R>>,
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
    /// The other values, with arrays in place of those to come.
    pub(super) aux: AuxArrays<R>,
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
    targets: Vec<ResultTarget>,
    aux: AuxArrays<R>,
    aux_count: usize,
}

/// A traced loss with what it took to trace it.
struct TracedLoss<R: Objective> {
    f: Traced,
    aux: AuxArrays<R>,
    aux_count: usize,
    /// The running parameters that it updates; their next values are its last results.
    updated: Vec<usize>,
}

impl<M: Params<Param>, B: Params<Tensor>, R: Objective> StepDefinition<M, B, R> {
    pub(super) fn new(
        model: M,
        optimizer: Box<dyn Optimizer>,
        loss: Box<LossFunction<M, B, R>>,
    ) -> StepDefinition<M, B, R> {
        let params = tree::named_leaves(&model);
        let trained = trained(&params);
        let kept = optimizer.state(&trained);
        static DEFINED: AtomicU64 = AtomicU64::new(1);
        let number = DEFINED.fetch_add(1, Ordering::Relaxed);
        StepDefinition { number, model, params, optimizer, kept, loss }
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
        tree::map(&self.model, |_, _| {
            tensors.next().cloned().unwrap_or_else(|| unreachable!("a tensor for each parameter"))
        })
    }

    /// `(params.., seed, batch..) -> (loss, aux.., updates..)`.
    fn loss(&self, batch: &B::With<Array>) -> Result<TracedLoss<R>, Diagnostic> {
        let mut updated = Vec::new();
        let (f, (_, aux, _)) = trace_like("loss", |t| {
            let params = self.inputs(t);
            t.train(&t.input("seed", TensorType::scalar(DType::I64)));
            let batch = batch_inputs::<B>(t, batch);
            let (loss, aux) = (self.loss)(&self.with(&params), batch).parts();
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
            (loss, aux, next)
        })?;
        Ok(TracedLoss { f, aux_count: tree::count(&aux), aux, updated })
    }

    /// The function of a whole step for batches of the types of this one.
    ///
    /// # Errors
    /// Those of the traces and of differentiation.
    pub(super) fn traced(
        &self,
        batch: &B::With<Array>,
        division: Division,
    ) -> Result<TracedStep<R>, Diagnostic> {
        let own = rebuilt::<B>(batch, &division.own(batch, 0)?);
        let leaf = rebuilt::<B>(batch, &division.leaf(&own)?);
        let loss = self.loss(&leaf)?;
        let is = |role| move |(k, (_, p)): (usize, &(String, Param))| (p.role == role).then_some(k);
        let all = || self.params.iter().enumerate();
        let wrt: Vec<usize> = all().filter_map(is(ParamRole::Trained)).collect();
        let gradient = value_and_grad_has_aux(&Module::from(loss.f.clone()), &loss.f, &wrt)?;
        let results = 1 + loss.aux_count;
        let mut targets = Vec::new();
        let step = trace("step", |t| {
            let params = self.inputs(t);
            let kept: Vec<Tensor> = self
                .kept
                .iter()
                .map(|k| t.input(&input_name("optimizer", &k.name), k.ty.clone()))
                .collect();
            let steps = t.input("steps", TensorType::scalar(DType::I64));
            let seed = t.input("seed", TensorType::scalar(DType::I64));
            let batch = tree::leaves(&batch_inputs::<B>(t, &own));
            let drawn = &seed + &steps;
            let of_leaf = |batch: &[Tensor], drawn: &Tensor| {
                let args: Vec<&Tensor> = params.iter().chain([drawn]).chain(batch).collect();
                t.call(&gradient, &args)
            };
            let mut out = match division.is_whole() {
                true => of_leaf(&batch, &drawn),
                false => division.mean((&batch, &drawn), &of_leaf),
            };
            if !division.is_whole() {
                // Gradients stay as they were summed; the others have their own types again.
                let kept = loss.f.result_types();
                for (x, ty) in out.iter_mut().zip(&kept) {
                    *x = x.convert(ty.dtype);
                }
            }
            let gradients = out.split_off(results + loss.updated.len());
            let updates = out.split_off(results);
            let next = &steps + 1.0;
            let trained = trained(&self.params);
            let values: Vec<Tensor> = wrt.iter().map(|&k| params[k].clone()).collect();
            let updated = self.optimizer.update(&UpdateContext {
                step: next.convert(DType::F64),
                params: &trained,
                values: &values,
                gradients: &gradients,
                state: &kept,
            });
            expect(&next, "parameters", &values, &updated.params);
            expect(&next, "tensors of state", &kept, &updated.state);
            out.extend(updated.params);
            targets.extend(wrt.iter().map(|&k| ResultTarget::Param(k)));
            out.extend(updates);
            targets.extend(loss.updated.iter().map(|&k| ResultTarget::Param(k)));
            out.extend(updated.state);
            targets.extend(self.kept.iter().map(|_| ResultTarget::Kept));
            out.push(next);
            targets.push(ResultTarget::Steps);
            out
        })?;
        Ok(TracedStep { f: step, targets, aux: loss.aux, aux_count: loss.aux_count })
    }

    /// The program for batches like this one, of this key.
    ///
    /// # Errors
    /// Those of the trace, of differentiation and of the device.
    pub(super) fn program(
        &self,
        device: &Device,
        batch: &B::With<Array>,
        (key, leaves): (ArgumentKey, u32),
    ) -> Result<StepProgram<R>, Diagnostic> {
        let division = Division::of(leaves, device)?;
        let TracedStep { f, targets, aux, aux_count } = self.traced(batch, division)?;
        let donated = self.donated(&targets);
        let executable = match device.simulated() {
            1 => device.compile_donating(&f, &donated)?.executable,
            ranks => {
                let all = Self::of_all_ranks(&f, &tree::leaves(batch), ranks)?;
                device.session(&donated)?.compile(&Module::from(all.clone()), &all)?.executable
            }
        };
        Ok(StepProgram { batch: key, executable, division, aux, aux_count, targets })
    }

    /// The step of one rank as that of all, on rows that lie side by side. What all have in common, which is all that a step
    /// leaves, is there once.
    fn of_all_ranks(f: &Traced, batch: &[Array], ranks: u32) -> Result<Function, Diagnostic> {
        let others = f.params().len() - batch.len();
        let rows = batch.iter().map(|array| array.dims().first().map(|_| 0));
        let axes = std::iter::repeat_n(None, others).chain(rows);
        let batching = Batching::new(u64::from(ranks), axes).named(AXIS).random(Random::Same);
        let batching = batching.results(f.results().iter().map(|_| None));
        vmap(&Module::from(f.clone()), f, &batching)
    }
}

impl<M: Params<Param>, B: Params<Tensor>, R: Objective> StepDefinition<M, B, R> {
    /// The parameters of the program, by position, that a step replaces: the model's, the optimizer's tensors, the number
    /// of steps.
    fn donated(&self, targets: &[ResultTarget]) -> Vec<usize> {
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
        leaves: u32,
    ) -> Result<crate::report::Report, Diagnostic> {
        use crate::report::ValueKind;
        let division = Division::of(leaves, device)?;
        let TracedStep { f, targets, .. } = self.traced(batch, division)?;
        let role = |(_, p): &(String, Param)| match p.role {
            ParamRole::Trained | ParamRole::Frozen => ValueKind::Parameter,
            ParamRole::Running => ValueKind::State,
        };
        let mut parameters: Vec<ValueKind> = self.params.iter().map(role).collect();
        parameters.resize(self.params.len() + self.kept.len(), ValueKind::State);
        let origin = "a training step traced from Rust".into();
        let request = crate::engine::ReportRequest { origin, parameters, ..Default::default() };
        device.report(&f, &self.donated(&targets), &request)
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
