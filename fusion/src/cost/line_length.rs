//! The length of lines: how many elements a loop over vectors has before an access goes on elsewhere.

use super::access_cost::{memory_step, step};
use super::footprint::{IterationSpace, Mask};
use adfuse_ir::kernel::{Operand, Param, Program, Sink, Stage};

/// Innermost axes of these extents are merged with the next axis whatever steps along them: elements are shuffled.
const SHUFFLED: [i64; 2] = [2, 4];

/// Elements of a stage's lines along axis `inner`. Axes merge if every access steps over both as over one.
pub(super) fn line(program: &Program, stage: &Stage, places: &IterationSpace, inner: usize) -> u64 {
    let extents = places.extents();
    let masks = places.params(&stage.params);
    let accesses = accesses(program, stage, places, &masks);
    let Some(&first) = extents.get(inner) else { return 1 };
    let (mut length, mut axis) = (first, inner);
    for outer in (0..inner).rev().filter(|&a| extents[a] > 1) {
        let shuffled = axis == inner && SHUFFLED.contains(&first);
        let one = |by: &dyn Fn(usize) -> Option<i64>| {
            let (inside, outside) = (by(axis), by(outer));
            let fixed = shuffled && inside == Some(0);
            let extent = extents[axis];
            inside.is_some() && (fixed || outside == inside.and_then(|s| s.checked_mul(extent)))
        };
        if !accesses.iter().all(|by| one(&**by)) {
            break;
        }
        length = length.saturating_mul(extents[outer]);
        axis = outer;
    }
    length.unsigned_abs()
}

/// By how many elements an access goes on with a coordinate; `None` where that differs from place to place.
type AxisStep<'a> = Box<dyn Fn(usize) -> Option<i64> + 'a>;

/// Loads and stores of buffers. Tiles lie as the stage goes through them.
fn accesses<'a>(
    program: &'a Program,
    stage: &'a Stage,
    places: &'a IterationSpace,
    masks: &'a [Mask],
) -> Vec<AxisStep<'a>> {
    let mut all: Vec<AxisStep<'a>> = Vec::new();
    for param in &stage.params {
        match param {
            Param::Load(pieces) => {
                for piece in pieces {
                    if let Operand::Buffer(b) = piece.from
                        && let Some(data) = program.buffers.get(b)
                    {
                        all.push(Box::new(|a| memory_step(data, &piece.index, a, masks)));
                    }
                    // A guard holds all along a line, or cuts it.
                    for guard in &piece.guards {
                        all.push(Box::new(|a| step(&guard.expr, a, masks)));
                    }
                }
            }
            Param::Row(_) => {
                // One for each point, row-major.
                let domain = places.extents().len().saturating_sub(stage.axes.len());
                let points = places.extents().get(..domain).unwrap_or_default();
                let after = |a| points.get(a + 1..).map_or(0, |rest| rest.iter().product());
                all.push(Box::new(move |a| Some(after(a))));
            }
            Param::Coord(e) => all.push(Box::new(|a| step(e, a, masks))),
            Param::Tile(_) | Param::Sum => {}
        }
    }
    for sink in &stage.sinks {
        if let Sink::Store { buffer, index } = sink
            && let Some(data) = program.buffers.get(*buffer)
        {
            all.push(Box::new(|a| memory_step(data, index, a, masks)));
        }
    }
    all
}
