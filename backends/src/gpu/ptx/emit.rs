//! Reading parameters, computing and storing at one coordinate.

use super::operands;
use crate::gpu::launches::{Arg, TensorMap};
use crate::gpu::schedule::BlockBinding;
use crate::gpu::schedule::scalar_form::written;
use crate::gpu::schedule::vectorize;

use super::address::{Datum, Truth, Vars, holds, long, resolved, value};
use super::asm::{Asm, Class, Reg, guard_prefix};
use super::convert::narrowed;
use super::isel;
use super::operands::{class, constant};
use crate::gpu::schedule::index::{data_of, split};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Operand, Param, Piece, Program, Stage, Storage};
use adfuse_ir::scalar::ScalarProgram;
use adfuse_ir::{DType, Fp};
use cranelift_entity::SecondaryMap;

/// Writes an entry point of a program.
pub(crate) struct Emit<'p> {
    pub(crate) asm: Asm,
    pub(crate) program: &'p Program,
    pub(crate) fp: Fp,
    /// What it is given, in the order of its parameters.
    pub(crate) args: Vec<EmitArg>,
    /// The tensor maps that it is given after those.
    pub(crate) maps: Vec<EmitMap>,
    /// Where the buffers of a block are.
    pub(crate) bindings: Option<&'p SecondaryMap<Buffer, BlockBinding>>,
    /// Buffers in whose place others may be: one text is for several arrays of one form.
    pub(crate) choices: Vec<BufferChoice>,
}

/// The buffers of which one is meant where the first is mentioned.
pub(crate) struct BufferChoice {
    pub(crate) first: Buffer,
    /// The others, each where `number` is this.
    pub(crate) others: Vec<(usize, Buffer)>,
    pub(crate) number: Reg,
}

/// What an entry point is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EmitArg {
    /// Where a buffer is.
    Buffer(Buffer),
    /// Where the position of a loop's turn is.
    Position,
}

/// A tensor map that an entry point is given: of a buffer, from an element on.
pub(crate) struct EmitMap {
    pub(crate) buffer: Buffer,
    /// All but where the array is.
    pub(crate) map: TensorMap,
}

impl EmitMap {
    /// The map, where buffers are there.
    pub(crate) fn at(&self, buffer: &dyn Fn(Buffer) -> Arg) -> TensorMap {
        TensorMap { arg: buffer(self.buffer), ..self.map.clone() }
    }
}

/// Where something is computed: coordinates in terms of the launch's variables.
pub(crate) struct At<'a> {
    pub(crate) vars: &'a Vars,
    pub(crate) coords: &'a [IndexExpr],
}

/// An element in memory: a register and a constant number of bytes.
pub(crate) struct Address {
    pub(super) base: Reg,
    pub(super) offset: i64,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.offset {
            0 => write!(f, "[{}]", self.base),
            k => write!(f, "[{}+{k}]", self.base),
        }
    }
}

/// How loads and stores spell a type of plain elements.
pub(crate) fn memory(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "f64",
        DType::I64 => "b64",
        DType::F32 => "f32",
        DType::BF16 | DType::F16 => "b16",
        DType::I8 => "s8",
        DType::U8 | DType::Bool => "u8",
        _ => "b32",
    }
}

