//! Copying instructions into a function under construction: what every rebuilding pass stands on.

use crate::builder::Builder;
use crate::diag::Diagnostic;
use crate::entity::{AttrsId, Inst, Region, TypeId, Value};
use crate::function::{Function, NewInst};
use crate::types::TensorType;
use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;
use smallvec::SmallVec;

/// Copies from one function into a builder, with a map from old values to new ones.
pub struct Copier<'f> {
    from: &'f Function,
    retype: Option<&'f dyn Fn(&TensorType) -> TensorType>,
    map: SecondaryMap<Value, PackedOption<Value>>,
    /// What types and attributes of the old function are in the new one, which is always the same.
    types: SecondaryMap<TypeId, PackedOption<TypeId>>,
    attrs: SecondaryMap<AttrsId, PackedOption<AttrsId>>,
}

impl<'f> Copier<'f> {
    /// An empty map from the values of `from`.
    pub fn new(from: &'f Function) -> Copier<'f> {
        let map = SecondaryMap::with_capacity(from.value_count());
        Copier { from, retype: None, map, types: SecondaryMap::new(), attrs: SecondaryMap::new() }
    }

    /// As [`Copier::new`], with every type changed on the way.
    pub fn retyping(
        from: &'f Function,
        retype: &'f dyn Fn(&TensorType) -> TensorType,
    ) -> Copier<'f> {
        Copier { retype: Some(retype), ..Copier::new(from) }
    }

