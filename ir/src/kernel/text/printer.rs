//! Programs to text, in the one canonical form.

use crate::index::Guard;
use crate::kernel::program::{Buffer, Contract, Program, Role, Scatter, Step};
use crate::kernel::stage::{Kernel, Operand, Param, Piece, Run, Sink};
use crate::literal::Literal;
use crate::scalar::{SVal, ScalarProgram};
use std::fmt::{Display, Formatter, Result};

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "program @{} {{", self.name)?;
        for (_, data) in self.buffers.iter() {
            let role = match &data.role {
                Role::Input => "input",
                Role::Output => "output",
                Role::Temp => "temp",
                Role::Constant(_) => "constant",
            };
            write!(f, "  {role} %{}: {}{}", data.name, data.dtype, list(&data.dims))?;
            if let Role::Constant(values) = &data.role {
                write!(f, " = {}", list(values))?;
            }
            writeln!(f)?;
        }
        for step in &self.steps {
            match step {
                Step::Kernel(kernel) => self.kernel(f, kernel)?,
                Step::Contract(step) => self.contract(f, step)?,
                Step::Scatter(step) => self.scatter(f, step)?,
            }
        }
        write!(f, "  return")?;
        for (k, &b) in self.outputs.iter().enumerate() {
            write!(f, "{} {}", if k > 0 { "," } else { "" }, self.name(b))?;
        }
        writeln!(f, "\n}}")
    }
}

impl Program {
    fn name(&self, b: Buffer) -> String {
        match self.buffers.get(b) {
            Some(data) => format!("%{}", data.name),
            // Not well formed, but it prints: people look at wrong programs too.
            None => b.to_string(),
        }
    }

    fn kernel(&self, f: &mut Formatter<'_>, kernel: &Kernel) -> Result {
        writeln!(f, "  kernel @{} {} {{", kernel.name, list(&kernel.domain))?;
        for (row, dtype) in kernel.rows.iter() {
            writeln!(f, "    row {row}: {dtype}")?;
        }
        for (tile, data) in kernel.tiles.iter() {
            writeln!(f, "    tile {tile}: {}{}", data.dtype, list(&data.dims))?;
        }
        for stage in &kernel.stages {
            writeln!(f, "    stage {} {{", list(&stage.axes))?;
            self.params(f, "      ", &stage.params, &stage.program)?;
            for (sink, v) in stage.sinks.iter().zip(&stage.program.outputs) {
                self.sink(f, kernel, sink, *v)?;
            }
            writeln!(f, "    }}")?;
        }
        writeln!(f, "  }}")
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

    fn sink(&self, f: &mut Formatter<'_>, kernel: &Kernel, sink: &Sink, v: SVal) -> Result {
        // Axes have the names that index expressions know them by.
        let first = kernel.domain.len();
        match sink {
            Sink::Store { buffer, index } => {
                writeln!(f, "      {}{} = store {v}", self.name(*buffer), list(index))
            }
            Sink::Reduce { monoid, runs, into } => {
                write!(f, "      {into} = reduce.{} {v}", monoid.name())?;
                runs.iter().try_for_each(|run| axes(f, run, first))?;
                writeln!(f)
            }
            Sink::Scan { monoid, axis, reverse, into } => {
                let along = first + usize::from(*axis);
                let reverse = if *reverse { " reverse" } else { "" };
                writeln!(f, "      {into} = scan.{} {v} d{along}{reverse}", monoid.name())
            }
            Sink::Keep(tile) => writeln!(f, "      {tile} = keep {v}"),
        }
    }

    fn contract(&self, f: &mut Formatter<'_>, step: &Contract) -> Result {
        let [out, x, y] = [step.out, step.lhs, step.rhs].map(|b| self.name(b));
        let (batch, contract) = (&step.batch, &step.contract);
        write!(f, "  {out} = contract {x}, {y} {{batch = {}", list(&batch.0))?;
        write!(f, " x {}, contract = {}", list(&batch.1), list(&contract.0))?;
        writeln!(f, " x {}}}", list(&contract.1))
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
            write!(f, "    {} = add {v}", list(&step.index))?;
            guards(f, &step.guards)?;
            writeln!(f)?;
        }
        writeln!(f, "  }}")
    }
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
