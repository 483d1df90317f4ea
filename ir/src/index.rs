//! Quasi-affine index maps: where each element of a view's result comes from.
//!
//! An expression is a sum of axes times constants, with floor division and modulo by constants. A
//! view is a list of guarded pieces; an element is read through the first piece whose guards hold.

use smallvec::{SmallVec, smallvec};
use std::fmt;
use std::ops::Range;

/// An integer expression over the coordinates of the result.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum IndexExpr {
    /// The coordinate along an axis.
    Axis(u8),
    /// A constant.
    Const(i64),
    /// Sum of two expressions.
    Add(Box<IndexExpr>, Box<IndexExpr>),
    /// Product with a constant.
    Mul(Box<IndexExpr>, i64),
    /// Quotient by a positive constant, rounded toward negative infinity.
    FloorDiv(Box<IndexExpr>, i64),
    /// Remainder by a positive constant, in `0..constant`.
    Mod(Box<IndexExpr>, i64),
    /// The integer value of an earlier parameter of the same stage, clamped to `lo..=hi`. Only
    /// kernels have these; the maps of views do not.
    Data {
        /// The parameter's number.
        param: u32,
        /// The least value.
        lo: i64,
        /// The greatest value.
        hi: i64,
    },
}

impl IndexExpr {
    /// The coordinate along `axis`.
    pub fn axis(axis: usize) -> IndexExpr {
        IndexExpr::Axis(axis as u8)
    }

    /// `self + c`, folded.
    pub fn plus(self, c: i64) -> IndexExpr {
        match self {
            IndexExpr::Const(k) => IndexExpr::Const(k + c),
            e if c == 0 => e,
            e => IndexExpr::Add(Box::new(e), Box::new(IndexExpr::Const(c))),
        }
    }

    /// `self + other`, folded.
    pub fn sum(self, other: IndexExpr) -> IndexExpr {
        match (self, other) {
            (IndexExpr::Const(k), e) | (e, IndexExpr::Const(k)) => e.plus(k),
            (a, b) => IndexExpr::Add(Box::new(a), Box::new(b)),
        }
    }

    /// `self * c`, folded.
    pub fn times(self, c: i64) -> IndexExpr {
        match self {
            IndexExpr::Const(k) => IndexExpr::Const(k * c),
            _ if c == 0 => IndexExpr::Const(0),
            e if c == 1 => e,
            e => IndexExpr::Mul(Box::new(e), c),
        }
    }

    /// `floor(self / c)` for `c > 0`, folded.
    pub fn floor_div(self, c: i64) -> IndexExpr {
        match self {
            IndexExpr::Const(k) => IndexExpr::Const(k.div_euclid(c)),
            e if c == 1 => e,
            e => IndexExpr::FloorDiv(Box::new(e), c),
        }
    }

    /// `self mod c` for `c > 0`, folded.
    pub fn modulo(self, c: i64) -> IndexExpr {
        match self {
            IndexExpr::Const(k) => IndexExpr::Const(k.rem_euclid(c)),
            _ if c == 1 => IndexExpr::Const(0),
            e => IndexExpr::Mod(Box::new(e), c),
        }
    }

    /// The value of parameter `param`, clamped to `lo..=hi`.
    pub fn data(param: usize, lo: i64, hi: i64) -> IndexExpr {
        IndexExpr::Data { param: param as u32, lo, hi }
    }

    /// The expression with another in place of each axis: where the element at `self` of a tensor is,
    /// whose coordinates are themselves expressions of a nest.
    pub fn compose(&self, at: &[IndexExpr]) -> IndexExpr {
        match self {
            IndexExpr::Axis(a) => at[*a as usize].clone(),
            IndexExpr::Const(_) | IndexExpr::Data { .. } => self.clone(),
            IndexExpr::Add(a, b) => a.compose(at).sum(b.compose(at)),
            IndexExpr::Mul(a, c) => a.compose(at).times(*c),
            IndexExpr::FloorDiv(a, c) => a.compose(at).floor_div(*c),
            IndexExpr::Mod(a, c) => a.compose(at).modulo(*c),
        }
    }

    /// Whether it depends on an axis, or on data, that the other expression depends on too.
    pub fn shares(&self, other: &IndexExpr) -> bool {
        match self {
            IndexExpr::Const(_) => false,
            IndexExpr::Add(a, b) => a.shares(other) || b.shares(other),
            IndexExpr::Mul(a, _) | IndexExpr::FloorDiv(a, _) | IndexExpr::Mod(a, _) => {
                a.shares(other)
            }
            IndexExpr::Axis(_) | IndexExpr::Data { .. } => match other {
                IndexExpr::Const(_) => false,
                IndexExpr::Axis(_) => self == other,
                IndexExpr::Data { param, .. } => {
                    matches!(self, IndexExpr::Data { param: own, .. } if own == param)
                }
                other => other.shares(self),
            },
        }
    }

