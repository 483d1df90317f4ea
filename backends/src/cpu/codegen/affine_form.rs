//! Affine forms: the offset of an access as a constant, a stride along each axis, and further terms.
//!
//! An offset is a sum of index expressions times strides. Most of it is affine in the coordinates and becomes one
//! stride for each axis; quotients, remainders and data stay as expressions with a factor. Arithmetic wraps: the
//! verifier has proven that the offset is inside its buffer, and sums modulo 2^64 agree with it whatever the terms are.

use crate::runtime::strides::{row_major, strides};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::BufferData;
use smallvec::{SmallVec, smallvec};

/// A sum of constants, coordinates times steps, and expressions times factors.
#[derive(Clone, Default, Debug)]
pub(crate) struct AffineForm {
    pub(crate) constant: i64,
    /// A step for each axis.
    pub(crate) steps: SmallVec<[i64; 8]>,
    /// What is not affine, each with its factor.
    pub(crate) rest: SmallVec<[(IndexExpr, i64); 2]>,
    /// Steps along the axes that are merged into the innermost one, where it does not step over them as over one; the
    /// step along the innermost one is 0 then.
    pub(crate) grid: Option<SmallVec<[i64; 4]>>,
}

impl AffineForm {
    /// The form of one expression over this many axes.
    pub(crate) fn of(e: &IndexExpr, axes: usize) -> AffineForm {
        let mut form = AffineForm { steps: smallvec![0; axes], ..AffineForm::default() };
        form.add(e, 1);
        form
    }

    /// The element that an index names in a buffer.
    pub(crate) fn element(index: &[IndexExpr], data: &BufferData, axes: usize) -> AffineForm {
        let mut form = AffineForm { steps: smallvec![0; axes], ..AffineForm::default() };
        for (e, stride) in index.iter().zip(strides(data)) {
            form.add(e, stride);
        }
        form
    }

    /// The row-major place among the first `outer` of these axes.
    pub(crate) fn place(extents: &[i64], outer: usize) -> AffineForm {
        let mut steps: SmallVec<[i64; 8]> = smallvec![0; extents.len()];
        for (to, stride) in steps.iter_mut().zip(row_major(&extents[..outer])) {
            *to = stride;
        }
        AffineForm { steps, ..AffineForm::default() }
    }

    fn add(&mut self, e: &IndexExpr, factor: i64) {
        match e {
            IndexExpr::Axis(a) => match self.steps.get_mut(usize::from(*a)) {
                Some(step) => *step = step.wrapping_add(factor),
                None => self.rest.push((e.clone(), factor)),
            },
            IndexExpr::Const(c) => {
                self.constant = self.constant.wrapping_add(c.wrapping_mul(factor));
            }
            IndexExpr::Add(a, b) => {
                self.add(a, factor);
                self.add(b, factor);
            }
            IndexExpr::Mul(a, c) => self.add(a, factor.wrapping_mul(*c)),
            IndexExpr::FloorDiv(..) | IndexExpr::Mod(..) | IndexExpr::Data { .. } => {
                self.rest.push((e.clone(), factor));
            }
        }
    }

    /// Whether it is the same at every coordinate along an axis.
    pub(crate) fn fixed_along(&self, axis: usize, varies: &dyn Fn(u32) -> bool) -> bool {
        let still = self.steps.get(axis).is_none_or(|&s| s == 0);
        still && self.rest_fixed(axis, varies)
    }

    /// Whether what is not affine is the same at every coordinate along an axis; `varies` says so of
    /// parameters that are read as data.
    pub(crate) fn rest_fixed(&self, axis: usize, varies: &dyn Fn(u32) -> bool) -> bool {
        let merged = self.grid.is_some() && axis + 1 == self.steps.len();
        !merged && self.rest.iter().all(|(e, _)| !mentions(e, &|a| a == axis, varies))
    }
}

/// The element that an index names at coordinates 0, and its steps along the axes, where it is affine.
pub(crate) fn affine(
    index: &[IndexExpr],
    data: &BufferData,
    axes: usize,
) -> Option<(i64, SmallVec<[i64; 8]>)> {
    let form = AffineForm::element(index, data, axes);
    form.rest.is_empty().then_some((form.constant, form.steps))
}

/// The value of an expression at coordinates 0, and its steps along the axes, where it is affine.
pub(crate) fn affine_of(e: &IndexExpr, axes: usize) -> Option<(i64, SmallVec<[i64; 8]>)> {
    let form = AffineForm::of(e, axes);
    form.rest.is_empty().then_some((form.constant, form.steps))
}

