//! Functions: arenas of values, instructions and regions.

use crate::attrs::{Attr, Attrs};
use crate::checkpoint::{CheckpointPath, CheckpointPolicy};
use crate::diag::{Provenance, Span};
use crate::dtype::DType;
use crate::entity::{AttrsId, Inst, Phase, Region, TypeId, Value};
use crate::literal::Literal;
use crate::op::Op;
use crate::source_line::SourceLine;
use crate::types::{Symbol, TensorType};
use cranelift_entity::{EntityList, EntityRef, ListPool, PrimaryMap, SecondaryMap};
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::hash::Hash;

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueDef {
    /// Parameter number `1` of a region.
    Param(Region, u32),
    /// Result number `1` of an instruction.
    Inst(Inst, u32),
    /// A splat of a constant, printed inline.
    Literal(Literal),
}

#[derive(Clone, Copy, Debug)]
struct ValueData {
    ty: TypeId,
    def: ValueDef,
}

/// One instruction.
#[derive(Clone, Debug)]
pub struct InstData {
    /// The op.
    pub op: Op,
    /// Its attributes.
    pub attrs: AttrsId,
    /// The pass of the step it belongs to.
    pub phase: Phase,
    args: EntityList<Value>,
    results: EntityList<Value>,
    /// Its nested regions, in the order the op's row names them.
    pub regions: SmallVec<[Region; 2]>,
}

/// An instruction to be appended by [`Function::add_inst`]: with its attributes and result types as they are, or
/// as the ids under which the function has them.
#[derive(Clone, Debug)]
pub struct NewInst<'a, A = Attrs, T = TensorType> {
    /// The op.
    pub op: Op,
    /// Its operands.
    pub args: &'a [Value],
    /// Its attributes.
    pub attrs: A,
    /// The type of each result.
    pub results: &'a [T],
    /// Its nested regions, in the order the op's row names them.
    pub regions: &'a [Region],
    /// The pass of the step it belongs to.
    pub phase: Phase,
}

/// Parameters, instructions in order, results.
#[derive(Clone, Debug, Default)]
pub struct RegionData {
    /// Values the region is entered with.
    pub params: Vec<Value>,
    /// Instructions in order.
    pub insts: Vec<Inst>,
    /// Values the region ends with.
    pub results: Vec<Value>,
}

/// A user's rule for the derivative of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CustomRule {
    /// `custom_jvp(@f)`: takes primals then tangents, returns primal results then tangents.
    Jvp(String),
    /// `custom_vjp(@fwd, @bwd)`: `fwd` returns results then residuals; `bwd` takes residuals then
    /// cotangents and returns a cotangent for each parameter.
    Vjp(String, String),
    /// `custom_root(@f)`: the results of a float type are where `f` of them and of the parameters is
    /// zero. They move with the parameters as that equation says, whatever the function computes them by.
    Root(String),
}

#[derive(Clone, Debug)]
struct Interner<K: EntityRef, T> {
    items: PrimaryMap<K, T>,
    index: HashMap<T, K>,
}

impl<K: EntityRef, T: Clone + Eq + Hash> Interner<K, T> {
    fn new() -> Self {
        Interner { items: PrimaryMap::new(), index: HashMap::new() }
    }

    fn intern(&mut self, item: &T) -> K {
        if let Some(&k) = self.index.get(item) {
            return k;
        }
        let k = self.items.push(item.clone());
        self.index.insert(item.clone(), k);
        k
    }
}

