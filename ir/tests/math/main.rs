//! The mathematical functions against references of higher precision, and their sizes.
//!
//! `ADFUSE_MATH_STRIDE` sets the step of the sweep over the bits of `f32` (1 tries every number;
//! build with `--release` then); all of them take six minutes for each function.

#![expect(clippy::print_stdout, reason = "the table of errors is what a reader of this test wants")]

mod bounds;
mod gamma;
mod reference;
mod samples;
mod specials;

use adfuse_ir::DType;
use adfuse_ir::Literal;
use adfuse_ir::scalar::{
    Func, LANES, Lanes, Recorder, SOp, ScalarProgram, eval_lanes, eval_one, expand,
};
use bounds::{BOUNDS, Bound};
use reference::{Exact, beside, in_f64, ulps_f32, ulps_f64};
use smallvec::smallvec;

/// The expanded program of one function.
fn program(func: Func, dtype: DType) -> ScalarProgram {
    let params = vec![dtype; func.arity()];
    expand(&Recorder::record(&params, &[dtype], |recorder, args| {
        smallvec![recorder.push(SOp::Func(func), args, dtype)]
    }))
}

/// Runs a program over columns of operands, as bits.
fn run(program: &ScalarProgram, columns: &[Vec<u64>]) -> Vec<u64> {
    let mut out = Vec::with_capacity(columns[0].len());
    let mut regs = Vec::new();
    for start in (0..columns[0].len()).step_by(LANES) {
        let n = LANES.min(columns[0].len() - start);
        let mut params = vec![[0; LANES]; columns.len()];
        for (lanes, column) in params.iter_mut().zip(columns) {
            let lanes: &mut Lanes = lanes;
            lanes[..n].copy_from_slice(&column[start..start + n]);
        }
        out.extend_from_slice(&eval_lanes(program, &params, n, &mut regs)[0][..n]);
    }
    out
}

/// The largest error seen, and where.
#[derive(Clone, Copy, Default)]
struct Worst {
    ulps: f64,
    at: (f64, f64),
    got: f64,
}

impl Worst {
    fn see(&mut self, ulps: f64, at: (f64, f64), got: f64) {
        if ulps > self.ulps || ulps.is_nan() {
            *self = Worst { ulps, at, got };
        }
    }

    /// Prints a line of the table, and the complaint if the bound does not hold.
    fn check(&self, bound: &Bound, dtype: DType, complaints: &mut Vec<String>) {
        let Worst { ulps, at: (x, y), got } = *self;
        let at = if bound.func.arity() == 1 { format!("{x:e}") } else { format!("{x:e}, {y:e}") };
        let limit = bound.ulps[usize::from(dtype == DType::F64)];
        println!("{:12} {dtype}  {ulps:.3} ulp of {limit} at {at}", bound.func.name());
        if ulps.is_nan() || ulps > limit {
            complaints.push(format!("{}.{dtype}({at}) = {got:e}: {ulps} ulp", bound.func.name()));
        }
    }
}

fn report(complaints: &[String]) {
    assert!(complaints.is_empty(), "beyond their bounds:\n{}", complaints.join("\n"));
}

/// Operands, for either format: those of a function of one operand have 0 beside them.
fn operands(func: Func, n: usize, dtype: DType) -> Vec<(f64, f64)> {
    let top = if dtype == DType::F32 { 127 } else { 1023 };
    let mut pairs = match func.arity() {
        1 => samples::unary(func, n, top).into_iter().map(|x| (x, 0.0)).collect(),
        _ => samples::binary(func, n, top),
    };
    if dtype == DType::F32 {
        for (x, y) in &mut pairs {
            (*x, *y) = (f64::from(*x as f32), f64::from(*y as f32));
        }
    }
    let valid = |x: f64, y: f64| match func {
        Func::Pow => x != 0.0 && (x > 0.0 || y.trunc() == y),
        Func::Atan2 => x != 0.0 && y != 0.0,
        _ => samples::in_domain(func, x),
    };
    pairs.retain(|&(x, y)| x.is_finite() && y.is_finite() && valid(x, y));
    pairs
}

fn columns(pairs: &[(f64, f64)], dtype: DType, arity: usize) -> Vec<Vec<u64>> {
    let bits = |v: f64| Literal::from_f64(dtype, v).bits();
    let mut columns = vec![pairs.iter().map(|p| bits(p.0)).collect::<Vec<_>>()];
    if arity == 2 {
        columns.push(pairs.iter().map(|p| bits(p.1)).collect());
    }
    columns
}

#[test]
fn bounds_cover_every_function() {
    let listed: Vec<Func> = BOUNDS.iter().map(|b| b.func).collect();
    assert_eq!(listed, Func::ALL);
    for b in BOUNDS {
        assert!(b.ulps.iter().all(|&u| u <= 2.0), "{}", b.func.name());
    }
}

#[test]
fn f32_samples_are_within_bounds() {
    let mut complaints = Vec::new();
    for bound in BOUNDS {
        let func = bound.func;
        let pairs = operands(func, 20_000, DType::F32);
        let got = run(&program(func, DType::F32), &columns(&pairs, DType::F32, func.arity()));
        let mut worst = Worst::default();
        for (&(x, y), got) in pairs.iter().zip(got) {
            let got = f32::from_bits(got as u32);
            worst.see(ulps_f32(got, in_f64(func, x, y), beside(func, x)), (x, y), got.into());
        }
        worst.check(bound, DType::F32, &mut complaints);
    }
    report(&complaints);
}

