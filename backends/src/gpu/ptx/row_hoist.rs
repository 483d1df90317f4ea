//! Loads that give the same for every row of a chain.

use super::address::{resolved, value};
use super::emit::{At, Emit};
use super::row_group::group;
use super::row_point::Point;
use crate::gpu::schedule::row_residency::pieces;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Param, volume};

/// Does the loads that give the same for every row, before the first: what asks for them again is given
/// what they gave.
pub(crate) fn hoisted(emit: &mut Emit<'_>, p: &Point<'_>) {
    let (layout, team) = (p.layout, p.layout.team);
    for &(s, k) in &layout.hoisted {
        let stage = &layout.kernel.stages[s];
        let n = volume(&stage.axes);
        let Some(Param::Load(loads)) = stage.params.get(k) else { continue };
        for own in pieces(team, stage) {
            let mut vars = p.vars.clone();
            let start = match team.warps() {
                1 => IndexExpr::Const(0),
                _ => {
                    let block = p.warp.clone().plus(own.block);
                    let number = resolved(&block, &emit.same(&vars), &vars);
                    let number = value(&mut emit.asm, &number, &vars, &[]);
                    vars.push(number, n / team.piece).times(team.piece / team.width)
                }
            };
            for turn in 0..own.turns {
                let lanes = team.threads.min(32);
                let place = start.clone().plus(turn * lanes).sum(p.lane.clone());
                let (_, near, _) = group(emit, p, stage, vars.clone(), &place);
                if emit.loaded_where(stage, &near, &|other| other == k).is_empty() {
                    for coords in &near.coords {
                        let at = At { vars: &near.vars, coords };
                        emit.load(loads, stage.program.params[k], &at, &[]);
                    }
                }
            }
        }
    }
}
