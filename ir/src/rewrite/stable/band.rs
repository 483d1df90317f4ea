//! Masks that show a band of scores: causality and sliding windows, from comparisons of the places of rows and keys.

use super::shape::{Spread, made_by, number};
use crate::dtype::DType;
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

/// The reach of rows where a mask over scores shows keys by their places alone, or hides the others, where `hides`. Scores have these
/// extents, whose last axes are rows and keys.
pub(super) fn seen_band(
    f: &Function,
    mask: &Spread,
    hides: bool,
    dims: &[u64],
) -> Option<AttentionReach> {
    let rank = dims.len();
    let small = |n: u64| i64::try_from(n).ok().filter(|&n| n < FAR);
    let ahead = small(dims[rank - 1])? - small(dims[rank - 2])?;
    let Band { least, most } = BandSearch { f, dims, left: VALUES }.band(mask, hides)?;
    // Row i has the place i + ahead. A limit leaves it its own place, so no band is empty.
    let limit = |n: Option<i64>| n.map_or(Some(None), |n| u64::try_from(n).ok().map(Some));
    let before = limit(most.map(|n| n.saturating_add(ahead)))?;
    let after = limit(least.map(|n| n.saturating_add(ahead).saturating_neg()))?;
    Some(AttentionReach { before, after })
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
    /// Counts a value that is looked at.
    fn count(&mut self) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        Some(())
    }

    /// The band where a mask holds, or does not, where `turned`; `None` where that is no band.
    fn band(&mut self, mask: &Spread, turned: bool) -> Option<Band> {
        self.count()?;
        let (f, v) = (self.f, mask.value);
        if let Some(shown) = number(f, v) {
            return ((shown.to_i64() != 0) != turned).then_some(Band::default());
        }
        // What both show, or what neither hides.
        let joins = if turned { Op::Or } else { Op::And };
        if let Some(i) = made_by(f, v, joins) {
            let &[x, y] = f.args(i) else { return None };
            let [x, y] = [mask.operand(f, x)?, mask.operand(f, y)?];
            return Some(self.band(&x, turned)?.and(self.band(&y, turned)?));
        }
        if let Some(i) = made_by(f, v, Op::Not) {
            return self.band(&mask.operand(f, f.args(i)[0])?, !turned);
        }
        if let Some((test, is_opposite)) = self.tested(mask) {
            return self.band(&test, turned != is_opposite);
        }
        let compared = |op: Op| made_by(f, v, op).map(|i| (op, f.args(i)));
        let (op, args) = [Op::Lt, Op::Le, Op::Gt, Op::Ge].into_iter().find_map(compared)?;
        let &[x, y] = args else { return None };
        // Turned, `x < y` is `y <= x`.
        let (low, high) = if matches!(op, Op::Gt | Op::Ge) == turned { (x, y) } else { (y, x) };
        let strictly = i64::from(matches!(op, Op::Lt | Op::Gt) != turned);
        self.ordered([mask.operand(f, low)?, mask.operand(f, high)?], strictly)
    }

    /// The test by which one of two truth values is chosen, or one of two numbers that is compared with a third; and whether the
    /// mask is its opposite.
    fn tested(&mut self, mask: &Spread) -> Option<(Spread, bool)> {
        let f = self.f;
        if let Some((test, [no, yes])) = chosen(f, mask) {
            return (no != yes).then_some((test, no != 0.0));
        }
        type Holds = fn(f64, f64) -> bool;
        const COMPARISONS: [(Op, Holds); 6] = [
            (Op::Eq, |x, y| x == y),
            (Op::Ne, |x, y| x != y),
            (Op::Lt, |x, y| x < y),
            (Op::Le, |x, y| x <= y),
            (Op::Gt, |x, y| x > y),
            (Op::Ge, |x, y| x >= y),
        ];
        let compared = |&(op, holds): &(Op, Holds)| Some((made_by(f, mask.value, op)?, holds));
        let (i, holds) = COMPARISONS.iter().find_map(compared)?;
        let &[x, y] = f.args(i) else { return None };
        let with = number(f, y)?.to_f64();
        let (test, values) = chosen(f, &mask.operand(f, x)?)?;
        let [no, yes] = values.map(|x| holds(x, with));
        (no != yes).then_some((test, no))
    }

    /// The band where a value is below another, or not above it, where `strictly` is 0.
    fn ordered(&mut self, [low, high]: [Spread; 2], strictly: i64) -> Option<Band> {
        let f = self.f;
        let high = self.places(&high)?;
        if let Some(i) = made_by(f, low.value, Op::Abs) {
            let apart = self.places(&low.operand(f, f.args(i)[0])?)?.rows_less_keys()?;
            let most = high.as_number()? - strictly;
            return Some(Band { least: Some(-most - apart), most: Some(most - apart) });
        }
        let apart = high.and(self.places(&low)?, -1)?;
        match apart.rows_less_keys() {
            Some(plus) if apart.row == 1 => Some(Band { least: Some(strictly - plus), most: None }),
            Some(plus) => Some(Band { least: None, most: Some(-plus - strictly) }),
            None => None,
        }
    }

    /// A value as a sum of places.
    fn places(&mut self, v: &Spread) -> Option<PlaceSum> {
        self.count()?;
        let f = self.f;
        let dtype = f.ty(v.value).dtype;
        if !dtype.is_int() || dtype.bytes() < 4 {
            return None;
        }
        if let Some(n) = number(f, v.value) {
            return Some(PlaceSum { row: 0, key: 0, plus: n.to_i64() }).filter(PlaceSum::is_near);
        }
        if let Some(i) = made_by(f, v.value, Op::Iota) {
            let own = usize::try_from(f.attrs(i).int("axis")).ok()?;
            // Along an axis that a broadcast repeats, all places are 0.
            let axis = (*v.along.get(own)?)?;
            let is_whole = f.ty(v.value).dims()?.get(own) == self.dims.get(axis);
            let [row, key] = [2, 1].map(|back| i64::from(axis + back == self.dims.len()));
            return (is_whole && row + key == 1).then_some(PlaceSum { row, key, plus: 0 });
        }
        for (op, times) in [(Op::Add, 1), (Op::Sub, -1)] {
            if let Some(i) = made_by(f, v.value, op)
                && (times == 1 || dtype.is_signed_int())
            {
                let &[x, y] = f.args(i) else { return None };
                let [x, y] = [v.operand(f, x)?, v.operand(f, y)?];
                return self.places(&x)?.and(self.places(&y)?, times);
            }
        }
        None
    }
}

/// The test that chooses between two numbers, and the numbers: where it does not hold, and where it does.
fn chosen(f: &Function, v: &Spread) -> Option<(Spread, [f64; 2])> {
    if let Some(i) = made_by(f, v.value, Op::SelectN) {
        let &[test, no, yes] = f.args(i) else { return None };
        let [no, yes] = [number(f, no)?, number(f, yes)?];
        return Some((v.operand(f, test)?, [no.to_f64(), yes.to_f64()]));
    }
    let test = f.args(made_by(f, v.value, Op::ConvertElementType)?)[0];
    (f.ty(test).dtype == DType::Bool).then_some(())?;
    Some((v.operand(f, test)?, [0.0, 1.0]))
}