#[test]
fn f32_sweep_is_within_bounds() {
    let stride = std::env::var("ADFUSE_MATH_STRIDE").ok().and_then(|s| s.parse::<usize>().ok());
    let stride = stride.unwrap_or(65_521).max(1);
    let mut complaints = Vec::new();
    for bound in BOUNDS.iter().filter(|b| b.func.arity() == 1) {
        let func = bound.func;
        let program = program(func, DType::F32);
        let mut worst = Worst::default();
        let mut from = 0;
        while from <= u64::from(u32::MAX) {
            let bits: Vec<u64> =
                (from..=u64::from(u32::MAX)).step_by(stride).take(1 << 16).collect();
            from += (bits.len() * stride) as u64;
            for (&x, got) in bits.iter().zip(run(&program, std::slice::from_ref(&bits))) {
                let (x, got) = (f64::from(f32::from_bits(x as u32)), f32::from_bits(got as u32));
                let exact = in_f64(func, x, 0.0);
                if exact.is_infinite() || exact == 0.0 {
                    // Poles and zeros: to the bit, sign included.
                    let same = exact as f32;
                    assert_eq!(got.to_bits(), same.to_bits(), "{}({x:e})", func.name());
                }
                worst.see(ulps_f32(got, exact, beside(func, x)), (x, 0.0), got.into());
            }
        }
        worst.check(bound, DType::F32, &mut complaints);
    }
    report(&complaints);
}

#[test]
fn f64_samples_are_within_bounds() {
    let mut complaints = Vec::new();
    let mut exact = Exact::new();
    let n = std::env::var("ADFUSE_MATH_SAMPLES").ok().and_then(|s| s.parse().ok()).unwrap_or(400);
    for bound in BOUNDS {
        let func = bound.func;
        let pairs = operands(func, n, DType::F64);
        let got = run(&program(func, DType::F64), &columns(&pairs, DType::F64, func.arity()));
        let mut worst = Worst::default();
        for (&(x, y), got) in pairs.iter().zip(got) {
            let got = f64::from_bits(got);
            worst.see(ulps_f64(got, &exact.value(func, x, y), beside(func, x)), (x, y), got);
        }
        worst.check(bound, DType::F64, &mut complaints);
    }
    report(&complaints);
}

#[test]
fn exceptional_results_are_exact() {
    let mut wrong = Vec::new();
    for dtype in [DType::F32, DType::F64] {
        for &(func, cases) in specials::UNARY {
            let program = program(func, dtype);
            for &(x, expected) in cases.iter().chain(&[(f64::NAN, f64::NAN)]) {
                let got = eval_one(&program, &[Literal::from_f64(dtype, x)]);
                if got != Literal::from_f64(dtype, expected) {
                    wrong.push(format!("{}.{dtype}({x}) = {got}, not {expected}", func.name()));
                }
            }
        }
        for &(func, cases) in specials::BINARY {
            let program = program(func, dtype);
            for &(x, y, expected) in cases {
                let operands = [Literal::from_f64(dtype, x), Literal::from_f64(dtype, y)];
                let got = eval_one(&program, &operands);
                if got != Literal::from_f64(dtype, expected) {
                    wrong
                        .push(format!("{}.{dtype}({x}, {y}) = {got}, not {expected}", func.name()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Masked scores are -inf, or some -1e9: a product with a subnormal takes many processors far longer.
#[test]
fn exponentials_of_masks_meet_no_subnormals() {
    for func in [Func::Exp, Func::Exp2, Func::Logistic] {
        for (dtype, least) in
            [(DType::F32, f64::from(f32::MIN_POSITIVE)), (DType::F64, f64::MIN_POSITIVE)]
        {
            let mut program = program(func, dtype);
            program.outputs = program.insts.keys().collect();
            let program = &program;
            let largest = if dtype == DType::F32 { f64::from(f32::MAX) } else { f64::MAX };
            for x in [f64::NEG_INFINITY, -largest, -1e9, -1e4] {
                let columns = [[Literal::from_f64(dtype, x).bits(); LANES]];
                let mut regs = Vec::new();
                let all = eval_lanes(program, &columns, 1, &mut regs);
                for (&v, bits) in program.outputs.iter().zip(all) {
                    let d = program.insts[v].dtype;
                    let y = Literal::from_bits(d, bits[0]);
                    let y = if d.is_float() { y.to_f64().abs() } else { 1.0 };
                    assert!(!(0.0 < y && y < least), "{}.{dtype}({x}): {v} is {y:e}", func.name());
                }
            }
        }
    }
}

#[test]
fn smallest_operands_return_themselves() {
    use Func::*;
    for func in [Expm1, Log1p, Sin, Tan, Asin, Atan, Sinh, Tanh, Asinh, Atanh] {
        for (dtype, bits) in [
            (DType::F32, [1, 2, 0x0040_0001, 0x8000_0001]),
            (DType::F64, [1, 3, 0x0008_0000_0000_0001, 1 << 63 | 1]),
        ] {
            let program = program(func, dtype);
            for b in bits {
                let x = Literal::from_bits(dtype, b);
                assert_eq!(eval_one(&program, &[x]), x, "{}", func.name());
            }
        }
    }
}

#[test]
fn programs_are_no_longer_than_stated() {
    let mut complaints = Vec::new();
    for bound in BOUNDS {
        let mut counts = [0; 2];
        for (count, dtype) in counts.iter_mut().zip([DType::F32, DType::F64]) {
            let program = program(bound.func, dtype);
            let live = program.live();
            let is_prim = |op| matches!(op, SOp::Prim(_));
            *count = program
                .insts
                .iter()
                .filter(|(v, i)| live[v.as_u32() as usize] && is_prim(i.op))
                .count();
        }
        println!("{:12} {counts:?}", bound.func.name());
        if counts.iter().zip(bound.primitives).any(|(&c, most)| c > most) {
            complaints.push(format!("{}: {counts:?} of {:?}", bound.func.name(), bound.primitives));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
