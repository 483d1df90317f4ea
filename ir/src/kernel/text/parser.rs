//! Programs and their steps.

use super::cursor::{Cursor, Read};
use crate::attrs::Ints;
use crate::diag::{Diagnostic, Kind, Span};
use crate::kernel::program::{Buffer, BufferData, Contract, Program, Role, Scatter, Step};
use crate::kernel::stage::{Kernel, Operand, TileData};
use crate::scalar::{Func, Prim, SOp};
use crate::text::Limits;
use crate::text::lexer::Tok;
use hashbrown::HashMap;

/// Reads a program. What it means is checked by [`verify`](crate::kernel::verify), not here.
///
/// # Errors
/// The first place where the text is no program.
pub fn parse(source: &str) -> Result<Program, Diagnostic> {
    let most = Limits::default().source;
    let cursor = Cursor::new(if source.len() > most { "" } else { source });
    if source.len() > most {
        let m = format!("the text has {} bytes, the limit is {most}", source.len());
        return Err(cursor.error(Span::default(), Kind::Limit, m));
    }
    let ops = Prim::ALL.iter().filter(|p| !matches!(p, Prim::Lookup(_)));
    let ops = ops.map(|&p| (format!("{p:?}").to_lowercase(), SOp::Prim(p)));
    let funcs = Func::ALL.iter().map(|&f| (f.name().to_string(), SOp::Func(f)));
    let ops = ops.chain(funcs).collect();
    let mut parser = Parser { cursor, program: Program::default(), names: HashMap::new(), ops };
    parser.program()?;
    Ok(parser.program)
}

/// Reads one program.
pub(super) struct Parser<'s> {
    pub(super) cursor: Cursor<'s>,
    pub(super) program: Program,
    names: HashMap<&'s str, Buffer>,
    /// Scalar operations by name.
    pub(super) ops: HashMap<String, SOp>,
}

impl<'s> Parser<'s> {
    fn program(&mut self) -> Read<()> {
        self.cursor.expect("program")?;
        self.program.name = self.name()?.to_string();
        self.cursor.expect("{")?;
        while self.declaration()? {}
        while !self.cursor.accept("return") {
            let step = match self.cursor.kind() {
                Tok::Value => self.computed()?,
                _ if self.cursor.accept("kernel") => Step::Kernel(self.kernel()?),
                _ => return Err(self.cursor.wrong("a step or `return`")),
            };
            self.program.steps.push(step);
        }
        while self.cursor.kind() == Tok::Value {
            let b = self.buffer()?;
            self.program.outputs.push(b);
            if !self.cursor.accept(",") {
                break;
            }
        }
        self.cursor.expect("}")?;
        self.cursor.take(Tok::Eof, "the end").map(|_| ())
    }

    /// `@name`
    fn name(&mut self) -> Read<&'s str> {
        self.cursor.take(Tok::Func, "a name such as @f").map(|name| &name[1..])
    }

    /// A buffer's declaration, if one is next.
    fn declaration(&mut self) -> Read<bool> {
        let role = match self.cursor.text() {
            "input" => Role::Input,
            "output" => Role::Output,
            "temp" => Role::Temp,
            "constant" => Role::Constant(Vec::new()),
            _ => return Ok(false),
        };
        self.cursor.next();
        let span = self.cursor.span();
        let name = &self.cursor.take(Tok::Value, "a name such as %x")?[1..];
        self.cursor.expect(":")?;
        let dtype = self.cursor.dtype()?;
        let dims = self.cursor.extents()?;
        let role = match role {
            Role::Constant(_) => {
                self.cursor.expect("=")?;
                Role::Constant(self.cursor.list("[", "]", |c| c.literal(dtype))?)
            }
            role => role,
        };
        let data = BufferData { name: name.to_string(), dtype, dims, role };
        let b = self.program.buffers.push(data);
        if self.names.insert(name, b).is_some() {
            let m = format!("`%{name}` is declared twice");
            return Err(self.cursor.error(span, Kind::Redefinition, m));
        }
        Ok(true)
    }

    /// The buffer of the name that is next.
    pub(super) fn buffer(&mut self) -> Read<Buffer> {
        let span = self.cursor.span();
        let name = self.cursor.take(Tok::Value, "a buffer")?;
        self.names.get(&name[1..]).copied().ok_or_else(|| {
            self.cursor.error(span, Kind::UnknownName, format!("no buffer `{name}`"))
        })
    }

    /// `%x` or `f32(0.5)`
    pub(super) fn operand(&mut self) -> Read<Operand> {
        if self.cursor.kind() == Tok::Value {
            return self.buffer().map(Operand::Buffer);
        }
        let dtype = self.cursor.dtype()?;
        self.cursor.expect("(")?;
        let literal = self.cursor.literal(dtype)?;
        self.cursor.expect(")")?;
        Ok(Operand::Literal(literal))
    }

    /// A step that begins with its buffer.
    fn computed(&mut self) -> Read<Step> {
        let out = self.buffer()?;
        self.cursor.expect("=")?;
        if self.cursor.accept("contract") {
            return self.contract(out).map(Step::Contract);
        }
        self.cursor.expect("scatter")?;
        self.scatter(out).map(Step::Scatter)
    }

    fn contract(&mut self, out: Buffer) -> Read<Contract> {
        let lhs = self.buffer()?;
        self.cursor.expect(",")?;
        let rhs = self.buffer()?;
        self.cursor.expect("{")?;
        let batch = self.pairs("batch")?;
        self.cursor.expect(",")?;
        let contract = self.pairs("contract")?;
        self.cursor.expect("}")?;
        Ok(Contract { lhs, rhs, out, batch, contract })
    }

    /// `batch = [0] x [1]`
    fn pairs(&mut self, name: &str) -> Read<(Ints, Ints)> {
        self.cursor.expect(name)?;
        self.cursor.expect("=")?;
        let left = self.cursor.extents()?;
        self.cursor.expect("x")?;
        Ok((left, self.cursor.extents()?))
    }

    fn scatter(&mut self, out: Buffer) -> Read<Scatter> {
        let from = self.operand()?;
        let domain = self.cursor.extents()?;
        self.cursor.expect("{")?;
        let params = self.params()?;
        let mut program = self.scalars(&params)?;
        let index = self.cursor.index()?;
        self.cursor.expect("=")?;
        self.cursor.expect("add")?;
        let update = self.scalar(&program.insts)?;
        program.outputs.push(update);
        program.params = params.iter().map(|p| p.1).collect();
        let guards = self.cursor.guards()?;
        self.cursor.expect("}")?;
        let params = params.into_iter().map(|p| p.0).collect();
        Ok(Scatter { from, out, domain, params, program, index, guards })
    }

    fn kernel(&mut self) -> Read<Kernel> {
        let mut kernel = Kernel { name: self.name()?.to_string(), ..Kernel::default() };
        kernel.domain = self.cursor.extents()?;
        self.cursor.expect("{")?;
        while self.cursor.accept("row") {
            self.cursor.defines('r', kernel.rows.len())?;
            self.cursor.expect(":")?;
            kernel.rows.push(self.cursor.dtype()?);
        }
        while self.cursor.accept("tile") {
            self.cursor.defines('t', kernel.tiles.len())?;
            self.cursor.expect(":")?;
            let dtype = self.cursor.dtype()?;
            kernel.tiles.push(TileData { dtype, dims: self.cursor.extents()? });
        }
        while self.cursor.accept("stage") {
            let stage = self.stage(&kernel)?;
            kernel.stages.push(stage);
        }
        self.cursor.expect("}")?;
        Ok(kernel)
    }
}
