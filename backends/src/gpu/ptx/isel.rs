//! Scalar programs as instructions: every primitive on every type, with the interpreter's bits.
//!
//! `bool` is a predicate; integers of 8 bits are in 32-bit registers, extended by their sign or by
//! zeros; 16-bit floats are bits that only conversions touch.

use super::asm::{Asm, Class, Reg};
use super::convert::{canonical, convert, narrowed};
use super::fast_math;
pub(crate) use super::operands::{both, class, not, select};
use super::operands::{constant, spelled};
use super::remainder::float_remainder;
use adfuse_ir::scalar::{Prim, SInst, SOp, ScalarProgram};
use adfuse_ir::{DType, Literal};
use smallvec::SmallVec;

/// The outputs of an expanded program for parameters in these registers.
pub(crate) fn outputs(asm: &mut Asm, program: &ScalarProgram, params: &[Option<Reg>]) -> Vec<Reg> {
    let live = program.live();
    let mut values: Vec<Option<Reg>> = Vec::with_capacity(program.insts.len());
    for (v, inst) in program.insts.iter() {
        if !live[v.as_u32() as usize] {
            values.push(None);
            continue;
        }
        let args = inst.args.iter().filter_map(|a| values[a.as_u32() as usize]).collect();
        values.push(instruction(asm, program, inst, &args, params));
    }
    program.outputs.iter().filter_map(|o| values[o.as_u32() as usize]).collect()
}

/// The operands of an instruction.
pub(super) type InstArgs = SmallVec<[Reg; 3]>;

/// What one instruction gives for operands in these registers, and parameters of the program in those; `None` where one is
/// missing.
pub(super) fn instruction(
    asm: &mut Asm,
    program: &ScalarProgram,
    inst: &SInst,
    args: &InstArgs,
    params: &[Option<Reg>],
) -> Option<Reg> {
    match inst.op {
        SOp::Param(k) => params.get(k as usize).copied().flatten(),
        // Nothing that a launch is given depends on how it is computed.
        _ if !asm.writes => (args.len() == inst.args.len()).then(|| asm.fresh(class(inst.dtype))),
        SOp::Const(c) => Some(constant(asm, c)),
        SOp::Prim(p) => (args.len() == inst.args.len()).then(|| {
            let quotient = fast_math::quotient(asm, program, inst, args);
            quotient.unwrap_or_else(|| prim(asm, p, program.source(inst), inst, args))
        }),
        SOp::Func(func) => {
            args.first().map(|&x| fast_math::function(asm, (program, inst), func, x))
        }
    }
}

fn prim(asm: &mut Asm, p: Prim, from: DType, inst: &SInst, a: &[Reg]) -> Reg {
    match p {
        Prim::Select => select(asm, a[0], a[1], a[2]),
        Prim::Convert => convert(asm, a[0], from, inst.dtype),
        Prim::Bitcast => bitcast(asm, a[0], from, inst.dtype),
        Prim::Lookup(table) => lookup(asm, a[0], table.entries().len()),
        Prim::Eq | Prim::Ne | Prim::Lt | Prim::Le | Prim::Gt | Prim::Ge => {
            compare(asm, p, from, a[0], a[1])
        }
        Prim::Fma
        | Prim::Sqrt
        | Prim::Floor
        | Prim::Ceil
        | Prim::RoundEven
        | Prim::Trunc
        | Prim::CopySign => float(asm, p, from, a),
        Prim::Add
        | Prim::Sub
        | Prim::Mul
        | Prim::Div
        | Prim::Rem
        | Prim::Neg
        | Prim::Abs
        | Prim::Min
        | Prim::Max
            if from.is_float() =>
        {
            float(asm, p, from, a)
        }
        Prim::And | Prim::Or | Prim::Xor | Prim::Not | Prim::Min | Prim::Max
            if from == DType::Bool =>
        {
            truth(asm, p, a)
        }
        Prim::Add
        | Prim::Sub
        | Prim::Mul
        | Prim::Div
        | Prim::Rem
        | Prim::Neg
        | Prim::Abs
        | Prim::Min
        | Prim::Max
        | Prim::And
        | Prim::Or
        | Prim::Xor
        | Prim::Not
        | Prim::Shl
        | Prim::ShrL
        | Prim::ShrA
        | Prim::MulHi
        | Prim::Clz
        | Prim::PopCount => integer(asm, p, from, a),
    }
}

