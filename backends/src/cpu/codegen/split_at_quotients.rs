//! Splits axes at quotients: where an index is `(d + a) / 2`, or a guard asks for `(d + a) % 2`, the axis is two, of halves and of
//! places in a half.
//!
//! Windows that lie strided and their gradients, interior pads and repeated elements are read at quotients of coordinates. A
//! quotient does not change in equal steps along a line, so that such reads were made one by one. Over `d = 2 q + r`
//! they are affine: the quotient is `q` and a constant, the remainder `r`. The inner axis is short, and lines go over
//! [short axes](super::short_axes), where a guard that depends on `r` alone is a constant mask.

use super::affine_form::mentions;
use super::loop_ir::{Sweep, SweepOutput};
use adfuse_ir::affine::simplified;
use adfuse_ir::index::{Guard, IndexExpr};
use adfuse_ir::kernel::{Divisors, Extents, Param, Piece};
use smallvec::SmallVec;

/// The axes of a sweep, what it reads and where it stores, with axes split at quotients.
pub(crate) struct SplitAxes {
    extents: Extents,
    domain: usize,
    params: Vec<Param>,
    /// Of each output that is stored, its index.
    stores: Vec<Vec<IndexExpr>>,
}

/// `None` where nothing is read at quotients along lines, or the axes do not split. Vectors have this many lanes.
pub(crate) fn split_at_quotients(sweep: &Sweep<'_>, lanes: i64) -> Option<SplitAxes> {
    let divisors = divisors(sweep)?;
    let divisors = divisors.of_axes(&sweep.extents);
    let inner = sweep.extents.iter().rposition(|&n| n > 1)?;
    let by = divisors[inner];
    let lies = (2..=lanes).contains(&by);
    let divides = sweep.extents.iter().zip(&divisors).all(|(n, by)| n % by == 0);
    if !lies || !divides || sweep.target.is_some() {
        return None;
    }
    let (mut extents, mut at) = (Extents::new(), SmallVec::<[IndexExpr; 8]>::new());
    let (mut domain, mut short) = (sweep.domain, SmallVec::<[usize; 4]>::new());
    for (axis, (&n, &by)) in sweep.extents.iter().zip(&divisors).enumerate() {
        let outer = IndexExpr::axis(extents.len());
        if by == 1 {
            extents.push(n);
            at.push(outer);
            continue;
        }
        at.push(outer.times(by).sum(IndexExpr::axis(extents.len() + 1)));
        extents.extend([n / by, by]);
        short.push(extents.len() - 1);
        domain += usize::from(axis < sweep.domain);
    }
    let simple = |e: &IndexExpr| affine_over_two(&simplified(&e.compose(&at), &extents), &extents);
    let split = |param: &Param| match param.at(&at) {
        Param::Load(mut pieces) => {
            pieces.iter_mut().for_each(|piece| affine_where_it_holds(piece, &extents, &short));
            Param::Load(pieces)
        }
        Param::Coord(e) => Param::Coord(affine_over_two(&simplified(&e, &extents), &extents)),
        other => other,
    };
    let params = sweep.params.iter().map(split).collect();
    let mut stores = Vec::new();
    for put in &sweep.puts {
        match put {
            SweepOutput::Store(_, index) => stores.push(index.iter().map(simple).collect()),
            SweepOutput::Point(_) | SweepOutput::Place(_) => stores.push(Vec::new()),
            // Folds name axes, whose order is that of their blocks.
            SweepOutput::Fold(_) => return None,
        }
    }
    Some(SplitAxes { extents, domain, params, stores })
}

