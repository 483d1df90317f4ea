//! The definitions of all ops, from the rows of the table; and the signatures and domains that rows name.

use super::inverse::*;
use super::opcode::Op;
use super::table::for_each_op;
use super::{
    attention, collective, composed, contract, control, fourier, indirect, linalg, opaque, order,
    pad, reduce, reshape,
};
use super::{def::*, maps::*, rows::*, skew, source, view};
use crate::attrs::{Attr0, AttrKind, maybe, need};
use crate::dtype::{DType, DTypeSet};
use crate::infer::{Class, Sig};
use crate::scalar::Func;

const T: Class = Class::T;
const BOOL: Class = Class::Bool;
const FLOAT: Sig = Sig::new(DTypeSet::Float, &[T], T);
const FLOAT2: Sig = Sig::new(DTypeSet::Float, &[T, T], T);
const NUMBER: Sig = Sig::new(DTypeSet::Number, &[T], T);
const NUMBER2: Sig = Sig::new(DTypeSet::Number, &[T, T], T);
const NUMBER3: Sig = Sig::new(DTypeSet::Number, &[T, T, T], T);
const ORDERED2: Sig = Sig::new(DTypeSet::Any, &[T, T], T);
const INT2: Sig = Sig::new(DTypeSet::Int, &[T, T], T);
const INT: Sig = Sig::new(DTypeSet::Int, &[T], T);
const BITS2: Sig = Sig::new(DTypeSet::IntBool, &[T, T], T);
const BITS: Sig = Sig::new(DTypeSet::IntBool, &[T], T);
const ANY: Sig = Sig::new(DTypeSet::Any, &[T], T);
const TEST2: Sig = Sig::new(DTypeSet::Any, &[T, T], BOOL);
const CHOICE: Sig = Sig::new(DTypeSet::Any, &[BOOL, T, T], T);
const FLAG: Sig = Sig::new(DTypeSet::Float, &[T], BOOL);
const CONVERT: Sig = Sig::new(DTypeSet::Any, &[T], Class::Declared(DTypeSet::Any));
const RECAST: Sig = Sig::new(DTypeSet::Plain, &[T], Class::SameWidth);

const WIDE: &[Domain] = &[Domain::Uniform(-1.3, 1.3)];
const UNIT: &[Domain] = &[Domain::Uniform(-0.9, 0.9)];
const FRACTION: &[Domain] = &[Domain::Uniform(0.1, 0.4)];
const ABOVE_ONE: &[Domain] = &[Domain::Uniform(1.1, 3.0)];
const REM: &[Domain] = &[Domain::Uniform(-9.0, 9.0), Domain::SignedUniform(0.1, 5.0)];
const COUNTS: &[Domain] = &[Domain::Ints(-100, 100), Domain::Ints(0, 9)];
const INTS: &[Domain] = &[Domain::Ints(-100, 100)];

macro_rules! definitions {
    ($($(#[doc = $doc:literal])+ $variant:ident = $row:expr;)*) => {
        impl Op {
            /// The op's row.
            #[inline]
            pub fn def(self) -> &'static OpDef {
                static TABLE: &[OpDef] = &[$(OpDef { doc: concat!($($doc),+), ..$row }),*];
                &TABLE[self as usize]
            }
        }
    };
}

for_each_op!(definitions);
