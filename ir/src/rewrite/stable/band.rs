//! Masks that show a band of scores: causality and sliding windows, from comparisons of the places of rows and keys.

use super::shape::{REACH, made_by, number};
use crate::entity::Value;
use crate::function::Function;
use crate::op::{AttentionReach, Op};

/// A whole number made of the places of a row and a key: `row * i + key * j + plus`.
#[derive(Clone, Copy)]
struct PlaceSum {
    row: i64,
    key: i64,
    plus: i64,
}

impl PlaceSum {
    /// The sum with another one, `times` as large.
    fn and(self, other: PlaceSum, times: i64) -> Option<PlaceSum> {
        let sum = |x: i64, y: i64| x + y * times;
        let (row, key) = (sum(self.row, other.row), sum(self.key, other.key));
        Some(PlaceSum { row, key, plus: sum(self.plus, other.plus) }).filter(PlaceSum::is_near)
    }

    /// Whether factors and numbers are so small that no sum of a few of them wraps.
    fn is_near(&self) -> bool {
        self.row.abs() <= 1 && self.key.abs() <= 1 && self.plus.abs() < FAR
    }

    fn as_number(self) -> Option<i64> {
        (self.row == 0 && self.key == 0).then_some(self.plus)
    }

    /// The number that is added to the row less the key, or taken from it where the sum is of the key less the row.
    fn rows_less_keys(self) -> Option<i64> {
        match (self.row, self.key) {
            (1, -1) => Some(self.plus),
            (-1, 1) => Some(-self.plus),
            _ => None,
        }
    }
}

/// Rows less keys: the least and the greatest difference that is shown; none where there is no limit.
#[derive(Clone, Copy, Default)]
struct Band {
    least: Option<i64>,
    most: Option<i64>,
}

impl Band {
    /// What both show.
    fn and(self, other: Band) -> Band {
        let both = |x: Option<i64>, y: Option<i64>| x.into_iter().chain(y);
        Band { least: both(self.least, other.least).max(), most: both(self.most, other.most).min() }
    }
}

/// The reach of rows where a mask shows keys by their places alone, or hides the others, where `hides`. Scores have these extents, whose
/// last axes are rows and keys.
pub(super) fn seen_band(
    f: &Function,
    mask: Value,
    hides: bool,
    dims: &[u64],
) -> Option<AttentionReach> {
    let rank = dims.len();
    let small = |n: u64| i64::try_from(n).ok().filter(|&n| n < FAR);
    let ahead = small(dims[rank - 1])? - small(dims[rank - 2])?;
    let axes: Vec<usize> = (0..rank).collect();
    let Band { least, most } = BandSearch { f, dims, left: VALUES }.band((mask, &axes), hides)?;
    // Row i has the place i + ahead. A limit leaves it its own place, so no band is empty.
    let limit = |n: Option<i64>| n.map_or(Some(None), |n| u64::try_from(n).ok().map(Some));
    let before = limit(most.map(|n| n.saturating_add(ahead)))?;
    let after = limit(least.map(|n| n.saturating_add(ahead).saturating_neg()))?;
    let reach = AttentionReach { before, after };
    reach.is_limited().then_some(reach)
}

/// Places, and numbers that are added to them, are below it: so sums of a few of them fit 32 bits.
const FAR: i64 = 1 << 28;
/// Values of a mask that are looked at.
const VALUES: usize = 64;

/// What looks for a band, of masks over scores of these extents.
struct BandSearch<'f> {
    f: &'f Function,
    dims: &'f [u64],
    /// Values that may still be looked at, so that a deep mask takes no time.
    left: usize,
}

