//! Kernels and their stages.

use super::bounds::BoundsScope;
use super::disjoint::exactly_once;
use super::{ProgramVerifier, Wrong, iterable};
use crate::diag::Kind;
use crate::dtype::DType;
use crate::index::IndexExpr;
use crate::kernel::buffer::{Buffer, Extents};
use crate::kernel::stage::{Kernel, Param, Row, Run, Sink, Stage, Tile, TileData};
use crate::op::Monoid;
use cranelift_entity::{PrimaryMap, SecondaryMap};
use smallvec::SmallVec;

/// What a stage finds around it.
pub(super) struct StageContext<'a> {
    /// Extents of the domain.
    pub(super) domain: &'a [i64],
    /// The scalars that are kept.
    pub(super) rows: &'a PrimaryMap<Row, DType>,
    /// The tensors that are kept.
    pub(super) tiles: &'a PrimaryMap<Tile, TileData>,
    /// The type of the sum that it follows, if any.
    pub(super) sum: Option<DType>,
}

/// What a fold is made of.
struct FoldSource<'a> {
    monoid: Monoid,
    runs: &'a [Run],
    /// The type of what is folded.
    dtype: DType,
}

/// What the stages of a step have left so far.
#[derive(Default)]
pub(super) struct StageOutputs {
    rows: SecondaryMap<Row, bool>,
    tiles: SecondaryMap<Tile, bool>,
    stored: Vec<Buffer>,
}

impl StageOutputs {
    /// Notes all that a stage leaves: one that is wrong is reported once, not by what comes after.
    fn note(&mut self, stage: &Stage) {
        for sink in &stage.sinks {
            match sink {
                Sink::Store { buffer, .. } => self.stored.push(*buffer),
                Sink::Fold { then, .. } => self.note(then),
                Sink::Reduce { into, .. } | Sink::Leave(into) => self.rows[*into] = true,
                Sink::Scan { into, .. } | Sink::Keep(into) => self.tiles[*into] = true,
            }
        }
    }
}

