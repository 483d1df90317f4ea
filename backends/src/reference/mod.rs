//! The reference engine: evaluates a verified function, one instruction at a time, in the declared element types and in
//! the order that strict mode defines. Its results define the meaning of a program.

pub(crate) mod contract;
mod control;
pub(crate) mod evaluator;
pub(crate) mod indirect;
pub mod kernel;
pub(crate) mod map;
pub mod order;
pub(crate) mod reduce;
mod tensor;
pub(crate) mod view;

pub use evaluator::{Evaluated, Evaluator};

use crate::runtime::array::{Array, out_of_memory};
use crate::runtime::functions::Registry;
use adfuse_ir::op::{Body, Control, Effect, composition};
use adfuse_ir::rewrite::specialize;
use adfuse_ir::verify::{at_inst, bind};
use adfuse_ir::{At, DType, Diagnostic, Function, Inst, Kind, Module, Region, TensorType, Value};
use cranelift_entity::SecondaryMap;
use std::borrow::Cow;
use std::rc::Rc;
pub(crate) use tensor::{EvalTensor, reserve};

/// Where effects go.
pub trait Effects {
    /// A `debug_print` with its label.
    fn print(&mut self, label: &str, value: &Array);
}

/// A sink that discards effects.
pub struct Silent;

impl Effects for Silent {
    fn print(&mut self, _: &str, _: &Array) {}
}

/// Runs function `f` of a verified module. Symbolic extents are bound by the arguments; a parameter
/// that is a token takes no argument, and a result that is one gives none.
///
/// # Errors
/// When the arguments do not have the parameters' types, and when memory is not enough.
pub fn run(
    module: &Module,
    f: &Function,
    args: &[Array],
    effects: &mut dyn Effects,
) -> Result<Vec<Array>, Diagnostic> {
    run_with(module, f, args, effects, &Registry::new())
}

/// As [`run`], with functions for the program to call by name.
///
/// # Errors
/// As [`run`]; and when a function is unknown, does not take its operands, or fails.
pub fn run_with(
    module: &Module,
    f: &Function,
    args: &[Array],
    effects: &mut dyn Effects,
    functions: &Registry,
) -> Result<Vec<Array>, Diagnostic> {
    let f = &*specialized_to(f, args)?;
    let mut tensors = Vec::new();
    let mut given = args.iter();
    for &p in f.params() {
        let t = match f.ty(p).dtype {
            DType::Token => EvalTensor::token(),
            _ => EvalTensor::from_array(given.next().expect("bound above"))?,
        };
        tensors.push(Rc::new(t));
    }
    let results = call((module, functions), f, &tensors, effects)?;
    let arrays = results.iter().filter(|t| t.dtype != DType::Token);
    arrays.map(|t| t.to_array()).collect()
}

/// The function at the extents that the arguments bind its symbols to.
///
/// # Errors
/// When the arguments do not have the parameters' types, or a symbol is in none of those.
pub fn specialized_to<'f>(
    f: &'f Function,
    args: &[Array],
) -> Result<Cow<'f, Function>, Diagnostic> {
    let at = || At { func: Some(f.name.clone()), ..At::default() };
    let params: Vec<TensorType> =
        f.param_types().into_iter().filter(|t| t.dtype != DType::Token).collect();
    let types: Vec<TensorType> = args.iter().map(Array::ty).collect();
    let Some(bound) = bind(&params, &types) else {
        let m = format!("@{} takes {params:?}, found {types:?}", f.name);
        return Err(Diagnostic::new(at(), Kind::Usage, m));
    };
    if f.symbols.is_empty() {
        return Ok(Cow::Borrowed(f));
    }
    if let Some(s) = f.symbols.iter().find(|s| !bound.contains_key(s)) {
        let m = format!("no parameter of @{} gives `{s:?}` an extent", f.name);
        return Err(Diagnostic::new(at(), Kind::Usage, m));
    }
    let extents = bound.iter().filter_map(|(&s, d)| Some((s, d.known()?))).collect();
    specialize(f, &extents).map(Cow::Owned).map_err(|mut e| e.swap_remove(0))
}

/// What calls are found in: the functions of the module, and those of the user.
type Known<'m> = (&'m Module, &'m Registry);

fn call(
    known: Known<'_>,
    f: &Function,
    args: &[Rc<EvalTensor>],
    effects: &mut dyn Effects,
) -> Result<Vec<Rc<EvalTensor>>, Diagnostic> {
    let (values, last_use) = (SecondaryMap::new(), last_uses(f));
    let mut eval = Eval { known, f, values, last_use, effects, max_trips: control::MAX_TRIPS };
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

struct Eval<'m> {
    known: Known<'m>,
    f: &'m Function,
    values: SecondaryMap<Value, Option<Rc<EvalTensor>>>,
    last_use: SecondaryMap<Value, Option<Inst>>,
    effects: &'m mut dyn Effects,
    max_trips: u64,
}

impl Eval<'_> {
    fn region(&mut self, region: Region) -> Result<Vec<Rc<EvalTensor>>, Diagnostic> {
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
            Body::Opaque => {
                let arrays: Vec<Array> =
                    tensors.iter().map(|t| t.to_array()).collect::<Result<_, _>>()?;
                let name = attrs.text("name");
                let array = self.known.1.evaluate(name, &arrays)?;
                if array.ty() != ty {
                    let m = format!("the result of `{name}` is {}, not {ty}", array.ty());
                    return Err(Diagnostic::new(At::default(), Kind::Shape, m));
                }
                EvalTensor::from_array(&array)?
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
