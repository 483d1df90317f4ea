//! Inverses of the op table: what they recover is the operand, to the bit or within the bound that the row states.
//!
//! Operands are drawn over all exponents, with the edges of every range, subnormals, infinities and NaN. An operand counts
//! where the row says that the inverse holds for the ranges that have these numbers alone.

#![expect(clippy::print_stdout, reason = "the table of errors is what a reader of this test wants")]

use adfuse_ir::op::{Accuracy, FloatRange, Infer, Inverse, Recovery};
use adfuse_ir::scalar::{LANES, Lanes, ScalarProgram, eval_lanes, expand};
use adfuse_ir::{Attrs, DType, Literal, Op};

/// A generator of numbers (SplitMix64).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of any exponent.
    fn any(&mut self, dtype: DType) -> f64 {
        Literal::from_bits(dtype, self.next() & (u64::MAX >> (64 - dtype.bits()))).to_f64()
    }

    /// A number of either sign with an exponent in a range.
    fn near(&mut self, exponents: std::ops::Range<i32>) -> f64 {
        let count = u64::try_from(exponents.end - exponents.start).expect("not empty");
        let exponent = exponents.start + i32::try_from(self.next() % count).expect("small");
        let digits = 1.0 + (self.next() >> 12) as f64 / (1u64 << 52) as f64;
        let sign = if self.next() & 1 == 0 { 1.0 } else { -1.0 };
        sign * digits * 2f64.powi(exponent)
    }
}

/// Runs a program over rows of operands.
fn run(program: &ScalarProgram, rows: &[Vec<Literal>]) -> Vec<Literal> {
    let (program, mut regs, mut out) = (expand(program), Vec::new(), Vec::new());
    let dtype = program.insts[program.outputs[0]].dtype;
    for rows in rows.chunks(LANES) {
        let mut params: Vec<Lanes> = vec![[0; LANES]; program.params.len()];
        for (k, row) in rows.iter().enumerate() {
            params.iter_mut().zip(row).for_each(|(lanes, x)| lanes[k] = x.bits());
        }
        let lanes = eval_lanes(&program, &params, rows.len(), &mut regs)[0];
        out.extend(lanes[..rows.len()].iter().map(|&bits| Literal::from_bits(dtype, bits)));
    }
    out
}

/// Every op with an inverse that a scalar program writes, each of these, and the types that it is for.
fn elementwise() -> Vec<(Op, &'static Inverse, DType)> {
    let mut all = Vec::new();
    for &op in Op::ALL {
        let Infer::Map(sig) = op.def().infer else { continue };
        for inverse in op.inverses() {
            let takes = |&d: &DType| sig.t.contains(d) && inverse.accepts(d, d);
            if matches!(inverse.recovery, Recovery::Elementwise(_)) {
                all.extend(DType::ALL.into_iter().filter(takes).map(|d| (op, inverse, d)));
            }
        }
    }
    all
}

/// Rows of operands of one type.
fn operands(op: Op, dtype: DType) -> Vec<Vec<Literal>> {
    let Infer::Map(sig) = op.def().infer else { return Vec::new() };
    let mut draws = Draws(7);
    let edges = [
        0.0,
        0.5,
        0.75,
        1.0,
        2.0,
        8.0,
        80.0,
        100.0,
        1e-45,
        2e-45,
        1.2e-38,
        5e-324,
        2.3e-308,
        8388608.0,
        3.4028235e38,
        3.402823e38,
        1.8446743e19,
        1.7e308,
        f64::MAX,
        f64::INFINITY,
        f64::NAN,
    ];
    let edges: Vec<f64> = edges.iter().flat_map(|&x| [x, -x]).collect();
    let mut one = |k: usize| {
        let x = match (k, draws.next() % 10) {
            (k, 0) if k % 2 == 1 => draws.any(dtype),
            (_, 0) => edges[(draws.next() % edges.len() as u64) as usize],
            (_, 1) => 1.0,
            (_, 8 | 9) => 0.0,
            (_, 2 | 3) => draws.near(-25..26),
            (_, 4 | 5) => draws.near(-3..8),
            (_, 6) => draws.near(-130..130),
            _ => draws.any(dtype),
        };
        match dtype.is_float() {
            true => Literal::from_f64(dtype, x),
            false => Literal::from_bits(dtype, draws.next()).convert(dtype),
        }
    };
    let row = |k: usize| sig.args.iter().map(|_| one(k)).collect();
    (0..20_000).map(row).collect()
}

