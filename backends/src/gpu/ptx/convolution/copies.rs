//! Copies of boxes to shared memory, past the registers: lanes have neighbours of a line, and zeros stand for what is not read.

use super::WindowKernel;
use crate::gpu::ptx::address::{Truth, Vars, holds, resolved, value};
use crate::gpu::ptx::asm::{Class, Reg, guard_prefix};
use crate::gpu::ptx::emit::Emit;
use crate::gpu::schedule::box_word::{BoxWord, PairedDim};
use crate::gpu::schedule::convolution::place;
use crate::gpu::schedule::index::{coordinates, range, split};
use crate::gpu::schedule::staged_box::{BoxOperand, CopyTeams, DEEP, OWN, StagedBox};
use adfuse_ir::index::{Guard, IndexExpr};
use adfuse_ir::kernel::volume;

/// The box of a step.
pub(super) struct BoxWalk<'b> {
    pub(super) operand: &'b BoxOperand,
    pub(super) staged: &'b StagedBox,
    /// Of each dimension the first place of the box, and the coordinates' part of it without the batch's.
    pub(super) starts: Vec<(IndexExpr, IndexExpr)>,
    /// Words of a stage before it.
    before: i64,
}

/// Neighbours of a line that one thread has.
pub(super) struct BoxUnit {
    /// The variables of the expressions below.
    pub(super) vars: Vars,
    /// The coordinates of the line along the dimensions before it.
    pub(super) at: Vec<IndexExpr>,
    /// The number of the lane in its team, and elements of the line before the first unit of a turn.
    lane: IndexExpr,
    on: i64,
    /// Where it is in shared memory: a register, and bytes.
    pub(super) to: Reg,
    pub(super) offset: i64,
    /// Whether there is that unit.
    pub(super) when: Option<Reg>,
    /// What holds where it is read.
    pub(super) guards: Vec<Guard>,
}

