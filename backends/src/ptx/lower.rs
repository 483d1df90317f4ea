//! Steps of a program as work of few forms: flat loops, rows, products, and what joins them through
//! memory beside the buffers.
//!
//! A kernel whose points fold rows in the lane order stays whole ([`Work::Rows`]). What folds over points
//! is taken out of it, as a flat loop that reads what the rows left; any other kernel is taken apart
//! into flat loops. A fold of several runs is one for each run.

use super::inline::{Defs, Inliner, Source, data_sources, defs};
use super::place::coordinates;
use crate::cpu::attention;
use adfuse_ir::affine::simplified;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{
    Buffer, BufferData, Contract, Extents, Kernel, Member, Operand, Order, Param, Piece, Program,
    Role, Row, Run, Scatter, Schedule, Sink, Space, Stage, Step, Storage, Tile,
};
use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::{Recorder, ScalarProgram};
use adfuse_ir::{At, DType, Diagnostic, Kind};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;

/// A loop over points, in any order, with one stage that has no axes: stores, and folds of one run each.
pub(super) struct Flat {
    pub(super) domain: Extents,
    pub(super) stage: Stage,
}

/// What a step is made of.
pub(super) enum Work {
    Flat(Flat),
    /// A kernel whose folds are rows in the lane order, and which folds over no points.
    Rows(Kernel),
    Scan(Scan),
    Join(Join),
    /// Elements of one buffer, at the places they have in memory, into the words of a packed one.
    Pack {
        from: Buffer,
        to: Buffer,
    },
    /// A contraction whose sums are stored.
    Product(Member),
    Scatter(Scatter),
}

/// Partial results along the middle one of three axes, in place.
pub(super) struct Scan {
    pub(super) buffer: Buffer,
    pub(super) extents: [i64; 3],
    pub(super) monoid: Monoid,
    pub(super) reverse: bool,
    /// Buffers for the last elements of groups, a level each.
    pub(super) lasts: Vec<Buffer>,
}

/// Parts of folds, joined in the balanced tree: of each point one part, folded over its last axes.
pub(super) struct Join {
    pub(super) from: Buffer,
    pub(super) domain: Extents,
    pub(super) folded: Vec<usize>,
    pub(super) monoid: Monoid,
    pub(super) dtype: DType,
    pub(super) then: Stage,
}

/// Where a buffer of the lowered program is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Home {
    /// Where the given program has it.
    #[default]
    Given,
    /// The caller's array of a buffer.
    Caller(Buffer),
    /// So far into the scratch of its step.
    Scratch(u64),
}

/// The work of one step.
#[derive(Default)]
struct Lowered {
    works: Vec<Work>,
    scratch: u64,
}

/// Lowers steps one after the other.
pub(super) struct Lowering {
    /// The given program with the buffers that were added.
    pub(super) program: Program,
    pub(super) homes: SecondaryMap<Buffer, Home>,
    step: Lowered,
    problem: Option<Diagnostic>,
}

pub(super) fn identity(d: DType) -> ScalarProgram {
    Recorder::record_any(&[d], |x| x[0])
}

pub(super) fn axes(n: usize) -> SmallVec<[IndexExpr; 4]> {
    (0..n).map(IndexExpr::axis).collect()
}

pub(super) fn load(b: Buffer, index: SmallVec<[IndexExpr; 4]>) -> Param {
    let piece = Piece { from: Operand::Buffer(b), index, guards: SmallVec::new() };
    Param::Load(SmallVec::from_iter([piece]))
}

pub(super) fn volume(extents: &[i64]) -> i64 {
    extents.iter().fold(1i64, |n, &m| n.saturating_mul(m.max(0)))
}

impl Lowering {
    pub(super) fn new(program: &Program) -> Lowering {
        Lowering {
            program: program.clone(),
            homes: SecondaryMap::new(),
            step: Lowered::default(),
            problem: None,
        }
    }

    /// A buffer in the scratch of the step.
    pub(super) fn temp(&mut self, dtype: DType, dims: Extents) -> Buffer {
        let name = format!("beside.{}", self.program.buffers.len());
        let data = BufferData::new(name, dtype, dims, Role::Temp);
        let bytes = volume(&data.dims).saturating_mul(dtype.bytes() as i64) as u64;
        let b = self.program.buffers.push(data);
        self.homes[b] = Home::Scratch(self.step.scratch);
        let end =
            self.step.scratch.checked_add(bytes).and_then(|n| n.checked_next_multiple_of(256));
        match end.filter(|&n| n < 1 << 62) {
            Some(end) => self.step.scratch = end,
            None => {
                let m = "memory beside the buffers outgrows what can be addressed".to_owned();
                self.problem = Some(Diagnostic::new(At::default(), Kind::Limit, m));
            }
        }
        b
    }

