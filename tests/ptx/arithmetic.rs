//! What instructions that only compute give.

use adfuse::ir::{DType, Literal};
use std::cmp::Ordering;

fn f(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

fn d(x: u64) -> f64 {
    f64::from_bits(x)
}

fn of_f(x: f32) -> u64 {
    x.to_bits().into()
}

fn w(x: u64) -> u32 {
    x as u32
}

fn s(x: u64) -> i32 {
    x as u32 as i32
}

fn l(x: u64) -> i64 {
    x as i64
}

fn of_s(x: i32) -> u64 {
    (x as u32).into()
}

fn rounded(kind: DType, x: f64) -> u64 {
    Literal::from_f64(kind, x).bits()
}

/// A float of the narrower type, towards zero.
fn cut(x: f64) -> f32 {
    let near = x as f32;
    match f64::from(near).abs() > x.abs() {
        true => f32::from_bits(near.to_bits() - 1),
        false => near,
    }
}

/// Comparisons: those of floats that hold where one is NaN end in `u`, but for `nan` itself.
fn compares(relation: &str, kind: &str) -> fn([u64; 3]) -> u64 {
    macro_rules! all {
        ($of:ident) => {
            match relation {
                "eq" => |[a, b, _]| ($of(a) == $of(b)).into(),
                "ne" => |[a, b, _]| ($of(a) != $of(b)).into(),
                "lt" => |[a, b, _]| ($of(a) < $of(b)).into(),
                "le" => |[a, b, _]| ($of(a) <= $of(b)).into(),
                "gt" => |[a, b, _]| ($of(a) > $of(b)).into(),
                "ge" => |[a, b, _]| ($of(a) >= $of(b)).into(),
                _ => panic!("setp.{relation}.{kind}"),
            }
        };
    }
    macro_rules! floats {
        ($of:ident) => {
            match relation {
                "nan" => |[a, b, _]| ($of(a).is_nan() || $of(b).is_nan()).into(),
                "neu" => |[a, b, _]| ($of(a) != $of(b)).into(),
                "ne" => |[a, b, _]| ($of(a) < $of(b) || $of(a) > $of(b)).into(),
                "ltu" => {
                    |[a, b, _]| ($of(a).partial_cmp(&$of(b)).is_none_or(Ordering::is_lt)).into()
                }
                "gtu" => {
                    |[a, b, _]| ($of(a).partial_cmp(&$of(b)).is_none_or(Ordering::is_gt)).into()
                }
                "equ" => {
                    |[a, b, _]| ($of(a).partial_cmp(&$of(b)).is_none_or(Ordering::is_eq)).into()
                }
                _ => all!($of),
            }
        };
    }
    match kind {
        "u32" => all!(w),
        "s32" => all!(s),
        "s64" => all!(l),
        "u64" => all!(u64),
        "f32" => floats!(f),
        _ => floats!(d),
    }
}

fn u64(x: u64) -> u64 {
    x
}

/// What an instruction without other effects gives.
pub(crate) fn computes(op: &str, parts: &[&str]) -> fn([u64; 3]) -> u64 {
    if parts.len() == 3 && parts[0] == "setp" {
        return compares(parts[1], parts[2]);
    }
    match op {
        "setp.ne.and.s32" => |[a, b, p]| u64::from(s(a) != s(b)) & p,
        "setp.eq.and.s32" => |[a, b, p]| u64::from(s(a) == s(b)) & p,
        "setp.lt.and.s32" => |[a, b, p]| u64::from(s(a) < s(b)) & p,
        "setp.le.and.s32" => |[a, b, p]| u64::from(s(a) <= s(b)) & p,
        "setp.ge.and.s32" => |[a, b, p]| u64::from(s(a) >= s(b)) & p,
        "mov.b16" | "cvt.u32.u16" | "cvt.u16.u32" => |[a, _, _]| a & 0xffff,
        "mov.b32" | "mov.u32" | "mov.f32" | "cvt.u32.u64" | "cvt.u64.u32" => {
            |[a, _, _]| w(a).into()
        }
        "mov.b64" | "mov.u64" | "mov.f64" | "cvta.to.global.u64" => |[a, _, _]| a,
        _ if parts.first() == Some(&"selp") => |[a, b, p]| if p != 0 { a } else { b },
        "and.pred" | "and.b32" | "and.b64" => |[a, b, _]| a & b,
        "or.pred" | "or.b32" | "or.b64" => |[a, b, _]| a | b,
        "xor.pred" | "xor.b64" => |[a, b, _]| a ^ b,
        "xor.b32" => |[a, b, _]| w(a ^ b).into(),
        "not.pred" => |[a, _, _]| a ^ 1,
        "not.b32" => |[a, _, _]| w(!a).into(),
        "not.b64" => |[a, _, _]| !a,
        "add.s32" | "add.u32" => |[a, b, _]| w(a).wrapping_add(w(b)).into(),
        "add.s64" => |[a, b, _]| a.wrapping_add(b),
        "sub.s32" | "sub.u32" => |[a, b, _]| w(a).wrapping_sub(w(b)).into(),
        "sub.s64" => |[a, b, _]| a.wrapping_sub(b),
        "neg.s32" => |[a, _, _]| w(a).wrapping_neg().into(),
        "neg.s64" => |[a, _, _]| a.wrapping_neg(),
        "mul.lo.s32" | "mul.lo.u32" => |[a, b, _]| w(a).wrapping_mul(w(b)).into(),
        "mul.lo.s64" => |[a, b, _]| a.wrapping_mul(b),
        "mul.hi.u32" => |[a, b, _]| (u64::from(w(a)) * u64::from(w(b))) >> 32,
        "mul.hi.u64" => |[a, b, _]| ((u128::from(a) * u128::from(b)) >> 64) as u64,
        "mad.lo.s32" | "mad.lo.u32" => {
            |[a, b, c]| w(a).wrapping_mul(w(b)).wrapping_add(w(c)).into()
        }
        "mad.lo.s64" => |[a, b, c]| a.wrapping_mul(b).wrapping_add(c),
        "mad.wide.s32" => |[a, b, c]| (i64::from(s(a)) * i64::from(s(b)) + l(c)) as u64,
        "mad.wide.u32" => |[a, b, c]| u64::from(w(a)) * u64::from(w(b)) + c,
        "div.s32" => |[a, b, _]| of_s(s(a).wrapping_div(s(b))),
        "div.u32" => |[a, b, _]| (w(a) / w(b)).into(),
        "div.s64" => |[a, b, _]| l(a).wrapping_div(l(b)) as u64,
        "div.u64" => |[a, b, _]| a / b,
        "rem.s32" => |[a, b, _]| of_s(s(a).wrapping_rem(s(b))),
        "rem.u32" => |[a, b, _]| (w(a) % w(b)).into(),
        "rem.s64" => |[a, b, _]| l(a).wrapping_rem(l(b)) as u64,
        "rem.u64" => |[a, b, _]| a % b,
        "min.s32" => |[a, b, _]| of_s(s(a).min(s(b))),
        "max.s32" => |[a, b, _]| of_s(s(a).max(s(b))),
        "min.u32" => |[a, b, _]| w(a).min(w(b)).into(),
        "max.u32" => |[a, b, _]| w(a).max(w(b)).into(),
        "min.s64" => |[a, b, _]| l(a).min(l(b)) as u64,
        "max.s64" => |[a, b, _]| l(a).max(l(b)) as u64,
        "min.u64" => |[a, b, _]| a.min(b),
        // Shifts by the width and more leave nothing, or the sign.
        "shl.b32" => |[a, b, _]| w(a).checked_shl(w(b)).unwrap_or(0).into(),
        "shr.u32" => |[a, b, _]| w(a).checked_shr(w(b)).unwrap_or(0).into(),
        "shr.s32" => |[a, b, _]| of_s(s(a) >> w(b).min(31)),
        "shl.b64" => |[a, b, _]| a.checked_shl(w(b)).unwrap_or(0),
        "shr.u64" => |[a, b, _]| a.checked_shr(w(b)).unwrap_or(0),
        "shr.s64" => |[a, b, _]| (l(a) >> w(b).min(63)) as u64,
        "clz.b32" => |[a, _, _]| w(a).leading_zeros().into(),
        "clz.b64" => |[a, _, _]| a.leading_zeros().into(),
        "popc.b32" => |[a, _, _]| w(a).count_ones().into(),
        "popc.b64" => |[a, _, _]| a.count_ones().into(),
        "bfe.u32" => |[a, at, n]| (a & 0xffff_ffff) >> at & ((1 << n) - 1),
        "bfe.s32" => |[a, at, n]| of_s(((w(a) << (32 - at - n)) as i32) >> (32 - n)),
        "cvt.s64.s32" => |[a, _, _]| i64::from(s(a)) as u64,
        "cvt.f64.f32" => |[a, _, _]| f64::from(f(a)).to_bits(),
        "cvt.rn.f32.f64" => |[a, _, _]| of_f(d(a) as f32),
        "cvt.rz.f32.f64" => |[a, _, _]| of_f(cut(d(a))),
        "cvt.rn.bf16.f32" => |[a, _, _]| rounded(DType::BF16, f(a).into()),
        "cvt.rn.f16.f32" => |[a, _, _]| rounded(DType::F16, f(a).into()),
        "cvt.rn.f16.f64" => |[a, _, _]| rounded(DType::F16, d(a)),
        "cvt.f32.f16" => |[a, _, _]| of_f(Literal::from_bits(DType::F16, a).to_f64() as f32),
        "cvt.rn.f32.s32" => |[a, _, _]| of_f(s(a) as f32),
        "cvt.rn.f32.u32" => |[a, _, _]| of_f(w(a) as f32),
        "cvt.rn.f32.s64" => |[a, _, _]| of_f(l(a) as f32),
        "cvt.rn.f64.s32" => |[a, _, _]| f64::from(s(a)).to_bits(),
        "cvt.rn.f64.u32" => |[a, _, _]| f64::from(w(a)).to_bits(),
        "cvt.rn.f64.s64" => |[a, _, _]| (l(a) as f64).to_bits(),
        "cvt.rzi.s32.f32" => |[a, _, _]| of_s(f(a) as i32),
        "cvt.rzi.u32.f32" => |[a, _, _]| (f(a) as u32).into(),
        "cvt.rzi.s64.f32" => |[a, _, _]| (f(a) as i64) as u64,
        "cvt.rzi.s32.f64" => |[a, _, _]| of_s(d(a) as i32),
        "cvt.rzi.u32.f64" => |[a, _, _]| (d(a) as u32).into(),
        "cvt.rzi.s64.f64" => |[a, _, _]| (d(a) as i64) as u64,
        // To the nearest of 10 bits, halves away from zero.
        "cvt.rna.tf32.f32" => |[a, _, _]| {
            let finite = a & 0x7f80_0000 != 0x7f80_0000;
            if finite { ((w(a) + 0x1000) & !0x1fff).into() } else { w(a).into() }
        },
        "cvt.rmi.f32.f32" => |[a, _, _]| of_f(f(a).floor()),
        "cvt.rpi.f32.f32" => |[a, _, _]| of_f(f(a).ceil()),
        "cvt.rni.f32.f32" => |[a, _, _]| of_f(f(a).round_ties_even()),
        "cvt.rzi.f32.f32" => |[a, _, _]| of_f(f(a).trunc()),
        "cvt.rmi.f64.f64" => |[a, _, _]| d(a).floor().to_bits(),
        "cvt.rpi.f64.f64" => |[a, _, _]| d(a).ceil().to_bits(),
        "cvt.rni.f64.f64" => |[a, _, _]| d(a).round_ties_even().to_bits(),
        "cvt.rzi.f64.f64" => |[a, _, _]| d(a).trunc().to_bits(),
        "add.rn.f32" => |[a, b, _]| of_f(f(a) + f(b)),
        "sub.rn.f32" => |[a, b, _]| of_f(f(a) - f(b)),
        "mul.rn.f32" => |[a, b, _]| of_f(f(a) * f(b)),
        "div.rn.f32" => |[a, b, _]| of_f(f(a) / f(b)),
        "fma.rn.f32" => |[a, b, c]| of_f(f(a).mul_add(f(b), f(c))),
        "sqrt.rn.f32" => |[a, _, _]| of_f(f(a).sqrt()),
        "add.rn.f64" => |[a, b, _]| (d(a) + d(b)).to_bits(),
        "sub.rn.f64" => |[a, b, _]| (d(a) - d(b)).to_bits(),
        "mul.rn.f64" => |[a, b, _]| (d(a) * d(b)).to_bits(),
        "div.rn.f64" => |[a, b, _]| (d(a) / d(b)).to_bits(),
        "fma.rn.f64" => |[a, b, c]| d(a).mul_add(d(b), d(c)).to_bits(),
        "sqrt.rn.f64" => |[a, _, _]| d(a).sqrt().to_bits(),
        "neg.f32" => |[a, _, _]| a ^ 1 << 31,
        "neg.f64" => |[a, _, _]| a ^ 1 << 63,
        "abs.f32" => |[a, _, _]| a & !(1 << 31),
        "abs.f64" => |[a, _, _]| a & !(1 << 63),
        "copysign.f32" => |[a, b, _]| (a & 1 << 31) | (b & !(1 << 31)),
        "copysign.f64" => |[a, b, _]| (a & 1 << 63) | (b & !(1 << 63)),
        "min.NaN.f32" => |[a, b, _]| of_f(least(f(a).into(), f(b).into()) as f32),
        "max.NaN.f32" => |[a, b, _]| of_f(-least(-f64::from(f(a)), -f64::from(f(b))) as f32),
        "min.NaN.bf16x2" => |[a, b, _]| in_pairs(DType::BF16, a, b, least),
        "max.NaN.bf16x2" => |[a, b, _]| in_pairs(DType::BF16, a, b, |x, y| -least(-x, -y)),
        "min.NaN.f16x2" => |[a, b, _]| in_pairs(DType::F16, a, b, least),
        "max.NaN.f16x2" => |[a, b, _]| in_pairs(DType::F16, a, b, |x, y| -least(-x, -y)),
        "add.rn.bf16x2" => |[a, b, _]| in_pairs(DType::BF16, a, b, odd_sum),
        "sub.rn.bf16x2" => |[a, b, _]| in_pairs(DType::BF16, a, b, |x, y| odd_sum(x, -y)),
        "mul.rn.bf16x2" => |[a, b, _]| in_pairs(DType::BF16, a, b, |x, y| x * y),
        "add.rn.f16x2" => |[a, b, _]| in_pairs(DType::F16, a, b, odd_sum),
        "sub.rn.f16x2" => |[a, b, _]| in_pairs(DType::F16, a, b, |x, y| odd_sum(x, -y)),
        "mul.rn.f16x2" => |[a, b, _]| in_pairs(DType::F16, a, b, |x, y| x * y),
        // Where one is NaN, the other: what comes after asks for it.
        "min.f64" => |[a, b, _]| least(d(a), d(b)).to_bits(),
        "max.f64" => |[a, b, _]| (-least(-d(a), -d(b))).to_bits(),
        _ => panic!("the machine does not know `{op}`"),
    }
}

/// An operation on both halves of words.
fn in_pairs(dtype: DType, a: u64, b: u64, of: fn(f64, f64) -> f64) -> u64 {
    let half = |shift: u64| {
        let [x, y] = [a, b].map(|word| Literal::from_bits(dtype, word >> shift & 0xffff).to_f64());
        rounded(dtype, of(x, y)) << shift
    };
    half(0) | half(16)
}

/// A sum whose last bit is odd where it is not exact, so that it is rounded to fewer bits as the exact sum is. Products of
/// two 16-bit floats are exact.
fn odd_sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    // What rounding left (Knuth's exact sum of two).
    let part = sum - a;
    let left = (a - (sum - part)) + (b - part);
    match left.partial_cmp(&0.0) {
        Some(Ordering::Equal) | None => sum,
        _ if sum.to_bits() & 1 == 1 => sum,
        Some(way) => {
            let away = (way == Ordering::Greater) == (sum > 0.0);
            f64::from_bits(if away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
        }
    }
}

/// Of all numbers of 16 bits with many others, sums, differences and products that are rounded once are those that are computed in
/// `f32` and rounded then.
pub(crate) fn pairs_round_once() {
    for (dtype, kind) in [(DType::BF16, "bf16x2"), (DType::F16, "f16x2")] {
        // Ends of binades, halves between, subnormals, infinities; and a sequence through all bits.
        let mut others: Vec<u64> = (0..16).flat_map(|bit| [1 << bit, (1 << bit) - 1]).collect();
        others.extend((0u64..48).map(|n| n.wrapping_mul(40_503) & 0xffff));
        type Wide = fn(f32, f32) -> f32;
        let ways = [("add", (|x, y| x + y) as Wide), ("sub", |x, y| x - y), ("mul", |x, y| x * y)];
        for (name, wide) in ways {
            let op = format!("{name}.rn.{kind}");
            let once = computes(&op, &[]);
            for x in 0..=0xffffu64 {
                let a = Literal::from_bits(dtype, x).to_f64() as f32;
                for &y in &others {
                    let b = Literal::from_bits(dtype, y).to_f64() as f32;
                    let due = rounded(dtype, wide(a, b).into());
                    let found = once([x | y << 16, y | x << 16, 0]);
                    let swapped = rounded(dtype, wide(b, a).into());
                    assert_eq!(found, due | swapped << 16, "{op} {x:x} {y:x}");
                }
            }
        }
    }
}

/// The least, -0 below 0; NaN where one is.
fn least(a: f64, b: f64) -> f64 {
    match a.is_nan() || b.is_nan() {
        true => f64::NAN,
        false if a == b => {
            if a.is_sign_negative() {
                a
            } else {
                b
            }
        }
        false => a.min(b),
    }
}
