//! Which temporaries a step may write in place, over others that die at it.
//!
//! **The rule.** A step stores the temporary C in a stage S through the index map I, and the temporary
//! P is read by no later step. C may take the place of P when
//!
//! 1. both are in the engine's memory, plain, with equal extents, equal strides and elements of equal
//!    size: then the same coordinates are the same bytes of both;
//! 2. every load of P in the step is one piece without guards through the very expressions of I, in S or
//!    in an earlier stage of the same kernel, over the same further axes as S.
//!
//! **Why that is enough.** The verifier has proven that I takes every element exactly once from the
//! coordinates of S, so an element of C is stored at one tuple of coordinates only. A load of P with the
//! same expressions over the same extents reads that element at the same tuple and at no other. In S
//! the tuple reads its parameters before it stores, and in an earlier stage the point to which the tuple
//! belongs has read before it comes to S, because the stages of a point run in order; no other point
//! touches these bytes. So whatever the order and the number of threads that walk the points, every
//! read of an element of P comes before the store of that element of C. After S nothing of P is read.
//!
//! In a bundle the rule holds for each of its kernels, with a P that no other kernel of the bundle reads: the points of
//! two kernels are in no order.
//!
//! What an engine owes for this: at a coordinate it reads each parameter of a stage before it stores any
//! of its results, and does not read it again.
//!
//! What follows a contraction is such a stage over the coordinates of the result. Its
//! operands, and what follows the other members of the step, read in no order that relates to it, so
//! what they read is left alone. Sums of [`Sink::Fold`] are complete only when all points are done and
//! scatters write at places that are data: their results are never in place; nor are those of argsorts, which are
//! written while others are still looked for.

use super::{
    Buffer, BufferData, Bundle, ExchangeKind, Extents, Feed, Kernel, Operand, Param, Program, Sink,
    Space, Stage, Step, Storage,
};
use crate::index::IndexExpr;
use cranelift_entity::SecondaryMap;
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// A temporary that is written over another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InPlace {
    /// The step, by its number.
    pub step: usize,
    /// What it writes.
    pub child: Buffer,
    /// What dies there.
    pub parent: Buffer,
}

/// The first and the last step at which each buffer has its memory: those that touch it, and for what ranks exchange those while
/// the exchange may be under way. `None` for buffers that no step touches.
pub type Lives = SecondaryMap<Buffer, Option<(usize, usize)>>;

/// The live ranges of a program's buffers, in steps.
pub fn lives(program: &Program) -> Lives {
    lives_of(program.steps.iter().map(|step| (step, step.writes().chain(step.reads()))))
}

/// How many exchanges begin while one may be under way: the sum of a gradient is sent when the next gradient has been, and
/// then the one after it is.
const EXCHANGES_UNDER_WAY: usize = 2;

/// The live ranges of buffers, from the steps of a program with the buffers that each touches.
pub fn lives_of<'s, B: Iterator<Item = Buffer>>(
    steps: impl Iterator<Item = (&'s Step, B)>,
) -> Lives {
    let mut lives = Lives::new();
    let mut under_way: VecDeque<Vec<Buffer>> = VecDeque::new();
    for (n, (step, touched)) in steps.enumerate() {
        let touched: SmallVec<[Buffer; 8]> = touched.collect();
        let mut extend = |b: Buffer| {
            let from = lives[b].map_or(n, |(from, _)| from);
            lives[b] = Some((from, n));
        };
        touched.iter().copied().for_each(&mut extend);
        if matches!(step, Step::Exchange(e) if e.kind != ExchangeKind::Index) {
            under_way.push_back(touched.to_vec());
            if under_way.len() > EXCHANGES_UNDER_WAY {
                under_way.pop_front().into_iter().flatten().for_each(extend);
            }
        }
    }
    lives
}

