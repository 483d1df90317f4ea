//! Lossy storage: the narrower types, and the copies in them that a function has.

use adfuse_ir::{DType, Function, Inst, Literal, Op, Value, ValueDef};

/// A float type that values of wider ones may be kept in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Narrow {
    /// 8 bits of precision over the range of `f32`.
    Bf16,
    /// 11 bits of precision up to 65504.
    F16,
}

/// How far what is read back may be from what was kept.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ErrorBound {
    /// The difference at most, relative to the value.
    pub relative: f64,
    /// The difference that may be at least, however small the value is.
    pub absolute: f64,
    /// The greatest number: finite values beyond are kept as this.
    pub most: f64,
}

impl Narrow {
    /// All of them.
    pub const ALL: [Narrow; 2] = [Narrow::Bf16, Narrow::F16];

    /// As in `--lossy NAME` and in the text of plans.
    pub fn name(self) -> &'static str {
        self.dtype().name()
    }

    /// The type of this name.
    pub fn named(name: &str) -> Option<Narrow> {
        Narrow::ALL.into_iter().find(|n| n.name() == name)
    }

    /// As an element type.
    pub fn dtype(self) -> DType {
        match self {
            Narrow::Bf16 => DType::BF16,
            Narrow::F16 => DType::F16,
        }
    }

    fn of(dtype: DType) -> Option<Narrow> {
        Narrow::ALL.into_iter().find(|n| n.dtype() == dtype)
    }

    /// What it loses at most.
    pub fn bound(self) -> ErrorBound {
        match self {
            Narrow::Bf16 => ErrorBound {
                relative: 2f64.powi(-8),
                absolute: 2f64.powi(-134),
                most: 255.0 * 2f64.powi(120),
            },
            Narrow::F16 => {
                ErrorBound { relative: 2f64.powi(-11), absolute: 2f64.powi(-25), most: 65504.0 }
            }
        }
    }

    /// Whether a type has more bits.
    pub(crate) fn narrows(self, dtype: DType) -> bool {
        matches!(dtype, DType::F32 | DType::F64)
    }
}

/// What may be kept with losses. By default nothing may.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Lossy {
    /// What everything may be kept in.
    pub every: Option<Narrow>,
    /// Values of the prepared function by name, and what each may be kept in.
    pub named: Vec<(String, Narrow)>,
}

impl Lossy {
    /// Whether nothing may be.
    pub fn is_nothing(&self) -> bool {
        self.every.is_none() && self.named.is_empty()
    }
}

/// A value that is kept in a narrower type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LossyCopy {
    /// The value.
    pub of: Value,
    /// The copy that later phases read.
    pub copy: Value,
    /// Its type.
    pub narrow: Narrow,
}

/// The copies of a function, in its order.
pub fn lossy_copies(f: &Function) -> Vec<LossyCopy> {
    f.body_insts().iter().filter_map(|&i| copied(f, i)).collect()
}

fn made_by(f: &Function, v: Value, op: Op) -> Option<Inst> {
    match f.def(v) {
        ValueDef::Inst(i, _) if f.op(i) == op => Some(i),
        _ => None,
    }
}

/// What an instruction is a copy of: it converts a value that has been brought into range.
pub(crate) fn copied(f: &Function, i: Inst) -> Option<LossyCopy> {
    if f.op(i) != Op::ConvertElementType {
        return None;
    }
    let copy = f.inst_results(i)[0];
    let narrow = Narrow::of(f.ty(copy).dtype)?;
    let select = made_by(f, f.args(i)[0], Op::SelectN)?;
    let &[finite, of, within] = f.args(select) else { return None };
    let (finite, clamp) = (made_by(f, finite, Op::IsFinite)?, made_by(f, within, Op::Clamp)?);
    let most = Literal::from_f64(f.ty(of).dtype, narrow.bound().most);
    let found = f.args(finite)[0] == of
        && f.args(clamp)[1] == of
        && f.literal(f.args(clamp)[2]) == Some(most)
        && narrow.narrows(f.ty(of).dtype);
    found.then_some(LossyCopy { of, copy, narrow })
}

/// The copy that an instruction reads back as it was.
pub(crate) fn read_back(f: &Function, i: Inst) -> Option<Value> {
    if f.op(i) != Op::ConvertElementType {
        return None;
    }
    let ValueDef::Inst(made, _) = f.def(f.args(i)[0]) else { return None };
    let copy = copied(f, made)?;
    (f.ty(f.inst_results(i)[0]) == f.ty(copy.of)).then_some(copy.copy)
}
