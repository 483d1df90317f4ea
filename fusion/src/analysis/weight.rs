//! The cost of a scalar program.

use adfuse_ir::DType;
use adfuse_ir::scalar::{Func, SInst, SOp, ScalarProgram, expand};
use smallvec::SmallVec;
use std::sync::OnceLock;

/// Primitives of a program, functions written out.
pub(crate) fn weight(program: &ScalarProgram) -> u32 {
    let live = program.live();
    let of = |inst: &SInst| match inst.op {
        SOp::Param(_) | SOp::Const(_) => 0,
        SOp::Prim(p) => p.def().weight,
        SOp::Func(f) => func_weight(f),
    };
    let live = program.insts.values().zip(&live).filter(|&(_, &l)| l);
    live.map(|(i, _)| of(i)).sum()
}

/// Primitives of a function in `f32`; counted once.
fn func_weight(func: Func) -> u32 {
    static ALL: [OnceLock<u32>; Func::ALL.len()] = [const { OnceLock::new() }; Func::ALL.len()];
    let make = || {
        let mut program = ScalarProgram::default();
        for k in 0..func.arity() {
            program.params.push(DType::F32);
            let op = SOp::Param(k as u32);
            program.insts.push(SInst { op, args: SmallVec::new(), dtype: DType::F32 });
        }
        let args = program.insts.keys().collect();
        let y = program.insts.push(SInst { op: SOp::Func(func), args, dtype: DType::F32 });
        program.outputs.push(y);
        expand(&program).insts.len() as u32
    };
    match func.index().and_then(|k| ALL.get(k)) {
        Some(of) => *of.get_or_init(make),
        None => make(),
    }
}
