//! Lowers a loop nest to a loop program: a loop over lines of the innermost axis, what does not change along a line,
//! and groups and elements along it.

use super::fission;
use super::interleave::Interleaving;
use super::loop_ir::{Access, GuardedSource, LoadSource, LoopNest, ParamRead, VectorAccess};
use super::loop_program::{
    GridGuard, GridSteps, GroupRead, GroupWrite, LoopOp, LoopProgram, LoopStmt, LoopVal,
};
use super::program_builder::{LineState, ProgramBuilder};
use super::short_axes::{GridSource, NOWHERE};
use super::unused::without_unused;
use super::{nontemporal, vectorize};

/// What vectors of an emitter do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GroupTarget {
    /// Groups are whole, and single elements are what is left. There may be no groups.
    Whole(Option<Interleaving>),
    /// Groups of this many elements may be partial.
    Partial { lanes: u32 },
}

/// The loop program of a nest.
pub(crate) fn lower(p: &LoopNest, target: GroupTarget) -> LoopProgram {
    let lanes = match target {
        GroupTarget::Whole(Some(_)) => vectorize::QUAD,
        GroupTarget::Whole(None) => 1,
        GroupTarget::Partial { lanes } => lanes,
    };
    let mut b = ProgramBuilder::new(p, lanes);
    b.apart = group_step(p, lanes);
    b.find_tiles(target);
    b.turns([LoopVal::BEGIN], LoopVal::END, |b, [place]| [b.lines_from(place, target)]);
    let code = b.finish();
    let program = LoopProgram {
        lanes,
        apart: b.apart,
        body: p.body.clone(),
        order: p.order.clone(),
        cuts: Vec::new(),
        reads: b.reads,
        writes: b.writes,
        tiles: b.tiles,
        code,
    };
    let program = without_unused(program);
    match target {
        GroupTarget::Whole(_) => program,
        GroupTarget::Partial { .. } => fission::in_parts(program, p.line_length()),
    }
}

/// How far a group is from the one before: every group begins at coordinate 0 of the inner axes of grids.
fn group_step(p: &LoopNest, lanes: u32) -> u32 {
    let within = p.grid().and_then(|within| u32::try_from(within).ok());
    within.map_or(lanes, |within| lanes / within.max(1) * within)
}

