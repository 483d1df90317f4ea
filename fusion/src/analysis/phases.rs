//! The phase that each instruction serves.

use adfuse_ir::control::reads;
use adfuse_ir::{Function, Inst, Phase, Value, ValueDef};
use cranelift_entity::SecondaryMap;

/// The first phase whose results, or whose instructions, an instruction is needed for: a partial derivative
/// may be of the forward pass, and of no use to it.
pub(crate) fn served(f: &Function) -> SecondaryMap<Inst, Phase> {
    let mut needed: SecondaryMap<Value, Option<Phase>> = SecondaryMap::new();
    let mut serves: SecondaryMap<Inst, Phase> = SecondaryMap::new();
    for &v in f.results() {
        if let ValueDef::Inst(i, _) = f.def(v) {
            needed[v] = Some(f.inst(i).phase);
        }
    }
    for &i in f.body_insts().iter().rev() {
        let own = f.inst(i).phase;
        let first = f.inst_results(i).iter().filter_map(|&v| needed[v]).min();
        serves[i] = own.max(first.unwrap_or(own));
        for a in reads(f, i) {
            needed[a] = Some(needed[a].map_or(serves[i], |p| p.min(serves[i])));
        }
    }
    serves
}