    /// The function that is copied from.
    pub fn from(&self) -> &'f Function {
        self.from
    }

    /// Declares that `old` is `new`.
    pub fn set(&mut self, old: Value, new: Value) {
        self.map[old] = new.into();
    }

    /// The new value for `old`; literals are made on demand.
    ///
    /// # Panics
    /// If `old` was neither copied nor set: a pass visits definitions before uses.
    pub fn get(&mut self, b: &mut Builder, old: Value) -> Value {
        if let Some(v) = self.map[old].expand() {
            return v;
        }
        let l = self.from.literal(old).expect("definitions are copied before uses");
        let ty = self.type_of(old);
        let v = b.literal(&ty, l.convert(ty.dtype));
        self.map[old] = v.into();
        v
    }

    /// Declares what stands for each of some values, which has its name unless it is a literal or has one.
    pub fn stand_for(&mut self, b: &mut Builder, old: &[Value], new: &[Value]) {
        for (&old, &new) in old.iter().zip(new) {
            if b.func().literal(new).is_none() && b.func().name_of(new).is_none() {
                b.func_mut().set_name(new, self.from.name_of(old));
            }
            self.set(old, new);
        }
    }

    /// The new value for `old`, if there is one.
    pub fn find(&self, old: Value) -> Option<Value> {
        self.map[old].expand()
    }

    fn type_of(&self, old: Value) -> TensorType {
        match self.retype {
            Some(retype) => retype(self.from.ty(old)),
            None => self.from.ty(old).clone(),
        }
    }

    fn type_number(&mut self, b: &mut Builder, old: Value) -> TypeId {
        let id = self.from.type_id(old);
        if let Some(new) = self.types[id].expand() {
            return new;
        }
        let new = b.func_mut().type_number(&self.type_of(old));
        self.types[id] = new.into();
        new
    }

    fn attrs_number(&mut self, b: &mut Builder, i: Inst) -> AttrsId {
        let id = self.from.inst(i).attrs;
        if let Some(new) = self.attrs[id].expand() {
            return new;
        }
        let new = b.func_mut().attrs_number(self.from.attrs(i));
        self.attrs[id] = new.into();
        new
    }

    /// A builder of a function like the one that is copied: its name, symbols, rule, checkpoint policy and parameters.
    pub fn begin(&mut self) -> Builder {
        let mut b = self.begin_bare();
        self.params(&mut b);
        b
    }

    /// As [`Copier::begin`], without parameters: the caller adds those.
    pub fn begin_bare(&self) -> Builder {
        let from = self.from;
        let mut b = Builder::new(from.name.clone());
        b.func_mut().symbols = from.symbols.clone();
        b.func_mut().rule = from.rule.clone();
        b.func_mut().checkpoint = from.checkpoint.clone();
        b
    }

    /// The function that was built, whose results are those of the one that is copied.
    ///
    /// # Errors
    /// Those of construction.
    pub fn finish(&mut self, mut b: Builder) -> Result<Function, Diagnostic> {
        let results: Vec<Value> =
            self.from.results().iter().map(|&v| self.get(&mut b, v)).collect();
        b.set_results(&results);
        b.finish()
    }

    /// A function like the one that is copied, whose instructions `each` places.
    ///
    /// # Errors
    /// Those of `each` and of construction.
    pub fn rebuild(&mut self, each: Each<'_>) -> Result<Function, Diagnostic> {
        let mut b = self.begin();
        for &i in self.from.body_insts() {
            each(self, &mut b, i)?;
        }
        self.finish(b)
    }

    /// Adds parameters to `b` like those of the function's body, names kept.
    pub fn params(&mut self, b: &mut Builder) {
        self.from.params().iter().for_each(|&p| self.param(b, p));
    }

    /// Adds a parameter to the region under construction, of the type and name of `old`, which it stands for.
    pub fn param(&mut self, b: &mut Builder, old: Value) {
        let new = b.param(self.type_of(old), self.from.name_of(old));
        self.set(old, new);
    }

    /// Copies one instruction with its regions, phase, span, checkpoint regions and names.
    pub fn inst(&mut self, b: &mut Builder, i: Inst) -> Inst {
        let copied = self.inst_with(b, i, &mut |copier, b, i| {
            copier.inst(b, i);
            Ok(())
        });
        copied.expect("plain copying does not fail")
    }

    /// As [`Copier::inst`], with `each` to place the instructions of nested regions.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn inst_with(
        &mut self,
        b: &mut Builder,
        i: Inst,
        each: Each<'_>,
    ) -> Result<Inst, Diagnostic> {
        let from = self.from;
        let mut regions = Vec::new();
        for &r in &from.inst(i).regions {
            let new = b.open_region();
            from.region(r).params.iter().for_each(|&p| self.param(b, p));
            for &i in &from.region(r).insts {
                each(self, b, i)?;
            }
            let results: Vec<Value> =
                from.region(r).results.iter().map(|&v| self.get(b, v)).collect();
            b.close_region(&results);
            regions.push(new);
        }
        Ok(self.inst_of(b, i, &regions))
    }

    /// Copies one instruction with other regions, which are closed.
    pub fn inst_of(&mut self, b: &mut Builder, i: Inst, regions: &[Region]) -> Inst {
        let from = self.from;
        let data = from.inst(i);
        let mut args: SmallVec<[Value; 4]> = from.args(i).iter().map(|&a| self.get(b, a)).collect();
        let became_literal = |(&old, &new): (&Value, &Value)| {
            from.literal(old).is_none() && b.func().literal(new).is_some()
        };
        if from.args(i).iter().zip(&args).any(became_literal) {
            let types: Vec<TensorType> =
                from.inst_results(i).iter().map(|&v| self.type_of(v)).collect();
            b.set_phase(data.phase);
            args = b.legal_args(data.op, args.to_vec(), from.attrs(i), &types).into();
        }
        let types: SmallVec<[TypeId; 2]> =
            from.inst_results(i).iter().map(|&v| self.type_number(b, v)).collect();
        let attrs = self.attrs_number(b, i);
        let at = b.region();
        let new = b.func_mut().add_interned(
            at,
            NewInst {
                op: data.op,
                args: &args,
                attrs,
                results: &types,
                regions,
                phase: data.phase,
            },
        );
        b.func_mut().set_origin(new, from.origin(i).clone());
        b.func_mut().set_path(new, from.path(i).clone());
        for (k, &old) in from.inst_results(i).iter().enumerate() {
            let v = b.func().inst_results(new)[k];
            b.func_mut().set_name(v, from.name_of(old));
            self.set(old, v);
        }
        new
    }
}

/// Places one instruction of the old function in the new one.
pub type Each<'e> =
    &'e mut dyn FnMut(&mut Copier<'_>, &mut Builder, Inst) -> Result<(), Diagnostic>;
