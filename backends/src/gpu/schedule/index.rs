//! Index expressions: ranges, divisibility, coordinates of a place.

use adfuse_ir::affine::simplified;
use adfuse_ir::kernel::{Buffer, Operand, Param, Piece, Program, volume};

use adfuse_ir::index::IndexExpr;

/// The parameters whose values an expression has.
pub(crate) fn data_of(e: &IndexExpr, found: &mut dyn FnMut(usize)) {
    match e {
        IndexExpr::Axis(_) | IndexExpr::Const(_) => {}
        IndexExpr::Data { param, .. } => found(*param as usize),
        IndexExpr::Add(a, b) => {
            data_of(a, found);
            data_of(b, found);
        }
        IndexExpr::Mul(a, _) | IndexExpr::FloorDiv(a, _) | IndexExpr::Mod(a, _) => {
            data_of(a, found)
        }
    }
}

/// The least and the greatest value.
pub(crate) fn range(e: &IndexExpr, extents: &[i64]) -> (i128, i128) {
    match e {
        IndexExpr::Axis(a) => {
            (0, i128::from(extents.get(usize::from(*a)).map_or(0, |n| (n - 1).max(0))))
        }
        IndexExpr::Const(c) => ((*c).into(), (*c).into()),
        IndexExpr::Add(a, b) => {
            let (a, b) = (range(a, extents), range(b, extents));
            (a.0 + b.0, a.1 + b.1)
        }
        IndexExpr::Mul(a, c) => {
            let a = range(a, extents);
            let (x, y) = (a.0 * i128::from(*c), a.1 * i128::from(*c));
            (x.min(y), x.max(y))
        }
        IndexExpr::FloorDiv(a, c) => {
            let a = range(a, extents);
            (a.0.div_euclid((*c).into()), a.1.div_euclid((*c).into()))
        }
        IndexExpr::Mod(a, c) => {
            let a = range(a, extents);
            match a.0 >= 0 && a.1 < i128::from(*c) {
                true => a,
                false => (0, i128::from(c - 1)),
            }
        }
        IndexExpr::Data { lo, hi, .. } => ((*lo).into(), (*hi).into()),
    }
}

/// Whether every number on the way to an expression's value fits 32 bits with a sign.
pub(crate) fn fits(e: &IndexExpr, extents: &[i64]) -> bool {
    let (lo, hi) = range(e, extents);
    let within = lo >= i128::from(i32::MIN) && hi <= i128::from(i32::MAX);
    within
        && match e {
            IndexExpr::Axis(_) | IndexExpr::Const(_) | IndexExpr::Data { .. } => true,
            IndexExpr::Add(a, b) => fits(a, extents) && fits(b, extents),
            IndexExpr::Mul(a, c) | IndexExpr::FloorDiv(a, c) | IndexExpr::Mod(a, c) => {
                // Quotients of numbers below zero are taken of larger ones.
                let (lo, hi) = range(a, extents);
                let moved = hi - lo + i128::from(*c).abs();
                fits(a, extents) && moved <= i128::from(i32::MAX) && i32::try_from(*c).is_ok()
            }
        }
}

/// Whether the value is a multiple of `n`, as far as its form says.
pub(crate) fn divisible(e: &IndexExpr, n: i64) -> bool {
    n == 1
        || match e {
            IndexExpr::Const(c) => c % n == 0,
            IndexExpr::Add(a, b) => divisible(a, n) && divisible(b, n),
            IndexExpr::Mul(a, c) => c % n == 0 || divisible(a, n),
            IndexExpr::Mod(a, c) => c % n == 0 && divisible(a, n),
            IndexExpr::Axis(_) | IndexExpr::FloorDiv(..) | IndexExpr::Data { .. } => false,
        }
}

