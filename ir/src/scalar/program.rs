//! The scalar program itself: functions, typed SSA instructions.

use super::prim::Prim;
use crate::dtype::DType;
use crate::literal::Literal;
use cranelift_entity::{PrimaryMap, entity_impl};
use smallvec::SmallVec;
use std::fmt;

/// A value of a scalar program: a parameter or the result of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SVal(u32);
entity_impl!(SVal, "s");

macro_rules! funcs {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal, $arity:literal;)*) => {
        /// A mathematical function: one instruction while a program is read by people and by the
        /// planner, a sequence of primitives once [`expand`](fn@crate::scalar::expand)ed.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Func {
            $($(#[doc = $doc])* $name,)*
            /// the derivative of digamma of this order, from 1 to [`Func::ORDERS`]
            Polygamma(u8),
        }

        impl Func {
            /// Every function.
            pub const ALL: &'static [Func] = &Func::all::<{ [$(Func::$name),*].len() }, { [$(Func::$name),*].len() + Func::ORDERS as usize }>([$(Func::$name),*]);

            /// Its name in text, which is the name of the op that is just this function.
            pub fn name(self) -> &'static str {
                match self {
                    $(Func::$name => $text,)*
                    Func::Polygamma(n) => POLYGAMMA[usize::from(n).min(POLYGAMMA.len()) - 1],
                }
            }

            /// Number of operands, all of one float type.
            pub fn arity(self) -> usize {
                match self { $(Func::$name => $arity,)* Func::Polygamma(_) => 1 }
            }
        }
    };
}

funcs! {
    /// e^x
    Exp = "exp", 1;
    /// 2^x
    Exp2 = "exp2", 1;
    /// e^x - 1
    Expm1 = "expm1", 1;
    /// natural logarithm
    Log = "log", 1;
    /// log(1 + x)
    Log1p = "log1p", 1;
    /// sine, radians
    Sin = "sin", 1;
    /// cosine, radians
    Cos = "cos", 1;
    /// tangent, radians
    Tan = "tan", 1;
    /// inverse sine
    Asin = "asin", 1;
    /// inverse cosine
    Acos = "acos", 1;
    /// inverse tangent
    Atan = "atan", 1;
    /// angle of the point (second, first)
    Atan2 = "atan2", 2;
    /// hyperbolic sine
    Sinh = "sinh", 1;
    /// hyperbolic cosine
    Cosh = "cosh", 1;
    /// hyperbolic tangent
    Tanh = "tanh", 1;
    /// inverse hyperbolic sine
    Asinh = "asinh", 1;
    /// inverse hyperbolic cosine
    Acosh = "acosh", 1;
    /// inverse hyperbolic tangent
    Atanh = "atanh", 1;
    /// 1 / (1 + e^-x)
    Logistic = "logistic", 1;
    /// error function
    Erf = "erf", 1;
    /// complementary error function
    Erfc = "erfc", 1;
    /// x^y
    Pow = "pow", 2;
    /// cube root
    Cbrt = "cbrt", 1;
    /// 1 / sqrt(x)
    Rsqrt = "rsqrt", 1;
    /// inverse of the error function
    ErfInv = "erf_inv", 1;
    /// logarithm of the gamma function's magnitude
    Lgamma = "lgamma", 1;
    /// derivative of lgamma
    Digamma = "digamma", 1;
}

/// Names of the derivatives of digamma, by order; the op has the order as an attribute.
const POLYGAMMA: [&str; Func::ORDERS as usize] = [
    "polygamma_1",
    "polygamma_2",
    "polygamma_3",
    "polygamma_4",
    "polygamma_5",
    "polygamma_6",
    "polygamma_7",
    "polygamma_8",
    "polygamma_9",
    "polygamma_10",
    "polygamma_11",
    "polygamma_12",
    "polygamma_13",
    "polygamma_14",
    "polygamma_15",
    "polygamma_16",
];

impl Func {
    /// The highest order of a polygamma function: up to here the powers in its reflection stay below
    /// the largest `f64`.
    pub const ORDERS: u8 = 16;

