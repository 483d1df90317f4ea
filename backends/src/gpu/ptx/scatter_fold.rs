//! Folds of sorted updates: those of one row are neighbours in their order, and threads join them with the elements of the row.
//!
//! Where their order is free, the updates of a row may be several chains, each with a thread. A second launch joins what these
//! leave.

use super::address::Vars;
use super::asm::{Class, Reg};
use super::elementwise::Neighbours;
use super::emit::{At, Emit};
use super::entry::{Out, begun, single};
use super::operands::{self, select};
use crate::gpu::schedule::program::GpuSchedule;
use crate::gpu::schedule::scatter::SortedUpdates;
use crate::gpu::schedule::shape::axes;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Scatter, Stage, volume};
use adfuse_ir::op::{Monoid, Update};
use adfuse_ir::{DType, Diagnostic};

/// A launch whose threads each have a sorted update, or a chain of them, and some neighbouring columns.
struct SortedLaunch<'a, 'p> {
    emit: Emit<'p>,
    by_row: &'a SortedUpdates,
    vars: Vars,
    /// The columns of a thread, as coordinates.
    own: Vec<Vec<IndexExpr>>,
    /// The same as numbers.
    numbers: Vec<IndexExpr>,
    /// What the thread has beside columns: the number of an update, or of a chain.
    item: IndexExpr,
}

impl<'a, 'p> SortedLaunch<'a, 'p> {
    /// Each of some items has threads for all columns.
    fn new(
        s: &'p GpuSchedule,
        out: &Out,
        by_row: &'a SortedUpdates,
        items: i64,
    ) -> SortedLaunch<'a, 'p> {
        let SortedUpdates { columns, folding, .. } = by_row;
        let groups = volume(&columns.extents) / folding.width;
        let total = items.saturating_mul(groups);
        let mut emit = begun(s, out);
        let (id, live) = emit.thread(total, folding.grid.threads, false);
        emit.leave_unless(live);
        let (vars, thread) = single(id, total);
        let (item, group) = (thread.clone().floor_div(groups), thread.modulo(groups));
        let width = folding.width;
        let own = (0..width).map(|j| columns.column(&group, width, j)).collect();
        let numbers = (0..width).map(|j| group.clone().times(width).plus(j)).collect();
        SortedLaunch { emit, by_row, vars, own, numbers, item }
    }

    /// An element of what was sorted, at a place that is among the variables.
    fn in_order(&mut self, b: Buffer, vars: &Vars, place: &IndexExpr) -> Reg {
        self.emit.element_of(b, &At { vars, coords: &[IndexExpr::Const(0), place.clone()] })
    }

    /// The row of the sorted update of a number.
    fn row_at(&mut self, number: Reg) -> Reg {
        let mut vars = self.vars.clone();
        let place = vars.push(number, self.by_row.columns.updates());
        self.in_order(self.by_row.sorted, &vars, &place)
    }

    /// Whether the sorted update of a number is of another row than the one before it.
    fn begins_row(&mut self, number: Reg, row: Reg) -> Reg {
        let asm = &mut self.emit.asm;
        // The one before, which the very first does not have.
        let begins = asm.pure(Class::Pred, "setp.eq.s32", format_args!("{number}, 0"));
        let back = asm.pure(Class::Word, "sub.s32", format_args!("{number}, 1"));
        let back = asm.pure(Class::Word, "max.s32", format_args!("{back}, 0"));
        let before = self.row_at(back);
        let asm = &mut self.emit.asm;
        let other = asm.pure(Class::Pred, "setp.ne.u32", format_args!("{before}, {row}"));
        asm.pure(Class::Pred, "or.pred", format_args!("{begins}, {other}"))
    }

    /// Whether a row is one: updates that are left out are sorted behind all others.
    fn is_row(&mut self, row: Reg) -> Reg {
        let rows = self.by_row.columns.rows();
        self.emit.asm.pure(Class::Pred, "setp.lt.u32", format_args!("{row}, {rows}"))
    }

    /// The elements of a row in the thread's columns.
    fn elements(&mut self, row: Reg) -> Neighbours {
        let columns = &self.by_row.columns;
        let wide = row_number(&mut self.emit, row, columns.rows());
        let mut vars = self.vars.clone();
        let place = vars.push(wide, columns.rows());
        let coords = self.own.iter().map(|column| columns.element(column, &place)).collect();
        Neighbours { vars, coords }
    }

