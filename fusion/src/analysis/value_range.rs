//! Value ranges of integers, so that a value is stored in no more bits than it needs.

use super::class::InstClass;
use super::facts::Facts;
use adfuse_ir::kernel::Storage;
use adfuse_ir::op::{Body, Indirect, Monoid};
use adfuse_ir::scalar::{Prim, SInst, SOp, ScalarProgram};
use adfuse_ir::{DType, Inst, Literal, Value, ValueDef};
use cranelift_entity::SecondaryMap;

/// From the least to the greatest, both included.
type ValueRange = (i64, i64);

/// The ranges of integers and truth values; `None` where nothing is known.
pub(crate) struct ValueRanges(SecondaryMap<Value, Option<ValueRange>>);

impl ValueRanges {
    /// Of all values of a function.
    pub(crate) fn of(facts: &Facts<'_>) -> ValueRanges {
        let mut ranges = ValueRanges(SecondaryMap::with_capacity(facts.f.value_count()));
        for &i in facts.f.body_insts() {
            let v = facts.f.inst_results(i)[0];
            let dtype = facts.f.ty(v).dtype;
            if whole(dtype).is_some() {
                ranges.0[v] = ranges.result(facts, i).filter(|r| fits(*r, dtype));
            }
        }
        ranges
    }

    /// The narrowest form that keeps every number that a value may have.
    pub(crate) fn narrowest(&self, facts: &Facts<'_>, v: Value) -> Option<Storage> {
        if matches!(facts.f.def(v), ValueDef::Inst(i, _) if facts.class[i] == InstClass::Constant) {
            // Its memory is part of the program, and no kernel writes it.
            return None;
        }
        let dtype = facts.f.ty(v).dtype;
        let bits = match dtype {
            DType::Bool => 1,
            _ => {
                let (least, most) = self.0[v]?;
                let bits = [2u8, 4, 8].into_iter().find(|&bits| most < 1 << bits)?;
                (least >= 0 && u32::from(bits) < dtype.bits()).then_some(bits)?
            }
        };
        facts.packs(v, bits).then_some(Storage::Packed(bits))
    }

    /// Whether a form keeps every number that a value may have.
    pub(crate) fn keeps(&self, facts: &Facts<'_>, v: Value, storage: Storage) -> bool {
        let Storage::Packed(bits) = storage else { return true };
        if !facts.packs(v, bits) {
            return false;
        }
        let dtype = facts.f.ty(v).dtype;
        if bits == 1 || dtype == DType::Bool {
            return bits == 1 && dtype == DType::Bool;
        }
        // Integers are read back without a sign.
        let range = self.0[v].or_else(|| whole(dtype));
        bits <= 8 && range.is_some_and(|(least, most)| least >= 0 && most < 1 << bits)
    }

    fn value(&self, facts: &Facts<'_>, v: Value) -> Option<ValueRange> {
        let dtype = facts.f.ty(v).dtype;
        match facts.f.def(v) {
            ValueDef::Literal(l) => number(l),
            _ => self.0[v].or_else(|| whole(dtype)),
        }
    }

    fn result(&self, facts: &Facts<'_>, i: Inst) -> Option<ValueRange> {
        let f = facts.f;
        let args = || f.args(i).iter();
        let elements = |v: Value| facts.elements[v];
        match f.op(i).def().body {
            Body::Map(_) => {
                let (program, _) = facts.program(i)?;
                let params: Vec<Option<ValueRange>> =
                    args().map(|&a| self.value(facts, a)).collect();
                through(program, &params)
            }
            // Elements of the operands, and of nothing else.
            Body::View(_) => self.union(facts, f.args(i)),
            Body::Constant => {
                let mut numbers = f.attrs(i).literals("values").iter().map(number);
                let first = numbers.next()??;
                numbers.try_fold(first, |all, n| n.map(|n| union(all, n)))
            }
            Body::Reduce(monoid) => {
                let (x, y) = (f.args(i)[0], f.inst_results(i)[0]);
                let folded = elements(x) / elements(y).max(1);
                let range = self.value(facts, x);
                match monoid {
                    // The neutral value is none of the operand's.
                    _ if folded == 0 => None,
                    Monoid::ArgMax | Monoid::ArgMin => Some((0, folded - 1)),
                    Monoid::Max | Monoid::Min | Monoid::And | Monoid::Or => range,
                    Monoid::Sum => {
                        let (least, most) = range?;
                        Some((least.checked_mul(folded)?, most.checked_mul(folded)?))
                    }
                    Monoid::Prod => None,
                }
            }
            Body::Indirect(Indirect::Gather) => {
                // What is outside reads as zero, or as the greatest.
                let range = self.value(facts, f.args(i)[0])?;
                (f.attrs(i).word("mode") != "fill").then_some(union(range, (0, 0)))
            }
            _ => None,
        }
    }