/// A straight-line SSA function over tensors, with nested regions for control flow.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name, without `@`.
    pub name: String,
    /// The dimension symbols it declares.
    pub symbols: Vec<Symbol>,
    /// A custom derivative rule.
    pub rule: Option<CustomRule>,
    /// What a call of it keeps for the backward pass, if it is a checkpoint region.
    pub checkpoint: Option<CheckpointPolicy>,
    types: Interner<TypeId, TensorType>,
    attrs: Interner<AttrsId, Attrs>,
    values: PrimaryMap<Value, ValueData>,
    insts: PrimaryMap<Inst, InstData>,
    regions: PrimaryMap<Region, RegionData>,
    literals: HashMap<(TypeId, Literal), Value>,
    names: SecondaryMap<Value, Option<Box<str>>>,
    origins: SecondaryMap<Inst, Provenance>,
    paths: SecondaryMap<Inst, CheckpointPath>,
    pool: ListPool<Value>,
}

impl Function {
    /// A function without parameters, instructions or results.
    pub fn new(name: impl Into<String>) -> Function {
        let mut regions = PrimaryMap::new();
        regions.push(RegionData::default());
        Function {
            name: name.into(),
            symbols: Vec::new(),
            rule: None,
            checkpoint: None,
            types: Interner::new(),
            attrs: Interner::new(),
            values: PrimaryMap::new(),
            insts: PrimaryMap::new(),
            regions,
            literals: HashMap::new(),
            names: SecondaryMap::new(),
            origins: SecondaryMap::new(),
            paths: SecondaryMap::new(),
            pool: ListPool::new(),
        }
    }

    /// The outermost region, whose parameters and results are those of the function.
    pub fn body(&self) -> Region {
        Region::from_u32(0)
    }

    /// The parameters, instructions and results of a region.
    pub fn region(&self, r: Region) -> &RegionData {
        &self.regions[r]
    }

    /// A region, to be changed.
    pub fn region_mut(&mut self, r: Region) -> &mut RegionData {
        &mut self.regions[r]
    }

    /// The function's parameters.
    pub fn params(&self) -> &[Value] {
        &self.regions[self.body()].params
    }

    /// The function's results.
    pub fn results(&self) -> &[Value] {
        &self.regions[self.body()].results
    }

    /// The body's instructions in order.
    pub fn body_insts(&self) -> &[Inst] {
        &self.regions[self.body()].insts
    }

    /// Number of values ever made; ids are below it.
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// Number of instructions ever made; ids are below it.
    pub fn inst_count(&self) -> usize {
        self.insts.len()
    }

    /// The type of a value.
    #[inline]
    pub fn ty(&self, v: Value) -> &TensorType {
        &self.types.items[self.values[v].ty]
    }

    /// The interned type of a value: equal ids are equal types.
    #[inline]
    pub fn type_id(&self, v: Value) -> TypeId {
        self.values[v].ty
    }

    /// Where a value comes from.
    #[inline]
    pub fn def(&self, v: Value) -> ValueDef {
        self.values[v].def
    }

    /// The literal a value is, if it is one.
    #[inline]
    pub fn literal(&self, v: Value) -> Option<Literal> {
        match self.values[v].def {
            ValueDef::Literal(l) => Some(l),
            _ => None,
        }
    }

    /// The name a value was given.
    pub fn name_of(&self, v: Value) -> Option<&str> {
        self.names[v].as_deref()
    }

    /// Names a value; the printer makes names unique.
    pub fn set_name(&mut self, v: Value, name: Option<&str>) {
        self.names[v] = name.map(Into::into);
    }

    /// What an instruction is: its op, operands, attributes, results, phase and place.
    #[inline]
    pub fn inst(&self, i: Inst) -> &InstData {
        &self.insts[i]
    }

    /// An instruction's op.
    #[inline]
    pub fn op(&self, i: Inst) -> Op {
        self.insts[i].op
    }

    /// An instruction's operands.
    #[inline]
    pub fn args(&self, i: Inst) -> &[Value] {
        self.insts[i].args.as_slice(&self.pool)
    }

    /// An instruction's results.
    #[inline]
    pub fn inst_results(&self, i: Inst) -> &[Value] {
        self.insts[i].results.as_slice(&self.pool)
    }

