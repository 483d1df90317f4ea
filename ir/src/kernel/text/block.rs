//! Loops and branches: the steps that have programs in them, read and printed.

use super::cursor::ParseResult;
use super::parser::ProgramParser;
use crate::diag::{Diagnostic, Kind};
use crate::kernel::block::{Back, Block, BlockInput, Branch, Carry, Loop, LoopTrips, MAX_NESTING};
use crate::kernel::buffer::Buffer;
use crate::kernel::program::Program;
use crate::kernel::stage::Operand;
use crate::kernel::verified::Verified;
use crate::kernel::verify::verify;
use crate::text::lexer::Tok;
use std::fmt::{Formatter, Result, Write as _};

impl ProgramParser<'_> {
    /// A loop, after its first word.
    pub(super) fn repeated(&mut self) -> ParseResult<Loop> {
        let name = self.name()?.to_string();
        self.cursor.expect("{")?;
        let trips = self.trips()?;
        let reverse = self.cursor.accept("reverse");
        let (carries, step, stacks) = self.turns()?;
        let back = self.cursor.accept("back").then(|| self.way_back()).transpose()?;
        self.cursor.expect("}")?;
        Ok(Loop { name, trips, reverse, carries, step, stacks, back })
    }

    /// `trips 1000`, `trips %n`, `trips %a to %b`, or `while most 10 (..) program @test { .. }`
    fn trips(&mut self) -> ParseResult<LoopTrips> {
        if self.cursor.accept("while") {
            let most = match self.cursor.accept("most") {
                true => self.count("a number of steps")?,
                false => 0,
            };
            return Ok(LoopTrips::While { test: self.block()?, most });
        }
        self.cursor.expect("trips")?;
        if self.cursor.kind() != Tok::Value {
            return self.count("a number of steps").map(LoopTrips::Known);
        }
        let first = self.buffer()?;
        match self.cursor.accept("to") {
            true => Ok(LoopTrips::Range(first, self.buffer()?)),
            false => Ok(LoopTrips::Count(first)),
        }
    }

    /// What is carried, what is done at each step, and where an element of each step goes.
    fn turns(&mut self) -> ParseResult<(Vec<Carry>, Block, Vec<Buffer>)> {
        let (mut carries, mut stacks) = (Vec::new(), Vec::new());
        while self.cursor.accept("carry") {
            let to = self.buffer()?;
            self.cursor.expect("=")?;
            carries.push(Carry { from: self.operand()?, to });
        }
        while self.cursor.accept("stack") {
            stacks.push(self.buffer()?);
        }
        self.cursor.expect("step")?;
        Ok((carries, self.block()?, stacks))
    }

    /// `checkpoints 32 { .. }`
    fn way_back(&mut self) -> ParseResult<Back> {
        self.cursor.expect("checkpoints")?;
        let checkpoints = self.count("a number of checkpoints")?;
        self.cursor.expect("{")?;
        let (carries, step, stacks) = self.turns()?;
        self.cursor.expect("}")?;
        Ok(Back { checkpoints, carries, step, stacks })
    }

    /// A branch, after its first word.
    pub(super) fn branched(&mut self) -> ParseResult<Branch> {
        let name = self.name()?.to_string();
        let selector = self.buffer()?;
        self.cursor.expect("{")?;
        let (mut outputs, mut blocks) = (Vec::new(), Vec::new());
        if self.cursor.accept("to") {
            outputs.push(self.buffer()?);
            while self.cursor.accept(",") {
                outputs.push(self.buffer()?);
            }
        }
        while self.cursor.accept("case") {
            blocks.push(self.block()?);
        }
        self.cursor.expect("}")?;
        Ok(Branch { name, selector, blocks, outputs })
    }

    fn count(&mut self, what: &str) -> ParseResult<u64> {
        let wrong = self.cursor.wrong(what);
        u64::try_from(self.cursor.int()?).map_err(|_| wrong)
    }

    /// `(index, carry 0, whole %x) program @step { .. }`
    fn block(&mut self) -> ParseResult<Block> {
        self.cursor.expect("(")?;
        let mut inputs = Vec::new();
        while !self.cursor.accept(")") {
            if !inputs.is_empty() {
                self.cursor.expect(",")?;
            }
            inputs.push(self.block_input()?);
        }
        Ok(Block { program: self.within()?, inputs })
    }

    fn block_input(&mut self) -> ParseResult<BlockInput> {
        const WORDS: [&str; 5] = ["index", "carry", "returned", "element", "whole"];
        let position = |s: &mut Self| {
            let wrong = s.cursor.wrong("a position");
            usize::try_from(s.cursor.int()?).map_err(|_| wrong)
        };
        let word = WORDS.into_iter().position(|word| self.cursor.accept(word));
        Ok(match word {
            Some(0) => BlockInput::Index,
            Some(1) => BlockInput::Carry(position(self)?),
            Some(2) => BlockInput::Returned(position(self)?),
            Some(3) => BlockInput::Element(self.buffer()?),
            Some(_) => BlockInput::Whole(self.buffer()?),
            None => {
                let words = "`index`, `carry`, `returned`, `element` or `whole`";
                return Err(self.cursor.wrong(words));
            }
        })
    }

    /// A program in a program: it knows none of the names around it, and is verified by itself.
    fn within(&mut self) -> ParseResult<Verified<Program>> {
        let span = self.cursor.span();
        if self.depth >= MAX_NESTING {
            let m = format!("programs nest deeper than {MAX_NESTING}");
            return Err(self.cursor.error(span, Kind::Limit, m));
        }
        let around = (std::mem::take(&mut self.program), std::mem::take(&mut self.names));
        self.depth += 1;
        let read = self.body();
        self.depth -= 1;
        let program = std::mem::replace(&mut self.program, around.0);
        self.names = around.1;
        read?;
        verify(program).map_err(|mut errors| {
            let mut d: Diagnostic = errors.swap_remove(0);
            d.at.span.get_or_insert(span);
            d
        })
    }
}

