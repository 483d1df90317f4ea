//! Recording a scalar program from a closure: `S` looks like a number and writes instructions.

use super::prim::Prim;
use super::program::{Func, SInst, SOp, SVal, ScalarProgram};
use super::table::Table;
use crate::dtype::DType;
use crate::literal::Literal;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::ops;

/// Collects the instructions of one program. Equal pure instructions are recorded once.
#[derive(Default)]
pub struct Recorder {
    program: RefCell<ScalarProgram>,
}

impl Recorder {
    /// Records `body` over parameters of the given types. 16-bit float parameters arrive as `f32`;
    /// an output whose type in `outputs` is a 16-bit float is rounded to it once, at the end.
    ///
    /// # Panics
    /// If `body` mixes types in one operation or yields another type than `outputs` asks for: both
    /// are mistakes in a row of the op table, which its tests find.
    pub fn record(
        params: &[DType],
        outputs: &[DType],
        body: impl for<'r> FnOnce(&'r Recorder, &[S<'r>]) -> SmallVec<[S<'r>; 1]>,
    ) -> ScalarProgram {
        let recorder = Recorder::default();
        let results: SmallVec<[SVal; 1]> = {
            let args: SmallVec<[S<'_>; 4]> = params
                .iter()
                .enumerate()
                .map(|(k, &d)| recorder.param(k as u32, d).convert(d.compute()))
                .collect();
            let results = body(&recorder, &args);
            assert_eq!(results.len(), outputs.len(), "number of scalar results");
            let check = |(r, &d): (&S<'_>, &DType)| {
                // A conversion to a 16-bit float is that rounding already.
                assert!(r.dtype == d.compute() || r.dtype == d, "type of a scalar result");
                r.convert(d).id
            };
            results.iter().zip(outputs).map(check).collect()
        };
        let mut program = recorder.program.into_inner();
        program.params = params.iter().copied().collect();
        program.outputs = results;
        program
    }

    /// Records `body` over parameters of the given types, with whatever type its result has.
    pub fn record_any(
        params: &[DType],
        body: impl for<'r> FnOnce(&[S<'r>]) -> S<'r>,
    ) -> ScalarProgram {
        let old = ScalarProgram { params: params.iter().copied().collect(), ..Default::default() };
        Recorder::rerecord(&old, |_, x| SmallVec::from_iter([body(x)]))
    }

    /// Records a program with the parameters of `old`, without conversions at its borders.
    pub(crate) fn rerecord(
        old: &ScalarProgram,
        body: impl for<'r> FnOnce(&'r Recorder, &[S<'r>]) -> SmallVec<[S<'r>; 1]>,
    ) -> ScalarProgram {
        let recorder = Recorder::default();
        let outputs = {
            let params: SmallVec<[S<'_>; 4]> =
                (0u32..).zip(&old.params).map(|(k, &d)| recorder.param(k, d)).collect();
            body(&recorder, &params).iter().map(|s| s.id).collect()
        };
        let mut program = recorder.program.into_inner();
        program.params = old.params.clone();
        program.outputs = outputs;
        program
    }

    fn param(&self, k: u32, dtype: DType) -> S<'_> {
        self.push(SOp::Param(k), &[], dtype)
    }

    /// A literal of any type, as a value of the program that is recorded.
    pub fn constant(&self, c: Literal) -> S<'_> {
        self.push(SOp::Const(c), &[], c.dtype())
    }

    /// Appends an instruction, or finds the equal one that is there already.
    pub fn push<'r>(&'r self, op: SOp, args: &[S<'r>], dtype: DType) -> S<'r> {
        let inst = SInst { op, args: args.iter().map(|a| a.id).collect(), dtype };
        let mut p = self.program.borrow_mut();
        let found = p.insts.iter().find(|(_, i)| **i == inst).map(|(v, _)| v);
        let id = found.unwrap_or_else(|| p.insts.push(inst));
        S { id, dtype, recorder: self }
    }
}

/// A scalar while a program is recorded: copyable, with the operators of a number.
///
/// Plain `f64` and `i64` numbers may stand for either operand; they take the other operand's type.
#[derive(Clone, Copy)]
pub struct S<'r> {
    id: SVal,
    dtype: DType,
    recorder: &'r Recorder,
}

