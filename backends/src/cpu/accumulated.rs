//! Products that a loop only adds to what it carries, such as gradients of weights on the way back over a recurrent layer: they are
//! taken out of the loop, and done for all of its steps when it is over.
//!
//! A part of the sums then stays in the first cache while the products of all steps are added to it, in the order of the steps, so no bit
//! changes. In the loop all of the sums were written, read and added at each step. Threads divide the sums, where a step was too
//! short for them.

use super::carry_start::CarryStart;
use super::gemm::best;
use super::operand::{addition, read, stored};
use crate::reference::order::CONTRACT_CHUNK;
use crate::runtime::legalize::Legalized;
use adfuse_ir::Diagnostic;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{
    Block, BlockInput, Buffer, Contract, Extents, Feed, Loop, LoopTrips, Member, Operand, Param,
    Program, Sink, Stage, Step, Storage, unrolled, verify, volume,
};
use adfuse_ir::scalar::{SInst, SOp, ScalarProgram};
use cranelift_entity::EntityRef;
use smallvec::smallvec;

/// A contraction of a rewritten program that stands for those of all steps of the loop before it. Its batch is the positions of the
/// steps, and its result has none.
#[derive(Clone, Copy)]
pub(super) struct AccumulatedProduct {
    /// Its number among the program's steps.
    pub(super) step: usize,
    /// What the products are added to.
    pub(super) start: Operand,
    /// Whether the last position comes first.
    pub(super) reverse: bool,
}

/// What a member's products are added to, and in which order.
pub(super) struct Accumulation {
    pub(super) start: CarryStart,
    pub(super) reverse: bool,
}

/// A member of a loop's block that is taken out.
struct TakenProduct {
    /// Its step in the block, and its number there.
    at: [usize; 2],
    carry: usize,
    start: Operand,
    /// What the block reads of the carry, and what it writes.
    through: [Buffer; 2],
    /// What stands for it after the loop.
    member: Member,
}

/// Takes such products out of the loops of a program.
///
/// # Errors
/// None: a block that computes less is as correct as the one that it was.
pub(super) fn take_products(low: &mut Legalized) -> Result<Vec<AccumulatedProduct>, Diagnostic> {
    let mut all = Vec::new();
    if !best().finishes() || !low.program.steps.iter().any(|step| matches!(step, Step::Loop(_))) {
        return Ok(all);
    }
    let steps = std::mem::take(&mut low.program.steps);
    let origins = std::mem::take(&mut low.origin);
    for (mut step, origin) in steps.into_iter().zip(origins) {
        let mut products = Vec::new();
        if let Step::Loop(l) = &mut step {
            let taken = candidates(l, &low.program);
            if !taken.is_empty() {
                take(l, &taken)?;
            }
            products = taken;
        }
        let title = format!("{}.sums", step.name());
        let reverse = matches!(&step, Step::Loop(l) if l.reverse);
        low.program.steps.push(step);
        low.origin.push(origin);
        for product in products {
            let (step, start) = (low.program.steps.len(), product.start);
            all.push(AccumulatedProduct { step, start, reverse });
            let contract = Contract { name: title.clone(), members: smallvec![product.member] };
            low.program.steps.push(Step::Contract(contract));
            low.origin.push(origin);
        }
    }
    Ok(all)
}

/// The members of a loop's block that may be taken out.
fn candidates(l: &Loop, around: &Program) -> Vec<TakenProduct> {
    let LoopTrips::Known(trips @ 2..) = l.trips else { return Vec::new() };
    if l.back.is_some() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (n, step) in l.step.program.steps.iter().enumerate() {
        let Step::Contract(c) = step else { continue };
        for (k, member) in c.members.iter().enumerate() {
            let taken = taken(l, (around, trips), (&c.name, member));
            found.extend(taken.map(|(carry, through, member)| TakenProduct {
                at: [n, k],
                carry,
                start: l.carries[carry].from,
                through,
                member,
            }));
        }
    }
    found
}

