//! The class of each instruction for the planner, by its body, and the kind of part that it begins.

use adfuse_ir::Inst;
use adfuse_ir::op::{Body, Effect, Monoid};

/// How an instruction takes part in groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum InstClass {
    /// Inlined wherever it is used: changes of index, generated values, small arithmetic whose
    /// result is only ever spread. It is in no group of its own.
    Free,
    /// An element at each point of the result.
    #[default]
    Point,
    /// Folds axes away.
    Reduce(Monoid),
    /// Folds along an axis.
    Scan(Monoid),
    /// Sums of products.
    Contract,
    /// Sums at computed places.
    Scatter,
    /// Positions of the sorted elements along an axis.
    Argsort,
    /// Values weighed by the softmax of scores, or the way back.
    Attention,
    /// A user function.
    Opaque,
    /// A loop or a branch, whose regions are programs of their own.
    Control,
    /// An exchange between ranks.
    Exchange,
    /// An effect, which the host has between groups.
    Effect,
    /// Values written in the program, and tokens with which chains of effects begin. No group computes them.
    Constant,
}

impl InstClass {
    /// Whether it is a step that nothing joins.
    pub(crate) fn is_alone(self) -> bool {
        matches!(
            self,
            InstClass::Scatter
                | InstClass::Argsort
                | InstClass::Attention
                | InstClass::Opaque
                | InstClass::Control
                | InstClass::Exchange
                | InstClass::Effect
        )
    }
}

/// Whether an instruction is [`InstClass::Constant`], by its body.
pub(crate) fn is_in_no_group(body: Body) -> bool {
    matches!(body, Body::Constant | Body::Effect(Effect::Start))
}

/// What a part is lowered to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartKind {
    /// A kernel.
    Kernel,
    /// A contraction and what follows each of its sums.
    Contract(Inst),
    /// A scatter.
    Scatter(Inst),
    /// An argsort.
    Argsort(Inst),
    /// Values weighed by the softmax of scores, or the way back.
    Attention(Inst),
    /// A user function.
    Opaque(Inst),
    /// A loop or a branch.
    Control(Inst),
    /// An exchange between ranks.
    Exchange(Inst),
    /// An effect.
    Effect(Inst),
}

impl PartKind {
    /// Whether nothing joins a part of this kind.
    pub(crate) fn is_alone(self) -> bool {
        match self {
            PartKind::Kernel | PartKind::Contract(_) => false,
            PartKind::Scatter(_)
            | PartKind::Argsort(_)
            | PartKind::Attention(_)
            | PartKind::Opaque(_)
            | PartKind::Control(_)
            | PartKind::Exchange(_)
            | PartKind::Effect(_) => true,
        }
    }

    /// That of a part which begins with an instruction of this class.
    pub(crate) fn of(class: InstClass, i: Inst) -> PartKind {
        match class {
            InstClass::Contract => PartKind::Contract(i),
            InstClass::Scatter => PartKind::Scatter(i),
            InstClass::Argsort => PartKind::Argsort(i),
            InstClass::Attention => PartKind::Attention(i),
            InstClass::Opaque => PartKind::Opaque(i),
            InstClass::Control => PartKind::Control(i),
            InstClass::Exchange => PartKind::Exchange(i),
            InstClass::Effect => PartKind::Effect(i),
            _ => PartKind::Kernel,
        }
    }
}