/// How a buffer is read by a step.
enum BufferRead<'a> {
    /// Everywhere alike: the index, the further axes, and the last stage that does so.
    Alike(&'a [IndexExpr], &'a Extents, usize),
    /// In several ways, or in one that is no store's.
    Otherwise,
}

/// What can be alike between a load and a store, and between the two buffers.
type AccessPair<'a> = (&'a [IndexExpr], &'a Extents, &'a Extents, Option<&'a Extents>, u64);

/// The pairs of step `n` that the rule allows; a buffer is in one of them at most. `dies` says which
/// buffers may be written once they are read, since no later step reads them, and `made` which ones may
/// be written there.
pub fn in_place(
    program: &Program,
    n: usize,
    dies: &dyn Fn(Buffer) -> bool,
    made: &dyn Fn(Buffer) -> bool,
) -> Vec<InPlace> {
    let step = &program.steps[n];
    if let Step::Bundle(bundle) = step {
        return in_bundle(program, (n, bundle), dies, made);
    }
    let mut reads = StepReads { how: HashMap::new(), met: Vec::new() };
    let stages: SmallVec<[&Stage; 4]> = match step {
        Step::Kernel(k) => {
            k.stages.iter().enumerate().for_each(|(s, stage)| reads.stage(stage, s));
            k.stages.iter().collect()
        }
        Step::Contract(c) => {
            for (s, m) in c.members.iter().enumerate() {
                m.feeds().iter().for_each(|(_, feed, _)| reads.feed(feed));
                reads.then(&m.then, s);
            }
            c.members.iter().map(|m| &m.then).collect()
        }
        // It reads keys again when it has begun to write.
        Step::Attend(_)
        | Step::Scatter(_)
        | Step::Argsort(_)
        | Step::Library(_)
        | Step::Transfer(_)
        | Step::Exchange(_)
        | Step::Print(_)
        | Step::Loop(_)
        | Step::Branch(_)
        | Step::Bundle(_) => return Vec::new(),
    };
    let in_order = matches!(step, Step::Kernel(_));
    let pairs = matched(program, (&reads, &stages, in_order), dies, made);
    pairs.into_iter().map(|(child, parent)| InPlace { step: n, child, parent }).collect()
}

/// The pairs of each kernel of a bundle, of parents that no other kernel reads.
fn in_bundle(
    program: &Program,
    (n, bundle): (usize, &Bundle),
    dies: &dyn Fn(Buffer) -> bool,
    made: &dyn Fn(Buffer) -> bool,
) -> Vec<InPlace> {
    let mut readers: SecondaryMap<Buffer, u32> = SecondaryMap::new();
    bundle.kernels.iter().flat_map(Kernel::reads).for_each(|b| readers[b] += 1);
    let alone = |b: Buffer| readers[b] == 1 && dies(b);
    let mut found = Vec::new();
    for kernel in &bundle.kernels {
        let stages: SmallVec<[&Stage; 4]> = kernel.stages.iter().collect();
        let pairs = matched(program, (&StepReads::of(kernel), &stages, true), &alone, made);
        found.extend(pairs.into_iter().map(|(child, parent)| InPlace { step: n, child, parent }));
    }
    found
}

