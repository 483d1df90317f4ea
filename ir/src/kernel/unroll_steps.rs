//! Several steps of a loop as one kernel, where a step changes each element of what the loop carries by itself: the
//! element is read once, goes through the steps as a scalar program, and is stored once.

use super::buffer::{Buffer, Extents};
use super::stage::{Kernel, Operand, Param, Sink, Stage};
use crate::index::IndexExpr;
use crate::scalar::{SOp, SVal, ScalarProgram};

/// The most instructions of several steps.
const MOST: usize = 256;

/// The kernel that does as many steps as there are `rows`, to the bit, of one that reads `carry` at each point alone and stores
/// `next` there. Each step reads its row, along a further first axis, of the buffers that `stacked` gives for those that change from step to step.
///
/// `None` where the kernel does more than that.
pub fn several_steps(
    kernel: &Kernel,
    [carry, next]: [Buffer; 2],
    rows: &[i64],
    stacked: &dyn Fn(Buffer) -> Option<Buffer>,
) -> Option<Kernel> {
    let [stage] = kernel.stages.as_slice() else { return None };
    let [Sink::Store { buffer, index }] = stage.sinks.as_slice() else { return None };
    let plain = stage.axes.is_empty() && kernel.rows.is_empty() && kernel.tiles.is_empty();
    let few = stage.program.insts.len().saturating_mul(rows.len()) <= MOST;
    if !plain || !few || *buffer != next || stage.program.outputs.len() != 1 {
        return None;
    }
    let mut carried = None;
    for (k, param) in stage.params.iter().enumerate() {
        let Param::Load(pieces) = param else { return None };
        let [piece] = pieces.as_slice() else { return None };
        if !piece.guards.is_empty() || super::unroll::reads_at_data(param) {
            return None;
        }
        if piece.from == Operand::Buffer(carry) {
            let alone = carried.replace(k).is_none();
            if !alone || piece.index != *index {
                return None;
            }
        }
    }
    let carried = carried?;
    let mut made = Stage {
        axes: Extents::new(),
        params: Vec::new(),
        program: ScalarProgram::default(),
        sinks: stage.sinks.clone(),
    };
    let dtype = stage.program.params[carried];
    let mut now = made.param(stage.params[carried].clone(), dtype);
    for &row in rows {
        let mut params: Vec<SVal> = Vec::with_capacity(stage.params.len());
        for (k, (param, &dtype)) in stage.params.iter().zip(&stage.program.params).enumerate() {
            params.push(match k == carried {
                true => now,
                false => made.param(at_row(param, row, stacked), dtype),
            });
        }
        now = *made.inlined(&stage.program, &params).first()?;
        // What is stored has the type of what is read.
        if made.program.insts[now].dtype != dtype {
            return None;
        }
    }
    if matches!(made.program.insts[now].op, SOp::Param(_)) {
        return None;
    }
    made.program.outputs = [now].into_iter().collect();
    Some(Kernel { stages: vec![made], ..kernel.clone() })
}

/// A load from a row of what stands for its buffer, if anything does.
fn at_row(param: &Param, row: i64, stacked: &dyn Fn(Buffer) -> Option<Buffer>) -> Param {
    let mut param = param.clone();
    if let Param::Load(pieces) = &mut param {
        for piece in pieces {
            if let Operand::Buffer(b) = piece.from
                && let Some(all) = stacked(b)
            {
                piece.from = Operand::Buffer(all);
                piece.index.insert(0, IndexExpr::Const(row));
            }
        }
    }
    param
}