impl Program {
    /// A loop.
    pub(super) fn repeated(&self, f: &mut Formatter<'_>, step: &Loop) -> Result {
        writeln!(f, "  loop @{} {{", step.name)?;
        match &step.trips {
            LoopTrips::Known(n) => writeln!(f, "    trips {n}")?,
            LoopTrips::Count(n) => writeln!(f, "    trips {}", self.name(*n))?,
            LoopTrips::Range(from, to) => {
                writeln!(f, "    trips {} to {}", self.name(*from), self.name(*to))?;
            }
            LoopTrips::While { test, most } => {
                let most = if *most > 0 { format!("most {most} ") } else { String::new() };
                self.block(f, "    ", &format!("while {most}"), test)?;
            }
        }
        if step.reverse {
            writeln!(f, "    reverse")?;
        }
        self.turns(f, "    ", (&step.carries, &step.step, &step.stacks))?;
        if let Some(back) = &step.back {
            writeln!(f, "    back checkpoints {} {{", back.checkpoints)?;
            self.turns(f, "      ", (&back.carries, &back.step, &back.stacks))?;
            writeln!(f, "    }}")?;
        }
        writeln!(f, "  }}")
    }

    fn turns(
        &self,
        f: &mut Formatter<'_>,
        indent: &str,
        (carries, step, stacks): (&[Carry], &Block, &[Buffer]),
    ) -> Result {
        for carry in carries {
            write!(f, "{indent}carry {} = ", self.name(carry.to))?;
            match carry.from {
                Operand::Buffer(b) => writeln!(f, "{}", self.name(b))?,
                Operand::Literal(l) => writeln!(f, "{}({l})", l.dtype())?,
            }
        }
        for &stack in stacks {
            writeln!(f, "{indent}stack {}", self.name(stack))?;
        }
        self.block(f, indent, "step ", step)
    }

    /// A branch.
    pub(super) fn branched(&self, f: &mut Formatter<'_>, step: &Branch) -> Result {
        writeln!(f, "  branch @{} {} {{", step.name, self.name(step.selector))?;
        if !step.outputs.is_empty() {
            writeln!(f, "    to {}", self.names(&step.outputs))?;
        }
        for block in &step.blocks {
            self.block(f, "    ", "case ", block)?;
        }
        writeln!(f, "  }}")
    }

    fn block(&self, f: &mut Formatter<'_>, indent: &str, word: &str, block: &Block) -> Result {
        let input = |input: &BlockInput| match *input {
            BlockInput::Index => "index".to_string(),
            BlockInput::Carry(k) => format!("carry {k}"),
            BlockInput::Returned(k) => format!("returned {k}"),
            BlockInput::Element(b) => format!("element {}", self.name(b)),
            BlockInput::Whole(b) => format!("whole {}", self.name(b)),
        };
        let inputs: Vec<String> = block.inputs.iter().map(input).collect();
        let mut text = String::new();
        write!(text, "{}", *block.program)?;
        write!(f, "{indent}{word}({}) ", inputs.join(", "))?;
        for (n, line) in text.lines().enumerate() {
            writeln!(f, "{}{line}", if n > 0 { indent } else { "" })?;
        }
        Ok(())
    }
}
