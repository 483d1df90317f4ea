//! Products of matrices.

use super::{Cx, F32, I32, LoweredValues, OnnxOperation, Val, refuse};
use adfuse_ir::{Dim, Op};
use smallvec::smallvec;

pub(crate) fn matmul<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    Ok(smallvec![cx.matmul(n.input(0)?, n.input(1)?)?])
}

pub(crate) fn gemm<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    if n.version < 7 {
        n.ignore(&["broadcast"]);
    }
    let (mut x, mut y) = (n.input(0)?, n.input(1)?);
    if cx.rank(x) != 2 || cx.rank(y) != 2 {
        return refuse("other than two axes");
    }
    if n.flag("transA", false) {
        x = cx.transpose(x, &[1, 0])?;
    }
    if n.flag("transB", false) {
        y = cx.transpose(y, &[1, 0])?;
    }
    let (alpha, beta) = (n.float("alpha", 1.0), n.float("beta", 1.0));
    let mut product = cx.matmul(x, y)?;
    if alpha != 1.0 {
        product = cx.with(Op::Mul, product, alpha)?;
    }
    if let Some(mut c) = n.optional(2) {
        if beta != 1.0 {
            c = cx.with(Op::Mul, c, beta)?;
        }
        product = cx.add(product, c)?;
    }
    Ok(smallvec![product])
}

/// Integers minus their zero point, which has one element or one for each place of an axis.
pub(crate) fn centered(
    cx: Cx<'_, '_>,
    x: Val,
    zero: Option<Val>,
    axis: Option<usize>,
) -> super::LoweredValue {
    let wide = cx.convert(x, I32)?;
    let Some(zero) = zero else { return Ok(wide) };
    let mut zero = cx.convert(zero, I32)?;
    let shape = cx.shape(x);
    if cx.rank(zero) == 1 && cx.shape(zero)[0] == Dim::Const(1) {
        zero = cx.reshape(zero, &[])?;
    }
    if let (1, Some(axis)) = (cx.rank(zero), axis) {
        zero = cx.broadcast_in(zero, &shape, &[axis as i64])?;
    }
    cx.sub(wide, zero)
}

pub(crate) fn matmul_integer<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let (x, y) = (n.input(0)?, n.input(1)?);
    let (rows, columns) = (cx.rank(x).checked_sub(2), cx.rank(y).checked_sub(1));
    let x = centered(cx, x, n.optional(2), rows)?;
    let y = centered(cx, y, n.optional(3), columns)?;
    Ok(smallvec![cx.matmul(x, y)?])
}

/// The letters of each operand and of the result; dots stand for axes that broadcast, as capital letters.
fn equation(text: &str, ranks: &[usize]) -> Option<(Vec<Vec<char>>, Vec<char>)> {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, output) = match text.split_once("->") {
        Some((inputs, output)) => (inputs, Some(output)),
        None => (text.as_str(), None),
    };
    let inputs: Vec<&str> = inputs.split(',').collect();
    if inputs.len() != ranks.len() {
        return None;
    }
    let dots =
        |term: &str, rank: usize| rank.checked_sub(term.chars().filter(|c| *c != '.').count());
    let most = inputs.iter().zip(ranks).filter(|(t, _)| t.contains("..."));
    let most = most.map(|(t, &r)| dots(t, r)).collect::<Option<Vec<_>>>()?.into_iter().max();
    let extra = |count: usize| (0..count as u32).rev().filter_map(|k| char::from_u32(0x2460 + k));
    let spelled = |term: &str, count: usize| -> Vec<char> {
        match term.split_once("...") {
            Some((a, b)) => a.chars().chain(extra(count)).chain(b.chars()).collect(),
            None => term.chars().collect(),
        }
    };
    let terms: Option<Vec<Vec<char>>> = inputs
        .iter()
        .zip(ranks)
        .map(|(t, &r)| {
            let term = spelled(t, if t.contains("...") { dots(t, r)? } else { 0 });
            (term.len() == r).then_some(term)
        })
        .collect();
    let terms = terms?;
    let result = match output {
        Some(output) => spelled(output, most.unwrap_or(0)),
        None => {
            let all: Vec<char> = terms.iter().flatten().copied().collect();
            let mut once: Vec<char> = all
                .iter()
                .copied()
                .filter(|c| all.iter().filter(|d| *d == c).count() == 1 && c.is_ascii())
                .collect();
            once.sort_unstable();
            extra(most.unwrap_or(0)).chain(once).collect()
        }
    };
    Some((terms, result))
}

pub(crate) fn einsum<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    let all = n.all()?;
    let ranks: Vec<usize> = all.iter().map(|&v| cx.rank(v)).collect();
    let text = n.text("equation", "");
    let Some((terms, result)) = equation(text, &ranks) else {
        return refuse(format!("the equation `{text}`"));
    };
    let mut operands = Vec::new();
    for (&v, term) in all.iter().zip(&terms) {
        operands.push(diagonals(cx, v, term.clone())?);
    }
    let mut operands = operands.into_iter();
    let Some((mut v, mut term)) = operands.next() else { return refuse("no inputs") };
    let rest: Vec<(Val, Vec<char>)> = operands.collect();
    for (k, (w, other)) in rest.iter().enumerate() {
        let later =
            |c: &char| result.contains(c) || rest[k + 1..].iter().any(|(_, term)| term.contains(c));
        (v, term) = product(cx, (v, term), (*w, other.clone()), &later)?;
    }
    let gone: Vec<usize> = (0..term.len()).filter(|&k| !result.contains(&term[k])).collect();
    v = cx.reduce(Op::ReduceSum, v, &gone, false)?;
    term.retain(|c| result.contains(c));
    let perm: Option<Vec<usize>> =
        result.iter().map(|c| term.iter().position(|d| d == c)).collect();
    match perm {
        Some(perm) if perm.len() == term.len() => Ok(smallvec![cx.transpose(v, &perm)?]),
        _ => refuse(format!("the equation `{text}`")),
    }
}

