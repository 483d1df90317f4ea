//! The balanced tree that joins parts of folds in memory.

use super::address::{Vars, resolved, value};
use super::asm::Class;
use super::block_ranges::in_ranges;
use super::emit::{At, Emit};
use super::entry::{Out, begun};
use super::operands::class;
use super::partial_fold::Part;
use crate::gpu::schedule::fold_order::FoldResult;
use crate::gpu::schedule::index::coordinates;
use crate::gpu::schedule::program::GpuSchedule;
use crate::gpu::schedule::shape::axes;
use crate::gpu::schedule::tree_fold::{TreeFold, TreeLevel, TreeSplit};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::Order;
use adfuse_ir::{DType, Diagnostic};

/// Trees of one launch at most: it is given the parts and the results of each.
const MOST_TREES: usize = 16;

/// Launches the joining of parts, a level after the other, and goes on with the last. Trees of the folds of one loop do not
/// depend on each other, so that the same level of several is one launch.
pub(crate) fn joined(s: &GpuSchedule, out: &mut Out, trees: &[TreeFold]) -> Result<(), Diagnostic> {
    levels(trees).iter().try_for_each(|trees| level(s, out, trees))
}

/// The levels of trees that share a launch, in the order of launches.
pub(crate) fn levels(trees: &[TreeFold]) -> Vec<Vec<(&TreeFold, &TreeLevel)>> {
    let alike = trees.chunk_by(|a, b| a.tree.grid == b.tree.grid);
    let mut all = Vec::new();
    for trees in alike.flat_map(|trees| trees.chunks(MOST_TREES)) {
        let count = trees.iter().map(|fold| fold.levels.len()).max().unwrap_or(0);
        for k in 0..count {
            let now = trees.iter().filter_map(|fold| Some((fold, fold.levels.get(k)?)));
            all.push(now.collect());
        }
    }
    all
}

/// A level of some trees, whose blocks have as many threads.
fn level(
    s: &GpuSchedule,
    out: &mut Out,
    trees: &[(&TreeFold, &TreeLevel)],
) -> Result<(), Diagnostic> {
    let Some(grid) = trees.first().map(|(fold, _)| fold.tree.grid) else { return Ok(()) };
    let mut ranges = Vec::with_capacity(trees.len());
    let mut blocks = 0i64;
    for &(fold, at) in trees {
        ranges.push((blocks, (fold, at)));
        let [tops, across] = at.blocks(&fold.shape);
        blocks = blocks.saturating_add(tops.saturating_mul(across));
    }
    let shares = trees.iter().any(|(_, at)| at.split.groups > 1);
    let shared = if shares { grid.threads * 16 } else { 0 };
    let mut emit = begun(s, out);
    match ranges.as_slice() {
        &[(_, (fold, at))] => body(&mut emit, fold, at),
        ranges => in_ranges(&mut emit, ranges, |emit, &(fold, at)| body(emit, fold, at)),
    }
    out.launch(&s.homes, emit, blocks, grid, u32::try_from(shared).unwrap_or(u32::MAX))
}

/// What the blocks of a level of one tree do.
fn body(emit: &mut Emit<'_>, joins: &TreeFold, at: &TreeLevel) {
    let TreeFold { domain, shape, fold, tree, .. } = joins;
    let &TreeLevel { from, count, to, ref split } = at;
    let grid = tree.grid;
    let results = shape.results();
    let [tops, across] = at.blocks(shape);
    let blocks = tops.saturating_mul(across);
    let (block, thread) = (emit.asm.special("ctaid.x"), emit.asm.special("tid.x"));
    let mut vars = Vars::default();
    let block = vars.push(block, blocks);
    let own = vars.push(thread, grid.threads);
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
    let Some(&part) = parts.first() else { return };
    let part = across_threads(emit, fold, shape.order, part, split);
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
}

/// Joins the parts of the threads that have one result, neighbours first, through shared memory: all of them
/// have it then.
fn across_threads(
    emit: &mut Emit<'_>,
    fold: &FoldResult,
    order: Order,
    mut part: Part,
    split: &TreeSplit,
) -> Part {
    let thread = emit.asm.special("tid.x");
    let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
    let own = emit.asm.pure(Class::Word, "mad.lo.s32", format_args!("{thread}, 8, {base}"));
    let spelled = match class(fold.dtype) {
        Class::Long | Class::Double => "b64",
        Class::Half => "b16",
        _ => "b32",
    };
    // Places are past the values of all threads.
    let places = split.groups * split.results * 8;
    let mut distance = 1;
    while distance < split.groups {
        let bits = match order {
            Order::Lane => distance,
            Order::Chain => distance * split.results,
        };
        let value = emit.plain(part.value, fold.dtype);
        emit.asm.emit(format_args!("st.shared.{spelled} [{own}], {value}"));
        if let Some(place) = part.place {
            emit.asm.emit(format_args!("st.shared.b32 [{own}+{places}], {place}"));
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
            emit.asm.emit(format_args!("ld.shared.b32 {place}, [{other}+{places}]"));
            place
        });
        // What is read is read before the next is written.
        emit.asm.emit("bar.sync 0");
        part = emit.join(fold.monoid, fold.dtype, part, Part { value: found, place });
        distance *= 2;
    }
    part
}
