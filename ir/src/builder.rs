//! Building functions: every instruction is inferred and checked as it is appended.

use crate::attrs::Attrs;
use crate::checkpoint::CheckpointPath;
use crate::diag::{At, Diagnostic, Kind, Provenance, Span};
use crate::dtype::DType;
use crate::entity::{Inst, Phase, Region, Value};
use crate::function::{Function, NewInst};
use crate::infer::InferError;
use crate::literal::Literal;
use crate::op::Op;
use crate::types::TensorType;
use smallvec::SmallVec;

/// An operand that is still to be typed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Operand {
    /// A value.
    Value(Value),
    /// A number written in place; it takes the type its slot demands.
    Number(Number),
}

/// A number as written, before its slot gives it a type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// An integer.
    Int(i64),
    /// A number with a point, an exponent, or `inf` or `nan`.
    Float(f64),
    /// A truth value.
    Bool(bool),
}

impl Number {
    /// The number as an element of `dtype`, if it is one (floats round, integers must fit).
    pub fn typed(self, dtype: DType) -> Option<Literal> {
        match (self, dtype) {
            (_, DType::Token) => None,
            (Number::Bool(b), DType::Bool) => Some(Literal::from_i64(dtype, b.into())),
            (Number::Bool(_), _) | (_, DType::Bool) => None,
            (Number::Int(i), d) if d.is_float() => finite(Literal::from_f64(d, i as f64)),
            (Number::Int(i), d) => Some(Literal::from_i64(d, i)).filter(|l| l.to_i64() == i),
            (Number::Float(x), d) if d.is_float() && !x.is_finite() => {
                Some(Literal::from_f64(d, x))
            }
            (Number::Float(x), d) if d.is_float() => finite(Literal::from_f64(d, x)),
            (Number::Float(_), _) => None,
        }
    }
}

/// A finite number does not become infinite unsaid.
fn finite(l: Literal) -> Option<Literal> {
    Some(l).filter(|l| l.to_f64().is_finite())
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Number::Int(i) => write!(f, "{i}"),
            Number::Float(x) => write!(f, "{x:?}"),
            Number::Bool(b) => write!(f, "{b}"),
        }
    }
}

/// Appends checked instructions to a function.
///
/// The first error of a rule is kept and ends construction at [`Builder::finish`]: code that builds
/// on verified input need not handle errors at every step.
pub struct Builder {
    func: Function,
    stack: Vec<Region>,
    phase: Phase,
    origin: Provenance,
    path: CheckpointPath,
    error: Option<Diagnostic>,
}

impl Builder {
    /// Starts a function of this name.
    pub fn new(name: impl Into<String>) -> Builder {
        let func = Function::new(name);
        let stack = vec![func.body()];
        let path = CheckpointPath::default();
        let origin = Provenance::default();
        Builder { func, stack, phase: Phase::PRIMAL, origin, path, error: None }
    }

    /// The function so far.
    pub fn func(&self) -> &Function {
        &self.func
    }

    /// The function so far, to be changed.
    pub fn func_mut(&mut self) -> &mut Function {
        &mut self.func
    }

    /// Type of a value.
    pub fn ty(&self, v: Value) -> &TensorType {
        self.func.ty(v)
    }

    /// Phase of the instructions to come.
    pub fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Source place of the instructions to come.
    pub fn set_span(&mut self, span: Option<Span>) {
        self.origin.span = span;
    }

    /// Where the instructions to come are from.
    pub fn set_origin(&mut self, origin: Provenance) {
        self.origin = origin;
    }

    /// Checkpoint regions around the instructions to come.
    pub fn set_path(&mut self, path: CheckpointPath) {
        self.path = path;
    }

    /// Checkpoint regions around the instructions to come.
    pub fn path(&self) -> &CheckpointPath {
        &self.path
    }

    /// The instructions to come stand for one of another function: they have its source place and are in its checkpoint
    /// regions.
    pub fn follow(&mut self, f: &Function, i: Inst) {
        self.origin = f.origin(i).clone();
        self.path = f.path(i).clone();
    }

    /// As [`Builder::follow`], for instructions of the derivative of one: a name that a region keeps is not theirs.
    pub fn derive(&mut self, f: &Function, i: Inst) {
        self.follow(f, i);
        self.path = self.path.without_name();
    }

    /// The first error, if any.
    pub fn error(&self) -> Option<&Diagnostic> {
        self.error.as_ref()
    }

