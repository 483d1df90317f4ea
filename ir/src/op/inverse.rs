//! Inverses: how an operand of an op, or the partial derivative in it, follows from the answer and the other operands.
//!
//! An inverse is an entry of the op's row. It says for which types it holds, what must be known of the operands' ranges, and
//! how far what it gives may be from the operand. A planner may then keep the answer alone.

use super::def::{Deriv, RuleCx};
use super::inverse_row::{Accuracy, FloatRange, Inverse, InverseBody, InverseError, Recovery};
use super::opcode::Op;
use super::tensor_program::tensor_program;
use crate::attrs::Attrs;
use crate::builder::Builder;
use crate::dtype::{DType, DTypeSet};
use crate::entity::Value;
use crate::scalar::{Recorder, S, SOp, ScalarProgram};
use crate::types::TensorType;
use smallvec::SmallVec;

impl Inverse {
    /// Whether it is for an operand of this type, of an instruction that gives a type.
    pub fn accepts(&self, operand: DType, result: DType) -> bool {
        let stated = match self.accuracy {
            Accuracy::Exact => true,
            Accuracy::Approximate(error) => error.ulps(operand).is_some(),
        };
        let back = match self.recovery {
            Recovery::ConvertedBack => embeds(operand, result),
            Recovery::Elementwise(_) | Recovery::Transposed => true,
        };
        stated && back && self.types.contains(operand)
    }

    /// The scalar program of an elementwise inverse: parameter 0 is the answer, the others are the operands. `None` for
    /// other recoveries. 16-bit floats count as `f32` here.
    pub fn program(&self, args: &[DType], result: DType) -> Option<ScalarProgram> {
        let Recovery::Elementwise(body) = self.recovery else { return None };
        let params: SmallVec<[DType; 4]> =
            std::iter::once(result).chain(args.iter().copied()).map(DType::compute).collect();
        Some(Recorder::record_any(&params, |x| body(x[0], &x[1..])))
    }

    /// The operands that it reads beside the answer.
    pub fn reads(&self, args: &[DType], result: DType) -> SmallVec<[usize; 2]> {
        let Some(program) = self.program(args, result) else { return SmallVec::new() };
        let live = program.live();
        let read = |k: usize| {
            let is_it = |op: SOp| matches!(op, SOp::Param(p) if p as usize == k + 1);
            program.insts.iter().any(|(v, inst)| live[v.as_u32() as usize] && is_it(inst.op))
        };
        (0..args.len()).filter(|&k| read(k)).collect()
    }

    /// Writes the operand's instructions: `types` are the operands' types, `args` those of the operands that
    /// [`Inverse::reads`] lists.
    pub fn write(
        &self,
        b: &mut Builder,
        (op, attrs): (Op, &Attrs),
        y: Value,
        args: &[Option<Value>],
        types: &[TensorType],
    ) -> Option<Value> {
        let ty = &types[self.operand];
        match self.recovery {
            Recovery::Elementwise(_) => {
                let dtypes: Vec<DType> = types.iter().map(|t| t.dtype).collect();
                let program = self.program(&dtypes, b.ty(y).dtype)?;
                let params: Vec<Option<Value>> =
                    std::iter::once(Some(y)).chain(args.iter().copied()).collect();
                tensor_program(b, &program, &params, ty)
            }
            Recovery::ConvertedBack => {
                Some(b.op_as(Op::ConvertElementType, &[y], Attrs::none(), ty))
            }
            Recovery::Transposed => {
                let Deriv::Linear(_, transpose) = op.def().deriv else { return None };
                let cx = RuleCx { args: &[], results: &[], attrs, types };
                transpose(b, &cx, &[true], &[Some(y)]).into_iter().next()?
            }
        }
    }
}

