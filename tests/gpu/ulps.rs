//! How far the functions of the mode `fast` are from what they are of: measured on the device over all numbers of
//! `f32`, against the functions of `f64`, which that mode leaves as they are. The bounds are those of `docs/fp.md`.

use crate::trials::Skipped;
use crate::{alone, say};
use adfuse::backends::Array;
use adfuse::backends::reference::kernel;
use adfuse::engine::Gpu;
use adfuse::fusion::Fp;
use adfuse::ir::DType;
use adfuse::ir::kernel::text::parse;
use adfuse::ir::kernel::{Program, Step, Verified, verify};
use adfuse::ir::scalar::{Recorder, S};

/// The least normal number: functions that flush what is below have any result there up to it.
const LEAST: f64 = 1.175_494_350_822_287_5e-38;

/// A function of one number, or of two.
type Of = for<'r> fn(S<'r>, S<'r>) -> S<'r>;

/// Functions that are the chip's own in this mode, and the most units in the last place that each is off. All numbers
/// are tried; of quotients, as many pairs.
const OWN: [(&str, f64, Of); 12] = [
    ("exp", 2.75, |x, _| x.exp().max(LEAST)),
    // Half a unit of 8 bits, and what an exponential that is seen rounded to them is off.
    ("exp, rounded to bf16", 32_840.0, |x, _| match x.dtype() {
        DType::F32 => x.exp().convert(DType::BF16).convert(DType::F32).max(LEAST),
        _ => x.exp().max(LEAST),
    }),
    ("exp2", 2.5, |x, _| x.exp2()),
    ("logistic", 5.25, |x, _| x.logistic().max(LEAST)),
    ("tanh", 2.25, |x, _| x.tanh()),
    // Beside a number of magnitude 1 or more it need be no nearer than such numbers are.
    ("tanh + 2", 3.0, |x, _| x.tanh() + 2.0),
    ("erf", 1.5, |x, _| x.erf()),
    ("rsqrt", 1.75, |x, _| x.rsqrt()),
    ("sqrt", 1.0, |x, _| x.sqrt()),
    ("1 / x", 1.0, |x, _| 1.0 / x),
    ("x / 3", 1.5, |x, _| x / 3.0),
    ("x / y", 2.25, |x, y| x / y),
];

/// Functions made of primitives, with the bounds that they have in this mode as they divide and take roots. One number
/// in this many is tried.
const OTHERS: [(&str, f64, Of); 19] = [
    ("expm1", 1.5, |x, _| x.expm1()),
    ("log", 1.0, |x, _| x.log()),
    ("log1p", 1.25, |x, _| x.log1p()),
    ("sin", 1.0, |x, _| x.sin()),
    ("cos", 1.0, |x, _| x.cos()),
    ("tan", 0.75, |x, _| x.tan()),
    ("asin", 2.0, |x, _| x.asin()),
    ("acos", 1.75, |x, _| x.acos()),
    ("atan", 1.75, |x, _| x.atan()),
    ("sinh", 1.75, |x, _| x.sinh()),
    ("cosh", 1.5, |x, _| x.cosh()),
    ("asinh", 1.5, |x, _| x.asinh()),
    ("acosh", 2.25, |x, _| x.acosh()),
    ("atanh", 1.75, |x, _| x.atanh()),
    ("erfc", 1.75, |x, _| x.erfc()),
    ("cbrt", 1.0, |x, _| x.cbrt()),
    ("erf_inv", 2.25, |x, _| x.erf_inv()),
    ("atan2", 2.75, |x, y| x.atan2(y)),
    ("pow", 0.75, |x, y| x.abs().pow(y)),
];

/// Numbers of a launch: one in this many of all.
const COUNT: u64 = 1 << 24;

/// Every number of `f32` that is `%first` apart from a multiple of the step, and how far the function is off there.
fn program(of: Of, count: u64) -> Verified<Program> {
    let text = format!(
        "program @ulps {{
          input %first: i32[1]
          output %worst: f64[]
          output %at: i32[]
          kernel @ulps [{count}] {{
            stage [] {{
              p0 = load %first[0]
              p1 = coord d0
              s0 = const.f64 0.0
              %worst[] = fold.max s0 lane(d0)
              %at[] = fold.argmax s0 lane(d0)
            }}
          }}
          return %worst, %at
        }}"
    );
    let mut program = parse(&text).unwrap_or_else(|e| panic!("{e:?}"));
    let step = (1i64 << 32) / count as i64;
    let outputs = [DType::F64; 2];
    let recorded = Recorder::record(&[DType::I32, DType::I64], &outputs, |_, p| {
        let bits = (p[1] * step).convert(DType::I32) + p[0];
        let x = bits.bitcast(DType::F32);
        let y = mixed(bits).bitcast(DType::F32);
        let off = off(of(x, y), of(x.convert(DType::F64), y.convert(DType::F64)));
        [off, off].into_iter().collect()
    });
    if let Step::Kernel(kernel) = &mut program.steps[0] {
        kernel.stages[0].program = recorded;
    }
    verify(program).unwrap_or_else(|e| panic!("{}", e[0]))
}