impl ProgramVerifier<'_> {
    pub(super) fn kernel(&mut self, place: &str, kernel: &Kernel) {
        let sound = iterable(&kernel.domain)
            .and_then(|()| kernel.tiles.values().try_for_each(|t| iterable(&t.dims)))
            .and_then(|()| self.scheduled(kernel));
        if let Err(wrong) = sound {
            return self.report(place, wrong);
        }
        let (domain, rows, tiles) = (&kernel.domain, &kernel.rows, &kernel.tiles);
        let cx = StageContext { domain, rows, tiles, sum: None };
        let mut left = StageOutputs::default();
        for (k, stage) in kernel.stages.iter().enumerate() {
            self.stage(&format!("{place}, stage {k}"), &cx, stage, &mut left);
        }
        let rows = kernel.rows.keys().filter(|&r| !left.rows[r]).map(|r| r.to_string());
        let tiles = kernel.tiles.keys().filter(|&t| !left.tiles[t]).map(|t| t.to_string());
        for name in rows.chain(tiles) {
            let m = format!("no stage leaves {name}");
            self.report(place, Wrong::new(Kind::Dominance, m));
        }
    }

    pub(super) fn stage(
        &mut self,
        place: &str,
        cx: &StageContext<'_>,
        stage: &Stage,
        left: &mut StageOutputs,
    ) {
        let extents: Extents = cx.domain.iter().chain(&stage.axes).copied().collect();
        if let Err(wrong) = iterable(&extents) {
            left.note(stage);
            return self.report(place, wrong);
        }
        let before = self.errors.len();
        self.params(place, &extents, &stage.params, &stage.program.params, |param| match param {
            Param::Row(r) => match left.rows[*r] {
                true => Ok(cx.rows[*r]),
                false => Err(early(r)),
            },
            Param::Tile(t) => {
                if !left.tiles[*t] {
                    return Err(early(t));
                }
                over(*t, &cx.tiles[*t].dims, &stage.axes).map(|()| cx.tiles[*t].dtype)
            }
            Param::Sum => cx.sum.ok_or_else(|| {
                Wrong::new(
                    Kind::Dominance,
                    "there is no sum: only what follows a contraction has it",
                )
            }),
            Param::Load(_) | Param::Coord(_) => Ok(DType::I64),
        });
        if let Err(m) = stage.program.check() {
            self.report(place, Wrong::new(Kind::DType, m));
        }
        if stage.program.outputs.len() != stage.sinks.len() {
            let m =
                format!("{} outputs for {} sinks", stage.program.outputs.len(), stage.sinks.len());
            self.report(place, Wrong::new(Kind::Arity, m));
        }
        if self.errors.len() > before {
            return left.note(stage);
        }
        let mut made = StageOutputs::default();
        for (k, sink) in stage.sinks.iter().enumerate() {
            let dtype = stage.program.insts[stage.program.outputs[k]].dtype;
            let place = format!("{place}, sink {k}");
            let checked = match sink {
                Sink::Fold { monoid, runs, then } => {
                    let made = FoldSource { monoid: *monoid, runs, dtype };
                    self.fold(&place, &extents, &made, then, left)
                }
                _ => self.sink(cx, stage, sink, dtype, left, &mut made),
            };
            if let Err(wrong) = checked {
                self.report(place, wrong);
            }
        }
        left.note(stage);
    }

    /// Checks a fold over coordinates of these extents, and what follows it.
    fn fold(
        &mut self,
        place: &str,
        extents: &[i64],
        made: &FoldSource<'_>,
        then: &Stage,
        left: &mut StageOutputs,
    ) -> Result<(), Wrong> {
        let Some(sum) = made.monoid.result(made.dtype) else {
            return fits(None, made.dtype, made.dtype, "");
        };
        let kept = remaining(made.runs, extents)?;
        if let Some(e) = expressions(then).find(|e| mentions(e, made.runs)) {
            let m = format!("`{e}` names a coordinate that is folded away");
            return Err(Wrong::new(Kind::Bounds, m));
        }
        if let Some(Sink::Fold { .. }) =
            then.sinks.iter().find(|s| !matches!(s, Sink::Store { .. }))
        {
            return Err(Wrong::new(Kind::Shape, "what follows a fold stores and folds nothing"));
        }
        self.then(place, &kept, then, sum, left);
        Ok(())
    }

    /// Checks where an output of this type goes. `made` is what the stage's other outputs leave.
    fn sink(
        &self,
        cx: &StageContext<'_>,
        stage: &Stage,
        sink: &Sink,
        dtype: DType,
        left: &StageOutputs,
        made: &mut StageOutputs,
    ) -> Result<(), Wrong> {
        let extents: Extents = cx.domain.iter().chain(&stage.axes).copied().collect();
        match sink {
            Sink::Store { buffer, .. } => {
                let again = left.stored.contains(buffer) || made.stored.contains(buffer);
                made.stored.push(*buffer);
                self.writable(*buffer)?;
                once(again, format_args!("%{}", self.data(*buffer).name))?;
            }
            Sink::Reduce { into, .. } | Sink::Leave(into) => {
                once(left.rows[*into] || made.rows[*into], into)?;
                made.rows[*into] = true;
            }
            Sink::Fold { .. } => {}
            Sink::Scan { into, .. } | Sink::Keep(into) => {
                once(left.tiles[*into] || made.tiles[*into], into)?;
                made.tiles[*into] = true;
                over(*into, &cx.tiles[*into].dims, &stage.axes)?;
            }
        }
        match sink {
            Sink::Store { buffer, index } => {
                let data = self.data(*buffer);
                fits(Some(dtype), dtype, data.dtype, format_args!("%{}", data.name))?;
                BoundsScope::new(&extents, &[]).inside(index, &data.dims)?;
                exactly_once(index, &data.dims, &extents)
            }
            // Its own check reports what is wrong with what follows.
            Sink::Fold { .. } => Ok(()),
            Sink::Reduce { monoid, runs, into } => {
                fits(monoid.result(dtype), dtype, cx.rows[*into], into)?;
                let kept = remaining(runs, &stage.axes)?;
                match kept.iter().all(|&n| n == 1) {
                    true => Ok(()),
                    false => {
                        let m = "a reduction folds every axis of its stage";
                        Err(Wrong::new(Kind::Shape, m))
                    }
                }
            }
            Sink::Scan { monoid, axis, into, .. } => {
                let result = monoid.result(dtype).filter(|_| !monoid.is_arg());
                fits(result, dtype, cx.tiles[*into].dtype, into)?;
                match usize::from(*axis) < stage.axes.len() {
                    true => Ok(()),
                    false => Err(Wrong::new(Kind::Shape, "the scan's axis is not the stage's")),
                }
            }
            Sink::Keep(into) => fits(Some(dtype), dtype, cx.tiles[*into].dtype, into),
            Sink::Leave(into) => {
                if !stage.axes.is_empty() {
                    let m = "a stage with axes has many values, not one to leave";
                    return Err(Wrong::new(Kind::Shape, m));
                }
                fits(Some(dtype), dtype, cx.rows[*into], into)
            }
        }
    }
}

