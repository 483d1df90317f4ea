//! Legalization: rewrites a program for an engine's capabilities. Buffers of callers become dense, attention becomes
//! contractions and kernels, and kernels get the loops of their schedules.
//!
//! Engines that plan memory for each step of the original program legalize steps one at a time ([`expand`]); added
//! buffers are then scratch of that step.

use super::backend::Capabilities;
use super::errors::within;
use super::strides::dense;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{
    Attend, Buffer, BufferData, Bundle, Contract, Extents, Feed, Kernel, Library, Member, Operand,
    Order, Param, Piece, Program, Role, Run, Sink, Stage, Step, Storage, loops,
};
use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::{Recorder, ScalarProgram};
use adfuse_ir::{DType, Diagnostic};
use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;

/// A program that an engine runs, and which buffers the caller's arrays are.
pub(crate) struct Legalized {
    pub(crate) program: Program,
    /// For each step, the number of the one it was made of.
    pub(crate) origin: Vec<usize>,
    /// Temporaries that the given program does not have, with the step for which they are there; those
    /// without one are there for the whole run.
    pub(crate) temps: Vec<(Buffer, Option<usize>)>,
    /// The buffers that the caller gives.
    pub(crate) inputs: Vec<Buffer>,
    /// The buffers that it is handed: one that occurs again is copied.
    pub(crate) outputs: Vec<Buffer>,
}

/// Rewrites a verified program for an engine that can do so much.
///
/// # Errors
/// Where a kernel cannot be walked as its schedule says; the error names the step.
pub(crate) fn legalize(given: &Program, can: &Capabilities) -> Result<Legalized, Diagnostic> {
    legalized(given, can, can.any_layout)
}

/// As [`legalize`], for a program that a step runs: its inputs and outputs are buffers of the program around it,
/// whatever their layouts are.
///
/// # Errors
/// As there.
pub(crate) fn legalize_block(given: &Program, can: &Capabilities) -> Result<Legalized, Diagnostic> {
    legalized(given, can, true)
}

fn legalized(
    given: &Program,
    can: &Capabilities,
    any_layout: bool,
) -> Result<Legalized, Diagnostic> {
    let mut program = given.clone();
    let mut steps: Vec<(usize, Step)> = Vec::new();
    let (mut inputs, mut temps) = (Vec::new(), Vec::new());
    for b in given.inputs() {
        let data = &given.buffers[b];
        if any_layout || dense(data) {
            inputs.push(b);
            continue;
        }
        let from = program.buffers.push(plain(data, Role::Input));
        program.buffers[b].role = Role::Temp;
        temps.push((b, None));
        steps.push((0, Step::Kernel(copy(from, b, data))));
        inputs.push(from);
    }
    for (n, step) in given.steps.iter().enumerate() {
        let before = program.buffers.len();
        let expanded = expand(&mut program, step, can).map_err(|d| within(d, given, Some(n)))?;
        match expanded {
            Some(all) => steps.extend(all.into_iter().map(|step| (n, step))),
            None => steps.push((n, step.clone())),
        }
        temps.extend(program.buffers.keys().skip(before).map(|b| (b, Some(n))));
    }
    let mut outputs = Vec::new();
    for &b in &given.outputs {
        let data = &given.buffers[b];
        if any_layout || dense(data) {
            outputs.push(b);
        } else {
            let to = program.buffers.push(plain(data, Role::Output));
            steps.push((given.steps.len().saturating_sub(1), Step::Kernel(copy(b, to, data))));
            outputs.push(to);
            program.buffers[b].role = Role::Temp;
            temps.push((b, None));
        }
    }
    if !any_layout {
        own_what_is_not_handed(&mut program, &outputs, &mut temps);
    }
    let (origin, steps) = steps.into_iter().unzip();
    program.steps = steps;
    Ok(Legalized { program, origin, temps, inputs, outputs })
}

/// What nobody is handed is kept like a temporary.
fn own_what_is_not_handed(
    program: &mut Program,
    outputs: &[Buffer],
    temps: &mut Vec<(Buffer, Option<usize>)>,
) {
    let mut handed: SecondaryMap<Buffer, bool> = SecondaryMap::new();
    outputs.iter().for_each(|&b| handed[b] = true);
    for (b, data) in program.buffers.iter_mut() {
        if data.role == Role::Output && !handed[b] {
            data.role = Role::Temp;
            temps.push((b, None));
        }
    }
}