    fn union(&self, facts: &Facts<'_>, values: &[Value]) -> Option<ValueRange> {
        let mut ranges = values.iter().map(|&v| self.value(facts, v));
        let first = ranges.next()??;
        ranges.try_fold(first, |all, r| r.map(|r| union(all, r)))
    }
}

fn union(a: ValueRange, b: ValueRange) -> ValueRange {
    (a.0.min(b.0), a.1.max(b.1))
}

fn number(l: Literal) -> Option<ValueRange> {
    let d = l.dtype();
    whole(d)?;
    let n = match d {
        DType::Bool => i64::from(l.bits() & 1 == 1),
        d if d.is_signed_int() => {
            let unused = 64 - d.bits();
            ((l.bits() << unused) as i64) >> unused
        }
        _ => l.bits() as i64,
    };
    Some((n, n))
}

/// All numbers of a type; `None` for what is no integer or truth value.
fn whole(d: DType) -> Option<ValueRange> {
    Some(match d {
        DType::Bool => (0, 1),
        DType::I64 => (i64::MIN, i64::MAX),
        d if d.is_signed_int() => (-(1 << (d.bits() - 1)), (1 << (d.bits() - 1)) - 1),
        d if d.is_int() => (0, (1 << d.bits()) - 1),
        _ => return None,
    })
}

fn fits(range: ValueRange, d: DType) -> bool {
    whole(d).is_some_and(|(least, most)| least <= range.0 && range.1 <= most)
}

/// What a scalar program gives for operands in these ranges.
fn through(program: &ScalarProgram, params: &[Option<ValueRange>]) -> Option<ValueRange> {
    let mut found: SecondaryMap<_, Option<ValueRange>> = SecondaryMap::new();
    for (v, inst) in program.insts.iter() {
        let args: Vec<Option<ValueRange>> = inst.args.iter().map(|&a| found[a]).collect();
        let range = match inst.op {
            SOp::Param(k) => params.get(k as usize).copied().flatten(),
            SOp::Const(l) => number(l),
            SOp::Prim(p) => primitive(program, p, inst, &args),
            SOp::Func(_) => None,
        };
        // What does not fit wraps around.
        found[v] = range.filter(|r| fits(*r, inst.dtype)).or_else(|| whole(inst.dtype));
    }
    found[*program.outputs.first()?]
}

fn primitive(
    program: &ScalarProgram,
    p: Prim,
    inst: &SInst,
    args: &[Option<ValueRange>],
) -> Option<ValueRange> {
    let arg = |k: usize| args.get(k).copied().flatten();
    let (x, y) = (arg(0), arg(1));
    let both = |of: fn(i64, i64) -> Option<i64>| {
        let ((a, b), (c, d)) = (x?, y?);
        let ends = [of(a, c)?, of(a, d)?, of(b, c)?, of(b, d)?];
        Some((*ends.iter().min()?, *ends.iter().max()?))
    };
    match p {
        Prim::Eq | Prim::Ne | Prim::Lt | Prim::Le | Prim::Gt | Prim::Ge => Some((0, 1)),
        Prim::Select => Some(union(arg(1)?, arg(2)?)),
        Prim::Add => both(i64::checked_add),
        Prim::Sub => both(i64::checked_sub),
        Prim::Mul => both(i64::checked_mul),
        Prim::Min => Some((x?.0.min(y?.0), x?.1.min(y?.1))),
        Prim::Max => Some((x?.0.max(y?.0), x?.1.max(y?.1))),
        // Without a sign, no bit is set that is not in both.
        Prim::And if x?.0 >= 0 || y?.0 >= 0 => {
            let most = [x?, y?].iter().filter(|r| r.0 >= 0).map(|r| r.1).min()?;
            Some((0, most))
        }
        Prim::Convert => {
            let from = program.insts[*inst.args.first()?].dtype;
            // Floats may be anything.
            whole(from).and(x)
        }
        // What the type holds.
        Prim::And | Prim::Or | Prim::Xor | Prim::Not => None,
        Prim::Div | Prim::Rem | Prim::Neg | Prim::Abs => None,
        Prim::Shl | Prim::ShrL | Prim::ShrA | Prim::MulHi | Prim::Clz | Prim::PopCount => None,
        Prim::Fma
        | Prim::Sqrt
        | Prim::Floor
        | Prim::Ceil
        | Prim::RoundEven
        | Prim::Trunc
        | Prim::CopySign => None,
        Prim::Bitcast | Prim::Lookup(_) => None,
    }
}
