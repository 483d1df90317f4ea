//! What compositions of tensors and loops are written with.

use super::Op;
use crate::attrs::{Attr, Attrs, Ints};
use crate::builder::Builder;
use crate::dtype::DType;
use crate::entity::Value;
use crate::literal::Literal;
use crate::types::{Dim, TensorType};

/// Writes a step of a loop: it is given what is carried and the elements of the step, and leaves what is carried and what is
/// stacked.
pub(super) type StepBuilder<'b, W> =
    dyn FnMut(&mut W, &[Value], &[Value]) -> (Vec<Value>, Vec<Value>) + 'b;

/// A composition under way: a builder, and the type that everything is computed in.
pub(super) trait TensorWriter {
    fn b(&self) -> &Builder;

    fn b_mut(&mut self) -> &mut Builder;

    fn wide(&self) -> DType;

    fn dims(&self, v: Value) -> Vec<u64> {
        self.b().ty(v).dims().map(|d| d.to_vec()).unwrap_or_default()
    }

    /// The extent of an axis; 0 where a value stands for one that was refused.
    fn extent(&self, v: Value, axis: usize) -> u64 {
        self.dims(v).get(axis).copied().unwrap_or(0)
    }

    fn ty(&self, dims: &[u64]) -> TensorType {
        TensorType::of(self.wide(), dims)
    }

    /// A number everywhere.
    fn splat(&mut self, x: f64, dims: &[u64]) -> Value {
        let (ty, wide) = (self.ty(dims), self.wide());
        self.b_mut().literal(&ty, Literal::from_f64(wide, x))
    }

    /// An elementwise op of operands of one shape; the result has the type of the first.
    fn map(&mut self, op: Op, args: &[Value]) -> Value {
        let ty = self.b().ty(args[0]).clone();
        self.b_mut().op_as(op, args, Attrs::none(), &ty)
    }

    /// An elementwise test.
    fn test(&mut self, op: Op, x: Value, y: Value) -> Value {
        let ty = self.b().ty(x).with_dtype(DType::Bool);
        self.b_mut().op_as(op, &[x, y], Attrs::none(), &ty)
    }

    fn convert(&mut self, x: Value, to: DType) -> Value {
        self.b_mut().converted(x, to)
    }

    fn reshape(&mut self, x: Value, dims: &[u64]) -> Value {
        let ty = TensorType::of(self.b().ty(x).dtype, dims);
        self.b_mut().reshaped(x, &ty)
    }

    fn transpose(&mut self, x: Value, perm: &[i64]) -> Value {
        let attrs = Attrs::none().with_ints("perm", perm.iter().copied());
        self.b_mut().op_with(Op::Transpose, &[x], attrs)
    }

    /// `x` repeated over `dims`; its axes are at these places.
    fn spread(&mut self, x: Value, at: &[i64], dims: &[u64]) -> Value {
        let ty = TensorType::of(self.b().ty(x).dtype, dims);
        let attrs = Attrs::none().with_ints("dims", at.iter().copied());
        self.b_mut().op_as(Op::BroadcastInDim, &[x], attrs, &ty)
    }

    /// `x` repeated over a last axis.
    fn along(&mut self, x: Value, n: u64) -> Value {
        let mut dims = self.dims(x);
        let at: Vec<i64> = (0..dims.len() as i64).collect();
        dims.push(n);
        self.spread(x, &at, &dims)
    }

    /// Part of an axis.
    fn slice(&mut self, x: Value, axis: usize, from: u64, to: u64) -> Value {
        let dims = self.dims(x);
        if from == 0 && self.extent(x, axis) == to {
            return x;
        }
        let of = |d: usize, here: u64, other: u64| if d == axis { here } else { other } as i64;
        let start = (0..dims.len()).map(|d| of(d, from, 0));
        let limit = dims.iter().enumerate().map(|(d, &n)| of(d, to, n));
        let ones = dims.iter().map(|_| 1);
        let attrs = Attrs::none()
            .with_ints("start", start)
            .with_ints("limit", limit)
            .with_ints("stride", ones);
        self.b_mut().op_with(Op::Slice, &[x], attrs)
    }

    /// Zeros at the end of an axis, so that it has this extent.
    fn padded(&mut self, x: Value, axis: usize, to: u64) -> Value {
        let (dims, own) = (self.dims(x), self.extent(x, axis));
        if own >= to {
            return x;
        }
        let dtype = self.b().ty(x).dtype;
        let zero = self.b_mut().literal(&TensorType::scalar(dtype), Literal::zero(dtype));
        let high = (0..dims.len()).map(|d| if d == axis { (to - own) as i64 } else { 0 });
        let none = || dims.iter().map(|_| 0);
        let attrs = Attrs::none()
            .with_ints("low", none())
            .with_ints("high", high)
            .with_ints("interior", none());
        self.b_mut().op_with(Op::Pad, &[x, zero], attrs)
    }

    fn reduce(&mut self, op: Op, x: Value, axis: i64) -> Value {
        self.b_mut().op_with(op, &[x], Attrs::none().with_ints("axes", [axis]))
    }

