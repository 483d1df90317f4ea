//! Which values depend on the batch.

use adfuse_ir::control::{Follow, reach};
use adfuse_ir::{Function, Value};
use cranelift_entity::EntitySet;

/// The values of `f`, those in regions among them, that depend on a parameter with an axis.
pub(super) fn mapped(f: &Function, params: &[Option<usize>]) -> EntitySet<Value> {
    let mut seeds = EntitySet::new();
    let with_axis = f.params().iter().zip(params).filter(|(_, axis)| axis.is_some());
    seeds.extend(with_axis.map(|(&p, _)| p));
    reach(f, seeds, Follow::Uses)
}
