//! Scans and packing.

use super::address::Vars;
use super::asm::{Asm, Class, Reg};
use super::emit::{At, Emit, memory};
use super::entry::{Out, begun, single};
use super::operands::{class, constant, select};
use crate::gpu::schedule::grid::Grid;
use crate::gpu::schedule::index::{coordinates, range};
use crate::gpu::schedule::program::GpuSchedule;
use crate::gpu::schedule::shape::{axes, internal};
use crate::gpu::schedule::work::{SCAN_GROUP, Scan};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::Buffer;
use adfuse_ir::{DType, Diagnostic, Literal};

/// Launches a scan: groups, their last elements by the same rule, and what those add to the groups after.
pub(crate) fn scan(
    s: &GpuSchedule,
    out: &mut Out,
    scan: &Scan,
    grid: Grid,
) -> Result<(), Diagnostic> {
    let [_, n, _] = scan.extents;
    let mut levels = vec![(scan.buffer, n)];
    for &b in &scan.lasts {
        let n = levels.last().map_or(0, |l| l.1 / SCAN_GROUP);
        levels.push((b, n));
    }
    for (k, &(b, n)) in levels.iter().enumerate() {
        // Only the first is in the order of its axis: what is taken of it is in the order of the scan.
        let reverse = scan.reverse && k == 0;
        let next = levels.get(k + 1).map(|l| l.0);
        groups(s, out, (scan, grid), (b, n), reverse, next)?;
    }
    for (k, &(b, n)) in levels.iter().enumerate().rev().skip(1) {
        spread(s, out, (scan, grid), (b, n), scan.reverse && k == 0, levels[k + 1])?;
    }
    Ok(())
}

/// A place of a line, from its other end where the scan is reversed.
fn along(place: IndexExpr, n: i64, reverse: bool) -> IndexExpr {
    if reverse { place.times(-1).plus(n - 1) } else { place }
}

/// Errs unless coordinates are inside of a buffer wherever the variables are: what moves elements of a scan
/// follows from no kernel that was verified.
fn inside(s: &GpuSchedule, b: Buffer, coords: &[IndexExpr], vars: &Vars) -> Result<(), Diagnostic> {
    let dims = &s.program.buffers[b].dims;
    let fits = |(e, &n): (&IndexExpr, &i64)| {
        let (least, most) = range(e, &vars.extents);
        least >= 0 && most < i128::from(n)
    };
    match coords.len() == dims.len() && coords.iter().zip(dims).all(fits) {
        true => Ok(()),
        false => Err(internal("a scan would leave its buffer")),
    }
}

/// A load that sees what this launch and the ones before have written; 0 where a condition does not hold,
/// under which nothing is read.
pub(crate) fn read_if(emit: &mut Emit<'_>, b: Buffer, at: &At<'_>, when: Option<Reg>) -> Reg {
    let dtype = emit.program.buffers[b].dtype;
    let element = emit.element(b, &axes(at.coords.len()), at);
    let address = emit.address(b, &element, dtype.bytes(), at.vars, &[]);
    let form = if dtype == DType::Bool { Class::Word } else { class(dtype) };
    let found = emit.asm.fresh(form);
    let load = format!("ld.global.{} {found}, {address}", memory(dtype));
    match when {
        None => emit.asm.emit(load),
        Some(p) => {
            let zero = match dtype {
                DType::Bool => emit.asm.word(0),
                d => constant(&mut emit.asm, Literal::zero(d)),
            };
            emit.asm.set(found, zero);
            emit.asm.emit(format_args!("@{p} {load}"));
        }
    }
    match dtype {
        DType::Bool => emit.asm.pure(Class::Pred, "setp.ne.s32", format_args!("{found}, 0")),
        _ => found,
    }
}

/// As [`read_if`], always.
pub(crate) fn read(emit: &mut Emit<'_>, b: Buffer, at: &At<'_>) -> Reg {
    read_if(emit, b, at, None)
}