impl ProgramBuilder<'_> {
    /// A line from a place on, which is at a coordinate of the innermost axis, to its end or that of all places; gives the
    /// place behind it.
    pub(crate) fn one_line(
        &mut self,
        [place, low]: [LoopVal; 2],
        end: LoopVal,
        outer: Vec<LoopVal>,
        target: GroupTarget,
    ) -> LoopVal {
        let length = self.int(self.p.line_length());
        let (rest, left) = (self.sub(length, low), self.sub(end, place));
        let count = self.min(rest, left);
        let high = self.add(low, count);
        self.line = LineState { outer, in_tile: self.line.in_tile, ..LineState::default() };
        self.fixed_params();
        match target {
            GroupTarget::Whole(groups) => self.whole_line([low, high], groups),
            GroupTarget::Partial { .. } => self.partial_line([low, high]),
        }
        self.add(place, count)
    }

    /// The coordinates of a line.
    pub(crate) fn outer(&mut self, line: LoopVal) -> Vec<LoopVal> {
        let p = self.p;
        let mut rest = line;
        let mut outer = Vec::new();
        for (k, &n) in p.walk.extents.iter().enumerate().take(p.inner()).rev() {
            if k == 0 {
                outer.push(rest);
                continue;
            }
            let quotient = self.div(rest, n);
            let product = self.mul(quotient, n);
            outer.push(self.sub(rest, product));
            rest = quotient;
        }
        outer.reverse();
        outer
    }

    /// The parameters that do not change along a line.
    fn fixed_params(&mut self) {
        let p = self.p;
        self.line.params = vec![None; p.reads.len()];
        // In order: data is read before what it names.
        for k in 0..p.reads.len() {
            if !p.varies[k] {
                self.reads[k] = GroupRead::Fixed;
                let params = self.line.params.clone();
                self.line.params[k] = Some(self.read(k, None, &params));
            }
        }
    }

    /// What is known of the body before its loops.
    pub(crate) fn invariants(&mut self) {
        let p = self.p;
        let known = self.line.params.iter().zip(p.body.params_read()).enumerate();
        let known = known.filter(|(_, (_, is_read))| *is_read);
        let params = known.filter_map(|(k, (v, _))| Some((k, (*v)?))).collect();
        self.push(LoopStmt::Invariants { params });
    }

    /// How groups read a parameter that changes along the line; `None` where that is lane by lane.
    pub(crate) fn group_read(&mut self, k: usize) -> Option<GroupRead> {
        let p = self.p;
        Some(match (p.loads[k], &p.reads[k]) {
            (VectorAccess::Coord, ParamRead::Coord(form)) => {
                GroupRead::Coord { first: self.fixed_form(*form), steps: p.line_steps(*form) }
            }
            (VectorAccess::Guarded, _) => {
                let (pointer, along) = self.line.chosen.get(k).copied().flatten()?;
                GroupRead::Chosen { pointer, along }
            }
            (reach, ParamRead::Guarded(sources)) => {
                let a = sources.first()?.from.array()?;
                match (reach, a.packed) {
                    (VectorAccess::Even, None) => match self.tile_line(k) {
                        Some(pointer) => GroupRead::Even { pointer, step: 1 },
                        None => {
                            let pointer = self.line_pointer(a);
                            GroupRead::Even { pointer, step: p.step(a.form) }
                        }
                    },
                    (VectorAccess::Packed, Some(bits)) => {
                        let pointer = self.op(LoopOp::Pointer(a.at));
                        GroupRead::Packed { bits, pointer, first: self.fixed_form(a.form) }
                    }
                    (VectorAccess::Bits, Some(1)) => {
                        let pointer = self.op(LoopOp::Pointer(a.at));
                        let (first, step) = (self.fixed_form(a.form), p.step(a.form));
                        GroupRead::Bits { pointer, first, step }
                    }
                    (VectorAccess::Grid, None) => self.grid_read(sources)?,
                    (VectorAccess::Masked, None) => self.masked_read(a, sources)?,
                    (VectorAccess::Placed, None) => {
                        let rest = sources.get(1).map(|rest| &rest.from);
                        let rest = rest.and_then(|rest| match rest {
                            LoadSource::Literal(l) => Some(*l),
                            LoadSource::Array(_) => None,
                        });
                        GroupRead::Placed { pointer: self.line_pointer(a), rest }
                    }
                    _ => return None,
                }
            }
            _ => return None,
        })
    }

    fn masked_read(&mut self, a: &Access, sources: &[GuardedSource]) -> Option<GroupRead> {
        let LoadSource::Literal(rest) = sources.last()?.from else { return None };
        let pointer = self.line_pointer(a);
        let (low, high) = self.between(&sources.first()?.guards)?;
        Some(GroupRead::Masked { pointer, low, high, rest })
    }

    fn grid_read(&mut self, sources: &[GuardedSource]) -> Option<GroupRead> {
        let p = self.p;
        let GridSource { array, guards, rest } = GridSource::of(sources)?;
        let pointer = self.line_pointer(array);
        let mut all: Vec<GridGuard> = Vec::new();
        // What is the same all along a line is asked once: -1 where all such guards hold, else 0.
        let mut still: Option<(LoopVal, GridSteps)> = None;
        for (form, range) in guards {
            let (first, steps) = (self.fixed_form(*form), p.grid_steps(*form));
            let (low, count) = (range.start, range.end.saturating_sub(range.start).max(0));
            if steps.is_still() {
                let holds = self.op(LoopOp::Within(first, low, count));
                let both = match still {
                    Some((others, _)) => self.op(LoopOp::And(others, holds)),
                    None => holds,
                };
                still = Some((both, steps));
                continue;
            }
            all.push(GridGuard { first, steps, low, count });
        }
        if let Some((holds, steps)) = still {
            match all.iter_mut().find(|guard| guard.steps.outer != 0) {
                Some(guard) => {
                    let fails = self.plus(holds, 1);
                    let away = self.mul(fails, NOWHERE);
                    guard.first = self.add(guard.first, away);
                }
                None => all.push(GridGuard { first: holds, steps, low: -1, count: 1 }),
            }
        }
        Some(GroupRead::Grid { pointer, steps: p.grid_steps(array.form), guards: all, rest })
    }

    fn line_pointer(&mut self, a: &Access) -> LoopVal {
        self.pointer(a.at, a.form, a.dtype.bytes() as i64)
    }

    /// Where groups write the outputs that do not fold.
    pub(crate) fn group_writes(&mut self) {
        let p = self.p;
        let far = nontemporal::outputs(p, self.lanes);
        for (k, a) in p.writes.iter().enumerate().filter(|(k, _)| p.folds[*k].is_none()) {
            let dtype = a.dtype;
            self.writes[k] = match (p.stores[k], a.packed) {
                (VectorAccess::Even, None) => {
                    let pointer = self.line_pointer(a);
                    // A line of one element has no steps.
                    let step = if p.line_length() == 1 { 1 } else { p.step(a.form) };
                    let nontemporal = far[k];
                    let canonical = a.is_canonical();
                    GroupWrite::Even { dtype, canonical, pointer, step, nontemporal }
                }
                (VectorAccess::Packed, Some(bits)) => {
                    let pointer = self.op(LoopOp::Pointer(a.at));
                    GroupWrite::Packed { dtype, bits, pointer, first: self.fixed_form(a.form) }
                }
                _ => GroupWrite::Element,
            };
        }
    }
}