/// Whether every number of a type comes back from another.
fn embeds(from: DType, to: DType) -> bool {
    // Digits of the integers that a float has without a gap.
    let digits = |d: DType| match d {
        DType::F64 => 53,
        DType::F32 => 24,
        DType::F16 => 11,
        DType::BF16 => 8,
        d => d.bits() - u32::from(d.is_signed_int()),
    };
    match (from.is_float(), to.is_float()) {
        _ if from == to || [from, to].contains(&DType::Token) => false,
        (true, true) => to == DType::F64 || to == DType::F32 && from != DType::F64,
        (true, false) => false,
        (false, true) => digits(from) <= digits(to),
        // Integers wrap around.
        (false, false) => from.bits() <= to.bits(),
    }
}

impl Op {
    /// Its inverses: of several for one operand the first that holds is the best.
    pub fn inverses(self) -> &'static [Inverse] {
        self.def().inverses
    }
}

/// Holds whatever the operands are.
pub(super) fn always(_: &[FloatRange]) -> bool {
    true
}

/// Nothing follows from the answer.
pub(super) const LOST: &[Inverse] = &[];

/// An exact inverse for an operand of these types.
const fn exact(operand: usize, types: DTypeSet, body: InverseBody) -> Inverse {
    Inverse {
        operand,
        partial: false,
        types,
        accuracy: Accuracy::Exact,
        holds: always,
        asks: "",
        recovery: Recovery::Elementwise(body),
    }
}