/// Other bits, as good as random.
fn mixed(x: S<'_>) -> S<'_> {
    let x = (x ^ x.shr_l(16)) * -2_048_144_789i64;
    let x = (x ^ x.shr_l(13)) * -1_028_477_387i64;
    x ^ x.shr_l(16)
}

/// How many units in the last place of an `f32` a result is from what is due. What is beyond all numbers is one unit
/// above the greatest; NaN and the sign of zero are right or infinitely wrong.
fn off<'r>(found: S<'r>, due: S<'r>) -> S<'r> {
    let end = 128f64.exp2();
    let held = |x: S<'r>| x.min(end).max(-end);
    let (y, e) = (held(found.convert(DType::F64)), held(due));
    let least = e.abs().max((-126f64).exp2()).min(end * (1.0 - 1e-9));
    let exponent = least.bitcast(DType::I64).shr_l(52) - 23;
    let unit = exponent.shl(52).bitcast(DType::F64);
    let apart = (y - e).abs() / unit;
    let wrong = e.lit(f64::INFINITY);
    let signs = e.lit(1.0).copysign(y).ne(e.lit(1.0).copysign(e));
    let apart = (e.eq(0.0) & y.eq(0.0) & signs).select(wrong, apart);
    let (no, none) = (y.ne(y), e.ne(e));
    (no & none).select(e.lit(0.0), (no | none).select(wrong, apart))
}

/// The worst of launches of this many, and where.
fn worst(gpu: &Gpu, of: Of, launches: i64) -> (f64, f32) {
    let made = gpu.of_program(program(of, COUNT)).unwrap_or_else(|d| panic!("{d}")).executable;
    let step = (1i64 << 32) / COUNT as i64;
    let mut worst = (-1.0, 0.0);
    for first in 0..launches {
        let given = Array::from_i64s(DType::I32, &[1], &[first]).expect("one");
        let found = made.run(&[given]).unwrap_or_else(|d| panic!("{d}"));
        let (off, at) = (found[0].to_f64s()[0], found[1].to_f64s()[0] as i64);
        if off > worst.0 {
            worst = (off, f32::from_bits((at * step + first) as u32));
        }
    }
    worst
}

pub(crate) fn functions_are_as_near_as_they_say() -> Result<(), Skipped> {
    let gpu = alone()?;
    let mut gpu = gpu.clone();
    gpu.plan.fp = Fp::Fast;
    let mut failed = Vec::new();
    let all = OWN.iter().map(|f| (f, 256)).chain(OTHERS.iter().map(|f| (f, 3)));
    for ((name, most, of), launches) in all {
        let (off, at) = worst(&gpu, *of, launches);
        say(&format!("  {name}: {off:.3} ulp at {at:e} ({:#010x})", at.to_bits()));
        if off > *most {
            failed.push(format!("{name}: {off} ulp at {at:e}, not {most}"));
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
    Ok(())
}

#[expect(clippy::eq_op, reason = "the difference is recorded, and is wrong on purpose")]
pub(crate) fn the_measure_is_right() {
    let measured = |of: Of| {
        let program = program(of, 1 << 14);
        let given = Array::from_i64s(DType::I32, &[1], &[77]).expect("one");
        kernel::run(&program, &[given]).expect("runs")[0].to_f64s()[0]
    };
    // As strict mode has them.
    for (name, most, of) in OWN.iter().chain(&OTHERS) {
        let off = measured(*of);
        assert!((0.3..=*most).contains(&off), "{name}: {off}");
    }
    let wrong: [(f64, Of); 6] = [
        (7.0, |x, _| if x.dtype() == DType::F32 { x * (1.0 + 8.0 / 8_388_608.0) } else { x }),
        // A unit of the least numbers is one too.
        (0.9, |x, _| if x.dtype() == DType::F32 { x + 1e-45 } else { x }),
        (f64::INFINITY, |x, _| if x.dtype() == DType::F32 { x - x } else { x * 0.0 }),
        (1e6, |x, _| if x.dtype() == DType::F32 { x.min(3.0).max(-3.0) } else { x }),
        (f64::INFINITY, |x, _| if x.dtype() == DType::F32 { x.eq(x).select(x, 0.0) } else { x }),
        (
            1e6,
            |x, _| if x.dtype() == DType::F32 { x.abs().lt(1e-38).select(x * 0.0, x) } else { x },
        ),
    ];
    for (k, (least, of)) in wrong.iter().enumerate() {
        let off = measured(*of);
        assert!(off >= *least, "{k}: {off}");
    }
}