/// The carry that a member only adds to, what the block reads and writes of it, and what stands for the member after the loop.
fn taken(
    l: &Loop,
    (around, trips): (&Program, u64),
    (name, m): (&str, &Member),
) -> Option<(usize, [Buffer; 2], Member)> {
    let program = &*l.step.program;
    let [(from, at), (next, index)] = addition(&m.then)?;
    let depth = volume(&m.depth);
    let chain = (1..=CONTRACT_CHUNK as i64).contains(&depth) && m.batch.iter().all(|&n| n == 1);
    if !chain || at != index || !m.sum.is_float() || unrolled(name, m).is_some() {
        return None;
    }
    let carry = l.step.bindings().find_map(|(own, input)| match input {
        BlockInput::Carry(k) if own == from => Some(k),
        _ => None,
    })?;
    let plain = |b: Buffer| {
        let data = &program.buffers[b];
        data.storage == Storage::Plain && data.strides.is_none() && data.dtype == m.sum
    };
    let returned = |b: Buffer| program.outputs.iter().filter(|&&output| output == b).count();
    let mentions = |b: Buffer| program.steps.iter().map(|step| step.mentions(b)).sum::<usize>();
    let alone = mentions(from) == 1 && mentions(next) == 1;
    let alone = alone && returned(from) == 0 && returned(next) == 1;
    let carried = program.outputs.get(carry) == Some(&next);
    if !alone || !carried || !plain(from) || !plain(next) {
        return None;
    }
    let shifted = |axes: usize| (1..=axes).map(IndexExpr::axis).collect::<Vec<_>>();
    let feed = |feed: &Feed, own: &Extents| {
        let axes = m.batch.len() + own.len() + m.depth.len();
        outer_feed(feed.at(&shifted(axes)), l)
    };
    let (lhs, rhs) = (feed(&m.lhs, &m.rows)?, feed(&m.rhs, &m.cols)?);
    let coordinates = shifted(m.result().len());
    let index = index.iter().map(|e| e.compose(&coordinates)).collect();
    let mut batch = m.batch.clone();
    batch.insert(0, i64::try_from(trips).ok()?);
    let sinks = vec![Sink::Store { buffer: l.carries[carry].to, index }];
    let then = Stage { sinks, ..passing(m) };
    let member = Member { batch, lhs, rhs, then, ..m.clone() };
    let groups = |free| [&member.batch, free, &member.depth];
    let in_place = read(around, &member.lhs, groups(&member.rows), m.sum).is_some()
        && read(around, &member.rhs, groups(&member.cols), m.sum).is_some();
    let to = [&member.batch, &member.rows, &member.cols];
    (in_place && stored(around, &member.then, to, m.sum).is_some()).then_some((
        carry,
        [from, next],
        member,
    ))
}

/// A stage that gives the sums as they are.
fn passing(m: &Member) -> Stage {
    let mut program = ScalarProgram::default();
    program.params.push(m.sum);
    let sum = SInst { op: SOp::Param(0), args: smallvec![], dtype: m.sum };
    let sum = program.insts.push(sum);
    program.outputs.push(sum);
    Stage { axes: Extents::new(), params: vec![Param::Sum], program, sinks: Vec::new() }
}

/// An operand in the program around a loop, at the position of the step and then its own coordinates, which come after it here. `None`
/// where it reads what is not there when the loop is over.
fn outer_feed(mut feed: Feed, l: &Loop) -> Option<Feed> {
    for param in &mut feed.params {
        let Param::Load(pieces) = param else { return None };
        for piece in pieces {
            let Operand::Buffer(b) = piece.from else { continue };
            let (outer, element) = outer_buffer(b, &l.step, &l.stacks)?;
            piece.from = Operand::Buffer(outer);
            if element {
                piece.index.insert(0, IndexExpr::axis(0));
            }
        }
    }
    Some(feed)
}

/// Where a buffer of a block is in the program around the loop, and whether it is an element for each position.
fn outer_buffer(b: Buffer, block: &Block, stacks: &[Buffer]) -> Option<(Buffer, bool)> {
    let bound = block.bindings().find(|(own, _)| *own == b).map(|(_, input)| input);
    match bound {
        Some(BlockInput::Element(outer)) => return Some((outer, true)),
        Some(BlockInput::Whole(outer)) => return Some((outer, false)),
        Some(_) => return None,
        None => {}
    }
    let outputs = &block.program.outputs;
    let first = outputs.len().checked_sub(stacks.len())?;
    let k = outputs[first..].iter().position(|&output| output == b)?;
    Some((stacks[k], true))
}

/// Takes members out of a loop's block, with what is carried through them.
fn take(l: &mut Loop, taken: &[TakenProduct]) -> Result<(), Diagnostic> {
    let mut program = l.step.program.clone().into_inner();
    for (n, step) in program.steps.iter_mut().enumerate() {
        let Step::Contract(c) = step else { continue };
        let mut k = 0;
        c.members.retain(|_| {
            k += 1;
            taken.iter().all(|product| product.at != [n, k - 1])
        });
    }
    program.steps.retain(|step| !matches!(step, Step::Contract(c) if c.members.is_empty()));
    let is_taken = |k: usize| taken.iter().any(|product| product.carry == k);
    let before = |k: usize| (0..k).filter(|&j| !is_taken(j)).count();
    let inputs = l.step.inputs.iter().filter_map(|&input| match input {
        BlockInput::Carry(k) => (!is_taken(k)).then(|| BlockInput::Carry(before(k))),
        other => Some(other),
    });
    l.step.inputs = inputs.collect();
    let gone: Vec<Buffer> = taken.iter().flat_map(|product| product.through).collect();
    remove(&mut program, &gone);
    let mut k = 0;
    l.carries.retain(|_| {
        k += 1;
        !is_taken(k - 1)
    });
    l.step.program = verify(program).map_err(|mut all| all.swap_remove(0))?;
    Ok(())
}

/// Removes buffers that no step names.
fn remove(program: &mut Program, gone: &[Buffer]) {
    let mut numbers: Vec<Option<Buffer>> = Vec::new();
    for (b, data) in std::mem::take(&mut program.buffers) {
        let kept = !gone.contains(&b);
        numbers.push(kept.then(|| program.buffers.push(data)));
    }
    let number = |b: Buffer| numbers[b.index()];
    program.outputs = program.outputs.iter().filter_map(|&b| number(b)).collect();
    for step in &mut program.steps {
        step.buffers_mut(&mut |b| *b = number(*b).unwrap_or(*b));
    }
}
