//! The text of loop programs. It parses back ([`loop_parser`](super::loop_parser)).
//!
//! A program is its body, how groups read each parameter (`p0`) and write each output (`o0`), and code. Statements are a
//! line each; blocks are in braces.

use super::loop_program::{
    GridSteps, GroupFold, GroupRead, GroupWrite, LoopBlock, LoopCond, LoopOp, LoopProgram,
    LoopStmt, LoopVal,
};
use adfuse_ir::DType;
use std::fmt::{Display, Formatter, Result};

impl Display for LoopVal {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "v{}", self.0)
    }
}

impl Display for LoopProgram {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self.apart == self.lanes {
            true => writeln!(f, "groups of {}", self.lanes)?,
            false => writeln!(f, "groups of {} by {}", self.lanes, self.apart)?,
        }
        write!(f, "body {{\n{}}}\n", self.body)?;
        write!(f, "order")?;
        for (at, v) in (0..).zip(&self.order) {
            write!(f, "{} {v}", word(self.cuts.contains(&at), "|"))?;
        }
        writeln!(f)?;
        for (k, read) in self.reads.iter().enumerate() {
            let dtype = self.body.params.get(k).copied().unwrap_or(DType::Token);
            write!(f, "p{k} {dtype} ")?;
            group_read(f, read)?;
        }
        for (k, write) in self.writes.iter().enumerate() {
            writeln!(f, "o{k} {write}")?;
        }
        for (k, t) in self.tiles.iter().enumerate() {
            writeln!(f, "t{k} {} {} step {}", t.dtype, t.count, t.step)?;
        }
        writeln!(f, "code {{")?;
        block(f, &self.code, 1)?;
        writeln!(f, "}}")
    }
}

fn group_read(f: &mut Formatter<'_>, read: &GroupRead) -> Result {
    match read {
        GroupRead::Fixed => writeln!(f, "fixed"),
        GroupRead::Element => writeln!(f, "element"),
        GroupRead::Even { pointer, step } => writeln!(f, "even {pointer} step {step}"),
        GroupRead::Packed { bits, pointer, first } => {
            writeln!(f, "packed {bits} {pointer} first {first}")
        }
        GroupRead::Bits { pointer, first, step } => {
            writeln!(f, "bits {pointer} first {first} step {step}")
        }
        GroupRead::Coord { first, steps } => writeln!(f, "coordinate {first} {steps}"),
        GroupRead::Grid { pointer, steps, guards, rest } => {
            write!(f, "grid {pointer} {steps}")?;
            for g in guards {
                write!(f, " where {} {} within {} {}", g.first, g.steps, g.low, g.count)?;
            }
            match rest {
                Some(l) => writeln!(f, " else {} {l}", l.dtype()),
                None => writeln!(f),
            }
        }
        GroupRead::Chosen { pointer, along } => writeln!(f, "chosen {pointer} along {along}"),
        GroupRead::Masked { pointer, low, high, rest } => {
            writeln!(f, "masked {pointer} from {low} to {high} else {} {rest}", rest.dtype())
        }
        GroupRead::Placed { pointer, rest } => {
            write!(f, "placed {pointer}")?;
            rest.iter().try_for_each(|l| write!(f, " else {} {l}", l.dtype()))?;
            writeln!(f)
        }
        GroupRead::Lanes { at, block: of, value } => {
            writeln!(f, "lanes {at} gives {value} {{")?;
            block(f, of, 1)?;
            writeln!(f, "}}")
        }
    }
}

impl Display for GridSteps {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "step {}", self.outer)?;
        self.inner.iter().try_for_each(|(extent, step)| write!(f, " axis {extent} step {step}"))
    }
}

impl Display for GroupFold {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let order = if self.lanes { "lanes" } else { "columns" };
        write!(f, "{order} {} {}", self.monoid.name(), self.dtype)
    }
}

impl Display for GroupWrite {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            GroupWrite::Element => write!(f, "element"),
            GroupWrite::Even { dtype, canonical, pointer, step, nontemporal } => {
                write!(f, "even {dtype} {pointer} step {step}")?;
                write!(f, "{}{}", word(*canonical, "canonical"), word(*nontemporal, "nontemporal"))
            }
            GroupWrite::Packed { dtype, bits, pointer, first } => {
                write!(f, "packed {dtype} {bits} {pointer} first {first}")
            }
            GroupWrite::Lanes { fold, pointer, place } => {
                write!(f, "{fold} {pointer} place {place}")
            }
            GroupWrite::Columns { fold, pointer } => write!(f, "{fold} {pointer}"),
        }
    }
}

/// A word where something holds.
fn word(holds: bool, word: &str) -> String {
    if holds { format!(" {word}") } else { String::new() }
}

