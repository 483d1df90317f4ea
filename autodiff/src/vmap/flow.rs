//! Which values depend on the batch.

use adfuse_ir::op::{Body, Control};
use adfuse_ir::{Function, Inst, Value};
use cranelift_entity::EntitySet;

/// The values of `f`, those in regions among them, that depend on a parameter with an axis.
pub(super) fn mapped(f: &Function, params: &[Option<usize>]) -> EntitySet<Value> {
    let mut found = EntitySet::new();
    let with_axis = f.params().iter().zip(params).filter(|(_, axis)| axis.is_some());
    found.extend(with_axis.map(|(&p, _)| p));
    for &i in f.body_insts() {
        visit(f, i, &mut found);
    }
    found
}

fn visit(f: &Function, i: Inst, found: &mut EntitySet<Value>) {
    let regions = &f.inst(i).regions;
    for &r in regions {
        for &j in &f.region(r).insts {
            visit(f, j, found);
        }
    }
    let reads = f.args(i).iter().any(|&a| found.contains(a));
    for (k, &v) in f.inst_results(i).iter().enumerate() {
        // Which branch is taken is the same for all elements where the predicate is: a result then
        // depends on the batch only if a branch yields what does.
        let yields = matches!(f.op(i).def().body, Body::Region(Control::Cond))
            && regions.iter().any(|&r| found.contains(f.region(r).results[k]));
        if reads || yields {
            found.insert(v);
        }
    }
}
