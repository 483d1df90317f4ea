//! One step for one instruction: elementwise ops, sources, views, contractions, fills.

use crate::lower::Lower;
use adfuse_ir::attrs::Ints;
use adfuse_ir::index::{IndexExpr, ViewMap};
use adfuse_ir::kernel::{
    Buffer, Contract, Extents, Kernel, Operand, Param, Piece, Sink, Stage, Step,
};
use adfuse_ir::op::ViewCx;
use adfuse_ir::scalar::{Recorder, SOp, ScalarProgram};
use adfuse_ir::{DType, Inst, Literal};
use smallvec::SmallVec;

/// The coordinates `d{from}`, .. of `n` axes.
pub(crate) fn axes(from: usize, n: usize) -> SmallVec<[IndexExpr; 4]> {
    (from..from + n).map(IndexExpr::axis).collect()
}

/// Reads a whole operand at these coordinates, a literal at none.
pub(crate) fn load(from: Operand, index: SmallVec<[IndexExpr; 4]>) -> Param {
    Param::Load(SmallVec::from_iter([piece(from, index)]))
}

/// One piece without guards.
pub(crate) fn piece(from: Operand, index: SmallVec<[IndexExpr; 4]>) -> Piece {
    let index = if matches!(from, Operand::Literal(_)) { SmallVec::new() } else { index };
    Piece { from, index, guards: SmallVec::new() }
}

/// Reads through the first piece whose guards hold, where for every coordinate some piece's do: where
/// no other applies, the last one does.
pub(crate) fn choice(pieces: impl IntoIterator<Item = Piece>) -> Param {
    let mut kept: SmallVec<[Piece; 1]> = SmallVec::new();
    for piece in pieces {
        let always = piece.guards.is_empty();
        kept.push(piece);
        if always {
            break;
        }
    }
    if let Some(last) = kept.last_mut() {
        last.guards.clear();
    }
    Param::Load(kept)
}

/// The program that gives its one parameter, converted.
pub(crate) fn convert(from: DType, to: DType) -> ScalarProgram {
    Recorder::record_any(&[from], |x| x[0].convert(to))
}

/// The program that gives the last of its parameters.
pub(crate) fn last(params: &[DType]) -> ScalarProgram {
    Recorder::record_any(params, |x| x[x.len() - 1])
}

/// A kernel of one stage without axes that stores its one output at the domain's coordinates.
pub(crate) fn pointwise(
    l: &Lower<'_>,
    name: &str,
    out: Buffer,
    params: Vec<Param>,
    program: ScalarProgram,
) -> Kernel {
    let domain: Extents = l.extents(out).clone();
    let index = axes(0, domain.len());
    let sinks = vec![Sink::Store { buffer: out, index }];
    let stage = Stage { axes: Extents::new(), params, program, sinks };
    Kernel { name: name.into(), domain, stages: vec![stage], ..Kernel::default() }
}

/// A kernel that fills a buffer with one value.
pub(crate) fn fill(l: &Lower<'_>, out: Buffer, value: Literal) -> Kernel {
    let mut program = ScalarProgram::default();
    let (op, dtype) = (SOp::Const(value), value.dtype());
    let v = program.insts.push(adfuse_ir::scalar::SInst { op, args: SmallVec::new(), dtype });
    program.outputs.push(v);
    pointwise(l, "fill", out, Vec::new(), program)
}

fn one(kernel: Kernel) -> Option<Vec<Step>> {
    Some(vec![Step::Kernel(kernel)])
}

/// An elementwise op. Literal operands are constants of its program.
pub(crate) fn map(l: &Lower<'_>, i: Inst) -> Option<Vec<Step>> {
    let f = l.f;
    let out = l.results_of(i).next()?;
    let dtypes: SmallVec<[DType; 4]> = f.args(i).iter().map(|&v| f.ty(v).dtype).collect();
    let result = l.program.buffers[out].dtype;
    let program = f.op(i).scalar_program(&dtypes, result, f.attrs(i))?;
    let operands: Vec<Operand> = f.args(i).iter().map(|&v| l.operand(v)).collect();
    let rank = l.extents(out).len();
    let (program, kept) = fold_literals(&program, &operands);
    let params = kept.into_iter().map(|o| load(o, axes(0, rank))).collect();
    one(pointwise(l, f.op(i).name(), out, params, program))
}

