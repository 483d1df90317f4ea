//! The rows of a check's report: what was compared, and the outcome.

/// What was compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckedMode {
    /// Forward mode with central differences.
    Forward,
    /// Reverse mode with forward mode.
    Reverse,
}

/// How a comparison ended.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// Within tolerance; the largest error as a share of what is tolerated.
    Pass(f64),
    /// Within tolerance, but every derivative at this point is zero: little was tried.
    Flat,
    /// Beyond tolerance, by this factor; the instruction at fault, where one can be named, and what
    /// the transformation says, where it fails.
    Fail(f64, Option<String>),
    /// No point was found where the function is finite; a result that is not.
    NotFinite(String),
    /// The transformation or the comparison cannot be made, and why.
    Unsupported(String),
    /// Nothing to compare: no input or no result is of a float type.
    Nothing,
}

/// One line of the report.
#[derive(Clone, PartialEq, Debug)]
pub struct CheckRow {
    /// The function.
    pub func: String,
    /// The input, or empty for the whole function.
    pub input: String,
    /// What was compared.
    pub mode: CheckedMode,
    /// How it ended.
    pub outcome: Outcome,
}

impl CheckRow {
    /// Whether this row speaks against the derivatives.
    pub fn failed(&self) -> bool {
        matches!(self.outcome, Outcome::Fail(..) | Outcome::NotFinite(_))
    }
}
