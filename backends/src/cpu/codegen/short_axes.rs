//! Short innermost axes: lines go over several axes where one is shorter than a vector.
//!
//! A line of four elements fills a quarter of a vector of sixteen, and what is computed once per line serves four elements
//! only. So innermost axes are merged even where an access does not step over them as over one axis: such an access is
//! read as a [grid](super::loop_program::GridSteps). Every group begins at coordinate 0 of all merged axes but the outermost, and has the
//! same pattern of elements. Where the extents of these axes do not divide a vector together, as those of rows of 3 or of images
//! of 2 x 3, groups are as far apart as whole patterns go, and the last lanes of a vector stay idle.

use super::affine_form::{AffineForm, WalkedAxes, mentions};
use super::loop_ir::{Access, FormRanges, GuardedSource, LoadSource, LoopNest, ParamRead};
use super::loop_program::GridSteps;
use adfuse_ir::Literal;
use adfuse_ir::kernel::volume;
use smallvec::SmallVec;

/// Guards of grids are compared in 32 bits: their absolute values stay below this.
const MOST: i64 = 1 << 28;

/// Longer rows have lines of their own where they do not divide a vector.
const SHORT: i64 = 8;

/// Of the lanes of a vector one in this many may be idle.
const FEW: i64 = 4;

/// Beside idle lanes, no more accesses than these are grids: each takes shuffles, and lines of their own take none. Two rows of 7 a vector do not make
/// up for the shuffles of an unrolled sum.
const FEW_GRIDS: usize = 8;

/// What a number of a guard is moved by so that the guard holds nowhere: values and ends below [`MOST`] stay below 2^31.
pub(crate) const NOWHERE: i64 = 6 * MOST;

/// A parameter that groups may read as a grid: elements of 32 bits where guards hold, and a literal elsewhere.
pub(crate) struct GridSource<'a> {
    pub(crate) array: &'a Access,
    pub(crate) guards: &'a FormRanges,
    /// `None` where there are no guards.
    pub(crate) rest: Option<Literal>,
}

impl<'a> GridSource<'a> {
    /// Of the sources of a parameter; `None` where it may be no grid.
    pub(crate) fn of(sources: &'a [GuardedSource]) -> Option<GridSource<'a>> {
        let (first, rest) = match sources {
            [first] if first.guards.is_empty() => (first, None),
            [first, GuardedSource { from: LoadSource::Literal(l), guards }]
                if guards.is_empty() =>
            {
                (first, Some(*l))
            }
            _ => return None,
        };
        let array = first.from.array()?;
        let plain = array.packed.is_none() && array.dtype.bytes() == 4;
        plain.then_some(GridSource { array, guards: &first.guards, rest })
    }
}

/// For each form, whether groups may read it as a grid: coordinates, and the places and the guards of [`GridSource`]s.
pub(crate) fn may_be_grids(
    reads: &[ParamRead],
    forms: &[AffineForm],
    extents: &[i64],
) -> Vec<bool> {
    let mut may = vec![false; forms.len()];
    for read in reads {
        if let ParamRead::Coord(f) = read {
            may[*f] = forms[*f].rest.is_empty();
        }
        if let Some(GridSource { array, guards, .. }) = GridSource::of(read.sources())
            && forms[array.form].rest.is_empty()
            && are_bounded(guards, forms, extents)
        {
            may[array.form] = true;
            guards.iter().for_each(|(f, _)| may[*f] = true);
        }
    }
    may
}

/// Whether groups may compare the numbers of guards in 32 bits.
pub(crate) fn are_bounded(guards: &FormRanges, forms: &[AffineForm], extents: &[i64]) -> bool {
    guards.iter().all(|(f, range)| {
        let ends = [range.start, range.end].iter().all(|end| end.saturating_abs() < MOST);
        forms[*f].rest.is_empty() && ends && forms[*f].within(extents, MOST)
    })
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
    /// Merges innermost axes where some form does not step over them as over one. Each further axis is merged while the
    /// elements within it divide vectors of this many lanes, or leave few lanes idle where these may be.
    pub(crate) fn merge_short(
        &mut self,
        forms: &mut [&mut AffineForm],
        may: &[bool],
        (lanes, idle): (i64, bool),
    ) {
        let last = self.extents.len() - 1;
        // Vectors read at places that are data only if the place is the same all along a line: lines stay as they are.
        let is_data =
            |f: &&mut AffineForm| f.rest.iter().any(|(e, _)| mentions(e, &|_| false, &|_| true));
        let short = (1..lanes).contains(&self.extents[last]);
        if !short || self.extents.contains(&0) || forms.iter().any(is_data) {
            return;
        }
        let (mut first, mut within) = (last, 1);
        while let Some(outer) = first.checked_sub(1) {
            within = self.extents[first].saturating_mul(within);
            let pinned = self.axes.iter().flatten().any(|&a| a >= outer);
            let fits = |(f, may): (&&mut AffineForm, &bool)| *may || f.is_one(&self.extents, outer);
            let few = idle && self.extents[last] <= SHORT && lanes % within <= lanes / FEW;
            let lies = within <= lanes && (lanes % within == 0 || few);
            if pinned || !lies || !forms.iter().zip(may).all(fits) {
                break;
            }
            first = outer;
        }
        let elements = self.extents[first + 1..].iter().product::<i64>();
        let grids = || forms.iter().filter(|f| !f.is_one(&self.extents, first)).count();
        if first == last || lanes % elements != 0 && grids() > FEW_GRIDS {
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
        self.extents.push(volume(&merged));
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
        let Some(GridSource { array, guards, .. }) = GridSource::of(read.sources()) else {
            return false;
        };
        let mut forms = guards.iter().map(|(f, _)| *f).chain([array.form]);
        forms.any(|f| self.forms[f].grid.is_some())
    }

    /// The steps of a form along a line: over the axes that it merges where the form does not step over them as over one.
    pub(crate) fn line_steps(&self, form: usize) -> GridSteps {
        match self.forms[form].grid {
            Some(_) => self.grid_steps(form),
            None => GridSteps::even(self.step(form)),
        }
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
