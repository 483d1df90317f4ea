//! Exact remainders of `f32` written out in `f64`, as straight-line code that vectors run.
//!
//! Both operands have 24 significant bits, and `f64` has 53. A round takes a rounded multiple of the divisor away:
//! `q = roundeven(r * (1 / y))`, then `r - q * y` by `fma`. The relative error of `q` is below 2^-51.9, so a round shortens the
//! remainder by 51 bits at least, until it is half of the divisor. The difference is exact: what is taken away has the
//! magnitude of `r`, its last bit is that of `q` times that of `y`, and so is the unit of the difference; the error of `q` is a few of its
//! last bits, so the difference is less than 2^27 units. Of an `f32` divided by the smallest one the quotient has 277 bits:
//! six rounds are always enough, and fewer where the divisor is a constant.

use super::prim::Prim;
use super::program::{SOp, SVal, ScalarProgram};
use super::record::{Recorder, S};
use crate::dtype::DType;
use smallvec::SmallVec;

/// The same program with remainders of `f32` written out in other primitives, to the bit. Those of `f64` stay.
pub fn expand_remainders(program: &ScalarProgram) -> ScalarProgram {
    let is_remainder = |v: SVal| {
        let inst = &program.insts[v];
        inst.op == SOp::Prim(Prim::Rem) && inst.dtype == DType::F32
    };
    if !program.insts.keys().any(is_remainder) {
        return program.clone();
    }
    Recorder::rerecord(program, |recorder, params| {
        let mut map: Vec<S<'_>> = Vec::with_capacity(program.insts.len());
        for (v, inst) in program.insts.iter() {
            let of = |a: &SVal| map[a.as_u32() as usize];
            let value = match inst.op {
                SOp::Param(k) => params[k as usize],
                _ if is_remainder(v) => {
                    let most = quotient_bits(program, inst.args[1]);
                    remainder(of(&inst.args[0]), of(&inst.args[1]), rounds(most))
                }
                op => {
                    let args: SmallVec<[S<'_>; 3]> = inst.args.iter().map(of).collect();
                    recorder.push(op, &args, inst.dtype)
                }
            };
            map.push(value);
        }
        program.outputs.iter().map(|o| map[o.as_u32() as usize]).collect()
    })
}

/// The quotients by this divisor are below two to this power.
fn quotient_bits(program: &ScalarProgram, divisor: SVal) -> i32 {
    let SOp::Const(c) = program.insts[divisor].op else { return GREATEST - SMALLEST };
    let magnitude = c.to_f64().abs();
    // The exponent of an `f32`, which `f64` has no subnormal of.
    match magnitude > 0.0 && magnitude.is_finite() {
        true => GREATEST - ((magnitude.to_bits() >> 52) as i32 - 1023),
        false => 0,
    }
}

/// Every finite `f32` is below two to the first, and none but 0 is below two to the second.
const GREATEST: i32 = 128;
const SMALLEST: i32 = -149;

/// Rounds until the remainder is less than the divisor: all but the last shorten the quotient by 51 bits, and the last one
/// is given a quotient of 50 bits at most.
fn rounds(bits: i32) -> usize {
    1 + usize::try_from(bits - 50).unwrap_or(0).div_ceil(51)
}

fn remainder<'r>(x: S<'r>, y: S<'r>, rounds: usize) -> S<'r> {
    let (a, b) = (x.abs(), y.abs());
    let [mut r, divisor] = [a, b].map(|v| v.convert(DType::F64));
    let (inverse, away) = (1.0 / divisor, -divisor);
    for _ in 0..rounds {
        r = (r * inverse).round_even().fma(away, r);
    }
    // At most about half of the divisor, of either sign; NaN where an operand is, without a divisor and of infinity.
    let found = r.lt(0.0).select(r + divisor, r).convert(DType::F32);
    // Below the divisor, which may be infinity, nothing is taken away.
    a.lt(b).select(x, found.copysign(x))
}
