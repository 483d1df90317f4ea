//! Programs to text, in the one canonical form.

use crate::index::{Guard, IndexExpr};
use crate::kernel::buffer::{Buffer, BufferData, Role, Space, Storage};
use crate::kernel::program::{Contract, ExchangeKind, Feed, Library, Program, Scatter, Step};
use crate::kernel::stage::{Kernel, Operand, Param, Piece, Run, Schedule, Sink, Stage};
use crate::literal::Literal;
use crate::op::Op;
use crate::scalar::{SVal, ScalarProgram};
use std::fmt::{Display, Formatter, Result};

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "program @{} {{", self.name)?;
        for (_, data) in self.buffers.iter() {
            buffer(f, data)?;
        }
        for step in &self.steps {
            match step {
                Step::Kernel(kernel) => self.kernel(f, "  ", kernel)?,
                Step::Bundle(bundle) => {
                    writeln!(f, "  bundle @{} {{", bundle.name)?;
                    bundle.kernels.iter().try_for_each(|k| self.kernel(f, "    ", k))?;
                    writeln!(f, "  }}")?;
                }
                Step::Contract(step) => self.contract(f, step)?,
                Step::Attend(step) => {
                    let [outputs, inputs] = [&step.outputs, &step.inputs].map(|b| self.names(b));
                    writeln!(f, "  {outputs} = {}({inputs}){}", step.op().name(), step.reach)?;
                }
                Step::Scatter(step) => self.scatter(f, step)?,
                Step::Argsort(step) => {
                    let (out, from) = (self.name(step.out), self.name(step.from));
                    write!(f, "  {out} = argsort {from} axis {}", step.axis)?;
                    writeln!(f, "{}", if step.descending { " descending" } else { "" })?;
                }
                Step::Library(step) => {
                    let [outputs, inputs] = [&step.outputs, &step.inputs].map(|b| self.names(b));
                    write!(f, "  {outputs} = library @{}({inputs})", step.function)?;
                    let Library { scratch, operations, bytes, .. } = *step;
                    let facts =
                        [("scratch", scratch), ("operations", operations), ("bytes", bytes)];
                    for (word, n) in facts.into_iter().filter(|(_, n)| *n > 0) {
                        write!(f, " {word} {n}")?;
                    }
                    writeln!(f)?;
                }
                Step::Transfer(step) => {
                    writeln!(f, "  {} = transfer {}", self.name(step.to), self.name(step.from))?;
                }
                Step::Exchange(step) => {
                    write!(f, "  {} = {}", self.name(step.to), step.op().name())?;
                    step.from.iter().try_for_each(|&b| write!(f, " {}", self.name(b)))?;
                    if let ExchangeKind::Broadcast { root } = step.kind {
                        write!(f, " root {root}")?;
                    }
                    writeln!(f, " over @{} ranks {}", step.over, step.ranks)?;
                }
                Step::Print(step) => {
                    let (kind, from) = (Op::DebugPrint.name(), self.name(step.from));
                    writeln!(f, "  {kind} {} {from}", step.quoted())?;
                }
                Step::Loop(step) => self.repeated(f, step)?,
                Step::Branch(step) => self.branched(f, step)?,
            }
        }
        match self.outputs.is_empty() {
            true => writeln!(f, "  return\n}}"),
            false => writeln!(f, "  return {}\n}}", self.names(&self.outputs)),
        }
    }
}

impl Program {
    pub(super) fn name(&self, b: Buffer) -> String {
        match self.buffers.get(b) {
            Some(data) => format!("%{}", data.name),
            // Not well formed, but it prints: people look at wrong programs too.
            None => b.to_string(),
        }
    }

    pub(super) fn names(&self, buffers: &[Buffer]) -> String {
        buffers.iter().map(|&b| self.name(b)).collect::<Vec<_>>().join(", ")
    }

    /// A kernel behind this much space.
    fn kernel(&self, f: &mut Formatter<'_>, space: &str, kernel: &Kernel) -> Result {
        writeln!(f, "{space}kernel @{} {} {{", kernel.name, list(&kernel.domain))?;
        let inner = format!("{space}  ");
        for (row, dtype) in kernel.rows.iter() {
            writeln!(f, "{inner}row {row}: {dtype}")?;
        }
        for (tile, data) in kernel.tiles.iter() {
            writeln!(f, "{inner}tile {tile}: {}{}", data.dtype, list(&data.dims))?;
        }
        schedule(f, &inner, &kernel.schedule)?;
        for stage in &kernel.stages {
            writeln!(f, "{inner}stage {} {{", list(&stage.axes))?;
            self.stage(f, &inner, kernel.domain.len(), stage)?;
        }
        writeln!(f, "{space}}}")
    }

