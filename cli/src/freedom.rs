//! The options of plans: floating-point mode, effort, and memory budget.

use super::budget::Budget;
use super::failure::Failure;
use super::given::PlanFile;
use adfuse::fusion::{Effort, Fp};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// How free plans are.
#[derive(Args)]
pub(super) struct Freedom {
    /// How much results may differ from what the program says; default: strict, not at all
    #[arg(long, value_enum)]
    fp: Option<FpArg>,
    /// How hard to look for a plan; without this, default
    #[arg(long, value_enum)]
    effort: Option<EffortArg>,
    #[command(flatten)]
    pub(super) budget: Budget,
}

/// A plan to follow instead.
#[derive(Args)]
pub(super) struct PlanArg {
    /// A plan to follow, as text or JSON, instead of making one; the mode is the plan's
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["effort", "mem_budget", "compile_budget"])]
    plan: Option<PathBuf>,
    /// The plan of a measurement, with the name of its file.
    #[arg(skip)]
    measured: Option<(String, String)>,
}

/// How numbers may differ from those of the text.
#[derive(Clone, Copy, ValueEnum)]
enum FpArg {
    /// The same bits whatever the plan
    Strict,
    /// The same bits in every run of one plan; naive formulas become stable ones
    Reproducible,
    /// As reproducible, and functions may be approximate where an engine has such
    Fast,
}

/// How hard to look for a plan.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum EffortArg {
    /// One kernel for each instruction
    Off,
    /// Group instructions once
    Quick,
    /// As quick, then change the plan as long as that makes it faster
    Default,
    /// As default, then many small changes, of which the best are kept
    Search,
}

impl EffortArg {
    /// As the planner calls it.
    pub(super) fn effort(self) -> Effort {
        match self {
            EffortArg::Off => Effort::Off,
            EffortArg::Quick => Effort::Quick,
            EffortArg::Default => Effort::Default,
            EffortArg::Search => Effort::Search,
        }
    }
}

impl Freedom {
    /// The mode that is asked for.
    pub(super) fn fp(&self) -> Option<Fp> {
        self.fp.map(|mode| match mode {
            FpArg::Strict => Fp::Strict,
            FpArg::Reproducible => Fp::Reproducible,
            FpArg::Fast => Fp::Fast,
        })
    }

    /// The effort.
    pub(super) fn effort(&self) -> Effort {
        self.effort.unwrap_or(EffortArg::Default).effort()
    }

    /// Whether an effort is asked for.
    pub(super) fn has_effort(&self) -> bool {
        self.effort.is_some()
    }

    /// Whether any of it is asked for that not every engine has. All keep the bits of the text.
    pub(super) fn is_asked(&self) -> bool {
        let differs = self.fp.is_some_and(|mode| !matches!(mode, FpArg::Strict));
        differs || self.effort.is_some() || self.budget.is_given()
    }
}

impl PlanArg {
    /// Reads the plan.
    pub(super) fn read(&self) -> Result<Option<PlanFile>, Failure> {
        match (&self.plan, &self.measured) {
            (Some(path), _) => PlanFile::read(path).map(Some),
            (None, Some((name, plan))) => Ok(Some(PlanFile::within(name, plan))),
            (None, None) => Ok(None),
        }
    }

    /// Follows the plan of a measurement, unless one is given.
    pub(super) fn follow(&mut self, file: String, plan: String) {
        self.measured = Some((file, plan));
    }

    /// Whether there is one.
    pub(super) fn is_given(&self) -> bool {
        self.plan.is_some()
    }
}
