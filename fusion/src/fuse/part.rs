//! Parts: the instructions that one kernel computes, and the loop nest they share.
//!
//! A part grows by one instruction at a time. [`Part::join`] decides whether fusion is legal: it aligns the axes of the
//! instruction with the loop nest, and refuses with a reason where they do not align, where a value would cross between
//! points of the domain, or where a row would outgrow its tile. A refusal leaves the part unchanged.

use crate::analysis::axes::{Atom, AtomRun, LoopAxes, TensorAxes, copied, same, without};
use crate::analysis::class::InstClass;
pub(crate) use crate::analysis::class::PartKind;
use crate::analysis::contraction_operands::{depth, side};
use crate::analysis::facts::{Facts, folded, space};
use crate::plan::machine_model::MachineModel;
use crate::plan::refusal::Refusal;
use adfuse_ir::op::Body;
use adfuse_ir::{Inst, Value, ValueDef};
use cranelift_entity::{SecondaryMap, entity_impl};
use hashbrown::HashSet;
use smallvec::SmallVec;

/// Names a part while groups are made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PartId(u32);
entity_impl!(PartId, "part");

/// Instructions that share a loop nest.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) shape: PartKind,
    pub(crate) axes: LoopAxes,
    /// The nest, outermost first, as it was when atoms were added.
    frame: AtomRun,
    /// The atoms of the parallel domain, once something asks for rows; the rest are inside.
    rows: Option<AtomRun>,
    pub(crate) members: Vec<Inst>,
    /// The axes of each value that is read from a buffer, as its first read found them.
    reads: Vec<(Value, TensorAxes)>,
    /// The bytes and the axes of the largest value that the part computes, the last of several.
    written: (i64, TensorAxes),
    /// Values that are read at indices other than axes of the nest.
    shifted: Vec<Value>,
    /// Values that are made of one fold's results and nothing else of the part, with that fold's.
    after: Vec<(Value, Value)>,
    /// Where the operands of its reductions and scans lie.
    pub(crate) under: Vec<(Inst, TensorAxes)>,
    /// What it computes, inlined values included. A hash set: bit sets would take memory quadratic in the function.
    listed: HashSet<Inst>,
    weight: u32,
    /// The axes summed over, for a contraction.
    pub(crate) depth: TensorAxes,
    /// Where a contraction's result lies.
    pub(crate) result: TensorAxes,
}

/// The most primitives a kernel may have for each element.
const MOST_WEIGHT: u32 = 3000;
/// The fewest elements that what is computed once for all of them is kept for.
const FEWEST: i64 = 8;
/// With this many members, a kernel accepts only instructions that read its own values: others add a result to store.
const MOST_MEMBERS: usize = 256;
/// The most tensors a kernel may read.
const MOST_READS: usize = 48;

/// What an instruction reads once free instructions are inlined.
struct ReadLeaf {
    value: Value,
    /// Where, if its axes are axes of the reader.
    place: Option<TensorAxes>,
}

/// What an instruction and the free ones it uses read, and which those are.
#[derive(Default)]
struct ReachedLeaves {
    leaves: Vec<ReadLeaf>,
    seen: SmallVec<[(Inst, Option<TensorAxes>); 8]>,
}

/// The domain once an instruction has joined, and the fold that it follows.
type Levels = (Option<AtomRun>, Option<Value>);

/// What is known of a part's surroundings.
pub(crate) struct PartContext<'a> {
    pub(crate) facts: &'a Facts<'a>,
    pub(crate) device: &'a MachineModel,
    /// Where the values of each part's members lie.
    pub(crate) place: &'a SecondaryMap<Value, Option<TensorAxes>>,
    /// Whether an instruction may join a part with which it shares nothing yet: a later member reads both.
    pub(crate) joins_unrelated: bool,
}

