//! The syntax tree: instructions with named operands, attributes, regions and types, as slices of the text.

use adfuse_ir::{Provenance, SourceLine, Span};
use std::fmt;
use std::sync::Arc;

/// A type as written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Type<'a> {
    /// `tensor<2x3xf32>`; an extent that is not known is `None`.
    Tensor(Vec<Option<u64>>, &'a str),
    /// Any other type, as its text.
    Other(&'a str),
}

impl Type<'_> {
    /// The extents of a tensor.
    pub(crate) fn extents(&self) -> &[Option<u64>] {
        match self {
            Type::Tensor(extents, _) => extents,
            Type::Other(_) => &[],
        }
    }

    /// Whether an extent is not written.
    pub(crate) fn is_dynamic(&self) -> bool {
        self.extents().contains(&None)
    }

    /// Whether it is of complex numbers.
    pub(crate) fn is_complex(&self) -> bool {
        matches!(self, Type::Tensor(_, element) if element.starts_with("complex<"))
    }
}

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Type::Tensor(extents, element) = self else {
            let Type::Other(text) = self else { return Ok(()) };
            return f.write_str(text);
        };
        f.write_str("tensor<")?;
        for extent in extents {
            match extent {
                Some(n) => write!(f, "{n}x")?,
                None => f.write_str("?x")?,
            }
        }
        write!(f, "{element}>")
    }
}

/// Element values as written, still to be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DenseText<'a> {
    /// What stands between the angle brackets.
    pub(crate) payload: &'a str,
    /// Their type.
    pub(crate) ty: Option<Type<'a>>,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Attribute<'a> {
    /// `1`, `-0.5`, `0x7F`.
    Number(&'a str),
    /// A bare word, such as `LT` or `true`.
    Word(&'a str),
    /// A quoted string, escapes as they stand.
    Str(&'a str),
    /// `@name`.
    Symbol(&'a str),
    /// `[..]` and `array<i64: ..>`; an enumeration `#dialect<kind WORD>` is a list of its words.
    List(Vec<Attribute<'a>>),
    /// `{..}` and `#dialect.name<key = value>`.
    Dict(Vec<(&'a str, Attribute<'a>)>),
    /// `0:4:2`.
    Range(Vec<&'a str>),
    /// `[1] x [0]`, and what follows `->`.
    Several(Vec<Attribute<'a>>),
    /// `dense<..>`.
    Dense(DenseText<'a>),
    /// A type.
    Type(Type<'a>),
}

/// An operand: the name of a value, and which of several results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OperandName<'a> {
    pub(crate) name: &'a str,
    pub(crate) result: u32,
}

/// A parameter of a function or of a region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ParamTree<'a> {
    pub(crate) name: &'a str,
    pub(crate) ty: Type<'a>,
    /// The name of the extent that it is, where JAX gives one to it.
    pub(crate) extent: Option<&'a str>,
    /// What stands between the brackets of `loc(..)`, or nothing.
    pub(crate) location: &'a str,
    /// The name of the argument in the program that was traced, where its location tells it.
    pub(crate) label: Option<String>,
}

/// A region of one block.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RegionTree<'a> {
    pub(crate) params: Vec<ParamTree<'a>>,
    pub(crate) insts: Vec<Instruction<'a>>,
}

/// One instruction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Instruction<'a> {
    /// Its op, with the dialect: `stablehlo.add`.
    pub(crate) op: &'a str,
    /// Names of results, and how many each stands for.
    pub(crate) results: Vec<(&'a str, u32)>,
    pub(crate) operands: Vec<OperandName<'a>>,
    /// Initial values that stand beside operands, as `init: %c`.
    pub(crate) inits: Vec<OperandName<'a>>,
    /// Names that operands have inside of the regions, as in `while(%i = %0)`.
    pub(crate) bound: Vec<&'a str>,
    pub(crate) attrs: Vec<(&'a str, Attribute<'a>)>,
    /// Words, lists and strings without a name, in order.
    pub(crate) words: Vec<Attribute<'a>>,
    /// The function that it calls, or the name of a custom call.
    pub(crate) symbol: Option<&'a str>,
    pub(crate) regions: Vec<RegionTree<'a>>,
    pub(crate) operand_types: Option<Vec<Type<'a>>>,
    /// Result types, or the types that a form without an arrow lists.
    pub(crate) types: Vec<Type<'a>>,
    pub(crate) span: Span,
    /// What stands between the brackets of `loc(..)`, or nothing.
    pub(crate) location: &'a str,
    /// The line of the program that was traced, where its location tells it.
    pub(crate) line: Option<Arc<SourceLine>>,
}

/// A function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FunctionTree<'a> {
    pub(crate) name: &'a str,
    pub(crate) private: bool,
    pub(crate) results: Vec<Type<'a>>,
    pub(crate) body: RegionTree<'a>,
    pub(crate) span: Span,
}

impl From<&Instruction<'_>> for Provenance {
    fn from(inst: &Instruction<'_>) -> Provenance {
        Provenance { span: Some(inst.span), line: inst.line.clone() }
    }
}

impl<'a> Instruction<'a> {
    /// The attribute of this name.
    pub(crate) fn attr(&self, name: &str) -> Option<&Attribute<'a>> {
        self.attrs.iter().find(|(n, _)| *n == name).map(|(_, a)| a)
    }

    /// Number of results.
    pub(crate) fn result_count(&self) -> usize {
        self.results.iter().map(|&(_, n)| n as usize).sum()
    }

    /// The type of result number `k`, as written.
    pub(crate) fn result_type(&self, k: usize) -> Option<&Type<'a>> {
        match self.operand_types.is_none() && self.result_count() == 1 {
            true => self.types.last(),
            false => self.types.get(k),
        }
    }

    /// All operands: those of pairs `(%x init: %c)` first, their initial values after them.
    pub(crate) fn all_operands(&self) -> impl Iterator<Item = OperandName<'a>> + '_ {
        self.operands.iter().chain(&self.inits).copied()
    }
}

impl<'a> Attribute<'a> {
    /// A bare word, or that of an enumeration.
    pub(crate) fn word(&self) -> Option<&'a str> {
        match self {
            Attribute::Word(w) | Attribute::Str(w) => Some(w),
            Attribute::List(items) => items.last().and_then(Attribute::word),
            _ => None,
        }
    }

    /// The entry of this name.
    pub(crate) fn entry(&self, name: &str) -> Option<&Attribute<'a>> {
        match self {
            Attribute::Dict(entries) => entries.iter().find(|(n, _)| *n == name).map(|(_, a)| a),
            _ => None,
        }
    }
}
