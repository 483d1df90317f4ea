//! Values that are known while a model is imported: instructions of the IR are evaluated, where a shape depends on what
//! they give. An element may also be the extent of an axis, which is a symbol.

use crate::emit::InstEmitter;
use crate::emit::refusal::Unlowered;
use adfuse_ir::index::ViewMap;
use adfuse_ir::op::{Body, Indirect, Monoid, ViewCx, composition};
use adfuse_ir::scalar::{LANES, Lanes, ScalarProgram, eval_lanes, eval_one, expand};
use adfuse_ir::{
    Attrs, DType, Dim, Function, Inst, Literal, Op, Symbol, TensorType, Value, ValueDef,
};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::rc::Rc;

/// The extent that a symbol stands for, as an `i64` scalar: it is counted when the program runs.
pub(crate) fn counted(
    cx: &mut InstEmitter,
    known: &mut KnownValues,
    s: Symbol,
) -> Result<Value, Unlowered> {
    let ty = TensorType::new(DType::I64, [Dim::Sym(s)]);
    let ones = cx.b.literal(&ty, Literal::one(DType::I64));
    let ones = cx.b.materialize(ones);
    let count = cx.emit(Op::ReduceSum, &[ones], Attrs::none().with_ints("axes", [0]))?;
    let elements = vec![KnownElement::Extent(s)];
    known.set(count, KnownTensor { dtype: DType::I64, dims: SmallVec::new(), elements });
    Ok(count)
}

/// Most elements of a tensor that is evaluated.
const MOST_ELEMENTS: u64 = 1 << 18;

/// Most elements that are evaluated in all.
const MOST_WORK: u64 = 1 << 21;

/// An element of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KnownElement {
    /// Its bits.
    Bits(u64),
    /// The extent of an axis.
    Extent(Symbol),
    /// It is computed when the program runs.
    Unknown,
}

/// A value, as far as it is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KnownTensor {
    pub(crate) dtype: DType,
    pub(crate) dims: SmallVec<[i64; 4]>,
    pub(crate) elements: Vec<KnownElement>,
}

type Found = Option<Rc<KnownTensor>>;

impl KnownTensor {
    fn of(ty: &TensorType, elements: Vec<KnownElement>) -> Option<KnownTensor> {
        let dims = extents(ty)?;
        let count = dims.iter().product::<i64>();
        (elements.len() as i64 == count).then_some(KnownTensor { dtype: ty.dtype, dims, elements })
    }

    /// All elements, where each is a number.
    pub(crate) fn literals(&self) -> Option<Vec<Literal>> {
        let of = |e: &KnownElement| match e {
            KnownElement::Bits(b) => Some(Literal::from_bits(self.dtype, *b)),
            _ => None,
        };
        self.elements.iter().map(of).collect()
    }

    fn read(&self, at: impl Iterator<Item = i64>) -> Option<KnownElement> {
        let mut offset = 0i64;
        for (place, &n) in at.zip(&self.dims) {
            if !(0..n).contains(&place) {
                return None;
            }
            offset = offset * n + place;
        }
        self.elements.get(usize::try_from(offset).ok()?).copied()
    }
}

/// A value of which nothing is known, where it is as small as lists of places and of extents are: some elements of what is
/// made of it may be known.
fn unknown(ty: &TensorType) -> Found {
    const MOST: u64 = 64;
    let count = ty.elements().filter(|&n| n <= MOST)?;
    KnownTensor::of(ty, vec![KnownElement::Unknown; count as usize]).map(Rc::new)
}

/// The extents of a type that is small enough.
fn extents(ty: &TensorType) -> Option<SmallVec<[i64; 4]>> {
    ty.elements().filter(|&n| n <= MOST_ELEMENTS)?;
    ty.dims()?.iter().map(|&n| i64::try_from(n).ok()).collect()
}

/// What is known of the values of a function under construction.
#[derive(Default)]
pub(crate) struct KnownValues {
    found: HashMap<Value, Found>,
    done: u64,
}

impl KnownValues {
    /// Says what a value is.
    pub(crate) fn set(&mut self, v: Value, t: KnownTensor) {
        self.found.insert(v, Some(Rc::new(t)));
    }

