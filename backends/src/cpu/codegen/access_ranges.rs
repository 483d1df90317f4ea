//! How vectors access each parameter and output of a sweep, and where guards hold.

use super::loop_ir::{
    Access, FormRanges, GuardedSource, LoadSource, LoopNest, ParamRead, VectorAccess,
};
use super::short_axes::{GridSource, are_bounded};
use adfuse_ir::DType;

/// Literals that are read through guards have vectors in memory, whose number is limited.
const MOST_WAYS: usize = 16;

/// Lines of at most this many elements are not cut where guards begin and cease to hold: masks say which
/// lanes read.
const SHORT: i64 = 64;

/// The most bits from one element of a group to the next: numbers of bits within a group have 32 bits.
const FAR_BITS: u64 = 1 << 24;

impl LoopNest {
    /// Finds how vectors reach what is read and written.
    pub(crate) fn reach(&mut self, masks: bool) {
        let mut sources = 0;
        let masked = masks && self.masked();
        for k in 0..self.reads.len() {
            let reach = match self.reach_of(&self.reads[k]) {
                _ if self.placed(k) => VectorAccess::Placed,
                VectorAccess::Guarded if masked && self.varies[k] => VectorAccess::Masked,
                VectorAccess::Single if masks && self.strides_bits(&self.reads[k]) => {
                    VectorAccess::Bits
                }
                VectorAccess::Single if masks && self.strides_where_guarded(&self.reads[k]) => {
                    VectorAccess::Grid
                }
                reach => reach,
            };
            let mut needs = Vec::new();
            self.named(&self.reads[k], &mut needs);
            if let (VectorAccess::Guarded, ParamRead::Guarded(all), true) =
                (reach, &self.reads[k], self.varies[k])
            {
                sources += all.len();
                let guards = all.iter().flat_map(|w| &w.guards);
                let moving: FormRanges =
                    guards.filter(|(f, _)| self.step(*f) != 0).cloned().collect();
                if sources <= MOST_WAYS {
                    self.breaks.extend(moving);
                }
            }
            let fits = reach != VectorAccess::Guarded || sources <= MOST_WAYS && self.varies[k];
            self.loads.push(if fits { reach } else { VectorAccess::Single });
            self.needs.push(needs);
        }
        for a in &self.writes {
            let reach = self.reach_of_access(a);
            self.stores.push(reach);
        }
    }

    /// Whether all that is read through guards which change along the axis is read by masks: lines are short, or
    /// there are too many ways.
    fn masked(&self) -> bool {
        let all = self.reads.iter().zip(&self.varies);
        let mut count = 0;
        let mut fits = true;
        for (read, _) in
            all.filter(|(r, varies)| **varies && self.reach_of(r) == VectorAccess::Guarded)
        {
            let ParamRead::Guarded(sources) = read else { continue };
            count += sources.len();
            fits &= matches!(
                sources.as_slice(),
                [GuardedSource { from: LoadSource::Array(a), .. }, GuardedSource { from: LoadSource::Literal(_), guards }]
                    if guards.is_empty() && a.dtype.bytes() >= 4
            );
        }
        let n = self.line_length();
        fits && n < 1 << 30 && (n <= SHORT || count > MOST_WAYS)
    }

    fn reach_of_access(&self, a: &Access) -> VectorAccess {
        match a.packed {
            _ if !self.affine(a.form) => VectorAccess::Single,
            None => VectorAccess::Even,
            Some(_) if self.step(a.form) == 1 => VectorAccess::Packed,
            Some(_) => VectorAccess::Single,
        }
    }

    /// Whether a parameter is truth values of a bit each in steps other than one along the line, which vectors with masks gather.
    fn strides_bits(&self, read: &ParamRead) -> bool {
        let ParamRead::Guarded(sources) = read else { return false };
        let [GuardedSource { from: LoadSource::Array(a), .. }] = sources.as_slice() else {
            return false;
        };
        let bits = a.packed == Some(1) && a.dtype == DType::Bool && self.affine(a.form);
        bits && self.grid().is_none() && self.step(a.form).unsigned_abs() <= FAR_BITS
    }

    /// Reads neighbouring truth values of a bit each wherever they begin in a byte; whether there are any.
    pub(crate) fn unalign_bits(&mut self) -> bool {
        let mut any = false;
        for k in 0..self.reads.len() {
            if self.loads[k] == VectorAccess::Packed && self.strides_bits(&self.reads[k]) {
                (self.loads[k], any) = (VectorAccess::Bits, true);
            }
        }
        any
    }

    /// Whether a parameter is elements along the line where guards hold, and a literal elsewhere, that are loaded as a grid of one axis. The
    /// caller has found that their step is not one; grids have elements of 32 bits.
    fn strides_where_guarded(&self, read: &ParamRead) -> bool {
        let Some(GridSource { array, guards, rest: Some(_) }) = GridSource::of(read.sources())
        else {
            return false;
        };
        self.affine(array.form) && are_bounded(guards, &self.forms, &self.walk.extents)
    }

    fn reach_of(&self, read: &ParamRead) -> VectorAccess {
        let sources = match read {
            ParamRead::Coord(form) if self.affine(*form) || self.forms[*form].grid.is_some() => {
                return VectorAccess::Coord;
            }
            ParamRead::Coord(_) => return VectorAccess::Single,
            ParamRead::Guarded(_) if self.is_grid(read) => return VectorAccess::Grid,
            ParamRead::Guarded(sources) => sources,
        };
        if let [GuardedSource { from: LoadSource::Array(a), .. }] = sources.as_slice() {
            return self.reach_of_access(a);
        }
        let steps =
            |a: &Access| a.packed.is_none() && self.affine(a.form) && self.step(a.form) == 1;
        let chosen = sources.iter().all(|w| {
            let guards = w.guards.iter().all(|(f, _)| self.affine(*f));
            guards
                && matches!(&w.from, LoadSource::Literal(_))
                    | matches!(&w.from, LoadSource::Array(a) if steps(a))
        });
        if chosen { VectorAccess::Guarded } else { VectorAccess::Single }
    }

    /// Whether vectors read or write an array by whole bytes of packed elements.
    pub(crate) fn byte_aligned(&self, a: &Access) -> bool {
        a.packed.is_some() && self.reach_of_access(a) == VectorAccess::Packed
    }

    /// Whether vectors read or write packed elements.
    pub(crate) fn packed(&self) -> bool {
        self.loads.iter().chain(&self.stores).any(|r| *r == VectorAccess::Packed)
    }
}
