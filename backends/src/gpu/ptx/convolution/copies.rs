//! Copies of boxes to shared memory, past the registers: lanes have neighbours of a line, and zeros stand for what is not read.

use super::WindowKernel;
use crate::gpu::ptx::address::{Truth, Vars, holds, resolved, value};
use crate::gpu::ptx::asm::{Class, Reg, guard_prefix};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::schedule::convolution::{elements, place};
use crate::gpu::schedule::index::{coordinates, range, split};
use crate::gpu::schedule::staged_box::{BoxOperand, CopyTeams, DEEP, OWN, StagedBox};
use adfuse_ir::index::{Guard, IndexExpr};

/// A box on its way.
struct BoxCopy<'b> {
    operand: &'b BoxOperand,
    staged: &'b StagedBox,
    /// Of each dimension the first place of the box, and the coordinates' part of it without the batch's.
    starts: Vec<(IndexExpr, IndexExpr)>,
}

impl WindowKernel<'_> {
    /// Begins to copy the boxes `ahead` steps on, where that is one, to the stage that is this many bytes in.
    pub(super) fn copy(
        &self,
        emit: &mut Emit<'_>,
        (step, ahead, end): (Reg, i64, Reg),
        stage: Reg,
    ) {
        let tiling = &self.product.tiling;
        let (on, more) = (emit.asm.fresh(Class::Word), emit.asm.fresh(Class::Pred));
        emit.asm.emit(format_args!("add.s32 {on}, {step}, {ahead}"));
        emit.asm.emit(format_args!("setp.lt.s32 {more}, {on}, {end}"));
        emit.when(Some(more), |emit| {
            let mut vars = self.vars.clone();
            let on = vars.push(on, tiling.steps);
            // The number along each axis, in a register of its own.
            let deep: Vec<IndexExpr> = coordinates(&on, &tiling.tiles[2])
                .iter()
                .zip(&tiling.tiles[2])
                .map(|(e, &n)| {
                    let number = self.number(emit, e, &vars);
                    vars.push(number, n)
                })
                .collect();
            for side in 0..2 {
                self.copy_box(emit, side, (&deep, &vars), stage);
            }
        });
        emit.asm.emit("cp.async.commit_group");
    }

    fn copy_box(
        &self,
        emit: &mut Emit<'_>,
        side: usize,
        (deep, vars): (&[IndexExpr], &Vars),
        stage: Reg,
    ) {
        let (operand, staged) =
            (&self.product.form.operands[side], &self.product.tiling.boxes[side]);
        let numbers = [&self.batch[..], &self.tile[side], deep];
        let starts = operand.dims.iter().zip(&staged.places).map(|(dim, (_, before))| {
            let part = |part: usize| {
                let sides = |a: usize| if part == 0 { 1 } else { staged.tile[part - 1][a] };
                let all = dim.factors[part].iter().zip(numbers[part]).enumerate();
                all.fold(IndexExpr::Const(0), |sum, (a, (f, n))| {
                    sum.sum(n.clone().times(f * sides(a)))
                })
            };
            let own = part(OWN).sum(part(DEEP)).plus(*before);
            (own.clone().sum(part(0)).plus(dim.base), own)
        });
        let copy = BoxCopy { operand, staged, starts: starts.collect() };
        let element = operand.dims.iter().zip(&copy.starts);
        let element = element.fold(IndexExpr::Const(operand.origin), |sum, (dim, (start, _))| {
            sum.sum(start.clone().times(dim.stride))
        });
        let element = resolved(&element, &emit.same(vars), vars);
        let address = emit.address(operand.buffer, &element, 4, vars, &[]);
        let from = emit.moving(&address);
        let before = if side == 0 { 0 } else { self.product.tiling.boxes[0].words() };
        let to = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
        let to = emit.asm.pure(Class::Word, "add.s32", format_args!("{to}, {stage}"));
        self.copy_lines(emit, &copy, vars, (from, to, 4 * before));
    }

    /// Teams of lanes copy a line each, one turn after the other.
    fn copy_lines(
        &self,
        emit: &mut Emit<'_>,
        copy: &BoxCopy<'_>,
        vars: &Vars,
        (from, to, offset): (Reg, Reg, i64),
    ) {
        let StagedBox { inner, pitch, room, unit, ref places, .. } = *copy.staged;
        let teams = copy.staged.teams(self.product.tiling.threads);
        let lane = self.thread.clone().modulo(teams.lanes);
        let near = copy.operand.dims.last().map_or(1, |dim| dim.stride);
        let extents: Vec<i64> = places[..inner].iter().map(|(n, _)| *n).collect();
        for turn in 0..teams.turns {
            let mut vars = vars.clone();
            let (at, there) = self.line_of(emit, (&extents, &teams), turn, &mut vars);
            let outer = at.iter().zip(&copy.operand.dims);
            let element = outer.fold(lane.clone().times(unit * near), |sum, (at, dim)| {
                sum.sum(at.clone().times(dim.stride))
            });
            let numbered = |dims: usize| {
                let all = at.iter().zip(&extents).take(dims);
                all.fold(IndexExpr::Const(0), |n, (at, &m)| n.times(m).sum(at.clone()))
            };
            let rooms = numbered(inner.saturating_sub(1)).times(room);
            let place = numbered(inner).times(pitch).sum(rooms).sum(lane.clone().times(unit));
            let [(element, far), (place, further)] =
                [element, place].map(|e| split(&resolved(&e, &emit.same(&vars), &vars)));
            let element = value(&mut emit.asm, &element, &vars, &[]);
            let op = if element.class == Class::Word { "mad.wide.s32" } else { "mad.lo.s64" };
            let source = emit.asm.pure(Class::Long, op, format_args!("{element}, 4, {from}"));
            let place = value(&mut emit.asm, &place, &vars, &[]);
            let target = emit.asm.pure(Class::Word, "mad.lo.s32", format_args!("{place}, 4, {to}"));
            for k in 0..teams.units {
                let on = k * teams.lanes * unit;
                let unit_place = lane.clone().plus(k * teams.lanes);
                let has = self.has_unit(emit, copy.staged, &teams, k);
                let when = emit.all(there, has);
                let places = format!(
                    "[{target}+{}], [{source}+{}], {}",
                    offset + 4 * (further + on),
                    4 * (far + on * near),
                    4 * unit
                );
                let guards = copy.guards(&at, &unit_place);
                copy_unit(emit, (&guards, &vars), when, (&places, unit));
            }
        }
    }

    /// The coordinates of a team's line along the dimensions before it, and whether there is that line.
    fn line_of(
        &self,
        emit: &mut Emit<'_>,
        (extents, teams): (&[i64], &CopyTeams),
        turn: i64,
        vars: &mut Vars,
    ) -> (Vec<IndexExpr>, Option<Reg>) {
        let team = self.thread.clone().floor_div(teams.lanes);
        let (number, all) = match teams.along {
            // One line after the other of the box.
            None => (team.plus(turn * teams.teams), elements(extents)),
            Some(k) => {
                let through = (extents[k] + teams.teams - 1) / teams.teams;
                (team.plus(turn % through * teams.teams), extents[k])
            }
        };
        let number_of = self.number(emit, &number, vars);
        let (_, most) = range(&resolved(&number, &emit.same(vars), vars), &vars.extents);
        let there = (most >= i128::from(all))
            .then(|| emit.asm.pure(Class::Pred, "setp.lt.s32", format_args!("{number_of}, {all}")));
        let Some(along) = teams.along else {
            let number = vars.push(number_of, (turn + 1) * teams.teams);
            return (coordinates(&number, extents), there);
        };
        let through = (extents[along] + teams.teams - 1) / teams.teams;
        let others: Vec<i64> =
            extents.iter().enumerate().map(|(k, &n)| if k == along { 1 } else { n }).collect();
        let at = place(turn / through, &others).iter().map(|&n| IndexExpr::Const(n)).collect();
        let mut at: Vec<IndexExpr> = at;
        at[along] = number;
        (at, there)
    }

    /// Whether a lane has a unit of its team's line in a turn, where not all have.
    fn has_unit(
        &self,
        emit: &mut Emit<'_>,
        staged: &StagedBox,
        teams: &CopyTeams,
        turn: i64,
    ) -> Option<Reg> {
        let units = staged.line / staged.unit;
        ((turn + 1) * teams.lanes > units).then(|| {
            let lane = self.thread.clone().modulo(teams.lanes);
            let n = self.number(emit, &lane, &self.vars);
            let left = units - turn * teams.lanes;
            emit.asm.pure(Class::Pred, "setp.lt.s32", format_args!("{n}, {left}"))
        })
    }
}