fn bitcast(asm: &mut Asm, x: Reg, from: DType, to: DType) -> Reg {
    let x = if from.is_float() { canonical(asm, x, from) } else { x };
    let class = class(to);
    if from.bits() == 8 {
        return narrowed(asm, x, to);
    }
    match x.class == class {
        true => x,
        // Of the same width: f32 and i32, f64 and i64.
        false if from.bits() == 64 => asm.pure(class, "mov.b64", format_args!("{x}")),
        false => asm.pure(class, "mov.b32", format_args!("{x}")),
    }
}

fn lookup(asm: &mut Asm, index: Reg, entries: usize) -> Reg {
    asm.table = true;
    let low = asm.pure(Class::Word, "max.s32", format_args!("{index}, 0"));
    let place = asm.pure(Class::Word, "min.s32", format_args!("{low}, {}", entries - 1));
    let base = asm.pure(Class::Long, "mov.u64", "two_over_pi");
    let at = asm.pure(Class::Long, "mad.wide.s32", format_args!("{place}, 8, {base}"));
    asm.pure(Class::Long, "ld.const.u64", format_args!("[{at}]"))
}

fn compare(asm: &mut Asm, p: Prim, d: DType, x: Reg, y: Reg) -> Reg {
    if d == DType::Bool {
        let (nx, ny) = (not(asm, x), not(asm, y));
        return match p {
            Prim::Eq => {
                let differ = asm.pure(Class::Pred, "xor.pred", format_args!("{x}, {y}"));
                not(asm, differ)
            }
            Prim::Ne => asm.pure(Class::Pred, "xor.pred", format_args!("{x}, {y}")),
            Prim::Lt => both(asm, nx, y),
            Prim::Le => asm.pure(Class::Pred, "or.pred", format_args!("{nx}, {y}")),
            Prim::Gt => both(asm, x, ny),
            _ => asm.pure(Class::Pred, "or.pred", format_args!("{x}, {ny}")),
        };
    }
    let relation = match p {
        Prim::Eq => "eq",
        // Of floats, the one that holds for NaN.
        Prim::Ne if d.is_float() => "neu",
        Prim::Ne => "ne",
        Prim::Lt => "lt",
        Prim::Le => "le",
        Prim::Gt => "gt",
        _ => "ge",
    };
    let op = format!("setp.{relation}.{}", spelled(d));
    asm.pure(Class::Pred, &op, format_args!("{x}, {y}"))
}

fn truth(asm: &mut Asm, p: Prim, a: &[Reg]) -> Reg {
    match p {
        Prim::And | Prim::Min => both(asm, a[0], a[1]),
        Prim::Or | Prim::Max => {
            asm.pure(Class::Pred, "or.pred", format_args!("{}, {}", a[0], a[1]))
        }
        Prim::Xor => asm.pure(Class::Pred, "xor.pred", format_args!("{}, {}", a[0], a[1])),
        _ => not(asm, a[0]),
    }
}

