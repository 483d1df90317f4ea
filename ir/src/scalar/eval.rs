//! Runs an expanded scalar program over lanes of elements: the meaning of every primitive.
//!
//! Elements travel as bits in `u64`, whatever their type; an instruction is decoded once for
//! [`LANES`] elements, which keeps this plain interpreter fast enough to train small models.

use super::prim::Prim;
use super::program::{SInst, SOp, ScalarProgram};
use crate::dtype::DType;
use crate::literal::Literal;

/// How many elements one pass over a program evaluates.
pub const LANES: usize = 128;

/// The bits of [`LANES`] elements.
pub type Lanes = [u64; LANES];

/// Evaluates `program`, which holds no [`Func`](super::Func), on the first `n` lanes of `params`
/// and returns the outputs' lanes. `regs` is working storage, reused between calls.
pub fn eval_lanes<'a>(
    program: &ScalarProgram,
    params: &[Lanes],
    n: usize,
    regs: &'a mut Vec<Lanes>,
) -> Vec<&'a Lanes> {
    regs.resize(program.insts.len(), [0; LANES]);
    for (v, inst) in program.insts.iter() {
        let (done, rest) = regs.split_at_mut(v.as_u32() as usize);
        let arg = |k: usize| &done[inst.args[k].as_u32() as usize][..n];
        let out = &mut rest[0][..n];
        match inst.op {
            SOp::Param(k) => out.copy_from_slice(&params[k as usize][..n]),
            SOp::Const(c) => out.fill(c.bits()),
            SOp::Func(f) => unreachable!("function {} in an expanded program", f.name()),
            SOp::Prim(p) => {
                let from = inst.args.first().map(|&a| program.insts[a].dtype);
                eval_prim(p, from.unwrap_or(inst.dtype), inst, &arg, out);
            }
        }
    }
    program.outputs.iter().map(|o| &regs[o.as_u32() as usize]).collect()
}

/// Evaluates an expanded program with one output on single values.
pub fn eval_one(program: &ScalarProgram, params: &[Literal]) -> Literal {
    let lanes: Vec<Lanes> = params.iter().map(|p| [p.bits(); LANES]).collect();
    let mut regs = Vec::new();
    let bits = eval_lanes(program, &lanes, 1, &mut regs)[0][0];
    Literal::from_bits(program.insts[program.outputs[0]].dtype, bits)
}

/// A Rust type that carries elements of a `DType`.
trait Elem: Copy {
    fn get(bits: u64) -> Self;
    fn put(self) -> u64;
}

macro_rules! elems {
    ($($t:ty: $get:expr, $put:expr;)*) => {
        $(impl Elem for $t {
            #[inline(always)]
            fn get(bits: u64) -> $t { let f: fn(u64) -> $t = $get; f(bits) }
            #[inline(always)]
            fn put(self) -> u64 { let f: fn($t) -> u64 = $put; f(self) }
        })*
    };
}

elems! {
    f64: f64::from_bits, f64::to_bits;
    f32: |b| f32::from_bits(b as u32), |x| x.to_bits().into();
    i64: |b| b as i64, |x| x as u64;
    i32: |b| b as i32, |x| x as u32 as u64;
    u32: |b| b as u32, |x| x.into();
    i8: |b| b as i8, |x| x as u8 as u64;
    u8: |b| b as u8, |x| x.into();
    bool: |b| b & 1 == 1, |x| x.into();
}

fn map1<T: Elem, R: Elem>(a: &[u64], out: &mut [u64], f: impl Fn(T) -> R) {
    for (o, &a) in out.iter_mut().zip(a) {
        *o = f(T::get(a)).put();
    }
}