    /// The same memory as a buffer of the scratch, with other extents.
    pub(super) fn alias(&mut self, b: Buffer, dims: Extents) -> Buffer {
        let name = format!("beside.{}", self.program.buffers.len());
        let dtype = self.program.buffers[b].dtype;
        let other = self.program.buffers.push(BufferData::new(name, dtype, dims, Role::Temp));
        self.homes[other] = self.homes[b];
        other
    }

    fn push(&mut self, work: Work) {
        self.step.works.push(work);
    }

    /// The work that was added since this was asked last.
    pub(super) fn taken(&mut self) -> Result<Vec<Work>, Diagnostic> {
        let works = std::mem::take(&mut self.step.works);
        self.problem.take().map_or(Ok(works), Err)
    }

    /// Ends a step: the bytes of its scratch.
    pub(super) fn ended(&mut self) -> Result<u64, Diagnostic> {
        let step = std::mem::take(&mut self.step);
        self.problem.take().map_or(Ok(step.scratch), Err)
    }

    /// What a step is made of; nothing for a transfer, which copies.
    pub(super) fn step(&mut self, step: &Step) -> Result<Vec<Work>, Diagnostic> {
        self.one(step)?;
        self.taken()
    }

    fn one(&mut self, step: &Step) -> Result<(), Diagnostic> {
        match step {
            Step::Kernel(kernel) => self.kernel(kernel),
            Step::Contract(contract) => self.contract(contract),
            Step::Attend(attend) => {
                // The rewriting adds temporaries, which are this step's own.
                let mut steps = Vec::new();
                let mut given = std::mem::take(&mut self.program);
                let before = given.buffers.len();
                attention(&mut given, attend, &mut |step| steps.push(step));
                let added: Vec<Buffer> = given.buffers.keys().skip(before).collect();
                self.program = given;
                for b in added {
                    let bytes = self.program.buffers[b].bytes().next_multiple_of(256);
                    self.homes[b] = Home::Scratch(self.step.scratch);
                    self.step.scratch = self.step.scratch.saturating_add(bytes);
                }
                steps.iter().try_for_each(|step| self.one(step))?;
            }
            Step::Scatter(scatter) => self.scatter(scatter),
            Step::Library(library) => {
                let m = format!("there is no library function @{} for PTX", library.function);
                return Err(Diagnostic::new(At::default(), Kind::Unsupported, m));
            }
            Step::Transfer(_) => {}
        }
        Ok(())
    }

    /// Copies of what callers hand over (`enter`) or are handed, where buffers are packed or have strides.
    pub(super) fn copies(&mut self, enter: bool) -> Result<Vec<Work>, Diagnostic> {
        let inputs: Vec<Buffer> = self.program.inputs().collect();
        let mut wanted = if enter { inputs } else { self.program.outputs.clone() };
        wanted.sort();
        wanted.dedup();
        for b in wanted {
            let data = self.program.buffers[b].clone();
            let dense = data.storage == Storage::Plain && data.strides.is_none();
            let device = data.space == Space::Device;
            if dense || !device || matches!(data.role, Role::Constant(_)) {
                continue;
            }
            let name = format!("copy of %{}", data.name);
            let plain = BufferData { storage: Storage::Plain, strides: None, name, ..data.clone() };
            let caller = self.program.buffers.push(plain);
            self.homes[caller] = Home::Caller(b);
            let (from, to) = if enter { (caller, b) } else { (b, caller) };
            let stage = Stage {
                params: vec![load(from, axes(data.dims.len()))],
                program: identity(data.dtype),
                sinks: vec![Sink::Store { buffer: to, index: axes(data.dims.len()) }],
                ..Stage::default()
            };
            self.flat(data.dims.clone(), stage);
        }
        self.taken()
    }

