//! Common subexpressions: equal pure instructions of one region or an enclosing one become one.

use crate::entity::{AttrsId, Inst, Region, TypeId, Value};
use crate::function::Function;
use crate::op::Op;
use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;
use hashbrown::HashMap;
use smallvec::SmallVec;

/// What is computed again for a checkpoint region equals only what is so, too.
type InstKey = (Op, AttrsId, SmallVec<[Value; 3]>, SmallVec<[TypeId; 1]>, bool);

/// Replaces every pure instruction by an equal earlier one. The
/// instruction that stays has the lower of both phases and the checkpoint regions around both.
pub fn cse(f: &mut Function) {
    let mut pass = Cse { table: HashMap::new(), replaced: SecondaryMap::new() };
    pass.region(f, f.body());
    super::dce(f);
}

struct Cse {
    table: HashMap<InstKey, Inst>,
    replaced: SecondaryMap<Value, PackedOption<Value>>,
}

impl Cse {
    fn region(&mut self, f: &mut Function, region: Region) {
        let mut added: Vec<InstKey> = Vec::new();
        for k in 0..f.region(region).insts.len() {
            let i = f.region(region).insts[k];
            for slot in 0..f.args(i).len() {
                if let Some(v) = self.replaced[f.args(i)[slot]].expand() {
                    f.set_arg(i, slot, v);
                }
            }
            if !f.inst(i).regions.is_empty() {
                for r in f.inst(i).regions.clone() {
                    self.region(f, r);
                }
                continue;
            }
            if f.op(i).is_effect() || f.op(i) == Op::Call {
                continue;
            }
            let types = f.inst_results(i).iter().map(|&v| f.type_id(v)).collect();
            let (attrs, args) = (f.inst(i).attrs, f.args(i).iter().copied().collect());
            let key = (f.op(i), attrs, args, types, f.path(i).is_again());
            match self.table.get(&key) {
                Some(&earlier) => {
                    // The operands are the same, so what the later one may read the earlier may too.
                    let phase = f.inst(earlier).phase.min(f.inst(i).phase);
                    f.set_phase(earlier, phase);
                    let path = f.path(earlier).common(f.path(i));
                    f.set_path(earlier, path);
                    for k in 0..f.inst_results(i).len() {
                        let (old, new) = (f.inst_results(i)[k], f.inst_results(earlier)[k]);
                        self.replaced[old] = new.into();
                        if f.name_of(new).is_none() {
                            let name = f.name_of(old).map(str::to_string);
                            f.set_name(new, name.as_deref());
                        }
                    }
                }
                None => {
                    if region != f.body() {
                        added.push(key.clone());
                    }
                    self.table.insert(key, i);
                }
            }
        }
        let results = f.region(region).results.clone();
        f.region_mut(region).results =
            results.iter().map(|&v| self.replaced[v].expand().unwrap_or(v)).collect();
        for key in added {
            self.table.remove(&key);
        }
    }
}
