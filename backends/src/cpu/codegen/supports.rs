//! Which sweeps groups that may be partial support, judged by their accesses.

use super::loop_ir::{GuardedSource, LoadSource, LoopNest, ParamRead, VectorAccess};
use super::vector_width::Unsupported;

/// Whether such groups support a sweep, as far as its accesses say.
pub(crate) fn supported(p: &LoopNest, lanes: u32) -> Result<(), Unsupported> {
    if p.target.is_some() {
        return Err(Unsupported::Places);
    }
    for (k, reach) in p.loads.iter().enumerate().filter(|(k, _)| p.varies[*k]) {
        match reach {
            VectorAccess::Single => return Err(Unsupported::Read(k)),
            VectorAccess::Even
            | VectorAccess::Packed
            | VectorAccess::Coord
            | VectorAccess::Guarded
            | VectorAccess::Masked
            | VectorAccess::Spread(_) => {}
        }
    }
    if let Some(k) = p.stores.iter().position(|r| *r == VectorAccess::Single) {
        return Err(Unsupported::Write(k));
    }
    together(p, grain(p, lanes))
}

/// Groups begin at multiples of this many elements, as packed arrays or folds count them; a power of two.
pub(crate) fn grain(p: &LoopNest, lanes: u32) -> i64 {
    match p.lanes() {
        Some(_) => lanes.into(),
        None => 8,
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
    // Groups begin where bytes or lanes do, and with the first of the coordinates that read one element.
    let each = p.spreads().map_or(1, i64::from);
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