/// The steps that an engine does instead of one that it does not do itself; `None` where it does. Buffers that
/// these need are added to the program.
///
/// # Errors
/// Where a kernel cannot be walked as its schedule says.
pub(crate) fn expand(
    program: &mut Program,
    step: &Step,
    can: &Capabilities,
) -> Result<Option<Vec<Step>>, Diagnostic> {
    let mut steps = Vec::new();
    match step {
        Step::Attend(a) if !can.attention => attention(program, a, &mut |step| steps.push(step)),
        Step::Kernel(kernel) if !can.schedules => {
            steps.extend(loops(kernel)?.into_iter().map(Step::Kernel));
        }
        Step::Bundle(bundle) if !can.schedules => {
            let mut kernels = Vec::with_capacity(bundle.kernels.len());
            for kernel in &bundle.kernels {
                kernels.extend(loops(kernel)?);
            }
            steps.push(Step::Bundle(Bundle { name: bundle.name.clone(), kernels }));
        }
        Step::Library(library) if !can.any_layout => {
            plainly(program, library, &mut |step| steps.push(step));
        }
        _ => return Ok(None),
    }
    Ok(Some(steps))
}

/// A call on dense tensors: what is packed or strided is copied before it or after it.
fn plainly(program: &mut Program, library: &Library, step: &mut dyn FnMut(Step)) {
    let mut call = library.clone();
    for b in &mut call.inputs {
        let data = program.buffers[*b].clone();
        if !dense(&data) {
            let to = program.buffers.push(plain(&data, Role::Temp));
            step(Step::Kernel(copy(*b, to, &data)));
            *b = to;
        }
    }
    let mut after = Vec::new();
    for b in &mut call.outputs {
        let data = program.buffers[*b].clone();
        if !dense(&data) {
            let from = program.buffers.push(plain(&data, Role::Temp));
            after.push(Step::Kernel(copy(from, *b, &data)));
            *b = from;
        }
    }
    step(Step::Library(call));
    after.into_iter().for_each(step);
}

/// A buffer of the same elements, row-major without gaps.
pub(crate) fn plain(data: &BufferData, role: Role) -> BufferData {
    BufferData { role, storage: Storage::Plain, strides: None, ..data.clone() }
}

fn axes(n: usize) -> SmallVec<[IndexExpr; 4]> {
    (0..n).map(IndexExpr::axis).collect()
}

fn load(b: Buffer, index: SmallVec<[IndexExpr; 4]>) -> Param {
    let piece = Piece { from: Operand::Buffer(b), index, guards: SmallVec::new() };
    Param::Load(SmallVec::from_iter([piece]))
}

fn store(buffer: Buffer, n: usize) -> Sink {
    Sink::Store { buffer, index: axes(n) }
}

/// A kernel that moves the elements of one buffer to another.
pub(crate) fn copy(from: Buffer, to: Buffer, data: &BufferData) -> Kernel {
    Kernel::copying(format!("copy of %{}", data.name), from, to, (data.dtype, &data.dims))
}

fn identity(d: DType) -> ScalarProgram {
    Recorder::record_any(&[d], |x| x[0])
}

fn extents(parts: &[&Extents]) -> Extents {
    parts.iter().flat_map(|p| p.iter().copied()).collect()
}

/// The axes among `n` whose numbers are `from`.. and whose extents are not 1, as one run.
fn run(lengths: &Extents) -> SmallVec<[Run; 2]> {
    let long = (0u8..).zip(lengths).filter(|(_, n)| **n != 1).map(|(a, _)| a);
    let axes: SmallVec<[u8; 4]> = long.collect();
    match axes.is_empty() {
        true => SmallVec::new(),
        false => SmallVec::from_iter([Run { axes, order: Order::Lane }]),
    }
}

