//! Bytes that a step moves: what its loads touch, and what it stores.

use super::footprint::{IterationSpace, full};
use adfuse_ir::index::{Guard, IndexExpr};
use adfuse_ir::kernel::{
    Buffer, Extents, Kernel, Operand, Param, Piece, Program, Sink, Stage, Step,
};
use hashbrown::HashMap;

/// What a step moves.
pub(super) struct Traffic {
    /// Bytes read, every pass over a buffer counted.
    pub(super) reads: u64,
    /// Bytes written.
    pub(super) writes: u64,
    /// Of each buffer read, in the order of its first pass: the most bytes that one pass reads. The
    /// step reads no fewer distinct bytes of it.
    pub(super) distinct: BytesByBuffer,
}

/// What a step of the program moves on a device that keeps buffers of `near` bytes close.
pub(super) fn traffic(program: &Program, step: &Step, near: u64) -> Traffic {
    let mut count = Count {
        program,
        near,
        pass: PassLoads::default(),
        kept: PassLoads::default(),
        reads: 0,
        distinct: BytesByBuffer::default(),
    };
    match step {
        Step::Kernel(kernel) => count.kernel(kernel),
        // The kernels run at the same time, but go through what they read by themselves.
        Step::Bundle(bundle) => bundle.kernels.iter().for_each(|kernel| count.kernel(kernel)),
        Step::Contract(contract) => {
            for member in &contract.members {
                for (_, feed, extents) in member.feeds() {
                    count.params(&feed.params, &IterationSpace::new(&extents, extents.len()));
                }
            }
            // Results come when the operands have gone by.
            count.passed();
            for member in &contract.members {
                let result = member.result();
                count.stage(&member.then, &IterationSpace::new(&result, result.len()));
            }
        }
        // Scores are never in memory, and tiles of keys are read from the cache after the first time.
        Step::Attend(attend) => attend.inputs.iter().for_each(|&b| count.whole(b)),
        Step::Scatter(scatter) => {
            count.params(
                &scatter.params,
                &IterationSpace::new(&scatter.domain, scatter.domain.len()),
            );
            count.passed();
            if let Operand::Buffer(from) = scatter.from {
                count.whole(from);
            }
        }
        Step::Argsort(argsort) => count.whole(argsort.from),
        Step::Library(library) => {
            library.inputs.iter().for_each(|&b| count.whole(b));
            count.reads = count.reads.saturating_add(library.bytes);
        }
        Step::Transfer(transfer) => count.whole(transfer.from),
        Step::Exchange(exchange) => exchange.from.iter().for_each(|&b| count.whole(b)),
        Step::Print(print) => count.whole(print.from),
        // What a loop or a branch reads once; its blocks say how often.
        Step::Loop(_) | Step::Branch(_) => step.reads().for_each(|b| count.whole(b)),
    }
    count.passed();
    count.left();
    let writes = step.writes().map(|b| full(program, b)).fold(0, u64::saturating_add);
    Traffic { reads: count.reads, writes, distinct: count.distinct }
}

/// Numbers of bytes by buffer, in the order in which buffers came.
#[derive(Default)]
pub(super) struct BytesByBuffer {
    at: HashMap<Buffer, usize>,
    list: Vec<(Buffer, u64)>,
}

impl BytesByBuffer {
    /// The number of a buffer, 0 if it is new.
    pub(super) fn of(&mut self, b: Buffer) -> &mut u64 {
        let at = *self.at.entry(b).or_insert(self.list.len());
        if at == self.list.len() {
            self.list.push((b, 0));
        }
        &mut self.list[at].1
    }

    /// Every number, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Buffer, u64)> + '_ {
        self.list.iter().copied()
    }
}

/// Loads that are the same wherever they stand: of equal text.
type LoadKey<'p> = (Buffer, &'p [IndexExpr], &'p [Guard]);

/// The loads of one pass over memory, equal ones once.
#[derive(Default)]
struct PassLoads<'p> {
    at: HashMap<LoadKey<'p>, usize>,
    loads: Vec<(Buffer, u64)>,
}

impl<'p> PassLoads<'p> {
    fn add(&mut self, b: Buffer, piece: &'p Piece, bytes: u64) {
        let key: LoadKey<'p> = (b, &piece.index, &piece.guards);
        let at = *self.at.entry(key).or_insert(self.loads.len());
        match self.loads.get_mut(at) {
            // Equal text over other extents: places begin at 0, so the larger holds the smaller.
            Some((_, found)) => *found = bytes.max(*found),
            None => self.loads.push((b, bytes)),
        }
    }
}

struct Count<'p> {
    program: &'p Program,
    near: u64,
    /// Loads of the pass so far.
    pass: PassLoads<'p>,
    /// Loads of buffers that stay close while the step runs.
    kept: PassLoads<'p>,
    reads: u64,
    distinct: BytesByBuffer,
}

impl<'p> Count<'p> {
    /// What a stage reads, and what follows its folds.
    fn stage(&mut self, stage: &'p Stage, places: &IterationSpace) {
        self.params(&stage.params, places);
        for sink in &stage.sinks {
            if let Sink::Fold { runs, then, .. } = sink {
                self.stage(then, &places.after(runs));
            }
        }
    }

    /// The stages of a kernel. What a stage reads of a point is still close when a later one reads it again, unless it is too much:
    /// then each stage is a pass of its own.
    fn kernel(&mut self, kernel: &'p Kernel) {
        let line =
            |stage: &Stage| stage.axes.iter().fold(8u64, |n, x| n.saturating_mul(x.unsigned_abs()));
        let stays = kernel.stages.iter().all(|stage| line(stage) <= self.near);
        for stage in &kernel.stages {
            let extents: Extents = kernel.domain.iter().chain(&stage.axes).copied().collect();
            self.stage(stage, &IterationSpace::new(&extents, kernel.domain.len()));
            if !stays {
                self.passed();
            }
        }
    }

    fn params(&mut self, params: &'p [Param], places: &IterationSpace) {
        let masks = places.params(params);
        for param in params {
            let Param::Load(pieces) = param else { continue };
            for piece in pieces {
                let Operand::Buffer(b) = piece.from else { continue };
                let Some(data) = self.program.buffers.get(b) else { continue };
                let bytes = places.bytes(data, piece, &masks).min(full(self.program, b));
                let close = full(self.program, b) <= self.near;
                let pass = if close { &mut self.kept } else { &mut self.pass };
                pass.add(b, piece, bytes);
            }
        }
    }

    fn whole(&mut self, b: Buffer) {
        let bytes = full(self.program, b);
        self.reads = self.reads.saturating_add(bytes);
        let distinct = self.distinct.of(b);
        *distinct = bytes.max(*distinct);
    }

    /// Ends a pass.
    fn passed(&mut self) {
        let pass = std::mem::take(&mut self.pass);
        self.count(pass);
    }

    /// Counts what stayed close.
    fn left(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        self.count(kept);
    }

    fn count(&mut self, pass: PassLoads<'p>) {
        let mut sums = BytesByBuffer::default();
        for (b, bytes) in pass.loads {
            let sum = sums.of(b);
            *sum = sum.saturating_add(bytes).min(full(self.program, b));
        }
        for (b, bytes) in sums.iter() {
            self.reads = self.reads.saturating_add(bytes);
            let distinct = self.distinct.of(b);
            *distinct = bytes.max(*distinct);
        }
    }
}
