//! Ops of the IR on values of a model: broadcasts, shapes, and what is said in one word of them.

use super::context::{LoweredValue, OnnxLowering, bounded};
use super::proto::TensorProto;
use super::tensor::{self, HostTensor};
use crate::emit::Val;
use crate::emit::arithmetic::{apply, convert_to};
use crate::emit::element::ElementType;
use crate::emit::integers::ordered;
use crate::emit::refusal::{Unlowered, refuse};
use adfuse_ir::{Attr, Attrs, DType, Dim, Elements, Literal, Op, Shape, TensorType, Value};

pub(crate) const I64: ElementType = ElementType::Int { bits: 64, signed: true };
pub(crate) const I32: ElementType = ElementType::I32;
pub(crate) const F32: ElementType = ElementType::Float(DType::F32);

/// The shape that shapes broadcast to, aligned at their last axes.
pub(crate) fn broadcast_shape(shapes: &[Shape]) -> Result<Shape, Unlowered> {
    let rank = shapes.iter().map(Shape::len).max().unwrap_or(0);
    let mut all = Shape::from_elem(Dim::Const(1), rank);
    for shape in shapes {
        for (to, &d) in all.iter_mut().rev().zip(shape.iter().rev()) {
            match (*to, d) {
                (a, b) if a == b => {}
                (Dim::Const(1), d) => *to = d,
                (_, Dim::Const(1)) => {}
                (a, b) => return refuse(format!("extents {a} and {b} on one axis")),
            }
        }
    }
    Ok(all)
}

/// Axis number `k` of this many, counted from the end where it is negative.
pub(crate) fn axis_of(k: i64, rank: usize) -> Result<usize, Unlowered> {
    let from = if k < 0 { k.checked_add(rank as i64) } else { Some(k) };
    match from.and_then(|k| usize::try_from(k).ok()).filter(|&k| k < rank) {
        Some(k) => Ok(k),
        None => refuse(format!("axis {k} of {rank}")),
    }
}

impl<'m> OnnxLowering<'m> {
    /// A tensor of the model as a constant, whose elements all calls of a function share.
    pub(crate) fn tensor(&mut self, t: &'m TensorProto<'m>) -> LoweredValue {
        let place = std::ptr::from_ref(t);
        if !self.tensors.contains_key(&place) {
            let host = tensor::tensor(t, self.external).or_else(refuse)?;
            let all = host.literals().collect();
            self.tensors.insert(place, (host.element, host.ty(), all));
        }
        let (element, ty, all) = self.tensors[&place].clone();
        self.elements_constant(element, &ty, all)
    }

    /// A constant.
    pub(crate) fn constant(&mut self, t: &HostTensor<'_>) -> LoweredValue {
        self.elements_constant(t.element, &t.ty(), t.literals().collect())
    }

    /// Elements as a constant of this type; equal ones are a literal.
    pub(crate) fn elements_constant(
        &mut self,
        element: ElementType,
        ty: &TensorType,
        all: Elements,
    ) -> LoweredValue {
        let first = all.iter().next().unwrap_or(Literal::zero(ty.dtype));
        let value = if all.iter().all(|l| l == first) {
            self.b.literal(ty, first)
        } else {
            let attrs = Attrs::none().with("values", Attr::Literals(all));
            self.emit_as(Op::Constant, &[], attrs, ty)?
        };
        Ok(Val { element, value })
    }

    /// Numbers as a constant of this type.
    pub(crate) fn numbers(
        &mut self,
        element: ElementType,
        dims: &[u64],
        all: &[f64],
    ) -> LoweredValue {
        let ty = TensorType::of(element.storage(), dims);
        if ty.elements() != Some(all.len() as u64) {
            return refuse(format!("{} numbers for {ty}", all.len()));
        }
        let literals = all.iter().map(|&x| Literal::from_f64(ty.dtype, x));
        self.elements_constant(element, &ty, literals.collect())
    }

    /// Integers as a constant along one axis.
    pub(crate) fn int_list(&mut self, all: &[i64]) -> LoweredValue {
        let ty = TensorType::of(DType::I64, &[all.len() as u64]);
        let literals: Vec<Literal> =
            all.iter().map(|&x| Literal::from_i64(DType::I64, x)).collect();
        let value = match literals.is_empty() {
            true => self.b.literal(&ty, Literal::zero(DType::I64)),
            false => {
                let attrs = Attrs::none().with("values", Attr::Literals(literals.into()));
                self.emit_as(Op::Constant, &[], attrs, &ty)?
            }
        };
        Ok(Val { element: I64, value })
    }

