//! Lowers parts to steps: kernels with stages, and contractions with epilogues.

use super::coordinates::Coordinates;
use super::emit::{EmitContext, StageEmitter};
use super::stage_places::ElementRef;
use super::stages::{Nest, StageTime, Task, TileUse};
use crate::analysis::axes::{Atom, AtomRun, LoopAxes, TensorAxes};
use crate::analysis::class::InstClass;
use crate::analysis::contraction_operands::{roles, side};
use crate::analysis::facts::{Facts, folded};
use crate::fuse::part::Part;
use crate::plan::machine_model::MachineModel;
use adfuse_ir::kernel::{
    Extents, Feed, Kernel, Member, Order, Param, Sink, Stage, TileData, strict_runs,
};
use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::SVal;
use adfuse_ir::verify::at_inst;
use adfuse_ir::{DType, Diagnostic, Inst, Kind, Value};
use hashbrown::HashMap;
use smallvec::SmallVec;

/// A part on its way to a step.
pub(crate) struct PartLowering<'a> {
    pub(crate) cx: EmitContext<'a>,
    pub(crate) device: &'a MachineModel,
    pub(crate) axes: LoopAxes,
    pub(crate) frame: (AtomRun, AtomRun),
    /// Where the operands of reductions and scans lie.
    pub(crate) under: HashMap<Inst, TensorAxes>,
    /// What is stored, in order.
    pub(crate) stores: Vec<(Value, TensorAxes)>,
}

type KeptParams = HashMap<(Value, TensorAxes), (Param, DType)>;

/// An entry of [`KeptParams`]: a value at a place, and what reads it.
type KeptEntry = ((Value, TensorAxes), (Param, DType));

/// A fold by the number of its sink, the result that what follows reads, and what is stored of it.
type AfterFold<'t> = (usize, KeptEntry, &'t [(Value, TensorAxes)]);