    /// What is known of a value; `None` for nothing.
    pub(crate) fn value(&mut self, f: &Function, v: Value) -> Found {
        let mut open = vec![v];
        while let Some(&v) = open.last() {
            if self.found.contains_key(&v) {
                open.pop();
                continue;
            }
            match f.def(v) {
                ValueDef::Literal(l) => {
                    let all = f.ty(v).elements().filter(|&n| n <= MOST_ELEMENTS);
                    let all = all.map(|n| vec![KnownElement::Bits(l.bits()); n as usize]);
                    let made = all.and_then(|all| KnownTensor::of(f.ty(v), all));
                    self.found.insert(v, made.map(Rc::new));
                }
                ValueDef::Param(..) => {
                    self.found.insert(v, None);
                }
                ValueDef::Inst(i, _) => {
                    let missing = f.args(i).iter().filter(|a| !self.found.contains_key(a));
                    let before = open.len();
                    open.extend(missing);
                    if open.len() == before {
                        self.instruction(f, i);
                    }
                }
            }
        }
        self.found.get(&v).cloned().flatten()
    }

    /// Evaluates an instruction, whose operands have been.
    fn instruction(&mut self, f: &Function, i: Inst) {
        let results = f.inst_results(i);
        let small = |v: &Value| f.ty(*v).elements().filter(|&n| n <= MOST_ELEMENTS);
        let work: Option<u64> = results.iter().map(small).sum();
        self.done = self.done.saturating_add(work.unwrap_or(0));
        let args: Option<Vec<Rc<KnownTensor>>> = f
            .args(i)
            .iter()
            .map(|a| self.found.get(a).cloned().flatten().or_else(|| unknown(f.ty(*a))))
            .collect();
        let made = match (args, work) {
            (Some(args), Some(_)) if self.done <= MOST_WORK => self.evaluate(f, i, &args),
            _ => None,
        };
        let mut made = made.unwrap_or_default().into_iter();
        for &v in results {
            let some = |t: &KnownTensor| t.elements.iter().any(|e| *e != KnownElement::Unknown);
            let nothing = |t: &KnownTensor| t.elements.is_empty();
            let found = made.next().filter(|t| some(t) || nothing(t));
            self.found.insert(v, found.map(Rc::new));
        }
    }

    fn evaluate(
        &mut self,
        f: &Function,
        i: Inst,
        args: &[Rc<KnownTensor>],
    ) -> Option<Vec<KnownTensor>> {
        let (op, attrs) = (f.op(i), f.attrs(i));
        let ty = f.ty(*f.inst_results(i).first()?);
        let one = match op.def().body {
            Body::Map(_) => map(op, args, attrs, ty)?,
            Body::Source(_) => source(op, args, attrs, ty)?,
            Body::View(index) => {
                let types = f.inst_results(i).iter().map(|&v| f.ty(v));
                return types
                    .enumerate()
                    .map(|(k, ty)| view(index, args, attrs, (k, ty)))
                    .collect();
            }
            Body::Reduce(monoid) => reduce(monoid, args.first()?, attrs, ty)?,
            Body::Constant => {
                let all = attrs.literals("values").iter();
                KnownTensor::of(ty, all.map(|l| KnownElement::Bits(l.bits())).collect())?
            }
            Body::Indirect(Indirect::Gather) => gather(args, attrs, ty)?,
            Body::Composed(_) => {
                let types: Vec<TensorType> = f.args(i).iter().map(|&a| f.ty(a).clone()).collect();
                let parts = composition(op, &types, attrs).ok()?;
                let mut inner = KnownValues { done: self.done, ..Default::default() };
                for (&p, a) in parts.params().iter().zip(args) {
                    inner.found.insert(p, Some(a.clone()));
                }
                let all = parts.results().iter().map(|&r| inner.value(&parts, r));
                let all = all.map(|t| t.map(|t| t.as_ref().clone())).collect();
                self.done = inner.done;
                return all;
            }
            _ => return None,
        };
        Some(vec![one])
    }

    /// The parameters that a value is computed from, and that nothing is known of.
    pub(crate) fn sources(&self, f: &Function, v: Value) -> Vec<Value> {
        let (mut open, mut seen, mut found) = (vec![v], HashMap::new(), Vec::new());
        while let Some(v) = open.pop() {
            let whole = |t: &Rc<KnownTensor>| !t.elements.contains(&KnownElement::Unknown);
            let known = self.found.get(&v).is_some_and(|t| t.as_ref().is_some_and(whole));
            if known || seen.insert(v, ()).is_some() {
                continue;
            }
            match f.def(v) {
                ValueDef::Param(region, _) if region == f.body() => found.push(v),
                ValueDef::Inst(i, _) => {
                    open.extend(f.args(i));
                    for &r in &f.inst(i).regions {
                        open.extend(&f.region(r).results);
                    }
                }
                _ => {}
            }
        }
        found
    }
}

