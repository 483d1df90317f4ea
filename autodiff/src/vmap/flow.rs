//! Which values depend on the batch.

use super::batching::Batching;
use adfuse_ir::control::{Follow, reach_where};
use adfuse_ir::{Function, Inst, Value};
use cranelift_entity::EntitySet;

/// The values of `f`, those in regions among them, that depend on a parameter with an axis, or on the rank that an element is.
pub(super) fn mapped(f: &Function, batching: &Batching) -> EntitySet<Value> {
    let mut seeds = EntitySet::new();
    let with_axis = f.params().iter().zip(&batching.params).filter(|(_, axis)| axis.is_some());
    seeds.extend(with_axis.map(|(&p, _)| p));
    reach_where(f, seeds, Follow::Uses, &|i| depends(f, batching, i))
}

/// Whether the results of an instruction depend on the element, where that does not follow from its operands: of a collective
/// over the batch.
pub(super) fn depends(f: &Function, batching: &Batching, i: Inst) -> Option<bool> {
    let which = f.op(i).collective()?;
    let name = batching.name.as_deref()?;
    (f.attrs(i).text("over") == name).then(|| !which.is_same_everywhere())
}