/// A thread for each group and line: the group in registers, at distances 1, 2, 4, 8, 16. Neighbouring threads
/// have neighbouring lines.
fn groups(
    s: &GpuSchedule,
    out: &mut Out,
    (scan, grid): (&Scan, Grid),
    (b, n): (Buffer, i64),
    reverse: bool,
    next: Option<Buffer>,
) -> Result<(), Diagnostic> {
    let [outer, _, inner] = scan.extents;
    if inner == 1 {
        return by_lanes(s, out, (scan, grid), (b, n), reverse, next);
    }
    let full = n / SCAN_GROUP;
    let dtype = s.program.buffers[b].dtype;
    // Full groups, and what is left: groups of fewer elements.
    for (first, count, size) in [(0, full, SCAN_GROUP), (full, 1, n % SCAN_GROUP)] {
        if count * size == 0 {
            continue;
        }
        let total = outer * count * inner;
        let mut emit = begun(s, out);
        let (id, live) = emit.thread(total, grid.threads, false);
        emit.leave_unless(live);
        let (vars, thread) = single(id, total);
        let mut at = coordinates(&thread, &[outer, count, inner]);
        at[1] = at[1].clone().plus(first);
        let line = |k: IndexExpr| -> Vec<IndexExpr> {
            let place = at[1].clone().times(SCAN_GROUP).sum(k);
            let own = [at[0].clone(), along(place, n, reverse), at[2].clone()];
            lines(s, b, &own, scan)
        };
        let mut x: Vec<Reg> = Vec::new();
        for k in 0..size {
            let coords = line(IndexExpr::Const(k));
            inside(s, b, &coords, &vars)?;
            x.push(read(&mut emit, b, &At { vars: &vars, coords: &coords }));
        }
        let mut distance = 1;
        while distance < SCAN_GROUP as usize {
            for i in (distance..x.len()).rev() {
                x[i] = emit.combine(scan.monoid, dtype, x[i - distance], x[i]);
            }
            distance *= 2;
        }
        for (k, &v) in (0i64..).zip(&x) {
            let coords = line(IndexExpr::Const(k));
            let at = At { vars: &vars, coords: &coords };
            emit.store(b, &axes(coords.len()), v, &at, None);
        }
        if let (Some(next), true, Some(&last)) = (next, size == SCAN_GROUP, x.last()) {
            inside(s, next, &at, &vars)?;
            let at = At { vars: &vars, coords: &at };
            emit.store(next, &axes(3), last, &at, None);
        }
        out.launch(&s.homes, emit, grid.blocks(total), grid, 0)?;
    }
    Ok(())
}

/// A lane for each element, where those of a line are neighbours: a group is a warp, whose lanes exchange
/// partial results at distances 1, 2, 4, 8, 16.
fn by_lanes(
    s: &GpuSchedule,
    out: &mut Out,
    (scan, grid): (&Scan, Grid),
    (b, n): (Buffer, i64),
    reverse: bool,
    next: Option<Buffer>,
) -> Result<(), Diagnostic> {
    let outer = scan.extents[0];
    let dtype = s.program.buffers[b].dtype;
    let count = (n + SCAN_GROUP - 1) / SCAN_GROUP;
    let total = outer.saturating_mul(count).saturating_mul(SCAN_GROUP);
    let mut emit = begun(s, out);
    let (id, live) = emit.thread(total, grid.threads, true);
    let (mut vars, thread) = single(id, total);
    let [line, place] =
        [thread.clone().floor_div(count * SCAN_GROUP), thread.modulo(count * SCAN_GROUP)];
    let lane = emit.number(&place.clone().modulo(SCAN_GROUP), &vars);
    let here = emit.below(&mut vars, &place, n);
    let valid = emit.all(live, here.valid);
    let own = [line.clone(), along(here.place, n, reverse), IndexExpr::Const(0)];
    let coords = lines(s, b, &own, scan);
    inside(s, b, &coords, &vars)?;
    // Lanes past the end take part, and read nothing: others write what would be there.
    let mut x = read_if(&mut emit, b, &At { vars: &vars, coords: &coords }, valid);
    for distance in [1, 2, 4, 8, 16] {
        let before = emit.of_lane_before(x, distance);
        let joined = emit.combine(scan.monoid, dtype, before, x);
        let has = format!("{lane}, {distance}");
        let has = emit.asm.pure(Class::Pred, "setp.ge.s32", has);
        x = select(&mut emit.asm, has, joined, x);
    }
    emit.store(b, &axes(coords.len()), x, &At { vars: &vars, coords: &coords }, valid);
    if let Some(next) = next {
        let ends = format!("{lane}, {}", SCAN_GROUP - 1);
        let ends = emit.asm.pure(Class::Pred, "setp.eq.s32", ends);
        let ends = emit.all(Some(ends), valid);
        let group = emit.below(&mut vars, &place.floor_div(SCAN_GROUP), n / SCAN_GROUP).place;
        let coords = [line, group, IndexExpr::Const(0)];
        inside(s, next, &coords, &vars)?;
        emit.store(next, &axes(3), x, &At { vars: &vars, coords: &coords }, ends);
    }
    out.launch(&s.homes, emit, grid.blocks(total), grid, 0)
}