/// The bits of each of the elements from one on; 0 where one is not known.
fn load(args: &[Rc<KnownTensor>], start: usize, n: usize, lanes: &mut [Lanes]) {
    for (lane, t) in lanes.iter_mut().zip(args) {
        for (to, e) in lane.iter_mut().zip(&t.elements[start..start + n]) {
            *to = if let KnownElement::Bits(b) = e { *b } else { 0 };
        }
    }
}

fn map(op: Op, args: &[Rc<KnownTensor>], attrs: &Attrs, ty: &TensorType) -> Option<KnownTensor> {
    let dtypes: Vec<DType> = args.iter().map(|t| t.dtype).collect();
    let program = op.scalar_program(&dtypes, ty.dtype, attrs)?;
    let total = ty.elements()? as usize;
    if args.iter().any(|t| t.elements.len() != total) {
        return None;
    }
    let mut elements = run(&program, total, |start, n, lanes| load(args, start, n, lanes));
    let keeps = matches!(op, Op::ConvertElementType) && ty.dtype.is_int();
    for (k, e) in elements.iter_mut().enumerate() {
        match args[0].elements[k] {
            extent @ KnownElement::Extent(_) if keeps => *e = extent,
            _ if args.iter().any(|t| !matches!(t.elements[k], KnownElement::Bits(_))) => {
                *e = with_extents(op, args, k).unwrap_or(KnownElement::Unknown);
            }
            _ => {}
        }
    }
    KnownTensor::of(ty, elements)
}

/// What arithmetic leaves of an extent: the same extent, or none of it.
fn with_extents(op: Op, args: &[Rc<KnownTensor>], k: usize) -> Option<KnownElement> {
    let [x, y] = args else { return None };
    let (a, b, dtype) = (x.elements[k], y.elements[k], x.dtype);
    let is = |e: KnownElement, l: Literal| e == KnownElement::Bits(l.bits());
    let extent = |e: KnownElement| matches!(e, KnownElement::Extent(_));
    let (zero, one) = (Literal::zero(dtype), Literal::one(dtype));
    match op {
        _ if !dtype.is_int() || !(extent(a) || extent(b)) => None,
        Op::Sub if a == b => Some(KnownElement::Bits(zero.bits())),
        Op::Max | Op::Min if a == b => Some(a),
        Op::Add | Op::Sub if is(b, zero) => Some(a),
        Op::Mul | Op::Div if is(b, one) => Some(a),
        Op::Add if is(a, zero) => Some(b),
        Op::Mul if is(a, one) => Some(b),
        _ => None,
    }
}

fn run(
    program: &ScalarProgram,
    total: usize,
    mut load: impl FnMut(usize, usize, &mut [Lanes]),
) -> Vec<KnownElement> {
    let program = expand(program);
    let mut params = vec![[0; LANES]; program.params.len()];
    let (mut regs, mut elements) = (Vec::new(), Vec::new());
    for start in (0..total).step_by(LANES) {
        let n = LANES.min(total - start);
        load(start, n, &mut params);
        let lanes = eval_lanes(&program, &params, n, &mut regs);
        elements.extend(lanes[0][..n].iter().map(|&b| KnownElement::Bits(b)));
    }
    elements
}

fn source(op: Op, args: &[Rc<KnownTensor>], attrs: &Attrs, ty: &TensorType) -> Option<KnownTensor> {
    let dtypes: Vec<DType> = args.iter().map(|t| t.dtype).collect();
    let program = op.source_program(&dtypes, ty.dtype)?;
    let dims = ty.dims()?;
    let axis = usize::try_from(attrs.int("axis")).unwrap_or(0);
    let inner: u64 = dims.iter().skip(axis + 1).product::<u64>().max(1);
    let extent = dims.get(axis).copied().unwrap_or(1).max(1);
    let scalars: Option<Vec<u64>> =
        args.iter().map(|t| t.literals()?.first().map(|l| l.bits())).collect();
    let scalars = scalars?;
    let elements = run(&program, ty.elements()? as usize, |start, n, lanes| {
        let places = start as u64..(start + n) as u64;
        for (lane, place) in lanes[0].iter_mut().zip(places.clone()) {
            *lane = place;
        }
        for (lane, place) in lanes[1].iter_mut().zip(places) {
            *lane = place / inner % extent;
        }
        for (lane, bits) in lanes[2..].iter_mut().zip(&scalars) {
            lane[..n].fill(*bits);
        }
    });
    KnownTensor::of(ty, elements)
}

