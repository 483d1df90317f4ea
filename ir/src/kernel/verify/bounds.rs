//! Interval analysis of index expressions, narrowed by guards.

use super::Wrong;
use crate::diag::Kind;
use crate::dtype::DType;
use crate::index::{Guard, IndexExpr};
use hashbrown::HashMap;

/// The values an expression may have, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Interval {
    pub(super) lo: i128,
    pub(super) hi: i128,
}

impl Interval {
    fn meet(self, other: Interval) -> Interval {
        Interval { lo: self.lo.max(other.lo), hi: self.hi.min(other.hi) }
    }

    fn is_empty(self) -> bool {
        self.lo > self.hi
    }
}

/// Index arithmetic beyond this is refused, so that engines may use 64 bits.
const MOST: i128 = 1 << 62;

/// What is known where an expression is evaluated.
#[derive(Clone)]
pub(super) struct BoundsScope<'a> {
    extents: &'a [i64],
    /// Types of the parameters that have been read.
    params: &'a [DType],
    facts: HashMap<&'a IndexExpr, Interval>,
    unreachable: bool,
}

impl<'a> BoundsScope<'a> {
    /// Coordinates below these extents, and parameters of these types to read data from.
    pub(super) fn new(extents: &'a [i64], params: &'a [DType]) -> BoundsScope<'a> {
        BoundsScope { extents, params, facts: HashMap::new(), unreachable: extents.contains(&0) }
    }

    /// From here on the guards hold.
    pub(super) fn assume(&mut self, guards: &'a [Guard]) -> Result<(), Wrong> {
        // Every guard may be evaluated before the others are known to hold.
        let found: Vec<Interval> =
            guards.iter().map(|g| self.interval(&g.expr)).collect::<Result<_, _>>()?;
        for (g, found) in guards.iter().zip(found) {
            let range = Interval { lo: g.range.start.into(), hi: i128::from(g.range.end) - 1 };
            self.learn(&g.expr, found.meet(range));
        }
        Ok(())
    }

    /// From here on the guards do not all hold. That says something only of a single one, where its
    /// range takes one end off.
    pub(super) fn assume_not(&mut self, guards: &'a [Guard]) -> Result<(), Wrong> {
        let [g] = guards else { return Ok(()) };
        let mut rest = self.interval(&g.expr)?;
        let (start, end) = (i128::from(g.range.start), i128::from(g.range.end));
        if start <= rest.lo && rest.lo < end {
            rest.lo = end;
        } else if start <= rest.hi && rest.hi < end {
            rest.hi = start - 1;
        }
        self.learn(&g.expr, rest);
        Ok(())
    }

    fn learn(&mut self, e: &'a IndexExpr, interval: Interval) {
        let known = self.facts.get(e).map_or(interval, |fact| fact.meet(interval));
        self.unreachable |= known.is_empty();
        self.facts.insert(e, known);
    }

    /// The values of an expression.
    pub(super) fn interval(&self, e: &IndexExpr) -> Result<Interval, Wrong> {
        let wrong = |kind, message: String| Err(Wrong::new(kind, message));
        let divisor = |c: i64| match c {
            1.. => Ok(i128::from(c)),
            _ => Err(Wrong::new(Kind::Bounds, format!("`{e}` divides by {c}, not above 0"))),
        };
        let computed = match e {
            IndexExpr::Axis(a) => match self.extents.get(*a as usize) {
                Some(&n) => Interval { lo: 0, hi: (i128::from(n) - 1).max(0) },
                None => {
                    let m = format!("there is no axis d{a}, only {}", self.extents.len());
                    return wrong(Kind::UnknownName, m);
                }
            },
            IndexExpr::Const(c) => Interval { lo: (*c).into(), hi: (*c).into() },
            IndexExpr::Add(a, b) => {
                let (a, b) = (self.interval(a)?, self.interval(b)?);
                Interval { lo: a.lo + b.lo, hi: a.hi + b.hi }
            }
            IndexExpr::Mul(a, c) => {
                let (a, c) = (self.interval(a)?, i128::from(*c));
                Interval { lo: (a.lo * c).min(a.hi * c), hi: (a.lo * c).max(a.hi * c) }
            }
            IndexExpr::FloorDiv(a, c) => {
                let (a, c) = (self.interval(a)?, divisor(*c)?);
                Interval { lo: a.lo.div_euclid(c), hi: a.hi.div_euclid(c) }
            }
            IndexExpr::Mod(a, c) => {
                let (a, c) = (self.interval(a)?, divisor(*c)?);
                match a.lo.div_euclid(c) == a.hi.div_euclid(c) {
                    true => Interval { lo: a.lo.rem_euclid(c), hi: a.hi.rem_euclid(c) },
                    false => Interval { lo: 0, hi: c - 1 },
                }
            }
            IndexExpr::Data { param, lo, hi } => {
                match self.params.get(*param as usize) {
                    Some(d) if d.is_int() => {}
                    Some(d) => {
                        return wrong(Kind::DType, format!("p{param} is {d}, not an integer"));
                    }
                    None => {
                        return wrong(Kind::Dominance, format!("p{param} is not read before"));
                    }
                }
                if lo > hi {
                    return wrong(Kind::Bounds, format!("`{e}` has no values"));
                }
                Interval { lo: (*lo).into(), hi: (*hi).into() }
            }
        };
        if computed.lo < -MOST || computed.hi > MOST {
            return wrong(Kind::Limit, format!("`{e}` may exceed 62 bits"));
        }
        let fact = if self.facts.is_empty() { None } else { self.facts.get(e) };
        Ok(fact.map_or(computed, |fact| {
            let met = computed.meet(*fact);
            // Nothing comes where two facts contradict each other: any answer is right there.
            if met.is_empty() { *fact } else { met }
        }))
    }

    /// Checks that an index stays inside of these extents.
    pub(super) fn inside(&self, index: &[IndexExpr], dims: &[i64]) -> Result<(), Wrong> {
        if index.len() != dims.len() {
            let m = format!("{} index expressions for {} axes", index.len(), dims.len());
            return Err(Wrong::new(Kind::Arity, m));
        }
        for (d, (e, &n)) in index.iter().zip(dims).enumerate() {
            let found = self.interval(e)?;
            if !self.unreachable && (found.lo < 0 || found.hi >= n.into()) {
                let m = format!(
                    "axis {d} has extent {n}, but `{e}` may be {} to {}",
                    found.lo, found.hi
                );
                return Err(Wrong::new(Kind::Bounds, m));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(d: usize) -> IndexExpr {
        IndexExpr::axis(d)
    }

    fn of(scope: &BoundsScope<'_>, e: &IndexExpr) -> (i128, i128) {
        let i = scope.interval(e).expect("well formed");
        (i.lo, i.hi)
    }

    #[test]
    fn expressions_have_tight_intervals() {
        let scope = BoundsScope::new(&[4, 6], &[]);
        assert_eq!(of(&scope, &axis(0).times(-2).plus(6)), (0, 6));
        assert_eq!(of(&scope, &axis(0).times(6).sum(axis(1)).floor_div(8)), (0, 2));
        assert_eq!(of(&scope, &axis(1).plus(-3).floor_div(2)), (-2, 1));
        assert_eq!(of(&scope, &axis(1).modulo(4)), (0, 3));
        assert_eq!(of(&scope, &axis(0).plus(8).modulo(4)), (0, 3));
        assert_eq!(of(&scope, &axis(0).plus(8).modulo(16)), (8, 11));
    }

    #[test]
    fn guards_narrow_what_they_speak_of() {
        let shifted = axis(0).plus(-1);
        let guards = [Guard { expr: shifted.clone(), range: 0..2 }];
        let mut inside = BoundsScope::new(&[4], &[]);
        inside.assume(&guards).expect("well formed");
        assert_eq!(of(&inside, &shifted.clone().times(3)), (0, 3));
        assert_eq!(of(&inside, &axis(0)), (0, 3));
        let guards = [Guard { expr: axis(0), range: 0..3 }];
        let all = [Guard { expr: axis(0), range: 0..4 }];
        let mut after = BoundsScope::new(&[4], &[]);
        after.assume_not(&guards).expect("well formed");
        assert_eq!(of(&after, &axis(0).plus(-3)), (0, 0));
        after.assume_not(&all).expect("well formed");
        assert!(after.unreachable);
    }

    #[test]
    fn huge_numbers_are_refused() {
        let scope = BoundsScope::new(&[1 << 40], &[]);
        let huge = axis(0).times(1 << 40);
        assert_eq!(scope.interval(&huge).map_err(|w| w.kind), Err(Kind::Limit));
    }
}
