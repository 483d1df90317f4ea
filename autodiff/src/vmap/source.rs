//! Generated values whose operands depend on the batch: the row's program, written in instructions.
//!
//! A value of the program depends on the batch, on the place within an element, on both, or on
//! neither; it has just the axes that it depends on, so that what is derived from a seed alone is
//! computed once an element.

use super::{Batch, with_axis};
use adfuse_ir::scalar::{Prim, SOp};
use adfuse_ir::{
    Attrs, Builder, DType, Diagnostic, Dim, Inst, Kind, Literal, Op, TensorType, Value,
};

/// A value of the program, and what it depends on.
#[derive(Clone, Copy)]
struct Part {
    value: Value,
    batch: bool,
    place: bool,
}

impl Batch<'_, '_> {
    /// Places a generated value.
    pub(super) fn source(&mut self, b: &mut Builder, i: Inst) -> Result<Value, Diagnostic> {
        let f = self.f;
        let (op, args) = (f.op(i), f.args(i));
        let one = f.ty(f.inst_results(i)[0]);
        let dtypes: Vec<DType> = args.iter().map(|&a| f.ty(a).dtype).collect();
        let unknown = |what: &str| format!("`{op}` has no batched form: {what}");
        let program = op
            .source_program(&dtypes, one.dtype)
            .ok_or_else(|| self.error(i, Kind::Internal, unknown("it has no program")))?;
        let write = Write { shape: one.clone(), size: self.size() };
        let live = program.live();
        let mut parts: Vec<Option<Part>> = Vec::new();
        for (v, inst) in program.insts.iter() {
            if !live[v.as_u32() as usize] {
                parts.push(None);
                continue;
            }
            let arg = |k: usize| parts.get(inst.args[k].as_u32() as usize).copied().flatten();
            let operands: Option<Vec<Part>> = (0..inst.args.len()).map(arg).collect();
            let operands = operands
                .ok_or_else(|| self.error(i, Kind::Internal, unknown("a value is missing")))?;
            let part = match inst.op {
                SOp::Param(0) => Some(Part { value: write.linear(b), batch: false, place: true }),
                SOp::Param(1) => {
                    let along = Attrs::none().with_int("axis", f.attrs(i).int("axis"));
                    let value = b.op_as(Op::Iota, &[], along, &write.ty(DType::I64, false, true));
                    Some(Part { value, batch: false, place: true })
                }
                SOp::Param(k) => {
                    let a = args[k as usize - 2];
                    let value = self.values.get(b, a);
                    Some(Part { value, batch: self.is_mapped(a), place: false })
                }
                SOp::Const(c) => {
                    let value = b.literal(&TensorType::scalar(c.dtype()), c);
                    Some(Part { value, batch: false, place: false })
                }
                op => write.op(b, op, inst.dtype, &operands),
            };
            let part = part.ok_or_else(|| {
                let m = unknown(&format!("{:?} is no op", inst.op));
                self.error(i, Kind::Unsupported, m)
            })?;
            parts.push(Some(part));
        }
        let last = program.outputs[0].as_u32() as usize;
        let part = parts[last]
            .ok_or_else(|| self.error(i, Kind::Internal, unknown("it gives nothing")))?;
        Ok(write.spread(b, part, true, true))
    }
}

struct Write {
    /// The type of one element's result.
    shape: TensorType,
    size: Dim,
}

impl Write {
    fn ty(&self, dtype: DType, batch: bool, place: bool) -> TensorType {
        let ty = if place { self.shape.with_dtype(dtype) } else { TensorType::scalar(dtype) };
        if batch { with_axis(&ty, 0, self.size) } else { ty }
    }

    /// The row-major position in an element's result.
    fn linear(&self, b: &mut Builder) -> Value {
        let ty = self.ty(DType::I64, false, true);
        if ty.rank() == 0 {
            return b.literal(&ty, Literal::zero(DType::I64));
        }
        let attrs = Attrs::none().with_int("axis", 0);
        if ty.rank() == 1 {
            return b.op_as(Op::Iota, &[], attrs, &ty);
        }
        let n: u64 = b.extents(&ty).iter().product();
        let flat = b.op_as(Op::Iota, &[], attrs, &TensorType::of(DType::I64, &[n]));
        b.op_as(Op::Reshape, &[flat], Attrs::none(), &ty)
    }

    /// The part with the axes that are asked for.
    fn spread(&self, b: &mut Builder, part: Part, batch: bool, place: bool) -> Value {
        if (part.batch, part.place) == (batch, place) {
            return part.value;
        }
        let ty = self.ty(b.ty(part.value).dtype, batch, place);
        if let Some(l) = b.func().literal(part.value) {
            return b.literal(&ty, l);
        }
        let rank = ty.rank() as i64;
        let dims = match (part.batch, part.place) {
            (true, _) => 0..1,
            (false, true) => 1..rank,
            (false, false) => 0..0,
        };
        b.op_as(Op::BroadcastInDim, &[part.value], Attrs::none().with_ints("dims", dims), &ty)
    }

    /// One operation of the program; `None` if no op does it.
    fn op(&self, b: &mut Builder, op: SOp, dtype: DType, operands: &[Part]) -> Option<Part> {
        let batch = operands.iter().any(|p| p.batch);
        let place = operands.iter().any(|p| p.place);
        let args: Vec<Value> = operands.iter().map(|&p| self.spread(b, p, batch, place)).collect();
        let ty = self.ty(dtype, batch, place);
        let value = match op {
            SOp::Prim(Prim::Convert) => b.op_as(Op::ConvertElementType, &args, Attrs::none(), &ty),
            SOp::Prim(Prim::MulHi) if dtype == DType::U32 => {
                // The product of two 32-bit numbers has 64 bits, whatever its sign is taken for.
                let wide = ty.with_dtype(DType::I64);
                let widen = |b: &mut Builder, v| {
                    b.op_as(Op::ConvertElementType, &[v], Attrs::none(), &wide)
                };
                let (x, y) = (widen(b, args[0]), widen(b, args[1]));
                let product = b.op_as(Op::Mul, &[x, y], Attrs::none(), &wide);
                let count = b.literal(&wide, Literal::from_i64(DType::I64, 32));
                let high = b.op_as(Op::ShiftRightLogical, &[product, count], Attrs::none(), &wide);
                b.op_as(Op::ConvertElementType, &[high], Attrs::none(), &ty)
            }
            op => {
                let (op, order, attrs) = Op::of_scalar(op)?;
                let args: Vec<Value> = order.iter().map(|&k| args[k]).collect();
                b.op_as(op, &args, attrs, &ty)
            }
        };
        Some(Part { value, batch, place })
    }
}
