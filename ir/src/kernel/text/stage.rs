//! Stages: parameters, scalar programs, sinks.

use super::cursor::ParseResult;
use super::parser::{ParseContext, ProgramParser};
use crate::diag::Kind;
use crate::dtype::DType;
use crate::kernel::buffer::Extents;
use crate::kernel::stage::{Operand, Order, Param, Piece, Row, Run, Sink, Stage, Tile};
use crate::op::Monoid;
use crate::scalar::{Prim, SInst, SOp, SVal, ScalarProgram, Table};
use crate::text::lexer::Tok;
use cranelift_entity::{EntityRef, PrimaryMap};
use smallvec::SmallVec;

/// A parameter and, where it is read off a buffer or a constant, its type.
pub(super) type Typed = (Param, DType);

impl ProgramParser<'_> {
    /// `{ .. }` of a stage over these axes.
    pub(super) fn stage(&mut self, cx: &ParseContext<'_>, axes: Extents) -> ParseResult<Stage> {
        self.cursor.expect("{")?;
        let mut params = self.params()?;
        for (param, dtype) in &mut params {
            match param {
                Param::Row(r) => match cx.rows.get(*r) {
                    Some(&d) => *dtype = d,
                    None => return Err(self.undeclared(&r.to_string())),
                },
                Param::Tile(t) => match cx.tiles.get(*t) {
                    Some(data) => *dtype = data.dtype,
                    None => return Err(self.undeclared(&t.to_string())),
                },
                Param::Sum => *dtype = cx.sum.unwrap_or(DType::Token),
                Param::Load(_) | Param::Coord(_) => {}
            }
        }
        let mut program = self.scalars(&params)?;
        let mut sinks = Vec::new();
        while !self.cursor.accept("}") {
            let (sink, v) = self.sink(cx, axes.len(), &program.insts)?;
            sinks.push(sink);
            program.outputs.push(v);
        }
        let params = params.into_iter().map(|p| p.0).collect();
        Ok(Stage { axes, params, program, sinks })
    }

    fn undeclared(&self, name: &str) -> crate::diag::Diagnostic {
        self.cursor.error(self.cursor.span(), Kind::UnknownName, format!("no `{name}` here"))
    }

    /// `p0 = load %x[d0]`, .. : all that are next.
    pub(super) fn params(&mut self) -> ParseResult<Vec<Typed>> {
        let mut params = Vec::new();
        while self.cursor.numbered('p').is_some() {
            self.cursor.defines('p', params.len())?;
            self.cursor.expect("=")?;
            params.push(self.param()?);
        }
        Ok(params)
    }

    fn param(&mut self) -> ParseResult<Typed> {
        if let Some(r) = self.cursor.numbered('r') {
            self.cursor.next();
            return Ok((Param::Row(Row::from_u32(r)), DType::Token));
        }
        if let Some(t) = self.cursor.numbered('t') {
            self.cursor.next();
            return Ok((Param::Tile(Tile::from_u32(t)), DType::Token));
        }
        if self.cursor.accept("sum") {
            return Ok((Param::Sum, DType::Token));
        }
        if self.cursor.accept("coord") {
            return Ok((Param::Coord(self.cursor.expr()?), DType::I64));
        }
        self.cursor.expect("load")?;
        let mut pieces = SmallVec::new();
        let first = self.piece()?;
        let dtype = match first.from {
            Operand::Buffer(b) => self.program.buffers[b].dtype,
            Operand::Literal(l) => l.dtype(),
        };
        pieces.push(first);
        while self.cursor.accept("else") {
            pieces.push(self.piece()?);
        }
        Ok((Param::Load(pieces), dtype))
    }

    fn piece(&mut self) -> ParseResult<Piece> {
        let from = self.operand()?;
        let index = match from {
            Operand::Buffer(_) => self.cursor.index()?,
            Operand::Literal(_) => SmallVec::new(),
        };
        Ok(Piece { from, index, guards: self.cursor.guards()? })
    }

    /// `s0 = mul.f32 s1 s2`, .. : all that are next. Outputs are left to what follows.
    pub(super) fn scalars(&mut self, params: &[Typed]) -> ParseResult<ScalarProgram> {
        let mut program = ScalarProgram::default();
        program.params.extend(params.iter().map(|p| p.1));
        while self.cursor.numbered('s').is_some() {
            self.cursor.defines('s', program.insts.len())?;
            self.cursor.expect("=")?;
            let inst = self.inst(&program.insts)?;
            program.insts.push(inst);
        }
        Ok(program)
    }

    fn inst(&mut self, insts: &PrimaryMap<SVal, SInst>) -> ParseResult<SInst> {
        let span = self.cursor.span();
        let word = self.cursor.take(Tok::Ident, "a scalar operation")?;
        let (name, dtype) = word.rsplit_once('.').unwrap_or((word, ""));
        let unknown = |p: &Self, m: String| p.cursor.error(span, Kind::UnknownOp, m);
        let dtype: DType = dtype
            .parse()
            .map_err(|()| unknown(self, format!("`{word}` does not end in an element type")))?;
        let op = match name {
            "param" => {
                let k = self.cursor.int()?;
                let k = u32::try_from(k);
                SOp::Param(k.map_err(|_| unknown(self, "no such parameter".into()))?)
            }
            "const" => SOp::Const(self.cursor.literal(dtype)?),
            "lookup" => {
                let table = Table::TwoOverPi;
                self.cursor.expect(&format!("{table:?}"))?;
                SOp::Prim(Prim::Lookup(table))
            }
            _ => match self.ops.get(name) {
                Some(&op) => op,
                None => return Err(unknown(self, format!("no scalar operation `{name}`"))),
            },
        };
        let arity = match op {
            SOp::Param(_) | SOp::Const(_) => 0,
            SOp::Prim(p) => p.arity(),
            SOp::Func(f) => f.arity(),
        };
        let mut args = SmallVec::new();
        for _ in 0..arity {
            args.push(self.scalar(insts)?);
        }
        Ok(SInst { op, args, dtype })
    }

    /// A value that is defined already.
    pub(super) fn scalar(&mut self, insts: &PrimaryMap<SVal, SInst>) -> ParseResult<SVal> {
        let span = self.cursor.span();
        let v = SVal::from_u32(self.cursor.number_of('s')?);
        match insts.is_valid(v) {
            true => Ok(v),
            false => {
                let m = format!("{v} is not defined before");
                Err(self.cursor.error(span, Kind::Dominance, m))
            }
        }
    }

    fn sink(
        &mut self,
        cx: &ParseContext<'_>,
        axes: usize,
        insts: &PrimaryMap<SVal, SInst>,
    ) -> ParseResult<(Sink, SVal)> {
        if self.cursor.kind() == Tok::Value {
            let buffer = self.buffer()?;
            let index = self.cursor.index()?;
            self.cursor.expect("=")?;
            if self.cursor.accept("store") {
                return Ok((Sink::Store { buffer, index }, self.scalar(insts)?));
            }
            let monoid = self.monoid("fold.", "`store` or `fold.` and a monoid")?;
            let v = self.scalar(insts)?;
            let runs = self.runs(0, cx.domain + axes)?;
            let dtype = self.program.buffers[buffer].dtype;
            let then = Stage::storing(folded(monoid, insts[v].dtype), buffer, dtype, index);
            return Ok((Sink::Fold { monoid, runs, then: Box::new(then) }, v));
        }
        if self.cursor.text().starts_with("fold.") {
            let monoid = self.monoid("fold.", "`fold.` and a monoid")?;
            let v = self.scalar(insts)?;
            let runs = self.runs(0, cx.domain + axes)?;
            if self.within_fold {
                return Err(self.cursor.wrong("a sink that folds nothing"));
            }
            let sum = Some(folded(monoid, insts[v].dtype));
            // A fold that follows a fold is no program: texts do not nest without end.
            let outer = std::mem::replace(&mut self.within_fold, true);
            let domain = cx.domain + axes;
            let then = self.stage(&ParseContext { domain, sum, ..*cx }, Extents::new());
            self.within_fold = outer;
            return Ok((Sink::Fold { monoid, runs, then: Box::new(then?) }, v));
        }
        if let Some(r) = self.cursor.numbered('r') {
            let into = Row::from_u32(r);
            if !cx.rows.is_valid(into) {
                return Err(self.undeclared(&into.to_string()));
            }
            self.cursor.next();
            self.cursor.expect("=")?;
            if self.cursor.accept("leave") {
                return Ok((Sink::Leave(into), self.scalar(insts)?));
            }
            let monoid = self.monoid("reduce.", "`leave` or `reduce.` and a monoid")?;
            let v = self.scalar(insts)?;
            let runs = self.runs(cx.domain, axes)?;
            return Ok((Sink::Reduce { monoid, runs, into }, v));
        }
        let Some(t) = self.cursor.numbered('t') else {
            return Err(self.cursor.wrong("a parameter, a value, a sink or `}`"));
        };
        let into = Tile::new(t as usize);
        if !cx.tiles.is_valid(into) {
            return Err(self.undeclared(&into.to_string()));
        }
        self.cursor.next();
        self.cursor.expect("=")?;
        if self.cursor.accept("keep") {
            return Ok((Sink::Keep(into), self.scalar(insts)?));
        }
        let monoid = self.monoid("scan.", "`keep` or `scan.` and a monoid")?;
        let v = self.scalar(insts)?;
        let axis = axis(&mut self.cursor, cx.domain, axes)?;
        let reverse = self.cursor.accept("reverse");
        Ok((Sink::Scan { monoid, axis, reverse, into }, v))
    }

    /// `lane(d1) chain(d0)`: all that are next, of these many axes from the first on.
    fn runs(&mut self, first: usize, axes: usize) -> ParseResult<SmallVec<[Run; 2]>> {
        let mut runs = SmallVec::new();
        while let Some(order) =
            [Order::Lane, Order::Chain].into_iter().find(|o| self.cursor.is(o.name()))
        {
            self.cursor.next();
            let axes = self.cursor.list("(", ")", |c| axis(c, first, axes))?.into_iter().collect();
            runs.push(Run { axes, order });
        }
        Ok(runs)
    }

    /// `reduce.sum`
    fn monoid(&mut self, before: &str, wanted: &str) -> ParseResult<Monoid> {
        let name = self.cursor.text().strip_prefix(before);
        let monoid = name.and_then(|n| Monoid::ALL.into_iter().find(|m| m.name() == n));
        let monoid = monoid.ok_or_else(|| self.cursor.wrong(wanted))?;
        self.cursor.next();
        Ok(monoid)
    }
}

/// The type of what elements of a type fold to; their own where they do not fold so.
fn folded(monoid: Monoid, dtype: DType) -> DType {
    monoid.result(dtype).unwrap_or(dtype)
}

/// An axis by its coordinate's name, as its number among these many from the first on.
fn axis(cursor: &mut super::cursor::Cursor<'_>, first: usize, axes: usize) -> ParseResult<u8> {
    let wrong = cursor.wrong("an axis that may be named here");
    let d = cursor.number_of('d')? as usize;
    let number = d.checked_sub(first).filter(|&a| a < axes);
    number.and_then(|a| u8::try_from(a).ok()).ok_or(wrong)
}