impl PartLowering<'_> {
    fn facts(&self) -> &Facts<'_> {
        self.cx.facts
    }

    fn extents(&self, atoms: &[Atom]) -> Extents {
        atoms.iter().map(|&a| self.axes.extent(a)).collect()
    }

    fn numbers(&self) -> Coordinates {
        Coordinates::new(&self.axes, self.frame.0.iter().chain(&self.frame.1).copied())
    }

    /// The kernel of a part.
    pub(crate) fn kernel(mut self, name: &str) -> Result<Kernel, Diagnostic> {
        let stores = std::mem::take(&mut self.stores);
        let facts = self.cx.facts;
        let mut stages = None;
        let (frame, listed) = (self.frame.clone(), self.cx.listed);
        let (axes, under) = (&mut self.axes, &self.under);
        let mut nest = Nest::new(facts, axes, frame, listed, under, TileUse::Computed);
        // A GPU keeps what a thread reads in registers.
        nest.rereads_lines = !self.device.is_gpu();
        // Where a row outgrows its tile, elements are read or computed again instead.
        for tiles in [TileUse::Computed, TileUse::Read, TileUse::None] {
            nest.tiles = tiles;
            let made = nest.stages(&stores);
            let fits = made.tile_bytes <= self.device.tile_bytes;
            stages = Some(made);
            if fits {
                break;
            }
        }
        let domain = self.extents(&self.frame.0);
        let inside = self.extents(&self.frame.1);
        let mut kernel = Kernel { name: name.into(), domain, ..Kernel::default() };
        let (numbers, mut kept) = (self.numbers(), KeptParams::new());
        for (slot, tasks) in stages.map(|s| s.slots).unwrap_or_default() {
            let stage = self.stage(&mut kernel, slot, &tasks, &numbers, &mut kept, &inside)?;
            kernel.stages.push(stage);
        }
        Ok(kernel)
    }

    fn stage(
        &mut self,
        kernel: &mut Kernel,
        slot: StageTime,
        tasks: &[Task],
        numbers: &Coordinates,
        kept: &mut KeptParams,
        inside: &Extents,
    ) -> Result<Stage, Diagnostic> {
        let facts = self.cx.facts;
        let f = facts.f;
        let axes_of_stage = if slot.1 { inside.clone() } else { Extents::new() };
        let rank = kernel.domain.len();
        let mut sinks = Vec::new();
        let mut left: Vec<KeptEntry> = Vec::new();
        let mut folds: Vec<(Inst, TensorAxes, usize)> = Vec::new();
        let mut after = Vec::new();
        let mut e = StageEmitter::new(&self.cx, &mut self.axes, numbers, kept);
        for task in tasks {
            let (value, sink) = match task {
                Task::Store(v, place) => {
                    let at = ElementRef::Place(place.clone());
                    let buffer = self.cx.buffers[*v].ok_or_else(no_buffer)?;
                    let index = e.index(&at);
                    (e.value(*v, at)?, Sink::Store { buffer, index })
                }
                Task::Leave(v, place) => {
                    let dtype = f.ty(*v).dtype;
                    let row = kernel.rows.push(dtype);
                    left.push(((*v, place.clone()), (Param::Row(row), dtype)));
                    (e.value(*v, ElementRef::Place(place.clone()))?, Sink::Leave(row))
                }
                Task::Keep(v, place) => {
                    let dtype = f.ty(*v).dtype;
                    let tile = kernel.tiles.push(TileData { dtype, dims: inside.clone() });
                    left.push(((*v, place.clone()), (Param::Tile(tile), dtype)));
                    (e.value(*v, ElementRef::Place(place.clone()))?, Sink::Keep(tile))
                }
                Task::Scan(i, place) => {
                    let (s, wide) = operand(&mut e, *i, place)?;
                    let tile = kernel.tiles.push(TileData { dtype: wide, dims: inside.clone() });
                    let key = (f.inst_results(*i)[0], place.clone());
                    left.push((key, (Param::Tile(tile), wide)));
                    let along = f.attrs(*i).int("axis") as usize;
                    let number = place[along].first().and_then(|a| numbers.get(a)).copied();
                    let (monoid, reverse) = (monoid(facts, *i), f.attrs(*i).flag("reverse"));
                    match number.map(|n| (n - rank) as u8) {
                        Some(axis) => (s, Sink::Scan { monoid, axis, reverse, into: tile }),
                        // Along an axis of extent 1 nothing folds.
                        None => (s, Sink::Keep(tile)),
                    }
                }
                Task::Row(i, place) | Task::Fold(i, place, _) => {
                    let (s, wide) = operand(&mut e, *i, place)?;
                    let monoid = monoid(facts, *i);
                    let to = if monoid.is_arg() { DType::I32 } else { wide };
                    let runs = SmallVec::new();
                    folds.push((*i, place.clone(), sinks.len()));
                    let result = (f.inst_results(*i)[0], kept_place(facts, *i, place));
                    if let Task::Fold(.., stored) = task {
                        after.push((sinks.len(), (result, (Param::Sum, to)), stored.as_slice()));
                        (s, Sink::Fold { monoid, runs, then: Box::default() })
                    } else {
                        let row = kernel.rows.push(to);
                        left.push((result, (Param::Row(row), to)));
                        (s, Sink::Reduce { monoid, runs, into: row })
                    }
                }
            };
            e.program.outputs.push(value);
            sinks.push(sink);
        }
        let (params, program) = (std::mem::take(&mut e.params), std::mem::take(&mut e.program));
        self.complete(&mut sinks, (folds, after), numbers, rank)?;
        for (key, value) in left {
            let key = (key.0, self.axes.resolve(&key.1));
            kept.insert(key, value);
        }
        Ok(Stage { axes: axes_of_stage, params, program, sinks })
    }

    /// Completes the sinks that fold: with the order of the axes of each, counted from `rank` in rows, and with what
    /// is stored of the results.
    fn complete(
        &mut self,
        sinks: &mut [Sink],
        (folds, after): (Vec<(Inst, TensorAxes, usize)>, Vec<AfterFold<'_>>),
        numbers: &Coordinates,
        rank: usize,
    ) -> Result<(), Diagnostic> {
        for (k, sum, stored) in after {
            let made = self.after(sum, stored, numbers)?;
            if let Sink::Fold { then, .. } = &mut sinks[k] {
                **then = made;
            }
        }
        for (i, place, k) in folds {
            let from = if let Sink::Reduce { .. } = sinks[k] { rank } else { 0 };
            let found = self.runs(i, &place, numbers, from);
            match &mut sinks[k] {
                Sink::Reduce { runs, .. } | Sink::Fold { runs, .. } => *runs = found,
                _ => {}
            }
        }
        Ok(())
    }

    /// What follows a fold: what is made of its results is stored.
    fn after(
        &mut self,
        (result, sum): KeptEntry,
        stored: &[(Value, TensorAxes)],
        numbers: &Coordinates,
    ) -> Result<Stage, Diagnostic> {
        let mut kept = KeptParams::new();
        kept.insert((result.0, self.axes.resolve(&result.1)), sum);
        let mut e = StageEmitter::new(&self.cx, &mut self.axes, numbers, &kept);
        let mut sinks = Vec::new();
        for (v, place) in stored {
            let at = ElementRef::Place(place.clone());
            let index = e.index(&at);
            let value = e.value(*v, at)?;
            e.program.outputs.push(value);
            let buffer = self.cx.buffers[*v].ok_or_else(no_buffer)?;
            sinks.push(Sink::Store { buffer, index });
        }
        let (params, program) = (std::mem::take(&mut e.params), std::mem::take(&mut e.program));
        Ok(Stage { axes: Extents::new(), params, program, sinks })
    }

    /// The order in which a reduction folds, its axes as coordinates counted from `from`.
    fn runs(
        &self,
        i: Inst,
        place: &TensorAxes,
        numbers: &Coordinates,
        from: usize,
    ) -> SmallVec<[adfuse_ir::kernel::Run; 2]> {
        let facts = self.facts();
        let marks = folded(facts, i);
        let mut runs = strict_runs(&facts.dims[facts.f.args(i)[0]], &marks);
        let gone: Vec<&AtomRun> =
            place.iter().zip(&marks).filter(|&(_, &f)| f).map(|(run, _)| run).collect();
        let all: AtomRun = gone.iter().flat_map(|run| self.axes.whole(run)).collect();
        let (inner, outer): (AtomRun, AtomRun) =
            all.iter().copied().partition(|a| self.frame.1.contains(a));
        if !self.cx.strict && from == 0 && !monoid(facts, i).is_arg() {
            // Each row by itself, then the rows: no block of elements spans two rows.
            let run = |atoms: AtomRun, order: Order| adfuse_ir::kernel::Run {
                axes: atoms.iter().filter_map(|a| numbers.get(a)).map(|&n| n as u8).collect(),
                order,
            };
            if !inner.is_empty() && !outer.is_empty() {
                return SmallVec::from_iter([run(inner, Order::Lane), run(outer, Order::Chain)]);
            }
        }
        for run in &mut runs {
            let atoms = run.axes.iter().flat_map(|&k| self.axes.whole(gone[k as usize]));
            run.axes =
                atoms.map(|a| (numbers.get(&a).copied().unwrap_or(0) - from) as u8).collect();
        }
        runs
    }

    /// One contraction of a step. `place` is where its result lies, `depth` where it sums.
    pub(crate) fn member(
        mut self,
        i: Inst,
        place: &TensorAxes,
        depth: &TensorAxes,
    ) -> Result<Member, Diagnostic> {
        let facts = self.cx.facts;
        let f = facts.f;
        let (batched, left) = roles(facts, i);
        let whole = |runs: &[AtomRun], axes: &LoopAxes| -> AtomRun {
            runs.iter().flat_map(|r| axes.whole(r)).collect()
        };
        let batch = whole(&place[..batched], &self.axes);
        let rows = whole(&place[batched..left], &self.axes);
        let cols = whole(&place[left..], &self.axes);
        let deep = whole(depth, &self.axes);
        let v = f.inst_results(i)[0];
        let sum = f.ty(v).dtype.compute();
        let none = KeptParams::new();
        let mut feeds = Vec::new();
        for (k, own) in [(0, &rows), (1, &cols)] {
            let order = batch.iter().chain(own).chain(&deep);
            let numbers = Coordinates::new(&self.axes, order.copied());
            let at = ElementRef::Place(side(facts, i, k, place, depth));
            let mut e = StageEmitter::new(&self.cx, &mut self.axes, &numbers, &none);
            let s = e.value(f.args(i)[k], at)?;
            e.program.outputs.push(s);
            feeds.push(Feed { params: e.params, program: e.program });
        }
        let (Some(rhs), Some(lhs)) = (feeds.pop(), feeds.pop()) else {
            let m = "a contraction has two operands";
            return Err(Diagnostic::new(at_inst(f, i), Kind::Internal, m));
        };
        self.frame = (batch.iter().chain(&rows).chain(&cols).copied().collect(), AtomRun::new());
        let numbers = self.numbers();
        let mut kept = KeptParams::new();
        kept.insert((v, self.axes.resolve(place)), (Param::Sum, sum));
        let stores = std::mem::take(&mut self.stores);
        let (frame, listed) = (self.frame.clone(), self.cx.listed);
        let (axes, under) = (&mut self.axes, &self.under);
        let mut nest = Nest::new(facts, axes, frame, listed, under, TileUse::None);
        // Nothing is in rows, so there is one stage.
        let slots = nest.stages(&stores).slots;
        let tasks: Vec<Task> = slots.into_iter().flat_map(|(_, tasks)| tasks).collect();
        let mut kernel = Kernel { domain: self.extents(&self.frame.0), ..Kernel::default() };
        let then =
            self.stage(&mut kernel, (0, false), &tasks, &numbers, &mut kept, &Extents::new())?;
        Ok(Member {
            batch: self.extents(&batch),
            rows: self.extents(&rows),
            cols: self.extents(&cols),
            depth: self.extents(&deep),
            lhs,
            rhs,
            sum,
            then,
        })
    }

    /// Prepares the lowering of a part.
    pub(crate) fn of<'a>(
        cx: EmitContext<'a>,
        device: &'a MachineModel,
        part: &Part,
        stores: Vec<(Value, TensorAxes)>,
    ) -> PartLowering<'a> {
        let axes = part.axes.clone();
        let (domain, inside) = part.frame();
        let inside = as_folded(part, &inside).unwrap_or(inside);
        let under = part.under.iter().map(|(i, p)| (*i, axes.resolve(p))).collect();
        let stores = stores.into_iter().map(|(v, p)| (v, axes.resolve(&p))).collect();
        PartLowering { cx, device, frame: (domain, inside), axes, under, stores }
    }
}

