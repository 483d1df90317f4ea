//! Decisions about a program's kernels on a GPU, before any text is printed.
//!
//! [`partition`] divides a step into pieces of work, [`fission`] a kernel into several; [`cooperative_row`] says which
//! threads share a row, [`row_residency`] where a row's elements are between stages (registers or shared memory),
//! [`async_copy`] what is prefetched, [`tiling`] how products are tiled and split along the depth, [`sort`] how lines are
//! sorted. Nothing here writes PTX.

pub(crate) mod async_copy;
pub(crate) mod capabilities;
#[cfg(test)]
pub(crate) mod checks;
pub(crate) mod column_folds;
pub(crate) mod cooperative_row;
pub(crate) mod fission;
pub(crate) mod index;
pub(crate) mod inline;
pub(crate) mod library_product;
pub(crate) mod library_split;
pub(crate) mod mma_unit;
pub(crate) mod operand_path;
pub(crate) mod partition;
pub(crate) mod row_residency;
pub(crate) mod scalar_form;
pub(crate) mod shape;
pub(crate) mod sort;
pub(crate) mod tiling;
pub(crate) mod transpose_tile;
pub(crate) mod update_columns;
pub(crate) mod work;