    /// Adds a flat loop: stores into packed buffers and folds of several runs become loops of their own.
    pub(super) fn flat(&mut self, domain: Extents, mut stage: Stage) {
        let mut after = Vec::new();
        let mut before = Vec::new();
        let folds = stage.sinks.iter().any(|s| matches!(s, Sink::Fold { .. }));
        for (k, sink) in stage.sinks.iter_mut().enumerate() {
            let dtype = stage.program.insts[stage.program.outputs[k]].dtype;
            match sink {
                // Threads next to each other make words of neighbours.
                Sink::Store { buffer, index }
                    if !folds && self.in_order(*buffer, index, &domain) => {}
                Sink::Store { buffer, index } => {
                    if let Some((temp, place)) = self.unpacked(*buffer, index) {
                        after.push(Work::Pack { from: temp, to: *buffer });
                        (*buffer, *index) = (temp, place);
                    }
                }
                Sink::Fold { monoid, runs, then } => {
                    if free(*monoid, dtype) {
                        merge(runs);
                    }
                    if runs.len() > 1 {
                        // The first run into memory, and what is left of it as a loop of its own.
                        let mut left = domain.clone();
                        runs[0].axes.iter().for_each(|&a| left[usize::from(a)] = 1);
                        let temp = self.temp(dtype, left.clone());
                        let rest: SmallVec<[Run; 2]> = runs.drain(1..).collect();
                        let whole = axes(left.len());
                        // What is folded away has no coordinate.
                        let folded = |a: usize| runs[0].axes.iter().any(|&b| usize::from(b) == a);
                        let of = |a: usize| match folded(a) {
                            true => IndexExpr::Const(0),
                            false => IndexExpr::axis(a),
                        };
                        let place = (0..left.len()).map(of).collect();
                        let own = Stage::storing(dtype, temp, dtype, place);
                        let then = std::mem::replace(then, Box::new(own));
                        let stage = Stage {
                            params: vec![load(temp, whole)],
                            program: identity(dtype),
                            sinks: vec![Sink::Fold { monoid: *monoid, runs: rest, then }],
                            ..Stage::default()
                        };
                        before.push((left, stage));
                    }
                }
                _ => {}
            }
        }
        // What follows a fold may pack too.
        for sink in &mut stage.sinks {
            if let Sink::Fold { then, .. } = sink {
                for sink in &mut then.sinks {
                    if let Sink::Store { buffer, index } = sink
                        && let Some((temp, place)) = self.unpacked(*buffer, index)
                    {
                        after.push(Work::Pack { from: temp, to: *buffer });
                        (*buffer, *index) = (temp, place);
                    }
                }
            }
        }
        self.push(Work::Flat(Flat { domain, stage }));
        before.into_iter().for_each(|(domain, stage)| self.flat(domain, stage));
        after.into_iter().for_each(|work| self.push(work));
    }

    /// Whether a store goes by the elements of its buffer in the order in which memory has them.
    fn in_order(&self, b: Buffer, index: &[IndexExpr], domain: &[i64]) -> bool {
        let data = &self.program.buffers[b];
        let mut place = IndexExpr::Const(0);
        for (e, &n) in index.iter().zip(&data.dims) {
            place = place.times(n.max(1)).sum(e.clone());
        }
        let total = volume(domain);
        let at = coordinates(&IndexExpr::axis(0), domain);
        let place = simplified(&place.compose(&at), &[total]);
        data.strides.is_none() && (place == IndexExpr::axis(0) || total == 1)
    }

    /// For a packed buffer, where its elements are put first: in a buffer of one axis, by their places.
    fn unpacked(
        &mut self,
        b: Buffer,
        index: &[IndexExpr],
    ) -> Option<(Buffer, SmallVec<[IndexExpr; 4]>)> {
        let data = self.program.buffers[b].clone();
        let Storage::Packed(_) = data.storage else { return None };
        let (mut dense, mut reach) = (1i64, 1i64);
        let mut place = IndexExpr::Const(0);
        for (k, e) in index.iter().enumerate().rev() {
            let stride = data.strides.as_ref().map_or(dense, |s| s[k]);
            place = e.clone().times(stride).sum(place);
            reach = reach.saturating_add((data.dims[k] - 1).max(0).saturating_mul(stride));
            dense = dense.saturating_mul(data.dims[k].max(1));
        }
        let temp = self.temp(data.dtype, Extents::from_iter([reach]));
        Some((temp, SmallVec::from_iter([place])))
    }

