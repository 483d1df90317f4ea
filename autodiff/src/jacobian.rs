//! Jacobians and Hessians: derivatives along every basis direction at once, by `vmap`.

use crate::reverse::{BACKWARD, last_phase};
use crate::vmap::{Batching, Callees, Random};
use crate::{forward as push, jvp, positions, reverse as pull, vmap};
use adfuse_ir::rewrite::{Exactness, cse, dce, simplify, splice};
use adfuse_ir::types::MAX_RANK;
use adfuse_ir::{
    At, Attrs, Builder, DType, Diagnostic, Dim, Function, Kind, Literal, Module, Op, Phase,
    TensorType, Value,
};

/// Other results, and nothing that they do not need.
pub(crate) fn set_results(f: &mut Function, results: Vec<Value>) {
    let body = f.body();
    f.region_mut(body).results = results;
    dce(f);
}

/// As [`jacfwd`](crate::jacfwd); calls of functions with a rule may stay.
pub(crate) fn forward(
    module: &Module,
    f: &Function,
    wrt: &[usize],
    callees: &mut Callees,
) -> Result<Function, Diagnostic> {
    blocks_fit(f, wrt, 1)?;
    let mut whole = Whole::new(module, f, "jacfwd");
    let mut columns = Vec::new();
    for &k in wrt {
        let mut g = jvp::open(module, f, &[k])?;
        let tangents = g.results()[f.results().len()..].to_vec();
        set_results(&mut g, tangents);
        let given = f.ty(f.params()[k]);
        let axes: Vec<usize> = g.results().iter().map(|&r| g.ty(r).rank()).collect();
        let shape = |out: &TensorType| joined(out, given, out.dtype);
        one_axis_more(f, given, "reverse")?;
        columns.push(whole.directions(&g, given, &axes, &shape, callees)?);
    }
    // By result, then by parameter.
    let rows = columns.first().map_or(0, Vec::len);
    let blocks = (0..rows).flat_map(|r| columns.iter().map(move |c| c[r])).collect();
    whole.finish(blocks)
}

/// As [`jacrev`](crate::jacrev); calls of functions with a rule may stay.
pub(crate) fn reverse(
    module: &Module,
    f: &Function,
    wrt: &[usize],
    callees: &mut Callees,
) -> Result<Function, Diagnostic> {
    blocks_fit(f, wrt, 1)?;
    let prepared = push::prepare(module, f)?;
    let mut whole = Whole::new(module, f, "jacrev");
    let mut blocks = Vec::new();
    for &r in prepared.results().iter().filter(|&&r| prepared.ty(r).dtype.is_float()) {
        let mut one = prepared.clone();
        set_results(&mut one, vec![r]);
        let g = pull::open(module, &one, wrt, BACKWARD)?;
        let given = prepared.ty(r);
        let shape = |grad: &TensorType| joined(given, grad, grad.dtype);
        let axes = vec![0; wrt.len()];
        one_axis_more(f, given, "forward")?;
        blocks.extend(whole.directions(&g, given, &axes, &shape, callees)?);
    }
    whole.finish(blocks)
}

/// Errs unless every derivative of this order, with the axes of a result and then those of as many
/// parameters, is a tensor within the limits.
///
/// # Errors
/// Also where a position names no parameter of a float type.
pub(crate) fn blocks_fit(f: &Function, wrt: &[usize], order: u32) -> Result<(), Diagnostic> {
    positions(f, wrt)?;
    let results = f.results().iter().enumerate().filter(|(_, r)| f.ty(**r).dtype.is_float());
    for (k, &r) in results {
        let whole = format!("result {k}, {}", f.ty(r));
        by_each(f, wrt, order, f.ty(r).clone(), &whole)?;
    }
    Ok(())
}

/// As [`blocks_fit`], of a derivative so far, which `name` describes.
fn by_each(
    f: &Function,
    wrt: &[usize],
    order: u32,
    block: TensorType,
    name: &str,
) -> Result<(), Diagnostic> {
    let Some(left) = order.checked_sub(1) else {
        return block.excess().map_or(Ok(()), |why| {
            let m = format!("the derivative of {name}, would be too large: {why}");
            let d = Diagnostic::new(within(f), Kind::Limit, m);
            let axes = block.rank() > MAX_RANK;
            let hint = "take and return fewer axes, and reshape inside the function";
            Err(if axes { d.hint(hint) } else { d })
        });
    };
    for &k in wrt {
        let p = f.params()[k];
        let by = f.name_of(p).map_or_else(|| format!("parameter {k}"), |n| format!("%{n}"));
        let name = format!("{name}, by {by}, {}", f.ty(p));
        by_each(f, wrt, left, joined(&block, f.ty(p), block.dtype), &name)?;
    }
    Ok(())
}