/// An inverse for a float operand, within a number of units for `f32` and `f64`.
const fn near(
    operand: usize,
    [f32, f64]: [f64; 2],
    (asks, holds): (&'static str, fn(&[FloatRange]) -> bool),
    body: InverseBody,
) -> Inverse {
    Inverse {
        operand,
        partial: false,
        types: DTypeSet::Float,
        accuracy: Accuracy::Approximate(InverseError { f32, f64, tiny: false, singular: false }),
        holds,
        asks,
        recovery: Recovery::Elementwise(body),
    }
}

/// As [`near`], of the partial derivative in the operand.
const fn partial(of: Inverse) -> Inverse {
    Inverse { partial: true, ..of }
}

/// As [`near`], where a tiny answer has lost digits.
const fn but_tiny(of: Inverse) -> Inverse {
    match of.accuracy {
        Accuracy::Exact => of,
        Accuracy::Approximate(e) => {
            Inverse { accuracy: Accuracy::Approximate(InverseError { tiny: true, ..e }), ..of }
        }
    }
}

/// As [`near`], which is NaN where the other operand is 0, infinite or NaN.
const fn or_singular(of: Inverse) -> Inverse {
    match of.accuracy {
        Accuracy::Exact => of,
        Accuracy::Approximate(e) => {
            Inverse { accuracy: Accuracy::Approximate(InverseError { singular: true, ..e }), ..of }
        }
    }
}

/// `x`, but a finite number where the answer is one: the last digits of an answer may be those of an operand beyond the
/// greatest number.
fn finite_as<'r>(y: S<'r>, x: S<'r>) -> S<'r> {
    finite_unless(y.abs().eq(f64::INFINITY), x)
}

/// `x`, but a finite number unless a truth value holds.
fn finite_unless<'r>(infinite: S<'r>, x: S<'r>) -> S<'r> {
    let most = match x.dtype() {
        DType::F64 => f64::MAX,
        _ => f64::from(f32::MAX),
    };
    infinite.select(x, x.min(x.lit(most)).max(x.lit(-most)))
}

// A difference of numbers of unlike size loses the smaller one, so ranges must say that the recovered term is the larger
// and that nothing cancels.
fn larger_term(this: FloatRange, other: FloatRange) -> bool {
    let most = 2f64.powi(100);
    !other.nan
        && (other.within(0.0, most) && this.within(other.hi, f64::INFINITY)
            || other.within(-most, -0.0) && this.within(f64::NEG_INFINITY, other.lo))
}

fn negated(r: FloatRange) -> FloatRange {
    FloatRange { lo: -r.hi, hi: -r.lo, nan: r.nan }
}

fn scale(r: FloatRange) -> bool {
    !r.nan && r.magnitudes_within(2f64.powi(-23), 1.0)
}

const LARGER: &str = "the operand has the larger magnitude, and both have one sign";

pub(super) const ADD: &[Inverse] = &[
    exact(0, DTypeSet::Int, |y, x| y - x[1]),
    exact(1, DTypeSet::Int, |y, x| y - x[0]),
    near(0, [2.0, 2.0], (LARGER, |r| larger_term(r[0], r[1])), |y, x| y - x[1]),
    near(1, [2.0, 2.0], (LARGER, |r| larger_term(r[1], r[0])), |y, x| y - x[0]),
];

const LARGER_OPPOSITE: &str = "the operand has the larger magnitude, and both have opposite signs";

pub(super) const SUB: &[Inverse] = &[
    exact(0, DTypeSet::Int, |y, x| y + x[1]),
    exact(1, DTypeSet::Int, |y, x| x[0] - y),
    near(0, [2.0, 2.0], (LARGER_OPPOSITE, |r| larger_term(r[0], negated(r[1]))), |y, x| y + x[1]),
    near(1, [2.0, 2.0], (LARGER_OPPOSITE, |r| larger_term(negated(r[1]), r[0])), |y, x| x[0] - y),
];

const SCALE: &str = "the other operand is no NaN, of one sign and of a magnitude in [2^-23, 1]";

const MULTIPLICAND: Inverse =
    but_tiny(near(0, [3.0, 3.0], (SCALE, |r| scale(r[1])), |y, x| finite_as(y, y / x[1])));
const MULTIPLIER: Inverse =
    but_tiny(near(1, [3.0, 3.0], (SCALE, |r| scale(r[0])), |y, x| finite_as(y, y / x[0])));

pub(super) const MUL: &[Inverse] =
    &[MULTIPLICAND, MULTIPLIER, or_singular(MULTIPLICAND), or_singular(MULTIPLIER)];

const DIVIDEND: Inverse = but_tiny(near(
    0,
    [3.0, 3.0],
    ("the divisor is no NaN, of one sign and of a magnitude in [1, 2^23]", |r| {
        !r[1].nan && r[1].magnitudes_within(1.0, 2f64.powi(23))
    }),
    |y, x| finite_as(y, y * x[1]),
));

// The sum that a softmax divides by is in range, or 0, infinite or NaN.
pub(super) const DIV: &[Inverse] = &[
    DIVIDEND,
    or_singular(DIVIDEND),
    // The least quotient, 1 / MAX, is subnormal and has two digits less.
    near(
        1,
        [6.0, 6.0],
        (
            "the dividend is no NaN, of one sign and of a magnitude in [1, 2^20], the divisor of one sign and at least 2^-100",
            |r| {
                !r[0].nan
                    && r[0].magnitudes_within(1.0, 2f64.powi(20))
                    && r[1].magnitudes_within(2f64.powi(-100), f64::INFINITY)
            },
        ),
        |y, x| finite_unless(y.eq(0.0), x[0] / y),
    ),
];

pub(super) const NEG: &[Inverse] = &[exact(0, DTypeSet::Number, |y, _| -y)];

pub(super) const NOT: &[Inverse] = &[exact(0, DTypeSet::IntBool, |y, _| !y)];

pub(super) const XOR: &[Inverse] =
    &[exact(0, DTypeSet::IntBool, |y, x| y ^ x[1]), exact(1, DTypeSet::IntBool, |y, x| y ^ x[0])];

pub(super) const SAME: &[Inverse] = &[exact(0, DTypeSet::Any, |y, _| y)];

pub(super) const SQUARE: &[Inverse] = &[near(
    0,
    [2.0, 2.0],
    ("x in [2^-60, 2^60]", |r| r[0].within(2f64.powi(-60), 2f64.powi(60))),
    |y, _| y.sqrt(),
)];

pub(super) const EXP: &[Inverse] = &[near(
    0,
    [5.0, 5.0],
    ("the magnitude of x in [0.5, 80], of one sign", |r| r[0].magnitudes_within(0.5, 80.0)),
    |y, _| y.log(),
)];

pub(super) const EXP2: &[Inverse] = &[near(
    0,
    [7.0, 7.0],
    ("the magnitude of x in [0.5, 100], of one sign", |r| r[0].magnitudes_within(0.5, 100.0)),
    |y, _| y.log() * std::f64::consts::LOG2_E,
)];

pub(super) const EXPM1: &[Inverse] =
    &[near(0, [6.0, 6.0], ("x in [-1, 80]", |r| r[0].within(-1.0, 80.0)), |y, _| y.log1p())];

// The error grows with the answer: its last digit is that many of the operand.
pub(super) const LOG: &[Inverse] = &[near(
    0,
    [130.0, 1026.0],
    ("x is never below +0", |r| r[0].within(0.0, f64::INFINITY)),
    |y, _| finite_as(y, y.exp()),
)];

// Nearer to -1 the operand itself says nothing of 1 + x.
pub(super) const LOG1P: &[Inverse] = &[near(
    0,
    [164.0, 1284.0],
    ("x is never below -0.5", |r| r[0].within(-0.5, f64::INFINITY)),
    |y, _| finite_as(y, y.expm1()),
)];

pub(super) const SQRT: &[Inverse] =
    &[near(0, [3.0, 3.0], ("x is never below +0", |r| r[0].within(0.0, f64::INFINITY)), |y, _| {
        finite_as(y, y * y)
    })];

pub(super) const RSQRT: &[Inverse] = &[near(
    0,
    [10.0, 10.0],
    ("x is never below +0", |r| r[0].within(0.0, f64::INFINITY)),
    |y, _| {
        // The square of y may overflow where that of its reciprocal does not.
        let root = 1.0 / y;
        finite_as(root, root * root)
    },
)];

pub(super) const CBRT: &[Inverse] =
    &[near(0, [10.0, 10.0], ("", always), |y, _| finite_as(y, y * (y * y)))];

pub(super) const LOGISTIC: &[Inverse] =
    &[near(0, [8.0, 8.0], ("x in [-80, -1]", |r| r[0].within(-80.0, -1.0)), |y, _| {
        y.log() - (-y).log1p()
    })];

/// Whether a range is zero alone.
fn zero(r: FloatRange) -> bool {
    !r.nan && r.within(-0.0, 0.0)
}

// Of a softplus, the operand is near 0 where the answer is near log 2, so its last digits are lost; its derivative is
// 1 - e^-y, which has those of the answer.
pub(super) const LOGADDEXP: &[Inverse] = &[
    partial(but_tiny(near(0, [16.0, 16.0], ("x1 is 0", |r| zero(r[1])), |y, _| -(-y).expm1()))),
    partial(but_tiny(near(1, [16.0, 16.0], ("x0 is 0", |r| zero(r[0])), |y, _| -(-y).expm1()))),
];

pub(super) const TANH: &[Inverse] = &[near(
    0,
    [10.0, 10.0],
    ("the magnitude of x at most 1", |r| r[0].within(-1.0, 1.0)),
    |y, _| y.atanh(),
)];

pub(super) const WIDENED: &[Inverse] = &[Inverse {
    operand: 0,
    partial: false,
    types: DTypeSet::Any,
    accuracy: Accuracy::Exact,
    holds: always,
    asks: "the result's type has every number of the operand's",
    recovery: Recovery::ConvertedBack,
}];

pub(super) const PERMUTED: &[Inverse] = &[Inverse {
    operand: 0,
    partial: false,
    types: DTypeSet::Any,
    accuracy: Accuracy::Exact,
    holds: always,
    asks: "",
    recovery: Recovery::Transposed,
}];
