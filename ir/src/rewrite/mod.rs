//! Rewrites that keep meaning: dead code, common subexpressions, algebra, specialization, inlining,
//! stable forms.

mod algebra;
mod copy;
mod cse;
mod dce;
mod inline;
mod specialize;
mod stable;
mod widen;

pub use algebra::{Exactness, RULES, Rule, simplify};
pub use copy::{Copier, Each};
pub use cse::cse;
pub use dce::dce;
pub use inline::{MAX_INLINED, inline, splice};
pub use specialize::specialize;
pub use stable::{Recognised, STABLE_RULES, StableRule, stabilize};
pub use widen::{widen, widened};