/// A letter that an operand has twice is the diagonal of both axes.
fn diagonals(
    cx: Cx<'_, '_>,
    mut v: Val,
    mut term: Vec<char>,
) -> Result<(Val, Vec<char>), super::Unlowered> {
    while let Some((a, b)) = (0..term.len())
        .find_map(|a| (a + 1..term.len()).find(|&b| term[a] == term[b]).map(|b| (a, b)))
    {
        let shape = cx.shape(v);
        let (rows, columns) = (cx.iota(super::I64, &shape, a)?, cx.iota(super::I64, &shape, b)?);
        let on = cx.map(Op::Eq, &[rows, columns])?;
        let zero = cx.number(v, 0.0);
        v = cx.select(on, v, zero)?;
        v = cx.reduce(Op::ReduceSum, v, &[b], false)?;
        term.remove(b);
    }
    Ok((v, term))
}

/// The product of two operands, summed over the letters that nothing later has.
fn product(
    cx: Cx<'_, '_>,
    (mut x, mut of_x): (Val, Vec<char>),
    (mut y, mut of_y): (Val, Vec<char>),
    later: &dyn Fn(&char) -> bool,
) -> Result<(Val, Vec<char>), super::Unlowered> {
    // What one operand alone has and nobody needs is summed first.
    let (had_x, had_y) = (of_x.clone(), of_y.clone());
    for (v, term, other) in [(&mut x, &mut of_x, had_y), (&mut y, &mut of_y, had_x)] {
        let gone: Vec<usize> =
            (0..term.len()).filter(|&k| !other.contains(&term[k]) && !later(&term[k])).collect();
        *v = cx.reduce(Op::ReduceSum, *v, &gone, false)?;
        *term = term.iter().copied().filter(|c| other.contains(c) || later(c)).collect();
    }
    let shared: Vec<char> = of_x.iter().copied().filter(|c| of_y.contains(c)).collect();
    let place = |term: &[char], c: char| term.iter().position(|d| *d == c).unwrap_or(0);
    // A letter whose extent is 1 in one operand broadcasts.
    for &c in &shared {
        let (a, b) = (cx.shape(x)[place(&of_x, c)], cx.shape(y)[place(&of_y, c)]);
        if a != b {
            let (v, at, to) = if a == Dim::Const(1) {
                (&mut x, place(&of_x, c), b)
            } else {
                (&mut y, place(&of_y, c), a)
            };
            let mut shape = cx.shape(*v);
            shape[at] = to;
            *v = cx.expand(*v, &shape)?;
        }
    }
    let places = |term: &[char], all: &[char]| -> Vec<i64> {
        all.iter().map(|&c| place(term, c) as i64).collect()
    };
    let (batch, contracted): (Vec<char>, Vec<char>) = shared.iter().partition(|c| later(c));
    let value = cx.dot(
        x,
        y,
        (&places(&of_x, &batch), &places(&of_y, &batch)),
        (&places(&of_x, &contracted), &places(&of_y, &contracted)),
    )?;
    let free = |term: &[char]| -> Vec<char> {
        term.iter().copied().filter(|c| !shared.contains(c)).collect()
    };
    let term = batch.iter().copied().chain(free(&of_x)).chain(free(&of_y)).collect();
    Ok((value, term))
}

/// The determinant of small matrices, by expansion along the first row.
pub(crate) fn det<'m>(cx: Cx<'_, 'm>, n: &OnnxOperation<'m>) -> LoweredValues {
    const MOST: u64 = 6;
    let x = n.input(0)?;
    let rank = cx.rank(x);
    let Some(first) = rank.checked_sub(2) else { return refuse("fewer than two axes") };
    let (rows, columns) = (cx.extent(cx.shape(x)[first])?, cx.extent(cx.shape(x)[first + 1])?);
    if rows != columns || rows == 0 || rows > MOST {
        return refuse(format!("matrices of {rows} times {columns}"));
    }
    let all: Vec<u64> = (0..columns).collect();
    Ok(smallvec![minor(cx, x, 0, &all)?])
}

fn minor(cx: Cx<'_, '_>, x: Val, row: u64, columns: &[u64]) -> super::LoweredValue {
    let axis = cx.rank(x) - 2;
    let mut sum: Option<Val> = None;
    for (k, &column) in columns.iter().enumerate() {
        let line = cx.index_axis(x, axis, row)?;
        let mut term = cx.index_axis(line, axis, column)?;
        if columns.len() > 1 {
            let rest: Vec<u64> = columns.iter().copied().filter(|&c| c != column).collect();
            let inner = minor(cx, x, row + 1, &rest)?;
            term = cx.mul(term, inner)?;
        }
        sum = Some(match sum {
            None => term,
            Some(sum) if k % 2 == 1 => cx.sub(sum, term)?,
            Some(sum) => cx.add(sum, term)?,
        });
    }
    match sum {
        Some(sum) => Ok(sum),
        None => Ok(cx.numbers(F32, &[], &[1.0])?),
    }
}
