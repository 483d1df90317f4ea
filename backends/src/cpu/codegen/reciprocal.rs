//! Division by constants as a multiplication: the quotient is in the high half of a product.
//!
//! Source: T. Granlund and P. L. Montgomery, "Division by invariant integers using multiplication", 1994, theorem 4.2 for
//! numbers of 63 bits.

/// What a number is multiplied by in place of a division: `n / by` is `(n * multiplier) >> (64 + shift)`, for every `n` from
/// 0 to below 2^63.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reciprocal {
    pub(crate) multiplier: u64,
    pub(crate) shift: u8,
}

impl Reciprocal {
    /// That of a number above 1 that is no power of two; `None` for others, by which one shifts.
    pub(crate) fn of(by: i64) -> Option<Reciprocal> {
        let by = u128::try_from(by).ok().filter(|by| *by > 1 && !by.is_power_of_two())?;
        let bits = 128 - by.leading_zeros();
        let multiplier = u64::try_from((1u128 << (63 + bits)) / by + 1).ok()?;
        let shift = u8::try_from(bits - 1).ok()?;
        Some(Reciprocal { multiplier, shift })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotient(n: i64, r: Reciprocal) -> i64 {
        let product = u128::from(n.unsigned_abs()) * u128::from(r.multiplier);
        i64::try_from(product >> (64 + u32::from(r.shift))).expect("fits")
    }

    #[test]
    fn quotients_are_exact() {
        let divisors = (3..2000).chain((2..63).flat_map(|k| [(1i64 << k) - 1, (1i64 << k) + 1]));
        for by in divisors.chain([i64::MAX - 1, i64::MAX]) {
            let Some(r) = Reciprocal::of(by) else {
                assert_eq!(by.count_ones(), 1, "{by}");
                continue;
            };
            let last = i64::MAX / by * by;
            let near = [0, 1, by - 1, by, last - 1, last, i64::MAX - 1, i64::MAX];
            let multiples = (1..64).filter_map(|k| by.checked_mul(i64::MAX / by / 64 * k));
            for n in near.into_iter().chain(multiples.flat_map(|m| [m - 1, m, m + 1])) {
                let n = n.max(0);
                assert_eq!(quotient(n, r), n / by, "{n} / {by}");
            }
        }
    }
}
