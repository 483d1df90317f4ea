//! Remainders of `f32` written out in `f64`, against the primitive, to the bit.

use adfuse_ir::scalar::{
    LANES, Lanes, Prim, Recorder, SOp, ScalarProgram, eval_lanes, expand_remainders,
};
use adfuse_ir::{DType, Literal};
use smallvec::smallvec;

/// A small generator of bits (SplitMix64), the same on every run.
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as u32
    }
}

fn remainder(divisor: Option<f32>) -> ScalarProgram {
    let d = DType::F32;
    let params = vec![d; 1 + usize::from(divisor.is_none())];
    Recorder::record(&params, &[d], |recorder, args| {
        let constant = |c: f32| recorder.constant(Literal::from_bits(d, c.to_bits().into()));
        let y = divisor.map_or_else(|| args[1], constant);
        smallvec![args[0] % y]
    })
}

/// Compares the written-out program with the primitive; NaNs are one.
fn check(divisor: Option<f32>, pairs: &[[u32; 2]]) {
    let program = remainder(divisor);
    let written = expand_remainders(&program);
    assert!(written.insts.values().all(|i| i.op != SOp::Prim(Prim::Rem)), "none is left");
    let mut regs = Vec::new();
    for pairs in pairs.chunks(LANES) {
        let mut params: Vec<Lanes> = vec![[0; LANES]; program.params.len()];
        for (k, pair) in pairs.iter().enumerate() {
            for (lanes, bits) in params.iter_mut().zip(pair) {
                lanes[k] = (*bits).into();
            }
        }
        let found = eval_lanes(&written, &params, pairs.len(), &mut regs)[0];
        for (&[x, y], &found) in pairs.iter().zip(found) {
            let (x, y) = (f32::from_bits(x), divisor.unwrap_or(f32::from_bits(y)));
            let (found, wanted) = (f32::from_bits(found as u32), x % y);
            let same = found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan();
            assert!(same, "{x:e} % {y:e} is {wanted:e}, not {found:e}");
        }
    }
}

/// Numbers of every class: zeros, subnormals, powers of two with their neighbours, the largest, infinity, NaN.
fn classes() -> Vec<u32> {
    let mut all = vec![0, 1, 2, 3, 0x7f_ffff, 0x7f80_0000, 0x7fc0_0000, 0x7f80_0001, 0x4049_0fdb];
    for exponent in (1..255).step_by(7).chain([254]) {
        let power: u32 = exponent << 23;
        all.extend([power - 1, power, power + 1, power + 0x55_5555, power + 0x7f_ffff]);
    }
    all.iter().flat_map(|&x| [x, x | 1 << 31]).collect()
}

#[test]
fn classes_of_numbers() {
    let all = classes();
    let pairs: Vec<[u32; 2]> = all.iter().flat_map(|&x| all.iter().map(move |&y| [x, y])).collect();
    check(None, &pairs);
    for &y in &all {
        let pairs: Vec<[u32; 2]> = all.iter().map(|&x| [x, 0]).collect();
        check(Some(f32::from_bits(y)), &pairs);
    }
}

#[test]
fn random_bits() {
    let mut bits = Bits(7);
    let pairs: Vec<[u32; 2]> = (0..1 << 18).map(|_| [bits.next(), bits.next()]).collect();
    check(None, &pairs);
    // The longest quotients, by the least divisors.
    let pairs: Vec<[u32; 2]> =
        pairs.iter().map(|&[x, y]| [x & 0x00ff_ffff | 0x7e80_0000, y & 0xff]).collect();
    check(None, &pairs);
    // Divisors that are constants, of each exponent.
    for exponent in 0..255 {
        let y = f32::from_bits(exponent << 23 | bits.next() & 0x7f_ffff);
        check(Some(y), &pairs[..1 << 10]);
    }
}

/// Where quotients are integers, or almost: the last rounds are most easily wrong there.
#[test]
fn near_multiples() {
    let mut bits = Bits(8);
    let mut pairs = Vec::new();
    for _ in 0..1 << 16 {
        let y = f32::from_bits(bits.next() % 0x7f80_0000);
        let times = (bits.next() >> (bits.next() % 32)) as f32;
        let halves = (y * times, y * (times + 0.5));
        for x in [halves.0, halves.1] {
            let x = x.to_bits();
            pairs.extend([x, x.wrapping_add(1), x.wrapping_sub(1)].map(|x| [x, y.to_bits()]));
        }
    }
    check(None, &pairs);
}
