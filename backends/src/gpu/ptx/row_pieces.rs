//! Loads of neighbours from one of several pieces, such as the arrays of a concatenation: where all of them are in the same piece
//! and lie in a row there, it is read by as few instructions as a whole array is.

use super::address::{Truth, holds, resolved};
use super::asm::{Class, Reg, guard_prefix, listed};
use super::elementwise::{Neighbours, normal, step};
use super::emit::{Address, Emit, memory};
use super::operands::{self, constant};
use crate::gpu::schedule::index::{has_data, split};
use adfuse_ir::index::IndexExpr;
use adfuse_ir::kernel::{Buffer, Operand, Piece};
use adfuse_ir::{DType, Literal};

/// Places below this number are constants in the instructions that load.
const NEAR: u64 = 1 << 16;

/// Where neighbours are in a piece.
enum PieceRow {
    /// In a row of a buffer, from this element on.
    Buffer(Buffer, IndexExpr),
    /// All are one number.
    Number(Literal),
}

impl PieceRow {
    /// The first element in memory.
    fn first(&self) -> Option<&IndexExpr> {
        match self {
            PieceRow::Buffer(_, first) => Some(first),
            PieceRow::Number(_) => None,
        }
    }
}

/// A piece, and when its guards hold; `None` where they always do.
type GuardedRow = (PieceRow, Option<Reg>);

/// An address in a register that was chosen, and the condition under which there is one.
type ChosenAddress = (Reg, Option<Reg>);

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
        let size = dtype.bytes() as i64;
        // Rows of neighbours that are as far apart in all pieces share what is chosen.
        let near = rows.iter().find_map(|(row, _)| row.first()).map_or(0, |first| split(first).1);
        let near = if near.unsigned_abs() < NEAR { near } else { 0 };
        let only = self.exclusive(&rows);
        let from = self.chosen_address(&rows, &only, (size as u64, near), n);
        let mut found = Vec::new();
        for j in (0..width).step_by(step as usize) {
            let into: Vec<Reg> = (0..count).map(|_| self.asm.fresh(class)).collect();
            if let Some((base, when)) = from {
                let kind = if paired { "b32" } else { memory(dtype) };
                let vector = if count > 1 { format!(".v{count}") } else { String::new() };
                let address = Address { base, offset: (near + j) * size };
                let (prefix, list) = (guard_prefix(when), listed(&into));
                let load = format_args!("{prefix}ld.global.nc{vector}.{kind} {list}, {address}");
                self.asm.emit(load);
            }
            for ((row, _), &when) in rows.iter().zip(&only) {
                if let PieceRow::Number(number) = row {
                    self.number_where(when, *number, &into);
                }
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

    /// The pieces that may be read, up to the first whose guards always hold.
    fn guarded(
        &mut self,
        pieces: &[Piece],
        rows: Vec<PieceRow>,
        n: &Neighbours,
    ) -> Vec<GuardedRow> {
        let mut found = Vec::new();
        for (piece, row) in pieces.iter().zip(rows) {
            let Some(coords) = n.coords.first() else { continue };
            match holds(&mut self.asm, &piece.guards, coords, &n.vars, &[]) {
                Truth::Never => {}
                Truth::When(p) => found.push((row, Some(p))),
                Truth::Always => {
                    found.push((row, None));
                    break;
                }
            }
        }
        found
    }

    /// For each piece, when it is read: where its guards hold and those of none before it do. Where an address is always chosen nobody
    /// asks.
    fn exclusive(&mut self, rows: &[GuardedRow]) -> Vec<Option<Reg>> {
        if is_chosen(rows) {
            return vec![None; rows.len()];
        }
        let mut before: Option<Reg> = None;
        let mut when = |&(_, now): &GuardedRow| {
            let not = before.map(|q| operands::not(&mut self.asm, q));
            before = match (before, now) {
                (Some(q), Some(p)) => {
                    Some(self.asm.pure(Class::Pred, "or.pred", format_args!("{q}, {p}")))
                }
                (q, p) => p.or(q),
            };
            self.all(now, not)
        };
        rows.iter().map(&mut when).collect()
    }

    /// The address of the piece that is read, this many elements before the neighbours' place: one load follows. A load for each piece
    /// would be as many instructions under way, of which one does something. `None` where no piece is in memory.
    fn chosen_address(
        &mut self,
        rows: &[GuardedRow],
        only: &[Option<Reg>],
        (size, near): (u64, i64),
        n: &Neighbours,
    ) -> Option<ChosenAddress> {
        let always = is_chosen(rows);
        let mut found: Option<ChosenAddress> = None;
        // The first piece whose guards hold is chosen last.
        for ((row, now), &when) in rows.iter().zip(only).rev() {
            let PieceRow::Buffer(b, first) = row else { continue };
            let address = self.address(*b, &normal(&first.clone().plus(-near)), size, &n.vars, &[]);
            let base = self.whole(&address);
            found = Some(match (found, now) {
                (Some((others, any)), Some(now)) => {
                    let chosen = format_args!("{base}, {others}, {now}");
                    let chosen = self.asm.pure(Class::Long, "selp.b64", chosen);
                    let or =
                        |(q, p)| self.asm.pure(Class::Pred, "or.pred", format_args!("{q}, {p}"));
                    (chosen, any.zip(when).map(or))
                }
                _ => (base, if always { None } else { when }),
            });
        }
        found
    }

    /// Elements that are one number, under a condition.
    fn number_where(&mut self, when: Option<Reg>, number: Literal, into: &[Reg]) {
        let prefix = guard_prefix(when);
        let class = into.first().map_or(Class::Word, |r| r.class);
        let one = constant(&mut self.asm, number);
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
}

/// Whether one of the pieces is read wherever the neighbours are, and each is in memory.
fn is_chosen(rows: &[GuardedRow]) -> bool {
    rows.iter().all(|(row, _)| row.first().is_some())
        && rows.last().is_some_and(|(_, now)| now.is_none())
}
