//! Operands that are not matrices in memory: windows of images, tensors whose axes do not merge, and padding. The
//! offset of an element, and whether it is inside, are affine in its coordinates, so tiles pack them in runs of
//! contiguous elements.
#![allow(unsafe_code)]

use smallvec::SmallVec;
use std::ops::Range;

/// The most guards of an operand: one for each axis of an image that is padded.
pub(in super::super) const GUARDS: usize = 4;

/// The most axes of a group of axes, once neighbours are merged.
pub(in super::super) const AXES: usize = 6;

/// Runs that are looked for at a time.
const RUNS: usize = 32;

/// Elements that are copied at once, also where fewer are wanted.
pub(super) const PIECE: usize = 8;

/// Lengths of pieces, the preferred one first: one is taken that divides all runs.
const PIECES: [usize; 3] = [16, 8, 4];

/// The element's place in the array, then what each guard speaks of.
pub(in super::super) type Forms = [i64; 1 + GUARDS];

/// An axis: its extent, and what a step along it adds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct WindowAxis {
    pub(in super::super) extent: i64,
    pub(in super::super) steps: Forms,
}

/// Where the elements of an operand are: at coordinates 0, and along its axes. An element one of whose guards
/// does not hold is 0.
#[derive(Clone, Debug)]
pub(in super::super) struct Window {
    pub(in super::super) first: Forms,
    pub(in super::super) batch: WindowAxes,
    pub(in super::super) free: WindowAxes,
    pub(in super::super) depth: WindowAxes,
    pub(in super::super) guards: SmallVec<[Range<i64>; GUARDS]>,
    /// Elements of the array.
    pub(in super::super) elements: i64,
}

/// Axes as one, row-major.
pub(in super::super) type WindowAxes = SmallVec<[WindowAxis; 4]>;

/// A window from a place on.
#[derive(Clone, Copy)]
pub(in super::super) struct PlacedWindow<'a> {
    pub(super) window: &'a Window,
    /// The array's first element.
    pub(super) at: *const u8,
    /// Forms at the batch.
    pub(super) first: Forms,
    pub(super) free: usize,
    pub(super) depth: usize,
}

/// Neighbours along the innermost axis: where they go in a line, how many there are, and what they add to the
/// line's forms.
#[derive(Clone, Copy, Default)]
struct ElementRun {
    to: usize,
    count: usize,
    forms: Forms,
}

/// Runs in pieces of one size: where each goes in a line, and where it is from.
struct EqualRuns {
    all: [(usize, i64); RUNS],
    count: usize,
    /// Elements of a piece.
    piece: usize,
    /// Whether pieces divide all runs; otherwise a run's last piece reaches beyond the run.
    exact: bool,
}

impl EqualRuns {
    /// `None` where there are many.
    fn of(runs: &[ElementRun]) -> Option<EqualRuns> {
        let divides = |piece: &&usize| runs.iter().all(|r| r.count.is_multiple_of(**piece));
        let exact = PIECES.iter().find(divides);
        let piece = exact.copied().unwrap_or(PIECE);
        let mut pieces = EqualRuns { all: [(0, 0); RUNS], count: 0, piece, exact: exact.is_some() };
        for run in runs {
            for k in (0..run.count).step_by(piece) {
                let piece = pieces.all.get_mut(pieces.count)?;
                *piece = (run.to + k, run.forms[0] + k as i64);
                pieces.count += 1;
            }
        }
        Some(pieces)
    }

    /// Copies all pieces of a line, from offsets of a place to others.
    ///
    /// # Safety
    /// The elements of all pieces must be there, and room for them, which nobody else uses.
    #[inline(always)]
    unsafe fn copy<T: Copy>(&self, from: *const T, to: *mut T) {
        // SAFETY: as the caller promises.
        unsafe {
            match self.piece {
                4 => self.copied::<T, 4>(from, to),
                16 => self.copied::<T, 16>(from, to),
                _ => self.copied::<T, PIECE>(from, to),
            }
        }
    }