    /// An instruction's attributes.
    #[inline]
    pub fn attrs(&self, i: Inst) -> &Attrs {
        &self.attrs.items[self.insts[i].attrs]
    }

    /// An instruction's place in the source text.
    pub fn span(&self, i: Inst) -> Option<Span> {
        self.origins[i].span
    }

    /// The line of the program that asked for an instruction, where it was traced from one.
    pub fn source_line(&self, i: Inst) -> Option<&SourceLine> {
        self.origins[i].line.as_deref()
    }

    /// Where an instruction comes from.
    pub fn origin(&self, i: Inst) -> &Provenance {
        &self.origins[i]
    }

    /// Says where an instruction comes from.
    pub fn set_origin(&mut self, i: Inst, origin: Provenance) {
        self.origins[i] = origin;
    }

    /// The checkpoint regions around an instruction.
    pub fn path(&self, i: Inst) -> &CheckpointPath {
        &self.paths[i]
    }

    /// Sets the checkpoint regions around an instruction.
    pub fn set_path(&mut self, i: Inst, path: CheckpointPath) {
        if self.paths[i] != path {
            self.paths[i] = path;
        }
    }

    /// Sets an instruction's phase.
    pub fn set_phase(&mut self, i: Inst, phase: Phase) {
        self.insts[i].phase = phase;
    }

    /// Replaces operand `k` of an instruction; the rewrites' one way to edit in place.
    pub fn set_arg(&mut self, i: Inst, k: usize, v: Value) {
        self.insts[i].args.as_mut_slice(&mut self.pool)[k] = v;
    }

    /// Sets an attribute of an instruction.
    pub fn set_attr(&mut self, i: Inst, name: &'static str, value: Attr) {
        let attrs = self.attrs(i).clone().setting(name, value);
        self.insts[i].attrs = self.attrs.intern(&attrs);
    }

    /// Adds a parameter to a region.
    pub fn add_param(&mut self, region: Region, ty: TensorType) -> Value {
        let ty = self.types.intern(&ty);
        let index = self.regions[region].params.len() as u32;
        let v = self.values.push(ValueData { ty, def: ValueDef::Param(region, index) });
        self.regions[region].params.push(v);
        v
    }

    /// The splat of `literal` over `ty`; equal ones are one value.
    pub fn add_literal(&mut self, ty: TensorType, literal: Literal) -> Value {
        debug_assert_eq!(ty.dtype, literal.dtype());
        let ty = self.types.intern(&ty);
        if let Some(&v) = self.literals.get(&(ty, literal)) {
            return v;
        }
        let v = self.values.push(ValueData { ty, def: ValueDef::Literal(literal) });
        self.literals.insert((ty, literal), v);
        v
    }

    /// A new empty region, for an instruction to come.
    pub fn add_region(&mut self) -> Region {
        self.regions.push(RegionData::default())
    }

    /// Appends an instruction to `region` without checking it; see [`Builder`](crate::Builder).
    pub fn add_inst(&mut self, region: Region, new: NewInst<'_>) -> Inst {
        let NewInst { op, args, attrs, results, regions, phase } = new;
        let attrs = self.attrs.intern(&attrs);
        let types: SmallVec<[TypeId; 2]> = results.iter().map(|ty| self.types.intern(ty)).collect();
        self.add_interned(region, NewInst { op, args, attrs, results: &types, regions, phase })
    }

    /// As [`Function::add_inst`], of attributes and result types that the function has.
    pub(crate) fn add_interned(
        &mut self,
        region: Region,
        new: NewInst<'_, AttrsId, TypeId>,
    ) -> Inst {
        let NewInst { op, args, attrs, results, regions, phase } = new;
        let args = EntityList::from_slice(args, &mut self.pool);
        let inst = self.insts.push(InstData {
            op,
            attrs,
            phase,
            args,
            results: EntityList::new(),
            regions: regions.iter().copied().collect(),
        });
        let mut list = EntityList::new();
        for (k, &ty) in results.iter().enumerate() {
            let def = ValueDef::Inst(inst, k as u32);
            list.push(self.values.push(ValueData { ty, def }), &mut self.pool);
        }
        self.insts[inst].results = list;
        self.regions[region].insts.push(inst);
        inst
    }

