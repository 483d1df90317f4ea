//! A product of a program by itself: its operands as they are, its sums stored.

use crate::sizes;
use adfuse::ir::index::IndexExpr;
use adfuse::ir::kernel::{
    Buffer, BufferData, Contract, Feed, Member, Operand, Param, Program, Role, Stage, Step,
    Verified, verify,
};
use std::collections::BTreeMap;

/// The steps of both operands along their own axes and along the depth, in elements, the innermost axis of
/// each; `computed` where an operand is more than an element of a buffer.
pub(crate) fn lies(program: &Program, m: &Member) -> [String; 2] {
    let of = |feed: &Feed, free: &[i64]| {
        let [Param::Load(pieces)] = feed.params.as_slice() else { return "computed".to_string() };
        let (plain, piece) = (feed.program.insts.len() <= 1, pieces.first());
        let Some(Operand::Buffer(b)) = piece.filter(|_| plain).map(|p| p.from) else {
            return "computed".into();
        };
        let axes = m.batch.len() + free.len() + m.depth.len();
        let index = &piece.expect("a buffer").index;
        let Some(steps) = program.buffers[b].steps(index, axes) else { return "windows".into() };
        let inner = |from: usize, extents: &[i64]| {
            let last = extents.iter().rposition(|&n| n != 1);
            last.map_or(1, |k| steps[from + k])
        };
        let own = inner(m.batch.len(), free);
        format!("{own}, {}", inner(m.batch.len() + free.len(), &m.depth))
    };
    [of(&m.lhs, &m.rows), of(&m.rhs, &m.cols)]
}

/// The program of the product alone, whose inputs are the buffers that its operands read.
pub(crate) fn product(program: &Program, m: &Member) -> Option<Verified<Program>> {
    let mut made = Program { name: "product".into(), ..Program::default() };
    let mut known: BTreeMap<usize, Buffer> = BTreeMap::new();
    let mut of = |feed: &Feed| {
        let mut feed = feed.clone();
        for param in &mut feed.params {
            let Param::Load(pieces) = param else { continue };
            for piece in pieces {
                let Operand::Buffer(b) = piece.from else { continue };
                let at = program.buffers.keys().position(|x| x == b)?;
                let own = *known.entry(at).or_insert_with(|| {
                    let data = BufferData { role: Role::Input, ..program.buffers[b].clone() };
                    made.buffers.push(BufferData { donated: false, ..data })
                });
                piece.from = Operand::Buffer(own);
            }
        }
        Some(feed)
    };
    let (lhs, rhs) = (of(&m.lhs)?, of(&m.rhs)?);
    let dims = [&m.batch, &m.rows, &m.cols].into_iter().flatten().copied();
    let out = made.buffers.push(BufferData::new("out", m.sum, dims.collect(), Role::Output));
    let axes = m.batch.len() + m.rows.len() + m.cols.len();
    let index = (0..axes).map(IndexExpr::axis).collect();
    let then = Stage::storing(m.sum, out, m.sum, index);
    made.outputs.push(out);
    let members = [Member { lhs, rhs, then, ..m.clone() }].into_iter().collect();
    made.steps.push(Step::Contract(Contract { name: "product".into(), members }));
    (sizes(m).into_iter().all(|n| n > 0)).then(|| verify(made).ok()).flatten()
}
