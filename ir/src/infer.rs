//! Type inference: what an op's rule sees, and the errors it may give.

use crate::attrs::Attrs;
use crate::diag::Kind;
use crate::dtype::{DType, DTypeSet};
use crate::types::{Dim, TensorType};
use smallvec::SmallVec;

/// Why the types, attributes or counts of an instruction do not fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InferError {
    /// Class of the error.
    pub kind: Kind,
    /// What does not fit, with expected and found.
    pub message: String,
}

impl InferError {
    /// An error of this class.
    pub fn new(kind: Kind, message: impl Into<String>) -> InferError {
        InferError { kind, message: message.into() }
    }

    /// A shape error.
    pub fn shape(message: impl Into<String>) -> InferError {
        InferError::new(Kind::Shape, message)
    }

    /// An element-type error.
    pub fn dtype(message: impl Into<String>) -> InferError {
        InferError::new(Kind::DType, message)
    }

    /// An attribute error.
    pub fn attr(message: impl Into<String>) -> InferError {
        InferError::new(Kind::Attribute, message)
    }
}

/// Types of an instruction's results.
pub type Types = SmallVec<[TensorType; 1]>;

/// What the inference rule of an op sees: operand types, with gaps where a literal stands, which the
/// rule fills; attributes that follow the schema; the type written after the instruction, if any.
pub struct InferCx<'a> {
    args: SmallVec<[Option<TensorType>; 4]>,
    /// The attributes, in schema order.
    pub attrs: &'a Attrs,
    declared: Option<&'a [TensorType]>,
}

impl<'a> InferCx<'a> {
    /// A rule's view of an instruction; `None` stands for a literal operand.
    pub fn new(
        args: SmallVec<[Option<TensorType>; 4]>,
        attrs: &'a Attrs,
        declared: Option<&'a [TensorType]>,
    ) -> InferCx<'a> {
        InferCx { args, attrs, declared }
    }

    /// Number of operands.
    pub fn arity(&self) -> usize {
        self.args.len()
    }

    /// The type of operand `k`.
    ///
    /// # Errors
    /// [`Kind::Literal`] when a literal stands there whose type nothing demands.
    pub fn arg(&self, k: usize) -> Result<&TensorType, InferError> {
        self.args[k].as_ref().ok_or_else(|| {
            let m = format!("operand {k} cannot be a literal: nothing gives it a type");
            InferError::new(Kind::Literal, m)
        })
    }

    /// The type of operand `k`, if it is not a literal still without type.
    pub fn known(&self, k: usize) -> Option<&TensorType> {
        self.args[k].as_ref()
    }

    /// Demands type `ty` of slot `k`: a literal takes it, a value must have it.
    ///
    /// # Errors
    /// [`Kind::DType`] for another element type, [`Kind::Shape`] for other extents; both types are in the message.
    pub fn demand(&mut self, k: usize, ty: &TensorType) -> Result<(), InferError> {
        match &self.args[k] {
            None => self.args[k] = Some(ty.clone()),
            Some(found) if found == ty => {}
            Some(found) if found.dtype != ty.dtype => {
                let m = format!("operand {k}: expected {ty}, found {found}");
                return Err(InferError::dtype(m));
            }
            Some(found) => {
                let m = format!("operand {k}: expected {ty}, found {found}");
                return Err(InferError::shape(m));
            }
        }
        Ok(())
    }

    /// Requires the dtype of operand `k` to belong to `set`.
    ///
    /// # Errors
    /// [`Kind::DType`] when it does not; as [`InferCx::arg`] for a literal without type.
    pub fn require(&self, k: usize, set: DTypeSet) -> Result<&TensorType, InferError> {
        let ty = self.arg(k)?;
        if set.contains(ty.dtype) {
            return Ok(ty);
        }
        Err(InferError::dtype(format!("operand {k}: expected {set}, found {ty}")))
    }

    /// The one declared result type, for ops that need it written.
    ///
    /// # Errors
    /// [`Kind::Arity`] when none or several are written.
    pub fn declared(&self) -> Result<&'a TensorType, InferError> {
        match self.declared {
            Some([ty]) => Ok(ty),
            _ => {
                Err(InferError::new(Kind::Arity, "one result type must be written, as `: f32[2]`"))
            }
        }
    }

    /// The declared result types, if any are written.
    pub fn declared_all(&self) -> Option<&'a [TensorType]> {
        self.declared
    }

    /// An attribute list of axes: distinct and below `rank`.
    ///
    /// # Errors
    /// As [`checked_axes`].
    pub fn axes(&self, name: &str, rank: usize) -> Result<SmallVec<[usize; 4]>, InferError> {
        checked_axes(name, self.attrs.ints(name), rank)
    }

    /// An attribute that is one axis below `rank`.
    ///
    /// # Errors
    /// As [`checked_axes`].
    pub fn axis(&self, name: &str, rank: usize) -> Result<usize, InferError> {
        Ok(checked_axes(name, &[self.attrs.int(name)], rank)?[0])
    }

    /// The operand types after inference, none of them missing.
    ///
    /// # Errors
    /// As [`InferCx::arg`], for the first that is missing.
    pub fn into_args(self) -> Result<SmallVec<[TensorType; 4]>, InferError> {
        for k in 0..self.args.len() {
            self.arg(k)?;
        }
        Ok(self.args.into_iter().flatten().collect())
    }
}

