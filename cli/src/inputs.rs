//! Turns `--input` options into the arguments of a function.

use super::failure::{Failure, mean};
use super::npz;
use super::params::{NamedParam, fits, params};
use super::source::SourceText;
use super::spec::{Fill, InputArg, Spec, input};
use super::weights::Weights;
use adfuse::backends::Array;
use adfuse::ir::diag::listed;
use adfuse::ir::op::Domain;
use adfuse::ir::{DType, Diagnostic, Dim, Function, Literal, Symbol, TensorType};
use adfuse::sample::{rng, sample};
use clap::Args;
use rand::Rng;
use rand_distr::StandardNormal;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

/// The inputs that are given, by name.
#[derive(Args)]
pub(super) struct InputArgs {
    /// An input: x.npy, file.npz#name, zeros, ones, randn, uniform, a number, or a nested list
    ///
    /// SPEC is x.npy, file.npz#name (or file.npz, for the array named like the input), zeros, ones,
    /// randn (normal, mean 0, variance 1), uniform (from 0 to 1), a number for every element, or a
    /// nested list such as [[1,2],[3,4]]. Files must hold the parameter's element type; bf16 is read
    /// from float32, rounded to nearest. For `run`, extents of files and lists bind symbolic dimensions.
    #[arg(long = "input", value_name = "NAME=SPEC", value_parser = input)]
    pub(super) inputs: Vec<InputArg>,
}

/// What is given on the command line.
pub(super) struct Inputs {
    given: Vec<InputArg>,
    seed: u64,
    weights: Rc<Weights>,
}

/// What is given for one parameter.
pub(super) enum GivenValue {
    /// A tensor.
    Array(Array),
    /// A rule for every element.
    Fill(Fill),
}

impl Inputs {
    /// Inputs, each named once.
    pub(super) fn new(given: Vec<InputArg>, seed: u64) -> Result<Inputs, Failure> {
        let mut names = BTreeSet::new();
        match given.iter().find(|i| !names.insert(&i.name)) {
            Some(twice) => Err(Failure::usage(format!("--input {} is given twice", twice.name))),
            None => Ok(Inputs { given, seed, weights: Rc::default() }),
        }
    }

    /// An array of this file for each parameter; those that it lacks have values among the weights.
    pub(super) fn of_archive(
        params: &[NamedParam],
        path: &Path,
        weights: &Rc<Weights>,
    ) -> Result<Inputs, Failure> {
        let names = npz::names(path)?;
        let spec = Spec::Npz(path.to_path_buf(), None);
        let there = |p: &&NamedParam| names.contains(&p.name) || !weights.has(p);
        let given = params.iter().filter(there);
        let given = given.map(|p| InputArg { name: p.name.clone(), spec: spec.clone() });
        Ok(Inputs::new(given.collect(), 0)?.with_weights(weights.clone()))
    }

    /// The same, with values for parameters of which nothing is given.
    pub(super) fn with_weights(self, weights: Rc<Weights>) -> Inputs {
        Inputs { weights, ..self }
    }

    /// Errs when an input is none of these parameters.
    pub(super) fn all_known(&self, params: &[NamedParam], func: &str) -> Result<(), Failure> {
        let names: Vec<&str> = params.iter().map(|p| p.name.as_str()).collect();
        let Some(i) = self.given.iter().find(|i| !names.contains(&i.name.as_str())) else {
            return Ok(());
        };
        let all = match names.as_slice() {
            [] => "it takes none".to_string(),
            names => format!("the inputs are {}", listed(names, "")),
        };
        let hint = mean(&i.name, names, "").unwrap_or(all);
        Err(Failure::usage(format!("@{func} has no input `{}`", i.name)).hint(Some(hint)))
    }

    /// What is given for a parameter, read from files and found to fit; symbols fit every extent.
    pub(super) fn read(&self, param: &NamedParam) -> Result<Option<GivenValue>, Failure> {
        let Some(input) = self.given.iter().find(|i| i.name == param.name) else {
            return Ok(self.weights.value(param)?.map(GivenValue::Array));
        };
        Ok(Some(match &input.spec {
            Spec::Npy(path) => GivenValue::Array(npz::read_npy(path, param)?),
            Spec::Npz(path, member) => {
                let member = member.as_deref().unwrap_or(&param.name);
                GivenValue::Array(npz::read_npz(path, member, param)?)
            }
            Spec::List(list) => {
                fits(param, &list.dims, "the list")?;
                let dtype = param.ty.dtype;
                let bits = list.bits(dtype).map_err(|n| is_no(n, param))?;
                GivenValue::Array(
                    Array::from_bits(dtype, &list.dims, &bits).map_err(Failure::Usage)?,
                )
            }
            Spec::Fill(Fill::Number(n)) if n.typed(param.ty.dtype).is_none() => {
                return Err(is_no(n, param));
            }
            Spec::Fill(f @ (Fill::Randn | Fill::Uniform)) if !param.ty.dtype.is_float() => {
                let name = if *f == Fill::Randn { "randn" } else { "uniform" };
                let m = format!("{name} is for float types, %{} is {}", param.name, param.ty);
                return Err(Failure::usage(m));
            }
            Spec::Fill(fill) => GivenValue::Fill(*fill),
        }))
    }

