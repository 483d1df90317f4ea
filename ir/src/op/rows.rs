//! The constructors that rows of the op table are written with.
//!
//! Every parameter is required: a row with a gap does not compile.

use super::def::*;
use super::inverse::LOST;
use super::inverse_row::Inverse;
use crate::attrs::AttrSpec;
use crate::index::ViewMap;
use crate::infer::{InferCx, InferError, Sig, Types};
use crate::scalar::S;

const BLANK: OpDef = OpDef {
    name: "",
    doc: "",
    arity: Arity::Exactly(0),
    attrs: &[],
    regions: &[],
    declared: false,
    infer: Infer::Rule(|_| Ok(Types::new())),
    body: Body::Constant,
    deriv: Deriv::Zero,
    inverses: LOST,
    domain: D,
    examples: &[],
};

type Rule = fn(&mut InferCx<'_>) -> Result<Types, InferError>;

/// An elementwise op of its operands alone.
pub(super) const fn map(
    name: &'static str,
    sig: Sig,
    domain: &'static [Domain],
    body: for<'r> fn(&[S<'r>]) -> S<'r>,
    partials: &'static [for<'r> fn(S<'r>, &[S<'r>]) -> S<'r>],
    inverses: &'static [Inverse],
) -> OpDef {
    assert!(partials.len() == sig.args.len(), "one partial an operand");
    OpDef {
        name,
        arity: Arity::Exactly(sig.args.len()),
        infer: Infer::Map(sig),
        body: Body::Map(MapBody::Plain(body)),
        deriv: Deriv::Partials(Partials::Plain(partials)),
        domain,
        inverses,
        ..BLANK
    }
}

/// An elementwise op that reads attributes.
#[allow(clippy::too_many_arguments)]
pub(super) const fn map_with(
    name: &'static str,
    sig: Sig,
    attrs: &'static [AttrSpec],
    domain: &'static [Domain],
    body: for<'r> fn(&MapCx<'_>, &[S<'r>]) -> S<'r>,
    partials: &'static [PartialWith],
    inverses: &'static [Inverse],
    examples: &'static [&'static str],
) -> OpDef {
    OpDef {
        name,
        arity: Arity::Exactly(sig.args.len()),
        attrs,
        infer: Infer::Map(sig),
        body: Body::Map(MapBody::With(body)),
        deriv: Deriv::Partials(Partials::With(partials)),
        domain,
        examples,
        inverses,
        ..BLANK
    }
}

/// An elementwise op whose derivative is zero everywhere.
pub(super) const fn map_zero(
    name: &'static str,
    sig: Sig,
    domain: &'static [Domain],
    body: for<'r> fn(&[S<'r>]) -> S<'r>,
    inverses: &'static [Inverse],
) -> OpDef {
    OpDef {
        name,
        arity: Arity::Exactly(sig.args.len()),
        infer: Infer::Map(sig),
        body: Body::Map(MapBody::Plain(body)),
        deriv: Deriv::Zero,
        domain,
        inverses,
        ..BLANK
    }
}

/// An elementwise change of element type; the result type is written.
pub(super) const fn retype(
    name: &'static str,
    sig: Sig,
    body: for<'r> fn(&MapCx<'_>, &[S<'r>]) -> S<'r>,
    deriv: Deriv,
    inverses: &'static [Inverse],
    examples: &'static [&'static str],
) -> OpDef {
    OpDef {
        name,
        arity: Arity::Exactly(1),
        declared: true,
        infer: Infer::Map(sig),
        body: Body::Map(MapBody::With(body)),
        deriv,
        examples,
        inverses,
        ..BLANK
    }
}

/// Whether an op's result type must be written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// It must.
    Must,
    /// It follows from the operands.
    Inferred,
}

/// A pure change of index; linear in all operands.
#[allow(clippy::too_many_arguments)]
pub(super) const fn view(
    name: &'static str,
    arity: Arity,
    attrs: &'static [AttrSpec],
    written: Written,
    infer: Rule,
    index: fn(&ViewCx<'_>) -> ViewMap,
    transpose: TransposeRule,
    inverses: &'static [Inverse],
    examples: &'static [&'static str],
) -> OpDef {
    OpDef {
        name,
        arity,
        attrs,
        declared: matches!(written, Written::Must),
        infer: Infer::Rule(infer),
        body: Body::View(index),
        deriv: Deriv::Linear(LinearSlots::All, transpose),
        examples,
        inverses,
        ..BLANK
    }
}

/// A reduction over the axes of attribute `axes`.
pub(super) const fn reduce(
    name: &'static str,
    attrs: &'static [AttrSpec],
    infer: Rule,
    monoid: Monoid,
    domain: &'static [Domain],
    deriv: Deriv,
    examples: &'static [&'static str],
) -> OpDef {
    OpDef {
        name,
        arity: Arity::Exactly(1),
        attrs,
        infer: Infer::Rule(infer),
        body: Body::Reduce(monoid),
        deriv,
        domain,
        examples,
        ..BLANK
    }
}

/// Any other op, by its parts.
#[allow(clippy::too_many_arguments)]
pub(super) const fn other(
    name: &'static str,
    arity: Arity,
    attrs: &'static [AttrSpec],
    written: Written,
    infer: Rule,
    body: Body,
    domain: &'static [Domain],
    deriv: Deriv,
    examples: &'static [&'static str],
) -> OpDef {
    OpDef {
        name,
        arity,
        attrs,
        declared: matches!(written, Written::Must),
        infer: Infer::Rule(infer),
        body,
        deriv,
        domain,
        examples,
        ..BLANK
    }
}

/// An op with nested regions; result types are written.
pub(super) const fn region(
    name: &'static str,
    arity: Arity,
    attrs: &'static [AttrSpec],
    regions: &'static [&'static str],
    infer: Rule,
    control: Control,
    examples: &'static [&'static str],
) -> OpDef {
    OpDef {
        name,
        arity,
        attrs,
        regions,
        declared: true,
        infer: Infer::Rule(infer),
        body: Body::Region(control),
        deriv: Deriv::Structural,
        examples,
        ..BLANK
    }
}

/// An op that is short for others.
pub(super) const fn composed(
    name: &'static str,
    arity: Arity,
    attrs: &'static [AttrSpec],
    check: Check,
    compose: Compose,
    domain: &'static [Domain],
    examples: &'static [&'static str],
) -> OpDef {
    OpDef {
        name,
        arity,
        attrs,
        infer: Infer::Composed(check),
        body: Body::Composed(compose),
        deriv: Deriv::Structural,
        domain,
        examples,
        ..BLANK
    }
}

/// An op that is short for others, and has derivative rules of its own: those are in reach where it is differentiated
/// before it is written out. Its operands and results may have any number of batch axes, the same, before their own.
#[allow(clippy::too_many_arguments)]
pub(super) const fn ruled(
    name: &'static str,
    arity: Arity,
    attrs: &'static [AttrSpec],
    check: Check,
    compose: Compose,
    domain: &'static [Domain],
    deriv: Deriv,
    examples: &'static [&'static str],
) -> OpDef {
    OpDef { deriv, ..composed(name, arity, attrs, check, compose, domain, examples) }
}
