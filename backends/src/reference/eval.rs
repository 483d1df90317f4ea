//! Evaluating a function, one instruction at a time.

use super::tensor::EvalTensor;
use super::{contract, indirect, map, reduce, view};
use crate::runtime::array::Array;
use crate::runtime::effects::Effects;
use crate::runtime::functions::Registry;
use crate::runtime::limits::RunLimits;
use adfuse_ir::op::{Body, Composition, Control, Effect, composition, composition_of_step};
use adfuse_ir::rewrite::specialize;
use adfuse_ir::verify::{at_inst, bind};
use adfuse_ir::{At, DType, Diagnostic, Function, Inst, Kind, Module, Region, TensorType, Value};
use cranelift_entity::SecondaryMap;
use std::rc::Rc;

/// What calls are found in, the functions of the module and those of the user, and how far loops may go.
pub(super) type Known<'m> = (&'m Module, &'m Registry, RunLimits);

pub(super) fn call(
    known: Known<'_>,
    f: &Function,
    args: &[Rc<EvalTensor>],
    effects: &mut dyn Effects,
) -> Result<Vec<Rc<EvalTensor>>, Diagnostic> {
    let (values, last_use) = (SecondaryMap::new(), last_uses(f));
    let mut eval = Eval { known, f, values, last_use, effects, max_trips: known.2.max_trips };
    for (&p, a) in f.params().iter().zip(args) {
        eval.values[p] = Some(a.clone());
    }
    eval.region(f.body())
}

/// For each value of the body, the last instruction of the body that reads it, so that big tensors
/// are dropped when they are done with.
fn last_uses(f: &Function) -> SecondaryMap<Value, Option<Inst>> {
    fn visit(f: &Function, top: Inst, i: Inst, last: &mut SecondaryMap<Value, Option<Inst>>) {
        for &a in f.args(i) {
            last[a] = Some(top);
        }
        for &r in &f.inst(i).regions {
            for &v in &f.region(r).results {
                last[v] = Some(top);
            }
            for &j in &f.region(r).insts {
                visit(f, top, j, last);
            }
        }
    }
    let mut last = SecondaryMap::new();
    for &i in f.body_insts() {
        visit(f, i, i, &mut last);
    }
    for &r in f.results() {
        last[r] = None;
    }
    last
}

pub(super) struct Eval<'m> {
    known: Known<'m>,
    pub(super) f: &'m Function,
    pub(super) values: SecondaryMap<Value, Option<Rc<EvalTensor>>>,
    last_use: SecondaryMap<Value, Option<Inst>>,
    effects: &'m mut dyn Effects,
    pub(super) max_trips: u64,
}