    /// The same, of pieces of `N` elements.
    ///
    /// # Safety
    /// As of [`EqualRuns::copy`].
    #[inline(always)]
    unsafe fn copied<T: Copy, const N: usize>(&self, from: *const T, to: *mut T) {
        for &(at, offset) in &self.all[..self.count] {
            // SAFETY: as the caller promises.
            unsafe {
                let from = from.wrapping_offset(offset as isize).cast::<[T; N]>();
                to.add(at).cast::<[T; N]>().write_unaligned(from.read_unaligned());
            }
        }
    }
}

/// The bases at which all of some runs of elements lie below a number of elements and all guards hold.
pub(super) struct InteriorRange {
    low: Forms,
    high: Forms,
    /// How many forms matter.
    forms: usize,
}

impl InteriorRange {
    /// All bases of an array with this many guards.
    pub(super) fn everywhere(guards: usize) -> InteriorRange {
        InteriorRange {
            low: [i64::MIN; 1 + GUARDS],
            high: [i64::MAX; 1 + GUARDS],
            forms: 1 + guards,
        }
    }

    /// Those of them at which a run whose ends add these forms lies inside too.
    pub(super) fn narrow(&mut self, ends: [&Forms; 2], guards: &[Range<i64>], elements: i64) {
        for (k, (&a, &b)) in ends[0].iter().zip(ends[1]).enumerate().take(self.forms) {
            let (from, end) = match k.checked_sub(1).and_then(|g| guards.get(g)) {
                Some(range) => (range.start, range.end),
                None => (0, elements),
            };
            self.low[k] = self.low[k].max(from - a.min(b));
            self.high[k] = self.high[k].min(end - a.max(b));
        }
    }

    fn of(
        runs: &[ElementRun],
        steps: &Forms,
        guards: &[Range<i64>],
        elements: i64,
    ) -> InteriorRange {
        let mut inside = InteriorRange::everywhere(guards.len());
        for run in runs {
            let last = plus(run.forms, times(*steps, run.count as i64 - 1));
            inside.narrow([&run.forms, &last], guards, elements);
        }
        inside
    }

    #[inline(always)]
    pub(super) fn holds(&self, base: &Forms) -> bool {
        (0..self.forms).all(|k| base[k] >= self.low[k] && base[k] < self.high[k])
    }
}

pub(super) fn plus(a: Forms, b: Forms) -> Forms {
    std::array::from_fn(|k| a[k].wrapping_add(b[k]))
}

pub(super) fn times(a: Forms, n: i64) -> Forms {
    a.map(|x| x.wrapping_mul(n))
}

/// Axes without those of extent 1, and neighbours that every form steps over as over one merged; `None` where
/// there are too many.
pub(in super::super) fn merged(axes: impl Iterator<Item = WindowAxis>) -> Option<WindowAxes> {
    let mut all = WindowAxes::new();
    for axis in axes.filter(|a| a.extent != 1) {
        match all.last_mut() {
            Some(last) if last.steps == times(axis.steps, axis.extent) => {
                *last = WindowAxis { extent: last.extent.checked_mul(axis.extent)?, ..axis };
            }
            _ => all.push(axis),
        }
    }
    (all.len() <= AXES).then_some(all)
}

/// A place among axes, which goes on from there.
pub(super) struct WindowWalk<'a> {
    axes: &'a [WindowAxis],
    at: [i64; AXES],
    pub(super) forms: Forms,
}

