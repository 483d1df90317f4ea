//! Short innermost axes: lines go over several axes where one is shorter than a vector.
//!
//! A line of four elements fills a quarter of a vector of sixteen, and what is computed once a line is computed for four
//! elements. So innermost axes are merged although accesses do not step over them as over one: those are read as a
//! [grid](super::loop_program::GridSteps). Of the merged axes all but the outermost divide a vector, so that every group
//! begins at coordinate 0 of them, and has the same pattern of elements from its first one on.

use super::affine_form::{AffineForm, WalkedAxes, mentions};
use super::loop_ir::{Access, GuardedSource, LoadSource, LoopNest, ParamRead};
use super::loop_program::GridSteps;
use smallvec::SmallVec;

/// Guards of grids are compared in 32 bits: they are less than this, or more than its negative.
const MOST: i64 = 1 << 30;

/// Of each form, whether groups may read it as a grid: the elements of 32 bits of a parameter that has no other source
/// but a literal, and the guards of that.
pub(crate) fn may_be_grids(
    reads: &[ParamRead],
    forms: &[AffineForm],
    extents: &[i64],
) -> Vec<bool> {
    let mut may = vec![false; forms.len()];
    for read in reads {
        if let Some((a, guards)) = grid_source(read) {
            let plain = |f: usize| forms[f].rest.is_empty();
            let bounded = guards.iter().all(|(f, range)| {
                let ends = [range.start, range.end].iter().all(|end| end.abs() < MOST);
                plain(*f) && ends && forms[*f].within(extents, MOST)
            });
            if plain(a.form) && bounded {
                may[a.form] = true;
                guards.iter().for_each(|(f, _)| may[*f] = true);
            }
        }
    }
    may
}

/// The array that a parameter is read from, and the guards outside of which it is a literal.
fn grid_source(read: &ParamRead) -> Option<(&Access, &super::loop_ir::FormRanges)> {
    let (first, literal) = match read.sources() {
        [first] if first.guards.is_empty() => (first, None),
        [first, last] if last.guards.is_empty() => (first, Some(last)),
        _ => return None,
    };
    if literal.is_some_and(|l| matches!(l.from, LoadSource::Array(_))) {
        return None;
    }
    let a = first.from.array()?;
    (a.packed.is_none() && a.dtype.bytes() == 4).then_some((a, &first.guards))
}

impl AffineForm {
    /// Whether it is within a bound at all coordinates.
    fn within(&self, extents: &[i64], most: i64) -> bool {
        let mut sum = self.constant.saturating_abs();
        for (&n, step) in extents.iter().zip(&self.steps) {
            sum = sum.saturating_add(step.saturating_abs().saturating_mul(n));
        }
        sum < most
    }

    /// Whether it steps over the axes from one on as over one.
    fn is_one(&self, extents: &[i64], from: usize) -> bool {
        (from + 1..extents.len())
            .all(|a| self.steps[a].wrapping_mul(extents[a]) == self.steps[a - 1])
    }
}

impl WalkedAxes {
    /// Merges innermost axes while what is within the outermost of them divides vectors of this many lanes, if some form
    /// does not step over them as over one.
    pub(crate) fn merge_short(&mut self, forms: &mut [&mut AffineForm], may: &[bool], lanes: i64) {
        let last = self.extents.len() - 1;
        // What is read at places that are data is read the same all along a line, or not by vectors.
        let is_data =
            |f: &&mut AffineForm| f.rest.iter().any(|(e, _)| mentions(e, &|_| false, &|_| true));
        let short = (1..lanes).contains(&self.extents[last]);
        if !short || self.extents.contains(&0) || forms.iter().any(is_data) {
            return;
        }
        let (mut first, mut within) = (last, 1);
        while let Some(outer) = first.checked_sub(1) {
            within *= self.extents[first];
            let pinned = self.axes.iter().flatten().any(|&a| a >= outer);
            let fits = |(f, may): (&&mut AffineForm, &bool)| *may || f.is_one(&self.extents, outer);
            if pinned || within > lanes || lanes % within != 0 || !forms.iter().zip(may).all(fits) {
                break;
            }
            first = outer;
        }
        if first == last {
            return;
        }
        let merged: SmallVec<[i64; 8]> = self.extents[first..].into();
        for f in forms.iter_mut() {
            let inner = f.steps[last];
            let grid = (!f.is_one(&self.extents, first)).then(|| f.steps[first..].into());
            f.steps.truncate(first + 1);
            f.steps[first] = if grid.is_some() { 0 } else { inner };
            f.grid = grid;
        }
        self.extents.truncate(first);
        self.extents.push(merged.iter().fold(1i64, |n, &e| n.saturating_mul(e)));
        self.short = merged[1..].into();
    }
}

impl LoopNest {
    /// How many coordinates are within the outermost of the axes that lines merge; `None` where no access is a grid.
    pub(crate) fn grid(&self) -> Option<i64> {
        let any = self.forms.iter().any(|f| f.grid.is_some());
        any.then(|| self.walk.short.iter().product())
    }

    /// Whether groups read a parameter as a grid.
    pub(crate) fn is_grid(&self, read: &ParamRead) -> bool {
        let Some((a, guards)) = grid_source(read) else { return false };
        let mut forms = guards.iter().map(|(f, _)| *f).chain([a.form]);
        forms.any(|f| self.forms[f].grid.is_some())
    }

    /// The array and the guards of a parameter that is one, and the literal that it is elsewhere.
    pub(crate) fn grid_parts<'a>(
        &self,
        sources: &'a [GuardedSource],
    ) -> Option<(&'a Access, &'a super::loop_ir::FormRanges, Option<adfuse_ir::Literal>)> {
        let first = sources.first()?;
        let rest = match sources.get(1).map(|s| &s.from) {
            Some(LoadSource::Literal(l)) => Some(*l),
            _ => None,
        };
        Some((first.from.array()?, &first.guards, rest))
    }

    /// The steps of a form along the axes that lines merge.
    pub(crate) fn grid_steps(&self, form: usize) -> GridSteps {
        let (short, step) = (&self.walk.short, self.step(form));
        let one = || {
            let mut steps: SmallVec<[i64; 4]> = SmallVec::from_elem(step, short.len() + 1);
            for k in (0..short.len()).rev() {
                steps[k] = steps[k + 1].wrapping_mul(short[k]);
            }
            steps
        };
        let steps = self.forms[form].grid.clone().unwrap_or_else(one);
        let inner = short.iter().copied().zip(steps[1..].iter().copied()).collect();
        GridSteps { outer: steps[0], inner }
    }
}