    fn dot(&mut self, [x, y]: [Value; 2], batch: (&[i64], &[i64]), contract: (i64, i64)) -> Value {
        let ints = |axes: &[i64]| -> Ints { axes.iter().copied().collect() };
        let attrs = Attrs::none()
            .with("batch", Attr::Pair(ints(batch.0), ints(batch.1)))
            .with("contract", Attr::Pair(ints(&[contract.0]), ints(&[contract.1])));
        self.b_mut().op_with(Op::DotGeneral, &[x, y], attrs)
    }

    /// Places along an axis, from an `i64` scalar on.
    fn places(&mut self, from: Option<Value>, axis: i64, dims: &[u64]) -> Value {
        let ty = TensorType::of(DType::I64, dims);
        let own = self.b_mut().op_as(Op::Iota, &[], Attrs::none().with_int("axis", axis), &ty);
        let Some(from) = from else { return own };
        let from = self.spread(from, &[], dims);
        self.b_mut().op_as(Op::Add, &[own, from], Attrs::none(), &ty)
    }

    fn plus(&mut self, x: Value, n: i64) -> Value {
        let ty = self.b().ty(x).clone();
        let n = self.b_mut().literal(&ty, Literal::from_i64(DType::I64, n));
        self.b_mut().op_as(Op::Add, &[x, n], Attrs::none(), &ty)
    }

    /// A loop over the first axes of `xs`: the last carries, and what is stacked.
    fn steps(
        &mut self,
        carries: Vec<Value>,
        xs: &[Value],
        body: &mut StepBuilder<'_, Self>,
    ) -> (Vec<Value>, Vec<Value>)
    where
        Self: Sized,
    {
        let types: Vec<TensorType> = carries.iter().map(|&v| self.b().ty(v).clone()).collect();
        let region = self.b_mut().open_region();
        let held: Vec<Value> =
            types.iter().map(|ty| self.b_mut().param(ty.clone(), None)).collect();
        let element = |ty: &TensorType| TensorType::new(ty.dtype, ty.shape.iter().skip(1).copied());
        let own: Vec<Value> = xs
            .iter()
            .map(|&x| {
                let ty = element(self.b().ty(x));
                self.b_mut().param(ty, None)
            })
            .collect();
        let (next, stacked) = body(self, &held, &own);
        let n = xs.first().map_or(Dim::Const(0), |&x| self.b().ty(x).shape[0]);
        let stacks = stacked.iter().map(|&v| {
            let ty = self.b().ty(v);
            TensorType::new(ty.dtype, std::iter::once(n).chain(ty.shape.iter().copied()))
        });
        let results: Vec<TensorType> = types.iter().cloned().chain(stacks).collect();
        self.b_mut().close_region(&[next, stacked].concat());
        let attrs = Attrs::none()
            .with_int("carry", carries.len() as i64)
            .conform(Op::Scan.def().attrs)
            .unwrap_or_default();
        let args = [&carries[..], xs].concat();
        let inst = self.b_mut().place(Op::Scan, &args, attrs, &results, &[region]);
        let mut all = self.b().func().inst_results(inst).to_vec();
        let stacks = all.split_off(carries.len());
        (all, stacks)
    }

    /// A choice of each element: the second where the first holds, else the third.
    fn select(&mut self, holds: Value, yes: Value, no: Value) -> Value {
        let ty = self.b().ty(yes).clone();
        self.b_mut().op_as(Op::SelectN, &[holds, no, yes], Attrs::none(), &ty)
    }

    /// An `i64` scalar.
    fn place(&mut self, n: u64) -> Value {
        let scalar = TensorType::scalar(DType::I64);
        self.b_mut().literal(&scalar, Literal::from_i64(DType::I64, n as i64))
    }

    /// Start indices: `from` along an axis, 0 along the others. Literals among them have one type.
    fn starts(&mut self, rank: usize, axis: usize, from: Value) -> Vec<Value> {
        let scalar = TensorType::scalar(DType::I32);
        let place = self.b().func().literal(from).map(|l| l.convert(DType::I32));
        let from = match place {
            Some(l) => self.b_mut().literal(&scalar, l),
            None => from,
        };
        let zero = self.b_mut().literal(&scalar, Literal::zero(DType::I32));
        (0..rank).map(|d| if d == axis { from } else { zero }).collect()
    }

    /// The slice of these sizes at `from` along an axis, and at 0 along the others.
    fn slice_at(&mut self, x: Value, axis: usize, from: Value, sizes: &[u64]) -> Value {
        let mut args = vec![x];
        args.extend(self.starts(sizes.len(), axis, from));
        let attrs = Attrs::none().with_ints("sizes", sizes.iter().map(|&n| n as i64));
        self.b_mut().op_with(Op::DynamicSlice, &args, attrs)
    }

    /// `x` with a slice written at `from` along an axis.
    fn update_at(&mut self, x: Value, slice: Value, axis: usize, from: Value) -> Value {
        let mut args = vec![x, slice];
        args.extend(self.starts(self.dims(x).len(), axis, from));
        self.b_mut().op_with(Op::DynamicUpdateSlice, &args, Attrs::none())
    }

    /// The operands side by side along an axis.
    fn join(&mut self, parts: &[Value], axis: usize) -> Value {
        let attrs = Attrs::none().with_int("axis", axis as i64);
        self.b_mut().op_with(Op::Concatenate, parts, attrs)
    }
}
