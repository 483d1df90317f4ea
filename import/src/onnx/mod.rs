//! ONNX models: the messages of the file are read, and nodes become instructions of one function by the rows of a table.

mod context;
mod operation;
mod ops;
mod proto;
mod table;
mod tensor;
mod values;
mod wire;

use crate::emit::Val;
use crate::emit::element::ElementType;
use crate::emit::refusal::Unlowered;
use crate::report::Coverage;
use crate::{ImportError, raise};
use adfuse_ir::{At, Diagnostic, Dim, Kind, Literal, Module, Symbol, TensorType, verify};
use context::{OnnxLowering, value_name};
use proto::{ExtentInfo, GraphProto, ModelProto, OperationProto, ValueInfo};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use tensor::{ExternalData, HostTensor};

/// How a model is imported.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OnnxOptions {
    external: ExternalData,
    extents: BTreeMap<String, u64>,
    fixed: BTreeMap<String, FixedValue>,
}

/// The value of an input that is known when a model is imported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FixedValue {
    /// Extents.
    pub dims: Vec<u64>,
    /// The elements, row-major.
    pub elements: Vec<Literal>,
}

impl OnnxOptions {
    /// Reads the elements that the model keeps in other files from this folder, that of the model.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> OnnxOptions {
        self.external.folder = Some(folder.into());
        self
    }

    /// Gives the extent of the axes with this name.
    pub fn extent(mut self, name: impl Into<String>, extent: u64) -> OnnxOptions {
        self.extents.insert(name.into(), extent);
        self
    }

    /// Gives the value of an input: it is a constant, not a parameter.
    pub fn fix(mut self, name: impl Into<String>, value: FixedValue) -> OnnxOptions {
        self.fixed.insert(name.into(), value);
        self
    }
}

/// A parameter that has a value in the model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Weight {
    /// The name of the parameter.
    pub name: String,
    /// Its type.
    pub ty: TensorType,
    /// Its elements, little-endian and row-major.
    pub bytes: Vec<u8>,
}

impl Weight {
    fn of(name: String, host: HostTensor<'_>) -> Weight {
        Weight { name, ty: host.ty(), bytes: host.bytes.into_owned() }
    }
}

/// A module of one function, and the weights of the file that some of its parameters take.
#[derive(Clone, Debug)]
pub struct ImportedModel {
    /// One function: inputs of the graph are its first parameters, weights the others.
    pub module: Module,
    /// The values of the parameters that have one, in the order of the parameters.
    pub weights: Vec<Weight>,
    /// What the model uses.
    pub coverage: Coverage,
}

/// Whether bytes are an ONNX model: whether all of them are fields that a model has, a graph among them.
pub fn is_onnx(bytes: &[u8]) -> bool {
    proto::is_model(bytes)
}

/// Imports an ONNX model.
///
/// # Errors
/// Where the bytes are no model, where something of it cannot be imported (then all of that is listed, and the inputs
/// whose values must be given), and where it is no valid program.
pub fn onnx(bytes: &[u8], options: &OnnxOptions) -> Result<ImportedModel, ImportError> {
    let model = read(bytes)?;
    let LoweredModel { builder, weights, coverage } = lowered(&model, options)?;
    if !coverage.is_complete() {
        return Err(ImportError::Unsupported(coverage));
    }
    let internal = |e: Diagnostic| ImportError::Internal(vec![e]);
    let mut module = Module::default();
    module.funcs.push(builder.finish().map_err(internal)?);
    verify(&module).map_err(ImportError::Internal)?;
    let mut raised = Module::default();
    for f in module.funcs.values() {
        raised.funcs.push(raise::raise(f).map_err(internal)?);
    }
    verify(&raised).map_err(ImportError::Internal)?;
    let weights = weights.into_iter().map(|(name, host)| Weight::of(name, host)).collect();
    Ok(ImportedModel { module: raised, weights, coverage })
}

/// What a model uses, and what of it cannot be imported.
///
/// # Errors
/// Where the bytes are no model.
pub fn onnx_coverage(bytes: &[u8], options: &OnnxOptions) -> Result<Coverage, ImportError> {
    Ok(lowered(&read(bytes)?, options)?.coverage)
}