    /// The plain functions, then polygamma of each order.
    const fn all<const N: usize, const ALL: usize>(plain: [Func; N]) -> [Func; ALL] {
        assert!(ALL == N + Func::ORDERS as usize, "a place for each function");
        let mut all = [Func::Polygamma(1); ALL];
        let mut k = 0;
        while k < ALL {
            all[k] = if k < N { plain[k] } else { Func::Polygamma((k - N + 1) as u8) };
            k += 1;
        }
        all
    }

    /// The function's place among [`Func::ALL`].
    pub fn index(self) -> Option<usize> {
        Func::ALL.iter().position(|&f| f == self)
    }
}

/// What a scalar instruction does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SOp {
    /// The k-th parameter.
    Param(u32),
    /// A constant.
    Const(Literal),
    /// A primitive.
    Prim(Prim),
    /// A function, to be expanded.
    Func(Func),
}

/// One instruction: what it does, to what, and the type of its result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SInst {
    /// What it does.
    pub op: SOp,
    /// Its operands, all defined earlier.
    pub args: SmallVec<[SVal; 3]>,
    /// Type of the result.
    pub dtype: DType,
}

/// A typed SSA program over scalars.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ScalarProgram {
    /// Types of the parameters.
    pub params: SmallVec<[DType; 4]>,
    /// Instructions; each defines the value of its index.
    pub insts: PrimaryMap<SVal, SInst>,
    /// The results.
    pub outputs: SmallVec<[SVal; 1]>,
}

impl ScalarProgram {
    /// Whether some output depends on parameter `k`.
    pub fn reads_param(&self, k: usize) -> bool {
        self.params_read().get(k).copied().unwrap_or(false)
    }

    /// For each parameter, whether some output depends on it.
    pub fn params_read(&self) -> Vec<bool> {
        let mut read = vec![false; self.params.len()];
        for (inst, live) in self.insts.values().zip(self.live()) {
            if let SOp::Param(k) = inst.op
                && let Some(read) = read.get_mut(k as usize)
            {
                *read |= live;
            }
        }
        read
    }

    /// The type of an instruction's first operand; its own where it has none.
    pub fn source(&self, inst: &SInst) -> DType {
        inst.args.first().map_or(inst.dtype, |&a| self.insts[a].dtype)
    }

    /// What a value is, where it is a constant.
    pub fn constant(&self, v: SVal) -> Option<Literal> {
        match self.insts[v].op {
            SOp::Const(l) => Some(l),
            _ => None,
        }
    }

    /// For each value, whether an output depends on it.
    pub fn live(&self) -> Vec<bool> {
        let mut live = vec![false; self.insts.len()];
        for &o in &self.outputs {
            live[o.as_u32() as usize] = true;
        }
        for (v, inst) in self.insts.iter().rev() {
            if live[v.as_u32() as usize] {
                for a in &inst.args {
                    live[a.as_u32() as usize] = true;
                }
            }
        }
        live
    }

    /// The constant, when the only output is one.
    pub fn as_const(&self) -> Option<Literal> {
        match self.outputs.as_slice() {
            &[o] => self.constant(o),
            _ => None,
        }
    }
}

/// One line an instruction: `s2 = mul.f32 s0 s1`.
impl fmt::Display for ScalarProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (v, inst) in self.insts.iter() {
            writeln!(f, "{v} = {inst}")?;
        }
        write!(f, "return")?;
        for o in &self.outputs {
            write!(f, " {o}")?;
        }
        writeln!(f)
    }
}

/// `mul.f32 s0 s1`
impl fmt::Display for SInst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.op {
            SOp::Param(k) => write!(f, "param.{} {k}", self.dtype)?,
            SOp::Const(c) => write!(f, "const.{} {c}", self.dtype)?,
            SOp::Prim(p @ Prim::Lookup(t)) => write!(f, "{}.{} {t:?}", p.name(), self.dtype)?,
            SOp::Prim(p) => write!(f, "{}.{}", p.name(), self.dtype)?,
            SOp::Func(g) => write!(f, "{}.{}", g.name(), self.dtype)?,
        }
        self.args.iter().try_for_each(|a| write!(f, " {a}"))
    }
}