impl Part {
    /// A part that begins with this instruction, and where its value lies.
    pub(crate) fn begin(cx: &PartContext<'_>, i: Inst) -> (Part, TensorAxes) {
        let facts = cx.facts;
        let shape = PartKind::of(facts.class[i], i);
        let mut part = Part {
            shape,
            axes: LoopAxes::default(),
            frame: AtomRun::new(),
            rows: None,
            members: vec![i],
            reads: Vec::new(),
            written: (0, TensorAxes::new()),
            shifted: Vec::new(),
            after: Vec::new(),
            under: Vec::new(),
            listed: HashSet::new(),
            weight: 0,
            depth: TensorAxes::new(),
            result: TensorAxes::new(),
        };
        part.axes.begin();
        let space = space(facts, i);
        let place = part.axes.place(&facts.dims[space]);
        part.frame = part.axes.all(&place);
        if let PartKind::Contract(_) = shape {
            // Points of the result; the axes summed over are no part of the nest.
            let dims = depth(facts, i);
            part.depth = part.axes.place(&dims);
            part.rows = Some(part.frame.clone());
            part.result = place.clone();
        }
        if let InstClass::Scan(_) = facts.class[i] {
            let run = part.axes.whole(&place[facts.f.attrs(i).int("axis") as usize]);
            part.axes.solidify(&run);
            part.rows = Some(without(&part.frame, &run));
        }
        if let PartKind::Contract(_) = shape {
            // Operands may divide the axes; that is done before coordinates are counted.
            for k in 0..2 {
                part.divide(
                    facts,
                    facts.f.args(i)[k],
                    side(facts, i, k, &place, &part.depth.clone()),
                );
            }
        }
        let reach = part.reach(facts, i, &place);
        part.note(facts, i, reach);
        part.note_under(facts, i, &place);
        let result = result_place(facts, i, &place);
        part.write(facts, i, &result);
        (part, result)
    }

    /// The nest in undivided atoms, the domain's first.
    pub(crate) fn frame(&self) -> (AtomRun, AtomRun) {
        let all = self.axes.whole(&self.frame);
        let Some(rows) = &self.rows else { return (all, AtomRun::new()) };
        let rows = self.axes.whole(rows);
        let inside = without(&all, &rows);
        (all.into_iter().filter(|a| rows.contains(a)).collect(), inside)
    }

    /// Whether a value that it reads lies in memory as the largest of what it computes does, which is what it goes
    /// along.
    pub(crate) fn has_axes_of(&self, v: Value) -> bool {
        let Some((_, place)) = self.reads.iter().find(|(w, _)| *w == v) else { return false };
        let mut walked = self.axes.all(&self.written.1).into_iter();
        self.axes.all(place).iter().all(|a| walked.any(|b| b == *a))
    }

    /// Records what an instruction computes. A contraction iterates over its result, whatever follows.
    fn write(&mut self, facts: &Facts<'_>, i: Inst, place: &TensorAxes) {
        let v = facts.f.inst_results(i)[0];
        let bytes = facts.elements[v].saturating_mul(facts.f.ty(v).dtype.bytes() as i64);
        let largest = bytes >= self.written.0 && !matches!(self.shape, PartKind::Contract(_));
        if largest || self.members.len() == 1 {
            self.written = (bytes, self.axes.resolve(place));
        }
    }

    /// Whether it computes an instruction, as a member or inlined.
    pub(crate) fn lists(&self, i: Inst) -> bool {
        self.listed.contains(&i)
    }

    fn note_under(&mut self, facts: &Facts<'_>, i: Inst, place: &TensorAxes) {
        if matches!(facts.class[i], InstClass::Reduce(_) | InstClass::Scan(_)) {
            let place = self.axes.resolve(place);
            self.under.push((i, place));
        }
    }

    fn note(&mut self, facts: &Facts<'_>, i: Inst, reach: ReachedLeaves) {
        for leaf in reach.leaves {
            match leaf.place {
                Some(place) if !self.reads.iter().any(|(v, _)| *v == leaf.value) => {
                    let place = self.axes.resolve(&place);
                    self.reads.push((leaf.value, place));
                }
                None if !self.shifted.contains(&leaf.value) => self.shifted.push(leaf.value),
                _ => {}
            }
        }
        for j in reach.seen.into_iter().map(|(j, _)| j).chain([i]) {
            if self.listed.insert(j) {
                self.weight = self.weight.saturating_add(facts.weight[j]);
            }
        }
    }

