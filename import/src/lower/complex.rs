//! Complex numbers, as pairs of real ones: what moves elements moves both parts, and arithmetic is written out.

use super::attributes::{find, need_list};
use super::context::{LoweredNumbers, LoweringRule, ModuleLowering, OpRow, Val};
use super::elementwise::{apply, direction};
use super::number::{ComplexPart, ImportedNumber, NumberType, part_names};
use crate::emit::refusal::{Unlowered, refuse};
use crate::text::tree::{Attribute, Instruction, Type};
use adfuse_ir::{Attr as IrAttr, Attrs, Dim, Literal, Op, TensorType, Value};

/// How an op of complex numbers is lowered.
#[derive(Clone, Copy)]
enum ComplexRule {
    /// To both parts alike, by the op's row.
    EachPart,
    /// As a product of sums: the row multiplies a part of the first operand with one of the second.
    Product,
    /// By this function of the operands.
    By(fn(&mut ModuleLowering<'_>, &[ImportedNumber]) -> Result<ImportedNumber, Unlowered>),
    /// By this function.
    Written(for<'t> fn(&mut ModuleLowering<'t>, &'t Instruction<'t>, &OpRow) -> LoweredNumbers),
}

/// Ops of complex numbers, by name; others are refused.
const RULES: &[(&str, ComplexRule)] = &[
    ("check.expect_almost_eq", ComplexRule::EachPart),
    ("check.expect_almost_eq_const", ComplexRule::EachPart),
    ("check.expect_eq", ComplexRule::EachPart),
    ("check.expect_eq_const", ComplexRule::EachPart),
    ("chlo.conj", ComplexRule::By(conjugate)),
    ("sdy.sharding_constraint", ComplexRule::EachPart),
    ("stablehlo.abs", ComplexRule::By(magnitude)),
    ("stablehlo.add", ComplexRule::EachPart),
    ("stablehlo.broadcast_in_dim", ComplexRule::EachPart),
    ("stablehlo.compare", ComplexRule::Written(compare)),
    ("stablehlo.complex", ComplexRule::By(pair)),
    ("stablehlo.concatenate", ComplexRule::EachPart),
    ("stablehlo.constant", ComplexRule::EachPart),
    ("stablehlo.convert", ComplexRule::Written(convert)),
    ("stablehlo.custom_call", ComplexRule::EachPart),
    ("stablehlo.divide", ComplexRule::By(quotient)),
    ("stablehlo.dot", ComplexRule::Product),
    ("stablehlo.dot_general", ComplexRule::Product),
    ("stablehlo.dynamic_broadcast_in_dim", ComplexRule::EachPart),
    ("stablehlo.dynamic_reshape", ComplexRule::EachPart),
    ("stablehlo.dynamic_slice", ComplexRule::EachPart),
    ("stablehlo.dynamic_update_slice", ComplexRule::EachPart),
    ("stablehlo.exponential", ComplexRule::By(exponential)),
    ("stablehlo.fft", ComplexRule::Written(fft)),
    ("stablehlo.gather", ComplexRule::EachPart),
    ("stablehlo.get_dimension_size", ComplexRule::EachPart),
    ("stablehlo.imag", ComplexRule::By(imaginary)),
    ("stablehlo.iota", ComplexRule::Written(real_part)),
    ("stablehlo.log", ComplexRule::By(logarithm)),
    ("stablehlo.multiply", ComplexRule::By(product)),
    ("stablehlo.negate", ComplexRule::EachPart),
    ("stablehlo.optimization_barrier", ComplexRule::EachPart),
    ("stablehlo.pad", ComplexRule::EachPart),
    ("stablehlo.real", ComplexRule::By(real)),
    ("stablehlo.reduce", ComplexRule::Written(sum)),
    ("stablehlo.reduce_window", ComplexRule::Written(sum)),
    ("stablehlo.reshape", ComplexRule::EachPart),
    ("stablehlo.reverse", ComplexRule::EachPart),
    ("stablehlo.scatter", ComplexRule::Written(sum)),
    ("stablehlo.select", ComplexRule::EachPart),
    ("stablehlo.sign", ComplexRule::By(sign)),
    ("stablehlo.slice", ComplexRule::EachPart),
    ("stablehlo.subtract", ComplexRule::EachPart),
    ("stablehlo.transpose", ComplexRule::EachPart),
];

/// Lowers an instruction that has complex operands or results.
pub(crate) fn lower<'t>(
    cx: &mut ModuleLowering<'t>,
    inst: &'t Instruction<'t>,
    row: &OpRow,
) -> LoweredNumbers {
    let Ok(at) = RULES.binary_search_by(|(name, _)| name.cmp(&inst.op)) else {
        return refuse("complex numbers");
    };
    match RULES[at].1 {
        ComplexRule::EachPart => each_part(cx, inst, row),
        ComplexRule::Product => sum_of_products(cx, inst, row),
        ComplexRule::By(rule) => {
            let args = operands(cx, inst)?;
            rule(cx, &args).map(|n| vec![n])
        }
        ComplexRule::Written(rule) => rule(cx, inst, row),
    }
}