    /// What is inside of a stage's braces, and the one that closes it.
    fn stage(&self, f: &mut Formatter<'_>, indent: &str, first: usize, stage: &Stage) -> Result {
        let inner = format!("{indent}  ");
        self.params(f, &inner, &stage.params, &stage.program)?;
        for (sink, v) in stage.sinks.iter().zip(&stage.program.outputs) {
            f.write_str(&inner)?;
            self.sink(f, &inner, first, sink, *v)?;
        }
        writeln!(f, "{indent}}}")
    }

    fn params(
        &self,
        f: &mut Formatter<'_>,
        indent: &str,
        params: &[Param],
        program: &ScalarProgram,
    ) -> Result {
        for (k, param) in params.iter().enumerate() {
            write!(f, "{indent}p{k} = ")?;
            match param {
                Param::Load(pieces) => {
                    write!(f, "load ")?;
                    for (k, piece) in pieces.iter().enumerate() {
                        write!(f, "{}", if k > 0 { " else " } else { "" })?;
                        self.piece(f, piece)?;
                    }
                }
                Param::Coord(e) => write!(f, "coord {e}")?,
                Param::Row(row) => write!(f, "{row}")?,
                Param::Tile(tile) => write!(f, "{tile}")?,
                Param::Sum => f.write_str("sum")?,
            }
            writeln!(f)?;
        }
        for (v, inst) in program.insts.iter() {
            writeln!(f, "{indent}{v} = {inst}")?;
        }
        Ok(())
    }

    fn piece(&self, f: &mut Formatter<'_>, piece: &Piece) -> Result {
        match piece.from {
            Operand::Buffer(b) => write!(f, "{}{}", self.name(b), list(&piece.index))?,
            Operand::Literal(l) => literal(f, l)?,
        }
        guards(f, &piece.guards)
    }

    /// Where a stage stores the sum it follows, when it does just that.
    fn stored<'s>(&self, then: &'s Stage) -> Option<(Buffer, &'s [IndexExpr])> {
        let [Sink::Store { buffer, index }] = then.sinks.as_slice() else { return None };
        let sum = *then.program.params.first()?;
        let data = self.buffers.get(*buffer)?;
        let plain = Stage::storing(sum, *buffer, data.dtype, index.clone());
        (*then == plain).then_some((*buffer, index.as_slice()))
    }

    /// A sink of a stage whose own axes follow these many of the domain.
    fn sink(
        &self,
        f: &mut Formatter<'_>,
        indent: &str,
        first: usize,
        sink: &Sink,
        v: SVal,
    ) -> Result {
        // Axes have the names that index expressions know them by.
        match sink {
            Sink::Store { buffer, index } => {
                writeln!(f, "{}{} = store {v}", self.name(*buffer), list(index))
            }
            Sink::Reduce { monoid, runs, into } => {
                write!(f, "{into} = reduce.{} {v}", monoid.name())?;
                runs.iter().try_for_each(|run| axes(f, run, first))?;
                writeln!(f)
            }
            Sink::Fold { monoid, runs, then } => {
                let stored = self.stored(then);
                if let Some((buffer, index)) = stored {
                    write!(f, "{}{} = ", self.name(buffer), list(index))?;
                }
                write!(f, "fold.{} {v}", monoid.name())?;
                runs.iter().try_for_each(|run| axes(f, run, 0))?;
                if stored.is_some() {
                    return writeln!(f);
                }
                writeln!(f, " {{")?;
                self.stage(f, indent, first, then)
            }
            Sink::Scan { monoid, axis, reverse, into } => {
                let along = first + usize::from(*axis);
                let reverse = if *reverse { " reverse" } else { "" };
                writeln!(f, "{into} = scan.{} {v} d{along}{reverse}", monoid.name())
            }
            Sink::Keep(tile) => writeln!(f, "{tile} = keep {v}"),
            Sink::Leave(row) => writeln!(f, "{row} = leave {v}"),
        }
    }

    fn contract(&self, f: &mut Formatter<'_>, step: &Contract) -> Result {
        writeln!(f, "  contract @{} {{", step.name)?;
        for m in &step.members {
            let [batch, rows, cols, depth] =
                [&m.batch, &m.rows, &m.cols, &m.depth].map(|e| list(e));
            write!(f, "    member batch {batch} rows {rows} cols {cols} depth {depth}")?;
            writeln!(f, " sum {} {{", m.sum)?;
            for (word, feed, _) in m.feeds() {
                self.feed(f, "      ", word, feed)?;
            }
            writeln!(f, "      then {{")?;
            self.stage(f, "      ", m.result().len(), &m.then)?;
            writeln!(f, "    }}")?;
        }
        writeln!(f, "  }}")
    }

    fn feed(&self, f: &mut Formatter<'_>, indent: &str, word: &str, feed: &Feed) -> Result {
        writeln!(f, "{indent}{word} {{")?;
        self.params(f, &format!("{indent}  "), &feed.params, &feed.program)?;
        for v in &feed.program.outputs {
            writeln!(f, "{indent}  out {v}")?;
        }
        writeln!(f, "{indent}}}")
    }

    fn scatter(&self, f: &mut Formatter<'_>, step: &Scatter) -> Result {
        write!(f, "  {} = scatter ", self.name(step.out))?;
        match step.from {
            Operand::Buffer(b) => write!(f, "{}", self.name(b))?,
            Operand::Literal(l) => literal(f, l)?,
        }
        writeln!(f, " {} {{", list(&step.domain))?;
        self.params(f, "    ", &step.params, &step.program)?;
        for v in &step.program.outputs {
            write!(f, "    {} = {} {v}", list(&step.index), step.update.name())?;
            guards(f, &step.guards)?;
            writeln!(f)?;
        }
        writeln!(f, "  }}")
    }
}