impl<'a> WindowWalk<'a> {
    pub(super) fn new(axes: &'a [WindowAxis], place: usize) -> WindowWalk<'a> {
        let mut walk = WindowWalk { axes, at: [0; AXES], forms: Forms::default() };
        let mut rest = place as i64;
        for (axis, at) in axes.iter().zip(&mut walk.at).rev() {
            (rest, *at) = (rest / axis.extent, rest % axis.extent);
            walk.forms = plus(walk.forms, times(axis.steps, *at));
        }
        walk
    }

    /// How many places follow along the innermost axis, this one among them.
    pub(super) fn along(&self) -> usize {
        match self.axes.len() {
            0 => 1,
            n => (self.axes[n - 1].extent - self.at[n - 1]) as usize,
        }
    }

    /// Goes on by at most [`WindowWalk::along`] places.
    #[inline(always)]
    pub(super) fn go(&mut self, by: usize) {
        let mut by = by as i64;
        for (axis, at) in self.axes.iter().zip(&mut self.at).rev() {
            *at += by;
            self.forms = plus(self.forms, times(axis.steps, by));
            if *at < axis.extent {
                return;
            }
            self.forms = plus(self.forms, times(axis.steps, at.wrapping_neg()));
            (*at, by) = (0, 1);
        }
    }
}

/// Copies elements: vectors, the last of which may lie across the one before.
///
/// # Safety
/// There must be `n` elements at `from` and room for as many at `to`, which do not overlap and nobody else uses.
#[inline(always)]
unsafe fn copied<T: Copy>(from: *const T, to: *mut T, n: usize) {
    macro_rules! vectors {
        ($($size:literal),*) => {
            $(if n >= $size {
                let mut k = 0;
                loop {
                    // SAFETY: as the caller promises; `k + $size` is at most `n`.
                    unsafe {
                        let x = from.add(k).cast::<[T; $size]>().read_unaligned();
                        to.add(k).cast::<[T; $size]>().write_unaligned(x);
                    }
                    if k + $size == n {
                        return;
                    }
                    k = (k + $size).min(n - $size);
                }
            })*
        };
    }
    vectors!(16, 8, 4, 2);
    if n == 1 {
        // SAFETY: as the caller promises.
        unsafe { *to = *from };
    }
}

impl Window {
    /// It from the first element of a batch and place on, of an array whose first element is at `at`.
    pub(in super::super) fn placed(
        &self,
        at: *const u8,
        batch: usize,
        free: usize,
    ) -> PlacedWindow<'_> {
        let first = plus(self.first, WindowWalk::new(&self.batch, batch).forms);
        PlacedWindow { window: self, at, first, free, depth: 0 }
    }

    /// Of neighbours along an axis, from these forms on, those for which all guards hold.
    #[inline(always)]
    pub(super) fn inside(&self, first: &Forms, steps: &Forms, count: usize) -> [usize; 2] {
        let (mut low, mut high) = (0, count as i64);
        for (k, range) in self.guards.iter().enumerate() {
            let x = first[k + 1];
            // Those that hold are neighbours.
            let (from, end) = match steps[k + 1] {
                0 if range.contains(&x) => continue,
                0 => (0, 0),
                step if step > 0 => (up(range.start - x, step), up(range.end - x, step)),
                step => (up(x - range.end + 1, -step), up(x - range.start + 1, -step)),
            };
            (low, high) = (low.max(from), high.min(end));
        }
        let low = low.clamp(0, count as i64);
        [low, high.clamp(low, count as i64)].map(|n| n as usize)
    }

    /// Whether copies run along the depth: it is contiguous in memory, and the other axes
    /// are not, or are shorter.
    fn deep(&self) -> bool {
        let along = |axes: &WindowAxes| match axes.last() {
            Some(axis) if axis.steps[0] == 1 => axis.extent,
            _ => 0,
        };
        along(&self.depth) > along(&self.free)
    }
}

/// Copying, compiled for an instruction set: once, since it is long.
pub(super) trait CopyLines {
    /// As [`PlacedWindow::copy`].
    ///
    /// # Safety
    /// As of [`PlacedWindow::copy`], on a processor that has the set.
    unsafe fn copy<T: Copy + Default>(
        w: PlacedWindow<'_>,
        deep: bool,
        size: [usize; 2],
        to: *mut T,
        line: usize,
    );
}