    /// What the chain of a number leaves in the thread's columns.
    fn left_by(&self, chain: Reg) -> Neighbours {
        let mut vars = self.vars.clone();
        let SortedUpdates { columns, folding, .. } = self.by_row;
        let place = vars.push(chain, folding.chains(columns.updates()));
        let coords = self.numbers.iter().map(|n| vec![place.clone(), n.clone()]).collect();
        Neighbours { vars, coords }
    }

    fn launch(self, s: &GpuSchedule, out: &mut Out, items: i64) -> Result<(), Diagnostic> {
        let SortedUpdates { columns, folding, .. } = self.by_row;
        let total = items.saturating_mul(volume(&columns.extents) / folding.width);
        out.launch(&s.homes, self.emit, folding.grid.blocks(total), folding.grid, 0)
    }
}

/// Launches a thread for each sorted update and some neighbouring columns. Where the update is the first of
/// its row, the thread joins those of that row with the elements, in their order: all, or those of its chain. Where the update
/// is the first of a chain amid a row, the thread leaves the fold of what the chain has of that row.
pub(super) fn fold_rows(
    s: &GpuSchedule,
    out: &mut Out,
    scatter: &Scatter,
    by_row: &SortedUpdates,
) -> Result<(), Diagnostic> {
    let &SortedUpdates { ref columns, folding, order, .. } = by_row;
    let updates = columns.updates();
    let data = &s.program.buffers[scatter.out];
    let mut here = SortedLaunch::new(s, out, by_row, updates);
    let (vars, first) = (here.vars.clone(), here.item.clone());
    let row = here.in_order(by_row.sorted, &vars, &first);
    let number = here.emit.number(&first, &vars);
    let begins = here.begins_row(number, row);
    let some = here.is_row(row);
    let mut leads = begins;
    let mut end = None;
    if folding.chain > 0 {
        let asm = &mut here.emit.asm;
        let place = format!("{number}, {}", folding.chain - 1);
        let place = asm.pure(Class::Word, "and.b32", place);
        let cut = asm.pure(Class::Pred, "setp.eq.s32", format_args!("{place}, 0"));
        leads = asm.pure(Class::Pred, "or.pred", format_args!("{begins}, {cut}"));
        let last = asm.pure(Class::Word, "or.b32", format_args!("{number}, {}", folding.chain - 1));
        let next = asm.pure(Class::Word, "add.s32", format_args!("{last}, 1"));
        end = Some(asm.pure(Class::Word, "min.s32", format_args!("{next}, {updates}")));
    }
    let leads = operands::both(&mut here.emit.asm, leads, some);
    here.emit.leave_unless(Some(leads));
    let elements = here.elements(row);
    let begun = here.emit.read_row(scatter.out, &elements);
    let own_update = here.in_order(order, &vars, &first);
    // The first, which most rows have alone.
    let found = update_values(&mut here, scatter, own_update);
    let mut sums = Vec::new();
    for (was, update) in begun.into_iter().zip(found) {
        let mut sum = updated(&mut here.emit, scatter.update, data.dtype, was, update);
        if folding.chain > 0 {
            sum = select(&mut here.emit.asm, begins, sum, update);
        }
        sums.push(here.emit.asm.copied(sum));
    }
    let end = end.map_or_else(|| updates.to_string(), |end| end.to_string());
    let at = ChainPlace { row, number, own_update, end };
    fold_rest(&mut here, scatter, at, &sums);
    let index = axes(data.dims.len());
    match by_row.partial {
        None => here.emit.store_row(scatter.out, &index, &sums, &elements, None),
        Some(partial) => {
            here.emit.store_row(scatter.out, &index, &sums, &elements, Some(begins));
            let asm = &mut here.emit.asm;
            let amid = asm.pure(Class::Pred, "not.pred", begins);
            let shift = folding.chain.trailing_zeros();
            let chain = asm.pure(Class::Word, "shr.u32", format_args!("{number}, {shift}"));
            let left = here.left_by(chain);
            let index = axes(2);
            here.emit.store_row(partial, &index, &sums, &left, Some(amid));
        }
    }
    here.launch(s, out, updates)
}

