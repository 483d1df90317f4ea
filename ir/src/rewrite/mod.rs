//! Rewrites that keep meaning: dead code, common subexpressions, algebra, specialization, inlining,
//! stable forms.

mod algebra;
mod collectives;
mod convolutions;
mod copy;
mod cse;
mod dce;
mod depthwise;
mod exchange_buckets;
mod exchange_order;
mod exchange_prefetch;
mod extents;
mod inline;
mod norms;
mod pattern;
mod product_axes;
mod product_sums;
mod rule;
mod sharding;
mod specialize;
mod stable;
mod steps;
mod widen;

pub use algebra::{ALGEBRA, simplify};
pub use collectives::{WHOLE_BYTES, folded_in_pairs, over_batch, with_exchanges};
pub use convolutions::{CONVOLUTIONS, with_convolutions};
pub use copy::{Copier, Each};
pub use cse::cse;
pub use dce::dce;
pub use exchange_buckets::{ExchangeBuckets, joined_exchanges};
pub use exchange_order::exchanges_early;
pub use extents::BoundExtents;
pub use inline::{MAX_INLINED, inline, inline_keeping_rules, splice};
pub use norms::{FOLDED_NORMS, with_folded_norms};
pub use pattern::{Match, Pattern, Root};
pub use product_sums::{PRODUCT_SUMS, with_product_sums};
pub use rule::{
    Exactness, Reads, Recognised, Replacement, Rule, RuleTable, Site, Then, When, always, rewrite,
};
pub use sharding::{ShardedSums, ShardedTensor, StatePair, StateSharding, sharded};
pub use specialize::specialize;
pub use stable::{
    ATTENTION, Hazard, STABLE, in_stable_forms, is_softmax_sum, stabilize, with_attention,
};
pub use steps::{AttentionSteps, StepElements, StepLowering, with_steps};
pub use widen::{widen, widened};