    /// The value at the given coordinates, where the parameters have the values `data`.
    pub fn eval(&self, at: &[i64], data: &[i64]) -> i64 {
        match self {
            IndexExpr::Axis(a) => at[*a as usize],
            IndexExpr::Const(c) => *c,
            IndexExpr::Add(a, b) => a.eval(at, data) + b.eval(at, data),
            IndexExpr::Mul(a, c) => a.eval(at, data) * c,
            IndexExpr::FloorDiv(a, c) => a.eval(at, data).div_euclid(*c),
            IndexExpr::Mod(a, c) => a.eval(at, data).rem_euclid(*c),
            IndexExpr::Data { param, lo, hi } => data[*param as usize].clamp(*lo, *hi),
        }
    }

    /// The factors of the axes where it is affine in the coordinates along this many axes; `None` where it is
    /// not, or a factor is too large.
    pub fn factors(&self, axes: usize) -> Option<SmallVec<[i128; 8]>> {
        let mut factors: SmallVec<[i128; 8]> = smallvec![0; axes];
        match self {
            IndexExpr::Axis(a) => *factors.get_mut(usize::from(*a))? = 1,
            IndexExpr::Const(_) => {}
            IndexExpr::Add(a, b) => {
                let both = a.factors(axes)?.into_iter().zip(b.factors(axes)?);
                for (f, (a, b)) in factors.iter_mut().zip(both) {
                    *f = a.checked_add(b)?;
                }
            }
            IndexExpr::Mul(a, c) => {
                for (f, a) in factors.iter_mut().zip(a.factors(axes)?) {
                    *f = a.checked_mul((*c).into())?;
                }
            }
            IndexExpr::FloorDiv(..) | IndexExpr::Mod(..) | IndexExpr::Data { .. } => return None,
        }
        Some(factors)
    }
}

/// `d0 * 4 + d1 / 2 % 3 - 1`: products, quotients and remainders bind tighter than sums, and both
/// group to the left. `clamp(p0, 0, 7)` is a parameter's value.
impl fmt::Display for IndexExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let factor = |f: &mut fmt::Formatter<'_>, a: &IndexExpr, sign: char, c: &i64| match a {
            IndexExpr::Add(..) => write!(f, "({a}) {sign} {c}"),
            _ => write!(f, "{a} {sign} {c}"),
        };
        match self {
            IndexExpr::Axis(a) => write!(f, "d{a}"),
            IndexExpr::Const(c) => write!(f, "{c}"),
            IndexExpr::Add(a, b) => match **b {
                IndexExpr::Const(c) if c < 0 && c != i64::MIN => write!(f, "{a} - {}", -c),
                IndexExpr::Add(..) => write!(f, "{a} + ({b})"),
                _ => write!(f, "{a} + {b}"),
            },
            IndexExpr::Mul(a, c) => factor(f, a, '*', c),
            IndexExpr::FloorDiv(a, c) => factor(f, a, '/', c),
            IndexExpr::Mod(a, c) => factor(f, a, '%', c),
            IndexExpr::Data { param, lo, hi } => write!(f, "clamp(p{param}, {lo}, {hi})"),
        }
    }
}

/// A condition on the coordinates: the expression lies in the range.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Guard {
    /// The expression.
    pub expr: IndexExpr,
    /// The half-open range it must lie in.
    pub range: Range<i64>,
}

/// One way to find an element: read `operand` at `index`, provided that all guards hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Piece {
    /// Which operand is read.
    pub operand: u32,
    /// An expression for each axis of the operand.
    pub index: SmallVec<[IndexExpr; 4]>,
    /// When this piece applies.
    pub guards: SmallVec<[Guard; 2]>,
}

/// Where every element of a result comes from: the first piece whose guards hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ViewMap {
    /// The pieces, in the order they are tried; for every coordinate at least one applies.
    pub pieces: SmallVec<[Piece; 2]>,
}

impl ViewMap {
    /// A view with one unguarded piece of operand 0.
    pub fn of(index: impl IntoIterator<Item = IndexExpr>) -> ViewMap {
        let piece =
            Piece { operand: 0, index: index.into_iter().collect(), guards: SmallVec::new() };
        ViewMap { pieces: SmallVec::from_iter([piece]) }
    }
}