    fn kernel(&mut self, kernel: &Kernel) {
        let (rows, tiles) = data_sources(kernel);
        let defs = defs(kernel);
        let reduces = |s: &Stage| s.sinks.iter().any(|k| matches!(k, Sink::Reduce { .. }));
        let plain = kernel.stages.iter().all(|s| s.axes.is_empty() && !reduces(s));
        if plain && rows.is_empty() {
            return self.elementwise(kernel, &defs);
        }
        if super::rows::takes(kernel) {
            return self.rows(kernel, &defs, &tiles);
        }
        self.apart(kernel, &defs, &rows, &tiles);
    }

    /// A kernel without axes: one stage.
    fn elementwise(&mut self, kernel: &Kernel, defs: &Defs) {
        let (rows, tiles) = (SecondaryMap::new(), SecondaryMap::new());
        let inliner = Inliner { kernel, defs, rows: &rows, tiles: &tiles };
        let stored = |sink: &Sink| matches!(sink, Sink::Store { .. } | Sink::Fold { .. });
        let found = sinks_of(kernel, &stored);
        self.loops_of(kernel, &inliner, &found);
    }

    /// Flat loops with these sinks of a kernel, one for all stages over the same axes.
    fn loops_of(&mut self, kernel: &Kernel, inliner: &Inliner<'_>, sinks: &[(usize, usize)]) {
        let mut left: Vec<(usize, usize)> = sinks.to_vec();
        while let Some(&(first, _)) = left.first() {
            let axes = &kernel.stages[first].axes;
            let alike = |&&(s, _): &&(usize, usize)| kernel.stages[s].axes == *axes;
            let own: Vec<(usize, usize)> = left.iter().filter(alike).copied().collect();
            left.retain(|k| !own.contains(k));
            let domain: Extents = kernel.domain.iter().chain(axes).copied().collect();
            let sinks = own.iter().map(|&(s, k)| kernel.stages[s].sinks[k].clone()).collect();
            match inliner.stage(&own) {
                Some(inlined) => self.flat(domain, Stage { sinks, ..inlined }),
                None => self.problem = Some(internal("data that chooses places is not in memory")),
            }
        }
    }

    /// A kernel of rows: what folds over points is taken out, and reads the rows from memory. What
    /// folds rows and then points in lanes is a row whose results are joined.
    fn rows(&mut self, kernel: &Kernel, defs: &Defs, data_tiles: &[Tile]) {
        // Threads walk the points as they are numbered.
        let mut own = Kernel { schedule: Schedule::default(), ..kernel.clone() };
        let (mut joins, mut folds) = (Vec::new(), Vec::new());
        for (s, stage) in own.stages.iter_mut().enumerate() {
            let mut outputs = SmallVec::new();
            let mut sinks = Vec::new();
            for (k, sink) in stage.sinks.drain(..).enumerate() {
                let value = stage.program.outputs[k];
                let dtype = stage.program.insts[value].dtype;
                let made = match &sink {
                    Sink::Fold { .. } => match row_of(kernel, s, &sink, dtype) {
                        None => {
                            folds.push((s, k));
                            continue;
                        }
                        Some(run) => {
                            let Sink::Fold { monoid, then, runs } = sink else { continue };
                            let row = own.rows.push(dtype);
                            joins.push((row, monoid, dtype, then, runs));
                            let runs = run.into_iter().collect();
                            Sink::Reduce { monoid, runs, into: row }
                        }
                    },
                    _ => sink,
                };
                outputs.push(value);
                sinks.push(made);
            }
            (stage.program.outputs, stage.sinks) = (outputs, sinks);
        }
        let mut rows: SecondaryMap<Row, Source> = SecondaryMap::new();
        let mut tiles: SecondaryMap<Tile, Source> = SecondaryMap::new();
        let mut last = Stage::default();
        let (mut wanted, mut tree) = (Vec::new(), Vec::new());
        if !folds.is_empty() {
            wanted.extend(kernel.rows.keys());
            for &t in data_tiles {
                self.tile_to_memory(kernel, &mut own, defs, t, &mut tiles);
            }
        }
        wanted.extend(joins.iter().map(|j| j.0));
        for &r in &wanted {
            let b = self.temp(own.rows[r], kernel.domain.clone());
            rows[r] = Source::Buffer(b);
            last.params.push(Param::Row(r));
            last.sinks.push(Sink::Store { buffer: b, index: axes(kernel.domain.len()) });
        }
        for (row, monoid, dtype, then, runs) in joins {
            let Source::Buffer(from) = rows[row] else { continue };
            let folded = runs.iter().flat_map(|r| r.axes.iter().map(|&a| usize::from(a)));
            let folded = folded.filter(|&a| a < kernel.domain.len()).collect();
            let rank = runs.iter().flat_map(|r| &r.axes).max().map_or(0, |&a| usize::from(a) + 1);
            let mut domain = kernel.domain.clone();
            domain.resize(rank.max(domain.len()), 1);
            tree.push(Work::Join(Join { from, domain, folded, monoid, dtype, then: *then }));
        }
        if !wanted.is_empty() {
            last.program = passed(wanted.iter().map(|&r| own.rows[r]));
            own.stages.push(last);
        }
        let packed = self.unpack_stores(&mut own);
        self.push(Work::Rows(own));
        packed.into_iter().chain(tree).for_each(|work| self.push(work));
        let inliner = Inliner { kernel, defs, rows: &rows, tiles: &tiles };
        self.loops_of(kernel, &inliner, &folds);
    }

