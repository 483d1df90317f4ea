//! Scans, packing and scatters.

use super::asm::{Class, Reg};
use super::emit::{At, Emit, data_of, memory};
use super::launch::{Out, THREADS, begun, single};
use super::lower::{Lowering, Scan, axes, internal, volume};
use super::place::{Truth, Vars, coordinates, holds, range, resolved};
use super::prim::{self, class};
use adfuse_ir::Diagnostic;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Extents, Param, Scatter, Storage};
use adfuse_ir::op::{Monoid, Update};

/// Elements of a group of a scan.
const GROUP: i64 = 32;
/// Threads that a scatter has, if there is so much to do.
const WRITERS: i64 = 1 << 16;

fn blocks_of(threads: i64) -> i64 {
    (threads - 1) / i64::from(THREADS) + 1
}

/// Launches a scan: groups, their last elements by the same rule, and what those add to the groups after.
pub(super) fn scan(low: &Lowering, out: &mut Out, scan: &Scan) -> Result<(), Diagnostic> {
    let [outer, n, inner] = scan.extents;
    if outer * n * inner == 0 {
        return Ok(());
    }
    let mut levels = vec![(scan.buffer, n)];
    for &b in &scan.lasts {
        let n = levels.last().map_or(0, |l| l.1 / GROUP);
        levels.push((b, n));
    }
    for (k, &(b, n)) in levels.iter().enumerate() {
        // Only the first is in the order of its axis: what is taken of it is in the order of the scan.
        let reverse = scan.reverse && k == 0;
        let next = levels.get(k + 1).map(|l| l.0);
        groups(low, out, scan, (b, n), reverse, next)?;
    }
    for (k, &(b, n)) in levels.iter().enumerate().rev().skip(1) {
        spread(low, out, scan, (b, n), scan.reverse && k == 0, levels[k + 1])?;
    }
    Ok(())
}

/// A place of a line, from its other end where the scan is reversed.
fn along(place: IndexExpr, n: i64, reverse: bool) -> IndexExpr {
    if reverse { place.times(-1).plus(n - 1) } else { place }
}

/// Errs unless coordinates are inside of a buffer wherever the variables are: what moves elements of a scan
/// follows from no kernel that was verified.
fn inside(low: &Lowering, b: Buffer, coords: &[IndexExpr], vars: &Vars) -> Result<(), Diagnostic> {
    let dims = &low.program.buffers[b].dims;
    let fits = |(e, &n): (&IndexExpr, &i64)| {
        let (least, most) = range(e, &vars.extents);
        least >= 0 && most < i128::from(n)
    };
    match coords.len() == dims.len() && coords.iter().zip(dims).all(fits) {
        true => Ok(()),
        false => Err(internal("a scan would leave its buffer")),
    }
}

/// A load that sees what this launch and the ones before have written.
fn read(emit: &mut Emit<'_>, b: Buffer, at: &At<'_>) -> Reg {
    let dtype = emit.program.buffers[b].dtype;
    let element = emit.element(b, &axes(at.coords.len()), at);
    let address = emit.address(b, &element, dtype.bytes(), at.vars, &[]);
    let form = if dtype == adfuse_ir::DType::Bool { Class::Word } else { class(dtype) };
    let found = emit.asm.fresh(form);
    emit.asm.emit(format_args!("ld.global.{} {found}, {address}", memory(dtype)));
    match dtype {
        adfuse_ir::DType::Bool => {
            emit.asm.pure(Class::Pred, "setp.ne.s32", format_args!("{found}, 0"))
        }
        _ => found,
    }
}