/// The range of one number.
fn exactly(x: Literal) -> FloatRange {
    if x.dtype().is_float() { FloatRange::one(x.to_f64()) } else { FloatRange::ALL }
}

/// The distance of the numbers beside `x`, in the type.
fn ulp(dtype: DType, x: f64) -> f64 {
    let (digits, least) = if dtype == DType::F64 { (52, -1022) } else { (23, -126) };
    let mut exponent = least;
    if x.abs() >= 2f64.powi(least) {
        exponent = i32::try_from(x.abs().to_bits() >> 52).expect("has 11 bits") - 1023;
    }
    2f64.powi(exponent) * 2f64.powi(-digits)
}

/// Whether an operand beside this one is 0, infinite or NaN.
fn is_singular(row: &[Literal], of: usize) -> bool {
    let singular = |x: f64| x == 0.0 || !x.is_finite();
    row.iter().enumerate().any(|(k, x)| k != of && singular(x.to_f64()))
}

/// What a row of the table says of an inverse, of one operand among these and what was recovered of it: the error in units, or what is
/// wrong.
fn judged(inverse: &Inverse, row: &[Literal], x: Literal, found: Literal) -> Result<f64, String> {
    let (dtype, a, b) = (x.dtype(), x.to_f64(), found.to_f64());
    let error = match inverse.accuracy {
        Accuracy::Exact if x == found || dtype.is_float() && a.is_nan() && b.is_nan() => {
            return Ok(0.0);
        }
        Accuracy::Exact => return Err("is not the operand".into()),
        Accuracy::Approximate(error) => error,
    };
    if error.singular && is_singular(row, inverse.operand) {
        return if b.is_nan() { Ok(0.0) } else { Err("is not NaN".into()) };
    }
    if !a.is_finite() || !b.is_finite() {
        let same = a.is_nan() && b.is_nan() || a == b;
        return if same { Ok(0.0) } else { Err("is not finite where the operand is".into()) };
    }
    let least = if dtype == DType::F64 { f64::MIN_POSITIVE } else { f64::from(f32::MIN_POSITIVE) };
    if error.tiny && (a - b).abs() <= least {
        return Ok(0.0);
    }
    let ulps = (a - b).abs() / ulp(dtype, a);
    let bound = error.ulps(dtype).ok_or("has no bound for its type")?;
    if ulps <= bound { Ok(ulps) } else { Err(format!("is off by {ulps} units")) }
}

#[test]
fn inverses_are_within_their_bounds() {
    for (op, inverse, dtype) in elementwise() {
        let Infer::Map(sig) = op.def().infer else { continue };
        let (k, types) = (inverse.operand, vec![dtype; sig.args.len()]);
        let reads = inverse.reads(&types, dtype);
        assert!(!reads.contains(&k), "{op}: the inverse reads what it recovers");
        let forward = op.scalar_program(&types, dtype, &Attrs::none()).expect("is a map");
        let back = inverse.program(&types, dtype).expect("is elementwise");
        let mut rows = operands(op, dtype);
        let target_is_nan = |row: &[Literal]| dtype.is_float() && row[k].to_f64().is_nan();
        rows.retain(|row| {
            let mut ranges: Vec<FloatRange> = row.iter().map(|&x| exactly(x)).collect();
            if target_is_nan(row) {
                // Whatever the range of its numbers, an operand may be NaN.
                ranges[k] = FloatRange { lo: 1.0, hi: 1.0, nan: true };
            }
            let singular = matches!(inverse.accuracy, Accuracy::Approximate(e) if e.singular);
            singular && is_singular(row, k) || (inverse.holds)(&ranges)
        });
        assert!(rows.len() > 400, "{op}: {} rows in {dtype}", rows.len());
        let answers = run(&forward, &rows);
        let known: Vec<Vec<Literal>> = rows
            .iter()
            .zip(&answers)
            .map(|(row, &y)| {
                let all = std::iter::once(y).chain(row.iter().copied());
                all.map(|x| x.convert(x.dtype().compute())).collect()
            })
            .collect();
        let wanted = match op.partial(k, &types, dtype, &Attrs::none()) {
            Some(program) if inverse.partial => run(&program, &known),
            _ => rows.iter().map(|row| row[k]).collect(),
        };
        let mut worst = (0.0, row_text(&rows[0]));
        for ((row, &x), found) in rows.iter().zip(&wanted).zip(run(&back, &known)) {
            match judged(inverse, row, x, found.convert(dtype)) {
                Ok(ulps) if ulps > worst.0 => worst = (ulps, row_text(row)),
                Ok(_) => {}
                Err(why) => panic!(
                    "{op} in {dtype}: operand {k} of {} comes back as {:e}, which {why}",
                    row_text(row),
                    found.to_f64()
                ),
            }
        }
        println!("{op} {k} {dtype}: {} rows, {:.3} ulps at {}", rows.len(), worst.0, worst.1);
    }
}