/// The program with the parameters that are literals made constants, and the operands that remain.
fn fold_literals(program: &ScalarProgram, operands: &[Operand]) -> (ScalarProgram, Vec<Operand>) {
    let mut folded = program.clone();
    let mut kept = Vec::new();
    folded.params.clear();
    // The number that each parameter has afterwards.
    let mut numbers: SmallVec<[Option<u32>; 4]> = SmallVec::new();
    for (&o, &dtype) in operands.iter().zip(&program.params) {
        let number = matches!(o, Operand::Buffer(_)).then_some(kept.len() as u32);
        numbers.push(number);
        if number.is_some() {
            kept.push(o);
            folded.params.push(dtype);
        }
    }
    for inst in folded.insts.values_mut() {
        if let SOp::Param(k) = inst.op {
            inst.op = match (numbers[k as usize], operands[k as usize]) {
                (Some(number), _) => SOp::Param(number),
                (None, Operand::Literal(value)) => SOp::Const(value),
                (None, Operand::Buffer(_)) => inst.op,
            };
        }
    }
    (folded, kept)
}

/// Values computed from their place.
pub(crate) fn source(l: &Lower<'_>, i: Inst) -> Option<Vec<Step>> {
    let f = l.f;
    let out = l.results_of(i).next()?;
    let dtypes: SmallVec<[DType; 4]> = f.args(i).iter().map(|&v| f.ty(v).dtype).collect();
    let program = f.op(i).source_program(&dtypes, l.program.buffers[out].dtype)?;
    let dims = l.extents(out);
    let mut linear = IndexExpr::Const(0);
    for (d, &n) in dims.iter().enumerate() {
        linear = linear.times(n).sum(IndexExpr::axis(d));
    }
    let axis = usize::try_from(f.attrs(i).int("axis")).unwrap_or(0);
    let along = if axis < dims.len() { IndexExpr::axis(axis) } else { IndexExpr::Const(0) };
    let mut params = vec![Param::Coord(linear), Param::Coord(along)];
    params.extend(f.args(i).iter().map(|&v| load(l.operand(v), SmallVec::new())));
    one(pointwise(l, f.op(i).name(), out, params, program))
}

/// A pure change of index: a kernel for each result.
pub(crate) fn view(l: &Lower<'_>, i: Inst, index: fn(&ViewCx<'_>) -> ViewMap) -> Vec<Step> {
    let f = l.f;
    let args: Vec<Extents> = f.args(i).iter().map(|&v| l.dims(v).unwrap_or_default()).collect();
    let kernel = |(result, out): (usize, Buffer)| {
        let attrs = f.attrs(i);
        let map = index(&ViewCx { args: &args, out: l.extents(out), result, attrs });
        let pieces = map.pieces.into_iter().map(|p| Piece {
            guards: p.guards,
            ..piece(l.operand(f.args(i)[p.operand as usize]), p.index)
        });
        let read = choice(pieces);
        let program = last(&[l.program.buffers[out].dtype]);
        Step::Kernel(pointwise(l, f.op(i).name(), out, vec![read], program))
    };
    l.results_of(i).enumerate().map(kernel).collect()
}

/// Sums of products.
pub(crate) fn contract(l: &Lower<'_>, i: Inst) -> Option<Vec<Step>> {
    let f = l.f;
    let pair = |name: &str| {
        let (x, y) = f.attrs(i).pair(name);
        (Ints::from_slice(x), Ints::from_slice(y))
    };
    Some(vec![Step::Contract(Contract {
        lhs: l.buffer(f.args(i)[0])?,
        rhs: l.buffer(f.args(i)[1])?,
        out: l.results_of(i).next()?,
        batch: pair("batch"),
        contract: pair("contract"),
    })])
}
