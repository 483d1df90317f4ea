//! Programs and their steps.

use super::cursor::{Cursor, ParseResult};
use crate::diag::{Diagnostic, Kind, Span};
use crate::dtype::DType;
use crate::kernel::buffer::{Buffer, BufferData, Role, Space, Storage};
use crate::kernel::program::{
    Argsort, Attend, Bundle, DebugPrint, Exchange, ExchangeKind, Library, Program, Scatter, Step,
    Transfer,
};
use crate::kernel::stage::{Kernel, Operand, Row, Schedule, Tile, TileData};
use crate::op::{AttentionReach, Op, Update};
use crate::scalar::{Func, Prim, SOp};
use crate::text::Limits;
use crate::text::lexer::{Tok, unescape};
use cranelift_entity::PrimaryMap;
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
    let ops = ops.map(|&p| (p.name().to_string(), SOp::Prim(p)));
    let funcs = Func::ALL.iter().map(|&f| (f.name().to_string(), SOp::Func(f)));
    let ops = ops.chain(funcs).collect();
    let program = Program::default();
    let mut parser =
        ProgramParser { cursor, program, names: HashMap::new(), ops, within_fold: false, depth: 0 };
    parser.body()?;
    parser.cursor.take(Tok::Eof, "the end")?;
    Ok(parser.program)
}

/// Reads one program.
pub(super) struct ProgramParser<'s> {
    pub(super) cursor: Cursor<'s>,
    pub(super) program: Program,
    pub(super) names: HashMap<&'s str, Buffer>,
    /// Scalar operations by name.
    pub(super) ops: HashMap<String, SOp>,
    /// What follows a fold is being read.
    pub(super) within_fold: bool,
    /// How many programs this one is in.
    pub(super) depth: usize,
}

/// What a stage finds around it.
pub(super) struct ParseContext<'a> {
    /// How many axes the domain has.
    pub(super) domain: usize,
    /// The scalars that may be kept.
    pub(super) rows: &'a PrimaryMap<Row, DType>,
    /// The tensors that may be kept.
    pub(super) tiles: &'a PrimaryMap<Tile, TileData>,
    /// The type of the sum that it follows, if any.
    pub(super) sum: Option<DType>,
}