    /// The argument for a parameter with known extents. Random numbers depend on the seed and on
    /// `stream` alone, so that giving one input does not change another.
    pub(super) fn argument(
        &self,
        given: GivenValue,
        ty: &TensorType,
        stream: usize,
    ) -> Result<Array, Diagnostic> {
        let dims = ty.dims().unwrap_or_default();
        let fill = match given {
            GivenValue::Array(a) => return Ok(a),
            GivenValue::Fill(fill) => fill,
        };
        let mut rng = rng(self.seed, stream as u64);
        let literal = match fill {
            Fill::Zeros => Literal::zero(ty.dtype),
            Fill::Ones => Literal::one(ty.dtype),
            Fill::Number(n) => n.typed(ty.dtype).unwrap_or(Literal::zero(ty.dtype)),
            Fill::Uniform => return sample(ty, Domain::Uniform(0.0, 1.0), &mut rng),
            // For these types, small integers whatever the domain.
            Fill::Any if !ty.dtype.is_float() => return sample(ty, Domain::Normal, &mut rng),
            Fill::Randn | Fill::Any => {
                return Array::drawn(ty.dtype, &dims, || rng.sample(StandardNormal));
            }
        };
        Array::splat(&dims, literal)
    }
}

/// The arguments of a function that is measured, whose extents are known, and which has this many parameters before cotangents.
pub(super) fn measured_arguments(
    source: &SourceText,
    measured: (&Function, usize),
    inputs: &Inputs,
) -> Result<Vec<Array>, Failure> {
    let (f, count) = measured;
    let given = params(f).iter().take(count).map(|p| inputs.read(p)).collect::<Result<_, _>>()?;
    arguments(source, f, inputs, given)
}

/// The arguments of the function to run, which has the parameters of the function asked for, then
/// cotangents.
pub(super) fn arguments(
    source: &SourceText,
    running: &Function,
    inputs: &Inputs,
    given: Vec<Option<GivenValue>>,
) -> Result<Vec<Array>, Failure> {
    let params: Vec<NamedParam> = params(running);
    inputs.all_known(&params, &running.name)?;
    let mut given = given.into_iter();
    let mut args = Vec::new();
    for (k, param) in params.iter().enumerate() {
        let value = match given.next() {
            Some(value) => value.unwrap_or(GivenValue::Fill(Fill::Any)),
            None => inputs.read(param)?.unwrap_or(GivenValue::Fill(Fill::Ones)),
        };
        let found = inputs.argument(value, &param.ty, k).map_err(|mut d| {
            d.at.func.get_or_insert_with(|| running.name.clone());
            d.at.inst.get_or_insert_with(|| format!("%{}", param.name).into());
            source.wrong([d])
        });
        args.push(found?);
    }
    Ok(args)
}

/// Extents for the symbols of the parameters: those given, and those that given tensors have.
pub(super) fn bind(
    params: &[NamedParam],
    given: &[Option<GivenValue>],
    mut extents: BTreeMap<Symbol, u64>,
) -> Result<BTreeMap<Symbol, u64>, Failure> {
    let mut by: BTreeMap<Symbol, String> =
        extents.keys().map(|&s| (s, format!("--dim {}", s.as_str()))).collect();
    for (param, given) in params.iter().zip(given) {
        let Some(GivenValue::Array(a)) = given else { continue };
        for (d, &n) in param.ty.shape.iter().zip(a.dims()) {
            let Dim::Sym(s) = *d else { continue };
            let before = *extents.entry(s).or_insert(n);
            let source = by.entry(s).or_insert_with(|| format!("input {}", param.name));
            if before != n {
                let NamedParam { name, ty } = param;
                let m = format!("input {name}: %{name} is {ty}, found {}", a.ty());
                let hint = format!("{} is {before} by {source}", s.as_str());
                return Err(Failure::usage(m).hint(Some(hint)));
            }
        }
    }
    Ok(extents)
}

fn is_no(n: impl std::fmt::Display, param: &NamedParam) -> Failure {
    let NamedParam { name, ty } = param;
    let hint = match ty.dtype {
        DType::Bool => Some("truth values are true and false".to_string()),
        _ => None,
    };
    Failure::usage(format!("input {name}: {n} is no {}, and %{name} is {ty}", ty.dtype)).hint(hint)
}