fn float(asm: &mut Asm, p: Prim, d: DType, a: &[Reg]) -> Reg {
    let (c, t) = (class(d), spelled(d));
    let near = asm.near && d == DType::F32;
    let one = |asm: &mut Asm, op: &str| asm.pure(c, &format!("{op}.{t}"), a[0]);
    let two = |asm: &mut Asm, op: &str| {
        asm.pure(c, &format!("{op}.{t}"), format_args!("{}, {}", a[0], a[1]))
    };
    let rounded = |asm: &mut Asm, way: &str| asm.pure(c, &format!("cvt.{way}.{t}.{t}"), a[0]);
    if let Some(found) = near.then(|| fast_math::primitive(asm, p, a)).flatten() {
        return found;
    }
    match p {
        // Rounding is written, so that no product is joined with a sum.
        Prim::Add => two(asm, "add.rn"),
        Prim::Sub => two(asm, "sub.rn"),
        Prim::Mul => two(asm, "mul.rn"),
        Prim::Div => two(asm, "div.rn"),
        Prim::Rem => float_remainder(asm, d, a[0], a[1]),
        Prim::Neg => one(asm, "neg"),
        Prim::Abs => one(asm, "abs"),
        Prim::Sqrt => one(asm, "sqrt.rn"),
        Prim::Floor => rounded(asm, "rmi"),
        Prim::Ceil => rounded(asm, "rpi"),
        Prim::RoundEven => rounded(asm, "rni"),
        Prim::Trunc => rounded(asm, "rzi"),
        // The sign comes first here.
        Prim::CopySign => asm.pure(c, &format!("copysign.{t}"), format_args!("{}, {}", a[1], a[0])),
        Prim::Min if d == DType::F32 => two(asm, "min.NaN"),
        Prim::Max if d == DType::F32 => two(asm, "max.NaN"),
        Prim::Min | Prim::Max => {
            let least = two(asm, if p == Prim::Min { "min" } else { "max" });
            let args = format_args!("{}, {}", a[0], a[1]).to_string();
            let nan = asm.pure(Class::Pred, "setp.nan.f64", args);
            let quiet = constant(asm, Literal::from_f64(d, f64::NAN));
            select(asm, nan, quiet, least)
        }
        Prim::Fma => {
            asm.pure(c, &format!("fma.rn.{t}"), format_args!("{}, {}, {}", a[0], a[1], a[2]))
        }
        // None of these is one of floats.
        Prim::And
        | Prim::Or
        | Prim::Xor
        | Prim::Not
        | Prim::Shl
        | Prim::ShrL
        | Prim::ShrA
        | Prim::MulHi
        | Prim::Clz
        | Prim::PopCount
        | Prim::Eq
        | Prim::Ne
        | Prim::Lt
        | Prim::Le
        | Prim::Gt
        | Prim::Ge
        | Prim::Select
        | Prim::Convert
        | Prim::Bitcast
        | Prim::Lookup(_) => a[0],
    }
}

fn integer(asm: &mut Asm, p: Prim, d: DType, a: &[Reg]) -> Reg {
    let (c, bits) = (class(d), d.bits());
    let long = bits == 64;
    let t = spelled(d);
    let signed = if long { "s64" } else { "s32" };
    let raw = if long { "b64" } else { "b32" };
    let two = |asm: &mut Asm, op: &str| asm.pure(c, op, format_args!("{}, {}", a[0], a[1]));
    let found = match p {
        Prim::Add => two(asm, &format!("add.{signed}")),
        Prim::Sub => two(asm, &format!("sub.{signed}")),
        Prim::Mul => two(asm, &format!("mul.lo.{signed}")),
        Prim::Div | Prim::Rem => return quotient(asm, p, d, a[0], a[1]),
        Prim::Neg => asm.pure(c, &format!("neg.{signed}"), a[0]),
        Prim::Abs if d.is_signed_int() => {
            let below = asm.pure(Class::Pred, &format!("setp.lt.{t}"), format_args!("{}, 0", a[0]));
            let neg = asm.pure(c, &format!("neg.{signed}"), a[0]);
            select(asm, below, neg, a[0])
        }
        Prim::Abs => a[0],
        Prim::Min => two(asm, &format!("min.{t}")),
        Prim::Max => two(asm, &format!("max.{t}")),
        Prim::And => two(asm, &format!("and.{raw}")),
        Prim::Or => two(asm, &format!("or.{raw}")),
        Prim::Xor => two(asm, &format!("xor.{raw}")),
        Prim::Not => asm.pure(c, &format!("not.{raw}"), a[0]),
        Prim::Shl | Prim::ShrL | Prim::ShrA => shift(asm, p, d, a),
        Prim::MulHi => two(asm, if long { "mul.hi.u64" } else { "mul.hi.u32" }),
        Prim::Clz | Prim::PopCount => {
            let x = if bits == 8 { zero_extended(asm, a[0]) } else { a[0] };
            let op = if p == Prim::Clz { "clz" } else { "popc" };
            let count = asm.pure(Class::Word, &format!("{op}.{raw}"), x);
            match (long, bits == 8 && p == Prim::Clz) {
                (true, _) => asm.pure(Class::Long, "cvt.u64.u32", count),
                (_, true) => asm.pure(Class::Word, "sub.s32", format_args!("{count}, 24")),
                _ => count,
            }
        }
        // None of these is one of integers.
        Prim::Fma
        | Prim::Sqrt
        | Prim::Floor
        | Prim::Ceil
        | Prim::RoundEven
        | Prim::Trunc
        | Prim::CopySign
        | Prim::Eq
        | Prim::Ne
        | Prim::Lt
        | Prim::Le
        | Prim::Gt
        | Prim::Ge
        | Prim::Select
        | Prim::Convert
        | Prim::Bitcast
        | Prim::Lookup(_) => a[0],
    };
    narrowed(asm, found, d)
}

