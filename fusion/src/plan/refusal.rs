//! Why an instruction is not in a group.

use adfuse_ir::Value;
use std::fmt;

/// Why an instruction is not in a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It reads a value that is computed after the part.
    Order(Value),
    /// It reads the value along other axes than it is computed along, or shifted.
    Axes(Value),
    /// It reads a fold over points of the kernel: all of them would have to be done first.
    Barrier(Value),
    /// It is computed along axes of which the nest has only some.
    Nest,
    /// A row is too long to be kept, and there are too few rows to go through each more than once.
    Row {
        /// Elements of a row.
        row: i64,
        /// Rows.
        rows: i64,
    },
    /// It folds rows of a contraction's result, which lie across tiles.
    Rows,
    /// It folds axes of a contraction's result between which another lies.
    Interleaved,
    /// It is a scatter, or a contraction, which begins a group of its own; or follows one that nothing
    /// follows.
    Kind,
    /// The kernel would compute or read too much.
    Size,
    /// They share nothing.
    Apart,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Order(_) => f.write_str("it needs a value that is computed later"),
            Refusal::Axes(_) => f.write_str("it reads a value along other axes, or shifted"),
            Refusal::Barrier(_) => {
                f.write_str("it reads a fold over all points, which must be done before")
            }
            Refusal::Nest => f.write_str("it runs along other axes than the rest"),
            Refusal::Row { row, rows } => {
                write!(f, "a row of {row} elements is too long to be kept, {rows} rows are too few")
            }
            Refusal::Rows => {
                f.write_str("it folds whole rows of the contraction's result, which no tile holds")
            }
            Refusal::Interleaved => f.write_str(
                "it folds axes of the contraction's result that are not neighbours in its order",
            ),
            Refusal::Kind => f.write_str("it begins a group of its own"),
            Refusal::Size => f.write_str("the kernel would compute or read too much"),
            Refusal::Apart => f.write_str("they share nothing"),
        }
    }
}
