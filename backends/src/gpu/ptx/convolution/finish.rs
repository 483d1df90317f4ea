//! What becomes of the sums of a tile: each thread stores its own, two neighbours together where they are neighbours in memory.
//! Where rows are added up, each warp leaves the sums of its columns, which a fold adds up.

use super::{WindowKernel, words};
use crate::gpu::ptx::asm::{Class, Reg, guard_prefix, made};
use crate::gpu::ptx::emit::{At, Emit};
use crate::gpu::ptx::operands::{both, constant};
use crate::gpu::schedule::convolution::{DEEP, NEAR, place};
use crate::gpu::schedule::shape::axes;
use crate::gpu::schedule::vectorize::VectorLanes;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Param, Sink, Stage};
use adfuse_ir::scalar::ScalarProgram;
use adfuse_ir::{DType, Literal};

/// Two neighbouring sums.
struct SumPair {
    sums: [Reg; 2],
    /// The coordinates of each in the product's result.
    coords: [Vec<IndexExpr>; 2],
    /// Whether each is one of the result, where it may not be.
    valid: [Option<Reg>; 2],
}

impl WindowKernel<'_> {
    /// Finishes the sums of a thread.
    pub(super) fn finish(&self, emit: &mut Emit<'_>, sums: &[Reg], then: &Stage) {
        let [tall, wide] = self.product.tiling.each;
        let lane = self.thread.clone().modulo(32);
        let program = emit.written(&then.program);
        let zero = constant(&mut emit.asm, Literal::zero(DType::F32));
        let cols: Vec<[Vec<IndexExpr>; 2]> = (0..wide)
            .map(|n| {
                let first = lane.clone().modulo(DEEP).times(2);
                [0, 1].map(|k| self.coordinates(1, n, first.clone().plus(k)))
            })
            .collect();
        for n in 0..tall {
            let row = self.coordinates(0, n, lane.clone().floor_div(DEEP));
            let of_row = self.valid(emit, 0, &row);
            let folded = then.sinks.iter().map(|sink| match sink {
                Sink::Fold { .. } => Some(emit.asm.copied(zero)),
                _ => None,
            });
            let folded: Vec<Option<Reg>> = folded.collect();
            for (cols, j) in cols.iter().zip(0i64..) {
                let at = ((n / 2 * wide + j) * 4 + n % 2 * 2) as usize;
                let sums = [sums[at], sums[at + 1]];
                let valid = [0, 1].map(|k| {
                    let of_col = self.valid(emit, 1, &cols[k]);
                    emit.all(of_row, of_col)
                });
                let coords = [0, 1].map(|k| self.result(&row, &cols[k]));
                self.pair(emit, (then, &program), &folded, SumPair { sums, coords, valid });
            }
            for (folded, to) in folded.into_iter().zip(&self.product.sums) {
                if let (Some(sum), Some(to)) = (folded, to) {
                    self.store_row(emit, (sum, *to), &row, of_row);
                }
            }
        }
    }

    /// Stores the sum of a warp's columns of a row, of which four lanes have a part each.
    fn store_row(
        &self,
        emit: &mut Emit<'_>,
        (sum, to): (Reg, Buffer),
        row: &[IndexExpr],
        valid: Option<Reg>,
    ) {
        let mut sum = sum;
        for bits in [1, 2] {
            let other = emit.exchanged(sum, bits);
            sum = made(&mut emit.asm, Class::Single, "add.rn.f32", format_args!("{sum}, {other}"));
        }
        let m = &self.product.member;
        let (tile, tiling) = (&self.product.tile, &self.product.tiling);
        let warp = self.thread.clone().floor_div(32).modulo(tile.warps[1]);
        let number = joined(&self.tile[1], &tiling.tiles[1]).times(tile.warps[1]).sum(warp);
        let others = (1..m.cols.len()).map(|_| IndexExpr::Const(0));
        let coords: Vec<IndexExpr> =
            self.batch.iter().chain(row).cloned().chain([number]).chain(others).collect();
        let at = At { vars: &self.vars, coords: &coords };
        let lane = self.number(emit, &self.thread.clone().modulo(DEEP), &self.vars);
        let first = emit.asm.pure(Class::Pred, "setp.eq.s32", format_args!("{lane}, 0"));
        let when = emit.all(Some(first), valid);
        emit.store(to, &axes(coords.len()), sum, &at, when);
    }

    /// The coordinates of element `into` of a line of group `n`.
    fn coordinates(&self, side: usize, n: i64, into: IndexExpr) -> Vec<IndexExpr> {
        let (tile, tiling) = (&self.product.tile, &self.product.tiling);
        let lane = tiling.lanes[side];
        let apart = place(n, &tiling.groups[side]);
        let first = self.tile[side].iter().zip(self.of_warp(side)).zip(&apart).enumerate();
        let each = first.map(|(a, ((number, warp), apart))| {
            let near = if a == lane { NEAR } else { 1 };
            let at = number.clone().times(tile.sides[side][a]).sum(warp);
            let at = if a == lane { at.sum(into.clone()) } else { at };
            at.plus(apart * near)
        });
        each.collect()
    }

    /// Whether a line is one of the operand's, where tiles go past the end of an axis.
    fn valid(&self, emit: &mut Emit<'_>, side: usize, at: &[IndexExpr]) -> Option<Reg> {
        let (m, tile) = (&self.product.member, &self.product.tile);
        let extents = if side == 0 { &m.rows } else { &m.cols };
        let mut all: Option<Reg> = None;
        for ((e, &n), side) in at.iter().zip(extents).zip(&tile.sides[side]) {
            if n % side == 0 {
                continue;
            }
            let x = self.number(emit, e, &self.vars);
            let p = emit.asm.pure(Class::Pred, "setp.lt.s32", format_args!("{x}, {n}"));
            all = Some(match all {
                Some(q) => both(&mut emit.asm, q, p),
                None => p,
            });
        }
        all
    }

    /// The coordinates of a sum in the result, or among the sums of parts.
    fn result(&self, row: &[IndexExpr], col: &[IndexExpr]) -> Vec<IndexExpr> {
        let m = &self.product.member;
        if self.product.parts.is_none() {
            return self.batch.iter().chain(row).chain(col).cloned().collect();
        }
        vec![
            self.part.clone(),
            joined(&self.batch, &m.batch),
            joined(row, &m.rows),
            joined(col, &m.cols),
        ]
    }

    /// Stores what follows from two neighbouring sums, and adds what is folded of them.
    fn pair(
        &self,
        emit: &mut Emit<'_>,
        (then, program): (&Stage, &ScalarProgram),
        folded: &[Option<Reg>],
        pair: SumPair,
    ) {
        let reads = then.params.iter().any(|param| !matches!(param, Param::Sum));
        let values = |emit: &mut Emit<'_>, k: usize| {
            let at = At { vars: &self.vars, coords: &pair.coords[k] };
            emit.outputs(then, program, &at, &mut |_, _, param| {
                matches!(param, Param::Sum).then_some(pair.sums[k])
            })
        };
        let together = pair.valid[0] == pair.valid[1];
        if reads && pair.valid[0].is_some() {
            // What is past the end has no elements to read.
            for k in 0..2 {
                emit.when(pair.valid[k], |emit| {
                    let values = values(emit, k);
                    self.store_one(emit, (then, folded), (&pair, k), &values);
                });
            }
            return;
        }
        let values = [0, 1].map(|k| values(emit, k));
        let lanes = VectorLanes { coords: &pair.coords, extents: &self.vars.extents };
        for (n, sink) in then.sinks.iter().enumerate() {
            let [a, b] = [values[0][n], values[1][n]];
            let first = match sink {
                Sink::Store { buffer, index } if together && is_vector([a, b]) => {
                    let first = lanes.aligned(emit.program, *buffer, index);
                    first.map(|first| (*buffer, first))
                }
                _ => None,
            };
            match first {
                Some((buffer, first)) => {
                    let size = emit.program.buffers[buffer].dtype.bytes();
                    let at = emit.address(buffer, &first, size, &self.vars, &[]);
                    let when = guard_prefix(pair.valid[0]);
                    match a.class {
                        Class::Half => {
                            let word = words::joined(&mut emit.asm, [a, b]);
                            emit.asm.emit(format_args!("{when}st.global.b32 {at}, {word}"));
                        }
                        _ => {
                            emit.asm.emit(format_args!("{when}st.global.v2.f32 {at}, {{{a}, {b}}}"))
                        }
                    }
                }
                None => {
                    for (k, value) in [a, b].into_iter().enumerate() {
                        self.sink(emit, (sink, folded[n]), (&pair, k), value, pair.valid[k]);
                    }
                }
            }
        }
    }

    /// What becomes of one sum's values, of which there are.
    fn store_one(
        &self,
        emit: &mut Emit<'_>,
        (then, folded): (&Stage, &[Option<Reg>]),
        at: (&SumPair, usize),
        values: &[Reg],
    ) {
        for ((sink, folded), value) in then.sinks.iter().zip(folded).zip(values) {
            self.sink(emit, (sink, *folded), at, *value, None);
        }
    }

    /// Stores a value, or adds it to what is folded, under a condition where there is one.
    fn sink(
        &self,
        emit: &mut Emit<'_>,
        (sink, folded): (&Sink, Option<Reg>),
        (pair, k): (&SumPair, usize),
        value: Reg,
        when: Option<Reg>,
    ) {
        match (sink, folded) {
            (Sink::Store { buffer, index }, _) => {
                let at = At { vars: &self.vars, coords: &pair.coords[k] };
                emit.store(*buffer, index, value, &at, when);
            }
            (_, Some(sum)) => {
                let when = guard_prefix(when);
                emit.asm.emit(format_args!("{when}add.rn.f32 {sum}, {sum}, {value}"));
            }
            _ => {}
        }
    }
}

/// Whether two values are stored together, where they are neighbours in memory.
fn is_vector(values: [Reg; 2]) -> bool {
    let all = |class: Class| values.iter().all(|value| value.class == class);
    all(Class::Single) || all(Class::Half)
}

/// A place among extents as one number.
fn joined(at: &[IndexExpr], extents: &[i64]) -> IndexExpr {
    at.iter().zip(extents).fold(IndexExpr::Const(0), |sum, (e, &n)| sum.times(n).sum(e.clone()))
}