/// Calls `visit` with every coordinate, row-major, until one gives nothing.
fn walk(
    dims: &[i64],
    mut visit: impl FnMut(&[i64]) -> Option<KnownElement>,
) -> Option<Vec<KnownElement>> {
    let mut at: SmallVec<[i64; 4]> = dims.iter().map(|_| 0).collect();
    let mut all = Vec::new();
    for _ in 0..dims.iter().product::<i64>() {
        all.push(visit(&at)?);
        for d in (0..dims.len()).rev() {
            at[d] += 1;
            if at[d] < dims[d] {
                break;
            }
            at[d] = 0;
        }
    }
    Some(all)
}

fn view(
    index: fn(&ViewCx<'_>) -> ViewMap,
    args: &[Rc<KnownTensor>],
    attrs: &Attrs,
    (result, ty): (usize, &TensorType),
) -> Option<KnownTensor> {
    let dims: Vec<SmallVec<[i64; 4]>> = args.iter().map(|t| t.dims.clone()).collect();
    let out = extents(ty)?;
    let map = index(&ViewCx { args: &dims, out: &out, result, attrs });
    let elements = walk(&out, |at| {
        let holds = |g: &adfuse_ir::index::Guard| g.range.contains(&g.expr.eval(at, &[]));
        let piece = map.pieces.iter().find(|p| p.guards.iter().all(holds))?;
        args.get(piece.operand as usize)?.read(piece.index.iter().map(|e| e.eval(at, &[])))
    });
    KnownTensor::of(ty, elements?)
}

fn reduce(monoid: Monoid, x: &KnownTensor, attrs: &Attrs, ty: &TensorType) -> Option<KnownTensor> {
    if matches!(monoid, Monoid::ArgMax | Monoid::ArgMin) || x.dtype.is_narrow_float() {
        return None;
    }
    let (program, axes) = (expand(&monoid.combine(x.dtype)), attrs.ints("axes"));
    let kept: Vec<usize> = (0..x.dims.len()).filter(|&d| !axes.contains(&(d as i64))).collect();
    let count = ty.elements()? as usize;
    let mut folded: Vec<Option<Literal>> = vec![None; count];
    let mut all = x.literals()?.into_iter();
    walk(&x.dims, |at| {
        let place = kept.iter().fold(0, |o, &d| o * x.dims[d] + at[d]) as usize;
        let (old, new) = (folded.get_mut(place)?, all.next()?);
        *old = Some(old.map_or(new, |old| eval_one(&program, &[old, new])));
        Some(KnownElement::Unknown)
    })?;
    let empty = monoid.empty(x.dtype);
    let all = folded.into_iter().map(|l| KnownElement::Bits(l.unwrap_or(empty).bits()));
    KnownTensor::of(ty, all.collect())
}

/// A gather whose windows are moved to fit.
fn gather(args: &[Rc<KnownTensor>], attrs: &Attrs, ty: &TensorType) -> Option<KnownTensor> {
    let [x, indices] = args else { return None };
    let (inside, missing) = (attrs.ints("offset_dims"), attrs.ints("collapsed"));
    let (starts, sizes) = (attrs.ints("start_map"), attrs.ints("sizes"));
    let at_index = indices.literals()?;
    let out = extents(ty)?;
    let elements = walk(&out, |at| {
        let mut place: SmallVec<[i64; 4]> = x.dims.iter().map(|_| 0).collect();
        let batch = (0..at.len()).filter(|d| !inside.contains(&(*d as i64)));
        let row = batch.zip(&indices.dims).fold(0, |o, (d, n)| o * n + at[d]);
        for (k, &d) in starts.iter().enumerate() {
            let wanted = at_index.get(row as usize * starts.len() + k)?.to_i64();
            place[d as usize] = wanted.clamp(0, (x.dims[d as usize] - sizes[d as usize]).max(0));
        }
        let mut within = inside.iter().map(|&d| at[d as usize]);
        for (d, p) in place.iter_mut().enumerate() {
            if !missing.contains(&(d as i64)) {
                *p += within.next()?;
            }
        }
        x.read(place.into_iter())
    });
    KnownTensor::of(ty, elements?)
}
