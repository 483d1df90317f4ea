//! Simpler forms of index expressions: the same number at every coordinate, with fewer operations.
//!
//! An expression is brought to a sum of terms times constants. Quotients and remainders of sums lose
//! what divides, and `a*(x % m) + a*m*(x / m)` is `a*x` again, which is what a reshape and its inverse
//! come to.

use crate::index::IndexExpr;
use smallvec::SmallVec;

/// A sum of terms times constants, and a constant. Terms are axes, quotients, remainders and data.
#[derive(Clone, Default)]
struct AffineSum {
    terms: SmallVec<[(IndexExpr, i64); 4]>,
    constant: i64,
}

/// The expression in a simpler form, for coordinates below these extents. Where numbers would outgrow
/// 64 bits it is left as it is.
pub fn simplified(e: &IndexExpr, extents: &[i64]) -> IndexExpr {
    sum(e, extents).and_then(|s| s.written()).unwrap_or_else(|| e.clone())
}

fn sum(e: &IndexExpr, extents: &[i64]) -> Option<AffineSum> {
    let mut out = AffineSum::default();
    match e {
        IndexExpr::Axis(a) if extents.get(*a as usize) == Some(&1) => {}
        IndexExpr::Axis(_) | IndexExpr::Data { .. } => out.terms.push((e.clone(), 1)),
        IndexExpr::Const(c) => out.constant = *c,
        IndexExpr::Add(a, b) => {
            out = sum(a, extents)?;
            out.add(&sum(b, extents)?, 1)?;
            out.recombine(extents)?;
        }
        IndexExpr::Mul(a, c) => out.add(&sum(a, extents)?, *c)?,
        IndexExpr::FloorDiv(a, c) if *c > 0 => {
            let (whole, rest) = sum(a, extents)?.split(*c)?;
            out = whole;
            let (lo, hi) = rest.range(extents)?;
            match (lo.div_euclid(*c), hi.div_euclid(*c)) {
                (p, q) if p == q => out.constant = out.constant.checked_add(p)?,
                _ => {
                    // A quotient of a quotient is a quotient by the product.
                    let rest = match rest.terms.as_slice() {
                        [(IndexExpr::FloorDiv(x, d), 1)] if rest.constant == 0 => {
                            x.as_ref().clone().floor_div(d.checked_mul(*c)?)
                        }
                        _ => rest.written()?.floor_div(*c),
                    };
                    out.push(rest, 1)?;
                }
            }
        }
        IndexExpr::Mod(a, c) if *c > 0 => {
            let whole = sum(a, extents)?;
            let (_, rest) = whole.clone().split(*c)?;
            let (lo, hi) = rest.range(extents)?;
            match lo.div_euclid(*c) == hi.div_euclid(*c) {
                true => {
                    out = rest;
                    let under = lo.div_euclid(*c).checked_mul(*c)?;
                    out.constant = out.constant.checked_sub(under)?;
                }
                false => out.push(rest.written()?.modulo(*c), 1)?,
            }
        }
        // Divisors that are not above 0 are what the verifier refuses.
        IndexExpr::FloorDiv(..) | IndexExpr::Mod(..) => out.terms.push((e.clone(), 1)),
    }
    Some(out)
}

impl AffineSum {
    fn push(&mut self, term: IndexExpr, factor: i64) -> Option<()> {
        match self.terms.iter_mut().find(|(t, _)| *t == term) {
            Some((_, f)) => *f = f.checked_add(factor)?,
            None => self.terms.push((term, factor)),
        }
        self.terms.retain(|(_, f)| *f != 0);
        Some(())
    }

    fn add(&mut self, other: &AffineSum, factor: i64) -> Option<()> {
        for (t, f) in &other.terms {
            self.push(t.clone(), f.checked_mul(factor)?)?;
        }
        self.constant = self.constant.checked_add(other.constant.checked_mul(factor)?)?;
        Some(())
    }

    /// What `c` divides, divided, and the rest.
    fn split(self, c: i64) -> Option<(AffineSum, AffineSum)> {
        let (mut whole, mut rest) = (AffineSum::default(), AffineSum::default());
        for (t, f) in self.terms {
            match f % c {
                0 => whole.terms.push((t, f / c)),
                _ => rest.terms.push((t, f)),
            }
        }
        whole.constant = self.constant.div_euclid(c);
        rest.constant = self.constant.rem_euclid(c);
        Some((whole, rest))
    }

