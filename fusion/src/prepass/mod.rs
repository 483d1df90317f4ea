//! The passes before planning: calls are inlined, exact rewrites apply, and instructions get the forms that plans have
//! kernels for.

pub(crate) mod checkpoint;
pub(crate) mod concat_tree;
pub(crate) mod inverse;
pub(crate) mod lossy;
pub(crate) mod regions;
pub(crate) mod scatter_to_select;
pub(crate) mod segments;
pub(crate) mod split;
pub(crate) mod unroll_windows;

use adfuse_ir::rewrite::{
    Exactness, RuleTable, StepLowering, cse, dce, exchanges_early, inline, simplify,
    with_exchanges, with_steps,
};
use adfuse_ir::verify::verify_function;
use adfuse_ir::{Diagnostic, Function, Module};
use checkpoint::policies_followed;
use concat_tree::concatenations_as_trees;
use regions::regions_prepared;
use scatter_to_select::scatters_to_choices;
use unroll_windows::windows_written_out;

/// A pass over a function before it is planned. The bits of its results stay.
#[derive(Clone, Copy, Debug)]
pub struct Prepass {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// The function that it makes of a function of a module; after the first, nothing is called any more.
    pub run: fn(&Module, Function) -> Result<Function, Diagnostic>,
}

/// The name of the pass that follows checkpoint policies.
const CHECKPOINT: &str = "checkpoint";

/// The passes of [`prepare`], in their order: inlining is the first.
pub const PREPASSES: &[Prepass] = &[
    Prepass {
        name: "inline",
        about: "calls become the instructions of the functions they call",
        run: inlined,
    },
    Prepass {
        name: "exchanges",
        about: "collectives become the exchanges that engines have, begun early, and sums in the order of ranks",
        run: |_, f| exchanges_early(with_exchanges(f)?),
    },
    Prepass {
        name: "split_views",
        about: "a view of several results becomes a view for each",
        run: |_, f| split::multi_result_views(&f),
    },
    Prepass {
        name: "scatter_to_select",
        about: "a scatter of one element a row becomes an elementwise choice",
        run: |_, f| scatters_to_choices(&f),
    },
    Prepass {
        name: "simplify",
        about: "exact algebraic rewrites",
        run: |_, f| simplify(&f, Exactness::Exact),
    },
    Prepass {
        name: "unroll_windows",
        about: "the fold of a window becomes an expression of its elements",
        run: |_, f| windows_written_out(&f),
    },
    Prepass {
        name: "concat_tree",
        about: "a concatenation of many operands becomes a tree of concatenations of few",
        run: |_, f| concatenations_as_trees(&f),
    },
    Prepass {
        name: "regions",
        about: "regions of loops and branches take these passes too",
        run: |module, f| regions_prepared(f, &|region| prepare_region(module, region)),
    },
    Prepass {
        name: "cse",
        about: "common subexpressions are computed once",
        run: |_, mut f| {
            cse(&mut f);
            Ok(f)
        },
    },
    Prepass {
        name: "dce",
        about: "instructions that no result needs are removed",
        run: |_, mut f| {
            dce(&mut f);
            Ok(f)
        },
    },
    Prepass {
        name: CHECKPOINT,
        about: "later phases compute again what checkpoint regions do not keep",
        run: |_, f| policies_followed(f),
    },
];

/// The function without calls. Callees have symbols, which may have extents here that their instructions do not fit:
/// modules are verified without those.
fn inlined(module: &Module, f: Function) -> Result<Function, Diagnostic> {
    let made = inline(module, &f, &|_| true)?;
    if f.callees().is_empty() || module.funcs.values().all(|callee| callee.symbols.is_empty()) {
        return Ok(made);
    }
    let mut alone = made.clone();
    // Its rule is for those who differentiate it.
    alone.rule = None;
    verify_function(&alone).map_err(|mut errors| errors.swap_remove(0))?;
    Ok(made)
}

/// The tables of rules that [`prepare`] applies, in their order; [`simplify`] is after the second.
pub const RULE_TABLES: &[&RuleTable] = &[
    &split::SEVERAL_RESULTS,
    &scatter_to_select::SCATTERS,
    &unroll_windows::WINDOWS,
    &concat_tree::CONCATENATIONS,
];

/// The function as the planner sees it: the same bits, without calls, duplicates and dead
/// instructions. Plans name the values of this function.
///
/// # Errors
/// If calls expand beyond [`MAX_INLINED`](adfuse_ir::rewrite::MAX_INLINED) instructions.
pub fn prepare(module: &Module, f: &Function) -> Result<Function, Diagnostic> {
    // As engines have it whose steps for attention are of `f32` and `f64`; after inlining, so that none is in a callee.
    let inlined = inlined(module, f.clone())?;
    let widened = with_steps(inlined, &|_, _| StepLowering::Widened)?;
    passed(module, widened)
}

/// The passes after inlining, of a function without calls whose attention is what an engine has.
pub(crate) fn passed(module: &Module, f: Function) -> Result<Function, Diagnostic> {
    PREPASSES.iter().skip(1).try_fold(f, |f, pass| (pass.run)(module, f))
}

/// As [`prepare`], of a region of a loop or a branch. Policies of checkpoint regions in it are left to what decides what
/// steps leave to each other ([`crate::loops`]).
fn prepare_region(module: &Module, f: &Function) -> Result<Function, Diagnostic> {
    let mut passes = PREPASSES.iter().filter(|pass| pass.name != CHECKPOINT);
    passes.try_fold(f.clone(), |f, pass| (pass.run)(module, f))
}
