//! Parts and elements of a fold that the warps of a team leave for each other in shared memory.

use super::address::{resolved, value};
use super::asm::{Class, Reg, guard_prefix};
use super::emit::Emit;
use super::entry::Below;
use super::operands::{class, constant, select};
use super::partial_fold::{Part, neutral};
use super::row_point::Point;
use crate::gpu::schedule::row_residency::Reduction;
use adfuse_ir::DType;

/// Joins what lanes have come to: all of them have the result.
pub(crate) fn halved(emit: &mut Emit<'_>, fold: &Reduction, part: Part, lanes: i64) -> Reg {
    let mut part = part.value;
    let mut half = lanes / 2;
    while half > 0 {
        let other = emit.exchanged(part, half as u32);
        part = emit.combine(fold.monoid, fold.dtype, part, other);
        half /= 2;
    }
    part
}

/// Leaves the parts of a warp's folds for all warps.
pub(crate) fn leave_parts(
    emit: &mut Emit<'_>,
    p: &Point<'_>,
    folds: &[Reduction],
    parts: Vec<Part>,
    number: Reg,
    places: &[i64],
) {
    let lane = resolved(&p.lane, &emit.same(&p.vars), &p.vars);
    let lane = value(&mut emit.asm, &lane, &p.vars, &[]);
    let lowest = emit.asm.pure(Class::Pred, "setp.eq.s32", format_args!("{lane}, 0"));
    let team = p.layout.team;
    for ((fold, part), place) in folds.iter().zip(parts).zip(places) {
        if fold.in_lanes(team, emit.fp) {
            continue;
        }
        let part = halved(emit, fold, part, 32);
        let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
        let at = emit.asm.pure(Class::Word, "mad.lo.s32", format_args!("{number}, 8, {base}"));
        let part = emit.plain(part, fold.dtype);
        let spelled = word(fold.dtype);
        emit.asm.emit(format_args!("@{lowest} st.shared.{spelled} [{at}+{place}], {part}"));
    }
}

/// How parts in shared memory are spelled: in whole words.
fn word(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "f64",
        DType::I64 => "b64",
        DType::F32 => "f32",
        _ => "b32",
    }
}

/// Leaves an element for all warps.
pub(crate) fn leave_element(
    emit: &mut Emit<'_>,
    fold: &Reduction,
    place: i64,
    value: Reg,
    here: &Below,
) {
    let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
    let number = emit.asm.narrow(here.number);
    let at = format_args!("{number}, {}, {base}", fold.word()).to_string();
    let at = emit.asm.pure(Class::Word, "mad.lo.s32", at);
    let value = emit.plain(value, fold.dtype);
    let prefix = guard_prefix(here.valid);
    let spelled = word(fold.dtype);
    emit.asm.emit(format_args!("{prefix}st.shared.{spelled} [{at}+{place}], {value}"));
}

/// Every warp folds all elements, each lane its own.
pub(crate) fn folded_in_lanes(
    emit: &mut Emit<'_>,
    p: &Point<'_>,
    fold: &Reduction,
    place: i64,
    n: i64,
) -> Reg {
    let lane = resolved(&p.lane, &emit.same(&p.vars), &p.vars);
    let lane = value(&mut emit.asm, &lane, &p.vars, &[]);
    let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
    let word = fold.word();
    let at = emit.asm.pure(Class::Word, "mad.lo.s32", format_args!("{lane}, {word}, {base}"));
    let mut part = constant(&mut emit.asm, neutral(fold.monoid, fold.dtype));
    for first in (0..n).step_by(32) {
        let mut at = at;
        let left = n - first;
        let there = (left < 32)
            .then(|| emit.asm.pure(Class::Pred, "setp.lt.s32", format_args!("{lane}, {left}")));
        if there.is_some() {
            let own = emit.asm.pure(Class::Word, "min.s32", format_args!("{lane}, {}", left - 1));
            at = emit.asm.pure(Class::Word, "mad.lo.s32", format_args!("{own}, {word}, {base}"));
        }
        let mut next = loaded(emit, fold.dtype, at, place + first * word);
        if let Some(there) = there {
            let empty = constant(&mut emit.asm, neutral(fold.monoid, fold.dtype));
            next = select(&mut emit.asm, there, next, empty);
        }
        part = emit.combine(fold.monoid, fold.dtype, part, next);
    }
    halved(emit, fold, Part { value: part, place: None }, 32)
}

/// What somebody has left.
fn loaded(emit: &mut Emit<'_>, dtype: DType, at: Reg, offset: i64) -> Reg {
    let form = if dtype == DType::Bool { Class::Word } else { class(dtype) };
    let raw = emit.asm.fresh(form);
    emit.asm.emit(format_args!("ld.shared.{} {raw}, [{at}+{offset}]", word(dtype)));
    match dtype {
        DType::Bool => emit.asm.pure(Class::Pred, "setp.ne.s32", format_args!("{raw}, 0")),
        _ => raw,
    }
}

/// Every warp joins all parts: neighbours first, in groups of 32, and then the groups.
pub(crate) fn tree(
    emit: &mut Emit<'_>,
    p: &Point<'_>,
    fold: &Reduction,
    place: i64,
    blocks: i64,
) -> Reg {
    let lane = resolved(&p.lane, &emit.same(&p.vars), &p.vars);
    let lane = value(&mut emit.asm, &lane, &p.vars, &[]);
    let base = emit.asm.pure(Class::Word, "mov.u32", "dynamic");
    let empty = constant(&mut emit.asm, neutral(fold.monoid, fold.dtype));
    let mut groups = Vec::new();
    for first in (0..blocks).step_by(32) {
        let left = (blocks - first).min(32);
        // As many lanes as there are parts, and again: all have the result.
        let group = (left as u64).next_power_of_two();
        let own = emit.asm.pure(Class::Word, "and.b32", format_args!("{lane}, {}", group - 1));
        let most = emit.asm.pure(Class::Word, "min.s32", format_args!("{own}, {}", left - 1));
        let at = emit.asm.pure(Class::Word, "mad.lo.s32", format_args!("{most}, 8, {base}"));
        let mut part = loaded(emit, fold.dtype, at, place + first * 8);
        if (left as u64) < group {
            let there = emit.asm.pure(Class::Pred, "setp.lt.s32", format_args!("{own}, {left}"));
            part = select(&mut emit.asm, there, part, empty);
        }
        let mut distance = 1;
        while distance < left {
            let other = emit.exchanged(part, distance as u32);
            part = emit.combine(fold.monoid, fold.dtype, part, other);
            distance *= 2;
        }
        groups.push(part);
    }
    while groups.len() > 1 {
        let pairs: Vec<Vec<Reg>> = groups.chunks(2).map(<[Reg]>::to_vec).collect();
        groups = pairs
            .iter()
            .map(|pair| match *pair.as_slice() {
                [a, b] => emit.combine(fold.monoid, fold.dtype, a, b),
                _ => pair[0],
            })
            .collect();
    }
    groups.pop().unwrap_or(empty)
}