/// The axes inside in the order in which rows are folded over them, where all reductions and scans agree on one: a row
/// is folded as it is computed then. In another order an engine keeps the whole row and permutes it.
fn as_folded(part: &Part, inside: &AtomRun) -> Option<AtomRun> {
    let mut found: Option<AtomRun> = None;
    for (_, place) in &part.under {
        let all = part.axes.all(place);
        let order: AtomRun = all.into_iter().filter(|a| inside.contains(a)).collect();
        if order.len() == inside.len() && *found.get_or_insert_with(|| order.clone()) != order {
            return None;
        }
    }
    found
}

/// Emits the operand of a fold or of a scan, in the type that it is computed in.
fn operand(
    e: &mut StageEmitter<'_>,
    i: Inst,
    place: &TensorAxes,
) -> Result<(SVal, DType), Diagnostic> {
    let f = e.cx.facts.f;
    let x = f.args(i)[0];
    let wide = f.ty(x).dtype.compute();
    let s = e.value(x, ElementRef::Place(place.clone()))?;
    Ok((e.convert(s, wide), wide))
}

fn no_buffer() -> Diagnostic {
    Diagnostic::new(Default::default(), Kind::Internal, "a stored value has no buffer")
}

fn monoid(facts: &Facts<'_>, i: Inst) -> Monoid {
    match facts.class[i] {
        InstClass::Reduce(m) | InstClass::Scan(m) => m,
        _ => Monoid::Sum,
    }
}

/// Where a reduction's result lies.
fn kept_place(facts: &Facts<'_>, i: Inst, place: &TensorAxes) -> TensorAxes {
    let kept = place.iter().zip(folded(facts, i)).filter(|(_, f)| !f);
    kept.map(|(run, _)| run.clone()).collect()
}
