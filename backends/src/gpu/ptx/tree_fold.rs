//! The balanced tree that joins parts of folds in memory.

use super::address::{Vars, resolved, value};
use super::asm::Class;
use super::emit::{At, Emit};
use super::entry::{Out, begun};
use super::fold_order::{Fold, Shape};
use super::operands::class;
use super::partial_fold::Part;
use crate::gpu::schedule::index::coordinates;
use crate::gpu::schedule::shape::axes;
use crate::gpu::schedule::work::{Join, Lowering};
use crate::gpu::target::THREADS;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Extents, Order};
use adfuse_ir::{DType, Diagnostic};

/// Parts that one thread joins.
const RADIX: i64 = 32;

/// Launches the joining of parts that are in memory, the last axes of their domain folded.
pub(crate) fn join(low: &mut Lowering, out: &mut Out, join: &Join) -> Result<(), Diagnostic> {
    let Join { from, domain, folded, monoid, dtype, then } = join;
    let kept: Vec<usize> = (0..domain.len()).filter(|a| !folded.contains(a)).collect();
    let shape = Shape {
        count: folded.iter().map(|&a| domain[a]).product(),
        kept_extents: kept.iter().map(|&a| domain[a]).collect(),
        kept,
        axes: folded.clone(),
        order: Order::Lane,
    };
    let fold = Fold { monoid: *monoid, dtype: *dtype, then: then.clone(), parts: None };
    let count = shape.count;
    // As rows of parts, whatever the axes.
    let dims = Extents::from_iter([shape.results(), count]);
    let rows = low.alias(*from, dims);
    joined(low, out, domain, &shape, &fold, (rows, None), count)
}

/// Joins parts in the balanced tree, this many a block, until one is left, and goes on with that.
pub(crate) fn joined(
    low: &mut Lowering,
    out: &mut Out,
    domain: &Extents,
    shape: &Shape,
    fold: &Fold,
    parts: (Buffer, Option<Buffer>),
    blocks: i64,
) -> Result<(), Diagnostic> {
    let results = shape.results();
    let (mut from, mut count) = (parts, blocks);
    loop {
        let split = Split::of(count);
        let tops = (count + split.parts - 1) / split.parts;
        let to = (tops > 1).then(|| {
            let dims = match shape.order {
                Order::Lane => Extents::from_iter([results, tops]),
                Order::Chain => Extents::from_iter([tops, results]),
            };
            let value = low.temp(fold.dtype, dims.clone());
            (value, from.1.map(|_| low.temp(DType::I32, dims)))
        });
        level(low, out, domain, shape, fold, (from, count), to, &split)?;
        let Some(next) = to else { break };
        (from, count) = (next, tops);
    }
    Ok(())
}

/// How threads of a block share parts: aligned groups, of which each is a subtree.
struct Split {
    /// Parts of a thread.
    each: i64,
    /// Threads of a block that join theirs.
    groups: i64,
    /// Results of a block.
    results: i64,
    /// Parts that a block joins into one.
    parts: i64,
}

impl Split {
    fn of(count: i64) -> Split {
        let each = RADIX.min((count as u64).next_power_of_two() as i64);
        let threads = i64::from(THREADS);
        let groups = (((count + each - 1) / each) as u64).next_power_of_two() as i64;
        let groups = groups.min(threads);
        Split { each, groups, results: threads / groups, parts: each * groups }
    }
}