/// Begins to copy a unit, or zeros where guards do not hold.
fn copy_unit(
    emit: &mut Emit<'_>,
    (guards, vars): (&[Guard], &Vars),
    when: Option<Reg>,
    (places, unit): (&str, i64),
) {
    let same = emit.same(vars);
    let zeros = match holds(&mut emit.asm, guards, &same, vars, &[]) {
        Truth::Always => String::new(),
        Truth::Never => ", 0".to_owned(),
        Truth::When(p) => {
            let bytes =
                emit.asm.pure(Class::Word, "selp.b32", format_args!("{}, 0, {p}", 4 * unit));
            format!(", {bytes}")
        }
    };
    let kind = if unit == 4 { "cg" } else { "ca" };
    let when = guard_prefix(when);
    emit.asm.emit(format_args!("{when}cp.async.{kind}.shared.global {places}{zeros}"));
}

impl BoxCopy<'_> {
    /// What holds where the element of a line, whose coordinates along the dimensions before are these, is read.
    fn guards(&self, at: &[IndexExpr], unit: &IndexExpr) -> Vec<Guard> {
        let StagedBox { inner, unit: wide, ref places, .. } = *self.staged;
        let within: i64 =
            elements(&places[inner + 1..].iter().map(|(n, _)| *n).collect::<Vec<_>>());
        let first = unit.clone().times(wide).floor_div(within);
        let mut found = Vec::new();
        for (k, dim) in self.operand.dims.iter().enumerate().take(inner + 1) {
            let further = if k < inner { &at[k] } else { &first };
            let (start, own) = &self.starts[k];
            let tests = self.staged.tests[k];
            if tests.reach {
                let range = dim.reach(&self.operand.extents);
                found.push(Guard { expr: own.clone().sum(further.clone()), range });
            }
            if tests.read {
                let range = dim.read.clone();
                found.push(Guard { expr: start.clone().sum(further.clone()), range });
            }
        }
        found
    }
}