impl ModuleLowering<'_> {
    /// The imported type of real or complex numbers.
    pub(crate) fn number_type(&mut self, ty: &Type<'_>) -> Result<NumberType, Unlowered> {
        let known: Option<Vec<Dim>> = ty.extents().iter().map(|e| e.map(Dim::Const)).collect();
        match known {
            Some(shape) => self.number_type_at(ty, &shape),
            None => refuse("an extent that is not known"),
        }
    }

    /// The imported type of numbers with this shape.
    pub(crate) fn number_type_at(
        &mut self,
        ty: &Type<'_>,
        shape: &[Dim],
    ) -> Result<NumberType, Unlowered> {
        let complex = self.part.is_none() && ty.is_complex();
        let read = if complex { Some(ComplexPart::Real) } else { self.part };
        let element = self.reading(read, |cx| cx.element_of(ty))?;
        let ty = TensorType::new(element.storage(), shape.iter().copied());
        match ty.excess() {
            Some(m) => refuse(m),
            None => Ok(NumberType { element, ty, complex }),
        }
    }

    /// A parameter of the function or region under construction.
    pub(crate) fn parameter(&mut self, name: &str, ty: &NumberType) -> ImportedNumber {
        let mut part = |name: &Option<String>| Val {
            element: ty.element,
            value: self.b.param(ty.ty.clone(), name.as_deref()),
        };
        let names = part_names(name, ty.complex);
        ImportedNumber { re: part(&names[0]), im: names.get(1).map(part) }
    }
}

/// Ops that have complex operands or results by their meaning.
pub(crate) fn only<'t>(cx: &mut ModuleLowering<'t>, inst: &'t Instruction<'t>) -> LoweredNumbers {
    if cx.part.is_some() {
        return refuse("complex numbers in a function of elements");
    }
    let row = OpRow { name: "", attrs: &[], lower: LoweringRule::Whole(only) };
    lower(cx, inst, &row)
}

/// The results of the row for one part.
fn part<'t>(
    cx: &mut ModuleLowering<'t>,
    inst: &'t Instruction<'t>,
    row: &OpRow,
    part: ComplexPart,
) -> Result<Vec<Val>, Unlowered> {
    cx.reading(Some(part), |cx| cx.row(inst, row)).map(|found| found.to_vec())
}

fn each_part<'t>(
    cx: &mut ModuleLowering<'t>,
    inst: &'t Instruction<'t>,
    row: &OpRow,
) -> LoweredNumbers {
    let re = part(cx, inst, row, ComplexPart::Real)?;
    let im = part(cx, inst, row, ComplexPart::Imaginary)?;
    let complex = |k: usize| inst.result_type(k).is_some_and(Type::is_complex);
    let both = re.into_iter().zip(im).enumerate();
    Ok(both.map(|(k, (re, im))| ImportedNumber { re, im: complex(k).then_some(im) }).collect())
}

