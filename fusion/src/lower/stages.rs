//! The stages of a kernel: which values each stage computes, and what it leaves to later stages.
//!
//! A value's *time* is the number of folds of the kernel that it depends on. For each time there may be a stage once a
//! point, for scalars of rows, followed by a stage over the inner axes. Stages are visited from last to first, and each
//! requests its operands. Scalars of earlier times become rows. Elements become tiles if recomputing them costs more,
//! and are loaded once if several stages read them.

use crate::analysis::axes::{AtomRun, LoopAxes, TensorAxes};
use crate::analysis::class::InstClass;
use crate::analysis::facts::{Facts, folded};
use crate::fuse::part::without;
use adfuse_ir::op::Body;
use adfuse_ir::{Inst, Value, ValueDef};
use hashbrown::HashMap;
use smallvec::SmallVec;

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
    times: HashMap<(Value, TensorAxes), u32>,
    folds: HashMap<(Value, TensorAxes), Option<Inst>>,
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
        let (times, folds) = (HashMap::new(), HashMap::new());
        Nest { facts, axes, domain, inside, listed, places, tiles, times, folds }
    }

    fn is_inner(&self, place: &TensorAxes) -> bool {
        self.axes.all(place).iter().any(|a| self.inside.contains(a))
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
    fn operands(&mut self, i: Inst, place: &TensorAxes) -> SmallVec<[(Value, TensorAxes); 4]> {
        let facts = self.facts;
        let f = facts.f;
        match f.op(i).def().body {
            Body::Map(_) => f.args(i).iter().map(|&a| (a, place.clone())).collect(),
            // Single numbers, the same everywhere.
            Body::Source(_) => f.args(i).iter().map(|&a| (a, TensorAxes::new())).collect(),
            Body::Scan(_) if facts.scans_nothing(i) => {
                SmallVec::from_iter([(f.args(i)[0], place.clone())])
            }
            Body::View(_) => {
                let mark = self.axes.begin();
                let under = facts.through(self.axes, i, place);
                let divided = self.axes.undo(mark);
                let under = under.filter(|_| !divided).map(|p| self.axes.resolve(&p));
                under.into_iter().map(|p| (f.args(i)[0], p)).collect()
            }
            Body::Reduce(_) if facts.folds_nothing(i) => {
                let mut kept = place.iter().cloned();
                let next = |f: bool| if f { None } else { kept.next() };
                let at = folded(facts, i).into_iter().map(next);
                let at = at.collect::<SmallVec<[Option<AtomRun>; 4]>>();
                let at = at.into_iter().map(Option::unwrap_or_default).collect();
                SmallVec::from_iter([(f.args(i)[0], at)])
            }
            _ => SmallVec::new(),
        }
    }

    /// The fold over points of the domain that a value is made of.
    pub(crate) fn fold_of(&mut self, v: Value, place: &TensorAxes) -> Option<Inst> {
        let i = self.computed(v)?;
        let key = (v, self.axes.resolve(place));
        if let Some(&known) = self.folds.get(&key) {
            return known;
        }
        let facts = self.facts;
        let found = match facts.class[i] {
            InstClass::Reduce(_) if !facts.folds_nothing(i) => {
                let at = self.under(i);
                (!self.in_rows(i, &at)).then_some(i)
            }
            InstClass::Scan(_) => None,
            _ => {
                let operands = self.operands(i, &key.1);
                operands.iter().find_map(|(a, p)| self.fold_of(*a, p))
            }
        };
        self.folds.insert(key, found);
        found
    }

    fn computed(&self, v: Value) -> Option<Inst> {
        match self.facts.f.def(v) {
            ValueDef::Inst(i, _) if (self.listed)(i) => Some(i),
            _ => None,
        }
    }

    /// How many folds lie before a value.
    pub(crate) fn time(&mut self, v: Value, place: &TensorAxes) -> u32 {
        let Some(i) = self.computed(v) else { return 0 };
        let key = (v, self.axes.resolve(place));
        if let Some(&t) = self.times.get(&key) {
            return t;
        }
        let facts = self.facts;
        let t = match facts.class[i] {
            InstClass::Reduce(_) if !facts.folds_nothing(i) => {
                let x = self.under(i);
                self.time(facts.f.args(i)[0], &x) + 1
            }
            InstClass::Scan(_) => self.time(facts.f.args(i)[0], &key.1) + 1,
            _ => {
                let operands = self.operands(i, &key.1);
                operands.iter().map(|(a, p)| self.time(*a, p)).max().unwrap_or(0)
            }
        };
        self.times.insert(key, t);
        t
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
            let Some(i) = self.fold_of(*v, &place) else {
                let slot = (self.time(*v, &place), self.is_inner(&place));
                last = last.max(slot.0);
                tasks.entry(slot).or_default().push(Task::Store(*v, place));
                continue;
            };
            let at = self.under(i);
            let slot = (self.time(self.facts.f.args(i)[0], &at), self.is_inner(&at));
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
        let mut loads: Vec<(Value, TensorAxes, Vec<u32>)> = Vec::new();
        for t in (0..=last).rev() {
            for inner in [true, false] {
                self.needs((t, inner), &mut tasks, &mut loads);
            }
        }
        let mut tile_bytes = 0u64;
        let points = self.axes.points(&self.inside).unsigned_abs();
        for (v, place, mut times) in loads {
            times.sort_unstable();
            // What every point reads alike stays in the cache by itself.
            let own = without(&self.domain, &self.axes.all(&place)).is_empty();
            if self.tiles >= TileUse::Read && own && times.len() > 1 {
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

    /// Asks for all that the tasks of a slot need.
    fn needs(
        &mut self,
        slot: StageTime,
        tasks: &mut HashMap<StageTime, Vec<Task>>,
        loads: &mut Vec<(Value, TensorAxes, Vec<u32>)>,
    ) {
        let Some(list) = tasks.get(&slot) else { return };
        let facts = self.facts;
        let mut seen: HashMap<(Value, TensorAxes), ()> = HashMap::new();
        let mut stack: Vec<(Value, TensorAxes)> = Vec::new();
        // In the order of the tasks; what is made of what is asked for first.
        for task in list.iter().rev() {
            match task {
                Task::Store(v, p) => stack.push((*v, p.clone())),
                Task::Row(i, p) | Task::Fold(i, p, _) | Task::Scan(i, p) => {
                    stack.push((facts.f.args(*i)[0], p.clone()));
                }
                Task::Leave(v, p) | Task::Keep(v, p) => self.push_parts(*v, p, &mut stack),
            }
        }
        while let Some((v, place)) = stack.pop() {
            if facts.f.literal(v).is_some() {
                continue;
            }
            let key = (v, self.axes.resolve(&place));
            if seen.insert(key.clone(), ()).is_some() {
                continue;
            }
            let (v, place) = key;
            let inner = self.is_inner(&place);
            let Some(i) = self.computed(v) else {
                if inner && slot.1 {
                    match loads.iter_mut().find(|(w, p, _)| *w == v && *p == place) {
                        Some((.., times)) => {
                            if !times.contains(&slot.0) {
                                times.push(slot.0);
                            }
                        }
                        None => loads.push((v, place, vec![slot.0])),
                    }
                }
                continue;
            };
            let t = self.time(v, &place);
            let mut ask = |slot: StageTime, task: Task| {
                let list = tasks.entry(slot).or_default();
                if !list.contains(&task) {
                    list.push(task);
                }
            };
            match facts.class[i] {
                InstClass::Reduce(_) if !facts.folds_nothing(i) => {
                    let at = self.under(i);
                    ask((t - 1, true), Task::Row(i, at));
                    continue;
                }
                InstClass::Scan(_) => {
                    ask((t - 1, true), Task::Scan(i, place));
                    continue;
                }
                _ => {}
            }
            let map = matches!(facts.f.op(i).def().body, Body::Map(_));
            if slot.1 && !inner && map {
                ask((t, false), Task::Leave(v, place));
                continue;
            }
            if !slot.1 && t < slot.0 && map {
                ask((t, false), Task::Leave(v, place));
                continue;
            }
            let keeps = self.tiles == TileUse::Computed;
            if slot.1 && inner && t < slot.0 && keeps && self.is_kept(v, i, &place) {
                ask((t, true), Task::Keep(v, place));
                continue;
            }
            self.push_parts(v, &place, &mut stack);
        }
    }

    fn push_parts(&mut self, v: Value, place: &TensorAxes, stack: &mut Vec<(Value, TensorAxes)>) {
        match self.computed(v) {
            Some(i) => stack.extend(self.operands(i, place).into_iter().rev()),
            None => stack.push((v, place.clone())),
        }
    }

    /// Whether an element that a later stage needs is kept, not computed again.
    fn is_kept(&mut self, v: Value, i: Inst, place: &TensorAxes) -> bool {
        // A view is kept as what it is a view of.
        if !matches!(self.facts.f.op(i).def().body, Body::Map(_)) {
            return false;
        }
        if self.facts.weight[i] >= KEPT {
            return true;
        }
        let (mut loads, mut seen, mut stack) = (0, Vec::new(), vec![(v, place.clone())]);
        while let Some((v, p)) = stack.pop() {
            if seen.contains(&(v, p.clone())) || !self.is_inner(&p) {
                continue;
            }
            match self.computed(v) {
                Some(i) => {
                    if v != seen.first().map_or(v, |(f, _): &(Value, TensorAxes)| *f)
                        && self.facts.weight[i] >= KEPT
                    {
                        loads += 1;
                    } else {
                        stack.extend(self.operands(i, &p));
                    }
                }
                None if self.facts.f.literal(v).is_some() => {}
                None => loads += 1,
            }
            seen.push((v, p));
            if loads > 1 || seen.len() > 16 {
                return true;
            }
        }
        false
    }
}