/// The values of an update in the thread's columns.
fn update_values(here: &mut SortedLaunch<'_, '_>, scatter: &Scatter, update: Reg) -> Vec<Reg> {
    let columns = &here.by_row.columns;
    let stage = Stage {
        params: scatter.params.clone(),
        program: scatter.program.clone(),
        ..Stage::default()
    };
    let emit = &mut here.emit;
    let program = emit.written(&stage.program);
    let mut vars = here.vars.clone();
    let update = vars.push(update, columns.updates());
    let coords = here.own.iter().map(|column| columns.update(column, &update)).collect();
    let n = Neighbours { vars, coords };
    let loaded = emit.loaded(&stage, &n);
    let mut values = Vec::new();
    for (j, coords) in n.coords.iter().enumerate() {
        let at = At { vars: &n.vars, coords };
        values.extend(emit.outputs(&stage, &program, &at, &mut |_, k, _| {
            loaded.get(&k).and_then(|regs| regs.get(j)).copied()
        }));
    }
    values
}

/// Where a thread's chain is.
struct ChainPlace {
    row: Reg,
    /// Its first update among the sorted ones, and that update.
    number: Reg,
    own_update: Reg,
    /// The first sorted update after the chain, as an operand.
    end: String,
}

/// Joins the updates of a row after the first one.
fn fold_rest(here: &mut SortedLaunch<'_, '_>, scatter: &Scatter, at: ChainPlace, sums: &[Reg]) {
    let ChainPlace { row, number, own_update, end } = at;
    let SortedUpdates { columns, folding, order, .. } = here.by_row;
    let (updates, inflight) = (columns.updates(), folding.inflight);
    let dtype = here.emit.program.buffers[scatter.out].dtype;
    let next = here.emit.asm.pure(Class::Word, "add.s32", format_args!("{number}, 1"));
    let next = here.emit.asm.copied(next);
    // Whether the update so far from the next is of the row, and which it is.
    let of_row = |here: &mut SortedLaunch<'_, '_>, k: i64| {
        let asm = &mut here.emit.asm;
        let number = asm.pure(Class::Word, "add.s32", format_args!("{next}, {k}"));
        let inside = asm.pure(Class::Pred, "setp.lt.s32", format_args!("{number}, {end}"));
        let number = asm.pure(Class::Word, "min.s32", format_args!("{number}, {}", updates - 1));
        let mut vars = here.vars.clone();
        let place = vars.push(number, updates);
        let key = here.in_order(here.by_row.sorted, &vars, &place);
        let same = here.emit.asm.pure(Class::Pred, "setp.eq.u32", format_args!("{key}, {row}"));
        (operands::both(&mut here.emit.asm, inside, same), here.in_order(*order, &vars, &place))
    };
    let (label, done) = (here.emit.asm.label(), here.emit.asm.label());
    here.emit.asm.open();
    let (more, _) = of_row(here, 0);
    here.emit.asm.close();
    here.emit.asm.emit(format_args!("@!{more} bra {done}"));
    here.emit.asm.turn(&label);
    here.emit.asm.open();
    // All loads, then what they are joined to; past the end of the row the first is read again.
    let mut found = Vec::new();
    for k in 0..inflight {
        let (valid, update) = of_row(here, k);
        let update = select(&mut here.emit.asm, valid, update, own_update);
        found.push((valid, update_values(here, scatter, update)));
    }
    let mut now = sums.to_vec();
    let mut more = more;
    for (valid, values) in found {
        for (now, update) in now.iter_mut().zip(values) {
            let joined = updated(&mut here.emit, scatter.update, dtype, *now, update);
            *now = select(&mut here.emit.asm, valid, joined, *now);
        }
        more = valid;
    }
    let asm = &mut here.emit.asm;
    sums.iter().zip(&now).for_each(|(&sum, &now)| asm.set(sum, now));
    asm.emit(format_args!("add.s32 {next}, {next}, {inflight}"));
    asm.close();
    asm.emit(format_args!("@{more} bra {label}"));
    asm.place(&done);
}