/// Operands; in a function of elements, of its shape.
fn operands(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
) -> Result<Vec<ImportedNumber>, Unlowered> {
    match cx.lift.is_some() {
        true => refuse("complex numbers in a function of elements"),
        false => cx.numbers(inst),
    }
}

fn sum_of_products<'t>(
    cx: &mut ModuleLowering<'t>,
    inst: &'t Instruction<'t>,
    row: &OpRow,
) -> LoweredNumbers {
    use ComplexPart::{Imaginary, Real};
    let args = operands(cx, inst)?;
    let [x, y] = args[..] else { return refuse("other than two operands") };
    if let Some(sum) = super::short::dot(cx, inst, x, y, product_of_parts)? {
        let im = sum.im.unwrap_or_else(|| zero_like(cx, sum.re));
        return Ok(vec![ImportedNumber::complex(sum.re, im)]);
    }
    let mut of = |first: ComplexPart, second: ComplexPart| -> Result<Option<Val>, Unlowered> {
        let there = |n: ImportedNumber, part| part == Real || n.im.is_some();
        if !there(x, first) || !there(y, second) {
            return Ok(None);
        }
        cx.factors = Some([first, second]);
        let found = part(cx, inst, row, Real);
        cx.factors = None;
        Ok(found?.first().copied())
    };
    let [rr, ii] = [of(Real, Real)?, of(Imaginary, Imaginary)?];
    let [ri, ir] = [of(Real, Imaginary)?, of(Imaginary, Real)?];
    let Some(re) = rr else { return refuse("no result") };
    let re = ii.map_or(Ok(re), |ii| apply(cx, Op::Sub, &[re, ii]))?;
    let im = match (ri, ir) {
        (Some(x), Some(y)) => apply(cx, Op::Add, &[x, y])?,
        (Some(x), None) | (None, Some(x)) => x,
        (None, None) => zero_like(cx, re),
    };
    Ok(vec![ImportedNumber::complex(re, im)])
}

/// Sums of complex numbers, and scatters that put numbers into places: what does the same to both parts.
fn sum<'t>(cx: &mut ModuleLowering<'t>, inst: &'t Instruction<'t>, row: &OpRow) -> LoweredNumbers {
    use super::reduce::{Combiner, recognized};
    let applied = inst.words.iter().find_map(|w| match w {
        Attribute::Word(w) if w.contains('.') => Some(*w),
        _ => None,
    });
    let of_region = || match &inst.regions[..] {
        [region] => recognized(region),
        _ => None,
    };
    let known = match applied {
        Some(op) => op == "stablehlo.add",
        None => matches!(of_region(), Some(Combiner::Add | Combiner::Second)),
    };
    if known { each_part(cx, inst, row) } else { refuse("complex numbers, but for sums of them") }
}

/// Real numbers become the real parts.
fn convert<'t>(
    cx: &mut ModuleLowering<'t>,
    inst: &'t Instruction<'t>,
    row: &OpRow,
) -> LoweredNumbers {
    let args = cx.numbers(inst)?;
    let [x] = args[..] else { return refuse("other than one operand") };
    if x.im.is_some() {
        return each_part(cx, inst, row);
    }
    real_part(cx, inst, row)
}

/// The row gives the real part; the imaginary one is 0.
fn real_part<'t>(
    cx: &mut ModuleLowering<'t>,
    inst: &'t Instruction<'t>,
    row: &OpRow,
) -> LoweredNumbers {
    let re = part(cx, inst, row, ComplexPart::Real)?;
    let [re] = re[..] else { return refuse("other than one result") };
    let im = zero_like(cx, re);
    Ok(vec![ImportedNumber::complex(re, im)])
}

/// Whether both parts are equal, or one is not.
fn compare<'t>(
    cx: &mut ModuleLowering<'t>,
    inst: &'t Instruction<'t>,
    row: &OpRow,
) -> LoweredNumbers {
    let join = match direction(inst)?.0 {
        Op::Eq => Op::And,
        Op::Ne => Op::Or,
        _ => return refuse("an order of complex numbers"),
    };
    let mut parts = part(cx, inst, row, ComplexPart::Real)?;
    parts.extend(part(cx, inst, row, ComplexPart::Imaginary)?);
    Ok(vec![apply(cx, join, &parts)?.into()])
}

