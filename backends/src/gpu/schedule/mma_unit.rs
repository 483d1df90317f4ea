//! The units that multiply tiles, and the shapes that they take.

use adfuse_ir::kernel::Member;
use adfuse_ir::{DType, Fp};
use std::fmt;

/// What multiplies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Unit {
    /// Fused multiply-adds: each sum is a chain, in the strict order.
    Fma,
    /// Tensor cores, on 16-bit floats.
    Half(DType),
    /// Tensor cores, on the upper 19 bits of `f32`.
    Tf32,
}

impl Unit {
    /// Every unit.
    const ALL: [Unit; 4] = [Unit::Fma, Unit::Half(DType::F16), Unit::Half(DType::BF16), Unit::Tf32];

    /// The unit of a name.
    pub(crate) fn named(name: &str) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.to_string() == name)
    }

    /// Strict sums have an order that tensor cores do not keep; operands lose bits in `fast` alone.
    pub(crate) fn of(m: &Member, fp: Fp) -> Unit {
        let element = |f: &adfuse_ir::kernel::Feed| {
            f.program.outputs.first().map_or(m.sum, |&v| f.program.insts[v].dtype)
        };
        let types = [element(&m.lhs), element(&m.rhs)];
        let short = |d: DType| matches!(d, DType::BF16 | DType::F16);
        match (fp, m.sum, types) {
            (Fp::Strict, ..) => Unit::Fma,
            (_, DType::F32, [a, b]) if a == b && short(a) => Unit::Half(a),
            (Fp::Fast, DType::F32, all) if all.iter().all(|&d| d == DType::F32 || short(d)) => {
                Unit::Tf32
            }
            _ => Unit::Fma,
        }
    }

    /// The type of operands in shared memory.
    pub(crate) fn held(self, sum: DType) -> DType {
        match self {
            Unit::Fma => sum,
            Unit::Half(d) => d,
            Unit::Tf32 => DType::F32,
        }
    }
}

/// `fma`, or `mma` with the type that tensor cores take.
impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unit::Fma => f.write_str("fma"),
            Unit::Half(dtype) => write!(f, "mma.{dtype}"),
            Unit::Tf32 => f.write_str("mma.tf32"),
        }
    }
}
