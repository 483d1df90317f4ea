//! Kernels and their stages.

use super::bounds::Scope;
use super::disjoint::exactly_once;
use super::{Check, Wrong, iterable};
use crate::diag::Kind;
use crate::dtype::DType;
use crate::kernel::program::{Buffer, Extents};
use crate::kernel::stage::{Kernel, Operand, Param, Piece, Row, Run, Sink, Stage, Tile};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;

/// What the stages of a kernel have left so far.
#[derive(Default)]
struct Left {
    rows: SecondaryMap<Row, bool>,
    tiles: SecondaryMap<Tile, bool>,
    stored: Vec<Buffer>,
}

impl Left {
    /// Notes all that a stage leaves: one that is wrong is reported once, not by what comes after.
    fn note(&mut self, stage: &Stage) {
        for sink in &stage.sinks {
            match sink {
                Sink::Store { buffer, .. } => self.stored.push(*buffer),
                Sink::Reduce { into, .. } => self.rows[*into] = true,
                Sink::Scan { into, .. } | Sink::Keep(into) => self.tiles[*into] = true,
            }
        }
    }
}

impl Check<'_> {
    pub(super) fn kernel(&mut self, n: usize, kernel: &Kernel) {
        let place = format!("step {n}: kernel @{}", kernel.name);
        let sound = iterable(&kernel.domain)
            .and_then(|()| kernel.tiles.values().try_for_each(|t| iterable(&t.dims)));
        if let Err(wrong) = sound {
            return self.report(place, wrong);
        }
        let mut left = Left::default();
        for (k, stage) in kernel.stages.iter().enumerate() {
            let place = format!("{place}, stage {k}");
            self.stage(&place, kernel, stage, &mut left);
        }
        for b in left.stored {
            self.written[b] = true;
        }
        let rows = kernel.rows.keys().filter(|&r| !left.rows[r]).map(|r| r.to_string());
        let tiles = kernel.tiles.keys().filter(|&t| !left.tiles[t]).map(|t| t.to_string());
        for name in rows.chain(tiles) {
            let m = format!("no stage leaves {name}");
            self.report(&place, Wrong::new(Kind::Dominance, m));
        }
    }

    fn stage(&mut self, place: &str, kernel: &Kernel, stage: &Stage, left: &mut Left) {
        let extents: Extents = kernel.domain.iter().chain(&stage.axes).copied().collect();
        if let Err(wrong) = iterable(&extents) {
            left.note(stage);
            return self.report(place, wrong);
        }
        let before = self.errors.len();
        self.params(place, &extents, &stage.params, &stage.program.params, |param| match param {
            Param::Row(r) => match left.rows[*r] {
                true => Ok(kernel.rows[*r]),
                false => Err(early(r)),
            },
            Param::Tile(t) => {
                let data = &kernel.tiles[*t];
                if !left.tiles[*t] {
                    return Err(early(t));
                }
                over(*t, &data.dims, &stage.axes).map(|()| data.dtype)
            }
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
        let mut made = Left::default();
        for (k, sink) in stage.sinks.iter().enumerate() {
            let dtype = stage.program.insts[stage.program.outputs[k]].dtype;
            let checked = match sink {
                Sink::Store { buffer, index } => {
                    let again = left.stored.contains(buffer) || made.stored.contains(buffer);
                    made.stored.push(*buffer);
                    self.store(*buffer, again, dtype).and_then(|()| {
                        Scope::new(&extents, &[]).inside(index, &self.data(*buffer).dims)?;
                        exactly_once(index, &self.data(*buffer).dims, &extents)
                    })
                }
                Sink::Reduce { monoid, runs, into } => {
                    let again = left.rows[*into] || made.rows[*into];
                    made.rows[*into] = true;
                    once(again, into).and_then(|()| {
                        fits(monoid.result(dtype), dtype, kernel.rows[*into], into)?;
                        ordered(runs, &stage.axes)
                    })
                }
                Sink::Scan { monoid, axis, into, .. } => {
                    let again = left.tiles[*into] || made.tiles[*into];
                    made.tiles[*into] = true;
                    let result = monoid.result(dtype).filter(|_| !monoid.is_arg());
                    once(again, into).and_then(|()| {
                        fits(result, dtype, kernel.tiles[*into].dtype, into)?;
                        over(*into, &kernel.tiles[*into].dims, &stage.axes)?;
                        match (*axis as usize) < stage.axes.len() {
                            true => Ok(()),
                            false => {
                                Err(Wrong::new(Kind::Shape, "the scan's axis is not the stage's"))
                            }
                        }
                    })
                }
                Sink::Keep(into) => {
                    let again = left.tiles[*into] || made.tiles[*into];
                    made.tiles[*into] = true;
                    once(again, into).and_then(|()| {
                        fits(Some(dtype), dtype, kernel.tiles[*into].dtype, into)?;
                        over(*into, &kernel.tiles[*into].dims, &stage.axes)
                    })
                }
            };
            if let Err(wrong) = checked {
                self.report(format_args!("{place}, sink {k}"), wrong);
            }
        }
        left.note(stage);
    }

    fn store(&self, buffer: Buffer, again: bool, dtype: DType) -> Result<(), Wrong> {
        self.writable(buffer)?;
        let data = self.data(buffer);
        if again {
            let m = format!("%{} is written already", data.name);
            return Err(Wrong::new(Kind::Overlap, m));
        }
        fits(Some(dtype), dtype, data.dtype, format_args!("%{}", data.name))
    }

    /// Checks the parameters of a stage against those its program declares. `kept` checks those that
    /// read what a kernel keeps, and gives their type.
    pub(super) fn params(
        &mut self,
        place: &str,
        extents: &[i64],
        params: &[Param],
        declared: &[DType],
        kept: impl Fn(&Param) -> Result<DType, Wrong>,
    ) {
        if params.len() != declared.len() {
            let m =
                format!("{} parameters are read, the program has {}", params.len(), declared.len());
            return self.report(place, Wrong::new(Kind::Arity, m));
        }
        for (k, param) in params.iter().enumerate() {
            let scope = Scope::new(extents, &declared[..k]);
            let found = match param {
                Param::Load(pieces) => self.load(pieces, scope),
                Param::Coord(e) => scope.interval(e).map(|_| DType::I64),
                Param::Row(_) | Param::Tile(_) => kept(param),
            };
            let wrong = match found {
                Ok(d) if d == declared[k] => continue,
                Ok(d) => Wrong::new(Kind::DType, format!("{d} is read as {}", declared[k])),
                Err(wrong) => wrong,
            };
            self.report(format_args!("{place}, p{k}"), wrong);
        }
    }

    /// Checks a load, and gives the type of what it reads.
    fn load<'s>(&self, pieces: &'s [Piece], mut scope: Scope<'s>) -> Result<DType, Wrong> {
        let mut found: Option<DType> = None;
        for (k, piece) in pieces.iter().enumerate() {
            let last = k + 1 == pieces.len();
            if last != piece.guards.is_empty() {
                let m = "a load's last piece, and no other, has no guards";
                return Err(Wrong::new(Kind::Bounds, m));
            }
            let dtype = match piece.from {
                Operand::Buffer(b) => self.data(b).dtype,
                Operand::Literal(l) => l.dtype(),
            };
            if *found.get_or_insert(dtype) != dtype {
                return Err(Wrong::new(Kind::DType, "the pieces of a load differ in type"));
            }
            let mut here = scope.clone();
            here.assume(&piece.guards)?;
            match piece.from {
                Operand::Buffer(b) => {
                    self.readable(b)?;
                    here.inside(&piece.index, &self.data(b).dims).map_err(|mut wrong| {
                        wrong.message = format!("%{}: {}", self.data(b).name, wrong.message);
                        wrong
                    })?;
                }
                Operand::Literal(_) => here.inside(&piece.index, &[])?,
            }
            if !last {
                scope.assume_not(&piece.guards)?;
            }
        }
        found.ok_or_else(|| Wrong::new(Kind::Arity, "a load has no pieces"))
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

/// Checks that runs name every axis that has an extent other than 1, the last first.
fn ordered(runs: &[Run], axes: &[i64]) -> Result<(), Wrong> {
    let named: SmallVec<[u8; 8]> = runs.iter().rev().flat_map(|r| r.axes.iter().copied()).collect();
    let wanted: SmallVec<[u8; 8]> =
        (0u8..).zip(axes).filter(|&(_, &n)| n != 1).map(|(a, _)| a).collect();
    match named == wanted && runs.iter().all(|r| !r.axes.is_empty()) {
        true => Ok(()),
        false => Err(Wrong::new(
            Kind::Shape,
            "the runs of a reduction must name each axis of extent other than 1 once, last run first",
        )),
    }
}