/// An operand of an operator on `S`.
pub trait ScalarOperand<'r> {
    /// The operand as a scalar of the type of `like`.
    fn beside(self, like: S<'r>) -> S<'r>;
}

impl<'r> ScalarOperand<'r> for S<'r> {
    fn beside(self, like: S<'r>) -> S<'r> {
        assert_eq!(self.dtype, like.dtype, "operand types of a scalar operation");
        self
    }
}

impl<'r> ScalarOperand<'r> for f64 {
    fn beside(self, like: S<'r>) -> S<'r> {
        like.lit(self)
    }
}

impl<'r> ScalarOperand<'r> for i64 {
    fn beside(self, like: S<'r>) -> S<'r> {
        like.int(self)
    }
}

macro_rules! compares {
    ($($(#[doc = $doc:literal])* $name:ident = $prim:ident;)*) => {
        $($(#[doc = $doc])*
        pub fn $name(self, other: impl ScalarOperand<'r>) -> S<'r> {
            let other = other.beside(self);
            self.recorder.push(SOp::Prim(Prim::$prim), &[self, other], DType::Bool)
        })*
    };
}

macro_rules! unary_prims {
    ($($(#[doc = $doc:literal])* $name:ident = $prim:ident;)*) => {
        $($(#[doc = $doc])*
        pub fn $name(self) -> S<'r> { self.prim(Prim::$prim, &[]) })*
    };
}

macro_rules! binary_prims {
    ($($(#[doc = $doc:literal])* $name:ident = $prim:ident;)*) => {
        $($(#[doc = $doc])*
        // A left shift by method reads like the two right shifts beside it.
        #[allow(clippy::should_implement_trait)]
        pub fn $name(self, other: impl ScalarOperand<'r>) -> S<'r> {
            let other = other.beside(self);
            self.prim(Prim::$prim, &[other])
        })*
    };
}

macro_rules! func_methods {
    ($($name:ident = $func:ident;)*) => {
        $(#[doc = concat!("The function [`Func::", stringify!($func), "`].")]
        pub fn $name(self) -> S<'r> { self.func(Func::$func, &[]) })*
    };
}

impl<'r> S<'r> {
    /// The element type.
    pub fn dtype(self) -> DType {
        self.dtype
    }

    /// The id in the program being recorded.
    pub fn id(self) -> SVal {
        self.id
    }

    /// The number nearest to `x` in this scalar's type.
    pub fn lit(self, x: f64) -> S<'r> {
        self.recorder.constant(Literal::from_f64(self.dtype, x))
    }

    /// The integer `x` in this scalar's type.
    pub fn int(self, x: i64) -> S<'r> {
        self.recorder.constant(Literal::from_i64(self.dtype, x))
    }

    /// The constant of type `dtype` with the given bits.
    pub fn bits(self, dtype: DType, bits: u64) -> S<'r> {
        self.recorder.constant(Literal::from_bits(dtype, bits))
    }

    fn prim(self, prim: Prim, rest: &[S<'r>]) -> S<'r> {
        let args: SmallVec<[S<'r>; 3]> =
            std::iter::once(self).chain(rest.iter().copied()).collect();
        self.recorder.push(SOp::Prim(prim), &args, self.dtype)
    }

    fn func(self, func: Func, rest: &[S<'r>]) -> S<'r> {
        let args: SmallVec<[S<'r>; 3]> =
            std::iter::once(self).chain(rest.iter().copied()).collect();
        self.recorder.push(SOp::Func(func), &args, self.dtype)
    }

    unary_prims! {
        /// Absolute value.
        abs = Abs;
        /// Correctly rounded square root.
        sqrt = Sqrt;
        /// Largest integer not above.
        floor = Floor;
        /// Smallest integer not below.
        ceil = Ceil;
        /// Nearest integer, ties to even.
        round_even = RoundEven;
        /// Integer part.
        trunc = Trunc;
        /// Leading zero bits.
        clz = Clz;
        /// Set bits.
        popcount = PopCount;
    }

    binary_prims! {
        /// The smaller; NaN if either is.
        min = Min;
        /// The larger; NaN if either is.
        max = Max;
        /// This magnitude with that sign.
        copysign = CopySign;
        /// Left shift.
        shl = Shl;
        /// Right shift, zeros enter.
        shr_l = ShrL;
        /// Right shift, the sign enters.
        shr_a = ShrA;
        /// High half of the unsigned product.
        mulhi = MulHi;
    }

    compares! {
        /// `==`
        eq = Eq;
        /// `!=`
        ne = Ne;
        /// `<`
        lt = Lt;
        /// `<=`
        le = Le;
        /// `>`
        gt = Gt;
        /// `>=`
        ge = Ge;
    }

    func_methods! {
        exp = Exp; exp2 = Exp2; expm1 = Expm1; log = Log; log1p = Log1p;
        sin = Sin; cos = Cos; tan = Tan; asin = Asin; acos = Acos; atan = Atan;
        sinh = Sinh; cosh = Cosh; tanh = Tanh; asinh = Asinh; acosh = Acosh; atanh = Atanh;
        logistic = Logistic; erf = Erf; erfc = Erfc; cbrt = Cbrt; rsqrt = Rsqrt;
        erf_inv = ErfInv; lgamma = Lgamma; digamma = Digamma;
    }

    /// The derivative of digamma of order `n`; digamma itself for 0.
    pub fn polygamma(self, n: i64) -> S<'r> {
        match u8::try_from(n).unwrap_or(u8::MAX) {
            0 => self.digamma(),
            n => self.func(Func::Polygamma(n), &[]),
        }
    }

    /// x^y, as [`Func::Pow`].
    pub fn pow(self, y: impl ScalarOperand<'r>) -> S<'r> {
        self.func(Func::Pow, &[y.beside(self)])
    }

    /// The angle of the point (x, self), as [`Func::Atan2`].
    pub fn atan2(self, x: impl ScalarOperand<'r>) -> S<'r> {
        self.func(Func::Atan2, &[x.beside(self)])
    }

    /// `self * b + c` with one rounding.
    pub fn fma(self, b: impl ScalarOperand<'r>, c: impl ScalarOperand<'r>) -> S<'r> {
        self.prim(Prim::Fma, &[b.beside(self), c.beside(self)])
    }

    /// `self ? a : b`, for a `bool`.
    pub fn select(self, a: S<'r>, b: impl ScalarOperand<'r>) -> S<'r> {
        assert_eq!(self.dtype, DType::Bool, "type of a selector");
        self.recorder.push(SOp::Prim(Prim::Select), &[self, a, b.beside(a)], a.dtype)
    }

    /// The same number in another type; itself when it has that type.
    pub fn convert(self, to: DType) -> S<'r> {
        if to == self.dtype {
            return self;
        }
        self.recorder.push(SOp::Prim(Prim::Convert), &[self], to)
    }

    /// The same bits in another type of the same width.
    pub fn bitcast(self, to: DType) -> S<'r> {
        assert_eq!(self.dtype.bits(), to.bits(), "widths of a bit cast");
        self.recorder.push(SOp::Prim(Prim::Bitcast), &[self], to)
    }

    /// The table's entry at this `i32` index, clamped to the table.
    pub fn lookup(self, table: Table) -> S<'r> {
        assert_eq!(self.dtype, DType::I32, "type of a table index");
        self.recorder.push(SOp::Prim(Prim::Lookup(table)), &[self], table.dtype())
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $prim:ident;)*) => {
        $(impl<'r, O: ScalarOperand<'r>> ops::$trait<O> for S<'r> {
            type Output = S<'r>;
            fn $method(self, other: O) -> S<'r> {
                let other = other.beside(self);
                self.prim(Prim::$prim, &[other])
            }
        }
        impl<'r> ops::$trait<S<'r>> for f64 {
            type Output = S<'r>;
            fn $method(self, other: S<'r>) -> S<'r> {
                other.lit(self).prim(Prim::$prim, &[other])
            }
        })*
    };
}

operators! {
    Add add Add; Sub sub Sub; Mul mul Mul; Div div Div; Rem rem Rem;
    BitAnd bitand And; BitOr bitor Or; BitXor bitxor Xor;
}

impl<'r> ops::Neg for S<'r> {
    type Output = S<'r>;
    fn neg(self) -> S<'r> {
        self.prim(Prim::Neg, &[])
    }
}

impl<'r> ops::Not for S<'r> {
    type Output = S<'r>;
    fn not(self) -> S<'r> {
        self.prim(Prim::Not, &[])
    }
}