/// Attention as its definition says it: all scores, then their weights, then the weighed values.
fn attention(program: &mut Program, a: &Attend, push: &mut dyn FnMut(Step)) {
    let Attend { batch, rows, stream, depth, width, sum, .. } = a;
    let sum = *sum;
    let temp = |program: &mut Program, dims: Extents| {
        let name = format!("{}.{}", a.name, program.buffers.len());
        program.buffers.push(BufferData::new(name, sum, dims, Role::Temp))
    };
    let points = extents(&[batch, rows]);
    let (n, m) = (points.len(), points.len() + stream.len());
    let scores = temp(program, extents(&[batch, rows, stream]));
    let weights = temp(program, extents(&[batch, rows, stream]));
    let (most, total) = (temp(program, points.clone()), temp(program, points));
    let weighed = temp(program, a.result());
    let then = Stage {
        axes: Extents::new(),
        params: a.score.params.clone(),
        program: a.score.program.clone(),
        sinks: vec![store(scores, m)],
    };
    let member = |rows: &Extents, cols: &Extents, depth: &Extents, lhs: Feed, rhs: Feed, then| {
        let (batch, rows, cols) = (batch.clone(), rows.clone(), cols.clone());
        let member = Member { batch, rows, cols, depth: depth.clone(), lhs, rhs, sum, then };
        Step::Contract(Contract { name: a.name.clone(), members: SmallVec::from_iter([member]) })
    };
    push(member(rows, stream, depth, a.lhs.clone(), a.rhs.clone(), then));

    push(Step::Kernel(softmax(a, (scores, weights), (most, total))));

    // Weights are over batch, rows, stream; values over batch, stream, width.
    let weight = Feed { params: vec![load(weights, axes(m))], program: identity(sum) };
    let after = |e: &IndexExpr| e.compose(&value_axes(batch.len(), stream.len(), width.len()));
    let values = renamed(&a.values, &after);
    let result = a.result();
    let stored = Stage::storing(sum, weighed, sum, axes(result.len()));
    push(member(rows, width, stream, weight, values, stored));

    let mut last = Kernel { name: a.name.clone(), domain: result.clone(), ..Kernel::default() };
    let r = last.rows.push(sum);
    last.stages.push(Stage {
        axes: Extents::new(),
        params: vec![load(weighed, axes(result.len())), load(total, axes(n))],
        program: Recorder::record_any(&[sum, sum], |x| x[0] / x[1]),
        sinks: vec![Sink::Leave(r)],
    });
    let mut then = a.then.clone();
    for param in &mut then.params {
        if *param == Param::Sum {
            *param = Param::Row(r);
        }
    }
    last.stages.push(then);
    push(Step::Kernel(last));
}

/// The kernel of the weights: of `scores`, rows along `stream`, the exponentials below the greatest of the row go
/// to `weights`; the greatest of every row goes to `most`, and the sum of its weights to `total`.
fn softmax(
    a: &Attend,
    (scores, weights): (Buffer, Buffer),
    (most, total): (Buffer, Buffer),
) -> Kernel {
    let Attend { batch, rows, stream, sum, .. } = a;
    let sum = *sum;
    let points = extents(&[batch, rows]);
    let (n, m) = (points.len(), points.len() + stream.len());
    let mut kernel = Kernel { name: a.name.clone(), domain: points, ..Kernel::default() };
    let (r0, r1) = (kernel.rows.push(sum), kernel.rows.push(sum));
    let reduce = |monoid, into| Sink::Reduce { monoid, runs: run(stream), into };
    kernel.stages.push(Stage {
        axes: stream.clone(),
        params: vec![load(scores, axes(m))],
        program: identity(sum),
        sinks: vec![reduce(Monoid::Max, r0)],
    });
    let mut program_of_weights = Recorder::record_any(&[sum, sum], |x| (x[0] - x[1]).exp());
    let weight = program_of_weights.outputs[0];
    program_of_weights.outputs.push(weight);
    kernel.stages.push(Stage {
        axes: stream.clone(),
        params: vec![load(scores, axes(m)), Param::Row(r0)],
        program: program_of_weights,
        sinks: vec![store(weights, m), reduce(Monoid::Sum, r1)],
    });
    let mut left = Stage {
        axes: Extents::new(),
        params: vec![Param::Row(r0), Param::Row(r1)],
        program: Recorder::record_any(&[sum, sum], |x| x[0] + x[1].log()),
        sinks: Vec::new(),
    };
    let logarithm = left.program.outputs[0];
    // The recorder numbers parameters first.
    left.program.outputs = left.program.insts.keys().take(2).collect();
    left.sinks = vec![store(most, n), store(total, n)];
    if let Some(b) = a.log_sum {
        left.program.outputs.push(logarithm);
        left.sinks.push(store(b, n));
    }
    kernel.stages.push(left);
    kernel
}

/// The coordinates of values, batch, stream, width, where an operand has batch, width, stream.
fn value_axes(batch: usize, stream: usize, width: usize) -> Vec<IndexExpr> {
    let of = |from: usize, n: usize| (from..from + n).map(IndexExpr::axis);
    of(0, batch).chain(of(batch + width, stream)).chain(of(batch, width)).collect()
}

fn renamed(feed: &Feed, name: &dyn Fn(&IndexExpr) -> IndexExpr) -> Feed {
    let mut feed = feed.clone();
    for param in &mut feed.params {
        match param {
            Param::Load(pieces) => {
                for piece in pieces {
                    piece.index.iter_mut().for_each(|e| *e = name(e));
                    piece.guards.iter_mut().for_each(|g| g.expr = name(&g.expr));
                }
            }
            Param::Coord(e) => *e = name(e),
            Param::Row(_) | Param::Tile(_) | Param::Sum => {}
        }
    }
    feed
}