impl<'p> Emit<'p> {
    pub(crate) fn new(program: &'p Program, fp: Fp) -> Emit<'p> {
        let mut asm = Asm::new();
        asm.near = fp == Fp::Fast;
        let (args, maps, choices) = (Vec::new(), Vec::new(), Vec::new());
        Emit { asm, program, fp, args, maps, bindings: None, choices }
    }

    /// Where a buffer is.
    pub(crate) fn pointer(&mut self, b: Buffer) -> Reg {
        let mut found = self.pointer_of(b);
        let choice = self.choices.iter().find(|choice| choice.first == b);
        let Some((others, number)) = choice.map(|c| (c.others.clone(), c.number)) else {
            return found;
        };
        for (k, other) in others {
            let other = self.pointer_of(other);
            let own = self.asm.pure(Class::Pred, "setp.eq.s32", format_args!("{number}, {k}"));
            let args = format_args!("{other}, {found}, {own}").to_string();
            found = self.asm.pure(Class::Long, "selp.b64", args);
        }
        found
    }

    /// Where just this buffer is.
    fn pointer_of(&mut self, b: Buffer) -> Reg {
        let number = self.argument(EmitArg::Buffer(b));
        let binding = self.bindings.map(|all| all[b]);
        if let Some(BlockBinding::Element(_)) = binding {
            let position = self.argument(EmitArg::Position);
            return self.asm.pointer_at(number, position, self.program.buffers[b].bytes());
        }
        self.asm.pointer(number)
    }

    /// The number of a parameter.
    fn argument(&mut self, arg: EmitArg) -> u32 {
        let number = self.args.iter().position(|&a| a == arg).unwrap_or_else(|| {
            self.args.push(arg);
            self.args.len() - 1
        });
        number as u32
    }

    /// A program as it is computed, in the kernel's mode: [`written`].
    pub(crate) fn written(&self, program: &ScalarProgram) -> ScalarProgram {
        written(program, self.fp)
    }

    /// The number of elements of memory before an element, as an expression of the variables; 0 where no text is written.
    pub(crate) fn element(&self, b: Buffer, index: &[IndexExpr], at: &At<'_>) -> IndexExpr {
        if !self.asm.writes {
            return IndexExpr::Const(0);
        }
        vectorize::element(self.program, b, index, (at.coords, &at.vars.extents))
    }

    /// The address of an element that is this many elements of this many bytes from the beginning.
    pub(crate) fn address(
        &mut self,
        b: Buffer,
        element: &IndexExpr,
        size: u64,
        vars: &Vars,
        data: &[Datum],
    ) -> Address {
        let base = self.pointer(b);
        if !self.asm.writes {
            return Address { base, offset: 0 };
        }
        let (rest, constant) = split(element);
        let near = constant.unsigned_abs() * size < 1 << 20;
        let (rest, offset) = match near {
            true => (rest, constant * size as i64),
            false => (element.clone(), 0),
        };
        if rest == IndexExpr::Const(0) {
            return Address { base, offset };
        }
        let x = value(&mut self.asm, &rest, vars, data);
        let op = if x.class == Class::Word { "mad.wide.s32" } else { "mad.lo.s64" };
        let base = self.asm.pure(Class::Long, op, format_args!("{x}, {size}, {base}"));
        Address { base, offset }
    }

    /// An address in one register.
    pub(super) fn whole(&mut self, address: &Address) -> Reg {
        match address.offset {
            0 => address.base,
            k => self.asm.pure(Class::Long, "add.s64", format_args!("{}, {k}", address.base)),
        }
    }

    /// An address in one register, which may be moved.
    pub(crate) fn moving(&mut self, address: &Address) -> Reg {
        let to = self.asm.fresh(Class::Long);
        self.asm.emit(format_args!("add.s64 {to}, {}, {}", address.base, address.offset));
        to
    }

    /// The parameters that a program needs, read at one coordinate; those that are given are taken.
    pub(crate) fn params(
        &mut self,
        params: &[Param],
        program: &ScalarProgram,
        at: &At<'_>,
        given: &mut dyn FnMut(&mut Self, usize, &Param) -> Option<Reg>,
    ) -> (Vec<Option<Reg>>, Vec<Datum>) {
        let needed = needed(params, program);
        let (mut regs, mut data): (Vec<Option<Reg>>, Vec<Datum>) = (Vec::new(), Vec::new());
        for (k, param) in params.iter().enumerate() {
            let dtype = program.params.get(k).copied().unwrap_or(DType::F32);
            let reg = match param {
                _ if !needed[k] => None,
                param => given(self, k, param).or_else(|| match param {
                    Param::Load(pieces) => Some(self.load(pieces, dtype, at, &data)),
                    Param::Coord(e) => {
                        let e = resolved(e, at.coords, at.vars);
                        Some(long(&mut self.asm, &e, at.vars, &data))
                    }
                    Param::Row(_) | Param::Tile(_) | Param::Sum => None,
                }),
            };
            regs.push(reg);
            data.push(reg.filter(|_| dtype.is_int()).map(|r| (r, dtype)));
        }
        (regs, data)
    }

    /// An element, through the first piece whose guards hold.
    pub(crate) fn load(
        &mut self,
        pieces: &[Piece],
        dtype: DType,
        at: &At<'_>,
        data: &[Datum],
    ) -> Reg {
        if let [piece] = pieces {
            let raw = self.fetch(piece, dtype, at, data, None, None);
            return self.fetched(piece, raw, dtype);
        }
        // All pieces leave what they find in one register, in the form of plain elements.
        let form = if dtype == DType::Bool { Class::Word } else { class(dtype) };
        let into = self.asm.fresh(form);
        let mut before: Option<Reg> = None;
        for piece in pieces {
            let now = match holds(&mut self.asm, &piece.guards, at.coords, at.vars, data) {
                Truth::Never => continue,
                Truth::Always => None,
                Truth::When(p) => Some(p),
            };
            let when = match (before, now) {
                (None, now) => now,
                (Some(q), None) => Some(operands::not(&mut self.asm, q)),
                (Some(q), Some(p)) => {
                    let not = operands::not(&mut self.asm, q);
                    Some(operands::both(&mut self.asm, not, p))
                }
            };
            // What is addressed by guarded expressions is computed under no condition; only the access has one.
            let raw = self.fetch(piece, dtype, at, data, when, Some(into));
            let _ = raw;
            before = match (before, now) {
                (_, None) => break,
                (None, Some(p)) => Some(p),
                (Some(q), Some(p)) => {
                    Some(self.asm.pure(Class::Pred, "or.pred", format_args!("{q}, {p}")))
                }
            };
        }
        match dtype {
            DType::Bool => self.asm.pure(Class::Pred, "setp.ne.s32", format_args!("{into}, 0")),
            _ => into,
        }
    }

    /// The bits that a piece finds, under a condition and into a register where they are given.
    fn fetch(
        &mut self,
        piece: &Piece,
        dtype: DType,
        at: &At<'_>,
        data: &[Datum],
        when: Option<Reg>,
        into: Option<Reg>,
    ) -> Reg {
        let prefix = guard_prefix(when);
        let form = if dtype == DType::Bool { Class::Word } else { class(dtype) };
        let b = match piece.from {
            Operand::Literal(l) => {
                let value = match l.dtype() {
                    DType::Bool => self.asm.word(l.bits() as i64),
                    _ => constant(&mut self.asm, l),
                };
                let Some(into) = into else { return value };
                let moved = form.moved();
                self.asm.emit(format_args!("{prefix}mov.{moved} {into}, {value}"));
                return into;
            }
            Operand::Buffer(b) => b,
        };
        let element = self.element(b, &piece.index, at);
        match self.program.buffers[b].storage {
            Storage::Plain => {
                let address = self.address(b, &element, dtype.bytes(), at.vars, data);
                let op = format!("ld.global.nc.{}", memory(dtype));
                match into {
                    None => self.asm.pure(form, &op, address),
                    Some(into) => {
                        self.asm.emit(format_args!("{prefix}{op} {into}, {address}"));
                        into
                    }
                }
            }
            Storage::Packed(bits) => {
                let each = i64::from(32 / u32::from(bits.max(1)));
                let (word, rest) = (
                    resolved(&element.clone().floor_div(each), &self.same(at.vars), at.vars),
                    resolved(&element.modulo(each), &self.same(at.vars), at.vars),
                );
                let address = self.address(b, &word, 4, at.vars, data);
                let found = match when {
                    None => self.asm.pure(Class::Word, "ld.global.nc.b32", address),
                    Some(_) => {
                        let found = self.asm.fresh(Class::Word);
                        self.asm.emit(format_args!("mov.b32 {found}, 0"));
                        self.asm.emit(format_args!("{prefix}ld.global.nc.b32 {found}, {address}"));
                        found
                    }
                };
                let rest = value(&mut self.asm, &rest, at.vars, data);
                let low = match rest.class {
                    Class::Long => self.asm.pure(Class::Word, "cvt.u32.u64", rest),
                    _ => rest,
                };
                let shift = self.asm.pure(Class::Word, "mul.lo.s32", format_args!("{low}, {bits}"));
                let value =
                    self.asm.pure(Class::Word, "bfe.u32", format_args!("{found}, {shift}, {bits}"));
                let value = match dtype {
                    DType::I64 => self.asm.pure(Class::Long, "cvt.u64.u32", value),
                    d => narrowed(&mut self.asm, value, d),
                };
                let Some(into) = into else { return value };
                let moved = form.moved();
                self.asm.emit(format_args!("{prefix}mov.{moved} {into}, {value}"));
                into
            }
        }
    }

    fn fetched(&mut self, piece: &Piece, raw: Reg, dtype: DType) -> Reg {
        match (dtype, piece.from) {
            (DType::Bool, Operand::Literal(l)) => constant(&mut self.asm, l),
            (DType::Bool, _) => self.asm.pure(Class::Pred, "setp.ne.s32", format_args!("{raw}, 0")),
            _ => raw,
        }
    }

    /// The element of a buffer at its own coordinates.
    pub(crate) fn element_of(&mut self, b: Buffer, at: &At<'_>) -> Reg {
        let dtype = self.program.buffers[b].dtype;
        let index = (0..at.coords.len()).map(IndexExpr::axis).collect();
        let piece = Piece { from: Operand::Buffer(b), index, guards: Default::default() };
        self.load(&[piece], dtype, at, &[])
    }

    /// Variables as expressions of themselves.
    pub(crate) fn same(&self, vars: &Vars) -> Vec<IndexExpr> {
        (0..vars.extents.len()).map(IndexExpr::axis).collect()
    }

    /// The outputs of a stage without rows and tiles at one coordinate, but for what is given.
    pub(crate) fn outputs(
        &mut self,
        stage: &Stage,
        program: &ScalarProgram,
        at: &At<'_>,
        given: &mut dyn FnMut(&mut Self, usize, &Param) -> Option<Reg>,
    ) -> Vec<Reg> {
        let (regs, _) = self.params(&stage.params, program, at, given);
        isel::outputs(&mut self.asm, program, &regs)
    }

    /// Stores an element of a plain buffer, under a condition where there is one.
    pub(crate) fn store(
        &mut self,
        b: Buffer,
        index: &[IndexExpr],
        value: Reg,
        at: &At<'_>,
        when: Option<Reg>,
    ) {
        let dtype = self.program.buffers[b].dtype;
        let element = self.element(b, index, at);
        let address = self.address(b, &element, dtype.bytes(), at.vars, &[]);
        let value = self.plain(value, dtype);
        let prefix = guard_prefix(when);
        let spelled = match dtype {
            DType::I8 | DType::U8 | DType::Bool => "b8",
            d => memory(d),
        };
        self.asm.emit(format_args!("{prefix}st.global.{spelled} {address}, {value}"));
    }

    /// A value as memory has it.
    pub(crate) fn plain(&mut self, value: Reg, dtype: DType) -> Reg {
        match dtype {
            DType::Bool => self.asm.pure(Class::Word, "selp.b32", format_args!("1, 0, {value}")),
            _ => value,
        }
    }
}

/// Which parameters something depends on: outputs, and places of parameters that are needed.
fn needed(params: &[Param], program: &ScalarProgram) -> Vec<bool> {
    let mut needed = program.params_read();
    for k in (0..params.len()).rev() {
        if !needed[k] {
            continue;
        }
        let mut mark = |e: &IndexExpr| {
            data_of(e, &mut |p| {
                if let Some(n) = needed.get_mut(p) {
                    *n = true;
                }
            })
        };
        params[k].expressions().for_each(&mut mark);
    }
    needed
}
