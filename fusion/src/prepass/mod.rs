//! What a function goes through before it is planned: calls inlined, exact rewrites, one result an
//! instruction, folds of windows written out, concatenations of many operands as trees.

pub(crate) mod concat_tree;
pub(crate) mod lossy;
pub(crate) mod replace;
pub(crate) mod scatter_to_select;
pub(crate) mod split;
pub(crate) mod unroll_windows;

use adfuse_ir::rewrite::{Exactness, cse, dce, inline, simplify};
use adfuse_ir::{Diagnostic, Function, Module};
use concat_tree::concatenations_as_trees;
use scatter_to_select::scatters_to_choices;
use unroll_windows::windows_written_out;

/// The function as the planner sees it: the same bits, without calls, duplicates and dead
/// instructions. Plans name the values of this function.
///
/// # Errors
/// If calls expand beyond [`MAX_INLINED`](adfuse_ir::rewrite::MAX_INLINED) instructions.
pub fn prepare(module: &Module, f: &Function) -> Result<Function, Diagnostic> {
    let inlined = inline(module, f, &|_| true)?;
    let f = scatters_to_choices(&split::multi_result_views(&inlined)?)?;
    let f = simplify(&f, Exactness::Exact)?;
    let mut f = concatenations_as_trees(&windows_written_out(&f)?)?;
    cse(&mut f);
    dce(&mut f);
    Ok(f)
}
