//! Schedules: their coordinates exist and can be reordered as they ask.

use super::{ProgramVerifier, Wrong};
use crate::diag::Kind;
use crate::kernel::buffer::Storage;
use crate::kernel::stage::{Kernel, Order, Sink};

/// Checks what a schedule says against its kernel alone.
pub(crate) fn scheduled(kernel: &Kernel) -> Result<(), Wrong> {
    let (rank, schedule) = (kernel.domain.len(), &kernel.schedule);
    let mut sorted = schedule.order.clone();
    sorted.sort_unstable();
    let whole =
        sorted.len() == rank && sorted.iter().enumerate().all(|(k, &a)| k == usize::from(a));
    if !whole && !schedule.order.is_empty() {
        let m = format!("the order of a schedule names each of {rank} axes once");
        return Err(Wrong::new(Kind::Shape, m));
    }
    if !schedule.tiles.is_empty() {
        let fits = |(&t, &n): (&i64, &i64)| (1..=n.max(1)).contains(&t);
        if schedule.tiles.len() != rank || !schedule.tiles.iter().zip(&kernel.domain).all(fits) {
            let m = format!("tiles {:?} do not fit the domain {:?}", schedule.tiles, kernel.domain);
            return Err(Wrong::new(Kind::Shape, m));
        }
        // The last places of an axis are a loop of their own, and a fold is not cut in two.
        let divided = schedule.tiles.iter().zip(&kernel.domain).all(|(&t, &n)| n % t == 0);
        let folded = |s: &Sink| matches!(s, Sink::Fold { .. });
        if !divided && kernel.stages.iter().flat_map(|s| &s.sinks).any(folded) {
            let m = format!(
                "tiles {:?} do not divide the domain {:?}, which is folded over",
                schedule.tiles, kernel.domain
            );
            return Err(Wrong::new(Kind::Shape, m));
        }
    }
    match schedule.vector {
        Some(c) => vector(kernel, c.into()),
        None => Ok(()),
    }
}

/// Checks that vectors may run along a coordinate.
fn vector(kernel: &Kernel, c: usize) -> Result<(), Wrong> {
    let Some(axis) = c.checked_sub(kernel.domain.len()) else { return Ok(()) };
    let mut extents = kernel.stages.iter().filter(|s| !s.axes.is_empty()).map(|s| s.axes.get(axis));
    let first = extents.next().flatten();
    if first.is_none() || !extents.all(|n| n == first) {
        let m = format!("vectors run along d{c}, which not every stage with axes has alike");
        return Err(Wrong::new(Kind::Shape, m));
    }
    let along = |a: &u8| usize::from(*a) == axis;
    let in_order = |sink: &Sink| match sink {
        Sink::Reduce { runs, .. } => {
            runs.iter().any(|r| r.order == Order::Chain && r.axes.iter().any(along))
        }
        Sink::Scan { axis, .. } => along(axis),
        Sink::Store { .. } | Sink::Fold { .. } | Sink::Keep(_) | Sink::Leave(_) => false,
    };
    match kernel.stages.iter().flat_map(|s| &s.sinks).any(in_order) {
        true => {
            let m = format!("d{c} folds one element after the other: no vectors run along it");
            Err(Wrong::new(Kind::Shape, m))
        }
        false => Ok(()),
    }
}

impl ProgramVerifier<'_> {
    /// Checks a kernel's schedule.
    pub(super) fn scheduled(&self, kernel: &Kernel) -> Result<(), Wrong> {
        scheduled(kernel)?;
        let Some(c) = kernel.schedule.vector else { return Ok(()) };
        for stage in &kernel.stages {
            let axes = kernel.domain.len() + stage.axes.len();
            for sink in &stage.sinks {
                let Sink::Store { buffer, index } = sink else { continue };
                let data = self.data(*buffer);
                if data.storage == Storage::Plain {
                    continue;
                }
                // Then the elements of a vector are neighbours in a word.
                let factors = index.last().and_then(|e| e.factors(axes));
                if factors.and_then(|f| f.get(usize::from(c)).copied()) != Some(1) {
                    let m = format!("%{} is packed, but not along d{c} of the vectors", data.name);
                    return Err(Wrong::new(Kind::Shape, m));
                }
            }
        }
        Ok(())
    }
}