impl Display for LoopOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            LoopOp::Int(x) => write!(f, "int {x}"),
            LoopOp::Literal(l) => write!(f, "literal {} {l}", l.dtype()),
            LoopOp::Pointer(k) => write!(f, "pointer {k}"),
            LoopOp::Tile(k) => write!(f, "tile {k}"),
            LoopOp::Repeated(l) => write!(f, "repeated {} {l}", l.dtype()),
            LoopOp::Add(a, b) => write!(f, "add {a} {b}"),
            LoopOp::Sub(a, b) => write!(f, "sub {a} {b}"),
            LoopOp::Mul(a, x) => write!(f, "mul {a} {x}"),
            LoopOp::FloorDiv(a, x) => write!(f, "floor_div {a} {x}"),
            LoopOp::Rem(a, x) => write!(f, "rem {a} {x}"),
            LoopOp::Div(a, x) => write!(f, "div {a} {x}"),
            LoopOp::And(a, b) => write!(f, "and {a} {b}"),
            LoopOp::Min(a, b) => write!(f, "min {a} {b}"),
            LoopOp::Max(a, b) => write!(f, "max {a} {b}"),
            LoopOp::Bound(a, b, c) => write!(f, "bound {a} {b} {c}"),
            LoopOp::Within(v, start, length) => write!(f, "within {v} {start} {length}"),
            LoopOp::Load(d, a) => write!(f, "load {d} {a}"),
            LoopOp::LoadBits(d, bits, a, shift) => write!(f, "load_bits {d} {bits} {a} {shift}"),
            LoopOp::Widen(d, a) => write!(f, "widen {d} {a}"),
        }
    }
}

impl Display for LoopCond {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            LoopCond::Within(v, start, length) => write!(f, "within {v} {start} {length}"),
            LoopCond::Less(a, b) => write!(f, "less {a} {b}"),
            LoopCond::Zero(v) => write!(f, "zero {v}"),
        }
    }
}

fn block(f: &mut Formatter<'_>, stmts: &LoopBlock, depth: usize) -> Result {
    stmts.iter().try_for_each(|s| stmt(f, s, depth))
}

fn params(f: &mut Formatter<'_>, params: &[(usize, LoopVal)]) -> Result {
    params.iter().try_for_each(|(k, v)| write!(f, " p{k} {v}"))
}

fn stmt(f: &mut Formatter<'_>, s: &LoopStmt, depth: usize) -> Result {
    let indent = "  ".repeat(depth);
    write!(f, "{indent}")?;
    match s {
        LoopStmt::Let(v, op) => write!(f, "{v} = {op}")?,
        LoopStmt::If { all, then, otherwise, results } => {
            write!(f, "if")?;
            all.iter().try_for_each(|c| write!(f, " {c}"))?;
            writeln!(f, " {{")?;
            block(f, then, depth + 1)?;
            writeln!(f, "{indent}}} else {{")?;
            block(f, otherwise, depth + 1)?;
            write!(f, "{indent}}} gives")?;
            results.iter().try_for_each(|(r, a, b)| write!(f, " {r} {a} {b}"))?;
        }
        LoopStmt::While { carried, below, body, next } => {
            write!(f, "while")?;
            carried.iter().try_for_each(|(now, begin)| write!(f, " {now} {begin}"))?;
            writeln!(f, " below {below} {{")?;
            block(f, body, depth + 1)?;
            write!(f, "{indent}}} next")?;
            next.iter().try_for_each(|v| write!(f, " {v}"))?;
        }
        LoopStmt::Transpose { tile, from, lines } => {
            write!(f, "transpose t{tile} {from} lines {lines}")?;
        }
        LoopStmt::Groups { last, from, to, shapes, nontemporal } => {
            write!(f, "groups {last} from {from} to {to}{}", word(*nontemporal, "nontemporal"))?;
            for s in shapes {
                if s.strip > 0 {
                    write!(f, " strip {}", s.strip)?;
                }
                let held = if s.held { "held" } else { "by" };
                write!(f, " {held} {} {}", s.copies, s.rounds)?;
            }
        }
        LoopStmt::Line { count, copies, joins } => {
            write!(f, "line {count} by")?;
            copies.iter().try_for_each(|n| write!(f, " {n}"))?;
            joins.iter().try_for_each(|(k, to)| write!(f, " join o{k} {to}"))?;
        }
        LoopStmt::Partial { at, first, count } => {
            write!(f, "partial {at} count {count}")?;
            first.iter().try_for_each(|v| write!(f, " first {v}"))?;
        }
        LoopStmt::Invariants { params: of } => {
            write!(f, "invariants")?;
            params(f, of)?;
        }
        LoopStmt::Element { params: of, results } => {
            write!(f, "element")?;
            params(f, of)?;
            write!(f, " gives")?;
            results.iter().try_for_each(|v| write!(f, " {v}"))?;
        }
        LoopStmt::Store { dtype, canonical, at, value } => {
            write!(f, "store {dtype} {at} {value}{}", word(*canonical, "canonical"))?;
        }
        LoopStmt::StoreBits { dtype, bits, at, shift, value } => {
            write!(f, "store_bits {dtype} {bits} {at} {shift} {value}")?;
        }
        LoopStmt::Combine { output, at, value } => write!(f, "combine o{output} {at} {value}")?,
        LoopStmt::FillColumns { output, at, count } => {
            write!(f, "fill_columns o{output} {at}")?;
            count.iter().try_for_each(|v| write!(f, " count {v}"))?;
        }
        LoopStmt::FillLanes { output } => write!(f, "fill_lanes o{output}")?,
        LoopStmt::JoinLanes { output, to } => write!(f, "join_lanes o{output} {to}")?,
    }
    writeln!(f)
}