fn zero_like(cx: &mut ModuleLowering<'_>, x: Val) -> Val {
    Val { value: cx.literal_like(x.value, Literal::zero(x.element.storage())), ..x }
}

fn number_like(cx: &mut ModuleLowering<'_>, x: Val, n: f64) -> Val {
    Val { value: cx.literal_like(x.value, Literal::from_f64(x.element.storage(), n)), ..x }
}

/// Both parts; 0 for the imaginary one of real numbers.
fn parts(cx: &mut ModuleLowering<'_>, n: ImportedNumber) -> (Val, Val) {
    (n.re, n.im.unwrap_or_else(|| zero_like(cx, n.re)))
}

fn one(args: &[ImportedNumber]) -> Result<ImportedNumber, Unlowered> {
    match args {
        [x] => Ok(*x),
        _ => refuse("other than one operand"),
    }
}

fn two(args: &[ImportedNumber]) -> Result<[ImportedNumber; 2], Unlowered> {
    match args {
        [x, y] => Ok([*x, *y]),
        _ => refuse("other than two operands"),
    }
}

fn choose(cx: &mut ModuleLowering<'_>, p: Val, yes: Val, no: Val) -> Result<Val, Unlowered> {
    Ok(Val { value: cx.op(Op::SelectN, &[p.value, no.value, yes.value])?, ..yes })
}

pub(crate) fn real(
    _: &mut ModuleLowering<'_>,
    args: &[ImportedNumber],
) -> Result<ImportedNumber, Unlowered> {
    Ok(one(args)?.re.into())
}

pub(crate) fn imaginary(
    cx: &mut ModuleLowering<'_>,
    args: &[ImportedNumber],
) -> Result<ImportedNumber, Unlowered> {
    let x = one(args)?;
    Ok(parts(cx, x).1.into())
}

fn pair(_: &mut ModuleLowering<'_>, args: &[ImportedNumber]) -> Result<ImportedNumber, Unlowered> {
    let [x, y] = two(args)?;
    Ok(ImportedNumber::complex(x.re, y.re))
}

fn conjugate(
    cx: &mut ModuleLowering<'_>,
    args: &[ImportedNumber],
) -> Result<ImportedNumber, Unlowered> {
    let (re, im) = parts(cx, one(args)?);
    Ok(ImportedNumber::complex(re, apply(cx, Op::Neg, &[im])?))
}

fn product(
    cx: &mut ModuleLowering<'_>,
    args: &[ImportedNumber],
) -> Result<ImportedNumber, Unlowered> {
    let [x, y] = two(args)?;
    product_of_parts(cx, x, y)
}

/// The product of two numbers, by the products of their parts.
fn product_of_parts(
    cx: &mut ModuleLowering<'_>,
    x: ImportedNumber,
    y: ImportedNumber,
) -> Result<ImportedNumber, Unlowered> {
    let ((a, b), (c, d)) = (parts(cx, x), parts(cx, y));
    let [ac, bd] = [apply(cx, Op::Mul, &[a, c])?, apply(cx, Op::Mul, &[b, d])?];
    let [ad, bc] = [apply(cx, Op::Mul, &[a, d])?, apply(cx, Op::Mul, &[b, c])?];
    Ok(ImportedNumber::complex(apply(cx, Op::Sub, &[ac, bd])?, apply(cx, Op::Add, &[ad, bc])?))
}

