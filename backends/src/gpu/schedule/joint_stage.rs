//! Stages of equal extents as one: a loop that does what several would, with one launch.

use super::index::has_data;
use adfuse_ir::kernel::{Param, Stage};
use adfuse_ir::scalar::{SInst, SOp, SVal, ScalarProgram};
use cranelift_entity::PrimaryMap;

/// Parameters of a joint stage at most: a thread has each of several neighbours in registers.
const MOST_PARAMS: usize = 16;

/// Stages over the same points, joined as far as a thread has registers for what they read. Those whose places are data stay alone.
pub(crate) fn joint(stages: Vec<Stage>) -> Vec<Stage> {
    let mut found: Vec<Stage> = Vec::new();
    for stage in stages {
        let joins = |before: &&mut Stage| {
            let params = before.params.len() + stage.params.len();
            params <= MOST_PARAMS && is_joined(before) && is_joined(&stage)
        };
        match found.last_mut().filter(joins) {
            Some(before) => append(before, stage),
            None => found.push(stage),
        }
    }
    found
}

/// Whether a stage can share a loop: it has no axes of its own, and no place that it reads or writes depends on what is read.
fn is_joined(stage: &Stage) -> bool {
    let is_read = |param: &Param| matches!(param, Param::Load(_) | Param::Coord(_));
    let mut expressions = stage.params.iter().flat_map(Param::expressions);
    stage.axes.is_empty() && stage.params.iter().all(is_read) && !expressions.any(has_data)
}

/// Adds what a stage reads, computes and stores to another.
fn append(to: &mut Stage, stage: Stage) {
    append_program(&mut to.program, &stage.program);
    to.params.extend(stage.params);
    to.sinks.extend(stage.sinks);
}

/// Adds the instructions and outputs of a program, whose parameters follow those that there are.
fn append_program(to: &mut ScalarProgram, program: &ScalarProgram) {
    let first = to.params.len() as u32;
    to.params.extend(program.params.iter().copied());
    let mut found: PrimaryMap<SVal, SVal> = PrimaryMap::new();
    for inst in program.insts.values() {
        let op = match inst.op {
            SOp::Param(k) => SOp::Param(first + k),
            op => op,
        };
        let args = inst.args.iter().map(|&arg| found[arg]).collect();
        found.push(to.insts.push(SInst { op, args, dtype: inst.dtype }));
    }
    to.outputs.extend(program.outputs.iter().map(|&v| found[v]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::schedule::shape::{axes, load};
    use adfuse_ir::index::IndexExpr;
    use adfuse_ir::kernel::Buffer;
    use adfuse_ir::scalar::{Recorder, eval_one};
    use adfuse_ir::{DType, Literal};

    /// A stage that reads as many buffers, and stores their sum times a number.
    fn stage(buffers: std::ops::Range<u32>, times: f64) -> Stage {
        let params: Vec<Param> =
            buffers.clone().map(|b| load(Buffer::from_u32(b), axes(2))).collect();
        let types = vec![DType::F32; params.len()];
        let program = Recorder::record_any(&types, |x| {
            let sum = x[1..].iter().fold(x[0], |sum, &x| sum + x);
            sum * times
        });
        let own = Stage::storing(DType::F32, Buffer::from_u32(100), DType::F32, axes(2));
        Stage { params, program, ..own }
    }

    #[test]
    fn a_joint_stage_computes_what_each_computes() {
        let found = joint(vec![stage(0..3, 2.0), stage(3..5, 10.0), stage(5..20, 1.0)]);
        // The third has too many parameters to join the others.
        let counts: Vec<_> = found.iter().map(|s| (s.params.len(), s.sinks.len())).collect();
        assert_eq!(counts, [(5, 2), (15, 1)]);
        let values: Vec<Literal> =
            (1..=5).map(|x| Literal::from_f64(DType::F32, x as f64)).collect();
        let program = &found[0].program;
        let of = |k: usize| {
            let alone = ScalarProgram {
                outputs: [program.outputs[k]].into_iter().collect(),
                ..program.clone()
            };
            eval_one(&alone, &values).to_f64()
        };
        assert_eq!([of(0), of(1)], [12.0, 90.0]);
    }

    #[test]
    fn stages_whose_places_are_data_stay_alone() {
        let mut other = stage(0..2, 1.0);
        if let Param::Load(pieces) = &mut other.params[1] {
            pieces[0].index[0] = IndexExpr::Data { param: 0, lo: 0, hi: 1 };
        }
        assert_eq!(joint(vec![stage(0..2, 1.0), other, stage(0..2, 1.0)]).len(), 3);
    }
}