fn early(name: impl std::fmt::Display) -> Wrong {
    Wrong::new(Kind::Dominance, format!("{name} is read before a stage has left it"))
}

fn once(again: bool, name: impl std::fmt::Display) -> Result<(), Wrong> {
    match again {
        true => Err(Wrong::new(Kind::Overlap, format!("{name} is written already"))),
        false => Ok(()),
    }
}

/// Checks that what is made of values of a type is what its place holds.
pub(super) fn fits(
    made: Option<DType>,
    from: DType,
    holds: DType,
    name: impl std::fmt::Display,
) -> Result<(), Wrong> {
    match made {
        Some(d) if d == holds => Ok(()),
        Some(d) => Err(Wrong::new(Kind::DType, format!("{d} into {name}, which holds {holds}"))),
        None => Err(Wrong::new(Kind::DType, format!("values of type {from} do not fold so"))),
    }
}

fn over(tile: Tile, dims: &[i64], axes: &[i64]) -> Result<(), Wrong> {
    match dims == axes {
        true => Ok(()),
        false => Err(Wrong::new(
            Kind::Shape,
            format!("{tile} has extents {dims:?}, the stage has {axes:?}"),
        )),
    }
}

/// Checks that runs name axes of extent other than 1, each at most once, and gives the extents of what
/// remains: 1 where an axis is folded.
fn remaining(runs: &[Run], extents: &[i64]) -> Result<Extents, Wrong> {
    let mut kept: Extents = extents.into();
    let mut seen: SmallVec<[bool; 8]> = extents.iter().map(|_| false).collect();
    let sound = runs.iter().all(|r| !r.axes.is_empty())
        && runs.iter().flat_map(|r| &r.axes).all(|&a| {
            let a = usize::from(a);
            let fresh = a < seen.len() && extents[a] != 1 && !seen[a];
            if fresh {
                (seen[a], kept[a]) = (true, 1);
            }
            fresh
        });
    match sound {
        true => Ok(kept),
        false => {
            let m = "runs name axes of extent other than 1, each once";
            Err(Wrong::new(Kind::Shape, m))
        }
    }
}

/// The expressions of coordinates of a stage.
fn expressions(stage: &Stage) -> impl Iterator<Item = &IndexExpr> {
    let params = stage.params.iter().flat_map(Param::expressions);
    let sinks = stage.sinks.iter().flat_map(|s| match s {
        Sink::Store { index, .. } => index.as_slice(),
        _ => &[],
    });
    params.chain(sinks)
}

/// Whether an expression names a coordinate of these runs.
fn mentions(e: &IndexExpr, runs: &[Run]) -> bool {
    match e {
        IndexExpr::Axis(a) => runs.iter().any(|r| r.axes.contains(a)),
        IndexExpr::Const(_) | IndexExpr::Data { .. } => false,
        IndexExpr::Add(a, b) => mentions(a, runs) || mentions(b, runs),
        IndexExpr::Mul(a, _) | IndexExpr::FloorDiv(a, _) | IndexExpr::Mod(a, _) => {
            mentions(a, runs)
        }
    }
}