impl Emit<'_> {
    /// A value from the lane that is this many before, where there is one.
    fn of_lane_before(&mut self, x: Reg, distance: u32) -> Reg {
        let asm = &mut self.asm;
        let moved = |asm: &mut Asm, word: Reg| {
            let to = asm.fresh(Class::Word);
            asm.emit(format_args!("shfl.sync.up.b32 {to}, {word}, {distance}, 0, 0xffffffff"));
            to
        };
        match x.class {
            Class::Word => moved(asm, x),
            Class::Single => {
                let word = asm.pure(Class::Word, "mov.b32", x);
                let word = moved(asm, word);
                asm.pure(Class::Single, "mov.b32", word)
            }
            Class::Long | Class::Double => {
                let (low, high) = (asm.fresh(Class::Word), asm.fresh(Class::Word));
                asm.emit(format_args!("mov.b64 {{{low}, {high}}}, {x}"));
                let (low, high) = (moved(asm, low), moved(asm, high));
                let pair = format!("{{{low}, {high}}}");
                asm.pure(x.class, "mov.b64", pair)
            }
            Class::Half => {
                let zero = asm.pure(Class::Half, "mov.b16", "0");
                let word = asm.pure(Class::Word, "mov.b32", format!("{{{x}, {zero}}}"));
                let word = moved(asm, word);
                let (low, high) = (asm.fresh(Class::Half), asm.fresh(Class::Half));
                asm.emit(format_args!("mov.b32 {{{low}, {high}}}, {word}"));
                low
            }
            Class::Pred => {
                let word = asm.pure(Class::Word, "selp.b32", format_args!("1, 0, {x}"));
                let word = moved(asm, word);
                asm.pure(Class::Pred, "setp.ne.s32", format_args!("{word}, 0"))
            }
        }
    }
}

/// Coordinates of a level: what is scanned has lines and the places between them as any number of axes,
/// what is taken of it has one of each.
fn lines(s: &GpuSchedule, b: Buffer, at: &[IndexExpr; 3], scan: &Scan) -> Vec<IndexExpr> {
    if b != scan.buffer {
        return at.to_vec();
    }
    let [_, n, inner] = scan.extents;
    let flat = at[0].clone().times(n).sum(at[1].clone()).times(inner).sum(at[2].clone());
    coordinates(&flat, &s.program.buffers[b].dims)
}

/// Joins the scanned last element of the group before with each element of a group.
fn spread(
    s: &GpuSchedule,
    out: &mut Out,
    (scan, grid): (&Scan, Grid),
    (b, n): (Buffer, i64),
    reverse: bool,
    (lasts, _): (Buffer, i64),
) -> Result<(), Diagnostic> {
    let [outer, _, inner] = scan.extents;
    let total = outer * (n - SCAN_GROUP) * inner;
    if total <= 0 {
        return Ok(());
    }
    let dtype = s.program.buffers[b].dtype;
    let mut emit = begun(s, out);
    let (id, live) = emit.thread(total, grid.threads, false);
    emit.leave_unless(live);
    let (vars, thread) = single(id, total);
    let at = coordinates(&thread, &[outer, n - SCAN_GROUP, inner]);
    let before = [at[0].clone(), at[1].clone().floor_div(SCAN_GROUP), at[2].clone()];
    inside(s, lasts, &before, &vars)?;
    let left = read(&mut emit, lasts, &At { vars: &vars, coords: &before });
    let place = at[1].clone().plus(SCAN_GROUP);
    let own = [at[0].clone(), along(place, n, reverse), at[2].clone()];
    let own = lines(s, b, &own, scan);
    inside(s, b, &own, &vars)?;
    let own = At { vars: &vars, coords: &own };
    let x = read(&mut emit, b, &own);
    let joined = emit.combine(scan.monoid, dtype, left, x);
    emit.store(b, &axes(own.coords.len()), joined, &own, None);
    out.launch(&s.homes, emit, grid.blocks(total), grid, 0)
}
