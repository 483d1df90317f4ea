//! Axes that operands of a product divide, such as the elements of all heads, of which an operand reads element `d % 64` of head
//! `d / 64`: each is two axes, along which the operands lie at constant distances.

use adfuse_ir::affine::simplified;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Extents, Feed, Member, Param};

/// The product with each axis of its rows, columns and depth that an operand divides as two axes, and its operands at those. What
/// follows the sums is left as it is: its coordinates are those of the given product.
pub(crate) fn with_divided_axes(m: &Member) -> Member {
    let divided = |own: &Extents, feeds: &[(&Feed, usize)]| -> Vec<i64> {
        let by = |(k, &n): (usize, &i64)| {
            let found =
                feeds.iter().filter_map(|(feed, first)| divisor(feed, first + k, n)).collect();
            let found: Vec<i64> = found;
            match found.split_first() {
                Some((&first, rest)) if rest.iter().all(|&other| other == first) => first,
                _ => 1,
            }
        };
        own.iter().enumerate().map(by).collect()
    };
    let batch = m.batch.len();
    let [over, under] = [&m.rows, &m.cols].map(|own| batch + own.len());
    let rows = divided(&m.rows, &[(&m.lhs, batch)]);
    let cols = divided(&m.cols, &[(&m.rhs, batch)]);
    let depth = divided(&m.depth, &[(&m.lhs, over), (&m.rhs, under)]);
    if [&rows, &cols, &depth].iter().all(|by| by.iter().all(|&by| by == 1)) {
        return m.clone();
    }
    let whole = vec![1; batch];
    let side = |feed: &Feed, own: (&Extents, &[i64])| {
        at_axes(feed, &[(&m.batch, &whole), own, (&m.depth, &depth)])
    };
    Member {
        lhs: side(&m.lhs, (&m.rows, &rows)),
        rhs: side(&m.rhs, (&m.cols, &cols)),
        rows: split(&m.rows, &rows),
        cols: split(&m.cols, &cols),
        depth: split(&m.depth, &depth),
        ..m.clone()
    }
}

/// Extents of which those that are divided are two.
fn split(extents: &[i64], by: &[i64]) -> Extents {
    let each = extents.iter().zip(by).flat_map(|(&n, &by)| match by {
        1 => [Some(n), None],
        by => [Some(n / by), Some(by)],
    });
    each.flatten().collect()
}

/// A feed at coordinates of which those that are divided are two.
fn at_axes(feed: &Feed, groups: &[(&Extents, &[i64])]) -> Feed {
    let (mut places, mut extents) = (Vec::new(), Vec::new());
    for (own, by) in groups {
        for (&n, &by) in own.iter().zip(*by) {
            let outer = IndexExpr::axis(extents.len());
            extents.push(n / by);
            places.push(match by {
                1 => outer,
                by => {
                    extents.push(by);
                    outer.times(by).sum(IndexExpr::axis(extents.len() - 1))
                }
            });
        }
    }
    let mut feed = feed.at(&places);
    for param in &mut feed.params {
        if let Param::Load(pieces) = param {
            for e in pieces.iter_mut().flat_map(|piece| piece.index.iter_mut()) {
                *e = simplified(e, &extents);
            }
        }
    }
    feed
}

/// What a feed divides an axis of this extent by, where that is one number that divides the extent.
fn divisor(feed: &Feed, axis: usize, extent: i64) -> Option<i64> {
    let mut found = Vec::new();
    for param in &feed.params {
        if let Param::Load(pieces) = param {
            pieces.iter().flat_map(|piece| &piece.index).for_each(|e| add(e, axis, &mut found));
        }
    }
    let (&first, rest) = found.split_first()?;
    let one = rest.iter().all(|&other| other == first);
    (one && first > 1 && first < extent && extent % first == 0).then_some(first)
}

/// Adds the numbers by which an expression divides an axis.
fn add(e: &IndexExpr, axis: usize, found: &mut Vec<i64>) {
    match e {
        IndexExpr::Axis(_) | IndexExpr::Const(_) | IndexExpr::Data { .. } => {}
        IndexExpr::Add(a, b) => {
            add(a, axis, found);
            add(b, axis, found);
        }
        IndexExpr::Mul(a, _) => add(a, axis, found),
        IndexExpr::FloorDiv(a, by) | IndexExpr::Mod(a, by) => match a.as_ref() {
            IndexExpr::Axis(own) if usize::from(*own) == axis => found.push(*by),
            a => add(a, axis, found),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adfuse_ir::kernel::Step;
    use adfuse_ir::kernel::text::parse;

    /// A product whose left operand has heads, with these places along them.
    fn member(lhs: &str, rhs: &str) -> Member {
        let text = format!(
            "program @f {{ input %x: bf16[2, 12, 128, 64] input %w: bf16[256, 768] output %y: bf16[2, 128, 256]
             contract @f {{ member batch [] rows [2, 128] cols [256] depth [768] sum f32 {{
             lhs {{ p0 = load %x[{lhs}] s0 = param.bf16 0 out s0 }}
             rhs {{ p0 = load %w[{rhs}] s0 = param.bf16 0 out s0 }}
             then {{ p0 = sum s0 = param.f32 0 s1 = convert.bf16 s0 %y[d0, d1, d2] = store s1 }} }} }}
             return %y }}"
        );
        let program = parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        match program.steps.as_slice() {
            [Step::Contract(contract)] => contract.members[0].clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_divided_axis_is_two() {
        let m = with_divided_axes(&member("d0, d2 / 64, d1, d2 % 64", "d0, d1"));
        assert_eq!((m.depth.as_slice(), m.rows.as_slice()), (&[12, 64][..], &[2, 128][..]));
        let index = |feed: &Feed| match feed.params.as_slice() {
            [Param::Load(pieces)] => {
                pieces[0].index.iter().map(ToString::to_string).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(index(&m.lhs), ["d0", "d2", "d1", "d3"]);
        let rhs = member("d0, d1, d1, d1", "d0, d1 * 64 + d2").rhs;
        assert_eq!(index(&m.rhs)[1], index(&rhs)[1]);
    }

    #[test]
    fn what_is_not_divided_evenly_or_by_one_number_stays() {
        for lhs in ["d0, d2 / 64, d1, d2 % 32", "d0, d2 / 100, d1, d2 % 100", "d0, d1, d1, d1"] {
            let m = member(lhs, "d0, d1");
            assert_eq!(with_divided_axes(&m), m, "{lhs}");
        }
    }
}