/// A buffer's declaration.
fn buffer(f: &mut Formatter<'_>, data: &BufferData) -> Result {
    let role = match &data.role {
        Role::Input => "input",
        Role::Output => "output",
        Role::Temp => "temp",
        Role::Constant(_) => "constant",
    };
    write!(f, "  {role} %{}: {}{}", data.name, data.dtype, list(&data.dims))?;
    match data.storage {
        Storage::Plain => {}
        Storage::Packed(1) => f.write_str(" as b1")?,
        Storage::Packed(bits) => write!(f, " as u{bits}")?,
    }
    if let Some(strides) = &data.strides {
        write!(f, " strides {}", list(strides))?;
    }
    if data.space == Space::Host {
        f.write_str(" in host")?;
    }
    if data.role == Role::Input && data.donated {
        f.write_str(" donated")?;
    }
    if let Role::Constant(values) = &data.role {
        write!(f, " = {}", list(values))?;
    }
    writeln!(f)
}

/// A kernel's schedule, where it says anything.
fn schedule(f: &mut Formatter<'_>, space: &str, s: &Schedule) -> Result {
    if *s == Schedule::default() {
        return Ok(());
    }
    write!(f, "{space}schedule")?;
    if !s.order.is_empty() {
        let names: Vec<String> = s.order.iter().map(|a| format!("d{a}")).collect();
        write!(f, " order({})", names.join(", "))?;
    }
    if !s.tiles.is_empty() {
        let tiles: Vec<String> = s.tiles.iter().map(i64::to_string).collect();
        write!(f, " tiles({})", tiles.join(", "))?;
    }
    if let Some(axis) = s.vector {
        write!(f, " vector d{axis}")?;
    }
    writeln!(f)
}

fn axes(f: &mut Formatter<'_>, run: &Run, first: usize) -> Result {
    write!(f, " {}(", run.order.name())?;
    for (k, &a) in run.axes.iter().enumerate() {
        write!(f, "{}d{}", if k > 0 { ", " } else { "" }, first + usize::from(a))?;
    }
    f.write_str(")")
}

fn literal(f: &mut Formatter<'_>, l: Literal) -> Result {
    write!(f, "{}({l})", l.dtype())
}

fn guards(f: &mut Formatter<'_>, guards: &[Guard]) -> Result {
    for (k, g) in guards.iter().enumerate() {
        let word = if k > 0 { "and" } else { "when" };
        write!(f, " {word} {} in [{}, {})", g.expr, g.range.start, g.range.end)?;
    }
    Ok(())
}

/// `[a, b]`
fn list<T: Display>(items: &[T]) -> String {
    let shown: Vec<String> = items.iter().map(T::to_string).collect();
    format!("[{}]", shown.join(", "))
}
