//! Dead code elimination: drops pure instructions whose results nothing uses.

use crate::entity::{Inst, Region, Value};
use crate::function::Function;
use cranelift_entity::EntitySet;

/// Removes every instruction that is neither an effect nor needed by a result or an effect.
pub fn dce(f: &mut Function) {
    let mut live = EntitySet::new();
    let mut keep = EntitySet::new();
    mark(f, f.body(), &mut live, &mut keep);
    prune(f, f.body(), &keep);
}

/// Marks a region that is needed, last instruction first, so that one pass is enough.
fn mark(f: &Function, region: Region, live: &mut EntitySet<Value>, keep: &mut EntitySet<Inst>) {
    let data = f.region(region);
    live.extend(data.results.iter().copied());
    for &i in data.insts.iter().rev() {
        let needed = f.inst_results(i).iter().any(|&v| live.contains(v));
        if needed || f.has_effect(i) {
            keep.insert(i);
            live.extend(f.args(i).iter().copied());
            for &r in &f.inst(i).regions {
                mark(f, r, live, keep);
            }
        }
    }
}

fn prune(f: &mut Function, region: Region, keep: &EntitySet<Inst>) {
    f.region_mut(region).insts.retain(|&i| keep.contains(i));
    for k in 0..f.region(region).insts.len() {
        let i = f.region(region).insts[k];
        for r in f.inst(i).regions.clone() {
            prune(f, r, keep);
        }
    }
}
