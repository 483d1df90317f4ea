//! The part of the pipeline that differs between engines.

use super::unit::{CompileUnit, missing};
use crate::fusion::{self, DecidedLoops, Plan, Recovered, SegmentedFunction};
use crate::ir::kernel::Program;
use crate::ir::rewrite::AttentionSteps;
use crate::ir::{Diagnostic, Function};

/// An engine, as the passes ask it. What a method does not say is what no engine minds; the last passes
/// are those of one engine each.
pub trait Compiler {
    /// The engine whose passes run.
    fn engine(&self) -> &'static str;

    /// The options of plans.
    fn options(&self) -> &fusion::PlanOptions;

    /// Which attention the engine has a step for.
    fn attention(&self) -> AttentionSteps;

    /// A function with the prices of the user's functions in it.
    ///
    /// # Errors
    /// For functions that the engine does not know.
    fn price(&self, f: Function) -> Result<Function, Diagnostic> {
        Ok(f)
    }

    /// A function in the checkpoint segments that a budget has chosen.
    ///
    /// # Errors
    /// As [`budget_frontier`](crate::fusion::budget_frontier()), and where no plan is within the budget.
    fn segment(&self, f: Function) -> Result<SegmentedFunction, Diagnostic> {
        Ok(SegmentedFunction::undivided(f))
    }

    /// A function whose later phases recover operands from answers, where that pays.
    ///
    /// # Errors
    /// As [`recover_operands`](crate::fusion::recover_operands()).
    fn recover(&self, f: Function) -> Result<Recovered, Diagnostic> {
        fusion::recover_operands(&f, self.options(), &fusion::AnyEngine)
    }

    /// A function that keeps what it may with losses.
    ///
    /// # Errors
    /// As [`keep_lossy`](crate::fusion::keep_lossy).
    fn narrow(&self, f: Function) -> Result<Function, Diagnostic> {
        Ok(f)
    }

    /// A function whose ways back over loops are decided.
    ///
    /// # Errors
    /// As [`decide_loops`](crate::fusion::decide_loops()).
    fn loops(&self, f: Function) -> Result<DecidedLoops, Diagnostic> {
        fusion::decide_loops(&f, self.options(), &fusion::AnyEngine)
    }

    /// The plan of a prepared function.
    ///
    /// # Errors
    /// Where there is none, or none within a budget.
    fn choose(&self, f: &Function) -> Result<Plan, Diagnostic> {
        fusion::plan(f, self.options())
    }

    /// The program of a plan, which may be put together from what planning has lowered.
    ///
    /// # Errors
    /// As [`fusion::lower`].
    fn lower(&self, f: &Function, plan: &Plan) -> Result<Program, Diagnostic> {
        fusion::lower(f, plan, &self.options().device)
    }

    /// Errs for what the engine does not follow.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::ir::Kind::Usage) with the reason.
    fn admit(&self, _: &Function, _: &Plan) -> Result<(), Diagnostic> {
        Ok(())
    }

    /// What a program takes on the processor, and where its temporaries are.
    ///
    /// # Errors
    /// When that is too much.
    fn arrange(&self, _: &mut CompileUnit<'_>) -> Result<(), Diagnostic> {
        Err(missing("layout of this engine"))
    }

    /// Makes machine code.
    ///
    /// # Errors
    /// Where the engine makes none.
    fn emit(&self, _: &mut CompileUnit<'_>) -> Result<(), Diagnostic> {
        Err(missing("code generator of this engine"))
    }

    /// Decides how a GPU runs the program.
    ///
    /// # Errors
    /// Where the engine has no schedule.
    fn schedule(&self, _: &mut CompileUnit<'_>) -> Result<(), Diagnostic> {
        Err(missing("schedule of this engine"))
    }

    /// Makes PTX.
    ///
    /// # Errors
    /// Where the engine makes none.
    fn launch(&self, _: &mut CompileUnit<'_>) -> Result<(), Diagnostic> {
        Err(missing("PTX of this engine"))
    }

    /// Loads what is launched.
    ///
    /// # Errors
    /// What the driver has against it.
    fn load(&self, _: &mut CompileUnit<'_>) -> Result<(), Diagnostic> {
        Err(missing("device"))
    }
}
