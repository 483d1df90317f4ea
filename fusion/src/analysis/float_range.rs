//! Value ranges of floats: which numbers a value can be, and whether it can be NaN.
//!
//! Rounding is monotone, so the ends of a range go through an operation as any of its numbers does. -0 is below +0.

use adfuse_ir::op::{Body, FloatRange, Monoid};
use adfuse_ir::rewrite::is_softmax_sum;
use adfuse_ir::scalar::{Func, Prim, SInst, SOp, ScalarProgram};
use adfuse_ir::{DType, Function, Inst, Literal, Op, Value, ValueDef};
use cranelift_entity::SecondaryMap;

/// The ranges of a function's floats; of all else nothing is known.
pub(crate) struct FloatRanges<'f> {
    f: &'f Function,
    known: SecondaryMap<Value, Option<FloatRange>>,
    /// Of values that may also be 0, infinite or NaN, where the other numbers have a range of their own.
    regular: SecondaryMap<Value, Option<FloatRange>>,
}

impl<'f> FloatRanges<'f> {
    /// Of all values of a function.
    pub(crate) fn of(f: &'f Function) -> FloatRanges<'f> {
        let known = SecondaryMap::with_capacity(f.value_count());
        let mut ranges = FloatRanges { f, known, regular: SecondaryMap::new() };
        for &i in f.body_insts() {
            let found = ranges.result(i);
            for &v in f.inst_results(i) {
                ranges.known[v] = found.filter(|_| f.ty(v).dtype.is_float());
            }
            if let Some(range) = ranges.regular_result(i) {
                ranges.regular[f.inst_results(i)[0]] = Some(range);
            }
        }
        ranges
    }

    /// Of one value.
    pub(crate) fn get(&self, v: Value) -> FloatRange {
        match self.f.def(v) {
            ValueDef::Literal(l) => number(l),
            _ => self.known[v].unwrap_or(FloatRange::ALL),
        }
    }

    /// Of one value, where it is neither 0 nor infinite nor NaN.
    pub(crate) fn regular(&self, v: Value) -> FloatRange {
        self.regular[v].unwrap_or_else(|| self.get(v).regular())
    }

    /// The range of a softmax's sum, of views of it and of its reciprocal, beside 0, infinities and NaN.
    fn regular_result(&self, i: Inst) -> Option<FloatRange> {
        let f = self.f;
        match (f.op(i), f.args(i)) {
            (Op::ReduceSum, &[e]) if is_softmax_sum(f, i) => {
                let terms = f.ty(e).elements()? / f.ty(f.inst_results(i)[0]).elements()?.max(1);
                Some(FloatRange { lo: 1.0, hi: terms as f64, nan: false })
            }
            (Op::BroadcastInDim | Op::Reshape | Op::Transpose, &[x]) => self.regular[x],
            (Op::Div, &[one, x]) if f.literal(one).is_some_and(|l| l.is_one()) => {
                let range = self.regular[x]?;
                let d = f.ty(x).dtype;
                let [lo, hi] = [range.hi, range.lo].map(|x| rounded(d, 1.0 / x));
                Some(FloatRange { lo, hi, nan: false })
            }
            _ => None,
        }
    }

    fn result(&self, i: Inst) -> Option<FloatRange> {
        let f = self.f;
        let args = f.args(i);
        match f.op(i).def().body {
            Body::Map(_) => {
                let result = f.ty(f.inst_results(i)[0]).dtype;
                let dtypes: Vec<DType> = args.iter().map(|&a| f.ty(a).dtype).collect();
                let program = f.op(i).scalar_program(&dtypes, result, f.attrs(i))?;
                Some(through(&program, args, &|v| self.get(v)))
            }
            // Elements of the operands, and of nothing else.
            Body::View(_) => args.iter().map(|&a| self.get(a)).reduce(union),
            Body::Constant => f.attrs(i).literals("values").iter().map(number).reduce(union),
            Body::Reduce(monoid) => {
                let (x, y) = (args[0], f.inst_results(i)[0]);
                let folds = f.ty(x).elements()? > 0 && f.ty(y).elements()? > 0;
                let range = self.get(x);
                match monoid {
                    Monoid::Max | Monoid::Min if folds => Some(range),
                    // Sums of numbers of one sign are at least as far from zero as each of them.
                    Monoid::Sum if folds && positive(range) => {
                        Some(FloatRange { hi: f64::INFINITY, ..range })
                    }
                    Monoid::Sum if folds && positive(negated(range)) => {
                        Some(FloatRange { lo: f64::NEG_INFINITY, ..range })
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

fn number(l: Literal) -> FloatRange {
    if l.dtype().is_float() { FloatRange::one(l.to_f64()) } else { FloatRange::ALL }
}

/// Whether all numbers are +0 or above.
fn positive(r: FloatRange) -> bool {
    r.within(0.0, f64::INFINITY)
}

fn negated(r: FloatRange) -> FloatRange {
    FloatRange { lo: -r.hi, hi: -r.lo, nan: r.nan }
}

fn union(a: FloatRange, b: FloatRange) -> FloatRange {
    let lo = if a.lo.total_cmp(&b.lo).is_le() { a.lo } else { b.lo };
    let hi = if a.hi.total_cmp(&b.hi).is_ge() { a.hi } else { b.hi };
    FloatRange { lo, hi, nan: a.nan || b.nan }
}

/// What a scalar program gives for these operands.
fn through(
    program: &ScalarProgram,
    args: &[Value],
    range: &dyn Fn(Value) -> FloatRange,
) -> FloatRange {
    let mut found: SecondaryMap<_, Option<FloatRange>> = SecondaryMap::new();
    // The operand that an instruction is, perhaps converted to the type it is computed in.
    let mut operand: SecondaryMap<_, Option<Value>> = SecondaryMap::new();
    for (v, inst) in program.insts.iter() {
        let x: Vec<FloatRange> =
            inst.args.iter().map(|&a| found[a].unwrap_or(FloatRange::ALL)).collect();
        let same = matches!(*inst.args, [a, b] if a == b || operand[a].is_some() && operand[a] == operand[b]);
        let from = inst.args.first().map(|&a| program.insts[a].dtype);
        found[v] = match inst.op {
            SOp::Param(k) => args.get(k as usize).map(|&a| range(a)),
            SOp::Const(l) => Some(number(l)),
            SOp::Prim(p) => primitive(p, inst, (&x, same), from),
            SOp::Func(func) => function(func, x[0]),
        };
        operand[v] = match inst.op {
            SOp::Param(k) => args.get(k as usize).copied(),
            SOp::Prim(Prim::Convert) if from.is_some_and(|d| d.compute() == inst.dtype) => {
                operand[inst.args[0]]
            }
            _ => None,
        };
        let float = inst.dtype.is_float();
        found[v] = found[v].filter(|_| float);
    }
    let result = program.outputs.first().and_then(|&o| found[o]);
    result.unwrap_or(FloatRange::ALL)
}

/// The number nearest to an exact one, or to one of twice the digits, in a type.
fn rounded(dtype: DType, x: f64) -> f64 {
    if dtype.is_float() { Literal::from_f64(dtype, x).to_f64() } else { x }
}

fn primitive(
    p: Prim,
    inst: &SInst,
    (x, same): (&[FloatRange], bool),
    from: Option<DType>,
) -> Option<FloatRange> {
    let d = inst.dtype;
    let nan = x.iter().any(|r| r.nan);
    let monotone = |of: fn(f64) -> f64| FloatRange { lo: of(x[0].lo), hi: of(x[0].hi), nan };
    Some(match p {
        Prim::Add => sum(d, x[0], x[1]),
        Prim::Sub => sum(d, x[0], negated(x[1])),
        Prim::Mul if same => {
            let (a, b) = (x[0].lo.abs(), x[0].hi.abs());
            let zero = x[0].lo.is_sign_negative() && x[0].hi.is_sign_positive();
            let least = if zero { 0.0 } else { a.min(b) };
            let most = a.max(b);
            FloatRange { lo: rounded(d, least * least), hi: rounded(d, most * most), nan }
        }
        Prim::Mul => product(d, x[0], x[1]),
        Prim::Div => quotient(d, x[0], x[1])?,
        Prim::Neg => negated(x[0]),
        Prim::Abs if positive(x[0]) => x[0],
        Prim::Abs => FloatRange { lo: 0.0, hi: x[0].lo.abs().max(x[0].hi.abs()), nan },
        Prim::Max => FloatRange { lo: above(x[0].lo, x[1].lo), hi: above(x[0].hi, x[1].hi), nan },
        Prim::Min => {
            let (a, b) = (negated(x[0]), negated(x[1]));
            negated(FloatRange { lo: above(a.lo, b.lo), hi: above(a.hi, b.hi), nan })
        }
        Prim::Select => union(x[1], x[2]),
        Prim::Sqrt if positive(x[0]) => {
            FloatRange { lo: rounded(d, x[0].lo.sqrt()), hi: rounded(d, x[0].hi.sqrt()), nan }
        }
        Prim::Sqrt => FloatRange { lo: -0.0, hi: f64::INFINITY, nan: true },
        Prim::Floor => monotone(f64::floor),
        Prim::Ceil => monotone(f64::ceil),
        Prim::RoundEven => monotone(f64::round_ties_even),
        Prim::Trunc => monotone(f64::trunc),
        Prim::Convert => match from? {
            DType::Bool => FloatRange { lo: 0.0, hi: 1.0, nan: false },
            from if from.is_float() => {
                FloatRange { lo: rounded(d, x[0].lo), hi: rounded(d, x[0].hi), nan }
            }
            _ => return None,
        },
        // The result has the sign of one and the magnitude of the other, or any bits.
        Prim::CopySign | Prim::Bitcast | Prim::Lookup(_) | Prim::Fma | Prim::Rem => return None,
        Prim::Eq | Prim::Ne | Prim::Lt | Prim::Le | Prim::Gt | Prim::Ge => return None,
        Prim::And | Prim::Or | Prim::Xor | Prim::Not => return None,
        Prim::Shl | Prim::ShrL | Prim::ShrA | Prim::MulHi | Prim::Clz | Prim::PopCount => {
            return None;
        }
    })
}

/// The upper one; -0 is below +0.
fn above(a: f64, b: f64) -> f64 {
    if a.total_cmp(&b).is_ge() { a } else { b }
}

fn sum(d: DType, a: FloatRange, b: FloatRange) -> FloatRange {
    let opposite = a.lo == f64::NEG_INFINITY && b.hi == f64::INFINITY
        || a.hi == f64::INFINITY && b.lo == f64::NEG_INFINITY;
    // Infinities of opposite signs at one end: the numbers beside them are anything.
    let end = |x: f64, y: f64, other: f64| {
        let s = rounded(d, x + y);
        if s.is_nan() { other } else { s }
    };
    FloatRange {
        lo: end(a.lo, b.lo, f64::NEG_INFINITY),
        hi: end(a.hi, b.hi, f64::INFINITY),
        nan: a.nan || b.nan || opposite,
    }
}

/// The least and the greatest of what an operation gives for the ends of two ranges; where it gives NaN, between 0 and
/// infinity of the sign that the ends have.
fn corners(d: DType, a: FloatRange, b: FloatRange, of: fn(f64, f64) -> f64) -> FloatRange {
    let mut all: Vec<f64> = Vec::with_capacity(8);
    let mut nan = a.nan || b.nan;
    for (x, y) in [(a.lo, b.lo), (a.lo, b.hi), (a.hi, b.lo), (a.hi, b.hi)] {
        let z = rounded(d, of(x, y));
        if z.is_nan() {
            nan = true;
            let sign = if x.is_sign_negative() == y.is_sign_negative() { 1.0 } else { -1.0 };
            all.extend([0.0 * sign, f64::INFINITY * sign]);
        } else {
            all.push(z);
        }
    }
    let lo = all.iter().copied().min_by(f64::total_cmp).unwrap_or(f64::NEG_INFINITY);
    let hi = all.iter().copied().max_by(f64::total_cmp).unwrap_or(f64::INFINITY);
    FloatRange { lo, hi, nan }
}

fn product(d: DType, a: FloatRange, b: FloatRange) -> FloatRange {
    // Zero between two ends times infinity is NaN, though no end says so.
    let zero = |r: FloatRange| r.lo <= 0.0 && r.hi >= 0.0;
    let infinite = |r: FloatRange| r.lo == f64::NEG_INFINITY || r.hi == f64::INFINITY;
    let meets = zero(a) && infinite(b) || zero(b) && infinite(a);
    let all = corners(d, a, b, |x, y| x * y);
    FloatRange { nan: all.nan || meets, ..all }
}

fn quotient(d: DType, a: FloatRange, b: FloatRange) -> Option<FloatRange> {
    let infinite = |r: FloatRange| r.lo == f64::NEG_INFINITY || r.hi == f64::INFINITY;
    if b.lo > 0.0 || b.hi < 0.0 {
        let all = corners(d, a, b, |x, y| x / y);
        return Some(FloatRange { nan: all.nan || infinite(a) && infinite(b), ..all });
    }
    let whole = FloatRange { lo: 0.0, hi: f64::INFINITY, nan: true };
    (positive(a) && positive(b)).then_some(whole)
}

/// The range of a function of a number in a range, where it has one of its own.
fn function(func: Func, x: FloatRange) -> Option<FloatRange> {
    let known = |lo: f64, hi: f64| Some(FloatRange { lo, hi, nan: x.nan });
    match func {
        Func::Exp | Func::Exp2 => known(0.0, f64::INFINITY),
        Func::Logistic => known(0.0, 1.0),
        Func::Tanh | Func::Erf if positive(x) => known(0.0, 1.0),
        Func::Tanh | Func::Erf => known(-1.0, 1.0),
        Func::Cosh => known(1.0, f64::INFINITY),
        Func::Expm1 | Func::Log1p | Func::Asinh | Func::Sinh | Func::Cbrt if positive(x) => {
            known(0.0, f64::INFINITY)
        }
        Func::Expm1 => known(-1.0, f64::INFINITY),
        Func::Rsqrt if positive(x) => known(0.0, f64::INFINITY),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::scalar::{eval_one, expand};
    use adfuse_ir::{Attrs, Op};

    /// What every elementwise op of floats gives for numbers in ranges is in the range that it is said to be in.
    #[test]
    fn results_are_in_their_ranges() {
        let mut ends = vec![
            0.0,
            1e-45,
            1e-38,
            1e-20,
            0.5,
            1.0,
            1.5,
            2.0,
            30.0,
            88.8,
            104.0,
            1e10,
            3.4e38,
            f64::INFINITY,
        ];
        ends.extend(ends.clone().iter().map(|x| -x));
        let ends: Vec<f64> = ends.iter().map(|&x| rounded(DType::F32, x)).collect();
        let mut seed = 1u64;
        let mut pick = |n: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % n
        };
        let mut known = 0;
        for &op in Op::ALL {
            let adfuse_ir::op::Infer::Map(sig) = op.def().infer else { continue };
            if !op.def().attrs.is_empty() || op.def().declared || !sig.t.contains(DType::F32) {
                continue;
            }
            let class =
                |c| if c == adfuse_ir::infer::Class::Bool { DType::Bool } else { DType::F32 };
            let dtypes: Vec<DType> = sig.args.iter().map(|&c| class(c)).collect();
            let result = class(sig.result);
            if result != DType::F32 || dtypes.contains(&DType::Bool) {
                continue;
            }
            let program = op.scalar_program(&dtypes, result, &Attrs::none()).expect("is a map");
            let expanded = expand(&program);
            for _ in 0..4000 {
                let (mut ranges, mut numbers) = (Vec::new(), Vec::new());
                for _ in &dtypes {
                    let mut of =
                        [ends[pick(ends.len())], ends[pick(ends.len())], ends[pick(ends.len())]];
                    of.sort_by(f64::total_cmp);
                    ranges.push(FloatRange { lo: of[0], hi: of[2], nan: false });
                    numbers.push(Literal::from_f64(DType::F32, of[1]));
                }
                let values: Vec<Value> = (0..dtypes.len() as u32).map(Value::from_u32).collect();
                let range = through(&program, &values, &|v| ranges[v.as_u32() as usize]);
                let y = eval_one(&expanded, &numbers).to_f64();
                let fits = if y.is_nan() {
                    range.nan
                } else {
                    FloatRange::one(y).within(range.lo, range.hi)
                };
                assert!(fits, "{op}: {y:e} of {numbers:?} in {ranges:?} is not in {range:?}");
                known += usize::from(range != FloatRange::ALL);
            }
        }
        assert!(known > 20_000, "{known} ranges are known");
    }
}