impl<'s> ProgramParser<'s> {
    /// `program @f { .. }`, into [`ProgramParser::program`].
    pub(super) fn body(&mut self) -> ParseResult<()> {
        self.cursor.expect("program")?;
        self.program.name = self.name()?.to_string();
        self.cursor.expect("{")?;
        while self.declaration()? {}
        while !self.cursor.accept("return") {
            let step = match self.cursor.kind() {
                Tok::Value => self.computed()?,
                _ if self.cursor.accept("kernel") => Step::Kernel(self.kernel()?),
                _ if self.cursor.accept("contract") => Step::Contract(self.contract()?),
                _ if self.cursor.accept(Op::DebugPrint.name()) => Step::Print(self.print()?),
                _ if self.cursor.accept("loop") => Step::Loop(Box::new(self.repeated()?)),
                _ if self.cursor.accept("bundle") => Step::Bundle(self.bundle()?),
                _ if self.cursor.accept("branch") => Step::Branch(self.branched()?),
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
        self.cursor.expect("}")
    }

    /// `@name`
    pub(super) fn name(&mut self) -> ParseResult<&'s str> {
        self.cursor.take(Tok::Func, "a name such as @f").map(|name| &name[1..])
    }

    /// A buffer's declaration, if one is next.
    fn declaration(&mut self) -> ParseResult<bool> {
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
        let storage = self.storage()?;
        let strides = self.cursor.accept("strides").then(|| self.cursor.extents()).transpose()?;
        let space = match self.cursor.accept("in") {
            true => self.cursor.expect("host").map(|()| Space::Host)?,
            false => Space::Device,
        };
        let donated = role == Role::Input && self.cursor.accept("donated");
        let role = match role {
            Role::Constant(_) => {
                self.cursor.expect("=")?;
                Role::Constant(self.cursor.list("[", "]", |c| c.literal(dtype))?)
            }
            role => role,
        };
        let name_of = name.to_string();
        let data =
            BufferData { name: name_of, dtype, dims, role, storage, strides, space, donated };
        let b = self.program.buffers.push(data);
        if self.names.insert(name, b).is_some() {
            let m = format!("`%{name}` is declared twice");
            return Err(self.cursor.error(span, Kind::Redefinition, m));
        }
        Ok(true)
    }

    /// The buffer of the name that is next.
    pub(super) fn buffer(&mut self) -> ParseResult<Buffer> {
        let span = self.cursor.span();
        let name = self.cursor.take(Tok::Value, "a buffer")?;
        self.names.get(&name[1..]).copied().ok_or_else(|| {
            self.cursor.error(span, Kind::UnknownName, format!("no buffer `{name}`"))
        })
    }

    /// `%x` or `f32(0.5)`
    pub(super) fn operand(&mut self) -> ParseResult<Operand> {
        if self.cursor.kind() == Tok::Value {
            return self.buffer().map(Operand::Buffer);
        }
        let dtype = self.cursor.dtype()?;
        self.cursor.expect("(")?;
        let literal = self.cursor.literal(dtype)?;
        self.cursor.expect(")")?;
        Ok(Operand::Literal(literal))
    }

    /// `as b1`, or nothing.
    fn storage(&mut self) -> ParseResult<Storage> {
        if !self.cursor.accept("as") {
            return Ok(Storage::Plain);
        }
        let widths = [("b1", 1), ("u2", 2), ("u4", 4), ("u8", 8)];
        match widths.into_iter().find(|(word, _)| self.cursor.accept(word)) {
            Some((_, bits)) => Ok(Storage::Packed(bits)),
            None => Err(self.cursor.wrong("`b1`, `u2`, `u4` or `u8`")),
        }
    }

    /// A step that begins with its buffers.
    fn computed(&mut self) -> ParseResult<Step> {
        let out = self.buffer()?;
        let mut outputs = vec![out];
        while self.cursor.accept(",") {
            outputs.push(self.buffer()?);
        }
        self.cursor.expect("=")?;
        if outputs.len() == 1 && self.cursor.accept("transfer") {
            return Ok(Step::Transfer(Transfer { from: self.buffer()?, to: out }));
        }
        if outputs.len() == 1 && self.cursor.accept("scatter") {
            return self.scatter(out).map(Step::Scatter);
        }
        if outputs.len() == 1 && self.cursor.accept("argsort") {
            return self.argsort(out).map(Step::Argsort);
        }
        for op in [Op::Attention, Op::AttentionGrad] {
            if self.cursor.accept(op.name()) {
                let inputs = self.operands()?;
                let reach = self.reach()?;
                let backward = op == Op::AttentionGrad;
                return Ok(Step::Attend(Attend { backward, reach, inputs, outputs }));
            }
        }
        for op in [Op::AllGather, Op::AllToAll, Op::Broadcast, Op::AxisIndex] {
            if outputs.len() == 1 && self.cursor.accept(op.name()) {
                return self.exchange(op, out).map(Step::Exchange);
            }
        }
        if !self.cursor.accept("library") {
            let words = "`scatter`, `argsort`, `attention`, `attention_grad`, `library`, `transfer` or an exchange";
            return Err(self.cursor.wrong(words));
        }
        let function = self.name()?.to_string();
        let inputs = self.operands()?;
        let mut fact = |word: &str, what: &str| {
            if !self.cursor.accept(word) {
                return Ok(0);
            }
            let wrong = self.cursor.wrong(what);
            u64::try_from(self.cursor.int()?).map_err(|_| wrong)
        };
        let scratch = fact("scratch", "a number of bytes")?;
        let operations = fact("operations", "a number of operations")?;
        let bytes = fact("bytes", "a number of bytes")?;
        let library = Library { function, inputs, outputs, scratch, operations, bytes };
        Ok(Step::Library(library))
    }

    /// `%x root 1 over @r ranks 4`, after the op's name.
    fn exchange(&mut self, op: Op, to: Buffer) -> ParseResult<Exchange> {
        let from = if op == Op::AxisIndex { None } else { Some(self.buffer()?) };
        let kind = match op {
            Op::AllGather => ExchangeKind::AllGather,
            Op::AllToAll => ExchangeKind::AllToAll,
            Op::Broadcast => {
                self.cursor.expect("root")?;
                ExchangeKind::Broadcast { root: self.rank()? }
            }
            _ => ExchangeKind::Index,
        };
        self.cursor.expect("over")?;
        let over = self.name()?.to_string();
        self.cursor.expect("ranks")?;
        Ok(Exchange { kind, over, ranks: self.rank()?, from, to })
    }

    fn rank(&mut self) -> ParseResult<u32> {
        let wrong = self.cursor.wrong("a number of ranks");
        u32::try_from(self.cursor.int()?).map_err(|_| wrong)
    }

    /// `(%x, %y)`
    fn operands(&mut self) -> ParseResult<Vec<Buffer>> {
        self.cursor.expect("(")?;
        let mut inputs = Vec::new();
        while !self.cursor.accept(")") {
            if !inputs.is_empty() {
                self.cursor.expect(",")?;
            }
            inputs.push(self.buffer()?);
        }
        Ok(inputs)
    }

    fn scatter(&mut self, out: Buffer) -> ParseResult<Scatter> {
        let from = self.operand()?;
        let domain = self.cursor.extents()?;
        self.cursor.expect("{")?;
        let params = self.params()?;
        let mut program = self.scalars(&params)?;
        let index = self.cursor.index()?;
        self.cursor.expect("=")?;
        let known = Update::ALL.into_iter().find(|u| self.cursor.accept(u.name()));
        let update = known.ok_or_else(|| self.cursor.wrong("`add`, `max`, `min` or `set`"))?;
        let with = self.scalar(&program.insts)?;
        program.outputs.push(with);
        program.params = params.iter().map(|p| p.1).collect();
        let guards = self.cursor.guards()?;
        self.cursor.expect("}")?;
        let params = params.into_iter().map(|p| p.0).collect();
        Ok(Scatter { update, from, out, domain, params, program, index, guards })
    }

    /// ` causal`, ` window [4, 0]`, or nothing
    fn reach(&mut self) -> ParseResult<AttentionReach> {
        if self.cursor.accept("causal") {
            return Ok(AttentionReach::CAUSAL);
        }
        if !self.cursor.accept("window") {
            return Ok(AttentionReach::default());
        }
        let span = self.cursor.span();
        let window = self.cursor.list("[", "]", |c| c.int())?;
        AttentionReach::of_window(&window).map_err(|m| self.cursor.error(span, Kind::Syntax, m))
    }

    /// `%x axis 1 descending`
    fn argsort(&mut self, out: Buffer) -> ParseResult<Argsort> {
        let from = self.buffer()?;
        self.cursor.expect("axis")?;
        let wrong = self.cursor.wrong("an axis");
        let axis = u8::try_from(self.cursor.int()?).map_err(|_| wrong)?;
        Ok(Argsort { from, out, axis, descending: self.cursor.accept("descending") })
    }

    /// `"x" %x`
    fn print(&mut self) -> ParseResult<DebugPrint> {
        let span = self.cursor.span();
        let label = unescape(self.cursor.take(Tok::Str, "a label in quotes")?);
        let wrong = |escape| format!("`{escape}` is no escape");
        let label = label.map_err(|e| self.cursor.error(span, Kind::Syntax, wrong(e)))?;
        Ok(DebugPrint { label, from: self.buffer()? })
    }

    /// `@name { kernel .. kernel .. }`
    fn bundle(&mut self) -> ParseResult<Bundle> {
        let name = self.name()?.to_string();
        self.cursor.expect("{")?;
        let mut kernels = Vec::new();
        while self.cursor.accept("kernel") {
            kernels.push(self.kernel()?);
        }
        self.cursor.expect("}")?;
        Ok(Bundle { name, kernels })
    }

    fn kernel(&mut self) -> ParseResult<Kernel> {
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
        if self.cursor.accept("schedule") {
            kernel.schedule = self.schedule()?;
        }
        while self.cursor.accept("stage") {
            let axes = self.cursor.extents()?;
            let (rows, tiles) = (&kernel.rows, &kernel.tiles);
            let cx = ParseContext { domain: kernel.domain.len(), rows, tiles, sum: None };
            let stage = self.stage(&cx, axes)?;
            kernel.stages.push(stage);
        }
        self.cursor.expect("}")?;
        Ok(kernel)
    }

    /// `order(d1, d0) tiles(32, 64) vector d1`, each of them where it is.
    fn schedule(&mut self) -> ParseResult<Schedule> {
        let axis = |c: &mut Cursor<'_>| {
            let wrong = c.wrong("an axis");
            u8::try_from(c.number_of('d')?).map_err(|_| wrong)
        };
        let mut schedule = Schedule::default();
        if self.cursor.accept("order") {
            schedule.order = self.cursor.list("(", ")", axis)?.into_iter().collect();
        }
        if self.cursor.accept("tiles") {
            schedule.tiles = self.cursor.list("(", ")", Cursor::int)?.into_iter().collect();
        }
        if self.cursor.accept("vector") {
            schedule.vector = Some(axis(&mut self.cursor)?);
        }
        Ok(schedule)
    }
}
