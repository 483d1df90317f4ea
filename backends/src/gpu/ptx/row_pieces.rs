//! Loads of neighbours from one of several pieces, such as the arrays of a concatenation: where all of them are in the same piece
//! and lie in a row there, it is read by as few instructions as a whole array is.

use super::address::{Truth, holds, resolved};
use super::asm::{Class, Reg, guard_prefix, listed};
use super::elementwise::{Neighbours, normal, step};
use super::emit::{Emit, memory};
use super::operands::{self, constant};
use crate::gpu::schedule::index::has_data;
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Operand, Piece};
use adfuse_ir::{DType, Literal};

/// Where neighbours are in a piece.
enum PieceRow {
    /// In a row of a buffer, from this element on.
    Buffer(Buffer, IndexExpr),
    /// All are one number.
    Number(Literal),
}

/// A piece, and the condition under which it is read.
type GuardedRow = (PieceRow, Option<Reg>);

impl Emit<'_> {
    /// What neighbours have of several pieces; `None` where they are not all in the same piece, and in a row there.
    pub(super) fn load_pieces(
        &mut self,
        pieces: &[Piece],
        dtype: DType,
        n: &Neighbours,
    ) -> Option<Vec<Reg>> {
        if pieces.len() < 2 || dtype == DType::Bool {
            return None;
        }
        let rows = pieces.iter().map(|piece| self.piece_row(piece, dtype, n));
        let rows = self.guarded(pieces, rows.collect::<Option<Vec<_>>>()?, n);
        let width = n.coords.len() as i64;
        let step = step(dtype, width);
        // Pairs of 16 bits come as words.
        let paired = dtype.bytes() == 2 && step == 8;
        let (class, count) = match paired {
            true => (Class::Word, 4),
            false => (operands::class(dtype), step as usize),
        };
        let mut found = Vec::new();
        for j in (0..width).step_by(step as usize) {
            let into: Vec<Reg> = (0..count).map(|_| self.asm.fresh(class)).collect();
            for (row, when) in &rows {
                self.load_piece((row, *when), (dtype, j), &into, n);
            }
            match paired {
                true => into.iter().for_each(|&word| {
                    found.extend(self.asm.pure_row(Class::Half, 2, "mov.b32", word));
                }),
                false => found.extend(into),
            }
        }
        Some(found)
    }

    fn piece_row(&self, piece: &Piece, dtype: DType, n: &Neighbours) -> Option<PieceRow> {
        let alike = piece.guards.iter().all(|guard| {
            let of = |coords: &Vec<IndexExpr>| resolved(&guard.expr, coords, &n.vars);
            let first = n.coords.first().map(of);
            !has_data(&guard.expr) && n.coords.iter().all(|coords| Some(of(coords)) == first)
        });
        if !alike {
            return None;
        }
        match piece.from {
            Operand::Literal(number) => {
                (number.dtype() == dtype).then_some(PieceRow::Number(number))
            }
            Operand::Buffer(b) => {
                let plain = self.program.buffers[b].dtype == dtype
                    && piece.index.iter().all(|e| !has_data(e));
                let first = plain.then(|| self.aligned(b, &piece.index, n)).flatten()?;
                Some(PieceRow::Buffer(b, first))
            }
        }
    }

    /// The pieces that may be read, each where its guards hold and those of none before it do.
    fn guarded(
        &mut self,
        pieces: &[Piece],
        rows: Vec<PieceRow>,
        n: &Neighbours,
    ) -> Vec<GuardedRow> {
        let mut found = Vec::new();
        let mut before: Option<Reg> = None;
        for (piece, row) in pieces.iter().zip(rows) {
            let Some(coords) = n.coords.first() else { continue };
            let now = match holds(&mut self.asm, &piece.guards, coords, &n.vars, &[]) {
                Truth::Never => continue,
                Truth::Always => None,
                Truth::When(p) => Some(p),
            };
            let not = before.map(|q| operands::not(&mut self.asm, q));
            found.push((row, self.all(now, not)));
            before = match (before, now) {
                (_, None) => break,
                (None, now) => now,
                (Some(q), Some(p)) => {
                    Some(self.asm.pure(Class::Pred, "or.pred", format_args!("{q}, {p}")))
                }
            };
        }
        found
    }

    /// Some elements of a piece, from the `j`-th neighbour on.
    fn load_piece(
        &mut self,
        (row, when): (&PieceRow, Option<Reg>),
        (dtype, j): (DType, i64),
        into: &[Reg],
        n: &Neighbours,
    ) {
        let prefix = guard_prefix(when);
        let class = into.first().map_or(Class::Word, |r| r.class);
        match row {
            PieceRow::Number(number) => {
                let one = constant(&mut self.asm, *number);
                let value = match (one.class, class) {
                    (Class::Half, Class::Word) => {
                        self.asm.pure(Class::Word, "mov.b32", listed(&[one, one]))
                    }
                    _ => one,
                };
                for to in into {
                    self.asm.emit(format_args!("{prefix}mov.{} {to}, {value}", class.moved()));
                }
            }
            PieceRow::Buffer(b, first) => {
                let place = normal(&first.clone().plus(j));
                let address = self.address(*b, &place, dtype.bytes(), &n.vars, &[]);
                let kind = match (class, dtype.bytes()) {
                    (Class::Word, 2) => "b32",
                    _ => memory(dtype),
                };
                let vector =
                    if into.len() > 1 { format!(".v{}", into.len()) } else { String::new() };
                let list = listed(into);
                self.asm
                    .emit(format_args!("{prefix}ld.global.nc{vector}.{kind} {list}, {address}"));
            }
        }
    }
}
