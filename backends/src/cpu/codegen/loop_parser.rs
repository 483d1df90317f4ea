//! Parses the text of loop programs, as [`loop_printer`](super::loop_printer) writes it.

use super::loop_program::{
    GridGuard, GridSteps, GroupFold, GroupRead, GroupShape, GroupWrite, LoopBlock, LoopCond,
    LoopOp, LoopProgram, LoopStmt, LoopVal, TransposedTile,
};
use adfuse_ir::op::Monoid;
use adfuse_ir::scalar::{Prim, SInst, SOp, SVal, ScalarProgram, Table};
use adfuse_ir::{DType, Literal};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::str::FromStr;

/// What is wrong, with the line.
type LoopTextResult<T> = Result<T, String>;

/// A program of a text.
pub(crate) fn parse(text: &str) -> LoopTextResult<LoopProgram> {
    let lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty());
    let mut p = LoopParser { lines: lines.map(|(k, l)| (k + 1, l)).collect() };
    let mut line = p.line("groups")?;
    line.expect("of")?;
    let lanes = line.number()?;
    let mut apart = lanes;
    if !line.is_empty() {
        line.expect("by")?;
        apart = line.number()?;
    }
    p.line("body")?;
    let mut body = p.body()?;
    let mut line = p.line("order")?;
    let (mut order, mut cuts) = (Vec::new(), Vec::new());
    while !line.is_empty() {
        if line.accept("|") {
            cuts.push(order.len() as u32);
        }
        order.push(line.scalar()?);
    }
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    while p.begins(&format!("p{} ", reads.len())) {
        let mut line = p.line(&format!("p{}", reads.len()))?;
        body.params.push(line.dtype()?);
        reads.push(p.group_read(line)?);
    }
    while p.begins(&format!("o{} ", writes.len())) {
        let line = p.line(&format!("o{}", writes.len()))?;
        writes.push(group_write(line)?);
    }
    let mut tiles = Vec::new();
    while p.begins(&format!("t{} ", tiles.len())) {
        let mut line = p.line(&format!("t{}", tiles.len()))?;
        let (dtype, count) = (line.dtype()?, line.number()?);
        line.expect("step")?;
        tiles.push(TransposedTile { dtype, count, step: line.number()? });
        line.ends()?;
    }
    p.line("code")?;
    let (code, _) = p.block()?;
    match p.lines.pop_front() {
        None => Ok(LoopProgram { lanes, apart, body, order, cuts, reads, writes, tiles, code }),
        Some((n, _)) => Err(format!("line {n}: the program ends before this")),
    }
}

struct LoopParser<'s> {
    lines: VecDeque<(usize, &'s str)>,
}

/// The words of a line that are left.
struct LineWords<'s> {
    number: usize,
    words: VecDeque<&'s str>,
}

impl<'s> LineWords<'s> {
    fn wrong<T>(&self, wanted: &str) -> LoopTextResult<T> {
        let there = self.words.front().copied().unwrap_or("the end");
        Err(format!("line {}: {wanted} is expected, and there is {there}", self.number))
    }

    fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    fn accept(&mut self, word: &str) -> bool {
        let there = self.words.front() == Some(&word);
        if there {
            self.words.pop_front();
        }
        there
    }

    fn expect(&mut self, word: &str) -> LoopTextResult<()> {
        if self.accept(word) { Ok(()) } else { self.wrong(word) }
    }

    /// What a word says.
    fn word<T>(&mut self, wanted: &str, of: impl Fn(&str) -> Option<T>) -> LoopTextResult<T> {
        match self.words.front().and_then(|w| of(w)) {
            Some(found) => {
                self.words.pop_front();
                Ok(found)
            }
            None => self.wrong(wanted),
        }
    }

    fn number<T: FromStr>(&mut self) -> LoopTextResult<T> {
        self.word("a number", |w| w.parse().ok())
    }