    /// A number in the shape and the type of a value.
    pub(crate) fn number(&mut self, like: Val, x: f64) -> Val {
        let l = match like.element {
            e @ ElementType::Int { .. } => e.of_bits(x as i64 as u64),
            e => Literal::from_f64(e.storage(), x),
        };
        Val { value: self.literal_like(like.value, l), ..like }
    }

    /// A number of this type in a shape.
    pub(crate) fn filled(&mut self, element: ElementType, shape: &[Dim], l: Literal) -> Val {
        let ty = TensorType::new(element.storage(), shape.iter().copied());
        Val { element, value: self.b.literal(&ty, l) }
    }

    /// An extent as a scalar; of a symbol it is counted when the program runs.
    pub(crate) fn extent_value(&mut self, d: Dim) -> LoweredValue {
        let scalar = TensorType::scalar(DType::I64);
        let value = match d {
            Dim::Const(n) => self.b.literal(&scalar, Literal::from_i64(DType::I64, n as i64)),
            Dim::Sym(s) => crate::known::counted(&mut self.emitter, &mut self.known, s)?,
        };
        Ok(Val { element: I64, value })
    }

    /// The value broadcast to a shape, aligned at the last axes.
    pub(crate) fn expand(&mut self, v: Val, shape: &[Dim]) -> LoweredValue {
        let from = self.shape(v);
        if from[..] == *shape {
            return Ok(v);
        }
        if from.len() > shape.len() {
            return refuse(format!("{} axes broadcast to {}", from.len(), shape.len()));
        }
        let first = shape.len() - from.len();
        let dims: Vec<i64> = (first..shape.len()).map(|d| d as i64).collect();
        self.broadcast_in(v, shape, &dims)
    }

    /// The value with its axes at these of a shape.
    pub(crate) fn broadcast_in(&mut self, v: Val, shape: &[Dim], dims: &[i64]) -> LoweredValue {
        let ty = TensorType::new(v.element.storage(), shape.iter().copied());
        bounded(&ty)?;
        let from = self.shape(v);
        let fits = from.iter().zip(dims).all(|(&d, &at)| {
            d == Dim::Const(1) || shape.get(at as usize).is_some_and(|&to| to == d)
        });
        if !fits {
            return refuse(format!("{} broadcast to {ty}", self.b.ty(v.value)));
        }
        if let Some(l) = self.b.func().literal(v.value) {
            return Ok(Val { value: self.b.literal(&ty, l), ..v });
        }
        let attrs = Attrs::none().with_ints("dims", dims.iter().copied());
        Ok(Val { value: self.emit_as(Op::BroadcastInDim, &[v.value], attrs, &ty)?, ..v })
    }

    /// Values broadcast to one shape.
    pub(crate) fn broadcast(&mut self, all: &[Val]) -> Result<Vec<Val>, Unlowered> {
        let shapes: Vec<Shape> = all.iter().map(|&v| self.shape(v)).collect();
        let shape = broadcast_shape(&shapes)?;
        all.iter().map(|&v| self.expand(v, &shape)).collect()
    }

    /// An elementwise op on values that broadcast.
    pub(crate) fn map(&mut self, op: Op, args: &[Val]) -> LoweredValue {
        if args.is_empty() {
            return refuse("no inputs");
        }
        if args.iter().any(|a| a.element != args[0].element) {
            let names: Vec<String> = args.iter().map(|a| a.element.to_string()).collect();
            return refuse(format!("operands of the types {}", names.join(", ")));
        }
        let args = self.broadcast(args)?;
        apply(self, op, &args)
    }

    pub(crate) fn add(&mut self, x: Val, y: Val) -> LoweredValue {
        self.map(Op::Add, &[x, y])
    }

    pub(crate) fn sub(&mut self, x: Val, y: Val) -> LoweredValue {
        self.map(Op::Sub, &[x, y])
    }

    pub(crate) fn mul(&mut self, x: Val, y: Val) -> LoweredValue {
        self.map(Op::Mul, &[x, y])
    }

    pub(crate) fn div(&mut self, x: Val, y: Val) -> LoweredValue {
        self.map(Op::Div, &[x, y])
    }

