//! Decompositions: the ops of StableHLO, and the calls of LAPACK that JAX leaves for them.

use super::attributes::{find, flag, number};
use super::context::{LoweredValues, ModuleLowering, Val};
use crate::emit::element::ElementType;
use crate::emit::refusal::{Unlowered, refuse};
use crate::text::tree::{Attribute, Instruction};
use adfuse_ir::{Attr as IrAttr, Attrs, DType, Literal, Op, TensorType, Value};
use smallvec::smallvec;

/// A call of LAPACK.
type LapackCall = fn(&mut ModuleLowering<'_>, &Instruction<'_>) -> LoweredValues;

/// The calls of LAPACK that are known, without the letter of the element type.
const LAPACK: &[(&str, LapackCall)] = &[
    ("geqrf", geqrf),
    ("gesdd", gesdd),
    ("getrf", getrf),
    ("orgqr", orgqr),
    ("potrf", potrf),
    ("syevd", syevd),
    ("trsm", trsm),
];

/// The routine of LAPACK that a custom call names, for real numbers.
pub(crate) fn lapack(name: &str) -> Option<LapackCall> {
    let routine = name.strip_prefix("lapack_")?.strip_suffix("_ffi")?;
    let routine = routine.strip_prefix(['s', 'd'])?;
    LAPACK.iter().find(|(n, _)| *n == routine).map(|&(_, call)| call)
}

fn operands<const N: usize>(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
) -> Result<[Val; N], Unlowered> {
    let mut args = cx.operands(inst)?;
    // Behind the arrays, the shapes of results, which follow from them.
    if inst.attr("indices_of_shape_operands").is_some() {
        args.truncate(N);
    }
    if args.iter().any(|a| !a.element.is_float()) {
        return refuse("elements that are no floats");
    }
    args.iter_mut().for_each(|a| a.value = cx.b.materialize(a.value));
    args.try_into().or_else(|_| refuse(format!("other than {N} operands")))
}

pub(crate) fn cholesky(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let [a] = operands(cx, inst)?;
    let attrs = Attrs::none().with("upper", IrAttr::Bool(!flag(inst, "lower")));
    Ok(smallvec![Val { value: cx.emit(Op::Cholesky, &[a.value], attrs)?, ..a }])
}

pub(crate) fn triangular_solve(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
) -> LoweredValues {
    let transpose = match find(inst, &["transpose_a"]).and_then(Attribute::word) {
        Some("TRANSPOSE" | "ADJOINT") => true,
        Some("NO_TRANSPOSE") => false,
        _ => return refuse("without `transpose_a`"),
    };
    let upper = !flag(inst, "lower");
    solve(cx, inst, [upper, !flag(inst, "left_side"), transpose, flag(inst, "unit_diagonal")])
}

fn solve(
    cx: &mut ModuleLowering<'_>,
    inst: &Instruction<'_>,
    [upper, right, transpose, unit]: [bool; 4],
) -> LoweredValues {
    let [a, b] = operands(cx, inst)?;
    let attrs = Attrs::none()
        .with("upper", IrAttr::Bool(upper))
        .with("right", IrAttr::Bool(right))
        .with("transpose", IrAttr::Bool(transpose))
        .with("unit_diagonal", IrAttr::Bool(unit));
    Ok(smallvec![Val { value: cx.emit(Op::TriangularSolve, &[a.value, b.value], attrs)?, ..b }])
}

/// A letter of a call's configuration.
fn letter(inst: &Instruction<'_>, name: &str) -> Result<char, Unlowered> {
    let config = inst.attr("mhlo.backend_config").or(inst.attr("backend_config"));
    let Some(entry) = config.and_then(|c| c.entry(name)) else {
        return refuse(format!("without `{name}`"));
    };
    let code = number(entry)?;
    u8::try_from(code).map(char::from).or_else(|_| refuse(format!("`{name}` of {code}")))
}

/// Which of two letters a call's configuration has: whether it is the second.
fn choice(inst: &Instruction<'_>, name: &str, letters: [char; 2]) -> Result<bool, Unlowered> {
    match letter(inst, name)? {
        l if l == letters[0] => Ok(false),
        l if l == letters[1] => Ok(true),
        l => refuse(format!("`{name}` of `{l}`")),
    }
}

fn trsm(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let transpose = match letter(inst, "trans_x")? {
        'N' => false,
        'T' | 'C' => true,
        l => return refuse(format!("`trans_x` of `{l}`")),
    };
    let (upper, right) = (choice(inst, "uplo", ['L', 'U'])?, choice(inst, "side", ['L', 'R'])?);
    solve(cx, inst, [upper, right, transpose, choice(inst, "diag", ['N', 'U'])?])
}

fn potrf(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let [a] = operands(cx, inst)?;
    let upper = choice(inst, "uplo", ['L', 'U'])?;
    let attrs = Attrs::none().with("upper", IrAttr::Bool(upper));
    let value = cx.emit(Op::Cholesky, &[a.value], attrs)?;
    let info = first_pivot(cx, value, Op::Gt)?;
    Ok(smallvec![Val { value, ..a }, info])
}