/// Axes as indices: distinct and below `rank`.
///
/// # Errors
/// [`Kind::Attribute`] for an axis that is negative or not below `rank`, and for one that is named twice.
pub fn checked_axes(
    name: &str,
    axes: &[i64],
    rank: usize,
) -> Result<SmallVec<[usize; 4]>, InferError> {
    let mut out = SmallVec::<[usize; 4]>::new();
    for &a in axes {
        let index = usize::try_from(a).ok().filter(|&i| i < rank);
        let Some(index) = index else {
            return Err(InferError::attr(format!("`{name}`: no axis {a} in rank {rank}")));
        };
        if out.contains(&index) {
            return Err(InferError::attr(format!("`{name}`: axis {a} is named twice")));
        }
        out.push(index);
    }
    Ok(out)
}

/// A constant extent, where an op needs one.
///
/// # Errors
/// [`Kind::Shape`] for a symbol, which `what` names in the message.
pub fn known_dim(what: &str, d: Dim) -> Result<i64, InferError> {
    match d {
        Dim::Const(n) => Ok(n as i64),
        Dim::Sym(s) => {
            Err(InferError::shape(format!("{what} needs a constant extent, found `{s:?}`")))
        }
    }
}

fn unwritten() -> InferError {
    InferError::new(Kind::Arity, "the result type must be written, as `: f32[2]`")
}

/// How one operand or the result of a map relates to the signature's type variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// The signature's type variable.
    T,
    /// `bool`.
    Bool,
    /// Written by the user: any type of the set.
    Declared(DTypeSet),
    /// Written by the user: a type of the variable's set, as wide as the variable.
    SameWidth,
}

/// The element types of a map: all operands and the result share one shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sig {
    /// What the type variable ranges over.
    pub t: DTypeSet,
    /// The operands.
    pub args: &'static [Class],
    /// The result.
    pub result: Class,
}

impl Sig {
    /// A signature.
    pub const fn new(t: DTypeSet, args: &'static [Class], result: Class) -> Sig {
        Sig { t, args, result }
    }

    /// Inference of an elementwise op: one shape, element types by class.
    ///
    /// # Errors
    /// [`Kind::Literal`] when every operand is a literal and no result type is written; [`Kind::DType`] and [`Kind::Shape`] for
    /// operands that do not fit each other or the set of types; [`Kind::Arity`] when the result type must be written.
    pub fn infer(&self, cx: &mut InferCx<'_>) -> Result<Types, InferError> {
        let first = |class: Option<Class>| {
            (0..self.args.len())
                .filter(|&k| class.is_none_or(|c| self.args[k] == c))
                .find_map(|k| cx.known(k))
        };
        let declared = cx.declared_all().and_then(|d| d.first());
        let like = first(None).or(declared);
        let Some(like) = like.cloned() else {
            let m = "every operand is a literal: write the result type, as `: f32[2]`";
            return Err(InferError::new(Kind::Literal, m));
        };
        let t = match (first(Some(Class::T)), declared) {
            (Some(ty), _) => Some(ty.dtype),
            (None, Some(ty)) if self.result == Class::T => Some(ty.dtype),
            _ => None,
        };
        if let Some(d) = t.filter(|&d| first(Some(Class::T)).is_none() && !self.t.contains(d)) {
            return Err(InferError::dtype(format!("expected {}, found {d}", self.t)));
        }
        let of = |class: Class| match class {
            Class::T => t.ok_or_else(|| {
                let m = "literals alone do not tell the element type";
                InferError::new(Kind::Literal, m)
            }),
            Class::Bool => Ok(DType::Bool),
            Class::Declared(set) => match declared {
                Some(ty) if set.contains(ty.dtype) => Ok(ty.dtype),
                Some(ty) => {
                    Err(InferError::dtype(format!("result: expected {set}, found {}", ty.dtype)))
                }
                None => Err(unwritten()),
            },
            Class::SameWidth => match (declared, t) {
                // The operand's own error comes first.
                (_, Some(t)) if !self.t.contains(t) => Ok(t),
                (Some(ty), Some(t)) if self.t.contains(ty.dtype) && ty.dtype.bits() == t.bits() => {
                    Ok(ty.dtype)
                }
                (Some(ty), Some(t)) => Err(InferError::dtype(format!(
                    "result: expected {} of {} bits, found {}",
                    self.t,
                    t.bits(),
                    ty.dtype
                ))),
                _ => Err(unwritten()),
            },
        };
        let result = like.with_dtype(of(self.result)?);
        let wanted: SmallVec<[DType; 4]> =
            self.args.iter().map(|&c| of(c)).collect::<Result<_, _>>()?;
        for (k, dtype) in wanted.into_iter().enumerate() {
            if self.args[k] == Class::T && cx.known(k).is_some() {
                cx.require(k, self.t)?;
            }
            cx.demand(k, &like.with_dtype(dtype))?;
        }
        Ok(SmallVec::from_iter([result]))
    }
}