    /// An elementwise op with a number for its second operand.
    pub(crate) fn with(&mut self, op: Op, x: Val, y: f64) -> LoweredValue {
        let y = self.number(x, y);
        apply(self, op, &[x, y])
    }

    pub(crate) fn unary(&mut self, op: Op, x: Val) -> LoweredValue {
        apply(self, op, &[x])
    }

    /// `yes` where the condition holds, `no` elsewhere.
    pub(crate) fn select(&mut self, condition: Val, yes: Val, no: Val) -> LoweredValue {
        if condition.element != ElementType::Bool || yes.element != no.element {
            return refuse(format!("a choice of {} and {}", yes.element, no.element));
        }
        let all = self.broadcast(&[condition, yes, no])?;
        let value = self.op(Op::SelectN, &[all[0].value, all[2].value, all[1].value])?;
        Ok(Val { value, ..yes })
    }

    pub(crate) fn convert(&mut self, x: Val, element: ElementType) -> LoweredValue {
        convert_to(self, x, element)
    }

    /// The same elements in a shape.
    pub(crate) fn reshape(&mut self, x: Val, shape: &[Dim]) -> LoweredValue {
        if self.shape(x)[..] == *shape {
            return Ok(x);
        }
        let ty = TensorType::new(x.element.storage(), shape.iter().copied());
        if let Some(l) = self.b.func().literal(x.value)
            && self.b.ty(x.value).elements() == ty.elements()
        {
            return Ok(Val { value: self.b.literal(&ty, l), ..x });
        }
        Ok(Val { value: self.emit_as(Op::Reshape, &[x.value], Attrs::none(), &ty)?, ..x })
    }

    /// The same elements at known extents.
    pub(crate) fn reshape_to(&mut self, x: Val, dims: &[u64]) -> LoweredValue {
        let shape: Shape = dims.iter().map(|&n| Dim::Const(n)).collect();
        self.reshape(x, &shape)
    }

    pub(crate) fn transpose(&mut self, x: Val, perm: &[usize]) -> LoweredValue {
        if perm.iter().copied().eq(0..self.rank(x)) {
            return Ok(x);
        }
        let full = self.b.materialize(x.value);
        let attrs = Attrs::none().with_ints("perm", perm.iter().map(|&p| p as i64));
        Ok(Val { value: self.emit(Op::Transpose, &[full], attrs)?, ..x })
    }

    /// The elements of axes in reverse order.
    pub(crate) fn reverse(&mut self, x: Val, axes: impl IntoIterator<Item = i64>) -> LoweredValue {
        let full = self.b.materialize(x.value);
        let attrs = Attrs::none().with_ints("axes", axes);
        Ok(Val { value: self.emit(Op::Rev, &[full], attrs)?, ..x })
    }

    /// Elements from one to before another of one axis.
    pub(crate) fn slice(&mut self, x: Val, axis: usize, from: u64, to: u64) -> LoweredValue {
        let shape = self.shape(x);
        let rank = shape.len();
        if axis >= rank {
            return refuse(format!("axis {axis} of {rank}"));
        }
        let extent = self.extent(shape[axis])?;
        let (mut start, mut behind) = (vec![0; rank], vec![0; rank]);
        start[axis] = from as i64;
        let known: Option<Vec<u64>> = shape.iter().map(|d| d.known()).collect();
        let Some(known) = known else {
            if from > to || to > extent {
                return refuse(format!("elements {from} to {to} of {extent}"));
            }
            behind[axis] = (extent - to) as i64;
            return self.cut(x, &start, &behind);
        };
        let limit = known.iter().enumerate().map(|(d, &n)| if d == axis { to } else { n } as i64);
        let attrs = Attrs::none()
            .with_ints("start", start)
            .with_ints("limit", limit)
            .with_ints("stride", vec![1; rank]);
        let full = self.b.materialize(x.value);
        Ok(Val { value: self.emit(Op::Slice, &[full], attrs)?, ..x })
    }

    /// The values one after the other along an axis.
    pub(crate) fn concat(&mut self, all: &[Val], axis: usize) -> LoweredValue {
        let [first, ..] = all else { return refuse("nothing to concatenate") };
        if all.len() == 1 {
            return Ok(*first);
        }
        if all.iter().any(|v| v.element != first.element) {
            return refuse("a concatenation of several types");
        }
        let values: Vec<Value> = all.iter().map(|v| self.b.materialize(v.value)).collect();
        let attrs = Attrs::none().with_int("axis", axis as i64);
        Ok(Val { value: self.emit(Op::Concatenate, &values, attrs)?, ..*first })
    }

