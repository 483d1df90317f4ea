//! Decisions about a program's kernels on a GPU, before any text is printed: the [`GpuSchedule`], which is data and has a text.
//!
//! [`partition`] divides a step into pieces of work, [`fission`] a kernel into several, and [`program`] decides each piece:
//! [`elementwise`] and [`fold`] vectors and unrolling, [`row_search`] which threads share a row, where its elements are
//! between stages and what is prefetched, [`tiling`] how products are tiled and split along the depth, [`convolution_search`] the tiles of those of windows, [`sort`] and
//! [`scatter`] passes and blocks. [`bundle`] says which pieces share a launch. [`concurrency`] says which steps run side by side. [`user_call`] holds launches of users' kernels to what chips have. [`binding`] says where the programs in loops and branches have what they read and write. All of it reads the facts of the [`target`](super::target). [`program_text`] prints
//! decisions and reads them back. Nothing here writes PTX.

pub(crate) mod async_copy;
pub(crate) mod attention;
pub(crate) mod attention_tiles;
pub(crate) mod binding;
pub(crate) mod box_pairs;
pub(crate) mod box_program;
pub(crate) mod box_word;
pub(crate) mod bundle;
pub(crate) mod capabilities;
#[cfg(test)]
pub(crate) mod checks;
pub(crate) mod column_folds;
pub(crate) mod concurrency;
pub(crate) mod context;
pub(crate) mod convolution;
pub(crate) mod convolution_search;
pub(crate) mod cooperative_row;
pub(crate) mod depth_runs;
pub(crate) mod divided_axes;
pub(crate) mod elementwise;
pub(crate) mod fission;
pub(crate) mod fold;
pub(crate) mod fold_order;
pub(crate) mod given;
pub(crate) mod grid;
pub(crate) mod index;
pub(crate) mod inline;
pub(crate) mod joint_stage;
pub(crate) mod laid_out;
pub(crate) mod library_product;
pub(crate) mod library_split;
pub(crate) mod mapped_operand;
pub(crate) mod measured_product;
pub(crate) mod mma_unit;
pub(crate) mod operand_path;
pub(crate) mod partition;
pub(crate) mod place_match;
pub(crate) mod product;
pub(crate) mod product_terms;
pub(crate) mod program;
pub(crate) mod program_text;
pub(crate) mod row_decision;
pub(crate) mod row_residency;
pub(crate) mod row_search;
pub(crate) mod row_unroll;
pub(crate) mod row_vectors;
pub(crate) mod rows;
pub(crate) mod scalar_form;
pub(crate) mod scatter;
pub(crate) mod scheduled;
pub(crate) mod score_operand;
pub(crate) mod shape;
pub(crate) mod sort;
pub(crate) mod staged_box;
pub(crate) mod text;
pub(crate) mod tiling;
pub(crate) mod transpose_tile;
pub(crate) mod tree_fold;
pub(crate) mod update_columns;
pub(crate) mod user_call;
pub(crate) mod vectorize;
pub(crate) mod warpgroup;
pub(crate) mod warpgroup_form;
pub(crate) mod warpgroup_price;
pub(crate) mod warpgroup_tile;
pub(crate) mod work;

pub use binding::BlockBinding;
pub use context::ScheduleContext;
pub use program::{GpuSchedule, schedule, schedule_but};