/// The expression without the constant that is added last, and that constant.
pub(crate) fn split(e: &IndexExpr) -> (IndexExpr, i64) {
    match e {
        IndexExpr::Const(c) => (IndexExpr::Const(0), *c),
        IndexExpr::Add(a, b) => match b.as_ref() {
            IndexExpr::Const(c) => (a.as_ref().clone(), *c),
            _ => (e.clone(), 0),
        },
        _ => (e.clone(), 0),
    }
}

/// Coordinates of a place among these extents, row-major.
pub(crate) fn coordinates(place: &IndexExpr, extents: &[i64]) -> Vec<IndexExpr> {
    let mut within = 1i64;
    let mut at = Vec::new();
    for (k, &n) in extents.iter().enumerate().rev() {
        let part = place.clone().floor_div(within.max(1));
        // The outermost has no bound to take a remainder by.
        at.push(match extents[..k].iter().all(|&m| m == 1) {
            true if n != 1 => part,
            _ => part.modulo(n.max(1)),
        });
        within = within.saturating_mul(n.max(1));
    }
    at.reverse();
    at
}

/// The buffer and the index of a parameter that is read without conditions and at no place that is data.
pub(crate) fn whole(param: &Param) -> Option<(Buffer, &Piece)> {
    let Param::Load(pieces) = param else { return None };
    let [piece] = pieces.as_slice() else { return None };
    let plain = piece.index.iter().all(|e| !has_data(e)) && piece.guards.is_empty();
    match piece.from {
        Operand::Buffer(b) if plain => Some((b, piece)),
        _ => None,
    }
}

pub(crate) fn has_data(e: &IndexExpr) -> bool {
    let mut found = false;
    data_of(e, &mut |_| found = true);
    found
}

/// Whether a store goes by the elements of its buffer in the order in which memory has them.
pub(crate) fn in_order(program: &Program, b: Buffer, index: &[IndexExpr], domain: &[i64]) -> bool {
    let data = &program.buffers[b];
    let mut place = IndexExpr::Const(0);
    for (e, &n) in index.iter().zip(&data.dims) {
        place = place.times(n.max(1)).sum(e.clone());
    }
    let total = volume(domain);
    let at = coordinates(&IndexExpr::axis(0), domain);
    let place = simplified(&place.compose(&at), &[total]);
    data.strides.is_none() && (place == IndexExpr::axis(0) || total == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_of_a_place_are_row_major() {
        let extents = [1, 3, 1, 4, 5];
        for place in 0..60 {
            let at: Vec<i64> = coordinates(&IndexExpr::axis(0), &extents)
                .iter()
                .map(|e| e.eval(&[place], &[]))
                .collect();
            assert_eq!(at, [0, place / 20, 0, place / 5 % 4, place % 5]);
        }
    }

    #[test]
    fn a_place_in_groups_is_the_group_and_the_rest() {
        // Four neighbours along the last axis of [6, 8], of group d0: a dense place is d0 * 4 + j.
        let group = IndexExpr::axis(0);
        let mut at = coordinates(&group, &[6, 2]);
        let last = at.pop().expect("two axes").times(4).plus(3);
        let place = at[0].clone().times(8).sum(last);
        let simple = simplified(&place, &[12]);
        assert_eq!(simple.to_string(), "d0 * 4 + 3");
        let (rest, constant) = split(&simple);
        assert!(divisible(&rest, 4) && !divisible(&rest, 8));
        assert_eq!(constant, 3);
    }

    #[test]
    fn ranges_hold_every_value() {
        let x = IndexExpr::axis(0).times(-3).plus(5);
        let all = [
            x.clone(),
            x.clone().floor_div(4),
            x.clone().modulo(7),
            x.times(-1).sum(IndexExpr::axis(1)),
        ];
        for e in all {
            let (lo, hi) = range(&e, &[9, 4]);
            for a in 0..9 {
                for b in 0..4 {
                    let v = i128::from(e.eval(&[a, b], &[]));
                    assert!(lo <= v && v <= hi, "{e} is {v}, not in {lo}..={hi}");
                }
            }
        }
    }
}
