//! What is decided about a value that crosses phases, as data: the choice, its alternative, and what settles it.

use super::crossing::Reading;
use crate::plan::Plan;
use crate::plan::lossy::LossyCopy;
use crate::search::point::PlanPoint;
use adfuse_ir::{Phase, Value};

/// The decision about a value between the phase that computes it and the later phases that need it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResidualChoice {
    /// It is stored unchanged.
    Save,
    /// It is stored in a narrower lossless form.
    Compress {
        /// Bits of an element.
        bits: u8,
    },
    /// It is a lossy copy in a narrower type that the user allows.
    Lossy(LossyCopy),
    /// It is recomputed.
    Remat {
        /// The groups that recompute it for themselves.
        inside: Vec<usize>,
        /// The groups that recompute it for others.
        own: Vec<usize>,
        /// The values that are read for the recomputation.
        from: Vec<Value>,
    },
    /// It is never in memory: the kernels that compute it need it for the later phase, too.
    Shared,
    /// It is a parameter, which is there anyway.
    Parameter,
    /// It is written in the program.
    Constant,
    /// It is a result, which is there anyway. What the user marks to be kept is a result.
    Output,
}

/// The difference of another plan: its figures less those of the present plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Difference {
    /// The other plan.
    pub plan: Plan,
    /// Bytes of the peak.
    pub peak: i64,
    /// Bytes that phases leave to later ones.
    pub saved: i64,
    /// Predicted seconds.
    pub seconds: f64,
}

impl Difference {
    /// What another plan takes less what the present one does.
    pub(crate) fn between(other: PlanPoint, present: &PlanPoint) -> Difference {
        Difference {
            peak: less(other.peak, present.peak),
            saved: less(other.saved, present.saved),
            seconds: other.seconds - present.seconds,
            plan: other.plan,
        }
    }
}

/// One number less another, as far as it can be told.
fn less(a: u64, b: u64) -> i64 {
    let d = i128::from(a) - i128::from(b);
    d.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// Why there is no alternative.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoAlternative {
    /// A parameter is not computed.
    Parameter,
    /// A constant is not computed.
    Constant,
    /// A result is in memory anyway: recomputing it frees nothing.
    Output,
    /// No alternative can be lowered: the refusal of the first one.
    Refused(String),
}

/// The alternative to a decision.
#[derive(Clone, PartialEq, Debug)]
pub enum Alternative {
    /// It could be stored.
    Keep(Difference),
    /// It could be recomputed.
    Remat(Difference),
    /// Nothing.
    None(NoAlternative),
    /// There may be one, and none was made: it was asked for those of other values alone.
    NotPriced,
}

/// What settles a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Constraint {
    /// There is no alternative.
    Legality,
    /// The value is in a checkpoint region that keeps it.
    Checkpoint,
    /// The value need not be kept beside another that is, if what it is made of need not be exact.
    Exactness {
        /// The other value.
        of: Value,
        /// Whether the modes `reproducible` and `fast` have an inverse that holds here.
        allowed: bool,
    },
    /// The alternative is no slower and takes more than the budget.
    Budget {
        /// By this many bytes.
        over: u64,
    },
    /// The alternative is slower, and no budget needs the memory that it frees.
    Time,
    /// The alternative is as fast and frees nothing.
    Bytes,
    /// The alternative is faster by so little that the planner does not look for it: by less than
    /// 1/5,000 of the plan's time. Its peak is no lower, and where it is the same no fewer bytes are left to later phases.
    Slight,
    /// Nothing: the alternative is faster, or as fast with a lower peak, or with that and fewer bytes
    /// saved, and the planner did not look there.
    Search,
    /// It was not asked what the alternative costs.
    NotPriced,
}

/// The decision for a value.
#[derive(Clone, PartialEq, Debug)]
pub struct Decision {
    /// The value.
    pub value: Value,
    /// The phase that computes it.
    pub phase: Phase,
    /// The groups that need it for later phases, in the order in which they run, and how each gets
    /// it.
    pub readings: Vec<Reading>,
    /// What becomes of it.
    pub choice: ResidualChoice,
    /// Bytes that it takes where it is stored, or would take.
    pub bytes: u64,
    /// How many of the plan's [`saved_bytes`](crate::saved_bytes) are of this value.
    pub saved: u64,
    /// Whether it is in memory at the moment at which most bytes are in use, so that less of it would
    /// lower the peak if nothing else is as high.
    pub at_peak: bool,
    /// The alternative and its cost.
    pub other: Alternative,
    /// What settles it.
    pub bound: Constraint,
    /// The value whose alternative was made and priced instead of this one's, where both are of one class.
    pub priced_for: Option<Value>,
}
