//! Layouts: how the elements of temporaries lie in memory.

use adfuse_ir::control::reads;
use adfuse_ir::kernel::{BufferData, Extents, Role, Storage};
use adfuse_ir::op::{Body, Indirect};
use adfuse_ir::{Function, Inst, TensorType, Value};

/// How the elements of temporaries lie in memory. Inputs, constants and results are row-major in any case.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Layout {
    /// Row-major: the elements of the last axis are neighbours.
    #[default]
    RowMajor,
    /// Row-major, but for arrays of many short rows, such as `f32[10000, 3]`: of these the elements of each column are
    /// neighbours, so that a vector has one element of each of several rows.
    StructureOfArrays,
}

/// The fewest rows that are many.
const MANY: i64 = 64;

/// The most elements of the innermost axis of a short row: lines of more fill vectors.
const SHORT: i64 = 15;

/// The most elements of a short row.
const MOST: i64 = 64;

impl Layout {
    /// All of them.
    pub const ALL: [Layout; 2] = [Layout::RowMajor, Layout::StructureOfArrays];

    /// The name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Layout::RowMajor => "row-major",
            Layout::StructureOfArrays => "structure-of-arrays",
        }
    }

    /// Gives a buffer the strides of the layout: one that is a plain temporary.
    pub(crate) fn lay_out(self, data: &mut BufferData) {
        if self.concerns(&data.role, data.storage) {
            data.strides = rows(&data.dims).map(|axis| columns(&data.dims, axis));
        }
    }

    /// Whether it gives strides to buffers like this one, where they are many short rows.
    pub(crate) fn concerns(self, role: &Role, storage: Storage) -> bool {
        self == Layout::StructureOfArrays && *role == Role::Temp && storage == Storage::Plain
    }

    /// An instruction that keeps a function from having this layout: one that reads arrays as they are, in a block of its own
    /// too, or writes them. Inputs and constants are row-major for all.
    pub(crate) fn refused_by(self, f: &Function) -> Option<Inst> {
        let walks = |i: Inst| match f.op(i).def().body {
            Body::Map(_)
            | Body::View(_)
            | Body::Reduce(_)
            | Body::Scan(_)
            | Body::Contract
            | Body::Constant
            | Body::Source(_) => true,
            Body::Indirect(how) => matches!(how, Indirect::Gather),
            _ => false,
        };
        let is_temporary = |v: &Value| has_short_rows(f.ty(*v)) && !f.params().contains(v);
        let takes_rows =
            |&i: &Inst| !walks(i) && reads(f, i).iter().chain(f.inst_results(i)).any(is_temporary);
        match self {
            Layout::RowMajor => None,
            Layout::StructureOfArrays => f.body_insts().iter().copied().find(takes_rows),
        }
    }
}

/// Whether arrays of a type are many short rows.
pub(crate) fn has_short_rows(ty: &TensorType) -> bool {
    let dims = ty.dims().and_then(|dims| dims.iter().map(|&n| i64::try_from(n).ok()).collect());
    dims.is_some_and(|dims: Extents| rows(&dims).is_some())
}

/// The axis of the rows of an array that is many short ones.
fn rows(dims: &[i64]) -> Option<usize> {
    let axis = dims.iter().rposition(|&n| n >= MANY)?;
    let row = dims[axis + 1..].iter().product::<i64>();
    let short = dims.last().is_some_and(|&n| n <= SHORT);
    (short && (2..=MOST).contains(&row)).then_some(axis)
}

/// Strides of elements where one axis is innermost, without gaps.
fn columns(dims: &[i64], axis: usize) -> Extents {
    let mut strides = Extents::from_elem(1, dims.len());
    let mut next = dims[axis];
    for k in (axis + 1..dims.len()).rev().chain((0..axis).rev()) {
        strides[k] = next;
        // No stride is 0, where an axis is empty neither.
        next = next.saturating_mul(dims[k].max(1));
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_no_gaps() {
        let cases: [(&[i64], Option<&[i64]>); 9] = [
            (&[100, 3], Some(&[1, 100])),
            (&[100, 9, 3], Some(&[1, 300, 100])),
            (&[7, 100, 2, 3], Some(&[600, 1, 300, 100])),
            (&[2, 0, 64, 3], Some(&[192, 192, 1, 64])),
            (&[63, 3], None),
            (&[100, 1], None),
            (&[100, 16], None),
            (&[100, 9, 9], None),
            (&[3, 100], None),
        ];
        for (dims, wanted) in cases {
            let found = rows(dims).map(|axis| columns(dims, axis));
            assert_eq!(found.as_deref(), wanted, "{dims:?}");
        }
    }
}
