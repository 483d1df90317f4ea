//! The stages of a kernel: which values each stage computes, and what it leaves to later stages.
//!
//! A value's *time* is the number of folds of the kernel that it depends on. For each time there may be a stage once a
//! point, for scalars of rows, followed by a stage over the inner axes. Stages are visited from last to first, and each
//! requests its operands. Scalars of earlier times become rows. Elements become tiles if recomputing them costs more,
//! and are loaded once if several stages read them.

use crate::analysis::axes::{AtomRun, LoopAxes, TensorAxes, copied, without};
use crate::analysis::class::InstClass;
use crate::analysis::facts::{Facts, folded};
use adfuse_ir::op::Body;
use adfuse_ir::{Inst, Value, ValueDef};
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::ops::Range;

/// When a stage runs: its time, and whether over the axes inside.
pub(crate) type StageTime = (u32, bool);

/// Something a stage must do.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Task {
    /// Store a value in its buffer.
    Store(Value, TensorAxes),
    /// Fold the operand of a reduction over the axes inside, into a row.
    Row(Inst, TensorAxes),
    /// Fold the operand of a reduction over points too, and store what is made of the results.
    Fold(Inst, TensorAxes, Vec<(Value, TensorAxes)>),
    /// Fold the operand of a scan along its axis, into a tile.
    Scan(Inst, TensorAxes),
    /// Leave a scalar in a row.
    Leave(Value, TensorAxes),
    /// Keep elements in a tile.
    Keep(Value, TensorAxes),
}

/// The stages of a kernel, in the order in which they run.
pub(crate) struct Stages {
    pub(crate) slots: Vec<(StageTime, Vec<Task>)>,
    /// Bytes that a point keeps in tiles.
    pub(crate) tile_bytes: u64,
}

/// What a kernel keeps in tiles, from little memory to much.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum TileUse {
    /// Nothing but scans: stages read again, and compute again.
    None,
    /// What several stages read from memory.
    Read,
    /// That, and what costs more to compute again.
    Computed,
}

/// A nest with what is computed in it.
pub(crate) struct Nest<'a> {
    pub(crate) facts: &'a Facts<'a>,
    pub(crate) axes: &'a mut LoopAxes,
    /// Atoms of the domain, and of the axes inside.
    pub(crate) domain: AtomRun,
    pub(crate) inside: AtomRun,
    pub(crate) listed: &'a dyn Fn(Inst) -> bool,
    /// Where the operands of reductions and scans lie.
    pub(crate) places: &'a HashMap<Inst, TensorAxes>,
    /// What is kept in tiles.
    pub(crate) tiles: TileUse,
    /// Whether lines that stages read from memory one after the other are read again, from the first-level cache, rather than kept.
    pub(crate) rereads_lines: bool,
    known: KnownPlaces,
    values: NestValues,
}

/// The axes of a tensor in undivided atoms, which do not change while a nest has its axes: a number in place of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct NestPlace(u32);

/// A value at a place: a number in place of both.
#[derive(Clone, Copy, PartialEq, Eq)]
struct NestValue(u32);

/// The operands of a computed value that are asked for at axes of the nest, among those of all values.
type NestOperands = Range<usize>;

/// What is known of a value at a place.
struct ValueAt {
    value: Value,
    place: NestPlace,
    /// The instruction that computes it in the nest; `None` for what is read.
    inst: Option<Inst>,
    operands: Option<NestOperands>,
    time: Option<u32>,
    fold: Option<Option<Inst>>,
    /// The last stage whose needs it was among, by the number of [`NestValues::stages`].
    needed: u32,
}

/// Each value at a place with its number.
#[derive(Default)]
struct NestValues {
    all: Vec<ValueAt>,
    numbers: HashMap<(Value, NestPlace), NestValue>,
    operands: Vec<NestValue>,
    /// How many stages have asked for what they need.
    stages: u32,
}

impl NestValues {
    fn of(&self, v: NestValue) -> &ValueAt {
        &self.all[v.0 as usize]
    }

    fn of_mut(&mut self, v: NestValue) -> &mut ValueAt {
        &mut self.all[v.0 as usize]
    }
}

/// Each place with its number, and whether it has an axis inside.
#[derive(Default)]
struct KnownPlaces {
    all: Vec<(TensorAxes, bool)>,
    numbers: HashMap<TensorAxes, NestPlace>,
}

/// Primitives from which on an element is kept rather than computed again.
const KEPT: u32 = 6;