    /// A fold over axes, which stay with an extent of 1 where that is asked for.
    pub(crate) fn reduce(&mut self, op: Op, x: Val, axes: &[usize], keeps: bool) -> LoweredValue {
        if axes.is_empty() {
            return Ok(x);
        }
        let full = self.b.materialize(x.value);
        let ordering = matches!(op, Op::ReduceMax | Op::ReduceMin);
        let full = if ordering { ordered(self, x.element, full)? } else { full };
        let attrs = Attrs::none().with_ints("axes", axes.iter().map(|&a| a as i64));
        let mut value = self.emit(op, &[full], attrs)?;
        value = if ordering { ordered(self, x.element, value)? } else { value };
        value = crate::emit::integers::wrap(self, x.element, value)?;
        let folded = Val { value, ..x };
        if !keeps {
            return Ok(folded);
        }
        let mut shape = self.shape(x);
        axes.iter().for_each(|&a| shape[a] = Dim::Const(1));
        self.reshape(folded, &shape)
    }

    /// The mean over axes, which stay.
    pub(crate) fn mean(&mut self, x: Val, axes: &[usize]) -> LoweredValue {
        let sum = self.reduce(Op::ReduceSum, x, axes, true)?;
        let count = self.count(x, axes, sum)?;
        self.div(sum, count)
    }

    /// The number of elements along axes, in the type of a value.
    pub(crate) fn count(&mut self, x: Val, axes: &[usize], like: Val) -> LoweredValue {
        let shape = self.shape(x);
        let (mut known, mut symbols) = (1u64, Vec::new());
        for &a in axes {
            match shape[a] {
                Dim::Const(n) => known = known.saturating_mul(n),
                d => symbols.push(d),
            }
        }
        let mut count = self.number(like, known as f64);
        for d in symbols {
            let n = self.extent_value(d)?;
            let n = self.convert(n, like.element)?;
            count = self.mul(count, n)?;
        }
        Ok(count)
    }

    /// The coordinate along an axis of a shape.
    pub(crate) fn iota(
        &mut self,
        element: ElementType,
        shape: &[Dim],
        axis: usize,
    ) -> LoweredValue {
        let wide = if element.is_int() { element.storage() } else { DType::I64 };
        let ty = TensorType::new(wide, shape.iter().copied());
        bounded(&ty)?;
        let attrs = Attrs::none().with_int("axis", axis as i64);
        let value = self.emit_as(Op::Iota, &[], attrs, &ty)?;
        if element.is_int() {
            return Ok(Val { element, value });
        }
        self.convert(Val { element: I64, value }, element)
    }

    /// Surrounds a value with a number.
    pub(crate) fn pad(&mut self, x: Val, with: Literal, low: &[i64], high: &[i64]) -> LoweredValue {
        if low.iter().chain(high).all(|&n| n == 0) {
            return Ok(x);
        }
        let scalar = TensorType::scalar(x.element.storage());
        let with = self.b.literal(&scalar, with);
        let full = self.b.materialize(x.value);
        let attrs = Attrs::none()
            .with_ints("low", low.iter().copied())
            .with_ints("high", high.iter().copied())
            .with_ints("interior", vec![0; low.len()]);
        Ok(Val { value: self.emit(Op::Pad, &[full, with], attrs)?, ..x })
    }

    /// An axis of extent 1 put in at a place.
    pub(crate) fn unsqueeze(&mut self, x: Val, axis: usize) -> LoweredValue {
        let mut shape = self.shape(x);
        shape.insert(axis.min(shape.len()), Dim::Const(1));
        self.reshape(x, &shape)
    }

    /// An axis of extent 1 taken away.
    pub(crate) fn squeeze(&mut self, x: Val, axis: usize) -> LoweredValue {
        let mut shape = self.shape(x);
        match shape.get(axis) {
            Some(&Dim::Const(1)) => {
                shape.remove(axis);
            }
            _ => return refuse(format!("axis {axis} without an extent of 1")),
        }
        self.reshape(x, &shape)
    }

