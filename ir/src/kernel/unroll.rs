//! Contractions of few products as kernels: the products of each sum one after the other, as a scalar program.

use super::buffer::{Extents, volume};
use super::program::{Feed, Member};
use super::stage::{Kernel, Operand, Param, Stage};
use crate::index::IndexExpr;
use crate::literal::Literal;
use crate::scalar::{Prim, SInst, SOp, SVal, ScalarProgram};
use smallvec::SmallVec;

/// The most products of a sum, and of a batch, that become a scalar program.
const MATRIX: [i64; 2] = [32, 1 << 12];

/// The same for one row: a library packs the other operand for a single use.
const ROW: [i64; 2] = [64, 1 << 15];

/// The most products of a sum of one row or column whose other operand has neighbours for neighbouring sums, as windows of a
/// depthwise convolution have, or every second one. Neighbouring sums are a vector then, whatever their number.
const LINE: i64 = 64;
const NEAR: [i128; 2] = [1, 2];

/// The most products of a sum, and of all, of one row or column with such neighbours in a matrix that is read once: a library
/// packs it first. Many such matrices are multiplied side by side.
const LONG_LINE: [i64; 2] = [256, 1 << 17];

/// The most instructions of a feed.
const FEED: usize = 8;

/// The kernel that computes a member of a contraction, to the bit, if its products are few: a chain of `fma` for each
/// sum, from +0 on, and then what becomes of it. Sums of integers, and operands at places that are data, are left as they are.
pub fn unrolled(name: &str, member: &Member) -> Option<Kernel> {
    let [rows, cols, depth] = [&member.rows, &member.cols, &member.depth].map(volume);
    let products = volume([rows, cols, depth]);
    let near = match (rows, cols) {
        (1, _) => has_neighbours(&member.rhs, &member.cols, member),
        (_, 1) => has_neighbours(&member.lhs, &member.rows, member),
        _ => false,
    };
    let [deep, most] = match (rows, depth) {
        // A sum of one product is elementwise.
        (_, 1) => [1, i64::MAX],
        _ if near && depth <= LINE => [LINE, i64::MAX],
        _ if near && volume(&member.batch) == 1 => LONG_LINE,
        (1, _) => ROW,
        _ => MATRIX,
    };
    let few = (1..=deep).contains(&depth) && (1..=most).contains(&products);
    if !few || !member.sum.is_float() || member.then.params.iter().any(reads_at_data) {
        return None;
    }
    let [batch, row] = [member.batch.len(), member.rows.len()];
    let free = |k: usize, shared: usize, skipped: usize| {
        IndexExpr::axis(if k < shared { k } else { k + skipped })
    };
    let mut stage = Stage {
        axes: Extents::new(),
        params: Vec::new(),
        program: ScalarProgram::default(),
        sinks: member.then.sinks.clone(),
    };
    let zero = Literal::from_f64(member.sum, 0.0);
    let mut sum = stage.push(SOp::Const(zero), &[], member.sum);
    for place in 0..depth {
        let deep = coordinates(&member.depth, place);
        let operand = |stage: &mut Stage, feed: &Feed, own: usize, skipped: usize| {
            let at: Vec<IndexExpr> = (0..batch + own)
                .map(|k| free(k, batch, skipped))
                .chain(deep.iter().map(|&d| IndexExpr::Const(d)))
                .collect();
            stage.feed(feed, &at, member)
        };
        let a = operand(&mut stage, &member.lhs, row, 0)?;
        let b = operand(&mut stage, &member.rhs, member.cols.len(), row)?;
        sum = stage.push(SOp::Prim(Prim::Fma), &[a, b, sum], member.sum);
    }
    stage.after(&member.then, sum);
    Some(Kernel {
        name: name.into(),
        domain: member.result(),
        stages: vec![stage],
        ..Kernel::default()
    })
}

/// Whether [`unrolled`] makes a kernel of a member of one row or column, if the elements of the other operand are side by side for
/// neighbouring sums.
pub fn is_small_line(member: &Member) -> bool {
    let [rows, cols, depth] = [&member.rows, &member.cols, &member.depth].map(volume);
    let products = volume([rows, cols, depth]);
    let [deep, most] = if volume(&member.batch) == 1 { LONG_LINE } else { [LINE, i64::MAX] };
    let feeds = [&member.lhs, &member.rhs];
    let plain = feeds
        .iter()
        .all(|feed| feed.program.insts.len() <= FEED && !feed.params.iter().any(reads_at_data));
    rows.min(cols) == 1
        && (2..=deep).contains(&depth)
        && products <= most
        && member.sum.is_float()
        && plain
}

