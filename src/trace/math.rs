//! Elementwise methods: arithmetic, functions, comparisons, choices and bits.

use super::record::apply;
use super::{Tensor, TensorOperand};
use crate::ir::attrs::Attrs;
use crate::ir::{DType, Op};

/// The doc of a method with an example: what it is, the operand, the arguments and the result.
macro_rules! example {
    ($({ $($item:tt)* } $says:expr, $call:expr, $result:expr;)*) => {
        $(
            #[doc = $says]
            #[doc = ""]
            #[doc = "```"]
            #[doc = "# use adfuse::prelude::*;"]
            #[doc = concat!("let y = evaluate(|t| ", $call, ")?;")]
            #[doc = concat!("assert_eq!(y.to_f64s(), ", $result, ");")]
            #[doc = "# Ok::<(), Diagnostic>(())"]
            #[doc = "```"]
            #[track_caller]
            #[must_use]
            $($item)*
        )*
    };
}
pub(super) use example;

macro_rules! unary {
    ($($name:ident $op:ident $says:literal $x:literal $y:literal;)*) => {
        impl Tensor {
            $(example! {
                { pub fn $name(&self) -> Tensor {
                    apply(&self.state, Op::$op, &[self], Attrs::none(), None)
                } }
                $says, concat!("t.constant(", $x, ").", stringify!($name), "()"), $y;
            })*
        }
    };
}

macro_rules! binary {
    ($($name:ident $op:ident $says:literal $x:literal $other:literal $y:literal;)*) => {
        impl Tensor {
            $(example! {
                { pub fn $name(&self, other: impl TensorOperand) -> Tensor {
                    self.binary(Op::$op, &other.beside(self))
                } }
                $says, concat!("t.constant(", $x, ").", stringify!($name), "(", $other, ")"), $y;
            })*
        }
    };
}

unary! {
    abs Abs "Absolute value; derivative 0 at 0." "[-1.5, 2.0]" "[1.5, 2.0]";
    sign Sign "-1, 0 or 1 by sign; keeps NaN and the sign of zero." "[-3.0, 0.0, 2.0]" "[-1.0, 0.0, 1.0]";
    square Square "Square." "[-3.0, 2.0]" "[9.0, 4.0]";
    relu Relu "`max(x, 0)`, with derivative 0 at 0." "[-1.0, 2.0]" "[0.0, 2.0]";
    floor Floor "The largest integer that is not above." "[-1.5, 2.5]" "[-2.0, 2.0]";
    ceil Ceil "The smallest integer that is not below." "[-1.5, 2.5]" "[-1.0, 3.0]";
    round Round "The nearest integer, halves away from zero." "[-1.5, 2.5]" "[-2.0, 3.0]";
    round_nearest_even RoundNearestEven "The nearest integer, halves to even." "[-1.5, 2.5]" "[-2.0, 2.0]";
    trunc Trunc "The integer part." "[-1.5, 2.5]" "[-1.0, 2.0]";
    exp Exp "`e^x`." "[0.0]" "[1.0]";
    exp2 Exp2 "`2^x`." "[3.0, -1.0]" "[8.0, 0.5]";
    expm1 Expm1 "`e^x - 1`, exact near 0." "[0.0, 1e-20]" "[0.0, 1e-20]";
    log Log "Natural logarithm." "[1.0]" "[0.0]";
    log1p Log1p "`log(1 + x)`, exact near 0." "[0.0, 1e-20]" "[0.0, 1e-20]";
    sqrt Sqrt "Square root." "[4.0, 0.25]" "[2.0, 0.5]";
    rsqrt Rsqrt "`1 / sqrt(x)`." "[4.0, 0.25]" "[0.5, 2.0]";
    cbrt Cbrt "Cube root." "[8.0, -27.0]" "[2.0, -3.0]";
    logistic Logistic "`1 / (1 + e^-x)`; [`Tensor::sigmoid`] is the same." "[0.0]" "[0.5]";
    erf Erf "Error function." "[0.0]" "[0.0]";
    erfc Erfc "Complementary error function, `1 - erf(x)`." "[0.0]" "[1.0]";
    erf_inv ErfInv "Inverse of the error function." "[0.0]" "[0.0]";
    lgamma Lgamma "Logarithm of the gamma function's magnitude." "[1.0, 2.0]" "[0.0, 0.0]";
    sin Sin "Sine (radians)." "[0.0]" "[0.0]";
    cos Cos "Cosine (radians)." "[0.0]" "[1.0]";
    tan Tan "Tangent (radians)." "[0.0]" "[0.0]";
    asin Asin "Inverse sine." "[0.0]" "[0.0]";
    acos Acos "Inverse cosine." "[1.0]" "[0.0]";
    atan Atan "Inverse tangent." "[0.0]" "[0.0]";
    sinh Sinh "Hyperbolic sine." "[0.0]" "[0.0]";
    cosh Cosh "Hyperbolic cosine." "[0.0]" "[1.0]";
    tanh Tanh "Hyperbolic tangent." "[0.0, 40.0]" "[0.0, 1.0]";
    asinh Asinh "Inverse hyperbolic sine." "[0.0]" "[0.0]";
    acosh Acosh "Inverse hyperbolic cosine." "[1.0]" "[0.0]";
    atanh Atanh "Inverse hyperbolic tangent." "[0.0]" "[0.0]";
    is_finite IsFinite "Whether it is neither infinite nor NaN." "[1.0, f64::NAN]" "[1.0, 0.0]";
    stop_gradient StopGradient "The same, with derivative zero." "[1.0]" "[1.0]";
    population_count PopulationCount "Number of set bits of integers." "[7, 8]" "[3.0, 1.0]";
    clz Clz "Number of leading zero bits of integers." "[1, -1]" "[31.0, 0.0]";
}