    /// Adds a parameter to the region under construction.
    pub fn param(&mut self, ty: TensorType, name: Option<&str>) -> Value {
        let v = self.func.add_param(self.region(), ty);
        self.func.set_name(v, name);
        v
    }

    /// The region under construction.
    pub fn region(&self) -> Region {
        *self.stack.last().expect("the body is never closed")
    }

    /// Whether a nested region is open.
    pub fn is_nested(&self) -> bool {
        self.stack.len() > 1
    }

    /// Opens a nested region for an instruction to come.
    pub fn open_region(&mut self) -> Region {
        let r = self.func.add_region();
        self.stack.push(r);
        r
    }

    /// Closes the region opened last, with its results.
    pub fn close_region(&mut self, results: &[Value]) {
        let r = self.region();
        self.func.region_mut(r).results = results.to_vec();
        if self.stack.len() > 1 {
            self.stack.pop();
        }
    }

    /// The splat of a constant; it may stand wherever inference gives it this type.
    pub fn literal(&mut self, ty: &TensorType, l: Literal) -> Value {
        self.func.add_literal(ty.clone(), l)
    }

    /// Appends an instruction. Literals take the type of their slot.
    ///
    /// # Errors
    /// As [`Op::infer`]: the instruction is not appended.
    pub fn try_inst(
        &mut self,
        op: Op,
        args: &[Operand],
        attrs: Attrs,
        declared: Option<&[TensorType]>,
        regions: &[Region],
    ) -> Result<Inst, InferError> {
        let attrs = attrs.conform(op.def().attrs).map_err(InferError::attr)?;
        let known: SmallVec<[Option<TensorType>; 4]> = args
            .iter()
            .map(|a| match *a {
                Operand::Value(v) if self.func.literal(v).is_none() => {
                    Some(self.func.ty(v).clone())
                }
                _ => None,
            })
            .collect();
        let (types, results) = op.infer(known, &attrs, declared)?;
        let mut values = SmallVec::<[Value; 4]>::new();
        for (k, (arg, ty)) in args.iter().zip(&types).enumerate() {
            values.push(match *arg {
                Operand::Number(n) => {
                    let l = n.typed(ty.dtype).ok_or_else(|| {
                        let m = format!("operand {k}: {n} is no {}", ty.dtype);
                        InferError::new(Kind::Literal, m)
                    })?;
                    self.func.add_literal(ty.clone(), l)
                }
                Operand::Value(v) if self.func.ty(v) != ty => {
                    let m = format!("operand {k}: expected {ty}, found {}", self.func.ty(v));
                    return Err(InferError::shape(m));
                }
                Operand::Value(v) => v,
            });
        }
        if op.region_names(regions.len()).is_none() {
            let wanted = match op.def().regions {
                [] => "no regions".to_string(),
                names => format!("the regions {}", names.join(", ")),
            };
            let m = format!("`{op}` has {wanted}, found {}", regions.len());
            return Err(InferError::new(Kind::Arity, m));
        }
        let region = self.region();
        let (args, results, phase) = (&values, &results, self.phase);
        let inst = self.func.add_inst(region, NewInst { op, args, attrs, results, regions, phase });
        self.func.set_origin(inst, self.origin.clone());
        self.func.set_path(inst, self.path.clone());
        Ok(inst)
    }

    /// Appends an instruction whose operands are values. A literal in a slot that gives it no type
    /// is materialised by a broadcast first. An error is kept for [`Builder::finish`].
    pub fn inst(
        &mut self,
        op: Op,
        args: &[Value],
        attrs: Attrs,
        declared: Option<&[TensorType]>,
    ) -> SmallVec<[Value; 1]> {
        let typed = |values: &[Value]| -> SmallVec<[Operand; 4]> {
            values.iter().map(|&v| Operand::Value(v)).collect()
        };
        let mut result = self.try_inst(op, &typed(args), attrs.clone(), declared, &[]);
        if matches!(&result, Err(e) if e.kind == Kind::Literal) {
            let full: SmallVec<[Value; 4]> = args.iter().map(|&v| self.materialize(v)).collect();
            result = self.try_inst(op, &typed(&full), attrs, declared, &[]);
        }
        match result {
            Ok(inst) => self.func.inst_results(inst).iter().copied().collect(),
            Err(e) => {
                let at = At {
                    func: Some(self.func.name.clone()),
                    inst: Some(op.name().into()),
                    span: self.origin.span,
                    line: self.origin.line.clone(),
                };
                let diagnostic = Diagnostic::new(at, Kind::Internal, e.message);
                self.error.get_or_insert(diagnostic);
                let scalar = TensorType::scalar(DType::F32);
                let stand_in = self.func.add_literal(scalar, Literal::zero(DType::F32));
                SmallVec::from_iter([stand_in])
            }
        }
    }

