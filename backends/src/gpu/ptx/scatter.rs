//! Scatters: updates joined with elements in the row-major order of the updates, whatever the threads do.
//!
//! Few updates are all looked at by every thread, which takes those of its own places. Many are sorted by
//! their places, stably: then those of one place are neighbours in their order, and a thread folds
//! them from left to right.

use super::address::{Datum, Truth, Vars, holds, resolved};
use super::asm::{Class, Reg};
use super::emit::{At, Emit, memory};
use super::entry::{Out, begun, single};
use super::operands::{class, select};
use super::scatter_fold::{fold_rows, join_chains, updated};
use super::sort::sort;
use super::{isel, operands};
use crate::gpu::schedule::index::{coordinates, data_of};
use crate::gpu::schedule::program::GpuSchedule;
use crate::gpu::schedule::scatter::{
    OwnedPlaces, RowFolding, ScatterMethod, ScheduledScatter, SortedUpdates, extents,
};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Scatter, volume};
use adfuse_ir::op::Update;
use adfuse_ir::scalar::{SInst, SOp, ScalarProgram};
use adfuse_ir::{DType, Diagnostic};

/// Launches a scatter whose sums begin in their buffer.
pub(crate) fn scatter(
    s: &GpuSchedule,
    out: &mut Out,
    scheduled: &ScheduledScatter,
) -> Result<(), Diagnostic> {
    let scatter = &scheduled.scatter;
    match &scheduled.method {
        ScatterMethod::Owners(places) => owned(s, out, scatter, places),
        ScatterMethod::Sorted(updates) => {
            choose(s, out, scatter, updates)?;
            sort(s, out, &updates.sort)?;
            fold_rows(s, out, scatter, updates)?;
            join_chains(s, out, scatter, updates)
        }
    }
}

/// Launches a thread for each update of a column, which finds its row: one past the last where it is left out.
fn choose(
    s: &GpuSchedule,
    out: &mut Out,
    scatter: &Scatter,
    sorted: &SortedUpdates,
) -> Result<(), Diagnostic> {
    let SortedUpdates { columns, folding: RowFolding { grid, .. }, keys, .. } = sorted;
    let (updates, rows) = (columns.updates(), columns.rows());
    let mut emit = begun(s, out);
    let (id, live) = emit.thread(updates, grid.threads, false);
    emit.leave_unless(live);
    let (vars, update) = single(id, updates);
    let none: Vec<IndexExpr> = columns.axes.iter().map(|_| IndexExpr::Const(0)).collect();
    let coords = columns.update(&none, &update);
    let at = At { vars: &vars, coords: &coords };
    let data = emit.chosen(scatter, &at);
    let mut row = IndexExpr::Const(0);
    for (&d, &n) in columns.row_axes.iter().zip(&columns.row_extents) {
        row = row.times(n).sum(scatter.index[d].clone());
    }
    let row = resolved(&row, &coords, &vars);
    let row = crate::gpu::ptx::address::value(&mut emit.asm, &row, &vars, &data);
    let mut row = match row.class {
        Class::Long => emit.asm.pure(Class::Word, "cvt.u32.u64", row),
        _ => row,
    };
    let none = emit.asm.word(rows);
    match holds(&mut emit.asm, &scatter.guards, at.coords, at.vars, &data) {
        Truth::When(p) => row = select(&mut emit.asm, p, row, none),
        Truth::Never => row = none,
        Truth::Always => {}
    }
    let place = [IndexExpr::Const(0), update];
    emit.store(
        *keys,
        &crate::gpu::schedule::shape::axes(2),
        row,
        &At { vars: &vars, coords: &place },
        None,
    );
    out.launch(&s.homes, emit, grid.blocks(updates), *grid, 0)
}