impl BandSearch<'_> {
    /// Counts a value, which is looked at below what repeats it.
    fn below(&mut self, (v, axes): (Value, &[usize])) -> Option<(Value, Vec<usize>)> {
        self.left = self.left.checked_sub(1)?;
        Some(below(self.f, v, axes.to_vec()))
    }

    /// The band where a mask holds, or does not, where `turned`; `None` where that is no band. The mask's axes are these of the scores.
    fn band(&mut self, mask: (Value, &[usize]), turned: bool) -> Option<Band> {
        let f = self.f;
        let (v, axes) = self.below(mask)?;
        // What both show, or what neither hides.
        let joins = if turned { Op::Or } else { Op::And };
        if let Some(i) = made_by(f, v, joins) {
            let &[x, y] = f.args(i) else { return None };
            return Some(self.band((x, &axes), turned)?.and(self.band((y, &axes), turned)?));
        }
        if let Some(i) = made_by(f, v, Op::Not) {
            return self.band((f.args(i)[0], &axes), !turned);
        }
        // A choice between truth values: the test, or its opposite.
        if let Some(i) = made_by(f, v, Op::SelectN) {
            let &[test, no, yes] = f.args(i) else { return None };
            let [no, yes] = [number(f, no)?, number(f, yes)?].map(|l| l.to_i64() != 0);
            return (no != yes).then(|| self.band((test, &axes), turned == yes)).flatten();
        }
        let compared = |op: Op| made_by(f, v, op).map(|i| (op, f.args(i)));
        let (op, args) = [Op::Lt, Op::Le, Op::Gt, Op::Ge].into_iter().find_map(compared)?;
        let &[x, y] = args else { return None };
        // Turned, `x < y` is `y <= x`.
        let (low, high) = if matches!(op, Op::Gt | Op::Ge) == turned { (x, y) } else { (y, x) };
        let strictly = i64::from(matches!(op, Op::Lt | Op::Gt) != turned);
        self.ordered((low, high), strictly, &axes)
    }

    /// The band where a value is below another, or not above it, where `strictly` is 0.
    fn ordered(
        &mut self,
        (low, high): (Value, Value),
        strictly: i64,
        axes: &[usize],
    ) -> Option<Band> {
        let high = self.places((high, axes))?;
        let (inner, inner_axes) = self.below((low, axes))?;
        if let Some(i) = made_by(self.f, inner, Op::Abs) {
            let apart = self.places((self.f.args(i)[0], &inner_axes))?.rows_less_keys()?;
            let most = high.as_number()? - strictly;
            return Some(Band { least: Some(-most - apart), most: Some(most - apart) });
        }
        let apart = high.and(self.places((low, axes))?, -1)?;
        match apart.rows_less_keys() {
            Some(plus) if apart.row == 1 => Some(Band { least: Some(strictly - plus), most: None }),
            Some(plus) => Some(Band { least: None, most: Some(-plus - strictly) }),
            None => None,
        }
    }

    /// A value as a sum of places, whose axes are these of the scores.
    fn places(&mut self, v: (Value, &[usize])) -> Option<PlaceSum> {
        let f = self.f;
        let (v, axes) = self.below(v)?;
        let dtype = f.ty(v).dtype;
        if !dtype.is_int() || dtype.bytes() < 4 {
            return None;
        }
        if let Some(n) = number(f, v) {
            return Some(PlaceSum { row: 0, key: 0, plus: n.to_i64() }).filter(PlaceSum::is_near);
        }
        if let Some(i) = made_by(f, v, Op::Iota) {
            let own = usize::try_from(f.attrs(i).int("axis")).ok()?;
            let axis = *axes.get(own)?;
            // Along an axis that a broadcast repeats, all places are 0.
            let is_whole = f.ty(v).dims()?.get(own) == self.dims.get(axis);
            let [row, key] = [2, 1].map(|back| i64::from(axis + back == self.dims.len()));
            return (is_whole && row + key == 1).then_some(PlaceSum { row, key, plus: 0 });
        }
        for (op, times) in [(Op::Add, 1), (Op::Sub, -1)] {
            if let Some(i) = made_by(f, v, op)
                && (times == 1 || dtype.is_signed_int())
            {
                let &[x, y] = f.args(i) else { return None };
                return self.places((x, &axes))?.and(self.places((y, &axes))?, times);
            }
        }
        None
    }
}

/// What a value repeats, and for each of its axes the outer axis.
pub(super) fn below(f: &Function, v: Value, axes: Vec<usize>) -> (Value, Vec<usize>) {
    let (mut v, mut axes) = (v, axes);
    for _ in 0..REACH {
        let Some(i) = made_by(f, v, Op::BroadcastInDim) else { break };
        let dims = f.attrs(i).ints("dims").iter();
        axes = dims.filter_map(|&d| axes.get(d as usize).copied()).collect();
        v = f.args(i)[0];
    }
    (v, axes)
}