    /// Adds an instruction, when that is legal, and gives the place of its value. `inside` says
    /// whether a value is computed in this part.
    pub(crate) fn join(
        &mut self,
        cx: &PartContext<'_>,
        i: Inst,
        inside: &dyn Fn(Value) -> Result<bool, Refusal>,
    ) -> Result<TensorAxes, Refusal> {
        let class = cx.facts.class[i];
        if class.is_alone()
            || matches!(class, InstClass::Contract | InstClass::Constant)
            || self.shape.is_alone()
            || matches!(self.shape, PartKind::Contract(_)) && !cx.device.contract_epilogue
        {
            return Err(Refusal::Kind);
        }
        let mark = self.axes.begin();
        let rows = self.rows.clone();
        let joined = self.try_join(cx, i, inside);
        match joined {
            Ok((space, rows, added, reach)) => {
                let place = self.axes.resolve(&result_place(cx.facts, i, &space));
                self.note_under(cx.facts, i, &space);
                if let Some(fold) = rows.1 {
                    self.after.push((cx.facts.f.inst_results(i)[0], fold));
                }
                let rows = rows.0;
                self.rows = rows;
                self.frame.extend(added);
                self.note(cx.facts, i, reach);
                self.members.push(i);
                self.write(cx.facts, i, &place);
                Ok(place)
            }
            Err(why) => {
                self.axes.undo(mark);
                self.rows = rows;
                Err(why)
            }
        }
    }

    fn try_join(
        &mut self,
        cx: &PartContext<'_>,
        i: Inst,
        inside: &dyn Fn(Value) -> Result<bool, Refusal>,
    ) -> Result<(TensorAxes, Levels, AtomRun, ReachedLeaves), Refusal> {
        let facts = cx.facts;
        let place = self.axes.place(&facts.dims[space(facts, i)]);
        let mut reach = self.reach(facts, i, &place);
        let new = reach.seen.iter().map(|(j, _)| *j).chain([i]).filter(|&j| !self.lists(j));
        let weight: u32 = new.map(|j| facts.weight[j]).sum();
        let full = self.members.len() >= MOST_MEMBERS;
        let view = matches!(facts.f.op(i).def().body, Body::View(_));
        if full && view || self.weight.saturating_add(weight) > MOST_WEIGHT {
            return Err(Refusal::Size);
        }
        let (mut here, mut outside) = (Vec::new(), Vec::new());
        for leaf in reach.leaves.drain(..) {
            if inside(leaf.value)? { here.push(leaf) } else { outside.push(leaf) }
        }
        if full && here.is_empty() {
            return Err(Refusal::Size);
        }
        for leaf in &here {
            let known = cx.place[leaf.value].as_ref();
            match (&leaf.place, known) {
                (Some(p), Some(known)) if self.axes.unify_places(p, known) => {}
                _ => return Err(Refusal::Axes(leaf.value)),
            }
        }
        // What is read from buffers need not be read where it was before, but had better.
        let mut shared = !here.is_empty();
        for leaf in &outside {
            let known = self.reads.iter().find(|(v, _)| *v == leaf.value).map(|(_, p)| p);
            if let (Some(p), Some(known)) = (&leaf.place, known) {
                let mark = self.axes.mark();
                match self.axes.unify_places(p, known) {
                    true => shared = true,
                    false => {
                        self.axes.undo(mark);
                    }
                }
            }
        }
        // Neighbours of what is read already, such as the elements of a window, in the same space.
        let beside = |l: &ReadLeaf| l.place.is_none() && self.shifted.contains(&l.value);
        let neighbours = !shared && outside.iter().any(beside);
        if !shared && !neighbours && !cx.joins_unrelated {
            return Err(Refusal::Apart);
        }
        let added = self.align(&place);
        // Axes of its own are a reason for a kernel of its own where nothing says how they lie to those of the nest.
        if !shared && !added.is_empty() {
            return Err(Refusal::Apart);
        }
        let all = self.axes.all(&place);
        if (1..all.len()).any(|k| all[..k].contains(&all[k])) {
            return Err(Refusal::Axes(facts.f.inst_results(i)[0]));
        }
        let rows = self.levels(cx, i, &place, &all, &added, &here)?;
        if self.reads.len() + outside.len() > MOST_READS {
            return Err(Refusal::Size);
        }
        reach.leaves = outside;
        Ok((place, rows, added, reach))
    }

