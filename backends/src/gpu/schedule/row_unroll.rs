//! Unrolling: how many of a thread's elements of a stage have a text of their own, and how many are loaded before the
//! first is computed.

use super::cooperative_row::LARGE;
use super::place_match::PlaceMatch;
use super::row_decision::StageUnroll;
use super::row_residency::{RowLayout, pieces};
use super::scalar_form::written;
use adfuse_ir::Fp;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Param, Sink};
use adfuse_ir::scalar::ScalarProgram;

/// Instructions of a loop's body that is not written out whole.
const BODY: i64 = 600;
/// Registers of the addresses of one load or store.
const ADDRESS: i64 = 3;
/// Elements that are loaded before the first is computed: at least, and at most.
const INFLIGHT: [i64; 2] = [2, 32];

/// How each stage whose elements threads share is unrolled, where this many registers of a thread are left for loads
/// under way.
pub(crate) fn unrolls(layout: &RowLayout, spare: i64, fp: Fp) -> Vec<StageUnroll> {
    let stages = layout.kernel.stages.iter().enumerate();
    stages.filter(|(_, s)| layout.is_shared(s)).map(|(n, _)| unroll(layout, n, spare, fp)).collect()
}

fn unroll(layout: &RowLayout, number: usize, spare: i64, fp: Fp) -> StageUnroll {
    let stage = &layout.kernel.stages[number];
    let team = layout.team;
    let program = written(&stage.program, fp);
    let turns = most_turns(layout, number);
    let size = program.insts.len() as i64 + 1;
    // Threads of large blocks have few registers for addresses that are far apart.
    let far = far_loads(layout, number, &program);
    let body = if team.block() > LARGE && (team.width == 1 || far) { BODY / 3 } else { BODY };
    let whole = layout.has_registers(stage) || turns * team.width * size <= body;
    let loads =
        stage.params.iter().enumerate().filter(|(k, p)| {
            matches!(p, Param::Load(_) | Param::Tile(_)) && program.reads_param(*k)
        });
    // Addresses take some, too.
    let stores = stage.sinks.iter().filter(|s| matches!(s, Sink::Store { .. })).count();
    let loads = loads.count();
    let inflight = (spare - ADDRESS * (loads + stores) as i64) / (loads as i64 + 1);
    let inflight = (inflight.clamp(INFLIGHT[0], INFLIGHT[1]) / team.width).max(1);
    let text = if whole { turns } else { body / (size * team.width) };
    let matched = PlaceMatch::of(stage, layout.kernel.domain.len()).map(|found| found.param);
    let matched = matched.filter(|_| !layout.has_registers(stage));
    StageUnroll { stage: number, text, inflight, matched }
}

/// Groups of neighbours that a thread has of a piece of a row, at most.
pub(crate) fn most_turns(layout: &RowLayout, number: usize) -> i64 {
    let pieces = pieces(layout.team, &layout.kernel.stages[number]);
    pieces.iter().map(|p| p.turns).max().unwrap_or(1)
}

/// Whether a stage loads elements of rows that were not prefetched.
fn far_loads(layout: &RowLayout, number: usize, program: &ScalarProgram) -> bool {
    let stage = &layout.kernel.stages[number];
    let rank = layout.kernel.domain.len();
    let of_rows =
        |e: &IndexExpr| (rank..rank + stage.axes.len()).any(|a| e.shares(&IndexExpr::axis(a)));
    stage.params.iter().enumerate().any(|(k, param)| match param {
        Param::Load(pieces) => {
            let rows = pieces.iter().any(|piece| piece.index.iter().any(of_rows));
            rows && program.reads_param(k) && layout.reads[number][k].is_none()
        }
        _ => false,
    })
}