fn read(bytes: &[u8]) -> Result<ModelProto<'_>, ImportError> {
    ModelProto::read(bytes).map_err(|e| {
        let m = format!("this is no ONNX model: {e}");
        ImportError::Syntax(Diagnostic::new(At::default(), Kind::Syntax, m))
    })
}

/// What lowering a model gives.
struct LoweredModel<'m> {
    builder: adfuse_ir::Builder,
    /// Parameters that have a value, by name.
    weights: Vec<(String, HostTensor<'m>)>,
    coverage: Coverage,
}

/// Lowers a model; weights that shapes depend on are constants, which is known once something was refused for it.
fn lowered<'m>(
    model: &'m ModelProto<'m>,
    options: &'m OnnxOptions,
) -> Result<LoweredModel<'m>, ImportError> {
    const MOST_ROUNDS: usize = 32;
    let Some(graph) = &model.graph else {
        let d = Diagnostic::new(At::default(), Kind::Syntax, "the model has no graph");
        return Err(ImportError::Syntax(d));
    };
    let mut constants = BTreeSet::new();
    for _ in 1..MOST_ROUNDS {
        let made = ModelLowering { graph, options, constants: &constants }.lower(model);
        let weights =
            made.coverage.needed.iter().filter(|n| made.weights.iter().any(|w| w.0 == **n));
        let before = constants.len();
        constants.extend(weights.cloned());
        if constants.len() == before {
            return Ok(made);
        }
    }
    Ok(ModelLowering { graph, options, constants: &constants }.lower(model))
}

/// One attempt to lower the graph of a model.
struct ModelLowering<'a, 'm> {
    graph: &'m GraphProto<'m>,
    options: &'m OnnxOptions,
    /// Parameters that are constants since a shape depends on them.
    constants: &'a BTreeSet<String>,
}

impl<'m> ModelLowering<'_, 'm> {
    fn lower(&self, model: &'m ModelProto<'m>) -> LoweredModel<'m> {
        let name = value_name(if self.graph.name.is_empty() { "main" } else { self.graph.name });
        let mut cx = OnnxLowering::new(model, &self.options.external, name, table::row);
        if self.graph.sparse_initializers > 0 {
            cx.issue("graph", "a sparse initializer".into());
        }
        let mut symbols = Symbols::default();
        for info in given_inputs(self.graph) {
            let bound = match self.input(&mut cx, info, &mut symbols) {
                Ok(v) => Some(v),
                Err(what) => {
                    cx.issue("graph", format!("the input `{}`: {what}", info.name));
                    None
                }
            };
            cx.bind(info.name, bound);
        }
        let weights = self.initializers(&mut cx);
        self.graph.nodes.iter().for_each(|node| cx.node(node));
        self.results(&mut cx);
        let usage = std::mem::take(&mut cx.usage);
        let issues = std::mem::take(&mut cx.issues);
        let needed = std::mem::take(&mut cx.needed).into_iter().collect();
        let mut builder = cx.into_builder();
        builder.func_mut().symbols = symbols.used;
        LoweredModel { builder, weights, coverage: Coverage { usage, issues, needed } }
    }

    /// A parameter, or a constant where its value is given.
    fn input(
        &self,
        cx: &mut OnnxLowering<'m>,
        info: &ValueInfo<'m>,
        symbols: &mut Symbols,
    ) -> Result<Val, String> {
        let Some(ty) = &info.ty else { return Err("what is no tensor".into()) };
        let element = tensor::element_type(ty.data_type)?;
        let name = value_name(info.name);
        if let Some(fixed) = self.options.fixed.get(&name) {
            return constant(cx, element, fixed);
        }
        let Some(shape) = &ty.shape else { return Err("a tensor of no known rank".into()) };
        let mut dims = Vec::new();
        for extent in shape {
            dims.push(symbols.dim(extent, &self.options.extents)?);
        }
        let ty = TensorType::new(element.storage(), dims);
        match context::bounded(&ty) {
            Err(_) => Err(format!("a tensor of {ty}")),
            Ok(()) => Ok(Val { element, value: cx.b.param(ty, Some(&name)) }),
        }
    }

    /// Floats with axes are parameters, where something reads them; the rest are constants.
    fn initializers(&self, cx: &mut OnnxLowering<'m>) -> Vec<(String, HostTensor<'m>)> {
        let mut read = BTreeSet::new();
        reads(&self.graph.nodes, &mut read);
        read.extend(self.graph.outputs.iter().map(|o| o.name));
        let mut weights = Vec::new();
        for t in self.graph.initializers.iter().filter(|t| read.contains(t.name)) {
            let made = tensor::tensor(t, cx.external).map_err(Unlowered::Unsupported);
            let made = made.and_then(|host| {
                let name = value_name(t.name);
                let weight = host.element.is_float() && !host.dims.is_empty();
                if !weight || self.constants.contains(&name) {
                    return cx.constant(&host);
                }
                let v = Val { element: host.element, value: cx.b.param(host.ty(), Some(&name)) };
                weights.push((name, host));
                Ok(v)
            });
            let bound = made.map_err(|why| {
                if let Unlowered::Unsupported(what) = why {
                    cx.issue("graph", format!("the initializer `{}`: {what}", t.name));
                }
            });
            cx.bind(t.name, bound.ok());
        }
        weights
    }

    /// Sets the results, which have the types that the graph says.
    fn results(&self, cx: &mut OnnxLowering<'m>) {
        let mut results = Vec::new();
        for info in &self.graph.outputs {
            match cx.find(info.name).and_then(|v| agreed(cx, v, info).map(|()| v)) {
                Ok(v) => {
                    let value = cx.b.materialize(v.value);
                    cx.name(value, info.name);
                    results.push(value);
                }
                Err(Unlowered::Unsupported(what)) => {
                    cx.issue("graph", format!("the output `{}`: {what}", info.name));
                }
                Err(Unlowered::Poisoned) => {}
            }
        }
        cx.b.set_results(&results);
    }
}