/// Whether an expression names such an axis, or such a parameter.
pub(crate) fn mentions(
    e: &IndexExpr,
    axis: &dyn Fn(usize) -> bool,
    data: &dyn Fn(u32) -> bool,
) -> bool {
    match e {
        IndexExpr::Axis(a) => axis(usize::from(*a)),
        IndexExpr::Const(_) => false,
        IndexExpr::Add(a, b) => mentions(a, axis, data) || mentions(b, axis, data),
        IndexExpr::Mul(a, _) | IndexExpr::FloorDiv(a, _) | IndexExpr::Mod(a, _) => {
            mentions(a, axis, data)
        }
        IndexExpr::Data { param, .. } => data(*param),
    }
}

/// The axes that are walked, fewer and longer than those that coordinates are named by.
#[derive(Clone, Debug)]
pub(crate) struct WalkedAxes {
    /// Extents of the axes that are walked; at least one.
    pub(crate) extents: SmallVec<[i64; 8]>,
    /// For each axis that was named, the one that is walked; none where it has extent 1, or has been
    /// merged and nothing asks for its coordinate.
    pub(crate) axes: SmallVec<[Option<usize>; 8]>,
    /// Of the axes that are merged into the innermost one and that some forms step over one by one, the extents of all
    /// but the outermost; none of other walks.
    pub(crate) short: SmallVec<[i64; 4]>,
}

impl WalkedAxes {
    /// Drops axes of extent 1 and merges neighbours that every form steps over as over one.
    pub(crate) fn new(extents: &[i64], forms: &mut [&mut AffineForm]) -> WalkedAxes {
        let mut walk = WalkedAxes {
            extents: SmallVec::new(),
            axes: smallvec![None; extents.len()],
            short: SmallVec::new(),
        };
        let mut steps: Vec<SmallVec<[i64; 8]>> = forms.iter().map(|_| SmallVec::new()).collect();
        let mut free = false;
        for (a, &n) in extents.iter().enumerate() {
            if n == 1 {
                continue;
            }
            let named = |f: &&mut AffineForm| {
                f.rest.iter().any(|(e, _)| mentions(e, &|b| b == a, &|_| false))
            };
            let pinned = forms.iter().any(named);
            let merges = free
                && !pinned
                && forms.iter().zip(&steps).all(|(f, s)| {
                    s.last().is_some_and(|&outer| outer == f.steps[a].wrapping_mul(n))
                });
            if merges {
                if let Some(last) = walk.extents.last_mut() {
                    *last = last.saturating_mul(n);
                }
                for (f, s) in forms.iter().zip(&mut steps) {
                    if let Some(last) = s.last_mut() {
                        *last = f.steps[a];
                    }
                }
            } else {
                walk.extents.push(n);
                for (f, s) in forms.iter().zip(&mut steps) {
                    s.push(f.steps[a]);
                }
                if pinned {
                    walk.axes[a] = Some(walk.extents.len() - 1);
                }
            }
            free = !pinned;
        }
        if walk.extents.is_empty() {
            walk.extents.push(1);
            steps.iter_mut().for_each(|s| s.push(0));
        }
        for (f, s) in forms.iter_mut().zip(steps) {
            f.steps = s;
            for (e, _) in &mut f.rest {
                *e = renamed(e, &walk.axes);
            }
        }
        walk
    }
}

/// An expression over the axes that are walked.
fn renamed(e: &IndexExpr, axes: &[Option<usize>]) -> IndexExpr {
    let inner = |a: &IndexExpr| Box::new(renamed(a, axes));
    match e {
        IndexExpr::Axis(a) => match axes.get(usize::from(*a)) {
            Some(&Some(to)) => IndexExpr::axis(to),
            _ => IndexExpr::Const(0),
        },
        IndexExpr::Const(_) | IndexExpr::Data { .. } => e.clone(),
        IndexExpr::Add(a, b) => IndexExpr::Add(inner(a), inner(b)),
        IndexExpr::Mul(a, c) => IndexExpr::Mul(inner(a), *c),
        IndexExpr::FloorDiv(a, c) => IndexExpr::FloorDiv(inner(a), *c),
        IndexExpr::Mod(a, c) => IndexExpr::Mod(inner(a), *c),
    }
}