fn map2<T: Elem, R: Elem>(a: &[u64], b: &[u64], out: &mut [u64], f: impl Fn(T, T) -> R) {
    for ((o, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *o = f(T::get(a), T::get(b)).put();
    }
}

/// Dispatches on the operand type, with `$T` bound to its Rust type.
macro_rules! by_type {
    ($d:expr; $($variant:ident $t:ty),*; |$T:ident| $body:expr) => {
        match $d {
            $(DType::$variant => { type $T = $t; $body })*
            other => unreachable!("primitive on {other}"),
        }
    };
}

fn eval_prim<'a>(
    prim: Prim,
    from: DType,
    inst: &SInst,
    arg: &impl Fn(usize) -> &'a [u64],
    out: &mut [u64],
) {
    match prim {
        Prim::Select => {
            for (i, o) in out.iter_mut().enumerate() {
                *o = if arg(0)[i] & 1 == 1 { arg(1)[i] } else { arg(2)[i] };
            }
        }
        Prim::Convert => {
            for (o, &a) in out.iter_mut().zip(arg(0)) {
                *o = Literal::from_bits(from, a).convert(inst.dtype).bits();
            }
        }
        Prim::Bitcast => out.copy_from_slice(arg(0)),
        Prim::Lookup(table) => {
            let entries = table.entries();
            let last = entries.len() as i32 - 1;
            map1::<i32, i64>(arg(0), out, |i| entries[i.clamp(0, last) as usize] as i64);
        }
        Prim::And => bits2(arg, out, |a, b| a & b),
        Prim::Or => bits2(arg, out, |a, b| a | b),
        Prim::Xor => bits2(arg, out, |a, b| a ^ b),
        Prim::Not => {
            let mask = width_mask(from);
            map1::<i64, i64>(arg(0), out, |a| !a & mask as i64);
        }
        Prim::Shl | Prim::ShrL | Prim::ShrA => shift(prim, from, arg, out),
        Prim::Clz => {
            let pad = 64 - from.bits();
            map1::<i64, i64>(arg(0), out, |a| i64::from(a.leading_zeros() - pad));
        }
        Prim::PopCount => map1::<i64, i64>(arg(0), out, |a| a.count_ones().into()),
        Prim::MulHi => {
            let bits = from.bits();
            let f = |a: i64, b: i64| ((a as u64 as u128 * b as u64 as u128) >> bits) as i64;
            map2::<i64, i64>(arg(0), arg(1), out, f);
        }
        Prim::Eq | Prim::Ne | Prim::Lt | Prim::Le | Prim::Gt | Prim::Ge => {
            compare(prim, from, arg, out)
        }
        Prim::Fma
        | Prim::Sqrt
        | Prim::Floor
        | Prim::Ceil
        | Prim::RoundEven
        | Prim::Trunc
        | Prim::CopySign => float(prim, from, arg, out),
        Prim::Add
        | Prim::Sub
        | Prim::Mul
        | Prim::Div
        | Prim::Rem
        | Prim::Neg
        | Prim::Abs
        | Prim::Min
        | Prim::Max => match from.is_float() {
            true => float(prim, from, arg, out),
            false => int(prim, from, arg, out),
        },
    }
}

fn width_mask(d: DType) -> u64 {
    u64::MAX >> (64 - d.bits())
}

fn bits2<'a>(arg: &impl Fn(usize) -> &'a [u64], out: &mut [u64], f: impl Fn(u64, u64) -> u64) {
    for ((o, &a), &b) in out.iter_mut().zip(arg(0)).zip(arg(1)) {
        *o = f(a, b);
    }
}

fn shift<'a>(prim: Prim, d: DType, arg: &impl Fn(usize) -> &'a [u64], out: &mut [u64]) {
    let bits = d.bits();
    let mask = width_mask(d);
    for ((o, &a), &count) in out.iter_mut().zip(arg(0)).zip(arg(1)) {
        let inside = count < u64::from(bits);
        let signed = ((a << (64 - bits)) as i64) >> (64 - bits);
        *o = mask
            & match prim {
                Prim::Shl if inside => a << count,
                Prim::ShrL if inside => a >> count,
                Prim::ShrA => (signed >> count.min(63)) as u64,
                // Counts outside.
                _ => 0,
            };
    }
}

// One macro serves every type, `bool` among them.
#[allow(clippy::bool_comparison)]
fn compare<'a>(prim: Prim, d: DType, arg: &impl Fn(usize) -> &'a [u64], out: &mut [u64]) {
    let (a, b) = (arg(0), arg(1));
    by_type!(d; F64 f64, F32 f32, I64 i64, I32 i32, U32 u32, I8 i8, U8 u8, Bool bool; |T| match prim {
        Prim::Eq => map2::<T, bool>(a, b, out, |x, y| x == y),
        Prim::Ne => map2::<T, bool>(a, b, out, |x, y| x != y),
        Prim::Lt => map2::<T, bool>(a, b, out, |x, y| x < y),
        Prim::Le => map2::<T, bool>(a, b, out, |x, y| x <= y),
        Prim::Gt => map2::<T, bool>(a, b, out, |x, y| x > y),
        Prim::Ge => map2::<T, bool>(a, b, out, |x, y| x >= y),
        other => unreachable!("{other:?} is no comparison"),
    })
}

