//! Ops that move elements by index values, over a batch. Where all elements share the indices, the
//! batch is one more axis of the windows; where each has its own, it is one more index.

use super::Batch;
use adfuse_ir::attrs::Ints;
use adfuse_ir::op::Indirect;
use adfuse_ir::{
    Attr, Attrs, Builder, DType, Diagnostic, Dim, Inst, Kind, Literal, Op, TensorType, Value,
};

/// 0, then the axes, each one further.
fn first(axes: &[i64]) -> Ints {
    std::iter::once(0).chain(axes.iter().map(|a| a + 1)).collect()
}

/// The axes, each one further.
fn further(axes: &[i64]) -> Ints {
    axes.iter().map(|a| a + 1).collect()
}

impl Batch<'_, '_> {
    /// Places an op of this class.
    pub(super) fn indirect(
        &mut self,
        b: &mut Builder,
        i: Inst,
        which: Indirect,
    ) -> Result<Value, Diagnostic> {
        let f = self.f;
        if self.size() == Dim::Const(0) {
            // There is nothing to move, and no place that an index of the batch could have.
            let ty = self.type_of(f.inst_results(i)[0]);
            return Ok(b.literal(&ty, Literal::zero(ty.dtype)));
        }
        let own = |from: usize| f.args(i)[from..].iter().any(|&a| self.is_mapped(a));
        match which {
            Indirect::Gather => self.gather(b, i),
            Indirect::Scatter(_) => self.scatter(b, i),
            Indirect::DynamicSlice if own(1) => self.slices(b, i),
            Indirect::DynamicUpdateSlice if own(2) => self.updates(b, i),
            Indirect::DynamicSlice | Indirect::DynamicUpdateSlice => self.shared_starts(b, i),
            Indirect::Argsort => Ok(self.shifted(b, i)?[0]),
        }
    }

    /// The extent of the batch, where a place in it is an index or a window's size.
    pub(super) fn extent(&self, i: Inst) -> Result<i64, Diagnostic> {
        let n = self.size().known().and_then(|n| i64::try_from(n).ok());
        n.ok_or_else(|| {
            let m = format!("`{}` needs a batch of known extent", self.f.op(i));
            self.error(i, Kind::Unsupported, m)
        })
    }

    fn gather(&mut self, b: &mut Builder, i: Inst) -> Result<Value, Diagnostic> {
        let f = self.f;
        let (x, at, given) = (f.args(i)[0], f.args(i)[1], f.attrs(i));
        let ints = |name| given.ints(name);
        let mode = Attr::Word(given.word("mode"));
        let attrs = |offsets, collapsed, map, sizes| {
            Attrs::none()
                .with("offset_dims", Attr::Ints(offsets))
                .with("collapsed", Attr::Ints(collapsed))
                .with("start_map", Attr::Ints(map))
                .with("sizes", Attr::Ints(sizes))
                .with("mode", mode)
        };
        let sizes = |n: i64| std::iter::once(n).chain(ints("sizes").iter().copied()).collect();
        let (offsets, collapsed, map) = (ints("offset_dims"), ints("collapsed"), ints("start_map"));
        let (args, attrs) = match (self.is_mapped(x), self.is_mapped(at)) {
            (false, _) => {
                let kept = |axes: &[i64]| axes.iter().copied().collect::<Ints>();
                let attrs =
                    attrs(further(offsets), kept(collapsed), kept(map), kept(ints("sizes")));
                ([self.values.get(b, x), self.batched(b, at)], attrs)
            }
            (true, false) => {
                let n = self.extent(i)?;
                let attrs = attrs(first(offsets), further(collapsed), further(map), sizes(n));
                ([self.batched(b, x), self.values.get(b, at)], attrs)
            }
            (true, true) => {
                let attrs = attrs(further(offsets), first(collapsed), first(map), sizes(1));
                let at = self.batched(b, at);
                ([self.batched(b, x), self.with_place(b, i, at)?], attrs)
            }
        };
        let ty = self.type_of(f.inst_results(i)[0]);
        Ok(b.op_as(Op::Gather, &args, attrs, &ty))
    }

    fn scatter(&mut self, b: &mut Builder, i: Inst) -> Result<Value, Diagnostic> {
        let f = self.f;
        let (at, given) = (f.args(i)[1], f.attrs(i));
        let ints = |name| given.ints(name);
        let (windows, inserted, map) = (ints("window_dims"), ints("inserted"), ints("start_map"));
        let x = self.batched(b, f.args(i)[0]);
        let updates = self.batched(b, f.args(i)[2]);
        let (at, [windows, inserted, map]) = if self.is_mapped(at) {
            let at = self.batched(b, at);
            (self.with_place(b, i, at)?, [further(windows), first(inserted), first(map)])
        } else {
            (self.values.get(b, at), [first(windows), further(inserted), further(map)])
        };
        let attrs = Attrs::none()
            .with("window_dims", Attr::Ints(windows))
            .with("inserted", Attr::Ints(inserted))
            .with("start_map", Attr::Ints(map))
            .with("mode", Attr::Word(given.word("mode")));
        let ty = self.type_of(f.inst_results(i)[0]);
        Ok(b.op_as(f.op(i), &[x, at, updates], attrs, &ty))
    }