    fn numbered<T: FromStr>(&mut self, letter: char) -> LoopTextResult<T> {
        let wanted = format!("{letter} and a number");
        self.word(&wanted, |w| w.strip_prefix(letter)?.parse().ok())
    }

    fn value(&mut self) -> LoopTextResult<LoopVal> {
        self.numbered('v').map(LoopVal)
    }

    fn scalar(&mut self) -> LoopTextResult<SVal> {
        self.numbered('s').map(SVal::from_u32)
    }

    fn dtype(&mut self) -> LoopTextResult<DType> {
        self.word("an element type", |w| w.parse().ok())
    }

    fn literal(&mut self, d: DType) -> LoopTextResult<Literal> {
        self.word("a constant", |w| match d {
            DType::Bool => w.parse().ok().map(|b: bool| Literal::from_bits(d, b.into())),
            d if d.is_float() => w.parse().ok().map(|x| Literal::from_f64(d, x)),
            d => w.parse().ok().map(|x| Literal::from_i64(d, x)),
        })
    }

    fn grid_steps(&mut self) -> LoopTextResult<GridSteps> {
        self.expect("step")?;
        let outer = self.number()?;
        let mut inner = SmallVec::new();
        while self.accept("axis") {
            let extent = self.number()?;
            self.expect("step")?;
            inner.push((extent, self.number()?));
        }
        Ok(GridSteps { outer, inner })
    }

    fn typed_literal(&mut self) -> LoopTextResult<Literal> {
        let d = self.dtype()?;
        self.literal(d)
    }

    fn op(&mut self) -> LoopTextResult<LoopOp> {
        let name = self.word("an operation", |w| Some(w.to_owned()))?;
        Ok(match name.as_str() {
            "int" => LoopOp::Int(self.number()?),
            "literal" => LoopOp::Literal(self.typed_literal()?),
            "pointer" => LoopOp::Pointer(self.number()?),
            "tile" => LoopOp::Tile(self.number()?),
            "repeated" => LoopOp::Repeated(self.typed_literal()?),
            "add" => LoopOp::Add(self.value()?, self.value()?),
            "sub" => LoopOp::Sub(self.value()?, self.value()?),
            "mul" => LoopOp::Mul(self.value()?, self.number()?),
            "floor_div" => LoopOp::FloorDiv(self.value()?, self.number()?),
            "rem" => LoopOp::Rem(self.value()?, self.number()?),
            "div" => LoopOp::Div(self.value()?, self.number()?),
            "and" => LoopOp::And(self.value()?, self.value()?),
            "min" => LoopOp::Min(self.value()?, self.value()?),
            "max" => LoopOp::Max(self.value()?, self.value()?),
            "bound" => LoopOp::Bound(self.value()?, self.value()?, self.value()?),
            "within" => LoopOp::Within(self.value()?, self.number()?, self.number()?),
            "load" => LoopOp::Load(self.dtype()?, self.value()?),
            "load_bits" => {
                LoopOp::LoadBits(self.dtype()?, self.number()?, self.value()?, self.value()?)
            }
            "widen" => LoopOp::Widen(self.dtype()?, self.value()?),
            _ => return Err(format!("line {}: no operation {name}", self.number)),
        })
    }

    fn conditions(&mut self) -> LoopTextResult<Vec<LoopCond>> {
        let mut all = Vec::new();
        while !self.accept("{") {
            all.push(if self.accept("within") {
                LoopCond::Within(self.value()?, self.number()?, self.number()?)
            } else if self.accept("less") {
                LoopCond::Less(self.value()?, self.value()?)
            } else {
                self.expect("zero")?;
                LoopCond::Zero(self.value()?)
            });
        }
        Ok(all)
    }

    fn params(&mut self) -> LoopTextResult<Vec<(usize, LoopVal)>> {
        let mut all = Vec::new();
        while self.words.front().is_some_and(|w| w.starts_with('p')) {
            all.push((self.numbered('p')?, self.value()?));
        }
        Ok(all)
    }