impl Eval<'_> {
    pub(super) fn region(&mut self, region: Region) -> Result<Vec<Rc<EvalTensor>>, Diagnostic> {
        let f = self.f;
        for &i in &f.region(region).insts {
            let results = self.inst(i).map_err(|mut d| {
                if d.at.inst.is_none() {
                    d.at = at_inst(f, i);
                }
                d
            })?;
            for (&v, t) in f.inst_results(i).iter().zip(results) {
                self.values[v] = Some(t);
            }
            for &a in f.args(i) {
                if self.last_use[a] == Some(i) {
                    self.values[a] = None;
                }
            }
        }
        f.region(region).results.iter().map(|&v| self.get(v)).collect()
    }

    fn get(&self, v: Value) -> Result<Rc<EvalTensor>, Diagnostic> {
        if let Some(t) = &self.values[v] {
            return Ok(t.clone());
        }
        let l = self.f.literal(v).ok_or_else(|| {
            Diagnostic::new(At::default(), Kind::Internal, "a value is read before it is made")
        })?;
        let t = EvalTensor::build(self.f.ty(v), |bits| {
            bits.resize(bits.capacity(), l.bits());
            Ok(())
        });
        t.map(Rc::new)
    }

    fn inst(&mut self, i: Inst) -> Result<Vec<Rc<EvalTensor>>, Diagnostic> {
        let f = self.f;
        let (op, attrs) = (f.op(i), f.attrs(i));
        let args: Vec<Rc<EvalTensor>> =
            f.args(i).iter().map(|&a| self.get(a)).collect::<Result<_, _>>()?;
        let arg = |k: usize| args[k].as_ref();
        let types: Vec<TensorType> = f.inst_results(i).iter().map(|&v| f.ty(v).clone()).collect();
        let ty = types.first().cloned().unwrap_or_else(TensorType::token);
        let tensors: Vec<&EvalTensor> = args.iter().map(Rc::as_ref).collect();
        let one = match op.def().body {
            Body::Map(_) => map::map(op, &tensors, attrs, &ty)?,
            Body::Source(_) => map::source(op, &tensors, attrs, &ty)?,
            Body::View(index) => return view::view(index, &tensors, attrs, &types),
            Body::Reduce(monoid) => reduce::reduce(monoid, arg(0), attrs, &ty)?,
            Body::Scan(monoid) => reduce::scan(monoid, arg(0), attrs, &ty)?,
            Body::Contract => {
                let (batch, contracted) = (attrs.pair("batch"), attrs.pair("contract"));
                contract::contract(arg(0), arg(1), batch, contracted, &ty)?
            }
            Body::Indirect(which) => indirect::indirect(which, &tensors, attrs, &ty)?,
            Body::Constant => EvalTensor::build(&ty, |bits| {
                bits.extend(attrs.literals("values").iter().map(|l| l.bits()));
                Ok(())
            })?,
            Body::Region(Control::Branch) => return self.branch(i, arg(0)),
            Body::Region(Control::While) => return self.while_loop(i, args),
            Body::Region(Control::Loop(_)) => return self.steps(i, &args, &types),
            Body::Region(Control::Call) => return self.call(attrs.text("func"), &args),
            Body::Composed(_) => {
                let types: Vec<TensorType> = f.args(i).iter().map(|&a| f.ty(a).clone()).collect();
                let parts = composition(op, &types, attrs)?;
                return call(self.known, &parts, &args, self.effects);
            }
            Body::Step(_) => {
                let types: Vec<TensorType> = f.args(i).iter().map(|&a| f.ty(a).clone()).collect();
                let parts = composition_of_step(op, Composition::Defined, &types, attrs)?;
                return call(self.known, &parts, &args, self.effects);
            }
            Body::Opaque => {
                let given = tensors.iter().filter(|t| t.dtype != DType::Token);
                let arrays: Vec<Array> = given.map(|t| t.to_array()).collect::<Result<_, _>>()?;
                let name = attrs.text("name");
                let array = self.known.1.evaluate(name, &arrays)?;
                let ty = types.last().unwrap_or(&ty);
                if array.ty() != *ty {
                    let m = format!("the result of `{name}` is {}, not {ty}", array.ty());
                    return Err(Diagnostic::new(At::default(), Kind::Shape, m));
                }
                let tokens = (1..types.len()).map(|_| EvalTensor::token());
                let all = tokens.chain([EvalTensor::from_array(&array)?]);
                return Ok(all.map(Rc::new).collect());
            }
            Body::Collective(_) => {
                let ranks = attrs.int("ranks");
                let m = format!("`{op}` is over {ranks} ranks, and this engine runs one alone");
                let hint = "`adfuse vmap --axis-name` makes one program of all ranks";
                return Err(Diagnostic::new(at_inst(f, i), Kind::NoDevice, m).hint(hint));
            }
            Body::Effect(Effect::Start) => EvalTensor::token(),
            Body::Effect(Effect::Print) => {
                let array = arg(1).to_array()?;
                self.effects.print(attrs.text("label"), &array);
                EvalTensor::token()
            }
        };
        Ok(vec![Rc::new(one)])
    }

    fn call(
        &mut self,
        name: &str,
        args: &[Rc<EvalTensor>],
    ) -> Result<Vec<Rc<EvalTensor>>, Diagnostic> {
        let callee = self.known.0.find(name).ok_or_else(|| {
            Diagnostic::new(At::default(), Kind::UnknownName, format!("no function @{name}"))
        })?;
        if callee.symbols.is_empty() {
            return call(self.known, callee, args, self.effects);
        }
        let dims = |t: &EvalTensor| t.dims.iter().map(|&n| n as u64).collect::<Vec<_>>();
        let types: Vec<TensorType> =
            args.iter().map(|t| TensorType::of(t.dtype, &dims(t))).collect();
        let bound = bind(&callee.param_types(), &types).unwrap_or_default();
        let extents = bound.iter().filter_map(|(&s, d)| Some((s, d.known()?))).collect();
        let special = specialize(callee, &extents).map_err(|mut e| e.swap_remove(0))?;
        call(self.known, &special, args, self.effects)
    }
}