impl<'a> Nest<'a> {
    pub(crate) fn new(
        facts: &'a Facts<'a>,
        axes: &'a mut LoopAxes,
        frame: (AtomRun, AtomRun),
        listed: &'a dyn Fn(Inst) -> bool,
        places: &'a HashMap<Inst, TensorAxes>,
        tiles: TileUse,
    ) -> Nest<'a> {
        let (domain, inside) = frame;
        let (known, values) = (KnownPlaces::default(), NestValues::default());
        let rereads_lines = false;
        Nest { facts, axes, domain, inside, listed, places, tiles, rereads_lines, known, values }
    }

    /// The number of a value at a place.
    fn at(&mut self, value: Value, place: NestPlace) -> NestValue {
        let next = NestValue(self.values.all.len() as u32);
        let number = *self.values.numbers.entry((value, place)).or_insert(next);
        if number == next {
            let inst = self.computed(value);
            let (operands, time, fold, needed) = (None, None, None, 0);
            self.values.all.push(ValueAt { value, place, inst, operands, time, fold, needed });
        }
        number
    }

    /// The number of a place in undivided atoms.
    fn numbered(&mut self, place: TensorAxes) -> NestPlace {
        if let Some(&known) = self.known.numbers.get(&place) {
            return known;
        }
        let inner = place.iter().flatten().any(|a| self.inside.contains(a));
        let number = NestPlace(self.known.all.len() as u32);
        self.known.all.push((copied(&place), inner));
        self.known.numbers.insert(place, number);
        number
    }

    /// The number of any place.
    fn resolved(&mut self, place: &TensorAxes) -> NestPlace {
        self.numbered(self.axes.resolve(place))
    }

    fn axes_of(&self, place: NestPlace) -> &TensorAxes {
        &self.known.all[place.0 as usize].0
    }

    fn is_inner(&self, place: NestPlace) -> bool {
        self.known.all[place.0 as usize].1
    }

    /// Whether a reduction is done when its point goes on: over just the axes inside.
    pub(crate) fn in_rows(&self, i: Inst, place: &TensorAxes) -> bool {
        let folded = folded(self.facts, i);
        let of = |want: bool| -> AtomRun {
            let runs = place.iter().zip(&folded).filter(|&(_, &f)| f == want);
            runs.flat_map(|(run, _)| self.axes.whole(run)).collect()
        };
        let (gone, kept) = (of(true), of(false));
        !gone.is_empty()
            && without(&self.inside, &gone).is_empty()
            && without(&gone, &self.inside).is_empty()
            && without(&self.domain, &kept).is_empty()
    }

    /// The operands of a computed value that are asked for at axes of the nest.
    fn operands(&mut self, v: NestValue, i: Inst) -> NestOperands {
        let known = self.values.of(v);
        if let Some(operands) = &known.operands {
            return operands.clone();
        }
        let found = self.found_operands(i, known.place);
        let from = self.values.operands.len();
        for (a, p) in found {
            let operand = self.at(a, p);
            self.values.operands.push(operand);
        }
        let found = from..self.values.operands.len();
        self.values.of_mut(v).operands = Some(found.clone());
        found
    }

    fn found_operands(&mut self, i: Inst, place: NestPlace) -> SmallVec<[(Value, NestPlace); 4]> {
        let facts = self.facts;
        let f = facts.f;
        match f.op(i).def().body {
            Body::Map(_) => f.args(i).iter().map(|&a| (a, place)).collect(),
            // Single numbers, the same everywhere.
            Body::Source(_) => {
                let nowhere = self.numbered(TensorAxes::new());
                f.args(i).iter().map(|&a| (a, nowhere)).collect()
            }
            Body::Scan(_) if facts.scans_nothing(i) => SmallVec::from_iter([(f.args(i)[0], place)]),
            Body::View(_) => {
                let at = &self.known.all[place.0 as usize].0;
                let mark = self.axes.begin();
                let under = facts.through(self.axes, i, at);
                let divided = self.axes.undo(mark);
                let under = under.filter(|_| !divided).map(|p| self.resolved(&p));
                under.into_iter().map(|p| (f.args(i)[0], p)).collect()
            }
            Body::Reduce(_) if facts.folds_nothing(i) => {
                let mut kept = self.axes_of(place).iter().cloned();
                let next = |f: bool| if f { None } else { kept.next() };
                let at = folded(facts, i).into_iter().map(next);
                let at = at.collect::<SmallVec<[Option<AtomRun>; 4]>>();
                let at = at.into_iter().map(Option::unwrap_or_default).collect();
                SmallVec::from_iter([(f.args(i)[0], self.numbered(at))])
            }
            _ => SmallVec::new(),
        }
    }

    /// The fold over points of the domain that a value is made of.
    fn fold_of(&mut self, v: NestValue) -> Option<Inst> {
        let &ValueAt { inst, fold, .. } = self.values.of(v);
        let i = inst?;
        if let Some(known) = fold {
            return known;
        }
        let facts = self.facts;
        let found = match facts.class[i] {
            InstClass::Reduce(_) if !facts.folds_nothing(i) => {
                let at = self.under(i);
                (!self.in_rows(i, &at)).then_some(i)
            }
            InstClass::Scan(_) => None,
            _ => self.operands(v, i).find_map(|k| self.fold_of(self.values.operands[k])),
        };
        self.values.of_mut(v).fold = Some(found);
        found
    }

    fn computed(&self, v: Value) -> Option<Inst> {
        match self.facts.f.def(v) {
            ValueDef::Inst(i, _) if (self.listed)(i) => Some(i),
            _ => None,
        }
    }

    /// How many folds lie before a value.
    fn time(&mut self, v: NestValue) -> u32 {
        let &ValueAt { inst, time, place, .. } = self.values.of(v);
        let Some(i) = inst else { return 0 };
        if let Some(t) = time {
            return t;
        }
        let facts = self.facts;
        let t = match facts.class[i] {
            InstClass::Reduce(_) if !facts.folds_nothing(i) => {
                let under = self.place_under(i);
                let x = self.at(facts.f.args(i)[0], under);
                self.time(x) + 1
            }
            InstClass::Scan(_) => {
                let x = self.at(facts.f.args(i)[0], place);
                self.time(x) + 1
            }
            _ => {
                let times = self.operands(v, i).map(|k| self.time(self.values.operands[k]));
                times.max().unwrap_or(0)
            }
        };
        self.values.of_mut(v).time = Some(t);
        t
    }

    fn place_under(&mut self, i: Inst) -> NestPlace {
        let at = self.under(i);
        self.numbered(at)
    }

    /// Where the operand of a reduction or scan lies.
    fn under(&self, i: Inst) -> TensorAxes {
        self.places.get(&i).map(|p| self.axes.resolve(p)).unwrap_or_default()
    }

    /// Divides the tasks over stages, and adds what stages need of earlier ones.
    pub(crate) fn stages(&mut self, stores: &[(Value, TensorAxes)]) -> Stages {
        let mut tasks: HashMap<StageTime, Vec<Task>> = HashMap::new();
        let mut last = 0;
        for (v, place) in stores {
            let place = self.axes.resolve(place);
            let number = self.numbered(place.clone());
            let at = self.at(*v, number);
            let Some(i) = self.fold_of(at) else {
                let slot = (self.time(at), self.is_inner(number));
                last = last.max(slot.0);
                tasks.entry(slot).or_default().push(Task::Store(*v, place));
                continue;
            };
            let at = self.under(i);
            let under = self.numbered(at.clone());
            let folded = self.at(self.facts.f.args(i)[0], under);
            let slot = (self.time(folded), self.is_inner(under));
            last = last.max(slot.0);
            let list = tasks.entry(slot).or_default();
            let known = list.iter_mut().find_map(|t| match t {
                Task::Fold(j, _, stored) if *j == i => Some(stored),
                _ => None,
            });
            match known {
                Some(stored) => stored.push((*v, place)),
                None => list.push(Task::Fold(i, at, vec![(*v, place)])),
            }
        }
        // What was read at axes inside, by stage; and what was asked for already.
        let mut loads: Vec<(NestValue, SmallVec<[u32; 4]>)> = Vec::new();
        for t in (0..=last).rev() {
            for inner in [true, false] {
                self.needs((t, inner), &mut tasks, &mut loads);
            }
        }
        let mut tile_bytes = 0u64;
        let points = self.axes.points(&self.inside).unsigned_abs();
        for (v, mut times) in loads {
            times.sort_unstable();
            let &ValueAt { value: v, place, .. } = self.values.of(v);
            let place = copied(self.axes_of(place));
            // What every point reads alike stays in the cache by itself.
            let own = without(&self.domain, &self.axes.all(&place)).is_empty();
            if self.tiles >= TileUse::Read && own && times.len() > 1 && !self.is_reread(v, &place) {
                tasks.entry((times[0], true)).or_default().push(Task::Keep(v, place));
            }
        }
        let mut slots = Vec::new();
        for t in 0..=last {
            for inner in [false, true] {
                let Some(list) = tasks.remove(&(t, inner)) else { continue };
                for task in &list {
                    let dtype = match task {
                        Task::Keep(v, _) => self.facts.f.ty(*v).dtype,
                        Task::Scan(i, _) => {
                            self.facts.f.ty(self.facts.f.args(*i)[0]).dtype.compute()
                        }
                        _ => continue,
                    };
                    tile_bytes = tile_bytes.saturating_add(points.saturating_mul(dtype.bytes()));
                }
                slots.push(((t, inner), list));
            }
        }
        Stages { slots, tile_bytes }
    }

    /// Whether what several stages read is read again by each. Others than floats may be packed, and are unpacked once.
    fn is_reread(&self, v: Value, place: &TensorAxes) -> bool {
        let ends = |run: &AtomRun| run.last() == self.inside.last();
        self.rereads_lines && self.facts.f.ty(v).dtype.is_float() && place.last().is_some_and(ends)
    }

    /// Asks for all that the tasks of a slot need.
    fn needs(
        &mut self,
        slot: StageTime,
        tasks: &mut HashMap<StageTime, Vec<Task>>,
        loads: &mut Vec<(NestValue, SmallVec<[u32; 4]>)>,
    ) {
        let Some(list) = tasks.get(&slot) else { return };
        let facts = self.facts;
        self.values.stages += 1;
        let stage = self.values.stages;
        let mut stack: Vec<NestValue> = Vec::new();
        // In the order of the tasks; what is made of what is asked for first.
        for task in list.iter().rev() {
            match task {
                Task::Store(v, p) => {
                    let place = self.resolved(p);
                    stack.push(self.at(*v, place));
                }
                Task::Row(i, p) | Task::Fold(i, p, _) | Task::Scan(i, p) => {
                    let place = self.resolved(p);
                    stack.push(self.at(facts.f.args(*i)[0], place));
                }
                Task::Leave(v, p) | Task::Keep(v, p) => {
                    let place = self.resolved(p);
                    let v = self.at(*v, place);
                    self.push_parts(v, &mut stack);
                }
            }
        }
        while let Some(v) = stack.pop() {
            let known = self.values.of_mut(v);
            if std::mem::replace(&mut known.needed, stage) == stage {
                continue;
            }
            let &mut ValueAt { value, place, inst, .. } = known;
            let Some(i) = inst else {
                if slot.1 && self.is_inner(place) && facts.f.literal(value).is_none() {
                    match loads.iter_mut().find(|(w, _)| *w == v) {
                        Some((_, times)) => {
                            if !times.contains(&slot.0) {
                                times.push(slot.0);
                            }
                        }
                        None => loads.push((v, SmallVec::from_slice(&[slot.0]))),
                    }
                }
                continue;
            };
            let t = self.time(v);
            match self.asked(v, i, (slot, t)) {
                Some((slot, task)) => {
                    let list = tasks.entry(slot).or_default();
                    if !list.contains(&task) {
                        list.push(task);
                    }
                }
                None => self.push_parts(v, &mut stack),
            }
        }
    }

    /// What another stage, or this one, does for a value of a time that a stage needs; `None` for what the stage computes where
    /// it needs it.
    fn asked(
        &mut self,
        v: NestValue,
        i: Inst,
        (slot, t): (StageTime, u32),
    ) -> Option<(StageTime, Task)> {
        let facts = self.facts;
        let &ValueAt { value, place, .. } = self.values.of(v);
        let at = |nest: &Self| copied(nest.axes_of(place));
        match facts.class[i] {
            InstClass::Reduce(_) if !facts.folds_nothing(i) => {
                return Some(((t - 1, true), Task::Row(i, self.under(i))));
            }
            InstClass::Scan(_) => return Some(((t - 1, true), Task::Scan(i, at(self)))),
            _ => {}
        }
        let map = matches!(facts.f.op(i).def().body, Body::Map(_));
        let inner = self.is_inner(place);
        if map && (slot.1 && !inner || !slot.1 && t < slot.0) {
            return Some(((t, false), Task::Leave(value, at(self))));
        }
        let keeps = self.tiles == TileUse::Computed;
        if slot.1 && inner && t < slot.0 && keeps && self.is_kept(v, i) {
            return Some(((t, true), Task::Keep(value, at(self))));
        }
        None
    }

    fn push_parts(&mut self, v: NestValue, stack: &mut Vec<NestValue>) {
        match self.values.of(v).inst {
            Some(i) => {
                let operands = self.operands(v, i);
                stack.extend(self.values.operands[operands].iter().rev());
            }
            None => stack.push(v),
        }
    }

    /// Whether an element that a later stage needs is kept, not computed again.
    fn is_kept(&mut self, v: NestValue, i: Inst) -> bool {
        // A view is kept as what it is a view of.
        if !matches!(self.facts.f.op(i).def().body, Body::Map(_)) {
            return false;
        }
        if self.facts.weight[i] >= KEPT {
            return true;
        }
        let first = self.values.of(v).value;
        let (mut loads, mut seen, mut stack) = (0, Vec::new(), vec![v]);
        while let Some(v) = stack.pop() {
            let &ValueAt { value, place, inst, .. } = self.values.of(v);
            if seen.contains(&v) || !self.is_inner(place) {
                continue;
            }
            match inst {
                Some(i) => {
                    if value != first && self.facts.weight[i] >= KEPT {
                        loads += 1;
                    } else {
                        let operands = self.operands(v, i);
                        stack.extend_from_slice(&self.values.operands[operands]);
                    }
                }
                None if self.facts.f.literal(value).is_some() => {}
                None => loads += 1,
            }
            seen.push(v);
            if loads > 1 || seen.len() > 16 {
                return true;
            }
        }
        false
    }
}