    /// Lets a kernel store a tile to memory too.
    fn tile_to_memory(
        &mut self,
        kernel: &Kernel,
        own: &mut Kernel,
        defs: &Defs,
        t: Tile,
        tiles: &mut SecondaryMap<Tile, Source>,
    ) {
        let Some((s, _)) = defs.tiles[t] else { return };
        if tiles[t] != Source::Inline {
            return;
        }
        let dims: Extents = kernel.domain.iter().chain(&kernel.stages[s].axes).copied().collect();
        let b = self.temp(kernel.tiles[t].dtype, dims.clone());
        tiles[t] = Source::Buffer(b);
        let stage = &mut own.stages[s];
        if let Some(k) = stage.sinks.iter().position(|k| *k == Sink::Keep(t)) {
            let value = stage.program.outputs[k];
            stage.program.outputs.push(value);
            stage.sinks.push(Sink::Store { buffer: b, index: axes(dims.len()) });
        }
    }

    fn unpack_stores(&mut self, kernel: &mut Kernel) -> Vec<Work> {
        let mut after = Vec::new();
        for sink in kernel.stages.iter_mut().flat_map(|s| &mut s.sinks) {
            if let Sink::Store { buffer, index } = sink
                && let Some((temp, place)) = self.unpacked(*buffer, index)
            {
                after.push(Work::Pack { from: temp, to: *buffer });
                (*buffer, *index) = (temp, place);
            }
        }
        after
    }

