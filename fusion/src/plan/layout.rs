//! Layouts: how the elements of temporaries lie in memory.

use adfuse_ir::control::reads;
use adfuse_ir::kernel::{BufferData, Extents, Role, Storage};
use adfuse_ir::op::{Body, Indirect};
use adfuse_ir::{DType, Function, Inst, TensorType, Value};

/// How the elements of temporaries lie in memory. Inputs, constants and results are row-major in any case.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Layout {
    /// Row-major: the elements of the last axis are neighbours.
    #[default]
    RowMajor,
    /// Row-major, but for arrays of many short rows, such as `f32[10000, 3]`: of these the elements of each column are
    /// neighbours, so that a vector has one element of each of several rows.
    StructureOfArrays,
    /// Row-major, but each row of an array of long rows begins at a line of the cache, where rows are no multiple of 16 bytes:
    /// what copies tiles of such an array, or multiplies it, takes 16 bytes at a time.
    AlignedRows,
}

/// The fewest rows that are many.
const MANY: i64 = 64;

/// The most elements of the innermost axis of a short row: lines of more fill vectors.
const SHORT: i64 = 15;

/// The most elements of a short row.
const MOST: i64 = 64;

/// Bytes that are copied together, and those of a line of the cache, which a row of [`Layout::AlignedRows`] begins at.
const UNIT: i64 = 16;
const LINE: i64 = 128;

/// The fewest bytes of a long row: what is between two of them is less than a 32nd of its bytes.
const LONG: i64 = 32 * LINE;

impl Layout {
    /// All of them.
    pub const ALL: [Layout; 3] = [Layout::RowMajor, Layout::StructureOfArrays, Layout::AlignedRows];

    /// The name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Layout::RowMajor => "row-major",
            Layout::StructureOfArrays => "structure-of-arrays",
            Layout::AlignedRows => "aligned-rows",
        }
    }

    /// Gives a buffer the strides of the layout: one that is a plain temporary.
    pub(crate) fn lay_out(self, data: &mut BufferData) {
        if self.concerns(&data.role, data.storage) {
            data.strides = self.strides(&data.dims, data.dtype);
        }
    }

    /// Whether it gives strides to buffers like this one, where it has some for their type.
    pub(crate) fn concerns(self, role: &Role, storage: Storage) -> bool {
        self != Layout::RowMajor && *role == Role::Temp && storage == Storage::Plain
    }

    /// The strides of arrays of this type; `None` where they are row-major.
    fn strides(self, dims: &[i64], dtype: DType) -> Option<Extents> {
        match self {
            Layout::RowMajor => None,
            Layout::StructureOfArrays => rows(dims).map(|axis| columns(dims, axis)),
            Layout::AlignedRows => aligned(dims, dtype.bytes() as i64),
        }
    }

    /// Whether temporaries of a type have strides.
    pub(crate) fn moves(self, ty: &TensorType) -> bool {
        let dims = ty.dims().and_then(|dims| dims.iter().map(|&n| i64::try_from(n).ok()).collect());
        dims.is_some_and(|dims: Extents| self.strides(&dims, ty.dtype).is_some())
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
        let is_temporary = |v: &Value| self.moves(f.ty(*v)) && !f.params().contains(v);
        let takes_rows =
            |&i: &Inst| !walks(i) && reads(f, i).iter().chain(f.inst_results(i)).any(is_temporary);
        match self {
            Layout::RowMajor => None,
            _ => f.body_insts().iter().copied().find(takes_rows),
        }
    }
}

/// The axis of the rows of an array that is many short ones.
fn rows(dims: &[i64]) -> Option<usize> {
    let axis = dims.iter().rposition(|&n| n >= MANY)?;
    let row = dims[axis + 1..].iter().product::<i64>();
    let short = dims.last().is_some_and(|&n| n <= SHORT);
    (short && (2..=MOST).contains(&row)).then_some(axis)
}

/// Strides of elements where long rows begin at lines of the cache; `None` for other arrays, and for those whose rows begin at
/// multiples of 16 bytes already.
fn aligned(dims: &[i64], size: i64) -> Option<Extents> {
    let (&row, before) = dims.split_last()?;
    let bytes = row.checked_mul(size)?;
    if bytes < LONG || bytes % UNIT == 0 || before.iter().all(|&n| n == 1) {
        return None;
    }
    let mut strides = Extents::from_elem(1, dims.len());
    let mut next = bytes.checked_add(LINE - 1)? / LINE * LINE / size.max(1);
    for k in (0..before.len()).rev() {
        strides[k] = next;
        next = next.saturating_mul(dims[k].max(1));
    }
    Some(strides)
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

    #[test]
    fn long_rows_begin_at_lines_of_the_cache() {
        type Case<'c> = (&'c [i64], i64, Option<&'c [i64]>);
        let cases: [Case<'_>; 9] = [
            (&[16, 512, 30522], 2, Some(&[512 * 30528, 30528, 1])),
            (&[4, 50257], 2, Some(&[50304, 1])),
            (&[4, 1025], 4, Some(&[1056, 1])),
            (&[0, 1025], 4, Some(&[1056, 1])),
            // Whole units of 16 bytes, short rows, one row.
            (&[4, 30528], 2, None),
            (&[4, 1028], 4, None),
            (&[4, 1023], 4, None),
            (&[1, 1, 30522], 2, None),
            (&[30522], 2, None),
        ];
        for (dims, size, wanted) in cases {
            assert_eq!(aligned(dims, size).as_deref(), wanted, "{dims:?} of {size} bytes");
        }
    }
}