    fn fold(&mut self, lanes: bool) -> LoopTextResult<GroupFold> {
        let monoid = self.word("a fold", |w| Monoid::ALL.into_iter().find(|m| m.name() == w))?;
        Ok(GroupFold { monoid, dtype: self.dtype()?, lanes })
    }

    /// A statement without blocks, by its first word.
    fn stmt(&mut self, name: &str) -> LoopTextResult<LoopStmt> {
        Ok(match name {
            "groups" => {
                let last = self.value()?;
                self.expect("from")?;
                let from = self.value()?;
                self.expect("to")?;
                let to = self.value()?;
                let nontemporal = self.accept("nontemporal");
                let mut shapes = Vec::new();
                while !self.is_empty() {
                    let strip = if self.accept("strip") { self.number()? } else { 0 };
                    let held = self.accept("held");
                    if !held {
                        self.expect("by")?;
                    }
                    shapes.push(GroupShape {
                        copies: self.number()?,
                        rounds: self.number()?,
                        held,
                        strip,
                    });
                }
                LoopStmt::Groups { last, from, to, shapes, nontemporal }
            }
            "line" => self.whole_line()?,
            "transpose" => {
                let (tile, from) = (self.numbered('t')?, self.value()?);
                self.expect("lines")?;
                LoopStmt::Transpose { tile, from, lines: self.value()? }
            }
            "partial" => {
                let at = self.value()?;
                self.expect("count")?;
                let count = self.value()?;
                let first = if self.accept("first") { Some(self.value()?) } else { None };
                LoopStmt::Partial { at, first, count }
            }
            "invariants" => LoopStmt::Invariants { params: self.params()? },
            "element" => {
                let params = self.params()?;
                self.expect("gives")?;
                let mut results = Vec::new();
                while !self.is_empty() {
                    results.push(self.value()?);
                }
                LoopStmt::Element { params, results }
            }
            "store" => {
                let (dtype, at, value) = (self.dtype()?, self.value()?, self.value()?);
                LoopStmt::Store { dtype, canonical: self.accept("canonical"), at, value }
            }
            "store_bits" => LoopStmt::StoreBits {
                dtype: self.dtype()?,
                bits: self.number()?,
                at: self.value()?,
                shift: self.value()?,
                value: self.value()?,
            },
            "combine" => {
                let output = self.numbered('o')?;
                LoopStmt::Combine { output, at: self.value()?, value: self.value()? }
            }
            "fill_columns" => {
                let (output, at) = (self.numbered('o')?, self.value()?);
                let count = if self.accept("count") { Some(self.value()?) } else { None };
                LoopStmt::FillColumns { output, at, count }
            }
            "fill_lanes" => LoopStmt::FillLanes { output: self.numbered('o')? },
            "join_lanes" => LoopStmt::JoinLanes { output: self.numbered('o')?, to: self.value()? },
            _ => return Err(format!("line {}: no statement {name}", self.number)),
        })
    }

    fn whole_line(&mut self) -> LoopTextResult<LoopStmt> {
        let (count, mut copies, mut joins) = (self.number()?, SmallVec::new(), Vec::new());
        self.expect("by")?;
        while !self.is_empty() && self.words.front() != Some(&"join") {
            copies.push(self.number()?);
        }
        while self.accept("join") {
            joins.push((self.numbered('o')?, self.value()?));
        }
        Ok(LoopStmt::Line { count, copies, joins })
    }

    fn ends(&self) -> LoopTextResult<()> {
        if self.is_empty() { Ok(()) } else { self.wrong("the end of the line") }
    }
}