#[allow(clippy::too_many_arguments)]
fn level(
    low: &Lowering,
    out: &mut Out,
    domain: &Extents,
    shape: &Shape,
    fold: &Fold,
    (from, count): ((Buffer, Option<Buffer>), i64),
    to: Option<(Buffer, Option<Buffer>)>,
    split: &Split,
) -> Result<(), Diagnostic> {
    let results = shape.results();
    let tops = (count + split.parts - 1) / split.parts;
    let across = (results + split.results - 1) / split.results;
    let blocks = tops.saturating_mul(across);
    let mut emit = begun(low, out);
    let (block, thread) = (emit.asm.special("ctaid.x"), emit.asm.special("tid.x"));
    let mut vars = Vars::default();
    let block = vars.push(block, blocks);
    let own = vars.push(thread, THREADS.into());
    // Neighbouring threads read what is next to each other.
    let (top, group, result) = match shape.order {
        Order::Lane => {
            let group = own.clone().modulo(split.groups);
            let result = own.floor_div(split.groups);
            (
                block.clone().modulo(tops),
                group,
                block.floor_div(tops).times(split.results).sum(result),
            )
        }
        Order::Chain => {
            let result = own.clone().modulo(split.results);
            let group = own.floor_div(split.results);
            let first = block.clone().modulo(across).times(split.results);
            (block.floor_div(across), group, first.sum(result))
        }
    };
    let here = emit.below(&mut vars, &result, results);
    let (result, live) = (here.place, here.valid);
    let pair = |part: &IndexExpr| match shape.order {
        Order::Lane => [result.clone(), part.clone()],
        Order::Chain => [part.clone(), result.clone()],
    };
    // All loads, then the tree.
    let mut parts = Vec::new();
    for r in 0..split.each.min(count) {
        let number = top.clone().times(split.groups).sum(group.clone()).times(split.each).plus(r);
        let mut own = vars.clone();
        let here = emit.below(&mut own, &number, count);
        let (valid, place) = (here.valid, here.place);
        let coords = pair(&place);
        let at = At { vars: &own, coords: &coords };
        let value = emit.element_of(from.0, &at);
        let place = from.1.map(|b| emit.element_of(b, &at));
        let part = Part { value, place };
        parts.push(emit.part_if(valid, part, fold.monoid, fold.dtype));
    }
    while parts.len() > 1 {
        let pairs: Vec<Vec<Part>> = parts.chunks(2).map(<[Part]>::to_vec).collect();
        parts = pairs
            .iter()
            .map(|pair| match *pair.as_slice() {
                [a, b] => emit.join(fold.monoid, fold.dtype, a, b),
                _ => pair[0],
            })
            .collect();
    }
    let Some(&part) = parts.first() else { return Ok(()) };
    let part = across_threads(&mut emit, fold, shape.order, part, split);
    let group = resolved(&group, &emit.same(&vars), &vars);
    let group = value(&mut emit.asm, &group, &vars, &[]);
    let leads = (split.groups > 1)
        .then(|| emit.asm.pure(Class::Pred, "setp.eq.s32", format_args!("{group}, 0")));
    let leads = emit.all(leads, live);
    emit.when(leads, |emit| match to {
        Some((values, places)) => {
            let coords = pair(&top);
            let at = At { vars: &vars, coords: &coords };
            emit.store(values, &axes(2), part.value, &at, None);
            if let (Some(b), Some(place)) = (places, part.place) {
                emit.store(b, &axes(2), place, &at, None);
            }
        }
        None => {
            let kept = coordinates(&result, &shape.kept_extents);
            let coords = shape.remaining(&kept, domain.len());
            let value = part.place.unwrap_or(part.value);
            emit.follow(&fold.then, value, &At { vars: &vars, coords: &coords });
        }
    });
    let shared = if split.groups > 1 { THREADS * 16 } else { 0 };
    out.launch(&low.homes, emit, blocks, THREADS, shared)
}

/// Joins the parts of the threads that have one result, neighbours first, through shared memory: all of them
/// have it then.
fn across_threads(
    emit: &mut Emit<'_>,
    fold: &Fold,
    order: Order,
    mut part: Part,
    split: &Split,
) -> Part {
    let thread = emit.asm.special("tid.x");
    let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
    let own = emit.asm.pure(Class::Word, "mad.lo.s32", format_args!("{thread}, 8, {base}"));
    let spelled = match class(fold.dtype) {
        Class::Long | Class::Double => "b64",
        Class::Half => "b16",
        _ => "b32",
    };
    let mut distance = 1;
    while distance < split.groups {
        let bits = match order {
            Order::Lane => distance,
            Order::Chain => distance * split.results,
        };
        let value = emit.plain(part.value, fold.dtype);
        emit.asm.emit(format_args!("st.shared.{spelled} [{own}], {value}"));
        if let Some(place) = part.place {
            emit.asm.emit(format_args!("st.shared.b32 [{own}+2048], {place}"));
        }
        emit.asm.emit("bar.sync 0");
        let other = emit.asm.pure(Class::Word, "xor.b32", format_args!("{thread}, {bits}"));
        let other = emit.asm.pure(Class::Word, "mad.lo.s32", format_args!("{other}, 8, {base}"));
        let form = if fold.dtype == DType::Bool { Class::Word } else { class(fold.dtype) };
        let found = emit.asm.fresh(form);
        emit.asm.emit(format_args!("ld.shared.{spelled} {found}, [{other}]"));
        let found = match fold.dtype {
            DType::Bool => emit.asm.pure(Class::Pred, "setp.ne.s32", format_args!("{found}, 0")),
            _ => found,
        };
        let place = part.place.map(|_| {
            let place = emit.asm.fresh(Class::Word);
            emit.asm.emit(format_args!("ld.shared.b32 {place}, [{other}+2048]"));
            place
        });
        // What is read is read before the next is written.
        emit.asm.emit("bar.sync 0");
        part = emit.join(fold.monoid, fold.dtype, part, Part { value: found, place });
        distance *= 2;
    }
    part
}