    /// Any other kernel, a stage after the other: rows and what is scanned go through memory.
    fn apart(&mut self, kernel: &Kernel, defs: &Defs, data_rows: &[Row], data_tiles: &[Tile]) {
        let mut rows: SecondaryMap<Row, Source> = SecondaryMap::new();
        let mut tiles: SecondaryMap<Tile, Source> = SecondaryMap::new();
        let rank = kernel.domain.len();
        // Rows that only points read are computed again; those that elements read are not.
        let read_by_elements = |r: Row| {
            let reads = |s: &Stage| !s.axes.is_empty() && s.params.contains(&Param::Row(r));
            kernel.stages.iter().any(reads)
        };
        for (s, stage) in kernel.stages.iter().enumerate() {
            let domain: Extents = kernel.domain.iter().chain(&stage.axes).copied().collect();
            let (mut outputs, mut sinks, mut scans) = (Vec::new(), Vec::new(), Vec::new());
            let (mut new_rows, mut new_tiles) = (Vec::new(), Vec::new());
            for (k, sink) in stage.sinks.iter().enumerate() {
                let dtype = stage.program.insts[stage.program.outputs[k]].dtype;
                let made = match sink {
                    Sink::Store { .. } | Sink::Fold { .. } => sink.clone(),
                    Sink::Reduce { monoid, runs, into } => {
                        let result = kernel.rows[*into];
                        let b = self.temp(result, kernel.domain.clone());
                        new_rows.push((*into, b));
                        let moved = |r: &Run| Run {
                            axes: r.axes.iter().map(|a| a + rank as u8).collect(),
                            ..r.clone()
                        };
                        Sink::Fold {
                            monoid: *monoid,
                            runs: runs.iter().map(moved).collect(),
                            then: Box::new(Stage::storing(result, b, result, axes(rank))),
                        }
                    }
                    Sink::Leave(r) => {
                        if !data_rows.contains(r) && !read_by_elements(*r) {
                            continue;
                        }
                        let b = self.temp(dtype, kernel.domain.clone());
                        new_rows.push((*r, b));
                        Sink::Store { buffer: b, index: axes(rank) }
                    }
                    Sink::Keep(t) => {
                        if !data_tiles.contains(t) {
                            continue;
                        }
                        let b = self.temp(dtype, domain.clone());
                        new_tiles.push((*t, b));
                        Sink::Store { buffer: b, index: axes(domain.len()) }
                    }
                    Sink::Scan { monoid, axis, reverse, into } => {
                        let b = self.temp(dtype, domain.clone());
                        new_tiles.push((*into, b));
                        let at = rank + usize::from(*axis);
                        let extents =
                            [volume(&domain[..at]), domain[at], volume(&domain[at + 1..])];
                        scans.push((b, dtype, extents, *monoid, *reverse));
                        Sink::Store { buffer: b, index: axes(domain.len()) }
                    }
                };
                outputs.push(k);
                sinks.push(made);
            }
            if !sinks.is_empty() {
                let inliner = Inliner { kernel, defs, rows: &rows, tiles: &tiles };
                let outputs: Vec<(usize, usize)> = outputs.iter().map(|&k| (s, k)).collect();
                match inliner.stage(&outputs) {
                    Some(inlined) => self.flat(domain, Stage { sinks, ..inlined }),
                    None => {
                        self.problem = Some(internal("data that chooses places is not in memory"))
                    }
                }
            }
            for (buffer, dtype, extents, monoid, reverse) in scans {
                let [outer, mut n, inner] = extents;
                let mut lasts = Vec::new();
                while n > 32 {
                    n /= 32;
                    lasts.push(self.temp(dtype, Extents::from_iter([outer, n, inner])));
                }
                self.push(Work::Scan(Scan { buffer, extents, monoid, reverse, lasts }));
            }
            new_rows.into_iter().for_each(|(r, b)| rows[r] = Source::Buffer(b));
            new_tiles.into_iter().for_each(|(t, b)| tiles[t] = Source::Buffer(b));
        }
    }

    /// Members one after the other. What is folded or packed of their results goes through memory.
    fn contract(&mut self, contract: &Contract) {
        for member in &contract.members {
            let result = member.result();
            let mut own = member.clone();
            let mut after: Vec<(Buffer, DType, Sink)> = Vec::new();
            let mut packs = Vec::new();
            for (k, sink) in own.then.sinks.iter_mut().enumerate() {
                let dtype = own.then.program.insts[own.then.program.outputs[k]].dtype;
                match sink {
                    Sink::Store { buffer, index } => {
                        if let Some((temp, place)) = self.unpacked(*buffer, index) {
                            packs.push(Work::Pack { from: temp, to: *buffer });
                            (*buffer, *index) = (temp, place);
                        }
                    }
                    sink => {
                        let temp = self.temp(dtype, result.clone());
                        let store = Sink::Store { buffer: temp, index: axes(result.len()) };
                        after.push((temp, dtype, std::mem::replace(sink, store)));
                    }
                }
            }
            self.push(Work::Product(own));
            packs.into_iter().for_each(|work| self.push(work));
            for (temp, dtype, fold) in after {
                let stage = Stage {
                    params: vec![load(temp, axes(result.len()))],
                    program: identity(dtype),
                    sinks: vec![fold],
                    ..Stage::default()
                };
                self.flat(result.clone(), stage);
            }
        }
    }