    /// Gives atoms that nothing told where they lie the atoms of the nest that are left over, in
    /// order; those that fit none are new, and returned.
    fn align(&mut self, place: &TensorAxes) -> AtomRun {
        let used = self.axes.all(place);
        let mut left: AtomRun =
            self.axes.whole(&self.frame).into_iter().filter(|a| !used.contains(a)).collect();
        let mut added = AtomRun::new();
        for a in used {
            if !self.axes.is_fresh(a) {
                continue;
            }
            let fits = |b: &Atom| self.axes.extent(*b) == self.axes.extent(a);
            match left.iter().position(fits) {
                Some(k) => {
                    let b = left[k];
                    self.axes.unify(&[a], &[b]);
                    left.drain(..=k);
                }
                None => added.push(a),
            }
        }
        added
    }

    /// The domain with an instruction along the atoms `all` in it, if that is possible.
    fn levels(
        &mut self,
        cx: &PartContext<'_>,
        i: Inst,
        place: &TensorAxes,
        all: &AtomRun,
        added: &AtomRun,
        here: &[ReadLeaf],
    ) -> Result<Levels, Refusal> {
        let facts = cx.facts;
        if let Some(fold) = self.follows(facts, i, all, here) {
            return Ok((self.rows.clone(), Some(fold)));
        }
        let old = self.axes.whole(&self.frame);
        let frame: AtomRun = old.iter().chain(added).copied().collect();
        let mut rows = self.rows.as_ref().map(|r| self.axes.whole(r));
        let mut demand = |atoms: AtomRun, why: Refusal| match &rows {
            None => {
                rows = Some(atoms);
                Ok(())
            }
            Some(rows) if same(rows, &atoms) => Ok(()),
            Some(_) => Err(why),
        };
        for leaf in here {
            if self.fold_of(facts, leaf.value).is_some() {
                // Folded over all that is inside, so the fold is done when the point goes on.
                let kept = leaf.place.as_ref().map_or_else(AtomRun::new, |p| self.axes.all(p));
                demand(kept, Refusal::Barrier(leaf.value))?;
            }
        }
        if let InstClass::Scan(_) = facts.class[i] {
            let run = self.axes.whole(&place[facts.f.attrs(i).int("axis") as usize]);
            if run.len() > 1 {
                return Err(Refusal::Nest);
            }
            self.axes.solidify(&run);
            demand(without(&frame, &run), Refusal::Nest)?;
        }
        if !added.is_empty() {
            // What is there already is computed once a row of the larger nest.
            demand(old.clone(), Refusal::Nest)?;
            // A few a few adjacent elements are not a row with vectors: what is spread over them is read
            // by a kernel whose axes are those of what it stores.
            let spread = self.rows.is_none() && matches!(facts.class[i], InstClass::Point);
            if spread && self.axes.points(added) < FEWEST {
                return Err(Refusal::Nest);
            }
        }
        if matches!(self.shape, PartKind::Contract(_)) && !added.is_empty() {
            return Err(Refusal::Nest);
        }
        if let (PartKind::Contract(_), InstClass::Reduce(_)) = (self.shape, facts.class[i]) {
            self.check_tile_order(cx, i, place, &frame)?;
        }
        let full = all.len() == frame.len();
        let row = rows.as_ref().is_some_and(|r| same(r, all));
        if !full && !row {
            return Err(Refusal::Nest);
        }
        if let InstClass::Scan(_) = facts.class[i]
            && !full
        {
            return Err(Refusal::Nest);
        }
        let decided = rows.is_some() && self.rows.is_none();
        if decided || !added.is_empty() {
            let domain = rows.as_ref().unwrap_or(&frame);
            let inner = self.axes.points(&without(&frame, domain));
            cx.device.rows(self.axes.points(domain), inner)?;
        }
        Ok((rows, None))
    }