impl SplitAxes {
    /// The sweep over these axes.
    pub(crate) fn of<'a>(&'a self, sweep: &Sweep<'a>) -> Sweep<'a> {
        let puts = sweep.puts.iter().zip(&self.stores);
        let puts = puts.map(|(put, index)| match put {
            SweepOutput::Store(buffer, _) => SweepOutput::Store(*buffer, index),
            SweepOutput::Point(slot) => SweepOutput::Point(*slot),
            SweepOutput::Place(slot) => SweepOutput::Place(*slot),
            SweepOutput::Fold(fold) => SweepOutput::Fold(*fold),
        });
        Sweep {
            extents: self.extents.clone(),
            domain: self.domain,
            params: &self.params,
            puts: puts.collect(),
            ..sweep.clone()
        }
    }
}

/// The divisors of all that a sweep reads and stores.
fn divisors(sweep: &Sweep<'_>) -> Option<Divisors> {
    let mut found = Divisors::none(sweep.extents.len());
    sweep.params.iter().try_for_each(|param| found.add_param(param))?;
    for put in &sweep.puts {
        if let SweepOutput::Store(_, index) = put {
            index.iter().try_for_each(|e| found.add(e))?;
        }
    }
    Some(found)
}

/// Simplifies the expressions of a piece. Where one of its guards holds at a single place of a short axis, as `(r + 1) % 2 == 0` does,
/// the place stands for the axis in all others: `q + (r + 1) / 2` is `q + 1` there.
fn affine_where_it_holds(piece: &mut Piece, extents: &[i64], short: &[usize]) {
    let axes = |e: &IndexExpr, axis: usize| mentions(e, &|a| a == axis, &|_| true);
    for &axis in short {
        let alone =
            |e: &IndexExpr| axes(e, axis) && !(0..extents.len()).any(|a| a != axis && axes(e, a));
        let places = |guard: &Guard| {
            let mut at: SmallVec<[i64; 8]> = SmallVec::from_elem(0, extents.len());
            let mut holds = (0..extents[axis]).filter(|&place| {
                at[axis] = place;
                guard.range.contains(&guard.expr.eval(&at, &[]))
            });
            holds.next().filter(|_| holds.next().is_none())
        };
        let found = piece.guards.iter().enumerate().find_map(|(k, guard)| {
            let simple =
                Guard { expr: simplified(&guard.expr, extents), range: guard.range.clone() };
            Some((k, places(&simple).filter(|_| alone(&simple.expr))?))
        });
        let Some((k, place)) = found else { continue };
        let fixed = |a: usize| if a == axis { IndexExpr::Const(place) } else { IndexExpr::axis(a) };
        let at: SmallVec<[IndexExpr; 8]> = (0..extents.len()).map(fixed).collect();
        piece.expressions_mut().for_each(|e| *e = e.compose(&at));
        piece.guards[k] = Guard { expr: IndexExpr::axis(axis), range: place..place + 1 };
    }
    piece.expressions_mut().for_each(|e| *e = affine_over_two(&simplified(e, extents), extents));
}

/// An expression in which quotients and remainders of one axis with two coordinates are affine: any function of two places is.
fn affine_over_two(e: &IndexExpr, extents: &[i64]) -> IndexExpr {
    let inner = |a: &IndexExpr| Box::new(affine_over_two(a, extents));
    match e {
        IndexExpr::Axis(_) | IndexExpr::Const(_) | IndexExpr::Data { .. } => e.clone(),
        IndexExpr::Add(a, b) => IndexExpr::Add(inner(a), inner(b)),
        IndexExpr::Mul(a, c) => IndexExpr::Mul(inner(a), *c),
        IndexExpr::FloorDiv(..) | IndexExpr::Mod(..) => {
            let axes = |axis: usize| mentions(e, &|a| a == axis, &|_| true);
            let mut found = (0..extents.len()).filter(|&axis| axes(axis));
            let (Some(axis), None) = (found.next(), found.next()) else { return e.clone() };
            if extents[axis] != 2 || mentions(e, &|_| false, &|_| true) {
                return e.clone();
            }
            let value = |place: i64| e.eval(&vec![place; extents.len()], &[]);
            let first = value(0);
            IndexExpr::axis(axis).times(value(1) - first).plus(first)
        }
    }
}
