//! Fission: a kernel becomes several, each of rows that threads share or of independent elements.

use super::column_folds::{ColumnFold, panel};
use super::inline::{Defs, Inliner, Source, data_sources, defs};
use super::shape::{axes, free, identity, internal, load};
use super::work::{Join, Lowering, SCAN_GROUP, Scan, Work};
use adfuse_ir::kernel::{
    Extents, Kernel, Order, Param, Row, Run, Schedule, Sink, Stage, Storage, Tile, volume,
};
use adfuse_ir::{DType, Fp};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;

impl Lowering {
    pub(crate) fn kernel(&mut self, kernel: &Kernel) {
        let (rows, tiles) = data_sources(kernel);
        let defs = defs(kernel);
        let reduces = |s: &Stage| s.sinks.iter().any(|k| matches!(k, Sink::Reduce { .. }));
        let plain = kernel.stages.iter().all(|s| s.axes.is_empty() && !reduces(s));
        if plain && rows.is_empty() {
            let packs = |s: &Sink| match s {
                Sink::Store { buffer, .. } => {
                    self.program.buffers[*buffer].storage != Storage::Plain
                }
                _ => false,
            };
            let packs = kernel.stages.iter().flat_map(|s| &s.sinks).any(packs);
            return match panel(kernel, self.fp, &self.target).filter(|_| !packs) {
                Some(panel) => self.rows(&panel, &crate::gpu::schedule::inline::defs(&panel), &[]),
                None => self.elementwise(kernel, &defs),
            };
        }
        if crate::gpu::schedule::cooperative_row::takes(kernel) {
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

    /// A kernel of rows: what folds over points is taken out, and reads the rows from memory, unless it folds columns
    /// as the rows are walked. What folds rows and then points in lanes is a row whose results are joined.
    fn rows(&mut self, kernel: &Kernel, defs: &Defs, data_tiles: &[Tile]) {
        // Threads walk the points as they are numbered.
        let mut own = Kernel { schedule: Schedule::default(), ..kernel.clone() };
        let (mut joins, mut folds, mut thens) = (Vec::new(), Vec::new(), Vec::new());
        let columns = ColumnFold::of(kernel, self.fp, &self.target);
        for (s, stage) in own.stages.iter_mut().enumerate() {
            let mut outputs = SmallVec::new();
            let mut sinks = Vec::new();
            for (k, sink) in stage.sinks.drain(..).enumerate() {
                let value = stage.program.outputs[k];
                let dtype = stage.program.insts[value].dtype;
                let column = |c: &ColumnFold| c.takes(kernel, &kernel.stages[s], k, self.fp);
                let made = match &sink {
                    Sink::Fold { .. } if columns.as_ref().is_some_and(column) => sink,
                    Sink::Fold { .. } => match row_of(kernel, s, &sink, dtype, self.fp) {
                        None => {
                            let Some((run, rest)) = row_then(kernel, s, &sink) else {
                                folds.push((s, k));
                                continue;
                            };
                            let Sink::Fold { monoid, then, .. } = sink else { continue };
                            let into = own.rows.push(dtype);
                            let points = Sink::Fold { monoid, runs: rest, then };
                            let rank = kernel.domain.len() + kernel.stages[s].axes.len();
                            thens.push((into, rank, points));
                            Sink::Reduce { monoid, runs: SmallVec::from_iter([run]), into }
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
        let (mut wanted, mut tree) = (Vec::new(), Vec::new());
        if !folds.is_empty() {
            wanted.extend(rows_of(kernel, defs, &folds));
            for &t in data_tiles {
                self.tile_to_memory(kernel, &mut own, defs, t, &mut tiles);
            }
        }
        wanted.extend(joins.iter().map(|j| j.0));
        wanted.extend(thens.iter().map(|t| t.0));
        for &r in &wanted {
            let b = self.temp(own.rows[r], kernel.domain.clone());
            rows[r] = Source::Buffer(b);
            // As soon as it is there: nothing holds it longer than the stages that read it.
            let left = |k: &Sink| match k {
                Sink::Reduce { into, .. } | Sink::Leave(into) => *into == r,
                _ => false,
            };
            let at = own.stages.iter().position(|s| s.sinks.iter().any(left));
            let store = Sink::Store { buffer: b, index: axes(kernel.domain.len()) };
            let stage = Stage {
                params: vec![Param::Row(r)],
                program: identity(own.rows[r]),
                sinks: vec![store],
                ..Stage::default()
            };
            own.stages.insert(at.map_or(own.stages.len(), |s| s + 1), stage);
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
        let packed = self.unpack_stores(&mut own);
        self.push(Work::Rows(own));
        packed.into_iter().chain(tree).for_each(|work| self.push(work));
        for (row, rank, sink) in thens {
            let Source::Buffer(from) = rows[row] else { continue };
            let dtype = self.program.buffers[from].dtype;
            let mut domain = kernel.domain.clone();
            domain.resize(rank, 1);
            let stage = Stage {
                params: vec![load(from, axes(kernel.domain.len()))],
                program: identity(dtype),
                sinks: vec![sink],
                ..Stage::default()
            };
            self.flat(domain, stage);
        }
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
                while n > SCAN_GROUP {
                    n /= SCAN_GROUP;
                    lasts.push(self.temp(dtype, Extents::from_iter([outer, n, inner])));
                }
                self.push(Work::Scan(Scan { buffer, extents, monoid, reverse, lasts }));
            }
            new_rows.into_iter().for_each(|(r, b)| rows[r] = Source::Buffer(b));
            new_tiles.into_iter().for_each(|(t, b)| tiles[t] = Source::Buffer(b));
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
fn row_of(kernel: &Kernel, s: usize, sink: &Sink, dtype: DType, fp: Fp) -> Option<Option<Run>> {
    let Sink::Fold { monoid, runs, .. } = sink else { return None };
    let stage = &kernel.stages[s];
    let rank = kernel.domain.len();
    let n = volume(&stage.axes);
    if stage.axes.is_empty() || monoid.is_arg() || n < 2 {
        return None;
    }
    let any = free(*monoid, dtype) || fp != Fp::Strict;
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
    if all != expected || !(ordered || any) {
        return None;
    }
    let axes: SmallVec<[u8; 4]> =
        (0u8..).zip(&stage.axes).filter(|(_, n)| **n != 1).map(|(a, _)| a).collect();
    Some((!axes.is_empty()).then_some(Run { axes, order: Order::Lane }))
}

/// For a fold of all of a stage's axes and, apart from that, of axes of the domain: the run that folds a row, and
/// those that fold points.
fn row_then(kernel: &Kernel, s: usize, sink: &Sink) -> Option<(Run, SmallVec<[Run; 2]>)> {
    let Sink::Fold { monoid, runs, .. } = sink else { return None };
    let (stage, rank) = (&kernel.stages[s], kernel.domain.len());
    let (first, rest) = runs.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let long = stage.axes.iter().zip(rank..).filter(|(n, _)| **n != 1).map(|(_, a)| a);
    let whole = first.axes.iter().map(|&a| usize::from(a)).eq(long);
    let points = rest.iter().flat_map(|r| &r.axes).all(|&a| usize::from(a) < rank);
    if !whole || !points || first.order != Order::Lane || monoid.is_arg() {
        return None;
    }
    let axes = first.axes.iter().map(|a| a - rank as u8).collect();
    Some((Run { axes, order: Order::Lane }, rest.iter().cloned().collect()))
}

/// The rows that outputs of stages read, and those that tiles they read are computed from.
fn rows_of(kernel: &Kernel, defs: &Defs, outputs: &[(usize, usize)]) -> Vec<Row> {
    let mut found: Vec<Row> = Vec::new();
    let mut left: Vec<(usize, usize)> = outputs.to_vec();
    let mut seen = left.clone();
    while let Some((s, k)) = left.pop() {
        let stage = &kernel.stages[s];
        let mut only = stage.program.clone();
        only.outputs = [stage.program.outputs[k]].into_iter().collect();
        for (p, param) in stage.params.iter().enumerate() {
            match param {
                // What places are chosen by is read, too.
                Param::Row(r) if !found.contains(r) => found.push(*r),
                Param::Tile(t) if only.reads_param(p) => {
                    let def = defs.tiles[*t].filter(|def| !seen.contains(def));
                    left.extend(def);
                    seen.extend(def);
                }
                _ => {}
            }
        }
    }
    found.sort();
    found
}