impl WindowKernel<'_> {
    /// Begins to copy the boxes `ahead` steps on, where that is one, to the stage that is this many bytes in.
    pub(super) fn copy(
        &self,
        emit: &mut Emit<'_>,
        (step, ahead, end): (Reg, i64, Reg),
        stage: Reg,
    ) {
        let (on, more) = (emit.asm.fresh(Class::Word), emit.asm.fresh(Class::Pred));
        emit.asm.emit(format_args!("add.s32 {on}, {step}, {ahead}"));
        emit.asm.emit(format_args!("setp.lt.s32 {more}, {on}, {end}"));
        emit.when(Some(more), |emit| {
            let (deep, vars) = self.deep(emit, on);
            for side in 0..2 {
                self.copy_box(emit, side, (&deep, &vars), stage);
            }
        });
        emit.asm.emit("cp.async.commit_group");
    }

    /// The number of a step along each axis of the depth, with the variables that it is made of.
    pub(super) fn deep(&self, emit: &mut Emit<'_>, step: Reg) -> (Vec<IndexExpr>, Vars) {
        let tiling = &self.product.tiling;
        let mut vars = self.vars.clone();
        let step = vars.push(step, tiling.steps);
        // Each in a register of its own.
        let deep = coordinates(&step, &tiling.tiles[2]).into_iter().zip(&tiling.tiles[2]);
        let deep = deep.map(|(e, &n)| {
            let number = self.number(emit, &e, &vars);
            vars.push(number, n)
        });
        (deep.collect(), vars)
    }

    fn copy_box(
        &self,
        emit: &mut Emit<'_>,
        side: usize,
        (deep, vars): (&[IndexExpr], &Vars),
        stage: Reg,
    ) {
        let walk = self.box_walk(side, deep);
        let operand = walk.operand;
        let element = operand.dims.iter().zip(&walk.starts);
        let element = element.fold(IndexExpr::Const(operand.origin), |sum, (dim, (start, _))| {
            sum.sum(start.clone().times(dim.stride))
        });
        let element = resolved(&element, &emit.same(vars), vars);
        let size = operand.word.strided_bytes();
        let address = emit.address(operand.buffer, &element, size.unsigned_abs(), vars, &[]);
        let from = emit.moving(&address);
        let near = operand.dims.last().map_or(1, |dim| dim.stride);
        let StagedBox { unit, .. } = *walk.staged;
        let bytes = operand.word.copied_bytes(unit);
        for turn in self.turns(&walk) {
            let found = self.unit(emit, (&walk, vars), stage, turn);
            let outer = found.at.iter().zip(&operand.dims);
            let element = outer.fold(found.lane.clone().times(unit * near), |sum, (at, dim)| {
                sum.sum(at.clone().times(dim.stride))
            });
            let (element, far) = split(&resolved(&element, &emit.same(&found.vars), &found.vars));
            let element = value(&mut emit.asm, &element, &found.vars, &[]);
            let op = if element.class == Class::Word { "mad.wide.s32" } else { "mad.lo.s64" };
            let source = emit.asm.pure(Class::Long, op, format_args!("{element}, {size}, {from}"));
            let BoxUnit { to, offset, on, ref guards, .. } = found;
            let far = size * (far + on * near);
            copy_unit(emit, &found, guards, ([(to, offset), (source, far)], bytes));
            if let BoxWord::Apart(paired) = operand.word {
                let guards = walk.second_guards(&found, &paired);
                let places = [(to, offset + bytes), (source, far + size * paired.step)];
                copy_unit(emit, &found, &guards, (places, bytes));
            }
        }
    }

    /// The boxes of an operand at a step whose number along each axis of the depth is given.
    pub(super) fn box_walk(&self, side: usize, deep: &[IndexExpr]) -> BoxWalk<'_> {
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
        let before = if side == 0 { 0 } else { self.product.tiling.boxes[0].words() };
        BoxWalk { operand, staged, starts: starts.collect(), before }
    }

    /// Each unit that a thread has of a box, as the turns for lines and for units of a line: teams of lanes have a line each, one turn
    /// after the other.
    pub(super) fn turns(&self, walk: &BoxWalk<'_>) -> impl Iterator<Item = [i64; 2]> + use<> {
        let CopyTeams { turns, units, .. } = walk.staged.teams(self.product.tiling.threads);
        (0..turns).flat_map(move |turn| (0..units).map(move |k| [turn, k]))
    }

    /// The unit of a turn, in the stage that is this many bytes in.
    pub(super) fn unit(
        &self,
        emit: &mut Emit<'_>,
        (walk, vars): (&BoxWalk<'_>, &Vars),
        stage: Reg,
        [turn, k]: [i64; 2],
    ) -> BoxUnit {
        let StagedBox { inner, pitch, room, unit, ref places, .. } = *walk.staged;
        let to = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
        let to = emit.asm.pure(Class::Word, "add.s32", format_args!("{to}, {stage}"));
        let teams = walk.staged.teams(self.product.tiling.threads);
        let lane = self.thread.clone().modulo(teams.lanes);
        let extents: Vec<i64> = places[..inner].iter().map(|(n, _)| *n).collect();
        let mut vars = vars.clone();
        let (at, there) = self.line_of(emit, walk.staged, turn, &mut vars);
        let numbered = |dims: usize| {
            let all = at.iter().zip(&extents).take(dims);
            all.fold(IndexExpr::Const(0), |n, (at, &m)| n.times(m).sum(at.clone()))
        };
        let rooms = numbered(inner.saturating_sub(1)).times(room);
        let place = numbered(inner).times(pitch).sum(rooms).sum(lane.clone().times(unit));
        let (place, further) = split(&resolved(&place, &emit.same(&vars), &vars));
        let place = value(&mut emit.asm, &place, &vars, &[]);
        let bytes = walk.operand.word.place_bytes();
        let to = emit.asm.pure(Class::Word, "mad.lo.s32", format_args!("{place}, {bytes}, {to}"));
        let on = k * teams.lanes * unit;
        let has = self.has_unit(emit, walk.staged, &teams, k);
        let when = emit.all(there, has);
        let guards = walk.guards(&at, &lane.clone().plus(k * teams.lanes));
        let offset = 4 * walk.before + bytes * (further + on);
        BoxUnit { vars, at, lane, on, to, offset, when, guards }
    }

    /// The coordinates of a team's line along the dimensions before it, and whether there is that line.
    pub(super) fn line_of(
        &self,
        emit: &mut Emit<'_>,
        staged: &StagedBox,
        turn: i64,
        vars: &mut Vars,
    ) -> (Vec<IndexExpr>, Option<Reg>) {
        let teams = staged.teams(self.product.tiling.threads);
        let extents: Vec<i64> = staged.places[..staged.inner].iter().map(|(n, _)| *n).collect();
        let team = self.thread.clone().floor_div(teams.lanes);
        let (number, all) = match teams.along {
            // One line after the other of the box.
            None => (team.plus(turn * teams.teams), volume(&extents)),
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
            return (coordinates(&number, &extents), there);
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

/// Begins to copy this many bytes of a unit, or zeros where guards do not hold: to a place in shared memory, from one in memory, each a
/// register and bytes.
fn copy_unit(
    emit: &mut Emit<'_>,
    found: &BoxUnit,
    guards: &[Guard],
    ([to, from], bytes): ([(Reg, i64); 2], i64),
) {
    let BoxUnit { vars, when, .. } = found;
    let same = emit.same(vars);
    let zeros = match holds(&mut emit.asm, guards, &same, vars, &[]) {
        Truth::Always => String::new(),
        Truth::Never => ", 0".to_owned(),
        Truth::When(p) => {
            let there = emit.asm.pure(Class::Word, "selp.b32", format_args!("{bytes}, 0, {p}"));
            format!(", {there}")
        }
    };
    let kind = if bytes == 16 { "cg" } else { "ca" };
    let when = guard_prefix(*when);
    let places = format!("[{}+{}], [{}+{}], {bytes}", to.0, to.1, from.0, from.1);
    emit.asm.emit(format_args!("{when}cp.async.{kind}.shared.global {places}{zeros}"));
}

impl BoxWalk<'_> {
    /// What holds where the second elements of a unit's words are read.
    fn second_guards(&self, unit: &BoxUnit, paired: &PairedDim) -> Vec<Guard> {
        let PairedDim { dim, whole, .. } = *paired;
        let there = whole.map(|whole| {
            let (start, _) = &self.starts[dim];
            Guard { expr: start.clone().sum(unit.at[dim].clone()), range: 0..whole }
        });
        unit.guards.iter().cloned().chain(there).collect()
    }

    /// What holds where the element of a line, whose coordinates along the dimensions before are these, is read.
    fn guards(&self, at: &[IndexExpr], unit: &IndexExpr) -> Vec<Guard> {
        let StagedBox { inner, unit: wide, ref places, .. } = *self.staged;
        let within: i64 = volume(places[inner + 1..].iter().map(|(n, _)| n));
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
