//! Products whose operands are stacked along the first axis of the depth: a sum of terms, each with operands of its own.

use super::divided_axes::with_divided_axes;
use adfuse_ir::index::{Guard, IndexExpr};
use adfuse_ir::kernel::{Extents, Feed, Member, Param, Piece};
use smallvec::SmallVec;

/// Terms of a product at most.
const MOST_TERMS: usize = 4;

/// The terms of a product; itself where it has one. Axes that operands divide are two each, so what follows the sums is no part of a
/// term.
pub(crate) fn terms(m: &Member) -> Vec<Member> {
    let terms = stacked(m).unwrap_or_else(|| vec![m.clone()]);
    terms.iter().map(with_divided_axes).collect()
}

fn stacked(m: &Member) -> Option<Vec<Member>> {
    let count = usize::try_from(*m.depth.first()?).ok()?;
    if !(2..=MOST_TERMS).contains(&count) {
        return None;
    }
    let depth: Extents = m.depth.iter().skip(1).copied().collect();
    let of = |k: usize| -> Option<Member> {
        let side = |feed: &Feed, own: &Extents| {
            let axis = m.batch.len() + own.len();
            term(feed, (axis, axis + m.depth.len()), (k, count))
        };
        let (lhs, rhs) = (side(&m.lhs, &m.rows)?, side(&m.rhs, &m.cols)?);
        Some(Member { lhs, rhs, depth: depth.clone(), ..m.clone() })
    };
    (0..count).map(of).collect()
}

/// What a feed reads where an axis of its coordinates, of which there are `rank`, is `k`: one piece of `count`.
fn term(feed: &Feed, (axis, rank): (usize, usize), (k, count): (usize, usize)) -> Option<Feed> {
    let [Param::Load(pieces)] = feed.params.as_slice() else { return None };
    let piece = pieces.get(k).filter(|_| pieces.len() == count)?;
    let here = |g: &Guard| g.expr == IndexExpr::axis(axis) && g.range == (k as i64..k as i64 + 1);
    // The last piece is read wherever no other one is.
    let guards = piece.guards.len();
    if !piece.guards.iter().all(here) || guards > 1 || guards == 0 && k + 1 < count {
        return None;
    }
    let place = |a: usize| match a.cmp(&axis) {
        std::cmp::Ordering::Less => IndexExpr::axis(a),
        std::cmp::Ordering::Equal => IndexExpr::Const(k as i64),
        std::cmp::Ordering::Greater => IndexExpr::axis(a - 1),
    };
    let places: Vec<IndexExpr> = (0..rank).map(place).collect();
    let piece = Piece { guards: SmallVec::new(), ..piece.clone() };
    let params = vec![Param::Load(SmallVec::from_iter([piece]))];
    Some(Feed { params, program: feed.program.clone() }.at(&places))
}