/// Each thread owns a range of places, and applies the updates of these places in order while it reads all updates. So no two
/// threads write one place, and no place is written out of order. Every update is read once for each range.
fn owned(
    s: &GpuSchedule,
    out: &mut Out,
    scatter: &Scatter,
    owned: &OwnedPlaces,
) -> Result<(), Diagnostic> {
    let &OwnedPlaces { grid, ranges, ref window, ref others } = owned;
    let data = s.program.buffers[scatter.out].clone();
    let places = volume(&data.dims);
    let (columns, updates) = (extents(scatter, window), extents(scatter, others));
    // Places of one column: ranges of them go by the rest of the index.
    let (width, turns) = (volume(&columns), volume(&updates));
    let mut emit = begun(s, out);
    let (id, live) = emit.thread(width * ranges, grid.threads, false);
    emit.leave_unless(live);
    let (vars, thread) = single(id, width * ranges);
    let column = coordinates(&thread.clone().modulo(width), &columns);
    let range = thread.floor_div(width);
    let each = (places + ranges - 1) / ranges;
    let program = emit.written(&scatter.program);
    let from = resolved(&range.times(each), &emit.same(&vars), &vars);
    let from = crate::gpu::ptx::address::long(&mut emit.asm, &from, &vars, &[]);
    let to = emit.asm.pure(Class::Long, "add.s64", format_args!("{from}, {each}"));
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
    let data_regs = emit.chosen(scatter, &at);
    let element = emit.element(scatter.out, &scatter.index, &at);
    let place = crate::gpu::ptx::address::long(&mut emit.asm, &element, &own, &data_regs);
    let above = emit.asm.pure(Class::Pred, "setp.ge.s64", format_args!("{place}, {from}"));
    let below = emit.asm.pure(Class::Pred, "setp.lt.s64", format_args!("{place}, {to}"));
    let mut here = operands::both(&mut emit.asm, above, below);
    let mut never = false;
    match holds(&mut emit.asm, &scatter.guards, at.coords, at.vars, &data_regs) {
        Truth::When(p) => here = operands::both(&mut emit.asm, here, p),
        Truth::Never => never = true,
        Truth::Always => {}
    }
    if !never {
        emit.when(Some(here), |emit| {
            let (regs, _) = emit.params(&scatter.params, &program, &at, &mut |_, _, _| None);
            let Some(&update) = isel::outputs(&mut emit.asm, &program, &regs).first() else {
                return;
            };
            joined(emit, scatter, &data, place, update);
        });
    }
    emit.again(l);
    out.launch(&s.homes, emit, grid.blocks(width * ranges), grid, 0)
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
    let mut found = update;
    if scatter.update != Update::Set {
        let dtype = data.dtype;
        let form = if dtype == DType::Bool { Class::Word } else { class(dtype) };
        let mut was = emit.asm.fresh(form);
        emit.asm.emit(format_args!("ld.global.{} {was}, [{address}]", memory(dtype)));
        if dtype == DType::Bool {
            was = emit.asm.pure(Class::Pred, "setp.ne.s32", format_args!("{was}, 0"));
        }
        found = updated(emit, scatter.update, dtype, was, update);
    }
    let spelled = match data.dtype {
        DType::I8 | DType::U8 | DType::Bool => "b8",
        d => memory(d),
    };
    let found = emit.plain(found, data.dtype);
    emit.asm.emit(format_args!("st.global.{spelled} [{address}], {found}"));
}

impl Emit<'_> {
    /// The parameters that places are chosen by, in a program that gives just these.
    fn chosen(&mut self, scatter: &Scatter, at: &At<'_>) -> Vec<Datum> {
        let mut wanted = vec![false; scatter.params.len()];
        let mut mark = |e: &IndexExpr| data_of(e, &mut |p| wanted[p] = true);
        scatter.index.iter().for_each(&mut mark);
        scatter.guards.iter().for_each(|g| mark(&g.expr));
        let params = scatter.program.params.clone();
        let mut only = ScalarProgram { params, ..ScalarProgram::default() };
        for (k, _) in (0u32..).zip(&wanted).filter(|(_, w)| **w) {
            let dtype = only.params[k as usize];
            let inst = SInst { op: SOp::Param(k), args: Default::default(), dtype };
            let v = only.insts.push(inst);
            only.outputs.push(v);
        }
        self.params(&scatter.params, &only, at, &mut |_, _, _| None).1
    }
}
