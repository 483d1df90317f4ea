//! Replaces every function of a scalar program by primitives, and drops what no output needs.

use super::math;
use super::program::{Func, SOp, ScalarProgram};
use super::record::{Recorder, S};
use crate::dtype::DType;
use smallvec::SmallVec;

/// The same program with every [`Func`](super::Func) written out in primitives.
///
/// The expansion depends on the element type alone, so each engine that runs the result gives the
/// same bits.
pub fn expand(program: &ScalarProgram) -> ScalarProgram {
    expand_but(program, |_, _| false)
}

/// The same, with the functions left as they are that `keep` names, by the type of their operands: those that
/// an engine has itself.
pub fn expand_but(program: &ScalarProgram, keep: impl Fn(Func, DType) -> bool) -> ScalarProgram {
    let live = program.live();
    Recorder::rerecord(program, |recorder, params| {
        let mut map: Vec<Option<S<'_>>> = Vec::with_capacity(program.insts.len());
        for (v, inst) in program.insts.iter() {
            if !live[v.as_u32() as usize] {
                map.push(None);
                continue;
            }
            let args: SmallVec<[S<'_>; 3]> = inst
                .args
                .iter()
                .map(|a| map[a.as_u32() as usize].expect("operands of live values are live"))
                .collect();
            map.push(Some(match inst.op {
                SOp::Param(k) => params[k as usize],
                SOp::Func(func) if !keep(func, inst.dtype) => math::write(func, &args),
                op => recorder.push(op, &args, inst.dtype),
            }));
        }
        let get = |o: &super::SVal| map[o.as_u32() as usize].expect("outputs are live");
        program.outputs.iter().map(get).collect()
    })
}
