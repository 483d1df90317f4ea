//! What the grammar says of a text, before names and types mean anything.
//!
//! Names are spans of the source: the tree of a long text stays small.

use crate::builder::Number;
use crate::checkpoint::{CheckpointPath, CheckpointPolicy};
use crate::diag::Span;
use crate::entity::Phase;
use crate::function::CustomRule;
use smallvec::SmallVec;

/// A function.
pub(super) struct FuncAst {
    /// `@name`
    pub(super) name: Span,
    /// Names in `<..>`.
    pub(super) symbols: Vec<Span>,
    /// Parameters.
    pub(super) params: Vec<ParamAst>,
    /// Declared result types.
    pub(super) results: Vec<TypeAst>,
    /// Custom rule.
    pub(super) rule: Option<RuleAst>,
    /// What a call of it keeps for the backward pass.
    pub(super) checkpoint: Option<CheckpointAst>,
    /// Instructions and `return`.
    pub(super) body: BlockAst,
}

/// `custom_jvp(@f)`, `custom_vjp(@fwd, @bwd)` or `custom_root(@f)`.
pub(super) enum RuleAst {
    /// The rule's name.
    Jvp(Span),
    /// The names of both halves.
    Vjp(Span, Span),
    /// The residual's name.
    Root(Span),
}

/// `checkpoint(..)`
pub(super) struct CheckpointAst {
    /// What it says.
    pub(super) policy: CheckpointPolicy,
    /// Where its names are.
    pub(super) names: Vec<Span>,
}

impl RuleAst {
    /// The rule, with names without `@`.
    pub(super) fn named(&self, name: impl Fn(Span) -> String) -> CustomRule {
        match *self {
            RuleAst::Jvp(f) => CustomRule::Jvp(name(f)),
            RuleAst::Vjp(fwd, bwd) => CustomRule::Vjp(name(fwd), name(bwd)),
            RuleAst::Root(f) => CustomRule::Root(name(f)),
        }
    }
}

/// `%name: type`
pub(super) struct ParamAst {
    /// With its `%`.
    pub(super) name: Span,
    /// Its type.
    pub(super) ty: TypeAst,
}

/// Instructions, then `return` or `yield`.
#[derive(Default)]
pub(super) struct BlockAst {
    /// The instructions.
    pub(super) insts: Vec<InstAst>,
    /// What it ends with; `None` after a syntax error.
    pub(super) end: Option<EndAst>,
}

/// `return ..` or `yield ..`
pub(super) struct EndAst {
    /// The values.
    pub(super) values: Vec<OperandAst>,
    /// The whole statement.
    pub(super) span: Span,
}

/// One instruction.
#[derive(Default)]
pub(super) struct InstAst {
    /// Names of its results, with `%`.
    pub(super) results: SmallVec<[Span; 1]>,
    /// Name of its op.
    pub(super) op: Span,
    /// Operands.
    pub(super) operands: SmallVec<[OperandAst; 2]>,
    /// Attributes as written.
    pub(super) attrs: Vec<AttrAst>,
    /// Written result types.
    pub(super) types: Option<SmallVec<[TypeAst; 1]>>,
    /// Its phase.
    pub(super) phase: Phase,
    /// The checkpoint regions around it.
    pub(super) path: CheckpointPath,
    /// Nested regions.
    pub(super) regions: Vec<RegionAst>,
    /// All of it but the regions.
    pub(super) span: Span,
    /// A syntax error ended it: only the names of its results count.
    pub(super) broken: bool,
}

/// An operand.
#[derive(Clone, Copy)]
pub(super) enum OperandAst {
    /// `%name`
    Value(Span),
    /// A literal.
    Number(Number, Span),
}

impl OperandAst {
    /// Its place.
    pub(super) fn span(&self) -> Span {
        match *self {
            OperandAst::Value(span) | OperandAst::Number(_, span) => span,
        }
    }
}

/// `name = value`
pub(super) struct AttrAst {
    /// The name.
    pub(super) name: Span,
    /// The value.
    pub(super) value: AttrValue,
    /// Place of the value.
    pub(super) span: Span,
}

/// The value of an attribute, as far as its form tells.
pub(super) enum AttrValue {
    /// `3`
    Int(i64),
    /// `[0, 2]`
    Ints(Vec<i64>),
    /// `[1] x [0]`
    Pair(Vec<i64>, Vec<i64>),
    /// `word`, also `true` and `false`
    Word,
    /// `"text"`
    Str(String),
    /// `@name`
    Func,
    /// `dense [1.0]`
    Dense(Vec<(Number, Span)>),
}

/// A nested region.
pub(super) struct RegionAst {
    /// Its name.
    pub(super) name: Span,
    /// Its parameters.
    pub(super) params: Vec<ParamAst>,
    /// Its instructions and `yield`.
    pub(super) block: BlockAst,
}

/// `dtype[dim, ..]`
#[derive(Clone)]
pub(super) struct TypeAst {
    /// The element type's name.
    pub(super) dtype: Span,
    /// The extents; `None` where no brackets are written.
    pub(super) dims: Option<SmallVec<[DimAst; 4]>>,
    /// All of it.
    pub(super) span: Span,
}

/// An extent.
#[derive(Clone, Copy)]
pub(super) enum DimAst {
    /// A number.
    Const(u64),
    /// A symbol.
    Sym(Span),
}