/// Launches a thread for each chain and some neighbouring columns, where rows are divided among chains. Where the chain is the
/// first that goes on with a row, the thread joins what it and the next ones left of the row with the elements.
pub(super) fn join_chains(
    s: &GpuSchedule,
    out: &mut Out,
    scatter: &Scatter,
    by_row: &SortedUpdates,
) -> Result<(), Diagnostic> {
    let &SortedUpdates { ref columns, folding, partial, .. } = by_row;
    let Some(partial) = partial else { return Ok(()) };
    let (chains, each) = (folding.chains(columns.updates()), folding.chain);
    let data = &s.program.buffers[scatter.out];
    let mut here = SortedLaunch::new(s, out, by_row, chains);
    let chain = here.emit.number(&here.item.clone(), &here.vars.clone());
    let first = |here: &mut SortedLaunch<'_, '_>, chain: Reg| {
        here.emit.asm.pure(Class::Word, "mul.lo.s32", format_args!("{chain}, {each}"))
    };
    let number = first(&mut here, chain);
    let row = here.row_at(number);
    let some = here.is_row(row);
    let begins = here.begins_row(number, row);
    // The row began in the chain before: that chain did not go on with it itself.
    let back = here.emit.asm.pure(Class::Word, "sub.s32", format_args!("{number}, {each}"));
    let back = here.emit.asm.pure(Class::Word, "max.s32", format_args!("{back}, 0"));
    let before = here.row_at(back);
    let began = here.begins_row(back, before);
    let asm = &mut here.emit.asm;
    let other = asm.pure(Class::Pred, "setp.ne.u32", format_args!("{before}, {row}"));
    let began = asm.pure(Class::Pred, "or.pred", format_args!("{began}, {other}"));
    let amid = asm.pure(Class::Pred, "not.pred", begins);
    let leads = operands::both(asm, began, amid);
    let leads = operands::both(asm, leads, some);
    here.emit.leave_unless(Some(leads));
    let elements = here.elements(row);
    let begun = here.emit.read_row(scatter.out, &elements);
    let sums: Vec<Reg> = begun.into_iter().map(|r| here.emit.asm.copied(r)).collect();
    let at = here.emit.asm.copied(chain);
    let label = here.emit.asm.label();
    here.emit.asm.turn(&label);
    here.emit.asm.open();
    let left = here.left_by(at);
    let found = here.emit.read_row(partial, &left);
    for (&sum, x) in sums.iter().zip(found) {
        let joined = updated(&mut here.emit, scatter.update, data.dtype, sum, x);
        here.emit.asm.set(sum, joined);
    }
    let asm = &mut here.emit.asm;
    asm.emit(format_args!("add.s32 {at}, {at}, 1"));
    let inside = asm.pure(Class::Pred, "setp.lt.s32", format_args!("{at}, {chains}"));
    let number = asm.pure(Class::Word, "min.s32", format_args!("{at}, {}", chains - 1));
    let number = first(&mut here, number);
    let next = here.row_at(number);
    let asm = &mut here.emit.asm;
    let same = asm.pure(Class::Pred, "setp.eq.u32", format_args!("{next}, {row}"));
    let more = operands::both(asm, inside, same);
    asm.close();
    asm.emit(format_args!("@{more} bra {label}"));
    let index = axes(data.dims.len());
    here.emit.store_row(scatter.out, &index, &sums, &elements, None);
    here.launch(s, out, chains)
}

/// A row's number as index arithmetic takes it: with a sign, of 64 bits where 31 do not do.
fn row_number(emit: &mut Emit<'_>, row: Reg, rows: i64) -> Reg {
    match rows <= i64::from(i32::MAX) {
        true => row,
        false => emit.asm.pure(Class::Long, "cvt.u64.u32", row),
    }
}

/// An element after an update.
pub(super) fn updated(emit: &mut Emit<'_>, update: Update, dtype: DType, was: Reg, x: Reg) -> Reg {
    let Some(monoid) = update.monoid() else { return x };
    match (dtype, monoid) {
        // The sum of truth values is what `or` is not: kept apart from the primitives.
        (DType::Bool, Monoid::Sum) => {
            emit.asm.pure(Class::Pred, "or.pred", format_args!("{was}, {x}"))
        }
        _ => emit.combine(monoid, dtype, was, x),
    }
}
