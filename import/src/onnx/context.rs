//! What lowering a node sees: the values so far, the function under construction, what is known, what was refused.

use super::operation::OnnxOperation;
use super::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, OperationProto, Opsets, TensorProto,
};
use super::tensor::ExternalData;
use crate::emit::element::ElementType;
use crate::emit::refusal::{Unlowered, refuse};
use crate::emit::{InstEmitter, Val};
pub(crate) use crate::emit::{LoweredValues, Vals};
use crate::known::{KnownElement, KnownTensor, KnownValues};
use crate::report::{Issue, Usage};
use adfuse_ir::{Dim, Elements, Literal, Shape, Span, TensorType, Value};
use std::collections::{BTreeSet, HashMap};
use std::ops::{Deref, DerefMut};

pub(crate) type LoweredValue = Result<Val, Unlowered>;

/// What a name stands for: a value, or something that was refused.
type BoundValue = Option<Val>;

/// The attributes of the function that is lowered in place of a call.
type Environment<'m> = HashMap<&'m str, &'m AttributeProto<'m>>;

/// A row of the table of ops.
pub(crate) struct OnnxRow {
    /// The op, behind its domain if that is not the default one.
    pub(crate) name: &'static str,
    /// The first version of the domain that it is right for.
    pub(crate) since: i64,
    pub(crate) lower: for<'m> fn(&mut OnnxLowering<'m>, &OnnxOperation<'m>) -> LoweredValues,
}

/// A graph that is being lowered.
pub(crate) struct OnnxLowering<'m> {
    pub(crate) emitter: InstEmitter,
    rows: fn(&str) -> Option<&'static OnnxRow>,
    functions: &'m [FunctionProto<'m>],
    opsets: &'m Opsets<'m>,
    /// Names by graph: those of the graph around the last one before it.
    scopes: Vec<HashMap<&'m str, BoundValue>>,
    attributes: Environment<'m>,
    pub(crate) known: KnownValues,
    /// The tensors inside of graphs and functions that were read: a function is lowered at each call.
    pub(crate) tensors: HashMap<*const TensorProto<'m>, (ElementType, TensorType, Elements)>,
    pub(crate) external: &'m ExternalData,
    /// The node that is lowered, as messages name it.
    place: String,
    pub(crate) issues: Vec<Issue>,
    pub(crate) usage: Usage,
    /// Parameters whose values a shape depends on.
    pub(crate) needed: BTreeSet<String>,
    /// Calls and graphs that are open, and all nodes that were lowered.
    depth: usize,
    nodes: usize,
}

impl Deref for OnnxLowering<'_> {
    type Target = InstEmitter;

    fn deref(&self) -> &InstEmitter {
        &self.emitter
    }
}

impl DerefMut for OnnxLowering<'_> {
    fn deref_mut(&mut self) -> &mut InstEmitter {
        &mut self.emitter
    }
}