/// Errs where directions of this type have no axis left to lie along. Where all blocks fit, the other
/// mode has no directions of several axes.
fn one_axis_more(f: &Function, given: &TensorType, other: &str) -> Result<(), Diagnostic> {
    if given.rank() < MAX_RANK {
        return Ok(());
    }
    let m = format!("a basis of {given} has {} axes, the limit is {MAX_RANK}", given.rank() + 1);
    Err(Diagnostic::new(within(f), Kind::Limit, m).hint(format!("use {other} mode")))
}

fn within(f: &Function) -> At {
    At { func: Some(f.name.clone()), ..At::default() }
}

fn joined(a: &TensorType, b: &TensorType, dtype: DType) -> TensorType {
    TensorType::new(dtype, a.shape.iter().chain(&b.shape).copied())
}

/// A function of blocks under construction, with the parameters of the one they are derivatives of.
struct Whole<'f> {
    module: &'f Module,
    b: Builder,
    args: Vec<Value>,
}

impl Whole<'_> {
    fn new<'f>(module: &'f Module, f: &Function, suffix: &str) -> Whole<'f> {
        let mut b = Builder::new(format!("{}_{suffix}", f.name));
        b.func_mut().symbols = f.symbols.clone();
        let args = f.params().iter().map(|&p| b.param(f.ty(p).clone(), f.name_of(p))).collect();
        Whole { module, b, args }
    }

    /// The results of `g` for all directions of its last parameter, which is of type `given`: batched
    /// with the directions at `axes` of the results, then brought into the shapes of blocks.
    fn directions(
        &mut self,
        g: &Function,
        given: &TensorType,
        axes: &[usize],
        shape: &dyn Fn(&TensorType) -> TensorType,
        callees: &mut Callees,
    ) -> Result<Vec<Value>, Diagnostic> {
        let at = || At { func: Some(g.name.clone()), ..At::default() };
        let mut args = self.args.clone();
        if given.rank() == 0 {
            // A gradient of a scalar is seeded already.
            if g.params().len() > args.len() {
                args.push(self.b.literal(given, Literal::one(given.dtype)));
            }
            return self.splice(g, &args, at());
        }
        let size = directions(given).ok_or_else(|| {
            let m = format!("a basis of {given} needs constant extents");
            Diagnostic::new(at(), Kind::Unsupported, m)
        })?;
        let basis = basis(&mut self.b, given, size).map_err(|why| {
            Diagnostic::new(at(), Kind::Limit, format!("a basis of {given}: {why}"))
        })?;
        args.push(basis);
        let params = self.args.iter().map(|_| None).chain([Some(0)]);
        let batching =
            Batching::new(size, params).results(axes.iter().map(|&a| Some(a))).random(Random::Same);
        let batched = vmap::open(self.module, g, &batching, callees)?;
        let types: Vec<TensorType> = g.results().iter().map(|&r| shape(g.ty(r))).collect();
        let out = self.splice(&batched, &args, at())?;
        self.b.set_phase(last_phase(g));
        let reshape = |(v, ty): (Value, &TensorType)| {
            if self.b.ty(v) == ty {
                return v;
            }
            match self.b.func().literal(v) {
                Some(l) => self.b.literal(ty, l),
                None => self.b.op_as(Op::Reshape, &[v], Attrs::none(), ty),
            }
        };
        Ok(out.into_iter().zip(&types).map(reshape).collect())
    }

    fn splice(&mut self, g: &Function, args: &[Value], at: At) -> Result<Vec<Value>, Diagnostic> {
        splice(self.module, g, args, &|_| false, (&|| at.clone(), Phase::PRIMAL), &mut self.b)
    }

    fn finish(mut self, blocks: Vec<Value>) -> Result<Function, Diagnostic> {
        self.b.set_results(&blocks);
        let mut f = simplify(&self.b.finish()?, Exactness::Exact)?;
        cse(&mut f);
        Ok(f)
    }
}

/// How many directions a type has, where that is one extent.
fn directions(ty: &TensorType) -> Option<Dim> {
    match ty.shape.as_slice() {
        [only] => Some(*only),
        _ => ty.elements().map(Dim::Const),
    }
}

/// All directions of a type, one after the other along a first axis.
fn basis(b: &mut Builder, ty: &TensorType, size: Dim) -> Result<Value, String> {
    let square = TensorType::new(DType::I64, [size, size]);
    if let Some(why) = square.excess() {
        return Err(why);
    }
    b.set_phase(Phase::PRIMAL);
    let along = |b: &mut Builder, axis: i64| {
        b.op_as(Op::Iota, &[], Attrs::none().with_int("axis", axis), &square)
    };
    let (row, column) = (along(b, 0), along(b, 1));
    let same = b.op(Op::Eq, &[row, column]);
    let eye = square.with_dtype(ty.dtype);
    let eye = b.op_as(Op::ConvertElementType, &[same], Attrs::none(), &eye);
    let rows = TensorType::new(ty.dtype, [size].into_iter().chain(ty.shape.iter().copied()));
    if b.ty(eye) == &rows {
        return Ok(eye);
    }
    Ok(b.op_as(Op::Reshape, &[eye], Attrs::none(), &rows))
}
