//! What every importer emits instructions with: a builder with checks, element types that the IR lacks, refusals.

pub(crate) mod arithmetic;
pub(crate) mod element;
pub(crate) mod integers;
pub(crate) mod refusal;

use adfuse_ir::{Attrs, Builder, DType, Literal, Op, TensorType, Value};
use element::ElementType;
use refusal::{Unlowered, refuse};
use smallvec::SmallVec;

/// A value: its element type, and the value of the storage type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Val {
    pub(crate) element: ElementType,
    pub(crate) value: Value,
}

pub(crate) type Vals = SmallVec<[Val; 2]>;
pub(crate) type LoweredValues = Result<Vals, Unlowered>;

/// Appends instructions to a function, as many as an import may have.
pub(crate) struct InstEmitter {
    pub(crate) b: Builder,
    /// Instructions of all functions.
    emitted: usize,
}

impl InstEmitter {
    /// Starts a function of this name.
    pub(crate) fn new(name: impl Into<String>) -> InstEmitter {
        InstEmitter { b: Builder::new(name), emitted: 0 }
    }

    /// A scalar repeated to a shape.
    pub(crate) fn splat(&mut self, v: Val, shape: &TensorType) -> Result<Val, Unlowered> {
        let ty = shape.with_dtype(v.element.storage());
        if let Some(l) = self.b.func().literal(v.value) {
            return Ok(Val { value: self.b.literal(&ty, l), ..v });
        }
        let value =
            self.emit_as(Op::BroadcastInDim, &[v.value], Attrs::none().with_ints("dims", []), &ty)?;
        Ok(Val { value, ..v })
    }

    /// A literal like `v`: of its shape.
    pub(crate) fn literal_like(&mut self, v: Value, l: Literal) -> Value {
        let ty = self.b.ty(v).with_dtype(l.dtype());
        self.b.literal(&ty, l)
    }

    /// Appends an instruction.
    pub(crate) fn emit_all(
        &mut self,
        op: Op,
        args: &[Value],
        attrs: Attrs,
        declared: Option<&[TensorType]>,
        regions: &[adfuse_ir::Region],
    ) -> Result<SmallVec<[Value; 2]>, Unlowered> {
        use adfuse_ir::{Kind, Operand};
        const MOST: usize = 1_000_000;
        self.emitted += 1;
        if self.emitted > MOST {
            return refuse(format!("more than {MOST} instructions"));
        }
        let operands =
            |args: &[Value]| -> Vec<Operand> { args.iter().map(|&v| Operand::Value(v)).collect() };
        let mut made = self.b.try_inst(op, &operands(args), attrs.clone(), declared, regions);
        if matches!(&made, Err(e) if e.kind == Kind::Literal) {
            let full: Vec<Value> = args.iter().map(|&v| self.b.materialize(v)).collect();
            made = self.b.try_inst(op, &operands(&full), attrs, declared, regions);
        }
        match made {
            Ok(inst) => Ok(self.b.func().inst_results(inst).iter().copied().collect()),
            Err(e) => refuse(format!("{} (`{op}`)", e.message)),
        }
    }

    /// Appends an instruction with one result.
    pub(crate) fn emit(
        &mut self,
        op: Op,
        args: &[Value],
        attrs: Attrs,
    ) -> Result<Value, Unlowered> {
        Ok(self.emit_all(op, args, attrs, None, &[])?[0])
    }

    /// Appends an instruction without attributes.
    pub(crate) fn op(&mut self, op: Op, args: &[Value]) -> Result<Value, Unlowered> {
        self.emit(op, args, Attrs::none())
    }

    /// Appends an instruction whose result type is written.
    pub(crate) fn emit_as(
        &mut self,
        op: Op,
        args: &[Value],
        attrs: Attrs,
        ty: &TensorType,
    ) -> Result<Value, Unlowered> {
        Ok(self.emit_all(op, args, attrs, Some(std::slice::from_ref(ty)), &[])?[0])
    }

    /// A value without this many elements before and behind each axis. Axes that keep all may be symbols, which a slice cannot have.
    pub(crate) fn cut(&mut self, x: Val, before: &[i64], behind: &[i64]) -> Result<Val, Unlowered> {
        let dtype = x.element.storage();
        let fill = self.b.literal(&TensorType::scalar(dtype), Literal::zero(dtype));
        let attrs = Attrs::none()
            .with_ints("low", before.iter().map(|n| -n))
            .with_ints("high", behind.iter().map(|n| -n))
            .with_ints("interior", before.iter().map(|_| 0));
        let full = self.b.materialize(x.value);
        Ok(Val { value: self.emit(Op::Pad, &[full, fill], attrs)?, ..x })
    }

    /// The same numbers in another storage type.
    pub(crate) fn storage(&mut self, x: Value, dtype: DType) -> Result<Value, Unlowered> {
        let ty = self.b.ty(x).clone();
        match self.b.func().literal(x) {
            _ if ty.dtype == dtype => Ok(x),
            Some(l) => Ok(self.b.literal(&ty.with_dtype(dtype), l.convert(dtype))),
            None => {
                self.emit_as(Op::ConvertElementType, &[x], Attrs::none(), &ty.with_dtype(dtype))
            }
        }
    }
}