/// Errs unless a value has the type that is written.
fn agreed(cx: &OnnxLowering<'_>, v: Val, info: &ValueInfo<'_>) -> Result<(), Unlowered> {
    let Some(ty) = info.ty.as_ref().filter(|ty| ty.data_type != 0) else { return Ok(()) };
    let element = tensor::element_type(ty.data_type).map_err(Unlowered::Unsupported)?;
    let shape = cx.shape(v);
    let same = |(d, said): (&Dim, &ExtentInfo<'_>)| match (d, said) {
        (Dim::Const(n), ExtentInfo::Known(said)) => i64::try_from(*n).is_ok_and(|n| n == *said),
        _ => true,
    };
    let fits = ty
        .shape
        .as_ref()
        .is_none_or(|said| said.len() == shape.len() && shape.iter().zip(said).all(same));
    if element == v.element && fits {
        return Ok(());
    }
    let said = ty.shape.iter().flatten().map(ExtentInfo::to_string).collect::<Vec<_>>().join(",");
    let m = format!("{} of {} where the model says {element}[{said}]", v.element, cx.b.ty(v.value));
    Err(Unlowered::Unsupported(m))
}

fn constant(
    cx: &mut OnnxLowering<'_>,
    element: ElementType,
    fixed: &FixedValue,
) -> Result<Val, String> {
    let dtype = element.storage();
    let ty = TensorType::of(dtype, &fixed.dims);
    let fits = ty.elements() == Some(fixed.elements.len() as u64)
        && fixed.elements.iter().all(|l| l.dtype() == dtype);
    if !fits {
        return Err(format!("a given value that is no {ty}"));
    }
    let all = fixed.elements.iter().copied().collect();
    cx.elements_constant(element, &ty, all).map_err(|why| match why {
        Unlowered::Unsupported(what) => what,
        Unlowered::Poisoned => "a given value".into(),
    })
}

/// The inputs of a graph that have no initializer.
fn given_inputs<'a, 'm>(graph: &'a GraphProto<'m>) -> impl Iterator<Item = &'a ValueInfo<'m>> {
    let initialized: BTreeSet<&str> = graph.initializers.iter().map(|t| t.name).collect();
    graph.inputs.iter().filter(move |i| !initialized.contains(i.name))
}