fn group_write(mut l: LineWords<'_>) -> LoopTextResult<GroupWrite> {
    let name = l.word("how it is written", |w| Some(w.to_owned()))?;
    let write = match name.as_str() {
        "element" => GroupWrite::Element,
        "even" => {
            let (dtype, pointer) = (l.dtype()?, l.value()?);
            l.expect("step")?;
            let step = l.number()?;
            let canonical = l.accept("canonical");
            let nontemporal = l.accept("nontemporal");
            GroupWrite::Even { dtype, canonical, pointer, step, nontemporal }
        }
        "packed" => {
            let (dtype, bits, pointer) = (l.dtype()?, l.number()?, l.value()?);
            l.expect("first")?;
            GroupWrite::Packed { dtype, bits, pointer, first: l.value()? }
        }
        "lanes" => {
            let (fold, pointer) = (l.fold(true)?, l.value()?);
            l.expect("place")?;
            GroupWrite::Lanes { fold, pointer, place: l.value()? }
        }
        "columns" => GroupWrite::Columns { fold: l.fold(false)?, pointer: l.value()? },
        _ => return Err(format!("line {}: outputs are not written so: {name}", l.number)),
    };
    l.ends().map(|()| write)
}

impl<'s> LoopParser<'s> {
    fn begins(&self, text: &str) -> bool {
        self.lines.front().is_some_and(|(_, l)| l.trim_start().starts_with(text))
    }