    /// Dynamic slices at places that all elements share: the batch is taken whole.
    fn shared_starts(&mut self, b: &mut Builder, i: Inst) -> Result<Value, Diagnostic> {
        let f = self.f;
        let tensors = f.args(i).len() - f.ty(f.args(i)[0]).rank();
        let mut args: Vec<Value> = Vec::new();
        for &a in &f.args(i)[..tensors] {
            args.push(self.batched(b, a));
        }
        args.push(b.literal(&TensorType::scalar(DType::I32), Literal::zero(DType::I32)));
        for &a in &f.args(i)[tensors..] {
            args.push(self.values.get(b, a));
        }
        let mut attrs = Attrs::none();
        if f.op(i) == Op::DynamicSlice {
            let sizes = f.attrs(i).ints("sizes").iter().copied();
            let n = self.extent(i)?;
            attrs = attrs.with_ints("sizes", std::iter::once(n).chain(sizes));
        }
        let ty = self.type_of(f.inst_results(i)[0]);
        Ok(b.op_as(f.op(i), &args, attrs, &ty))
    }

    /// Slices at places of their own are rows of a gather, which clamps as they do.
    fn slices(&mut self, b: &mut Builder, i: Inst) -> Result<Value, Diagnostic> {
        let f = self.f;
        let x = f.args(i)[0];
        let rank = f.ty(x).rank() as i64;
        let mut at = self.starts(b, &f.args(i)[1..]);
        let mut big = self.values.get(b, x);
        let (mut sizes, mut collapsed) = (Ints::new(), Ints::new());
        let mut map: Ints = (0..rank).collect();
        if self.is_mapped(x) {
            big = self.batched(b, x);
            at = self.with_place(b, i, at)?;
            sizes.push(1);
            collapsed.push(0);
            map.push(rank);
        }
        sizes.extend(f.attrs(i).ints("sizes").iter().copied());
        let attrs = Attrs::none()
            .with_ints("offset_dims", 1..=rank)
            .with("collapsed", Attr::Ints(collapsed))
            .with("start_map", Attr::Ints(map))
            .with("sizes", Attr::Ints(sizes))
            .with("mode", Attr::Word("clip"));
        let ty = self.type_of(f.inst_results(i)[0]);
        Ok(b.op_as(Op::Gather, &[big, at], attrs, &ty))
    }

    /// Start indices, one scalar an axis, as index vectors: `[batch, axes]`.
    pub(super) fn starts(&mut self, b: &mut Builder, starts: &[Value]) -> Value {
        let same = starts.windows(2).all(|w| self.f.ty(w[0]).dtype == self.f.ty(w[1]).dtype);
        let dtype = if same { self.f.ty(starts[0]).dtype } else { DType::I64 };
        let column = TensorType::new(dtype, [self.size(), Dim::Const(1)]);
        let mut columns = Vec::new();
        for &s in starts {
            let mut v = self.batched(b, s);
            let ty = b.ty(v).with_dtype(dtype);
            if b.ty(v) != &ty {
                v = b.op_as(Op::ConvertElementType, &[v], Attrs::none(), &ty);
            }
            columns.push(b.op_as(Op::Reshape, &[v], Attrs::none(), &column));
        }
        b.op_with(Op::Concatenate, &columns, Attrs::none().with_int("axis", 1))
    }

    /// Index vectors with the element's place in the batch as their first entry.
    pub(super) fn with_place(
        &mut self,
        b: &mut Builder,
        i: Inst,
        at: Value,
    ) -> Result<Value, Diagnostic> {
        let last = self.extent(i)? - 1;
        let mut at = b.materialize(at);
        let mut ty = b.ty(at).clone();
        if Literal::from_i64(ty.dtype, last).to_i64() != last {
            ty = ty.with_dtype(DType::I64);
            at = b.op_as(Op::ConvertElementType, &[at], Attrs::none(), &ty);
        }
        let axis = ty.rank() - 1;
        ty.shape[axis] = Dim::Const(1);
        let place = b.op_as(Op::Iota, &[], Attrs::none().with_int("axis", 0), &ty);
        let attrs = Attrs::none().with_int("axis", axis as i64);
        Ok(b.op_with(Op::Concatenate, &[place, at], attrs))
    }
}