/// Smith's quotient: the smaller part of the divisor is divided by the larger one, so that no square overflows.
fn quotient(
    cx: &mut ModuleLowering<'_>,
    args: &[ImportedNumber],
) -> Result<ImportedNumber, Unlowered> {
    let [x, y] = two(args)?;
    let ((a, b), (c, d)) = (parts(cx, x), parts(cx, y));
    let [c_size, d_size] = [apply(cx, Op::Abs, &[c])?, apply(cx, Op::Abs, &[d])?];
    let wide = apply(cx, Op::Ge, &[c_size, d_size])?;
    let (large, small) = (choose(cx, wide, c, d)?, choose(cx, wide, d, c)?);
    let zero = zero_like(cx, c);
    let nothing = apply(cx, Op::Eq, &[large, zero])?;
    let one = number_like(cx, c, 1.0);
    let divisor = choose(cx, nothing, one, large)?;
    let ratio = apply(cx, Op::Div, &[small, divisor])?;
    let ratio = choose(cx, nothing, zero, ratio)?;
    let below = apply(cx, Op::Mul, &[small, ratio])?;
    let below = apply(cx, Op::Add, &[large, below])?;
    // (a + b r, b - a r) where the real part is the larger one, (a r + b, b r - a) elsewhere.
    let (p, q) = (choose(cx, wide, a, b)?, choose(cx, wide, b, a)?);
    let turned = apply(cx, Op::Mul, &[q, ratio])?;
    let re = apply(cx, Op::Add, &[p, turned])?;
    let turned = apply(cx, Op::Mul, &[p, ratio])?;
    let (im, other) = (apply(cx, Op::Sub, &[q, turned])?, apply(cx, Op::Sub, &[turned, q])?);
    let im = choose(cx, wide, im, other)?;
    Ok(ImportedNumber::complex(
        apply(cx, Op::Div, &[re, below])?,
        apply(cx, Op::Div, &[im, below])?,
    ))
}

/// The magnitude, from the larger part and the ratio of both, so that no square overflows.
fn magnitude(
    cx: &mut ModuleLowering<'_>,
    args: &[ImportedNumber],
) -> Result<ImportedNumber, Unlowered> {
    let (re, im) = parts(cx, one(args)?);
    Ok(hypot(cx, re, im)?.into())
}

fn hypot(cx: &mut ModuleLowering<'_>, x: Val, y: Val) -> Result<Val, Unlowered> {
    let (x, y) = (apply(cx, Op::Abs, &[x])?, apply(cx, Op::Abs, &[y])?);
    let (large, small) = (apply(cx, Op::Max, &[x, y])?, apply(cx, Op::Min, &[x, y])?);
    let same = apply(cx, Op::Eq, &[large, small])?;
    let (zero, one) = (zero_like(cx, x), number_like(cx, x, 1.0));
    // Of two zeros and two infinities there is no ratio, nor a derivative of one.
    let below = choose(cx, same, one, large)?;
    let ratio = apply(cx, Op::Div, &[small, below])?;
    let ratio = choose(cx, same, one, ratio)?;
    let square = apply(cx, Op::Mul, &[ratio, ratio])?;
    let square = apply(cx, Op::Add, &[square, one])?;
    let root = apply(cx, Op::Sqrt, &[square])?;
    let size = apply(cx, Op::Mul, &[large, root])?;
    let nothing = apply(cx, Op::Eq, &[large, zero])?;
    choose(cx, nothing, large, size)
}

/// `z / |z|`, and 0 of 0.
fn sign(cx: &mut ModuleLowering<'_>, args: &[ImportedNumber]) -> Result<ImportedNumber, Unlowered> {
    let (re, im) = parts(cx, one(args)?);
    let size = hypot(cx, re, im)?;
    let zero = zero_like(cx, size);
    let nothing = apply(cx, Op::Eq, &[size, zero])?;
    let one = number_like(cx, size, 1.0);
    let below = choose(cx, nothing, one, size)?;
    let mut unit = |x: Val| {
        let scaled = apply(cx, Op::Div, &[x, below])?;
        choose(cx, nothing, zero, scaled)
    };
    Ok(ImportedNumber::complex(unit(re)?, unit(im)?))
}

fn exponential(
    cx: &mut ModuleLowering<'_>,
    args: &[ImportedNumber],
) -> Result<ImportedNumber, Unlowered> {
    let (re, im) = parts(cx, one(args)?);
    let size = apply(cx, Op::Exp, &[re])?;
    let (cos, sin) = (apply(cx, Op::Cos, &[im])?, apply(cx, Op::Sin, &[im])?);
    let zero = zero_like(cx, im);
    let real = apply(cx, Op::Eq, &[im, zero])?;
    let turned = apply(cx, Op::Mul, &[size, sin])?;
    // Of real numbers too large for the type the imaginary part is 0 all the same.
    Ok(ImportedNumber::complex(apply(cx, Op::Mul, &[size, cos])?, choose(cx, real, im, turned)?))
}

