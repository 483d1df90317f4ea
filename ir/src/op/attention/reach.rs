//! Which keys a row of attention sees by its place: causality and sliding windows.

use super::shape::AttentionShape;
use crate::attrs::{Attr, AttrKind, AttrSpec, Attrs, Ints, maybe};
use crate::infer::InferError;
use std::fmt;

/// What both ops have of it.
pub(super) const CAUSAL: AttrSpec = maybe("causal", AttrKind::Bool, crate::attrs::Attr0::False);
pub(super) const WINDOW: AttrSpec = maybe("window", AttrKind::Ints, crate::attrs::Attr0::NoInts);

/// How far from its own place a row of attention sees keys. The place of row i is i + stream - rows, so that the last row has that of
/// the last key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AttentionReach {
    /// Keys before its own place that a row sees; `None` where it sees all of them.
    pub before: Option<u64>,
    /// Keys after its own place that a row sees; `None` where it sees all of them.
    pub after: Option<u64>,
}

impl AttentionReach {
    /// Of keys up to a row's own place alone.
    pub const CAUSAL: AttentionReach = AttentionReach { before: None, after: Some(0) };

    /// Of the attributes `causal` and `window` of an op.
    pub fn of(attrs: &Attrs) -> AttentionReach {
        let limit = |k: usize| attrs.ints("window").get(k).and_then(|&n| u64::try_from(n).ok());
        match attrs.flag("causal") {
            true => AttentionReach { before: limit(0), after: Some(0) },
            false => AttentionReach { before: limit(0), after: limit(1) },
        }
    }

    /// The attributes with this reach: `causal` where no key after a row's place is seen, and `window` where there are other limits.
    #[must_use]
    pub fn with(self, attrs: Attrs) -> Attrs {
        let attrs = attrs.with("causal", Attr::Bool(self.after == Some(0)));
        match self.is_causal() || self == AttentionReach::default() {
            true => attrs,
            false => attrs.with("window", Attr::Ints(Ints::from_slice(&self.window()))),
        }
    }

    /// Keys before and after a row's place; -1 where all are seen.
    pub fn window(self) -> [i64; 2] {
        [self.before, self.after].map(|n| n.map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX)))
    }

    /// Of a window as attributes and texts have it.
    ///
    /// # Errors
    /// Where it isn't two numbers of keys, or -1.
    pub fn of_window(window: &[i64]) -> Result<AttentionReach, String> {
        match *window {
            [before, after] if before >= -1 && after >= -1 => {
                let limit = |n: i64| u64::try_from(n).ok();
                Ok(AttentionReach { before: limit(before), after: limit(after) })
            }
            _ => Err(format!(
                "a window is two numbers of keys, before a row's place and after it, or -1 for all; found {window:?}"
            )),
        }
    }

    /// Whether keys after a row's place are hidden, and no others.
    pub fn is_causal(self) -> bool {
        self == AttentionReach::CAUSAL
    }

    /// Whether it may hide keys.
    pub fn is_limited(self) -> bool {
        self != AttentionReach::default()
    }

    /// The same without limits that hide no key of an attention of these extents.
    #[must_use]
    pub fn within(self, shape: AttentionShape) -> AttentionReach {
        if shape.rows == 0 || shape.stream == 0 {
            return AttentionReach::default();
        }
        let hides = |n: &u64, lines: u64| n.saturating_add(1) < lines;
        AttentionReach {
            before: self.before.filter(|n| hides(n, shape.stream)),
            after: self.after.filter(|n| hides(n, shape.rows)),
        }
    }

    /// How many scores of a head are seen.
    pub fn scores(self, shape: AttentionShape) -> u64 {
        let AttentionReach { before, after } = self.within(shape);
        let AttentionShape { rows, stream, .. } = shape;
        let [n, m] = [rows, stream].map(i128::from);
        // Of the row at place p, keys p + after + 1 .. stream and 0 .. p - before are hidden: as many as the terms of two sums.
        let hidden_after = after.map_or(0, |k| ramp(-i128::from(k), n - 1 - i128::from(k), m));
        let hidden_before =
            before.map_or(0, |k| ramp(m - n - i128::from(k), m - 1 - i128::from(k), m));
        let seen = n.saturating_mul(m) - hidden_after - hidden_before;
        u64::try_from(seen.max(0)).unwrap_or(u64::MAX)
    }
}

/// The sum of the numbers from `first` to `last`, each no less than 0 and no more than `most`.
fn ramp(first: i128, last: i128, most: i128) -> i128 {
    let below = |n: i128| n.max(0).saturating_mul(n.max(0) + 1) / 2;
    let sum = |most: i128| below(last.min(most)) - below((first - 1).min(most));
    let over = (last - most).max(0) - (first - 1 - most).max(0);
    sum(most) + over.saturating_mul(most)
}

/// Checks the attribute `window`.
pub(super) fn check(attrs: &Attrs) -> Result<(), InferError> {
    match attrs.ints("window") {
        [] => Ok(()),
        window => match AttentionReach::of_window(window) {
            Ok(_) => Ok(()),
            Err(m) => Err(InferError::attr(format!("`window`: {m}"))),
        },
    }
}

/// As texts of kernels have it after the operands; nothing where all keys are seen.
impl fmt::Display for AttentionReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            AttentionReach { before: None, after: None } => Ok(()),
            reach if reach.is_causal() => f.write_str(" causal"),
            reach => {
                let [before, after] = reach.window();
                write!(f, " window [{before}, {after}]")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(rows: u64, stream: u64) -> AttentionShape {
        AttentionShape { groups: 1, shared: 1, rows, stream, depth: 1, width: 1 }
    }

    /// The number of seen scores is that of the pairs that the definition shows.
    #[test]
    fn seen_scores_are_counted() {
        for (rows, stream) in [(0, 3), (3, 0), (1, 1), (5, 5), (3, 9), (9, 3), (1, 7), (7, 1)] {
            let limits = (-1..12).map(|n: i64| u64::try_from(n).ok());
            for before in limits.clone() {
                for after in limits.clone() {
                    let sees = |i: u64, j: u64| {
                        let apart = (i + stream) as i64 - rows as i64 - j as i64;
                        before.is_none_or(|n| apart <= n as i64)
                            && after.is_none_or(|n| -apart <= n as i64)
                    };
                    let all = (0..rows).flat_map(|i| (0..stream).map(move |j| (i, j)));
                    let due = all.filter(|&(i, j)| sees(i, j)).count() as u64;
                    let reach = AttentionReach { before, after };
                    assert_eq!(reach.scores(shape(rows, stream)), due, "{rows} {stream} {reach:?}");
                    let limited = reach.within(shape(rows, stream)).is_limited();
                    assert_eq!(limited, due < rows * stream, "{rows} {stream} {reach:?}");
                }
            }
        }
    }

    #[test]
    fn attributes_and_texts_are_one_reach() {
        for window in [[-1, -1], [-1, 0], [4, 0], [0, 0], [3, 5], [2, -1], [-1, 7]] {
            let reach = AttentionReach::of_window(&window).expect("is one");
            assert_eq!(AttentionReach::of(&reach.with(Attrs::none())), reach);
            assert_eq!(reach.window(), window);
        }
        assert!(AttentionReach::of_window(&[-2, 0]).is_err());
        assert!(AttentionReach::of_window(&[1]).is_err());
    }
}