    /// The place `at` of an axis, which goes.
    pub(crate) fn index_axis(&mut self, x: Val, axis: usize, at: u64) -> LoweredValue {
        let one = self.slice(x, axis, at, at + 1)?;
        self.squeeze(one, axis)
    }

    /// Sums of products over the last axis of one and the axis before the last of the other; those before them broadcast.
    pub(crate) fn matmul(&mut self, x: Val, y: Val) -> LoweredValue {
        let (mut x, mut y) = (x, y);
        let (x_is_row, y_is_column) = (self.rank(x) == 1, self.rank(y) == 1);
        if self.rank(x) == 0 || self.rank(y) == 0 || x.element != y.element {
            return refuse("a product of scalars, or of several types");
        }
        if x_is_row {
            x = self.unsqueeze(x, 0)?;
        }
        if y_is_column {
            y = self.unsqueeze(y, 1)?;
        }
        let (sx, sy) = (self.shape(x), self.shape(y));
        let (bx, by) = (sx[..sx.len() - 2].to_vec(), sy[..sy.len() - 2].to_vec());
        let batch = broadcast_shape(&[bx.iter().copied().collect(), by.iter().copied().collect()])?;
        let whole = |tail: &[Dim]| batch.iter().chain(tail).copied().collect::<Shape>();
        // A batch of one operand alone is more rows of one product.
        let mut product = if by.is_empty() {
            self.contract(x, y, 0, (sx.len() - 1, 0))?
        } else {
            let (wx, wy) = (whole(&sx[sx.len() - 2..]), whole(&sy[sy.len() - 2..]));
            (x, y) = (self.expand(x, &wx)?, self.expand(y, &wy)?);
            self.contract(x, y, batch.len(), (batch.len() + 1, batch.len()))?
        };
        if y_is_column {
            product = self.squeeze(product, self.rank(product) - 1)?;
        }
        if x_is_row {
            product = self.squeeze(product, batch.len())?;
        }
        Ok(product)
    }

    /// Sums of products over one axis of each; the first `batch` axes of both are those of a batch.
    pub(crate) fn contract(
        &mut self,
        x: Val,
        y: Val,
        batch: usize,
        (of_x, of_y): (usize, usize),
    ) -> LoweredValue {
        let all: Vec<i64> = (0..batch as i64).collect();
        self.dot(x, y, (&all, &all), (&[of_x as i64], &[of_y as i64]))
    }

    /// Sums of products: axes of a batch, then the free ones of both.
    pub(crate) fn dot(
        &mut self,
        x: Val,
        y: Val,
        batch: (&[i64], &[i64]),
        contract: (&[i64], &[i64]),
    ) -> LoweredValue {
        let pair = |(a, b): (&[i64], &[i64])| {
            Attr::Pair(a.iter().copied().collect(), b.iter().copied().collect())
        };
        let attrs = Attrs::none().with("batch", pair(batch)).with("contract", pair(contract));
        let (a, b) = (self.b.materialize(x.value), self.b.materialize(y.value));
        let value = self.emit(Op::DotGeneral, &[a, b], attrs)?;
        let value = crate::emit::integers::wrap(self, x.element, value)?;
        Ok(Val { value, ..x })
    }

    /// Elements in the order of `places` along an axis: those have the extents of the value but for that axis.
    pub(crate) fn take_along(&mut self, x: Val, places: Val, axis: usize) -> LoweredValue {
        let at = self.full_places(places, axis)?;
        let rank = self.rank(x) as i64;
        let attrs = Attrs::none()
            .with_ints("offset_dims", [])
            .with_ints("collapsed", 0..rank)
            .with_ints("start_map", 0..rank)
            .with_ints("sizes", vec![1; rank as usize])
            .with("mode", Attr::Word("clip"));
        let full = self.b.materialize(x.value);
        Ok(Val { value: self.emit(Op::Gather, &[full, at.value], attrs)?, ..x })
    }

    /// Coordinates in a last axis: those of each element, and along one axis the given ones.
    pub(crate) fn full_places(&mut self, places: Val, axis: usize) -> LoweredValue {
        let places = self.convert(places, I64)?;
        let shape = self.shape(places);
        let mut parts = Vec::new();
        for d in 0..shape.len() {
            let part = if d == axis { places } else { self.iota(I64, &shape, d)? };
            parts.push(self.unsqueeze(part, shape.len())?);
        }
        self.concat(&parts, shape.len())
    }
}