binary! {
    max Max "The larger; NaN if either is; ties split the derivative in halves." "[1.0, 5.0]" "2.0" "[2.0, 5.0]";
    min Min "The smaller; NaN if either is; ties split the derivative in halves." "[1.0, 5.0]" "2.0" "[1.0, 2.0]";
    pow Pow "`x^y`; [`Tensor::powi`] has an integer exponent and takes negative numbers." "[4.0, 9.0]" "0.5" "[2.0, 3.0]";
    atan2 Atan2 "Angle of the point (`other`, this)." "[0.0]" "1.0" "[0.0]";
    rem Rem "Exact remainder with the sign of the dividend, as `%`." "[5.0, -5.0]" "3.0" "[2.0, -2.0]";
    logaddexp Logaddexp "`log(e^x + e^y)` without overflow." "[1000.0]" "0.0" "[1000.0]";
    xlogy Xlogy "`x log(y)`, and 0 where x is 0, whatever y is." "[0.0, 2.0]" "1.0" "[0.0, 0.0]";
    eq Eq "Whether they are equal." "[1.0, 2.0]" "2.0" "[0.0, 1.0]";
    ne Ne "Whether they differ." "[1.0, 2.0]" "2.0" "[1.0, 0.0]";
    lt Lt "Whether this is less." "[1.0, 2.0]" "2.0" "[1.0, 0.0]";
    le Le "Whether this is less or equal." "[1.0, 2.0]" "2.0" "[1.0, 1.0]";
    gt Gt "Whether this is greater." "[1.0, 3.0]" "2.0" "[0.0, 1.0]";
    ge Ge "Whether this is greater or equal." "[1.0, 2.0]" "2.0" "[0.0, 1.0]";
    shift_right_logical ShiftRightLogical "Integers shifted right, with zeros from above; `>>` is this for unsigned types." "[-1]" "31" "[1.0]";
    shift_right_arithmetic ShiftRightArithmetic "Integers shifted right, with their sign from above; `>>` is this for signed types." "[-8]" "1" "[-4.0]";
}