fn zero_extended(asm: &mut Asm, x: Reg) -> Reg {
    asm.pure(Class::Word, "and.b32", format_args!("{x}, 255"))
}

fn shift(asm: &mut Asm, p: Prim, d: DType, a: &[Reg]) -> Reg {
    let (c, long) = (class(d), d.bits() == 64);
    let mut x = a[0];
    // Counts that are outside are large, read without a sign: shifts by them clamp to the width.
    let count = match long {
        true => {
            let most = asm.pure(Class::Long, "min.u64", format_args!("{}, 64", a[1]));
            asm.pure(Class::Word, "cvt.u32.u64", most)
        }
        false => a[1],
    };
    if d.bits() == 8 {
        x = match p {
            Prim::ShrA => narrowed(asm, x, DType::I8),
            _ => zero_extended(asm, x),
        };
    }
    let op = match (p, long) {
        (Prim::Shl, false) => "shl.b32",
        (Prim::Shl, true) => "shl.b64",
        (Prim::ShrL, false) => "shr.u32",
        (Prim::ShrL, true) => "shr.u64",
        (_, false) => "shr.s32",
        (_, true) => "shr.s64",
    };
    asm.pure(c, op, format_args!("{x}, {count}"))
}

/// Integer quotients and remainders, where dividing by 0 and by -1 has a result.
fn quotient(asm: &mut Asm, p: Prim, d: DType, x: Reg, y: Reg) -> Reg {
    let (c, t) = (class(d), spelled(d));
    let signed = if d.bits() == 64 { "s64" } else { "s32" };
    let one = constant(asm, Literal::one(d));
    let zero = asm.pure(Class::Pred, &format!("setp.eq.{t}"), format_args!("{y}, 0"));
    let mut safe = select(asm, zero, one, y);
    let minus = d
        .is_signed_int()
        .then(|| asm.pure(Class::Pred, &format!("setp.eq.{t}"), format_args!("{y}, -1")));
    if let Some(minus) = minus {
        safe = select(asm, minus, one, safe);
    }
    if p == Prim::Rem {
        let rest = asm.pure(c, &format!("rem.{t}"), format_args!("{x}, {safe}"));
        return select(asm, zero, x, rest);
    }
    let mut found = asm.pure(c, &format!("div.{t}"), format_args!("{x}, {safe}"));
    if let Some(minus) = minus {
        let neg = asm.pure(c, &format!("neg.{signed}"), x);
        found = select(asm, minus, neg, found);
    }
    let ones = constant(asm, Literal::from_bits(d, u64::MAX));
    let found = select(asm, zero, ones, found);
    narrowed(asm, found, d)
}