fn row_text(row: &[Literal]) -> String {
    let all: Vec<String> = row.iter().map(|x| format!("{:e}", x.to_f64())).collect();
    format!("({})", all.join(", "))
}

/// What holds for ranges holds for narrower ones: bounds of single numbers are then bounds of ranges.
#[test]
fn narrower_ranges_keep_what_holds() {
    let mut draws = Draws(11);
    for (op, inverse, dtype) in elementwise() {
        let Infer::Map(sig) = op.def().infer else { continue };
        if inverse.accuracy == Accuracy::Exact {
            continue;
        }
        for _ in 0..2000 {
            let mut number = || match draws.next() % 6 {
                0 => 0.0,
                1 => 1.0,
                2 => f64::INFINITY,
                3 => draws.near(-3..8),
                _ => draws.near(-25..26).abs(),
            };
            let mut wide = Vec::new();
            let mut narrow = Vec::new();
            for _ in sig.args {
                let mut ends = [number(), number(), number(), number()];
                ends.sort_by(f64::total_cmp);
                wide.push(FloatRange { lo: ends[0], hi: ends[3], nan: false });
                narrow.push(FloatRange { lo: ends[1], hi: ends[2], nan: false });
            }
            let implied = !(inverse.holds)(&wide) || (inverse.holds)(&narrow);
            assert!(implied, "{op} in {dtype}: {wide:?} and {narrow:?}");
        }
    }
}

/// A conversion that is undone gives back every number.
#[test]
fn conversions_come_back() {
    let convert = Op::ConvertElementType;
    let inverse = &convert.inverses()[0];
    let mut count = 0;
    for from in DType::ALL {
        for to in DType::ALL.into_iter().filter(|&to| to != DType::Token && from != DType::Token) {
            let bits = from.bits().min(16);
            let high = (from.bits() - bits).min(48);
            let mut draws = Draws(5);
            let number = |k: u64| {
                Literal::from_bits(from, k | (draws.next() << 16) & ((1 << high) - 1) << 16)
            };
            let all: Vec<Vec<Literal>> =
                (0..1u64 << bits).map(number).map(|x| vec![x.convert(from)]).collect();
            let program = |from, to| convert.scalar_program(&[from], to, &Attrs::none());
            let there = run(&program(from, to).expect("is a map"), &all);
            let there: Vec<Vec<Literal>> = there.into_iter().map(|x| vec![x]).collect();
            let back = run(&program(to, from).expect("is a map"), &there);
            let nan = |x: Literal| from.is_float() && x.to_f64().is_nan();
            let same = all.iter().zip(&back).all(|(a, &b)| a[0] == b || nan(a[0]) && nan(b));
            if inverse.accepts(from, to) {
                assert!(same, "{from} from {to}");
                count += 1;
            } else {
                // Nothing is left out but conversions to the same type.
                assert!(!same || from == to, "{from} comes back from {to}");
            }
        }
    }
    assert!(count > 20, "{count} pairs of types");
}
