//! The values around a region that it reads.

use crate::entity::{Inst, Region, Value};
use crate::function::Function;
use cranelift_entity::EntitySet;
use smallvec::SmallVec;

/// The values that a region reads and neither it nor a region in it defines, each once, in the order of their first
/// use. Literals are not among them.
pub fn captures(f: &Function, region: Region) -> Vec<Value> {
    let mut scan =
        CaptureScan { f, inside: EntitySet::new(), seen: EntitySet::new(), found: Vec::new() };
    scan.region(region);
    scan.found
}

/// What an instruction reads: its operands in order, then what its regions capture. Literals that regions read are not
/// among them; a captured operand is there once.
pub fn reads(f: &Function, i: Inst) -> SmallVec<[Value; 8]> {
    let mut all = SmallVec::from_slice(f.args(i));
    for &region in &f.inst(i).regions {
        for v in captures(f, region) {
            if !all.contains(&v) {
                all.push(v);
            }
        }
    }
    all
}

struct CaptureScan<'f> {
    f: &'f Function,
    inside: EntitySet<Value>,
    seen: EntitySet<Value>,
    found: Vec<Value>,
}

impl CaptureScan<'_> {
    fn region(&mut self, region: Region) {
        let f = self.f;
        let data = f.region(region);
        self.inside.extend(data.params.iter().copied());
        for &i in &data.insts {
            f.args(i).iter().for_each(|&v| self.read(v));
            for &r in &f.inst(i).regions {
                self.region(r);
            }
            self.inside.extend(f.inst_results(i).iter().copied());
        }
        data.results.iter().for_each(|&v| self.read(v));
    }

    fn read(&mut self, v: Value) {
        let outside = !self.inside.contains(v) && self.f.literal(v).is_none();
        if outside && self.seen.insert(v) {
            self.found.push(v);
        }
    }
}