    fn words(&mut self) -> LoopTextResult<LineWords<'s>> {
        let Some((number, line)) = self.lines.pop_front() else {
            return Err("the text ends too early".into());
        };
        Ok(LineWords { number, words: line.split_whitespace().collect() })
    }

    /// The next line, which begins with a word.
    fn line(&mut self, word: &str) -> LoopTextResult<LineWords<'s>> {
        let mut line = self.words()?;
        line.expect(word)?;
        Ok(line)
    }

    fn body(&mut self) -> LoopTextResult<ScalarProgram> {
        let mut body = ScalarProgram::default();
        loop {
            let mut line = self.words()?;
            if line.accept("return") {
                while !line.is_empty() {
                    body.outputs.push(line.scalar()?);
                }
                self.line("}")?;
                return Ok(body);
            }
            let v = line.scalar()?;
            if v.as_u32() as usize != body.insts.len() {
                return Err(format!("line {}: {v} is not the next value", line.number));
            }
            line.expect("=")?;
            body.insts.push(instruction(&mut line)?);
            line.ends()?;
        }
    }

    fn group_read(&mut self, mut l: LineWords<'s>) -> LoopTextResult<GroupRead> {
        let name = l.word("how it is read", |w| Some(w.to_owned()))?;
        let read = match name.as_str() {
            "fixed" => GroupRead::Fixed,
            "element" => GroupRead::Element,
            "even" => {
                let pointer = l.value()?;
                l.expect("step")?;
                GroupRead::Even { pointer, step: l.number()? }
            }
            "packed" => {
                let (bits, pointer) = (l.number()?, l.value()?);
                l.expect("first")?;
                GroupRead::Packed { bits, pointer, first: l.value()? }
            }
            "bits" => {
                let pointer = l.value()?;
                l.expect("first")?;
                let first = l.value()?;
                l.expect("step")?;
                GroupRead::Bits { pointer, first, step: l.number()? }
            }
            "coordinate" => GroupRead::Coord { first: l.value()?, steps: l.grid_steps()? },
            "grid" => {
                let (pointer, steps) = (l.value()?, l.grid_steps()?);
                let mut guards = Vec::new();
                while l.accept("where") {
                    let (first, steps) = (l.value()?, l.grid_steps()?);
                    l.expect("within")?;
                    guards.push(GridGuard { first, steps, low: l.number()?, count: l.number()? });
                }
                let rest = if l.accept("else") { Some(l.typed_literal()?) } else { None };
                GroupRead::Grid { pointer, steps, guards, rest }
            }
            "chosen" => {
                let pointer = l.value()?;
                l.expect("along")?;
                GroupRead::Chosen { pointer, along: l.value()? }
            }
            "masked" => {
                let pointer = l.value()?;
                l.expect("from")?;
                let low = l.value()?;
                l.expect("to")?;
                let high = l.value()?;
                l.expect("else")?;
                GroupRead::Masked { pointer, low, high, rest: l.typed_literal()? }
            }
            "placed" => {
                let pointer = l.value()?;
                let rest = if l.accept("else") { Some(l.typed_literal()?) } else { None };
                GroupRead::Placed { pointer, rest }
            }
            "lanes" => {
                let at = l.value()?;
                l.expect("gives")?;
                let value = l.value()?;
                l.expect("{")?;
                let (block, _) = self.block()?;
                GroupRead::Lanes { at, block, value }
            }
            _ => return Err(format!("line {}: parameters are not read so: {name}", l.number)),
        };
        l.ends().map(|()| read)
    }

    /// Statements up to a closing brace; gives what follows that in its line.
    fn block(&mut self) -> LoopTextResult<(LoopBlock, LineWords<'s>)> {
        let mut stmts = Vec::new();
        loop {
            let mut line = self.words()?;
            if line.accept("}") {
                return Ok((stmts, line));
            }
            stmts.push(if line.accept("if") {
                self.branch(line)?
            } else if line.accept("while") {
                self.turns(line)?
            } else if line.words.get(1) == Some(&"=") {
                let v = line.value()?;
                line.expect("=")?;
                let op = line.op()?;
                line.ends()?;
                LoopStmt::Let(v, op)
            } else {
                let name = line.word("a statement", |w| Some(w.to_owned()))?;
                let stmt = line.stmt(&name)?;
                line.ends()?;
                stmt
            });
        }
    }

    fn branch(&mut self, mut line: LineWords<'s>) -> LoopTextResult<LoopStmt> {
        let all = line.conditions()?;
        let (then, mut line) = self.block()?;
        line.expect("else")?;
        line.expect("{")?;
        let (otherwise, mut line) = self.block()?;
        line.expect("gives")?;
        let mut results = Vec::new();
        while !line.is_empty() {
            results.push((line.value()?, line.value()?, line.value()?));
        }
        Ok(LoopStmt::If { all, then, otherwise, results })
    }

    fn turns(&mut self, mut line: LineWords<'s>) -> LoopTextResult<LoopStmt> {
        let mut carried = Vec::new();
        while !line.accept("below") {
            carried.push((line.value()?, line.value()?));
        }
        let below = line.value()?;
        line.expect("{")?;
        let (body, mut line) = self.block()?;
        line.expect("next")?;
        let mut next = Vec::new();
        while !line.is_empty() {
            next.push(line.value()?);
        }
        Ok(LoopStmt::While { carried, below, body, next })
    }
}

/// `mul.f32 s0 s1`
fn instruction(line: &mut LineWords<'_>) -> LoopTextResult<SInst> {
    let typed = |w: &str| {
        let (name, d) = w.rsplit_once('.')?;
        Some((name.to_owned(), d.parse::<DType>().ok()?))
    };
    let (name, dtype) = line.word("an operation with its type", typed)?;
    let op = match name.as_str() {
        "param" => SOp::Param(line.number()?),
        "const" => SOp::Const(line.literal(dtype)?),
        "lookup" => {
            let table =
                line.word("a table", |w| Table::ALL.into_iter().find(|t| format!("{t:?}") == w))?;
            SOp::Prim(Prim::Lookup(table))
        }
        _ => match Prim::ALL.iter().copied().find(|p| p.name() == name) {
            Some(p) => SOp::Prim(p),
            None => return Err(format!("line {}: no primitive {name}", line.number)),
        },
    };
    let mut args = smallvec::SmallVec::new();
    while !line.is_empty() {
        args.push(line.scalar()?);
    }
    Ok(SInst { op, args, dtype })
}