    /// Joins remainders with the quotients of the same.
    fn recombine(&mut self, extents: &[i64]) -> Option<()> {
        'again: loop {
            for k in 0..self.terms.len() {
                let (IndexExpr::Mod(x, m), a) = &self.terms[k] else { continue };
                let wanted = a.checked_mul(*m)?;
                // y / (p * m) is (y / p) / m: it goes with x % m where y / p is x.
                let goes_with = |(t, f): &(IndexExpr, i64)| match t {
                    IndexExpr::FloorDiv(y, c) if *f == wanted && c % m == 0 => {
                        simplified(&y.as_ref().clone().floor_div(c / m), extents) == **x
                    }
                    _ => false,
                };
                if let Some(q) = self.terms.iter().position(goes_with) {
                    let (x, a) = (x.as_ref().clone(), *a);
                    self.terms.remove(q.max(k));
                    self.terms.remove(q.min(k));
                    self.add(&flat(&x)?, a)?;
                    continue 'again;
                }
            }
            return Some(());
        }
    }

    /// The least and the greatest value.
    fn range(&self, extents: &[i64]) -> Option<(i64, i64)> {
        let (mut lo, mut hi) = (self.constant, self.constant);
        for (t, f) in &self.terms {
            let (a, b) = match t {
                IndexExpr::Axis(a) => (0, (extents.get(*a as usize)? - 1).max(0)),
                IndexExpr::Data { lo, hi, .. } => (*lo, *hi),
                IndexExpr::Mod(_, c) => (0, c - 1),
                IndexExpr::FloorDiv(x, c) => {
                    let (a, b) = flat(x)?.range(extents)?;
                    (a.div_euclid(*c), b.div_euclid(*c))
                }
                _ => return None,
            };
            let (x, y) = (a.checked_mul(*f)?, b.checked_mul(*f)?);
            lo = lo.checked_add(x.min(y))?;
            hi = hi.checked_add(x.max(y))?;
        }
        Some((lo, hi))
    }

    /// The sum as an expression: axes in order, then the other terms, then the constant.
    fn written(mut self) -> Option<IndexExpr> {
        let rank = |e: &IndexExpr| match e {
            IndexExpr::Axis(a) => u32::from(*a),
            _ => u32::MAX,
        };
        self.terms.sort_by_key(|(t, _)| rank(t));
        let mut out = IndexExpr::Const(0);
        for (t, f) in self.terms {
            out = out.sum(t.times(f));
        }
        Some(out.plus(self.constant))
    }
}

/// The sum that an expression in simple form is, without looking into its terms.
fn flat(e: &IndexExpr) -> Option<AffineSum> {
    let mut out = AffineSum::default();
    match e {
        IndexExpr::Const(c) => out.constant = *c,
        IndexExpr::Add(a, b) => {
            out = flat(a)?;
            out.add(&flat(b)?, 1)?;
        }
        IndexExpr::Mul(a, c) => out.add(&flat(a)?, *c)?,
        e => out.terms.push((e.clone(), 1)),
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(d: usize) -> IndexExpr {
        IndexExpr::axis(d)
    }

    #[test]
    fn a_reshape_and_its_inverse_are_nothing() {
        // [3, 4] as [2, 3, 2] and back.
        let flat = axis(0).times(4).sum(axis(1));
        let (a, b, c) = (
            flat.clone().floor_div(6),
            flat.clone().floor_div(2).modulo(3),
            flat.clone().modulo(2),
        );
        let back = a.times(3).sum(b).times(2).sum(c);
        let shown = |e: IndexExpr| simplified(&e, &[3, 4]).to_string();
        assert_eq!(shown(back.clone().floor_div(4)), "d0");
        assert_eq!(shown(back.clone().modulo(4)), "d1");
        assert_eq!(shown(back), "d0 * 4 + d1");
    }

    /// Every form has the same values, negative ones and repeated terms among them.
    #[test]
    fn forms_keep_every_value() {
        let extents = [3, 4, 1, 5];
        let mut state = 7u64;
        let mut random = move |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        for _ in 0..3000 {
            let mut pool: Vec<IndexExpr> = (0..4).map(axis).collect();
            for _ in 0..6 {
                let x = pool[random(pool.len() as u64) as usize].clone();
                let y = pool[random(pool.len() as u64) as usize].clone();
                let c = random(6) as i64 + 1;
                pool.push(match random(5) {
                    0 => IndexExpr::Add(Box::new(x), Box::new(y)),
                    1 => IndexExpr::Mul(Box::new(x), c - 3),
                    2 => IndexExpr::FloorDiv(Box::new(x), c),
                    3 => IndexExpr::Mod(Box::new(x), c),
                    _ => x.plus(c - 4),
                });
            }
            let e = &pool[pool.len() - 1];
            let simple = simplified(e, &extents);
            for place in 0..60i64 {
                let at = [place / 20, place / 5 % 4, 0, place % 5];
                assert_eq!(
                    simple.eval(&at, &[]),
                    e.eval(&at, &[]),
                    "{e} is not {simple} at {at:?}"
                );
            }
        }
    }
}