    /// The fold whose results a value of this part is made of, if it is made of one.
    fn fold_of(&self, facts: &Facts<'_>, v: Value) -> Option<Value> {
        match facts.f.def(v) {
            ValueDef::Inst(j, _)
                if matches!(facts.class[j], InstClass::Reduce(_)) && !facts.folds_nothing(j) =>
            {
                Some(v)
            }
            _ => self.after.iter().find(|(w, _)| *w == v).map(|(_, fold)| *fold),
        }
    }

    /// The fold that an instruction can follow: it reads that alone of the part, at the coordinates
    /// that remain. It may be a whole pass later, so nothing is asked of the domain.
    fn follows(&self, facts: &Facts<'_>, i: Inst, all: &AtomRun, at: &[ReadLeaf]) -> Option<Value> {
        if facts.class[i] != InstClass::Point {
            return None;
        }
        let fold = self.fold_of(facts, at.first()?.value)?;
        let along = |leaf: &ReadLeaf| {
            leaf.place.as_ref().is_some_and(|p| same(&self.axes.all(p), all))
                && self.fold_of(facts, leaf.value) == Some(fold)
        };
        at.iter().all(along).then_some(fold)
    }

    /// What an instruction at `place` reads.
    fn reach(&mut self, facts: &Facts<'_>, i: Inst, place: &TensorAxes) -> ReachedLeaves {
        let mut reach = ReachedLeaves::default();
        self.operands(facts, i, Some(place), &mut reach);
        reach
    }

    fn operands(
        &mut self,
        facts: &Facts<'_>,
        i: Inst,
        place: Option<&TensorAxes>,
        reach: &mut ReachedLeaves,
    ) {
        let (body, nowhere) = (facts.f.op(i).def().body, TensorAxes::new());
        for (k, &a) in facts.f.args(i).iter().enumerate() {
            if facts.f.literal(a).is_some() {
                continue;
            }
            let of_view;
            let at = match (body, place) {
                (_, None) => None,
                (Body::Map(_) | Body::Reduce(_) | Body::Scan(_), Some(p)) => Some(p),
                (Body::Source(_), Some(_)) => Some(&nowhere),
                (Body::View(_), Some(p)) if k == 0 => {
                    of_view = facts.through(&mut self.axes, i, p);
                    of_view.as_ref()
                }
                _ => None,
            };
            // Most places are known, and are not copied.
            match facts.free(a) {
                Some(j) => {
                    let is_known = |(i, p): &(Inst, Option<_>)| *i == j && p.as_ref() == at;
                    if !reach.seen.iter().any(is_known) {
                        self.operands(facts, j, at, reach);
                        reach.seen.push((j, at.map(copied)));
                    }
                }
                None if reach.leaves.iter().any(|l| l.value == a && l.place.as_ref() == at) => {}
                None => reach.leaves.push(ReadLeaf { value: a, place: at.map(copied) }),
            }
        }
    }
}

fn result_place(facts: &Facts<'_>, i: Inst, place: &TensorAxes) -> TensorAxes {
    match facts.class[i] {
        InstClass::Reduce(_) => {
            let kept = place.iter().zip(folded(facts, i)).filter(|(_, f)| !f);
            kept.map(|(run, _)| AtomRun::from_slice(run)).collect()
        }
        _ => copied(place),
    }
}
