//! Spreads what is read from several arrays, such as the operands of a concatenation, over several reads along short lines.
//!
//! A long line is divided where one array ends and the next begins. A line of a few elements would become segments of one
//! or two, each with all of the line's invariants. So each array is read by itself in the lanes that it has, and as zeros in others: the bits of
//! all of them together are the elements.

use super::affine_form::mentions;
use super::loop_ir::Sweep;
use adfuse_ir::index::{Guard, IndexExpr};
use adfuse_ir::kernel::{Operand, Param, Piece};
use adfuse_ir::scalar::{Prim, SInst, SOp, SVal, ScalarProgram};
use adfuse_ir::{DType, Literal};
use cranelift_entity::SecondaryMap;
use smallvec::{SmallVec, smallvec};

/// The most elements of a line along which reads are spread.
const SHORT: i64 = 16;

/// The parameters and the scalar program of a sweep whose reads are spread.
pub(crate) struct SpreadSources {
    pub(crate) params: Vec<Param>,
    pub(crate) body: ScalarProgram,
}

/// What is read from arrays that lie one after the other along an axis.
struct AdjacentSources<'p> {
    pieces: &'p [Piece],
    /// Where each begins, and where the last one ends.
    ends: SmallVec<[i64; 8]>,
}

impl<'p> AdjacentSources<'p> {
    fn of(sweep: &'p Sweep<'_>, param: &'p Param, axis: usize) -> Option<AdjacentSources<'p>> {
        let Param::Load(pieces) = param else { return None };
        let (last, others) = pieces.split_last()?;
        let array = |piece: &Piece| match piece.from {
            Operand::Buffer(b) => {
                let data = &sweep.program.buffers[b];
                // Integers may be places of other reads.
                data.dtype.is_float() && data.dtype.bytes() >= 4
            }
            Operand::Literal(_) => false,
        };
        if others.is_empty() || !last.guards.is_empty() || !pieces.iter().all(array) {
            return None;
        }
        let mut ends: SmallVec<[i64; 8]> = smallvec![0];
        for piece in others {
            let [Guard { expr, range }] = piece.guards.as_slice() else { return None };
            if *expr != IndexExpr::axis(axis) || Some(&range.start) != ends.last() {
                return None;
            }
            ends.push(range.end);
        }
        ends.push(*sweep.extents.get(axis)?);
        ends.is_sorted().then_some(AdjacentSources { pieces, ends })
    }
}

/// The sweep with its reads spread along short lines; `None` where its lines are long or nothing is read from several arrays along them.
pub(crate) fn spread_sources(sweep: &Sweep<'_>) -> Option<SpreadSources> {
    let inner = sweep.extents.len().checked_sub(1)?;
    if !(2..=SHORT).contains(&sweep.extents[inner]) {
        return None;
    }
    // What is not spread divides the line all the same.
    let divides = |param: &Param| match param {
        Param::Load(pieces) if AdjacentSources::of(sweep, param, inner).is_none() => {
            !matches!(pieces.as_slice(), [_] | [_, Piece { from: Operand::Literal(_), .. }])
        }
        _ => false,
    };
    if sweep.params.iter().any(divides) { None } else { spread_along(sweep, inner) }
}

/// The sweep with its reads spread that change from one array to the next along an axis around the lines; `None` where none does.
pub(crate) fn spread_around(sweep: &Sweep<'_>) -> Option<SpreadSources> {
    let inner = sweep.extents.len().checked_sub(1)?;
    (0..inner).find_map(|axis| spread_along(sweep, axis))
}

fn spread_along(sweep: &Sweep<'_>, axis: usize) -> Option<SpreadSources> {
    let all: Vec<Option<AdjacentSources<'_>>> =
        sweep.params.iter().map(|param| AdjacentSources::of(sweep, param, axis)).collect();
    if all.iter().all(Option::is_none) {
        return None;
    }
    let mut made = SpreadSources { params: sweep.params.to_vec(), body: ScalarProgram::default() };
    made.body.params = sweep.body.params.clone();
    let mut new: SecondaryMap<SVal, Option<SVal>> = SecondaryMap::new();
    for (v, inst) in sweep.body.insts.iter() {
        let parts = match inst.op {
            SOp::Param(k) => all.get(k as usize).and_then(Option::as_ref).map(|parts| (k, parts)),
            _ => None,
        };
        new[v] = Some(match parts {
            Some((k, parts)) => made.joined(parts, (k, inst.dtype), axis)?,
            None => {
                let args = inst.args.iter().map(|&a| new[a]).collect::<Option<_>>()?;
                made.body.insts.push(SInst { args, ..inst.clone() })
            }
        });
    }
    made.body.outputs = sweep.body.outputs.iter().map(|&v| new[v]).collect::<Option<_>>()?;
    Some(made)
}

/// The index of one element of a line, as one that steps with the line: vectors read what lies one after the other. In the
/// lane of the element it is the same.
fn stepping(piece: &mut Piece, along: usize, ends: &[i64]) {
    let fixed = |e: &IndexExpr| !mentions(e, &|axis| axis == along, &|_| false);
    if ends[1] - ends[0] == 1
        && piece.index.iter().all(fixed)
        && let Some(last) = piece.index.last_mut()
    {
        *last = last.clone().sum(IndexExpr::axis(along).plus(-ends[0]));
    }
}

impl SpreadSources {
    fn param(&mut self, param: Param, dtype: DType) -> u32 {
        self.params.push(param);
        self.body.params.push(dtype);
        (self.params.len() - 1) as u32
    }

    fn inst(&mut self, op: SOp, args: &[SVal], dtype: DType) -> SVal {
        self.body.insts.push(SInst { op, args: args.into(), dtype })
    }

    /// An element of one of the parts, whose read was that of parameter `k`.
    fn joined(
        &mut self,
        parts: &AdjacentSources<'_>,
        (k, dtype): (u32, DType),
        axis: usize,
    ) -> Option<SVal> {
        let bits = if dtype.bytes() == 8 { DType::I64 } else { DType::I32 };
        let zero = Literal::zero(dtype);
        let rest = Piece { from: Operand::Literal(zero), index: smallvec![], guards: smallvec![] };
        let mut all = None;
        for (n, (piece, ends)) in parts.pieces.iter().zip(parts.ends.windows(2)).enumerate() {
            let guard = Guard { expr: IndexExpr::axis(axis), range: ends[0]..ends[1] };
            let mut own = Piece { guards: smallvec![guard], ..piece.clone() };
            stepping(&mut own, axis, ends);
            let read = Param::Load(smallvec![own, rest.clone()]);
            let at = match n {
                0 => {
                    self.params[k as usize] = read;
                    k
                }
                _ => self.param(read, dtype),
            };
            let value = self.inst(SOp::Param(at), &[], dtype);
            let value = self.inst(SOp::Prim(Prim::Bitcast), &[value], bits);
            all = Some(match all {
                None => value,
                Some(all) => self.inst(SOp::Prim(Prim::Or), &[all, value], bits),
            });
        }
        Some(self.inst(SOp::Prim(Prim::Bitcast), &[all?], dtype))
    }
}