/// The children of stages with their parents; `in_order` says whether the stages of a point run one after the other.
fn matched(
    program: &Program,
    (reads, stages, in_order): (&StepReads<'_>, &[&Stage], bool),
    dies: &dyn Fn(Buffer) -> bool,
    made: &dyn Fn(Buffer) -> bool,
) -> Vec<(Buffer, Buffer)> {
    // Parents by form, in reverse, so that the first met is taken first.
    let mut free: HashMap<AccessPair<'_>, SmallVec<[(Buffer, usize); 2]>> = HashMap::new();
    for &b in reads.met.iter().rev() {
        if let Some(&BufferRead::Alike(index, axes, last)) = reads.how.get(&b)
            && let Some((dims, strides, bytes)) = place(&program.buffers[b])
            && dies(b)
        {
            free.entry((index, axes, dims, strides, bytes)).or_default().push((b, last));
        }
    }
    let mut found = Vec::new();
    for (s, stage) in stages.iter().enumerate() {
        for sink in &stage.sinks {
            let Sink::Store { buffer: child, index } = sink else { continue };
            if !made(*child) {
                continue;
            }
            let Some((dims, strides, bytes)) = place(&program.buffers[*child]) else { continue };
            let Some(parents) = free.get_mut(&(&index[..], &stage.axes, dims, strides, bytes))
            else {
                continue;
            };
            let before = |last: usize| if in_order { last <= s } else { last == s };
            if let Some(k) = parents.iter().rposition(|&(_, last)| before(last)) {
                let (parent, _) = parents.remove(k);
                found.push((*child, parent));
            }
        }
    }
    found
}

/// What decides which bytes an element is at; `None` for what takes nobody's place.
fn place(data: &BufferData) -> Option<(&Extents, Option<&Extents>, u64)> {
    (data.space == Space::Device && data.storage == Storage::Plain)
        .then(|| (&data.dims, data.strides.as_ref(), data.dtype.bytes()))
}

/// How a step reads its buffers.
struct StepReads<'a> {
    how: HashMap<Buffer, BufferRead<'a>>,
    /// In the order in which they are met first.
    met: Vec<Buffer>,
}

impl<'a> StepReads<'a> {
    fn of(kernel: &'a Kernel) -> StepReads<'a> {
        let mut reads = StepReads { how: HashMap::new(), met: Vec::new() };
        kernel.stages.iter().enumerate().for_each(|(s, stage)| reads.stage(stage, s));
        reads
    }

    /// The stage `s` of a kernel.
    fn stage(&mut self, stage: &'a Stage, s: usize) {
        for sink in &stage.sinks {
            // What follows a fold reads when all points are done, and stores with them.
            if let Sink::Fold { then, .. } = sink {
                self.late(&then.params);
            }
        }
        for param in &stage.params {
            let Param::Load(pieces) = param else { continue };
            for piece in pieces {
                let Operand::Buffer(b) = piece.from else { continue };
                let alike = pieces.len() == 1 && piece.guards.is_empty();
                self.note(b, |before| match before {
                    None if alike => BufferRead::Alike(&piece.index, &stage.axes, s),
                    Some(&BufferRead::Alike(index, axes, _))
                        if alike && *index == piece.index[..] && *axes == stage.axes =>
                    {
                        BufferRead::Alike(index, axes, s)
                    }
                    _ => BufferRead::Otherwise,
                });
            }
        }
    }

    /// What follows the sums of member `s`: its coordinates are not those of another member.
    fn then(&mut self, then: &'a Stage, s: usize) {
        for param in &then.params {
            let Param::Load(pieces) = param else { continue };
            for piece in pieces {
                if let Operand::Buffer(b) = piece.from
                    && let Some(BufferRead::Alike(.., before)) = self.how.get(&b)
                    && *before != s
                {
                    self.note(b, |_| BufferRead::Otherwise);
                }
            }
        }
        self.stage(then, s);
    }

    /// The operand of a contraction.
    fn feed(&mut self, feed: &'a Feed) {
        self.late(&feed.params);
    }

    /// What is read in no order that relates to the stores.
    fn late(&mut self, params: &'a [Param]) {
        for param in params {
            let Param::Load(pieces) = param else { continue };
            for piece in pieces {
                if let Operand::Buffer(b) = piece.from {
                    self.note(b, |_| BufferRead::Otherwise);
                }
            }
        }
    }

    /// Says how a buffer is read from how it was read before, if it was.
    fn note(&mut self, b: Buffer, now: impl FnOnce(Option<&BufferRead<'a>>) -> BufferRead<'a>) {
        let now = now(self.how.get(&b));
        if self.how.insert(b, now).is_none() {
            self.met.push(b);
        }
    }
}