impl PlacedWindow<'_> {
    /// From this place and depth on.
    pub(in super::super) fn from(self, free: usize, depth: usize) -> Self {
        PlacedWindow { free: self.free + free, depth: self.depth + depth, ..self }
    }

    /// Whether rows of it are best copied one after the other.
    pub(super) fn deep(&self) -> bool {
        self.window.deep()
    }

    /// Copies lines, `line` apart: `depth` lines of `n` places, or `n` lines of `depth` elements if they are deep.
    ///
    /// # Safety
    /// The elements must be there where guards hold, and `to` have room.
    #[inline(always)]
    pub(super) unsafe fn copy<T: Copy + Default>(
        self,
        deep: bool,
        [n, depth]: [usize; 2],
        to: *mut T,
        line: usize,
    ) {
        let w = self.window;
        let free = (w.free.as_slice(), self.free, n);
        let along = (w.depth.as_slice(), self.depth, depth);
        let (outer, inner) = if deep { (free, along) } else { (along, free) };
        // SAFETY: as the caller promises.
        unsafe { self.lines(outer, inner, to, line) }
    }

    /// Copies `count` of the places of the outer axes, as lines of `width` places of the inner ones that begin
    /// `line` elements from each other.
    ///
    /// # Safety
    /// As of [`PlacedWindow::copy`].
    #[inline(always)]
    unsafe fn lines<T: Copy + Default>(
        self,
        (outer, from, count): (&[WindowAxis], usize, usize),
        (inner, start, width): (&[WindowAxis], usize, usize),
        to: *mut T,
        line: usize,
    ) {
        let steps = inner.last().map_or(Forms::default(), |a| a.steps);
        let mut along = WindowWalk::new(inner, start);
        let mut done = 0;
        while done < width {
            let (mut runs, mut n) = ([ElementRun::default(); RUNS], 0);
            while n < RUNS && done < width {
                let count = along.along().min(width - done);
                runs[n] = ElementRun { to: done, count, forms: along.forms };
                along.go(count);
                done += count;
                n += 1;
            }
            let runs = &runs[..n];
            // What pieces have too many goes over what is written later: all of a line is at once.
            let once = done == width && runs.first().is_some_and(|r| r.to == 0);
            let pieces = EqualRuns::of(runs).filter(|p| (once || p.exact) && steps[0] == 1);
            let over = if pieces.as_ref().is_some_and(|p| p.exact) { 0 } else { PIECE as i64 };
            let elements = self.window.elements - over;
            let inside = InteriorRange::of(runs, &steps, &self.window.guards, elements);
            let along = outer.last().map_or(Forms::default(), |a| a.steps);
            let mut across = WindowWalk::new(outer, from);
            let (mut to, mut left) = (to, count);
            while left > 0 {
                let n = across.along().min(left);
                let mut base = plus(self.first, across.forms);
                for k in 0..n {
                    match &pieces {
                        // What stands out goes where a later piece or line will be, unless there is none.
                        Some(p) if (p.exact || k + 1 < left) && inside.holds(&base) => {
                            let first = self.at.cast::<T>().wrapping_offset(base[0] as isize);
                            // SAFETY: as the caller promises; all that is read is of the array.
                            unsafe { p.copy(first, to) };
                        }
                        _ => {
                            for run in runs {
                                // SAFETY: as the caller promises.
                                unsafe { self.run(base, run, &steps, to.add(run.to)) };
                            }
                        }
                    }
                    base = plus(base, along);
                    to = to.wrapping_add(line);
                }
                across.go(n);
                left -= n;
            }
        }
    }

    /// Copies a run, with 0 for what is not there.
    ///
    /// # Safety
    /// As of [`PlacedWindow::copy`], for the elements of the run.
    #[inline(always)]
    unsafe fn run<T: Copy + Default>(
        self,
        base: Forms,
        run: &ElementRun,
        steps: &Forms,
        to: *mut T,
    ) {
        let [low, high] = self.window.inside(&plus(base, run.forms), steps, run.count);
        let first = self.at.cast::<T>().wrapping_offset((base[0] + run.forms[0]) as isize);
        // SAFETY: as the caller promises; `low..high` are places of the run whose guards hold.
        unsafe {
            if low > 0 || high < run.count {
                for k in (0..low).chain(high..run.count) {
                    *to.add(k) = T::default();
                }
            }
            match steps[0] {
                1 => copied(first.wrapping_add(low), to.add(low), high - low),
                step => {
                    for k in low..high {
                        *to.add(k) = *first.wrapping_offset(step as isize * k as isize);
                    }
                }
            }
        }
    }
}

/// A quotient, rounded up.
fn up(n: i64, by: i64) -> i64 {
    if by == 1 { n } else { n.div_euclid(by) + i64::from(n.rem_euclid(by) != 0) }
}