fn getrf(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let [a] = operands(cx, inst)?;
    let made = cx.emit_all(Op::Lu, &[a.value], Attrs::none(), None, &[])?;
    let (packed, places) = (made[0], made[1]);
    // LAPACK counts rows from 1.
    let one = cx.literal_like(places, Literal::one(DType::I32));
    let places = cx.op(Op::Add, &[places, one])?;
    let info = first_pivot(cx, packed, Op::Ne)?;
    Ok(smallvec![Val { value: packed, ..a }, Val { value: places, ..info }, info])
}

fn syevd(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let [a] = operands(cx, inst)?;
    let upper = choice(inst, "uplo", ['L', 'U'])?;
    let attrs = Attrs::none().with("upper", IrAttr::Bool(upper));
    let made = cx.emit_all(Op::Eigh, &[a.value], attrs, None, &[])?;
    let (values, vectors) = (made[0], made[1]);
    let info = no_failure(cx, a);
    Ok(smallvec![Val { value: vectors, ..a }, Val { value: values, ..a }, info])
}

/// Singular values and vectors: `mode` says whether there are as many vectors as singular values, all, or none.
fn gesdd(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let [a] = operands(cx, inst)?;
    let (full, vectors) = match letter(inst, "mode")? {
        'A' => (true, true),
        'S' => (false, true),
        'N' => (false, false),
        l => return refuse(format!("`mode` of `{l}`")),
    };
    let attrs = Attrs::none().with("full", IrAttr::Bool(full));
    let made = cx.emit_all(Op::Svd, &[a.value], attrs, None, &[])?;
    let info = no_failure(cx, a);
    let [mut u, s, mut v] = [made[0], made[1], made[2]].map(|value| Val { value, ..a });
    if !vectors {
        // LAPACK leaves them as they were, whatever shape they have: nothing reads them.
        for (k, part) in [(2, &mut u), (3, &mut v)] {
            let (_, ty) = cx.result_type(inst, k)?;
            part.value = cx.b.literal(&ty, Literal::zero(ty.dtype));
        }
    }
    Ok(smallvec![a, s, u, v, info])
}

/// What a call of LAPACK gives where it succeeds, for each matrix.
fn no_failure(cx: &mut ModuleLowering<'_>, a: Val) -> Val {
    let shape = &cx.b.ty(a.value).shape;
    let batch = shape[..shape.len().saturating_sub(2)].iter().copied();
    let batch = TensorType::new(DType::I32, batch.collect::<Vec<_>>());
    let value = cx.b.literal(&batch, Literal::zero(DType::I32));
    Val { element: ElementType::I32, value }
}

fn geqrf(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let [a] = operands(cx, inst)?;
    let made = cx.emit_all(Op::Householder, &[a.value], Attrs::none(), None, &[])?;
    Ok(made.iter().map(|&value| Val { value, ..a }).collect())
}

fn orgqr(cx: &mut ModuleLowering<'_>, inst: &Instruction<'_>) -> LoweredValues {
    let [packed, scales] = operands(cx, inst)?;
    let value = cx.op(Op::HouseholderProduct, &[packed.value, scales.value])?;
    Ok(smallvec![Val { value, ..packed }])
}

/// The number, from 1 on, of the first element on the diagonals that does not compare so with 0; 0 where all do.
fn first_pivot(cx: &mut ModuleLowering<'_>, x: Value, holds: Op) -> Result<Val, Unlowered> {
    let ty = cx.b.ty(x).clone();
    let rank = ty.rank();
    let of = |dtype| ty.with_dtype(dtype);
    let mut places = |axis: usize| {
        cx.emit_as(Op::Iota, &[], Attrs::none().with_int("axis", axis as i64), &of(DType::I32))
    };
    let (rows, columns) = (places(rank - 2)?, places(rank - 1)?);
    let zero = Literal::zero(cx.b.ty(x).dtype);
    let zero = cx.literal_like(x, zero);
    let good = cx.op(holds, &[x, zero])?;
    let beside = cx.op(Op::Ne, &[rows, columns])?;
    let good = cx.op(Op::Or, &[good, beside])?;
    let (one, most) = (Literal::one(DType::I32), Literal::from_i64(DType::I32, i32::MAX.into()));
    let one = cx.literal_like(rows, one);
    let numbers = cx.op(Op::Add, &[rows, one])?;
    let all = cx.literal_like(rows, most);
    let numbers = cx.op(Op::SelectN, &[good, numbers, all])?;
    let axes = Attrs::none().with_ints("axes", [rank as i64 - 2, rank as i64 - 1]);
    let first = cx.emit(Op::ReduceMin, &[numbers], axes)?;
    let none = cx.literal_like(first, most);
    let none = cx.op(Op::Eq, &[first, none])?;
    let zero = cx.literal_like(first, Literal::zero(DType::I32));
    let value = cx.op(Op::SelectN, &[none, first, zero])?;
    Ok(Val { element: ElementType::I32, value })
}