fn float<'a>(prim: Prim, d: DType, arg: &impl Fn(usize) -> &'a [u64], out: &mut [u64]) {
    let a = arg(0);
    let b = || arg(1);
    by_type!(d; F64 f64, F32 f32; |T| match prim {
        Prim::Add => map2::<T, T>(a, b(), out, |x, y| x + y),
        Prim::Sub => map2::<T, T>(a, b(), out, |x, y| x - y),
        Prim::Mul => map2::<T, T>(a, b(), out, |x, y| x * y),
        Prim::Div => map2::<T, T>(a, b(), out, |x, y| x / y),
        Prim::Rem => map2::<T, T>(a, b(), out, |x, y| x % y),
        Prim::Neg => map1::<T, T>(a, out, |x| -x),
        Prim::Abs => map1::<T, T>(a, out, |x| x.abs()),
        Prim::Sqrt => map1::<T, T>(a, out, |x| x.sqrt()),
        Prim::Floor => map1::<T, T>(a, out, |x| x.floor()),
        Prim::Ceil => map1::<T, T>(a, out, |x| x.ceil()),
        Prim::RoundEven => map1::<T, T>(a, out, |x| x.round_ties_even()),
        Prim::Trunc => map1::<T, T>(a, out, |x| x.trunc()),
        Prim::CopySign => map2::<T, T>(a, b(), out, |x, y| x.copysign(y)),
        // IEEE 754-2019 minimum and maximum: NaN wins, -0 < +0.
        Prim::Min => map2::<T, T>(a, b(), out, |x, y| {
            if x < y || x.is_nan() || (x == y && x.is_sign_negative()) { x } else { y }
        }),
        Prim::Max => map2::<T, T>(a, b(), out, |x, y| {
            if x > y || x.is_nan() || (x == y && x.is_sign_positive()) { x } else { y }
        }),
        Prim::Fma => {
            for (i, o) in out.iter_mut().enumerate() {
                *o = T::get(a[i]).mul_add(T::get(b()[i]), T::get(arg(2)[i])).put();
            }
        }
        other => unreachable!("{other:?} on floats"),
    })
}

fn int<'a>(prim: Prim, d: DType, arg: &impl Fn(usize) -> &'a [u64], out: &mut [u64]) {
    let a = arg(0);
    let b = || arg(1);
    if d == DType::Bool {
        // Arithmetic on truth values exists only as min (and) and max (or).
        return match prim {
            Prim::Min => bits2(arg, out, |x, y| x & y),
            Prim::Max => bits2(arg, out, |x, y| x | y),
            other => unreachable!("{other:?} on bool"),
        };
    }
    by_type!(d; I64 i64, I32 i32, U32 u32, I8 i8, U8 u8; |T| match prim {
        Prim::Add => map2::<T, T>(a, b(), out, T::wrapping_add),
        Prim::Sub => map2::<T, T>(a, b(), out, T::wrapping_sub),
        Prim::Mul => map2::<T, T>(a, b(), out, T::wrapping_mul),
        Prim::Div => {
            map2::<T, T>(a, b(), out, |x, y| if y == 0 { !0 } else { x.wrapping_div(y) });
        }
        Prim::Rem => {
            map2::<T, T>(a, b(), out, |x, y| if y == 0 { x } else { x.wrapping_rem(y) });
        }
        Prim::Neg => map1::<T, T>(a, out, T::wrapping_neg),
        Prim::Abs => {
            let negative = |x: T| d.is_signed_int() && x.put() >> (d.bits() - 1) & 1 == 1;
            map1::<T, T>(a, out, |x| if negative(x) { x.wrapping_neg() } else { x });
        }
        Prim::Min => map2::<T, T>(a, b(), out, |x, y| x.min(y)),
        Prim::Max => map2::<T, T>(a, b(), out, |x, y| x.max(y)),
        other => unreachable!("{other:?} on integers"),
    })
}
