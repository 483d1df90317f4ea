//! Primitives: one row each, which says the name, the number of operands, the types and the cost.
//!
//! What a primitive computes is an arm of the interpreter (`eval.rs`), and an arm of each engine. Each of these matches
//! on all primitives by name, so that a new row does not compile before every engine has its arm.

use super::table::Table;
use crate::dtype::DType;

/// What is known about a primitive.
#[derive(Clone, Copy, Debug)]
pub struct PrimDef {
    /// Name in text.
    pub name: &'static str,
    /// What it computes, for people.
    pub doc: &'static str,
    /// Number of operands.
    pub arity: usize,
    /// The types it is defined on.
    pub typing: Typing,
    /// Its cost, in additions; conversions are free beside what they convert.
    pub weight: u32,
}

/// The types that a primitive is defined on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Typing {
    /// Operands and result share a type, a float of at least 32 bits or an integer.
    Numbers,
    /// As `Numbers`, or `bool`.
    Ordered,
    /// Operands and result share a float type of at least 32 bits.
    Floats,
    /// Operands and result share an integer type, or `bool`.
    Bits,
    /// Operands and result share an integer type.
    Integers,
    /// Operands and result share `u32`, `i32` or `i64`.
    Wide,
    /// Operands share a type of `Ordered`; the result is `bool`.
    Comparison,
    /// A `bool`, and two operands of the result's type.
    Choice,
    /// Any types.
    Conversion,
    /// Two types of one width.
    SameWidth,
    /// An `i32` index; the result is an entry of the table.
    Entry(Table),
}

impl Typing {
    /// Whether an operation with operands of these types, as many as it takes, gives this result.
    pub fn allows(self, args: &[DType], result: DType) -> bool {
        let first = args[0];
        let same = args.iter().all(|&a| a == first);
        let keeps = same && result == first;
        let float = matches!(first, DType::F32 | DType::F64);
        let int = first.is_int();
        let bool = first == DType::Bool;
        match self {
            Typing::Numbers => keeps && (float || int),
            Typing::Ordered => keeps && (float || int || bool),
            Typing::Floats => keeps && float,
            Typing::Bits => keeps && (int || bool),
            Typing::Integers => keeps && int,
            Typing::Wide => keeps && matches!(first, DType::U32 | DType::I32 | DType::I64),
            Typing::Comparison => same && (float || int || bool) && result == DType::Bool,
            Typing::Choice => bool && args[1] == args[2] && result == args[1],
            Typing::Conversion => first != DType::Token,
            Typing::SameWidth => first != DType::Token && first.bits() == result.bits(),
            Typing::Entry(table) => first == DType::I32 && result == table.dtype(),
        }
    }
}

macro_rules! prims {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal, $arity:literal, $typing:ident, $weight:literal;)*) => {
        /// A scalar primitive: one IEEE 754 or integer operation with one defined result.
        ///
        /// Operands of one instruction share a type unless said otherwise; the result has that type too.
        /// Floats are `f32` and `f64` only: 16-bit floats are converted at the borders of a program.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Prim {
            $($(#[doc = $doc])* $name,)*
            /// Entry of a constant table at an `i32` index, clamped to the table.
            Lookup(Table),
        }

        impl Prim {
            /// Every primitive.
            pub const ALL: &'static [Prim] =
                &[$(Prim::$name,)* Prim::Lookup(Table::TwoOverPi)];

            /// Its row.
            pub const fn def(self) -> PrimDef {
                match self {
                    $(Prim::$name => PrimDef {
                        name: $text,
                        doc: concat!($($doc),*),
                        arity: $arity,
                        typing: Typing::$typing,
                        weight: $weight,
                    },)*
                    Prim::Lookup(table) => PrimDef {
                        name: "lookup",
                        doc: " Entry of a constant table at an `i32` index, clamped to the table.",
                        arity: 1,
                        typing: Typing::Entry(table),
                        weight: 1,
                    },
                }
            }
        }
    };
}