/// The names that nodes read, those of graphs inside of them among them.
fn reads<'m>(nodes: &'m [OperationProto<'m>], read: &mut BTreeSet<&'m str>) {
    for node in nodes {
        read.extend(&node.inputs);
        for graph in node.attributes.iter().filter_map(|a| a.g.as_deref()) {
            reads(&graph.nodes, read);
            read.extend(graph.outputs.iter().map(|o| o.name));
        }
    }
}

/// The symbols of a function, by the names that the model gives to extents.
#[derive(Default)]
struct Symbols {
    by_name: BTreeMap<String, Symbol>,
    used: Vec<Symbol>,
    unnamed: usize,
}

impl Symbols {
    fn dim(
        &mut self,
        extent: &ExtentInfo<'_>,
        given: &BTreeMap<String, u64>,
    ) -> Result<Dim, String> {
        let name = match *extent {
            ExtentInfo::Known(n) => {
                return u64::try_from(n).map(Dim::Const).map_err(|_| format!("an extent of {n}"));
            }
            ExtentInfo::Named(name) => name.to_string(),
            ExtentInfo::Unknown => {
                self.unnamed += 1;
                format!("d{}", self.unnamed - 1)
            }
        };
        if let Some(symbol) = self.by_name.get(&name) {
            return Ok(given.get(symbol.as_str()).map_or(Dim::Sym(*symbol), |&n| Dim::Const(n)));
        }
        // What is no identifier, or is too long, has its letters and a number.
        let plain: String = value_name(&name).chars().take(11).collect();
        let exact = (name.len() <= 15).then(|| value_name(&name));
        let numbered = (0..1000).map(|k| format!("{plain}_{k}"));
        let names = exact.into_iter().chain(numbered).filter_map(|n| Symbol::new(&n));
        let free = names.into_iter().find(|s| !self.by_name.values().any(|t| t == s));
        let Some(symbol) = free else { return Err(format!("the extent `{name}`")) };
        self.by_name.insert(name, symbol);
        Ok(match given.get(symbol.as_str()) {
            Some(&n) => Dim::Const(n),
            None => {
                self.used.push(symbol);
                Dim::Sym(symbol)
            }
        })
    }
}

/// The parameters that the inputs of a model become, in order, with their types: those of inputs without an initializer
/// that can be imported. Extents that have no number are symbols.
///
/// # Errors
/// Where the bytes are no model.
pub fn onnx_params(bytes: &[u8]) -> Result<Vec<(String, TensorType)>, ImportError> {
    let Some(graph) = read(bytes)?.graph else { return Ok(Vec::new()) };
    let (mut params, mut symbols) = (Vec::new(), Symbols::default());
    for info in given_inputs(&graph) {
        let Some(ty) = info.ty.as_ref() else { continue };
        let Ok(element) = tensor::element_type(ty.data_type) else { continue };
        let extents = ty.shape.iter().flatten();
        let dims = extents.map(|e| symbols.dim(e, &BTreeMap::new())).collect::<Result<Vec<_>, _>>();
        let Ok(dims) = dims else { continue };
        params.push((value_name(info.name), TensorType::new(element.storage(), dims)));
    }
    Ok(params)
}

/// A tensor of a file of its own, as suites of tests have them.
///
/// # Errors
/// Where the bytes are no tensor, or one of a type that cannot be imported.
pub fn onnx_tensor(bytes: &[u8]) -> Result<Weight, ImportError> {
    let wrong = |m: String| ImportError::Syntax(Diagnostic::new(At::default(), Kind::Syntax, m));
    let proto = proto::TensorProto::read(bytes).map_err(|e| wrong(format!("no tensor: {e}")))?;
    let host = tensor::tensor(&proto, &ExternalData::default()).map_err(wrong)?;
    Ok(Weight::of(proto.name.to_string(), host))
}

/// The name of the parameter for an input or an initializer of this name: what names in the IR do not allow becomes `_`.
pub fn onnx_name(name: &str) -> String {
    value_name(name)
}