impl Tensor {
    example! {
        { pub fn powi(&self, y: i64) -> Tensor {
            apply(&self.state, Op::IntegerPow, &[self], Attrs::none().with_int("y", y), None)
        } }
        "Integer power, of floats or integers.", "t.constant([-2.0, 3.0]).powi(3)", "[-8.0, 27.0]";

        { pub fn polygamma(&self, n: i64) -> Tensor {
            apply(&self.state, Op::Polygamma, &[self], Attrs::none().with_int("n", n), None)
        } }
        "The derivative of digamma of order `n`, from 0 to 16.",
        "t.constant([1.0]).polygamma(1).gt(1.64)", "[1.0]";

        { pub fn digamma(&self) -> Tensor {
            apply(&self.state, Op::Digamma, &[self], Attrs::none(), None)
        } }
        "Derivative of [`Tensor::lgamma`]; NaN at 0, -1, -2, ..",
        "t.constant([2.0]).digamma().gt(0.42)", "[1.0]";

        { pub fn reciprocal(&self) -> Tensor {
            1.0 / self
        } }
        "`1 / x` of floats.", "t.constant([4.0, -0.5]).reciprocal()", "[0.25, -2.0]";

        { pub fn is_nan(&self) -> Tensor {
            self.ne(self)
        } }
        "Whether it is NaN.", "t.constant([1.0, f64::NAN]).is_nan()", "[0.0, 1.0]";

        { pub fn convert(&self, dtype: DType) -> Tensor {
            if self.ty.dtype == dtype {
                return self.clone();
            }
            let ty = self.ty.with_dtype(dtype);
            apply(&self.state, Op::ConvertElementType, &[self], Attrs::none(), Some(&ty))
        } }
        "The same numbers in another element type: floats are cut to integers and saturate, integers wrap, and what \
         is not 0 is true. In the type that it has it is the tensor itself.",
        "t.constant([1.5, -2.5]).convert(DType::I32)", "[1.0, -2.0]";

        { pub fn bitcast(&self, dtype: DType) -> Tensor {
            if self.ty.dtype == dtype {
                return self.clone();
            }
            let ty = self.ty.with_dtype(dtype);
            apply(&self.state, Op::BitcastConvert, &[self], Attrs::none(), Some(&ty))
        } }
        "The same bits in another element type of the same width; floats of 16 bits and truth values have none. In the \
         type that it has it is the tensor itself.",
        "t.constant([1i32, -1]).bitcast(DType::U32)", "[1.0, 4294967295.0]";

        { pub fn clamp(&self, low: impl TensorOperand, high: impl TensorOperand) -> Tensor {
            let (low, high) = (low.beside(self), high.beside(self));
            self.ternary(Op::Clamp, "clamp", [&low, self, &high])
        } }
        "`min(max(x, low), high)`, with derivative 1 strictly inside.",
        "t.constant([-1.0, 0.5, 3.0]).clamp(0.0, 1.0)", "[0.0, 0.5, 1.0]";

        { pub fn fma(&self, factor: impl TensorOperand, addend: impl TensorOperand) -> Tensor {
            let (y, z) = (factor.beside(self), addend.beside(self));
            self.ternary(Op::Fma, "fma", [self, &y, &z])
        } }
        "`x * factor + addend` with one rounding.", "t.constant([2.0, 3.0]).fma(10.0, 1.0)", "[21.0, 31.0]";

        { pub fn select(&self, yes: impl TensorOperand, no: impl TensorOperand) -> Tensor {
            let (yes, no) = match (yes.tensor(), no.tensor()) {
                (Some(yes), _) => (yes.clone(), no.beside(&yes)),
                (None, Some(no)) => (yes.beside(&no), no),
                (None, None) => (yes.beside(self), no.beside(self)),
            };
            if self.ty.dtype != DType::Bool {
                let m = format!("`select` chooses by a bool tensor, found {}", self.ty);
                return self.refused(crate::ir::Kind::DType, m);
            }
            if !self.one_dtype("select", &[&yes, &no]) {
                return yes;
            }
            match self.aligned("select", [self, &no, &yes]) {
                Some([at, no, yes]) => {
                    apply(&self.state, Op::SelectN, &[&at, &no, &yes], Attrs::none(), None)
                }
                None => yes,
            }
        } }
        "Where this `bool` tensor holds, `yes`, elsewhere `no`; one of them may be a number.",
        "{ let x = t.constant([1.0, -2.0]); x.gt(0.0).select(&x, 0.0) }", "[1.0, 0.0]";

        { pub fn where_(&self, yes: impl TensorOperand, no: impl TensorOperand) -> Tensor {
            self.select(yes, no)
        } }
        "As [`Tensor::select`], under NumPy's name: `where(condition, yes, no)`.",
        "{ let x = t.constant([1.0, -2.0]); x.lt(0.0).where_(-&x, &x) }", "[1.0, 2.0]";

        { pub fn shift_left(&self, bits: impl TensorOperand) -> Tensor {
            self.binary(Op::ShiftLeft, &bits.beside(self))
        } }
        "Integers shifted left, as `<<`; shifts by the width or more give 0.",
        "t.constant([1, 3]).shift_left(4)", "[16.0, 48.0]";
    }

    #[track_caller]
    fn ternary(&self, op: Op, what: &str, operands: [&Tensor; 3]) -> Tensor {
        if !self.one_dtype(what, &operands) {
            return self.clone();
        }
        match self.aligned(what, operands) {
            Some([a, b, c]) => apply(&self.state, op, &[&a, &b, &c], Attrs::none(), None),
            None => self.clone(),
        }
    }
}