fn logarithm(
    cx: &mut ModuleLowering<'_>,
    args: &[ImportedNumber],
) -> Result<ImportedNumber, Unlowered> {
    let (re, im) = parts(cx, one(args)?);
    let size = hypot(cx, re, im)?;
    Ok(ImportedNumber::complex(apply(cx, Op::Log, &[size])?, apply(cx, Op::Atan2, &[im, re])?))
}

/// Fourier transforms along the last axes.
fn fft<'t>(cx: &mut ModuleLowering<'t>, inst: &'t Instruction<'t>, _: &OpRow) -> LoweredNumbers {
    let args = cx.numbers(inst)?;
    let mut x = one(&args)?;
    let lengths = need_list(inst, &["length", "fft_length"])?;
    let named = find(inst, &["type", "fft_type"]).and_then(Attribute::word);
    let named = named.or_else(|| inst.words.first().and_then(Attribute::word)).unwrap_or("");
    let rank = cx.b.ty(x.re.value).rank();
    if lengths.is_empty() || lengths.len() > rank {
        return refuse(format!("{} lengths", lengths.len()));
    }
    let first = rank - lengths.len();
    let (inverse, halved) = match named {
        "FFT" => (false, false),
        "IFFT" => (true, false),
        "RFFT" => (false, true),
        "IRFFT" => (true, true),
        other => return refuse(format!("the transform `{other}`")),
    };
    for (k, &n) in lengths.iter().enumerate() {
        let last = k + 1 == lengths.len();
        let Some(extent) = cx.b.ty(x.re.value).shape[first + k].known() else {
            return refuse("a transform along an axis whose extent is a symbol");
        };
        let extent = extent as i64;
        let wanted = if last && halved && inverse { n / 2 + 1 } else { n };
        if n < 1 || extent != wanted {
            return refuse(format!("a length of {n} for an axis of {extent}"));
        }
    }
    // The halved axis is transformed first on the way to frequencies, and last on the way back.
    let mut axes: Vec<usize> = (first..rank).collect();
    if !inverse {
        axes.reverse();
    }
    for axis in axes {
        let n = lengths[axis - first];
        let attrs =
            Attrs::none().with_int("axis", axis as i64).with("inverse", IrAttr::Bool(inverse));
        let half = halved && axis + 1 == rank;
        x = match (half, inverse) {
            (true, true) => {
                let (re, im) = parts(cx, x);
                let values = [re, im].map(|v| cx.b.materialize(v.value));
                let attrs = Attrs::none().with_int("axis", axis as i64).with_int("length", n);
                Val { value: cx.emit(Op::Irfft, &values, attrs)?, ..re }.into()
            }
            (true, false) => {
                let value = cx.b.materialize(x.re.value);
                let attrs = Attrs::none().with_int("axis", axis as i64);
                complex_of(x.re, &cx.emit_all(Op::Rfft, &[value], attrs, None, &[])?)?
            }
            (false, _) => {
                let (re, im) = parts(cx, x);
                let values = [re, im].map(|v| cx.b.materialize(v.value));
                complex_of(re, &cx.emit_all(Op::Fft, &values, attrs, None, &[])?)?
            }
        };
    }
    Ok(vec![x])
}

fn complex_of(like: Val, values: &[Value]) -> Result<ImportedNumber, Unlowered> {
    match *values {
        [re, im] => {
            Ok(ImportedNumber::complex(Val { value: re, ..like }, Val { value: im, ..like }))
        }
        _ => refuse("other than two results"),
    }
}

#[cfg(test)]
mod tests {
    use super::RULES;

    #[test]
    fn rules_are_in_order() {
        assert!(RULES.is_sorted_by(|a, b| a.0 < b.0));
    }
}
