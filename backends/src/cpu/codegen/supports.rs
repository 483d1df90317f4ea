//! Which sweeps groups that may be partial support, judged by their accesses.

use super::loop_ir::{GuardedSource, LoadSource, LoopNest, ParamRead, Sweep, VectorAccess};
use super::loop_nest::LineForm;
use super::split_at_quotients::split_at_quotients;
use super::vector_width::Unsupported;

/// Groups of this many elements have masks, which suppress accesses.
const MASKED: u32 = 16;

/// The nest of a sweep for such groups, of this many elements, and whether they support it.
pub(crate) fn partial_nest(
    sweep: &Sweep<'_>,
    contract: bool,
    lanes: u32,
) -> (LoopNest, Result<(), Unsupported>) {
    let of = |lines| fitted(LoopNest::new(sweep, contract, lines), lanes);
    if lanes < MASKED {
        return of(LineForm::Plain);
    }
    let lines = LineForm::Merged { lanes: lanes.into() };
    if let Some(split) = split_at_quotients(sweep, lanes.into()) {
        let (nest, fits) = fitted(LoopNest::new(&split.of(sweep), contract, lines), lanes);
        if nest.grid().is_some() && fits.is_ok() {
            return (nest, Ok(()));
        }
    }
    let (nest, fits) = of(lines);
    // Packed arrays may begin bytes together along shorter lines alone.
    let (nest, fits) =
        if fits.is_err() && nest.grid().is_some() { of(LineForm::Masked) } else { (nest, fits) };
    let others = match fits {
        Err(Unsupported::Read(_)) => {
            let spread = LoopNest::with_spread_sources(sweep, contract, lines);
            [spread, LoopNest::with_places(sweep, contract)]
        }
        Err(Unsupported::Places) => [LoopNest::with_places(sweep, contract), None],
        _ => [None, None],
    };
    let mut others = others.into_iter().flatten().map(|nest| fitted(nest, lanes));
    others.find(|(_, fits)| fits.is_ok()).unwrap_or((nest, fits))
}

/// A nest and whether such groups support it: where packed arrays do not begin bytes together, truth values that are read may begin anywhere.
fn fitted(mut nest: LoopNest, lanes: u32) -> (LoopNest, Result<(), Unsupported>) {
    let mut fits = supported(&nest, lanes);
    if matches!(fits, Err(Unsupported::Apart)) && lanes >= MASKED && nest.unalign_bits() {
        fits = supported(&nest, lanes);
    }
    (nest, fits)
}

/// Whether such groups support a sweep, as far as its accesses say.
fn supported(p: &LoopNest, lanes: u32) -> Result<(), Unsupported> {
    if p.target.is_some() {
        return Err(Unsupported::Places);
    }
    for (k, reach) in p.loads.iter().enumerate().filter(|(k, _)| p.varies[*k]) {
        match reach {
            VectorAccess::Single => return Err(Unsupported::Read(k)),
            VectorAccess::Even
            | VectorAccess::Packed
            | VectorAccess::Bits
            | VectorAccess::Coord
            | VectorAccess::Guarded
            | VectorAccess::Masked
            | VectorAccess::Placed
            | VectorAccess::Grid => {}
        }
    }
    if let Some(k) = p.stores.iter().position(|r| *r == VectorAccess::Single) {
        return Err(Unsupported::Write(k));
    }
    together(p, grain(p, lanes))
}

/// Groups begin at multiples of this many elements, as packed arrays or folds count them, or as grids do; a power of two where
/// there are packed arrays or folds.
pub(crate) fn grain(p: &LoopNest, lanes: u32) -> i64 {
    match (p.lanes(), p.grid()) {
        (Some(_), _) => lanes.into(),
        (None, Some(within)) if within.unsigned_abs().is_power_of_two() => within.max(8),
        (None, within) => within.unwrap_or(8),
    }
}

/// Whether all packed arrays begin bytes, and all blocks lanes, at the same places along every line.
fn together(p: &LoopNest, grain: i64) -> Result<(), Unsupported> {
    let reads = p.reads.iter().zip(&p.loads).filter_map(|(r, reach)| match (r, reach) {
        (ParamRead::Guarded(sources), VectorAccess::Packed) => match sources.as_slice() {
            [GuardedSource { from: LoadSource::Array(a), .. }] => Some(a),
            _ => None,
        },
        _ => None,
    });
    let writes = p.writes.iter().zip(&p.stores).filter(|(_, r)| **r == VectorAccess::Packed);
    let packed = reads.chain(writes.map(|(a, _)| a)).map(|a| a.form);
    let mut forms = packed.chain(p.lanes().map(|f| f.place)).map(|f| &p.forms[f]);
    let Some(first) = forms.next() else { return Ok(()) };
    // Groups begin where bytes or lanes do, and at coordinate 0 of the inner axes of grids.
    let each = p.grid().unwrap_or(1);
    let mut before = first.steps.iter().take(p.inner()).chain([&first.constant]);
    if each > 1 && !(first.rest.is_empty() && before.all(|n| n % each == 0)) {
        return Err(Unsupported::Apart);
    }
    let same = |a: i64, b: i64| a.wrapping_sub(b) & (grain - 1) == 0;
    let alike = forms.all(|f| {
        same(f.constant, first.constant)
            && f.steps.iter().zip(&first.steps).all(|(&a, &b)| same(a, b))
            && f.rest == first.rest
    });
    if alike { Ok(()) } else { Err(Unsupported::Apart) }
}