prims! {
    /// Sum; integers wrap.
    Add = "add", 2, Numbers, 1;
    /// Difference; integers wrap.
    Sub = "sub", 2, Numbers, 1;
    /// Product; integers wrap.
    Mul = "mul", 2, Numbers, 1;
    /// Quotient. Integers truncate; `x / 0` is -1 (all ones) and `MIN / -1` is `MIN`.
    Div = "div", 2, Numbers, 4;
    /// Exact remainder with the sign of the dividend (C's `fmod`). Integers: `x % 0` is `x`,
    /// `MIN % -1` is 0.
    Rem = "rem", 2, Numbers, 4;
    /// Negation; flips the sign bit of a float; integers wrap.
    Neg = "neg", 1, Numbers, 1;
    /// Absolute value; clears the sign bit of a float; integers wrap (`MIN` stays).
    Abs = "abs", 1, Numbers, 1;
    /// `a * b + c` with one rounding. Floats only.
    Fma = "fma", 3, Floats, 1;
    /// Correctly rounded square root. Floats only.
    Sqrt = "sqrt", 1, Floats, 4;
    /// The smaller; NaN if either is NaN; `min(-0, +0)` is `-0`.
    Min = "min", 2, Ordered, 1;
    /// The larger; NaN if either is NaN; `max(-0, +0)` is `+0`.
    Max = "max", 2, Ordered, 1;
    /// Rounds toward negative infinity. Floats only.
    Floor = "floor", 1, Floats, 1;
    /// Rounds toward positive infinity. Floats only.
    Ceil = "ceil", 1, Floats, 1;
    /// Rounds to the nearest integer, ties to even. Floats only.
    RoundEven = "roundeven", 1, Floats, 1;
    /// Rounds toward zero. Floats only.
    Trunc = "trunc", 1, Floats, 1;
    /// Magnitude of the first operand, sign of the second. Floats only.
    CopySign = "copysign", 2, Floats, 1;
    /// Bitwise and; logical on `bool`.
    And = "and", 2, Bits, 1;
    /// Bitwise or; logical on `bool`.
    Or = "or", 2, Bits, 1;
    /// Bitwise exclusive or; logical on `bool`.
    Xor = "xor", 2, Bits, 1;
    /// Bitwise complement; logical on `bool`.
    Not = "not", 1, Bits, 1;
    /// Left shift; a count outside `0..bits` gives 0.
    Shl = "shl", 2, Integers, 1;
    /// Logical right shift (zeros enter, whatever the type's sign); a count outside gives 0.
    ShrL = "shrl", 2, Integers, 1;
    /// Arithmetic right shift (copies of the top bit enter, whatever the type's sign); a count
    /// outside gives the sign's fill.
    ShrA = "shra", 2, Integers, 1;
    /// High half of the product of the operands read as unsigned. `u32`, `i32` and `i64` only.
    MulHi = "mulhi", 2, Wide, 1;
    /// Number of leading zero bits. Integers only.
    Clz = "clz", 1, Integers, 1;
    /// Number of set bits. Integers only.
    PopCount = "popcount", 1, Integers, 1;
    /// `a == b`, giving `bool`; false on NaN.
    Eq = "eq", 2, Comparison, 1;
    /// `a != b`, giving `bool`; true on NaN.
    Ne = "ne", 2, Comparison, 1;
    /// `a < b`, giving `bool`; false on NaN.
    Lt = "lt", 2, Comparison, 1;
    /// `a <= b`, giving `bool`; false on NaN.
    Le = "le", 2, Comparison, 1;
    /// `a > b`, giving `bool`; false on NaN.
    Gt = "gt", 2, Comparison, 1;
    /// `a >= b`, giving `bool`; false on NaN.
    Ge = "ge", 2, Comparison, 1;
    /// `p ? a : b`; `p` is `bool`, `a` and `b` share the result's type.
    Select = "select", 3, Choice, 1;
    /// Converts to the instruction's type as [`Literal::convert`](crate::Literal::convert) defines it.
    Convert = "convert", 1, Conversion, 0;
    /// Reinterprets the bits as the instruction's type, which has the same width.
    Bitcast = "bitcast", 1, SameWidth, 1;
}

impl Prim {
    /// The name in text; that of a look-up is followed by its table.
    pub const fn name(self) -> &'static str {
        self.def().name
    }

    /// Number of operands.
    pub const fn arity(self) -> usize {
        self.def().arity
    }

    /// Whether the result is `bool` whatever the operands' type.
    pub fn is_compare(self) -> bool {
        self.def().typing == Typing::Comparison
    }
}