/// Whether an operand's elements for places along the last of its own axes are near each other in memory.
fn has_neighbours(feed: &Feed, own: &Extents, member: &Member) -> bool {
    let Some(last) = own.iter().rposition(|&n| n > 1) else { return false };
    let axis = member.batch.len() + last;
    let axes = member.batch.len() + own.len() + member.depth.len();
    let steps = |e: &IndexExpr| e.factors(axes).map(|by| by[axis]);
    feed.params.iter().all(|param| {
        let Param::Load(pieces) = param else { return false };
        pieces.iter().all(|piece| match (&piece.from, piece.index.split_last()) {
            (Operand::Buffer(_), Some((last, outer))) => {
                steps(last).is_some_and(|by| NEAR.contains(&by))
                    && outer.iter().all(|e| steps(e) == Some(0))
            }
            // A number around the windows.
            (from, _) => !matches!(from, Operand::Buffer(_)),
        })
    })
}

/// The coordinates of a place, row-major.
fn coordinates(extents: &[i64], place: i64) -> SmallVec<[i64; 4]> {
    let mut rest = place;
    let mut all: SmallVec<[i64; 4]> = SmallVec::new();
    for &n in extents.iter().rev() {
        all.push(rest % n);
        rest /= n;
    }
    all.reverse();
    all
}

impl Stage {
    fn push(&mut self, op: SOp, args: &[SVal], dtype: crate::DType) -> SVal {
        self.program.insts.push(SInst { op, args: args.iter().copied().collect(), dtype })
    }

    /// The instructions of a program, with other parameters.
    pub(super) fn inlined(&mut self, program: &ScalarProgram, params: &[SVal]) -> Vec<SVal> {
        let mut map: Vec<SVal> = Vec::with_capacity(program.insts.len());
        for inst in program.insts.values() {
            map.push(match inst.op {
                SOp::Param(k) => params[k as usize],
                op => {
                    let args: Vec<SVal> =
                        inst.args.iter().map(|a| map[a.as_u32() as usize]).collect();
                    self.push(op, &args, inst.dtype)
                }
            });
        }
        program.outputs.iter().map(|o| map[o.as_u32() as usize]).collect()
    }

    /// Another parameter, and the value of it.
    pub(super) fn param(&mut self, param: Param, dtype: crate::DType) -> SVal {
        let k = self.params.len() as u32;
        self.params.push(param);
        self.program.params.push(dtype);
        self.push(SOp::Param(k), &[], dtype)
    }

    /// An operand's element at these coordinates, in the type of the sums.
    fn feed(&mut self, feed: &Feed, at: &[IndexExpr], member: &Member) -> Option<SVal> {
        if feed.program.insts.len() > FEED || feed.params.iter().any(reads_at_data) {
            return None;
        }
        let mut params = Vec::with_capacity(feed.params.len());
        for (param, &dtype) in feed.params.iter().zip(&feed.program.params) {
            params.push(self.param(param.at(at), dtype));
        }
        let element = *self.inlined(&feed.program, &params).first()?;
        match self.program.insts[element].dtype == member.sum {
            true => Some(element),
            false => Some(self.push(SOp::Prim(Prim::Convert), &[element], member.sum)),
        }
    }

    /// What becomes of a sum.
    fn after(&mut self, then: &Stage, sum: SVal) {
        let mut params = Vec::with_capacity(then.params.len());
        for (param, &dtype) in then.params.iter().zip(&then.program.params) {
            params.push(match param {
                Param::Sum => sum,
                param => self.param(param.clone(), dtype),
            });
        }
        self.program.outputs = self.inlined(&then.program, &params).into_iter().collect();
    }
}

/// Whether a parameter names other parameters, by numbers that change here.
pub(super) fn reads_at_data(param: &Param) -> bool {
    param.expressions().any(is_data)
}

fn is_data(e: &IndexExpr) -> bool {
    match e {
        IndexExpr::Data { .. } => true,
        IndexExpr::Axis(_) | IndexExpr::Const(_) => false,
        IndexExpr::Add(a, b) => is_data(a) || is_data(b),
        IndexExpr::Mul(a, _) | IndexExpr::FloorDiv(a, _) | IndexExpr::Mod(a, _) => is_data(a),
    }
}