/// A thread for each group and line: the group in registers, at distances 1, 2, 4, 8, 16.
fn groups(
    low: &Lowering,
    out: &mut Out,
    scan: &Scan,
    (b, n): (Buffer, i64),
    reverse: bool,
    next: Option<Buffer>,
) -> Result<(), Diagnostic> {
    let [outer, _, inner] = scan.extents;
    let full = n / GROUP;
    let dtype = low.program.buffers[b].dtype;
    // Full groups, and what is left: groups of fewer elements.
    for (first, count, size) in [(0, full, GROUP), (full, 1, n % GROUP)] {
        if count * size == 0 {
            continue;
        }
        let total = outer * count * inner;
        let mut emit = begun(low, out);
        let (id, live) = emit.thread(total, THREADS, false);
        emit.leave_unless(live);
        let (vars, thread) = single(id, total);
        let mut at = coordinates(&thread, &[outer, count, inner]);
        at[1] = at[1].clone().plus(first);
        let line = |k: IndexExpr| -> Vec<IndexExpr> {
            let place = at[1].clone().times(GROUP).sum(k);
            let own = [at[0].clone(), along(place, n, reverse), at[2].clone()];
            lines(low, b, &own, scan)
        };
        let mut x: Vec<Reg> = Vec::new();
        for k in 0..size {
            let coords = line(IndexExpr::Const(k));
            inside(low, b, &coords, &vars)?;
            x.push(read(&mut emit, b, &At { vars: &vars, coords: &coords }));
        }
        let mut distance = 1;
        while distance < GROUP as usize {
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
        if let (Some(next), true, Some(&last)) = (next, size == GROUP, x.last()) {
            inside(low, next, &at, &vars)?;
            let at = At { vars: &vars, coords: &at };
            emit.store(next, &axes(3), last, &at, None);
        }
        out.launch(&low.homes, emit, blocks_of(total), THREADS, 0)?;
    }
    Ok(())
}

/// Coordinates of a level: what is scanned has lines and the places between them as any number of axes,
/// what is taken of it has one of each.
fn lines(low: &Lowering, b: Buffer, at: &[IndexExpr; 3], scan: &Scan) -> Vec<IndexExpr> {
    if b != scan.buffer {
        return at.to_vec();
    }
    let [_, n, inner] = scan.extents;
    let flat = at[0].clone().times(n).sum(at[1].clone()).times(inner).sum(at[2].clone());
    coordinates(&flat, &low.program.buffers[b].dims)
}

/// Joins the scanned last element of the group before with each element of a group.
fn spread(
    low: &Lowering,
    out: &mut Out,
    scan: &Scan,
    (b, n): (Buffer, i64),
    reverse: bool,
    (lasts, _): (Buffer, i64),
) -> Result<(), Diagnostic> {
    let [outer, _, inner] = scan.extents;
    let total = outer * (n - GROUP) * inner;
    if total <= 0 {
        return Ok(());
    }
    let dtype = low.program.buffers[b].dtype;
    let mut emit = begun(low, out);
    let (id, live) = emit.thread(total, THREADS, false);
    emit.leave_unless(live);
    let (vars, thread) = single(id, total);
    let at = coordinates(&thread, &[outer, n - GROUP, inner]);
    let before = [at[0].clone(), at[1].clone().floor_div(GROUP), at[2].clone()];
    inside(low, lasts, &before, &vars)?;
    let left = read(&mut emit, lasts, &At { vars: &vars, coords: &before });
    let place = at[1].clone().plus(GROUP);
    let own = [at[0].clone(), along(place, n, reverse), at[2].clone()];
    let own = lines(low, b, &own, scan);
    inside(low, b, &own, &vars)?;
    let own = At { vars: &vars, coords: &own };
    let x = read(&mut emit, b, &own);
    let joined = emit.combine(scan.monoid, dtype, left, x);
    emit.store(b, &axes(own.coords.len()), joined, &own, None);
    out.launch(&low.homes, emit, blocks_of(total), THREADS, 0)
}

/// Launches packing: a thread for each word.
pub(super) fn pack(
    low: &Lowering,
    out: &mut Out,
    from: Buffer,
    to: Buffer,
) -> Result<(), Diagnostic> {
    let data = &low.program.buffers[to];
    let Storage::Packed(bits) = data.storage else { return Ok(()) };
    let places = volume(&low.program.buffers[from].dims);
    let each = i64::from(32 / u32::from(bits.max(1)));
    let words = (places + each - 1) / each;
    if words == 0 || data.dims.contains(&0) {
        return Ok(());
    }
    let dtype = data.dtype;
    let mut emit = begun(low, out);
    let (id, live) = emit.thread(words, THREADS, false);
    emit.leave_unless(live);
    let (vars, word) = single(id, words);
    let mut all: Option<Reg> = None;
    for k in 0..each {
        let mut own = vars.clone();
        // Past the end the last is read again: what is there is read by nobody.
        let place = emit.below(&mut own, &word.clone().times(each).plus(k), places).place;
        let x = emit.element_of(from, &At { vars: &own, coords: &[place] });
        let x = emit.plain(x, dtype);
        let x = match x.class {
            Class::Long => emit.asm.pure(Class::Word, "cvt.u32.u64", x),
            _ => x,
        };
        let low = emit.asm.pure(Class::Word, "bfe.u32", format_args!("{x}, 0, {bits}"));
        let at = k * i64::from(bits);
        let moved = emit.asm.pure(Class::Word, "shl.b32", format_args!("{low}, {at}"));
        all = Some(match all {
            Some(a) => emit.asm.pure(Class::Word, "or.b32", format_args!("{a}, {moved}")),
            None => moved,
        });
    }
    let address = emit.address(to, &word, 4, &vars, &[]);
    if let Some(all) = all {
        emit.asm.emit(format_args!("st.global.b32 {address}, {all}"));
    }
    out.launch(&low.homes, emit, blocks_of(words), THREADS, 0)
}

/// Launches a scatter whose sums begin in their buffer. A thread owns the places of some range, at some
/// coordinates that are places themselves, and comes by all updates in their order: no two threads
/// write one place, and none is written out of order. Each update is looked at as often as there
/// are ranges.
pub(super) fn scatter(low: &Lowering, out: &mut Out, scatter: &Scatter) -> Result<(), Diagnostic> {
    if volume(&scatter.domain) == 0 {
        return Ok(());
    }
    let data = low.program.buffers[scatter.out].clone();
    let places = volume(&data.dims);
    // Axes of the updates that are axes of the result: threads differ by those.
    let window: Vec<usize> = (0..scatter.domain.len())
        .filter(|&a| scatter.index.contains(&IndexExpr::axis(a)))
        .collect();
    let others: Vec<usize> = (0..scatter.domain.len()).filter(|a| !window.contains(a)).collect();
    let extents = |axes: &[usize]| -> Extents { axes.iter().map(|&a| scatter.domain[a]).collect() };
    let (columns, updates) = (extents(&window), extents(&others));
    let width = volume(&columns);
    // Places of one column: ranges of them go by the rest of the index.
    let turns = volume(&updates);
    let ranges = match turns {
        1 => 1,
        _ => (WRITERS / width).clamp(1, (places / width).max(1)),
    };
    let mut emit = begun(low, out);
    let (id, live) = emit.thread(width * ranges, THREADS, false);
    emit.leave_unless(live);
    let (vars, thread) = single(id, width * ranges);
    let column = coordinates(&thread.clone().modulo(width), &columns);
    let range = thread.floor_div(width);
    let each = (places + ranges - 1) / ranges;
    let program = emit.written(&scatter.program);
    let from = resolved(&range.times(each), &emit.same(&vars), &vars);
    let from = super::place::long(&mut emit.asm, &from, &vars, &[]);
    let to = emit.asm.pure(Class::Long, "add.s64", format_args!("{from}, {each}"));
    if turns >= 1 << 31 {
        return Err(super::lower::internal("a scatter of so many updates has no loop"));
    }
    let (l, turn) = emit.repeat(turns);
    let mut own: Vars = vars.clone();
    let turn = own.push(turn, turns);
    let mut at = vec![IndexExpr::Const(0); scatter.domain.len()];
    for (&a, e) in window.iter().zip(&column) {
        at[a] = e.clone();
    }
    for (&a, e) in others.iter().zip(coordinates(&turn, &updates)) {
        at[a] = e;
    }
    let at = At { vars: &own, coords: &at };
    // Places first: what is read of data for them, then the update of those that are in the range.
    let mut wanted = vec![false; scatter.params.len()];
    let mut mark = |e: &IndexExpr| data_of(e, &mut |p| wanted[p] = true);
    scatter.index.iter().for_each(&mut mark);
    scatter.guards.iter().for_each(|g| mark(&g.expr));
    let (_, data_regs) = emit.places(&scatter.params, &scatter.program, &wanted, &at);
    let element = emit.element(scatter.out, &scatter.index, &at);
    let place = super::place::long(&mut emit.asm, &element, &own, &data_regs);
    let above = emit.asm.pure(Class::Pred, "setp.ge.s64", format_args!("{place}, {from}"));
    let below = emit.asm.pure(Class::Pred, "setp.lt.s64", format_args!("{place}, {to}"));
    let mut here = prim::both(&mut emit.asm, above, below);
    let mut never = false;
    match holds(&mut emit.asm, &scatter.guards, at.coords, at.vars, &data_regs) {
        Truth::When(p) => here = prim::both(&mut emit.asm, here, p),
        Truth::Never => never = true,
        Truth::Always => {}
    }
    if !never {
        emit.when(Some(here), |emit| {
            let (regs, _) = emit.params(&scatter.params, &program, &at, &mut |_, _, _| None);
            let Some(&update) = prim::outputs(&mut emit.asm, &program, &regs).first() else {
                return;
            };
            joined(emit, scatter, &data, place, update);
        });
    }
    emit.again(l);
    out.launch(&low.homes, emit, blocks_of(width * ranges), THREADS, 0)
}

/// Joins an update with its element.
fn joined(
    emit: &mut Emit<'_>,
    scatter: &Scatter,
    data: &adfuse_ir::kernel::BufferData,
    place: Reg,
    update: Reg,
) {
    let base = emit.pointer(scatter.out);
    let args = format!("{place}, {}, {base}", data.dtype.bytes());
    let address = emit.asm.pure(Class::Long, "mad.lo.s64", args);
    let monoid = match scatter.update {
        Update::Add => Some(Monoid::Sum),
        Update::Max => Some(Monoid::Max),
        Update::Min => Some(Monoid::Min),
        Update::Set => None,
    };
    let mut found = update;
    if let Some(monoid) = monoid {
        let dtype = data.dtype;
        let form = if dtype == adfuse_ir::DType::Bool { Class::Word } else { class(dtype) };
        let mut was = emit.asm.fresh(form);
        emit.asm.emit(format_args!("ld.global.{} {was}, [{address}]", memory(dtype)));
        if dtype == adfuse_ir::DType::Bool {
            was = emit.asm.pure(Class::Pred, "setp.ne.s32", format_args!("{was}, 0"));
        }
        found = match (dtype, monoid) {
            // The sum of truth values is what `or` is not: kept apart from the primitives.
            (adfuse_ir::DType::Bool, Monoid::Sum) => {
                emit.asm.pure(Class::Pred, "or.pred", format_args!("{was}, {update}"))
            }
            _ => emit.combine(monoid, dtype, was, update),
        };
    }
    let spelled = match data.dtype {
        adfuse_ir::DType::I8 | adfuse_ir::DType::U8 | adfuse_ir::DType::Bool => "b8",
        d => memory(d),
    };
    let found = emit.plain(found, data.dtype);
    emit.asm.emit(format_args!("st.global.{spelled} [{address}], {found}"));
}

impl Emit<'_> {
    /// The parameters that places are chosen by.
    fn places(
        &mut self,
        params: &[Param],
        program: &adfuse_ir::scalar::ScalarProgram,
        wanted: &[bool],
        at: &At<'_>,
    ) -> (Vec<Option<Reg>>, Vec<super::place::Datum>) {
        // A program that gives just these.
        let mut only = adfuse_ir::scalar::ScalarProgram {
            params: program.params.clone(),
            ..Default::default()
        };
        for (k, _) in wanted.iter().enumerate().filter(|(_, w)| **w) {
            let dtype = program.params[k];
            let op = adfuse_ir::scalar::SOp::Param(k as u32);
            let v =
                only.insts.push(adfuse_ir::scalar::SInst { op, args: Default::default(), dtype });
            only.outputs.push(v);
        }
        self.params(params, &only, at, &mut |_, _, _| None)
    }
}