    /// What the elements begin with, then the updates, then the type of the buffer where sums have
    /// another.
    fn scatter(&mut self, scatter: &Scatter) {
        let data = self.program.buffers[scatter.out].clone();
        let wide = data.dtype.compute();
        let rank = data.dims.len();
        let direct = wide == data.dtype && data.storage == Storage::Plain && data.strides.is_none();
        let sums = match direct {
            true => scatter.out,
            false => self.temp(wide, data.dims.clone()),
        };
        let piece = Piece {
            from: scatter.from,
            index: match scatter.from {
                Operand::Buffer(_) => axes(rank),
                Operand::Literal(_) => SmallVec::new(),
            },
            guards: SmallVec::new(),
        };
        let begin = Stage {
            params: vec![Param::Load(SmallVec::from_iter([piece]))],
            program: Recorder::record_any(&[data.dtype], |x| x[0].convert(wide)),
            sinks: vec![Sink::Store { buffer: sums, index: axes(rank) }],
            ..Stage::default()
        };
        self.flat(data.dims.clone(), begin);
        self.push(Work::Scatter(Scatter { out: sums, ..scatter.clone() }));
        if !direct {
            let end = Stage {
                params: vec![load(sums, axes(rank))],
                program: Recorder::record_any(&[wide], |x| x[0].convert(data.dtype)),
                sinks: vec![Sink::Store { buffer: scatter.out, index: axes(rank) }],
                ..Stage::default()
            };
            self.flat(data.dims.clone(), end);
        }
    }
}

/// The sinks of a kernel that are wanted, by the numbers of stage and output.
fn sinks_of(kernel: &Kernel, wanted: &dyn Fn(&Sink) -> bool) -> Vec<(usize, usize)> {
    let of = |(s, stage): (usize, &Stage)| {
        let all = stage.sinks.iter().enumerate();
        all.filter(|(_, sink)| wanted(sink)).map(|(k, _)| (s, k)).collect::<Vec<_>>()
    };
    kernel.stages.iter().enumerate().flat_map(of).collect()
}

/// For a fold of a stage's axes and then of the last axes of the domain, the run that folds a row of it,
/// if the results of rows join in the tree into what the fold gives: where order matters, rows have to be
/// an aligned group of the blocks of the lane order. The outer `None` is for all other folds.
fn row_of(kernel: &Kernel, s: usize, sink: &Sink, dtype: DType) -> Option<Option<Run>> {
    let Sink::Fold { monoid, runs, .. } = sink else { return None };
    let stage = &kernel.stages[s];
    let rank = kernel.domain.len();
    let n = volume(&stage.axes);
    if stage.axes.is_empty() || monoid.is_arg() || n < 2 {
        return None;
    }
    let [run] = runs.as_slice() else { return None };
    let all: Vec<usize> = run.axes.iter().map(|&a| usize::from(a)).collect();
    // The stage's axes and the domain's last ones, in order.
    let first = all.first().copied().filter(|&a| a < rank)?;
    let long = |a: &usize| match a.checked_sub(rank) {
        Some(k) => stage.axes[k] != 1,
        None => kernel.domain[*a] != 1,
    };
    let expected: Vec<usize> = (first..rank + stage.axes.len()).filter(long).collect();
    let blocks = Order::Lane.block() as i64;
    let groups = n % blocks == 0 && (n / blocks).count_ones() == 1;
    let ordered = run.order == Order::Lane && groups;
    if all != expected || !(ordered || free(*monoid, dtype)) {
        return None;
    }
    let axes: SmallVec<[u8; 4]> =
        (0u8..).zip(&stage.axes).filter(|(_, n)| **n != 1).map(|(a, _)| a).collect();
    Some((!axes.is_empty()).then_some(Run { axes, order: Order::Lane }))
}

/// A program that gives its parameters.
fn passed(types: impl Iterator<Item = DType>) -> ScalarProgram {
    use adfuse_ir::scalar::{SInst, SOp};
    let mut program = ScalarProgram::default();
    for (k, dtype) in (0u32..).zip(types) {
        program.params.push(dtype);
        let inst = SInst { op: SOp::Param(k), args: SmallVec::new(), dtype };
        let v = program.insts.push(inst);
        program.outputs.push(v);
    }
    program
}

/// Whether folds in any order have the same bits.
pub(super) fn free(monoid: Monoid, dtype: DType) -> bool {
    !(dtype.is_float() && matches!(monoid, Monoid::Sum | Monoid::Prod))
}

/// Several runs as one, in the row-major order in which they count places: the last is the outermost.
fn merge(runs: &mut SmallVec<[Run; 2]>) {
    if runs.len() > 1 {
        let axes = runs.iter().rev().flat_map(|r| r.axes.iter().copied()).collect();
        let order =
            if runs.iter().all(|r| r.order == Order::Lane) { Order::Lane } else { Order::Chain };
        *runs = SmallVec::from_iter([Run { axes, order }]);
    }
}

pub(super) fn internal(message: &str) -> Diagnostic {
    Diagnostic::new(At::default(), Kind::Internal, message)
}
