//! How vectors reach what a sweep reads and writes.

use super::affine_form::spreads;
use super::loop_ir::{Access, Planned, Ranges, Reach, Read, Source, Spread, Way};
use adfuse_ir::index::IndexExpr;

/// Literals that are read through guards have vectors in memory, whose number is limited.
const MOST_WAYS: usize = 16;

/// Lines of at most this many elements are not cut where guards begin and cease to hold: masks say which
/// lanes read.
const SHORT: i64 = 64;

impl Planned {
    /// Finds how vectors reach what is read and written.
    pub(crate) fn reach(&mut self, masks: bool) {
        let mut ways = 0;
        let masked = masks && self.masked();
        for k in 0..self.reads.len() {
            let reach = match self.reach_of(&self.reads[k]) {
                Reach::Ways if masked && self.varies[k] => Reach::Masked,
                reach => reach,
            };
            let mut needs = Vec::new();
            self.named(&self.reads[k], &mut needs);
            if let (Reach::Ways, Read::Ways(all), true) = (reach, &self.reads[k], self.varies[k]) {
                ways += all.len();
                let guards = all.iter().flat_map(|w| &w.guards);
                let moving: Ranges = guards.filter(|(f, _)| self.step(*f) != 0).cloned().collect();
                if ways <= MOST_WAYS {
                    self.breaks.extend(moving);
                }
            }
            let fits = reach != Reach::Ways || ways <= MOST_WAYS && self.varies[k];
            self.loads.push(if fits { reach } else { Reach::Single });
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
        for (read, _) in all.filter(|(r, varies)| **varies && self.reach_of(r) == Reach::Ways) {
            let Read::Ways(ways) = read else { continue };
            count += ways.len();
            fits &= matches!(
                ways.as_slice(),
                [Way { from: Source::Array(a), .. }, Way { from: Source::Literal(_), guards }]
                    if guards.is_empty() && a.dtype.bytes() >= 4
            );
        }
        let n = self.walk.extents.last().copied().unwrap_or(1);
        fits && n < 1 << 30 && (n <= SHORT || count > MOST_WAYS)
    }

    /// How an access is that has one element for each few coordinates along the innermost axis.
    fn spread_of(&self, a: &Access) -> Option<Spread> {
        let form = &self.forms[a.form];
        let moving = form.rest.iter().filter(|(e, _)| self.changes(e));
        let (&[(e, step)], 0) = (&*moving.collect::<Vec<_>>(), self.step(a.form)) else {
            return None;
        };
        let IndexExpr::FloorDiv(of, each) = e else { return None };
        let axis = matches!(**of, IndexExpr::Axis(k) if usize::from(k) == self.inner());
        let (each, step) = (u32::try_from(*each).ok()?, u32::try_from(*step).ok()?);
        (axis && spreads(each.into(), step.into()) && a.dtype.bytes() == 4)
            .then_some(Spread { each, step })
    }

    /// Whether groups of an innermost axis of which few coordinates read the same element begin with the first of
    /// those.
    pub(crate) fn spreads(&self) -> Option<u32> {
        self.loads
            .iter()
            .filter_map(|r| if let Reach::Spread(s) = r { Some(s.each) } else { None })
            .max()
    }

    fn reach_of_read(&self, a: &Access) -> Reach {
        match self.reach_of_access(a) {
            Reach::Single if a.packed.is_none() => {
                self.spread_of(a).map_or(Reach::Single, Reach::Spread)
            }
            reach => reach,
        }
    }

    fn reach_of_access(&self, a: &Access) -> Reach {
        match a.packed {
            _ if !self.affine(a.form) => Reach::Single,
            None => Reach::Even,
            Some(_) if self.step(a.form) == 1 => Reach::Packed,
            Some(_) => Reach::Single,
        }
    }

    fn reach_of(&self, read: &Read) -> Reach {
        let ways = match read {
            Read::Coord(form) if self.affine(*form) => return Reach::Coord,
            Read::Coord(_) => return Reach::Single,
            Read::Ways(ways) => ways,
        };
        if let [Way { from: Source::Array(a), .. }] = ways.as_slice() {
            return self.reach_of_read(a);
        }
        let steps =
            |a: &Access| a.packed.is_none() && self.affine(a.form) && self.step(a.form) == 1;
        let chosen = ways.iter().all(|w| {
            let guards = w.guards.iter().all(|(f, _)| self.affine(*f));
            guards
                && matches!(&w.from, Source::Literal(_))
                    | matches!(&w.from, Source::Array(a) if steps(a))
        });
        if chosen { Reach::Ways } else { Reach::Single }
    }

    /// Whether vectors read or write an array by whole bytes of packed elements.
    pub(crate) fn byte_aligned(&self, a: &Access) -> bool {
        a.packed.is_some() && self.reach_of_access(a) == Reach::Packed
    }

    /// Whether vectors read or write packed elements.
    pub(crate) fn packed(&self) -> bool {
        self.loads.iter().chain(&self.stores).any(|r| *r == Reach::Packed)
    }
}