impl<'m> OnnxLowering<'m> {
    pub(crate) fn new(
        model: &'m ModelProto<'m>,
        external: &'m ExternalData,
        name: String,
        rows: fn(&str) -> Option<&'static OnnxRow>,
    ) -> OnnxLowering<'m> {
        OnnxLowering {
            emitter: InstEmitter::new(name),
            rows,
            functions: &model.functions,
            opsets: &model.opsets,
            scopes: vec![HashMap::new()],
            attributes: HashMap::new(),
            known: KnownValues::default(),
            tensors: HashMap::new(),
            external,
            place: String::new(),
            issues: Vec::new(),
            usage: Usage::default(),
            needed: BTreeSet::new(),
            depth: 0,
            nodes: 0,
        }
    }

    /// The function that was built.
    pub(crate) fn into_builder(self) -> adfuse_ir::Builder {
        self.emitter.b
    }

    /// Notes something that cannot be imported.
    pub(crate) fn issue(&mut self, op: &str, what: String) {
        let node = Some(self.place.clone()).filter(|p| !p.is_empty());
        self.issues.push(Issue {
            op: op.to_string(),
            what,
            span: Span::default(),
            line: None,
            node,
        });
    }

    /// Says what a name stands for in the graph that is lowered.
    pub(crate) fn bind(&mut self, name: &'m str, v: BoundValue) {
        if let Some(scope) = self.scopes.last_mut().filter(|_| !name.is_empty()) {
            scope.insert(name, v);
        }
    }

    /// What a name stands for.
    pub(crate) fn find(&self, name: &str) -> LoweredValue {
        match self.scopes.iter().rev().find_map(|s| s.get(name)) {
            Some(Some(v)) => Ok(*v),
            Some(None) => Err(Unlowered::Poisoned),
            None => refuse(format!("the value `{name}`, which nothing gives")),
        }
    }

    /// Lowers the nodes of a graph inside of this one; its outputs.
    pub(crate) fn subgraph(
        &mut self,
        graph: &'m GraphProto<'m>,
        params: &[Val],
    ) -> Result<Vec<Val>, Unlowered> {
        if graph.inputs.len() != params.len() {
            return refuse(format!("a graph of {} inputs", graph.inputs.len()));
        }
        self.deeper()?;
        let (place, mut scope) = (self.place.clone(), HashMap::new());
        for (info, &v) in graph.inputs.iter().zip(params) {
            scope.insert(info.name, Some(v));
        }
        self.scopes.push(scope);
        let outputs = self.initializers(graph).and_then(|()| {
            graph.nodes.iter().for_each(|node| self.node(node));
            graph.outputs.iter().map(|o| self.find(o.name)).collect()
        });
        self.depth -= 1;
        self.scopes.pop();
        self.place = place;
        outputs
    }

    /// Goes into a call or a graph in a node; errs where they do not end.
    fn deeper(&mut self) -> Result<(), Unlowered> {
        const MOST_DEPTH: usize = 32;
        if self.depth >= MOST_DEPTH {
            return refuse("calls that do not end, or too deep");
        }
        self.depth += 1;
        Ok(())
    }

    fn initializers(&mut self, graph: &'m GraphProto<'m>) -> Result<(), Unlowered> {
        for t in &graph.initializers {
            let made = self.tensor(t)?;
            self.bind(t.name, Some(made));
        }
        Ok(())
    }

    /// Lowers one node and names its outputs; what cannot be lowered is noted, and its outputs are poisoned.
    pub(crate) fn node(&mut self, proto: &'m OperationProto<'m>) {
        let op = full_name(proto.domain, proto.op);
        self.usage.count(&op, None);
        let first = proto.outputs.iter().find(|o| !o.is_empty());
        self.place = match (proto.name, first) {
            ("", Some(output)) => format!("{output} = {op}"),
            (name, _) => name.to_string(),
        };
        let values = match self.lower(proto, &op) {
            Ok(values) => values.into_iter().map(Some).collect::<Vec<_>>(),
            Err(why) => {
                if let Unlowered::Unsupported(what) = why {
                    self.issue(&op, what);
                }
                vec![None; proto.outputs.len()]
            }
        };
        for (&name, v) in proto.outputs.iter().zip(values) {
            if let Some(v) = v {
                self.name(v.value, name);
            }
            self.bind(name, v);
        }
    }

    /// Gives a value its name in the model, unless it has one.
    pub(crate) fn name(&mut self, v: Value, name: &str) {
        let f = self.b.func_mut();
        if !name.is_empty() && f.literal(v).is_none() && f.name_of(v).is_none() {
            f.set_name(v, Some(&value_name(name)));
        }
    }

    fn lower(&mut self, proto: &'m OperationProto<'m>, op: &str) -> LoweredValues {
        const MOST_NODES: usize = 1_000_000;
        self.nodes += 1;
        if self.nodes > MOST_NODES {
            return refuse(format!("more than {MOST_NODES} nodes"));
        }
        let mut inputs = Vec::new();
        for &name in &proto.inputs {
            inputs.push(if name.is_empty() { None } else { Some(self.find(name)?) });
        }
        let mut attributes = Vec::new();
        for a in &proto.attributes {
            match a.refers {
                "" => attributes.push((a.name, a)),
                refers => attributes.extend(self.attributes.get(refers).map(|&v| (a.name, v))),
            }
        }
        let wanted = |f: &&FunctionProto<'_>| {
            (f.domain, f.name, f.overload) == (proto.domain, proto.op, proto.overload)
        };
        let functions: &'m [FunctionProto<'m>] = self.functions;
        if let Some(f) = functions.iter().find(wanted) {
            return self.call(f, inputs, &attributes);
        }
        let domain = normal_domain(proto.domain);
        let version = self.opsets.iter().find(|o| normal_domain(o.0) == domain).map_or(1, |o| o.1);
        let Some(row) = (self.rows)(op) else { return refuse("no such op here") };
        if version < row.since {
            return refuse(format!("version {version} of it, before {}", row.since));
        }
        let node = OnnxOperation::new(proto, inputs, attributes, version);
        let values = (row.lower)(self, &node)?;
        let asked = proto.outputs.iter().rposition(|o| !o.is_empty()).map_or(0, |k| k + 1);
        if values.len() < asked {
            return refuse(format!("output {}", values.len()));
        }
        if let Some(name) = node.unread() {
            return refuse(format!("the attribute `{name}`"));
        }
        values.iter().try_for_each(|&v| bounded(self.b.ty(v.value)))?;
        Ok(values)
    }

    /// Lowers the body of a function of the model in place of a call.
    fn call(
        &mut self,
        f: &'m FunctionProto<'m>,
        inputs: Vec<Option<Val>>,
        attributes: &[(&'m str, &'m AttributeProto<'m>)],
    ) -> LoweredValues {
        self.deeper()?;
        let mut environment: Environment<'m> = f.defaults.iter().map(|a| (a.name, a)).collect();
        environment.extend(attributes.iter().copied());
        let given = f.inputs.iter().zip(inputs).filter_map(|(&name, v)| Some((name, Some(v?))));
        let scopes = std::mem::replace(&mut self.scopes, vec![given.collect()]);
        let opsets = std::mem::replace(&mut self.opsets, &f.opsets);
        let attributes = std::mem::replace(&mut self.attributes, environment);
        let place = self.place.clone();
        f.nodes.iter().for_each(|node| self.node(node));
        let outputs = f.outputs.iter().map(|name| self.find(name)).collect();
        self.depth -= 1;
        (self.scopes, self.opsets, self.attributes, self.place) =
            (scopes, opsets, attributes, place);
        outputs
    }

    /// The shape of a value.
    pub(crate) fn shape(&self, v: Val) -> Shape {
        self.b.ty(v.value).shape.clone()
    }

    pub(crate) fn rank(&self, v: Val) -> usize {
        self.b.ty(v.value).rank()
    }

    /// The extents of a value, all of which must be known.
    pub(crate) fn extents(&self, v: Val) -> Result<Vec<u64>, Unlowered> {
        self.shape(v).iter().map(|&d| self.extent(d)).collect()
    }

    /// An extent that must be known.
    pub(crate) fn extent(&self, d: Dim) -> Result<u64, Unlowered> {
        match d {
            Dim::Const(n) => Ok(n),
            Dim::Sym(s) => {
                refuse(format!("the extent {0} must be given: --dim {0}=EXTENT", s.as_str()))
            }
        }
    }

    fn elements(&mut self, v: Val) -> Option<std::rc::Rc<KnownTensor>> {
        self.known.value(self.emitter.b.func(), v.value)
    }

    /// The elements of a value that must be known when the model is imported.
    pub(crate) fn literals(&mut self, v: Val) -> Result<Vec<Literal>, Unlowered> {
        match self.elements(v).and_then(|t| t.literals()) {
            Some(all) => Ok(all),
            None => self.needs(v),
        }
    }

    /// The refusal of a value that is not known.
    pub(crate) fn needs<T>(&mut self, v: Val) -> Result<T, Unlowered> {
        let f = self.emitter.b.func();
        let sources = self.known.sources(f, v.value);
        let names: Vec<String> =
            sources.iter().filter_map(|&s| f.name_of(s).map(str::to_string)).collect();
        let what = match names.as_slice() {
            [] => "a shape depends on a value that is computed".to_string(),
            names => format!("a shape depends on the value of {}", names.join(", ")),
        };
        self.needed.extend(names);
        refuse(what)
    }

    /// The elements of a value, as integers that must be known.
    pub(crate) fn ints(&mut self, v: Val) -> Result<Vec<i64>, Unlowered> {
        Ok(self.literals(v)?.into_iter().map(Literal::to_i64).collect())
    }

    /// The elements of a value, as numbers that must be known.
    pub(crate) fn floats(&mut self, v: Val) -> Result<Vec<f64>, Unlowered> {
        Ok(self.literals(v)?.into_iter().map(Literal::to_f64).collect())
    }

    /// The one element of a value that must be known.
    pub(crate) fn int(&mut self, v: Val) -> Result<i64, Unlowered> {
        match self.ints(v)?[..] {
            [n] => Ok(n),
            _ => refuse("other than one number"),
        }
    }

    /// The one element of a value, if it is known.
    pub(crate) fn known_int(&mut self, v: Val) -> Option<i64> {
        match self.elements(v)?.literals()?[..] {
            [l] => Some(l.to_i64()),
            _ => None,
        }
    }

    /// The elements of a value that gives a shape: numbers, -1 among them, and extents of axes.
    pub(crate) fn shape_elements(&mut self, v: Val) -> Result<Vec<Result<i64, Dim>>, Unlowered> {
        let found = self.elements(v);
        let of = |e: &KnownElement, t: &KnownTensor| match *e {
            KnownElement::Bits(b) => Some(Ok(Literal::from_bits(t.dtype, b).to_i64())),
            KnownElement::Extent(s) => Some(Err(Dim::Sym(s))),
            KnownElement::Unknown => None,
        };
        let all = found.and_then(|t| t.elements.iter().map(|e| of(e, &t)).collect());
        match all {
            Some(all) => Ok(all),
            None => self.needs(v),
        }
    }
}

/// Errs for a type that is too large, or would be were not one of its extents 0: so no product of extents overflows.
pub(crate) fn bounded(ty: &TensorType) -> Result<(), Unlowered> {
    match ty.excess() {
        Some(why) => refuse(why),
        None => Ok(()),
    }
}

/// An op with its domain, if that is not the default one.
pub(crate) fn full_name(domain: &str, op: &str) -> String {
    match normal_domain(domain) {
        "" => op.to_string(),
        domain => format!("{domain}.{op}"),
    }
}

fn normal_domain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// A name as the IR has it: what its grammar does not allow becomes `_`.
pub(crate) fn value_name(name: &str) -> String {
    let allowed =
        |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.') { c } else { '_' };
    let mut plain: String = name.chars().map(allowed).take(200).collect();
    if !plain.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        plain.insert(0, '_');
    }
    plain
}