    /// The number of a type, for [`Function::add_interned`].
    pub(crate) fn type_number(&mut self, ty: &TensorType) -> TypeId {
        self.types.intern(ty)
    }

    /// The number of attributes, for [`Function::add_interned`].
    pub(crate) fn attrs_number(&mut self, attrs: &Attrs) -> AttrsId {
        self.attrs.intern(attrs)
    }

    /// The names of the functions that its instructions call and that are its rule, each as often as it occurs.
    pub fn callees(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.walk(&mut |f, i| {
            if f.op(i) == Op::Call {
                found.push(f.attrs(i).text("func").to_string());
            }
        });
        match &self.rule {
            None => {}
            Some(CustomRule::Jvp(rule) | CustomRule::Root(rule)) => found.push(rule.clone()),
            Some(CustomRule::Vjp(fwd, bwd)) => found.extend([fwd.clone(), bwd.clone()]),
        }
        found
    }

    /// For each of these names whether an instruction has a result of that name.
    pub fn computes(&self, names: &[String]) -> Vec<bool> {
        let mut found = vec![false; names.len()];
        let results = self.insts.keys().flat_map(|i| self.inst_results(i));
        for name in results.filter_map(|&v| self.name_of(v)) {
            names.iter().zip(&mut found).for_each(|(n, found)| *found |= n == name);
        }
        found
    }

    /// Calls `visit` for every instruction in program order, nested regions inside their owner.
    pub fn walk(&self, visit: &mut impl FnMut(&Function, Inst)) {
        self.walk_region(self.body(), visit);
    }

    fn walk_region(&self, region: Region, visit: &mut impl FnMut(&Function, Inst)) {
        for &i in &self.regions[region].insts {
            visit(self, i);
            for &r in &self.insts[i].regions {
                self.walk_region(r, visit);
            }
        }
    }

    /// Whether an instruction, or one nested in it, reads a value for which `wanted` holds. What a
    /// nested region ends with counts as read.
    pub fn reads(&self, i: Inst, wanted: &dyn Fn(Value) -> bool) -> bool {
        self.args(i).iter().any(|&a| wanted(a))
            || self.insts[i].regions.iter().any(|&r| {
                let region = &self.regions[r];
                region.results.iter().any(|&v| wanted(v))
                    || region.insts.iter().any(|&i| self.reads(i, wanted))
            })
    }

    /// Whether an instruction, or one in it, has an effect.
    pub fn has_effect(&self, i: Inst) -> bool {
        let nested = |r: &Region| self.region(*r).insts.iter().any(|&i| self.has_effect(i));
        // A callee may have effects of its own only if a token passes through the call.
        let token = |v: &Value| self.ty(*v).dtype == DType::Token;
        self.op(i).is_effect()
            || self.inst(i).regions.iter().any(nested)
            || self.inst_results(i).iter().any(token)
    }

    /// Whether an instruction, or one in it, happens once and in the order of the function: it has an effect, or ranks
    /// exchange. An exchange that nothing reads may be left out, as it is on all ranks.
    pub fn is_ordered(&self, i: Inst) -> bool {
        self.has_effect(i) || self.op(i).collective().is_some()
    }

    /// Types of the parameters, tokens included, in their order; extents may be symbols.
    pub fn param_types(&self) -> Vec<TensorType> {
        self.params().iter().map(|&v| self.ty(v).clone()).collect()
    }

    /// Types of the results, tokens included, in their order.
    pub fn result_types(&self) -> Vec<TensorType> {
        self.results().iter().map(|&v| self.ty(v).clone()).collect()
    }
}