    /// The operands, with literals materialised if their slots do not give them their type.
    pub fn legal_args(
        &mut self,
        op: Op,
        args: Vec<Value>,
        attrs: &Attrs,
        results: &[TensorType],
    ) -> Vec<Value> {
        let known = |&v: &Value| self.func.literal(v).is_none().then(|| self.func.ty(v).clone());
        let fits = match op.infer(args.iter().map(known).collect(), attrs, Some(results)) {
            Ok((types, _)) => args.iter().zip(&types).all(|(&v, ty)| self.func.ty(v) == ty),
            Err(_) => false,
        };
        if fits { args } else { args.into_iter().map(|v| self.materialize(v)).collect() }
    }

    /// A literal as the result of an instruction; other values as they are.
    pub fn materialize(&mut self, v: Value) -> Value {
        let Some(l) = self.func.literal(v) else { return v };
        let ty = self.func.ty(v).clone();
        let scalar = self.literal(&TensorType::scalar(ty.dtype), l);
        let attrs = Attrs::none().with_ints("dims", []);
        self.inst(Op::BroadcastInDim, &[scalar], attrs, Some(&[ty]))[0]
    }

    /// The value in an element type, as it is where it has that.
    pub fn converted(&mut self, v: Value, dtype: DType) -> Value {
        let ty = self.ty(v).with_dtype(dtype);
        match *self.ty(v) == ty {
            true => v,
            false => self.op_as(Op::ConvertElementType, &[v], Attrs::none(), &ty),
        }
    }

    /// The value in a type with as many elements, as it is where it has that.
    pub fn reshaped(&mut self, v: Value, ty: &TensorType) -> Value {
        match self.ty(v) == ty {
            true => v,
            false => self.op_as(Op::Reshape, &[v], Attrs::none(), ty),
        }
    }

    /// Appends an instruction with regions and written result types, without checking it; literals are
    /// materialised where their slots do not give them their type.
    pub fn place(
        &mut self,
        op: Op,
        args: &[Value],
        attrs: Attrs,
        results: &[TensorType],
        regions: &[Region],
    ) -> Inst {
        let args = self.legal_args(op, args.to_vec(), &attrs, results);
        let (at, phase) = (self.region(), self.phase);
        let args = &args;
        let inst = self.func.add_inst(at, NewInst { op, args, attrs, results, regions, phase });
        self.func.set_origin(inst, self.origin.clone());
        self.func.set_path(inst, self.path.clone());
        inst
    }

    /// Appends an instruction without attributes and with one result.
    pub fn op(&mut self, op: Op, args: &[Value]) -> Value {
        self.inst(op, args, Attrs::none(), None)[0]
    }

    /// Appends an instruction with attributes and one inferred result.
    pub fn op_with(&mut self, op: Op, args: &[Value], attrs: Attrs) -> Value {
        self.inst(op, args, attrs, None)[0]
    }

    /// Appends an instruction with one result of a written type.
    pub fn op_as(&mut self, op: Op, args: &[Value], attrs: Attrs, ty: &TensorType) -> Value {
        self.inst(op, args, attrs, Some(std::slice::from_ref(ty)))[0]
    }

    /// Says that a derivative rule cannot be written for these operands; ends construction as an
    /// error does.
    pub fn refuse(&mut self, message: impl Into<String>) {
        let Provenance { span, line } = self.origin.clone();
        let at = At { func: Some(self.func.name.clone()), inst: None, span, line };
        self.error.get_or_insert(Diagnostic::new(at, Kind::Unsupported, message));
    }

    /// Known extents of a type, as a derivative rule needs them; refuses symbols.
    pub fn extents(&mut self, ty: &TensorType) -> SmallVec<[u64; 4]> {
        ty.dims().unwrap_or_else(|| {
            self.refuse(format!("its derivative needs constant extents, {ty} has symbols"));
            ty.shape.iter().map(|d| d.known().unwrap_or(0)).collect()
        })
    }

    /// Sets the function's results.
    pub fn set_results(&mut self, results: &[Value]) {
        let body = self.func.body();
        self.func.region_mut(body).results = results.to_vec();
    }

    /// The finished function.
    ///
    /// # Errors
    /// The error of the first instruction that did not fit.
    pub fn finish(self) -> Result<Function, Diagnostic> {
        match self.error {
            Some(e) => Err(e),
            None => Ok(self.func),
        }
    }
}
